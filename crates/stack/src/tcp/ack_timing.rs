//! When received data is acknowledged: at once, when the application has read it, or after a delay. The rules are those of Linux.
//!
//! - The first segments of a connection, and those after a pause, are acknowledged at once, because the sender's cwnd is then small.
//! - If the application answers soon after data arrives, the connection is *interactive*. Its answers carry the acknowledgements.
//! - On other connections, a small segment is acknowledged when the application has emptied the receive buffer, because a sender
//!   with Nagle's algorithm waits for this acknowledgement.
//! - Every other acknowledgement is delayed for the time in which an answer of the application is expected.

use super::rtt::Rtt;
use crate::time::{Duration, Instant};

/// Smallest time in which an answer is expected (`TCP_ATO_MIN`), in milliseconds and as a duration.
const ANSWER_MS_MIN: u16 = 40;
const ANSWER_TIME_MIN: Duration = Duration::from_millis(ANSWER_MS_MIN as u64);
/// Longest delay of an acknowledgement (`TCP_DELACK_MAX`).
/// RFC 9293 MUST-40.
const DELAY_MS_MAX: u8 = 200;
/// Maximum number of segments that are acknowledged at once at the start of a connection and after a pause.
const QUICK_MAX: u8 = 16;
/// The same after a sign of congestion.
const QUICK_AFTER_CONGESTION: u8 = 2;
/// A segment with this number of bytes behind its IP header may be a full one, even if the peer has sent larger ones.
const FULL_BYTES_MIN: u32 = 536 + HEADER_BYTES;
/// The same for a segment without PSH.
const FULL_WITHOUT_PUSH_BYTES_MIN: u32 = 88 + HEADER_BYTES;
/// Length of a TCP header without options, and of the timestamps option.
const HEADER_BYTES: u32 = 20;
const TIMESTAMPS_BYTES: u32 = 12;

/// How many small segments, or full segments with PSH, have arrived since the last acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pushed {
    Never,
    Once,
    /// At least two small segments.
    Again,
}

/// A segment with data that was next in order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrived {
    pub(super) at: Instant,
    pub(super) len: u32,
    pub(super) push: bool,
    /// Whether the connection uses timestamps.
    pub(super) timestamps: bool,
    /// The window that the last acknowledgement offered.
    pub(super) window: u32,
}

#[derive(Debug)]
pub(super) struct AckTiming {
    /// When data in order arrived last, or when the connection opened.
    pub(super) last_arrival: Instant,
    /// Estimate of the payload of the peer's full segments in bytes.
    pub(super) segment_bytes: u32,
    /// Largest payload of a segment.
    mss: u32,
    /// Payload of the last segment, if it was shorter than `segment_bytes` but may have been a full one; otherwise 0.
    last_shorter: u16,
    /// The time in which an answer of the application is expected, in milliseconds. 0 until the first data arrives.
    answer_ms: u16,
    /// Longest delay of an acknowledgement, in milliseconds. With 0, each segment with data is acknowledged at once.
    delay_ms_max: u8,
    /// Number of acknowledgements that are sent at once.
    quick: u8,
    /// Whether the application answers received data (ping-pong mode in Linux).
    interactive: bool,
    pushed: Pushed,
}

/// Returns the longest delay of an acknowledgement for this minimum of the RTO. As in Linux, it is shorter than this minimum, because
/// a peer with the same setting would otherwise retransmit before the acknowledgement arrives.
pub(super) fn delay_max(rto_min: Duration) -> Duration {
    Duration::from_millis(DELAY_MS_MAX.into()).min(rto_min - Duration::from_millis(1))
}

fn millis(time: Duration) -> u16 {
    u16::try_from(time.as_millis()).unwrap_or(u16::MAX)
}

impl AckTiming {
    pub(super) fn new(now: Instant, mss: u32, delay_max: Duration) -> Self {
        Self {
            last_arrival: now,
            segment_bytes: mss.min(536),
            mss,
            last_shorter: 0,
            answer_ms: 0,
            delay_ms_max: u8::try_from(delay_max.as_millis()).unwrap_or(DELAY_MS_MAX),
            quick: 0,
            interactive: false,
            pushed: Pushed::Never,
        }
    }

    /// Returns the estimate of the time in which an answer is expected, or 0 before the first data.
    pub(super) fn answer_estimate(&self) -> Duration {
        Duration::from_millis(self.answer_ms.into())
    }

    /// Returns the time in which an answer of the application is expected. Before the first data, this is the smallest time, so that
    /// a connection whose application writes first is interactive.
    #[inline]
    pub(super) fn answer_time(&self) -> Duration {
        Duration::from_millis(self.answer_ms.max(ANSWER_MS_MIN).into())
    }

    /// Updates the estimates when data in order has arrived.
    #[inline]
    pub(super) fn note_arrival(&mut self, arrived: &Arrived, rtt: &Rtt) {
        self.measure_segment(arrived);
        let gap = arrived.at.since(self.last_arrival);
        self.last_arrival = arrived.at;
        if self.answer_ms != 0 && gap <= ANSWER_TIME_MIN / 2 {
            self.answer_ms = self.answer_ms / 2 + ANSWER_MS_MIN / 2;
        } else {
            self.note_pause(gap, arrived.window, rtt);
        }
    }

