//! The states SYN-SENT and SYN-RECEIVED: the handshake, and the options on which both sides agree during the handshake.

use super::accurate_ecn::{AccurateEcn, AccurateStart};
use super::config::Config;
use super::connection::Ports;
use super::ecn_mode::EcnMode;
use super::fast_open::{FastOpen, FastOpenSyn};
use super::initial::Initial;
use super::plpmtud::{Sizes, segment_bytes};
use super::receiver::{self, Receiver};
use super::rtt::Rtt;
use super::sender::{self, Sender};
use super::synchronized::{Arrival, Synchronized};
use super::{Failure, Placement, Segment, SendRange, ack_timing};
use crate::drops::TcpDrop;
use crate::limits::{TCP_SEGMENT_BYTES_MIN, TCP_SYN_TEXT_BYTES_MAX};
use crate::time::{Duration, Instant};
use crate::wire::tcp::{AccurateEcnOption, FastOpenOption, Flags, Header, HeaderOptions, IpEcn, SeqNumber, Timestamps};
use std::sync::Arc;

/// The data that all connection states share. Fields that every segment uses come first, so that they share cache lines.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Base {
    /// A reset that is to be sent, either as the answer to a segment or because the connection was aborted.
    pub(super) reset: Option<Box<Header>>,
    /// `None` unless the connection uses Fast Open.
    pub(super) fast_open: Option<Box<FastOpen>>,
    pub(super) initial: Initial,
    pub(super) ports: Ports,
    /// The settings, which the stack's connections share.
    pub(super) config: Arc<Config>,
    /// The window in our SYN, which is never scaled. `window_shift` is the window scale that our SYN offers. A later change of
    /// the receive buffer's size changes neither of them.
    pub(super) syn_window: u16,
    pub(super) window_shift: u8,
    /// Largest segment payload that the path carries, if the owner learned it before the connection was open.
    pub(super) path_mss: Option<u16>,
}

impl Base {
    /// Returns a header with the ports of this connection.
    pub(super) fn header(&self, seq: SeqNumber, ack: Option<SeqNumber>, window: u16) -> Header {
        let (source_port, destination_port) = (self.ports.local, self.ports.remote);
        Header { source_port, destination_port, seq, ack, window, ..Header::default() }
    }

    pub(super) fn timestamps(&self, now: Instant, echo: u32) -> Timestamps {
        Timestamps { value: super::timestamp(now, self.initial.timestamp_offset), echo }
    }

    /// Returns the RTT according to the timestamp that a segment echoes.
    pub(super) fn echo_rtt(&self, now: Instant, header: &Header) -> Option<Duration> {
        let echo = header.options.timestamps?.echo;
        let ms = super::echo_ms(now, self.initial.timestamp_offset, echo)?;
        Some(Duration::from_millis(ms.max(1)))
    }

    /// Returns the header of a reset. If timestamps are in use, `recent` is TS.Recent, and the reset also carries timestamps (RFC
    /// 7323 section 3.2). [`Base::take_reset`] sets their TSval.
    pub(super) fn reset_header(&self, seq: SeqNumber, ack: Option<SeqNumber>, recent: Option<u32>) -> Header {
        let mut header = self.header(seq, ack, 0);
        header.flags.rst = true;
        header.options.timestamps = recent.map(|echo| Timestamps { value: 0, echo });
        header
    }

    /// Answers a segment by a reset, because `ack` acknowledges something that was never sent (RFC 9293 section 3.10.7).
    pub(super) fn answer_by_reset(&mut self, ack: SeqNumber, recent: Option<u32>) {
        self.reset = Some(Box::new(self.reset_header(ack, None, recent)));
    }

    /// Returns the reset that is to be sent at `now`, if there is one.
    pub(super) fn take_reset(&mut self, now: Instant) -> Option<Header> {
        let mut header = *self.reset.take()?;
        header.options.timestamps = header.options.timestamps.map(|stamps| self.timestamps(now, stamps.echo));
        Some(header)
    }
}

