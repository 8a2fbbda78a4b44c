//! The share of the log that one cause may write: a token bucket in lines and in bytes, and bytes of each file that it is sure of.

use crate::limits::{
    LOG_GUEST_BURST_BYTES, LOG_GUEST_BURST_LINES, LOG_GUEST_BYTES_MIN, LOG_GUEST_BYTES_PER_SECOND,
    LOG_GUEST_LINES_PER_SECOND, LOG_LEFT_OUT_INTERVAL,
};
use std::time::Instant;

/// Tokens that come back with time.
#[derive(Debug)]
struct Bucket {
    tokens: u64,
    per_second: u64,
    most: u64,
    filled: Instant,
}

impl Bucket {
    fn new(per_second: u64, most: u64, now: Instant) -> Self {
        Self { tokens: most, per_second, most, filled: now }
    }

    fn fill(&mut self, now: Instant) {
        let elapsed_ms = u64::try_from(now.saturating_duration_since(self.filled).as_millis()).unwrap_or(u64::MAX);
        let gained = elapsed_ms.saturating_mul(self.per_second) / 1_000;
        // Without a whole token the time goes on counting.
        if gained > 0 {
            (self.tokens, self.filled) = (self.tokens.saturating_add(gained).min(self.most), now);
        }
    }
}

/// Lines that were dropped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    /// How many.
    pub(super) lines: u64,
    /// When the count is to be written.
    due: Instant,
}

/// The share of one cause.
#[derive(Debug)]
pub(super) struct Share {
    lines: Bucket,
    bytes: Bucket,
    /// Bytes that it has taken of [`LOG_GUEST_BYTES_MIN`] in this file.
    own_bytes: u64,
    left: Option<Left>,
}

impl Share {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            lines: Bucket::new(LOG_GUEST_LINES_PER_SECOND, LOG_GUEST_BURST_LINES, now),
            bytes: Bucket::new(LOG_GUEST_BYTES_PER_SECOND, LOG_GUEST_BURST_BYTES, now),
            own_bytes: 0,
            left: None,
        }
    }

    /// Takes the tokens of a line, if there are enough.
    pub(super) fn allows(&mut self, length: u64, now: Instant) -> bool {
        self.lines.fill(now);
        self.bytes.fill(now);
        if self.lines.tokens == 0 || self.bytes.tokens < length {
            return false;
        }
        self.lines.tokens -= 1;
        self.bytes.tokens -= length;
        true
    }

    /// Takes room from the bytes that this cause is sure of.
    pub(super) fn take_own(&mut self, length: u64) -> bool {
        let fits = self.own_bytes + length <= LOG_GUEST_BYTES_MIN;
        if fits {
            self.own_bytes += length;
        }
        fits
    }

    /// A new file has begun.
    pub(super) fn renew(&mut self) {
        self.own_bytes = 0;
    }

    pub(super) fn leave_out(&mut self, now: Instant) {
        let left = self.left.get_or_insert(Left { lines: 0, due: now + LOG_LEFT_OUT_INTERVAL });
        left.lines = left.lines.saturating_add(1);
    }

    pub(super) fn left(&self) -> Option<Left> {
        self.left
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.left.map(|left| left.due)
    }

    /// The count of dropped lines was written, or found no room and is tried again.
    pub(super) fn wrote_left_out(&mut self, written: bool, now: Instant) {
        match &mut self.left {
            Some(left) if !written => left.due = now + LOG_LEFT_OUT_INTERVAL,
            left => *left = None,
        }
    }
}
