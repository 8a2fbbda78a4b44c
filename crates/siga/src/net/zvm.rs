//! The status of networks with a switch in the words of z/VM's QUERY LAN DETAILS and QUERY VSWITCH DETAILS. Fields without a meaning in
//! siga, such as the queue storage, are left out.

use super::status::Network;
use siga_fabric::protocol::report::{ReportPart, Traffic};
use siga_fabric::protocol::request::{Answer, MemberStatus, SwitchStatus};
use siga_model::name::Name;
use siga_model::topology::{NetworkKind, Nic, PortSettings, PortVlan, Protection};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Returns the text of all networks with a switch.
pub(super) fn text(networks: &[Network<'_>], answers: &[Answer]) -> String {
    let mut text = String::new();
    for network in networks {
        let Some(switch) = &network.status.switch else { continue };
        if !text.is_empty() {
            text.push('\n');
        }
        network_text(&mut text, network, switch, &Counters::of(&network.status.name, answers));
    }
    if text.is_empty() {
        text += "no network has a switch\n";
    }
    text
}

/// The counters of a switch's ports, by the labels of the ports.
struct Counters<'a>(BTreeMap<String, &'a BTreeMap<String, u64>>);

impl<'a> Counters<'a> {
    fn of(switch: &Name, answers: &'a [Answer]) -> Self {
        let links = answers.iter().filter_map(|answer| {
            let Answer::Report { guest, part: ReportPart::Link(link) } = answer else { return None };
            (guest == switch).then_some(link)
        });
        let labelled = links.flat_map(|link| {
            let (guest, device) = (&link.member.guest, &link.member.device);
            [(format!("{guest}.{device}"), &link.counters), (guest.to_string(), &link.counters)]
        });
        Self(labelled.collect())
    }

    fn get(&self, label: &str, counter: &str) -> u64 {
        self.0.get(label).and_then(|counters| counters.get(counter)).copied().unwrap_or_default()
    }

    /// Returns how many frames that a station has sent were dropped, and how many for the station.
    fn discarded(&self, label: &str) -> (u64, u64) {
        const FOR_STATION: [&str; 6] = [
            "drop_too_long",
            "drop_copy_queue_full",
            "drop_refused_by_kernel",
            "drop_other_dhcp_server",
            "backlog_full",
            "target_full",
        ];
        let counters = self.0.get(label).into_iter().flat_map(|counters| counters.iter());
        let (mut from, mut to) = (0, 0);
        for (name, count) in counters {
            if FOR_STATION.contains(&name.as_str()) {
                to += count;
            } else if name.starts_with("drop_") {
                from += count;
            }
        }
        (from, to)
    }
}

fn network_text(text: &mut String, network: &Network<'_>, switch: &SwitchStatus, counters: &Counters<'_>) {
    let status = network.status;
    let (uplinks, adapters): (Vec<&MemberStatus>, Vec<&MemberStatus>) =
        network.members.iter().partition(|member| member.kernel.as_ref().is_some_and(|kernel| kernel.uplink.is_some()));
    let connected = adapters.iter().filter(|member| is_connected(member)).count();
    let maxconn = switch.maxconn.map_or_else(|| "INFINITE".to_owned(), |most| most.to_string());
    let (owner, state) = status.owner.as_deref().and_then(|owner| owner.split_once(' ')).unwrap_or(("SYSTEM", ""));
    let (command, nic, layer) = match switch.kind {
        NetworkKind::Guestlan { nic: Nic::Hipersockets { .. }, .. } => ("LAN", "HIPERS", "IP"),
        NetworkKind::Guestlan { nic: Nic::Qdio { ethernet: true }, .. } => ("LAN", "QDIO", "ETHERNET"),
        NetworkKind::Guestlan { nic: Nic::Qdio { ethernet: false }, .. } => ("LAN", "QDIO", "IP"),
        NetworkKind::Qdio { ethernet: true, .. } => ("OSA", "QDIO", "ETHERNET"),
        NetworkKind::Qdio { ethernet: false, .. } => ("OSA", "QDIO", "IP"),
        NetworkKind::Lcs { .. } => ("LCS", "LCS", "IP"),
        NetworkKind::Vswitch { .. }
        | NetworkKind::Hipersockets { .. }
        | NetworkKind::Vctc { .. }
        | NetworkKind::Ctc { .. }
        | NetworkKind::Netiucv { .. }
        | NetworkKind::Claw { .. } => ("VSWITCH", "QDIO", "ETHERNET"),
    };
    let name = status.name.as_str().to_uppercase();
    let _ = writeln!(
        text,
        "{command} {} {name:<12} Type: {nic:<7} Connected: {connected:<4} Maxconn: {maxconn}",
        owner.to_uppercase()
    );
    let access = if status.granted.is_some() { "RESTRICTED" } else { "UNRESTRICTED" };
    let accounting = if switch.accounting { "ON" } else { "OFF" };
    let _ = writeln!(text, "  {:<11} {access:<13} {layer:<25} Accounting: {accounting}", state.to_uppercase());
    kind_text(text, switch, &adapters);
    if !uplinks.is_empty() {
        uplinks_text(text, switch, &uplinks, counters);
    }
    let _ = writeln!(text, "  Adapter Connections:          Connected: {connected}");
    adapters.iter().filter(|member| is_connected(member)).for_each(|member| adapter_text(text, member, counters));
    if switch.accounting {
        text.push_str("  Accounting Records:\n");
        adapters.iter().for_each(|member| account_text(text, member));
    }
    if let Some(granted) = &status.granted {
        text.push_str("  Authorized userids:\n");
        for name in granted {
            let own = |member: &&&MemberStatus| member.grantee == *name;
            let vlan = network.members.iter().find(own).and_then(|member| member.port.as_ref()).map(port_type);
            let _ = writeln!(text, "    {:<16} {}", name.as_str().to_uppercase(), vlan.unwrap_or_default());
        }
    }
}

