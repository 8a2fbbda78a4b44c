//! Tests with runs that are made from the published tables, so that their findings are known, and with changes that alter a
//! finding.

use super::*;
use crate::zvm::check::{CheckedCase, FindingVerdict, Stance};
use crate::zvm::findings::LEVELS;
use crate::zvm::published::metric;
use siga_plan::level::Level;
use siga_plan::plan::Plan;
use siga_plan::workload::Unit;
use siga_results::record::{GuestTimes, GuestsRecord, ProcessCpu, Skipped, TrialRecord};
use siga_results::summary::{self};
use std::collections::HashSet;

/// The number, path, workload and MTU of a published table.
type Measured = (&'static str, &'static str, &'static str, u32);

/// The published tables, which the runs of these tests have.
const TABLES: [Measured; 18] = [
    ("1", "hipersockets-routed-iucv", "strg-20m", 1_500),
    ("2", "hipersockets-routed-iucv", "strg-20m", 57_344),
    ("3", "hipersockets-routed-iucv", "crr-64-8k", 1_500),
    ("4", "hipersockets-routed-iucv", "rr-200-1000", 1_500),
    ("5", "guestlan-hipers-routed-iucv", "strg-20m", 1_500),
    ("6", "guestlan-hipers-routed-iucv", "strg-20m", 57_344),
    ("7", "guestlan-hipers-routed-iucv", "crr-64-8k", 1_500),
    ("8", "guestlan-hipers-routed-iucv", "rr-200-1000", 1_500),
    ("9", "qdio-1gbe-routed-iucv", "strg-20m", 1_500),
    ("10", "qdio-1gbe-routed-iucv", "strg-20m", 8_992),
    ("11", "qdio-1gbe-routed-iucv", "crr-64-8k", 1_500),
    ("12", "qdio-1gbe-routed-iucv", "rr-200-1000", 1_500),
    ("13", "claw-routed-iucv", "strg-20m", 2_000),
    ("14", "claw-routed-iucv", "crr-64-8k", 2_000),
    ("15", "claw-routed-iucv", "rr-200-1000", 2_000),
    ("16", "vctc-routed-iucv", "strg-20m", 1_500),
    ("17", "vctc-routed-iucv", "crr-64-8k", 1_500),
    ("18", "vctc-routed-iucv", "rr-200-1000", 1_500),
];
/// The number of cells at each level: one for each table and number of clients.
const PAIRS: usize = 54;
/// Factor by which the printed rates are multiplied, so that the number of units is an integer.
const MORE: f64 = 100.0;

/// Returns a run of `rounds` rounds with the figures of the tables and a little noise.
pub(crate) fn like_tables(rounds: u32) -> Run {
    let tables = shown().unwrap();
    let mut trials = Vec::new();
    for round in 0..rounds {
        for (at, (id, path, workload, mtu)) in TABLES.iter().enumerate() {
            let table = tables.iter().find(|table| table.id == *id).unwrap();
            for (clients, level) in [1, 5, 10].into_iter().flat_map(|clients| [(clients, 0), (clients, 1)]) {
                let mut trial = siga_results::testing::trial(path, round, 0, None);
                trial.cell.workload = workload.parse().unwrap();
                (trial.cell.mtu, trial.cell.clients) = (Some(*mtu), clients);
                trial.cell.level = LEVELS[level].into();
                let noise =
                    1.0 + 0.0002 * f64::from((round * 7 + u32::try_from(at + level).unwrap() * 3 + clients) % 5);
                print_into(&mut trial, table, level, noise);
                trials.push(trial);
            }
        }
    }
    run_of(trials)
}

fn run_of(trials: Vec<TrialRecord>) -> Run {
    let level = |name: &str| Level { name: name.into(), ..Level::default() };
    Run { levels: LEVELS.map(level).into(), ..siga_results::testing::run("run", trials) }
}

/// Sets the counters of a trial so that they produce the figures of a printed column.
fn print_into(trial: &mut TrialRecord, table: &PublishedTable, level: usize, noise: f64) {
    let clients = trial.cell.clients;
    let unit = table.unit();
    let printed = |row: &str| table.figures(&metric(row, unit), clients).map(|figures| figures[level]);
    let rate = printed("rate").unwrap();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "printed figures are small")]
    let whole = |value: f64| value as u64;
    match unit {
        Unit::Megabyte => (trial.client.sent, trial.client.received) = (0, whole(rate * MORE * 1e6)),
        Unit::Transaction | Unit::Run => trial.client.transactions = whole((rate * MORE).round()),
    }
    trial.elapsed_ns = whole(1e9 / noise);
    // The printed milliseconds per unit, times the rate, are milliseconds of CPU time per second.
    let ns = |row: &str| printed(row).map(|msec| whole(msec * rate * 1e6 * noise));
    let process = |stack: &str| {
        // Tables 5 to 18 have no rows for the client's stack.
        let [run_ns, user_ns] = ["cpu", "vcpu"].map(|part| ns(&format!("{stack}_{part}")).unwrap_or(50_000_000));
        (ProcessCpu { run_ns, user_ns }, GuestTimes::default())
    };
    let guests = GuestsRecord {
        stacks: Some((process("tcpip1"), process("tcpip3"))),
        router: Some(process("tcpip2")),
        ..GuestsRecord::default()
    };
    trial.cpu.guests = Some(guests);
    trial.cpu.client = ProcessCpu { run_ns: 20_000_000, user_ns: 10_000_000 };
    trial.cpu.server = trial.cpu.client;
    trial.cpu.busy_ns = ns("cpu").unwrap();
    trial.devices = [("tcpip2/lan doorbells_sent", 44_000), ("tcpip2/link doorbells_sent", 1_000)]
        .map(|(name, count)| (name.to_owned(), count * [10, 1][level]))
        .into();
}

