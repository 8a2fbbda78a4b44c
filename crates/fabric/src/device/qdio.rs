//! The queues of an OSA-Express adapter. A buffer has 16 elements, each of which covers at most a page of 4 KB. A frame starts with a new
//! element.
//!
//! A sender that has five or more buffers in flight *packs*: it adds frames to a buffer until no element is left, or until it has
//! nothing more to send. A sender with two or fewer buffers in flight puts each frame into a buffer of its own. Between the two, it goes on
//! as before. The receiver of a guest's frames is the card, and their tags say to which of its output queues they belong.

use super::{Sent, Source, tag, violation};
use crate::limits::QDIO_ELEMENTS;
use crate::switch::card::elements;
use crate::switch::frame::{IPV4, IPV6, LINK_BYTES};
use siga_model::topology::Queueing;
use siga_ring::{Producer, Violation};

/// From this number of buffers in flight on, a sender packs.
const PACKS_FROM_BUFFERS: usize = 5;
/// Up to this number of buffers in flight, a sender does not pack.
const PACKS_NOT_UP_TO_BUFFERS: usize = 2;
/// Bits of a frame's tag: the output queue, and whether the frame begins a buffer.
const QUEUE_SHIFT: u32 = 8;
const BEGINS_BUFFER: u64 = 1 << 10;

#[derive(Debug)]
pub(crate) struct Outbound {
    buffer_bytes: usize,
    queueing: Queueing,
    packs: bool,
    /// How many elements of the buffer that is being filled are in use. 0 if no buffer is being filled.
    elements: usize,
}

impl Outbound {
    pub(super) fn new(buffer: u32, queueing: Queueing) -> Self {
        let buffer_bytes = usize::try_from(buffer).unwrap_or(usize::MAX);
        Self { buffer_bytes, queueing, packs: false, elements: 0 }
    }

    pub(super) fn send<S: Source>(&mut self, ring: &mut Producer, source: &mut S) -> Result<Sent, Violation> {
        let need = source.bytes_max().min(self.buffer_bytes);
        if need == 0 {
            return Ok(Sent::Nothing);
        }
        if self.elements + elements(need) > QDIO_ELEMENTS {
            self.flush(ring);
        }
        if self.elements == 0 && ring.packs() {
            match ring.in_flight()? {
                ..=PACKS_NOT_UP_TO_BUFFERS => self.packs = false,
                PACKS_FROM_BUFFERS.. => self.packs = true,
                _ => {}
            }
        }
        // A buffer for one frame is reserved completely, for a segment that is as large as possible.
        let room = if self.packs { need } else { self.buffer_bytes };
        let Some(place) = ring.reserve(room).map_err(violation)? else { return Ok(Sent::Full) };
        let Some(built) = source.build(place) else { return Ok(Sent::Nothing) };
        let queue = self.queueing.queue(service(&place[..built.len]));
        let begins = if self.elements == 0 { BEGINS_BUFFER } else { 0 };
        ring.commit(built.len, tag(built.marks) | u64::from(queue) << QUEUE_SHIFT | begins);
        self.elements += elements(built.len);
        if !self.packs {
            self.flush(ring);
        }
        Ok(Sent::Packet)
    }

    /// Publishes the buffer that is being filled.
    pub(super) fn flush(&mut self, ring: &mut Producer) {
        ring.publish();
        self.elements = 0;
    }

    pub(super) fn packet_bytes_max(&self) -> usize {
        self.buffer_bytes
    }
}

/// Returns the output queue of a frame by its tag, and whether the frame begins a buffer. Every tag is valid.
pub(crate) fn place(tag: u64) -> (usize, bool) {
    (usize::from(tag.to_be_bytes()[6]) % Queueing::QUEUES, tag & BEGINS_BUFFER != 0)
}

/// Returns the type of service of an Ethernet frame with an IPv4 packet, or the traffic class of one with an IPv6 packet.
#[inline]
fn service(frame: &[u8]) -> Option<u8> {
    let kind = frame.get(LINK_BYTES - 2..LINK_BYTES)?.try_into().ok().map(u16::from_be_bytes)?;
    let (first, second) = (*frame.get(LINK_BYTES)?, *frame.get(LINK_BYTES + 1)?);
    match kind {
        IPV4 => Some(second),
        IPV6 => Some(first << 4 | second >> 4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_queue_follows_from_the_type_of_service_as_in_linux() {
        let frame = |kind: u16, bytes: [u8; 2]| [&[0; 12][..], &kind.to_be_bytes(), &bytes].concat();
        for (queueing, queues) in [
            // Precedence 0 to 7; then cost, reliability, throughput and low delay.
            ("no_prio_queueing", [2; 12]),
            ("no_prio_queueing:0", [0; 12]),
            ("prio_queueing_prec", [3, 3, 2, 2, 1, 1, 0, 0, 3, 3, 3, 3]),
            ("prio_queueing_tos", [2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 0]),
            ("prio_queueing_skb", [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 0]),
        ] {
            let queueing: Queueing = queueing.parse().unwrap();
            let services = [0, 0x20, 0x40, 0x60, 0x80, 0xa0, 0xc0, 0xe0, 0x02, 0x04, 0x08, 0x10];
            for (tos, queue) in services.into_iter().zip(queues) {
                let v4 = frame(IPV4, [0x45, tos]);
                let v6 = frame(IPV6, [0x60 | tos >> 4, tos << 4]);
                assert_eq!(
                    (queueing.queue(service(&v4)), queueing.queue(service(&v6))),
                    (queue, queue),
                    "{queueing} {tos:#x}"
                );
            }
        }
        // Other frames have the usual queue.
        let arp = frame(crate::switch::frame::ARP, [0, 1]);
        assert_eq!(Queueing::Precedence.queue(service(&arp)), 2);
        assert_eq!(Queueing::Precedence.queue(service(&arp[..14])), 2);
    }
}
