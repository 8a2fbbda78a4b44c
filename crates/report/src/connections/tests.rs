//! Runs of the plan `linux2009` with made-up rates, and what the overview says about them.

use super::*;
use crate::zvm::check::FindingVerdict;
use crate::{Format, Layout, html, render};
use siga_plan::plan::Plan;
use siga_results::record::{HostRecord, TrialRecord};
use siga_results::summary;
use siga_results::testing;

/// Returns the rate of a cell: the factors of the published overview, where it has some.
fn rate(cell: &Cell) -> f64 {
    let work = cell.workload.to_string();
    let is = |one: &str| work == one;
    let large = cell.mtu == Some(8_992);
    let is_file = work.starts_with("str");
    let osa = |ten: bool| {
        let mtu = match (large, ten) {
            (true, _) if is("crr-64-8k") => 1.5,
            (true, true) if is("rr-200-32k") => 2.3,
            (true, false) if is("rr-200-32k") => 1.4,
            (true, true) if is_file => 3.2,
            (..) => 1.0,
        };
        let wire = if ten && (!is_file || large) { 1.2 } else { 1.0 };
        1_000.0 * mtu * wire
    };
    match (cell.path.as_str(), cell.level.as_str()) {
        ("hipersockets", _) => 20_000.0,
        ("guestlan-hipers" | "guestlan-qdio" | "vswitch", "plain") => 10_000.0,
        ("qdio-10gbe" | "qdio-10gbe-iucv", _) | ("vswitch", "rate=10gbit") => osa(true),
        _ => osa(false),
    }
}

fn trials(plan: &Plan, rounds: u32, rate: impl Fn(&Cell) -> f64) -> Vec<TrialRecord> {
    let cells = plan.matrix().unwrap().cells;
    let mut trials = Vec::new();
    for round in 0..rounds {
        for (at, cell) in cells.iter().enumerate() {
            let mut trial = testing::trial(&cell.path, round, 700, None);
            trial.cell = cell.clone();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "made-up rates are small")]
            let units = (rate(cell) * (1.0 + 0.0003 * ((round as usize * 7 + at * 3) % 5) as f64)) as u64;
            if cell.workload.to_string().starts_with("str") {
                (trial.client.transactions, trial.client.received, trial.client.sent) = (0, units * 1_000_000, 0);
                if cell.workload.to_string().starts_with("strp") {
                    (trial.client.received, trial.client.sent) = (0, units * 1_000_000);
                    (trial.server.received, trial.server.sent) = (units * 1_000_000, 0);
                }
            } else {
                trial.client.transactions = units;
            }
            trials.push(trial);
        }
    }
    trials
}

fn run(rounds: u32, rate: impl Fn(&Cell) -> f64) -> Run {
    run_of(Plan::load("linux2009").unwrap(), rounds, rate)
}

fn run_of(plan: Plan, rounds: u32, rate: impl Fn(&Cell) -> f64) -> Run {
    let levels = plan.matrix().unwrap().levels;
    let trials = trials(&plan, rounds, rate);
    let mut run = Run { levels, ..testing::run("run", trials) };
    run.plan = plan;
    run
}

fn of_run(run: &Run) -> Option<Connections> {
    let reduced = summary::reduce(run, None).unwrap();
    of(run, &reduced, &Figures::new(run, None)).unwrap()
}

fn entry<'a>(matrix: &'a Connections, id: &str) -> &'a Entry {
    matrix.overview.iter().find(|entry| entry.checked.finding.id == id).unwrap_or_else(|| panic!("no {id}"))
}

