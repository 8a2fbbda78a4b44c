//! Converts between the stack's marks and the header that the kernel puts before each frame of a device with offload (virtio 1.2,
//! 5.1.6).
//!
//! If a checksum is unfilled, the kernel expects the sum of the pseudo header in its field; the stack leaves an arbitrary value
//! there.

use siga_stack::link::frame::Marks;

/// The length of the header.
pub(crate) const HEADER_BYTES: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Returns the marks of a received frame. `None` if the frame needs a kind of segmentation that was not agreed: that of UDP.
pub(crate) fn marks(header: &[u8; HEADER_BYTES]) -> Option<Marks> {
    let [flags, kind, _, _, low, high, ..] = *header;
    let segment_bytes = match kind {
        0 => 0,
        TCP_V4 | TCP_V6 => u16::from_ne_bytes([low, high]),
        _ => return None,
    };
    Some(Marks { checksum_unfilled: flags & NEEDS_CHECKSUM != 0, segment_bytes })
}

/// Makes the header for a frame. `head` has the first bytes of the frame, whose link header is `link_bytes` long. Returns `None`
/// if the marks do not fit the frame.
pub(crate) fn header(head: &mut [u8], link_bytes: usize, marks: Marks) -> Option<[u8; HEADER_BYTES]> {
    let mut header = [0; HEADER_BYTES];
    if marks == Marks::default() {
        return Some(header);
    }
    let packet = head.get_mut(link_bytes..)?;
    let place = find_transport(packet)?;
    let field = match place.protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    let sum = pseudo_sum(packet, &place)?;
    packet.get_mut(place.at + field..place.at + field + 2)?.copy_from_slice(&sum.to_be_bytes());
    header[0] = NEEDS_CHECKSUM;
    let start = u16::try_from(link_bytes + place.at).ok()?;
    header[6..8].copy_from_slice(&start.to_ne_bytes());
    header[8..10].copy_from_slice(&u16::try_from(field).ok()?.to_ne_bytes());
    if marks.segment_bytes > 0 {
        header[1] = if place.is_v4 { TCP_V4 } else { TCP_V6 };
        let transport_bytes = u16::from(*packet.get(place.at + 12)? >> 4) * 4;
        header[2..4].copy_from_slice(&(start + transport_bytes).to_ne_bytes());
        header[4..6].copy_from_slice(&marks.segment_bytes.to_ne_bytes());
    }
    Some(header)
}

/// The place of a packet's transport header.
struct Transport {
    is_v4: bool,
    protocol: u8,
    at: usize,
    /// The length of the transport header and everything after it.
    bytes: usize,
}

fn find_transport(packet: &[u8]) -> Option<Transport> {
    let word = |at: usize| Some(usize::from(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?])));
    if packet.first()? >> 4 == 4 {
        let at = usize::from(packet[0] & 15) * 4;
        return Some(Transport { is_v4: true, protocol: *packet.get(9)?, at, bytes: word(2)?.checked_sub(at)? });
    }
    let (mut protocol, mut at, end) = (*packet.get(6)?, 40, 40 + word(4)?);
    // Skip hop-by-hop options, routing headers and destination options (RFC 8200 4).
    while let 0 | 43 | 60 = protocol {
        protocol = *packet.get(at)?;
        at += (usize::from(*packet.get(at + 1)?) + 1) * 8;
    }
    Some(Transport { is_v4: false, protocol, at, bytes: end.checked_sub(at)? })
}

/// Returns the folded sum of the pseudo header (RFC 9293 3.1, RFC 8200 8.1), not complemented.
fn pseudo_sum(packet: &[u8], place: &Transport) -> Option<u16> {
    let addresses = packet.get(if place.is_v4 { 12..20 } else { 8..40 })?;
    let words = addresses.chunks_exact(2).map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum = words.sum::<u64>() + u64::from(place.protocol) + u64::try_from(place.bytes).ok()?;
    while sum > u64::from(u16::MAX) {
        sum = (sum >> 16) + (sum & u64::from(u16::MAX));
    }
    u16::try_from(sum).ok()
}
