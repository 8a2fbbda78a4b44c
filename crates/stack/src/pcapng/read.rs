//! Reads captures in the pcapng format. A capture is hostile input: each length is checked, and unknown blocks and options are skipped.

use super::{BYTE_ORDER, Direction, INTERFACE, OPTION_FLAGS, OPTION_NAME, OPTION_RESOLUTION, PACKET, SECTION};

/// Most interfaces of a section.
const INTERFACES_MAX: usize = 4_096;
/// Resolution of timestamps if an interface gives none: 10^-6 seconds.
const RESOLUTION_DEFAULT: u8 = 6;

/// A frame of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The name of the interface. Empty if it has none.
    pub interface: &'a str,
    /// The number of the link type of the interface.
    pub link_type: u16,
    /// The time since 1970 in nanoseconds.
    pub at_ns: u64,
    /// The direction of the frame, if the capture has it.
    pub direction: Option<Direction>,
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Length of the complete frame, in bytes.
    pub len: usize,
}

#[derive(Debug)]
struct Interface<'a> {
    name: &'a str,
    link_type: u16,
    resolution: u8,
}

/// Reads the frames of a capture, one after another.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    interfaces: Vec<Interface<'a>>,
    has_begun: bool,
}

impl<'a> Reader<'a> {
    /// Begins to read a capture.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, interfaces: Vec::new(), has_begun: false }
    }

    /// Returns the body of the next block, with its type.
    fn block(&mut self) -> Result<(u32, &'a [u8]), &'static str> {
        let kind = word(self.rest, 0).ok_or("the file ends within a block")?;
        if kind == SECTION && word(self.rest, 8) != Some(BYTE_ORDER) {
            return Err("the section is not in the byte order of siga's captures (little-endian)");
        }
        if kind != SECTION && !self.has_begun {
            return Err("the file is no pcapng file");
        }
        let length = word(self.rest, 4).ok_or("the file ends within a block")? as usize;
        if length < 12 || !length.is_multiple_of(4) {
            return Err("the length of a block is wrong");
        }
        let block = self.rest.get(..length).ok_or("the file ends within a block")?;
        self.rest = &self.rest[length..];
        Ok((kind, &block[8..length - 4]))
    }

    fn interface(&mut self, body: &'a [u8]) -> Result<(), &'static str> {
        let link_type = half(body, 0).ok_or("an interface is too short")?;
        if self.interfaces.len() == INTERFACES_MAX {
            return Err("the section has too many interfaces");
        }
        let (mut name, mut resolution) = ("", RESOLUTION_DEFAULT);
        for (code, value) in options(body.get(8..).unwrap_or_default()) {
            match (code, value) {
                (OPTION_NAME, value) => name = std::str::from_utf8(value).unwrap_or(""),
                (OPTION_RESOLUTION, [power]) if *power <= 9 => resolution = *power,
                (OPTION_RESOLUTION, _) => return Err("the resolution of the timestamps is not a power of ten"),
                _ => {}
            }
        }
        self.interfaces.push(Interface { name, link_type, resolution });
        Ok(())
    }

    fn packet(&self, body: &'a [u8]) -> Result<Record<'a>, &'static str> {
        let field = |at| word(body, at).ok_or("a packet is too short");
        let (number, high, low) = (field(0)? as usize, field(4)?, field(8)?);
        let (captured, len) = (field(12)? as usize, field(16)? as usize);
        let interface = self.interfaces.get(number).ok_or("a packet has an unknown interface")?;
        let bytes = body.get(20..).and_then(|rest| rest.get(..captured)).ok_or("a packet is too short")?;
        let rest = body.get(20 + captured.next_multiple_of(4)..).unwrap_or_default();
        let flags = options(rest).find(|(code, _)| *code == OPTION_FLAGS).and_then(|(_, value)| word(value, 0));
        let direction = match flags.map(|flags| flags & 3) {
            Some(1) => Some(Direction::In),
            Some(2) => Some(Direction::Out),
            _ => None,
        };
        let at = u64::from(high) << 32 | u64::from(low);
        let at_ns = at.saturating_mul(10_u64.pow(u32::from(9 - interface.resolution)));
        Ok(Record { interface: interface.name, link_type: interface.link_type, at_ns, direction, bytes, len })
    }

    /// Returns the next frame. `None` at the end.
    fn record(&mut self) -> Result<Option<Record<'a>>, &'static str> {
        while !self.rest.is_empty() {
            let (kind, body) = self.block()?;
            match kind {
                SECTION => {
                    self.has_begun = true;
                    self.interfaces.clear();
                }
                INTERFACE => self.interface(body)?,
                PACKET => return self.packet(body).map(Some),
                _ => {}
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Record<'a>, &'static str>;

    /// Returns the next frame. After an error, there is no further frame.
    fn next(&mut self) -> Option<Self::Item> {
        let record = self.record();
        if record.is_err() {
            self.rest = &[];
        }
        record.transpose()
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

/// Returns the options at the end of a block: codes and values.
fn options(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let code = half(rest, 0).filter(|code| *code != 0)?;
        let length = usize::from(half(rest, 2)?);
        let value = rest.get(4..4 + length)?;
        rest = rest.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
        Some((code, value))
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, LinkType, Pcapng};
    use super::*;
    use crate::time::Instant;
    use proptest::prelude::*;

    fn capture() -> Vec<u8> {
        let mut capture = Pcapng::new(10_000);
        let first = capture.add_interface("dev0", LinkType::User0);
        let second = capture.add_interface("", LinkType::Ip);
        let frame = |interface, bytes, direction| Frame {
            at: Instant::from_ns(5_000_000_007),
            interface,
            direction,
            bytes,
            len: 9,
            comment: "why",
        };
        capture.add(frame(first, b"abcde", Some(Direction::Out)));
        capture.add(frame(second, b"xy", None));
        capture.take()
    }

    #[test]
    fn a_capture_is_read_as_it_was_written() {
        let bytes = capture();
        let record = |interface, link_type, direction, bytes| Record {
            interface,
            link_type,
            at_ns: 5_000_000_007,
            direction,
            bytes,
            len: 9,
        };
        let read: Result<Vec<_>, _> = Reader::new(&bytes).collect();
        let expected = vec![record("dev0", 147, Some(Direction::Out), &b"abcde"[..]), record("", 101, None, b"xy")];
        assert_eq!(read, Ok(expected));
        for (wrong, why) in [(&bytes[1..], "no pcapng file"), (&bytes[..bytes.len() - 1], "ends within a block")] {
            let end = Reader::new(wrong).find_map(Result::err).unwrap();
            assert!(end.contains(why), "{end}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8)) {
            let mut bytes = capture();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let read = Reader::new(&bytes).filter(Result::is_ok).count();
            prop_assert!(read <= 2);
        }
    }
}
