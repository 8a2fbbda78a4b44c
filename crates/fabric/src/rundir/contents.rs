//! The contents of a run directory: the names and types of its files. This module checks whether an existing directory may become a
//! run directory, and removes run directories.

use super::{OpenDirectory, RunDir};
use crate::files;
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;

/// The socket on which the control program listens.
pub(super) const CONTROL: &str = "control";
/// The directory that contains the sockets on which the guests listen.
pub(super) const GUESTS: &str = "guests";
/// The file that a control program keeps locked while it runs.
pub(super) const LOCK: &str = "lock";
/// The log of the network.
pub(super) const LOG: &str = "log";
/// The former log: the file that was the log until the last rotation.
pub(super) const LOG_OLD: &str = "log.1";
/// The state file.
pub(super) const STATE: &str = "state.json";
/// The socket of a process that is to replace that of a guest. It is renamed to the name of the guest's socket.
pub(super) const SUCCESSOR: &str = "successor";
/// The new state file while it is being written. When it is complete, it is renamed to [`STATE`].
pub(super) const STATE_PART: &str = "state.part";

/// All files of a run directory except the lock file, which is created before them and removed after them.
const FILES: [(&str, FileType); 7] = [
    (CONTROL, FileType::Socket),
    (SUCCESSOR, FileType::Socket),
    (STATE_PART, FileType::RegularFile),
    (STATE, FileType::RegularFile),
    (LOG_OLD, FileType::RegularFile),
    (LOG, FileType::RegularFile),
    (GUESTS, FileType::Directory),
];

impl RunDir {
    /// Checks that this directory may become a run directory, so that siga never takes over a directory of another program.
    ///
    /// # Errors
    /// Returns an error if the directory contains an unknown file, or contains files of a network but no lock and no state file.
    pub(super) fn is_fit_for_a_network(&self) -> Result<()> {
        let (path, names) = (self.own.path.display(), self.own.names()?);
        let hint = "choose another network name, or move the file";
        if let Some(foreign) = foreign(&self.own, &names)? {
            let message = format!("{path} is not the directory of a network: it contains {foreign}");
            return Err(Error::environment(message).hint(hint));
        }
        match names.iter().find(|name| *name != GUESTS) {
            Some(name) if !self.is_network() => {
                let message = format!("{path} is not the directory of a network: it contains {name}, but no {LOCK}");
                Err(Error::environment(message).hint(hint))
            }
            _ => Ok(()),
        }
    }

    /// Removes the files of the network, then the directory itself.
    ///
    /// The caller must have locked the directory, or know that no control program of this network runs.
    ///
    /// # Errors
    /// Returns an error if the directory contains another file (the message names it), or if a file cannot be removed.
    pub fn remove(&self) -> Result<()> {
        if let Some(guests) = self.guests_directory()? {
            for name in guests.names()? {
                if name.parse::<Name>().is_ok() {
                    unlink(&guests, &name, FileType::Socket)?;
                }
            }
        }
        for (name, kind) in FILES.into_iter().chain([(LOCK, FileType::RegularFile)]) {
            unlink(&self.own, name, kind)?;
        }
        let at = || format!("cannot remove {}", self.own.path.display());
        match rustix::fs::unlinkat(&self.base, self.name.as_str(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                let names = self.own.names()?;
                let left = match self.guests_directory()? {
                    Some(guests) => guests.names()?.first().map(|name| format!("{GUESTS}/{name}")),
                    None => None,
                };
                let left = left.or_else(|| names.first().cloned()).unwrap_or_default();
                let message = format!("{}: the directory contains {left}, which siga did not create", at());
                Err(Error::environment(message)
                    .hint("siga removed all other files of the network; move this file elsewhere"))
            }
            Err(error) => Err(error).context(at()),
        }
    }

    /// Removes the run directory of a network whose control program does not run.
    ///
    /// # Errors
    /// Returns the errors of [`RunDir::remove`], and an error if a control program runs.
    pub fn remove_dead(&self) -> Result<()> {
        let _lock = self.lock()?;
        self.remove()
    }

    /// Opens the directory of the guests' sockets. Returns `None` if it does not exist or is not a directory.
    fn guests_directory(&self) -> Result<Option<OpenDirectory>> {
        let kind = files::type_of(&self.own, GUESTS).context(format!("cannot use {}", self.own.path.display()))?;
        if kind == Some(FileType::Directory) { self.own.below(GUESTS, false) } else { Ok(None) }
    }
}

/// Returns the first of `names` that siga does not use, or whose file has an unexpected type.
fn foreign(directory: &OpenDirectory, names: &[String]) -> Result<Option<String>> {
    for name in names {
        let wanted = FILES.iter().find(|(known, _)| known == name).map(|(_, kind)| *kind);
        let wanted = wanted.or_else(|| (name == LOCK).then_some(FileType::RegularFile));
        let found = files::type_of(directory, name).context(format!("cannot use {}", directory.path.display()))?;
        if wanted.is_none() || found.is_some() && found != wanted {
            return Ok(Some(name.clone()));
        }
    }
    Ok(None)
}

/// Removes a file if it has the type `kind`. A file of another type is left unchanged, and so is a directory that is not empty.
fn unlink(directory: &OpenDirectory, name: &str, kind: FileType) -> Result<()> {
    let at = || format!("cannot remove {}", directory.path.join(name).display());
    if files::type_of(directory, name).context(at())? != Some(kind) {
        return Ok(());
    }
    let flags = if kind == FileType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    match rustix::fs::unlinkat(directory, name, flags) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        Err(error) => Err(error).context(at()),
    }
}
