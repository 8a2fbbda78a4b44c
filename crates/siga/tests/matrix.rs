//! Tests that every path works with every workload and every kind of workload driver, and that both ends have the same counts.
//! The JSON report must have the form on which programs rely.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;

use common::{Bench, Ended, paths_build};
use rustix::thread::{CapabilitySet, capabilities};
use serde_json::Value;
use std::time::{Duration, Instant};

const KINDS: &str = "rr-1-1,crr-64-8k,strg-20m,strp-20m,strb-20m,rr-1-1+2strg";

/// Returns the paths that can be built here. A sockmap needs privilege.
fn paths(list: &str) -> String {
    let held = capabilities(None).unwrap().effective;
    if held.contains(CapabilitySet::SYS_ADMIN) {
        return list.into();
    }
    println!("sockmap skipped, because it takes root");
    list.split(',').filter(|path| *path != "sockmap").collect::<Vec<_>>().join(",")
}

/// Measures one short trial of each cell, and checks the records and the report.
#[track_caller]
fn measure(bench: &Bench, arguments: &str, cells: usize) -> (Vec<Value>, Vec<Value>) {
    let begun = Instant::now();
    let (ended, trials) = loop {
        let ended = bench.measure(&format!("{arguments} --format json")).ok();
        let trials = bench.trials();
        assert_eq!(trials.len(), cells, "{ended}");
        // On a busy host, an answer occasionally arrives after the time limit for a datagram.
        if trials.iter().filter(|trial| is_lossy(trial)).count() <= 1 + cells / 10 {
            break (ended, trials);
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{ended}");
        std::fs::remove_dir_all(bench.path("run")).unwrap();
    };
    trials.iter().filter(|trial| !is_lossy(trial)).for_each(check_trial);
    let reported = ended.cells();
    let measured: Vec<Value> = reported.into_iter().filter(|cell| cell["skipped"].is_null()).collect();
    assert_eq!(measured.len(), cells, "{ended}");
    measured.iter().filter(|cell| cell["errors"] == 0).for_each(|cell| check_cell(cell, &ended));
    std::fs::remove_dir_all(bench.path("run")).unwrap();
    (trials, measured)
}

/// Measures trials with more than a hundred transactions each. Repeats a measurement in which a busy host left the ends too
/// little CPU time for that.
#[track_caller]
fn measure_many(bench: &Bench, arguments: &str, cells: usize) -> Vec<Value> {
    let begun = Instant::now();
    loop {
        let (trials, _) = measure(bench, arguments, cells);
        if trials.iter().all(|trial| trial["client"]["transactions"].as_u64().unwrap() > 100) {
            return trials;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{trials:?}");
    }
}

/// Whether answers came late, in this trial or in the unmeasured time before it.
fn is_lossy(trial: &Value) -> bool {
    ["lost", "late"].iter().any(|what| trial["client"][what] != 0)
}

/// Asserts that both ends have the same counts and that no error occurred.
#[track_caller]
fn check_trial(trial: &Value) {
    let count = |end: &str, what: &str| trial[end][what].as_u64().unwrap();
    for wrong in ["connect_failures", "resets", "short_reads", "wrong_content", "lost", "late"] {
        assert_eq!((count("client", wrong), count("server", wrong)), (0, 0), "{wrong}: {trial}");
    }
    let workload = trial["cell"]["workload"].as_str().unwrap();
    if workload.starts_with("udp-strg") {
        // The network may lose datagrams of a stream.
        assert!((1..=count("server", "sent")).contains(&count("client", "received")), "{trial}");
        assert!(count("client", "transactions") <= count("server", "transactions"), "{trial}");
        assert_eq!((count("client", "foreign"), count("server", "foreign")), (0, 0), "{trial}");
        return;
    }
    assert_eq!(count("client", "sent"), count("server", "received"), "{trial}");
    assert_eq!(count("client", "received"), count("server", "sent"), "{trial}");
    if workload.starts_with("strb") {
        assert!(count("client", "sent") > 0 && count("server", "sent") > 0, "both directions: {trial}");
    }
    if workload.contains('+') {
        let streams = count("client", "received") - count("client", "transactions");
        assert!(trial["beside"]["bytes"] == streams && streams > 0, "what is not RR's is of the streams: {trial}");
    }
    if !workload.starts_with("str") {
        assert_eq!(count("client", "transactions"), count("server", "transactions"), "{trial}");
    }
    if workload.starts_with("crr") {
        assert_eq!(count("client", "connections"), count("client", "transactions"), "{trial}");
        assert_eq!(count("server", "connections"), count("server", "transactions"), "{trial}");
    }
    // A busy host may delay planned starts and exchanges, and reduce a rate. No other flag is allowed.
    let excused = |flag: &str| {
        flag.starts_with("the rate collapsed")
            || flag.starts_with("the path stalled")
            || flag.ends_with("transactions were not started")
    };
    let flags = trial["flags"].as_array().unwrap();
    assert!(flags.iter().all(|flag| excused(flag.as_str().unwrap())), "{trial}");
}

/// Asserts that every field on which programs rely exists and has a possible value.
#[track_caller]
fn check_cell(cell: &Value, ended: &Ended) {
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("no number in {cell}\n{}", ended.err));
    assert!(cell["path"].is_string() && cell["workload"].is_string() && cell["level"].is_string(), "{cell}");
    assert_eq!(cell["trials"], 1);
    assert!(number(&cell["clients"]) >= 1.0 && number(&cell["rate"]) > 0.0, "{cell}");
    let workload = cell["workload"].as_str().unwrap();
    let stream = workload.starts_with("str") || workload.starts_with("udp-strg");
    assert_eq!(cell["rate_unit"], if stream { "MB/sec" } else { "trans/sec" });
    assert_eq!(cell["cpu"]["unit"], if stream || workload.contains('+') { "ms/MB" } else { "us/trans" });
    assert_eq!(cell["datagrams"].is_object(), workload.starts_with("udp-strg"), "{cell}");
    assert_eq!(cell["streams"].is_object(), workload.starts_with("strb") || workload.contains('+'), "{cell}");
    assert_eq!(cell["errors"], 0, "{cell}");
    assert!(cell["mtu"].is_u64() != (cell["path"] == "unix"), "{cell}");
    for percentile in ["p50", "p90", "p99", "p999", "max"] {
        let value = &cell["latency_us"][percentile];
        assert!(value.is_null() || number(value) > 0.0, "{percentile}: {cell}");
    }
    if let Some(median) = cell["latency_us"]["p50"].as_f64() {
        assert!(median <= number(&cell["latency_us"]["max"]), "{cell}");
    }
    let cpu = &cell["cpu"];
    assert!(["profile", "subtract", "tick"].contains(&cpu["method"].as_str().unwrap()), "{cell}");
    let adds_up = |part: &Value| {
        let (total, parts) = (number(&part["total"]), number(&part["virtual"]) + number(&part["cp"]));
        (total - parts).abs() <= 1e-9 * total.abs().max(1.0)
    };
    // Steal time has a resolution of 10 ms, which can be more than all CPU time of a short trial. Therefore the uncertainty
    // counts as well.
    assert!(adds_up(cpu) && number(&cpu["total"]) + number(&cpu["uncertainty"]) > 0.0, "{cell}");
    let mut sum = number(&cpu["residue"]);
    for component in ["client", "router", "server", "other"] {
        let component = &cpu["components"][component];
        if !component.is_null() {
            assert!(adds_up(component), "{cell}");
            sum += number(&component["total"]);
        }
    }
    assert!((sum - number(&cpu["total"])).abs() <= 1e-6 * number(&cpu["total"]), "components and residue: {cell}");
}

#[test]
fn every_path_carries_every_workload_over_ipv4() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let paths = paths("loopback,unix,veth,veth-routed,bridge,macvlan,sockmap");
    let count = paths.split(',').count();
    let arguments = format!("--path {paths} --workload {KINDS} --clients 1,3");
    let (_, cells) = measure(&bench, &arguments, count * 6 * 2);
    assert!(cells.iter().all(|cell| cell["io"] == "epoll, block"));
    let arguments = "--path loopback,veth,veth-routed,bridge,macvlan --workload udp-rr:64/1000,udp-strg:1000@5MB/s \
                     --clients 1,3";
    measure(&bench, arguments, 20);
    bench.assert_nothing_left();
}

