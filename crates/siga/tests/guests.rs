//! Tests of paths over siga's own networks: every workload works on them, their figures are consistent, and nothing is left
//! behind.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;

use common::{Bench, children, processes, signal};
use rustix::process::Signal;
use rustix::thread::sched_getaffinity;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

const PATHS: [&str; 4] = ["hipersockets", "hipersockets-routed", "vctc", "vctc-routed"];

/// The same paths with applications in separate processes.
const IUCV_PATHS: [&str; 4] = ["hipersockets-iucv", "hipersockets-routed-iucv", "vctc-iucv", "vctc-routed-iucv"];

const WORKLOADS: &str =
    "rr-200-1000,crr-64-8k,strg-20m,strp:200k/20,udp-rr:64/64,udp-strg:1000@5MB/s,strb:1m/1m,rr-1-1+2strg";

/// Measures trials into the directory `run`. They are short, but long enough for three processes to get CPU time on a busy host.
fn measure(bench: &Bench, arguments: &str) {
    bench.run(&format!("run --out run {arguments} --seconds 0.2 --warm-up 0 --trials 1")).ok();
}

/// Returns the control programs of the bench: the processes whose command line names a directory of the bench.
fn control_programs(bench: &Bench) -> Vec<u32> {
    let place = bench.path("tmp");
    let names_it = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(place.to_str().unwrap())
    };
    processes().into_iter().filter(names_it).collect()
}

fn assert_nothing_left(bench: &Bench, guests: &[u32]) {
    bench.assert_nothing_left();
    let begun = Instant::now();
    let left = || -> Vec<u32> {
        let guests = guests.iter().copied().filter(|pid| fs::exists(format!("/proc/{pid}")).unwrap());
        guests.chain(control_programs(bench)).collect()
    };
    while !left().is_empty() {
        assert!(begun.elapsed() < common::SOON, "processes are left: {:?}", left());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_workload_crosses_every_siga_network_and_its_figures_add_up() {
    let bench = Bench::new();
    let cells = measured(&bench, PATHS, "embedded, block");
    assert!(cells.iter().all(|cell| cell["cpu"]["guests"]["applications"].is_null()));
    assert_spent(&cells, &["tcpip1", "tcpip3"]);
    assert_nothing_left(&bench, &[]);
}

#[test]
fn each_pair_can_have_processes_of_its_own_where_they_are_applications_of_guests() {
    let bench = Bench::new();
    let paths = "hipersockets,hipersockets-routed-iucv,vswitch-iucv";
    let cells = format!("--path {paths} --workload rr-200-1000,strg-20m --clients 5 --processes");
    let ended = bench.run(&format!("run --out run {cells} --seconds 0.2 --warm-up 0 --trials 1 --interval 100ms"));
    // The embedded path is skipped, because a guest is one process.
    assert!(ended.status == Some(4) && ended.err.contains("use a path such as hipersockets-iucv"), "{ended}");
    let trials = fs::read_to_string(bench.path("run/trials.jsonl")).unwrap();
    let trials: Vec<Value> = trials.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(trials.len(), 4, "{trials:?}");
    for trial in &trials {
        assert_eq!(trial["io"], "iucv, process per pair, block");
        assert!(trial["pair_units"][0].as_f64().unwrap() > 0.0, "each pair works: {trial}");
        // The times of all processes are added up.
        let guests = &trial["cpu"]["guests"];
        assert!(guests["client"]["copying_ns"].as_u64().unwrap() > 0 && guests["stacks"].is_array(), "{guests}");
    }
    // Each pair has a process on each side, and all of them work.
    let samples = fs::read_to_string(bench.path("run/monitor.jsonl")).unwrap();
    let mut busy: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for sample in samples.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        for process in sample["sample"]["processes"].as_array().unwrap() {
            let name = process["name"].as_str().unwrap().to_owned();
            if process["cpu"]["percent"].as_f64().unwrap() > 0.0 {
                busy.entry(sample["cell"].to_string()).or_default().insert(name);
            }
        }
    }
    assert_eq!(busy.len(), 4, "{samples}");
    for (cell, names) in busy {
        for side in ["client", "server"] {
            let count = names.iter().filter(|name| name.split(' ').next() == Some(side)).count();
            assert!(count >= 5, "{count} processes of the {side} work: {cell} {names:?}");
        }
    }
    assert_nothing_left(&bench, &[]);
}

#[test]
fn applications_of_guests_are_accounted_apart_from_their_stacks() {
    let bench = Bench::new();
    let cells = measured(&bench, IUCV_PATHS, "iucv, block");
    assert_spent(&cells, &["tcpip1", "tcpip3", "applications"]);
    assert_nothing_left(&bench, &[]);
}

#[test]
fn paths_through_a_switch_are_measured_and_the_switch_is_part_of_the_control_program() {
    let bench = Bench::new();
    let paths =
        "guestlan-hipers,guestlan-hipers-routed,guestlan-qdio,guestlan-qdio-routed,vswitch,vswitch-routed,vswitch-iucv";
    measure(&bench, &format!("--path {paths} --workload rr-200-1000,strg-20m,udp-rr:64/64 --clients 3"));
    let json: Value = serde_json::from_str(&bench.run("show run --format json").ok().out).unwrap();
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 7 * 3);
    for cell in cells {
        let path = cell["path"].as_str().unwrap();
        let mtu = [("guestlan-hipers", 57_344), ("guestlan-qdio", 32_768), ("vswitch", 9_000)];
        let mtu = mtu.iter().find(|(prefix, _)| path.starts_with(prefix)).unwrap().1;
        assert!(cell["rate"].as_f64().unwrap() > 0.0 && cell["mtu"] == mtu, "{cell:#}");
        assert_adds_up(cell);
    }
    // The switch copies every frame, so the control program's part is not negligible.
    let copies = |cell: &Value| cell["cpu"]["guests"]["cp"]["total"].as_f64().unwrap() > 0.0;
    assert!(cells.iter().filter(|cell| cell["workload"] == "strg-20m").all(copies), "{cells:#?}");
    assert_nothing_left(&bench, &[]);
}

