//! The operations of datagram sockets. None of them waits.

use crate::errors::{Error, Result};
use crate::log;
use crate::socket::{Change, Family, Received, Sending, Socket, State, any, this_host};
use crate::world::{Place, World};
use siga_iucv::client::{Client, NextDatagram};
use siga_iucv::options::{DatagramChange, Delivery};
use siga_iucv::record::{DATAGRAM_BYTES_MAX, Number};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;

/// Makes a socket of the stack for a datagram socket, with the options that the program has set.
fn bind(client: &mut Client, socket: &Socket, local: SocketAddr) -> Result<Number> {
    let number = if socket.shares_address { client.bind_shared(local) } else { client.bind(local) }?;
    let family = family_of(&local);
    for Change { change, .. } in socket.changes.iter().filter(|change| change.family == family) {
        // The program has set an option before the socket had an address. An error, such as an unknown network, comes too late for it.
        if let Err(error) = client.change_datagrams(number, *change) {
            log::line(format_args!("{change:?}: {error}"));
        }
    }
    Ok(number)
}

fn family_of(address: &SocketAddr) -> Family {
    if address.is_ipv4() { Family::V4 } else { Family::V6 }
}

/// Returns whether a later change makes an earlier one void.
fn replaces(later: DatagramChange, earlier: DatagramChange) -> bool {
    use DatagramChange::{Join, Leave};
    match (later, earlier) {
        (Join(..), _) | (_, Leave(..)) => false,
        (Leave(group, on), Join(joined, joined_on)) => group == joined && on == joined_on,
        (later, earlier) => std::mem::discriminant(&later) == std::mem::discriminant(&earlier),
    }
}

