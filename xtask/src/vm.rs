//! Runs a command in a virtual machine whose kernel has all features of Debian's packages: `cargo xtask vm`.
//!
//! The machine sees the source tree at the same path as outside. Its changes there stay in its memory, except in the directory
//! for results (`$OUT`). The command's stdout, stderr and exit status become those of this program. If the machine fails, one
//! line on stderr says why, and the exit status is 3. Nothing is installed; all files are below `target/vm`.

mod accelerator;
mod directories;
mod image;
mod initramfs;
mod kernel;
mod machine;
mod modules;
mod packages;
mod qemu;
mod run;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use image::Image;
use initramfs::Job;
use machine::Size;
use qemu::Accelerator;
pub(crate) use qemu::PROGRAM as QEMU;
use run::Run;

/// The exit status if the machine failed.
const FAILED: u8 = 3;

/// The smallest memory with which the kernel and its modules start.
const MEMORY_MIB_MIN: u32 = 256;

/// The options of `cargo xtask vm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The release of a packaged kernel, such as 6.1.0-56 (default: the newest that apt knows)
    #[arg(long, value_name = "VERSION")]
    kernel: Option<String>,
    /// Number of CPUs
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
    /// Size of the memory (512M, 2G)
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = memory_mib)]
    memory: u32,
    /// Load the kernel module with this name or alias before the command; can be used several times
    #[arg(long = "module", value_name = "NAME")]
    modules: Vec<String>,
    /// Time limit for the start of the machine and the command, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// Directory for results; the command finds its path in `$OUT` (default: a new directory,
    /// target/vm/runs/NUMBER/out)
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// The command with its arguments, after `--`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the command and returns its exit status.
pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    let status = run_in(root, &root.join("target/vm"), options).unwrap_or_else(|what| {
        eprintln!("error: {}", one_line(&what));
        FAILED
    });
    ExitCode::from(status)
}

fn run_in(root: &Path, cache: &Path, options: &Options) -> Result<u8, String> {
    program(qemu::PROGRAM.0, qemu::PROGRAM.1)?;
    program("setpriv", "util-linux")?;
    let image = Image::get(cache, options.kernel.as_deref())?;
    for module in &options.modules {
        image.modules.check(module)?;
    }
    let run = Run::new(cache)?;
    let job = job(root, &run, options)?;
    let accelerator = accelerator::choose(&image, cache)?;
    match accelerator {
        Accelerator::Kvm => eprintln!("vm: Linux {} under KVM", image.release()),
        Accelerator::Tcg => {
            eprintln!("vm: Linux {}, emulated: rates and CPU times are not meaningful", image.release());
        }
    }
    let size = Size { cpus: options.cpus, memory_mib: options.memory };
    let outcome = machine::run(&image, accelerator, size, &job, Duration::from_secs(options.timeout));
    if let Some(results) = run.results() {
        eprintln!("vm: the results are in {}", results.display());
    }
    outcome.map_err(|failure| run.describe(&failure))
}

/// Returns the job for the command. It starts in the caller's directory if the machine has that directory.
fn job(root: &Path, run: &Run, options: &Options) -> Result<Job, String> {
    let out = match &options.out {
        Some(out) => shared(root, &root.join(out))?,
        None => run.out()?,
    };
    let here = env::current_dir().ok().filter(|here| here.starts_with(root));
    Ok(Job::Run {
        command: options.command.clone(),
        directory: here.unwrap_or_else(|| root.to_owned()),
        tree: root.to_owned(),
        out,
        modules: options.modules.clone(),
    })
}

/// Makes the directory `out` and returns its path without links. The machine may write to it, so it must not contain `root`.
fn shared(root: &Path, out: &Path) -> Result<PathBuf, String> {
    let context = |error| format!("{}: {error}", out.display());
    fs::create_dir_all(out).map_err(context)?;
    let out = out.canonicalize().map_err(context)?;
    if root.starts_with(&out) {
        return Err(format!("the machine must not write to {}, which contains the source tree", out.display()));
    }
    Ok(out)
}

/// Returns `text` with spaces in place of control characters, because the machine may have written a part of it.
fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// Returns an error that names the Debian package if `name` is not in `PATH`.
pub(crate) fn program(name: &str, package: &str) -> Result<(), String> {
    let path = env::var_os("PATH").unwrap_or_default();
    if env::split_paths(&path).any(|directory| directory.join(name).is_file()) {
        return Ok(());
    }
    Err(format!("the program {name} is missing; install the Debian package {package}"))
}

/// Parses a size of memory in MiB or GiB.
fn memory_mib(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_suffix(['G', 'g']) {
        Some(number) => number.parse::<u32>().ok().and_then(|number| number.checked_mul(1_024)),
        None => text.strip_suffix(['M', 'm']).and_then(|number| number.parse().ok()),
    };
    match parsed {
        None => Err("write a number followed by M or G, such as 512M or 2G".to_owned()),
        Some(0..MEMORY_MIB_MIN) => Err(format!("the machine needs at least {MEMORY_MIB_MIN}M")),
        Some(size) => Ok(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_memory_have_a_unit_and_a_minimum() {
        assert_eq!(memory_mib("512M"), Ok(512));
        assert_eq!(memory_mib("2G"), Ok(2_048));
        for text in ["", "G", "1024", "1.5G", "-1M", "255M", "0G", "4194304G", "10K"] {
            assert!(memory_mib(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        assert_eq!(program("sh", "dash"), Ok(()));
        let error = program("no-such-program-anywhere", "some-package").unwrap_err();
        assert_eq!(error, "the program no-such-program-anywhere is missing; install the Debian package some-package");
    }

    #[test]
    fn an_error_is_one_line_without_control_characters() {
        assert_eq!(one_line("a\nb\u{1b}[2J\u{9b}c\r"), "a b [2J c ");
    }

    #[test]
    fn the_directory_for_results_must_not_contain_the_source_tree() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().canonicalize().unwrap().join("tree");
        assert_eq!(shared(&root, &root.join("target/out")), Ok(root.join("target/out")));
        for out in [&root, parent.path(), Path::new("/")] {
            assert!(shared(&root, out).unwrap_err().contains("contains the source tree"), "{}", out.display());
        }
    }
}
