//! A peer: the remote end of a connection of the stack under test. It records what both ends have sent, and builds segments from
//! this.

use std::net::IpAddr;

use super::contents;
use super::input::Input;
use crate::wire::{self, Ip};

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const ACK: u8 = 16;

/// A TCP segment: the fields of its header, and its payload.
#[derive(Debug, Clone, Default)]
pub(super) struct Segment {
    pub(super) ports: (u16, u16),
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    pub(super) window: u16,
    pub(super) urgent: u16,
    /// The options, at most 40 bytes. They are padded to a multiple of four bytes.
    pub(super) options: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

impl Segment {
    /// Returns the segment's bytes. The checksum is left 0.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let options = &self.options[..self.options.len().min(40)];
        let words = options.len().div_ceil(4);
        let offset = u8::try_from(5 + words).unwrap_or(15) << 4;
        let mut bytes = [self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes()].concat();
        bytes.extend([self.seq.to_be_bytes(), self.ack.to_be_bytes()].concat());
        bytes.extend([offset, self.flags]);
        bytes.extend([self.window.to_be_bytes(), [0, 0], self.urgent.to_be_bytes()].concat());
        bytes.extend(options);
        bytes.resize(20 + 4 * words, 0);
        bytes.extend(&self.payload);
        bytes
    }

    /// Parses a segment. Returns `None` if the bytes are too short.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let long = |at: usize| Some(u32::from(word(at)?) << 16 | u32::from(word(at + 2)?));
        let header = usize::from(bytes.get(12)? >> 4) * 4;
        Some(Self {
            ports: (word(0)?, word(2)?),
            seq: long(4)?,
            ack: long(8)?,
            flags: *bytes.get(13)?,
            window: word(14)?,
            urgent: word(18)?,
            options: bytes.get(20..header)?.to_vec(),
            payload: bytes.get(header..)?.to_vec(),
        })
    }

    /// Returns the TSval of the timestamps option, if the segment has the option.
    pub(super) fn timestamp(&self) -> Option<u32> {
        let mut options = &self.options[..];
        while let [kind, rest @ ..] = options {
            match (kind, rest) {
                (0, _) => return None,
                (1, _) => options = rest,
                (8, [10, a, b, c, d, ..]) => return Some(u32::from_be_bytes([*a, *b, *c, *d])),
                (_, [len, ..]) => options = options.get(usize::from(*len).max(2)..)?,
                (_, []) => return None,
            }
        }
        None
    }
}

/// The remote end of a connection of the stack.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) device: usize,
    pub(super) here: IpAddr,
    pub(super) there: IpAddr,
    /// The port of the peer, then the port of the stack.
    pub(super) ports: (u16, u16),
    /// The peer's initial sequence number. The value of each payload byte depends only on its offset from this number.
    isn: u32,
    /// The initial sequence number of the peer that the stack acknowledged, if it has acknowledged one.
    irs: Option<u32>,
    /// The sequence number that follows all bytes that the peer has sent without a gap.
    next: u32,
    /// The acknowledgement number in the latest segment from the stack.
    acknowledged: u32,
    /// The stack's initial sequence number, if the stack has sent one.
    iss: Option<u32>,
    /// The highest sequence number that the stack has used.
    pub(super) stack_next: u32,
    timestamps: bool,
    recent: u32,
    /// True if the offsets of bytes in the stream are unknown. This is so if the stack opened several connections with these
    /// addresses and ports, or if a SYN carried data.
    pub(super) reused: bool,
}

impl Peer {
    pub(super) fn new(device: usize, there: IpAddr, here: IpAddr, ports: (u16, u16), isn: u32) -> Self {
        Self {
            device,
            here,
            there,
            ports,
            isn,
            irs: None,
            next: isn,
            acknowledged: isn,
            iss: None,
            stack_next: 0,
            timestamps: true,
            recent: 0,
            reused: false,
        }
    }

    /// Returns true if the stack and the peer know each other's initial sequence number.
    pub(super) fn is_known(&self) -> bool {
        self.irs.is_some()
    }

    /// Processes a segment that the stack sent. Panics if the payload differs from what the application wrote.
    pub(super) fn receive(&mut self, segment: &Segment) {
        let len = u32::try_from(segment.payload.len()).unwrap_or(0);
        if segment.flags & RST != 0 {
            return;
        }
        if segment.flags & SYN != 0 {
            // Detects a later connection with the same ports. Its ISS can be the same as before, because the ISS follows the
            // clock. So a different acknowledged initial sequence number shows a later connection, too.
            let irs = Some(segment.ack.wrapping_sub(1)).filter(|_| segment.flags & ACK != 0);
            let another = self.irs.is_some() && irs.is_some() && self.irs != irs;
            self.reused |= another || self.iss.is_some_and(|iss| iss != segment.seq);
            if self.iss != Some(segment.seq) {
                (self.iss, self.stack_next, self.irs) = (Some(segment.seq), segment.seq.wrapping_add(1), None);
            }
        }
        if segment.flags & ACK != 0 {
            if self.irs.is_none() {
                self.irs = Some(segment.ack.wrapping_sub(1));
            }
            self.acknowledged = segment.ack;
            if segment.ack.wrapping_sub(self.next).cast_signed() > 0 {
                self.next = segment.ack;
            }
        }
        if let Some(recent) = segment.timestamp() {
            self.recent = recent;
        }
        let flags = u32::from(segment.flags & SYN != 0) + u32::from(segment.flags & FIN != 0);
        let end = segment.seq.wrapping_add(len).wrapping_add(flags);
        if end.wrapping_sub(self.stack_next).cast_signed() > 0 {
            self.stack_next = end;
        }
        if let Some(iss) = self.iss.filter(|_| !self.reused && len > 0) {
            let wanted = contents(segment.seq.wrapping_sub(iss).wrapping_sub(1), segment.payload.len());
            assert!(segment.payload == wanted, "the stack sends other bytes than were written, at {}", segment.seq);
        }
    }

