//! What an application does with a connection: send, receive, close, and ask what is possible.

use super::super::buffer::Storage;
use super::{Connection, ConnectionState, StateName};
use crate::limits::TCP_RETRIES_SUSPECT;
use crate::tcp::{Failure, IcmpError};
use crate::time::Instant;

/// Least room of a send buffer, if its limit allows.
const SEND_BUFFER_BYTES_MIN: usize = 64 << 10;

/// What an application may do without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness {
    /// Bytes can be received, or the end or failure of the connection can be read.
    pub readable: bool,
    /// Bytes can be sent.
    pub writable: bool,
    /// The connection has failed, or is over in both directions.
    pub closed: bool,
    /// Some of the next bytes are urgent (RFC 9293 MUST-33).
    pub urgent: bool,
    /// There is an ICMP error to take, or retransmissions show that something is wrong with the path (RFC 9293 MUST-47, SHLD-9).
    pub error: bool,
}

/// Why nothing can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// This side has shut its direction down.
    ShutDown,
    /// The connection is over.
    Closed,
}

impl<S: Storage> Connection<S> {
    /// Takes as many bytes to send as there is room for, and returns how many.
    ///
    /// Returns an error if this direction is closed.
    pub fn send(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, SendError> {
        self.may_send()?;
        let len = bytes.len().min(self.send_room());
        self.outgoing.push(&bytes[..len]);
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.wrote(now, u32::try_from(len).unwrap_or(u32::MAX));
        }
        Ok(len)
    }

    fn may_send(&self) -> Result<(), SendError> {
        match self.state {
            _ if self.shut => Err(SendError::ShutDown),
            ConnectionState::TimeWait { .. } | ConnectionState::Closed => Err(SendError::Closed),
            ConnectionState::SynSent(_) | ConnectionState::SynReceived(_) | ConnectionState::Synchronized(_) => Ok(()),
        }
    }