#[test]
fn namespaces_at_a_switch_are_measured_as_ends_of_a_path() {
    let bench = Bench::new();
    if fs::File::options().read(true).write(true).open("/dev/net/tun").is_err() {
        println!("skipped, because /dev/net/tun cannot be opened");
        return;
    }
    let paths = "vswitch-netns,vswitch-routed-netns,vswitch-mixed,vswitch-routed-mixed,bridge";
    for ipv6 in ["", "--ipv6"] {
        let workloads = "rr-200-1000,crr-64-8k,strg-20m,udp-rr:64/64";
        measure(&bench, &format!("--path {paths} --workload {workloads} --mtu 1500 --clients 2 {ipv6}"));
        let json: Value = serde_json::from_str(&bench.run("show run --format json").ok().out).unwrap();
        let cells = json["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 5 * 4);
        assert!(cells.iter().all(|cell| cell["rate"].as_f64().unwrap() > 0.0), "{cells:#?}");
        fs::remove_dir_all(bench.path("run")).unwrap();
    }
    assert_nothing_left(&bench, &[]);
}

/// Measures short trials of every workload on some paths, and checks each cell. Returns the cells.
fn measured(bench: &Bench, paths: [&str; 4], io: &str) -> Vec<Value> {
    measure(bench, &format!("--path {} --workload {WORKLOADS} --clients 3", paths.join(",")));
    let json: Value = serde_json::from_str(&bench.run("show run --format json").ok().out).unwrap();
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4 * 8);
    for cell in cells {
        let flags: Vec<&str> = cell["flags"].as_array().unwrap().iter().map(|flag| flag.as_str().unwrap()).collect();
        // Other load on the host decides how steady a rate is, how long an exchange takes, how the pairs share, and whether the answer
        // to a datagram comes too late.
        const OF_HOST: [&str; 4] = ["rate collapsed", "datagrams were lost", "the path stalled", "had unequal rates"];
        let is_of_host = |flag: &&str| OF_HOST.iter().any(|effect| flag.contains(effect));
        assert!(flags.iter().all(is_of_host), "{cell:#}");
        assert!(cell["rate"].as_f64().unwrap() > 0.0 && cell["mtu"] == 57_344 && cell["io"] == io);
        assert_adds_up(cell);
    }
    for record in bench.lines("paths.jsonl") {
        let record: Value = serde_json::from_str(&record).unwrap();
        let devices = record["interfaces"].as_object().unwrap();
        let routed = record["cell"]["path"].as_str().unwrap().contains("-routed");
        assert_eq!(devices.len(), if routed { 4 } else { 2 }, "{record}");
        assert!(devices.values().all(|text| text.as_str().unwrap().starts_with("mtu=57344 ")), "{record}");
    }
    cells.clone()
}

