//! Sets of epoll with siga sockets.
//!
//! The set is a real set of the kernel, so it can also have foreign descriptors, and can itself be watched. In the kernel's set, the
//! client's descriptor and one eventfd stand for all siga sockets. The siga sockets are in a list of this module. Sockets that may be
//! ready are queued, so a wait takes no longer if the set has many idle sockets.
//!
//! A *nested* set is an entry of another set, or of a call of poll(2). The kernel has to know whether it is readable. So its eventfd is
//! set while one of its siga sockets is ready. A wait for the outer set also asks the guest for notifications.

use crate::errors::{Error, Result};
use crate::event::OwnEvent;
use crate::numbers::{self, Meaning};
use crate::sys;
use crate::world::{self, World};
use siga_iucv::extent::{Table, table};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// The data of the entry for a set's own event in the kernel's set. A program's own data is an address or a small number.
const OWN_DATA: u64 = 0x5369_6761_6f77_6e21;
/// The data of the entry for the client's descriptor.
const CLIENT_DATA: u64 = OWN_DATA + 1;
/// The data of the entry for the notifications of another process is this, plus the number of the descriptor.
const BELLS_DATA: u64 = 0x5369_6762_0000_0000;
/// How many waits may find siga sockets ready before one also asks the kernel, so that foreign descriptors are not neglected.
const WAITS_WITHOUT_KERNEL_MAX: u32 = 8;
/// Largest number of events of foreign descriptors that one wait returns.
const EVENTS_AT_ONCE_MAX: usize = 1_024;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE.cast_unsigned();
/// The flags of an interest that are not events.
const MODES: u32 = (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLWAKEUP | libc::EPOLLEXCLUSIVE).cast_unsigned();
/// The events that are reported although the program did not ask for them.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP).cast_unsigned();

/// The interest of a set in a siga socket.
struct Interest {
    events: u32,
    data: u64,
    /// False after an event of a one-shot interest.
    enabled: bool,
    is_queued: bool,
}

/// The siga sockets of a set.
pub(crate) struct Set {
    /// `None` in a child that has not used this set yet.
    event: Option<OwnEvent>,
    /// The number of the client's descriptor in the kernel's set.
    client: Option<RawFd>,
    /// The numbers of the descriptors in the kernel's set that have the notifications of other processes.
    bells: SmallVec<[RawFd; 8]>,
    interests: Table<RawFd, Interest>,
    /// Numbers of sockets that may be ready.
    queue: VecDeque<RawFd>,
    /// Threads that wait for this set.
    sleepers: usize,
    is_nested: bool,
    waits_without_kernel: u32,
    /// Whether the last wait reported a siga socket. Otherwise, what a poll finds is probably for other threads.
    has_reported: bool,
}

impl Set {
    fn new(set: RawFd) -> Result<Self> {
        let mut made = Self {
            event: None,
            client: None,
            bells: SmallVec::new(),
            interests: table(),
            queue: VecDeque::new(),
            sleepers: 0,
            is_nested: false,
            waits_without_kernel: 0,
            has_reported: false,
        };
        made.prepare(set)?;
        Ok(made)
    }

    /// Makes the event of the set, if it has none.
    fn prepare(&mut self, set: RawFd) -> Result<()> {
        if self.event.is_none() {
            let event = OwnEvent::new()?;
            sys::epoll_control(set, libc::EPOLL_CTL_ADD, event.number(), own_entry())?;
            self.event = Some(event);
        }
        Ok(())
    }

    /// Gives up the event of the set, because the parent of this process uses it.
    pub(crate) fn forget_event(&mut self) {
        self.event = None;
        self.sleepers = 0;
    }

    /// Queues a socket that may have become ready.
    pub(crate) fn announce(&mut self, number: RawFd) {
        let Some(interest) = self.interests.get_mut(&number) else { return };
        if interest.enabled && !interest.is_queued {
            interest.is_queued = true;
            self.queue.push_back(number);
        }
        let is_enabled = interest.enabled;
        match &self.event {
            Some(event) if is_enabled && self.is_nested => event.set_now(),
            Some(event) if is_enabled && self.sleepers > 0 => event.set(),
            Some(_) | None => {}
        }
    }

    /// Lets the threads that wait for this set look at it again.
    pub(crate) fn wake(&mut self) {
        if self.sleepers > 0 {
            self.event.iter().for_each(OwnEvent::set);
        }
    }

    /// Returns whether the set is an entry of another one, or of a call of poll(2).
    pub(crate) fn is_nested(&self) -> bool {
        self.is_nested
    }