#[test]
fn every_path_carries_every_workload_over_ipv6() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let paths = paths("loopback,veth,veth-routed,bridge,macvlan,sockmap");
    let count = paths.split(',').count();
    measure(&bench, &format!("--path {paths} --workload {KINDS} --clients 1,3 --ipv6"), count * 6 * 2);
    let arguments = "--path loopback,veth,veth-routed,bridge,macvlan --workload udp-rr:64/1000,udp-strg-1400 --clients 3 \
                     --ipv6";
    measure(&bench, arguments, 10);
    bench.assert_nothing_left();
}

#[test]
fn a_worker_process_per_pair_carries_every_workload() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let paths = paths("loopback,unix,veth-routed,sockmap");
    let count = paths.split(',').count();
    let arguments = format!("--path {paths} --workload {KINDS} --clients 3 --processes");
    let (_, cells) = measure(&bench, &arguments, count * 6);
    assert!(cells.iter().all(|cell| cell["io"] == "process per pair, block"));
    measure(
        &bench,
        "--path veth --workload udp-rr:64/1000,udp-strg-1400,strg-20m --clients 1,3 --processes --port 4711",
        6,
    );
    bench.assert_nothing_left();
}

#[test]
fn polling_agents_carry_every_workload() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    for (options, io) in [("", "epoll, poll"), ("--processes", "process per pair, poll")] {
        let arguments = format!("--path unix,veth --workload {KINDS} --clients 2 --wait poll {options}");
        let (_, cells) = measure(&bench, &arguments, 12);
        assert!(cells.iter().all(|cell| cell["io"] == io));
        measure(&bench, &format!("--path veth --workload udp-rr:8/8,udp-strg:8k --clients 2 --wait poll {options}"), 2);
    }
    bench.assert_nothing_left();
}

