//! The two questions that siga answers first: how siga's own network compares with the kernel's, and what a router costs. The
//! answers are rows of comparisons, so they have the same ratios, intervals and verdicts as every other report of these figures.

use super::comparison::{Comparison, Row, Subject};
use super::metric::Metric;
use super::rounds::Rounds;
use crate::stats::{Estimate, signed_rank};
use crate::store::Run;
use crate::summary::{Reduced, Summary, base_of, cpu_ms, kernel_path_of};
use siga_plan::matrix::Cell;
use siga_plan::workload::{Close, Shape};

/// The answers of a run.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    /// Comparisons of siga's own networks with the kernel's paths.
    pub beside: Vec<Beside>,
    /// The overhead of each router: the difference between the path with the router and the path without.
    pub overheads: Vec<RouterOverhead>,
}

/// A path over siga's own network, compared with the path over the kernel's network that has the same number of routers. Both
/// have the same workload and number of client-server pairs.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// The cell of the path over siga's network.
    pub cell: Cell,
    /// The cell of the path over the kernel's network.
    pub kernel: Cell,
    /// The comparison of the rates.
    pub rate: Row,
    /// The comparison of the whole host's CPU times per unit.
    pub cpu: Row,
    /// Waiting policy (how siga's processes wait for traffic), spelled as in the command-line options.
    pub wait: String,
    /// The side that closes a connection first, over both networks. `None` if the workload is not CRR.
    pub close: Option<Close>,
    /// Fraction of the median trial's time in which siga's client was co-located with its partners (ran on the same CPU as they).
    pub colocated: f64,
}

/// The overhead of a router for one workload and number of client-server pairs: the difference between the path with the router
/// and the path without.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterOverhead {
    /// The cell of the path with the router.
    pub cell: Cell,
    /// The cell of the path without the router.
    pub base: Cell,
    /// CPU milliseconds per unit that the router adds. The interval contains 0 if and only if the interval of the ratio `cpu`
    /// contains 1.
    pub cost: Estimate,
    /// The comparison of the whole host's CPU times per unit.
    pub cpu: Row,
    /// The comparison of the rates.
    pub rate: Row,
    /// Increase of the 50th percentile of latency in microseconds, between the median trials of both cells. `None` if a cell has
    /// no latency.
    pub latency_us: Option<f64>,
}

impl Answers {
    /// Collects the answers from the comparisons of a run, in the order of the plan. A run on an emulated machine has no answers, and
    /// neither has one whose disturbed rounds allow no verdict.
    pub fn of(run: &Run, reduced: &Reduced, comparisons: &[Comparison]) -> Self {
        if run.environment.is_emulated() || reduced.disturbance.forbids_verdict() {
            return Self::default();
        }
        let rounds = Rounds::new(run);
        let mut answers = Self::default();
        for summary in &reduced.cells {
            let own = comparisons.iter().filter(|comparison| comparison.subject == Subject::Paths);
            for comparison in own.filter(|comparison| comparison.new == summary.cell.path) {
                let Some((rate, cpu)) = rows(comparison, &summary.cell) else { continue };
                if kernel_path_of(&summary.cell.path) == Some(comparison.base.as_str()) {
                    answers.beside.extend(Beside::of(summary, rate, cpu, run.plan.close));
                }
                if base_of(&summary.cell).is_some_and(|base| base == rate.base) {
                    answers.overheads.extend(RouterOverhead::of(&rounds, reduced, summary, rate, cpu));
                }
            }
        }
        answers
    }
}

/// Returns the rows of the rate and of the total CPU time of a cell; `None` if one of them is missing.
fn rows<'a>(comparison: &'a Comparison, cell: &Cell) -> Option<(&'a Row, &'a Row)> {
    let of = |metric: Metric| comparison.rows.iter().find(|row| row.new == *cell && row.metric == metric);
    Some((of(Metric::Rate)?, of(Metric::TOTAL)?))
}

