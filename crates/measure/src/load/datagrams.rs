//! Streams of datagrams: the header of a datagram, and the receiver's view of a stream.
//!
//! A client asks for a stream with a datagram that consists of a header only. The server answers with datagrams that consist of a
//! header and stamps. The header names the trial with a random number, the pair, and the phase. So a datagram of an earlier trial or
//! phase, or of a stranger, is not counted as a part of this stream.

use super::content::{Direction, Message};
use siga_plan::limits::STREAM_DATAGRAM_BYTES_MIN;

/// Length of a header in bytes.
pub const HEADER_BYTES: usize = 32;
const _: () = assert!(HEADER_BYTES as u64 == STREAM_DATAGRAM_BYTES_MIN);

/// The header of a datagram. All numbers are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Random number of the trial.
    pub trial: u64,
    /// Number of the pair, counted over all processes of the trial.
    pub pair: u32,
    /// Number of the phase, from 1.
    pub phase: u32,
    /// Number of the datagram in its stream, from 0. It is 0 in a request.
    pub number: u64,
    /// Time at which the datagram was sent, in nanoseconds of the sender's monotonic clock. It is 0 in a request.
    pub sent_ns: u64,
}

impl Header {
    /// Returns the header as bytes.
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&self.trial.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.pair.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.phase.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sent_ns.to_le_bytes());
        bytes
    }

    /// Reads the header at the begin of a datagram. Returns `None` if the datagram is too short.
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_BYTES] = datagram.first_chunk()?;
        let [low, high, number, sent_ns] = std::array::from_fn(|word| {
            let mut one = [0; 8];
            one.copy_from_slice(&bytes[8 * word..8 * word + 8]);
            u64::from_le_bytes(one)
        });
        #[expect(clippy::cast_possible_truncation, reason = "the word contains two numbers of 32 bits")]
        let (pair, phase) = (high as u32, (high >> 32) as u32);
        Some(Self { trial: low, pair, phase, number, sent_ns })
    }

    /// Returns the content of the datagram after its header.
    pub fn content(&self) -> Message {
        let stream = (u64::from(self.pair) << 32) | u64::from(self.phase);
        Message { connection: self.trial ^ stream, number: self.number, direction: Direction::Response }
    }
}

/// Draws the number of a trial.
///
/// # Errors
/// Returns an error if the host provides no random numbers.
pub fn random_trial() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    // The kernel returns requests of up to 256 bytes completely (getrandom(2)).
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}

/// Number of datagrams before the newest one for which the receiver knows whether they have arrived.
const WINDOW: u64 = 1_024;
const WORDS: usize = 16;
const _: () = assert!(WORDS as u64 * 64 == WINDOW);

/// What is known about a datagram when it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It is the newest of its stream.
    New,
    /// A later datagram of the stream arrived before it (RFC 4737, type-P-reordered).
    Reordered,
    /// It has arrived before.
    Duplicate,
}

/// The datagrams of one stream that have arrived in a phase.
#[derive(Debug, Clone, Default)]
pub struct Arrivals {
    /// One more than the highest number that has arrived.
    next: u64,
    /// A bit for each of the last `WINDOW` numbers: whether the datagram has arrived.
    seen: [u64; WORDS],
    /// Difference between the times of arrival and of sending of the last datagram.
    transit_ns: Option<i64>,
    /// Interarrival jitter in nanoseconds. `None` until two datagrams have arrived.
    jitter_ns: Option<f64>,
}

impl Arrivals {
    /// Enters a datagram that arrived at `now_ns`. A datagram that is more than `WINDOW` older than the newest counts as reordered,
    /// because the receiver no longer knows whether it has arrived before.
    pub fn enter(&mut self, header: &Header, now_ns: u64) -> Arrival {
        let number = header.number;
        let arrival = if number >= self.next {
            let gap = (number - self.next).min(WINDOW);
            for skipped in (number - gap)..number {
                self.mark(skipped, false);
            }
            self.next = number.saturating_add(1);
            Arrival::New
        } else if self.next - number <= WINDOW && self.is_marked(number) {
            return Arrival::Duplicate;
        } else {
            Arrival::Reordered
        };
        if self.next - number <= WINDOW {
            self.mark(number, true);
        }
        self.measure_jitter(header.sent_ns, now_ns);
        arrival
    }

