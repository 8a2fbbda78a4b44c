//! How many crates the default build of the program takes; a quick build from a cold cache is a promise of this project.
//!
//! Counted are the distinct packages, our own included, that `cargo build --release` compiles for the host: normal and
//! build dependencies with default features.

use std::collections::HashSet;

use super::Finding;

/// The limit. Raising it is a decision: say in the commit what the crates are worth.
pub(crate) const CRATES_MAX: usize = 92;

/// The command that lists them, one line for each time that one is used.
pub(crate) const TREE: &str = "cargo tree --locked --package siga --edges normal,build --prefix none --format {p}";

/// The distinct packages in the output of [`TREE`].
pub(crate) fn count(tree: &str) -> usize {
    // A line is `name vVERSION`, then perhaps `(proc-macro)`, a path, or `(*)` for one listed before.
    let package = |line: &str| line.split(" (").next().unwrap_or_default().trim().to_owned();
    tree.lines().map(package).filter(|package| !package.is_empty()).collect::<HashSet<String>>().len()
}

/// Compares the count with the limit.
pub(crate) fn check(count: usize) -> Option<Finding> {
    let what = match count {
        0 => "cargo tree listed no crate at all".to_owned(),
        1..=CRATES_MAX => return None,
        _ => format!("{count} crates in the default build, the limit is {CRATES_MAX} (xtask/src/tidy/budget.rs)"),
    };
    Some(Finding::new("siga", what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_counts_once_and_two_versions_count_twice() {
        let tree = "siga v0.1.0 (/a/b)\nserde v1.0.1\nserde_derive v1.0.1 (proc-macro)\nsyn v2.0.0\n\
            serde v1.0.1 (*)\nserde_derive v1.0.1 (proc-macro) (*)\nsyn v3.0.0\n\n";
        assert_eq!(count(tree), 5);
    }

    #[test]
    fn one_crate_too_many_is_found() {
        assert_eq!(check(CRATES_MAX), None);
        assert!(check(CRATES_MAX + 1).unwrap().to_string().contains("93 crates in the default build"));
        assert!(check(0).is_some());
    }
}
