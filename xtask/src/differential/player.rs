//! What both players share: the peer's half of a dialogue, and the record of what the host under test did.
//!
//! The peer turns the relative numbers of a dialogue into those of the connection, and the numbers of the host under test into
//! relative ones. So the records of two hosts with different initial sequence numbers, timestamps and ports can be compared.

use std::net::IpAddr;

use siga_stack::tcp::StateName;

use super::dialogue::{AckNumber, Cookie, PathError, PeerSegment};
use super::packet::{self, ACK, FIN, IpHeader, PROTOCOL_TCP, RST, SYN, Segment, TcpOption};

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The call succeeded without a number.
    Done,
    /// This number of bytes was sent or received.
    Bytes(u32),
    /// The peer has closed its direction.
    End,
    /// The call would have to wait.
    Blocked,
    /// The call fails because of the socket's state.
    Refused,
    /// The connection has failed.
    Failed,
    /// The dialogue has no socket for this call.
    NoSocket,
}

/// A segment of the host under test with relative numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) bits: u8,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) len: u32,
    pub(crate) urgent: u16,
    /// The TSval is relative to the first TSval.
    pub(crate) options: Vec<TcpOption>,
    pub(crate) hop_limit: u8,
    pub(crate) service: u8,
    pub(crate) dont_fragment: bool,
}

/// A reply, and when it was sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    /// The number of steps that had begun.
    pub(crate) steps: usize,
    /// Time since the dialogue began.
    pub(crate) at_us: u64,
    pub(crate) reply: Reply,
}

/// All that the host under test did in a dialogue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record {
    /// The result of each step that is a call.
    pub(crate) outcomes: Vec<Option<Outcome>>,
    /// When each step began, in microseconds since the dialogue began.
    pub(crate) begun_us: Vec<u64>,
    pub(crate) sent: Vec<Sent>,
    /// Whether a step began much later than planned, because the machine was busy.
    pub(crate) is_late: bool,
    /// The state of the application's connection after each step. Only the stack's record has them.
    pub(crate) states: Vec<Option<StateName>>,
}

/// The ends of a dialogue's connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) local: IpAddr,
    pub(crate) local_port: u16,
    pub(crate) remote: IpAddr,
    pub(crate) remote_port: u16,
}

/// The peer's half of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) ends: Ends,
    /// The initial sequence number of the host under test, once it has sent a SYN.
    initial: Option<u32>,
    /// The end of everything that the host under test has sent, relative to its SYN.
    end: u32,
    first_timestamp: Option<u32>,
    timestamp: u32,
    /// The latest packet of the host under test.
    latest: Vec<u8>,
    /// The latest Fast Open cookie of the host under test.
    cookie: Vec<u8>,
}

/// The number of the option of Fast Open (RFC 7413 section 4.1.1).
const FAST_OPEN: u8 = 34;
/// The cookie that the peer gives.
const PEER_COOKIE: [u8; 8] = [7; 8];

/// The peer's initial sequence number. Numbers wrap soon after it.
const PEER_INITIAL: u32 = 0xffff_f000;

impl Peer {
    pub(crate) fn new(ends: Ends) -> Self {
        Self {
            ends,
            initial: None,
            end: 0,
            first_timestamp: None,
            timestamp: 0,
            latest: Vec::new(),
            cookie: Vec::new(),
        }
    }

    /// Builds the packet of a peer's segment.
    pub(crate) fn packet(&self, segment: &PeerSegment) -> Vec<u8> {
        let Ends { local, local_port, remote, remote_port } = self.ends;
        let initial = self.initial.unwrap_or(0);
        let mut options = Vec::new();
        options.extend(segment.mss.map(TcpOption::Mss));
        options.extend(segment.sack_permitted.then_some(TcpOption::SackPermitted));
        options.extend(segment.window_scale.map(TcpOption::WindowScale));
        if let Some(timestamp) = segment.timestamp {
            options.push(TcpOption::Timestamps(timestamp.value, timestamp.echo.unwrap_or(self.timestamp)));
        }
        options.extend(segment.fast_open.map(|cookie| {
            let bytes = match cookie {
                Cookie::Request => Vec::new(),
                Cookie::Latest => self.cookie.clone(),
                Cookie::Own => PEER_COOKIE.to_vec(),
            };
            TcpOption::Other(FAST_OPEN, bytes)
        }));
        if !segment.sack.is_empty() {
            let of = |number: u32| initial.wrapping_add(number);
            options.push(TcpOption::Sack(segment.sack.iter().map(|(start, end)| (of(*start), of(*end))).collect()));
        }
        let ack = match segment.ack {
            None => 0,
            Some(AckNumber::At(at)) => initial.wrapping_add(at),
            Some(AckNumber::All(more)) => initial.wrapping_add(self.end).wrapping_add_signed(more),
        };
        let header = IpHeader {
            from: remote,
            to: local,
            protocol: PROTOCOL_TCP,
            hop_limit: 64,
            service: segment.ip_ecn,
            dont_fragment: true,
        };
        let segment = Segment {
            source_port: remote_port,
            destination_port: local_port,
            seq: PEER_INITIAL.wrapping_add(segment.seq),
            ack,
            bits: segment.bits(),
            window: segment.window,
            urgent: segment.urgent.unwrap_or(0),
            options,
            len: segment.len.into(),
        };
        packet::tcp(&header, &segment)
    }