#[test]
fn either_side_of_a_workload_can_close_first() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let paths = paths("unix,sockmap");
    let count = paths.split(',').count();
    for close in ["server", "client"] {
        for options in ["", "--processes"] {
            let arguments =
                format!("--path {paths} --workload crr:1/1,crr:1m/1m --clients 3 --close {close} {options}");
            measure(&bench, &arguments, count * 2);
        }
    }
    bench.assert_nothing_left();
}

#[test]
fn messages_of_any_size_arrive_whole() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let paths = paths("veth,sockmap");
    let count = paths.split(',').count();
    let sizes = "rr:1/1m,rr:4095/4097,rr:4096/4096,rr:4097/4095,rr:65537/1,rr:1m/65537,strg:1/4097,strp:65537/4095";
    measure(&bench, &format!("--path {paths} --workload {sizes} --clients 2"), count * 8);
    // These sizes split messages and time stamps at arbitrary places.
    measure(&bench, "--path veth --workload rr:4097/65537,strg:9/1m,crr:100/9000 --clients 2 --write 1001", 3);
    measure(&bench, "--path veth --workload udp-rr:2000/3000,udp-rr:65507/8 --clients 2 --write 1000", 2);
    measure(&bench, "--path veth --mtu 88,1500,65535 --workload rr:1/20000,udp-rr:8/9000 --clients 2", 6);
    bench.assert_nothing_left();
}

#[test]
fn an_open_loop_reports_latency_from_the_planned_and_the_actual_start() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    for options in ["", "--processes"] {
        let arguments = format!("--path unix --workload rr-1-1,crr-64-8k --clients 3 --rate 5000 {options}");
        let (mut trials, mut cells) = measure(&bench, &arguments, 2);
        let udp = format!("--path veth --workload udp-rr:8/8 --clients 3 --rate 5000 {options}");
        let (more_trials, more_cells) = measure(&bench, &udp, 1);
        trials.extend(more_trials);
        cells.extend(more_cells);
        for cell in &cells {
            let (raw, corrected) = (&cell["latency_us"], &cell["latency_corrected_us"]);
            assert!(corrected["p50"].as_f64() >= raw["p50"].as_f64(), "{cell}");
            assert!(corrected["max"].as_f64() >= raw["max"].as_f64(), "{cell}");
        }
        for trial in &trials {
            let begun = trial["client"]["transactions"].as_u64().unwrap();
            // 5,000 per second for 20 ms are 100; transactions that a busy host could not start are counted as well.
            let planned = begun + trial["client"]["unstarted"].as_u64().unwrap();
            assert!((97..=104).contains(&planned), "{trial}");
        }
    }
    let (_, cells) = measure(&bench, "--path unix --workload rr-1-1 --clients 1", 1);
    assert!(cells[0]["latency_corrected_us"].is_null(), "a closed loop has no plan");
    bench.assert_nothing_left();
}

