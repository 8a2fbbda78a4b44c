//! What applications ask of a node's stack, and what they are told.
//!
//! Nothing waits for an application: commands are taken whether it takes what it is told or not, as long as their answers are
//! no more than may be kept; news of a connection are what has changed of it since it was last told of, and a listener's
//! connections are told as far as they are accepted. What an application says is checked whole before any of it is done; what
//! is against the contract ends the application.

use super::Node;
use super::applications::Client;
use crate::application::breach::Breach;
use crate::application::memory::{Area, Hint, Memory};
use crate::application::record::{Command, DATAGRAM_BYTES_MAX, Event, GUEST_NUMBERS, Number, Status};
use crate::application::{BLOCK_BYTES, Extent, Extents, ROOM, size};
use crate::limits::{
    APPLICATION_SOCKETS_MAX, COMMANDS_AT_ONCE_MAX, CROWDED_RECEIVE_BYTES_MAX, HOT_TIME, INCOMING_MAX, SEND_BYTES_MAX,
};
use crate::protocol::message::Loss;
use crate::sockets::SocketOptions;
use crate::sockets::embedded::{change, failure_kind, listen, tcp_error, tcp_options, udp_error};
use siga_ring::clock::Ticks;
use siga_stack::sockets::{ListenerId, Progress, TcpEvent, TcpId};
use siga_stack::tcp::Config;
use siga_stack::time::Instant;
use siga_stack::udp::UdpId;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

/// A socket of an application.
#[derive(Debug)]
pub(super) enum Served {
    Connection {
        id: TcpId,
        hint: Arc<Hint>,
        told: Told,
    },
    /// It may be told of so many more connections, whose receive buffers are of that size at first.
    Listener {
        id: ListenerId,
        credit: u32,
        receive_bytes: usize,
        is_noted: bool,
    },
    Datagrams {
        id: UdpId,
        is_noted: bool,
    },
}

/// What an application knows of a connection.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Bytes that it has given to send, ever, and of these those that it knows to be needed no more.
    sent: u64,
    released: u64,
    /// Received bytes that it was told of and has not consumed.
    unread: usize,
    open: bool,
    ended: bool,
    closed: bool,
    /// It has given the connection up.
    is_forsaken: bool,
}

type Outcome = Result<(), Breach>;

impl Node {
    /// Takes commands of applications, and tells them what is new. True if there was anything.
    pub(super) fn serve(&mut self, now: Ticks, at: Instant) -> bool {
        if self.applications.all.is_empty() {
            return false;
        }
        let mut busy = false;
        for place in 0..self.applications.all.len() {
            if self.applications.client(place).is_none_or(|client| !client.is_hot) {
                continue;
            }
            match self.take_commands(now, at, place) {
                Ok(0) if self.applications.client(place).is_some_and(|client| client.is_gone) => {
                    self.end_application(now, place, Loss::PeerGone);
                    busy = true;
                }
                Ok(count) => busy |= count > 0,
                Err(breach) => self.end_application(now, place, Loss::Violation(breach.to_string())),
            }
        }
        self.note_news();
        for place in 0..self.applications.all.len() {
            match self.tell_application(place) {
                Ok(told) => busy |= told,
                Err(breach) => self.end_application(now, place, Loss::Violation(breach.to_string())),
            }
        }
        busy
    }

    fn take_commands(&mut self, now: Ticks, at: Instant, place: usize) -> Result<usize, Breach> {
        let mut bytes = std::mem::take(&mut self.scratch);
        let mut count = 0;
        while count < COMMANDS_AT_ONCE_MAX {
            let Some(client) = self.applications.client(place) else { break };
            if !client.takes_commands() {
                break;
            }
            let Some(frame) = client.commands.next_frame()? else { break };
            bytes.resize(frame.len(), 0);
            frame.copy_to(0, &mut bytes);
            let parsed = Command::parse(frame.tag(), &bytes);
            let (socket, command) = parsed.ok_or(Breach::NoCommand(bytes.len()))?;
            self.command(at, place, socket, command)?;
            count += 1;
        }
        self.scratch = bytes;
        let after = self.clock.span(HOT_TIME);
        if let Some(client) = self.applications.client(place) {
            if count > 0 {
                client.last_traffic = now;
            } else if now.since(client.last_traffic) >= after {
                client.falls_asleep();
            }
        }
        Ok(count)
    }

