//! BBR's phases: startup, drain, the cycle of probing for bandwidth (down, cruise, refill, up), and the probe of the RTT.

use super::super::super::delivery_rate::Sample;
use super::{Acked, Bbr};
use crate::time::{Duration, Instant};

/// Growth of the delivery rate in percent below which a round trip counts as one without growth (`FullBwThresh`), and the number of such
/// round trips that show that the pipe is full.
const GROWTH_PERCENT: u64 = 125;
const ROUNDS_WITHOUT_GROWTH: u8 = 3;
/// A probe for bandwidth starts after this time, to which a random part of one second is added (`bw_probe_wait`).
const PROBE_WAIT: Duration = Duration::from_secs(2);
const PROBE_WAIT_RANDOM_NS: u64 = 1_000_000_000;
/// A probe for bandwidth starts after this number of round trips at the latest, so that a flow with Reno finds as many probes beside it.
const PROBE_ROUNDS_MAX: u64 = 63;
/// Duration of a probe of the RTT (`ProbeRTTDuration`).
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// Limit of the exponent with which the amount in flight grows while BBR probes for bandwidth.
const GROWTH_DOUBLINGS_MAX: u32 = 30;

/// The phases (`BBR.state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    /// The rate doubles in each round trip until the pipe is full.
    #[default]
    Startup,
    /// The queue that startup has built drains.
    Drain,
    /// `ProbeBW_DOWN`: less is sent than the path carries, so that queues drain.
    Down,
    /// `ProbeBW_CRUISE`: as much is sent as the path carries.
    Cruise,
    /// `ProbeBW_REFILL`: the pipe is filled, before more is sent.
    Refill,
    /// `ProbeBW_UP`: more is sent, to find out whether the path carries it.
    Up,
    /// Little is sent, so that queues empty and the minimum RTT can be measured.
    ProbeRtt,
}

/// Which acknowledgements arrive: those of segments from before, during or after a probe for bandwidth (`BBR.ack_phase`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Feedback {
    #[default]
    Init,
    Refilling,
    Starting,
    Probing,
    Stopping,
}

/// Detects that the delivery rate no longer grows (`full_bw`).
#[derive(Debug, Default)]
pub(super) struct FullBandwidth {
    rate: u64,
    rounds: u8,
    reached: bool,
}

impl FullBandwidth {
    pub(super) const fn reset(&mut self, rate: u64) {
        (self.rate, self.rounds, self.reached) = (rate, 0, false);
    }
}

#[derive(Debug, Default)]
pub(super) struct Phases {
    pub(super) phase: Phase,
    feedback: Feedback,
    pub(super) full_bandwidth: FullBandwidth,
    /// Whether the pipe was full at least once (`full_bw_reached`).
    pub(super) pipe_filled: bool,
    /// Whether losses show that a probe for bandwidth sends too much (`bw_probe_samples`).
    pub(super) judges_losses: bool,
    pub(super) rounds_since_probe: u64,
    /// When the cycle of probing began, and how long it lasts at most until BBR probes for bandwidth.
    cycle_start: Instant,
    probe_wait: Duration,
    /// State of the random numbers that keep flows from probing at the same time.
    random: u64,
    /// `bw_probe_up_rounds`, `probe_up_cnt` and `bw_probe_up_acks`: the growth of the long-term bound.
    growth_doublings: u32,
    growth_bytes: u32,
    growth_acked: u32,
    /// When the probe of the RTT ends, once little enough is in flight, and whether a round trip has passed since then.
    probe_rtt_end: Option<Instant>,
    probe_rtt_round: bool,
    /// Whether the sender was idle. The RTT was then low, so that no probe of the RTT is needed.
    idle_restart: bool,
}

impl Phases {
    /// Returns the pacing rate in percent of the bandwidth.
    pub(super) const fn pacing_gain(&self) -> u64 {
        match self.phase {
            Phase::Startup => 277,
            Phase::Drain => 50,
            Phase::Down => 90,
            Phase::Cruise | Phase::Refill | Phase::ProbeRtt => 100,
            Phase::Up => 125,
        }
    }

    /// Returns cwnd in percent of the bandwidth-delay product.
    pub(super) const fn window_gain(&self) -> u64 {
        match self.phase {
            Phase::Startup | Phase::Drain | Phase::Down | Phase::Cruise | Phase::Refill => 200,
            Phase::Up => 225,
            Phase::ProbeRtt => 50,
        }
    }

    const fn is_cycle(&self) -> bool {
        matches!(self.phase, Phase::Down | Phase::Cruise | Phase::Refill | Phase::Up)
    }

