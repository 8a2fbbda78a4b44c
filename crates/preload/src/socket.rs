//! The operations of a siga socket. None of them waits: an operation that would have to wait returns `EAGAIN`.

use crate::errors::{Error, Result};
use crate::options::KEEPALIVE_DEFAULT;
use crate::world::{Place, World};
use siga_iucv::client::Client;
use siga_iucv::options::{DatagramChange, DatagramOptions, Delivery, Endings, SendFlags, SocketOptions};
use siga_iucv::record::{Number, Numbers};
use std::collections::BTreeMap;
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

/// How many ports are tried for a socket of both IP versions, if the stack has chosen one that is free for IPv6 only.
const PORT_CHOICES_MAX: usize = 64;
/// How many bytes of a direct connection a program can wait for (`SO_RCVLOWAT`). The smallest send buffer is larger.
const READABLE_BYTES_IN_MEMORY_MAX: usize = 2_048;
/// The longest queue of a listener, as in Linux (`net.core.somaxconn`). A longer backlog is shortened.
const BACKLOG_MAX: usize = 4_096;

/// The state of a socket.
#[derive(Debug)]
pub(crate) enum State {
    /// The socket is not bound to an address.
    New,
    /// A stream socket that is bound, but neither listens nor connects. To accept connections of both IP versions, it has two
    /// reservations of the stack with the same port.
    Bound { numbers: Numbers, local: SocketAddr },
    /// A listener. To accept connections of both IP versions, it has two listeners of the stack with the same port.
    Listening { numbers: Numbers, local: SocketAddr },
    /// A connection. `is_open` becomes true when the program has learnt that the connection is open.
    Connection { number: Number, is_open: bool },
    /// A datagram socket, with a socket of the stack for each IP version that it uses. `bound` is the address that the program chose.
    Datagrams { v4: Option<Number>, v6: Option<Number>, peer: Option<SocketAddr>, bound: Option<SocketAddr> },
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
    /// The inode of the placeholder. All descriptors of the socket have it, in all processes.
    pub(crate) inode: u64,
    /// Number of descriptor numbers.
    pub(crate) holders: usize,
    pub(crate) nonblocking: bool,
    /// True if a socket of IPv6 uses no IPv4.
    pub(crate) v6_only: bool,
    /// True if other sockets may have the same address (`SO_REUSEADDR`, `SO_REUSEPORT`).
    pub(crate) shares_address: bool,
    pub(crate) options: SocketOptions,
    /// The changes that the sockets of the stack for each IP version need, in the order of the program's calls.
    pub(crate) changes: Vec<Change>,
    /// The idle time before keepalive probes, if they are on.
    pub(crate) keepalive_idle: Duration,
    /// Values of options that have no effect, by level and name, so that the program can read them back.
    pub(crate) other_options: BTreeMap<(i32, i32), Vec<u8>>,
    /// How many bytes of a stream have to be there so that it counts as readable (`SO_RCVLOWAT`).
    pub(crate) readable_bytes_min: usize,
    pub(crate) receive_time_max: Option<Duration>,
    pub(crate) send_time_max: Option<Duration>,
    /// True if the program receives no more.
    pub(crate) is_read_shut: bool,
    /// The sets of epoll that watch this socket, each with the number under which it does.
    pub(crate) watched_by: Vec<(RawFd, RawFd)>,
}

/// A change of the sockets of the stack that belong to a datagram socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) family: Family,
    pub(crate) change: DatagramChange,
}

/// What the program says about the bytes that it sends.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sending {
    /// The destination of a datagram. `None`: the peer of the socket.
    pub(crate) to: Option<SocketAddr>,
    /// The options of a datagram.
    pub(crate) with: DatagramOptions,
    /// Whether more bytes follow soon (`MSG_MORE`).
    pub(crate) more: bool,
}

/// A received message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    /// The number of received bytes. A datagram may have more bytes than were copied.
    pub(crate) bytes: usize,
    /// The sender of a datagram.
    pub(crate) from: Option<SocketAddr>,
    /// How a datagram arrived.
    pub(crate) delivery: Option<Delivery>,
}

impl Received {
    /// The bytes of a stream, or none.
    pub(crate) fn of_stream(bytes: usize) -> Self {
        Self { bytes, from: None, delivery: None }
    }
}

