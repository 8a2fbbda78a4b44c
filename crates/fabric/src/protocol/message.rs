//! The messages between the control program and its guests.
//!
//! The control program sends *orders* to a guest, and the guest sends *guest events* back. If a message carries descriptors, its
//! documentation lists them in their order.

use super::direct::{DirectOrder, DirectRequest};
use super::report::{KnownAddress, ReportPart, Traffic};
use super::secret::Secret;
use super::ticket::{ApplicationId, RingPairId};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use siga_model::allow::Allow;
use siga_model::error::Error;
use siga_model::features::DriverFeatures;
use siga_model::limits::NETDEV_BACKLOG_DEFAULT;
use siga_model::link::Link;
use siga_model::mac::Mac;
use siga_model::name::Name;
use siga_model::topology::sources::{self, SourceList};
use siga_model::topology::{
    Claw, Device, Full, KernelPort, Mirror, NetworkKind, Nic, PortLink, PortSettings, Queueing, Route, Switch,
    TcpSettings, TcpTo, Topology,
};
use siga_model::waiting::Waiting;
use std::fmt;
use std::net::IpAddr;

/// The version of the protocol: of all messages of this crate. Both ends of a channel must use the same version.
pub const PROTOCOL: u32 = 18;

/// The name of a member of a network: one device of one guest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId {
    /// The guest's name.
    pub guest: Name,
    /// The name of the guest's device.
    pub device: Name,
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.guest, self.device))
    }
}

/// A member of a network (a guest's device), as the other members see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The member's guest and device.
    pub id: MemberId,
    /// The member's addresses on the network.
    pub addresses: Vec<IpAddr>,
    /// The source addresses that the member may use in packets to the guest that receives this `Member`.
    pub sources: SourceList,
    /// The member's port, if the receiver of this `Member` is a switch.
    pub port: Option<MemberPort>,
}

/// The port of a guest's device on a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberPort {
    /// The settings from the topology.
    pub settings: PortSettings,
    /// The size of the largest IP packet that the device accepts, in bytes.
    pub mtu: u16,
    /// True if the guest forwards packets.
    pub is_router: bool,
    /// What happens to a frame of the device for which the card's output queue has no room.
    #[serde(default)]
    pub full: Full,
}

impl Member {
    /// Returns the member for a guest's device in the topology.
    pub(crate) fn of(topology: &Topology, guest: &Name, device: &Device) -> Self {
        let id = MemberId { guest: guest.clone(), device: device.name.clone() };
        let addresses = device.addresses.iter().map(|own| own.addr()).collect();
        let is_router = topology.guests.get(guest).is_some_and(|guest| guest.forwarding);
        let port = |settings: &PortSettings| MemberPort {
            settings: settings.clone(),
            mtu: device.mtu,
            is_router,
            full: device.full,
        };
        let port = device.port.as_ref().map(port);
        Self { id, addresses, sources: sources::of(topology, guest, device), port }
    }
}

/// The number and size of the buffers of one ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffers {
    /// The size of each buffer in bytes.
    pub bytes: u32,
    /// The number of buffers.
    pub count: u16,
}

impl Buffers {
    /// Returns the size of all buffers together in bytes.
    pub fn total_bytes(self) -> u64 {
        u64::from(self.bytes) * u64::from(self.count)
    }
}

/// The configuration of a guest's stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestConfig {
    /// The guest's name.
    pub name: Name,
    /// True if the guest forwards packets, as a router does.
    pub forwarding: bool,
    /// The guest's waiting policy.
    pub waiting: Waiting,
    /// The guest's devices.
    pub devices: Vec<GuestDevice>,
    /// The guest's routes.
    pub routes: Vec<Route>,
    /// Settings of TCP, by their names in Linux.
    pub tcp: TcpSettings,
    /// Settings of the connections to the hosts of prefixes.
    pub tcp_to: Vec<TcpTo>,
    /// What others may open to the guest. `None`: everything.
    pub allow: Option<Allow>,
    /// The secret with which a restarted control program proves its identity to the guest.
    pub secret: Secret,
    /// The configuration of the switch, if the process is a switch and not a guest.
    pub switch: Option<SwitchConfig>,
    /// True if the process is to replace the guest's present one. Until the order `Run`, it ends together with its control program.
    #[serde(default)]
    pub replaces: bool,
}

