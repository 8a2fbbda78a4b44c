//! A network of a test, and traffic over it.
#![allow(dead_code, clippy::print_stdout, reason = "each test file uses what it needs, and tests say what they skip")]

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use siga_fabric::protocol::request::{Answer, GuestStatus, Request};
use siga_fabric::protocol::secret::Secret;
use siga_fabric::sockets::{Attachment, Poller, TcpListener, TcpStream, UdpSocket};
use siga_model::name::Name;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long any step may take. A longer wait fails, so that a test ends even if another thread of it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A network that is up as long as this lives.
pub(crate) struct Network {
    pub(crate) name: Name,
    pub(crate) base: tempfile::TempDir,
}

impl Network {
    pub(crate) fn up(name: &str, topology: &str) -> Self {
        let network = Self { name: name.parse().unwrap(), base: tempfile::tempdir().unwrap() };
        std::fs::write(network.topology(), topology).unwrap();
        network.start();
        network
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

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.base.path().join("run")
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

    /// An application of a guest.
    pub(crate) fn application(&self, guest: &str) -> Attachment {
        let secret = self.application_secret(guest);
        Attachment::iucv_at(&self.run_dir(), &self.name, &guest.parse().unwrap(), &secret).unwrap()
    }

    /// The report of a guest's stack.
    pub(crate) fn stack(&self, guest: &str) -> serde_json::Value {
        self.part(guest, "stack")
    }

    /// Free bytes in a guest's arena for its only application.
    pub(crate) fn free_bytes(&self, guest: &str) -> u64 {
        self.part(guest, "application")["free_bytes"].as_u64().unwrap()
    }

    fn part(&self, guest: &str, part: &str) -> serde_json::Value {
        let guest: Name = guest.parse().unwrap();
        let parts = self.request(&Request::Status { detail: true }).into_iter().filter_map(|answer| match answer {
            Answer::Report { guest: of, part } if of == guest => Some(serde_json::to_value(part).unwrap()),
            Answer::TakenUp
            | Answer::Network(_)
            | Answer::Guest(_)
            | Answer::Report { .. }
            | Answer::Silent { .. }
            | Answer::Pong { .. }
            | Answer::CaptureEnded { .. }
            | Answer::Secret(_)
            | Answer::Application { .. }
            | Answer::ApplicationMemory
            | Answer::Welcome
            | Answer::Done
            | Answer::Failed(_) => None,
        });
        parts.map(|mut report| report[part].take()).find(|part| !part.is_null()).unwrap()
    }

    /// Descriptors of a guest's process, and files that it has mapped, as far as this process may know.
    pub(crate) fn held(&self, guest: &str) -> Option<(usize, usize)> {
        let place = format!("/proc/{}", self.pid(guest));
        let descriptors = std::fs::read_dir(format!("{place}/fd"));
        let maps = std::fs::read_to_string(format!("{place}/maps"));
        let (Ok(descriptors), Ok(maps)) = (descriptors, maps) else {
            println!("skipped, because this process may not look at a guest's descriptors: root may");
            return None;
        };
        Some((descriptors.count(), maps.lines().filter(|line| line.contains("/memfd:")).count()))
    }

    /// The control program's log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.run_dir().join(self.name.as_str()).join("log")).unwrap()
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

    pub(crate) fn pid(&self, guest: &str) -> i32 {
        self.pid_of(guest).unwrap()
    }

    pub(crate) fn pid_of(&self, guest: &str) -> Option<i32> {
        self.status(guest).pid.map(|pid| pid.try_into().unwrap())
    }

    /// The control program's process.
    pub(crate) fn control_pid(&self) -> i32 {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let path = self.run_dir().join(self.name.as_str()).join("control");
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        rustix::net::sockopt::socket_peercred(&socket).unwrap().pid.as_raw_nonzero().get()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let output = self.command(&["down", self.name.as_str()]).output().unwrap();
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
    listener.set_timeout(Some(PATIENCE));
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_timeout(Some(PATIENCE));
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
    stream.set_timeout(Some(PATIENCE));
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

/// Kills a process and waits for its end.
pub(crate) fn kill(pid: i32) {
    let process = process(pid);
    rustix::process::pidfd_send_signal(&process, rustix::process::Signal::KILL).unwrap();
    wait_for_end(&process);
}

/// A descriptor of a process, which no other process gets when it ends.
pub(crate) fn process(pid: i32) -> OwnedFd {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap()
}

/// Waits for a process to end. It may be a zombie then.
pub(crate) fn wait_for_end(process: &OwnedFd) {
    let mut ended = [rustix::event::PollFd::new(process, rustix::event::PollFlags::IN)];
    let limit = rustix::event::Timespec::try_from(PATIENCE).unwrap();
    assert_eq!(rustix::event::poll(&mut ended, Some(&limit)).unwrap(), 1, "a process does not end");
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Uses an attachment from one thread while another waits for its sockets.
pub(crate) fn use_beside_a_waiting_thread(attachment: &Attachment, local: &str) {
    let poller = Poller::new(attachment);
    let (waker, waits) = (poller.waker(), AtomicBool::new(true));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            poller.wait(&mut Vec::new(), Some(PATIENCE)).unwrap();
            waits.store(false, Ordering::SeqCst);
        });
        for turn in 0..50 {
            // Sometimes the other has not begun to wait, mostly it sleeps.
            std::thread::sleep(Duration::from_millis(turn % 5));
            let socket = UdpSocket::bind(attachment, local.parse().unwrap()).unwrap();
            socket.set_timeout(Some(Duration::from_millis(1)));
            assert_eq!(socket.recv_from(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
            assert!(waits.load(Ordering::SeqCst), "turn {turn}: the other has been waited for, or woken for nothing");
        }
        waker.wake();
    });
    assert!(!waits.into_inner());
}
