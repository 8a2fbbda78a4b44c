//! `siga net`: virtual networks for the guests of this host.

use crate::measure::announce;
use crate::{note, print, tell};
use clap::{Args, Subcommand};
use serde_json::json;
use siga_fabric::client::{self, Client};
use siga_fabric::protocol::report::{ApplicationReport, DeviceReport, LinkReport, ReportPart, StackReport};
use siga_fabric::protocol::request::{Answer, GuestState, GuestStatus, NetworkStatus, Request};
use siga_fabric::rundir::{self, RunDir};
use siga_model::error::{Error, IoContext, Result};
use siga_model::limits::TOPOLOGY_BYTES_MAX;
use siga_model::name::Name;
use siga_model::notice::old_spellings;
use siga_model::topology::Topology;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) const HELP: &str = "\
Examples:
  siga net up topologies/figure-1.toml        start a control program and its guests
  siga net status                             list the networks that are up
  siga net status figure-1 --detail           show every device, link and counter
  siga net ping figure-1 tcpip1 10.0.2.2      send echo requests from a guest
  siga net capture figure-1 tcpip2 -o r.pcapng
  siga net down figure-1

A topology is a TOML file with networks and guests: see docs/net.md. Networks keep their files in the directory
$SIGA_RUN_DIR; if that variable is not set, in $XDG_RUNTIME_DIR/siga or /tmp/siga-UID. Only you may have access to the directory.";