impl Socket {
    pub(crate) fn new(family: Family, kind: Kind, nonblocking: bool) -> Self {
        Self {
            family,
            kind,
            state: State::New,
            inode: 0,
            holders: 1,
            nonblocking,
            v6_only: false,
            shares_address: false,
            options: SocketOptions::default(),
            changes: Vec::new(),
            keepalive_idle: KEEPALIVE_DEFAULT,
            other_options: BTreeMap::new(),
            readable_bytes_min: 1,
            receive_time_max: None,
            send_time_max: None,
            is_read_shut: false,
            watched_by: Vec::new(),
        }
    }

    /// Returns the sockets of the stack that belong to this socket.
    pub(crate) fn stack_numbers(&self) -> Numbers {
        match &self.state {
            State::New | State::Lost(_) => Numbers::new(),
            State::Bound { numbers, .. } | State::Listening { numbers, .. } => numbers.clone(),
            State::Connection { number, .. } => Numbers::from_slice(&[*number]),
            State::Datagrams { v4, v6, .. } => v4.iter().chain(v6).copied().collect(),
        }
    }

    /// Returns whether an option that is a flag is set.
    pub(crate) fn has_flag(&self, level: i32, name: i32) -> bool {
        self.other_options.get(&(level, name)).is_some_and(|value| value.iter().any(|byte| *byte != 0))
    }

    /// Closes the sockets of the stack. A connection with unread bytes ends with a reset, as in Linux.
    pub(crate) fn close(&self, client: &mut Client) {
        for number in self.stack_numbers() {
            let resets = client.holds_unread(number) || self.options.linger == Some(Duration::ZERO);
            if resets {
                client.abort_now(number);
            } else {
                client.close(number);
            }
        }
    }

    /// Separates the socket from the stack. From now on, its operations return `error`.
    pub(crate) fn lose(&mut self, error: Error) {
        if !matches!(self.state, State::New) {
            self.state = State::Lost(error);
        }
    }

    /// Converts an address of a program to one of the stack: a mapped IPv4 address becomes an IPv4 address.
    pub(crate) fn to_stack(&self, address: SocketAddr) -> Result<SocketAddr> {
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

    /// Returns whether the connection stays with TCP: the sender of a direct one might have no room for as many unread bytes.
    pub(crate) fn needs_tcp(&self) -> bool {
        self.readable_bytes_min > READABLE_BYTES_IN_MEMORY_MAX
    }

    fn connection(&self) -> Result<Number> {
        match self.state {
            State::Connection { number, .. } => Ok(number),
            State::Lost(error) => Err(error),
            State::New | State::Bound { .. } | State::Listening { .. } | State::Datagrams { .. } => {
                Err(Error::NOT_CONNECTED)
            }
        }
    }
}

/// Returns an address, or in place of the unspecified one the loopback address: as in Linux, the unspecified address stands for this host.
pub(crate) fn this_host(to: SocketAddr) -> SocketAddr {
    let loopback: IpAddr = match to.ip() {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    if to.ip().is_unspecified() { SocketAddr::new(loopback, to.port()) } else { to }
}

pub(crate) fn any(like: &SocketAddr) -> SocketAddr {
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
            (State::New, Kind::Stream) => self.reserve(place, local),
            (State::New, Kind::Datagram) => self.open_datagrams(place, local, Some(local)),
            _ => Err(Error::INVALID),
        }
    }

