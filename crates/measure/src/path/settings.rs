//! Settings of a path's namespaces and interfaces: sysctls, offloads, segment sizes, congestion control.
//!
//! siga first sets its own defaults, and then the settings of the level (the named set of settings to measure). If the kernel
//! refuses a setting of the level, siga returns an error. If the kernel refuses a default, siga only adds a note to the record.
//! Afterwards siga reads all settings back and records them.

use super::namespace::{Node, NodeKind};
use super::network::{Interface, Network};
use super::{napi, qdisc};
use crate::sys::ethtool::{Offload, offload, set_offload};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use siga_model::error::{Error, IoContext, Result};
use siga_plan::level::Level;
use siga_plan::path::PathKind;
use siga_plan::spec::PathSpec;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

/// Sysctls that siga always sets. They make many connections per second possible: longer accept queues, more ports, and reuse
/// of ports in TIME-WAIT. They also disable reverse path filtering.
const OWN: [(&str, &str); 6] = [
    ("net.core.somaxconn", "65535"),
    ("net.ipv4.tcp_max_syn_backlog", "65535"),
    ("net.ipv4.ip_local_port_range", "1024 65535"),
    ("net.ipv4.tcp_tw_reuse", "1"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
];

/// IPv6 sysctls that siga always sets, so that the path carries only the packets of the workload. Interfaces get only the
/// addresses that siga adds. Duplicate address detection and router advertisements are disabled.
const OWN_IPV6: [(&str, &str); 8] = [
    ("net.ipv6.conf.all.disable_ipv6", "0"),
    ("net.ipv6.conf.default.disable_ipv6", "0"),
    ("net.ipv6.conf.default.addr_gen_mode", "1"),
    ("net.ipv6.conf.all.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.default.dad_transmits", "0"),
    ("net.ipv6.conf.default.router_solicitations", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
];

/// Sysctls for a path with a bridge. They ensure that bridged frames do not pass the packet filter of the IP layer.
const BRIDGE: [(&str, &str); 3] = [
    ("net.bridge.bridge-nf-call-iptables", "0"),
    ("net.bridge.bridge-nf-call-ip6tables", "0"),
    ("net.bridge.bridge-nf-call-arptables", "0"),
];

/// Sysctl with the default congestion control of a namespace. Sockets of the workload do not use the default, because each of
/// them requests a congestion control itself.
const CONGESTION: &str = "net.ipv4.tcp_congestion_control";

/// Sysctls that siga only reads and records, in addition to those that siga and the level set.
pub(super) const ALSO_READ: [&str; 14] = [
    CONGESTION,
    "net.ipv4.ip_forward",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv6.conf.all.forwarding",
];

/// Notes on siga's default settings that the kernel refused.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The settings that the kernel refused, grouped by the error message, which is the key.
    refused: BTreeMap<String, Vec<String>>,
    lines: Vec<String>,
}

impl Notes {
    fn refuse(&mut self, setting: String, error: &io::Error) {
        self.refused.entry(error.to_string()).or_default().push(setting);
    }

    fn add(&mut self, line: String) {
        if !self.lines.contains(&line) {
            self.lines.push(line);
        }
    }

    /// Returns the notes, with one line for each error message.
    pub(super) fn into_lines(self) -> Vec<String> {
        let refused = self
            .refused
            .into_iter()
            .map(|(error, settings)| format!("the kernel refused these settings ({error}): {}", settings.join(", ")));
        refused.chain(self.lines).collect()
    }
}

/// Sets the sysctls that must be set before interfaces are created.
pub(super) fn prepare(network: &Network, spec: &PathSpec, ipv6: bool, notes: &mut Notes) -> Result<()> {
    for node in &network.nodes {
        let routes = spec.kind == PathKind::VethRouted && node.kind == NodeKind::Router;
        if routes {
            // Enable forwarding first, because this resets other sysctls to the defaults for a router.
            set(node, "net.ipv4.ip_forward", "1")?;
            if ipv6 {
                set(node, "net.ipv6.conf.all.forwarding", "1")?;
            }
        }
        let mut own = OWN.to_vec();
        if ipv6 {
            own.extend(OWN_IPV6);
        }
        if spec.kind == PathKind::Bridge && node.has_sysctl(BRIDGE[0].0)? {
            own.extend(BRIDGE);
        }
        for (name, value) in own {
            if let Err(error) = node.set_sysctl(name, value)? {
                notes.refuse(format!("{} {name}", node.kind.name()), &error);
            }
        }
        for (name, value) in spec.level.sysctl.iter().filter(|(name, _)| !is_late(name)) {
            set(node, name, value)?;
        }
    }
    Ok(())
}

/// Sets the offloads and maximum segment sizes of every interface.
pub(super) fn shape(network: &mut Network, level: &Level) -> Result<()> {
    for interface in network.interfaces.clone() {
        let label = interface.label();
        let node = network.node(interface.node)?;
        for (which, on) in wanted_offloads(level) {
            let is_on =
                offload(&node.socket, interface.name, which).context(format!("cannot read {which} of {label}"))?;
            if is_on != on {
                // Ignore an error here, because `read_interfaces` later compares all switches with the settings of the level. This
                // comparison finds a failed call, and also a driver that reports success but changes nothing.
                let _reported_by_read_back = set_offload(&node.socket, interface.name, which, on);
            }
        }
        if let Some(bytes) = level.big_tcp_bytes {
            network.change(interface, "set the maximum segment size of", sizes(bytes)).map_err(big_tcp_hint)?;
        }
    }
    Ok(())
}

/// Sets the level's sysctls for single interfaces and for the packet filter, which did not exist in [`prepare`]. Then reads all
/// sysctls of the level back and compares them with the level.
pub(super) fn finish(network: &Network, level: &Level, notes: &mut Notes) -> Result<()> {
    for (name, value) in level.sysctl.iter().filter(|(name, _)| is_late(name)) {
        let mut found = false;
        for node in &network.nodes {
            if node.has_sysctl(name)? {
                set(node, name, value)?;
                found = true;
            }
        }
        if !found {
            let labels: Vec<_> = network.interfaces.iter().map(|interface| interface.label()).collect();
            return Err(Error::environment(format!("no namespace of the path has the sysctl {name}"))
                .hint(format!("interfaces: {}", labels.join(", "))));
        }
    }
    for (name, value) in &level.sysctl {
        let wanted = value.split_whitespace().collect::<Vec<_>>().join(" ");
        for node in &network.nodes {
            if let Some(read) = node.sysctl(name)?.filter(|read| *read != wanted) {
                notes.add(format!("{name} was set to {wanted}, but {read} is in force"));
            }
        }
    }
    Ok(())
}

/// Returns the congestion control that sockets of the path will request. Also makes it the default of each namespace. If a
/// namespace does not accept it as its default, the default is reno.
pub(super) fn choose_congestion(network: &Network, named: Option<&str>, notes: &mut Notes) -> Result<String> {
    let mut chosen = named.unwrap_or("cubic");
    for node in &network.nodes {
        match (accepts_congestion(node, chosen)?, named) {
            (Ok(()), _) => {}
            (Err(error), Some(name)) => return Err(congestion_refused(node, name, &error)),
            (Err(error), None) => {
                notes.add(format!("congestion control reno is used instead of cubic ({error})"));
                chosen = "reno";
            }
        }
    }
    for node in &network.nodes {
        let Err(error) = node.set_sysctl(CONGESTION, chosen)? else { continue };
        // As its default, a namespace accepts only a congestion control that unprivileged processes may use. reno is always such a
        // congestion control.
        let default = if node.set_sysctl(CONGESTION, "reno")?.is_ok() { "reno" } else { "the host's" };
        notes.add(format!(
            "sockets without their own setting use the congestion control {default} instead of {chosen} ({error})"
        ));
    }
    Ok(chosen.to_owned())
}

/// Reads the settings of every interface and returns an error if one of them differs from the level.
pub(super) fn read_interfaces(network: &mut Network, level: &Level) -> Result<BTreeMap<String, String>> {
    let mut texts = BTreeMap::new();
    for interface in network.interfaces.clone() {
        let link = network.read(interface)?;
        check_sizes(interface, &link, level)?;
        let mut text = describe(&link);
        let node = network.node(interface.node)?;
        let wanted = wanted_offloads(level);
        for (which, on) in offloads(&node.socket, interface.name) {
            let wish = wanted.iter().find(|(wished, _)| *wished == which).map(|(_, on)| *on);
            if wish.is_some_and(|wish| wish != on) {
                let state = if on { "on" } else { "off" };
                return Err(Error::environment(format!(
                    "the kernel did not change {which} of {}, which is still {state}",
                    interface.label()
                ))
                .hint(format!(
                    "`{which}` cannot be changed on this type of interface; remove it from level {}",
                    level.name
                )));
            }
            text += &word(which, on);
        }
        text.push_str(&napi::read_back(network, interface, level)?);
        text.push_str(&qdisc::read_back(network, interface, level)?);
        texts.insert(interface.label(), text);
    }
    Ok(texts)
}

/// Reads the sysctls that affect the path, from every namespace.
pub(super) fn read_sysctls(network: &Network, spec: &PathSpec, notes: &mut Notes) -> Result<BTreeMap<String, String>> {
    let bridge = if spec.kind == PathKind::Bridge { &BRIDGE[..] } else { &[] };
    let own = OWN.iter().chain(&OWN_IPV6).chain(bridge).map(|(name, _)| *name);
    let names: Vec<_> = own.chain(ALSO_READ).chain(spec.level.sysctl.keys().map(String::as_str)).collect();
    let mut values = BTreeMap::new();
    for node in &network.nodes {
        for name in &names {
            if let Some(value) = node.sysctl(name)? {
                values.insert(format!("{} {name}", node.kind.name()), value);
            }
        }
    }
    if values.is_empty() {
        notes.add("/proc/sys/net is not readable here, so siga could not check the sysctls that it set".to_owned());
    }
    Ok(values)
}

fn set(node: &Node, name: &str, value: &str) -> Result<()> {
    node.set_sysctl(name, value)?.map_err(|error| {
        let hint = match error.raw_os_error() {
            Some(libc::ENOENT | libc::EACCES | libc::EPERM) => {
                "the kernel has no such sysctl, or only one for the whole host, and siga does not change settings of the host"
            }
            Some(libc::EROFS) => "/proc/sys is read-only; start the container with --privileged",
            Some(_) | None => "the kernel rejects this value",
        };
        Error::environment(format!("cannot set {name} = {value} in the {} namespace: {error}", node.kind.name()))
            .hint(hint)
    })
}

/// Returns whether a sysctl belongs to an interface or to the packet filter of the path. Such a sysctl does not exist before the
/// interface is created or the filter is loaded.
fn is_late(sysctl: &str) -> bool {
    sysctl.contains(".siga-") || sysctl.starts_with("net.netfilter.")
}

fn wanted_offloads(level: &Level) -> Vec<(Offload, bool)> {
    let wishes = [(Offload::Tso, level.tso), (Offload::Gso, level.gso), (Offload::Gro, level.gro)];
    wishes.into_iter().filter_map(|(which, wish)| wish.map(|on| (which, on))).collect()
}

fn sizes(bytes: u32) -> Vec<LinkAttribute> {
    vec![
        LinkAttribute::GsoMaxSize(bytes),
        LinkAttribute::GroMaxSize(bytes),
        LinkAttribute::GsoIpv4MaxSize(bytes),
        LinkAttribute::GroIpv4MaxSize(bytes),
    ]
}

/// If the level requests BIG TCP, checks that it is on. A kernel without BIG TCP ignores the attributes and reports no error,
/// so only the values that are read back show whether it is on.
fn check_sizes(interface: Interface, link: &LinkMessage, level: &Level) -> Result<()> {
    let Some(bytes) = level.big_tcp_bytes else { return Ok(()) };
    if sizes(bytes).iter().all(|size| link.attributes.contains(size)) {
        return Ok(());
    }
    let message =
        format!("interface {} does not accept segments of {bytes} bytes ({})", interface.label(), describe(link));
    Err(big_tcp_hint(Error::environment(message)))
}

fn big_tcp_hint(error: Error) -> Error {
    error.hint(
        "BIG TCP needs Linux 6.3 and a driver that accepts such segments; otherwise remove `big_tcp_bytes` from \
            the level",
    )
}

/// Reads the offload switches of an interface in the namespace of `socket`. Leaves out those that the driver lacks.
pub(super) fn offloads(socket: impl AsFd + Copy, interface: &str) -> impl Iterator<Item = (Offload, bool)> {
    Offload::ALL.into_iter().filter_map(move |which| Some((which, offload(socket, interface, which).ok()?)))
}

/// Returns a switch as a word of an interface's settings.
pub(super) fn word(which: Offload, on: bool) -> String {
    format!(" {which}={}", if on { "on" } else { "off" })
}

#[allow(clippy::wildcard_enum_match_arm, reason = "seven of some seventy attributes of a foreign enum")]
pub(super) fn describe(link: &LinkMessage) -> String {
    let mut words = Vec::new();
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Mtu(value) => words.push((0, format!("mtu={value}"))),
            LinkAttribute::Qdisc(name) => words.push((1, format!("qdisc={name}"))),
            LinkAttribute::TxQueueLen(value) => words.push((2, format!("txqueuelen={value}"))),
            LinkAttribute::GsoMaxSize(value) => words.push((3, format!("gso-max={value}"))),
            LinkAttribute::GroMaxSize(value) => words.push((4, format!("gro-max={value}"))),
            LinkAttribute::GsoIpv4MaxSize(value) => words.push((5, format!("gso-ipv4-max={value}"))),
            LinkAttribute::GroIpv4MaxSize(value) => words.push((6, format!("gro-ipv4-max={value}"))),
            _ => {}
        }
    }
    words.sort();
    words.into_iter().map(|(_, word)| word).collect::<Vec<_>>().join(" ")
}

fn accepts_congestion(node: &Node, name: &str) -> Result<io::Result<()>> {
    node.enter()?;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .context("cannot open a TCP socket")?;
    Ok(sockopt::set_tcp_congestion(&socket, name).map_err(io::Error::from))
}

fn congestion_refused(node: &Node, name: &str, error: &io::Error) -> Error {
    let message = format!("congestion control {name} is not available: {error}");
    let available = node.sysctl("net.ipv4.tcp_available_congestion_control").ok().flatten().unwrap_or_default();
    let hint = if error.raw_os_error() == Some(libc::EPERM) {
        "run siga as root, or add the algorithm to net.ipv4.tcp_allowed_congestion_control of the host".to_owned()
    } else {
        format!("this kernel supports {available}; try `modprobe tcp_{name}`")
    };
    Error::environment(message).hint(hint)
}
