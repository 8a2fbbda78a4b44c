//! Options of siga sockets (setsockopt(2), getsockopt(2)).
//!
//! An option that the guest's stack does not know is left to the kernel's socket that stands behind the number, so that its value can
//! be read back. The log names it.

use crate::datagrams::network;
use crate::errors::{Error, Result};
use crate::socket::{Family, Kind, Socket, State};
use crate::world::{Place, World};
use crate::{attach, log};
use siga_iucv::options::{DatagramChange, Interface, MtuDiscovery};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU8;
use std::time::Duration;

/// What happens to an option.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Handled {
    /// The option has its new value, or the bytes are its value.
    Value(Vec<u8>),
    /// The kernel's socket has the value.
    ByKernel,
}

/// Place of `tcpi_snd_mss` in `struct tcp_info`.
const SEGMENT_BYTES_AT: usize = 16;
/// The TTL and the hop limit of the kernel.
const HOPS_DEFAULT: u8 = 64;
/// Options with a group in `struct group_req` and `struct group_source_req`, which are the same for both IP versions (`<linux/in.h>`).
const MCAST_JOIN_GROUP: i32 = 42;
const MCAST_LEAVE_GROUP: i32 = 45;
const MCAST_JOIN_SOURCE_GROUP: i32 = 46;

/// Size of a time value of the kernel (`struct timeval`), in bytes.
const TIMEVAL_BYTES: usize = 16;

fn number(value: &[u8]) -> Result<i32> {
    let bytes = value.first_chunk::<4>().ok_or(Error::INVALID)?;
    Ok(i32::from_ne_bytes(*bytes))
}

fn time(value: &[u8]) -> Result<Option<Duration>> {
    let (seconds, rest) = value.split_first_chunk::<8>().ok_or(Error::INVALID)?;
    let us = i64::from_ne_bytes(*rest.first_chunk::<8>().ok_or(Error::INVALID)?);
    let seconds = u64::try_from(i64::from_ne_bytes(*seconds)).map_err(|_| Error(libc::EDOM))?;
    let us = u32::try_from(us).ok().filter(|us| *us < 1_000_000).ok_or(Error(libc::EDOM))?;
    let time = Duration::new(seconds, us * 1_000);
    Ok((!time.is_zero()).then_some(time))
}

fn time_bytes(time: Option<Duration>) -> Vec<u8> {
    let time = time.unwrap_or_default();
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let bytes = [seconds.to_ne_bytes(), i64::from(time.subsec_micros()).to_ne_bytes()].concat();
    debug_assert_eq!(bytes.len(), TIMEVAL_BYTES, "two numbers of 64 bits");
    bytes
}

fn value(number: i32) -> Handled {
    Handled::Value(number.to_ne_bytes().to_vec())
}

/// The idle time before keepalive probes, and the time between them, unless the program sets others (Linux's defaults).
pub(crate) const KEEPALIVE_DEFAULT: Duration = Duration::from_secs(7_200);
const PROBE_INTERVAL_DEFAULT: Duration = Duration::from_secs(75);
/// The number of unanswered keepalive probes that ends a connection, unless the program sets another (Linux's default).
const PROBES_DEFAULT: u8 = 9;

