//! CUBIC: cwnd grows along a cubic curve around the window of the latest loss (RFC 9438). HyStart++ ends the first slow start (RFC
//! 9406).

use super::super::hystart::{HyStart, Progress};
use super::{Algorithm, Window};
use crate::time::{Duration, Instant};

fn mul_div(value: u32, by: u64, over: u64) -> u32 {
    u32::try_from(u64::from(value) * by / over.max(1)).unwrap_or(u32::MAX)
}

/// CUBIC (RFC 9438), with HyStart++ (RFC 9406) for the first slow start.
/// RFC 9293 MAY-18.
#[derive(Debug, Default)]
pub(in crate::tcp) struct Cubic {
    start: HyStart,
    /// The cubic curve. `None` while the connection has only been in slow start, as most idle connections have.
    curve: Option<Box<Curve>>,
}

/// Memory of both curves of a connection in bytes.
pub(in crate::tcp) const CURVES_BYTES: usize = 2 * size_of::<Curve>();

/// The state of congestion avoidance.
#[derive(Debug, Default)]
struct Curve {
    /// W_max in bytes: cwnd before the latest reduction, or less after fast convergence. 0 after a timeout: then cwnd at the start
    /// of congestion avoidance is the plateau (RFC 9438 section 4.8).
    max: u32,
    /// cwnd_prior in bytes: cwnd before the latest reduction.
    reduced_from: u32,
    /// The current epoch of congestion avoidance. `None` between a reduction and the next growth.
    epoch: Option<Epoch>,
    /// The curve before the latest reduction, for `undo` (RFC 9438 section 4.9).
    prior: Option<Box<Curve>>,
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
    fn new(now: Instant, window: Window, max: u32, prior: u32) -> Self {
        let missing = u128::from(max.saturating_sub(window.bytes));
        // K^3 = (W_max - cwnd) / C, with C = 0.4, the windows in segments and K in seconds. `cube` is K^3 with K in milliseconds.
        let cube = missing * 2_500_000_000 / u128::from(window.segment_bytes.max(1));
        let origin = max.max(window.bytes);
        Self { start: now, k_ms: cube_root(cube), origin, friendly: window.bytes, prior }
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
        let curve = self.curve.get_or_insert_default();
        let (max, prior) = (curve.max, curve.reduced_from);
        let epoch = curve.epoch.get_or_insert_with(|| Epoch::new(now, window, max, prior));
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
        let mut prior = self.curve.take();
        let old_max = prior.as_ref().map_or(0, |curve| curve.max);
        if let Some(prior) = &mut prior {
            // Only the latest reduction can be undone.
            prior.prior = None;
        }
        // RFC 9438 section 4.7: fast convergence. If cwnd had not reached W_max again, W_max is reduced further, which leaves
        // bandwidth to new connections.
        let max = if window.bytes < old_max { mul_div(window.bytes, 17, 20) } else { window.bytes };
        self.curve = Some(Box::new(Curve { max, reduced_from: window.bytes, epoch: None, prior }));
        mul_div(window.bytes, 7, 10).max(2 * window.segment_bytes)
    }

    fn timed_out(&mut self) {
        self.curve.get_or_insert_default().max = 0;
    }

    fn undo(&mut self) {
        self.curve = self.curve.take().and_then(|curve| curve.prior);
    }

    fn idle(&mut self, time: Duration) {
        self.start = HyStart::default();
        if let Some(epoch) = self.curve.as_mut().and_then(|curve| curve.epoch.as_mut()) {
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
    use super::super::CongestionControl;
    use super::super::tests::{MSS, rounds};
    use super::*;

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
    fn cube_roots_are_exact() {
        for (of, root) in [(0, 0), (1, 1), (7, 1), (8, 2), (999, 9), (1_000, 10), (u128::from(u64::MAX), 2_642_245)] {
            assert_eq!(cube_root(of), root);
        }
    }

    // RFC 9438 section 4.3: fast convergence lowers W_max, but not the window until which W_est grows slowly.
    #[test]
    fn cubic_grows_slowly_until_its_old_window_after_fast_convergence_too() {
        let mut cubic = CongestionControl::Cubic.control();
        cubic.algorithm().reduce(Window { bytes: 30 * MSS, segment_bytes: MSS });
        let start = cubic.algorithm().reduce(Window { bytes: 20 * MSS, segment_bytes: MSS });
        let windows = rounds(&mut cubic, start, 40);
        let steps: Vec<u32> = windows.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(steps[..10].iter().all(|step| (470..=540).contains(step)), "{windows:?}");
        assert!(windows[11] > 20 * MSS && steps[12..20].iter().all(|step| *step > 890), "{windows:?}");
    }

    // RFC 9438 section 4.8.
    #[test]
    fn cubic_starts_at_its_plateau_after_a_timeout() {
        let mut cubic = CongestionControl::Cubic.control();
        let window = Window { bytes: 1_000 * MSS, segment_bytes: MSS };
        let start = cubic.algorithm().reduce(window);
        cubic.algorithm().timed_out();
        // 0.4 * (9.9 + 0.1)^3 = 400 segments above.
        let windows = rounds(&mut cubic, start, 100);
        assert!(windows[99].abs_diff(start + 400 * MSS) < 12 * MSS, "{}", windows[99]);
        // A timeout that was spurious is undone with the plateau.
        let mut cubic = CongestionControl::Cubic.control();
        cubic.algorithm().reduce(window);
        cubic.algorithm().reduce(window);
        cubic.algorithm().timed_out();
        cubic.algorithm().undo();
        let windows = rounds(&mut cubic, start, 100);
        assert!(windows[90].abs_diff(1_000 * MSS) < 8 * MSS, "{}", windows[90]);
    }
}
