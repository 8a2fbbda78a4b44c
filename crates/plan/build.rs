//! Generates the lists of shipped plans and levels: every TOML file in `plans/` and `levels/`, named without its extension.
#![allow(clippy::print_stdout, reason = "cargo reads a build script's standard output")]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let variable = |name: &str| env::var_os(name).map(PathBuf::from).ok_or(io::ErrorKind::NotFound);
    let root = variable("CARGO_MANIFEST_DIR")?.join("../..").canonicalize()?;
    let mut code = String::new();
    for (list, folder) in [("PLAN_FILES", "plans"), ("LEVEL_FILES", "levels")] {
        code += &shipped(list, &root.join(folder))?;
    }
    fs::write(variable("OUT_DIR")?.join("shipped.rs"), code)
}

/// Returns the source of a constant with the name and the text of each file in `folder`.
fn shipped(list: &str, folder: &Path) -> io::Result<String> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
    let mut files: Vec<PathBuf> =
        files.into_iter().filter(|file| file.extension().is_some_and(|it| it == "toml")).collect();
    files.sort();
    let mut code = format!("const {list}: [(&str, &str); {}] = [\n", files.len());
    for file in &files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let _ = writeln!(code, "    ({name:?}, include_str!({:?})),", file.display().to_string());
    }
    Ok(code + "];\n")
}
