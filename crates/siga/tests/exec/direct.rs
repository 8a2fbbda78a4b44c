//! Unmodified programs whose connections are direct: their bytes pass through memory that only the two programs share.

use crate::network::Network;
use crate::{PYTHON, Program, has, text};
use std::io::{BufRead, Write};
use std::process::Command;

const SCRIPT: &str = include_str!("direct.py");

const TOPOLOGY: &str = "
[network.lan]
type = \"hipersockets\"
direct = true
[guest.a]
device = [{ network = \"lan\", addresses = [\"10.0.2.1/24\"] }]
[guest.b]
device = [{ network = \"lan\", addresses = [\"10.0.2.2/24\"] }]
";

/// The programs are the same on all carriers, so their expectations are those of the kernel.
#[test]
fn dialogues_end_over_tcp_and_over_memory_as_on_the_kernels_sockets() {
    if !has(&[PYTHON]) {
        return;
    }
    let script = include_str!("dialogues.py");
    let kernel = Command::new(PYTHON).args(["-c", script, "kernel"]).output().unwrap();
    assert_eq!(text(&kernel), "all is well\n", "on the kernel");
    for (carrier, topology) in [("tcp", &*TOPOLOGY.replace("direct = true", "")), ("direct", TOPOLOGY)] {
        let network = Network::up(&format!("dialogues-{carrier}"), topology);
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.args(["exec", "--loopback", "guest", network.name.as_str(), "a", PYTHON, "-c", script, carrier]);
        command.env("SIGA_RUN_DIR", network.run_dir());
        assert_eq!(text(&command.output().unwrap()), "all is well\n", "{carrier}");
    }
}

#[test]
fn unmodified_programs_exchange_bytes_by_memory_also_across_a_fork() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("direct", TOPOLOGY);
    for client in ["a", "b"] {
        let (_server, _) = Program::start(&network, "b", &[PYTHON, "-c", SCRIPT, "server", "10.0.2.2"]);
        let (mut program, mut output) =
            Program::start(&network, client, &[PYTHON, "-c", SCRIPT, "client", "10.0.2.2", "waits"]);
        if client == "a" {
            let report = network.application_report("a");
            let counter = |name: &str| report["counters"][name].as_u64().unwrap_or_default();
            let bytes = (counter("direct_sent_bytes"), counter("direct_received_bytes"));
            assert!(bytes.0 > 8_000_000 && bytes.1 > 8_000_000, "{bytes:?} bytes went by memory");
        }
        program.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ok\n");
    }
}
