//! Tests of commands as workloads: what is measured and said, what a wrong command does, and what may not stay or be executed.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests assert by unwrapping, and say why they are skipped"
)]

mod common;

use common::{Bench, Ended, children, signal};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;

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
    run(&bench).ok();
    bench.undisturb("run", 2);
    let ended = bench.run("show run").ok();
    assert!(ended.out.contains("work takes") && ended.out.contains("in user mode"), "{ended}");
    assert!(ended.out.contains("CPU time of an execution by process"), "{ended}");
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
    for trial in bench.trials() {
        let each = trial["elapsed_ns"].as_f64().unwrap() / trial["client"]["transactions"].as_f64().unwrap();
        let pause = if trial["cell"]["level"] == "PAUSE=0.1" { 1e8 } else { 2e7 };
        assert!(each >= pause, "an execution takes at least as long as it sleeps: {trial}");
    }
    bench.undisturb("run", 7);
    let shown = bench.run("show run").ok();
    let first = shown.out.lines().next().unwrap();
    let ratio = first.strip_prefix("PAUSE=0.1 takes ").and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    assert!(
        ratio.is_some_and(|ratio| ratio > 1.5) && first.contains(" times as long as PAUSE=0.02 (95% interval "),
        "{shown}"
    );
    let compared = bench.run("compare PAUSE=0.02 PAUSE=0.1 --run run").ok();
    assert!(compared.out.contains("work (rate in runs/sec") && compared.out.contains("worse"), "{compared}");
}

