//! The couples of a client: the memory that it shares with other applications, and the lanes of its direct connections.
//!
//! A couple begins with descriptors from the guest. The client makes its memory, and passes it to the guest. The couple is whole when
//! the memory of the other application has come. From then on, the guest can bind a slot of it to a connection.

#[cfg(test)]
mod tests;

use crate::limits::{CHANGE_CREDIT, WAKE_CREDIT_MAX};
use crate::packets::out_of_the_way;
use crate::passing::{Parcel, Passing};
use crate::record::Number;
use siga_ring::direct::{Couple, Lane, OwnSlots, PeerSlots, Shape, Violation};
use siga_ring::doorbell::Notification;
use siga_ring::ready_set::ReadySet;
use siga_ring::{NotifyFd, WakeFd};
use smallvec::SmallVec;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

/// The largest number of couples whose pipes a thread watches one by one.
const PIPES_WATCHED_MAX: usize = 8;
/// The largest number of connections of a couple at whose words each look looks, without the word that counts changes of all of them. That
/// word is one more cache line to read.
const LANES_WITHOUT_CHECK_MAX: usize = 4;

/// Descriptors on which the notifications of other applications arrive.
pub type WakeDescriptors<'a> = SmallVec<[BorrowedFd<'a>; PIPES_WATCHED_MAX]>;

/// A slot that the control program has given to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) couple: u64,
    pub(super) slot: usize,
    pub(super) generation: u64,
    /// How many bytes were sent and received by TCP before this application has used the connection.
    pub(super) sent: u64,
    pub(super) received: u64,
    /// How many bytes in memory may be unread.
    pub(super) send_max: usize,
}

/// Where the lane of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LanePlace {
    couple: usize,
    slot: usize,
}

/// The couples of a client.
#[derive(Debug, Default)]
pub(super) struct Direct {
    /// `None` if the guest takes part in no direct connections.
    passing: Option<Passing>,
    couples: Vec<Option<Shared>>,
    /// The set of the wake descriptors of all couples. Each has the place of its couple.
    bells: Option<ReadySet<usize>>,
    is_quiet: bool,
    asleep: bool,
    /// Connections about which [`Direct::look`] has found something.
    pub(super) news: Vec<Number>,
    /// Bytes of connections that the other application has not read before it ended.
    pub(super) unread: Vec<(Number, Vec<u8>)>,
    /// Connections whose peer has written an impossible word.
    pub(super) broken: Vec<(Number, Violation)>,
    /// Connections of a couple whose other application has sent too many notifications without a change of its words.
    pub(super) flooded: Vec<Number>,
    /// The last notification of a peer.
    pub(super) last_notification: Option<Notification>,
    /// Couples that have ended. Their descriptors stay open until the program that contains this client knows it, because the kernel may
    /// give their numbers to other files.
    retired: Vec<Shared>,
    /// Whether couples have begun since the last call of [`Direct::settle_descriptors`].
    has_begun: bool,
    /// Bytes that were sent and received over couples that have ended.
    past_bytes: (u64, u64),
}

/// What two applications share.
#[derive(Debug)]
struct Shared {
    id: u64,
    stage: Stage,
    wake_fd: WakeFd,
    registration: u64,
    /// True if the wake descriptor was readable, and this application has not read it since.
    is_notified: bool,
    /// How many more notifications this application accepts. Changes of the peer's words add to it.
    wake_credit: u32,
    /// True if the credit is used up. This application no longer waits for notifications of the other one, and uses no slots of the couple.
    is_muted: bool,
    /// True if the other application has ended, or the control program has ended the couple.
    is_dead: bool,
}

#[derive(Debug)]
enum Stage {
    /// The other application's memory has not come. The connections wait for it.
    Half {
        memory: Option<(OwnSlots, NotifyFd)>,
        waiting: Vec<(Number, Slot)>,
    },
    Whole(Box<Whole>),
}

