//! Directories below `target/vm` that several processes use at the same time.
//!
//! A process that uses a directory holds a shared lock on it. The kernel releases the lock even if the process is killed. So if
//! a process gets the exclusive lock on a directory, no other process uses the directory, and it may be removed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Returns the directory `path` with a shared lock on it, and records the time of use. Returns `None` if it does not exist.
pub(crate) fn open(path: &Path) -> io::Result<Option<File>> {
    loop {
        let directory = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        directory.lock_shared()?;
        // Another process may have removed the directory just before this process had the lock.
        let inode = directory.metadata()?.ino();
        if fs::metadata(path).is_ok_and(|present| present.ino() == inode) {
            // The owner of a directory may be another user; then the time of use stays as it is.
            let _ = directory.set_modified(SystemTime::now());
            return Ok(Some(directory));
        }
    }
}

/// Removes, by `remove`, the directories in `parent` that no process uses, except the `kept` most recently used ones.
pub(crate) fn remove_old(parent: &Path, kept: usize, remove: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut present: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        // Another process may remove a directory at any time.
        if let Ok(metadata) = path.symlink_metadata()
            && metadata.is_dir()
        {
            present.push((metadata.modified()?, path));
        }
    }
    present.sort_unstable_by(|a, b| b.cmp(a));
    for (_, path) in present.into_iter().skip(kept) {
        let Ok(directory) = File::open(&path) else { continue };
        if directory.try_lock().is_ok() {
            remove(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Makes directories with these names; each is used later than the one before.
    fn directories(parent: &Path, names: &[&str]) {
        for (hours, name) in (1..).zip(names) {
            fs::create_dir(parent.join(name)).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(3_600 * hours);
            File::open(parent.join(name)).unwrap().set_modified(time).unwrap();
        }
    }

    fn names(parent: &Path) -> Vec<String> {
        let entries = fs::read_dir(parent).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_least_recently_used_directories_are_removed_unless_they_are_in_use() {
        let parent = tempfile::tempdir().unwrap();
        directories(parent.path(), &["a", "b", "c", "d", "e"]);
        fs::write(parent.path().join("file"), "").unwrap();
        // Two processes use `b`, which is now the most recently used one.
        let first = open(&parent.path().join("b")).unwrap();
        let second = open(&parent.path().join("b")).unwrap();
        assert!(first.is_some() && second.is_some());
        remove_old(parent.path(), 3, |path| fs::remove_dir(path)).unwrap();
        assert_eq!(names(parent.path()), ["b", "d", "e", "file"]);

        drop(first);
        remove_old(parent.path(), 0, |path| fs::remove_dir(path)).unwrap();
        assert_eq!(names(parent.path()), ["b", "file"]);
        drop(second);
        remove_old(parent.path(), 0, |path| fs::remove_dir(path)).unwrap();
        assert_eq!(names(parent.path()), ["file"]);
        assert!(open(&parent.path().join("b")).unwrap().is_none());
    }
}
