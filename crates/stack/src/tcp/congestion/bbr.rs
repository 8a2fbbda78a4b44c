//! BBR, version 3: cwnd and the pacing rate follow a model of the path, instead of shrinking after each loss
//! (draft-ietf-ccwg-bbr). The model consists of the highest delivery rate and the lowest round-trip time of the recent past, and of
//! bounds that losses and marks teach.
//!
//! `model.rs` has the model. `phases.rs` has the phases through which BBR probes for bandwidth and for the round-trip time. This file has
//! what the sender calls, and what follows from model and phase: the pacing rate and cwnd. Names in parentheses are those of the draft.
//! All amounts are in bytes, rates are in bytes per second, and gains are percentages.

mod info;
mod model;
mod phases;

use super::super::delivery_rate::{Departure, Sample, Sampler};
use super::super::pacing::Pacer;
use super::{Algorithm, Window};
use crate::time::{Duration, Instant};
use crate::wire::tcp::SeqNumber;
pub use info::BbrInfo;
use model::Model;
use phases::{Phase, Phases};

/// Share of the estimated bandwidth that the pacing rate leaves free, so that queues drain (`PacingMarginPercent`).
const PACING_MARGIN_PERCENT: u64 = 1;
/// Lower limit of cwnd in segments. With fewer, delayed acknowledgements would stop the flow (`MinPipeCwnd`).
const WINDOW_SEGMENTS_MIN: u32 = 4;
/// Number of quanta of data that cwnd leaves for the delays that large segments cause (`offload_budget`).
const QUANTA_IN_FLIGHT: u32 = 3;
/// RTT that is assumed before the first sample.
const RTT_ASSUMED: Duration = Duration::from_millis(1);

/// What an acknowledgement shows, in addition to the sample of the delivery rate.
#[derive(Debug, Clone, Copy)]
pub(in crate::tcp) struct Acked {
    pub(in crate::tcp) now: Instant,
    pub(in crate::tcp) window: Window,
    /// Number of newly acknowledged bytes, and the part of them by which cwnd may grow.
    pub(in crate::tcp) bytes: u32,
    pub(in crate::tcp) growth: u32,
    /// Number of bytes in flight after the acknowledgement.
    pub(in crate::tcp) in_flight: u32,
    pub(in crate::tcp) rtt: Option<Duration>,
    /// Whether lost segments are being repaired.
    pub(in crate::tcp) recovering: bool,
    /// When the newest delivered segment was sent, and where it ends.
    pub(in crate::tcp) newest: Option<(Instant, SeqNumber)>,
}

/// What the sender knows when it sends a segment.
#[derive(Debug, Clone, Copy)]
pub(in crate::tcp) struct Sending {
    pub(in crate::tcp) now: Instant,
    pub(in crate::tcp) window: Window,
    pub(in crate::tcp) bytes: u32,
    /// Number of bytes in flight before the segment is sent.
    pub(in crate::tcp) in_flight: u32,
    pub(in crate::tcp) rtt: Option<Duration>,
    /// Whether the segment is the last one that the application has written.
    pub(in crate::tcp) last: bool,
}

/// The state of BBR for one connection.
#[derive(Debug)]
pub(in crate::tcp) struct Bbr {
    pub(in crate::tcp) pacer: Pacer,
    pub(in crate::tcp) sampler: Sampler,
    model: Model,
    phases: Phases,
    /// cwnd and the payload of a full segment, as of the latest call.
    window: Window,
    initial_window: u32,
    /// cwnd before recovery or before a probe of the RTT (`prior_cwnd`).
    prior_window: u32,
    in_flight: u32,
    recovering: bool,
    /// Whether the sender has used all of cwnd, in this round trip and in the one before (`is_cwnd_limited`).
    limited: [bool; 2],
    /// Whether the latest segment was the last one that the application had written.
    out_of_data: bool,
    /// Whether the pacing rate follows from an RTT sample.
    rtt_known: bool,
    /// The state before the losses of this round trip, in case that they prove spurious.
    saved: Option<(Phase, model::Bounds)>,
}

