//! What processes of one network say to each other.
//!
//! *Orders* go from the control program to a guest, *news* come back; *requests* come from the command line and from
//! applications, *answers* go back. Descriptors that go with a message are named in its documentation, in their order.

use super::report::ReportPart;
use super::secret::Secret;
use super::ticket::{ApplicationId, RingPairId};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use siga_model::error::Error;
use siga_model::features::DriverFeatures;
use siga_model::name::Name;
use siga_model::topology::sources::{self, SourceList};
use siga_model::topology::{Device, Full, NetworkKind, Route, Topology};
use siga_model::waiting::Waiting;
use std::fmt;
use std::net::IpAddr;

/// Changes whenever a message does; both sides of a channel must have the same.
pub const PROTOCOL: u32 = 6;

/// A device of a guest, as its partners know it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId {
    /// The guest.
    pub guest: Name,
    /// Its device.
    pub device: Name,
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.guest, self.device))
    }
}

/// A partner on a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Who.
    pub id: MemberId,
    /// Its addresses there.
    pub addresses: Vec<IpAddr>,
    /// Which addresses it may send from.
    pub sources: SourceList,
}

impl Member {
    /// A guest's device, as the topology has it.
    pub(crate) fn of(topology: &Topology, guest: &Name, device: &Device) -> Self {
        let id = MemberId { guest: guest.clone(), device: device.name.clone() };
        let addresses = device.addresses.iter().map(|own| own.addr()).collect();
        Self { id, addresses, sources: sources::of(topology, guest, device) }
    }
}

/// The buffers of one direction of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffers {
    /// Bytes of each.
    pub bytes: u32,
    /// How many.
    pub count: u16,
}

impl Buffers {
    /// Bytes of all.
    pub fn total_bytes(self) -> u64 {
        u64::from(self.bytes) * u64::from(self.count)
    }
}

/// All that a guest needs to run its stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestConfig {
    /// Its name.
    pub name: Name,
    /// It passes packets on.
    pub forwarding: bool,
    /// How it waits.
    pub waiting: Waiting,
    /// Its devices.
    pub devices: Vec<GuestDevice>,
    /// Its routes.
    pub routes: Vec<Route>,
    /// What a control program that comes later proves itself with.
    pub secret: Secret,
}

/// A device as its guest is to make it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestDevice {
    /// Its name.
    pub name: Name,
    /// The network's name.
    pub network: Name,
    /// The network's rules.
    pub kind: NetworkKind,
    /// Own addresses.
    pub addresses: Vec<IpNet>,
    /// Largest IP packet.
    pub mtu: u16,
    /// Buffers of each inbound ring.
    pub buffer_count: u16,
    /// What happens to a frame for which the partner has no empty buffer.
    pub full: Full,
    /// How it moves frames.
    pub driver: DriverFeatures,
    /// After so many seconds without traffic a pair is given back.
    pub idle_seconds: u32,
}

impl GuestDevice {
    /// A device of a topology.
    pub(crate) fn of(topology: &Topology, device: &Device) -> Self {
        let network = &topology.networks[&device.network];
        Self {
            name: device.name.clone(),
            network: device.network.clone(),
            kind: network.kind,
            addresses: device.addresses.clone(),
            mtu: device.mtu,
            buffer_count: device.buffer_count,
            full: device.full,
            driver: topology.driver,
            idle_seconds: network.idle_seconds,
        }
    }
}

/// From the control program to a guest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The first order. Descriptor: the socket on which the guest is to listen for a later control program.
    Configure(Box<GuestConfig>),
    /// The first order of a control program that has come later, on the guest's own socket.
    Adopt {
        /// What it speaks.
        protocol: u32,
        /// Its proof.
        secret: Secret,
    },
    /// The guest's messages have a new reader. Descriptor: the pipe that is to be its descriptor 2.
    Stderr,
    /// There is a partner on the network of a device, or its addresses have changed.
    Member {
        /// The own device.
        device: Name,
        /// The partner.
        member: Member,
    },
    /// All partners that there are have been told: the guest may run.
    Run,
    /// A partner is no longer on the network.
    MemberGone {
        /// The own device.
        device: Name,
        /// The partner.
        member: MemberId,
    },
    /// A pair with a partner is to be made. Descriptors: the bell to ring, the ear to listen at, a memory file for the guest's
    /// half. The guest maps and seals the file and answers with `Memory`.
    MakePair(RingPairEnd),
    /// The partner's half of a pair. Descriptor: its memory.
    PeerMemory {
        /// Its ticket.
        pair: RingPairId,
    },
    /// Nothing more is to be sent over the pair; the guest answers with `Quiet`.
    Quiesce {
        /// Its ticket.
        pair: RingPairId,
    },
    /// The pair is no more: what has come is taken in, then its memory is given back.
    Unpair {
        /// Its ticket.
        pair: RingPairId,
        /// Why, for the log.
        #[serde(deserialize_with = "siga_model::text::bounded")]
        why: String,
    },
    /// A pair that the guest asked for cannot be.
    Refused {
        /// The own device.
        device: Name,
        /// The partner.
        member: MemberId,
        /// Why.
        why: Error,
    },
    /// An application is to use the guest's stack. Descriptors: the bell to ring, the ear to listen at, memory files for the
    /// guest's ring and its arena. The guest maps and seals the files and answers with `ApplicationMemory`.
    Application {
        /// Its ticket.
        application: ApplicationId,
        /// Bytes of each of the two arenas.
        arena_bytes: u64,
    },
    /// An application's half. Descriptors: the memory of its ring, its arena.
    ApplicationMemory {
        /// Its ticket.
        application: ApplicationId,
    },
    /// Counters and settings are wanted: `Report`s follow.
    Report {
        /// Comes back with each.
        request: u64,
    },
    /// Echo requests are to be sent.
    Ping {
        /// Comes back with the outcomes.
        request: u64,
        /// Where to.
        to: IpAddr,
        /// Bytes of payload.
        bytes: u16,
        /// Milliseconds until an answer is given up.
        timeout_ms: u32,
    },
    /// Frames are to be captured. Descriptor: where the capture goes to.
    Capture {
        /// The most of each frame.
        snap_bytes: u32,
    },
    /// Nothing more is to be captured.
    CaptureStop,
    /// The guest is to end.
    Stop,
}

