//! Tests of complete comparisons: from the trials of artificial runs to their verdicts.

use super::*;
use crate::environment::Environment;
use crate::record::{HostRecord, PathRecord, TrialRecord};
use siga_plan::level::frame::Frame;
use siga_plan::level::{Guests, Level};

/// Returns a trial over a veth pair that takes `ms` milliseconds for its 1,000 transactions.
fn trial(level: &str, round: u32, ms: u64) -> TrialRecord {
    let mut trial = crate::testing::trial("veth", round, 700, None);
    trial.cell.level = level.into();
    trial.elapsed_ns = ms * 1_000_000;
    trial
}

fn level(name: &str) -> Level {
    Level { name: name.into(), ..Level::default() }
}

fn run(name: &str, trials: Vec<TrialRecord>) -> Run {
    let mut levels: Vec<Level> = Vec::new();
    for trial in &trials {
        if !levels.iter().any(|level| level.name == trial.cell.level) {
            levels.push(level(&trial.cell.level));
        }
    }
    Run { levels, ..crate::testing::run(name, trials) }
}

/// Returns a run of twelve rounds with two levels. The second level takes `percent` percent of the first level's time.
fn two_levels(percent: u64) -> Run {
    let times = |round: u32| 1_000 + u64::from(round * 7 % 5) * 2;
    let both = |round: u32| {
        let time = times(round);
        [trial("plain", round, time), trial("other", round, time * percent / 100 + u64::from(round % 3))]
    };
    run("run", (0..12).flat_map(both).collect())
}

fn rate(comparison: &Comparison) -> &Row {
    comparison.rows.iter().find(|row| row.metric == Metric::Rate).unwrap()
}

#[test]
fn a_change_of_the_rate_is_found_in_the_rate_alone() {
    let slower = levels(&two_levels(110), "plain", "other").unwrap();
    let row = rate(&slower);
    assert_eq!((row.verdict.clone(), row.trials), (Verdict::Worse, (12, 12)));
    assert!((row.ratio - 1.0 / 1.1).abs() < 0.002 && row.low.unwrap() < row.ratio, "{row:?}");
    let cpu = slower.rows.iter().find(|row| row.metric == Metric::TOTAL).unwrap();
    assert_eq!((cpu.verdict.clone(), cpu.ratio), (Verdict::Equivalent, 1.0));
    assert_eq!(rate(&levels(&two_levels(90), "plain", "other").unwrap()).verdict, Verdict::Better);
    assert_eq!(rate(&levels(&two_levels(100), "plain", "other").unwrap()).verdict, Verdict::Equivalent);
    // With the sides swapped, the verdict is the opposite.
    assert_eq!(rate(&levels(&two_levels(110), "other", "plain").unwrap()).verdict, Verdict::Better);
    assert_eq!(slower.count("worse"), 1, "{:?}", slower.rows);
}

#[test]
fn a_differing_setting_outside_the_level_makes_cells_not_comparable() {
    let path = |level: &str, congestion: &str| PathRecord {
        cell: trial(level, 0, 1).cell,
        congestion: Some(congestion.into()),
        server_address: None,
        interfaces: [("client/c".to_owned(), "mtu=1500 gro=off".to_owned())].into(),
        sysctls: [("client net.ipv4.tcp_sack".to_owned(), "1".to_owned())].into(),
        notes: Vec::new(),
        filters: Default::default(),
        build: None,
    };
    let mut run = two_levels(110);
    run.paths = vec![path("plain", "cubic"), path("other", "bbr")];
    let reason = |run: &Run| match &rate(&levels(run, "plain", "other").unwrap()).verdict {
        Verdict::NotComparable { reason } => Some(reason.clone()),
        Verdict::Equivalent | Verdict::Better | Verdict::Worse | Verdict::Inconclusive { .. } => None,
    };
    assert_eq!(reason(&run).unwrap(), "congestion control: cubic -> bbr");
    run.levels[1].congestion = Some("bbr".into());
    assert_eq!(reason(&run), None, "that is what the level names");
    run.paths[1].interfaces.insert("client/c".into(), "mtu=1500 gro=on".into());
    assert_eq!(reason(&run).unwrap(), "interface client/c gro: off -> on");
    run.levels[1].gro = Some(true);
    assert_eq!(reason(&run), None);
    let queued = "mtu=1500 gro=on qdisc=netem netem-delay=10000us";
    run.paths[1].interfaces.insert("client/c".into(), queued.into());
    assert!(
        reason(&run)
            .unwrap()
            .starts_with("interface client/c netem-delay: absent -> 10000us; interface client/c qdisc")
    );
    run.levels[1].qdisc = Some(siga_plan::qdisc::Qdisc::Fq);
    assert_eq!(reason(&run), None);
    run.paths[1].sysctls.insert("client net.ipv4.tcp_sack".into(), "0".into());
    assert_eq!(reason(&run).unwrap(), "sysctl client net.ipv4.tcp_sack: 1 -> 0");
    run.levels[1].sysctl.insert("net.ipv4.tcp_sack".into(), "0".into());
    assert_eq!(reason(&run), None);
    run.paths[1].filters.insert("router".into(), "2 rules".into());
    assert_eq!(reason(&run).unwrap(), "filter router: absent -> 2 rules");
    run.levels[1].nftables = Some("flush ruleset".into());
    assert_eq!(reason(&run), None);
    let comparison = levels(&run, "plain", "other").unwrap();
    assert!(comparison.rows.iter().all(|row| row.p_adjusted.is_some()));
}

