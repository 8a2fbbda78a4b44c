//! Everything a person or CI runs, as one program: `cargo xtask ci` and its parts.
//!
//! Progress, times and problems go to stderr; the exit status is 0 when all is well and 1 otherwise. Tasks use cargo and git
//! through their command lines. They write below `target/` only, except those that are asked to write a file of the tree
//! (`--update`, `--write`, `--accept`, `--keep`, `schema`). `bench-drivers` needs root. Other tasks say where root lets them do
//! more.

mod bench;
mod ci;
mod command;
mod deny;
mod fuzz;
mod instructions;
mod rfc;
mod ring;
mod schema;
mod sim;
mod soak;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What to run.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run all that a change has to pass, in order, up to the first failure
    Ci,
    /// Check what the compiler cannot: edges between crates, import circles, size of the build, language, tests of promises
    Tidy,
    /// Check licences, versions and sources of all dependencies, and the advisories where these can be fetched
    Deny,
    /// Compare siga's own network with the kernel's at its best, and with itself beside a hostile guest (`--only attacked`); needs
    /// a quiet machine for under a quarter of an hour
    Bench {
        /// Rounds; each measures every mode of a cell once
        #[arg(long, default_value_t = 4)]
        rounds: u32,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 0.5)]
        seconds: f64,
        /// Only the rows whose name contains this
        #[arg(long, default_value = "")]
        only: String,
        /// Where the result goes as JSON
        #[arg(long, default_value = "target/bench/network.json")]
        out: PathBuf,
    },
    /// Compare the workload drivers with iperf3, qperf and sockperf in one run (root; a quiet machine)
    BenchDrivers {
        /// Rounds; each measures every peer and siga once
        #[arg(long, default_value_t = 7)]
        rounds: u32,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 2)]
        seconds: u32,
        /// Only the peers whose name contains this
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Print each numbered requirement of RFC 9293 with its code and test, or why it is not met
    Rfc(rfc::Options),
    /// Search for inputs that break a promise, guided by coverage (needs a C++ compiler)
    Fuzz(fuzz::Options),
    /// Count instructions of a forwarded frame and of an exchange, and compare them with those checked in (valgrind)
    Instructions {
        /// Write what was counted
        #[arg(long)]
        update: bool,
    },
    /// Check every order of steps of the ring's producer, consumer and doorbell with Loom
    Loom,
    /// Run the ring's tests under Miri, where a nightly compiler has it
    Miri,
    /// Run the simulated world: one seed with its trace, or as many as there is time for
    Sim(sim::Options),
    /// Use a virtual network for an hour while its guests are killed, and count what its processes hold (all of it as root)
    Soak(soak::Options),
    /// Write the published JSON Schemas of plans and levels
    Schema {
        /// Only compare them with the types
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let task = Cli::parse().task;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().unwrap_or(here);
    let outcome = match task {
        Task::Ci => ci::run(root),
        Task::Tidy => tidy::run(root),
        Task::Deny => deny::run(root).map(drop),
        Task::Bench { rounds, seconds, only, out } => {
            let options = bench::network::Options { rounds, seconds, only, out: root.join(out) };
            bench::network::run(root, &options)
        }
        Task::BenchDrivers { rounds, seconds, only } => bench::drivers::run(root, rounds, seconds, &only),
        Task::Rfc(options) => rfc::run(root, &options),
        Task::Fuzz(options) => fuzz::run(root, &options),
        Task::Instructions { update } => instructions::run(root, update),
        Task::Loom => ring::loom(root),
        Task::Miri => ring::miri(root),
        Task::Sim(options) => sim::run(root, &options),
        Task::Soak(options) => soak::run(root, &options),
        Task::Schema { check } => schema::run(root, check),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
