//! Tests of commands as workloads: what is measured and said, what a wrong command does, and what may not stay or be executed.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

mod common;

use common::{Bench, Ended, children, signal};
use rustix::process::Signal;
use std::fs;

/// Writes the plan `plan.toml` with one command `work`. `rest` has further lines of the command's table.
fn write_plan(bench: &Bench, top: &str, command: &str, rest: &str) {
    let text = format!(
        "name = \"work\"\nworkloads = [\"work\"]\nseconds = 0.05\nwarm_up_seconds = 0.0\n{top}\n[workload.work]\ncommand = {command}\n{rest}\n"
    );
    fs::write(bench.path("plan.toml"), text).unwrap();
}

fn run(bench: &Bench) -> Ended {
    let _absent = fs::remove_dir_all(bench.path("run"));
    bench.run("run plan.toml --out run")
}

#[test]
fn a_command_has_time_cpu_time_and_processes() {
    let bench = Bench::new();
    let busy = "['sh', '-c', 'sleep 0.05; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; head -c 30000000 /dev/zero | md5sum']";
    write_plan(&bench, "trials = 2", busy, "");
    let ended = run(&bench).ok();
    assert!(ended.out.contains("work takes") && ended.out.contains("in user mode"), "{ended}");
    assert!(ended.out.contains("CPU ms of a run by process"), "{ended}");
    for trial in bench.trials() {
        let whole = |value: &serde_json::Value| value.as_u64().unwrap();
        let (elapsed, cpu) = (whole(&trial["elapsed_ns"]), &trial["cpu"]["client"]);
        let (run, user) = (whole(&cpu["run_ns"]), whole(&cpu["user_ns"]));
        assert!(elapsed > 50_000_000 && run > 10_000_000 && user <= run, "{trial}");
        let processes = trial["command"]["processes"].as_object().unwrap();
        let parts: u64 = processes.values().map(|used| whole(&used["cpu"]["run_ns"])).sum();
        assert!(parts == run && processes.contains_key("sh: its children"), "{trial}");
        let shell = whole(&processes["sh"]["cpu"]["run_ns"]);
        assert!(shell > run / 10, "the loop is the shell's own: {trial}");
        assert!(whole(&trial["command"]["usage"]["faults_minor"]) > 0 && trial["flags"].as_array().unwrap().is_empty());
    }
    let shown = bench.run("show run --format json").ok();
    assert_eq!(shown.cells()[0]["workload"], "work", "{shown}");
    assert!(bench.run("export run").ok().out.contains("runs/sec"));
    bench.run("report run -o report.html").ok();
}

#[test]
fn the_slower_environment_is_named_in_the_first_sentence() {
    let bench = Bench::new();
    let levels = "trials = 7\nlevels = [\"env:PAUSE=0.02\", \"env:PAUSE=0.1\"]";
    write_plan(&bench, levels, "['sleep $PAUSE']", "shell = true");
    run(&bench).ok();
    bench.undisturb("run", 7);
    let shown = bench.run("show run").ok();
    let first = shown.out.lines().next().unwrap();
    assert!(first.starts_with("PAUSE=0.1 takes ") && first.contains("times as long as PAUSE=0.02 (95%: "), "{shown}");
    let compared = bench.run("compare PAUSE=0.02 PAUSE=0.1 --run run").ok();
    assert!(compared.out.contains("work (rate in runs/sec") && compared.out.contains("worse"), "{compared}");
}

#[test]
fn a_wrong_command_says_why_and_the_run_goes_on() {
    let bench = Bench::new();
    for (command, rest, words) in [
        ("['nosuch-program']", "", "cannot start nosuch-program"),
        ("['./plan.toml']", "", "must be executable"),
        ("['sh', '-c', 'echo because >&2; exit 3']", "", "ended with exit status 3, not 0: because"),
        ("['sh', '-c', 'kill -9 $$']", "", "was killed by signal 9"),
        ("['sleep', '60']", "time_limit_seconds = 0.1", "longer than its limit of 0.1 s"),
        ("['true']", "directory = 'absent'", "there is no directory absent"),
        ("['true']", "input = 'absent'", "cannot read the input absent"),
    ] {
        let top = "trials = 1\ninclude = []";
        write_plan(&bench, top, command, rest);
        let text = fs::read_to_string(bench.path("plan.toml")).unwrap();
        let text = text.replace("[\"work\"]", "[\"work\", \"sound\"]");
        fs::write(bench.path("plan.toml"), text + "[workload.sound]\ncommand = ['true']\n").unwrap();
        let ended = run(&bench).status(4);
        assert!(
            ended.out.contains(&format!("Skipped: work: work: {words}")) || ended.out.contains(words),
            "{words}: {ended}"
        );
        assert_eq!(bench.trials().len(), 1, "{words}: the sound command is measured: {ended}");
        bench.assert_nothing_left();
    }
    write_plan(&bench, "trials = 1", "['sh', '-c', 'exit 3']", "exit_status = 3");
    run(&bench).ok();
}

