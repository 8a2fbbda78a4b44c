//! Files that somebody else may have put where siga reads or writes: run directories, plans, levels, outputs.
//!
//! Everything goes through an open directory by the name of one entry, so no link below that directory is ever followed:
//! a name has no slash, and `O_NOFOLLOW` refuses the entry itself. What is read is a regular file with a bound on its
//! size; a pipe, a device or a file without end is an error. The rules for writing:
//!
//! - A run directory, and each file in it, belongs to the caller, and neither group nor others may write to it. A file
//!   that is added to has one name only (no hard link elsewhere).
//! - On the way to a directory or file that is written, links of the caller and of root are followed, those of other
//!   users are not.
//! - A new file is created exclusively under a temporary name and renamed within its directory.
//!
//! Reading has no rule of owners: the results of others can be shown, compared and reported.

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

/// An open directory and the name that messages have for it.
#[derive(Debug)]
pub struct Directory {
    descriptor: OwnedFd,
    path: PathBuf,
    /// It and its files have to belong to the caller alone.
    is_own: bool,
}

/// What an entry of a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its kind; a link is a link, whatever it leads to.
    pub kind: FileType,
    /// Its size in bytes.
    pub bytes: u64,
    /// The user that it belongs to.
    pub owner: u32,
    /// When it was written to; `None` before 1970.
    pub modified: Option<SystemTime>,
}

/// Reading never blocks: a pipe without a writer is refused, not waited for.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::ROTH);
const DIRECTORY_MODE: Mode = Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP).union(Mode::ROTH).union(Mode::XOTH);

