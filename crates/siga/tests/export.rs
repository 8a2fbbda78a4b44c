//! Tests of the exports for other programs. Every figure of a run is exported once and equals the figure of the report. A history
//! is in order. An export that is not possible is refused and leaves no file.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;

use common::{Bench, Ended, names, paths_build};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Record = BTreeMap<String, String>;

/// Returns the records of a CSV file; each maps columns to values.
#[track_caller]
fn records(csv: &str) -> Vec<Record> {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let head = reader.headers().unwrap().clone();
    let record = |record: csv::StringRecord| {
        assert_eq!(record.len(), head.len());
        head.iter().map(str::to_owned).zip(record.iter().map(str::to_owned)).collect()
    };
    reader.records().map(|line| record(line.unwrap())).collect()
}

/// Measures a run of two cells on loopback. Returns false if paths cannot be built here.
fn small(bench: &Bench) -> bool {
    if !paths_build(bench) {
        return false;
    }
    bench.run("run --out run --quick --path loopback --workload rr-1-1,strg-20m --clients 1 --trials 3").ok();
    true
}

/// Copies a run and changes the text of one of its files.
fn copy(bench: &Bench, from: &str, to: &str, file: &str, change: impl Fn(&str) -> String) {
    fs::create_dir_all(bench.path(to)).unwrap();
    for name in names(&bench.path(from)) {
        fs::copy(bench.path(from).join(&name), bench.path(to).join(&name)).unwrap();
    }
    let place = bench.path(to).join(file);
    fs::write(&place, change(&fs::read_to_string(&place).unwrap())).unwrap();
}

/// Applies `change` to every trial in the text of a record.
fn each_trial(text: &str, change: impl Fn(usize, &mut Value)) -> String {
    let mut trials: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    trials.iter_mut().enumerate().for_each(|(number, trial)| change(number, trial));
    trials.iter().map(|trial| format!("{trial}\n")).collect()
}

/// Runs the program with arguments that may contain spaces.
fn siga(bench: &Bench, arguments: &[&str]) -> Ended {
    Ended::new(&arguments.join(" "), bench.command(&bench.program).args(arguments).output().unwrap())
}

/// Returns the figures of a cell of a JSON report, under the names that an export uses.
fn figures(cell: &Value) -> BTreeMap<String, f64> {
    let (cpu, mut figures) = (&cell["cpu"], BTreeMap::new());
    let mut add = |name: String, value: &Value| figures.extend(value.as_f64().map(|value| (name, value)));
    add("rate".into(), &cell["rate"]);
    add("itr".into(), &cell["itr"]);
    add("p50".into(), &cell["latency_us"]["p50"]);
    add("p99".into(), &cell["latency_us"]["p99"]);
    for (name, key) in [("cpu", "total"), ("virtual", "virtual"), ("cp", "cp")] {
        add(format!("cpu_{}", if name == "cpu" { "total" } else { name }), &cpu[key]);
        for (part, component) in cpu["components"].as_object().unwrap() {
            let undivided = part == "router" && cpu["method"] == "subtract" && name != "cpu";
            if !undivided {
                add(format!("{part}_{name}"), &component[key]);
            }
        }
    }
    figures
}

#[test]
fn every_figure_is_exported_once_with_the_value_of_the_report() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    // Each cell has a single trial, so the report's figures are those of the trial.
    bench.measure("--path loopback,veth,veth-routed --workload rr-1-1,strg-20m --clients 1,2").ok();
    let mut methods = BTreeSet::new();
    for accounting in ["", "--accounting profile", "--accounting subtract", "--accounting tick"] {
        let cells = bench.run(&format!("show run --format json {accounting}")).ok().cells();
        let exported = records(&bench.run(&format!("export run {accounting}")).ok().out);
        let wanted: usize = cells.iter().map(|cell| figures(cell).len()).sum();
        assert_eq!(exported.len(), wanted, "{accounting}");
        for record in &exported {
            let is_cell = |cell: &&Value| {
                ["path", "workload", "level", "io"].iter().all(|key| cell[key] == record[*key].as_str())
                    && ["mtu", "clients"].iter().all(|key| cell[key].as_u64() == record[*key].parse().ok())
            };
            let cell = cells.iter().find(is_cell).unwrap();
            let (value, wanted) = (record["value"].parse::<f64>().unwrap(), figures(cell)[&record["metric"]]);
            assert!((value - wanted).abs() <= 1e-12 * wanted.abs(), "{record:?}: {wanted}");
            let unit = match record["metric"].as_str() {
                "rate" => cell["rate_unit"].as_str().unwrap(),
                "itr" => cell["itr_unit"].as_str().unwrap(),
                "p50" | "p99" => "us",
                _ => cell["cpu"]["unit"].as_str().unwrap(),
            };
            assert_eq!(record["unit"], unit);
            let is_cpu = unit.contains('/') && record["metric"] != "rate";
            assert_eq!(record["method"], if is_cpu { cell["cpu"]["method"].as_str().unwrap() } else { "" });
            assert_eq!([&record["run"], &record["round"]], ["run", "0"]);
            methods.insert(record["method"].clone());
        }
        let keys: BTreeSet<_> = exported
            .iter()
            .map(|record| ["path", "workload", "clients", "metric"].map(|column| record[column].clone()))
            .collect();
        assert_eq!(keys.len(), exported.len(), "a figure stands there twice");
    }
    assert!(methods.contains("subtract") && methods.contains("tick"), "{methods:?}");
}

