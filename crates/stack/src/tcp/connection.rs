//! A connection: its state, its two buffers, and how it receives and sends segments.

mod application;
mod buffers;
mod info;
mod linux_info;
mod linux_info_bytes;
mod settings;

use super::buffer::{ByteQueue, Heap, Storage};
use super::config::{Config, ConfigError};
use super::fast_path::Eligible;
use super::initial::Initial;
use super::opening::{Agreed, Base, Early, SynReceived, SynReceivedNext, SynSent, SynSentNext};
use super::plpmtud::segment_bytes;
use super::receiver::AckDue;
use super::synchronized::{Arrival, Phase, Synchronized, Transition};
use super::time_wait::{TimeWait, TimeWaitAnswer};
use super::{Belief, Effect, Failure, Segment, SegmentError};
use crate::drops::TcpDrop;
use crate::link::frame::Payload;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, IpEcn, SeqNumber};
pub use application::{ConnectionReadiness, SendError};
pub use info::{Info, StreamPosition};
pub use linux_info::LinuxInfo;
use std::sync::Arc;

/// The states of a connection (RFC 9293 section 3.3.2). A listener, which has no connection yet, is not one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateName {
    /// This side has sent a SYN.
    SynSent,
    /// This side has received a SYN and answers it by a SYN-ACK.
    SynReceived,
    /// Both sides may send.
    Established,
    /// This side has closed its sending direction. The peer has not acknowledged the FIN yet.
    FinWait1,
    /// This side has closed its sending direction, and the peer has acknowledged the FIN.
    FinWait2,
    /// The peer has closed its sending direction. This side may still send.
    CloseWait,
    /// Both sides have closed at the same time. The peer has not acknowledged this side's FIN yet.
    Closing,
    /// The peer closed first, then this side. The peer has not acknowledged this side's FIN yet.
    LastAck,
    /// Both sides have closed; late segments may still arrive.
    TimeWait,
    /// The connection is over.
    Closed,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all connections are open, and a box would be one more page to look up"
)]
pub(super) enum ConnectionState {
    SynSent(SynSent),
    SynReceived(SynReceived),
    Synchronized(Synchronized),
    TimeWait { wait: TimeWait, answer: Option<Header> },
    Closed,
}

/// The ports of a connection, seen from this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// Port of this end.
    pub local: u16,
    /// Port of the peer.
    pub remote: u16,
}

/// One end of a TCP connection. `S` is the kind of memory in which its two buffers lie.
///
/// The *owner* (in this crate, the stack) finds the connection to which a segment belongs, verifies and fills in checksums, and
/// provides the time. It calls these methods, in this order:
///
/// 1. [`connect`](Self::connect) or [`accept`](Self::accept) creates a connection.
/// 2. Each input is one call: [`handle_segment`](Self::handle_segment), [`handle_timeout`](Self::handle_timeout),
///    [`handle_icmp`](Self::handle_icmp), [`set_path_mss`](Self::set_path_mss), or a call of the application.
/// 3. After each such call, the owner calls [`poll_transmit`](Self::poll_transmit) until it returns `None`, and copies the
///    payload of each segment with [`copy_payload`](Self::copy_payload) before the next call.
/// 4. [`poll_timeout`](Self::poll_timeout) returns when `handle_timeout` is due. [`readiness`](Self::readiness) returns what the
///    application may do now.
/// 5. In TIME-WAIT the owner may replace the connection by the much smaller value that [`time_wait`](Self::time_wait) returns.
///
/// The *application* uses [`send`](Self::send), [`receive`](Self::receive), [`shutdown`](Self::shutdown), [`close`](Self::close),
/// [`abort`](Self::abort), the `set_*` methods for its settings, and [`info`](Self::info).
///
/// ```
/// use siga_stack::tcp::{Config, Connection, Initial, Ports, Secret};
/// use siga_stack::time::Instant;
///
/// let now = Instant::from_ns(0);
/// let secret = Secret([1, 2]);
/// let ports = Ports { local: 5_000, remote: 80 };
/// let initial = Initial::new(secret, b"client", now);
/// let mut client: Connection = Connection::connect(now, Config::LINUX, ports, initial)?;
/// let syn = client.poll_transmit(now, 0).expect("a SYN");
/// let mut server: Connection = Connection::accept(now, Config::LINUX, &syn.header, Initial::new(secret, b"server", now))?;
///
/// client.send(now, b"hello").expect("bytes wait until the connection is open");
/// loop {
///     let mut quiet = true;
///     while let Some(segment) = server.poll_transmit(now, 0) {
///         quiet = false;
///         client.handle_segment(now, &segment.header, false, &[][..], 0).expect("a valid segment");
///     }
///     while let Some(segment) = client.poll_transmit(now, 0) {
///         quiet = false;
///         let mut payload = vec![0; segment.payload.len as usize];
///         client.copy_payload(segment.payload, 0, &mut payload);
///         server.handle_segment(now, &segment.header, false, &payload[..], 0).expect("a valid segment");
///     }
///     if quiet {
///         break;
///     }
/// }
/// let mut received = [0; 5];
/// assert_eq!((server.receive(now, &mut received), &received), (5, b"hello"));
/// # Ok::<(), siga_stack::tcp::ConfigError>(())
/// ```
// The fields that every segment uses come first, so that they share cache lines, which often have to be loaded (decision 011).
#[derive(Debug)]
#[repr(C)]
pub struct Connection<S: Storage = Heap> {
    pub(super) outgoing: ByteQueue<S>,
    pub(super) incoming: ByteQueue<S>,
    soft_error: Option<SegmentError>,
    /// Whether the application has closed its sending direction. If it does so in SYN-RECEIVED, the FIN is sent only after the
    /// handshake.
    pub(super) shut: bool,
    reader_gone: bool,
    peer_finished: bool,
    /// Whether [`Connection::take_event`] has news.
    event: bool,
    /// Whether the SYN carried data that the SYN-ACK acknowledged.
    pub(super) syn_data: bool,
    /// Number of bytes from the application's read position to the end of urgent data.
    urgent_ahead: u32,
    pub(super) state: ConnectionState,
    pub(super) base: Base,
    failure: Option<Failure>,
    /// Number of bytes from the start of the send buffer to the end of the urgent data. This field is used only for urgent data
    /// that the application wrote before the connection was open.
    urgent_written: u32,
}

