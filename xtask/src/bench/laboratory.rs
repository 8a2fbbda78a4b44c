//! Measures with the command `siga run`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Runs one trial of each cell with the program `siga`, with the options that all measurements share. `what` adds the others. The
/// run's own files lie in `directory` meanwhile. Returns siga's JSON output.
pub(crate) fn run(
    siga: &Path,
    directory: &Path,
    what: impl FnOnce(&mut Command),
    seconds: f64,
) -> Result<Value, String> {
    let out = directory.join("run");
    let _ = fs::remove_dir_all(&out);
    let mut command = Command::new(siga);
    command.arg("run");
    what(&mut command);
    command.args(["--trials", "1", "--seconds", &seconds.to_string(), "--warm-up", &(seconds / 5.0).to_string()]);
    command.args(["--accounting", "tick", "--format", "json", "--out"]).arg(&out);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("cannot run siga: {error}"))?;
    let _ = fs::remove_dir_all(&out);
    let said = || String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    serde_json::from_slice(&output.stdout).map_err(|error| format!("siga run: {error}: {}", said()))
}

/// Returns siga's description of the host.
pub(crate) fn environment(siga: &Path, directory: &Path) -> Result<Value, String> {
    let shortest = |command: &mut Command| {
        command.args(["--path", "unix", "--workload", "rr-1-1", "--clients", "1"]);
    };
    Ok(run(siga, directory, shortest, 0.05)?["environment"].take())
}
