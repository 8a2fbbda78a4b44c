//! The status of a network: as text, and as JSON.

use super::{StatusFormat, StatusLayout, guest};
use crate::print;
use serde_json::json;
use siga_fabric::client::Client;
use siga_fabric::protocol::report::{ApplicationReport, DeviceReport, LinkReport, ReportPart, StackReport};
use siga_fabric::protocol::request::{
    Answer, GuestState, GuestStatus, KernelStatus, MemberStatus, NetworkStatus, Request,
};
use siga_model::error::Result;
use siga_model::name::Name;
use siga_model::topology::{PortLink, PortVlan, Where};
use std::fmt::Write;

/// Prints the status of a network.
pub(super) fn print_status(name: &Name, detail: bool, format: StatusFormat, layout: StatusLayout) -> Result<()> {
    let detail = detail || layout == StatusLayout::Zvm;
    let answers = Client::connect(name)?.request(Request::Status { detail })?;
    print(&match (format, layout) {
        (StatusFormat::Json, _) => format!("{:#}\n", json(name, &answers)),
        (StatusFormat::Text, StatusLayout::Plain) => text(name, &answers, detail),
        (StatusFormat::Text, StatusLayout::Zvm) => super::zvm::text(&networks(&answers), &answers),
        (StatusFormat::Text, StatusLayout::Lsqeth) => super::lsqeth::text(&networks(&answers)),
    })
}

/// A network with its members.
pub(super) struct Network<'a> {
    pub(super) status: &'a NetworkStatus,
    pub(super) members: Vec<&'a MemberStatus>,
}

/// Returns the networks of answers with their members.
pub(super) fn networks(answers: &[Answer]) -> Vec<Network<'_>> {
    let mut networks: Vec<Network<'_>> = Vec::new();
    for answer in answers {
        if let Answer::Network(status) = answer {
            networks.push(Network { status, members: Vec::new() });
        }
        if let Answer::Members { network, members } = answer {
            let of = networks.iter_mut().filter(|known| known.status.name == *network);
            of.for_each(|known| known.members.extend(members));
        }
    }
    networks
}

/// Returns a network as JSON. `members` has the labels of all members, `tenants` the namespaces that have joined ports, and `ports` the
/// status of each member.
fn network_json(network: &Network<'_>) -> serde_json::Value {
    let mut value = json!(network.status);
    let tenant = |member: &&MemberStatus| Some((member.label.clone(), json!(member.kernel.as_ref()?.tenant.as_ref()?)));
    let tenants: serde_json::Map<String, serde_json::Value> = network.members.iter().filter_map(tenant).collect();
    value["members"] = network.members.iter().map(|member| json!(member.label)).collect();
    value["tenants"] = tenants.into();
    value["ports"] = network.members.iter().map(|member| json!(member)).collect();
    value
}

fn json(name: &Name, answers: &[Answer]) -> serde_json::Value {
    let networks: Vec<_> = networks(answers).iter().map(network_json).collect();
    let guests: Vec<_> = answers.iter().filter_map(guest).collect();
    let report = |answer: &Answer| {
        let Answer::Report { guest, part } = answer else { return None };
        Some(json!({ "guest": guest, "part": part }))
    };
    let reports: Vec<_> = answers.iter().filter_map(report).collect();
    let silent = |answer: &Answer| {
        let Answer::Silent { guest } = answer else { return None };
        Some(json!(guest))
    };
    let silent: Vec<_> = answers.iter().filter_map(silent).collect();
    json!({ "format": "siga/net-status/1", "name": name, "networks": networks, "guests": guests, "reports": reports, "silent": silent })
}

fn text(name: &Name, answers: &[Answer], detail: bool) -> String {
    let mut text = format!("network {name}\n\n");
    text += "network         type                                access      pairs  members\n";
    let networks = networks(answers);
    networks.iter().for_each(|network| network_text(&mut text, network));
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
    if detail {
        networks.iter().for_each(|network| switch_text(&mut text, network));
        answers.iter().filter_map(guest).for_each(|status| filter_text(&mut text, status));
    }
    for answer in answers {
        if let Answer::Silent { guest } = answer {
            let _ = writeln!(text, "\nguest {guest} did not send a report before the timeout");
        }
        if let Answer::Report { guest, part } = answer {
            match part {
                ReportPart::Device(device) => device_text(&mut text, guest, device),
                ReportPart::Link(link) => link_text(&mut text, link),
                ReportPart::Application(application) => application_text(&mut text, guest, application),
                ReportPart::Stack(stack) => stack_text(&mut text, stack),
                ReportPart::Totals(_) | ReportPart::Addresses { .. } => {}
            }
        }
    }
    text
}

/// Adds the rules of a guest's port filter, if it has one.
fn filter_text(text: &mut String, status: &GuestStatus) {
    let Some(allow) = &status.allow else { return };
    let _ = writeln!(text, "\nport filter of guest {}: others may open", status.name);
    if allow.rules().is_empty() {
        text.push_str("  nothing\n");
    }
    for rule in allow.rules() {
        let _ = writeln!(text, "  {rule}");
    }
}