impl World {
    /// Sets an option.
    pub(crate) fn set_option(&mut self, place: Place, level: i32, name: i32, bytes: &[u8]) -> Result<Handled> {
        if let Some((family, change)) = datagram_change(level, name, bytes)? {
            match (self.socket_at(place)?.kind, change) {
                (Kind::Datagram, _) => return self.set_datagram_option(place, (level, name), bytes, family, change),
                (
                    Kind::Stream,
                    DatagramChange::UnicastHopLimit(_) | DatagramChange::Service(_) | DatagramChange::MtuDiscovery(_),
                ) => {}
                // A stream has no groups, and the kernel's socket must not join one on the host's network.
                (Kind::Stream, _) => return Err(Error::INVALID),
            }
        }
        let socket = self.socket_at(place)?;
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => {
                // As in Linux, 0 means 1. A receive buffer that the program has not chosen takes at least twice as many bytes.
                let bytes_min = size(bytes)?.clamp(1, READABLE_BYTES_MAX);
                socket.readable_bytes_min = bytes_min;
                let buffer = socket.options.receive_buffer;
                if let (State::Connection { number, .. }, true) = (&socket.state, socket.needs_tcp()) {
                    let number = *number;
                    self.client()?.keep_with_tcp(number)?;
                }
                if bytes_min > READABLE_BYTES_WITHOUT_BUFFER && buffer.is_none_or(|buffer| buffer < 2 * bytes_min) {
                    return self.set_option(
                        place,
                        libc::SOL_SOCKET,
                        libc::SO_RCVBUF,
                        &i32::try_from(2 * bytes_min).unwrap_or(i32::MAX).to_ne_bytes(),
                    );
                }
                // It may be readable now.
                self.announce(place);
            }
            // The stack neither divides sent datagrams nor combines received ones, as a kernel before these options.
            (libc::SOL_UDP, libc::UDP_SEGMENT | libc::UDP_GRO) => return Err(Error(libc::ENOPROTOOPT)),
            (libc::IPPROTO_IP, libc::IP_PKTINFO | libc::IP_RECVTTL | libc::IP_RECVTOS)
            | (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO | libc::IPV6_RECVHOPLIMIT | libc::IPV6_RECVTCLASS) => {
                let flag = i32::from(bytes.iter().any(|byte| *byte != 0));
                socket.other_options.insert((level, name), flag.to_ne_bytes().to_vec());
            }
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => socket.receive_time_max = time(bytes)?,
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => socket.send_time_max = time(bytes)?,
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => {
                if !matches!(socket.state, State::New) {
                    return Err(Error::INVALID);
                }
                socket.v6_only = number(bytes)? != 0;
            }
            _ => {
                if !set_stack_option(socket, level, name, bytes)? {
                    note_unknown(level, name);
                    socket.other_options.insert((level, name), bytes.to_vec());
                    return Ok(Handled::ByKernel);
                }
                let options = socket.options;
                match &socket.state {
                    State::Connection { number, .. } => {
                        let number = *number;
                        self.client()?.set(number, &options)?;
                    }
                    State::Listening { numbers, .. } => {
                        let numbers = numbers.clone();
                        let client = self.client()?;
                        numbers.iter().try_for_each(|number| client.set(*number, &options))?;
                    }
                    State::New | State::Bound { .. } | State::Datagrams { .. } | State::Lost(_) => {}
                }
            }
        }
        Ok(Handled::ByKernel)
    }

    /// Returns the value of an option.
    pub(crate) fn option(&mut self, place: Place, level: i32, name: i32) -> Result<Handled> {
        let socket = self.socket_at(place)?;
        if let Some(bytes) = socket.other_options.get(&(level, name)) {
            return Ok(Handled::Value(bytes.clone()));
        }
        Ok(match (level, name) {
            (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_RCVBUF) => return self.buffer_bytes(place, name),
            (libc::SOL_SOCKET, libc::SO_ERROR) => value(self.take_failure(place)?),
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => Handled::Value(time_bytes(socket.receive_time_max)),
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => Handled::Value(time_bytes(socket.send_time_max)),
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
                value(i32::from(matches!(socket.state, State::Listening { .. })))
            }
            (libc::SOL_SOCKET, libc::SO_TYPE) => value(match socket.kind {
                Kind::Stream => libc::SOCK_STREAM,
                Kind::Datagram => libc::SOCK_DGRAM,
            }),
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => value(match socket.family {
                Family::V4 => libc::AF_INET,
                Family::V6 => libc::AF_INET6,
            }),
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => value(match socket.kind {
                Kind::Stream => libc::IPPROTO_TCP,
                Kind::Datagram => libc::IPPROTO_UDP,
            }),
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let linger = socket.options.linger;
                let seconds = linger.map_or(0, |linger| i32::try_from(linger.as_secs()).unwrap_or(i32::MAX));
                Handled::Value([i32::from(linger.is_some()).to_ne_bytes(), seconds.to_ne_bytes()].concat())
            }
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => value(i32::from(socket.options.keepalive.is_some())),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => value_of(socket.keepalive_idle.as_secs().into()),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => {
                value_of(socket.options.probe_interval.unwrap_or(PROBE_INTERVAL_DEFAULT).as_secs().into())
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => value(socket.options.probes_max.unwrap_or(PROBES_DEFAULT).into()),
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
                value_of(socket.options.user_timeout.unwrap_or_default().as_millis())
            }
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
                if socket.kind == Kind::Stream =>
            {
                value(socket.options.service.into())
            }
            (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => value_of(socket.readable_bytes_min as u128),
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS)
                if socket.kind == Kind::Stream =>
            {
                value(socket.options.hop_limit.into())
            }
            (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => {
                value_of(socket.options.defer_accept.unwrap_or_default().as_secs().into())
            }
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => return self.segment_bytes(place),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => value(i32::from(socket.options.no_delay)),
            (libc::IPPROTO_TCP, libc::TCP_CORK) => value(i32::from(socket.options.cork)),
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => value(i32::from(socket.v6_only)),
            (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                let State::Connection { number, .. } = socket.state else { return Err(Error::INVALID) };
                Handled::Value(self.client()?.info(number)?.tcp_info.to_vec())
            }
            _ => Handled::ByKernel,
        })
    }
}

