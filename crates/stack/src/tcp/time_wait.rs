//! TIME-WAIT: the remainder of a connection that this end closed first. It is small, so that a stack can store many.
//!
//! A connection in TIME-WAIT acknowledges a retransmitted FIN and ignores resets (RFC 1337). A SYN that is clearly newer may open
//! a connection in its place immediately (RFC 6191). A connection in TIME-WAIT has no buffers, and sends only answers to received
//! segments.

use super::connection::Ports;
use super::opening::Base;
use super::synchronized::Synchronized;
use crate::drops::TcpDrop;
use crate::limits::TCP_CHALLENGE_MS_MIN;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Header, SeqNumber, Timestamps};

/// A connection in TIME-WAIT.
#[derive(Debug, Clone, Copy)]
pub struct TimeWait {
    pub(super) ports: Ports,
    /// SND.NXT. A new connection that replaces this one begins with a higher sequence number.
    pub(crate) snd_nxt: SeqNumber,
    pub(super) rcv_nxt: SeqNumber,
    /// TS.Recent, if timestamps are in use.
    pub(super) recent: Option<u32>,
    pub(super) timestamp_offset: u32,
    pub(crate) lasts: Duration,
    pub(crate) until: Instant,
    /// No answer to a segment without data is sent before this time.
    pub(super) silent_until: Instant,
}

/// How a connection in TIME-WAIT responds to a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeWaitAnswer {
    /// The owner sends this acknowledgement.
    Acknowledge(Header),
    /// The SYN opens a new connection. The owner drops the connection in TIME-WAIT and accepts the SYN, with an initial sequence
    /// number after the number given here.
    TakeOver(SeqNumber),
}

impl TimeWait {
    /// Returns true if timestamps are in use. A new connection with the same addresses and ports may then open before TIME-WAIT
    /// ends.
    pub fn lets_follow(&self) -> bool {
        self.recent.is_some()
    }

    /// Returns true if a new connection with the same addresses and ports may open at `now`. This requires that the timestamps of
    /// the new connection are newer than all timestamps of this connection.
    pub fn is_followed_at(&self, now: Instant) -> bool {
        let last = self.until - self.lasts;
        self.lets_follow() && now.as_ns() / 1_000_000 > last.as_ns() / 1_000_000
    }

    /// Processes a segment (RFC 9293 section 3.10.7.4, RFC 6191 section 2).
    ///
    /// Returns an error if the segment gets no answer.
    pub fn handle_segment(
        &mut self,
        now: Instant,
        header: &Header,
        payload_bytes: usize,
    ) -> Result<TimeWaitAnswer, TcpDrop> {
        if header.flags.rst {
            return Err(TcpDrop::ResetInTimeWait);
        }
        if header.flags.syn && header.ack.is_none() && self.yields_to(header) {
            return Ok(TimeWaitAnswer::TakeOver(self.snd_nxt));
        }
        let end = header.seq + header.sequence_len(payload_bytes);
        if header.ack.is_none() && !header.flags.syn && end.at_or_after(self.rcv_nxt) {
            return Err(TcpDrop::NoAck);
        }
        let outdated = match (self.recent, header.options.timestamps) {
            (Some(recent), Some(Timestamps { value, .. })) => SeqNumber(value).before(SeqNumber(recent)),
            (Some(_) | None, _) => false,
        };
        if !outdated && header.flags.fin && end == self.rcv_nxt {
            self.until = now + self.lasts;
        }
        if !outdated && !header.flags.syn && header.sequence_len(payload_bytes) == 0 && header.seq == self.rcv_nxt {
            // RFC 7323 section 4.3: TS.Recent follows the peer's timestamps in each state.
            if let (Some(recent), Some(Timestamps { value, .. })) = (&mut self.recent, header.options.timestamps) {
                *recent = value;
            }
            return Err(TcpDrop::Duplicate);
        }
        // RFC 5961 section 7: answers are limited, because otherwise two hosts could answer each other forever. A segment with data
        // or FIN is always answered.
        if header.flags.syn || header.sequence_len(payload_bytes) == 0 {
            return Ok(TimeWaitAnswer::Acknowledge(self.challenge(now)?));
        }
        Ok(TimeWaitAnswer::Acknowledge(self.acknowledgement(now)))
    }

    /// Returns a challenge ACK (RFC 5961 section 4.2). The owner also sends it if a SYN may open a new connection, but no listener
    /// accepts connections.
    ///
    /// Returns an error if the limit of such answers is reached.
    pub fn challenge(&mut self, now: Instant) -> Result<Header, TcpDrop> {
        if now < self.silent_until {
            return Err(TcpDrop::OutOfWindow);
        }
        self.silent_until = now + Duration::from_millis(TCP_CHALLENGE_MS_MIN);
        Ok(self.acknowledgement(now))
    }

    /// Returns whether a SYN may open a new connection (RFC 6191 section 2). It may if its timestamp is newer or, if timestamps
    /// do not decide, if its sequence number comes after RCV.NXT.
    /// RFC 9293 SHLD-4, MAY-2.
    fn yields_to(&self, header: &Header) -> bool {
        match (self.recent, header.options.timestamps) {
            (Some(recent), Some(Timestamps { value, .. })) if value != recent => {
                SeqNumber(value).after(SeqNumber(recent))
            }
            (Some(_) | None, _) => header.seq.after(self.rcv_nxt),
        }
    }

    pub(super) fn acknowledgement(&self, now: Instant) -> Header {
        let mut header = Header {
            source_port: self.ports.local,
            destination_port: self.ports.remote,
            seq: self.snd_nxt,
            ack: Some(self.rcv_nxt),
            // The largest value is safe, because no data follows the peer's FIN. A smaller value could shrink a window that was
            // offered before.
            window: u16::MAX,
            ..Header::default()
        };
        header.options.timestamps =
            self.recent.map(|echo| Timestamps { value: super::timestamp(now, self.timestamp_offset), echo });
        header
    }
}

impl Synchronized {
    pub(super) fn time_wait(&self, now: Instant, base: &Base) -> TimeWait {
        TimeWait {
            ports: base.ports,
            snd_nxt: self.snd.nxt,
            rcv_nxt: self.rcv.nxt,
            recent: self.timestamps.then(|| self.rcv.recent()),
            timestamp_offset: base.initial.timestamp_offset,
            lasts: base.config.time_wait,
            // RFC 9293 MUST-13: TIME-WAIT lasts two maximum segment lifetimes (MSL).
            until: now + base.config.time_wait,
            silent_until: Instant::default(),
        }
    }

    /// Returns the acknowledgement with which TIME-WAIT begins. Like each one before, it reports congestion marks (RFC 3168 section
    /// 6.1.3, RFC 9768).
    pub(super) fn last_acknowledgement(&mut self, now: Instant, wait: &TimeWait) -> Header {
        let mut header = wait.acknowledgement(now);
        header.flags.ece = self.rcv.echo_congestion;
        self.snd.report_ecn(&mut header, true);
        header
    }
}