impl<S: Storage + Default> Connection<S> {
    /// Opens a connection actively, by a SYN.
    ///
    /// Returns an error if a setting is out of range.
    pub fn connect(
        now: Instant,
        config: impl Into<Arc<Config>>,
        ports: Ports,
        initial: Initial,
    ) -> Result<Self, ConfigError> {
        let config = settings::checked(config)?;
        let state = ConnectionState::SynSent(SynSent::new(now, &config));
        Ok(Self::new(Base::new(config, ports, initial), state))
    }

    /// Opens a connection passively from a SYN that a listener received. If the SYN carries text (payload) or a FIN, the owner
    /// also passes the segment to [`Connection::handle_segment`]. The text and the FIN take effect when the connection is open
    /// (RFC 9293 section 3.10.7.2).
    ///
    /// Returns an error if a setting is out of range.
    pub fn accept(
        now: Instant,
        config: impl Into<Arc<Config>>,
        syn: &Header,
        initial: Initial,
    ) -> Result<Self, ConfigError> {
        Self::accept_with(now, config, syn, IpEcn::default(), initial)
    }

    /// Like [`Connection::accept`], for a SYN that arrived with this ECN field in its IP header.
    pub fn accept_with(
        now: Instant,
        config: impl Into<Arc<Config>>,
        syn: &Header,
        arrived_with: IpEcn,
        initial: Initial,
    ) -> Result<Self, ConfigError> {
        let config = settings::checked(config)?;
        let base = Base::new(config, Ports { local: syn.destination_port, remote: syn.source_port }, initial);
        let received = SynReceived::new(now, &base, syn, true, arrived_with);
        Ok(Self::new(base, ConnectionState::SynReceived(received)))
    }

    /// Like [`Connection::accept`], for a SYN that a SYN cookie answered before this connection existed.
    pub(super) fn accept_answered(
        now: Instant,
        config: Config,
        syn: &Header,
        initial: Initial,
    ) -> Result<Self, ConfigError> {
        let mut connection = Self::accept(now, config, syn, initial)?;
        if let ConnectionState::SynReceived(received) = &mut connection.state {
            received.attempt.answered(now);
        }
        Ok(connection)
    }

    fn new(base: Base, state: ConnectionState) -> Self {
        Self {
            base,
            state,
            outgoing: ByteQueue::new(S::default()),
            incoming: ByteQueue::new(S::default()),
            shut: false,
            reader_gone: false,
            peer_finished: false,
            failure: None,
            soft_error: None,
            urgent_written: 0,
            urgent_ahead: 0,
            event: false,
            syn_data: false,
        }
    }
}

