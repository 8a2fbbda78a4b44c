//! Rules that the compiler cannot check. They cover dependencies between crates, import circles between folders, the size of the
//! default build, and tests of promises. They also cover versions, unsafe code, text and language.
//!
//! Every rule is a function from text to problems. All rules run and all problems are printed; a single problem fails the task.
//! The rules see only files that git tracks or would track once added.

mod budget;
mod circles;
mod code;
mod edges;
mod language;
mod manifests;
mod prose;
pub(crate) mod rust;
mod specification;
mod text;
pub(crate) mod tree;

use std::fmt;
use std::path::Path;

use crate::command;

/// A violation of a rule, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    place: String,
    what: String,
}

impl Problem {
    /// A problem of a complete file, crate or build.
    pub(crate) fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }

    /// A problem in one line, counted from 1.
    pub(crate) fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { place: format!("{path}:{line}"), what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Applies every rule to the source tree and prints the problems.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    conclude("tidy", &check(root)?)
}

/// Prints problems. Returns an error that names `task` if there is at least one.
pub(crate) fn conclude(task: &str, problems: &[Problem]) -> Result<(), String> {
    problems.iter().for_each(|problem| eprintln!("{task}: {problem}"));
    match problems.len() {
        0 => Ok(()),
        count => Err(format!("{task}: {count} problems to correct")),
    }
}

fn check(root: &Path) -> Result<Vec<Problem>, String> {
    let files = tree::load(root)?;
    let mut problems: Vec<Problem> = files.iter().flat_map(text::check).collect();
    problems.extend(files.iter().flat_map(rust::check));
    problems.extend(files.iter().flat_map(manifests::check));
    problems.extend(circles::check(&files));
    problems.extend(language::check(&files));
    for page in ["SPECIFICATION.md", "SECURITY.md"] {
        match files.iter().find(|file| file.path == page) {
            Some(file) => problems.extend(specification::check(file, &files)),
            None => problems.push(Problem::new(page, "it is absent, so that no promise has a test")),
        }
    }

    let metadata = command::output(command::command(root, "cargo metadata --locked --no-deps --format-version 1"))?;
    problems.extend(edges::check(&metadata)?);

    let tree = command::output(command::command(root, budget::TREE))?;
    let count = budget::count(&tree);
    problems.extend(budget::check(&tree));
    eprintln!("tidy: {} files; {count} crates of others in siga, of at most {}", files.len(), budget::CRATES_MAX);
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A workspace of two crates, `siga` and `siga-measure`, that breaks no rule.
    fn workspace() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let workspace = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n\
            [workspace.dependencies]\nsiga = { path = \"crates/siga\" }\nsiga-measure = { path = \"crates/measure\" }\n\
            [workspace.lints.rust]\nunsafe_code = \"deny\"\n";
        write(root, "Cargo.toml", workspace);
        let package = |name: &str| {
            format!(
                "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[lints]\nworkspace = true\n"
            )
        };
        write(root, "crates/measure/Cargo.toml", &package("siga-measure"));
        write(root, "crates/measure/src/lib.rs", "//! The library.\n");
        let depends = "[dependencies]\nsiga-measure.workspace = true\n";
        write(root, "crates/siga/Cargo.toml", &format!("{}{depends}", package("siga")));
        write(root, "crates/siga/src/lib.rs", "//! The program.\n#[test]\nfn it_works() {}\n");
        write(root, "SPECIFICATION.md", "| id | Promise | Test |\n|---|---|---|\n| A-1 | works | `siga::it_works` |\n");
        fs::copy(root.join("SPECIFICATION.md"), root.join("SECURITY.md")).unwrap();
        for line in ["git init --quiet", "cargo generate-lockfile --offline"] {
            command::output(command::command(root, line)).unwrap();
        }
        dir
    }

    #[test]
    fn a_tidy_workspace_has_no_problems() {
        let dir = workspace();
        assert_eq!(check(dir.path()).unwrap(), []);
        run(dir.path()).unwrap();
    }

    #[test]
    fn every_rule_reaches_the_tree() {
        let dir = workspace();
        let root = dir.path();
        write(root, "crates/measure/src/lib.rs", "//! The library. \nfn f() { unsafe { g() } }\n");
        write(
            root,
            "SPECIFICATION.md",
            "| id | Promise | Test |\n|---|---|---|\n| A-1 | works | `siga::it_does_not` |\n",
        );
        let package = "[package]\nname = \"siga-other\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
        let depends = "[dependencies]\nsiga-measure = { path = \"../measure\" }\n";
        write(root, "crates/other/Cargo.toml", &format!("{package}{depends}"));
        write(root, "crates/other/src/lib.rs", "//! Nobody knows it.\n");
        command::output(command::command(root, "cargo generate-lockfile --offline")).unwrap();
        let mut found: Vec<String> = check(root).unwrap().iter().map(|problem| problem.place.clone()).collect();
        found.sort();
        assert_eq!(
            found,
            [
                "SPECIFICATION.md:3",
                "crates/measure/src/lib.rs:1",
                "crates/measure/src/lib.rs:2",
                "crates/other/Cargo.toml",
                "crates/other/Cargo.toml",
                "siga-other",
            ]
        );
        assert_eq!(run(root).unwrap_err(), "tidy: 6 problems to correct");
    }
}
