//! BBR's model of the path: the bandwidth, the minimum RTT, how much acknowledgements are aggregated, and the bounds that losses and
//! marks teach.

use super::super::super::delivery_rate::Sample;
use super::Bbr;
use super::phases::Phase;
use crate::time::{Duration, Instant};

/// Share of the bytes in flight that may be lost before BBR considers the amount in flight too high (`LossThresh`).
const LOSS_PERCENT_MAX: u64 = 2;
/// What is left of a bound after a round trip with losses (`Beta`).
const BETA_PERCENT: u64 = 70;
/// Share of the long-term bound that is left to other flows (`Headroom`).
const HEADROOM_PERCENT: u64 = 15;
/// Number of acknowledgements with losses in a round trip that end the startup phase (`StartupFullLossCnt`).
const STARTUP_LOSSES: u8 = 6;
/// Age in round trips at which the aggregation of acknowledgements is half forgotten (`ExtraAckedFilterLen` is twice this number).
const AGGREGATION_ROUNDS: u64 = 5;
/// How long the minimum RTT is valid (`MinRTTFilterLen`), and how often BBR measures it (`ProbeRTTInterval`).
const MIN_RTT_LIFE: Duration = Duration::from_secs(10);
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);

/// Bounds that losses and marks have taught. `None` is no bound. Those of the short term hold until the next probe for bandwidth.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bounds {
    pub(super) bandwidth_short: Option<u64>,
    pub(super) in_flight_short: Option<u32>,
    pub(super) in_flight_long: Option<u32>,
}

impl Bounds {
    /// Lifts each bound to that of `other`, if that is higher.
    pub(super) fn widen(&mut self, other: &Self) {
        fn higher<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            one.zip(other).map(|(one, other)| one.max(other))
        }
        self.bandwidth_short = higher(self.bandwidth_short, other.bandwidth_short);
        self.in_flight_short = higher(self.in_flight_short, other.in_flight_short);
        self.in_flight_long = higher(self.in_flight_long, other.in_flight_long);
    }

    pub(super) fn forget_short_term(&mut self) {
        (self.bandwidth_short, self.in_flight_short) = (None, None);
    }
}

#[derive(Debug, Default)]
pub(super) struct Model {
    /// Highest delivery rate in the current cycle of probing and in the one before (`MaxBwFilter`).
    bandwidths: [u64; 2],
    pub(super) bounds: Bounds,
    /// Highest rate and largest delivery in this round trip of losses (`bw_latest`, `inflight_latest`).
    latest: (u64, u32),
    pub(super) min_rtt: Option<Duration>,
    min_rtt_at: Instant,
    /// Minimum RTT since the latest probe of the RTT, and when it was measured (`probe_rtt_min_delay`).
    recent_rtt: Option<Duration>,
    pub(super) recent_rtt_at: Instant,
    /// Number of round trips, and the number of delivered bytes with which the current one ends.
    pub(super) rounds: u64,
    pub(super) round_end: u64,
    pub(super) start_of_round: bool,
    /// Whether the current round trip of losses had a loss, with how many delivered bytes it ends, and whether a new one starts.
    pub(super) loss_in_round: bool,
    pub(super) loss_round_end: u64,
    loss_round_starts: bool,
    losses_in_round: u8,
    pub(super) aggregation: Aggregation,
}

impl Model {
    pub(super) fn max_bandwidth(&self) -> u64 {
        self.bandwidths[0].max(self.bandwidths[1])
    }

    /// Returns the bandwidth within the short-term bound (`BBR.bw`).
    pub(super) fn bandwidth(&self) -> u64 {
        self.max_bandwidth().min(self.bounds.bandwidth_short.unwrap_or(u64::MAX))
    }

    /// Ends a cycle of probing: rates from before this cycle are forgotten (`BBRAdvanceMaxBwFilter`).
    pub(super) fn advance_cycle(&mut self) {
        if self.bandwidths[0] > 0 {
            self.bandwidths = [0, self.bandwidths[0]];
        }
    }

    /// Starts new signals of congestion (`BBRResetCongestionSignals`).
    pub(super) fn reset_signals(&mut self) {
        (self.loss_in_round, self.losses_in_round, self.latest) = (false, 0, (0, 0));
    }

    /// Starts the measurement of a new round trip of losses (`BBRAdvanceLatestDeliverySignals`).
    pub(super) fn start_latest(&mut self, sample: &Sample) {
        if self.loss_round_starts {
            self.latest = (sample.rate, bytes32(sample.delivered));
        }
    }

    /// Updates the minimum RTT (`BBRUpdateMinRTT`). Returns whether a probe of the RTT is due.
    pub(super) fn update_min_rtt(&mut self, now: Instant, rtt: Option<Duration>) -> bool {
        let expired = now.since(self.recent_rtt_at) > PROBE_RTT_INTERVAL && self.recent_rtt.is_some();
        if let Some(rtt) = rtt.filter(|rtt| expired || self.recent_rtt.is_none_or(|recent| *rtt < recent)) {
            (self.recent_rtt, self.recent_rtt_at) = (Some(rtt), now);
        }
        let old = now.since(self.min_rtt_at) > MIN_RTT_LIFE;
        if self.min_rtt.is_none() || old || self.recent_rtt < self.min_rtt {
            (self.min_rtt, self.min_rtt_at) = (self.recent_rtt, self.recent_rtt_at);
        }
        expired
    }
}

