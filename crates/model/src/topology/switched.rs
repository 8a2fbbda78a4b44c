//! Switched networks: Guest LANs and virtual switches. Their switch is a process with one port for each device of a guest, and one
//! for each network namespace that joins the network.

use super::assigned::{self, Assigned};
use super::check::{backlog, bounded, own_address, refuse, within};
use super::file::{DeviceEntry, NetworkEntry, PortEntry, Protect, UplinkEntry};
use super::joined;
use super::lcs;
use super::osa;
use super::ports::PortLink;
use super::switched_kind;
use super::{Access, Card, Device, Guest, Network, NetworkKind, Restart, Topology, check};
use crate::error::{Error, Result};
use crate::limits;
use crate::mac::Mac;
use crate::name::Name;
use crate::prefix;
use crate::waiting::Waiting;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The type of a Guest LAN, which is also that of the devices that can couple to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Nic {
    /// Devices of type HiperSockets: large frames of IPv4 packets only.
    Hipersockets {
        /// Largest frame, in bytes.
        frame: u32,
    },
    /// Devices of type QDIO.
    Qdio {
        /// True if guests exchange Ethernet frames of any protocol; false if they exchange IP packets only.
        ethernet: bool,
    },
}

/// The settings of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The most ports, or `None` for any number.
    pub maxconn: Option<u32>,
    /// The guest that owns the network. The network exists while this guest runs, or while any other coupled guest runs. `None` is
    /// SYSTEM: the network always exists.
    pub owner: Option<Name>,
    /// The most broadcast, multicast and unknown unicast frames that a port may send per second.
    pub flood_per_second: u32,
    /// The most packets that wait in the switch for one station.
    pub netdev_max_backlog: u32,
    /// How the switch waits for frames.
    pub waiting: Waiting,
    /// True if the control program keeps accounts of what the stations of a Guest LAN exchange.
    pub accounting: bool,
    /// The ports of network namespaces, and the uplinks.
    pub ports: Vec<KernelPort>,
}

/// A port of a switch that leads to the kernel: a TAP device in a network namespace, or an interface as uplink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelPort {
    /// The name of the port.
    pub name: Name,
    /// The namespace.
    pub place: Where,
    /// The name of the TAP device in the namespace, or of the uplink's interface.
    pub interface: String,
    /// The rank of an uplink: the first whose interface has a carrier is used. `None` for other ports.
    pub uplink: Option<usize>,
    /// The addresses of the TAP device.
    pub addresses: Vec<IpNet>,
    /// The routes through the TAP device: destination and next hop.
    pub routes: Vec<(IpNet, IpAddr)>,
    /// Other source addresses that the namespace may send from, because it forwards packets.
    pub sources: Vec<IpNet>,
    /// The size of the largest IP packet, in bytes.
    pub mtu: u16,
    /// True if the namespace's kernel may send large segments and leave out checksums.
    pub offload: bool,
    /// The addresses that the namespace asks for.
    pub assigned: Assigned,
    /// The settings that the ports of guests have too.
    pub settings: PortSettings,
}

/// How a network namespace is found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Where {
    /// The namespace of the control program. Only uplinks can be there.
    Here,
    /// By the name that `ip netns` shows.
    Netns(Name),
    /// By a process in it, such as the first process of a container.
    Pid(u32),
    /// Not by the topology: a namespace joins the port while the network runs (`siga netns`, `siga cni`).
    Joins,
}

impl std::fmt::Display for Where {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Here => f.write_str("this host"),
            Self::Netns(name) => write!(f, "network namespace {name}"),
            Self::Pid(pid) => write!(f, "the network namespace of process {pid}"),
            Self::Joins => f.write_str("the network namespace that joins the port"),
        }
    }
}