/// Returns the trials of one cell at level 430.
pub(crate) fn at_430<'a>(
    run: &'a mut Run,
    (path, workload, clients): (&'a str, &'a str, u32),
) -> impl Iterator<Item = &'a mut TrialRecord> {
    run.trials.iter_mut().filter(move |trial| {
        let cell = &trial.cell;
        (cell.level.as_str(), cell.path.as_str(), cell.clients) == (LEVELS[1], path, clients)
            && cell.workload.to_string() == workload
    })
}

/// Multiplies the router's CPU time by `factor`; the additional time is CP time.
pub(crate) fn dearer_router(trial: &mut TrialRecord, factor: u64) {
    let guests = trial.cpu.guests.as_mut().unwrap();
    let (process, _) = guests.router.as_mut().unwrap();
    let more = process.run_ns * (factor - 1);
    process.run_ns += more;
    trial.cpu.busy_ns += more;
}

pub(crate) fn repeated(run: &Run) -> (Reduced, Repeat) {
    let reduced = summary::reduce(run, None).unwrap();
    let repeat = Repeat::of(run, &reduced, None).unwrap();
    (reduced, repeat)
}

fn judged<'a>(repeat: &'a Repeat, id: &str) -> &'a CheckedFinding {
    repeat.judged.iter().find(|one| one.finding.id == id).unwrap()
}

/// Returns the cases that do not support the finding.
fn not_for(judged: &CheckedFinding) -> Vec<(&str, &str)> {
    let others = judged.cases.iter().filter(|case| case.speaks != Stance::For);
    others.map(|case| (case.name.as_str(), case.speaks.name())).collect()
}

fn reason(case: &CheckedCase) -> &str {
    match &case.speaks {
        Stance::Neither { reason } => reason,
        Stance::For | Stance::Against => "",
    }
}

#[test]
fn the_published_tables_are_measured_anew_each_with_its_numbers_of_pairs_and_both_levels() {
    let plan = Plan::load("zvm430").unwrap();
    let matrix = plan.matrix().unwrap();
    let cells: HashSet<&Cell> = matrix.cells.iter().collect();
    let tables = like_tables(1).cells();
    assert_eq!((cells.len(), matrix.skipped.len()), (2 * PAIRS, 0));
    assert_eq!(cells, tables.iter().collect());
    assert!(plan.processes, "clients and servers are processes of their own");
    // `--table` uses the numbers and the titles of the report.
    let published = shown().unwrap();
    for (own, (id, ..)) in plan.table.iter().zip(TABLES) {
        let printed = published.iter().find(|printed| printed.id == id).unwrap();
        assert_eq!((own.id.as_str(), format!("Table {id}. {}", own.title)), (id, printed.heading.clone()));
        let levels = own.level_names(&plan, &matrix.levels);
        let of_table: Vec<&Cell> = matrix.cells.iter().filter(|cell| own.has(&plan, &levels, cell)).collect();
        assert!(of_table.len() == 6 && of_table.iter().all(|cell| printed.shows(cell)), "{id}: {of_table:?}");
    }
}

