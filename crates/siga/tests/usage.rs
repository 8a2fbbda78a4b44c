//! Tests that invalid requests are refused before anything starts, with the place and advice, and that people, programs and pipes
//! can read the output.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;

use common::{Bench, Ended, has, names, paths_build};
use std::fs;
use std::process::Stdio;

/// Refused arguments, each with words that the message must contain.
const REFUSED: &[(&str, &[&str])] = &[
    ("run nosuch", &["unknown plan `nosuch`", "compilers, compressors, default, disk"]),
    ("run absent.toml", &["cannot read plan absent.toml"]),
    ("run misspelt.toml", &["misspelt.toml", "line 2", "workload"]),
    ("run --path qdio", &["unknown path `qdio`", "veth-routed"]),
    ("run --workload crr-64", &["unknown workload `crr-64`", "strg-20m"]),
    ("run --workload rr:0/1", &["a request cannot have 0 bytes", "1 to 1073741824"]),
    ("run --workload rr:1/2g", &["a response cannot have 2147483648 bytes"]),
    ("run --workload rr:1/99999999999999999999", &["`99999999999999999999` is not a valid size"]),
    ("run --workload udp-rr:8/65508", &["one datagram"]),
    ("run --workload udp-strg:8/8", &["`8/8` is not a valid size"]),
    ("run --workload udp-strp:8/8", &["UDP"]),
    ("run --command true --path veth", &["--command", "--path"]),
    ("run --command a|b", &["the command contains the shell character `|`", "--shell"]),
    ("run --command 'a", &["but no closing '"]),
    ("run --command true --time-limit 0", &["time_limit_seconds = 0"]),
    ("run --command true --level bigtcp", &["sets big_tcp_bytes"]),
    ("run --command true --level-env A", &["`A` is not an assignment to an environment variable", "NAME=VALUE"]),
    ("run --command true --level-env 1A=2", &["`1A` is not a valid name for an environment variable"]),
    ("run --path host", &["path host is only for commands"]),
    ("run --level none", &["unknown level `none`", "bigtcp"]),
    ("run --format yaml", &["unknown format `yaml`", "csv"]),
    ("run --layout wide", &["unknown layout `wide`", "zvm"]),
    ("run --accounting guess", &["profile, subtract or tick"]),
    ("run --clients 0", &["0 client-server pairs", "1 to 10000"]),
    ("run --clients 10001", &["10001 client-server pairs", "1 to 10000"]),
    ("run --clients many", &["--clients"]),
    ("run --processes --clients 1001", &["1001 client-server pairs are too many", "1000"]),
    ("run --processes --clients 2 --port 65535", &["65535", "--port"]),
    ("run --path veth --mtu 67", &["veth supports an MTU from", "the MTU is 67", "--mtu"]),
    ("run --path veth,bridge --mtu 65536", &["65535 bytes, but the MTU is 65536"]),
    ("run --path veth --ipv6 --mtu 1279", &["1280", "the MTU is 1279"]),
    ("run --path unix --workload udp-rr:8/8", &["unix does not support UDP"]),
    ("run --path unix --ipv6", &["unix has no IP addresses"]),
    (
        "run --client local --server local --mtu 90000",
        &["supports an MTU from 128 to 32807 bytes, but the MTU is 90000"],
    ),
    ("run --seconds 0", &["seconds = 0"]),
    ("run --seconds nan", &["seconds = NaN"]),
    ("run --warm-up=-1", &["warm_up_seconds = -1"]),
    ("run --budget 0", &["budget_seconds = 0"]),
    ("run --trials 0", &["trials = 0"]),
    ("run --trials 1001", &["trials = 1001"]),
    ("run --rate 0", &["rate = 0"]),
    ("run --rate 5 --workload strg-20m", &["no transactions that could start at planned times"]),
    ("run --write 0", &["siga cannot write 0 bytes", "--write"]),
    ("run --write 17m", &["17825792"]),
    ("run --write x", &["`x` is not a valid size"]),
    ("run --seed 18446744073709551615", &["seed", "9223372036854775807"]),
    ("run --client-cpus zero", &["`zero` is not a list of CPUs"]),
    ("run --memory-limit much", &["memory_limit", "`much` is not a valid size"]),
    ("run --memory-limit 63m", &["a memory limit of 66060288 bytes is too small", "67108864"]),
    ("run --memory-limit 1g --on local", &["limits the memory of a run only on this host"]),
    ("run --wait maybe", &["block, adaptive or poll"]),
    ("run --close both", &["server or client"]),
    ("run --plant client", &["`client` is not a cost that siga can add", "--plant accepts client=US"]),
    ("run --plant moon=1", &["`moon=1` is not a cost that siga can add"]),
    ("run --plant client=x", &["`client=x` is not a cost that siga can add"]),
    ("run --plant client=-1", &["plant.client_us = -1"]),
    ("run --plant router=51 --path veth-routed", &["plant.router_us = 51", "50"]),
    ("run --plant router=5 --path veth", &["no kernel path of the plan has a router", "veth-routed"]),
    ("run --plant delay=200000 --path veth --workload udp-rr:8/8", &["plant.delay_us = 200000", "lost"]),
    ("run --client local", &["--server"]),
    ("run --client local --server moon", &["`moon` does not name a host", "netns:NAME"]),
    ("run --client local --server pid:0", &["`pid:0` does not name a host"]),
    ("run --client local --server ssh:-oProxyCommand=x", &["does not name a host"]),
    ("run --server-address 127.0.0.1", &["server address", "--client and --server"]),
    ("run --firewall absent.nft", &["cannot read the packet filter absent.nft"]),
    ("run --firewall conntrack", &["must end in .nft", "--level"]),
    ("run --firewall x.nft --level plain", &["cannot be used with"]),
    ("compare absent other --vary moon", &["`moon` is not a part of the environment", "kernel, cpu"]),
    ("run --ssh ssh2", &["--ssh has no effect", "--client and --server"]),
    ("run --congestion reno", &["congestion control", "--client and --server"]),
    ("run --resume run --out other", &["cannot be used with", "--out"]),
    ("run --resume absent", &["absent is not a run directory", "plan.toml"]),
    ("show absent", &["absent is not a run directory", "plan.toml"]),
    ("show tmp --accounting guess", &["profile, subtract or tick"]),
    ("plan --path qdio", &["unknown path `qdio`"]),
    ("published 99", &["99"]),
    ("published 420hss11", &["did not print the trial 420hss11", "it printed 420hss12"]),
    ("published 430hss11", &["not a run identifier", "420, 311 or 208"]),
    ("run zvm430 --run-id 420hcb1", &["has no cell of the run identifier 420hcb1", "420hss1, 311hss1"]),
    ("plan --run-id 420hss1", &["the plan default has no cell", "the plan zvm430 has such cells"]),
    (
        "plan zvm430 --table 19",
        &["the plan zvm430 has no table `19`", "1 (HiperSockets - Streaming 1500)", "18 (VCTC - RR 1500)"],
    ),
    ("run zvm430 --table 4-1", &["the range of tables 4-1 ends before it begins", "1-4"]),
    ("run --table 1", &["the plan default has no tables", "linux2009, zvm430"]),
    ("run zvm430 --table 1 --mtu 1500", &["cannot be used with"]),
    ("run linux2009 --link rate=1gbit", &["table vswitch-osa-1gbe of the plan has a modelled link of its own"]),
    ("plan zvm430 --run-id 420hss1,311vss1", &["level 430 over virtual CTC is 208, not 311"]),
    ("doctor --format csv", &["cannot print the format csv", "json"]),
    ("doctor --calibrate --clean", &["cannot be used with"]),
    ("measure", &["measure"]),
];