/// Sets an option of the guest's stack. Returns false if the stack does not know it.
fn set_stack_option(socket: &mut Socket, level: i32, name: i32, bytes: &[u8]) -> Result<bool> {
    let options = &mut socket.options;
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => options.send_buffer = Some(size(bytes)?),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => options.receive_buffer = Some(size(bytes)?),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => {
            options.keepalive = (number(bytes)? != 0).then_some(socket.keepalive_idle);
        }
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            let seconds = number(bytes.get(4..).ok_or(Error::INVALID)?)?;
            let time = Duration::from_secs(u64::try_from(seconds).map_err(|_| Error::INVALID)?);
            options.linger = (number(bytes)? != 0).then_some(time);
        }
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => options.no_delay = number(bytes)? != 0,
        (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => {
            let seconds = u64::try_from(number(bytes)?).unwrap_or(0);
            options.defer_accept = (seconds > 0).then(|| Duration::from_secs(seconds));
        }
        (libc::IPPROTO_TCP, libc::TCP_CORK) => options.cork = number(bytes)? != 0,
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
            socket.keepalive_idle = seconds(bytes)?;
            options.keepalive = options.keepalive.map(|_| socket.keepalive_idle);
        }
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => options.probe_interval = Some(seconds(bytes)?),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => {
            options.probes_max =
                Some(u8::try_from(number(bytes)?).ok().filter(|count| *count > 0).ok_or(Error::INVALID)?);
        }
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
            let ms = u64::try_from(number(bytes)?).map_err(|_| Error::INVALID)?;
            options.user_timeout = (ms != 0).then_some(Duration::from_millis(ms));
        }
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            options.service = u8::try_from(number(bytes)?.max(0)).map_err(|_| Error::INVALID)?;
        }
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) | (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER) => {
            options.mtu_discovery = Some(mtu_discovery(bytes)?);
        }
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => options.unsent_max = u32::try_from(number(bytes)?).ok(),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => options.segment_bytes_max = u16::try_from(number(bytes)?).ok(),
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
            let hops = number(bytes)?;
            options.hop_limit =
                if hops == -1 { HOPS_DEFAULT } else { u8::try_from(hops).map_err(|_| Error::INVALID)? };
        }
        (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT) => {
            let other = if name == libc::SO_REUSEADDR { libc::SO_REUSEPORT } else { libc::SO_REUSEADDR };
            let is_set =
                |value: Option<&Vec<u8>>| value.is_some_and(|value| number(value).is_ok_and(|value| value != 0));
            socket.shares_address = number(bytes)? != 0 || is_set(socket.other_options.get(&(level, other)));
            socket.other_options.insert((level, name), i32::from(number(bytes)? != 0).to_ne_bytes().to_vec());
        }
        // The stack always behaves in this way.
        (libc::SOL_SOCKET, libc::SO_BROADCAST) => {}
        _ => return Ok(false),
    }
    Ok(true)
}

