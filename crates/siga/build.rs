//! Builds the preload library, which the program carries inside (`siga exec`), and says from which commit the program is built.
//!
//! The program is static, and a static target cannot have a shared library. So cargo builds the crate `siga-preload` a second time,
//! for the same target without static linking, below this script's output directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The crates of this workspace that are part of the library.
const CRATES: [&str; 3] = ["preload", "iucv", "ring"];

fn main() {
    let variable = |name: &str| env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("../..");
    let (target, out) = (variable("TARGET"), PathBuf::from(variable("OUT_DIR")).join("preload"));
    for name in CRATES {
        println!("cargo::rerun-if-changed={}", root.join("crates").join(name).display());
    }
    println!("cargo::rerun-if-changed={}", root.join("Cargo.lock").display());

    let mut build = Command::new(variable("CARGO"));
    build.current_dir(&root);
    build.args(["rustc", "--quiet", "--locked", "--release", "--package", "siga-preload", "--lib"]);
    build.args(["--crate-type", "cdylib", "--target", &target, "--target-dir"]).arg(&out);
    // Each fork of a program copies the library's pages and mappings, so the library is small. A panic ends the process in any case.
    for (name, value) in [("LTO", "fat"), ("CODEGEN_UNITS", "1"), ("PANIC", "abort")] {
        build.env(format!("CARGO_PROFILE_RELEASE_{name}"), value);
    }
    // Settings of the build around this one: they are for another target.
    for name in ["RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "RUSTC_WRAPPER", "CLIPPY_ARGS"] {
        build.env_remove(name);
    }
    // Cargo sets these variables for this script. Scripts of the build below would take them for their own.
    for (name, _) in env::vars().filter(|(name, _)| name.starts_with("CARGO_CFG_")) {
        build.env_remove(name);
    }
    // Arguments are separated by this character, because a directory can have spaces.
    let flags = ["-Ctarget-feature=-crt-static".to_owned(), "--cfg=siga_preload_library".to_owned()];
    build.env(
        "CARGO_ENCODED_RUSTFLAGS",
        flags.into_iter().chain(static_unwinder(&out)).collect::<Vec<_>>().join("\u{1f}"),
    );
    let status = build.status().unwrap_or_else(|error| panic!("cannot run cargo: {error}"));
    assert!(status.success(), "the preload library cannot be built: {status}");
    println!("cargo::rustc-env=SIGA_COMMIT={}", commit(&root));
    println!("cargo::rustc-env=SIGA_FEATURES={}", features());
    println!("cargo::rustc-env=SIGA_PRELOAD_LIBRARY={}", out.join(target).join("release/libsiga_preload.so").display());
}

/// Returns the flag with which the linker takes the unwinder of the static libgcc. The shared one would be a second library in each
/// program, which makes each fork slower. Other C libraries have no libgcc of their own.
fn static_unwinder(out: &Path) -> Option<String> {
    if env::var("CARGO_CFG_TARGET_ENV").as_deref() != Ok("gnu") {
        return None;
    }
    let directory = out.join("link");
    // The linker finds this script in place of the shared library with the name.
    let written = fs::create_dir_all(&directory)
        .and_then(|()| fs::write(directory.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n"));
    written.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    Some(format!("-Lnative={}", directory.display()))
}

/// Returns the commit of the sources, with a mark if files differ from it; "unknown" outside a git repository.
fn commit(root: &PathBuf) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // This file of git changes with each commit.
    if let Some(log) =
        git(&["rev-parse", "--git-path", "logs/HEAD"]).map(|path| root.join(path)).filter(|path| path.exists())
    {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changed) if changed.is_empty() => commit,
        Some(_) | None => format!("{commit}, modified"),
    }
}

/// Returns the cargo features of this build in words.
fn features() -> String {
    let enabled = env::vars().filter_map(|(name, _)| name.strip_prefix("CARGO_FEATURE_").map(str::to_lowercase));
    let mut enabled: Vec<String> =
        enabled.filter(|name| name != "default").map(|name| name.replace('_', "-")).collect();
    enabled.sort();
    if enabled.is_empty() { "none".to_owned() } else { enabled.join(", ") }
}