#[derive(Debug, Subcommand)]
pub(crate) enum NetCommand {
    /// Start a network: its control program and its guests.
    ///
    /// If the control program of a running network has died, this command starts a new one, which takes over the
    /// guests.
    #[command(
        after_help = "Examples:\n  siga net up topologies/figure-1.toml\n  siga net up topologies/figure-1.toml --name second"
    )]
    Up {
        /// Topology file of at most 1 MiB: a regular file, or a shell pipe (/dev/stdin).
        topology: PathBuf,
        /// Set the name of the network. Default: the name in the topology, or the file's name without its suffix.
        #[arg(long)]
        name: Option<Name>,
    },
    /// Take a network down and remove its files.
    ///
    /// If the network's directory contains a file that siga did not create, siga keeps the directory and prints the
    /// name of the file.
    #[command(after_help = "Examples:\n  siga net down figure-1\n  siga net down second")]
    Down {
        /// Name of the network.
        network: Name,
    },
    /// Show the running networks and their guests.
    #[command(after_help = "Examples:\n  siga net status\n  siga net status figure-1 --detail")]
    Status {
        /// Name of the network. Default: a short list of all networks.
        network: Option<Name>,
        /// Also show devices, links and counters.
        #[arg(long)]
        detail: bool,
        /// Set the output format: text or json.
        #[arg(long, default_value = "text")]
        format: StatusFormat,
    },
    /// Send echo requests from a guest.
    #[command(
        after_help = "Examples:\n  siga net ping figure-1 tcpip1 10.0.2.2\n  siga net ping figure-1 tcpip1 10.0.2.2 --count 10 --interval 0.1"
    )]
    Ping(PingArgs),
    /// Capture the frames of a guest in a pcapng file, until interrupted.
    #[command(
        after_help = "Examples:\n  siga net capture figure-1 tcpip2 --output r.pcapng\n  siga net capture figure-1 tcpip2 --seconds 5 >r.pcapng"
    )]
    Capture {
        /// Name of the network.
        network: Name,
        /// Name of the guest.
        guest: Name,
        /// Write to this file: a new file, or a regular file that you own, which siga overwrites. Default: standard
        /// output.
        #[arg(short, long)]
        output: Option<PathBuf>,
        /// Capture at most this number of bytes of each frame.
        #[arg(long, default_value_t = 65_535)]
        snap: u32,
        /// Stop the capture after this number of seconds. Default: when interrupted.
        #[arg(long)]
        seconds: Option<f64>,
    },
    /// Start a guest that has ended.
    #[command(after_help = "Examples:\n  siga net start figure-1 tcpip2\n  siga net start figure-1 tcpip3")]
    Start {
        /// Name of the network.
        network: Name,
        /// Name of the guest.
        guest: Name,
    },
    /// Stop a guest. It stays stopped until `siga net start`.
    #[command(after_help = "Examples:\n  siga net stop figure-1 tcpip2\n  siga net stop figure-1 tcpip3")]
    Stop {
        /// Name of the network.
        network: Name,
        /// Name of the guest.
        guest: Name,
    },
    /// Grant a guest access to a restricted network.
    #[command(after_help = "Examples:\n  siga net grant figure-1 lan tcpip3\n  siga net grant figure-1 lan tcpip2")]
    Grant {
        /// Name of the network that `siga net up` started.
        network: Name,
        /// Name of the restricted network in its topology.
        lan: Name,
        /// Name of the guest.
        guest: Name,
    },
    /// Revoke a guest's access to a restricted network.
    #[command(after_help = "Examples:\n  siga net revoke figure-1 lan tcpip3\n  siga net revoke figure-1 lan tcpip2")]
    Revoke {
        /// Name of the network that `siga net up` started.
        network: Name,
        /// Name of the restricted network in its topology.
        lan: Name,
        /// Name of the guest.
        guest: Name,
    },
    /// Print the secret with which the process of an external guest attaches to the network.
    #[command(
        alias = "token",
        after_help = "Examples:\n  siga net secret figure-1 tcpip1\n  siga net secret figure-1 tcpip1 --application"
    )]
    Secret {
        /// Name of the network.
        network: Name,
        /// Name of the guest.
        guest: Name,
        /// Print the secret for applications that use the guest's stack, instead of the secret for the guest's own process.
        #[arg(long)]
        application: bool,
    },
    /// Check a topology without starting anything.
    #[command(
        after_help = "Examples:\n  siga net check topologies/figure-1.toml\n  siga net check /dev/stdin <topologies/figure-1.toml"
    )]
    Check {
        /// Topology file of at most 1 MiB: a regular file, or a shell pipe (/dev/stdin).
        topology: PathBuf,
    },
    /// Run a control program (siga itself starts it).
    #[command(hide = true)]
    Control {
        /// The directory of all networks.
        base: PathBuf,
    },
    /// Run a guest (the control program starts it).
    #[command(hide = true)]
    Guest {
        /// The network and the guest, for lists of processes such as that of ps.
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

#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// Name of the network.
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
        NetCommand::Status { network: Some(network), detail, format } => status(&network, detail, format),
        NetCommand::Status { network: None, format, .. } => all(format),
        NetCommand::Ping(args) => ping(&args),
        NetCommand::Capture { network, guest, output, snap, seconds } => {
            capture(&network, &guest, output.as_deref(), snap, seconds)
        }
        NetCommand::Start { network, guest } => request(&network, Request::StartGuest(guest)),
        NetCommand::Stop { network, guest } => request(&network, Request::StopGuest(guest)),
        NetCommand::Grant { network, lan, guest } => request(&network, Request::Grant { network: lan, guest }),
        NetCommand::Revoke { network, lan, guest } => request(&network, Request::Revoke { network: lan, guest }),
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
            let (guests, networks) = (checked.guests.len(), checked.networks.len());
            print(&format!("{}: {guests} guests on {networks} networks\n", topology.display()))
        }
        NetCommand::Control { base } => siga_fabric::control::run(&base),
        NetCommand::Guest { name: _ } => siga_fabric::guest::process::run(),
    }
}

/// Reads the text of a topology and prints a notice for each old spelling in it.
fn read(path: &Path) -> Result<String> {
    let text = siga_fabric::files::read_text(path, TOPOLOGY_BYTES_MAX)?;
    for notice in old_spellings(&text) {
        note(&format!("note: {}: {notice}", path.display()));
    }
    Ok(text)
}

