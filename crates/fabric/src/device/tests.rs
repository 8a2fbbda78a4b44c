//! Devices over real rings: what is put in comes out, whatever lies in a block.

mod starts;

use super::*;
use proptest::prelude::*;
use siga_model::features::DriverFeatures;
use siga_ring::{Link, OwnMemory, PeerMemory, Shape, doorbell};

const BUFFER: u32 = 4_096;
const KINDS: [NetworkKind; 5] = [
    NetworkKind::Vctc { buffer: BUFFER },
    NetworkKind::Hipersockets { frame: BUFFER },
    NetworkKind::Netiucv { buffer: BUFFER - 2 },
    NetworkKind::Claw { buffer: BUFFER },
    NetworkKind::Lcs { mtu: 1_500 },
];

/// Both ends of a link with four buffers each way.
fn ends() -> (Link, Link) {
    ends_with(BUFFER as usize, 4)
}

fn ends_with(buffer_bytes: usize, buffers: usize) -> (Link, Link) {
    let shape = Shape::new(buffer_bytes, buffers).unwrap();
    let ((own, memory), (other, other_memory)) = (OwnMemory::create(shape).unwrap(), OwnMemory::create(shape).unwrap());
    let ((notify_fd, other_wake_fd), (other_notify_fd, wake_fd)) =
        (doorbell::pair().unwrap(), doorbell::pair().unwrap());
    let peer = PeerMemory::map(other_memory, shape).unwrap();
    let other_peer = PeerMemory::map(memory, shape).unwrap();
    (Link::new(own, peer, notify_fd, wake_fd), Link::new(other, other_peer, other_notify_fd, other_wake_fd))
}

/// Nothing is to be sent.
struct Nobody;

impl Source for Nobody {
    fn bytes_max(&mut self) -> usize {
        0
    }

    fn build(&mut self, _: &mut [u8]) -> Option<Transmit> {
        None
    }
}

fn send(outbound: &mut Outbound, link: &mut Link, packet: &[u8], marks: Marks) -> Sent {
    let fill = |into: &mut [u8]| into.copy_from_slice(packet);
    outbound.send(&mut link.producer, &mut Whole { packet: Transmit { len: packet.len(), marks }, fill }).unwrap()
}

/// What was found in a frame: packets, and what is none.
type Found = Vec<Result<(Vec<u8>, Marks), Inside>>;

/// What was found in all frames that have come.
fn receive(inbound: &mut Inbound, link: &mut Link) -> Vec<Found> {
    let mut frames = Vec::new();
    while let Some(frame) = link.consumer.next_frame().unwrap() {
        let (mut at, mut found) = (0, Vec::new());
        loop {
            match inbound.next(&frame, &mut at) {
                Inside::End => break,
                Inside::Packet(part) => {
                    let mut bytes = vec![0; part.len];
                    frame.copy_to(part.at, &mut bytes);
                    found.push(Ok((bytes, part.marks)));
                }
                other @ (Inside::Message(_) | Inside::Malformed) => {
                    found.push(Err(other));
                    break;
                }
            }
        }
        frames.push(found);
    }
    frames
}

type Sending = (Outbound, Link);
type Receiving = (Inbound, Link);

/// A virtual CTC whose both sides have said that they are there.
fn open_vctc() -> (Sending, Receiving) {
    let (mut one, mut other) = ends();
    let kind = NetworkKind::Vctc { buffer: BUFFER };
    let ((mut outbound, _), (_, mut inbound)) = (halves(kind), halves(kind));
    assert_eq!(send(&mut outbound, &mut one, &[1], Marks::default()), Sent::Full, "the other side has said nothing");
    outbound.flush(&mut one.producer).unwrap();
    let hello = Part { at: 2, len: 0, marks: Marks::default() };
    assert_eq!(receive(&mut inbound, &mut other), [[Err(Inside::Message(hello))]]);
    outbound.receive(&[]);
    ((outbound, one), (inbound, other))
}

