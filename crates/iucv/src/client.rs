//! The application's side of the protocol: sockets of a stack that runs in a guest (another process).
//!
//! Bytes to send are copied into blocks of this process's arena. They stay in the blocks until the guest reports that they were
//! acknowledged. Received bytes are copied out of the guest's arena. The stack runs in the guest, so it makes progress even while
//! this process is busy or stopped. If the guest violates the protocol, the client ends: every later call returns an error that
//! names the violation.

mod calls;
mod carrier;
mod connection;
mod counters;
mod datagrams;
mod direct;
mod events;
mod inspect;
mod link;
mod notifications;
mod polling;
mod sharing;
mod stopping;
#[cfg(test)]
mod tests;
mod times;
mod waiting;

use crate::BLOCK_BYTES;
use crate::extent::{Extent, Table, table};
use crate::limits::{
    CONSUMED_UNREPORTED_MAX, EVENTS_AT_ONCE_MAX, READ_REPORT_INTERVAL, SEND_AT_ONCE_MAX, SEND_BUFFER_BYTES_MIN,
    WAKE_FD_INTERVAL,
};
use crate::options::{ConnectionInfo, Readiness, SendFlags, SocketOptions, Timing};
use crate::passing::Passing;
use crate::record::{Command, Event, Number};
use connection::{Connection, Kind, Pool, Socket, Stage};
pub use counters::ClientCounters;
use direct::Direct;
pub use direct::WakeDescriptors;
pub use inspect::NextDatagram;
use link::GuestLink;
use polling::Polling;
pub use sharing::{SharedKind, SharedSocket};
use siga_ring::Link;
use siga_ring::arena::{OwnArena, PeerArena};
use siga_ring::clock::Ticks;
use siga_ring::wait::Waiter;
use siga_ring::wait::policy::Mode;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::time::SystemTime;

/// The objects that an application shares with its guest, and its settings for waiting.
#[derive(Debug)]
pub struct ApplicationEnd {
    /// The link on which commands are sent to the guest and events are received.
    pub link: Link,
    /// The arena for bytes to send.
    pub arena: OwnArena,
    /// The guest's arena, which contains received bytes.
    pub peer: PeerArena,
    /// The waiting policy, which is the same for the guest and its applications.
    pub waiting: Mode,
    /// Whether a sleeping application moves to the CPU of the thread that wakes it, while this saves time (co-location).
    pub colocate: bool,
    /// The socket over which application and guest pass descriptors for direct connections. With `None`, all connections use TCP.
    pub passing: Option<Passing>,
}

/// Sockets of a stack in another process.
///
/// Method families, in the order of their use:
/// - [`Client::listen`], [`Client::connect`] and [`Client::bind`] make sockets. [`Client::close`] and [`Client::abort`] close
///   them.
/// - [`Client::send`], [`Client::receive`], [`Client::accept`], [`Client::send_to`] and [`Client::receive_from`] never wait. If
///   they would have to wait, they return `WouldBlock`.
/// - [`Client::work`] sends queued commands and processes pending events. After `work`, [`Client::poll_event`] returns the
///   sockets whose readiness has increased, and [`Client::readiness`] returns the operations that a socket can perform now.
/// - [`Client::wait`] waits until the next `work` is needed. Instead, a program can call [`Client::fall_asleep`] and wait for
///   [`Client::descriptor`].
///
/// ```no_run
/// # fn example(mut client: siga_iucv::client::Client) -> std::io::Result<()> {
/// use siga_iucv::options::{SendFlags, SocketOptions};
/// let local = "0.0.0.0:0".parse().expect("an address");
/// let remote = "10.0.2.2:7".parse().expect("an address");
/// let socket = client.connect(local, remote, &SocketOptions::default())?;
/// while !client.connected(socket)? {
///     if !client.work() {
///         client.wait(None);
///     }
/// }
/// client.send(socket, b"hello", SendFlags::default())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client {
    link: GuestLink,
    /// The arena for bytes to send. The next field contains the numbers of its free blocks.
    arena: OwnArena,
    free: Vec<u32>,
    /// The guest's arena, which contains received bytes.
    peer: PeerArena,
    sockets: Table<Number, Socket>,
    next: Number,
    pending_events: VecDeque<Number>,
    /// Commands that wait for room in the ring.
    unsent: VecDeque<(Number, Command)>,
    /// True if the guest has taken no commands for [`ANSWER_TIME_MAX`](crate::limits::ANSWER_TIME_MAX). Calls then no longer wait until their commands are sent.
    guest_stalled: bool,
    /// Sockets that wait for a free block, or for room for a command.
    starved: Vec<Number>,
    /// Bytes that the application has read of one connection, and for which no command is queued yet: the connection, their number, and
    /// when the application read the first.
    read: Option<(Number, usize, Ticks)>,
    /// Number of consumed bytes that are not yet reported to the guest. The next field is the number at which they are reported.
    unreported: usize,
    unreported_max: usize,
    waiter: Waiter,
    polling: Polling,
    next_look: Ticks,
    record: Vec<u8>,
    /// The guest's answer to the last command that shared or inherited sockets.
    shared: Option<bool>,
    /// The connection that a call of `accept` takes now, and its listener.
    accepting: Option<(Number, Number)>,
    /// The memory that this client shares with other applications.
    direct: Direct,
    ended: Option<(ErrorKind, String)>,
}

