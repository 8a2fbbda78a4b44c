//! The player of the kernel: real time, sockets of this process, and a TUN device in the network namespace of this process.
//!
//! Many dialogues run at once, each with an address of its own as peer, so that the kernel shares no state between them. One
//! thread plays them all: it begins steps when they are due, and reads the device. The kernel handles a packet within the write to
//! the device, and sends within the call on a socket, so immediate replies are read right after the step.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::dialogue::{Act, Call, Dialogue};
use super::packet;
use super::player::{Ends, Outcome, Peer, Record, Sent};

/// A step that begins later than this after its planned time makes a record unusable.
const LATE_MAX: Duration = Duration::from_millis(8);
/// The prefix of IPv4 addresses with which the kernel offers ECN on an active open.
const ECN_ROUTES: [&str; 2] = ["10.192.0.0/10", "2001:db8:1:1::/64"];
/// Fast Open for clients, servers and all listeners.
const FAST_OPEN_BITS: &str = "1027";
/// `MSG_FASTOPEN`, which rustix does not name.
const SEND_FAST_OPEN: SendFlags = SendFlags::from_bits_retain(0x2000_0000);
/// Settings that make the kernel comparable. `docs/linux-differences.md` gives the reasons.
pub(crate) const SETTINGS: [(&str, &str); 13] = [
    ("ipv4/tcp_fastopen", FAST_OPEN_BITS),
    ("ipv4/tcp_congestion_control", "reno"),
    ("ipv4/tcp_rmem", "4096 131072 6291456"),
    ("ipv4/tcp_wmem", "4096 4194304 4194304"),
    ("ipv4/tcp_mtu_probing", "1"),
    ("ipv4/tcp_no_metrics_save", "1"),
    ("ipv4/tcp_comp_sack_nr", "0"),
    ("ipv4/tcp_max_syn_backlog", "4096"),
    ("ipv4/tcp_rto_max_ms", "120000"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv6/icmp/ratelimit", "0"),
];

/// The kernel's side: a TUN device whose far end is this player.
pub(crate) struct Kernel {
    device: SyncDevice,
    /// The number of dialogues so far, from which the next dialogue gets its addresses and ports.
    played: u32,
}

/// A dialogue that is being played.
struct Running {
    dialogue: Dialogue,
    peer: Peer,
    began: Instant,
    /// The planned time of the next step, since the dialogue began.
    due: Duration,
    sockets: Sockets,
    record: Record,
}

#[derive(Default)]
struct Sockets {
    listener: Option<OwnedFd>,
    connection: Option<OwnedFd>,
    /// Whether a call has reported that the connection failed. The kernel reports a failure only once.
    has_failed: bool,
    is_shut_down: bool,
}

impl Kernel {
    /// Configures the network namespace of this process, and makes the device.
    pub(crate) fn open() -> io::Result<Self> {
        for (name, value) in SETTINGS {
            let path = format!("/proc/sys/net/{name}");
            fs::write(&path, value).map_err(|error| io::Error::other(format!("{path}: {error}")))?;
        }
        let builder = DeviceBuilder::new().name("differ").layer(Layer::L3).mtu(super::MTU).enable(true);
        let builder = builder.ipv4(super::LOCAL_V4, 9_u8, None).ipv6(super::LOCAL_V6, 64_u8);
        let device = builder.with(|builder| _ = builder.tx_queue_len(100_000)).build_sync()?;
        device.set_nonblocking(true)?;
        for route in ECN_ROUTES {
            let mut command = std::process::Command::new("ip");
            let status = command.args(["route", "replace", route, "dev", "differ", "features", "ecn"]).status()?;
            if !status.success() {
                return Err(io::Error::other(format!("ip route replace {route}: {status}")));
            }
        }
        Ok(Self { device, played: 0 })
    }

    /// Plays dialogues at the same time. Returns for each the ends of its connection and the record, in the order of `dialogues`.
    pub(crate) fn play(&mut self, dialogues: &[Dialogue]) -> io::Result<Vec<(Ends, Record)>> {
        let mut stage =
            Stage { device: &self.device, running: Vec::new(), by_peer: HashMap::new(), buffer: vec![0; 65_536] };
        let mut due = BinaryHeap::new();
        let began = Instant::now();
        for (place, dialogue) in dialogues.iter().enumerate() {
            let ends = super::ends(self.played, dialogue);
            self.played = self.played.wrapping_add(1);
            // The dialogues begin one after the other, so that their first steps are not all due at once.
            let began =
                began + Duration::from_millis(20) + Duration::from_micros(300) * u32::try_from(place).unwrap_or(0);
            stage.by_peer.insert(ends.remote, place);
            let first = dialogue.steps.first().map_or(0, |step| step.after_ms);
            due.push(Reverse((began + Duration::from_millis(first.into()), place)));
            stage.running.push(Running {
                dialogue: dialogue.clone(),
                peer: Peer::new(ends),
                began,
                due: Duration::from_millis(first.into()),
                sockets: Sockets::default(),
                record: Record::default(),
            });
        }
        while let Some(Reverse((at, place))) = due.pop() {
            stage.wait_until(at)?;
            if let Some(next) = stage.step(place)? {
                due.push(Reverse((next, place)));
            }
        }
        Ok(stage.running.into_iter().map(|running| (running.peer.ends, running.record)).collect())
    }
}

/// All dialogues that run at once.
struct Stage<'a> {
    device: &'a SyncDevice,
    running: Vec<Running>,
    by_peer: HashMap<IpAddr, usize>,
    buffer: Vec<u8>,
}

