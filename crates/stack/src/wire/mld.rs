//! MLD messages that a host receives and sends (RFC 3810, RFC 2710).

use super::address::ALL_ROUTERS;
use super::checksum::Sum;
use super::icmp::v6::{MLD_DONE, MLD_QUERY, MLD_REPORT_1, MLD_REPORT_2};
use super::membership::{Query, Record, Version, decoded, lists, querier, report};
use super::protocol::ICMPV6;
use crate::drops::GroupDrop;
use crate::limits::GROUP_QUERY_SOURCES_MAX;
use crate::time::Duration;
use smoltcp::wire::IPV6_HEADER_LEN;
use std::net::{IpAddr, Ipv6Addr};

/// The multicast group of the routers that support MLDv2 (RFC 3810 5.2.14).
const ALL_REPORTS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// A hop-by-hop options header with a router alert for MLD and padding (RFC 2711 2.1).
const ALERT: [u8; 8] = [ICMPV6, 0, 5, 2, 0, 0, 1, 0];
/// Length in bytes of the IPv6 header and the hop-by-hop options header before a message.
pub(crate) const IP_BYTES: usize = IPV6_HEADER_LEN + ALERT.len();
/// Offset of the maximum response code in a query.
const DELAY_AT: usize = 4;
/// Offset of the group address in a message.
const GROUP_AT: usize = 8;
const ADDRESS_BYTES: usize = 16;
const QUERY_1_BYTES: usize = GROUP_AT + ADDRESS_BYTES;
const QUERY_2_BYTES: usize = QUERY_1_BYTES + 4;
const REPORT_2_BYTES: usize = 8;

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    Query(Query),
    /// Another host's report of one group.
    Report(Ipv6Addr),
}

/// Checks the length of a message.
pub(crate) fn verify(message: &[u8]) -> Result<(), GroupDrop> {
    if message.len() < QUERY_1_BYTES { Err(GroupDrop::Length) } else { Ok(()) }
}

impl Message {
    /// Parses a query, or a report of MLDv1. The caller has checked length and checksum.
    pub(crate) fn parse(message: &[u8]) -> Result<Self, GroupDrop> {
        let octets = message.get(GROUP_AT..).and_then(<[u8]>::first_chunk::<ADDRESS_BYTES>).ok_or(GroupDrop::Length)?;
        let group = Ipv6Addr::from(*octets);
        if message[0] == MLD_QUERY { parse_query(group, message).map(Self::Query) } else { Ok(Self::Report(group)) }
    }
}

/// Parses a query. The query's length shows the MLD version (RFC 3810 8.1).
fn parse_query(group: Ipv6Addr, message: &[u8]) -> Result<Query, GroupDrop> {
    let code = message.get(DELAY_AT..).and_then(<[u8]>::first_chunk).ok_or(GroupDrop::Length)?;
    let code = u16::from_be_bytes(*code);
    let group = Some(group).filter(|group| !group.is_unspecified()).map(IpAddr::V6);
    if group.is_some_and(|group| !group.is_multicast()) {
        return Err(GroupDrop::Address);
    }
    if message.len() == QUERY_1_BYTES {
        let delay_max = Duration::from_millis(code.into());
        let (robustness, interval) = (None, None);
        return Ok(Query { version: Version::Mld1, group, sources: Vec::new(), delay_max, robustness, interval });
    }
    let &[flags, interval, high, low] =
        message.get(QUERY_1_BYTES..).and_then(<[u8]>::first_chunk).ok_or(GroupDrop::Length)?;
    let count = usize::from(u16::from_be_bytes([high, low]));
    let sources = message.get(QUERY_2_BYTES..QUERY_2_BYTES + ADDRESS_BYTES * count).ok_or(GroupDrop::Length)?;
    if count > 0 && group.is_none() {
        return Err(GroupDrop::Address);
    }
    // If the query names more sources than the stack can store, the answer covers all sources.
    let sources = if count > GROUP_QUERY_SOURCES_MAX { &[][..] } else { sources };
    let (robustness, interval) = querier(flags, interval);
    Ok(Query {
        version: Version::Mld2,
        group,
        sources: sources.as_chunks::<ADDRESS_BYTES>().0.iter().map(|octets| IpAddr::from(*octets)).collect(),
        delay_max: Duration::from_millis(decoded(code, 12).into()),
        robustness,
        interval,
    })
}

/// A message to send, with its destination address. The checksum field is still 0.
pub(crate) type Outgoing = (Ipv6Addr, Vec<u8>);

/// Builds reports for a list of records. Each report has at most `bytes_max` bytes.
pub(crate) fn reports(records: &[Record], bytes_max: usize) -> Vec<Outgoing> {
    let record_bytes = |record: &Record| 4 + ADDRESS_BYTES * (1 + record.sources.len());
    let lists = lists(records, bytes_max - REPORT_2_BYTES, record_bytes);
    lists.into_iter().map(|records| (ALL_REPORTS, report(MLD_REPORT_2, records))).collect()
}

/// Builds an MLDv1 report of one group.
pub(crate) fn report_of(group: Ipv6Addr) -> Outgoing {
    (group, of_one(MLD_REPORT_1, group))
}

/// Builds an MLDv1 done message, which says that the host left the group.
pub(crate) fn leave_of(group: Ipv6Addr) -> Outgoing {
    (ALL_ROUTERS, of_one(MLD_DONE, group))
}

fn of_one(kind: u8, group: Ipv6Addr) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0], &group.octets()[..]].concat()
}

/// Builds the payload of an IPv6 packet: the router alert and the message. Fills in the message's checksum.
pub(crate) fn payload(from: Ipv6Addr, to: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    let sum = Sum::default().pseudo_header(from.into(), to.into(), ICMPV6, message.len()).bytes(&message);
    message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    [&ALERT[..], &message].concat()
}
