//! Where an export goes: to a writer such as standard output, or to a file that is there whole or not at all.

use crate::error::{Error, Result};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// An open output with the name that messages have for it. Nothing but `finish` keeps a file.
pub struct Output<'a> {
    name: String,
    to: BufWriter<Box<dyn Write + 'a>>,
    /// Where the file is written, and where it goes once it is whole.
    part: Option<(PathBuf, PathBuf)>,
}

impl<'a> Output<'a> {
    /// An output to a writer that is open already.
    pub fn new(name: impl Into<String>, to: impl Write + 'a) -> Self {
        Self { name: name.into(), to: BufWriter::new(Box::new(to)), part: None }
    }

    /// An output to a file: written beside it as `FILE.part`, then renamed. A device or pipe is written to directly.
    ///
    /// # Errors
    /// Environment: it cannot be written.
    pub fn file(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let refuse = |error: io::Error| cannot(&name, error);
        let (there, part) = match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() => (path.to_owned(), None),
            // Through a symbolic link: the link stays one.
            Ok(_) => (path.canonicalize().map_err(refuse)?, Some(())),
            Err(_) => (path.to_owned(), Some(())),
        };
        let part = part.map(|()| {
            let mut beside = OsString::from(&there);
            beside.push(".part");
            (PathBuf::from(beside), there.clone())
        });
        let opened = match &part {
            Some((beside, _)) => File::create(beside),
            None => File::options().write(true).open(&there),
        };
        let file = opened.map_err(refuse)?;
        Ok(Self { name, to: BufWriter::new(Box::new(file)), part })
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes what is left and puts the file in its place.
    ///
    /// # Errors
    /// Environment: it cannot be written; what was in its place before stays.
    pub fn finish(mut self) -> Result<()> {
        self.to.flush().map_err(|error| cannot(&self.name, error))?;
        if let Some((beside, there)) = &self.part {
            fs::rename(beside, there).map_err(|error| cannot(&self.name, error))?;
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
        if let Some((beside, _)) = &self.part {
            // What is not whole is of no use, and the error that led here is told already.
            let _ = fs::remove_file(beside);
        }
    }
}

impl fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("name", &self.name).field("part", &self.part).finish_non_exhaustive()
    }
}

/// The error of an output that takes no more.
pub(super) fn cannot(name: &str, error: impl fmt::Display) -> Error {
    Error::environment(format!("cannot write to {name}: {error}"))
        .hint("give another file with --output, or make room for this one")
}