    /// Reserves the address of a stream socket: that of both IP versions if the address is `::` and the socket uses both.
    fn reserve(&mut self, place: Place, local: SocketAddr) -> Result<()> {
        let (socket, client) = self.socket_and_client(place)?;
        let is_dual = local.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && !socket.v6_only;
        for _ in 0..PORT_CHOICES_MAX {
            let first = client.reserve(local, socket.shares_address)?;
            let bound = client.addresses(first)?.0;
            let mut numbers = Numbers::from_slice(&[first]);
            if is_dual {
                let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), bound.port());
                match client.reserve(v4, socket.shares_address) {
                    Ok(second) => numbers.push(second),
                    Err(error) => {
                        client.close(first);
                        if local.port() != 0 {
                            return Err(error.into());
                        }
                        continue;
                    }
                }
            }
            socket.state = State::Bound { numbers, local: bound };
            return self.bind_numbers(place);
        }
        Err(Error(libc::EADDRINUSE))
    }

    pub(crate) fn bind_numbers(&mut self, place: Place) -> Result<()> {
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
            (State::Bound { local, .. }, Kind::Stream) => *local,
            (State::Lost(error), _) => return Err(*error),
            (State::Connection { .. }, Kind::Stream) => return Err(Error::INVALID),
            (_, Kind::Datagram) | (State::Datagrams { .. }, Kind::Stream) => return Err(Error::NOT_SUPPORTED),
        };
        let backlog = backlog.clamp(1, BACKLOG_MAX);
        let first = client.listen(local, backlog, &socket.options)?;
        let bound = client.addresses(first)?.0;
        let mut numbers = Numbers::from_slice(&[first]);
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
        let reserved = socket.stack_numbers();
        socket.state = State::Listening { numbers, local: bound };
        reserved.iter().for_each(|number| client.close(*number));
        self.forget_numbers(&reserved);
        self.begin_listening(place);
        self.bind_numbers(place)
    }

    /// Accepts the next connection of a listener. The result has no descriptor number yet.
    pub(crate) fn accept(&mut self, place: Place) -> Result<(Socket, SocketAddr)> {
        let (socket, client) = self.socket_and_client(place)?;
        let numbers = match &socket.state {
            State::Listening { numbers, .. } => numbers,
            State::Lost(error) => return Err(*error),
            State::New | State::Bound { .. } | State::Connection { .. } | State::Datagrams { .. } => {
                return Err(Error::INVALID);
            }
        };
        for listener in numbers {
            match client.accept(*listener) {
                Ok((number, remote)) => {
                    if socket.needs_tcp() {
                        client.keep_with_tcp(number)?;
                    }
                    let mut accepted = Socket::new(socket.family, Kind::Stream, false);
                    (accepted.options, accepted.keepalive_idle) = (socket.options, socket.keepalive_idle);
                    accepted.other_options = socket.other_options.clone();
                    accepted.readable_bytes_min = socket.readable_bytes_min;
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
        let socket = self.socket_at(place)?;
        let Some(remote) = remote else {
            return match &socket.state {
                State::Datagrams { .. } => self.disconnect_datagrams(place),
                State::New => Ok(()),
                State::Bound { .. } | State::Listening { .. } | State::Connection { .. } | State::Lost(_) => {
                    Err(Error(libc::EAFNOSUPPORT))
                }
            };
        };
        let to = socket.to_stack(remote)?;
        match (&socket.state, socket.kind) {
            (State::New | State::Bound { .. }, Kind::Stream) => self.connect_stream(place, to),
            (State::Connection { is_open: true, .. } | State::Listening { .. }, Kind::Stream) => {
                Err(Error(libc::EISCONN))
            }
            (State::Connection { .. }, Kind::Stream) => Err(Error(libc::EALREADY)),
            (_, Kind::Datagram) => self.connect_datagrams(place, to),
            (State::Lost(error), Kind::Stream) => Err(*error),
            (State::Datagrams { .. }, Kind::Stream) => Err(Error::NOT_CONNECTED),
        }
    }

    fn connect_stream(&mut self, place: Place, to: SocketAddr) -> Result<()> {
        let (socket, client) = self.socket_and_client(place)?;
        let to = this_host(to);
        let local = match &socket.state {
            State::Bound { local, .. } if local.is_ipv4() == to.is_ipv4() => *local,
            State::Bound { local, .. } => SocketAddr::new(any(&to).ip(), local.port()),
            State::New
            | State::Listening { .. }
            | State::Connection { .. }
            | State::Datagrams { .. }
            | State::Lost(_) => any(&to),
        };
        let number = client.connect(local, to, &socket.options)?;
        if socket.needs_tcp() {
            client.keep_with_tcp(number)?;
        }
        let reserved = socket.stack_numbers();
        socket.state = State::Connection { number, is_open: false };
        reserved.iter().for_each(|number| client.close(*number));
        self.forget_numbers(&reserved);
        self.bind_number(number, place);
        Err(Error(libc::EINPROGRESS))
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

    /// Sends bytes of a stream, or a datagram.
    pub(crate) fn send(&mut self, place: Place, bytes: &[u8], how: Sending) -> Result<usize> {
        let (socket, client) = self.socket_and_client(place)?;
        match (&socket.state, socket.kind) {
            (State::Lost(error), _) => Err(*error),
            (State::Connection { number, .. }, _) => {
                Ok(client.send(*number, bytes, SendFlags { more: how.more, ..SendFlags::default() })?)
            }
            (_, Kind::Datagram) => {
                let to = how.to.map(|to| socket.to_stack(to)).transpose()?;
                self.send_datagram(place, bytes, Sending { to, ..how })
            }
            (State::New | State::Bound { .. } | State::Listening { .. }, Kind::Stream) => Err(Error(libc::EPIPE)),
            (State::Datagrams { .. }, Kind::Stream) => Err(Error::NOT_CONNECTED),
        }
    }

    /// Receives bytes of a stream, or the next datagram. With `peek`, they stay for the next call.
    pub(crate) fn receive(&mut self, place: Place, into: &mut [u8], peek: bool) -> Result<Received> {
        let (socket, client) = self.socket_and_client(place)?;
        if socket.is_read_shut {
            return Ok(Received::of_stream(0));
        }
        if matches!(socket.state, State::Datagrams { .. }) {
            return self.receive_datagram(place, into, peek);
        }
        if matches!((&socket.state, socket.kind), (State::New | State::Bound { .. }, Kind::Datagram)) {
            return Err(Error::WOULD_BLOCK);
        }
        let number = socket.connection()?;
        if into.is_empty() {
            return Ok(Received::of_stream(0));
        }
        let bytes = if peek { client.peek(number, into)? } else { client.receive(number, into)? };
        Ok(Received::of_stream(bytes))
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
            State::New | State::Bound { .. } | State::Listening { .. } | State::Datagrams { .. } | State::Lost(_) => {
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
            State::Bound { local, .. } | State::Listening { local, .. } => return Ok(socket.to_program(*local)),
            State::Connection { number, .. } => *number,
            State::Datagrams { v4, v6, peer, .. } => {
                let of_peer = if peer.is_some_and(|peer| peer.is_ipv4()) { *v4 } else { None };
                of_peer.or(*v6).or(*v4).ok_or(Error::INVALID)?
            }
            State::Lost(error) => return Err(*error),
        };
        let (socket, client) = self.socket_and_client(place)?;
        Ok(socket.to_program(client.addresses(number)?.0))
    }

    /// Returns the address of the peer.
    pub(crate) fn peer_address(&mut self, place: Place) -> Result<SocketAddr> {
        let (socket, client) = self.socket_and_client(place)?;
        let remote = match &socket.state {
            // As in Linux, a connection that has ended in both directions has no peer.
            State::Connection { number, .. } if client.readiness(*number)?.closed => None,
            State::Connection { number, is_open } if *is_open || client.connected(*number).unwrap_or(false) => {
                client.addresses(*number)?.1
            }
            State::Datagrams { peer, .. } => *peer,
            State::New | State::Bound { .. } | State::Listening { .. } | State::Connection { .. } | State::Lost(_) => {
                None
            }
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
        let (is_read_shut, bytes_min) = (socket.is_read_shut, socket.readable_bytes_min);
        let (numbers, kind) = (socket.stack_numbers(), socket.kind);
        if numbers.is_empty() || matches!(socket.state, State::Bound { .. }) {
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
                if bytes_min > 1 && !received && failure.is_none() && client.unread(number).unwrap_or(0) < bytes_min {
                    events &= !IN;
                }
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
        let (socket, client) = match socket.state {
            State::Connection { .. } | State::Datagrams { .. } => self.socket_and_client(place)?,
            State::New | State::Bound { .. } | State::Listening { .. } | State::Lost(_) => return Ok(0),
        };
        let mut failure = None;
        for number in socket.stack_numbers() {
            failure = failure.or(match socket.kind {
                Kind::Stream => client.endings(number)?.failure,
                Kind::Datagram => client.take_datagram_error(number)?,
            });
        }
        Ok(failure.map_or(0, |kind| Error::from(kind).0))
    }
}
