//! Tests of a run's course: its rounds, their number, and disturbed rounds.
#![allow(clippy::print_stdout, reason = "the replays show their reports")]

use super::*;
use crate::cpu::host::HostCpu;
use crate::trial::host_record;
use siga_report::{Format, Layout};
use siga_results::environment::Environment;
use siga_results::record::{PathRecord, Probe};
use siga_results::testing;

/// A bench whose trials take no time. Each trial finds the CPU times of the next planted readings of /proc/stat.
struct Planted {
    /// Steal time within each round's first trial, in ticks of 10 ms.
    steal_ticks: fn(u32) -> u64,
    /// Steal time so far.
    stolen: u64,
    trials: u64,
    bound: u32,
}

impl Planted {
    fn new(steal_ticks: fn(u32) -> u64) -> Self {
        Self { steal_ticks, stolen: 1_000, trials: 0, bound: 200 }
    }

    /// Returns a reading of /proc/stat at `second`.
    fn reading(&self, second: u64) -> HostCpu {
        let idle = 100 * second;
        let stat = format!(
            "cpu  10 0 10 {idle} 0 0 0 {} 0 0\ncpu0 5 0 5 0 0 0 0 0 0 0\ncpu1 5 0 5 0 0 0 0 0 0 0\n",
            self.stolen
        );
        HostCpu { at_ns: second * 1_000_000_000, ..HostCpu::of_stat(&stat).unwrap() }
    }
}

impl Measures for Planted {
    fn trial(
        &mut self,
        cell: &Cell,
        round: u32,
        _: bool,
        _: &mut dyn FnMut(&str),
    ) -> Result<(TrialRecord, PathRecord)> {
        assert!(round < self.bound, "the run does not end");
        self.trials += 1;
        let before = self.reading(2 * self.trials);
        let first = cell.path == "veth";
        let stolen = if first { (self.steal_ticks)(round) } else { 0 };
        self.stolen += stolen;
        let after = self.reading(2 * self.trials + 1);
        let mut trial = testing::trial(&cell.path, round, 700 + u64::from(round % 3), None);
        trial.cell = cell.clone();
        // What the hypervisor takes, the path lacks.
        trial.elapsed_ns += stolen * 20_000_000;
        let probe = Probe { wake_here_ns: 4_000, wake_across_ns: Some(60_000), cache_line_ns: Some(600) };
        trial.host = Some(siga_results::record::HostRecord { probe: Some(probe), ..host_record(&[before], &[after]) });
        Ok((trial, PathRecord::without_settings(cell)))
    }
}

/// Collects the notes of a run.
#[derive(Default)]
struct Notes(Vec<String>);

