//! A segment's header as a small plain value, parsed from bytes that may be hostile, written in the order Linux writes.
//!
//! Not by `smoltcp::wire`, as other headers: that crate keeps three of four SACK blocks, and a segment's header is read and written
//! so often that its checks of each field show. Checksums are the owner's, who knows the addresses.

use super::fast_path::{FastHeader, FastSegment};
use super::{DropReason, SeqNumber};
use crate::wire::checksum::Sum;

/// Longest header, options included.
pub const HEADER_BYTES_MAX: usize = 60;

/// Bytes of the header without options.
const FIXED_BYTES: usize = 20;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

/// Control bits that a header may carry beside ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// Synchronise sequence numbers.
    pub syn: bool,
    /// The sender has no more data.
    pub fin: bool,
    /// The connection is to be dropped.
    pub rst: bool,
    /// Data should reach the application at once.
    pub psh: bool,
    /// Congestion was experienced (RFC 3168).
    pub ece: bool,
    /// The congestion window was reduced (RFC 3168).
    pub cwr: bool,
}

/// RFC 7323 timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the latest value that the sender knows of the other's clock.
    pub echo: u32,
}

/// Bytes from the first up to the second, not including it.
pub type Block = (SeqNumber, SeqNumber);

/// Up to four blocks of a SACK option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlocks {
    blocks: [Block; 4],
    count: u8,
}

impl SackBlocks {
    /// Adds a block and says whether there was room.
    pub fn push(&mut self, block: Block) -> bool {
        let Some(place) = self.blocks.get_mut(usize::from(self.count)) else { return false };
        *place = block;
        self.count += 1;
        true
    }

    /// The blocks in their order on the wire.
    pub fn as_slice(&self) -> &[Block] {
        &self.blocks[..usize::from(self.count)]
    }
}

/// The options that a connection understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeaderOptions {
    /// Largest payload that the sender takes (SYN only).
    pub mss: Option<u16>,
    /// Shift of the sender's windows (SYN only), 14 at most.
    pub window_scale: Option<u8>,
    /// The sender understands SACK (SYN only).
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// What arrived ahead of a gap.
    pub sack: SackBlocks,
}

/// A segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// Sequence number of the first byte (or of SYN).
    pub seq: SeqNumber,
    /// Next byte expected from the other side; `None` without the ACK bit.
    pub ack: Option<SeqNumber>,
    /// Other control bits.
    pub flags: Flags,
    /// Window as on the wire, not shifted.
    pub window: u16,
    /// Urgent pointer: bytes from `seq` to the first that is not urgent (RFC 9293 MUST-62); `None` without the URG bit.
    pub urgent: Option<u16>,
    /// Options.
    pub options: HeaderOptions,
}