/// Returns the size of all blocks in use, in bytes: they contain the bytes that all connections have in flight.
fn under_way(arena: &OwnArena, free: &[u32]) -> usize {
    arena.len() - free.len() * BLOCK_BYTES
}

impl Client {
    /// Creates a client of the guest at the other end of the link. Other threads can end its waits ([`Client::wake`]).
    ///
    /// # Errors
    /// Returns an error if the host has no descriptors left.
    pub fn new(end: ApplicationEnd) -> io::Result<Self> {
        let mut client = Self::of(end, false);
        client.link.make_calls(client.direct.bells())?;
        Ok(client)
    }

    /// Creates a client that no other thread wakes, and that therefore needs fewer descriptors and system calls. Its caller sends
    /// notifications ([`Client::take_notification`]) and records them ([`Client::note_notification`]).
    pub fn without_wake(end: ApplicationEnd) -> Self {
        Self::of(end, true)
    }

    fn of(end: ApplicationEnd, is_quiet: bool) -> Self {
        let ApplicationEnd { link, arena, peer, waiting, colocate, passing } = end;
        let free = Extent::all_blocks(arena.len());
        Self {
            link: GuestLink::new(link),
            arena,
            free,
            peer,
            sockets: table(),
            next: 0,
            pending_events: VecDeque::new(),
            unsent: VecDeque::new(),
            guest_stalled: false,
            starved: Vec::new(),
            read: None,
            unreported: 0,
            unreported_max: CONSUMED_UNREPORTED_MAX,
            waiter: Waiter::new(waiting).with_colocation(colocate),
            polling: Polling::default(),
            next_look: Ticks(0),
            record: Vec::new(),
            shared: None,
            accepting: None,
            direct: Direct::new(passing, is_quiet),
            ended: None,
        }
    }

    /// Returns whether commands are unsent or bytes of closed connections are still in flight.
    fn lingers(&self) -> bool {
        let lingering = |socket: &Socket| {
            let sends = matches!(&socket.kind, Kind::Connection(connection) if connection.under_way > 0);
            socket.stage == Stage::Closing && sends
        };
        self.ended.is_none() && !self.guest_stalled && (!self.unsent.is_empty() || self.sockets.values().any(lingering))
    }

    /// Reserves an address for a stream socket, so that no other socket gets it. With port 0, the guest chooses a port. Several sockets
    /// can reserve one address if all of them are `shared`. The call waits for the guest's answer.
    ///
    /// # Errors
    /// Returns an error if the guest refuses the command, or if it does not answer within [`ANSWER_TIME_MAX`](crate::limits::ANSWER_TIME_MAX).
    pub fn reserve(&mut self, local: SocketAddr, shared: bool) -> io::Result<Number> {
        self.open(Kind::Reserved, Command::Reserve { local, shared })
    }

