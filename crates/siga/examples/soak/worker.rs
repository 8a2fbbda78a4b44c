//! A guest's process: attaches, does its part, and dies with its parent.

use super::report::Report;
use super::{Outcome, client, hold, server};
use clap::Args;
use rustix::process::{Signal, set_parent_process_death_signal};
use siga_fabric::protocol::secret::Secret;
use siga_fabric::sockets::Attachment;
use siga_model::name::Name;
use std::path::PathBuf;
use std::time::Duration;

/// The environment's variable with the guest's secret.
pub(super) const TOKEN: &str = "SIGA_SOAK_TOKEN";

/// Which guest, and what it does.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Where networks' files lie
    #[arg(long)]
    base: PathBuf,
    /// The network
    #[arg(long)]
    network: Name,
    /// The guest
    #[arg(long)]
    guest: Name,
    /// Serves
    #[arg(long)]
    serve: bool,
    /// Traffic of every kind, without end
    #[arg(long)]
    traffic: bool,
    /// A stream of this many bytes
    #[arg(long)]
    copy: Option<u64>,
    /// This many connections, one after the other
    #[arg(long)]
    crr: Option<u64>,
    /// Connections at a time
    #[arg(long, default_value_t = 1)]
    clients: u32,
    /// This many connections at a time
    #[arg(long)]
    hold: Option<u32>,
    /// For this time
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// Does its part.
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
