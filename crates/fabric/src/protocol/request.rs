//! The requests of clients to a control program, and its answers.
//!
//! When the control program begins to carry out a request, it answers `TakenUp`, except to `Application`, which it answers at once. Any
//! number of other answers follow. The last
//! answer is `Done` or `Failed`. `Welcome` is an exception: no other answer follows it. The connection then becomes the channel of
//! a guest, and carries orders and guest events.

use crate::protocol::report::{ReportPart, Traffic};
use crate::protocol::secret::Secret;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use siga_model::allow::Allow;
use siga_model::error::Error;
use siga_model::name::Name;
use siga_model::topology::{KernelPort, Mirror, NetworkKind, PortChange, PortSettings};
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
    /// empty. With `takes_over`, another control program runs the network: the new one asks it to hand the network over.
    Start {
        name: Name,
        topology: String,
        lease: bool,
        #[serde(default)]
        takes_over: bool,
    },
    /// Hand the network over to the control program that sends this request. The control program answers `Done` when it no longer uses
    /// the network's files and guests. If the connection then closes without `HandedOver`, it takes the network back.
    HandOver,
    /// The control program that asked for `HandOver` has the guests, so the other one ends.
    HandedOver,
    /// Replace the process of each guest and switch that runs by a process of the control program's build, one after the other.
    Replace,
    /// Send the status of all networks and guests. With `detail`, also send the reports of the guests.
    Status { detail: bool },
    /// Send the report of one guest.
    Report(Name),
    /// Send the processes of the network, and the sums of the counters of all running guests except those of `quiet`.
    Sample { quiet: Vec<Name> },
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
    /// Replace the rules that say what others may open to a guest. `None`: everything.
    Allow { guest: Name, allow: Option<Allow> },
    /// Send a secret of a guest. If `application` is true, this is the secret that the guest's applications need. Otherwise it is
    /// the secret with which the guest itself attaches.
    Secret { guest: Name, application: bool },
    /// Make the client an application of a running guest: a process that uses the guest's stack. `secret` is the secret that the
    /// guest's applications need. `version` is the client's version of siga, for error messages. `process` is the id of the process
    /// that uses the stack, if the client attaches another process.
    Application { protocol: u32, version: String, guest: Name, secret: Secret, process: Option<u32> },
    /// Pass the application's memory files to the guest. The client sends this request after it received `Answer::Application`.
    /// Descriptors: the memory files of the application's ring and of its arena.
    ApplicationMemory,
    /// Make the client's process an external guest of the topology. `secret` is the secret with which this guest attaches.
    /// `version` is the client's version of siga, for error messages.
    Attach { protocol: u32, version: String, guest: Name, secret: Secret },
    /// Make a guest send an ICMP echo request with `bytes` bytes of payload to `to`, and wait at most `timeout_ms` milliseconds for
    /// the reply.
    Ping { guest: Name, to: IpAddr, bytes: u16, timeout_ms: u32 },
    /// Capture a guest's frames, up to `snap_bytes` bytes of each frame, or with `blocks`, the blocks of its devices, until this
    /// connection closes. Descriptor: the pipe to which the guest writes the capture.
    Capture { guest: Name, snap_bytes: u32, blocks: bool },
    /// Reserve a port that a network namespace can join: the port with this name, or without a name any free port of the switched network
    /// `lan`. It stays reserved while this connection is open. `tenant` names the namespace, for `ReleasePort`.
    ReservePort {
        lan: Option<Name>,
        port: Option<Name>,
        #[serde(deserialize_with = "siga_model::text::bounded")]
        tenant: String,
    },
    /// Join the port that this connection has reserved. Descriptor: the TAP device, which the client has made in the namespace.
    JoinPort,
    /// Remove a namespace from the port that it has joined or reserved. Succeeds if there is no such port.
    ReleasePort {
        #[serde(deserialize_with = "siga_model::text::bounded")]
        tenant: String,
    },
    /// Send the names of the namespaces that have joined ports.
    Tenants,
    /// Change the settings of a port of a switch. `port` is the label of a port, or the name of a guest with one device.
    ChangePort {
        network: Name,
        #[serde(deserialize_with = "siga_model::text::bounded")]
        port: String,
        change: PortChange,
    },
    /// Let a switch copy frames to a port, or with `None`, end the copying.
    Mirror { network: Name, mirror: Option<Mirror> },
    /// Send the Ethernet addresses that a switch knows. With `forget`, the switch first forgets the learned ones.
    Addresses { network: Name, forget: bool },
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
    /// Some members of a network: devices of guests, and ports of namespaces.
    Members { network: Name, members: Vec<MemberStatus> },
    /// The status of one guest.
    Guest(GuestStatus),
    /// Some processes of the network, as the answer to `Sample`.
    Processes(Vec<ProcessStatus>),
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
    /// The port that is now reserved. `checksums` and `segments` say whether the namespace's kernel may omit checksums and send large
    /// segments. `Hosts` answers follow.
    Port { lan: Name, port: Box<KernelPort>, checksums: bool, segments: bool },
    /// Some addresses of guests and ports, each with a name.
    Hosts(Vec<(Name, IpAddr)>),
    /// A namespace that has joined a port.
    Tenant { lan: Name, port: Name, tenant: String },
    /// A process of a guest has replaced another one. `pids` are the ids of the old and the new process. For `gap_us` microseconds, the
    /// guest's partners sent it nothing.
    Replaced { guest: Name, pids: [u32; 2], gap_us: u64 },
    /// The process of a guest was not replaced, and goes on.
    Kept {
        guest: Name,
        #[serde(deserialize_with = "siga_model::text::bounded")]
        why: String,
    },
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
    /// The owner of a network with a switch, and its state: `persistent`, `transient`, `orphaned` or `ended`.
    pub owner: Option<String>,
    /// The number of ring pairs on the network.
    pub pairs: u32,
    /// The switch of the network, if it has one.
    pub switch: Option<SwitchStatus>,
}

