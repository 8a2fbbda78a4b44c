//! Ports: the two ways of a link to one partner, each with what its device type makes of frames.
//!
//! A *sender* decides what happens when the partner has no empty buffer: a packet of the own stack stays there (`pending`) or is
//! dropped and counted (`drop`); a packet that is passed on waits in a queue with a bound, so that one slow partner never
//! holds up the others. A *receiver* is polled while there is traffic, and else has asked for a ring.

use crate::convert;
use crate::device::{self, Inbound, Outbound, Sent, Source, Whole};
use crate::hold::Hold;
use crate::limits::{BACKLOG_BYTES_MAX, BACKLOG_FRAMES_MAX, DROPS_AT_ONCE_MAX, SPARE_FRAMES_MAX, TRANSMIT_AT_ONCE_MAX};
use crate::protocol::message::{GuestDevice, MemberId};
use crate::protocol::report::LinkReport;
use crate::protocol::ticket::RingPairId;
use siga_model::features::DriverFeatures;
use siga_model::name::Name;
use siga_model::topology::{Full, NetworkKind};
use siga_ring::clock::{Rate, Ticks};
use siga_ring::wait::WaitCounters;
use siga_ring::{Consumer, Producer, Retainer, Violation, WakeFd};
use siga_stack::link::frame::Marks;
use siga_stack::stack::Transmit;
use siga_stack::wire::address::Prefix;
use std::collections::{BTreeMap, VecDeque};

/// Counters by name.
pub(crate) type Counters = BTreeMap<String, u64>;

/// Who is at the other end of a port.
#[derive(Debug, Clone)]
pub(crate) enum Partner {
    /// One partner.
    Member(MemberId),
    /// All of a network that joins many: what is for several goes out here.
    Group,
}

/// Whether there is a buffer for a frame that stays in it.
#[derive(Debug)]
pub(crate) enum Room {
    /// There is, and this has what is built there stay.
    Now(Retainer),
    /// There will be, by this time at the latest: what is kept is then no reason to wait any longer.
    Soon(Ticks),
    /// Frames of this port do not stay.
    Never,
}

/// The sending way of a port.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) partner: Partner,
    /// The place of the device that it belongs to.
    pub(crate) device: usize,
    /// The partner's addresses, as routes of the stack.
    pub(crate) hosts: Vec<Prefix>,
    pub(crate) pair: Option<RingPairId>,
    ring: Option<Producer>,
    outbound: Box<dyn Outbound>,
    kind: NetworkKind,
    full: Full,
    driver: DriverFeatures,
    backlog: VecDeque<(Vec<u8>, Marks)>,
    backlog_bytes: usize,
    /// Memory of packets that have gone, for the next that wait: fresh memory costs more than the copy into it.
    spare: Vec<Vec<u8>>,
    /// Something was put into buffers, or may be now.
    pub(crate) is_dirty: bool,
    /// So many buffers have to be free before it goes on; 0: it does not wait.
    wanted: usize,
    /// Packets that are passed on wait where they come from, until there is room for two buffers and nothing waits here.
    holds: bool,
    /// A hold did not help in time: there is none until nothing waits any more.
    is_slow: bool,
    /// Something was kept of all buffers; until then this is waited out.
    crowded_until: Option<Ticks>,
    /// Nothing is to be sent any more.
    pub(crate) quiet: bool,
    /// A pair was asked for.
    pub(crate) asked: bool,
    /// Until then, a pair that was refused is not asked for again.
    pub(crate) refused_until: Option<Ticks>,
    counters: SenderCounters,
    past: Counters,
}

#[derive(Debug, Default)]
struct SenderCounters {
    backlog_full: u64,
    too_long: u64,
    no_partner: u64,
}

impl Sender {
    pub(crate) fn new(partner: Partner, place: usize, device: &GuestDevice) -> Self {
        let GuestDevice { kind, full, driver, .. } = *device;
        Self {
            partner,
            device: place,
            hosts: Vec::new(),
            pair: None,
            ring: None,
            outbound: device::halves(kind).0,
            kind,
            full,
            driver,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            spare: Vec::new(),
            is_dirty: false,
            wanted: 0,
            holds: false,
            is_slow: false,
            crowded_until: None,
            quiet: false,
            asked: false,
            refused_until: None,
            counters: SenderCounters::default(),
            past: Counters::new(),
        }
    }

    pub(crate) fn link(&mut self, pair: RingPairId, mut ring: Producer) {
        self.unlink();
        convert::prepare(&mut ring, self.driver, self.kind);
        self.outbound = device::halves(self.kind).0;
        (self.pair, self.ring) = (Some(pair), Some(ring));
        (self.quiet, self.asked, self.is_dirty, self.wanted) = (false, false, true, 0);
    }

