//! What a capture holds: read back by walking over its blocks.

use crate::net::{Link, Net, PLAIN, content};
use siga_stack::link::capture::CaptureSettings;
use siga_stack::link::device::Agreed;
use siga_stack::link::frame::{DeviceId, Received};

/// Interface, length in the capture, length of the frame, and the comment of each packet of a file.
fn packets(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>, usize, String)> {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut packets = Vec::new();
    while !bytes.is_empty() {
        let (block, rest) = bytes.split_at(word(bytes, 4) as usize);
        bytes = rest;
        if word(block, 0) == 6 {
            let (held, len) = (word(block, 20) as usize, word(block, 24) as usize);
            let options = &block[28 + held.next_multiple_of(4)..block.len() - 4];
            let text = String::from_utf8_lossy(options).replace('\0', "");
            packets.push((word(block, 8), block[28..28 + held].to_vec(), len, text));
        }
    }
    packets
}

#[test]
fn a_capture_has_all_frames_of_all_devices_with_their_drop_reasons() {
    let large = Link { mtu: 8_992, agreed: Agreed { large_segments: true, checksum_unfilled: true }, ..PLAIN };
    let mut net = Net::new(&[large, PLAIN]);
    net.stacks[1].start_capture(CaptureSettings { snap_bytes: 100, bytes_max: 10 << 20, epoch_ns: 0 });
    net.keep_frames = true;
    let listener = net.listen(false, 80, 5);
    let (here, there) = net.open(false, 80, listener);
    let bytes = content(100_000);
    assert_eq!(net.stream((0, here), (2, there), &bytes), bytes);
    let now = net.now;
    let garbage = [6; 200];
    net.stacks[1].handle_frame(now, DeviceId(0), Received::unmarked(&garbage[..134], &garbage[134..]));
    let packets = packets(&net.stacks[1].take_capture());
    let dropped: Vec<_> = packets.iter().filter(|packet| packet.3.contains("dropped")).collect();
    assert_eq!((dropped.len(), dropped[0].0, dropped[0].2), (1, 0, 200));
    assert!(dropped[0].3.contains("dropped: link: for another station"), "{:?}", dropped[0].3);
    // The capture holds each frame that the router sent, segmented as it was, and all frames sent to the router.
    let sent: Vec<_> =
        packets.iter().filter(|packet| packet.0 == 1 && packet.2 > 1_000).map(|p| (p.1.clone(), p.2)).collect();
    let crossed = net.frames.iter().filter(|(from, frame, _)| *from == 1 && frame.len() > 1_000);
    let crossed: Vec<_> = crossed.map(|(_, frame, _)| (frame[..100].to_vec(), frame.len())).collect();
    assert!(crossed.len() > 60);
    assert_eq!(sent, crossed);
    let longest = packets.iter().filter(|packet| packet.0 == 0).map(|packet| packet.2).max();
    assert!(longest > Some(9_100), "large segments came whole: {longest:?}");
    assert_eq!(net.stacks[1].stop_capture(), 0);
    assert!(net.stacks[1].take_capture().is_empty());
}
