//! Checks the values of a topology file and builds a `Topology`. An error names the place of the contradiction.

use super::file::{AccessWord, DeviceEntry, File, GuestEntry, NetworkEntry, RouteEntry, Type};
use super::tcp::tcp_settings;
use super::{
    Access, Device, Guest, Network, NetworkKind, PortLink, Route, TcpTo, Topology, assigned, claw, joined, lcs, osa,
    sources, switched, switched_kind,
};
use crate::error::{Error, Result};
use crate::limits;
use crate::link::Link;
use crate::name::Name;
use crate::prefix;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

pub(super) fn check(file: File) -> Result<Topology> {
    bounded("networks", file.network.len(), limits::NETWORKS_MAX)?;
    bounded("guests", file.guest.len(), limits::GUESTS_MAX)?;
    if file.guest.is_empty() && file.network.values().all(|network| network.port.is_empty()) {
        return Err(Error::usage("the topology defines no guest")
            .hint("add a table [guest.NAME], or a port for a network namespace"));
    }
    let mut networks = BTreeMap::new();
    for (name, entry) in &file.network {
        let mut network = network(entry, &file.guest).map_err(|error| error.at(format!("network {name}")))?;
        network.direct |= file.features.direct && matches!(network.kind, NetworkKind::Hipersockets { .. });
        networks.insert(name.clone(), network);
    }
    let mut guests = BTreeMap::new();
    for (name, entry) in file.guest {
        let known = Networks { checked: &networks, written: &file.network };
        let guest = guest(&name, entry, known).map_err(|error| error.at(format!("guest {name}")))?;
        guests.insert(name, guest);
    }
    switched::assign_addresses(&mut networks, &mut guests)?;
    assigned::complete(&mut networks, &guests)?;
    joined::check_names(&networks)?;
    let mut topology = Topology { name: file.name, features: file.features, networks, guests };
    switched::add_switches(&mut topology)?;
    addresses_are_of_one_device(&topology)?;
    members_fit(&topology)?;
    sources_fit(&topology)?;
    Ok(topology)
}

/// The networks of a file, as they are written and checked.
#[derive(Clone, Copy)]
struct Networks<'a> {
    checked: &'a BTreeMap<Name, Network>,
    written: &'a BTreeMap<Name, NetworkEntry>,
}

pub(super) fn bounded(what: &str, count: usize, most: usize) -> Result<()> {
    if count > most {
        Err(Error::usage(format!("the file has {count} {what}; at most {most} are allowed")))
    } else {
        Ok(())
    }
}

pub(super) fn within<T: Copy + PartialOrd + fmt::Display>(
    what: fmt::Arguments<'_>,
    value: T,
    range: RangeInclusive<T>,
) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Error::usage(format!("{what} is outside the range {} to {}", range.start(), range.end())))
}

fn network(entry: &NetworkEntry, guests: &BTreeMap<Name, GuestEntry>) -> Result<Network> {
    let kind = match entry.kind {
        Type::Hipersockets => {
            refuse(entry.buffer.is_some(), "buffer", "a network of type hipersockets has the key `frame` instead")?;
            NetworkKind::Hipersockets { frame: frame(entry.frame.as_deref().unwrap_or("64K"))? }
        }
        Type::Vctc => NetworkKind::Vctc { buffer: block_bytes(entry)? },
        Type::Ctc => NetworkKind::Ctc { buffer: block_bytes(entry)? },
        Type::Netiucv => NetworkKind::Netiucv { buffer: message_bytes(entry)? },
        Type::Claw => claw::kind(entry)?,
        Type::Guestlan | Type::Vswitch => switched_kind::kind(entry)?,
        Type::Qdio => osa::kind(entry)?,
        Type::Lcs => lcs::kind(entry)?,
    };
    osa::check_cards(entry, kind)?;
    let switch = switched::switch(entry, kind, |name| guests.contains_key(name))?;
    let access = match entry.access {
        AccessWord::Open => {
            refuse(
                !entry.grant.is_empty(),
                "grant",
                "the network is open to every guest; set access = \"restricted\" to use `grant`",
            )?;
            Access::Open
        }
        AccessWord::Restricted => Access::Restricted(joined::granted(entry)?),
    };
    let is_port = |name: &Name| {
        entry.port.iter().any(|port| joined::has_port(port, name))
            || entry.uplink.iter().any(|uplink| uplink.interface == *name)
    };
    if let Some(unknown) = entry.grant.iter().find(|name| !guests.contains_key(*name) && !is_port(name)) {
        return Err(Error::usage(format!(
            "`grant` contains the name {unknown}, but the topology has no guest or port with this name"
        )));
    }
    let idle_seconds = entry.idle_seconds.unwrap_or(limits::IDLE_SECONDS_DEFAULT);
    if idle_seconds == 0 {
        return Err(Error::usage(
            "idle_seconds is 0, but must be at least 1; otherwise siga would remove each ring pair at once",
        ));
    }
    let switch = match switch {
        Some(switch) => Some(super::Switch { ports: switched::ports(entry, kind, &access)?, ..switch }),
        None => None,
    };
    let carries = matches!(kind, NetworkKind::Hipersockets { .. });
    refuse(entry.direct && !carries, "direct", "only a network of type hipersockets can have direct connections")?;
    Ok(Network { kind, access, idle_seconds, direct: entry.direct, switch })
}