#[test]
fn exported_trials_keep_their_time_round_flags_and_host() {
    let bench = Bench::new();
    if !small(&bench) {
        return;
    }
    copy(&bench, "run", "other", "trials.jsonl", |text| {
        each_trial(text, |number, trial| {
            if number == 1 {
                trial["flags"] = serde_json::json!(["2 connections were reset", "=x"]);
            }
        })
    });
    let exported = records(&bench.run("export run other").ok().out);
    let environment: Value =
        serde_json::from_str(&fs::read_to_string(bench.path("run/environment.json")).unwrap()).unwrap();
    let trials = bench.trials();
    assert_eq!(trials.len(), 6);
    for (number, trial) in trials.iter().enumerate() {
        for run in ["run", "other"] {
            let own = |record: &&Record| record["run"] == run && record["at"] == trial["at"].as_str().unwrap();
            let own: Vec<_> = exported.iter().filter(own).collect();
            let rates: Vec<_> = own.iter().filter(|record| record["metric"] == "rate").collect();
            assert_eq!(rates.len(), 1, "{own:?}");
            let flagged = run == "other" && number == 1;
            for record in own {
                assert_eq!(record["round"], trial["round"].to_string());
                assert_eq!(record["sound"], (!flagged).to_string());
                assert_eq!(record["flags"], if flagged { "2 connections were reset; =x" } else { "" });
                assert_eq!(record["kernel"], environment["kernel"]["release"].as_str().unwrap());
                assert_eq!(record["siga"], env!("CARGO_PKG_VERSION"));
                assert_eq!([&record["plan"], &record["smoke"]], ["default", "true"]);
            }
        }
    }
}

#[test]
fn an_otava_export_is_ordered_by_time_with_medians_and_a_configuration() {
    let bench = Bench::new();
    if !small(&bench) {
        return;
    }
    let year = |year: &'static str| {
        move |text: &str| {
            each_trial(text, |_, trial| trial["at"] = format!("{year}{}", &trial["at"].as_str().unwrap()[4..]).into())
        }
    };
    copy(&bench, "run", "late", "trials.jsonl", year("2031"));
    copy(&bench, "run", "early", "trials.jsonl", year("2021"));
    let whole = bench.run("export late run early --form otava --output history.csv").ok();
    assert!(whole.err.contains("3 of 3 runs are smoke runs") && !whole.err.contains("hole"), "{whole}");
    assert_eq!(whole.out, "");
    let rows = records(&fs::read_to_string(bench.path("history.csv")).unwrap());
    assert_eq!(rows.iter().map(|row| row["run"].as_str()).collect::<Vec<_>>(), ["early", "run", "late"]);
    assert!(rows[0]["time"].starts_with("2021-") && rows[2]["time"].starts_with("2031-"), "{rows:?}");
    for cell in bench.run("show run --format json").ok().cells() {
        let workload = cell["workload"].as_str().unwrap();
        let rate = rows[1][&format!("loopback.{workload}.{}.1.plain.rate", cell["mtu"])].parse::<f64>().unwrap();
        assert!((rate - cell["rate"].as_f64().unwrap()).abs() <= 1e-12 * rate, "the median trial's rate: {rate}");
    }

    // A run without a cell leaves gaps in the history, so its columns are left out of Otava's configuration.
    let no_stream = |text: &str| -> String {
        text.lines().filter(|line| !line.contains("strg-20m")).map(|line| format!("{line}\n")).collect()
    };
    copy(&bench, "late", "later", "trials.jsonl", no_stream);
    let holes = bench.run("export late early later --form otava").ok();
    assert!(holes.err.contains("columns, because they have no value"), "{holes}");
    let rows = records(&holes.out);
    let config = bench.run("export late early later --otava-config history.csv").ok().out;
    assert!(config.contains("file: \"history.csv\"") && config.contains("time_column: time"), "{config}");
    for column in rows[0].keys().filter(|column| column.starts_with("loopback.")) {
        let listed = config.contains(&format!("\"{column}\": {{column: \"{column}\", direction: "));
        assert_eq!(listed, rows.iter().all(|row| !row[column].is_empty()), "{column}: {config}");
        assert_eq!(listed, !column.contains("strg"), "{column}: {config}");
    }
}

