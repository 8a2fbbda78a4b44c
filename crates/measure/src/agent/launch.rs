//! Starts an agent in a place and waits until it is there.
//!
//! An agent leaves nothing behind: its program file on a remote host is removed before the agent announces itself.

use super::protocol::{Answer, VERSION};
use super::ssh;
use crate::channel::ChildProcess;
use crate::limits;
use siga_model::error::{Error, Result};
use siga_plan::place::Place;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where an agent runs, and what its starter passes to it.
#[derive(Debug, Clone, Default)]
pub struct AgentOptions {
    /// Network namespace to enter, as a path that can be opened.
    pub net: Option<PathBuf>,
    /// User namespace to enter first when the network namespace alone is refused.
    pub user: Option<PathBuf>,
    /// Descriptor of a sockmap inherited from the starter.
    pub sockmap: Option<i32>,
    /// Remove the program file: it was copied to this host for this agent.
    pub unlink: bool,
}

/// Starts an agent in a place as `name` and waits until it is there.
///
/// # Errors
/// Environment: the place does not exist or refuses.
pub fn launch(place: &Place, name: &str, sockmap: Option<i32>, ssh: &str) -> Result<LaunchedAgent> {
    let inside = |net: PathBuf, user: Option<PathBuf>| AgentOptions { net: Some(net), user, sockmap, unlink: false };
    let options = match place {
        Place::Local => AgentOptions { sockmap, ..AgentOptions::default() },
        Place::Netns(namespace) => {
            let path = Path::new("/run/netns").join(namespace);
            need_file(&path, "no such network namespace", "`ip netns list` shows the existing ones")
                .map_err(|error| error.at(place))?;
            inside(path, None)
        }
        Place::Pid(pid) => {
            let path = PathBuf::from(format!("/proc/{pid}/ns/net"));
            need_file(&path, "no such process", "give the id of a process that runs in the container")
                .map_err(|error| error.at(place))?;
            inside(path, Some(PathBuf::from(format!("/proc/{pid}/ns/user"))))
        }
        Place::Built(net, user) => inside(net.clone(), user.clone()),
        Place::Ssh(host) => return ssh::launch(host, name, ssh),
    };
    let mut process = start_agent(&options, name)?;
    let addresses = greet(&mut process).map_err(|error| error.at(place))?;
    Ok(LaunchedAgent { process, addresses })
}

/// An agent that has entered its place.
#[derive(Debug)]
pub struct LaunchedAgent {
    /// The process.
    pub process: ChildProcess,
    /// Addresses of its place that others can reach, best first.
    pub addresses: Vec<IpAddr>,
}

fn need_file(path: &Path, message: &str, hint: &str) -> Result<()> {
    match path.symlink_metadata() {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::environment(message).hint(hint)),
    }
}

/// Starts an agent on this host.
///
/// # Errors
/// Environment: out of processes.
pub fn start_agent(options: &AgentOptions, name: &str) -> Result<ChildProcess> {
    ChildProcess::start(agent_command(options), name)
}

/// The command of an agent on this host.
pub(crate) fn agent_command(options: &AgentOptions) -> Command {
    // This path names the running program, even if its file was replaced or removed.
    let mut command = Command::new("/proc/self/exe");
    command.arg("agent");
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

/// Waits until an agent announces itself; returns the addresses of its place.
///
/// # Errors
/// It cannot enter its place, or is of another build.
pub fn greet(process: &mut ChildProcess) -> Result<Vec<IpAddr>> {
    let answer = process.receive(limits::ANSWER_TIME_MAX)?;
    let Answer::Hello { version, addresses } = answer else { return Err(process.unexpected(&answer)) };
    if version != VERSION {
        let name = process.name();
        return Err(Error::environment(format!(
            "{name}: speaks version {version} of the control protocol, not {VERSION}"
        )));
    }
    Ok(addresses)
}
