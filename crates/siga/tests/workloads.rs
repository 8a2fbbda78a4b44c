//! Tests of commands with servers, of the shipped plans that measure commands, and of results of other benchmark programs.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests assert by unwrapping, and say why they are skipped"
)]

mod common;

use common::{Bench, Ended};
use std::fs;

/// A server that answers `busy` with some work, and says when it is ready.
const SERVER: &str = r#"
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
open("port", "w").write(str(listener.getsockname()[1]))
print("ready now", flush=True)
while True:
    peer, _ = listener.accept()
    for _ in range(20): sum(range(100000))
    peer.sendall(b"done 3\n")
    peer.close()
"#;

const CLIENT: &str = r#"
import socket
print(socket.create_connection(("127.0.0.1", int(open("port").read()))).recv(100).decode())
"#;

fn has_python() -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|path| path.join("python3").exists());
    if !found {
        println!("skipped, because this host has no python3");
    }
    found
}

fn run(bench: &Bench, plan: &str) -> Ended {
    fs::write(bench.path("plan.toml"), plan).unwrap();
    let _absent = fs::remove_dir_all(bench.path("run"));
    bench.run("run plan.toml --out run")
}

fn plan(server: &str) -> String {
    format!(
        "workloads = ['work']\nseconds = 0.01\nwarm_up_seconds = 0.0\ntrials = 2\n[workload.work]\ncommand = ['python3', 'client.py']\noutput = 'done'\nunit = {{ name = 'answer', count = 1.0 }}\n{server}\n"
    )
}

#[test]
fn a_server_is_ready_before_its_command_and_charged_apart() {
    let bench = Bench::new();
    if !has_python() {
        return;
    }
    fs::write(bench.path("server.py"), SERVER).unwrap();
    fs::write(bench.path("client.py"), CLIENT).unwrap();
    let server = "[[workload.work.server]]\ncommand = ['python3', 'server.py']\nready = { output = '^ready' }";
    let ended = run(&bench, &plan(server)).ok();
    for trial in bench.trials() {
        let ns = |side: &str| trial["cpu"][side]["run_ns"].as_u64().unwrap();
        assert!(ns("client") > 1_000_000 && ns("server") > 5_000_000, "{trial} {ended}");
        let own = trial["command"]["processes"].as_object().unwrap().values();
        let own: u64 = own.map(|used| used["cpu"]["run_ns"].as_u64().unwrap()).sum();
        assert_eq!(own, ns("client"), "the command is charged with its own processes only: {trial}");
        assert!(
            trial["command"]["server"].as_object().unwrap().keys().any(|name| name.starts_with("python3")),
            "{trial}"
        );
        let per_answer = trial["cpu"]["client"]["run_ns"].as_u64().unwrap() + ns("server");
        assert!(trial["command"]["work"]["amount"] == 1.0 && per_answer > 6_000_000, "{trial}");
    }
    let shown = bench.run("show run").ok();
    assert!(shown.out.contains("    server: python3 "), "{shown}");
    let cell = &bench.run("show run --format json").ok().cells()[0];
    let total = |part: &str| cell["cpu"]["components"][part]["total"].as_f64().unwrap();
    assert!((total("client") + total("server") - cell["cpu"]["total"].as_f64().unwrap()).abs() < 1e-6, "{cell}");
    let exported = bench.run("export run").ok();
    assert!(exported.out.contains(",server_cpu,"), "{exported}");
    bench.assert_nothing_left();
}

#[test]
fn a_server_that_does_not_serve_says_why() {
    let bench = Bench::new();
    for (server, words) in [
        (
            "command = ['sh', '-c', 'echo because >&2; exit 1']\nready = { output = 'x' }",
            "the server sh ended: because",
        ),
        (
            "command = ['sleep', '60']\nready = { output = 'x' }\nready_seconds = 0.2",
            "the server sleep is not ready after 0.2 s",
        ),
        ("command = ['sleep', '60']\nready = { port = 1 }\nready_seconds = 0.2", "is not ready after 0.2 s"),
        ("command = ['sleep', '60']\nready = { file = 'absent' }\nready_seconds = 0.2", "is not ready after 0.2 s"),
        ("command = ['nosuch-program']\nready = { port = 1 }", "cannot start nosuch-program"),
        (
            "command = ['sh', '-c', 'echo x; sleep 0.1; echo late >&2']\nready = { output = 'x' }",
            "the server sh ended: late",
        ),
    ] {
        let text = plan(&format!("[[workload.work.server]]\n{server}"));
        let text = text
            .replace("trials = 2", "trials = 1")
            .replace("'python3', 'client.py'", "'sh', '-c', 'sleep 0.3; echo done'");
        let ended = run(&bench, &text).status(4);
        assert!(ended.out.contains(words), "{words}: {ended}");
        bench.assert_nothing_left();
    }
}

