//! Opens files that an attacker may have created or replaced. Reads are limited in size, and writes do not follow symbolic links.
//!
//! The type of a file is checked before the file is opened, so that no FIFO or device is opened by accident. The caller checks the
//! contents.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::geteuid;
use siga_model::error::{Error, IoContext, Result};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// If a shell passes a pipe to a command as a file name, the name begins with one of these prefixes.
const SHELL_PIPES: [&str; 3] = ["/dev/stdin", "/dev/fd", "/proc/self/fd"];

/// Reads the text of the regular file at `path`, which may have at most `bytes_max` bytes. Symbolic links are followed.
///
/// A pipe that the shell made for this process (`/dev/stdin`, `/dev/fd/N`) is read to its end, with the same limit.
///
/// # Errors
/// Returns an error of kind `Usage` if the file is not regular, is too long, or is not UTF-8. Returns an error of kind
/// `Environment` if the file cannot be read.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String> {
    let at = || format!("cannot read {}", path.display());
    let bytes = read_bytes(path, bytes_max)?;
    String::from_utf8(bytes).map_err(|_| Error::usage(format!("{}: the file is not valid UTF-8", at())))
}

/// Reads a file like [`read_text`], but its bytes need not be UTF-8.
///
/// # Errors
/// Returns an error of kind `Usage` if the file is not regular or is too long. Returns an error of kind `Environment` if the file cannot
/// be read.
pub fn read_bytes(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let at = || format!("cannot read {}", path.display());
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).context(at())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&found).context(at())?.st_mode);
    let is_shell_pipe = kind == FileType::Fifo && SHELL_PIPES.iter().any(|of_shell| path.starts_with(of_shell));
    if kind != FileType::RegularFile && !is_shell_pipe {
        let message = format!("{}: {} is not a regular file", at(), type_name(kind));
        return Err(Error::usage(message).hint("use a regular file or a shell pipe (/dev/stdin, /dev/fd/N)"));
    }
    // Without O_NONBLOCK, reading some regular files in /proc would block.
    let waiting = if is_shell_pipe { OFlags::empty() } else { OFlags::NONBLOCK };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | waiting;
    let file = rustix::fs::open(through(&found), flags, Mode::empty()).context(at())?;
    read_bounded(file, bytes_max, &at())
}

/// Opens a file for writing. A new file is readable and writable for its owner only. An existing file must be a regular file of
/// this user with one hard link, and is truncated to length 0. A symbolic link at the end of the path is not followed.
///
/// # Errors
/// Returns an error of kind `Usage` if the existing file belongs to another user, has several hard links, or is not regular.
/// Returns an error of kind `Environment` if the file cannot be created or opened.
pub fn create(path: &Path) -> Result<File> {
    let at = || format!("cannot write {}", path.display());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => return Ok(file.into()),
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error).context(at()),
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::open(path, flags, Mode::empty()).context(at())?;
    is_own_file(&rustix::fs::fstat(&found).context(at())?).map_err(|why| {
        Error::usage(format!("{}: {why}", at())).hint("use a new file, or a regular file that you own")
    })?;
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
    Ok(rustix::fs::open(through(&found), flags, Mode::empty()).context(at())?.into())
}

/// Opens a regular file of this user by its name in an open directory. Returns `None` if the file does not exist, unless `flags`
/// asks to create it. `shown` is the path for error messages.
pub(crate) fn open_own(directory: impl AsFd, name: &str, flags: OFlags, shown: &Path) -> Result<Option<OwnedFd>> {
    let at = || format!("cannot use {}", shown.display());
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(Error::environment(format!("{}: the file is a symbolic link", at()))),
        // `ENXIO` means that the file is a FIFO without a reader, or a socket.
        Err(Errno::NXIO) => return Err(Error::environment(format!("{}: the file is not a regular file", at()))),
        Err(error) => return Err(error).context(at()),
    };
    let stat = rustix::fs::fstat(&file).context(at())?;
    is_own_file(&stat).map_err(|why| Error::environment(format!("{}: {why}", at())))?;
    Ok(Some(file))
}

/// Reads all bytes of a file. Fails if the file has more than `bytes_max` bytes. `at` is the beginning of the error message.
pub(crate) fn read_bounded(file: OwnedFd, bytes_max: u64, at: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::from(file).take(bytes_max + 1).read_to_end(&mut bytes).context(at)?;
    if bytes.len() as u64 > bytes_max {
        return Err(Error::usage(format!("{at}: the file has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Returns the type of the file with a given name in an open directory, or `None` if the file does not exist. A symbolic link is
/// not followed.
pub(crate) fn type_of(directory: impl AsFd, name: impl Arg) -> rustix::io::Result<Option<FileType>> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns a path under which this process can open an already open file a second time, even if the file was renamed.
pub(crate) fn through(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn is_own_file(stat: &Stat) -> std::result::Result<(), String> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind != FileType::RegularFile {
        return Err(format!("{} is not a regular file", type_name(kind)));
    }
    if stat.st_uid != geteuid().as_raw() {
        return Err(format!("the file belongs to user {}", stat.st_uid));
    }
    if stat.st_nlink > 1 {
        return Err("the file has several names (hard links)".to_owned());
    }
    Ok(())
}

fn type_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "a named pipe",
        FileType::Directory => "a directory",
        FileType::Symlink => "a link",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::RegularFile | FileType::Unknown => "a file of this type",
    }
}
