//! Finds out whether this host has what the commands of a plan need.

use siga_plan::command::needs::Need;
use siga_plan::matrix::{Cell, Matrix};
use siga_plan::plan::Plan;
use std::ffi::OsStr;
use std::path::Path;

/// Moves the cells whose command lacks a program or a file to the skipped cells of the matrix, with the name of its package.
pub fn skip_lacking(plan: &Plan, matrix: &mut Matrix) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let (kept, lacking): (Vec<Cell>, Vec<Cell>) =
        std::mem::take(&mut matrix.cells).into_iter().partition(|cell| lacks(plan, cell, &path).is_none());
    matrix.cells = kept;
    matrix.skipped.extend(lacking.into_iter().filter_map(|cell| Some((cell.clone(), lacks(plan, &cell, &path)?))));
}

/// Returns the programs and files that a cell lacks, with the command that installs them.
fn lacks(plan: &Plan, cell: &Cell, path: &OsStr) -> Option<String> {
    let lacking =
        plan.command_of(cell)?.needs.iter().filter(|need| need.concerns(&cell.level) && !is_there(&need.file, path));
    let lacking: Vec<&Need> = lacking.collect();
    let first = lacking.first()?;
    let mut packages: Vec<&str> = lacking.iter().map(|need| need.package.as_str()).collect();
    packages.dedup();
    Some(format!(
        "this host has no {} (package {}): `apt-get install --no-install-recommends {}`",
        first.file,
        first.package,
        packages.join(" ")
    ))
}

fn is_there(file: &str, path: &OsStr) -> bool {
    if file.contains('/') {
        return Path::new(file).exists();
    }
    std::env::split_paths(path).any(|directory| directory.join(file).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_path_and_files_by_their_paths() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("tool"), "").unwrap();
        let path = directory.path().as_os_str();
        assert!(is_there("tool", path) && !is_there("nosuch", path) && !is_there("tool", OsStr::new("/nosuch")));
        assert!(
            is_there(directory.path().join("tool").to_str().unwrap(), OsStr::new("")) && !is_there("/nosuch/x", path)
        );
    }
}
