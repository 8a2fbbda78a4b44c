//! `siga net port`, `vlan`, `link`, `mirror` and `fdb`: the switches of a running network.

use super::request;
use super::status::{networks, switch_text};
use crate::print;
use clap::{ArgGroup, Args, ValueEnum};
use siga_fabric::client::Client;
use siga_fabric::protocol::report::{KnownAddress, ReportPart};
use siga_fabric::protocol::request::{Answer, Request};
use siga_model::error::{Error, Result};
use siga_model::link::LinkChange;
use siga_model::name::Name;
use siga_model::topology::{Mirror, PortChange, PortVlan, Protection};
use std::fmt::Write;
use std::path::Path;

pub(super) const PORT_HELP: &str = "\
Examples:
  siga net port switch lan                            show all ports of the switch of network `lan`
  siga net port switch lan red --isolated on
  siga net port switch lan one --promiscuous on       port `one` also gets frames for other ports
  siga net port switch lan pod-1 --protection mac

If a guest has one device on the network, its port has the name of the guest. If it has several
devices, their ports have names of the form GUEST.DEVICE.";
pub(super) const VLAN_HELP: &str = "\
Examples:
  siga net vlan switch lan one --access 10
  siga net vlan switch lan red --trunk 10,20 --native 30

An access port carries frames of one VLAN, without tags. A trunk port carries frames of the
given VLANs, with tags. It carries frames of its native VLAN without tags. Without --native, a trunk
port drops frames without a tag. The port of a guest's device is always an access port.";
pub(super) const LINK_HELP: &str = "\
Examples:
  siga net link switch lan red rate=100mbit,latency=5ms
  siga net link switch lan red loss=1%                changes only the loss of the link
  siga net link switch lan red latency=20ms --direction to-station
  siga net link switch lan red off

Settings of a link: rate, latency, jitter, loss, reorder, duplicate, corrupt, queue, block, seed. docs/link.md
describes them.";
pub(super) const MIRROR_HELP: &str = "\
Examples:
  siga net mirror switch lan red                      port `red` gets copies of all frames
  siga net mirror switch lan red --from one           copies only the frames of guest `one`
  siga net mirror switch lan --off

The port TO gets copies of frames of all VLANs, even of VLANs to which it does not belong. The
switch does not copy frames that it drops. A switch has at most one mirror (port that gets copies).";
pub(super) const FDB_HELP: &str = "\
Examples:
  siga net fdb switch lan
  siga net fdb switch lan --forget

A port with protection `all` or `mac` (siga net port) has one fixed Ethernet address. At a port with
protection `off`, the switch learns addresses from the frames that arrive there. It forgets a
learned address if no frame from this address arrives for 300 seconds.";

#[derive(Debug, Args)]
pub(crate) struct PortArgs {
    /// Name of the network that `siga net up` started.
    network: Name,
    /// Name of the network in the topology. It must have a switch.
    lan: Name,
    /// Name of the port: GUEST or GUEST.DEVICE for a guest's device, or the name of a port in the topology. Default:
    /// show all ports.
    #[arg(requires = "change")]
    port: Option<String>,
    #[command(flatten)]
    settings: SettingArgs,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("change").args(["isolated", "promiscuous", "protection"]).multiple(true).requires("port")))]
struct SettingArgs {
    /// Set whether the port is isolated: isolated ports exchange no frames with each other. Default: the setting stays as it is.
    #[arg(long, value_name = "ON|OFF")]
    isolated: Option<OnOff>,
    /// Set whether the port also gets the unicast frames between other ports of its VLANs. Default: the setting stays as it is.
    #[arg(long, value_name = "ON|OFF")]
    promiscuous: Option<OnOff>,
    /// Set which source addresses the switch checks in frames from this port: all (Ethernet and IP), mac (Ethernet only) or
    /// off (none). Default: the setting stays as it is.
    #[arg(long, value_name = "ADDRESSES")]
    protection: Option<Protect>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnOff {
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protect {
    All,
    Mac,
    Off,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("kind").args(["access", "trunk"]).required(true)))]
pub(crate) struct VlanArgs {
    /// Name of the network that `siga net up` started.
    network: Name,
    /// Name of the network in the topology. It must have a switch.
    lan: Name,
    /// Name of the port: GUEST or GUEST.DEVICE for a guest's device, or the name of a port in the topology.
    port: String,
    /// Make the port an access port of this VLAN, 1 to 4094. Default: no access VLAN; without --access, --trunk is required.
    #[arg(long, value_name = "VLAN")]
    access: Option<u16>,
    /// Make the port a trunk port of these VLANs, separated by commas. Default: no trunk VLANs; without --trunk,
    /// --access is required.
    #[arg(long, value_name = "VLANS", value_delimiter = ',')]
    trunk: Vec<u16>,
    /// Set the native VLAN of a trunk port: the VLAN of frames without a tag. Default: the trunk port drops frames without a tag.
    #[arg(long, value_name = "VLAN", requires = "trunk")]
    native: Option<u16>,
}

/// The directions of a modelled link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Direction {
    Both,
    FromStation,
    ToStation,
}