/// The settings of a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSettings {
    /// The Ethernet address of the station at the port.
    pub mac: Mac,
    /// The VLANs of the port.
    pub vlan: PortVlan,
    /// The source addresses that the switch checks.
    pub protection: Protection,
    /// True if the port exchanges no frames with other isolated ports.
    pub isolated: bool,
    /// True if the port also gets copies of all unicast frames of its VLANs.
    pub promiscuous: bool,
    /// The modelled link between the port and its station.
    pub link: PortLink,
    /// The card between the port and its guest, on a network of type qdio. The link is that of the card.
    #[serde(default)]
    pub card: Option<Card>,
}

/// The VLANs of a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortVlan {
    /// The station sends and receives frames without tags. The switch assigns them to this VLAN.
    Access(u16),
    /// The station sends and receives frames with tags.
    Trunk {
        /// The VLANs of the port.
        allowed: BTreeSet<u16>,
        /// The VLAN of frames without a tag. `None`: such frames are dropped.
        native: Option<u16>,
    },
}

impl PortVlan {
    /// Returns true if the port belongs to a VLAN.
    pub fn has(&self, vlan: u16) -> bool {
        match self {
            Self::Access(own) => *own == vlan,
            Self::Trunk { allowed, native } => allowed.contains(&vlan) || *native == Some(vlan),
        }
    }
}

impl std::fmt::Display for PortVlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Access(vlan) => write!(f, "access VLAN {vlan}"),
            Self::Trunk { allowed, native } => {
                let allowed: Vec<String> = allowed.iter().map(u16::to_string).collect();
                write!(f, "trunk VLANs {}", allowed.join(","))?;
                native.map_or(Ok(()), |native| write!(f, ", native VLAN {native}"))
            }
        }
    }
}

/// The source addresses that a switch checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protection {
    /// The Ethernet address, and the IP addresses in IP headers, ARP packets and neighbour discovery messages.
    #[default]
    All,
    /// Only the Ethernet address.
    Mac,
    /// None. The switch learns the Ethernet addresses.
    Off,
}

impl std::fmt::Display for Protection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Mac => "mac",
            Self::Off => "off",
        })
    }
}

/// The VLAN of ports for which the topology names none.
const VLAN_DEFAULT: u16 = 1;
/// The name of a namespace's TAP device if the topology gives none.
const INTERFACE_DEFAULT: &str = "siga0";

/// Reads the settings of a switched network's switch. For other networks, refuses these settings.
pub(super) fn switch(
    entry: &NetworkEntry,
    kind: NetworkKind,
    is_guest: impl Fn(&Name) -> bool,
) -> Result<Option<Switch>> {
    if !kind.is_switched() {
        for (is_there, key) in [
            (entry.nic.is_some(), "nic"),
            (entry.layer.is_some(), "layer"),
            (entry.mtu.is_some(), "mtu"),
            (entry.maxconn.is_some(), "maxconn"),
            (entry.owner.is_some(), "owner"),
            (entry.isolation.is_some(), "isolation"),
            (entry.protection.is_some(), "protection"),
            (entry.flood_per_second.is_some(), "flood_per_second"),
            (entry.netdev_max_backlog.is_some(), "netdev_max_backlog"),
            (entry.waiting.is_some(), "waiting"),
            (entry.accounting.is_some(), "accounting"),
            (entry.dhcp.is_some(), "dhcp"),
            (entry.router_advertisements.is_some(), "router_advertisements"),
            (!entry.port.is_empty(), "port"),
            (!entry.uplink.is_empty(), "uplink"),
        ] {
            refuse(is_there, key, "only networks of type guestlan, vswitch, qdio and lcs have this key")?;
        }
        return Ok(None);
    }
    let is_guestlan = matches!(kind, NetworkKind::Guestlan { .. });
    refuse(entry.accounting.is_some() && !is_guestlan, "accounting", "only networks of type guestlan have this key")?;
    let maxconn = entry.maxconn;
    if let Some(most) = maxconn {
        within(format_args!("maxconn = {most}"), most, 1..=limits::MAXCONN_MAX)?;
    }
    let owner = entry.owner.clone().filter(|owner| owner.as_str() != "SYSTEM");
    if let Some(owner) = &owner {
        refuse(!is_guestlan, "owner", "the owner of a network of type vswitch, qdio or lcs is always SYSTEM")?;
        if !is_guest(owner) {
            let message = format!("`owner` is guest {owner}, but the topology has no guest with this name");
            return Err(Error::usage(message).hint("use the name of a guest, or SYSTEM"));
        }
    }
    let flood_per_second = entry.flood_per_second.unwrap_or(limits::FLOOD_PER_SECOND_DEFAULT);
    let accounting = entry.accounting.unwrap_or(false);
    let waiting = entry.waiting.unwrap_or_default();
    let netdev_max_backlog = backlog(entry.netdev_max_backlog)?;
    Ok(Some(Switch { maxconn, owner, flood_per_second, netdev_max_backlog, waiting, accounting, ports: Vec::new() }))
}

