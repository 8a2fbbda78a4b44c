//! Tests of `siga compare`: its output for real runs, for records that the test makes slower, and for runs that cannot be
//! compared.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;

use common::{Bench, Ended, paths_build};
use serde_json::{Value, json};
use std::fs;

/// The options for two levels of one path with eight trials each.
const LEVELS: &str =
    "--path loopback --workload rr-1-1 --clients 1,2 --level plain,reno --seconds 0.06 --warm-up 0 --trials 8";

/// Makes the run `before`, whose recorded trials all took slightly more than 20 ms, and its copy `after`, whose trials took
/// `times` as long.
fn before_and_after(bench: &Bench, times: u64) -> Option<()> {
    if !paths_build(bench) {
        return None;
    }
    bench.run(&format!("run --out before {LEVELS}")).ok();
    bench.undisturb("before", 8);
    edit_trials(bench, "before", "before", |trial| {
        let round = trial["round"].as_u64().unwrap();
        trial["client"]["transactions"] = json!(1_000);
        trial["elapsed_ns"] = json!(20_000_000 + round * 7 % 5 * 40_000);
    });
    copy_slower(bench, "after", times);
    Some(())
}

fn copy_slower(bench: &Bench, name: &str, times: u64) {
    fs::create_dir(bench.path(name)).unwrap();
    for file in ["plan.toml", "levels.json", "environment.json", "paths.jsonl", "skipped.jsonl", "end.json"] {
        fs::copy(bench.path("before").join(file), bench.path(name).join(file)).unwrap();
    }
    edit_trials(bench, "before", name, |trial| {
        let elapsed = trial["elapsed_ns"].as_u64().unwrap();
        trial["elapsed_ns"] = json!(elapsed * times);
    });
}

fn edit_trials(bench: &Bench, from: &str, to: &str, mut edit: impl FnMut(&mut Value)) {
    let text = fs::read_to_string(bench.path(from).join("trials.jsonl")).unwrap();
    let edited: String = text
        .lines()
        .map(|line| {
            let mut trial: Value = serde_json::from_str(line).unwrap();
            edit(&mut trial);
            format!("{trial}\n")
        })
        .collect();
    fs::write(bench.path(to).join("trials.jsonl"), edited).unwrap();
}

fn cells(ended: &Ended) -> Vec<Value> {
    ended.json()["cells"].as_array().unwrap().clone()
}

#[test]
fn compare_judges_a_slower_run_worse_in_every_format_and_fails_on_request() {
    let bench = Bench::new();
    let Some(()) = before_and_after(&bench, 3) else { return };
    let text = bench.run("compare before after").ok();
    let summary = text.out.lines().next().unwrap();
    assert!(
        summary.starts_with("after against before, ") && summary.contains(" of 4 cells: 0 better, 4 worse, "),
        "{text}"
    );
    assert!(text.out.contains("not interleaved, so this comparison is weaker"), "{text}");
    assert!(text.out.contains("Environment: no difference."), "{text}");
    assert!(text.out.contains("66.7% less rate"), "{text}");
    assert!(!text.out.contains('\u{1b}'), "colour is for terminals: {text}");

    let report = bench.run("compare before after --format json").ok();
    assert_eq!(report.json()["schema"], "siga/compare/2");
    assert_eq!((&report.json()["form"], &report.json()["summary"]["worse"]), (&json!("two_sample"), &json!(4)));
    let rates: Vec<Value> = cells(&report).into_iter().filter(|cell| cell["metric"] == "rate").collect();
    assert_eq!(rates.len(), 4);
    for cell in &rates {
        assert_eq!((&cell["verdict"], &cell["path"]), (&json!("worse"), &json!("loopback")), "{cell}");
        let number = |name: &str| cell[name].as_f64().unwrap_or_else(|| panic!("no {name} in {cell}"));
        assert!((number("ratio") - 1.0 / 3.0).abs() < 0.01, "{cell}");
        assert!(number("low") <= number("ratio") && number("ratio") <= number("high"), "{cell}");
        assert!(number("p") <= number("p_adjusted") && number("noise_floor") > 0.0, "{cell}");
        assert!([1.0, 2.0].contains(&number("clients")), "{cell}");
        assert!(cell["mtu"].is_number() && cell["workload"] == "rr-1-1", "{cell}");
    }

    let csv = bench.run("compare before after --format csv").ok();
    let mut reader = csv::Reader::from_reader(csv.out.as_bytes());
    let at = reader.headers().unwrap().iter().position(|name| name == "verdict").unwrap();
    let verdicts: Vec<String> = reader.records().map(|record| record.unwrap()[at].to_owned()).collect();
    assert_eq!(verdicts.len(), cells(&report).len());
    assert_eq!(verdicts.iter().filter(|verdict| *verdict == "worse").count(), 4);
    let roles: Vec<&Value> = rates.iter().map(|cell| &cell["role"]).collect();
    assert!(roles.iter().all(|role| *role == "main"), "{roles:?}");
    let md = bench.run("compare before after --format md").ok();
    assert!(md.out.starts_with("## after against before") && md.out.contains("| rate "), "{md}");

    for fail_on in ["regression", "regression:50%"] {
        bench.run(&format!("compare before after --fail-on {fail_on}")).refused(1, &["4 figures are worse", "rate"]);
    }
    bench.run("compare before after --fail-on regression:70%").ok();
    bench.run("compare after before --fail-on regression").ok();
    bench.run("compare before after --fail-on slower").refused(2, &["regression:5%"]);
}

