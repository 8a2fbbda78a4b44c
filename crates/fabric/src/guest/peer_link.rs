//! Links: a link is this guest's end of the ring pair to one partner. Each link has a sender and a receiver.
//!
//! If the partner has no empty buffer, a *sender* applies the rule of the network. A packet of this guest's stack stays in the
//! stack (rule `pending`), or is dropped and counted (rule `drop`). A forwarded packet waits in a bounded queue, so that one slow
//! partner never blocks the others. A *receiver* is *hot* while there is traffic: the guest then polls its ring. Without traffic,
//! the receiver requests a notification from the partner and is no longer polled.
//!
//! Order of calls: first `attach` with a ring; then any number of `transmit`, `forward`, or `send_zero_copy` with `flush`; then
//! `detach`. Every method that uses the ring returns an error if the partner violated the ring's protocol. The guest then detaches
//! the link to this partner and no other link.

use super::backlog::Backlog;
use super::port_filter::PortFilter;
use super::senders::Senders;
use super::wire::Wire;
use crate::backpressure::{self, Backpressure};
use crate::convert;
use crate::counters::{self, Counters};
use crate::device::{self, Inbound, Outbound, Sent, Source, Whole};
use crate::limits::{COLOCATED_ROUND_BYTES, DROPS_AT_ONCE_MAX, TRANSMIT_AT_ONCE_MAX};
use crate::protocol::message::{GuestDevice, MemberId};
use crate::protocol::ticket::RingPairId;
use crate::switch::capture::Capture;
use siga_model::features::DriverFeatures;
use siga_model::prefix::broadcast;
use siga_model::topology::{Full, NetworkKind};
use siga_ring::clock::Ticks;
use siga_ring::{Consumer, Producer, Retainer, Violation, WakeFd};
use siga_stack::link::frame::Marks;
use siga_stack::stack::Transmit;
use siga_stack::wire::address::Prefix;
use std::net::Ipv4Addr;

/// The partner or partners at the other end of a link.
#[derive(Debug, Clone)]
pub(crate) enum Partner {
    /// One partner: a device of another guest.
    Member(MemberId),
    /// All partners of a network that can join more than two guests. The link has no ring: each of its packets is copied to the
    /// links of all partners.
    Group,
}

/// Whether a buffer is available for a zero-copy send.
#[derive(Debug)]
pub(crate) enum ZeroCopyRoom {
    /// A buffer is available now. The retainer will keep the payload in the buffer until it is acknowledged.
    Now(Retainer),
    /// A buffer will be available at this time at the latest. Until then, acknowledgements may free retained buffers. After this
    /// time, retained bytes are copied out of the ring to free their buffers.
    Soon(Ticks),
    /// No buffer will become available for a zero-copy send. The caller has to use the send buffer.
    Never,
}

/// The sending half of a link.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) partner: Partner,
    /// Index of the link's device in the guest's configuration.
    pub(crate) device: usize,
    /// The partner's addresses, to which the stack has routes over this link.
    pub(crate) hosts: Vec<Prefix>,
    pub(crate) pair: Option<RingPairId>,
    pub(super) ring: Option<Producer>,
    pub(super) outbound: Outbound,
    kind: NetworkKind,
    pub(super) settings: device::Settings,
    full: Full,
    features: DriverFeatures,
    /// Forwarded packets that wait for a ring pair or a buffer.
    pub(super) backlog: Backlog,
    /// True if the sender is in the list of [`Senders`].
    pub(super) is_active: bool,
    /// True if the next call of `transmit` may have something to do, because packets wait for `flush` or buffers may have become
    /// free.
    pub(crate) is_dirty: bool,
    /// Number of buffers that must be free before the sender sends again. 0 if the sender does not wait for buffers.
    pub(super) awaited: usize,
    /// True while packets for this partner cause back-pressure: they stay in the ring of their sender until this link has two free
    /// buffers and an empty queue.
    pub(super) backpressure: bool,
    /// True if the partner did not free buffers before back-pressure reached its time limit. Then packets for this partner cause no
    /// back-pressure until the queue is empty.
    is_slow: bool,
    /// If all buffers are retained: the time until which zero-copy sends wait for a buffer.
    crowded_until: Option<Ticks>,
    /// True if the control program ordered the guest to stop sending, because it is about to end the ring pair.
    pub(crate) is_quiesced: bool,
    /// True if a ring pair was requested and the control program has not answered yet.
    pub(crate) asked: bool,
    /// If the ring pair was refused: the time until which it is not requested again.
    pub(crate) refused_until: Option<Ticks>,
    pub(super) counters: SenderCounters,
    pub(super) past: Counters,
    /// The modelled link to the partner, if there is one.
    pub(super) wire: Option<Wire>,
}

