//! The requests of clients to a control program, and its answers.
//!
//! When the control program begins to carry out a request, it answers `TakenUp`. Any number of other answers follow. The last
//! answer is `Done` or `Failed`. `Welcome` is an exception: no other answer follows it. The connection then becomes the channel of
//! a guest, and carries orders and guest events.

use crate::protocol::report::ReportPart;
use crate::protocol::secret::Secret;
use serde::{Deserialize, Serialize};
use siga_model::error::Error;
use siga_model::name::Name;
use siga_model::waiting::Waiting;
use std::net::IpAddr;
use std::time::Duration;

/// A message from a client to the control program.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the line of each request covers its fields")]
pub enum Request {
    /// Start a network from a topology, which is given as text. The process that starts a control program sends this request to it
    /// first. With `lease`, the network is taken down when this connection closes. The base directory is then removed too, if it is
    /// empty.
    Start { name: Name, topology: String, lease: bool },
    /// Send the status of all networks and guests. With `detail`, also send the reports of the guests.
    Status { detail: bool },
    /// Send the report of one guest.
    Report(Name),
    /// Take the network down.
    Down,
    /// Start a guest that has ended.
    StartGuest(Name),
    /// End a guest, and do not restart it automatically.
    StopGuest(Name),
    /// Give a guest access to a restricted network.
    Grant { network: Name, guest: Name },
    /// Withdraw a guest's access to a restricted network.
    Revoke { network: Name, guest: Name },
    /// Send a secret of a guest. If `application` is true, this is the secret that the guest's applications need. Otherwise it is
    /// the secret with which the guest itself attaches.
    Secret { guest: Name, application: bool },
    /// Make the client an application of a running guest: a process that uses the guest's stack. `secret` is the secret that the
    /// guest's applications need. `version` is the client's version of siga, for error messages.
    Application { protocol: u32, version: String, guest: Name, secret: Secret },
    /// Pass the application's memory files to the guest. The client sends this request after it received `Answer::Application`.
    /// Descriptors: the memory files of the application's ring and of its arena.
    ApplicationMemory,
    /// Make the client's process an external guest of the topology. `secret` is the secret with which this guest attaches.
    /// `version` is the client's version of siga, for error messages.
    Attach { protocol: u32, version: String, guest: Name, secret: Secret },
    /// Make a guest send an ICMP echo request with `bytes` bytes of payload to `to`, and wait at most `timeout_ms` milliseconds for
    /// the reply.
    Ping { guest: Name, to: IpAddr, bytes: u16, timeout_ms: u32 },
    /// Capture a guest's frames, up to `snap_bytes` bytes of each frame, until this connection closes. Descriptor: the pipe to
    /// which the guest writes the capture.
    Capture { guest: Name, snap_bytes: u32 },
}

/// A request and its deadline. The deadline ensures that a request does not take effect after its sender stopped waiting for an
/// answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct TimedRequest {
    /// The request.
    pub request: Request,
    /// The deadline. If the control program reads the request at or after this time, it refuses the request.
    pub until: Moment,
}

/// A time in milliseconds on `CLOCK_BOOTTIME`. This clock is the same for all processes of the host, so they can exchange such
/// times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(u64);

impl Moment {
    /// Returns the current time.
    pub fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (seconds, ns) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
        Self(seconds.saturating_mul(1_000).saturating_add(ns / 1_000_000))
    }

    /// Returns the time that is `time` later than this time.
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Returns the milliseconds since this time; 0 if this time is in the future.
    pub(crate) fn elapsed_ms(self) -> u64 {
        Self::now().0.saturating_sub(self.0)
    }
}

/// A message from the control program to a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the line of each answer covers its fields")]
pub enum Answer {
    /// The control program has read the request and begins to carry it out. More answers follow.
    TakenUp,
    /// The status of one network.
    Network(NetworkStatus),
    /// The status of one guest.
    Guest(GuestStatus),
    /// One part of a guest's report.
    Report { guest: Name, part: ReportPart },
    /// No complete report of this guest arrived: the guest was too slow, ended, or sent an invalid report.
    Silent { guest: Name },
    /// The round-trip time of a ping in nanoseconds, or `None` if no reply came in time.
    Pong { time_ns: Option<u64> },
    /// The capture has ended. It lacks `missed` frames, because the reader of the capture was too slow.
    CaptureEnded { missed: u64 },
    /// The secret that the client asked for.
    Secret(Secret),
    /// The client is now an application of a guest. `arena_bytes` is the size in bytes of each of the two arenas (shared memory for
    /// payload). `waiting` is the guest's waiting policy. With `colocate`, an application that often sleeps moves to the CPU of its
    /// partners. Descriptors: the notify descriptor and the wake descriptor.
    Application { arena_bytes: u64, waiting: Waiting, colocate: bool },
    /// The guest's memory files. The client needs no further answer to become an application. Descriptors: the memory files of the
    /// guest's ring and of its arena.
    ApplicationMemory,
    /// The client's process is now a guest, and the connection is the guest's channel.
    Welcome,
    /// The request has succeeded.
    Done,
    /// The request has failed.
    Failed(Error),
}

/// The status of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkStatus {
    /// The network's name.
    pub name: Name,
    /// The network's connectivity type, as text.
    pub kind: String,
    /// The guests with access to the network; `None` if every guest has access.
    pub granted: Option<Vec<Name>>,
    /// The devices on the network, each as `guest.device`.
    pub members: Vec<String>,
    /// The number of ring pairs on the network.
    pub pairs: u32,
}

/// The status of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestStatus {
    /// The guest's name.
    pub name: Name,
    /// The state that the guest is in.
    pub state: GuestState,
    /// The process id of the guest, if the guest has a process.
    pub pid: Option<u32>,
    /// How often the control program restarted the guest after a failure.
    pub restarts: u32,
    /// Milliseconds since the guest became ready; `None` if it is not ready.
    pub up_ms: Option<u64>,
    /// How the guest's process is confined, as text for the user.
    pub confinement: String,
    /// The number of the guest's ring pairs.
    pub pairs: u32,
    /// The size in bytes of all ring pairs that the guest asked for, which is charged to the guest.
    pub ring_bytes: u64,
    /// How the guest's last process ended, or why the guest failed; `None` if neither happened.
    pub ended: Option<String>,
    /// The memory limit of the guest's process. `None` if the guest has no process or is external.
    pub memory: Option<GuestMemory>,
}

/// The memory limit of a guest's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestMemory {
    /// The limit in bytes.
    pub max_bytes: u64,
    /// The mechanism that enforces the limit.
    pub by: MemoryLimit,
}

/// The mechanism that enforces a memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryLimit {
    /// A control group. It limits the memory that the process uses.
    ControlGroup,
    /// A limit on the address space. It limits the memory that the process maps, even if the process never uses that memory.
    AddressSpace,
}

impl MemoryLimit {
    /// Returns the mechanism's name for messages to the user.
    pub fn name(self) -> &'static str {
        match self {
            Self::ControlGroup => "control group",
            Self::AddressSpace => "address space",
        }
    }
}

/// The state of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestState {
    /// The guest is external, and no process has attached as this guest yet.
    Waiting,
    /// The guest's process has started but is not ready yet.
    Starting,
    /// The guest runs.
    Running,
    /// The guest has ended.
    Ended,
}
