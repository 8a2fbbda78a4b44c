//! Limits the number of third-party crates in the default build, because this project promises a quick build from a cold cache.
//!
//! The count has the distinct packages that `cargo build --release` compiles for the host: normal and build dependencies with
//! default features. Crates of this workspace do not count, because splitting a crate adds no code to compile.

use std::collections::HashSet;

use super::Problem;

/// The limit. A commit that raises the limit has to justify the additional crates.
pub(crate) const CRATES_MAX: usize = 132;

/// The command that lists the packages. Its output has one line for each use of a package.
pub(crate) const TREE: &str = "cargo tree --locked --package siga --edges normal,build --prefix none --format {p}";

/// Returns the number of distinct third-party packages in the output of [`TREE`].
pub(crate) fn count(tree: &str) -> usize {
    // A line is `name vVERSION`, optionally followed by `(proc-macro)`, a path, or `(*)` if the package was listed before.
    let package = |line: &str| line.split(" (").next().unwrap_or_default().trim().to_owned();
    let is_own = |line: &&str| line.contains(" (/");
    tree.lines()
        .filter(|line| !is_own(line))
        .map(package)
        .filter(|package| !package.is_empty())
        .collect::<HashSet<String>>()
        .len()
}

/// Compares the number of packages in the output of [`TREE`] with the limit.
pub(crate) fn check(tree: &str) -> Option<Problem> {
    let what = match count(tree) {
        _ if tree.trim().is_empty() => "cargo tree listed no crate at all".to_owned(),
        0..=CRATES_MAX => return None,
        count => {
            format!(
                "{count} crates of others in the default build, the limit is {CRATES_MAX} (xtask/src/tidy/budget.rs)"
            )
        }
    };
    Some(Problem::new("siga", what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_of_others_counts_once_and_two_versions_count_twice() {
        let tree = "siga v0.1.0 (/a/b)\nserde v1.0.1\nserde_derive v1.0.1 (proc-macro)\nsyn v2.0.0\n\
            serde v1.0.1 (*)\nserde_derive v1.0.1 (proc-macro) (*)\nsyn v3.0.0\n\n";
        assert_eq!(count(tree), 4);
    }

    #[test]
    fn one_crate_too_many_is_found() {
        let tree = |count: usize| (0..count).map(|at| format!("crate{at} v1.0.0\n")).collect::<String>();
        assert_eq!(check(&tree(CRATES_MAX)), None);
        let what = format!("{} crates of others in the default build", CRATES_MAX + 1);
        assert!(check(&tree(CRATES_MAX + 1)).unwrap().to_string().contains(&what));
        assert!(check("").is_some());
    }
}