    /// Makes a listener at the address `local`. The call waits for the guest's answer.
    ///
    /// # Errors
    /// Returns an error if the guest refuses the command, or if it does not answer within [`ANSWER_TIME_MAX`](crate::limits::ANSWER_TIME_MAX).
    pub fn listen(&mut self, local: SocketAddr, backlog: usize, options: &SocketOptions) -> io::Result<Number> {
        self.note_options(options);
        let backlog = u32::try_from(backlog).map_err(|_| ErrorKind::InvalidInput)?;
        let kind = Kind::Listener { incoming: VecDeque::new(), pool: Pool::Own };
        self.open(kind, Command::Listen { local, backlog, options: *options })
    }

    /// Accepts the next connection of a listener. Returns the connection and its remote address.
    ///
    /// # Errors
    /// Returns `WouldBlock` if no connection waits.
    pub fn accept(&mut self, listener: Number) -> io::Result<(Number, SocketAddr)> {
        self.alive()?;
        self.ask_pool(listener)?;
        let accepted = loop {
            let socket = self.socket(listener)?;
            let Kind::Listener { incoming, pool } = &mut socket.kind else {
                return Err(ErrorKind::InvalidInput.into());
            };
            let accepted = incoming.pop_front().ok_or(ErrorKind::WouldBlock)?;
            if *pool == Pool::Own {
                self.send_command(listener, Command::Accepted { count: 1 });
                self.drain_commands();
                break accepted;
            }
            if self.confirm(accepted, listener) {
                break accepted;
            }
            self.alive()?;
        };
        // Before `accept`, the connection must not be announced. Now it can be.
        self.socket(accepted)?.announced = false;
        self.announce(accepted);
        Ok((accepted, self.connection(accepted)?.remote))
    }

    /// Begins to open a connection. [`Client::connected`] returns the result.
    ///
    /// # Errors
    /// Returns an error if there are too many sockets, or if an option is invalid.
    pub fn connect(&mut self, local: SocketAddr, remote: SocketAddr, options: &SocketOptions) -> io::Result<Number> {
        self.note_options(options);
        let kind = Kind::Connection(Box::new(Connection::new(remote)));
        self.ask(kind, Command::Connect { local, remote, options: *options })
    }

    /// Returns true if a connection is open or was closed after it opened, and false while it is still opening.
    ///
    /// # Errors
    /// Returns the error with which the connection failed.
    pub fn connected(&mut self, socket: Number) -> io::Result<bool> {
        self.use_inherited(socket)?;
        let unread = self.readable_bytes(socket);
        let connection = self.connection(socket)?;
        match connection.failure {
            Some(failure) if unread == 0 => Err(failure.into()),
            Some(_) | None => Ok(connection.open || connection.closed),
        }
    }

