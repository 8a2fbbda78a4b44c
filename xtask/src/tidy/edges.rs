//! Checks with `cargo metadata` which crate of the workspace depends on which.
//!
//! The crates form layers, and the table is their complete graph. A crate may depend on the crates that the table lists for it,
//! and on the crates below those. Every other dependency is a problem, and so is a crate that is missing from the table.
//! Dev-dependencies are not checked. A crate of the table that is missing from the source tree is no problem.

use serde_json::Value;

use super::Problem;

/// Each crate of the workspace with the crates directly below it.
const BELOW: [(&str, &[&str]); 13] = [
    ("siga", &["siga-measure", "siga-report"]),
    ("siga-measure", &["siga-results", "siga-fabric"]),
    ("siga-report", &["siga-results"]),
    ("siga-results", &["siga-plan"]),
    ("siga-plan", &["siga-model"]),
    ("siga-fabric", &["siga-iucv", "siga-ring", "siga-stack"]),
    ("siga-preload", &["siga-iucv"]),
    ("siga-iucv", &["siga-model", "siga-ring"]),
    ("siga-model", &[]),
    ("siga-ring", &[]),
    ("siga-stack", &[]),
    ("siga-sim", &["siga-stack"]),
    ("xtask", &["siga-sim"]),
];

/// Compares the packages in `metadata` (`cargo metadata --no-deps`, format 1) with the table.
pub(crate) fn check(metadata: &str) -> Result<Vec<Problem>, String> {
    let metadata: Value = serde_json::from_str(metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata: it lists no packages")?;
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut problems = Vec::new();
    for package in packages {
        let name = package["name"].as_str().ok_or("cargo metadata: a package has no name")?;
        if !BELOW.iter().any(|(user, _)| *user == name) {
            problems.push(Problem::new(name, "it is not in the graph of crates (xtask/src/tidy/edges.rs)"));
            continue;
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            let free = dependency["kind"].as_str() == Some("dev");
            if !free && names.contains(&used) && !is_below(name, used) {
                problems.push(Problem::new(name, format!("it may not use {used}")));
            }
        }
    }
    Ok(problems)
}

/// Whether `used` is below `user` in the table. The recursion ends because the table has no circle.
fn is_below(user: &str, used: &str) -> bool {
    let below = BELOW.iter().find(|(name, _)| *name == user).map_or(&[][..], |(_, below)| below);
    below.iter().any(|name| *name == used || is_below(name, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the problems for one crate that depends on another with dependency kind `kind` (a JSON value).
    fn edge(user: &str, used: &str, kind: &str) -> Vec<String> {
        let metadata = format!(
            r#"{{"packages":[
                {{"name":"{user}","dependencies":[{{"name":"serde","kind":null}},{{"name":"{used}","kind":{kind}}}]}},
                {{"name":"{used}","dependencies":[]}}]}}"#
        );
        check(&metadata).unwrap().iter().map(Problem::to_string).collect()
    }

    #[test]
    fn the_edges_of_the_table_pass() {
        for (user, used) in BELOW.iter().flat_map(|(user, below)| below.iter().map(move |used| (user, used))) {
            assert_eq!(edge(user, used, "null"), [""; 0]);
        }
        assert_eq!(edge("siga-measure", "siga-model", "null"), [""; 0]);
        assert_eq!(edge("siga", "siga-stack", "null"), [""; 0]);
    }

    #[test]
    fn an_edge_outside_the_table_is_found() {
        assert_eq!(edge("siga-stack", "siga-measure", "null"), ["siga-stack: it may not use siga-measure"]);
        assert_eq!(edge("siga-report", "siga-stack", "\"build\""), ["siga-report: it may not use siga-stack"]);
        assert_eq!(edge("siga-stack", "siga-ring", "null"), ["siga-stack: it may not use siga-ring"]);
    }

    #[test]
    fn dev_dependencies_are_free() {
        assert_eq!(edge("siga-stack", "siga-sim", "\"dev\""), [""; 0]);
    }

    #[test]
    fn a_crate_outside_the_table_is_found() {
        let found = edge("siga-new", "siga-stack", "null");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("siga-new: it is not in the graph"), "{found:?}");
    }

    #[test]
    fn output_that_is_not_metadata_is_an_error() {
        assert!(check("{}").is_err());
        assert!(check("no json").is_err());
    }
}
