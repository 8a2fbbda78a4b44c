//! TCP Fast Open (RFC 7413) of one connection: data in the SYN, and data before the handshake is complete.
//!
//! The owner of the connection stores cookies, checks them, and decides whether a connection may use Fast Open. An active open
//! sends its option and its data only in its first SYN: a retransmitted SYN is a plain one, because the option or the data may be
//! the reason for the loss. Data that the SYN-ACK does not acknowledge is sent again at once after the handshake. A passive open
//! with a valid cookie enters [`Synchronized`] when the SYN arrives, and `Passive` sends the SYN-ACK until it is acknowledged. The
//! experimental option of RFC 7413 appendix A is not used, because kind 34 replaces it.

use super::buffer::Storage;
use super::config::{Config, ConfigError};
use super::connection::{Connection, ConnectionState, Ports};
use super::initial::Initial;
use super::opening::{Agreed, Attempt, Base, Peer, SynSent};
use super::receiver::AckDue;
use super::synchronized::{Arrival, Synchronized, Transition};
use super::{Effect, Failure};
use crate::drops::TcpDrop;
use crate::limits::TCP_FAST_OPEN_BLACK_HOLE_TIMEOUTS;
use crate::link::frame::Payload;
use crate::time::Instant;
use crate::wire::tcp::{FastOpenOption, Header, IpEcn, SeqNumber};
use std::sync::Arc;

/// How an active open uses Fast Open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastOpenSyn {
    /// The option of the first SYN: a cookie, or the request for a cookie.
    pub option: Option<FastOpenOption>,
    /// The peer's MSS, which limits the data in the SYN. With `None`, the SYN carries no data.
    pub mss: Option<u16>,
    /// Whether the SYN waits until the application writes, so that it can carry data.
    pub deferred: bool,
}

/// What an active open with Fast Open has shown about the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastOpenEvent {
    /// Repeated timeouts, or the loss of all data before the peer's FIN, suggest that the path drops segments of connections that
    /// use Fast Open.
    BlackHole,
    /// The connection has received data and has ended.
    Works,
}

/// What Fast Open adds to a connection. A connection without Fast Open has no such value.
#[derive(Debug)]
pub(super) enum FastOpen {
    Passive(Passive),
    Active(Active),
}

/// Memory of this value in bytes.
pub(crate) const FAST_OPEN_BYTES: usize = size_of::<FastOpen>();

/// A passive open whose SYN-ACK is not acknowledged yet, although data may already flow.
#[derive(Debug)]
pub(super) struct Passive {
    peer: Peer,
    attempt: Attempt,
    /// A cookie for the first SYN-ACK. As in Linux, a retransmitted SYN-ACK has none.
    cookie: Option<FastOpenOption>,
}

/// An active open whose first SYN had a Fast Open option or data.
#[derive(Debug, Default)]
pub(super) struct Active {
    /// Whether the first SYN carried data.
    has_data: bool,
    /// Sequence number of the peer's first byte: IRS + 1.
    first: Option<SeqNumber>,
    event: Option<FastOpenEvent>,
}

impl Base {
    /// Returns whether data may flow although the peer has not acknowledged this side's SYN-ACK.
    pub(super) fn opens_passively(&self) -> bool {
        matches!(self.fast_open.as_deref(), Some(FastOpen::Passive(_)))
    }

    fn passive(&mut self) -> Option<&mut Passive> {
        match self.fast_open.as_deref_mut()? {
            FastOpen::Passive(passive) => Some(passive),
            FastOpen::Active(_) => None,
        }
    }

    fn active(&mut self) -> Option<&mut Active> {
        match self.fast_open.as_deref_mut()? {
            FastOpen::Active(active) => Some(active),
            FastOpen::Passive(_) => None,
        }
    }

    /// Records that the first SYN of an active open used Fast Open, and whether it carried data.
    pub(super) fn begin_active(&mut self, has_data: bool) {
        self.fast_open = Some(Box::new(FastOpen::Active(Active { has_data, ..Active::default() })));
    }

    /// Makes the SYN-ACK due again if `header` is the SYN of the peer.
    pub(super) fn repeat_syn_ack(&mut self, header: &Header) -> bool {
        let Some(passive) = self.passive() else { return false };
        let again = header.flags.syn && !header.flags.rst && header.ack.is_none() && header.seq == passive.peer.irs;
        passive.attempt.due |= again;
        again
    }
}

impl<S: Storage + Default> Connection<S> {
    /// Like [`Connection::connect`], with Fast Open. If `syn` is deferred, the application writes first.
    ///
    /// Returns an error if a setting is out of range.
    pub fn connect_fast(
        now: Instant,
        config: impl Into<Arc<Config>>,
        ports: Ports,
        initial: Initial,
        syn: FastOpenSyn,
    ) -> Result<Self, ConfigError> {
        let mut connection = Self::connect(now, config, ports, initial)?;
        connection.state = ConnectionState::SynSent(SynSent::with_fast_open(now, &connection.base.config, syn));
        Ok(connection)
    }

