//! Real use of a virtual network: Figure 1 with two further guests. Client, server and others are processes of their own.
//!
//! `soak` keeps traffic of every kind going while guests and the control program are killed, stopped, started, refused and
//! admitted, and counts what they hold. `copy`, `crr` and `hold` are one long stream, a million connections, and ten thousand
//! connections at a time. Each brings its network up, takes it down, and ends with status 1 if anything was wrong.
//! `cargo xtask soak` builds and starts it; the program `siga` lies beside it.

mod client;
mod count;
mod disturb;
mod exchange;
mod hold;
mod network;
mod report;
mod server;
mod soak;
mod worker;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use std::time::Duration;

/// Errors are texts.
type Outcome<T> = Result<T, String>;

/// Real use of a virtual network.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Traffic of every kind while guests are killed
    Soak {
        /// How long (90s, 10m, 1h)
        #[arg(long = "for", default_value = "1h", value_parser = time)]
        time: Duration,
        /// The seed of all disturbances; by default the time of day
        #[arg(long)]
        seed: Option<u64>,
    },
    /// One stream through the router, every byte of it checked
    Copy {
        /// Bytes
        #[arg(long, default_value_t = 10_000_000_000)]
        bytes: u64,
    },
    /// Connections through the router, one for each transaction
    Crr {
        /// Transactions
        #[arg(long, default_value_t = 1_000_000)]
        count: u64,
        /// At a time
        #[arg(long, default_value_t = 10)]
        clients: u32,
    },
    /// Connections through the router, all open at a time, each used now and then
    Hold {
        /// Connections
        #[arg(long, default_value_t = 10_000)]
        count: u32,
        /// How long (90s, 10m, 1h)
        #[arg(long = "for", default_value = "10m", value_parser = time)]
        time: Duration,
    },
    /// A guest's process, started by the others
    #[command(hide = true)]
    Worker(worker::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Soak { time, seed } => soak::run(time, seed),
        Task::Copy { bytes } => soak::alone(&["--copy", &bytes.to_string()]),
        Task::Crr { count, clients } => soak::alone(&["--crr", &count.to_string(), "--clients", &clients.to_string()]),
        Task::Hold { count, time } => {
            soak::alone(&["--hold", &count.to_string(), "--seconds", &time.as_secs().to_string()])
        }
        Task::Worker(options) => worker::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// A time with its unit.
fn time(text: &str) -> Outcome<Duration> {
    humantime::parse_duration(text).map_err(|error| error.to_string())
}