#[test]
fn latency_at_each_load_follows_from_the_time_that_the_server_takes() {
    const DELAY_US: f64 = 5_000.0;
    let bench = Bench::new();
    let arguments = "run --path loopback --workload rr-200-1000 --clients 1 --trials 2 --seconds 1 --warm-up 0.1 \
        --accounting tick --plant delay=5000 --load 10%,50%,200% --format json --out load";
    let cells = bench.run(arguments).ok().json()["cells"].clone();
    let loads = cells[0]["offered"].as_array().unwrap().clone();
    let (closed, of) = (cells[0]["rate"].as_f64().unwrap(), |at: usize, name: &str| loads[at][name].as_f64().unwrap());
    let p50 = |at: usize| loads[at]["latency_us"]["p50"].as_f64().unwrap();
    assert_eq!(loads.len(), 3, "{loads:?}");
    for (at, share) in [0.1, 0.5, 2.0].into_iter().enumerate() {
        // A disturbed round does not count.
        assert!((of(at, "load") - share).abs() < 1e-9 && (1.0..=2.0).contains(&of(at, "trials")), "{loads:?}");
        // The trials' own rates differ.
        assert!((0.5..2.0).contains(&(of(at, "planned_per_s") / (share * closed))), "{at}: {closed} {loads:?}");
    }
    for at in [0, 1] {
        assert_eq!(loads[at]["carried"], true, "{loads:?}");
        // Exchanges at even distances do not wait for each other.
        assert!((DELAY_US..3.0 * DELAY_US).contains(&p50(at)), "{loads:?}");
    }
    // Twice as many exchanges are planned as the server can answer. Without the time from the planned start, the latency would be
    // that of a single exchange.
    assert_eq!(loads[2]["carried"], false, "{loads:?}");
    assert!(p50(2) > 10.0 * DELAY_US, "half of the exchanges waited for a quarter of a second: {loads:?}");
    let text = bench.run("show load").ok().out;
    assert!(text.contains("Latency against load") && text.contains("not carried"), "{text}");
    bench
        .run("run --path loopback --workload strg-20m --load 50% --out no")
        .refused(2, &["has no transactions that could start at planned times", "remove --load"]);
    bench.assert_nothing_left();
}

#[test]
fn a_waiting_agent_sleeps_unless_it_polls() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    // These transactions mostly wait: for a planted delay, or for their planned start.
    for options in ["--plant delay=5000", "--rate 100"] {
        for io in ["", "--processes"] {
            let arguments = format!("--path unix --workload rr-1-1,crr-64-8k --clients 1 {options} {io}");
            for trial in measure(&bench, &arguments, 2).0 {
                let spent = |end: &str| trial["cpu"][end]["run_ns"].as_u64().unwrap();
                let elapsed = trial["elapsed_ns"].as_u64().unwrap();
                assert!(spent("client") + spent("server") < elapsed, "{options} {io}: half the time is spent: {trial}");
            }
        }
    }
    bench.assert_nothing_left();
}

#[test]
fn a_planted_cost_is_charged_to_the_component_where_it_was_planted() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    for (place, options) in [("client", ""), ("server", ""), ("client", "--processes"), ("server", "--processes")] {
        let arguments = format!("--path unix --workload rr-1-1 --clients 1 --plant {place}=500 {options}");
        for trial in measure(&bench, &arguments, 1).0 {
            let spent = trial["cpu"][place]["run_ns"].as_u64().unwrap();
            let planted = trial["client"]["transactions"].as_u64().unwrap() * 500_000;
            assert!(spent >= planted, "{spent} ns of {planted} ns planted: {trial}");
        }
    }
    bench.assert_nothing_left();
}

