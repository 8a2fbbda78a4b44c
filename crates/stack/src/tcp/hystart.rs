//! HyStart++ (RFC 9406): the first slow start ends when the RTT rises, before the queue in the network that causes the rise
//! overflows.
//!
//! One rise may be chance. Therefore cwnd first grows more slowly for some rounds (conservative slow start, CSS). If the RTT
//! falls again, cwnd grows at full speed again. Windows are in bytes. An acknowledgement of many segments grows cwnd by all its
//! bytes, without the limit L of the RFC, as in Linux.

use crate::time::Duration;
use crate::wire::tcp::SeqNumber;

/// MIN_RTT_THRESH and MAX_RTT_THRESH: bounds of the increase in RTT that counts as a rise.
const RISE_MIN: Duration = Duration::from_millis(4);
const RISE_MAX: Duration = Duration::from_millis(16);
/// MIN_RTT_DIVISOR: the RTT divided by this number is the increase that counts as a rise, within [`RISE_MIN`] and [`RISE_MAX`].
const RISE_DIVISOR: u32 = 8;
/// N_RTT_SAMPLE: RTT samples needed to judge a round.
const SAMPLES_MIN: u8 = 8;
/// CSS_GROWTH_DIVISOR: in CSS, the growth of cwnd is divided by this number.
const GROWTH_DIVISOR: u32 = 4;
/// CSS_ROUNDS: number of rounds of CSS after which slow start ends.
const ROUNDS_MAX: u8 = 5;

/// The part of an acknowledgement that slow start uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// SND.UNA after the acknowledgement.
    pub(super) una: SeqNumber,
    /// SND.NXT after the acknowledgement.
    pub(super) nxt: SeqNumber,
    /// RTT that the acknowledgement measured, if it measured one.
    pub(super) rtt: Option<Duration>,
}

/// The state of conservative slow start (CSS): the RTT has risen, perhaps by chance.
#[derive(Debug)]
struct Doubt {
    /// cssBaselineMinRtt: if a later RTT is lower, the rise was chance, and CSS ends.
    baseline: Duration,
    rounds: u8,
}

/// The minimum RTT of a round without a sample.
const NO_RTT: Duration = Duration::MAX;

/// The state of HyStart++ in the first slow start of a connection.
#[derive(Debug)]
pub(super) struct HyStart {
    /// windowEnd: the current round ends when this number is acknowledged.
    end: Option<SeqNumber>,
    samples: u8,
    /// lastRoundMinRTT. `least` is currentRoundMinRTT, and `samples` is rttSampleCount. Both are [`NO_RTT`] without a sample.
    last: Duration,
    least: Duration,
    doubt: Option<Box<Doubt>>,
}

impl Default for HyStart {
    fn default() -> Self {
        Self { end: None, samples: 0, last: NO_RTT, least: NO_RTT, doubt: None }
    }
}

impl HyStart {
    /// Returns by how many bytes cwnd grows after `acked` bytes were acknowledged, and whether slow start ends.
    pub(super) fn grow(&mut self, acked: u32, progress: &Progress) -> (u32, bool) {
        let end = *self.end.get_or_insert(progress.nxt);
        if let Some(rtt) = progress.rtt {
            self.least = self.least.min(rtt);
            self.samples = self.samples.saturating_add(1);
            self.judge();
        }
        let growth = if self.doubt.is_some() { acked / GROWTH_DIVISOR } else { acked };
        (growth, progress.una.at_or_after(end) && self.next_round(progress.nxt))
    }

    fn judge(&mut self) {
        if self.samples < SAMPLES_MIN {
            return;
        }
        let (last, least) = (self.last, self.least);
        match &self.doubt {
            Some(doubt) if least < doubt.baseline => self.doubt = None,
            None if last != NO_RTT && least >= last + (last / RISE_DIVISOR).clamp(RISE_MIN, RISE_MAX) => {
                self.doubt = Some(Box::new(Doubt { baseline: least, rounds: 0 }));
            }
            Some(_) | None => {}
        }
    }

    /// Ends a round. Returns true if it was the last round of slow start.
    fn next_round(&mut self, nxt: SeqNumber) -> bool {
        self.end = Some(nxt);
        self.last = std::mem::replace(&mut self.least, NO_RTT);
        self.samples = 0;
        let Some(doubt) = &mut self.doubt else { return false };
        doubt.rounds += 1;
        doubt.rounds >= ROUNDS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One round of `count` acknowledgements of 1,000 bytes. Returns the growth, and whether slow start ended.
    fn round(start: &mut HyStart, at: &mut u32, count: u32, rtt_ms: u64) -> (u32, bool) {
        let first = *at;
        let (mut grown, mut over) = (0, false);
        for place in 1..=count {
            *at = first + place * 1_000;
            // Data sent in a round is acknowledged in the next one.
            let nxt = SeqNumber(first + count * 1_000 + place * 1_000);
            let progress = Progress { una: SeqNumber(*at), nxt, rtt: Some(Duration::from_millis(rtt_ms)) };
            let (growth, ended) = start.grow(1_000, &progress);
            grown += growth;
            over |= ended;
        }
        (grown, over)
    }

    /// A slow start whose first round took 40 ms.
    fn begun() -> (HyStart, u32) {
        let (mut start, mut at) = (HyStart { end: Some(SeqNumber(16_000)), ..HyStart::default() }, 0);
        assert_eq!(round(&mut start, &mut at, 16, 40), (16_000, false));
        (start, at)
    }

    #[test]
    fn hystart_slows_growth_when_round_trips_rise_and_ends_slow_start_five_rounds_later() {
        let (mut start, mut at) = begun();
        // An eighth of 40 ms is 5 ms. Seven samples are too few to judge.
        assert_eq!(round(&mut start, &mut at, 16, 45), (7 * 1_000 + 9 * 250, false));
        for _ in 0..3 {
            assert_eq!(round(&mut start, &mut at, 16, 45), (4_000, false));
        }
        assert_eq!(round(&mut start, &mut at, 16, 45), (4_000, true));
    }

    #[test]
    fn hystart_resumes_slow_start_when_round_trips_fall_again() {
        let (mut start, mut at) = begun();
        round(&mut start, &mut at, 16, 60);
        assert_eq!(round(&mut start, &mut at, 16, 59), (7 * 250 + 9 * 1_000, false));
        for _ in 0..10 {
            assert_eq!(round(&mut start, &mut at, 16, 60), (16_000, false));
        }
    }

    #[test]
    fn hystart_ignores_a_small_rise_and_a_rise_in_few_samples() {
        let (mut start, mut at) = begun();
        for rtt in [44, 48, 53, 59] {
            assert_eq!(round(&mut start, &mut at, 16, rtt), (16_000, false), "less than an eighth");
        }
        let (mut start, mut at) = begun();
        assert_eq!(round(&mut start, &mut at, 7, 400), (7_000, false));
    }
}