#[derive(Debug, Default)]
pub(super) struct SenderCounters {
    pub(super) backlog_full: u64,
    pub(super) too_long: u64,
    pub(super) no_partner: u64,
}

impl Sender {
    pub(crate) fn new(partner: Partner, place: usize, device: &GuestDevice) -> Self {
        let GuestDevice { kind, full, features, .. } = *device;
        let (queueing, mac) = (device.queueing, device.mac);
        let claw = device.claw.clone();
        let settings = device::Settings { queueing, claw, is_gateway: mac.is_none(), mac, captures: false };
        Self {
            partner,
            device: place,
            hosts: Vec::new(),
            pair: None,
            ring: None,
            outbound: device::outbound(kind, &settings),
            kind,
            settings,
            full,
            features,
            backlog: Backlog::new(device.netdev_max_backlog),
            is_active: false,
            is_dirty: false,
            awaited: 0,
            backpressure: false,
            is_slow: false,
            crowded_until: None,
            is_quiesced: false,
            asked: false,
            refused_until: None,
            counters: SenderCounters::default(),
            past: Counters::new(),
            wire: Wire::of(device),
        }
    }

    pub(crate) fn attach(&mut self, pair: RingPairId, mut ring: Producer) {
        self.detach();
        convert::prepare(&mut ring, self.features, self.kind);
        counters::add(&mut self.past, &counters::named(self.outbound.counters()));
        self.outbound = device::outbound(self.kind, &self.settings);
        (self.pair, self.ring) = (Some(pair), Some(ring));
        (self.is_quiesced, self.asked, self.is_dirty, self.awaited) = (false, false, true, 0);
    }