#[test]
fn two_runs_are_two_samples_and_their_hosts_are_compared() {
    let of = |name: &str, ms: u64| {
        run(name, (0..12).map(|round| trial("plain", round, ms + u64::from(round * 7 % 5))).collect())
    };
    let (base, mut new) = (of("before", 1_000), of("after", 1_200));
    let comparison = runs(&base, &new).unwrap();
    assert_eq!((comparison.form, comparison.environment.len()), (Form::TwoSample, 0));
    assert_eq!(rate(&comparison).verdict, Verdict::Worse);
    new.environment.kernel.release = Some("6.9".into());
    assert_eq!(rate(&runs(&base, &new).unwrap()).verdict, Verdict::Worse, "one side could not read it");
    let mut base = base;
    base.environment.kernel.release = Some("6.8".into());
    let comparison = runs(&base, &new).unwrap();
    assert_eq!(rate(&comparison).verdict, Verdict::NotComparable { reason: "kernel.release: 6.8 -> 6.9".into() });
    assert!(rate(&comparison).p_adjusted.is_none());
    // Runs with different lengths of trials are not comparable.
    new.environment = base.environment.clone();
    new.plan.seconds = 5.0;
    let reason = Verdict::NotComparable { reason: "plan seconds: 1 -> 5".into() };
    assert_eq!(rate(&runs(&base, &new).unwrap()).verdict, reason);
}

#[test]
fn runs_of_one_level_each_are_compared_whatever_the_names_are() {
    let of = |name: &str, level: &str| run(name, (0..6).map(|round| trial(level, round, 1_000)).collect());
    assert_eq!(rate(&runs(&of("a", "420"), &of("b", "430")).unwrap()).new.level, "430");
    let mut both = of("b", "430");
    both.trials.extend(of("b", "440").trials);
    assert_eq!(runs(&of("a", "420"), &both).unwrap_err().exit_status(), 2, "which of the two?");
}

#[test]
fn cells_in_one_run_only_are_listed() {
    let base = two_levels(100);
    let mut new = two_levels(100);
    new.trials.retain(|trial| trial.cell.level == "plain");
    new.directory = "new".into();
    let comparison = runs(&base, &new).unwrap();
    assert_eq!(comparison.skipped.len(), 1);
    assert_eq!((comparison.skipped[0].0.level.as_str(), comparison.skipped[0].1.as_str()), ("other", "only in run"));
    let other_way = runs(&new, &base).unwrap();
    assert_eq!(other_way.skipped[0].1, "only in run");
    new.trials.iter_mut().for_each(|trial| trial.cell.clients = 7);
    let error = runs(&base, &new).unwrap_err();
    assert_eq!(error.exit_status(), 2);
    assert!(error.to_string().contains("no cell in common") && error.to_string().contains("x7"), "{error}");
    assert_eq!(levels(&base, "plain", "nosuch").unwrap_err().exit_status(), 2);
    assert_eq!(paths(&base, "veth", "bridge").unwrap_err().exit_status(), 2);
}

