//! The client of every workload: starts the exchanges of all its pairs and measures them. A pair is one client connection and
//! its server connection. An exchange is one request and its response.
//!
//! In a closed loop, a pair begins its next exchange when its last exchange has ended. In an open loop (a plan with a rate),
//! exchanges are planned at regular intervals. A pair that is still busy at the planned time begins as soon as it is free. In
//! an open loop, a second latency counts from the planned start, which corrects for coordinated omission.
//!
//! The client counts each failure. A standing connection that fails is not replaced. A pair of the workload CRR, which opens a
//! connection for each exchange, continues with a new connection. The driver returns an error only when all pairs have failed.

mod both_ways;
mod datagrams;
mod exchange;

use super::{PUBLISH_EVERY, Shared, UNKNOWN, buffer};
use crate::clock::now_ns;
use crate::limits;
use crate::socket::{Endpoint, Ready, Sockets, Token};
use datagrams::Incoming;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use siga_plan::workload::Close;
use siga_plan::workload::{Shape, Workload};
use siga_results::histogram;
use siga_results::record::{BesideRecord, LoadCounts};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The configuration of a client, which is the same in all phases of a trial.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientConfig {
    /// The workload to run.
    pub workload: Workload,
    /// Number of connections that this process serves: one for each pair, then one for each stream beside them.
    pub pairs: u32,
    /// Number of this process's first pair, counted over all client processes of the trial. It makes the connection identities
    /// of different processes unique.
    pub first_pair: u32,
    /// Endpoints at which the servers listen. Pair i connects to endpoint i modulo the number of endpoints. Beside streams, there are
    /// two: the second one is that of the streams.
    pub endpoints: Vec<Endpoint>,
    /// In CRR, the side that closes a connection first.
    pub close: Close,
    /// Maximum size of one write, and size of the receive buffer, in bytes.
    pub write_bytes: u64,
    /// CPU time in nanoseconds that the client uses in user mode before each exchange, or for each datagram of a stream: a known
    /// cost for calibration.
    pub extra_cpu_ns: u64,
    /// Random number that datagrams of this trial's streams contain.
    pub trial: u64,
}

/// A part of a trial between two quiescent points.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Phase {
    /// Time at which the client begins the phase, in nanoseconds of this host's monotonic clock. 0 means immediately.
    pub start_ns: u64,
    /// Time in nanoseconds during which the client starts exchanges.
    pub duration_ns: u64,
    /// Distance in bytes between two stamps (the checked pieces of the payload).
    pub stride: u64,
    /// Planned exchanges per second (open loop) of all pairs of this process together. `None` means a closed loop.
    pub rate: Option<f64>,
}

