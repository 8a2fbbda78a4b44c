//! A capture of a link in the pcapng format: the frames that its two ends sent and received.
//!
//! The capture has four interfaces: what A sent, what reached B, what B sent, and what reached A. The comment of a frame lists its
//! fates. Timestamps are in virtual time.

use siga_stack::pcapng::{Frame, LinkType, Pcapng};
use siga_stack::time::Instant;

use crate::fault::Medium;
use crate::limits::CAPTURE_BYTES_MAX;
use crate::trace::Side;

/// The point of the link at which a frame was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// A frame as this end sent it.
    SentBy(Side),
    /// A frame as it reached this end.
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

/// A capture with a maximum size, [`CAPTURE_BYTES_MAX`].
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

    /// Adds a frame. An empty `comment` is left out.
    pub fn add(&mut self, at: Instant, point: Point, frame: &[u8], comment: &str) {
        let interface = point.interface();
        self.0.add(Frame { at, interface, direction: None, bytes: frame, len: frame.len(), comment });
    }

    /// Returns the complete file so far.
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
