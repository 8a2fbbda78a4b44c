//! Segments that no honest peer sends: flags, options, offsets and pointers by which other stacks fell.

use crate::attack::*;
use crate::world::*;
use siga_stack::drops::{IpDrop, TcpDrop};
use siga_stack::sockets::TcpOptions;
use siga_stack::tcp::StateName;
use siga_stack::time::Duration;
use siga_stack::wire::tcp::{Header, HeaderOptions};

fn bytes(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; header.header_bytes()];
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

fn give(victim: &mut Victim, segment: Vec<u8>) -> Outcome {
    victim.world.give_packet(0, &raw(HOST[0], ROUTER[0], segment))
}

/// The data offset of AMNESIA:33's and INFRA:HALT's kind: inside the fixed header, or behind the end.
#[test]
fn a_segment_with_a_false_data_offset_is_dropped() {
    let mut victim = Victim::new();
    for offset in 0..16_u8 {
        let mut segment = bytes(&victim.next, &[1; 8]);
        segment[12] = offset << 4;
        let expected = match offset {
            5..=7 => continue,
            _ => Outcome::dropped(TcpDrop::BadOffset),
        };
        assert_eq!(give(&mut victim, segment), expected, "{offset}");
    }
    assert_eq!(give(&mut victim, vec![0; 19]), Outcome::dropped(TcpDrop::Truncated));
    victim.lives();
}

/// URGENT/11's option bug (CVE-2019-12257's kind) and CVE-2020-13988: lengths of 0, 1, or behind the header, for every kind.
#[test]
fn a_segment_with_a_false_option_length_is_dropped() {
    let mut victim = Victim::new();
    for kind in 2..=u8::MAX {
        for length in [0, 1, 5, 255] {
            let mut segment = bytes(&victim.next, &[]);
            segment.extend([kind, length, 0, 0]);
            segment[12] = 6 << 4;
            assert_eq!(give(&mut victim, segment), Outcome::dropped(TcpDrop::BadOption), "{kind} {length}");
        }
        let mut segment = bytes(&victim.next, &[]);
        segment.extend([1, 1, 1, kind]);
        segment[12] = 6 << 4;
        assert_eq!(give(&mut victim, segment), Outcome::dropped(TcpDrop::BadOption), "{kind} without a length");
    }
    // Known kinds of a wrong length are passed over, as unknown ones are.
    for option in [&[2, 3, 9, 0][..], &[3, 4, 9, 9], &[4, 3, 9, 0], &[5, 3, 9, 0], &[8, 4, 9, 9], &[253, 4, 0, 0]] {
        let mut segment = bytes(&victim.next, &[]);
        segment.extend(option);
        segment[12] = 6 << 4;
        assert_eq!(give(&mut victim, segment), Outcome::Done, "{option:?}");
    }
    victim.lives();
}

/// URGENT/11, CVE-2019-12255, -12260, -12261, -12263: urgent pointers of 0, behind the data, and that move while it is read.
#[test]
fn false_urgent_pointers_corrupt_no_data() {
    let mut victim = Victim::new();
    for pointer in [0, 1, 2, 499, 500, 501, 0x7fff, 0xffff] {
        for payload in [0, 1, 500] {
            let mut segment = bytes(&victim.next, &vec![9; payload]);
            segment[13] |= 0x20;
            segment[18..20].copy_from_slice(&u16::to_be_bytes(pointer));
            assert_eq!(give(&mut victim, segment), Outcome::Done, "{pointer} over {payload}");
            assert_eq!(victim.received(), payload, "{pointer} over {payload}");
        }
    }
    victim.lives();
}

/// Christmas trees, null scans and SYN with FIN: to a connection, a listener and a closed port.
#[test]
fn segments_with_impossible_flags_open_and_end_no_connection() {
    let mut victim = Victim::new();
    let memory = |victim: &Victim| victim.world.stack.memory().held("TCP connections");
    let fin_at_once = flags("SF");
    for bits in 0..=u8::MAX {
        // Other tests check segments that rightly open, end or reset a connection.
        let (syn, rst, ack) = (bits & 2 != 0, bits & 4 != 0, bits & 16 != 0);
        let mut segment = bytes(&Header { source_port: 4_000 + u16::from(bits), ..victim.next }, &[]);
        segment[13] = bits;
        let outcome = give(&mut victim, segment);
        let answers = victim.answers();
        assert!(answers.len() <= 1, "{bits:02x}");
        if !syn || rst || ack {
            assert!(matches!(outcome, Outcome::Dropped(_)), "{bits:02x}: {outcome:?}");
            assert_eq!(answers.len(), usize::from(ack && !rst), "{bits:02x}: a reset for an acknowledgement");
        }
    }
    assert!(memory(&victim) <= 1 + 8, "SYNs alone open, up to the backlog");
    for letters in ["", "P", "E", "C", "SEP", "SF"] {
        let header = Header { ack: None, flags: flags(letters), ..victim.next };
        assert!(matches!(victim.give(&header, &[]), Outcome::Dropped(_)), "{letters}");
    }
    let closed = Header { destination_port: 81, ack: None, flags: fin_at_once, ..victim.next };
    assert_eq!(victim.give(&closed, &[]), Outcome::dropped(TcpDrop::NoConnection));
    victim.lives();
}

