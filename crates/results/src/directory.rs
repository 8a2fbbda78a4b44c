//! Safe access to run directories and to directories of output files, even if another user prepared them as a trap.
//!
//! Every access is relative to the descriptor of an open directory and names one of its entries. The name contains no slash, and
//! `O_NOFOLLOW` refuses a symbolic link. Symbolic links below the directory are therefore never followed. Only regular files up
//! to a given size are read. The rules for writing:
//!
//! - A run directory and each file in it must belong to the caller, and neither group nor others may have write permission. A
//!   file to which siga appends must not have a second hard link.
//! - In the path of a directory or file that is written, symbolic links that belong to the caller or to root are followed.
//!   Symbolic links of other users are refused.
//! - A new file is created exclusively under a temporary name, then renamed within its directory.
//!
//! Directories for reading have no such rules: the results of any user can be read.

use crate::limits;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use siga_plan::file;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

/// An open directory, with its path for messages.
#[derive(Debug)]
pub struct Directory {
    descriptor: OwnedFd,
    path: PathBuf,
    /// Whether the directory and its files must belong to the caller, without write permission for anyone else.
    is_own: bool,
}

/// Metadata of an entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Type of the entry. A symbolic link is reported as such, not followed.
    pub kind: FileType,
    /// Size of the entry in bytes.
    pub bytes: u64,
    /// User id of the entry's owner.
    pub owner: u32,
    /// Time of the last modification; `None` if it is before 1970.
    pub modified: Option<SystemTime>,
}

/// Flags for opening a file for reading. With `O_NONBLOCK`, opening a pipe does not wait for a writer. The type of the file is
/// checked after opening, and a pipe is refused then.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::ROTH);
const DIRECTORY_MODE: Mode = Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP).union(Mode::ROTH).union(Mode::XOTH);

