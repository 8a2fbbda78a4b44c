//! Finds a program and says whether the preload library can serve it.

use super::elf::{Elf, HEAD_BYTES};
use siga_model::error::{Error, IoContext, Result};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The number of scripts that may interpret each other, as in the kernel.
const SCRIPTS_MAX: u32 = 5;
/// The beginning of the names of the libraries through which C programs use io_uring: liburing.so.2, liburing-ffi.so.2.
const LIBRARY_OF_IO_URING: &str = "liburing";
/// The mode bits with which a program changes its user or group.
const SET_ID: u32 = 0o6000;

/// A program file.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
}

/// The answer to the question whether the preload library can serve a program that is not refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The library can serve the program.
    Runs,
    /// The library can serve the program only without io_uring, but the program is linked with this library, which offers io_uring.
    RunsWithoutIoUring(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runs => f.write_str("runs with the preload library"),
            Self::RunsWithoutIoUring(library) => write!(
                f,
                "runs with the preload library, but without io_uring; because it is linked with {library}, siga exec without --tier \
                 prefers a network namespace"
            ),
        }
    }
}

impl Program {
    /// Finds a program as a shell does: a name without a slash is looked up in the directories of `PATH`.
    ///
    /// # Errors
    /// Returns an error if there is no such program.
    pub(super) fn find(name: &OsStr) -> Result<Self> {
        let runs =
            |path: &Path| path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
        if name.as_encoded_bytes().contains(&b'/') {
            let path = PathBuf::from(name);
            return if runs(&path) { Ok(Self { path }) } else { Err(not_found(name)) };
        }
        let directories = std::env::var_os("PATH").unwrap_or_default();
        let candidates = std::env::split_paths(&directories).map(|directory| directory.join(name));
        candidates.into_iter().find(|path| runs(path)).map(|path| Self { path }).ok_or_else(|| not_found(name))
    }

    /// Returns how the program runs.
    ///
    /// # Errors
    /// Returns an error with the reason if it cannot run with the preload library.
    pub(super) fn verdict(&self) -> Result<Verdict> {
        let mut path = self.path.clone();
        for _ in 0..SCRIPTS_MAX {
            let metadata = fs::metadata(&path).context(format!("cannot examine {}", path.display()))?;
            if metadata.permissions().mode() & SET_ID != 0 {
                return Err(refused(
                    &path,
                    "the program changes its user or group (setuid), so the loader does not load the preload library",
                ));
            }
            let mut head = Vec::new();
            let file = File::open(&path).context(format!("cannot read {}", path.display()))?;
            (&file).take(HEAD_BYTES).read_to_end(&mut head).context(format!("cannot read {}", path.display()))?;
            match script_interpreter(&head) {
                Some(interpreter) => path = interpreter,
                None => return judge(&path, &Elf { file: &file, head: &head }),
            }
        }
        Err(refused(&self.path, "too many scripts are nested as interpreters of each other"))
    }
}

fn not_found(name: &OsStr) -> Error {
    Error::usage(format!("there is no executable program {}", name.display()))
}

fn refused(path: &Path, why: &str) -> Error {
    Error::environment(format!("{} cannot use a guest's sockets: {why}", path.display()))
}

/// Returns the interpreter of a script.
fn script_interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let name = line.trim_ascii().split(|byte| *byte == b' ' || *byte == b'\t').next()?;
    Some(PathBuf::from(std::str::from_utf8(name).ok()?))
}

/// Checks that a program is dynamically linked with glibc.
fn judge(path: &Path, elf: &Elf<'_>) -> Result<Verdict> {
    if !elf.has_magic() {
        return Err(refused(path, "the file is not a program file (ELF)"));
    }
    if !elf.is_of_own_machine() {
        return Err(refused(path, "the program was built for another CPU architecture"));
    }
    match elf.interpreter() {
        None => Err(refused(path, "the program is statically linked, so the preload library cannot be loaded")),
        Some(name) if name.contains("ld-musl") => {
            Err(refused(path, "the program is linked with musl, but the preload library needs glibc"))
        }
        Some(_) if is_go(elf.head) => {
            Err(refused(path, "the program was built by Go, whose runtime makes its system calls without libc"))
        }
        Some(_) => {
            let of_io_uring = elf.libraries().into_iter().find(|name| name.starts_with(LIBRARY_OF_IO_URING));
            Ok(of_io_uring.map_or(Verdict::Runs, Verdict::RunsWithoutIoUring))
        }
    }
}

/// Returns whether a file has the note with which Go marks its programs, also those that it links with glibc.
fn is_go(head: &[u8]) -> bool {
    /// The length of the name, a length of the build ID below 256, the type, and the name, in the byte order of the machine.
    const PARTS: (&[u8], &[u8]) = if cfg!(target_endian = "little") {
        (&[4, 0, 0, 0], b"\0\0\0\x04\0\0\0Go\0\0")
    } else {
        (&[0, 0, 0, 4, 0, 0, 0], b"\0\0\0\x04Go\0\0")
    };
    let (before, after) = PARTS;
    head.windows(before.len() + 1 + after.len()).any(|bytes| bytes.starts_with(before) && bytes.ends_with(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(name: &str) -> String {
        Program::find(OsStr::new(name)).unwrap().verdict().unwrap_err().to_string()
    }

    #[test]
    fn a_dynamic_program_and_a_script_can_run() {
        assert_eq!(Program::find(OsStr::new("sh")).unwrap().verdict().unwrap(), Verdict::Runs);
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        fs::write(&script, "#! /bin/sh -e\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Program::find(script.as_os_str()).unwrap().verdict().is_ok());
    }

    #[test]
    fn a_program_that_the_library_cannot_serve_is_refused_with_the_reason() {
        let own = std::env::current_exe().unwrap();
        assert!(why(own.to_str().unwrap()).contains("statically linked"));
        let dir = tempfile::tempdir().unwrap();
        let made = |name: &str, bytes: &[u8], mode: u32| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let shell = fs::read("/bin/sh").unwrap();
        assert!(why(&made("setuid", &shell, 0o4755)).contains("setuid"));
        assert!(why(&made("text", b"no program", 0o755)).contains("not a program file"));
        let mut foreign = shell.clone();
        foreign[super::super::elf::field::MACHINE.start] = 0xff;
        assert!(why(&made("foreign", &foreign, 0o755)).contains("another CPU architecture"));
        let at = shell.windows(7).position(|bytes| bytes == b"ld-linu").unwrap();
        let mut musl = shell.clone();
        musl[at..at + 7].copy_from_slice(b"ld-musl");
        assert!(why(&made("musl", &musl, 0o755)).contains("musl"));
        // The note of Go with a build ID of 83 bytes, in place of the bytes behind the interpreter's name.
        let note = [&4_u32.to_ne_bytes()[..], &83_u32.to_ne_bytes(), &4_u32.to_ne_bytes(), b"Go\0\0"].concat();
        let mut go = shell.clone();
        go[at + 40..at + 40 + note.len()].copy_from_slice(&note);
        assert!(why(&made("go", &go, 0o755)).contains("built by Go"));
        // A header that points outside of the file counts as none.
        for len in [5, 40, 64, 100] {
            assert!(Program::find(OsStr::new(&made("short", &shell[..len], 0o755))).unwrap().verdict().is_err());
        }
        assert!(Program::find(OsStr::new("no-such-program")).is_err());
        made("loop", format!("#!{}\n", dir.path().join("loop").display()).as_bytes(), 0o755);
        assert!(why(dir.path().join("loop").to_str().unwrap()).contains("nested as interpreters"));
    }
}
