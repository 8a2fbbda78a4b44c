//! Sockets of a stack that runs in a guest: this process is one of the guest's applications.
//!
//! What is sent is copied into blocks of this process's arena, which stay as they are until the guest says that their bytes are
//! needed no more; what was received is copied out of the guest's arena. The stack goes on by itself, whatever this process
//! does. A word of the guest that cannot be true ends the attachment with an error that says so.

#[cfg(test)]
mod copies;
mod ends;
#[cfg(test)]
mod tests;

use super::group::GroupChange;
use super::provider::{Named, Provider, Readiness, SocketId, SocketOptions};
use crate::application::record::{Command, DATAGRAM_BYTES_MAX, Event, GUEST_NUMBERS, Number, Status};
use crate::application::{BLOCK_BYTES, Extent, Extents, Table, size, table};
use crate::client::ApplicationEnd;
use crate::convert;
use crate::counters;
use crate::limits::{
    ANSWER_TIME_MAX, APPLICATION_SOCKETS_MAX, CONSUMED_UNTOLD_MAX, CROWDED_FROM_BYTES, CROWDED_SEND_BYTES_MAX,
    DATAGRAM_QUEUE_BYTES_MAX, EAR_INTERVAL, EVENTS_AT_ONCE_MAX, INCOMING_MAX, SEND_AT_ONCE_MAX, SEND_BYTES_MAX,
};
use crate::protocol::report::{ApplicationReport, ReportPart};
use ends::Ends;
use siga_ring::arena::{OwnArena, PeerArena};
use siga_ring::clock::Ticks;
use siga_ring::wait::{Sources, Waiter};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A stack in another process.
#[derive(Debug)]
pub(super) struct Iucv {
    link: Ends,
    /// Bytes to send, and the blocks of it that are free.
    arena: OwnArena,
    free: Vec<u32>,
    /// Bytes received.
    peer: PeerArena,
    sockets: Table<Number, Socket>,
    next: Number,
    news: VecDeque<SocketId>,
    /// Commands that found no room.
    behind: VecDeque<(Number, Command)>,
    /// The guest took no commands for so long that nobody waits for that any more.
    guest_rests: bool,
    /// Sockets that could not send for want of a block or of room for the command.
    starved: Vec<Number>,
    /// Bytes taken that the guest was not told of at once, and how many these may be.
    untold: usize,
    untold_max: usize,
    waiter: Waiter,
    next_look: Ticks,
    record: Vec<u8>,
    ended: Option<(ErrorKind, String)>,
}

#[derive(Debug)]
struct Socket {
    kind: Kind,
    stage: Stage,
    /// It is among the news, or nothing is to be told of it yet.
    announced: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The guest has not said whether it can be.
    Asked,
    /// The same, and it is to be given up if it can be.
    Unwanted,
    Made(SocketAddr),
    Refused(ErrorKind),
    /// It was given up; its blocks are needed until the guest says otherwise.
    Closing,
}

#[derive(Debug)]
enum Kind {
    Connection(Box<Connection>),
    Listener { incoming: VecDeque<Number> },
    Datagrams(Datagrams),
}

/// A datagram socket.
#[derive(Debug, Default)]
struct Datagrams {
    queue: VecDeque<(SocketAddr, Vec<u8>)>,
    bytes: usize,
    /// Commands about groups that have no answer, and what the last answer was.
    unanswered: u32,
    failure: Option<ErrorKind>,
}

#[derive(Debug)]
struct Connection {
    remote: SocketAddr,
    open: bool,
    ended: bool,
    closed: bool,
    failure: Option<ErrorKind>,
    shut: bool,
    /// Blocks with bytes under way, the oldest first, and how many bytes each.
    blocks: VecDeque<(u32, usize)>,
    /// How far the last of them is filled.
    filled: usize,
    under_way: usize,
    send_buffer: usize,
    /// Something was not taken for want of room.
    stalled: bool,
    received: VecDeque<Extent>,
    unread: usize,
}

/// Memory of what is under way on all connections.
fn under_way(arena: &OwnArena, free: &[u32]) -> usize {
    arena.len() - free.len() * BLOCK_BYTES
}

