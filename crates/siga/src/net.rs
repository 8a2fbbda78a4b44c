//! `siga net`: virtual networks for the guests of this host.

mod decode;
mod lsqeth;
mod status;
mod switches;
mod time;
mod upgrade;
mod zvm;

use crate::measure::announce;
use crate::{note, print, tell};
use clap::{Args, Subcommand};
use serde_json::json;
use siga_fabric::client::{self, Client};
use siga_fabric::protocol::request::{Answer, GuestState, GuestStatus, Request};
use siga_fabric::rundir::{self, RunDir};
use siga_model::allow::{Allow, Rule};
use siga_model::error::{Error, IoContext, Result};
use siga_model::limits::TOPOLOGY_BYTES_MAX;
use siga_model::link::table;
use siga_model::name::Name;
use siga_model::notice::old_spellings;
use siga_model::topology::Topology;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) const HELP: &str = "\
Examples:
  siga net up topologies/figure-1.toml        start the virtual network that this file describes
  siga net status                             list the networks that are up
  siga net status figure-1 --detail           show every device, link and counter
  siga net ping figure-1 tcpip1 10.0.2.2      send ICMP echo requests from a guest
  siga net capture figure-1 tcpip2 -o r.pcapng
  siga net down figure-1

A topology is a TOML file that describes networks and guests (docs/net.md). The files of running
networks are in the directory $SIGA_RUN_DIR. If this variable is not set, they are in
$XDG_RUNTIME_DIR/siga, otherwise in /tmp/siga-UID. No other user may have access to the directory
(mode 0700).";