impl Stage<'_> {
    /// Reads the device until `end`.
    fn wait_until(&mut self, end: Instant) -> io::Result<()> {
        loop {
            self.read()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(self.device, PollFlags::IN)], Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Records all packets that wait in the device.
    fn read(&mut self) -> io::Result<()> {
        loop {
            let count = match rustix::io::read(self.device, &mut self.buffer[..]) {
                Ok(count) => count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let packet = &self.buffer[..count];
            let place = packet::parse_ip(packet).and_then(|(header, _)| self.by_peer.get(&header.to));
            let Some(running) = place.and_then(|place| self.running.get_mut(*place)) else { continue };
            if let Some(reply) = running.peer.receive(packet) {
                let at_us = u64::try_from(running.began.elapsed().as_micros()).unwrap_or(u64::MAX);
                // The rules find earlier replies by their times, so no two replies have the same one.
                let after_us = running.record.sent.last().map_or(0, |last| last.at_us + 1);
                let at_us = at_us.max(after_us);
                running.record.sent.push(Sent { steps: running.record.outcomes.len(), at_us, reply });
            }
        }
    }

    /// Begins the next step of a dialogue. Returns the time of the step after it.
    fn step(&mut self, place: usize) -> io::Result<Option<Instant>> {
        let running = &mut self.running[place];
        let at = running.record.outcomes.len();
        let Some(step) = running.dialogue.steps.get(at) else { return Ok(None) };
        let since = running.began.elapsed();
        running.record.is_late |= since.saturating_sub(running.due) > LATE_MAX;
        running.record.begun_us.push(u64::try_from(since.as_micros()).unwrap_or(u64::MAX));
        // The number of outcomes is the number of steps that have begun.
        running.record.outcomes.push(None);
        match &step.act {
            Act::Call(call) => {
                let outcome = running.sockets.call(*call, running.peer.ends);
                running.record.outcomes[at] = Some(outcome);
            }
            Act::Peer(segment) => write(self.device, &running.peer.packet(segment))?,
            Act::Error(error) => {
                if let Some(packet) = running.peer.error(*error) {
                    write(self.device, &packet)?;
                }
            }
            Act::Wait => {}
        }
        self.read()?;
        let running = &mut self.running[place];
        let next = running.dialogue.steps.get(at + 1);
        Ok(next.map(|next| {
            running.due += Duration::from_millis(next.after_ms.into());
            running.began + running.due
        }))
    }
}

/// Gives a packet to the kernel.
pub(crate) fn write(device: &SyncDevice, packet: &[u8]) -> io::Result<()> {
    loop {
        match rustix::io::write(device, packet) {
            // The kernel refuses a packet that is not valid for any host. That is its answer.
            Ok(_) | Err(Errno::INVAL) => return Ok(()),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Sockets {
    fn call(&mut self, call: Call, ends: Ends) -> Outcome {
        let local = SocketAddr::new(ends.local, ends.local_port);
        match call {
            Call::Listen => match listen(local) {
                Ok(listener) => {
                    self.listener = Some(listener);
                    Outcome::Done
                }
                Err(error) => self.failed(error),
            },
            Call::Connect | Call::ConnectWith(_) if self.connection.is_some() => Outcome::NoSocket,
            Call::ConnectWith(count) => match socket(local) {
                Ok(connection) => {
                    let bytes = vec![0; usize::try_from(count).unwrap_or(0)];
                    let remote = SocketAddr::new(ends.remote, ends.remote_port);
                    let result = net::sendto(&connection, &bytes, SEND_FAST_OPEN | SendFlags::NOSIGNAL, &remote);
                    self.connection = Some(connection);
                    let sent = |count: usize| Outcome::Bytes(u32::try_from(count).unwrap_or(u32::MAX));
                    result.map_or_else(|error| self.failed(error), sent)
                }
                Err(error) => self.failed(error),
            },
            Call::Connect => match socket(local) {
                Ok(connection) => {
                    let result = net::connect(&connection, &SocketAddr::new(ends.remote, ends.remote_port));
                    self.connection = Some(connection);
                    result.map_or_else(|error| self.failed(error), |()| Outcome::Done)
                }
                Err(error) => self.failed(error),
            },
            Call::Accept => {
                let (Some(listener), None) = (&self.listener, &self.connection) else { return Outcome::NoSocket };
                match net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                    Ok(connection) => {
                        self.connection = Some(connection);
                        Outcome::Done
                    }
                    Err(error) => self.failed(error),
                }
            }
            Call::Send(_)
            | Call::SendUrgent(_)
            | Call::Receive(_)
            | Call::Shutdown
            | Call::Close
            | Call::Abort
            | Call::NoDelay(_)
            | Call::Keepalive(..)
            | Call::UserTimeoutMs(_) => self.use_connection(call),
        }
    }

    fn use_connection(&mut self, call: Call) -> Outcome {
        let Some(connection) = &self.connection else { return Outcome::NoSocket };
        let zeros = |bytes: u32| vec![0; usize::try_from(bytes).unwrap_or(0)];
        let bytes = |count: usize| Outcome::Bytes(u32::try_from(count).unwrap_or(u32::MAX));
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let result = match call {
            Call::Send(count) => net::send(connection, &zeros(count), SendFlags::NOSIGNAL).map(bytes),
            Call::SendUrgent(count) => {
                net::send(connection, &zeros(count), SendFlags::NOSIGNAL | SendFlags::OOB).map(bytes)
            }
            Call::Receive(count) => match net::recv(connection, &mut zeros(count)[..], RecvFlags::empty()) {
                Ok((0, _)) if self.has_failed => Ok(Outcome::Failed),
                Ok((0, _)) => Ok(Outcome::End),
                Ok((count, _)) => Ok(bytes(count)),
                Err(error) => Err(error),
            },
            Call::Shutdown => {
                self.is_shut_down = true;
                // The kernel refuses to shut down a closed connection. The stack's caller sees the state of the connection instead.
                let _refused = net::shutdown(connection, Shutdown::Write);
                Ok(Outcome::Done)
            }
            Call::Close => {
                self.connection = None;
                Ok(Outcome::Done)
            }
            Call::Abort => {
                let result = sockopt::set_socket_linger(connection, Some(Duration::ZERO));
                self.connection = None;
                result.map(|()| Outcome::Done)
            }
            Call::NoDelay(on) => sockopt::set_tcp_nodelay(connection, on).map(|()| Outcome::Done),
            Call::Keepalive(idle, interval, probes) => sockopt::set_tcp_keepidle(connection, seconds(idle))
                .and_then(|()| sockopt::set_tcp_keepintvl(connection, seconds(interval)))
                .and_then(|()| sockopt::set_tcp_keepcnt(connection, probes.into()))
                .and_then(|()| sockopt::set_socket_keepalive(connection, true))
                .map(|()| Outcome::Done),
            Call::UserTimeoutMs(ms) => sockopt::set_tcp_user_timeout(connection, ms).map(|()| Outcome::Done),
            Call::Listen | Call::Connect | Call::ConnectWith(_) | Call::Accept => Ok(Outcome::NoSocket),
        };
        result.unwrap_or_else(|error| self.failed(error))
    }

    fn failed(&mut self, error: Errno) -> Outcome {
        match error {
            Errno::AGAIN | Errno::INPROGRESS => return Outcome::Blocked,
            Errno::PIPE if self.is_shut_down && !self.has_failed => return Outcome::Refused,
            Errno::CONNREFUSED
            | Errno::CONNRESET
            | Errno::TIMEDOUT
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::PIPE => {}
            _ if self.has_failed => {}
            _ => return Outcome::Refused,
        }
        self.has_failed = true;
        Outcome::Failed
    }
}

fn socket(local: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_oobinline(&socket, true)?;
    // A namespace may forbid CUBIC as its default, but not to a privileged socket.
    sockopt::set_tcp_congestion(&socket, "cubic")?;
    net::bind(&socket, &local)?;
    Ok(socket)
}

fn listen(local: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let listener = socket(local)?;
    net::listen(&listener, i32::try_from(super::BACKLOG).unwrap_or(i32::MAX))?;
    Ok(listener)
}
