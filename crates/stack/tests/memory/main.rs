//! The memory of idle connections, as the kernel counts the memory of a process: all tables, and what the allocator adds.
//!
//! Each measurement runs in a process of its own, because memory that was used before would be used again.

#![allow(clippy::print_stdout, reason = "a process reports its measurement to the test")]

mod crowd;

use crowd::{Crowd, Past, resident_bytes};
use std::process::Command;

/// The environment variable that names the measurement which a process of this program makes.
const MEASUREMENT: &str = "SIGA_MEMORY_MEASUREMENT";

/// Opens connections, and prints the memory that each one uses once it is idle, in bytes.
fn measure(connections: u32, past: Past) {
    let before = resident_bytes();
    let mut crowd = Crowd::new();
    crowd.open(connections, past);
    crowd.rest();
    let bytes = (resident_bytes() - before) / connections as usize;
    let memory = crowd.memory();
    assert_eq!((memory.held("TCP connections"), memory.held("bytes in TCP buffers")), (connections as usize, 0));
    assert_eq!(crowd.ask_again(connections as usize / 1_000), 1_000, "every connection still works");
    println!("bytes each: {bytes}");
}

/// Returns the memory of each idle connection in bytes, as a new process measures it that runs the test `test`.
fn idle_bytes(test: &str, connections: u32, past: Past) -> usize {
    let program = std::env::current_exe().expect("this program");
    let arguments = ["--exact", test, "--include-ignored", "--nocapture"];
    let output = Command::new(program).args(arguments).env(MEASUREMENT, past.name()).output().expect("a process");
    let text = String::from_utf8_lossy(&output.stdout);
    let bytes = text.lines().find_map(|line| line.split_once("bytes each: ")?.1.parse().ok());
    let bytes = bytes.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    eprintln!("{connections} idle connections, {}: {bytes} bytes each", past.name());
    bytes
}

/// Returns what the connections did before they became idle, if this process makes a measurement.
fn ordered() -> Option<Past> {
    let name = std::env::var(MEASUREMENT).ok()?;
    [Past::Opened, Past::Answered, Past::Repaired].into_iter().find(|past| past.name() == name)
}

#[test]
fn an_idle_connection_uses_less_than_a_kilobyte() {
    if let Some(past) = ordered() {
        return measure(100_000, past);
    }
    let bytes = |past| idle_bytes("an_idle_connection_uses_less_than_a_kilobyte", 100_000, past);
    let [opened, answered, repaired] = [Past::Opened, Past::Answered, Past::Repaired].map(bytes);
    assert!(opened < 1_024 && answered < 1_024, "{opened} {answered}");
    // A connection remembers its losses, and the values from before the latest reduction of its congestion window.
    assert!(repaired < 1_664, "{repaired}");
}

#[test]
#[ignore = "uses a gigabyte; `cargo xtask nightly --only memory` runs it"]
fn a_million_idle_connections_fit_in_1_2_gigabytes() {
    if let Some(past) = ordered() {
        return measure(1_000_000, past);
    }
    let bytes = idle_bytes("a_million_idle_connections_fit_in_1_2_gigabytes", 1_000_000, Past::Answered);
    assert!(bytes < 1_200, "{bytes}");
}
