//! TCP's header (RFC 9293 section 3.1): parsed from bytes that may be hostile, written with options in Linux's order.
//!
//! `smoltcp::wire` reads the other protocols' headers, but not this one: it keeps three of four SACK blocks, and its check of
//! each field costs too much here. The caller knows the addresses, so the caller computes checksums.
//!
//! [`Header`] describes any segment. `FastHeader` describes a segment with an acknowledgement and at most the timestamps
//! option, which nearly all segments are. Both share one description of the fields and one of the options.

mod seq;
#[cfg(test)]
mod tests;

use super::checksum::Sum;
use crate::drops::TcpDrop;
pub use seq::SeqNumber;

/// Longest header, options included.
pub const HEADER_BYTES_MAX: usize = 60;

/// Bytes of the header without options.
const FIXED_BYTES: usize = 20;
/// Where the checksum lies.
pub(crate) const CHECKSUM: std::ops::Range<usize> = 16..18;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

/// Kinds of options.
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NO_OPERATION: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
}

/// The header without options, field by field.
#[derive(Clone, Copy)]
struct Fixed<'a>(&'a [u8; FIXED_BYTES]);

impl Fixed<'_> {
    #[inline]
    fn u16_at(self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    #[inline]
    fn u32_at(self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    fn source_port(self) -> u16 {
        self.u16_at(0)
    }

    fn destination_port(self) -> u16 {
        self.u16_at(2)
    }

    #[inline]
    fn seq(self) -> SeqNumber {
        SeqNumber(self.u32_at(4))
    }

    #[inline]
    fn ack(self) -> SeqNumber {
        SeqNumber(self.u32_at(8))
    }

    /// Bytes of the header, options included.
    #[inline]
    fn header_bytes(self) -> usize {
        usize::from(self.0[12] >> 4) * 4
    }

    #[inline]
    fn control_bits(self) -> u8 {
        self.0[13]
    }

    #[inline]
    fn window(self) -> u16 {
        self.u16_at(14)
    }

    fn urgent_pointer(self) -> u16 {
        self.u16_at(18)
    }
}

/// The fields of a header that is written, its options apart. The checksum is left 0.
struct Fields {
    source_port: u16,
    destination_port: u16,
    seq: SeqNumber,
    ack: SeqNumber,
    header_bytes: usize,
    control_bits: u8,
    window: u16,
    urgent_pointer: u16,
}

impl Fields {
    /// The header as words of 32 bits.
    #[inline]
    fn words(&self) -> [u32; FIXED_BYTES / 4] {
        let data_offset = u32::try_from(self.header_bytes / 4).unwrap_or(0);
        [
            u32::from(self.source_port) << 16 | u32::from(self.destination_port),
            self.seq.0,
            self.ack.0,
            data_offset << 28 | u32::from(self.control_bits) << 16 | u32::from(self.window),
            u32::from(self.urgent_pointer),
        ]
    }
}

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

impl Timestamps {
    /// Bytes of the option behind two no-operations, as RFC 7323 appendix A recommends.
    const ALIGNED_BYTES: usize = 12;
    const ALIGNED_START: [u8; 4] = [kind::NO_OPERATION, kind::NO_OPERATION, kind::TIMESTAMPS, 10];

    #[inline]
    fn from_body(body: &[u8; 8]) -> Self {
        let [value, echo] = pair_of_words(body);
        Self { value, echo }
    }

    /// Reads options that are the aligned timestamps option and nothing else.
    #[inline]
    fn from_aligned(options: &[u8; Self::ALIGNED_BYTES]) -> Option<Self> {
        let (start, body) = options.split_first_chunk::<4>()?;
        (*start == Self::ALIGNED_START).then(|| body.first_chunk().map(Self::from_body))?
    }

    #[inline]
    fn aligned_words(self) -> [u32; Self::ALIGNED_BYTES / 4] {
        [u32::from_be_bytes(Self::ALIGNED_START), self.value, self.echo]
    }
}

#[inline]
fn pair_of_words(bytes: &[u8; 8]) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = *bytes;
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
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
    /// Blocks that arrived ahead of a gap.
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
    /// Returns [`TcpDrop::Truncated`], [`TcpDrop::BadOffset`] or [`TcpDrop::BadOption`] if the bytes are not a valid header.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), TcpDrop> {
        let mut header = Self::default();
        header.read(bytes).map(|len| (header, len))
    }

    /// Like [`Header::parse`], but fills a header where it lies. A copy of fields that were just stored one by one would stall
    /// until the stores have completed (decision 011).
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<usize, TcpDrop> {
        let fixed = Fixed(bytes.first_chunk().ok_or(TcpDrop::Truncated)?);
        let len = fixed.header_bytes();
        let options = bytes.get(FIXED_BYTES..len).ok_or(TcpDrop::BadOffset)?;
        let bits = fixed.control_bits();
        let set = |bit: u8| bits & bit != 0;
        self.source_port = fixed.source_port();
        self.destination_port = fixed.destination_port();
        self.seq = fixed.seq();
        self.ack = set(ACK).then(|| fixed.ack());
        self.flags = Flags { syn: set(SYN), fin: set(FIN), rst: set(RST), psh: set(PSH), ece: set(ECE), cwr: set(CWR) };
        self.window = fixed.window();
        self.urgent = set(URG).then(|| fixed.urgent_pointer());
        self.options.parse(options, self.flags.syn)?;
        Ok(len)
    }

    /// Bytes of the header, options included.
    pub fn header_bytes(&self) -> usize {
        FIXED_BYTES + self.options.len()
    }

    /// Writes the header to the front of `into`, which must have [`Header::header_bytes`] bytes; the checksum is left 0.
    #[inline]
    pub fn emit(&self, into: &mut [u8]) {
        let Flags { syn, fin, rst, psh, ece, cwr } = self.flags;
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let control_bits = bit(fin, FIN)
            | bit(syn, SYN)
            | bit(rst, RST)
            | bit(psh, PSH)
            | bit(self.ack.is_some(), ACK)
            | bit(self.urgent.is_some(), URG)
            | bit(ece, ECE)
            | bit(cwr, CWR);
        let fields = Fields {
            source_port: self.source_port,
            destination_port: self.destination_port,
            seq: self.seq,
            ack: self.ack.unwrap_or_default(),
            header_bytes: self.header_bytes(),
            control_bits,
            window: self.window,
            urgent_pointer: self.urgent.unwrap_or(0),
        };
        let Some((fixed, mut options)) = into.split_first_chunk_mut::<FIXED_BYTES>() else { return };
        fixed.copy_from_slice(fields.words().map(u32::to_be_bytes).as_flattened());
        self.options.encode(|piece| {
            let (front, rest) = std::mem::take(&mut options).split_at_mut(piece.len());
            front.copy_from_slice(piece);
            options = rest;
        });
    }

    /// SEG.LEN: the sequence numbers that the segment takes with this many bytes of payload.
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

