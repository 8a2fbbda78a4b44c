//! The applications of a guest: this module begins and ends them, and decides when the guest polls their rings.

use super::Host;
use super::commands::Served;
use super::direct::DirectState;
use super::memory::Area;
use super::reservations::Reservations;
use super::sharing::Sharing;
use crate::counters;
use crate::limits::REPLIES_MAX;
use crate::protocol::message::Loss;
use crate::protocol::report::ApplicationReport;
use crate::protocol::ticket::ApplicationId;
use ipnet::IpNet;
use siga_iucv::extent::{Table, table};
use siga_iucv::limits::APPLICATION_BUFFERS;
use siga_iucv::passing::{Parcel, Passing};
use siga_iucv::record::{Event, GUEST_NUMBERS, Number};
use siga_iucv::{ROOM, shape};
use siga_ring::arena::{OwnArena, PeerArena};
use siga_ring::clock::{Rate, Ticks};
use siga_ring::doorbell::Notification;
use siga_ring::{Consumer, Link, MapError, NotifyFd, OwnMemory, PeerMemory, Producer, WakeFd};
use siga_stack::sockets::{ListenerId, TcpId};
use siga_stack::time::Instant;
use siga_stack::udp::UdpId;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// An application that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) id: ApplicationId,
    pub(crate) why: Loss,
    /// The registration number of the application's wake descriptor in the guest's [`ReadySet`](siga_ring::ready_set::ReadySet).
    pub(crate) registration: u64,
    pub(crate) wake_fd: WakeFd,
}

/// The applications that use a guest's stack.
#[derive(Debug)]
pub(crate) struct Applications {
    /// The applications. Readiness keys and the tables below refer to an application by its index in this list.
    pub(super) all: Vec<Option<Application>>,
    pub(super) of_connection: Table<TcpId, (usize, Number)>,
    pub(super) of_listener: Table<ListenerId, (usize, Number)>,
    pub(super) of_datagrams: Table<UdpId, (usize, Number)>,
    pub(super) reserved: Reservations,
    pub(super) sharing: Sharing,
    /// Clock ticks that this guest spent on copying for applications that have since ended.
    past_copy_ticks: u64,
    /// A copy of the command that is being parsed.
    pub(super) scratch: Vec<u8>,
    /// Applications that have ended, but whose end the guest has not reported yet.
    ended: Vec<Ended>,
    pub(super) direct: DirectState,
}

/// An application that uses the guest's stack.
#[derive(Debug)]
pub(super) struct Application {
    pub(super) id: ApplicationId,
    wake_fd: (u64, WakeFd),
    passing: Passing,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The guest has made its memory for the link to the application. The application's memory has not arrived yet.
    Half(Box<(OwnMemory, OwnArena, NotifyFd, usize)>),
    Linked(Box<LinkedApplication>),
}

/// An application whose link is complete: the memory of the application and that of the guest are both mapped.
#[derive(Debug)]
pub(super) struct LinkedApplication {
    pub(super) commands: Consumer,
    pub(super) events: Producer,
    pub(super) area: Arc<Area>,
    pub(super) sockets: Table<Number, Served>,
    /// Answers to commands. They wait for room in the ring, and are sent before events.
    pub(super) replies: VecDeque<(Number, Event)>,
    /// Sockets whose changes are to be announced. Each socket is listed at most once.
    pub(super) pending: Vec<Number>,
    /// Listeners whose new connections are announced later, because the arena has too little free memory. Each listener is listed
    /// at most once.
    pub(super) starved: Vec<Number>,
    /// The bytes of the event record that is being written.
    pub(super) record: Vec<u8>,
    pub(super) next: Number,
    /// True if events wait because the ring had no room.
    pub(super) wants_room: bool,
    /// True if the application's process has ended. The commands that it sent before are still carried out.
    pub(super) is_gone: bool,
    pub(super) is_hot: bool,
    pub(super) last_traffic: Ticks,
}

impl LinkedApplication {
    fn new(now: Ticks, mut events: Producer, commands: Consumer, area: Area) -> Self {
        events.set_packing(true);
        Self {
            commands,
            events,
            area: Arc::new(area),
            sockets: table(),
            replies: VecDeque::new(),
            pending: Vec::new(),
            starved: Vec::new(),
            record: Vec::new(),
            next: GUEST_NUMBERS,
            wants_room: false,
            is_gone: false,
            is_hot: true,
            last_traffic: now,
        }
    }

