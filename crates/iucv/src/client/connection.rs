//! The state that the client keeps for each socket of the application.

use super::carrier::Carrier;
use crate::BLOCK_BYTES;
use crate::extent::{Extent, size};
use crate::limits::{
    ARRIVALS_HELD_MAX, CROWDED_FROM_BYTES, CROWDED_SEND_BYTES_MAX, SEND_BYTES_MAX, SEND_TIMES_HELD_MAX,
};
use crate::options::{ConnectionInfo, Delivery, Readiness, SendTime, SocketOptions};
use crate::record::{Arrival, Number, Status};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::SystemTime;

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) kind: Kind,
    pub(super) stage: Stage,
    /// True if the socket is already among the pending events, or must not be announced yet.
    pub(super) announced: bool,
    /// Times of sent bytes or datagrams that the application has not taken.
    pub(super) send_times: VecDeque<SendTime>,
    /// Options that the application has set before the guest has made the socket.
    pub(super) later: Option<Box<SocketOptions>>,
}

impl Socket {
    pub(super) fn new(kind: Kind, stage: Stage, announced: bool) -> Self {
        Self { kind, stage, announced, send_times: VecDeque::new(), later: None }
    }

    pub(super) fn add_send_times(&mut self, times: Vec<SendTime>) {
        let room = SEND_TIMES_HELD_MAX.saturating_sub(self.send_times.len());
        self.send_times.extend(times.into_iter().take(room));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The guest has not answered the command that makes the socket.
    Asked,
    /// The guest has not answered, and the application has already closed the socket.
    Unwanted,
    Made(SocketAddr),
    Refused(ErrorKind),
    /// The application has closed the socket. Its blocks are in use until the guest sends `Gone`.
    Closing,
}

#[derive(Debug)]
pub(super) enum Kind {
    Connection(Box<Connection>),
    Listener {
        incoming: VecDeque<Number>,
        pool: Pool,
    },
    Datagrams(Datagrams),
    /// An address for a later listener or connection.
    Reserved,
}

/// How an application receives the connections of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pool {
    /// The guest announces each connection to this application, which is the only one.
    Own,
    /// Several applications accept the connections.
    Shared(Shared),
}

/// What an application knows of a pooled listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shared {
    /// True if connections may wait in the guest.
    pub(super) is_offered: bool,
    pub(super) asks: Ask,
    /// How many connections the guest will hand over that this application has asked for in advance.
    pub(super) expected: u32,
    /// How many connections this application asks for in advance.
    pub(super) depth: u32,
}

impl Shared {
    pub(super) fn new(asks: Ask) -> Self {
        Self { is_offered: false, asks, expected: 0, depth: 1 }
    }

    /// Returns whether the guest has a connection for this application if it asks for one.
    pub(super) fn has_offer(&self) -> bool {
        self.is_offered && self.expected == 0
    }
}

/// The command about a pooled listener that the guest has not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Nothing,
    Pool,
    Connection,
}

/// Which of the applications that hold a socket uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Use {
    /// This application uses the socket.
    #[default]
    Here,
    /// Another application has used it last. This one has not used it since it inherited the socket.
    Inherited,
    /// Another application has taken it over from this one.
    Elsewhere,
    /// This application has asked for it.
    Asked,
    /// The guest had no memory for it.
    Refused,
}

/// A received datagram.
#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) from: SocketAddr,
    pub(super) bytes: Vec<u8>,
    pub(super) at: Option<SystemTime>,
    pub(super) delivery: Option<Delivery>,
}

/// State of a datagram socket.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    pub(super) queue: VecDeque<Datagram>,
    /// Whether the guest refused a datagram because it was too long, since the last call that reported this.
    pub(super) too_long: bool,
    pub(super) used: Use,
    /// An error that the network reported, and that no call has returned.
    pub(super) error: Option<ErrorKind>,
    pub(super) bytes: usize,
    /// Number of unanswered commands about multicast groups and remote addresses. The next field has the last answer.
    pub(super) unanswered: u32,
    pub(super) failure: Option<ErrorKind>,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) remote: SocketAddr,
    pub(super) used: Use,
    pub(super) open: bool,
    pub(super) ended: bool,
    pub(super) closed: bool,
    pub(super) failure: Option<ErrorKind>,
    pub(super) shut: bool,
    /// Blocks with bytes in flight, the oldest first. Each entry has a block and its number of bytes.
    pub(super) blocks: VecDeque<(u32, usize)>,
    /// Number of bytes that were written to the last of these blocks. It may include acknowledged bytes.
    pub(super) filled: usize,
    pub(super) under_way: usize,
    pub(super) send_buffer: usize,
    /// True if a send could not send all bytes, because there was no room.
    pub(super) stalled: bool,
    pub(super) received: VecDeque<Extent>,
    pub(super) unread: usize,
    /// When the unread bytes arrived. Empty unless the application asked for times.
    pub(super) arrivals: VecDeque<Arrival>,
    /// Number of unanswered commands `Info`. The next field has the last answer.
    pub(super) unanswered: u32,
    pub(super) info: Option<Box<ConnectionInfo>>,
    pub(super) carrier: Carrier,
}

