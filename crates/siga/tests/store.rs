//! Tests of the run directory: only complete lines, one writer, and runs that resume after an interruption anywhere.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;

use common::{Bench, Ended, names, paths_build, root};
use rustix::fs::{FlockOperation, flock};
use std::fs;
use std::path::Path;

/// The options for two cells; `six` measures three trials of each.
const SIX: &str = "--path unix,loopback --workload rr-1-1 --clients 1";

fn six(bench: &Bench) -> Ended {
    bench.run(&format!("run --out run {SIX} --seconds 0.02 --warm-up 0 --trials 3"))
}

fn append(file: &Path, text: &str) {
    let whole = fs::read_to_string(file).unwrap();
    fs::write(file, whole + text).unwrap();
}

#[test]
fn a_cut_off_record_is_reported_and_removed_and_no_trial_is_repeated() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    six(&bench).ok();
    let whole = bench.lines("trials.jsonl");
    assert_eq!(whole.len(), 6);
    let file = bench.path("run/trials.jsonl");
    let cut = format!("{}\n{}", whole[..4].join("\n"), &whole[4][..100]);
    fs::write(&file, &cut).unwrap();

    let shown = bench.run("show run").ok();
    assert!(shown.out.contains("Damaged: run/trials.jsonl: the last line is incomplete (100 bytes)"), "{shown}");
    assert!(shown.out.contains("4 trials in run"), "{shown}");
    assert_eq!(bench.run("show run --format json").ok().json()["damage"].as_array().unwrap().len(), 1);
    assert_eq!(fs::read_to_string(&file).unwrap(), cut, "showing changes nothing");

    let resumed = bench.run("run --resume run").ok();
    assert!(
        resumed.err.contains("note: mended run/trials.jsonl: the last line is incomplete (100 bytes)"),
        "{resumed}"
    );
    assert!(!resumed.out.contains("Damaged"), "{resumed}");
    let mended = bench.lines("trials.jsonl");
    assert_eq!(mended[..4], whole[..4], "what was measured stays as it is");
    assert_eq!(mended.len(), 6);
    assert_all_trials_once(&bench, 6);
    assert!(!bench.run("show run").ok().out.contains("Damaged"));
}

#[test]
fn a_run_with_any_file_cut_anywhere_can_be_resumed() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    six(&bench).ok();
    let whole = bench.lines("trials.jsonl");
    let trials = fs::read(bench.path("run/trials.jsonl")).unwrap();
    let paths = fs::read(bench.path("run/paths.jsonl")).unwrap();
    for length in [0, 1, whole[0].len(), whole[0].len() + 1, whole[0].len() + 2, trials.len() - 1] {
        fs::write(bench.path("run/trials.jsonl"), &trials[..length]).unwrap();
        fs::write(bench.path("run/paths.jsonl"), &paths[..paths.len() - length.min(paths.len())]).unwrap();
        let kept = trials[..length].iter().filter(|&&byte| byte == b'\n').count();
        let shown = bench.run("show run").ok();
        assert!(shown.out.contains(&format!("{kept} trials in run")), "{shown}");
        bench.run("run --resume run").ok();
        assert_eq!(bench.lines("trials.jsonl")[..kept], whole[..kept]);
        assert_all_trials_once(&bench, 6);
    }
}

#[test]
fn a_damaged_record_is_named_and_not_overwritten() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    six(&bench).ok();
    let file = bench.path("run/trials.jsonl");
    let mut lines = bench.lines("trials.jsonl");
    lines[2].replace_range(10..20, "\u{0}garbage\u{0}\u{0}");
    fs::write(&file, lines.join("\n") + "\n").unwrap();
    let before = fs::read(&file).unwrap();
    for arguments in ["show run", "run --resume run"] {
        bench.run(arguments).refused(3, &["run/trials.jsonl line 3", "remove the line"]);
        assert_eq!(fs::read(&file).unwrap(), before, "{arguments} leaves the file alone");
    }
    // Remove the line, as the message advises.
    lines.remove(2);
    fs::write(&file, lines.join("\n") + "\n").unwrap();
    bench.run("run --resume run").ok();
    assert_all_trials_once(&bench, 6);

    let mut lines = bench.lines("trials.jsonl");
    for line in &mut lines {
        let at = line.find("\"latency\":\"").unwrap() + 11;
        line.replace_range(at..at + 8, "AAAAAAAA");
    }
    fs::write(&file, lines.join("\n") + "\n").unwrap();
    let ended = bench.run("show run").status(3);
    assert!(ended.err.contains("siga: run: ") && ended.err.contains("trial of 20"), "{ended}");
}

