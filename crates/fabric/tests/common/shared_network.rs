//! The part of a test's network that does not depend on the program that started it, and traffic over a network.
//!
//! The tests of `siga-fabric` start networks with a program of their own, those of `siga` with the command line. Each has a
//! `common/network.rs` with how it starts a network and asks it; both include this file.

use siga_fabric::sockets::{Attachment, Poller, TcpListener, TcpStream, UdpSocket};
use siga_model::name::Name;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long any step may take. A longer wait fails, so that a test ends even if another thread of it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The network of Figure 1 of z/VM's report with external guests as client and server.
pub(crate) const EXTERNAL_FIGURE_1: &str = r#"
[network.link]
type = "vctc"
buffer = 65535
[network.lan]
type = "hipersockets"
[guest.client]
external = true
device = [{ network = "link", addresses = ["10.0.1.1/24", "fd00:1::1/64"], mtu = 57344 }]
route = [{ to = "default", via = "10.0.1.2" }, { to = "default", via = "fd00:1::2" }]
[guest.router]
forwarding = true
device = [
    { network = "link", addresses = ["10.0.1.2/24", "fd00:1::2/64"], mtu = 57344 },
    { network = "lan", addresses = ["10.0.2.1/24", "fd00:2::1/64"] },
]
[guest.server]
external = true
device = [{ network = "lan", addresses = ["10.0.2.2/24", "fd00:2::2/64"] }]
route = [{ to = "default", via = "10.0.2.1" }, { to = "default", via = "fd00:2::1" }]
"#;

/// A network that is up as long as this lives.
pub(crate) struct Network {
    pub(crate) name: Name,
    pub(crate) base: tempfile::TempDir,
}

impl Network {
    pub(crate) fn run_dir(&self) -> PathBuf {
        self.base.path().join("run")
    }

    /// Returns the process id of the control program.
    pub(crate) fn control_pid(&self) -> i32 {
        let wanted = format!("net\0control\0{}", self.run_dir().display());
        let is_it = |entry: &std::fs::DirEntry| {
            let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&arguments).contains(&wanted)
        };
        let found = std::fs::read_dir("/proc").unwrap().flatten().find(is_it).unwrap();
        found.file_name().to_str().unwrap().parse().unwrap()
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

    /// The report of a guest's only application.
    pub(crate) fn application_report(&self, guest: &str) -> serde_json::Value {
        self.part(guest, "application")
    }

    /// Free bytes in a guest's arena for its only application.
    pub(crate) fn free_bytes(&self, guest: &str) -> u64 {
        self.part(guest, "application")["free_bytes"].as_u64().unwrap()
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

    pub(crate) fn pid(&self, guest: &str) -> i32 {
        self.pid_of(guest).unwrap()
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
