//! Builds of siga as levels: which program runs the guests, routers and workload drivers of a trial.
//!
//! This file reads and checks the text only. `siga-measure` finds or compiles the program.

use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use siga_model::text::is_unseen;
use std::path::Path;

/// A build of siga, instead of the program that carries out the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Build {
    /// The path of a program file.
    Program(String),
    /// A revision of a git checkout of siga, which siga compiles.
    Git(Revision),
}

/// A revision of a git checkout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Revision {
    /// A branch, a tag or a commit of the checkout that --checkout names.
    pub git: String,
}

/// Beginning of the text of a build that is a revision.
const GIT: &str = "git:";
/// The text of the program that carries out the run.
pub(crate) const THIS: &str = "this";
/// Largest number of bytes in the path or the revision of a build.
const BYTES_MAX: usize = 4_096;

impl Build {
    /// Reads `PROGRAM`, `git:REVISION`, or one of them after `NAME=`. Returns the build and its name.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if the path or the revision is empty or has control characters.
    pub fn parse(text: &str) -> Result<(Self, String)> {
        let (name, text) = match text.split_once('=') {
            Some((name, text)) if !name.is_empty() && !name.contains(['/', ':']) => (Some(name), text),
            Some(_) | None => (None, text),
        };
        let build = match text.strip_prefix(GIT) {
            Some(git) => Self::Git(Revision { git: git.to_owned() }),
            None => Self::Program(text.to_owned()),
        };
        build.check()?;
        let text = text.strip_prefix(GIT).unwrap_or(text);
        Ok((build, name.unwrap_or(text).to_owned()))
    }

    /// Refuses a path or a revision that cannot exist.
    pub(crate) fn check(&self) -> Result<()> {
        let (text, what) = match self {
            Self::Program(path) => (path, "path of a program"),
            Self::Git(revision) => (&revision.git, "revision"),
        };
        // A revision must not look like an option of git.
        let is_option = matches!(self, Self::Git(_)) && text.starts_with('-');
        if text.trim().is_empty() || text.len() > BYTES_MAX || text.contains(is_unseen) || is_option {
            return Err(Error::usage(format!("`{}` is not a {what} of a build", text.escape_debug()))
                .hint("write the path of a siga program, or git:REVISION (in a level file, { git = \"REVISION\" })"));
        }
        Ok(())
    }

    /// Returns the build with a relative path below `directory`.
    #[must_use]
    pub(crate) fn below(self, directory: &Path) -> Self {
        match self {
            Self::Program(path) => Self::Program(directory.join(path).display().to_string()),
            Self::Git(revision) => Self::Git(revision),
        }
    }
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Program(path) => f.write_str(path),
            Self::Git(revision) => write!(f, "{GIT}{}", revision.git),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_a_program_or_a_revision_and_may_have_a_name() {
        let git = |text: &str| Build::Git(Revision { git: text.into() });
        let program = |text: &str| Build::Program(text.into());
        for (text, build, name) in [
            ("../old/siga", program("../old/siga"), "../old/siga"),
            ("old=../old/siga", program("../old/siga"), "old"),
            ("/a=b/siga", program("/a=b/siga"), "/a=b/siga"),
            ("git:v0.3", git("v0.3"), "v0.3"),
            ("before=git:HEAD~3", git("HEAD~3"), "before"),
        ] {
            assert_eq!(Build::parse(text).unwrap(), (build, name.to_owned()), "{text}");
        }
        for text in ["", " ", "old=", "git:", "git:-x", "git:--upload-pack=x", "a\nb", "git:\u{202e}x"] {
            let error = Build::parse(text).unwrap_err();
            assert!(error.exit_status() == 2 && error.to_string().contains('\n'), "{text}: {error}");
        }
    }
}
