//! Checks that every version is given once, in `[workspace.dependencies]`, and that the workspace's lints apply to every crate.
//!
//! The check covers the manifests of the workspace's crates (`crates/*/Cargo.toml`, `xtask/Cargo.toml`): each dependency must
//! have `workspace = true`. Manifests of other workspaces in the tree (`fuzz/`) are not checked.

use toml::{Table, Value};

use super::Problem;
use super::tree::File;

const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Checks one manifest. Other files have no problems.
pub(crate) fn check(file: &File) -> Vec<Problem> {
    if !is_member(&file.path) {
        return Vec::new();
    }
    let manifest: Table = match file.text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![Problem::new(&file.path, error.to_string())],
    };
    let mut problems = Vec::new();
    if !inherits(manifest.get("lints")) {
        problems.push(Problem::new(&file.path, "it lacks `[lints] workspace = true`"));
    }
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    for table in std::iter::once(&manifest).chain(targets.filter_map(|(_, target)| target.as_table())) {
        for kind in KINDS {
            for (name, dependency) in table.get(kind).and_then(Value::as_table).into_iter().flatten() {
                if !inherits(Some(dependency)) {
                    let what = format!("{kind}: {name} lacks `workspace = true`; versions are given at the root");
                    problems.push(Problem::new(&file.path, what));
                }
            }
        }
    }
    problems
}

fn is_member(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["crates", _, "Cargo.toml"] | ["xtask", "Cargo.toml"])
}

fn inherits(value: Option<&Value>) -> bool {
    value.and_then(|value| value.get("workspace")).and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        check(&file).iter().map(|problem| problem.what.clone()).collect()
    }

    #[test]
    fn inherited_versions_pass() {
        let text = "[dependencies]\nlibc.workspace = true\nserde = { workspace = true, optional = true }\n\
            [lints]\nworkspace = true\n";
        assert_eq!(found("crates/measure/Cargo.toml", text), [""; 0]);
    }

    #[test]
    fn a_version_of_its_own_is_found_in_every_kind_of_table() {
        for table in [
            "dependencies",
            "dev-dependencies",
            "build-dependencies",
            "target.'cfg(unix)'.dependencies",
            "target.'cfg(unix)'.dev-dependencies",
        ] {
            for dependency in ["libc = \"0.2\"", "libc = { version = \"0.2\" }", "libc = { path = \"../libc\" }"] {
                let text = format!("[{table}]\n{dependency}\n[lints]\nworkspace = true\n");
                let found = found("xtask/Cargo.toml", &text);
                assert_eq!(found.len(), 1, "{table}: {dependency}");
                assert!(found[0].contains("libc lacks `workspace = true`"), "{found:?}");
            }
        }
    }

    #[test]
    fn a_crate_outside_the_lints_is_found() {
        assert_eq!(found("crates/siga/Cargo.toml", ""), ["it lacks `[lints] workspace = true`"]);
    }

    #[test]
    fn a_manifest_that_does_not_parse_is_found_and_other_files_are_left_alone() {
        assert_eq!(found("crates/siga/Cargo.toml", "[").len(), 1);
        assert_eq!(found("fuzz/Cargo.toml", "["), [""; 0]);
        assert_eq!(found("crates/siga/tests/fixture/Cargo.toml", "["), [""; 0]);
    }
}
