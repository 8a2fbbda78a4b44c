//! One direction of a modelled link: decides for each frame whether it is lost, changed or repeated, and when it arrives.
//!
//! An emulator holds frames until they arrive. It reads no clock and no random numbers of the host: the same seed, settings and
//! arrivals give the same departures.

use crate::counters::Counters;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use siga_model::link::table::UNIT;
use siga_model::link::{Block, Distribution, Link, Loss, Queue, SHARE_PARTS, Share};
use siga_stack::time::Instant;
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of bytes that one direction of a link holds. Further frames are lost.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Picoseconds in a nanosecond. Times on the wire are computed in picoseconds, so that the rate of small frames is exact.
const PS: u128 = 1_000;

/// Why a link lost a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// By its setting `loss`.
    Model,
    /// Too many frames waited for the link.
    Queue,
    /// The link holds as many bytes as it can.
    Memory,
}

/// What a link did with the frames that were offered to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LinkCounters {
    pub(crate) offered: u64,
    pub(crate) delivered: u64,
    pub(crate) lost_by_model: u64,
    pub(crate) lost_by_queue: u64,
    pub(crate) lost_by_memory: u64,
    pub(crate) duplicated: u64,
    pub(crate) corrupted: u64,
    pub(crate) reordered: u64,
    pub(crate) lost_by_end: u64,
}

impl LinkCounters {
    /// Adds the counters of one direction of a link, such as `link_from_station`, by their names.
    pub(crate) fn add_to(self, direction: &str, counters: &mut Counters) {
        let Self {
            offered,
            delivered,
            lost_by_model,
            lost_by_queue,
            lost_by_memory,
            duplicated,
            corrupted,
            reordered,
            lost_by_end,
        } = self;
        for (name, count) in [
            ("offered", offered),
            ("delivered", delivered),
            ("lost", lost_by_model),
            ("lost_queue_full", lost_by_queue),
            ("lost_memory_full", lost_by_memory),
            ("lost_at_end", lost_by_end),
            ("duplicated", duplicated),
            ("corrupted", corrupted),
            ("reordered", reordered),
        ] {
            counters.insert(format!("{direction}_{name}"), count);
        }
    }
}

fn random(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    random
}

/// A frame with what its owner must know about it later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held<T> {
    pub(crate) bytes: Vec<u8>,
    pub(crate) tag: T,
}

/// The frames of a block that is not full yet.
#[derive(Debug)]
struct Open<T> {
    /// When the block is sent even if it is not full.
    due_ns: u64,
    bytes: u64,
    /// The latency of the first frame, which is that of the block.
    latency: Option<u64>,
    frames: Vec<Held<T>>,
}

/// One direction of a modelled link, and the frames on it.
#[derive(Debug)]
pub(crate) struct Emulator<T> {
    link: Link,
    stream: u64,
    random: ChaCha8Rng,
    /// Whether the link is in the bad state of the Gilbert-Elliott model.
    is_bad: bool,
    /// When the wire has sent all frames, in picoseconds.
    free_ps: u128,
    /// When the latest frame in order arrives.
    last_ns: u64,
    /// The frames that the wire has not sent yet: when it has sent each, and their sizes.
    waiting: VecDeque<(u64, u64)>,
    waiting_bytes: u64,
    open: Option<Open<T>>,
    /// The frames by the time of their arrival. The second number keeps the order of frames that arrive at the same time.
    held: BTreeMap<(u64, u64), Held<T>>,
    held_bytes: usize,
    number: u64,
    pub(crate) counters: LinkCounters,
}

impl<T: Clone> Emulator<T> {
    /// Makes one direction of a link. Each direction has a stream of random numbers of its own.
    pub(crate) fn new(link: Link, stream: u64) -> Self {
        Self {
            random: random(link.seed, stream),
            stream,
            link,
            is_bad: false,
            free_ps: 0,
            last_ns: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            open: None,
            held: BTreeMap::new(),
            held_bytes: 0,
            number: 0,
            counters: LinkCounters::default(),
        }
    }

    /// Changes the settings. Frames on the link arrive when they would have arrived before. With another seed, the random numbers
    /// begin anew.
    pub(crate) fn set(&mut self, link: Link, at: Instant) {
        if link.seed != self.link.seed {
            self.random = random(link.seed, self.stream);
        }
        self.is_bad &= matches!(link.loss, Some(Loss::Gilbert { .. }));
        if link.block.is_none() {
            self.send_block(at.as_ns());
        }
        self.link = link;
    }

