//! What CPU accounting itself costs on a cell: what it takes of the rate, and what it says that it takes.
//!
//! The profiler's cost in a trial is the logarithm of the rate with it, minus that of the rate without it at the same time. The phase
//! with the profiler lies between two phases without it (`crate::record::ObserverRecord`). Their rates are interpolated to the middle
//! of the phase with the profiler. The cost of a cell is the Hodges-Lehmann estimate over its trials, the statistic of verdicts.
//!
//! Guests time their copies in every phase, and no trial is without that. So only what it says is known: an upper limit from numbers
//! of frames and bytes. The methods `tick` and `subtract` read counters outside the phases, and cost nothing within them.

use crate::record::{TrialRecord, total};
use crate::stats::{lower_median, signed_rank};
use siga_plan::accounting::AccountingMethod;

/// CPU accounting may change the rate by this share. Beyond it, the report says so.
const COST_MAX: f64 = 0.02;
/// Guests time every copy of this number of bytes or more, and one in [`UNTIMED`] smaller ones (the crate `ring`).
const TIMED_BYTES: u64 = 8_192;
/// Of this number of smaller copies, a guest times one.
const UNTIMED: f64 = 32.0;

/// The rate of a cell with CPU accounting, as a fraction of the rate without it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ObserverCost {
    /// The accounting method: `profile` or `processes`.
    pub method: AccountingMethod,
    /// Rate with the profiler divided by the rate without it; `None` if the method runs in every phase.
    pub rate_ratio: Option<f64>,
    /// Lower end of the ratio's 95% interval; `None` if there are too few trials.
    pub low: Option<f64>,
    /// Upper end of the ratio's 95% interval; `None` if there are too few trials.
    pub high: Option<f64>,
    /// Number of trials.
    pub trials: usize,
    /// The ratio that follows from the cost and the number of samples and packets, or of readings of a clock: median over the trials.
    pub said_ratio: f64,
}

impl ObserverCost {
    /// Returns the cost of CPU accounting over the trials of a cell; `None` if no trial has the figures for it.
    pub fn of(trials: &[&TrialRecord]) -> Option<Self> {
        Self::of_profiler(trials).or_else(|| Self::of_guests(trials))
    }

    fn of_profiler(trials: &[&TrialRecord]) -> Option<Self> {
        let costs: Vec<(f64, f64)> =
            trials.iter().filter_map(|trial| Some((log_ratio(trial)?, said(trial)?))).collect();
        let (logs, said): (Vec<f64>, Vec<f64>) = costs.into_iter().unzip();
        let ratio = signed_rank::location(&logs, 0.95)?;
        let exp = |end: Option<f64>| end.map(f64::exp);
        Some(Self {
            method: AccountingMethod::Profile,
            rate_ratio: Some(ratio.value.exp()),
            low: exp(ratio.low),
            high: exp(ratio.high),
            trials: logs.len(),
            said_ratio: 1.0 - said[lower_median(&said)?],
        })
    }

    fn of_guests(trials: &[&TrialRecord]) -> Option<Self> {
        let said: Vec<f64> = trials.iter().filter_map(|trial| said_by_guests(trial)).collect();
        let said_ratio = 1.0 - said[lower_median(&said)?];
        let method = AccountingMethod::Processes;
        Some(Self { method, rate_ratio: None, low: None, high: None, trials: said.len(), said_ratio })
    }

    /// Returns whether the whole interval says that the profiler changes the rate by more than 2%. The rate can also rise, because
    /// the profiler's timers change when idle CPUs wake up (decision 029).
    pub fn is_beyond_limit(&self) -> bool {
        self.high.is_some_and(|high| high < 1.0 - COST_MAX) || self.is_faster()
    }

    /// Returns whether the whole interval says that the profiler changes the rate by more than 2%, and by more than it says.
    pub fn is_more_than_said(&self) -> bool {
        self.is_faster() || self.is_beyond_limit() && self.high.is_some_and(|high| high < self.said_ratio)
    }