#[test]
fn the_plan_has_the_connections_of_the_document_with_their_mtus_and_workloads() {
    let plan = Plan::load("linux2009").unwrap();
    let matrix = plan.matrix().unwrap();
    assert_eq!((matrix.cells.len(), matrix.skipped.len()), (20 * 6, 0));
    assert!(matrix.cells.iter().all(|cell| cell.clients == CONNECTIONS));
    let published = stated().unwrap();
    // Each side of the overview is a cell of the plan, with each workload.
    for stated in &published.findings {
        assert!(stated.above.is_some() || stated.below.is_some(), "{} cannot fail", stated.id);
        for side in stated.cases.iter().flat_map(|case| case.new.iter().chain(&case.base)) {
            let table = plan.table.iter().find(|table| table.id == side.connection).unwrap();
            for work in &stated.workloads {
                let is_here = |cell: &&Cell| {
                    table.has(&plan, &table.level_names(&plan, &matrix.levels), cell)
                        && cell.mtu == Some(side.mtu)
                        && cell.workload.to_string() == *work
                };
                assert_eq!(matrix.cells.iter().filter(is_here).count(), 1, "{side} {work}");
            }
        }
    }
    for workload in &plan.workloads {
        assert_eq!(published.workloads.iter().filter(|named| named.workload == *workload).count(), 1, "{workload}");
    }
    // The names that contradict each other: results and overview against the definitions.
    let named = |work: &str| published.workloads.iter().find(|named| named.workload == work).unwrap();
    assert_eq!(
        (named("rr-200-32k").name.as_str(), named("rr-200-32k").alias.as_deref()),
        ("Database query", Some("website access"))
    );
    assert_eq!(
        (named("crr-64-8k").name.as_str(), named("crr-64-8k").alias.as_deref()),
        ("Website access", Some("database query"))
    );
}

#[test]
fn a_run_like_the_document_bears_out_its_overview_with_the_published_factors() {
    let matrix = of_run(&run(12, rate)).unwrap();
    assert_eq!((matrix.overview.len(), matrix.workloads.len(), matrix.rows().len()), (17, 6, 4));
    for entry in &matrix.overview {
        let id = &entry.checked.finding.id;
        assert_eq!(entry.checked.verdict, FindingVerdict::Holds, "{id}: {:?}", entry.checked.cases);
        for case in &entry.checked.cases {
            assert_eq!(case.measured.unwrap().trials, 12);
        }
    }
    for (id, at, factor) in
        [("large-mtu-website", 0, 1.5), ("large-mtu-database", 1, 2.3), ("10gbe-transaction", 1, 1.2)]
    {
        let case = &entry(&matrix, id).checked.cases[at];
        let measured = case.measured.unwrap().value;
        assert!((measured / factor - 1.0).abs() < 0.01 && case.published == Some(factor), "{id}: {case:?}");
    }
    // The geometric mean of 20,000 and three times 10,000, over OSA with an MTU of 8992.
    let virtual_networks = entry(&matrix, "virtual-transaction").checked.cases[0].measured.unwrap().value;
    assert!((virtual_networks / (10.0 * 2_f64.powf(0.25)) - 1.0).abs() < 0.01, "{virtual_networks}");
    // Two directions, each against all 19 other connections.
    assert_eq!(entry(&matrix, "fastest-file").checked.cases.len(), 2 * 19);
}

#[test]
fn an_entry_of_the_overview_can_fail_and_can_be_open() {
    let slower = |cell: &Cell| if cell.path == "guestlan-hipers" { 30_000.0 } else { rate(cell) };
    let matrix = of_run(&run(12, slower)).unwrap();
    let fastest = &entry(&matrix, "fastest-website").checked;
    assert_eq!((fastest.verdict, fastest.count("against")), (FindingVerdict::DoesNotHold, 1));
    let open = of_run(&run(3, rate)).unwrap();
    assert!(open.overview.iter().all(|entry| entry.checked.verdict == FindingVerdict::CannotTell), "too few rounds");
    let mut smoke = run(12, rate);
    smoke.plan.smoke = true;
    let smoke = of_run(&smoke).unwrap();
    assert!(smoke.overview.iter().all(|entry| entry.checked.verdict == FindingVerdict::CannotTell), "a smoke run");
    let mut disturbed = run(12, rate);
    for trial in &mut disturbed.trials {
        trial.host = Some(HostRecord { steal_ns: 200_000_000, ..HostRecord::default() });
    }
    let disturbed = of_run(&disturbed).unwrap();
    assert!(
        disturbed.overview.iter().all(|entry| entry.checked.verdict == FindingVerdict::CannotTell),
        "all disturbed"
    );
    let mut part = run(12, rate);
    part.trials.retain(|trial| trial.cell.path != "qdio-10gbe");
    let part = of_run(&part).unwrap();
    let large = &entry(&part, "large-mtu-website").checked;
    assert_eq!((large.verdict, large.count("for"), large.count("open")), (FindingVerdict::CannotTell, 1, 1));
    assert!(format!("{:?}", large.cases[1].speaks).contains("did not measure osa-10gbe with MTU 8992"), "{large:?}");
}

