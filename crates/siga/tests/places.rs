//! Tests of existing places: namespaces, containers, hosts behind ssh, and everything that can be wrong with a place.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;

use common::sshd::Host;
use common::{Bench, Ended, Running, SHORT, has, names, paths_build, root, script};
use rustix::process::Signal;
use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const RR: &str = "--workload rr-1-1 --clients 2";

#[test]
fn a_port_in_use_is_named_with_advice() {
    let bench = Bench::new();
    let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let ended = bench.measure(&format!("--client local --server local --port {port} {RR}"));
    ended.refused(3, &[&format!("cannot listen on tcp 0.0.0.0:{port}"), "in use", "another port with --port"]);
    drop(taken);
    let second = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap().local_addr().unwrap().port();
    fs::remove_dir_all(bench.path("run")).unwrap();
    bench.measure(&format!("--client local --server local --port {second} {RR}")).ok();
    bench.assert_nothing_left();
}

#[test]
fn a_limit_of_descriptors_that_is_too_low_is_reported_with_the_number_needed() {
    let Some(bench) = Bench::unprivileged() else { return };
    if !paths_build(&bench) {
        return;
    }
    for (arguments, number) in [
        ("--path loopback --workload rr-1-1 --clients 10000", "10064"),
        ("--path veth --workload rr-1-1 --clients 300 --processes", "664"),
    ] {
        let mut command = bench.command("sh");
        command.args(["-c", "ulimit -n 256; exec \"$0\" run --out run \"$@\""]).arg(&bench.program);
        command.args(arguments.split(' ')).args(SHORT);
        let ended = Ended::new(arguments, command.output().unwrap());
        ended.refused(3, &[&format!("need {number} file descriptors"), "is 256", "ulimit -n", "--clients"]);
        fs::remove_dir_all(bench.path("run")).unwrap();
    }
    bench.assert_nothing_left();
}

#[test]
fn an_absent_place_is_named_in_the_error() {
    let bench = Bench::new();
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    for (place, words) in [
        ("netns:nope".to_owned(), &["netns:nope: this network namespace does not exist", "ip netns list"][..]),
        (format!("pid:{}", gone.id()), &["this process does not exist", "container"]),
        ("pid:4294967295".to_owned(), &["pid:4294967295: this process does not exist"]),
    ] {
        for ends in [format!("--client {place} --server local"), format!("--client local --server {place}")] {
            let ended = bench.measure(&format!("{ends} {RR}"));
            ended.refused(3, words);
            fs::remove_dir_all(bench.path("run")).unwrap();
        }
    }
    bench.assert_nothing_left();
}

#[test]
fn a_place_that_refuses_access_is_named_in_the_error() {
    let Some(bench) = Bench::unprivileged() else { return };
    let ended = bench.measure(&format!("--client pid:1 --server local {RR}"));
    ended.refused(3, &["pid:1: ", "cannot open /proc/1/ns/", "Permission denied", "siga as root"]);
    bench.assert_nothing_left();
}

#[test]
fn an_address_without_an_answer_is_named_in_the_error() {
    if !root("make network namespaces") || !has("unshare") || !has("ip") {
        return;
    }
    // The container has its own namespace with `lo` and an interface that leads nowhere.
    let setup = "ip link set lo up; ip link add v0 type veth peer v1; ip addr add 192.0.2.1/24 dev v0; \
        ip link set v0 up; ip link set v1 up; echo ready; exec sleep 60";
    let bench = Bench::new();
    let container = Container::start(&bench, setup);
    let nowhere = Container::start(&bench, "ip link set lo up; echo ready; exec sleep 60");
    for (client, address, words) in [
        (container.place(), "192.0.2.99", "No route to host"),
        (nowhere.place(), "192.0.2.99", "Network is unreachable"),
        (nowhere.place(), "127.0.0.1", "Connection refused"),
    ] {
        let ended =
            bench.measure(&format!("--client {client} --server {} --server-address {address} {RR}", container.place()));
        let ended = ended.refused(3, &[&format!("cannot connect to tcp {address}:"), words]);
        assert!(ended.out.contains(words), "{ended}");
        fs::remove_dir_all(bench.path("run")).unwrap();
    }
    let ended = bench.measure(&format!("--client local --server {} {RR}", nowhere.place()));
    ended.refused(3, &["has no address that a client can reach", "--server-address"]);
    drop((container, nowhere));
    bench.assert_nothing_left();
}

