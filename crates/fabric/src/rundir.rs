//! The run directory of a network. It contains the network's sockets, state file and log, all of which remain if the control
//! program dies.
//!
//! A run directory is in a *base* directory, which contains the run directories of all networks of one user. Base and run directory
//! must belong to that user, and no other user may have write permission for them. siga opens each of the two directories once,
//! checks the open directory, and then reaches the files relative to it. So nobody can replace a directory after the check. siga
//! uses only files with a known name and the expected type, and never changes other files.

mod contents;
mod walk;

use crate::files::{self, through};
use crate::limits::STATE_BYTES_MAX;
use contents::{CONTROL, GUESTS, LOCK, LOG, LOG_OLD, STATE, STATE_PART, SUCCESSOR};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The hint in every error message about a directory that siga refuses to use.
const OWN_DIRECTORY: &str = "set SIGA_RUN_DIR or XDG_RUNTIME_DIR to a directory that only you can access; if the \
    network belongs to another user, run siga as that user";

/// Returns this user's base directory: `$SIGA_RUN_DIR` if set, otherwise `siga` in `$XDG_RUNTIME_DIR` if set, otherwise
/// `/tmp/siga-UID`. The directory need not exist.
///
/// # Errors
/// Returns an error if another user owns `$XDG_RUNTIME_DIR` or may write into it, or if other users can replace directories in
/// `/tmp`.
pub fn base() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(base) = set("SIGA_RUN_DIR") {
        return Ok(base);
    }
    if let Some(runtime) = set("XDG_RUNTIME_DIR") {
        let stat = rustix::fs::stat(&runtime).context(format!("cannot use {}", runtime.display()));
        let is_fit = stat.map_err(|error| error.hint(OWN_DIRECTORY)).and_then(|stat| is_ours(&stat, &runtime));
        is_fit.map_err(|error| error.at("XDG_RUNTIME_DIR"))?;
        return Ok(runtime.join("siga"));
    }
    let shared = Path::new("/tmp");
    let stat = rustix::fs::stat(shared).context("cannot use /tmp")?;
    // In a directory without the sticky bit, every user with write permission can replace the files of other users.
    let is_sticky = stat.st_mode & Mode::SVTX.bits() != 0;
    let is_safe = is_ours(&stat, shared).is_ok() || stat.st_uid == 0 && (is_sticky || stat.st_mode & OTHERS_WRITE == 0);
    if !is_safe {
        return Err(
            Error::environment("/tmp is not safe: other users may replace directories in it").hint(OWN_DIRECTORY)
        );
    }
    Ok(shared.join(format!("siga-{}", geteuid().as_raw())))
}

/// Removes an empty base directory. Does nothing if the directory does not exist.
///
/// # Errors
/// Returns an error if the directory does not belong to this user alone, is not empty, or cannot be removed.
pub fn remove_base(base: &Path) -> Result<()> {
    match walk::open(base, false)? {
        Some(_) => std::fs::remove_dir(base).context(format!("cannot remove {}", base.display())),
        None => Ok(()),
    }
}

/// The mode bits that give write permission to the group or to other users.
const OTHERS_WRITE: u32 = 0o022;

fn is_ours(stat: &rustix::fs::Stat, path: &Path) -> Result<()> {
    let (own, shown) = (geteuid().as_raw(), path.display());
    let message = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory if stat.st_uid != own => {
            format!("{shown} belongs to user {}, but you are user {own}", stat.st_uid)
        }
        FileType::Directory if stat.st_mode & OTHERS_WRITE != 0 => {
            format!("other users may write to {shown}")
        }
        FileType::Directory => return Ok(()),
        FileType::Symlink => format!("{shown} is a symbolic link, but a directory is needed that only you can access"),
        FileType::RegularFile
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => format!("{shown} is not a directory"),
    };
    Err(Error::environment(message).hint(OWN_DIRECTORY))
}

/// An open directory that siga has checked: it belongs to this user, and no other user may write into it.
#[derive(Debug)]
struct OpenDirectory {
    descriptor: OwnedFd,
    /// The path of the directory, for messages.
    path: PathBuf,
}

