//! Unmodified programs whose connections are direct: their bytes pass through memory that only the two programs share.

use crate::network::Network;
use crate::{PYTHON, Program, has};
use std::io::{BufRead, Write};

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