    /// Draws a random number. Two flows that begin with different `salt` draw different numbers.
    fn draw(&mut self, salt: u64) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15 ^ salt);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Bbr {
    /// Returns whether BBR sends more than before, so that losses do not show a change of the path (`BBRIsProbingBW`).
    pub(super) const fn is_probing(&self) -> bool {
        matches!(self.phases.phase, Phase::Startup | Phase::Refill | Phase::Up)
    }

    pub(super) fn update_phase(&mut self, now: Instant, acked: &Acked, sample: &Sample) {
        self.check_full_bandwidth(sample);
        if self.phases.phase == Phase::Startup && self.phases.pipe_filled {
            self.phases.phase = Phase::Drain;
        }
        if self.phases.phase == Phase::Drain && self.in_flight <= self.in_flight_without_queue() {
            self.start_down(now);
        }
        if self.phases.pipe_filled {
            self.adapt_long_term_bound(now, acked, sample);
            self.advance_cycle(now, sample);
        }
        let expired = self.model.update_min_rtt(now, acked.rtt);
        self.check_probe_rtt(now, expired);
        if sample.delivered > 0 {
            self.phases.idle_restart = false;
        }
    }

    /// `BBRCheckFullBWReached`.
    fn check_full_bandwidth(&mut self, sample: &Sample) {
        let full = &mut self.phases.full_bandwidth;
        if full.reached || !self.model.start_of_round || sample.app_limited {
            return;
        }
        if u128::from(sample.rate) * 100 >= u128::from(full.rate) * u128::from(GROWTH_PERCENT) {
            full.reset(sample.rate);
            return;
        }
        full.rounds += 1;
        full.reached = full.rounds >= ROUNDS_WITHOUT_GROWTH;
        self.phases.pipe_filled |= full.reached;
    }

    /// Moves through the cycle of probing (`BBRUpdateProbeBWCyclePhase`).
    fn advance_cycle(&mut self, now: Instant, sample: &Sample) {
        match self.phases.phase {
            Phase::Down if self.is_time_to_probe(now) => self.start_refill(),
            Phase::Down if self.is_time_to_cruise() => self.phases.phase = Phase::Cruise,
            Phase::Cruise if self.is_time_to_probe(now) => self.start_refill(),
            Phase::Refill if self.model.start_of_round => {
                self.phases.judges_losses = true;
                self.start_up(now, sample.rate);
            }
            Phase::Up => {
                if self.is_time_to_go_down(sample) {
                    self.start_down(now);
                }
            }
            Phase::Startup | Phase::Drain | Phase::Down | Phase::Cruise | Phase::Refill | Phase::ProbeRtt => {}
        }
    }

    fn is_time_to_probe(&self, now: Instant) -> bool {
        let segments = u64::from(self.target_in_flight() / self.window.segment_bytes.max(1));
        let rounds_max = segments.min(PROBE_ROUNDS_MAX);
        now.since(self.phases.cycle_start) > self.phases.probe_wait || self.phases.rounds_since_probe >= rounds_max
    }

    fn is_time_to_cruise(&self) -> bool {
        let within_bound = self.in_flight_with_headroom().is_none_or(|most| self.in_flight <= most);
        within_bound && self.in_flight <= self.in_flight_without_queue()
    }

    /// While the long-term bound is what limits the flow, the delivery rate cannot grow, so BBR waits for the bound to grow.
    fn is_time_to_go_down(&mut self, sample: &Sample) -> bool {
        let bound = self.model.bounds.in_flight_long;
        if self.is_window_limited() && bound.is_some_and(|long| self.window.bytes >= long) {
            self.phases.full_bandwidth.reset(sample.rate);
            return false;
        }
        self.phases.full_bandwidth.reached
    }

    pub(super) fn start_down(&mut self, now: Instant) {
        self.model.reset_signals();
        self.phases.growth_bytes = u32::MAX;
        let salt = now.as_ns() ^ self.sampler.delivered;
        let drawn = self.phases.draw(salt);
        self.phases.rounds_since_probe = drawn & 1;
        self.phases.probe_wait = PROBE_WAIT + Duration::from_nanos((drawn >> 1) % PROBE_WAIT_RANDOM_NS);
        (self.phases.cycle_start, self.phases.feedback) = (now, Feedback::Stopping);
        self.start_round();
        self.phases.phase = Phase::Down;
    }

    fn start_refill(&mut self) {
        self.model.bounds.forget_short_term();
        (self.phases.growth_doublings, self.phases.growth_acked) = (0, 0);
        self.phases.feedback = Feedback::Refilling;
        self.start_round();
        self.phases.phase = Phase::Refill;
    }

    fn start_up(&mut self, now: Instant, rate: u64) {
        self.phases.feedback = Feedback::Starting;
        self.start_round();
        self.phases.full_bandwidth.reset(rate);
        self.phases.cycle_start = now;
        self.phases.phase = Phase::Up;
        self.double_growth();
    }

    const fn start_round(&mut self) {
        self.model.round_end = self.sampler.delivered;
    }

    /// Doubles the number of segments by which the long-term bound grows in a round trip (`BBRRaiseInflightLongtermSlope`).
    fn double_growth(&mut self) {
        let growth = u64::from(self.window.segment_bytes) << self.phases.growth_doublings;
        self.phases.growth_doublings = (self.phases.growth_doublings + 1).min(GROWTH_DOUBLINGS_MAX);
        let bytes = u64::from(self.window.bytes) / growth.max(1);
        self.phases.growth_bytes = u32::try_from(bytes).unwrap_or(u32::MAX).max(1);
    }

    /// `BBRAdaptLongTermModel`.
    fn adapt_long_term_bound(&mut self, now: Instant, acked: &Acked, sample: &Sample) {
        if self.model.start_of_round {
            match self.phases.feedback {
                Feedback::Starting => self.phases.feedback = Feedback::Probing,
                Feedback::Stopping => {
                    (self.phases.feedback, self.phases.judges_losses) = (Feedback::Init, false);
                    if self.phases.is_cycle() && !sample.app_limited {
                        self.model.advance_cycle();
                    }
                }
                Feedback::Init | Feedback::Refilling | Feedback::Probing => {}
            }
        }
        if super::model::is_too_much(sample.lost, sample.in_flight) {
            if self.phases.judges_losses {
                self.reduce_in_flight(now, sample.in_flight, sample.app_limited);
            }
            return;
        }
        let Some(long) = self.model.bounds.in_flight_long else { return };
        self.model.bounds.in_flight_long = Some(long.max(sample.in_flight));
        if self.phases.phase == Phase::Up {
            self.raise_long_term_bound(acked.bytes);
        }
    }

    /// Raises the long-term bound while the flow uses all of it (`BBRProbeInflightLongtermUpward`).
    fn raise_long_term_bound(&mut self, acked: u32) {
        let Some(long) = self.model.bounds.in_flight_long else { return };
        if !self.is_window_limited() || self.window.bytes < long {
            return;
        }
        let phases = &mut self.phases;
        phases.growth_acked = phases.growth_acked.saturating_add(acked);
        let growth = phases.growth_acked / phases.growth_bytes;
        phases.growth_acked -= growth * phases.growth_bytes;
        self.model.bounds.in_flight_long = Some(long.saturating_add(growth));
        if self.model.start_of_round {
            self.double_growth();
        }
    }

    /// `BBRCheckProbeRTT`.
    fn check_probe_rtt(&mut self, now: Instant, expired: bool) {
        if self.phases.phase != Phase::ProbeRtt && expired && !self.phases.idle_restart {
            self.save_window(self.window.bytes);
            self.phases.phase = Phase::ProbeRtt;
            self.phases.probe_rtt_end = None;
            self.phases.feedback = Feedback::Stopping;
            self.start_round();
        }
        if self.phases.phase != Phase::ProbeRtt {
            return;
        }
        // A rate that is measured now says nothing about the bandwidth.
        self.sampler.limited_by_application(self.in_flight);
        match self.phases.probe_rtt_end {
            None if self.in_flight <= self.probe_rtt_window() => {
                self.phases.probe_rtt_end = Some(now + PROBE_RTT_TIME);
                self.phases.probe_rtt_round = false;
                self.start_round();
            }
            None => {}
            Some(_) => {
                self.phases.probe_rtt_round |= self.model.start_of_round;
                self.end_probe_rtt_if_due(now);
            }
        }
    }

    /// `BBRCheckProbeRTTDone`.
    fn end_probe_rtt_if_due(&mut self, now: Instant) {
        if !self.phases.probe_rtt_round || self.phases.probe_rtt_end.is_none_or(|end| now <= end) {
            return;
        }
        self.model.recent_rtt_at = now;
        self.restore_window();
        self.model.bounds.forget_short_term();
        if self.phases.pipe_filled {
            self.start_down(now);
            self.phases.phase = Phase::Cruise;
        } else {
            self.phases.phase = Phase::Startup;
        }
    }

    /// The sender sends again after a time without data (`BBRHandleRestartFromIdle`). It sends at the known bandwidth.
    pub(super) fn restart_from_idle(&mut self, now: Instant) {
        self.phases.idle_restart = true;
        self.model.aggregation.restart(now);
        if self.phases.is_cycle() {
            self.set_pacing_rate(100);
        } else if self.phases.phase == Phase::ProbeRtt {
            self.end_probe_rtt_if_due(now);
        }
    }

    /// Returns to the phase before losses that proved spurious.
    pub(super) fn return_to(&mut self, phase: Phase) {
        if self.phases.phase == Phase::ProbeRtt || self.phases.phase == phase {
            return;
        }
        match phase {
            Phase::Startup => {
                self.phases.phase = Phase::Startup;
                self.phases.pipe_filled = false;
            }
            Phase::Up => self.start_up(self.phases.cycle_start, self.model.bandwidth()),
            Phase::Drain | Phase::Down | Phase::Cruise | Phase::Refill | Phase::ProbeRtt => {}
        }
    }
}
