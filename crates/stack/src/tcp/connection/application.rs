//! What an application does with a connection: send, receive, close, and ask for its readiness.

use super::super::buffer::Storage;
use super::{Connection, ConnectionState, StateName, SynReceived, SynSent};
use crate::limits::{TCP_RETRIES_SUSPECT, TCP_SEND_BUFFER_BYTES_FIRST};
use crate::tcp::{ArrivedBytes, Failure, SegmentError, SendTime, WriteFlags};
use crate::time::Instant;

/// What an application may do without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionReadiness {
    /// Whether the application can receive bytes, or read the end or failure of the connection.
    pub readable: bool,
    /// Whether the application can send bytes.
    pub writable: bool,
    /// Whether the connection has failed, or is over in both directions.
    pub closed: bool,
    /// Whether any of the bytes that the application reads next are urgent (RFC 9293 MUST-33).
    pub urgent: bool,
    /// Whether there is an ICMP error for [`Connection::take_soft_error`], or retransmissions indicate a problem on the path
    /// (RFC 9293 MUST-47, SHLD-9).
    pub error: bool,
}

/// Why nothing can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// This side has shut down its sending direction.
    ShutDown,
    /// The connection is over.
    Closed,
}

impl<S: Storage> Connection<S> {
    /// Appends as many of `bytes` to the send buffer as fit, and returns how many.
    ///
    /// Returns an error if the sending direction is closed.
    #[inline]
    pub fn send(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, SendError> {
        self.send_flagged(now, bytes, WriteFlags::default())
    }

    /// Like [`Connection::send`], with flags. Before the connection is open, the flags have no effect.
    ///
    /// - A segment that [`WriteFlags::more_follows`] holds back waits for at most one RTO after the preceding data was acknowledged.
    /// - [`WriteFlags::ends_record`] has an effect only if all of `bytes` fit, as in Linux.
    ///
    /// Returns an error if the sending direction is closed.
    #[inline]
    pub fn send_flagged(&mut self, now: Instant, bytes: &[u8], flags: WriteFlags) -> Result<usize, SendError> {
        self.may_send()?;
        let len = bytes.len().min(self.send_room());
        self.outgoing.push(&bytes[..len]);
        match &mut self.state {
            ConnectionState::Synchronized(open) => {
                (open.snd.starved, open.snd.more_follows) = (len < bytes.len(), flags.more_follows);
                open.wrote(now, u32::try_from(len).unwrap_or(u32::MAX));
                if (flags.ends_record || open.snd.extras.is_some()) && len > 0 {
                    open.note_write(flags.ends_record && len == bytes.len());
                }
            }
            ConnectionState::SynSent(state) => state.begin(now),
            ConnectionState::SynReceived(_) | ConnectionState::TimeWait { .. } | ConnectionState::Closed => {}
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

    /// Appends `bytes` bytes to the send buffer. The closure `write` puts these bytes directly into the buffer's memory, so that
    /// the connection copies nothing. The caller has checked that there is room. The flags are those of
    /// [`Connection::send_flagged`].
    ///
    /// Returns an error, without calling `write`, if the sending direction is closed.
    pub fn send_with(
        &mut self,
        now: Instant,
        bytes: usize,
        flags: WriteFlags,
        write: impl FnOnce(&mut S),
    ) -> Result<(), SendError> {
        self.may_send()?;
        self.outgoing.push_with(bytes, write);
        match &mut self.state {
            ConnectionState::Synchronized(open) => {
                open.snd.more_follows = flags.more_follows;
                open.wrote(now, u32::try_from(bytes).unwrap_or(u32::MAX));
                if (flags.ends_record || open.snd.extras.is_some()) && bytes > 0 {
                    open.note_write(flags.ends_record);
                }
            }
            ConnectionState::SynSent(state) => state.begin(now),
            ConnectionState::SynReceived(_) | ConnectionState::TimeWait { .. } | ConnectionState::Closed => {}
        }
        Ok(())
    }

    /// Like [`Connection::send`], but marks these bytes, and all bytes that were written before them, as urgent. RFC 6093 advises
    /// against urgent data, because peers handle the mark differently.
    ///
    /// Returns an error if the sending direction is closed.
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

    /// Returns how many bytes [`Connection::send`] would accept now. The send buffer accepts up to twice cwnd, so that the next
    /// window of data is ready when the current one is acknowledged. While fewer bytes than `Config::unsent_bytes_max` are unsent, it
    /// accepts at least a large segment, as in Linux, so that a low limit does not cause small writes.
    #[inline]
    pub fn send_room(&self) -> usize {
        let limit = self.base.config.unsent_bytes_max;
        let mut room_max = usize::MAX;
        let window = match &self.state {
            ConnectionState::Synchronized(open) => {
                if self.limits_unsent() {
                    let free = limit.saturating_sub(open.snd.unsent());
                    room_max =
                        if free == 0 { 0 } else { usize::try_from(free).unwrap_or(0).max(TCP_SEND_BUFFER_BYTES_FIRST) };
                }
                usize::try_from(open.snd.cwnd).unwrap_or(usize::MAX)
            }
            ConnectionState::SynSent(_) | ConnectionState::SynReceived(_) => 0,
            ConnectionState::TimeWait { .. } | ConnectionState::Closed => return 0,
        };
        let config = &self.base.config;
        let wanted = window.saturating_mul(2).max(config.send_buffer_bytes);
        wanted.min(config.send_buffer_bytes_max).saturating_sub(self.outgoing.len()).min(room_max)
    }

    /// Returns whether the application has set a limit of unsent bytes.
    #[inline]
    pub(crate) fn limits_unsent(&self) -> bool {
        self.base.config.unsent_bytes_max != u32::MAX
    }

    /// Returns false if the application can certainly send more bytes. This test takes less time than [`Connection::is_writable`].
    #[inline]
    pub(crate) fn may_be_full(&self) -> bool {
        let few = self.base.config.send_buffer_bytes_max.min(self.base.config.send_buffer_bytes);
        self.outgoing.len() >= few || self.limits_unsent()
    }

    /// Returns whether the application can send bytes: the connection is open, or its SYN waits for the first write.
    /// With a limit of unsent bytes, fewer than half of this limit have to be unsent, as in Linux, so that a waiting application
    /// does not wake for each segment.
    #[inline]
    pub fn is_writable(&self) -> bool {
        let ConnectionState::Synchronized(open) = &self.state else { return self.awaits_first_write() };
        let limit = self.base.config.unsent_bytes_max;
        !self.shut && self.send_room() > 0 && (!self.limits_unsent() || open.snd.unsent() < limit.div_ceil(2))
    }

    /// Returns true if the connection is open and has no bytes to receive yet, and the peer may still send some.
    #[inline]
    pub(crate) fn awaits_bytes(&self) -> bool {
        self.incoming.len() == 0 && !self.peer_finished && matches!(self.state, ConnectionState::Synchronized(_))
    }

    /// Moves received bytes to `into` and returns how many. If it returns 0 and [`Connection::finished`] is true, the peer has
    /// closed.
    #[inline]
    pub fn receive(&mut self, now: Instant, into: &mut [u8]) -> usize {
        let len = into.len().min(self.incoming.len());
        self.incoming.peek(0, &mut into[..len]);
        self.take(now, len);
        len
    }

    /// Removes up to `bytes` received bytes, which the application has read directly in the memory of the receive buffer.
    #[inline]
    pub fn take(&mut self, now: Instant, bytes: usize) {
        let len = bytes.min(self.incoming.len());
        self.incoming.consume(len);
        self.urgent_ahead = self.urgent_ahead.saturating_sub(u32::try_from(len).unwrap_or(u32::MAX));
        if len > 0
            && let ConnectionState::Synchronized(open) = &mut self.state
        {
            let rtt = open.snd.rtt.smoothed();
            open.rcv.consume(now, u32::try_from(len).unwrap_or(u32::MAX), rtt);
            if let Some(arrivals) = open.snd.extras.as_mut().and_then(|extras| extras.arrivals.as_mut()) {
                arrivals.forget(open.rcv.read_to());
            }
        }
    }

    /// Returns the number of bytes from the application's read position to the end of the data that the peer marked urgent. Not
    /// all of these bytes may have arrived. 0 means that nothing is urgent (RFC 9293 MUST-33). Urgent data is part of the stream
    /// and may have any length (MUST-31).
    pub fn urgent_ahead(&self) -> u32 {
        let here = u32::try_from(self.incoming.len()).unwrap_or(u32::MAX);
        if self.peer_finished { self.urgent_ahead.min(here) } else { self.urgent_ahead }
    }

    /// Returns whether there is news since the last call that [`Connection::readiness`] does not tell: the peer's urgent pointer has
    /// appeared or advanced (RFC 9293 MUST-32), the peer has closed its direction behind bytes that are unread, or times of writes are
    /// reported.
    #[inline]
    pub fn take_event(&mut self) -> bool {
        std::mem::take(&mut self.event)
    }

    /// Returns whether the next [`Connection::take_event`] returns true.
    #[inline]
    pub(crate) fn has_event(&self) -> bool {
        self.event
    }

    /// Makes an event of new times of writes.
    pub(super) fn collect_times(&mut self) {
        if let ConnectionState::Synchronized(open) = &mut self.state
            && let Some(extras) = &mut open.snd.extras
        {
            self.event |= extras.marks.take_event();
        }
    }

    /// Returns the oldest time of a write that the application has not taken.
    pub fn take_send_time(&mut self) -> Option<SendTime> {
        let ConnectionState::Synchronized(open) = &mut self.state else { return None };
        open.snd.extras.as_mut()?.marks.take_time()
    }

    /// Returns whether there are times of writes that the application has not taken.
    pub fn has_send_times(&self) -> bool {
        let ConnectionState::Synchronized(open) = &self.state else { return false };
        open.snd.extras.as_ref().is_some_and(|extras| extras.marks.has_times())
    }

    /// Returns when the last of the next `bytes` received bytes arrived. `None` if the application has not asked for the times of
    /// received bytes, or if the byte arrived before.
    pub fn arrival_time(&self, bytes: usize) -> Option<Instant> {
        let ConnectionState::Synchronized(open) = &self.state else { return None };
        let arrivals = open.snd.extras.as_ref()?.arrivals.as_ref()?;
        arrivals.before(open.rcv.read_to() + u32::try_from(bytes).ok()?)
    }

    /// Splits the received bytes after the first `skip` into at most `most` pieces that arrived at one time each. The pieces
    /// may cover fewer bytes than are received. `None` if the application has not asked for the
    /// times of received bytes.
    pub fn arrivals(&self, skip: usize, most: usize) -> Option<Vec<ArrivedBytes>> {
        let ConnectionState::Synchronized(open) = &self.state else { return None };
        let arrivals = open.snd.extras.as_ref()?.arrivals.as_ref()?;
        let received = u32::try_from(self.incoming.len()).ok()?;
        let (read, skip) = (open.rcv.read_to(), u32::try_from(skip).ok()?);
        Some(arrivals.split(read + skip.min(received), read + received, most))
    }

    /// Returns the number of bytes that can be received.
    pub fn received(&self) -> usize {
        self.incoming.len()
    }

    /// Returns whether the peer has closed its sending direction, and the application has received all bytes.
    pub fn finished(&self) -> bool {
        self.peer_finished && self.incoming.len() == 0
    }

    /// Returns whether the peer has closed its sending direction. The application may not have received all bytes yet.
    pub fn peer_finished(&self) -> bool {
        self.peer_finished
    }

    /// Returns whether the handshake is complete and the connection is not over.
    pub fn is_open(&self) -> bool {
        matches!(self.state, ConnectionState::Synchronized(_))
    }

    /// Returns whether the state is TIME-WAIT or CLOSED.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, ConnectionState::TimeWait { .. } | ConnectionState::Closed)
    }

    /// Closes the sending direction, while the receiving direction stays open (RFC 9293 section 3.6). A connection in SYN-SENT
    /// ends immediately.
    pub fn shutdown(&mut self, now: Instant) {
        self.leave_fast_path();
        self.shut = true;
        match &mut self.state {
            ConnectionState::SynSent(_) => self.end(None),
            ConnectionState::Synchronized(open) => open.shutdown(now),
            ConnectionState::SynReceived(_) | ConnectionState::TimeWait { .. } | ConnectionState::Closed => {}
        }
    }

    /// Closes both directions. If received bytes were not read, or bytes arrive later, the connection is reset (RFC 2525 section
    /// 2.17). Otherwise written bytes are still sent, and the connection continues without its application until both sides have
    /// closed.
    pub fn close(&mut self, now: Instant) {
        self.leave_fast_path();
        // RFC 9293 SHLD-3, MAY-1: close ends both directions, and unread data leads to a reset.
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

    /// Resets the connection immediately, even if data is in flight (as `SO_LINGER` with a time of 0 does).
    pub fn abort(&mut self) {
        self.leave_fast_path();
        match &self.state {
            ConnectionState::Synchronized(open) => self.base.reset = Some(Box::new(open.reset_header(&self.base))),
            ConnectionState::SynReceived(state) => self.base.reset = Some(Box::new(state.reset_header(&self.base))),
            ConnectionState::SynSent(_) | ConnectionState::TimeWait { .. } | ConnectionState::Closed => {}
        }
        if self.state_name() != StateName::Closed {
            self.end(Some(Failure::Aborted));
        }
        self.incoming.consume(self.incoming.len());
    }

    /// Returns whether the application can read bytes, the end of the stream, or a failure.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.incoming.len() > 0
            || self.peer_finished
            || matches!(self.state, ConnectionState::TimeWait { .. } | ConnectionState::Closed)
    }

    /// Returns what the application may do without waiting.
    #[inline]
    pub fn readiness(&self) -> ConnectionReadiness {
        let closed = matches!(self.state, ConnectionState::TimeWait { .. } | ConnectionState::Closed);
        ConnectionReadiness {
            readable: self.is_readable(),
            writable: self.is_writable(),
            closed,
            urgent: self.urgent_ahead() > 0,
            error: self.soft_error.is_some() || self.delivery_problem(),
        }
    }

    /// Returns why the connection failed, if it did.
    /// RFC 9293 MUST-12: [`Connection::finished`] reports a normal end, and this method reports an abort.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Returns whether the number of retransmissions has reached the threshold R1 (RFC 9293 MUST-20), which indicates a problem
    /// on the path. The owner then probes the next hop again, and may inform the application (SHLD-9).
    pub fn delivery_problem(&self) -> bool {
        let retries = match &self.state {
            ConnectionState::SynSent(SynSent { attempt, .. })
            | ConnectionState::SynReceived(SynReceived { attempt, .. }) => attempt.retries,
            ConnectionState::Synchronized(open) => open.snd.repetitions(),
            ConnectionState::TimeWait { .. } | ConnectionState::Closed => 0,
        };
        retries >= TCP_RETRIES_SUSPECT
    }

    /// Returns the latest ICMP error that did not end the connection, and clears it.
    pub fn take_soft_error(&mut self) -> Option<SegmentError> {
        self.soft_error.take()
    }
}
