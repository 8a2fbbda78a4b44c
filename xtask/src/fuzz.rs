//! Fuzzing: the targets of `fuzz/`, built with coverage counters and driven by libFuzzer, which starts from the kept inputs.
//!
//! It works on the pinned stable toolchain, without cargo-fuzz and without a sanitizer. The counters are an LLVM pass that any
//! rustc can run. libFuzzer comes with its crate and needs a C++ compiler. The stack has no unsafe code for a sanitizer to
//! check; Miri and the tests check the ring's. Comparisons are not traced: inputs are programs whose numbers are filled in, so
//! tracing halves the speed and finds no more. New inputs stay in `target/fuzz/TARGET/corpus`. `--keep` rebuilds the kept inputs
//! from them: the fewest and shortest that reach every place.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use siga_sim::fuzz::{TARGETS, pack, unpack};

use crate::command;

/// Targets in the tests of crates that this one may not use: programs of their own play the inputs.
const OF_OTHERS: [&str; 2] = ["ring", "control"];

/// A target's name, and the function that plays an input in this process, if there is one.
type Chosen = (&'static str, Option<fn(&[u8])>);

/// Passes and options of the compiler that cargo-fuzz sets too, on any channel.
const RUSTFLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table";
/// Longest input that a fuzzer makes, and that is kept.
const INPUT_BYTES_MAX: usize = 1_000;
const KEPT_INPUT_BYTES_MAX: usize = 500;

/// An input that takes more than these seconds, or than these megabytes at once or in all, is a finding.
const BOUNDS: [&str; 3] = ["-timeout=10", "-malloc_limit_mb=32", "-rss_limit_mb=1024"];

/// What to fuzz.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The target: frames, dialogue, reassembly, ring or control; all in turn if none is named
    target: Option<String>,
    /// For how long each (90s, 10m, 2h)
    #[arg(long = "for", value_name = "TIME", value_parser = crate::sim::time, default_value = "10m")]
    time: Duration,
    /// Make the kept inputs anew from all that were found
    #[arg(long, conflicts_with = "input")]
    keep: bool,
    /// Play one input, without a fuzzer
    #[arg(long, value_name = "FILE", requires = "target")]
    input: Option<PathBuf>,
}

/// Fuzzes, or plays an input.
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
        eprintln!("{}: nothing wrong", path.display());
        return Ok(());
    }
    let programs = build(root)?;
    for (name, _) in chosen {
        let dirs = Dirs::new(root, name)?;
        eprintln!("==> {name}, for {:?}", options.time);
        command::run(dirs.fuzz(&programs.join(name), options.time)).map_err(|error| {
            format!("{error}\nreproduce: cargo xtask fuzz {name} --input FILE, of those in {}", dirs.found.display())
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

fn chosen(name: Option<&str>) -> Result<Vec<Chosen>, String> {
    let chosen: Vec<_> = all().filter(|(known, _)| name.is_none_or(|name| name == *known)).collect();
    let names = || all().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
    if chosen.is_empty() { Err(format!("there is no such target; there are {}", names())) } else { Ok(chosen) }
}

/// Builds all targets and says where they are.
fn build(root: &Path) -> Result<PathBuf, String> {
    let version = command::output(command::command(root, "rustc -vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
    let line = "cargo build --release --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz --target";
    let mut build = command::command(root, line);
    build.arg(host).env("RUSTFLAGS", RUSTFLAGS);
    command::run(build)?;
    Ok(root.join("target/fuzz").join(host).join("release"))
}

/// Where a target's inputs are.
struct Dirs {
    /// The packs that git has: what reaches every place, and what broke a promise once.
    kept: PathBuf,
    kept_found: PathBuf,
    /// Inputs to begin with and those found to reach more.
    corpus: PathBuf,
    /// Inputs that broke a promise.
    found: PathBuf,
    small: PathBuf,
}

impl Dirs {
    /// Makes them, with the kept inputs unpacked.
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

    /// Packs the fewest inputs that reach every place that all of them reach, and those that broke a promise.
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

/// A pack; an empty one where there is none.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    match fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|error| format!("{}: {error}", path.display())),
    }
}

/// The inputs in a directory.
fn inputs(dir: &Path) -> Result<Vec<Vec<u8>>, String> {
    let wrong = |error| format!("{}: {error}", dir.display());
    let entries = fs::read_dir(dir).map_err(wrong)?;
    entries.map(|entry| fs::read(entry.map_err(wrong)?.path()).map_err(wrong)).collect()
}

/// Packs the inputs that are short enough, each once, the shortest first.
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
        assert!(chosen(Some("nothing")).unwrap_err().contains("frames, dialogue, reassembly, ring, control"));
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
