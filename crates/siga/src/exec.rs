//! `siga exec`: runs an unmodified program with the sockets of a guest.
//!
//! This process becomes the program, so that its process id, signals and exit status are the program's. A broker, which is another
//! process, attaches the program's processes to the guest. It ends with the last of them.

mod elf;
mod program;

use crate::{netns, note};
use clap::{Args, ValueEnum};
use program::{Program, Verdict};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use siga_fabric::broker::Broker;
use siga_fabric::client::Client;
use siga_fabric::isolate;
use siga_fabric::join::ReservedPort;
use siga_fabric::protocol::request::{Answer, MemberStatus, Request};
use siga_fabric::protocol::secret::Secret;
use siga_fabric::rundir;
use siga_iucv::broker::{
    CHANNEL_VARIABLE, DESCRIPTOR_NUMBER_MIN, LIBRARY_VARIABLE, LOOPBACK_OF_GUEST, LOOPBACK_VARIABLE,
};
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

pub(crate) const HELP: &str = "\
Examples:
  siga exec figure-1 tcpip1 curl http://10.0.2.2:8000/
  siga exec figure-1 tcpip3 -- python3 -m http.server --bind 10.0.2.2
  siga exec --loopback guest figure-1 tcpip3 redis-server
  siga exec switch pod-1 -- ./static-program      runs in a network namespace at port pod-1
  siga exec --check /usr/bin/curl

A program can use the sockets of a guest if it is dynamically linked with glibc 2.34 or newer, and
is not setuid. siga runs any other program in a network namespace instead, for example a static
program or a program written in Go. The namespace uses a free port of a switch to which the guest is
connected. The program then has the addresses of this port instead of the guest's addresses. siga
prints the addresses. siga does the same for a program that is linked with liburing, because io_uring
is not available on a guest. If no port is free, the program runs on the guest without io_uring. For
other programs that need io_uring, use --tier netns.

siga does not support every socket call. To see the unsupported calls of a program, set the
environment variable SIGA_EXEC_LOG to the name of a file. siga appends one line to this file for
each unsupported call.";

/// The library, which the build script has built.
const LIBRARY: &[u8] = include_bytes!(env!("SIGA_PRELOAD_LIBRARY"));

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// Name of the network that `siga net up` started.
    #[arg(required_unless_present = "check")]
    network: Option<Name>,
    /// Name of the guest whose TCP/IP stack the program uses.
    #[arg(required_unless_present = "check")]
    guest: Option<Name>,
    /// Program to run, and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required_unless_present = "check")]
    command: Vec<OsString>,
    /// Set whether the loopback addresses (127.0.0.0/8, ::1) and the name `localhost` mean the host or the guest.
    #[arg(long, value_enum, default_value_t = Loopback::Host, value_name = "OWNER")]
    loopback: Loopback,
    /// Choose how the program reaches the network. preload: over the guest's stack. netns: over the kernel's stack, in a
    /// network namespace. With netns, GUEST is the name of a port of a switch, as for siga netns. Default: preload if the
    /// program and GUEST allow it, otherwise netns.
    #[arg(long, value_enum, hide_default_value = true)]
    tier: Option<Tier>,
    /// Check whether siga can run this program, without running it. If siga cannot run the program, it prints the
    /// reason. Default: run the program.
    #[arg(long, value_name = "PROGRAM", exclusive = true)]
    check: Option<OsString>,
}

/// How a program reaches the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tier {
    /// A library in the program replaces its sockets.
    Preload,
    /// The program runs in a network namespace at a port of a switch.
    Netns,
}

/// The owner of the loopback addresses that a program sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Loopback {
    /// Loopback addresses reach other programs on the same guest.
    Guest,
    /// Loopback addresses reach servers on the host.
    Host,
}

/// Becomes the program. Returns only if that fails.
pub(crate) fn run(args: &ExecArgs) -> Result<()> {
    if let Some(program) = &args.check {
        let program = Program::find(program)?;
        return crate::print(&format!("{}: {}\n", program.path.display(), program.verdict()?));
    }
    let (Some(network), Some(guest), [name, arguments @ ..]) = (&args.network, &args.guest, &args.command[..]) else {
        return Err(Error::usage("the network, the guest or the program is missing"));
    };
    if args.tier == Some(Tier::Netns) {
        return netns::enter(network, guest, None, &args.command, Instant::now());
    }
    let program = Program::find(name)?;
    // A wrong network or guest is an error of this command, not of the program.
    match (program.verdict(), args.tier) {
        (Ok(Verdict::Runs), _) | (Ok(Verdict::RunsWithoutIoUring(_)), Some(_)) => {}
        (Ok(Verdict::RunsWithoutIoUring(library)), None) => {
            let why =
                format!("{} is linked with {library}, but a guest does not have io_uring", program.path.display());
            enter_beside(network, guest, &args.command, &why)?;
            note(&format!(
                "siga: {why}, and no port is free for it; the program runs on guest {guest} without io_uring"
            ));
        }
        (Err(refused), None) => {
            enter_beside(network, guest, &args.command, refused.message())?;
            return Err(refused.hint(
                "use a port of a switch instead of the guest (docs/exec.md); this guest has no switch with a free port",
            ));
        }
        (Err(refused), Some(_)) => return Err(refused),
    }
    if let Err(error) = secret(network, guest) {
        if args.tier.is_none() && is_port(network, guest) {
            return netns::enter(network, guest, None, &args.command, Instant::now());
        }
        return Err(error);
    }
    let (channel, at_broker) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .context("cannot create a socket pair for the broker")?;
    start_broker(network, guest, at_broker)?;
    let (channel, library) = (inheritable(&channel)?, inheritable(&library()?)?);
    let mut preload = OsString::from(format!("/proc/self/fd/{}", library.as_raw_fd()));
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(&program.path);
    command.arg0(name).args(arguments).env("LD_PRELOAD", preload);
    command.env(CHANNEL_VARIABLE, channel.as_raw_fd().to_string());
    command.env(LIBRARY_VARIABLE, library.as_raw_fd().to_string());
    match args.loopback {
        Loopback::Guest => command.env(LOOPBACK_VARIABLE, LOOPBACK_OF_GUEST),
        Loopback::Host => command.env_remove(LOOPBACK_VARIABLE),
    };
    isolate::without_io_uring()?;
    Err(command.exec()).context(format!("cannot run {}", program.path.display()))
}