#[test]
fn hostile_names_are_exported_as_one_field_and_never_as_a_formula() {
    let bench = Bench::new();
    if !small(&bench) {
        return;
    }
    let hostile = "=cmd(\"a\",b)\n-2";
    copy(&bench, "run", hostile, "trials.jsonl", |text| {
        each_trial(text, |_, trial| {
            trial["cell"]["level"] = "@SUM(A1),\"x\"\r\n".into();
            trial["cell"]["path"] = "+1\u{1b}[31m".into();
            trial["flags"] = serde_json::json!(["-a\n", "b,\"c\""]);
        })
    });
    let plan = bench.path(hostile).join("plan.toml");
    let text = fs::read_to_string(&plan).unwrap().replace("name = \"default\"", "name = \"-1;\\n\"");
    fs::write(&plan, text).unwrap();

    let ended = siga(&bench, &["export", hostile]).ok();
    assert!(ended.out.chars().all(|letter| letter == '\n' || !letter.is_control()), "{ended}");
    let exported = records(&ended.out);
    assert_eq!(ended.out.lines().count(), 1 + exported.len(), "a record is a line");
    for record in &exported {
        assert_eq!(record["run"], "'=cmd(\"a\",b)\u{fffd}-2");
        assert_eq!(record["plan"], "'-1;\u{fffd}");
        assert_eq!(record["level"], "'@SUM(A1),\"x\"\u{fffd}\u{fffd}");
        assert_eq!(record["path"], "'+1\u{fffd}[31m");
        assert_eq!(record["flags"], "'-a\u{fffd}; b,\"c\"");
    }

    copy(&bench, hostile, "sound", "trials.jsonl", |text| {
        each_trial(text, |_, trial| trial["flags"] = Value::Array(vec![]))
    });
    let history = records(&siga(&bench, &["export", "sound", "--form", "otava"]).ok().out);
    let plain = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    assert!(history[0].keys().all(plain), "{history:?}");
    let config = siga(&bench, &["export", "sound", "--otava-config", "a\"\n: b"]).ok().out;
    assert!(config.contains("file: \"a\\\"\\U0000000a: b\"\n"), "{config}");
}

#[test]
fn export_names_a_directory_that_is_damaged_or_not_a_run() {
    let bench = Bench::new();
    for (arguments, words) in [
        ("export", &["RUN"][..]),
        ("export absent", &["absent is not a run directory"]),
        ("export tmp", &["tmp is not a run directory"]),
        ("export absent --form table", &["unknown form `table`", "trials, otava"]),
        ("export absent --form otava --otava-config x.csv", &["cannot be used with"]),
        ("export absent --accounting guess", &["profile, subtract or tick"]),
        ("export absent other/absent", &["the same name `absent`", "other/absent"]),
    ] {
        bench.run(arguments).refused(2, words);
    }
    if !small(&bench) {
        return;
    }
    bench.run("export run ./run/").refused(2, &["the same name `run`"]);
    copy(&bench, "run", "line", "trials.jsonl", |text| text.replacen("\"cell\"", "\"\u{0}\"", 1));
    bench.run("export run line").refused(3, &["line/trials.jsonl line 1", "remove the line"]);
    copy(&bench, "run", "environment", "environment.json", |text| text[..text.len() / 2].to_owned());
    bench.run("export environment").refused(3, &["environment/environment.json is damaged", "do not use the run"]);
    fs::remove_file(bench.path("environment/environment.json")).unwrap();
    bench.run("export environment").refused(3, &["cannot read environment/environment.json", "do not use the run"]);
    copy(&bench, "run", "latency", "trials.jsonl", |text| {
        each_trial(text, |_, trial| trial["latency"] = "AAAA".into())
    });
    bench.run("export latency").refused(3, &["latency: loopback", "a latency histogram in the record is damaged"]);
    copy(&bench, "run", "time", "trials.jsonl", |text| each_trial(text, |_, trial| trial["at"] = "noon".into()));
    bench.run("export time").ok();
    bench.run("export time --form otava").refused(3, &["time: loopback", "`noon`"]);

    copy(&bench, "run", "cut", "trials.jsonl", |text| text[..text.len() - 10].to_owned());
    let cut = bench.run("export cut").ok();
    assert!(cut.err.contains("note: cut/trials.jsonl: the last line"), "{cut}");
    let rates = records(&cut.out).iter().filter(|record| record["metric"] == "rate").count();
    assert_eq!(rates, 5);
}

