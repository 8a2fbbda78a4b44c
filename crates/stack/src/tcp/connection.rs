//! A connection: its state, its two buffers, and what owner and application may do with it.

use super::buffer::{ByteQueue, Heap, Storage};
use super::config::{Config, ConfigError, Keepalive, check_buffer, check_user_timeout};
use super::congestion;
use super::fast_path::{Eligible, FastSegment};
use super::initial::Initial;
use super::opening::{Agreed, Base, Early, SynReceived, SynReceivedNext, SynSent, SynSentNext};
use super::synchronized::{Arrival, Phase, Synchronized, Transition};
use super::time_wait::{TimeWait, TimeWaitAnswer};
use super::{Belief, Effect, Failure, IcmpError, Segment};
use crate::drops::TcpDrop;
use crate::limits::TCP_RETRIES_SUSPECT;
use crate::link::frame::Payload;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{FastHeader, Flags, Header, SeqNumber};

/// Least room that a send buffer has, if its limit allows.
const SEND_BUFFER_BYTES_MIN: usize = 64 << 10;

/// States of RFC 9293 section 3.3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateName {
    /// A SYN is out.
    SynSent,
    /// A SYN came, a SYN-ACK is out.
    SynReceived,
    /// Both sides may send.
    Established,
    /// This side has closed.
    FinWait1,
    /// This side has closed, and the peer knows.
    FinWait2,
    /// The peer has closed.
    CloseWait,
    /// Both have closed, at once.
    Closing,
    /// The peer closed first, then this side.
    LastAck,
    /// Both have closed; late segments are awaited.
    TimeWait,
    /// There is nothing any more.
    Closed,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are open, and what lies elsewhere is another page to look up"
)]
pub(super) enum ConnectionState {
    SynSent(SynSent),
    SynReceived(SynReceived),
    Synchronized(Synchronized),
    TimeWait { wait: TimeWait, answer: Option<Header> },
    Closed,
}

/// What an application may do without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness {
    /// Bytes can be received, or there is an end or a failure to be told.
    pub readable: bool,
    /// Bytes can be sent.
    pub writable: bool,
    /// The connection has failed, or is over in both directions.
    pub closed: bool,
    /// Some of what is to be received next is urgent (RFC 9293 MUST-33).
    pub urgent: bool,
    /// There is an ICMP error to take, or what was sent was repeated so often that something is wrong with the way
    /// (RFC 9293 MUST-47, SHLD-9).
    pub error: bool,
}

/// Why nothing can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// This side has shut its direction down.
    ShutDown,
    /// The connection is gone.
    Closed,
}

/// Figures of a connection; sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// State.
    pub state: StateName,
    /// Congestion control.
    pub congestion: &'static str,
    /// `open`, `recovery` or `loss`.
    pub recovery: &'static str,
    /// SRTT.
    pub rtt: Option<Duration>,
    /// RTTVAR.
    pub rtt_variance: Duration,
    /// Least round trip of the last minutes.
    pub rtt_min: Duration,
    /// RTO.
    pub timeout: Duration,
    /// Congestion window.
    pub congestion_window: u32,
    /// Slow-start threshold.
    pub threshold: u32,
    /// Payload of a full segment.
    pub segment_bytes: u32,
    /// Payload of the largest segment that is not known to be too large.
    pub segment_bytes_high: u32,
    /// Larger segments are tried by probes (RFC 4821).
    pub path_probing: bool,
    /// Such probes sent.
    pub path_probes: u32,
    /// Those lost.
    pub path_probes_lost: u32,
    /// How often segments were made smaller because full ones vanished.
    pub black_holes: u32,
    /// In flight.
    pub flight: u32,
    /// The peer's window.
    pub peer_window: u32,
    /// What this side offers.
    pub window: u32,
    /// Segments sent again since the beginning.
    pub repeated_segments: u64,
    /// Bytes that the peer says it got twice (RFC 2883).
    pub duplicate_bytes: u64,
    /// Reductions of the window that proved to be for nothing and were taken back.
    pub undone_reductions: u32,
    /// Written and never sent.
    pub unsent: u32,
    /// Runs held ahead of gaps.
    pub gaps: usize,
    /// Memory of both buffers.
    pub buffer_bytes: usize,
    /// Entries for segments that are not acknowledged.
    pub sent_segments: usize,
}