/// Reads the size of the blocks of a virtual or real CTC.
fn block_bytes(entry: &NetworkEntry) -> Result<u32> {
    refuse(entry.frame.is_some(), "frame", "networks of type vctc and ctc have the key `buffer` instead")?;
    let buffer = entry.buffer.unwrap_or(limits::VCTC_BUFFER_BYTES_DEFAULT);
    let range = limits::VCTC_BUFFER_BYTES_MIN..=limits::VCTC_BUFFER_BYTES_MAX;
    within(format_args!("a buffer of {buffer} bytes"), buffer, range).map(|()| buffer)
}

/// Reads the size of the messages of a path of type netiucv.
fn message_bytes(entry: &NetworkEntry) -> Result<u32> {
    refuse(entry.frame.is_some(), "frame", "networks of type netiucv have the key `buffer` instead")?;
    let buffer = entry.buffer.unwrap_or(limits::NETIUCV_BUFFER_BYTES);
    let range = limits::NETIUCV_BUFFER_BYTES_MIN..=limits::NETIUCV_BUFFER_BYTES;
    within(format_args!("a buffer of {buffer} bytes"), buffer, range).map(|()| buffer)
}

pub(super) fn refuse(is_there: bool, key: &str, why: &str) -> Result<()> {
    if is_there { Err(Error::usage(format!("the key `{key}` is not allowed here: {why}"))) } else { Ok(()) }
}

/// Reads a frame size: one of the four that HiperSockets hardware has.
pub(super) fn frame(text: &str) -> Result<u32> {
    match text {
        "16K" => Ok(16 << 10),
        "24K" => Ok(24 << 10),
        "40K" => Ok(40 << 10),
        "64K" => Ok(64 << 10),
        other => Err(Error::usage(format!("frame = {other:?} is not a frame size of HiperSockets"))
            .hint("use \"16K\", \"24K\", \"40K\" or \"64K\"")),
    }
}

fn guest(name: &Name, entry: GuestEntry, networks: Networks<'_>) -> Result<Guest> {
    bounded("devices", entry.device.len(), limits::DEVICES_MAX)?;
    bounded("routes", entry.route.len(), limits::ROUTES_MAX)?;
    let netdev_max_backlog = backlog(entry.netdev_max_backlog)?;
    let mut devices: Vec<Device> = Vec::new();
    for (place, written) in entry.device.into_iter().enumerate() {
        let device = Device { netdev_max_backlog, ..device(name, place, written, networks)? };
        if devices.iter().any(|other| other.name == device.name) {
            return Err(Error::usage(format!("two devices of the guest have the same name {}", device.name)));
        }
        devices.push(device);
    }
    let (mut routes, mut tcp_to) = (Vec::new(), Vec::new());
    for written in &entry.route {
        let at = |error: Error| error.at(format!("route to {}", written.to));
        let (route, settings) = route(written, &devices).map_err(at)?;
        routes.extend(route);
        tcp_to.extend(settings);
    }
    let tcp = tcp_settings(&entry.tcp)?;
    if let Some(allow) = &entry.allow {
        allow.check(devices.iter().map(|device| &device.network)).map_err(|error| error.at("allow"))?;
    }
    let arena_bytes = entry.arena_bytes.unwrap_or(limits::ARENA_BYTES_DEFAULT);
    let range = limits::ARENA_BYTES_MIN..=limits::ARENA_BYTES_MAX;
    within(format_args!("arena_bytes of {arena_bytes}"), arena_bytes, range)?;
    let applications_max = entry.applications_max.unwrap_or(limits::APPLICATIONS_DEFAULT);
    let range = 0..=limits::APPLICATIONS_MAX;
    within(format_args!("applications_max of {applications_max}"), applications_max, range)?;
    let external = "siga starts no process for an external guest, so it cannot limit the memory of this process";
    refuse(entry.external && entry.memory_max.is_some(), "memory_max", external)?;
    if let Some(bytes) = entry.memory_max.filter(|bytes| *bytes < limits::MEMORY_BYTES_MIN) {
        let least = limits::MEMORY_BYTES_MIN;
        return Err(Error::usage(format!("memory_max = {bytes} is too small; the minimum is {least} bytes")));
    }
    Ok(Guest {
        forwarding: entry.forwarding,
        external: entry.external,
        restart: entry.restart,
        waiting: entry.waiting,
        devices,
        routes,
        tcp,
        tcp_to,
        pairs_max: entry.pairs_max.unwrap_or(limits::PAIRS_DEFAULT),
        ring_bytes_max: entry.ring_bytes_max.unwrap_or(limits::RING_BYTES_DEFAULT),
        applications_max,
        allow: entry.allow,
        arena_bytes,
        memory_max: entry.memory_max,
        is_switch: false,
    })
}