#[test]
fn a_run_like_the_tables_bears_out_every_finding_that_the_tables_bear_out() {
    let (_, repeat) = repeated(&like_tables(12));
    let mut contradicted = Vec::new();
    for one in &repeat.judged {
        let outside = one.cases.iter().filter(|case| !one.finding.allows(case.published.unwrap())).count();
        if outside == 0 {
            assert_eq!(not_for(one), [], "{}", one.finding.id);
            assert_eq!(one.verdict, FindingVerdict::Holds, "{}", one.finding.id);
        } else {
            contradicted.push((one.finding.id.as_str(), one.verdict));
        }
        for case in &one.cases {
            let measured = case.measured.unwrap();
            let published = case.published.unwrap();
            // Printed with two decimals; of few hundredths of a millisecond, and of the difference of two such, that is little.
            let slack = if one.finding.row.ends_with("vcpu") { 0.6 } else { 0.06 };
            assert!((measured.value / published - 1.0).abs() < slack, "{}: {case:?}", one.finding.id);
            assert_eq!(measured.trials, 12);
        }
    }
    let not = FindingVerdict::DoesNotHold;
    assert_eq!(contradicted, [("server-gains", not), ("throughput-up", not), ("crr-server-is-the-bottleneck", not)]);
    assert_eq!(judged(&repeat, "router-below-everywhere").cases.len(), PAIRS);
    // The report says so of all; its tables show it with 17 of 30 columns, and never over CLAW.
    let bottleneck = judged(&repeat, "crr-server-is-the-bottleneck");
    assert_eq!((bottleneck.count("for"), bottleneck.cases.len()), (17, 30));
}

#[test]
fn a_finding_says_on_which_connectivities_it_holds() {
    let mut run = like_tables(12);
    at_430(&mut run, ("claw-routed-iucv", "rr-200-1000", 5)).for_each(|trial| dearer_router(trial, 9));
    run.trials.retain(|trial| trial.cell.path != "vctc-routed-iucv");
    let (_, repeat) = repeated(&run);
    let one = judged(&repeat, "router-gains-everywhere");
    assert_eq!((one.verdict, one.connectivities), (FindingVerdict::DoesNotHold, 5));
    let held = ["HiperSockets", "Guest LAN type HiperSockets", "OSA-Express QDIO GbE"];
    assert_eq!(one.holds_on(), held);
    let words = crate::zvm::answers::tally(one);
    let start = "Judged on 4 of 5 connectivities (HiperSockets, Guest LAN type HiperSockets, OSA-Express QDIO GbE, CLAW), and holds \
                 on 3 of 5 (HiperSockets, Guest LAN type HiperSockets, OSA-Express QDIO GbE): ";
    assert!(words.starts_with(start), "{words}");
    assert!(judged(&repeat, "client-stack-gains").holds_on() == ["HiperSockets"]);
}

#[test]
fn one_case_against_a_finding_is_enough_and_is_named() {
    let mut run = like_tables(12);
    let cell = ("hipersockets-routed-iucv", "rr-200-1000", 10);
    at_430(&mut run, cell).for_each(|trial| dearer_router(trial, 3));
    let (_, repeat) = repeated(&run);
    for (id, case) in [
        ("router-below-everywhere", "hipersockets-routed-iucv rr-200-1000 mtu 1500 x10"),
        ("router-gains-everywhere", "Table 4, 10 clients"),
        ("router-gains-more-than-server", "Table 4, 10 clients"),
    ] {
        let one = judged(&repeat, id);
        assert_eq!((one.verdict, not_for(one)), (FindingVerdict::DoesNotHold, vec![(case, "against")]), "{id}");
    }
    let virtual_time = judged(&repeat, "router-gains-in-virtual-time");
    assert_eq!(virtual_time.verdict, FindingVerdict::Holds, "only CP time was added");
    assert_eq!(judged(&repeat, "throughput-alike-for-any-clients").verdict, FindingVerdict::Holds);
}

