//! The geometric mean of a comparison's ratios over its cells. The figures of one round are averaged over all cells first, so that a round
//! is one sample, as in every other figure.

use super::comparison::{Row, Subject};
use super::decide::{EQUIVALENT, Judgement};
use super::metric::Metric;
use super::values::Values;
use crate::record::Slot;
use std::collections::BTreeMap;

/// The geometric mean of the ratios of one metric over the cells of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Mean {
    /// The metric.
    pub metric: Metric,
    /// Number of cells.
    pub cells: usize,
    /// The geometric mean of the cells' ratios.
    pub value: f64,
    /// Lower end of the 95% interval; `None` if too few rounds have a trial of each cell.
    pub low: Option<f64>,
    /// Upper end of the 95% interval.
    pub high: Option<f64>,
}

impl Mean {
    /// Returns whether the interval lies within 2% to either side of 1.
    pub fn is_same(&self) -> bool {
        self.low.is_some_and(|low| low >= EQUIVALENT.0) && self.high.is_some_and(|high| high <= EQUIVALENT.1)
    }

    /// Returns whether the interval excludes 1, so that the mean shows a difference.
    pub fn is_clear(&self) -> bool {
        self.low.is_some_and(|low| low > 1.0) || self.high.is_some_and(|high| high < 1.0)
    }
}

/// The logarithms of a metric's values by round, for one pair of cells: base and new.
type Logs = (BTreeMap<Slot, f64>, BTreeMap<Slot, f64>);

/// Collects the values of the metrics that have a mean.
#[derive(Debug, Default)]
pub(super) struct Means(BTreeMap<Metric, Vec<Logs>>);

impl Means {
    const METRICS: [Metric; 2] = [Metric::Rate, Metric::TOTAL];

    /// Adds a pair of comparable cells.
    pub(super) fn add(&mut self, metric: Metric, base: &Values, new: &Values) {
        let logs = |values: &Values| {
            let of_metric = values.get(&metric).into_iter().flatten();
            of_metric.map(|(slot, value)| (*slot, value.ln())).collect::<BTreeMap<_, _>>()
        };
        if Self::METRICS.contains(&metric) {
            self.0.entry(metric).or_default().push((logs(base), logs(new)));
        }
    }

    /// Returns the means over the comparable rows; none over a single cell.
    pub(super) fn of(&self, subject: Subject, rows: &[Row]) -> Vec<Mean> {
        let one = |(metric, cells): (&Metric, &Vec<Logs>)| {
            let ratios: Vec<f64> = rows
                .iter()
                .filter(|row| row.metric == *metric && row.p_adjusted.is_some())
                .map(|row| row.ratio.ln())
                .collect();
            if ratios.len() < 2 || ratios.len() != cells.len() {
                return None;
            }
            let value = (ratios.iter().sum::<f64>() / ratios.len() as f64).exp();
            let judgement = match subject {
                Subject::Runs => Judgement::two_samples(
                    &averages(cells.iter().map(|(base, _)| base)),
                    &averages(cells.iter().map(|(_, new)| new)),
                ),
                Subject::Levels | Subject::Paths | Subject::Mtus => {
                    let differences: Vec<BTreeMap<Slot, f64>> = cells.iter().map(difference).collect();
                    Judgement::paired(&averages(differences.iter()))
                }
            };
            // The interval belongs to the estimate over the rounds. It moves with the mean of the ratios that are shown.
            let end = |pick: fn(&Judgement) -> Option<f64>| {
                judgement.as_ref().and_then(|own| Some(pick(own)? * value / own.ratio))
            };
            let (low, high) = (end(|own| own.low), end(|own| own.high));
            Some(Mean { metric: *metric, cells: ratios.len(), value, low, high })
        };
        self.0.iter().filter_map(one).collect()
    }
}

fn difference((base, new): &Logs) -> BTreeMap<Slot, f64> {
    base.iter().filter_map(|(slot, base)| Some((*slot, new.get(slot)? - base))).collect()
}

/// Returns the mean over the cells for each round that all cells have.
fn averages<'a>(cells: impl Iterator<Item = &'a BTreeMap<Slot, f64>>) -> Vec<f64> {
    let cells: Vec<_> = cells.collect();
    let Some((first, others)) = cells.split_first() else { return Vec::new() };
    let of = |(slot, value): (&Slot, &f64)| {
        let rest = others.iter().map(|cell| cell.get(slot).copied()).sum::<Option<f64>>()?;
        Some((value + rest) / cells.len() as f64)
    };
    first.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use crate::judge::{self, Metric};
    use crate::testing;

    #[test]
    fn the_mean_is_that_of_the_ratios_and_has_an_interval_over_the_rounds() {
        let mut run = testing::run("run", Vec::new());
        for round in 0..9_u64 {
            for (clients, path, ms) in [(1, "veth", 1_000), (1, "unix", 500), (10, "veth", 1_000), (10, "unix", 2_000)]
            {
                let mut trial = testing::trial(path, u32::try_from(round).unwrap(), 700, None);
                trial.cell.clients = clients;
                // One path is faster in some rounds and slower in others.
                let scatter = if path == "unix" { 96 + round * 7 % 9 } else { 100 };
                trial.elapsed_ns = ms * scatter * 10_000;
                run.trials.push(trial);
            }
        }
        let mean = judge::paths(&run, "veth", "unix").unwrap().means[0].clone();
        assert_eq!((mean.metric, mean.cells), (Metric::Rate, 2));
        // Twice the rate in one cell and half of it in the other is no difference in the mean.
        assert!((mean.value - 1.0).abs() < 0.02 && !mean.is_clear(), "{mean:?}");
        assert!(mean.low.unwrap() <= mean.value && mean.value <= mean.high.unwrap(), "{mean:?}");
        run.trials.retain(|trial| trial.cell.clients == 1);
        assert_eq!(judge::paths(&run, "veth", "unix").unwrap().means, [], "one cell has no mean");
        for trial in run.trials.clone() {
            let mut trial = trial.clone();
            trial.cell.clients = 2;
            run.trials.push(trial);
        }
        let mean = judge::paths(&run, "veth", "unix").unwrap().means[0].clone();
        assert!((mean.value - 2.0).abs() < 0.02 && mean.is_clear(), "{mean:?}");
    }
}
