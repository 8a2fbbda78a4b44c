//! A timing wheel: the deadlines of many sockets. Setting, moving and clearing a deadline takes constant time.
//!
//! The wheel is hierarchical and has eight levels of 64 slots. A slot of one level covers as much time as all slots of the level
//! below. A deadline is reported up to one tick late, and never early. If the deadline of a busy connection moves to a later time,
//! its entry stays where it is until the wheel reaches it, and only then moves. The wheel keeps the deadlines itself, because the
//! connection is often not in the CPU cache.

use crate::prefetch::prefetch;
use crate::time::Instant;

/// Base-2 logarithm of the nanoseconds in a tick. A tick is 2^20 ns, a little over a millisecond.
const TICK_BITS: u32 = 20;
const LEVELS: usize = 8;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const NOBODY: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    before: u32,
    behind: u32,
    /// Where the entry is, and when the wheel examines it, which is not later than `due`: see [`Position`].
    position: Position,
    due: Instant,
}

/// The tick at which the wheel examines an entry, and below it, in 8 bits each, the level and the slot in which the entry is. One
/// number keeps the memory of an idle connection small. A tick has less than 48 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position(u64);

impl Position {
    /// The position of an entry that is in no slot.
    const NONE: Self = Self(u64::MAX);

    fn new(fires: u64, level: u8, slot: u8) -> Self {
        Self(fires << 16 | u64::from(level) << 8 | u64::from(slot))
    }

    fn fires(self) -> u64 {
        self.0 >> 16
    }

    fn level(self) -> usize {
        usize::from(self.0.to_le_bytes()[1])
    }

    fn slot(self) -> usize {
        usize::from(self.0.to_le_bytes()[0])
    }
}

const UNSET: Node = Node { before: NOBODY, behind: NOBODY, position: Position::NONE, due: Instant::NEVER };

/// Returns the first tick that is not before the deadline.
#[inline]
fn tick(deadline: Instant) -> u64 {
    deadline.as_ns().div_ceil(1 << TICK_BITS)
}

/// An entry that the wheel has reached, and removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) who: u32,
    /// Whether the deadline has passed. If not, the socket has had no deadline since the one that the wheel has reached.
    pub(crate) is_due: bool,
}

/// A timing wheel. Each entry is the deadline of one socket, and has the socket's index.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// The wheel has examined all ticks up to and including this one.
    now: u64,
    nodes: Vec<Node>,
    heads: [[u32; SLOTS]; LEVELS],
    /// For each level, a bitmap of the slots that have entries.
    occupied: [u64; LEVELS],
    /// A bitmap of the levels that have entries.
    levels: u8,
}

impl Default for Wheel {
    fn default() -> Self {
        Self { now: 0, nodes: Vec::new(), heads: [[NOBODY; SLOTS]; LEVELS], occupied: [0; LEVELS], levels: 0 }
    }
}

impl Wheel {
    /// Sets the deadline of a socket. [`Instant::NEVER`] means that it has none; the wheel still reports the socket once if it had
    /// one before.
    #[inline]
    pub(crate) fn set(&mut self, who: u32, deadline: Instant) {
        let tick = tick(deadline);
        if let Some(node) = self.nodes.get_mut(who as usize)
            && node.position.fires() <= tick
        {
            node.due = deadline;
            return;
        }
        self.advance(who, deadline);
    }

    /// Moves an entry to an earlier time, or adds it.
    fn advance(&mut self, who: u32, deadline: Instant) {
        let index = who as usize;
        if index >= self.nodes.len() {
            self.nodes.resize(index + 1, UNSET);
        }
        self.unlink(who);
        self.nodes[index].due = deadline;
        if deadline != Instant::NEVER {
            self.link(who, tick(deadline));
        }
    }

    /// Begins to load the entry of a socket into the CPU cache.
    #[inline]
    pub(crate) fn prefetch(&self, who: u32) {
        if let Some(node) = self.nodes.get(who as usize) {
            prefetch(node);
        }
    }

    pub(crate) fn clear(&mut self, who: u32) {
        if (who as usize) < self.nodes.len() {
            self.unlink(who);
        }
    }

