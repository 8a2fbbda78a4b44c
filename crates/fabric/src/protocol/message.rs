//! Messages between the control program and its guests.
//!
//! *Orders* go from the control program to a guest, *guest events* come back. The documentation of a message lists the descriptors that
//! go with it, in their order.

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

/// The version of all messages. Both sides of a channel must have the same.
pub const PROTOCOL: u32 = 6;

/// The name of a guest's device on a network.
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

/// A member of a network, as its partners know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name.
    pub id: MemberId,
    /// Its addresses there.
    pub addresses: Vec<IpAddr>,
    /// The addresses that it may send from.
    pub sources: SourceList,
}

impl Member {
    /// The member that is this device of the topology.
    pub(crate) fn of(topology: &Topology, guest: &Name, device: &Device) -> Self {
        let id = MemberId { guest: guest.clone(), device: device.name.clone() };
        let addresses = device.addresses.iter().map(|own| own.addr()).collect();
        Self { id, addresses, sources: sources::of(topology, guest, device) }
    }
}

/// The buffers of one ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffers {
    /// Bytes of each buffer.
    pub bytes: u32,
    /// Number of buffers.
    pub count: u16,
}

impl Buffers {
    /// Bytes of all buffers.
    pub fn total_bytes(self) -> u64 {
        u64::from(self.bytes) * u64::from(self.count)
    }
}

/// The configuration of a guest's stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestConfig {
    /// Its name.
    pub name: Name,
    /// It forwards packets.
    pub forwarding: bool,
    /// How it waits.
    pub waiting: Waiting,
    /// Its devices.
    pub devices: Vec<GuestDevice>,
    /// Its routes.
    pub routes: Vec<Route>,
    /// The secret by which the guest knows a later control program.
    pub secret: Secret,
}

/// The configuration of one device of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestDevice {
    /// Its name.
    pub name: Name,
    /// The network's name.
    pub network: Name,
    /// The connectivity type of the network.
    pub kind: NetworkKind,
    /// Own addresses.
    pub addresses: Vec<IpNet>,
    /// Largest IP packet.
    pub mtu: u16,
    /// Buffers of each inbound ring.
    pub buffer_count: u16,
    /// What the guest does with a frame for which the partner has no empty buffer.
    pub full: Full,
    /// How it moves frames.
    #[serde(rename = "driver")]
    pub features: DriverFeatures,
    /// Seconds without traffic after which a ring pair ends.
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
            features: topology.features,
            idle_seconds: network.idle_seconds,
        }
    }
}

/// A message from the control program to a guest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the line of each order covers its fields")]
pub enum Order {
    /// The first order. Descriptor: the socket on which the guest listens for a later control program.
    Configure(Box<GuestConfig>),
    /// The first order of a later control program, on the guest's own socket: its [`PROTOCOL`], and the guest's secret as its proof.
    Adopt { protocol: u32, secret: Secret },
    /// Standard error goes to a new pipe. Descriptor: the write end, which becomes descriptor 2.
    Stderr,
    /// A partner has joined the network of an own device, or its addresses or sources have changed.
    Member { device: Name, member: Member },
    /// The guest has received all its partners and may run.
    Run,
    /// A partner has left the network of an own device.
    MemberGone { device: Name, member: MemberId },
    /// Make a ring pair with a partner. Descriptors: the notify descriptor, the wake descriptor, and a memory file for the guest's
    /// outgoing ring. The guest maps and seals the file and answers with `Memory`.
    MakePair(RingPairEnd),
    /// The partner's end of a pair. Descriptor: the memory of its outgoing ring.
    PeerMemory { pair: RingPairId },
    /// Send nothing more over the pair. The guest answers with `Quiet`.
    Quiesce { pair: RingPairId },
    /// The pair has ended; `why` is for the log. The guest takes the frames that have arrived, then drops the memory.
    Unpair {
        pair: RingPairId,
        #[serde(deserialize_with = "siga_model::text::bounded")]
        why: String,
    },
    /// A pair that the guest asked for is refused.
    Refused { device: Name, member: MemberId, why: Error },
    /// Serve an application, with arenas of `arena_bytes` each. Descriptors: the notify descriptor, the wake descriptor, and memory
    /// files for the guest's ring and its arena. The guest maps and seals the files and answers with `ApplicationMemory`.
    Application { application: ApplicationId, arena_bytes: u64 },
    /// The memory of an application. Descriptors: its ring, its arena.
    ApplicationMemory { application: ApplicationId },
    /// Report counters and settings. The guest answers with `Report`s that repeat the number.
    Report { request: u64 },
    /// Send an echo request with this many bytes of payload, and wait for the reply. The guest answers with a `Pong` that repeats the
    /// number.
    Ping { request: u64, to: IpAddr, bytes: u16, timeout_ms: u32 },
    /// Capture up to `snap_bytes` bytes of each frame. Descriptor: the pipe to write the capture to.
    Capture { snap_bytes: u32 },
    /// End the capture.
    CaptureStop,
    /// End the guest's process.
    Stop,
}

