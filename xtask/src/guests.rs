//! Runs a virtual network in a run directory of its own, and programs on its guests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::command;

/// A network. It goes down when this value is dropped.
pub(crate) struct Network {
    siga: PathBuf,
    run_dir: PathBuf,
    name: &'static str,
}

impl Network {
    /// Starts the network `name` of a topology with the program `siga`.
    pub(crate) fn up(siga: &Path, run_dir: &Path, topology: &Path, name: &'static str) -> Result<Self, String> {
        fs::create_dir_all(run_dir).map_err(|error| format!("{}: {error}", run_dir.display()))?;
        let network = Self { siga: siga.to_owned(), run_dir: run_dir.to_owned(), name };
        let mut up = network.siga();
        up.args(["net", "up"]).arg(topology);
        command::output(up)?;
        Ok(network)
    }

    fn siga(&self) -> Command {
        let mut command = Command::new(&self.siga);
        command.env("SIGA_RUN_DIR", &self.run_dir).stdin(Stdio::null());
        command
    }

    /// Returns a command that runs a program on a guest, with loopback addresses of the guest's own. The program and its arguments
    /// follow.
    pub(crate) fn exec(&self, guest: &str) -> Command {
        let mut command = self.siga();
        command.args(["exec", "--loopback", "guest", self.name, guest]);
        command
    }

    /// Returns the process ids of the guests.
    pub(crate) fn guests(&self) -> Result<Vec<u32>, String> {
        let mut status = self.siga();
        status.args(["net", "status", self.name, "--format", "json"]);
        let json: Value =
            serde_json::from_str(&command::output(status)?).map_err(|error| format!("status: {error}"))?;
        let pid = |guest: &Value| guest["pid"].as_u64().and_then(|pid| pid.try_into().ok());
        Ok(json["guests"].as_array().into_iter().flatten().filter_map(pid).collect())
    }

    /// Returns a script that takes the place of ssh. It runs its last argument, a line for a shell, on the guest with the name of the
    /// argument before.
    pub(crate) fn script(&self) -> String {
        let Self { siga, run_dir, name } = self;
        let (siga, run_dir) = (siga.display(), run_dir.display());
        format!(
            "while [ $# -gt 2 ]; do shift; done\nSIGA_RUN_DIR='{run_dir}' exec '{siga}' exec {name} \"$1\" sh -c \"$2\"\n"
        )
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let mut down = self.siga();
        down.args(["net", "down", self.name]);
        if let Err(error) = command::output(down) {
            eprintln!("{error}");
        }
    }
}
