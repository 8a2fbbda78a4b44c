//! Tests of every report on a run of an emulated machine: the report says so in its first sentence and at its tables, and compares
//! nothing.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

use serde_json::Value;
use siga_plan::level::Level;
use siga_report::export;
use siga_report::output::Output;
use siga_report::{Format, Layout, headline, html, render, verdicts};
use siga_results::judge;
use siga_results::store::{Run, Store};
use std::path::PathBuf;

/// Words of comparisons of rates and CPU times, in sentences and tables.
const COMPARISONS: [&str; 6] = ["times the", "x the rate", "x rate", "less rate", "more CPU time", "A router adds"];

/// Returns a run of paths with and without a router, over the kernel's and siga's own network, at two levels. So it has
/// everything that a report compares by default. If `emulated`, the run is from an emulated machine.
fn two_levels(emulated: bool) -> Run {
    let mut run = siga_results::testing::run("run", Vec::new());
    run.environment.cpu.emulated = Some(emulated);
    run.levels = ["430", "430-packing"].map(|name| Level { name: name.into(), ..Level::plain() }).into();
    let paths = ["veth", "veth-routed", "hipersockets-routed"];
    for (round, level) in (0..12).flat_map(|round| [0, 1].map(|level| (round, level))) {
        for (slower, path) in (level as u64..).zip(paths) {
            let mut trial = siga_results::testing::trial(path, round, 700 + 50 * slower, None);
            trial.cell.level.clone_from(&run.levels[level].name);
            trial.elapsed_ns += 300_000_000 * slower + u64::from(round % 5) * 1_000_000;
            trial.at = "2026-01-01T00:00:00Z".into();
            run.trials.push(trial);
        }
    }
    run
}

fn one_level(emulated: bool) -> Run {
    let mut run = two_levels(emulated);
    run.levels.truncate(1);
    run.trials.retain(|trial| trial.cell.level == "430");
    run
}

fn assert_compares_nothing(text: &str) {
    for words in COMPARISONS {
        assert!(!text.contains(words), "`{words}` in {text}");
    }
}

#[test]
fn a_report_of_an_emulated_machine_says_so_first_and_at_its_tables_and_compares_nothing() {
    for run in [two_levels(true), one_level(true)] {
        for format in [Format::Text, Format::Md] {
            let text = render(&run, format, Layout::Plain, None).unwrap();
            assert!(text.starts_with("EMULATED MACHINE: a program emulates this machine's CPUs"), "{text}");
            let is_title = |line: &&str| line.contains("rr-200-1000, 1 pair (") || line.starts_with("### Cells");
            let title = text.lines().find(is_title).unwrap();
            assert!(title.ends_with(", emulated machine"), "{title}");
            assert!(text.contains(" not comparable"), "{text}");
            assert_compares_nothing(&text);
        }
        let text = render(&run, Format::Text, Layout::Zvm, None).unwrap();
        assert!(text.starts_with("EMULATED MACHINE: "), "{text}");
        assert!(text.contains("Table 1. veth - rr-200-1000 1500, emulated machine\n"), "{text}");
        assert!(!text.contains("ratio"), "{text}");
        assert_eq!(headline(&run).unwrap(), "");
    }
}

#[test]
fn data_for_other_programs_have_the_mark_of_an_emulated_machine_and_no_comparison() {
    let run = two_levels(true);
    let json: Value = serde_json::from_str(&render(&run, Format::Json, Layout::Plain, None).unwrap()).unwrap();
    assert_eq!(json["emulated"], true);
    for comparison in ["hops", "beside", "levels", "findings"] {
        assert_eq!(json[comparison], Value::Array(Vec::new()), "{comparison}");
    }
    let csv = render(&run, Format::Csv, Layout::Plain, None).unwrap();
    assert!(
        csv.lines().next().unwrap().contains(",rounds,disturbed_rounds,load,planned_per_s,accounting_ratio,"),
        "{csv}"
    );
    // The two columns of loads are empty in lines of cells. The four columns about the cost of accounting are empty, because a ratio
    // would compare. The eight columns about streams and the three about figures are empty, because
    // no cell has one.
    assert!(csv.lines().skip(1).all(|line| line.ends_with(",true,12,0,,,,,,,,,,,,,,,,,")), "{csv}");
}

