//! Where a network keeps what outlives its control program: sockets, the state file, the log.
//!
//! The directory belongs to the user alone, and is refused if it does not: whoever can write it could put a socket of his
//! own in place.

use crate::error::{Error, IoContext, Result};
use crate::name::Name;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The directory of one network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir(PathBuf);

/// The directory with those of all networks of this user: `$SIGA_RUN_DIR`, else `siga` in `$XDG_RUNTIME_DIR`, else
/// `/tmp/siga-UID`.
pub fn base() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let runtime = || set("XDG_RUNTIME_DIR").map(|directory| directory.join("siga"));
    let uid = rustix::process::geteuid().as_raw();
    set("SIGA_RUN_DIR").or_else(runtime).unwrap_or_else(|| format!("/tmp/siga-{uid}").into())
}

impl RunDir {
    /// That of a network below `base`; it need not exist.
    pub fn of(base: &Path, network: &Name) -> Self {
        Self(base.join(network.as_str()))
    }

    /// The networks that have one below `base`, by name.
    ///
    /// # Errors
    /// `base` cannot be read.
    pub fn all(base: &Path) -> Result<Vec<Name>> {
        let entries = match fs::read_dir(base) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.context(format!("cannot read {}", base.display()))?,
        };
        let name = |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok()?.parse().ok();
        let mut names: Vec<Name> = entries.filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    /// Makes the directory and what it lies in, for this user alone.
    ///
    /// # Errors
    /// It cannot be made, or is somebody else's.
    pub fn create(&self) -> Result<()> {
        let base = self.0.parent().unwrap_or(Path::new("/"));
        for directory in [base, &self.0, &self.0.join("guests")] {
            match rustix::fs::mkdir(directory, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error).context(format!("cannot make {}", directory.display())),
            }
            is_ours(directory)?;
        }
        Ok(())
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The control program's socket.
    pub fn control(&self) -> PathBuf {
        self.0.join("control")
    }

    /// The socket on which a guest waits for a later control program.
    pub fn guest(&self, guest: &Name) -> PathBuf {
        self.0.join("guests").join(guest.as_str())
    }

    /// The log.
    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// The log, to be written to its end.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn append_log(&self) -> Result<OwnedFd> {
        let flags = OFlags::CREATE | OFlags::APPEND | OFlags::WRONLY | OFlags::CLOEXEC;
        let path = self.log();
        rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).context(format!("cannot write {}", path.display()))
    }

    fn state(&self) -> PathBuf {
        self.0.join("state.json")
    }

    /// What a control program left, if it left anything.
    ///
    /// # Errors
    /// The file is not ours or cannot be read.
    pub fn read_state(&self) -> Result<Option<Vec<u8>>> {
        let path = self.state();
        match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            state => {
                is_ours(&self.0)?;
                state.map(Some).context(format!("cannot read {}", path.display()))
            }
        }
    }

    /// Replaces the state, whole or not at all. If the host loses power before the disk has it, the state may be empty, unless it is
    /// `durable`.
    ///
    /// # Errors
    /// The disk is full, or the directory is gone.
    pub fn write_state(&self, state: &[u8], durable: bool) -> Result<()> {
        let (path, part) = (self.state(), self.0.join("state.part"));
        let write = || -> std::io::Result<()> {
            let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
            let file: OwnedFd = rustix::fs::open(&part, flags, Mode::RUSR | Mode::WUSR)?;
            let mut file = fs::File::from(file);
            file.write_all(state)?;
            if durable {
                file.sync_all()?;
            }
            fs::rename(&part, &path)
        };
        write().context(format!("cannot write {}", path.display()))
    }

    /// Removes all of it.
    ///
    /// # Errors
    /// Something in it cannot be removed.
    pub fn remove(&self) -> Result<()> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context(format!("cannot remove {}", self.0.display()))
            }
            _ => Ok(()),
        }
    }
}

fn is_ours(directory: &Path) -> Result<()> {
    let stat: Stat = rustix::fs::lstat(directory).context(format!("cannot look at {}", directory.display()))?;
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    if is_directory && stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0 {
        return Ok(());
    }
    let message = format!("{} is not a directory that belongs to you alone", directory.display());
    Err(Error::environment(message).hint("remove it, or name another place in SIGA_RUN_DIR"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_others_can_write_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let run = RunDir::of(&base.path().join("siga"), &"n".parse().unwrap());
        assert_eq!(run.read_state().unwrap(), None);
        run.create().unwrap();
        run.create().unwrap();
        run.write_state(b"one", true).unwrap();
        run.write_state(b"two", false).unwrap();
        assert_eq!(run.read_state().unwrap().unwrap(), b"two");
        let mode = fs::metadata(run.path().join("state.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(RunDir::all(&base.path().join("siga")).unwrap(), ["n".parse().unwrap()]);
        fs::set_permissions(run.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(run.create().unwrap_err().message().contains("belongs to you alone"));
        assert!(run.read_state().is_err());
        run.remove().unwrap();
        run.remove().unwrap();
        assert!(!run.path().exists());
    }

    #[test]
    fn a_link_in_place_of_the_directory_is_refused() {
        let base = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/", base.path().join("n")).unwrap();
        assert!(RunDir::of(base.path(), &"n".parse().unwrap()).create().is_err());
    }
}