#[test]
fn a_directory_without_a_valid_plan_is_no_run() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    six(&bench).ok();
    six(&bench).refused(2, &["run already contains a run", "--resume DIR"]);
    let trials = bench.lines("trials.jsonl");

    let plan = fs::read_to_string(bench.path("run/plan.toml")).unwrap();
    fs::remove_file(bench.path("run/plan.toml")).unwrap();
    for arguments in ["show run", "run --resume run"] {
        bench.run(arguments).refused(2, &["run is not a run directory", "plan.toml"]);
    }
    six(&bench).refused(2, &["run contains trials.jsonl of a run, but no plan.toml", "another directory with --out"]);
    assert_eq!(bench.lines("trials.jsonl"), trials, "records without a plan are not mixed with others");

    fs::write(bench.path("run/plan.toml"), format!("{plan}workload = 1\n")).unwrap();
    bench.run("show run").refused(2, &["run/plan.toml", "workload"]);
    fs::write(bench.path("run/plan.toml"), &plan).unwrap();
    fs::write(bench.path("run/environment.json"), "{").unwrap();
    let ended = bench.run("show run").status(3);
    assert!(ended.err.contains("run/environment.json is damaged"), "{ended}");
    for name in ["environment.json", "levels.json"] {
        let file = bench.path("run").join(name);
        fs::write(bench.path("run/environment.json"), "{}").unwrap();
        fs::remove_file(file).unwrap();
        bench.run("show run").refused(3, &[&format!("cannot read run/{name}"), "restore it"]);
    }
}

#[test]
fn only_one_process_at_a_time_writes_a_run() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let mut first = bench.start(&format!("run --out run {SIX} --seconds 0.16 --trials 5"));
    first.until("first trial", || bench.lines("trials.jsonl").len() > 1);
    bench.run("run --resume run").refused(3, &["another process is writing to run", "wait until that process ends"]);
    six(&bench).refused(2, &["run already contains a run"]);
    let shown = bench.run("show run").ok();
    assert!(shown.out.contains("trials in run"), "a running run can be shown: {shown}");
    first.end().ok();
    assert_all_trials_once(&bench, 10);

    // Another process holds a lock on a directory that is not a run yet.
    fs::create_dir(bench.path("other")).unwrap();
    let file = fs::File::create(bench.path("other/trials.jsonl")).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    bench.run("run --out other --quick").refused(3, &["another process is writing to other"]);
    assert_eq!(names(&bench.path("other")), ["trials.jsonl"]);
}

#[test]
fn two_runs_started_at_once_do_not_share_a_directory() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let arguments = format!("run --out run {SIX} --seconds 0.02 --warm-up 0 --trials 3");
    let both = [bench.start(&arguments), bench.start(&arguments)].map(common::Running::end);
    let statuses = both.each_ref().map(|ended| ended.status.unwrap());
    assert!(statuses.contains(&0) && statuses.iter().any(|status| [2, 3].contains(status)), "{both:?}");
    assert_all_trials_once(&bench, 6);
}

#[test]
fn runs_begun_at_once_without_out_get_a_directory_each() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let arguments = "run --path loopback --workload rr-1-1 --clients 1 --seconds 0.02 --warm-up 0 --trials 1";
    let all: Vec<_> = (0..4).map(|_| bench.start(arguments)).collect();
    for ended in all.into_iter().map(common::Running::end) {
        assert!(!ended.err.contains("already"), "{ended}");
    }
    let runs = names(&bench.path("runs"));
    assert_eq!(runs.len(), 4, "{runs:?}");
    assert!(runs.iter().all(|run| bench.path("runs").join(run).join("plan.toml").exists()), "{runs:?}");
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let Some(bench) = Bench::unprivileged() else { return };
    if !paths_build(&bench) {
        return;
    }
    six(&bench).ok();
    let before = bench.lines("trials.jsonl");
    fs::create_dir(bench.path("fixed")).unwrap();
    fs::write(bench.path("file"), "").unwrap();
    for (out, words) in [
        ("fixed/run", &["cannot make fixed/run: Permission denied", "--out"][..]),
        ("fixed", &["cannot write to fixed: this file or directory belongs to user 0, not to user 65534", "--out"]),
        ("file", &["cannot make file", "--out"]),
        ("file/run", &["cannot make file/run", "--out"]),
        ("/proc/run", &["cannot make /proc/run", "--out"]),
    ] {
        bench.run(&format!("run --out {out} {SIX} --quick")).refused(3, words);
    }
    for file in names(&bench.path("run")) {
        std::os::unix::fs::chown(bench.path("run").join(file), Some(0), Some(0)).unwrap();
    }
    bench.run("run --resume run").refused(3, &["run/", "this file or directory belongs to user 0, not to user 65534"]);
    assert_eq!(bench.lines("trials.jsonl"), before);
    bench.run("show run").ok();
}

