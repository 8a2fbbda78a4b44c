//! The TCP header (RFC 9293 section 3.1): parses headers from bytes that may come from an attacker, and writes headers with
//! options in the order that Linux uses.
//!
//! `smoltcp::wire` reads the headers of the other protocols, but not of TCP. It stores only three of the up to four SACK blocks,
//! and it checks the length again for each field, which would take too much time here. The caller computes checksums, because they
//! include the IP addresses.
//!
//! [`Header`] is the header of any segment. `FastHeader` is the header of a segment that has an acknowledgement and no option
//! except timestamps. Nearly all segments have such a header. Both types share the code for the fixed fields and the code for the
//! options.

mod accurate_ecn;
mod fast_open;
mod seq;
#[cfg(test)]
mod tests;

use super::checksum::Sum;
use crate::drops::TcpDrop;
pub use accurate_ecn::{AccurateEcnOption, IpEcn};
pub use fast_open::{COOKIE_BYTES_MAX, FastOpenOption};
pub use seq::SeqNumber;

/// Length in bytes of the longest header, including options.
pub const HEADER_BYTES_MAX: usize = 60;

/// Length in bytes of the header without options.
const FIXED_BYTES: usize = 20;
/// The offsets of the sequence number and of the checksum.
pub(crate) const SEQ: std::ops::Range<usize> = 4..8;
pub(crate) const CHECKSUM: std::ops::Range<usize> = 16..18;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;
/// AE is the lowest bit of the byte before the other control bits.
const AE: u16 = 0x100;

/// Option kinds.
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NO_OPERATION: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
    pub(super) const FAST_OPEN: u8 = 34;
}

/// A header without its options, with a method for each field.
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

    /// Returns the length of the header in bytes, including options.
    #[inline]
    fn header_bytes(self) -> usize {
        usize::from(self.0[12] >> 4) * 4
    }

    #[inline]
    fn control_bits(self) -> u8 {
        self.0[13]
    }

    fn accurate_ecn(self) -> bool {
        self.u16_at(12) & AE != 0
    }

    #[inline]
    fn window(self) -> u16 {
        self.u16_at(14)
    }

    fn urgent_pointer(self) -> u16 {
        self.u16_at(18)
    }
}

/// The fields of a header to be written, without its options. The checksum is written as 0.
struct Fields {
    source_port: u16,
    destination_port: u16,
    seq: SeqNumber,
    ack: SeqNumber,
    header_bytes: usize,
    control_bits: u16,
    window: u16,
    urgent_pointer: u16,
}

impl Fields {
    /// Returns the header as 32-bit words.
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

/// The control bits of a header except ACK and URG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// SYN: synchronise sequence numbers.
    pub syn: bool,
    /// FIN: the sender has no more data.
    pub fin: bool,
    /// RST: reset the connection.
    pub rst: bool,
    /// PSH: the receiver should pass the data to its application immediately.
    pub psh: bool,
    /// ECE: the sender received a packet with a congestion mark (RFC 3168).
    pub ece: bool,
    /// CWR: the sender reduced its congestion window (RFC 3168).
    pub cwr: bool,
    /// AE: with ECE and CWR, it is the ACE field of accurate ECN (RFC 9768).
    pub ae: bool,
}

/// The values of the timestamps option (RFC 7323).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timestamps {
    /// TSval: the value of the sender's clock.
    pub value: u32,
    /// TSecr: the latest TSval that the sender received from its peer.
    pub echo: u32,
}

impl Timestamps {
    /// Length in bytes of the “aligned” timestamps option: two no-operations, then the option. RFC 7323 appendix A recommends this
    /// layout.
    const ALIGNED_BYTES: usize = 12;
    const ALIGNED_START: [u8; 4] = [kind::NO_OPERATION, kind::NO_OPERATION, kind::TIMESTAMPS, 10];

    #[inline]
    fn from_body(body: &[u8; 8]) -> Self {
        let [value, echo] = pair_of_words(body);
        Self { value, echo }
    }

    /// Returns the timestamps if `options` is the aligned timestamps option and nothing else.
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

/// A range of sequence numbers, from `start` up to but not including `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Block {
    /// The sequence number of the first byte.
    pub start: SeqNumber,
    /// The sequence number after the last byte.
    pub end: SeqNumber,
}

impl Block {
    /// Returns the number of bytes in the range.
    pub const fn bytes(self) -> u32 {
        self.end.since(self.start)
    }
}

/// The blocks of a SACK option, at most four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlocks {
    blocks: [Block; 4],
    count: u8,
}

impl SackBlocks {
    /// Adds a block. Returns false if the option has four blocks already.
    pub fn push(&mut self, block: Block) -> bool {
        let Some(place) = self.blocks.get_mut(usize::from(self.count)) else { return false };
        *place = block;
        self.count += 1;
        true
    }

