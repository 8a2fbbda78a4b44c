//! Accurate ECN (RFC 9768): the three header flags of the ACE field, and the AccECN option.

use super::Flags;

/// The ECN field of an IP header (RFC 3168 section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IpEcn {
    /// The sender does not support ECN for this packet.
    #[default]
    NotCapable,
    /// ECT(1).
    Capable1,
    /// ECT(0).
    Capable0,
    /// CE: a router has marked the packet because of congestion.
    Congestion,
}

impl IpEcn {
    /// Returns the field that a type-of-service or traffic-class octet contains.
    #[inline]
    pub const fn of_service(service: u8) -> Self {
        match service & 3 {
            0 => Self::NotCapable,
            1 => Self::Capable1,
            2 => Self::Capable0,
            _ => Self::Congestion,
        }
    }

    /// Returns whether a router has marked the packet.
    #[inline]
    pub const fn is_marked(self) -> bool {
        matches!(self, Self::Congestion)
    }

    /// Returns the ACE field that reports this ECN field of a SYN or SYN-ACK (RFC 9768 sections 3.1.1 and 3.2.2.1).
    pub(crate) const fn ace_of_handshake(self) -> u8 {
        match self {
            Self::NotCapable => 0b010,
            Self::Capable1 => 0b011,
            Self::Capable0 => 0b100,
            Self::Congestion => 0b110,
        }
    }
}

impl From<bool> for IpEcn {
    /// Returns the ECN field of a packet that was marked, or of a packet without ECN.
    fn from(is_marked: bool) -> Self {
        if is_marked { Self::Congestion } else { Self::NotCapable }
    }
}

impl Flags {
    /// Returns the flags AE, CWR and ECE as a number: the ACE field (RFC 9768 section 3.2.2).
    pub(crate) fn ace(self) -> u8 {
        u8::from(self.ae) << 2 | u8::from(self.cwr) << 1 | u8::from(self.ece)
    }

    /// Sets the flags AE, CWR and ECE from a number.
    pub(crate) fn set_ace(&mut self, ace: u8) {
        (self.ae, self.cwr, self.ece) = (ace & 4 != 0, ace & 2 != 0, ace & 1 != 0);
    }
}

/// Value range of a counter of the AccECN option, which has 24 bits.
const COUNTER_MASK: u32 = 0xff_ffff;

/// The AccECN option (RFC 9768 section 3.2.3): the lowest 24 bits of three counters of payload bytes, by the ECN field with which the
/// bytes were received. A short option lacks the last counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccurateEcnOption {
    /// Bytes that arrived marked (CE).
    pub marked: Option<u32>,
    /// Bytes that arrived with ECT(0).
    pub capable_0: Option<u32>,
    /// Bytes that arrived with ECT(1).
    pub capable_1: Option<u32>,
}

impl AccurateEcnOption {
    /// Option kinds: the order of the counters is ECT(0), CE, ECT(1) in the first, and ECT(1), CE, ECT(0) in the second.
    pub(super) const KIND_0: u8 = 172;
    pub(super) const KIND_1: u8 = 174;
    /// Length in bytes of the complete option.
    pub(super) const BYTES: u8 = 11;

    /// Returns the complete option with these counters.
    pub(crate) fn new(marked: u32, capable_0: u32, capable_1: u32) -> Self {
        let low = |counter| Some(counter & COUNTER_MASK);
        Self { marked: low(marked), capable_0: low(capable_0), capable_1: low(capable_1) }
    }

    /// Returns the option of a SYN-ACK: the first values of the counters.
    pub(crate) fn first() -> Self {
        Self::new(0, 1, 1)
    }

    /// Returns the increase of a counter that was `before`, if the option has the counter. A decrease counts as none.
    pub(crate) fn increase(counter: Option<u32>, before: u32) -> Option<u32> {
        let increase = counter?.wrapping_sub(before) & COUNTER_MASK;
        Some(if increase > COUNTER_MASK / 2 { 0 } else { increase })
    }

    /// Reads the body of an option of one of the two kinds. As in Linux, an option of another length counts as absent.
    pub(super) fn read(kind: u8, body: &[u8]) -> Option<Self> {
        if !matches!(body.len(), 0 | 3 | 6 | 9) {
            return None;
        }
        let mut counters = body.chunks_exact(3).map(|bytes| u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]));
        let (first, marked, last) = (counters.next(), counters.next(), counters.next());
        Some(if kind == Self::KIND_0 {
            Self { marked, capable_0: first, capable_1: last }
        } else {
            Self { marked, capable_0: last, capable_1: first }
        })
    }

    /// Returns the complete option with a no-operation before it. Its length in bytes is a multiple of 4.
    pub(super) fn encoded(&self) -> [u8; Self::BYTES as usize + 1] {
        let mut bytes = [super::kind::NO_OPERATION, Self::KIND_0, Self::BYTES, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let (counters, _) = bytes[3..].as_chunks_mut::<3>();
        for (place, counter) in counters.iter_mut().zip([self.capable_0, self.marked, self.capable_1]) {
            let [_, high, middle, low] = counter.unwrap_or(0).to_be_bytes();
            *place = [high, middle, low];
        }
        bytes
    }
}
