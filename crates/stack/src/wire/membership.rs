//! What IGMP and MLD have in common: versions, queries, group records, and the floating-point code for times.

use crate::drops::GroupDrop;
use crate::limits::GROUP_QUERY_SOURCES_MAX;
use crate::time::Duration;
use std::net::IpAddr;

/// The protocol version used on a link. It is the newest version unless a querier of an older version is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Igmp1,
    Igmp2,
    Igmp3,
    Mld1,
    Mld2,
}

impl Version {
    /// Returns true if a report of this version is a list of records, which is sent only to routers. In older versions a report
    /// names one group, and is sent to the group, so that its other members receive the report, too.
    pub(crate) fn lists_records(self) -> bool {
        matches!(self, Self::Igmp3 | Self::Mld2)
    }
}

/// The type of a group record (RFC 3376 4.2.12, RFC 3810 5.2.12). The discriminants are the values on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// Answer to a query about sources: the host wants packets from the sources in this record.
    ModeIsInclude = 1,
    /// Answer to a query: the host wants packets from all sources.
    ModeIsExclude = 2,
    ChangeToInclude = 3,
    ChangeToExclude = 4,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: RecordKind,
    pub(crate) group: IpAddr,
    pub(crate) sources: Vec<IpAddr>,
}

/// A received query, whose format is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) version: Version,
    /// The group that the query asks about; `None` if it asks about all groups.
    pub(crate) group: Option<IpAddr>,
    /// The sources that the query asks about; empty if it asks about all sources.
    pub(crate) sources: Vec<IpAddr>,
    /// The maximum time that the host may wait before it answers.
    pub(crate) delay_max: Duration,
    /// The querier's robustness variable, if the query contains it.
    pub(crate) robustness: Option<u8>,
    /// The querier's query interval, if the query contains it.
    pub(crate) interval: Option<Duration>,
}

/// Offsets of the fields of a query of the newest version, counted from the end of its group field (RFC 3376 4.1, RFC 3810 5.1).
mod field {
    use std::ops::Range;

    pub(super) const FLAGS: usize = 0;
    pub(super) const INTERVAL: usize = 1;
    pub(super) const COUNT: Range<usize> = 2..4;
    pub(super) const SOURCES: usize = 4;
}

impl Query {
    /// Returns a query of an older version, which contains no sources, no robustness variable and no query interval.
    pub(crate) fn older(version: Version, group: Option<IpAddr>, delay_max: Duration) -> Self {
        Self { version, group, sources: Vec::new(), delay_max, robustness: None, interval: None }
    }

    /// Parses a query of the newest version. `body` is the part after the group field. If the robustness variable or the query
    /// interval is 0, the query does not announce it.
    pub(crate) fn newest<const ADDRESS_BYTES: usize>(
        version: Version,
        group: Option<IpAddr>,
        delay_max: Duration,
        body: &[u8],
    ) -> Result<Self, GroupDrop>
    where
        IpAddr: From<[u8; ADDRESS_BYTES]>,
    {
        let count = usize::from(super::u16_at(body, field::COUNT).ok_or(GroupDrop::Length)?);
        let sources = body[field::SOURCES..].get(..ADDRESS_BYTES * count).ok_or(GroupDrop::Length)?;
        if count > 0 && group.is_none() {
            return Err(GroupDrop::Address);
        }
        // If the query asks about more sources than the stack stores, the answer covers all sources.
        let sources = if count > GROUP_QUERY_SOURCES_MAX { &[][..] } else { sources };
        let interval = Some(body[field::INTERVAL]).filter(|code| *code > 0);
        Ok(Self {
            sources: sources.as_chunks::<ADDRESS_BYTES>().0.iter().map(|octets| IpAddr::from(*octets)).collect(),
            robustness: Some(body[field::FLAGS] & 7).filter(|robustness| *robustness > 0),
            interval: interval.map(|code| Duration::from_secs(decoded(code.into(), 4).into())),
            ..Self::older(version, group, delay_max)
        })
    }
}

/// Returns the group that a query's group field names, or `None` if the field is 0 because the query asks about all groups.
pub(crate) fn group_of(address: IpAddr) -> Result<Option<IpAddr>, GroupDrop> {
    let is_valid = address.is_unspecified() || address.is_multicast();
    if is_valid { Ok(Some(address).filter(IpAddr::is_multicast)) } else { Err(GroupDrop::Address) }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    Query(Query),
    /// Another host's report of one group.
    Report(IpAddr),
}

/// A message to send. Its checksum field is not filled in yet.
pub(crate) struct Outgoing {
    pub(crate) to: IpAddr,
    pub(crate) message: Vec<u8>,
}

/// Length in bytes of a report before its first record.
const REPORT_BYTES: usize = 8;

/// Builds reports from a list of records. Each report has at least one record, and at most `bytes_max` bytes.
pub(crate) fn reports(kind: u8, to: IpAddr, records: &[Record], bytes_max: usize) -> Vec<Outgoing> {
    let address_bytes = if to.is_ipv4() { 4 } else { 16 };
    let record_bytes = |record: &Record| 4 + address_bytes * (1 + record.sources.len());
    let lists = lists(records, bytes_max - REPORT_BYTES, record_bytes);
    lists.into_iter().map(|records| Outgoing { to, message: report(kind, records) }).collect()
}

/// Builds one report with these records (RFC 3376 4.2, RFC 3810 5.2): the type, the number of records, then each record with its
/// source addresses. The checksum field is left 0.
fn report(kind: u8, records: &[Record]) -> Vec<u8> {
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

/// Splits records into lists of at most `room` bytes each. A record that is longer than `room` gets a list of its own.
fn lists(records: &[Record], room: usize, bytes: impl Fn(&Record) -> usize) -> Vec<&[Record]> {
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

/// Decodes a time from a code of one or two octets (RFC 3376 4.1.1, RFC 3810 5.1.3). If the code's highest bit is 0, the code is
/// the number itself. If the bit is 1, the code has an exponent, and a mantissa of `bits` bits.
pub(crate) fn decoded(code: u16, bits: u32) -> u32 {
    let code = u32::from(code);
    let linear_end = 1 << (bits + 3);
    if code < linear_end {
        return code;
    }
    let mantissa = code & ((1 << bits) - 1) | 1 << bits;
    mantissa << (((code >> bits) & 7) + 3)
}
