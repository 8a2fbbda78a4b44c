//! The guest's part in direct connections (`docs/direct.md`). The guest vouches for the connections of its applications at the control
//! program, and passes descriptors on. It keeps the memory files of both applications of a couple, so that it knows what an application
//! that has ended has not read. The bytes of direct connections do not pass through the guest.

use super::Host;
use super::applications::Applications;
use super::commands::{Outcome, Served};
use super::sharing::Handle;
use super::violation::ApplicationViolation;
use crate::limits::DIRECT_RESTS_BYTES_MAX;
use crate::protocol::direct::{DirectRequest, DirectSlot, Flow};
use crate::protocol::ticket::ApplicationId;
use ipnet::IpNet;
use siga_iucv::extent::{Table, table};
use siga_iucv::limits::{REST_BYTES_MAX, REST_RECORD_BYTES_MAX};
use siga_iucv::passing::Parcel;
use siga_iucv::record::{DirectEvent, Event, Number};
use siga_ring::arena::PeerArena;
use siga_ring::direct::Shape;
use siga_stack::sockets::TcpId;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// What the guest reports to the control program, with the descriptor of the report.
#[derive(Debug)]
pub(crate) struct DirectReport {
    pub(crate) application: ApplicationId,
    pub(crate) event: DirectRequest,
    pub(crate) memory: Option<OwnedFd>,
}

type Reports = Arc<Mutex<Vec<DirectReport>>>;

fn push(reports: &Reports, application: ApplicationId, event: DirectRequest, memory: Option<OwnedFd>) {
    reports.lock().unwrap_or_else(PoisonError::into_inner).push(DirectReport { application, event, memory });
}

/// The slot of a connection, or the request for one. When it is dropped, the control program learns that the connection no longer needs
/// it.
#[derive(Debug)]
pub(super) struct DirectUse {
    application: ApplicationId,
    stage: Stage,
    reports: Reports,
    /// How many bytes in memory may be unread.
    send_max: u32,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Wanted(u64),
    Bound(DirectSlot),
}

impl Drop for DirectUse {
    fn drop(&mut self) {
        let event = match self.stage {
            Stage::Wanted(request) => DirectRequest::Unwanted { request },
            Stage::Bound(slot) => DirectRequest::Left { slot },
        };
        push(&self.reports, self.application, event, None);
    }
}

/// The memory files of a couple.
#[derive(Debug)]
struct Files {
    couple: u64,
    place: usize,
    own: Option<OwnedFd>,
    peer: Option<OwnedFd>,
}

/// Bytes that an application has received by memory and not read, and that the next user of the connection gets.
#[derive(Debug, Default)]
struct Rest {
    /// How many bytes by TCP come before.
    after: u64,
    bytes: VecDeque<u8>,
}

/// The guest's state of direct connections.
#[derive(Debug)]
pub(super) struct DirectState {
    /// The networks with direct connections, and the guest's own addresses.
    networks: Vec<IpNet>,
    own: Vec<IpAddr>,
    reports: Reports,
    wanted: Table<u64, (usize, Number)>,
    requests: u64,
    files: Vec<Files>,
    rests: Table<TcpId, Rest>,
    /// How many bytes each application has sent and received by memory of couples that have ended.
    past_bytes: Table<usize, (u64, u64)>,
}

/// Maps the memory file of a couple for a moment. No process maps it for long but the two applications.
fn map(file: &OwnedFd) -> Option<PeerArena> {
    PeerArena::map(file.try_clone().ok()?, Shape::STANDARD.memory_bytes()).ok()
}

fn word(memory: &PeerArena, at: usize) -> u64 {
    let mut bytes = [0; 8];
    memory.copy_to(at, &mut bytes).map_or(0, |()| u64::from_ne_bytes(bytes))
}

impl Files {
    /// Returns how many bytes the application has sent and received by this memory, as it claims.
    fn bytes(&self) -> (u64, u64) {
        let (sent_at, received_at) = Shape::totals_at();
        let own = self.own.as_ref().and_then(map);
        own.map_or((0, 0), |own| (word(&own, sent_at), word(&own, received_at)))
    }
}