/// The largest number of bytes for which a program can wait with `SO_RCVLOWAT`.
const READABLE_BYTES_MAX: usize = 3 << 20;
/// With a smaller number, the usual receive buffer suffices.
const READABLE_BYTES_WITHOUT_BUFFER: usize = 16 << 10;

/// Reads a number that an option of IPv4 has as an octet or as an integer. The kernel stands for `default` with -1.
fn octet(bytes: &[u8], least: u8, default: u8) -> Result<u8> {
    let octet = match bytes {
        [octet] => *octet,
        _ => match number(bytes)? {
            -1 => default,
            number => u8::try_from(number).map_err(|_| Error::INVALID)?,
        },
    };
    if octet < least { Err(Error::INVALID) } else { Ok(octet) }
}

/// Reads how a socket finds the MTU of its paths. The kernel's numbers are places in the list of all values.
fn mtu_discovery(bytes: &[u8]) -> Result<MtuDiscovery> {
    let place = usize::try_from(number(bytes)?).map_err(|_| Error::INVALID)?;
    MtuDiscovery::ALL.get(place).copied().ok_or(Error::INVALID)
}

/// Reads an IPv4 address.
fn address_v4(bytes: &[u8]) -> Result<Ipv4Addr> {
    Ok(Ipv4Addr::from(*bytes.first_chunk::<4>().ok_or(Error::INVALID)?))
}

/// Reads the choice of an interface by its number. 0 leaves the choice to the guest's routes.
fn interface(number: u32) -> Result<Interface> {
    Ok(network(number)?.map_or(Interface::OfRoute, Interface::Number))
}

/// Reads `struct ip_mreqn`, or its beginning: a group, an address of an interface, and the number of an interface.
fn group_v4(bytes: &[u8]) -> Result<(IpAddr, Interface)> {
    let (group, rest) = (address_v4(bytes)?, bytes.get(4..).unwrap_or_default());
    let on = match rest.get(4..).and_then(<[u8]>::first_chunk::<4>).map(|index| u32::from_ne_bytes(*index)) {
        Some(index) if index != 0 => interface(index)?,
        Some(_) | None => Interface::of_address(address_v4(rest)?),
    };
    Ok((group.into(), on))
}

/// Reads `struct ipv6_mreq`: a group and the number of an interface.
fn group_v6(bytes: &[u8]) -> Result<(IpAddr, Interface)> {
    let (group, rest) = bytes.split_first_chunk::<16>().ok_or(Error::INVALID)?;
    let index = u32::from_ne_bytes(*rest.first_chunk().ok_or(Error::INVALID)?);
    Ok((Ipv6Addr::from(*group).into(), interface(index)?))
}

/// Reads `struct group_req`: the number of an interface, and a socket address with the group.
fn group(bytes: &[u8]) -> Result<(IpAddr, Interface)> {
    let index = u32::from_ne_bytes(*bytes.first_chunk().ok_or(Error::INVALID)?);
    let address = bytes.get(8..).ok_or(Error::INVALID)?;
    let family = address.first_chunk().map(|family| i32::from(u16::from_ne_bytes(*family)));
    let group = match family {
        Some(libc::AF_INET) => address_v4(address.get(4..).unwrap_or_default())?.into(),
        Some(libc::AF_INET6) => {
            let octets = address.get(8..).and_then(<[u8]>::first_chunk::<16>).ok_or(Error::INVALID)?;
            Ipv6Addr::from(*octets).into()
        }
        _ => return Err(Error::INVALID),
    };
    Ok((group, interface(index)?))
}

