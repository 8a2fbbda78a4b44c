//! Tests of processes that die: an end in the middle of a trial, the coordinator at any moment, or a run that the user
//! interrupts. No process or file is left behind, and no completed trial is lost.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;

use common::{Bench, Ended, Running, children, children_with_thread, paths_build, signal};
use rustix::process::Signal;
use std::time::Duration;

/// Calls `act` in the middle of a run's second trial and returns how the run ended. The threads of the agents' workload drivers
/// show when that trial runs.
fn strike(bench: &Bench, arguments: &str, act: impl Fn(&Running)) -> Ended {
    let is_measuring = |pid| {
        // Worker processes are children of their agent.
        let has = |name: &str| {
            let mut parents = [pid].into_iter().chain(children(pid));
            parents.any(|parent| !children_with_thread(parent, name).is_empty())
        };
        bench.lines("trials.jsonl").len() == 1 && has("client") && has("server")
    };
    bench.strike(arguments, ("agents of the trial", is_measuring, Duration::from_millis(150)), act)
}

#[test]
fn a_run_continues_after_the_death_of_an_agent_and_names_it() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    for victim in ["server", "client"] {
        let arguments = "--path loopback,unix,veth --workload rr-1-1 --clients 3 --seconds 0.4 --trials 1";
        let ended = strike(&bench, arguments, |run| {
            for pid in children_with_thread(run.pid(), victim) {
                signal(pid, Signal::KILL);
            }
        });
        assert!(ended.err.contains(&format!("{victim}: the process died (signal: 9 (SIGKILL))")), "{ended}");
        assert!(ended.out.contains(&format!("{victim}: the process died")), "the report says it too: {ended}");
        let ended = ended.refused(4, &["1 of 3 cells have no figure", "--resume run"]);
        assert_eq!(bench.trials().len(), 2, "{ended}");
        bench.run("run --resume run").ok();
        assert_eq!(bench.trials().len(), 3, "what is missing is measured");
        assert!(!bench.run("show run").ok().out.contains("the process died"));
        std::fs::remove_dir_all(bench.path("run")).unwrap();
    }
    bench.assert_nothing_left();
}

#[test]
fn a_missing_trial_is_reported_even_if_its_cell_has_others() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let arguments = "--path unix --workload rr-1-1 --clients 2 --processes --seconds 0.4 --trials 3";
    let ended = strike(&bench, arguments, |run| {
        // Kill one worker process of the server.
        let mut workers = children(run.pid()).into_iter().flat_map(|agent| children_with_thread(agent, "server"));
        if let Some(process) = workers.next() {
            signal(process, Signal::KILL);
        }
    });
    let ended = ended.refused(4, &["siga could not compute the figures of 1 trial", "--resume run"]);
    assert!(ended.err.contains("server: process ") && ended.err.contains("died"), "{ended}");
    assert!(ended.out.contains("Caution: unix rr-1-1 x2: no figure: "), "{ended}");
    let resumed = bench.run("run --resume run").ok();
    assert_eq!(bench.trials().len(), 3);
    assert!(!resumed.out.contains("no figure"), "{resumed}");
    bench.assert_nothing_left();
}

#[test]
fn a_run_continues_after_the_death_of_a_namespace_holder() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let arguments = "--path veth-routed,unix --workload rr-1-1,strp-20m --clients 3 --seconds 0.3 --trials 1";
    let ended = strike(&bench, arguments, |run| {
        let holders = children(run.pid()).into_iter().filter(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"namespace-holder\0"))
        });
        holders.for_each(|pid| signal(pid, Signal::KILL));
    });
    let ended = ended.refused(4, &["1 of 4 cells have no figure"]);
    assert!(ended.err.contains("the process died") || ended.err.contains("has stopped answering"), "{ended}");
    assert_eq!(bench.trials().len(), 3, "{ended}");
    bench.assert_nothing_left();
}

#[test]
fn a_stopped_agent_does_not_delay_an_interrupt() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let arguments = "--path loopback,unix --workload strp-20m --clients 2 --seconds 0.3 --trials 1";
    let ended = strike(&bench, arguments, |run| {
        for pid in children_with_thread(run.pid(), "client") {
            signal(pid, Signal::STOP);
        }
        // An interrupt must end the run before all time limits of the stopped agent have passed.
        std::thread::sleep(Duration::from_millis(500));
        run.signal(Signal::INT);
    });
    let ended = ended.refused(4, &["interrupted", "--resume run"]);
    assert_eq!(bench.trials().len(), 1, "{ended}");
    bench.assert_nothing_left();
}