    /// Returns whether the guest handles commands now: only while their answers can be queued. A full event ring alone does not
    /// stop the guest from handling commands. Otherwise a deadlock would be possible, in which the application waits for room for
    /// commands and the guest for room for events (decision 009).
    pub(super) fn takes_commands(&self) -> bool {
        self.replies.len() < REPLIES_MAX
    }

    /// Returns whether commands have arrived that can be handled, or whether the ring has room again for waiting events.
    fn is_ready(&mut self) -> bool {
        // An error is a violation of the ring's protocol. Ignore it here, because the next use of the ring returns it again.
        self.is_gone
            || self.wants_room && self.events.has_room(ROOM).unwrap_or(true)
            || self.takes_commands() && self.commands.is_ready().unwrap_or(true)
    }

    /// Requests a notification for the next command, and for room if events wait. Returns false if there is already something to
    /// do.
    pub(super) fn falls_asleep(&mut self) -> bool {
        let waits_for_room = !self.wants_room || self.events.want_room(APPLICATION_BUFFERS / 2).unwrap_or(false);
        let waits_for_commands = !self.takes_commands() || self.commands.declare_asleep().unwrap_or(false);
        let asleep = waits_for_room && waits_for_commands && !self.is_gone;
        self.is_hot &= !asleep;
        asleep
    }

    pub(super) fn heat(&mut self) {
        self.commands.awake();
        self.is_hot = true;
    }

    fn copy_ticks(&self) -> u64 {
        self.commands.counters().copy_ticks.0 + self.area.copy_ticks()
    }

    fn report(&self, id: ApplicationId, rate: &Rate, (sent, received): (u64, u64)) -> ApplicationReport {
        let mut counters = counters::producer_counters(&self.events.counters());
        counters::add(&mut counters, &counters::consumer_counters(&self.commands.counters()));
        counters::add(&mut counters, &counters::named([("copied_bytes", self.area.copied_bytes())]));
        let by_memory = [("direct_sent_bytes", sent), ("direct_received_bytes", received)];
        counters::add(&mut counters, &counters::named(by_memory));
        ApplicationReport {
            application: Some(id.0.number()),
            sockets: self.sockets.len() as u64,
            free_bytes: self.area.free_bytes() as u64,
            counters,
            times_ns: counters::named([("copying", rate.ns(Ticks(self.copy_ticks())))]),
        }
    }
}

impl Applications {
    /// Returns a guest's applications before the first one. `networks` are the networks with direct connections, and `own` the guest's
    /// addresses.
    pub(crate) fn none(networks: Vec<IpNet>, own: Vec<IpAddr>) -> Self {
        Self {
            all: Vec::new(),
            of_connection: table(),
            of_listener: table(),
            of_datagrams: table(),
            reserved: Reservations::new(),
            sharing: Sharing::new(),
            past_copy_ticks: 0,
            scratch: Vec::new(),
            ended: Vec::new(),
            direct: DirectState::new(networks, own),
        }
    }

    pub(super) fn id_of(&self, place: usize) -> Option<ApplicationId> {
        self.all.get(place)?.as_ref().map(|application| application.id)
    }

    pub(super) fn place_of(&self, id: ApplicationId) -> Option<usize> {
        self.all.iter().position(|application| application.as_ref().is_some_and(|known| known.id == id))
    }

    pub(super) fn passing(&self, place: usize) -> Option<&Passing> {
        self.all.get(place)?.as_ref().map(|application| &application.passing)
    }

    /// Passes descriptors to an application. Returns false if it takes none.
    pub(super) fn pass(&self, place: usize, parcel: Parcel, couple: u64, descriptors: &[BorrowedFd<'_>]) -> bool {
        self.passing(place).is_some_and(|passing| passing.pass(parcel, couple, descriptors).is_ok())
    }

    pub(super) fn client(&mut self, place: usize) -> Option<&mut LinkedApplication> {
        match &mut self.all.get_mut(place)?.as_mut()?.stage {
            Stage::Linked(client) => Some(client),
            Stage::Half(_) => None,
        }
    }

    pub(super) fn clients(&mut self) -> impl Iterator<Item = &mut LinkedApplication> {
        self.all.iter_mut().flatten().filter_map(|application| match &mut application.stage {
            Stage::Linked(client) => Some(&mut **client),
            Stage::Half(_) => None,
        })
    }

    /// Returns the time at which [`Applications::serve`] has something to do without an event.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.sharing.due()
    }