#[test]
fn a_page_of_an_emulated_machine_has_the_mark_and_no_chart_of_ratios() {
    for run in [two_levels(true), one_level(true)] {
        let page = html::html(std::slice::from_ref(&run), &judge::within(&run).unwrap()).unwrap();
        assert!(page.contains("<p class=\"title\">siga report of an emulated machine: run</p>"));
        assert!(page.contains("<strong>Emulated machine</strong>") && page.contains("1 pair, emulated machine</h4>"));
        assert!(!page.contains("Ratios with their intervals") && !page.contains("class=\"card"), "a chart compares");
        assert_compares_nothing(page.split("id=\"data\"").next().unwrap());
    }
}

#[test]
fn a_report_of_a_real_machine_has_the_comparisons_and_no_mark() {
    let text = render(&one_level(false), Format::Text, Layout::Plain, None).unwrap();
    assert!(text.starts_with("Fastest for request-response") && text.contains("A router adds"), "{text}");
    let run = two_levels(false);
    let text = render(&run, Format::Text, Layout::Plain, None).unwrap();
    assert!(text.contains("less rate") && text.contains("x 0.") && !text.to_lowercase().contains("emulated"), "{text}");
    let page = html::html(std::slice::from_ref(&run), &judge::within(&run).unwrap()).unwrap();
    assert!(page.contains("Ratios with their intervals") && !page.contains("emulated machine"));
}

#[test]
fn a_comparison_on_an_emulated_machine_shows_values_without_ratios() {
    let comparison = judge::levels(&two_levels(true), "430", "430-packing").unwrap();
    for format in [Format::Text, Format::Md] {
        let text = verdicts::render(&comparison, format, true, None).unwrap();
        assert!(text.contains(" not comparable (emulated machine)."), "{text}");
        let rate = text.lines().find(|line| line.trim_start_matches(['|', ' ']).starts_with("rate ")).unwrap();
        let fields: Vec<&str> = rate.split([' ', '|']).filter(|field| !field.is_empty()).collect();
        assert_eq!(fields[3..8], ["-"; 5], "ratio, interval, noise, p, adjusted: {rate}");
        assert!(text.contains("CPU in us/trans), emulated machine\n"), "{text}");
        assert_compares_nothing(&text);
    }
    let json: Value = serde_json::from_str(&verdicts::render(&comparison, Format::Json, true, None).unwrap()).unwrap();
    assert_eq!(json["emulated"], true);
    for cell in json["cells"].as_array().unwrap() {
        assert_eq!(
            (cell["verdict"].as_str(), cell["reason"].as_str()),
            (Some("not comparable"), Some("emulated machine"))
        );
        assert!(
            ["ratio", "low", "high", "p", "noise_floor"].into_iter().all(|figure| cell[figure].is_null()),
            "{cell}"
        );
        assert!(cell["new_value"].is_number());
    }
}

#[test]
fn an_export_marks_trials_of_an_emulated_machine_and_a_history_leaves_them_out() {
    let place = tempfile::tempdir().unwrap();
    let stored = |name: &str, run: &Run| -> PathBuf {
        let directory = place.path().join(name);
        let (mut store, _) = Store::create(&directory, &run.plan, &run.environment).unwrap();
        run.trials.iter().for_each(|trial| store.add_trial(trial).unwrap());
        directory
    };
    let directories = [stored("real", &two_levels(false)), stored("emulated", &two_levels(true))];
    let exported = |form: &export::Form| {
        let (mut bytes, mut notes) = (Vec::new(), String::new());
        let mut output = Output::new("memory", &mut bytes);
        export::export(&directories, form, None, &mut output, &mut |note| notes += note).unwrap();
        output.finish().unwrap();
        (String::from_utf8(bytes).unwrap(), notes)
    };
    let (trials, _) = exported(&export::Form::Trials);
    let lines: Vec<&str> = trials.lines().collect();
    // The records say nothing about the host, so the columns after the mark are empty.
    assert!(lines[0].ends_with(",emulated,steal,others,run_queue,other_runs,probe_factor,fairness,causes,left_out"));
    for line in &lines[1..] {
        let mark = if line.starts_with("real,") { ",false,,,,,,,," } else { ",true,,,,,,,," };
        assert!(line.ends_with(mark), "{line}");
    }
    let (history, notes) = exported(&export::Form::Otava);
    assert_eq!(history.lines().count(), 2, "the head and the real run: {history}");
    assert!(notes.contains("emulated, because its machine is an emulated machine"), "{notes}");
}