#[test]
fn a_channel_collects_while_a_write_is_in_flight() {
    let ((mut outbound, mut one), (mut inbound, mut other)) = open_vctc();
    let marks = Marks { checksum_unfilled: true, segment_bytes: 1_460 };
    assert_eq!(send(&mut outbound, &mut one, &[1; 10], marks), Sent::Packet);
    assert_eq!(outbound.flush(&mut one.producer).unwrap(), 0, "nothing is in flight: it goes at once");
    for byte in 2..5 {
        assert_eq!(send(&mut outbound, &mut one, &[byte; 100], Marks::default()), Sent::Packet);
        assert_eq!(outbound.flush(&mut one.producer).unwrap(), 4, "it waits for all buffers");
    }
    assert_eq!(receive(&mut inbound, &mut other), [[Ok((vec![1; 10], marks))]]);
    assert_eq!(outbound.flush(&mut one.producer).unwrap(), 0);
    let block: Vec<_> = (2..5).map(|byte| Ok((vec![byte; 100], Marks::default()))).collect();
    assert_eq!(receive(&mut inbound, &mut other), [block], "one block");
}

/// Returns the bytes and tags of the frames that have come.
fn raw(link: &mut Link) -> Vec<(Vec<u8>, u64)> {
    let mut frames = Vec::new();
    while let Some(frame) = link.consumer.next_frame().unwrap() {
        let mut bytes = vec![0; frame.len()];
        frame.copy_to(0, &mut bytes);
        frames.push((bytes, frame.tag()));
    }
    frames
}

/// Sends packets of three and four bytes as one block. Returns it.
fn block_of_two(outbound: &mut Outbound, link: &mut Link, other: &mut Link) -> Vec<u8> {
    for packet in [&[1; 3][..], &[2; 4]] {
        assert_eq!(send(outbound, link, packet, Marks::default()), Sent::Packet);
    }
    outbound.flush(&mut link.producer).unwrap();
    let [(block, 0)] = &raw(other)[..] else { panic!("not one block") };
    block.clone()
}

#[test]
fn the_blocks_of_each_type_have_the_bytes_of_its_format() {
    let ((mut outbound, mut one), (_, mut other)) = open_vctc();
    let block = block_of_two(&mut outbound, &mut one, &mut other);
    assert_eq!(block, [0, 21, 0, 9, 8, 0, 0, 0, 1, 1, 1, 0, 10, 8, 0, 0, 0, 2, 2, 2, 2]);

    let (mut one, mut other) = ends();
    let (mut outbound, _) = halves(NetworkKind::Netiucv { buffer: BUFFER - 2 });
    outbound.flush(&mut one.producer).unwrap();
    // "0       0       " in EBCDIC.
    let user_data = [[0xf0, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40]; 2].concat();
    assert_eq!(raw(&mut other), [(user_data.clone(), 1)]);
    outbound.receive(&user_data);
    let block = block_of_two(&mut outbound, &mut one, &mut other);
    assert_eq!(block, [0, 5, 1, 1, 1, 0, 11, 2, 2, 2, 2, 0, 0]);
}

#[test]
fn a_path_of_netiucv_refuses_other_user_data_and_counts_it() {
    let (mut one, _) = ends();
    let (mut outbound, _) = halves(NetworkKind::Netiucv { buffer: BUFFER - 2 });
    outbound.flush(&mut one.producer).unwrap();
    outbound.receive(b"0       0       ");
    assert_eq!(send(&mut outbound, &mut one, &[1], Marks::default()), Sent::Full);
    assert_eq!((outbound.is_open(), outbound.counters()), (false, vec![("connect_refused", 1)]));
}

#[test]
fn a_message_of_netiucv_takes_a_packet_as_large_as_its_buffer_without_a_field() {
    let (mut one, mut other) = ends();
    let (mut outbound, mut inbound) = halves(NetworkKind::Netiucv { buffer: BUFFER - 2 });
    outbound.flush(&mut one.producer).unwrap();
    outbound.receive(&raw(&mut other)[0].0);
    let largest = vec![7; BUFFER as usize - 4];
    assert_eq!(outbound.packet_bytes_max(), largest.len());
    for packet in [&[1; 50][..], &largest, &[2; 50]] {
        assert_eq!(send(&mut outbound, &mut one, packet, Marks::default()), Sent::Packet);
    }
    assert_eq!(send(&mut outbound, &mut one, &[7; BUFFER as usize - 3], Marks::default()), Sent::Nothing);
    let found = |packet: &[u8]| vec![Ok((packet.to_vec(), Marks::default()))];
    assert!(receive(&mut inbound, &mut other) == [found(&[1; 50]), found(&largest), found(&[2; 50])]);
}

