//! Converts between marks and the header that the kernel puts in front of each frame of a TAP device with offload (virtio 1.2,
//! 5.1.6).
//!
//! If a checksum is unfilled, the kernel expects the sum of the pseudo header in its field; the stack leaves an arbitrary value
//! there. The bytes of a header can come from a hostile process, because a packet socket can set them.

use crate::link::frame::Marks;
use crate::wire::checksum::Sum;
use crate::wire::ethernet::{IPV4, IPV6};
use crate::wire::protocol::{TCP, UDP};

/// The length of the header in bytes.
pub const HEADER_BYTES: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
/// A bit that is added to the two numbers above.
const ECN: u8 = 0x80;
/// Offsets of the checksum in the transport headers.
const TCP_CHECKSUM_AT: usize = 16;
const UDP_CHECKSUM_AT: usize = 6;

/// Returns the marks of a frame that a device has delivered with this header. `link_bytes` is the length of the frame's link
/// header. If the unfilled checksum is not that of the frame's own TCP or UDP header, but for example that of a tunnelled packet,
/// fills it in. Returns `None` if the header contradicts the frame, or requests a segmentation that was not agreed, such as that
/// of UDP.
pub fn receive(header: &[u8; HEADER_BYTES], frame: &mut [u8], link_bytes: usize) -> Option<Marks> {
    let [flags, kind, _, _, size_low, size_high, start_low, start_high, offset_low, offset_high] = *header;
    let word = |low, high| u16::from_ne_bytes([low, high]);
    // The bit says that the sender reduced its window (ECN), which the TCP header also says.
    let is_tcp = matches!(kind & !ECN, TCP_V4 | TCP_V6);
    let kind = if is_tcp { kind & !ECN } else { kind };
    let segment_bytes = match kind {
        0 => 0,
        TCP_V4 | TCP_V6 => word(size_low, size_high),
        _ => return None,
    };
    let is_large = kind != 0;
    if flags & NEEDS_CHECKSUM == 0 {
        return (!is_large).then(Marks::default);
    }
    let (start, offset) = (usize::from(word(start_low, start_high)), usize::from(word(offset_low, offset_high)));
    let own = frame.get(link_bytes..).and_then(find_transport);
    let is_own = own.as_ref().is_some_and(|own| own.checksum_at() == Some(offset) && link_bytes + own.at == start);
    if is_own {
        let fits = |own: &Transport| own.protocol == TCP && segment_bytes > 0 && own.is_v4 == (kind == TCP_V4);
        let fits = !is_large || own.as_ref().is_some_and(fits);
        return fits.then_some(Marks { checksum_unfilled: true, segment_bytes });
    }
    if is_large {
        return None;
    }
    let bytes = frame.get(start..)?;
    let sum = Sum::default().bytes(bytes).checksum();
    let filled = if sum == 0 { u16::MAX } else { sum };
    bytes.get(offset..offset + 2)?;
    frame[start + offset..start + offset + 2].copy_from_slice(&filled.to_be_bytes());
    Some(Marks::default())
}

/// Makes the header for a frame. `head` has the first bytes of the frame, whose link header is `link_bytes` long; the sum of the
/// pseudo header is written into it. Returns `None` if the marks do not fit the frame.
pub fn header(head: &mut [u8], link_bytes: usize, marks: Marks) -> Option<[u8; HEADER_BYTES]> {
    let mut header = [0; HEADER_BYTES];
    if marks == Marks::default() {
        return Some(header);
    }
    let packet = head.get_mut(link_bytes..)?;
    let place = find_transport(packet)?;
    let field = place.checksum_at()?;
    let sum = pseudo_sum(packet, &place)?;
    packet.get_mut(place.at + field..place.at + field + 2)?.copy_from_slice(&sum.to_be_bytes());
    header[0] = NEEDS_CHECKSUM;
    let start = u16::try_from(link_bytes + place.at).ok()?;
    header[6..8].copy_from_slice(&start.to_ne_bytes());
    header[8..10].copy_from_slice(&u16::try_from(field).ok()?.to_ne_bytes());
    if marks.segment_bytes > 0 {
        if place.protocol != TCP {
            return None;
        }
        header[1] = if place.is_v4 { TCP_V4 } else { TCP_V6 };
        let transport_bytes = u16::from(*packet.get(place.at + 12)? >> 4) * 4;
        header[2..4].copy_from_slice(&(start + transport_bytes).to_ne_bytes());
        header[4..6].copy_from_slice(&marks.segment_bytes.to_ne_bytes());
    }
    Some(header)
}

/// Compares marks with the first bytes of a packet: a checksum can be unfilled only in an unfragmented TCP or UDP packet, and a large
/// segment has a TCP header directly behind its IP header. Returns the length of both headers of a large segment, 0 for other packets,
/// and `None` if the marks do not fit.
pub fn large_header_bytes(ethertype: u16, packet: &[u8], marks: Marks) -> Option<usize> {
    if marks == Marks::default() {
        return Some(0);
    }
    let place = find_transport(packet)?;
    let is_ip = if place.is_v4 { ethertype == IPV4 } else { ethertype == IPV6 && packet[0] >> 4 == 6 };
    if !is_ip || place.checksum_at().is_none() {
        return None;
    }
    if marks.segment_bytes == 0 {
        return Some(0);
    }
    let ip_bytes = if place.is_v4 { usize::from(packet[0] & 15) * 4 } else { 40 };
    let tcp_bytes = usize::from(*packet.get(place.at + 12)? >> 4) * 4;
    let fits = place.protocol == TCP && place.at == ip_bytes && tcp_bytes >= 20 && packet.len() >= ip_bytes + tcp_bytes;
    fits.then_some(ip_bytes + tcp_bytes)
}