/// The configuration of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchConfig {
    /// True if the network carries frames of all protocols; false if it carries IP packets only.
    pub any_protocol: bool,
    /// True if the network carries no IPv6 packets.
    pub only_v4: bool,
    /// The most broadcast, multicast and unknown unicast frames that a port may send per second.
    pub flood_per_second: u32,
    /// True if the switch sends accounting records.
    pub accounting: bool,
}

impl SwitchConfig {
    /// Returns the configuration of a network's switch, or `None` if the network has no switch.
    pub(crate) fn of(topology: &Topology, network: &Name) -> Option<Self> {
        let network = topology.networks.get(network)?;
        let switch = network.switch.as_ref()?;
        let (any_protocol, only_v4) = match network.kind {
            NetworkKind::Guestlan { nic: Nic::Hipersockets { .. }, .. } | NetworkKind::Lcs { .. } => (false, true),
            NetworkKind::Guestlan { nic: Nic::Qdio { ethernet }, .. } | NetworkKind::Qdio { ethernet, .. } => {
                (ethernet, false)
            }
            NetworkKind::Vswitch { .. }
            | NetworkKind::Hipersockets { .. }
            | NetworkKind::Vctc { .. }
            | NetworkKind::Ctc { .. }
            | NetworkKind::Netiucv { .. }
            | NetworkKind::Claw { .. } => (true, false),
        };
        let Switch { flood_per_second, accounting, .. } = *switch;
        Some(Self { any_protocol, only_v4, flood_per_second, accounting })
    }
}

/// The configuration of one device of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestDevice {
    /// The device's name.
    pub name: Name,
    /// The name of the network that the device is on.
    pub network: Name,
    /// The connectivity type of the network.
    pub kind: NetworkKind,
    /// The device's addresses with their prefix lengths.
    pub addresses: Vec<IpNet>,
    /// The length of the largest IP packet in bytes.
    pub mtu: u16,
    /// Whether connections over the network can be direct.
    pub direct: bool,
    /// The number of buffers of each inbound ring. The device has one inbound ring for each partner.
    pub buffer_count: u16,
    /// What the guest does with a frame when the ring to the partner has no empty buffer.
    pub full: Full,
    /// The most packets that wait in the guest for one partner on the network.
    #[serde(default = "netdev_max_backlog")]
    pub netdev_max_backlog: u32,
    /// The driver features that the guest uses.
    #[serde(rename = "driver")]
    pub features: DriverFeatures,
    /// The time without traffic, in seconds, after which a ring pair is ended.
    pub idle_seconds: u32,
    /// The device's Ethernet address, if frames of the network have an Ethernet header. A switch's own device has none.
    pub mac: Option<Mac>,
    /// The modelled link over which the guest sends on a virtual CTC, or the channel of a real CTC.
    #[serde(default)]
    pub link: Option<OutboundLink>,
    /// Which output queue of its card the device uses for a frame, on a network of type qdio.
    #[serde(default)]
    pub queueing: Queueing,
    /// The settings of the device on a network of type claw.
    #[serde(default)]
    pub claw: Option<Box<Claw>>,
}

/// Returns the value for messages of a version without this setting.
fn netdev_max_backlog() -> u32 {
    NETDEV_BACKLOG_DEFAULT
}

/// A modelled link in the direction in which a guest sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboundLink {
    /// The settings.
    pub link: Link,
    /// Distinguishes the random numbers of the two directions.
    pub stream: u64,
}

