//! Events to applications. An event describes the changes of a socket since the socket's last event. Events are sent while the ring
//! to the application has room.
//!
//! An event of a connection contains the difference from what the application already knows. A listener announces only as many
//! connections as the application has given it credit for. So if an application receives no events, no events queue up in the
//! guest.

use super::Host;
use super::applications::{Applications, LinkedApplication};
use super::commands::{Outcome, Served};
use super::direct::DirectUse;
use super::memory::Memory;
use super::sharing::Handle;
use super::violation::ApplicationViolation;
use crate::stack_sockets::{failure_kind, send_time, udp_error};
use siga_iucv::extent::{Extents, size};
use siga_iucv::limits::{APPLICATION_SOCKETS_MAX, ARRIVALS_MAX, SEND_TIMES_MAX};
use siga_iucv::options::{Delivery, SendStage, SendTime};
use siga_iucv::record::{Arrival, DATAGRAM_BYTES_MAX, DELIVERED_BYTES_MAX, Event, GUEST_NUMBERS, Number, Status};
use siga_iucv::{BLOCK_BYTES, ROOM};
use siga_stack::sockets::{ListenerId, TcpEvent, TcpId};
use siga_stack::stack::tcp::Progress;
use siga_stack::tcp::ArrivedBytes;
use siga_stack::udp::{Datagram, UdpError, UdpId};
use std::sync::Arc;

/// The state of a connection as its application knows it from earlier events and commands.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// `sent` is how many bytes the application has commanded to send since the connection began. `released` is how many of these
    /// bytes were announced to the application as released.
    pub(super) sent: u64,
    pub(super) released: u64,
    /// How many received bytes were announced to the application, but not yet consumed by it.
    pub(super) unread: usize,
    pub(super) open: bool,
    pub(super) ended: bool,
    pub(super) closed: bool,
    /// True if the application has closed or aborted the connection.
    pub(super) is_abandoned: bool,
    /// True if the guest has passed the connection on to the application, which has not confirmed this yet. Its commands are about an
    /// earlier use of the connection.
    pub(super) is_unconfirmed: bool,
    /// The pooled listener of the connection, if the application has not accepted the connection.
    pub(super) handed_for: Option<ListenerId>,
    /// The slot of a direct connection, or the request for one.
    pub(super) direct: Option<DirectUse>,
    /// How many bytes were sent and received by TCP before the application has used the connection.
    pub(super) base: (u64, u64),
}

impl Applications {
    /// Marks the sockets for which the stack has events, so that the changes are announced to their applications.
    pub(super) fn collect_events(&mut self, host: &mut Host<'_>) {
        while let Some(ready) = host.stack.tcp_poll_event() {
            let owner = match ready {
                TcpEvent::Connection(id) => self.of_connection.get(&id),
                TcpEvent::Listener(id) if self.sharing.applications(Handle::Listener(id)).next().is_some() => {
                    self.pass_on(host, id);
                    continue;
                }
                TcpEvent::Listener(id) => self.of_listener.get(&id),
            };
            let Some((place, socket)) = owner.copied() else { continue };
            let Some(client) = self.client(place) else { continue };
            client.mark(socket);
        }
        while let Some(id) = host.stack.udp_poll_event() {
            let Some((place, socket)) = self.of_datagrams.get(&id).copied() else { continue };
            if let Some(client) = self.client(place) {
                client.mark(socket);
            }
        }
    }