#[test]
fn impossible_arguments_are_refused_and_leave_nothing() {
    let bench = Bench::new();
    fs::write(bench.path("misspelt.toml"), "paths = [\"veth\"]\nworkload = [\"rr-1-1\"]\n").unwrap();
    let mut before = names(&bench.path(""));
    before.sort();
    for (arguments, words) in REFUSED {
        bench.run(arguments).refused(2, words);
        let mut after = names(&bench.path(""));
        after.sort();
        assert_eq!(after, before, "siga {arguments} left something behind");
    }
}

#[test]
fn plan_prints_the_matrix_its_skipped_cells_and_its_duration() {
    let bench = Bench::new();
    let ended = bench.run("plan --path veth,unix --workload rr-1-1,udp-rr:8/8 --clients 1,1,3 --trials 2").ok();
    assert_eq!(ended.out.matches("rr-1-1").count(), 4, "equal cells are one: {ended}");
    assert!(ended.out.contains("unix udp-rr:8/8 x3: skipped: path unix does not support UDP"), "{ended}");
    assert!(ended.out.contains("6 cells, 2 rounds of trials, duration: about"), "{ended}");
    assert_eq!(ended.err, "");
    serde_json::from_str::<serde_json::Value>(&bench.run("plan --schema").ok().out).unwrap();
}