/// The place of a packet's transport header.
struct Transport {
    is_v4: bool,
    protocol: u8,
    at: usize,
    /// The length of the transport header and everything after it.
    bytes: usize,
}

impl Transport {
    /// Returns the offset of the checksum in the transport header.
    fn checksum_at(&self) -> Option<usize> {
        match self.protocol {
            TCP => Some(TCP_CHECKSUM_AT),
            UDP => Some(UDP_CHECKSUM_AT),
            _ => None,
        }
    }
}

/// Returns the place of the transport header, or `None` if the packet is a fragment or its headers are incomplete.
fn find_transport(packet: &[u8]) -> Option<Transport> {
    let word = |at: usize| Some(usize::from(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?])));
    if packet.first()? >> 4 == 4 {
        let at = usize::from(packet[0] & 15) * 4;
        // The bit "more fragments" and the fragment offset.
        let is_fragment = word(6)? & 0x3fff != 0;
        let found = Transport { is_v4: true, protocol: *packet.get(9)?, at, bytes: word(2)?.checked_sub(at)? };
        return (!is_fragment && at >= 20).then_some(found);
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
    let length = u32::try_from(place.bytes).ok()?;
    Some(!Sum::default().bytes(addresses).bytes(&length.to_be_bytes()).word(u16::from(place.protocol)).checksum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINK: usize = 14;

    /// A frame with a UDP datagram over IPv4 whose checksum is unfilled.
    fn datagram(protocol: u8) -> Vec<u8> {
        let mut frame = vec![0; LINK];
        frame.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x12, 0x34, 0, 7, 0, 20, 0, 0]);
        frame.extend([1, 2, 3, 4, 0x50, 6, 7, 8, 9, 10, 11, 12]);
        frame
    }

    fn unfilled(segment_bytes: u16) -> Marks {
        Marks { checksum_unfilled: true, segment_bytes }
    }

    #[test]
    fn marks_become_a_header_from_which_they_are_read_back() {
        for (protocol, marks) in
            [(UDP, unfilled(0)), (TCP, unfilled(0)), (TCP, unfilled(1_448)), (UDP, Marks::default())]
        {
            let mut frame = datagram(protocol);
            let made = header(&mut frame, LINK, marks).unwrap();
            assert_eq!(receive(&made, &mut frame, LINK), Some(marks), "{protocol}");
        }
        assert_eq!(header(&mut datagram(UDP), LINK, unfilled(1_448)), None, "only TCP is cut");
        assert_eq!(header(&mut datagram(50), LINK, unfilled(0)), None, "ESP has no checksum to fill");
    }

    #[test]
    fn the_checksum_of_an_inner_packet_is_filled_in() {
        let mut frame = datagram(50);
        // The inner packet begins at offset 42. Its checksum is at offset 2 in it, and contains the sum of a pseudo header.
        let header = [NEEDS_CHECKSUM, 0, 0, 0, 0, 0, 42, 0, 2, 0];
        let [high, low] = [frame[44], frame[45]];
        assert_eq!(receive(&header, &mut frame, LINK), Some(Marks::default()));
        let filled = u16::from_be_bytes([frame[44], frame[45]]);
        frame[44..46].copy_from_slice(&[high, low]);
        assert_eq!(filled, Sum::default().bytes(&frame[42..]).checksum());
    }

    #[test]
    fn a_header_that_contradicts_its_frame_is_refused() {
        let large = |kind: u8, start: u8| [NEEDS_CHECKSUM, kind, 54, 0, 0xa8, 5, start, 0, 16, 0];
        assert_eq!(receive(&large(TCP_V4, 34), &mut datagram(TCP), LINK), Some(unfilled(1_448)));
        assert_eq!(receive(&large(TCP_V4 | ECN, 34), &mut datagram(TCP), LINK), Some(unfilled(1_448)), "ECN");
        assert_eq!(receive(&large(ECN, 34), &mut datagram(TCP), LINK), None, "ECN alone");
        assert_eq!(receive(&large(TCP_V6, 34), &mut datagram(TCP), LINK), None, "the wrong version");
        assert_eq!(receive(&large(TCP_V4, 36), &mut datagram(TCP), LINK), None, "another place");
        assert_eq!(receive(&large(TCP_V4, 34), &mut datagram(UDP), LINK), None, "not TCP");
        assert_eq!(receive(&large(5, 34), &mut datagram(TCP), LINK), None, "segmentation of UDP");
        let mut no_size = large(TCP_V4, 34);
        no_size[4..6].fill(0);
        assert_eq!(receive(&no_size, &mut datagram(TCP), LINK), None);
        let unsummed = [0, TCP_V4, 54, 0, 0xa8, 5, 34, 0, 16, 0];
        assert_eq!(receive(&unsummed, &mut datagram(TCP), LINK), None);
        let beyond = [NEEDS_CHECKSUM, 0, 0, 0, 0, 0, 52, 0, 2, 0];
        assert_eq!(receive(&beyond, &mut datagram(50), LINK), None, "the field is behind the end");
    }

    proptest! {
        #[test]
        fn any_header_and_frame_are_survived(
            bytes in any::<[u8; HEADER_BYTES]>(),
            mut frame in proptest::collection::vec(any::<u8>(), 0..120),
            link in prop_oneof![Just(0_usize), Just(14), Just(18)],
            segment_bytes in any::<u16>(),
        ) {
            let _ = receive(&bytes, &mut frame, link);
            let _ = header(&mut frame, link, unfilled(segment_bytes));
        }
    }
}
