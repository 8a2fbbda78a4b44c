//! Blocks and messages of a hostile partner's device.

use crate::decode;
use crate::device::Inside;
use crate::device::blocks::claw::Claw;
use crate::device::blocks::ctc::Ctc;
use crate::device::blocks::lcs::Lcs;
use crate::device::blocks::netiucv::Netiucv;
use crate::device::blocks::{Format, MESSAGE_BYTES_MAX};
use siga_model::topology;

/// Plays blocks of a partner. The first byte is the number of the format. Each block follows its tag and its length.
///
/// # Panics
/// Panics if a packet lies outside of its block or overlaps another, or if a device answers a message with more than two others.
pub fn blocks(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let settings = topology::Claw {
        host_name: "A".to_owned(),
        adapter_name: "B".to_owned(),
        read_size: 32_768,
        write_size: 32_768,
    };
    match kind % 5 {
        0 => play(Ctc::default(), rest),
        1 => play(Netiucv::default(), rest),
        2 => play(Claw::new(settings), rest),
        3 => play(Lcs::new(false, [2; 6]), rest),
        _ => play(Lcs::new(true, [2; 6]), rest),
    }
}

fn play<F: Format>(mut format: F, mut rest: &[u8]) {
    while let Some(([tag, high, low], behind)) = rest.split_first_chunk::<3>() {
        let (block, behind) = behind.split_at(usize::from(u16::from_be_bytes([*high, *low])).min(behind.len()));
        rest = behind;
        let captured = [&[F::NUMBER, *tag, 0, 0], block].concat();
        assert!(decode::describe(&captured).is_some());
        let messages = take(&mut format, block, u64::from(*tag));
        let mut into = vec![0; 4_096];
        // At the beginning, a device sends one message without being asked.
        let mut count = 0;
        while format.has_message() {
            let (len, answer_tag) = format.write_message(&mut into);
            assert!(len <= MESSAGE_BYTES_MAX + 8 && answer_tag < 256);
            count += 1;
        }
        // A message has at most two consequences: an answer and a request.
        assert!(count <= 2 * messages + 1, "{count} answers to {messages} messages");
    }
}

/// Takes the packets and messages of a block. Returns the number of messages.
fn take<F: Format>(format: &mut F, block: &[u8], tag: u64) -> usize {
    let (mut end, mut at, mut last, mut messages) = (0, 0, 0, 0);
    loop {
        let before = at;
        let part = match F::next(block, tag, &mut end, &mut at) {
            Inside::Packet(part) => {
                assert!(part.len > 0, "a packet has bytes");
                part
            }
            Inside::Message(part) => {
                let bytes = &block[part.at..part.at + part.len];
                format.receive(&bytes[..bytes.len().min(MESSAGE_BYTES_MAX)]);
                messages += 1;
                part
            }
            Inside::End | Inside::Malformed => return messages,
        };
        assert!(part.at >= last && part.at + part.len <= block.len() && at > before, "the parts follow each other");
        last = part.at + part.len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The blocks of the partner, most of which fit the format: control frames, or packets behind headers.
    fn block() -> impl Strategy<Value = Vec<u8>> {
        let noise = prop::collection::vec(any::<u8>(), 0..80);
        let claw = (any::<u8>(), 0..3_u8, prop::sample::select(vec![0, 166, 180]), any::<bool>()).prop_map(
            |(command, version, code, fits)| {
                let commands = [0x01, 0x02, 0x21, 0x22, 0x23, 0x24, 0x41];
                let command = commands[usize::from(command) % commands.len()];
                let mut frame = [
                    &[command, version, 1, 0, code, 0, 0, 0][..],
                    b"A       B       ",
                    &[0x80, 0, 0x80, 0, 0, 0, 0, 0],
                ]
                .concat();
                if !fits || command >= 0x21 {
                    frame[8..24].copy_from_slice(b"PACKED  PACKED  ");
                }
                frame
            },
        );
        let lcs =
            (0..10_u8, 0..2_u8, 0..4_u8, 0..2_u8, any::<bool>()).prop_map(|(command, by, sequence, code, long)| {
                let len = if long { 60 } else { 16 };
                let mut body = vec![2; len];
                body[..8].copy_from_slice(&[command, by, 0, sequence, 0, code, 1, 0]);
                let next = u16::try_from(len + 4).unwrap_or(0).to_be_bytes();
                [&next[..], &[0, 0], &body, &[0, 0]].concat()
            });
        (prop_oneof![2 => noise, 2 => claw, 2 => lcs], any::<u8>()).prop_map(|(block, tag)| {
            let len = u16::try_from(block.len()).unwrap_or(0).to_be_bytes();
            [&[tag % 2][..], &len, &block].concat()
        })
    }

    proptest! {
        #[test]
        fn whatever_blocks_and_messages_a_partner_sends_their_parts_follow_each_other(
            kind in any::<u8>(),
            parts in prop::collection::vec(block(), 0..30),
        ) {
            blocks(&[&[kind], &parts.concat()[..]].concat());
        }
    }
}
