//! A lane: one direction of a link. It decides what happens to each frame that is sent into it.
//!
//! A lane checks first the carrier, then the length of the frame, then the send queue. Last, it applies the faults. So a frame
//! that is lost by a fault has still used the link's transmission time. Frames stay in order, even with jitter. Only frames that a
//! fault delays and second copies of duplicated frames can be out of order.
//!
//! Every frame is accounted for: each sent frame and each second copy has arrived, was dropped for a counted reason, or is in
//! flight.

use std::collections::VecDeque;

use siga_stack::limits::FRAME_BYTES_MAX;
use siga_stack::link::frame::Marks;
use siga_stack::time::{Duration, Instant};

use crate::fault::{Fate, Faults, Medium, Wire};
use crate::limits::{BYTES_IN_FLIGHT_MAX, FLIPPED_BITS_MAX, FRAMES_IN_FLIGHT_MAX, FRAMES_QUEUED_MAX};
use crate::rng::Rng;

/// Length of an IPv4 header without options. The stack sends TCP segments without options of IPv4.
const IPV4_HEADER_BYTES: usize = 20;
const IPV4_CHECKSUM: std::ops::Range<usize> = 10..12;

/// One direction of a link.
#[derive(Debug)]
pub struct Lane {
    wire: Wire,
    faults: Faults,
    rng: Rng,
    carrier: bool,
    /// How often the carrier was lost. A frame that was sent before the last loss of the carrier does not arrive.
    epoch: u32,
    in_burst: bool,
    /// For each frame in the send queue, the time at which its last bit has been sent.
    departures: VecDeque<Instant>,
    last_arrival: Instant,
    in_flight: usize,
    in_flight_bytes: usize,
    counts: Counts,
}

/// Counters of the frames in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Frames that were sent into the lane.
    pub sent: u64,
    /// Frames that arrived, including second copies of duplicated frames.
    pub arrived: u64,
    /// Bytes of the frames that arrived.
    pub arrived_bytes: u64,
    fates: [u64; Fate::ALL.len()],
}

impl Counts {
    /// Returns how many frames had this fate.
    pub fn of(&self, fate: Fate) -> u64 {
        self.fates[fate.index()]
    }

    /// Returns the number of frames that did not arrive.
    pub fn dropped(&self) -> u64 {
        Fate::ALL.into_iter().filter(|fate| fate.is_drop()).map(|fate| self.of(fate)).sum()
    }
}

/// A frame in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The time of arrival.
    pub at: Instant,
    /// The frame as it arrives, after corruption and truncation.
    pub bytes: Vec<u8>,
    /// The marks with which the frame was sent.
    pub marks: Marks,
    epoch: u32,
}

/// The result of sending one frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Passage {
    /// The fates of the frame, in the order in which they happened. Empty if the frame was neither dropped nor changed nor
    /// delayed.
    pub fates: Vec<Fate>,
    /// The copies of the frame that are now in flight: none, one or two.
    pub arrivals: Vec<Arrival>,
}

impl Lane {
    /// Creates a lane that has a carrier and no faults.
    pub fn new(wire: Wire, rng: Rng) -> Self {
        Self {
            wire,
            faults: Faults::NONE,
            rng,
            carrier: true,
            epoch: 0,
            in_burst: false,
            departures: VecDeque::new(),
            last_arrival: Instant::default(),
            in_flight: 0,
            in_flight_bytes: 0,
            counts: Counts::default(),
        }
    }

    /// Returns the properties of the link without faults.
    pub const fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Returns the current faults.
    pub const fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Returns true if the link has a carrier.
    pub const fn carrier(&self) -> bool {
        self.carrier
    }

    /// Returns the counters.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the number of frames in flight, including those in the send queue.
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns true if every frame is accounted for: it has arrived, was dropped or is in flight.
    pub fn is_balanced(&self) -> bool {
        let given = self.counts.sent + self.counts.of(Fate::Duplicated);
        let on_their_way = u64::try_from(self.in_flight).unwrap_or(u64::MAX);
        given == self.counts.arrived + self.counts.dropped() + on_their_way
    }

    /// Changes the properties of the link. Frames that are already in flight still arrive at the time that was computed before.
    pub fn set_wire(&mut self, wire: Wire) {
        self.wire = wire;
    }

