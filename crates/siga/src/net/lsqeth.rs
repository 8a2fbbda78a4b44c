//! The OSA-Express adapters of a network's guests in the layout of `lsqeth -p` on Linux: one line for each device.
//!
//! siga's devices have no device numbers and no channel path, so the first column has guest and device, and CHPID is the number of the
//! card in this output.

use super::status::Network;
use siga_fabric::protocol::request::{DeviceStatus, MemberStatus};
use siga_model::topology::{Card, NetworkKind, PortSettings};
use std::fmt::Write;

/// The columns with their widths, as `lsqeth -p` has them.
const COLUMNS: [(&str, usize); 11] = [
    ("devices", 26),
    ("CHPID", 5),
    ("interface", 16),
    ("cardtype", 14),
    ("port", 4),
    ("chksum", 6),
    ("prio-q'ing", 10),
    ("rtr4", 4),
    ("rtr6", 4),
    ("lay'2", 5),
    ("cnt", 5),
];

/// Returns the text of all networks of type qdio.
pub(super) fn text(networks: &[Network<'_>]) -> String {
    let mut text = String::new();
    line(&mut text, &COLUMNS.map(|(name, _)| name.to_owned()));
    line(&mut text, &COLUMNS.map(|(_, width)| "-".repeat(width)));
    let mut cards = Vec::new();
    for network in networks {
        for member in &network.members {
            if let Some(values) = device(network, member, &mut cards) {
                line(&mut text, &values);
            }
        }
    }
    text
}

fn line(text: &mut String, values: &[String; 11]) {
    let cells = values.iter().zip(COLUMNS).map(|(value, (_, width))| format!("{value:<width$}"));
    let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join(" ").trim_end());
}

/// Returns the line of a device, or `None` if it has no card. `cards` are the cards so far.
fn device(network: &Network<'_>, member: &MemberStatus, cards: &mut Vec<String>) -> Option<[String; 11]> {
    let Some(NetworkKind::Qdio { ethernet, .. }) = network.status.switch.as_ref().map(|switch| switch.kind) else {
        return None;
    };
    let PortSettings { card: Some(Card { name, queueing }), link, .. } = member.port.as_ref()? else { return None };
    let DeviceStatus { buffer_count, is_router, checksums_by_card } = member.device.as_ref()?;
    let card = match name {
        Some(name) => format!("{} {name}", network.status.name),
        None => format!("{} {}", network.status.name, member.label),
    };
    let number = cards.iter().position(|known| *known == card).unwrap_or_else(|| {
        cards.push(card);
        cards.len() - 1
    });
    let kind = match link.from_station.as_ref().and_then(|link| link.rate) {
        Some(1_000_000_000) => "OSD_1000",
        Some(10_000_000_000) => "OSD_10GIG",
        Some(_) | None => "OSD",
    };
    let interface = member.label.split_once('.').map_or(member.label.as_str(), |(_, device)| device);
    let router = if *is_router && !ethernet { "pri" } else { "no" };
    Some([
        member.label.clone(),
        format!("x{number:02X}"),
        interface.to_owned(),
        kind.to_owned(),
        "0".to_owned(),
        if *checksums_by_card { "hw" } else { "sw" }.to_owned(),
        queueing.short(),
        router.to_owned(),
        router.to_owned(),
        u8::from(ethernet).to_string(),
        buffer_count.to_string(),
    ])
}