/// A message from a guest to the control program.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the line of each event covers its fields")]
pub enum GuestEvent {
    /// The first event of a process: its [`PROTOCOL`], and its version for error messages.
    Hello {
        protocol: u32,
        #[serde(deserialize_with = "siga_model::text::bounded")]
        version: String,
    },
    /// The guest runs, confined as the words say.
    Ready {
        #[serde(deserialize_with = "siga_model::text::bounded")]
        confinement: String,
    },
    /// The guest cannot run.
    Failed(Error),
    /// The first events to a later control program: the guest's pairs and applications, at most
    /// [`crate::limits::INVENTORY_PART_MAX`] of each in a part. No other event comes before the last part.
    Inventory {
        #[serde(deserialize_with = "siga_model::text::bounded")]
        confinement: String,
        pairs: Vec<RingPairEnd>,
        applications: Vec<ApplicationId>,
        last: bool,
    },
    /// The guest asks for a ring pair from an own device to a partner.
    Couple { device: Name, member: MemberId },
    /// The guest's end of a pair. Descriptor: the memory of its outgoing ring.
    Memory { pair: RingPairId },
    /// The guest's memory for an application. Descriptors: its ring, its arena.
    ApplicationMemory { application: ApplicationId },
    /// The guest has stopped serving an application.
    ApplicationEnded { application: ApplicationId, why: Loss },
    /// The guest has mapped both rings of a pair.
    Linked { pair: RingPairId },
    /// A pair had no traffic for `idle_seconds`.
    Idle { pair: RingPairId },
    /// The guest sends nothing more over the pair.
    Quiet { pair: RingPairId },
    /// The guest has dropped its end of a pair.
    Lost { pair: RingPairId, why: Loss },
    /// Part of the answer to `Order::Report`, with that order's number.
    Report { request: u64, part: ReportPart },
    /// The outcome of `Order::Ping`, with that order's number: the round trip in nanoseconds, or none in time.
    Pong { request: u64, time_ns: Option<u64> },
    /// A capture has ended. The reader was too slow for `missed` frames.
    CaptureEnded { missed: u64 },
}

/// One guest's end of a ring pair.
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
    /// Buffers of the inbound ring.
    pub inbound: Buffers,
    /// Buffers of the outbound ring.
    pub outbound: Buffers,
}

/// Why a guest dropped its end of a pair, or an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// The partner's process has ended.
    PeerGone,
    /// The partner broke the protocol of the ring.
    Violation(#[serde(deserialize_with = "siga_model::text::bounded")] String),
    /// This side could not map memory.
    Failed(#[serde(deserialize_with = "siga_model::text::bounded")] String),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerGone => f.write_str("the partner's process has ended"),
            Self::Violation(what) => write!(f, "violation: {what}"),
            Self::Failed(what) => f.write_str(what),
        }
    }
}
