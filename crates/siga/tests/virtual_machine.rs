//! Tests that siga works on Debian's kernel, with modules that other hosts may lack.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;
#[path = "../../fabric/tests/common/vm.rs"]
mod vm;

use common::{Bench, paths_build};
use serde_json::Value;
use siga_measure::socket::kernel::{Kernel, KernelOptions};
use siga_measure::socket::{Endpoint, Sockets, Token};
use siga_model::waiting::Waiting;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

vm::needs_vm! {
    a_bridge_is_measured_with_bbr: "bridge, tcp_bbr, veth",
    bond_vlan_and_ipvlan_carry_transactions_and_streams: "bonding, 8021q, ipvlan",
    netem_delays_each_direction: "sch_netem",
    netem_loses_packets_which_tcp_sends_again: "sch_netem",
    netem_limits_the_rate: "sch_netem",
    bbr_fq_sets_the_congestion_control_and_the_qdisc: "tcp_bbr, sch_fq",
    smc_that_falls_back_to_tcp_is_not_measured: "smc, smc_diag",
    smc_sockets_connect_send_and_receive: "smc",
    a_command_keeps_its_limits_in_control_groups_of_version_2: "loop, ext4",
}

/// Runs a program of the machine.
fn must(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

fn a_command_keeps_its_limits_in_control_groups_of_version_2() {
    let root = std::path::Path::new("/sys/fs/cgroup");
    if !root.join("cgroup.controllers").exists() {
        must("mount", &["-t", "cgroup2", "none", "/sys/fs/cgroup"]);
    }
    let bench = Bench::new();
    let trial_with = |options: &str, settings: &str, command: &str, status: i32| {
        let level = format!("name = \"limited\"\n[command]\n{settings}\n");
        std::fs::write(bench.path("limited.toml"), level).unwrap();
        let plan = format!(
            "name = \"work\"\nworkloads = [\"work\"]\nlevels = [\"limited.toml\"]\nseconds = 0.01\nwarm_up_seconds = 0.0\n\
             trials = 1\n[workload.work]\ncommand = {command}\n"
        );
        std::fs::write(bench.path("plan.toml"), plan).unwrap();
        let _absent = std::fs::remove_dir_all(bench.path("run"));
        let ended = bench.run(&format!("run plan.toml --out run {options}")).status(status);
        (bench.trials().pop().unwrap_or_default(), ended)
    };
    let trial = |settings: &str, command: &str, status: i32| trial_with("", settings, command, status);
    let seconds = |trial: &Value| number(&trial["elapsed_ns"]) / 1e9;
    let hog = "['sh', '-c', 'x=$(head -c 60000000 /dev/zero | tr \"\\\\0\" a); true']";
    let (_, ended) = trial("memory_max = '16m'", hog, 4);
    assert!(ended.out.contains("the command reached its memory limit of 16777216 bytes"), "{ended}");
    let (record, _) = trial("memory_max = '64m'", "['head', '-c', '1000000', '/dev/zero']", 0);
    assert!(number(&record["command"]["group_memory_bytes_max"]) > 0.0, "{record}");
    // The limit of the run also holds for a command that has a larger limit of its own.
    let large = hog.replace("60000000", "150000000");
    let (_, ended) = trial_with("--memory-limit 128m", "memory_max = '512m'", &large, 4);
    assert!(ended.err.contains("memory of the run: at most 128 MiB of 128 MiB; the kernel ended 1 process"), "{ended}");
    assert!(!ended.out.contains("the command reached its memory limit"), "{ended}");
    let (_, ended) = trial_with("--memory-limit 512m", "memory_max = '16m'", hog, 4);
    assert!(ended.out.contains("the command reached its memory limit of 16777216 bytes"), "{ended}");
    assert!(!ended.err.contains("; the kernel ended"), "{ended}");
    let busy = "['sh', '-c', 'i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done']";
    let (record, _) = trial("cpus_max = 0.1", busy, 0);
    assert!(number(&record["elapsed_ns"]) > 3.0 * number(&record["cpu"]["client"]["run_ns"]), "{record}");

    // A file system on a block device whose rates can be limited.
    let (image, disk) = (bench.path("image").display().to_string(), bench.path("disk").display().to_string());
    must("truncate", &["-s", "32M", &image]);
    must("mkfs.ext4", &["-q", &image]);
    std::fs::create_dir(&disk).unwrap();
    must("mount", &["-o", "loop", &image, &disk]);
    let of_disk = |from: &str, to: &str| {
        format!("['dd', 'if={from}', 'of={to}', 'bs=64k', 'count=32', 'iflag=DIRECT']\ndirectory = '{disk}'")
    };
    let write = of_disk("/dev/zero", "data").replace("iflag=DIRECT", "oflag=direct");
    let read = of_disk("data", "/dev/null").replace("DIRECT", "direct");
    for (limit, command) in [("write_max = '1m'", &write), ("read_max = '1m'", &read)] {
        let (record, ended) = trial(limit, command, 0);
        // 2 MiB at 1 MiB/s, of which the kernel lets the first through at once.
        assert!(seconds(&record) > 1.0, "{limit}: {ended}");
    }
    must("umount", &[&disk]);
    let left = std::fs::read_dir(root).unwrap().flatten().map(|entry| entry.file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with("siga-command")), "a group stays");
    bench.assert_nothing_left();
}