/// From a guest to the control program.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestEvent {
    /// The first word of a process.
    Hello {
        /// What it speaks.
        protocol: u32,
        /// Its version, for messages.
        #[serde(deserialize_with = "siga_model::text::bounded")]
        version: String,
    },
    /// It runs.
    Ready {
        /// How it is confined, in words.
        #[serde(deserialize_with = "siga_model::text::bounded")]
        confinement: String,
    },
    /// It cannot run.
    Failed(Error),
    /// The first messages to a control program that has adopted the guest: what it has. Nothing else comes before the last
    /// of them.
    Inventory {
        /// How it is confined.
        #[serde(deserialize_with = "siga_model::text::bounded")]
        confinement: String,
        /// Some of its pairs, at most [`crate::limits::INVENTORY_PART_MAX`].
        pairs: Vec<RingPairEnd>,
        /// Some of the applications that use its stack, at most as many.
        applications: Vec<ApplicationId>,
        /// No more parts follow.
        last: bool,
    },
    /// A pair with a partner is wanted.
    Couple {
        /// The own device.
        device: Name,
        /// The partner.
        member: MemberId,
    },
    /// The guest's half of a pair. Descriptor: its memory.
    Memory {
        /// Its ticket.
        pair: RingPairId,
    },
    /// The guest's half for an application. Descriptors: the memory of its ring, its arena.
    ApplicationMemory {
        /// Its ticket.
        application: ApplicationId,
    },
    /// An application uses the guest's stack no more.
    ApplicationEnded {
        /// Its ticket.
        application: ApplicationId,
        /// What happened.
        why: Loss,
    },
    /// Both halves are mapped.
    Linked {
        /// Its ticket.
        pair: RingPairId,
    },
    /// A pair has had no traffic for long.
    Idle {
        /// Its ticket.
        pair: RingPairId,
    },
    /// Nothing more is sent over the pair.
    Quiet {
        /// Its ticket.
        pair: RingPairId,
    },
    /// A pair has ended at this side.
    Lost {
        /// Its ticket.
        pair: RingPairId,
        /// What happened.
        why: Loss,
    },
    /// Part of the answer to `Order::Report`.
    Report {
        /// That of the order.
        request: u64,
        /// What the part is about.
        part: ReportPart,
    },
    /// The outcome of `Order::Ping`: the round trip, or none in time.
    Pong {
        /// That of the order.
        request: u64,
        /// Round trip in nanoseconds.
        time_ns: Option<u64>,
    },
    /// A capture has ended.
    CaptureEnded {
        /// Frames that were not captured because whoever reads was too slow.
        missed: u64,
    },
}

/// A pair as one of its guests has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingPairEnd {
    /// Its ticket.
    pub pair: RingPairId,
    /// The guest asked for it, and is charged for its memory.
    pub asked: bool,
    /// The own device.
    pub device: Name,
    /// The partner.
    pub member: MemberId,
    /// Buffers of frames that come.
    pub inbound: Buffers,
    /// Buffers of frames that go.
    pub outbound: Buffers,
}

/// Why a pair has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// The partner's process is gone.
    PeerGone,
    /// The partner broke the ring's contract.
    Violation(#[serde(deserialize_with = "siga_model::text::bounded")] String),
    /// This side could not map memory.
    Failed(#[serde(deserialize_with = "siga_model::text::bounded")] String),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerGone => f.write_str("the partner is gone"),
            Self::Violation(what) => write!(f, "violation: {what}"),
            Self::Failed(what) => f.write_str(what),
        }
    }
}