fn id_of(number: Number) -> SocketId {
    SocketId(Named::Number(number))
}

impl Connection {
    fn new(remote: SocketAddr) -> Self {
        Self {
            remote,
            open: false,
            ended: false,
            closed: false,
            failure: None,
            shut: false,
            blocks: VecDeque::new(),
            filled: 0,
            under_way: 0,
            send_buffer: 0,
            stalled: false,
            received: VecDeque::new(),
            unread: 0,
        }
    }

    /// How much more may be under way where the application has so much of it in all: less while that of the others would leave
    /// the caches.
    fn room(&self, in_all: usize) -> usize {
        let is_crowded = in_all.saturating_sub(self.under_way) > CROWDED_FROM_BYTES;
        let most = if is_crowded { self.send_buffer.min(CROWDED_SEND_BYTES_MAX) } else { self.send_buffer };
        most.saturating_sub(self.under_way)
    }

    fn readiness(&self, in_all: usize) -> Readiness {
        let readable = self.unread > 0 || self.ended || self.closed;
        let writable = self.closed || self.open && !self.shut && self.room(in_all) > 0;
        Readiness { readable, writable, closed: self.closed }
    }

    /// Blocks all of whose bytes are needed no more; none if there were not so many bytes.
    fn release(&mut self, mut bytes: usize, free: &mut Vec<u32>) -> Option<()> {
        self.under_way = self.under_way.checked_sub(bytes)?;
        while bytes > 0 {
            let (block, under_way) = self.blocks.front_mut()?;
            let part = bytes.min(*under_way);
            (*under_way, bytes) = (*under_way - part, bytes - part);
            if *under_way == 0 {
                free.push(*block);
                self.blocks.pop_front();
            }
        }
        Some(())
    }

    /// Takes note of what the guest tells; none if it cannot be.
    fn follow(&mut self, status: Status, arena_bytes: usize, free: &mut Vec<u32>) -> Option<()> {
        self.release(size(status.released), free)?;
        let bytes: usize = status.received.iter().map(|extent| extent.len()).sum();
        let inside = status.received.iter().all(|extent| extent.is_inside(arena_bytes));
        if !inside || self.unread + bytes > arena_bytes {
            return None;
        }
        self.unread += bytes;
        for extent in status.received {
            match self.received.back_mut() {
                Some(last) if last.at() + last.len() == extent.at() => last.len += extent.len,
                Some(_) | None => self.received.push_back(extent),
            }
        }
        // What a block has of a connection lies in a row.
        if self.received.len() > arena_bytes / BLOCK_BYTES + 1 {
            return None;
        }
        (self.open, self.closed) = (status.open, status.closed);
        self.ended |= status.ended;
        self.failure = self.failure.or(status.failure);
        self.send_buffer = size(status.send_buffer).min(usize::try_from(SEND_BYTES_MAX).unwrap_or(usize::MAX));
        Some(())
    }
}

impl Iucv {
    pub(super) fn new(end: ApplicationEnd) -> io::Result<Self> {
        let ApplicationEnd { link, arena, peer, waiting, colocate } = end;
        let free = Extent::all_blocks(arena.len());
        Ok(Self {
            link: Ends::new(link)?,
            arena,
            free,
            peer,
            sockets: table(),
            next: 0,
            news: VecDeque::new(),
            behind: VecDeque::new(),
            guest_rests: false,
            starved: Vec::new(),
            untold: 0,
            untold_max: CONSUMED_UNTOLD_MAX,
            waiter: Waiter::new(convert::mode(waiting)).with_colocation(colocate),
            next_look: Ticks(0),
            record: Vec::new(),
            ended: None,
        })
    }

    fn alive(&self) -> io::Result<()> {
        self.end().map_or(Ok(()), Err)
    }

    fn end(&self) -> Option<io::Error> {
        self.ended.as_ref().map(|(kind, why)| io::Error::new(*kind, why.clone()))
    }

    fn give_up_guest(&mut self, kind: ErrorKind, why: String) {
        if self.ended.is_none() {
            self.ended = Some((kind, why));
        }
    }