    /// Returns true if no application has ever used this guest.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn are_ready(&mut self) -> bool {
        self.clients().any(|client| client.area.has_moved() || client.is_hot && client.is_ready())
    }

    pub(crate) fn fall_asleep(&mut self) -> bool {
        self.clients().all(|client| !client.area.has_moved() && (!client.is_hot || client.falls_asleep()))
    }

    /// Returns the clock ticks spent on copying commands and payload from applications.
    pub(crate) fn copy_ticks(&self) -> u64 {
        let linked = |application: &Application| match &application.stage {
            Stage::Linked(client) => client.copy_ticks(),
            Stage::Half(_) => 0,
        };
        self.past_copy_ticks + self.all.iter().flatten().map(linked).sum::<u64>()
    }

    pub(crate) fn reports(&self, rate: &Rate) -> impl Iterator<Item = ApplicationReport> {
        self.all.iter().enumerate().filter_map(|(place, application)| match &application.as_ref()?.stage {
            Stage::Linked(client) => Some(client.report(self.id_of(place)?, rate, self.direct.bytes(place))),
            Stage::Half(_) => None,
        })
    }

    pub(crate) fn ids(&self) -> Vec<ApplicationId> {
        self.all.iter().flatten().map(|application| application.id).collect()
    }
}

impl Applications {
    /// Makes the guest's memory for the link to an application, and returns the memory files, which the caller sends to the
    /// application. The closure `register` receives the application's wake descriptor and index. It registers the descriptor with
    /// the guest's event loop.
    ///
    /// # Errors
    /// Returns the reason if descriptors are missing or unusable, or if there is too little memory.
    pub(crate) fn begin(
        &mut self,
        id: ApplicationId,
        arena_bytes: u64,
        descriptors: Vec<OwnedFd>,
        register: impl FnOnce(&WakeFd, usize) -> io::Result<u64>,
    ) -> Result<Vec<OwnedFd>, String> {
        let [notify_fd, wake_fd, memory, arena_memory, passing]: [OwnedFd; 5] = descriptors
            .try_into()
            .map_err(|_| "the order to attach an application lacks descriptors of its notification pipes or memory")?;
        let (notify_fd, wake_fd) = NotifyFd::from_fd(notify_fd)
            .and_then(|notify_fd| Ok((notify_fd, WakeFd::from_fd(wake_fd)?)))
            .map_err(|error| format!("the guest cannot use the notification pipes of an application: {error}"))?;
        let bytes =
            usize::try_from(arena_bytes).map_err(|_| "the arena of the application is larger than the maximum")?;
        let no_memory = |error: MapError| format!("the guest cannot map its own memory for an application: {error}");
        let (own, memory) = OwnMemory::in_file(
            memory,
            shape().ok_or("the guest cannot make a ring of the size that an application needs")?,
        )
        .map_err(no_memory)?;
        let (arena, arena_memory) = OwnArena::in_file(arena_memory, bytes).map_err(no_memory)?;
        let place = self.all.iter().position(Option::is_none).unwrap_or(self.all.len());
        let registration = register(&wake_fd, place).map_err(|error| error.to_string())?;
        let stage = Stage::Half(Box::new((own, arena, notify_fd, bytes)));
        let passing = Passing::from_fd(passing).map_err(|error| error.to_string())?;
        let application = Some(Application { id, wake_fd: (registration, wake_fd), passing, stage });
        match self.all.get_mut(place) {
            Some(free) => *free = application,
            None => self.all.push(application),
        }
        Ok(vec![memory, arena_memory])
    }