    /// Records that the client's descriptor is closed, which also removed it from the kernel's set.
    pub(crate) fn forget_client(&mut self) {
        self.client = None;
        self.bells.clear();
    }

    /// Removes a descriptor with the notifications of another process from the kernel's set.
    pub(crate) fn forget_bell(&mut self, set: RawFd, bell: RawFd) {
        if let Some(at) = self.bells.iter().position(|known| *known == bell) {
            self.bells.swap_remove(at);
            // The call fails if the set is closed, which also removed the descriptor.
            let _ = sys::epoll_control(set, libc::EPOLL_CTL_DEL, bell, own_entry());
        }
    }

    /// Returns whether the set waits until a socket is readable.
    pub(crate) fn waits_for_input(&self, number: RawFd) -> bool {
        let waits = |interest: &Interest| interest.enabled && interest.events & libc::EPOLLIN.cast_unsigned() != 0;
        self.interests.get(&number).is_some_and(waits)
    }

    pub(crate) fn remove(&mut self, number: RawFd) {
        self.interests.remove(&number);
        self.queue.retain(|queued| *queued != number);
    }
}

/// Returns whether an event is one of an entry of this library.
pub(crate) fn is_own(event: &libc::epoll_event) -> bool {
    [OWN_DATA, CLIENT_DATA].contains(&{ event.u64 }) || bell_of(event).is_some()
}

/// Returns the descriptor with the notifications of another process to whose entry an event belongs.
fn bell_of(event: &libc::epoll_event) -> Option<RawFd> {
    let number = { event.u64 }.checked_sub(BELLS_DATA)?;
    RawFd::try_from(number).ok()
}

fn bell_data(bell: RawFd) -> u64 {
    BELLS_DATA + u64::from(bell.unsigned_abs())
}

fn own_entry() -> libc::epoll_event {
    libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: OWN_DATA }
}

/// Changes the interest of a set in a siga socket (epoll_ctl(2)).
pub(crate) fn control(set: RawFd, operation: i32, number: RawFd, event: Option<libc::epoll_event>) -> Result<()> {
    let mut held = world::lock();
    let world = &mut *held;
    let place = world.place(number)?;
    if numbers::meaning(set) != Meaning::EpollSet {
        world.find_set(set);
    }
    let set = world.set_number(set);
    let known = world.known_set(set)?;
    let exists = known.interests.contains_key(&number);
    match operation {
        libc::EPOLL_CTL_ADD if exists => return Err(Error(libc::EEXIST)),
        libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL if !exists => return Err(Error(libc::ENOENT)),
        libc::EPOLL_CTL_DEL => {
            known.remove(number);
            world.socket_at(place)?.watched_by.retain(|watch| *watch != (set, number));
            return Ok(());
        }
        libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => {}
        _ => return Err(Error::INVALID),
    }
    let event = event.ok_or(Error(libc::EFAULT))?;
    known.remove(number);
    let interest = Interest { events: event.events, data: event.u64, enabled: true, is_queued: false };
    known.interests.insert(number, interest);
    let watch = (set, number);
    let socket = world.socket_at(place)?;
    if !socket.watched_by.contains(&watch) {
        socket.watched_by.push(watch);
    }
    let ready = world.readiness(place);
    if let Some(known) = world.sets.get_mut(&set)
        && ready & (event.events | ALWAYS) != 0
    {
        known.announce(number);
    }
    Ok(())
}

/// Records that a set is an entry of another one.
pub(crate) fn nest(outer: RawFd, inner: RawFd) -> Result<()> {
    let mut held = world::lock();
    for set in [outer, inner] {
        if numbers::meaning(set) != Meaning::EpollSet {
            held.find_set(set);
        }
        let known = held.set_number(set);
        held.known_set(known)?.is_nested |= set == inner;
    }
    held.refresh_nested();
    Ok(())
}

/// Records that a descriptor is a duplicate of one whose set has siga sockets. Returns whether it is.
pub(crate) fn is_duplicate(number: RawFd) -> bool {
    world::lock().find_set(number)
}

impl World {
    /// Finds the set of which a descriptor is a duplicate, and gives this set a further number. Returns false if the descriptor is not a duplicate of a set.
    fn find_set(&mut self, number: RawFd) -> bool {
        // The kernel's set is the same, so it has the event of the set that is searched.
        let has_event = |known: &Set| {
            let event = known.event.as_ref().map(OwnEvent::number);
            event.is_some_and(|event| sys::epoll_control(number, libc::EPOLL_CTL_MOD, event, own_entry()).is_ok())
        };
        let found = self.sets.iter().find(|(_, known)| has_event(known)).map(|(found, _)| *found);
        found.inspect(|found| self.duplicate_set(*found, number)).is_some()
    }

