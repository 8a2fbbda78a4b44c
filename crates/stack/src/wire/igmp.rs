//! IGMP messages that a host receives and sends (RFC 3376, RFC 2236, RFC 1112 appendix I).

use super::checksum::Sum;
use super::membership::{self, Message, Outgoing, Query, Record, Version, decoded, group_of};
use crate::drops::GroupDrop;
use crate::time::Duration;
use std::net::Ipv4Addr;

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
/// Length in bytes of a message of version 1 or 2. A query of version 3 has its further fields after these bytes.
const HEADER_BYTES: usize = 8;
/// The unit of times in IGMPv2 and IGMPv3 queries: a tenth of a second.
const TICK: Duration = Duration::from_millis(100);
/// The maximum response time for IGMPv1 queries, which have no field for it (RFC 2236 4).
const DELAY_1: Duration = Duration::from_secs(10);

/// Offsets of the fields of a message.
mod field {
    use std::ops::Range;

    pub(super) const KIND: usize = 0;
    pub(super) const CODE: usize = 1;
    pub(super) const CHECKSUM: Range<usize> = 2..4;
    pub(super) const GROUP: Range<usize> = 4..8;
}

/// Verifies the length and the checksum of a message.
pub(crate) fn verify(message: &[u8]) -> Result<(), GroupDrop> {
    if message.len() < HEADER_BYTES {
        return Err(GroupDrop::Length);
    }
    if Sum::default().bytes(message).is_intact() { Ok(()) } else { Err(GroupDrop::Checksum) }
}

/// Parses a message that [`verify`] accepted.
pub(crate) fn parse(message: &[u8]) -> Result<Message, GroupDrop> {
    let group = Ipv4Addr::from_bits(super::u32_at(message, field::GROUP).ok_or(GroupDrop::Length)?);
    match message[field::KIND] {
        QUERY => parse_query(group, message).map(Message::Query),
        REPORT_1 | REPORT_2 => Ok(Message::Report(group.into())),
        _ => Err(GroupDrop::Ignored),
    }
}

/// Parses a query. Its version follows from its length and its code field (RFC 3376 7.1).
fn parse_query(group: Ipv4Addr, message: &[u8]) -> Result<Query, GroupDrop> {
    let (group, code) = (group_of(group.into())?, message[field::CODE]);
    match (message.len(), code) {
        (HEADER_BYTES, 0) => Ok(Query::older(Version::Igmp1, None, DELAY_1)),
        (HEADER_BYTES, code) => Ok(Query::older(Version::Igmp2, group, TICK * u32::from(code))),
        (_, code) => {
            Query::newest::<4>(Version::Igmp3, group, TICK * decoded(code.into(), 4), &message[HEADER_BYTES..])
        }
    }
}

/// Builds reports from a list of group records. Each report has at most `bytes_max` bytes.
pub(crate) fn reports(records: &[Record], bytes_max: usize) -> Vec<Outgoing> {
    membership::reports(REPORT_3, ALL_REPORTS.into(), records, bytes_max)
}

pub(crate) fn report_of(version: Version, group: Ipv4Addr) -> Outgoing {
    of_one(if version == Version::Igmp1 { REPORT_1 } else { REPORT_2 }, group, group)
}

/// Builds an IGMPv2 leave message for a group.
pub(crate) fn leave_of(group: Ipv4Addr) -> Outgoing {
    of_one(LEAVE, group, ALL_ROUTERS)
}

fn of_one(kind: u8, group: Ipv4Addr, to: Ipv4Addr) -> Outgoing {
    Outgoing { to: to.into(), message: [&[kind, 0, 0, 0], &group.octets()[..]].concat() }
}

pub(crate) fn with_checksum(mut message: Vec<u8>) -> Vec<u8> {
    let checksum = Sum::default().bytes(&message).checksum();
    message[field::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    message
}