#[test]
fn run_identifiers_select_cells_of_a_plan() {
    let bench = Bench::new();
    let ended = bench.run("plan zvm430 --run-id 420hss12,311hsb5,208vrsa,420qnc1,311qjs5,208crsa").ok();
    let cells: Vec<&str> = ended.out.lines().filter(|line| line.contains(" mtu ")).collect();
    let wanted = [
        "hipersockets-routed-iucv strg-20m mtu 1500 x1 420",
        "hipersockets-routed-iucv strg-20m mtu 57344 x5 430",
        "qdio-1gbe-routed-iucv strg-20m mtu 8992 x5 430",
        "qdio-1gbe-routed-iucv crr-64-8k mtu 1500 x1 420",
        "claw-routed-iucv rr-200-1000 mtu 2000 x10 430",
        "vctc-routed-iucv rr-200-1000 mtu 1500 x10 430",
    ];
    assert_eq!(cells, wanted, "{ended}");
}

#[test]
fn a_part_of_a_plan_is_measured_by_its_tables() {
    let bench = Bench::new();
    let ended = bench.run("plan zvm430 --table 9,13-14").ok();
    let lines: Vec<&str> =
        ended.out.lines().filter(|line| line.starts_with("Table ") || line.contains(" mtu ")).collect();
    assert_eq!(lines.len(), 3 * (1 + 6), "{ended}");
    assert_eq!(lines[0], "Table 9. QDIO - Streaming 1500", "{ended}");
    assert_eq!(lines[1], "qdio-1gbe-routed-iucv strg-20m mtu 1500 x1 420", "{ended}");
    assert_eq!(
        lines[7..9],
        ["Table 13. CLAW - Streaming 2000", "claw-routed-iucv strg-20m mtu 2000 x1 420"],
        "{ended}"
    );
    let ended = bench.run("plan linux2009 --table vswitch-osa-1gbe").ok();
    assert_eq!(ended.out.matches(" rate=1gbit").count(), 2 * 6, "{ended}");
    // An option that replaces paths, workloads or MTUs replaces the tables.
    let ended = bench.run("plan zvm430 --path vctc-iucv --workload rr-1-1 --clients 1 --mtu 1500").ok();
    assert!(ended.out.contains("\n2 cells,") && !ended.out.contains("Table "), "{ended}");
    // Without --mtu, the MTUs are those that the tables measure on the path with all workloads.
    for (path, mtu) in [("qdio-1gbe-routed-iucv", 1500), ("hipersockets-routed-iucv", 1500), ("claw-routed-iucv", 2000)]
    {
        let ended = bench.run(&format!("plan zvm430 --path {path}")).ok();
        assert_eq!(ended.out.matches(&format!(" mtu {mtu} ")).count(), 18, "{ended}");
        assert!(ended.out.contains("\n18 cells,"), "{ended}");
    }
    let ended = bench.run("plan zvm430 --path hipersockets-routed-iucv --workload strg-20m").ok();
    assert!(ended.out.contains("\n12 cells,") && ended.out.contains(" mtu 57344 "), "{ended}");
}

#[test]
fn cells_with_a_link_of_their_own_are_below_the_heading_of_their_table() {
    let bench = Bench::new();
    let ended = bench.run("plan zvm430 --table 1,16 --link latency=1ms").ok();
    let lines: Vec<&str> =
        ended.out.lines().filter(|line| line.starts_with("Table ") || line.contains(" mtu ")).collect();
    assert_eq!(lines.len(), 2 * (1 + 6), "{ended}");
    assert!(lines[0].starts_with("Table 1.") && lines[1].contains("hipersockets"), "{ended}");
    assert!(lines[7].starts_with("Table 16.") && lines[8].contains("vctc"), "{ended}");
    assert!(!ended.out.contains("Other cells"), "{ended}");
    let text = "paths = [\"vctc\"]\nworkloads = [\"rr-1-1\"]\nclients = [1]\nlevels = [\"430\"]\n\
        include = [{ path = \"vswitch\" }]\n[[table]]\nid = \"1\"\ntitle = \"t\"\n";
    fs::write(bench.path("own.toml"), text).unwrap();
    let ended = bench.run("plan own.toml").ok();
    assert!(ended.out.contains("\nOther cells\nvswitch "), "{ended}");
}

#[test]
fn every_command_has_examples_in_its_help() {
    let bench = Bench::new();
    let list = bench.run("--help").ok().out;
    let commands = list.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Names are indented by two spaces; a line with more spaces continues the line before.
    let names = commands.filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    let commands: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"run") && commands.contains(&"show"), "{list}");
    assert!(list.contains("Examples:"), "{list}");
    for command in commands.into_iter().filter(|command| *command != "help") {
        let help = bench.run(&format!("{command} --help")).ok();
        let examples = help.out.split("Examples:\n").nth(1).unwrap_or_default();
        assert!(examples.contains(&format!("  siga {command}")), "{help}");
    }
}