fn a_bridge_is_measured_with_bbr() {
    let bench = Bench::new();
    bench.measure("--path bridge --level bbr --workload rr-1-1 --clients 1").ok();
    let trials = bench.trials();
    assert_eq!(trials.len(), 1, "{trials:?}");
    assert!(trials[0]["client"]["transactions"].as_u64().unwrap() > 0, "{trials:?}");
    bench.assert_nothing_left();
}

fn bond_vlan_and_ipvlan_carry_transactions_and_streams() {
    for ip in ["", "--ipv6"] {
        let bench = Bench::new();
        bench.measure(&format!("--path bond,vlan,ipvlan --workload rr-1-1,strg:1/64k --clients 2 {ip}")).ok();
        let trials = bench.trials();
        assert_eq!(trials.len(), 6, "{trials:?}");
        assert!(trials.iter().all(|trial| number(&trial["client"]["received"]) > 0.0), "{trials:?}");
        bench.assert_nothing_left();
    }
}

/// Measures one trial on the path veth, with netem set to `netem`. Returns the record of the trial.
fn trial_with_netem(netem: &str, arguments: &str) -> Value {
    let bench = Bench::new();
    std::fs::write(bench.path("level.toml"), format!("name = \"wan\"\n[qdisc.netem]\n{netem}\n")).unwrap();
    let fixed = "run --out run --path veth --level level.toml --clients 1 --warm-up 0 --trials 1";
    bench.run(&format!("{fixed} {arguments}")).ok();
    bench.assert_nothing_left();
    let [trial] = &bench.trials()[..] else { panic!("one trial: {:?}", bench.trials()) };
    trial.clone()
}

fn netem_delays_each_direction() {
    let trial = trial_with_netem("delay_us = 10_000", "--workload rr-1-1 --seconds 0.5");
    let (seconds, transactions) = (number(&trial["elapsed_ns"]) / 1e9, number(&trial["client"]["transactions"]));
    assert!(transactions > 0.0 && seconds / transactions >= 0.02, "each way takes 10 ms: {trial}");
}

fn netem_loses_packets_which_tcp_sends_again() {
    let trial = trial_with_netem("loss_percent = 10", "--workload strg:1/64k --seconds 2");
    assert!(number(&trial["server"]["sent"]) > 0.0, "{trial}");
    assert!(number(&trial["protocol"]["server Tcp RetransSegs"]) > 0.0, "{trial}");
}

fn netem_limits_the_rate() {
    let trial = trial_with_netem("rate_bits_per_s = 40_000_000", "--workload strg:1/256k --seconds 1");
    let megabytes_per_s = number(&trial["client"]["received"]) / number(&trial["elapsed_ns"]) * 1e3;
    // Without netem, the emulated path carries more than 20 MB/s.
    assert!((1.0..=5.0).contains(&megabytes_per_s), "{megabytes_per_s} MB/s: {trial}");
}

fn bbr_fq_sets_the_congestion_control_and_the_qdisc() {
    let bench = Bench::new();
    bench.measure("--path veth --level bbr-fq --workload strg:1/64k --clients 1").ok();
    assert_eq!(bench.trials().len(), 1);
    let [record] = &bench.lines("paths.jsonl")[..] else { panic!("one path") };
    let record: Value = serde_json::from_str(record).unwrap();
    assert_eq!(record["congestion"], "bbr", "{record}");
    let interfaces = record["interfaces"].as_object().unwrap();
    assert!(interfaces.values().all(|text| text.as_str().unwrap().contains(" qdisc=fq ")), "{record}");
}