#[test]
fn a_route_and_an_mtu_between_existing_places_are_found_and_recorded() {
    if !root("make network namespaces") || !has("unshare") || !has("ip") {
        return;
    }
    let bench = Bench::new();
    // The server has more addresses than the one that it shares with the client: two on its loopback interface, which come before
    // the shared one, and one that the client has as well.
    let server = Container::start(
        &bench,
        "ip link set lo up; ip addr add 10.9.9.9/32 dev lo; ip addr add 172.17.0.1/32 dev lo; \
         ip addr add fd00:9::9/128 dev lo; echo ready; exec sleep 60",
    );
    let pid = server.0.id();
    let client = Container::start(
        &bench,
        &format!(
            "ip link set lo up; ip addr add 172.17.0.1/32 dev lo; ip link add v0 mtu 1400 type veth peer v1 netns {pid}; \
             nsenter -t {pid} -n sh -c 'ip addr add 192.0.2.1/24 dev v1; ip addr add fd00:1::1/64 dev v1 nodad; \
             ip link set v1 mtu 1400 up'; ip addr add 192.0.2.2/24 dev v0; ip addr add fd00:1::2/64 dev v0 nodad; ip link set v0 up; \
             ip route add default via 192.0.2.1; ip route add default via fd00:1::1; echo ready; exec sleep 60"
        ),
    );
    let places = format!("--client {} --server {}", client.place(), server.place());
    for (options, address) in [("", "192.0.2.1"), ("--ipv6", "fd00:1::1")] {
        let ended = bench.measure(&format!("{places} {RR} {options}")).ok();
        assert!(ended.out.contains(&format!("server address {address}; client/v0 mtu=1400 ")), "{ended}");
        assert!(ended.out.contains("; server/v1 mtu=1400 "), "{ended}");
        let paths = fs::read_to_string(bench.path("run/paths.jsonl")).unwrap();
        let path: serde_json::Value = serde_json::from_str(paths.lines().next().unwrap()).unwrap();
        assert_eq!(path["server_address"], address);
        assert!(path["interfaces"]["client/v0"].as_str().unwrap().contains("gro="), "{path}");
        assert!(path["sysctls"]["server net.ipv4.tcp_sack"].is_string(), "{path}");
        fs::remove_dir_all(bench.path("run")).unwrap();
    }
    // The MTU of a cell limits the segments, and the interfaces stay as they are.
    let counter = |file: &str, line: &str, name: &str| -> f64 {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap();
        let mut lines = text.lines().filter(|text| text.starts_with(line)).map(str::split_whitespace);
        let (mut names, mut values) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.position(|field| field == name).unwrap();
        values.nth(at).unwrap().parse().unwrap()
    };
    let sent = || (counter("netstat", "IpExt:", "OutOctets"), counter("snmp", "Tcp:", "OutSegs"));
    for (mtu, least, most) in [(600, 400.0, 600.0), (1_400, 1_000.0, 1_400.0)] {
        let before = sent();
        let ended = bench.measure(&format!("{places} --workload strg-20m --clients 1 --mtu {mtu}")).ok();
        let after = sent();
        let per_segment = (after.0 - before.0) / (after.1 - before.1);
        assert!((least..=most).contains(&per_segment), "MTU {mtu}: {per_segment} bytes a segment");
        assert!(ended.out.contains("client/v0 mtu=1400 "), "{ended}");
        fs::remove_dir_all(bench.path("run")).unwrap();
    }
    let ended = bench.measure(&format!("{places} {RR} --mtu 1401"));
    ended.refused(3, &["is larger than the MTU of client/v0 (1400)", "--mtu"]);
    drop((client, server));
    bench.assert_nothing_left();
}

#[test]
fn a_place_can_be_the_namespace_of_a_process() {
    if !root("make a network namespace") || !has("unshare") || !has("ip") {
        return;
    }
    let bench = Bench::new();
    let container = Container::start(&bench, "ip link set lo up; echo ready; exec sleep 60");
    let place = container.place();
    let workloads = "--workload rr-1-1,crr-64-8k,strg-20m,udp-rr:64/64 --clients 3";
    for options in ["", "--processes", "--ipv6", "--congestion reno"] {
        bench.measure(&format!("--client {place} --server {place} {workloads} {options}")).ok();
        sound(&bench, 4);
        fs::remove_dir_all(bench.path("run")).unwrap();
    }
    drop(container);
    bench.assert_nothing_left();
}