#[test]
fn levels_and_paths_of_one_run_are_compared_in_pairs() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let run = "--path loopback,unix --workload rr-1-1 --level plain,reno --seconds 0.06 --warm-up 0 --trials 6";
    bench.run(&format!("run --clients 1 {run}")).ok();
    let runs = common::names(&bench.path("runs"));
    bench.undisturb(&format!("runs/{}", runs[0]), 6);
    let newest = bench.run("compare plain reno --format json").ok();
    assert_eq!(newest.json()["form"], "paired");
    assert!(cells(&newest).iter().all(|cell| cell["base_level"] == "plain" && cell["level"] == "reno"), "{newest}");
    let rates = cells(&newest).into_iter().filter(|cell| cell["metric"] == "rate").collect::<Vec<_>>();
    assert!(rates.len() == 2 && rates.iter().all(|cell| cell["base_trials"] == 6), "{newest}");
    let paths = bench.run(&format!("compare loopback unix --run runs/{} --format json", runs[0])).ok();
    assert!(cells(&paths).iter().all(|cell| cell["base_path"] == "loopback" && cell["path"] == "unix"), "{paths}");
    assert!(!cells(&paths).is_empty());
    bench.run("compare plain nosuch").refused(2, &["nosuch", "plain, reno", "loopback, unix"]);
    assert!(cells(&paths).iter().all(|cell| cell["verdict"] != "not comparable"), "{paths}");
    // The newest run is the one that started last, whatever its name is. The report names it.
    bench.run(&format!("run --out runs/zzz --clients 1 {run}")).ok();
    assert!(bench.run("compare plain reno").ok().out.contains("reno against plain in runs/zzz, "));
    fs::create_dir(bench.path("plain")).unwrap();
    bench.run("compare plain reno").ok();
    let shown = bench.run(&format!("show runs/{}", runs[0])).ok();
    assert!(shown.out.contains("reno against plain: "), "a run says what its levels are worth: {shown}");
}

#[test]
fn compare_names_a_directory_that_is_not_a_run() {
    let bench = Bench::new();
    let Some(()) = before_and_after(&bench, 1) else { return };
    fs::create_dir(bench.path("foreign")).unwrap();
    bench.run("compare before foreign").refused(2, &["foreign is not a run directory"]);
    bench.run("compare before ./nosuch").refused(2, &["./nosuch is not a run directory"]);
    bench.run("compare before before").refused(2, &["are the same run"]);
    bench.run("compare plain plain --run before").refused(2, &["cannot be compared with itself"]);
    bench.run("compare plain reno --run nosuch").refused(2, &["nosuch"]);
    bench.run("compare plain reno").refused(2, &["no run with a finished trial in runs/", "--run DIR"]);
    fs::create_dir_all(bench.path("runs/empty")).unwrap();
    for name in common::names(&bench.path("before")) {
        fs::copy(bench.path("before").join(&name), bench.path("runs/empty").join(&name)).unwrap();
    }
    fs::write(bench.path("runs/empty/trials.jsonl"), "").unwrap();
    bench.run("compare plain reno").refused(2, &["no run with a finished trial in runs/", "--run DIR"]);
    bench.run("compare plain reno --run runs/empty").refused(2, &["the run runs/empty contains no trial"]);
    fs::write(bench.path("after/trials.jsonl"), "{\"cell\":\n{}\n").unwrap();
    bench.run("compare before after").refused(3, &["after/trials.jsonl"]);
    fs::write(bench.path("before/levels.json"), "[").unwrap();
    bench.run("compare before after").refused(3, &["levels.json"]);
}