    /// Returns the number of the datagram that should arrive next.
    pub fn expected(&self) -> u64 {
        self.next
    }

    /// Returns the interarrival jitter in nanoseconds (RFC 3550, section 6.4.1). `None` if fewer than two datagrams have arrived.
    pub fn jitter_ns(&self) -> Option<f64> {
        self.jitter_ns
    }

    /// Enters how much longer or shorter a datagram was on its way than the one before. The offset between the clocks of the two
    /// hosts cancels out.
    fn measure_jitter(&mut self, sent_ns: u64, now_ns: u64) {
        let transit = now_ns.wrapping_sub(sent_ns).cast_signed();
        if let Some(last) = self.transit_ns.replace(transit) {
            let difference = transit.wrapping_sub(last).unsigned_abs() as f64;
            let jitter = self.jitter_ns.get_or_insert(0.0);
            *jitter += (difference - *jitter) / 16.0;
        }
    }

    fn mark(&mut self, number: u64, has_arrived: bool) {
        let (word, bit) = place(number);
        if has_arrived { self.seen[word] |= bit } else { self.seen[word] &= !bit }
    }

    fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.seen[word] & bit != 0
    }
}

/// Returns the word and the bit of a datagram in [`Arrivals::seen`].
fn place(number: u64) -> (usize, u64) {
    let at = number % WINDOW;
    (usize::try_from(at / 64).unwrap_or(0), 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn header(number: u64, sent_ns: u64) -> Header {
        Header { trial: 7, pair: 3, phase: 2, number, sent_ns }
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = Header { trial: u64::MAX - 1, pair: 9_999, phase: 5, number: 1 << 40, sent_ns: 123 };
        assert_eq!(Header::read(&header.bytes()), Some(header));
        assert_eq!(Header::read(&header.bytes()[..31]), None);
    }

    proptest! {
        #[test]
        fn each_datagram_counts_once(numbers in proptest::collection::vec(0_u64..900, 1..300)) {
            let (mut arrivals, mut seen, mut newest) = (Arrivals::default(), BTreeSet::new(), None);
            for number in numbers {
                let wanted = if !seen.insert(number) {
                    Arrival::Duplicate
                } else if newest > Some(number) {
                    Arrival::Reordered
                } else {
                    Arrival::New
                };
                prop_assert_eq!(arrivals.enter(&header(number, 0), 0), wanted, "{}", number);
                newest = newest.max(Some(number));
            }
        }
    }

    #[test]
    fn a_gap_longer_than_the_window_forgets_what_arrived_before() {
        let mut arrivals = Arrivals::default();
        for number in [0, 1, 2, 5_000] {
            assert_eq!(arrivals.enter(&header(number, 0), 0), Arrival::New);
        }
        assert_eq!(arrivals.enter(&header(4_999, 0), 0), Arrival::Reordered);
        assert_eq!(arrivals.enter(&header(4_999, 0), 0), Arrival::Duplicate);
        assert_eq!(arrivals.enter(&header(5_000, 0), 0), Arrival::Duplicate);
        assert_eq!(arrivals.enter(&header(2, 0), 0), Arrival::Reordered, "too old to know");
        assert_eq!(arrivals.enter(&header(u64::MAX, 0), 0), Arrival::New, "a hostile number does no harm");
    }

    #[test]
    fn jitter_is_the_smoothed_change_of_the_transit_time() {
        let mut steady = Arrivals::default();
        for number in 0..100 {
            steady.enter(&header(number, 1_000 * number), 1_000 * number + 500_000_000);
        }
        assert_eq!(steady.jitter_ns(), Some(0.0), "a constant offset of the clocks is no jitter");
        let mut alternating = Arrivals::default();
        for number in 0..1_000 {
            alternating.enter(&header(number, 1_000 * number), 1_000 * number + 320 * (number % 2));
        }
        let jitter = alternating.jitter_ns().unwrap();
        assert!((319.0..=320.0).contains(&jitter), "{jitter}");
    }
}