#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    /// Name of the network that `siga net up` started.
    network: Name,
    /// Name of the network in the topology. It must have a switch.
    lan: Name,
    /// Name of the port: GUEST or GUEST.DEVICE for a guest's device, or the name of a port in the topology.
    port: String,
    /// Settings as KEY=VALUE, separated by commas, or `off` for no link. Other settings stay as they are.
    change: String,
    /// Change only one direction: from-station for frames that the station sends, to-station for frames that it receives.
    /// Default: both.
    #[arg(long, value_name = "DIRECTION", default_value = "both", hide_default_value = true)]
    direction: Direction,
}

#[derive(Debug, Args)]
pub(crate) struct MirrorArgs {
    /// Name of the network that `siga net up` started.
    network: Name,
    /// Name of the network in the topology. It must have a switch.
    lan: Name,
    /// Name of the port that gets the copies: GUEST or GUEST.DEVICE for a guest's device, or the name of a port in the topology.
    #[arg(required_unless_present = "off")]
    to: Option<String>,
    /// Copy only the frames that this port sends and receives. Default: copy the frames of all ports of the switch.
    #[arg(long, value_name = "PORT", requires = "to")]
    from: Option<String>,
    /// Stop copying frames to another port.
    #[arg(long, conflicts_with = "to")]
    off: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FdbArgs {
    /// Name of the network that `siga net up` started.
    network: Name,
    /// Name of the network in the topology. It must have a switch.
    lan: Name,
    /// Before siga shows the addresses, let the switch forget all addresses that it has learned from frames.
    #[arg(long)]
    forget: bool,
}

pub(super) fn port(args: &PortArgs) -> Result<()> {
    let SettingArgs { isolated, promiscuous, protection } = &args.settings;
    let Some(port) = &args.port else { return show_ports(args) };
    let protection = protection.map(|protection| match protection {
        Protect::All => Protection::All,
        Protect::Mac => Protection::Mac,
        Protect::Off => Protection::Off,
    });
    let (isolated, promiscuous) = (isolated.map(|on| on == OnOff::On), promiscuous.map(|on| on == OnOff::On));
    let change = PortChange { protection, isolated, promiscuous, ..PortChange::default() };
    request(&args.network, Request::ChangePort { network: args.lan.clone(), port: port.clone(), change })
}

pub(super) fn link(args: LinkArgs) -> Result<()> {
    let LinkArgs { network, lan, port, change, direction } = args;
    let change: LinkChange = super::with_tables(&change, Path::new(""))?.parse()?;
    let of = |other: Direction| (direction != other).then(|| change.clone());
    let (link_from_station, link_to_station) = (of(Direction::ToStation), of(Direction::FromStation));
    let change = PortChange { link_from_station, link_to_station, ..PortChange::default() };
    request(&network, Request::ChangePort { network: lan, port, change })
}

fn show_ports(args: &PortArgs) -> Result<()> {
    let answers = Client::connect(&args.network)?.request(Request::Status { detail: false })?;
    let networks = networks(&answers);
    let network = networks.iter().find(|network| network.status.name == args.lan && network.status.switch.is_some());
    let network =
        network.ok_or_else(|| Error::usage(format!("the topology has no network {} with a switch", args.lan)))?;
    let mut text = String::new();
    switch_text(&mut text, network);
    print(text.trim_start_matches('\n'))
}

pub(super) fn vlan(args: VlanArgs) -> Result<()> {
    let VlanArgs { network, lan, port, access, trunk, native } = args;
    let vlan =
        access.map_or_else(|| PortVlan::Trunk { allowed: trunk.into_iter().collect(), native }, PortVlan::Access);
    let change = PortChange { vlan: Some(vlan), ..PortChange::default() };
    request(&network, Request::ChangePort { network: lan, port, change })
}

pub(super) fn mirror(args: MirrorArgs) -> Result<()> {
    let MirrorArgs { network, lan, to, from, off: _ } = args;
    let mirror = to.map(|to| Mirror { from, to });
    request(&network, Request::Mirror { network: lan, mirror })
}

pub(super) fn fdb(args: &FdbArgs) -> Result<()> {
    let asked = Request::Addresses { network: args.lan.clone(), forget: args.forget };
    let answers = Client::connect(&args.network)?.request(asked)?;
    let mut addresses: Vec<KnownAddress> = Vec::new();
    for answer in answers {
        if let Answer::Report { part: ReportPart::Addresses { addresses: part, .. }, .. } = answer {
            addresses.extend(part);
        } else if let Answer::Silent { .. } = answer {
            return Err(Error::incomplete("the switch did not answer before the timeout"));
        }
    }
    let mut text = String::from("VLAN  address            age (s)  port\n");
    for KnownAddress { vlan, mac, port, age_ms } in addresses {
        let age = age_ms.map_or_else(|| "fixed".to_owned(), |ms| (ms / 1_000).to_string());
        let port = port.map_or_else(|| "not connected".to_owned(), |port| siga_model::text::name(&port));
        let _ = writeln!(text, "{vlan:>4}  {:<18} {age:>7}  {port}", mac.to_string());
    }
    print(&text)
}