#[test]
fn a_daemon_that_a_command_leaves_is_ended_and_flagged() {
    let bench = Bench::new();
    write_plan(&bench, "trials = 1", "['sh', '-c', 'setsid sleep 60 & sleep 0.2']", "");
    let ended = run(&bench).ok();
    assert!(ended.out.contains("the command left processes behind, and siga ended them"), "{ended}");
    assert!(bench.trials()[0]["flags"][0].as_str().unwrap().ends_with("sleep"), "{ended}");
    bench.assert_nothing_left();
}

#[test]
fn a_command_has_its_directory_input_environment_and_number_of_clients() {
    let bench = Bench::new();
    fs::create_dir(bench.path("place")).unwrap();
    fs::write(bench.path("words"), "input").unwrap();
    let test = "['test \"$(cat)\" = input && test \"$(basename \"$PWD\")\" = place && test $A$B = own4 && test {clients} = 4']";
    let rest = "shell = true\ndirectory = 'place'\ninput = 'words'\nenvironment = { A = 'own', B = '{clients}' }";
    write_plan(&bench, "trials = 1\nclients = [4]", test, rest);
    let ended = run(&bench).ok();
    assert_eq!(bench.trials()[0]["cell"]["clients"], 4, "{ended}");
    write_plan(&bench, "trials = 1\nclients = [4]\nlevels = ['env:A=other']", test, rest);
    run(&bench).status(4);
}

#[test]
fn nothing_of_a_command_stays_after_the_coordinator_was_killed() {
    let bench = Bench::new();
    write_plan(&bench, "trials = 1", "['sh', '-c', 'setsid sleep 61 & sleep 62; true']", "");
    for what in [Signal::KILL, Signal::INT, Signal::TERM] {
        let mut running = bench.start("run plan.toml --out run");
        let pid = running.pid();
        let commands = || children(pid).into_iter().flat_map(children).flat_map(children).count();
        running.until("the command", || commands() > 1);
        signal(pid, what);
        running.end();
        bench.assert_nothing_left();
        fs::remove_dir_all(bench.path("run")).unwrap();
    }
}

#[test]
fn a_run_directory_executes_no_command() {
    let bench = Bench::new();
    write_plan(&bench, "trials = 2", "['touch', 'made']", "");
    run(&bench).ok();
    let recorded = bench.path("run/plan.toml");
    fs::write(bench.path("run/trials.jsonl"), "").unwrap();
    fs::remove_file(bench.path("made")).unwrap();
    let hint = ["executes commands: touch made", "repeat the command line"];
    bench.run("run --resume run").refused(2, &hint);
    let text = fs::read_to_string(&recorded).unwrap();
    fs::write(&recorded, text.replace("\"made\"", "\"other\"")).unwrap();
    bench.run("run plan.toml --resume run").refused(2, &["is not that of the run", "workload differs"]);
    for arguments in ["show run", "report run -o r.html", "export run", "compare run run"] {
        bench.run(arguments);
    }
    assert!(!bench.path("made").exists() && !bench.path("other").exists());
    fs::write(&recorded, text).unwrap();
    bench.run("run plan.toml --resume run").ok();
    assert!(bench.path("made").exists() && bench.trials().len() == 2);
}

#[test]
fn the_commands_of_a_plan_are_listed_before_they_run() {
    let bench = Bench::new();
    write_plan(&bench, "levels = ['env:A=1']", "['touch', 'a b']", "");
    let listed = bench.run("plan plan.toml").ok();
    assert!(listed.out.contains("  touch 'a b'\n") && !bench.path("a b").exists(), "{listed}");
}
