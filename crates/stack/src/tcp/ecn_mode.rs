//! The kind of ECN on which both sides agree in the handshake: none, classic ECN (RFC 3168) or accurate ECN (RFC 9768).

use super::config::Config;
use crate::wire::tcp::Flags;

/// The kind of ECN that a connection uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EcnMode {
    Off,
    /// RFC 3168.
    Classic,
    /// RFC 9768.
    Accurate,
}

/// The ACE field of a SYN that offers accurate ECN, of a SYN that offers classic ECN, and of a SYN-ACK that accepts classic ECN.
const ACE_OFFER: u8 = 0b111;
const ACE_OFFER_CLASSIC: u8 = 0b011;
const ACE_ACCEPT_CLASSIC: u8 = 0b001;

impl EcnMode {
    /// Returns what a peer's SYN offers and this side's configuration permits. An unknown combination of flags counts as an offer of
    /// accurate ECN (RFC 9768 section 3.1.3).
    pub(super) fn of_syn(flags: Flags, config: &Config, is_passive: bool) -> Self {
        let classic = if is_passive { config.accepts_ecn } else { config.ecn };
        let accurate = if is_passive { config.accepts_accurate_ecn } else { config.offers_accurate_ecn };
        match flags.ace() {
            0 => Self::Off,
            ACE_OFFER_CLASSIC if classic => Self::Classic,
            ACE_OFFER_CLASSIC => Self::Off,
            _ if accurate => Self::Accurate,
            // RFC 3168 section 6.1.1: a SYN with both ECE and CWR offers ECN.
            _ if classic && flags.ece && flags.cwr => Self::Classic,
            _ => Self::Off,
        }
    }

    /// Returns what a SYN-ACK accepts of this side's offer. A peer that echoes the flags of the SYN does not support ECN.
    pub(super) fn of_syn_ack(flags: Flags, config: &Config) -> Self {
        match flags.ace() {
            _ if !config.ecn => Self::Off,
            0 | ACE_OFFER => Self::Off,
            ACE_ACCEPT_CLASSIC => Self::Classic,
            _ if config.offers_accurate_ecn => Self::Accurate,
            _ if flags.ece && !flags.cwr => Self::Classic,
            _ => Self::Off,
        }
    }
}
