//! The command-line options.

use clap::Parser;
use clap::builder::PossibleValuesParser;
use siga_stack::tcp::CongestionControl;
use siga_stack::wire::address::Prefix;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

const EXAMPLES: &str = "\
A DEVICE is NAME=ITEM[,ITEM...]; an item is ADDRESS/LENGTH (the stack's own), kernel=ADDRESS/LENGTH (the kernel's end of the
device; one for each IP version) or mtu=BYTES. A ROUTE is ADDRESS/LENGTH=GATEWAY.

Examples:
  tap                                          the kernel is 10.7.0.1 and fd07::1, the stack 10.7.0.2 and fd07::2
  tap --offload                                the same with large segments: many times the rate
  curl http://10.7.0.2/status                  what the stack has counted and holds
  curl http://10.7.0.2/bytes/1000000000 >/dev/null
  tap --connect 10.7.0.1:7 --send 1G           a connection to the kernel's echo service, every byte checked
  tap --router --device a=10.1.0.1/24 --device b=10.2.0.1/24,mtu=1400
  tap --capture tap.pcapng                     all frames, for wireshark

Exit status: 0 fine, 1 a connection of --connect failed, 2 usage, 3 no such device can be had.";

/// Run the stack as a host or a router on TAP devices: echo (port 7) and discard (9) over TCP and UDP, HTTP (80), and a client.
///
/// The program needs root or CAP_NET_ADMIN. It runs until it is interrupted, or until its connections are done.
#[derive(Debug, Parser)]
#[command(name = "tap", after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A device, which is made at the start and removed at the end; may be given several times.
    #[arg(
        long = "device",
        value_name = "DEVICE",
        default_value = "siga0=10.7.0.2/24,fd07::2/64,kernel=10.7.0.1/24,kernel=fd07::1/64"
    )]
    pub(crate) devices: Vec<DeviceOption>,
    /// A route through a gateway on one of the devices; may be given several times.
    #[arg(long = "route", value_name = "ROUTE")]
    pub(crate) routes: Vec<RouteOption>,
    /// Forward packets that are for other hosts.
    #[arg(long)]
    pub(crate) router: bool,
    /// Open TUN devices, which carry IP packets without Ethernet.
    #[arg(long)]
    pub(crate) tun: bool,
    /// Let large segments and packets with unfilled checksums cross the device, as between the kernel and a virtual machine.
    #[arg(long)]
    pub(crate) offload: bool,
    /// Write all frames to a pcapng file.
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    /// Connect to this address, send, check the echo, and exit.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) connect: Option<SocketAddr>,
    /// Number of bytes that each connection sends; K, M and G are 10^3, 10^6 and 10^9.
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = parse_bytes, requires = "connect")]
    pub(crate) send: u64,
    /// Total number of connections.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "connect")]
    pub(crate) connections: u32,
    /// Greatest number of connections that are open at the same time.
    #[arg(long, value_name = "N", default_value_t = 1_000, requires = "connect")]
    pub(crate) at_once: u32,
    /// Wait for no echo, because the other side only reads.
    #[arg(long, requires = "connect")]
    pub(crate) one_way: bool,
    /// Congestion control algorithm of all connections.
    #[arg(long, value_name = "NAME", default_value = "cubic", value_parser = PossibleValuesParser::new(CongestionControl::ALL.map(CongestionControl::name)))]
    pub(crate) congestion: String,
    /// Offer ECN on all connections.
    #[arg(long)]
    pub(crate) ecn: bool,
    /// Use TCP Fast Open: connections to a known server begin with data, and the services accept such connections.
    #[arg(long)]
    pub(crate) fast_open: bool,
}

/// A device to make.
#[derive(Debug, Clone)]
pub(crate) struct DeviceOption {
    pub(crate) name: String,
    /// The stack's addresses on the device.
    pub(crate) addresses: Vec<Prefix>,
    /// The kernel's addresses on the device.
    pub(crate) kernel: Vec<Prefix>,
    pub(crate) mtu: u16,
}

/// A route of the stack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteOption {
    pub(crate) prefix: Prefix,
    pub(crate) gateway: IpAddr,
}

impl FromStr for DeviceOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, items) = text.split_once('=').ok_or("no `=` behind the name")?;
        if name.is_empty() || name.len() > 15 {
            return Err("a name of a device has 1 to 15 characters".to_owned());
        }
        let mut device = Self { name: name.to_owned(), addresses: Vec::new(), kernel: Vec::new(), mtu: 1_500 };
        for item in items.split(',') {
            match item.split_once('=') {
                None => device.addresses.push(parse_prefix(item)?),
                Some(("kernel", prefix)) => device.kernel.push(parse_prefix(prefix)?),
                Some(("mtu", bytes)) => device.mtu = bytes.parse().map_err(|_| format!("no MTU: {bytes}"))?,
                Some((key, _)) => return Err(format!("neither kernel nor mtu: {key}")),
            }
        }
        Ok(device)
    }
}

impl FromStr for RouteOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (prefix, gateway) = text.split_once('=').ok_or("no `=` before the gateway")?;
        let gateway = gateway.parse().map_err(|_| format!("no address: {gateway}"))?;
        Ok(Self { prefix: parse_prefix(prefix)?, gateway })
    }
}

fn parse_prefix(text: &str) -> Result<Prefix, String> {
    let parts = text.split_once('/').and_then(|(address, length)| Some((address.parse().ok()?, length.parse().ok()?)));
    parts
        .and_then(|(address, length)| Prefix::new(address, length))
        .ok_or_else(|| format!("not ADDRESS/LENGTH: {text}"))
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G') => (&text[..text.len() - 1], 1_000_000_000),
        Some(_) | None => (text, 1),
    };
    let count = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit));
    count.ok_or_else(|| format!("not a number of bytes: {text}"))
}