    fn command(&mut self, at: Instant, place: usize, socket: Number, command: Command) -> Outcome {
        match command {
            Command::Listen { local, backlog, options } => {
                let made = |node: &mut Self| node.begin_listening(place, socket, local, size(backlog), &options);
                self.begin(place, socket, made)
            }
            Command::Connect { local, remote, options } => {
                let made = |node: &mut Self| node.begin_connection(at, place, socket, (local, remote), &options);
                self.begin(place, socket, made)
            }
            Command::Bind { local } => self.begin(place, socket, |node| {
                let id = node.stack.udp_bind(local).map_err(udp_error)?;
                node.applications.of_datagrams.insert(id, (place, socket));
                Ok((Served::Datagrams { id, is_noted: false }, node.stack.udp_local(id).map_err(udp_error)?))
            }),
            Command::Accepted { count } => self.accepted(place, socket, count),
            Command::Send { extents } => self.send(at, place, socket, &extents),
            Command::Consumed { bytes } => self.consumed(at, place, socket, size(bytes)),
            Command::Shutdown => {
                let id = self.connection(place, socket)?;
                // It may be over.
                let _ = self.stack.tcp_shutdown(at, id);
                Ok(())
            }
            Command::Set { options } => {
                let id = self.connection(place, socket)?;
                // The application has checked what can be checked; a connection that is over takes no settings.
                let _ = change(&mut self.stack, at, id, &options);
                Ok(())
            }
            Command::Close => self.give_up(at, place, socket, false),
            Command::Abort => self.give_up(at, place, socket, true),
            Command::SendTo { to, bytes } => {
                let Some(Served::Datagrams { id, .. }) = self.served(place, socket) else {
                    return Err(Breach::NoDatagrams(socket));
                };
                let id = *id;
                // As the network, a stack may lose a datagram.
                let _ = self.stack.udp_send(at, id, Some(to), &bytes);
                Ok(())
            }
            Command::Group { change } => {
                let Some(Served::Datagrams { id, .. }) = self.served(place, socket) else {
                    return Err(Breach::NoGroups(socket));
                };
                let id = *id;
                let failure = self.change_group(at, id, change).err().map(|error| udp_error(error).kind());
                if let Some(client) = self.applications.client(place) {
                    client.replies.push_back((socket, Event::Group { failure }));
                }
                Ok(())
            }
        }
    }

    fn served(&mut self, place: usize, socket: Number) -> Option<&mut Served> {
        self.applications.client(place)?.sockets.get_mut(&socket)
    }

    fn connection(&mut self, place: usize, socket: Number) -> Result<TcpId, Breach> {
        match self.served(place, socket) {
            Some(Served::Connection { id, told, .. }) if !told.is_forsaken => Ok(*id),
            Some(Served::Connection { .. } | Served::Listener { .. } | Served::Datagrams { .. }) | None => {
                Err(Breach::NoConnection(socket))
            }
        }
    }

    /// Makes a socket that an application wants, and tells it what became of that.
    fn begin(
        &mut self,
        place: usize,
        socket: Number,
        make: impl FnOnce(&mut Self) -> io::Result<(Served, SocketAddr)>,
    ) -> Outcome {
        let Some(client) = self.applications.client(place) else { return Ok(()) };
        if socket >= GUEST_NUMBERS || client.sockets.contains_key(&socket) {
            return Err(Breach::Number(socket));
        }
        let full = client.sockets.len() >= APPLICATION_SOCKETS_MAX;
        let made = if full { Err(ErrorKind::QuotaExceeded.into()) } else { make(self) };
        let Some(client) = self.applications.client(place) else { return Ok(()) };
        let event = match made {
            Ok((served, local)) => {
                client.sockets.insert(socket, served);
                Event::Made { local }
            }
            Err(why) => Event::Refused { why: why.kind() },
        };
        client.replies.push_back((socket, event));
        Ok(())
    }

