//! A capture in the pcapng format, written into memory: what went into a link and what came out of it.
//!
//! Four interfaces: what A sent, what reached B, what B sent, what reached A. A frame that something befell carries that as
//! its comment. Times are the world's, in nanoseconds. Only the blocks that this needs are written: section header,
//! interface description, enhanced packet. Where the bytes go is the caller's business.

use siga_stack::time::Instant;

use crate::fault::Medium;
use crate::limits::CAPTURE_BYTES_MAX;
use crate::trace::Side;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const OPTION_COMMENT: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;
/// Nanoseconds, as a power of ten.
const RESOLUTION: u8 = 9;
/// What fits a length of 32 bits and is never reached: a frame's length is bounded.
const LEN_MAX: u32 = u32::MAX;

/// Where on the link a frame was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// As this end sent it.
    SentBy(Side),
    /// As it reached this end.
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

/// A capture that grows up to a bound.
#[derive(Debug)]
pub struct Capture {
    bytes: Vec<u8>,
    left_out: u64,
}

impl Capture {
    /// An empty one.
    pub fn new(medium: Medium) -> Self {
        let mut capture = Self { bytes: Vec::new(), left_out: 0 };
        let mut body = BYTE_ORDER.to_le_bytes().to_vec();
        body.extend(1_u16.to_le_bytes());
        body.extend(0_u16.to_le_bytes());
        body.extend(u64::MAX.to_le_bytes());
        capture.block(SECTION, &body);
        let link_type: u16 = match medium {
            Medium::Ethernet => 1,
            Medium::Ip => 101,
        };
        for name in ["a sent", "reached b", "b sent", "reached a"] {
            let mut body = link_type.to_le_bytes().to_vec();
            body.extend([0; 6]);
            option(&mut body, OPTION_NAME, name.as_bytes());
            option(&mut body, OPTION_RESOLUTION, &[RESOLUTION]);
            body.extend([0; 4]);
            capture.block(INTERFACE, &body);
        }
        capture
    }

    /// Adds a frame, with a comment if there is something to say of it.
    pub fn add(&mut self, at: Instant, point: Point, frame: &[u8], comment: &str) {
        let (length, ns) = (u32::try_from(frame.len()).unwrap_or(LEN_MAX).to_le_bytes(), at.as_ns().to_le_bytes());
        let mut body = point.interface().to_le_bytes().to_vec();
        body.extend(&ns[4..]);
        body.extend(&ns[..4]);
        body.extend(length);
        body.extend(length);
        body.extend(frame);
        pad(&mut body);
        if !comment.is_empty() {
            option(&mut body, OPTION_COMMENT, comment.as_bytes());
            body.extend([0; 4]);
        }
        if self.bytes.len() + body.len() > CAPTURE_BYTES_MAX {
            self.left_out += 1;
        } else {
            self.block(PACKET, &body);
        }
    }

    /// The whole file so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Frames that found no room.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    fn block(&mut self, kind: u32, body: &[u8]) {
        let length = u32::try_from(body.len() + 12).unwrap_or(LEN_MAX).to_le_bytes();
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(length);
        self.bytes.extend(body);
        self.bytes.extend(length);
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let kept = &value[..value.len().min(usize::from(u16::MAX) - 3)];
    body.extend(code.to_le_bytes());
    body.extend(u16::try_from(kept.len()).unwrap_or(0).to_le_bytes());
    body.extend(kept);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    /// The blocks of a file: type and body.
    fn blocks(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
        let mut blocks = Vec::new();
        while !bytes.is_empty() {
            let length = word(bytes, 4) as usize;
            assert_eq!((length % 4, word(bytes, length - 4) as usize), (0, length));
            blocks.push((word(bytes, 0), &bytes[8..length - 4]));
            bytes = &bytes[length..];
        }
        blocks
    }

    #[test]
    fn a_file_is_a_section_its_interfaces_and_its_packets() {
        let mut capture = Capture::new(Medium::Ethernet);
        let at = Instant::from_ns(0x1_2345_6789);
        capture.add(at, Point::SentBy(Side::A), b"abcde", "lost");
        capture.add(at, Point::Reached(Side::A), b"abcd", "");
        let blocks = blocks(capture.bytes());
        let kinds: Vec<u32> = blocks.iter().map(|block| block.0).collect();
        assert_eq!(kinds, [SECTION, INTERFACE, INTERFACE, INTERFACE, INTERFACE, PACKET, PACKET]);
        assert_eq!(word(blocks[0].1, 0), BYTE_ORDER);
        // Ethernet, no limit, option 2 (name) of 6 bytes, option 9 (resolution) of one byte that says 9, end.
        let interface =
            [&[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 6, 0][..], b"a sent\0\0", &[9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]];
        assert_eq!(blocks[1].1, interface.concat());
        let head =
            |interface, bytes| [[interface, 0, 0, 0], [1, 0, 0, 0], [0x89, 0x67, 0x45, 0x23], bytes, bytes].concat();
        let packet = [&head(0, [5, 0, 0, 0])[..], b"abcde\0\0\0", &[1, 0, 4, 0], b"lost", &[0; 4]];
        assert_eq!(blocks[5].1, packet.concat());
        assert_eq!(blocks[6].1, [&head(3, [4, 0, 0, 0])[..], b"abcd"].concat());
    }

    #[test]
    fn a_capture_stays_inside_its_bound() {
        let mut capture = Capture::new(Medium::Ip);
        let frame = vec![0; 1 << 20];
        for _ in 0..70 {
            capture.add(Instant::default(), Point::SentBy(Side::B), &frame, "");
        }
        assert!(capture.bytes().len() <= CAPTURE_BYTES_MAX + 12);
        assert_eq!((blocks(capture.bytes()).len() - 5, capture.left_out()), (63, 7));
    }
}
