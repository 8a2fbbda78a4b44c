//! Sockets that several applications hold, because they are processes of one program that forks or executes another program.
//!
//! - A connection's buffers are in the arenas of one holder, which uses the connection. Another holder takes it over with its first use,
//!   and the buffers move. The same is true for the queue of a datagram socket.
//! - The connections of a *pooled* listener wait in the guest until a holder expects one (`pooled.rs`).
//! - What an application shares waits as a *bequest* until another application inherits it, but only for a limited time.
//! - A socket closes when its last holder closes it or ends. A connection that no application uses has its buffers in the guest's memory.

use super::Host;
use super::applications::Applications;
use super::commands::{Outcome, Served};
use super::memory::Memory;
use super::pooled::{Pooled, Pools};
use super::violation::ApplicationViolation;
use crate::limits::{BEQUEST_TIME_MAX, BEQUESTS_MAX, BEQUESTS_OF_APPLICATION_MAX};
use crate::protocol::message::Loss;
use siga_iucv::BLOCK_BYTES;
use siga_iucv::extent::{Table, table};
use siga_iucv::limits::APPLICATION_SOCKETS_MAX;
use siga_iucv::record::{Event, GUEST_NUMBERS, Number, ShareKey};
use siga_stack::sockets::{ListenerId, TcpId};
use siga_stack::time::Instant;
use siga_stack::udp::UdpId;
use std::collections::HashSet;
use std::sync::Arc;

/// A socket that several applications can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Handle {
    Connection(TcpId),
    Listener(ListenerId),
    Datagrams(UdpId),
}

/// A holder of a shared socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// The application at this place, which has the socket under this number.
    Application(usize, Number),
    /// The bequest with this number.
    Bequest(u64),
}

/// What an application has shared, and no application has inherited yet.
#[derive(Debug)]
struct Bequest {
    id: u64,
    /// The place of the application that has shared the sockets. Another application may have this place by now.
    of: usize,
    key: ShareKey,
    sockets: Vec<(Number, Handle)>,
    until: Instant,
}

/// The shared sockets of all applications.
#[derive(Debug)]
pub(super) struct Sharing {
    /// The holders of each shared socket. A socket that is not in this table has one holder.
    pub(super) holders: Table<Handle, Vec<Holder>>,
    pub(super) pools: Pools,
    bequests: Vec<Bequest>,
    next: u64,
    /// True while the commands of another application are carried out before a socket is taken from it.
    pub(super) is_moving: bool,
}

impl Sharing {
    pub(super) fn new() -> Self {
        Self { holders: table(), pools: Pools::new(), bequests: Vec::new(), next: 0, is_moving: false }
    }

    /// Returns the time at which the oldest bequest ends, or at which a connection may be withdrawn.
    pub(super) fn due(&self) -> Option<Instant> {
        self.bequests.first().map(|bequest| bequest.until).into_iter().chain(self.pools.due()).min()
    }

    /// Returns the applications that hold a shared socket, and its number in each.
    pub(super) fn applications(&self, handle: Handle) -> impl Iterator<Item = (usize, Number)> {
        self.holders.get(&handle).into_iter().flatten().filter_map(|holder| match holder {
            Holder::Application(place, number) => Some((*place, *number)),
            Holder::Bequest(_) => None,
        })
    }

    /// Removes a holder. Returns true if it was the last one, so that the socket has to be closed.
    fn release(&mut self, handle: Handle, holder: Holder) -> bool {
        let Some(holders) = self.holders.get_mut(&handle) else { return true };
        holders.retain(|one| *one != holder);
        if holders.is_empty() {
            self.holders.remove(&handle);
            return true;
        }
        false
    }
}

impl Served {
    /// Returns the socket if several applications can hold it.
    pub(super) fn handle(&self) -> Option<Handle> {
        match self {
            Self::Connection { known, .. } if known.is_abandoned || known.handed_for.is_some() => None,
            Self::Connection { id, .. } | Self::Elsewhere { id } => Some(Handle::Connection(*id)),
            Self::Listener { id, .. } => Some(Handle::Listener(*id)),
            Self::Datagrams { id, .. } => Some(Handle::Datagrams(*id)),
            Self::Reserved | Self::Withdrawn => None,
        }
    }
}