impl Header {
    /// Reads a header from the front of a segment; returns it and its length.
    ///
    /// Errors: [`DropReason::Truncated`], [`DropReason::BadOffset`], [`DropReason::BadOption`] for bytes that are none.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), DropReason> {
        let mut header = Self::default();
        header.read(bytes).map(|len| (header, len))
    }

    /// The same where the header stays: who copies what was just stored in pieces waits for it.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<usize, DropReason> {
        let fixed: &[u8; FIXED_BYTES] = bytes.first_chunk().ok_or(DropReason::Truncated)?;
        let [a, b, c, d, e, f, g, h, i, j, k, l, offset, bits, m, n, _, _, o, p] = *fixed;
        let len = usize::from(offset >> 4) * 4;
        let options = bytes.get(FIXED_BYTES..len).ok_or(DropReason::BadOffset)?;
        let set = |bit: u8| bits & bit != 0;
        self.source_port = u16::from_be_bytes([a, b]);
        self.destination_port = u16::from_be_bytes([c, d]);
        self.seq = SeqNumber(u32::from_be_bytes([e, f, g, h]));
        self.ack = set(ACK).then(|| SeqNumber(u32::from_be_bytes([i, j, k, l])));
        self.flags = Flags { syn: set(SYN), fin: set(FIN), rst: set(RST), psh: set(PSH), ece: set(ECE), cwr: set(CWR) };
        self.window = u16::from_be_bytes([m, n]);
        self.urgent = set(URG).then(|| u16::from_be_bytes([o, p]));
        self.options.parse(options, self.flags.syn)?;
        Ok(len)
    }

    /// Reads a header that has nothing but an acknowledgement and timestamps, or not even those, as long as it is exactly as
    /// nearly all are; says where its ports' connection stands with it, and its length. The payload's length is the caller's.
    #[inline]
    pub(crate) fn parse_fast(bytes: &[u8]) -> Option<(FastHeader, usize)> {
        let fixed: &[u8; FIXED_BYTES] = bytes.first_chunk()?;
        let [_, _, _, _, e, f, g, h, i, j, k, l, offset, bits, m, n, ..] = *fixed;
        if bits & !PSH != ACK {
            return None;
        }
        let (timestamps, header_bytes) = match (offset >> 4, bytes.get(FIXED_BYTES..FIXED_BYTES + 12)) {
            (5, _) => (None, FIXED_BYTES),
            (8, Some(&[1, 1, 8, 10, a, b, c, d, e, f, g, h])) => {
                let value = u32::from_be_bytes([a, b, c, d]);
                (Some(Timestamps { value, echo: u32::from_be_bytes([e, f, g, h]) }), FIXED_BYTES + 12)
            }
            _ => return None,
        };
        let seq = SeqNumber(u32::from_be_bytes([e, f, g, h]));
        let ack = SeqNumber(u32::from_be_bytes([i, j, k, l]));
        let window = u16::from_be_bytes([m, n]);
        Some((FastHeader { seq, ack, window, timestamps, len: 0 }, header_bytes))
    }

    /// Writes the header of a plain segment between these ports to the front of `into`, its checksum left 0. Says how long it
    /// is, and its sum: who reads what was just written in other pieces waits for it.
    #[inline]
    pub(crate) fn emit_fast(segment: &FastSegment, (local, remote): (u16, u16), into: &mut [u8]) -> (usize, Sum) {
        let FastSegment { header, push, fin, .. } = segment;
        let bits = ACK | if *push { PSH } else { 0 } | if *fin { FIN } else { 0 };
        let words = usize::from(header.timestamps.is_some()) * 3 + FIXED_BYTES / 4;
        let offset = u32::try_from(words).unwrap_or(0) << 28;
        let Timestamps { value, echo } = header.timestamps.unwrap_or_default();
        let fixed = [
            u32::from(local) << 16 | u32::from(remote),
            header.seq.0,
            header.ack.0,
            offset | u32::from(bits) << 16 | u32::from(header.window),
            0,
        ];
        let options = [u32::from_be_bytes([1, 1, 8, 10]), value, echo];
        let mut sum = fixed.iter().fold(Sum::default(), |sum, word| sum.long(*word));
        let (places, _) = into.as_chunks_mut::<4>();
        for (place, word) in places.iter_mut().zip(fixed) {
            *place = word.to_be_bytes();
        }
        if header.timestamps.is_some() {
            sum = options.iter().fold(sum, |sum, word| sum.long(*word));
            for (place, word) in places.iter_mut().skip(fixed.len()).zip(options) {
                *place = word.to_be_bytes();
            }
        }
        (4 * words, sum)
    }

    /// Bytes of the header, options included.
    pub fn header_bytes(&self) -> usize {
        FIXED_BYTES + self.options.len()
    }

    /// Writes the header to the front of `into`, which must have [`Header::header_bytes`] bytes; the checksum is left 0.
    #[inline]
    pub fn emit(&self, into: &mut [u8]) {
        let len = self.header_bytes();
        let Flags { syn, fin, rst, psh, ece, cwr } = self.flags;
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let bits = bit(fin, FIN)
            | bit(syn, SYN)
            | bit(rst, RST)
            | bit(psh, PSH)
            | bit(self.ack.is_some(), ACK)
            | bit(self.urgent.is_some(), URG)
            | bit(ece, ECE)
            | bit(cwr, CWR);
        let Some((fixed, options)) = into.split_first_chunk_mut::<FIXED_BYTES>() else { return };
        fixed[..2].copy_from_slice(&self.source_port.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.unwrap_or_default().0.to_be_bytes());
        let offset = u8::try_from(len / 4).unwrap_or(0) << 4;
        fixed[12..14].copy_from_slice(&[offset, bits]);
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        fixed[16..18].copy_from_slice(&[0, 0]);
        fixed[18..].copy_from_slice(&self.urgent.unwrap_or(0).to_be_bytes());
        self.options.emit(&mut options[..len - FIXED_BYTES]);
    }

    /// Sequence numbers that the segment takes with so many bytes of payload: SEG.LEN.
    pub fn sequence_len(&self, payload_bytes: usize) -> u32 {
        let payload = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
        payload.saturating_add(u32::from(self.flags.syn)).saturating_add(u32::from(self.flags.fin))
    }

    /// The reset that answers a segment for which there is no connection (RFC 9293 section 3.10.7.1); none for a reset.
    pub fn reset(&self, payload_bytes: usize) -> Option<Self> {
        if self.flags.rst {
            return None;
        }
        let (seq, ack) = match self.ack {
            Some(ack) => (ack, None),
            None => (SeqNumber(0), Some(self.seq + self.sequence_len(payload_bytes))),
        };
        Some(Self {
            source_port: self.destination_port,
            destination_port: self.source_port,
            seq,
            ack,
            flags: Flags { rst: true, ..Flags::default() },
            ..Self::default()
        })
    }
}