#[test]
fn the_owner_of_an_unprivileged_container_can_measure_in_it() {
    let Some(bench) = Bench::unprivileged() else { return };
    if !has("unshare") || !has("ip") {
        return;
    }
    let mut command = bench.command("unshare");
    command.args(["--user", "--map-root-user", "--net", "sh", "-c", "ip link set lo up; echo ready; exec sleep 60"]);
    let Some(container) = Container::new(command) else { return };
    let place = container.place();
    bench.measure(&format!("--client {place} --server {place} --workload rr-1-1,crr-64-8k --clients 3")).ok();
    sound(&bench, 2);
    drop(container);
    bench.assert_nothing_left();
}

#[test]
fn a_route_can_join_two_named_namespaces() {
    if !root("name network namespaces") || !has("ip") {
        return;
    }
    let bench = Bench::new();
    let namespaces = Namespaces::new();
    let (client, server) = (&namespaces.0[0], &namespaces.0[1]);
    for options in ["", "--ipv6", "--processes"] {
        let arguments = format!(
            "--client netns:{client} --server netns:{server} --workload rr-1-1,strp-20m,crr-64-8k,udp-rr:64/64 \
             --clients 3 {options}"
        );
        let ended = bench.measure(&arguments).ok();
        assert!(ended.out.contains(&format!("netns:{client}>netns:{server}")), "{ended}");
        sound(&bench, 4);
        fs::remove_dir_all(bench.path("run")).unwrap();
    }
    drop(namespaces);
    bench.assert_nothing_left();
}

#[test]
fn an_interface_that_is_down_for_a_while_disturbs_its_round() {
    let bench = Bench::new();
    if !root("make named namespaces") || !has("ip") || !paths_build(&bench) {
        return;
    }
    let namespaces = Namespaces::new();
    let [a, b] = &namespaces.0;
    let route = format!("--client netns:{a} --server netns:{b} --workload rr-1-1 --clients 2");
    let mut run = bench.start(&format!("run --out run {route} --seconds 3 --warm-up 0 --trials 1 --format json"));
    let pid = run.pid();
    run.until("the ends", || common::children(pid).len() >= 2);
    // The check of every byte takes a tenth of a second after the ends have begun.
    std::thread::sleep(Duration::from_millis(1_500));
    for state in ["down", "up"] {
        let status = Command::new("ip").args(["-n", b, "link", "set", "v0", state]).status().unwrap();
        assert!(status.success());
        std::thread::sleep(Duration::from_millis(50));
    }
    let ended = run.end().ok();
    let trial = &bench.trials()[0];
    if trial["host"]["carrier_losses"] == 0 {
        println!("skipped, because a busy host began the trial too late: {ended}");
        return;
    }
    let report = &ended.json()["disturbance"];
    assert!(report["trials"][0]["causes"].as_array().unwrap().contains(&"carrier".into()), "{ended}");
    let shown = bench.run("show run").ok();
    let words = "a network interface of the path went down in 1 of 1 round";
    assert!(shown.out.starts_with("No verdict: ") && shown.out.contains(words), "{shown}");
}

#[test]
fn a_run_with_cells_that_its_route_cannot_have_is_incomplete() {
    let bench = Bench::new();
    let arguments = "--client local --server local --workload rr-1-1 --level plain,nft-100-rules --clients 1";
    let ended = bench.measure(arguments).refused(4, &["1 of 2 cells have no figure"]);
    assert!(ended.out.contains("nft-100-rules"), "the report names the skipped cell: {ended}");
}