impl Applications {
    pub(super) fn reply(&mut self, place: usize, socket: Number, event: Event) {
        if let Some(client) = self.client(place) {
            client.replies.push_back((socket, event));
        }
    }

    /// Marks a shared socket as changed in all applications that hold it.
    pub(super) fn mark_holders(&mut self, handle: Handle) {
        let holders: Vec<(usize, Number)> = self.sharing.applications(handle).collect();
        for (place, number) in holders {
            if let Some(client) = self.client(place) {
                client.mark(number);
            }
        }
    }

    /// Moves the buffers of a connection to the guest's own memory, because no application uses the connection.
    pub(super) fn park(&mut self, host: &mut Host<'_>, id: TcpId) {
        self.of_connection.remove(&id);
        // The connection still exists, so the call succeeds.
        let _ = host.stack.tcp_set_buffers(id, Memory::default(), Memory::default());
        if host.stack.tcp_buffers_are_full() {
            // Its next user learns that it was reset.
            let _ = host.stack.tcp_reset(host.at, id);
        }
    }

    /// Shares sockets of an application: those with these numbers, or all.
    pub(super) fn share(&mut self, host: &Host<'_>, place: usize, key: ShareKey, numbers: &[Number]) -> Outcome {
        let Some(client) = self.client(place) else { return Ok(()) };
        let meant: HashSet<Number> = numbers.iter().copied().collect();
        let meant = |number: &Number| meant.is_empty() || meant.contains(number);
        let sockets = client.sockets.iter().filter(|(number, _)| meant(number));
        // A listener without a pool announces its connections to one application only.
        let sockets = sockets.filter(|(_, served)| !matches!(served, Served::Listener { pooled: None, .. }));
        let sockets: Vec<(Number, Handle)> =
            sockets.filter_map(|(number, served)| Some((*number, served.handle()?))).collect();
        let bequests = &self.sharing.bequests;
        let own = bequests.iter().filter(|bequest| bequest.of == place).count();
        let has_room = bequests.len() < BEQUESTS_MAX && own < BEQUESTS_OF_APPLICATION_MAX;
        let done = has_room && !bequests.iter().any(|one| one.key == key);
        if done {
            let id = self.sharing.next;
            self.sharing.next += 1;
            for (number, handle) in &sockets {
                let holders = self.sharing.holders.entry(*handle);
                holders.or_insert_with(|| vec![Holder::Application(place, *number)]).push(Holder::Bequest(id));
            }
            self.sharing.bequests.push(Bequest {
                id,
                of: place,
                key,
                sockets,
                until: host.at + BEQUEST_TIME_MAX.into(),
            });
        }
        self.reply(place, 0, Event::Shared { done });
        Ok(())
    }

    /// Returns the numbers that an application asks for with the sockets of a bequest, or `None` if it cannot have them.
    fn inherited_numbers(
        &mut self,
        place: usize,
        sockets: &[(Number, Handle)],
        renumbered: &[(Number, Number)],
    ) -> Option<Vec<Number>> {
        let is_held = |handle: &Handle| self.sharing.applications(*handle).any(|(holder, _)| holder == place);
        if sockets.iter().any(|(_, handle)| is_held(handle)) {
            return None;
        }
        let client = self.client(place)?;
        if renumbered.is_empty() {
            return client.sockets.is_empty().then(|| sockets.iter().map(|(number, _)| *number).collect());
        }
        let mut taken = HashSet::new();
        let renumbered: Table<Number, Number> = renumbered.iter().copied().collect();
        let mut number = |there: &Number| {
            let here = *renumbered.get(there)?;
            (here < GUEST_NUMBERS && !client.sockets.contains_key(&here) && taken.insert(here)).then_some(here)
        };
        let numbers: Option<Vec<Number>> = sockets.iter().map(|(there, _)| number(there)).collect();
        numbers.filter(|numbers| client.sockets.len() + numbers.len() <= APPLICATION_SOCKETS_MAX)
    }

