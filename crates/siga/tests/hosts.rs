//! Tests of runs on several hosts. In most tests, a host is a network namespace with CPUs of its own, in which a script that stands for
//! ssh runs the command that siga sends. Two tests use real ssh servers.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;

use common::sshd::Host;
use common::{Bench, Ended, Running, children, has, names, root, script, signal};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A plan with one command, which notes each of its executions and its teardown in files.
const PLAN: &str = "name = \"work\"\nworkloads = [\"work\"]\nseconds = 0.02\nwarm_up_seconds = 0.0\n[workload.work]\n";

/// Returns a bench with the script `ssh`, whose hosts `one` and `two` have that many CPUs; `None` if this host cannot have them.
fn bench() -> Option<Bench> {
    if !root("make network namespaces") || !["unshare", "taskset"].into_iter().all(has) {
        return None;
    }
    if std::thread::available_parallelism().unwrap().get() < 2 {
        println!("skipped, because this host has one CPU");
        return None;
    }
    let bench = Bench::new();
    let lines = [
        "#!/bin/sh",
        "for word; do host=$script script=$word; done",
        "case $host in",
        "one) exec unshare --net taskset -c 0 sh -c \"$script\" ;;",
        "two) exec unshare --net taskset -c 0,1 sh -c \"$script\" ;;",
        // Without the directory of the test, in which `tool` is.
        "bare) PATH=/usr/sbin:/usr/bin:/sbin:/bin exec sh -c \"$script\" ;;",
        "fleeting) FLEETING=1 exec sh -c \"$script\" ;;",
        "old) echo '{\"ok\":{\"is\":\"hello\",\"version\":99,\"addresses\":[]}}'; exec cat >/dev/null ;;",
        "*) echo \"ssh: connect to host $host port 22: Connection refused\" >&2; exit 255 ;;",
        "esac",
        "",
    ];
    script(&bench.path("ssh"), &lines.join("\n"));
    Some(bench)
}

fn write_plan(bench: &Bench, rest: &str) {
    fs::write(bench.path("plan.toml"), format!("{PLAN}{rest}\n")).unwrap();
}

fn on(bench: &Bench, options: &str) -> Ended {
    let _absent = fs::remove_dir_all(bench.path("run"));
    bench.run(&format!("run plan.toml --ssh ./ssh --out run {options}"))
}