    fn violated(&mut self, what: &str) {
        self.give_up_guest(ErrorKind::InvalidData, format!("the guest broke the contract: {what}"));
    }

    /// A number for a socket, which is asked for by `command`.
    fn ask(&mut self, kind: Kind, command: Command) -> io::Result<Number> {
        self.alive()?;
        if self.sockets.len() >= APPLICATION_SOCKETS_MAX {
            return Err(ErrorKind::QuotaExceeded.into());
        }
        while self.sockets.contains_key(&self.next) {
            self.next = (self.next + 1) % GUEST_NUMBERS;
        }
        let number = self.next;
        self.next = (self.next + 1) % GUEST_NUMBERS;
        self.sockets.insert(number, Socket { kind, stage: Stage::Asked, announced: false });
        self.tell_at_once(number, command);
        Ok(number)
    }

    /// Has a command on its way, or kept until there is room.
    fn tell(&mut self, number: Number, command: Command) {
        if !self.behind.is_empty() || !self.try_tell(number, &command) {
            self.behind.push_back((number, command));
        }
    }

    /// Waits until all commands are on their way: nobody may call in again who could send them. The guest takes commands
    /// whatever the network does, so this takes as long as the guest needs to have its turn.
    fn press(&mut self) {
        let until = Instant::now() + ANSWER_TIME_MAX;
        while !self.behind.is_empty() && self.ended.is_none() && !self.guest_rests {
            if !self.work() {
                let left = until.saturating_duration_since(Instant::now());
                self.guest_rests = left.is_zero();
                self.wait(Some(left));
            }
        }
    }

    /// Has a command on its way that others need not follow.
    fn tell_at_once(&mut self, number: Number, command: Command) {
        self.tell(number, command);
        self.link.commands.publish();
        self.press();
    }

    /// Takes what the guest has told meanwhile, if there is any of it: who only writes and closes would find no room.
    fn catch_up(&mut self) {
        if self.link.events.is_ready().unwrap_or(true) {
            self.work();
        }
    }

    /// False if there is no room.
    fn try_tell(&mut self, number: Number, command: &Command) -> bool {
        let tag = command.write(number, &mut self.record);
        match self.link.commands.reserve(self.record.len()) {
            Ok(Some(into)) => into.copy_from_slice(&self.record),
            Ok(None) => return false,
            Err(error) => {
                self.violated(&error.to_string());
                return true;
            }
        }
        self.link.commands.commit(self.record.len(), tag);
        true
    }

    /// Has on its way what waits. True if that lets sockets go on that could not.
    fn flush(&mut self) -> bool {
        while let Some((number, command)) = self.behind.pop_front() {
            if !self.try_tell(number, &command) {
                self.behind.push_front((number, command));
                break;
            }
            self.guest_rests = false;
        }
        self.untold = 0;
        self.link.commands.publish();
        // Without a free block it is an event that lets them go on.
        let could_go_on = !self.starved.is_empty() && !self.free.is_empty();
        self.link.wants_room = !self.behind.is_empty() || could_go_on;
        let goes_on = could_go_on && self.behind.is_empty() && self.link.has_room();
        let starved = if goes_on { std::mem::take(&mut self.starved) } else { Vec::new() };
        for number in &starved {
            self.announce(*number);
        }
        !starved.is_empty()
    }

    fn announce(&mut self, number: Number) {
        if let Some(socket) = self.sockets.get_mut(&number)
            && !socket.announced
        {
            socket.announced = true;
            self.news.push_back(id_of(number));
        }
    }

    fn socket(&mut self, id: SocketId) -> io::Result<(Number, &mut Socket)> {
        let SocketId(Named::Number(number)) = id else { return Err(ErrorKind::InvalidInput.into()) };
        let socket = self.sockets.get_mut(&number).ok_or(ErrorKind::InvalidInput)?;
        Ok((number, socket))
    }

