//! A table of the rates of one TCP stream over one link in virtual time, for several loss rates and buffer sizes. Whenever a
//! change of TCP changes its rates, the text of the table changes.
//!
//! A column has one size for all buffers at both ends. Only data segments are lost, each independently of the others. The last
//! column is the rate according to the formula of Mathis, Semke, Mahdavi and Ott (1997), for a window that each loss halves. The
//! last row is the rate of one buffer per round trip.

use std::fmt::Write;

use siga_stack::tcp::{Config, CongestionControl};
use siga_stack::time::{Duration, Instant};

use crate::bottleneck::{Bottleneck, Path, Stream, Streams};
use crate::rng::Ppm;

/// Probabilities of loss of a data segment, in millionths.
const LOSSES: [u32; 6] = [0, 100, 1_000, 10_000, 30_000, 100_000];
/// Sizes of the buffers in bytes.
const BUFFERS: [usize; 5] = [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const CONTROLS: [CongestionControl; 2] = [CongestionControl::Cubic, CongestionControl::Reno];
/// Payload of a full segment in bytes: the MTU without the IPv4 header, the TCP header and the timestamps option.
const SEGMENT_BYTES: u64 = 1_448;
/// Number of round trips before the measurement begins. In this time the first slow start ends, and its losses are repaired.
const WARM_UP_ROUND_TRIPS: u32 = 60;
/// A measurement ends after this many bytes or round trips, whichever comes first. If losses are rare (at most [`RARE`]), more
/// bytes are needed for a stable rate.
const COUNTED_BYTES: u64 = 3_000_000;
const RARE: Ppm = Ppm::new(1_000);
const COUNTED_BYTES_RARE: u64 = 8_000_000;
const COUNTED_ROUND_TRIPS: u32 = 1_000;

/// The links that [`table`] covers. Each has a bandwidth-delay product of 250,000 bytes.
pub const PATHS: [Path; 2] = [
    Path { rate_bits_per_s: 100_000_000, round_trip: Duration::from_millis(20) },
    Path { rate_bits_per_s: 1_000_000_000, round_trip: Duration::from_millis(2) },
];

/// Measures all rates and returns the complete table.
///
/// # Errors
/// Returns a description if a world could not be built or had a violation.
pub fn table() -> Result<String, String> {
    let mut text = String::from(
        "One TCP stream over one link, in Mbit/s of payload, by loss of data frames and size of both ends' buffers.\n\
         mathis: 1.22 segments a round trip over the root of the loss. buffer: one buffer a round trip.\n",
    );
    for path in PATHS {
        for control in CONTROLS {
            let Path { rate_bits_per_s, round_trip } = path;
            let (rate, queue) = (rate_bits_per_s / 1_000_000, path.window_frames());
            let name = control.name();
            let heading = format!("\n{rate} Mbit/s, round trip {round_trip:?}, queue of {queue} frames, {name}\n");
            text += &heading;
            row(&mut text, "loss", &BUFFERS.map(|bytes| format!("{} KB", bytes >> 10)), "mathis");
            for loss in LOSSES {
                let mut cells = BUFFERS.map(|_| String::new());
                for (cell, buffer_bytes) in cells.iter_mut().zip(BUFFERS) {
                    *cell = tenths(measure(path, control, Ppm::new(loss), buffer_bytes)?);
                }
                row(&mut text, &percent(loss), &cells, &mathis(path, loss));
            }
            row(&mut text, "buffer", &BUFFERS.map(|bytes| tenths(buffer_rate(path, bytes))), "");
        }
    }
    Ok(text)
}

fn row(text: &mut String, name: &str, cells: &[String; BUFFERS.len()], last: &str) {
    let mut line = format!("{name:<8}");
    for cell in cells.iter().map(String::as_str).chain([last]) {
        // Writing to a string cannot fail.
        let _: std::fmt::Result = write!(line, "{cell:>10}");
    }
    *text += line.trim_end();
    *text += "\n";
}

/// Formats a number of millionths as a percentage.
fn percent(millionths: u32) -> String {
    let (whole, part) = (millionths / 10_000, millionths % 10_000 / 100);
    if part == 0 { format!("{whole} %") } else { format!("{whole}.{part:02} %").replace("0 %", " %") }
}

/// Formats bits per second as Mbit/s with one decimal.
fn tenths(bits_per_s: u64) -> String {
    let tenths = (bits_per_s + 50_000) / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn mathis(path: Path, loss: u32) -> String {
    if loss == 0 {
        return "-".to_owned();
    }
    // 1.22 / sqrt(loss), in thousandths of a segment. It is computed with integers, so that the text is the same on every machine.
    let thousandths = (1_220_u64 * 1_220 * 1_000_000 / u64::from(loss)).isqrt();
    tenths(thousandths * SEGMENT_BYTES * 8 * (1_000_000_000 / path.round_trip.as_nanos()) / 1_000)
}

fn buffer_rate(path: Path, bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(0) * 8 * (1_000_000_000 / path.round_trip.as_nanos())
}

/// Measures the rate of payload in bits per second, after the first slow start has ended.
///
/// # Errors
/// Returns a description if the world could not be built or had a violation.
pub fn measure(path: Path, congestion: CongestionControl, loss: Ppm, buffer_bytes: usize) -> Result<u64, String> {
    let config = Config {
        send_buffer_bytes_max: buffer_bytes,
        receive_buffer_bytes: buffer_bytes,
        receive_buffer_bytes_max: buffer_bytes,
        congestion,
        ..Config::LINUX
    };
    let mut streams =
        Streams::new(u64::from(loss.millionths()), &Bottleneck { loss, ..Bottleneck::of(path) }, &[Stream::of(config)])
            .map_err(|error| error.to_string())?;
    let begin = Instant::default() + path.round_trip * WARM_UP_ROUND_TRIPS;
    streams.run_for(path.round_trip * WARM_UP_ROUND_TRIPS)?;
    let before = streams.arrived(0);
    let end = begin + path.round_trip * COUNTED_ROUND_TRIPS;
    let most = if (Ppm::new(1)..=RARE).contains(&loss) { COUNTED_BYTES_RARE } else { COUNTED_BYTES };
    while streams.now() < end && streams.arrived(0) - before < most {
        streams.run_for(path.round_trip)?;
    }
    Ok((streams.arrived(0) - before) * 8 * 1_000_000_000 / streams.now().since(begin).as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_as_a_person_would() {
        assert_eq!(LOSSES.map(percent).join(", "), "0 %, 0.01 %, 0.1 %, 1 %, 3 %, 10 %");
        assert_eq!([0, 49_999, 50_000, 99_950_000].map(tenths).join(", "), "0.0, 0.0, 0.1, 100.0");
    }

    #[test]
    fn the_formula_is_that_of_the_paper() {
        // 1.22 / sqrt(0.01) = 12.2 segments of 1,448 bytes in 20 ms.
        assert_eq!([100, 10_000, 0].map(|loss| mathis(PATHS[0], loss)).join(", "), "70.7, 7.1, -");
        assert_eq!(tenths(buffer_rate(PATHS[0], 16 << 10)), "6.6");
    }
}
