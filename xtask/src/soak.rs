//! Runs the soak test of a virtual network: builds `siga` and, with optimisation, `crates/siga/examples/soak`, and runs the
//! latter.
//!
//! The soak program replaces this process (`exec`), so that an interrupt reaches the process that has to clean up.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;

use crate::command;

const BUILD: &str = "cargo build --release --locked --package siga --bin siga --example soak";
const RUN: &str = "cargo run --quiet --release --locked --package siga --example soak --";

/// The options of `cargo xtask soak`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Soak a switch, or send one kind of traffic without killing processes
    task: Option<Task>,
    /// Duration of a soak or of `hold`, such as 90s, 10m or 1h (default: 1h for a soak, 10m for `hold`)
    #[arg(long = "for", value_name = "TIME", value_parser = crate::sim::time)]
    time: Option<Duration>,
    /// Seed for the random choices of a soak
    #[arg(long)]
    seed: Option<u64>,
}

/// A run other than the soak of guests. All but the soak of a switch are without disturbances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Task {
    /// The soak of a switch, with namespaces and uplinks (needs root)
    Switch,
    /// One stream of 10 GB through the router
    Copy,
    /// 1,000,000 connections through the router, one for each transaction
    Crr,
    /// 10,000 connections through the router, open at the same time
    Hold,
}

/// Builds the soak program and replaces this process with it.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let words = words(options)?;
    command::run(command::command(root, BUILD))?;
    let mut soak = command::command(root, RUN);
    Err(format!("cannot start the soak program: {}", soak.args(words).exec()))
}

/// Returns the arguments of the soak program.
fn words(options: &Options) -> Result<Vec<String>, String> {
    let name = match options.task {
        None => "soak",
        Some(Task::Switch) => "switch",
        Some(Task::Hold) => "hold",
        Some(Task::Copy) => "copy",
        Some(Task::Crr) => "crr",
    };
    let mut words = vec![name.to_owned()];
    if let Some(time) = options.time {
        if matches!(options.task, Some(Task::Copy | Task::Crr)) {
            return Err(format!("{name} ends by itself, so --for has no effect; remove --for"));
        }
        words.extend(["--for".to_owned(), format!("{}s", time.as_secs())]);
    }
    if let Some(seed) = options.seed {
        if options.task.is_some_and(|task| task != Task::Switch) {
            return Err(format!("{name} makes no random choices, so --seed has no effect; remove --seed"));
        }
        words.extend(["--seed".to_owned(), seed.to_string()]);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_gets_its_options_and_refuses_others() {
        let time = Some(Duration::from_secs(60));
        let of = |task, time, seed| words(&Options { task, time, seed });
        assert_eq!(of(None, time, Some(7)).unwrap(), ["soak", "--for", "60s", "--seed", "7"]);
        assert_eq!(of(Some(Task::Hold), time, None).unwrap(), ["hold", "--for", "60s"]);
        assert_eq!(of(Some(Task::Copy), None, None).unwrap(), ["copy"]);
        assert_eq!(of(Some(Task::Switch), time, Some(7)).unwrap(), ["switch", "--for", "60s", "--seed", "7"]);
        assert!(of(Some(Task::Crr), time, None).unwrap_err().contains("--for"));
        assert!(of(Some(Task::Hold), None, Some(7)).unwrap_err().contains("--seed"));
    }
}
