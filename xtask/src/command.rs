//! Runs other programs in the root of the source tree, without stdin. Errors name the command.
//!
//! No shell is involved. A command line is split at white space, so an argument cannot contain white space.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Returns a command for `line`, whose first word is the program. `cargo` means the cargo that runs this task.
pub(crate) fn command(root: &Path, line: &str) -> Command {
    let mut words = line.split_whitespace();
    let program = match words.next() {
        Some("cargo") => std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")),
        word => OsString::from(word.unwrap_or_default()),
    };
    let mut command = Command::new(program);
    command.args(words).current_dir(root).stdin(Stdio::null());
    command
}

/// Runs `command`, which inherits stdout and stderr. An exit status other than 0 is an error.
pub(crate) fn run(mut command: Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{}: {error}", name(&command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", name(&command))) }
}

/// Runs `command` and returns its stdout, or an error that ends with the last line of its stderr.
pub(crate) fn output(mut command: Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{}: {error}", name(&command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} ended with {}: {}", name(&command), output.status, last_line(&stderr)));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{}: {error}", name(&command)))
}

/// Prints to stdout. A closed pipe is not an error, because the reader may have seen enough.
pub(crate) fn print(text: &str) -> Result<(), String> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot print: {error}")),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Runs a cargo command that builds. Returns the path of the last program that it built. Compiler messages go to stderr as usual.
pub(crate) fn built(root: &Path, line: &str) -> Result<PathBuf, String> {
    let mut build = command(root, line);
    build.arg("--message-format=json-render-diagnostics");
    let messages = messages(build)?;
    let mut programs = messages.iter().filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    programs.next_back().ok_or_else(|| format!("{line} built no program"))
}

/// Runs a cargo command that builds with messages in JSON. Returns the messages; those of the compiler go to stderr as usual.
pub(crate) fn messages(mut build: Command) -> Result<Vec<Value>, String> {
    build.stderr(Stdio::inherit());
    let output = build.output().map_err(|error| format!("{}: {error}", name(&build)))?;
    if !output.status.success() {
        return Err(format!("{} ended with {}", name(&build), output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Returns the commit of the source tree, with `-dirty` if files were changed; `None` if the tree is not a git repository.
pub(crate) fn commit(root: &Path) -> Option<String> {
    let commit = output(command(root, "git describe --always --dirty --abbrev=40 --exclude=*"));
    commit.ok().map(|commit| commit.trim().to_owned())
}

fn last_line(text: &str) -> &str {
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it said nothing")
}

fn name(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for argument in command.get_args() {
        name.push(' ');
        name.push_str(&argument.to_string_lossy());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_and_its_last_words() {
        let root = tempfile::tempdir().unwrap();
        let error = output(command(root.path(), "git log nowhere")).unwrap_err();
        assert!(error.starts_with("git log nowhere ended with exit status"), "{error}");
        assert!(error.contains("fatal"), "{error}");
        let error = run(command(root.path(), "false")).unwrap_err();
        assert_eq!(error, "false ended with exit status: 1");
        let error = run(command(root.path(), "no-such-program-anywhere")).unwrap_err();
        assert!(error.starts_with("no-such-program-anywhere: "), "{error}");
    }

    #[test]
    fn a_command_runs_at_the_root_and_reads_nothing() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(output(command(root.path(), "cat")).unwrap(), "");
        let place = output(command(root.path(), "pwd -P")).unwrap();
        assert_eq!(Path::new(place.trim()), root.path().canonicalize().unwrap());
    }
}
