//! Reads the files of the source tree: those that git tracks, and those that it would track once added.
//!
//! Contract: only text files are returned. A file with a NUL byte counts as binary and is skipped, as are symbolic links and
//! deleted files. Paths are relative to the root.

use std::fs;
use std::path::Path;

use crate::command;

/// A text file.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// The path relative to the root, with `/` between its parts.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Reads every text file that git does not ignore.
pub(crate) fn load(root: &Path) -> Result<Vec<File>, String> {
    // The clone may belong to another user than the one who runs the check (on a CI machine, root). git refuses such a clone
    // unless it is a `safe.directory`.
    let mut git = command::command(root, "git -c");
    git.arg(format!("safe.directory={}", root.display()));
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]);
    let listed = command::output(git)?;
    let mut files = Vec::new();
    for path in listed.split_terminator('\0') {
        let full = root.join(path);
        if !fs::symlink_metadata(&full).is_ok_and(|meta| meta.is_file()) {
            continue;
        }
        let bytes = fs::read(&full).map_err(|error| format!("{path}: {error}"))?;
        if bytes.contains(&0) {
            continue;
        }
        let text = String::from_utf8(bytes).map_err(|error| format!("{path}: {error}"))?;
        files.push(File { path: path.to_owned(), text });
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(root: &Path) -> Vec<String> {
        load(root).unwrap().into_iter().map(|file| file.path).collect()
    }

    #[test]
    fn tracked_and_new_files_are_read_and_ignored_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        command::output(command::command(root, "git init --quiet")).unwrap();
        for (path, bytes) in [
            (".gitignore", b"/out\n".as_slice()),
            ("out", b"built"),
            ("new.rs", b"//! A.\n"),
            ("tracked.md", b"text\n"),
            ("deleted.md", b"gone\n"),
            ("picture.png", b"\x89PNG\0"),
        ] {
            fs::write(root.join(path), bytes).unwrap();
        }
        std::os::unix::fs::symlink("tracked.md", root.join("link.md")).unwrap();
        command::output(command::command(root, "git add tracked.md deleted.md")).unwrap();
        fs::remove_file(root.join("deleted.md")).unwrap();
        assert_eq!(paths(root), [".gitignore", "new.rs", "tracked.md"]);
    }

    #[test]
    fn text_that_is_not_utf8_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        command::output(command::command(root, "git init --quiet")).unwrap();
        fs::write(root.join("latin.md"), b"caf\xe9\n").unwrap();
        assert!(load(root).unwrap_err().starts_with("latin.md: "));
    }

    #[test]
    fn a_tree_without_git_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(load(dir.path()).unwrap_err().starts_with("git -c safe.directory="));
    }
}
