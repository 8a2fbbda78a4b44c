//! What happens around the measurements of a command: setup and teardown, and files that are placed for it.

use crate::limits;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Component, Path};

/// What a setup or a teardown belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The whole run.
    Run,
    /// All trials of a cell's level.
    Level,
    /// The trials of a round.
    Round,
    /// One trial with its warm-up.
    Trial,
}

impl Scope {
    /// All scopes, from the longest to the shortest.
    pub const ALL: [Self; 4] = [Self::Run, Self::Level, Self::Round, Self::Trial];

    /// Returns the name in plans and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Level => "level",
            Self::Round => "round",
            Self::Trial => "trial",
        }
    }
}

/// Commands that prepare the measurements of a command, or clean up after them. Each is a program with its arguments, without a
/// shell. They take no part in any figure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Hooks {
    /// Before the first trial of the command, or after the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Vec<String>>,
    /// Before the first trial of the command at a level, or after the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<Vec<String>>,
    /// Before the first trial of the command in a round, or before the first trial of the next round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<Vec<String>>,
    /// Before the warm-up of each trial, or after each trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<Vec<String>>,
}

impl Hooks {
    /// Returns the command of a scope.
    pub fn of(&self, scope: Scope) -> Option<&[String]> {
        match scope {
            Scope::Run => self.run.as_deref(),
            Scope::Level => self.level.as_deref(),
            Scope::Round => self.round.as_deref(),
            Scope::Trial => self.trial.as_deref(),
        }
    }

    /// Returns true if there is no command.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns all words of all commands.
    pub(super) fn texts(&self) -> impl Iterator<Item = &String> {
        [&self.run, &self.level, &self.round, &self.trial].into_iter().flatten().flatten()
    }

    /// Refuses commands that cannot be started.
    pub(super) fn check(&self) -> Result<()> {
        for scope in Scope::ALL {
            let Some(words) = self.of(scope) else { continue };
            let empty = words.first().is_none_or(|program| program.trim().is_empty());
            if empty || words.iter().any(|word| word.contains('\0')) {
                return Err(Error::usage(format!(
                    "the command of `{}` is empty or contains a zero byte",
                    scope.name()
                ))
                .hint("write the program and its arguments, such as [\"sh\", \"-c\", \"a line\"]"));
            }
        }
        Ok(())
    }
}

/// Refuses files that cannot be placed, or not below the scratch directory.
pub(super) fn check_files(files: &BTreeMap<String, String>) -> Result<()> {
    for name in files.keys() {
        let is_below = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        if name.is_empty() || !is_below || name.contains('\0') {
            return Err(Error::usage(format!(
                "`{}` is not the path of a file in the scratch directory",
                name.escape_debug()
            ))
            .hint("use a relative path without `..`"));
        }
    }
    let bytes = files.values().map(String::len).sum::<usize>();
    if bytes > limits::COMMAND_BYTES_MAX {
        return Err(Error::usage(format!(
            "the files that the plan puts into the scratch directory are too large: {bytes} bytes in total"
        ))
        .hint(format!(
            "use at most {} bytes in total; a `setup` command can copy larger files",
            limits::COMMAND_BYTES_MAX
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_has_a_program_and_files_lie_below_the_scratch_directory() {
        let hooks = |text: &str| toml::from_str::<Hooks>(text).unwrap();
        hooks("run = ['a']\nlevel = ['b', '']\nround = ['c']\ntrial = ['d']").check().unwrap();
        for text in ["run = []", "trial = ['']", "level = ['a', \"\\u0000\"]"] {
            assert!(hooks(text).check().is_err(), "{text}");
        }
        let files = |name: &str| check_files(&[(name.to_owned(), String::new())].into());
        assert!(files("a.c").is_ok() && files("a/b.c").is_ok());
        for name in ["", "/a", "../a", "a/../../b", "./a", "a\0"] {
            assert!(files(name).is_err(), "{name:?}");
        }
        assert!(check_files(&[("a".to_owned(), "x".repeat(limits::COMMAND_BYTES_MAX + 1))].into()).is_err());
    }
}
