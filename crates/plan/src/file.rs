//! Reading files that a user has named: regular files, with a bound.

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The whole text of a file that the caller, or a plan of the caller's, has named: links are followed, and it is a regular
/// file of up to `most` bytes.
///
/// # Errors
/// It is none, or no text. Else the kernel's.
pub fn read_named(path: &Path, most: u64) -> io::Result<String> {
    // A pipe without a writer is refused, not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty())?);
    need_regular(&fstat(&file)?)?;
    read_bounded(&file, most)
}

/// The whole text of an open file of up to `most` bytes.
///
/// # Errors
/// It is longer, or no text. Else the kernel's.
pub fn read_bounded(file: &File, most: u64) -> io::Result<String> {
    let too_long = || io::Error::other(format!("it has more than {most} bytes"));
    if file.metadata()?.len() > most {
        return Err(too_long());
    }
    let mut text = String::new();
    // It may grow meanwhile.
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most { Err(too_long()) } else { Ok(text) }
}

/// Fails unless it is a regular file.
///
/// # Errors
/// It is another type of file.
pub fn need_regular(stat: &Stat) -> io::Result<()> {
    let file_type = FileType::from_raw_mode(stat.st_mode);
    if file_type == FileType::RegularFile {
        return Ok(());
    }
    Err(io::Error::other(format!("it is {}, no regular file", type_name(file_type))))
}

/// A type of file in words.
pub fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    }
}