#[test]
fn a_cell_that_lacks_a_program_is_skipped_with_the_package() {
    let bench = Bench::new();
    let needs =
        "needs = [{ file = 'nosuch-program', package = 'nosuch', level = 'A=2' }, { file = 'sh', package = 'dash' }]";
    let text = format!(
        "workloads = ['work']\nlevels = ['env:A=1', 'env:A=2']\ntrials = 1\nseconds = 0.01\n[workload.work]\ncommand = ['true']\n{needs}\n"
    );
    let words = "this host has no nosuch-program (package nosuch): `apt-get install --no-install-recommends nosuch`";
    let ended = run(&bench, &text).status(4);
    assert!(ended.out.contains(words) && bench.trials().len() == 1, "{ended}");
    let listed = bench.run("plan plan.toml").ok();
    assert!(listed.out.contains(&format!("A=2: work: skipped: {words}")) || listed.out.contains(words), "{listed}");
    let ended = run(&bench, &text.replace(", level = 'A=2'", "")).status(4);
    assert!(ended.out.contains(words), "{ended}");
}

#[test]
fn shipped_plans_of_commands_list_their_commands_without_running_them() {
    let bench = Bench::new();
    let entries = || fs::read_dir(bench.path(".")).unwrap().count();
    let before = entries();
    for (name, command) in [
        ("compilers", "$CC -o \"$1\" \"$2\""),
        ("telco", "'{scratch}/telco' decimal64"),
        ("disk", "--ioengine=io_uring"),
        // Blocks that were never written are read without the disk.
        ("disk", "dd if=/dev/zero 'of={scratch}/data' bs=1M count=256"),
        ("fileserver", "dbench -D"),
        ("java", "-XX:+UseSerialGC"),
        ("programs", "'{scratch}/server.sh'"),
        ("oltp", "a server of the command pgbench"),
    ] {
        let listed = bench.run(&format!("plan {name}")).ok();
        assert!(listed.out.contains(command) || listed.out.contains("this host has no "), "{name}: {listed}");
        assert_eq!(entries(), before, "{name} executed something");
        assert!(!listed.err.contains("cannot give a verdict"), "{name} has too few trials: {listed}");
        assert!(listed.out.contains(", or longer if an execution of a command takes more than "), "{name}: {listed}");
    }
    let some = bench.run("plan disk --workload read --clients 1").ok();
    assert!(!some.out.contains("random-write"), "an option selects some commands of a plan: {some}");
}

#[test]
fn results_of_other_programs_get_verdicts() {
    let bench = Bench::new();
    let go = |ns: u32| (0..8).map(|at| format!("BenchmarkSort-8 1000 {} ns/op 64 B/op\n", ns + at)).collect::<String>();
    fs::write(bench.path("old.txt"), go(200)).unwrap();
    fs::write(bench.path("new.txt"), go(100)).unwrap();
    let compared = bench.run("compare old.txt new.txt").ok();
    assert!(compared.out.contains("Sort") && compared.out.contains("better"), "{compared}");
    assert!(compared.out.contains("come from another program"), "{compared}");
    let rate = &bench.run("compare old.txt new.txt --format json").ok().json()["cells"][0];
    assert!(rate["metric"] == "rate" && rate["verdict"] == "better", "{rate}");
    let times =
        |seconds: f64| (0..9).map(|at| format!("{}", seconds + 0.0001 * f64::from(at))).collect::<Vec<_>>().join(",");
    let json = format!(
        "{{\"results\": [{{\"command\": \"a\", \"times\": [{}]}}, {{\"command\": \"b\", \"times\": [{}]}}]}}",
        times(0.1),
        times(0.2)
    );
    fs::write(bench.path("hyperfine.json"), json).unwrap();
    let compared = bench.run("compare a b --run hyperfine.json --format json").ok();
    assert_eq!(compared.json()["cells"][0]["verdict"], "worse", "{compared}");
    fs::write(bench.path("other"), "text").unwrap();
    bench.run("compare other old.txt").refused(2, &["does not know the format"]);
}

#[test]
fn benchstat_reads_the_trials_of_a_run() {
    let bench = Bench::new();
    let text = "workloads = ['sleep']\nlevels = ['env:A=1', 'env:A=2']\ntrials = 2\nseconds = 0.02\n[workload.sleep]\ncommand = ['sleep', '0.01']\n";
    run(&bench, text).ok();
    bench.undisturb("run", 2);
    let exported = bench.run("export run --form benchstat").ok();
    assert_eq!(exported.out.lines().count(), 4, "{exported}");
    for line in exported.out.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words[0].starts_with("BenchmarkSleep/path=host/clients=1/level=A="), "{line}");
        assert!(
            words[3] == "ns/op" && words[2].parse::<f64>().unwrap() > 1e7 && words.len().is_multiple_of(2),
            "{line}"
        );
    }
}