#[test]
fn the_version_names_the_commit_and_the_features() {
    let version = Bench::new().run("--version").ok().out;
    let rest = version.strip_prefix(concat!("siga ", env!("CARGO_PKG_VERSION"), " (commit ")).unwrap();
    let (commit, features) = rest.split_once("; features: ").unwrap();
    assert!(!commit.is_empty() && features.trim_end().ends_with(')') && features.len() > 2, "{version}");
}

#[test]
fn a_quiet_run_prints_its_report_and_nothing_else() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let run = "run --path unix,loopback --workload rr-1-1 --clients 1 --seconds 0.05 --trials 2";
    let quiet = bench.run(&format!("{run} --out quiet --quiet")).ok();
    assert!(quiet.err.is_empty() && quiet.out.contains("4 trials in quiet"), "{quiet}");
    let told = bench.run(&format!("{run} --out told")).ok();
    assert!(told.err.contains("unix rr-1-1"), "{told}");
    // An error is printed, too.
    bench.run("show absent --quiet").refused(2, &["absent is not a run directory"]);
}

#[test]
fn every_schema_is_json() {
    let bench = Bench::new();
    for kind in ["plan", "level", "result"] {
        let schema: serde_json::Value = serde_json::from_str(&bench.run(&format!("schema {kind}")).ok().out).unwrap();
        assert_eq!(schema["title"].as_str().map(str::to_lowercase), Some(kind.to_owned()));
    }
}

#[test]
fn reports_are_printed_as_text_json_csv_and_markdown() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let ended =
        bench.measure("--path veth,veth-routed,unix --workload rr-1-1,strg-20m,udp-rr:8/8 --clients 1").status(4);
    let plain = |text: &str| !text.contains(|letter: char| letter.is_control() && letter != '\n');
    assert!(plain(&ended.out) && plain(&ended.err), "no progress line, no colours: {ended}");
    assert!(ended.out.contains("8 trials in run"), "{ended}");
    assert!(ended.err.contains("unix udp-rr:8/8 x1: path unix does not support UDP"), "{ended}");
    assert!(ended.err.contains("1 of 9 cells have no figure"), "{ended}");

    let shown = bench.run("show run").ok();
    assert_eq!(shown.out, ended.out, "a finished run shows as it ended");
    assert_eq!(shown.err, "");
    bench.undisturb("run", 1);
    let shown = bench.run("show run").ok();
    assert!(shown.out.contains("A router may change the CPU time per transaction (inconclusive: "), "{shown}");
    assert_eq!(bench.run("show run --format json").ok().cells().len(), 9);
    let csv = bench.run("show run --format csv").ok().out;
    assert_eq!(csv.lines().count(), 1 + 9, "{csv}");
    assert!(csv.lines().all(|line| line.split(',').count() >= 30), "{csv}");
    let markdown = bench.run("show run --format md").ok().out;
    assert!(markdown.contains("|workload ") && markdown.contains("|---"), "{markdown}");
    let zvm = bench.run("show run --layout zvm").ok().out;
    assert!(zvm.contains("Number of clients"), "{zvm}");
    for method in ["profile", "subtract", "tick"] {
        bench.run(&format!("show run --format json --accounting {method}")).ok();
    }
}

#[test]
fn a_run_whose_output_nobody_reads_measures_to_its_end() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    let arguments = "run --out run --path unix,loopback --workload rr-1-1 --clients 1 --seconds 0.05 --trials 2";
    // The output is a pipe without a reader.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = bench.siga(arguments).stderr(writer.try_clone().unwrap()).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "`siga run 2>&1 | head -0` measures to its end");
    assert_eq!(bench.trials().len(), 4);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = bench.siga("show run --format json").stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
    if fs::exists("/dev/full").unwrap() {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = bench.siga("show run").stdout(full).output().unwrap();
        let ended = Ended::new("show run >/dev/full", output).status(3);
        assert!(ended.err.contains("cannot write to standard output"), "{ended}");
    }
}

#[test]
fn a_run_needs_no_input_and_no_terminal() {
    let bench = Bench::new();
    if !paths_build(&bench) || !has("setsid") {
        return;
    }
    let mut command = bench.command("setsid");
    command.args(["--wait", bench.program.to_str().unwrap(), "run", "--out", "run", "--path", "unix", "--quick"]);
    command.args(["--workload", "rr-1-1", "--clients", "1"]).stdin(Stdio::null());
    let ended = Ended::new("setsid siga run", command.output().unwrap()).ok();
    assert!(ended.out.starts_with("SMOKE RUN"), "{ended}");
}

#[test]
fn absent_cpus_are_named_in_the_error() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    for cpus in ["1000", "4294967295"] {
        let ended = bench.run(&format!("run --path unix --workload rr-1-1 --clients 1 --quick --client-cpus {cpus}"));
        assert!(ended.err.contains(cpus), "{ended}");
        ended.refused(3, &["CPU"]);
    }
}
