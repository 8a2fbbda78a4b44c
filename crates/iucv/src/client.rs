//! The application's side: sockets of a stack that runs in a guest.
//!
//! Bytes to send are copied into blocks of this process's arena. They stay there until the guest reports that they are acknowledged.
//! Received bytes are copied out of the guest's arena. The stack runs in the guest, so it makes progress even if this process does not.
//! If the guest violates the protocol, the client ends: every later call returns an error that names the violation.

mod calls;
mod connection;
mod events;
mod link;
#[cfg(test)]
mod tests;

use crate::BLOCK_BYTES;
use crate::extent::{Extent, Table, table};
use crate::limits::{ANSWER_TIME_MAX, CONSUMED_UNREPORTED_MAX, EVENTS_AT_ONCE_MAX, SEND_AT_ONCE_MAX, WAKE_FD_INTERVAL};
use crate::options::{GroupChange, Readiness, SocketOptions};
use crate::record::{Command, DATAGRAM_BYTES_MAX, Event, Number};
use connection::{Connection, Datagrams, Kind, Socket, Stage};
use link::GuestLink;
use siga_ring::Link;
use siga_ring::arena::{OwnArena, PeerArena};
use siga_ring::clock::{Rate, Ticks};
use siga_ring::counters::{ConsumerCounters, ProducerCounters};
use siga_ring::wait::policy::Mode;
use siga_ring::wait::{Sources, WaitCounters, Waiter};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What an application shares with its guest.
#[derive(Debug)]
pub struct ApplicationEnd {
    /// Commands go out, events come in.
    pub link: Link,
    /// What is sent.
    pub arena: OwnArena,
    /// What is received.
    pub peer: PeerArena,
    /// The waiting policy of the guest and its applications.
    pub waiting: Mode,
    /// Whether a sleeping application moves to the CPU of its partners.
    pub colocate: bool,
}

/// What a client has counted.
#[derive(Debug, Clone, Copy)]
pub struct ClientCounters {
    /// The ring of commands.
    pub commands: ProducerCounters,
    /// The ring of events.
    pub events: ConsumerCounters,
    /// Waiting.
    pub wait: WaitCounters,
    /// The clock of all these times.
    pub rate: Rate,
    /// Bytes copied out of the guest's arena, and the time that took.
    pub copied_bytes: u64,
    /// See `copied_bytes`.
    pub copy_ticks: Ticks,
    /// Sockets that there are.
    pub sockets: usize,
    /// Bytes of the own arena that are free.
    pub free_bytes: usize,
}

/// Sockets of a stack in another process.
///
/// Method families, in the order of their use:
/// - [`Client::listen`], [`Client::connect`], [`Client::bind`] make sockets; [`Client::close`] and [`Client::abort`] give them up.
/// - [`Client::send`], [`Client::receive`], [`Client::accept`], [`Client::send_to`] and [`Client::receive_from`] never wait:
///   they return `WouldBlock`.
/// - [`Client::work`] sends queued commands and processes pending events. After it, [`Client::poll_event`] returns the sockets
///   that can do what they could not do before, and [`Client::readiness`] what a socket can do now.
/// - [`Client::wait`], or [`Client::fall_asleep`] with [`Client::descriptor`], waits for the next `work`.
///
/// ```no_run
/// # fn example(mut client: siga_iucv::client::Client) -> std::io::Result<()> {
/// use siga_iucv::options::SocketOptions;
/// let local = "0.0.0.0:0".parse().expect("an address");
/// let remote = "10.0.2.2:7".parse().expect("an address");
/// let socket = client.connect(local, remote, &SocketOptions::default())?;
/// while !client.connected(socket)? {
///     if !client.work() {
///         client.wait(None);
///     }
/// }
/// client.send(socket, b"hello")?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client {
    link: GuestLink,
    /// Bytes to send, and the blocks of it that are free.
    arena: OwnArena,
    free: Vec<u32>,
    /// Bytes received.
    peer: PeerArena,
    sockets: Table<Number, Socket>,
    next: Number,
    pending_events: VecDeque<Number>,
    /// Commands that wait for room.
    unsent: VecDeque<(Number, Command)>,
    /// The guest has taken no commands for [`ANSWER_TIME_MAX`]: no call waits for it any more.
    guest_stalled: bool,
    /// Sockets that wait for a free block, or for room for a command.
    starved: Vec<Number>,
    /// Consumed bytes that are not yet published to the guest, and their bound.
    unreported: usize,
    unreported_max: usize,
    waiter: Waiter,
    next_look: Ticks,
    record: Vec<u8>,
    ended: Option<(ErrorKind, String)>,
}