/// What the peer's SYN (or SYN-ACK) offers, without the options that are switched off on this side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    pub(super) irs: SeqNumber,
    options: HeaderOptions,
    window: u16,
    ecn: EcnMode,
    /// The ECN field with which the SYN (or SYN-ACK) arrived.
    arrived_with: IpEcn,
    /// Whether the SYN-ACK shows that the path changes the ECN field.
    is_mangled: bool,
}

impl Peer {
    fn new(header: &Header, config: &Config, ecn: EcnMode, arrived_with: IpEcn) -> Self {
        let mut options = header.options;
        options.timestamps = options.timestamps.filter(|_| config.timestamps);
        options.window_scale = options.window_scale.filter(|_| config.window_scaling);
        options.sack_permitted &= config.sack;
        // RFC 9768 section 3.2.2.3: our SYN has no ECT, so the peer cannot have received it with ECT or a mark. The combination 101 is
        // reserved, and means that the field arrived unchanged (section 3.1.3).
        let unchanged = matches!(header.flags.ace(), 0b010 | 0b101);
        let is_mangled = ecn == EcnMode::Accurate && header.ack.is_some() && !unchanged;
        Self { irs: header.seq, options, window: header.window, ecn, arrived_with, is_mangled }
    }

    /// Returns the SYN-ACK that answers this peer's SYN, after `retries` retransmissions. With accurate ECN, the first retransmission has no
    /// accurate ECN option, and later ones also have no ECN flags, because a path may drop them (RFC 9768 section 3.1.4.2).
    pub(super) fn syn_ack(
        &self,
        now: Instant,
        base: &Base,
        ack: SeqNumber,
        window: u16,
        fast_open: Option<FastOpenOption>,
        retries: u8,
    ) -> Header {
        let mut header = base.header(base.initial.seq, Some(ack), window);
        header.flags = Flags { syn: true, ece: self.ecn == EcnMode::Classic, ..Flags::default() };
        let accurate = self.ecn == EcnMode::Accurate;
        if accurate && retries < 2 {
            header.flags.set_ace(self.arrived_with.ace_of_handshake());
        }
        header.options = HeaderOptions {
            // RFC 9293 MUST-14, SHLD-5, MAY-3: every SYN carries the MSS option.
            mss: Some(base.config.mss),
            window_scale: self.options.window_scale.map(|_| base.window_shift),
            sack_permitted: self.options.sack_permitted,
            timestamps: self.options.timestamps.map(|theirs| base.timestamps(now, theirs.value)),
            fast_open,
            // A header has no room for both options.
            accurate_ecn: (accurate && retries == 0 && fast_open.is_none()).then(AccurateEcnOption::first),
            ..HeaderOptions::default()
        };
        header
    }
}

/// The transmission of a SYN or SYN-ACK, and its retransmissions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) due: bool,
    /// When the SYN or SYN-ACK was first sent. Its answer gives an RTT sample, unless it was sent again (Karn's algorithm).
    pub(super) first_sent: Option<Instant>,
    /// Whether the SYN or SYN-ACK was sent again, after a timeout or because the peer repeated its SYN.
    pub(super) repeated: bool,
    pub(super) at: Instant,
    begun: Instant,
    pub(super) retries: u8,
    retries_max: u8,
    /// Whether this is a passive open: a listener received the peer's SYN. The application then does not learn of a reset (RFC
    /// 9293 section 3.10.7.4), and a user timeout does not prolong the attempt.
    /// RFC 9293 MUST-11.
    passive: bool,
}

impl Attempt {
    pub(super) fn new(now: Instant, retries_max: u8, passive: bool) -> Self {
        Self { due: true, first_sent: None, repeated: false, at: now, begun: now, retries: 0, retries_max, passive }
    }

    /// Returns the attempt of an active open that begins when the application writes. Until then, no timer runs.
    fn deferred(now: Instant, retries_max: u8) -> Self {
        Self { due: false, at: Instant::NEVER, ..Self::new(now, retries_max, false) }
    }

