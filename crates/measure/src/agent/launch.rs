//! Starts an agent (the client or server process of a trial) in a place and waits for its first message, with which it
//! announces itself.
//!
//! An agent leaves no files behind: an agent whose program file was copied to another host removes this file before it
//! announces itself.

use super::protocol::{Answer, VERSION};
use super::ssh;
use crate::channel::ChildProcess;
use crate::limits;
use siga_model::error::{Error, Result};
use siga_plan::place::Place;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of the program that carries out the run, even if its file has been replaced or removed since the start.
pub(crate) const RUNNING: &str = "/proc/self/exe";

/// The namespaces in which an agent runs, and the descriptor that it inherits.
#[derive(Debug, Clone, Default)]
pub struct AgentOptions {
    /// Network namespace to enter, as a path that this process can open.
    pub net: Option<PathBuf>,
    /// User namespace that the agent enters first if the kernel does not permit it to enter the network namespace directly.
    pub user: Option<PathBuf>,
    /// Number of the descriptor of a sockmap, which the agent inherits from the process that starts it.
    pub sockmap: Option<i32>,
    /// Whether the agent removes its own program file, because the file was copied to this host only for this agent.
    pub unlink: bool,
}

impl AgentOptions {
    /// Returns options that contain the namespaces of `place`. The places `Local` and `Ssh` have none.
    pub(crate) fn in_place(place: &Place) -> Self {
        let (net, user) = match place {
            Place::Local | Place::Ssh(_) => (None, None),
            Place::Netns(name) => (Some(Path::new("/run/netns").join(name)), None),
            Place::Pid(pid) => {
                (Some(format!("/proc/{pid}/ns/net").into()), Some(format!("/proc/{pid}/ns/user").into()))
            }
            Place::Built(net, user) => (Some(net.clone()), user.clone()),
        };
        Self { net, user, ..Self::default() }
    }
}

/// What a process of siga does in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It is one end of a path: client or server.
    Agent,
    /// It measures whole trials, for a run on several hosts (`crate::hosts`).
    Measurer,
}

impl Role {
    /// Returns the word on siga's command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Measurer => "measurer",
        }
    }
}

/// Starts an agent in `place` and waits until the agent has announced itself. `name` is the agent's name in error messages.
/// Returns an error of kind `Environment` if the place does not exist or cannot be
/// entered.
pub(crate) fn launch(place: &Place, name: &str, sockmap: Option<i32>, from: Programs<'_>) -> Result<LaunchedAgent> {
    launch_as(Role::Agent, place, name, sockmap, from)
}

/// The programs from which agents come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Programs<'a> {
    /// The program of siga that runs on this host.
    pub siga: &'a Path,
    /// The command that connects to other hosts. They get a copy of the running program.
    pub ssh: &'a str,
}

/// Starts a process with this role in `place`, as [`launch`] does.
pub(crate) fn launch_as(
    role: Role,
    place: &Place,
    name: &str,
    sockmap: Option<i32>,
    from: Programs<'_>,
) -> Result<LaunchedAgent> {
    let if_absent = match place {
        Place::Netns(_) => {
            Some(("this network namespace does not exist", "`ip netns list` lists the existing namespaces"))
        }
        Place::Pid(_) => Some(("this process does not exist", "use the ID of a process that runs in the container")),
        Place::Local | Place::Built(..) => None,
        Place::Ssh(host) => return ssh::launch(host, role, name, from.ssh),
    };
    let options = AgentOptions { sockmap, ..AgentOptions::in_place(place) };
    if let (Some((message, hint)), Some(net)) = (if_absent, &options.net)
        && net.symlink_metadata().is_err()
    {
        return Err(Error::environment(message).hint(hint).at(place));
    }
    let mut process = ChildProcess::start(command_as(from.siga, role, &options), name)?;
    let addresses = greet(&mut process).map_err(|error| error.at(place))?;
    Ok(LaunchedAgent { process, addresses })
}

/// An agent that has entered its place.
#[derive(Debug)]
pub(crate) struct LaunchedAgent {
    /// The agent's process and its control channel.
    pub process: ChildProcess,
    /// Addresses of the agent's place at which other hosts can reach it, the most suitable first.
    pub addresses: Vec<IpAddr>,
}

/// Starts an agent on this host. Returns an error of kind `Environment` if the system cannot create another process.
pub(crate) fn start_agent(options: &AgentOptions, name: &str) -> Result<ChildProcess> {
    ChildProcess::start(agent_command(options), name)
}

/// Builds the command that starts an agent on this host.
pub(crate) fn agent_command(options: &AgentOptions) -> Command {
    command_as(Path::new(RUNNING), Role::Agent, options)
}

/// Builds the command that starts a process of this program with this role on this host.
pub(crate) fn command_as(program: &Path, role: Role, options: &AgentOptions) -> Command {
    let mut command = Command::new(program);
    command.arg(role.word());
    if let Some(net) = &options.net {
        command.arg("--net").arg(net);
    }
    if let Some(user) = &options.user {
        command.arg("--user").arg(user);
    }
    if let Some(fd) = options.sockmap {
        command.arg("--sockmap").arg(fd.to_string());
    }
    command
}

/// Waits until an agent announces itself. Returns the addresses of the agent's place. Returns an error if the agent cannot
/// enter its place, or uses another version of the control protocol.
pub(crate) fn greet(process: &mut ChildProcess) -> Result<Vec<IpAddr>> {
    let answer = process.receive(limits::ANSWER_TIME_MAX)?;
    let Answer::Hello { version, addresses } = answer else { return Err(process.unexpected(&answer)) };
    if version != VERSION {
        let name = process.name();
        return Err(Error::environment(format!(
            "{name}: this program has version {version} of the control protocol, but siga needs version {VERSION}"
        )));
    }
    Ok(addresses)
}