impl Directory {
    /// Opens a directory for reading. The directory may belong to any user.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn open(path: &Path) -> io::Result<Self> {
        let descriptor = openat(CWD, path, DIRECTORY, Mode::empty())?;
        Ok(Self { descriptor, path: path.to_owned(), is_own: false })
    }

    /// Opens a directory of the caller for writing. Each of its files must belong to the caller, too.
    ///
    /// # Errors
    /// Returns an error if the directory belongs to another user, or if other users may write to it. A symbolic link
    /// that belongs to another user
    /// in the path is also an error. Otherwise returns the kernel's error.
    pub fn own(path: &Path) -> io::Result<Self> {
        Self::reach(&resolve(path, false)?, path)
    }

    /// Like `own`, but creates the directory and its parents if they are absent.
    ///
    /// # Errors
    /// Returns the errors of `own`.
    pub fn create(path: &Path) -> io::Result<Self> {
        let place = resolve(path, true)?;
        made(mkdirat(&place.0, &place.1, DIRECTORY_MODE))?;
        Self::reach(&place, path)
    }

    /// Creates a directory that does not exist yet, and its parents if they are absent.
    ///
    /// # Errors
    /// Returns an error of kind `AlreadyExists` if the path exists. Otherwise returns the errors of `own`.
    pub fn create_unused(path: &Path) -> io::Result<Self> {
        let place = resolve(path, true)?;
        mkdirat(&place.0, &place.1, DIRECTORY_MODE)?;
        Self::reach(&place, path)
    }

    /// Opens the directory that has this name in the open parent, under the rules of `own`.
    fn reach((parent, name): &(OwnedFd, OsString), path: &Path) -> io::Result<Self> {
        let descriptor = openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        Self { descriptor, path: path.to_owned(), is_own: false }.into_own()
    }

    /// Opens the directory that contains an output file. Returns the directory and the name of the file in it. Symbolic links of
    /// the caller and of root are followed, also if `path` itself is one.
    ///
    /// # Errors
    /// Returns an error if there is no such directory, or if the path contains a symbolic link that belongs to another
    /// user.
    pub fn around(path: &Path) -> io::Result<(Self, OsString)> {
        let (descriptor, name) = resolve(path, false)?;
        Ok((Self { descriptor, path: path.parent().unwrap_or(path).to_owned(), is_own: false }, name))
    }

    /// Opens a subdirectory.
    ///
    /// # Errors
    /// Returns the kernel's error, also if `name` is a symbolic link.
    pub fn below(&self, name: &OsStr) -> io::Result<Self> {
        let descriptor = openat(&self.descriptor, part(name)?, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        let directory = Self { descriptor, path: self.place(name), is_own: false };
        if self.is_own { directory.into_own() } else { Ok(directory) }
    }

    /// Converts a directory that was opened for reading into one for writing, under the rules of `own`.
    ///
    /// # Errors
    /// Returns an error if the directory belongs to another user, or if other users may write to it.
    pub fn into_own(mut self) -> io::Result<Self> {
        self.is_own = true;
        self.check(&fstat(&self.descriptor)?, &self.path)?;
        Ok(self)
    }

    /// Returns the path of the directory, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of an entry, for messages.
    pub fn place(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// Returns the sorted names of the first `limits::ENTRIES_MAX` entries.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.descriptor)?.take(limits::ENTRIES_MAX) {
            let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns the metadata of an entry; `None` if there is no such entry.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn entry(&self, name: impl AsRef<OsStr>) -> io::Result<Option<Entry>> {
        match statat(&self.descriptor, part(name.as_ref())?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Entry::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// Returns an error if the entry is not a regular file. In the caller's own directory, also returns an error if another user
    /// owns the file or may write to it. Otherwise returns the kernel's error.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = name.as_ref();
        let file = File::from(openat(&self.descriptor, part(name)?, READ, Mode::empty()).map_err(no_link)?);
        let stat = fstat(&file)?;
        file::need_regular(&stat)?;
        self.check(&stat, &self.place(name))?;
        Ok(file)
    }

    /// Reads the whole text of a regular file of up to `most` bytes.
    ///
    /// # Errors
    /// Returns the errors of `open_file`, or an error if the file is longer or not UTF-8.
    pub fn read(&self, name: impl AsRef<OsStr>, most: u64) -> io::Result<String> {
        file::read_bounded(&self.open_file(name)?, most)
    }

    /// Opens a regular file of the caller for appending. Creates the file if it is absent.
    ///
    /// # Errors
    /// Returns an error if the entry is not a regular file, belongs to another user, or has another hard link. Otherwise returns
    /// the kernel's error.
    pub fn append(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = name.as_ref();
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&self.descriptor, part(name)?, flags, FILE_MODE).map_err(no_link)?);
        let stat = fstat(&file)?;
        file::need_regular(&stat)?;
        self.check(&stat, &self.place(name))?;
        if stat.st_nlink > 1 {
            return Err(io::Error::other("the file has a second name (hard link)"));
        }
        Ok(file)
    }

    /// Returns true if an entry is a running program. The kernel then refuses to open it for writing.
    pub fn is_running(&self, name: impl AsRef<OsStr>) -> bool {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = part(name.as_ref()).map(|name| openat(&self.descriptor, name, flags, Mode::empty()));
        matches!(opened, Ok(Err(Errno::TXTBSY)))
    }

    /// Creates a new file for writing.
    ///
    /// # Errors
    /// Returns an error if the name exists already. Otherwise returns the kernel's error.
    pub fn create_new(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // In the caller's own directory, no file may be writable by others, whatever the umask is.
        let mode = if self.is_own { FILE_MODE } else { FILE_MODE | Mode::WGRP | Mode::WOTH };
        Ok(openat(&self.descriptor, part(name.as_ref())?, flags, mode)?.into())
    }

    /// Opens an existing device or pipe of the caller or of root for writing.
    ///
    /// # Errors
    /// Returns an error if the entry is a regular file, a directory or a link, or if it belongs to another user. Otherwise
    /// returns the kernel's error.
    pub fn open_device(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = part(name.as_ref())?;
        // Opening a pipe blocks until it has a reader. Another user could replace the pipe meanwhile, so the owner is checked
        // before and after.
        need_device(&statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW)?)?;
        let device = File::from(openat(&self.descriptor, name, flags, Mode::empty()).map_err(no_link)?);
        need_device(&fstat(&device)?)?;
        Ok(device)
    }

    /// Replaces a file atomically: writes the file `temporary` and renames it to `name`. If a file `temporary` is left from a
    /// crash, it is removed first.
    ///
    /// # Errors
    /// Returns the kernel's error. The previous file then stays unchanged.
    pub fn replace(&self, name: &str, temporary: &str, bytes: &[u8]) -> io::Result<()> {
        self.remove(temporary)?;
        let written = self.create_new(temporary).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        written.and_then(|()| self.rename(temporary, name)).inspect_err(|_| {
            // Report the first error, not an error of the cleanup.
            let _ = self.remove(temporary);
        })
    }

    /// Renames an entry within this directory. An entry with the new name is replaced.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(renameat(&self.descriptor, part(from.as_ref())?, &self.descriptor, part(to.as_ref())?)?)
    }

    /// Removes an entry that is not a directory. A missing entry is not an error.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match unlinkat(&self.descriptor, part(name.as_ref())?, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// If this directory was opened as the caller's own, checks the file that was opened at `place`. The file must belong to the
    /// caller, and nobody else may write to it.
    fn check(&self, stat: &Stat, place: &Path) -> io::Result<()> {
        if self.is_own { need_own(stat, geteuid().as_raw(), place) } else { Ok(()) }
    }
}

