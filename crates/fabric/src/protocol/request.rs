//! The requests of clients to a control program, and its answers.
//!
//! The control program answers a request with `TakenUp`, followed by any number of other answers. The last answer is `Done` or
//! `Failed`. After the answer `Welcome` the connection becomes a guest's channel, which carries orders and guest events.

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
    /// Start a network from a topology, given as text. The process that starts the control program sends this request first. With
    /// `lease`, the network goes down when this connection ends. Its base directory is then removed too, if it is empty.
    Start { name: Name, topology: String, lease: bool },
    /// Show the status of all networks and guests. With `detail`, also show the guests' reports.
    Status { detail: bool },
    /// Show the report of one guest.
    Report(Name),
    /// Take the network down.
    Down,
    /// Start a guest that has ended.
    StartGuest(Name),
    /// End a guest, and do not restart it.
    StopGuest(Name),
    /// Allow a guest to couple to a restricted network.
    Grant { network: Name, guest: Name },
    /// Withdraw a guest's permission to couple to a restricted network.
    Revoke { network: Name, guest: Name },
    /// Show a secret of a guest. If `application` is true, show the secret that the guest's applications need. Otherwise show the
    /// secret with which the guest itself attaches.
    Secret { guest: Name, application: bool },
    /// Become an application of a running guest. `secret` is the secret of the guest's applications. `version` is the client's
    /// version of siga, for error messages.
    Application { protocol: u32, version: String, guest: Name, secret: Secret },
    /// Pass the application's memory to the guest, after `Answer::Application`. Descriptors: the memory files of the application's
    /// ring and of its arena.
    ApplicationMemory,
    /// Attach as an external guest of the topology. `secret` is the secret with which this guest attaches. `version` is the client's
    /// version of siga, for error messages.
    Attach { protocol: u32, version: String, guest: Name, secret: Secret },
    /// Make a guest send an echo request with `bytes` bytes of payload to `to`, and wait for the reply.
    Ping { guest: Name, to: IpAddr, bytes: u16, timeout_ms: u32 },
    /// Capture a guest's frames, up to `snap_bytes` bytes of each, until this connection ends. Descriptor: the pipe to which the
    /// guest writes the capture.
    Capture { guest: Name, snap_bytes: u32 },
}

/// A request and its deadline. The deadline ensures that a request does not take effect after its sender gave up.
#[derive(Debug, Serialize, Deserialize)]
pub struct TimedRequest {
    /// The request.
    pub request: Request,
    /// The deadline. If the control program reads the request at or after this time, it refuses the request.
    pub until: Moment,
}

/// A time in milliseconds on `CLOCK_BOOTTIME`. All processes of the host read the same clock.
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
}

/// A message from the control program to a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the line of each answer covers its fields")]
pub enum Answer {
    /// The control program has accepted the request and carries it out. More answers follow.
    TakenUp,
    /// The status of one network.
    Network(NetworkStatus),
    /// The status of one guest.
    Guest(GuestStatus),
    /// One part of a guest's report.
    Report { guest: Name, part: ReportPart },
    /// The guest did not send its complete report in time.
    Silent { guest: Name },
    /// The round-trip time of a ping in nanoseconds, or `None` if no reply came in time.
    Pong { time_ns: Option<u64> },
    /// A capture has ended. `missed` frames are not in the capture, because its reader was too slow.
    CaptureEnded { missed: u64 },
    /// A secret that the client asked for.
    Secret(Secret),
    /// The client is now an application of a guest. `arena_bytes` is the size of each arena, and `waiting` is the guest's waiting
    /// policy. With `colocate`, a sleeping application moves to the CPU of its partners. Descriptors: the notify descriptor and the
    /// wake descriptor.
    Application { arena_bytes: u64, waiting: Waiting, colocate: bool },
    /// The guest's memory; this is the last answer to an application. Descriptors: the memory files of the guest's ring and of its
    /// arena.
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
    /// The guests that may couple to the network; `None` if every guest may.
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
    /// How the guest's process is confined, as text.
    pub confinement: String,
    /// The number of the guest's ring pairs.
    pub pairs: u32,
    /// The size in bytes of all ring pairs that the guest asked for.
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
    /// The guest is external, and its process has not attached.
    Waiting,
    /// The guest's process has started but is not ready yet.
    Starting,
    /// The guest runs.
    Running,
    /// The guest has ended.
    Ended,
}