    pub(crate) fn unlink(&mut self) {
        if let Some(ring) = self.ring.take() {
            add(&mut self.past, &producer_counters(&ring));
        }
        (self.pair, self.asked, self.quiet, self.wanted) = (None, false, false, 0);
        self.spare = Vec::new();
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.ring.is_some()
    }

    /// True while packets for it are better left where they come from.
    pub(crate) fn holds(&mut self) -> bool {
        if self.holds {
            // A violation is told by the next use.
            let has_room =
                |ring: &mut Producer| ring.in_flight().is_ok_and(|used| used + 2 <= ring.shape().buffer_count());
            let goes_on = self.backlog.is_empty() && self.ring.as_mut().is_some_and(has_room);
            self.holds = self.ring.is_some() && !goes_on;
        }
        self.holds
    }

    /// It did not go on in time.
    pub(crate) fn held_too_long(&mut self) {
        (self.holds, self.is_slow) = (false, true);
    }

    /// Packets wait for a link or a buffer.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    pub(crate) fn heard(&mut self) {
        self.outbound.heard();
        self.is_dirty = true;
    }

    /// Sends one packet that is not the own stack's, or keeps it, or drops it.
    ///
    /// # Errors
    /// The partner broke the ring's contract.
    pub(crate) fn offer(&mut self, len: usize, marks: Marks, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), Violation> {
        let straight = self.driver.copy_once && self.backlog.is_empty() && !self.quiet;
        let drops = self.drops();
        if let Some(ring) = self.ring.as_mut().filter(|_| straight) {
            match self.outbound.send(ring, &mut Whole { packet: Transmit { len, marks }, fill: &mut *fill })? {
                Sent::Packet => {
                    self.is_dirty = true;
                    return Ok(());
                }
                Sent::Nothing => {
                    self.counters.too_long += 1;
                    return Ok(());
                }
                Sent::Full if drops => {
                    ring.count_target_full();
                    return Ok(());
                }
                Sent::Full => ring.count_pending(),
            }
        }
        self.keep(len, marks, fill);
        Ok(())
    }

    /// A packet that finds no empty buffer is dropped.
    fn drops(&self) -> bool {
        self.full == Full::Drop && self.outbound.is_open()
    }

    fn keep(&mut self, len: usize, marks: Marks, fill: &mut dyn FnMut(&mut [u8])) {
        if self.backlog.len() >= BACKLOG_FRAMES_MAX || self.backlog_bytes + len > BACKLOG_BYTES_MAX {
            self.counters.backlog_full += 1;
            return;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(len, 0);
        fill(&mut bytes);
        self.backlog_bytes += len;
        self.backlog.push_back((bytes, marks));
        self.is_dirty = true;
        self.holds = self.full == Full::Pending && !self.is_slow && !self.quiet && self.ring.is_some();
    }

    /// Sends what waits, then what `build` makes, as far as there are buffers. True if anything went; a node that went on
    /// because more wants to would take the CPU from the partner whose buffers it waits for.
    ///
    /// # Errors
    /// The partner broke the ring's contract.
    pub(crate) fn transmit(&mut self, source: &mut dyn Source) -> Result<bool, Violation> {
        let drops = self.drops();
        let Some(ring) = self.ring.as_mut().filter(|_| !self.quiet) else { return Ok(false) };
        let (mut full, mut gone) = (false, 0);
        while let Some((bytes, marks)) = self.backlog.front() {
            let packet = Transmit { len: bytes.len(), marks: *marks };
            match self
                .outbound
                .send(ring, &mut Whole { packet, fill: |into: &mut [u8]| siga_stack::copy(bytes, into) })?
            {
                Sent::Full if drops => ring.count_target_full(),
                Sent::Full => {
                    full = true;
                    break;
                }
                Sent::Packet => {}
                Sent::Nothing => self.counters.too_long += 1,
            }
            gone += 1;
            self.backlog_bytes -= bytes.len();
            if let Some((bytes, _)) = self.backlog.pop_front()
                && self.spare.len() < SPARE_FRAMES_MAX
            {
                self.spare.push(bytes);
            }
        }
        self.is_slow &= full;
        let mut count = 0;
        while !full && count < TRANSMIT_AT_ONCE_MAX {
            match self.outbound.send(ring, source)? {
                Sent::Packet => count += 1,
                Sent::Nothing => break,
                Sent::Full => full = true,
            }
        }
        if full && drops {
            let mut nowhere = vec![0; self.outbound.packet_bytes_max()];
            for _ in 0..DROPS_AT_ONCE_MAX {
                if source.build(&mut nowhere).is_none() {
                    break;
                }
                ring.count_target_full();
                gone += 1;
            }
        }
        let held = self.outbound.flush(ring)?;
        self.wanted = if full { 1 } else { held };
        self.is_dirty = count == TRANSMIT_AT_ONCE_MAX;
        Ok(gone + count > 0)
    }

    /// Whether a frame may be built now that stays in its buffer.
    pub(crate) fn room_in_place(&mut self, now: Ticks, keep_time: Ticks) -> Room {
        let goes = self.driver.zero_copy && self.full == Full::Pending && self.backlog.is_empty() && !self.quiet;
        let Some(ring) = self.ring.as_ref().filter(|_| goes) else { return Room::Never };
        if let Some(since) = ring.next_retained_at() {
            let until = Ticks(since.0 + keep_time.0);
            self.crowded_until = (now < until).then_some(until);
        }
        // Who waits for any buffer waits until half of them are free, so that there are fewer and longer turns.
        let crowded = |until: &mut Ticks| now >= *until || 2 * ring.retained_buffers() <= ring.shape().buffer_count();
        self.crowded_until.take_if(crowded);
        match self.crowded_until {
            Some(until) => Room::Soon(until),
            None => Room::Now(ring.retainer()),
        }
    }

    /// Whether there is an empty buffer.
    pub(crate) fn has_buffer(&mut self) -> bool {
        // A violation is told by the next use.
        self.ring.as_mut().is_none_or(|ring| ring.has_room(1).unwrap_or(true))
    }

    /// Builds such a frame; [`Sender::flush`] sends it.
    ///
    /// # Errors
    /// The partner broke the ring's contract.
    pub(crate) fn send_in_place(&mut self, source: &mut dyn Source) -> Result<Sent, Violation> {
        let Some(ring) = self.ring.as_mut() else { return Ok(Sent::Nothing) };
        let sent = self.outbound.send(ring, source)?;
        if sent == Sent::Full {
            self.wanted = 1;
        }
        Ok(sent)
    }

    /// Of how many buffers something is kept.
    #[cfg(test)]
    pub(crate) fn retained_buffers(&self) -> usize {
        self.ring.as_ref().map_or(0, Producer::retained_buffers)
    }

    /// Hands over what is in buffers.
    ///
    /// # Errors
    /// The partner broke the ring's contract.
    pub(crate) fn flush(&mut self) -> Result<(), Violation> {
        if let Some(ring) = &mut self.ring {
            self.wanted = self.wanted.max(self.outbound.flush(ring)?);
        }
        Ok(())
    }

    /// Whether it can go on that waited for buffers.
    pub(crate) fn has_room(&mut self) -> bool {
        let Some(ring) = self.ring.as_mut().filter(|_| self.wanted > 0 && !self.quiet) else { return false };
        // A violation is told by the next use.
        ring.in_flight().is_ok_and(|in_flight| ring.shape().buffer_count() - in_flight >= self.wanted)
    }

    /// Looks at what the partner has given back, whether anything waits for that or not.
    ///
    /// # Errors
    /// The partner broke the ring's contract.
    pub(crate) fn check_partner(&mut self) -> Result<(), Violation> {
        self.ring.as_mut().map_or(Ok(()), |ring| ring.in_flight().map(drop))
    }

    /// Asks the partner to ring when it can go on; false if it can.
    pub(crate) fn want_room(&mut self) -> bool {
        let waits = self.wanted > 0 || self.holds;
        let Some(ring) = self.ring.as_mut().filter(|_| waits && !self.quiet) else { return true };
        // Who waits for any buffer waits for half of them: so the partner rings less often, and does not run dry.
        let wanted = if self.wanted <= 1 { ring.shape().buffer_count() / 2 } else { self.wanted };
        ring.want_room(wanted).unwrap_or(false)
    }

    /// Drops what waits, because there is nobody to send it to.
    pub(crate) fn drop_backlog(&mut self) {
        self.counters.no_partner += self.backlog.len() as u64;
        self.backlog.clear();
        self.backlog_bytes = 0;
    }

    pub(crate) fn count_no_partner(&mut self) {
        self.counters.no_partner += 1;
    }

    /// Frames sent over the present link.
    pub(crate) fn frames_sent(&self) -> u64 {
        self.ring.as_ref().map_or(0, |ring| ring.counters().frames)
    }

    pub(crate) fn packet_bytes_max(&self) -> usize {
        self.outbound.packet_bytes_max()
    }

    /// What was counted over all links of this port.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.past.clone();
        if let Some(ring) = &self.ring {
            add(&mut counters, &producer_counters(ring));
        }
        let own = &self.counters;
        let own = [("backlog_full", own.backlog_full), ("too_long", own.too_long), ("no_partner", own.no_partner)];
        add(&mut counters, &named(own));
        counters
    }
}