#[test]
fn an_ssh_command_that_fails_or_answers_falsely_is_reported() {
    let bench = Bench::new();
    let hello = r#"{"ok":{"is":"hello","version":99,"addresses":[]}}"#;
    for (name, text, words) in [
        ("lies", "echo nonsense; cat >/dev/null", &["the invalid answer `nonsense`"][..]),
        ("odd", "printf 'a\\033[31mb\\n'; cat >/dev/null", &["the invalid answer `a\\u{1b}[31mb`"]),
        ("leaves", "head -c 1000 >/dev/null", &["the process died (exit status: 0)"]),
        ("complains", "echo 'no such host' >&2; exit 255", &["exit status: 255", "no such host"]),
        ("other", &format!("echo '{hello}'; cat >/dev/null"), &["version 99"]),
        ("binary", "printf '\\377'; head -c 1000 /dev/urandom; echo; cat >/dev/null", &["not valid UTF-8"]),
        ("closes", "exec >&-; cat >/dev/null; exec sleep 100", &["closed its connection to siga"]),
    ] {
        script(&bench.path(name), &format!("#!/bin/sh\n{text}\n"));
        refused_ssh(&bench, &bench.path(name).display().to_string(), words);
    }
    refused_ssh(&bench, "/bin/false", &["exit status: 1"]);
    refused_ssh(&bench, "/nonexistent/ssh", &["cannot start /nonexistent/ssh"]);
    bench.assert_nothing_left();
}

fn refused_ssh(bench: &Bench, ssh: &str, words: &[&str]) {
    let ended = bench.measure(&format!("--client local --server ssh:blue --ssh {ssh} {RR}"));
    let told = ended.err.clone();
    let ended = ended.refused(3, words);
    assert!(told.contains("ssh:blue: server: ") && told.contains("--ssh"), "{ended}");
    assert!(!ended.out.contains('\u{1b}') && !told.contains('\u{1b}'), "{ended}");
    fs::remove_dir_all(bench.path("run")).unwrap();
}

#[test]
fn a_measurement_leaves_another_host_as_it_was() {
    let Some((bench, host)) = blue() else { return };
    let ssh = format!("ssh -F {}", bench.path("ssh_config").display());
    for (client, server, options, cells) in [
        ("local", "ssh:blue", "--workload rr-1-1,strg-20m --clients 1", 2),
        ("ssh:blue", "local", "--workload rr-1-1 --clients 3 --processes", 1),
        ("ssh:blue", "ssh:blue", "--workload strp-20m --clients 2", 1),
    ] {
        let mut command = bench.siga(&format!("run --out run {options}"));
        command.args(["--client", client, "--server", server, "--server-address", "127.0.0.1", "--ssh", &ssh]);
        let ended = Ended::new(options, command.args(SHORT).output().unwrap()).ok();
        sound(&bench, cells);
        assert!(ended.out.contains(&format!("{client}>{server}")), "{ended}");
        assert_eq!(names(&host.remote), [""; 0], "the copy is gone");
        fs::remove_dir_all(bench.path("run")).unwrap();
    }
    drop(host);
    bench.assert_nothing_left();
}