#[derive(Debug)]
struct Whole {
    couple: Couple,
    lanes: Vec<Option<(Number, Lane)>>,
    /// The slots with lanes.
    bound: Vec<usize>,
}

impl Direct {
    pub(super) fn new(passing: Option<Passing>, is_quiet: bool) -> Self {
        // Without a set, this application has no direct connections.
        let bells = passing.as_ref().and_then(|_| ReadySet::new().ok());
        let bells = bells.map(|set| if is_quiet { set.with_descriptor(out_of_the_way) } else { set });
        Self { passing: passing.filter(|_| bells.is_some()), bells, is_quiet, ..Self::default() }
    }

    /// Returns whether the guest can take part in direct connections.
    pub(super) fn is_possible(&self) -> bool {
        self.passing.is_some()
    }

    /// Returns whether this client shares memory with any other application.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.couples.is_empty()
    }

    /// Returns the descriptor that is readable when another application has sent a notification.
    pub(super) fn bells(&self) -> Option<BorrowedFd<'_>> {
        self.bells.as_ref().map(ReadySet::descriptor)
    }

    /// Returns the descriptors for which this application waits: the pipes of its couples, or, if it has many couples, the set of the
    /// pipes. A thread that waits for a pipe itself is often woken on the CPU of the other application. One that waits for a set is not.
    pub(super) fn wake_descriptors(&self) -> WakeDescriptors<'_> {
        let alive = self.couples.iter().flatten().filter(|shared| !shared.is_dead && !shared.is_muted);
        if alive.clone().count() > PIPES_WATCHED_MAX {
            return self.bells().into_iter().collect();
        }
        alive.map(|shared| shared.wake_fd.as_fd()).collect()
    }

    /// Records that one of these descriptors was readable; `None` stands for any of them.
    pub(super) fn note_notification(&mut self, of: Option<RawFd>) {
        let of = of.filter(|of| self.bells().is_none_or(|bells| bells.as_raw_fd() != *of));
        for shared in self.couples.iter_mut().flatten() {
            shared.is_notified |= of.is_none_or(|of| shared.wake_fd.as_fd().as_raw_fd() == of);
        }
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let couples = self.couples.iter().flatten().chain(&self.retired).flat_map(Shared::descriptors);
        self.passing.iter().map(AsFd::as_fd).chain(self.bells()).chain(couples)
    }

    fn find(&mut self, id: u64) -> Option<(usize, &mut Shared)> {
        self.couples
            .iter_mut()
            .enumerate()
            .find_map(|(at, shared)| shared.as_mut().filter(|one| one.id == id).map(|one| (at, one)))
    }

    /// Calls `change` for each descriptor of a couple that has begun (true) or ended (false) since the last call. Returns true if there was
    /// any.
    pub(super) fn settle_descriptors(&mut self, mut change: impl FnMut(BorrowedFd<'_>, bool)) -> bool {
        if !self.has_begun && self.retired.is_empty() {
            return false;
        }
        for shared in std::mem::take(&mut self.retired) {
            shared.descriptors().for_each(|descriptor| change(descriptor, false));
        }
        let couples = self.couples.iter().flatten().flat_map(Shared::descriptors);
        couples.for_each(|descriptor| change(descriptor, true));
        self.has_begun = false;
        true
    }

    /// Begins a couple, whose descriptors the guest has passed.
    ///
    /// # Errors
    /// Returns an error if the guest has passed something else, or if the host has no memory or descriptors left.
    pub(super) fn begin(&mut self, id: u64) -> io::Result<()> {
        let passing = self.passing.as_ref().ok_or(io::ErrorKind::InvalidData)?;
        let [notify, reader, wake] = passing.take::<3>(Parcel::Couple, id)?.map(out_of_the_way);
        let (notify, wake_fd) = (NotifyFd::from_fd(notify)?.keep_reader(reader), WakeFd::from_fd(wake)?);
        if self.find(id).is_some() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (memory, file) = OwnSlots::create(Shape::STANDARD)?;
        let passing = self.passing.as_ref().ok_or(io::ErrorKind::InvalidData)?;
        passing.pass(Parcel::Memory, id, &[file.as_fd()])?;
        let at = self.couples.iter().position(Option::is_none).unwrap_or(self.couples.len());
        let bells = self.bells.as_mut().ok_or(io::ErrorKind::InvalidData)?;
        let registration = bells.add(&wake_fd, at)?;
        let stage = Stage::Half { memory: Some((memory, notify)), waiting: Vec::new() };
        let shared = Some(Shared {
            id,
            stage,
            wake_fd,
            registration,
            is_notified: false,
            wake_credit: WAKE_CREDIT_MAX,
            is_muted: false,
            is_dead: false,
        });
        self.has_begun = true;
        match self.couples.get_mut(at) {
            Some(free) => *free = shared,
            None => self.couples.push(shared),
        }
        Ok(())
    }

    /// Completes a couple, because the guest has passed the memory of the other application. Returns the connections that wait for it.
    ///
    /// # Errors
    /// Returns an error if the guest has passed something else, or if the memory cannot be mapped.
    pub(super) fn complete(&mut self, id: u64) -> io::Result<Vec<(Number, Slot)>> {
        let passing = self.passing.as_ref().ok_or(io::ErrorKind::InvalidData)?;
        let [file] = passing.take::<1>(Parcel::PeerMemory, id)?;
        let is_quiet = self.is_quiet;
        let (_, shared) = self.find(id).ok_or(io::ErrorKind::InvalidData)?;
        let Stage::Half { memory, waiting } = &mut shared.stage else { return Err(io::ErrorKind::InvalidData.into()) };
        let peer = PeerSlots::map(file, Shape::STANDARD).map_err(|error| io::Error::other(error.to_string()))?;
        let (own, notify_fd) = memory.take().ok_or(io::ErrorKind::InvalidData)?;
        let waiting = std::mem::take(waiting);
        let lanes = (0..Shape::STANDARD.slots()).map(|_| None).collect();
        let couple = Couple::new(own, peer, notify_fd, is_quiet);
        shared.stage = Stage::Whole(Box::new(Whole { couple, lanes, bound: Vec::new() }));
        Ok(waiting)
    }

    /// Binds a slot to a connection. Returns `Ok(None)` if the couple is not whole yet, and an error if the slot is not free.
    pub(super) fn bind(&mut self, number: Number, slot: Slot) -> Result<Option<LanePlace>, &'static str> {
        let (at, shared) = self.find(slot.couple).ok_or("the guest named a couple that does not exist")?;
        match &mut shared.stage {
            Stage::Half { waiting, .. } if waiting.len() < Shape::STANDARD.slots() => {
                waiting.push((number, slot));
                Ok(None)
            }
            Stage::Half { .. } => Err("the guest gave a couple more connections than it has slots"),
            Stage::Whole(whole) => {
                let free = whole.lanes.get_mut(slot.slot).filter(|lane| lane.is_none());
                let free = free.ok_or("the guest named a slot that is not free")?;
                *free = Some((number, Lane::bind(&mut whole.couple, slot.slot, slot.generation)));
                whole.bound.push(slot.slot);
                shared.wake_credit = WAKE_CREDIT_MAX.min(shared.wake_credit + CHANGE_CREDIT);
                Ok(Some(LanePlace { couple: at, slot: slot.slot }))
            }
        }
    }

    /// Returns whether this application uses no slots of a couple, because the other application has sent too many notifications.
    pub(super) fn is_muted(&mut self, id: u64) -> bool {
        self.find(id).is_some_and(|(_, shared)| shared.is_muted)
    }

    /// Returns the couple and the lane at a place, and whether the couple is dead.
    #[inline]
    pub(super) fn lane(&mut self, place: LanePlace) -> Option<(&mut Couple, &mut Lane, bool)> {
        let shared = self.couples.get_mut(place.couple)?.as_mut()?;
        let Stage::Whole(whole) = &mut shared.stage else { return None };
        let (_, lane) = whole.lanes.get_mut(place.slot)?.as_mut()?;
        Some((&mut whole.couple, lane, shared.is_dead))
    }

    /// Removes a lane, because its connection no longer uses it.
    pub(super) fn unbind(&mut self, place: LanePlace) {
        let Some(Some(shared)) = self.couples.get_mut(place.couple) else { return };
        if let Stage::Whole(whole) = &mut shared.stage {
            whole.lanes[place.slot] = None;
            whole.bound.retain(|slot| *slot != place.slot);
            if shared.is_dead && whole.bound.is_empty() {
                self.remove(place.couple);
            }
        }
    }

    /// Forgets that a connection waits for a couple.
    pub(super) fn forget(&mut self, number: Number) {
        for shared in self.couples.iter_mut().flatten() {
            if let Stage::Half { waiting, .. } = &mut shared.stage {
                waiting.retain(|(of, _)| *of != number);
            }
        }
    }

    /// Ends a couple, because the other application or the control program has ended it. Bytes that the other side has published stay
    /// readable.
    pub(super) fn end(&mut self, id: u64) {
        if let Some((at, _)) = self.find(id) {
            self.end_at(at);
        }
    }

    fn end_at(&mut self, at: usize) {
        let Some(Some(shared)) = self.couples.get_mut(at) else { return };
        if std::mem::replace(&mut shared.is_dead, true) {
            return;
        }
        if let Some(bells) = &mut self.bells {
            bells.remove(shared.registration, &shared.wake_fd);
        }
        let is_used = match &mut shared.stage {
            Stage::Half { .. } => false,
            Stage::Whole(whole) => {
                let Whole { couple, lanes, .. } = &mut **whole;
                for (number, lane) in lanes.iter_mut().flatten() {
                    let unread = lane.lose_peer(couple).map(|unread| lane.read_own(couple, unread));
                    self.unread.extend(unread.filter(|bytes| !bytes.is_empty()).map(|bytes| (*number, bytes)));
                    self.news.push(*number);
                }
                !whole.bound.is_empty()
            }
        };
        if !is_used {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) {
        let Some(shared) = self.couples.get_mut(at).and_then(Option::take) else { return };
        if !shared.is_dead
            && let Some(bells) = &mut self.bells
        {
            bells.remove(shared.registration, &shared.wake_fd);
        }
        if let Stage::Whole(whole) = &shared.stage {
            let (sent, received) = whole.couple.moved_bytes();
            self.past_bytes = (self.past_bytes.0 + sent, self.past_bytes.1 + received);
        }
        if self.is_quiet {
            self.retired.push(shared);
        }
        while let Some(None) = self.couples.last() {
            self.couples.pop();
        }
    }

    /// Looks at all lanes. Returns true if there is something for [`Client::work`](super::Client::work).
    #[inline]
    pub(super) fn look(&mut self) -> bool {
        for shared in self.couples.iter_mut().flatten() {
            let Stage::Whole(whole) = &mut shared.stage else { continue };
            let Whole { couple, lanes, bound } = &mut **whole;
            if bound.len() > LANES_WITHOUT_CHECK_MAX && !couple.may_have_changed() {
                continue;
            }
            let mut has_changed = false;
            for slot in bound.iter() {
                let Some((number, lane)) = &mut lanes[*slot] else { continue };
                match lane.look(couple) {
                    Ok(false) => continue,
                    Ok(true) => self.news.push(*number),
                    Err(violation) => self.broken.push((*number, violation)),
                }
                has_changed = true;
            }
            if has_changed {
                shared.wake_credit = WAKE_CREDIT_MAX.min(shared.wake_credit + CHANGE_CREDIT);
            }
        }
        self.has_news()
    }

    #[inline]
    pub(super) fn has_news(&self) -> bool {
        !self.news.is_empty() || !self.broken.is_empty() || !self.unread.is_empty() || !self.flooded.is_empty()
    }

    /// Requests notifications of the other applications. Returns false if there is something to do already.
    pub(super) fn declare_asleep(&mut self) -> bool {
        if self.couples.is_empty() {
            return !self.has_news();
        }
        self.asleep = true;
        self.wholes().for_each(|whole| whole.couple.declare_asleep());
        !self.look()
    }

    /// Withdraws these requests.
    #[inline]
    pub(super) fn awake(&mut self) {
        if std::mem::take(&mut self.asleep) {
            self.wholes().for_each(|whole| whole.couple.awake());
        }
    }

    fn wholes(&mut self) -> impl Iterator<Item = &mut Whole> {
        self.couples.iter_mut().flatten().filter_map(|shared| match &mut shared.stage {
            Stage::Whole(whole) => Some(&mut **whole),
            Stage::Half { .. } => None,
        })
    }

    /// Reads the notifications of the other applications, without waiting: those that were noted, or with `all` those of all couples. A
    /// couple whose other application has ended becomes dead.
    pub(super) fn drain(&mut self, all: bool) {
        for at in 0..self.couples.len() {
            let Some(shared) = self.couples[at].as_mut().filter(|shared| !shared.is_dead && !shared.is_muted) else {
                continue;
            };
            if !std::mem::take(&mut shared.is_notified) && !all {
                continue;
            }
            let drained = shared.wake_fd.drain();
            let hung_up = drained.as_ref().map_or(true, |drained| drained.hung_up);
            let was_woken = drained.as_ref().is_ok_and(|drained| drained.notifications > 0);
            self.last_notification = drained.ok().and_then(|drained| drained.last).or(self.last_notification);
            if hung_up {
                self.end_at(at);
            } else if was_woken {
                self.pay_for_notification(at);
            }
        }
    }

    /// Takes a notification of a couple off its credit. Without credit, the couple is muted.
    fn pay_for_notification(&mut self, at: usize) {
        let Some(Some(shared)) = self.couples.get_mut(at) else { return };
        shared.wake_credit = shared.wake_credit.saturating_sub(1);
        if shared.wake_credit > 0 || std::mem::replace(&mut shared.is_muted, true) {
            return;
        }
        if let Some(bells) = &mut self.bells {
            bells.remove(shared.registration, &shared.wake_fd);
        }
        match &mut shared.stage {
            Stage::Half { waiting, .. } => self.flooded.extend(waiting.drain(..).map(|(number, _)| number)),
            Stage::Whole(whole) => self.flooded.extend(whole.lanes.iter().flatten().map(|(number, _)| *number)),
        }
    }

    /// Returns the descriptors on which the caller has to send notifications.
    pub(super) fn take_notifications(&mut self) -> impl Iterator<Item = Arc<NotifyFd>> {
        self.wholes().filter_map(|whole| whole.couple.take_notification())
    }

    /// Returns how many connections have a lane.
    pub(super) fn lanes(&self) -> usize {
        let bound = self.couples.iter().flatten().map(|shared| match &shared.stage {
            Stage::Whole(whole) => whole.bound.len(),
            Stage::Half { .. } => 0,
        });
        bound.sum()
    }

    /// Returns how many bytes this client has sent and received by memory.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let wholes = self.couples.iter().flatten().filter_map(|shared| match &shared.stage {
            Stage::Whole(whole) => Some(whole.couple.moved_bytes()),
            Stage::Half { .. } => None,
        });
        wholes.fold(self.past_bytes, |all, one| (all.0 + one.0, all.1 + one.1))
    }
}

impl Shared {
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let (half, whole) = match &self.stage {
            Stage::Half { memory, .. } => (memory.as_ref().map(|(_, notify_fd)| notify_fd), None),
            Stage::Whole(whole) => (None, Some(whole.couple.descriptors())),
        };
        let half = half.into_iter().flat_map(NotifyFd::descriptors);
        [self.wake_fd.as_fd()].into_iter().chain(half).chain(whole.into_iter().flatten())
    }
}
