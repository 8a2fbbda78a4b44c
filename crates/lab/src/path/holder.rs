//! The holder: a child process that builds one path, holds its namespaces, and takes them along when it leaves.
//!
//! It serves the requests of its coordinator on standard input and output and leaves at the end of its input; should
//! both processes be killed, the kernel closes the descriptors and with them the path. It puts no traffic on the path,
//! makes no thread and mounts nothing. Of other programs it runs nft alone, for a level that has a ruleset.

use super::network::Network;
use super::raised;
use crate::channel::{Lines, write_outcome};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, IoContext, Result};
use siga_plan::spec::{GuestSpec, PathSpec};
use std::io::{IsTerminal, Stdin, Stdout};

/// What the coordinator asks for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Request {
    /// Build the path; the first request and the only one of its kind.
    Build {
        /// What to build.
        spec: Box<PathSpec>,
        /// Process id of the coordinator, so that the holder can tell whether it was orphaned before it could watch.
        parent: u32,
    },
    /// Read the counters of every interface.
    Counters,
    /// Start a network of guests; the first request and the only one of its kind.
    Raise {
        /// What to start.
        spec: GuestSpec,
        /// As for `Build`.
        parent: u32,
    },
    /// Read what a guest has counted.
    Guest {
        /// Its place in `NAMES`.
        guest: usize,
    },
}

/// Serves one coordinator from standard input until its end; call it from a process that has made no thread.
///
/// Failures to build are the coordinator's to report: they are answered, and this function returns `Ok`.
///
/// # Errors
/// Usage: standard input does not speak the holder's protocol. Environment: the pipes broke.
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

/// The next request; none at the end of the input.
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
    // Gaining privilege in a user namespace is a change of credentials, which may have cleared the signal.
    watch_parent()?;
    while let Some(request) = next(requests)? {
        match request {
            Request::Counters => write_outcome(output, network.counters())?,
            Request::Build { .. } | Request::Raise { .. } | Request::Guest { .. } => {
                write_outcome::<()>(output, Err(Error::usage("a holder builds one path only")))?;
            }
        }
    }
    Ok(())
}

fn watch_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot tie the holder to its parent")
}

fn not_for_people() -> Error {
    Error::usage("`namespace-holder` holds the network path of a run and serves no other purpose")
        .hint("`siga run` starts it by itself")
}
