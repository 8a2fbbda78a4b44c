//! Runs a command in a virtual machine whose kernel has all features of Debian's packages: `cargo xtask vm`.
//!
//! The machine sees the source tree at the same path as outside. Its changes there stay in its memory, except in the directory
//! for results (`$OUT`). The command's stdout, stderr and exit status become those of this program. If the machine fails, one
//! line on stderr says why, and the exit status is 3. Nothing is installed; all files are below `target/vm`.

mod accelerator;
mod image;
mod initramfs;
mod machine;
mod modules;
mod qemu;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use image::Image;
use initramfs::Job;
use machine::{Failure, Size};
use qemu::Accelerator;
pub(crate) use qemu::PROGRAM as QEMU;

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
    /// Load this module of the kernel before the command; may be repeated
    #[arg(long = "module", value_name = "NAME")]
    modules: Vec<String>,
    /// Time limit for the start of the machine and the command, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// The directory for results, which the command finds in `$OUT`
    #[arg(long, value_name = "DIRECTORY", default_value = "target/vm/out")]
    out: PathBuf,
    /// The command with its arguments, after `--`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the command and returns its exit status.
pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    let cache = root.join("target/vm");
    let outcome = run_in(root, &cache, options);
    let status = outcome.unwrap_or_else(|failure| {
        eprintln!("error: {}", describe(&failure, &cache));
        FAILED
    });
    ExitCode::from(status)
}

fn run_in(root: &Path, cache: &Path, options: &Options) -> Result<u8, Failure> {
    let before_start = |what: String| Failure { what, console: Vec::new() };
    program(qemu::PROGRAM.0, qemu::PROGRAM.1).map_err(before_start)?;
    program("setpriv", "util-linux").map_err(before_start)?;
    let image = Image::get(root, cache, options.kernel.as_deref()).map_err(before_start)?;
    for module in &options.modules {
        image.modules.check(module).map_err(before_start)?;
    }
    let job = job(root, options).map_err(before_start)?;
    let accelerator = accelerator::choose(&image, cache).map_err(before_start)?;
    match accelerator {
        Accelerator::Kvm => eprintln!("vm: Linux {} under KVM", image.release()),
        Accelerator::Tcg => eprintln!("vm: Linux {}, emulated: rates and CPU times mean nothing", image.release()),
    }
    let size = Size { cpus: options.cpus, memory_mib: options.memory };
    machine::run(&image, accelerator, size, &job, Duration::from_secs(options.timeout))
}

/// Returns the job for the command. It starts in the caller's directory if the machine has that directory.
fn job(root: &Path, options: &Options) -> Result<Job, String> {
    let out = root.join(&options.out);
    let context = |error| format!("{}: {error}", out.display());
    fs::create_dir_all(&out).map_err(context)?;
    let here = env::current_dir().ok().filter(|here| here.starts_with(root));
    Ok(Job::Run {
        command: options.command.clone(),
        directory: here.unwrap_or_else(|| root.to_owned()),
        tree: root.to_owned(),
        out: out.canonicalize().map_err(context)?,
        modules: options.modules.clone(),
    })
}

/// Returns the line for `failure`. Keeps the console's messages, if there are any, in a file that the line names.
fn describe(failure: &Failure, cache: &Path) -> String {
    let what = &failure.what;
    if failure.console.is_empty() {
        return what.clone();
    }
    let path = cache.join("console.log");
    match fs::write(&path, &failure.console) {
        Ok(()) => format!("{what} (the console's messages are in {})", path.display()),
        Err(error) => format!("{what} (the console's messages are lost: {}: {error})", path.display()),
    }
}

/// Returns an error that names the Debian package if `name` is not in `PATH`.
pub(crate) fn program(name: &str, package: &str) -> Result<(), String> {
    let path = env::var_os("PATH").unwrap_or_default();
    if env::split_paths(&path).any(|directory| directory.join(name).is_file()) {
        return Ok(());
    }
    Err(format!("{name} is missing; it is in the Debian package {package}"))
}

/// Parses a size of memory in MiB or GiB.
fn memory_mib(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_suffix(['G', 'g']) {
        Some(number) => number.parse::<u32>().ok().and_then(|number| number.checked_mul(1_024)),
        None => text.strip_suffix(['M', 'm']).and_then(|number| number.parse().ok()),
    };
    match parsed {
        None => Err("a number with M or G is needed, like 512M or 2G".to_owned()),
        Some(0..MEMORY_MIB_MIN) => Err(format!("at least {MEMORY_MIB_MIN}M is needed")),
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
        assert_eq!(error, "no-such-program-anywhere is missing; it is in the Debian package some-package");
    }

    #[test]
    fn a_failure_says_where_the_messages_of_the_console_are() {
        let cache = tempfile::tempdir().unwrap();
        let failure = |console: &[u8]| Failure { what: "it hangs".to_owned(), console: console.to_vec() };
        assert_eq!(describe(&failure(b""), cache.path()), "it hangs");
        let line = describe(&failure(b"[ 1.0] boot"), cache.path());
        let path = cache.path().join("console.log");
        assert_eq!(line, format!("it hangs (the console's messages are in {})", path.display()));
        assert_eq!(fs::read(path).unwrap(), b"[ 1.0] boot");
    }
}
