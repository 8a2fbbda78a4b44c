//! All tasks for developers and CI in one program: `cargo xtask ci` and its parts.
//!
//! Progress, durations and problems go to stderr. The exit status is 0 on success and 1 otherwise; `vm` returns the status of its
//! command, or 3 if the machine fails. Tasks run cargo and git as commands. They write only below `target/`, except tasks and options that update a file of the source tree (`--update`,
//! `--write`, `--accept`, `--keep`, `schema`). `bench-drivers` needs root. Other tasks report what they can only do as root.

mod advice;
mod bench;
mod ci;
mod command;
mod deny;
mod differential;
mod fuzz;
mod guests;
mod instructions;
mod limited;
mod nightly;
mod programs;
mod rfc;
mod ring;
mod schema;
mod sim;
mod soak;
mod tidy;
mod vm;
mod vm_tests;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run all checks that a change must pass, and stop at the first failure
    Ci,
    /// Check rules that the compiler cannot check: dependencies between crates, import circles, size of the build,
    /// language, and that each promise of SPECIFICATION.md has tests
    Tidy,
    /// Check licences, versions and sources of all dependencies, and security advisories if they can be downloaded
    Deny,
    /// Compare the speed of siga's own network with the kernel's fastest configurations. The row `attacked` compares
    /// the speed with and without a hostile guest. Needs a quiet machine, and takes up to 25 minutes
    #[command(args_conflicts_with_subcommands = true)]
    Bench {
        #[command(subcommand)]
        other: Option<OtherBench>,
        /// Number of rounds; each round measures each configuration of a row once
        #[arg(long, default_value_t = 4)]
        rounds: u32,
        /// Duration of each measurement, in seconds
        #[arg(long, default_value_t = 0.5)]
        seconds: f64,
        /// Measure only the rows whose name contains this text
        #[arg(long, default_value = "")]
        only: String,
        /// Also measure kernel settings that have not made any row faster so far: RPS, GRO and large socket buffers
        #[arg(long)]
        all_axes: bool,
        /// During the measurement, run a program with real-time priority that takes a tenth of each CPU (needs root)
        #[arg(long)]
        disturbed: bool,
        /// JSON file for the results
        #[arg(long, default_value = "target/bench/network.json")]
        out: PathBuf,
    },
    /// Take a tenth of each CPU in slices of 1 to 20 ms with real-time priority, as a busy hypervisor does (needs root)
    Disturb {
        /// Time in seconds after which the program ends
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=i64::from(bench::disturb::SECONDS_MAX)))]
        seconds: u32,
        /// Use the scheduling policy of this process
        #[arg(long, hide = true)]
        prioritised: bool,
    },
    /// Compare siga's workload drivers with iperf3, qperf and sockperf (needs root and a quiet machine)
    BenchDrivers {
        /// Number of rounds; each round measures siga and each of the other programs once
        #[arg(long, default_value_t = 7)]
        rounds: u32,
        /// Duration of each measurement, in seconds
        #[arg(long, default_value_t = 2)]
        seconds: u32,
        /// Compare only with the programs whose name contains this text
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Print each requirement of the implemented RFCs with its code and test, or the reason why siga does not fulfil
    /// it
    Rfc(rfc::Options),
    /// Write docs/advice.md: recommendations about networks, and siga's verdicts
    Advice(advice::Options),
    /// Search for inputs that break a promise (fuzzing; needs a C++ compiler)
    Fuzz(fuzz::Options),
    /// Count the CPU instructions for a forwarded frame and for a request with its response, and compare them with
    /// the checked-in counts (needs valgrind)
    Instructions {
        /// Write the new counts into the checked-in file
        #[arg(long)]
        update: bool,
    },
    /// Check the ring's producer, consumer and doorbell with Loom, in every possible order of the threads' steps
    Loom,
    /// Run the ring's tests under Miri, if a nightly compiler with Miri is installed
    Miri,
    /// Simulate TCP/IP stacks: one seed with its trace, or many seeds for a given time
    Sim(sim::Options),
    /// Play the same dialogues with the TCP of the kernel and of siga's stack, and compare their behaviour (needs
    /// root)
    Differential(differential::Options),
    /// Send traffic over a virtual network whose processes are killed again and again, and look for leaks (without
    /// root, some checks are omitted)
    Soak(soak::Options),
    /// Run test suites of other projects on the kernel's sockets and on a guest's sockets, and compare the results
    Programs(programs::Options),
    /// Run a command in a virtual machine with Debian's kernel and all of its modules (needs QEMU)
    Vm(vm::Options),
    /// Build the tests that need the virtual machine, and run them in the virtual machine
    VmTests(vm_tests::Options),
    /// Run all long suites, one after the other; takes about eight hours, at most fifteen. Prints one line for each suite, and
    /// writes logs and `summary.json` to target/nightly
    Nightly(nightly::Options),
    /// Write the published JSON Schemas of plans and levels
    Schema {
        /// Only check that the files match the source code, without writing them
        #[arg(long)]
        check: bool,
    },
}

/// The benchmarks of something other than the networks.
#[derive(Debug, Subcommand)]
enum OtherBench {
    /// Compare redis, nginx, memcached, PostgreSQL and iperf3 under `siga exec` with the same programs on the kernel's sockets (needs
    /// root and a quiet machine for about 20 minutes)
    Programs(bench::programs::Options),
    /// Measure how accurately modelled links keep their rate and their latency, and print a Markdown table (needs a quiet machine for
    /// about five minutes)
    Links(bench::links::Options),
}

fn main() -> ExitCode {
    let task = Cli::parse().task;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().unwrap_or(here);
    let outcome = match task {
        Task::Ci => ci::run(root),
        Task::Tidy => tidy::run(root),
        Task::Deny => deny::run(root).map(drop),
        Task::Disturb { seconds, prioritised: true } => bench::disturb::run(seconds),
        Task::Disturb { seconds, prioritised: false } => {
            bench::disturb::Disturber::start(seconds).and_then(bench::disturb::Disturber::wait)
        }
        Task::Bench { other: Some(OtherBench::Programs(options)), .. } => bench::programs::run(root, &options),
        Task::Bench { other: Some(OtherBench::Links(options)), .. } => bench::links::run(root, &options),
        Task::Bench { other: None, rounds, seconds, only, all_axes, disturbed, out } => {
            let options = bench::network::Options { rounds, seconds, only, all_axes, disturbed, out: root.join(out) };
            bench::network::run(root, &options)
        }
        Task::BenchDrivers { rounds, seconds, only } => bench::drivers::run(root, rounds, seconds, &only),
        Task::Advice(options) => advice::run(root, &options),
        Task::Rfc(options) => rfc::run(root, &options),
        Task::Fuzz(options) => fuzz::run(root, &options),
        Task::Instructions { update } => instructions::run(root, update),
        Task::Loom => ring::loom(root),
        Task::Miri => ring::miri(root),
        Task::Sim(options) => sim::run(root, &options),
        Task::Differential(options) => differential::run(&options),
        Task::Soak(options) => soak::run(root, &options),
        Task::Programs(options) => programs::run(root, &options),
        Task::Vm(options) => return vm::run(root, &options),
        Task::VmTests(options) => vm_tests::run(root, &options),
        Task::Nightly(options) => nightly::run(root, &options),
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