impl Bbr {
    pub(in crate::tcp) fn new() -> Self {
        Self {
            pacer: Pacer::new(),
            sampler: Sampler::default(),
            model: Model::default(),
            phases: Phases::default(),
            window: Window { bytes: 0, segment_bytes: 0 },
            initial_window: 0,
            prior_window: 0,
            in_flight: 0,
            recovering: false,
            limited: [false; 2],
            out_of_data: true,
            rtt_known: false,
            saved: None,
        }
    }

    /// Records that a segment is sent now (`BBROnTransmit`).
    pub(in crate::tcp) fn sent(&mut self, sending: &Sending) {
        let &Sending { now, window, bytes, in_flight, rtt, last } = sending;
        self.window = window;
        if self.initial_window == 0 {
            self.initial_window = window.bytes;
        }
        if !self.rtt_known {
            self.pace_without_samples(rtt);
        }
        // The sender had no data at a time at which both cwnd and the pacer would have permitted a segment.
        let idle = self.out_of_data && self.pacer.was_idle(now) && in_flight < window.bytes;
        if idle {
            self.sampler.limited_by_application(in_flight);
        }
        let first = in_flight == 0;
        if first && idle {
            self.restart_from_idle(now);
        }
        let after = in_flight.saturating_add(bytes);
        self.sampler.sent(now, first, after);
        self.pacer.sent(now, bytes);
        self.limited[0] |= after.saturating_add(window.segment_bytes) > window.bytes;
        self.out_of_data = last;
    }

    /// Before the first sample, the initial window is paced over one RTT (`BBRInitPacingRate`).
    fn pace_without_samples(&mut self, rtt: Option<Duration>) {
        self.rtt_known = rtt.is_some();
        let bandwidth = rate_of(self.initial_window, rtt.unwrap_or(RTT_ASSUMED));
        self.pacer.set_rate(percent(bandwidth, self.phases.pacing_gain()));
    }

    /// Records that a segment of `bytes` bytes was lost, which was sent at `sent_at` (`BBRHandleLostPacket`).
    pub(in crate::tcp) fn lost(&mut self, now: Instant, sent_at: Instant, bytes: u32) {
        let departure = self.sampler.departure(sent_at);
        let lost = self.sampler.lose(bytes, departure.as_ref());
        self.note_loss();
        if let Some(departure) = departure.filter(|_| self.phases.judges_losses) {
            self.judge_loss(now, &departure, lost, bytes);
        }
    }

    fn judge_loss(&mut self, now: Instant, departure: &Departure, lost: u64, bytes: u32) {
        if model::is_too_much(lost, departure.in_flight) {
            let in_flight = model::in_flight_at_threshold(departure.in_flight, lost, bytes);
            self.reduce_in_flight(now, in_flight, departure.app_limited);
        }
    }

    /// Remembers that this round trip had a loss (`BBRNoteLoss`).
    fn note_loss(&mut self) {
        if !self.model.loss_in_round {
            self.model.loss_round_end = self.sampler.delivered;
            self.saved = Some((self.phases.phase, self.model.bounds));
        }
        self.model.loss_in_round = true;
    }

    /// The path carries less than `in_flight` bytes without too many losses or marks (`BBRHandleInflightTooHigh`).
    fn reduce_in_flight(&mut self, now: Instant, in_flight: u32, app_limited: bool) {
        self.phases.judges_losses = false;
        if !app_limited {
            let floor = model::after_loss(self.target_in_flight());
            self.model.bounds.in_flight_long = Some(in_flight.max(floor));
        }
        if self.phases.phase == Phase::Up {
            self.start_down(now);
        }
    }