    fn is_faster(&self) -> bool {
        self.low.is_some_and(|low| low > 1.0 + COST_MAX)
    }
}

/// Returns an upper limit of the share of the CPU time that guests took to time their copies; `None` if the record does not say it. A
/// partner copies each frame at most once, and reads its clock before and after a copy that it times. Applications that use the
/// stacks of guests make further copies, whose number is unknown.
fn said_by_guests(trial: &TrialRecord) -> Option<f64> {
    let guests = trial.cpu.guests.as_ref().filter(|guests| guests.clock_ns > 0 && guests.stacks.is_none())?;
    let sent = trial.devices.iter().filter(|(name, _)| name.ends_with(" frames_sent")).map(|(_, count)| *count);
    let frames = total(sent) as f64;
    let hops = if super::has_router(&trial.cell) { 2.0 } else { 1.0 };
    let bytes = trial.client.sent.saturating_add(trial.client.received) as f64 * hops;
    let timed = frames.min(bytes / TIMED_BYTES as f64) + frames / UNTIMED;
    (trial.cpu.busy_ns > 0).then(|| (2.0 * timed * guests.clock_ns as f64 / trial.cpu.busy_ns as f64).min(1.0))
}

/// Returns the logarithm of the ratio of a trial's rate with the profiler to its rate without it; `None` if the trial has no
/// phases for it, or if an exchange failed in one of them.
fn log_ratio(trial: &TrialRecord) -> Option<f64> {
    let observer = trial.observer.as_ref()?;
    let phases = [&observer.with, &observer.without];
    if trial.client.errors() > 0 || phases.iter().any(|phase| phase.client.errors() > 0) {
        return None;
    }
    // The middle of each phase, counted from the end of the trial's own phase. Pauses between phases have no traffic.
    let own = -(trial.elapsed_ns as f64) / 2.0;
    let with = observer.with.elapsed_ns as f64 / 2.0;
    let without = observer.with.elapsed_ns as f64 + observer.without.elapsed_ns as f64 / 2.0;
    let weight = (with - own) / (without - own);
    let expected = (1.0 - weight) * trial.rate().ln() + weight * observer.without.rate(trial.cell.workload).ln();
    Some(observer.with.rate(trial.cell.workload).ln() - expected).filter(|log| log.is_finite())
}

