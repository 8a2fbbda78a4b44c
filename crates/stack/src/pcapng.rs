//! Captures in the pcapng format. A capture is written to memory, up to a maximum size, and its owner stores the bytes.
//!
//! A capture consists of a section header block, interface description blocks and enhanced packet blocks. Timestamps are in nanoseconds.

mod read;

use crate::time::Instant;
pub use read::{Reader, Record};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const OPTION_COMMENT: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_FLAGS: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;
/// Resolution of timestamps as a negative power of ten: 10^-9 seconds.
const RESOLUTION: u8 = 9;
/// The value that is written if a length does not fit into 32 bits. This never happens, because the length of a frame always
/// fits.
const LEN_MAX: u32 = u32::MAX;

/// The type of the link header in an interface's frames. The numbers of this enum and of [`Direction`] are those of the pcapng
/// format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// Frames begin with an Ethernet header.
    Ethernet = 1,
    /// Frames begin with an IPv4 or IPv6 header.
    Ip = 101,
    /// A format of the user's own. siga uses it for blocks.
    User0 = 147,
}

/// The direction of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The frame was received.
    In = 1,
    /// The frame was sent.
    Out = 2,
}

/// A frame to be added to a capture.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The time at which the frame was sent or received.
    pub at: Instant,
    /// The interface: a number that [`Pcapng::add_interface`] returned.
    pub interface: u32,
    /// The direction of the frame, if it is known.
    pub direction: Option<Direction>,
    /// The first bytes of the frame, or all of them.
    pub bytes: &'a [u8],
    /// Length of the complete frame, in bytes.
    pub len: usize,
    /// A comment on the frame. An empty string means that there is no comment.
    pub comment: &'a str,
}

/// A capture in memory, which grows up to a maximum size.
#[derive(Debug)]
pub struct Pcapng {
    bytes: Vec<u8>,
    bytes_max: usize,
    interfaces: u32,
    left_out: u64,
}

impl Pcapng {
    /// Creates an empty capture that stores at most `bytes_max` bytes until the next [`Pcapng::take`].
    pub fn new(bytes_max: usize) -> Self {
        let mut capture = Self { bytes: Vec::new(), bytes_max, interfaces: 0, left_out: 0 };
        let mut body = BYTE_ORDER.to_le_bytes().to_vec();
        body.extend(1_u16.to_le_bytes());
        body.extend(0_u16.to_le_bytes());
        body.extend(u64::MAX.to_le_bytes());
        capture.block(SECTION, &body);
        capture
    }

    /// Adds an interface and returns its number.
    pub fn add_interface(&mut self, name: &str, link_type: LinkType) -> u32 {
        let mut body = (link_type as u16).to_le_bytes().to_vec();
        body.extend([0; 6]);
        option(&mut body, OPTION_NAME, name.as_bytes());
        option(&mut body, OPTION_RESOLUTION, &[RESOLUTION]);
        body.extend([0; 4]);
        self.block(INTERFACE, &body);
        self.interfaces += 1;
        self.interfaces - 1
    }

    /// Adds a frame if the capture has room for it.
    pub fn add(&mut self, frame: Frame<'_>) {
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(LEN_MAX).to_le_bytes();
        let ns = frame.at.as_ns().to_le_bytes();
        let mut body = frame.interface.to_le_bytes().to_vec();
        body.extend(&ns[4..]);
        body.extend(&ns[..4]);
        body.extend(length(frame.bytes.len()));
        body.extend(length(frame.len));
        body.extend(frame.bytes);
        pad(&mut body);
        let options = body.len();
        if let Some(direction) = frame.direction {
            option(&mut body, OPTION_FLAGS, &(direction as u32).to_le_bytes());
        }
        if !frame.comment.is_empty() {
            option(&mut body, OPTION_COMMENT, frame.comment.as_bytes());
        }
        if body.len() > options {
            body.extend([0; 4]);
        }
        if self.bytes.len() + body.len() > self.bytes_max {
            self.left_out += 1;
        } else {
            self.block(PACKET, &body);
        }
    }

    /// Returns the bytes that the owner has not taken yet.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes the stored bytes and returns them, which makes room for new ones. A pcapng file consists of all returned bytes in order.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Returns the number of frames that were left out because the capture was full.
    pub fn left_out(&self) -> u64 {
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

    fn frame(interface: u32, bytes: &[u8]) -> Frame<'_> {
        let at = Instant::from_ns(0x1_2345_6789);
        Frame { at, interface, direction: None, bytes, len: bytes.len(), comment: "" }
    }

    #[test]
    fn a_pcapng_file_has_a_section_its_interfaces_and_its_packets() {
        let mut capture = Pcapng::new(10_000);
        assert_eq!(capture.add_interface("a sent", LinkType::Ethernet), 0);
        assert_eq!(capture.add_interface("b", LinkType::Ip), 1);
        capture.add(Frame { comment: "lost", ..frame(0, b"abcde") });
        capture.add(Frame { len: 9, direction: Some(Direction::Out), ..frame(1, b"abcd") });
        capture.add(frame(1, b"abcd"));
        let bytes = capture.take();
        assert_eq!(capture.bytes(), b"");
        let blocks = blocks(&bytes);
        let kinds: Vec<u32> = blocks.iter().map(|block| block.0).collect();
        assert_eq!(kinds, [SECTION, INTERFACE, INTERFACE, PACKET, PACKET, PACKET]);
        assert_eq!(word(blocks[0].1, 0), BYTE_ORDER);
        // Ethernet, no limit, option 2 (name) of 6 bytes, option 9 (resolution) of one byte that says 9, end.
        let interface =
            [&[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 6, 0][..], b"a sent\0\0", &[9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]];
        assert_eq!(blocks[1].1, interface.concat());
        let head =
            |interface, held, of| [[interface, 0, 0, 0], [1, 0, 0, 0], [0x89, 0x67, 0x45, 0x23], held, of].concat();
        let packet = [&head(0, [5, 0, 0, 0], [5, 0, 0, 0])[..], b"abcde\0\0\0", &[1, 0, 4, 0], b"lost", &[0; 4]];
        assert_eq!(blocks[3].1, packet.concat());
        let packet = [&head(1, [4, 0, 0, 0], [9, 0, 0, 0])[..], b"abcd", &[2, 0, 4, 0, 2, 0, 0, 0], &[0; 4]];
        assert_eq!(blocks[4].1, packet.concat());
        assert_eq!(blocks[5].1, [&head(1, [4, 0, 0, 0], [4, 0, 0, 0])[..], b"abcd"].concat());
    }

    #[test]
    fn a_full_capture_skips_frames_and_continues_once_its_buffer_is_read() {
        let mut capture = Pcapng::new(64 << 20);
        capture.add_interface("a", LinkType::Ip);
        let bytes = vec![0; 1 << 20];
        (0..70).for_each(|_| capture.add(frame(0, &bytes)));
        assert!(capture.bytes().len() <= (64 << 20) + 12);
        assert_eq!((blocks(&capture.take()).len() - 2, capture.left_out()), (63, 7));
        capture.add(frame(0, &bytes));
        assert_eq!(blocks(capture.bytes()).len(), 1);
    }
}
