//! The tests of TCP and UDP of the crate tokio, as its published source has them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Outcome, Outcomes};
use crate::command;

/// The version of tokio whose tests run.
const VERSION: &str = "1.54.1";

/// The test programs that concern networks.
const TESTS: [&str; 16] = [
    "net_bind_resource",
    "net_lookup_host",
    "net_panic",
    "net_quickack",
    "tcp_accept",
    "tcp_accept_ready",
    "tcp_connect",
    "tcp_echo",
    "tcp_into_split",
    "tcp_into_std",
    "tcp_peek",
    "tcp_shutdown",
    "tcp_socket",
    "tcp_split",
    "tcp_stream",
    "udp",
];

/// A program that is linked dynamically, so that it can run under `siga exec`, although siga itself is linked statically.
const FLAGS: (&str, &str) = ("RUSTFLAGS", "-C target-feature=-crt-static");

/// Downloads the source and builds the tests. Returns the programs with their names.
pub(super) fn build(place: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let context = |error: std::io::Error| format!("{}: {error}", place.display());
    let (fetch, sources) = (place.join("fetch"), place.join(format!("tokio-{VERSION}")));
    if !sources.exists() {
        // Cargo downloads the source as that of a dependency.
        fs::create_dir_all(fetch.join("src")).map_err(context)?;
        fs::write(fetch.join("src/lib.rs"), "").map_err(context)?;
        let manifest = format!(
            "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[dependencies]\ntokio = \"={VERSION}\"\n[workspace]\n"
        );
        fs::write(fetch.join("Cargo.toml"), manifest).map_err(context)?;
        let described = command::output(command::command(&fetch, "cargo metadata --format-version 1"))?;
        let described: serde_json::Value =
            serde_json::from_str(&described).map_err(|error| format!("cargo metadata: {error}"))?;
        let packages = described["packages"].as_array().into_iter().flatten();
        let manifest =
            packages.filter(|package| package["name"] == "tokio").find_map(|one| one["manifest_path"].as_str());
        let from = manifest.and_then(|manifest| Path::new(manifest).parent()).ok_or("cargo metadata names no tokio")?;
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(from).arg(&sources);
        command::run(copy)?;
        let manifest = sources.join("Cargo.toml");
        let text = fs::read_to_string(&manifest).map_err(context)?;
        fs::write(&manifest, format!("{text}\n[workspace]\n")).map_err(context)?;
    }
    let mut build = command::command(&sources, "cargo test --features full --no-run --message-format=json");
    build.args(TESTS.iter().flat_map(|test| ["--test", test])).env(FLAGS.0, FLAGS.1);
    let program = |message: &serde_json::Value| {
        Some((message["target"]["name"].as_str()?.to_owned(), PathBuf::from(message["executable"].as_str()?)))
    };
    Ok(command::messages(build)?.iter().filter_map(program).collect())
}

/// Reads the output of a test program.
pub(super) fn parse(program: &str, text: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for line in text.lines() {
        let Some((name, outcome)) = line.strip_prefix("test ").and_then(|line| line.rsplit_once(" ... ")) else {
            continue;
        };
        let name = name.strip_suffix(" - should panic").unwrap_or(name);
        let outcome = match outcome.split(',').next().unwrap_or_default() {
            "ok" => Outcome::Passed,
            "ignored" => Outcome::Skipped,
            _ => Outcome::Failed,
        };
        outcomes.insert(format!("tokio.{program}.{name}"), outcome);
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_tokios_tests_is_read() {
        let text = "running 3 tests\ntest split ... ok\ntest panics - should panic ... FAILED\n\
            test other ... ignored, needs root\n\ntest result: FAILED. 1 passed";
        let expected = [
            ("tokio.udp.other", Outcome::Skipped),
            ("tokio.udp.panics", Outcome::Failed),
            ("tokio.udp.split", Outcome::Passed),
        ];
        assert!(parse("udp", text).into_iter().eq(expected.map(|(test, outcome)| (test.to_owned(), outcome))));
    }
}
