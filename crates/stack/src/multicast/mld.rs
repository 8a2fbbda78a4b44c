//! MLD (RFC 3810, RFC 2710), the listener's messages: queries and other stations' reports read, reports and dones written. When
//! they are due is in `group.rs`. Which groups a station needs for itself is here too.
//!
//! A message counts only with hop limit 1 and from an address of the link, a query only with a router alert. Ours come from such
//! an address, or from the unspecified one while the device has none (RFC 3590): switches listen to that, routers do not.

use crate::drops::{DropReason, GroupDrop, IpDrop};
use crate::limits::GROUP_QUERY_SOURCES_MAX;
use crate::link::device::DeviceConfig;
use crate::link::frame::DeviceId;
use crate::multicast::group::{ALL_ROUTERS, Announcement, Query, Record, Version, decoded, fits_query, lists};
use crate::stack::{Input, Stack};
use crate::tcp::Storage;
use crate::time::{Duration, Instant};
use crate::wire::checksum::Sum;
use crate::wire::ipv6::{Ipv6Build, has_router_alert, solicited_node};
use smoltcp::wire::IpProtocol;
use std::net::{IpAddr, Ipv6Addr};

pub(crate) const QUERY: u8 = 130;
pub(crate) const REPORT_1: u8 = 131;
const DONE: u8 = 132;
const REPORT_2: u8 = 143;
const ICMPV6: u8 = 58;
/// Routers that understand records (RFC 3810 5.2.14).
const ALL_REPORTS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// A hop-by-hop header with a router alert for MLD and padding (RFC 2711 2.1).
const ALERT: [u8; 8] = [ICMPV6, 0, 5, 2, 0, 0, 1, 0];
/// Bytes before a message, and those of its own before its records or sources.
const IP_BYTES: usize = 40 + ALERT.len();
const REPORT_2_BYTES: usize = 8;
const QUERY_1_BYTES: usize = 24;
const QUERY_2_BYTES: usize = 28;

/// The groups that a station with these addresses is in (RFC 4291 2.8), but for that of all nodes.
pub(crate) fn own_groups(config: &DeviceConfig, forwarding: bool) -> Vec<Ipv6Addr> {
    let mut groups = Vec::new();
    for own in &config.addresses {
        if let IpAddr::V6(own) = own.address() {
            groups.extend(forwarding.then_some(ALL_ROUTERS));
            groups.push(solicited_node(own));
        }
    }
    groups
}

impl<S: Storage> Stack<S> {
    /// A query or a report of version 1, its checksum verified.
    pub(crate) fn input_mld(&mut self, now: Instant, input: &Input<'_>, message: &[u8]) -> Result<(), DropReason> {
        let head: &[u8; QUERY_1_BYTES] = message.first_chunk().ok_or(GroupDrop::Length)?;
        if input.hop_limit != 1 {
            return Err(GroupDrop::HopLimit.into());
        }
        if !matches!(input.from, IpAddr::V6(from) if from.is_unicast_link_local()) {
            return Err(GroupDrop::Source.into());
        }
        if head[0] == QUERY {
            let query = parse_query(head, message)?;
            if !has_router_alert(input.packet) {
                return Err(GroupDrop::RouterAlert.into());
            }
            if !fits_query(input.to, query.group) {
                return Err(GroupDrop::Address.into());
            }
            self.groups.handle_query(now, input.device, &query);
            return Ok(());
        }
        let group = IpAddr::V6(group_of(head));
        if group != input.to || !group.is_multicast() {
            return Err(GroupDrop::Address.into());
        }
        let joined = self.groups.handle_report(now, input.device, group);
        if joined { Ok(()) } else { Err(GroupDrop::NotJoined.into()) }
    }

    /// Says something about groups on a device; what cannot be sent is counted.
    pub(crate) fn send_mld(&mut self, now: Instant, device: DeviceId, announcement: &Announcement) {
        let config = &self.devices[usize::from(device.0)].config;
        let link_locals = config.addresses.iter().filter_map(|own| match own.address() {
            IpAddr::V6(own) if own.is_unicast_link_local() => Some(own),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        });
        let from = link_locals.into_iter().next().unwrap_or(Ipv6Addr::UNSPECIFIED);
        for (to, message) in messages(announcement, usize::from(config.mtu) - IP_BYTES) {
            let payload = [&ALERT[..], &summed(from, to, message)].concat();
            let build = Ipv6Build { from, to, protocol: IpProtocol::HopByHop, hop_limit: 1 };
            let packet = build.packet(&payload).ok_or(DropReason::from(IpDrop::Length));
            if let Err(reason) = packet.and_then(|packet| self.send_packet(now, packet, Some(device))) {
                self.drops.count(reason);
            }
        }
    }
}