#[derive(Debug, Subcommand)]
pub(crate) enum NetCommand {
    /// Start a network: its control program and its guests.
    ///
    /// If the control program of a running network has died, this command starts a new control program. The guests
    /// continue to run.
    #[command(
        after_help = "Examples:\n  siga net up topologies/figure-1.toml\n  siga net up topologies/figure-1.toml --name second"
    )]
    Up {
        /// Topology file: a regular file or a pipe such as /dev/stdin, of at most 1 MiB.
        topology: PathBuf,
        /// Set the name of the network. Default: the name in the topology, otherwise the name of the file without
        /// its suffix.
        #[arg(long)]
        name: Option<Name>,
    },
    /// Stop a network and remove its files.
    ///
    /// If the network's directory contains a file that siga did not create, siga keeps the directory and prints the
    /// name of the file.
    #[command(after_help = "Examples:\n  siga net down figure-1\n  siga net down second")]
    Down {
        /// Name of the network that `siga net up` started.
        network: Name,
    },
    /// Replace the processes of a running network by another build of siga, while traffic flows.
    ///
    /// Processes that siga cannot replace continue to run. The command prints the reason for each, and ends with exit
    /// status 4.
    #[command(after_help = upgrade::HELP)]
    Upgrade(upgrade::UpgradeArgs),
    /// Show the running networks and their guests.
    #[command(
        after_help = "Examples:\n  siga net status\n  siga net status figure-1 --detail\n  siga net status switch --layout zvm\n  siga net status cards --layout lsqeth"
    )]
    Status {
        /// Name of the network that `siga net up` started. Default: list all running networks.
        network: Option<Name>,
        /// Also show switches with their ports, devices, links and counters.
        #[arg(long)]
        detail: bool,
        /// Set the output format: text or json.
        #[arg(long, default_value = "text")]
        format: StatusFormat,
        /// Set the layout of the text: plain (siga's own layout), zvm (the words of QUERY VSWITCH and QUERY LAN of z/VM, for
        /// networks with a switch) or lsqeth (what lsqeth -p prints on Linux, for networks of type qdio).
        #[arg(long, default_value = "plain")]
        layout: StatusLayout,
    },
    /// Show the CPU time that each process of a network has used since it started.
    ///
    /// Virtual time is time in user mode, and total time includes time in the kernel, as in the answer to QUERY TIME of z/VM. Running
    /// applications are listed under the guest whose stack they use; applications that have ended are not listed.
    #[command(after_help = "Examples:\n  siga net time figure-1\n  siga net time figure-1 --format json")]
    Time {
        /// Name of the network that `siga net up` started.
        network: Name,
        /// Set the output format: text or json.
        #[arg(long, default_value = "text")]
        format: StatusFormat,
    },
    /// Send ICMP echo requests from a guest.
    #[command(
        after_help = "Examples:\n  siga net ping figure-1 tcpip1 10.0.2.2\n  siga net ping figure-1 tcpip1 10.0.2.2 --count 10 --interval 0.1"
    )]
    Ping(PingArgs),
    /// Write the frames that a guest sends and receives to a pcapng file. Press Ctrl-C to stop.
    #[command(
        after_help = "Examples:\n  siga net capture figure-1 tcpip2 --output r.pcapng\n  siga net capture figure-1 tcpip2 --seconds 5 >r.pcapng\n  siga net capture figure-1 tcpip1 --blocks --output b.pcapng"
    )]
    Capture {
        /// Name of the network that `siga net up` started.
        network: Name,
        /// Name of the guest.
        guest: Name,
        /// Write to this file. siga overwrites an existing file if it is a regular file that you own. Default:
        /// standard output.
        #[arg(short, long)]
        output: Option<PathBuf>,
        /// Capture at most this number of bytes of each frame.
        #[arg(long, default_value_t = 65_535)]
        snap: u32,
        /// Stop the capture after this number of seconds. Default: stop when you press Ctrl-C.
        #[arg(long)]
        seconds: Option<f64>,
        /// Capture the blocks of the guest's devices on networks of type vctc, ctc, netiucv, claw and lcs. `siga net decode` shows
        /// them. Default: capture the packets.
        #[arg(long)]
        blocks: bool,
    },
    /// Show the blocks in a pcapng file that `siga net capture --blocks` has written.
    #[command(after_help = "Examples:\n  siga net decode b.pcapng\n  siga net decode b.pcapng | grep CONNECTION")]
    Decode {
        /// The pcapng file.
        file: PathBuf,
    },
    /// Start a guest that has ended.
    #[command(after_help = "Examples:\n  siga net start figure-1 tcpip2\n  siga net start figure-1 tcpip3")]
    Start {
        /// Name of the network that `siga net up` started.
        network: Name,
        /// Name of the guest.
        guest: Name,
    },
    /// Stop a guest. The guest stays stopped until you start it with `siga net start`.
    #[command(after_help = "Examples:\n  siga net stop figure-1 tcpip2\n  siga net stop figure-1 tcpip3")]
    Stop {
        /// Name of the network that `siga net up` started.
        network: Name,
        /// Name of the guest.
        guest: Name,
    },
    /// Say what others may open to a guest, while the network runs.
    ///
    /// A packet that would open anything else is dropped and counted (not_allowed) before the guest's stack sees it.
    /// Existing connections go on, except direct connections with other guests, which are reset. Without rules in the
    /// topology, others may open everything.
    #[command(
        after_help = "Examples:\n  siga net allow figure-1 tcpip3 'tcp 443 from lan' icmp\n  siga net allow figure-1 tcpip3 --everything"
    )]
    #[command(group(clap::ArgGroup::new("what").required(true).args(["rules", "everything", "nothing"])))]
    Allow {
        /// Name of the network that `siga net up` started.
        network: Name,
        /// Name of the guest.
        guest: Name,
        /// Rules such as 'tcp 443 from lan', 'udp 5000-5010 from 10.0.0.0/8' or icmp. They replace the earlier rules.
        rules: Vec<Rule>,
        /// Allow everything, as without rules.
        #[arg(long)]
        everything: bool,
        /// Allow nothing.
        #[arg(long)]
        nothing: bool,
    },
    /// Grant a guest, or a port of a switch, access to a restricted network.
    #[command(after_help = "Examples:\n  siga net grant figure-1 lan tcpip3\n  siga net grant switch lan pod-1")]
    Grant {
        /// Name of the network that `siga net up` started.
        network: Name,
        /// Name of the restricted network in the topology.
        lan: Name,
        /// Name of the guest, or of the port of a switch.
        guest: Name,
    },
    /// Revoke the access of a guest, or of a port of a switch, to a restricted network.
    #[command(after_help = "Examples:\n  siga net revoke figure-1 lan tcpip3\n  siga net revoke switch lan pod-1")]
    Revoke {
        /// Name of the network that `siga net up` started.
        network: Name,
        /// Name of the restricted network in the topology.
        lan: Name,
        /// Name of the guest, or of the port of a switch.
        guest: Name,
    },
    /// Show the ports of a switch, or change the settings of one port.
    ///
    /// A change takes effect at once. It lasts until `siga net down`, even if the switch or the control program is killed.
    #[command(after_help = switches::PORT_HELP)]
    Port(switches::PortArgs),
    /// Change the VLANs of a port of a switch.
    #[command(after_help = switches::VLAN_HELP)]
    Vlan(switches::VlanArgs),
    /// Delay, lose or change frames between a port of a switch and its station: a modelled link.
    ///
    /// A change takes effect at once. It lasts until `siga net down`.
    #[command(after_help = switches::LINK_HELP)]
    Link(switches::LinkArgs),
    /// Copy the frames of a port, or of all ports of a switch, to another port.
    #[command(after_help = switches::MIRROR_HELP)]
    Mirror(switches::MirrorArgs),
    /// Show the Ethernet addresses that a switch knows: its forwarding database.
    #[command(after_help = switches::FDB_HELP)]
    Fdb(switches::FdbArgs),
    /// Print the secret with which an external guest attaches to the network. An external guest is a process that you
    /// start yourself.
    #[command(
        alias = "token",
        after_help = "Examples:\n  siga net secret figure-1 tcpip1\n  siga net secret figure-1 tcpip1 --application"
    )]
    Secret {
        /// Name of the network that `siga net up` started.
        network: Name,
        /// Name of the guest.
        guest: Name,
        /// Print the secret with which applications may use the guest's TCP/IP stack. Without this option, print the secret
        /// with which the process of the guest attaches to the network.
        #[arg(long)]
        application: bool,
    },
    /// Check a topology file without starting the network.
    #[command(
        after_help = "Examples:\n  siga net check topologies/figure-1.toml\n  siga net check /dev/stdin <topologies/figure-1.toml"
    )]
    Check {
        /// Topology file: a regular file or a pipe such as /dev/stdin, of at most 1 MiB.
        topology: PathBuf,
    },
    /// Run a control program (siga itself starts it).
    #[command(hide = true)]
    Control {
        /// The directory of all networks.
        base: PathBuf,
    },
    /// Say which build of siga this is (`siga net upgrade` starts it).
    #[command(hide = true)]
    Build,
    /// Run a guest (the control program starts it).
    #[command(hide = true)]
    Guest {
        /// The network and the guest, for lists of processes such as that of ps.
        name: String,
    },
    /// Run the switch of a network (the control program starts it).
    #[command(hide = true)]
    Switch {
        /// The network and the switch, for lists of processes such as that of ps.
        name: String,
    },
}

