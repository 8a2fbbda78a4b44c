//! The published JSON Schemas of plans and levels. This task writes them from the types that parse these files, or compares the
//! two.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The name of each schema for the generator, and the published file.
const SCHEMAS: [(&str, &str); 2] = [("plan", "plans/plan.schema.json"), ("level", "levels/level.schema.json")];

/// Writes the schema files. With `check`, compares them instead and returns an error if a file differs from the types.
pub(crate) fn run(root: &Path, check: bool) -> Result<(), String> {
    for (name, file) in SCHEMAS {
        let output = Command::new(env!("CARGO"))
            .current_dir(root)
            .args(["run", "--quiet", "--package", "siga-plan", "--features", "schema", "--example", "schema", name])
            .output()
            .map_err(|error| format!("cannot run cargo: {error}"))?;
        if !output.status.success() {
            return Err(format!("schema {name}: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let path = root.join(file);
        if !check {
            fs::write(&path, &output.stdout).map_err(|error| format!("cannot write {file}: {error}"))?;
        } else if fs::read(&path).ok().as_ref() != Some(&output.stdout) {
            return Err(format!("{file} does not match the source code; write it with `cargo xtask schema`"));
        }
    }
    Ok(())
}