    /// Sends bytes, beginning with the first, and returns the number of bytes for which there was room.
    ///
    /// # Errors
    /// Returns `WouldBlock` if there is no room. If the connection has failed, returns the error with which it failed.
    pub fn send(&mut self, socket: Number, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
        self.catch_up();
        self.use_here(socket)?;
        let in_all = under_way(&self.arena, &self.free);
        let connection = self.connection(socket)?;
        if connection.shut {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if connection.closed {
            return Err(connection.failure.unwrap_or(ErrorKind::NotConnected).into());
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        if let Some(sent) = self.send_by_memory(socket, bytes)? {
            return Ok(sent);
        }
        let connection = self.connection(socket)?;
        if connection.closed {
            return Err(connection.failure.unwrap_or(ErrorKind::NotConnected).into());
        }
        let room = connection.room(in_all);
        connection.stalled = bytes.len() > room;
        if !connection.open || room == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        if !self.unsent.is_empty() || !self.link.has_room() || self.free.is_empty() {
            return Err(self.starve(socket));
        }
        let extents = self.write_blocks(socket, &bytes[..bytes.len().min(room).min(SEND_AT_ONCE_MAX)]);
        let sent = extents.iter().map(|extent| extent.len()).sum();
        if sent == 0 {
            return Err(self.starve(socket));
        }
        let flags = SendFlags { end_of_record: flags.end_of_record && sent == bytes.len(), ..flags };
        self.send_command(socket, Command::Send { extents, flags });
        self.connection(socket)?.carrier.sent += sent as u64;
        self.count_call(socket);
        self.link.publish();
        Ok(sent)
    }

    /// Receives bytes and returns their number, or 0 at the end of the stream.
    ///
    /// # Errors
    /// Returns `WouldBlock` if no bytes have arrived. If the connection has failed, returns the error with which it failed.
    pub fn receive(&mut self, socket: Number, into: &mut [u8]) -> io::Result<usize> {
        self.receive_timed(socket, into).map(|(count, _)| count)
    }

    /// Receives bytes as [`Client::receive`] does, and also returns when the last of them arrived. The time is `None` unless the
    /// application asked for the times of received bytes.
    ///
    /// # Errors
    /// Returns the same errors as [`Client::receive`].
    pub fn receive_timed(&mut self, socket: Number, into: &mut [u8]) -> io::Result<(usize, Option<SystemTime>)> {
        self.use_here(socket)?;
        self.connection(socket)?;
        let tcp_max = into.len().min(self.tcp_first(socket));
        let Some(Socket { kind: Kind::Connection(connection), .. }) = self.sockets.get_mut(&socket) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let mut done = 0;
        while done < tcp_max {
            let Some(extent) = connection.received.front_mut() else { break };
            let part = extent.len().min(tcp_max - done);
            let copied = self.peer.copy_to(extent.at(), &mut into[done..done + part]);
            debug_assert_eq!(copied, Ok(()), "an event with this extent was not checked");
            *extent = Extent::new(extent.at() + part, extent.len() - part);
            if extent.is_empty() {
                connection.received.pop_front();
            }
            done += part;
        }
        connection.unread -= done;
        connection.carrier.received += done as u64;
        let at = connection.take_arrivals(done);
        if done > 0 {
            self.consume(socket, done);
            self.count_call(socket);
        }
        done += self.receive_from_memory(socket, &mut into[done..]);
        if done > 0 {
            return Ok((done, at));
        }
        self.nothing_to_read(socket, into.is_empty()).map(|count| (count, None))
    }

    /// Ends one direction of a connection, or both. Bytes that were sent before are still delivered.
    ///
    /// # Errors
    /// Returns an error if the connection was refused, or if the guest does not answer within [`ANSWER_TIME_MAX`](crate::limits::ANSWER_TIME_MAX).
    pub fn shutdown(&mut self, socket: Number, how: Shutdown) -> io::Result<()> {
        self.connection(socket)?;
        match how {
            Shutdown::Write | Shutdown::Both => {
                if !self.settle_stop(socket) {
                    return Err(self.break_connection(socket));
                }
                self.connection(socket)?.shut = true;
                self.await_made(socket)?;
                self.send_command_now(socket, Command::Shutdown);
            }
            // Received bytes stay readable, but the application need not read them.
            Shutdown::Read => {}
        }
        Ok(())
    }

    /// Changes the options of a connection. Those of a listener are the options of the connections that peers open from now on.
    ///
    /// # Errors
    /// Returns an error if an option is invalid, or if the guest does not answer within [`ANSWER_TIME_MAX`](crate::limits::ANSWER_TIME_MAX).
    pub fn set(&mut self, socket: Number, options: &SocketOptions) -> io::Result<()> {
        self.note_options(options);
        self.alive()?;
        if options.timing != Timing::default() {
            // Only the stack knows when bytes were sent and received.
            self.return_to_tcp(socket);
        }
        match &mut self.socket(socket)?.kind {
            Kind::Connection(connection) => {
                // A smaller buffer takes effect at once. Later events say how much room there is.
                let bytes = options.send_buffer.unwrap_or(usize::MAX);
                connection.send_buffer = connection.send_buffer.min(bytes.max(SEND_BUFFER_BYTES_MIN));
                if let Some(bytes) = options.send_buffer {
                    connection.carrier.send_max = Some(bytes.max(SEND_BUFFER_BYTES_MIN));
                    self.limit_lane(socket, bytes.max(SEND_BUFFER_BYTES_MIN));
                }
            }
            Kind::Listener { .. } => {}
            Kind::Datagrams(_) | Kind::Reserved => return Err(ErrorKind::InvalidInput.into()),
        }
        let known = self.socket(socket)?;
        if known.stage == Stage::Asked {
            // An application often sets options just after it has begun to open a connection. It does not wait for the guest's answer.
            known.later = Some(Box::new(*options));
            return Ok(());
        }
        self.await_made(socket)?;
        self.send_command_now(socket, Command::Set { options: *options });
        Ok(())
    }

    /// Returns the statistics of a connection, and the options that it uses now. The call waits for the guest's answer.
    ///
    /// # Errors
    /// Returns an error if the connection was refused, or if the guest does not answer within [`ANSWER_TIME_MAX`](crate::limits::ANSWER_TIME_MAX).
    pub fn info(&mut self, socket: Number) -> io::Result<Box<ConnectionInfo>> {
        self.connection(socket)?;
        self.await_made(socket)?;
        self.connection(socket)?.unanswered += 1;
        self.send_command_now(socket, Command::Info);
        self.await_answer(socket, |known| match &known.kind {
            Kind::Connection(connection) if connection.unanswered > 0 => None,
            Kind::Connection(_) => Some(Ok(())),
            Kind::Listener { .. } | Kind::Datagrams(_) | Kind::Reserved => Some(Err(ErrorKind::InvalidInput)),
        })?;
        let connection = self.connection(socket)?;
        let mut info = connection.info.take().ok_or(ErrorKind::NotConnected)?;
        connection.carrier.add_to(&mut info);
        Ok(info)
    }

    /// Returns the number of bytes that [`Client::receive`] can return now (`TCP_INQ` of Linux). As in Linux, returns 1 if no byte
    /// but the end of the stream can be received.
    ///
    /// # Errors
    /// Returns an error if the socket is no connection, or if the client has ended.
    pub fn unread(&mut self, socket: Number) -> io::Result<usize> {
        // This also reports the bytes that the application has read. Before that, the guest does not announce the stream's end.
        self.flush();
        self.work_within_call();
        self.use_here(socket)?;
        let unread = self.readable_bytes(socket);
        Ok(unread.max(usize::from(self.connection(socket)?.ended)))
    }

    /// Returns the local and the remote address of a socket. A listener and a datagram socket have no remote address.
    ///
    /// # Errors
    /// Returns an error if the guest refused the socket, or if it does not answer within [`ANSWER_TIME_MAX`](crate::limits::ANSWER_TIME_MAX).
    pub fn addresses(&mut self, socket: Number) -> io::Result<(SocketAddr, Option<SocketAddr>)> {
        let local = self.await_made(socket)?;
        let known = self.socket(socket)?;
        match &known.kind {
            Kind::Connection(connection) => Ok((local, Some(connection.remote))),
            Kind::Listener { .. } | Kind::Datagrams(_) | Kind::Reserved => Ok((local, None)),
        }
    }

    /// Closes a socket. The bytes that a connection has sent are still delivered.
    pub fn close(&mut self, socket: Number) {
        self.catch_up();
        // As in Linux, a connection with unread bytes ends with a reset.
        let is_settled = self.settle_stop(socket);
        let is_lost = self.close_lane(socket) || !is_settled;
        self.give_up(socket, if is_lost { Command::Abort } else { Command::Close });
        self.drain_commands();
    }

    /// Closes a socket. A connection ends with a reset.
    pub fn abort(&mut self, socket: Number) {
        self.catch_up();
        self.close_lane(socket);
        self.give_up(socket, Command::Abort);
        self.drain_commands();
    }

    /// Closes a socket as [`Client::abort`] does, and waits until the guest has carried this out. So the peer is reset before the
    /// application does anything else.
    pub fn abort_now(&mut self, socket: Number) {
        self.abort(socket);
        if self.guest_stalled {
            return;
        }
        // The socket is gone when the guest has answered. Otherwise, later calls do not wait again.
        let outcome = self.await_answer(socket, |_| None::<Result<(), ErrorKind>>);
        self.guest_stalled |= outcome.is_err_and(|error| error.kind() == ErrorKind::TimedOut);
    }

    /// Returns the operations that a socket can perform without waiting.
    ///
    /// # Errors
    /// Returns an error if the socket does not exist, or if the client has ended.
    pub fn readiness(&mut self, socket: Number) -> io::Result<Readiness> {
        self.alive()?;
        self.use_inherited(socket)?;
        let in_all = under_way(&self.arena, &self.free);
        let known = self.socket(socket)?;
        Ok(match &known.kind {
            Kind::Connection(connection) => {
                let by_tcp = connection.readiness(in_all);
                self.readiness_of(socket, by_tcp)
            }
            Kind::Listener { incoming, pool } => {
                let is_offered = matches!(pool, Pool::Shared(shared) if shared.has_offer());
                Readiness { readable: !incoming.is_empty() || is_offered, writable: false, closed: false }
            }
            Kind::Datagrams(datagrams) => {
                let readable = !datagrams.queue.is_empty() || datagrams.error.is_some();
                Readiness { readable, writable: true, closed: false }
            }
            Kind::Reserved => Readiness::default(),
        })
    }

    /// Sends queued commands and processes pending events. Returns true if there were events, or if sockets that could not send
    /// can continue.
    pub fn work(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        let now = Ticks::now();
        self.link.was_called = false;
        if self.link.is_notified() || now >= self.next_look {
            self.next_look = Ticks(now.0 + self.waiter.rate().span(WAKE_FD_INTERVAL).0);
            self.link.look(&mut self.direct);
            // Check the guest's index here too. Without this, a violation would be found only when this side has no free buffer.
            if let Err(violation) = self.link.commands.in_flight() {
                self.violated(&violation.to_string());
                return true;
            }
        }
        let mut count = 0;
        while count < EVENTS_AT_ONCE_MAX {
            let frame = match self.link.events.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(violation) => {
                    self.violated(&violation.to_string());
                    return true;
                }
            };
            count += 1;
            self.record.resize(frame.len(), 0);
            frame.copy_to(0, &mut self.record);
            let Some((number, event)) = Event::parse(frame.tag(), &self.record) else {
                self.violated("the guest sent bytes that are not a valid event");
                return true;
            };
            if let Err(what) = self.handle_event(number, event) {
                self.violated(&format!("{what}, socket {number}"));
                return true;
            }
        }
        if count == 0 && self.link.hung_up {
            self.give_up_guest(ErrorKind::NetworkDown, "the guest has ended".to_owned());
        }
        let span = self.waiter.rate().span(READ_REPORT_INTERVAL).0;
        let is_recent = self.read.is_some_and(|(_, _, at)| now.0.saturating_sub(at.0) < span);
        let goes_on = if is_recent { self.flush_commands() } else { self.flush() };
        let has_news = !self.direct.is_empty() && self.work_on_lanes();
        if count > 0 || has_news {
            self.waiter.had_traffic(Ticks::now());
        }
        count > 0 || goes_on || has_news
    }

    /// Returns the next socket whose readiness has increased.
    pub fn poll_event(&mut self) -> Option<Number> {
        while let Some(id) = self.pending_events.pop_front() {
            // A closed socket has no events.
            if let Ok(socket) = self.socket(id) {
                socket.announced = false;
                if socket.stage != Stage::Closing {
                    return Some(id);
                }
            }
        }
        None
    }

    /// Returns the error with which the client ended, or `None` if it has not ended.
    pub fn ended(&self) -> Option<io::Error> {
        self.ended.as_ref().map(|(kind, why)| io::Error::new(*kind, why.clone()))
    }
}