impl GuestDevice {
    /// Returns the configuration of a topology's device.
    pub(crate) fn of(topology: &Topology, device: &Device) -> Self {
        let network = &topology.networks[&device.network];
        let (link, is_linked) = link_of(topology, device);
        // A link carries ordinary frames only, so that a loss costs one frame of the MTU.
        let carried = DriverFeatures { omit_checksums: false, large_segments: false, ..topology.features };
        Self {
            name: device.name.clone(),
            network: device.network.clone(),
            kind: network.kind,
            addresses: device.addresses.clone(),
            mtu: device.mtu,
            direct: network.direct,
            buffer_count: device.buffer_count,
            full: device.full,
            netdev_max_backlog: device.netdev_max_backlog,
            features: if is_linked { carried } else { topology.features },
            idle_seconds: network.idle_seconds,
            mac: device.port.as_ref().map(|port| port.mac),
            link,
            claw: device.claw.as_ref().map(|claw| Box::new(claw.complete(topology, device))),
            queueing: device
                .port
                .as_ref()
                .and_then(|port| port.card.as_ref())
                .map(|card| card.queueing)
                .unwrap_or_default(),
        }
    }
}

/// The channel of a real CTC: an ESCON channel of 17 MB/s, and the time that each block takes on its way beside its bytes. A stream of
/// full blocks of 32,768 bytes has 8.2 MB/s, as in z/VM's report.
const CHANNEL: Link = Link::channel(136_000_000, 2_000_000);

/// The channel of a network of type claw. A stream of full blocks of 32,760 bytes has 2.2 MB/s, as in z/VM's report.
const CLAW_CHANNEL: Link = Link::channel(20_000_000, 1_800_000);

/// Returns the modelled link over which a guest sends on a CTC, and whether packets of the CTC pass over a link in any direction.
fn link_of(topology: &Topology, device: &Device) -> (Option<OutboundLink>, bool) {
    let kind = topology.networks[&device.network].kind;
    if !kind.joins_two_guests() {
        return (None, false);
    }
    let mut others =
        topology.on(&device.network).map(|(_, _, other)| other).filter(|other| !std::ptr::eq(*other, device));
    let other = others.next().map(|other| &other.link);
    let directed = |link: Option<&Link>, stream| Some(OutboundLink { link: link?.clone(), stream });
    let link = directed(device.link.from_station.as_ref(), 0);
    let link = link.or_else(|| directed(other?.to_station.as_ref(), 1));
    if kind.has_channel() {
        // The channel takes whole blocks, with all that they contain.
        let channel = if matches!(kind, NetworkKind::Claw { .. }) { &CLAW_CHANNEL } else { &CHANNEL };
        return (link.or_else(|| directed(Some(channel), 0)), false);
    }
    let has_link = |link: &PortLink| *link != PortLink::default();
    (link, has_link(&device.link) || other.is_some_and(has_link))
}

