//! Congestion control: how cwnd grows without loss, and how far a loss reduces it.
//!
//! Loss recovery (PRR) and the retransmission timeout belong to the sender and are the same for all algorithms. The arithmetic
//! uses integers (bytes and milliseconds) instead of floating point, so that every machine computes the same values.

use super::hystart::HyStart;
pub(super) use super::hystart::Progress;
use crate::time::{Duration, Instant};

/// An algorithm with its state for one connection.
pub(super) trait Algorithm {
    /// Returns cwnd after `acked` more bytes were acknowledged in the first slow start, and whether slow start ends.
    fn start(&mut self, window: Window, acked: u32, _: &Progress) -> (u32, bool) {
        (window.bytes.saturating_add(acked), false)
    }
    /// Returns cwnd after `acked` more bytes were acknowledged in congestion avoidance.
    fn grow(&mut self, now: Instant, window: Window, acked: u32, rtt: Duration) -> u32;
    /// Returns the new ssthresh after a loss, a congestion mark (ECN) or a timeout (RFC 5681 equation 4).
    fn reduce(&mut self, window: Window) -> u32;
    /// Restores the state before the latest reduction, because that reduction was spurious.
    fn undo(&mut self) {}
    /// Records that the application had nothing to send for `time`. This time must not count as time in which cwnd can grow.
    fn idle(&mut self, _time: Duration) {}
}

/// The sender's cwnd, and the payload of a full segment. Both are in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) bytes: u32,
    pub(super) segment_bytes: u32,
}

/// The available congestion control algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CongestionControl {
    /// NewReno (RFC 5681, RFC 6582).
    Reno,
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
}

impl CongestionControl {
    /// All available algorithms.
    pub const ALL: [Self; 2] = [Self::Reno, Self::Cubic];

    /// Returns the algorithm with this name, if there is one.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|control| control.name() == name)
    }

    /// Returns the name of the algorithm, as Linux spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
        }
    }

    /// Returns the state of the algorithm at the start of a connection.
    pub(super) fn control(self) -> Control {
        match self {
            Self::Reno => Control::Reno(NewReno::default()),
            Self::Cubic => Control::Cubic(Cubic::default()),
        }
    }
}

/// The algorithm of a connection with its state. This is an enum instead of a boxed trait object, so that it needs no allocation of
/// its own.
#[derive(Debug)]
pub(super) enum Control {
    Reno(NewReno),
    Cubic(Cubic),
}

impl Control {
    pub(super) fn algorithm(&mut self) -> &mut dyn Algorithm {
        match self {
            Self::Reno(reno) => reno,
            Self::Cubic(cubic) => cubic,
        }
    }

    pub(super) fn kind(&self) -> CongestionControl {
        match self {
            Self::Reno(_) => CongestionControl::Reno,
            Self::Cubic(_) => CongestionControl::Cubic,
        }
    }
}

fn mul_div(value: u32, by: u64, over: u64) -> u32 {
    u32::try_from(u64::from(value) * by / over.max(1)).unwrap_or(u32::MAX)
}

/// NewReno (RFC 5681 and 6582).
#[derive(Debug, Default)]
pub(super) struct NewReno {
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

/// CUBIC (RFC 9438), with HyStart++ (RFC 9406) for the first slow start.
/// RFC 9293 MAY-18.
#[derive(Debug, Default)]
pub(super) struct Cubic {
    start: HyStart,
    /// W_max in bytes: cwnd before the latest reduction, or less after fast convergence.
    max: u32,
    /// The current epoch of congestion avoidance. `None` between a reduction and the next growth.
    epoch: Option<Epoch>,
    /// `max` and `epoch` before the latest reduction, for `undo` (RFC 9438 section 4.9).
    prior: (u32, Option<Epoch>),
}

#[derive(Debug)]
struct Epoch {
    start: Instant,
    /// K: time in milliseconds from `start` until cwnd is back at W_max.
    k_ms: u64,
    /// cwnd in bytes at the plateau of the cubic curve.
    origin: u32,
    /// W_est: the cwnd that NewReno would have, in bytes.
    friendly: u32,
    /// cwnd_prior: once W_est has reached this value, it grows as fast as the cwnd of NewReno.
    prior: u32,
}

impl Epoch {
    fn new(now: Instant, window: Window, max: u32) -> Self {
        let missing = u128::from(max.saturating_sub(window.bytes));
        // K^3 = (W_max - cwnd) / C, with C = 0.4, the windows in segments and K in seconds. `cube` is K^3 with K in milliseconds.
        let cube = missing * 2_500_000_000 / u128::from(window.segment_bytes.max(1));
        let origin = max.max(window.bytes);
        Self { start: now, k_ms: cube_root(cube), origin, friendly: window.bytes, prior: max }
    }