/// The result of a phase.
#[derive(Debug)]
pub struct PhaseReport {
    /// Time at which the phase began, in nanoseconds of this host's monotonic clock.
    pub start_ns: u64,
    /// Time at which the client received the last byte, on the same clock. In an open loop it is not earlier than the planned
    /// end of the phase.
    pub end_ns: u64,
    /// Counts of this phase.
    pub counts: LoadCounts,
    /// Latencies in nanoseconds, from the actual start of an exchange to its end.
    pub latency: Histogram<u64>,
    /// Latencies in nanoseconds from the planned start (open loop only).
    pub corrected: Option<Histogram<u64>>,
    /// Number of units (transactions or megabytes) that all pairs together completed in each tenth of the phase.
    pub slices: [f64; limits::SLICES],
    /// Number of units of the pair that completed the fewest, and of the pair that completed the most.
    pub pair_units: (f64, f64),
    /// Sum over the pairs of each pair's number of units, and sum of the squares of these numbers.
    pub pair_sums: (f64, f64),
    /// What the streams beside RR carried in this phase.
    pub beside: Option<BesideRecord>,
    /// Sum of the interarrival jitters in nanoseconds of the streams of datagrams, and number of these streams.
    pub jitter: (f64, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PairState {
    Idle,
    Connecting,
    Sending,
    Receiving,
    /// The response is complete, and the client waits for the server's end of stream.
    Closing,
    /// Requests and responses flow at the same time.
    BothWays,
    Failed,
}

#[derive(Debug)]
struct Pair<S> {
    /// What this pair does: the workload, or a stream beside it.
    workload: Workload,
    is_beside: bool,
    socket: Option<S>,
    state: PairState,
    message: u64,
    connection: u64,
    offset: u64,
    /// The response that arrives while requests are sent.
    incoming: Position,
    started_ns: u64,
    planned_ns: u64,
    bytes: u64,
    transactions: u64,
    opened: u64,
    queued: bool,
    /// True if the server may have closed its direction of the connection; see `Ready::ended`.
    ended: bool,
}

/// A position in a sequence of messages.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Position {
    /// Number of the message.
    pub(super) message: u64,
    /// Number of its bytes before the position.
    pub(super) offset: u64,
}

impl Position {
    /// Moves forward by `bytes` within messages of `length` bytes.
    pub(super) fn advance(&mut self, bytes: u64, length: u64) {
        self.offset += bytes;
        if self.offset >= length {
            *self = Self { message: self.message + 1, offset: 0 };
        }
    }
}

/// The client driver.
#[derive(Debug)]
pub struct Client<S: Sockets> {
    sockets: S,
    config: ClientConfig,
    pairs: Vec<Pair<S::Socket>>,
    queue: VecDeque<usize>,
    ready: Vec<Ready>,
    outbox: Vec<u8>,
    inbox: Vec<u8>,
    counts: LoadCounts,
    failed: usize,
    run: Run,
    /// The streams of datagrams, one for each pair. Empty for other workloads.
    incoming: Vec<Incoming>,
    /// Number of the running phase, from 1.
    phase_number: u32,
    /// Bytes of datagrams that the network lost in all phases before the running one.
    gone: u64,
    /// Number of datagrams of streams that have not arrived before later ones of the same stream.
    missing: u64,
}

/// The state of the running phase.
#[derive(Debug)]
struct Run {
    phase: Phase,
    start_ns: u64,
    deadline_ns: u64,
    last_ns: u64,
    ending: bool,
    busy: usize,
    latency: Histogram<u64>,
    corrected: Option<Histogram<u64>>,
    slices: [f64; limits::SLICES],
    /// In an open loop, the idle pairs, ordered by the planned start of their next exchange.
    plan: BinaryHeap<Reverse<(u64, usize)>>,
    period_ns: f64,
    /// Time of the next check for overdue datagrams.
    look_ns: u64,
    /// For streams of datagrams: time at which the client learned how many bytes the server has sent. 0 until then.
    told_ns: u64,
    /// Bytes that the streams beside RR have carried, and time of the last arrival.
    beside_bytes: u64,
    beside_last_ns: u64,
}

impl<S: Sockets> Client<S> {
    /// Makes a client without connections.
    pub fn new(sockets: S, config: ClientConfig) -> Self {
        let pairs = (0..config.pairs).map(|number| Pair {
            workload: config.workload.of_pair(number, config.pairs),
            is_beside: config.workload.beside > 0 && number >= config.pairs.saturating_sub(config.workload.beside),
            socket: None,
            state: PairState::Idle,
            message: 0,
            connection: 0,
            offset: 0,
            incoming: Position::default(),
            started_ns: 0,
            planned_ns: 0,
            bytes: 0,
            transactions: 0,
            opened: 0,
            queued: false,
            ended: false,
        });
        let (write, workload) = (config.write_bytes, config.workload);
        let beside = if workload.beside > 0 { Workload::stream_beside() } else { workload };
        let phase = Phase { start_ns: 0, duration_ns: 0, stride: limits::STAMP_STRIDE_BYTES, rate: None };
        Self {
            sockets,
            pairs: pairs.collect(),
            queue: VecDeque::new(),
            ready: Vec::new(),
            outbox: buffer(0x5A, write, workload.request.max(beside.request), workload.udp),
            inbox: buffer(0, write, workload.response.max(beside.response) + u64::from(workload.udp), workload.udp),
            counts: LoadCounts::default(),
            failed: 0,
            run: Run::new(phase, 0),
            incoming: Vec::new(),
            phase_number: 0,
            gone: 0,
            missing: 0,
            config,
        }
    }

