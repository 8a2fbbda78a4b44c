//! Describes captured blocks of networks of type vctc, ctc, netiucv, claw and lcs.
//!
//! A captured block begins with four bytes: the number of its format, the tag of its frame in the ring, and two zeros.

use crate::device::blocks::{Format, claw, ctc, lcs, netiucv};
use crate::device::{Inside, Part};
use crate::switch::frame::{IPV4, IPV6, LINK_BYTES};
use siga_stack::pcapng::{Direction, LinkType, Reader, Record};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Length of what precedes a captured block, in bytes.
pub(crate) const CAPTURE_HEADER_BYTES: usize = 4;
/// Most packets of a block that are described.
const PARTS_MAX: usize = 10_000;

/// A block of a capture.
#[derive(Debug)]
pub struct Block<'a> {
    /// The name of the link over which the guest sent or received the block.
    pub link: &'a str,
    /// The time since 1970 in nanoseconds.
    pub at_ns: u64,
    /// Whether the guest sent the block.
    pub is_sent: bool,
    /// The name of the format.
    pub format: &'static str,
    /// Length of the block, and how many of its bytes the capture contains.
    pub bytes: (usize, usize),
    /// The text of each packet and message in the block.
    pub parts: Vec<String>,
}

/// Reads the frames of a capture. Returns a block, or `None` for another frame. An error says why the file cannot be read.
pub fn blocks(capture: &[u8]) -> impl Iterator<Item = Result<Option<Block<'_>>, &'static str>> {
    Reader::new(capture).map(|record| record.map(block))
}

fn block(record: Record<'_>) -> Option<Block<'_>> {
    let (format, parts) = describe(record.bytes).filter(|_| record.link_type == LinkType::User0 as u16)?;
    let of_block = |bytes: usize| bytes.saturating_sub(CAPTURE_HEADER_BYTES);
    Some(Block {
        link: record.interface,
        at_ns: record.at_ns,
        is_sent: record.direction == Some(Direction::Out),
        format,
        bytes: (of_block(record.len), of_block(record.bytes.len())),
        parts,
    })
}

/// Returns the name of a captured block's format, and the text of each packet and message in it. `None` if it is no captured block.
pub(crate) fn describe(captured: &[u8]) -> Option<(&'static str, Vec<String>)> {
    let (&[format, tag, ..], block) = captured.split_first_chunk::<CAPTURE_HEADER_BYTES>()?;
    let tag = u64::from(tag);
    Some(match format {
        ctc::Ctc::NUMBER => ("ctc", parts::<ctc::Ctc>((block, tag), packet, |_| "hello".to_owned())),
        netiucv::Netiucv::NUMBER => ("netiucv", parts::<netiucv::Netiucv>((block, tag), packet, connect)),
        claw::Claw::NUMBER => ("claw", parts::<claw::Claw>((block, tag), packet, claw_control)),
        lcs::Lcs::NUMBER => ("lcs", parts::<lcs::Lcs>((block, tag), ethernet, lcs_control)),
        _ => return None,
    })
}

fn parts<F: Format>(
    (block, tag): (&[u8], u64),
    packet: impl Fn(&[u8]) -> String,
    message: impl Fn(&[u8]) -> String,
) -> Vec<String> {
    let (mut end, mut at, mut texts) = (0, 0, Vec::new());
    let bytes = |part: &Part| &block[part.at..part.at + part.len];
    while texts.len() < PARTS_MAX {
        let before = at;
        match F::next(block, tag, &mut end, &mut at) {
            Inside::Packet(part) => {
                texts.push(format!("packet at {}, {} bytes: {}", part.at, part.len, packet(bytes(&part))));
            }
            Inside::Message(part) => texts.push(message(bytes(&part))),
            Inside::End => break,
            Inside::Malformed => {
                texts.push(format!("malformed from byte {before} on"));
                break;
            }
        }
    }
    texts
}

/// Describes an IP packet.
fn packet(packet: &[u8]) -> String {
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= 20 => {
            let address = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
            format!("IPv4 from {} to {}, {}", address(12), address(16), protocol(packet[9]))
        }
        Some(6) if packet.len() >= 40 => {
            let address =
                |at: usize| packet[at..at + 16].first_chunk().map_or(Ipv6Addr::UNSPECIFIED, |of| (*of).into());
            format!("IPv6 from {} to {}, {}", address(8), address(24), protocol(packet[6]))
        }
        _ => "no IP packet".to_owned(),
    }
}

fn protocol(number: u8) -> String {
    match number {
        1 | 58 => "ICMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        other => format!("protocol {other}"),
    }
}

/// Describes an Ethernet frame.
fn ethernet(frame: &[u8]) -> String {
    let Some((header, inside)) = frame.split_first_chunk::<LINK_BYTES>() else { return "no Ethernet frame".to_owned() };
    let kind = u16::from_be_bytes([header[12], header[13]]);
    let mac = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
    let what = if matches!(kind, IPV4 | IPV6) { packet(inside) } else { format!("type {kind:04x}") };
    format!("{} to {}: {what}", mac(&header[6..12]), mac(&header[..6]))
}

fn connect(user_data: &[u8]) -> String {
    let hex: String = user_data.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("CONNECT, user data {hex}")
}

/// Describes a control frame of CLAW.
fn claw_control(frame: &[u8]) -> String {
    let Some((&[command, version, link, correlator, code, ..], data)) = frame.split_first_chunk::<8>() else {
        return "no control frame".to_owned();
    };
    let name = match command {
        claw::VALIDATE_REQUEST => "SYSTEM VALIDATE REQUEST",
        claw::VALIDATE_RESPONSE => "SYSTEM VALIDATE RESPONSE",
        claw::CONNECTION_REQUEST => "CONNECTION REQUEST",
        claw::CONNECTION_RESPONSE => "CONNECTION RESPONSE",
        claw::CONNECTION_CONFIRM => "CONNECTION CONFIRM",
        claw::DISCONNECT => "DISCONNECT",
        claw::ERROR => "ERROR",
        _ => "unknown command",
    };
    let mut text =
        format!("{name} ({command:02x}), version {version}, link {link}, correlator {correlator}, rc {code}");
    if command <= claw::VALIDATE_RESPONSE && data.len() >= 20 {
        let size = |at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
        let name = |bytes: &[u8]| bytes.trim_ascii_end().escape_ascii().to_string();
        let (adapter, host) = (name(&data[..8]), name(&data[8..16]));
        text += &format!(", adapter {adapter}, host {host}, read size {}, write size {}", size(16), size(18));
    }
    text
}

/// Describes a control frame of LCS.
fn lcs_control(body: &[u8]) -> String {
    let Some(&[command, initiator, a, b, c, d, lan_type, port]) = body.first_chunk::<8>() else {
        return "no control frame".to_owned();
    };
    let name = match command {
        lcs::STARTLAN => "STARTLAN",
        lcs::STOPLAN => "STOPLAN",
        lcs::LANSTAT => "LANSTAT",
        lcs::STARTUP => "STARTUP",
        lcs::SHUTDOWN => "SHUTDOWN",
        _ => "unknown command",
    };
    let by = if initiator == lcs::GATEWAY { "gateway" } else { "host" };
    let (sequence, code) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let text = format!("{name} ({command:02x}) of the {by}, sequence {sequence}, return code {code}");
    match command {
        lcs::STARTLAN | lcs::STOPLAN | lcs::LANSTAT => format!("{text}, LAN type {lan_type}, port {port}"),
        _ => text,
    }
}
