//! Uses a virtual network for a long time: Figure 1 with two further guests. The client, the server and the other server are
//! separate processes.
//!
//! `soak` sends every kind of traffic while it kills, stops, starts, revokes and grants guests and kills the control program. It
//! also checks that their resources do not grow. `switch` does so with a switch, network namespaces and uplinks. `copy`, `crr` and `hold` are one long stream, a million connections one after
//! the other, and ten thousand connections at the same time. Each task brings its network up, takes it down, and exits with
//! status 1 if it found an error. `cargo xtask soak` builds and starts this program; the program `siga` is in the directory
//! above.

mod client;
mod count;
mod disturb;
mod exchange;
mod hold;
mod network;
mod report;
mod server;
mod soak;
mod switched;
mod worker;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use std::time::Duration;

/// A result whose error is a text.
type Outcome<T> = Result<T, String>;

/// Use a virtual network for a long time, and check traffic and resources.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Send every kind of traffic while guests are killed
    Soak {
        /// Duration (90s, 10m, 1h)
        #[arg(long = "for", default_value = "1h", value_parser = time)]
        time: Duration,
        /// The seed for the choice of disturbances (default: the current time)
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Kill a switch, namespaces at its ports and interfaces of its uplinks during traffic
    Switch {
        /// Duration (90s, 10m, 1h)
        #[arg(long = "for", default_value = "1h", value_parser = time)]
        time: Duration,
        /// The seed for the choice of disturbances (default: the current time)
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Send one stream through the router and check every byte
    Copy {
        /// Length of the stream, in bytes
        #[arg(long, default_value_t = 10_000_000_000)]
        bytes: u64,
    },
    /// Carry out transactions through the router, each on its own connection
    Crr {
        /// Number of transactions
        #[arg(long, default_value_t = 1_000_000)]
        count: u64,
        /// Number of transactions at the same time
        #[arg(long, default_value_t = 10)]
        clients: u32,
    },
    /// Open many connections through the router at the same time, and use each from time to time
    Hold {
        /// Number of connections
        #[arg(long, default_value_t = 10_000)]
        count: u32,
        /// Duration (90s, 10m, 1h)
        #[arg(long = "for", default_value = "10m", value_parser = time)]
        time: Duration,
    },
    /// Run the process of a guest; the other commands start it
    #[command(hide = true)]
    Worker(worker::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Soak { time, seed } => soak::run(time, seed),
        Task::Switch { time, seed } => switched::run(time, seed),
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

/// Parses a time with its unit.
fn time(text: &str) -> Outcome<Duration> {
    humantime::parse_duration(text).map_err(|error| error.to_string())
}