#[test]
fn few_smoke_or_flawed_trials_give_no_verdict() {
    let mut one = two_levels(150);
    one.trials.truncate(2);
    let comparison = levels(&one, "plain", "other").unwrap();
    assert_eq!(rate(&comparison).verdict, Verdict::Inconclusive { trials: None });
    assert_eq!((rate(&comparison).low, rate(&comparison).p), (None, 1.0));

    let mut smoke = two_levels(150);
    smoke.plan.smoke = true;
    let comparison = levels(&smoke, "plain", "other").unwrap();
    assert_eq!(comparison.count("inconclusive"), comparison.rows.len());
    assert!(comparison.cautions[0].contains("smoke"));

    let mut unsound = two_levels(150);
    unsound.trials.iter_mut().for_each(|trial| trial.flags.push("5 connections were reset".into()));
    let comparison = levels(&unsound, "plain", "other").unwrap();
    assert!(comparison.rows.is_empty());
    assert!(comparison.skipped[0].1.contains("5 connections were reset"), "{:?}", comparison.skipped);
}

#[test]
fn figures_of_an_emulated_machine_get_no_verdict() {
    let not_comparable = |comparison: &Comparison| {
        let reason = Verdict::NotComparable { reason: "emulated machine".into() };
        assert!(!comparison.rows.is_empty() && comparison.emulated);
        assert!(comparison.rows.iter().all(|row| row.verdict == reason), "{:?}", comparison.rows);
        let known = |row: &Row| row.low.or(row.high).or(row.noise_floor).or(row.p_adjusted);
        assert!(comparison.rows.iter().all(|row| known(row).is_none()), "{:?}", comparison.rows);
        assert!(comparison.cautions[0].starts_with("emulated machine: "), "{:?}", comparison.cautions);
    };
    let real = two_levels(150);
    assert!(!levels(&real, "plain", "other").unwrap().emulated);
    let mut emulated = two_levels(150);
    emulated.directory = "emulated".into();
    emulated.environment.cpu.emulated = Some(true);
    not_comparable(&levels(&emulated, "plain", "other").unwrap());
    not_comparable(&runs(&real, &emulated).unwrap());
    not_comparable(&runs(&emulated, &real).unwrap());
    for trial in emulated.trials.iter_mut().filter(|trial| trial.cell.level == "other") {
        trial.cell.level = "plain".into();
        trial.cell.path = "veth-routed".into();
    }
    not_comparable(&paths(&emulated, "veth", "veth-routed").unwrap());
    assert!(within(&emulated).unwrap().iter().all(|comparison| comparison.emulated));
    // A record without the field is that of an older version, which did not know.
    assert_eq!(serde_json::from_str::<Environment>(r#"{"cpu":{"online":2}}"#).unwrap().cpu.emulated, None);
}

#[test]
fn a_figure_of_zero_has_no_ratio_and_is_listed() {
    let mut run = two_levels(100);
    run.trials[4].client.transactions = 0;
    run.trials[4].cpu.busy_ns = 0;
    let comparison = levels(&run, "plain", "other").unwrap();
    assert!(!comparison.rows.iter().any(|row| row.metric == Metric::Rate));
    let told = comparison.skipped.iter().any(|(_, reason)| reason.starts_with("rate: the figure is zero in 1 of 24"));
    assert!(told, "{:?}", comparison.skipped);
    assert!(comparison.rows.iter().all(|row| row.ratio.is_finite()));
}

#[test]
fn a_side_that_lost_many_trials_is_not_comparable() {
    let mut run = two_levels(100);
    let broken = |trial: &&mut TrialRecord| trial.cell.level == "other" && trial.round < 6;
    run.trials.iter_mut().filter(broken).for_each(|trial| trial.flags.push("the rate collapsed".into()));
    let comparison = levels(&run, "plain", "other").unwrap();
    let reason = Verdict::NotComparable { reason: "6 of 12 trials of other had a flaw: the rate collapsed".into() };
    assert_eq!(rate(&comparison).verdict, reason);
    assert!(comparison.cautions.iter().any(|caution| caution.contains("6 of 12 trials")), "{:?}", comparison.cautions);
    run.trials.iter_mut().filter(|trial| trial.round > 0).for_each(|trial| trial.flags.clear());
    let comparison = levels(&run, "plain", "other").unwrap();
    assert_eq!(rate(&comparison).verdict, Verdict::Equivalent, "one may be lost");
    assert!(comparison.cautions.iter().any(|caution| caution.contains("1 of 12 trials")), "{:?}", comparison.cautions);
}

#[test]
fn rounds_of_two_sessions_are_not_paired() {
    let mut run = two_levels(110);
    run.trials.iter_mut().filter(|trial| trial.round > 3).for_each(|trial| trial.session = 1);
    assert_eq!(rate(&levels(&run, "plain", "other").unwrap()).trials, (12, 12));
    run.trials.iter_mut().filter(|trial| trial.cell.level == "other" && trial.round == 3).for_each(|t| t.session = 1);
    assert_eq!(rate(&levels(&run, "plain", "other").unwrap()).trials, (11, 11));
}

#[test]
fn under_subtract_only_the_total_and_the_router_are_judged() {
    let round = |round: u32| {
        ["plain", "other"].map(|level| {
            [("veth", 700), ("veth-routed", 1_000)].map(|(path, busy_ms)| {
                let mut trial = crate::testing::trial(path, round, busy_ms + u64::from(round % 4) * 3, None);
                trial.cell.level = level.into();
                trial
            })
        })
    };
    let mut run = run("run", (0..12).flat_map(round).flatten().collect());
    let routed = |run: &Run| -> Vec<String> {
        let rows = levels(run, "plain", "other").unwrap().rows;
        let cpu = rows.iter().filter(|row| row.new.path == "veth-routed" && matches!(row.metric, Metric::Cpu(..)));
        cpu.map(|row| row.metric.name().to_owned()).collect()
    };
    assert_eq!(routed(&run), ["cpu_total", "router_cpu"]);
    // On the path without the router, the filter would be in the server. The difference between the paths would then not be the
    // router's cost.
    run.levels[1].nftables = Some("flush ruleset".into());
    assert_eq!(routed(&run), ["cpu_total"]);
    run.trials.iter_mut().filter(|trial| trial.round == 5).for_each(|trial| trial.cpu.busy_ns = 700_000_000);
    run.levels[1].nftables = None;
    assert_eq!(routed(&run), ["cpu_total"]);
    let skipped = levels(&run, "plain", "other").unwrap().skipped;
    assert!(
        skipped.iter().any(|(_, reason)| reason.starts_with("router_cpu: the figure is zero in 2 of 24")),
        "{skipped:?}"
    );
}

#[test]
fn another_build_excuses_differing_features_of_devices_but_no_other_mtu() {
    let path = |level: &str, device: &str| PathRecord {
        interfaces: [("tcpip1/lan".to_owned(), device.to_owned())].into(),
        ..PathRecord::without_settings(&trial(level, 0, 1).cell)
    };
    let judged = |build: Option<&str>, other: &str| {
        let mut run = two_levels(110);
        run.paths = vec![path("plain", "mtu=1500 packing=on"), path("other", other)];
        run.levels[1].build = build.map(|path| siga_plan::build::Build::Program(path.into()));
        match rate(&levels(&run, "plain", "other").unwrap()).verdict.clone() {
            Verdict::NotComparable { reason } => reason,
            Verdict::Equivalent | Verdict::Better | Verdict::Worse | Verdict::Inconclusive { .. } => String::new(),
        }
    };
    assert_eq!(judged(Some("/old"), "mtu=1500 direct=off"), "");
    assert!(judged(None, "mtu=1500 direct=off").contains("tcpip1/lan direct"));
    assert!(judged(Some("/old"), "mtu=9000 packing=on").contains("mtu: 1500 -> 9000"));
}

#[test]
fn levels_with_sizes_of_frames_excuse_other_buffers_and_another_mtu() {
    let path = |level: &str, device: &str| PathRecord {
        interfaces: [("tcpip1/lan".to_owned(), device.to_owned())].into(),
        ..PathRecord::without_settings(&trial(level, 0, 1).cell)
    };
    let mut run = two_levels(110);
    run.paths = vec![path("plain", "mtu=8192 buffer_bytes=16384"), path("other", "mtu=16384 buffer_bytes=24576")];
    let is_refused =
        |run: &Run| matches!(rate(&levels(run, "plain", "other").unwrap()).verdict, Verdict::NotComparable { .. });
    assert!(is_refused(&run));
    for (level, frame) in run.levels.iter_mut().zip([Frame::K16, Frame::K24]) {
        level.guests = Some(Guests { frame: Some(frame), ..Guests::default() });
    }
    assert!(!is_refused(&run));
}

#[test]
fn levels_of_one_name_excuse_only_the_settings_that_they_differ_in() {
    let path = |gro: &str| PathRecord {
        cell: trial("plain", 0, 1).cell,
        congestion: Some("cubic".into()),
        server_address: None,
        interfaces: [("client/c".to_owned(), format!("mtu=1500 gro={gro}"))].into(),
        sysctls: Default::default(),
        notes: Vec::new(),
        filters: Default::default(),
        build: None,
    };
    let of = |name: &str, gro: &str| {
        let mut run = run(name, (0..8).map(|round| trial("plain", round, 1_000)).collect());
        run.paths = vec![path(gro)];
        run.levels[0].gro = Some(gro == "on");
        run
    };
    let (base, mut new) = (of("a", "off"), of("b", "on"));
    let comparison = runs(&base, &new).unwrap();
    assert_eq!(rate(&comparison).verdict, Verdict::Equivalent);
    assert_eq!(comparison.environment[0].to_string(), "level plain.gro: false -> true");
    new.levels[0].gro = Some(false);
    let reason = Verdict::NotComparable { reason: "interface client/c gro: off -> on".into() };
    assert_eq!(rate(&runs(&base, &new).unwrap()).verdict, reason, "both say off");
    new.paths = base.paths.clone();
    new.plan.plant.server_us = 50.0;
    let told = &runs(&base, &new).unwrap().environment[0];
    assert!(told.key == "plan.plant" && !told.matters, "{told:?}");
}

#[test]
fn a_run_or_level_against_itself_is_refused_and_a_copy_gives_a_caution() {
    let mut base = two_levels(100);
    base.trials.iter_mut().enumerate().for_each(|(at, trial)| trial.at = format!("2026-11-20T00:00:{at:02}Z"));
    assert_eq!(levels(&base, "plain", "plain").unwrap_err().exit_status(), 2);
    let here = Run { directory: ".".into(), ..base.clone() };
    assert_eq!(runs(&here, &Run { directory: "./.".into(), ..base.clone() }).unwrap_err().exit_status(), 2);
    let cautions = runs(&base, &Run { directory: "copy".into(), ..base.clone() }).unwrap().cautions;
    assert!(cautions[0].contains("both runs contain the same 24 trials"), "{cautions:?}");
}

#[test]
fn undecided_figures_with_too_few_rounds_give_a_caution() {
    let mut run = two_levels(110);
    run.trials.truncate(12);
    let comparison = levels(&run, "plain", "other").unwrap();
    let caution = "with 6 trials, siga cannot give a verdict on 1 of 2 main figures; at least 7 trials are needed";
    assert!(comparison.cautions.iter().any(|own| own == caution), "{comparison:?}");
    // With seven rounds, the rate is decided.
    let mut run = two_levels(110);
    run.trials.truncate(14);
    let comparison = levels(&run, "plain", "other").unwrap();
    assert_eq!((rate(&comparison).verdict.clone(), comparison.cautions.len()), (Verdict::Worse, 0), "{comparison:?}");
}

#[test]
fn a_difference_that_many_cells_share_is_found_by_few_rounds_without_a_caution() {
    let slower = |clients: u32| {
        let mut own = two_levels(150).trials;
        own.truncate(14);
        own.iter_mut().for_each(|trial| trial.cell.clients = clients);
        own
    };
    let run = run("run", (1..=6).flat_map(slower).collect());
    let comparison = levels(&run, "plain", "other").unwrap();
    let rates = || comparison.rows.iter().filter(|row| row.metric == Metric::Rate);
    assert!(rates().count() == 6 && rates().all(|row| row.verdict == Verdict::Worse), "{:?}", comparison.rows);
    assert!(comparison.cautions.iter().all(|caution| !caution.contains("undecided")), "{:?}", comparison.cautions);
}

#[test]
fn a_run_that_has_not_ended_says_so() {
    let mut run = two_levels(110);
    run.ended = false;
    run.damage = vec!["trials.jsonl: 12 bytes".into()];
    let comparison = levels(&run, "plain", "other").unwrap();
    assert_eq!(comparison.cautions.len(), 2, "{:?}", comparison.cautions);
    assert!(comparison.cautions[0].contains("is not complete") && comparison.cautions[0].contains("24 trials"));
}

#[test]
fn a_run_compares_its_levels_or_else_its_paths_with_and_without_router() {
    let comparisons = within(&two_levels(110)).unwrap();
    assert_eq!((comparisons.len(), comparisons[0].new.as_str()), (1, "other"));
    let both_paths = |round| {
        [crate::testing::trial("veth", round, 700, None), crate::testing::trial("veth-routed", round, 900, None)]
    };
    let comparisons = within(&run("run", (0..8).flat_map(both_paths).collect())).unwrap();
    assert_eq!((comparisons[0].subject, comparisons[0].new.as_str()), (Subject::Paths, "veth-routed"));
    // With the method `subtract`, the CPU time of the routed path's ends is taken from the path without the router, so there is
    // nothing to compare.
    assert!(comparisons[0].rows.iter().all(|row| !row.metric.depends_on_method()), "{:?}", comparisons[0].rows);
    assert!(within(&run("run", vec![trial("plain", 0, 1)])).unwrap().is_empty());
}

#[test]
fn a_variant_is_judged_against_its_base_and_any_other_level_against_the_first() {
    let names = [
        "430",
        "420",
        "430-packing",
        "420+packing",
        "430-adaptive_waiting",
        "430-adaptive_waiting-colocate",
        "430-zero_copy-colocate",
        "aa+packing",
        "gro-off",
    ];
    let bases = |names: &[&str]| -> Vec<(String, String)> {
        let levels: Vec<Level> = names.iter().map(|name| level(name)).collect();
        let cells: Vec<Cell> = names.iter().map(|name| trial(name, 0, 1).cell).collect();
        subjects(&levels, &cells).into_iter().map(|(_, base, new)| (new, base)).collect()
    };
    let wanted = [
        ("420", "430"),
        ("430-packing", "430"),
        ("420+packing", "420"),
        ("430-adaptive_waiting", "430"),
        ("430-adaptive_waiting-colocate", "430-adaptive_waiting"),
        ("430-zero_copy-colocate", "430"),
        ("aa+packing", "430"),
        ("gro-off", "430"),
    ];
    assert_eq!(bases(&names), wanted.map(|(new, base)| (new.to_owned(), base.to_owned())));
    // The first level has no base, and no two levels are compared twice.
    assert_eq!(bases(&["430-packing", "430"]), [("430".to_owned(), "430-packing".to_owned())]);
    // A level without measurements cannot be a base.
    let mut run = run("run", names.iter().map(|name| trial(name, 0, 1_000)).collect());
    run.trials.retain(|trial| trial.cell.level != "420");
    let comparisons = within(&run).unwrap();
    let of = |new: &str| comparisons.iter().find(|one| one.new == new).map(|one| one.base.as_str());
    assert_eq!((of("420+packing"), of("430-packing"), of("420")), (Some("430"), Some("430"), None));
}

#[test]
fn levels_without_a_common_cell_are_not_judged() {
    let mut run = run("run", vec![trial("plain", 0, 1), trial("other", 0, 1), trial("third", 0, 1)]);
    run.trials[1].cell.clients = 10;
    let comparisons = within(&run).unwrap();
    assert_eq!(comparisons.iter().map(|one| one.new.as_str()).collect::<Vec<_>>(), ["third"]);
}

#[test]
fn thousands_of_cells_are_judged() {
    let trials = (1..=1_000).flat_map(|clients| {
        ["plain", "other"].map(|level| {
            let mut trial = trial(level, 0, 1_000);
            trial.cell.clients = clients;
            trial
        })
    });
    let comparison = levels(&run("run", trials.collect()), "plain", "other").unwrap();
    let rates = comparison.rows.iter().filter(|row| row.metric == Metric::Rate).count();
    assert_eq!(rates, 1_000);
}

/// Marks the rounds before `to` of the second level as disturbed: the hypervisor took 12% of the CPU time.
fn disturbed(mut run: Run, to: u32) -> Run {
    for trial in run.trials.iter_mut().filter(|trial| trial.cell.level == "other") {
        let steal_ns = if trial.round < to { 240_000_000 } else { 0 };
        trial.host = Some(HostRecord { steal_ns, ..HostRecord::default() });
    }
    run
}

#[test]
fn a_comparison_names_the_rounds_that_it_leaves_out() {
    let comparison = levels(&disturbed(two_levels(110), 2), "plain", "other").unwrap();
    let row = rate(&comparison);
    assert_eq!((row.trials, row.verdict.clone()), ((10, 10), Verdict::Worse), "both sides lose the round");
    let words = "run: the hypervisor took 12% of the CPU time in 2 of 12 rounds; siga uses only the other 10";
    assert_eq!(comparison.cautions.iter().filter(|caution| *caution == words).count(), 1, "{:?}", comparison.cautions);
    assert_eq!((comparison.disturbed.len(), comparison.no_verdict()), (1, None));

    let comparison = levels(&disturbed(two_levels(110), 7), "plain", "other").unwrap();
    let reason = comparison.no_verdict().unwrap();
    assert!(reason.ends_with("a verdict needs at least 6 undisturbed rounds, but the run has 5"), "{reason}");
    assert_eq!(comparison.count("not comparable"), comparison.rows.len());

    // A disturbed run is no base for another run either, and the trials that it leaves out are no flaw.
    let comparison =
        runs(&two_levels(100), &Run { directory: "other".into(), ..disturbed(two_levels(110), 5) }).unwrap();
    assert_eq!(comparison.rows.iter().find(|row| row.new.level == "other").unwrap().trials, (12, 7));
    let comparison =
        runs(&two_levels(100), &Run { directory: "other".into(), ..disturbed(two_levels(110), 8) }).unwrap();
    assert_eq!(comparison.count("not comparable"), comparison.rows.len());
}

#[test]
fn rates_of_pairs_that_share_unfairly_are_not_compared() {
    let mut run = two_levels(110);
    for trial in run.trials.iter_mut().filter(|trial| trial.cell.level == "other") {
        (trial.fairness, trial.pair_units) = (Some(0.52), (2.0, 43.0));
    }
    let comparison = levels(&run, "plain", "other").unwrap();
    let Verdict::NotComparable { reason } = &rate(&comparison).verdict else { panic!("{:?}", rate(&comparison)) };
    let words = "other: the client-server pairs had unequal rates in 12 of 12 trials: Jain's fairness index 0.52, 2 to 43 transactions per pair";
    assert_eq!(reason, words);
    assert_eq!(comparison.count("not comparable"), 1, "the CPU time is compared");
    run.trials.iter_mut().filter(|trial| trial.round % 2 == 0).for_each(|trial| trial.fairness = Some(0.97));
    assert_eq!(rate(&levels(&run, "plain", "other").unwrap()).verdict, Verdict::Worse, "half of the trials are fair");
}

#[test]
fn a_further_side_changes_no_verdict_of_another() {
    let both = two_levels(103);
    let mut three = both.clone();
    let further = both.trials.iter().filter(|trial| trial.cell.level == "plain").map(|plain| {
        let mut trial = plain.clone();
        trial.cell.level = "further".into();
        trial.elapsed_ns = trial.elapsed_ns * 3 / 2;
        trial
    });
    three.trials.extend(further.collect::<Vec<_>>());
    three.levels.push(level("further"));
    let of = |run: &Run| {
        let judged = Judged::of(run, None).unwrap();
        let comparison = judged.comparisons.into_iter().find(|one| one.new == "other").unwrap();
        let rows = comparison.rows.into_iter().map(|row| (row.metric, row.p_adjusted, row.verdict));
        rows.collect::<Vec<_>>()
    };
    assert_eq!(of(&both), of(&three));
    assert!(of(&both).iter().any(|(metric, _, verdict)| *metric == Metric::Rate && *verdict == Verdict::Worse));
}