fn up(path: &Path, name: Option<Name>) -> Result<()> {
    let text = read(path)?;
    let at = |error: Error| error.at(path.display());
    let topology = Topology::parse(&text).map_err(at)?;
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let name = name.or(topology.name).map_or_else(|| stem.parse().map_err(at), Ok)?;
    client::up(&name, &text)?;
    status(&name, false, StatusFormat::Text)
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

fn status(name: &Name, detail: bool, format: StatusFormat) -> Result<()> {
    let answers = Client::connect(name)?.request(Request::Status { detail })?;
    if format == StatusFormat::Json {
        return print(&format!("{:#}\n", status_json(name, &answers)));
    }
    print(&status_text(name, &answers))
}

fn status_json(name: &Name, answers: &[Answer]) -> serde_json::Value {
    let (mut networks, mut guests, mut reports, mut silent) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            Answer::Network(network) => networks.push(json!(network)),
            Answer::Guest(guest) => guests.push(json!(guest)),
            Answer::Report { guest, part } => reports.push(json!({ "guest": guest, "part": part })),
            Answer::Silent { guest } => silent.push(json!(guest)),
            Answer::TakenUp
            | Answer::Pong { .. }
            | Answer::CaptureEnded { .. }
            | Answer::Secret(_)
            | Answer::Application { .. }
            | Answer::ApplicationMemory
            | Answer::Welcome
            | Answer::Done
            | Answer::Failed(_) => {}
        }
    }
    json!({ "format": "siga/net-status/1", "name": name, "networks": networks, "guests": guests, "reports": reports, "silent": silent })
}

fn status_text(name: &Name, answers: &[Answer]) -> String {
    let mut text = format!("network {name}\n\n");
    text += "network         type                                access      pairs  members\n";
    for answer in answers {
        if let Answer::Network(NetworkStatus { name, kind, granted, members, pairs }) = answer {
            let access = if granted.is_some() { "restricted" } else { "open" };
            let _ = writeln!(text, "{name:<16}{kind:<36}{access:<12}{pairs:>5}  {}", members.join(" "));
        }
    }
    text += "\nguest           state         pid  restarts   up (s)  pairs   rings (KB)  memory limit (MB)\n";
    for status in answers.iter().filter_map(guest) {
        let state = match status.state {
            GuestState::Waiting => "waiting",
            GuestState::Starting => "starting",
            GuestState::Running => "running",
            GuestState::Ended => "ended",
        };
        let pid = status.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let up = status.up_ms.map_or_else(|| "-".to_owned(), |ms| format!("{}.{}", ms / 1_000, ms % 1_000 / 100));
        let (name, restarts, pairs) = (&status.name, status.restarts, status.pairs);
        let kilobytes = status.ring_bytes >> 10;
        let _ = write!(text, "{name:<16}{state:<9}{pid:>8}{restarts:>10}{up:>9}{pairs:>7}{kilobytes:>13}");
        let _ = match &status.memory {
            Some(memory) => write!(text, "{:>13} {}", memory.max_bytes >> 20, memory.by.name()),
            None => write!(text, "{:>13}", "-"),
        };
        let _ = match &status.ended {
            Some(how) => writeln!(text, "  {}", one_line(how)),
            None => writeln!(text),
        };
    }
    for answer in answers {
        if let Answer::Silent { guest } = answer {
            let _ = writeln!(text, "\nguest {guest}: no report before the timeout");
        }
        if let Answer::Report { guest, part } = answer {
            match part {
                ReportPart::Device(device) => device_text(&mut text, guest, device),
                ReportPart::Link(link) => link_text(&mut text, link),
                ReportPart::Application(application) => application_text(&mut text, guest, application),
                ReportPart::Stack(stack) => stack_text(&mut text, stack),
            }
        }
    }
    text
}