impl Entry {
    fn of(stat: &Stat) -> Self {
        let since = |seconds: i64| u64::try_from(seconds).ok().map(Duration::from_secs);
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            owner: stat.st_uid,
            modified: since(stat.st_mtime).map(|since| SystemTime::UNIX_EPOCH + since),
        }
    }

    /// Returns true if the entry is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    /// Returns true if the entry is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }
}

/// Reads a file that names programs to execute. The file must be a regular file of up to `most` bytes. It must belong to the
/// caller or to root, and nobody else may have write permission.
///
/// # Errors
/// Returns the errors of [`file::read_named`], or an error if others could have written the file.
pub fn read_trusted(path: &Path, most: u64) -> io::Result<String> {
    let file = File::from(openat(CWD, path, READ.difference(OFlags::NOFOLLOW), Mode::empty())?);
    let stat = fstat(&file)?;
    file::need_regular(&stat)?;
    let owner = if stat.st_uid == 0 { 0 } else { geteuid().as_raw() };
    need_own(&stat, owner, path)?;
    file::read_bounded(&file, most)
}

/// Checks that the file opened at `place` belongs to `owner` and that nobody else may write to it.
fn need_own(stat: &Stat, owner: u32, place: &Path) -> io::Result<()> {
    if stat.st_uid != owner {
        return Err(io::Error::other(format!(
            "this file or directory belongs to user {}, not to user {owner}",
            stat.st_uid
        )));
    }
    if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        return Err(io::Error::other(format!(
            "other users have write permission; remove this permission with `chmod go-w {}`",
            place.display()
        )));
    }
    Ok(())
}

/// Checks that `name` is the name of an entry: not empty, no slash, not `.` or `..`.
fn part(name: &OsStr) -> io::Result<&OsStr> {
    let is_part = !name.is_empty() && name != "." && name != ".." && !name.as_bytes().contains(&b'/');
    is_part.then_some(name).ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "this is not a valid file name"))
}

fn need_device(stat: &Stat) -> io::Result<()> {
    let file_type = FileType::from_raw_mode(stat.st_mode);
    if !matches!(file_type, FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice | FileType::Socket) {
        return Err(io::Error::other(format!("the name belongs to {}", file::type_name(file_type))));
    }
    if is_trusted(stat) {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "the name stands for {} that belongs to another user",
            file::type_name(file_type)
        )))
    }
}

/// Translates ELOOP: with `O_NOFOLLOW`, the kernel reports a symbolic link as "too many symbolic links".
fn no_link(error: Errno) -> io::Error {
    if error == Errno::LOOP {
        io::Error::other("the name belongs to a symbolic link, not to a regular file")
    } else {
        error.into()
    }
}

/// Returns true if the owner is the caller or root. Root is trusted because it could change everything anyway.
fn is_trusted(stat: &Stat) -> bool {
    stat.st_uid == 0 || stat.st_uid == geteuid().as_raw()
}

