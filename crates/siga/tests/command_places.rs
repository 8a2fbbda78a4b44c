//! Tests of commands that need a disk, a namespace or another benchmark program: full disks, limits of reading and writing, places, and
//! results of other programs.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;

use common::{Bench, Ended, has, root};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Stdio};

/// Writes the plan `plan.toml` with one trial of the command `work`.
fn write_plan(bench: &Bench, top: &str, command: &str, rest: &str) {
    let text = format!(
        "name = \"work\"\nworkloads = [\"work\"]\nseconds = 0.01\nwarm_up_seconds = 0.0\ntrials = 1\n{top}\n\
         [workload.work]\ncommand = {command}\n{rest}\n"
    );
    fs::write(bench.path("plan.toml"), text).unwrap();
}

#[test]
fn a_command_that_fills_the_disk_says_so_and_the_run_goes_on() {
    if !root("mount a small file system") || !has("unshare") {
        return;
    }
    let bench = Bench::new();
    fs::create_dir(bench.path("disk")).unwrap();
    let fill = "['sh', '-c', 'test {clients} = 2 || exec cat /dev/zero > disk/fill']";
    write_plan(&bench, "clients = [1, 2]", fill, "teardown.trial = ['rm', '-f', 'disk/fill']");
    let siga = bench.program.display();
    for (out, status, words) in [
        // The command has no room, and the records of the run have.
        ("run", 4, &["work: cat ended with exit status ", "No space left on device"][..]),
        // The records of the run have no room.
        ("disk/run", 3, &["No space left on device", "--out"]),
    ] {
        let fill_before = if out == "run" { "" } else { "head -c 1000000 /dev/zero > disk/full;" };
        let line =
            format!("mount -t tmpfs -o size=900k none disk && {{ {fill_before} {siga} run plan.toml --out {out}; }}");
        let mut command = bench.command("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &line]);
        let ended = Ended::new(&line, command.output().unwrap()).status(status);
        let text = format!("{}{}", ended.out, ended.err);
        assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {ended}");
        bench.assert_nothing_left();
    }
    let measured: Vec<Value> = bench.trials().iter().map(|trial| trial["cell"]["clients"].clone()).collect();
    assert_eq!(measured, [2], "the command that writes nothing is measured");
}

#[test]
fn a_level_limits_the_rates_of_reading_and_writing() {
    if !root("limit a control group") {
        return;
    }
    let bench = Bench::new();
    fs::write(bench.path("slow.toml"), "name = \"slow\"\n[command]\nread_max = '4m'\nwrite_max = '4m'\n").unwrap();
    for (command, counter) in [
        ("['dd', 'if=/dev/zero', 'of=data', 'bs=64k', 'count=64', 'oflag=direct']", "disk_written_bytes"),
        ("['dd', 'if=data', 'of=/dev/null', 'bs=64k', 'count=64', 'iflag=direct']", "disk_read_bytes"),
    ] {
        write_plan(&bench, "levels = ['slow.toml']", command, "");
        let _absent = fs::remove_dir_all(bench.path("run"));
        let ended = bench.run("run plan.toml --out run");
        if ["is not available", "cannot find the disk", "Invalid argument"].iter().any(|why| ended.out.contains(why)) {
            println!("skipped, because the disk of the temporary directory has no limits or no direct I/O: {ended}");
            return;
        }
        let ended = ended.ok();
        let trial = &bench.trials()[0];
        let seconds = trial["elapsed_ns"].as_f64().unwrap() / 1e9;
        // 4 MiB at 4 MiB/s, of which the kernel lets the first through at once.
        assert!(seconds > 0.6, "{seconds} s: {ended}");
        assert!(trial["command"]["host"][counter].as_u64().unwrap() >= 4 << 20, "{trial}");
    }
    bench.assert_nothing_left();
}

/// A process in a network namespace of its own.
struct Container(Child);

impl Container {
    fn start(bench: &Bench) -> Self {
        let mut command = bench.command("unshare");
        command.args(["--net", "sleep", "60"]).stdout(Stdio::null()).stderr(Stdio::null());
        let container = Self(command.spawn().unwrap());
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        while fs::read_link(format!("/proc/{}/ns/net", container.0.id())).unwrap() == own {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        container
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_command_and_its_server_run_in_their_places() {
    if !root("enter a network namespace") || !has("unshare") || !has("ip") {
        return;
    }
    let bench = Bench::new();
    let container = Container::start(&bench);
    let pid = container.0.id();
    let name = format!("siga-test-{}-place", std::process::id());
    let ip = |arguments: &[&str]| assert!(Command::new("ip").args(arguments).status().unwrap().success());
    ip(&["netns", "add", &name]);
    let named = fs::metadata(format!("/run/netns/{name}")).unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&named);
    let server = format!(
        "place = 'netns:{name}'\n[[workload.work.server]]\nplace = 'pid:{pid}'\nready = {{ output = 'up' }}\n\
         command = ['sh', '-c', 'readlink /proc/self/ns/net > of-server; echo up; exec sleep 60']"
    );
    write_plan(&bench, "", "['sh', '-c', 'readlink /proc/self/ns/net > of-command']", &server);
    let ended = bench.run("run plan.toml --out run");
    ip(&["netns", "del", &name]);
    ended.ok();
    let read = |file: &str| fs::read_to_string(bench.path(file)).unwrap().trim().to_owned();
    assert_eq!(read("of-command"), format!("net:[{inode}]"));
    let link = fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    assert_eq!(read("of-server"), link.display().to_string());
    write_plan(&bench, "", "['true']", "place = 'netns:nope'");
    fs::remove_dir_all(bench.path("run")).unwrap();
    let ended = bench.run("run plan.toml --out run").status(4);
    assert!(ended.out.contains("/run/netns/nope") || ended.err.contains("netns:nope"), "{ended}");
    drop(container);
    bench.assert_nothing_left();
}

/// Runs a program of the test in the directory of the bench.
fn made(bench: &Bench, program: &str, arguments: &[&str]) -> String {
    let output = bench.command(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_file_that_hyperfine_wrote_gets_verdicts() {
    if !has("hyperfine") {
        return;
    }
    let bench = Bench::new();
    let arguments = ["-N", "--runs", "8", "--warmup", "1", "--export-json", "all.json", "sleep 0.01", "sleep 0.3"];
    made(&bench, "hyperfine", &arguments);
    let mut command = bench.siga("compare --run all.json --format json");
    let ended = Ended::new("compare", command.args(["sleep 0.01", "sleep 0.3"]).output().unwrap()).ok();
    let row = ended.json()["cells"][0].clone();
    assert!(row["metric"] == "rate" && row["verdict"] == "worse" && row["base_trials"] == 8, "{ended}");
    let report: Value = serde_json::from_str(&fs::read_to_string(bench.path("all.json")).unwrap()).unwrap();
    let mean = |at: usize| report["results"][at]["mean"].as_f64().unwrap();
    let ratio = row["ratio"].as_f64().unwrap() * mean(1) / mean(0);
    assert!((0.8..1.25).contains(&ratio), "siga and hyperfine agree: {ratio} {ended}");
}

#[test]
fn output_of_go_test_gets_verdicts() {
    if !has("go") {
        return;
    }
    let bench = Bench::new();
    fs::write(bench.path("go.mod"), "module example.com/bench\n\ngo 1.20\n").unwrap();
    let code = "package bench\n\nimport \"testing\"\n\nvar sink int\n\nfunc BenchmarkSum(b *testing.B) {\n\t\
        b.ReportAllocs()\n\tfor i := 0; i < b.N; i++ {\n\t\tfor j := 0; j < COUNT; j++ {\n\t\t\tsink += j ^ i\n\t\t}\n\t}\n}\n";
    let cache = bench.path("cache").display().to_string();
    for (file, count) in [("old.txt", "1000"), ("new.txt", "30000")] {
        fs::write(bench.path("sum_test.go"), code.replace("COUNT", count)).unwrap();
        let environment = ["GOFLAGS=-mod=mod".to_owned(), "GOTOOLCHAIN=local".to_owned(), format!("GOCACHE={cache}")];
        let mut command = bench.command("env");
        command.args(environment).args(["go", "test", "-bench", ".", "-count", "8", "-benchtime", "5ms"]);
        let output = command.output().unwrap();
        if !output.status.success() {
            println!("skipped, because go cannot build here: {}", String::from_utf8_lossy(&output.stderr));
            return;
        }
        fs::write(bench.path(file), output.stdout).unwrap();
    }
    let ended = bench.run("compare old.txt new.txt --format json").ok();
    let cells = ended.cells();
    let row = |name: &str| cells.iter().find(|row| row["metric"] == name).unwrap_or_else(|| panic!("{name}: {ended}"));
    assert!(row("rate")["workload"] == "Sum" && row("rate")["base_trials"] == 8, "{ended}");
    assert!(row("rate")["ratio"].as_f64().unwrap() < 0.9, "thirty times the work: {ended}");
}

#[test]
fn benchstat_reads_the_export() {
    let bench = Bench::new();
    write_plan(&bench, "levels = ['env:A=1', 'env:A=2']", "['sleep', '0.01']", "unit = { name = 'nap', count = 1.0 }");
    bench.run("run plan.toml --out run --trials 6").ok();
    bench.undisturb("run", 6);
    let exported = bench.run("export run --form benchstat").ok().out;
    // The format that benchstat documents: a line of keys, then a name, a number of iterations, and values with units.
    for line in exported.lines().filter(|line| !line.is_empty() && !line.contains(": ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words[0].starts_with("Benchmark") && words[1].parse::<u64>().is_ok(), "{line}");
        assert!(words.len() >= 4 && words.len().is_multiple_of(2), "{line}");
        assert!(words[2..].chunks(2).all(|pair| pair[0].parse::<f64>().is_ok()), "{line}");
    }
    assert_eq!(exported.lines().filter(|line| line.starts_with("Benchmark")).count(), 12, "{exported}");
    if !has("benchstat") {
        return;
    }
    fs::write(bench.path("all.txt"), exported).unwrap();
    let table = made(&bench, "benchstat", &["all.txt"]);
    assert!(table.contains("nap/sec") && table.contains("sec/op"), "{table}");
}