fn device_text(text: &mut String, guest: &Name, report: &DeviceReport) {
    let device = &report.device;
    let addresses: Vec<String> = device.addresses.iter().map(ToString::to_string).collect();
    let _ = writeln!(text, "\ndevice {} of guest {guest}", device.name);
    for (key, value) in [
        ("network", device.network.to_string()),
        ("type", device.kind.to_string()),
        ("addresses", addresses.join(" ")),
        ("mtu", device.mtu.to_string()),
        ("buffer_count", device.buffer_count.to_string()),
        ("full", device.full.name().to_owned()),
        ("idle_seconds", device.idle_seconds.to_string()),
    ] {
        let _ = writeln!(text, "  {key:<24}{value:>14}");
    }
    for (feature, is_on) in device.features.named() {
        let _ = writeln!(text, "  {feature:<24}{:>14}", if is_on { "on" } else { "off" });
    }
    counters_text(text, &report.counters);
}

fn link_text(text: &mut String, report: &LinkReport) {
    let pair = report.pair.map_or_else(|| "no pair".to_owned(), |pair| format!("pair {pair}"));
    let _ = writeln!(text, "  to {} ({pair})", report.member);
    counters_text(text, &report.counters);
}

fn application_text(text: &mut String, guest: &Name, report: &ApplicationReport) {
    let number = report.application.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let (sockets, kilobytes) = (report.sockets, report.free_bytes >> 10);
    let _ = writeln!(text, "\napplication {number} of guest {guest}\n  {sockets} sockets, {kilobytes} KB free");
    counters_text(text, &report.counters);
    counters_text(text, &report.times_ns);
}

fn stack_text(text: &mut String, report: &StackReport) {
    let _ = writeln!(text, "  TCP connections: {}", report.connections);
    for (what, counters) in
        [("dropped", &report.drops), ("bytes held", &report.memory), ("time in ns", &report.times_ns)]
    {
        if !counters.is_empty() {
            let _ = writeln!(text, "  {what}");
            counters_text(text, counters);
        }
    }
}

fn counters_text(text: &mut String, counters: &std::collections::BTreeMap<String, u64>) {
    for (name, value) in counters.iter().filter(|(_, value)| **value > 0) {
        let _ = writeln!(text, "    {:<34}{value:>16}", one_line(name));
    }
}

/// Puts a text from a guest on one line, so that the guest cannot forge lines about other guests.
fn one_line(text: &str) -> String {
    let lines = text.split(char::is_control).map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
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
        let request = Request::Ping { guest: args.guest.clone(), to: args.to, bytes: args.size, timeout_ms };
        for answer in client.request(request)? {
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
    print(&format!("{} sent, {answered} answered\n", args.count))?;
    if answered == 0 {
        return Err(Error::incomplete(format!("{} does not respond", args.to)));
    }
    Ok(())
}

fn capture(network: &Name, guest: &Name, output: Option<&Path>, snap_bytes: u32, seconds: Option<f64>) -> Result<()> {
    let mut client = Client::connect(network)?;
    // The guest writes to a pipe, so that it never has a descriptor of the user's file.
    let (mut reader, writer) = std::io::pipe().context("cannot create a pipe")?;
    let mut into: Box<dyn std::io::Write + Send> = match output {
        Some(path) => Box::new(siga_fabric::files::create(path)?),
        None => Box::new(std::io::stdout()),
    };
    client.ask(Request::Capture { guest: guest.clone(), snap_bytes }, vec![writer.into()])?;
    let copy = std::thread::spawn(move || std::io::copy(&mut reader, &mut into));
    tell(&format!("siga: capturing the frames of guest {guest}; press Ctrl-C to end"));
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let ended = client.answer(time.unwrap_or(Duration::from_secs(u32::MAX.into())))?;
    // The end of the connection ends the capture, which closes the pipe.
    drop(client);
    copy.join().map_err(|_| Error::environment("the copying thread failed"))?.context("cannot write the capture")?;
    if let Some(Answer::CaptureEnded { missed }) = ended {
        tell(&format!("siga: the capture of guest {guest} has ended; {missed} frames are missing"));
    }
    Ok(())
}
