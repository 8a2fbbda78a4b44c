//! A table that compares BBR with CUBIC over one bottleneck in virtual time: losses, shares of a link, queues, and changes of the rate.
//! Whenever a change of TCP changes a figure, the text of the table changes.

use std::fmt::Write;

use siga_stack::tcp::{Config, CongestionControl};
use siga_stack::time::Duration;

use crate::bottleneck::{Bottleneck, Path, Stream, Streams};
use crate::rng::Ppm;

/// The link of the table. Its bandwidth-delay product is 50,000 bytes.
pub const PATH: Path = Path { rate_bits_per_s: 10_000_000, round_trip: Duration::from_millis(40) };
/// Time before a measurement begins.
const WARM_UP: Duration = Duration::from_secs(5);
const COUNTED: Duration = Duration::from_secs(30);
/// Interval between two samples of the round-trip time.
const TICK: Duration = Duration::from_millis(100);
/// Probabilities of loss of a data segment, in millionths.
const LOSSES: [u32; 5] = [0, 1_000, 10_000, 20_000, 100_000];
/// Lengths of the queue in percent of the bandwidth-delay product.
const QUEUES_PERCENT: [usize; 4] = [50, 100, 400, 800];
/// Delays of acknowledgements in milliseconds.
const ACK_JITTERS_MS: [u64; 3] = [0, 20, 40];

/// What a measurement has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    /// The rate of each stream's payload in bits per second.
    pub rates: Vec<u64>,
    /// The mean of the smoothed round-trip time of the first stream.
    pub round_trip: Duration,
    /// Number of frames that the queue dropped, during the measurement.
    pub queue_drops: u64,
}

impl Figures {
    /// Returns the share of a stream in thousandths.
    pub fn share(&self, stream: usize) -> u64 {
        self.rates.get(stream).copied().unwrap_or(0) * 1_000 / self.rates.iter().sum::<u64>().max(1)
    }

    /// Returns Jain's index of fairness in thousandths: 1,000 if all streams have the same rate.
    pub fn fairness(&self) -> u64 {
        let sum: u128 = self.rates.iter().map(|rate| u128::from(*rate)).sum();
        let squares: u128 = self.rates.iter().map(|rate| u128::from(*rate).pow(2)).sum();
        let streams = self.rates.len() as u128;
        u64::try_from(sum * sum * 1_000 / (squares * streams).max(1)).unwrap_or(0)
    }
}

/// Returns the stack's default settings with this congestion control, and with a receive buffer that limits no stream.
pub fn config(congestion: CongestionControl) -> Config {
    Config { congestion, receive_buffer_bytes: 4 << 20, ..Config::LINUX }
}

/// Returns a bottleneck with a queue of this many percent of the bandwidth-delay product.
pub fn queue(percent: usize) -> Bottleneck {
    Bottleneck { queue_frames: PATH.window_frames() * percent / 100, ..Bottleneck::of(PATH) }
}

/// Measures streams over a bottleneck, after a time in which they find their rates.
///
/// # Errors
/// Returns a description if the world could not be built or had a violation.
pub fn measure(bottleneck: &Bottleneck, streams: &[Stream]) -> Result<Figures, String> {
    let mut world = Streams::new(1, bottleneck, streams).map_err(|error| error.to_string())?;
    world.run_for(WARM_UP)?;
    let arrived = |world: &Streams| (0..streams.len()).map(|stream| world.arrived(stream)).collect::<Vec<_>>();
    let (before, drops, begin) = (arrived(&world), world.queue_drops(), world.now());
    let (mut round_trips_us, mut samples) = (0, 0);
    while world.now().since(begin) < COUNTED {
        world.run_for(TICK)?;
        round_trips_us += world.info(0).map_or(0, |info| u64::from(info.rtt));
        samples += 1;
    }
    let rate = |(after, before): (u64, u64)| (after - before) * 8 * 1_000 / COUNTED.as_millis();
    Ok(Figures {
        rates: arrived(&world).into_iter().zip(before).map(rate).collect(),
        round_trip: Duration::from_micros(round_trips_us / samples),
        queue_drops: world.queue_drops() - drops,
    })
}

/// Measures how long a stream takes after a change of the link's rate, until nine tenths of the new rate arrive (if the rate rises), or
/// until its round-trip time is below twice the minimum (if the rate falls).
///
/// # Errors
/// Returns a description if the world could not be built or had a violation, or if the stream does not adapt within 30 s.
pub fn adapt(congestion: CongestionControl, from: u64, to: u64) -> Result<Duration, String> {
    let path = Path { rate_bits_per_s: from, ..PATH };
    let bottleneck = Bottleneck { queue_frames: 4 * PATH.window_frames(), ..Bottleneck::of(path) };
    let mut world =
        Streams::new(1, &bottleneck, &[Stream::of(config(congestion))]).map_err(|error| error.to_string())?;
    world.run_for(WARM_UP)?;
    world.set_rate(to).map_err(|error| error.to_string())?;
    let begin = world.now();
    // The first round trips still show the old rate.
    world.run_for(PATH.round_trip * 4)?;
    while world.now().since(begin) < Duration::from_secs(30) {
        let before = world.arrived(0);
        world.run_for(TICK)?;
        let rate = (world.arrived(0) - before) * 8 * 1_000 / TICK.as_millis();
        let round_trip = Duration::from_micros(world.info(0).map_or(0, |info| u64::from(info.rtt)));
        if rate * 10 >= to * 9 && (to > from || round_trip < PATH.round_trip * 2) {
            return Ok(world.now().since(begin));
        }
    }
    Err(format!("{} did not adapt from {from} to {to} bits per second", congestion.name()))
}