    /// Opens the standing connection of each pair. In CRR, opens none, because each exchange opens its own connection.
    ///
    /// # Errors
    /// Returns the error of the first connection that fails. Returns `TimedOut` if no further pair connects for
    /// `limits::STALL_TIME_MAX`, or if not all pairs connect within `limits::CONNECT_TIME_MAX`.
    pub fn connect(&mut self, shared: &Shared) -> io::Result<()> {
        if self.config.workload.shape == Shape::Crr {
            return Ok(());
        }
        let begun = Instant::now();
        let (mut next, mut open, mut moved) = (0, 0, begun);
        while open < self.pairs.len() {
            while next < self.pairs.len() && next - open < limits::CONNECTS_IN_FLIGHT_MAX {
                self.open(next)?;
                next += 1;
            }
            self.ready.clear();
            self.sockets.poll(&mut self.ready, Some(limits::WAIT_TIME_MAX))?;
            for at in 0..self.ready.len() {
                let index = self.ready[at].token.0;
                if self.pairs.get(index).is_some_and(|pair| pair.state == PairState::Connecting)
                    && self.finish_connect(index)?
                {
                    self.pairs[index].state = PairState::Idle;
                    (open, moved) = (open + 1, Instant::now());
                }
            }
            if open == self.pairs.len() {
                break;
            }
            if moved.elapsed() > limits::STALL_TIME_MAX || begun.elapsed() > limits::CONNECT_TIME_MAX {
                let text = format!("only {open} of {} client-server pairs connected", self.pairs.len());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
        }
        self.publish(shared);
        Ok(())
    }

    /// Publishes the counters. Datagrams of a stream that are missing so far count as lost.
    fn publish(&self, shared: &Shared) {
        shared.publish(&LoadCounts { lost: self.counts.lost + self.missing, ..self.counts });
    }

    /// Runs the stack of a siga network between phases. Returns the time until the next call is due. Returns `None` if the
    /// network needs no calls.
    pub fn tend(&mut self) -> Option<Duration> {
        self.sockets.tend()
    }

    /// Runs one phase, up to the quiescent point at its end.
    ///
    /// # Errors
    /// Returns an error if all pairs have failed, or if `poll` fails.
    pub fn phase(&mut self, phase: Phase, shared: &Shared) -> io::Result<PhaseReport> {
        wait_until(phase.start_ns);
        let before = self.counts;
        self.begin(phase);
        loop {
            self.serve(shared)?;
            if self.finished(shared)? {
                break;
            }
            self.wait()?;
        }
        self.publish(shared);
        Ok(self.report(before))
    }

    fn begin(&mut self, phase: Phase) {
        let now = now_ns();
        self.run = Run::new(phase, now);
        for pair in &mut self.pairs {
            (pair.bytes, pair.transactions) = (0, 0);
        }
        self.phase_number += 1;
        let live: Vec<_> = (0..self.pairs.len()).filter(|&at| self.pairs[at].state != PairState::Failed).collect();
        if self.config.workload.is_datagram_stream() {
            return self.begin_streams(&live);
        }
        let (streams, live): (Vec<_>, Vec<_>) = live.into_iter().partition(|&at| self.pairs[at].is_beside);
        self.run.busy = live.iter().filter(|&&at| self.pairs[at].state != PairState::Idle).count();
        if let Some(rate) = phase.rate {
            self.run.period_ns = live.len() as f64 * 1e9 / rate;
            for (turn, &index) in live.iter().enumerate() {
                let planned = now + to_ns(self.run.period_ns * fraction(turn, live.len()));
                self.run.plan.push(Reverse((planned, index)));
            }
        } else {
            for index in live {
                self.enqueue(index);
            }
        }
        for index in streams {
            self.enqueue(index);
        }
    }

    /// Executes the next operations of every pair that need not wait for the server.
    fn serve(&mut self, shared: &Shared) -> io::Result<()> {
        if shared.give_up.load(Ordering::Relaxed) {
            self.run.ending = true;
        } else if shared.ending.load(Ordering::Relaxed) {
            // This thread may have begun the phase later than the control thread assumes. So the phase ends not when the
            // control thread says so, but when the full duration has passed for this thread.
            self.over(now_ns());
        }
        if self.run.phase.rate.is_some() {
            self.start_due();
        }
        for at in 0..self.ready.len() {
            let Ready { token: Token(index), ended } = self.ready[at];
            if let Some(pair) = self.pairs.get_mut(index) {
                pair.ended |= ended;
                self.enqueue(index);
            }
        }
        self.ready.clear();
        for turn in 1..=self.queue.len() {
            let Some(index) = self.queue.pop_front() else { break };
            self.pairs[index].queued = false;
            self.advance(index)?;
            if turn % PUBLISH_EVERY == 0 {
                self.publish(shared);
            }
        }
        self.publish(shared);
        Ok(())
    }

    /// Returns true if no exchange of this phase is in progress, and all bytes that the server has sent have arrived.
    fn finished(&mut self, shared: &Shared) -> io::Result<bool> {
        if self.failed == self.pairs.len() {
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, "every connection failed"));
        }
        if !self.run.ending {
            return Ok(false);
        }
        if shared.give_up.load(Ordering::Relaxed) {
            return Ok(true);
        }
        if self.config.workload.is_datagram_stream() {
            return Ok(self.have_streams_ended(shared));
        }
        let stream = self.config.workload.is_stream();
        if !stream && self.run.busy > 0 {
            return Ok(false);
        }
        shared.stopped.store(true, Ordering::Release);
        let expected = shared.expected.load(Ordering::Acquire);
        let is_streaming = stream || self.config.workload.beside > 0;
        Ok(expected != UNKNOWN && (!is_streaming || self.counts.received >= expected))
    }

