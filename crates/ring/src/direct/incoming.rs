//! The receiving side of a lane.

use super::layout::{BEGIN, CONSUMED, END, PRODUCED, RECEIVED, SEND_GENERATION, STOP, STOPPING};
use super::{Couple, Lane, Violation};
use crate::layout::word;
use crate::sync::{Ordering, fence};

/// State of the receiving side.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    /// How many bytes the peer sent by TCP before the first byte in memory; `None` if it sends by TCP only.
    begin: Option<u64>,
    /// Number of published bytes, as far as this side knows.
    produced: u64,
    consumed: u64,
    /// The number of bytes in memory after which the peer sends by TCP again, if it does, or after which this side reads no more.
    end: Option<u64>,
    /// The last threshold of the peer for which it was notified.
    notified: u64,
}

/// From where the next byte of the stream comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// From TCP, without a limit.
    Tcp,
    /// From TCP, up to this offset of the bytes that come by TCP. The next byte comes from memory.
    TcpUpTo(u64),
    /// From memory, after that from TCP again: the TCP bytes have this offset from then on.
    TcpAfterMemory(u64),
}

impl Lane {
    /// Reads the peer's words. Returns true if there are new bytes, if the peer has begun or ended to send by memory, if there is room for
    /// which this side waits, or if the peer wants this side to return to TCP ([`Lane::stopped`]).
    ///
    /// # Errors
    /// Returns the violation if a word of the peer is impossible.
    pub fn look(&mut self, couple: &mut Couple) -> Result<bool, Violation> {
        let mut is_new = self.wants_room() && {
            self.refresh_consumed(couple)?;
            self.has_room(couple)
        };
        is_new |= self.is_stopping(couple);
        let shape = couple.shape;
        if self.receiving.end.is_some() {
            return Ok(is_new);
        }
        if self.receiving.begin.is_none() {
            if couple.peer.load(self.at(shape, SEND_GENERATION)) != self.generation {
                return Ok(is_new);
            }
            // Acquire: the words of the peer's sender are those of this generation.
            fence(Ordering::Acquire);
            self.receiving.begin = Some(couple.peer.load(self.at(shape, BEGIN)));
            is_new = true;
        }
        // The peer publishes its last byte before it writes the end, so the number of bytes is final if the end is there.
        let end = couple.peer.load(self.at(shape, END));
        fence(Ordering::Acquire);
        let found = couple.peer.load(self.at(shape, PRODUCED));
        let (least, most) = (self.receiving.produced, self.receiving.consumed + word(shape.slot_bytes()));
        if !(least..=most).contains(&found) {
            return Err(Violation::Produced { found, least, most });
        }
        // Acquire: this side reads the bytes after their number.
        fence(Ordering::Acquire);
        is_new |= found != self.receiving.produced;
        self.receiving.produced = found;
        if end != 0 {
            if end - 1 != found {
                return Err(Violation::End { found: end - 1, published: found });
            }
            self.receiving.end = Some(found);
            is_new = true;
        }
        Ok(is_new)
    }

    /// Returns from where the next bytes come, as [`Lane::look`] found it last.
    #[inline]
    pub fn incoming(&self) -> Incoming {
        match (self.receiving.begin, self.receiving.end) {
            (None, _) => Incoming::Tcp,
            (Some(begin), Some(end)) if self.receiving.consumed == end => Incoming::TcpAfterMemory(begin),
            (Some(begin), _) => Incoming::TcpUpTo(begin),
        }
    }

    /// Returns an error if the peer's first byte in memory cannot come after `received` bytes by TCP.
    ///
    /// # Errors
    /// Returns the violation.
    pub fn check_begin(&self, received: u64) -> Result<(), Violation> {
        match self.receiving.begin {
            Some(found) if found < received && !self.has_ended_receiving() => {
                Err(Violation::Begin { found, least: received })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the number of bytes in memory that this side knows of and has not read.
    #[inline]
    pub fn unread(&self) -> usize {
        usize::try_from(self.receiving.produced - self.receiving.consumed).unwrap_or(usize::MAX)
    }

    /// Returns whether no more bytes come by memory: the peer sends by TCP again, or this side has stopped it, and this side has read all
    /// bytes in memory.
    pub fn has_ended_receiving(&self) -> bool {
        self.receiving.end == Some(self.receiving.consumed)
    }

    /// Copies bytes out of memory without reading them. Returns their number.
    pub fn peek(&self, couple: &Couple, into: &mut [u8]) -> usize {
        let len = self.unread().min(into.len());
        let (at, first, second) = couple.shape.parts(self.slot, self.receiving.consumed, len);
        couple.peer.copy_to(at, &mut into[..first]);
        if second > 0 {
            couple.peer.copy_to(couple.shape.buffer(self.slot), &mut into[first..len]);
        }
        len
    }

    /// Reads bytes from memory. Returns their number. Notifies the peer if it waits for the room.
    pub fn receive(&mut self, couple: &mut Couple, into: &mut [u8]) -> usize {
        let len = self.peek(couple, into);
        if len == 0 {
            return 0;
        }
        self.receiving.consumed += word(len);
        couple.received_bytes += word(len);
        couple.own.store(RECEIVED, couple.received_bytes);
        // Release: this side has read the bytes before the peer may write others in their place.
        fence(Ordering::Release);
        couple.own.store(self.at(couple.shape, CONSUMED), self.receiving.consumed);
        let consumed = self.receiving.consumed;
        couple.made_room(self.slot, consumed, &mut self.receiving.notified);
        len
    }

    /// Lets the peer return to TCP. Returns the bytes in memory that this side has not read; the peer's other bytes come by TCP.
    ///
    /// # Errors
    /// Returns the violation if a word of the peer is impossible.
    pub fn stop(&mut self, couple: &mut Couple) -> Result<Vec<u8>, Violation> {
        let stop = self.at(couple.shape, STOP);
        couple.own.store(stop, STOPPING);
        // SeqCst, paired with the fence in `Couple::changed`: either this side sees the bytes that the peer has published, or the peer
        // sees this word after its publication.
        fence(Ordering::SeqCst);
        let looked = self.look(couple);
        let mut rest = vec![0; self.unread()];
        let read = self.receive(couple, &mut rest);
        debug_assert_eq!(read, rest.len(), "all bytes that this side knows of are read");
        couple.own.store(stop, self.receiving.consumed + 1);
        self.receiving.end = Some(self.receiving.consumed);
        couple.changed();
        looked.map(|_| rest)
    }
}