/// The format of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StatusFormat {
    /// Tables.
    Text,
    /// One JSON object.
    Json,
}

/// The layout of the text of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StatusLayout {
    /// siga's own layout.
    Plain,
    /// The words of z/VM's commands.
    Zvm,
    /// The columns of lsqeth -p on Linux.
    Lsqeth,
}

#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// Name of the network that `siga net up` started.
    network: Name,
    /// Name of the guest that sends the requests.
    guest: Name,
    /// Destination address.
    to: IpAddr,
    /// Send this number of requests.
    #[arg(short, long, default_value_t = 4)]
    count: u32,
    /// Set the payload size in bytes.
    #[arg(short, long, default_value_t = 56, value_parser = clap::value_parser!(u16).range(..=65_000))]
    size: u16,
    /// Wait this number of seconds between two requests.
    #[arg(short, long, default_value_t = 1.0)]
    interval: f64,
    /// Wait at most this number of seconds for each reply.
    #[arg(short = 'W', long, default_value_t = 2.0)]
    timeout: f64,
}

pub(crate) fn run(command: NetCommand) -> Result<()> {
    match command {
        NetCommand::Up { topology, name } => up(&topology, name),
        NetCommand::Down { network } => {
            client::down(&network)?;
            note(&format!("siga: network {network} is down"));
            Ok(())
        }
        NetCommand::Status { network: Some(network), detail, format, layout } => {
            status::print_status(&network, detail, format, layout)
        }
        NetCommand::Status { network: None, format, .. } => all(format),
        NetCommand::Time { network, format } => time::print_time(&network, format),
        NetCommand::Ping(args) => ping(&args),
        NetCommand::Capture { network, guest, output, snap, seconds, blocks } => {
            capture(&network, &guest, output.as_deref(), (snap, blocks), seconds)
        }
        NetCommand::Decode { file } => decode::decode(&file),
        NetCommand::Start { network, guest } => request(&network, Request::StartGuest(guest)),
        NetCommand::Stop { network, guest } => request(&network, Request::StopGuest(guest)),
        NetCommand::Grant { network, lan, guest } => request(&network, Request::Grant { network: lan, guest }),
        NetCommand::Allow { network, guest, rules, everything, nothing: _ } => {
            let allow = if everything { None } else { Some(Allow::new(rules)?) };
            request(&network, Request::Allow { guest, allow })
        }
        NetCommand::Revoke { network, lan, guest } => request(&network, Request::Revoke { network: lan, guest }),
        NetCommand::Port(args) => switches::port(&args),
        NetCommand::Vlan(args) => switches::vlan(args),
        NetCommand::Link(args) => switches::link(args),
        NetCommand::Mirror(args) => switches::mirror(args),
        NetCommand::Fdb(args) => switches::fdb(&args),
        NetCommand::Secret { network, guest, application } => {
            for answer in Client::connect(&network)?.request(Request::Secret { guest, application })? {
                if let Answer::Secret(secret) = answer {
                    print(&format!("{}\n", secret.text()))?;
                }
            }
            Ok(())
        }
        NetCommand::Check { topology } => {
            let at = |error: Error| error.at(topology.display());
            let checked = Topology::parse(&read(&topology)?).map_err(at)?;
            siga_fabric::tcp_settings::check(&checked).map_err(at)?;
            let guests = checked.guests.values().filter(|guest| !guest.is_switch).count();
            let networks = checked.networks.len();
            print(&format!("{}: {guests} guests on {networks} networks\n", topology.display()))
        }
        NetCommand::Upgrade(args) => upgrade::run(&args),
        NetCommand::Build => siga_fabric::upgrade::say_build(),
        NetCommand::Control { base } => siga_fabric::upgrade::run_control(&base),
        NetCommand::Guest { name: _ } | NetCommand::Switch { name: _ } => siga_fabric::guest::process::run(),
    }
}