/// Reads the ports of a switched network's namespaces.
pub(super) fn ports(entry: &NetworkEntry, kind: NetworkKind, access: &Access) -> Result<Vec<KernelPort>> {
    let mut ports: Vec<KernelPort> = Vec::new();
    let granted = |kind: &str, name: &Name| {
        if access.admits(name) {
            return Ok(());
        }
        let message = format!("the network is restricted and does not grant access to {kind} {name}");
        Err(Error::usage(message).hint(format!("add the name to the network: grant = [\"{name}\"]")))
    };
    for written in &entry.port {
        let at = |error: Error| error.at(format!("port {}", written.name));
        let first = port(entry, written, kind).map_err(at)?;
        for port in joined::repeated(first, written).map_err(at)? {
            if ports.iter().any(|other| other.name == port.name) {
                return Err(Error::usage(format!("two ports have the same name {}", port.name)));
            }
            let shares = |other: &&KernelPort| {
                port.place != Where::Joins && other.place == port.place && other.interface == port.interface
            };
            if let Some(other) = ports.iter().find(shares) {
                let message =
                    format!("ports {} and {} have the same interface {}", other.name, port.name, port.interface);
                return Err(Error::usage(message).hint("set `interface` of one port to another name"));
            }
            granted("port", &port.name)?;
            ports.push(port);
        }
    }
    let is_guestlan = matches!(kind, NetworkKind::Guestlan { .. });
    refuse(
        !entry.uplink.is_empty() && is_guestlan,
        "uplink",
        "a network of type guestlan has no uplink; use type = \"vswitch\" or \"qdio\"",
    )?;
    bounded("uplinks", entry.uplink.len(), limits::UPLINKS_MAX)?;
    for (rank, written) in entry.uplink.iter().enumerate() {
        let uplink =
            uplink(entry, written, kind, rank).map_err(|error| error.at(format!("uplink {}", written.interface)))?;
        if ports.iter().any(|other| other.name == uplink.name) {
            return Err(Error::usage(format!("two ports have the same name {}", uplink.name)));
        }
        granted("uplink", &uplink.name)?;
        ports.push(uplink);
    }
    Ok(ports)
}

fn uplink(network: &NetworkEntry, entry: &UplinkEntry, kind: NetworkKind, rank: usize) -> Result<KernelPort> {
    let place = match (&entry.netns, entry.pid) {
        (Some(name), None) => Where::Netns(name.clone()),
        (None, Some(pid)) => Where::Pid(pid),
        (None, None) => Where::Here,
        (Some(_), Some(_)) => return Err(Error::usage("an uplink can have only one of the keys `netns` and `pid`")),
    };
    let asked = Asked {
        // No station has this address. The switch learns those of the stations behind the uplink.
        mac: Some(Mac::derived(entry.interface.as_str())),
        vlan: entry.vlan,
        vlans: None,
        native: None,
        isolated: Some(false),
        promiscuous: false,
        protection: None,
        link: &PortLink::default(),
    };
    Ok(KernelPort {
        name: entry.interface.clone(),
        place,
        interface: entry.interface.to_string(),
        uplink: Some(rank),
        addresses: Vec::new(),
        routes: Vec::new(),
        sources: Vec::new(),
        mtu: u16::try_from(kind.mtu_max()).unwrap_or(u16::MAX),
        offload: true,
        assigned: Assigned::default(),
        settings: PortSettings { protection: Protection::Off, ..settings(network, kind, asked)? },
    })
}