impl World {
    /// Makes the sockets of the stack for a datagram socket: both IP versions if the address is `::` and the socket uses both. `bound`
    /// is the address if the program chose it.
    pub(crate) fn open_datagrams(&mut self, place: Place, local: SocketAddr, bound: Option<SocketAddr>) -> Result<()> {
        let (socket, client) = self.socket_and_client(place)?;
        let is_dual = local.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && !socket.v6_only;
        let first = bind(client, socket, local)?;
        let port = client.addresses(first)?.0.port();
        let (mut v4, mut v6) = (None, None);
        *(if local.is_ipv4() { &mut v4 } else { &mut v6 }) = Some(first);
        if is_dual {
            match bind(client, socket, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)) {
                Ok(second) => v4 = Some(second),
                Err(error) => {
                    client.close(first);
                    return Err(error);
                }
            }
        }
        let bound = bound.map(|bound| SocketAddr::new(bound.ip(), port));
        socket.state = State::Datagrams { v4, v6, peer: None, bound };
        self.bind_numbers(place)
    }

    /// Returns the socket of the stack that sends datagrams to `to`. Makes this socket if it does not exist yet.
    fn datagrams_to(&mut self, place: Place, to: SocketAddr) -> Result<Number> {
        let socket = self.socket_at(place)?;
        match socket.state {
            State::New => self.open_datagrams(place, any(&to), None)?,
            State::Lost(error) => return Err(error),
            State::Datagrams { .. } | State::Bound { .. } | State::Listening { .. } | State::Connection { .. } => {}
        }
        let (socket, client) = self.socket_and_client(place)?;
        let State::Datagrams { v4, v6, bound, .. } = &socket.state else { return Err(Error::NOT_CONNECTED) };
        if let Some(number) = if to.is_ipv4() { v4 } else { v6 } {
            return Ok(*number);
        }
        if bound.is_some() {
            // The program has bound the socket to an address of the other IP version.
            return Err(Error(libc::ENETUNREACH));
        }
        let number = bind(client, socket, any(&to))?;
        if let State::Datagrams { v4, v6, .. } = &mut socket.state {
            *(if to.is_ipv4() { v4 } else { v6 }) = Some(number);
        }
        self.bind_number(number, place);
        Ok(number)
    }

    /// Connects a datagram socket to a remote address. No packet is sent for this.
    pub(crate) fn connect_datagrams(&mut self, place: Place, to: SocketAddr) -> Result<()> {
        let to = this_host(to);
        if let State::Datagrams { peer: Some(_), .. } = self.socket_at(place)?.state {
            self.disconnect_datagrams(place)?;
        }
        let number = self.datagrams_to(place, to)?;
        self.client()?.connect_datagrams(number, to)?;
        if let State::Datagrams { peer, .. } = &mut self.socket_at(place)?.state {
            *peer = Some(to);
        }
        Ok(())
    }

    /// Removes the peer of a datagram socket. The socket gets a new socket of the stack, at the address that the program chose.
    pub(crate) fn disconnect_datagrams(&mut self, place: Place) -> Result<()> {
        let (socket, client) = self.socket_and_client(place)?;
        let State::Datagrams { peer: Some(_), bound, .. } = socket.state else { return Ok(()) };
        let numbers = socket.stack_numbers();
        numbers.iter().for_each(|number| client.close(*number));
        socket.state = State::New;
        self.forget_numbers(&numbers);
        bound.map_or(Ok(()), |bound| self.open_datagrams(place, bound, Some(bound)))
    }

    /// Sends a datagram.
    pub(crate) fn send_datagram(&mut self, place: Place, bytes: &[u8], how: Sending) -> Result<usize> {
        let peer = if let State::Datagrams { peer, .. } = &self.socket_at(place)?.state { *peer } else { None };
        let to = this_host(how.to.or(peer).ok_or(Error(libc::EDESTADDRREQ))?);
        if bytes.len() > DATAGRAM_BYTES_MAX {
            return Err(Error(libc::EMSGSIZE));
        }
        let number = self.datagrams_to(place, to)?;
        Ok(self.client()?.send_to_with(number, bytes, to, how.with)?)
    }

    /// Receives the next datagram. With `peek`, it stays for the next call.
    pub(crate) fn receive_datagram(&mut self, place: Place, into: &mut [u8], peek: bool) -> Result<Received> {
        let (socket, client) = self.socket_and_client(place)?;
        let State::Datagrams { v4, v6, peer, .. } = &socket.state else { return Err(Error::WOULD_BLOCK) };
        let is_used = |version: bool| peer.is_none_or(|peer| peer.is_ipv4() == version);
        let numbers = [v4.filter(|_| is_used(true)), v6.filter(|_| is_used(false))];
        for number in numbers.into_iter().flatten() {
            let NextDatagram { bytes, from, delivery } = match client.peek_from(number, into) {
                Ok(next) => next,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            };
            if !peek {
                client.receive_from(number, &mut [])?;
            }
            return Ok(Received { bytes, from: Some(socket.to_program(from)), delivery });
        }
        Err(Error::WOULD_BLOCK)
    }

    /// Changes an option or the groups of a datagram socket. The sockets of the stack that it gets later are changed in the same way.
    pub(crate) fn change_datagrams(&mut self, place: Place, family: Family, change: DatagramChange) -> Result<()> {
        let socket = self.socket_at(place)?;
        if let State::Datagrams { v4, v6, .. } = socket.state
            && let Some(number) = if family == Family::V4 { v4 } else { v6 }
        {
            self.client()?.change_datagrams(number, change)?;
        }
        let changes = &mut self.socket_at(place)?.changes;
        changes.retain(|one| one.family != family || !replaces(change, one.change));
        if !matches!(change, DatagramChange::Leave(..)) {
            changes.push(Change { family, change });
        }
        Ok(())
    }

    /// Returns what a program that asked for it learns about the delivery of a datagram, in the order of Linux.
    pub(crate) fn reports(&mut self, number: RawFd, delivery: Delivery) -> Vec<Report> {
        let Ok(socket) = self.socket(number) else { return Vec::new() };
        let Delivery { to, hop_limit, service, .. } = delivery;
        let number = interface_number(delivery.network);
        let (v4_to, v6_to) = match to {
            IpAddr::V4(to) => (Some(to), to.to_ipv6_mapped()),
            IpAddr::V6(to) => (None, to),
        };
        let mut reports = Vec::new();
        if let Some(to) = v4_to {
            let asked = |name| socket.has_flag(libc::IPPROTO_IP, name);
            reports.extend(asked(libc::IP_PKTINFO).then_some(Report::AddressV4(to, number)));
            reports.extend(asked(libc::IP_RECVTTL).then_some(Report::Ttl(hop_limit)));
            reports.extend(asked(libc::IP_RECVTOS).then_some(Report::Tos(service)));
        }
        if socket.family == Family::V6 {
            let asked = |name| socket.has_flag(libc::IPPROTO_IPV6, name);
            reports.extend(asked(libc::IPV6_RECVPKTINFO).then_some(Report::AddressV6(v6_to, number)));
            reports.extend(asked(libc::IPV6_RECVHOPLIMIT).then_some(Report::HopLimit(hop_limit)));
            reports.extend(asked(libc::IPV6_RECVTCLASS).then_some(Report::TrafficClass(service)));
        }
        reports
    }
}

/// What a control message says about the delivery of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// `IP_PKTINFO`: the destination address, and the number of the interface.
    AddressV4(Ipv4Addr, u32),
    /// `IP_TTL`.
    Ttl(u8),
    /// `IP_TOS`.
    Tos(u8),
    /// `IPV6_PKTINFO`: the destination address, and the number of the interface.
    AddressV6(Ipv6Addr, u32),
    /// `IPV6_HOPLIMIT`.
    HopLimit(u8),
    /// `IPV6_TCLASS`.
    TrafficClass(u8),
}

/// The number of the loopback interface. Those of the guest's networks follow.
pub(crate) const LOOPBACK_NUMBER: u32 = 1;

fn interface_number(network: Option<u32>) -> u32 {
    network.map_or(LOOPBACK_NUMBER, |network| network.saturating_add(LOOPBACK_NUMBER))
}

/// Returns the guest's network with this interface number, counted from 1. `None` for the number 0, with which a program chooses none.
pub(crate) fn network(number: u32) -> Result<Option<u32>> {
    match number {
        0 => Ok(None),
        LOOPBACK_NUMBER => Err(Error(libc::ENODEV)),
        number => Ok(Some(number - LOOPBACK_NUMBER)),
    }
}
