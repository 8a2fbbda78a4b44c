//! The capture of blocks: what the devices of a guest send and receive, with the headers and messages of their types.

use super::peer_link::{Links, Partner, Sender};
use crate::decode::CAPTURE_HEADER_BYTES;
use crate::switch::capture::Capture;
use siga_ring::Frame;
use siga_stack::pcapng::Direction;
use siga_stack::time::Instant;

/// Returns what precedes a captured block: the number of its format, and the tag of its frame. No format has a tag above 255.
fn header(format: u8, tag: u64) -> [u8; CAPTURE_HEADER_BYTES] {
    [format, u8::try_from(tag).unwrap_or(u8::MAX), 0, 0]
}

/// Returns the name of a link in captures.
fn label(sender: &Sender) -> String {
    match &sender.partner {
        Partner::Member(member) => format!("to {member}"),
        Partner::Group => "to all".to_owned(),
    }
}

impl Links {
    /// Begins the capture of blocks, or ends it.
    pub(super) fn capture_blocks(&mut self, capture: Option<Capture>) {
        self.senders.iter_mut().for_each(|sender| sender.capture_blocks(capture.is_some()));
        self.captured_blocks = capture;
    }

    /// Adds the blocks that were sent to the capture, if one runs.
    #[inline]
    pub(super) fn take_captured(&mut self, at: Instant) {
        if let Some(capture) = &mut self.captured_blocks {
            for (link, sender) in self.senders.iter_mut().enumerate() {
                let label = label(sender);
                let Some((format, blocks)) = sender.outbound.take_captured() else { continue };
                for (block, tag) in blocks {
                    let (header, len) = (header(format, tag), block.len());
                    let rest = |into: &mut [u8]| into.copy_from_slice(&block[..into.len()]);
                    capture.add(at, (link, &label), Direction::Out, (&header, CAPTURE_HEADER_BYTES + len), rest, "");
                }
            }
        }
    }
}

/// Adds a received block to a capture.
#[cold]
pub(super) fn add_received(
    capture: &mut Capture,
    (at, link): (Instant, usize),
    sender: &Sender,
    format: u8,
    frame: &Frame<'_>,
) {
    let header = header(format, frame.tag());
    let rest = |into: &mut [u8]| frame.copy_to(0, into);
    let len = CAPTURE_HEADER_BYTES + frame.len();
    capture.add(at, (link, &label(sender)), Direction::In, (&header, len), rest, "");
}
