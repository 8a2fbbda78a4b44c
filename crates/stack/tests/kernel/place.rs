//! Network namespaces of a test's own. Each lives as long as a process that waits for the end of its input, which ends with
//! the test however that ends.

use crate::tap::SOON;
use rustix::thread::{CapabilitySet, LinkNameSpaceType, capabilities, move_into_link_name_space};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// True if namespaces and TAP devices can be made here and the programs are there; says what is skipped if not.
pub(crate) fn possible(programs: &[&str]) -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    if !capabilities(None).is_ok_and(|held| held.effective.contains(needed)) {
        println!("skipped, because it takes root to make TAP devices in namespaces");
        return false;
    }
    if let Err(error) = File::options().read(true).write(true).open("/dev/net/tun") {
        println!("skipped, because /dev/net/tun cannot be opened: {error}");
        return false;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let is_there = |program: &str| path.split(':').any(|directory| Path::new(directory).join(program).is_file());
    let missing = ["ip", "nsenter", "setpriv", "unshare"].into_iter().chain(programs.iter().copied());
    let missing: Vec<&str> = missing.filter(|program| !is_there(program)).collect();
    if !missing.is_empty() {
        println!("skipped, because there is no {}", missing.join(" and no "));
    }
    missing.is_empty()
}

/// A network namespace.
pub(crate) struct Place {
    holder: Child,
}

impl Place {
    pub(crate) fn new() -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", "echo made; exec cat"]);
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "made\n", "no namespace could be made");
        let place = Self { holder };
        place.set("ipv6/conf/default/accept_dad", "0");
        place.set("ipv6/conf/default/router_solicitations", "0");
        place.set("ipv4/tcp_congestion_control", "reno");
        // Servers are there before the device that their address is on.
        place.set("ipv4/ip_nonlocal_bind", "1");
        place.set("ipv6/ip_nonlocal_bind", "1");
        place.ip("link set lo up");
        place
    }

    /// Forwards packets.
    pub(crate) fn router() -> Self {
        let place = Self::new();
        place.set("ipv4/ip_forward", "1");
        place.set("ipv6/conf/all/forwarding", "1");
        place
    }

    /// Its process, by which `ip link set ... netns` knows it.
    pub(crate) fn pid(&self) -> u32 {
        self.holder.id()
    }

    /// Writes a sysctl below `net`.
    pub(crate) fn set(&self, name: &str, value: &str) {
        self.inside(|| fs::write(format!("/proc/sys/net/{name}"), value).unwrap());
    }

    /// Does something in a thread that is in it.
    pub(crate) fn inside<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let result = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter();
                act()
            });
            thread.join()
        });
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Moves this thread into it.
    pub(crate) fn enter(&self) {
        let file = File::open(format!("/proc/{}/ns/net", self.pid())).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    /// A command that runs in it and ends with this thread.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.pid()));
        command.args(["setpriv", "--pdeathsig", "KILL"]).arg(program).stdin(Stdio::null());
        command
    }

    /// Runs a command, parted by spaces, to its end, and gives what it printed.
    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let output = self.command(words.next().unwrap()).args(words).output().unwrap();
        let text = text(&output);
        assert!(output.status.success(), "{line}: {:?}\n{text}", output.status);
        text
    }

    /// Gives lines to `ip`.
    #[track_caller]
    pub(crate) fn ip(&self, lines: &str) {
        self.feed("ip -batch -", lines);
        self.settle();
    }

    /// Waits until the kernel sends from the addresses that it was given: for a moment it holds a fresh IPv6 address for
    /// tentative, and would connect from that of the loopback instead.
    pub(crate) fn settle(&self) {
        const TENTATIVE: u32 = 0x40;
        let tentative = || {
            let text = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
            let flags = |line: &str| u32::from_str_radix(line.split_whitespace().nth(4).unwrap(), 16).unwrap();
            text.lines().any(|line| flags(line) & TENTATIVE != 0)
        };
        self.inside(|| {
            let begun = Instant::now();
            while tentative() {
                assert!(begun.elapsed() < SOON, "an address stays tentative");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }

    /// Runs a command with an input.
    #[track_caller]
    pub(crate) fn feed(&self, line: &str, input: &str) {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().unwrap());
        let command = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{line}: {:?}\n{}", output.status, text(&output));
    }

    /// A counter of the namespace's protocols, as `nstat` names it.
    pub(crate) fn counter(&self, layer: &str, name: &str) -> u64 {
        let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
        let file = match layer {
            "Icmp6" => "snmp6",
            "TcpExt" => "netstat",
            _ => "snmp",
        };
        let text = self.inside(|| read(file));
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let six = text.lines().map(words).find(|line| line.len() == 2 && line[0] == format!("{layer}{name}"));
        let mut lines = text.lines().filter(|line| line.starts_with(&format!("{layer}:"))).map(words);
        let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let found = six.map(|line| line[1].clone());
        let found = found.or_else(|| Some(values[names.iter().position(|word| word == name)?].clone()));
        found.unwrap_or_else(|| panic!("no counter {layer} {name}")).parse().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It may be gone already.
        let _gone = self.holder.kill();
        let _status = self.holder.wait();
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