impl Beside {
    fn of(summary: &Summary, rate: &Row, cpu: &Row, close: Close) -> Option<Self> {
        let (_, wait) = summary.median.io.rsplit_once(", ")?;
        let colocated_ns = summary.median.cpu.guests.as_ref().map_or(0, |guests| guests.client.colocated_ns);
        Some(Self {
            cell: summary.cell.clone(),
            kernel: rate.base.clone(),
            rate: rate.clone(),
            cpu: cpu.clone(),
            wait: wait.to_owned(),
            close: (summary.cell.workload.shape() == Some(Shape::Crr)).then_some(close),
            // The counter is read just before and just after the trial. So its increase can be slightly larger than the duration
            // of the trial.
            colocated: (colocated_ns as f64 / summary.median.elapsed_ns.max(1) as f64).min(1.0),
        })
    }
}

impl RouterOverhead {
    fn of(rounds: &Rounds<'_>, reduced: &Reduced, summary: &Summary, rate: &Row, cpu: &Row) -> Option<Self> {
        let pairs = rounds.of(&cpu.base).beside(rounds.of(&cpu.new));
        let logs: Vec<f64> = pairs.iter().map(|(base, _)| cpu_ms(base).ln()).collect();
        let base = reduced.cells.iter().find(|other| other.cell == rate.base)?;
        Some(Self {
            cell: summary.cell.clone(),
            base: rate.base.clone(),
            cost: cost(&logs, cpu, base.cpu.total.total)?,
            cpu: cpu.clone(),
            rate: rate.clone(),
            latency_us: summary.latency.p50.zip(base.latency.p50).map(|(with, without)| with - without),
        })
    }
}

/// Converts the ratio of a row to a difference. `base_logs` are the logarithms of the base's values, and `shown` is the base's figure
/// in the tables, with which the difference agrees.
///
/// The interval contains every difference that a ratio in the ratio's interval and a base value in the base's interval give. So it
/// contains 0 if and only if the ratio's interval contains 1, and it holds the truth at least as often as the ratio's interval.
fn cost(base_logs: &[f64], row: &Row, shown: f64) -> Option<Estimate> {
    let base = signed_rank::location(base_logs, 0.95)?;
    let scale = shown / base.value.exp();
    let difference = |ratio: f64, (least, most): (f64, f64), upper: bool| {
        let base = if (ratio > 1.0) == upper { most } else { least };
        scale * base.exp() * (ratio - 1.0)
    };
    let ends = base.low.zip(base.high);
    Some(Estimate {
        value: shown * (row.ratio - 1.0),
        low: row.low.zip(ends).map(|(low, ends)| difference(low, ends, false)),
        high: row.high.zip(ends).map(|(high, ends)| difference(high, ends, true)),
        count: row.trials.0,
    })
}

#[cfg(test)]
mod tests {
    use super::super::comparison::Verdict;
    use super::*;
    use crate::judge;
    use crate::record::TrialRecord;
    use crate::summary::reduce;

    fn answers(trials: Vec<TrialRecord>) -> Answers {
        let run = crate::testing::run("run", trials);
        let judged = judge::Judged::of(&run, None).unwrap();
        Answers::of(&run, &judged.agreed, &judged.comparisons)
    }

    fn of(path: &str, mtu: u32, round: u32, busy_ms: u64) -> TrialRecord {
        let mut trial = crate::testing::trial(path, round, busy_ms, None);
        trial.cell.mtu = Some(mtu);
        trial
    }

    #[test]
    fn a_siga_path_stands_beside_the_kernels_path_with_as_many_routers() {
        let round = |round: u32| {
            // Drift that all trials of a round share cancels out.
            let base = 500 * (u64::from(round) + 1);
            [
                of("veth", 1_500, round, 100),
                of("veth-routed", 1_500, round, base),
                of("hipersockets-routed", 57_344, round, 2 * base),
            ]
        };
        let answers = answers((0..8).flat_map(round).collect());
        let [beside] = answers.beside.as_slice() else { panic!("{:?}", answers.beside) };
        assert_eq!((beside.cell.path.as_str(), beside.kernel.path.as_str()), ("hipersockets-routed", "veth-routed"));
        assert_eq!(beside.close, None);
        assert_eq!((beside.rate.ratio, beside.wait.as_str(), beside.cpu.trials), (1.0, "block", (8, 8)));
        assert_eq!((&beside.rate.verdict, &beside.cpu.verdict), (&Verdict::Equivalent, &Verdict::Worse));
        assert!((beside.cpu.ratio - 2.0).abs() < 1e-9 && beside.cpu.high.unwrap() < 2.001, "{beside:?}");
        assert_eq!(answers.overheads.len(), 1, "{:?}", answers.overheads);
    }

