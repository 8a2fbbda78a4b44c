//! libuv's own tests. Their sources are in the source distribution of uvloop, which pip downloads. CMake and Ninja build them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Outcome, Outcomes};
use crate::{command, vm};

/// The version of uvloop, and the hash of its source distribution.
const REQUIREMENT: &str =
    "uvloop==0.23.0 --hash=sha256:28d160f51ab4da3b187063652e643dea6831072add4adc1e6d62afbe73b6be27\n";
const ARCHIVE: &str = "uvloop-0.23.0.tar.gz";
const SOURCES: &str = "uvloop-0.23.0/vendor/libuv";

/// What the tests need, with the Debian package of each.
const NEEDED: [(&str, &str); 4] =
    [("pip", "python3-pip"), ("cmake", "cmake"), ("ninja", "ninja-build"), ("gcc", "gcc")];

/// Returns why the tests cannot be built on this host, or `None`.
pub(super) fn missing() -> Option<String> {
    NEEDED.into_iter().find_map(|(name, package)| vm::program(name, package).err())
}

/// Downloads and builds the tests, unless they were built before. Returns their program.
pub(super) fn build(place: &Path) -> Result<PathBuf, String> {
    let (sources, built) = (place.join(SOURCES), place.join("build"));
    let program = built.join("uv_run_tests");
    if program.exists() {
        return Ok(program);
    }
    let context = |error: std::io::Error| format!("{}: {error}", place.display());
    fs::create_dir_all(place).map_err(context)?;
    let requirement = place.join("requirement.txt");
    fs::write(&requirement, REQUIREMENT).map_err(context)?;
    let run = |line: &str| command::output(command::command(place, line)).map(|_| ());
    if !place.join(ARCHIVE).exists() {
        run("pip download --quiet --no-deps --no-binary :all: --require-hashes --dest . -r requirement.txt")?;
    }
    run(&format!("tar -xzf {ARCHIVE}"))?;
    let mut configure = command::command(place, "cmake -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=ON");
    configure.arg("-S").arg(&sources).arg("-B").arg(&built);
    command::output(configure)?;
    let mut build = command::command(place, "ninja uv_run_tests");
    build.arg("-C").arg(&built);
    command::output(build)?;
    Ok(program)
}

/// Completes the command that runs the program. The tests may run as root, and find their fixtures in the sources.
pub(super) fn prepare(command: &mut Command, place: &Path) {
    command.env("UV_RUN_AS_ROOT", "1").current_dir(place.join(SOURCES));
}

/// The beginning of the names of these tests in the results.
const PREFIX: &str = "libuv.";

/// Returns the name of a test as the program knows it.
pub(super) fn name(test: &str) -> &str {
    test.strip_prefix(PREFIX).unwrap_or(test)
}

/// Reads the output of the tests (Test Anything Protocol).
pub(super) fn parse(text: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for line in text.lines() {
        let (passed, rest) = match (line.strip_prefix("ok "), line.strip_prefix("not ok ")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => continue,
        };
        let Some((_, name)) = rest.split_once(" - ") else { continue };
        let (name, skipped) = name.split_once(" # SKIP").map_or((name, false), |(name, _)| (name, true));
        let outcome = match (passed, skipped) {
            (_, true) => Outcome::Skipped,
            (true, false) => Outcome::Passed,
            (false, false) => Outcome::Failed,
        };
        outcomes.insert(format!("{PREFIX}{}", name.trim()), outcome);
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_libuvs_tests_is_read() {
        let found = parse("1..4\nok 1 - tcp_open\nnot ok 2 - udp_open\n# exit code 6\nok 3 - fs_event # SKIP no\nok 4");
        let expected = [
            ("libuv.fs_event", Outcome::Skipped),
            ("libuv.tcp_open", Outcome::Passed),
            ("libuv.udp_open", Outcome::Failed),
        ];
        assert!(found.into_iter().eq(expected.map(|(test, outcome)| (test.to_owned(), outcome))));
    }
}
