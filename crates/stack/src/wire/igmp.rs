//! IGMP messages that a host receives and sends (RFC 3376, RFC 2236, RFC 1112 appendix I).

use super::checksum::Sum;
use super::membership::{Query, Record, Version, decoded, lists, querier, report};
use crate::drops::GroupDrop;
use crate::limits::GROUP_QUERY_SOURCES_MAX;
use crate::time::Duration;
use std::net::{IpAddr, Ipv4Addr};

const QUERY: u8 = 0x11;
const REPORT_1: u8 = 0x12;
const REPORT_2: u8 = 0x16;
const LEAVE: u8 = 0x17;
const REPORT_3: u8 = 0x22;
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// The multicast group of the routers that support IGMPv3 (RFC 3376 4.2.14).
const ALL_REPORTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// Length in bytes of an IPv4 header with a router alert option.
pub(crate) const IP_BYTES: usize = 24;
/// Length in bytes of the part of a message before its records or sources.
const HEADER_BYTES: usize = 8;
const QUERY_3_BYTES: usize = 12;
const ADDRESS_BYTES: usize = 4;
/// The unit of times in queries: a tenth of a second.
const TICK: Duration = Duration::from_millis(100);
/// The maximum response time of IGMPv1 queries, which contain no time (RFC 2236 4).
const DELAY_1: Duration = Duration::from_secs(10);

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    Query(Query),
    /// Another host's report of one group.
    Report(Ipv4Addr),
}

/// The fields of a message's first eight bytes, without the checksum.
struct Header {
    kind: u8,
    code: u8,
    group: Ipv4Addr,
}

/// Checks the length and the checksum of a message.
pub(crate) fn verify(message: &[u8]) -> Result<(), GroupDrop> {
    if message.len() < HEADER_BYTES {
        return Err(GroupDrop::Length);
    }
    if Sum::default().bytes(message).is_intact() { Ok(()) } else { Err(GroupDrop::Checksum) }
}

impl Message {
    /// Parses a message that [`verify`] has checked.
    pub(crate) fn parse(message: &[u8]) -> Result<Self, GroupDrop> {
        let &[kind, code, _, _, a, b, c, d] = message.first_chunk::<HEADER_BYTES>().ok_or(GroupDrop::Length)?;
        let header = Header { kind, code, group: Ipv4Addr::new(a, b, c, d) };
        match header.kind {
            QUERY => parse_query(&header, message).map(Self::Query),
            REPORT_1 | REPORT_2 => Ok(Self::Report(header.group)),
            _ => Err(GroupDrop::Ignored),
        }
    }
}

/// Parses a query. The query's length and code show the IGMP version (RFC 3376 7.1).
fn parse_query(header: &Header, message: &[u8]) -> Result<Query, GroupDrop> {
    let group = Some(header.group).filter(|group| !group.is_unspecified()).map(IpAddr::V4);
    if group.is_some_and(|group| !group.is_multicast()) {
        return Err(GroupDrop::Address);
    }
    let old = |version, group, delay_max| {
        let (robustness, interval) = (None, None);
        Ok(Query { version, group, sources: Vec::new(), delay_max, robustness, interval })
    };
    match (message.len(), header.code) {
        (HEADER_BYTES, 0) => return old(Version::Igmp1, None, DELAY_1),
        (HEADER_BYTES, code) => return old(Version::Igmp2, group, TICK * u32::from(code)),
        _ => {}
    }
    let &[flags, interval, high, low] =
        message.get(HEADER_BYTES..).and_then(<[u8]>::first_chunk).ok_or(GroupDrop::Length)?;
    let count = usize::from(u16::from_be_bytes([high, low]));
    let sources = message.get(QUERY_3_BYTES..QUERY_3_BYTES + ADDRESS_BYTES * count).ok_or(GroupDrop::Length)?;
    if count > 0 && group.is_none() {
        return Err(GroupDrop::Address);
    }
    // If the query names more sources than the stack can store, the answer covers all sources.
    let sources = if count > GROUP_QUERY_SOURCES_MAX { &[][..] } else { sources };
    let (robustness, interval) = querier(flags, interval);
    Ok(Query {
        version: Version::Igmp3,
        group,
        sources: sources.as_chunks::<ADDRESS_BYTES>().0.iter().map(|octets| IpAddr::from(*octets)).collect(),
        delay_max: TICK * decoded(header.code.into(), 4),
        robustness,
        interval,
    })
}

/// A message to send, with its destination address.
pub(crate) type Outgoing = (Ipv4Addr, Vec<u8>);

/// Builds reports for a list of records. Each report has at most `bytes_max` bytes.
pub(crate) fn reports(records: &[Record], bytes_max: usize) -> Vec<Outgoing> {
    let record_bytes = |record: &Record| 8 + ADDRESS_BYTES * record.sources.len();
    let lists = lists(records, bytes_max - HEADER_BYTES, record_bytes);
    lists.into_iter().map(|records| (ALL_REPORTS, with_checksum(report(REPORT_3, records)))).collect()
}

/// Builds a report of one group, in IGMP version 1 or 2.
pub(crate) fn report_of(version: Version, group: Ipv4Addr) -> Outgoing {
    (group, of_one(if version == Version::Igmp1 { REPORT_1 } else { REPORT_2 }, group))
}

/// Builds an IGMPv2 leave message for a group.
pub(crate) fn leave_of(group: Ipv4Addr) -> Outgoing {
    (ALL_ROUTERS, of_one(LEAVE, group))
}

fn of_one(kind: u8, group: Ipv4Addr) -> Vec<u8> {
    with_checksum([&[kind, 0, 0, 0], &group.octets()[..]].concat())
}

fn with_checksum(mut message: Vec<u8>) -> Vec<u8> {
    let checksum = Sum::default().bytes(&message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}
