//! The output of an export: a writer such as standard output, or a file that appears whole or not at all.

use siga_model::error::{Error, Result};
use siga_results::directory::Directory;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// An open output with its name for messages. A file is kept only by `finish`.
pub struct Output<'a> {
    name: String,
    to: BufWriter<Box<dyn Write + 'a>>,
    /// The temporary file until `finish`.
    part: Option<Part>,
}

/// A file under an unpredictable temporary name.
#[derive(Debug)]
struct Part {
    directory: Directory,
    name: OsString,
    /// The final name.
    goal: OsString,
}

impl<'a> Output<'a> {
    /// An output to a writer that is open already.
    pub fn new(name: impl Into<String>, to: impl Write + 'a) -> Self {
        Self { name: name.into(), to: BufWriter::new(Box::new(to)), part: None }
    }

    /// An output to a file: written beside it, then renamed. A device or pipe is written directly.
    ///
    /// # Errors
    /// Environment: it cannot be written, or a link of another user leads to it.
    pub fn file(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let (directory, goal) = Directory::around(path).map_err(|error| cannot(&name, error))?;
        Self::at(directory, &goal, name)
    }

    /// An output to a file of a directory; messages call it `name`.
    ///
    /// # Errors
    /// See `file`.
    pub fn at(directory: Directory, goal: &OsStr, name: String) -> Result<Self> {
        let refuse = |error: io::Error| cannot(&name, error);
        let there = directory.entry(goal).map_err(refuse)?;
        if there.is_some_and(|entry| !entry.is_file()) {
            let device = directory.open_device(goal).map_err(refuse)?;
            return Ok(Self { name, to: BufWriter::new(Box::new(device)), part: None });
        }
        let mut beside = goal.to_owned();
        beside.push(format!(".{:016x}.part", random().map_err(refuse)?));
        let file = directory.create_new(&beside).map_err(refuse)?;
        let part = Part { directory, name: beside, goal: goal.to_owned() };
        Ok(Self { name, to: BufWriter::new(Box::new(file)), part: Some(part) })
    }

    /// The name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes the rest and renames the file to its final name.
    ///
    /// # Errors
    /// Environment: it cannot be written; the previous file stays.
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
            // An incomplete file is useless. The caller already has the error that led here.
            let _ = directory.remove(name);
        }
    }
}

impl fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("name", &self.name).field("part", &self.part).finish_non_exhaustive()
    }
}

/// An unpredictable number.
fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    let count = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if count == bytes.len() { Ok(u64::from_ne_bytes(bytes)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The error of an output that cannot be written.
pub(super) fn cannot(name: &str, error: impl fmt::Display) -> Error {
    Error::environment(format!("cannot write to {name}: {error}"))
        .hint("give another file with --output, or make room for this one")
}