impl Directory {
    /// Opens a directory that the caller has named, to read it. Its owner does not matter.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &Path) -> io::Result<Self> {
        let descriptor = openat(CWD, path, DIRECTORY, Mode::empty())?;
        Ok(Self { descriptor, path: path.to_owned(), is_own: false })
    }

    /// Opens a directory of the caller's to write to it; from here on each of its files has to be the caller's, too.
    ///
    /// # Errors
    /// It belongs to another user, others may write to it, or a link of another user leads to it. Else the kernel's.
    pub fn own(path: &Path) -> io::Result<Self> {
        Self::reach(path, false)
    }

    /// The same; makes the directory and those on the way to it that are absent.
    ///
    /// # Errors
    /// See `own`.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::reach(path, true)
    }

    fn reach(path: &Path, make: bool) -> io::Result<Self> {
        let (parent, name) = resolve(path, make)?;
        if make {
            made(mkdirat(&parent, &name, DIRECTORY_MODE))?;
        }
        let descriptor = openat(&parent, &name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        Self { descriptor, path: path.to_owned(), is_own: false }.into_own()
    }

    /// The directory that holds a file that the caller has named to be written, and the file's name in it, which is no
    /// link. Links of the caller and of root are followed to there.
    ///
    /// # Errors
    /// There is no such directory, or a link of another user leads to it.
    pub fn around(path: &Path) -> io::Result<(Self, OsString)> {
        let (descriptor, name) = resolve(path, false)?;
        Ok((Self { descriptor, path: path.parent().unwrap_or(path).to_owned(), is_own: false }, name))
    }

    /// A directory in this one.
    ///
    /// # Errors
    /// The kernel's; a link is none.
    pub fn below(&self, name: &OsStr) -> io::Result<Self> {
        let descriptor = openat(&self.descriptor, part(name)?, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        let directory = Self { descriptor, path: self.place(name), is_own: false };
        if self.is_own { directory.into_own() } else { Ok(directory) }
    }

    /// The same directory, of which each file has to be the caller's.
    ///
    /// # Errors
    /// It belongs to another user, or others may write to it.
    pub fn into_own(mut self) -> io::Result<Self> {
        self.is_own = true;
        self.check(&fstat(&self.descriptor)?, &self.path)?;
        Ok(self)
    }

    /// The name that messages have for it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name that messages have for an entry.
    pub fn place(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// Names of its entries in order, no more than `limits::ENTRIES_MAX`.
    ///
    /// # Errors
    /// The kernel's.
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

    /// What an entry is; `None` if there is none of that name.
    ///
    /// # Errors
    /// The kernel's.
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
    /// It is a link or something else; in a directory of the caller's: it is another user's. Else the kernel's.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = name.as_ref();
        let file = File::from(openat(&self.descriptor, part(name)?, READ, Mode::empty()).map_err(no_link)?);
        let stat = fstat(&file)?;
        file::need_regular(&stat)?;
        self.check(&stat, &self.place(name))?;
        Ok(file)
    }

    /// The whole text of a regular file of up to `most` bytes.
    ///
    /// # Errors
    /// As `open_file`; it is longer, or no text.
    pub fn read(&self, name: impl AsRef<OsStr>, most: u64) -> io::Result<String> {
        file::read_bounded(&self.open_file(name)?, most)
    }

    /// Opens a regular file of the caller's to add to its end, and makes it if it is not there.
    ///
    /// # Errors
    /// It is a link, something else, another user's, or has another name elsewhere. Else the kernel's.
    pub fn append(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = name.as_ref();
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&self.descriptor, part(name)?, flags, FILE_MODE).map_err(no_link)?);
        let stat = fstat(&file)?;
        file::need_regular(&stat)?;
        self.check(&stat, &self.place(name))?;
        if stat.st_nlink > 1 {
            return Err(io::Error::other("it has another name elsewhere (a hard link)"));
        }
        Ok(file)
    }

    /// True if an entry is a program that runs: the kernel refuses to open it for writing.
    pub fn is_running(&self, name: impl AsRef<OsStr>) -> bool {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = part(name.as_ref()).map(|name| openat(&self.descriptor, name, flags, Mode::empty()));
        matches!(opened, Ok(Err(Errno::TXTBSY)))
    }

    /// Makes a file that is not there yet, for writing.
    ///
    /// # Errors
    /// There is something of that name. Else the kernel's.
    pub fn create_new(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // In a directory of the caller's the rule holds for each file, whatever the umask says.
        let mode = if self.is_own { FILE_MODE } else { FILE_MODE | Mode::WGRP | Mode::WOTH };
        Ok(openat(&self.descriptor, part(name.as_ref())?, flags, mode)?.into())
    }

    /// Opens a device or pipe that is there to write to it; it belongs to the caller or to root.
    ///
    /// # Errors
    /// It is a file, a link, or another user's. Else the kernel's.
    pub fn open_device(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = part(name.as_ref())?;
        // Opening a pipe waits for its reader, so its owner is looked at before and after.
        need_device(&statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW)?)?;
        let device = File::from(openat(&self.descriptor, name, flags, Mode::empty()).map_err(no_link)?);
        need_device(&fstat(&device)?)?;
        Ok(device)
    }

    /// Puts a file in its place, whole or not at all; it is written under the name `temporary`, of which a crash may have
    /// left one.
    ///
    /// # Errors
    /// The kernel's; what was in its place before stays.
    pub fn replace(&self, name: &str, temporary: &str, bytes: &[u8]) -> io::Result<()> {
        self.remove(temporary)?;
        let written = self.create_new(temporary).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        written.and_then(|()| self.rename(temporary, name)).inspect_err(|_| {
            // The error that led here is the one to tell.
            let _ = self.remove(temporary);
        })
    }

    /// Gives an entry another name in this directory; what had that name is gone.
    ///
    /// # Errors
    /// The kernel's.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(renameat(&self.descriptor, part(from.as_ref())?, &self.descriptor, part(to.as_ref())?)?)
    }

    /// Removes an entry that is no directory. One that is not there is none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match unlinkat(&self.descriptor, part(name.as_ref())?, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Fails unless what was opened at `place` is the caller's alone, if it has to be.
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

    /// It is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    /// It is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }
}

/// The text of a file that names what to execute: a regular file of up to `most` bytes; it belongs to the caller or to root, and nobody else may write to it.
///
/// # Errors
/// As [`file::read_named`]; others could have written it.
pub fn read_trusted(path: &Path, most: u64) -> io::Result<String> {
    let file = File::from(openat(CWD, path, READ.difference(OFlags::NOFOLLOW), Mode::empty())?);
    let stat = fstat(&file)?;
    file::need_regular(&stat)?;
    let owner = if stat.st_uid == 0 { 0 } else { geteuid().as_raw() };
    need_own(&stat, owner, path)?;
    file::read_bounded(&file, most)
}