fn port(network: &NetworkEntry, entry: &PortEntry, kind: NetworkKind) -> Result<KernelPort> {
    let place = match (&entry.netns, entry.pid) {
        (Some(name), None) => Where::Netns(name.clone()),
        (None, Some(pid)) => Where::Pid(pid),
        (None, None) => Where::Joins,
        (Some(_), Some(_)) => {
            return Err(Error::usage("a port can have only one of the keys `netns` and `pid`").hint(
                "write netns = \"NAME\" (`ip netns` lists the names) or pid = NUMBER; omit both keys for `siga netns`",
            ));
        }
    };
    let interface = entry.interface.clone().unwrap_or_else(|| INTERFACE_DEFAULT.to_owned());
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let fits = (1..=limits::INTERFACE_NAME_BYTES_MAX).contains(&interface.len()) && interface.bytes().all(fits);
    if !fits || interface == "." || interface == ".." {
        let most = limits::INTERFACE_NAME_BYTES_MAX;
        return Err(Error::usage(format!("{interface:?} is not a valid name of a network interface"))
            .hint(format!("a name has 1 to {most} letters, digits, dots, hyphens and underscores")));
    }
    bounded("addresses", entry.addresses.len(), limits::ADDRESSES_MAX)?;
    bounded("sources", entry.sources.len(), limits::PORT_SOURCES_MAX)?;
    bounded("routes", entry.route.len(), limits::ROUTES_MAX)?;
    let addresses = entry.addresses.iter().map(|own| own_address(own)).collect::<Result<Vec<_>>>()?;
    switched_kind::carries(kind, &addresses)?;
    let mtu = check::mtu(entry.mtu, kind, &addresses)?;
    let sources = entry.sources.iter().map(|text| prefix::parse(text)).collect::<Result<Vec<_>>>()?;
    let mut routes = Vec::new();
    for route in &entry.route {
        let to = if route.to == "default" { prefix::everything(route.via) } else { prefix::parse(&route.to)? };
        if !addresses.iter().any(|own| own.contains(&route.via)) || to.addr().is_ipv4() != route.via.is_ipv4() {
            let message = format!(
                "route to {}: the next hop {} is not in the subnet of any address of the port",
                route.to, route.via
            );
            return Err(Error::usage(message));
        }
        routes.push((to, route.via));
    }
    let settings = settings(
        network,
        kind,
        Asked {
            mac: entry.mac,
            vlan: entry.vlan,
            vlans: Some(&entry.vlans),
            native: entry.native,
            isolated: entry.isolated,
            promiscuous: entry.promiscuous,
            protection: entry.protection,
            link: &entry.link,
        },
    )?;
    let assigned = assigned::of(network, entry, &addresses, &routes)?;
    Ok(KernelPort {
        name: entry.name.clone(),
        place,
        interface,
        uplink: None,
        addresses,
        routes,
        sources,
        mtu,
        offload: entry.offload.unwrap_or(true),
        assigned,
        settings,
    })
}

/// Settings of a port, as the file has them.
#[derive(Clone, Copy)]
struct Asked<'a> {
    mac: Option<Mac>,
    vlan: Option<u16>,
    vlans: Option<&'a [u16]>,
    native: Option<u16>,
    isolated: Option<bool>,
    promiscuous: bool,
    protection: Option<Protect>,
    link: &'a PortLink,
}