    /// Builds an ICMP error about the latest packet of the host under test, or returns `None` if there was none.
    pub(crate) fn error(&self, error: PathError) -> Option<Vec<u8>> {
        let Ends { local, remote, .. } = self.ends;
        let (kind, code, field) = match (error, local.is_ipv4()) {
            (PathError::TooBig(mtu), true) => (3, 4, mtu.into()),
            (PathError::TooBig(mtu), false) => (2, 0, mtu.into()),
            (PathError::HostUnreachable, true) => (3, 1, 0),
            (PathError::HostUnreachable, false) => (1, 3, 0),
            (PathError::PortUnreachable, true) => (3, 3, 0),
            (PathError::PortUnreachable, false) => (1, 4, 0),
        };
        (!self.latest.is_empty()).then(|| packet::icmp(remote, local, kind, code, field, &self.latest))
    }

    /// Parses a packet of the host under test. Returns `None` if it belongs to another connection.
    pub(crate) fn receive(&mut self, packet: &[u8]) -> Option<Reply> {
        let (header, mut segment) = packet::parse_tcp(packet)?;
        let ends = self.ends;
        if (header.from, header.to) != (ends.local, ends.remote)
            || (segment.source_port, segment.destination_port) != (ends.local_port, ends.remote_port)
        {
            return None;
        }
        self.latest = packet.to_vec();
        let has = |bit: u8| segment.bits & bit != 0;
        if has(SYN) && self.initial.is_none_or(|initial| initial != segment.seq) {
            self.initial = Some(segment.seq);
            self.end = 0;
        }
        let seq = segment.seq.wrapping_sub(self.initial.unwrap_or(0));
        let end = seq.wrapping_add(segment.len).wrapping_add(u32::from(has(SYN))).wrapping_add(u32::from(has(FIN)));
        if !has(RST) && end.wrapping_sub(self.end).cast_signed() > 0 {
            self.end = end;
        }
        let initial = self.initial.unwrap_or(0);
        let has_no_number = segment.bits & (RST | ACK) == RST | ACK && segment.seq == 0;
        for option in &mut segment.options {
            match option {
                TcpOption::Timestamps(value, _) => {
                    self.timestamp = *value;
                    *value = value.wrapping_sub(*self.first_timestamp.get_or_insert(*value));
                }
                TcpOption::Sack(blocks) => {
                    let relative = |number: u32| number.wrapping_sub(PEER_INITIAL);
                    blocks.iter_mut().for_each(|(start, end)| (*start, *end) = (relative(*start), relative(*end)));
                }
                // The hosts have different keys, so their cookies differ.
                TcpOption::Other(FAST_OPEN, cookie) if has(ACK) => {
                    self.cookie = std::mem::replace(cookie, vec![0; cookie.len()]);
                }
                TcpOption::NoOperation
                | TcpOption::Mss(_)
                | TcpOption::WindowScale(_)
                | TcpOption::SackPermitted
                | TcpOption::Other(..) => {}
            }
        }
        Some(Reply {
            bits: segment.bits,
            // A reset that answers a segment without ACK has the absolute number 0.
            seq: if has_no_number { 0 } else { segment.seq.wrapping_sub(initial) },
            ack: if segment.bits & ACK != 0 { segment.ack.wrapping_sub(PEER_INITIAL) } else { segment.ack },
            window: segment.window,
            len: segment.len,
            urgent: segment.urgent,
            options: segment.options,
            hop_limit: header.hop_limit,
            service: header.service,
            dont_fragment: header.dont_fragment,
        })
    }
}