fn trials(directory: &Path) -> Vec<Value> {
    let text = fs::read_to_string(directory.join("trials.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn two_hosts_measure_in_turns_and_are_compared() {
    let Some(bench) = bench() else { return };
    // Two loops in a row use one CPU, and both at once use two.
    let work = "command = ['sh', '-c', 'l() { i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; }; l & l & wait']\n\
        unit = { name = \"loop\", count = 2.0 }";
    write_plan(&bench, work);
    let ended = on(&bench, "--on ssh:one,ssh:two --trials 6").ok();
    for words in ["run/2-ssh-two against run/1-ssh-one: two hosts", "CPUs", "1 of ", "as a whole", "ITR"] {
        assert!(ended.out.contains(words), "nothing about `{words}`: {ended}");
    }
    let first_ratio = ended.out.find("work (loop/sec)").unwrap();
    assert!(ended.out.find("The same on both: machine").unwrap() < first_ratio, "the hosts come first: {ended}");
    let [one, two] = ["run/1-ssh-one", "run/2-ssh-two"].map(|run| trials(&bench.path(run)));
    // Disturbed rounds are repeated, on both hosts.
    assert_eq!(one.len(), two.len());
    assert!((6..=9).contains(&one.len()), "{} rounds", one.len());
    let at = |trial: &Value| trial["at"].as_str().unwrap().to_owned();
    for round in 1..one.len() {
        let both = [at(&one[round]), at(&two[round])];
        assert!(both.iter().all(|now| *now > at(&one[round - 1]) && *now > at(&two[round - 1])), "round {round}");
    }
    let cpus = |run: &str| -> Value {
        let text = fs::read_to_string(bench.path(run).join("environment.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["cpu"]["allowed"].clone()
    };
    assert_eq!((cpus("run/1-ssh-one"), cpus("run/2-ssh-two")), (1.into(), 2.into()));

    ["run/1-ssh-one", "run/2-ssh-two"].iter().for_each(|run| bench.undisturb(run, 6));
    let compared = bench.run("compare --hosts run/1-ssh-one run/2-ssh-two --format json").ok().json();
    let work = &compared["hosts"]["work"][0];
    assert_eq!((&work["base_cpus"], &work["new_cpus"], &work["unit"]), (&1.into(), &2.into(), &"loop/sec".into()));
    let number = |name: &str| work[name].as_f64().unwrap();
    let close = |left: f64, right: f64| (left / right - 1.0).abs() < 1e-9;
    assert!(close(number("itr_ratio") * number("cpu_ratio"), 1.0), "{work:#}");
    assert!(close(number("itr_ratio"), number("new_itr") / number("base_itr")), "{work:#}");
    assert!(close(number("rate_ratio"), number("new_rate") / number("base_rate")), "{work:#}");
    for name in ["rate", "itr", "cpu"] {
        let [low, ratio, high] = ["low", "ratio", "high"].map(|end| number(&format!("{name}_{end}")));
        assert!(low <= ratio && ratio <= high && low < high, "{name}: {work:#}");
    }
    // A rate is the ITR times the CPUs in use, of which there are at most as many as the host has.
    assert!(number("base_rate") < 1.3 * number("base_itr") && number("new_rate") < 2.3 * number("new_itr"), "{work:#}");
    let csv = bench.run("compare --hosts run/1-ssh-one run/2-ssh-two --format csv").ok();
    let mut lines = csv.out.lines();
    assert!(lines.next().unwrap().starts_with("base,new,path,workload") && lines.count() == 1, "{csv}");
    bench.run("compare --hosts run/1-ssh-one run/2-ssh-two --format md --all").ok();
    // Without --hosts, figures of different numbers of CPUs are not comparable.
    let plain = bench.run("compare run/1-ssh-one run/2-ssh-two").ok();
    assert!(plain.out.contains("Not comparable: cpu.allowed: 1 -> 2"), "{plain}");
    bench.assert_nothing_left();
}

/// Returns a bench with two hosts behind real ssh servers, of which the first has one CPU; `None` if this machine cannot have them.
fn real_hosts() -> Option<(Bench, [Host; 2])> {
    let bench = Bench::new();
    let one = Host::start(&bench, "one", "0")?;
    let two = Host::start(&bench, "two", "")?;
    Some((bench, [one, two]))
}

fn over_ssh(bench: &Bench, options: &str) -> Command {
    let mut command = bench.siga(&format!("run plan.toml --out run {options}"));
    command.args(["--ssh", "ssh -F ssh_config"]);
    command
}

#[test]
fn hosts_behind_real_ssh_measure_in_turns_and_are_compared() {
    let Some((bench, hosts)) = real_hosts() else { return };
    // Commands run in the session of ssh, in the home directory of its user.
    let work = "command = ['sh', '-c', 'test \"$PWD\" = \"$HOME\" && test -n \"$SSH_CONNECTION\" && nproc && seq 20000 | md5sum']\n\
        [[workload.work.figures]]\nname = \"nproc\"\nunit = \"CPUs\"\nbetter = \"higher\"\nregex = '(?m)^[0-9]+$'";
    write_plan(&bench, work);
    let ended = Ended::new("run", over_ssh(&bench, "--on ssh:one,ssh:two --trials 3").output().unwrap()).ok();
    assert!(ended.out.contains("run/2-ssh-two against run/1-ssh-one: two hosts"), "{ended}");
    let runs = ["run/1-ssh-one", "run/2-ssh-two"].map(|run| trials(&bench.path(run)));
    let all = std::thread::available_parallelism().unwrap().get();
    for (trials, cpus) in runs.iter().zip([1, all]) {
        assert_eq!(trials.len(), 3, "{ended}");
        let figures = trials.iter().map(|trial| &trial["command"]["figures"][0]);
        for figure in figures {
            assert_eq!((&figure["least"], &figure["most"]), (&(cpus as f64).into(), &(cpus as f64).into()), "{ended}");
        }
    }
    let at = |run: usize, round: usize| runs[run][round]["at"].as_str().unwrap().to_owned();
    for round in 1..3 {
        assert!((0..4).all(|pair| at(pair / 2, round) > at(pair % 2, round - 1)), "round {round}: {ended}");
    }
    let compared = bench.run("compare --hosts run/1-ssh-one run/2-ssh-two --format json").ok().json();
    let work = &compared["hosts"]["work"][0];
    assert_eq!((&work["base_cpus"], &work["new_cpus"]), (&1.into(), &all.into()), "{work:#}");
    for host in &hosts {
        assert!(names(&host.remote).is_empty() && host.agents().is_empty(), "the copy of siga is gone");
    }
    drop(hosts);
    bench.assert_nothing_left();
}

#[test]
fn teardowns_run_behind_real_ssh_whatever_ends_siga() {
    let Some((bench, [one, two])) = real_hosts() else { return };
    let place = bench.path("").display().to_string();
    let hooks = format!(
        "command = ['sh', '-c', 'touch {place}started; exec sleep 60']\n\
         teardown = {{ run = ['sh', '-c', 'rmdir {{scratch}}/x; touch {place}down'] }}\n\
         setup = {{ run = ['mkdir', '{{scratch}}/x'] }}"
    );
    write_plan(&bench, &hooks);
    for what in [Signal::KILL, Signal::TERM] {
        let mut running = Running::new(over_ssh(&bench, "--on ssh:two --trials 1"));
        running.until("the command", || bench.path("started").exists());
        assert!(!two.agents().is_empty() && names(&two.remote).len() == 1, "the scratch directory is on the host");
        signal(running.pid(), what);
        running.end();
        let begun = std::time::Instant::now();
        while !(bench.path("down").exists() && names(&two.remote).is_empty() && two.agents().is_empty()) {
            assert!(begun.elapsed() < common::SOON, "{what:?}: {:?} {:?}", names(&two.remote), two.agents());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        ["down", "started"].iter().for_each(|name| fs::remove_file(bench.path(name)).unwrap());
        fs::remove_dir_all(bench.path("run")).unwrap();
    }
    drop((one, two));
    bench.assert_nothing_left();
}

#[test]
fn a_host_that_cannot_measure_is_refused_before_anything_is_measured() {
    let Some(bench) = bench() else { return };
    write_plan(&bench, "command = ['touch', 'measured']");
    for (places, status, words) in [
        ("ssh:one,ssh:gone", 3, &["ssh:gone: siga: the process died", "Connection refused", "--ssh"][..]),
        ("ssh:one,ssh:old", 3, &["ssh:old: siga: ", "version 99"]),
        ("ssh:one,netns:nope", 3, &["netns:nope: this network namespace does not exist"]),
        ("ssh:one,ssh:one", 2, &["--on names ssh:one twice"]),
        ("one", 2, &["`one` does not name a host", "ssh:[USER@]HOST"]),
    ] {
        on(&bench, &format!("--on {places} --trials 1")).refused(status, words);
        assert!(!bench.path("run").exists() && !bench.path("measured").exists(), "{places}");
    }
    bench
        .run("run --client local --server ssh:one --on local --workload rr-1-1")
        .refused(2, &["reaches ssh:one by itself"]);
    bench.run("run plan.toml --on local --ssh ./ssh").refused(2, &["--ssh has no effect"]);
    bench.run("run plan.toml --on local --resume run").refused(2, &["--on", "--resume"]);
    bench.assert_nothing_left();
}

#[test]
fn a_plan_lists_how_its_hosts_are_reached() {
    let bench = Bench::new();
    write_plan(&bench, "command = ['true']");
    let ended = bench.run("plan plan.toml --on local,netns:blue,ssh:red --ssh ./ssh").ok();
    for words in
        ["/proc/self/exe measurer\n", "measurer --net /run/netns/blue", "BatchMode=yes red", "measurer --unlink"]
    {
        assert!(ended.out.contains(words), "nothing about `{words}`: {ended}");
    }
}

#[test]
fn a_host_without_a_program_skips_its_cells_and_the_other_measures() {
    let Some(bench) = bench() else { return };
    fs::create_dir(bench.path("bin")).unwrap();
    script(&bench.path("bin/tool"), "#!/bin/sh\n:\n");
    write_plan(&bench, "command = ['tool']\nneeds = [{ file = 'tool', package = 'tools' }]");
    let mut command = bench.siga("run plan.toml --ssh ./ssh --out run --on ssh:two,ssh:bare --trials 1");
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", bench.path("bin").display()));
    let ended = Ended::new("run", command.output().unwrap());
    let ended = ended.refused(4, &["run/2-ssh-bare: 1 of 1 cells have no figure"]);
    assert!(ended.err.contains("ssh:bare:\nskipped work: this host has no tool (package tools)"), "{ended}");
    assert_eq!(ended.err.matches("skipped work").count(), 1, "nothing is attempted: {ended}");
    assert_eq!(trials(&bench.path("run/1-ssh-two")).len(), 1);
    bench.assert_nothing_left();
}

#[test]
fn a_host_that_is_lost_ends_its_own_run_and_the_others_go_on() {
    let Some(bench) = bench() else { return };
    // On the host that is lost, the command kills the parent of the process that runs it: siga.
    let kill = "command = ['sh', '-c', 'test -z \"$FLEETING\" || kill -KILL $(cut -d \" \" -f 4 /proc/$PPID/stat); sleep 0.05']";
    write_plan(&bench, kill);
    let ended =
        on(&bench, "--on ssh:fleeting,ssh:two --trials 3").refused(4, &["ssh:fleeting: siga: the process died"]);
    assert_eq!(trials(&bench.path("run/2-ssh-two")).len(), 3, "{ended}");
    assert!(bench.path("run/2-ssh-two/end.json").exists() && !bench.path("run/1-ssh-fleeting/end.json").exists());
    bench.assert_nothing_left();
}

#[test]
fn teardowns_run_on_the_host_whatever_ends_siga() {
    let Some(bench) = bench() else { return };
    let hooks = "command = ['sh', '-c', 'touch started; exec sleep 60']\n\
        setup = { run = ['sh', '-c', 'echo {scratch} > scratch'] }\nteardown = { run = ['touch', 'down'] }";
    write_plan(&bench, hooks);
    for what in [Signal::KILL, Signal::INT] {
        let mut running = Running::new(bench.siga("run plan.toml --ssh ./ssh --out run --on ssh:two --trials 1"));
        running.until("the command", || bench.path("started").exists());
        let scratch = fs::read_to_string(bench.path("scratch")).unwrap();
        assert!(!children(running.pid()).is_empty());
        signal(running.pid(), what);
        running.end();
        bench.assert_nothing_left();
        assert!(!Path::new(scratch.trim()).exists() && bench.path("down").exists(), "{what:?}");
        ["down", "scratch", "started"].iter().for_each(|name| fs::remove_file(bench.path(name)).unwrap());
        fs::remove_dir_all(bench.path("run")).unwrap();
    }
    assert_eq!(names(&bench.path("tmp")), [""; 0]);
}

#[test]
fn a_command_on_a_host_has_the_limits_of_the_user() {
    let Some(bench) = bench() else { return };
    write_plan(&bench, "command = ['sh', '-c', 'ulimit -n > limit; cat /proc/self/timerslack_ns > slack']");
    on(&bench, "--on ssh:two --trials 1").ok();
    let own = |line: &str| {
        let output = Command::new("sh").args(["-c", line]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(fs::read_to_string(bench.path("limit")).unwrap(), own("ulimit -n"));
    assert_eq!(fs::read_to_string(bench.path("slack")).unwrap(), own("cat /proc/self/timerslack_ns"));
}
