//! Any bytes on any device: a counted drop, never a panic, and nothing that grows without bound.

use crate::world::*;
use proptest::prelude::*;
use siga_stack::limits::DEVICE_QUEUE_FRAMES_MAX;
use siga_stack::link::device::Agreed;
use siga_stack::link::frame::{DeviceId, Marks};
use siga_stack::time::Duration;
use smoltcp::wire::{ArpOperation, EthernetProtocol};
use std::net::SocketAddr;

const BOTH: Agreed = Agreed { checksum_unfilled: true, large_segments: true };

/// A group that a socket is in.
const GROUP: &str = "239.1.2.3";

/// One frame of every kind that the stack looks into.
fn kinds() -> Vec<Vec<u8>> {
    let quoted = udp_to(HOST[1], (5, 6), b"quoted");
    let quoted6 = udp_to(HOST6[1], (5, 6), b"quoted");
    let mut tcp = vec![0; 64];
    tcp[12] = 0xa0;
    let mut packets = vec![
        udp_to(ROUTER[0], (5, 7), b"to a socket"),
        udp_to(ROUTER6[0], (5, 7), b"to a socket"),
        udp_to(HOST[1], (5, 6), b"to be forwarded"),
        udp_to(HOST6[1], (5, 6), b"to be forwarded"),
        V4 { options: &[7, 7, 4, 0, 0, 0, 0, 1, 0x94, 4, 0, 0], ..V4::new(HOST[0], HOST[1], 6) }.packet(&tcp),
        V4 { more: true, offset: 8, ..V4::new(HOST[0], ROUTER[0], 17) }.packet(&[0; 16]),
        V4::new(HOST[0], ROUTER[0], 1).packet(&icmp(8, 0, &[0; 12])),
        V4::new(HOST[0], ROUTER[0], 1).packet(&icmp(3, 4, &[&[0, 0, 5, 0], &quoted[..]].concat())),
        v6(HOST6[0], HOST6[1], 6, 64, &tcp),
        v6(
            HOST6[0],
            ROUTER6[0],
            0,
            64,
            &[60, 0, 5, 2, 0, 0, 1, 0, 44, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        v6(HOST6[0], ROUTER6[0], 43, 64, &[59, 0, 4, 0, 0, 0, 0, 0]),
        v6(HOST6[0], ROUTER6[0], 58, 64, &icmp6(HOST6[0], ROUTER6[0], 128, 0, &[0; 12])),
        v6(HOST6[0], ROUTER6[0], 58, 64, &icmp6(HOST6[0], ROUTER6[0], 2, 0, &[&[0, 0, 5, 0], &quoted6[..]].concat())),
        neighbour_message(135, 0, HOST6[0], ROUTER6[0], ROUTER6[0], &[1, 1, 2, 0, 0, 0, 1, 1]),
        neighbour_message(136, 0x60, HOST6[0], ROUTER6[0], HOST6[0], &[2, 1, 2, 0, 0, 0, 1, 1]),
        igmp_from(HOST[0], GROUP, &[0x11, 20, 0, 0, 239, 1, 2, 3, 2, 125, 0, 1, 10, 1, 0, 9]),
        igmp_from(HOST[0], GROUP, &[0x16, 0, 0, 0, 239, 1, 2, 3]),
        mld_from("fe80::9", "ff02::1", &[&[130, 0, 0, 0, 1, 0, 0, 0], &[0; 16][..], &[2, 125, 0, 0]].concat()),
        udp_to(GROUP, (5, 7), b"to a member"),
    ];
    let arp = arp(ArpOperation::Request, HOST_MAC[0], HOST[0], ROUTER_MAC[0], ROUTER[0]);
    let mut frames = vec![ethernet(HOST_MAC[0], ROUTER_MAC[0], EthernetProtocol::Arp, &arp)];
    frames.extend(packets.drain(..).map(|packet| {
        let protocol = if packet[0] >> 4 == 4 { EthernetProtocol::Ipv4 } else { EthernetProtocol::Ipv6 };
        ethernet(HOST_MAC[0], ROUTER_MAC[0], protocol, &packet)
    }));
    frames
}

fn world() -> World {
    let mut world = World::with([1500, 600], [BOTH, Agreed::default()], true);
    for any in ["0.0.0.0:7", "[::]:7"] {
        world.stack.udp_bind(any.parse().unwrap()).unwrap();
    }
    let member = world.stack.udp_bind_shared(SocketAddr::new(GROUP.parse().unwrap(), 7)).unwrap();
    world.stack.udp_join(world.now, member, GROUP.parse().unwrap(), DeviceId(0)).unwrap();
    for _ in 0..2 {
        world.pass(Duration::from_secs(1));
        assert_eq!(world.sent(0).len(), 1, "the group is told twice");
    }
    world
}

/// Makes IPv4 header and transport checksums right again, so that changed bytes get further.
fn mend(frame: &mut [u8]) {
    let Some(packet) = frame.get_mut(14..) else { return };
    let (header, protocol) = match packet {
        [first, ..] if *first >> 4 == 4 && packet.len() >= 20 => (usize::from(packet[0] & 15) * 4, packet[9]),
        [first, ..] if *first >> 4 == 6 && packet.len() >= 48 && packet[6] == 0 => (48, packet[40]),
        [first, ..] if *first >> 4 == 6 && packet.len() >= 40 => (40, packet[6]),
        _ => return,
    };
    if packet.len() < header || header < 20 {
        return;
    }
    if packet[0] >> 4 == 4 {
        packet[10..12].fill(0);
        let sum = plain_checksum(&packet[..header]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let addresses = if packet[0] >> 4 == 6 { 8..40 } else { 12..20 };
    let pseudo = packet[addresses].to_vec();
    let length = u32::try_from(packet.len() - header).unwrap().to_be_bytes();
    let (field, pseudo) = match protocol {
        1 | 2 => (2, vec![]),
        58 => (2, [&pseudo[..], &length, &[0, 0, 0, 58]].concat()),
        17 => (6, [&pseudo[..], &length, &[0, 0, 0, 17]].concat()),
        _ => return,
    };
    let Some(transport) = packet.get_mut(header..).filter(|transport| transport.len() >= field + 2) else { return };
    transport[field..field + 2].fill(0);
    let sum = plain_checksum(&[&pseudo[..], transport].concat());
    transport[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

fn drops(world: &World) -> u64 {
    world.stack.drops().iter().map(|(_, count)| count).sum()
}

fn settle(world: &mut World) {
    for device in 0..2 {
        assert!(world.sent(device).len() <= DEVICE_QUEUE_FRAMES_MAX);
    }
    world.pass(Duration::from_millis(20));
}

#[test]
fn every_truncated_frame_of_every_kind_is_a_counted_drop() {
    for (kind, frame) in kinds().iter().enumerate() {
        let mut world = world();
        for length in 0..frame.len() {
            let before = drops(&world);
            let outcome = world.give(0, &frame[..length]);
            assert!(matches!(outcome, Outcome::Dropped(_)), "kind {kind} of {length} bytes: {outcome:?}");
            assert!(drops(&world) > before);
            world.assert_silent();
        }
    }
}

#[test]
fn truncated_frames_with_corrected_lengths_cause_no_panic() {
    for frame in kinds().iter().filter(|frame| frame[13] == 0 || frame[13] == 0xdd) {
        let mut world = world();
        for length in 14 + 20..frame.len() {
            let mut frame = frame[..length].to_vec();
            if frame[14] >> 4 == 4 {
                frame[16..18].copy_from_slice(&u16::try_from(length - 14).unwrap().to_be_bytes());
            } else if length >= 14 + 40 {
                frame[18..20].copy_from_slice(&u16::try_from(length - 54).unwrap().to_be_bytes());
            }
            mend(&mut frame);
            for segment_bytes in [0, 8] {
                world.give_marked(0, &frame, Marks { checksum_unfilled: segment_bytes > 0, segment_bytes });
                settle(&mut world);
            }
        }
    }
}

#[test]
fn a_frame_with_a_shorter_header_part_than_the_contract_is_dropped() {
    use siga_stack::drops::{IpDrop, LinkDrop};
    use siga_stack::link::frame::Received;
    use siga_stack::stack::Handled;
    let mut world = world();
    let frame = &kinds()[1];
    for split in 0..frame.len() {
        let (header, payload) = frame.split_at(split);
        let handled = world.stack.handle_frame(world.now, DeviceId(0), Received::unmarked(header, payload));
        assert!(matches!(handled, Handled::Dropped(reason) if reason == LinkDrop::Length.into()), "{split}");
    }
    let bare = world.stack.handle_frame(world.now, DeviceId(0), Received::unmarked(&frame[..14], &[][..]));
    assert!(matches!(bare, Handled::Dropped(reason) if reason == IpDrop::Length.into()), "a packet of no bytes");
    let nowhere = world.stack.handle_frame(world.now, DeviceId(9), Received::unmarked(&frame[..], &[][..]));
    assert!(matches!(nowhere, Handled::Dropped(reason) if reason == LinkDrop::NoDevice.into()));
}

proptest! {
    #[test]
    fn changed_frames_cause_no_panic(
        steps in proptest::collection::vec(
            (0..20_usize, proptest::collection::vec((0..120_usize, any::<u8>()), 0..6), any::<bool>(), any::<bool>(), 0..80_u16),
            1..60,
        ),
    ) {
        let (mut world, kinds) = (world(), kinds());
        for (kind, changes, mended, checksum_unfilled, segment_bytes) in steps {
            let mut frame = kinds[kind].clone();
            for (at, byte) in changes {
                let at = 14 + at % (frame.len() - 14);
                frame[at] = byte;
            }
            if mended {
                mend(&mut frame);
            }
            let segment_bytes = segment_bytes.saturating_sub(40);
            world.give_marked(0, &frame, Marks { checksum_unfilled, segment_bytes });
            settle(&mut world);
        }
    }

    #[test]
    fn random_bytes_cause_no_panic(
        frames in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..300), 0..3_usize), 1..20),
    ) {
        let mut world = world();
        for (mut frame, kind) in frames {
            if frame.len() >= 15 {
                frame[..6].copy_from_slice(&ROUTER_MAC[0].0);
                frame[12..14].copy_from_slice(&[[8, 0], [0x86, 0xdd], [8, 6]][kind]);
                frame[14] = [0x45, 0x60, 0][kind];
            }
            mend(&mut frame);
            world.give(0, &frame);
            settle(&mut world);
        }
    }
}