#[test]
fn a_run_killed_at_any_moment_leaves_nothing_and_can_be_resumed() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let mut random = random();
    let mut measured: Vec<String> = Vec::new();
    for round in 0..15 {
        let begin = "run --out run --path veth-routed,unix,loopback --workload rr-1-1,crr-64-8k --clients 8 --seconds 0.05 \
            --warm-up 0.02 --trials 4";
        let arguments = if round == 0 { begin } else { "run --resume run" };
        let run = bench.start(arguments);
        // Starting, building paths, connecting and measuring each take tens of milliseconds, so a random moment can hit any of
        // them.
        std::thread::sleep(Duration::from_micros(random() % 1_000_000));
        run.signal(Signal::KILL);
        run.end();
        bench.assert_nothing_left();
        let lines = bench.lines("trials.jsonl");
        let whole = measured.len();
        assert_eq!(lines[..whole.min(lines.len())], measured[..whole.min(lines.len())], "kept from round {round}");
        assert!(lines.len() >= whole, "lost lines in round {round}");
        measured = lines;
        if !bench.path("run/plan.toml").exists() {
            // The run was killed before the run directory existed, so the next command starts the run.
            let mut first = bench.start(begin);
            first.until("run directory", || bench.path("run/plan.toml").exists());
            first.signal(Signal::KILL);
            first.end();
            bench.assert_nothing_left();
        }
    }
    let ended = bench.run("run --resume run").ok();
    assert!(ended.out.contains("24 trials in run"), "{ended}");
    let lines = bench.lines("trials.jsonl");
    assert_eq!(lines[..measured.len()], measured, "what was measured is not measured again");
    assert_eq!(lines.len(), 24);
}

#[test]
fn a_killed_run_leaves_no_worker_processes() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let mut random = random();
    for path in ["unix", "veth-routed", "loopback", "veth", "unix"] {
        let mut run = bench.start(&format!(
            "run --path {path} --workload rr-1-1,strg-20m --clients 8 --processes --seconds 0.3 --trials 9"
        ));
        // Two agents run, each with up to 8 worker processes.
        run.until("workers", || bench.processes().len() > 3);
        std::thread::sleep(Duration::from_micros(random() % 600_000));
        run.signal(Signal::KILL);
        run.end();
        bench.assert_nothing_left();
    }
}

#[test]
fn an_interrupted_run_keeps_whole_records_and_can_be_resumed() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    // The figures of a cell leave out disturbed rounds, but the report lists every trial.
    let of_report = |ended: &Ended| ended.json()["disturbance"]["trials"].as_array().unwrap().len();
    for what in [Signal::INT, Signal::TERM] {
        let arguments = "run --out run --path unix,loopback,veth --workload rr-1-1 --clients 2 --seconds 0.1 \
            --warm-up 0.02 --trials 4 --format json";
        let mut run = bench.start(arguments);
        run.until("two trials", || bench.lines("trials.jsonl").len() >= 2);
        run.signal(what);
        let ended =
            run.end().refused(4, &["the run was interrupted; siga keeps the finished trials", "siga run --resume run"]);
        let measured = bench.lines("trials.jsonl");
        assert!(measured.len() < 12, "interrupted at the very end");
        assert_eq!(of_report(&ended), measured.len(), "the report holds what was measured: {ended}");
        bench.assert_nothing_left();

        let resumed = bench.run("run --resume run --format json").ok();
        let lines = bench.lines("trials.jsonl");
        assert_eq!(lines[..measured.len()], measured, "no finished trial is repeated");
        assert_eq!(lines.len(), 12);
        assert_eq!(of_report(&resumed), 12, "{resumed}");
        std::fs::remove_dir_all(bench.path("run")).unwrap();
    }
}

#[test]
fn a_second_interrupt_ends_a_run_at_once_and_leaves_nothing() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let mut run = bench.start("run --path veth-routed --workload strg-20m --clients 4 --seconds 30 --trials 1");
    let pid = run.pid();
    run.until("agents", || !children_with_thread(pid, "client").is_empty());
    run.signal(Signal::INT);
    run.signal(Signal::INT);
    let ended = run.end();
    assert!(ended.status.is_none() || ended.status == Some(4), "{ended}");
    bench.assert_nothing_left();
}

#[test]
fn an_agent_without_a_coordinator_exits() {
    let bench = Bench::new();
    for arguments in ["agent", "namespace-holder"] {
        let ended = bench.run(arguments).ok();
        assert!(ended.err.is_empty(), "{ended}");
    }
    let ended = bench.run("agent --net /nonexistent").ok();
    assert!(ended.out.contains("\"error\"") && ended.out.contains("/nonexistent"), "{ended}");
    bench.run("agent --sockmap 999").ok();
    bench.assert_nothing_left();
}

/// Returns a random sequence. Its seed is printed, so that a failure can be repeated.
fn random() -> impl FnMut() -> u64 {
    let mut state = std::env::var("SIGA_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::from(now.subsec_nanos())
    });
    println!("SIGA_TEST_SEED={state}");
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}