    /// Processes a mark for congestion (ECE of RFC 3168), or the loss of a segment that a tail-loss probe repaired. BBR responds as to
    /// a loss, which RFC 3168 requires. The draft defines no response to this signal.
    pub(in crate::tcp) fn mark(&mut self, now: Instant, in_flight: u32) {
        self.note_loss();
        if self.phases.judges_losses {
            self.reduce_in_flight(now, in_flight, self.sampler.is_app_limited());
        }
    }

    /// Updates model and phase by an acknowledgement, and returns cwnd (`BBRUpdateOnACK`). The caller has reported losses before.
    pub(in crate::tcp) fn acknowledged(&mut self, acked: &Acked) -> u32 {
        let &Acked { now, window, in_flight, recovering, .. } = acked;
        (self.window, self.in_flight) = (window, in_flight);
        if std::mem::replace(&mut self.recovering, recovering) && !recovering {
            self.restore_window();
        }
        let sample = self.sampler.sample(now, acked.newest, self.model.min_rtt.unwrap_or_default());
        self.model.start_of_round = false;
        if let Some(sample) = &sample {
            self.update_round(sample);
        }
        let sample = sample.unwrap_or_default();
        self.update_congestion_signals(&sample);
        let bandwidth = self.model.bandwidth();
        let filled = self.phases.pipe_filled;
        self.model.aggregation.update(now, bandwidth, self.model.rounds, filled, acked.bytes, window.bytes);
        self.update_phase(now, acked, &sample);
        self.model.start_latest(&sample);
        if !self.rtt_known {
            self.pace_without_samples(acked.rtt);
        }
        self.set_pacing_rate(self.phases.pacing_gain());
        self.set_window(acked.growth);
        self.window.bytes
    }

    /// Counts round trips (`BBRUpdateRound`).
    fn update_round(&mut self, sample: &Sample) {
        if sample.prior_delivered < self.model.round_end {
            return;
        }
        self.model.round_end = self.sampler.delivered;
        self.model.rounds += 1;
        self.model.start_of_round = true;
        self.phases.rounds_since_probe += 1;
        self.limited = [false, self.limited[0]];
    }

    fn is_window_limited(&self) -> bool {
        self.limited[0] || self.limited[1]
    }

    /// Sets the pacing rate (`BBRSetPacingRateWithGain`). Until the pipe is filled once, the rate only rises.
    fn set_pacing_rate(&mut self, gain: u64) {
        let rate = percent(percent(self.model.bandwidth(), gain), 100 - PACING_MARGIN_PERCENT);
        if self.model.bandwidth() > 0 && (self.phases.pipe_filled || rate > self.pacer.rate()) {
            self.pacer.set_rate(rate);
        }
    }

    /// Sets cwnd (`BBRSetCwnd`) after `acked` bytes were acknowledged.
    fn set_window(&mut self, acked: u32) {
        let most = self.in_flight_max();
        let Window { bytes, segment_bytes } = self.window;
        let mut bytes = bytes;
        if self.phases.pipe_filled {
            bytes = bytes.saturating_add(acked).min(most);
        } else if bytes < most || self.sampler.delivered < u64::from(self.initial_window) {
            bytes = bytes.saturating_add(acked);
        }
        let least = WINDOW_SEGMENTS_MIN * segment_bytes;
        bytes = bytes.max(least);
        if self.phases.phase == Phase::ProbeRtt {
            bytes = bytes.min(self.probe_rtt_window());
        }
        self.window.bytes = bytes.min(self.window_bound().max(least));
    }

    /// Returns the bound of cwnd that losses have taught (`BBRBoundCwndForModel`).
    fn window_bound(&self) -> u32 {
        let bounds = &self.model.bounds;
        let long = match self.phases.phase {
            Phase::Startup | Phase::Drain => None,
            Phase::Down | Phase::Refill | Phase::Up => bounds.in_flight_long,
            Phase::Cruise | Phase::ProbeRtt => self.in_flight_with_headroom(),
        };
        long.unwrap_or(u32::MAX).min(bounds.in_flight_short.unwrap_or(u32::MAX))
    }