    /// Makes an application a holder of the sockets that were shared with a key.
    pub(super) fn inherit(&mut self, place: usize, key: &ShareKey, renumbered: &[(Number, Number)]) -> Outcome {
        let found = self.sharing.bequests.iter().position(|bequest| bequest.key == *key);
        let sockets = found.map(|found| self.sharing.bequests[found].sockets.clone()).unwrap_or_default();
        let numbers = self.inherited_numbers(place, &sockets, renumbered);
        let (Some(found), Some(numbers)) = (found, numbers) else {
            self.reply(place, 0, Event::Shared { done: false });
            return Ok(());
        };
        let Bequest { id: bequest, sockets, .. } = self.sharing.bequests.remove(found);
        for (number, (_, handle)) in numbers.into_iter().zip(sockets) {
            let served = match handle {
                Handle::Connection(id) => Served::Elsewhere { id },
                Handle::Listener(id) => {
                    let receive_bytes = self.sharing.pools.receive_bytes(id);
                    let (is_marked, pooled) = (false, Some(Pooled::default()));
                    Served::Listener { id, credit: 0, receive_bytes, is_marked, pooled }
                }
                Handle::Datagrams(id) => Served::Datagrams { id, is_marked: false, is_timed: false },
            };
            if let Some(holders) = self.sharing.holders.get_mut(&handle) {
                holders.retain(|holder| *holder != Holder::Bequest(bequest));
                holders.push(Holder::Application(place, number));
            }
            if let Some(client) = self.client(place) {
                client.sockets.insert(number, served);
                client.mark(number);
            }
        }
        self.reply(place, 0, Event::Shared { done: true });
        Ok(())
    }

    /// Lets an application use a socket that another holder has used.
    pub(super) fn take(&mut self, host: &mut Host<'_>, place: usize, socket: Number) -> Outcome {
        match self.served(place, socket) {
            // The guest has passed the connection on, and now the application confirms this.
            Some(Served::Connection { known, .. }) if !known.is_abandoned => {
                known.is_unconfirmed = false;
                self.confirm(place, socket);
                Ok(())
            }
            // The guest has withdrawn the connection, and the application learns this after its command.
            Some(Served::Withdrawn) => Ok(()),
            Some(Served::Elsewhere { id }) => {
                let id = *id;
                if !self.activate(host, place, socket, id, false) {
                    self.reply(place, socket, Event::Moved);
                }
                if let Some(Served::Connection { known, .. }) = self.served(place, socket) {
                    known.is_unconfirmed = false;
                }
                Ok(())
            }
            Some(Served::Datagrams { id, .. }) => {
                let id = *id;
                let before = self.of_datagrams.insert(id, (place, socket)).filter(|before| *before != (place, socket));
                if let Some((of, number)) = before {
                    self.reply(of, number, Event::Moved);
                }
                self.reply(place, socket, Event::Yours);
                if let Some(client) = self.client(place) {
                    client.mark(socket);
                }
                Ok(())
            }
            Some(Served::Connection { .. } | Served::Listener { .. } | Served::Reserved) | None => {
                Err(ApplicationViolation::NoConnection(socket))
            }
        }
    }

