//! `siga netns`: a network namespace at a port of a virtual network.

use crate::note;
use clap::Args;
use siga_fabric::client::Client;
use siga_fabric::join::ReservedPort;
use siga_model::error::{Error, ErrorKind, IoContext, Result};
use siga_model::name::Name;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) const HELP: &str = "\
Examples:
  siga netns switch pod-1 -- iperf3 -s
  siga netns switch pod-2                     start a shell in the namespace
  siga netns switch pod-3 --name green        as root; then: ip netns exec green ping 10.0.3.1
  podman run --network ns:/run/netns/green IMAGE
  siga netns switch pod-1 --wait 30 -- ./server      wait for the network and the port

In the topology, the port must not have the key `netns` or the key `pid` (docs/net.md). The
namespace has the port's interface, addresses, routes and MTU. In the namespace, /etc/hosts contains
the names of guests and ports.

Without root, the command also gets a user namespace. The command keeps its user ID, and can
configure the network of its namespace. The host must allow user namespaces, and you need permission
to open /dev/net/tun. `siga doctor` checks whether both conditions are true.

When the last process of the namespace ends, the port becomes free. A namespace with a name exists
until you delete it with `ip netns del NAME`.";

#[derive(Debug, Args)]
pub(crate) struct NetnsArgs {
    /// Name of the network that `siga net up` started.
    network: Name,
    /// Name of the port in the topology of this network.
    port: Name,
    /// Give the namespace this name, as `ip netns add` does (root only). With --name and without COMMAND, siga only makes the
    /// namespace. Default: no name.
    #[arg(long, value_name = "NAME")]
    name: Option<Name>,
    /// Wait at most this number of seconds until the network is up and the port is free. Default: do not wait.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, hide_default_value = true)]
    wait: f64,
    /// Command to run in the namespace, and its arguments. Default: the shell in $SHELL; with --name, no command.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Makes the namespace, and becomes the command. Returns if there is no command, or if something fails.
pub(crate) fn run(args: &NetnsArgs) -> Result<()> {
    let until = Instant::now() + waiting_time(args.wait)?;
    enter(&args.network, &args.port, args.name.as_ref(), &args.command, until)
}

/// The time between two attempts to join a port.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(86_400);

fn waiting_time(seconds: f64) -> Result<Duration> {
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= WAIT_MAX);
    time.ok_or_else(|| Error::usage(format!("--wait {seconds} is not possible: use 0 to 86400 seconds")))
}

/// Makes a namespace at a port, and becomes the command. Without a command, becomes a shell, or returns if the namespace has a name. Waits
/// until the network is up and the port is free, but not longer than `until`.
pub(crate) fn enter(
    network: &Name,
    port: &Name,
    name: Option<&Name>,
    command: &[OsString],
    until: Instant,
) -> Result<()> {
    let tenant = match name {
        Some(name) => format!("network namespace {name}"),
        None => tenant_of_this_process(),
    };
    loop {
        let refused = match Client::connect(network) {
            Ok(mut client) => match ReservedPort::reserve(&mut client, None, Some(port.clone()), &tenant) {
                Ok(reserved) => return enter_reserved(reserved, network, name, command),
                // Time does not mend a wrong name.
                Err(error) if error.kind() != ErrorKind::Environment => return Err(error),
                Err(error) => error,
            },
            Err(error) => error,
        };
        if Instant::now() >= until {
            return Err(refused);
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// Returns the name of a namespace that lasts as long as this process and those that it starts.
pub(crate) fn tenant_of_this_process() -> String {
    format!("process {}", std::process::id())
}

/// Makes a namespace at a port that this process has reserved, and becomes the command.
pub(crate) fn enter_reserved(
    reserved: ReservedPort<'_>,
    network: &Name,
    name: Option<&Name>,
    command: &[OsString],
) -> Result<()> {
    let port = reserved.port.name.clone();
    let names = reserved.enter_new_namespace(name)?;
    let command = match (command, name) {
        ([], Some(name)) => {
            note(&format!("siga: network namespace {name} has port {port} of {network}"));
            return Ok(());
        }
        ([], None) => vec![std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or("/bin/sh".into())],
        (command, _) => command.to_vec(),
    };
    if let Err(error) = names {
        note(&format!("note: the names of guests and ports cannot be used in the namespace: {error}"));
    }
    execute(&command)
}

/// Becomes a program. Returns only if that fails.
fn execute(command: &[OsString]) -> Result<()> {
    let [program, arguments @ ..] = command else { return Err(Error::usage("name a command")) };
    Err(Command::new(program).args(arguments).exec()).context(format!("cannot run {}", program.display()))
}