#[test]
fn runs_that_are_cut_short_or_damaged_get_no_unfounded_verdict() {
    let bench = Bench::new();
    let Some(()) = before_and_after(&bench, 1) else { return };
    let whole = fs::read_to_string(bench.path("after/trials.jsonl")).unwrap();
    let lines: Vec<&str> = whole.lines().collect();

    // One round has four cells with one trial each. The last line is truncated.
    fs::write(bench.path("after/trials.jsonl"), format!("{}\n{}", lines[..4].join("\n"), &lines[4][..40])).unwrap();
    let report = bench.run("compare before after").ok();
    assert!(report.out.contains("Caution: after is not complete; the figures are from its 4 trials"), "{report}");
    assert!(report.out.contains("Caution: after is damaged: "), "{report}");
    let one = bench.run("compare before after --format json").ok();
    let decided = |cell: &&Value| !["inconclusive", "not comparable"].contains(&cell["verdict"].as_str().unwrap());
    assert_eq!(cells(&one).iter().filter(decided).count(), 0, "{one}");

    // The runs have no cell in common.
    edit_trials(&bench, "before", "after", |trial| trial["cell"]["clients"] = json!(77));
    bench.run("compare before after").refused(2, &["no cell in common", "x77"]);

    // One run has rates of zero, and then no trials at all.
    edit_trials(&bench, "before", "after", |trial| trial["client"]["transactions"] = json!(0));
    let zero = bench.run("compare before after").ok();
    assert!(zero.out.contains("rate: the figure is zero in 8 of 16 trials"), "{zero}");
    bench.run("compare before after --fail-on regression").refused(4, &["no figure is worse, but", "could not judge"]);
    assert!(!zero.out.contains("NaN") && !zero.out.contains("inf"), "{zero}");
    fs::write(bench.path("after/trials.jsonl"), "").unwrap();
    bench.run("compare before after").refused(2, &["no cell in common", "no trial"]);

    // JSON has no NaN.
    fs::write(bench.path("after/trials.jsonl"), whole.replace("\"slices\":[", "\"slices\":[NaN,")).unwrap();
    bench.run("compare before after").refused(3, &["after/trials.jsonl"]);

    // Every trial of one run has a flaw.
    edit_trials(&bench, "before", "after", |trial| trial["flags"] = json!(["9 connections were reset"]));
    let flawed = bench.run("compare before after").refused(4, &["no figure that siga can compare"]);
    assert!(flawed.out.contains("no trial without flaws in after: 9 connections were reset"), "{flawed}");
}

#[test]
fn runs_of_different_hosts_are_not_comparable_and_the_reason_is_named() {
    let bench = Bench::new();
    let Some(()) = before_and_after(&bench, 2) else { return };
    let file = bench.path("after/environment.json");
    let mut environment: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    environment["cpu"]["model"] = json!("\u{1b}[31mAbacus");
    environment["host"]["boot_id"] = json!("another");
    fs::write(&file, environment.to_string()).unwrap();
    let report = bench.run("compare before after --format json").ok();
    assert!(cells(&report).iter().all(|cell| cell["verdict"] == "not comparable"), "{report}");
    assert!(cells(&report)[0]["reason"].as_str().unwrap().contains("cpu.model"), "{report}");
    let differences = report.json()["environment"].as_array().unwrap().clone();
    assert_eq!((&differences[0]["key"], &differences[0]["matters"]), (&json!("cpu.model"), &json!(true)));
    let text = bench.run("compare before after --fail-on regression").refused(4, &["not comparable"]);
    assert!(text.out.contains("Not comparable: cpu.model: "), "{text}");
    assert!(!text.out.contains('\u{1b}'), "a record cannot colour a terminal: {text}");
    assert!(
        text.out.find("in the environment that affect the figures") < text.out.find("rr-1-1"),
        "they come first: {text}"
    );
}