    #[test]
    fn of_several_kernel_cells_only_that_of_the_same_mtu_stands_beside() {
        let cells = [("veth", 1_500), ("veth", 8_992), ("hipersockets", 8_992), ("hipersockets", 57_344)];
        let answers = answers(cells.map(|(path, mtu)| of(path, mtu, 0, 100)).into());
        let mtus: Vec<_> = answers.beside.iter().map(|one| (one.cell.mtu, one.kernel.mtu)).collect();
        assert_eq!(mtus, [(Some(8_992), Some(8_992))]);
    }

    #[test]
    fn router_overhead_is_a_difference_that_agrees_with_its_verdict() {
        // The router adds a half, with more or less scatter. The verdict and the interval of the difference have the same sign.
        for scatter in [0, 10, 60, 100, 200, 400, 900] {
            let round = |round: u32| {
                let drift = u64::from(round) * 50;
                let noise = u64::from(round * 7 % 5) * scatter;
                [of("veth", 1_500, round, 700 + drift + noise), of("veth-routed", 1_500, round, (700 + drift) * 3 / 2)]
            };
            let answers = answers((0..9).flat_map(round).collect());
            let [overhead] = answers.overheads.as_slice() else { panic!("{:?}", answers.overheads) };
            let (low, high) = (overhead.cost.low.unwrap(), overhead.cost.high.unwrap());
            assert!(low <= overhead.cost.value && overhead.cost.value <= high, "{overhead:?}");
            assert_eq!(low > 0.0, overhead.cpu.low.unwrap() > 1.0, "{overhead:?}");
            assert_eq!(high < 0.0, overhead.cpu.high.unwrap() < 1.0, "{overhead:?}");
            if scatter == 0 {
                // By hand: of the geometric means of two base values each, the median is that of 800 and 1,000 ms. The router adds half
                // of it, over 1,000 transactions.
                let base = (0.8_f64 * 1.0).sqrt();
                assert!((overhead.cost.value - base / 2.0).abs() < 1e-9 && overhead.cost.count == 9, "{overhead:?}");
                assert_eq!(overhead.cpu.verdict, Verdict::Worse);
            }
        }
    }

    #[test]
    fn a_run_of_several_levels_has_the_answers_of_each_level() {
        let round = |round: u32| {
            ["430", "430-packing"].into_iter().flat_map(move |level| {
                ["veth", "veth-routed"].map(|path| {
                    let mut trial = of(path, 1_500, round, if path == "veth" { 700 } else { 1_000 });
                    trial.cell.level = level.into();
                    trial
                })
            })
        };
        let mut run = crate::testing::run("run", (0..8).flat_map(round).collect());
        run.levels = ["430", "430-packing"]
            .map(|name| siga_plan::level::Level { name: name.into(), ..siga_plan::level::Level::plain() })
            .into();
        let comparisons = judge::shown(&run).unwrap();
        let answers = Answers::of(&run, &reduce(&run, None).unwrap(), &comparisons);
        let levels: Vec<&str> = answers.overheads.iter().map(|one| one.cell.level.as_str()).collect();
        assert_eq!(levels, ["430", "430-packing"]);
        // Each verdict is that of `siga compare veth veth-routed`.
        let compared = judge::paths(&run, "veth", "veth-routed").unwrap();
        assert!(answers.overheads.iter().all(|one| compared.rows.contains(&one.cpu)), "{answers:?}");
    }
}