    /// Returns the number of bytes in the frames that this link has sent to its present partner.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.ring.as_ref().map_or(0, |ring| ring.counters().bytes)
    }

    pub(crate) fn detach(&mut self) {
        if let Some(ring) = self.ring.take() {
            counters::add(&mut self.past, &counters::producer_counters(&ring.counters()));
        }
        (self.pair, self.asked, self.is_quiesced, self.awaited) = (None, false, false, 0);
        self.lose_wire();
        self.backlog.free_spare();
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.ring.is_some()
    }

    /// Returns whether packets for this partner should stay in the ring in which they arrive.
    #[inline]
    pub(crate) fn has_backpressure(&mut self) -> bool {
        self.backpressure && self.still_has_backpressure()
    }

    /// Ends back-pressure that is no longer needed. Returns whether it is still needed.
    #[inline(never)]
    fn still_has_backpressure(&mut self) -> bool {
        // An error is a violation of the ring's protocol. Ignore it here, because the next use of the ring returns it again.
        let has_room = |ring: &mut Producer| ring.in_flight().is_ok_and(|used| used + 2 <= ring.round());
        let goes_on = self.backlog.is_empty() && self.ring.as_mut().is_some_and(has_room);
        self.backpressure = self.ring.is_some() && !goes_on;
        self.backpressure
    }

    /// Ends back-pressure that packets for this partner caused, because the partner did not free buffers in time.
    pub(crate) fn backpressure_timed_out(&mut self) {
        (self.backpressure, self.is_slow) = (false, true);
    }

    /// Returns whether the link may have something to do without output of the stack: packets to publish, queued packets, or a
    /// wait for buffers.
    #[inline]
    pub(crate) fn may_have_work(&self) -> bool {
        self.is_dirty || self.awaited > 0 || !self.backlog.is_empty()
    }

    /// Returns whether the event loop has to look at this sender: it may have work, or packets for its partner cause back-pressure.
    #[inline]
    pub(super) fn needs_care(&self) -> bool {
        !self.backlog.is_empty() || (self.ring.is_some() && (self.is_dirty || self.awaited > 0 || self.backpressure))
    }

    /// Returns whether forwarded packets wait for a ring pair or a buffer.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Returns whether half of the queue is in use. The other half is reserved for packets that go only to this partner.
    pub(crate) fn is_crowded(&self) -> bool {
        self.backlog.is_half_full()
    }

    /// Sends, queues or drops one forwarded packet. With the driver feature `copy_once`, the packet is copied directly from the
    /// inbound ring to this link's ring if possible (decision 012).
    ///
    /// # Errors
    /// Returns a [`Violation`] if the partner broke the ring's protocol.
    #[inline]
    pub(crate) fn forward<F: FnMut(&mut [u8])>(
        &mut self,
        len: usize,
        marks: Marks,
        mut fill: F,
    ) -> Result<(), Violation> {
        let copies_once = self.features.copy_once && self.reaches_ring_at_once();
        let drops = self.drops();
        if let Some(ring) = self.ring.as_mut().filter(|_| copies_once) {
            match self.outbound.send(ring, &mut Whole { packet: Transmit { len, marks }, fill: &mut fill })? {
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
        self.keep(len, marks, &mut fill);
        Ok(())
    }

    /// Returns whether a packet goes to the ring at once: no other packet waits for it, and there is no modelled link.
    #[inline]
    fn reaches_ring_at_once(&self) -> bool {
        self.backlog.is_empty() && !self.is_quiesced && self.wire.is_none()
    }

    /// Returns whether a packet is dropped, and not queued, if the partner has no empty buffer.
    pub(super) fn drops(&self) -> bool {
        self.full == Full::Drop && self.outbound.is_open()
    }

    #[inline(never)]
    fn keep(&mut self, len: usize, marks: Marks, fill: &mut dyn FnMut(&mut [u8])) {
        if !self.backlog.push(len, marks, fill) {
            self.counters.backlog_full += 1;
            return;
        }
        self.is_dirty = true;
        self.backpressure = self.full == Full::Pending && !self.is_slow && !self.is_quiesced && self.ring.is_some();
    }

    /// Sends queued packets, then packets of `source`, until no buffer is free or no packet is left. Returns whether any packet was
    /// sent or dropped. If none was, returns false even if packets wait. Otherwise the guest would keep polling, and so use CPU
    /// time that the partner may need to free buffers.
    ///
    /// # Errors
    /// Returns a [`Violation`] if the partner broke the ring's protocol.
    pub(crate) fn transmit<S: Source>(&mut self, source: &mut S) -> Result<bool, Violation> {
        let drops = self.drops();
        let Some(ring) = self.ring.as_mut().filter(|_| !self.is_quiesced) else { return Ok(false) };
        let (mut full, mut gone) = (false, 0);
        while let Some((bytes, marks)) = self.backlog.front() {
            let packet = Transmit { len: bytes.len(), marks };
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
            self.backlog.drop_front();
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
        self.awaited = if full { 1 } else { held };
        self.is_dirty = count == TRANSMIT_AT_ONCE_MAX;
        Ok(gone + count > 0)
    }

    /// Returns whether a buffer is available for a zero-copy send: a frame whose payload stays in the buffer until it is
    /// acknowledged.
    pub(crate) fn zero_copy_room(&mut self, now: Ticks, retain_time: Ticks) -> ZeroCopyRoom {
        let goes = self.features.zero_copy && self.full == Full::Pending && self.reaches_ring_at_once();
        let Some(ring) = self.ring.as_ref().filter(|_| goes) else { return ZeroCopyRoom::Never };
        if let Some(since) = ring.next_retained_at() {
            let waits = now.since(since) < retain_time;
            self.crowded_until = waits.then(|| Ticks(since.0 + retain_time.0));
        }
        // A writer that had to wait continues only when half of the buffers are free. So it writes more bytes after each wake-up
        // and needs fewer wake-ups (decision 013).
        let crowded = |until: &mut Ticks| now >= *until || 2 * ring.retained_buffers() <= ring.round();
        self.crowded_until.take_if(crowded);
        match self.crowded_until {
            Some(until) => ZeroCopyRoom::Soon(until),
            None => ZeroCopyRoom::Now(ring.retainer()),
        }
    }

    /// Returns whether the ring has an empty buffer. Also returns true if there is no ring.
    pub(crate) fn has_buffer(&mut self) -> bool {
        // An error is a violation of the ring's protocol. Ignore it here, because the next use of the ring returns it again.
        self.ring.as_mut().is_none_or(|ring| ring.has_room(1).unwrap_or(true))
    }

    /// Builds a frame in a buffer in which its payload stays until it is acknowledged. The caller then calls [`Sender::flush`],
    /// which publishes the frame to the partner.
    ///
    /// # Errors
    /// Returns a [`Violation`] if the partner broke the ring's protocol.
    pub(crate) fn send_zero_copy<S: Source>(&mut self, source: &mut S) -> Result<Sent, Violation> {
        let Some(ring) = self.ring.as_mut() else { return Ok(Sent::Nothing) };
        let sent = self.outbound.send(ring, source)?;
        if sent == Sent::Full {
            self.awaited = 1;
        }
        Ok(sent)
    }

    /// Makes all packets in filled buffers visible to the partner.
    ///
    /// # Errors
    /// Returns a [`Violation`] if the partner broke the ring's protocol.
    pub(crate) fn flush(&mut self) -> Result<(), Violation> {
        if let Some(ring) = &mut self.ring {
            self.awaited = self.awaited.max(self.outbound.flush(ring)?);
        }
        Ok(())
    }

    /// Returns whether the sender waited for free buffers and can now continue.
    pub(crate) fn has_room(&mut self) -> bool {
        let Some(ring) = self.ring.as_mut().filter(|_| self.awaited > 0) else { return false };
        // An error is a violation of the ring's protocol. Ignore it here, because the next use of the ring returns it again.
        ring.in_flight().is_ok_and(|in_flight| in_flight == 0 || in_flight + self.awaited <= ring.round())
    }

    /// Reads and checks the index of buffers that the partner has consumed, even if nothing waits for a buffer.
    ///
    /// # Errors
    /// Returns a [`Violation`] if the partner broke the ring's protocol.
    pub(crate) fn check_partner(&mut self) -> Result<(), Violation> {
        self.ring.as_mut().map_or(Ok(()), |ring| ring.in_flight().map(drop))
    }

    /// If the sender waits for buffers, requests a notification from the partner when enough of them are free. Returns false if
    /// enough are already free.
    pub(crate) fn request_room(&mut self) -> bool {
        let waits = (self.awaited > 0 || self.backpressure && !self.is_quiesced) && !self.waits_for_channel();
        let Some(ring) = self.ring.as_mut().filter(|_| waits) else { return true };
        // A sender that needs only one buffer requests the notification for half of the buffers. So the partner sends fewer
        // notifications. The other half is still full then, so the partner need not wait for packets.
        let awaited = if self.awaited <= 1 { ring.round() / 2 } else { self.awaited };
        ring.want_room(awaited).unwrap_or(false)
    }

    /// Drops all queued packets, because there is no ring pair over which they can be sent.
    pub(crate) fn drop_backlog(&mut self) {
        self.counters.no_partner += self.backlog.len() as u64;
        self.backlog.clear();
    }

    pub(crate) fn count_no_partner(&mut self) {
        self.counters.no_partner += 1;
    }

    /// Returns the number of frames sent over the current ring pair.
    pub(crate) fn frames_sent(&self) -> u64 {
        self.ring.as_ref().map_or(0, |ring| ring.counters().frames)
    }

    pub(crate) fn packet_bytes_max(&self) -> usize {
        self.outbound.packet_bytes_max()
    }

    /// Returns this half's counters, summed over all ring pairs that the link has had.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.past.clone();
        if let Some(ring) = &self.ring {
            counters::add(&mut counters, &counters::producer_counters(&ring.counters()));
        }
        let own = &self.counters;
        let own = [("backlog_full", own.backlog_full), ("too_long", own.too_long), ("no_partner", own.no_partner)];
        counters::add(&mut counters, &counters::named(own.into_iter().chain(self.outbound.counters())));
        self.add_wire_counters(&mut counters);
        counters
    }
}

/// The receiving half of a link.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) ring: Option<Consumer>,
    pub(crate) wake_fd: Option<(u64, WakeFd)>,
    pub(crate) inbound: Inbound,
    kind: NetworkKind,
    /// The broadcast addresses of the device's networks. Each received packet is compared with them.
    pub(crate) broadcasts: Vec<Ipv4Addr>,
    /// True if the receiver's ring is polled. If false, the receiver has requested a notification or has no ring.
    pub(crate) is_hot: bool,
    pub(crate) backpressure: Backpressure,
    /// True if the card takes no frames from this guest, because an output queue is full.
    pub(super) waits_for_card: bool,
    pub(crate) last_traffic: Ticks,
    pub(crate) malformed: u64,
    /// Packets that the guest's port filter has dropped.
    pub(crate) not_allowed: u64,
    /// How many frames the link had sent and received at the last idle check that found traffic. `last_look` is the time of that
    /// check.
    pub(crate) traffic_seen: u64,
    pub(crate) last_look: Ticks,
    /// True if the guest has reported the ring pair as idle.
    pub(crate) idle_reported: bool,
    pub(super) past: Counters,
}