#[test]
fn a_run_without_a_number_of_trials_ends_by_its_intervals_after_7_to_30_rounds() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let cells = "--path unix --workload rr-1-1 --clients 1 --level plain,aa --seconds 0.06 --warm-up 0";
    let planned = bench.run(&format!("plan {cells}")).ok();
    assert!(planned.out.contains("2 cells, 7 to 30 rounds of trials (until the comparisons are clear)"), "{planned}");
    bench.run(&format!("run --out run {cells}")).ok();
    let trials = bench.trials();
    let of = |level: &str| trials.iter().filter(|trial| trial["cell"]["level"] == level).count();
    assert!((7..=30).contains(&of("plain")), "{} trials", of("plain"));
    assert_eq!(of("plain"), of("aa"), "both sides go on as long as either has to");
    let shown = bench.run("compare plain aa --run run").ok();
    assert!(!shown.out.contains("is not complete"), "{shown}");
    // Resuming a run that has ended adds no trial.
    bench.run("run --resume run").ok();
    assert_eq!(bench.trials().len(), trials.len());
    // A killed run has no record of its end.
    fs::remove_file(bench.path("run/end.json")).unwrap();
    assert!(bench.run("compare plain aa --run run").ok().out.contains("is not complete"));
    // A time budget ends a run earlier.
    let short = bench.run(&format!("run --out short {cells} --budget 0.1")).ok();
    assert!(short.out.contains("2 trials in short"), "{short}");
}

#[test]
fn every_shipped_level_is_comparable_with_the_others() {
    const LEVELS: [&str; 9] =
        ["aa", "bbr", "bigtcp", "conntrack", "cubic", "gro-off", "gro-on", "nft-100-rules", "reno"];
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let levels = LEVELS.join(",");
    let run = format!("--path veth-routed --workload rr-1-1 --clients 1 --level plain,{levels}");
    // Levels that this host cannot set are skipped, which gives status 4.
    let measured = bench.measure(&run);
    assert!([Some(0), Some(4)].contains(&measured.status), "{measured}");
    bench.undisturb("run", 1);
    let mut compared = 0;
    for level in LEVELS {
        let report = bench.run(&format!("compare plain {level} --run run --format json"));
        if report.status == Some(2) {
            println!("skipped, because this host has no {level}: {}", report.err);
            continue;
        }
        assert_eq!(report.json()["summary"]["not comparable"], 0, "{report}");
        compared += 1;
    }
    assert!(compared >= 4, "{measured}");
    let run = "run --out mtus --path veth-routed --workload rr-1-1 --clients 1 --level mtu-1500,mtu-8992";
    bench.run(&format!("{run} --seconds 0.06 --warm-up 0 --trials 1")).ok();
    bench.undisturb("mtus", 1);
    let mtus = bench.run("compare mtu-1500 mtu-8992 --run mtus --format json").ok();
    assert_eq!(mtus.json()["summary"]["not comparable"], 0, "{mtus}");
    assert!(cells(&mtus).iter().all(|cell| cell["base_mtu"] == 1500 && cell["mtu"] == 8992), "{mtus}");
}

#[test]
fn hostile_names_in_a_record_cannot_break_out_of_their_line_column_or_cell() {
    let bench = Bench::new();
    let Some(()) = before_and_after(&bench, 3) else { return };
    let hostile = "=1+1\n| x | better |\n<b>`\u{202e}";
    for run in ["before", "after"] {
        edit_trials(&bench, run, run, |trial| {
            if trial["cell"]["level"] == "reno" {
                trial["cell"]["level"] = json!(hostile);
            }
        });
        let file = bench.path(run).join("levels.json");
        let mut levels: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        levels[1]["name"] = json!(hostile);
        fs::write(&file, levels.to_string()).unwrap();
    }
    let line = "=1+1\u{fffd}| x | better |\u{fffd}<b>`\u{fffd}";
    let escaped = "=1+1\u{fffd}\\| x \\| better \\|\u{fffd}\\<b>\\`\u{fffd}";
    for command in ["compare before after --all", "show before", "show before --layout zvm"] {
        let shown = bench.run(command).ok();
        assert!(shown.out.contains(line) && !shown.out.contains('\u{202e}'), "{shown}");
        if command.ends_with("zvm") {
            continue;
        }
        let shown = bench.run(&format!("{command} --format md")).ok();
        assert!(shown.out.contains(escaped) && !shown.out.contains(line), "{shown}");
        assert!(!shown.out.contains('\u{202e}'), "{shown}");
        let shown = bench.run(&format!("{command} --format csv")).ok();
        assert!(shown.out.contains(&format!("'{line}")) && !shown.out.contains('\u{202e}'), "{shown}");
        assert!(shown.out.lines().skip(1).all(|line| line.starts_with("loopback,")), "{shown}");
        let shown = bench.run(&format!("{command} --format json")).ok();
        assert!(!shown.out.contains('\u{202e}'), "{shown}");
        assert!(cells(&shown).iter().any(|cell| cell["level"] == hostile), "programs get the name as it is: {shown}");
    }
}