impl Connection {
    pub(super) fn new(remote: SocketAddr) -> Self {
        Self {
            remote,
            used: Use::Here,
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
            arrivals: VecDeque::new(),
            unanswered: 0,
            info: None,
            carrier: Carrier::default(),
        }
    }

    /// Frees all blocks and forgets all received bytes, because another application uses the connection now.
    pub(super) fn leave(&mut self, free: &mut Vec<u32>) {
        free.extend(self.blocks.drain(..).map(|(block, _)| block));
        self.received.clear();
        self.arrivals.clear();
        (self.filled, self.under_way, self.unread, self.send_buffer) = (0, 0, 0, 0);
        (self.open, self.ended, self.stalled) = (false, false, false);
        self.carrier = Carrier::default();
    }

    /// Returns how many more bytes this connection can have in flight. `in_all` is the number of bytes that the application has
    /// in flight over all connections. If the other connections have many bytes in flight, the result is smaller, so that the
    /// used blocks stay in the CPU caches.
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

    /// Returns what a receive returns if no byte was copied.
    pub(super) fn nothing_received(&self) -> io::Result<usize> {
        match self.failure {
            _ if self.unread > 0 || self.ended => Ok(0),
            Some(failure) => Err(failure.into()),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Frees the blocks of `bytes` acknowledged bytes. Returns `None` if fewer bytes are in flight.
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

    /// Records when `bytes` received bytes arrived.
    fn add_arrivals(&mut self, arrivals: Vec<Arrival>, bytes: usize) {
        if arrivals.is_empty() && self.arrivals.is_empty() {
            return;
        }
        if self.arrivals.is_empty() && self.unread > 0 {
            let bytes = u32::try_from(self.unread).unwrap_or(u32::MAX);
            self.arrivals.push_back(Arrival { bytes, at: None });
        }
        let untimed = Arrival { bytes: u32::try_from(bytes).unwrap_or(u32::MAX), at: None };
        let pieces = if arrivals.is_empty() && bytes > 0 { vec![untimed] } else { arrivals };
        for piece in pieces {
            let is_full = self.arrivals.len() >= ARRIVALS_HELD_MAX;
            match self.arrivals.back_mut().filter(|_| is_full) {
                Some(last) => *last = Arrival { bytes: last.bytes.saturating_add(piece.bytes), at: piece.at },
                None => self.arrivals.push_back(piece),
            }
        }
    }

    /// Records that the application has read `bytes` bytes. Returns when the last of them arrived.
    pub(super) fn take_arrivals(&mut self, mut bytes: usize) -> Option<SystemTime> {
        let mut at = None;
        while bytes > 0
            && let Some(piece) = self.arrivals.front_mut()
        {
            at = piece.at;
            let taken = bytes.min(size(piece.bytes));
            bytes -= taken;
            piece.bytes -= u32::try_from(taken).unwrap_or(0);
            if piece.bytes == 0 {
                self.arrivals.pop_front();
            }
        }
        at
    }

    /// Applies a status from the guest. Returns `None` if the status is impossible.
    pub(super) fn follow(&mut self, status: Status, arena_bytes: usize, free: &mut Vec<u32>) -> Option<()> {
        self.release(size(status.released), free)?;
        let bytes: usize = status.received.iter().map(|extent| extent.len()).sum();
        let inside = status.received.iter().all(|extent| extent.is_inside(arena_bytes));
        if !inside || self.unread + bytes > arena_bytes {
            return None;
        }
        if !status.arrivals.is_empty() && status.arrivals.iter().map(|piece| size(piece.bytes)).sum::<usize>() != bytes
        {
            return None;
        }
        self.add_arrivals(status.arrivals, bytes);
        self.unread += bytes;
        for extent in status.received {
            match self.received.back_mut() {
                Some(last) if last.at() + last.len() == extent.at() => last.len += extent.len,
                Some(_) | None => self.received.push_back(extent),
            }
        }
        // The guest fills each block in order, so the number of extents exceeds the number of blocks by at most one.
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
