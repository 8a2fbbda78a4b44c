//! The namespace holder: a child process that builds one path and holds the path's namespaces until the process ends.
//!
//! The holder serves requests of its coordinator on standard input and output, and exits when its input ends. If both
//! processes are killed, the kernel closes the descriptors and removes the path. The holder sends no traffic over the path,
//! starts no thread and mounts nothing. The only other program that it runs is nft, for a level with a ruleset.

use super::network::Network;
use super::raised;
use crate::channel::{Lines, write_outcome};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, IoContext, Result};
use siga_plan::spec::{GuestSpec, PathSpec};
use std::io::{IsTerminal, Stdin, Stdout};
use std::path::Path;
use std::process::Command;

/// A request from the coordinator to the holder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Request {
    /// Build the path. `Build` is sent only once, as the first request.
    Build {
        /// The path to build.
        spec: Box<PathSpec>,
        /// Process id of the coordinator. If the holder has another parent, the coordinator died before the holder began to
        /// watch it.
        parent: u32,
    },
    /// Read the counters of every interface.
    Counters,
    /// Start a network of guests. `Raise` is sent only once, as the first request.
    Raise {
        /// The network to start.
        spec: GuestSpec,
        /// Process id of the coordinator, as in `Build`.
        parent: u32,
    },
    /// Report the counters of a guest.
    Guest {
        /// Index of the guest in `NAMES`.
        guest: usize,
    },
}

/// Returns the command that starts `program` as a namespace holder.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("namespace-holder");
    command
}

/// Serves one coordinator until standard input ends. Call this function in a process that has no other thread.
///
/// If building fails, the coordinator receives the error and reports it, and this function returns `Ok`.
///
/// # Errors
/// Returns a usage error if the requests on standard input are not in the holder's protocol. Returns an environment error if
/// reading or writing fails.
pub fn hold() -> Result<()> {
    watch_parent()?;
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(not_for_people());
    }
    let mut requests = Lines::new(input);
    let orphaned =
        |parent| getppid().is_none_or(|pid| u32::try_from(pid.as_raw_nonzero().get()) != Ok::<u32, _>(parent));
    let mut output = std::io::stdout();
    match next(&mut requests)? {
        None => Ok(()),
        Some(Request::Build { parent, .. } | Request::Raise { parent, .. }) if orphaned(parent) => Ok(()),
        Some(Request::Build { spec, .. }) => hold_namespaces(&spec, &mut output, &mut requests),
        Some(Request::Raise { spec, .. }) => raised::hold(&spec, &mut output, &mut requests),
        Some(Request::Counters | Request::Guest { .. }) => Err(not_for_people()),
    }
}

/// Returns the next request, or `None` at the end of the input.
pub(super) fn next(requests: &mut Lines<Stdin>) -> Result<Option<Request>> {
    match requests.next(None)? {
        Some(line) => serde_json::from_str(&line).map(Some).map_err(|_| not_for_people()),
        None => Ok(None),
    }
}

fn hold_namespaces(spec: &PathSpec, output: &mut Stdout, requests: &mut Lines<Stdin>) -> Result<()> {
    let mut network = match Network::build(spec) {
        Ok((network, built)) => {
            write_outcome(output, Ok(built))?;
            network
        }
        Err(error) => return write_outcome::<()>(output, Err(error)),
    };
    // Entering a user namespace changes credentials, which may have cleared the parent-death signal. So request the signal
    // again.
    watch_parent()?;
    while let Some(request) = next(requests)? {
        match request {
            Request::Counters => write_outcome(output, network.counters())?,
            Request::Build { .. } | Request::Raise { .. } | Request::Guest { .. } => {
                write_outcome::<()>(output, Err(Error::usage("a namespace holder builds only one path")))?;
            }
        }
    }
    Ok(())
}

fn watch_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot request a signal for the parent's death")
}

fn not_for_people() -> Error {
    Error::usage("`namespace-holder` holds the network path of a run and serves no other purpose")
        .hint("`siga run` starts it by itself")
}