#[test]
fn a_full_disk_ends_the_run_and_keeps_the_measured_trials() {
    let bench = Bench::new();
    if !root("mount a small file system") || !paths_build(&bench) {
        return;
    }
    // The script runs in a mount namespace that ends with it. Each file uses complete pages of the tmpfs.
    fs::create_dir(bench.path("disk")).unwrap();
    let script = "set -e; mount -t tmpfs -o size=40k none disk; s=0; \
        \"$0\" run --out disk/run \"$@\" --trials 100 || s=$?; \
        \"$0\" show disk/run --format json >shown; cp -r disk/run run; exit $s";
    let mut command = bench.command("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(&bench.program);
    command.args(SIX.split(' ')).args(["--seconds", "0.01", "--warm-up", "0"]);
    let ended = Ended::new("run on a full disk", command.output().unwrap());
    let ended = ended.refused(3, &["cannot write disk/run/", "No space left", "--resume DIR"]);
    assert!(ended.out.contains("trials in disk/run"), "the report of what there is comes first: {ended}");
    let shown: serde_json::Value = serde_json::from_slice(&fs::read(bench.path("shown")).unwrap()).unwrap();
    assert_eq!(shown["damage"].as_array().unwrap().len(), 0, "the line that did not fit is taken back");
    assert!(bench.trials().len() > 1, "{}", bench.trials().len());
    bench.assert_nothing_left();
}

#[test]
fn a_disk_that_is_full_from_the_start_is_named_in_the_error() {
    let bench = Bench::new();
    if !root("mount a small file system") || !paths_build(&bench) {
        return;
    }
    fs::create_dir(bench.path("disk")).unwrap();
    let script = "mount -t tmpfs -o size=4k none disk && exec \"$0\" run --out disk/run --quick";
    let mut command = bench.command("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(&bench.program);
    let ended = Ended::new("run on a full disk", command.output().unwrap());
    ended.refused(3, &["cannot write disk/run/environment.json", "No space left", "--out"]);
}

#[test]
fn a_run_ended_by_a_limit_of_file_size_can_be_resumed_without_the_limit() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    // The limit is in units of 512 bytes. Trials have 2.5 to 7 KB each, and the record of paths has about 2 KB.
    let mut command = bench.command("sh");
    command.args(["-c", "ulimit -f 40; exec \"$0\" \"$@\""]).arg(&bench.program).args(["run", "--out", "run"]);
    command.args(SIX.split(' ')).args(["--seconds", "0.02", "--warm-up", "0", "--trials", "5"]);
    let ended = Ended::new("run below ulimit -f", command.output().unwrap());
    ended.refused(3, &["cannot write run/trials.jsonl: File too large", "--resume DIR"]);
    let measured = bench.lines("trials.jsonl");
    assert!(measured.len() > 1 && measured.len() < 10, "{}", measured.len());
    assert!(!bench.run("show run").ok().out.contains("Damaged"));
    bench.run("run --resume run").ok();
    assert_eq!(bench.lines("trials.jsonl")[..measured.len()], measured);
    assert_all_trials_once(&bench, 10);
}

#[test]
fn a_resumed_run_refuses_a_changed_level() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    fs::write(bench.path("own.toml"), "name = \"own\"\ncongestion = \"reno\"\n").unwrap();
    let arguments =
        "run --out run --path loopback --workload rr-1-1 --clients 1 --level own.toml --seconds 0.02 --trials 2";
    bench.run(arguments).ok();
    let kept = bench.lines("trials.jsonl")[0].clone();
    fs::write(bench.path("run/trials.jsonl"), kept + "\n").unwrap();
    bench
        .run("run --resume run --trials 3")
        .refused(2, &["--resume uses the recorded plan of the run", "start a new run"]);
    fs::write(bench.path("own.toml"), "name = \"own\"\ncongestion = \"cubic\"\n").unwrap();
    bench.run("run --resume run").refused(2, &["level own", "has changed"]);
    assert_eq!(bench.trials().len(), 1);
    fs::remove_file(bench.path("own.toml")).unwrap();
    bench.run("show run").ok();
}