    fn connection(&mut self, id: SocketId) -> io::Result<(Number, Stage, &mut Connection)> {
        self.alive()?;
        let (number, socket) = self.socket(id)?;
        match &mut socket.kind {
            Kind::Connection(connection) => Ok((number, socket.stage, connection)),
            Kind::Listener { .. } | Kind::Datagrams(_) => Err(ErrorKind::InvalidInput.into()),
        }
    }

    /// Waits until the guest has said what became of a socket.
    fn settle(&mut self, number: Number) -> io::Result<SocketAddr> {
        self.answer(number, |socket| match socket.stage {
            Stage::Made(local) => Some(Ok(local)),
            Stage::Refused(why) => Some(Err(why)),
            Stage::Unwanted | Stage::Closing => Some(Err(ErrorKind::NotConnected)),
            Stage::Asked => None,
        })
    }

    /// Waits until the guest has answered all commands about groups of a socket; the last answer counts.
    fn settle_groups(&mut self, number: Number) -> io::Result<()> {
        self.answer(number, |socket| match &socket.kind {
            Kind::Datagrams(datagrams) if datagrams.unanswered > 0 => None,
            Kind::Datagrams(datagrams) => Some(datagrams.failure.map_or(Ok(()), Err)),
            Kind::Connection(_) | Kind::Listener { .. } => Some(Err(ErrorKind::InvalidInput)),
        })
    }