    fn begin_listening(
        &mut self,
        place: usize,
        socket: Number,
        local: SocketAddr,
        backlog: usize,
        options: &SocketOptions,
    ) -> io::Result<(Served, SocketAddr)> {
        let id = listen(&mut self.stack, local, backlog, options)?;
        self.applications.of_listener.insert(id, (place, socket));
        let receive_bytes = options.receive_buffer.unwrap_or(Config::LINUX.receive_buffer_bytes);
        let local = self.stack.tcp_listener_address(id).map_err(tcp_error)?;
        Ok((Served::Listener { id, credit: INCOMING_MAX, receive_bytes, is_noted: false }, local))
    }

    fn begin_connection(
        &mut self,
        at: Instant,
        place: usize,
        socket: Number,
        (local, remote): (SocketAddr, SocketAddr),
        options: &SocketOptions,
    ) -> io::Result<(Served, SocketAddr)> {
        let id = self.stack.tcp_connect(at, local, remote, &tcp_options(options)).map_err(tcp_error)?;
        let area = self.applications.client(place).map(|client| Arc::clone(&client.area));
        let served = self.lend(&area.ok_or(ErrorKind::NotConnected)?, place, socket, id)?;
        let (local, _) = self.stack.tcp_addresses(id).map_err(tcp_error)?;
        Ok((served, local))
    }

    /// Has the buffers of a connection in an application's arenas.
    fn lend(&mut self, area: &Arc<Area>, place: usize, socket: Number, id: TcpId) -> io::Result<Served> {
        let hint = Hint::new(area, socket);
        let (sent, received) = Memory::of(&hint);
        self.stack.tcp_set_buffers(id, sent, received).map_err(tcp_error)?;
        self.applications.of_connection.insert(id, (place, socket));
        hint.mark();
        Ok(Served::Connection { id, hint, told: Told::default() })
    }

    fn accepted(&mut self, place: usize, socket: Number, count: u32) -> Outcome {
        let Some(client) = self.applications.client(place) else { return Ok(()) };
        match client.sockets.get_mut(&socket) {
            Some(Served::Listener { credit, .. }) if (1..=INCOMING_MAX - *credit).contains(&count) => *credit += count,
            Some(Served::Listener { .. } | Served::Connection { .. } | Served::Datagrams { .. }) | None => {
                return Err(Breach::Accepted(socket));
            }
        }
        client.note(socket);
        Ok(())
    }

    fn send(&mut self, at: Instant, place: usize, socket: Number, extents: &[Extent]) -> Outcome {
        let id = self.connection(place, socket)?;
        let Some(client) = self.applications.client(place) else { return Ok(()) };
        let arena_bytes = client.area.sent_bytes();
        let Some(Served::Connection { hint, told, .. }) = client.sockets.get_mut(&socket) else { return Ok(()) };
        if extents.is_empty() || !extents.iter().all(|extent| extent.is_inside(arena_bytes)) {
            return Err(Breach::Places(socket));
        }
        let bytes: u64 = extents.iter().map(|extent| u64::from(extent.len)).sum();
        told.sent += bytes;
        if told.sent - hint.released() > SEND_BYTES_MAX {
            return Err(Breach::UnderWay(socket));
        }
        let hint = Arc::clone(hint);
        let takes = match self.stack.tcp_outgoing(id) {
            Ok(Memory::Sent(sent)) => sent.takes(extents.len()),
            Ok(Memory::Own(_) | Memory::Received(_)) | Err(_) => true,
        };
        if !takes {
            return Err(Breach::PlaceCount(socket));
        }
        let place = |memory: &mut Memory| {
            if let Memory::Sent(sent) = memory {
                extents.iter().for_each(|extent| sent.push(*extent));
            }
        };
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        if self.stack.tcp_send_with(at, id, len, place).is_err() {
            // The connection is over: the bytes are needed by nobody.
            hint.release(bytes);
        }
        Ok(())
    }