impl OpenDirectory {
    /// Opens the directory `name` in the directory `above` and checks it. Returns `None` if it does not exist. With `make`, creates
    /// it first if it is missing.
    fn open(above: impl AsFd, name: impl AsRef<OsStr>, path: &Path, make: bool) -> Result<Option<Self>> {
        let (above, name) = (above.as_fd(), name.as_ref());
        let at = || format!("cannot use {}", path.display());
        if make {
            match rustix::fs::mkdirat(above, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error).context(format!("cannot make the directory {}", path.display())),
            }
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match rustix::fs::openat(above, name, flags, Mode::empty()) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error).context(at()),
        };
        is_ours(&rustix::fs::fstat(&found).context(at())?, path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(&found, ".", flags, Mode::empty()).context(at())?;
        Ok(Some(Self { descriptor, path: path.to_owned() }))
    }

    /// Opens and checks the directory `name` in this directory, as [`OpenDirectory::open`] does.
    fn below(&self, name: &str, make: bool) -> Result<Option<Self>> {
        Self::open(self, name, &self.path.join(name), make)
    }

    /// Returns the sorted names of the files in this directory. Bytes that are not UTF-8 are replaced.
    fn names(&self) -> Result<Vec<String>> {
        let at = || format!("cannot read {}", self.path.display());
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(self).context(at())? {
            let name = entry.context(at())?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

impl AsFd for OpenDirectory {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The open run directory of one network.
#[derive(Debug)]
pub struct RunDir {
    name: Name,
    base: OpenDirectory,
    own: OpenDirectory,
    /// The lock and the open directory of the guests' sockets. `None` in processes other than the control program.
    in_use: Option<InUse>,
}

/// The descriptors that the control program of a network keeps open while it runs.
#[derive(Debug)]
struct InUse {
    _lock: OwnedFd,
    guests: OpenDirectory,
}

impl RunDir {
    /// Opens the run directory of a network below `base`. Returns `None` if it does not exist. The directory need not belong to a
    /// network: see [`RunDir::is_network`].
    ///
    /// # Errors
    /// Returns an error if the run directory or `base` is not a directory that belongs to this user alone.
    pub fn open(base: &Path, network: &Name) -> Result<Option<Self>> {
        let Some(base) = walk::open(base, false)? else { return Ok(None) };
        let own = base.below(network.as_str(), false)?;
        Ok(own.map(|own| Self { name: network.clone(), base, own, in_use: None }))
    }

    /// Creates the run directory and its base directory, accessible to this user only, or takes over a run directory that an
    /// earlier control program left. The directory stays locked until the returned value is dropped.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created, belongs to another user, contains unknown files, or is in use.
    pub fn create(base: &Path, network: &Name) -> Result<Self> {
        let gone = || {
            Error::environment(format!("another command took network {network} down at the same time"))
                .hint("try again")
        };
        let base = walk::open(base, true)?.ok_or_else(gone)?;
        let own = base.below(network.as_str(), true)?.ok_or_else(gone)?;
        let mut run = Self { name: network.clone(), base, own, in_use: None };
        run.is_fit_for_a_network()?;
        let lock = run.lock()?.ok_or_else(gone)?;
        let guests = run.own.below(GUESTS, true)?.ok_or_else(gone)?;
        run.in_use = Some(InUse { _lock: lock, guests });
        Ok(run)
    }

    /// Returns the names of all networks below `base`.
    ///
    /// # Errors
    /// Returns an error if `base` cannot be read, or is not a directory that belongs to this user alone.
    pub fn all(base: &Path) -> Result<Vec<Name>> {
        let Some(open) = walk::open(base, false)? else { return Ok(Vec::new()) };
        let is_network = |name: &Name| matches!(Self::open(base, name), Ok(Some(run)) if run.is_network());
        let names = open.names()?.into_iter().filter_map(|name| name.parse().ok());
        Ok(names.filter(is_network).collect())
    }

    /// Returns the path of the directory, for messages.
    pub fn path(&self) -> &Path {
        &self.own.path
    }

    /// Returns true if the directory contains a lock file or a state file, which shows that a control program has used the
    /// directory.
    pub fn is_network(&self) -> bool {
        [LOCK, STATE].iter().any(|name| matches!(files::type_of(&self.own, *name), Ok(Some(FileType::RegularFile))))
    }

    /// Returns the path of the control program's socket. The path leads through the open directory in `/proc/self/fd`.
    pub fn control(&self) -> PathBuf {
        Path::new(&through(&self.own.descriptor)).join(CONTROL)
    }

    /// Opens the control program's socket file and checks it. Returns `None` if the file does not exist. A client must connect by
    /// the path of the returned descriptor in `/proc/self/fd`. Then no process can replace the socket between this check and the
    /// connect.
    ///
    /// # Errors
    /// Returns an error if the file is not a socket of this user.
    pub(crate) fn control_socket(&self) -> Result<Option<OwnedFd>> {
        let path = self.own.path.join(CONTROL);
        let at = || format!("cannot use {}", path.display());
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = match rustix::fs::openat(&self.own, CONTROL, flags, Mode::empty()) {
            Ok(socket) => socket,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error).context(at()),
        };
        let stat = rustix::fs::fstat(&socket).context(at())?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(Error::environment(format!("{}: the file is not a socket", at())));
        }
        if stat.st_uid != geteuid().as_raw() {
            return Err(Error::environment(format!("{}: the file belongs to user {}", at(), stat.st_uid)));
        }
        Ok(Some(socket))
    }

    /// Returns the path of the socket on which a guest listens for a reconnecting control program. The path leads through the open
    /// directory in `/proc/self/fd`.
    pub fn guest(&self, guest: &Name) -> PathBuf {
        match &self.in_use {
            Some(in_use) => Path::new(&through(&in_use.guests.descriptor)).join(guest.as_str()),
            None => Path::new(&through(&self.own.descriptor)).join(GUESTS).join(guest.as_str()),
        }
    }

    /// Returns the path of the socket of a process that is to replace that of a guest. The path leads through the open directory in
    /// `/proc/self/fd`.
    pub(crate) fn successor(&self) -> PathBuf {
        Path::new(&through(&self.own.descriptor)).join(SUCCESSOR)
    }

    /// Gives the socket of the process that replaces that of a guest the name of the guest's socket.
    ///
    /// # Errors
    /// Returns an error if another process has removed the socket.
    pub(crate) fn succeed(&self, guest: &Name) -> Result<()> {
        let renamed = rustix::fs::rename(self.successor(), self.guest(guest));
        renamed.context(format!("cannot rename the socket of guest {guest}"))
    }

    /// Returns the path of the log. The path leads through the open directory in `/proc/self/fd`.
    pub fn log(&self) -> PathBuf {
        Path::new(&through(&self.own.descriptor)).join(LOG)
    }

    /// Opens the log for appending, and creates it if it is missing.
    ///
    /// # Errors
    /// Returns an error if the log cannot be created, or is not a regular file of this user.
    pub fn append_log(&self) -> Result<OwnedFd> {
        let path = self.own.path.join(LOG);
        let log = files::open_own(&self.own, LOG, OFlags::CREATE | OFlags::APPEND | OFlags::WRONLY, &path)?;
        log.ok_or_else(|| Error::environment(format!("cannot create {}: its directory was removed", path.display())))
    }

    /// Renames the log to the name of the former log, which it replaces. Does nothing if there is no log.
    ///
    /// # Errors
    /// Returns an error if the directory no longer exists.
    pub(crate) fn rotate_log(&self) -> Result<()> {
        match rustix::fs::renameat(&self.own, LOG, &self.own, LOG_OLD) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error).context("cannot rename the log of the network"),
        }
    }

    /// Locks the directory, which shows other processes that a control program of this network runs. Returns `None` if another
    /// process has just removed the directory.
    fn lock(&self) -> Result<Option<OwnedFd>> {
        let (path, name) = (self.own.path.join(LOCK), &self.name);
        let Some(file) = files::open_own(&self.own, LOCK, OFlags::CREATE | OFlags::RDWR, &path)? else {
            return Ok(None);
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let message = format!("network {name} is already up: {} is in use", self.own.path.display());
                return Err(Error::environment(message).hint(format!(
                    "show this network with `siga net status {name}`, or stop it with `siga net down {name}`"
                )));
            }
            Err(error) => return Err(error).context(format!("cannot lock {}", path.display())),
        }
        // The process that removes a run directory deletes the lock file after all other files. If the locked file no longer has a
        // name, that process has removed the directory.
        let links = rustix::fs::fstat(&file).context(format!("cannot use {}", path.display()))?.st_nlink;
        Ok((links > 0).then_some(file))
    }

    /// Reads the state file. Returns `None` if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if the file is not a regular file of this user, is too long, or cannot be read.
    pub fn read_state(&self) -> Result<Option<Vec<u8>>> {
        let path = self.own.path.join(STATE);
        let Some(file) = files::open_own(&self.own, STATE, OFlags::RDONLY, &path)? else { return Ok(None) };
        files::read_bounded(file, STATE_BYTES_MAX, &format!("cannot read {}", path.display())).map(Some)
    }

    /// Replaces the state file atomically. If `durable` is false, the file may be empty if the host loses power soon afterwards.
    ///
    /// # Errors
    /// Returns an error if the state is too long, the disk is full, or the directory no longer exists.
    pub fn write_state(&self, state: &[u8], durable: bool) -> Result<()> {
        let write = || -> std::io::Result<()> {
            match rustix::fs::unlinkat(&self.own, STATE_PART, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&self.own, STATE_PART, flags, Mode::RUSR | Mode::WUSR)?;
            let mut file = std::fs::File::from(file);
            file.write_all(state)?;
            if durable {
                file.sync_all()?;
            }
            rustix::fs::renameat(&self.own, STATE_PART, &self.own, STATE)?;
            Ok(())
        };
        if state.len() as u64 > STATE_BYTES_MAX {
            return Err(Error::usage(format!("the state file of the network is larger than {STATE_BYTES_MAX} bytes")));
        }
        write().context(format!("cannot write {}", self.own.path.join(STATE).display()))
    }
}

#[cfg(test)]
mod tests;