/// Stands for an address that the topology does not give. [`assign_addresses`] replaces it.
const NO_MAC: Mac = Mac([0; 6]);

/// Returns the settings of the port of a guest's device. For a device on another network, refuses these settings.
pub(super) fn device_port(
    network: &Network,
    entry: &DeviceEntry,
    written: &NetworkEntry,
    addresses: &[IpNet],
) -> Result<Option<PortSettings>> {
    if !network.kind.is_switched() {
        for (is_there, key) in [
            (entry.mac.is_some(), "mac"),
            (entry.vlan.is_some(), "vlan"),
            (entry.isolated.is_some(), "isolated"),
            (entry.promiscuous, "promiscuous"),
        ] {
            refuse(is_there, key, "only devices on networks of type guestlan, vswitch, qdio and lcs have this key")?;
        }
        let is_hipersockets = matches!(network.kind, NetworkKind::Hipersockets { .. });
        let words = "devices on networks of type hipersockets do not have this key";
        refuse(is_hipersockets && entry.link != PortLink::default(), "link", words)?;
        return Ok(None);
    }
    switched_kind::carries(network.kind, addresses)?;
    let (card, of_card) = osa::card_of(network, written, entry)?.unzip();
    let of_station = lcs::link_of(network.kind, written, entry)?;
    let asked = Asked {
        mac: entry.mac,
        vlan: entry.vlan,
        vlans: None,
        native: None,
        isolated: entry.isolated,
        promiscuous: entry.promiscuous,
        protection: None,
        link: of_card.as_ref().or(of_station.as_ref()).unwrap_or(&entry.link),
    };
    Ok(Some(PortSettings { card, ..settings(written, network.kind, asked)? }))
}

fn settings(network: &NetworkEntry, kind: NetworkKind, asked: Asked<'_>) -> Result<PortSettings> {
    let layer_2 = works_at_layer_2(kind);
    let vlans = asked.vlans.unwrap_or_default();
    let has_vlan = asked.vlan.is_some() || !vlans.is_empty() || asked.native.is_some();
    refuse(has_vlan && !layer_2, "vlan", "only networks that work at layer 2 have VLANs")?;
    bounded("VLANs", vlans.len(), limits::TRUNK_VLANS_MAX)?;
    for vlan in vlans.iter().chain(&asked.vlan).chain(&asked.native) {
        within(format_args!("VLAN {vlan}"), *vlan, 1..=limits::VLAN_MAX)?;
    }
    let vlan = if vlans.is_empty() {
        refuse(asked.native.is_some(), "native", "only a trunk port has this key; also set `vlans`")?;
        PortVlan::Access(asked.vlan.unwrap_or(VLAN_DEFAULT))
    } else {
        refuse(asked.vlan.is_some(), "vlan", "a port with `vlans` is a trunk port, which has no `vlan`")?;
        PortVlan::Trunk { allowed: vlans.iter().copied().collect(), native: asked.native }
    };
    let protect = asked.protection.or(network.protection).unwrap_or(Protect::All);
    if !layer_2 && protect != Protect::All {
        return Err(Error::usage("`protection` cannot be changed on a network that carries only IP packets"));
    }
    let protection = match protect {
        Protect::All => Protection::All,
        Protect::Mac => Protection::Mac,
        Protect::Off => Protection::Off,
    };
    Ok(PortSettings {
        mac: asked.mac.unwrap_or(NO_MAC),
        vlan,
        protection,
        isolated: asked.isolated.or(network.isolation).unwrap_or(false),
        promiscuous: asked.promiscuous,
        link: asked.link.clone(),
        card: None,
    })
}

/// Returns true if a network carries frames of any protocol and has VLANs.
pub(super) fn works_at_layer_2(kind: NetworkKind) -> bool {
    matches!(
        kind,
        NetworkKind::Vswitch { .. }
            | NetworkKind::Qdio { ethernet: true, .. }
            | NetworkKind::Guestlan { nic: Nic::Qdio { ethernet: true }, .. }
    )
}

