//! The process of a guest: attaches to the network and does its task. The process ends when its parent ends.

use super::report::Report;
use super::{Outcome, client, hold, server};
use clap::Args;
use rustix::process::{Signal, set_parent_process_death_signal};
use siga_fabric::protocol::secret::Secret;
use siga_fabric::sockets::Attachment;
use siga_model::name::Name;
use std::path::PathBuf;
use std::time::Duration;

/// The environment variable that has the guest's secret.
pub(super) const TOKEN: &str = "SIGA_SOAK_TOKEN";

/// The guest and its task.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The directory in which the run directories of networks are
    #[arg(long)]
    base: PathBuf,
    /// The name of the network
    #[arg(long)]
    network: Name,
    /// The name of the guest
    #[arg(long)]
    guest: Name,
    /// Run the server
    #[arg(long)]
    serve: bool,
    /// Send every kind of traffic until the network goes down
    #[arg(long)]
    traffic: bool,
    /// Send a stream of this many bytes
    #[arg(long)]
    copy: Option<u64>,
    /// Carry out this many transactions, each on its own connection
    #[arg(long)]
    crr: Option<u64>,
    /// Number of connections at the same time for --crr
    #[arg(long, default_value_t = 1)]
    clients: u32,
    /// Keep this many connections open at the same time
    #[arg(long)]
    hold: Option<u32>,
    /// Duration of --hold, in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// Attaches to the network and does the guest's task.
pub(super) fn run(options: &Options) -> Outcome<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
    let secret = Secret::claimed(std::env::var(TOKEN).map_err(|error| format!("{TOKEN}: {error}"))?);
    let attachment = Attachment::embedded_at(&options.base, &options.network, &options.guest, &secret)
        .map_err(|error| error.to_string())?;
    let report = Report::start();
    let outcome = match options {
        Options { serve: true, .. } => server::run(&attachment, &report),
        Options { traffic: true, .. } => client::traffic(&attachment, &report),
        Options { copy: Some(bytes), .. } => client::copy(&attachment, &report, *bytes),
        Options { crr: Some(count), clients, .. } => client::crr(&attachment, &report, *count, *clients),
        Options { hold: Some(count), seconds, .. } => {
            hold::run(&attachment, &report, *count, Duration::from_secs(*seconds))
        }
        _ => Err("nothing to do".to_owned()),
    };
    if let Err(error) = &outcome {
        report.finding(error);
    }
    report.tell();
    outcome
}