/// The header of a segment that carries an acknowledgement, payload and at most the aligned timestamps option.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FastHeader {
    pub(crate) seq: SeqNumber,
    pub(crate) ack: SeqNumber,
    pub(crate) window: u16,
    pub(crate) timestamps: Option<Timestamps>,
    /// Bytes of payload.
    pub(crate) len: u32,
}

impl FastHeader {
    /// Reads a header and returns it with its length. Returns `None` for any other header, valid or not: that one is for
    /// [`Header::read`]. The caller fills in the payload's length.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        const WITH_TIMESTAMPS: usize = FIXED_BYTES + Timestamps::ALIGNED_BYTES;
        let (fixed, rest) = bytes.split_first_chunk()?;
        let fixed = Fixed(fixed);
        if fixed.control_bits() & !PSH != ACK {
            return None;
        }
        let header_bytes = fixed.header_bytes();
        let timestamps = match header_bytes {
            FIXED_BYTES => None,
            WITH_TIMESTAMPS => Some(Timestamps::from_aligned(rest.first_chunk()?)?),
            _ => return None,
        };
        Some((Self { seq: fixed.seq(), ack: fixed.ack(), window: fixed.window(), timestamps, len: 0 }, header_bytes))
    }

    /// Writes the header to the front of `into`, its checksum left 0. Returns its length and its sum: reading back what was just
    /// written in pieces of another size would stall.
    #[inline]
    pub(crate) fn emit(&self, ports: Ports, push: bool, fin: bool, into: &mut [u8]) -> (usize, Sum) {
        let option_bytes = if self.timestamps.is_some() { Timestamps::ALIGNED_BYTES } else { 0 };
        let fields = Fields {
            source_port: ports.source,
            destination_port: ports.destination,
            seq: self.seq,
            ack: self.ack,
            header_bytes: FIXED_BYTES + option_bytes,
            control_bits: ACK | if push { PSH } else { 0 } | if fin { FIN } else { 0 },
            window: self.window,
            urgent_pointer: 0,
        };
        let fixed = fields.words();
        let mut sum = fixed.iter().fold(Sum::default(), |sum, word| sum.long(*word));
        let (places, _) = into.as_chunks_mut::<4>();
        for (place, word) in places.iter_mut().zip(fixed) {
            *place = word.to_be_bytes();
        }
        if let Some(timestamps) = self.timestamps {
            let option = timestamps.aligned_words();
            sum = option.iter().fold(sum, |sum, word| sum.long(*word));
            for (place, word) in places.iter_mut().skip(fixed.len()).zip(option) {
                *place = word.to_be_bytes();
            }
        }
        (fields.header_bytes, sum)
    }
}