fn device(guest: &Name, place: usize, entry: DeviceEntry, networks: Networks<'_>) -> Result<Device> {
    let name = entry.name.clone().map_or_else(|| format!("dev{place}").parse(), Ok)?;
    let at = |error: Error| error.at(format!("device {name}"));
    let known = networks.checked.get(&entry.network).zip(networks.written.get(&entry.network));
    let (network, written) =
        known.ok_or_else(|| at(Error::usage(format!("the topology has no network {}", entry.network))))?;
    let kind = network.kind;
    if let Some(other) = entry.kind.filter(|written| written.name() != kind.name()) {
        let message = format!(
            "a device of type {} cannot connect to network {}, which has type {}",
            other.name(),
            entry.network,
            kind.name()
        );
        return Err(at(Error::usage(message)));
    }
    if !network.access.admits(guest) {
        let message = format!("network {} is restricted and does not grant access to {guest}", entry.network);
        return Err(at(Error::usage(message).hint(format!("add the guest to the network: grant = [\"{guest}\"]"))));
    }
    bounded("addresses", entry.addresses.len(), limits::ADDRESSES_MAX).map_err(at)?;
    let addresses = entry.addresses.iter().map(|own| own_address(own)).collect::<Result<Vec<_>>>().map_err(at)?;
    let mtu = mtu(entry.mtu, kind, &addresses).map_err(at)?;
    let claw = claw::settings(kind, &entry, mtu).map_err(at)?;
    // A value outside the range is clamped, not refused, as in z/VM.
    let buffer_count = entry.buffer_count.map_or(kind.buffer_count_default(), |count| {
        u16::try_from(count).unwrap_or(u16::MAX).clamp(limits::BUFFER_COUNT_MIN, limits::BUFFER_COUNT_MAX)
    });
    let port = switched::device_port(network, &entry, written, &addresses).map_err(at)?;
    let link = if port.is_none() { entry.link } else { PortLink::default() };
    if kind.has_channel() {
        link.from_station.iter().chain(&link.to_station).try_for_each(only_channel).map_err(at)?;
    }
    let (network, full, netdev_max_backlog) = (entry.network, entry.full, limits::NETDEV_BACKLOG_DEFAULT);
    Ok(Device { network, addresses, mtu, buffer_count, full, netdev_max_backlog, name, port, link, claw })
}

/// Checks the most packets that wait for one partner.
pub(super) fn backlog(written: Option<u32>) -> Result<u32> {
    let packets = written.unwrap_or(limits::NETDEV_BACKLOG_DEFAULT);
    within(format_args!("netdev_max_backlog = {packets}"), packets, 1..=limits::NETDEV_BACKLOG_MAX).map_err(
        |error| error.hint("each packet that waits takes up to 16 KB of memory; without room, a packet is lost"),
    )?;
    Ok(packets)
}

/// Refuses settings of a link that the channel of a real CTC does not have.
fn only_channel(link: &Link) -> Result<()> {
    if link.is_channel() {
        return Ok(());
    }
    Err(Error::usage(format!("the channel has only the settings rate and latency, but the link is {}", link.label()))
        .hint("use a network of type vctc for other settings"))
}

pub(super) fn mtu(asked: Option<u32>, kind: NetworkKind, addresses: &[IpNet]) -> Result<u16> {
    let least =
        if addresses.iter().any(|own| own.addr().is_ipv6()) { limits::MTU_IPV6_MIN } else { limits::MTU_IPV4_MIN };
    let most = kind.mtu_max();
    let mtu = asked.unwrap_or(kind.mtu_default());
    within(format_args!("an MTU of {mtu} bytes (on {kind})"), mtu, least..=most)?;
    Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
}

/// Reads the address of a device and refuses one that is not unicast.
pub(super) fn own_address(text: &str) -> Result<IpNet> {
    let own = prefix::parse(text)?;
    let address = own.addr();
    let odd = address.is_unspecified() || address.is_multicast() || address.is_loopback();
    if odd || matches!(address, IpAddr::V4(v4) if v4.is_broadcast() || v4.octets()[0] == 0) {
        return Err(Error::usage(format!(
            "{address} cannot be the address of a guest, because it is not a unicast address"
        )));
    }
    Ok(own)
}

