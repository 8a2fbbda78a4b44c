//! Handles the commands of applications. A command is checked completely before any part of it is carried out.
//!
//! The guest handles commands even if the application receives no events, as long as the answers can be queued. If a command
//! violates the protocol, the guest ends the application that sent it.

use super::Host;
use super::announce::Known;
use super::applications::Applications;
use super::memory::{Area, Hint, Memory};
use super::pooled::Pooled;
use super::reservations::Reservation;
use super::violation::ApplicationViolation;
use crate::limits::{COMMANDS_AT_ONCE_MAX, CROWDED_RECEIVE_BYTES_MAX};
use crate::protocol::message::Loss;
use crate::stack_sockets::{change, connection_info, listen, tcp_error, tcp_options, udp_error, write_flags};
use siga_iucv::extent::{Extent, size};
use siga_iucv::limits::{APPLICATION_SOCKETS_MAX, INCOMING_MAX, SEND_BYTES_MAX};
use siga_iucv::options::{DatagramChange, DatagramOptions, SendFlags, SocketOptions};
use siga_iucv::record::{Command, Event, GUEST_NUMBERS, Number};
use siga_stack::sockets::{ListenerId, TcpId};
use siga_stack::tcp::Config;
use siga_stack::udp::{UdpError, UdpId};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

/// A socket of an application.
#[derive(Debug)]
pub(super) enum Served {
    Connection {
        id: TcpId,
        hint: Arc<Hint>,
        known: Known,
    },
    /// A listening socket. The guest may announce `credit` more connections to the application. Each connection begins with a
    /// receive buffer of `receive_bytes` bytes.
    Listener {
        id: ListenerId,
        credit: u32,
        receive_bytes: usize,
        is_marked: bool,
        /// `None` unless several applications accept the connections.
        pooled: Option<Pooled>,
    },
    /// A connection that another holder uses, or none.
    Elsewhere {
        id: TcpId,
    },
    /// A connection that the guest has withdrawn, because the application did not accept it. The application has not answered yet.
    Withdrawn,
    /// An address for a later listener or connection, which is in [`Applications::reserved`].
    Reserved,
    /// A datagram socket. `is_timed` is true if the application wants to know when datagrams arrive.
    Datagrams {
        id: UdpId,
        is_marked: bool,
        is_timed: bool,
    },
}

pub(super) type Outcome = Result<(), ApplicationViolation>;

impl Applications {
    /// Carries out commands of all applications, and sends events to them. Returns true if there was anything to do.
    pub(crate) fn serve(&mut self, host: &mut Host<'_>) -> bool {
        let mut busy = false;
        self.end_bequests(host);
        self.withdraw_overdue(host);
        for place in 0..self.all.len() {
            if self.client(place).is_none_or(|client| !client.is_hot) {
                continue;
            }
            match self.take_commands(host, place) {
                Ok(0) if self.client(place).is_some_and(|client| client.is_gone) => {
                    self.end(host, place, Loss::PeerGone);
                    busy = true;
                }
                Ok(count) => busy |= count > 0,
                Err(violation) => self.end(host, place, Loss::Violation(violation.to_string())),
            }
        }
        self.forget_accepted();
        self.collect_events(host);
        for place in 0..self.all.len() {
            match self.announce(host, place) {
                Ok(announced) => busy |= announced,
                Err(violation) => self.end(host, place, Loss::Violation(violation.to_string())),
            }
        }
        busy
    }

    pub(super) fn take_commands(&mut self, host: &mut Host<'_>, place: usize) -> Result<usize, ApplicationViolation> {
        let mut bytes = std::mem::take(&mut self.scratch);
        let mut count = 0;
        while count < COMMANDS_AT_ONCE_MAX {
            let Some(client) = self.client(place) else { break };
            if !client.takes_commands() {
                break;
            }
            let Some(frame) = client.commands.next_frame()? else { break };
            bytes.resize(frame.len(), 0);
            frame.copy_to(0, &mut bytes);
            let parsed = Command::parse(frame.tag(), &bytes);
            let (socket, command) = parsed.ok_or(ApplicationViolation::NoCommand(bytes.len()))?;
            self.command(host, place, socket, command)?;
            count += 1;
        }
        self.scratch = bytes;
        if let Some(client) = self.client(place) {
            if count > 0 {
                client.last_traffic = host.now;
            } else if host.now.since(client.last_traffic) >= host.hot_time {
                client.falls_asleep();
            }
        }
        Ok(count)
    }