impl Bbr {
    /// Updates the bandwidth and its short-term bounds (`BBRUpdateLatestDeliverySignals`, `BBRUpdateCongestionSignals`).
    pub(super) fn update_congestion_signals(&mut self, sample: &Sample) {
        let model = &mut self.model;
        let sampled = sample.delivered > 0;
        model.latest = (model.latest.0.max(sample.rate), model.latest.1.max(bytes32(sample.delivered)));
        model.loss_round_starts = sampled && sample.prior_delivered >= model.loss_round_end;
        if model.loss_round_starts {
            model.loss_round_end = self.sampler.delivered;
        }
        if sample.rate > 0 && (sample.rate >= model.max_bandwidth() || !sample.app_limited) {
            model.bandwidths[0] = model.bandwidths[0].max(sample.rate);
        }
        if model.loss_in_round && sample.lost > 0 {
            model.losses_in_round = model.losses_in_round.saturating_add(1);
        }
        if !model.loss_round_starts {
            return;
        }
        self.leave_startup_after_losses(sample);
        if self.model.loss_in_round && !self.is_probing() {
            self.lower_short_term_bounds();
        }
        (self.model.loss_in_round, self.model.losses_in_round) = (false, 0);
    }

    /// Lowers the bounds of the short term after a round trip with losses (`BBRLossLowerBounds`).
    fn lower_short_term_bounds(&mut self) {
        let model = &mut self.model;
        let (rate, delivered) = model.latest;
        let bandwidth = model.bounds.bandwidth_short.unwrap_or(model.max_bandwidth());
        model.bounds.bandwidth_short = Some(rate.max(super::percent(bandwidth, BETA_PERCENT)));
        // In recovery, cwnd may have been reduced already.
        let window = if self.recovering { self.window.bytes.max(self.prior_window) } else { self.window.bytes };
        let in_flight = model.bounds.in_flight_short.unwrap_or(window);
        model.bounds.in_flight_short = Some(delivered.max(after_loss(in_flight)));
    }

    /// Ends the startup phase after a round trip with many losses (`BBRCheckStartupHighLoss`).
    fn leave_startup_after_losses(&mut self, sample: &Sample) {
        let many = self.model.losses_in_round >= STARTUP_LOSSES && is_too_much(sample.lost, sample.in_flight);
        if self.phases.phase == Phase::Startup && self.recovering && many {
            self.phases.pipe_filled = true;
            let bdp = self.bdp(self.model.max_bandwidth(), 100);
            self.model.bounds.in_flight_long = Some(bdp.max(self.model.latest.1));
        }
    }
}

/// Returns whether more of the bytes in flight were lost than BBR tolerates (`IsInflightTooHigh`).
pub(super) fn is_too_much(lost: u64, in_flight: u32) -> bool {
    lost * 100 > u64::from(in_flight) * LOSS_PERCENT_MAX
}

/// Returns how many bytes were in flight when the losses reached the tolerated share (`BBRInflightAtLoss`). The last lost segment had
/// `bytes` bytes, and `in_flight` and `lost` include it.
pub(super) fn in_flight_at_threshold(in_flight: u32, lost: u64, bytes: u32) -> u32 {
    let before = in_flight.saturating_sub(bytes);
    let lost_before = lost.saturating_sub(bytes.into());
    let rest = (u64::from(before) * LOSS_PERCENT_MAX).saturating_sub(lost_before * 100) / (100 - LOSS_PERCENT_MAX);
    before.saturating_add(bytes32(rest))
}

pub(super) fn after_loss(bytes: u32) -> u32 {
    bytes32(super::percent(bytes.into(), BETA_PERCENT))
}

pub(super) fn with_headroom(in_flight: u32, segment_bytes: u32) -> u32 {
    in_flight.saturating_sub(bytes32(super::percent(in_flight.into(), HEADROOM_PERCENT)).max(segment_bytes))
}

fn bytes32(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// How many more bytes are acknowledged at a time than the bandwidth explains, because the path or the peer delays acknowledgements
/// and then sends them together (`extra_acked`).
#[derive(Debug, Default)]
pub(super) struct Aggregation {
    since: Instant,
    acked: u32,
    /// The most in the current and in the previous period of [`AGGREGATION_ROUNDS`].
    most: [u32; 2],
    period_start: u64,
}

impl Aggregation {
    pub(super) fn extra(&self) -> u32 {
        self.most[0].max(self.most[1])
    }

    /// Starts a new interval of measurement.
    pub(super) const fn restart(&mut self, now: Instant) {
        (self.since, self.acked) = (now, 0);
    }

    /// Adds `acked` newly acknowledged bytes (`BBRUpdateACKAggregation`). Before the pipe is filled, only the latest round trip counts.
    pub(super) fn update(&mut self, now: Instant, bandwidth: u64, rounds: u64, filled: bool, acked: u32, window: u32) {
        let period = if filled { AGGREGATION_ROUNDS } else { 1 };
        if rounds - self.period_start >= period {
            (self.most, self.period_start) = ([0, self.most[0]], rounds);
        }
        let expected = u128::from(bandwidth) * u128::from(now.since(self.since).as_nanos()) / 1_000_000_000;
        let mut expected = u32::try_from(expected).unwrap_or(u32::MAX);
        if self.acked <= expected {
            self.restart(now);
            expected = 0;
        }
        self.acked = self.acked.saturating_add(acked);
        self.most[0] = self.most[0].max(self.acked.saturating_sub(expected).min(window));
    }
}