/// Becomes a program, in a network namespace: at the port that `place` names, or at a free port of a switch to which the guest `place`
/// is connected. Says so, and says `why`. Returns without an error if no port is free.
fn enter_beside(network: &Name, place: &Name, command: &[OsString], why: &str) -> Result<()> {
    if is_port(network, place) {
        note(&format!("siga: {why}; the program runs in a network namespace at port {place}"));
        return netns::enter(network, place, None, command, Instant::now());
    }
    let mut client = Client::connect(network)?;
    for lan in switches_of(&mut client, place)? {
        let tenant = netns::tenant_of_this_process();
        let Ok(reserved) = ReservedPort::reserve(&mut client, Some(lan.clone()), None, &tenant) else { continue };
        let addresses: Vec<String> = reserved.port.addresses.iter().map(|own| own.addr().to_string()).collect();
        let addresses = if addresses.is_empty() { "no address".to_owned() } else { addresses.join(" and ") };
        note(&format!(
            "siga: {why}; the program runs in a network namespace at port {} of {lan} with {addresses}, \
             not with the addresses of guest {place}",
            reserved.port.name
        ));
        return netns::enter_reserved(reserved, network, None, command);
    }
    Ok(())
}

/// Returns the members of all networks.
fn members(client: &mut Client) -> Result<Vec<(Name, MemberStatus)>> {
    let answers = client.request(Request::Status { detail: false })?;
    let of = |answer| if let Answer::Members { network, members } = answer { Some((network, members)) } else { None };
    let of_networks = answers.into_iter().filter_map(of);
    Ok(of_networks.flat_map(|(lan, members)| members.into_iter().map(move |member| (lan.clone(), member))).collect())
}

/// Returns whether a network has a port of a switch with this name.
fn is_port(network: &Name, name: &Name) -> bool {
    let members = Client::connect(network).and_then(|mut client| members(&mut client));
    members.is_ok_and(|members| members.iter().any(|(_, member)| member.label == name.as_str()))
}

/// Returns the networks with a switch to which a guest has access.
fn switches_of(client: &mut Client, guest: &Name) -> Result<BTreeSet<Name>> {
    let is_of_guest = |member: &MemberStatus| member.grantee == *guest && member.granted && member.port.is_some();
    Ok(members(client)?.into_iter().filter(|(_, member)| is_of_guest(member)).map(|(lan, _)| lan).collect())
}

/// Duplicates a descriptor to a large number, under which the program inherits it.
fn inheritable(descriptor: &OwnedFd) -> Result<OwnedFd> {
    let moved = fcntl_dupfd_cloexec(descriptor, DESCRIPTOR_NUMBER_MIN)
        .context("cannot pass a file descriptor to the program")?;
    fcntl_setfd(&moved, FdFlags::empty()).context("cannot pass a file descriptor to the program")?;
    Ok(moved)
}

/// Returns a memory file with the library that no process can change.
fn library() -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("siga-preload", flags).context("cannot create a memory file for the preload library")?;
    let mut file = std::fs::File::from(file);
    file.write_all(LIBRARY).context("cannot copy the preload library into memory")?;
    fcntl_add_seals(file.as_fd(), SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)
        .context("cannot seal the memory file of the preload library")?;
    Ok(file.into())
}

fn secret(network: &Name, guest: &Name) -> Result<Secret> {
    let request = Request::Secret { guest: guest.clone(), application: true };
    let answers = Client::connect(network)?.request(request)?;
    let secret =
        answers.into_iter().find_map(|answer| if let Answer::Secret(secret) = answer { Some(secret) } else { None });
    secret.ok_or_else(|| Error::environment("the control program did not send the secret of the guest"))
}

/// Starts the broker. A process that ends at once starts it, so that it is no child of the program.
fn start_broker(network: &Name, guest: &Name, channel: OwnedFd) -> Result<()> {
    let mut starter = broker_command(network, guest)?;
    starter.arg("--start").stdin(channel);
    let status =
        starter.status().context("cannot start the broker process, which connects the program with the guest")?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::environment(format!("the broker process did not start: {status}")))
    }
}

fn broker_command(network: &Name, guest: &Name) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find siga's program file")?);
    command.args(["exec-broker", network.as_str(), guest.as_str()]).stdout(Stdio::null());
    Ok(command)
}

/// Serves the channel that is standard input, until no process of the program is left. With `start`, starts a process that does so.
pub(crate) fn broker(network: &Name, guest: &Name, start: bool) -> Result<()> {
    let channel = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .context("cannot duplicate the socket that connects this process with the program")?;
    if start {
        return broker_command(network, guest)?
            .stdin(channel)
            .stderr(Stdio::null())
            .spawn()
            .map(|_| ())
            .context("cannot start the broker process, which connects the program with the guest");
    }
    rustix::process::setsid().context("the broker process cannot detach from the terminal")?;
    let secret = secret(network, guest)?;
    let base = rundir::base()?;
    Broker { base: &base, network, guest, secret: &secret }.serve(&channel)
}
