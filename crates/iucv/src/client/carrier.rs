//! Sends and receives the bytes of a connection by TCP or by memory that this client shares with the other application
//! (`docs/direct.md`).
//!
//! A connection begins with TCP. After a few calls, the client asks the guest for a slot. When both applications have bound it, each
//! direction moves to memory with the next send. It returns to TCP when the connection is shared with another process, or when the
//! couple ends.

use super::Client;
use super::connection::{Connection, Kind, Socket, Stage};
use super::direct::{LanePlace, Slot};
use crate::extent::size;
use crate::limits::{DIRECT_AFTER_BYTES, DIRECT_AFTER_CALLS, REST_BYTES_MAX, REST_RECORD_BYTES_MAX};
use crate::options::Readiness;
use crate::record::{Command, DirectEvent, Number};
use siga_ring::direct::Incoming;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};

/// By what the bytes of a connection come and go.
#[derive(Debug, Default)]
pub(super) struct Carrier {
    pub(super) lane: Option<LanePlace>,
    /// Number of bytes that were sent by TCP, and number of bytes by TCP that the application has read. What earlier users of the
    /// connection have moved counts as soon as the connection has a slot.
    pub(super) sent: u64,
    pub(super) received: u64,
    has_base: bool,
    /// Number of bytes that were sent and received by memory.
    pub(super) by_memory: (u64, u64),
    /// The size of the send buffer, if the application has chosen it since it uses the connection.
    pub(super) send_max: Option<usize>,
    calls: u32,
    stage: Asked,
    /// Bytes that came by memory before this side stopped it. They follow the first `rest_at` bytes that come by TCP.
    rest: VecDeque<u8>,
    rest_at: u64,
    /// Bytes that the peer has not read from memory. They are sent by TCP before all others.
    pub(super) resend: VecDeque<u8>,
    /// True if this side has reset the connection, because the peer broke the protocol or closed it with unread bytes.
    pub(super) is_broken: bool,
    /// True if the guest has forgotten a broken connection.
    pub(super) is_gone: bool,
}

/// Whether the client has asked the guest for a slot.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Asked {
    #[default]
    No,
    Yes,
    /// The connection has several holders or wants times, so it stays with TCP.
    Never,
}

impl Carrier {
    /// Returns whether TCP carries all bytes of the connection.
    #[inline]
    fn is_tcp(&self) -> bool {
        self.lane.is_none() && self.rest.is_empty() && self.resend.is_empty()
    }

    /// Returns whether bytes wait to be sent by TCP again.
    pub(super) fn resends(&self) -> bool {
        !self.resend.is_empty()
    }

    /// Returns how many bytes wait to be sent by TCP again.
    pub(super) fn resend_bytes(&self) -> usize {
        self.resend.len()
    }

    /// Takes bytes that the peer never reads from memory.
    pub(super) fn sends_again(&mut self, bytes: &[u8]) {
        self.by_memory.0 = self.by_memory.0.saturating_sub(bytes.len() as u64);
        self.resend.extend(bytes);
    }

    /// Keeps the connection with TCP.
    pub(super) fn stay_with_tcp(&mut self) {
        self.stage = Asked::Never;
    }

    /// Counts a call that moved bytes. Returns true if it is time to ask the guest for a slot.
    #[inline]
    fn is_worth_asking(&mut self) -> bool {
        if self.stage != Asked::No {
            return false;
        }
        self.calls += 1;
        let is_worth = self.calls >= DIRECT_AFTER_CALLS || self.sent + self.received >= DIRECT_AFTER_BYTES;
        if is_worth {
            self.stage = Asked::Yes;
        }
        is_worth
    }
}

impl Client {
    pub(super) fn carried(&mut self, number: Number) -> Option<&mut Connection> {
        match self.sockets.get_mut(&number) {
            Some(Socket { kind: Kind::Connection(connection), .. }) => Some(connection),
            Some(_) | None => None,
        }
    }

    /// Counts a call that moved bytes by TCP, and asks the guest for a slot if the connection is worth it.
    #[inline]
    pub(super) fn count_call(&mut self, number: Number) {
        if !self.direct.is_possible() {
            return;
        }
        let Some(connection) = self.carried(number) else { return };
        if connection.carrier.is_worth_asking() && connection.open && !connection.closed {
            // The guest need not read this before it reads the next command.
            self.send_command(number, Command::AskDirect);
        }
    }