    #[inline]
    pub(super) fn is_deferred(&self) -> bool {
        self.at == Instant::NEVER
    }

    /// Like [`Attempt::sent`], for a SYN-ACK with a SYN cookie. Such a SYN-ACK was sent before the connection existed, so its
    /// sending time is unknown and it gives no RTT sample.
    pub(super) fn answered(&mut self, now: Instant) {
        (self.due, self.at) = (false, now + Rtt::default().timeout(0));
    }

    pub(super) fn sent(&mut self, now: Instant) {
        self.due = false;
        self.repeated |= self.first_sent.is_some();
        self.first_sent.get_or_insert(now);
        self.at = now + Rtt::default().timeout(self.retries);
    }

    /// Returns whether the next SYN of an active open may offer ECN.
    fn offers_ecn(&self) -> bool {
        self.retries < 2
    }

    pub(super) fn poll_timeout(&self, base: &Base) -> Instant {
        let limit = base.config.user_timeout.filter(|_| !self.is_deferred());
        limit.map_or(self.at, |timeout| self.at.min(self.begun + timeout))
    }

    /// Makes a retransmission due, or returns an error if the attempt has timed out. In an active open, a user timeout replaces
    /// `retries_max`, even if the user timeout is longer. In a passive open, both limits apply.
    pub(super) fn handle_timeout(&mut self, now: Instant, base: &Base) -> Result<(), Failure> {
        if self.is_deferred() {
            return Ok(());
        }
        // RFC 9293 MUST-21, MUST-22: the user timeout is also R2 of a SYN, the time after which the connection gives up.
        if base.config.user_timeout.is_some_and(|timeout| now >= self.begun + timeout) {
            return Err(Failure::TimedOut);
        }
        if now >= self.at && !self.due {
            if self.retries >= self.retries_max && (self.passive || base.config.user_timeout.is_none()) {
                return Err(Failure::TimedOut);
            }
            self.retries = self.retries.saturating_add(1);
            self.due = true;
            self.at = now + Rtt::default().timeout(self.retries);
        }
        Ok(())
    }
}

/// SYN-SENT: this side has sent a SYN.
#[derive(Debug)]
pub(super) struct SynSent {
    pub(super) attempt: Attempt,
    fast_open: Option<FastOpenSyn>,
    /// Number of bytes of data that the first SYN carried.
    data_bytes: u16,
}

#[derive(Debug)]
pub(super) enum SynSentNext {
    Received(SynReceived),
    Established(Agreed),
    Closed(Failure),
}

impl SynSent {
    pub(super) fn new(now: Instant, config: &Config) -> Self {
        Self { attempt: Attempt::new(now, config.syn_retries_max, false), fast_open: None, data_bytes: 0 }
    }

    pub(super) fn with_fast_open(now: Instant, config: &Config, syn: FastOpenSyn) -> Self {
        let open = Self { fast_open: Some(syn), ..Self::new(now, config) };
        let attempt = Attempt::deferred(now, config.syn_retries_max);
        if syn.deferred { Self { attempt, ..open } } else { open }
    }

    pub(super) fn has_sent_option(&self) -> bool {
        self.attempt.first_sent.is_some() && self.fast_open.is_some_and(|syn| syn.option.is_some())
    }

