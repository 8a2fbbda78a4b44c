//! `siga exec`: runs an unmodified program with the sockets of a guest.
//!
//! This process becomes the program, so that its process id, signals and exit status are the program's. A broker, which is another
//! process, attaches the program's processes to the guest. It ends with the last of them.

mod program;

use clap::{Args, ValueEnum};
use program::Program;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use siga_fabric::broker::Broker;
use siga_fabric::client::Client;
use siga_fabric::isolate;
use siga_fabric::protocol::request::{Answer, Request};
use siga_fabric::protocol::secret::Secret;
use siga_fabric::rundir;
use siga_iucv::broker::{CHANNEL_VARIABLE, LIBRARY_VARIABLE, LOOPBACK_OF_GUEST, LOOPBACK_VARIABLE};
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

pub(crate) const HELP: &str = "\
Examples:
  siga exec figure-1 tcpip1 curl http://10.0.2.2:8000/
  siga exec figure-1 tcpip3 -- python3 -m http.server --bind 10.0.2.2
  siga exec --loopback guest figure-1 tcpip3 redis-server
  siga exec --check /usr/bin/curl

The addresses 127.0.0.0/8 and ::1 belong to the host; with --loopback guest, they belong to the guest. If the environment variable
SIGA_EXEC_LOG names a file, siga appends a line for each call that it cannot carry out with the sockets of the guest.

Limits: the program must be dynamically linked with glibc 2.34 or newer, and must not be setuid.";

/// The library, which the build script has built.
const LIBRARY: &[u8] = include_bytes!(env!("SIGA_PRELOAD_LIBRARY"));

/// The smallest number of an inherited descriptor. Programs expect small numbers for descriptors of their own.
const NUMBER_MIN: RawFd = 500;

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// Name of the network.
    #[arg(required_unless_present = "check")]
    network: Option<Name>,
    /// Name of the guest whose TCP/IP stack the program uses.
    #[arg(required_unless_present = "check")]
    guest: Option<Name>,
    /// Program to run, and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required_unless_present = "check")]
    command: Vec<OsString>,
    /// Choose to whom the loopback addresses (127.0.0.0/8, ::1) and the name `localhost` belong: the host or the guest.
    #[arg(long, value_enum, default_value_t = Loopback::Host, value_name = "OWNER")]
    loopback: Loopback,
    /// Only check whether siga can run this program, and print the reason if it cannot. Default: siga runs the program.
    #[arg(long, value_name = "PROGRAM", exclusive = true)]
    check: Option<OsString>,
}

/// The owner of the loopback addresses that a program sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Loopback {
    /// The guest: the program reaches other programs on the same guest.
    Guest,
    /// The host: the program reaches the host's servers.
    Host,
}

/// Becomes the program. Returns only if that fails.
pub(crate) fn run(args: &ExecArgs) -> Result<()> {
    if let Some(program) = &args.check {
        let program = Program::find(program)?;
        return crate::print(&format!("{}: {}\n", program.path.display(), program.verdict()?));
    }
    let (Some(network), Some(guest), [name, arguments @ ..]) = (&args.network, &args.guest, &args.command[..]) else {
        return Err(Error::usage("name a network, a guest and a program"));
    };
    let program = Program::find(name)?;
    program.verdict()?;
    // A wrong network or guest is an error of this command, not of the program.
    secret(network, guest)?;
    let (channel, at_broker) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .context("cannot create a channel")?;
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

/// Duplicates a descriptor to a large number, under which the program inherits it.
fn inheritable(descriptor: &OwnedFd) -> Result<OwnedFd> {
    let moved = fcntl_dupfd_cloexec(descriptor, NUMBER_MIN).context("cannot pass on a descriptor")?;
    fcntl_setfd(&moved, FdFlags::empty()).context("cannot pass on a descriptor")?;
    Ok(moved)
}

/// Returns a memory file with the library that no process can change.
fn library() -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("siga-preload", flags).context("cannot create a memory file")?;
    let mut file = std::fs::File::from(file);
    file.write_all(LIBRARY).context("no memory for the library")?;
    fcntl_add_seals(file.as_fd(), SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)
        .context("cannot seal the library")?;
    Ok(file.into())
}

fn secret(network: &Name, guest: &Name) -> Result<Secret> {
    let request = Request::Secret { guest: guest.clone(), application: true };
    let answers = Client::connect(network)?.request(request)?;
    let secret =
        answers.into_iter().find_map(|answer| if let Answer::Secret(secret) = answer { Some(secret) } else { None });
    secret.ok_or_else(|| Error::environment("the control program sent no secret"))
}

/// Starts the broker. A process that ends at once starts it, so that it is no child of the program.
fn start_broker(network: &Name, guest: &Name, channel: OwnedFd) -> Result<()> {
    let mut starter = broker_command(network, guest)?;
    starter.arg("--start").stdin(channel);
    let status = starter.status().context("cannot start the broker")?;
    if status.success() { Ok(()) } else { Err(Error::environment(format!("the broker did not start: {status}"))) }
}

fn broker_command(network: &Name, guest: &Name) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find siga's program file")?);
    command.args(["exec-broker", network.as_str(), guest.as_str()]).stdout(Stdio::null());
    Ok(command)
}

/// Serves the channel that is standard input, until no process of the program is left. With `start`, starts a process that does so.
pub(crate) fn broker(network: &Name, guest: &Name, start: bool) -> Result<()> {
    let channel = std::io::stdin().as_fd().try_clone_to_owned().context("cannot use the channel")?;
    if start {
        return broker_command(network, guest)?
            .stdin(channel)
            .stderr(Stdio::null())
            .spawn()
            .map(|_| ())
            .context("cannot start the broker");
    }
    rustix::process::setsid().context("cannot detach from the terminal")?;
    let secret = secret(network, guest)?;
    let base = rundir::base()?;
    Broker { base: &base, network, guest, secret: &secret }.serve(&channel)
}
