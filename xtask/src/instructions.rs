//! Counts the instructions per forwarded frame and per exchange with Callgrind, in nodes of the fabric that take turns on one
//! thread.
//!
//! The counts do not depend on real time: the nodes' own clock advances by a fixed step per turn. The same program therefore
//! executes the same number of instructions each time. A change of a few per cent comes from the code or the compiler. Only the
//! nodes' work is counted. Copies out of rings are counted separately. Callgrind counts a `rep movsb` once for each byte, while a
//! processor moves dozens of bytes at a time. The counts are checked in; `--update` writes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command;

const BUILD: &str = "cargo test --locked --release --package siga-fabric --features valgrind --lib --no-run";
const TEST: &str = "guest::tests::lockstep::lockstep";
const FILE: &str = "crates/fabric/instructions.toml";
/// The file in which Callgrind writes the instructions of each function.
const PROFILE: &str = "target/instructions.callgrind";
/// Instructions are counted only inside this function.
const COUNTED: &str = "*lockstep::counted*";
/// The function that copies out of rings.
const COPY: &str = "CopyMeter::measure";
/// The counted cases. Each has two figures: its work without copies, and its copies.
const CASES: [&str; 3] = ["forward-1500", "forward-64", "rr-200-1000"];
/// Each case runs twice, with `WARM_UP` and with `WARM_UP + ROUNDS` rounds; the difference excludes start and warm-up.
const ROUNDS: u64 = 1_000;
const WARM_UP: u64 = 200;
/// The fraction by which a count may differ from the checked-in figure.
const TOLERANCE: f64 = 0.02;

/// Counts every case. Compares the counts with the checked-in figures, or writes them if `update`.
pub(crate) fn run(root: &Path, update: bool) -> Result<(), String> {
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).map_err(|error| format!("{FILE}: {error}"))?;
    let known: BTreeMap<String, u64> = toml::from_str(&text).map_err(|error| format!("{FILE}: {error}"))?;
    if !update {
        are_all_there(&known)?;
    }
    let program = command::built(root, BUILD)?;
    let mut counted = BTreeMap::new();
    for case in CASES {
        let (all, warm_up) = (count(root, &program, case, WARM_UP + ROUNDS)?, count(root, &program, case, WARM_UP)?);
        let each = |all: u64, warm_up: u64| all.saturating_sub(warm_up) / ROUNDS;
        counted.insert(case.to_owned(), each(all.work, warm_up.work));
        counted.insert(copies(case), each(all.copies, warm_up.copies));
    }
    let differing = differing(&counted, &known);
    if update {
        let comment: String =
            text.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        let lines: String = counted.iter().map(|(name, count)| format!("{name} = {count}\n")).collect();
        return fs::write(&path, comment + &lines).map_err(|error| format!("{FILE}: {error}"));
    }
    if differing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} differ by more than {:.0}%; to accept the new counts, `cargo xtask instructions --update` writes {FILE}",
        differing.join(", "),
        TOLERANCE * 100.0
    ))
}

fn copies(case: &str) -> String {
    format!("{case}-copies")
}

/// Checks that the file has a figure for each case and no other figures.
fn are_all_there(known: &BTreeMap<String, u64>) -> Result<(), String> {
    let mut wanted: Vec<String> = CASES.into_iter().flat_map(|case| [case.to_owned(), copies(case)]).collect();
    wanted.sort();
    if known.keys().eq(&wanted) {
        return Ok(());
    }
    let has: Vec<&str> = known.keys().map(String::as_str).collect();
    Err(format!("{FILE} contains {}, but should contain {}", has.join(", "), wanted.join(", ")))
}

