//! IGMP (RFC 3376, RFC 2236, RFC 1112 appendix I), the host's messages: queries and other stations' reports read, reports and
//! leaves written. When they are due is in `group.rs`.
//!
//! A message counts only with hop limit 1, a query of version 2 or 3 only with a router alert (RFC 3376 9.1).

use crate::drops::{DropReason, GroupDrop, IpDrop};
use crate::limits::GROUP_QUERY_SOURCES_MAX;
use crate::link::frame::DeviceId;
use crate::multicast::group::{Announcement, Query, Record, Version, decoded, fits_query, lists};
use crate::stack::{Input, Stack};
use crate::tcp::Storage;
use crate::time::{Duration, Instant};
use crate::wire::checksum::Sum;
use crate::wire::ipv4::{Ipv4Build, has_router_alert};
use smoltcp::wire::IpProtocol;
use std::net::{IpAddr, Ipv4Addr};

const QUERY: u8 = 0x11;
const REPORT_1: u8 = 0x12;
const REPORT_2: u8 = 0x16;
const LEAVE: u8 = 0x17;
const REPORT_3: u8 = 0x22;
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// Routers that understand records (RFC 3376 4.2.14).
const ALL_REPORTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// Bytes of an IPv4 header with a router alert.
const IP_BYTES: usize = 24;
/// Bytes of a message before its records or sources end: type, code, checksum, and what each kind has there.
const MESSAGE_BYTES: usize = 8;
const QUERY_3_BYTES: usize = 12;
/// A tenth of a second, the unit of times in queries.
const TICK: Duration = Duration::from_millis(100);
/// A querier of version 1 says no time (RFC 2236 4).
const DELAY_1: Duration = Duration::from_secs(10);

impl<S: Storage> Stack<S> {
    pub(crate) fn input_igmp(&mut self, now: Instant, input: &Input<'_>) -> Result<(), DropReason> {
        let message = input.transport();
        let head: &[u8; MESSAGE_BYTES] = message.first_chunk().ok_or(GroupDrop::Length)?;
        if !Sum::default().bytes(message).is_intact() {
            return Err(GroupDrop::Checksum.into());
        }
        if input.hop_limit != 1 {
            return Err(GroupDrop::HopLimit.into());
        }
        match head[0] {
            QUERY => {
                let query = parse_query(head, message)?;
                if query.version != Version::Igmp1 && !has_router_alert(&input.packet[..input.at]) {
                    return Err(GroupDrop::RouterAlert.into());
                }
                if !fits_query(input.to, query.group) {
                    return Err(GroupDrop::Address.into());
                }
                self.groups.handle_query(now, input.device, &query);
                Ok(())
            }
            REPORT_1 | REPORT_2 => {
                let group = IpAddr::V4(group_of(head));
                if group != input.to || !group.is_multicast() {
                    return Err(GroupDrop::Address.into());
                }
                let joined = self.groups.handle_report(now, input.device, group);
                if joined { Ok(()) } else { Err(GroupDrop::NotJoined.into()) }
            }
            _ => Err(GroupDrop::Ignored.into()),
        }
    }

    /// Says something about groups on a device; what cannot be sent is counted.
    pub(crate) fn send_igmp(&mut self, now: Instant, device: DeviceId, announcement: &Announcement) {
        let mtu = usize::from(self.devices[usize::from(device.0)].config.mtu);
        for (to, message) in messages(announcement, mtu - IP_BYTES) {
            if let Err(reason) = self.send_igmp_message(now, device, to, &message) {
                self.drops.count(reason);
            }
        }
    }

    fn send_igmp_message(
        &mut self,
        now: Instant,
        device: DeviceId,
        to: Ipv4Addr,
        message: &[u8],
    ) -> Result<(), DropReason> {
        let from = self.devices[usize::from(device.0)].address_for(to.into());
        let Some(IpAddr::V4(from)) = from else { return Err(IpDrop::NoRoute.into()) };
        let ident = self.ident(to.into());
        // RFC 3376 4: hop limit 1 and the precedence of network control.
        let build = Ipv4Build { from, to, protocol: IpProtocol::Igmp, ttl: 1, service: 0xc0, ident };
        self.send_packet(now, build.packet_with_router_alert(message).ok_or(IpDrop::Length)?, Some(device))
    }
}