#[test]
fn a_packet_that_does_not_fit_behind_others_gets_a_block_of_its_own() {
    let ((mut outbound, mut one), (mut inbound, mut other)) = open_vctc();
    let largest = vec![7; outbound.packet_bytes_max()];
    assert_eq!(largest.len() + 8, BUFFER as usize);
    for packet in [&[1; 50][..], &largest, &[2; 50]] {
        assert_eq!(send(&mut outbound, &mut one, packet, Marks::default()), Sent::Packet);
    }
    let too_long = vec![7; largest.len() + 1];
    assert_eq!(send(&mut outbound, &mut one, &too_long, Marks::default()), Sent::Nothing);
    assert_eq!(receive(&mut inbound, &mut other).len(), 3);
    assert_eq!(outbound.flush(&mut one.producer).unwrap(), 0);
    for _ in 0..4 {
        assert_eq!(send(&mut outbound, &mut one, &largest, Marks::default()), Sent::Packet);
    }
    assert_eq!(send(&mut outbound, &mut one, &[3], Marks::default()), Sent::Full, "four buffers are in flight");
}

#[test]
fn hipersockets_hands_each_packet_over_at_once() {
    let (mut one, mut other) = ends();
    let kind = NetworkKind::Hipersockets { frame: BUFFER };
    let ((mut outbound, _), (_, mut inbound)) = (halves(kind), halves(kind));
    let marks = Marks { checksum_unfilled: true, segment_bytes: 8_960 };
    for byte in 0..4 {
        assert_eq!(send(&mut outbound, &mut one, &[byte; 100], marks), Sent::Packet);
    }
    assert_eq!(send(&mut outbound, &mut one, &[4], marks), Sent::Full);
    let frames: Vec<_> = (0..4).map(|byte| vec![Ok((vec![byte; 100], marks))]).collect();
    assert_eq!(receive(&mut inbound, &mut other), frames);
    let nothing = outbound.send(&mut one.producer, &mut Nobody).unwrap();
    assert_eq!((nothing, outbound.flush(&mut one.producer).unwrap()), (Sent::Nothing, 0));
}

#[test]
fn hipersockets_packs_short_packets_if_its_driver_does() {
    let (mut one, mut other) = ends();
    let kind = NetworkKind::Hipersockets { frame: BUFFER };
    let ((mut outbound, _), (_, mut inbound)) = (halves(kind), halves(kind));
    crate::convert::prepare(&mut one.producer, DriverFeatures::default(), kind);
    let (mut sent, mut received) = (0_u8, Vec::new());
    while send(&mut outbound, &mut one, &[sent; 1_000], Marks::default()) == Sent::Packet {
        sent += 1;
    }
    outbound.flush(&mut one.producer).unwrap();
    for frame in receive(&mut inbound, &mut other) {
        received.extend(frame);
    }
    let packets: Vec<_> = (0..sent).map(|byte| Ok((vec![byte; 1_000], Marks::default()))).collect();
    assert_eq!((sent, received), (16, packets), "four in each of four buffers");
}

proptest! {
    #[test]
    fn every_tag_means_some_marks_and_marks_come_back(checksum_unfilled: bool, segment_bytes: u16, word: u64) {
        let sent = Marks { checksum_unfilled, segment_bytes };
        prop_assert_eq!(marks(tag(sent)), sent);
        let _ = marks(word);
    }

    /// Whatever a partner puts into a frame, what is found lies inside of it and does not overlap.
    #[test]
    fn no_frame_leads_outside_of_itself(frame in prop::collection::vec(any::<u8>(), 0..200), length: u16, first: u16) {
        for kind in KINDS {
            let (mut one, mut other) = ends();
            let mut frame = frame.clone();
            // Half of the lengths are near what they should be, so that most frames get past the first check. A third of the frames
            // are messages.
            if frame.len() > 4 {
                let near = u16::try_from(frame.len()).unwrap().wrapping_add(length % 4).wrapping_sub(1);
                frame[..2].copy_from_slice(&if length % 2 == 0 { near } else { length }.to_be_bytes());
                frame[2..4].copy_from_slice(&(first % 64).to_be_bytes());
            }
            let place = one.producer.reserve(frame.len()).unwrap().unwrap();
            place.copy_from_slice(&frame);
            one.producer.commit(frame.len(), u64::from(length % 3));
            one.producer.publish();
            let mut inbound = halves(kind).1;
            let received = other.consumer.next_frame().unwrap().unwrap();
            let (mut at, mut end) = (0, 0);
            while let Inside::Packet(part) | Inside::Message(part) = inbound.next(&received, &mut at) {
                let is_hello = part.len == 0 && frame.len() >= 2 && at == 2;
                prop_assert!(is_hello || part.at >= end && part.len > 0 && part.at + part.len <= received.len());
                end = part.at + part.len;
            }
        }
    }
}