    /// Returns a set. Makes a plain set of the kernel one that can have siga sockets.
    fn known_set(&mut self, set: RawFd) -> Result<&mut Set> {
        match self.sets.entry(set) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(free) => {
                let made = Set::new(set)?;
                if !numbers::set(set, Meaning::EpollSet) {
                    return Err(Error(libc::ENOSPC));
                }
                // A thread may wait for the set already, in the kernel. It returns, and then waits for siga sockets too.
                made.event.iter().for_each(OwnEvent::set);
                Ok(free.insert(made))
            }
        }
    }

    /// Records that a call of poll(2) waits for a set.
    pub(crate) fn watch_set(&mut self, number: RawFd) {
        let known = self.set_number(number);
        if let Some(known) = self.sets.get_mut(&known) {
            known.is_nested = true;
        }
    }

    /// Lets the kernel know which of the nested sets are readable.
    pub(crate) fn refresh_nested(&mut self) {
        let nested = self.sets.iter().filter(|(_, known)| known.is_nested);
        let nested: Vec<RawFd> = nested.map(|(number, _)| *number).collect();
        for set in nested {
            // Sockets that are not ready leave the queue. The others stay, because no wait reports them now.
            let queued = self.sets.get_mut(&set).map(|known| std::mem::take(&mut known.queue)).unwrap_or_default();
            let (ready, idle): (Vec<RawFd>, Vec<RawFd>) =
                queued.into_iter().partition(|number| self.is_reported(set, *number));
            let Some(known) = self.sets.get_mut(&set) else { continue };
            for number in idle {
                if let Some(interest) = known.interests.get_mut(&number) {
                    interest.is_queued = false;
                }
            }
            known.queue.extend(ready);
            let Some(event) = &known.event else { continue };
            if known.queue.is_empty() {
                event.clear();
            } else {
                event.set_now();
            }
        }
    }

    /// Returns whether a set reports a socket now.
    fn is_reported(&mut self, set: RawFd, number: RawFd) -> bool {
        let interest = self.sets.get(&set).and_then(|known| known.interests.get(&number));
        let Some(events) = interest.filter(|interest| interest.enabled).map(|interest| interest.events) else {
            return false;
        };
        let ready = self.place(number).map_or(0, |place| self.readiness(place));
        ready & (events & !MODES | ALWAYS) != 0
    }

    /// Appends the events of ready siga sockets to `events`, up to `max` in all.
    fn collect(&mut self, set: RawFd, events: &mut Vec<libc::epoll_event>, max: usize) {
        let queued = self.sets.get(&set).map_or(0, |known| known.queue.len());
        for _ in 0..queued {
            if events.len() >= max {
                return;
            }
            let Some(number) = self.sets.get_mut(&set).and_then(|known| known.queue.pop_front()) else { return };
            let ready = self.place(number).map_or(0, |place| self.readiness(place));
            let Some(known) = self.sets.get_mut(&set) else { return };
            let Some(interest) = known.interests.get_mut(&number) else { continue };
            interest.is_queued = false;
            let reported = ready & (interest.events & !MODES | ALWAYS);
            if reported == 0 || !interest.enabled {
                continue;
            }
            events.push(libc::epoll_event { events: reported, u64: interest.data });
            if interest.events & libc::EPOLLONESHOT.cast_unsigned() != 0 {
                interest.enabled = false;
            } else if interest.events & libc::EPOLLET.cast_unsigned() == 0 {
                interest.is_queued = true;
                known.queue.push_back(number);
            }
        }
    }

    /// Appends events as [`World::collect`] does, but leaves room for an event of the kernel if this wait has to ask the kernel. Returns
    /// the largest number of events of siga sockets.
    fn collect_with_room(&mut self, set: RawFd, events: &mut Vec<libc::epoll_event>, max: usize) -> usize {
        let known = self.sets.get(&set);
        let asks_kernel = known.is_some_and(|known| known.waits_without_kernel >= WAITS_WITHOUT_KERNEL_MAX);
        let limit = if asks_kernel { max.saturating_sub(1) } else { max };
        self.collect(set, events, limit);
        limit
    }

    /// Records that a thread begins to sleep in a set, which watches the client's descriptor from then on.
    fn begin_sleep(&mut self, set: RawFd) -> Result<()> {
        self.watch_client(set)?;
        self.sets.get_mut(&set).ok_or(Error(libc::EBADF))?.sleepers += 1;
        Ok(())
    }

    /// Puts the client's descriptor into the kernel's set, if it is not there.
    fn watch_client(&mut self, set: RawFd) -> Result<()> {
        let Some(client) = self.client_number() else { return Ok(()) };
        let Some(known) = self.sets.get_mut(&set) else { return Ok(()) };
        if known.client != Some(client) {
            // A notification wakes one of the threads that wait for sets. It wakes the others, if they have something to do.
            let exclusive = libc::epoll_event { events: own_entry().events | EXCLUSIVE, u64: CLIENT_DATA };
            sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, exclusive)?;
            known.client = Some(client);
        }
        self.watch_bells(set)
    }

    /// Puts the descriptors with the notifications of other processes into the kernel's set, and removes those that no longer count.
    fn watch_bells(&mut self, set: RawFd) -> Result<()> {
        let bells = self.bells();
        let Some(known) = self.sets.get_mut(&set) else { return Ok(()) };
        if known.bells == bells {
            return Ok(());
        }
        let gone: SmallVec<[RawFd; 8]> = known.bells.iter().copied().filter(|bell| !bells.contains(bell)).collect();
        gone.into_iter().for_each(|bell| known.forget_bell(set, bell));
        for bell in bells.iter().copied().filter(|bell| !known.bells.contains(bell)) {
            // The kernel knows no exclusive entry for a set of epoll.
            let is_set = self.client.as_ref().is_some_and(|client| client.is_bell_set(bell));
            let events = own_entry().events | if is_set { 0 } else { EXCLUSIVE };
            sys::epoll_control(set, libc::EPOLL_CTL_ADD, bell, libc::epoll_event { events, u64: bell_data(bell) })?;
        }
        known.bells = bells;
        Ok(())
    }
}

