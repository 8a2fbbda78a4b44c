//! What IGMP and MLD have in common: versions, queries, group records, and the floating-point form of times.

use crate::time::Duration;
use std::net::IpAddr;

/// The protocol version on a link: the newest, or the oldest that a querier on the link speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Igmp1,
    Igmp2,
    Igmp3,
    Mld1,
    Mld2,
}

impl Version {
    /// True if a report is a list of records for routers only; otherwise it names one group, and other members receive it.
    pub(crate) fn lists_records(self) -> bool {
        match self {
            Self::Igmp3 | Self::Mld2 => true,
            Self::Igmp1 | Self::Igmp2 | Self::Mld1 => false,
        }
    }
}

/// What a record says about its group (RFC 3376 4.2.12, RFC 3810 5.2.12); the values are those on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// Answers a query: these sources are wanted.
    ModeIsInclude = 1,
    /// Answers a query: all sources are wanted.
    ModeIsExclude = 2,
    /// The group was left.
    ChangeToInclude = 3,
    /// The group was joined.
    ChangeToExclude = 4,
}

/// A group record of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: RecordKind,
    pub(crate) group: IpAddr,
    pub(crate) sources: Vec<IpAddr>,
}

/// A query whose format is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) version: Version,
    /// The group in question; `None`: every group.
    pub(crate) group: Option<IpAddr>,
    /// The sources in question; empty: every source.
    pub(crate) sources: Vec<IpAddr>,
    /// The longest time until the answer.
    pub(crate) delay_max: Duration,
    /// The querier's robustness, if the query names it.
    pub(crate) robustness: Option<u8>,
    /// The querier's interval, if the query names it.
    pub(crate) interval: Option<Duration>,
}

/// The report of a list of records: the type and the count, then each record with its addresses (RFC 3376 4.2, RFC 3810 5.2). The
/// checksum is still to be filled in.
pub(crate) fn report(kind: u8, records: &[Record]) -> Vec<u8> {
    let count = |count: usize| u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes();
    let mut message = [&[kind, 0, 0, 0, 0, 0], &count(records.len())[..]].concat();
    for record in records {
        message.extend_from_slice(&[record.kind as u8, 0]);
        message.extend_from_slice(&count(record.sources.len()));
        for address in std::iter::once(&record.group).chain(&record.sources) {
            match address {
                IpAddr::V4(address) => message.extend_from_slice(&address.octets()),
                IpAddr::V6(address) => message.extend_from_slice(&address.octets()),
            }
        }
    }
    message
}

/// Splits records into lists of at most `room` bytes, each with at least one record.
pub(crate) fn lists(records: &[Record], room: usize, bytes: impl Fn(&Record) -> usize) -> Vec<&[Record]> {
    let mut lists = Vec::new();
    let (mut begin, mut used) = (0, 0);
    for (n, record) in records.iter().enumerate() {
        if used + bytes(record) > room && n > begin {
            lists.push(&records[begin..n]);
            (begin, used) = (n, 0);
        }
        used += bytes(record);
    }
    lists.push(&records[begin..]);
    lists
}

/// Decodes a code of one or two octets (RFC 3376 4.1.1, RFC 3810 5.1.3): below half its range it is a number, above it a mantissa
/// of `bits` bits with an exponent.
pub(crate) fn decoded(code: u16, bits: u32) -> u32 {
    let code = u32::from(code);
    let linear_end = 1 << (bits + 3);
    if code < linear_end {
        return code;
    }
    let mantissa = code & ((1 << bits) - 1) | 1 << bits;
    mantissa << (((code >> bits) & 7) + 3)
}

/// The robustness and the interval that a query of the newest version names; 0 stands for none.
pub(crate) fn querier(flags: u8, interval: u8) -> (Option<u8>, Option<Duration>) {
    let robustness = Some(flags & 7).filter(|robustness| *robustness > 0);
    let interval = Some(interval).filter(|code| *code > 0);
    (robustness, interval.map(|code| Duration::from_secs(decoded(code.into(), 4).into())))
}