/// Takes frames until this number of buffers is in flight.
fn take_all_but(link: &mut Link, other: &mut Link, buffers: usize) {
    while other.producer.in_flight().unwrap() > buffers {
        assert!(link.consumer.next_frame().unwrap().is_some());
        link.consumer.give_back();
    }
}

#[test]
fn a_sender_to_a_card_packs_from_five_buffers_in_flight_on_and_stops_at_two() {
    let kind = NetworkKind::Qdio { mtu: 8_992, ethernet: true };
    for packs in [true, false] {
        let ((mut link, mut other), mut outbound) = (ends_with(65_536, 64), halves(kind).0);
        link.producer.set_packing(packs);
        let mut buffers_of = |link: &mut Link, count: usize, bytes: usize| {
            let before = link.producer.counters().buffers;
            for _ in 0..count {
                assert_eq!(send(&mut outbound, link, &vec![7; bytes], Marks::default()), Sent::Packet);
            }
            outbound.flush(&mut link.producer).unwrap();
            link.producer.counters().buffers - before
        };
        assert_eq!(buffers_of(&mut link, 5, 1_500), 5);
        // 16 elements: one for each small frame, and three for a large one.
        assert_eq!(buffers_of(&mut link, 20, 1_500), if packs { 2 } else { 20 });
        assert_eq!(buffers_of(&mut link, 6, 9_000), if packs { 2 } else { 6 });
        take_all_but(&mut other, &mut link, 3);
        assert_eq!(buffers_of(&mut link, 4, 1_500), if packs { 1 } else { 4 });
        take_all_but(&mut other, &mut link, 2);
        assert_eq!(buffers_of(&mut link, 3, 1_500), 3);
        // Also within a burst, a full buffer is the time to look again.
        assert_eq!(buffers_of(&mut link, 3, 1_500), if packs { 1 } else { 3 });
        let before = link.producer.counters().buffers;
        for frame in 0..20 {
            assert_eq!(send(&mut outbound, &mut link, &[7; 1_500], Marks::default()), Sent::Packet);
            if frame == 10 {
                take_all_but(&mut other, &mut link, 1);
            }
        }
        outbound.flush(&mut link.producer).unwrap();
        assert_eq!(link.producer.counters().buffers - before, if packs { 5 } else { 20 });
    }
}

#[test]
fn frames_to_a_card_have_the_queue_of_their_type_of_service() {
    let kind = NetworkKind::Qdio { mtu: 8_992, ethernet: true };
    let ((mut link, mut other), mut outbound) =
        (ends_with(65_536, 8), outbound(kind, &Settings { queueing: Queueing::Precedence, ..Settings::default() }));
    let marks = Marks { checksum_unfilled: true, segment_bytes: 1_460 };
    for tos in [0x00, 0xe0] {
        let packet = [&[0; 12][..], &[8, 0, 0x45, tos], &[0; 40]].concat();
        assert_eq!(send(&mut outbound, &mut link, &packet, marks), Sent::Packet);
    }
    for queue in [3, 0] {
        let frame = other.consumer.next_frame().unwrap().unwrap();
        assert_eq!(qdio::place(frame.tag()), (queue, true));
        let Inside::Packet(part) = halves(kind).1.next(&frame, &mut 0) else { panic!("no packet") };
        assert_eq!((part.len, part.marks), (56, marks));
    }
}
