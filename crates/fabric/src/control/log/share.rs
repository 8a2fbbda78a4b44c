//! The share of the log that one cause (a guest, or all clients together) may use. The share is a rate of lines, a rate of bytes,
//! and a reserve of bytes in each log file.

use crate::control::token_bucket::TokenBucket;
use crate::limits::{
    LOG_GUEST_BURST_BYTES, LOG_GUEST_BURST_LINES, LOG_GUEST_BYTES_MIN, LOG_GUEST_BYTES_PER_SECOND,
    LOG_GUEST_LINES_PER_SECOND, LOG_LEFT_OUT_INTERVAL,
};
use std::time::Instant;

/// The count of omitted lines of one cause that the log does not show yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeftOut {
    /// The number of omitted lines.
    pub(super) lines: u64,
    /// The time at which the number is to be written to the log.
    due: Instant,
}

/// The share of one cause.
#[derive(Debug)]
pub(super) struct Share {
    lines: TokenBucket,
    bytes: TokenBucket,
    /// Bytes that the cause has used from its reserve in the current log file. The reserve is [`LOG_GUEST_BYTES_MIN`].
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

    /// Removes the tokens for a line of `length` bytes from both buckets and returns true. If one has too few, removes none and
    /// returns false.
    pub(super) fn allows(&mut self, length: u64, now: Instant) -> bool {
        self.bytes.has(length, now) && self.lines.take(1, now) && self.bytes.take(length, now)
    }

    /// Takes the bytes of a line from the reserve of this cause and returns true. If the reserve has too few, takes none and
    /// returns false.
    pub(super) fn take_reserve(&mut self, length: u64) -> bool {
        let fits = self.reserve_used_bytes + length <= LOG_GUEST_BYTES_MIN;
        if fits {
            self.reserve_used_bytes += length;
        }
        fits
    }

    /// Restores the full reserve, because a new log file has begun.
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

    /// Records whether the count of omitted lines was `written` when it was due. If the log had no room for it, the count is due
    /// again later.
    pub(super) fn wrote_left_out(&mut self, written: bool, now: Instant) {
        match &mut self.left_out {
            Some(left_out) if !written => left_out.due = now + LOG_LEFT_OUT_INTERVAL,
            left_out => *left_out = None,
        }
    }
}
