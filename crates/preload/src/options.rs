//! Options of siga sockets (setsockopt(2), getsockopt(2)).
//!
//! An option that the guest's stack does not know is left to the kernel's socket that stands behind the number, so that its value can
//! be read back. The log names it.

use crate::errors::{Error, Result};
use crate::log;
use crate::socket::{Family, Kind, Socket, State};
use crate::world::{Place, World};
use std::time::Duration;

/// What happens to an option.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Handled {
    /// The option has its new value, or the bytes are its value.
    Value(Vec<u8>),
    /// The kernel's socket has the value.
    ByKernel,
}

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
        let socket = self.socket_at(place)?;
        match (level, name) {
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
                if let State::Connection { number, .. } = socket.state {
                    let options = socket.options;
                    self.client()?.set(number, &options)?;
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
            (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_RCVBUF) => match socket.state {
                State::Connection { number, .. } => {
                    let options = self.client()?.info(number)?.options;
                    let bytes = if name == libc::SO_SNDBUF { options.send_buffer } else { options.receive_buffer };
                    value(i32::try_from(bytes.unwrap_or(0)).unwrap_or(i32::MAX))
                }
                State::New
                | State::Bound { .. }
                | State::Listening { .. }
                | State::Datagrams { .. }
                | State::Lost(_) => Handled::ByKernel,
            },
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
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                value(socket.options.service.into())
            }
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
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => options.unsent_max = u32::try_from(number(bytes)?).ok(),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => options.segment_bytes_max = u16::try_from(number(bytes)?).ok(),
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
            let hops = number(bytes)?;
            options.hop_limit = if hops == -1 { 64 } else { u8::try_from(hops).map_err(|_| Error::INVALID)? };
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
    log::line(format_args!("the guest's stack has no option {name} of level {level}; it has no effect"));
}