/// Asserts that these components used virtual and CP time. The kernel divides run time by sampling at ticks, so in a short trial
/// on a busy host one of the two may be zero.
fn assert_spent(cells: &[Value], who: &[&str]) {
    for (ran, part) in who.iter().flat_map(|ran| [(ran, "virtual"), (ran, "cp")]) {
        let spent = |cell: &Value| cell["cpu"]["guests"][ran][part].as_f64().unwrap();
        assert!(
            cells.iter().all(|cell| spent(cell) >= -1e-9) && cells.iter().any(|cell| spent(cell) > 0.0),
            "{ran} {part}"
        );
    }
}

/// Asserts that the components and the residue add up to the total. Each guest's time must be the sum of virtual time, CP time
/// and wait.
fn assert_adds_up(cell: &Value) {
    let cpu = &cell["cpu"];
    let total = cpu["total"].as_f64().unwrap();
    let near = |sum: f64, whole: f64| (sum - whole).abs() <= 1e-6 * total.max(1e-9);
    let guests = cpu["guests"].as_object().unwrap();
    let names: Vec<&str> = guests.keys().map(String::as_str).collect();
    assert_eq!(names, ["applications", "cp", "other", "tcpip1", "tcpip2", "tcpip3"]);
    let path = cell["path"].as_str().unwrap();
    assert_eq!(guests["applications"].is_null(), !path.ends_with("-iucv"));
    assert_eq!(guests["tcpip2"].is_null(), !path.contains("-routed"));
    let mut sum = cpu["residue"].as_f64().unwrap();
    for (name, part) in guests.iter().filter(|(_, part)| !part.is_null()) {
        let figure = |name: &str| part[name].as_f64().unwrap();
        assert!(near(figure("virtual") + figure("cp") + figure("wait"), figure("total")), "{name}: {cell:#}");
        sum += figure("total");
    }
    assert!(near(sum, total), "{cell:#}");
}

#[test]
fn guests_use_the_requested_waiting_policy_and_mtu() {
    let bench = Bench::new();
    let paths = "hipersockets-routed,hipersockets-routed-iucv";
    measure(&bench, &format!("--path {paths} --workload rr-1-1 --clients 1 --mtu 1500 --wait poll --ipv6"));
    let mut trials = bench.trials();
    trials.sort_by_key(|trial| trial["io"].to_string());
    assert_eq!(
        (trials[0]["io"].as_str().unwrap(), trials[1]["io"].as_str().unwrap()),
        ("embedded, poll", "iucv, poll")
    );
    // A polling process does not sleep: the time without work counts as polling or yielding.
    let looking = |times: &Value| times["looking_ns"].as_u64().unwrap() + times["yielding_ns"].as_u64().unwrap();
    for guests in trials.iter().map(|trial| &trial["cpu"]["guests"]) {
        assert!(looking(&guests["client"]) > 0 && looking(&guests["router"][1]) > 0, "{guests:#}");
    }
    assert!(looking(&trials[1]["cpu"]["guests"]["stacks"][0][1]) > 0, "{:#}", trials[1]);
    let record: Value = serde_json::from_str(&bench.lines("paths.jsonl")[0]).unwrap();
    assert!(
        record["interfaces"].as_object().unwrap().values().all(|text| text.as_str().unwrap().starts_with("mtu=1500 "))
    );
}

