//! Which crate of the workspace may use which, checked over `cargo metadata`.
//!
//! The table is the whole truth: an edge that is not in it is a finding, and so is a crate that is not in it.
//! Dev-dependencies are free. Crates that are in the table and not yet in the tree are no finding.

use serde_json::Value;

use super::Finding;

/// Each crate of the workspace with those it may use.
const MAY_USE: [(&str, &[&str]); 8] = [
    ("siga", &["siga-lab", "siga-fabric", "siga-model"]),
    ("siga-lab", &["siga-fabric", "siga-model"]),
    ("siga-fabric", &["siga-stack", "siga-ring", "siga-model"]),
    ("siga-model", &[]),
    ("siga-sim", &["siga-stack"]),
    ("siga-stack", &[]),
    ("siga-ring", &[]),
    ("xtask", &["siga-sim"]),
];

/// Compares the packages in `metadata` (`cargo metadata --no-deps`, format 1) with the table.
pub(crate) fn check(metadata: &str) -> Result<Vec<Finding>, String> {
    let metadata: Value = serde_json::from_str(metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata: it lists no packages")?;
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().ok_or("cargo metadata: a package has no name")?;
        let Some((_, allowed)) = MAY_USE.iter().find(|(user, _)| *user == name) else {
            findings.push(Finding::new(name, "it is not in the table of who may use whom (xtask/src/tidy/edges.rs)"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            let free = dependency["kind"].as_str() == Some("dev");
            if !free && names.contains(&used) && !allowed.contains(&used) {
                findings.push(Finding::new(name, format!("it may not use {used}")));
            }
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings for one crate that uses another by way of `kind` (a JSON value).
    fn edge(user: &str, used: &str, kind: &str) -> Vec<String> {
        let metadata = format!(
            r#"{{"packages":[
                {{"name":"{user}","dependencies":[{{"name":"serde","kind":null}},{{"name":"{used}","kind":{kind}}}]}},
                {{"name":"{used}","dependencies":[]}}]}}"#
        );
        check(&metadata).unwrap().iter().map(Finding::to_string).collect()
    }

    #[test]
    fn the_edges_of_the_table_pass() {
        for (user, used) in MAY_USE.iter().flat_map(|(user, allowed)| allowed.iter().map(move |used| (user, used))) {
            assert_eq!(edge(user, used, "null"), [""; 0]);
        }
    }

    #[test]
    fn an_edge_outside_the_table_is_found() {
        assert_eq!(edge("siga-stack", "siga-lab", "null"), ["siga-stack: it may not use siga-lab"]);
        assert_eq!(edge("siga-lab", "siga-stack", "\"build\""), ["siga-lab: it may not use siga-stack"]);
    }

    #[test]
    fn dev_dependencies_are_free() {
        assert_eq!(edge("siga-stack", "siga-sim", "\"dev\""), [""; 0]);
    }

    #[test]
    fn a_crate_outside_the_table_is_found() {
        let found = edge("siga-new", "siga-lab", "null");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("siga-new: it is not in the table"), "{found:?}");
    }

    #[test]
    fn output_that_is_not_metadata_is_an_error() {
        assert!(check("{}").is_err());
        assert!(check("no json").is_err());
    }
}