/// Debian's kernel has AF_SMC but no SMC loopback device, so each connection succeeds over TCP.
fn smc_that_falls_back_to_tcp_is_not_measured() {
    for options in ["--workload rr-1-1", "--workload crr-64-8k --ipv6", "--workload strg:1/64k --processes"] {
        let bench = Bench::new();
        let ended = bench.measure(&format!("--path smc-loopback --clients 2 {options}"));
        let ended = ended.refused(3, &["skipped ", "SMC fell back to TCP", "CONFIG_SMC_LO"]);
        assert_eq!(bench.trials().len(), 0, "{ended}");
        bench.assert_nothing_left();
    }
    if let Some(bench) = Bench::unprivileged() {
        bench.measure("--path smc-loopback --workload rr-1-1 --clients 1").refused(3, &["SMC fell back to TCP"]);
    }
}

/// These connections go over TCP, because Debian's kernel has no SMC loopback device.
fn smc_sockets_connect_send_and_receive() {
    for address in [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))] {
        let options = KernelOptions {
            wait: Waiting::Block,
            direct: false,
            congestion: None,
            segment_bytes: None,
            io_uring: false,
        };
        let mut kernel = Kernel::new(options, None).unwrap();
        let (listener, at) = kernel.listen(&Endpoint::Smc(address), Token(0)).unwrap();
        assert!(matches!(at, Endpoint::Smc(bound) if bound.ip() == address.ip() && bound.port() != 0), "{at}");
        // After a fallback to TCP, a connected socket reports AF_INET or AF_INET6.
        assert_eq!(rustix::net::sockopt::socket_domain(&listener).unwrap().as_raw(), 43);
        let client = kernel.connect(&at, Token(1)).unwrap();
        eventually(&mut kernel, |kernel| match kernel.connected(&client)? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        });
        let server = eventually(&mut kernel, |kernel| kernel.accept(&listener, Token(2)));
        assert_eq!(kernel.send(&client, b"request").unwrap(), 7);
        let mut received = [0; 16];
        assert_eq!(eventually(&mut kernel, |kernel| kernel.receive(&server, &mut received)), 7);
        assert!(received.starts_with(b"request"));
        kernel.close(client);
        assert_eq!(eventually(&mut kernel, |kernel| kernel.receive(&server, &mut received)), 0);
    }
}

/// Repeats an operation until it can proceed, for 20 seconds at most.
fn eventually<T>(kernel: &mut Kernel, mut operation: impl FnMut(&mut Kernel) -> io::Result<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match operation(kernel) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                kernel.poll(&mut Vec::new(), Some(Duration::from_millis(100))).unwrap();
            }
            outcome => return outcome.unwrap(),
        }
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

#[test]
fn a_cell_whose_module_the_kernel_lacks_is_skipped_with_the_module() {
    let bench = Bench::new();
    if !paths_build(&bench) {
        return;
    }
    for (arguments, module) in [
        ("--path bond", "bonding"),
        ("--path vlan", "8021q"),
        ("--path ipvlan", "ipvlan"),
        ("--path smc-loopback", "smc"),
        ("--path veth --level netem", "sch_netem"),
        ("--path veth --level fq", "sch_fq"),
    ] {
        let ended = bench.measure(&format!("{arguments} --workload rr-1-1 --clients 1"));
        match ended.status {
            Some(0) => println!("skipped {module}, because this kernel has it"),
            _ => {
                let ended = ended.refused(3, &["skipped ", "the kernel has no", &format!("`modprobe {module}`")]);
                assert_eq!(bench.trials().len(), 0, "{ended}");
            }
        }
        std::fs::remove_dir_all(bench.path("run")).unwrap();
    }
    bench.assert_nothing_left();
}

#[test]
fn a_test_of_the_machine_does_nothing_elsewhere() {
    let mut tests = Command::new(std::env::current_exe().unwrap());
    let output = tests.args(["--ignored", "needs_vm::"]).env_remove("SIGA_VM").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("0 passed") && text.contains("only in the virtual machine"), "{text}");
    let output = Command::new(std::env::current_exe().unwrap()).arg("needs_vm::").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("::a_bridge_is_measured_with_bbr ... ignored, bridge, tcp_bbr, veth"), "{text}");
}
