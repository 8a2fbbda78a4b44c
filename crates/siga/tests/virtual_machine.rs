//! Tests that siga works on Debian's kernel, with modules that other hosts may lack.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

mod common;
#[path = "../../fabric/tests/common/vm.rs"]
mod vm;

use common::Bench;
use std::process::Command;

vm::needs_vm! {
    a_bridge_is_measured_with_bbr: "bridge, tcp_bbr, veth",
}

fn a_bridge_is_measured_with_bbr() {
    let bench = Bench::new();
    bench.measure("--path bridge --level bbr --workload rr-1-1 --clients 1").ok();
    let trials = bench.trials();
    assert_eq!(trials.len(), 1, "{trials:?}");
    assert!(trials[0]["client"]["transactions"].as_u64().unwrap() > 0, "{trials:?}");
    bench.assert_nothing_left();
}

#[test]
fn a_test_of_the_machine_does_nothing_elsewhere() {
    let mut tests = Command::new(std::env::current_exe().unwrap());
    let output = tests.args(["--ignored", "needs_vm::"]).env_remove("SIGA_VM").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 failed") && text.contains("only in the virtual machine"), "{text}");
    let output = Command::new(std::env::current_exe().unwrap()).arg("needs_vm::").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("::a_bridge_is_measured_with_bbr ... ignored, bridge, tcp_bbr, veth"), "{text}");
}