    /// Returns `gain` percent of the bandwidth-delay product at the rate `bandwidth` (`BBRBDPMultiple`).
    fn bdp(&self, bandwidth: u64, gain: u64) -> u32 {
        let Some(rtt) = self.model.min_rtt else { return self.initial_window };
        let bytes = u128::from(bandwidth) * u128::from(rtt.as_nanos()) / 1_000_000_000 * u128::from(gain) / 100;
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Returns `in_flight`, with room for large segments and delayed acknowledgements (`BBRQuantizationBudget`).
    fn with_budget(&self, in_flight: u32) -> u32 {
        let segment_bytes = self.window.segment_bytes;
        let quanta = QUANTA_IN_FLIGHT * self.pacer.quantum(segment_bytes);
        let probing = if self.phases.phase == Phase::Up { 2 * segment_bytes } else { 0 };
        in_flight.max(quanta).max(WINDOW_SEGMENTS_MIN * segment_bytes).saturating_add(probing)
    }

    fn in_flight_max(&self) -> u32 {
        let in_flight = self.bdp(self.model.bandwidth(), self.phases.window_gain());
        self.with_budget(in_flight.saturating_add(self.model.aggregation.extra()))
    }

    /// Returns what is in flight if the bottleneck is busy and has no queue (`BBRInflight(max_bw, 1.0)`).
    fn in_flight_without_queue(&self) -> u32 {
        self.with_budget(self.bdp(self.model.max_bandwidth(), 100))
    }

    /// Returns what BBR tries to keep in flight (`BBRTargetInflight`).
    fn target_in_flight(&self) -> u32 {
        self.bdp(self.model.bandwidth(), 100).min(self.window.bytes)
    }

    /// Returns the long-term bound with room for other flows (`BBRInflightWithHeadroom`).
    fn in_flight_with_headroom(&self) -> Option<u32> {
        let least = WINDOW_SEGMENTS_MIN * self.window.segment_bytes;
        let segment_bytes = self.window.segment_bytes;
        self.model.bounds.in_flight_long.map(|long| model::with_headroom(long, segment_bytes).max(least))
    }

    fn probe_rtt_window(&self) -> u32 {
        let bdp = self.bdp(self.model.bandwidth(), self.phases.window_gain());
        bdp.max(WINDOW_SEGMENTS_MIN * self.window.segment_bytes)
    }

    /// Saves cwnd before something that reduces it for a short time (`BBRSaveCwnd`).
    fn save_window(&mut self, bytes: u32) {
        let apart = self.recovering || self.phases.phase == Phase::ProbeRtt;
        self.prior_window = if apart { self.prior_window.max(bytes) } else { bytes };
    }

    fn restore_window(&mut self) {
        self.window.bytes = self.window.bytes.max(self.prior_window);
    }
}

impl Algorithm for Bbr {
    /// Returns cwnd unchanged. [`Bbr::acknowledged`] sets cwnd.
    fn grow(&mut self, _: Instant, window: Window, _: u32, _: Duration) -> u32 {
        window.bytes
    }

    /// Saves cwnd for the end of recovery. ssthresh has no meaning for BBR.
    fn reduce(&mut self, window: Window) -> u32 {
        self.save_window(window.bytes);
        self.recovering = true;
        u32::MAX
    }

    /// Restores the bounds of the model (`BBRHandleSpuriousLossDetection`).
    fn undo(&mut self) {
        self.model.loss_in_round = false;
        self.phases.full_bandwidth.reset(0);
        if let Some((phase, bounds)) = self.saved.take() {
            self.model.bounds.widen(&bounds);
            self.return_to(phase);
        }
    }
}

/// Returns the rate in bytes per second at which `bytes` bytes take the time `time`.
fn rate_of(bytes: u32, time: Duration) -> u64 {
    u64::from(bytes) * 1_000_000_000 / time.as_nanos().max(1)
}

fn percent(of: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(of) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
