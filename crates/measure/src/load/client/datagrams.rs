//! The client of a stream of datagrams: asks for a stream for each pair, receives it, and counts what arrived, arrived twice or in
//! another order. The network may lose datagrams, so the client ends a phase when it has all of them or when no more arrive.

use super::Client;
use super::PairState;
use crate::clock::{nanoseconds, now_ns};
use crate::limits;
use crate::load::datagrams::{Arrival, Arrivals, HEADER_BYTES, Header};
use crate::load::{Shared, UNKNOWN, spend_cpu};
use crate::socket::Sockets;
use std::io;
use std::sync::atomic::Ordering;

/// What has arrived of the stream of one pair in the running phase.
#[derive(Debug, Clone, Default)]
pub(super) struct Incoming {
    arrivals: Arrivals,
    /// Time of the last request for the stream.
    asked_ns: u64,
    /// Time from the first request to the first datagram. `None` until it has arrived.
    first_after_ns: Option<u64>,
}

impl<S: Sockets> Client<S> {
    /// Begins a phase: asks for the streams of the pairs `live`.
    pub(super) fn begin_streams(&mut self, live: &[usize]) {
        self.incoming = vec![Incoming::default(); self.pairs.len()];
        for &index in live {
            self.pairs[index].state = PairState::Receiving;
            self.ask(index);
            self.enqueue(index);
        }
    }

    fn ask(&mut self, index: usize) {
        let header = self.header(index);
        let Some(socket) = &self.pairs[index].socket else { return };
        self.incoming[index].asked_ns = now_ns();
        // If the network refuses the request, `ask_again` repeats it.
        let _ = self.sockets.send(socket, &header.bytes());
    }

    fn header(&self, index: usize) -> Header {
        let pair = self.config.first_pair.saturating_add(u32::try_from(index).unwrap_or(u32::MAX));
        Header { trial: self.config.trial, pair, phase: self.phase_number, number: 0, sent_ns: 0 }
    }

    /// Repeats the request of each pair that has received nothing for `ASK_AGAIN_AFTER`.
    pub(super) fn ask_again(&mut self) {
        let now = now_ns();
        if now < self.run.look_ns || self.run.ending {
            return;
        }
        self.run.look_ns = now + nanoseconds(limits::WAIT_TIME_MAX);
        for index in 0..self.incoming.len() {
            let Incoming { asked_ns, first_after_ns, .. } = self.incoming[index];
            let is_overdue = now.saturating_sub(asked_ns) > nanoseconds(limits::ASK_AGAIN_AFTER);
            if first_after_ns.is_none() && is_overdue && self.pairs[index].state == PairState::Receiving {
                self.ask(index);
            }
        }
    }

    /// Receives one datagram of the pair's stream. Ignores and counts a datagram that does not belong to it.
    pub(super) fn receive_datagram(&mut self, index: usize) -> io::Result<bool> {
        let own = self.header(index);
        let Some(socket) = &self.pairs[index].socket else { return Ok(false) };
        let received = self.sockets.receive(socket, &mut self.inbox)?;
        let now = now_ns();
        self.run.ending |= now >= self.run.deadline_ns;
        let datagram = &self.inbox[..received];
        let Some(header) = Header::read(datagram).filter(|it| (it.trial, it.pair) == (own.trial, own.pair)) else {
            self.counts.foreign += 1;
            return Ok(true);
        };
        if header.phase != own.phase {
            self.counts.late += 1;
            return Ok(true);
        }
        if received as u64 != self.config.workload.response {
            self.counts.short_reads += 1;
            return Ok(true);
        }
        if !header.content().check(&datagram[HEADER_BYTES..], 0, self.run.phase.stride) {
            self.counts.wrong_content += 1;
            return Ok(true);
        }
        let incoming = &mut self.incoming[index];
        incoming.first_after_ns.get_or_insert(now.saturating_sub(incoming.asked_ns));
        let expected = incoming.arrivals.expected();
        match incoming.arrivals.enter(&header, now) {
            Arrival::Duplicate => {
                self.counts.duplicated += 1;
                return Ok(true);
            }
            Arrival::Reordered => {
                self.counts.reordered += 1;
                self.missing = self.missing.saturating_sub(1);
            }
            Arrival::New => self.missing = self.missing.saturating_add(header.number - expected),
        }
        self.pairs[index].bytes += received as u64;
        self.pairs[index].transactions += 1;
        self.counts.received += received as u64;
        self.counts.transactions += 1;
        self.run.last_ns = now;
        self.run.slice(now, received as f64 / 1e6);
        if self.config.extra_cpu_ns > 0 {
            spend_cpu(self.config.extra_cpu_ns);
        }
        Ok(true)
    }

    /// Returns true if no datagram of the phase can follow: all have arrived, or none has arrived for some time after the server
    /// stopped. This time is four times as long as the first datagram took to arrive, within limits.
    pub(super) fn have_streams_ended(&mut self, shared: &Shared) -> bool {
        shared.stopped.store(true, Ordering::Release);
        let expected = shared.expected.load(Ordering::Acquire);
        if expected == UNKNOWN {
            return false;
        }
        let now = now_ns();
        if self.run.told_ns == 0 {
            self.run.told_ns = now;
        }
        let first = self.incoming.iter().filter_map(|incoming| incoming.first_after_ns).max().unwrap_or(0);
        let (least, most) = (limits::DRAIN_TIME_MIN, siga_plan::limits::DATAGRAM_LOST_AFTER);
        let patience = first.saturating_mul(4).clamp(nanoseconds(least), nanoseconds(most));
        let missing = expected.saturating_sub(self.counts.received + self.gone);
        let is_over = missing == 0 || now.saturating_sub(self.run.last_ns.max(self.run.told_ns)) >= patience;
        if is_over {
            self.gone += missing;
        }
        is_over
    }

    /// Returns the sum of the jitters of all streams, and their number.
    pub(super) fn jitter(&self) -> (f64, u32) {
        let jitters = self.incoming.iter().filter_map(|incoming| incoming.arrivals.jitter_ns());
        jitters.fold((0.0, 0), |(sum, count), jitter| (sum + jitter, count + 1))
    }
}
