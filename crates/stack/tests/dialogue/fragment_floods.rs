//! Floods of fragments beside datagrams of others: each source and each device pays for its own.

use crate::world::*;
use siga_stack::drops::FragmentDrop;
use siga_stack::limits::{
    REASSEMBLY_BYTES_MAX, REASSEMBLY_DATAGRAMS_MAX, REASSEMBLY_DEVICE_BYTES_MAX, REASSEMBLY_DEVICE_DATAGRAMS_MAX,
    REASSEMBLY_SOURCE_BYTES_MAX, REASSEMBLY_SOURCE_DATAGRAMS_MAX,
};
use siga_stack::udp::UdpId;

/// Payload of the datagrams that are to arrive.
const LARGE_BYTES: usize = 60_000;
/// Bytes of a fragment on a link of 1,500 bytes.
const PIECE_BYTES: usize = 1_440;

/// A fragment of a UDP datagram to the stack's first address.
fn fragment(from: &str, ident: u32, offset: usize, more: bool, bytes: &[u8]) -> Vec<u8> {
    let offset = u16::try_from(offset).unwrap();
    if from.contains(':') {
        let word = (offset | u16::from(more)).to_be_bytes();
        let header = [&[17, 0][..], &word, &ident.to_be_bytes(), bytes].concat();
        return v6(from, ROUTER6[0], 44, 64, &header);
    }
    let mut packet = V4 { offset, more, ..V4::new(from, ROUTER[0], 17) }.packet(bytes);
    packet[4..6].copy_from_slice(&ident.to_be_bytes()[2..]);
    packet[10..12].fill(0);
    let sum = plain_checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The fragments of a large datagram.
fn pieces(from: &str, ident: u32) -> Vec<Vec<u8>> {
    let to = if from.contains(':') { ROUTER6[0] } else { ROUTER[0] };
    let datagram = udp(from, to, (5, 6), &vec![ident.to_le_bytes()[0]; LARGE_BYTES]);
    let count = datagram.len().div_ceil(PIECE_BYTES);
    let piece = |(at, bytes): (usize, &[u8])| fragment(from, ident, at * PIECE_BYTES, at + 1 < count, bytes);
    datagram.chunks(PIECE_BYTES).enumerate().map(piece).collect()
}

/// The stack of a world, and what the datagrams that arrived hold.
struct Receiver {
    world: World,
    sockets: [UdpId; 2],
}

impl Receiver {
    fn new() -> Self {
        let mut world = World::host();
        let sockets = ["0.0.0.0:6", "[::]:6"].map(|at| world.stack.udp_bind(at.parse().unwrap()).unwrap());
        Self { world, sockets }
    }

    /// How many large datagrams arrived whole since this was last asked.
    fn arrived(&mut self) -> usize {
        let mut count = 0;
        for socket in self.sockets {
            while let Some(datagram) = self.world.stack.udp_receive(socket).unwrap() {
                assert!(datagram.bytes.len() == LARGE_BYTES && datagram.bytes.iter().all(|b| *b == datagram.bytes[0]));
                count += 1;
            }
        }
        count
    }

    fn held(&self) -> (usize, usize) {
        let memory = self.world.stack.memory();
        assert!(memory.0.iter().all(|part| part.held <= part.most), "{memory}");
        (memory.held("datagrams in reassembly"), memory.held("bytes in reassembly"))
    }
}

/// 256 first fragments of 8 bytes from one source stopped reassembly for everyone for 30 s.
#[test]
fn a_flood_of_first_fragments_leaves_other_sources_alone() {
    for (flooder, honest) in [("10.1.0.66", HOST[0]), ("2001:db8:1::66", HOST6[0])] {
        for device in [0, 1] {
            let mut receiver = Receiver::new();
            for ident in 0..10_000 {
                receiver.world.give_packet(0, &fragment(flooder, ident, 0, true, &[1; 8]));
            }
            let mut arrived = 0;
            for ident in 0..10 {
                for piece in pieces(honest, ident) {
                    receiver.world.give_packet(device, &piece);
                }
                arrived += receiver.arrived();
            }
            assert_eq!(arrived, 10, "from {honest} by device {device}");
            assert!(receiver.world.dropped(FragmentDrop::Evicted) >= 9_900);
        }
    }
}

/// The flood and the datagrams take turns, fragment by fragment.
#[test]
fn large_datagrams_arrive_whole_despite_a_flood_of_other_fragments() {
    let whole = vec![7; 1_440];
    for (flooder, honest) in [("10.1.0.66", HOST[0]), ("2001:db8:1::66", HOST6[0])] {
        let mut receiver = Receiver::new();
        let (mut ident, mut arrived) = (0, 0);
        for datagram in 0..20 {
            for piece in pieces(honest, datagram) {
                for at in 0..12 {
                    ident += 1;
                    // Crumbs, beginnings, middles and ends, and the identifications that the other source uses.
                    let (offset, more, bytes) = match at % 4 {
                        0 => (0, true, &whole[..8]),
                        1 => (40_000, false, &whole[..]),
                        2 => (8 * usize::try_from(ident % 4_000).unwrap(), true, &whole[..1_440]),
                        _ => (0, true, &whole[..]),
                    };
                    let number = if at < 6 { ident } else { datagram };
                    receiver.world.give_packet(0, &fragment(flooder, number, offset, more, bytes));
                }
                receiver.world.give_packet(0, &piece);
            }
            receiver.held();
            arrived += receiver.arrived();
        }
        assert_eq!(arrived, 20, "from {honest}");
    }
}

#[test]
fn fragments_of_a_source_and_of_a_device_stay_inside_their_quotas() {
    let source = (REASSEMBLY_SOURCE_DATAGRAMS_MAX, REASSEMBLY_SOURCE_BYTES_MAX);
    let device = (REASSEMBLY_DEVICE_DATAGRAMS_MAX, REASSEMBLY_DEVICE_BYTES_MAX);
    let table = (REASSEMBLY_DATAGRAMS_MAX, REASSEMBLY_BYTES_MAX);
    for bytes in [8, 1_440] {
        for (sources, devices, most) in [(1, 1, source), (50, 1, device), (50, 2, table)] {
            let mut receiver = Receiver::new();
            for ident in 0..40_000_u32 {
                let from = format!("10.{}.0.{}", 1 + ident % devices, 100 + ident % sources);
                let (number, offset) = (ident / 40, 1_440 * usize::try_from(ident % 40).unwrap());
                let number = if bytes == 8 { ident } else { number };
                let packet = fragment(&from, number, offset, true, &vec![1; bytes]);
                receiver.world.give_packet(usize::try_from(ident % devices).unwrap(), &packet);
                let held = receiver.held();
                assert!(held.0 <= most.0 && held.1 <= most.1, "{held:?}, {sources} sources, {devices} devices");
            }
            let held = receiver.held();
            // The datagram evicted last has forty fragments.
            assert!(held.0 == most.0 || held.1 > most.1 - 41 * 1_440, "{held:?} of {most:?}");
        }
    }
}

/// Two devices that are full leave a third, and a source that sends little, their room.
#[test]
fn a_full_reassembly_evicts_from_the_heaviest_source_of_the_heaviest_device() {
    let mut receiver = Receiver::new();
    let mut honest = pieces(HOST[0], 1).into_iter();
    // The honest source came first: its datagram is the oldest of all.
    receiver.world.give_packet(0, &honest.next().unwrap());
    for ident in 0..20_000_u32 {
        let device = usize::try_from(ident % 2).unwrap();
        let from = format!("10.{}.0.{}", 1 + device, 100 + ident / 2 % 5);
        receiver.world.give_packet(device, &fragment(&from, ident, 0, true, &[1; 600]));
    }
    assert_eq!(receiver.held().0, REASSEMBLY_DATAGRAMS_MAX);
    for piece in honest {
        receiver.world.give_packet(0, &piece);
    }
    assert_eq!(receiver.arrived(), 1);
}

/// Older fragments of a source make room for those that the same source sends now.
#[test]
fn a_source_whose_fragments_were_evicted_can_send_again_at_once() {
    let (mut receiver, mut arrived) = (Receiver::new(), 0);
    for ident in 0..500 {
        let mut pieces = pieces(HOST[0], ident);
        if ident < 490 {
            pieces.remove(7);
        }
        for piece in pieces {
            receiver.world.give_packet(0, &piece);
        }
        arrived += receiver.arrived();
    }
    assert_eq!(arrived, 10);
    assert_eq!(receiver.world.dropped(FragmentDrop::Full), 0);
}
