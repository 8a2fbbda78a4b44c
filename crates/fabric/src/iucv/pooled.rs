//! Pooled listeners: several applications accept the connections of one listener, because they are processes of one program.
//!
//! - An application that waits for connections *expects* some: it asks for them in advance. The guest hands each new connection over to
//!   one of these applications, so a connection wakes one process. The applications with the fewest connections that they have not
//!   accepted come first, and of these the one that has asked last.
//! - An application confirms a connection when its program accepts it. Until then the guest can *withdraw* the connection. It does so
//!   after [`HANDED_TIME_MAX`], if another application expects one. Then the connection waits in the guest again.
//! - If connections wait and no application expects any, all applications get an offer. They can then ask for a connection.

use super::Host;
use super::applications::Applications;
use super::commands::{Outcome, Served};
use super::sharing::{Handle, Holder};
use super::violation::ApplicationViolation;
use crate::limits::HANDED_TIME_MAX;
use siga_iucv::BLOCK_BYTES;
use siga_iucv::extent::{Table, table};
use siga_iucv::limits::{APPLICATION_SOCKETS_MAX, INCOMING_MAX};
use siga_iucv::record::{Event, GUEST_NUMBERS, Number};
use siga_stack::sockets::{ListenerId, TcpId};
use siga_stack::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

/// What the guest knows of one application's use of a pooled listener.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pooled {
    /// True if the application has not answered the last offer.
    is_offered: bool,
    /// How many more connections the application expects.
    expected: u32,
    /// How many connections the application has and has not accepted.
    unaccepted: u32,
    /// The number of the application's last request, in the order of the requests of all applications.
    asked: u64,
}

/// The connections that holders of a pooled listener have given back, and the size of the receive buffer of its connections.
#[derive(Debug)]
struct Pool {
    returned: VecDeque<TcpId>,
    receive_bytes: usize,
}

/// A connection that the guest has handed over to an application, under this number.
#[derive(Debug, Clone, Copy)]
struct Handed {
    until: Instant,
    place: usize,
    socket: Number,
    listener: ListenerId,
}

/// The pooled listeners of a guest.
#[derive(Debug)]
pub(super) struct Pools {
    of: Table<ListenerId, Pool>,
    /// The connections that were handed over lately, the oldest first. Some may be accepted.
    handed: VecDeque<Handed>,
    /// Connections whose application has not accepted them in time, while no other application expected one.
    late: Vec<Handed>,
    asked: u64,
}

impl Pools {
    pub(super) fn new() -> Self {
        Self { of: table(), handed: VecDeque::new(), late: Vec::new(), asked: 0 }
    }

    /// Returns the time at which a connection may have to be withdrawn.
    pub(super) fn due(&self) -> Option<Instant> {
        self.handed.front().map(|handed| handed.until)
    }

    pub(super) fn receive_bytes(&self, id: ListenerId) -> usize {
        self.of.get(&id).map_or(0, |pool| pool.receive_bytes)
    }
}

impl Applications {
    fn pooled(&mut self, place: usize, listener: Number) -> Option<&mut Pooled> {
        match self.served(place, listener) {
            Some(Served::Listener { pooled, .. }) => pooled.as_mut(),
            Some(
                Served::Connection { .. }
                | Served::Elsewhere { .. }
                | Served::Datagrams { .. }
                | Served::Reserved
                | Served::Withdrawn,
            )
            | None => None,
        }
    }

    /// Returns the pooled listener with this number.
    fn pooled_id(&mut self, place: usize, listener: Number) -> Result<ListenerId, ApplicationViolation> {
        match self.served(place, listener) {
            Some(Served::Listener { id, pooled: Some(_), .. }) => Ok(*id),
            Some(_) | None => Err(ApplicationViolation::NoPool(listener)),
        }
    }

    /// Makes a listener pooled.
    pub(super) fn pool(&mut self, place: usize, socket: Number) -> Outcome {
        let Some(client) = self.client(place) else { return Ok(()) };
        let Some(Served::Listener { id, receive_bytes, pooled, .. }) = client.sockets.get_mut(&socket) else {
            return Err(ApplicationViolation::NoPool(socket));
        };
        pooled.get_or_insert_default();
        let pool = Pool { returned: VecDeque::new(), receive_bytes: *receive_bytes };
        let id = *id;
        client.mark(socket);
        client.replies.push_back((socket, Event::NoneWaiting));
        self.sharing.pools.of.entry(id).or_insert(pool);
        self.sharing.holders.entry(Handle::Listener(id)).or_insert_with(|| vec![Holder::Application(place, socket)]);
        Ok(())
    }

