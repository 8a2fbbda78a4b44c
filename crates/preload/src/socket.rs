//! The operations of a siga socket. None of them waits: an operation that would have to wait returns `EAGAIN`.

use crate::errors::{Error, Result};
use crate::world::{Place, World};
use siga_iucv::client::Client;
use siga_iucv::options::{Endings, SendFlags, SocketOptions};
use siga_iucv::record::{DATAGRAM_BYTES_MAX, Number};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::RawFd;
use std::time::Duration;

/// The IP version of a socket. A socket of IPv6 can also use IPv4, by mapped addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// The type of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Stream,
    Datagram,
}

/// The longest queue of a listener, as in Linux (`net.core.somaxconn`). A longer backlog is shortened.
const BACKLOG_MAX: usize = 4_096;

/// The state of a socket.
#[derive(Debug)]
pub(crate) enum State {
    /// The socket is not bound to an address.
    New,
    /// A stream socket that is bound, but neither listens nor connects.
    Bound(SocketAddr),
    /// A listener. To accept connections of both IP versions, it has two listeners of the stack with the same port.
    Listening { numbers: Vec<Number>, local: SocketAddr },
    /// A connection. `is_open` becomes true when the program has learnt that the connection is open.
    Connection { number: Number, is_open: bool },
    /// A datagram socket, with a socket of the stack for each IP version that it uses.
    Datagrams { v4: Option<Number>, v6: Option<Number>, peer: Option<SocketAddr> },
    /// A socket of the parent process, which the child cannot use, or of a guest that has ended. The value is the error of all
    /// operations.
    Lost(Error),
}

/// A siga socket. It has one or more descriptor numbers.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) family: Family,
    pub(crate) kind: Kind,
    pub(crate) state: State,
    /// Number of descriptor numbers.
    pub(crate) holders: usize,
    pub(crate) nonblocking: bool,
    /// True if a socket of IPv6 uses no IPv4.
    pub(crate) v6_only: bool,
    pub(crate) options: SocketOptions,
    pub(crate) receive_time_max: Option<Duration>,
    pub(crate) send_time_max: Option<Duration>,
    /// True if the program receives no more.
    pub(crate) is_read_shut: bool,
    /// The sets of epoll that watch this socket, each with the number under which it does.
    pub(crate) watched_by: Vec<(RawFd, RawFd)>,
}

/// A received message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    /// The number of received bytes. A datagram may have more bytes than were copied.
    pub(crate) bytes: usize,
    /// The sender of a datagram.
    pub(crate) from: Option<SocketAddr>,
}

impl Socket {
    pub(crate) fn new(family: Family, kind: Kind, nonblocking: bool) -> Self {
        Self {
            family,
            kind,
            state: State::New,
            holders: 1,
            nonblocking,
            v6_only: false,
            options: SocketOptions::default(),
            receive_time_max: None,
            send_time_max: None,
            is_read_shut: false,
            watched_by: Vec::new(),
        }
    }

    /// Returns the sockets of the stack that belong to this socket.
    pub(crate) fn stack_numbers(&self) -> Vec<Number> {
        match &self.state {
            State::New | State::Bound(_) | State::Lost(_) => Vec::new(),
            State::Listening { numbers, .. } => numbers.clone(),
            State::Connection { number, .. } => vec![*number],
            State::Datagrams { v4, v6, .. } => v4.iter().chain(v6).copied().collect(),
        }
    }

    /// Closes the sockets of the stack. A connection with unread bytes ends with a reset, as in Linux.
    pub(crate) fn close(&self, client: &mut Client) {
        for number in self.stack_numbers() {
            let is_unread = || matches!(self.state, State::Connection { .. });
            let resets = is_unread() && has_unread(client, number) || self.options.linger == Some(Duration::ZERO);
            if resets {
                client.abort(number);
            } else {
                client.close(number);
            }
        }
    }

    /// Separates the socket from the stack. From now on, its operations return `error`.
    pub(crate) fn lose(&mut self, error: Error) {
        if !matches!(self.state, State::New | State::Bound(_)) {
            self.state = State::Lost(error);
        }
    }