#[test]
fn export_names_runs_without_trials_and_writes_no_empty_file() {
    let bench = Bench::new();
    if !small(&bench) {
        return;
    }
    copy(&bench, "run", "empty", "trials.jsonl", |_| String::new());
    copy(&bench, "run", "unsound", "trials.jsonl", |text| {
        each_trial(text, |_, trial| trial["flags"] = serde_json::json!(["reset"]))
    });
    for form in ["", "--form otava", "--otava-config x.csv"] {
        let ended = bench.run(&format!("export empty {form} --output file"));
        assert!(ended.err.contains("note: empty contains no trial"), "{ended}");
        ended.refused(4, &["none of these runs"]);
        assert!(!bench.path("file").exists());
        let both = bench.run(&format!("export empty run {form}")).ok();
        assert!(both.err.contains("note: empty contains no trial"), "{both}");
        assert_eq!(both.out, bench.run(&format!("export run {form}")).ok().out);
    }
    bench.run("export unsound").ok();
    let ended = bench.run("export unsound --form otava");
    assert!(ended.err.contains("note: siga does not export run unsound, because all its trials have flaws"), "{ended}");
    ended.refused(4, &["none of these runs"]);
}

#[test]
fn an_export_replaces_only_a_file_of_siga_and_replaces_it_whole() {
    let bench = Bench::new();
    if !small(&bench) {
        return;
    }
    let text = |name: &str| fs::read_to_string(bench.path(name)).unwrap();
    let printed = bench.run("export run").ok().out;
    bench.run("export run --output trials.csv").ok();
    assert_eq!(text("trials.csv"), printed);
    copy(&bench, "run", "line", "trials.jsonl", |text| format!("{text}nonsense\n"));
    bench.run("export run line -o trials.csv").refused(3, &["line/trials.jsonl"]);
    assert_eq!(text("trials.csv"), printed, "what was there stays");
    std::os::unix::fs::symlink("trials.csv", bench.path("link.csv")).unwrap();
    bench.run("export run --form otava --output link.csv").ok();
    assert!(text("trials.csv").starts_with("time,"), "a link is followed");
    assert!(fs::symlink_metadata(bench.path("link.csv")).unwrap().is_symlink());
    for form in ["--form trials", "--form otava", "--otava-config trials.csv"] {
        for earlier in ["--form trials", "--form otava", "--otava-config trials.csv"] {
            bench.run(&format!("export run {earlier} -o again")).ok();
            bench.run(&format!("export run {form} -o again")).ok();
        }
    }
    fs::write(bench.path("again"), "").unwrap();
    bench.run("export run -o again").ok();
    fs::write(bench.path("thesis.csv"), "chapter,years\n").unwrap();
    bench.run("export run -o thesis.csv").refused(2, &["thesis.csv was not written by siga", "--output"]);
    assert_eq!(text("thesis.csv"), "chapter,years\n");

    bench.run("export run --output absent/trials.csv").refused(3, &["cannot write to absent/trials.csv", "--output"]);
    bench.run("export run --output tmp").refused(2, &["tmp is a directory"]);
    assert!(!names(&bench.path("")).iter().any(|name| name.ends_with(".part")), "half a file is left");
    if !Path::new("/dev/full").exists() {
        println!("skipped, because there is no /dev/full");
        return;
    }
    bench.run("export run --output /dev/full").refused(3, &["cannot write to /dev/full"]);
    assert!(!Path::new("/dev/full").is_file() && !Path::new("/dev/full.part").exists());
    for arguments in ["export run", "export run --form otava", "export run --otava-config x.csv"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = bench.siga(arguments).stdout(full).output().unwrap();
        Ended::new(arguments, output).refused(3, &["cannot write to standard output"]);
        // A reader that has closed the pipe is no error.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = bench.siga(arguments).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

#[test]
fn a_thousand_cells_are_exported() {
    const CELLS: usize = 500;
    let bench = Bench::new();
    if !small(&bench) {
        return;
    }
    // With `subtract`, every trial searches all others for its counterpart on the path without the router.
    let one = &bench.trials()[0];
    copy(&bench, "run", "many", "trials.jsonl", |_| {
        let mut text = String::new();
        for number in 0..CELLS {
            for path in ["veth", "veth-routed"] {
                let mut trial = one.clone();
                trial["cell"]["path"] = path.into();
                trial["cell"]["clients"] = (number + 1).into();
                text += &format!("{trial}\n");
            }
        }
        text
    });
    let exported = records(&bench.run("export many --accounting subtract").ok().out);
    let count = |metric: &str| exported.iter().filter(|record| record["metric"] == metric).count();
    assert_eq!((count("rate"), count("router_cpu")), (2 * CELLS, CELLS));
    let history = records(&bench.run("export many --accounting subtract --form otava").ok().out);
    assert_eq!((history.len(), history[0].len()), (1, 4 + exported.len()));
}