    /// Waits until the guest has answered what a socket wants to know: it does so at once.
    fn answer<T>(&mut self, number: Number, answer: impl Fn(&Socket) -> Option<Result<T, ErrorKind>>) -> io::Result<T> {
        let until = Instant::now() + ANSWER_TIME_MAX;
        loop {
            self.alive()?;
            let socket = self.sockets.get(&number).ok_or(ErrorKind::NotConnected)?;
            if let Some(answer) = answer(socket) {
                return answer.map_err(Into::into);
            }
            if !self.work() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(ErrorKind::TimedOut.into());
                }
                self.wait(Some(left));
            }
        }
    }

    /// A socket that the guest has to agree to before it is of use.
    fn open(&mut self, kind: Kind, command: Command) -> io::Result<SocketId> {
        let number = self.ask(kind, command)?;
        match self.settle(number) {
            Ok(_) => Ok(id_of(number)),
            Err(error) => {
                self.close(id_of(number));
                Err(error)
            }
        }
    }

    /// Takes note of what the guest says; an error says what cannot be true.
    fn hear(&mut self, number: Number, event: Event) -> Result<(), &'static str> {
        if let Event::Incoming { listener, local, remote } = event {
            return self.hear_incoming(number, listener, local, remote);
        }
        let socket = self.sockets.get_mut(&number).ok_or("a socket that there is not")?;
        match event {
            Event::Made { local } => match socket.stage {
                Stage::Asked => {
                    socket.stage = Stage::Made(local);
                    Ok(())
                }
                Stage::Unwanted => {
                    socket.stage = Stage::Closing;
                    self.tell(number, Command::Close);
                    Ok(())
                }
                Stage::Made(_) | Stage::Refused(_) | Stage::Closing => Err("a socket that there is already"),
            },
            Event::Refused { why } => match socket.stage {
                Stage::Asked => {
                    socket.stage = Stage::Refused(why);
                    if let Kind::Connection(connection) = &mut socket.kind {
                        (connection.closed, connection.failure) = (true, Some(why));
                    }
                    self.announce(number);
                    Ok(())
                }
                Stage::Unwanted => {
                    self.sockets.remove(&number);
                    Ok(())
                }
                Stage::Made(_) | Stage::Refused(_) | Stage::Closing => Err("a refusal of what there is"),
            },
            Event::Status(status) => self.hear_status(number, status),
            Event::Datagram { from, bytes } => match &mut socket.kind {
                Kind::Datagrams(datagrams) => {
                    if datagrams.bytes + bytes.len() <= DATAGRAM_QUEUE_BYTES_MAX && socket.stage != Stage::Closing {
                        // An empty one takes memory too.
                        datagrams.bytes += bytes.len().max(1);
                        datagrams.queue.push_back((from, bytes));
                        self.announce(number);
                    }
                    Ok(())
                }
                Kind::Connection(_) | Kind::Listener { .. } => Err("a datagram for what takes none"),
            },
            Event::Gone if socket.stage == Stage::Closing => {
                if let Some(Socket { kind: Kind::Connection(connection), .. }) = self.sockets.remove(&number) {
                    self.free.extend(connection.blocks.iter().map(|(block, _)| *block));
                }
                Ok(())
            }
            Event::Gone => Err("an end of what was not given up"),
            Event::Group { failure } => match &mut socket.kind {
                Kind::Datagrams(datagrams) if datagrams.unanswered > 0 => {
                    datagrams.unanswered -= 1;
                    datagrams.failure = failure;
                    Ok(())
                }
                Kind::Datagrams(_) | Kind::Connection(_) | Kind::Listener { .. } => {
                    Err("a group that nobody asked for")
                }
            },
            Event::Incoming { .. } => Ok(()),
        }
    }

    fn hear_status(&mut self, number: Number, status: Status) -> Result<(), &'static str> {
        let (arena_bytes, in_all) = (self.peer.len(), under_way(&self.arena, &self.free));
        let Some(Socket { kind: Kind::Connection(connection), stage, .. }) = self.sockets.get_mut(&number) else {
            return Err("a state of what is no connection");
        };
        let before = connection.readiness(in_all);
        connection.follow(status, arena_bytes, &mut self.free).ok_or("a state that cannot be")?;
        let now = connection.readiness(under_way(&self.arena, &self.free));
        // Others may have made room since it was refused.
        let goes_on = now.writable && (std::mem::take(&mut connection.stalled) || !before.writable);
        let more = now.readable && (connection.unread > 0 || !before.readable) || goes_on;
        if *stage == Stage::Closing {
            (connection.unread, connection.received) = (0, VecDeque::new());
        } else if more || now.closed && !before.closed {
            self.announce(number);
        }
        Ok(())
    }

    fn hear_incoming(
        &mut self,
        number: Number,
        listener: Number,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), &'static str> {
        if number < GUEST_NUMBERS || self.sockets.contains_key(&number) {
            return Err("a number that cannot be given");
        }
        // The own sockets and those that the guest may give a number are each no more than so many.
        let full = self.sockets.len() >= 2 * APPLICATION_SOCKETS_MAX;
        let of = self.sockets.get_mut(&listener).ok_or("a connection of no listener")?;
        let wanted = of.stage != Stage::Closing;
        let Kind::Listener { incoming } = &mut of.kind else { return Err("a connection of no listener") };
        if full || incoming.len() >= size(INCOMING_MAX) {
            return Err("more connections than it may");
        }
        if wanted {
            incoming.push_back(number);
        }
        let kind = Kind::Connection(Box::new(Connection::new(remote)));
        self.sockets.insert(number, Socket { kind, stage: Stage::Made(local), announced: true });
        if wanted {
            self.announce(listener);
        } else {
            self.abort(id_of(number));
        }
        Ok(())
    }

    /// Copies bytes into blocks, as many as there are; where they lie.
    fn place(&mut self, number: Number, bytes: &[u8]) -> Extents {
        let mut extents = Extents::new();
        let Some(Socket { kind: Kind::Connection(connection), .. }) = self.sockets.get_mut(&number) else {
            return extents;
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            if connection.blocks.is_empty() || connection.filled == BLOCK_BYTES {
                let Some(block) = self.free.pop() else { break };
                connection.blocks.push_back((block, 0));
                connection.filled = 0;
            }
            let Some((block, under_way)) = connection.blocks.back_mut() else { break };
            let (part, behind) = rest.split_at(rest.len().min(BLOCK_BYTES - connection.filled));
            let at = size(*block) * BLOCK_BYTES + connection.filled;
            let written = self.arena.write(at, part);
            debug_assert_eq!(written, Ok(()), "a block is in its arena");
            *under_way += part.len();
            connection.filled += part.len();
            connection.under_way += part.len();
            let extent = Extent::new(at, part.len());
            match extents.last_mut() {
                Some(last) if last.at() + last.len() == at => last.len += extent.len,
                Some(_) | None => extents.push(extent),
            }
            rest = behind;
        }
        extents
    }

    fn starve(&mut self, number: Number) -> io::Error {
        if !self.starved.contains(&number) {
            self.starved.push(number);
        }
        self.link.wants_room = !self.free.is_empty();
        ErrorKind::WouldBlock.into()
    }

    /// Tells that bytes were copied out: soon where they are many.
    fn consume(&mut self, number: Number, bytes: usize) {
        self.tell(number, Command::Consumed { bytes: u32::try_from(bytes).unwrap_or(u32::MAX) });
        self.untold += bytes;
        if self.untold >= self.untold_max {
            self.flush();
        }
        self.press();
    }

    /// Refuses options that the guest would refuse without a word, and takes note of the others.
    fn check(&mut self, options: &SocketOptions) -> io::Result<()> {
        let window = options.receive_buffer.unwrap_or(usize::MAX);
        self.untold_max = self.untold_max.min(window / 4);
        Ok(())
    }

    fn give_up(&mut self, id: SocketId, command: Command) {
        let Ok((number, socket)) = self.socket(id) else { return };
        match socket.stage {
            Stage::Asked => socket.stage = Stage::Unwanted,
            Stage::Refused(_) => _ = self.sockets.remove(&number),
            Stage::Unwanted | Stage::Closing => {}
            Stage::Made(_) => {
                socket.stage = Stage::Closing;
                let orphans = match &mut socket.kind {
                    Kind::Listener { incoming } => std::mem::take(incoming),
                    Kind::Connection(_) | Kind::Datagrams(_) => VecDeque::new(),
                };
                orphans.into_iter().for_each(|orphan| self.give_up(id_of(orphan), Command::Abort));
                self.tell(number, command);
                self.link.commands.publish();
            }
        }
    }

    /// Whether bytes of connections that were closed are still on their way.
    fn lingers(&self) -> bool {
        let lingering = |socket: &Socket| {
            let sends = matches!(&socket.kind, Kind::Connection(connection) if connection.under_way > 0);
            socket.stage == Stage::Closing && sends
        };
        self.ended.is_none() && !self.guest_rests && (!self.behind.is_empty() || self.sockets.values().any(lingering))
    }
}

