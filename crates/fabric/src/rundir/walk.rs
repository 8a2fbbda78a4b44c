//! Resolves the path of the base directory name by name, so that no other user can make the path lead to another directory.
//!
//! Each name in the path is opened relative to the directory before it. A symbolic link is followed only if it belongs to this user
//! or to the owner of the root directory. If a directory in the path belongs to another user, that user can remove or replace the
//! base directory. siga treats a removed base directory as missing. A replacement does not belong to this user, so siga refuses it.

use super::OpenDirectory;
use crate::limits::LINKS_MAX;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use siga_model::error::{Error, IoContext, Result};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

const ROOT: &str = "/";
const PARENT: &str = "..";

/// Opens the directory at the end of a path. Returns `None` if it does not exist. With `make`, creates it first if it is missing.
///
/// # Errors
/// Returns an error if the directory is a symbolic link, belongs to another user, or is writable for other users. Also returns an
/// error if the path contains a symbolic link that belongs to another user.
pub(super) fn open(path: &Path, make: bool) -> Result<Option<OpenDirectory>> {
    let path = std::path::absolute(path).context(format!("cannot find the absolute path of {}", path.display()))?;
    let at = || format!("cannot use {}", path.display());
    let mut names = names_of(&path);
    let Some(last) = names.first().cloned() else {
        let message = format!("{}: the root directory cannot be the directory for networks", at());
        return Err(Error::usage(message).hint(super::OWN_DIRECTORY));
    };
    names.remove(0);
    let Some(above) = walk(names).map_err(|error| error.at(at()))? else {
        if make {
            return Err(Error::environment(format!("{}: the parent directory does not exist", at())));
        }
        return Ok(None);
    };
    OpenDirectory::open(&above, &last, &path, make)
}

/// Resolves a path from the root directory and opens the directory at its end. Returns `None` if a part of the path does not exist.
/// `names` are the names in the path in reverse order, so that the next name is the last element.
fn walk(mut names: Vec<OsString>) -> Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = || rustix::fs::open(ROOT, flags, Mode::empty()).context("cannot open the root directory");
    let mut directory = root()?;
    let mut links = 0;
    while let Some(name) = names.pop() {
        match rustix::fs::openat(&directory, &name, flags, Mode::empty()) {
            Ok(next) => directory = next,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Error::environment(format!("the path contains more than {LINKS_MAX} symbolic links")));
                }
                let target = target_of(&directory, &name)?;
                if target.is_absolute() {
                    directory = root()?;
                }
                names.extend(names_of(&target));
            }
            Err(error) => {
                return Err(error).context(format!("cannot open {}, which is a part of the path", name.display()));
            }
        }
    }
    Ok(Some(directory))
}

/// Returns the names in a path in reverse order.
fn names_of(path: &Path) -> Vec<OsString> {
    let name = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(PARENT.into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(name).collect()
}

/// Returns the target of a symbolic link. Returns an error unless the link belongs to this user or to the owner of the root
/// directory.
fn target_of(directory: &OwnedFd, name: &OsStr) -> Result<PathBuf> {
    let at = || format!("cannot read {}, which is a part of the path", name.display());
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = rustix::fs::openat(directory, name, flags, Mode::empty()).context(at())?;
    let owner = rustix::fs::fstat(&link).context(at())?.st_uid;
    let target = match rustix::fs::readlinkat(&link, "", Vec::new()) {
        Ok(target) => target,
        Err(Errno::NOENT | Errno::INVAL) => {
            return Err(Error::environment(format!(
                "{}, which is a part of the path, is not a directory",
                name.display()
            )));
        }
        Err(error) => return Err(error).context(at()),
    };
    let of_host = rustix::fs::stat(ROOT).context("cannot read the properties of the root directory")?.st_uid;
    if owner != geteuid().as_raw() && owner != of_host {
        let message =
            format!("{}, which is a part of the path, is a symbolic link that belongs to user {owner}", name.display());
        return Err(Error::environment(message).hint(super::OWN_DIRECTORY));
    }
    Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_in_the_path_are_followed_up_to_a_bound() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        std::fs::create_dir_all(path("a/b")).unwrap();
        symlink("a/../a", path("relative")).unwrap();
        symlink(path("relative/b"), path("absolute")).unwrap();
        symlink("loop", path("loop")).unwrap();
        std::fs::write(path("file"), "").unwrap();
        assert!(open(&path("absolute/../b/base"), false).unwrap().is_none());
        assert!(open(&path("absolute/../b/base"), true).unwrap().is_some());
        assert!(path("a/b/base").is_dir());
        for (bad, why) in [("loop/base", "40 symbolic links"), ("file/base", "is not a directory")] {
            let error = open(&path(bad), true).unwrap_err();
            assert!(error.message().contains(why), "{error}");
        }
        assert!(open(&path("missing/base"), false).unwrap().is_none());
        assert!(open(&path("missing/base"), true).unwrap_err().message().contains("does not exist"));
        assert!(open(Path::new("/"), true).is_err());
    }
}
