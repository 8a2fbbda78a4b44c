//! The ring's checks that need special builds: Loom explores every order of steps of a model, and Miri checks the unsafe code.
//!
//! Loom is an ordinary dependency. Miri is a component of nightly compilers. If Miri is not installed, the task reports that and
//! succeeds.

use std::path::Path;
use std::process::Command;

use crate::command;

const LOOM: &str = "cargo test --locked --package siga-ring --lib --target-dir target/loom model::";
const MIRI: &str = "cargo +nightly miri test --locked --package siga-ring --lib --target-dir target/miri";

/// Explores the model of producer, consumer and doorbell with Loom.
pub(crate) fn loom(root: &Path) -> Result<(), String> {
    let mut test = command::command(root, LOOM);
    test.env("RUSTFLAGS", "--cfg loom");
    command::run(test)
}

/// Runs under Miri the ring's tests that need no memory files.
pub(crate) fn miri(root: &Path) -> Result<(), String> {
    if let Err(error) = command::output(nightly(root, "cargo +nightly miri --version")) {
        eprintln!(
            "skipped, because there is no Miri: {error}; install it with `rustup component add miri --toolchain nightly`"
        );
        return Ok(());
    }
    let mut test = nightly(root, MIRI);
    // The tests read the clock, so isolation is off. Some tests panic on purpose; printing backtraces under Miri would take
    // longer than all tests.
    test.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("RUST_BACKTRACE", "0");
    command::run(test)
}

/// Returns a cargo command for another toolchain: the cargo that rustup finds, not the one that runs this task.
fn nightly(root: &Path, line: &str) -> Command {
    let (_, arguments) = line.split_once(' ').unwrap_or_default();
    let mut command = Command::new("cargo");
    command.args(arguments.split_whitespace()).current_dir(root).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command
}