    /// Like [`Connection::accept`], for a SYN with a valid Fast Open cookie. The application may receive `payload`, the data of
    /// the SYN, and may write, before the handshake is complete. The SYN-ACK carries `cookie`, if there is one.
    ///
    /// Returns an error if a setting is out of range.
    pub fn accept_fast<P: Payload + ?Sized>(
        now: Instant,
        config: impl Into<Arc<Config>>,
        syn: &Header,
        arrived_with: IpEcn,
        initial: Initial,
        cookie: Option<FastOpenOption>,
        payload: &P,
    ) -> Result<Self, ConfigError> {
        let mut connection = Self::accept_with(now, config, syn, arrived_with, initial)?;
        let ConnectionState::SynReceived(received) = &connection.state else { return Ok(connection) };
        // As in Linux, the SYN-ACK is retransmitted once more than without Fast Open.
        let attempt = Attempt::new(now, connection.base.config.syn_ack_retries_max.saturating_add(1), true);
        let peer = received.peer;
        let agreed = Agreed::by_cookie(peer, attempt);
        connection.base.fast_open = Some(Box::new(FastOpen::Passive(Passive { peer, attempt, cookie })));
        connection.establish(now, &agreed);
        let urgent = syn.urgent.map(|pointer| pointer.saturating_sub(1));
        let header = Header { seq: syn.seq + 1, urgent, ..*syn };
        let arrival = Arrival { header: &header, payload_bytes: payload.len(), ecn: IpEcn::default() };
        let mut effect = Effect::default();
        // An error means that the window has no room. The peer then sends the data again.
        let _ = connection.take_text(now, &arrival, &mut effect);
        connection.syn_data = effect.deliver > 0;
        connection.apply(&effect, payload, 0);
        if let ConnectionState::Synchronized(open) = &mut connection.state {
            // The SYN-ACK is due, also if the SYN has no data.
            open.rcv.ack = AckDue::Now;
        }
        Ok(connection)
    }
}

impl<S: Storage> Connection<S> {
    /// Makes the SYN-ACK of a passive open carry a cookie for the peer's next connection.
    pub fn offer_cookie(&mut self, cookie: FastOpenOption) {
        if let ConnectionState::SynReceived(received) = &mut self.state {
            received.cookie = Some(cookie);
        }
    }

    /// Returns whether the SYN of an active open waits until the application writes.
    #[inline]
    pub fn awaits_first_write(&self) -> bool {
        matches!(&self.state, ConnectionState::SynSent(state) if state.attempt.is_deferred())
    }

    pub(crate) fn uses_fast_open(&self) -> bool {
        self.base.fast_open.is_some()
    }

    /// Returns whether the connection has sent a Fast Open option and waits for the SYN-ACK. A cookie in this SYN-ACK is not
    /// unsolicited.
    pub fn awaits_cookie(&self) -> bool {
        matches!(&self.state, ConnectionState::SynSent(state) if state.has_sent_option())
    }

    /// Returns whether data may flow although the peer has not acknowledged this side's SYN-ACK.
    pub fn opens_fast(&self) -> bool {
        self.base.opens_passively() && matches!(self.state, ConnectionState::Synchronized(_))
    }

    /// Returns what an active open with Fast Open has shown about the path since the last call.
    pub fn take_fast_open_event(&mut self) -> Option<FastOpenEvent> {
        self.base.active()?.event.take()
    }

    /// Returns the number of successive timeouts of the SYN or of a segment.
    pub(super) fn timeouts(&self) -> u8 {
        match &self.state {
            ConnectionState::SynSent(state) => state.attempt.retries,
            ConnectionState::Synchronized(open) if !open.snd.board.is_empty() => open.snd.retries,
            ConnectionState::Synchronized(_)
            | ConnectionState::SynReceived(_)
            | ConnectionState::TimeWait { .. }
            | ConnectionState::Closed => 0,
        }
    }

    /// Detects a black hole after the timers have run. `before` is the number of timeouts before that. As in Linux, the third
    /// timeout in succession suggests a black hole, and so does the end of the connection after fewer timeouts.
    pub(super) fn detect_black_hole(&mut self, before: u8) {
        const MANY: u8 = TCP_FAST_OPEN_BLACK_HOLE_TIMEOUTS;
        let gave_up = matches!(self.state, ConnectionState::Closed) && self.failure() == Some(Failure::TimedOut);
        if before < MANY
            && (gave_up || self.timeouts() >= MANY)
            && let Some(active) = self.base.active()
        {
            active.event = Some(FastOpenEvent::BlackHole);
        }
    }