/// Prints each count with its change; returns the names of the counts outside the tolerance.
fn differing(counted: &BTreeMap<String, u64>, known: &BTreeMap<String, u64>) -> Vec<String> {
    let mut differing = Vec::new();
    for (name, count) in counted {
        let expected = known.get(name).copied().unwrap_or(0);
        let part = ratio(*count, expected) - 1.0;
        eprintln!("{name}: {count} instructions ({:+.1}% of the {expected} checked in)", part * 100.0);
        if part.abs() > TOLERANCE {
            differing.push(name.clone());
        }
    }
    differing
}

#[expect(clippy::cast_precision_loss, reason = "counts of instructions are below 2^52")]
fn ratio(count: u64, expected: u64) -> f64 {
    count as f64 / expected.max(1) as f64
}

/// The instructions of one run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    /// Instructions outside the copy function.
    work: u64,
    copies: u64,
}

fn count(root: &Path, program: &Path, case: &str, rounds: u64) -> Result<Count, String> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--collect-atstart=no", "--compress-strings=no", "--compress-pos=no"]);
    valgrind.arg(format!("--toggle-collect={COUNTED}")).arg(format!("--callgrind-out-file={PROFILE}")).arg(program);
    valgrind.args([TEST, "--exact", "--ignored", "--test-threads=1"]).current_dir(root);
    valgrind.env("SIGA_LOCKSTEP", format!("{case} {rounds}"));
    let output = valgrind.output().map_err(|error| format!("valgrind: {error} (Debian's package valgrind)"))?;
    if !output.status.success() {
        let (said, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        return Err(format!("{case} under valgrind: {}\n{said}{words}", output.status));
    }
    let profile = fs::read_to_string(root.join(PROFILE)).map_err(|error| format!("{PROFILE}: {error}"))?;
    collected(&profile).ok_or_else(|| format!("{PROFILE} does not contain the instructions of {case}"))
}

/// Adds up the instructions that each function executes itself. A line `fn=` names a function. Each line after it has a position
/// and a count. The line after `calls=` has the called function's count and is skipped.
fn collected(profile: &str) -> Option<Count> {
    let mut count = Count::default();
    let (mut is_copy, mut is_call) = (false, false);
    for line in profile.lines() {
        if let Some(function) = line.strip_prefix("fn=") {
            is_copy = function.contains(COPY);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let took: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
            match (std::mem::take(&mut is_call), is_copy) {
                (true, _) => {}
                (false, true) => count.copies += took,
                (false, false) => count.work += took,
            }
        }
    }
    (count != Count::default()).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrinds_own_costs_of_functions_are_summed_with_copies_apart() {
        let profile = "positions: line\nevents: Ir\nsummary: 170\n\nob=/program\nfl=???\nfn=siga_fabric::guest::Node::take\n\
            0 51\ncfn=siga_ring::counters::CopyMeter::measure\ncalls=1 0 \n0 72\n0 46\n\n\
            fn=siga_ring::counters::CopyMeter::measure\n0 72\n\nfn=siga_fabric::guest::Node::iterate\n0 1\n\ntotals: 170\n";
        assert_eq!(collected(profile), Some(Count { work: 98, copies: 72 }));
        assert_eq!(collected("# callgrind format\nversion: 1\ntotals: 0\n"), None);
    }

    #[test]
    fn a_missing_or_unknown_figure_is_an_error() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let known = || toml::from_str::<BTreeMap<String, u64>>(&fs::read_to_string(root.join(FILE)).unwrap()).unwrap();
        assert_eq!(are_all_there(&known()), Ok(()));
        let mut without = known();
        without.remove("forward-64");
        assert!(are_all_there(&without).is_err());
        let mut with = known();
        with.insert("forward-9000".to_owned(), 1);
        assert!(are_all_there(&with).is_err());
    }

    #[test]
    fn a_count_that_is_two_percent_away_differs() {
        let counts = |count| BTreeMap::from([("forward-64".to_owned(), count)]);
        for (count, differs) in [(979, true), (981, false), (1_019, false), (1_021, true)] {
            assert_eq!(!differing(&counts(count), &counts(1_000)).is_empty(), differs, "{count}");
        }
    }
}