impl HeaderOptions {
    /// Reads options. Timestamps alone, as nearly all segments have them, take one look (RFC 7323 appendix A).
    #[inline]
    fn parse(&mut self, bytes: &[u8], syn: bool) -> Result<(), DropReason> {
        if let [1, 1, 8, 10, a, b, c, d, e, f, g, h] = *bytes {
            let value = u32::from_be_bytes([a, b, c, d]);
            self.timestamps = Some(Timestamps { value, echo: u32::from_be_bytes([e, f, g, h]) });
            return Ok(());
        }
        self.walk(bytes, syn)
    }

    /// Walks options (RFC 9293 section 3.1). Unknown kinds are skipped (MUST-6); a length that is less than 2 or reaches behind
    /// the end is an error (MUST-7); a known kind of a wrong length is skipped as if unknown.
    fn walk(&mut self, mut bytes: &[u8], syn: bool) -> Result<(), DropReason> {
        while let [kind, rest @ ..] = bytes {
            // RFC 9293 MUST-4, MUST-5, MUST-64, MUST-68: in any segment, at any byte, and with a length, but for these two.
            match kind {
                0 => break,
                1 => {
                    bytes = rest;
                    continue;
                }
                2..=u8::MAX => {}
            }
            let len = usize::from(*rest.first().ok_or(DropReason::BadOption)?);
            let body = bytes.get(2..len).ok_or(DropReason::BadOption)?;
            self.read(*kind, body, syn);
            bytes = &bytes[len..];
        }
        Ok(())
    }

    fn read(&mut self, kind: u8, body: &[u8], syn: bool) {
        match (kind, body) {
            // RFC 9293 MUST-14, MUST-65.
            (2, [a, b]) if syn => self.mss = Some(u16::from_be_bytes([*a, *b])),
            // RFC 7323 section 2.3: a shift above 14 is taken as 14.
            (3, [shift]) if syn => self.window_scale = Some((*shift).min(14)),
            (4, []) if syn => self.sack_permitted = true,
            (5, blocks) if !syn && blocks.len() % 8 == 0 => {
                for block in blocks.as_chunks::<8>().0 {
                    let [a, b, c, d, e, f, g, h] = *block;
                    let start = SeqNumber(u32::from_be_bytes([a, b, c, d]));
                    self.sack.push((start, SeqNumber(u32::from_be_bytes([e, f, g, h]))));
                }
            }
            (8, [a, b, c, d, e, f, g, h]) => {
                let value = u32::from_be_bytes([*a, *b, *c, *d]);
                self.timestamps = Some(Timestamps { value, echo: u32::from_be_bytes([*e, *f, *g, *h]) });
            }
            _ => {}
        }
    }

    /// Nothing but timestamps.
    #[inline]
    fn only_timestamps(&self) -> Option<Timestamps> {
        let others = self.mss.is_some() || self.window_scale.is_some() || self.sack_permitted || self.sack.count > 0;
        self.timestamps.filter(|_| !others)
    }

    /// Bytes on the wire: always a multiple of 4, filled up by no-operations, so that nothing is behind them (RFC 9293 MUST-69).
    #[inline]
    fn len(&self) -> usize {
        if self.only_timestamps().is_some() {
            return 12;
        }
        let mut len = 0;
        len += if self.mss.is_some() { 4 } else { 0 };
        len += match (self.timestamps, self.sack_permitted) {
            (Some(_), _) => 12,
            (None, true) => 4,
            (None, false) => 0,
        };
        len += if self.window_scale.is_some() { 4 } else { 0 };
        len + if self.sack.count > 0 { 4 + 8 * usize::from(self.sack.count) } else { 0 }
    }

