//! MLD messages that a host receives and sends (RFC 3810, RFC 2710).

use super::address::ALL_ROUTERS;
use super::checksum::Sum;
use super::icmp::v6::{MLD_DONE, MLD_QUERY, MLD_REPORT_1, MLD_REPORT_2};
use super::membership::{self, Message, Outgoing, Query, Record, Version, decoded, group_of};
use super::protocol::ICMPV6;
use crate::drops::GroupDrop;
use crate::time::Duration;
use smoltcp::wire::IPV6_HEADER_LEN;
use std::net::Ipv6Addr;

/// The multicast group of the routers that support MLDv2 (RFC 3810 5.2.14).
const ALL_REPORTS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// A hop-by-hop options header that contains a router alert for MLD, and padding (RFC 2711 2.1).
const ALERT: [u8; 8] = [ICMPV6, 0, 5, 2, 0, 0, 1, 0];
/// Length in bytes of all headers before the MLD message: the IPv6 header and the hop-by-hop options header.
pub(crate) const IP_BYTES: usize = IPV6_HEADER_LEN + ALERT.len();
/// Length in bytes of a message of version 1. A query of version 2 has its further fields after these bytes.
const HEADER_BYTES: usize = field::GROUP.end;

/// Offsets of the fields of a message.
mod field {
    use std::ops::Range;

    pub(super) const KIND: usize = 0;
    pub(super) const CHECKSUM: Range<usize> = 2..4;
    /// The maximum response delay, as a code.
    pub(super) const DELAY: Range<usize> = 4..6;
    pub(super) const GROUP: Range<usize> = 8..24;
}

pub(crate) fn verify(message: &[u8]) -> Result<(), GroupDrop> {
    if message.len() < HEADER_BYTES { Err(GroupDrop::Length) } else { Ok(()) }
}

/// Parses a query or an MLDv1 report that [`verify`] accepted. The caller has also verified the checksum.
pub(crate) fn parse(message: &[u8]) -> Result<Message, GroupDrop> {
    let octets: [u8; 16] = message[field::GROUP].try_into().map_err(|_| GroupDrop::Length)?;
    let group = Ipv6Addr::from(octets);
    if message[field::KIND] == MLD_QUERY {
        parse_query(group, message).map(Message::Query)
    } else {
        Ok(Message::Report(group.into()))
    }
}

/// Parses a query. Its version follows from its length (RFC 3810 8.1).
fn parse_query(group: Ipv6Addr, message: &[u8]) -> Result<Query, GroupDrop> {
    let (group, code) = (group_of(group.into())?, super::u16_at(message, field::DELAY).ok_or(GroupDrop::Length)?);
    if message.len() == HEADER_BYTES {
        return Ok(Query::older(Version::Mld1, group, Duration::from_millis(code.into())));
    }
    let delay_max = Duration::from_millis(decoded(code, 12).into());
    Query::newest::<16>(Version::Mld2, group, delay_max, &message[HEADER_BYTES..])
}

/// Builds reports from a list of group records. Each report has at most `bytes_max` bytes.
pub(crate) fn reports(records: &[Record], bytes_max: usize) -> Vec<Outgoing> {
    membership::reports(MLD_REPORT_2, ALL_REPORTS.into(), records, bytes_max)
}

/// Builds an MLDv1 report of one group.
pub(crate) fn report_of(group: Ipv6Addr) -> Outgoing {
    of_one(MLD_REPORT_1, group, group)
}

/// Builds an MLDv1 “done” message, which says that this host left the group.
pub(crate) fn leave_of(group: Ipv6Addr) -> Outgoing {
    of_one(MLD_DONE, group, ALL_ROUTERS)
}

fn of_one(kind: u8, group: Ipv6Addr, to: Ipv6Addr) -> Outgoing {
    Outgoing { to: to.into(), message: [&[kind, 0, 0, 0, 0, 0, 0, 0], &group.octets()[..]].concat() }
}

/// Builds the payload of the IPv6 packet: the hop-by-hop options header with the router alert, then the message with its checksum.
pub(crate) fn payload(from: Ipv6Addr, to: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    let sum = Sum::default().pseudo_header(from.into(), to.into(), ICMPV6, message.len()).bytes(&message);
    message[field::CHECKSUM].copy_from_slice(&sum.checksum().to_be_bytes());
    [&ALERT[..], &message].concat()
}