#[test]
fn a_wrong_command_says_why_and_the_run_goes_on() {
    let bench = Bench::new();
    for (command, rest, words) in [
        ("['nosuch-program']", "", "cannot start nosuch-program"),
        ("['./plan.toml']", "", "make the file of the program executable"),
        ("['sh', '-c', 'echo because >&2; exit 3']", "", "ended with exit status 3, not 0: because"),
        ("['sh', '-c', 'kill -9 $$']", "", "was killed by signal 9"),
        ("['sleep', '60']", "time_limit_seconds = 0.1", "longer than its time limit of 0.1 s"),
        ("['sh', '-c', 'echo x > /dev/full']", "", "ended with exit status"),
        ("['sh', '-c', 'ulimit -v 100000; exec head -c 1000000000 /dev/zero | tail']", "", "ended with exit status"),
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
        let hint = "start the command by hand to find the error, then change the command or the plan";
        assert!(ended.err.contains("1 of 2 cells have no figure") && ended.err.contains(hint), "{ended}");
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
    let hint = ["contains these commands: touch made", "repeat the original command line"];
    bench.run("run --resume run").refused(2, &hint);
    let text = fs::read_to_string(&recorded).unwrap();
    fs::write(&recorded, text.replace("\"made\"", "\"other\"")).unwrap();
    bench
        .run("run plan.toml --resume run")
        .refused(2, &["does not match the recorded plan", "settings differ: workload"]);
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

/// The figures of a command that prints `tps = NUMBER` and `latency: NUMBER ms`.
const FIGURES: &str = "unit = { name = 'trans', figure = 'count' }
[[workload.work.figures]]
name = 'tps'
unit = 'trans/s'
better = 'higher'
regex = 'tps = ([0-9.]+)'
[[workload.work.figures]]
name = 'latency'
unit = 'ms'
better = 'lower'
regex = 'latency: (\\S+) (?<unit>\\S+)'
[[workload.work.figures]]
name = 'count'
unit = 'trans'
better = 'higher'
regex = 'count ([0-9]+)'
";

#[test]
fn figures_get_verdicts_in_every_format() {
    let bench = Bench::new();
    // The numbers vary a little from run to run, as those of real programs do.
    let print = "['n=$(date +%N); echo tps = $((TPS * 1000 + ${n#${n%??}}))e-3; echo latency: $((100000 / TPS)) ms; echo count $TPS']";
    let top = "trials = 8\nlevels = [\"env:TPS=1000\", \"env:TPS=2000\"]";
    write_plan(&bench, top, &print.replace("${n#${n%??}}", "1${n%???????} % 7"), &format!("shell = true\n{FIGURES}"));
    run(&bench).ok();
    bench.undisturb("run", 8);
    let shown = bench.run("show run").ok();
    let first = shown.out.lines().next().unwrap();
    assert!(
        first.starts_with("TPS=2000 has 2.00 times the tps of TPS=1000 (95% interval 2.00 to 2.00), which is better"),
        "{shown}"
    );
    assert!(first.contains("TPS=2000 has 0.500 times the latency of TPS=1000"), "{shown}");
    for words in [
        "work: tps, more is better",
        "work: latency, less is better",
        "work: cpu_per_trans, less is better",
        "trans/s    2.00x",
    ] {
        assert!(shown.out.contains(words), "{words}: {shown}");
    }
    let compared = bench.run("compare TPS=1000 TPS=2000 --run run --format json").ok();
    let rows = compared.json()["cells"].as_array().unwrap().clone();
    let row =
        |name: &str| rows.iter().find(|row| row["metric"] == name).unwrap_or_else(|| panic!("{name}: {compared}"));
    for (name, verdict, unit) in [("tps", "better", "trans/s"), ("latency", "better", "ms")] {
        assert!(
            row(name)["verdict"] == verdict && row(name)["unit"] == unit && row(name)["role"] == "main",
            "{name}: {compared}"
        );
    }
    // Times vary on a busy host, so their verdicts may be open.
    assert!(row("trans_rate")["unit"] == "trans/sec" && row("cpu_per_trans")["unit"] == "us/trans", "{compared}");
    let cells = bench.run("show run --format json").ok().cells();
    let figures = cells[0]["figures"].as_array().unwrap();
    assert_eq!(
        figures.iter().map(|one| one["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["tps", "latency", "count", "trans_rate", "cpu_per_trans"]
    );
    assert!(cells[0]["cpu"]["components"]["command"].is_object() && cells[0]["cpu"]["components"]["client"].is_null());
    let csv = bench.run("show run --format csv").ok();
    assert!(csv.out.lines().any(|line| line.ends_with("latency,ms,100")), "{csv}");
    let markdown = bench.run("show run --format md").ok();
    assert!(markdown.out.contains("work: tps, more is better") && !markdown.out.contains("| client"), "{markdown}");
    let exported = bench.run("export run").ok();
    assert_eq!(exported.out.lines().filter(|line| line.contains(",latency,ms,")).count(), 16, "{exported}");
    bench.run("report run -o report.html").ok();
    let page = fs::read_to_string(bench.path("report.html")).unwrap();
    assert!(page.contains("tps") && page.contains("trans/s"), "the page has the figures");
}

#[test]
fn output_without_a_clear_figure_flags_the_trial_and_the_run_goes_on() {
    let bench = Bench::new();
    for (command, words) in [
        ("['true']", "figure tps: the output is empty"),
        (
            "['echo', 'failed: no server']",
            "figure tps: the output contains no value for this figure; the last line of the output is `failed: no server`",
        ),
        ("['printf', 'tps = 1\\ntps = 2\\n']", "figure tps: the output contains 2 values"),
        (
            "['echo', 'tps = 1 latency: 1 s']",
            "figure latency: the output has the unit `s`, but the figure in the plan has the unit `ms`",
        ),
        ("['echo', 'tps = 1 latency: 1 ms count 0']", "the execution did 0 units of work (trans)"),
        ("['head', '-c', '20000000', '/dev/zero']", "the command wrote more than 16 MB of output"),
    ] {
        write_plan(&bench, "trials = 1", command, FIGURES);
        let ended = run(&bench).status(4);
        assert!(ended.out.contains(words), "{words}: {ended}");
        bench.assert_nothing_left();
    }
    // The unit changes between the levels: one has a figure, the other says why not.
    let top = "trials = 1\nlevels = [\"env:UNIT=ms\", \"env:UNIT=us\"]";
    write_plan(&bench, top, "['echo tps = 1 latency: 1 $UNIT count 1']", &format!("shell = true\n{FIGURES}"));
    let ended = run(&bench).status(4);
    assert!(ended.out.contains("UNIT=us: work: figure latency: the output has the unit `us`"), "{ended}");
    assert_eq!(bench.trials().len(), 1, "{ended}");
}

#[test]
fn figures_come_from_json_csv_and_files_and_output_is_checked() {
    let bench = Bench::new();
    let figure = |name: &str, rest: &str| {
        format!("[[workload.work.figures]]\nname = '{name}'\nunit = 'MB'\nbetter = 'higher'\n{rest}\n")
    };
    let json = figure("json", "json = '/jobs/0/bw'\nfile = 'out.json'") + &figure("csv", "csv = 'rate'");
    let script = "['printf \"a,rate\\n1,7\\n\"; echo \"{\\\"jobs\\\": [{\\\"bw\\\": 5}]}\" > out.json']";
    write_plan(&bench, "trials = 1", script, &format!("shell = true\noutput = 'rate'\n{json}"));
    let ended = run(&bench).ok();
    let figures = &bench.trials()[0]["command"]["figures"];
    assert!(figures[0]["sum"].as_f64() > Some(4.0) && figures[1]["name"] == "csv", "{figures} {ended}");
    write_plan(&bench, "trials = 1", "['echo', 'other']", "output = '^rate'");
    assert!(run(&bench).status(4).out.contains("the output of the command does not match the regular expression in `output`; the last line of the output is `other`"));
    // A file of an earlier run is no figure of this one.
    write_plan(&bench, "trials = 1", "['true']", &figure("json", "json = '/jobs/0/bw'\nfile = 'out.json'"));
    std::thread::sleep(std::time::Duration::from_millis(100));
    let ended = run(&bench).status(4);
    assert!(ended.out.contains("figure json: the command has not written the file ./out.json"), "{ended}");
}

#[test]
fn setups_and_teardowns_enclose_their_trials() {
    let bench = Bench::new();
    let hooks = |kind: &str| {
        let one = |scope: &str| format!("{scope} = ['sh', '-c', 'echo {kind} {scope} {{level}}$A >> log']\n");
        format!("[workload.work.{kind}]\n{}", ["run", "level", "round", "trial"].map(one).concat())
    };
    let top = "trials = 2\nseed = 1\nlevels = ['env:A=1', 'env:A=2']";
    write_plan(
        &bench,
        top,
        "['sh', '-c', 'sleep 0.03; cat {scratch}/in/text >> log']",
        &format!("files = {{ 'in/text' = \"run {{level}}\\n\" }}\n{}{}", hooks("setup"), hooks("teardown")),
    );
    let ended = bench.run("run plan.toml --out run --seconds 0.01").ok();
    let log = fs::read_to_string(bench.path("log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    let count = |line: &str| lines.iter().filter(|other| other.starts_with(line)).count();
    for (line, times) in
        [("setup run", 1), ("setup level A=1", 1), ("setup level A=2", 1), ("setup round", 2), ("setup trial", 4)]
    {
        let down = line.replace("setup", "teardown");
        assert_eq!((count(line), count(&down)), (times, times), "{line}: {log} {ended}");
    }
    assert!(lines[0].starts_with("setup run") && lines.last().unwrap().starts_with("teardown run"), "{log}");
    // Within a trial, the level's environment holds, and the file has its text.
    let at = lines.iter().position(|line| *line == "setup trial A=22").unwrap();
    assert_eq!(lines[at + 1..=at + 2], ["run A=2", "teardown trial A=22"], "{log}");
    bench.assert_nothing_left();
}

#[test]
fn teardowns_run_and_the_scratch_directory_goes_whatever_ends_siga() {
    let bench = Bench::new();
    let hooks = "setup = { run = ['sh', '-c', 'echo {scratch} > scratch'] }\nteardown = { run = ['touch', 'down'] }";
    write_plan(&bench, "trials = 1", "['sh', '-c', 'touch started; exec sleep 60']", hooks);
    for what in [Signal::KILL, Signal::INT] {
        let mut running = bench.start("run plan.toml --out run");
        // Without a complete setup, there is nothing to tear down.
        running.until("the command", || bench.path("started").exists());
        let scratch = || fs::read_to_string(bench.path("scratch")).unwrap();
        signal(running.pid(), what);
        running.end();
        bench.assert_nothing_left();
        let directory = scratch();
        assert!(!std::path::Path::new(directory.trim()).exists(), "{what:?}: {directory}");
        for name in ["down", "scratch", "started"] {
            fs::remove_file(bench.path(name)).unwrap();
        }
        fs::remove_dir_all(bench.path("run")).unwrap();
    }
}

#[test]
fn a_wrong_setup_says_why_and_the_run_goes_on() {
    let bench = Bench::new();
    for (hooks, words) in [
        (
            "setup = { level = ['nosuch-program'] }",
            "setup of the level: setup and teardown: nosuch-program: cannot start nosuch-program",
        ),
        ("setup = { trial = ['sh', '-c', 'echo because >&2; exit 3'] }", "ended with exit status 3, not 0: because"),
        ("setup = { run = ['sh', '-c', 'setsid sleep 60 & true'] }", "its process sleep was still running"),
        ("time_limit_seconds = 0.2\nsetup = { run = ['sleep', '60'] }", "longer than its time limit of 0.2 s"),
        ("files = { 'a' = 'x', 'a/b' = 'x' }", "cannot write the file a/b into the scratch directory"),
    ] {
        write_plan(&bench, "trials = 1", "['true']", hooks);
        let ended = run(&bench).status(4);
        assert!(ended.out.contains(words), "{words}: {ended}");
        bench.assert_nothing_left();
    }
    write_plan(&bench, "trials = 1", "['true']", "teardown = { trial = ['false'] }");
    let ended = run(&bench).ok();
    let flag = bench.trials()[0]["flags"][0].as_str().unwrap().to_owned();
    assert!(flag.contains("teardown: ") && flag.contains("exit status 1"), "{flag} {ended}");
    for (rest, words) in [
        ("setup = { run = [] }", "the command of `run` is empty"),
        ("files = { '../x' = 'y' }", "is not the path of a file in the scratch directory"),
        ("stop_after_seconds = 700.0", "less than time_limit_seconds"),
    ] {
        write_plan(&bench, "trials = 1", "['true']", rest);
        bench.run("run plan.toml --out run").refused(2, &[words]);
    }
}

#[test]
fn a_command_that_never_ends_is_measured_for_a_time() {
    let bench = Bench::new();
    let endless = "['sh', '-c', 'trap \"echo done 7; exit 9\" TERM; while :; do sleep 0.01; done']";
    let figure = "stop_after_seconds = 0.3\n[[workload.work.figures]]\nname = 'done'\nunit = 'x'\nbetter = 'higher'\nregex = 'done ([0-9]+)'";
    write_plan(&bench, "trials = 1", endless, figure);
    let ended = run(&bench).ok();
    let trial = &bench.trials()[0];
    assert!(
        trial["elapsed_ns"].as_u64() >= Some(300_000_000) && trial["command"]["figures"][0]["sum"] == 7.0,
        "{trial} {ended}"
    );
    write_plan(&bench, "trials = 1", "['sh', '-c', 'echo gone >&2']", "stop_after_seconds = 0.3");
    let ended = run(&bench).status(4);
    assert!(ended.out.contains("but `stop_after_seconds` is 0.3 s: gone"), "{ended}");
    bench.assert_nothing_left();
}

/// Writes the level `NAME.toml` that has these settings of commands.
fn write_level(bench: &Bench, name: &str, settings: &str) {
    fs::write(bench.path(&format!("{name}.toml")), format!("name = \"{name}\"\n[command]\n{settings}\n")).unwrap();
}

#[test]
fn a_level_changes_arguments_program_cpus_and_nice_value() {
    let bench = Bench::new();
    // Arguments replace their word, or follow the last argument.
    for command in ["['test', '{arguments}', '=', '2']", "['test', '2', '=']"] {
        write_plan(&bench, "trials = 1\nlevels = ['args:2', 'args:3']", command, "");
        let ended = run(&bench).status(4);
        assert!(bench.trials().len() == 1 && bench.trials()[0]["cell"]["level"] == "2", "{command}: {ended}");
        assert!(ended.out.contains("3: work: test ended with exit status 1"), "{command}: {ended}");
    }
    fs::remove_dir_all(bench.path("run")).unwrap();
    let ended = bench.run("run --command true --level-program false --trials 1 --seconds 0.01 --out run").status(4);
    assert!(bench.trials().len() == 1 && bench.trials()[0]["cell"]["level"] == "plain", "{ended}");
    assert!(ended.out.contains("false ended with exit status 1"), "{ended}");
    fs::remove_dir_all(bench.path("run")).unwrap();
    let ended =
        bench.run("run --command true --level-args -x --level-args -y --trials 1 --seconds 0.01 --out run").ok();
    assert!(bench.trials().len() == 2 && bench.trials().iter().any(|trial| trial["cell"]["level"] == "-x"), "{ended}");
    // The command that the report names must not take these names for options.
    assert!(ended.out.contains("`siga compare --run run -- -x -y` shows every figure"), "{ended}");
    bench.run("compare --run run -- -x -y").ok();
    write_level(&bench, "nice", "nice = 7\ncpus = '0'");
    let check = "['test $(nice) = 7 && test $(nproc) = 1']";
    write_plan(&bench, "trials = 1\nlevels = ['nice.toml']", check, "shell = true");
    run(&bench).ok();
    write_level(&bench, "wrong", "nice = 99");
    write_plan(&bench, "trials = 1\nlevels = ['wrong.toml']", check, "shell = true");
    bench.run("run plan.toml --out run").refused(2, &["level wrong.toml: command: nice = 99"]);
    let network = bench.run("plan --path veth --level args:x").out;
    assert!(!network.contains("veth rr"), "a network has no arguments: {network}");
}

#[test]
fn a_command_keeps_the_limits_of_its_level() {
    let bench = Bench::new();
    if !rustix::process::geteuid().is_root() {
        println!("skipped, because limits of control groups need root");
        return;
    }
    let groups_before = ended_groups();
    write_level(&bench, "small", "memory_max = '32m'");
    let hog = "['head', '-c', '200000000', '/dev/zero']";
    write_plan(
        &bench,
        "trials = 1\nlevels = ['plain', 'small.toml']",
        "['sh', '-c', 'x=$(head -c 60000000 /dev/zero | tr \"\\\\0\" a); true']",
        "",
    );
    let ended = run(&bench).status(4);
    if ended.out.contains("is not available") {
        println!("skipped, because no control group limits memory here");
        return;
    }
    assert!(ended.out.contains("the command reached its memory limit of 33554432 bytes"), "{ended}");
    assert_eq!(bench.trials().len(), 1, "the level without the limit has a figure: {ended}");
    // A tenth of a CPU: the command takes longer than its CPU time by far.
    write_level(&bench, "slow", "cpus_max = 0.1");
    write_plan(
        &bench,
        "trials = 1\nlevels = ['slow.toml']",
        "['sh', '-c', 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done']",
        "",
    );
    run(&bench).ok();
    let trial = &bench.trials()[0];
    let (elapsed, cpu) = (trial["elapsed_ns"].as_u64().unwrap(), trial["cpu"]["client"]["run_ns"].as_u64().unwrap());
    assert!(elapsed > 3 * cpu, "{trial}");
    // The cache is dropped before each run, so that each run reads from the disk.
    write_level(&bench, "cold", "page_cache = 'dropped'");
    write_level(&bench, "warm", "page_cache = 'warm'");
    write_plan(
        &bench,
        "trials = 1\nlevels = ['cold.toml', 'warm.toml']",
        &hog.replace("/dev/zero", "/proc/self/exe"),
        "",
    );
    fs::remove_dir_all(bench.path("run")).unwrap();
    bench.run("run plan.toml --out run --seconds 1").ok();
    let read = |at: usize| bench.trials()[at]["command"]["usage"]["bytes_read"].as_u64().unwrap();
    let cold = bench.trials().iter().position(|trial| trial["cell"]["level"] == "cold").unwrap();
    // The program alone has more than 16 KB.
    let executions = bench.trials()[cold]["client"]["transactions"].as_u64().unwrap();
    assert!(read(cold) > executions * 16_000 && read(1 - cold) == 0, "{} {}", read(cold), read(1 - cold));
    // Warm: one more execution than are measured.
    write_plan(&bench, "trials = 1\nlevels = ['warm.toml']", "['sh', '-c', 'echo x >> log']", "");
    run(&bench).ok();
    let executions = bench.trials()[0]["client"]["transactions"].as_u64().unwrap();
    assert_eq!(fs::read_to_string(bench.path("log")).unwrap().lines().count() as u64, executions + 1);
    let left: Vec<String> = ended_groups().into_iter().filter(|group| !groups_before.contains(group)).collect();
    assert!(left.is_empty(), "groups stay: {left:?}");
}

/// Returns the control groups that stayed after the process that made them had ended. Groups of other tests go before their process.
fn ended_groups() -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), vec![PathBuf::from("/sys/fs/cgroup")]);
    while let Some(directory) = open.pop() {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let name = entry.file_name().to_string_lossy().into_owned();
            match name.strip_prefix("siga-command-") {
                Some(pid) if PathBuf::from(format!("/proc/{pid}")).exists() => {}
                Some(_) if entry.path().exists() => found.push(entry.path().display().to_string()),
                Some(_) => {}
                None => open.push(entry.path()),
            }
        }
    }
    found
}

#[test]
fn a_command_has_sysctls_of_its_own_namespace_and_the_huge_pages_of_its_level() {
    let bench = Bench::new();
    if !rustix::process::geteuid().is_root() {
        println!("skipped, because namespaces need root");
        return;
    }
    let before = fs::read_to_string("/proc/sys/net/ipv4/tcp_fin_timeout").unwrap();
    let level = "name = 'own'\n[sysctl]\n'net.ipv4.tcp_fin_timeout' = '17'\n[command]\nhuge_pages = 'never'\n";
    fs::write(bench.path("own.toml"), level).unwrap();
    let check =
        "['test $(cat /proc/sys/net/ipv4/tcp_fin_timeout) = 17 && grep -q \"THP_enabled:.*0\" /proc/self/status']";
    write_plan(&bench, "trials = 1\nlevels = ['own.toml']", check, "shell = true");
    run(&bench).ok();
    assert_eq!(fs::read_to_string("/proc/sys/net/ipv4/tcp_fin_timeout").unwrap(), before);
    let pages = "/sys/kernel/mm/transparent_hugepage/enabled";
    let Ok(before) = fs::read_to_string(pages) else {
        println!("skipped, because the kernel has no transparent huge pages");
        return;
    };
    write_level(&bench, "always", "huge_pages = 'always'");
    write_plan(
        &bench,
        "trials = 1\nlevels = ['always.toml']",
        "['grep', '-F', '[always]', '/sys/kernel/mm/transparent_hugepage/enabled']",
        "",
    );
    run(&bench).ok();
    assert_eq!(fs::read_to_string(pages).unwrap(), before);
}