/// Gives each port without an Ethernet address an own one, and checks that no two ports of a network have the same.
pub(super) fn assign_addresses(
    networks: &mut BTreeMap<Name, Network>,
    guests: &mut BTreeMap<Name, Guest>,
) -> Result<()> {
    for (network, settings) in networks {
        let at = |error: Error| error.at(format!("network {network}"));
        let Some(switch) = &mut settings.switch else { continue };
        let mut ports: Vec<(String, &mut PortSettings)> = Vec::new();
        for (name, guest) in guests.iter_mut() {
            for device in guest.devices.iter_mut().filter(|device| device.network == *network) {
                let label = format!("{name}.{}", device.name);
                ports.extend(device.port.as_mut().map(|port| (label, port)));
            }
        }
        let namespaces = switch.ports.iter_mut().filter(|port| port.uplink.is_none());
        ports.extend(namespaces.map(|port| (format!("port {}", port.name), &mut port.settings)));
        bounded("ports", ports.len(), limits::SWITCH_PORTS_MAX).map_err(at)?;
        if let Some(most) = switch.maxconn
            && ports.len() as u64 > u64::from(most)
        {
            let message =
                format!("{} devices and ports use this network, but its maximum is {most} (maxconn)", ports.len());
            return Err(at(Error::usage(message)));
        }
        let mut taken: BTreeMap<Mac, String> = BTreeMap::new();
        for (label, port) in ports.iter().filter(|(_, port)| port.mac != NO_MAC) {
            if let Some(other) = taken.insert(port.mac, label.clone()) {
                return Err(at(Error::usage(format!(
                    "{other} and {label} have the same Ethernet address {}",
                    port.mac
                ))));
            }
        }
        for (label, port) in ports.into_iter().filter(|(_, port)| port.mac == NO_MAC) {
            let mut mac = Mac::derived(&format!("{network}/{label}"));
            while taken.contains_key(&mac) {
                mac = mac.next();
            }
            port.mac = mac;
            taken.insert(mac, label);
        }
    }
    Ok(())
}

/// Adds the switch process of each switched network to the guests.
pub(super) fn add_switches(topology: &mut Topology) -> Result<()> {
    for (name, network) in &topology.networks {
        let Some(switch) = &network.switch else { continue };
        if topology.guests.contains_key(name) {
            let message = format!("a guest and a network with a switch have the same name {name}; rename one of them");
            return Err(Error::usage(message));
        }
        if let Some(port) = switch.ports.iter().find(|port| topology.guests.contains_key(&port.name)) {
            let message = format!("network {name}: a guest and a port have the same name {}", port.name);
            return Err(Error::usage(message).hint("rename the port"));
        }
        let device = Device {
            name: name.clone(),
            network: name.clone(),
            addresses: Vec::new(),
            mtu: u16::try_from(network.kind.mtu_max()).unwrap_or(u16::MAX),
            buffer_count: network.kind.switch_buffer_count(),
            full: super::Full::Pending,
            netdev_max_backlog: switch.netdev_max_backlog,
            port: None,
            link: PortLink::default(),
            claw: None,
        };
        let guest = Guest {
            forwarding: false,
            external: false,
            restart: Restart::OnFailure,
            waiting: switch.waiting,
            devices: vec![device],
            routes: Vec::new(),
            tcp: BTreeMap::new(),
            tcp_to: Vec::new(),
            pairs_max: u32::try_from(limits::SWITCH_PORTS_MAX).unwrap_or(u32::MAX),
            ring_bytes_max: u64::MAX,
            applications_max: 0,
            allow: None,
            arena_bytes: limits::ARENA_BYTES_DEFAULT,
            memory_max: None,
            is_switch: true,
        };
        topology.guests.insert(name.clone(), guest);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
