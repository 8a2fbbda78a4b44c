//! Zero-copy send: an application's bytes are copied directly into a ring buffer and not into a send buffer. They stay in the ring
//! buffer until they are acknowledged (decision 013).

use super::{Links, Node};
use crate::device::{self, Sent};
use crate::guest::peer_link::ZeroCopyRoom;
use crate::iucv::memory::Memory;
use crate::limits::ZERO_COPY_BYTES_MIN;
use crate::protocol::message::Loss;
use siga_ring::Retainer;
use siga_stack::Stack;
use siga_stack::limits::HEADER_BYTES_MAX;
use siga_stack::link::frame::Retained;
use siga_stack::sockets::TcpId;
use siga_stack::stack::Transmit;
use siga_stack::stack::tcp::ZeroCopySend;
use siga_stack::time::Instant;
use std::sync::Arc;

/// The result of a zero-copy send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// This many bytes were sent by zero-copy. The caller must write the remaining bytes to the send buffer.
    Gone(usize),
    /// No ring buffer is free yet, so the caller has to wait. Meanwhile it should not write to the send buffer, because zero-copy
    /// is impossible until the send buffer is empty.
    Wait,
}

/// A source that builds one frame with an application's bytes in a ring buffer.
struct Frame<'a> {
    stack: &'a mut Stack<Memory>,
    at: Instant,
    id: TcpId,
    bytes: &'a [u8],
    retainer: Retainer,
    taken: usize,
}

impl device::Source for Frame<'_> {
    fn bytes_max(&mut self) -> usize {
        self.bytes.len() + HEADER_BYTES_MAX
    }

    fn build(&mut self, into: &mut [u8]) -> Option<Transmit> {
        let retain = |part: &[u8]| -> Option<Arc<dyn Retained>> { Some(Arc::new(InRing(self.retainer.retain(part)?))) };
        let (frame, taken) = self.stack.tcp_send_zero_copy(self.at, self.id, self.bytes, into, retain)?;
        self.taken = taken;
        Some(frame)
    }
}

/// Bytes retained in a ring buffer.
#[derive(Debug)]
pub(super) struct InRing(pub(super) Arc<siga_ring::Retained>);

impl Retained for InRing {
    fn copy_to(&self, at: usize, into: &mut [u8]) {
        self.0.copy_to(at, into);
    }
}

impl Node {
    /// Sends as many of an application's bytes as possible by zero-copy.
    pub(crate) fn send_zero_copy(&mut self, id: TcpId, bytes: &[u8]) -> Written {
        let now = self.clock.now();
        let at = self.clock.instant(now);
        let (mut gone, mut used) = (0, None);
        // A shorter frame than the one before costs as much CPU time for fewer bytes. So the remaining bytes wait: the caller
        // writes them again, and a caller that streams then adds more of them.
        let mut least = ZERO_COPY_BYTES_MIN;
        while bytes.len() - gone >= least {
            let device = match self.stack.tcp_zero_copy(at, id, ZERO_COPY_BYTES_MIN) {
                ZeroCopySend::Now(device) => device,
                ZeroCopySend::Later if gone == 0 => {
                    self.transmit(now, at);
                    match self.stack.tcp_zero_copy(at, id, ZERO_COPY_BYTES_MIN) {
                        ZeroCopySend::Now(device) => device,
                        ZeroCopySend::Later => return Written::Wait,
                        ZeroCopySend::Not => break,
                    }
                }
                ZeroCopySend::Later | ZeroCopySend::Not => break,
            };
            let link = usize::from(device.0);
            let sender = &mut self.links.senders[link];
            let retainer = match sender.zero_copy_room(now, self.links.retain_time) {
                ZeroCopyRoom::Now(retainer) => retainer,
                ZeroCopyRoom::Soon(until) if gone == 0 => {
                    self.retained_until = Some(until);
                    return Written::Wait;
                }
                ZeroCopyRoom::Soon(_) | ZeroCopyRoom::Never => break,
            };
            let mut frame = Frame { stack: &mut self.stack, at, id, bytes: &bytes[gone..], retainer, taken: 0 };
            match sender.send_zero_copy(&mut frame) {
                Ok(Sent::Packet) => (gone, used, least) = (gone + frame.taken, Some(link), least.max(frame.taken)),
                Ok(Sent::Full) if gone == 0 => return Written::Wait,
                Ok(Sent::Full | Sent::Nothing) => break,
                Err(violation) => self.lose(link, Loss::Violation(violation.to_string())),
            }
        }
        if let Some(link) = used
            && let Err(violation) = self.links.senders[link].flush()
        {
            self.lose(link, Loss::Violation(violation.to_string()));
        }
        Written::Gone(gone)
    }

    /// Returns whether a zero-copy send over a connection would return [`Written::Wait`] now.
    pub(crate) fn stalls(&mut self, id: TcpId) -> bool {
        let now = self.clock.now();
        let device = match self.stack.tcp_zero_copy(self.clock.instant(now), id, ZERO_COPY_BYTES_MIN) {
            ZeroCopySend::Now(device) => device,
            ZeroCopySend::Later => return true,
            ZeroCopySend::Not => return false,
        };
        let sender = &mut self.links.senders[usize::from(device.0)];
        match sender.zero_copy_room(now, self.links.retain_time) {
            ZeroCopyRoom::Now(_) => !sender.has_buffer(),
            ZeroCopyRoom::Soon(_) => true,
            ZeroCopyRoom::Never => false,
        }
    }

    /// Returns those received buffers to their senders whose payload is no longer retained.
    pub(crate) fn give_back(&mut self) {
        let Links { receivers, hot, .. } = &mut self.links;
        for link in hot.iter() {
            if let Some(ring) = &mut receivers[*link].ring {
                ring.give_back();
            }
        }
    }
}