#[test]
fn a_case_with_too_few_trials_is_open() {
    let (_, repeat) = repeated(&like_tables(5));
    for one in &repeat.judged {
        assert_eq!(one.verdict, FindingVerdict::CannotTell, "{}", one.finding.id);
        assert!(one.cases.iter().all(|case| reason(case) == "too few trials for an interval: 5"), "{one:?}");
    }
    // Six trials are enough for an interval. But among 54 cases, twelve trials are needed to show that one case is outside the
    // bounds.
    let cell = ("hipersockets-routed-iucv", "rr-200-1000", 10);
    for (rounds, speaks) in [(6, "open"), (12, "against")] {
        let mut run = like_tables(rounds);
        at_430(&mut run, cell).for_each(|trial| dearer_router(trial, 3));
        let (_, repeat) = repeated(&run);
        let one = judged(&repeat, "router-below-everywhere");
        assert_eq!((one.count("for"), one.count(speaks)), (PAIRS - 1, 1), "{rounds} rounds");
    }
    // The router's cost is higher in every second round only, so the interval is wide.
    let mut run = like_tables(12);
    at_430(&mut run, cell).filter(|trial| trial.round % 2 == 0).for_each(|trial| dearer_router(trial, 3));
    let (_, repeat) = repeated(&run);
    let one = judged(&repeat, "router-below-everywhere");
    let open: Vec<&str> = one.cases.iter().map(reason).filter(|reason| !reason.is_empty()).collect();
    assert_eq!((one.verdict, open), (FindingVerdict::CannotTell, vec!["the interval crosses a bound"]));
}

#[test]
fn smoke_runs_and_flawed_sides_carry_no_verdict() {
    let mut run = like_tables(12);
    run.plan.smoke = true;
    let (_, repeat) = repeated(&run);
    assert!(
        repeat
            .judged
            .iter()
            .all(|one| one.verdict == FindingVerdict::CannotTell && one.count("open") == one.cases.len())
    );

    let mut run = like_tables(12);
    let cell = ("hipersockets-routed-iucv", "rr-200-1000", 10);
    let flawed = at_430(&mut run, cell).filter(|trial| trial.round < 4);
    flawed.for_each(|trial| trial.flags = vec!["3 connections were reset".into()]);
    let (_, repeat) = repeated(&run);
    let one = judged(&repeat, "router-gains-everywhere");
    assert_eq!((one.verdict, one.count("for")), (FindingVerdict::CannotTell, PAIRS - 1));
    let open = one.cases.iter().find(|case| case.name == "Table 4, 10 clients").unwrap();
    assert!(reason(open).starts_with("not comparable: 4 of 12 trials of 430 had a flaw"), "{open:?}");

    // A run whose cells cannot be compared has measured its findings nevertheless.
    let flawed = run.trials.iter_mut().filter(|trial| trial.cell.level == "430" && trial.round < 11);
    flawed.for_each(|trial| trial.flags = vec!["3 connections were reset".into()]);
    let (_, repeat) = repeated(&run);
    let one = judged(&repeat, "router-gains-everywhere");
    assert!(one.is_measured() && one.cases.iter().all(|case| case.measured.is_none()), "{one:?}");
}

#[test]
fn a_case_that_was_not_measured_speaks_neither_way() {
    let mut run = like_tables(12);
    run.trials.retain(|trial| trial.cell.path.starts_with("hiper"));
    let (_, repeat) = repeated(&run);
    let one = judged(&repeat, "system-cpu-down");
    assert_eq!((one.verdict, one.count("for"), one.count("open")), (FindingVerdict::CannotTell, 12, PAIRS - 12));
    assert_eq!(reason(one.cases.last().unwrap()), "this run did not measure table 18");
    assert_eq!(
        judged(&repeat, "router-below-everywhere").verdict,
        FindingVerdict::Holds,
        "in every cell that there is"
    );
    assert!(judged(&repeat, "crr-rate-alike").cases.iter().all(|case| case.measured.is_none()));

    // "Every cell" includes a cell that has no figure at one of the levels.
    let mut run = like_tables(12);
    let alone = run.trials.iter().position(|trial| trial.cell.level == "430" && trial.cell.clients == 5).unwrap();
    let cell = run.trials[alone].cell.clone();
    run.trials.retain(|trial| trial.cell != cell);
    run.skipped = vec![Skipped { cell, reason: "the guest died".into() }];
    let (_, repeat) = repeated(&run);
    let one = judged(&repeat, "router-below-everywhere");
    assert_eq!((one.verdict, one.count("for"), one.cases.len()), (FindingVerdict::CannotTell, PAIRS - 1, PAIRS));
    assert_eq!(reason(one.cases.last().unwrap()), "this run did not measure both levels");
}