/// Messages of at most so many bytes, each with its destination, their checksums not filled in.
fn messages(announcement: &Announcement, bytes_max: usize) -> Vec<(Ipv6Addr, Vec<u8>)> {
    let of_one = |kind, group: IpAddr| match group {
        IpAddr::V6(group) => {
            let to = if kind == DONE { ALL_ROUTERS } else { group };
            vec![(to, [&[kind, 0, 0, 0, 0, 0, 0, 0], &group.octets()[..]].concat())]
        }
        IpAddr::V4(_) => Vec::new(),
    };
    match *announcement {
        Announcement::Records(ref records) => {
            let lists = lists(records, bytes_max - REPORT_2_BYTES, record_bytes);
            lists.into_iter().map(|records| (ALL_REPORTS, report(records))).collect()
        }
        Announcement::Report(_, group) => of_one(REPORT_1, group),
        Announcement::Leave(group) => of_one(DONE, group),
    }
}

fn record_bytes(record: &Record) -> usize {
    20 + 16 * record.sources.len()
}

fn report(records: &[Record]) -> Vec<u8> {
    let count = |count: usize| u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes();
    let mut message = [&[REPORT_2, 0, 0, 0, 0, 0], &count(records.len())[..]].concat();
    for record in records {
        message.extend_from_slice(&[record.kind as u8, 0]);
        message.extend_from_slice(&count(record.sources.len()));
        for address in std::iter::once(&record.group).chain(&record.sources) {
            let IpAddr::V6(address) = address else { continue };
            message.extend_from_slice(&address.octets());
        }
    }
    message
}

fn summed(from: Ipv6Addr, to: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    let sum = Sum::default().pseudo_header(from.into(), to.into(), ICMPV6, message.len()).bytes(&message);
    message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    message
}

fn address_at(octets: &[u8]) -> Ipv6Addr {
    Ipv6Addr::from(octets.first_chunk::<16>().copied().unwrap_or_default())
}

fn group_of(head: &[u8; QUERY_1_BYTES]) -> Ipv6Addr {
    address_at(&head[8..])
}

/// A query; its length tells the version (RFC 3810 8.1).
fn parse_query(head: &[u8; QUERY_1_BYTES], message: &[u8]) -> Result<Query, GroupDrop> {
    let (code, group) = (u16::from_be_bytes([head[4], head[5]]), group_of(head));
    let group = Some(group).filter(|group| !group.is_unspecified()).map(IpAddr::V6);
    if group.is_some_and(|group| !group.is_multicast()) {
        return Err(GroupDrop::Address);
    }
    if message.len() == QUERY_1_BYTES {
        let delay_max = Duration::from_millis(code.into());
        let (robustness, interval) = (None, None);
        return Ok(Query { version: Version::Mld1, group, sources: Vec::new(), delay_max, robustness, interval });
    }
    let head: &[u8; QUERY_2_BYTES] = message.first_chunk().ok_or(GroupDrop::Length)?;
    let count = usize::from(u16::from_be_bytes([head[26], head[27]]));
    let sources = message.get(QUERY_2_BYTES..QUERY_2_BYTES + 16 * count).ok_or(GroupDrop::Length)?;
    if count > 0 && group.is_none() {
        return Err(GroupDrop::Address);
    }
    // Of more sources than are kept the answer is for all of them.
    let sources = if count > GROUP_QUERY_SOURCES_MAX { &[][..] } else { sources };
    let interval = Some(head[25]).filter(|code| *code > 0);
    Ok(Query {
        version: Version::Mld2,
        group,
        sources: sources.chunks_exact(16).map(|octets| address_at(octets).into()).collect(),
        delay_max: Duration::from_millis(decoded(code, 12).into()),
        robustness: Some(head[24] & 7).filter(|robustness| *robustness > 0),
        interval: interval.map(|code| Duration::from_secs(decoded(code.into(), 4).into())),
    })
}
