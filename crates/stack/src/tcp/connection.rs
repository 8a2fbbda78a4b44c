//! A connection: its state, its two buffers, and what owner and application may do with it.

mod application;
mod buffers;
mod info;
mod settings;

use super::buffer::{ByteQueue, Heap, Storage};
use super::config::{Config, ConfigError};
use super::fast_path::Eligible;
use super::initial::Initial;
use super::opening::{Agreed, Base, Early, SynReceived, SynReceivedNext, SynSent, SynSentNext};
use super::synchronized::{Arrival, Phase, Synchronized, Transition};
use super::time_wait::{TimeWait, TimeWaitAnswer};
use super::{Belief, Effect, Failure, IcmpError, Segment};
use crate::drops::TcpDrop;
use crate::link::frame::Payload;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, SeqNumber};
pub use application::{Readiness, SendError};
pub use info::Info;

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

/// The ports of a connection, seen from this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// Port of this end.
    pub local: u16,
    /// Port of the peer.
    pub remote: u16,
}

/// One end of a connection. Its buffers lie in storage of kind `S`. What every segment needs stands together in front.
#[derive(Debug)]
#[repr(C)]
pub struct Connection<S: Storage = Heap> {
    pub(super) outgoing: ByteQueue<S>,
    pub(super) incoming: ByteQueue<S>,
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
    /// Opens actively.
    ///
    /// Errors: a setting that cannot be.
    pub fn connect(now: Instant, config: Config, ports: Ports, initial: Initial) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self::new(Base::new(config, ports, initial), ConnectionState::SynSent(SynSent::new(now))))
    }

    /// Opens passively from a SYN that a listener got. Text or FIN that came with it waits until the connection is open, if
    /// the whole segment is then handed to [`Connection::handle_segment`] too (RFC 9293 section 3.10.7.2).
    ///
    /// Errors: a setting that cannot be.
    pub fn accept(now: Instant, config: Config, syn: &Header, initial: Initial) -> Result<Self, ConfigError> {
        config.check()?;
        let base = Base::new(config, Ports { local: syn.destination_port, remote: syn.source_port }, initial);
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
        let base = Base::new(config, Ports { local: syn.destination_port, remote: syn.source_port }, initial);
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

    /// Panics unless what holds whatever happened does: for tests and fuzzers, since it looks at all that is outstanding.
    pub fn check(&self) {
        let ConnectionState::Synchronized(open) = &self.state else { return };
        open.snd.board.check();
        assert_eq!(u32::try_from(self.outgoing.len()), Ok(open.snd.buffered()));
        assert!(open.rcv.gap_count() <= crate::limits::TCP_GAPS_MAX);
        assert!(open.snd.cwnd >= 1 && open.snd.una.at_or_before(open.snd.nxt), "{:?}", open.snd);
    }
}

impl Base {
    fn new(config: Config, ports: Ports, initial: Initial) -> Self {
        let syn_window = u16::try_from(config.receive_buffer_bytes).unwrap_or(u16::MAX);
        let window_shift = config.window_shift();
        Self { ports, config, initial, syn_window, window_shift, path_mss: None, reset: None }
    }
}