/// CVE-2019-11479's kind at the other end: options of a SYN at their extremes.
#[test]
fn extreme_options_of_a_syn_are_clamped() {
    for (mss, scale) in [(0, 0), (1, 14), (u16::MAX, 15), (1_460, u8::MAX)] {
        let theirs = HeaderOptions { mss: Some(mss), window_scale: Some(scale), ..usual() };
        let mut victim = Victim::with(TcpOptions::default(), theirs);
        let info = victim.world.stack.tcp_info(victim.id).unwrap().unwrap();
        assert!((48..=1_460).contains(&info.segment_bytes), "{info:?}");
        assert!(victim.give(&Header { window: u16::MAX, ..victim.next }, &[]) == Outcome::Done);
        let info = victim.world.stack.tcp_info(victim.id).unwrap().unwrap();
        assert_eq!(info.peer_window, u32::from(u16::MAX) << scale.min(14), "RFC 7323 section 2.3");
        victim.lives();
    }
}

/// Ports and addresses that no segment may have.
#[test]
fn segments_with_port_zero_or_a_group_address_are_dropped() {
    let mut victim = Victim::new();
    for (source_port, destination_port) in [(0, 80), (1_000, 0)] {
        let header = Header { source_port, destination_port, ..victim.next };
        assert_eq!(victim.give(&header, &[]), Outcome::dropped(TcpDrop::Port));
    }
    let to_all = packet(HOST[0], "10.1.0.255", &syn(5_000, usual()), &[]);
    assert_eq!(victim.world.give_packet(0, &to_all), Outcome::dropped(TcpDrop::ToGroup));
    let from_group = packet("224.0.0.1", ROUTER[0], &syn(5_000, usual()), &[]);
    assert_eq!(victim.world.give_packet(0, &from_group), Outcome::dropped(IpDrop::SourceMartian));
    victim.world.assert_silent();
    victim.lives();
}

/// A wrong checksum is never looked behind, whatever the segment says.
#[test]
fn a_segment_with_a_wrong_checksum_has_no_effect() {
    let mut victim = Victim::new();
    for header in [Header { flags: flags("R"), ..victim.next }, victim.next, syn(9, usual())] {
        let mut damaged = packet(HOST[0], ROUTER[0], &header, b"data");
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        assert_eq!(victim.world.give_packet(0, &damaged), Outcome::dropped(TcpDrop::Checksum));
    }
    victim.world.assert_silent();
    victim.lives();
}

/// The receiver does not ask again for data that came with a SYN (RFC 9293 section 3.10.7.2).
#[test]
fn data_or_fin_of_a_syn_arrives_with_the_open_connection() {
    let mut victim = Victim::new();
    for (port, letters, text) in [(6_000, "S", &b"hello"[..]), (6_001, "SF", b"hello"), (6_002, "SF", b"")] {
        let first = Header { flags: flags(letters), ..syn(port, usual()) };
        assert_eq!(victim.give(&first, text), Outcome::Done);
        let answer = victim.answers().remove(0).0;
        assert_eq!(answer.ack, Some(first.seq + 1), "the rest may come again");
        let next = Header { flags: flags(""), options: HeaderOptions::default(), ..first };
        assert_eq!(victim.give(&Header { seq: first.seq + 1, ack: Some(answer.seq + 1), ..next }, &[]), Outcome::Done);
        let (id, _) = victim.world.stack.tcp_accept(victim.listener).unwrap().unwrap();
        let (now, mut into) = (victim.world.now, [0; 9]);
        let mut read = || victim.world.stack.tcp_receive(now, id, &mut into).unwrap();
        if !text.is_empty() {
            assert_eq!(read(), Some(text.len()));
        }
        assert_eq!(read(), letters.contains('F').then_some(0), "{letters} {port}");
        victim.answers();
    }
    victim.lives();
}

/// Text and FIN of a SYN to a listener hold no more than an opening connection may, and end with it.
#[test]
fn data_of_a_syn_is_bounded_and_freed_with_the_connection() {
    let mut victim = Victim::new();
    for port in 6_000..6_050 {
        victim.give(&Header { flags: flags("SF"), ..syn(port, usual()) }, &[1; 1_400]);
        victim.answers();
    }
    assert!(victim.buffers() <= 8 * 4_096, "{}", victim.world.stack.memory());
    for _ in 0..300 {
        pass(&mut victim.world, Duration::from_secs(1));
        victim.world.sent(0);
    }
    assert_eq!(victim.world.stack.memory().held("TCP connections"), 1);
    assert_eq!(victim.state(), StateName::Established);
    victim.bounded();
}
