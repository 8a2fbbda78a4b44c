//! Events of direct connections (`docs/direct.md`).

use super::fields::Reader;

/// What a guest says about memory that the application shares with another one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the line of each event covers its fields")]
pub enum DirectEvent {
    /// The guest has passed the descriptors of a new couple (`passing.rs`). The application answers `CoupleMemory`.
    Couple { couple: u64 },
    /// The guest has passed the memory of the other application of a couple.
    PeerMemory { couple: u64 },
    /// The connection may use this slot of a couple. `sent` and `received` bytes were moved by TCP before the application has used the
    /// connection. `send_max` bytes in memory may be unread (`SO_SNDBUF`).
    Slot { couple: u64, slot: u16, generation: u64, sent: u64, received: u64, send_max: u32 },
    /// The other application of a couple has ended, or the control program has ended the couple.
    CoupleGone { couple: u64 },
    /// Bytes that another application has received by memory and not read. They follow the next `after` bytes that come by TCP.
    Rest { after: u64, bytes: Vec<u8> },
}

impl DirectEvent {
    /// Appends the record to `into`. Returns its kind.
    pub(super) fn write(&self, into: &mut Vec<u8>) -> u8 {
        match self {
            Self::Couple { couple } => put_couple(into, *couple, 20),
            Self::PeerMemory { couple } => put_couple(into, *couple, 21),
            Self::Slot { couple, slot, generation, sent, received, send_max } => {
                into.extend(slot.to_le_bytes());
                into.extend(send_max.to_le_bytes());
                [couple, generation, sent, received].into_iter().for_each(|word| into.extend(word.to_le_bytes()));
                22
            }
            Self::CoupleGone { couple } => put_couple(into, *couple, 23),
            Self::Rest { after, bytes } => {
                into.extend(after.to_le_bytes());
                into.extend(bytes);
                24
            }
        }
    }

    pub(super) fn parse(kind: u8, from: &mut Reader<'_>) -> Option<Self> {
        Some(match kind {
            20 => Self::Couple { couple: from.u64()? },
            21 => Self::PeerMemory { couple: from.u64()? },
            22 => Self::Slot {
                slot: from.u16()?,
                send_max: from.u32()?,
                couple: from.u64()?,
                generation: from.u64()?,
                sent: from.u64()?,
                received: from.u64()?,
            },
            23 => Self::CoupleGone { couple: from.u64()? },
            24 => Self::Rest { after: from.u64()?, bytes: from.rest() },
            _ => return None,
        })
    }
}

fn put_couple(into: &mut Vec<u8>, couple: u64, kind: u8) -> u8 {
    into.extend(couple.to_le_bytes());
    kind
}