#[test]
fn a_cell_has_the_table_of_its_connectivity_workload_and_mtu() {
    let tables = shown().unwrap();
    let table = |path: &str, workload: &str, mtu: u32| {
        let mut cell = siga_results::testing::trial(path, 0, 0, None).cell;
        (cell.workload, cell.mtu) = (workload.parse().unwrap(), Some(mtu));
        tables.iter().find(|table| table.shows(&cell)).map(|table| table.id.clone())
    };
    for (id, path, workload, mtu) in TABLES {
        assert_eq!(table(path, workload, mtu).as_deref(), Some(id));
        assert_eq!(table(path.trim_end_matches("-iucv"), workload, mtu).as_deref(), Some(id), "its stacks embedded");
        assert_eq!(table(path, workload, mtu + 1), None);
    }
    for (path, workload, mtu) in [
        ("hipersockets-iucv", "strg-20m", 1_500),
        ("veth-routed", "strg-20m", 1_500),
        ("vctc-routed-iucv", "strp-20m", 1_500),
        ("vctc-routed-iucv", "strg-20m", 57_344),
        ("hipersockets-routed-iucv", "rr-1-1", 1_500),
    ] {
        assert_eq!(table(path, workload, mtu), None, "{path} {workload}");
    }
}

#[test]
fn other_levels_have_ratios_and_no_findings() {
    let mut run = like_tables(12);
    for trial in &mut run.trials {
        trial.cell.level = if trial.cell.level == "420" { "420".into() } else { "430-packing".into() };
    }
    run.levels[1].name = "430-packing".into();
    let (_, repeat) = repeated(&run);
    assert!(repeat.judged.is_empty() && repeat.pairs.len() == PAIRS);
    assert!(repeat.pairs.iter().all(|pair| pair.table.is_none() && pair.ratio("tcpip2_tot_cpu_util").is_some()));

    // The run has three levels in arbitrary order; 420 is the base.
    let mut run = like_tables(6);
    let mut others = like_tables(6).trials;
    others.iter_mut().for_each(|trial| trial.cell.level = format!("{}-packing", trial.cell.level));
    run.trials.extend(others.into_iter().filter(|trial| trial.cell.level.starts_with("430")));
    run.levels = ["430-packing", "430", "420"].map(|name| Level { name: name.into(), ..Level::default() }).into();
    let reduced = summary::reduce(&run, None).unwrap();
    assert_eq!(levels(&run, &reduced), ["420", "430-packing", "430"]);
    let repeat = Repeat::of(&run, &reduced, None).unwrap();
    assert!(repeat.pairs.len() == 2 * PAIRS && repeat.pairs.iter().all(|pair| pair.base_level == "420"));
    assert_eq!(repeat.pairs.iter().filter(|pair| pair.table.is_some()).count(), PAIRS);

    let alone = run_of(vec![siga_results::testing::trial("veth", 0, 700, None)]);
    assert!(repeated(&alone).1.pairs.is_empty(), "a single level has nothing beside it");
}

#[test]
fn cells_are_paired_as_the_comparison_pairs_them() {
    /// Returns the pairs of the report and those of the comparison.
    fn both(run: &Run, [base, new]: [&str; 2]) -> [HashSet<(Cell, Cell)>; 2] {
        let (reduced, repeat) = repeated(run);
        let cell = |at: usize| reduced.cells[at].cell.clone();
        let own = repeat.pairs.iter().map(|pair| (cell(pair.base), cell(pair.new)));
        let compared = siga_results::judge::levels(run, base, new).unwrap();
        [own.collect(), compared.rows.into_iter().map(|row| (row.base, row.new)).collect()]
    }
    // Levels that set frames have cells of other MTUs.
    let mut run = like_tables(2);
    run.trials.retain(|trial| trial.cell.path == "vctc-routed-iucv");
    run.levels[0].name = "small".into();
    run.levels[1].name = "large".into();
    for trial in &mut run.trials {
        let is_base = trial.cell.level == LEVELS[0];
        (trial.cell.level, trial.cell.mtu) =
            if is_base { ("small".into(), Some(8_192)) } else { ("large".into(), Some(16_384)) };
    }
    let [own, compared] = both(&run, ["small", "large"]);
    assert_eq!((own.len(), &own), (9, &compared));
    // With a second MTU at the base level, there is no single partner.
    let mut second: Vec<TrialRecord> = run.trials.iter().filter(|trial| trial.cell.level == "small").cloned().collect();
    second.iter_mut().for_each(|trial| trial.cell.mtu = Some(1_500));
    second.retain(|trial| trial.cell.clients == 5);
    run.trials.extend(second);
    let [own, compared] = both(&run, ["small", "large"]);
    assert_eq!((own.len(), &own), (6, &compared));
    // The levels of the report are compared at one MTU only.
    for trial in &mut run.trials {
        trial.cell.level = if trial.cell.level == "small" { LEVELS[0].into() } else { LEVELS[1].into() };
    }
    run.levels[0].name = LEVELS[0].into();
    run.levels[1].name = LEVELS[1].into();
    assert!(repeated(&run).1.pairs.is_empty());
}
