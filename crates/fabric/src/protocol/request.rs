//! What the command line and applications ask of a control program, and what it answers.
//!
//! A request is answered by `TakenUp`, then any number of answers, the last of which is `Done` or `Failed`. After `Welcome` the connection is
//! a guest's: orders come and news go.

use crate::protocol::report::ReportPart;
use crate::protocol::secret::Secret;
use serde::{Deserialize, Serialize};
use siga_model::error::Error;
use siga_model::name::Name;
use siga_model::waiting::Waiting;
use std::net::IpAddr;
use std::time::Duration;

/// From the command line or an application.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// To a control program that has just been started, by the process that started it.
    Start {
        /// The network's name.
        name: Name,
        /// The topology's text.
        topology: String,
        /// The network goes down when the connection of who started it ends, and takes the directory along that it was
        /// started below, if that is empty then.
        lease: bool,
    },
    /// What runs, in short or with every counter.
    Status {
        /// With the guests' reports.
        detail: bool,
    },
    /// What one guest has counted.
    Report(Name),
    /// Everything is to end.
    Down,
    /// A guest is to be started that has ended.
    StartGuest(Name),
    /// A guest is to end, and not to be started again.
    StopGuest(Name),
    /// A guest may couple to a restricted network.
    Grant {
        /// The network.
        network: Name,
        /// The guest.
        guest: Name,
    },
    /// A guest may no longer couple to a restricted network.
    Revoke {
        /// The network.
        network: Name,
        /// The guest.
        guest: Name,
    },
    /// A secret of a guest.
    Secret {
        /// Whose.
        guest: Name,
        /// That with which applications use the guest's stack, not that with which the guest attaches.
        application: bool,
    },
    /// This process wants to use the stack of a guest that runs.
    Application {
        /// What it speaks.
        protocol: u32,
        /// Its version, for messages.
        version: String,
        /// Which guest.
        guest: Name,
        /// The secret of its applications.
        secret: Secret,
    },
    /// After `Answer::Application`: this process's half. Descriptors: the memory of its ring, its arena.
    ApplicationMemory,
    /// This process is a guest of the topology that nobody starts.
    Attach {
        /// What it speaks.
        protocol: u32,
        /// Its version, for messages.
        version: String,
        /// Which guest.
        guest: Name,
        /// Its secret.
        secret: Secret,
    },
    /// Echo requests are to be sent by a guest.
    Ping {
        /// Who sends them.
        guest: Name,
        /// Where to.
        to: IpAddr,
        /// Bytes of payload.
        bytes: u16,
        /// Milliseconds until an answer is given up.
        timeout_ms: u32,
    },
    /// A guest's frames are to be captured until the connection ends. Descriptor: where the capture goes to.
    Capture {
        /// Whose.
        guest: Name,
        /// The most of each frame.
        snap_bytes: u32,
    },
}

/// A request with the time at which it is void, so that a request that its sender gave up long ago does not take effect.
#[derive(Debug, Serialize, Deserialize)]
pub struct TimedRequest {
    /// What is asked.
    pub request: Request,
    /// The control program takes it up before this time, or not at all.
    pub until: Moment,
}

/// A moment on the clock of this host (`CLOCK_BOOTTIME`), in milliseconds: the same for all its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(u64);

impl Moment {
    /// This moment.
    pub fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (seconds, ns) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
        Self(seconds.saturating_mul(1_000).saturating_add(ns / 1_000_000))
    }

    /// The moment after `time`.
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// From the control program.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The request is taken up; answers follow.
    TakenUp,
    /// A network.
    Network(NetworkStatus),
    /// A guest.
    Guest(GuestStatus),
    /// Part of a guest's report.
    Report {
        /// Whose.
        guest: Name,
        /// What.
        part: ReportPart,
    },
    /// A guest that did not report in time, or not to the end.
    Silent {
        /// The guest.
        guest: Name,
    },
    /// The round trip of a ping, or none in time.
    Pong {
        /// Nanoseconds.
        time_ns: Option<u64>,
    },
    /// A capture ended by itself: frames that it missed.
    CaptureEnded {
        /// Frames.
        missed: u64,
    },
    /// A secret.
    Secret(Secret),
    /// The process is an application of a guest. Descriptors: the bell to ring, the ear to listen at.
    Application {
        /// Bytes of each of the two arenas.
        arena_bytes: u64,
        /// How the guest waits, and its applications.
        waiting: Waiting,
        /// Whether those that sleep run where their partners run.
        colocate: bool,
    },
    /// The guest's half. Descriptors: the memory of its ring, its arena. Nothing follows.
    ApplicationMemory,
    /// The process is a guest.
    Welcome,
    /// All is said.
    Done,
    /// It cannot be.
    Failed(Error),
}

/// A network as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkStatus {
    /// Its name.
    pub name: Name,
    /// Its rules, in words.
    pub kind: String,
    /// `None` if it is open to all, else who may couple.
    pub granted: Option<Vec<Name>>,
    /// Who is on it, and how many pairs join them.
    pub members: Vec<String>,
    /// The pairs.
    pub pairs: u32,
}

/// A guest as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestStatus {
    /// Its name.
    pub name: Name,
    /// Whether it runs.
    pub state: GuestState,
    /// Its process, if it runs.
    pub pid: Option<u32>,
    /// Times it has been started again after it ended by itself.
    pub restarts: u32,
    /// Milliseconds since it was ready.
    pub up_ms: Option<u64>,
    /// How it is confined, in words.
    pub confinement: String,
    /// Ring pairs it has.
    pub pairs: u32,
    /// Bytes of the rings it asked for.
    pub ring_bytes: u64,
    /// How it ended, if it has.
    pub ended: Option<String>,
    /// What its process may take, if it runs and is not external.
    pub memory: Option<GuestMemory>,
}

/// What the process of a guest may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestMemory {
    /// Bytes.
    pub max_bytes: u64,
    /// What keeps it to that.
    pub by: MemoryLimit,
}

/// What keeps a guest's process to its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryLimit {
    /// A control group: the memory that it uses counts.
    ControlGroup,
    /// A limit on its address space: what it maps counts, used or not.
    AddressSpace,
}

impl MemoryLimit {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::ControlGroup => "control group",
            Self::AddressSpace => "address space",
        }
    }
}

/// Whether a guest runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestState {
    /// It is external and has not attached.
    Waiting,
    /// Its process is there and not yet ready.
    Starting,
    /// It runs.
    Running,
    /// It has ended.
    Ended,
}
