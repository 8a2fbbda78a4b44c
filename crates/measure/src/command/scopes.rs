//! Setups and teardowns of a run, and its scratch directory. Whatever ends the coordinator, the process that has this state carries out
//! the teardowns of all open scopes, the newest first, and then removes the directory.

use super::Order;
use super::figures::Reader;
use super::processes::{Started, end_all};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, IoContext, Result};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Maximum number of names that are tried for the scratch directory.
const NAMES_MAX: u32 = 1_000;

/// What happens before and after the trials of a scope.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Scope {
    /// Identifies the scope.
    pub(crate) key: String,
    /// Texts of files, by their paths below the scratch directory.
    pub(crate) files: BTreeMap<String, String>,
    /// What runs now.
    pub(crate) setup: Option<Order>,
    /// What runs when the scope is closed.
    pub(crate) teardown: Option<Order>,
}

/// The open scopes of a run.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    open: Vec<Scope>,
    scratch: Option<PathBuf>,
}

impl Scopes {
    /// Makes the scratch directory of the run, or returns the one that it has.
    pub(super) fn scratch(&mut self) -> Result<String> {
        if self.scratch.is_none() {
            self.scratch = Some(make_directory(&std::env::temp_dir())?);
        }
        let path = self.scratch.as_ref().and_then(|path| path.to_str());
        path.map(str::to_owned).ok_or_else(|| {
            Error::environment("the path of the directory for temporary files (TMPDIR) is not valid UTF-8")
        })
    }

    /// Places the files of a scope and carries out its setup.
    pub(super) fn open(&mut self, scope: Scope) -> Result<()> {
        for (name, text) in &scope.files {
            let path = Path::new(&self.scratch()?).join(name);
            let placed = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
            placed.map_err(|error| {
                Error::environment(format!("cannot write the file {name} into the scratch directory: {error}"))
            })?;
        }
        if let Some(setup) = &scope.setup {
            carry_out(setup, true)?;
        }
        self.open.push(scope);
        Ok(())
    }

    /// Carries out the teardown of a scope.
    pub(super) fn close(&mut self, key: &str) -> Result<()> {
        let Some(at) = self.open.iter().position(|scope| scope.key == key) else { return Ok(()) };
        self.open.remove(at).teardown.map_or(Ok(()), |teardown| carry_out(&teardown, true))
    }

    /// Closes all scopes. Returns all errors.
    pub(super) fn end(mut self) -> Vec<Error> {
        let teardowns = self.open.drain(..).rev().filter_map(|scope| scope.teardown);
        let mut errors: Vec<Error> = teardowns.filter_map(|order| carry_out(&order, false).err()).collect();
        if let Some(path) = &self.scratch {
            errors.extend(fs::remove_dir_all(path).context("cannot remove the scratch directory").err());
        }
        errors
    }
}

/// Runs a command once. `watched` says whether it ends with the coordinator.
fn carry_out(order: &Order, watched: bool) -> Result<()> {
    let reader = Reader::new(order)?;
    let ended = Started::start(order, &reader).and_then(|run| run.ends(order, &reader, watched));
    end_all();
    let ended = ended.map_err(|error| error.at(order.words.join(" ")))?;
    match ended.left_behind.first() {
        None => Ok(()),
        Some(name) => Err(Error::incomplete(format!(
            "the setup or teardown command `{}` has ended, but its process {name} was still running",
            order.words.join(" ")
        ))
        .hint("a setup cannot start a server, because siga ends all its processes; use `server` in the plan")),
    }
}

fn make_directory(parent: &Path) -> Result<PathBuf> {
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    for number in 0..NAMES_MAX {
        let path = parent.join(format!("siga-scratch-{}-{number}", std::process::id()));
        match builder.create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).context(format!("cannot make a scratch directory in {}", parent.display()));
            }
        }
    }
    Err(Error::environment(format!("{} contains too many scratch directories of siga", parent.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_placed_in_a_private_directory_that_is_removed() {
        use std::os::unix::fs::PermissionsExt;
        let mut scopes = Scopes::default();
        let scratch = PathBuf::from(scopes.scratch().unwrap());
        assert_eq!(fs::metadata(&scratch).unwrap().permissions().mode() & 0o777, 0o700);
        let files = [("a/b.c".to_owned(), "text".to_owned())].into();
        scopes.open(Scope { key: "k".into(), files, ..Scope::default() }).unwrap();
        assert_eq!(fs::read_to_string(scratch.join("a/b.c")).unwrap(), "text");
        assert!(scopes.end().is_empty() && !scratch.exists());
    }
}