impl DirectState {
    pub(super) fn new(networks: Vec<IpNet>, own: Vec<IpAddr>) -> Self {
        let (reports, wanted, rests) = (Reports::default(), table(), table());
        let past_bytes = table();
        Self { networks, own, reports, wanted, requests: 0, files: Vec::new(), rests, past_bytes }
    }

    /// Returns whether the control program might permit a direct connection to this address.
    fn may_reach(&self, remote: IpAddr) -> bool {
        let remote = remote.to_canonical();
        remote.is_loopback() || self.own.contains(&remote) || self.networks.iter().any(|net| net.contains(&remote))
    }

    /// Returns how many bytes an application has sent and received by memory, as it claims.
    pub(super) fn bytes(&self, place: usize) -> (u64, u64) {
        let past = self.past_bytes.get(&place).copied().unwrap_or_default();
        let files = self.files.iter().filter(|files| files.place == place);
        files.map(Files::bytes).fold(past, |all, one| (all.0.saturating_add(one.0), all.1.saturating_add(one.1)))
    }

    fn files(&mut self, place: usize, couple: u64) -> Option<&mut Files> {
        self.files.iter_mut().find(|files| files.place == place && files.couple == couple)
    }

    /// Records that the user of a connection has read bytes that came by TCP.
    #[inline]
    pub(super) fn consumed(&mut self, id: TcpId, bytes: usize) {
        if !self.rests.is_empty()
            && let Some(rest) = self.rests.get_mut(&id)
        {
            rest.after = rest.after.saturating_sub(bytes as u64);
        }
    }

    /// Forgets the bytes that the guest keeps for a connection. Returns true if there were any.
    pub(super) fn forget_rest(&mut self, id: TcpId) -> bool {
        !self.rests.is_empty() && self.rests.remove(&id).is_some()
    }

    /// Returns the events with which the next user of a connection gets the bytes that the guest keeps.
    pub(super) fn rest_events(&self, id: TcpId) -> Vec<Event> {
        let Some(rest) = self.rests.get(&id) else { return Vec::new() };
        let bytes: Vec<u8> = rest.bytes.iter().copied().collect();
        let event = |part: &[u8]| Event::Direct(DirectEvent::Rest { after: rest.after, bytes: part.to_vec() });
        bytes.chunks(REST_RECORD_BYTES_MAX).map(event).collect()
    }
}