    /// Offers a frame to the link.
    pub(crate) fn offer(&mut self, at: Instant, mut frame: Held<T>) -> Result<(), Lost> {
        let now = at.as_ns();
        self.send_due_block(now);
        self.counters.offered += 1;
        // Each frame takes the same random numbers, so that one setting does not change what the others decide.
        let is_lost = self.loses();
        let [duplicate, corrupt, reorder] = [self.link.duplicate, self.link.corrupt, self.link.reorder];
        let (is_repeated, is_corrupt, is_early) =
            (self.happens(duplicate), self.happens(corrupt), self.happens(reorder));
        let bit = self.random.next_u64();
        let latency = self.latency();
        // Frames without a latency overtake others.
        let latency = (!is_early).then_some(latency);
        if is_lost {
            self.counters.lost_by_model += 1;
            return Err(Lost::Model);
        }
        if is_corrupt && !frame.bytes.is_empty() {
            let bits = frame.bytes.len() as u64 * 8;
            let at = bit % bits;
            frame.bytes[usize::try_from(at / 8).unwrap_or(0)] ^= 1 << (at % 8);
            self.counters.corrupted += 1;
        }
        if is_repeated {
            self.queue(now, frame.clone(), latency)?;
            self.counters.duplicated += 1;
        }
        self.queue(now, frame, latency)
    }

    /// Returns the time at which the wire has sent all frames that were offered.
    pub(crate) fn free_at(&self) -> Instant {
        Instant::from_ns(u64::try_from(self.free_ps / PS).unwrap_or(u64::MAX))
    }

    /// Loses the frames on the link with certain tags, because their end is gone.
    pub(crate) fn lose_those(&mut self, are_lost: impl Fn(&T) -> bool) {
        let (held_bytes, lost) = (&mut self.held_bytes, &mut self.counters.lost_by_end);
        let mut stays = |frame: &Held<T>| {
            let stays = !are_lost(&frame.tag);
            if !stays {
                *held_bytes -= frame.bytes.len();
                *lost += 1;
            }
            stays
        };
        self.held.retain(|_, frame| stays(frame));
        if let Some(open) = &mut self.open {
            open.frames.retain(|frame| stays(frame));
            open.bytes = open.frames.iter().map(|frame| frame.bytes.len() as u64).sum();
        }
    }

    /// Loses all frames on the link, because one of its ends is gone.
    pub(crate) fn lose_all(&mut self) {
        let collected = self.open.take().map_or(0, |open| open.frames.len() as u64);
        self.counters.lost_by_end += self.held.len() as u64 + collected;
        self.held.clear();
        self.waiting.clear();
        (self.held_bytes, self.waiting_bytes, self.free_ps) = (0, 0, 0);
    }