/// The receiving way of a port.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) ring: Option<Consumer>,
    pub(crate) wake_fd: Option<(u64, WakeFd)>,
    pub(crate) inbound: Box<dyn Inbound>,
    kind: NetworkKind,
    /// It is polled; else it has asked for a ring, or has no link.
    pub(crate) is_hot: bool,
    pub(crate) hold: Hold,
    pub(crate) last_traffic: Ticks,
    pub(crate) malformed: u64,
    /// Frames both ways when traffic was last looked for, and when that number changed.
    pub(crate) traffic_seen: u64,
    pub(crate) last_look: Ticks,
    /// The control program was told that there is no traffic.
    pub(crate) told_idle: bool,
    past: Counters,
}

impl Receiver {
    pub(crate) fn new(kind: NetworkKind) -> Self {
        Self {
            ring: None,
            wake_fd: None,
            inbound: device::halves(kind).1,
            kind,
            is_hot: false,
            hold: Hold::default(),
            last_traffic: Ticks(0),
            malformed: 0,
            traffic_seen: 0,
            last_look: Ticks(0),
            told_idle: false,
            past: Counters::new(),
        }
    }

    pub(crate) fn link(&mut self, ring: Consumer, wake_fd: (u64, WakeFd), now: Ticks) {
        self.inbound = device::halves(self.kind).1;
        (self.ring, self.wake_fd) = (Some(ring), Some(wake_fd));
        (self.last_traffic, self.last_look, self.traffic_seen, self.told_idle) = (now, now, 0, false);
    }