    /// Sends events to one application while the ring has room. Returns true if any socket had changed.
    pub(super) fn announce(&mut self, host: &mut Host<'_>, place: usize) -> Result<bool, ApplicationViolation> {
        let mut announced = false;
        loop {
            let Some(client) = self.client(place) else { return Ok(announced) };
            if !client.send_replies()? {
                return Ok(announced);
            }
            client.wants_room = false;
            client.pending.extend(client.area.take_moved());
            if client.pending.is_empty() {
                client.events.publish();
                return Ok(announced);
            }
            if !client.has_room()? {
                client.stall();
                return Ok(announced);
            }
            let sockets = std::mem::take(&mut client.pending);
            for (done, socket) in sockets.iter().enumerate() {
                let Some(client) = self.client(place) else { return Ok(announced) };
                if !client.has_room()? {
                    client.pending.extend_from_slice(&sockets[done..]);
                    client.stall();
                    return Ok(announced);
                }
                announced = true;
                match client.sockets.get_mut(socket) {
                    Some(Served::Connection { .. }) => self.announce_connection(host, place, *socket)?,
                    Some(Served::Listener { is_marked, .. }) => {
                        *is_marked = false;
                        self.announce_listener(host, place, *socket)?;
                    }
                    Some(Served::Datagrams { is_marked, .. }) => {
                        *is_marked = false;
                        self.announce_datagrams(host, place, *socket)?;
                    }
                    Some(Served::Elsewhere { .. } | Served::Reserved | Served::Withdrawn) | None => {}
                }
            }
        }
    }

    fn announce_connection(&mut self, host: &mut Host<'_>, place: usize, socket: Number) -> Outcome {
        let Some(client) = self.client(place) else { return Ok(()) };
        let Some(Served::Connection { id, hint, known }) = client.sockets.get_mut(&socket) else { return Ok(()) };
        hint.unmark();
        if known.is_abandoned {
            if hint.is_gone() {
                client.sockets.remove(&socket);
                return client.send(socket, &Event::Gone);
            }
            // The remaining bytes are still delivered to the peer. An application that is about to exit waits for this delivery, so
            // it needs to know how many bytes were released.
            return match known.release(hint.released()) {
                Some(status) => client.send(socket, &Event::Status(status)),
                None => Ok(()),
            };
        }
        let (id, skip) = (*id, known.unread);
        let Ok(progress) = host.stack.tcp_progress(id) else { return Ok(()) };
        let arrivals = arrivals(host, id, skip);
        let timed = arrivals.iter().map(|piece| size(piece.bytes)).sum();
        let new = progress.received.saturating_sub(skip).min(if arrivals.is_empty() { usize::MAX } else { timed });
        let received = match host.stack.tcp_incoming(id) {
            Ok(Memory::Received(memory)) => memory.extents(skip, new),
            Ok(Memory::Own(_) | Memory::Sent(_)) | Err(_) => Extents::new(),
        };
        let Some(client) = self.client(place) else { return Ok(()) };
        let send_times = send_times(host, id);
        if !send_times.is_empty() {
            client.send(socket, &Event::SendTimes { times: send_times })?;
            if !client.has_room()? {
                client.mark(socket);
                return Ok(());
            }
        }
        let Some(Served::Connection { hint, known, .. }) = client.sockets.get_mut(&socket) else { return Ok(()) };
        let status = known.catch_up(&progress, hint.released(), received, arrivals);
        let has_send_times = host.stack.tcp_has_send_times(id).unwrap_or(false);
        if status.is_some() && known.unread < progress.received || has_send_times {
            // The record of one event has no room for the extents of all received bytes, or for all times. Mark the socket, so
            // that the next event announces the rest.
            hint.mark();
        }
        match status {
            Some(status) => client.send(socket, &Event::Status(status)),
            None => Ok(()),
        }
    }

    fn announce_listener(&mut self, host: &mut Host<'_>, place: usize, socket: Number) -> Outcome {
        loop {
            let Some(client) = self.client(place) else { return Ok(()) };
            let full = client.sockets.len() >= APPLICATION_SOCKETS_MAX;
            let Some(Served::Listener { id, credit, receive_bytes, is_marked, pooled }) =
                client.sockets.get_mut(&socket)
            else {
                return Ok(());
            };
            let id = *id;
            if pooled.is_some() {
                return self.offer(host, place, socket, id);
            }
            if *credit == 0 || host.stack.tcp_acceptable(id).unwrap_or(0) == 0 {
                return Ok(());
            }
            // Announce a connection only if the guest's arena has room for bytes that arrive before the application accepts the
            // connection.
            let needed = *receive_bytes + 2 * BLOCK_BYTES;
            if client.area.free_bytes() < needed || full {
                *is_marked = true;
                client.starved.push(socket);
                return Ok(());
            }
            if !client.has_room()? {
                client.mark(socket);
                return Ok(());
            }
            self.announce_incoming(host, place, socket, id)?;
        }
    }