fn is_connected(member: &MemberStatus) -> bool {
    member.granted && member.kernel.as_ref().is_none_or(|kernel| kernel.is_there)
}

fn kind_text(text: &mut String, switch: &SwitchStatus, adapters: &[&MemberStatus]) {
    if let NetworkKind::Guestlan { nic: Nic::Hipersockets { frame }, .. } = switch.kind {
        let _ = writeln!(text, "  MFS: {frame}");
    }
    let ports = || adapters.iter().filter_map(|member| member.port.as_ref());
    let has_vlans = ports().any(|port| port.vlan != PortVlan::Access(1));
    let _ = writeln!(
        text,
        "  VLAN {}",
        if has_vlans { "Aware  Default VLAN: 0001    Default Porttype: Access" } else { "Unaware" }
    );
    let protected = ports().all(|port| port.protection != Protection::Off);
    let isolated = ports().any(|port| port.isolated);
    let on = |is_on: bool| if is_on { "ON" } else { "OFF" };
    let _ = writeln!(text, "  MAC Protection: {:<13} Isolation Status: {}", on(protected), on(isolated));
    if let Some(mirror) = &switch.mirror {
        let from = mirror.from.as_deref().unwrap_or("all ports");
        let _ = writeln!(text, "  Mirror: from {from} to {}", mirror.to);
    }
}

fn uplinks_text(text: &mut String, switch: &SwitchStatus, uplinks: &[&MemberStatus], counters: &Counters<'_>) {
    let state = if switch.uplink.is_some() { "Ready" } else { "Disconnected" };
    let _ = writeln!(text, "  Uplink Port:\n    State: {state}");
    for member in uplinks {
        let Some(kernel) = &member.kernel else { continue };
        let is_used = switch.uplink.as_ref() == Some(&member.grantee);
        let role = match (is_used, kernel.has_carrier) {
            (true, _) => "ACTIVE",
            (false, true) => "BACKUP",
            (false, false) => "NO CARRIER",
        };
        let _ = writeln!(text, "    RDEV: {} of {}  {role}", kernel.interface, kernel.place);
        counters_text(text, &member.label, counters);
    }
}

fn adapter_text(text: &mut String, member: &MemberStatus, counters: &Counters<'_>) {
    let (owner, device) = member.label.split_once('.').unwrap_or((&member.label, ""));
    let name = match &member.kernel {
        Some(kernel) => kernel.interface.as_str(),
        None => device,
    };
    let _ = writeln!(text, "    Adapter Owner: {:<16} Name: {name}", owner.to_uppercase());
    let Some(port) = &member.port else { return };
    let _ = writeln!(text, "      {}", port_type(port));
    counters_text(text, &member.label, counters);
    let promiscuous = if port.promiscuous { "  Promiscuous" } else { "" };
    let isolated = if port.isolated { "  Isolated" } else { "" };
    let _ = writeln!(text, "      Options: Broadcast Multicast{promiscuous}{isolated}");
    text.push_str("      Unicast MAC Addresses:\n");
    let mac = port.mac.to_string().to_uppercase().replace(':', "-");
    let addresses: Vec<String> = member.addresses.iter().map(|own| own.addr().to_string()).collect();
    let _ = writeln!(
        text,
        "        {mac} IP: {}",
        if addresses.is_empty() { "none".to_owned() } else { addresses.join(" ") }
    );
}

/// Adds the account of a station.
fn account_text(text: &mut String, member: &MemberStatus) {
    let Some(Traffic { frames_sent, bytes_sent, frames_received, bytes_received }) = member.account else { return };
    let label = member.label.to_uppercase();
    let _ = writeln!(text, "    {label:<16} RX Packets: {frames_received:<12} TX Packets: {frames_sent}");
    let _ = writeln!(text, "    {:<16} RX Bytes: {bytes_received:<14} TX Bytes: {bytes_sent}", "");
}

fn port_type(port: &PortSettings) -> String {
    match &port.vlan {
        PortVlan::Access(vlan) => format!("Porttype: Access  VLAN: {vlan:04}"),
        PortVlan::Trunk { allowed, native } => {
            let allowed: Vec<String> = allowed.iter().map(|vlan| format!("{vlan:04}")).collect();
            let native = native.map_or_else(String::new, |native| format!("  Native VLAN: {native:04}"));
            format!("Porttype: Trunk   VLAN: {}{native}", allowed.join(" "))
        }
    }
}

/// Adds the counters of a port, from the point of view of its station.
fn counters_text(text: &mut String, label: &str, counters: &Counters<'_>) {
    let get = |name: &str| counters.get(label, name);
    let (from, to) = counters.discarded(label);
    for (direction, packets, discarded) in [("RX", "port_frames_sent", to), ("TX", "port_frames_received", from)] {
        let _ = writeln!(text, "      {direction} Packets: {:<12} Discarded: {discarded}", get(packets));
    }
    let _ = writeln!(text, "      RX Bytes: {:<14} TX Bytes: {}", get("port_bytes_sent"), get("port_bytes_received"));
}
