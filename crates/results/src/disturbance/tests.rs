//! Tests of the rule for disturbed rounds.

use super::*;
use crate::record::HostRecord;

const MS: u64 = 1_000_000;

/// Returns a trial on two CPUs for one second, on a host that did `host` besides.
fn trial(path: &str, round: u32, host: HostRecord) -> TrialRecord {
    TrialRecord { host: Some(host), ..crate::testing::trial(path, round, 700, None) }
}

fn steal(ms: u64) -> HostRecord {
    HostRecord { steal_ns: ms * MS, ..HostRecord::default() }
}

fn others(ms: u64) -> HostRecord {
    HostRecord { others_ns: Some(ms * MS), ..HostRecord::default() }
}

fn probe(here: u64, across: u64, line: u64) -> HostRecord {
    let probe = Probe { wake_here_ns: here, wake_across_ns: Some(across), cache_line_ns: Some(line) };
    HostRecord { probe: Some(probe), ..HostRecord::default() }
}

#[test]
fn each_cause_has_its_threshold() {
    let causes = |host: HostRecord| {
        let trial = trial("veth", 0, host);
        Disturbance::of(std::slice::from_ref(&trial)).causes(&trial).into_keys().collect::<Vec<_>>()
    };
    assert_eq!(causes(HostRecord::default()), []);
    // The host has 2,000 ms of CPU time. 1% is 20 ms, but five ticks are 50 ms.
    assert_eq!((causes(steal(40)), causes(steal(50))), (vec![], vec![Cause::Steal]));
    assert_eq!((causes(others(100)), causes(others(101))), (vec![], vec![Cause::Others]));
    assert_eq!(causes(HostRecord { carrier_losses: 1, ..HostRecord::default() }), [Cause::Carrier]);
    assert_eq!(causes(HostRecord { lost_attempts: 1, ..HostRecord::default() }), [Cause::Stopped]);
    let mut long = trial("veth", 0, steal(90));
    long.cpu.wall_ns = 10_000 * MS;
    assert_eq!(Disturbance::of(&[long]).disturbed(), 0, "below 1% of ten seconds");
}

#[test]
fn a_probe_is_compared_with_the_median_of_the_run() {
    let run = |last: HostRecord| {
        let mut trials: Vec<_> = (0..8).map(|round| trial("veth", round, probe(4_000, 60_000, 600))).collect();
        trials.push(trial("veth", 8, last));
        Disturbance::of(&trials)
    };
    assert_eq!(run(probe(12_000, 180_000, 1_800)).disturbed(), 0, "three times is not beyond");
    for last in [probe(12_100, 1, 1), probe(1, 181_000, 1), probe(1, 1, 1_900)] {
        let seen = run(last);
        assert!(seen.is_disturbed((0, 8)) && seen.disturbed() == 1, "{seen:?}");
    }
    let few: Vec<_> = (0..5).map(|round| trial("veth", round, probe(1 << (4 * round), 1, 1))).collect();
    assert_eq!(Disturbance::of(&few).disturbed(), 0, "five probes have no usual figure");
}

#[test]
fn a_round_is_left_out_as_a_whole() {
    let mut trials = Vec::new();
    for round in 0..16 {
        let host = if round % 3 == 1 { steal(240) } else { HostRecord::default() };
        trials.extend([trial("veth", round, host), trial("veth-routed", round, HostRecord::default())]);
    }
    let seen = Disturbance::of(&trials);
    assert_eq!((seen.rounds(), seen.disturbed(), seen.undisturbed()), (16, 5, (11, 11)));
    let words = "the hypervisor took 12% of the CPU time in 5 of 16 rounds; siga uses only the other 11";
    assert_eq!(seen.words().as_deref(), Some(words));
    assert_eq!(seen.sentence(), format!("Disturbed: {words}."));
    let run = crate::testing::run("run", trials);
    let kept = seen.kept(&run);
    assert_eq!(kept.trials.len(), 22);
    assert!(kept.trials.iter().all(|trial| trial.round % 3 != 1), "both sides lose the round");
}

#[test]
fn a_workload_loses_only_the_blocks_in_which_it_was_disturbed() {
    let mut trials = Vec::new();
    for round in 0..9 {
        for clients in [1, 10] {
            for path in ["veth", "bridge"] {
                // The host disturbs one path, with one pair in rounds 0 to 4, and with ten pairs in rounds 3 to 5.
                let busy = path == "veth" && if clients == 1 { round < 4 } else { (3..6).contains(&round) };
                let mut trial = trial(path, round, if busy { steal(240) } else { HostRecord::default() });
                trial.cell.clients = clients;
                trials.push(trial);
            }
        }
    }
    let seen = Disturbance::of(&trials);
    assert_eq!((seen.rounds(), seen.disturbed(), seen.undisturbed()), (9, 6, (5, 6)));
    let words = "the hypervisor took 12% of the CPU time in 6 of 9 rounds; siga uses only the undisturbed rounds of each \
                 workload (5 to 6)";
    assert_eq!((seen.words().as_deref(), seen.no_verdict()), (Some(words), None));
    let left: Vec<usize> = [1, 10]
        .map(|clients| trials.iter().filter(|trial| trial.cell.clients == clients && !seen.leaves_out(trial)).count())
        .into();
    assert_eq!(left, [10, 12], "both paths lose the block");
    let reason = |clients: u32| {
        seen.no_verdict_of(&trials.iter().find(|trial| trial.cell.clients == clients).expect("a trial").cell)
    };
    let missing = "; a verdict needs at least 6 undisturbed rounds, but this workload has 5";
    assert_eq!((reason(1), reason(10)), (Some(format!("{words}{missing}")), None));
}

#[test]
fn too_few_undisturbed_rounds_allow_no_verdict() {
    let run = |disturbed: u32, rounds: u32| {
        let host = |round: u32| if round < disturbed { others(1_240) } else { HostRecord::default() };
        Disturbance::of(&(0..rounds).map(|round| trial("veth", round, host(round))).collect::<Vec<_>>())
    };
    assert!(!run(6, 12).forbids_verdict() && run(7, 12).forbids_verdict());
    assert_eq!(
        run(7, 12).sentence(),
        "No verdict: processes outside the run used 62% of the CPU time in 7 of 12 rounds; siga uses only the other 5; a \
         verdict needs at least 6 undisturbed rounds, but the run has 5."
    );
    let all = run(12, 12);
    assert!(all.forbids_verdict() && !all.leaves_out(&trial("veth", 3, others(1_240))), "the report still has figures");
    assert!(
        all.sentence().contains("in 12 of 12 rounds; all figures come from disturbed rounds"),
        "{}",
        all.sentence()
    );
    let short = run(1, 3);
    assert!(
        !short.forbids_verdict() && short.leaves_out(&trial("veth", 0, others(1_240))),
        "three rounds allow no verdict in any case"
    );
    assert_eq!(
        run(3, 3).sentence(),
        "No verdict: processes outside the run used 62% of the CPU time in 3 of 3 rounds; all figures come from disturbed \
         rounds; a verdict needs at least 6 undisturbed rounds, but the run has 0."
    );
    assert_eq!(run(0, 12).sentence(), "");
}

#[test]
fn a_record_without_the_hosts_figures_is_undisturbed() {
    let old: Vec<_> = (0..8).map(|round| crate::testing::trial("veth", round, 700, None)).collect();
    let seen = Disturbance::of(&old);
    assert_eq!((seen.rounds(), seen.disturbed(), seen.undisturbed()), (8, 0, (8, 8)));
}

mod simulation;
