//! The output of a report or an export: a file, a device, or an open writer such as standard output.
//!
//! A file gets its final name only when it is complete. If writing fails, an earlier file with this name stays unchanged. An
//! earlier file is replaced only if siga wrote it.

use siga_model::error::{Error, Result};
use siga_results::directory::Directory;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

/// The first bytes of each report.
pub(crate) const REPORT: &str = "<!DOCTYPE html><!-- siga report -->";
/// The beginning of a flame graph.
pub(crate) const FLAME_GRAPH: &str = "<?xml version=\"1.0\" standalone=\"no\"?><!-- siga flame graph -->";
/// The first bytes of each configuration file for Otava.
pub(crate) const OTAVA_CONFIG: &str = "tests:\n  siga:\n    type: csv\n";
/// The first bytes of every kind of file that siga writes. The two kinds of CSV begin with the names of their first columns.
const BEGINNINGS: [&str; 5] = [REPORT, OTAVA_CONFIG, FLAME_GRAPH, "run,plan,smoke,at,", "time,run,siga,kernel,"];
/// No element of `BEGINNINGS` is longer than this.
const BEGINNING_BYTES_MAX: u64 = 64;
const ELSEWHERE: &str = "choose another file with --output";

/// An open output, with a name for messages. A file gets its final name in `finish`. If the output is dropped without `finish`,
/// its file is removed.
pub struct Output<'a> {
    name: String,
    to: BufWriter<Box<dyn Write + 'a>>,
    /// The temporary file; `None` for a writer or a device, and after `finish`.
    part: Option<Part>,
}

/// A temporary file with an unpredictable name.
#[derive(Debug)]
struct Part {
    directory: Directory,
    name: OsString,
    /// The final name of the file.
    goal: OsString,
}

impl<'a> Output<'a> {
    /// Returns an output to a writer that is already open.
    pub fn new(name: impl Into<String>, to: impl Write + 'a) -> Self {
        Self { name: name.into(), to: BufWriter::new(Box::new(to)), part: None }
    }

    /// Returns an output to a file. The output writes a temporary file in the same directory and renames it in `finish`. If `path`
    /// is a device or a pipe, the output writes to it directly.
    ///
    /// # Errors
    /// - Usage: the file exists and siga did not write it, or it is a directory.
    /// - Environment: the file cannot be written, or a symbolic link that belongs to another user leads to it.
    pub fn file(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let (directory, goal) = Directory::around(path).map_err(|error| cannot(&name, error))?;
        Self::at(directory, &goal, name)
    }

    /// Returns an output to the file `name` in a directory that the caller named only to read it. siga therefore writes there only
    /// if no other user can change the directory, and it follows no symbolic link.
    ///
    /// # Errors
    /// Returns the errors of `file`, and an error of kind `Usage` if the entry `name` is not a regular file.
    pub fn inside(directory: &Path, name: &str) -> Result<Self> {
        let shown = directory.join(name).display().to_string();
        let refuse = |error: io::Error| cannot(&shown, error);
        let own = Directory::own(directory).map_err(refuse)?;
        if own.entry(name).map_err(refuse)?.is_some_and(|entry| !entry.is_file()) {
            return Err(Error::usage(format!("{shown} is not a regular file")).hint(ELSEWHERE));
        }
        Self::at(own, name.as_ref(), shown)
    }

    /// Returns an output to the file `goal` in an open directory. `name` is the name of the output in messages.
    fn at(directory: Directory, goal: &OsStr, name: String) -> Result<Self> {
        let refuse = |error: io::Error| cannot(&name, error);
        let there = directory.entry(goal).map_err(refuse)?;
        let keep = |what| Err(Error::usage(format!("{name} {what}")).hint(ELSEWHERE));
        if there.is_some_and(|entry| entry.is_directory()) {
            return keep("is a directory");
        }
        if there.is_some_and(|entry| entry.is_file()) {
            if !is_ours(directory.open_file(goal).map_err(refuse)?).map_err(refuse)? {
                return keep("was not written by siga, so siga does not replace this file");
            }
        } else if there.is_some() {
            let device = directory.open_device(goal).map_err(refuse)?;
            return Ok(Self { name, to: BufWriter::new(Box::new(device)), part: None });
        }
        let mut beside = goal.to_owned();
        beside.push(format!(".{:016x}.part", random().map_err(refuse)?));
        let file = directory.create_new(&beside).map_err(refuse)?;
        let part = Part { directory, name: beside, goal: goal.to_owned() };
        Ok(Self { name, to: BufWriter::new(Box::new(file)), part: Some(part) })
    }

    /// Returns the name of the output for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes a text.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if the output cannot be written.
    pub fn put(&mut self, text: &str) -> Result<()> {
        self.write_all(text.as_bytes()).map_err(|error| cannot(&self.name, error))
    }

    /// Writes the bytes that are still buffered, and renames a temporary file to its final name.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if the output cannot be written. An earlier file with the same name then stays
    /// unchanged.
    pub fn finish(mut self) -> Result<()> {
        self.to.flush().map_err(|error| cannot(&self.name, error))?;
        if let Some(Part { directory, name, goal }) = &self.part {
            directory.rename(name, goal).map_err(|error| cannot(&self.name, error))?;
            self.part = None;
        }
        Ok(())
    }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        if let Some(Part { directory, name, .. }) = &self.part {
            // An incomplete file is useless, so it is removed. A failure to remove it is ignored, because the caller already has
            // the error that prevented `finish`.
            let _ = directory.remove(name);
        }
    }
}

impl fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("name", &self.name).field("part", &self.part).finish_non_exhaustive()
    }
}

/// Returns true if the file is empty or begins as the reports and exports of siga do.
fn is_ours(file: File) -> io::Result<bool> {
    let mut beginning = Vec::new();
    file.take(BEGINNING_BYTES_MAX).read_to_end(&mut beginning)?;
    Ok(beginning.is_empty() || BEGINNINGS.iter().any(|known| beginning.starts_with(known.as_bytes())))
}

/// Returns an unpredictable number.
fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    let count = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if count == bytes.len() { Ok(u64::from_ne_bytes(bytes)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Returns the error for an output that cannot be written.
pub(crate) fn cannot(name: &str, error: impl fmt::Display) -> Error {
    Error::environment(format!("cannot write to {name}: {error}"))
        .hint("choose another file with --output, or free disk space")
}