/// Waits for events of a set with siga sockets (epoll_wait(2)). Returns at most `max` events.
/// `blocked` are the signals that are blocked while the thread waits; `None` leaves them as they are.
pub(crate) fn wait(
    number: RawFd,
    max: usize,
    time: Option<Duration>,
    blocked: Option<sys::Signals>,
) -> Result<Vec<libc::epoll_event>> {
    let until = time.map(|time| Instant::now() + time);
    let mut held = world::lock();
    if let Some(blocked) = blocked {
        held.wait_with(blocked);
    }
    let mut found = Vec::new();
    let mut from_kernel = Vec::new();
    loop {
        held.work();
        let set = held.set_number(number);
        let limit = held.collect_with_room(set, &mut found, max);
        held.expect_connections_of_set(set);
        held.refresh_nested();
        let known = held.sets.get_mut(&set).ok_or(Error(libc::EBADF))?;
        known.prepare(set)?;
        if !known.is_nested {
            known.event.iter().for_each(OwnEvent::clear);
        }
        known.waits_without_kernel += 1;
        let asks_kernel = found.is_empty() || known.waits_without_kernel > WAITS_WITHOUT_KERNEL_MAX;
        let has_reported = std::mem::replace(&mut known.has_reported, !found.is_empty());
        let room = (max - found.len()).min(EVENTS_AT_ONCE_MAX);
        if !asks_kernel || room == 0 {
            return Ok(found);
        }
        known.waits_without_kernel = 0;
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let is_collected = !found.is_empty();
        let left = if is_collected || limit == 0 { Some(Duration::ZERO) } else { left };
        let waits = left != Some(Duration::ZERO);
        if waits && has_reported && held.polls() {
            continue;
        }
        held.begin_sleep(set)?;
        from_kernel.resize(room, libc::epoll_event { events: 0, u64: 0 });
        let outcome = held.unlocked(waits, |before| sys::epoll_wait(number, &mut from_kernel[..room], left, before));
        let set = held.set_number(number);
        if let Some(known) = held.sets.get_mut(&set) {
            known.sleepers -= 1;
        }
        match outcome {
            Ok(count) => {
                let reported = &from_kernel[..count];
                if reported.iter().any(|event| { event.u64 } == CLIENT_DATA) {
                    held.note_notification();
                }
                reported.iter().filter_map(bell_of).for_each(|bell| held.note_bell(Some(bell)));
                found.extend(reported.iter().filter(|event| !is_own(event)));
            }
            Err(Error::WOULD_BLOCK) => continue,
            Err(error) if found.is_empty() => return Err(error),
            Err(_) => {}
        }
        if !found.is_empty() || !waits {
            // A second collection would report sockets twice.
            if !is_collected {
                let of_kernel = found.len();
                held.work();
                held.collect(set, &mut found, max);
                if let Some(known) = held.sets.get_mut(&set) {
                    known.has_reported = found.len() > of_kernel;
                }
            }
            if !found.is_empty() || until.is_some_and(|until| until <= Instant::now()) {
                return Ok(found);
            }
        }
    }
}