/// Returns the share of the CPU time that the profiler says it took in a trial; `None` if it took no sample. If CPUs were idle, this
/// is more than what it takes of the rate.
fn said(trial: &TrialRecord) -> Option<f64> {
    let (observer, profile) = (trial.observer.as_ref()?, trial.cpu.profile.as_ref()?);
    let samples = profile.all();
    let taken = samples as f64 * observer.sample_ns as f64 + observer.packets as f64 * observer.packet_ns as f64;
    (samples > 0).then(|| (taken / (samples as f64 * profile.period_ns as f64)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Charges, GuestsRecord, LoadCounts, ObserverRecord, PhaseRecord, ProfileRecord, Samples};
    use crate::testing::trial;

    /// Returns a trial whose own phase has 1,000 transactions in one second. The other phases have these numbers of transactions, in
    /// half a second and in a quarter.
    fn observed(round: u32, with: u64, without: u64) -> TrialRecord {
        let on_client = Charges { client: Samples { user: 100, kernel: 900 }, ..Charges::default() };
        let profile = ProfileRecord { period_ns: 1_000_000, on_client, ..ProfileRecord::default() };
        let mut trial = trial("veth-routed", round, 700, Some(profile));
        let phase = |transactions, elapsed_ns| PhaseRecord {
            elapsed_ns,
            client: LoadCounts { transactions, ..LoadCounts::default() },
        };
        trial.observer = Some(ObserverRecord {
            with: phase(with, 500_000_000),
            without: phase(without, 250_000_000),
            // 1,000 samples of 10 us and 20,000 packets of 100 ns in the second of CPU time that the samples stand for: 1.2%.
            sample_ns: 10_000,
            packet_ns: 100,
            packets: 20_000,
        });
        trial
    }

    fn cost(trials: &[TrialRecord]) -> ObserverCost {
        ObserverCost::of(&trials.iter().collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_steady_change_of_the_rate_is_no_cost_of_the_profiler() {
        // By hand: from 1,000,000 a second in the middle of the own phase, the rate falls by the same factor in each second, e^-0.1.
        // The other middles are 0.75 s and 1.125 s later: 927,743 and 893,597 a second, for half a second and for a quarter.
        let trials: Vec<_> = (0..6)
            .map(|round| {
                let mut trial = observed(round, 463_872, 223_399);
                trial.client.transactions = 1_000_000;
                trial
            })
            .collect();
        let cost = cost(&trials);
        assert!((cost.rate_ratio.unwrap() - 1.0).abs() < 1e-4 && cost.trials == 6, "{cost:?}");
        assert!(!cost.is_beyond_limit());
    }

    #[test]
    fn the_cost_is_the_rate_with_the_profiler_by_the_rate_without_it() {
        let trials: Vec<_> = (0..8).map(|round| observed(round, 484 + u64::from(round % 3), 250)).collect();
        let cost = cost(&trials);
        assert!((cost.rate_ratio.unwrap() - 0.97).abs() < 0.001, "{cost:?}");
        assert!((cost.said_ratio - 0.988).abs() < 1e-9, "{cost:?}");
        assert!(cost.is_beyond_limit() && cost.is_more_than_said());
        let said = ObserverCost { said_ratio: 0.96, ..cost };
        assert!(said.is_beyond_limit() && !said.is_more_than_said());
        let faster: Vec<_> = (0..8).map(|round| observed(round, 550 + u64::from(round % 3), 250)).collect();
        assert!(ObserverCost::of(&faster.iter().collect::<Vec<_>>()).unwrap().is_more_than_said());
    }

    #[test]
    fn few_or_uncertain_trials_blame_nothing() {
        let few = cost(&[observed(0, 300, 250), observed(1, 310, 250)]);
        assert!(few.rate_ratio.unwrap() < 0.7 && few.low.is_none() && !few.is_beyond_limit());
        let uncertain: Vec<_> = [300, 520, 480, 510, 490, 500].map(|with| observed(0, with, 250)).into();
        assert!(!cost(&uncertain).is_beyond_limit());
        let mut failed = observed(0, 300, 250);
        failed.observer.as_mut().unwrap().with.client.resets = 1;
        assert_eq!(ObserverCost::of(&[&failed, &trial("veth", 0, 700, None)]), None);
    }

    #[test]
    fn guests_say_at_most_what_reading_their_clocks_takes() {
        let mut trial = trial("hipersockets-routed", 0, 700, None);
        assert_eq!(ObserverCost::of(&[&trial]), None, "the record does not say it");
        trial.cpu.guests = Some(GuestsRecord { clock_ns: 50, ..GuestsRecord::default() });
        trial.devices = [("tcpip1/lan frames_sent".to_owned(), 60_000), ("tcpip1/lan pending".to_owned(), 9)].into();
        trial.client.sent = 819_200_000;
        trial.client.received = 0;
        // By hand: 819,200,000 bytes over two hops are more than 60,000 frames of 8 KB, so each frame is timed, and 1,875 small ones.
        // 2 x 61,875 readings of 50 ns in 700 ms are 0.884%.
        let cost = ObserverCost::of(&[&trial]).unwrap();
        assert!((1.0 - cost.said_ratio - 0.008_839).abs() < 1e-6, "{cost:?}");
        assert_eq!((cost.method, cost.rate_ratio), (AccountingMethod::Processes, None));
        assert!(!cost.is_beyond_limit() && !cost.is_more_than_said());
        // 40,960,000 bytes over two hops are at most 10,000 large copies.
        trial.client.sent = 40_960_000;
        let cost = ObserverCost::of(&[&trial]).unwrap();
        assert!((1.0 - cost.said_ratio - 2.0 * 11_875.0 * 50.0 / 700e6).abs() < 1e-9, "{cost:?}");
    }
}