#[test]
fn a_blocking_guest_hardly_polls_and_an_adaptive_guest_does() {
    let bench = Bench::new();
    let trial = |wait: &str| {
        measure(&bench, &format!("--path hipersockets-routed --workload rr-1-1 --clients 1 --wait {wait}"));
        let trial = bench.trials().remove(0);
        assert_eq!(trial["io"], format!("embedded, {wait}"));
        fs::remove_dir_all(bench.path("run")).unwrap();
        trial
    };
    let times = |trial: &Value, what: &str| {
        let guests = &trial["cpu"]["guests"];
        [&guests["client"], &guests["router"][1]].map(|times| times[what].as_u64().unwrap())
    };
    // A blocking process only polls once more after a yield. On a busy host, it may lose the CPU during that poll.
    let hardly_asks = |blocks: &Value| {
        let little = blocks["elapsed_ns"].as_u64().unwrap() / 10;
        times(blocks, "looking_ns").iter().all(|looking| *looking < little)
    };
    assert!((0..10).any(|_| hardly_asks(&trial("block"))));
    // In a short trial, an adaptive process may sleep without yielding first, so only one of ten trials has to show a yield.
    assert!((0..10).any(|_| times(&trial("adaptive"), "yielding_ns").iter().all(|yielding| *yielding > 0)));
}

