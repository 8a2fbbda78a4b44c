//! A network for tests: starts it with siga's command line and queries it with commands.
#![allow(dead_code, clippy::print_stdout, reason = "each test file uses what it needs, and tests say what they skip")]

use siga_fabric::protocol::secret::Secret;
use siga_fabric::sockets::Attachment;
use std::process::{Command, Output};

#[path = "../../../fabric/tests/common/shared_network.rs"]
mod shared_network;

pub(crate) use shared_network::*;

impl Network {
    pub(crate) fn up(name: &str, topology: &str) -> Self {
        let base = tempfile::tempdir().unwrap();
        let network = Self { name: name.parse().unwrap(), base };
        let path = network.base.path().join(format!("{name}.toml"));
        std::fs::write(&path, topology).unwrap();
        let output = network.siga(&["up", path.to_str().unwrap(), "--name", name]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        network
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.arg("net").args(arguments).env("SIGA_RUN_DIR", self.run_dir());
        command
    }

    pub(crate) fn siga(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        let output = self.siga(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn attach(&self, guest: &str) -> Attachment {
        let secret = self.text(&["token", self.name.as_str(), guest]);
        let secret = Secret::claimed(secret.trim());
        Attachment::embedded_at(&self.run_dir(), &self.name, &guest.parse().unwrap(), &secret).unwrap()
    }

    /// Returns the secret of a guest's applications.
    pub(crate) fn application_secret(&self, guest: &str) -> Secret {
        Secret::claimed(self.text(&["token", self.name.as_str(), guest, "--application"]).trim())
    }

    fn part(&self, guest: &str, part: &str) -> serde_json::Value {
        let status = self.text(&["status", self.name.as_str(), "--detail", "--format", "json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let reports = status["reports"].as_array().unwrap().iter();
        let of = |report: &&serde_json::Value| report["guest"] == guest && !report["part"][part].is_null();
        reports.clone().find(of).unwrap()["part"][part].clone()
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.text(&["status", self.name.as_str(), "--format", "json"])).unwrap()
    }

    pub(crate) fn pid_of(&self, guest: &str) -> Option<i32> {
        let status = self.status();
        let guest = status["guests"].as_array().unwrap().iter().find(|entry| entry["name"] == guest).unwrap();
        guest["pid"].as_i64().map(|pid| pid.try_into().unwrap())
    }
}