impl Watch for Notes {
    fn begins(&mut self, _: &Cell, _: &Progress) {}
    fn measured(&mut self, _: &TrialRecord, _: &Progress) {}
    fn skipped(&mut self, _: &Skipped) {}
    fn round(&mut self, _: &Run, _: &Progress) {}
    fn note(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
    fn host(&mut self, _: &str) {}
}

/// Runs a plan of the paths veth and veth-routed over planted readings. Returns the run, and what it noted.
fn replay(plan: Plan, steal_ticks: fn(u32) -> u64) -> (Run, Vec<String>) {
    let plan = Plan { workloads: vec!["rr-200-1000".into()], clients: vec![1], ..plan };
    let matrix = plan.matrix().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (mut store, run) = Store::create(&directory.path().join("run"), &plan, &Environment::default()).unwrap();
    let mut notes = Notes::default();
    let course = Course::new(&plan, &matrix, &run);
    let ended = course.measure(&mut Planted::new(steal_ticks), &mut store, run, &mut notes);
    assert!(ended.cut_short.is_none(), "{ended:?}");
    (ended.run, notes.0)
}

fn fixed(trials: u32) -> Plan {
    Plan { trials: Some(trials), budget_seconds: None, ..Plan::default() }
}

#[test]
fn stolen_rounds_are_measured_again_and_the_report_says_so() {
    // The hypervisor takes 24 of 200 ticks in five of the first sixteen rounds.
    let (run, notes) = replay(fixed(11), |round| if [1, 4, 5, 8, 12].contains(&round) { 24 } else { 0 });
    assert_eq!(run.trials.len(), 2 * 16, "five rounds replace those that were disturbed");
    assert_eq!(notes.len(), 5);
    assert_eq!(notes[0], "siga leaves out round 2, because the hypervisor took 12% of the CPU time");
    let report = siga_report::render(&run, Format::Text, Layout::Plain, None).unwrap();
    println!("{report}");
    let [answer, disturbed] = [0, 1].map(|line| report.lines().nth(line).unwrap());
    assert!(answer.starts_with("A router ") && answer.ends_with(" (from 11 of 16 rounds)."), "{report}");
    let wanted = "Disturbed: the hypervisor took 12% of the CPU time in 5 of 16 rounds; siga uses only the other 11.";
    assert_eq!(disturbed, wanted, "{report}");
}

#[test]
fn a_host_that_always_steals_gives_no_verdict_and_ends() {
    let (run, _) = replay(fixed(12), |_| 20);
    assert_eq!(run.trials.len(), 2 * 12, "further rounds would be disturbed, too");
    let report = siga_report::render(&run, Format::Text, Layout::Plain, None).unwrap();
    println!("{report}");
    assert!(report.starts_with("No verdict: the hypervisor took 10% of the CPU time in 12 of 12 rounds; "), "{report}");
    assert!(!report.contains("A router "), "no sentence claims anything: {report}");
    let (run, _) = replay(fixed(12), |round| if round < 11 { 20 } else { 0 });
    assert_eq!(run.trials.len(), 2 * 18, "at most half as many rounds are added");
}

#[test]
fn rounds_that_cannot_lead_to_a_verdict_are_not_measured_again() {
    let short = fixed(3);
    assert_eq!(replay(short, |round| if round == 1 { 20 } else { 0 }).0.trials.len(), 2 * 3);
    let smoke = Plan { smoke: true, ..fixed(8) };
    assert_eq!(replay(smoke, |round| if round == 1 { 20 } else { 0 }).0.trials.len(), 2 * 8);
}

#[test]
fn a_run_until_its_intervals_are_narrow_replaces_disturbed_rounds_up_to_the_limit() {
    let open = || Plan { trials: None, budget_seconds: None, ..Plan::default() };
    let quiet = replay(open(), |_| 0).0.trials.len();
    let (run, _) = replay(open(), |round| if round < 4 { 20 } else { 0 });
    assert_eq!(run.trials.len(), quiet + 2 * 4);
    let (run, _) = replay(open(), |_| 20);
    assert_eq!(run.trials.len(), 2 * limits::STOP_TRIALS_MAX);
}

#[test]
fn an_order_follows_from_its_seed_and_holds_every_cell() {
    let order = |seed| {
        let mut order: Vec<usize> = (0..20).collect();
        shuffle(&mut order, seed);
        order
    };
    assert_eq!(order(7), order(7));
    assert_ne!(order(7), order(8));
    let mut sorted = order(7);
    sorted.sort_unstable();
    assert_eq!(sorted, (0..20).collect::<Vec<_>>());
}

#[test]
fn cells_that_are_compared_follow_one_another() {
    let mut order = [5, 2, 9, 4, 3, 8, 1];
    join(&mut order, |one| one % 3);
    assert_eq!(order, [5, 2, 8, 9, 3, 4, 1]);
}

#[test]
fn the_estimate_follows_trials_or_the_budget() {
    let mut plan = Plan::default();
    let matrix = plan.matrix().unwrap();
    // One pair of cells, veth and veth-routed: as many as its main figures need at least, and no more than 30.
    assert_eq!(estimate(&plan, &matrix).rounds, (7, 30));
    plan.trials = Some(3);
    assert_eq!(estimate(&plan, &matrix).rounds, (3, 3));
    plan.trials = None;
    plan.budget_seconds = Some(25.0);
    let Extent { rounds, time, .. } = estimate(&plan, &matrix);
    assert!(rounds.0 >= 5 && rounds.1 < 10 && time.1 <= Duration::from_secs(25), "{rounds:?}, {time:?}");
    // A trial of one second and its warm-up take 1.4 s. A phase with the profiler and one without it add 0.75 s.
    let without = Plan { accounting: Some(AccountingMethod::Tick), ..plan.clone() };
    assert_eq!((estimate(&plan, &matrix).rounds.1, estimate(&without, &matrix).rounds.1), (5, 8));
    plan.budget_seconds = Some(0.1);
    assert_eq!(estimate(&plan, &matrix).rounds, (1, 1), "the first round is always measured");
}

#[test]
fn the_estimate_counts_pairs_the_ends_of_streams_and_the_first_check() {
    let time = |path: &str, workload: &str, clients: u32, trials: u32| {
        let (paths, workloads) = (vec![path.to_owned()], vec![workload.to_owned()]);
        let plan = Plan { paths, workloads, clients: vec![clients], trials: Some(trials), ..Plan::default() };
        estimate(&plan, &plan.matrix().unwrap()).time.1.as_secs_f64()
    };
    let more = |one: f64, other: f64, seconds: f64| assert!((one - other - seconds).abs() < 1e-6, "{one} {other}");
    let ten = |path: &str, workload: &str| time(path, workload, 10, 10);
    let plain = ten("hipersockets-iucv", "rr-200-1000");
    more(plain, time("hipersockets-iucv", "rr-200-1000", 1, 10), 10.0 * 9.0 * PAIR_AROUND);
    more(ten("hipersockets-iucv", "strg-20m"), plain, 10.0 * 10.0 * STREAM_ENDS);
    more(ten("claw-iucv", "strg-20m"), plain, 10.0 * 10.0 * STREAM_ENDS_ON_CHANNEL);
    more(ten("qdio-1gbe", "rr-200-1000"), plain, 0.0);
    more(ten("hipersockets", "strg-20m"), time("hipersockets", "rr-200-1000", 1, 10), 0.0);
    more(2.0 * time("veth", "rr-1-1", 1, 1), time("veth", "rr-1-1", 1, 2), FIRST_CHECK);
}

#[test]
fn a_cell_without_comparison_drops_out_of_the_estimate_early() {
    let mut plan = Plan { paths: ["veth", "veth-routed", "loopback"].map(str::to_owned).into(), ..Plan::default() };
    let time = |plan: &Plan| estimate(plan, &plan.matrix().unwrap()).time;
    let trial = trial_time(&plan, &plan.matrix().unwrap().cells);
    let checks = Duration::from_secs_f64(3.0 * FIRST_CHECK);
    assert_eq!(time(&plan), (trial * (2 * 7 + 6) + checks, trial * (2 * 30 + 6) + checks));
    plan.trials = Some(10);
    assert_eq!(time(&plan).0, trial * 30 + checks);
}

#[test]
fn a_plan_with_too_few_trials_says_how_many_decide() {
    let words = |plan: &Plan| too_few(plan, &plan.matrix().unwrap());
    let mut plan = Plan { trials: Some(6), ..Plan::load("default").unwrap() };
    plan.budget_seconds = None;
    let note =
        "6 trials cannot give a verdict on each of 18 main figures; at least 10 trials are needed: use --trials 10";
    assert_eq!(words(&plan).as_deref(), Some(note));
    plan.trials = Some(10);
    assert_eq!(words(&plan), None);
    plan.trials = None;
    plan.budget_seconds = Some(100.0);
    let note = words(&plan).unwrap();
    assert!(
        note.starts_with("a budget of 100 s allows only 4 trials, which cannot give a verdict on each of 18"),
        "{note}"
    );
    let budget: f64 = note.rsplit(' ').next().unwrap().parse().unwrap();
    plan.budget_seconds = Some(budget);
    assert_eq!(words(&plan), None, "the named budget is enough");
    plan.smoke = true;
    plan.budget_seconds = Some(1.0);
    assert_eq!(words(&plan), None);
    let alone = Plan { paths: vec!["veth".into()], trials: Some(1), ..Plan::default() };
    assert_eq!(words(&alone), None, "nothing is compared");
}

#[test]
fn the_default_plan_has_enough_trials_within_four_minutes() {
    for name in ["default", "hop", "guests", "mtu"] {
        let plan = Plan::load(name).unwrap();
        let matrix = plan.matrix().unwrap();
        assert_eq!(too_few(&plan, &matrix), None, "{name}");
        assert!(estimate(&plan, &matrix).time.1 <= Duration::from_secs(240), "{name}");
    }
}