    fn announce_incoming(&mut self, host: &mut Host<'_>, place: usize, listener: Number, id: ListenerId) -> Outcome {
        let Ok(Some((connection, remote))) = host.stack.tcp_accept(id) else { return Ok(()) };
        let Some(client) = self.client(place) else { return Ok(()) };
        if let Some(Served::Listener { credit, .. }) = client.sockets.get_mut(&listener) {
            *credit -= 1;
        }
        let socket = client.take_number();
        let area = Arc::clone(&client.area);
        let served = self.lend(host, &area, place, socket, connection);
        let local = host.stack.tcp_addresses(connection).map(|(local, _)| local);
        let (Ok(served), Ok(local)) = (served, local) else { return Ok(()) };
        let Some(client) = self.client(place) else { return Ok(()) };
        client.sockets.insert(socket, served);
        client.send(socket, &Event::Incoming { listener, local, remote })
    }

    fn announce_datagrams(&mut self, host: &mut Host<'_>, place: usize, socket: Number) -> Outcome {
        loop {
            let Some(client) = self.client(place) else { return Ok(()) };
            let Some(Served::Datagrams { id, is_timed, .. }) = client.sockets.get(&socket) else { return Ok(()) };
            let (id, is_timed) = (*id, *is_timed);
            if self.of_datagrams.get(&id) != Some(&(place, socket)) {
                return Ok(());
            }
            let Some(client) = self.client(place) else { return Ok(()) };
            if !client.has_room()? {
                client.mark(socket);
                return Ok(());
            }
            let times = datagram_times(host, id);
            if !times.is_empty() {
                client.send(socket, &Event::SendTimes { times })?;
                continue;
            }
            let datagram = match host.stack.udp_receive(id) {
                Ok(Some(datagram)) => datagram,
                Err(error @ UdpError::Network(..)) => {
                    client.send(socket, &Event::Failed { why: udp_error(error).kind() })?;
                    continue;
                }
                Ok(None) | Err(_) => return Ok(()),
            };
            if datagram.bytes.len() <= DATAGRAM_BYTES_MAX {
                let at = is_timed.then(|| host.clock.wall_time(datagram.at));
                let fits = datagram.bytes.len() <= DELIVERED_BYTES_MAX;
                let delivery = fits.then(|| delivery(host, &datagram));
                client.send(socket, &Event::Datagram { from: datagram.from, bytes: datagram.bytes, at, delivery })?;
            }
        }
    }
}

/// Returns when the received bytes after the first `skip` arrived, as far as one record has room. Returns nothing if the application did
/// not ask for times.
fn arrivals(host: &Host<'_>, id: TcpId, skip: usize) -> Vec<Arrival> {
    let Ok(Some(pieces)) = host.stack.tcp_arrivals(id, skip, ARRIVALS_MAX) else { return Vec::new() };
    let arrival = |piece: ArrivedBytes| Arrival { bytes: piece.bytes, at: piece.at.map(|at| host.clock.wall_time(at)) };
    pieces.into_iter().map(arrival).collect()
}

/// Removes what `arrivals` says about bytes after the first `bytes`.
fn limit(arrivals: &mut Vec<Arrival>, bytes: usize) {
    let mut left = u32::try_from(bytes).unwrap_or(u32::MAX);
    arrivals.retain_mut(|piece| {
        piece.bytes = piece.bytes.min(left);
        left -= piece.bytes;
        piece.bytes > 0
    });
}

/// Takes the times of writes, as many as a record has room for.
fn send_times(host: &mut Host<'_>, id: TcpId) -> Vec<SendTime> {
    let next = || host.stack.tcp_take_send_time(id).ok().flatten();
    let times: Vec<_> = std::iter::from_fn(next).take(SEND_TIMES_MAX).collect();
    times.iter().map(|time| send_time(time, host.clock.wall_time(time.at))).collect()
}