#[test]
fn the_overview_of_a_run_with_several_levels_is_about_the_first_level() {
    let mut both = Plan::load("linux2009").unwrap();
    both.levels = vec!["430".into(), "430-packing".into()];
    let plain = |cell: &Cell| {
        let level = cell.level.replace("430-packing", "").replace("430", "").trim().to_owned();
        rate(&Cell { level: if level.is_empty() { "plain".into() } else { level }, ..cell.clone() })
    };
    // The second level is slower with large MTUs, and a fast adapter has only the second level.
    let slower = |cell: &Cell| plain(cell) * if cell.level.contains("packing") { 0.1 } else { 1.0 };
    let mut run = run_of(both, 12, slower);
    let matrix = of_run(&run).unwrap();
    assert!(matrix.overview.iter().all(|entry| entry.checked.verdict == FindingVerdict::Holds));
    assert!(matrix.workloads.iter().all(|block| block.lines.len() == 20), "one line for each connection and MTU");
    run.trials.retain(|trial| trial.cell.path != "qdio-10gbe" || trial.cell.level.contains("packing"));
    let part = of_run(&run).unwrap();
    let large = &entry(&part, "large-mtu-website").checked;
    assert!(format!("{:?}", large.cases[1].speaks).contains("did not measure osa-10gbe with MTU 8992"), "{large:?}");
}

#[test]
fn a_page_of_several_runs_has_the_matrix_of_each() {
    let runs = ["first", "second"].map(|name| Run { directory: name.into(), ..run(12, rate) });
    let page = html::html(&runs, &[]).unwrap();
    for id in ["overview-2009", "matrix-2009"] {
        let section = page.split_once(&format!("id=\"{id}\"")).unwrap().1.split_once("<section").unwrap().0;
        assert_eq!(page.matches(&format!("id=\"{id}\"")).count(), 1);
        for name in ["<h3>first</h3>", "<h3>second</h3>"] {
            assert_eq!(section.matches(name).count(), 1, "{id}: {name}");
        }
    }
    let single = html::html(&runs[..1], &[]).unwrap();
    assert!(!single.contains("<h3>first</h3>"));
}

#[test]
fn only_a_run_of_the_connections_has_the_overview() {
    let mut other = run(6, rate);
    other.plan.table.clear();
    assert!(of_run(&other).is_none());
    let mut single = run(6, rate);
    single.trials.retain(|trial| trial.cell.path == "hipersockets");
    assert!(of_run(&single).is_none(), "there is nothing to compare");
    let mut emulated = run(6, rate);
    emulated.environment.cpu.emulated = Some(true);
    assert!(of_run(&emulated).is_none());
}

#[test]
fn text_page_and_json_have_matrix_and_overview() {
    let own = run(12, rate);
    let text = render(&own, Format::Text, Layout::Plain, None).unwrap();
    for part in [
        "Website access, elsewhere in the document: database query (crr-64-8k, 10 connections)",
        "VSWITCH z/VM guest to guest",
        "Advantage of large MTU size over default MTU size",
        "Database query, published 1.4x (1GbE), 2.3x (10GbE). HOLDS: Database queries are faster with an MTU of 8992",
        "10 GbE rr-200-32k",
        "Judged on 38 of 38 cases: 38 of 38 cases support the finding",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let json: Value = serde_json::from_str(&render(&own, Format::Json, Layout::Plain, None).unwrap()).unwrap();
    let overview = json["overview"].as_array().unwrap();
    assert_eq!(
        (overview.len(), &overview[0]["printed"], &overview[0]["verdict"]),
        (17, &"1.5x".into(), &"holds".into())
    );
    assert_eq!((&overview[0]["from"], &overview[0]["cases"][0]["published"]), (&"overview".into(), &1.5.into()));
    let page = html::html(&[own], &[]).unwrap();
    for part in ["id=\"overview-2009\"", "id=\"matrix-2009\"", "Fastest connection", "OSA 10 Gigabit Ethernet VSWITCH"]
    {
        assert!(page.contains(part), "no {part}");
    }
    // A chart of rates and one of CPU times for each workload, with a mark for each connection and MTU.
    let charts = page.split_once("id=\"matrix-2009\"").unwrap().1.split_once("<section").unwrap().0;
    assert!(charts.matches("data-rows=\"20\"").count() >= 12, "{}", charts.matches("data-rows=\"20\"").count());
}
