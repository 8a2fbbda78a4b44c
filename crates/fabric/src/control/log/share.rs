//! The share of the log that one cause may write: a rate of lines and of bytes, and bytes reserved for it in each file.

use crate::control::token_bucket::TokenBucket;
use crate::limits::{
    LOG_GUEST_BURST_BYTES, LOG_GUEST_BURST_LINES, LOG_GUEST_BYTES_MIN, LOG_GUEST_BYTES_PER_SECOND,
    LOG_GUEST_LINES_PER_SECOND, LOG_LEFT_OUT_INTERVAL,
};
use std::time::Instant;

/// Lines of a cause that were left out.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeftOut {
    /// How many.
    pub(super) lines: u64,
    /// When the count is to be written.
    due: Instant,
}

/// The share of one cause.
#[derive(Debug)]
pub(super) struct Share {
    lines: TokenBucket,
    bytes: TokenBucket,
    /// Bytes of this file that it has used of its reserve, [`LOG_GUEST_BYTES_MIN`].
    reserve_used_bytes: u64,
    left_out: Option<LeftOut>,
}

impl Share {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            lines: TokenBucket::new(LOG_GUEST_BURST_LINES, LOG_GUEST_LINES_PER_SECOND, now),
            bytes: TokenBucket::new(LOG_GUEST_BURST_BYTES, LOG_GUEST_BYTES_PER_SECOND, now),
            reserve_used_bytes: 0,
            left_out: None,
        }
    }

    /// Takes the tokens of a line, if there are enough.
    pub(super) fn allows(&mut self, length: u64, now: Instant) -> bool {
        self.bytes.has(length, now) && self.lines.take(1, now) && self.bytes.take(length, now)
    }

    /// Takes room for a line from the bytes reserved for this cause, if they suffice.
    pub(super) fn take_reserve(&mut self, length: u64) -> bool {
        let fits = self.reserve_used_bytes + length <= LOG_GUEST_BYTES_MIN;
        if fits {
            self.reserve_used_bytes += length;
        }
        fits
    }

    /// A new file has begun.
    pub(super) fn renew(&mut self) {
        self.reserve_used_bytes = 0;
    }

    pub(super) fn leave_out(&mut self, now: Instant) {
        let due = now + LOG_LEFT_OUT_INTERVAL;
        let left_out = self.left_out.get_or_insert(LeftOut { lines: 0, due });
        left_out.lines = left_out.lines.saturating_add(1);
    }

    pub(super) fn left_out(&self) -> Option<LeftOut> {
        self.left_out
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.left_out.map(|left_out| left_out.due)
    }

    /// The count of lines that were left out was written, or found no room and is tried again.
    pub(super) fn wrote_left_out(&mut self, written: bool, now: Instant) {
        match &mut self.left_out {
            Some(left_out) if !written => left_out.due = now + LOG_LEFT_OUT_INTERVAL,
            left_out => *left_out = None,
        }
    }
}
