//! The output of an export: a file, a device, or an open writer such as standard output.
//!
//! A file gets its final name only when it is complete. If the export fails, an earlier file with this name stays unchanged.

use siga_model::error::{Error, Result};
use siga_results::directory::Directory;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::path::Path;

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
    /// Returns an error of kind `Environment` if the file cannot be written, or if a symbolic link of another user leads to it.
    pub fn file(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let (directory, goal) = Directory::around(path).map_err(|error| cannot(&name, error))?;
        Self::at(directory, &goal, name)
    }

    /// Returns an output to the file `goal` in an open directory. `name` is the name of the output in messages.
    ///
    /// # Errors
    /// Returns the errors of `file`.
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

    /// Returns the name of the output for messages.
    pub fn name(&self) -> &str {
        &self.name
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

/// Returns an unpredictable number.
fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    let count = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if count == bytes.len() { Ok(u64::from_ne_bytes(bytes)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Returns the error for an output that cannot be written.
pub(super) fn cannot(name: &str, error: impl fmt::Display) -> Error {
    Error::environment(format!("cannot write to {name}: {error}"))
        .hint("give another file with --output, or make room for this one")
}
