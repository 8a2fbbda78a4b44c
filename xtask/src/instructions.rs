//! Instructions of a forwarded frame and of an exchange, counted by Callgrind in the fabric's nodes that take turns on one thread.
//!
//! The clock has no part in it: the same program does the same each time, so a step of a few per cent is a change of the code
//! or of the compiler. What was counted last is checked in; `--update` writes it anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command;

const BUILD: &str = "cargo test --locked --release --package siga-fabric --features valgrind --lib --no-run";
const TEST: &str = "node::lockstep::lockstep";
const FILE: &str = "crates/fabric/instructions.toml";
/// Two runs differ in this many rounds alone.
const ROUNDS: u64 = 1_000;
const WARM_UP: u64 = 200;
/// A figure may differ from what is checked in by such a part.
const TOLERANCE: f64 = 0.05;

/// Counts every case and compares it with what is checked in, or writes that.
pub(crate) fn run(root: &Path, update: bool) -> Result<(), String> {
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).map_err(|error| format!("{FILE}: {error}"))?;
    let known: BTreeMap<String, u64> = toml::from_str(&text).map_err(|error| format!("{FILE}: {error}"))?;
    let program = command::built(root, BUILD)?;
    let mut counted = BTreeMap::new();
    let mut differing = Vec::new();
    for (case, expected) in &known {
        let all = count(root, &program, case, WARM_UP + ROUNDS)?;
        let count = all.saturating_sub(count(root, &program, case, WARM_UP)?) / ROUNDS;
        let part = ratio(count, *expected) - 1.0;
        eprintln!("{case}: {count} instructions ({:+.1}% of the {expected} checked in)", part * 100.0);
        if part.abs() > TOLERANCE {
            differing.push(case.as_str());
        }
        counted.insert(case, count);
    }
    if update {
        let comment: String =
            text.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        let lines: String = counted.iter().map(|(case, count)| format!("{case} = {count}\n")).collect();
        return fs::write(&path, comment + &lines).map_err(|error| format!("{FILE}: {error}"));
    }
    if differing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} differ by more than {:.0}%; if that is meant, `cargo xtask instructions --update` writes {FILE}",
        differing.join(", "),
        TOLERANCE * 100.0
    ))
}

#[expect(clippy::cast_precision_loss, reason = "counts of instructions are below 2^52")]
fn ratio(count: u64, expected: u64) -> f64 {
    count as f64 / expected.max(1) as f64
}

fn count(root: &Path, program: &Path, case: &str, rounds: u64) -> Result<u64, String> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    valgrind.args([TEST, "--exact", "--ignored", "--test-threads=1"]).current_dir(root);
    valgrind.env("SIGA_LOCKSTEP", format!("{case} {rounds}"));
    let output = valgrind.output().map_err(|error| format!("valgrind: {error} (Debian's package valgrind)"))?;
    let words = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        return Err(format!("{case} under valgrind: {}\n{said}{words}", output.status));
    }
    collected(&words).ok_or_else(|| format!("valgrind does not say how many instructions {case} took:\n{words}"))
}

/// The number in Callgrind's last words: `==4711== Collected : 12345`.
fn collected(words: &str) -> Option<u64> {
    words.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_what_callgrind_says() {
        let words = "==7== Events    : Ir\n==7== Collected : 3920417\n==7== \n==7== I   refs:      3,920,417\n";
        assert_eq!(collected(words), Some(3_920_417));
        assert_eq!(collected("==7== Aborted"), None);
    }
}