/// What was written before a connection was closed is delivered, if it can be soon.
impl Drop for Iucv {
    fn drop(&mut self) {
        let until = Instant::now() + ANSWER_TIME_MAX;
        while self.lingers() && Instant::now() < until {
            if !self.work() {
                self.wait(Some(until.saturating_duration_since(Instant::now())));
            }
        }
    }
}

impl Provider for Iucv {
    fn listen(&mut self, local: SocketAddr, backlog: usize, options: &SocketOptions) -> io::Result<SocketId> {
        self.check(options)?;
        let backlog = u32::try_from(backlog).map_err(|_| ErrorKind::InvalidInput)?;
        self.open(Kind::Listener { incoming: VecDeque::new() }, Command::Listen { local, backlog, options: *options })
    }

    fn accept(&mut self, listener: SocketId) -> io::Result<(SocketId, SocketAddr)> {
        self.alive()?;
        let (number, socket) = self.socket(listener)?;
        let Kind::Listener { incoming } = &mut socket.kind else { return Err(ErrorKind::InvalidInput.into()) };
        let accepted = incoming.pop_front().ok_or(ErrorKind::WouldBlock)?;
        self.tell(number, Command::Accepted { count: 1 });
        self.press();
        let id = id_of(accepted);
        // Nothing was told of it before.
        self.socket(id)?.1.announced = false;
        self.announce(accepted);
        let (_, _, connection) = self.connection(id)?;
        Ok((id, connection.remote))
    }

    fn connect(&mut self, local: SocketAddr, remote: SocketAddr, options: &SocketOptions) -> io::Result<SocketId> {
        self.check(options)?;
        let kind = Kind::Connection(Box::new(Connection::new(remote)));
        let number = self.ask(kind, Command::Connect { local, remote, options: *options })?;
        Ok(id_of(number))
    }

