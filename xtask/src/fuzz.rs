//! Fuzzing: the targets of `fuzz/`, built with coverage counters and run by libFuzzer, which starts from the stored corpus.
//!
//! Fuzzing needs only the pinned stable toolchain, without cargo-fuzz and without a sanitizer. An LLVM pass that any rustc can
//! run adds the counters. libFuzzer comes with its crate and needs a C++ compiler. A sanitizer would find nothing in the stack,
//! which has no unsafe code; Miri and the tests check the ring's unsafe code. Comparisons are not traced. An input is a program
//! whose numbers are filled in, so tracing would halve the speed and find no more. New inputs stay in
//! `target/fuzz/TARGET/corpus`. `--keep` rebuilds the stored corpus from them: the fewest and shortest inputs that together have
//! the same coverage.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use siga_sim::fuzz::{TARGETS, pack, unpack};

use crate::command;

/// Targets in the tests of crates on which this crate may not depend. Their own fuzz programs play the inputs.
const OF_OTHERS: [&str; 8] = ["ring", "direct", "control", "switch", "addresses", "cni", "filter", "blocks"];

/// A target's name, and the function that plays an input in this process; `None` if only the fuzz program can play it.
type Chosen = (&'static str, Option<fn(&[u8])>);

/// The compiler passes and options that cargo-fuzz sets as well. They work on every release channel.
const RUSTFLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table";
/// Length limits in bytes: of an input that the fuzzer makes, and of an input in the stored corpus.
const INPUT_BYTES_MAX: usize = 1_000;
const KEPT_INPUT_BYTES_MAX: usize = 500;

/// An input is a finding if it exceeds one of these: seconds, megabytes in one allocation, megabytes in total.
const BOUNDS: [&str; 3] = ["-timeout=10", "-malloc_limit_mb=32", "-rss_limit_mb=1024"];

/// The options of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The target: frames, dialogue, reassembly, ring, direct, control, switch, addresses, cni, filter or blocks (default: all targets, one after the other)
    target: Option<String>,
    /// Duration for each target, such as 90s, 10m or 2h
    #[arg(long = "for", value_name = "TIME", value_parser = crate::sim::time, default_value = "10m")]
    time: Duration,
    /// Replace the checked-in inputs by a minimal set that covers the same code
    #[arg(long, conflicts_with = "input")]
    keep: bool,
    /// Run the target once with the input in this file, without fuzzing
    #[arg(long, value_name = "FILE", requires = "target")]
    input: Option<PathBuf>,
}

/// Fuzzes the chosen targets, or plays one input.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let chosen = chosen(options.target.as_deref())?;
    if let Some(path) = &options.input {
        let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        for (name, play) in chosen {
            match play {
                Some(play) => play(&bytes),
                None => {
                    let mut program = std::process::Command::new(build(root)?.join(name));
                    program.arg(path);
                    command::run(program)?;
                }
            }
        }
        eprintln!("{}: no promise was broken", path.display());
        return Ok(());
    }
    let programs = build(root)?;
    for (name, _) in chosen {
        let dirs = Dirs::new(root, name)?;
        eprintln!("==> {name}, for {:?}", options.time);
        command::run(dirs.fuzz(&programs.join(name), options.time)).map_err(|error| {
            format!(
                "{error}\nreproduce: cargo xtask fuzz {name} --input FILE, with a file from {}",
                dirs.found.display()
            )
        })?;
        if options.keep {
            dirs.keep(&programs.join(name))?;
        }
    }
    Ok(())
}

fn all() -> impl Iterator<Item = Chosen> {
    TARGETS.into_iter().map(|(name, play)| (name, Some(play))).chain(OF_OTHERS.map(|name| (name, None)))
}

/// Returns the names of all targets.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    all().map(|(name, _)| name)
}

fn chosen(name: Option<&str>) -> Result<Vec<Chosen>, String> {
    let chosen: Vec<_> = all().filter(|(known, _)| name.is_none_or(|name| name == *known)).collect();
    let names = || names().collect::<Vec<_>>().join(", ");
    if chosen.is_empty() { Err(format!("there is no such target; the targets are {}", names())) } else { Ok(chosen) }
}

/// Builds all targets and returns their directory.
fn build(root: &Path) -> Result<PathBuf, String> {
    let version = command::output(command::command(root, "rustc -vV"))?;
    let host =
        version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("the output of rustc contains no host")?;
    let line = "cargo build --release --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz --target";
    let mut build = command::command(root, line);
    build.arg(host).env("RUSTFLAGS", RUSTFLAGS);
    command::run(build)?;
    Ok(root.join("target/fuzz").join(host).join("release"))
}

/// The paths of one target's inputs.
struct Dirs {
    /// The pack in git of inputs for coverage; `kept_found` is the pack of inputs that once broke a promise.
    kept: PathBuf,
    kept_found: PathBuf,
    /// The directory of the inputs from which the fuzzer starts, and of new inputs that increase the coverage.
    corpus: PathBuf,
    /// The directory of inputs that broke a promise.
    found: PathBuf,
    small: PathBuf,
}