/// The ports of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) source: u16,
    pub(crate) destination: u16,
}

impl HeaderOptions {
    /// Reads options. Nearly all segments have the aligned timestamps option alone; one comparison finds these.
    #[inline]
    fn parse(&mut self, bytes: &[u8], syn: bool) -> Result<(), TcpDrop> {
        if let Ok(aligned) = bytes.try_into()
            && let Some(timestamps) = Timestamps::from_aligned(aligned)
        {
            self.timestamps = Some(timestamps);
            return Ok(());
        }
        self.walk(bytes, syn)
    }

    /// Walks options (RFC 9293 section 3.1). Unknown kinds are skipped (MUST-6). A length below 2 or beyond the end is an error
    /// (MUST-7). A known kind with a wrong length is skipped like an unknown one.
    fn walk(&mut self, mut bytes: &[u8], syn: bool) -> Result<(), TcpDrop> {
        while let [kind, rest @ ..] = bytes {
            // RFC 9293 MUST-4, MUST-5, MUST-64, MUST-68: in any segment, at any byte, and with a length, but for these two.
            match *kind {
                kind::END => break,
                kind::NO_OPERATION => {
                    bytes = rest;
                    continue;
                }
                kind::MSS..=u8::MAX => {}
            }
            let len = usize::from(*rest.first().ok_or(TcpDrop::BadOption)?);
            let body = bytes.get(2..len).ok_or(TcpDrop::BadOption)?;
            self.read(*kind, body, syn);
            bytes = &bytes[len..];
        }
        Ok(())
    }

    fn read(&mut self, kind: u8, body: &[u8], syn: bool) {
        match (kind, body) {
            // RFC 9293 MUST-14, MUST-65.
            (kind::MSS, [high, low]) if syn => self.mss = Some(u16::from_be_bytes([*high, *low])),
            // RFC 7323 section 2.3: a shift above 14 is taken as 14.
            (kind::WINDOW_SCALE, [shift]) if syn => self.window_scale = Some((*shift).min(14)),
            (kind::SACK_PERMITTED, []) if syn => self.sack_permitted = true,
            (kind::SACK, blocks) if !syn && blocks.len() % 8 == 0 => {
                for block in blocks.as_chunks::<8>().0 {
                    let [start, end] = pair_of_words(block).map(SeqNumber);
                    self.sack.push((start, end));
                }
            }
            (kind::TIMESTAMPS, body) => {
                if let Ok(body) = body.try_into() {
                    self.timestamps = Some(Timestamps::from_body(body));
                }
            }
            _ => {}
        }
    }

    /// Bytes on the wire: always a multiple of 4, padded with no-operations in front, so that nothing follows the last option
    /// (RFC 9293 MUST-69).
    fn len(&self) -> usize {
        let mut len = 0;
        self.encode(|piece| len += piece.len());
        len
    }

    /// Hands the options out piece by piece, as they lie on the wire. The order is Linux's: MSS, SACK-permitted in place of the
    /// padding before the timestamps, timestamps, window scale, SACK.
    #[inline]
    fn encode(&self, mut put: impl FnMut(&[u8])) {
        const NOP: u8 = kind::NO_OPERATION;
        // RFC 9293 MUST-14, MUST-68.
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            put(&[kind::MSS, 4, high, low]);
        }
        match (self.timestamps.is_some(), self.sack_permitted) {
            (true, true) => put(&[kind::SACK_PERMITTED, 2]),
            (true, false) => put(&[NOP, NOP]),
            (false, true) => put(&[NOP, NOP, kind::SACK_PERMITTED, 2]),
            (false, false) => {}
        }
        if let Some(timestamps) = self.timestamps {
            put(&[kind::TIMESTAMPS, 10]);
            put([timestamps.value, timestamps.echo].map(u32::to_be_bytes).as_flattened());
        }
        if let Some(shift) = self.window_scale {
            put(&[NOP, kind::WINDOW_SCALE, 3, shift]);
        }
        if self.sack.count > 0 {
            put(&[NOP, NOP, kind::SACK, 2 + 8 * self.sack.count]);
            for (start, end) in self.sack.as_slice() {
                put([start.0, end.0].map(u32::to_be_bytes).as_flattened());
            }
        }
    }
}
