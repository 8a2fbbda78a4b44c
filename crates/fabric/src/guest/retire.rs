//! How a guest stops without the loss of frames: it stops sending over one ring pair, or passes on all frames because another process
//! replaces this one.

use super::peer_link::Sender;
use super::{Node, emulated};
use crate::limits::{REPORT_ADDRESSES_MAX, SWITCH_MACS_MAX};
use crate::protocol::message::{GuestEvent, Loss};
use crate::protocol::report::KnownAddress;
use crate::protocol::ticket::RingPairId;
use crate::switch::port::Attachment;
use siga_ring::Violation;
use siga_ring::clock::Ticks;

/// What a guest is to stop.
#[derive(Debug, Default)]
pub(super) struct Stopping {
    /// The pairs over which the guest is to stop sending. It still sends what it has already accepted for them.
    pairs: Vec<RingPairId>,
    /// True if the guest is to report when it has passed on all frames.
    all: bool,
}

impl Node {
    /// Says whether another process can replace this one.
    pub(super) fn prepare(&mut self) {
        let memory = self.stack.memory();
        let held = ["TCP connections", "TCP listeners", "UDP sockets"].map(|kind| (kind, memory.held(kind)));
        let why_not = if !self.applications.ids().is_empty() {
            Some("applications use the stack of the guest".to_owned())
        } else if let Some((kind, count)) = held.iter().find(|(_, count)| *count > 0) {
            Some(format!("the stack of the guest has {kind}: {count}"))
        } else if self.capture.is_some() {
            Some("a capture of the guest's frames is running".to_owned())
        } else {
            None
        };
        self.send_event(&GuestEvent::Prepared { why_not }, Vec::new());
    }

    /// Stops sending over a pair. Reports it when all packets that the link has accepted are in the ring.
    pub(super) fn quiesce(&mut self, pair: RingPairId) {
        if let Some(sender) = self.links.senders.iter_mut().find(|sender| sender.pair == Some(pair)) {
            (sender.is_quiesced, sender.is_dirty) = (true, true);
        }
        self.stopping.get_or_insert_default().pairs.push(pair);
    }

    /// Passes on all frames, and takes no more frames from TAP devices.
    pub(super) fn retire(&mut self) {
        self.stopping.get_or_insert_default().all = true;
        (0..self.links.receivers.len()).for_each(|link| self.links.heat(link));
        self.account(None);
        let Some(switch) = &mut self.switch else { return };
        switch.hot_taps.clear();
        for port in switch.ports.iter_mut().flatten() {
            if let Attachment::Tap(tap) = &mut port.attachment {
                self.wakes.events.set_listening(tap.registration, &**tap, false);
                (tap.is_hot, tap.is_listening) = (false, false);
            }
        }
    }

    /// Goes on after [`Node::retire`], because no other process replaces this one.
    pub(super) fn resume(&mut self) {
        if let Some(stopping) = &mut self.stopping {
            stopping.all = false;
        }
        let Some(switch) = &mut self.switch else { return };
        for (at, port) in switch.ports.iter_mut().enumerate() {
            if let Some(Attachment::Tap(tap)) = port.as_mut().map(|port| &mut port.attachment) {
                tap.is_hot = true;
                switch.hot_taps.push(at);
            }
        }
    }

    /// Keeps addresses that the former process of this switch had learned.
    pub(super) fn learn(&mut self, addresses: Vec<KnownAddress>) {
        if let Some(switch) = &mut self.switch {
            let room = SWITCH_MACS_MAX.saturating_sub(switch.handed_over.len());
            switch.handed_over.extend(addresses.into_iter().take(room));
        }
    }

    /// Learns the addresses that were kept, because all ports are known.
    pub(super) fn learn_handed_over(&mut self, now: Ticks) {
        let at = self.clock.instant(now);
        if let Some(switch) = &mut self.switch {
            switch.learn_handed_over(at);
        }
    }

    /// Reports what the guest has stopped.
    #[cold]
    #[inline(never)]
    pub(super) fn report_stopped(&mut self, now: Ticks) {
        let Some(mut stopping) = self.stopping.take() else { return };
        for pair in std::mem::take(&mut stopping.pairs) {
            let link = self.links.senders.iter().position(|sender| sender.pair == Some(pair));
            if let Some(link) = link {
                match self.links.senders[link].flush_accepted() {
                    Ok(true) => {}
                    Ok(false) => {
                        stopping.pairs.push(pair);
                        continue;
                    }
                    Err(violation) => self.lose(link, Loss::Violation(violation.to_string())),
                }
            }
            // The partner's process that is about to be replaced still sends what it has, so the devices must go on until then.
            let is_renewed = |link: &usize| self.halves.iter().any(|half| half.link == *link);
            if let Some(link) = link.filter(|link| !is_renewed(link)) {
                self.links.senders[link].end_sending();
            }
            self.send_event(&GuestEvent::Quiet { pair }, Vec::new());
        }
        if stopping.all && self.has_passed_on_all() {
            stopping.all = false;
            let at = self.clock.instant(now);
            let mut addresses = self.switch.as_ref().map(|switch| switch.addresses(at)).unwrap_or_default();
            addresses.retain(|known| known.age_ms.is_some());
            for part in addresses.chunks(REPORT_ADDRESSES_MAX) {
                self.send_event(&GuestEvent::Learned { addresses: part.to_vec() }, Vec::new());
            }
            self.send_event(&GuestEvent::Retired, Vec::new());
        }
        self.stopping = (stopping.all || !stopping.pairs.is_empty()).then_some(stopping);
    }

    #[cold]
    fn has_passed_on_all(&mut self) -> bool {
        for link in 0..self.links.receivers.len() {
            let receiver = &mut self.links.receivers[link];
            // A violation of the ring's protocol is handled when the ring is read.
            let has_frames = receiver.ring.as_mut().is_some_and(|ring| ring.is_ready().unwrap_or(false));
            if has_frames || receiver.backpressure.waits_for().is_some() {
                self.links.heat(link);
                return false;
            }
        }
        let mut senders = self.links.senders.iter().zip(self.stack.wishes_to_transmit(0));
        let is_done = |(sender, wants): (&Sender, bool)| {
            !sender.is_linked() || !(wants || sender.is_dirty || sender.has_backlog() || sender.holds_accepted())
        };
        senders.all(is_done) && self.switch.as_deref().and_then(emulated::next_due).is_none()
    }
}

impl Sender {
    /// Sends what a link that has stopped sending has already accepted. Returns whether all of it is in the ring: nothing is collected in
    /// a block, or is on a modelled link.
    ///
    /// # Errors
    /// Returns a [`Violation`] if the partner broke the ring's protocol.
    #[cold]
    #[inline(never)]
    pub(super) fn flush_accepted(&mut self) -> Result<bool, Violation> {
        if self.ring.is_none() {
            return Ok(true);
        }
        (self.awaited, self.is_dirty) = (0, false);
        self.flush()?;
        Ok(!self.holds_accepted())
    }

    /// Returns whether packets are not yet in the ring that the link has accepted: they are collected in a block, or are on a modelled
    /// link.
    fn holds_accepted(&self) -> bool {
        self.ring.is_some() && (self.is_dirty || self.outbound.holds_packets() || self.is_on_wire())
    }
}