    /// Converts an address of a program to one of the stack: a mapped IPv4 address becomes an IPv4 address.
    fn to_stack(&self, address: SocketAddr) -> Result<SocketAddr> {
        match (self.family, address) {
            (Family::V4, SocketAddr::V4(_)) => Ok(address),
            (Family::V6, SocketAddr::V6(v6)) => match v6.ip().to_ipv4_mapped() {
                Some(_) if self.v6_only => Err(Error(libc::ENETUNREACH)),
                Some(v4) => Ok(SocketAddr::new(v4.into(), v6.port())),
                None => Ok(address),
            },
            (Family::V4, SocketAddr::V6(_)) | (Family::V6, SocketAddr::V4(_)) => Err(Error(libc::EAFNOSUPPORT)),
        }
    }

    /// Converts an address of the stack to one for the program.
    pub(crate) fn to_program(&self, address: SocketAddr) -> SocketAddr {
        match (self.family, address) {
            (Family::V6, SocketAddr::V4(v4)) => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
            (Family::V4 | Family::V6, _) => address,
        }
    }

    fn unspecified(&self) -> SocketAddr {
        match self.family {
            Family::V4 => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            Family::V6 => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
        }
    }

    fn connection(&self) -> Result<Number> {
        match self.state {
            State::Connection { number, .. } => Ok(number),
            State::Lost(error) => Err(error),
            State::New | State::Bound(_) | State::Listening { .. } | State::Datagrams { .. } => {
                Err(Error::NOT_CONNECTED)
            }
        }
    }
}

fn has_unread(client: &mut Client, number: Number) -> bool {
    let is_at_end = client.endings(number).is_ok_and(|endings| endings.received);
    // Only the end of the stream counts as one unread byte.
    client.unread(number).is_ok_and(|unread| unread > usize::from(is_at_end))
}

fn any(like: &SocketAddr) -> SocketAddr {
    match like {
        SocketAddr::V4(_) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        SocketAddr::V6(_) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
    }
}

/// Returns whether an address is one of the host itself. Such addresses are left to the kernel.
pub(crate) fn is_loopback(address: &SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(v4) => v4.is_loopback(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback()),
    }
}

impl World {
    /// Binds a socket to an address.
    pub(crate) fn bind(&mut self, place: Place, address: SocketAddr) -> Result<()> {
        let socket = self.socket_at(place)?;
        let local = socket.to_stack(address)?;
        match (&socket.state, socket.kind) {
            (State::New, Kind::Stream) => {
                socket.state = State::Bound(local);
                Ok(())
            }
            (State::New, Kind::Datagram) => self.open_datagrams(place, local),
            _ => Err(Error::INVALID),
        }
    }