    fn command(&mut self, host: &mut Host<'_>, place: usize, socket: Number, command: Command) -> Outcome {
        match command {
            Command::Listen { local, backlog, options } => {
                let made = |server: &mut Self, host: &mut Host<'_>| {
                    server.begin_listening(host, place, socket, local, size(backlog), &options)
                };
                self.make(host, place, socket, made)
            }
            Command::Connect { local, remote, options } => {
                let made = |server: &mut Self, host: &mut Host<'_>| {
                    server.begin_connection(host, place, socket, (local, remote), &options)
                };
                self.make(host, place, socket, made)
            }
            Command::Reserve { local, shared } => self.make(host, place, socket, |server, host| {
                let local = server.reserve(host, Reservation { place, socket, local, shared })?;
                Ok((Served::Reserved, local))
            }),
            Command::ConnectDatagrams { remote } => self.connect_datagrams(host, place, socket, remote),
            Command::Bind { local, shared } => self.make(host, place, socket, |server, host| {
                let id = if shared { host.stack.udp_bind_shared(local) } else { host.stack.udp_bind(local) };
                let id = id.map_err(udp_error)?;
                server.of_datagrams.insert(id, (place, socket));
                Ok((
                    Served::Datagrams { id, is_marked: false, is_timed: false },
                    host.stack.udp_local(id).map_err(udp_error)?,
                ))
            }),
            Command::Accepted { count } => self.accepted(place, socket, count),
            Command::Send { extents, flags } => self.send_extents(host, place, socket, &extents, flags),
            Command::Consumed { bytes } => self.consumed(host, place, socket, size(bytes)),
            Command::Shutdown => {
                let id = self.connection(place, socket)?;
                // If the connection has ended, the call fails, which does no harm.
                let _ = host.stack.tcp_shutdown(host.at, id);
                Ok(())
            }
            Command::Set { options } => self.set(host, place, socket, &options),
            Command::Close => self.give_up(host, place, socket, false),
            Command::Abort => self.give_up(host, place, socket, true),
            Command::SendTo { to, with, bytes } => self.send_datagram(host, place, socket, (to, with), &bytes),
            Command::Group { change } => self.change_datagrams(host, place, socket, change),
            Command::Pool => self.pool(place, socket),
            Command::Accept => self.accept(host, place, socket),
            Command::Expect { count } => self.expect(host, place, socket, count),
            Command::Return { listener } => self.take_back(host, place, socket, listener),
            Command::Share { key, numbers } => self.share(host, place, key, &numbers),
            Command::Inherit { key, renumbered } => self.inherit(place, &key, &renumbered),
            Command::Take => self.take(host, place, socket),
            Command::AskDirect => self.ask_direct(host, place, socket),
            Command::CoupleMemory { couple } => self.couple_memory(place, couple),
            Command::LeaveDirect => {
                if let Some(Served::Connection { known, .. }) = self.served(place, socket) {
                    known.direct = None;
                }
                Ok(())
            }
            Command::KeepRest { after, bytes } => self.keep_rest(host, place, socket, after, &bytes),
            Command::RestRead { bytes } => self.rest_read(place, socket, size(bytes)),
            Command::Info => {
                let id = self.connection(place, socket)?;
                // The stack keeps the connection until the application closes it, so the call succeeds.
                let info = connection_info(host.stack, host.at, id);
                if let (Ok(info), Some(client)) = (info, self.client(place)) {
                    client.replies.push_back((socket, Event::Info(Box::new(info))));
                }
                Ok(())
            }
        }
    }

    /// Changes the options of a connection or of a listener.
    fn set(&mut self, host: &mut Host<'_>, place: usize, socket: Number, options: &SocketOptions) -> Outcome {
        if let Some(Served::Listener { id, receive_bytes, .. }) = self.served(place, socket) {
            let id = *id;
            // The listener keeps its options if the new ones are not valid.
            if host.stack.tcp_set_listener(id, &tcp_options(host.stack.tcp_defaults(), options)).is_ok() {
                *receive_bytes = receive_bytes_of(host, options);
            }
            return Ok(());
        }
        let id = self.connection(place, socket)?;
        // If the connection has ended, the call fails, which does no harm.
        let _ = change(host.stack, host.at, id, options);
        Ok(())
    }

    fn send_datagram(
        &mut self,
        host: &mut Host<'_>,
        place: usize,
        socket: Number,
        (to, with): (SocketAddr, DatagramOptions),
        bytes: &[u8],
    ) -> Outcome {
        let Some(Served::Datagrams { id, .. }) = self.served(place, socket) else {
            return Err(ApplicationViolation::NoDatagrams(socket));
        };
        let id = *id;
        let sent = host.groups.send(host.stack, host.at, id, to, bytes, with);
        // The application learns of a datagram that is too long for its path, so that it can send shorter ones, and of options that are
        // not valid. UDP does not guarantee delivery, so other failures are ignored.
        let event = match sent {
            Err(UdpError::TooLarge(_)) => Event::TooLong,
            Err(UdpError::NotOurs | UdpError::NoDevice | UdpError::Address) if with != DatagramOptions::default() => {
                Event::Failed { why: ErrorKind::InvalidInput }
            }
            Ok(()) | Err(_) => return Ok(()),
        };
        if let Some(client) = self.client(place) {
            client.replies.push_back((socket, event));
        }
        Ok(())
    }

    fn connect_datagrams(&mut self, host: &mut Host<'_>, place: usize, socket: Number, remote: SocketAddr) -> Outcome {
        let Some(Served::Datagrams { id, .. }) = self.served(place, socket) else {
            return Err(ApplicationViolation::NoDatagrams(socket));
        };
        let id = *id;
        let outcome = host.stack.udp_connect(id, remote).and_then(|()| host.stack.udp_local(id));
        let event = match outcome {
            Ok(local) => Event::Connected { local },
            Err(error) => Event::Group { failure: Some(udp_error(error).kind()) },
        };
        if let Some(client) = self.client(place) {
            client.replies.push_back((socket, event));
        }
        Ok(())
    }

    fn change_datagrams(
        &mut self,
        host: &mut Host<'_>,
        place: usize,
        socket: Number,
        change: DatagramChange,
    ) -> Outcome {
        let Some(Served::Datagrams { id, is_timed, .. }) = self.served(place, socket) else {
            return Err(ApplicationViolation::NoGroups(socket));
        };
        let id = *id;
        if let DatagramChange::Timing(timing) = change {
            *is_timed = timing.received;
        }
        let failure = host.groups.change(host.stack, host.at, id, change).err().map(|error| udp_error(error).kind());
        if let Some(client) = self.client(place) {
            client.replies.push_back((socket, Event::Group { failure }));
        }
        Ok(())
    }

    pub(super) fn served(&mut self, place: usize, socket: Number) -> Option<&mut Served> {
        self.client(place)?.sockets.get_mut(&socket)
    }

    pub(super) fn connection(&mut self, place: usize, socket: Number) -> Result<TcpId, ApplicationViolation> {
        match self.served(place, socket) {
            Some(Served::Connection { id, known, .. }) if !known.is_abandoned => Ok(*id),
            Some(Served::Elsewhere { id }) => Ok(*id),
            Some(
                Served::Connection { .. }
                | Served::Listener { .. }
                | Served::Datagrams { .. }
                | Served::Reserved
                | Served::Withdrawn,
            )
            | None => Err(ApplicationViolation::NoConnection(socket)),
        }
    }

    /// Makes a socket for an application, and queues the answer to the command.
    fn make(
        &mut self,
        host: &mut Host<'_>,
        place: usize,
        socket: Number,
        made: impl FnOnce(&mut Self, &mut Host<'_>) -> io::Result<(Served, SocketAddr)>,
    ) -> Outcome {
        let Some(client) = self.client(place) else { return Ok(()) };
        if socket >= GUEST_NUMBERS || client.sockets.contains_key(&socket) {
            return Err(ApplicationViolation::Number(socket));
        }
        let full = client.sockets.len() >= APPLICATION_SOCKETS_MAX;
        let outcome = if full { Err(ErrorKind::QuotaExceeded.into()) } else { made(self, host) };
        let Some(client) = self.client(place) else { return Ok(()) };
        let event = match outcome {
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
        host: &mut Host<'_>,
        place: usize,
        socket: Number,
        local: SocketAddr,
        backlog: usize,
        options: &SocketOptions,
    ) -> io::Result<(Served, SocketAddr)> {
        if local.port() != 0 {
            self.reserved.check(place, local)?;
        }
        let id = listen(host.stack, local, backlog, options)?;
        self.of_listener.insert(id, (place, socket));
        let receive_bytes = receive_bytes_of(host, options);
        let local = host.stack.tcp_listener_address(id).map_err(tcp_error)?;
        let credit = INCOMING_MAX;
        Ok((Served::Listener { id, credit, receive_bytes, is_marked: false, pooled: None }, local))
    }

    fn begin_connection(
        &mut self,
        host: &mut Host<'_>,
        place: usize,
        socket: Number,
        (local, remote): (SocketAddr, SocketAddr),
        options: &SocketOptions,
    ) -> io::Result<(Served, SocketAddr)> {
        let options = tcp_options(host.stack.tcp_defaults(), options);
        let id = host.stack.tcp_connect(host.at, local, remote, &options).map_err(tcp_error)?;
        let area = self.client(place).map(|client| Arc::clone(&client.area));
        let served = self.lend(host, &area.ok_or(ErrorKind::NotConnected)?, place, socket, id)?;
        let (local, _) = host.stack.tcp_addresses(id).map_err(tcp_error)?;
        Ok((served, local))
    }

    /// Makes a connection use memory of the two arenas as its send buffer and receive buffer.
    pub(super) fn lend(
        &mut self,
        host: &mut Host<'_>,
        area: &Arc<Area>,
        place: usize,
        socket: Number,
        id: TcpId,
    ) -> io::Result<Served> {
        let hint = Hint::new(area, socket);
        let (sent, received) = Memory::of(&hint);
        host.stack.tcp_set_buffers(id, sent, received).map_err(tcp_error)?;
        self.of_connection.insert(id, (place, socket));
        hint.mark();
        // Before the connection is open, and after the peer's FIN, it cannot be direct.
        let position = host.stack.tcp_stream_position(id).ok().flatten();
        let base = position.map_or((0, 0), |position| (position.written, position.read));
        Ok(Served::Connection { id, hint, known: Known { base, ..Known::default() } })
    }

    fn accepted(&mut self, place: usize, socket: Number, count: u32) -> Outcome {
        let Some(client) = self.client(place) else { return Ok(()) };
        match client.sockets.get_mut(&socket) {
            Some(Served::Listener { credit, .. }) if (1..=INCOMING_MAX - *credit).contains(&count) => *credit += count,
            Some(
                Served::Listener { .. }
                | Served::Connection { .. }
                | Served::Elsewhere { .. }
                | Served::Datagrams { .. }
                | Served::Reserved
                | Served::Withdrawn,
            )
            | None => return Err(ApplicationViolation::Accepted(socket)),
        }
        client.mark(socket);
        Ok(())
    }

    fn send_extents(
        &mut self,
        host: &mut Host<'_>,
        place: usize,
        socket: Number,
        extents: &[Extent],
        flags: SendFlags,
    ) -> Outcome {
        let id = self.connection(place, socket)?;
        let Some(client) = self.client(place) else { return Ok(()) };
        let arena_bytes = client.area.sent_bytes();
        let Some(Served::Connection { hint, known, .. }) = client.sockets.get_mut(&socket) else { return Ok(()) };
        if known.is_unconfirmed {
            return Ok(());
        }
        if extents.is_empty() || !extents.iter().all(|extent| extent.is_inside(arena_bytes)) {
            return Err(ApplicationViolation::Extents(socket));
        }
        let bytes: u64 = extents.iter().map(|extent| u64::from(extent.len)).sum();
        known.sent += bytes;
        if known.sent - hint.released() > SEND_BYTES_MAX {
            return Err(ApplicationViolation::InFlight(socket));
        }
        let hint = Arc::clone(hint);
        let takes = match host.stack.tcp_outgoing(id) {
            Ok(Memory::Sent(sent)) => sent.takes(extents.len()),
            Ok(Memory::Own(_) | Memory::Received(_)) | Err(_) => true,
        };
        if !takes {
            return Err(ApplicationViolation::ExtentCount(socket));
        }
        let place = |memory: &mut Memory| {
            if let Memory::Sent(sent) = memory {
                extents.iter().for_each(|extent| sent.push(*extent));
            }
        };
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        if host.stack.tcp_send_with(host.at, id, len, write_flags(flags), place).is_err() {
            // The connection has ended, so the bytes are never sent. Count them as released, so that the application can reuse
            // their memory.
            hint.release(bytes);
        }
        Ok(())
    }

    fn consumed(&mut self, host: &mut Host<'_>, place: usize, socket: Number, bytes: usize) -> Outcome {
        let id = self.connection(place, socket)?;
        let Some(client) = self.client(place) else { return Ok(()) };
        let Some(Served::Connection { hint, known, .. }) = client.sockets.get_mut(&socket) else { return Ok(()) };
        if known.is_unconfirmed {
            return Ok(());
        }
        if bytes == 0 || bytes > known.unread {
            return Err(ApplicationViolation::Consumed(socket));
        }
        known.unread -= bytes;
        hint.mark();
        self.direct.consumed(id, bytes);
        let Some(client) = self.client(place) else { return Ok(()) };
        client.pending.append(&mut client.starved);
        let is_crowded = host.stack.tcp_incoming(id).is_ok_and(Memory::is_crowded);
        let window_max = if is_crowded { CROWDED_RECEIVE_BYTES_MAX } else { u32::MAX };
        // The stack keeps the connection until the application closes it, so both calls succeed.
        let taken = host.stack.tcp_limit_window(id, window_max).and_then(|()| host.stack.tcp_take(host.at, id, bytes));
        debug_assert_eq!(taken, Ok(()), "an application's connection is gone");
        Ok(())
    }

    fn give_up(&mut self, host: &mut Host<'_>, place: usize, socket: Number, abort: bool) -> Outcome {
        self.confirm(place, socket);
        if let Some(handle) = self.served(place, socket).and_then(|served| served.handle()) {
            let is_elsewhere = matches!(self.served(place, socket), Some(Served::Elsewhere { .. }));
            let is_last = self.let_go(host, handle, place, socket);
            if is_last && is_elsewhere {
                self.close_unheld(host, handle);
            }
            if !is_last || is_elsewhere {
                if let Some(client) = self.client(place) {
                    client.sockets.remove(&socket);
                    client.replies.push_back((socket, Event::Gone));
                }
                return Ok(());
            }
        }
        let Some(client) = self.client(place) else { return Ok(()) };
        client.pending.append(&mut client.starved);
        match client.sockets.get_mut(&socket) {
            Some(Served::Connection { id, hint, known }) if !known.is_abandoned => {
                known.is_abandoned = true;
                known.direct = None;
                hint.mark();
                let id = *id;
                self.of_connection.remove(&id);
                self.direct.forget_rest(id);
                // The connection still exists, so the call succeeds.
                let _ = if abort { host.stack.tcp_abort(host.at, id) } else { host.stack.tcp_close(host.at, id) };
                Ok(())
            }
            Some(Served::Reserved) => {
                client.sockets.remove(&socket);
                client.replies.push_back((socket, Event::Gone));
                self.reserved.remove(|one| (one.place, one.socket) == (place, socket));
                Ok(())
            }
            Some(Served::Listener { .. } | Served::Datagrams { .. }) => {
                let served = client.sockets.remove(&socket);
                client.replies.push_back((socket, Event::Gone));
                served.iter().for_each(|served| self.unbind(host, served));
                Ok(())
            }
            Some(Served::Connection { .. } | Served::Elsewhere { .. } | Served::Withdrawn) | None => {
                Err(ApplicationViolation::NothingToGiveUp(socket))
            }
        }
    }

    /// Closes a listener or a datagram socket in the stack.
    pub(super) fn unbind(&mut self, host: &mut Host<'_>, served: &Served) {
        // The socket still exists, so these calls succeed.
        match served {
            Served::Connection { .. } | Served::Elsewhere { .. } | Served::Reserved | Served::Withdrawn => {}
            Served::Listener { id, .. } => {
                self.of_listener.remove(id);
                let _ = host.stack.tcp_unlisten(host.at, *id);
            }
            Served::Datagrams { id, .. } => {
                self.of_datagrams.remove(id);
                let _ = host.stack.udp_close(*id);
            }
        }
    }
}

/// Returns the size of the receive buffer with which connections of a listener with these options begin.
fn receive_bytes_of(host: &Host<'_>, options: &SocketOptions) -> usize {
    let receive_bytes = options.receive_buffer.map(Config::receive_buffer_for);
    receive_bytes.unwrap_or(host.stack.tcp_defaults().config.receive_buffer_bytes)
}