/// Returns what an option changes at the datagram sockets of the stack for one IP version, or `None` if it is another option.
fn datagram_change(level: i32, name: i32, bytes: &[u8]) -> Result<Option<(Family, DatagramChange)>> {
    use DatagramChange::{GroupNetwork, HopLimit, Join, Leave, Loop, Service, UnicastHopLimit};
    let is_set = || bytes.first().map(|first| *first != 0).ok_or(Error::INVALID);
    let hops = |octet: u8| NonZeroU8::new(octet).ok_or(Error::INVALID);
    let family = match level {
        libc::IPPROTO_IP => Family::V4,
        libc::IPPROTO_IPV6 => Family::V6,
        _ => return Ok(None),
    };
    let change = match (family, name) {
        (Family::V4, libc::IP_TTL) => UnicastHopLimit(hops(octet(bytes, 1, HOPS_DEFAULT)?)?),
        (Family::V6, libc::IPV6_UNICAST_HOPS) => UnicastHopLimit(hops(octet(bytes, 1, HOPS_DEFAULT)?)?),
        (Family::V4, libc::IP_TOS) | (Family::V6, libc::IPV6_TCLASS) => Service(octet(bytes, 0, 0)?),
        (Family::V4, libc::IP_MULTICAST_TTL) | (Family::V6, libc::IPV6_MULTICAST_HOPS) => HopLimit(octet(bytes, 0, 1)?),
        (Family::V4, libc::IP_MULTICAST_LOOP) | (Family::V6, libc::IPV6_MULTICAST_LOOP) => Loop(is_set()?),
        (Family::V4, libc::IP_MULTICAST_IF) => GroupNetwork(match bytes.len() {
            0..8 => Interface::of_address(address_v4(bytes)?),
            _ => group_v4(bytes)?.1,
        }),
        (Family::V6, libc::IPV6_MULTICAST_IF) => {
            GroupNetwork(interface(u32::try_from(number(bytes)?).map_err(|_| Error(libc::ENODEV))?)?)
        }
        (Family::V4, libc::IP_ADD_MEMBERSHIP) => group_v4(bytes).map(|(group, on)| Join(group, on))?,
        (Family::V4, libc::IP_DROP_MEMBERSHIP) => group_v4(bytes).map(|(group, on)| Leave(group, on))?,
        (Family::V6, libc::IPV6_ADD_MEMBERSHIP) => group_v6(bytes).map(|(group, on)| Join(group, on))?,
        (Family::V6, libc::IPV6_DROP_MEMBERSHIP) => group_v6(bytes).map(|(group, on)| Leave(group, on))?,
        (Family::V4, libc::IP_MTU_DISCOVER) | (Family::V6, libc::IPV6_MTU_DISCOVER) => {
            DatagramChange::MtuDiscovery(mtu_discovery(bytes)?)
        }
        (_, MCAST_JOIN_GROUP) => group(bytes).map(|(group, on)| Join(group, on))?,
        (_, MCAST_LEAVE_GROUP) => group(bytes).map(|(group, on)| Leave(group, on))?,
        // A socket of the stack receives from all sources.
        (Family::V4, libc::IP_ADD_SOURCE_MEMBERSHIP | libc::IP_BLOCK_SOURCE) | (_, MCAST_JOIN_SOURCE_GROUP) => {
            return Err(Error(libc::ENOPROTOOPT));
        }
        _ => return Ok(None),
    };
    if let Join(group, _) | Leave(group, _) = change
        && (!group.is_multicast() || group.is_ipv4() != (family == Family::V4))
    {
        return Err(Error::INVALID);
    }
    Ok(Some((family, change)))
}