    /// Completes the link to an application, because the application's memory has arrived. From now on the guest handles its
    /// commands.
    pub(crate) fn complete(&mut self, now: Ticks, id: ApplicationId, descriptors: Vec<OwnedFd>) {
        let Some(place) = self.place_of(id) else { return };
        let Some(Application { wake_fd: (registration, wake_fd), stage: Stage::Half(half), passing, .. }) =
            self.all[place].take()
        else {
            return;
        };
        let (own, arena, notify_fd, bytes) = *half;
        match map(bytes, descriptors) {
            Ok((peer, sent)) => {
                let Link { producer, consumer, wake_fd } = Link::new(own, peer, notify_fd, wake_fd);
                let client = LinkedApplication::new(now, producer, consumer, Area::new(sent, arena));
                let stage = Stage::Linked(Box::new(client));
                self.all[place] = Some(Application { id, wake_fd: (registration, wake_fd), passing, stage });
            }
            Err(why) => self.ended.push(Ended { id, why: Loss::Failed(why), registration, wake_fd }),
        }
    }

    /// Handles an application whose wake descriptor is readable. Returns the last notification that the application sent.
    pub(crate) fn woken(&mut self, host: &mut Host<'_>, place: usize) -> Option<Notification> {
        let application = self.all.get_mut(place)?.as_mut()?;
        let drained = application.wake_fd.1.drain();
        let last = drained.as_ref().ok().and_then(|drained| drained.last);
        let lives = drained.is_ok_and(|drained| !drained.hung_up);
        match &mut application.stage {
            Stage::Linked(client) => {
                client.is_gone |= !lives;
                client.last_traffic = host.now;
                client.heat();
                // Without this check, the guest would read the application's index of consumed buffers only when it runs out of
                // buffers. It would then detect a violation late.
                if let Err(violation) = client.events.in_flight() {
                    self.end(host, place, Loss::Violation(violation.to_string()));
                }
            }
            Stage::Half(_) if lives => {}
            Stage::Half(_) => self.end(host, place, Loss::PeerGone),
        }
        last
    }

    /// Ends an application, and frees all its sockets and memory. As in Linux, the connections of a process that has ended are closed.
    /// Those of an application that the guest ends for another reason are reset.
    pub(super) fn end(&mut self, host: &mut Host<'_>, place: usize, why: Loss) {
        let Some(Application { id, wake_fd: (registration, wake_fd), stage, .. }) =
            self.all.get_mut(place).and_then(Option::take)
        else {
            return;
        };
        if let Stage::Linked(client) = stage {
            self.past_copy_ticks += client.copy_ticks();
            for (number, served) in &client.sockets {
                if let Served::Connection { id, known, .. } = served
                    && let Some(listener) = known.handed_for
                {
                    self.return_to_pool(host, *id, listener);
                    continue;
                }
                let handle = served.handle();
                if handle.is_some_and(|handle| !self.let_go(host, handle, place, *number)) {
                    continue;
                }
                match (served, handle) {
                    (Served::Elsewhere { .. }, Some(handle)) => self.close_unheld(host, handle),
                    (Served::Connection { id, known, .. }, Some(handle)) if matches!(why, Loss::PeerGone) => {
                        self.park(host, *id);
                        if self.left_memory_unread(place, known.direct.as_ref()) {
                            // As in Linux, a connection with unread bytes ends with a reset. It still exists, so the call succeeds.
                            let _ = host.stack.tcp_abort(host.at, *id);
                        } else {
                            self.close_unheld(host, handle);
                        }
                    }
                    _ => self.unbind(host, served),
                }
            }
            host.stack.tcp_separate_those(host.at, |memory| memory.is_sent_by(&client.area));
            self.of_connection.retain(|_, (of, _)| *of != place);
            self.reserved.remove(|one| one.place == place);
        }
        self.forget_couples(place);
        self.ended.push(Ended { id, why, registration, wake_fd });
    }

    /// Returns the applications that have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }
}

/// Maps the memory that the application writes and the guest reads: the application's ring and its arena.
fn map(bytes: usize, descriptors: Vec<OwnedFd>) -> Result<(PeerMemory, PeerArena), String> {
    let [memory, sent]: [OwnedFd; 2] =
        descriptors.try_into().map_err(|_| "the order to attach an application contains no memory files")?;
    let peer =
        PeerMemory::map(memory, shape().ok_or("the guest cannot make a ring of the size that an application needs")?)
            .map_err(|error| error.to_string())?;
    let sent = PeerArena::map(sent, bytes).map_err(|error| error.to_string())?;
    Ok((peer, sent))
}