/// One end of a connection. Its buffers lie in storage of kind `S`. What every segment needs stands together in front.
#[derive(Debug)]
#[repr(C)]
pub struct Connection<S: Storage = Heap> {
    pub(super) outgoing: ByteQueue<S>,
    incoming: ByteQueue<S>,
    soft_error: Option<IcmpError>,
    /// The application wants to close, or has, as soon as the connection is open.
    pub(super) shut: bool,
    reader_gone: bool,
    peer_finished: bool,
    urgent_event: bool,
    /// Bytes up to the end of urgent data that the application has not received, and whether it is to be told.
    urgent_ahead: u32,
    pub(super) state: ConnectionState,
    pub(super) base: Base,
    failure: Option<Failure>,
    /// Bytes up to the end of urgent data that was written before the connection is open.
    urgent_written: u32,
}

impl<S: Storage + Default> Connection<S> {
    /// Opens actively. Ports are `(local, remote)`.
    ///
    /// Errors: a setting that cannot be.
    pub fn connect(now: Instant, config: Config, ports: (u16, u16), initial: Initial) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self::new(Base::new(config, ports, initial), ConnectionState::SynSent(SynSent::new(now))))
    }

    /// Opens passively from a SYN that a listener got. Text or FIN that came with it waits until the connection is open, if
    /// the whole segment is then handed to [`Connection::handle_segment`] too (RFC 9293 section 3.10.7.2).
    ///
    /// Errors: a setting that cannot be.
    pub fn accept(now: Instant, config: Config, syn: &Header, initial: Initial) -> Result<Self, ConfigError> {
        config.check()?;
        let base = Base::new(config, (syn.destination_port, syn.source_port), initial);
        let received = SynReceived::new(now, &base, syn, true);
        Ok(Self::new(base, ConnectionState::SynReceived(received)))
    }

    /// As [`Connection::accept`], for a SYN that was answered before there was a connection.
    pub(super) fn accept_answered(
        now: Instant,
        config: Config,
        syn: &Header,
        initial: Initial,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let base = Base::new(config, (syn.destination_port, syn.source_port), initial);
        let received = SynReceived::answered(now, &base, syn);
        Ok(Self::new(base, ConnectionState::SynReceived(received)))
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
            urgent_event: false,
        }
    }
}