/// Messages of at most so many bytes, each with its destination.
fn messages(announcement: &Announcement, bytes_max: usize) -> Vec<(Ipv4Addr, Vec<u8>)> {
    let of_one = |kind, group: IpAddr| match group {
        IpAddr::V4(group) => {
            let to = if kind == LEAVE { ALL_ROUTERS } else { group };
            vec![(to, summed([&[kind, 0, 0, 0], &group.octets()[..]].concat()))]
        }
        IpAddr::V6(_) => Vec::new(),
    };
    match *announcement {
        Announcement::Records(ref records) => {
            let lists = lists(records, bytes_max - MESSAGE_BYTES, record_bytes);
            lists.into_iter().map(|records| (ALL_REPORTS, summed(report(records)))).collect()
        }
        Announcement::Report(version, group) => {
            of_one(if version == Version::Igmp1 { REPORT_1 } else { REPORT_2 }, group)
        }
        Announcement::Leave(group) => of_one(LEAVE, group),
    }
}

fn record_bytes(record: &Record) -> usize {
    8 + 4 * record.sources.len()
}

fn report(records: &[Record]) -> Vec<u8> {
    let count = |count: usize| u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes();
    let mut message = [&[REPORT_3, 0, 0, 0, 0, 0], &count(records.len())[..]].concat();
    for record in records {
        message.extend_from_slice(&[record.kind as u8, 0]);
        message.extend_from_slice(&count(record.sources.len()));
        for address in std::iter::once(&record.group).chain(&record.sources) {
            let IpAddr::V4(address) = address else { continue };
            message.extend_from_slice(&address.octets());
        }
    }
    message
}

fn summed(mut message: Vec<u8>) -> Vec<u8> {
    let checksum = Sum::default().bytes(&message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

fn group_of(head: &[u8; MESSAGE_BYTES]) -> Ipv4Addr {
    Ipv4Addr::new(head[4], head[5], head[6], head[7])
}

/// A query; its length and its code tell the version (RFC 3376 7.1).
fn parse_query(head: &[u8; MESSAGE_BYTES], message: &[u8]) -> Result<Query, GroupDrop> {
    let (code, group) = (head[1], group_of(head));
    let group = Some(group).filter(|group| !group.is_unspecified()).map(IpAddr::V4);
    if group.is_some_and(|group| !group.is_multicast()) {
        return Err(GroupDrop::Address);
    }
    let old = |version, group, delay_max| {
        let (robustness, interval) = (None, None);
        Ok(Query { version, group, sources: Vec::new(), delay_max, robustness, interval })
    };
    match (message.len(), code) {
        (MESSAGE_BYTES, 0) => return old(Version::Igmp1, None, DELAY_1),
        (MESSAGE_BYTES, _) => return old(Version::Igmp2, group, TICK * u32::from(code)),
        _ => {}
    }
    let head: &[u8; QUERY_3_BYTES] = message.first_chunk().ok_or(GroupDrop::Length)?;
    let count = usize::from(u16::from_be_bytes([head[10], head[11]]));
    let sources = message.get(QUERY_3_BYTES..QUERY_3_BYTES + 4 * count).ok_or(GroupDrop::Length)?;
    if count > 0 && group.is_none() {
        return Err(GroupDrop::Address);
    }
    // Of more sources than are kept the answer is for all of them.
    let sources = if count > GROUP_QUERY_SOURCES_MAX { &[][..] } else { sources };
    Ok(Query {
        version: Version::Igmp3,
        group,
        sources: sources.chunks_exact(4).map(|a| Ipv4Addr::new(a[0], a[1], a[2], a[3]).into()).collect(),
        delay_max: TICK * decoded(code.into(), 4),
        robustness: Some(head[8] & 7).filter(|robustness| *robustness > 0),
        interval: Some(head[9])
            .filter(|code| *code > 0)
            .map(|code| Duration::from_secs(decoded(code.into(), 4).into())),
    })
}