    /// Returns when the wheel examines the entry of a socket, or `None` if it has no entry. This is not later than the tick after the
    /// deadline. A deadline that has passed counts as the time of the wheel.
    pub(crate) fn deadline(&self, who: u32) -> Option<Instant> {
        let position = self.nodes.get(who as usize)?.position;
        (position != Position::NONE).then(|| Instant::from_ns(position.fires().saturating_mul(1 << TICK_BITS)))
    }

    /// Returns the time of the wheel: it has reported all deadlines before.
    pub(crate) fn time(&self) -> Instant {
        Instant::from_ns(self.now.saturating_mul(1 << TICK_BITS))
    }

    /// Returns the earliest time at which [`Wheel::due`] can report a deadline, if any. At this time, it may report none yet.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.first().map(|(_, _, tick)| Instant::from_ns(tick.saturating_mul(1 << TICK_BITS)))
    }

    /// Removes one entry that the wheel has reached, unless its deadline has moved to a later time. Returns `None` if there is no
    /// further one.
    pub(crate) fn due(&mut self, time: Instant) -> Option<Reached> {
        let until = time.as_ns() >> TICK_BITS;
        loop {
            let Some((level, slot, begins)) = self.first().filter(|(_, _, begins)| *begins <= until) else {
                self.now = self.now.max(until);
                return None;
            };
            self.now = self.now.max(begins);
            if level > 0 {
                self.spread(level, slot);
                continue;
            }
            let who = self.heads[level][slot];
            let due = self.nodes[who as usize].due;
            self.unlink(who);
            if due > time && due != Instant::NEVER {
                self.nodes[who as usize].due = due;
                self.link(who, tick(due));
                continue;
            }
            return Some(Reached { who, is_due: due <= time });
        }
    }

    /// Moves all entries of a slot to lower levels, when the time that the slot covers begins.
    fn spread(&mut self, level: usize, slot: usize) {
        while self.heads[level][slot] != NOBODY {
            let who = self.heads[level][slot];
            let Node { position, due, .. } = self.nodes[who as usize];
            self.unlink(who);
            self.nodes[who as usize].due = due;
            self.link(who, if due == Instant::NEVER { position.fires() } else { position.fires().max(tick(due)) });
        }
    }

    /// Returns the level and index of the earliest slot that has entries, and the tick at which this slot begins.
    #[inline]
    fn first(&self) -> Option<(usize, usize, u64)> {
        let level = self.levels.trailing_zeros();
        let slot = self.occupied.get(level as usize)?.trailing_zeros();
        let low = SLOT_BITS * level;
        let above = self.now.checked_shr(low + SLOT_BITS).unwrap_or(0) << (low + SLOT_BITS).min(63);
        Some((level as usize, slot as usize, above | (u64::from(slot) << low)))
    }

    /// Puts an entry into the slot for `tick`. To find the level, `tick` and the current tick are seen as numbers in base 64, with
    /// a digit for each level. The level is the highest digit in which they differ.
    fn link(&mut self, who: u32, tick: u64) {
        let fires = tick.clamp(self.now, (1 << (64 - TICK_BITS)) - 1);
        let bits = 63 - ((fires ^ self.now) | 1).leading_zeros();
        let level = bits / SLOT_BITS;
        let slot = (fires >> (SLOT_BITS * level)) % SLOTS as u64;
        let place = (u8::try_from(level).unwrap_or(0), u8::try_from(slot).unwrap_or(0));
        let head = &mut self.heads[usize::from(place.0)][usize::from(place.1)];
        let behind = std::mem::replace(head, who);
        if let Some(next) = self.nodes.get_mut(behind as usize) {
            next.before = who;
        }
        let node = &mut self.nodes[who as usize];
        (node.before, node.behind, node.position) = (NOBODY, behind, Position::new(fires, place.0, place.1));
        self.occupied[level as usize] |= 1 << slot;
        self.levels |= 1 << level;
    }

    fn unlink(&mut self, who: u32) {
        let node = self.nodes[who as usize];
        if node.position == Position::NONE {
            return;
        }
        self.nodes[who as usize] = UNSET;
        if let Some(next) = self.nodes.get_mut(node.behind as usize) {
            next.before = node.before;
        }
        if let Some(previous) = self.nodes.get_mut(node.before as usize) {
            previous.behind = node.behind;
            return;
        }
        let (level, slot) = (node.position.level(), node.position.slot());
        self.heads[level][slot] = node.behind;
        if node.behind == NOBODY {
            self.occupied[level] &= !(1 << slot);
            self.levels &= !(u8::from(self.occupied[level] == 0) << level);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};

    fn at(tick: u64) -> Instant {
        Instant::from_ns(tick << TICK_BITS)
    }

    #[test]
    fn the_timer_wheel_fires_every_deadline_in_time_however_it_was_moved() {
        let mut random = Seed::simulated(7).random(Purpose::UdpPorts);
        let mut wheel = Wheel::default();
        let mut wanted: Vec<Option<u64>> = vec![None; 300];
        let (mut now, mut reached) = (0, [0; 2]);
        for _ in 0..60_000 {
            let who = random.below(300);
            // Near and far: up to 2^30 ticks, which is days.
            let digits = random.below(31);
            let due = now + u64::from(random.below(1 << digits));
            let due = (random.below(5) > 0).then_some(due);
            match due {
                Some(due) => wheel.set(who, at(due)),
                None if random.below(2) == 0 => wheel.clear(who),
                None => wheel.set(who, Instant::NEVER),
            }
            wanted[who as usize] = due;
            if random.below(4) == 0 {
                let first = wanted.iter().flatten().min().copied();
                assert!(wheel.next() <= first.map(at) || first.is_none());
                let digits = random.below(20);
                let step = u64::from(random.below(1 << digits));
                now = if random.below(2) == 0 { now + step } else { first.unwrap_or(now).max(now) };
                while let Some(Reached { who, is_due }) = wheel.due(at(now)) {
                    let due = wanted[who as usize].take();
                    assert_eq!(is_due, due.is_some(), "{who} at {now}");
                    assert!(due.is_none_or(|due| due <= now), "{who} came early at {now}: {due:?}");
                    reached[usize::from(is_due)] += 1;
                }
                assert!(wanted.iter().flatten().all(|due| *due > now), "something is late at {now}");
            }
        }
        assert!(reached[0] > 100 && reached[1] > 1_000, "{reached:?}");
    }

    #[test]
    fn a_deadline_that_moves_to_a_later_time_moves_its_entry_only_when_the_wheel_reaches_it() {
        let mut wheel = Wheel::default();
        wheel.set(0, at(3));
        for due in [100, 5_000, 70] {
            wheel.set(0, at(due));
            assert_eq!(wheel.deadline(0), Some(at(3)), "{due}");
        }
        assert_eq!((wheel.due(at(3)), wheel.deadline(0)), (None, Some(at(70))));
        wheel.set(0, at(69));
        assert_eq!((wheel.due(at(68)), wheel.deadline(0)), (None, Some(at(69))));
        // A socket without a deadline is reported, once.
        wheel.set(0, Instant::NEVER);
        assert_eq!(wheel.due(at(69)), Some(Reached { who: 0, is_due: false }));
        assert_eq!((wheel.due(at(1 << 30)), wheel.next()), (None, None));
    }

    #[test]
    fn an_owner_that_sleeps_until_the_next_deadline_of_the_wheel_meets_all() {
        let mut wheel = Wheel::default();
        for (who, due) in [(0, 3), (1, 64), (2, 4_097), (3, 1 << 40), (4, 5_000_000)] {
            wheel.set(who, at(due));
        }
        let (mut met, mut wakes) = (Vec::new(), 0);
        while let Some(next) = wheel.next() {
            wakes += 1;
            while let Some(Reached { who, is_due: true }) = wheel.due(next) {
                met.push((who, next));
            }
        }
        assert_eq!(met, [(0, at(3)), (1, at(64)), (2, at(4_097)), (4, at(5_000_000)), (3, at(1 << 40))]);
        assert!(wakes < 25, "{wakes} wakes");
    }

    #[test]
    fn the_timer_wheel_fires_no_deadline_early_and_keeps_the_far_future() {
        let mut wheel = Wheel::default();
        wheel.set(0, Instant::from_ns((1 << TICK_BITS) + 1));
        wheel.set(1, Instant::from_ns(u64::MAX));
        assert_eq!((wheel.due(at(1)), wheel.deadline(0)), (None, Some(at(2))));
        assert_eq!((wheel.due(at(2)), wheel.deadline(0)), (Some(Reached { who: 0, is_due: true }), None));
        assert_eq!(wheel.due(at(1 << 43)), None);
        wheel.clear(1);
        assert_eq!(wheel.next(), None);
    }
}