    /// Makes a deferred SYN due, because the application has written.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.attempt.is_deferred() {
            self.attempt = Attempt::new(now, self.attempt.retries_max, false);
        }
    }

    /// Processes a segment according to RFC 9293 section 3.10.7.3.
    pub(super) fn handle_segment(
        &mut self,
        now: Instant,
        base: &mut Base,
        header: &Header,
        arrived_with: IpEcn,
    ) -> Result<SynSentNext, TcpDrop> {
        let first = base.initial.seq + 1;
        if let Some(ack) = header.ack
            && (ack.before(first) || ack.after(first + u32::from(self.data_bytes)))
        {
            if !header.flags.rst {
                base.answer_by_reset(ack, None);
            }
            return Err(TcpDrop::AckUnacceptable);
        }
        if header.flags.rst {
            return if header.ack.is_some() {
                Ok(SynSentNext::Closed(Failure::Refused))
            } else {
                Err(TcpDrop::ResetBlind)
            };
        }
        if !header.flags.syn {
            return Err(TcpDrop::NoSyn);
        }
        let Some(ack) = header.ack else {
            // MUST-10: simultaneous open, because the peer's SYN does not acknowledge ours.
            let mut received = SynReceived::new(now, base, header, false, arrived_with);
            (received.attempt.first_sent, received.data_bytes) = (self.attempt.first_sent, self.data_bytes);
            if !self.attempt.offers_ecn() {
                received.peer.ecn = EcnMode::Off;
            }
            return Ok(SynSentNext::Received(received));
        };
        let ecn = EcnMode::of_syn_ack(header.flags, &base.config);
        let peer = Peer::new(header, &base.config, ecn, arrived_with);
        let window = u32::from(peer.window);
        let acked = ack.since(first);
        let echo_rtt = base.echo_rtt(now, header);
        Ok(SynSentNext::Established(Agreed { peer, attempt: self.attempt, window, acked, answer: true, echo_rtt }))
    }

    /// Returns the SYN if it is due. `written` is the number of bytes that the SYN may carry if it uses Fast Open.
    pub(super) fn poll_transmit(&mut self, now: Instant, base: &mut Base, written: usize) -> Option<Segment> {
        if !self.attempt.due {
            return None;
        }
        // RFC 3168 section 6.1.1.1: some paths drop SYNs that offer ECN. Therefore the third and each later SYN does not offer
        // ECN, as in Linux.
        let ecn = base.config.ecn && self.attempt.offers_ecn();
        // RFC 7413 section 4.1.3: a retransmitted SYN has neither a Fast Open option nor data.
        let fast_open = self.fast_open.filter(|_| self.attempt.first_sent.is_none());
        self.attempt.sent(now);
        let config = &base.config;
        let mut header = base.header(base.initial.seq, None, base.syn_window);
        header.flags =
            Flags { syn: true, ece: ecn, cwr: ecn, ae: ecn && config.offers_accurate_ecn, ..Flags::default() };
        header.options = HeaderOptions {
            // RFC 9293 MUST-14, SHLD-5, MAY-3: every SYN carries the MSS option.
            mss: Some(config.mss),
            window_scale: config.window_scaling.then_some(base.window_shift),
            sack_permitted: config.sack,
            timestamps: config.timestamps.then(|| base.timestamps(now, 0)),
            fast_open: fast_open.and_then(|syn| syn.option),
            ..HeaderOptions::default()
        };
        let mut segment = Segment::bare(header);
        if let Some(syn) = fast_open {
            if let Some(mss) = syn.mss {
                let mss = mss.min(config.mss).min(base.path_mss.unwrap_or(u16::MAX)).max(TCP_SEGMENT_BYTES_MIN);
                // RFC 6691: the options of the SYN reduce its data.
                let room = (usize::from(mss) + Header::default().header_bytes()).saturating_sub(header.header_bytes());
                self.data_bytes = u16::try_from(written.min(room)).unwrap_or(0);
                segment.payload = SendRange { seq: base.initial.seq + 1, len: u32::from(self.data_bytes) };
            }
            base.begin_active(self.data_bytes > 0);
        }
        Some(segment)
    }
}

/// SYN-RECEIVED: a SYN has arrived, and this side answers it by a SYN-ACK.
#[derive(Debug)]
pub(super) struct SynReceived {
    pub(super) peer: Peer,
    pub(super) attempt: Attempt,
    /// Number of bytes of data in this side's SYN, if both sides opened at once.
    data_bytes: u16,
    /// A Fast Open cookie for the first SYN-ACK. As in Linux, a retransmitted SYN-ACK has none.
    pub(super) cookie: Option<FastOpenOption>,
    acknowledgement_due: bool,
    challenged_at: Option<Instant>,
    pub(super) early: Option<Early>,
}

