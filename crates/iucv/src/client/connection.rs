//! What an application knows of each of its sockets.

use crate::BLOCK_BYTES;
use crate::extent::{Extent, size};
use crate::limits::{CROWDED_FROM_BYTES, CROWDED_SEND_BYTES_MAX, SEND_BYTES_MAX};
use crate::options::Readiness;
use crate::record::{Number, Status};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) kind: Kind,
    pub(super) stage: Stage,
    /// It is among the pending events, or must not be announced yet.
    pub(super) announced: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The guest has not answered.
    Asked,
    /// The guest has not answered, and the application has given the socket up.
    Unwanted,
    Made(SocketAddr),
    Refused(ErrorKind),
    /// It was given up; its blocks are in use until the guest sends `Gone`.
    Closing,
}

#[derive(Debug)]
pub(super) enum Kind {
    Connection(Box<Connection>),
    Listener { incoming: VecDeque<Number> },
    Datagrams(Datagrams),
}

/// A datagram socket.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    pub(super) queue: VecDeque<(SocketAddr, Vec<u8>)>,
    pub(super) bytes: usize,
    /// Unanswered commands about groups, and the last answer.
    pub(super) unanswered: u32,
    pub(super) failure: Option<ErrorKind>,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) remote: SocketAddr,
    pub(super) open: bool,
    pub(super) ended: bool,
    pub(super) closed: bool,
    pub(super) failure: Option<ErrorKind>,
    pub(super) shut: bool,
    /// Blocks with bytes in flight, the oldest first, and how many bytes each.
    pub(super) blocks: VecDeque<(u32, usize)>,
    /// The fill of the last of them.
    pub(super) filled: usize,
    pub(super) under_way: usize,
    pub(super) send_buffer: usize,
    /// A send did not take all bytes for want of room.
    pub(super) stalled: bool,
    pub(super) received: VecDeque<Extent>,
    pub(super) unread: usize,
}

impl Connection {
    pub(super) fn new(remote: SocketAddr) -> Self {
        Self {
            remote,
            open: false,
            ended: false,
            closed: false,
            failure: None,
            shut: false,
            blocks: VecDeque::new(),
            filled: 0,
            under_way: 0,
            send_buffer: 0,
            stalled: false,
            received: VecDeque::new(),
            unread: 0,
        }
    }

    /// How many more bytes can be in flight, if the application has `in_all` in flight. It is fewer if the others' bytes would displace
    /// these from the CPU caches.
    pub(super) fn room(&self, in_all: usize) -> usize {
        let is_crowded = in_all.saturating_sub(self.under_way) > CROWDED_FROM_BYTES;
        let most = if is_crowded { self.send_buffer.min(CROWDED_SEND_BYTES_MAX) } else { self.send_buffer };
        most.saturating_sub(self.under_way)
    }

    pub(super) fn readiness(&self, in_all: usize) -> Readiness {
        let readable = self.unread > 0 || self.ended || self.closed;
        let writable = self.closed || self.open && !self.shut && self.room(in_all) > 0;
        Readiness { readable, writable, closed: self.closed }
    }

    /// Frees the blocks of released bytes; `None` if fewer bytes are in flight.
    pub(super) fn release(&mut self, mut bytes: usize, free: &mut Vec<u32>) -> Option<()> {
        self.under_way = self.under_way.checked_sub(bytes)?;
        while bytes > 0 {
            let (block, under_way) = self.blocks.front_mut()?;
            let part = bytes.min(*under_way);
            (*under_way, bytes) = (*under_way - part, bytes - part);
            if *under_way == 0 {
                free.push(*block);
                self.blocks.pop_front();
            }
        }
        Some(())
    }

    /// Applies a status; `None` if it is impossible.
    pub(super) fn follow(&mut self, status: Status, arena_bytes: usize, free: &mut Vec<u32>) -> Option<()> {
        self.release(size(status.released), free)?;
        let bytes: usize = status.received.iter().map(|extent| extent.len()).sum();
        let inside = status.received.iter().all(|extent| extent.is_inside(arena_bytes));
        if !inside || self.unread + bytes > arena_bytes {
            return None;
        }
        self.unread += bytes;
        for extent in status.received {
            match self.received.back_mut() {
                Some(last) if last.at() + last.len() == extent.at() => last.len += extent.len,
                Some(_) | None => self.received.push_back(extent),
            }
        }
        // The bytes of a block lie in a row, so there are at most as many extents as blocks, and one more.
        if self.received.len() > arena_bytes / BLOCK_BYTES + 1 {
            return None;
        }
        (self.open, self.closed) = (status.open, status.closed);
        self.ended |= status.ended;
        self.failure = self.failure.or(status.failure);
        self.send_buffer = size(status.send_buffer).min(usize::try_from(SEND_BYTES_MAX).unwrap_or(usize::MAX));
        Some(())
    }
}