#[test]
fn a_planted_cost_of_a_level_is_charged_at_that_level_only() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let level = |name: &str, plant: &str| {
        let text = format!("name = \"{name}\"\n[plant]\n{plant}\n");
        std::fs::write(bench.path(&format!("{name}.toml")), text).unwrap();
    };
    level("slow", "client_us = 500.0");
    let arguments = "--path unix --workload rr-1-1 --clients 1 --level plain,slow.toml --plant server=500";
    for trial in measure(&bench, arguments, 2).0 {
        let spent = |end: &str| trial["cpu"][end]["run_ns"].as_u64().unwrap();
        let planted = trial["client"]["transactions"].as_u64().unwrap() * 500_000;
        if planted < 10_000_000 {
            println!("skipped, because a busy host carried few transactions: {trial}");
            continue;
        }
        let (with, without) =
            if trial["cell"]["level"] == "slow" { ("client", "server") } else { ("server", "client") };
        assert!(spent(with) >= planted && spent(without) < planted, "{trial}");
    }

    level("burdened", "router_us = 5.0");
    let arguments = "--path veth-routed --workload rr-1-1 --clients 1 --level plain,burdened.toml";
    let privileged = !paths("sockmap").is_empty();
    for trial in if privileged { measure(&bench, arguments, 2).0 } else { Vec::new() } {
        let planted = trial["cpu"]["planted_router"][1].as_u64().unwrap_or(0);
        assert_eq!(planted > 0, trial["cell"]["level"] == "burdened", "{trial}");
    }
    bench.assert_nothing_left();
}

#[test]
fn ten_thousand_pairs_are_served_and_counted() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let paths = paths("veth,sockmap");
    let count = paths.split(',').count();
    measure_many(&bench, &format!("--path {paths} --workload rr-1-1 --clients 10000"), count);
    // With this many streams, one round over all of them takes longer than a trial.
    measure(&bench, "--path loopback,unix --workload crr-64-8k,strg-20m,strp-20m --clients 10000", 6);
    bench.assert_nothing_left();
}

#[test]
fn two_hundred_pairs_each_get_a_worker_process() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    for trial in measure_many(&bench, "--path veth --workload rr-1-1 --clients 200 --processes", 1) {
        assert!(trial["pair_units"][0].as_f64().unwrap() >= 0.0, "{trial}");
    }
    bench.assert_nothing_left();
}

#[test]
fn samples_of_the_monitor_are_in_the_run_directory_and_its_reports() {
    let bench = Bench::new();
    let axes = "--path vctc-routed-iucv --workload rr-200-1000 --clients 1 --trials 1 --seconds 0.5 --warm-up 0";
    let ended = bench.run(&format!("run --out run {axes} --interval 100ms --layout zvm")).ok();
    let lines = std::fs::read_to_string(bench.path("run/monitor.jsonl")).unwrap();
    let records: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!((4..=5).contains(&records.len()), "{lines}");
    for name in ["client", "server", "tcpip1", "tcpip2", "tcpip3", "control program"] {
        let of = |record: &Value| {
            let processes = record["sample"]["processes"].as_array().unwrap().clone();
            processes.into_iter().find(|process| process["name"] == name).unwrap()["cpu"]["percent"].as_f64().unwrap()
        };
        let used: f64 = records.iter().map(of).sum();
        assert!(used > 0.0 || name == "control program", "{name} used no CPU time: {lines}");
    }
    for out in [ended.out, bench.run("show run --layout zvm").ok().out] {
        assert!(out.contains("SYSTEM_SUMMARY_BY_TIME (average of"), "{out}");
        assert!(out.lines().any(|line| line.starts_with("tcpip2 ") && line.split_whitespace().count() == 5), "{out}");
    }
    bench.run("report run").ok();
    assert!(std::fs::read_to_string(bench.path("run/report.html")).unwrap().contains("Utilisation over time"));
    // A crash leaves an incomplete line, which a resumed run removes.
    std::fs::write(bench.path("run/monitor.jsonl"), lines.clone() + "{\"cell").unwrap();
    let resumed = bench.run("run --resume run").ok();
    assert!(resumed.err.contains("mended") && resumed.err.contains("monitor.jsonl"), "{resumed}");
    assert_eq!(std::fs::read_to_string(bench.path("run/monitor.jsonl")).unwrap(), lines);
    assert!(std::fs::read(bench.path("run/skipped.jsonl")).unwrap().is_empty());
}