impl Receiver {
    pub(crate) fn new(device: &GuestDevice) -> Self {
        let kind = device.kind;
        Self {
            ring: None,
            wake_fd: None,
            inbound: device::inbound(kind),
            kind,
            broadcasts: device.addresses.iter().filter_map(|own| broadcast(*own)).collect(),
            is_hot: false,
            backpressure: Backpressure::default(),
            waits_for_card: false,
            last_traffic: Ticks(0),
            malformed: 0,
            not_allowed: 0,
            traffic_seen: 0,
            last_look: Ticks(0),
            idle_reported: false,
            past: Counters::new(),
        }
    }

    pub(crate) fn attach(&mut self, ring: Consumer, wake_fd: (u64, WakeFd), now: Ticks) {
        self.inbound = device::inbound(self.kind);
        (self.ring, self.wake_fd) = (Some(ring), Some(wake_fd));
        (self.last_traffic, self.last_look, self.traffic_seen, self.idle_reported) = (now, now, 0, false);
    }

    /// Returns the number of bytes in the frames that were received from the present partner.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.ring.as_ref().map_or(0, |ring| ring.counters().bytes)
    }

    pub(crate) fn detach(&mut self) -> Option<(u64, WakeFd)> {
        if let Some(ring) = self.ring.take() {
            counters::add(&mut self.past, &counters::consumer_counters(&ring.counters()));
        }
        (self.is_hot, self.backpressure, self.waits_for_card) = (false, Backpressure::default(), false);
        self.wake_fd.take()
    }

    /// Returns this half's counters, summed over all ring pairs that the link has had.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.past.clone();
        if let Some(ring) = &self.ring {
            counters::add(&mut counters, &counters::consumer_counters(&ring.counters()));
        }
        counters::add(
            &mut counters,
            &counters::named([("malformed", self.malformed), ("not_allowed", self.not_allowed)]),
        );
        counters
    }

    /// Returns the number of frames received over the current ring pair.
    pub(crate) fn frames_received(&self) -> u64 {
        self.ring.as_ref().map_or(0, |ring| ring.counters().frames)
    }

    /// Returns the clock ticks spent on copying out of this link's inbound rings, summed over all its ring pairs so far.
    pub(crate) fn copy_ticks(&self) -> u64 {
        let past = self.past.get("copy_ticks").copied().unwrap_or(0);
        past + self.ring.as_ref().map_or(0, |ring| ring.counters().copy_ticks.0)
    }
}