fn delivery(host: &Host<'_>, datagram: &Datagram) -> Delivery {
    let network = datagram.on.and_then(|device| host.groups.number(device));
    Delivery { to: datagram.to, network, hop_limit: datagram.hop_limit, service: datagram.service }
}

/// Takes the times of sent datagrams, as many as a record has room for.
fn datagram_times(host: &mut Host<'_>, id: UdpId) -> Vec<SendTime> {
    let next = || host.stack.udp_take_send_time(id).ok().flatten();
    let times: Vec<_> = std::iter::from_fn(next).take(SEND_TIMES_MAX).collect();
    let stage = SendStage::Sent;
    times.into_iter().map(|(id, at)| SendTime { id, stage, at: host.clock.wall_time(at) }).collect()
}

impl Known {
    /// Returns the new status of a connection that the application has closed, or `None` if no more bytes were released.
    fn release(&mut self, released: u64) -> Option<Status> {
        let freed = released - self.released;
        self.released = released;
        let (open, ended, closed) = (self.open, self.ended, self.closed);
        let released = u32::try_from(freed).unwrap_or(u32::MAX);
        let (failure, send_buffer, received, arrivals) = (None, 0, Extents::new(), Vec::new());
        (freed > 0).then_some(Status { open, ended, closed, failure, released, send_buffer, received, arrivals })
    }

    /// Returns the difference between a connection's state and what the application knows, or `None` if there is no difference.
    /// Records that the application now knows the state.
    fn catch_up(
        &mut self,
        progress: &Progress,
        released: u64,
        received: Extents,
        mut arrivals: Vec<Arrival>,
    ) -> Option<Status> {
        let new: usize = received.iter().map(|extent| extent.len()).sum();
        limit(&mut arrivals, new);
        let freed = released - self.released;
        let Progress { open, closed, failure, .. } = *progress;
        // The end of the stream is announced only when all bytes of the stream have been announced.
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
            arrivals,
        })
    }
}

impl LinkedApplication {
    /// Returns whether the ring has room for an event of any length.
    pub(super) fn has_room(&mut self) -> Result<bool, ApplicationViolation> {
        Ok(self.events.has_room(ROOM)?)
    }

    /// Marks a socket as changed, so that its changes are announced.
    pub(super) fn mark(&mut self, socket: Number) {
        match self.sockets.get_mut(&socket) {
            Some(Served::Connection { hint, .. }) => hint.mark(),
            Some(Served::Listener { is_marked, .. } | Served::Datagrams { is_marked, .. }) => {
                let was_marked = std::mem::replace(is_marked, true);
                self.pending.extend((!was_marked).then_some(socket));
            }
            Some(Served::Elsewhere { .. } | Served::Reserved | Served::Withdrawn) | None => {}
        }
    }

    /// Records that events wait for room in the ring. The guest polls the application until there is room.
    fn stall(&mut self) {
        self.events.publish();
        self.wants_room = true;
        self.is_hot = true;
    }

    /// Sends the queued answers to commands. Returns false if the ring had no room for all of them.
    pub(super) fn send_replies(&mut self) -> Result<bool, ApplicationViolation> {
        while !self.replies.is_empty() {
            if !self.has_room()? {
                self.stall();
                return Ok(false);
            }
            if let Some((socket, event)) = self.replies.pop_front() {
                self.send(socket, &event)?;
            }
        }
        Ok(true)
    }

    /// Returns an unused number for a connection that a peer has opened.
    pub(super) fn take_number(&mut self) -> Number {
        while self.sockets.contains_key(&self.next) {
            self.advance();
        }
        let number = self.next;
        self.advance();
        number
    }

    fn advance(&mut self) {
        self.next = self.next.checked_add(1).unwrap_or(GUEST_NUMBERS);
    }

    /// Sends an event. The caller has checked that the ring has room.
    pub(super) fn send(&mut self, socket: Number, event: &Event) -> Outcome {
        let tag = event.write(socket, &mut self.record);
        match self.events.reserve(self.record.len())? {
            Some(into) => into.copy_from_slice(&self.record),
            None => unreachable!("the caller has made sure that there is room"),
        }
        self.events.commit(self.record.len(), tag);
        Ok(())
    }
}
