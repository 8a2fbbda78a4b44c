//! Simulates runs of two identical levels on a disturbed host, and counts the runs in which a verdict calls the levels different. The
//! generator has a fixed seed, so that each run of the tests has the same trials. Decision 027 has the table that this test prints.
#![allow(clippy::print_stdout, reason = "the test says what it found")]

use super::*;
use crate::judge::{Metric, Row, Verdict, levels};
use crate::record::HostRecord;
use siga_plan::level::Level;

/// Number of simulated runs of identical levels for each row of the table.
const RUNS: usize = 400;
/// Number of simulated runs with a difference for each row of the table.
const SLOWER_RUNS: usize = 100;
/// Number of rounds of each run.
const ROUNDS: u32 = 16;

/// A random number generator: SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    /// Draws a uniformly distributed number in (0, 1].
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((mixed ^ (mixed >> 31)) >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Draws a normally distributed number with mean 0 and standard deviation 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        (-2.0 * self.share().ln()).sqrt() * (2.0 * std::f64::consts::PI * self.share()).cos()
    }
}

/// How a simulated host disturbs trials.
#[derive(Clone, Copy)]
struct Host {
    name: &'static str,
    /// Probability that a trial of the first and of the second level is disturbed.
    chance: (f64, f64),
    /// Probability that a disturbance continues in the next trial.
    continues: f64,
    /// How many different numbers of client-server pairs the run has. Each is a workload with one cell for each level.
    workloads: u32,
}

/// Which trials the comparison leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// None: the records do not say what the host did.
    Nothing,
    /// All trials of a workload in a round in which one of them is disturbed.
    Blocks,
}

/// Simulates a run of the levels `plain` and `new`, whose rate is `ratio` times that of `plain`.
fn run(random: &mut Random, host: Host, rule: Rule, ratio: f64) -> Run {
    let mut trials = Vec::new();
    let mut goes_on = false;
    for round in 0..ROUNDS {
        let drift = 0.03 * random.normal();
        let mut cells: Vec<(&str, u32)> =
            (1..=host.workloads).flat_map(|clients| [("plain", clients), ("new", clients)]).collect();
        for at in (1..cells.len()).rev() {
            let other = (0..=at).find(|other| random.share() <= 1.0 / (at - other + 1) as f64).unwrap_or(at);
            cells.swap(at, other);
        }
        for (level, clients) in cells {
            let chance = if level == "plain" { host.chance.0 } else { host.chance.1 };
            goes_on = random.share() <= if goes_on { host.continues.max(chance) } else { chance };
            // A quiet hypervisor takes up to 0.4%, which the rule does not see.
            let steal = if goes_on { 0.03 + 0.4 * random.share() } else { 0.004 * random.share() };
            trials.push(trial(random, (level, clients, round), (drift, steal), rule, ratio));
        }
    }
    let levels = ["plain", "new"].map(|name| Level { name: name.into(), ..Level::default() });
    Run { levels: levels.into(), ..crate::testing::run("run", trials) }
}

fn trial(
    random: &mut Random,
    (level, clients, round): (&str, u32, u32),
    (drift, steal): (f64, f64),
    rule: Rule,
    ratio: f64,
) -> TrialRecord {
    let mut trial = crate::testing::trial("veth", round, 700, None);
    trial.cell.level = level.into();
    trial.cell.clients = clients;
    let factor = if level == "plain" { 1.0 } else { ratio };
    // What the hypervisor takes slows the path down by more than its share, because sleeping threads lose their CPU's caches.
    let seconds = (0.02 * random.normal() + drift + 2.0 * steal).exp() / factor;
    let busy = 0.7 * (0.01 * random.normal() + steal).exp();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "about a second")]
    let ns = |seconds: f64| (seconds * 1e9) as u64;
    (trial.elapsed_ns, trial.cpu.busy_ns) = (ns(seconds), ns(busy));
    for process in [&mut trial.cpu.client, &mut trial.cpu.server] {
        process.run_ns = ns(0.3 * (0.01 * random.normal() + steal).exp());
        process.user_ns = process.run_ns / 10;
    }
    let record = HostRecord { steal_ns: ns(2.0 * steal), ..HostRecord::default() };
    trial.host = (rule == Rule::Blocks).then_some(record);
    trial
}