/// Reads the text of a topology and prints a notice for each old spelling in it.
fn read(path: &Path) -> Result<String> {
    let text = siga_fabric::files::read_text(path, TOPOLOGY_BYTES_MAX)?;
    for notice in old_spellings(&text) {
        note(&format!("note: {}: {notice}", path.display()));
    }
    let directory = path.parent().unwrap_or(Path::new(""));
    with_tables(&text, directory).map_err(|error| error.at(path.display()))
}

/// Replaces the names of files with tables of jitter by the tables. Relative names are below `directory`.
fn with_tables(text: &str, directory: &Path) -> Result<String> {
    table::with_files(text, |file| siga_fabric::files::read_text(&directory.join(file), table::FILE_BYTES_MAX))
}

fn up(path: &Path, name: Option<Name>) -> Result<()> {
    let text = read(path)?;
    let at = |error: Error| error.at(path.display());
    let topology = Topology::parse(&text).map_err(at)?;
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let name = name.or(topology.name).map_or_else(|| stem.parse().map_err(at), Ok)?;
    client::up(&name, &text)?;
    status::print_status(&name, false, StatusFormat::Text, StatusLayout::Plain)
}

fn request(network: &Name, request: Request) -> Result<()> {
    Client::connect(network)?.request(request)?;
    Ok(())
}