    /// Returns W_cubic(t) in bytes, for the time `time` since the start of the epoch.
    fn at(&self, time: Duration, segment_bytes: u32) -> u32 {
        let t = time.as_millis();
        let distance = u128::from(t.abs_diff(self.k_ms).min(1_000_000));
        let change = distance.pow(3) * u128::from(segment_bytes) * 4 / 10_000_000_000;
        let change = u32::try_from(change).unwrap_or(u32::MAX);
        if t < self.k_ms { self.origin.saturating_sub(change) } else { self.origin.saturating_add(change) }
    }
}

impl Algorithm for Cubic {
    fn start(&mut self, window: Window, acked: u32, progress: &Progress) -> (u32, bool) {
        let (growth, over) = self.start.grow(acked, progress);
        (window.bytes.saturating_add(growth), over)
    }

    fn grow(&mut self, now: Instant, window: Window, acked: u32, rtt: Duration) -> u32 {
        let max = self.max;
        let epoch = self.epoch.get_or_insert_with(|| Epoch::new(now, window, max));
        let time = now.since(epoch.start);
        // RFC 9438 section 4.3: alpha = 3 (1 - 0.7) / (1 + 0.7) = 9/17 until W_est reaches cwnd_prior, and 1 from then on.
        let (alpha, over) = if epoch.friendly < epoch.prior { (9, 17) } else { (1, 1) };
        let share = u64::from(window.segment_bytes) * alpha;
        epoch.friendly = epoch.friendly.saturating_add(mul_div(acked, share, u64::from(window.bytes) * over));
        if epoch.at(time, window.segment_bytes) < epoch.friendly {
            return window.bytes.max(epoch.friendly);
        }
        let target = epoch.at(time + rtt, window.segment_bytes);
        let target = target.clamp(window.bytes, window.bytes.saturating_add(window.bytes / 2));
        let step = mul_div(target - window.bytes, u64::from(acked), u64::from(window.bytes));
        window.bytes.saturating_add(step)
    }

    fn reduce(&mut self, window: Window) -> u32 {
        self.prior = (self.max, self.epoch.take());
        // RFC 9438 section 4.7: fast convergence. If cwnd had not reached W_max again, W_max is reduced further, which leaves
        // bandwidth to new connections.
        self.max = if window.bytes < self.max { mul_div(window.bytes, 17, 20) } else { window.bytes };
        mul_div(window.bytes, 7, 10).max(2 * window.segment_bytes)
    }

    fn undo(&mut self) {
        (self.max, self.epoch) = std::mem::take(&mut self.prior);
    }

