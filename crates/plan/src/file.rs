//! Reads files that a user has named. Only regular files up to a size limit are read.

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads the whole text of a file that the caller or the caller's plan has named. Symbolic links are followed.
///
/// # Errors
/// The file is not a regular file, is larger than `most` bytes or is not UTF-8, or the kernel returns an error.
pub fn read_named(path: &Path, most: u64) -> io::Result<String> {
    // With NONBLOCK, opening a FIFO does not wait for a writer. The file's type is checked next.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty())?);
    need_regular(&fstat(&file)?)?;
    read_bounded(&file, most)
}

/// Reads the whole text of an open file.
///
/// # Errors
/// The file is larger than `most` bytes or is not UTF-8, or the kernel returns an error.
pub fn read_bounded(file: &File, most: u64) -> io::Result<String> {
    let too_long = || io::Error::other(format!("the file has more than {most} bytes"));
    if file.metadata()?.len() > most {
        return Err(too_long());
    }
    let mut text = String::new();
    // The file can grow while it is read, so the length is checked again below.
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most { Err(too_long()) } else { Ok(text) }
}

/// Checks that a file is a regular file.
///
/// # Errors
/// The file has another type. The error names the type.
pub fn need_regular(stat: &Stat) -> io::Result<()> {
    let file_type = FileType::from_raw_mode(stat.st_mode);
    if file_type == FileType::RegularFile {
        return Ok(());
    }
    Err(io::Error::other(format!("expected a regular file, but the name belongs to {}", type_name(file_type))))
}

/// Returns a type of file in words, as error messages need it.
pub fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "a file of an unknown type",
    }
}