#[test]
fn a_killed_coordinator_leaves_nothing_on_another_host() {
    let Some((bench, host)) = blue() else { return };
    let config = bench.path("ssh_config").display().to_string();
    let remote = host.remote.clone();
    // Interrupt while the program is copied, while the agent starts, and while a long trial is measured.
    for (moment, pause) in [("copy", 0), ("copy", 20), ("copy", 100), ("trial", 0), ("trial", 300)] {
        let mut command = bench.siga("run --client local --server ssh:blue --workload strg-20m --clients 2 --trials 1");
        command.args(["--seconds", "60", "--server-address", "127.0.0.1", "--ssh"]).arg(format!("ssh -F {config}"));
        let mut run = Running::new(command);
        let pid = run.pid();
        match moment {
            "copy" => run.until("copy", || !names(&remote).is_empty()),
            _ => run.until("trial", || !common::children_with_thread(pid, "client").is_empty()),
        }
        std::thread::sleep(Duration::from_millis(pause));
        run.signal(Signal::KILL);
        run.end();
        let begun = Instant::now();
        let left = || (names(&remote), host.agents());
        while left() != (Vec::new(), Vec::new()) {
            assert!(begun.elapsed() < common::SOON, "{moment} {pause}: left on the host: {:?}", left());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    drop(host);
    bench.assert_nothing_left();
}

#[test]
fn a_host_without_room_for_the_program_is_left_clean() {
    let Some((bench, host)) = blue() else { return };
    // The remote side runs each command in a shell whose limit on file sizes is too small for siga's program.
    let ssh = bench.path("small");
    let config = bench.path("ssh_config").display().to_string();
    script(
        &ssh,
        &format!(
            "#!/bin/sh\nfor last; do :; done\nexec ssh -F {config} -T -o BatchMode=yes blue \"ulimit -f 100; $last\"\n"
        ),
    );
    refused_ssh(&bench, &ssh.display().to_string(), &["the process died"]);
    assert_eq!(names(&host.remote), [""; 0]);
    drop(host);
    bench.assert_nothing_left();
}

#[test]
fn an_unprivileged_user_measures_a_router_by_subtraction() {
    let Some(bench) = Bench::unprivileged() else { return };
    if !paths_build(&bench) {
        return;
    }
    let ended = bench
        .run(
            "run --out run --path veth,veth-routed,bridge,unix --workload rr-1-1 --clients 2 --seconds 0.05 --trials 2",
        )
        .ok();
    assert!(ended.err.contains("note: the profiler cannot run"), "{ended}");
    bench.undisturb("run", 2);
    let ended = bench.run("show run").ok();
    assert!(ended.out.contains("A router may change the CPU time per transaction (inconclusive: "), "{ended}");
    assert!(ended.out.contains("CPU time by accounting method subtract."), "{ended}");
    let shown = bench.run("show run --format json").ok();
    for cell in shown.cells() {
        let routed = cell["path"] == "veth-routed" || cell["path"] == "bridge";
        assert_eq!(cell["cpu"]["method"], if routed { "subtract" } else { "tick" }, "{cell}");
        assert_eq!(cell["cpu"]["components"]["router"].is_object(), routed, "{cell}");
    }
    sound(&bench, 8);
    bench.run("run --path veth-routed --workload rr-1-1 --accounting profile --quick").refused(3, &["--accounting"]);
    assert!(!bench.path("runs").exists(), "what is refused leaves no run");
    bench.run("run --out other --path sockmap --workload rr-1-1 --quick").refused(3, &["sockmap", "root"]);
    let ended = bench.run("run --out third --path veth-routed --workload rr-1-1 --plant router=5 --quick");
    ended.refused(3, &["root"]);
    bench.assert_nothing_left();
}

/// Asserts that there are `count` trials, without any flaw except the effects of a busy host on rates.
#[track_caller]
fn sound(bench: &Bench, count: usize) {
    let trials = bench.trials();
    assert_eq!(trials.len(), count);
    for trial in trials {
        let flags = trial["flags"].as_array().unwrap();
        let of_host = |flag: &str| flag.starts_with("the rate collapsed") || flag.starts_with("the path stalled");
        assert!(flags.iter().all(|flag| of_host(flag.as_str().unwrap())), "{trial}");
        assert_eq!(trial["client"]["sent"], trial["server"]["received"], "{trial}");
    }
}

/// A process in a separate network namespace, like a container.
struct Container(Child);

impl Container {
    fn start(bench: &Bench, setup: &str) -> Self {
        let mut command = bench.command("unshare");
        command.args(["--net", "sh", "-c", setup]);
        Self::new(command).unwrap()
    }

    fn new(mut command: Command) -> Option<Self> {
        let mut container = Self(command.stderr(Stdio::inherit()).spawn().unwrap());
        let mut ready = [0; 6];
        if container.0.stdout.as_mut().unwrap().read_exact(&mut ready).is_err() {
            println!("skipped, because this host refuses {command:?}");
            return None;
        }
        Some(container)
    }

    fn place(&self) -> String {
        format!("pid:{}", self.0.id())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Two named network namespaces that are joined by a veth pair.
struct Namespaces([String; 2]);

impl Namespaces {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|end| format!("siga-test-{}-{number}-{end}", std::process::id()));
        let this = Self(names);
        let [a, b] = &this.0;
        for command in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("-n {a} link add v0 type veth peer name v0 netns {b}"),
            format!("-n {a} addr add 192.0.2.1/24 dev v0"),
            format!("-n {b} addr add 192.0.2.2/24 dev v0"),
            format!("-n {a} addr add 2001:db8::1/64 dev v0 nodad"),
            format!("-n {b} addr add 2001:db8::2/64 dev v0 nodad"),
            format!("-n {a} link set v0 up"),
            format!("-n {b} link set v0 up"),
        ] {
            let status = Command::new("ip").args(command.split(' ')).status().unwrap();
            assert!(status.success(), "ip {command}");
        }
        this
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _gone = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Returns a bench with the host `blue`; `None` if this machine cannot run ssh servers.
fn blue() -> Option<(Bench, Host)> {
    let bench = Bench::new();
    let host = Host::start(&bench, "blue", "")?;
    Some((bench, host))
}