/// Measures everything and returns the complete table.
///
/// # Errors
/// Returns a description if a world could not be built or had a violation.
pub fn table() -> Result<String, String> {
    use CongestionControl::{Bbr, Cubic};
    let Path { rate_bits_per_s, round_trip } = PATH;
    let mut text = format!(
        "BBR and CUBIC over a link of {} Mbit/s with a round trip of {round_trip:?}. Rates of payload are in Mbit/s.\n",
        rate_bits_per_s / 1_000_000
    );
    let mut line = |of: String| writeln!(text, "{of}").map_err(|error| error.to_string());
    line("\nOne stream with random losses; queue of 1 BDP\nloss          bbr   cubic".into())?;
    for loss in LOSSES {
        let bottleneck = Bottleneck { loss: Ppm::new(loss), ..Bottleneck::of(PATH) };
        let rate = |congestion| -> Result<String, String> {
            Ok(tenths(measure(&bottleneck, &[Stream::of(config(congestion))])?.rates[0]))
        };
        line(format!("{:<8}{:>9}{:>8}", percent(loss / 1_000), rate(Bbr)?, rate(Cubic)?))?;
    }
    line("\nOne stream by length of the queue\nqueue       bbr rate   cubic rate   bbr RTT   cubic RTT   bbr drops   cubic drops".into())?;
    for length in QUEUES_PERCENT {
        let [bbr, cubic] = [Bbr, Cubic].map(|congestion| measure(&queue(length), &[Stream::of(config(congestion))]));
        let (bbr, cubic) = (bbr?, cubic?);
        line(format!(
            "{:<9}{:>11}{:>13}{:>7} ms{:>9} ms{:>12}{:>14}",
            bdp(length),
            tenths(bbr.rates[0]),
            tenths(cubic.rates[0]),
            bbr.round_trip.as_millis(),
            cubic.round_trip.as_millis(),
            bbr.queue_drops,
            cubic.queue_drops
        ))?;
    }
    line("\nShares of the link; a pair of streams starts 1 s apart\nqueue      bbr beside cubic   bbr beside 3 cubic   Jain of 2 bbr   Jain of 2 cubic".into())?;
    for length in QUEUES_PERCENT {
        let late = |congestion| Stream { begin: Duration::from_secs(1), ..Stream::of(config(congestion)) };
        let pair = |first, second| measure(&queue(length), &[Stream::of(config(first)), late(second)]);
        let crowd = measure(&queue(length), &[Bbr, Cubic, Cubic, Cubic].map(|each| Stream::of(config(each))))?;
        line(format!(
            "{:<9}{:>19}{:>21}{:>16}{:>18}",
            bdp(length),
            percent(pair(Bbr, Cubic)?.share(0)),
            percent(crowd.share(0)),
            thousandths(pair(Bbr, Bbr)?.fairness()),
            thousandths(pair(Cubic, Cubic)?.fairness())
        ))?;
    }
    line("\nTime until a stream has adapted to a change of the rate; queue of 4 BDP\nchange                    bbr       cubic".into())?;
    for (from, to) in [(5_000_000, 10_000_000), (2_000_000, 10_000_000), (10_000_000, 5_000_000)] {
        let name = format!("{} to {} Mbit/s", from / 1_000_000, to / 1_000_000);
        let [bbr, cubic] = [Bbr, Cubic].map(|congestion| adapt(congestion, from, to).map_or("never".into(), seconds));
        line(format!("{name:<20}{bbr:>9}{cubic:>12}"))?;
    }
    line("\nOne stream with acknowledgements that arrive together; queue of 1 BDP\ndelay up to    bbr   cubic".into())?;
    for ms in ACK_JITTERS_MS {
        let bottleneck = Bottleneck { ack_jitter: Duration::from_millis(ms), ..Bottleneck::of(PATH) };
        let rate = |congestion| -> Result<String, String> {
            Ok(tenths(measure(&bottleneck, &[Stream::of(config(congestion))])?.rates[0]))
        };
        line(format!("{:<8}{:>10}{:>8}", format!("{ms} ms"), rate(Bbr)?, rate(Cubic)?))?;
    }
    Ok(text)
}

fn bdp(percent: usize) -> String {
    if percent.is_multiple_of(100) { format!("{} BDP", percent / 100) } else { format!("0.{} BDP", percent / 10) }
}

fn percent(thousandths: impl Into<u64>) -> String {
    let thousandths = thousandths.into();
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

fn thousandths(value: u64) -> String {
    format!("{}.{:03}", value / 1_000, value % 1_000)
}

fn seconds(time: Duration) -> String {
    format!("{}.{} s", time.as_millis() / 1_000, time.as_millis() % 1_000 / 100)
}

fn tenths(bits_per_s: u64) -> String {
    let tenths = (bits_per_s + 50_000) / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}