    /// Updates the estimates when the first data, or data after a gap in time, has arrived. This function is not inlined, because
    /// in a fast exchange it is never called.
    #[inline(never)]
    fn note_pause(&mut self, gap: Duration, window: u32, rtt: &Rtt) {
        let timeout = rtt.timeout(0);
        if self.answer_ms == 0 {
            self.answer_ms = ANSWER_MS_MIN;
            self.quicken(window);
            // What the application wrote first was no request that the peer answers soon.
            self.interactive &= gap <= timeout;
        } else if gap < self.answer_time() {
            self.answer_ms = (self.answer_ms / 2).saturating_add(millis(gap)).min(millis(timeout));
        } else if gap > timeout {
            self.quicken(window);
        }
    }

    /// Lets acknowledgements be sent at once for about half of the window.
    fn quicken(&mut self, window: u32) {
        self.quicken_up_to(window, QUICK_MAX);
    }

    fn quicken_up_to(&mut self, window: u32, most: u8) {
        // As in Linux, a window of less than two segments has two of them.
        let segments = match window / (2 * self.segment_bytes.max(1)) {
            0 => 2,
            some => some.min(most.into()),
        };
        self.quick = self.quick.max(u8::try_from(segments).unwrap_or(most));
    }

    /// Acknowledges the next two segments at once, because the peer's cwnd is probably small.
    pub(super) fn note_congestion(&mut self, window: u32) {
        self.quicken_up_to(window, QUICK_AFTER_CONGESTION);
        (self.interactive, self.answer_ms) = (false, ANSWER_MS_MIN);
    }

    /// Acknowledges the next segments at once, because the peer has repeated data.
    pub(super) fn repeated(&mut self, window: u32) {
        self.quicken(window);
        (self.interactive, self.answer_ms) = (false, ANSWER_MS_MIN);
    }

    #[inline]
    fn measure_segment(&mut self, arrived: &Arrived) {
        let last_shorter = std::mem::take(&mut self.last_shorter);
        if arrived.len >= self.segment_bytes {
            self.segment_bytes = arrived.len.min(self.mss);
            // The sender of a full segment with PSH may have nothing more to send.
            if arrived.push && self.pushed == Pushed::Never {
                self.pushed = Pushed::Once;
            }
            return;
        }
        let bytes = arrived.len + HEADER_BYTES + if arrived.timestamps { TIMESTAMPS_BYTES } else { 0 };
        if bytes >= FULL_BYTES_MIN || bytes >= FULL_WITHOUT_PUSH_BYTES_MIN && !arrived.push {
            self.last_shorter = u16::try_from(arrived.len).unwrap_or(0);
            // Two such segments of one length are full ones.
            if self.last_shorter == last_shorter {
                self.segment_bytes = arrived.len;
                return;
            }
        }
        self.pushed = if self.pushed == Pushed::Never { Pushed::Once } else { Pushed::Again };
    }

    /// Returns whether an arrival is acknowledged at once. `pending` is the number of bytes that are not acknowledged.
    /// RFC 9293 SHLD-19.
    #[inline]
    pub(super) fn acknowledges_at_once(&self, pending: u32) -> bool {
        pending > self.segment_bytes || self.quick > 0 && !self.interactive || self.delay_ms_max == 0
    }

    /// Returns whether bytes that are not acknowledged yet are acknowledged now that the application has read all received bytes.
    #[inline]
    pub(super) fn acknowledges_read(&self) -> bool {
        match self.pushed {
            Pushed::Never => false,
            Pushed::Once => !self.interactive,
            Pushed::Again => true,
        }
    }

    /// Returns when a delayed acknowledgement is due. `due` is when the one that is already delayed is due. Returns `None` if the
    /// acknowledgement is due at once, because `due` is near.
    /// RFC 9293 SHLD-18.
    #[inline]
    pub(super) fn delay(&self, now: Instant, due: Option<Instant>, rtt: &Rtt) -> Option<Instant> {
        let is_usual = self.answer_ms <= ANSWER_MS_MIN && u16::from(self.delay_ms_max) >= ANSWER_MS_MIN;
        let delay = if is_usual { ANSWER_TIME_MIN } else { self.unusual_delay(rtt) };
        match due {
            Some(due) if due <= now + delay / 4 => None,
            Some(due) => Some(due.min(now + delay)),
            None => Some(now + delay),
        }
    }

    #[inline(never)]
    fn unusual_delay(&self, rtt: &Rtt) -> Duration {
        let round_trip = rtt.smoothed().map_or(Duration::MAX, |rtt| rtt.max(ANSWER_TIME_MIN));
        self.answer_time().min(round_trip).min(Duration::from_millis(self.delay_ms_max.into()))
    }

    /// Records that the delay of an acknowledgement has expired before the application has answered.
    pub(super) fn expire(&mut self, rtt: &Rtt) {
        self.answer_ms = if std::mem::take(&mut self.interactive) {
            ANSWER_MS_MIN
        } else {
            self.answer_ms.saturating_mul(2).min(millis(rtt.timeout(0)))
        };
    }

    /// Records that an acknowledgement was sent. `is_due` is true if it acknowledges something new. Data that is sent soon after an
    /// arrival counts as an answer of the application.
    #[inline]
    pub(super) fn acknowledged(&mut self, now: Instant, is_due: bool, with_data: bool) {
        if self.quick > 0 && is_due {
            self.quick -= 1;
            if self.quick == 0 {
                self.answer_ms = ANSWER_MS_MIN;
            }
        }
        if with_data && !self.interactive {
            self.interactive = now.since(self.last_arrival) < self.answer_time();
        }
        self.pushed = Pushed::Never;
    }
}