/// Writes into each trial of the run `before` that the hypervisor took 12% of the CPU time in the first `rounds` rounds.
fn steal(bench: &Bench, rounds: u64) {
    edit_trials(bench, "before", "before", |trial| {
        let capacity = trial["cpu"]["wall_ns"].as_u64().unwrap() * trial["cpu"]["cpus"].as_u64().unwrap();
        // Steal time below 50 ms does not count, so the trials become long enough.
        let wall = trial["cpu"]["wall_ns"].as_u64().unwrap() * 20;
        trial["cpu"]["wall_ns"] = json!(wall);
        let disturbed = trial["round"].as_u64().unwrap() < rounds;
        trial["host"] = json!({ "steal_ns": if disturbed { capacity * 20 * 12 / 100 } else { 0 } });
    });
}

#[test]
fn every_output_says_which_rounds_the_host_disturbed() {
    let bench = Bench::new();
    let Some(()) = before_and_after(&bench, 3) else { return };
    steal(&bench, 2);
    let words = "the hypervisor took 12% of the CPU time in 2 of 8 rounds; siga uses only the other 6";
    for command in ["show before", "show before --format md", "show before --layout zvm"] {
        let shown = bench.run(command).ok();
        assert!(shown.out.lines().take(2).any(|line| line == format!("Disturbed: {words}.")), "{shown}");
    }
    let compared = bench.run("compare plain reno --run before").ok();
    assert!(compared.out.contains(&format!("Caution: before: {words}.")), "{compared}");
    let json = bench.run("show before --format json").ok().json();
    assert_eq!((&json["disturbance"]["rounds"], &json["disturbance"]["disturbed"]), (&json!(8), &json!(2)));
    let trials = json["disturbance"]["trials"].as_array().unwrap();
    let left_out = trials.iter().filter(|trial| trial["left_out"] == true && trial["causes"] == json!(["steal"]));
    assert_eq!((trials.len(), left_out.count()), (32, 8));
    let csv = bench.run("show before --format csv").ok();
    let mut reader = csv::Reader::from_reader(csv.out.as_bytes());
    let heads = reader.headers().unwrap().clone();
    let first = reader.records().next().unwrap().unwrap();
    let field = |name: &str| &first[heads.iter().position(|head| head == name).unwrap()];
    assert_eq!((field("rounds"), field("disturbed_rounds")), ("8", "2"), "{csv}");
    let export = bench.run("export before").ok();
    let mut reader = csv::Reader::from_reader(export.out.as_bytes());
    let at =
        |reader: &mut csv::Reader<&[u8]>, name: &str| reader.headers().unwrap().iter().position(|head| head == name);
    let (causes, left_out) = (at(&mut reader, "causes").unwrap(), at(&mut reader, "left_out").unwrap());
    let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert!(records.iter().all(|one| (&one[causes] == "steal") == (&one[left_out] == "true")), "{export}");
    bench.run("report before").ok();
    let page = fs::read_to_string(bench.path("before/report.html")).unwrap();
    assert!(page.contains(words) && page.contains("What disturbed the rounds"), "no chart");
    let judged = bench.run("compare before after --format json").ok();
    assert_eq!(judged.json()["disturbance"][0]["disturbed"], 2, "{judged}");
    assert_eq!(judged.json()["no_verdict"], Value::Null);
}

#[test]
fn a_run_with_too_few_undisturbed_rounds_gets_no_verdict_in_any_output() {
    let bench = Bench::new();
    let Some(()) = before_and_after(&bench, 3) else { return };
    steal(&bench, 3);
    for command in ["show before", "compare before after", "compare plain reno --run before"] {
        let shown = bench.run(command).ok();
        assert!(
            shown.out.starts_with("No verdict: the hypervisor took 12% of the CPU time in 3 of 8 rounds; "),
            "{shown}"
        );
    }
    let judged = bench.run("compare before after --format json").ok();
    assert!(cells(&judged).iter().all(|cell| cell["verdict"] == "not comparable"), "{judged}");
    assert!(judged.json()["no_verdict"].as_str().unwrap().contains("needs at least 6 undisturbed rounds"), "{judged}");
    bench.run("compare before after --fail-on regression").refused(4, &["not comparable"]);
    let page = bench.run("report before").ok();
    let text = fs::read_to_string(bench.path("before/report.html")).unwrap();
    assert!(text.contains("No verdict: the hypervisor took 12%"), "{page}");
}