    /// Returns the time at which the owner must ask for frames again.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let open = self.open.as_ref().map(|open| open.due_ns);
        let first = self.held.first_key_value().map(|((due, _), _)| *due);
        open.into_iter().chain(first).min().map(Instant::from_ns)
    }

    /// Returns the next frame that has arrived.
    pub(crate) fn take(&mut self, at: Instant) -> Option<Held<T>> {
        self.send_due_block(at.as_ns());
        let first = self.held.first_entry().filter(|first| first.key().0 <= at.as_ns())?;
        let frame = first.remove();
        self.held_bytes -= frame.bytes.len();
        self.counters.delivered += 1;
        Some(frame)
    }

    /// Decides whether a frame is lost by the model.
    fn loses(&mut self) -> bool {
        match self.link.loss {
            None => self.happens(Share::default()),
            Some(Loss::Random(share)) => self.happens(share),
            Some(Loss::Gilbert { to_bad, to_good, in_bad, in_good }) => {
                let changes = self.happens(if self.is_bad { to_good } else { to_bad });
                self.is_bad ^= changes;
                self.happens(if self.is_bad { in_bad } else { in_good })
            }
        }
    }

    fn happens(&mut self, share: Share) -> bool {
        // The product maps 32 random bits to a part of the whole. Its bias is below one in a billion.
        let draw = (u64::from(self.random.next_u32()) * u64::from(SHARE_PARTS)) >> 32;
        draw < u64::from(share.parts())
    }

    /// Puts a frame behind those that wait for the wire.
    fn queue(&mut self, now: u64, frame: Held<T>, latency: Option<u64>) -> Result<(), Lost> {
        let bytes = frame.bytes.len() as u64;
        while let Some((_, sent)) = self.waiting.pop_front_if(|(sent_at, _)| *sent_at <= now) {
            self.waiting_bytes -= sent;
        }
        let collected = self.open.as_ref().map_or((0, 0), |open| (open.frames.len() as u64, open.bytes));
        let is_full = match self.link.queue {
            Queue::Frames(most) => self.waiting.len() as u64 + collected.0 >= most,
            Queue::Bytes(most) => self.waiting_bytes + collected.1 + bytes > most,
        };
        if is_full {
            self.counters.lost_by_queue += 1;
            return Err(Lost::Queue);
        }
        if self.held_bytes + frame.bytes.len() > HELD_BYTES_MAX {
            self.counters.lost_by_memory += 1;
            return Err(Lost::Memory);
        }
        self.held_bytes += frame.bytes.len();
        match self.link.block {
            Some(block) => self.collect(now, (frame, latency), block),
            None => self.send(now, vec![frame], latency),
        }
        Ok(())
    }

    /// Adds a frame to the open block, and sends full blocks.
    fn collect(&mut self, now: u64, (frame, latency): (Held<T>, Option<u64>), block: Block) {
        let bytes = frame.bytes.len() as u64;
        if self.open.as_ref().is_some_and(|open| open.bytes + bytes > block.bytes) {
            self.send_block(now);
        }
        let due_ns = now.saturating_add(block.collect_ns);
        let open = self.open.get_or_insert_with(|| Open { due_ns, bytes: 0, latency, frames: Vec::new() });
        open.bytes += bytes;
        open.frames.push(frame);
        if open.bytes >= block.bytes {
            self.send_block(now);
        }
    }

    /// Sends the open block if its first frame has waited long enough.
    fn send_due_block(&mut self, now: u64) {
        if let Some(due) = self.open.as_ref().map(|open| open.due_ns).filter(|due| *due <= now) {
            self.send_block(due);
        }
    }

    fn send_block(&mut self, now: u64) {
        if let Some(open) = self.open.take() {
            self.send(now, open.frames, open.latency);
        }
    }

    /// Sends frames as one unit: the wire is busy with all of them, and they arrive at the same time.
    fn send(&mut self, now: u64, frames: Vec<Held<T>>, latency: Option<u64>) {
        let bytes: u64 = frames.iter().map(|frame| frame.bytes.len() as u64).sum();
        let begin = self.free_ps.max(u128::from(now) * PS);
        let on_wire =
            self.link.rate.map_or(0, |rate| u128::from(bytes) * 8 * PS * 1_000_000_000 / u128::from(rate.max(1)));
        self.free_ps = begin + on_wire;
        let sent_ns = u64::try_from(self.free_ps.div_ceil(PS)).unwrap_or(u64::MAX);
        for frame in &frames {
            let bytes = frame.bytes.len() as u64;
            self.waiting.push_back((sent_ns, bytes));
            self.waiting_bytes += bytes;
        }
        let due = match latency {
            Some(latency) => {
                self.last_ns = sent_ns.saturating_add(latency).max(self.last_ns);
                self.last_ns
            }
            None => {
                self.counters.reordered += frames.len() as u64;
                sent_ns
            }
        };
        for frame in frames {
            self.held.insert((due, self.number), frame);
            self.number += 1;
        }
    }

    /// Draws the latency of a frame.
    fn latency(&mut self) -> u64 {
        let latency = self.link.latency_ns;
        let (first, second) = (self.uniform(), self.uniform());
        let Some((jitter, distribution)) = &self.link.jitter else { return latency };
        let deviation = match distribution {
            Distribution::Uniform => 2.0 * first - 1.0,
            // Box and Muller.
            Distribution::Normal => (-2.0 * first.ln()).sqrt() * (2.0 * std::f64::consts::PI * second).cos(),
            Distribution::Table(values) => between(values, first) / f64::from(UNIT),
        };
        let offset = *jitter as f64 * deviation;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is a positive time")]
        let varied = (latency as f64 + offset).max(0.0) as u64;
        varied
    }

    /// Draws a number from (0, 1].
    fn uniform(&mut self) -> f64 {
        ((self.random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// Makes one direction of a link, or changes its settings. Frames on a direction that has no link any more are lost.
pub(crate) fn set<T: Clone>(emulator: &mut Option<Emulator<T>>, (link, stream): (Option<&Link>, u64), at: Instant) {
    match (emulator.as_mut(), link) {
        (Some(old), Some(link)) => old.set(link.clone(), at),
        (None, Some(link)) => *emulator = Some(Emulator::new(link.clone(), stream)),
        (_, None) => *emulator = None,
    }
}

/// Returns the value at a place from 0 (the first) to 1 (the last), interpolated between its two neighbours.
fn between(values: &[i16], place: f64) -> f64 {
    let at = place * values.len().saturating_sub(1) as f64;
    let value = |at: f64| -> f64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is an index")]
        let index = at as usize;
        values.get(index).copied().map_or(0.0, f64::from)
    };
    let (low, high) = (value(at.floor()), value(at.ceil()));
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests;