/// Returns the route, if it has a next hop, and the settings of connections to its prefix, if it has settings.
fn route(written: &RouteEntry, devices: &[Device]) -> Result<(Option<Route>, Option<TcpTo>)> {
    let to = match written.via {
        Some(via) if written.to == "default" => prefix::everything(via),
        Some(_) | None => prefix::parse(&written.to)?,
    };
    let settings = tcp_settings(&written.tcp)?;
    let settings = (!settings.is_empty()).then_some(TcpTo { to, settings });
    let Some(via) = written.via else {
        let missing = || {
            Error::usage("the route of the guest has neither a next hop nor TCP settings")
                .hint("add the key `via` (next hop) or `tcp` (TCP settings)")
        };
        return settings.map(|settings| (None, Some(settings))).ok_or_else(missing);
    };
    if to.addr().is_ipv4() != via.is_ipv4() {
        return Err(Error::usage(format!(
            "the next hop {via} and the destination of the route have different IP versions"
        )));
    }
    let leads = |device: &Device| device.addresses.iter().any(|own| own.contains(&via));
    let device = devices.iter().position(leads);
    let device = device
        .ok_or_else(|| Error::usage(format!("the next hop {via} is not in the subnet of any device of the guest")))?;
    Ok((Some(Route { to, via, device }), settings))
}

/// Checks that each address belongs to one device only. A link-local address needs to be unique on its link only.
fn addresses_are_of_one_device(topology: &Topology) -> Result<()> {
    let devices = topology.guests.iter().flat_map(|(name, guest)| {
        let owner = format!("guest {name}");
        guest.devices.iter().map(move |device| (owner.clone(), &device.network, &device.addresses))
    });
    let ports = topology.networks.iter().flat_map(|(name, network)| {
        let ports = network.switch.iter().flat_map(|switch| &switch.ports);
        ports.map(move |port| (format!("port {}", port.name), name, &port.addresses))
    });
    let mut owners: BTreeMap<(Option<&Name>, IpAddr), String> = BTreeMap::new();
    for (owner, network, addresses) in devices.chain(ports) {
        for own in addresses {
            let key = (sources::is_link_local(own.addr()).then_some(network), own.addr());
            if let Some(other) = owners.insert(key, owner.clone()) {
                let message = format!("{other} and {owner} have the same IP address {}", own.addr());
                return Err(Error::usage(message));
            }
        }
    }
    Ok(())
}

/// Checks that the source addresses of each router fit into the message that carries them to its partners.
fn sources_fit(topology: &Topology) -> Result<()> {
    for (name, guest) in topology.guests.iter().filter(|(_, guest)| guest.forwarding) {
        for device in &guest.devices {
            let count = sources::of(topology, name, device).len();
            let at = |error: Error| error.at(format!("guest {name}, device {}", device.name));
            bounded("prefixes of source addresses", count, limits::SOURCES_MAX).map_err(at)?;
        }
    }
    Ok(())
}

fn members_fit(topology: &Topology) -> Result<()> {
    for (name, network) in &topology.networks {
        let count = topology.on(name).count();
        let at = |error: Error| error.at(format!("network {name}"));
        match network.kind {
            NetworkKind::Hipersockets { .. } => bounded("devices", count, limits::MEMBERS_MAX).map_err(at)?,
            // `switched::assign_addresses` has counted the ports.
            NetworkKind::Guestlan { .. }
            | NetworkKind::Vswitch { .. }
            | NetworkKind::Qdio { .. }
            | NetworkKind::Lcs { .. } => {}
            NetworkKind::Vctc { .. } | NetworkKind::Ctc { .. } => two_guests(topology, name, "a CTC").map_err(at)?,
            NetworkKind::Netiucv { .. } => two_guests(topology, name, "an IUCV path").map_err(at)?,
            NetworkKind::Claw { .. } => two_guests(topology, name, "a CLAW channel").map_err(at)?,
        }
    }
    Ok(())
}

/// Checks that the network connects at most two devices, of two guests, and has one modelled link at most. `what` stands for such a network in
/// messages.
fn two_guests(topology: &Topology, name: &Name, what: &str) -> Result<()> {
    bounded(&format!("devices on {what}"), topology.on(name).count(), 2)?;
    let mut guests = topology.on(name).map(|(guest, _, _)| guest);
    if let (Some(one), Some(other)) = (guests.next(), guests.next())
        && one == other
    {
        return Err(Error::usage(format!(
            "both ends of {what} belong to the guest {one}; they must belong to two guests"
        )));
    }
    let links = topology.on(name).filter(|(_, _, device)| device.link != PortLink::default()).count();
    if links > 1 {
        let message = format!("both devices of {what} have a modelled link, but {what} has only one");
        return Err(
            Error::usage(message).hint("remove `link` from one device; a link can have settings for each direction")
        );
    }
    Ok(())
}
