//! HiperSockets, a memory-to-memory LAN: each buffer contains one frame. With the driver feature `packing`, frames are added to a
//! buffer until it is full or no frame is left to send.

use super::{Inside, Part, Sent, Source, marks, tag, violation};
use siga_ring::{Frame, Producer, Violation};

#[derive(Debug)]
pub(crate) struct Outbound {
    frame_bytes: usize,
}

impl Outbound {
    pub(super) fn new(frame: u32) -> Self {
        Self { frame_bytes: usize::try_from(frame).unwrap_or(usize::MAX) }
    }

    #[inline]
    pub(super) fn send<S: Source>(&mut self, ring: &mut Producer, source: &mut S) -> Result<Sent, Violation> {
        let need = match source.bytes_max() {
            0 => return Ok(Sent::Nothing),
            // Without packing, a buffer contains only one frame, so reserve the complete buffer for a segment that is as large as
            // possible.
            _ if !ring.packs() => self.frame_bytes,
            need => need.min(self.frame_bytes),
        };
        let Some(place) = ring.reserve(need).map_err(violation)? else { return Ok(Sent::Full) };
        let Some(built) = source.build(place) else { return Ok(Sent::Nothing) };
        ring.commit(built.len, tag(built.marks));
        Ok(Sent::Packet)
    }

    pub(super) fn packet_bytes_max(&self) -> usize {
        self.frame_bytes
    }
}

#[derive(Debug)]
pub(crate) struct Inbound;

impl Inbound {
    #[inline]
    pub(super) fn next(&mut self, frame: &Frame<'_>, at: &mut usize) -> Inside {
        let len = frame.len() - *at;
        if len == 0 {
            return Inside::End;
        }
        let part = Part { at: *at, len, marks: marks(frame.tag()) };
        *at = frame.len();
        Inside::Packet(part)
    }
}