    pub(crate) fn unlink(&mut self) -> Option<(u64, WakeFd)> {
        if let Some(ring) = self.ring.take() {
            add(&mut self.past, &consumer_counters(&ring));
        }
        (self.is_hot, self.hold) = (false, Hold::default());
        self.wake_fd.take()
    }

    /// What was counted over all links of this port.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.past.clone();
        if let Some(ring) = &self.ring {
            add(&mut counters, &consumer_counters(ring));
        }
        add(&mut counters, &named([("malformed", self.malformed)]));
        counters
    }

    /// Frames received over the present link.
    pub(crate) fn frames_received(&self) -> u64 {
        self.ring.as_ref().map_or(0, |ring| ring.counters().frames)
    }

    /// Ticks spent copying out of the present link.
    pub(crate) fn copy_ticks(&self) -> u64 {
        let past = self.past.get("copy_ticks").copied().unwrap_or(0);
        past + self.ring.as_ref().map_or(0, |ring| ring.counters().copy_ticks.0)
    }
}

/// The report of a port that has a partner of its own.
pub(crate) fn report(device: &Name, sender: &Sender, receiver: &Receiver) -> Option<LinkReport> {
    let Partner::Member(member) = &sender.partner else { return None };
    let mut counters = sender.counters();
    add(&mut counters, &receiver.counters());
    Some(LinkReport {
        device: device.clone(),
        member: member.clone(),
        pair: sender.pair.map(|pair| pair.0.number()),
        counters,
    })
}

pub(crate) fn named<const N: usize>(counters: [(&str, u64); N]) -> Counters {
    counters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// What a wait has cost, by name, in nanoseconds.
pub(crate) fn wait_times(counters: &WaitCounters, rate: &Rate) -> Counters {
    named([
        ("waiting", rate.ns(counters.wait_ticks)),
        ("yielding", rate.ns(counters.yield_ticks)),
        ("given_away", rate.ns(counters.given_away_ticks)),
        ("asleep", rate.ns(counters.sleep_ticks)),
        ("colocated", rate.ns(counters.colocated_ticks)),
    ])
}

/// Adds counters up.
pub(crate) fn add(all: &mut Counters, more: &Counters) {
    for (name, value) in more {
        *all.entry(name.clone()).or_default() += value;
    }
}

pub(crate) fn producer_counters(ring: &Producer) -> Counters {
    let counters = ring.counters();
    named([
        ("frames_sent", counters.frames),
        ("bytes_sent", counters.bytes),
        ("buffers_sent", counters.buffers),
        ("target_full", counters.target_full),
        ("pending", counters.pending),
        ("doorbells_sent", counters.doorbells.sent),
        ("doorbells_suppressed", counters.doorbells.suppressed),
        ("violations", counters.violations),
    ])
}

pub(crate) fn consumer_counters(ring: &Consumer) -> Counters {
    let counters = ring.counters();
    named([
        ("frames_received", counters.frames),
        ("bytes_received", counters.bytes),
        ("buffers_received", counters.buffers),
        ("doorbells_sent", counters.doorbells.sent),
        ("doorbells_suppressed", counters.doorbells.suppressed),
        ("violations", counters.violations),
        ("copied_bytes", counters.copied_bytes),
        ("copy_ticks", counters.copy_ticks.0),
    ])
}
