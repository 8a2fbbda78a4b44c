//! Large segments and unfilled checksums: passed on where the next link agreed, made good where it did not.

use crate::world::*;
use siga_stack::drops::{IpDrop, LinkDrop};
use siga_stack::link::device::Agreed;
use siga_stack::link::frame::{DeviceId, Marks};
use smoltcp::wire::{EthernetProtocol, Ipv4Packet, TcpPacket, TcpSeqNumber};

const PLAIN: Agreed = Agreed { checksum_unfilled: false, large_segments: false };
const UNFILLED: Agreed = Agreed { checksum_unfilled: true, large_segments: false };
const LARGE: Agreed = Agreed { checksum_unfilled: false, large_segments: true };
const BOTH: Agreed = Agreed { checksum_unfilled: true, large_segments: true };

const CWR: u16 = 0x080;
const ACK: u16 = 0x010;
const PSH: u16 = 0x008;
const SYN: u16 = 0x002;
const FIN: u16 = 0x001;

/// A TCP segment with twelve bytes of options.
fn tcp(from: &str, to: &str, flags: u16, payload: &[u8], filled: bool) -> Vec<u8> {
    let mut bytes = vec![0; 32 + payload.len()];
    bytes[20..32].copy_from_slice(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    bytes[32..].copy_from_slice(payload);
    let mut segment = TcpPacket::new_unchecked(&mut bytes);
    segment.set_src_port(5);
    segment.set_dst_port(6);
    segment.set_seq_number(TcpSeqNumber(-100));
    segment.set_header_len(32);
    bytes[12..14].copy_from_slice(&(0x8000 | flags).to_be_bytes());
    if filled {
        let sum = checksum(from, to, 6, &bytes);
        bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    } else {
        bytes[16..18].copy_from_slice(&[0xde, 0xad]);
    }
    bytes
}

fn frames(v6_wanted: bool, flags: u16, payload: usize, filled: bool) -> (Vec<u8>, Vec<u8>) {
    let data: Vec<u8> = (0..payload).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let (protocol, packet) = if v6_wanted {
        (EthernetProtocol::Ipv6, v6(HOST6[0], HOST6[1], 6, 64, &tcp(HOST6[0], HOST6[1], flags, &data, filled)))
    } else {
        let header = V4 { dont_fragment: true, ..V4::new(HOST[0], HOST[1], 6) };
        (EthernetProtocol::Ipv4, header.packet(&tcp(HOST[0], HOST[1], flags, &data, filled)))
    };
    (ethernet(HOST_MAC[0], ROUTER_MAC[0], protocol, &packet), data)
}

fn intact(packet: &[u8]) -> bool {
    let (from, to) = addresses(packet);
    let at = if packet[0] >> 4 == 4 { 20 } else { 40 };
    let protocol = if at == 20 { packet[9] } else { packet[6] };
    checksum(&from, &to, protocol, &packet[at..]) == 0
}

#[test]
fn a_large_segment_is_cut_for_a_link_without_large_segments() {
    for (v6_wanted, filled, out) in [
        (false, false, PLAIN),
        (true, false, PLAIN),
        (false, true, PLAIN),
        (true, true, PLAIN),
        (false, false, UNFILLED),
    ] {
        let mut world = World::with([9000, 1500], [BOTH, out], true);
        let ip = if v6_wanted { 40 } else { 20 };
        let bytes = 1500 - ip - 32;
        let (frame, data) = frames(v6_wanted, CWR | ACK | PSH | FIN, 60_000, filled);
        let marks = Marks { checksum_unfilled: !filled, segment_bytes: u16::try_from(bytes).unwrap() };
        let before = world.stack.counters(DeviceId(1)).unwrap();
        let Outcome::Forwarded(pieces) = world.give_marked(0, &frame, marks) else { panic!("not forwarded") };
        assert_eq!(pieces.len(), 60_000_usize.div_ceil(bytes));
        let mut rebuilt = Vec::new();
        for (n, (_, piece, marks)) in pieces.iter().enumerate() {
            let last = n + 1 == pieces.len();
            let packet = &piece[14..];
            addresses(packet);
            assert!(packet.len() == 1500 || last && packet.len() < 1500);
            let open = out.checksum_unfilled && !filled;
            assert_eq!(*marks, Marks { checksum_unfilled: open, segment_bytes: 0 });
            assert!(open || intact(packet), "segment {n}");
            if !v6_wanted {
                let ident = 0x1234 + u16::try_from(n).unwrap();
                assert_eq!(Ipv4Packet::new_unchecked(packet).ident(), ident);
            }
            let segment = TcpPacket::new_checked(&packet[ip..]).unwrap();
            assert_eq!(segment.seq_number(), TcpSeqNumber(-100) + rebuilt.len());
            assert_eq!((segment.fin(), segment.psh(), segment.cwr(), segment.ack()), (last, last, n == 0, true));
            assert_eq!(packet[ip + 20..ip + 32], frame[14 + ip + 20..14 + ip + 32], "options");
            rebuilt.extend_from_slice(&packet[ip + 32..]);
        }
        assert_eq!(rebuilt, data);
        let counters = world.stack.counters(DeviceId(1)).unwrap();
        assert_eq!(counters.frames_sent - before.frames_sent, pieces.len() as u64);
        let bytes: usize = pieces.iter().map(|(_, piece, _)| piece.len()).sum();
        assert_eq!(counters.bytes_sent - before.bytes_sent, bytes as u64);
    }
}

#[test]
fn checksums_of_cut_segments_are_right_at_any_segment_size() {
    for v6_wanted in [false, true] {
        for segment_bytes in [1, 7, 35, 66, 67, 333] {
            let mut world = World::with([9000, 1500], [BOTH, PLAIN], true);
            let (frame, _) = frames(v6_wanted, ACK, 1000, false);
            let marks = Marks { checksum_unfilled: true, segment_bytes };
            let Outcome::Forwarded(pieces) = world.give_marked(0, &frame, marks) else { panic!("not forwarded") };
            assert_eq!(pieces.len(), 1000_usize.div_ceil(segment_bytes.into()));
            assert!(pieces.iter().all(|(_, piece, _)| intact(&piece[14..])), "{segment_bytes}");
        }
    }
}

#[test]
fn a_large_segment_crosses_whole_if_both_links_agreed() {
    for v6_wanted in [false, true] {
        let mut world = World::with([1500, 1500], [BOTH, BOTH], true);
        let (frame, _) = frames(v6_wanted, ACK, 60_000, false);
        let marks = Marks { checksum_unfilled: true, segment_bytes: 1400 };
        let Outcome::Forwarded(pieces) = world.give_marked(0, &frame, marks) else { panic!("not forwarded") };
        assert_eq!((pieces.len(), pieces[0].2), (1, marks));
        assert_eq!(pieces[0].1[34..], frame[34..]);
        let mut world = World::with([1500, 1500], [BOTH, LARGE], true);
        let Outcome::Forwarded(pieces) = world.give_marked(0, &frame, marks) else { panic!("not forwarded") };
        assert_eq!((pieces.len(), pieces[0].2), (1, Marks { checksum_unfilled: false, segment_bytes: 1400 }));
        assert!(intact(&pieces[0].1[14..]));
    }
}

#[test]
fn a_router_reports_a_segment_size_that_the_next_link_does_not_take() {
    for (v6_wanted, error) in [(false, (3, 4)), (true, (2, 0))] {
        for out in [PLAIN, BOTH] {
            let mut world = World::with([9000, 1400], [BOTH, out], true);
            let (frame, _) = frames(v6_wanted, ACK, 60_000, true);
            let marks = Marks { checksum_unfilled: false, segment_bytes: 1448 };
            assert_eq!(world.give_marked(0, &frame, marks), Outcome::dropped(IpDrop::TooBig));
            let (kind, code, rest) = icmp_of(&world.sent_packet(0));
            assert_eq!(((kind, code), &rest[..4]), (error, &1400_u32.to_be_bytes()[..]));
        }
    }
}

#[test]
fn a_segment_of_the_next_mtu_is_forwarded_and_one_byte_more_is_not() {
    for v6_wanted in [false, true] {
        let room: u16 = 1400 - 32 - if v6_wanted { 40 } else { 20 };
        // What a segment carries bounds its pieces too.
        for (payload, segment_bytes, fits) in
            [(60_000, room, true), (60_000, room + 1, false), (room, 9_000, true), (room + 1, 9_000, false)]
        {
            let mut world = World::with([9000, 1400], [BOTH, PLAIN], true);
            let (frame, _) = frames(v6_wanted, ACK, payload.into(), true);
            let outcome = world.give_marked(0, &frame, Marks { checksum_unfilled: false, segment_bytes });
            if !fits {
                assert_eq!(outcome, Outcome::dropped(IpDrop::TooBig), "{payload} {segment_bytes}");
                continue;
            }
            let Outcome::Forwarded(pieces) = outcome else { panic!("not forwarded: {payload} {segment_bytes}") };
            assert_eq!(pieces.iter().map(|(_, piece, _)| piece.len()).max(), Some(1414));
        }
    }
}

#[test]
fn a_segment_without_data_is_forwarded_as_one_frame_even_if_marked_as_large() {
    let marks = Marks { checksum_unfilled: true, segment_bytes: 1000 };
    for (v6_wanted, header, out) in [
        (false, 20, PLAIN),
        (false, 32, PLAIN),
        (true, 20, PLAIN),
        (true, 32, PLAIN),
        (false, 20, BOTH),
        (true, 32, BOTH),
    ] {
        let mut segment = tcp(HOST[0], HOST[1], ACK, &[], false);
        segment.truncate(header);
        segment[12] = u8::try_from(header / 4).unwrap() << 4;
        let (protocol, packet) = if v6_wanted {
            (EthernetProtocol::Ipv6, v6(HOST6[0], HOST6[1], 6, 64, &segment))
        } else {
            (EthernetProtocol::Ipv4, V4::new(HOST[0], HOST[1], 6).packet(&segment))
        };
        let frame = ethernet(HOST_MAC[0], ROUTER_MAC[0], protocol, &packet);
        let mut world = World::with([1500, 1500], [BOTH, out], true);
        let before = world.stack.counters(DeviceId(1)).unwrap();
        let Outcome::Forwarded(pieces) = world.give_marked(0, &frame, marks) else { panic!("not forwarded: {header}") };
        assert_eq!((pieces.len(), pieces[0].1.len()), (1, frame.len()));
        assert_eq!(pieces[0].2, if out == BOTH { marks } else { Marks::default() });
        assert!(out == BOTH || intact(&pieces[0].1[14..]));
        let after = world.stack.counters(DeviceId(1)).unwrap();
        assert_eq!(
            (after.frames_sent, after.bytes_sent),
            (before.frames_sent + 1, before.bytes_sent + frame.len() as u64)
        );
    }
}

#[test]
fn a_large_segment_without_df_is_cut_to_the_mtu_of_the_next_link() {
    let data: Vec<u8> = (0..5_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    let packet = V4::new(HOST[0], HOST[1], 6).packet(&tcp(HOST[0], HOST[1], ACK, &data, true));
    let frame = ethernet(HOST_MAC[0], ROUTER_MAC[0], EthernetProtocol::Ipv4, &packet);
    let mut world = World::with([9000, 1400], [BOTH, PLAIN], true);
    let marks = Marks { checksum_unfilled: false, segment_bytes: 1448 };
    let Outcome::Forwarded(pieces) = world.give_marked(0, &frame, marks) else { panic!("not forwarded") };
    assert!(pieces.iter().all(|(_, piece, _)| piece.len() <= 1414 && intact(&piece[14..])));
    let rebuilt: Vec<u8> = pieces.iter().flat_map(|(_, piece, _)| piece[14 + 52..].to_vec()).collect();
    assert!(rebuilt == data);
}

#[test]
fn only_a_frame_marked_as_large_may_exceed_the_mtu_of_its_link() {
    for (bytes, segment_bytes, fits) in [(1500, 0, true), (1501, 0, false), (1501, 1448, true)] {
        let mut world = World::with([1500, 9000], [BOTH, PLAIN], true);
        let (frame, _) = frames(false, ACK, bytes - 52, true);
        let outcome = world.give_marked(0, &frame, Marks { checksum_unfilled: false, segment_bytes });
        assert_eq!(matches!(outcome, Outcome::Forwarded(_)), fits, "{bytes} {segment_bytes}");
        assert!(fits || outcome == Outcome::dropped(LinkDrop::Length));
    }
}

// RFC 9293 MUST-2.
#[test]
fn an_unfilled_checksum_is_filled_in_for_a_link_that_did_not_agree() {
    for v6_wanted in [false, true] {
        for payload in [0, 1, 100, 1001] {
            let (frame, _) = frames(v6_wanted, ACK, payload, false);
            let marks = Marks { checksum_unfilled: true, segment_bytes: 0 };
            let mut world = World::with([1500, 1500], [UNFILLED, PLAIN], true);
            let Outcome::Forwarded(pieces) = world.give_marked(0, &frame, marks) else { panic!("not forwarded") };
            assert_eq!(pieces[0].2, Marks::default());
            assert!(intact(&pieces[0].1[14..]), "{payload}");
            let mut world = World::with([1500, 1500], [UNFILLED, UNFILLED], true);
            let Outcome::Forwarded(pieces) = world.give_marked(0, &frame, marks) else { panic!("not forwarded") };
            assert_eq!(pieces[0].2, marks);
            assert!(!intact(&pieces[0].1[14..]));
        }
    }
}

#[test]
fn a_udp_checksum_that_comes_out_as_zero_is_written_as_ones() {
    let mut segment = (0..=u16::MAX)
        .map(|word| [&udp(HOST[0], HOST[1], (5, 6), &[0; 2])[..6], &[0, 0], &word.to_be_bytes()].concat())
        .find(|segment| checksum(HOST[0], HOST[1], 17, segment) == 0)
        .unwrap();
    segment[6] = 0x77;
    let packet = V4::new(HOST[0], HOST[1], 17).packet(&segment);
    let frame = ethernet(HOST_MAC[0], ROUTER_MAC[0], EthernetProtocol::Ipv4, &packet);
    let marks = Marks { checksum_unfilled: true, segment_bytes: 0 };
    let mut world = World::with([1500, 1500], [UNFILLED, PLAIN], true);
    let Outcome::Forwarded(pieces) = world.give_marked(0, &frame, marks) else { panic!("not forwarded") };
    assert_eq!(pieces[0].1[40..42], [0xff, 0xff]);

    let mut host = World::host();
    let socket = host.stack.udp_bind(format!("{}:5", ROUTER[0]).parse().unwrap()).unwrap();
    let to = format!("{}:6", HOST[0]).parse().unwrap();
    let checksums: Vec<[u8; 2]> = (0..=u16::MAX)
        .map(|word| {
            host.stack.udp_send(host.now, socket, Some(to), &word.to_be_bytes()).unwrap();
            let packet = host.sent_packet(0);
            [packet[26], packet[27]]
        })
        .collect();
    assert!(checksums.contains(&[0xff, 0xff]) && !checksums.contains(&[0, 0]));
}

#[test]
fn an_unfilled_checksum_is_filled_in_before_a_datagram_is_cut() {
    let mut world = World::with([1500, 600], [UNFILLED, UNFILLED], true);
    let mut segment = udp(HOST[0], HOST[1], (5, 6), &[7; 1401]);
    let right = [segment[6], segment[7]];
    segment[6..8].copy_from_slice(&[0x55, 0xaa]);
    let packet = V4::new(HOST[0], HOST[1], 17).packet(&segment);
    let frame = ethernet(HOST_MAC[0], ROUTER_MAC[0], EthernetProtocol::Ipv4, &packet);
    let marks = Marks { checksum_unfilled: true, segment_bytes: 0 };
    let Outcome::Forwarded(pieces) = world.give_marked(0, &frame, marks) else { panic!("not forwarded") };
    assert!(pieces.iter().all(|(_, _, marks)| *marks == Marks::default()));
    let rebuilt: Vec<u8> = pieces.iter().flat_map(|(_, piece, _)| piece[34..].to_vec()).collect();
    assert_eq!(rebuilt[6..8], right);
    assert_eq!(rebuilt[8..], segment[8..]);
}

#[test]
fn a_large_segment_that_waits_for_a_neighbour_is_already_cut() {
    let mut world = World::strange([9000, 1500], [BOTH, PLAIN], true);
    let (frame, _) = frames(true, ACK, 6000, false);
    assert_eq!(world.give_marked(0, &frame, Marks { checksum_unfilled: true, segment_bytes: 1428 }), Outcome::Done);
    assert_eq!(world.sent(1).len(), 1, "asked");
    let options = [&[2, 1], &HOST_MAC[1].0[..]].concat();
    let packet = neighbour_message(136, 0x60, HOST6[1], ROUTER6[1], HOST6[1], &options);
    world.give(1, &ethernet(HOST_MAC[1], ROUTER_MAC[1], EthernetProtocol::Ipv6, &packet));
    let sent = world.sent(1);
    assert_eq!(sent.len(), 5);
    assert!(sent.iter().all(|frame| intact(&frame[14..]) && macs(frame).1 == HOST_MAC[1]));
}

#[test]
fn frame_marks_that_do_not_fit_the_packet_are_refused() {
    let bad = Outcome::dropped(LinkDrop::Marks);
    let (frame, _) = frames(false, ACK, 5000, true);
    let large = Marks { checksum_unfilled: false, segment_bytes: 1000 };
    let unfilled = Marks { checksum_unfilled: true, segment_bytes: 0 };
    assert_eq!(World::with([9000, 1500], [UNFILLED, BOTH], true).give_marked(0, &frame, large), bad);
    assert_eq!(World::with([9000, 1500], [LARGE, BOTH], true).give_marked(0, &frame, unfilled), bad);
    let mut world = World::with([9000, 1500], [BOTH, PLAIN], true);
    let marked = |packet: &[u8]| ethernet(HOST_MAC[0], ROUTER_MAC[0], EthernetProtocol::Ipv4, packet);
    let datagram = V4::new(HOST[0], HOST[1], 17).packet(&udp(HOST[0], HOST[1], (5, 6), &[0; 3000]));
    assert_eq!(world.give_marked(0, &marked(&datagram), large), bad, "not TCP");
    let other = V4::new(HOST[0], HOST[1], 99).packet(&[0; 30]);
    assert_eq!(world.give_marked(0, &marked(&other), unfilled), bad, "nothing to fill in");
    let short = V4::new(HOST[0], HOST[1], 6).packet(&[0; 19]);
    assert_eq!(world.give_marked(0, &marked(&short), unfilled), bad);
    let fragment = V4 { more: true, ..V4::new(HOST[0], HOST[1], 6) }.packet(&[0; 64]);
    assert_eq!(world.give_marked(0, &marked(&fragment), unfilled), bad);
    let (syn, _) = frames(false, SYN, 5000, true);
    assert_eq!(world.give_marked(0, &syn, large), bad, "no SYN is large");
    for words in [0, 4, 15] {
        let (mut frame, _) = frames(false, ACK, 10, true);
        frame[14 + 20 + 12] = words << 4;
        assert_eq!(world.give_marked(0, &frame, large), bad, "bad data offset");
    }
    let (mut wrong, _) = frames(false, ACK, 5000, true);
    wrong[3000] ^= 1;
    assert_eq!(world.give_marked(0, &wrong, large), Outcome::dropped(IpDrop::Checksum), "not made right");
    world.assert_silent();
}