#[test]
fn the_memory_of_a_run_has_a_limit() {
    let bench = Bench::new();
    let axes = "--path loopback --workload rr-1-1 --clients 1";
    let ended = bench.measure(&format!("{axes} --memory-limit 1g"));
    if ended.err.contains("controller memory of control groups is not available") {
        println!("skipped, because no control group limits memory here");
        return;
    }
    let ended = ended.ok();
    let line = ended.err.lines().find(|line| line.starts_with("memory of the run: at most ")).unwrap();
    assert!(line.ends_with(" MiB of 1024 MiB"), "{line}");
    let plan = std::fs::read_to_string(bench.path("run/plan.toml")).unwrap();
    assert!(plan.contains("memory_limit = \"1g\""), "{plan}");
    // The kernel ends processes of the path before siga, which reports it.
    let large = "--path hipersockets-iucv --workload rr-200-1000 --clients 200 --level 430 --trials 1 --seconds 0.2";
    let ended = bench.run(&format!("run --out little {large} --memory-limit 64m"));
    assert_eq!(ended.status, Some(4), "{ended}");
    let line = ended.err.lines().find(|line| line.starts_with("memory of the run: at most 64 MiB of 64 MiB")).unwrap();
    assert!(line.contains("; the kernel ended ") && line.ends_with("because there was no memory left"), "{line}");
    bench.assert_nothing_left();
    if let Some(bench) = Bench::unprivileged() {
        bench.measure(&format!("{axes} --memory-limit 256m")).refused(3, &["--memory-limit", "needs root"]);
    }
}

#[test]
fn a_time_series_follows_each_trial() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    for options in ["", "--processes"] {
        let out = format!("series{}", options.len());
        let axes =
            "--path veth --workload rr-1-1,rr-1-1+1strg,udp-strg:1000@5MB/s --clients 2 --trials 1 --seconds 0.5";
        let series = "--warm-up 0 --interval 100ms --series -";
        let ended = bench.run(&format!("run --out {out} {axes} {series} {options}")).ok();
        assert!(ended.err.contains("3 trials in"), "the report is on standard error: {ended}");
        let in_directory = std::fs::read_to_string(bench.path(&out).join("series.jsonl")).unwrap();
        assert_eq!(ended.out, in_directory);
        let lines: Vec<Value> = ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let trials = std::fs::read_to_string(bench.path(&out).join("trials.jsonl")).unwrap();
        for trial in trials.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let own: Vec<&Value> = lines.iter().filter(|line| line["workload"] == trial["cell"]["workload"]).collect();
            assert!((4..=5).contains(&own.len()), "{own:#?}");
            let sum = |name: &str| own.iter().map(|line| line[name].as_u64().unwrap()).sum::<u64>();
            for (name, counted) in [("transactions", "transactions"), ("bytes_to_client", "received")] {
                let all = trial["client"][counted].as_u64().unwrap();
                assert!((1..=all).contains(&sum(name)), "{name}: {} of {all}: {own:#?}", sum(name));
            }
            let seconds: Vec<f64> = own.iter().map(|line| line["second"].as_f64().unwrap()).collect();
            assert!(seconds.is_sorted() && seconds[0] >= 0.1, "{seconds:?}");
            let spent = |name: &str| own.iter().map(|line| line["cpu_ms"][name].as_f64().unwrap()).sum::<f64>();
            assert!(spent("client") > 0.0 && spent("server") > 0.0 && spent("host") > 0.0, "{own:#?}");
            assert!(own.iter().all(|line| line["cpu_ms"]["router"].is_null()), "veth has no router");
        }
    }
    bench.run("run --interval 10ms").status(2);
    bench.run("run --series -").status(2);
    bench.assert_nothing_left();
}