fn made(outcome: rustix::io::Result<()>) -> io::Result<()> {
    match outcome {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Resolves a path component by component. Each component is opened relative to the directory before it. Returns the directory
/// that contains the last component, and the last component's name. If the last component is a symbolic link, the link's target
/// is resolved instead. The name is `.` if the path does not end with a name (for example `/` or `a/..`). If `make` is set,
/// missing directories in the path are created.
fn resolve(path: &Path, make: bool) -> io::Result<(OwnedFd, OsString)> {
    const WAY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    if path.as_os_str().is_empty() {
        return Err(Errno::NOENT.into());
    }
    let mut left: Vec<OsString> = parts(path);
    let mut at = openat(CWD, ".", WAY | OFlags::DIRECTORY, Mode::empty())?;
    let mut links = 0;
    while let Some(name) = left.pop() {
        // The root and `..` are directories, never links.
        if name == "/" || name == ".." {
            at = openat(&at, &name, WAY | OFlags::DIRECTORY, Mode::empty())?;
            continue;
        }
        let found = match openat(&at, &name, WAY, Mode::empty()) {
            Err(Errno::NOENT) if left.is_empty() => return Ok((at, name)),
            Err(Errno::NOENT) if make => {
                made(mkdirat(&at, &name, DIRECTORY_MODE))?;
                openat(&at, &name, WAY, Mode::empty())?
            }
            found => found?,
        };
        let stat = fstat(&found)?;
        let file_type = FileType::from_raw_mode(stat.st_mode);
        if file_type == FileType::Symlink {
            links += 1;
            if links > limits::LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            if !is_trusted(&stat) {
                return Err(io::Error::other(format!(
                    "{} is a symbolic link that belongs to another user",
                    name.display()
                )));
            }
            // Read the link through the descriptor that was checked, because another user could have replaced the link at the
            // path.
            let target = readlinkat(&found, "", Vec::new())?;
            left.extend(parts(Path::new(OsStr::from_bytes(target.to_bytes()))));
        } else if left.is_empty() {
            return Ok((at, name));
        } else if file_type == FileType::Directory {
            at = found;
        } else {
            return Err(Errno::NOTDIR.into());
        }
    }
    Ok((at, ".".into()))
}

/// Returns the components of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let names = path.components().filter(|part| !matches!(part, Component::CurDir | Component::Prefix(_)));
    let mut parts: Vec<OsString> = names.map(|part| part.as_os_str().to_owned()).collect();
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_name_cannot_leave_its_directory() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("below")).unwrap();
        fs::write(place.path().join("outside"), "outside").unwrap();
        symlink("../outside", place.path().join("below/link")).unwrap();
        let below = Directory::own(&place.path().join("below")).unwrap();
        for name in ["../outside", "..", ".", "", "/etc/hostname", "link/x"] {
            assert_eq!(below.read(name, 100).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
            assert!(below.append(name).is_err() && below.create_new(name).is_err(), "{name}");
            assert!(below.remove(name).is_err() && below.entry(name).is_err() && below.below(name.as_ref()).is_err());
        }
        for error in [below.read("link", 100).unwrap_err(), below.append("link").unwrap_err()] {
            assert!(error.to_string().contains("a symbolic link"), "{error}");
        }
        below.replace("link", "link.part", b"inside").unwrap();
        assert_eq!(below.read("link", 100).unwrap(), "inside", "the link itself is replaced");
        assert_eq!(fs::read_to_string(place.path().join("outside")).unwrap(), "outside");
    }

    #[test]
    fn a_file_that_is_too_long_is_refused() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("file"), "12345").unwrap();
        let directory = Directory::open(place.path()).unwrap();
        assert_eq!(directory.read("file", 5).unwrap(), "12345");
        assert!(directory.read("file", 4).unwrap_err().to_string().contains("more than 4 bytes"));
        assert!(file::read_named(&place.path().join("file"), 4).unwrap_err().to_string().contains("more than 4 bytes"));
        // A file that reports no length, as files in /proc do.
        assert!(
            file::read_named(Path::new("/proc/self/status"), 10)
                .unwrap_err()
                .to_string()
                .contains("more than 10 bytes")
        );
    }

    #[test]
    fn files_in_the_callers_own_directory_are_writable_by_the_caller_alone() {
        let place = tempfile::tempdir().unwrap();
        let way = place.path().join("a/b/../c");
        drop(Directory::create(&way).unwrap());
        let directory = Directory::create(&place.path().join("a/c")).unwrap();
        drop(directory.append("lines").unwrap());
        directory.replace("whole", "whole.part", b"").unwrap();
        for name in ["a", "a/b", "a/c", "a/c/lines", "a/c/whole"] {
            let mode = fs::metadata(place.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o022, 0, "{name}");
        }
        assert_eq!(directory.names().unwrap(), ["lines", "whole"]);
    }

    #[test]
    fn a_circle_of_links_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        symlink("b", place.path().join("a")).unwrap();
        symlink("a", place.path().join("b")).unwrap();
        let error = Directory::create(&place.path().join("a/run")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    }
}
