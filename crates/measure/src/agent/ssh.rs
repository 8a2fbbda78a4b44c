//! Starts an agent on another host with the installed program ssh. siga copies its own program file to the host and runs it
//! there. The agent then removes the file.
//!
//! One ssh connection carries first the program file and then the orders, both on standard input. The measured traffic does not
//! use this connection. If the connection breaks before the agent runs, the shell on the other host removes the file. Host
//! keys, users and ports come from the user's ssh configuration. siga never asks for a password: if a host needs one, siga
//! returns an error.

use super::launch::{LaunchedAgent, Role, greet};
use crate::channel::ChildProcess;
use crate::limits;
use siga_model::error::{Error, IoContext, Result};
use std::fs::File;
use std::process::{Command, Stdio};

/// Starts a process with this role on `host`. `ssh` is the command that connects to hosts; spaces separate its words.
pub(super) fn launch(host: &str, role: Role, name: &str, ssh: &str) -> Result<LaunchedAgent> {
    let mut program = File::open("/proc/self/exe").context("cannot read the program file of this siga process")?;
    let bytes = program.metadata().context("cannot read the program file of this siga process")?.len();
    let mut command = command(host, role, ssh, bytes)?;
    command.stderr(Stdio::piped());
    let started = ChildProcess::start(command, name).and_then(|mut process| {
        process.feed(&mut program, limits::STALL_TIME_MAX)?;
        let addresses = greet(&mut process)?;
        Ok(LaunchedAgent { process, addresses })
    });
    started.map_err(|error| {
        Error::environment(format!("ssh:{host}: {}", error.message()))
            .hint("`ssh HOST true` must work without a password; use --ssh to set another command")
    })
}

/// Returns the script that the other host runs. The script starts `sh` itself, so it works with any login shell. The script
/// contains no text from outside siga, so a name in a plan cannot inject commands.
fn script(role: Role, bytes: u64) -> String {
    let lines = [
        r#"umask 077; f=$(mktemp "${TMPDIR:-/tmp}/siga.XXXXXXXXXX") || exit 1;"#,
        r#"gone() { rm -f "$f"; }; trap gone EXIT;"#,
        r#"head -c BYTES >"$f" && test "$(wc -c <"$f")" -eq BYTES && chmod 700 "$f" && "$f" ROLE --unlink"#,
    ];
    let lines = lines.join(" ").replace("BYTES", &bytes.to_string()).replace("ROLE", role.word());
    format!("exec sh -c '{lines}'")
}

/// Builds the command that connects to `host`. The command expects a program file of `bytes` bytes, and then the orders, on its
/// standard input. Returns an error of kind `Usage` if `ssh` contains no command.
pub(crate) fn command(host: &str, role: Role, ssh: &str, bytes: u64) -> Result<Command> {
    let mut words = ssh.split_whitespace();
    let program = words.next().ok_or_else(|| {
        Error::usage("the command with which siga connects to other hosts (--ssh) is empty")
            .hint("--ssh accepts a command such as `ssh -F FILE`")
    })?;
    let mut command = Command::new(program);
    command.args(words).args(["-T", "-o", "BatchMode=yes", host]).arg(script(role, bytes));
    Ok(command)
}
