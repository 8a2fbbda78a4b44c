//! NewReno: cwnd grows by one segment per round trip, and a loss halves it (RFC 5681 and 6582).

use super::{Algorithm, Window};
use crate::time::{Duration, Instant};

/// NewReno (RFC 5681 and 6582).
#[derive(Debug, Default)]
pub(in crate::tcp) struct NewReno {
    acked: u32,
}

impl Algorithm for NewReno {
    fn grow(&mut self, _: Instant, window: Window, acked: u32, _: Duration) -> u32 {
        // RFC 9293 MUST-19.
        // RFC 5681 section 3.1: cwnd grows by one segment for each window of bytes that was acknowledged.
        self.acked = self.acked.saturating_add(acked);
        if self.acked < window.bytes {
            return window.bytes;
        }
        self.acked -= window.bytes;
        self.acked = self.acked.min(window.bytes);
        window.bytes.saturating_add(window.segment_bytes)
    }

    fn reduce(&mut self, window: Window) -> u32 {
        self.acked = 0;
        (window.bytes / 2).max(2 * window.segment_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionControl;
    use super::super::tests::{MSS, rounds};
    use super::*;

    // RFC 9293 MUST-19.
    #[test]
    fn reno_grows_by_a_segment_each_round_trip_and_halves_on_loss() {
        let mut reno = CongestionControl::Reno.control();
        assert_eq!(rounds(&mut reno, 10 * MSS, 3), [11 * MSS, 12 * MSS, 13 * MSS]);
        assert_eq!(reno.algorithm().reduce(Window { bytes: 13 * MSS, segment_bytes: MSS }), 6_500);
    }
}