    /// Sorts the blocks by their distance from `first`.
    pub(crate) fn sort_from(&mut self, first: SeqNumber) {
        self.blocks[..usize::from(self.count)].sort_unstable_by_key(|block| block.start.since(first));
    }

    /// Returns the blocks in the order of the header.
    pub fn as_slice(&self) -> &[Block] {
        &self.blocks[..usize::from(self.count)]
    }
}

/// The options of a header that this stack uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeaderOptions {
    /// Maximum segment size: the most payload bytes per segment that the sender can receive (SYN only).
    pub mss: Option<u16>,
    /// Window scale: the shift count for the sender's windows, at most 14 (SYN only).
    pub window_scale: Option<u8>,
    /// SACK-permitted: true if the sender supports SACK (SYN only).
    pub sack_permitted: bool,
    /// The timestamps option.
    pub timestamps: Option<Timestamps>,
    /// SACK blocks: ranges of bytes that the sender received after a gap.
    pub sack: SackBlocks,
    /// Fast Open: a cookie, or the request for a cookie (SYN only).
    pub fast_open: Option<FastOpenOption>,
    /// Accurate ECN: numbers of received bytes by their ECN field.
    pub accurate_ecn: Option<AccurateEcnOption>,
}

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// Sequence number of the SYN if that bit is set, otherwise of the first byte of the payload.
    pub seq: SeqNumber,
    /// Acknowledgement number: the sequence number of the next byte that the sender expects. `None` if the ACK bit is not set.
    pub ack: Option<SeqNumber>,
    /// The control bits except ACK and URG.
    pub flags: Flags,
    /// The window field as it is in the header, without window scaling.
    pub window: u16,
    /// Urgent pointer: the distance in bytes from `seq` to the first byte that is not urgent (RFC 9293 MUST-62). `None` if the URG
    /// bit is not set.
    pub urgent: Option<u16>,
    /// The options.
    pub options: HeaderOptions,
}

impl Header {
    /// Parses the header at the start of a segment. Returns the header and its length in bytes.
    ///
    /// # Errors
    /// Returns [`TcpDrop::Truncated`], [`TcpDrop::BadOffset`] or [`TcpDrop::BadOption`] if the bytes are not a valid header.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), TcpDrop> {
        let mut header = Self::default();
        header.read(bytes).map(|len| (header, len))
    }

    /// Like [`Header::parse`], but writes the fields into an existing header. Returning a header would copy fields that were just
    /// stored one by one. The copy would stall until these stores have completed (decision 011).
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
        self.flags = Flags {
            syn: set(SYN),
            fin: set(FIN),
            rst: set(RST),
            psh: set(PSH),
            ece: set(ECE),
            cwr: set(CWR),
            ae: fixed.accurate_ecn(),
        };
        self.window = fixed.window();
        self.urgent = set(URG).then(|| fixed.urgent_pointer());
        self.options.parse(options, self.flags.syn)?;
        Ok(len)
    }

    /// Returns the length of the header in bytes, including options.
    pub fn header_bytes(&self) -> usize {
        FIXED_BYTES + self.options.len()
    }

    /// Writes the header to the start of `into`, which must have at least [`Header::header_bytes`] bytes. The checksum field is
    /// left 0.
    #[inline]
    pub fn emit(&self, into: &mut [u8]) {
        let Flags { syn, fin, rst, psh, ece, cwr, ae } = self.flags;
        let bit = |set: bool, bit: u8| if set { u16::from(bit) } else { 0 };
        let control_bits = bit(fin, FIN)
            | bit(syn, SYN)
            | bit(rst, RST)
            | bit(psh, PSH)
            | bit(self.ack.is_some(), ACK)
            | bit(self.urgent.is_some(), URG)
            | bit(ece, ECE)
            | bit(cwr, CWR)
            | if ae { AE } else { 0 };
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

    /// Returns SEG.LEN: how many sequence numbers a segment with this header and `payload_bytes` bytes of payload occupies.
    pub fn sequence_len(&self, payload_bytes: usize) -> u32 {
        let payload = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
        payload.saturating_add(u32::from(self.flags.syn)).saturating_add(u32::from(self.flags.fin))
    }

    /// Returns the header of the reset that answers a segment without a connection (RFC 9293 section 3.10.7.1). Returns `None` if
    /// the segment is a reset itself.
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

/// The header of a segment that has an acknowledgement, and no option except the aligned timestamps option.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FastHeader {
    pub(crate) seq: SeqNumber,
    pub(crate) ack: SeqNumber,
    pub(crate) window: u16,
    pub(crate) push: bool,
    pub(crate) timestamps: Option<Timestamps>,
    /// Length of the payload in bytes.
    pub(crate) len: u32,
}