impl<S: Storage> Connection<S> {
    /// Processes a received segment whose checksum is correct. Its payload is the part of `payload` from byte `offset` on.
    /// `ecn` is the ECN field of the segment's IP header, or only whether the segment is marked CE.
    ///
    /// If the segment or its payload was dropped, returns the reason as an error.
    pub fn handle_segment<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        header: &Header,
        ecn: impl Into<IpEcn>,
        payload: &P,
        offset: usize,
    ) -> Result<(), TcpDrop> {
        let payload_bytes = payload.len().saturating_sub(offset);
        let arrival = Arrival { header, payload_bytes, ecn: ecn.into() };
        let mut effect = Effect::default();
        let outcome = self.dispatch(now, arrival, &mut effect);
        self.collect_times();
        self.apply(&effect, payload, offset);
        outcome
    }

    /// Applies the effect of a segment to the buffers.
    pub(super) fn apply<P: Payload + ?Sized>(&mut self, effect: &Effect, payload: &P, offset: usize) {
        let size = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        // If the segment has ended the connection, the send buffer is already empty, although `acked` may not be 0.
        self.outgoing.consume(size(effect.acked).min(self.outgoing.len()));
        if let Some(place) = effect.place {
            self.incoming.place(size(place.ahead), payload, offset + size(place.from), size(place.len));
        }
        self.incoming.extend(size(effect.deliver));
        if effect.urgent > self.urgent_ahead {
            (self.urgent_ahead, self.event) = (effect.urgent, true);
        }
    }

    /// Clears the cached result that the connection is eligible for the fast path, so that the next segment checks this again.
    /// Every method that changes a connection calls this one first, except for the fast path and the application's sends and
    /// receives.
    fn leave_fast_path(&mut self) {
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.eligible = Eligible(false);
        }
    }

    fn dispatch(&mut self, now: Instant, arrival: Arrival<'_>, effect: &mut Effect) -> Result<(), TcpDrop> {
        match &mut self.state {
            ConnectionState::SynSent(state) => {
                match state.handle_segment(now, &mut self.base, arrival.header, arrival.ecn)? {
                    SynSentNext::Received(mut received) => {
                        effect.place = received.take_text(&self.base, &arrival);
                        self.state = ConnectionState::SynReceived(received);
                    }
                    SynSentNext::Established(agreed) => {
                        self.establish(now, &agreed);
                        let urgent = arrival.header.urgent.map(|pointer| pointer.saturating_sub(1));
                        let header = Header { seq: arrival.header.seq + 1, urgent, ..*arrival.header };
                        return self.take_text(now, &Arrival { header: &header, ..arrival }, effect);
                    }
                    SynSentNext::Closed(failure) => self.end(Some(failure)),
                }
            }
            ConnectionState::SynReceived(state) => {
                effect.place = state.take_text(&self.base, &arrival);
                match state.handle_segment(now, &mut self.base, arrival.header, arrival.payload_bytes) {
                    Err(TcpDrop::Duplicate) if effect.place.is_some() => {}
                    Err(reason) => return Err(reason),
                    Ok(SynReceivedNext::Established(agreed)) => {
                        let early = state.early;
                        self.establish(now, &agreed);
                        let opened = arrival.header.flags.syn;
                        let outcome = if opened { Ok(()) } else { self.synchronized(now, arrival, effect) };
                        self.deliver_early(now, early, effect);
                        return outcome;
                    }
                    Ok(SynReceivedNext::Closed(failure)) => self.end(Some(failure)),
                }
            }
            ConnectionState::Synchronized(open) => {
                if self.base.repeat_syn_ack(arrival.header) {
                    open.rcv.ack = AckDue::Now;
                    return Err(TcpDrop::Duplicate);
                }
                return self.synchronized(now, arrival, effect);
            }
            ConnectionState::TimeWait { wait, answer } => {
                match wait.handle_segment(now, arrival.header, arrival.payload_bytes)? {
                    TimeWaitAnswer::Acknowledge(header) => *answer = Some(header),
                    // A connection cannot replace itself. An owner that lets a SYN replace a connection in TIME-WAIT calls
                    // `TimeWait::handle_segment` instead of this method.
                    TimeWaitAnswer::TakeOver(_) => return Err(TcpDrop::SynInWindow),
                }
            }
            ConnectionState::Closed => return Err(TcpDrop::Closed),
        }
        Ok(())
    }

    fn synchronized(&mut self, now: Instant, arrival: Arrival<'_>, effect: &mut Effect) -> Result<(), TcpDrop> {
        let ConnectionState::Synchronized(open) = &mut self.state else { return Err(TcpDrop::Closed) };
        let outcome = open.handle_segment(now, &mut self.base, arrival, effect);
        self.event |= open.rcv.finished & !std::mem::replace(&mut self.peer_finished, open.rcv.finished);
        self.follow(now, &outcome?);
        Ok(())
    }

    /// Processes the urgent pointer, text and FIN of a segment whose SYN and acknowledgement were processed before.
    pub(super) fn take_text(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        effect: &mut Effect,
    ) -> Result<(), TcpDrop> {
        self.leave_fast_path();
        let ConnectionState::Synchronized(open) = &mut self.state else { return Err(TcpDrop::Closed) };
        let outcome = open.take_text(now, &mut self.base, arrival, effect);
        self.event |= open.rcv.finished & !std::mem::replace(&mut self.peer_finished, open.rcv.finished);
        self.follow(now, &outcome?);
        Ok(())
    }

    /// Makes the text (payload) that came with the SYN readable. The caller calls this after it has processed the segment that
    /// completed the handshake. That segment may start before the end of the text, so it would be dropped as old if the text were
    /// processed first.
    fn deliver_early(&mut self, now: Instant, early: Option<Early>, effect: &mut Effect) {
        let Some(Early { seq, bytes, fin }) = early else { return };
        let header = Header { seq, flags: Flags { fin, ..Flags::default() }, ..Header::default() };
        let arrival = Arrival { header: &header, payload_bytes: usize::from(bytes), ecn: IpEcn::default() };
        let mut taken = Effect::default();
        // An error means that the segment that completed the handshake carried the same text, so nothing is left to deliver.
        let _ = self.take_text(now, &arrival, &mut taken);
        effect.deliver += taken.deliver;
    }

    /// Enters `ConnectionState::Synchronized` after the handshake. The new state is built in its final place, because moving it
    /// would copy many bytes.
    pub(super) fn establish(&mut self, now: Instant, agreed: &Agreed) {
        self.outgoing.consume(usize::try_from(agreed.acked).unwrap_or(usize::MAX));
        self.syn_data = agreed.acked > 0;
        self.state = ConnectionState::Synchronized(agreed.open(now, &self.base));
        let ConnectionState::Synchronized(open) = &mut self.state else { return };
        open.wrote(now, self.urgent_written);
        if self.urgent_written > 0 {
            open.wrote_urgent(now);
        }
        open.wrote(now, u32::try_from(self.outgoing.len()).unwrap_or(u32::MAX) - self.urgent_written);
        open.begin_timing(now, &self.base);
        if self.reader_gone {
            open.close(now, &self.base);
        } else if self.shut {
            open.shutdown(now);
        }
        self.note_established();
    }

    fn follow(&mut self, now: Instant, next: &Transition) {
        match *next {
            Transition::Stay => {}
            Transition::TimeWait { acknowledge } => {
                self.judge_path();
                if let ConnectionState::Synchronized(open) = &mut self.state {
                    let wait = open.time_wait(now, &self.base);
                    let answer = acknowledge.then(|| open.last_acknowledgement(now, &wait));
                    self.state = ConnectionState::TimeWait { wait, answer };
                }
            }
            Transition::Closed(failure) => self.end(failure),
        }
    }

    fn end(&mut self, failure: Option<Failure>) {
        self.judge_path();
        self.failure = self.failure.or(failure);
        self.state = ConnectionState::Closed;
        self.outgoing.consume(self.outgoing.len());
    }

    /// Returns the next segment to send. The owner calls this until it returns `None`. The payload is at most one MSS, or at most
    /// `large_bytes` if that is more. `large_bytes` is 0 unless the device accepts TCP segments larger than its MTU.
    pub fn poll_transmit(&mut self, now: Instant, large_bytes: usize) -> Option<Segment> {
        if let Some(header) = self.base.take_reset(now) {
            return Some(Segment::bare(header));
        }
        match &mut self.state {
            ConnectionState::SynSent(state) => {
                // A SYN never carries urgent data.
                let written = if self.urgent_written > 0 { 0 } else { self.outgoing.len() };
                state.poll_transmit(now, &mut self.base, written)
            }
            ConnectionState::SynReceived(state) => state.poll_transmit(now, &self.base).map(Segment::bare),
            ConnectionState::Synchronized(open) => {
                if let Some(header) = open.poll_syn_ack(now, &mut self.base) {
                    return Some(Segment::bare(header));
                }
                let large = u32::try_from(large_bytes).unwrap_or(u32::MAX);
                let segment = open.poll_transmit(now, &self.base, large);
                self.collect_times();
                segment
            }
            ConnectionState::TimeWait { answer, .. } => answer.take().map(Segment::bare),
            ConnectionState::Closed => None,
        }
    }

    /// Returns false if [`Connection::poll_transmit`] has no segment, and true if it may have one.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        self.base.reset.is_some()
            || match &self.state {
                ConnectionState::Synchronized(open) => open.wants_transmit(),
                ConnectionState::SynSent(_) | ConnectionState::SynReceived(_) => true,
                ConnectionState::TimeWait { answer, .. } => answer.is_some(),
                ConnectionState::Closed => false,
            }
    }

    /// Returns when [`Connection::handle_timeout`] is due, or `None` if no timer runs. Each call of another method may change
    /// this time.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.state {
            ConnectionState::Synchronized(open) => open.poll_timeout(&self.base),
            ConnectionState::SynSent(_) | ConnectionState::SynReceived(_) | ConnectionState::TimeWait { .. } => {
                Some(self.deadline())
            }
            ConnectionState::Closed => None,
        }
    }

    /// Like [`Connection::poll_timeout`], but returns [`Instant::NEVER`] if no timer runs.
    #[inline]
    pub(crate) fn deadline(&self) -> Instant {
        match &self.state {
            ConnectionState::Synchronized(open) => open.deadline(&self.base),
            ConnectionState::SynSent(SynSent { attempt, .. })
            | ConnectionState::SynReceived(SynReceived { attempt, .. }) => attempt.poll_timeout(&self.base),
            ConnectionState::TimeWait { wait, .. } => wait.until,
            ConnectionState::Closed => Instant::NEVER,
        }
    }

    /// Runs the timers that are due. A call before any timer is due has no effect.
    pub fn handle_timeout(&mut self, now: Instant) {
        let before = self.timeouts();
        self.run_timers(now);
        self.detect_black_hole(before);
    }

    fn run_timers(&mut self, now: Instant) {
        self.leave_fast_path();
        match &mut self.state {
            ConnectionState::SynSent(SynSent { attempt, .. })
            | ConnectionState::SynReceived(SynReceived { attempt, .. }) => {
                if let Err(failure) = attempt.handle_timeout(now, &self.base) {
                    self.end(Some(failure));
                }
            }
            ConnectionState::Synchronized(open) => {
                let next = open.handle_timeout(now, &mut self.base);
                self.follow(now, &next);
            }
            ConnectionState::TimeWait { wait, .. } if now >= wait.until => self.end(None),
            ConnectionState::TimeWait { .. } | ConnectionState::Closed => {}
        }
    }

    /// Processes an ICMP error that quotes a segment of this connection. The quoted segment begins at `seq`. Returns when the
    /// connection believes the error.
    ///
    /// Returns an error, and ignores the ICMP message, if `seq` is not outstanding (RFC 5927 section 4.1). For
    /// [`SegmentError::TooBig`], an outstanding segment also has to begin exactly at `seq`, and has to be larger than the
    /// reported size.
    pub fn handle_icmp(&mut self, now: Instant, seq: SeqNumber, error: SegmentError) -> Result<Belief, TcpDrop> {
        self.leave_fast_path();
        let opening = match &self.state {
            ConnectionState::SynSent(_) | ConnectionState::SynReceived(_) => seq == self.base.initial.seq,
            ConnectionState::Synchronized(open) => {
                if seq.before(open.snd.una) || seq.at_or_after(open.snd.nxt) {
                    return Err(TcpDrop::IcmpNotOutstanding);
                }
                false
            }
            ConnectionState::TimeWait { .. } | ConnectionState::Closed => return Err(TcpDrop::Closed),
        };
        if !opening && !matches!(self.state, ConnectionState::Synchronized(_)) {
            return Err(TcpDrop::IcmpNotOutstanding);
        }
        match (error, &mut self.state) {
            (SegmentError::TooBig(mss), ConnectionState::Synchronized(open)) => {
                let bytes = segment_bytes(mss, open.timestamps);
                return open.snd.too_big(now, seq, bytes).ok_or(TcpDrop::IcmpNotOutstanding);
            }
            // A SYN is smaller than any path's MTU, so this error cannot be genuine.
            (SegmentError::TooBig(_), _) => return Err(TcpDrop::IcmpNotOutstanding),
            // RFC 9293 SHLD-26: a hard error ends a connection that is being opened.
            (SegmentError::Hard, _) if opening => self.end(Some(Failure::Unreachable)),
            // RFC 9293 MUST-56, SHLD-25: every other error is recorded for the application, and the connection continues.
            (SegmentError::Hard | SegmentError::Soft, _) => self.soft_error = Some(error),
        }
        Ok(Belief::AtOnce)
    }

    /// Sets the largest segment payload that the path carries: the path MTU less the IP and TCP headers without options. The
    /// owner calls this when it learns the path MTU. The limit expires after ten minutes (`PATH_MTU_AGE`).
    pub fn set_path_mss(&mut self, now: Instant, mss: u16) {
        self.leave_fast_path();
        match &mut self.state {
            ConnectionState::Synchronized(open) => open.snd.set_path(now, segment_bytes(mss, open.timestamps)),
            ConnectionState::SynSent(_) | ConnectionState::SynReceived(_) => self.base.path_mss = Some(mss),
            ConnectionState::TimeWait { .. } | ConnectionState::Closed => {}
        }
    }

    /// Sets the largest segment payload that the device carries, after the device's MTU has changed: `mss` is the new MTU less
    /// the IP and TCP headers without options. From then on, the connection sends no larger segment.
    pub fn set_device_mss(&mut self, now: Instant, mss: u16) {
        self.leave_fast_path();
        let mss = mss.min(self.base.config.mss_max);
        if mss != self.base.config.mss {
            Arc::make_mut(&mut self.base.config).mss = mss;
        }
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.snd.set_device(now, segment_bytes(mss, open.timestamps));
        }
    }

    /// Retransmits all outstanding segments immediately. The owner calls this when the device has a carrier again.
    pub fn carrier_up(&mut self, now: Instant) {
        self.leave_fast_path();
        match &mut self.state {
            ConnectionState::SynSent(SynSent { attempt, .. })
            | ConnectionState::SynReceived(SynReceived { attempt, .. }) => {
                attempt.due = !attempt.is_deferred();
            }
            ConnectionState::Synchronized(open) => open.snd.carrier_up(now),
            ConnectionState::TimeWait { .. } | ConnectionState::Closed => {}
        }
    }

    /// Returns the small remainder of a connection in TIME-WAIT; `None` in other states. Once `poll_transmit` returns `None`, an
    /// owner of many connections may keep only this value, to save memory.
    pub fn time_wait(&self) -> Option<TimeWait> {
        if let ConnectionState::TimeWait { wait, .. } = &self.state { Some(*wait) } else { None }
    }

    /// Returns the name of the current state.
    #[inline]
    pub fn state_name(&self) -> StateName {
        match &self.state {
            ConnectionState::SynSent(_) => StateName::SynSent,
            ConnectionState::SynReceived(_) => StateName::SynReceived,
            ConnectionState::Synchronized(_) if self.base.opens_passively() => StateName::SynReceived,
            ConnectionState::Synchronized(open) => match open.phase {
                Phase::Established => StateName::Established,
                Phase::FinWait1 => StateName::FinWait1,
                Phase::FinWait2 => StateName::FinWait2,
                Phase::CloseWait => StateName::CloseWait,
                Phase::Closing => StateName::Closing,
                Phase::LastAck => StateName::LastAck,
            },
            ConnectionState::TimeWait { .. } => StateName::TimeWait,
            ConnectionState::Closed => StateName::Closed,
        }
    }

    /// Panics if an invariant is broken. Only tests and fuzzers should call this, because it visits every outstanding segment.
    pub fn check(&self) {
        let ConnectionState::Synchronized(open) = &self.state else { return };
        open.snd.board.check();
        assert_eq!(u32::try_from(self.outgoing.len()), Ok(open.snd.buffered()));
        assert!(open.rcv.gaps.runs().len() <= crate::limits::TCP_GAPS_MAX);
        assert!(open.snd.cwnd >= 1 && open.snd.una.at_or_before(open.snd.nxt), "{:?}", open.snd);
    }
}