    fn consumed(&mut self, at: Instant, place: usize, socket: Number, bytes: usize) -> Outcome {
        let id = self.connection(place, socket)?;
        let Some(client) = self.applications.client(place) else { return Ok(()) };
        let Some(Served::Connection { hint, told, .. }) = client.sockets.get_mut(&socket) else { return Ok(()) };
        if bytes == 0 || bytes > told.unread {
            return Err(Breach::Consumed(socket));
        }
        told.unread -= bytes;
        hint.mark();
        client.behind.append(&mut client.starved);
        let is_crowded = self.stack.tcp_incoming(id).is_ok_and(Memory::is_crowded);
        let window_max = if is_crowded { CROWDED_RECEIVE_BYTES_MAX } else { u32::MAX };
        // It is the application's until it is given up.
        let taken = self.stack.tcp_limit_window(id, window_max).and_then(|()| self.stack.tcp_take(at, id, bytes));
        debug_assert_eq!(taken, Ok(()), "an application's connection is gone");
        Ok(())
    }

    fn give_up(&mut self, at: Instant, place: usize, socket: Number, abort: bool) -> Outcome {
        let Some(client) = self.applications.client(place) else { return Ok(()) };
        client.behind.append(&mut client.starved);
        match client.sockets.get_mut(&socket) {
            Some(Served::Connection { id, hint, told }) if !told.is_forsaken => {
                told.is_forsaken = true;
                hint.mark();
                let id = *id;
                self.applications.of_connection.remove(&id);
                // It is the application's until this.
                let _ = if abort { self.stack.tcp_abort(at, id) } else { self.stack.tcp_close(at, id) };
                Ok(())
            }
            Some(Served::Listener { id, .. }) => {
                let id = *id;
                client.sockets.remove(&socket);
                client.replies.push_back((socket, Event::Gone));
                self.applications.of_listener.remove(&id);
                let _ = self.stack.tcp_unlisten(at, id);
                Ok(())
            }
            Some(Served::Datagrams { id, .. }) => {
                let id = *id;
                client.sockets.remove(&socket);
                client.replies.push_back((socket, Event::Gone));
                self.applications.of_datagrams.remove(&id);
                let _ = self.stack.udp_close(id);
                Ok(())
            }
            Some(Served::Connection { .. }) | None => Err(Breach::NothingToGiveUp(socket)),
        }
    }

    /// Notes which sockets the stack has news of.
    fn note_news(&mut self) {
        while let Some(ready) = self.stack.tcp_poll_event() {
            let owner = match ready {
                TcpEvent::Connection(id) => self.applications.of_connection.get(&id),
                TcpEvent::Listener(id) => self.applications.of_listener.get(&id),
            };
            let Some((place, socket)) = owner.copied() else { continue };
            let Some(client) = self.applications.client(place) else { continue };
            client.note(socket);
        }
        while let Some(id) = self.stack.udp_poll_event() {
            let Some((place, socket)) = self.applications.of_datagrams.get(&id).copied() else { continue };
            if let Some(client) = self.applications.client(place) {
                client.note(socket);
            }
        }
    }

    /// Tells an application what is new, as far as there is room. True if anything was.
    fn tell_application(&mut self, place: usize) -> Result<bool, Breach> {
        let mut told = false;
        loop {
            let Some(client) = self.applications.client(place) else { return Ok(told) };
            if !client.tell_replies()? {
                return Ok(told);
            }
            client.wants_room = false;
            client.behind.extend(client.area.take_moved());
            if client.behind.is_empty() {
                client.events.publish();
                return Ok(told);
            }
            if !client.has_room()? {
                client.stall();
                return Ok(told);
            }
            let sockets = std::mem::take(&mut client.behind);
            for (done, socket) in sockets.iter().enumerate() {
                let Some(client) = self.applications.client(place) else { return Ok(told) };
                if !client.has_room()? {
                    client.behind.extend_from_slice(&sockets[done..]);
                    client.stall();
                    return Ok(told);
                }
                told = true;
                match client.sockets.get_mut(socket) {
                    Some(Served::Connection { .. }) => self.tell_of_connection(place, *socket)?,
                    Some(Served::Listener { is_noted, .. }) => {
                        *is_noted = false;
                        self.tell_of_listener(place, *socket)?;
                    }
                    Some(Served::Datagrams { is_noted, .. }) => {
                        *is_noted = false;
                        self.tell_of_datagrams(place, *socket)?;
                    }
                    None => {}
                }
            }
        }
    }