    /// Appends bytes to the send buffer that `write` puts into its memory itself, without a copy by the connection. The caller makes
    /// sure that there is room.
    ///
    /// Returns an error, without calling `write`, if this direction is closed.
    pub fn send_with(&mut self, now: Instant, bytes: usize, write: impl FnOnce(&mut S)) -> Result<(), SendError> {
        self.may_send()?;
        self.outgoing.push_with(bytes, write);
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.wrote(now, u32::try_from(bytes).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// Like [`Connection::send`], but marks the bytes, and all that were written before them, as urgent. RFC 6093 advises against
    /// it, because peers handle the mark differently.
    ///
    /// Returns an error if this direction is closed.
    pub fn send_urgent(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, SendError> {
        self.leave_fast_path();
        let len = self.send(now, bytes)?;
        if len > 0 {
            match &mut self.state {
                ConnectionState::Synchronized(open) => open.wrote_urgent(now),
                ConnectionState::SynSent(_) | ConnectionState::SynReceived(_) => {
                    self.urgent_written = u32::try_from(self.outgoing.len()).unwrap_or(u32::MAX);
                }
                ConnectionState::TimeWait { .. } | ConnectionState::Closed => {}
            }
        }
        Ok(len)
    }

    /// Bytes that [`Connection::send`] would take now. Twice the congestion window, so that the next window is ready when this one
    /// is acknowledged.
    pub fn send_room(&self) -> usize {
        let window = match &self.state {
            ConnectionState::Synchronized(open) => usize::try_from(open.snd.cwnd).unwrap_or(usize::MAX),
            ConnectionState::SynSent(_) | ConnectionState::SynReceived(_) => 0,
            ConnectionState::TimeWait { .. } | ConnectionState::Closed => return 0,
        };
        let wanted = window.saturating_mul(2).max(SEND_BUFFER_BYTES_MIN);
        wanted.min(self.base.config.send_buffer_bytes_max).saturating_sub(self.outgoing.len())
    }

    /// The connection is open, and there is nothing to receive yet.
    #[inline]
    pub(crate) fn awaits_bytes(&self) -> bool {
        self.incoming.len() == 0 && !self.peer_finished && matches!(self.state, ConnectionState::Synchronized(_))
    }

    /// Moves received bytes to `into` and returns how many. 0 with [`Connection::finished`]: the peer has closed.
    #[inline]
    pub fn receive(&mut self, now: Instant, into: &mut [u8]) -> usize {
        let len = into.len().min(self.incoming.len());
        self.incoming.peek(0, &mut into[..len]);
        self.take(now, len);
        len
    }

    /// Removes received bytes that the application has read in the buffer's memory; no more than there are.
    pub fn take(&mut self, now: Instant, bytes: usize) {
        let len = bytes.min(self.incoming.len());
        self.incoming.consume(len);
        self.urgent_ahead = self.urgent_ahead.saturating_sub(u32::try_from(len).unwrap_or(u32::MAX));
        if len > 0
            && let ConnectionState::Synchronized(open) = &mut self.state
        {
            let rtt = open.snd.rtt.smoothed();
            open.rcv.consume(now, u32::try_from(len).unwrap_or(u32::MAX), rtt);
        }
    }

    /// Bytes from the next one to the end of what the peer marked urgent; not all may have arrived. 0: nothing is urgent
    /// (RFC 9293 MUST-33). Urgent data is part of the stream and of any length (MUST-31).
    pub fn urgent_ahead(&self) -> u32 {
        let here = u32::try_from(self.incoming.len()).unwrap_or(u32::MAX);
        if self.peer_finished { self.urgent_ahead.min(here) } else { self.urgent_ahead }
    }

    /// True once after the peer's urgent pointer appeared or moved on (RFC 9293 MUST-32).
    pub fn take_urgent_event(&mut self) -> bool {
        std::mem::take(&mut self.urgent_event)
    }

    /// Bytes that can be received.
    pub fn received(&self) -> usize {
        self.incoming.len()
    }

    /// The peer has closed, and the application has received all bytes.
    pub fn finished(&self) -> bool {
        self.peer_finished && self.incoming.len() == 0
    }

    /// The peer has closed its direction; some of its bytes may not be received yet.
    pub fn peer_finished(&self) -> bool {
        self.peer_finished
    }

    /// The handshake is complete, and the connection is not over.
    pub fn is_open(&self) -> bool {
        matches!(self.state, ConnectionState::Synchronized(_))
    }

    /// Closes this direction; the other stays open (RFC 9293 section 3.6). A connection in SYN-SENT ends.
    pub fn shutdown(&mut self, now: Instant) {
        self.leave_fast_path();
        self.shut = true;
        match &mut self.state {
            ConnectionState::SynSent(_) => self.end(None),
            ConnectionState::Synchronized(open) => open.shutdown(now),
            ConnectionState::SynReceived(_) | ConnectionState::TimeWait { .. } | ConnectionState::Closed => {}
        }
    }

    /// Closes both directions. Written bytes are still sent. Bytes that were not read, or arrive later, are answered by a reset
    /// (RFC 2525 section 2.17). The connection goes on without its application until it is closed.
    pub fn close(&mut self, now: Instant) {
        self.leave_fast_path();
        // RFC 9293 SHLD-3, MAY-1.
        self.reader_gone = true;
        if self.incoming.len() > 0 {
            self.abort();
            return;
        }
        self.shutdown(now);
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.close(now, &self.base);
        }
    }

    /// Ends the connection by a reset at once, whatever is in flight (a linger time of 0).
    pub fn abort(&mut self) {
        self.leave_fast_path();
        match &self.state {
            ConnectionState::Synchronized(open) => self.base.reset = Some(Box::new(open.reset_header(&self.base))),
            ConnectionState::SynReceived(state) => {
                let mut header = self.base.header(self.base.initial.seq + 1, Some(state.rcv_nxt()), 0);
                header.flags.rst = true;
                self.base.reset = Some(Box::new(header));
            }
            ConnectionState::SynSent(_) | ConnectionState::TimeWait { .. } | ConnectionState::Closed => {}
        }
        if self.state_name() != StateName::Closed {
            self.end(Some(Failure::Aborted));
        }
        self.incoming.consume(self.incoming.len());
    }

    /// The application can read something: bytes, the end, or a failure.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.incoming.len() > 0
            || self.peer_finished
            || matches!(self.state, ConnectionState::TimeWait { .. } | ConnectionState::Closed)
    }

    /// What the application may do without waiting.
    #[inline]
    pub fn readiness(&self) -> Readiness {
        let closed = matches!(self.state, ConnectionState::TimeWait { .. } | ConnectionState::Closed);
        Readiness {
            readable: self.is_readable(),
            writable: !self.shut && self.send_room() > 0 && matches!(self.state, ConnectionState::Synchronized(_)),
            closed,
            urgent: self.urgent_ahead() > 0,
            error: self.soft_error.is_some() || self.delivery_problem(),
        }
    }

    /// Why the connection failed, if it did.
    /// RFC 9293 MUST-12: [`Connection::finished`] reports a normal end, this one an abort.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Retransmissions have passed the threshold R1 (RFC 9293 MUST-20): something may be wrong with the path. The owner probes
    /// the next hop again, and may inform the application (SHLD-9).
    pub fn delivery_problem(&self) -> bool {
        let retries = match &self.state {
            ConnectionState::SynSent(state) => state.retries(),
            ConnectionState::SynReceived(state) => state.retries(),
            ConnectionState::Synchronized(open) => open.snd.retries,
            ConnectionState::TimeWait { .. } | ConnectionState::Closed => 0,
        };
        retries >= TCP_RETRIES_SUSPECT
    }

    /// Takes the latest ICMP error that did not end the connection.
    pub fn take_soft_error(&mut self) -> Option<IcmpError> {
        self.soft_error.take()
    }

    /// True if a peer's SYN began the connection and it is not open yet: no application knows of it.
    pub fn is_embryonic(&self) -> bool {
        matches!(&self.state, ConnectionState::SynReceived(state) if state.passive)
    }
}
