//! An agent on another host, by the system's ssh: the program copies itself there, runs, and removes its file.
//!
//! Two connections, the second for the control channel; neither is measured. Host keys, users and ports come from the
//! user's ssh configuration. Nothing asks for a password: a place that needs one is refused.

use super::{Agent, greet};
use crate::control::Helper;
use crate::error::{Error, IoContext, Result};
use std::fs::File;
use std::process::{Command, Stdio};

/// Starts an agent on `host`; `ssh` is the command to reach it with, words parted by spaces.
pub(super) fn agent(host: &str, name: &str, ssh: &str) -> Result<Agent> {
    let file = copy(host, ssh)?;
    // `exec` leaves no shell behind; the agent removes its file before it says hello.
    let mut command = command(ssh)?;
    command.arg(host).arg(format!("exec {file} agent --unlink"));
    let started = Helper::start(command, name).and_then(|mut helper| {
        let addresses = greet(&mut helper)?;
        Ok(Agent { helper, addresses })
    });
    started.map_err(|error| {
        remove(host, ssh, &file);
        error.at(format!("ssh:{host}"))
    })
}

fn command(ssh: &str) -> Result<Command> {
    let mut words = ssh.split_whitespace();
    let program = words.next().ok_or_else(|| Error::usage("--ssh: no command given"))?;
    let mut command = Command::new(program);
    command.args(words).args(["-T", "-o", "BatchMode=yes"]);
    Ok(command)
}

/// Copies the running program into a file of its own on the host and returns the file's name.
fn copy(host: &str, ssh: &str) -> Result<String> {
    let program = File::open("/proc/self/exe").context("cannot read the running program")?;
    let script = "umask 077 && f=$(mktemp \"${TMPDIR:-/tmp}/siga.XXXXXXXXXX\") && { cat >\"$f\" && chmod 700 \"$f\" && \
                  echo \"$f\" || { rm -f \"$f\"; exit 1; }; }";
    let mut command = command(ssh)?;
    command.arg(host).arg(script).stdin(Stdio::from(program)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.output().context(format!("cannot run {}", command.get_program().display()))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::environment(format!("ssh:{host}: {reason}"))
            .hint("`ssh HOST true` has to work without a password; give another command with --ssh"));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    if !text.starts_with('/') || !text.bytes().all(plain) {
        return Err(Error::environment(format!(
            "ssh:{host}: the shell there answered `{text}` instead of a file name"
        )));
    }
    Ok(text)
}

fn remove(host: &str, ssh: &str, file: &str) {
    if let Ok(mut command) = command(ssh) {
        let _ = command.arg(host).arg(format!("rm -f {file}")).stdin(Stdio::null()).output();
    }
}