    fn tell_of_connection(&mut self, place: usize, socket: Number) -> Outcome {
        let Some(client) = self.applications.client(place) else { return Ok(()) };
        let Some(Served::Connection { id, hint, told }) = client.sockets.get_mut(&socket) else { return Ok(()) };
        hint.unmark();
        if told.is_forsaken {
            if hint.is_gone() {
                client.sockets.remove(&socket);
                return client.tell(socket, &Event::Gone);
            }
            // What it still sends is delivered by and by, and an application that ends waits for that.
            return match told.release(hint.released()) {
                Some(status) => client.tell(socket, &Event::Status(status)),
                None => Ok(()),
            };
        }
        let (id, skip) = (*id, told.unread);
        let Ok(progress) = self.stack.tcp_progress(id) else { return Ok(()) };
        let received = match self.stack.tcp_incoming(id) {
            Ok(Memory::Received(memory)) => memory.extents(skip, progress.received.saturating_sub(skip)),
            Ok(Memory::Own(_) | Memory::Sent(_)) | Err(_) => Extents::new(),
        };
        let Some(client) = self.applications.client(place) else { return Ok(()) };
        let Some(Served::Connection { hint, told, .. }) = client.sockets.get_mut(&socket) else { return Ok(()) };
        let status = told.catch_up(&progress, hint.released(), received);
        if status.is_some() && told.unread < progress.received {
            // In more places than a record tells.
            hint.mark();
        }
        match status {
            Some(status) => client.tell(socket, &Event::Status(status)),
            None => Ok(()),
        }
    }

    fn tell_of_listener(&mut self, place: usize, socket: Number) -> Outcome {
        loop {
            let Some(client) = self.applications.client(place) else { return Ok(()) };
            let full = client.sockets.len() >= APPLICATION_SOCKETS_MAX;
            let Some(Served::Listener { id, credit, receive_bytes, is_noted }) = client.sockets.get_mut(&socket) else {
                return Ok(());
            };
            let id = *id;
            if *credit == 0 || self.stack.tcp_acceptable(id).unwrap_or(0) == 0 {
                return Ok(());
            }
            // What has come before the connection is accepted has to fit.
            let needed = *receive_bytes + 2 * BLOCK_BYTES;
            if client.area.free_bytes() < needed || full {
                *is_noted = true;
                client.starved.push(socket);
                return Ok(());
            }
            if !client.has_room()? {
                client.note(socket);
                return Ok(());
            }
            self.tell_of_incoming(place, socket, id)?;
        }
    }

    fn tell_of_incoming(&mut self, place: usize, listener: Number, id: ListenerId) -> Outcome {
        let Ok(Some((connection, remote))) = self.stack.tcp_accept(id) else { return Ok(()) };
        let Some(client) = self.applications.client(place) else { return Ok(()) };
        if let Some(Served::Listener { credit, .. }) = client.sockets.get_mut(&listener) {
            *credit -= 1;
        }
        while client.sockets.contains_key(&client.next) {
            client.advance();
        }
        let socket = client.next;
        client.advance();
        let area = Arc::clone(&client.area);
        let served = self.lend(&area, place, socket, connection);
        let local = self.stack.tcp_addresses(connection).map(|(local, _)| local);
        let (Ok(served), Ok(local)) = (served, local) else { return Ok(()) };
        let Some(client) = self.applications.client(place) else { return Ok(()) };
        client.sockets.insert(socket, served);
        client.tell(socket, &Event::Incoming { listener, local, remote })
    }