    /// Moves the buffers of a connection to the arenas of a holder. Returns false if its arena has too little memory.
    fn activate(&mut self, host: &mut Host<'_>, place: usize, socket: Number, id: TcpId, is_unconfirmed: bool) -> bool {
        if let Some((of, _)) = self.of_connection.get(&id).copied()
            && !self.sharing.is_moving
        {
            // What the other application has sent and read before counts.
            self.sharing.is_moving = true;
            self.carry_out_all(host, of);
            self.sharing.is_moving = false;
        }
        if !matches!(self.served(place, socket), Some(Served::Elsewhere { .. })) {
            // While the commands were carried out, the connection was passed on to this application, or it has ended.
            return true;
        }
        let needed = host.stack.tcp_incoming(id).map_or(0, Memory::moved_bytes) + 2 * BLOCK_BYTES;
        let Some(client) = self.client(place) else { return true };
        let area = Arc::clone(&client.area);
        let outgoing = host.stack.tcp_outgoing(id).map_or(0, Memory::outgoing_bytes);
        if area.free_bytes() < needed || !area.takes_copies(outgoing) {
            return false;
        }
        if let Some((of, number)) = self.of_connection.get(&id).copied()
            && let Some(client) = self.client(of)
        {
            client.sockets.insert(number, Served::Elsewhere { id });
            client.replies.push_back((number, Event::Moved));
            // The other application must know this before it learns, in another way, what the new user does. A violation of its ring is
            // found again when events are announced.
            if let Ok(true) = client.send_replies() {
                client.events.publish();
            }
        }
        let Ok(mut served) = self.lend(host, &area, place, socket, id) else { return false };
        if let Served::Connection { known, .. } = &mut served {
            known.is_unconfirmed = is_unconfirmed;
        }
        let rest = self.direct.rest_events(id);
        if let Some(client) = self.client(place) {
            client.sockets.insert(socket, served);
            client.replies.push_back((socket, Event::Yours));
            client.replies.extend(rest.into_iter().map(|event| (socket, event)));
        }
        true
    }

    /// Carries out the commands that an application has sent before.
    pub(super) fn carry_out_all(&mut self, host: &mut Host<'_>, place: usize) {
        loop {
            match self.take_commands(host, place) {
                Ok(0) => return,
                Ok(_) => {}
                Err(violation) => return self.end(host, place, Loss::Violation(violation.to_string())),
            }
        }
    }

    /// Records that an application no longer holds a shared socket. Returns true if no other holder is left.
    pub(super) fn let_go(&mut self, host: &mut Host<'_>, handle: Handle, place: usize, socket: Number) -> bool {
        if self.sharing.release(handle, Holder::Application(place, socket)) {
            self.end_pool(host, handle);
            return true;
        }
        match handle {
            Handle::Connection(id) if self.of_connection.get(&id) == Some(&(place, socket)) => {
                self.of_connection.remove(&id);
                let others: Vec<(usize, Number)> = self.sharing.applications(handle).collect();
                if !others.into_iter().any(|(other, number)| self.activate(host, other, number, id, true)) {
                    self.park(host, id);
                }
            }
            Handle::Datagrams(id) if self.of_datagrams.get(&id) == Some(&(place, socket)) => {
                self.of_datagrams.remove(&id);
                let other = self.sharing.applications(handle).next();
                if let Some((other, number)) = other {
                    self.of_datagrams.insert(id, (other, number));
                    self.reply(other, number, Event::Yours);
                }
            }
            Handle::Connection(_) | Handle::Datagrams(_) | Handle::Listener(_) => {}
        }
        false
    }

    /// Closes a socket that has no holder any more, and that no application used.
    pub(super) fn close_unheld(&mut self, host: &mut Host<'_>, handle: Handle) {
        // The socket still exists, so these calls succeed.
        match handle {
            Handle::Connection(id) => {
                self.of_connection.remove(&id);
                // As in Linux, a connection with unread bytes ends with a reset.
                let is_unread = host.stack.tcp_progress(id).is_ok_and(|progress| progress.received > 0)
                    | self.direct.forget_rest(id);
                let _ = if is_unread { host.stack.tcp_abort(host.at, id) } else { host.stack.tcp_close(host.at, id) };
            }
            Handle::Listener(id) => {
                self.of_listener.remove(&id);
                let _ = host.stack.tcp_unlisten(host.at, id);
            }
            Handle::Datagrams(id) => {
                self.of_datagrams.remove(&id);
                let _ = host.stack.udp_close(id);
            }
        }
    }

    /// Ends the bequests that no application has inherited in time.
    pub(super) fn end_bequests(&mut self, host: &mut Host<'_>) {
        while self.sharing.bequests.first().is_some_and(|bequest| bequest.until <= host.at) {
            let Bequest { id, sockets, .. } = self.sharing.bequests.remove(0);
            for (_, handle) in sockets {
                if self.sharing.release(handle, Holder::Bequest(id)) {
                    self.end_pool(host, handle);
                    self.close_unheld(host, handle);
                }
            }
        }
    }
}