    /// Sets the faults for all frames that are sent from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        self.in_burst &= faults.burst.is_some();
    }

    /// Sets or clears the carrier. When the carrier is cleared, all frames in flight are lost.
    pub fn set_carrier(&mut self, up: bool) {
        if self.carrier && !up {
            self.epoch += 1;
            self.departures.clear();
            self.last_arrival = Instant::default();
        }
        self.carrier = up;
    }

    /// Sends a frame into the lane. Returns the fates of the frame, and its copies that will arrive.
    pub fn send(&mut self, now: Instant, bytes: Vec<u8>, marks: Marks) -> Passage {
        self.counts.sent += 1;
        let mut fates = Vec::new();
        let mut arrivals = Vec::new();
        match self.pass(now, bytes.len(), marks) {
            Err(fate) => fates.push(fate),
            Ok(at) => {
                let mut bytes = bytes;
                let is_congested = self.faults.mark_over.is_some_and(|most| self.departures.len() > most);
                if is_congested && mark(bytes.get_mut(self.wire.medium.header_bytes()..).unwrap_or_default()) {
                    fates.push(Fate::Marked);
                }
                let bytes = self.damage(bytes, marks, &mut fates);
                self.arrive_in_time(at, Arrival { at, bytes, marks, epoch: self.epoch }, &mut fates, &mut arrivals);
            }
        }
        for fate in &fates {
            self.counts.fates[fate.index()] += 1;
        }
        self.in_flight += arrivals.len();
        self.in_flight_bytes += arrivals.iter().map(|arrival| arrival.bytes.len()).sum::<usize>();
        Passage { fates, arrivals }
    }

    /// Removes a frame in flight from the lane when its time of arrival has come. Returns its fate as an error if the carrier was
    /// lost since it was sent.
    pub fn arrive(&mut self, arrival: &Arrival) -> Result<(), Fate> {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(arrival.bytes.len());
        if arrival.epoch != self.epoch {
            self.counts.fates[Fate::NoCarrier.index()] += 1;
            return Err(Fate::NoCarrier);
        }
        self.counts.arrived += 1;
        self.counts.arrived_bytes += u64::try_from(arrival.bytes.len()).unwrap_or(0);
        Ok(())
    }

    /// Returns the time at which a frame arrives if no fault delays it, or the reason why the frame is dropped.
    fn pass(&mut self, now: Instant, frame_bytes: usize, marks: Marks) -> Result<Instant, Fate> {
        if !self.carrier {
            return Err(Fate::NoCarrier);
        }
        let large = self.wire.marks_agreed && marks.segment_bytes > 0;
        let fits = if large { FRAME_BYTES_MAX } else { self.wire.medium.header_bytes() + self.wire.mtu };
        if frame_bytes > fits {
            return Err(Fate::TooLong);
        }
        // A fault may duplicate the frame, so the limits must have room for two copies.
        let bytes = self.in_flight_bytes + 2 * frame_bytes;
        if self.in_flight + 2 > FRAMES_IN_FLIGHT_MAX || bytes > BYTES_IN_FLIGHT_MAX {
            return Err(Fate::TooManyInFlight);
        }
        let departure = self.depart(now, frame_bytes)?;
        if self.faults.black_hole_over.is_some_and(|over| frame_bytes > over) {
            return Err(Fate::BlackHoled);
        }
        if self.rng.chance(self.faults.loss) {
            return Err(Fate::Lost);
        }
        if self.lost_in_burst() {
            return Err(Fate::BurstLost);
        }
        let late = random_time(&mut self.rng, self.faults.jitter);
        Ok((departure + self.wire.delay + late).max(self.last_arrival))
    }

    /// Adds a frame to the send queue. Returns the time at which the frame's last bit has been sent, or an error if the queue is
    /// full.
    fn depart(&mut self, now: Instant, frame_bytes: usize) -> Result<Instant, Fate> {
        while self.departures.front().is_some_and(|&at| at <= now) {
            self.departures.pop_front();
        }
        let Some(rate) = self.wire.rate_bits_per_s else { return Ok(now) };
        if self.departures.len() >= self.wire.queue_frames_max.min(FRAMES_QUEUED_MAX) {
            return Err(Fate::QueueFull);
        }
        let bits = u64::try_from(frame_bytes).unwrap_or(u64::MAX).saturating_mul(8);
        let ns = u128::from(bits) * 1_000_000_000 / u128::from(rate.max(1));
        let taken = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        let departure = self.departures.back().copied().unwrap_or(now) + taken;
        self.departures.push_back(departure);
        Ok(departure)
    }

    fn lost_in_burst(&mut self) -> bool {
        let Some(burst) = self.faults.burst else { return false };
        let change = if self.in_burst { burst.end } else { burst.begin };
        self.in_burst ^= self.rng.chance(change);
        self.in_burst && self.rng.chance(burst.loss)
    }

    fn damage(&mut self, mut bytes: Vec<u8>, marks: Marks, fates: &mut Vec<Fate>) -> Vec<u8> {
        // A frame with its checksum left out is not corrupted, because no receiver could detect this. Such frames are sent only
        // over links that model shared memory, which does not corrupt data.
        let spared = marks.checksum_unfilled || self.faults.corrupt_only_sets && self.is_arp(&bytes);
        if self.rng.chance(self.faults.corrupt) && !spared && self.corrupt(&mut bytes) {
            fates.push(Fate::Corrupted);
        }
        if bytes.len() > 1 && self.rng.chance(self.faults.truncate) {
            let kept = 1 + self.rng.index(bytes.len() - 1);
            bytes.truncate(kept);
            fates.push(Fate::Truncated);
        }
        bytes
    }

    fn is_arp(&self, bytes: &[u8]) -> bool {
        self.wire.medium == Medium::Ethernet && bytes.get(12..14) == Some(&[0x08, 0x06])
    }

    /// Flips random bits. Returns false if no bit was flipped, because `corrupt_only_sets` is true and all chosen bits were
    /// already set.
    fn corrupt(&mut self, bytes: &mut [u8]) -> bool {
        let flips = self.rng.between(1, u64::from(self.faults.corrupt_bits_max.min(FLIPPED_BITS_MAX)));
        // No bit is flipped twice, because the second flip would repair the frame.
        let mut places: Vec<(usize, u64)> = Vec::new();
        for _ in 0..flips {
            let place = (self.rng.index(bytes.len()), self.rng.below(8));
            let Some(byte) = bytes.get_mut(place.0) else { break };
            let is_set = *byte & (1 << place.1) != 0;
            let stays = is_set && self.faults.corrupt_only_sets;
            if !stays && !places.contains(&place) {
                *byte ^= 1 << place.1;
                places.push(place);
            }
        }
        !places.is_empty()
    }

    fn arrive_in_time(&mut self, at: Instant, frame: Arrival, fates: &mut Vec<Fate>, arrivals: &mut Vec<Arrival>) {
        let mut first = frame;
        if self.rng.chance(self.faults.reorder) && !self.faults.reorder_by.is_zero() {
            first.at = at + Duration::from_nanos(1) + random_time(&mut self.rng, self.faults.reorder_by);
            fates.push(Fate::HeldBack);
        } else {
            self.last_arrival = at;
        }
        if self.rng.chance(self.faults.duplicate) {
            let mut second = first.clone();
            second.at += random_time(&mut self.rng, self.faults.duplicate_by);
            fates.push(Fate::Duplicated);
            arrivals.push(first);
            arrivals.push(second);
        } else {
            arrivals.push(first);
        }
    }
}

/// Sets the mark for congestion (CE) in an IP packet whose sender supports ECN. Returns whether the packet is marked now.
fn mark(packet: &mut [u8]) -> bool {
    match packet {
        [first, service, ..] if *first >> 4 == 4 && matches!(*service & 3, 1 | 2) => {
            *service |= 3;
            let Some(header) = packet.get_mut(..IPV4_HEADER_BYTES) else { return false };
            header[IPV4_CHECKSUM].fill(0);
            let (words, _) = header.as_chunks::<2>();
            let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
            let folded = (sum & 0xffff) + (sum >> 16);
            let folded = u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(0);
            header[IPV4_CHECKSUM].copy_from_slice(&(!folded).to_be_bytes());
            true
        }
        [first, class, ..] if *first >> 4 == 6 && matches!(*class >> 4 & 3, 1 | 2) => {
            *class |= 0x30;
            true
        }
        _ => false,
    }
}

/// Returns a random time that is less than `end`. If `end` is 0, returns 0 and draws no random number.
fn random_time(rng: &mut Rng, end: Duration) -> Duration {
    if end.is_zero() {
        return Duration::ZERO;
    }
    Duration::from_nanos(rng.below(end.as_nanos()))
}

#[cfg(test)]
mod tests;