/// A message from the control program to a guest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the line of each order covers its fields")]
pub enum Order {
    /// Configure the guest. This is the first order to a new process. Descriptor: the socket on which the guest listens, so that a
    /// restarted control program can reconnect to it.
    Configure(Box<GuestConfig>),
    /// Accept the sender as the guest's control program. A restarted control program sends this first order after it connected to
    /// the guest's listening socket. `protocol` is the sender's [`PROTOCOL`]. `secret` is the guest's secret, which proves the
    /// sender's identity.
    Adopt { protocol: u32, secret: Secret },
    /// Redirect the standard error of the guest's process to a new pipe. Descriptor: the pipe's write end, which becomes descriptor
    /// 2.
    Stderr,
    /// A partner can now be reached through the guest's device `device`. Or, if the guest already knows the partner, the partner's
    /// addresses or allowed source addresses have changed.
    Member { device: Name, member: Member },
    /// Replace the rules that say what others may open to the guest. `None`: everything. Connections that exist go on.
    Allow(Option<Allow>),
    /// Ends the start of the guest: the guest has received a `Member` order for each of its partners, and answers `Ready`.
    Run,
    /// A partner can no longer be reached through the guest's device `device`.
    MemberGone { device: Name, member: MemberId },
    /// Add the port of a network namespace to the switch, or replace it. Descriptor: the TAP device in the namespace.
    Port { port: Box<KernelPort> },
    /// The interface of an uplink has got or lost its carrier. The switch uses the first uplink that has a carrier.
    Carrier { port: Name, is_there: bool },
    /// Remove the port of a network namespace from the switch.
    PortGone { port: Name },
    /// Change the settings of the port of a network namespace.
    PortSettings { port: Name, settings: PortSettings },
    /// Copy frames to a port of the switch, or with `None`, end the copying.
    Mirror(Option<Mirror>),
    /// Report the table of Ethernet addresses. First forget the learned ones if `forget` is true. The switch answers with `Report` events
    /// that repeat the number `request`.
    Addresses { request: u64, forget: bool },
    /// Make a ring pair with a partner. Descriptors: the notify descriptor, the wake descriptor, and a memory file for the guest's
    /// outgoing ring. The guest maps and seals the file, then answers with `Memory`.
    MakePair(RingPairEnd),
    /// The partner has made its end of a pair. Descriptor: the memory file of the partner's outgoing ring. `continues` is true if the pair
    /// takes the place of another one from which no frame was lost.
    PeerMemory { pair: RingPairId, continues: bool },
    /// Stop sending over a pair. The guest answers with `Quiet`.
    Quiesce { pair: RingPairId },
    /// Drop a pair that has ended. The guest first receives the frames that are still in its inbound ring, then unmaps the memory.
    /// `why` is for the log.
    Unpair {
        pair: RingPairId,
        #[serde(deserialize_with = "siga_model::text::bounded")]
        why: String,
    },
    /// The control program refuses a pair that the guest asked for.
    Refused { device: Name, member: MemberId, why: Error },
    /// Serve a new application. The guest and the application each have an arena (shared memory for payload) of `arena_bytes`
    /// bytes. Descriptors: the notify descriptor, the wake descriptor, memory files for the guest's ring and for its arena, and the
    /// socket over which guest and application pass descriptors. The guest maps and seals the files, then answers with
    /// `ApplicationMemory`.
    Application { application: ApplicationId, arena_bytes: u64 },
    /// The application has made its end of the link to the guest. Descriptors: the memory files of the application's ring and of
    /// its arena.
    ApplicationMemory { application: ApplicationId },
    /// An order about a direct connection of an application. Descriptors: those of the order.
    Direct { application: ApplicationId, order: DirectOrder },
    /// Report the guest's counters and settings. The guest answers with `Report` events that repeat the number `request`.
    Report { request: u64 },
    /// Report the sums of the guest's counters. The guest answers with one `Report` event that repeats the number `request`.
    Totals { request: u64 },
    /// Send an echo request with `bytes` bytes of payload to `to`, and wait for the reply. The guest answers with a `Pong` event that
    /// repeats the number `request`.
    Ping { request: u64, to: IpAddr, bytes: u16, timeout_ms: u32 },
    /// Capture the guest's frames, up to `snap_bytes` bytes of each, or with `blocks`, the blocks of its devices. Descriptor: the pipe to
    /// which the guest writes the capture.
    Capture { snap_bytes: u32, blocks: bool },
    /// End the capture.
    CaptureStop,
    /// Answer `Prepared`. The guest has then carried out all earlier orders.
    Prepare,
    /// Another process is to replace this one, and the partners have stopped sending. The guest answers `Retired` when it has passed on
    /// all frames, and takes no more frames from TAP devices.
    Retire,
    /// No other process replaces this one: it goes on.
    Resume,
    /// Learn these Ethernet addresses when the order `Run` has come. They are what the switch's former process had learned.
    Learn { addresses: Vec<KnownAddress> },
    /// End the guest's process.
    Stop,
}

