//! Tests of explanations, on made-up call chains.

use super::*;
use crate::judge;
use crate::record::{ChainNode, ChainTree, ChainsRecord, LoadCounts, PhaseRecord};

/// Returns the chains of a client: each chain has its functions, the outermost first, and its samples.
fn chains(of: &[(&[&str], u64)]) -> ChainsRecord {
    let mut names: Vec<String> = Vec::new();
    let mut nodes: Vec<ChainNode> = Vec::new();
    for (chain, samples) in of {
        let mut caller = 0;
        for (depth, name) in chain.iter().enumerate() {
            let index = names.iter().position(|other| other == name).unwrap_or_else(|| {
                names.push((*name).to_owned());
                names.len() - 1
            });
            let samples = if depth + 1 == chain.len() { *samples } else { 0 };
            nodes.push(ChainNode { caller, name: u32::try_from(index).unwrap(), samples });
            caller = u32::try_from(nodes.len()).unwrap();
        }
    }
    let tree = ChainTree { process: Owner::Other, owner: Owner::Router, nodes };
    let client = LoadCounts { transactions: 1_000, ..LoadCounts::default() };
    let phase = PhaseRecord { elapsed_ns: 1_000_000_000, client };
    ChainsRecord { phase, period_ns: 1_000_000, names, trees: vec![tree], lost: 0, shortened: 0, unknown: 0 }
}

/// Returns a run of `rounds` rounds with a trial of the levels `plain` and `filter` in each. `of` returns the chains of a level in
/// a round. The CPU time is in proportion to the samples.
fn run(rounds: u32, of: impl Fn(&str, u32) -> ChainsRecord) -> Run {
    let mut trials = Vec::new();
    for round in 0..rounds {
        for level in ["plain", "filter"] {
            let chains = of(level, round);
            let samples: u64 = chains.trees.iter().flat_map(|tree| &tree.nodes).map(|node| node.samples).sum();
            let mut trial = crate::testing::trial("veth-routed", round, samples, None);
            trial.cell.level = level.into();
            trial.cpu.chains = Some(chains);
            trials.push(trial);
        }
    }
    crate::testing::run("run", trials)
}

fn why(run: &Run) -> (Vec<Why>, Vec<(Cell, String)>) {
    explain(&judge::levels(run, "plain", "filter").unwrap(), run, run)
}

/// Noise of up to `most`, which differs between rounds and purposes.
fn noise(round: u32, purpose: u32, most: u64) -> u64 {
    let mixed = u64::from(round * 100 + purpose + 2).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let uniform = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32;
    (uniform * most) >> 32
}

#[test]
fn a_planted_function_is_named_first_with_most_of_the_difference() {
    let of = |level: &str, round: u32| {
        let filter = if level == "filter" { 1 } else { 0 };
        let salt = filter * 5;
        chains(&[
            (&["syscall", "send", "tcp"], 300 + noise(round, salt + 1, 20)),
            (&["syscall", "send", "forward", "copy"], 200 + noise(round, salt + 2, 20)),
            (&["syscall", "send", "forward", "hook", "filter"], u64::from(filter) * (80 + noise(round, 3, 10))),
            (&["syscall", "send", "forward", "hook", "filter", "meta"], u64::from(filter) * 20),
            (&["syscall", "receive"], 200 + noise(round, salt + 4, 20)),
        ])
    };
    let (all, unexplained) = why(&run(12, of));
    assert_eq!((all.len(), unexplained), (1, Vec::new()));
    let why = &all[0];
    assert_eq!((why.metric, why.trials), (Metric::TOTAL, (12, 12)));
    let first = &why.causes[0];
    assert_eq!((first.function.as_str(), first.part), ("filter", Part::Router), "{why:?}");
    assert_eq!(first.callers, ["hook", "forward", "send", "syscall"]);
    // 105 ms in 1,000 transactions.
    assert!((first.cost.difference.value - 0.105).abs() < 0.01 && first.share > 0.9, "{first:?}");
    assert_eq!(why.causes.len(), 1, "nothing else differs: {:?}", why.causes);
    assert!(!why.rest.is_clear(), "{:?}", why.rest);
    assert_eq!(
        why.quality.0.samples,
        12 * 700 + (0..12).map(|round| noise(round, 1, 20) + noise(round, 2, 20) + noise(round, 4, 20)).sum::<u64>()
    );
}

#[test]
fn equal_sides_have_no_explanation() {
    let of = |level: &str, round: u32| {
        let salt = if level == "filter" { 5 } else { 0 };
        chains(&[
            (&["send", "tcp"], 300 + noise(round, salt + 1, 60)),
            (&["receive"], 300 + noise(round, salt + 2, 60)),
        ])
    };
    assert_eq!(why(&run(12, of)), (Vec::new(), Vec::new()));
}

#[test]
fn two_different_paths_are_explained_by_several_functions() {
    let of = |level: &str, round: u32| match level {
        "plain" => chains(&[
            (&["syscall", "send", "tcp_send"], 300 + noise(round, 1, 20)),
            (&["syscall", "send", "softirq", "tcp_receive"], 250 + noise(round, 2, 20)),
            (&["syscall", "wait", "schedule"], 200 + noise(round, 3, 20)),
        ]),
        _ => chains(&[(&["[siga]"], 200 + noise(round, 4, 20))]),
    };
    let (all, _) = why(&run(10, of));
    let functions: Vec<&str> = all[0].causes.iter().map(|cause| cause.function.as_str()).collect();
    assert_eq!(functions, ["tcp_send", "tcp_receive", "schedule", "[siga]"]);
    assert!(all[0].causes[3].share < 0.0, "it takes more where the whole takes less");
    let shares: f64 = all[0].causes.iter().map(|cause| cause.share).sum();
    assert!((shares - 1.0).abs() < 0.05, "each sample counts once: {shares}");
}

#[test]
fn trials_without_chains_are_not_explained() {
    let mut run = run(10, |level, _| chains(&[(&["send"], if level == "filter" { 400 } else { 300 })]));
    run.trials.iter_mut().for_each(|trial| trial.cpu.chains = None);
    let (all, unexplained) = why(&run);
    assert!(all.is_empty());
    assert!(unexplained[0].1.contains("no call chains to compare"), "{unexplained:?}");
}

#[test]
fn a_function_that_calls_itself_counts_once() {
    let mut names = Names::default();
    let mut trial = crate::testing::trial("veth", 0, 700, None);
    trial.cpu.chains = Some(chains(&[(&["a", "b", "a"], 3), (&["a"], 2)]));
    let forest = Forest::of(&trial, Part::Total, &mut names).unwrap();
    let sums = forest.sums(&vec![false; names.count()]);
    // Five samples of 1 ms in 1,000 transactions.
    assert!((sums.inclusive[0] - 0.005).abs() < 1e-12 && (sums.inclusive[1] - 0.003).abs() < 1e-12, "{sums:?}");
    let sums = forest.sums(&[false, true]);
    assert!((sums.inclusive[0] - 0.002).abs() < 1e-12, "without what `b` called: {sums:?}");
}