#[test]
fn routers_and_other_processes_of_a_network_stay_on_their_cpus() {
    if sched_getaffinity(None).unwrap().count() < 2 || !sched_getaffinity(None).unwrap().is_set(1) {
        println!("skipped: this test needs CPUs 0 and 1");
        return;
    }
    let bench = Bench::new();
    let cell = "--path hipersockets-routed --workload rr-1-1 --clients 1 --seconds 10 --warm-up 0 --trials 1";
    let run = bench.start(&format!("run --out run {cell} --router-cpus 0 --guest-cpus 1"));
    let cpus = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.map(|list| list.trim().to_owned()).unwrap_or_default()
    };
    let begun = Instant::now();
    loop {
        let control = control_programs(&bench);
        let routers: Vec<String> = control.iter().flat_map(|pid| children(*pid)).map(cpus).collect();
        if control.iter().any(|pid| cpus(*pid) == "1") && routers == ["0"] {
            break;
        }
        assert!(
            begun.elapsed() < common::SOON,
            "{:?} {routers:?}",
            control.iter().map(|pid| cpus(*pid)).collect::<Vec<_>>()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(run);
    for (cells, option) in [("--path veth,hipersockets", "--router-cpus"), ("--path veth", "--guest-cpus")] {
        let refused = bench.run(&format!("run {cells} --workload rr-1-1 --clients 1 {option} 0"));
        refused.refused(2, &[option, "has no effect"]);
    }
    bench.run("run --path hipersockets --workload rr-1-1 --guest-cpus x").refused(2, &["`x` is not a list of CPUs"]);
}

#[test]
fn sleeping_partners_are_colocated_unless_colocation_is_off() {
    const IUCV: &str = "hipersockets-routed-iucv";
    // A thread that waits less often than this per second does not move.
    const WAITS_LEAST: u64 = 2_000;
    if sched_getaffinity(None).unwrap().count() < 2 {
        println!("skipped: all run on one CPU anyway");
        return;
    }
    let bench = Bench::new();
    // Returns the co-locations of the ends and the router together, and the transactions per second. Concurrent tests, or a build
    // without optimisation, can give a guest too little or too much work. Such a guest is not moved.
    let colocated = |path: &str, level: &str| -> (u64, u64) {
        measure(&bench, &format!("--path {path} --workload rr-1-1 --clients 1 --level {level}"));
        let trial = bench.trials().remove(0);
        let guests = &trial["cpu"]["guests"];
        fs::remove_dir_all(bench.path("run")).unwrap();
        let of = |times: &Value| times["colocated_ns"].as_u64().unwrap();
        let router = if path == IUCV { 0 } else { of(&guests["router"][1]) };
        let rate =
            trial["client"]["transactions"].as_u64().unwrap() * 1_000_000_000 / trial["elapsed_ns"].as_u64().unwrap();
        (of(&guests["client"]) + of(&guests["server"]) + router, rate)
    };

    let sleeps = "430-adaptive_waiting";
    for path in ["hipersockets-routed", IUCV] {
        let (begun, mut fastest) = (Instant::now(), 0);
        loop {
            let (moved, rate) = colocated(path, sleeps);
            fastest = fastest.max(rate);
            if moved > 0 {
                break;
            }
            if begun.elapsed() > Duration::from_secs(60) && fastest < WAITS_LEAST {
                println!("skipped {path}, because this host is too slow: {fastest} transactions per second");
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "{path}: {fastest} transactions per second");
        }
        assert_eq!(colocated(path, &format!("{sleeps}-colocate")).0, 0, "{path}");
    }
}

#[test]
fn a_sleeping_guest_sends_acknowledgements_with_the_data_of_its_application() {
    let bench = Bench::new();
    let frames = |wait: &str| {
        measure(&bench, &format!("--path hipersockets-routed --workload crr-64-8k --clients 1 --wait {wait}"));
        let trial = bench.trials().remove(0);
        fs::remove_dir_all(bench.path("run")).unwrap();
        let of = |what: &str| trial["devices"][what].as_u64().unwrap() as f64;
        (of("tcpip1/link frames_sent") + of("tcpip3/lan frames_sent"))
            / trial["client"]["transactions"].as_f64().unwrap()
    };
    // SYN, SYN-ACK, acknowledgement, request, acknowledgement, response, FIN, two acknowledgements and FIN: at most ten frames. A
    // sleeping side combines some: the first acknowledgement with the request, that of the request with the response, and that of
    // the response with the FIN.
    let (polling, sleeping) = (frames("poll"), frames("block"));
    assert!(sleeping < 7.5 && polling > 9.0, "{sleeping} {polling}");
}

#[test]
fn the_default_plan_compares_the_network_of_siga_with_that_of_the_kernel() {
    let bench = Bench::new();
    if !common::paths_build(&bench) {
        return;
    }
    let ended = bench.run("run --out run --seconds 0.1 --warm-up 0 --trials 2 --workload rr-200-1000 --clients 1").ok();
    assert_eq!(bench.run("show run").ok().out, ended.out);
    assert!(
        ended.err.contains(
            "note: 2 trials cannot give a verdict on each of 3 main figures; at least 7 trials are needed: use --trials 7"
        ),
        "{ended}"
    );
    bench.undisturb("run", 2);
    let ended = bench.run("show run").ok();
    // Two trials give no verdict, so the first sentence claims none. The note before the run says how many trials decide.
    let first = "siga's network compared with the kernel's: rate better in 0 of 1 cells, inconclusive in 1; CPU time better in 0 of 1, inconclusive in 1.";
    assert!(ended.out.starts_with(first) && ended.out.contains("cannot tell  cannot tell"), "{ended}");
    assert!(ended.out.contains("waiting policy of both: `block`"), "{ended}");
    let json: Value = serde_json::from_str(&bench.run("show run --format json").ok().out).unwrap();
    let beside = &json["beside"][0];
    assert_eq!((&beside["path"], &beside["kernel"]), (&"hipersockets-routed".into(), &"veth-routed".into()));
    assert_eq!((&beside["rate_verdict"], &beside["cpu_verdict"]), (&"inconclusive".into(), &"inconclusive".into()));
    assert!(beside["rate_ratio"]["value"].as_f64().unwrap() > 0.0 && beside["cpu_ratio"]["count"] == 2, "{beside:#}");
}

#[test]
fn guests_have_the_sysctls_of_a_level() {
    let bench = Bench::new();
    let level = "name = \"small\"\n[sysctl]\n\"net.ipv4.tcp_rmem\" = \"4096 8192 8192\"\n\"net.core.netdev_max_backlog\" = \"2500\"\n";
    fs::write(bench.path("small.toml"), level).unwrap();
    measure(&bench, "--path hipersockets-routed --workload strg:20/1m --level plain,small.toml --clients 1");
    let bytes_per_frame = |level: &str| {
        let trial = bench.trials().into_iter().find(|trial| trial["cell"]["level"] == level).unwrap();
        let frames = trial["devices"]["tcpip3/lan frames_sent"].as_f64().unwrap();
        trial["client"]["received"].as_f64().unwrap() / frames
    };
    let (plain, small) = (bytes_per_frame("plain"), bytes_per_frame("small"));
    assert!(plain > 8_192.0 && small <= 8_192.0, "no frame is larger than the receiver's window: {plain} {small}");
    for record in bench.lines("paths.jsonl") {
        let record: Value = serde_json::from_str(&record).unwrap();
        let has = record["cell"]["level"] == "small";
        for guest in ["tcpip1", "tcpip2", "tcpip3"] {
            let value = &record["sysctls"][format!("{guest} net.ipv4.tcp_rmem")];
            assert_eq!(*value == "4096 8192 8192", has, "{record:#}");
        }
    }
    fs::write(bench.path("order.toml"), "name = \"order\"\n[sysctl]\n\"net.ipv4.tcp_wmem\" = \"4096 9000 8000\"\n")
        .unwrap();
    let order = bench.run("run --path hipersockets --workload rr-1-1 --level order.toml --trials 1 --seconds 0.1");
    assert!(order.err.contains("tcp_wmem: the default size 9000 is larger than the largest size 8000"), "{order}");
}

#[test]
fn traffic_in_output_queue_0_of_a_shared_card_comes_first() {
    let bench = Bench::new();
    let (levels, mut ratios) = ("beside-queue-0,own-queue-0", Vec::new());
    // Other load on the host can keep the neighbours from sending.
    for _ in 0..5 {
        measure(&bench, &format!("--path qdio-1gbe --mtu 8992 --workload strg:20/1m --clients 1 --level {levels}"));
        let trials = bench.trials();
        fs::remove_dir_all(bench.path("run")).unwrap();
        let rate = |level: &str| {
            let trial = trials.iter().find(|trial| trial["cell"]["level"] == level).unwrap();
            assert!(trial["neighbours_rate"].is_number() && trial["flags"].as_array().unwrap().is_empty(), "{trial:#}");
            trial["client"]["received"].as_f64().unwrap() / trial["elapsed_ns"].as_f64().unwrap()
        };
        ratios.push(rate("beside-queue-0") / rate("own-queue-0"));
        if ratios.last().is_some_and(|ratio| *ratio < 0.7) {
            return;
        }
    }
    panic!("the neighbours take no share of the wire: {ratios:?}");
}

#[test]
fn every_workload_crosses_at_both_levels_and_the_driver_features_are_read_back() {
    let bench = Bench::new();
    let levels = "420,430,420+packing+colocate,430-copy_once-pending";
    measure(&bench, &format!("--path hipersockets-routed --level {levels} --workload {WORKLOADS} --clients 3"));
    let trials = bench.trials();
    assert_eq!(trials.len(), 4 * 8);
    for trial in &trials {
        assert!(trial["client"]["received"].as_u64() != Some(0), "{trial:#}");
        let old = trial["cell"]["level"].as_str().unwrap().starts_with("420");
        assert_eq!(trial["io"], if old { "embedded, block" } else { "embedded, adaptive" });
    }
    for record in bench.lines("paths.jsonl") {
        let record: Value = serde_json::from_str(&record).unwrap();
        let (full, packing, colocate, copy_once, checksums) = match record["cell"]["level"].as_str().unwrap() {
            "420" => ("drop", false, false, false, false),
            "430" => ("pending", true, true, true, true),
            "420+packing+colocate" => ("drop", true, true, false, false),
            _ => ("drop", true, true, false, true),
        };
        let words = format!(
            "full={full} packing={packing} suppress_doorbells={checksums} copy_once={copy_once} \
             omit_checksums={checksums} large_segments={checksums} zero_copy={checksums} colocate={colocate} direct=false"
        );
        let devices = record["interfaces"].as_object().unwrap();
        assert!(devices.values().all(|text| text.as_str().unwrap().ends_with(&words)), "{words}: {record:#}");
    }
    // Settings of the levels are the subject of the comparison, so they do not prevent it.
    let compared = bench.run("compare 420 430 --run run").ok().out;
    assert!(!compared.contains("buffer_count:") && !compared.contains("full:"), "{compared}");
    let on_veth = bench.run("plan --path hipersockets,veth --level 420 --workload rr-1-1").ok().out;
    assert!(
        on_veth.contains("level 420 sets driver features of siga's own networks, but veth is a kernel path"),
        "{on_veth}"
    );
}

#[test]
fn a_note_says_that_the_waiting_policy_of_a_level_overrides_the_option() {
    let bench = Bench::new();
    let axes = "--path hipersockets --workload rr-1-1 --clients 1 --level 420,430 --wait poll";
    let told = "note: `--wait poll` has no effect at some levels, which set themselves how guests wait for data: `block` at 420, \
        `adaptive` at 430";
    let planned = bench.run(&format!("plan {axes}")).ok();
    assert!(planned.err.contains(told) && !planned.out.contains("note"), "{planned}");
    let ended = bench.run(&format!("run --out run {axes} --seconds 0.05 --warm-up 0 --trials 1")).ok();
    assert!(ended.err.contains(told), "{ended}");
    for trial in bench.trials() {
        let old = trial["cell"]["level"] == "420";
        assert_eq!(trial["io"], if old { "embedded, block" } else { "embedded, adaptive" });
    }
    let as_asked = bench.run("plan --path hipersockets --workload rr-1-1 --wait poll").ok();
    assert_eq!(as_asked.err, "");
}

#[test]
fn a_report_shows_the_levels_of_a_run_beside_the_published_tables() {
    let bench = Bench::new();
    let path = "--path hipersockets-routed-iucv --workload strg-20m --mtu 1500 --clients 1";
    measure(&bench, &format!("{path} --level 420,430 --layout zvm"));
    let trials = bench.trials();
    assert_eq!(trials.len(), 2);
    for trial in &trials {
        let devices = trial["devices"].as_object().unwrap();
        let sent: Vec<&String> = devices.keys().filter(|name| name.ends_with(" frames_sent")).collect();
        let ends = ["tcpip1/link", "tcpip2/lan", "tcpip2/link", "tcpip3/lan"];
        assert_eq!(sent, ends.map(|device| format!("{device} frames_sent")).iter().collect::<Vec<_>>(), "{devices:#?}");
        assert!(devices.values().all(|count| count.as_u64().unwrap() > 0), "{devices:#?}");
    }
    bench.undisturb("run", 1);
    let shown = bench.run("show run --layout zvm").ok();
    assert!(shown.out.contains("Published: Table 1. HiperSockets - Streaming 1500"), "{shown}");
    let line = |name: &str| shown.out.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert_eq!(line("level").split_whitespace().collect::<Vec<_>>(), ["level", "420", "430", "ratio", "published"]);
    let router: Vec<&str> = line("tcpip2_cpu_msec/MB").split_whitespace().collect();
    assert_eq!((router.len(), router[4]), (5, "0.29"), "{shown}");
    assert!(router[3].parse::<f64>().unwrap() > 0.0, "{shown}");
    // One trial is not enough for a finding, and the report says so.
    assert!(shown.out.contains("CANNOT TELL: Router CPU per unit at 430 is below 420 in every cell."), "{shown}");
    assert!(shown.out.contains("too few trials for an interval: 1"), "{shown}");
    assert!(shown.out.contains("Devices of tcpip2, per megabyte: frames_sent "), "{shown}");
}

#[test]
fn a_path_is_measured_over_the_modelled_links_of_the_options() {
    let bench = Bench::new();
    let options = "--mtu 1500 --clients 1 --link off --link latency=5ms,loss=0%";
    measure(&bench, &format!("--path vswitch,vctc-iucv --workload rr-1-1 {options}"));
    let json: Value = serde_json::from_str(&bench.run("show run --format json").ok().out).unwrap();
    let cells = json["cells"].as_array().unwrap();
    let levels: Vec<_> = cells.iter().map(|cell| cell["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["plain", "latency=5ms loss=0%"].repeat(2));
    // A request and its response each take the latency.
    let p50 = |cell: &Value| cell["latency_us"]["p50"].as_f64().unwrap();
    for both in cells.chunks(2) {
        assert!(p50(&both[0]) < 10_000.0 && p50(&both[1]) >= 10_000.0, "{both:#?}");
    }
    let records: Vec<Value> =
        bench.lines("paths.jsonl").iter().map(|record| serde_json::from_str(record).unwrap()).collect();
    let recorded = |of: &str, text: &str| {
        let has = |record: &&Value| record["interfaces"][of].as_str().is_some_and(|settings| settings.contains(text));
        records.iter().filter(has).count()
    };
    assert_eq!(recorded("port tcpip3.lan", "link-from=latency=5ms,loss=0% link-to=latency=5ms,loss=0%"), 1);
    assert_eq!(
        [recorded("tcpip1/lan", "link=latency=5ms,loss=0%"), recorded("tcpip3/lan", "link=latency=5ms,loss=0%")],
        [1; 2]
    );
    for shown in ["show run", "export run", "report run -o page.html"] {
        let shown = bench.run(shown).ok();
        let page = fs::read_to_string(bench.path("page.html")).unwrap_or_default();
        assert!(shown.out.contains("latency=5ms loss=0%") || page.contains("latency=5ms loss=0%"), "{shown}");
    }
}

#[test]
fn a_cell_that_a_siga_network_cannot_run_is_skipped_with_the_reason() {
    let bench = Bench::new();
    let planned = |arguments: &str| bench.run(&format!("plan --workload rr-1-1 --clients 2 {arguments}")).ok().out;
    let both = "--path hipersockets-routed,veth-routed";
    assert!(planned(&format!("{both} --processes")).contains("a guest is one process"));
    assert!(planned(&format!("{both} --plant router=5")).contains("only kernel paths with a router do"));
    assert!(planned(&format!("{both} --level gro-off")).contains("level gro-off sets kernel settings (gro)"));
    assert!(!planned(&format!("{both} --level bbr")).contains("siga's stack supports"));
    assert!(
        planned(&format!("{both} --wait adaptive"))
            .contains("client and server on veth-routed support the waiting policies `block` and `poll`")
    );
    assert!(planned(&format!("{both} --mtu 65535")).contains("supports an MTU from 576 to 57344 bytes"));
    let link = planned("--path vswitch,veth,hipersockets --link latency=1ms");
    assert!(link.contains("level latency=1ms has a modelled link, but veth is a kernel path"), "{link}");
    assert!(link.contains("path hipersockets cannot have one"), "{link}");
    bench.run("plan --path vswitch --link rate=0bit").refused(2, &["--link", "write a rate from 1bit"]);
    bench.run("plan --path hipersockets --processes").refused(2, &["siga can measure no cell of the plan"]);
}

#[test]
fn a_killed_coordinator_leaves_no_guest_no_control_program_and_no_directory() {
    let bench = Bench::new();
    for with_router in [false, true] {
        let arguments = "run --out run --path vctc-routed --workload rr-1-1 --clients 2 --seconds 20 --trials 1";
        let mut run = bench.start(arguments);
        let guests = || -> Vec<u32> { control_programs(&bench).into_iter().flat_map(children).collect() };
        run.until("a control program", || !control_programs(&bench).is_empty());
        if with_router {
            run.until("the router", || guests().len() == 1);
        }
        let guests = guests();
        signal(run.pid(), Signal::KILL);
        run.end();
        assert_nothing_left(&bench, &guests);
        fs::remove_dir_all(bench.path("run")).unwrap();
    }
}

#[test]
fn a_killed_router_fails_only_its_trial_and_leaves_nothing() {
    let bench = Bench::new();
    let arguments = "--path hipersockets-routed,unix --workload rr-1-1 --clients 1 --seconds 1 --trials 1";
    let routers = || -> Vec<u32> { control_programs(&bench).into_iter().flat_map(children).collect() };
    let mut victims = Vec::new();
    let ended = bench.strike(arguments, ("a router", |_| !routers().is_empty(), Duration::from_millis(400)), |_| {
        victims = routers();
        victims.iter().for_each(|router| signal(*router, Signal::KILL));
    });
    assert!(!ended.err.contains("panicked"), "{ended}");
    let ended = ended.refused(4, &["1 of 2 cells have no figure"]);
    assert!(
        ended.err.contains("guest tcpip2 (process ") && ended.err.contains("ended during the measurement"),
        "{ended}"
    );
    assert_nothing_left(&bench, &victims);
}
