//! Runs the simulation: one seed with its trace and hash, or a search for a seed that fails.
//!
//! The trace of a seed goes to stdout, the progress of a search to stderr. A panic in a node counts as a failure of its seed. A
//! search starts at a seed derived from the time, so that each search covers different seeds. A failure prints one line that
//! reproduces it.

use std::cell::RefCell;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use siga_sim::scenario::{self, Outcome, Show};
use siga_sim::{sharing, throughput};

/// Measures a table and returns its text.
type Table = fn() -> Result<String, String>;

/// The tables with which the tests of `siga-sim` compare their results.
const TABLES: [(&str, Table); 2] = [("throughput.txt", throughput::table), ("sharing.txt", sharing::table)];
/// The directory of the tables.
const SNAPSHOTS: &str = "crates/sim/tests/snapshots";

/// The interval at which a search reports its progress.
const REPORT_EVERY: Duration = Duration::from_secs(30);

/// The options of `cargo xtask sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Simulate this seed, and print every event
    #[arg(long, required_unless_present_any = ["time", "accept"], conflicts_with = "time")]
    seed: Option<u64>,
    /// Simulate many seeds for this time, such as 90s, 10m or 2h; stop at the first seed that fails
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
    /// Print only the outcome, without the trace
    #[arg(long, conflicts_with = "time")]
    quiet: bool,
    /// Write a capture of each link to target/sim/
    #[arg(long, conflicts_with = "time")]
    capture: bool,
    /// The first seed of --for
    #[arg(long, conflicts_with = "seed")]
    from: Option<u64>,
    /// Simulate the throughput of streams, and replace the tables of throughputs that the tests expect
    #[arg(long, conflicts_with_all = ["seed", "time", "from", "quiet", "capture"])]
    accept: bool,
}

/// Runs one seed, or searches for one that fails.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    if options.accept {
        return accept(root);
    }
    match (options.seed, options.time) {
        (Some(seed), _) => one(root, seed, options),
        (None, Some(time)) => search(options.from.unwrap_or_else(seed_of_now), time, verdict),
        (None, None) => Err("neither --seed, --for nor --accept was given".to_owned()),
    }
}

/// Writes the tables and prints the lines that changed.
fn accept(root: &Path) -> Result<(), String> {
    for (name, table) in TABLES {
        let path = root.join(SNAPSHOTS).join(name);
        let before = fs::read_to_string(&path).unwrap_or_default();
        let after = table()?;
        for line in after.lines().filter(|line| !before.lines().any(|before| before == *line)) {
            eprintln!("{line}");
        }
        fs::write(&path, after).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}

fn one(root: &Path, seed: u64, options: &Options) -> Result<(), String> {
    let out = Rc::new(RefCell::new(BufWriter::new(io::stdout())));
    let mut show = Show { watcher: None, capture: options.capture };
    if !options.quiet {
        // A reader that has seen enough closes the pipe. The simulation still continues, because its verdict is needed.
        let out = Rc::clone(&out);
        show.watcher = Some(Box::new(move |event| drop(writeln!(out.borrow_mut(), "{event}"))));
    }
    let outcome = guarded(seed, show)?;
    let mut out = out.borrow_mut();
    match write!(out, "{}", summary(seed, &outcome)).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(format!("cannot print: {error}")),
        Ok(()) | Err(_) => {}
    }
    let dir = root.join("target/sim");
    for (link, bytes) in outcome.captures.iter().enumerate() {
        fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        let path = dir.join(format!("seed-{seed}-link-{link}.pcapng"));
        fs::write(&path, bytes).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        eprintln!("captured: {}", path.display());
    }
    outcome.verdict.map_err(|violation| format!("seed {seed}: {violation}"))
}

/// Returns lines with the scenario, the number of frames for each fate, the number of events, and the hash.
fn summary(seed: u64, outcome: &Outcome) -> String {
    let befell = outcome.fates.iter().filter(|(_, count)| *count > 0).map(|(fate, count)| format!("{fate} {count}"));
    let befell = befell.collect::<Vec<_>>().join(", ");
    let frames = if befell.is_empty() { "no frame was changed or lost".to_owned() } else { befell };
    let (events, time, hash) = (outcome.events, outcome.virtual_time, outcome.hash);
    let name = outcome.name;
    format!(
        "seed {seed}: {name}\nseed {seed}: {frames}\nseed {seed}: {events} events in {time:?} of virtual time, hash {hash:016x}\n"
    )
}

