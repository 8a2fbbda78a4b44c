//! Fragments made by a router (RFC 791, RFC 1812 4.2.2.7) and put together by a host (RFC 5722, RFC 8200 4.5, RFC 6946).

use crate::world::*;
use siga_stack::drops::{FragmentDrop, IpDrop};
use siga_stack::limits::REASSEMBLY_TIMEOUT;
use siga_stack::link::device::Agreed;
use smoltcp::wire::Ipv4Packet;

fn fragment6(next: u8, offset: u16, more: bool, ident: u32, bytes: &[u8]) -> Vec<u8> {
    let word = (offset | u16::from(more)).to_be_bytes();
    let header = [&[next, 0][..], &word, &ident.to_be_bytes(), bytes].concat();
    v6(HOST6[0], ROUTER6[0], 44, 64, &header)
}

#[test]
fn a_router_fragments_what_permits_it_and_a_host_reassembles_it() {
    let mut router = World::with([1500, 600], [Agreed::default(); 2], true);
    let mut host = World::host();
    let socket = host.stack.udp_bind("0.0.0.0:6".parse().unwrap()).unwrap();
    let data: Vec<u8> = (0..1400_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let packet = V4::new(HOST[0], HOST[1], 17).packet(&udp(HOST[0], HOST[1], (5, 6), &data));
    let Outcome::Forwarded(frames) = router.give_packet(0, &packet) else { panic!("not forwarded") };
    let lengths: Vec<usize> = frames.iter().map(|(_, frame, _)| frame.len()).collect();
    assert_eq!(lengths, [14 + 596, 14 + 596, 14 + 20 + 1408 - 1152]);
    for (n, (_, frame, _)) in frames.iter().enumerate() {
        let ip = Ipv4Packet::new_checked(&frame[14..]).unwrap();
        assert!(ip.verify_checksum());
        assert_eq!((ip.ident(), ip.hop_limit(), usize::from(ip.frag_offset())), (0x1234, 63, n * 576));
        assert_eq!(ip.more_frags(), n < 2);
    }
    for (n, (_, frame, _)) in frames.into_iter().enumerate().rev() {
        // To the host's own address instead: the checksum of UDP changes as that of IP does.
        let mut packet = frame[14..].to_vec();
        let mut ip = Ipv4Packet::new_unchecked(&mut packet);
        ip.set_dst_addr(ROUTER[0].parse().unwrap());
        ip.fill_checksum();
        if n == 0 {
            packet[26..28].copy_from_slice(&udp(HOST[0], ROUTER[0], (5, 6), &data)[6..8]);
        }
        assert_eq!(host.give_packet(0, &packet), Outcome::Done);
    }
    assert_eq!(host.stack.udp_receive(socket).unwrap().unwrap().bytes, data);
}

#[test]
fn fragments_are_fragmented_again_and_keep_only_copied_options() {
    let mut router = World::with([1500, 600], [Agreed::default(); 2], true);
    let options = [7, 3, 4, 1, 0x94, 4, 0, 0];
    let fragment = V4 { offset: 800, more: true, options: &options, ..V4::new(HOST[0], HOST[1], 17) };
    let data: Vec<u8> = (0..800_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let Outcome::Forwarded(frames) = router.give_packet(0, &fragment.packet(&data)) else { panic!("not forwarded") };
    let parts: Vec<&[u8]> = frames.iter().map(|(_, frame, _)| &frame[14..]).collect();
    assert_eq!([&parts[0][28..], &parts[1][28..]].concat(), data);
    assert_eq!((&parts[0][20..28], &parts[1][20..28]), (&options[..], &[1, 1, 1, 1, 0x94, 4, 0, 0][..]));
    let offsets: Vec<u16> = parts.iter().map(|part| Ipv4Packet::new_unchecked(part).frag_offset()).collect();
    assert_eq!(offsets, [800, 800 + 568]);
    assert!(parts.iter().all(|part| Ipv4Packet::new_unchecked(part).more_frags()));
}

#[test]
fn fragments_with_different_header_lengths_are_reassembled_behind_the_first_header() {
    let mut world = World::host();
    let socket = world.stack.udp_bind("0.0.0.0:6".parse().unwrap()).unwrap();
    let datagram = udp(HOST[0], ROUTER[0], (5, 6), &[9; 40]);
    let first = V4 { more: true, options: &[1, 1, 1, 1], ..V4::new(HOST[0], ROUTER[0], 17) };
    let last = V4 { offset: 24, ..V4::new(HOST[0], ROUTER[0], 17) };
    for order in [[0, 1], [1, 0]] {
        let packets = [first.packet(&datagram[..24]), last.packet(&datagram[24..])];
        for n in order {
            assert_eq!(world.give_packet(0, &packets[n]), Outcome::Done);
        }
        assert_eq!(world.stack.udp_receive(socket).unwrap().unwrap().bytes, [9; 40], "{order:?}");
    }
}

#[test]
fn ipv6_fragments_are_reassembled_in_any_order() {
    let mut world = World::host();
    let socket = world.stack.udp_bind("[::]:6".parse().unwrap()).unwrap();
    let segment = udp(HOST6[0], ROUTER6[0], (5, 6), &[9; 3000]);
    for (at, more) in [(2000, true), (0, true), (2400, false), (1000, true)] {
        let end = match at {
            0 => 1000,
            1000 => 2000,
            2000 => 2400,
            _ => segment.len(),
        };
        let packet = fragment6(17, u16::try_from(at).unwrap(), more, 7, &segment[at..end]);
        assert_eq!(world.give_packet(0, &packet), Outcome::Done);
    }
    assert_eq!(world.stack.udp_receive(socket).unwrap().unwrap().bytes, [9; 3000]);
    let whole = udp(HOST6[0], ROUTER6[0], (5, 6), &[8; 10]);
    assert_eq!(world.give_packet(0, &fragment6(17, 0, true, 8, &[0; 8])), Outcome::Done);
    assert_eq!(
        world.give_packet(0, &fragment6(17, 0, false, 8, &whole)),
        Outcome::Done,
        "a fragment that is the whole"
    );
    assert_eq!(world.stack.udp_receive(socket).unwrap().unwrap().bytes, [8; 10]);
}

#[test]
fn overlapping_fragments_drop_their_datagram() {
    let mut world = World::host();
    let socket = world.stack.udp_bind("[::]:6".parse().unwrap()).unwrap();
    let segment = udp(HOST6[0], ROUTER6[0], (5, 6), &[9; 56]);
    assert_eq!(world.give_packet(0, &fragment6(17, 0, true, 7, &segment[..32])), Outcome::Done);
    let overlap = fragment6(17, 24, true, 7, &segment[24..40]);
    assert_eq!(world.give_packet(0, &overlap), Outcome::dropped(FragmentDrop::Overlap));
    let rest = fragment6(17, 32, false, 7, &segment[32..]);
    assert_eq!(world.give_packet(0, &rest), Outcome::dropped(FragmentDrop::Late));
    assert_eq!(world.stack.udp_receive(socket), Ok(None));
}

#[test]
fn an_incomplete_datagram_is_reported_if_its_first_fragment_arrived() {
    let mut world = World::host();
    let segment = udp(HOST[0], ROUTER[0], (5, 6), &[9; 56]);
    let first = V4 { more: true, ..V4::new(HOST[0], ROUTER[0], 17) }.packet(&segment[..32]);
    world.give_packet(0, &first);
    world.give_packet(0, &fragment6(17, 32, true, 7, &segment[32..]));
    assert!(world.stack.poll_timeout().unwrap() <= world.now + REASSEMBLY_TIMEOUT);
    world.pass(REASSEMBLY_TIMEOUT);
    let sent = world.sent(0);
    let error = sent.iter().find(|frame| frame[12..14] == [8, 0]).unwrap();
    let (kind, code, rest) = icmp_of(&error[14..]);
    assert_eq!((kind, code, &rest[4..]), (11, 1, &first[..]));
    assert_eq!(world.dropped(FragmentDrop::Timeout), 2);
}

#[test]
fn an_ipv6_fragment_of_invalid_length_is_reported() {
    let mut world = World::host();
    let packet = fragment6(17, 0, true, 7, &[0; 13]);
    assert_eq!(world.give_packet(0, &packet), Outcome::dropped(FragmentDrop::Malformed));
    let (kind, code, rest) = icmp_of(&world.sent_packet(0));
    assert_eq!((kind, code, &rest[..4]), (4, 0, &[0, 0, 0, 4][..]));
    let later = fragment6(17, 64, true, 7, &[0; 13]);
    assert_eq!(world.give_packet(0, &later), Outcome::dropped(FragmentDrop::Malformed));
    assert_eq!(icmp_of(&world.sent_packet(0)).2[..4], [0, 0, 0, 4], "a later one too");
}

// RFC 8200 4.5.
#[test]
fn an_ipv6_fragment_that_ends_beyond_the_longest_datagram_is_reported() {
    let mut world = World::host();
    let part = [&[17, 0][..], &0xfff8_u16.to_be_bytes(), &[0, 0, 0, 7], &[0; 8]].concat();
    let options = [&[44, 0, 1, 4, 0, 0, 0, 0][..], &part].concat();
    for (packet, at) in
        [(v6(HOST6[0], ROUTER6[0], 44, 64, &part), 42), (v6(HOST6[0], ROUTER6[0], 60, 64, &options), 50)]
    {
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(FragmentDrop::Malformed));
        let (kind, code, rest) = icmp_of(&world.sent_packet(0));
        assert_eq!((kind, code, &rest[..4], &rest[4..]), (4, 0, &[0, 0, 0, at][..], &packet[..]));
    }
    assert_eq!(world.give_packet(0, &fragment6(17, 0xfff8, false, 7, &[0; 7])), Outcome::Done, "up to the last byte");
    world.assert_silent();
}

#[test]
fn extension_headers_inside_fragments_are_processed_after_reassembly() {
    let mut world = World::host();
    let socket = world.stack.udp_bind("[::]:6".parse().unwrap()).unwrap();
    let inside = |number: u8, rest: &[u8]| [&[number, 0, 1, 4, 0, 0, 0, 0][..], rest].concat();
    let known = inside(17, &udp(HOST6[0], ROUTER6[0], (5, 6), &[9; 16]));
    assert_eq!(world.give_packet(0, &fragment6(60, 0, true, 7, &known[..16])), Outcome::Done);
    assert_eq!(world.give_packet(0, &fragment6(60, 16, false, 7, &known[16..])), Outcome::Done);
    assert_eq!(world.stack.udp_receive(socket).unwrap().unwrap().bytes, [9; 16]);
    let unknown = inside(200, &[0; 16]);
    assert_eq!(world.give_packet(0, &fragment6(60, 0, true, 8, &unknown[..16])), Outcome::Done);
    let last = fragment6(60, 16, false, 8, &unknown[16..]);
    assert_eq!(world.give_packet(0, &last), Outcome::dropped(IpDrop::Protocol));
    let (kind, code, rest) = icmp_of(&world.sent_packet(0));
    assert_eq!((kind, code, &rest[..4]), (4, 1, &[0, 0, 0, 40][..]), "where the number stands in the whole");
    world.assert_silent();
}

// RFC 8200 4.5. If another fragment could name the protocol, a filter that looks at first fragments would be deceived.
#[test]
fn the_first_ipv6_fragment_decides_the_headers_and_the_protocol_of_the_datagram() {
    let mut world = World::host();
    let socket = world.stack.udp_bind("[::]:6".parse().unwrap()).unwrap();
    let datagram = udp(HOST6[0], ROUTER6[0], (5, 6), &[9; 40]);
    let behind_options = |next: u8, offset: u16, more: bool, bytes: &[u8]| {
        let fragment = fragment6(next, offset, more, 7, bytes)[40..].to_vec();
        v6(HOST6[0], ROUTER6[0], 0, 64, &[&[44, 0, 1, 4, 0, 0, 0, 0][..], &fragment].concat())
    };
    let (beginning, end) = datagram.split_at(24);
    for (first, last) in [
        (fragment6(17, 0, true, 7, beginning), fragment6(253, 24, false, 7, end)),
        (fragment6(17, 0, true, 7, beginning), behind_options(253, 24, false, end)),
        (behind_options(17, 0, true, beginning), fragment6(253, 24, false, 7, end)),
    ] {
        for packets in [[&first, &last], [&last, &first]] {
            for packet in packets {
                assert_eq!(world.give_packet(0, packet), Outcome::Done);
            }
            assert_eq!(world.stack.udp_receive(socket).unwrap().unwrap().bytes, [9; 40]);
        }
    }
    for last in [fragment6(17, 24, false, 7, end), behind_options(17, 24, false, end)] {
        assert_eq!(world.give_packet(0, &fragment6(253, 0, true, 7, beginning)), Outcome::Done);
        assert_eq!(world.give_packet(0, &last), Outcome::dropped(IpDrop::Protocol));
        assert_eq!(world.stack.udp_receive(socket), Ok(None));
    }
}

#[test]
fn a_fragment_header_inside_fragments_is_refused() {
    let mut world = World::host();
    let inner = [&[17, 0, 0, 0, 0, 0, 0, 9][..], &[0; 16]].concat();
    assert_eq!(world.give_packet(0, &fragment6(44, 0, true, 7, &inner[..16])), Outcome::Done);
    let last = fragment6(44, 16, false, 7, &inner[16..]);
    assert_eq!(world.give_packet(0, &last), Outcome::dropped(FragmentDrop::Malformed));
    let routed = v6(HOST6[0], ROUTER6[0], 43, 64, &[59, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(world.give_packet(0, &routed), Outcome::dropped(IpDrop::SourceRoute));
}