fn network_text(text: &mut String, Network { status, members }: &Network<'_>) {
    let NetworkStatus { name, kind, granted, owner, pairs, switch: _ } = status;
    let access = if granted.is_some() { "restricted" } else { "open" };
    let labels: Vec<&str> = members.iter().map(|member| member.label.as_str()).collect();
    let _ = writeln!(text, "{name:<16}{kind:<36}{access:<12}{pairs:>5}  {}", labels.join(" "));
    if let Some(owner) = owner.as_ref().filter(|owner| *owner != "SYSTEM persistent") {
        let _ = writeln!(text, "{:<16}owner {owner}", "");
    }
    for member in members {
        if let Some(tenant) = member.kernel.as_ref().and_then(|kernel| kernel.tenant.as_ref()) {
            let _ = writeln!(text, "{:<16}port {}: {}", "", member.label, siga_model::text::name(tenant));
        }
    }
}

/// Adds the settings of a switch and its ports.
pub(super) fn switch_text(text: &mut String, Network { status, members }: &Network<'_>) {
    let Some(switch) = &status.switch else { return };
    let maxconn = switch.maxconn.map_or_else(|| "any number".to_owned(), |most| most.to_string());
    let owner = status.owner.as_deref().unwrap_or_default();
    let uplink = switch.uplink.as_ref().map_or("none", Name::as_str);
    let mirror = switch.mirror.as_ref().map_or_else(
        || "off".to_owned(),
        |mirror| format!("from {} to {}", mirror.from.as_deref().unwrap_or("all ports"), mirror.to),
    );
    let _ = writeln!(text, "\nswitch of network {}", status.name);
    for (key, value) in [
        ("type", status.kind.clone()),
        ("owner", owner.to_owned()),
        ("access", if status.granted.is_some() { "restricted" } else { "open" }.to_owned()),
        ("maxconn", maxconn),
        ("flood_per_second", switch.flood_per_second.to_string()),
        ("accounting", if switch.accounting { "on" } else { "off" }.to_owned()),
        ("uplink in use", uplink.to_owned()),
        ("mirror", mirror),
    ] {
        let _ = writeln!(text, "  {key:<24}{value}");
    }
    let _ = writeln!(
        text,
        "  {:<20} {:<18} {:<24} {:<10} {:<9} {:<12} {:>6}  place",
        "port", "address", "VLAN", "protection", "isolated", "promiscuous", "MTU"
    );
    members.iter().for_each(|member| port_text(text, member));
}

fn port_text(text: &mut String, member: &MemberStatus) {
    let Some(port) = &member.port else { return };
    let yes = |is: bool| if is { "yes" } else { "no" };
    let vlan = match &port.vlan {
        PortVlan::Access(vlan) => vlan.to_string(),
        PortVlan::Trunk { allowed, native } => {
            let allowed: Vec<String> = allowed.iter().map(u16::to_string).collect();
            let native = native.map_or_else(String::new, |native| format!(" native {native}"));
            format!("trunk {}{native}", allowed.join(","))
        }
    };
    let (mac, protection) = (port.mac.to_string(), port.protection.to_string());
    let place = match &member.kernel {
        None => "guest".to_owned(),
        Some(KernelStatus { place, tenant: None, .. }) if *place == Where::Joins.to_string() => {
            "free for a network namespace".to_owned()
        }
        Some(kernel) => {
            let what = match kernel.uplink {
                Some(rank) => format!("uplink {rank}, {}", if kernel.has_carrier { "carrier" } else { "no carrier" }),
                None if kernel.is_there => "connected".to_owned(),
                None => "not connected".to_owned(),
            };
            let tenant = kernel.tenant.as_deref().map_or_else(|| kernel.place.clone(), siga_model::text::name);
            format!("{} of {tenant}, {what}", kernel.interface)
        }
    };
    let access = if member.granted { "" } else { ", no access" };
    let asks = match &member.kernel {
        Some(KernelStatus { dhcp: true, router_advertisements: true, .. }) => ", DHCP and router advertisements",
        Some(KernelStatus { dhcp: true, .. }) => ", DHCP",
        Some(KernelStatus { router_advertisements: true, .. }) => ", router advertisements",
        Some(_) | None => "",
    };
    let link = if port.link == PortLink::default() { String::new() } else { format!(", {}", port.link) };
    let _ = writeln!(
        text,
        "  {:<20} {mac:<18} {vlan:<24} {protection:<10} {:<9} {:<12} {:>6}  {place}{asks}{access}{link}",
        member.label,
        yes(port.isolated),
        yes(port.promiscuous),
        member.mtu
    );
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
    let _ =
        writeln!(text, "\napplication {number} of guest {guest}\n  {sockets} sockets, {kilobytes} KB of free memory");
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