    fn idle(&mut self, time: Duration) {
        self.start = HyStart::default();
        if let Some(epoch) = &mut self.epoch {
            epoch.start += time;
        }
    }
}

/// Returns the largest whole number whose cube is at most `of`.
fn cube_root(of: u128) -> u64 {
    let (mut low, mut high) = (0_u64, 1 << 40);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if u128::from(middle).pow(3) <= of { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;

    /// Windows after each round trip of 100 ms.
    fn rounds(control: &mut Control, mut bytes: u32, count: u32) -> Vec<u32> {
        let rtt = Duration::from_millis(100);
        (0..count)
            .map(|round| {
                let now = Instant::default() + rtt * round;
                for _ in 0..bytes / MSS {
                    bytes = control.algorithm().grow(now, Window { bytes, segment_bytes: MSS }, MSS, rtt);
                }
                bytes
            })
            .collect()
    }

    // RFC 9293 MUST-19.
    #[test]
    fn reno_grows_by_a_segment_each_round_trip_and_halves_on_loss() {
        let mut reno = CongestionControl::Reno.control();
        assert_eq!(rounds(&mut reno, 10 * MSS, 3), [11 * MSS, 12 * MSS, 13 * MSS]);
        assert_eq!(reno.algorithm().reduce(Window { bytes: 13 * MSS, segment_bytes: MSS }), 6_500);
    }

    // RFC 5681 equation 4.
    #[test]
    fn no_reduction_sets_the_congestion_window_below_two_segments() {
        for choice in CongestionControl::ALL {
            let reduced = choice.control().algorithm().reduce(Window { bytes: MSS, segment_bytes: MSS });
            assert_eq!(reduced, 2 * MSS, "{choice:?}");
        }
    }

    // RFC 9293 MAY-18.
    #[test]
    fn cubic_reaches_its_plateau_again_after_k_seconds_and_then_probes() {
        let mut cubic = CongestionControl::Cubic.control();
        let start = cubic.algorithm().reduce(Window { bytes: 1_000 * MSS, segment_bytes: MSS });
        assert_eq!(start, 700 * MSS);
        // K = cbrt(300 / 0.4) = 9.09 s.
        let windows = rounds(&mut cubic, start, 150);
        let near = |round: usize, segments: u32| windows[round].abs_diff(segments * MSS) < 8 * MSS;
        assert!(near(90, 1_000), "{}", windows[90]);
        assert!(windows[60] > 980 * MSS && windows[60] < 1_000 * MSS, "concave: {}", windows[60]);
        // 0.4 * (14.9 + 0.1 - 9.09)^3 = 83 segments above.
        assert!(near(149, 1_083), "convex: {}", windows[149]);
    }

    #[test]
    fn cubic_is_never_slower_than_reno_on_a_short_path() {
        let mut cubic = CongestionControl::Cubic.control();
        let start = cubic.algorithm().reduce(Window { bytes: 20 * MSS, segment_bytes: MSS });
        let windows = rounds(&mut cubic, start, 20);
        assert!(windows[19] >= start + 10 * MSS, "{}", windows[19]);
    }

    // RFC 9438 section 4.3.
    #[test]
    fn cubic_grows_at_nine_seventeenths_of_reno_until_its_old_window_and_then_as_reno() {
        let mut cubic = CongestionControl::Cubic.control();
        let start = cubic.algorithm().reduce(Window { bytes: 20 * MSS, segment_bytes: MSS });
        let windows = rounds(&mut cubic, start, 40);
        let steps: Vec<u32> = windows.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(steps[..10].iter().all(|step| (470..=540).contains(step)), "{windows:?}");
        assert!(windows[11] > 20 * MSS && steps[12..].iter().all(|step| (890..=1_000).contains(step)), "{windows:?}");
    }

    // RFC 9438 section 4.7.
    #[test]
    fn cubic_fast_convergence_lowers_the_plateau_after_a_loss_below_it() {
        let mut cubic = CongestionControl::Cubic.control();
        cubic.algorithm().reduce(Window { bytes: 1_000 * MSS, segment_bytes: MSS });
        let start = cubic.algorithm().reduce(Window { bytes: 900 * MSS, segment_bytes: MSS });
        assert_eq!(start, 630 * MSS);
        // K = cbrt((765 - 630) / 0.4) = 6.96 s.
        let windows = rounds(&mut cubic, start, 100);
        assert!(windows[69].abs_diff(765 * MSS) < 3 * MSS, "{}", windows[69]);
        // A window as large as W_max starts no fast convergence: the plateau stays.
        let start = cubic.algorithm().reduce(Window { bytes: 765 * MSS, segment_bytes: MSS });
        assert_eq!(start, mul_div(765 * MSS, 7, 10));
        let windows = rounds(&mut cubic, start, 100);
        assert!(windows[83].abs_diff(765 * MSS) < 3 * MSS, "{}", windows[83]);
    }

    #[test]
    fn idle_time_does_not_count_for_cubic() {
        let (mut cubic, mut other) = (CongestionControl::Cubic.control(), CongestionControl::Cubic.control());
        let window = Window { bytes: 1_000 * MSS, segment_bytes: MSS };
        let start = cubic.algorithm().reduce(window);
        other.algorithm().reduce(window);
        let bytes = rounds(&mut cubic, start, 30)[29];
        assert_eq!(rounds(&mut other, start, 30)[29], bytes);
        cubic.algorithm().idle(Duration::from_secs(60));
        let (at, rtt) = (Instant::default() + Duration::from_secs(3), Duration::from_millis(100));
        let window = Window { bytes, segment_bytes: MSS };
        assert_eq!(
            cubic.algorithm().grow(at + Duration::from_secs(60), window, MSS, rtt),
            other.algorithm().grow(at, window, MSS, rtt)
        );
    }

    #[test]
    fn cubic_undoes_a_spurious_reduction() {
        let mut cubic = CongestionControl::Cubic.control();
        let window = Window { bytes: 1_000 * MSS, segment_bytes: MSS };
        let start = cubic.algorithm().reduce(window);
        let before = rounds(&mut cubic, start, 30);
        assert_eq!(
            cubic.algorithm().reduce(Window { bytes: before[29], segment_bytes: MSS }),
            mul_div(before[29], 7, 10)
        );
        cubic.algorithm().undo();
        // The plateau and the start of the epoch are those before the reduction.
        let rtt = Duration::from_millis(100);
        let next = Window { bytes: before[29], segment_bytes: MSS };
        let grown = cubic.algorithm().grow(Instant::default() + rtt * 60, next, MSS, rtt);
        let mut other = CongestionControl::Cubic.control();
        other.algorithm().reduce(window);
        rounds(&mut other, start, 30);
        assert_eq!(grown, other.algorithm().grow(Instant::default() + rtt * 60, next, MSS, rtt));
        assert!(grown > before[29]);
    }

    #[test]
    fn an_unknown_name_of_a_congestion_control_is_refused() {
        assert!(CongestionControl::by_name("vegas").is_none());
        assert!(CongestionControl::ALL.iter().all(|choice| choice.control().kind() == *choice));
        assert_eq!(CongestionControl::by_name("cubic"), Some(CongestionControl::Cubic));
    }

    #[test]
    fn cube_roots_are_exact() {
        for (of, root) in [(0, 0), (1, 1), (7, 1), (8, 2), (999, 9), (1_000, 10), (u128::from(u64::MAX), 2_642_245)] {
            assert_eq!(cube_root(of), root);
        }
    }
}