/// The links of a guest. The index of a link is also the number of its device in the stack.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) senders: Senders,
    pub(super) receivers: Vec<Receiver>,
    /// The indexes of the hot links, whose rings are polled.
    pub(super) hot: Vec<usize>,
    /// The links that the current or last sleep has made cold.
    pub(super) cooled: Vec<usize>,
    pub(super) backpressure_times: backpressure::Times,
    /// [`crate::limits::RETAIN_TIME_MAX`] in ticks of the ring's clock.
    pub(super) retain_time: Ticks,
    /// [`crate::limits::HOT_TIME`] in ticks of the ring's clock.
    pub(super) hot_time: Ticks,
    /// True if this poll iteration received a packet larger than [`HELD_ANSWER_BYTES_MAX`](crate::limits::HELD_ANSWER_BYTES_MAX).
    pub(super) took_large: bool,
    /// True if this guest runs on the CPU of its partners.
    pub(super) is_colocated: bool,
    /// The links whose packets go over a modelled link.
    pub(super) wired: Vec<usize>,
    /// What others may open to this guest. `None`: everything.
    pub(super) filter: Option<Box<PortFilter>>,
    /// The capture of the blocks that this guest sends and receives, if it runs.
    pub(super) captured_blocks: Option<Capture>,
}

impl Links {
    /// Adapts the rings to where this guest runs. Guests that run on one CPU share its cache, so rings keep their bytes there.
    pub(super) fn set_colocated(&mut self, colocated: bool) {
        if colocated != self.is_colocated {
            self.is_colocated = colocated;
            (0..self.senders.len()).for_each(|link| self.adapt(link));
        }
    }

    /// Adapts the ring of one link to where this guest runs.
    pub(super) fn adapt(&mut self, link: usize) {
        if let Some(ring) = &mut self.senders[link].ring {
            ring.set_round_bytes_most(if self.is_colocated { COLOCATED_ROUND_BYTES } else { usize::MAX });
        }
    }

    /// Returns whether frames must stay in this link's ring now, because the link is under back-pressure. Ends back-pressure that
    /// is no longer needed or has reached its time limit.
    #[inline]
    pub(super) fn is_held(&mut self, link: usize, now: Ticks) -> bool {
        let Some((to, until)) = self.receivers[link].backpressure.waits_for() else { return false };
        let backpressure = self.senders[to].has_backpressure();
        if backpressure && now < until {
            return true;
        }
        if backpressure {
            self.senders[to].backpressure_timed_out();
        }
        self.receivers[link].backpressure.end();
        false
    }
}