/// The text (payload) and the FIN that came with the peer's SYN.
#[derive(Debug, Clone, Copy)]
pub(super) struct Early {
    pub(super) seq: SeqNumber,
    pub(super) bytes: u16,
    pub(super) fin: bool,
}

/// The result of a segment that ends SYN-RECEIVED.
#[derive(Debug)]
pub(super) enum SynReceivedNext {
    /// The connection is open. The caller has to process the rest of the segment.
    Established(Agreed),
    Closed(Failure),
}

/// Returns whether a segment lies in the window of a connection that is opening (RFC 9293 section 3.10.7.4): its first or its last byte
/// does. A peer that has filled the window may number its segments by the right edge.
fn is_acceptable(header: &Header, payload_bytes: usize, first: SeqNumber, window: u32) -> bool {
    let last = header.seq + header.sequence_len(payload_bytes).saturating_sub(1);
    header.seq.since(first) <= window || last.since(first) <= window
}

impl SynReceived {
    pub(super) fn new(now: Instant, base: &Base, syn: &Header, passive: bool, arrived_with: IpEcn) -> Self {
        let ecn = EcnMode::of_syn(syn.flags, &base.config, passive);
        let config = &base.config;
        let retries = if passive { config.syn_ack_retries_max } else { config.syn_retries_max };
        let peer = Peer::new(syn, &base.config, ecn, arrived_with);
        let attempt = Attempt::new(now, retries, passive);
        let (acknowledgement_due, challenged_at) = (false, None);
        Self { peer, attempt, data_bytes: 0, cookie: None, acknowledgement_due, challenged_at, early: None }
    }

    /// Processes a segment according to RFC 9293 section 3.10.7.4.
    pub(super) fn handle_segment(
        &mut self,
        now: Instant,
        base: &mut Base,
        header: &Header,
        payload_bytes: usize,
    ) -> Result<SynReceivedNext, TcpDrop> {
        let (first, window) = (self.peer.irs + 1, u32::from(base.syn_window));
        let Flags { syn, rst, .. } = header.flags;
        // RFC 9293 section 3.10.7.4: SND.UNA < SEG.ACK =< SND.NXT.
        let acked =
            header.ack.map(|ack| ack.since(base.initial.seq + 1)).filter(|acked| *acked <= self.data_bytes.into());
        let completes = acked.is_some();
        if syn && header.seq == self.peer.irs && !rst {
            if !completes {
                // The peer sent its SYN again, so our SYN-ACK was probably lost and is sent again.
                self.attempt.due = true;
                // RFC 3168 section 6.1.1: the peer may have given up ECN because a path drops its offers.
                if !(header.flags.ece && header.flags.cwr) {
                    self.peer.ecn = EcnMode::Off;
                }
                return Err(TcpDrop::Duplicate);
            }
        } else if !is_acceptable(header, payload_bytes, first, window) {
            // Data is always answered, because the peer may not have received the earlier answer.
            let has_data = !syn && !rst && header.sequence_len(payload_bytes) > 0;
            self.acknowledgement_due |= has_data;
            self.challenge(now, !rst && !has_data);
            return Err(if rst { TcpDrop::ResetBlind } else { TcpDrop::OutOfWindow });
        } else if rst {
            // RFC 5961 section 3.2: a reset is valid only if its sequence number is exactly RCV.NXT. Any other reset in the
            // window gets a challenge ACK. A reset at the right edge is outside the window.
            if header.seq != first {
                self.challenge(now, header.seq.since(first) < window);
                return Err(TcpDrop::ResetBlind);
            }
            return Ok(SynReceivedNext::Closed(Failure::Refused));
        } else if syn {
            self.challenge(now, true);
            return Err(TcpDrop::SynInWindow);
        }
        self.check_timestamp(now, header)?;
        let Some(ack) = header.ack else { return Err(TcpDrop::NoAck) };
        let Some(acked) = acked else {
            base.answer_by_reset(ack, self.recent());
            return Err(TcpDrop::AckUnacceptable);
        };
        let (window, scale) = match (syn, self.peer.options.window_scale) {
            (true, _) | (false, None) => (u32::from(header.window), 0),
            (false, Some(shift)) => (u32::from(header.window), shift),
        };
        let (peer, attempt, window) = (self.peer, self.attempt, window << scale);
        let echo_rtt = base.echo_rtt(now, header).filter(|_| peer.options.timestamps.is_some());
        Ok(SynReceivedNext::Established(Agreed { peer, attempt, window, acked, answer: syn, echo_rtt }))
    }

