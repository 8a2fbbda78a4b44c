//! Replaces the processes of a network by another build of siga, while the network runs.

use crate::client::{Client, start_with, unknown};
use crate::control::{self, protocol_in, topology_left_in};
use crate::isolate::launch::{self, Program};
use crate::limits::START_TIME_MAX;
use crate::protocol::channel::Channel;
use crate::protocol::message::{GuestEvent, PROTOCOL};
use crate::protocol::request::Request;
use crate::rundir::{self, RunDir};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use std::path::Path;
use std::time::Duration;

/// The command-line arguments of a process that says which build of siga it is.
const BUILD_ARGUMENTS: [&str; 2] = ["net", "build"];
/// Time limit for a program to say which build it is.
const BUILD_TIME_MAX: Duration = Duration::from_secs(5);

/// A control program that has replaced another one.
#[derive(Debug)]
pub struct Upgraded {
    /// The connection to the new control program.
    pub client: Client,
    /// The version of the new build.
    pub version: String,
    /// The process ids of the old and the new control program.
    pub pids: [Option<u32>; 2],
}

/// Replaces the control program of a network by another build: by the program in the file `build`, or by the program of this process.
/// If the new control program fails, the old one goes on.
///
/// # Errors
/// Returns an error, before anything changes, if the build or this process does not have the protocol of the network. Also returns an
/// error if the network does not exist or has no control program, or if the new control program fails.
pub fn control_program(name: &Name, build: Option<&Path>) -> Result<Upgraded> {
    let base = rundir::base()?;
    let run = RunDir::open(&base, name)?.ok_or_else(|| unknown(&base, name))?;
    let protocol = protocol_in(&run)?.ok_or_else(|| unknown(&base, name))?;
    // Asking the build to say its version executes the copy in memory that becomes the control program, not the file again.
    let program = build.map_or_else(Program::load, Program::at)?;
    let new = match build {
        Some(path) => build_of(&program).map_err(|error| error.at(path.display()))?,
        None => Build { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned() },
    };
    is_fit(name, protocol, &new)?;
    let before = Client::connect_at(&base, name)?.control_pid();
    let topology = topology_left_in(&run)?.ok_or_else(|| unknown(&base, name))?;
    let start = Request::Start { name: name.clone(), topology, lease: false, takes_over: true };
    let (_, process) = start_with(&program, &base, start).map_err(|error| goes_on(&base, name, before, error))?;
    let after = u32::try_from(process.pid().as_raw_nonzero().get()).ok();
    Ok(Upgraded { client: Client::connect_at(&base, name)?, version: new.version, pids: [before, after] })
}

/// Runs a control program. Descriptor 0 is a channel to the process that started it.
///
/// # Errors
/// Returns an error if the control program cannot begin and cannot report this failure to the process that started it.
pub fn run_control(base: &Path) -> Result<()> {
    control::run(base, |base, name| {
        let mut client = Client::connect_at(base, name)?;
        client.ask(Request::HandOver, Vec::new())?;
        client.outcome(START_TIME_MAX)?;
        Ok(client.into_channel())
    })
}

/// Adds to the error of a new control program whether the old one goes on.
fn goes_on(base: &Path, name: &Name, before: Option<u32>, error: Error) -> Error {
    let error = error.at("the new control program failed");
    // The old one locks the network's directory and adopts the guests before it accepts connections.
    for _ in 0..100 {
        match Client::connect_at(base, name).ok().and_then(|client| client.control_pid()) {
            Some(pid) if Some(pid) == before => return error.hint("the old control program goes on"),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    error.hint(format!("show the network with `siga net status {name}`"))
}

/// A build of siga.
#[derive(Debug, PartialEq, Eq)]
struct Build {
    protocol: u32,
    version: String,
}

/// Checks that a build and this process speak the protocol of a running network.
fn is_fit(name: &Name, protocol: u32, new: &Build) -> Result<()> {
    if new.protocol == protocol && PROTOCOL == protocol {
        return Ok(());
    }
    let (whose, has) =
        if new.protocol == protocol { ("this command", PROTOCOL) } else { ("the new build", new.protocol) };
    let message = format!(
        "network {name} uses protocol {protocol}, but {whose} has protocol {has}; nothing was changed, and the network goes on"
    );
    Err(Error::environment(message).hint(format!(
        "use a build with protocol {protocol} for the command and for --to, or take the network down and start it with the new build"
    )))
}

/// Asks a program which build of siga it is.
fn build_of(program: &Program) -> Result<Build> {
    let (mut channel, other) = Channel::pair()?;
    let mut process = program
        .start_with(BUILD_ARGUMENTS, other, std::process::Stdio::null())
        .map_err(|error| Error::usage(format!("siga cannot execute it: {}", error.message())))?;
    let time = Timespec::try_from(BUILD_TIME_MAX).context("the time limit of a build is too long")?;
    let said = poll(&mut [PollFd::new(&channel, PollFlags::IN)], Some(&time));
    let said = said.map(|_| channel.receive::<GuestEvent>());
    // It should end by itself, but it may be any program.
    process.signal(Signal::KILL)?;
    process.wait()?;
    match said {
        Ok(Ok(Some((GuestEvent::Hello { protocol, version }, _)))) => Ok(Build { protocol, version }),
        _ => {
            Err(Error::usage("this program does not say which build of siga it is, so it cannot replace the network's")
                .hint("use a build of siga that has the command `siga net upgrade`"))
        }
    }
}

/// Says on the channel of this process which build it is.
///
/// # Errors
/// Returns an error if this process was not started to say it.
pub fn say_build() -> Result<()> {
    let mut channel = Channel::new(launch::channel()?)?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(channel.send(&GuestEvent::Hello { protocol: PROTOCOL, version }, Vec::new())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_or_a_command_of_another_protocol_is_refused_with_the_numbers() {
        let name = "lan".parse().unwrap();
        let build = |protocol| Build { protocol, version: "9.9.9".to_owned() };
        assert_eq!(is_fit(&name, PROTOCOL, &build(PROTOCOL)), Ok(()));
        let error = is_fit(&name, PROTOCOL, &build(PROTOCOL + 1)).unwrap_err();
        let text = format!("the new build has protocol {}; nothing was changed", PROTOCOL + 1);
        assert!(error.message().contains(&text) && error.exit_status() == 3, "{error}");
        let error = is_fit(&name, PROTOCOL - 1, &build(PROTOCOL - 1)).unwrap_err();
        assert!(error.message().contains(&format!("this command has protocol {PROTOCOL}")), "{error}");
    }
}