/// A message from a guest to the control program.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the line of each event covers its fields")]
pub enum GuestEvent {
    /// The first event of a new process. `protocol` is the guest's [`PROTOCOL`]; `version` is the version of siga, for error
    /// messages.
    Hello {
        protocol: u32,
        #[serde(deserialize_with = "siga_model::text::bounded")]
        version: String,
    },
    /// The guest runs. `confinement` describes to the user how the guest's process is confined.
    Ready {
        #[serde(deserialize_with = "siga_model::text::bounded")]
        confinement: String,
    },
    /// The guest cannot run, because of this error.
    Failed(Error),
    /// One part of the list of the guest's pairs and applications. The parts are the first events that the guest sends to a
    /// reconnecting control program. Each part lists up to [`crate::limits::INVENTORY_PART_MAX`] pairs, and up to the same number
    /// of applications. Before the last part, the guest sends no other event than `Port`.
    Inventory {
        #[serde(deserialize_with = "siga_model::text::bounded")]
        confinement: String,
        pairs: Vec<RingPairEnd>,
        applications: Vec<ApplicationId>,
        last: bool,
    },
    /// A switch has this port of a network namespace. A switch sends this event only to a reconnecting control program. Descriptor: the TAP
    /// device, or the packet socket of an uplink.
    Port { port: Name },
    /// The guest asks for a ring pair between its device `device` and a partner.
    Couple { device: Name, member: MemberId },
    /// The guest has made its end of a pair. Descriptor: the memory file of the guest's outgoing ring.
    Memory { pair: RingPairId },
    /// The guest has made its end of the link to an application. Descriptors: the memory files of the guest's ring and of its arena.
    ApplicationMemory { application: ApplicationId },
    /// An event of direct connections of an application. Descriptor: that of the event.
    Direct { application: ApplicationId, event: DirectRequest },
    /// The guest has stopped serving an application.
    ApplicationEnded { application: ApplicationId, why: Loss },
    /// The guest has mapped both rings of a pair.
    Linked { pair: RingPairId },
    /// The guest saw no traffic on a pair for the time `idle_seconds` of its device.
    Idle { pair: RingPairId },
    /// The guest has stopped sending over a pair.
    Quiet { pair: RingPairId },
    /// The guest has dropped its end of a pair.
    Lost { pair: RingPairId, why: Loss },
    /// The TAP device of a port is gone, for example because its namespace has ended. The switch has removed the port.
    PortLost {
        port: Name,
        #[serde(deserialize_with = "siga_model::text::bounded")]
        why: String,
    },
    /// Accounting records of a switch: what stations have exchanged since their latest records. The switch sends the record of a station
    /// when the ring pair or the TAP device of its port ends, and when the switch itself ends.
    Account { records: Vec<AccountRecord> },
    /// One part of the answer to `Order::Report`. `request` is the number from that order.
    Report { request: u64, part: ReportPart },
    /// The answer to `Order::Ping`. `request` is the number from that order. `time_ns` is the round-trip time in nanoseconds, or
    /// `None` if no reply came in time.
    Pong { request: u64, time_ns: Option<u64> },
    /// The capture has ended. It lacks `missed` frames, because the reader of the capture was too slow.
    CaptureEnded { missed: u64 },
    /// The answer to `Order::Prepare`. `why_not` says why no other process can replace this one now.
    Prepared {
        #[serde(deserialize_with = "siga_model::text::bounded_option")]
        why_not: Option<String>,
    },
    /// Some Ethernet addresses that a switch has learned: a part of the answer to `Order::Retire`.
    Learned { addresses: Vec<KnownAddress> },
    /// The last part of the answer to `Order::Retire`.
    Retired,
}

/// What a station has exchanged with a switch since its latest record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRecord {
    /// The label of the station's port.
    #[serde(deserialize_with = "siga_model::text::bounded")]
    pub port: String,
    /// The frames.
    pub traffic: Traffic,
}

/// One guest's end of a ring pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingPairEnd {
    /// The ticket of the pair.
    pub pair: RingPairId,
    /// True if this guest asked for the pair. The memory of the pair is charged to the guest that asked for it.
    pub asked: bool,
    /// The guest's device at this end of the pair.
    pub device: Name,
    /// The partner at the other end of the pair.
    pub member: MemberId,
    /// The buffers of the guest's inbound ring.
    pub inbound: Buffers,
    /// The buffers of the guest's outbound ring.
    pub outbound: Buffers,
}

/// The reason why a guest dropped its end of a pair or its link to an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// The process at the other end has ended.
    PeerGone,
    /// The process at the other end broke the ring's protocol.
    Violation(#[serde(deserialize_with = "siga_model::text::bounded")] String),
    /// The guest could not map the shared memory.
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