    /// Returns whether a connection of a pooled listener waits.
    fn waits(&self, host: &Host<'_>, id: ListenerId) -> bool {
        self.sharing.pools.of.get(&id).is_some_and(|pool| !pool.returned.is_empty())
            || host.stack.tcp_acceptable(id).unwrap_or(0) > 0
    }

    /// Gives an application the next connection of a pooled listener, because it asks for one.
    pub(super) fn accept(&mut self, host: &mut Host<'_>, place: usize, listener: Number) -> Outcome {
        let id = self.pooled_id(place, listener)?;
        if let Some(pooled) = self.pooled(place, listener) {
            pooled.is_offered = false;
        }
        let has_one = self.hand_over(host, place, listener, id)
            || self.reclaim(host, place, id) && self.hand_over(host, place, listener, id);
        if !has_one {
            self.reply(place, listener, Event::NoneWaiting);
        }
        // Another connection may wait. Then the application gets another offer.
        if let Some(client) = self.client(place) {
            client.mark(listener);
        }
        Ok(())
    }

    /// Records that an application expects more connections, and hands over those that wait.
    pub(super) fn expect(&mut self, host: &mut Host<'_>, place: usize, listener: Number, count: u32) -> Outcome {
        let id = self.pooled_id(place, listener)?;
        self.sharing.pools.asked += 1;
        let asked = self.sharing.pools.asked;
        let Some(pooled) = self.pooled(place, listener) else { return Ok(()) };
        if count == 0 || count > INCOMING_MAX.saturating_sub(pooled.expected + pooled.unaccepted) {
            return Err(ApplicationViolation::Accepted(listener));
        }
        pooled.expected += count;
        (pooled.is_offered, pooled.asked) = (false, asked);
        self.distribute(host, id);
        while self.pooled(place, listener).is_some_and(|pooled| pooled.expected > 0) && self.reclaim(host, place, id) {
            self.distribute(host, id);
        }
        Ok(())
    }

    /// Hands over the connections of a pooled listener that wait to applications that expect them. Returns whether others still wait.
    pub(super) fn distribute(&mut self, host: &mut Host<'_>, id: ListenerId) -> bool {
        let mut without_room = Vec::new();
        while self.waits(host, id) {
            let Some((place, listener)) = self.next_taker(id, &without_room) else { return true };
            if !self.hand_over(host, place, listener, id) {
                without_room.push(place);
            } else if let Some(pooled) = self.pooled(place, listener) {
                pooled.expected -= 1;
            }
        }
        false
    }

