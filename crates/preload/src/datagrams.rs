//! The operations of datagram sockets. None of them waits.

use crate::errors::{Error, Result};
use crate::socket::{Received, State, any};
use crate::world::{Place, World};
use siga_iucv::client::Client;
use siga_iucv::record::{DATAGRAM_BYTES_MAX, Number};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

fn bind(client: &mut Client, local: SocketAddr, shared: bool) -> Result<Number> {
    Ok(if shared { client.bind_shared(local) } else { client.bind(local) }?)
}

impl World {
    /// Makes the sockets of the stack for a datagram socket: both IP versions if the address is `::` and the socket uses both. `bound`
    /// is the address if the program chose it.
    pub(crate) fn open_datagrams(&mut self, place: Place, local: SocketAddr, bound: Option<SocketAddr>) -> Result<()> {
        let (socket, client) = self.socket_and_client(place)?;
        let shared = socket.shares_address;
        let is_dual = local.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && !socket.v6_only;
        let first = bind(client, local, shared)?;
        let port = client.addresses(first)?.0.port();
        let (mut v4, mut v6) = (None, None);
        *(if local.is_ipv4() { &mut v4 } else { &mut v6 }) = Some(first);
        if is_dual {
            match bind(client, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), shared) {
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
        let State::Datagrams { v4, v6, bound, .. } = &mut socket.state else { return Err(Error::NOT_CONNECTED) };
        let of_version = if to.is_ipv4() { v4 } else { v6 };
        if let Some(number) = of_version {
            return Ok(*number);
        }
        if bound.is_some() {
            // The program has bound the socket to an address of the other IP version.
            return Err(Error(libc::ENETUNREACH));
        }
        let number = bind(client, any(&to), socket.shares_address)?;
        *of_version = Some(number);
        self.bind_number(number, place);
        Ok(number)
    }

    /// Connects a datagram socket to a remote address. No packet is sent for this.
    pub(crate) fn connect_datagrams(&mut self, place: Place, to: SocketAddr) -> Result<()> {
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

    /// Sends a datagram to `to`, or to the peer of the socket.
    pub(crate) fn send_datagram(&mut self, place: Place, bytes: &[u8], to: Option<SocketAddr>) -> Result<usize> {
        let peer = if let State::Datagrams { peer, .. } = &self.socket_at(place)?.state { *peer } else { None };
        let to = to.or(peer).ok_or(Error(libc::EDESTADDRREQ))?;
        if bytes.len() > DATAGRAM_BYTES_MAX {
            return Err(Error(libc::EMSGSIZE));
        }
        let number = self.datagrams_to(place, to)?;
        Ok(self.client()?.send_to(number, bytes, to)?)
    }

    /// Receives the next datagram. With `peek`, it stays for the next call.
    pub(crate) fn receive_datagram(&mut self, place: Place, into: &mut [u8], peek: bool) -> Result<Received> {
        let (socket, client) = self.socket_and_client(place)?;
        let State::Datagrams { v4, v6, peer, .. } = &socket.state else { return Err(Error::WOULD_BLOCK) };
        let is_used = |version: bool| peer.is_none_or(|peer| peer.is_ipv4() == version);
        let numbers = [v4.filter(|_| is_used(true)), v6.filter(|_| is_used(false))];
        for number in numbers.into_iter().flatten() {
            let (bytes, from) = match client.peek_from(number, into) {
                Ok(next) => next,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            };
            if !peek {
                client.receive_from(number, &mut [])?;
            }
            return Ok(Received { bytes, from: Some(socket.to_program(from)) });
        }
        Err(Error::WOULD_BLOCK)
    }
}