impl<S: Storage> Connection<S> {
    /// Takes a segment whose checksum holds; its payload is `payload` from byte `offset` on. `congestion_experienced`: its IP
    /// header is marked CE.
    ///
    /// Errors: why it, or its payload, was dropped.
    pub fn handle_segment<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        header: &Header,
        congestion_experienced: bool,
        payload: &P,
        offset: usize,
    ) -> Result<(), TcpDrop> {
        let arrival = Arrival { header, payload_bytes: payload.len().saturating_sub(offset), congestion_experienced };
        let mut effect = Effect::default();
        let outcome = self.dispatch(now, arrival, &mut effect);
        let size = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        // A connection that ended has let go of its buffer already.
        self.outgoing.consume(size(effect.acked).min(self.outgoing.len()));
        if let Some(place) = effect.place {
            self.incoming.place(size(place.ahead), payload, offset + size(place.from), size(place.len));
        }
        self.incoming.extend(size(effect.deliver));
        if effect.urgent > self.urgent_ahead {
            (self.urgent_ahead, self.urgent_event) = (effect.urgent, true);
        }
        outcome
    }

    /// Takes a segment that is plain and the next in order, with the buffers that it takes and leaves; else nothing has happened.
    #[inline]
    pub(crate) fn receive_fast<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        header: &FastHeader,
        payload: &P,
        spare: &mut Vec<S>,
    ) -> Option<u32> {
        let ConnectionState::Synchronized(open) = &mut self.state else { return None };
        let acked = open.receive_fast(now, &self.base, header)?;
        let size = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        if acked > 0 {
            self.outgoing.consume(size(acked));
            if header.len > 0 {
                self.outgoing.pass_on(&mut self.incoming);
            }
            self.outgoing.give_back(spare);
        }
        if header.len > 0 {
            self.incoming.borrow(spare);
            self.incoming.place(0, payload, 0, size(header.len));
            self.incoming.extend(size(header.len));
        }
        Some(acked)
    }

    /// Something happens that header prediction does not expect.
    fn leave_fast_path(&mut self) {
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.eligible = Eligible(false);
        }
    }

    fn dispatch(&mut self, now: Instant, arrival: Arrival<'_>, effect: &mut Effect) -> Result<(), TcpDrop> {
        match &mut self.state {
            ConnectionState::SynSent(state) => match state.handle_segment(now, &mut self.base, arrival.header)? {
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
            },
            ConnectionState::SynReceived(state) => {
                effect.place = state.take_text(&self.base, &arrival);
                match state.handle_segment(now, &mut self.base, arrival.header, arrival.payload_bytes) {
                    Err(TcpDrop::Duplicate) if effect.place.is_some() => {}
                    Err(reason) => return Err(reason),
                    Ok(SynReceivedNext::Established(agreed)) => {
                        let early = state.early();
                        self.establish(now, &agreed);
                        let opened = arrival.header.flags.syn;
                        let outcome = if opened { Ok(()) } else { self.synchronized(now, arrival, effect) };
                        self.deliver_early(now, early, effect);
                        return outcome;
                    }
                    Ok(SynReceivedNext::Closed(failure)) => self.end(Some(failure)),
                }
            }
            ConnectionState::Synchronized(_) => return self.synchronized(now, arrival, effect),
            ConnectionState::TimeWait { wait, answer } => {
                match wait.handle_segment(now, arrival.header, arrival.payload_bytes)? {
                    TimeWaitAnswer::Acknowledge(header) => *answer = Some(header),
                    // Whoever demultiplexes asks `time_wait` before it hands a SYN in here.
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
        self.peer_finished = open.rcv.finished;
        self.follow(now, &outcome?);
        Ok(())
    }

    /// Urgent pointer, text and FIN of a segment whose SYN and acknowledgement were taken.
    fn take_text(&mut self, now: Instant, arrival: &Arrival<'_>, effect: &mut Effect) -> Result<(), TcpDrop> {
        self.leave_fast_path();
        let ConnectionState::Synchronized(open) = &mut self.state else { return Err(TcpDrop::Closed) };
        let outcome = open.take_text(now, &mut self.base, arrival, effect);
        self.peer_finished = open.rcv.finished;
        self.follow(now, &outcome?);
        Ok(())
    }

    /// What came with the SYN becomes readable, behind what the opening segment did: that may be numbered before it.
    fn deliver_early(&mut self, now: Instant, Early { seq, bytes, fin }: Early, effect: &mut Effect) {
        if bytes == 0 && !fin {
            return;
        }
        let header = Header { seq, flags: Flags { fin, ..Flags::default() }, ..Header::default() };
        let arrival = Arrival { header: &header, payload_bytes: usize::from(bytes), congestion_experienced: false };
        let mut taken = Effect::default();
        // An error says that it came again just now, and was taken.
        let _ = self.take_text(now, &arrival, &mut taken);
        effect.deliver += taken.deliver;
    }

    /// The connection is open. It is made where it stays.
    fn establish(&mut self, now: Instant, agreed: &Agreed) {
        self.state = ConnectionState::Synchronized(agreed.open(now, &self.base));
        let ConnectionState::Synchronized(open) = &mut self.state else { return };
        open.wrote(now, self.urgent_written);
        if self.urgent_written > 0 {
            open.wrote_urgent(now);
        }
        open.wrote(now, u32::try_from(self.outgoing.len()).unwrap_or(u32::MAX) - self.urgent_written);
        if self.reader_gone {
            open.close(now, &self.base);
        } else if self.shut {
            open.shutdown(now);
        }
    }

    fn follow(&mut self, now: Instant, next: &Transition) {
        match *next {
            Transition::Stay => {}
            Transition::TimeWait { acknowledge } => {
                if let ConnectionState::Synchronized(open) = &self.state {
                    let wait = open.time_wait(now, &self.base);
                    let answer = acknowledge.then(|| wait.acknowledgement(now));
                    self.state = ConnectionState::TimeWait { wait, answer };
                }
            }
            Transition::Closed(failure) => self.end(failure),
        }
    }

    fn end(&mut self, failure: Option<Failure>) {
        self.failure = self.failure.or(failure);
        self.state = ConnectionState::Closed;
        self.outgoing.consume(self.outgoing.len());
    }

    /// The next segment to send. Its payload is at most one MSS, or `large_bytes` where the device takes TCP segments larger
    /// than its MTU; 0 where it does not. To be called until it returns none.
    pub fn poll_transmit(&mut self, now: Instant, large_bytes: usize) -> Option<Segment> {
        if self.base.reset.is_some() {
            return self.base.reset.take().map(|header| Segment::bare(*header));
        }
        match &mut self.state {
            ConnectionState::SynSent(state) => state.poll_transmit(now, &self.base).map(Segment::bare),
            ConnectionState::SynReceived(state) => state.poll_transmit(now, &self.base).map(Segment::bare),
            ConnectionState::Synchronized(open) => {
                let large = u32::try_from(large_bytes).unwrap_or(u32::MAX);
                open.poll_transmit(now, &self.base, large)
            }
            ConnectionState::TimeWait { answer, .. } => answer.take().map(Segment::bare),
            ConnectionState::Closed => None,
        }
    }

    /// The next segment, if all that is to be sent is plain; none if there is none. Else `Err`: [`Connection::poll_transmit`] has
    /// to be asked.
    #[inline]
    pub(crate) fn poll_fast(&mut self, now: Instant, large_bytes: usize) -> Result<Option<FastSegment>, ()> {
        let ConnectionState::Synchronized(open) = &mut self.state else { return Err(()) };
        if !open.sends_fast(now, &self.base) {
            return Err(());
        }
        Ok(open.poll_fast(now, &self.base, u32::try_from(large_bytes).unwrap_or(u32::MAX)))
    }

    /// A bound of what the next segment carries, if it will be plain.
    pub(crate) fn next_payload_max(&self, now: Instant) -> Option<usize> {
        if let ConnectionState::Synchronized(open) = &self.state { open.next_fast_payload_max(now) } else { None }
    }

    /// False: [`Connection::poll_transmit`] has nothing. True: it may have.
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

    /// When [`Connection::handle_timeout`] is to be called, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.state {
            ConnectionState::Synchronized(open) => open.poll_timeout(&self.base),
            ConnectionState::SynSent(_) | ConnectionState::SynReceived(_) | ConnectionState::TimeWait { .. } => {
                Some(self.deadline())
            }
            ConnectionState::Closed => None,
        }
    }

    /// The same; [`Instant::NEVER`] where nothing is due.
    #[inline]
    pub(crate) fn deadline(&self) -> Instant {
        match &self.state {
            ConnectionState::Synchronized(open) => open.deadline(&self.base),
            ConnectionState::SynSent(state) => state.poll_timeout(&self.base),
            ConnectionState::SynReceived(state) => state.poll_timeout(&self.base),
            ConnectionState::TimeWait { wait, .. } => wait.poll_timeout(),
            ConnectionState::Closed => Instant::NEVER,
        }
    }

    /// Does what is due; early calls do nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.leave_fast_path();
        let outcome = match &mut self.state {
            ConnectionState::SynSent(state) => state.handle_timeout(now, &self.base),
            ConnectionState::SynReceived(state) => state.handle_timeout(now, &self.base),
            ConnectionState::Synchronized(open) => {
                let next = open.handle_timeout(now, &mut self.base);
                self.follow(now, &next);
                return;
            }
            ConnectionState::TimeWait { wait, .. } => {
                if now >= wait.until {
                    self.end(None);
                }
                return;
            }
            ConnectionState::Closed => return,
        };
        if let Err(failure) = outcome {
            self.end(Some(failure));
        }
    }

    /// An ICMP error quoted a segment of this connection that began at `seq`.
    ///
    /// Errors: nothing of the kind is outstanding, so it is ignored (RFC 5927 section 4.1). A segment that was too big has to
    /// begin at `seq` and to be larger than the claimed size.
    pub fn handle_icmp(&mut self, now: Instant, seq: SeqNumber, error: IcmpError) -> Result<Belief, TcpDrop> {
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
            (IcmpError::TooBig(mss), ConnectionState::Synchronized(open)) => return open.too_big(now, seq, mss),
            // Every path takes a SYN.
            (IcmpError::TooBig(_), _) => return Err(TcpDrop::IcmpNotOutstanding),
            // RFC 9293 SHLD-26.
            (IcmpError::Hard, _) if opening => self.end(Some(Failure::Unreachable)),
            // RFC 9293 MUST-56, SHLD-25.
            (IcmpError::Hard | IcmpError::Soft, _) => self.soft_error = Some(error),
        }
        Ok(Belief::AtOnce)
    }

    /// The owner learnt how large segments the path takes: MTU less the IP and TCP headers without options. It is believed for
    /// a time.
    pub fn set_path_mss(&mut self, now: Instant, mss: u16) {
        self.leave_fast_path();
        match &mut self.state {
            ConnectionState::Synchronized(open) => open.set_path_mss(now, mss),
            ConnectionState::SynSent(_) | ConnectionState::SynReceived(_) => self.base.path_mss = Some(mss),
            ConnectionState::TimeWait { .. } | ConnectionState::Closed => {}
        }
    }

    /// The MTU of the device has changed: what it is less the IP and TCP headers without options. Nothing larger is ever sent.
    pub fn set_device_mss(&mut self, now: Instant, mss: u16) {
        self.leave_fast_path();
        self.base.config.mss = mss;
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.set_device_mss(now, mss);
        }
    }

    /// The device under the connection has a carrier again: what is outstanding is repeated at once.
    pub fn carrier_up(&mut self, now: Instant) {
        self.leave_fast_path();
        match &mut self.state {
            ConnectionState::SynSent(state) => state.repeat(),
            ConnectionState::SynReceived(state) => state.repeat(),
            ConnectionState::Synchronized(open) => open.snd.carrier_up(now),
            ConnectionState::TimeWait { .. } | ConnectionState::Closed => {}
        }
    }

    /// Takes bytes to send, as many as there is room for, and says how many.
    ///
    /// Errors: this direction is over.
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

    /// Takes bytes to send that lie where they stay: `place` tells the send buffer's memory where. There is room for any number.
    ///
    /// Errors: this direction is over; nothing is placed.
    pub fn send_with(&mut self, now: Instant, bytes: usize, place: impl FnOnce(&mut S)) -> Result<(), SendError> {
        self.may_send()?;
        self.outgoing.push_with(bytes, place);
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.wrote(now, u32::try_from(bytes).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// Has both buffers in other memory; what is in them moves there.
    pub fn set_buffers(&mut self, outgoing: S, incoming: S) {
        self.outgoing.move_into(outgoing);
        self.incoming.move_into(incoming);
    }

    /// The memory of the receive buffer.
    pub fn incoming(&self) -> &S {
        self.incoming.storage()
    }

    /// The memory of the send buffer.
    pub fn outgoing(&self) -> &S {
        self.outgoing.storage()
    }

    /// As [`Connection::send`], for bytes that the peer's application is to be told of before it reads them. Everything written
    /// before them counts as urgent too. RFC 6093 advises against it: what the peer does with the mark is not to be relied on.
    ///
    /// Errors: this direction is over.
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

    /// Bytes that [`Connection::send`] takes.
    pub fn send_room(&self) -> usize {
        let window = match &self.state {
            ConnectionState::Synchronized(open) => usize::try_from(open.snd.cwnd).unwrap_or(usize::MAX),
            ConnectionState::SynSent(_) | ConnectionState::SynReceived(_) => 0,
            ConnectionState::TimeWait { .. } | ConnectionState::Closed => return 0,
        };
        let wanted = window.saturating_mul(2).max(SEND_BUFFER_BYTES_MIN);
        wanted.min(self.base.config.send_buffer_bytes_max).saturating_sub(self.outgoing.len())
    }

    /// It is open, and there is nothing to receive yet.
    #[inline]
    pub(crate) fn awaits_bytes(&self) -> bool {
        self.incoming.len() == 0 && !self.peer_finished && matches!(self.state, ConnectionState::Synchronized(_))
    }

    /// Moves received bytes to `into` and says how many. None and [`Connection::finished`]: the peer has closed.
    #[inline]
    pub fn receive(&mut self, now: Instant, into: &mut [u8]) -> usize {
        let len = into.len().min(self.incoming.len());
        self.incoming.peek(0, &mut into[..len]);
        self.take(now, len);
        len
    }

    /// Takes received bytes that were read where they lie; no more than there are.
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

    /// Bytes to receive until the end of what the peer marked urgent, which may not all be here; 0: nothing is urgent
    /// (RFC 9293 MUST-33). Urgent data is part of the stream and of any length (MUST-31).
    pub fn urgent_ahead(&self) -> u32 {
        let here = u32::try_from(self.incoming.len()).unwrap_or(u32::MAX);
        if self.peer_finished { self.urgent_ahead.min(here) } else { self.urgent_ahead }
    }

    /// True once after the peer's urgent pointer came or moved on: the application is to be told (RFC 9293 MUST-32).
    pub fn take_urgent_event(&mut self) -> bool {
        std::mem::take(&mut self.urgent_event)
    }

    /// Bytes that [`Connection::receive`] has.
    pub fn received(&self) -> usize {
        self.incoming.len()
    }

    /// The peer has closed and all that it sent was received by the application.
    pub fn finished(&self) -> bool {
        self.peer_finished && self.incoming.len() == 0
    }

    /// Ends this direction; the other stays (RFC 9293 section 3.6). A connection that is not open yet ends.
    pub fn shutdown(&mut self, now: Instant) {
        self.leave_fast_path();
        self.shut = true;
        match &mut self.state {
            ConnectionState::SynSent(_) => self.end(None),
            ConnectionState::Synchronized(open) => open.shutdown(now),
            ConnectionState::SynReceived(_) | ConnectionState::TimeWait { .. } | ConnectionState::Closed => {}
        }
    }

    /// Ends both directions: what was written is still sent; what was received and not read, or comes later, is answered by a
    /// reset (RFC 2525 section 2.17). The connection goes on without an application until it is closed.
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

    /// Ends the connection by a reset, whatever is under way (linger of no time).
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

    /// There is something to receive: bytes, the end, or a failure.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.incoming.len() > 0
            || self.peer_finished
            || matches!(self.state, ConnectionState::TimeWait { .. } | ConnectionState::Closed)
    }

    /// What the application may do.
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

    /// Why the connection ended, if by a failure.
    /// RFC 9293 MUST-12: [`Connection::finished`] tells of an end, this of an abort.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// What was sent was repeated so often that something is wrong with the way (R1 of RFC 9293 MUST-20): the owner looks for
    /// another, asks again for its neighbour, and may tell the application (SHLD-9).
    pub fn delivery_problem(&self) -> bool {
        let retries = match &self.state {
            ConnectionState::SynSent(state) => state.retries(),
            ConnectionState::SynReceived(state) => state.retries(),
            ConnectionState::Synchronized(open) => open.snd.retries,
            ConnectionState::TimeWait { .. } | ConnectionState::Closed => 0,
        };
        retries >= TCP_RETRIES_SUSPECT
    }

    /// The latest ICMP error that did not end the connection; asking forgets it.
    pub fn take_soft_error(&mut self) -> Option<IcmpError> {
        self.soft_error.take()
    }

    /// True where the connection was begun by a peer's SYN and is not open yet: it ends without anybody being told.
    pub fn is_embryonic(&self) -> bool {
        matches!(&self.state, ConnectionState::SynReceived(state) if state.passive)
    }

    /// What remains of a connection in TIME-WAIT, for an owner that keeps many: once nothing more is to be transmitted the
    /// connection itself may go.
    pub fn time_wait(&self) -> Option<TimeWait> {
        match &self.state {
            ConnectionState::TimeWait { wait, .. } => Some(*wait),
            ConnectionState::SynSent(_)
            | ConnectionState::SynReceived(_)
            | ConnectionState::Synchronized(_)
            | ConnectionState::Closed => None,
        }
    }

    /// The state.
    pub fn state_name(&self) -> StateName {
        match &self.state {
            ConnectionState::SynSent(_) => StateName::SynSent,
            ConnectionState::SynReceived(_) => StateName::SynReceived,
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

    /// Figures; none before the connection is open and once it is over.
    pub fn info(&self) -> Option<Info> {
        let ConnectionState::Synchronized(open) = &self.state else { return None };
        let (snd, rcv) = (&open.snd, &open.rcv);
        let [path_probes, path_probes_lost, black_holes] = snd.search.counts;
        Some(Info {
            state: self.state_name(),
            congestion: snd.control.name(),
            recovery: snd.recovery.name(),
            rtt: snd.rtt.smoothed(),
            rtt_variance: snd.rtt.variance(),
            rtt_min: snd.rtt.min(),
            timeout: snd.rtt.timeout(snd.backoff),
            congestion_window: snd.cwnd,
            threshold: snd.ssthresh,
            segment_bytes: snd.segment_bytes,
            segment_bytes_high: snd.search.high(),
            path_probing: snd.search.active(),
            path_probes,
            path_probes_lost,
            black_holes,
            flight: snd.pipe(),
            peer_window: snd.window,
            window: rcv.offered(),
            repeated_segments: snd.repeated_segments,
            duplicate_bytes: snd.duplicate_bytes,
            undone_reductions: snd.undone_reductions,
            unsent: snd.unsent(),
            gaps: rcv.gap_count(),
            buffer_bytes: self.buffer_bytes(),
            sent_segments: snd.board.count(),
        })
    }

    /// Bytes of memory that both buffers take, with the lists of what is in them.
    #[inline]
    pub fn buffer_bytes(&self) -> usize {
        let lists = match &self.state {
            ConnectionState::Synchronized(open) => open.snd.board.bytes() + open.rcv.gap_bytes(),
            ConnectionState::SynSent(_)
            | ConnectionState::SynReceived(_)
            | ConnectionState::TimeWait { .. }
            | ConnectionState::Closed => 0,
        };
        self.outgoing.held() + self.incoming.held() + lists
    }

    /// Bytes that the receive buffer has to have for so much payload of a segment, if that is more than it has; else 0.
    pub fn receive_growth(&self, header: &Header, payload_bytes: usize) -> usize {
        let ConnectionState::Synchronized(open) = &self.state else { return 0 };
        let ahead = if header.seq.after(open.rcv.nxt) { header.seq.since(open.rcv.nxt) } else { 0 };
        let bytes = self.incoming.len() + usize::try_from(ahead).unwrap_or(usize::MAX).saturating_add(payload_bytes);
        if bytes > self.incoming.capacity() { bytes } else { 0 }
    }

    /// Whether the receive buffer's memory has room for so much payload of a segment.
    #[inline]
    pub fn has_receive_room(&self, header: &Header, payload_bytes: usize) -> bool {
        let ahead = match &self.state {
            ConnectionState::Synchronized(open) if header.seq.after(open.rcv.nxt) => header.seq.since(open.rcv.nxt),
            ConnectionState::Synchronized(_)
            | ConnectionState::SynSent(_)
            | ConnectionState::SynReceived(_)
            | ConnectionState::TimeWait { .. }
            | ConnectionState::Closed => 0,
        };
        self.incoming.has_room(usize::try_from(ahead).unwrap_or(usize::MAX), payload_bytes)
    }

    /// The same for payload that is next in order.
    #[inline]
    pub fn has_room_for_next(&self, payload_bytes: usize) -> bool {
        self.incoming.has_room(0, payload_bytes)
    }

    /// The handshake is done, and the connection is not over.
    pub fn is_open(&self) -> bool {
        matches!(self.state, ConnectionState::Synchronized(_))
    }

    /// The peer has ended its direction; bytes of it may still have to be received.
    pub fn peer_finished(&self) -> bool {
        self.peer_finished
    }

    /// Bytes that the send buffer takes without growing beyond `bytes`.
    pub fn send_room_within(&self, bytes: usize) -> usize {
        self.outgoing.capacity().max(bytes).saturating_sub(self.outgoing.len())
    }

    /// Before something is received: memory for it.
    #[inline]
    pub fn borrow_receive_buffer(&mut self, spare: &mut Vec<S>) {
        self.incoming.borrow(spare);
    }

    /// Before something is sent: memory for it.
    #[inline]
    pub fn borrow_send_buffer(&mut self, spare: &mut Vec<S>) {
        self.outgoing.borrow(spare);
    }

    /// Lets other connections have the memory of empty buffers: what was used last is in the cache.
    #[inline]
    pub fn give_back_empty_buffers(&mut self, spare: &mut Vec<S>) {
        self.outgoing.give_back(spare);
        self.incoming.give_back(spare);
    }

    /// The same of what was received, once all of it was taken.
    #[inline]
    pub(crate) fn give_back_receive_buffer(&mut self, spare: &mut Vec<S>) {
        self.incoming.give_back(spare);
    }

    /// Gives the memory of empty buffers back.
    pub fn release_empty_buffers(&mut self) {
        self.outgoing.release();
        self.incoming.release();
    }

    /// Panics unless what holds whatever happened does: for tests and fuzzers, since it looks at all that is outstanding.
    pub fn check(&self) {
        let ConnectionState::Synchronized(open) = &self.state else { return };
        open.snd.board.check();
        assert_eq!(u32::try_from(self.outgoing.len()), Ok(open.snd.buffered()));
        assert!(open.rcv.gap_count() <= crate::limits::TCP_GAPS_MAX);
        assert!(open.snd.cwnd >= 1 && open.snd.una.at_or_before(open.snd.nxt), "{:?}", open.snd);
    }

    /// Switches Nagle's algorithm off or on.
    /// RFC 9293 MUST-17.
    pub fn set_no_delay(&mut self, now: Instant, no_delay: bool) {
        self.base.config.no_delay = no_delay;
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.snd.no_delay = no_delay;
            open.snd.rearm(now);
        }
    }

    /// Switches probes of an idle connection on or off.
    ///
    /// Errors: no time between them, or none of them.
    /// RFC 9293 MUST-24, MAY-5.
    pub fn set_keepalive(&mut self, keepalive: Option<Keepalive>) -> Result<(), ConfigError> {
        self.leave_fast_path();
        keepalive.map_or(Ok(()), |keepalive| keepalive.check())?;
        self.base.config.keepalive = keepalive;
        Ok(())
    }

    /// How long data may stay unacknowledged; `None`: until retries end.
    ///
    /// Errors: next to no time.
    /// RFC 9293 MUST-21.
    pub fn set_user_timeout(&mut self, timeout: Option<Duration>) -> Result<(), ConfigError> {
        check_user_timeout(timeout)?;
        self.leave_fast_path();
        self.base.config.user_timeout = timeout;
        Ok(())
    }

    /// Fixes the receive buffer's size in bytes, which ends its growth. A window already offered is honoured.
    ///
    /// Errors: a size that cannot be.
    pub fn set_receive_buffer(&mut self, bytes: usize) -> Result<(), ConfigError> {
        check_buffer(bytes)?;
        (self.base.config.receive_buffer_bytes, self.base.config.receive_buffer_bytes_max) = (bytes, bytes);
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.rcv.set_capacity(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// Bounds what is offered to the peer from now on; what was offered before stays, and so does the buffer's own size.
    pub fn limit_window(&mut self, bytes: u32) {
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.rcv.limit_window(bytes);
        }
    }

    /// Limits the send buffer, in bytes; what it holds stays.
    ///
    /// Errors: a size that cannot be.
    pub fn set_send_buffer(&mut self, bytes: usize) -> Result<(), ConfigError> {
        check_buffer(bytes)?;
        self.base.config.send_buffer_bytes_max = bytes;
        Ok(())
    }

    /// Changes the congestion control; the window stays what it is.
    ///
    /// Errors: there is none of that name.
    pub fn set_congestion(&mut self, name: &'static str) -> Result<(), ConfigError> {
        let control = congestion::by_name(name).ok_or(ConfigError::UnknownCongestionControl)?;
        self.base.config.congestion = name;
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.snd.control = control;
        }
        Ok(())
    }
}

impl Base {
    fn new(config: Config, (local_port, remote_port): (u16, u16), initial: Initial) -> Self {
        let syn_window = u16::try_from(config.receive_buffer_bytes).unwrap_or(u16::MAX);
        let window_shift = config.window_shift();
        Self { local_port, remote_port, config, initial, syn_window, window_shift, path_mss: None, reset: None }
    }
}