/// Prints one line for each network.
fn all(format: StatusFormat) -> Result<()> {
    let mut rows = Vec::new();
    for name in RunDir::all(&rundir::base()?)? {
        let guests = Client::connect(&name).and_then(|mut client| client.request(Request::Status { detail: false }));
        rows.push(match guests {
            Ok(answers) => {
                let states: Vec<GuestState> = answers.iter().filter_map(guest).map(|guest| guest.state).collect();
                let running = states.iter().filter(|state| **state == GuestState::Running).count();
                (name, Some((running, states.len())), String::new())
            }
            Err(error) => (name, None, error.message().to_owned()),
        });
    }
    if format == StatusFormat::Json {
        let row = |(name, guests, error): &(Name, Option<(usize, usize)>, String)| json!({ "name": name, "running": guests.map(|(running, _)| running), "guests": guests.map(|(_, all)| all), "error": error });
        return print(&format!("{:#}\n", json!({ "networks": rows.iter().map(row).collect::<Vec<_>>() })));
    }
    if rows.is_empty() {
        return print("no network is up\n");
    }
    let line = |(name, guests, error): &(Name, Option<(usize, usize)>, String)| match guests {
        Some((running, all)) => format!("{name:<24}{running} of {all} guests are running\n"),
        None => format!("{name:<24}{error}\n"),
    };
    print(&rows.iter().map(line).collect::<String>())
}

fn guest(answer: &Answer) -> Option<&GuestStatus> {
    if let Answer::Guest(guest) = answer { Some(guest) } else { None }
}

fn ping(args: &PingArgs) -> Result<()> {
    let seconds = |value: f64, what: &str| {
        Duration::try_from_secs_f64(value)
            .map_err(|_| Error::usage(format!("{what} of {value} s is not possible: use 0 or more seconds")))
    };
    let (interval, timeout) = (seconds(args.interval, "an interval")?, seconds(args.timeout, "a timeout")?);
    let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    let mut client = Client::connect(&args.network)?;
    announce(&siga_measure::host::environment());
    let mut times = Vec::new();
    for count in 0..args.count {
        if count > 0 {
            std::thread::sleep(interval);
        }
        let request = || Request::Ping { guest: args.guest.clone(), to: args.to, bytes: args.size, timeout_ms };
        for answer in client.request_again(&args.network, request)? {
            if let Answer::Pong { time_ns } = answer {
                let outcome = time_ns.map_or_else(
                    || "no answer".to_owned(),
                    |ns| format!("{} bytes, {:.1} us", args.size, Duration::from_nanos(ns).as_secs_f64() * 1e6),
                );
                print(&format!("{} from {}: {outcome}\n", args.to, args.guest))?;
                times.extend(time_ns);
            }
        }
    }
    let answered = times.len();
    print(&format!("{} requests sent, {answered} answered\n", args.count))?;
    if answered == 0 {
        return Err(Error::incomplete(format!("{} did not answer any request", args.to)));
    }
    Ok(())
}

fn capture(
    network: &Name,
    guest: &Name,
    output: Option<&Path>,
    (snap_bytes, blocks): (u32, bool),
    seconds: Option<f64>,
) -> Result<()> {
    let mut client = Client::connect(network)?;
    // The guest writes to a pipe, so that it never has a descriptor of the user's file.
    let (mut reader, writer) = std::io::pipe().context("cannot create a pipe for the capture")?;
    let mut into: Box<dyn std::io::Write + Send> = match output {
        Some(path) => Box::new(siga_fabric::files::create(path)?),
        None => Box::new(std::io::stdout()),
    };
    client.ask(Request::Capture { guest: guest.clone(), snap_bytes, blocks }, vec![writer.into()])?;
    let copy = std::thread::spawn(move || std::io::copy(&mut reader, &mut into));
    tell(&format!("siga: capturing the frames of guest {guest}; press Ctrl-C to end"));
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let ended = client.answer(time.unwrap_or(Duration::from_secs(u32::MAX.into())))?;
    // The end of the connection ends the capture, which closes the pipe.
    drop(client);
    copy.join()
        .map_err(|_| Error::environment("the thread that copies the capture failed"))?
        .context("cannot write the captured frames")?;
    if let Some(Answer::CaptureEnded { missed }) = ended {
        tell(&format!("siga: the capture of guest {guest} has ended; {missed} frames are missing from it"));
    }
    Ok(())
}