impl World {
    /// Returns the size of a buffer of a connection.
    fn buffer_bytes(&mut self, place: Place, name: i32) -> Result<Handled> {
        let State::Connection { number, .. } = self.socket_at(place)?.state else { return Ok(Handled::ByKernel) };
        let options = self.client()?.info(number)?.options;
        let bytes = if name == libc::SO_SNDBUF { options.send_buffer } else { options.receive_buffer };
        Ok(value(i32::try_from(bytes.unwrap_or(0)).unwrap_or(i32::MAX)))
    }

    /// Returns the payload of a full segment of a connection.
    fn segment_bytes(&mut self, place: Place) -> Result<Handled> {
        let State::Connection { number, .. } = self.socket_at(place)?.state else { return Ok(Handled::ByKernel) };
        Ok(value_of(self.tcp_info_number(number, SEGMENT_BYTES_AT)?.into()))
    }

    /// Returns the number at the place `at` of the `struct tcp_info` of a connection.
    pub(crate) fn tcp_info_number(&mut self, connection: u32, at: usize) -> Result<u32> {
        let info = self.client()?.info(connection)?.tcp_info;
        let bytes = info.get(at..).and_then(<[u8]>::first_chunk::<4>).ok_or(Error::INVALID)?;
        Ok(u32::from_ne_bytes(*bytes))
    }

    fn set_datagram_option(
        &mut self,
        place: Place,
        (level, name): (i32, i32),
        bytes: &[u8],
        family: Family,
        change: DatagramChange,
    ) -> Result<Handled> {
        use DatagramChange::{GroupNetwork, Join, Leave};
        if let Join(_, on) | GroupNetwork(on) = change {
            check_interface(on)?;
        }
        self.change_datagrams(place, family, change)?;
        Ok(match change {
            // The kernel's socket must not join a group on the host's network.
            Join(..) | Leave(..) => Handled::Value(Vec::new()),
            GroupNetwork(_) => {
                self.socket_at(place)?.other_options.insert((level, name), bytes.to_vec());
                Handled::Value(Vec::new())
            }
            DatagramChange::HopLimit(_)
            | DatagramChange::Loop(_)
            | DatagramChange::MtuDiscovery(_)
            | DatagramChange::Timing(_)
            | DatagramChange::UnicastHopLimit(_)
            | DatagramChange::Service(_) => Handled::ByKernel,
        })
    }
}

/// Returns an error if the guest has no such interface.
fn check_interface(on: Interface) -> Result<()> {
    let exists = match on {
        Interface::OfRoute => true,
        Interface::Number(number) => attach::interfaces()?.len() >= usize::try_from(number).unwrap_or(usize::MAX),
        Interface::Address(own) => {
            let has = |interface: &siga_iucv::broker::Interface| {
                interface.addresses.iter().any(|(address, _)| *address == IpAddr::V4(own))
            };
            attach::interfaces()?.iter().any(has)
        }
    };
    if exists { Ok(()) } else { Err(Error(libc::ENODEV)) }
}

fn value_of(number: u128) -> Handled {
    value(i32::try_from(number).unwrap_or(i32::MAX))
}

/// Reads a number of seconds. As in Linux, it is at least one.
fn seconds(bytes: &[u8]) -> Result<Duration> {
    let seconds = u64::try_from(number(bytes)?).ok().filter(|seconds| *seconds > 0).ok_or(Error::INVALID)?;
    Ok(Duration::from_secs(seconds))
}

/// The largest size of a buffer that a program can ask for.
const SIZE_MAX: usize = 0x7fff_ffff;

fn size(bytes: &[u8]) -> Result<usize> {
    // As in Linux, a negative size is a very large one, which is then limited.
    Ok(usize::try_from(number(bytes)?).unwrap_or(SIZE_MAX))
}

fn note_unknown(level: i32, name: i32) {
    log::line(format_args!(
        "the guest's stack does not support socket option {name} of level {level}; the option has no effect"
    ));
}