    fn tell_of_datagrams(&mut self, place: usize, socket: Number) -> Outcome {
        loop {
            let Some(client) = self.applications.client(place) else { return Ok(()) };
            let Some(Served::Datagrams { id, .. }) = client.sockets.get(&socket) else { return Ok(()) };
            let id = *id;
            if !client.has_room()? {
                client.note(socket);
                return Ok(());
            }
            let Ok(Some(datagram)) = self.stack.udp_receive(id) else { return Ok(()) };
            if datagram.bytes.len() <= DATAGRAM_BYTES_MAX {
                client.tell(socket, &Event::Datagram { from: datagram.from, bytes: datagram.bytes })?;
            }
        }
    }
}

impl Told {
    /// What is to be told of a connection that was given up; none if there is nothing.
    fn release(&mut self, released: u64) -> Option<Status> {
        let freed = released - self.released;
        self.released = released;
        let (open, ended, closed) = (self.open, self.ended, self.closed);
        let released = u32::try_from(freed).unwrap_or(u32::MAX);
        let (failure, send_buffer, received) = (None, 0, Extents::new());
        (freed > 0).then_some(Status { open, ended, closed, failure, released, send_buffer, received })
    }

    /// What is to be told so that an application knows all; none if it does.
    fn catch_up(&mut self, progress: &Progress, released: u64, received: Extents) -> Option<Status> {
        let new: usize = received.iter().map(|extent| extent.len()).sum();
        let freed = released - self.released;
        let Progress { open, closed, failure, .. } = *progress;
        // The end is behind all bytes.
        let ended = progress.ended && self.unread + new == progress.received;
        let same = (open, ended, closed) == (self.open, self.ended, self.closed);
        if same && new == 0 && freed == 0 {
            return None;
        }
        (self.open, self.ended, self.closed) = (open, ended, closed);
        self.unread += new;
        self.released = released;
        let under_way = usize::try_from(self.sent - released).unwrap_or(usize::MAX);
        Some(Status {
            open,
            ended,
            closed,
            failure: failure.map(failure_kind),
            released: u32::try_from(freed).unwrap_or(u32::MAX),
            send_buffer: u32::try_from(under_way.saturating_add(progress.send_room)).unwrap_or(u32::MAX),
            received,
        })
    }
}

impl Client {
    /// Whether there is room for any event.
    fn has_room(&mut self) -> Result<bool, Breach> {
        Ok(self.events.has_room(ROOM)?)
    }

    /// Has a socket looked at when it is told of news.
    fn note(&mut self, socket: Number) {
        match self.sockets.get_mut(&socket) {
            Some(Served::Connection { hint, .. }) => hint.mark(),
            Some(Served::Listener { is_noted, .. } | Served::Datagrams { is_noted, .. }) => {
                let was_noted = std::mem::replace(is_noted, true);
                self.behind.extend((!was_noted).then_some(socket));
            }
            None => {}
        }
    }

    /// Waits for room, which is looked for where commands are.
    fn stall(&mut self) {
        self.events.publish();
        self.wants_room = true;
        self.is_hot = true;
    }

    /// Tells what was answered; false if there was no room for all.
    fn tell_replies(&mut self) -> Result<bool, Breach> {
        while !self.replies.is_empty() {
            if !self.has_room()? {
                self.stall();
                return Ok(false);
            }
            if let Some((socket, event)) = self.replies.pop_front() {
                self.tell(socket, &event)?;
            }
        }
        Ok(true)
    }

    fn advance(&mut self) {
        self.next = self.next.checked_add(1).unwrap_or(GUEST_NUMBERS);
    }

    /// Tells of an event, for which there is room.
    fn tell(&mut self, socket: Number, event: &Event) -> Outcome {
        let tag = event.write(socket, &mut self.record);
        match self.events.reserve(self.record.len())? {
            Some(into) => into.copy_from_slice(&self.record),
            None => unreachable!("an event is told where there is room for it"),
        }
        self.events.commit(self.record.len(), tag);
        Ok(())
    }
}
