//! How accurately modelled links keep their rate and their latency: between two guests on a virtual CTC, and at a port of a switch.
//!
//! The rate is that of a stream of datagrams that the sender offers faster than the link is. The error of a latency is half of the
//! difference between the round trips with and without the link, minus the latency. No target decides over success, because the time of a
//! wake-up depends on the host.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{build, laboratory, median, scratch};

/// The options of `cargo xtask bench links`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of measurements of each row
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure only the rows whose name contains this text, such as `vctc rate`
    #[arg(long, default_value = "")]
    only: String,
}

/// The paths: the name, and the bytes of a datagram's headers on the link.
const PATHS: [(&str, u32); 2] = [("vctc", 28), ("vswitch", 42)];
/// A Guest LAN, whose switch carries larger frames.
const LARGE: (&str, u32) = ("guestlan-hipers", 42);
/// A rate: the setting of the link, megabytes per second, the bytes of a datagram, and the MTU.
type Rate = (&'static str, f64, u32, u32);
const RATES: [Rate; 5] = [
    ("1mbit", 0.125, 1_400, 9_000),
    ("10mbit", 1.25, 1_400, 9_000),
    ("100mbit", 12.5, 1_400, 9_000),
    ("1gbit", 125.0, 8_900, 9_000),
    ("10gbit", 1_250.0, 8_900, 9_000),
];
const LARGE_RATE: Rate = ("10gbit", 1_250.0, 56_000, 57_344);
/// The latencies: the setting of the link, and microseconds.
const LATENCIES: [(&str, f64); 6] =
    [("100us", 100.0), ("500us", 500.0), ("1ms", 1e3), ("10ms", 1e4), ("100ms", 1e5), ("1s", 1e6)];
/// How guests and the switch wait.
const WAITS: [&str; 2] = ["poll", "block"];

/// Measures all rows, and prints each as a row of a Markdown table.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let siga = build(root)?;
    let directory = scratch(&siga);
    std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let lab = Lab { siga: &siga, directory: &directory };
    let done = lab.rows(options);
    let _ = std::fs::remove_dir_all(&directory);
    done
}

struct Lab<'a> {
    siga: &'a Path,
    directory: &'a Path,
}

impl Lab<'_> {
    fn rows(&self, options: &Options) -> Result<(), String> {
        say("| link | setting | measured (median) | error | range of the error |\n| --- | --- | --- | --- | --- |")?;
        for path in PATHS {
            RATES.into_iter().try_for_each(|rate| self.rate_row(options, path, rate))?;
            for wait in WAITS.into_iter().filter(|wait| format!("{} latency {wait}", path.0).contains(&options.only)) {
                for (setting, expected) in LATENCIES {
                    let errors = repeat(options, || Ok(self.latency(path.0, wait, setting)? / expected - 1.0))?;
                    let measured = |error: f64| format!("{:.1} us", expected * (1.0 + error));
                    print(&format!("{}, {wait} | latency={setting}", path.0), measured, &errors)?;
                }
            }
        }
        self.rate_row(options, LARGE, LARGE_RATE)
    }

    fn rate_row(&self, options: &Options, path: (&str, u32), rate: Rate) -> Result<(), String> {
        let (setting, expected, bytes, _) = rate;
        if !format!("{} rate", path.0).contains(&options.only) {
            return Ok(());
        }
        let errors = repeat(options, || Ok(self.rate(path, rate)? / expected - 1.0))?;
        let measured = |error: f64| format!("{:.4} MB/s", expected * (1.0 + error));
        print(&format!("{}, datagrams of {bytes} bytes | rate={setting}", path.0), measured, &errors)
    }

    /// Returns the rate on the wire in megabytes per second.
    fn rate(&self, path: (&str, u32), (setting, expected, bytes, mtu): Rate) -> Result<f64, String> {
        let whole = f64::from(bytes + path.1) / f64::from(bytes);
        // Slightly more than the link carries. The queue is full when the measurement begins, and long enough for the time of a wake-up.
        let workload = format!("udp-strg:{bytes}@{:.3}MB/s", expected / whole * 1.1);
        let queue = if expected < 100.0 { 20 } else { 1_000 };
        let link = format!("rate={setting},queue={queue}");
        let seconds = if expected < 1.0 { 3.0 } else { 1.0 };
        let mtu = mtu.to_string();
        let json = self.measure(path.0, &workload, "adaptive", &["--mtu", &mtu, "--link", &link], seconds)?;
        Ok(figure(&json["cells"][0]["rate"])? * whole)
    }

    /// Returns the latency in microseconds that a link adds to a direction.
    fn latency(&self, path: &str, wait: &str, setting: &str) -> Result<f64, String> {
        let link = format!("latency={setting}");
        let seconds = if setting == "1s" { 3.5 } else { 1.0 };
        let json = self.measure(path, "rr-1-1", wait, &["--mtu", "9000", "--link", "off", "--link", &link], seconds)?;
        let p50 = |cell: usize| figure(&json["cells"][cell]["latency_us"]["p50"]);
        Ok((p50(1)? - p50(0)?) / 2.0)
    }

    fn measure(
        &self,
        path: &str,
        workload: &str,
        wait: &str,
        settings: &[&str],
        seconds: f64,
    ) -> Result<Value, String> {
        let what = |command: &mut Command| {
            command.args(["--path", path, "--workload", workload, "--wait", wait, "--clients", "1"]);
            command.args(settings);
        };
        laboratory::run(self.siga, self.directory, what, seconds)
    }
}

fn repeat(options: &Options, mut one: impl FnMut() -> Result<f64, String>) -> Result<Vec<f64>, String> {
    (0..options.rounds).map(|_| one()).collect()
}

fn figure(value: &Value) -> Result<f64, String> {
    value.as_f64().ok_or_else(|| format!("siga run: {value} is not a figure"))
}

fn print(name: &str, measured: impl Fn(f64) -> String, errors: &[f64]) -> Result<(), String> {
    let mut sorted = errors.to_vec();
    let middle = median(&mut sorted);
    let mut line = String::new();
    let ends = sorted.first().zip(sorted.last());
    let (low, high) = ends.map_or((middle, middle), |(low, high)| (*low, *high));
    let percent = |error: f64| format!("{:+.2}%", error * 100.0);
    let _ =
        write!(line, "| {name} | {} | {} | {} to {} |", measured(middle), percent(middle), percent(low), percent(high));
    say(&line)
}

fn say(line: &str) -> Result<(), String> {
    writeln!(io::stdout(), "{line}").map_err(|error| format!("cannot write the table: {error}"))
}
