//! What IGMP and MLD have in common: versions, queries, group records, and the floating-point coding of times.

use crate::time::Duration;
use std::net::IpAddr;

/// The protocol version used on a link: the newest version, or an older one while a querier of the older version is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Igmp1,
    Igmp2,
    Igmp3,
    Mld1,
    Mld2,
}

impl Version {
    /// True if a report of this version is a list of records for routers only. In older versions, a report names one group, and
    /// the other members of the group receive it too.
    pub(crate) fn lists_records(self) -> bool {
        match self {
            Self::Igmp3 | Self::Mld2 => true,
            Self::Igmp1 | Self::Igmp2 | Self::Mld1 => false,
        }
    }
}

/// The type of a group record (RFC 3376 4.2.12, RFC 3810 5.2.12). The discriminants are the values on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// Answer to a query about sources: the host wants the sources in this record.
    ModeIsInclude = 1,
    /// Answer to a query: the host wants all sources.
    ModeIsExclude = 2,
    /// The host left the group.
    ChangeToInclude = 3,
    /// The host joined the group.
    ChangeToExclude = 4,
}

/// A group record of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: RecordKind,
    pub(crate) group: IpAddr,
    pub(crate) sources: Vec<IpAddr>,
}

/// A query with a valid format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) version: Version,
    /// The group that the query is about; `None` for all groups.
    pub(crate) group: Option<IpAddr>,
    /// The sources that the query is about; empty for all sources.
    pub(crate) sources: Vec<IpAddr>,
    /// The maximum delay until the answer.
    pub(crate) delay_max: Duration,
    /// The querier's robustness variable, if the query contains it.
    pub(crate) robustness: Option<u8>,
    /// The querier's query interval, if the query contains it.
    pub(crate) interval: Option<Duration>,
}

/// Builds a report with a list of records (RFC 3376 4.2, RFC 3810 5.2): the type and the count, then each record with its source
/// addresses. The checksum field is left 0.
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

/// Splits records into lists of at most `room` bytes. Each list has at least one record, even if the record is longer than
/// `room`.
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

/// Decodes a code of one or two octets (RFC 3376 4.1.1, RFC 3810 5.1.3). A code in the lower half of its range is a plain number.
/// A code in the upper half has an exponent and a mantissa of `bits` bits.
pub(crate) fn decoded(code: u16, bits: u32) -> u32 {
    let code = u32::from(code);
    let linear_end = 1 << (bits + 3);
    if code < linear_end {
        return code;
    }
    let mantissa = code & ((1 << bits) - 1) | 1 << bits;
    mantissa << (((code >> bits) & 7) + 3)
}

/// Returns the robustness variable and the interval in a query of IGMPv3 or MLDv2. A field of 0 means that the query does not
/// give a value.
pub(crate) fn querier(flags: u8, interval: u8) -> (Option<u8>, Option<Duration>) {
    let robustness = Some(flags & 7).filter(|robustness| *robustness > 0);
    let interval = Some(interval).filter(|code| *code > 0);
    (robustness, interval.map(|code| Duration::from_secs(decoded(code.into(), 4).into())))
}