/// The status of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// The connectivity type of the network.
    pub kind: NetworkKind,
    /// The maximum number of ports, or `None` for any number.
    pub maxconn: Option<u32>,
    /// The maximum rate of broadcast, multicast and unknown unicast frames from one port.
    pub flood_per_second: u32,
    /// True if the control program keeps accounts.
    pub accounting: bool,
    /// The copying of frames to a port.
    pub mirror: Option<Mirror>,
    /// The uplink that has a carrier and the lowest rank.
    pub uplink: Option<Name>,
}

/// The status of a member of a network: of a guest's device, or of a port that leads to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// The device as `guest.device`, or the name of the port.
    pub label: String,
    /// The guest or port to which the network grants access.
    pub grantee: Name,
    /// True if the member has access to the network.
    pub granted: bool,
    /// The addresses of the member.
    pub addresses: Vec<IpNet>,
    /// The size of the largest IP packet, in bytes.
    pub mtu: u16,
    /// The settings of the switch's port, if the network has a switch.
    pub port: Option<PortSettings>,
    /// The properties of a port that leads to the kernel.
    pub kernel: Option<KernelStatus>,
    /// What the member has exchanged with the switch by the latest accounting record. `None` if the network keeps no accounts.
    pub account: Option<Traffic>,
    /// The settings of a guest's device. `None` for a port that leads to the kernel.
    pub device: Option<DeviceStatus>,
}

/// The settings of a guest's device that the port of the switch does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// The number of buffers of the device's inbound ring.
    pub buffer_count: u16,
    /// True if the guest forwards packets.
    pub is_router: bool,
    /// True if the guest leaves out checksums, so that a card has to fill them in.
    pub checksums_by_card: bool,
}

/// The status of a port that leads to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelStatus {
    /// The namespace, as text.
    pub place: String,
    /// The name of the interface.
    pub interface: String,
    /// The rank of an uplink.
    pub uplink: Option<usize>,
    /// True if the port has an interface now.
    pub is_there: bool,
    /// True if the interface of an uplink has a carrier.
    pub has_carrier: bool,
    /// True if the namespace's kernel may send large segments and leave out checksums.
    pub offload: bool,
    /// True if the namespace asks for its IPv4 address by DHCP.
    pub dhcp: bool,
    /// True if the namespace makes its IPv6 addresses from router advertisements.
    pub router_advertisements: bool,
    /// The namespace that has joined the port while the network runs.
    pub tenant: Option<String>,
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
    /// What others may open to the guest. `None`: everything.
    pub allow: Option<Allow>,
}

/// A process of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// The guest or switch. For an application, the guest whose stack it uses.
    pub guest: Name,
    /// What the process does.
    pub role: ProcessRole,
    /// The process id. `None` if there is no process, or if a restarted control program does not know the process.
    pub pid: Option<u32>,
    /// True if the guest runs. Applications run.
    pub is_running: bool,
    /// How often the control program restarted the guest after a failure.
    pub restarts: u32,
}

/// What a process of a network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessRole {
    /// A guest that forwards no packets.
    Guest,
    /// A guest that forwards packets.
    Router,
    /// The switch of a network.
    Switch,
    /// A process that uses the stack of a guest. The number is that of the control program's log.
    Application(u64),
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
