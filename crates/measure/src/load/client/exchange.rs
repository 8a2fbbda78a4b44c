//! The steps of an exchange of a client's pair: connect, send, receive, close, and handle a failure of these steps.

use super::{Client, Pair, PairState, to_ns};
use crate::clock::{nanoseconds, now_ns};
use crate::limits;
use crate::load::content::{Direction, Message};
use crate::load::spend_cpu;
use crate::socket::{Sockets, Token};
use siga_plan::workload::{Close, Shape};
use std::cmp::Reverse;
use std::io;
use std::time::Duration;

/// Maximum number of operations that one pair performs before the other pairs get their turn.
const TURN: usize = 16;
/// The same for a stream beside RR, so that RR waits for the network and not for this thread.
const TURN_BESIDE: usize = 1;

impl<S: Sockets> Client<S> {
    /// Performs operations of one pair until the pair has to wait or its turn is over.
    pub(super) fn advance(&mut self, index: usize) -> io::Result<()> {
        for _ in 0..if self.pairs[index].is_beside { TURN_BESIDE } else { TURN } {
            let outcome = match self.pairs[index].state {
                PairState::Idle => Ok(self.start_closed(index)),
                PairState::Connecting => self.finish_connect(index).inspect(|&connected| {
                    if connected {
                        self.pairs[index].state = PairState::Sending;
                    }
                }),
                PairState::Sending => self.send(index),
                PairState::Receiving => self.receive(index),
                PairState::Closing => self.drain(index),
                PairState::BothWays => self.both_ways(index),
                PairState::Failed => Ok(false),
            };
            match outcome {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    self.fail(index, &error);
                    return Ok(());
                }
            }
        }
        self.enqueue(index);
        Ok(())
    }

    fn start_closed(&mut self, index: usize) -> bool {
        let is_planned = self.run.phase.rate.is_some() && !self.pairs[index].is_beside;
        if is_planned || self.over(now_ns()) {
            return false;
        }
        self.start(index, None)
    }

    /// In an open loop, begins all exchanges whose planned start has come.
    pub(super) fn start_due(&mut self) {
        let now = now_ns();
        if self.over(now) {
            return;
        }
        while let Some(&Reverse((planned, index))) = self.run.plan.peek()
            && planned <= now
        {
            self.run.plan.pop();
            if self.start(index, Some(planned)) {
                self.enqueue(index);
            }
        }
    }

    /// Begins an exchange of the pair `index`. `planned` is its planned start in an open loop. Returns false if the exchange
    /// failed at its first step.
    fn start(&mut self, index: usize, planned: Option<u64>) -> bool {
        if self.config.extra_cpu_ns > 0 {
            spend_cpu(self.config.extra_cpu_ns);
        }
        let now = now_ns();
        let pair = &mut self.pairs[index];
        let crr = pair.workload.shape == Shape::Crr;
        self.run.busy += usize::from(!pair.is_beside);
        pair.started_ns = now;
        pair.planned_ns = planned.unwrap_or(now);
        pair.offset = 0;
        pair.state = if pair.workload.shape == Shape::Strb { PairState::BothWays } else { PairState::Sending };
        if pair.workload.udp {
            pair.opened += 1;
            pair.connection = identity(self.config.first_pair, index, pair.opened, u64::MAX);
        }
        if !crr {
            return true;
        }
        match self.open(index) {
            Ok(()) => true,
            Err(error) => {
                self.fail(index, &error);
                false
            }
        }
    }

    /// Starts to connect the pair `index` and gives the connection a new identity.
    pub(super) fn open(&mut self, index: usize) -> io::Result<()> {
        let pair = &mut self.pairs[index];
        let number = if self.config.workload.beside > 0 { usize::from(pair.is_beside) } else { index };
        let endpoint = &self.config.endpoints[number % self.config.endpoints.len()];
        pair.state = PairState::Connecting;
        pair.ended = false;
        pair.opened += 1;
        pair.message = 0;
        pair.connection = identity(self.config.first_pair, index, pair.opened, pair.workload.request);
        pair.socket = Some(self.sockets.connect(endpoint, Token(index))?);
        Ok(())
    }

    pub(super) fn finish_connect(&mut self, index: usize) -> io::Result<bool> {
        let Some(socket) = &self.pairs[index].socket else { return Ok(false) };
        let connected = self.sockets.connected(socket)?;
        self.counts.connections += u64::from(connected);
        Ok(connected)
    }

    fn send(&mut self, index: usize) -> io::Result<bool> {
        let pair = &mut self.pairs[index];
        let workload = pair.workload;
        if self.run.ending && workload.is_stream() {
            return Ok(false);
        }
        let Some(socket) = &pair.socket else { return Ok(false) };
        let left = usize::try_from(workload.request - pair.offset).unwrap_or(usize::MAX);
        let chunk = left.min(self.outbox.len());
        let number = if workload.udp { 0 } else { pair.message };
        let message = Message { connection: pair.connection, number, direction: Direction::Request };
        message.write(&mut self.outbox[..chunk], pair.offset, self.run.phase.stride);
        let sent = self.sockets.send(socket, &self.outbox[..chunk])? as u64;
        pair.offset += sent;
        pair.bytes += sent;
        self.counts.sent += sent;
        let whole = pair.offset == workload.request;
        if whole {
            pair.offset = 0;
            pair.state = PairState::Receiving;
        }
        if workload.shape == Shape::Strp {
            let now = now_ns();
            self.run.slice(now, sent as f64 / 1e6);
            self.over(now);
        }
        // Return true if a part of the request is left to send, so that the caller continues with this client-server pair. If the
        // request was sent completely, return false, because its response cannot have arrived yet. `poll` reports the pair's socket
        // when the response arrives.
        Ok(!whole)
    }

    fn receive(&mut self, index: usize) -> io::Result<bool> {
        let workload = self.pairs[index].workload;
        if workload.is_datagram_stream() {
            return self.receive_datagram(index);
        }
        let pair = &mut self.pairs[index];
        let Some(socket) = &pair.socket else { return Ok(false) };
        let left = usize::try_from(workload.response - pair.offset).unwrap_or(usize::MAX);
        // For UDP, the buffer has room for one byte more than the expected datagram. So the client notices a datagram that is
        // too long.
        let room = if workload.udp { self.inbox.len() } else { left.min(self.inbox.len()) };
        let received = self.sockets.receive(socket, &mut self.inbox[..room])?;
        let number = if workload.udp { 0 } else { pair.message };
        let message = Message { connection: pair.connection, number, direction: Direction::Response };
        let right = message.check(&self.inbox[..received], pair.offset, self.run.phase.stride);
        if workload.udp && !(right && received == left) {
            self.misfit(right);
            return Ok(true);
        }
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.counts.wrong_content += u64::from(!right);
        pair.offset += received as u64;
        pair.bytes += received as u64;
        self.counts.received += received as u64;
        if workload.shape == Shape::Strg {
            let now = now_ns();
            if pair.is_beside {
                self.run.beside_bytes += received as u64;
                self.run.beside_last_ns = now;
            } else {
                self.run.last_ns = now;
                self.run.slice(now, received as f64 / 1e6);
            }
            self.run.ending |= now >= self.run.deadline_ns;
        }
        if pair.offset < workload.response {
            // A read that returned fewer bytes than requested has emptied the socket, so the pair waits: `poll` reports the
            // socket again when more data arrives. But `poll` does not report the end of the stream a second time, so if it was
            // reported, read again.
            return Ok(received == room || pair.ended);
        }
        match (workload.shape, self.config.close) {
            (Shape::Crr, Close::Server) => pair.state = PairState::Closing,
            (Shape::Crr, Close::Client) => {
                self.hang_up(index);
                self.complete(index);
            }
            (Shape::Rr | Shape::Strg | Shape::Strp | Shape::Strb, _) => self.complete(index),
        }
        Ok(true)
    }

    /// Counts a datagram that is not the expected response. `right` says whether its content is correct. If so, its length must
    /// be wrong. If the content is wrong, and the client has given up datagrams as lost before, the datagram counts as a late
    /// response. Otherwise its content counts as damaged.
    fn misfit(&mut self, right: bool) {
        if right {
            self.counts.short_reads += 1;
        } else if self.counts.lost > 0 {
            self.counts.late += 1;
        } else {
            self.counts.wrong_content += 1;
        }
    }

    /// Checks whether the server has ended its stream, which must contain nothing after the response.
    fn drain(&mut self, index: usize) -> io::Result<bool> {
        let Some(socket) = &self.pairs[index].socket else { return Ok(false) };
        if self.sockets.receive(socket, &mut self.inbox[..1])? != 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer sent more bytes than the response has"));
        }
        self.hang_up(index);
        self.complete(index);
        Ok(true)
    }

    fn hang_up(&mut self, index: usize) {
        if let Some(socket) = self.pairs[index].socket.take() {
            self.sockets.close(socket);
        }
    }

    fn complete(&mut self, index: usize) {
        let now = now_ns();
        let pair = &mut self.pairs[index];
        pair.state = PairState::Idle;
        pair.message += 1;
        pair.transactions += 1;
        pair.offset = 0;
        if pair.is_beside {
            return;
        }
        self.counts.transactions += 1;
        self.run.busy = self.run.busy.saturating_sub(1);
        self.run.last_ns = now;
        // The latency of an exchange that began in an earlier phase is not recorded, because it would include the pause at the
        // quiescent point.
        if pair.started_ns >= self.run.start_ns {
            self.run.latency.saturating_record(now.saturating_sub(pair.started_ns).max(1));
            if let Some(corrected) = &mut self.run.corrected {
                corrected.saturating_record(now.saturating_sub(pair.planned_ns).max(1));
            }
        }
        if !self.config.workload.is_stream() {
            self.run.slice(now, 1.0);
        }
        self.plan_next(index);
    }

    fn plan_next(&mut self, index: usize) {
        if self.run.phase.rate.is_some() {
            let next = self.pairs[index].planned_ns + to_ns(self.run.period_ns);
            self.run.plan.push(Reverse((next, index)));
        }
    }

    /// Counts the failure `error` of a pair, closes its connection, and decides whether the pair continues with a new one.
    fn fail(&mut self, index: usize, error: &io::Error) {
        let connecting = self.pairs[index].state == PairState::Connecting;
        self.hang_up(index);
        self.run.busy = self.run.busy.saturating_sub(usize::from(!self.pairs[index].is_beside));
        if connecting {
            self.counts.connect_failures += 1;
        } else if error.kind() == io::ErrorKind::UnexpectedEof {
            self.counts.short_reads += 1;
        } else {
            self.counts.resets += 1;
        }
        if self.config.workload.shape != Shape::Crr {
            self.pairs[index].state = PairState::Failed;
            self.failed += 1;
            return;
        }
        // Without this pause, the client would retry without limit if the server refuses connections, and so use a whole CPU.
        std::thread::sleep(Duration::from_micros(100));
        self.pairs[index].state = PairState::Idle;
        self.plan_next(index);
        if self.run.phase.rate.is_none() {
            self.enqueue(index);
        }
    }

    /// Counts each overdue response datagram as lost. The pair that waited for it begins its next exchange.
    pub(super) fn give_up_lost(&mut self) -> io::Result<()> {
        let now = now_ns();
        if now < self.run.look_ns {
            return Ok(());
        }
        // The check for overdue datagrams visits every pair. So it runs only once in `WAIT_TIME_MAX`, and not after every
        // response.
        self.run.look_ns = now + u64::from(limits::WAIT_TIME_MAX.subsec_nanos());
        let limit = nanoseconds(siga_plan::limits::DATAGRAM_LOST_AFTER);
        for index in 0..self.pairs.len() {
            let overdue = |pair: &Pair<S::Socket>| {
                pair.state == PairState::Receiving && now.saturating_sub(pair.started_ns) > limit
            };
            if !overdue(&self.pairs[index]) {
                continue;
            }
            // This thread may have had no CPU time for a while. Then the response may have arrived in time and wait in the
            // socket. So receive before the response counts as lost.
            self.advance(index)?;
            let pair = &mut self.pairs[index];
            if overdue(pair) {
                pair.state = PairState::Idle;
                self.counts.lost += 1;
                self.run.busy = self.run.busy.saturating_sub(1);
                self.plan_next(index);
                self.enqueue(index);
            }
        }
        Ok(())
    }
}

/// Returns the identity of a connection: pair `index` of this process, connection number `opened` of this pair. If `request`
/// (the length of a request in bytes) is less than 8, the identity is cut to this length.
fn identity(first_pair: u32, index: usize, opened: u64, request: u64) -> u64 {
    let whole = ((u64::from(first_pair) + index as u64 + 1) << 40) ^ opened.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    if request >= 8 { whole } else { whole & ((1 << (8 * request)) - 1) }
}
