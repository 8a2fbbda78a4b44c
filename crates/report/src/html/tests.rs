//! Tests of pages for unusual runs: hostile names in every place, figures of zero, thousands of cells.

use super::html;
use crate::zvm::repeat::tests::{at_430, dearer_router, like_tables};
use crate::{Format, Layout, render};
use serde_json::Value;
use siga_model::error::ErrorKind;
use siga_model::text::is_unseen;
use siga_plan::level::Level;
use siga_plan::matrix::Cell;
use siga_results::judge::{self, Comparison, Form, Metric, Mode, Part, Row, Subject, Verdict};
use siga_results::record::{PathRecord, Skipped, TrialRecord};
use siga_results::store::Run;

fn run(trials: Vec<TrialRecord>) -> Run {
    siga_results::testing::run("runs/made-up", trials)
}

fn judged(base: &Cell, new: &Cell, metric: Metric, ratio: f64, verdict: Verdict) -> Row {
    Row {
        base: base.clone(),
        new: new.clone(),
        metric,
        trials: (6, 6),
        values: (1_000.0, 1_000.0 * ratio),
        ratio,
        low: Some(ratio * 0.98),
        high: Some(ratio * 1.02),
        p: 0.03,
        p_adjusted: Some(0.04),
        noise_floor: Some(0.01),
        verdict,
    }
}

fn comparison(rows: Vec<Row>) -> Comparison {
    Comparison {
        run: None,
        base: "plain".into(),
        new: "other".into(),
        subject: Subject::Levels,
        form: Form::Paired,
        emulated: false,
        disturbed: Vec::new(),
        varied: Vec::new(),
        environment: Vec::new(),
        rows,
        means: Vec::new(),
        skipped: Vec::new(),
        cautions: Vec::new(),
    }
}

/// Checks that the charts have no invalid number, neither in SVG attributes nor in the texts of marks.
fn assert_no_nonsense(page: &str) {
    let drawn: String = page.split("<svg").skip(1).filter_map(|part| part.split("</svg>").next()).collect();
    for word in ["=\"NaN", "=\"inf", "=\"-inf", "NaN%", "inf%", "-NaN"] {
        assert!(!drawn.contains(word), "{word} in a drawing");
    }
}

/// The end of the class of each mark in the page.
const MARK: &str = "mark\" tabindex=";

fn titles(page: &str) -> Vec<&str> {
    let parts = page.split("<figcaption><h3>").skip(1);
    parts.filter_map(|part| part.split("</h3>").next()).collect()
}

