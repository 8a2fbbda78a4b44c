//! Prepares Ethernet frames for a link that did not agree to their marks: cuts large segments and fills in checksums. Switches use
//! it; routers do the same in `forward.rs`.

use super::segmentation::{Piece, Pieces, Plan, Scratch, Shape};
use crate::drops::{DropReason, IpDrop, LinkDrop};
use crate::limits::HEADER_BYTES_MAX;
use crate::link::device::Agreed;
use crate::link::frame::{DeviceId, Marks, Packet, Payload, Received};
use crate::wire::ethernet::{IPV4, IPV6, LINK_BYTES};
use crate::wire::ipv4::Ipv4Header;
use crate::wire::ipv6::Ipv6Header;
use crate::wire::u16_at;

const ETHERTYPE: std::ops::Range<usize> = 12..14;

/// Cuts frames. It owns the memory for edited headers.
#[derive(Debug)]
pub struct Cutter {
    scratch: Scratch,
}

impl Default for Cutter {
    fn default() -> Self {
        Self::new()
    }
}

/// The frames into which a frame was cut, in order.
#[derive(Debug)]
pub struct CutFrames<'a, P: ?Sized> {
    pieces: Pieces<'a, P>,
}

impl<P: Payload + ?Sized> CutFrames<'_, P> {
    /// Returns the next frame.
    pub fn next_piece(&mut self) -> Option<Piece<'_>> {
        self.pieces.next_piece()
    }
}

impl Cutter {
    /// Creates a cutter.
    pub fn new() -> Self {
        Self { scratch: Scratch::new() }
    }

    /// Prepares a frame with an Ethernet header for a link. The caller has checked that segments of the size in the marks fit into
    /// the link's MTU.
    ///
    /// # Errors
    /// Returns the drop reason if the marks do not fit the packet in the frame, or if a checksum is wrong.
    pub fn cut<'a, P: Payload + ?Sized>(
        &'a mut self,
        received: Received<'a, P>,
        agreed: Agreed,
    ) -> Result<CutFrames<'a, P>, DropReason> {
        let Received { header: frame, payload, marks } = received;
        let payload_bytes = payload.len();
        if frame.len() < LINK_BYTES || (payload_bytes > 0 && frame.len() < HEADER_BYTES_MAX) {
            return Err(LinkDrop::Length.into());
        }
        let device = DeviceId(0);
        let packet = Packet {
            frame,
            payload,
            payload_bytes,
            link_bytes: LINK_BYTES,
            marks,
            device,
            link: device,
            to_group: false,
        };
        let shape = match u16_at(frame, ETHERTYPE) {
            Some(IPV4) => {
                let header = Ipv4Header::parse(packet.header(), packet.len())?;
                if header.is_fragment() {
                    return Err(LinkDrop::Marks.into());
                }
                Shape::v4(&header)
            }
            Some(IPV6) => Shape::v6(&Ipv6Header::parse(packet.header(), packet.len())?),
            Some(_) | None => return Err(LinkDrop::Marks.into()),
        };
        let mut pieces = Pieces::new(packet, shape, &mut self.scratch);
        pieces.link_mut(LINK_BYTES).copy_from_slice(&frame[..LINK_BYTES]);
        let is_cut = marks.segment_bytes > 0 && !agreed.large_segments;
        pieces.set_marks(Marks {
            checksum_unfilled: marks.checksum_unfilled && agreed.checksum_unfilled,
            segment_bytes: if is_cut { 0 } else { marks.segment_bytes },
        });
        if is_cut {
            let payload = pieces.prepare_segments()?;
            // The new segments get new checksums. So check the old checksum first, because a corrupt packet must not get a correct
            // one.
            if !marks.checksum_unfilled && !pieces.is_intact() {
                return Err(IpDrop::Checksum.into());
            }
            pieces.set_plan(Plan::Segments { bytes: usize::from(marks.segment_bytes).min(payload.max(1)) });
        } else if marks.checksum_unfilled && !agreed.checksum_unfilled {
            pieces.fill_checksum()?;
        }
        Ok(CutFrames { pieces })
    }
}