    /// Makes the sockets of the stack for a datagram socket: both IP versions if the address is `::` and the socket uses both.
    fn open_datagrams(&mut self, place: Place, local: SocketAddr) -> Result<()> {
        let (socket, client) = self.socket_and_client(place)?;
        let is_dual = local.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && !socket.v6_only;
        let first = client.bind(local)?;
        let (mut v4, mut v6) = (None, None);
        *(if local.is_ipv4() { &mut v4 } else { &mut v6 }) = Some(first);
        if is_dual {
            let port = client.addresses(first)?.0.port();
            match client.bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)) {
                Ok(second) => v4 = Some(second),
                Err(error) => {
                    client.close(first);
                    return Err(error.into());
                }
            }
        }
        socket.state = State::Datagrams { v4, v6, peer: None };
        self.bind_numbers(place)
    }

    fn bind_numbers(&mut self, place: Place) -> Result<()> {
        for number in self.socket_at(place)?.stack_numbers() {
            self.bind_number(number, place);
        }
        self.announce(place);
        Ok(())
    }

    /// Makes a stream socket a listener.
    pub(crate) fn listen(&mut self, place: Place, backlog: usize) -> Result<()> {
        let (socket, client) = self.socket_and_client(place)?;
        let local = match (&socket.state, socket.kind) {
            (State::Listening { .. }, _) => return Ok(()),
            (State::New, Kind::Stream) => socket.unspecified(),
            (State::Bound(local), Kind::Stream) => *local,
            (State::Lost(error), _) => return Err(*error),
            (State::Connection { .. }, Kind::Stream) => return Err(Error::INVALID),
            (_, Kind::Datagram) | (State::Datagrams { .. }, Kind::Stream) => return Err(Error::NOT_SUPPORTED),
        };
        let backlog = backlog.clamp(1, BACKLOG_MAX);
        let first = client.listen(local, backlog, &socket.options)?;
        let bound = client.addresses(first)?.0;
        let mut numbers = vec![first];
        if local.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && !socket.v6_only {
            let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), bound.port());
            match client.listen(v4, backlog, &socket.options) {
                Ok(second) => numbers.push(second),
                Err(error) => {
                    client.close(first);
                    return Err(error.into());
                }
            }
        }
        socket.state = State::Listening { numbers, local: bound };
        self.bind_numbers(place)
    }

    /// Accepts the next connection of a listener. The result has no descriptor number yet.
    pub(crate) fn accept(&mut self, place: Place) -> Result<(Socket, SocketAddr)> {
        let (socket, client) = self.socket_and_client(place)?;
        let numbers = match &socket.state {
            State::Listening { numbers, .. } => numbers,
            State::Lost(error) => return Err(*error),
            State::New | State::Bound(_) | State::Connection { .. } | State::Datagrams { .. } => {
                return Err(Error::INVALID);
            }
        };
        for listener in numbers {
            match client.accept(*listener) {
                Ok((number, remote)) => {
                    let mut accepted = Socket::new(socket.family, Kind::Stream, false);
                    accepted.options = socket.options;
                    accepted.state = State::Connection { number, is_open: true };
                    return Ok((accepted, socket.to_program(remote)));
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::WOULD_BLOCK)
    }

    /// Begins to open a connection, or sets the peer of a datagram socket. `None` removes the peer. Returns `EINPROGRESS` while a
    /// connection opens.
    pub(crate) fn connect(&mut self, place: Place, remote: Option<SocketAddr>) -> Result<()> {
        let (socket, client) = self.socket_and_client(place)?;
        let Some(remote) = remote else {
            return match &mut socket.state {
                State::Datagrams { peer, .. } => {
                    *peer = None;
                    Ok(())
                }
                State::New => Ok(()),
                State::Bound(_) | State::Listening { .. } | State::Connection { .. } | State::Lost(_) => {
                    Err(Error(libc::EAFNOSUPPORT))
                }
            };
        };
        let to = socket.to_stack(remote)?;
        match (&socket.state, socket.kind) {
            (State::New | State::Bound(_), Kind::Stream) => {
                let local = if let State::Bound(local) = &socket.state { *local } else { any(&to) };
                let local = if local.is_ipv4() == to.is_ipv4() { local } else { any(&to) };
                let number = client.connect(local, to, &socket.options)?;
                socket.state = State::Connection { number, is_open: false };
                self.bind_number(number, place);
                Err(Error(libc::EINPROGRESS))
            }
            (State::Connection { is_open: true, .. }, Kind::Stream) => Err(Error(libc::EISCONN)),
            (State::Connection { .. }, Kind::Stream) => Err(Error(libc::EALREADY)),
            (State::Listening { .. }, Kind::Stream) => Err(Error(libc::EISCONN)),
            (_, Kind::Datagram) => {
                self.datagrams_to(place, to)?;
                if let State::Datagrams { peer, .. } = &mut self.socket_at(place)?.state {
                    *peer = Some(to);
                }
                Ok(())
            }
            (State::Lost(error), Kind::Stream) => Err(*error),
            (State::Datagrams { .. }, Kind::Stream) => Err(Error::NOT_CONNECTED),
        }
    }

    /// Returns success if a connection is open, `EAGAIN` while it opens, or the reason why it failed.
    pub(crate) fn finish_connect(&mut self, place: Place) -> Result<()> {
        let (socket, client) = self.socket_and_client(place)?;
        let State::Connection { number, is_open } = &mut socket.state else { return Err(Error::NOT_CONNECTED) };
        match client.connected(*number) {
            Ok(true) => {
                *is_open = true;
                Ok(())
            }
            Ok(false) => Err(Error::WOULD_BLOCK),
            Err(error) => {
                client.close(*number);
                // As in Linux, the program may try again with the same socket.
                socket.state = State::New;
                Err(error.into())
            }
        }
    }

    /// Returns the socket of the stack that sends datagrams to `to`. Makes it if there is none.
    fn datagrams_to(&mut self, place: Place, to: SocketAddr) -> Result<Number> {
        let socket = self.socket_at(place)?;
        if matches!(socket.state, State::New) {
            let local = any(&to);
            self.open_datagrams(place, local)?;
        }
        let (socket, client) = self.socket_and_client(place)?;
        let State::Datagrams { v4, v6, .. } = &mut socket.state else { return Err(Error::NOT_CONNECTED) };
        let of_version = if to.is_ipv4() { v4 } else { v6 };
        if let Some(number) = of_version {
            return Ok(*number);
        }
        let number = client.bind(any(&to))?;
        *of_version = Some(number);
        self.bind_number(number, place);
        Ok(number)
    }

    /// Sends bytes of a stream, or a datagram.
    pub(crate) fn send(&mut self, place: Place, bytes: &[u8], to: Option<SocketAddr>, more: bool) -> Result<usize> {
        let (socket, client) = self.socket_and_client(place)?;
        match (&socket.state, socket.kind) {
            (State::Lost(error), _) => Err(*error),
            (State::Connection { number, .. }, _) => {
                Ok(client.send(*number, bytes, SendFlags { more, ..SendFlags::default() })?)
            }
            (_, Kind::Datagram) => {
                let peer = if let State::Datagrams { peer, .. } = &socket.state { *peer } else { None };
                let to = match to {
                    Some(to) => socket.to_stack(to)?,
                    None => peer.ok_or(Error(libc::EDESTADDRREQ))?,
                };
                if bytes.len() > DATAGRAM_BYTES_MAX {
                    return Err(Error(libc::EMSGSIZE));
                }
                let number = self.datagrams_to(place, to)?;
                Ok(self.client()?.send_to(number, bytes, to)?)
            }
            (State::New | State::Bound(_) | State::Listening { .. }, Kind::Stream) => Err(Error(libc::EPIPE)),
            (State::Datagrams { .. }, Kind::Stream) => Err(Error::NOT_CONNECTED),
        }
    }

    /// Receives bytes of a stream, or the next datagram. With `peek`, they stay for the next call.
    pub(crate) fn receive(&mut self, place: Place, into: &mut [u8], peek: bool) -> Result<Received> {
        let (socket, client) = self.socket_and_client(place)?;
        if socket.is_read_shut {
            return Ok(Received { bytes: 0, from: None });
        }
        if let State::Datagrams { v4, v6, peer } = &socket.state {
            for number in [v4, v6].into_iter().flatten() {
                loop {
                    let (bytes, from) = match client.peek_from(*number, into) {
                        Ok(next) => next,
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error.into()),
                    };
                    // A connected socket receives datagrams of its peer only.
                    let is_wanted = peer.is_none_or(|peer| peer == from);
                    if !(is_wanted && peek) {
                        client.receive_from(*number, &mut [])?;
                    }
                    if is_wanted {
                        return Ok(Received { bytes, from: Some(socket.to_program(from)) });
                    }
                }
            }
            return Err(Error::WOULD_BLOCK);
        }
        if matches!((&socket.state, socket.kind), (State::New | State::Bound(_), Kind::Datagram)) {
            return Err(Error::WOULD_BLOCK);
        }
        let number = socket.connection()?;
        if into.is_empty() {
            return Ok(Received { bytes: 0, from: None });
        }
        let bytes = if peek { client.peek(number, into)? } else { client.receive(number, into)? };
        Ok(Received { bytes, from: None })
    }

    /// Shuts down one direction of a connection, or both.
    pub(crate) fn shutdown(&mut self, place: Place, how: Shutdown) -> Result<()> {
        let (socket, client) = self.socket_and_client(place)?;
        match &socket.state {
            State::Connection { number, .. } => {
                if how != Shutdown::Read {
                    client.shutdown(*number, Shutdown::Write)?;
                }
            }
            State::Datagrams { peer: Some(_), .. } => {}
            State::Listening { .. } if how != Shutdown::Write => {}
            State::New | State::Bound(_) | State::Listening { .. } | State::Datagrams { .. } | State::Lost(_) => {
                return Err(Error::NOT_CONNECTED);
            }
        }
        socket.is_read_shut |= how != Shutdown::Write;
        self.announce(place);
        Ok(())
    }

    /// Returns the local address of a socket.
    pub(crate) fn local_address(&mut self, place: Place) -> Result<SocketAddr> {
        let socket = self.socket_at(place)?;
        let number = match &socket.state {
            State::New => return Ok(socket.unspecified()),
            State::Bound(local) | State::Listening { local, .. } => return Ok(socket.to_program(*local)),
            State::Connection { number, .. } => *number,
            State::Datagrams { v4, v6, .. } => v6.or(*v4).ok_or(Error::INVALID)?,
            State::Lost(error) => return Err(*error),
        };
        let (socket, client) = self.socket_and_client(place)?;
        Ok(socket.to_program(client.addresses(number)?.0))
    }

    /// Returns the address of the peer.
    pub(crate) fn peer_address(&mut self, place: Place) -> Result<SocketAddr> {
        let (socket, client) = self.socket_and_client(place)?;
        let remote = match &socket.state {
            State::Connection { number, is_open } if *is_open || client.connected(*number).unwrap_or(false) => {
                client.addresses(*number)?.1
            }
            State::Datagrams { peer, .. } => *peer,
            State::New | State::Bound(_) | State::Listening { .. } | State::Connection { .. } | State::Lost(_) => None,
        };
        remote.map(|remote| socket.to_program(remote)).ok_or(Error::NOT_CONNECTED)
    }

    /// Returns the events of a socket, in the bits of poll(2) and epoll(7), which are the same.
    pub(crate) fn readiness(&mut self, place: Place) -> u32 {
        const IN: u32 = libc::EPOLLIN.cast_unsigned() | libc::EPOLLRDNORM.cast_unsigned();
        const OUT: u32 = libc::EPOLLOUT.cast_unsigned() | libc::EPOLLWRNORM.cast_unsigned();
        const READ_HUP: u32 = libc::EPOLLRDHUP.cast_unsigned();
        const HUP: u32 = libc::EPOLLHUP.cast_unsigned();
        const ERR: u32 = libc::EPOLLERR.cast_unsigned();
        let Ok(socket) = self.socket_at(place) else { return ERR | HUP };
        let is_read_shut = socket.is_read_shut;
        let (numbers, kind) = (socket.stack_numbers(), socket.kind);
        if numbers.is_empty() {
            return match (&socket.state, kind) {
                (State::Lost(_), _) => IN | OUT | READ_HUP | HUP | ERR,
                (_, Kind::Stream) => OUT | HUP,
                (_, Kind::Datagram) => OUT,
            };
        }
        let is_connection = matches!(socket.state, State::Connection { .. });
        let Ok(client) = self.client() else { return ERR | HUP };
        let mut events = 0;
        for number in numbers {
            let Ok(ready) = client.readiness(number) else { return ERR | HUP };
            events |= if ready.readable { IN } else { 0 } | if ready.writable { OUT } else { 0 };
            if is_connection && let Ok(Endings { received, sent, failure }) = client.endings(number) {
                let received = received || is_read_shut;
                events |= if received { READ_HUP | IN } else { 0 };
                events |= if received && sent { HUP } else { 0 };
                events |= if failure.is_some() { ERR } else { 0 };
                // A connection that the program has shut down for sending accepts writes: they fail at once.
                events |= if sent { OUT } else { 0 };
            }
        }
        if is_read_shut { events | IN | READ_HUP } else { events }
    }

    /// Returns and clears the failure of a socket (`SO_ERROR`).
    pub(crate) fn take_failure(&mut self, place: Place) -> Result<i32> {
        let socket = self.socket_at(place)?;
        if let State::Lost(Error(error)) = socket.state {
            return Ok(error);
        }
        if let State::Connection { is_open: false, .. } = socket.state {
            return match self.finish_connect(place) {
                Ok(()) | Err(Error::WOULD_BLOCK) => Ok(0),
                Err(error) => Ok(error.0),
            };
        }
        Ok(0)
    }
}