    /// Returns the application to which the next connection is handed over, and the listener's number there.
    fn next_taker(&mut self, id: ListenerId, without_room: &[usize]) -> Option<(usize, Number)> {
        let mut best = None;
        let holders: Vec<(usize, Number)> = self.sharing.applications(Handle::Listener(id)).collect();
        for (place, listener) in holders.into_iter().filter(|(place, _)| !without_room.contains(place)) {
            let Some(pooled) = self.pooled(place, listener).filter(|pooled| pooled.expected > 0) else { continue };
            let rank = (pooled.unaccepted, std::cmp::Reverse(pooled.asked));
            if best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, (place, listener)));
            }
        }
        best.map(|(_, taker)| taker)
    }

    /// Hands over the next connection of a pooled listener. Returns false if no connection waits, or if the
    /// application has no room for it.
    fn hand_over(&mut self, host: &mut Host<'_>, place: usize, listener: Number, id: ListenerId) -> bool {
        let Some(client) = self.client(place) else { return false };
        let is_full = client.sockets.len() >= APPLICATION_SOCKETS_MAX;
        let Some(Served::Listener { is_marked, receive_bytes, pooled: Some(pooled), .. }) =
            client.sockets.get_mut(&listener)
        else {
            return false;
        };
        if is_full || pooled.unaccepted >= INCOMING_MAX {
            return false;
        }
        let needed = *receive_bytes + 2 * BLOCK_BYTES;
        if client.area.free_bytes() < needed {
            // The application gets a connection, or another offer, when it has read more of its bytes.
            if !std::mem::replace(is_marked, true) {
                client.starved.push(listener);
            }
            return false;
        }
        let area = Arc::clone(&client.area);
        let returned = self.sharing.pools.of.get_mut(&id).and_then(|pool| pool.returned.pop_front());
        let connection =
            returned.or_else(|| host.stack.tcp_accept(id).ok().flatten().map(|(connection, _)| connection));
        let Some((connection, (local, remote))) =
            connection.and_then(|connection| Some((connection, host.stack.tcp_addresses(connection).ok()?)))
        else {
            return false;
        };
        let Some(socket) = self.client(place).map(|client| client.take_number()) else { return false };
        let Ok(mut served) = self.lend(host, &area, place, socket, connection) else { return false };
        if let Served::Connection { known, .. } = &mut served {
            (known.is_unconfirmed, known.handed_for) = (true, Some(id));
        }
        if let Some(client) = self.client(place) {
            client.sockets.insert(socket, served);
            client.replies.push_back((socket, Event::Incoming { listener, local, remote }));
        }
        if let Some(pooled) = self.pooled(place, listener) {
            pooled.unaccepted += 1;
        }
        let until = host.at + HANDED_TIME_MAX.into();
        self.sharing.pools.handed.push_back(Handed { until, place, socket, listener: id });
        true
    }

    /// Announces to an application that a connection of a pooled listener waits, in the guest or too long in another application, if one
    /// does and the application expects none.
    pub(super) fn offer(&mut self, host: &mut Host<'_>, place: usize, socket: Number, id: ListenerId) -> Outcome {
        let is_late = |handed: &Handed| handed.listener == id && handed.place != place;
        if !self.distribute(host, id) && !self.sharing.pools.late.iter().any(is_late) {
            return Ok(());
        }
        match self.pooled(place, socket) {
            Some(pooled) if !pooled.is_offered && pooled.expected == 0 => pooled.is_offered = true,
            Some(_) | None => return Ok(()),
        }
        self.client(place).map_or(Ok(()), |client| client.send(socket, &Event::Offer))
    }

    /// Hands over or offers the connections of a pooled listener that wait.
    pub(super) fn pass_on(&mut self, host: &mut Host<'_>, id: ListenerId) {
        self.read_quiet_commands(host, id);
        if self.distribute(host, id) {
            self.mark_holders(Handle::Listener(id));
        }
    }

    /// Carries out the commands of holders that sleep. These commands do not wake the guest, and may say that a holder expects
    /// connections.
    fn read_quiet_commands(&mut self, host: &mut Host<'_>, id: ListenerId) {
        if self.sharing.is_moving {
            return;
        }
        let holders: Vec<(usize, Number)> = self.sharing.applications(Handle::Listener(id)).collect();
        for (place, _) in holders {
            if self.client(place).is_some_and(|client| !client.is_hot && client.commands.is_ready().unwrap_or(true)) {
                self.sharing.is_moving = true;
                self.carry_out_all(host, place);
                self.sharing.is_moving = false;
            }
        }
    }

    /// Records that an application has accepted a connection, if it was handed over.
    pub(super) fn confirm(&mut self, place: usize, socket: Number) {
        let Some(Served::Connection { known, .. }) = self.served(place, socket) else { return };
        if let Some(id) = known.handed_for.take() {
            self.count_out(place, id);
        }
    }

    /// Records that an application has one connection less that it has not accepted.
    fn count_out(&mut self, place: usize, id: ListenerId) {
        let number = self.sharing.applications(Handle::Listener(id)).find(|(holder, _)| *holder == place);
        if let Some(pooled) = number.and_then(|(_, number)| self.pooled(place, number)) {
            pooled.unaccepted -= 1;
        }
    }

    /// Takes back a connection that an application has not accepted.
    pub(super) fn take_back(&mut self, host: &mut Host<'_>, place: usize, socket: Number, listener: Number) -> Outcome {
        if matches!(self.served(place, socket), Some(Served::Withdrawn)) {
            self.answer_gone(place, socket);
            return Ok(());
        }
        let handed_for = match self.served(place, socket) {
            Some(Served::Connection { known, .. }) => known.handed_for,
            Some(_) | None => None,
        };
        let of = handed_for.map_or_else(|| self.pooled_id(place, listener), Ok)?;
        let id = match self.served(place, socket) {
            Some(Served::Connection { id, known, .. }) if socket >= GUEST_NUMBERS && !known.is_abandoned => *id,
            Some(_) | None => return Err(ApplicationViolation::NoConnection(socket)),
        };
        self.confirm(place, socket);
        self.answer_gone(place, socket);
        self.return_to_pool(host, id, of);
        Ok(())
    }

    fn answer_gone(&mut self, place: usize, socket: Number) {
        if let Some(client) = self.client(place) {
            client.sockets.remove(&socket);
            client.replies.push_back((socket, Event::Gone));
        }
    }

    /// Lets a connection wait for another application. Resets it if its listener is closed.
    pub(super) fn return_to_pool(&mut self, host: &mut Host<'_>, id: TcpId, listener: ListenerId) {
        self.park(host, id);
        match self.sharing.pools.of.get_mut(&listener) {
            Some(pool) => {
                pool.returned.push_back(id);
                self.mark_holders(Handle::Listener(listener));
            }
            // The connection still exists, so the call succeeds.
            None => _ = host.stack.tcp_abort(host.at, id),
        }
    }

    /// Resets the connections of a pooled listener that were given back, because the listener closes.
    pub(super) fn end_pool(&mut self, host: &mut Host<'_>, handle: Handle) {
        let Handle::Listener(id) = handle else { return };
        let pool = self.sharing.pools.of.remove(&id);
        for connection in pool.into_iter().flat_map(|pool| pool.returned) {
            // The connection still exists, so the call succeeds.
            let _ = host.stack.tcp_abort(host.at, connection);
        }
    }

    /// Returns whether an application has not accepted a connection.
    fn is_unaccepted(&mut self, handed: &Handed) -> bool {
        matches!(
            self.served(handed.place, handed.socket),
            Some(Served::Connection { known, .. }) if known.handed_for == Some(handed.listener)
        )
    }

    /// Forgets the oldest connections that were handed over, as far as they are accepted. They no longer determine a time.
    pub(super) fn forget_accepted(&mut self) {
        while let Some(handed) = self.sharing.pools.handed.front().copied()
            && !self.is_unaccepted(&handed)
        {
            self.sharing.pools.handed.pop_front();
        }
    }

    /// Withdraws the connections that were not accepted in time and that another application expects.
    pub(super) fn withdraw_overdue(&mut self, host: &mut Host<'_>) {
        while let Some(handed) = self.sharing.pools.handed.pop_front_if(|handed| handed.until <= host.at) {
            self.read_quiet_commands(host, handed.listener);
            if !self.is_unaccepted(&handed) {
                continue;
            }
            if self.next_taker(handed.listener, &[handed.place]).is_none() {
                self.sharing.pools.late.push(handed);
                self.mark_holders(Handle::Listener(handed.listener));
            } else if self.withdraw(host, handed) {
                self.pass_on(host, handed.listener);
            }
        }
    }

    /// Withdraws a connection that another application has not accepted in time. Returns false if there is no such
    /// connection.
    fn reclaim(&mut self, host: &mut Host<'_>, place: usize, id: ListenerId) -> bool {
        if self.sharing.is_moving {
            return false;
        }
        let mut has_one = false;
        for handed in std::mem::take(&mut self.sharing.pools.late) {
            let is_meant = !has_one && handed.listener == id && handed.place != place;
            if is_meant && self.is_unaccepted(&handed) && self.withdraw(host, handed) {
                has_one = true;
            } else if self.is_unaccepted(&handed) {
                self.sharing.pools.late.push(handed);
            }
        }
        has_one
    }

    /// Takes a connection from an application that has not accepted it. Returns false if the application accepts it at this moment, or
    /// if no event can be sent to the application.
    fn withdraw(&mut self, host: &mut Host<'_>, handed: Handed) -> bool {
        if self.sharing.is_moving {
            return false;
        }
        let Some(client) = self.client(handed.place) else { return false };
        // A violation of the ring is found again when events are announced.
        if !matches!(client.send_replies(), Ok(true))
            || !matches!(client.has_room(), Ok(true))
            || client.send(handed.socket, &Event::Withdrawn).is_err()
        {
            return false;
        }
        // Either the application sees the event before it accepts the connection, or the guest finds its confirmation now. Both sides
        // have a SeqCst fence between their publication and their check (`Client::confirm`).
        client.events.publish();
        self.sharing.is_moving = true;
        self.carry_out_all(host, handed.place);
        self.sharing.is_moving = false;
        if !self.is_unaccepted(&handed) {
            return false;
        }
        let Some(Served::Connection { id, .. }) = self.served(handed.place, handed.socket) else { return false };
        let id = *id;
        self.confirm(handed.place, handed.socket);
        if let Some(client) = self.client(handed.place) {
            client.sockets.insert(handed.socket, Served::Withdrawn);
        }
        self.return_to_pool(host, id, handed.listener);
        true
    }
}