impl Dirs {
    /// Makes the directories and unpacks the stored inputs into the corpus.
    fn new(root: &Path, name: &str) -> Result<Self, String> {
        let of = root.join("target/fuzz").join(name);
        let pack = |what| root.join("fuzz/corpus").join(format!("{name}{what}.bin"));
        let (kept, kept_found) = (pack(""), pack("-found"));
        let dirs =
            Self { kept, kept_found, corpus: of.join("corpus"), found: of.join("found"), small: of.join("small") };
        for dir in [&dirs.corpus, &dirs.found] {
            fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        }
        for (what, pack) in [("kept", &dirs.kept), ("found", &dirs.kept_found)] {
            for (at, input) in unpack(&read(pack)?).into_iter().enumerate() {
                let path = dirs.corpus.join(format!("{what}-{at:04}"));
                fs::write(&path, input).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        Ok(dirs)
    }

    fn fuzz(&self, program: &Path, time: Duration) -> std::process::Command {
        let mut fuzz = std::process::Command::new(program);
        fuzz.arg(format!("-max_total_time={}", time.as_secs()));
        fuzz.arg(format!("-max_len={INPUT_BYTES_MAX}")).args(["-len_control=0", "-print_final_stats=1"]);
        fuzz.args(BOUNDS);
        fuzz.arg(format!("-artifact_prefix={}/", self.found.display())).arg(&self.corpus);
        fuzz
    }

    /// Packs the fewest inputs that have the coverage of all inputs together, and the inputs that broke a promise.
    fn keep(&self, program: &Path) -> Result<(), String> {
        let wrong = |error| format!("{}: {error}", self.small.display());
        drop(fs::remove_dir_all(&self.small));
        fs::create_dir_all(&self.small).map_err(wrong)?;
        let mut merge = std::process::Command::new(program);
        merge.args(["-merge=1", "-use_counters=0"]).arg(format!("-max_len={KEPT_INPUT_BYTES_MAX}"));
        merge.arg(&self.small).arg(&self.corpus);
        command::run(merge)?;
        write(&self.kept, inputs(&self.small)?)?;
        let mut found = inputs(&self.found)?;
        found.extend(unpack(&read(&self.kept_found)?).into_iter().map(<[u8]>::to_vec));
        write(&self.kept_found, found)
    }
}

/// Reads a pack. A file that does not exist is an empty pack.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    match fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|error| format!("{}: {error}", path.display())),
    }
}

/// Reads the inputs in a directory.
fn inputs(dir: &Path) -> Result<Vec<Vec<u8>>, String> {
    let wrong = |error| format!("{}: {error}", dir.display());
    let entries = fs::read_dir(dir).map_err(wrong)?;
    entries.map(|entry| fs::read(entry.map_err(wrong)?.path()).map_err(wrong)).collect()
}

/// Packs the inputs within the length limit without duplicates, the shortest first.
fn write(path: &Path, mut inputs: Vec<Vec<u8>>) -> Result<(), String> {
    inputs.retain(|input| input.len() <= KEPT_INPUT_BYTES_MAX);
    inputs.sort_by(|one, other| one.len().cmp(&other.len()).then_with(|| one.cmp(other)));
    inputs.dedup();
    fs::write(path, pack(&inputs)).map_err(|error| format!("{}: {error}", path.display()))?;
    eprintln!("{}: {} inputs", path.display(), inputs.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_one_of_those_there_are() {
        assert_eq!(chosen(None).unwrap().len(), TARGETS.len() + OF_OTHERS.len());
        assert!(chosen(Some("ring")).unwrap()[0].1.is_none());
        assert_eq!(chosen(Some("dialogue")).unwrap()[0].0, "dialogue");
        assert!(
            chosen(Some("nothing")).unwrap_err().contains(
                "frames, dialogue, reassembly, ring, direct, control, switch, addresses, cni, filter, blocks"
            )
        );
    }

    #[test]
    fn every_target_has_a_program_in_the_other_workspace() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let manifest = fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap();
        for (name, play) in all() {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            let program = fs::read_to_string(root.join(format!("fuzz/fuzz_targets/{name}.rs"))).unwrap();
            let called = if play.is_some() { "siga_sim::fuzz" } else { "play" };
            assert!(program.contains(&format!("{called}::{name}(bytes)")), "{program}");
        }
    }

    #[test]
    fn one_input_is_played_without_a_fuzzer() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("input");
        fs::write(&path, [0; 40]).unwrap();
        let target = Some("reassembly".to_owned());
        let options = Options { target, time: Duration::ZERO, keep: false, input: Some(path.clone()) };
        run(root.path(), &options).unwrap();
        fs::remove_file(path).unwrap();
        assert!(run(root.path(), &options).is_err());
    }

    #[test]
    fn kept_inputs_are_unpacked_to_begin_with() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("fuzz/corpus")).unwrap();
        fs::write(root.path().join("fuzz/corpus/frames.bin"), pack(&[vec![1], vec![2, 3]])).unwrap();
        write(&root.path().join("fuzz/corpus/frames-found.bin"), vec![vec![5, 4], vec![6], vec![5, 4]]).unwrap();
        let dirs = Dirs::new(root.path(), "frames").unwrap();
        assert_eq!(fs::read(dirs.corpus.join("kept-0001")).unwrap(), [2, 3]);
        assert_eq!(fs::read(dirs.corpus.join("found-0001")).unwrap(), [5, 4]);
        assert_eq!(inputs(&dirs.corpus).unwrap().len(), 4);
    }
}