#[test]
fn nothing_a_run_says_of_itself_is_markup() {
    const HOSTILE: &str =
        "</script><script>alert(1)</script><!--\"'><img src=x onerror=alert(2)>&lt;\u{2028}\u{202e}\u{0}\n]]>";
    let name = |place: &str| format!("{place}{HOSTILE}");
    let hostile = |round| {
        let mut trial = siga_results::testing::trial("veth", round, 700, None);
        trial.cell.path = name("path");
        trial.cell.level = name("level");
        trial.io = name("io");
        trial.flags = vec![name("flag")];
        trial.at = name("at");
        trial
    };
    let mut hostile_run = run(vec![hostile(0), hostile(1)]);
    let cell = hostile_run.trials[0].cell.clone();
    hostile_run.directory = name("directory").into();
    hostile_run.plan.name = name("plan");
    hostile_run.damage = vec![name("damage")];
    hostile_run.ended = false;
    hostile_run.environment.kernel.release = Some(name("kernel"));
    hostile_run.environment.cpu.governor = Some(name("governor"));
    hostile_run.environment.sysctl.insert(name("sysctl"), name("value"));
    hostile_run.levels = vec![Level { name: name("level"), about: name("about"), ..Level::plain() }];
    hostile_run.skipped = vec![Skipped { cell: Cell { clients: 7, ..cell.clone() }, reason: name("reason") }];
    hostile_run.paths = vec![PathRecord {
        cell: cell.clone(),
        congestion: Some(name("congestion")),
        server_address: None,
        interfaces: [(name("interface"), name("setting"))].into(),
        sysctls: [(name("sysctl"), name("setting"))].into(),
        filters: [(name("where"), name("filter"))].into(),
        notes: vec![name("note")],
        build: Some(name("build")),
    }];
    let mut sides = comparison(vec![
        judged(&cell, &cell, Metric::Rate, 1.5, Verdict::Better),
        judged(&cell, &cell, Metric::P99, 1.5, Verdict::NotComparable { reason: name("why") }),
    ]);
    (sides.base, sides.new) = (name("base"), name("new"));
    sides.cautions = vec![name("caution")];
    sides.skipped = vec![(cell, name("alone"))];
    sides.environment = vec![siga_results::environment::Difference {
        key: name("key"),
        base: name("one"),
        new: name("two"),
        matters: true,
    }];
    let page =
        html(&[hostile_run.clone(), run(vec![siga_results::testing::trial("veth", 0, 700, None)])], &[sides]).unwrap();

    let scripts: Vec<&str> = page.match_indices("<script").map(|(at, _)| &page[at..at + 20]).collect();
    let data = scripts.iter().filter(|script| script.starts_with("<script type=\"appli")).count();
    assert_eq!((scripts.len() - data, page.matches("</script>").count()), (1, scripts.len()), "{scripts:?}");
    assert_eq!(page.matches("<!--").count(), 1, "the signature alone is a comment");
    assert!(!page.contains("<img") && !page.contains("\"'>"), "a name has become markup");
    assert!(!page.contains(['\u{2028}', '\u{202e}', '\u{0}']), "letters that are not seen");
    assert!(page.contains("level&lt;/script&gt;&lt;script&gt;alert(1)"), "and yet the name is told");

    // The page embeds the run's files: each has a safe file name, and the trials are unchanged.
    for part in page.split("<script type=\"application/json\" id=\"raw-").skip(1) {
        let text = part.split_once("\">").unwrap().1.split("</script>").next().unwrap();
        let file: Value = serde_json::from_str(text).unwrap();
        let name = file["name"].as_str().unwrap();
        assert!(name.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-_".contains(letter)), "{name}");
        assert!(!name.starts_with('.'), "{name}");
        if name.ends_with("trials.jsonl") && name.starts_with("directory") {
            let first: TrialRecord =
                serde_json::from_str(file["text"].as_str().unwrap().lines().next().unwrap()).unwrap();
            assert_eq!(first, hostile_run.trials[0]);
        }
    }
}

/// Returns the page's section with the findings.
fn findings(page: &str) -> &str {
    let section = page.split_once("id=\"findings\"").unwrap().1;
    section.split_once("id=\"environment\"").unwrap().0
}

#[test]
fn a_replay_begins_with_its_findings() {
    let mut run = like_tables(12);
    let cell = ("hipersockets-routed-iucv", "rr-200-1000", 10);
    at_430(&mut run, cell).for_each(|trial| dearer_router(trial, 3));
    let comparisons = judge::within(&run).unwrap();
    let page = html(&[run], &comparisons).unwrap();
    let mut top = page.split_once("<header>").unwrap().1.split_once("</header>").unwrap().0;
    for part in [
        "Do the findings of z/VM's report on TCP/IP levels 420 and 430 hold here?",
        "<h1>14 of 21 findings of z/VM's report hold here: 7 are contradicted.</h1>",
        "A finding holds only if each of its cases agrees with the report.",
        "<th scope=\"col\">published</th><th scope=\"col\">measured (95%)</th>",
        "<th scope=\"row\">rate</th>",
        "Which level is better here is a separate question.",
    ] {
        top = top.split_once(part).unwrap_or_else(|| panic!("`{part}` is absent or too early in {top}")).1;
    }
}

#[test]
fn findings_are_shown_with_their_measured_cases() {
    let mut run = like_tables(12);
    let cell = ("hipersockets-routed-iucv", "rr-200-1000", 10);
    at_430(&mut run, cell).for_each(|trial| dearer_router(trial, 3));
    let page = html(&[run], &[]).unwrap();
    let section = findings(&page);
    for part in [
        "14 of 21 findings of z/VM's report hold here: 7 are contradicted.",
        "<strong>No</strong>: Router CPU per unit at 430 is below 420 in every cell.",
        "<strong>Holds</strong>: Throughput grows least with CRR.",
        "<strong>Does not hold</strong>: The router stack takes less CPU",
        "tcpip2, 420 to 430 in us/trans: 1.90 to 3.00",
    ] {
        assert!(section.contains(part), "no {part} in {section}");
    }
    assert!(page.contains("Published: Table 18. VCTC - RR 1500"), "z/VM's layout has the published ratios");

    let page = html(&[run_of_one_level()], &[]).unwrap();
    assert!(!page.contains("id=\"findings\""), "one level has nothing to judge");
}

#[test]
fn whether_the_router_is_below_everywhere_is_answered_yes_no_or_cannot_tell() {
    let mut dearer = like_tables(12);
    at_430(&mut dearer, ("vctc-routed-iucv", "crr-64-8k", 5)).for_each(|trial| dearer_router(trial, 3));
    for (run, answer) in [(like_tables(12), "Yes"), (dearer, "No"), (like_tables(1), "Cannot tell")] {
        let asked = "Router CPU per unit at 430 is below 420 in every cell.";
        let text = render(&run, Format::Text, Layout::Zvm, None).unwrap();
        assert!(text.contains(&format!("\n{}: {asked}\n", answer.to_uppercase())), "{answer}: {text}");
        let page = html(&[run], &[]).unwrap();
        assert!(findings(&page).contains(&format!("<strong>{answer}</strong>: {asked}")), "{answer}");
    }
}

fn run_of_one_level() -> Run {
    run(vec![siga_results::testing::trial("veth", 0, 700, None)])
}

#[test]
fn names_of_a_run_are_not_markup_in_findings() {
    const HOSTILE: &str = "</script><img src=x onerror=alert(2)>|`&lt;\u{2028}\u{202e}\u{0}\n]]>";
    let mut run = like_tables(6);
    let cell = ("hipersockets-routed-iucv", "rr-200-1000", 10);
    // The reason why a cell is not comparable is text from its trials.
    for trial in at_430(&mut run, cell).filter(|trial| trial.round < 2) {
        trial.flags = vec![format!("flag{HOSTILE}")];
    }
    let level = format!("level{HOSTILE}");
    let mut others: Vec<TrialRecord> = run.trials.iter().filter(|trial| trial.cell.level == "430").cloned().collect();
    others.iter_mut().for_each(|trial| trial.cell.level.clone_from(&level));
    run.trials.extend(others);
    run.levels.push(Level { name: level, ..Level::plain() });
    let page = html(std::slice::from_ref(&run), &[]).unwrap();
    assert!(
        findings(&page).contains("flag&lt;/script&gt;&lt;img src=x onerror=alert(2)&gt;|`&amp;lt;"),
        "told as text"
    );
    assert!(!page.contains("<img") && !page.contains(['\u{2028}', '\u{202e}', '\u{0}']), "a name has become markup");

    let text = render(&run, Format::Text, Layout::Zvm, None).unwrap();
    assert!(text.contains("flag</script><img src=x") && text.contains("level</script>"), "{text}");
    assert!(text.chars().all(|letter| letter == '\n' || !is_unseen(letter)), "letters that are not seen");
    let json = render(&run, Format::Json, Layout::Zvm, None).unwrap();
    assert!(json.chars().all(|letter| letter == '\n' || !is_unseen(letter)), "letters that are not seen");
    let json: Value = serde_json::from_str(&json).unwrap();
    let reasons = json["findings"][0]["cases"].as_array().unwrap().iter().filter_map(|case| case["reason"].as_str());
    assert!(reasons.collect::<Vec<_>>().pop().unwrap().ends_with(HOSTILE), "programs get it as it is");
}

#[test]
fn figures_that_come_to_nothing_are_left_out() {
    let empty = |path: &str, round| {
        let mut trial = siga_results::testing::trial(path, round, 0, None);
        (trial.elapsed_ns, trial.cpu.wall_ns) = (0, 0);
        (trial.client.transactions, trial.client.sent, trial.client.received) = (0, 0, 0);
        (trial.cpu.client.run_ns, trial.cpu.server.run_ns) = (0, 0);
        trial
    };
    let cell = siga_results::testing::trial("veth", 0, 700, None).cell;
    let rows = [0.0, f64::NAN, f64::INFINITY, -1.0];
    let rows = rows.map(|ratio| judged(&cell, &cell, Metric::Rate, ratio, Verdict::Inconclusive { trials: None }));
    let page = html(&[run(vec![empty("veth", 0), empty("veth-routed", 0)])], &[comparison(rows.into())]).unwrap();
    assert_no_nonsense(&page);
    assert_eq!(titles(&page), [""; 0], "a chart without data is absent");
    assert!(
        page.contains("the counters of this trial show no units of work"),
        "z/VM's layout has no line for what did nothing"
    );

    let mut wild = judged(&cell, &cell, Metric::Rate, 1.2, Verdict::Better);
    (wild.low, wild.high, wild.noise_floor) = (Some(0.0), Some(f64::INFINITY), Some(f64::INFINITY));
    let page =
        html(&[run(vec![siga_results::testing::trial("veth", 0, 700, None)])], &[comparison(vec![wild])]).unwrap();
    assert_no_nonsense(&page);
    assert_eq!(titles(&page), ["rr-200-1000", "other against plain"]);
}

#[test]
fn a_run_without_a_trial_has_no_report() {
    assert_eq!(html(&[run(Vec::new())], &[]).unwrap_err().kind(), ErrorKind::Incomplete);
}

#[test]
fn thousands_of_cells_have_all_their_rows_in_tables_and_some_in_charts() {
    const CELLS: u32 = 2_000;
    let mut histogram = siga_results::histogram::empty();
    (1..=100).for_each(|value| histogram.saturating_record(value * 1_000));
    let latency = siga_results::histogram::encode(&histogram).unwrap();
    let trials = (1..=CELLS).flat_map(|clients| {
        [0, 1].map(|round| {
            let mut trial = siga_results::testing::trial("veth", round, 700, None);
            trial.cell.clients = clients;
            trial.latency.clone_from(&latency);
            trial
        })
    });
    let run = run(trials.collect());
    let metrics = [Metric::Rate, Metric::P99, Metric::TOTAL, Metric::Cpu(Part::Server, Mode::All)];
    let cells = run.cells();
    let rows = cells.iter().flat_map(|cell| metrics.map(|metric| judged(cell, cell, metric, 0.9, Verdict::Worse)));
    let rows: Vec<_> = rows.collect();
    let page = html(std::slice::from_ref(&run), &[comparison(rows)]).unwrap();
    let marks = page.matches(MARK).count();
    assert!(marks < 600, "{marks} marks");
    for words in [
        "The chart shows the first 40 of 2000 sides",
        "The charts show 40 of 6000 rows",
        " of the 2000 measured numbers of pairs",
        "12 of 2000 charts of this kind",
    ] {
        assert!(page.contains(words), "what is left out is told: {words}");
    }
    let tables = &page[page.find("id=\"tables\"").unwrap()..page.find("id=\"environment\"").unwrap()];
    let rows = tables.matches("<tr>").count();
    assert!(rows >= CELLS as usize * 5, "{rows} rows");
    assert!(page.len() < 40_000_000, "{} bytes", page.len());
}

#[test]
fn a_chart_has_a_mark_for_each_row_of_its_table() {
    let routed: Vec<_> = (0..6)
        .flat_map(|round| {
            let drift = u64::from(round);
            [
                siga_results::testing::trial("veth", round, 700 + drift, None),
                siga_results::testing::trial("veth-routed", round, 1_000 + 2 * drift, None),
            ]
        })
        .collect();
    let run = run(routed);
    let comparisons = judge::within(&run).unwrap();
    assert_eq!(comparisons.len(), 1, "the routed path against the one without the router");
    let page = html(&[run], &comparisons).unwrap();
    assert!(page.contains("<h3>veth-routed against veth</h3>"));
    let charts: Vec<&str> = page.split("<figure").skip(1).filter_map(|part| part.split("</figure>").next()).collect();
    assert!(charts.len() >= 2, "{:?}", titles(&page));
    for chart in charts {
        let rows = chart.matches("<tr>").count() - 1;
        assert_eq!(chart.matches(MARK).count(), rows, "{}", &chart[..200.min(chart.len())]);
    }
}

/// Collects the places of all numbers in a record.
fn numbers(value: &Value, place: &str, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => found.push(place.to_owned()),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| numbers(item, &format!("{place}/{at}"), found));
        }
        Value::Object(fields) => {
            for (name, item) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                numbers(item, &format!("{place}/{name}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[test]
fn numbers_of_any_size_in_a_record_end_no_reader() {
    let profiled = |level: &str, round| {
        let profile = serde_json::json!({
            "period_ns": 1, "on_client": charges(), "on_server": charges(), "elsewhere": charges(),
        });
        let mut trial =
            siga_results::testing::trial("veth-routed", round, 700, Some(serde_json::from_value(profile).unwrap()));
        trial.cell.level = level.into();
        trial.protocol = [("client Tcp RetransSegs".into(), 1), ("server Tcp RetransSegs".into(), 1)].into();
        trial.cpu.planted_router = Some((1, 1));
        trial
    };
    let kernel = vec![profiled("plain", 0), profiled("aa", 0), profiled("plain", 1), profiled("aa", 1)];
    let mut guests = like_tables(2).trials;
    guests.retain(|trial| trial.cell.clients == 1 && trial.cell.path.starts_with("hipersockets"));
    let first = guests[0].cell.workload;
    guests.retain(|trial| trial.cell.workload == first);
    let mut panics = Vec::new();
    for trials in [kernel, guests] {
        let mut places = Vec::new();
        numbers(&serde_json::to_value(&trials[0]).unwrap(), "", &mut places);
        // One device and one slice are enough, because all have the same fields.
        for alike in ["/devices/", "/slices/"] {
            let mut seen = false;
            places.retain(|place| !place.starts_with(alike) || !std::mem::replace(&mut seen, true));
        }
        assert!(places.len() > 30, "{places:?}");
        for place in &places {
            for number in [u64::MAX.into(), u32::MAX.into(), Value::from(1e308)] {
                if std::panic::catch_unwind(|| read_with(&trials, place, &number)).is_err() {
                    panics.push(format!("{place} = {number}"));
                }
            }
        }
    }
    assert_eq!(panics, [""; 0]);
}

fn charges() -> Value {
    let samples = serde_json::json!({ "user": 1, "kernel": 1 });
    serde_json::json!({ "client": samples, "router": samples, "server": samples, "other": samples })
}

/// Reads a run in which each trial has `number` at `place`. Errors are allowed, but no panic.
fn read_with(trials: &[TrialRecord], place: &str, number: &Value) {
    let changed = trials.iter().map(|trial| {
        let mut value = serde_json::to_value(trial).unwrap();
        if let Some(there) = value.pointer_mut(place) {
            there.clone_from(number);
        }
        serde_json::from_value(value)
    });
    let Ok(trials) = changed.collect::<Result<Vec<TrialRecord>, _>>() else { return };
    let run = run(trials);
    for (format, layout) in [(Format::Text, Layout::Plain), (Format::Text, Layout::Zvm), (Format::Json, Layout::Plain)]
    {
        let _ = render(&run, format, layout, None);
    }
    let comparisons = judge::within(&run);
    // The page has the figures of all other reports and takes longest to generate, so it is only generated for one number.
    if let (true, Ok(comparisons)) = (number.as_u64() == Some(u64::MAX), comparisons) {
        let _ = html(std::slice::from_ref(&run), &comparisons);
    }
}