    fn connected(&mut self, socket: SocketId) -> io::Result<bool> {
        let (_, _, connection) = self.connection(socket)?;
        match connection.failure {
            Some(failure) if connection.unread == 0 => Err(failure.into()),
            Some(_) | None => Ok(connection.open || connection.closed),
        }
    }

    fn send(&mut self, socket: SocketId, bytes: &[u8]) -> io::Result<usize> {
        self.catch_up();
        let in_all = under_way(&self.arena, &self.free);
        let (number, _, connection) = self.connection(socket)?;
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
        if !self.behind.is_empty() || !self.link.has_room() || self.free.is_empty() {
            return Err(self.starve(number));
        }
        let extents = self.place(number, &bytes[..bytes.len().min(room).min(SEND_AT_ONCE_MAX)]);
        let sent = extents.iter().map(|extent| extent.len()).sum();
        if sent == 0 {
            return Err(self.starve(number));
        }
        self.tell(number, Command::Send { extents });
        self.link.commands.publish();
        Ok(sent)
    }

    fn receive(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<usize> {
        let (number, _, _) = self.connection(socket)?;
        let Some(Socket { kind: Kind::Connection(connection), .. }) = self.sockets.get_mut(&number) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let mut done = 0;
        while done < into.len() {
            let Some(extent) = connection.received.front_mut() else { break };
            let part = extent.len().min(into.len() - done);
            let copied = self.peer.copy_to(extent.at(), &mut into[done..done + part]);
            debug_assert_eq!(copied, Ok(()), "a place was not checked");
            *extent = Extent::new(extent.at() + part, extent.len() - part);
            if extent.len == 0 {
                connection.received.pop_front();
            }
            done += part;
        }
        connection.unread -= done;
        if done > 0 {
            self.consume(number, done);
            return Ok(done);
        }
        match connection.failure {
            _ if connection.unread > 0 => Ok(0),
            _ if connection.ended => Ok(0),
            Some(failure) => Err(failure.into()),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn shutdown(&mut self, socket: SocketId, how: Shutdown) -> io::Result<()> {
        let (number, _, connection) = self.connection(socket)?;
        match how {
            Shutdown::Write | Shutdown::Both => {
                connection.shut = true;
                self.settle(number)?;
                self.tell_at_once(number, Command::Shutdown);
            }
            // What still comes is for whoever reads, and nobody need.
            Shutdown::Read => {}
        }
        Ok(())
    }

    fn set(&mut self, socket: SocketId, options: &SocketOptions) -> io::Result<()> {
        self.check(options)?;
        let (number, _, _) = self.connection(socket)?;
        self.settle(number)?;
        self.tell_at_once(number, Command::Set { options: *options });
        Ok(())
    }

    fn bind(&mut self, local: SocketAddr) -> io::Result<SocketId> {
        self.open(Kind::Datagrams(Datagrams::default()), Command::Bind { local })
    }

    fn send_to(&mut self, socket: SocketId, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.alive()?;
        let (number, known) = self.socket(socket)?;
        if bytes.len() > DATAGRAM_BYTES_MAX || !matches!(known.kind, Kind::Datagrams(_)) {
            return Err(ErrorKind::InvalidInput.into());
        }
        if !self.behind.is_empty() || !self.link.has_room() {
            return Err(self.starve(number));
        }
        self.tell(number, Command::SendTo { to, bytes: bytes.to_vec() });
        self.link.commands.publish();
        Ok(bytes.len())
    }

    fn receive_from(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.alive()?;
        let (_, known) = self.socket(socket)?;
        let Kind::Datagrams(datagrams) = &mut known.kind else { return Err(ErrorKind::InvalidInput.into()) };
        let (from, bytes) = datagrams.queue.pop_front().ok_or(ErrorKind::WouldBlock)?;
        datagrams.bytes -= bytes.len().max(1);
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Ok((count, from))
    }

    fn change_group(&mut self, socket: SocketId, change: GroupChange) -> io::Result<()> {
        self.alive()?;
        let (number, known) = self.socket(socket)?;
        let Kind::Datagrams(datagrams) = &mut known.kind else { return Err(ErrorKind::InvalidInput.into()) };
        datagrams.unanswered += 1;
        self.tell_at_once(number, Command::Group { change });
        self.settle_groups(number)
    }

    fn addresses(&mut self, socket: SocketId) -> io::Result<(SocketAddr, Option<SocketAddr>)> {
        let (number, _) = self.socket(socket)?;
        let local = self.settle(number)?;
        let (_, known) = self.socket(socket)?;
        match &known.kind {
            Kind::Connection(connection) => Ok((local, Some(connection.remote))),
            Kind::Listener { .. } | Kind::Datagrams(_) => Ok((local, None)),
        }
    }

    fn close(&mut self, socket: SocketId) {
        self.catch_up();
        self.give_up(socket, Command::Close);
        self.press();
    }

    fn abort(&mut self, socket: SocketId) {
        self.catch_up();
        self.give_up(socket, Command::Abort);
        self.press();
    }

    fn readiness(&mut self, socket: SocketId) -> io::Result<Readiness> {
        self.alive()?;
        let in_all = under_way(&self.arena, &self.free);
        let (_, known) = self.socket(socket)?;
        Ok(match &known.kind {
            Kind::Connection(connection) => connection.readiness(in_all),
            Kind::Listener { incoming } => Readiness { readable: !incoming.is_empty(), writable: false, closed: false },
            Kind::Datagrams(datagrams) => {
                Readiness { readable: !datagrams.queue.is_empty(), writable: true, closed: false }
            }
        })
    }

    fn work(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        let now = Ticks::now();
        if self.link.was_woken() || now >= self.next_look {
            let interval = u64::try_from(EAR_INTERVAL.as_nanos()).unwrap_or(u64::MAX);
            self.next_look = Ticks(now.0 + self.waiter.rate().ticks(interval).0);
            self.link.look();
            // What the guest says that it has taken is otherwise looked at when buffers run out.
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
            if let Err(what) = self.hear(number, event) {
                self.violated(&format!("it tells of {what}, socket {number}"));
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

    fn poll_news(&mut self) -> Option<SocketId> {
        while let Some(id) = self.news.pop_front() {
            // What was closed meanwhile has no news.
            if let Ok((_, socket)) = self.socket(id) {
                socket.announced = false;
                if socket.stage != Stage::Closing {
                    return Some(id);
                }
            }
        }
        None
    }

    fn report(&mut self) -> io::Result<Vec<ReportPart>> {
        let rate = self.waiter.rate();
        let mut counters = counters::producer_counters(&self.link.commands);
        let taken = self.link.events.counters();
        counters::add(&mut counters, &counters::consumer_counters(&self.link.events));
        counters::add(&mut counters, &counters::named([("copied_bytes", self.peer.copied_bytes())]));
        let mut times_ns = counters::wait_times(&self.waiter.counters(), &rate);
        let copying = Ticks(taken.copy_ticks.0 + self.peer.copy_ticks().0);
        times_ns.insert("copying".to_owned(), rate.ns(copying));
        Ok(vec![ReportPart::Application(ApplicationReport {
            application: None,
            sockets: self.sockets.len() as u64,
            free_bytes: (self.free.len() * BLOCK_BYTES) as u64,
            counters,
            times_ns,
        })])
    }

    fn wake(&mut self) -> io::Result<Arc<OwnedFd>> {
        Ok(self.link.wake())
    }

    fn wait(&mut self, time: Option<Duration>) {
        if self.ended.is_some() {
            return;
        }
        let span = |time: Duration| self.waiter.rate().ticks(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let deadline = time.map(|time| Ticks(Ticks::now().0.saturating_add(span(time).0)));
        let Ok(_woken) = self.waiter.wait(&mut self.link, deadline);
        self.waiter.notified_by(self.link.last_notification.take());
    }

    fn fall_asleep(&mut self) -> io::Result<bool> {
        if self.flush() || self.ended.is_some() {
            return Ok(false);
        }
        let Ok(asleep) = self.link.declare_asleep();
        Ok(asleep)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.descriptor()
    }

    fn ended(&self) -> Option<io::Error> {
        self.end()
    }
}