/// The outcome of many simulated runs.
#[derive(Default)]
struct Counts {
    /// Runs in which a figure was called better or worse.
    different: usize,
    /// Runs without a verdict, because too few rounds were undisturbed.
    no_verdict: usize,
    /// Intervals of the rate that contain the true ratio, and all intervals of the rate.
    covering: (usize, usize),
    /// Sum of the logarithms of the estimated ratios of the rate, divided by the true ratio.
    bias: f64,
}

fn simulate(host: Host, rule: Rule, ratio: f64, runs: usize) -> Counts {
    let mut random = Random(0x5167_a000);
    let mut counts = Counts::default();
    for _ in 0..runs {
        let run = run(&mut random, host, rule, ratio);
        let comparison = levels(&run, "plain", "new").expect("the levels are there");
        let decided = |verdict: &Verdict| matches!(verdict, Verdict::Better | Verdict::Worse);
        counts.different += usize::from(comparison.rows.iter().any(|row| decided(&row.verdict)));
        if comparison.no_verdict().is_some() {
            counts.no_verdict += 1;
            continue;
        }
        let judged = |row: &&Row| row.metric == Metric::Rate && !matches!(row.verdict, Verdict::NotComparable { .. });
        for row in comparison.rows.iter().filter(judged) {
            let contains = row.low.is_some_and(|low| low <= ratio) && row.high.is_some_and(|high| high >= ratio);
            counts.covering.0 += usize::from(contains);
            counts.covering.1 += 1;
            counts.bias += (row.ratio / ratio).ln();
        }
    }
    counts
}

#[test]
fn false_verdicts_stay_within_their_bound_on_a_disturbed_host() {
    let hosts = [
        Host { name: "quiet", chance: (0.0, 0.0), continues: 0.0, workloads: 1 },
        Host { name: "10% of trials", chance: (0.1, 0.1), continues: 0.0, workloads: 1 },
        Host { name: "bursts", chance: (0.03, 0.03), continues: 0.8, workloads: 1 },
        Host { name: "one side hit 8 times as often", chance: (0.02, 0.16), continues: 0.0, workloads: 1 },
        Host { name: "half of trials", chance: (0.5, 0.5), continues: 0.0, workloads: 1 },
        Host { name: "30% of trials, 3 workloads", chance: (0.3, 0.3), continues: 0.0, workloads: 3 },
        Host { name: "bursts, 3 workloads", chance: (0.03, 0.03), continues: 0.8, workloads: 3 },
    ];
    println!("host | rule | A/A runs called different | no verdict | 95% intervals with the true ratio 0.9 | bias");
    for host in hosts {
        for rule in [Rule::Nothing, Rule::Blocks] {
            let same = simulate(host, rule, 1.0, RUNS);
            let slower = simulate(host, rule, 0.9, SLOWER_RUNS);
            let (covering, all) = slower.covering;
            let (share, bias) = (covering as f64 / all.max(1) as f64, slower.bias / all.max(1) as f64);
            println!(
                "{} | {} | {} of {RUNS} | {} of {RUNS} | {:.1}% of {all} | {:+.2}%",
                host.name,
                if rule == Rule::Blocks { "blocks left out" } else { "none" },
                same.different,
                same.no_verdict,
                100.0 * share,
                100.0 * bias
            );
            if rule == Rule::Nothing {
                continue;
            }
            // At 5%, up to 28 of 400 are within the 97.5% quantile of the binomial distribution.
            assert!(same.different <= 28, "{}: {} of {RUNS} called different", host.name, same.different);
            assert!(all == 0 || share >= 0.9, "{}: {covering} of {all} intervals contain the ratio", host.name);
            assert!(bias.abs() < 0.005, "{}: {bias}", host.name);
        }
    }
}