    /// Applies an event of direct connections.
    pub(super) fn handle_direct_event(&mut self, number: Number, event: DirectEvent) -> Result<(), &'static str> {
        match event {
            DirectEvent::Couple { couple } => self.handle_couple(couple),
            DirectEvent::PeerMemory { couple } => self.handle_peer_memory(couple),
            DirectEvent::Slot { couple, slot, generation, sent, received, send_max } => {
                let (slot, send_max) = (slot.into(), size(send_max));
                self.handle_slot(number, Slot { couple, slot, generation, sent, received, send_max })
            }
            DirectEvent::CoupleGone { couple } => {
                self.direct.end(couple);
                Ok(())
            }
            DirectEvent::Rest { after, bytes } => self.handle_rest(number, after, &bytes),
        }
    }

    /// Applies the event that a connection may use a slot.
    fn handle_slot(&mut self, number: Number, slot: Slot) -> Result<(), &'static str> {
        let Some(Socket { kind: Kind::Connection(connection), stage, .. }) = self.sockets.get_mut(&number) else {
            return Err("the guest gave a slot to a socket without a connection");
        };
        if connection.carrier.lane.is_some() {
            return Err("the guest gave a connection a second slot");
        }
        let is_unwanted = connection.carrier.stage != Asked::Yes
            || connection.closed
            || *stage == Stage::Closing
            || self.direct.is_muted(slot.couple);
        if is_unwanted {
            if *stage != Stage::Closing {
                self.send_command(number, Command::LeaveDirect);
            }
            return Ok(());
        }
        if !std::mem::replace(&mut connection.carrier.has_base, true) {
            connection.carrier.sent += slot.sent;
            connection.carrier.received += slot.received;
        }
        let send_max = connection.carrier.send_max.unwrap_or(slot.send_max);
        let place = self.direct.bind(number, slot)?;
        if let Some(connection) = self.carried(number) {
            connection.carrier.lane = place;
        }
        self.limit_lane(number, send_max);
        Ok(())
    }

    /// Returns the place of a connection's lane, if it has one.
    pub(super) fn lane_place(&mut self, number: Number) -> Option<LanePlace> {
        self.carried(number)?.carrier.lane
    }

    /// Limits the bytes of a connection in memory that the peer has not read (`SO_SNDBUF`).
    pub(super) fn limit_lane(&mut self, number: Number, bytes: usize) {
        if let Some((couple, lane, _)) = self.lane_place(number).and_then(|place| self.direct.lane(place)) {
            lane.limit(couple, bytes);
        }
    }

    /// Applies the event that a couple begins. If this process has no memory, its connections stay with TCP.
    fn handle_couple(&mut self, couple: u64) -> Result<(), &'static str> {
        match self.direct.begin(couple) {
            Ok(()) => {
                self.send_command(0, Command::CoupleMemory { couple });
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => Err("the guest passed no descriptors of a couple"),
            Err(_) => Ok(()),
        }
    }

    /// Applies the event that the memory of the other application of a couple has come.
    fn handle_peer_memory(&mut self, couple: u64) -> Result<(), &'static str> {
        let Ok(waiting) = self.direct.complete(couple) else { return Ok(()) };
        waiting.into_iter().try_for_each(|(number, slot)| self.handle_slot(number, slot))
    }

    /// Sends bytes by memory. Returns `None` if the connection sends by TCP.
    #[inline]
    pub(super) fn send_by_memory(&mut self, number: Number, bytes: &[u8]) -> io::Result<Option<usize>> {
        let Some(connection) = self.carried(number) else { return Ok(None) };
        if connection.carrier.is_tcp() {
            return Ok(None);
        }
        if connection.carrier.resends() && !self.resend(number) {
            return Err(self.starve(number));
        }
        let Some(place) = self.lane_place(number) else { return Ok(None) };
        if !self.heeds_stop(number) {
            self.note_stalled(number);
            return Err(ErrorKind::WouldBlock.into());
        }
        let sent = match self.carried(number) {
            Some(connection) if connection.open => connection.carrier.sent,
            Some(_) | None => return Ok(None),
        };
        let Some((couple, lane, is_dead)) = self.direct.lane(place) else { return Ok(None) };
        match lane.peer_has_closed(couple) {
            // The peer's guest answers to what comes by TCP.
            Some(false) => lane.end(couple),
            Some(true) => return Err(self.break_connection(number)),
            None => {}
        }
        if !is_dead && lane.can_begin(couple) {
            lane.begin(couple, sent);
        }
        if is_dead {
            lane.end(couple);
        }
        if !lane.sends_by_memory() {
            self.leave_lane(number);
            return Ok(None);
        }
        let outcome = match lane.send(couple, bytes) {
            Ok(0) => lane.want_room(couple).and_then(|waits| if waits { Ok(0) } else { lane.send(couple, bytes) }),
            // The program may wait for room at once, without another attempt.
            Ok(count) if count < bytes.len() => lane.want_room(couple).map(|_| count),
            outcome => outcome,
        };
        let is_lost = lane.peer_has_closed(couple) == Some(true);
        match outcome {
            Err(_) => Err(self.break_connection(number)),
            Ok(_) if is_lost => Err(self.break_connection(number)),
            Ok(0) => {
                self.note_stalled(number);
                Err(ErrorKind::WouldBlock.into())
            }
            Ok(count) => {
                self.count_memory(number, count, 0);
                self.heeds_stop(number);
                Ok(Some(count))
            }
        }
    }

    fn count_memory(&mut self, number: Number, sent: usize, received: usize) {
        if let Some(connection) = self.carried(number) {
            let by_memory = &mut connection.carrier.by_memory;
            *by_memory = (by_memory.0 + sent as u64, by_memory.1 + received as u64);
        }
    }

    fn note_stalled(&mut self, number: Number) {
        if let Some(connection) = self.carried(number) {
            connection.stalled = true;
        }
    }

    /// Looks at what the peer has published. Returns how many bytes that came by TCP can be read before others.
    #[inline]
    pub(super) fn tcp_first(&mut self, number: Number) -> usize {
        self.look_at_lane(number).0
    }

    /// Returns the same as [`Client::tcp_first`], and announces what it finds: this look leaves the bytes, and another thread may wait for
    /// them.
    #[inline]
    pub(super) fn tcp_first_announced(&mut self, number: Number) -> usize {
        let (first, is_new) = self.look_at_lane(number);
        if is_new {
            self.direct.news.push(number);
        }
        first
    }

    /// Looks at what the peer has published. Returns how many bytes that came by TCP can be read before others, and whether the peer has
    /// published anything since the last look.
    #[inline]
    fn look_at_lane(&mut self, number: Number) -> (usize, bool) {
        const ALL: usize = usize::MAX;
        let Some(connection) = self.carried(number) else { return (ALL, false) };
        let (received, lane) = (connection.carrier.received, connection.carrier.lane);
        if !connection.carrier.rest.is_empty() {
            return (up_to(connection.carrier.rest_at, received), false);
        }
        let Some((couple, lane, _)) = lane.and_then(|place| self.direct.lane(place)) else { return (ALL, false) };
        let waits = lane.wants_room();
        let looked = lane.look(couple).and_then(|is_new| lane.check_begin(received).map(|()| is_new));
        let (incoming, has_room) = (lane.incoming(), waits && !lane.wants_room());
        if has_room {
            // Another thread may wait for this room, and no later look finds it.
            self.direct.news.push(number);
        }
        match (looked, incoming) {
            (Ok(is_new), Incoming::Tcp) => (ALL, is_new),
            (Ok(is_new), Incoming::TcpAfterMemory(_)) => {
                self.leave_lane(number);
                (ALL, is_new)
            }
            (Ok(is_new), Incoming::TcpUpTo(begin)) => (up_to(begin, received), is_new),
            (Err(_), _) => {
                self.break_connection(number);
                (0, false)
            }
        }
    }

    /// Returns how many bytes that came by memory can be read before others. [`Client::tcp_first`] has looked.
    fn memory_first(&mut self, number: Number) -> usize {
        let Some(connection) = self.carried(number) else { return 0 };
        let (received, lane) = (connection.carrier.received, connection.carrier.lane);
        if !connection.carrier.rest.is_empty() {
            return if connection.carrier.rest_at == received { connection.carrier.rest.len() } else { 0 };
        }
        let Some((_, lane, _)) = lane.and_then(|place| self.direct.lane(place)) else { return 0 };
        match lane.incoming() {
            Incoming::TcpUpTo(begin) if begin == received => lane.unread(),
            Incoming::Tcp | Incoming::TcpUpTo(_) | Incoming::TcpAfterMemory(_) => 0,
        }
    }

    /// Receives bytes that came by memory. Call [`Client::tcp_first`] first.
    #[inline]
    pub(super) fn receive_from_memory(&mut self, number: Number, into: &mut [u8]) -> usize {
        if into.is_empty() || self.memory_first(number) == 0 {
            return 0;
        }
        let Some(connection) = self.carried(number) else { return 0 };
        let rest = &mut connection.carrier.rest;
        if !rest.is_empty() {
            let count = rest.len().min(into.len());
            into.iter_mut().zip(rest.drain(..count)).for_each(|(to, byte)| *to = byte);
            self.send_command(number, Command::RestRead { bytes: u32::try_from(count).unwrap_or(u32::MAX) });
            self.count_memory(number, 0, count);
            return count;
        }
        let Some((couple, lane, _)) = connection.carrier.lane.and_then(|place| self.direct.lane(place)) else {
            return 0;
        };
        let count = lane.receive(couple, into);
        let (is_readable, has_ended) = (lane.unread() > 0, lane.has_ended_receiving());
        if is_readable {
            // Others may wait for this connection, too, and have not seen these bytes.
            self.direct.news.push(number);
        }
        self.count_memory(number, 0, count);
        if has_ended {
            self.leave_lane(number);
        }
        count
    }

    /// Copies bytes that came by memory after the first `after` unread bytes by TCP, and leaves them.
    pub(super) fn peek_at_memory(&mut self, number: Number, after: usize, into: &mut [u8]) -> usize {
        let tcp_first = self.tcp_first(number);
        if after != tcp_first || self.memory_after(number, tcp_first) == 0 {
            return 0;
        }
        let Some(connection) = self.carried(number) else { return 0 };
        let rest = &connection.carrier.rest;
        if !rest.is_empty() {
            let count = rest.len().min(into.len());
            into.iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
            return count;
        }
        let Some((couple, lane, _)) = connection.carrier.lane.and_then(|place| self.direct.lane(place)) else {
            return 0;
        };
        lane.peek(couple, into)
    }

    /// Returns how many bytes the application can read now.
    pub(super) fn readable_bytes(&mut self, number: Number) -> usize {
        let tcp_first = self.tcp_first_announced(number);
        let unread = self.carried(number).map_or(0, |connection| connection.unread);
        unread.min(tcp_first) + self.memory_after(number, tcp_first)
    }

    /// Returns how many bytes came by memory that follow the next `tcp_first` bytes by TCP, if those have come.
    fn memory_after(&mut self, number: Number, tcp_first: usize) -> usize {
        let Some(connection) = self.carried(number) else { return 0 };
        if tcp_first == usize::MAX || connection.unread < tcp_first {
            return 0;
        }
        if !connection.carrier.rest.is_empty() {
            return connection.carrier.rest.len();
        }
        let lane = connection.carrier.lane.and_then(|place| self.direct.lane(place));
        lane.map_or(0, |(_, lane, _)| lane.unread())
    }

    /// Returns what a receive returns if no byte was copied.
    pub(super) fn nothing_to_read(&mut self, number: Number, is_empty: bool) -> io::Result<usize> {
        let connection = self.connection(number)?;
        if connection.carrier.is_tcp() {
            return connection.nothing_received();
        }
        match connection.failure {
            _ if is_empty || connection.ended => Ok(0),
            Some(failure) => Err(failure.into()),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Returns the operations that a connection can perform. `by_tcp` says so for a connection of which TCP carries all bytes.
    #[inline]
    pub(super) fn readiness_of(&mut self, number: Number, by_tcp: Readiness) -> Readiness {
        if self.carried(number).is_none_or(|connection| connection.carrier.is_tcp()) {
            return by_tcp;
        }
        let readable = self.readable_bytes(number) > 0;
        let Some(connection) = self.carried(number) else { return by_tcp };
        let (ended, closed, resends) = (connection.ended, connection.closed, connection.carrier.resends());
        let may_send = connection.open && !connection.shut && !resends;
        let lane = connection.carrier.lane.and_then(|place| self.direct.lane(place));
        let by_memory = lane.filter(|(_, lane, _)| lane.sends_by_memory());
        let has_room = by_memory.map(|(couple, lane, _)| lane.is_writable(couple));
        let writable = closed || may_send && has_room.unwrap_or(by_tcp.writable);
        Readiness { readable: readable || ended || closed, writable, closed }
    }

    /// Gives the slot of a connection back if neither direction uses it.
    pub(super) fn leave_lane(&mut self, number: Number) {
        let Some(place) = self.lane_place(number) else { return };
        let is_used = |lane: &siga_ring::direct::Lane| !lane.has_ended_sending() || !lane.has_ended_receiving();
        if self.direct.lane(place).is_none_or(|(_, lane, _)| is_used(lane)) {
            return;
        }
        self.direct.unbind(place);
        if let Some(connection) = self.carried(number) {
            connection.carrier.lane = None;
            connection.carrier.stay_with_tcp();
        }
        self.send_command(number, Command::LeaveDirect);
    }

    /// Moves both directions of a connection to TCP, because another process may use it. The guest keeps the bytes that came by memory
    /// and that the application has not read.
    pub(super) fn return_to_tcp(&mut self, number: Number) {
        self.direct.forget(number);
        if !self.settle_stop(number) {
            self.break_connection(number);
            return;
        }
        let Some(connection) = self.carried(number) else { return };
        connection.carrier.stay_with_tcp();
        let Some(place) = connection.carrier.lane else { return };
        let received = connection.carrier.received;
        let Some((couple, lane, _)) = self.direct.lane(place) else { return };
        lane.end(couple);
        let Ok(rest) = lane.stop(couple) else {
            self.break_connection(number);
            return;
        };
        let rest_at = match lane.incoming() {
            Incoming::Tcp => received,
            Incoming::TcpUpTo(begin) | Incoming::TcpAfterMemory(begin) => begin,
        };
        self.report_read();
        for bytes in rest.chunks(REST_RECORD_BYTES_MAX) {
            let after = rest_at.saturating_sub(received);
            self.send_command(number, Command::KeepRest { after, bytes: bytes.to_vec() });
        }
        if let Some(connection) = self.carried(number) {
            connection.carrier.rest = rest.into();
            connection.carrier.rest_at = rest_at;
        }
        self.leave_lane(number);
    }

    /// Applies the event that the guest has kept bytes for this user of a connection.
    fn handle_rest(&mut self, number: Number, after: u64, bytes: &[u8]) -> Result<(), &'static str> {
        let connection =
            self.carried(number).ok_or("the guest sent bytes of memory for a socket without a connection")?;
        let carrier = &mut connection.carrier;
        if carrier.rest.len() + bytes.len() > REST_BYTES_MAX || carrier.lane.is_some() {
            return Err("the guest sent more bytes of memory than a slot has");
        }
        if carrier.rest.is_empty() {
            carrier.rest_at = carrier.received.saturating_add(after);
        }
        carrier.rest.extend(bytes);
        self.announce(number);
        Ok(())
    }

    /// Ends the use of memory by a connection that the application closes. Returns true if the peer has sent bytes that the application
    /// has not read, or if bytes could not be sent, so that the connection ends with a reset.
    pub(super) fn close_lane(&mut self, number: Number) -> bool {
        self.direct.forget(number);
        let Some(connection) = self.carried(number) else { return false };
        let carrier = &mut connection.carrier;
        let (lane, mut is_lost) = (carrier.lane.take(), !carrier.rest.is_empty() || carrier.resends());
        carrier.stay_with_tcp();
        let Some(place) = lane else { return is_lost };
        if let Some((couple, lane, _)) = self.direct.lane(place) {
            is_lost |= lane.close(couple);
        }
        self.direct.unbind(place);
        is_lost
    }

    /// Resets a connection, because its peer broke the protocol of the memory or closed it without reading everything.
    pub(super) fn break_connection(&mut self, number: Number) -> io::Error {
        let failure = ErrorKind::ConnectionReset;
        self.close_lane(number);
        if let Some(Socket { kind: Kind::Connection(connection), stage: Stage::Made(_), .. }) =
            self.sockets.get_mut(&number)
            && !std::mem::replace(&mut connection.carrier.is_broken, true)
        {
            (connection.closed, connection.failure) = (true, connection.failure.or(Some(failure)));
            (connection.unread, connection.received) = (0, VecDeque::new());
            self.send_command(number, Command::Abort);
            self.announce(number);
        }
        failure.into()
    }

    /// Processes what the other applications have written. Returns true if there was anything.
    pub(super) fn work_on_lanes(&mut self) -> bool {
        if !self.direct.look() {
            return false;
        }
        self.direct.awake();
        for (number, _) in std::mem::take(&mut self.direct.broken) {
            self.break_connection(number);
        }
        for (number, bytes) in std::mem::take(&mut self.direct.unread) {
            // The peer's guest answers to these bytes, as it does to all bytes for a connection that does not exist.
            if let Some(connection) = self.carried(number) {
                connection.carrier.sends_again(&bytes);
            }
            self.resend(number);
        }
        for number in std::mem::take(&mut self.direct.flooded) {
            // The peer sees where this side stops, and sends what follows by TCP.
            self.return_to_tcp(number);
            self.announce(number);
        }
        for number in std::mem::take(&mut self.direct.news) {
            self.heeds_stop(number);
            self.announce(number);
        }
        true
    }
}

fn up_to(offset: u64, received: u64) -> usize {
    usize::try_from(offset.saturating_sub(received)).unwrap_or(usize::MAX)
}
