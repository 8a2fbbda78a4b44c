//! The ring's checks that need builds of their own: Loom's model of every order of steps, and Miri on the unsafe code.
//!
//! Loom is a crate like any other. Miri is a component of nightly compilers; where none has it, that is said and nothing fails.

use std::path::Path;
use std::process::Command;

use crate::command;

const LOOM: &str = "cargo test --locked --package siga-ring --lib --target-dir target/loom model::";
const MIRI: &str = "cargo +nightly miri test --locked --package siga-ring --lib --target-dir target/miri";

/// Explores the model of producer, consumer and doorbell.
pub(crate) fn loom(root: &Path) -> Result<(), String> {
    let mut test = command::command(root, LOOM);
    test.env("RUSTFLAGS", "--cfg loom");
    command::run(test)
}

/// Runs the tests of the ring that need no memory files under Miri.
pub(crate) fn miri(root: &Path) -> Result<(), String> {
    if let Err(error) = command::output(nightly(root, "cargo +nightly miri --version")) {
        eprintln!(
            "skipped, because there is no Miri: {error}; `rustup component add miri --toolchain nightly` gets it"
        );
        return Ok(());
    }
    let mut test = nightly(root, MIRI);
    // The tests look at the clock, and some of them panic on purpose: what that prints takes longer than all the rest.
    test.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("RUST_BACKTRACE", "0");
    command::run(test)
}

/// A command of another toolchain: cargo as rustup finds it, not the one that runs this task.
fn nightly(root: &Path, line: &str) -> Command {
    let (_, arguments) = line.split_once(' ').unwrap_or_default();
    let mut command = Command::new("cargo");
    command.args(arguments.split_whitespace()).current_dir(root).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command
}