    /// The order of Linux: mss, sackOK in place of the padding before the timestamps, timestamps, nop, wscale, SACK.
    fn emit(&self, mut into: &mut [u8]) {
        if let Some(Timestamps { value, echo }) = self.only_timestamps() {
            into[..4].copy_from_slice(&[1, 1, 8, 10]);
            into[4..8].copy_from_slice(&value.to_be_bytes());
            into[8..12].copy_from_slice(&echo.to_be_bytes());
            return;
        }
        let mut put = |bytes: &[u8]| {
            let (front, rest) = std::mem::take(&mut into).split_at_mut(bytes.len());
            front.copy_from_slice(bytes);
            into = rest;
        };
        // RFC 9293 MUST-14, MUST-68.
        if let Some(mss) = self.mss {
            put(&[2, 4]);
            put(&mss.to_be_bytes());
        }
        match (self.timestamps.is_some(), self.sack_permitted) {
            (true, true) => put(&[4, 2]),
            (true, false) => put(&[1, 1]),
            (false, true) => put(&[1, 1, 4, 2]),
            (false, false) => {}
        }
        if let Some(timestamps) = self.timestamps {
            put(&[8, 10]);
            put(&timestamps.value.to_be_bytes());
            put(&timestamps.echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            put(&[1, 3, 3, shift]);
        }
        if self.sack.count > 0 {
            put(&[1, 1, 5, 2 + 8 * self.sack.count]);
            for (start, end) in self.sack.as_slice() {
                put(&start.0.to_be_bytes());
                put(&end.0.to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn syn() -> Header {
        let timestamps = Some(Timestamps { value: 7, echo: 0 });
        let options = HeaderOptions {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps,
            ..HeaderOptions::default()
        };
        let flags = Flags { syn: true, ..Flags::default() };
        Header {
            source_port: 1,
            destination_port: 2,
            seq: SeqNumber(3),
            window: 64_240,
            flags,
            options,
            ..Header::default()
        }
    }

    // RFC 9293 MUST-4, MUST-14, MUST-68.
    #[test]
    fn a_syn_carries_its_options_in_the_order_of_linux() {
        let mut bytes = [0; HEADER_BYTES_MAX];
        syn().emit(&mut bytes);
        assert_eq!(bytes[20..40], [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 0, 1, 3, 3, 7]);
        assert_eq!(Header::parse(&bytes[..40]), Ok((syn(), 40)));
    }

    #[test]
    fn a_header_that_lies_about_its_length_is_dropped() {
        let mut bytes = [0; 40];
        syn().emit(&mut bytes);
        assert_eq!(Header::parse(&bytes[..19]), Err(DropReason::Truncated));
        assert_eq!(Header::parse(&bytes[..39]), Err(DropReason::BadOffset));
        bytes[12] = 0x40;
        assert_eq!(Header::parse(&bytes), Err(DropReason::BadOffset));
        bytes[12] = 0xf0;
        assert_eq!(Header::parse(&bytes), Err(DropReason::BadOffset));
    }

    fn options(bytes: &[u8], syn: bool) -> Result<HeaderOptions, DropReason> {
        let mut options = HeaderOptions::default();
        options.parse(bytes, syn).map(|()| options)
    }

    // RFC 9293 MUST-6, MUST-7, MUST-65.
    #[test]
    fn an_option_that_lies_about_its_length_is_dropped() {
        for options in [[2, 0, 0, 0], [2, 1, 0, 0], [2, 5, 0, 0], [1, 1, 1, 8], [254, 255, 0, 0]] {
            let mut bytes = [0; 24];
            Header::default().emit(&mut bytes);
            bytes[12] = 0x60;
            bytes[20..].copy_from_slice(&options);
            assert_eq!(Header::parse(&bytes), Err(DropReason::BadOption), "{options:?}");
        }
        // An unknown kind, and a known one of a wrong length, say nothing.
        assert_eq!(options(&[254, 4, 9, 9, 3, 4, 1, 1], true), Ok(HeaderOptions::default()));
        // What belongs to a SYN says nothing elsewhere.
        assert_eq!(options(&[2, 4, 0, 1, 3, 3, 9, 4, 2], false), Ok(HeaderOptions::default()));
        // Nor do blocks in a SYN, or half a block anywhere.
        assert_eq!(options(&[5, 10, 0, 0, 0, 1, 0, 0, 0, 9], true), Ok(HeaderOptions::default()));
        assert_eq!(options(&[5, 14, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 20], false), Ok(HeaderOptions::default()));
        assert_eq!(options(&[3, 3, 200], true).map(|options| options.window_scale), Ok(Some(14)));
    }

    // RFC 9293 MUST-5, MUST-64.
    #[test]
    fn options_are_read_in_any_segment_at_any_byte() {
        let timestamps = Some(Timestamps { value: 0x0102_0304, echo: 5 });
        for place in 0..4 {
            let option = [&[1; 3][..place], &[8, 10, 1, 2, 3, 4, 0, 0, 0, 5]].concat();
            for syn in [false, true] {
                assert_eq!(options(&option, syn).map(|options| options.timestamps), Ok(timestamps), "{place}");
            }
        }
        assert_eq!(options(&[1, 2, 4, 5, 180], true).map(|options| options.mss), Ok(Some(1_460)));
    }

    // RFC 9293 MUST-69.
    #[test]
    fn behind_the_last_option_there_is_nothing_but_zeros() {
        let timestamps = Timestamps { value: u32::MAX, echo: u32::MAX };
        for choice in 0..16 {
            let options = HeaderOptions {
                mss: (choice & 1 > 0).then_some(1_460),
                window_scale: (choice & 2 > 0).then_some(7),
                sack_permitted: choice & 4 > 0,
                timestamps: (choice & 8 > 0).then_some(timestamps),
                ..HeaderOptions::default()
            };
            let header = Header { options, ..syn() };
            let mut bytes = [0xff; HEADER_BYTES_MAX];
            header.emit(&mut bytes);
            assert_eq!((usize::from(bytes[12] >> 4) * 4, bytes[12] & 15), (header.header_bytes(), 0), "{choice}");
            assert_eq!(bytes[16..20], [0; 4], "neither checksum nor urgent pointer");
            let mut rest = &bytes[20..header.header_bytes()];
            while let [1..=u8::MAX, ..] = rest {
                rest = if rest[0] == 1 { &rest[1..] } else { &rest[usize::from(rest[1])..] };
            }
            assert!(rest.iter().all(|byte| *byte == 0), "{choice}");
        }
        // What a peer writes behind the end of its options is not looked at.
        assert_eq!(options(&[0, 2, 4, 5, 180, 8, 99], true), Ok(HeaderOptions::default()));
    }

    #[test]
    fn a_plain_header_is_read_in_one_look_and_no_other_is() {
        let stamped = Some(Timestamps { value: 7, echo: 8 });
        for (push, timestamps) in [(false, None), (true, None), (false, stamped), (true, stamped)] {
            let fast = FastHeader { seq: SeqNumber(1), ack: SeqNumber(2), window: 3, timestamps, len: 0 };
            let segment = FastSegment { header: fast, push, fin: false, segment_bytes: 0 };
            let mut bytes = [0; HEADER_BYTES_MAX];
            let (len, _) = Header::emit_fast(&segment, (4, 5), &mut bytes);
            let read = Header::parse_fast(&bytes).map(|(header, len)| (format!("{header:?}"), len));
            assert_eq!(read, Some((format!("{fast:?}"), len)));
            for bit in [FIN, SYN, RST, ACK, URG, ECE, CWR] {
                bytes[13] ^= bit;
                assert!(Header::parse_fast(&bytes).is_none(), "{bit}");
                bytes[13] ^= bit;
            }
        }
    }

    #[test]
    fn a_segment_for_no_connection_is_answered_by_a_reset_that_its_sender_believes() {
        let reset = syn().reset(10).unwrap();
        assert_eq!((reset.seq, reset.ack), (SeqNumber(0), Some(SeqNumber(14))));
        let mut segment = syn();
        segment.ack = Some(SeqNumber(99));
        let reset = segment.reset(10).unwrap();
        assert_eq!((reset.seq, reset.ack, reset.source_port), (SeqNumber(99), None, 2));
        assert_eq!(reset.reset(0), None);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_dropped(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok((header, len)) = Header::parse(&bytes) {
                prop_assert!(len <= bytes.len() && header.options.sack.as_slice().len() <= 4);
            }
        }

        #[test]
        fn what_is_written_is_read_back(seq: u32, ack: Option<u32>, sack in proptest::collection::vec(any::<(u32, u32)>(), 0..4)) {
            let urgent = ack.and_then(|ack| u16::try_from(ack >> 20).ok());
            let mut header = Header { seq: SeqNumber(seq), ack: ack.map(SeqNumber), urgent, ..Header::default() };
            header.options.timestamps = Some(Timestamps { value: seq, echo: 1 });
            for (start, end) in sack {
                header.options.sack.push((SeqNumber(start), SeqNumber(end)));
            }
            let mut bytes = [0; HEADER_BYTES_MAX];
            header.emit(&mut bytes);
            prop_assert_eq!(Header::parse(&bytes), Ok((header, header.header_bytes())));
        }
    }
}
