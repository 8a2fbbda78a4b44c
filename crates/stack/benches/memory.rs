//! Prints the memory of an idle connection of a server, as the kernel counts the memory of this process: all tables of the stack, and
//! what the allocator adds. Asserts only that the connections still work.
//!
//! `cargo bench -p siga-stack --bench memory`. The last row needs a gigabyte of memory.
#![allow(clippy::print_stdout, reason = "the benchmark prints its results")]

#[path = "../tests/memory/crowd.rs"]
mod crowd;

use crowd::{Crowd, Past, resident_bytes};

fn main() {
    println!("{:>12}  {:<42}{:>10}{:>14}", "connections", "before they became idle", "bytes", "million bytes");
    let rows =
        [(100_000, Past::Opened), (100_000, Past::Answered), (100_000, Past::Repaired), (1_000_000, Past::Answered)];
    for (connections, past) in rows {
        let before = resident_bytes();
        let mut crowd = Crowd::new();
        crowd.open(connections, past);
        crowd.rest();
        let bytes = resident_bytes() - before;
        println!("{connections:>12}  {:<42}{:>10}{:>14}", past.name(), bytes / connections as usize, bytes / 1_000_000);
        assert_eq!(crowd.ask_again(connections as usize / 1_000), 1_000, "{}", crowd.memory());
    }
}