/// Memory of the bytes in flight of all connections.
fn under_way(arena: &OwnArena, free: &[u32]) -> usize {
    arena.len() - free.len() * BLOCK_BYTES
}

impl Client {
    /// A client of the guest at the other end.
    ///
    /// # Errors
    /// The host has no descriptors left.
    pub fn new(end: ApplicationEnd) -> io::Result<Self> {
        let ApplicationEnd { link, arena, peer, waiting, colocate } = end;
        let free = Extent::all_blocks(arena.len());
        Ok(Self {
            link: GuestLink::new(link)?,
            arena,
            free,
            peer,
            sockets: table(),
            next: 0,
            pending_events: VecDeque::new(),
            unsent: VecDeque::new(),
            guest_stalled: false,
            starved: Vec::new(),
            unreported: 0,
            unreported_max: CONSUMED_UNREPORTED_MAX,
            waiter: Waiter::new(waiting).with_colocation(colocate),
            next_look: Ticks(0),
            record: Vec::new(),
            ended: None,
        })
    }

    /// Whether bytes of closed connections are still in flight.
    fn lingers(&self) -> bool {
        let lingering = |socket: &Socket| {
            let sends = matches!(&socket.kind, Kind::Connection(connection) if connection.under_way > 0);
            socket.stage == Stage::Closing && sends
        };
        self.ended.is_none() && !self.guest_stalled && (!self.unsent.is_empty() || self.sockets.values().any(lingering))
    }

    /// Listens at `local`. Waits for the guest's answer.
    ///
    /// # Errors
    /// The guest refuses, or does not answer in time.
    pub fn listen(&mut self, local: SocketAddr, backlog: usize, options: &SocketOptions) -> io::Result<Number> {
        self.note_options(options);
        let backlog = u32::try_from(backlog).map_err(|_| ErrorKind::InvalidInput)?;
        self.open(Kind::Listener { incoming: VecDeque::new() }, Command::Listen { local, backlog, options: *options })
    }

    /// The next connection of a listener, and its remote end.
    ///
    /// # Errors
    /// `WouldBlock`: there is none.
    pub fn accept(&mut self, listener: Number) -> io::Result<(Number, SocketAddr)> {
        self.alive()?;
        let socket = self.socket(listener)?;
        let Kind::Listener { incoming } = &mut socket.kind else { return Err(ErrorKind::InvalidInput.into()) };
        let accepted = incoming.pop_front().ok_or(ErrorKind::WouldBlock)?;
        self.send_command(listener, Command::Accepted { count: 1 });
        self.drain_commands();
        // It was not announced before.
        self.socket(accepted)?.announced = false;
        self.announce(accepted);
        Ok((accepted, self.connection(accepted)?.remote))
    }

    /// Begins a connection; [`Client::connected`] has the outcome.
    ///
    /// # Errors
    /// There are too many sockets, or an option is invalid.
    pub fn connect(&mut self, local: SocketAddr, remote: SocketAddr, options: &SocketOptions) -> io::Result<Number> {
        self.note_options(options);
        let kind = Kind::Connection(Box::new(Connection::new(remote)));
        self.ask(kind, Command::Connect { local, remote, options: *options })
    }

    /// Whether a connection is open; false while that is undecided.
    ///
    /// # Errors
    /// Why it failed.
    pub fn connected(&mut self, socket: Number) -> io::Result<bool> {
        let connection = self.connection(socket)?;
        match connection.failure {
            Some(failure) if connection.unread == 0 => Err(failure.into()),
            Some(_) | None => Ok(connection.open || connection.closed),
        }
    }

    /// Sends some of the bytes and returns how many.
    ///
    /// # Errors
    /// `WouldBlock`: there is no room. Otherwise why the connection failed.
    pub fn send(&mut self, socket: Number, bytes: &[u8]) -> io::Result<usize> {
        self.catch_up();
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
        self.send_command(socket, Command::Send { extents });
        self.link.commands.publish();
        Ok(sent)
    }