    /// Stores the text and FIN of a SYN until the connection is open (RFC 9293 section 3.10.7.2). Both are acknowledged only when
    /// the connection is open, so the peer retransmits text that was not stored. Returns the position of the text in the receive
    /// buffer.
    pub(super) fn take_text(&mut self, base: &Base, segment: &Arrival<'_>) -> Option<Placement> {
        let header = segment.header;
        // The text of a SYN without a valid Fast Open cookie costs no memory (RFC 7413 section 4.2.2). The peer sends it again.
        let plain = header.options.fast_open.is_none();
        let syn = plain && header.flags.syn && !header.flags.rst && header.seq == self.peer.irs;
        if !syn || self.early.is_some() {
            return None;
        }
        let most = usize::from(TCP_SYN_TEXT_BYTES_MAX.min(base.syn_window));
        let bytes = segment.payload_bytes.min(most);
        let (bytes, fin) = (u16::try_from(bytes).unwrap_or(0), header.flags.fin && bytes == segment.payload_bytes);
        self.early = (bytes > 0 || fin).then_some(Early { seq: self.peer.irs + 1, bytes, fin });
        self.early.map(|early| Placement { from: 0, ahead: 0, len: u32::from(early.bytes) })
    }

    /// Checks that a segment carries a timestamp, and that this timestamp is not old (RFC 7323 sections 3.2 and 5.3).
    fn check_timestamp(&mut self, now: Instant, header: &Header) -> Result<(), TcpDrop> {
        let Some(recent) = self.peer.options.timestamps else { return Ok(()) };
        let Some(timestamps) = header.options.timestamps else { return Err(TcpDrop::TimestampMissing) };
        if SeqNumber(timestamps.value).before(SeqNumber(recent.value)) {
            self.challenge(now, true);
            return Err(TcpDrop::TimestampOld);
        }
        Ok(())
    }

    fn challenge(&mut self, now: Instant, wanted: bool) {
        if wanted && super::challenge_allowed(&mut self.challenged_at, now) {
            self.acknowledgement_due = true;
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Instant, base: &Base) -> Option<Header> {
        let (peer, ack) = (self.peer, self.peer.irs + 1);
        if self.attempt.due {
            self.attempt.sent(now);
            self.acknowledgement_due = false;
            return Some(peer.syn_ack(now, base, ack, base.syn_window, self.cookie.take(), self.attempt.retries));
        }
        if std::mem::take(&mut self.acknowledgement_due) {
            let shift = if peer.options.window_scale.is_some() { base.window_shift } else { 0 };
            let mut header = base.header(base.initial.seq + 1, Some(ack), base.syn_window >> shift);
            header.options.timestamps = peer.options.timestamps.map(|theirs| base.timestamps(now, theirs.value));
            return Some(header);
        }
        None
    }

    /// Returns the header of the reset with which this side ends the connection.
    pub(super) fn reset_header(&self, base: &Base) -> Header {
        base.reset_header(base.initial.seq + 1, Some(self.peer.irs + 1), self.recent())
    }

    /// Returns TS.Recent, if timestamps are in use.
    fn recent(&self) -> Option<u32> {
        self.peer.options.timestamps.map(|theirs| theirs.value)
    }
}

/// The result of the handshake, from which the open connection starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agreed {
    peer: Peer,
    attempt: Attempt,
    /// The peer's window in bytes.
    window: u32,
    /// Number of bytes of data in this side's SYN that the peer has acknowledged.
    pub(super) acked: u32,
    /// Whether the segment that completed the handshake carried a SYN, which has to be acknowledged immediately.
    answer: bool,
    /// The RTT according to the timestamp that the peer echoes.
    echo_rtt: Option<Duration>,
}

