//! The sums of a guest's counters, for the monitor.

use super::Node;
use super::peer_link::{Receiver, Sender, SenderCounters};
use crate::protocol::report::Totals;
use siga_ring::Consumer;

impl Node {
    /// Returns the sums of the guest's counters. Unlike `report_parts`, this makes no map of counters.
    pub(crate) fn totals(&mut self) -> Totals {
        let mut totals = Totals { connections: self.stack.connections(), ..Totals::default() };
        for (sender, receiver) in self.links.senders.iter_mut().zip(&self.links.receivers) {
            sender.add_to(&mut totals);
            receiver.add_to(&mut totals);
        }
        if let Some(switch) = &self.switch {
            switch.add_to(&mut totals);
        }
        let drops = self.stack.drops().iter().map(|(_, count)| count);
        totals.dropped = drops.fold(totals.dropped, u64::saturating_add);
        totals
    }
}

impl Sender {
    /// Adds this half's counters, summed over all ring pairs that the link has had.
    fn add_to(&mut self, totals: &mut Totals) {
        let past = |name: &str| self.past.get(name).copied().unwrap_or(0);
        let SenderCounters { backlog_full, too_long, no_partner } = self.counters;
        totals.traffic.frames_sent += past("frames_sent");
        totals.traffic.bytes_sent += past("bytes_sent");
        totals.dropped += past("target_full") + backlog_full + too_long + no_partner;
        if let Some(ring) = &mut self.ring {
            let counters = ring.counters();
            totals.traffic.frames_sent += counters.frames;
            totals.traffic.bytes_sent += counters.bytes;
            totals.dropped += counters.target_full;
            totals.buffers += ring.shape().buffer_count() as u64;
            // A violation is handled when the guest next uses the ring.
            totals.buffers_used += ring.in_flight().unwrap_or(0) as u64;
        }
    }
}

impl Receiver {
    /// Adds this half's counters, summed over all ring pairs that the link has had.
    fn add_to(&self, totals: &mut Totals) {
        let past = |name: &str| self.past.get(name).copied().unwrap_or(0);
        let own = self.ring.as_ref().map(Consumer::counters).unwrap_or_default();
        totals.traffic.frames_received += past("frames_received") + own.frames;
        totals.traffic.bytes_received += past("bytes_received") + own.bytes;
        totals.dropped += self.malformed + self.not_allowed;
    }
}
