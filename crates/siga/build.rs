//! Builds the preload library, which the program carries inside (`siga exec`).
//!
//! The program is static, and a static target cannot have a shared library. So cargo builds the crate `siga-preload` a second time,
//! for the same target without static linking, below this script's output directory.

use std::env;
use std::path::PathBuf;
use std::process::Command;

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
    // Settings of the build around this one: they are for another target.
    for name in ["CARGO_ENCODED_RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "RUSTC_WRAPPER", "CLIPPY_ARGS"] {
        build.env_remove(name);
    }
    build.env("RUSTFLAGS", "-C target-feature=-crt-static --cfg siga_preload_library");
    let status = build.status().unwrap_or_else(|error| panic!("cannot run cargo: {error}"));
    assert!(status.success(), "the preload library cannot be built: {status}");
    println!("cargo::rustc-env=SIGA_PRELOAD_LIBRARY={}", out.join(target).join("release/libsiga_preload.so").display());
}