/// Runs a seed. A panic becomes an error that names the seed.
fn guarded(seed: u64, show: Show) -> Result<Outcome, String> {
    panic::catch_unwind(AssertUnwindSafe(|| scenario::run(seed, show)))
        .map_err(|_| format!("seed {seed}: a node panicked"))?
        .map_err(|error| format!("seed {seed}: {error}"))
}

fn verdict(seed: u64) -> Result<(), String> {
    guarded(seed, Show::default())?.verdict.map_err(|violation| format!("seed {seed}: {violation}"))
}

/// Tries seeds, starting at `first`, until one fails or the time is over.
fn search(first: u64, time: Duration, verdict: impl Fn(u64) -> Result<(), String>) -> Result<(), String> {
    let begun = Instant::now();
    let mut reported = begun;
    let mut seed = first;
    eprintln!("seeds from {first} on, for {time:?}");
    while begun.elapsed() < time {
        verdict(seed).map_err(|error| format!("{error}\nreproduce: cargo xtask sim --seed {seed}"))?;
        seed = seed.wrapping_add(1);
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            eprintln!("{} seeds passed in {:.0} s", seed.wrapping_sub(first), begun.elapsed().as_secs_f64());
        }
    }
    eprintln!("{} seeds passed in {:.0} s", seed.wrapping_sub(first), begun.elapsed().as_secs_f64());
    Ok(())
}

/// Returns a first seed that differs from those of searches started in other seconds, and is short enough to type.
pub(crate) fn seed_of_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() * 1_000)
}

/// Parses a time with its unit.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let unit = text.char_indices().last().map_or(0, |(at, _)| at);
    let (number, unit) = text.split_at(unit);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err("write a number followed by s, m or h, such as 10m".to_owned()),
    };
    let number: u64 = number.parse().map_err(|error| format!("{number:?}: {error}"))?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(|| "too long".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Args;

    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(time("2h"), Ok(Duration::from_secs(7_200)));
        for text in ["", "s", "10", "1.5m", "-1s", "10x", "18446744073709551615h", "1\u{e9}"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_seed_or_a_time_is_needed_and_not_both() {
        let command = || Options::augment_args(clap::Command::new("sim"));
        let parses = |line: &str| command().try_get_matches_from(line.split(' ')).is_ok();
        for line in [
            "sim --seed 5",
            "sim --seed 5 --quiet --capture",
            "sim --for 10m",
            "sim --for 10m --from 3",
            "sim --accept",
        ] {
            assert!(parses(line), "{line}");
        }
        for line in [
            "sim",
            "sim --quiet",
            "sim --seed 5 --for 10m",
            "sim --for 10m --quiet",
            "sim --seed 5 --from 3",
            "sim --accept --quiet",
        ] {
            assert!(!parses(line), "{line}");
        }
    }

    #[test]
    fn a_search_ends_at_the_first_failure_with_the_line_that_reproduces_it() {
        let fails = |seed| if seed < 7 { Ok(()) } else { Err(format!("seed {seed}: it is odd")) };
        let error = search(3, Duration::from_secs(3_600), fails).unwrap_err();
        assert_eq!(error, "seed 7: it is odd\nreproduce: cargo xtask sim --seed 7");
    }

    #[test]
    fn a_search_ends_with_its_time() {
        search(0, Duration::ZERO, |_| Err("it was not to run".to_owned())).unwrap();
    }

    #[test]
    fn a_seed_that_passes_has_a_verdict_and_captures() {
        verdict(1).unwrap();
        let root = tempfile::tempdir().unwrap();
        let options = Options { seed: Some(1), time: None, quiet: true, capture: true, from: None, accept: false };
        run(root.path(), &options).unwrap();
        let capture = fs::read(root.path().join("target/sim/seed-1-link-0.pcapng")).unwrap();
        assert!(capture.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]));
    }
}
