//! The namespace holder: a child process that builds one path and keeps the path's network namespaces alive until the process
//! ends.
//!
//! The coordinator is the process that carries out a run. The holder receives its requests on standard input, answers on
//! standard output, and exits when its input ends. If both processes are killed, the kernel closes their descriptors and
//! thereby removes the path. The holder sends no traffic over the path, starts no thread and mounts nothing. The only program
//! that the holder starts for a path is nft, if the level has a ruleset.

use super::feature::{self, Feature};
use super::network::Network;
use super::raised;
use crate::channel::{Lines, write_outcome};
use crate::topology::OwnNetwork;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use siga_plan::spec::{GuestSpec, PathSpec};
use std::io::{IsTerminal, Stdin, Stdout};
use std::path::Path;
use std::process::Command;

/// A request from the coordinator to the holder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Request {
    /// Build the path. The coordinator sends `Build` only once, as the first request.
    Build {
        /// The path to build.
        spec: Box<PathSpec>,
        /// Process id of the coordinator. If the holder's parent has another id, the coordinator died before the holder asked
        /// the kernel for a signal on its death. Then the holder exits.
        parent: u32,
    },
    /// Try a feature of the kernel. The coordinator sends `Try` only once, as the first request instead of `Build`.
    Try {
        /// The feature to try.
        feature: Feature,
        /// Process id of the coordinator, as in `Build`.
        parent: u32,
    },
    /// Read the counters of every interface.
    Counters,
    /// Check that the connections of the path `smc-loopback` use SMC-D.
    Smc,
    /// Start a siga network with guests. The coordinator sends `Raise` only once, as the first request instead of `Build`.
    Raise {
        /// The network to start.
        spec: GuestSpec,
        /// Process id of the coordinator, as in `Build`.
        parent: u32,
    },
    /// Start the user's own network. The coordinator sends `RaiseOwn` only once, as the first request instead of `Build`.
    RaiseOwn {
        /// The network to start.
        network: Box<OwnNetwork>,
        /// Process id of the coordinator, as in `Build`.
        parent: u32,
    },
    /// Report the counters of a guest of the user's own network.
    Report {
        /// Name of the guest.
        guest: Name,
    },
    /// Report the counters of a guest.
    Guest {
        /// Index of the guest in the list `NAMES`.
        guest: usize,
    },
}

/// Returns the command that starts `program`, which must be siga, as a namespace holder.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("namespace-holder");
    command
}

/// Runs a namespace holder: serves one coordinator until standard input ends. The calling process must have no other thread,
/// because a process with several threads cannot enter a new user namespace.
///
/// If the path cannot be built, this function sends the error to the coordinator, which reports it, and returns `Ok`.
///
/// # Errors
/// Returns an error of kind `Usage` if the requests on standard input are not in the holder's protocol. Returns an error of kind
/// `Environment` if reading or writing fails.
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
        Some(
            Request::Build { parent, .. }
            | Request::Raise { parent, .. }
            | Request::RaiseOwn { parent, .. }
            | Request::Try { parent, .. },
        ) if orphaned(parent) => Ok(()),
        Some(Request::Try { feature, .. }) => write_outcome(&mut output, feature::attempt(feature)),
        Some(Request::Build { spec, .. }) => hold_namespaces(&spec, &mut output, &mut requests),
        Some(Request::Raise { spec, .. }) => raised::hold(|| raised::Network::start(&spec), &mut output, &mut requests),
        Some(Request::RaiseOwn { network, .. }) => {
            raised::hold(|| raised::Network::start_own(&network), &mut output, &mut requests)
        }
        Some(Request::Counters | Request::Smc | Request::Guest { .. } | Request::Report { .. }) => {
            Err(not_for_people())
        }
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
    // If the holder has entered a user namespace, the change of its credentials has cleared the parent-death signal
    // (PR_SET_PDEATHSIG). So request the signal again.
    watch_parent()?;
    while let Some(request) = next(requests)? {
        match request {
            Request::Counters => write_outcome(output, network.counters())?,
            Request::Smc => write_outcome(output, network.check_smc())?,
            Request::Build { .. }
            | Request::Raise { .. }
            | Request::RaiseOwn { .. }
            | Request::Try { .. }
            | Request::Guest { .. }
            | Request::Report { .. } => {
                write_outcome::<()>(output, Err(Error::usage("a namespace holder builds only one path")))?;
            }
        }
    }
    Ok(())
}

/// Asks the kernel to kill this process when its parent ends.
pub(super) fn watch_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot arrange that this process ends with its parent process")
}

fn not_for_people() -> Error {
    Error::usage("`namespace-holder` is an internal command, which keeps the network path of a run alive")
        .hint("use `siga run`, which starts it automatically")
}
