//! A network that a test brings up, and what runs over it.
#![allow(dead_code, reason = "each test file uses what it needs")]

use siga_fabric::message::Token;
use siga_fabric::name::Name;
use siga_fabric::sockets::{Attachment, TcpListener, TcpStream};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A network that is up as long as this lives.
pub(crate) struct Network {
    pub(crate) name: Name,
    base: tempfile::TempDir,
}

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

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.base.path().join("run")
    }

    pub(crate) fn siga(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.arg("net").args(arguments).env("SIGA_RUN_DIR", self.run_dir());
        command.output().unwrap()
    }

    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        let output = self.siga(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn attach(&self, guest: &str) -> Attachment {
        let token = self.text(&["token", self.name.as_str(), guest]);
        let token = Token::claimed(token.trim());
        Attachment::embedded_at(&self.run_dir(), &self.name, &guest.parse().unwrap(), &token).unwrap()
    }

    /// The secret of a guest's applications.
    pub(crate) fn application_token(&self, guest: &str) -> Token {
        Token::claimed(self.text(&["token", self.name.as_str(), guest, "--application"]).trim())
    }

    /// An application of a guest.
    pub(crate) fn application(&self, guest: &str) -> Attachment {
        let token = self.application_token(guest);
        Attachment::iucv_at(&self.run_dir(), &self.name, &guest.parse().unwrap(), &token).unwrap()
    }

    /// What a guest's stack tells of itself.
    pub(crate) fn stack(&self, guest: &str) -> serde_json::Value {
        let status = self.text(&["status", self.name.as_str(), "--detail", "--format", "json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let reports = status["reports"].as_array().unwrap().iter();
        let of = |report: &&serde_json::Value| report["guest"] == guest && !report["part"]["stack"].is_null();
        reports.clone().find(of).unwrap()["part"]["stack"].clone()
    }

    /// The control program's log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.run_dir().join(self.name.as_str()).join("log")).unwrap()
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.text(&["status", self.name.as_str(), "--format", "json"])).unwrap()
    }

    pub(crate) fn pid(&self, guest: &str) -> i32 {
        let status = self.status();
        let guest = status["guests"].as_array().unwrap().iter().find(|entry| entry["name"] == guest).unwrap();
        guest["pid"].as_i64().unwrap().try_into().unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let output = self.siga(&["down", self.name.as_str()]);
        if !std::thread::panicking() {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(!self.run_dir().join(self.name.as_str()).exists());
        } else if let Ok(log) = std::fs::read_to_string(self.run_dir().join(self.name.as_str()).join("log")) {
            eprintln!("{log}");
        }
    }
}

/// The bytes of a stream by their place.
pub(crate) fn content(at: u64, into: &mut [u8]) {
    for (place, byte) in (at..).zip(into) {
        *byte = (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56).to_le_bytes()[0];
    }
}

/// Serves one connection: what comes is checked, then a word says how much it was.
pub(crate) fn sink(listener: &TcpListener) -> (u64, Vec<Duration>) {
    let (mut stream, _) = listener.accept().unwrap();
    let (mut buffer, mut expected) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let (mut total, mut gaps, mut last) = (0, Vec::new(), Instant::now());
    loop {
        let count = stream.read(&mut buffer).unwrap();
        gaps.push(last.elapsed());
        last = Instant::now();
        if count == 0 {
            break;
        }
        content(total, &mut expected[..count]);
        assert!(buffer[..count] == expected[..count], "wrong bytes near {total}");
        total += count as u64;
    }
    stream.write_all(&total.to_le_bytes()).unwrap();
    gaps.sort();
    gaps.reverse();
    (total, gaps)
}

pub(crate) fn source(attachment: &Attachment, to: &str, bytes: u64, mut each: impl FnMut(u64)) {
    let mut stream = TcpStream::connect(attachment, to.parse().unwrap()).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let mut sent = 0;
    while sent < bytes {
        let part = usize::try_from((bytes - sent).min(1 << 16)).unwrap();
        content(sent, &mut buffer[..part]);
        stream.write_all(&buffer[..part]).unwrap();
        sent += part as u64;
        each(sent);
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut total = [0; 8];
    stream.read_exact(&mut total).unwrap();
    assert_eq!(u64::from_le_bytes(total), bytes);
}

/// Waits for what comes by itself.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