impl Applications {
    /// Returns what the control program has to know about direct connections, since the last call.
    pub(crate) fn take_direct_reports(&mut self) -> Vec<DirectReport> {
        std::mem::take(&mut *self.direct.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks the control program for a slot for a connection.
    pub(super) fn ask_direct(&mut self, host: &Host<'_>, place: usize, socket: Number) -> Outcome {
        let id = self.connection(place, socket)?;
        let has_several_holders =
            self.sharing.holders.get(&Handle::Connection(id)).is_some_and(|holders| holders.len() > 1);
        let Some(application) = self.id_of(place).filter(|_| !has_several_holders) else { return Ok(()) };
        let (Ok(Some(position)), Ok((local, remote))) =
            (host.stack.tcp_stream_position(id), host.stack.tcp_addresses(id))
        else {
            return Ok(());
        };
        let is_timed = host.stack.tcp_arrivals(id, 0, 1).is_ok_and(|times| times.is_some());
        if is_timed || !self.direct.may_reach(remote.ip()) {
            return Ok(());
        }
        let send_buffer = host.stack.tcp_options(id).map_or(usize::MAX, |options| options.config.send_buffer_bytes_max);
        let send_max = u32::try_from(send_buffer).unwrap_or(u32::MAX);
        let (request, reports) = (self.direct.requests, Arc::clone(&self.direct.reports));
        let Some(Served::Connection { known, .. }) = self.served(place, socket) else { return Ok(()) };
        if known.direct.is_some() || known.is_unconfirmed {
            return Ok(());
        }
        known.direct = Some(DirectUse { application, stage: Stage::Wanted(request), reports, send_max });
        self.direct.requests += 1;
        self.direct.wanted.insert(request, (place, socket));
        let flow = Flow { local, remote, iss: position.iss, irs: position.irs };
        push(&self.direct.reports, application, DirectRequest::Wanted { request, flow }, None);
        Ok(())
    }

    /// Gives a connection the slot for which it has asked.
    pub(crate) fn bind_direct(&mut self, application: ApplicationId, request: u64, slot: DirectSlot) {
        let asked = self.direct.wanted.remove(&request).filter(|(place, _)| self.id_of(*place) == Some(application));
        if let Some((place, socket)) = asked
            && let Some(Served::Connection { known, .. }) = self.served(place, socket)
            && let Some(used) = known.direct.as_mut()
            && matches!(used.stage, Stage::Wanted(of) if of == request)
        {
            used.stage = Stage::Bound(slot);
            let ((sent, received), send_max) = (known.base, used.send_max);
            let DirectSlot { couple, slot, generation } = slot;
            let event = DirectEvent::Slot { couple, slot, generation, sent, received, send_max };
            self.reply(place, socket, Event::Direct(event));
            return;
        }
        push(&self.direct.reports, application, DirectRequest::Left { slot }, None);
    }

    /// Passes the descriptors of a new couple to an application.
    pub(crate) fn begin_couple(&mut self, application: ApplicationId, couple: u64, descriptors: &[OwnedFd]) {
        let Some(place) = self.place_of(application) else { return };
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        if self.pass(place, Parcel::Couple, couple, &descriptors) {
            self.direct.files.push(Files { couple, place, own: None, peer: None });
            self.reply(place, 0, Event::Direct(DirectEvent::Couple { couple }));
        }
    }

    /// Takes the memory file that an application has passed for a couple.
    pub(super) fn couple_memory(&mut self, place: usize, couple: u64) -> Outcome {
        let violation = ApplicationViolation::Couple(couple);
        let taken = self.passing(place).and_then(|passing| passing.take::<1>(Parcel::Memory, couple).ok());
        let [memory] = taken.ok_or(violation)?;
        let application = self.id_of(place).ok_or(violation)?;
        // The couple may have ended meanwhile.
        let Some(files) = self.direct.files(place, couple) else { return Ok(()) };
        if files.own.is_some() {
            return Err(violation);
        }
        files.own = memory.try_clone().ok();
        push(&self.direct.reports, application, DirectRequest::Memory { couple }, Some(memory));
        Ok(())
    }

    /// Passes the memory of the other application of a couple to an application.
    pub(crate) fn peer_memory(&mut self, application: ApplicationId, couple: u64, memory: OwnedFd) {
        let Some(place) = self.place_of(application) else { return };
        if self.direct.files(place, couple).is_some()
            && self.pass(place, Parcel::PeerMemory, couple, &[memory.as_fd()])
            && let Some(files) = self.direct.files(place, couple)
        {
            files.peer = Some(memory);
            self.reply(place, 0, Event::Direct(DirectEvent::PeerMemory { couple }));
        }
    }

    /// Ends a couple of an application. Resets its connections if `reset` is true.
    pub(crate) fn end_couple(&mut self, host: &mut Host<'_>, application: ApplicationId, couple: u64, reset: bool) {
        let Some(place) = self.place_of(application) else { return };
        if let Some(files) = self.direct.files(place, couple) {
            let (sent, received) = files.bytes();
            let past = self.direct.past_bytes.entry(place).or_default();
            *past = (past.0.saturating_add(sent), past.1.saturating_add(received));
        }
        self.direct.files.retain(|files| files.place != place || files.couple != couple);
        let Some(client) = self.client(place) else { return };
        for served in client.sockets.values() {
            if let Served::Connection { id, known, .. } = served
                && reset
                && known
                    .direct
                    .as_ref()
                    .is_some_and(|used| matches!(used.stage, Stage::Bound(slot) if slot.couple == couple))
            {
                // The connection still exists, so the call succeeds.
                let _ = host.stack.tcp_reset(host.at, *id);
            }
        }
        client.replies.push_back((0, Event::Direct(DirectEvent::CoupleGone { couple })));
    }

    /// Resets the direct connections with applications of other guests, because the guest has got a port filter. The control program
    /// ends their couples, but a restarted control program does not know couples from before.
    pub(crate) fn reset_direct_with_others(&mut self, host: &mut Host<'_>) {
        let own = self.direct.own.clone();
        let is_other = |address: IpAddr| !address.is_loopback() && !own.contains(&address);
        for served in self.clients().flat_map(|client| client.sockets.values()) {
            let Served::Connection { id, known, .. } = served else { continue };
            let is_bound = known.direct.as_ref().is_some_and(|used| matches!(used.stage, Stage::Bound(_)));
            if is_bound
                && let Ok((_, remote)) = host.stack.tcp_addresses(*id)
                && is_other(remote.ip().to_canonical())
            {
                // The connection still exists, so the call succeeds.
                let _ = host.stack.tcp_reset(host.at, *id);
            }
        }
    }

    /// Forgets the couples of an application that has ended.
    pub(super) fn forget_couples(&mut self, place: usize) {
        self.direct.files.retain(|files| files.place != place);
        self.direct.past_bytes.remove(&place);
        self.direct.wanted.retain(|_, (of, _)| *of != place);
    }

    /// Returns whether the peer has sent bytes by memory that an application has not read, which has ended. An impossible word counts as
    /// such bytes.
    pub(super) fn left_memory_unread(&self, place: usize, used: Option<&DirectUse>) -> bool {
        let Some(DirectUse { stage: Stage::Bound(slot), .. }) = used else { return false };
        let files = self.direct.files.iter().find(|files| files.place == place && files.couple == slot.couple);
        let Some(Files { own: Some(own), peer: Some(peer), .. }) = files else { return false };
        let shape = Shape::STANDARD;
        let (Some(own), Some(peer)) = (map(own), map(peer)) else { return true };
        let at = usize::from(slot.slot);
        let (sends_at, receives_at) = shape.generations_at(at);
        let if_valid = |is_valid: bool, count: u64| if is_valid { count } else { 0 };
        let produced = if_valid(word(&peer, sends_at) == slot.generation, word(&peer, shape.produced_at(at)));
        let consumed = if_valid(word(&own, receives_at) == slot.generation, word(&own, shape.consumed_at(at)));
        produced != consumed
    }

    /// Keeps bytes that an application has received by memory and not read.
    pub(super) fn keep_rest(
        &mut self,
        host: &mut Host<'_>,
        place: usize,
        socket: Number,
        after: u64,
        bytes: &[u8],
    ) -> Outcome {
        let id = self.connection(place, socket)?;
        let total: usize = self.direct.rests.values().map(|rest| rest.bytes.len()).sum();
        let rest = self.direct.rests.entry(id).or_default();
        if rest.bytes.len() + bytes.len() > REST_BYTES_MAX {
            return Err(ApplicationViolation::Rest(socket));
        }
        if total + bytes.len() > DIRECT_RESTS_BYTES_MAX {
            // The bytes would be missing in the stream. The connection still exists, so the call succeeds.
            let _ = host.stack.tcp_reset(host.at, id);
            return Ok(());
        }
        if rest.bytes.is_empty() {
            rest.after = after;
        }
        rest.bytes.extend(bytes);
        Ok(())
    }

    /// Forgets bytes that the guest keeps, because the user of the connection has read them.
    pub(super) fn rest_read(&mut self, place: usize, socket: Number, bytes: usize) -> Outcome {
        let id = self.connection(place, socket)?;
        if !matches!(self.served(place, socket), Some(Served::Connection { .. })) {
            // The application has sent this before it learnt that another one uses the connection.
            return Ok(());
        }
        let Some(rest) = self.direct.rests.get_mut(&id).filter(|rest| bytes <= rest.bytes.len()) else {
            return Err(ApplicationViolation::Rest(socket));
        };
        rest.bytes.drain(..bytes);
        if rest.bytes.is_empty() {
            self.direct.rests.remove(&id);
        }
        Ok(())
    }
}
