//! Latency at the loads that a plan offers, over all trials of a cell.

use crate::histogram::{self, Percentiles};
use crate::record::TrialRecord;
use siga_model::error::{Error, Result};
use siga_plan::offered::Offered;

/// Least fraction of the planned transactions that must be completed, so that the load counts as carried.
const CARRIED: f64 = 0.99;

/// A load that was offered to a cell, with the figures of all its trials together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OfferedLoad {
    /// The load, in percent of the rate of the closed loop.
    pub load: Offered,
    /// Number of planned transactions per second.
    pub planned_per_s: f64,
    /// Number of completed transactions per second.
    pub rate: f64,
    /// Percentiles of the latencies, counted from the planned starts.
    pub latency: Percentiles,
    /// Number of trials.
    pub trials: usize,
}

impl OfferedLoad {
    /// Returns whether the cell carried the load: it completed at least 99% of the planned transactions.
    pub fn is_carried(&self) -> bool {
        self.rate >= CARRIED * self.planned_per_s
    }

    /// Returns the figures of each load in ascending order.
    pub(super) fn of(trials: &[&TrialRecord]) -> Result<Vec<Self>> {
        let mut loads: Vec<Offered> = trials.iter().flat_map(|trial| &trial.offered).map(|one| one.load).collect();
        loads.sort_by(|one, other| one.share().total_cmp(&other.share()));
        loads.dedup();
        loads.into_iter().map(|load| Self::of_load(trials, load)).collect()
    }

    fn of_load(trials: &[&TrialRecord], load: Offered) -> Result<Self> {
        let mut latency = histogram::empty();
        let (mut seconds, mut planned, mut completed, mut count) = (0.0, 0.0, 0.0, 0);
        for trial in trials {
            for one in trial.offered.iter().filter(|one| one.load == load) {
                let of_trial = histogram::decode(&one.latency)?;
                latency
                    .add(of_trial)
                    .map_err(|_| Error::environment("the histograms of the trials cannot be added"))?;
                let length = one.phase.elapsed_ns as f64 / 1e9;
                seconds += length;
                planned += one.planned_per_s * length;
                completed += one.phase.units(trial.cell.workload);
                count += 1;
            }
        }
        Ok(Self {
            load,
            planned_per_s: planned / seconds.max(f64::MIN_POSITIVE),
            rate: completed / seconds.max(f64::MIN_POSITIVE),
            latency: histogram::percentiles(&latency),
            trials: count,
        })
    }

    /// Returns the index of the knee of the curve of latency against load: the load with the greatest quotient of rate and 99th
    /// percentile (Kleinrock's power). Below it, the load can grow faster than the latency; above it, the latency grows faster. There
    /// is no knee if the quotient is greatest at the first or the last load that the cell carried.
    pub fn knee(loads: &[Self]) -> Option<usize> {
        let carried: Vec<(usize, f64)> = loads
            .iter()
            .enumerate()
            .filter(|(_, one)| one.is_carried())
            .filter_map(|(at, one)| Some((at, one.rate / one.latency.p99?)))
            .collect();
        let (at, _) = carried.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1))?;
        let ends = [carried.first()?.0, loads.len() - 1];
        (!ends.contains(&at)).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{LoadCounts, OfferedRecord, PhaseRecord};
    use crate::testing;

    fn record(load: &str, planned: f64, transactions: u64, latency_ns: u64) -> OfferedRecord {
        let mut latency = histogram::empty();
        latency.record_n(latency_ns, transactions).unwrap();
        OfferedRecord {
            load: load.parse().unwrap(),
            planned_per_s: planned,
            phase: PhaseRecord {
                elapsed_ns: 1_000_000_000,
                client: LoadCounts { transactions, ..LoadCounts::default() },
            },
            latency: histogram::encode(&latency).unwrap(),
        }
    }

    #[test]
    fn the_trials_of_each_load_are_taken_together() {
        let mut trials: Vec<_> = (0..2).map(|round| testing::trial("veth", round, 700, None)).collect();
        trials[0].offered = vec![record("90%", 9_000.0, 6_000, 900_000), record("10%", 1_000.0, 1_000, 50_000)];
        trials[1].offered = vec![record("10%", 3_000.0, 3_000, 60_000), record("90%", 9_000.0, 8_000, 700_000)];
        let loads = OfferedLoad::of(&trials.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(loads.iter().map(|one| one.load.to_string()).collect::<Vec<_>>(), ["10%", "90%"]);
        assert_eq!((loads[0].trials, loads[0].planned_per_s, loads[0].rate), (2, 2_000.0, 2_000.0));
        assert!(loads[0].is_carried() && !loads[1].is_carried());
        assert_eq!(loads[1].rate, 7_000.0);
        let p50 = loads[0].latency.p50.unwrap();
        assert!((59.9..60.1).contains(&p50), "three of four transactions took 60 us: {p50}");
        trials[0].offered[0].latency = "damaged".into();
        assert!(OfferedLoad::of(&trials.iter().collect::<Vec<_>>()).is_err());
        assert_eq!(OfferedLoad::of(&[]).unwrap(), []);
    }

    #[test]
    fn the_knee_is_where_latency_begins_to_grow_faster_than_the_rate() {
        let load = |percent: f64, p99: f64, carried: f64| OfferedLoad {
            load: format!("{percent}%").parse().unwrap(),
            planned_per_s: percent * 100.0,
            rate: percent * 100.0 * carried,
            latency: Percentiles { p99: Some(p99), ..Percentiles::default() },
            trials: 6,
        };
        let curve = [(10.0, 50.0), (40.0, 60.0), (70.0, 80.0), (90.0, 400.0)];
        let mut loads: Vec<_> = curve.map(|(percent, p99)| load(percent, p99, 1.0)).into();
        assert_eq!(OfferedLoad::knee(&loads), Some(2));
        loads[3] = load(120.0, 9_000.0, 0.8);
        assert_eq!(OfferedLoad::knee(&loads), Some(2), "the last load was not carried");
        loads.truncate(3);
        assert_eq!(OfferedLoad::knee(&loads), None, "the latency still grows slower than the rate at the last load");
        assert_eq!(OfferedLoad::knee(&loads[..1]), None);
        assert_eq!(OfferedLoad::knee(&[load(10.0, 50.0, 1.0), load(20.0, 500.0, 1.0)]), None);
        assert_eq!(OfferedLoad::knee(&[]), None);
    }
}