    /// Receives bytes and returns how many; 0 at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock`: there are none. Otherwise why the connection failed.
    pub fn receive(&mut self, socket: Number, into: &mut [u8]) -> io::Result<usize> {
        self.connection(socket)?;
        let Some(Socket { kind: Kind::Connection(connection), .. }) = self.sockets.get_mut(&socket) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let mut done = 0;
        while done < into.len() {
            let Some(extent) = connection.received.front_mut() else { break };
            let part = extent.len().min(into.len() - done);
            let copied = self.peer.copy_to(extent.at(), &mut into[done..done + part]);
            debug_assert_eq!(copied, Ok(()), "a write_blocks was not checked");
            *extent = Extent::new(extent.at() + part, extent.len() - part);
            if extent.is_empty() {
                connection.received.pop_front();
            }
            done += part;
        }
        connection.unread -= done;
        if done > 0 {
            self.consume(socket, done);
            return Ok(done);
        }
        match connection.failure {
            _ if connection.unread > 0 => Ok(0),
            _ if connection.ended => Ok(0),
            Some(failure) => Err(failure.into()),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Ends one direction or both; what was sent before is delivered.
    ///
    /// # Errors
    /// The connection was refused, or the guest does not answer in time.
    pub fn shutdown(&mut self, socket: Number, how: Shutdown) -> io::Result<()> {
        let connection = self.connection(socket)?;
        match how {
            Shutdown::Write | Shutdown::Both => {
                connection.shut = true;
                self.await_made(socket)?;
                self.send_command_now(socket, Command::Shutdown);
            }
            // Received bytes stay readable, and need not be read.
            Shutdown::Read => {}
        }
        Ok(())
    }

    /// Changes the options of a connection.
    ///
    /// # Errors
    /// An option is invalid, or the guest does not answer in time.
    pub fn set(&mut self, socket: Number, options: &SocketOptions) -> io::Result<()> {
        self.note_options(options);
        self.connection(socket)?;
        self.await_made(socket)?;
        self.send_command_now(socket, Command::Set { options: *options });
        Ok(())
    }

    /// Opens a datagram socket. Waits for the guest's answer.
    ///
    /// # Errors
    /// The guest refuses, or does not answer in time.
    pub fn bind(&mut self, local: SocketAddr) -> io::Result<Number> {
        self.open(Kind::Datagrams(Datagrams::default()), Command::Bind { local })
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// It is too long, or `WouldBlock`: there is no room.
    pub fn send_to(&mut self, socket: Number, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.alive()?;
        let known = self.socket(socket)?;
        if bytes.len() > DATAGRAM_BYTES_MAX || !matches!(known.kind, Kind::Datagrams(_)) {
            return Err(ErrorKind::InvalidInput.into());
        }
        if !self.unsent.is_empty() || !self.link.has_room() {
            return Err(self.starve(socket));
        }
        self.send_command(socket, Command::SendTo { to, bytes: bytes.to_vec() });
        self.link.commands.publish();
        Ok(bytes.len())
    }

    /// The next datagram: how many bytes of it were copied, and its sender.
    ///
    /// # Errors
    /// `WouldBlock`: there is none.
    pub fn receive_from(&mut self, socket: Number, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.alive()?;
        let known = self.socket(socket)?;
        let Kind::Datagrams(datagrams) = &mut known.kind else { return Err(ErrorKind::InvalidInput.into()) };
        let (from, bytes) = datagrams.queue.pop_front().ok_or(ErrorKind::WouldBlock)?;
        datagrams.bytes -= bytes.len().max(1);
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Ok((count, from))
    }

    /// Joins or leaves a group, or changes how datagrams to groups are sent. Waits for the guest's answer.
    ///
    /// # Errors
    /// The guest refuses, or does not answer in time.
    pub fn change_group(&mut self, socket: Number, change: GroupChange) -> io::Result<()> {
        self.alive()?;
        let known = self.socket(socket)?;
        let Kind::Datagrams(datagrams) = &mut known.kind else { return Err(ErrorKind::InvalidInput.into()) };
        datagrams.unanswered += 1;
        self.send_command_now(socket, Command::Group { change });
        self.await_group_answers(socket)
    }

    /// Local and remote end; a listener and a datagram socket have no remote end.
    ///
    /// # Errors
    /// The guest refused the socket, or does not answer in time.
    pub fn addresses(&mut self, socket: Number) -> io::Result<(SocketAddr, Option<SocketAddr>)> {
        let local = self.await_made(socket)?;
        let known = self.socket(socket)?;
        match &known.kind {
            Kind::Connection(connection) => Ok((local, Some(connection.remote))),
            Kind::Listener { .. } | Kind::Datagrams(_) => Ok((local, None)),
        }
    }

    /// Gives a socket up. What a connection was given to send is still delivered.
    pub fn close(&mut self, socket: Number) {
        self.catch_up();
        self.give_up(socket, Command::Close);
        self.drain_commands();
    }

    /// Gives a socket up; a connection ends by a reset.
    pub fn abort(&mut self, socket: Number) {
        self.catch_up();
        self.give_up(socket, Command::Abort);
        self.drain_commands();
    }

    /// What a socket can do without waiting.
    ///
    /// # Errors
    /// There is no such socket, or the client has ended.
    pub fn readiness(&mut self, socket: Number) -> io::Result<Readiness> {
        self.alive()?;
        let in_all = under_way(&self.arena, &self.free);
        let known = self.socket(socket)?;
        Ok(match &known.kind {
            Kind::Connection(connection) => connection.readiness(in_all),
            Kind::Listener { incoming } => Readiness { readable: !incoming.is_empty(), writable: false, closed: false },
            Kind::Datagrams(datagrams) => {
                Readiness { readable: !datagrams.queue.is_empty(), writable: true, closed: false }
            }
        })
    }

    /// Sends queued commands and processes pending events. Returns whether there were any.
    pub fn work(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        let now = Ticks::now();
        if self.link.was_woken() || now >= self.next_look {
            self.next_look = Ticks(now.0 + self.waiter.rate().span(WAKE_FD_INTERVAL).0);
            self.link.look();
            // Otherwise this side checks the guest's index only when it runs out of buffers.
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
                self.violated("what it says is no event");
                return true;
            };
            if let Err(what) = self.handle_event(number, event) {
                self.violated(&format!("it announces {what}, socket {number}"));
                return true;
            }
        }
        if count == 0 && self.link.hung_up {
            self.give_up_guest(ErrorKind::NotConnected, "the guest has ended".to_owned());
        }
        let goes_on = self.flush();
        if count > 0 {
            self.waiter.had_traffic();
        }
        count > 0 || goes_on
    }

    /// The next socket that can do what it could not do before.
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

    /// What this client has counted.
    pub fn counters(&self) -> ClientCounters {
        let events = self.link.events.counters();
        ClientCounters {
            commands: self.link.commands.counters(),
            events,
            wait: self.waiter.counters(),
            rate: self.waiter.rate(),
            copied_bytes: self.peer.copied_bytes(),
            copy_ticks: Ticks(events.copy_ticks.0 + self.peer.copy_ticks().0),
            sockets: self.sockets.len(),
            free_bytes: self.free.len() * BLOCK_BYTES,
        }
    }

    /// An eventfd that ends a wait when it is written to.
    pub fn wake(&self) -> Arc<OwnedFd> {
        self.link.wake()
    }

    /// Waits by the waiting policy until there may be work, at most for `time`.
    pub fn wait(&mut self, time: Option<Duration>) {
        if self.ended.is_some() {
            return;
        }
        let rate = self.waiter.rate();
        let deadline = time.map(|time| Ticks(Ticks::now().0.saturating_add(rate.span(time).0)));
        let Ok(_woken) = self.waiter.wait(&mut self.link, deadline);
        self.waiter.notified_by(self.link.last_notification.take());
    }

    /// Requests notifications of everything that [`Client::descriptor`] then reports. False if there is work already.
    pub fn fall_asleep(&mut self) -> bool {
        if self.flush() || self.ended.is_some() {
            return false;
        }
        let Ok(asleep) = self.link.declare_asleep();
        asleep
    }

    /// Readable, after [`Client::fall_asleep`], when there may be work.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.descriptor()
    }

    /// Why the client has ended, if it has.
    pub fn ended(&self) -> Option<io::Error> {
        self.ended.as_ref().map(|(kind, why)| io::Error::new(*kind, why.clone()))
    }
}

/// Waits for bytes of closed connections to be delivered, up to [`ANSWER_TIME_MAX`].
impl Drop for Client {
    fn drop(&mut self) {
        let until = Instant::now() + ANSWER_TIME_MAX;
        while self.lingers() && Instant::now() < until {
            if !self.work() {
                self.wait(Some(until.saturating_duration_since(Instant::now())));
            }
        }
    }
}
