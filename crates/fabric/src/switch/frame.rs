//! The first bytes of an Ethernet frame, in private memory, and the VLAN tag in them (IEEE 802.1Q).

use super::drops::DropReason;
use siga_stack::limits::HEADER_BYTES_MAX;

/// Length of an Ethernet header without a tag.
pub(crate) const LINK_BYTES: usize = 14;
/// Length of a VLAN tag.
pub(crate) const TAG_BYTES: usize = 4;
/// Number of bytes that are copied of each frame: as many as the stack needs, and a tag.
pub(crate) const HEAD_BYTES_MAX: usize = HEADER_BYTES_MAX + TAG_BYTES;

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const TAGGED: u16 = 0x8100;
const SERVICE_TAGGED: u16 = 0x88a8;
/// Offset of the type field, which is also where a tag begins.
const TYPE_AT: usize = 12;

/// The first bytes of a frame, without a tag, and the length of the complete frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
    /// The number of bytes behind the header.
    rest: usize,
}

impl Header {
    /// Makes the header of a frame of `frame_bytes` bytes. `fill` writes its first bytes.
    #[inline]
    pub(crate) fn new(frame_bytes: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        let len = frame_bytes.min(HEAD_BYTES_MAX);
        let mut bytes = [0; HEAD_BYTES_MAX];
        fill(&mut bytes[..len]);
        Self { bytes, len, rest: frame_bytes - len }
    }

    /// Returns the header without its tag.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the length of the complete frame.
    #[inline]
    pub(crate) fn frame_bytes(&self) -> usize {
        self.len + self.rest
    }

    /// Returns the part of the header behind the Ethernet header.
    #[inline]
    pub(crate) fn packet(&self) -> &[u8] {
        self.bytes().get(LINK_BYTES..).unwrap_or_default()
    }

    /// Returns the length of the frame behind the Ethernet header.
    #[inline]
    pub(crate) fn packet_bytes(&self) -> usize {
        self.frame_bytes().saturating_sub(LINK_BYTES)
    }

    fn type_at(&self, at: usize) -> Option<u16> {
        self.bytes().get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
    }

    /// Removes the tag from the header and returns it.
    #[inline]
    pub(crate) fn take_tag(&mut self) -> Result<Option<u16>, DropReason> {
        match self.type_at(TYPE_AT) {
            None => Err(DropReason::Malformed),
            Some(TAGGED) => self.take_first_tag().map(Some),
            Some(SERVICE_TAGGED) => Err(DropReason::DoubleTag),
            Some(_) => Ok(None),
        }
    }

    #[cold]
    fn take_first_tag(&mut self) -> Result<u16, DropReason> {
        let tag = self.type_at(TYPE_AT + 2).ok_or(DropReason::Malformed)?;
        match self.type_at(TYPE_AT + TAG_BYTES) {
            None => return Err(DropReason::Malformed),
            // A frame with two tags could leave the switch with one, and so reach a VLAN that it may not reach.
            Some(TAGGED | SERVICE_TAGGED) => return Err(DropReason::DoubleTag),
            Some(_) => {}
        }
        self.bytes.copy_within(TYPE_AT + TAG_BYTES..self.len, TYPE_AT);
        self.len -= TAG_BYTES;
        Ok(tag)
    }

    /// Returns the destination, the source and the type of a frame without a tag.
    #[inline]
    pub(crate) fn link(&self) -> Result<([u8; 6], [u8; 6], u16), DropReason> {
        let (to, rest) = self.bytes().split_first_chunk().ok_or(DropReason::Malformed)?;
        let (from, rest) = rest.split_first_chunk().ok_or(DropReason::Malformed)?;
        let kind = rest.first_chunk().ok_or(DropReason::Malformed)?;
        Ok((*to, *from, u16::from_be_bytes(*kind)))
    }
}

/// Returns true for the addresses of protocols between bridges, which no bridge forwards (IEEE 802.1Q 8.6.3).
pub(crate) fn is_reserved(to: [u8; 6]) -> bool {
    matches!(to, [0x01, 0x80, 0xc2, 0, 0, last] if last < 0x10)
}

/// Writes a header with a tag to `into`, and returns its length.
pub(crate) fn with_tag(header: &[u8], tag: u16, into: &mut [u8]) -> usize {
    let (addresses, rest) = header.split_at(TYPE_AT.min(header.len()));
    let len = header.len() + TAG_BYTES;
    into[..addresses.len()].copy_from_slice(addresses);
    into[addresses.len()..addresses.len() + 2].copy_from_slice(&TAGGED.to_be_bytes());
    into[addresses.len() + 2..addresses.len() + TAG_BYTES].copy_from_slice(&tag.to_be_bytes());
    into[addresses.len() + TAG_BYTES..len].copy_from_slice(rest);
    len
}
