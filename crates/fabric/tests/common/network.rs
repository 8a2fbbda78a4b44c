//! A network of a test: starts it with `fabric-program` and asks it by requests of the protocol.
#![allow(dead_code, clippy::print_stdout, reason = "each test file uses what it needs, and tests say what they skip")]

use siga_fabric::protocol::request::{Answer, GuestStatus, Request};
use siga_fabric::protocol::secret::Secret;
use siga_fabric::sockets::Attachment;
use siga_model::allow::Allow;
use siga_model::name::Name;
use std::path::PathBuf;
use std::process::{Child, Command};

mod shared_network;

pub(crate) use shared_network::*;

/// A test that kills an application runs the application as a process of its own: this test program, with this variable in its environment.
const VICTIM: &str = "SIGA_TEST_VICTIM";

/// Returns the attachment and the word of an application that [`Network::start_victim`] has started. Returns `None` in any other process.
pub(crate) fn victim() -> Option<(Attachment, String)> {
    let arguments = std::env::var(VICTIM).ok()?;
    let words: Vec<&str> = arguments.split(' ').collect();
    let [base, network, guest, secret, word] = words[..] else { panic!("{arguments}") };
    let (network, guest) = (network.parse().unwrap(), guest.parse().unwrap());
    let attachment = Attachment::iucv_at(base.as_ref(), &network, &guest, &Secret::claimed(secret)).unwrap();
    Some((attachment, word.to_owned()))
}

impl Network {
    pub(crate) fn up(name: &str, topology: &str) -> Self {
        let network = Self { name: name.parse().unwrap(), base: tempfile::tempdir().unwrap() };
        std::fs::write(network.topology(), topology).unwrap();
        network.start();
        network
    }

    /// Starts a process that runs only the test `name` of this test program. The test calls [`victim`], which returns an attachment to
    /// the guest, and the word.
    pub(crate) fn start_victim(&self, name: &str, guest: &str, word: &str) -> Child {
        let secret = self.application_secret(guest);
        let arguments = format!("{} {} {guest} {} {word}", self.run_dir().display(), self.name, secret.text());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(VICTIM, arguments).spawn().unwrap()
    }

    /// Starts the network, or a new control program for its guests.
    pub(crate) fn start(&self) {
        let output = self.start_command().output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn start_command(&self) -> Command {
        self.command(&["up", self.name.as_str(), self.topology().to_str().unwrap()])
    }

    fn topology(&self) -> PathBuf {
        self.base.path().join("topology.toml")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fabric-program"));
        command.arg("net").args(arguments).env("SIGA_RUN_DIR", self.run_dir());
        command
    }

    /// Makes a request in a process of its own, because this one may be attached.
    pub(crate) fn request(&self, request: &Request) -> Vec<Answer> {
        let request = serde_json::to_string(request).unwrap();
        let output = self.command(&["request", self.name.as_str(), &request]).output().unwrap();
        assert!(output.status.success(), "{request}: {}", String::from_utf8_lossy(&output.stderr));
        let answers: Vec<Answer> = serde_json::from_slice(&output.stdout).unwrap();
        assert!(!matches!(answers.last(), Some(Answer::Failed(_))), "{request}: {answers:?}");
        answers
    }

    /// Lets a guest send an echo request; the round trip, or none in time.
    pub(crate) fn try_ping(&self, guest: &str, to: &str, timeout_ms: u32) -> Option<u64> {
        let (guest, to) = (guest.parse().unwrap(), to.parse().unwrap());
        let answers = self.request(&Request::Ping { guest, to, bytes: 56, timeout_ms });
        let [Answer::Pong { time_ns }] = answers[..] else { panic!("{answers:?}") };
        time_ns
    }

    pub(crate) fn ping(&self, guest: &str, to: &str) {
        assert!(self.try_ping(guest, to, 20_000).is_some(), "{to} does not answer {guest}");
    }

    /// Grants or revokes a guest's access to a restricted network.
    pub(crate) fn set_access(&self, network: &str, guest: &str, is_granted: bool) {
        let (network, guest) = (network.parse().unwrap(), guest.parse().unwrap());
        self.request(&if is_granted { Request::Grant { network, guest } } else { Request::Revoke { network, guest } });
    }

    /// Replaces the rules of a guest's port filter.
    pub(crate) fn set_allow(&self, guest: &str, rules: Option<&[&str]>) {
        let allow = rules.map(|rules| Allow::new(rules.iter().map(|rule| rule.parse().unwrap()).collect()).unwrap());
        self.request(&Request::Allow { guest: guest.parse().unwrap(), allow });
    }

    fn secret_of(&self, guest: &str, application: bool) -> Secret {
        let answers = self.request(&Request::Secret { guest: guest.parse().unwrap(), application });
        let [Answer::Secret(secret)] = &answers[..] else { panic!("{answers:?}") };
        secret.clone()
    }

    /// The secret with which a process attaches as a guest.
    pub(crate) fn secret(&self, guest: &str) -> Secret {
        self.secret_of(guest, false)
    }

    pub(crate) fn attach(&self, guest: &str) -> Attachment {
        Attachment::embedded_at(&self.run_dir(), &self.name, &guest.parse().unwrap(), &self.secret(guest)).unwrap()
    }

    /// The secret of a guest's applications.
    pub(crate) fn application_secret(&self, guest: &str) -> Secret {
        self.secret_of(guest, true)
    }

    fn part(&self, guest: &str, part: &str) -> serde_json::Value {
        let guest: Name = guest.parse().unwrap();
        let parts = self.request(&Request::Status { detail: true }).into_iter().filter_map(|answer| {
            let Answer::Report { guest: of, part } = answer else { return None };
            (of == guest).then(|| serde_json::to_value(part).unwrap())
        });
        parts.map(|mut report| report[part].take()).find(|part| !part.is_null()).unwrap()
    }

    /// A counter of a guest's first device.
    pub(crate) fn counter(&self, guest: &str, name: &str) -> u64 {
        self.part(guest, "device")["counters"][name].as_u64().unwrap_or_default()
    }

    pub(crate) fn status(&self, guest: &str) -> GuestStatus {
        let answers = self.request(&Request::Status { detail: false });
        let is = |answer| if let Answer::Guest(status) = answer { Some(status) } else { None };
        answers.into_iter().filter_map(is).find(|status| status.name.as_str() == guest).unwrap()
    }

    /// The ring pairs on the first network of the topology.
    pub(crate) fn pairs(&self) -> u32 {
        let answers = self.request(&Request::Status { detail: false });
        let is = |answer| if let Answer::Network(status) = answer { Some(status.pairs) } else { None };
        answers.into_iter().find_map(is).unwrap()
    }

    pub(crate) fn pid_of(&self, guest: &str) -> Option<i32> {
        self.status(guest).pid.map(|pid| pid.try_into().unwrap())
    }
}