#[test]
fn show_keeps_the_order_of_cells_and_opens_no_level_file() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    fs::write(bench.path("zz.toml"), "name = \"zz\"\ncongestion = \"reno\"\n").unwrap();
    fs::write(bench.path("aa.toml"), "name = \"mm\"\ncongestion = \"cubic\"\n").unwrap();
    let arguments = "run --out run --path unix,loopback --workload rr-1-1 --clients 1 --level zz.toml,aa.toml,plain \
                     --seconds 0.02 --warm-up 0 --trials 6";
    bench.run(arguments).ok();
    let planned = |shown: &Ended| -> Vec<String> {
        let json = shown.json();
        let cells = json["cells"].as_array().unwrap();
        cells
            .iter()
            .filter(|cell| cell["skipped"].is_null())
            .map(|cell| format!("{} {}", cell["path"], cell["level"]))
            .collect()
    };
    let there = planned(&bench.run("show run --format json").ok());
    // The files that the plan names may be gone or changed. Here, one is a pipe without a writer.
    fs::remove_file(bench.path("aa.toml")).unwrap();
    fs::remove_file(bench.path("zz.toml")).unwrap();
    let mut lines = bench.lines("trials.jsonl");
    lines.reverse();
    fs::write(bench.path("run/trials.jsonl"), lines.join("\n") + "\n").unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, bench.path("zz.toml"), rustix::fs::Mode::RWXU).unwrap();
    let mut command = bench.command("timeout");
    command.arg("20").arg(&bench.program).args(["show", "run", "--format", "json"]);
    let shown = Ended::new("show run", command.output().unwrap()).ok();
    assert_eq!(planned(&shown), there);
    assert!(
        there.len() >= 3
            && there.iter().position(|cell| cell.contains("zz")) < there.iter().position(|cell| cell.contains("mm")),
        "{there:?}"
    );
}

#[test]
fn a_duplicate_trial_record_counts_once() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    six(&bench).ok();
    let whole = bench.run("show run --format csv").ok().out;
    let lines = bench.lines("trials.jsonl");
    let again = lines[1].replace("\"at\":\"2", "\"at\":\"1");
    append(&bench.path("run/trials.jsonl"), &format!("{again}\n{}\n", lines[4]));
    let shown = bench.run("show run").ok();
    let told =
        "run/trials.jsonl: 2 trials have the same cell and round as an earlier trial; siga uses only the earlier one";
    assert!(shown.out.contains(&format!("Damaged: {told}")) && shown.out.contains("6 trials in run"), "{shown}");
    assert_eq!(bench.run("show run --format csv").ok().out, whole);
    let resumed = bench.run("run --resume run").ok();
    assert!(resumed.err.contains(&format!("note: {told}")), "{resumed}");
}

#[test]
fn a_run_cannot_be_resumed_on_another_host() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    six(&bench).ok();
    let kept = bench.lines("trials.jsonl")[..4].join("\n") + "\n";
    fs::write(bench.path("run/trials.jsonl"), &kept).unwrap();
    let file = bench.path("run/environment.json");
    let begun = fs::read_to_string(&file).unwrap();
    let mut other: serde_json::Value = serde_json::from_str(&begun).unwrap();
    other["moment"]["load"] = 77.5.into();
    other["kernel"]["release"] = "1.2.3".into();
    fs::write(&file, other.to_string()).unwrap();
    bench.run("run --resume run").refused(3, &["kernel.release: 1.2.3 -> ", "start a new run"]);
    assert_eq!(fs::read_to_string(bench.path("run/trials.jsonl")).unwrap(), kept);
    // The host's load changes all the time, so a different load is no obstacle.
    other["kernel"]["release"] =
        serde_json::from_str::<serde_json::Value>(&begun).unwrap()["kernel"]["release"].clone();
    fs::write(&file, other.to_string()).unwrap();
    bench.run("run --resume run").ok();
    assert_all_trials_once(&bench, 6);
}

#[test]
fn show_says_that_an_empty_run_measured_nothing() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    six(&bench).ok();
    for file in ["trials.jsonl", "paths.jsonl", "skipped.jsonl"] {
        fs::remove_file(bench.path("run").join(file)).unwrap();
    }
    for format in ["text", "json", "csv", "md"] {
        bench.run(&format!("show run --format {format}")).ok();
    }
    let zvm = bench.run("show run --layout zvm").ok();
    assert!(bench.run("show run").ok().out.contains("Nothing was measured"), "{zvm}");
    append(&bench.path("run/plan.toml"), "# a comment\n");
    bench.run("run --resume run").ok();
    assert_all_trials_once(&bench, 6);
}

/// Asserts that each round of each cell is recorded exactly once.
fn assert_all_trials_once(bench: &Bench, count: usize) {
    let mut keys: Vec<String> =
        bench.trials().iter().map(|trial| format!("{} {}", trial["cell"], trial["round"])).collect();
    keys.sort();
    let all = keys.len();
    keys.dedup();
    assert_eq!((keys.len(), all), (count, count), "{keys:?}");
}
