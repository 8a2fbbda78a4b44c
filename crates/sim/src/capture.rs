//! A capture of one link in the pcapng format: the frames that its two ends, A and B, sent and received.
//!
//! The capture has four interfaces: frames sent by A, frames received by B, frames sent by B, and frames received by A. The
//! comment of a frame lists its fates (for example `lost`). Timestamps are in virtual time.

use siga_stack::pcapng::{Frame, LinkType, Pcapng};
use siga_stack::time::Instant;

use crate::fault::Medium;
use crate::limits::CAPTURE_BYTES_MAX;
use crate::trace::Side;

/// The interface of a capture: where on the link a frame was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Frames as this end sent them.
    SentBy(Side),
    /// Frames as this end received them.
    Reached(Side),
}

impl Point {
    const fn interface(self) -> u32 {
        match self {
            Self::SentBy(Side::A) => 0,
            Self::Reached(Side::B) => 1,
            Self::SentBy(Side::B) => 2,
            Self::Reached(Side::A) => 3,
        }
    }
}

/// A capture of at most [`CAPTURE_BYTES_MAX`] bytes.
#[derive(Debug)]
pub struct Capture(Pcapng);

impl Capture {
    /// Creates an empty capture.
    pub fn new(medium: Medium) -> Self {
        let mut file = Pcapng::new(CAPTURE_BYTES_MAX);
        let link_type = match medium {
            Medium::Ethernet => LinkType::Ethernet,
            Medium::Ip => LinkType::Ip,
        };
        for name in ["a sent", "reached b", "b sent", "reached a"] {
            file.add_interface(name, link_type);
        }
        Self(file)
    }

    /// Adds a frame. If `comment` is empty, the frame has no comment.
    pub fn add(&mut self, at: Instant, point: Point, frame: &[u8], comment: &str) {
        let interface = point.interface();
        self.0.add(Frame { at, interface, direction: None, bytes: frame, len: frame.len(), comment });
    }

    /// Returns the file so far. It is a valid pcapng file at any time.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_point_of_a_link_has_an_interface_of_its_own() {
        let mut capture = Capture::new(Medium::Ethernet);
        let before = capture.bytes().len();
        let points = [Point::SentBy(Side::A), Point::Reached(Side::B), Point::SentBy(Side::B), Point::Reached(Side::A)];
        for point in points {
            capture.add(Instant::default(), point, b"abcd", "");
        }
        let packets = capture.bytes()[before..].chunks(36);
        assert_eq!(packets.map(|packet| packet[8]).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
}
