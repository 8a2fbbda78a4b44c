//! Checks the licences, versions and sources of all dependencies with cargo-deny and the rules of `deny.toml`.
//!
//! These checks need no network. Advisories and yanked versions do: their databases are fetched each time. If a database cannot
//! be reached, the step reports that it skipped them. An old copy of unknown age is never used instead.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::command;

/// Time limit for fetching the advisory database: a network that silently drops packets must not delay the other steps.
const FETCH_SECONDS_MAX: u32 = 120;

/// Runs the checks that need no network, then the advisories if their database can be fetched. Otherwise returns a line that
/// reports the skipped check.
pub(crate) fn run(root: &Path) -> Result<Option<String>, String> {
    if command::output(deny(root, "cargo deny --version")).is_err() {
        return Err("cargo-deny is absent; `cargo install cargo-deny --locked` installs it, \
                    and .ci/run builds one under target/tools"
            .to_owned());
    }
    command::run(deny(root, "cargo deny check licenses bans sources"))?;
    // `timeout` ends the complete process group, which includes the git process that cargo-deny starts.
    let mut fetch = deny(root, &format!("timeout --kill-after=5 {FETCH_SECONDS_MAX} cargo deny fetch db index"));
    fetch.env("GIT_TERMINAL_PROMPT", "0");
    advisories(fetch, deny(root, "cargo deny --offline check advisories"))
}

/// Runs `check` (the advisories) if `fetch` succeeds.
fn advisories(fetch: Command, check: Command) -> Result<Option<String>, String> {
    match command::output(fetch) {
        Ok(_) => command::run(check).map(|()| None),
        Err(error) => {
            eprintln!("the check of advisories was skipped: {error}");
            Ok(Some(
                "advisories and yanked versions were not checked, because their database cannot be reached".to_owned(),
            ))
        }
    }
}

/// Returns the command `line` with the programs that `.ci/run` built first in `PATH`.
fn deny(root: &Path, line: &str) -> Command {
    let mut path = root.join("target/tools/bin").into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin")));
    let mut command = command::command(root, line);
    command.env("PATH", path);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advisories_count_where_their_database_can_be_had() {
        let root = tempfile::tempdir().unwrap();
        let program = |line: &str| command::command(root.path(), line);
        assert_eq!(advisories(program("true"), program("true")), Ok(None));
        assert!(advisories(program("true"), program("false")).is_err());
        assert!(advisories(program("false"), program("false")).unwrap().unwrap().contains("not checked"));
    }

    #[test]
    fn programs_under_target_come_first() {
        let root = tempfile::tempdir().unwrap();
        let place = format!("{}/target/tools/bin:", root.path().display());
        let seen = command::output(deny(root.path(), "printenv PATH")).unwrap();
        assert!(seen.starts_with(&place), "{seen}");
    }
}