    /// Returns the bytes that an application on the stack has to read, from the offset `place` on. Returns `None` if they are
    /// unknown.
    pub(super) fn expected(&self, place: u32, len: usize) -> Option<Vec<u8>> {
        let irs = self.irs.filter(|_| !self.reused)?;
        Some(contents(irs.wrapping_sub(self.isn).wrapping_add(place), len))
    }

    /// Builds a SYN. Each of the four low bits of `bits`, if set, leaves out one TCP option. The four high bits are the window
    /// scale.
    pub(super) fn syn(&mut self, bits: u8, mss: u16, now_ms: u32) -> Segment {
        self.timestamps = bits & 1 == 0;
        let mut options = Vec::new();
        if bits & 2 == 0 {
            options.extend([2, 4]);
            options.extend(mss.to_be_bytes());
        }
        if self.timestamps {
            options.extend([8, 10]);
            options.extend(now_ms.to_be_bytes());
            options.extend(self.recent.to_be_bytes());
        }
        if bits & 4 == 0 {
            options.extend([4, 2]);
        }
        if bits & 8 == 0 {
            options.extend([3, 3, bits >> 4]);
        }
        let flags = if self.iss.is_some() { SYN | ACK } else { SYN };
        self.next = self.isn.wrapping_add(1);
        Segment { seq: self.isn, flags, options, ..self.bare(now_ms) }
    }

    /// Builds a segment without payload that acknowledges everything that the stack has sent.
    pub(super) fn bare(&self, now_ms: u32) -> Segment {
        let mut options = Vec::new();
        if self.timestamps {
            options.extend([1, 1, 8, 10]);
            options.extend(now_ms.to_be_bytes());
            options.extend(self.recent.to_be_bytes());
        }
        Segment {
            ports: self.ports,
            seq: self.next,
            ack: self.stack_next,
            flags: ACK,
            window: 60_000,
            urgent: 0,
            options,
            payload: Vec::new(),
        }
    }

    /// Makes bytes of the stream the segment's payload. Their offset follows from the segment's sequence number.
    pub(super) fn fill(&mut self, segment: &mut Segment, len: usize) {
        let first = segment.seq.wrapping_add(u32::from(segment.flags & SYN != 0));
        segment.payload = contents(first.wrapping_sub(self.isn).wrapping_sub(1), len);
        // The stack may accept the data of a SYN or not, which only its first acknowledgement shows. So the offsets of later bytes
        // are unknown.
        self.reused |= segment.flags & SYN != 0 && len > 0;
        let len = u32::try_from(len).unwrap_or(0);
        let fin = u32::from(segment.flags & FIN != 0);
        let end = segment.seq.wrapping_add(len).wrapping_add(fin);
        // The next segment begins after this one, unless this one leaves a gap.
        if segment.seq == self.next {
            self.next = end;
        }
    }

    /// Builds a segment that is similar to what the stack's connection expects next. The input selects the differences.
    pub(super) fn segment(&mut self, input: &mut Input<'_>, now_ms: u32) -> Segment {
        let mut segment = self.bare(now_ms);
        let base = if input.u8() & 1 == 0 { self.next } else { self.acknowledged };
        segment.seq = base.wrapping_add(input.distance());
        segment.ack = segment.ack.wrapping_add(input.distance());
        segment.flags = match input.u8() {
            0..0xc0 => ACK,
            0xc0..0xd0 => ACK | FIN,
            flags => flags.rotate_left(2) ^ input.u8(),
        };
        let shape = input.u8();
        if shape & 1 != 0 {
            segment.window = input.u16();
        }
        if shape & 2 != 0 {
            self.add_sack(input, &mut segment);
        }
        if shape & 4 != 0 && self.timestamps {
            let value = now_ms.wrapping_add(input.distance());
            segment.options.get_mut(4..8).into_iter().for_each(|place| place.copy_from_slice(&value.to_be_bytes()));
            let echo = self.recent.wrapping_add(input.distance());
            segment.options.get_mut(8..12).into_iter().for_each(|place| place.copy_from_slice(&echo.to_be_bytes()));
        }
        if shape & 0xc0 == 0xc0 {
            let len = input.index(41);
            segment.options = input.bytes(len).to_vec();
            segment.urgent = input.u16();
        }
        if shape & 8 != 0 {
            let len = input.payload_len();
            self.fill(&mut segment, len);
        } else if segment.flags & FIN != 0 {
            self.fill(&mut segment, 0);
        }
        segment
    }

    fn add_sack(&self, input: &mut Input<'_>, segment: &mut Segment) {
        let count = 1 + input.u8() % 3;
        segment.options.extend([1, 1, 5, 2 + 8 * count]);
        let mut edge = segment.ack;
        for _ in 0..count {
            let start = edge.wrapping_add(input.distance());
            edge = start.wrapping_add(u32::try_from(input.payload_len()).unwrap_or(0));
            segment.options.extend(start.to_be_bytes());
            segment.options.extend(edge.to_be_bytes());
        }
    }

    /// Builds an IP packet that contains the segment.
    pub(super) fn packet(&self, segment: &Segment, service: u8) -> Vec<u8> {
        let mut packet = Ip { service, ..Ip::new(self.there, self.here, wire::TCP) }.packet(&segment.bytes());
        wire::mend(&mut packet);
        packet
    }
}