impl Agreed {
    /// Returns the start of a connection whose SYN had a valid Fast Open cookie. The window of a SYN is not scaled.
    pub(super) fn by_cookie(peer: Peer, attempt: Attempt) -> Self {
        Self { peer, attempt, window: u32::from(peer.window), acked: 0, answer: false, echo_rtt: None }
    }

    pub(super) fn open(&self, now: Instant, base: &Base) -> Synchronized {
        let Self { peer, attempt, window, .. } = self;
        let config = &base.config;
        let timestamps = peer.options.timestamps;
        // RFC 9293 MUST-15: for a peer whose SYN has no MSS option, the default MSS is assumed.
        let mss = peer.options.mss.unwrap_or(config.mss_default);
        let first = base.initial.seq + 1 + self.acked;
        let start = sender::Start {
            first,
            sizes: Sizes {
                probing: config.path_probing,
                peer: mss,
                device: config.mss,
                path: base.path_mss.unwrap_or(u16::MAX),
                floor: config.mss_default,
                timestamps: timestamps.is_some(),
            },
            // RFC 6298 section 5.7, RFC 6928 section 2: a SYN that was retransmitted more than once is a sign of congestion. The
            // initial window is then one segment.
            initial_window_segments: if attempt.retries > 1 { 1 } else { u32::from(config.initial_window_segments) },
            window: *window,
            window_max: (*window).max(if attempt.passive { 0 } else { peer.window.into() }),
            window_seq: peer.irs,
            scale: peer.options.window_scale.unwrap_or(0),
            sack: peer.options.sack_permitted,
            // RFC 3168 section 6.1.1: a host that has sent a SYN without ECN sends no ECT. It still echoes marks.
            ecn: peer.ecn != EcnMode::Off && !peer.is_mangled && (attempt.passive || attempt.offers_ecn()),
            no_delay: config.no_delay,
            corked: config.cork,
            reordering_segments: config.reordering_segments,
            tail_loss_probes: config.tail_loss_probes,
            slow_start_after_idle: config.slow_start_after_idle,
            opening_syns: if attempt.passive { 0 } else { attempt.retries.saturating_add(1) },
        };
        let mut snd = Sender::new(now, &start, config.congestion.control());
        snd.rtt = Rtt::new(config.min_rtt_life, config.rto_min);
        match (attempt.first_sent, self.echo_rtt) {
            (Some(sent), _) if !attempt.repeated => snd.rtt.sample(now, now.since(sent)),
            (Some(_), Some(rtt)) => snd.rtt.sample(now, rtt),
            (Some(_), None) => snd.rtt.lost_syn(),
            (None, _) => {}
        }
        let bytes = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let mut rcv = Receiver::new(
            now,
            &receiver::Start {
                first: peer.irs + 1,
                scale: if peer.options.window_scale.is_some() { base.window_shift } else { 0 },
                offered: base.syn_window,
                capacity: bytes(config.receive_buffer_bytes),
                capacity_max: bytes(config.receive_buffer_bytes_max),
                mss: segment_bytes(config.mss, timestamps.is_some()),
                sack: peer.options.sack_permitted,
                ecn: peer.ecn == EcnMode::Classic,
                recent: timestamps.map(|timestamps| timestamps.value),
                ack_delay_max: if config.quick_acks { Duration::ZERO } else { ack_timing::delay_max(config.rto_min) },
            },
        );
        if self.answer {
            rcv.ack = receiver::AckDue::Now;
        }
        if peer.ecn == EcnMode::Accurate {
            snd.extras_mut().accurate_ecn = Some(AccurateEcn::new(AccurateStart {
                answers: if attempt.passive { None } else { Some(peer.arrived_with) },
                options: peer.options.accurate_ecn.is_some(),
            }));
        }
        Synchronized::new(now, snd, rcv, timestamps.is_some())
    }
}
