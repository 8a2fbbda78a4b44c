//! The requests of clients to a control program, and its answers.
//!
//! The control program answers a request with `TakenUp`, then with any number of answers. The last is `Done` or `Failed`. After
//! `Welcome` the connection is the channel of a guest: it carries orders and guest events.

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
    /// Start a network with a topology, as text. The process that started the control program sends it first. With `lease`, the
    /// network goes down when this connection ends, and its base directory is then removed too, if it is empty.
    Start { name: Name, topology: String, lease: bool },
    /// Show the networks and guests; with `detail` also the guests' reports.
    Status { detail: bool },
    /// Show the report of one guest.
    Report(Name),
    /// Take the network down.
    Down,
    /// Start a guest that has ended.
    StartGuest(Name),
    /// End a guest, and do not start it again.
    StopGuest(Name),
    /// Let a guest couple to a restricted network.
    Grant { network: Name, guest: Name },
    /// Let a guest no longer couple to a restricted network.
    Revoke { network: Name, guest: Name },
    /// Show the secret for applications of a guest, or else the secret with which the guest attaches.
    Secret { guest: Name, application: bool },
    /// Become an application of a running guest, with the secret of its applications. The version of siga is for error messages.
    Application { protocol: u32, version: String, guest: Name, secret: Secret },
    /// The application's memory, after `Answer::Application`. Descriptors: its ring, its arena.
    ApplicationMemory,
    /// Become an external guest of the topology, with its secret. The version of siga is for error messages.
    Attach { protocol: u32, version: String, guest: Name, secret: Secret },
    /// Let a guest send an echo request with this many bytes of payload, and wait for the reply.
    Ping { guest: Name, to: IpAddr, bytes: u16, timeout_ms: u32 },
    /// Capture up to `snap_bytes` bytes of each of a guest's frames until the connection ends. Descriptor: the pipe to write the
    /// capture to.
    Capture { guest: Name, snap_bytes: u32 },
}

/// A request and the time after which it is void, so that a request cannot take effect after its sender gave up.
#[derive(Debug, Serialize, Deserialize)]
pub struct TimedRequest {
    /// The request.
    pub request: Request,
    /// The control program takes the request up before this time, or not at all.
    pub until: Moment,
}

/// A time on `CLOCK_BOOTTIME` in milliseconds, which all processes of the host share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(u64);

impl Moment {
    /// Now.
    pub fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (seconds, ns) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
        Self(seconds.saturating_mul(1_000).saturating_add(ns / 1_000_000))
    }

    /// The time `time` later.
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// A message from the control program to a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the line of each answer covers its fields")]
pub enum Answer {
    /// The control program carries the request out; answers follow.
    TakenUp,
    /// A network.
    Network(NetworkStatus),
    /// A guest.
    Guest(GuestStatus),
    /// Part of a guest's report.
    Report { guest: Name, part: ReportPart },
    /// A guest that did not send its whole report in time.
    Silent { guest: Name },
    /// The round trip of a ping in nanoseconds, or none in time.
    Pong { time_ns: Option<u64> },
    /// A capture has ended. It missed this many frames.
    CaptureEnded { missed: u64 },
    /// A secret.
    Secret(Secret),
    /// The process is an application of a guest, with arenas of `arena_bytes` each and the guest's waiting policy. `colocate`: a
    /// sleeping application moves to the CPU of its partners. Descriptors: the notify and the wake descriptor.
    Application { arena_bytes: u64, waiting: Waiting, colocate: bool },
    /// The guest's memory: the last answer to an application. Descriptors: its ring, its arena.
    ApplicationMemory,
    /// The process is a guest now.
    Welcome,
    /// The request has succeeded.
    Done,
    /// The request has failed.
    Failed(Error),
}

/// The status of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkStatus {
    /// Its name.
    pub name: Name,
    /// Its connectivity type, in words.
    pub kind: String,
    /// The guests that may couple; `None` if the network is open to all.
    pub granted: Option<Vec<Name>>,
    /// The devices on it.
    pub members: Vec<String>,
    /// The number of ring pairs on it.
    pub pairs: u32,
}

/// The status of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestStatus {
    /// Its name.
    pub name: Name,
    /// Whether it runs.
    pub state: GuestState,
    /// Its process, if it runs.
    pub pid: Option<u32>,
    /// How often it was started again after it ended by itself.
    pub restarts: u32,
    /// Milliseconds since it became ready.
    pub up_ms: Option<u64>,
    /// How it is confined, in words.
    pub confinement: String,
    /// Number of its ring pairs.
    pub pairs: u32,
    /// Bytes of the rings that it asked for.
    pub ring_bytes: u64,
    /// How it ended, if it has.
    pub ended: Option<String>,
    /// The memory limit of its process, if it runs and is not external.
    pub memory: Option<GuestMemory>,
}

/// The memory limit of a guest's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestMemory {
    /// Bytes.
    pub max_bytes: u64,
    /// The mechanism that enforces it.
    pub by: MemoryLimit,
}

/// The mechanism that enforces a memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryLimit {
    /// A control group, which counts the memory that the process uses.
    ControlGroup,
    /// A limit on the address space, which counts the memory that the process maps, used or not.
    AddressSpace,
}

impl MemoryLimit {
    /// Its name for people.
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
    /// It is external and has not attached.
    Waiting,
    /// Its process has started and is not ready yet.
    Starting,
    /// It runs.
    Running,
    /// It has ended.
    Ended,
}