    /// Records the peer's first sequence number when an active open is established.
    pub(super) fn note_established(&mut self) {
        if let ConnectionState::Synchronized(open) = &mut self.state
            && let Some(active) = self.base.active()
        {
            active.first = Some(open.rcv.nxt);
            if active.has_data && !self.syn_data {
                // As in Linux, the data of the SYN counts as lost, so no tail-loss probe is sent before an RTT sample.
                open.snd.rtt.fresh = false;
            }
        }
    }

    /// Judges the path when a connection ends that opened actively with Fast Open. As in Linux, a FIN without any data before it,
    /// behind a gap, suggests a black hole.
    pub(super) fn judge_path(&mut self) {
        let ConnectionState::Synchronized(open) = &self.state else { return };
        let Some(active) = self.base.active() else { return };
        let Some(first) = active.first.filter(|_| active.event.is_none()) else { return };
        let rcv = &open.rcv;
        if rcv.nxt.since(first) > u32::from(rcv.finished) {
            active.event = Some(FastOpenEvent::Works);
        } else if rcv.has_gaps() && rcv.gaps.is_empty() && !rcv.finished {
            active.event = Some(FastOpenEvent::BlackHole);
        }
    }
}

/// The handshake of a passive open while data already flows.
impl Synchronized {
    /// Returns the SYN-ACK, if it is due. It acknowledges the data of the SYN.
    pub(super) fn poll_syn_ack(&mut self, now: Instant, base: &mut Base) -> Option<Header> {
        let passive = base.passive().filter(|passive| passive.attempt.due)?;
        let running = passive.attempt.at;
        passive.attempt.sent(now);
        // As in Linux, an answer to a repeated SYN does not restart the timer of such a connection.
        if running > now {
            passive.attempt.at = running;
        }
        let (peer, cookie, retries) = (passive.peer, passive.cookie.take(), passive.attempt.retries);
        let window = u16::try_from(self.rcv.offered()).unwrap_or(u16::MAX);
        self.rcv.acknowledged(now, false);
        Some(peer.syn_ack(now, base, self.rcv.nxt, window, cookie, retries))
    }

    /// Completes the handshake if an acceptable segment acknowledges the SYN-ACK. Otherwise the segment is dropped as in
    /// SYN-RECEIVED.
    pub(super) fn complete_handshake(&mut self, now: Instant, base: &mut Base, header: &Header) -> Result<(), TcpDrop> {
        let Some(&mut Passive { attempt, .. }) = base.passive() else { return Ok(()) };
        let ack = header.ack.ok_or(TcpDrop::NoAck)?;
        if ack.before(self.snd.una) || ack.after(self.snd.nxt) {
            base.answer_by_reset(ack, self.timestamps.then(|| self.rcv.recent()));
            return Err(TcpDrop::AckUnacceptable);
        }
        base.fast_open = None;
        let echo_rtt = base.echo_rtt(now, header).filter(|_| self.timestamps);
        let snd = &mut self.snd;
        (snd.rto_from, snd.pto_from, snd.progress_at) = (now, now, now);
        match attempt.first_sent {
            // As in Linux, only data that is acknowledged gives a sample. The peer may have delayed the acknowledgement of the SYN-ACK.
            Some(_) if !attempt.repeated && ack.after(snd.una) => {}
            Some(sent) if !attempt.repeated => snd.rtt.sample(now, now.since(sent)),
            Some(_) | None => {
                // The echoed timestamp shows which SYN-ACK the peer has answered.
                match echo_rtt {
                    Some(rtt) => snd.rtt.sample(now, rtt),
                    None => snd.rtt.lost_syn(),
                }
                // A client in SYN-SENT drops data. It has therefore dropped everything that arrived before this SYN-ACK.
                if ack == snd.una {
                    snd.repeat_all(now);
                }
            }
        }
        if attempt.retries > 1 {
            snd.cwnd = snd.segment_bytes;
        }
        snd.rearm(now);
        Ok(())
    }

    /// Returns when the SYN-ACK is retransmitted, or `None` if the handshake is complete. The data has no timer until then.
    pub(super) fn handshake_timeout(&self, base: &Base) -> Option<Instant> {
        match base.fast_open.as_deref()? {
            FastOpen::Passive(passive) => Some(passive.attempt.poll_timeout(base).min(self.rcv.ack_at())),
            FastOpen::Active(_) => None,
        }
    }

    /// Runs the timers until the handshake is complete. Returns `None` if it is complete.
    pub(super) fn handle_handshake_timeout(&mut self, now: Instant, base: &mut Base) -> Option<Transition> {
        let mut attempt = base.passive()?.attempt;
        if attempt.handle_timeout(now, base).is_err() {
            return Some(Transition::Closed(Some(Failure::TimedOut)));
        }
        if attempt.due || now >= self.rcv.ack_at() {
            self.rcv.ack = AckDue::Now;
        }
        base.passive()?.attempt = attempt;
        Some(Transition::Stay)
    }
}