/// Fails unless `owner` alone may write to what was opened at `place`.
fn need_own(stat: &Stat, owner: u32, place: &Path) -> io::Result<()> {
    if stat.st_uid != owner {
        return Err(io::Error::other(format!("it belongs to user {}, not to user {owner}", stat.st_uid)));
    }
    if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        return Err(io::Error::other(format!("others may write to it (`chmod go-w {}` ends that)", place.display())));
    }
    Ok(())
}

/// A name of one part, which leads to nothing but an entry.
fn part(name: &OsStr) -> io::Result<&OsStr> {
    let is_part = !name.is_empty() && name != "." && name != ".." && !name.as_bytes().contains(&b'/');
    is_part.then_some(name).ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it is no name of a file"))
}

fn need_device(stat: &Stat) -> io::Result<()> {
    let file_type = FileType::from_raw_mode(stat.st_mode);
    if !matches!(file_type, FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice | FileType::Socket) {
        return Err(io::Error::other(format!("it is {}", file::type_name(file_type))));
    }
    if is_trusted(stat) {
        Ok(())
    } else {
        Err(io::Error::other(format!("it is {} of another user", file::type_name(file_type))))
    }
}

/// `O_NOFOLLOW` says of a link that there are too many.
fn no_link(error: Errno) -> io::Error {
    if error == Errno::LOOP { io::Error::other("it is a symbolic link, no regular file") } else { error.into() }
}

/// Belongs to the caller or to root, who may do anything anyway.
fn is_trusted(stat: &Stat) -> bool {
    stat.st_uid == 0 || stat.st_uid == geteuid().as_raw()
}

fn made(outcome: rustix::io::Result<()>) -> io::Result<()> {
    match outcome {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Walks a path part by part, each from the directory before it. Returns the directory that holds its last part, and that
/// part, which is no link (or `.`, of a path that ends in none). With `make`, directories on the way are made.
fn resolve(path: &Path, make: bool) -> io::Result<(OwnedFd, OsString)> {
    const WAY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    if path.as_os_str().is_empty() {
        return Err(Errno::NOENT.into());
    }
    let mut left: Vec<OsString> = parts(path);
    let mut at = openat(CWD, ".", WAY | OFlags::DIRECTORY, Mode::empty())?;
    let mut links = 0;
    while let Some(name) = left.pop() {
        // The root and `..` are directories; neither is a link.
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
                return Err(io::Error::other(format!("{} is a symbolic link of another user", name.display())));
            }
            // Read from what was looked at: nobody can put another in its place.
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

/// The parts of a path, the last one first.
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
    fn a_name_leads_to_one_entry_of_the_directory_and_nowhere_else() {
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
        for told in [below.read("link", 100).unwrap_err(), below.append("link").unwrap_err()] {
            assert!(told.to_string().contains("a symbolic link"), "{told}");
        }
        below.replace("link", "link.part", b"inside").unwrap();
        assert_eq!(below.read("link", 100).unwrap(), "inside", "the link itself is replaced");
        assert_eq!(fs::read_to_string(place.path().join("outside")).unwrap(), "outside");
    }

    #[test]
    fn what_is_read_has_a_bound() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("file"), "12345").unwrap();
        let directory = Directory::open(place.path()).unwrap();
        assert_eq!(directory.read("file", 5).unwrap(), "12345");
        assert!(directory.read("file", 4).unwrap_err().to_string().contains("more than 4 bytes"));
        assert!(file::read_named(&place.path().join("file"), 4).unwrap_err().to_string().contains("more than 4 bytes"));
        // A file without a length of its own, as /proc has them.
        assert!(
            file::read_named(Path::new("/proc/self/status"), 10)
                .unwrap_err()
                .to_string()
                .contains("more than 10 bytes")
        );
    }

    #[test]
    fn what_is_made_in_a_directory_of_the_callers_is_the_callers_alone() {
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
    fn links_that_lead_in_a_circle_end() {
        let place = tempfile::tempdir().unwrap();
        symlink("b", place.path().join("a")).unwrap();
        symlink("a", place.path().join("b")).unwrap();
        let told = Directory::create(&place.path().join("a/run")).unwrap_err();
        assert_eq!(told.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    }
}