    fn wait(&mut self) -> io::Result<()> {
        let timeout = if !self.queue.is_empty() {
            Some(Duration::ZERO)
        } else if let Some(Reverse((planned, _))) = self.run.plan.peek()
            && !self.run.ending
        {
            Some(Duration::from_nanos(planned.saturating_sub(now_ns())))
        } else if self.sockets.operations_wait() {
            self.idle().then_some(limits::WAIT_TIME_MAX)
        } else if self.config.workload.udp {
            Some(limits::WAIT_TIME_MAX)
        } else {
            None
        };
        self.sockets.poll(&mut self.ready, timeout)?;
        if self.config.workload.is_datagram_stream() {
            self.ask_again();
        } else if self.config.workload.udp {
            self.give_up_lost()?;
        }
        Ok(())
    }

    /// Returns true if every pair has to wait. Then no operation is delayed if `poll` sleeps.
    fn idle(&self) -> bool {
        self.pairs.iter().all(|pair| match pair.state {
            PairState::Idle | PairState::Failed => true,
            PairState::Sending => self.run.ending && pair.workload.is_stream(),
            PairState::BothWays => self.run.ending,
            PairState::Connecting | PairState::Receiving | PairState::Closing => false,
        })
    }

    fn report(&mut self, before: LoadCounts) -> PhaseReport {
        let deadline = self.run.deadline_ns;
        for Reverse((planned, _)) in self.run.plan.drain() {
            if planned < deadline {
                self.counts.unstarted += 1 + to_ns((deadline - planned) as f64 / self.run.period_ns);
            }
        }
        let workload = self.config.workload;
        let pairs = self.pairs.iter().filter(|pair| !pair.is_beside);
        let units: Vec<f64> = pairs.map(|pair| workload.units(pair.transactions, pair.bytes)).collect();
        let next = Run::new(self.run.phase, 0);
        let run = std::mem::replace(&mut self.run, next);
        // A phase with an open loop lasts for its full duration, even if its last transaction ended earlier.
        let least = if run.phase.rate.is_some() { run.deadline_ns } else { run.start_ns + 1 };
        PhaseReport {
            start_ns: run.start_ns,
            end_ns: run.last_ns.max(least),
            counts: self.counts.since(before),
            latency: run.latency,
            corrected: run.corrected,
            slices: run.slices,
            pair_units: units.iter().fold((f64::INFINITY, 0.0), |(least, most), &of| (least.min(of), most.max(of))),
            pair_sums: units.iter().fold((0.0, 0.0), |(sum, squares), &of| (sum + of, squares + of * of)),
            beside: (workload.beside > 0).then(|| BesideRecord {
                bytes: run.beside_bytes,
                elapsed_ns: run.beside_last_ns.saturating_sub(run.start_ns),
            }),
            jitter: self.jitter(),
        }
    }

    fn enqueue(&mut self, index: usize) {
        if !std::mem::replace(&mut self.pairs[index].queued, true) {
            self.queue.push_back(index);
        }
    }

    /// Returns true if the time of the phase is over at `now` or was over in an earlier call. Sets `ending` in this case.
    fn over(&mut self, now: u64) -> bool {
        self.run.ending |= now >= self.run.deadline_ns;
        self.run.ending
    }
}

impl Run {
    fn new(phase: Phase, start_ns: u64) -> Self {
        Self {
            phase,
            start_ns,
            deadline_ns: start_ns.saturating_add(phase.duration_ns),
            last_ns: start_ns,
            ending: false,
            busy: 0,
            latency: histogram::empty(),
            corrected: phase.rate.map(|_| histogram::empty()),
            slices: [0.0; limits::SLICES],
            plan: BinaryHeap::new(),
            period_ns: f64::INFINITY,
            look_ns: 0,
            told_ns: 0,
            beside_bytes: 0,
            beside_last_ns: start_ns,
        }
    }

    /// Adds `units` to the tenth of the phase that contains the time `now`. Ignores units that were completed after the planned
    /// end of the phase.
    fn slice(&mut self, now: u64, units: f64) {
        let length = (self.phase.duration_ns / limits::SLICES as u64).max(1);
        let at = usize::try_from(now.saturating_sub(self.start_ns) / length).unwrap_or(usize::MAX);
        if let Some(slice) = self.slices.get_mut(at) {
            *slice += units;
        }
    }
}

fn fraction(turn: usize, of: usize) -> f64 {
    turn as f64 / of.max(1) as f64
}

fn to_ns(value: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates when cast")]
    {
        value as u64
    }
}

/// Waits until `start_ns`, so that all processes of a client begin a phase at the same time. Sleeps until shortly before
/// `start_ns`, then spins, because a sleep may end late.
fn wait_until(start_ns: u64) {
    let now = now_ns();
    if start_ns > now + 200_000 {
        std::thread::sleep(Duration::from_nanos(start_ns - now - 100_000));
    }
    while now_ns() < start_ns {
        std::hint::spin_loop();
    }
}