impl FastHeader {
    /// Parses a header of this kind. Returns the header and its length in bytes; the caller sets `len`. Returns `None` for every
    /// other header, even if it is valid. The caller then uses [`Header::read`].
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
        let push = fixed.control_bits() & PSH != 0;
        let header = Self { seq: fixed.seq(), ack: fixed.ack(), window: fixed.window(), push, timestamps, len: 0 };
        Some((header, header_bytes))
    }

    /// Writes the header to the start of `into`; the checksum field is left 0. Returns the header's length in bytes, and the sum
    /// of its words for the checksum. The sum is computed here from the values, because reading the stored header back would
    /// stall: the loads would have another width than the stores.
    #[inline]
    pub(crate) fn emit(&self, ports: Ports, fin: bool, into: &mut [u8]) -> (usize, Sum) {
        let option_bytes = if self.timestamps.is_some() { Timestamps::ALIGNED_BYTES } else { 0 };
        let fields = Fields {
            source_port: ports.source,
            destination_port: ports.destination,
            seq: self.seq,
            ack: self.ack,
            header_bytes: FIXED_BYTES + option_bytes,
            control_bits: u16::from(ACK | if self.push { PSH } else { 0 } | if fin { FIN } else { 0 }),
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

/// The source and destination port of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) source: u16,
    pub(crate) destination: u16,
}

impl HeaderOptions {
    /// Parses the options of a header. Most headers have only the aligned timestamps option, which is recognised by one
    /// comparison.
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

    /// Parses options one by one (RFC 9293 section 3.1). An option of an unknown kind, or of a known kind with a wrong length, is
    /// skipped (MUST-6). An option with a length below 2, or that extends beyond the header, is an error (MUST-7).
    fn walk(&mut self, mut bytes: &[u8], syn: bool) -> Result<(), TcpDrop> {
        while let [kind, rest @ ..] = bytes {
            // RFC 9293 MUST-4, MUST-5, MUST-64, MUST-68: options can be in any segment and can start at any byte. All kinds except
            // END and NO_OPERATION have a length.
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
            // RFC 9293 MUST-14, MUST-65: the MSS is read only from a SYN.
            (kind::MSS, [high, low]) if syn => self.mss = Some(u16::from_be_bytes([*high, *low])),
            // RFC 7323 section 2.3: a shift count above 14 is treated as 14.
            (kind::WINDOW_SCALE, [shift]) if syn => self.window_scale = Some((*shift).min(14)),
            (kind::SACK_PERMITTED, []) if syn => self.sack_permitted = true,
            (kind::SACK, blocks) if !syn && blocks.len() % 8 == 0 => {
                for block in blocks.as_chunks::<8>().0 {
                    let [start, end] = pair_of_words(block).map(SeqNumber);
                    self.sack.push(Block { start, end });
                }
            }
            (AccurateEcnOption::KIND_0 | AccurateEcnOption::KIND_1, counters) => {
                self.accurate_ecn = AccurateEcnOption::read(kind, counters);
            }
            (kind::FAST_OPEN, cookie) if syn => self.fast_open = FastOpenOption::new(cookie),
            (kind::TIMESTAMPS, body) => {
                if let Ok(body) = body.try_into() {
                    self.timestamps = Some(Timestamps::from_body(body));
                }
            }
            _ => {}
        }
    }

    /// Returns the length of the encoded options in bytes, which is always a multiple of 4. Padding is written as no-operations
    /// before options, so no padding is needed after the last option (RFC 9293 MUST-69).
    fn len(&self) -> usize {
        let mut len = 0;
        self.encode(|piece| len += piece.len());
        len
    }

    /// Calls `put` for each piece of the encoded options, in the order of the header. Like Linux, this is MSS, SACK-permitted,
    /// timestamps, window scale, Fast Open, accurate ECN, SACK. SACK-permitted replaces the two no-operations before the timestamps.
    #[inline]
    fn encode(&self, mut put: impl FnMut(&[u8])) {
        const NOP: u8 = kind::NO_OPERATION;
        // RFC 9293 MUST-14, MUST-68: a SYN has the MSS option, and the option has a length.
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
        if let Some(option) = &self.fast_open {
            // A cookie has an even number of bytes, so the option needs two bytes of padding or none.
            let len = option.cookie().len();
            put(&[kind::FAST_OPEN, u8::try_from(len + 2).unwrap_or(u8::MAX)]);
            put(option.cookie());
            if len.is_multiple_of(4) {
                put(&[NOP, NOP]);
            }
        }
        if let Some(option) = &self.accurate_ecn {
            put(&option.encoded());
        }
        if self.sack.count > 0 {
            put(&[NOP, NOP, kind::SACK, 2 + 8 * self.sack.count]);
            for Block { start, end } in self.sack.as_slice() {
                put([start.0, end.0].map(u32::to_be_bytes).as_flattened());
            }
        }
    }
}
