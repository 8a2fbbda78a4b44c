//! The keeper: a child process that builds one path, holds its namespaces, and takes them along when it leaves.
//!
//! It serves the requests of its coordinator on standard input and output and leaves at the end of its input; should
//! both processes be killed, the kernel closes the descriptors and with them the path. It puts no traffic on the path,
//! makes no thread and mounts nothing.

use super::build::Network;
use super::protocol::{LINE_BYTES_MAX, Request, answer_line, parse_request};
use crate::error::{Error, IoContext, Result};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::io::{BufRead, IsTerminal, Read, Write};

/// Serves one coordinator from standard input until its end; call it from a process that has made no thread.
///
/// Failures to build are the coordinator's to report: they are answered, and this function returns `Ok`.
///
/// # Errors
/// Usage: standard input does not speak the keeper's protocol. Environment: the pipes broke.
pub fn keep() -> Result<()> {
    watch_parent()?;
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(not_for_people());
    }
    let mut input = input.lock();
    let Some(first) = next_request(&mut input)? else { return Ok(()) };
    let Request::Build { spec, parent } = first else { return Err(not_for_people()) };
    if getppid().is_none_or(|pid| u32::try_from(pid.as_raw_nonzero().get()) != Ok(parent)) {
        return Ok(());
    }
    let mut network = match Network::build(&spec) {
        Ok((network, built)) => {
            answer(Ok(built))?;
            network
        }
        Err(error) => return answer::<()>(Err(error)),
    };
    // Gaining privilege in a user namespace is a change of credentials, which may have cleared the signal.
    watch_parent()?;
    while let Some(request) = next_request(&mut input)? {
        match request {
            Request::Counters => answer(network.counters())?,
            Request::Build { .. } => answer::<()>(Err(Error::usage("a keeper builds one path only")))?,
        }
    }
    Ok(())
}

fn watch_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot tie the keeper to its parent")
}

fn not_for_people() -> Error {
    Error::usage("`keep` holds the network path of a run and serves no other purpose")
        .hint("`siga run` starts it by itself")
}

fn next_request(input: &mut impl BufRead) -> Result<Option<Request>> {
    let mut line = Vec::new();
    let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
    let length = input.take(limit).read_until(b'\n', &mut line).context("cannot read the requests to the keeper")?;
    if length == 0 { Ok(None) } else { parse_request(&line).map(Some) }
}

fn answer<T: serde::Serialize>(outcome: Result<T>) -> Result<()> {
    let line = answer_line(outcome)?;
    let mut output = std::io::stdout().lock();
    output.write_all(&line).and_then(|()| output.flush()).context("cannot answer the coordinator")
}
