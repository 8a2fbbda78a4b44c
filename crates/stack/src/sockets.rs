//! TCP sockets of a stack: connections and listeners by address and port, their deadlines, which of them have something to send
//! and which have something to tell.
//!
//! A segment finds its connection by one look into a table, and what follows from it touches that connection alone: its
//! place in the list of those with something to send, its deadline in the wheel, its place in the list of those with news. What a
//! connection does is in [`crate::tcp`]; this is who it is. `input.rs` takes segments in, after `fast_path.rs` has looked whether
//! they are as most are; `output.rs` builds them in the frame that the device hands out, `calls.rs` is what an application
//! may ask for.

mod application_buffers;
mod calls;
mod check;
mod event;
mod fast_path;
mod flows;
mod input;
mod listener;
mod output;
mod ports;
mod slab;
mod time_waits;
mod wheel;
mod zero_copy;

use crate::drops::DropReason;
use crate::limits::{TCP_BUFFER_BYTES_MAX, TCP_CONNECTIONS_MAX, TCP_SOCKET_BYTES_FREE};
use crate::link::frame::DeviceId;
use crate::seed::{Keyed, Purpose, Secret, Seed};
use crate::tcp::{Config, ConfigError, Connection, Failure, Keepalive, Readiness, Storage};
use crate::time::{Duration, Instant};
pub use application_buffers::Progress;
pub(crate) use event::PackedEvent;
use flows::Flows;
pub(crate) use input::SegmentPlace;
use listener::Listener;
use ports::LocalPorts;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use time_waits::TimeWaits;
use wheel::Wheel;
pub use zero_copy::ZeroCopySend;

/// A TCP connection of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TcpId {
    slot: u32,
    generation: u32,
}

/// A listening TCP socket of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId {
    slot: u32,
    generation: u32,
}

/// A wrong use of a TCP socket, or one that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpError {
    /// There is no such socket, or it was closed.
    Closed,
    /// The address and port are taken.
    InUse,
    /// The stack has no such address.
    NotOurs,
    /// There are [`TCP_CONNECTIONS_MAX`] connections or [`crate::limits::TCP_LISTENERS_MAX`] listeners.
    Full,
    /// A remote address that nobody can have, or of the other IP version than the local one, or port 0.
    Address,
    /// No way there, or no address of our own to go from: the reason that was counted.
    Dropped(DropReason),
    /// Every local port is in use towards that address and port.
    PortsExhausted,
    /// This direction was shut down.
    ShutDown,
    /// The connection is not open, or is over.
    NotOpen,
    /// The connection has failed.
    Failed(Failure),
    /// A setting that cannot be.
    Setting(ConfigError),
    /// A backlog of none or of more than [`crate::limits::TCP_BACKLOG_MAX`], a hop limit of 0, or ECN bits in a service.
    Range,
}

/// What a socket is set to.
#[derive(Debug, Clone, Copy)]
pub struct TcpOptions {
    /// The connection's settings. The segment sizes in it are the device's to say.
    pub config: Config,
    /// TTL or hop limit of packets.
    pub hop_limit: u8,
    /// Differentiated services of packets: the upper six bits of type of service or traffic class.
    pub service: u8,
    /// What closing does with bytes that are not delivered yet: nothing, so that they are sent in the background; or an end by a
    /// reset after this time.
    pub linger: Option<Duration>,
    /// [`Stack::poll_event`](crate::Stack::poll_event) tells of trouble; see [`Readiness::error`].
    pub report_errors: bool,
}

impl Default for TcpOptions {
    fn default() -> Self {
        let PacketClass { hop_limit, service } = PacketClass::default();
        Self { config: Config::LINUX, hop_limit, service, linger: None, report_errors: true }
    }
}

/// How the network is to treat packets.
#[derive(Debug, Clone, Copy)]
struct PacketClass {
    hop_limit: u8,
    service: u8,
}

impl Default for PacketClass {
    fn default() -> Self {
        Self { hop_limit: 64, service: 0 }
    }
}

/// One setting of a connection, to be changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TcpSetting {
    /// Nagle's algorithm off.
    NoDelay(bool),
    /// Probes of an idle connection.
    Keepalive(Option<Keepalive>),
    /// How long data may stay unacknowledged.
    UserTimeout(Option<Duration>),
    /// Largest send buffer, in bytes.
    SendBuffer(usize),
    /// Receive buffer, in bytes; it grows no more.
    ReceiveBuffer(usize),
    /// Congestion control, by name.
    Congestion(&'static str),
    /// See [`TcpOptions::hop_limit`].
    HopLimit(u8),
    /// See [`TcpOptions::service`].
    Service(u8),
    /// See [`TcpOptions::linger`].
    Linger(Option<Duration>),
    /// See [`TcpOptions::report_errors`].
    ReportErrors(bool),
}

/// Both ends of a connection. Addresses are in the form of IPv6, where those of IPv4 have a range of their own that is on no wire: as
/// plain numbers they are compared and moved without a look at what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    local: u128,
    remote: u128,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
}

/// In few words: every segment is looked up.
impl Hash for Flow {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0);
        let ports = u64::from(self.local_port) << 16 | u64::from(self.remote_port);
        if self.is_ipv4() {
            state.write_u64(half(self.local) << 32 | half(self.remote) & u64::from(u32::MAX));
        } else {
            for bits in [self.local >> 64, self.local, self.remote >> 64, self.remote] {
                state.write_u64(half(bits));
            }
        }
        state.write_u64(ports);
    }
}

impl Flow {
    #[inline]
    pub(crate) fn new(local: IpAddr, remote: IpAddr, local_port: u16, remote_port: u16) -> Self {
        Self { local: bits_of(local), remote: bits_of(remote), local_port, remote_port }
    }

    /// Both addresses, local and remote, if they are of IPv4.
    #[inline]
    fn ipv4(&self) -> Option<(u32, u32)> {
        let low = |bits: u128| u32::try_from(bits & u128::from(u32::MAX)).unwrap_or(0);
        self.is_ipv4().then(|| (low(self.local), low(self.remote)))
    }

    #[inline]
    fn is_ipv4(&self) -> bool {
        self.remote >> 32 == 0xffff
    }

    #[inline]
    pub(crate) fn local_ip(&self) -> IpAddr {
        address_of(self.local)
    }

    #[inline]
    pub(crate) fn remote_ip(&self) -> IpAddr {
        address_of(self.remote)
    }

    pub(crate) fn local(&self) -> SocketAddr {
        SocketAddr::new(self.local_ip(), self.local_port)
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.remote_ip(), self.remote_port)
    }

    /// The same between any local port and the other end.
    fn of_any_port(&self) -> Self {
        Self { local_port: 0, ..*self }
    }

    /// As bytes, to be hashed with a secret.
    fn identity(&self) -> [u8; 36] {
        let mut bytes = [0; 36];
        bytes[..16].copy_from_slice(&self.local.to_be_bytes());
        bytes[16..32].copy_from_slice(&self.remote.to_be_bytes());
        bytes[32..34].copy_from_slice(&self.local_port.to_be_bytes());
        bytes[34..].copy_from_slice(&self.remote_port.to_be_bytes());
        bytes
    }
}

#[inline]
fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => 0xffff_0000_0000 | u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[inline]
fn address_of(bits: u128) -> IpAddr {
    match u32::try_from(bits & u128::from(u32::MAX)) {
        Ok(low) if bits >> 32 == 0xffff => IpAddr::V4(Ipv4Addr::from_bits(low)),
        _ => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

/// Where a flow leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlowTarget {
    Connection(u32),
    TimeWait(u32),
}

/// Whose a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// An application has its name.
    Application,
    /// It opens for a listener.
    Opening(u32),
    /// It waits at a listener to be accepted.
    Waiting(u32),
    /// Nobody: it ends by itself.
    Nobody,
}

/// Where a connection's packets leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Egress {
    Device {
        device: DeviceId,
        next: IpAddr,
    },
    /// To ourselves.
    Local,
    /// Nowhere: they are dropped.
    Unreachable,
}

/// By which device, in which state of the routes, a frame took the long way. In one number, so that it is compared at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Provenance(u64);

impl Provenance {
    /// No frame has: the routes' states begin with 1.
    const NONE: Self = Self(0);

    #[inline]
    fn new(routes_version: u32, device: DeviceId) -> Self {
        Self(u64::from(routes_version) << 16 | u64::from(device.0))
    }
}

/// A connection and what the stack has with it. What every segment needs stands together in front, because of ten thousand
/// connections none is in the cache.
#[derive(Debug)]
#[repr(C)]
struct Socket<S: Storage> {
    flow: Flow,
    owner: Owner,
    /// The state of the routes that the way was found in, and whether it has changed since a segment last took it.
    egress_version: u32,
    /// The device by which a frame came that was found to be between addresses that may talk to one another, and the state of
    /// the routes then.
    provenance: Provenance,
    egress: Egress,
    egress_changed: bool,
    /// In a list of those with something to send.
    queued: bool,
    /// In the list of those with news.
    announced: bool,
    /// What the application knows.
    announced_readiness: Readiness,
    class: PacketClass,
    /// Its deadline, as of when it last came to rest, and when the wheel looks at it: not later.
    due: Instant,
    wakes: Instant,
    linger_until: Instant,
    /// Bytes of buffers that are counted for it.
    held: usize,
    connection: Connection<S>,
    linger: Option<Duration>,
    /// The device that a link-local address is on.
    on: Option<DeviceId>,
    /// The flow leads here no more: the connection is over.
    detached: bool,
    /// Its local port was chosen here.
    holds_port: bool,
    /// The application wants to hear of trouble.
    report_errors: bool,
}

/// What is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpEvent {
    /// A connection may be read, written or closed that could not before.
    Connection(TcpId),
    /// A connection may be accepted.
    Listener(ListenerId),
}

impl Wheel {
    /// Sets the deadline of a connection that has nothing to send, unless it is over. One that has moved back is left where it is:
    /// the connection is looked at too early once, and says then when it wants to be.
    #[inline]
    fn rest<S: Storage>(&mut self, slot: u32, socket: &mut Socket<S>) -> NextStep {
        if output::is_over(&socket.connection) {
            return NextStep::End;
        }
        let at = socket.linger_until.min(socket.connection.deadline());
        socket.due = at;
        if at < socket.wakes {
            socket.wakes = at;
            self.set(slot, at);
        }
        NextStep::Wait
    }
}

/// How much there is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SocketCounts {
    pub(crate) connections: usize,
    pub(crate) listeners: usize,
    pub(crate) waits: usize,
    pub(crate) port_pages: usize,
    pub(crate) events: usize,
    pub(crate) ports_taken: usize,
    pub(crate) spare_bytes: usize,
    pub(crate) buffer_bytes: usize,
    pub(crate) buffer_bytes_most: usize,
}

/// What a connection in TIME-WAIT takes.
pub(crate) const TIME_WAIT_BYTES: usize = slab::bytes_each::<time_waits::TimeWaitEntry>() + flows::BYTES_EACH;
/// What a listener takes beside what waits at it, which is counted with the connections.
pub(crate) const LISTENER_BYTES: usize = slab::bytes_each::<Listener>() + 2 * size_of::<(SocketAddr, u32)>();
/// What a page of ports takes.
pub(crate) const PORT_PAGE_BYTES: usize = ports::PAGE_BYTES;

/// What a connection takes beside its buffers.
pub(crate) const fn connection_bytes<S: Storage>() -> usize {
    // In a list of those with something to send, and in one of those that wait to be accepted.
    slab::bytes_each::<Socket<S>>() + flows::BYTES_EACH + size_of::<wheel::Node>() + 2 * size_of::<u32>()
}

/// What is to be done with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextStep {
    /// Nothing: it waits for a segment, its application, its deadline, or its turn to transmit.
    Wait,
    /// It has something to transmit.
    Transmit,
    /// It is over.
    End,
}

/// Sockets of a stack.
#[derive(Debug)]
pub(crate) struct TcpSockets<S: Storage> {
    sockets: Slab<Socket<S>>,
    flows: Flows,
    listeners: Slab<Listener>,
    by_address: HashMap<SocketAddr, u32, Keyed>,
    waits: TimeWaits,
    ports: LocalPorts,
    wheel: Wheel,
    /// Those with something to send, by device; behind them those that send to ourselves or nowhere.
    pending: Vec<VecDeque<u32>>,
    own_pending: VecDeque<u32>,
    /// Frames that the first of those pending was given in a row.
    burst: u8,
    events: VecDeque<PackedEvent>,
    /// The key of initial numbers.
    numbers: Secret,
    /// The key of SYN cookies.
    cookies: Secret,
    /// Where the latest segment led: the next one often follows.
    latest: Option<(Flow, FlowTarget)>,
    buffers: Buffers<S>,
}

/// The buffers of all connections.
#[derive(Debug)]
struct Buffers<S> {
    /// Bytes of them, and how many there may be.
    held: usize,
    most: usize,
    /// Some that wait to serve another connection.
    spare: Vec<S>,
}

impl<S: Storage> Buffers<S> {
    /// There are as many bytes as there may be.
    fn are_scarce(&self) -> bool {
        self.held >= self.most
    }

    /// Counts what a connection's buffers hold, less what it can do without.
    #[inline]
    fn count(&mut self, socket: &mut Socket<S>) {
        socket.connection.give_back_empty_buffers(&mut self.spare);
        self.recount(socket);
    }

    /// Counts what a connection's buffers hold.
    #[inline]
    fn recount(&mut self, socket: &mut Socket<S>) {
        let held = socket.connection.buffer_bytes();
        if held != socket.held {
            self.held = self.held - socket.held + held;
            socket.held = held;
        }
    }
}

impl<S: Storage> TcpSockets<S> {
    pub(crate) fn new(seed: &Seed, buffers_max: usize) -> Self {
        Self {
            sockets: Slab::default(),
            flows: Flows::new(seed.keyed(Purpose::FlowTable)),
            listeners: Slab::default(),
            by_address: HashMap::with_hasher(seed.keyed(Purpose::ListenerTable)),
            waits: TimeWaits::new(),
            ports: LocalPorts::new(seed.keyed(Purpose::PortTable), seed.secret(Purpose::TcpPorts)),
            wheel: Wheel::default(),
            pending: Vec::new(),
            own_pending: VecDeque::new(),
            burst: 0,
            events: VecDeque::new(),
            numbers: seed.secret(Purpose::InitialNumbers),
            cookies: seed.secret(Purpose::SynCookies),
            latest: None,
            buffers: Buffers { held: 0, most: buffers_max, spare: Vec::new() },
        }
    }

    pub(crate) fn add_device(&mut self) {
        self.pending.push(VecDeque::new());
    }

    #[inline]
    pub(crate) fn has_connections(&self) -> bool {
        self.sockets.len() > 0
    }

    /// True if a connection may have something to send over a device.
    #[inline]
    pub(crate) fn is_pending(&self, device: DeviceId) -> bool {
        self.pending.get(usize::from(device.0)).is_some_and(|pending| !pending.is_empty())
    }

    /// True if a connection may have something to send to this stack, or nowhere.
    #[inline]
    pub(crate) fn sends_to_itself(&self) -> bool {
        !self.own_pending.is_empty()
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        if !self.own_pending.is_empty() {
            return Some(Instant::default());
        }
        Instant::first(self.wheel.next(), self.waits.timeout())
    }

    /// Adds news.
    #[inline]
    fn announce(&mut self, event: PackedEvent) {
        if self.events.len() > 2 * (self.sockets.len() + self.listeners.len()) {
            self.forget_stale_events();
        }
        self.events.push_back(event);
    }

    /// Throws out what is about sockets that are gone, before it is more than all others could be.
    #[cold]
    fn forget_stale_events(&mut self) {
        let Self { events, sockets, listeners, .. } = self;
        events.retain(|event| match event.ready() {
            TcpEvent::Connection(id) => sockets.named(id.slot, id.generation).is_some(),
            TcpEvent::Listener(id) => listeners.named(id.slot, id.generation).is_some(),
        });
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next news. What was closed meanwhile is none.
    pub(crate) fn poll_event(&mut self) -> Option<TcpEvent> {
        loop {
            let ready = self.events.pop_front()?.ready();
            let announced = match ready {
                TcpEvent::Connection(id) => {
                    let socket = self.sockets.named_mut(id.slot, id.generation);
                    socket.filter(|socket| socket.owner == Owner::Application).map(|socket| &mut socket.announced)
                }
                TcpEvent::Listener(id) => {
                    self.listeners.named_mut(id.slot, id.generation).map(|listener| &mut listener.announced)
                }
            };
            if let Some(announced) = announced {
                *announced = false;
                return Some(ready);
            }
        }
    }

    /// Where a flow leads.
    #[inline]
    fn find(&mut self, flow: &Flow) -> Option<FlowTarget> {
        if let Some((latest, place)) = &self.latest
            && latest == flow
        {
            return Some(*place);
        }
        let place = self.look_up(flow)?;
        self.latest = Some((*flow, place));
        Some(place)
    }

    /// The same, without a guess.
    #[inline]
    fn look_up(&self, flow: &Flow) -> Option<FlowTarget> {
        self.flows.find(flow, |place| match place {
            FlowTarget::Connection(slot) => self.sockets.get(slot).is_some_and(|socket| socket.flow == *flow),
            FlowTarget::TimeWait(place) => self.waits.get(place).is_some_and(|wait| wait.flow == *flow),
        })
    }

    fn bind(&mut self, flow: &Flow, place: FlowTarget) {
        self.latest = None;
        self.flows.insert(flow, place);
    }

    fn unbind(&mut self, flow: &Flow, place: FlowTarget) {
        self.latest = None;
        self.flows.remove(flow, place);
    }

    /// True if there are as many connections as there may be.
    fn is_full(&self) -> bool {
        self.sockets.len() >= TCP_CONNECTIONS_MAX
    }

    fn insert(&mut self, socket: Socket<S>) -> u32 {
        let flow = socket.flow;
        let (slot, _) = self.sockets.insert(socket);
        self.bind(&flow, FlowTarget::Connection(slot));
        slot
    }

    pub(crate) fn held(&self) -> SocketCounts {
        // What goes on if all is used up; then the growth of one buffer, which doubles, found too late; and the
        // lists of segments sent and gaps, which are counted with the buffers.
        let spare = 2 * TCP_SOCKET_BYTES_FREE * TCP_CONNECTIONS_MAX;
        SocketCounts {
            connections: self.sockets.len(),
            listeners: self.listeners.len(),
            waits: self.waits.len(),
            port_pages: self.ports.pages(),
            events: self.events.len(),
            ports_taken: self.ports.taken(),
            spare_bytes: self.buffers.spare.iter().map(Storage::capacity).sum(),
            buffer_bytes: self.buffers.held,
            buffer_bytes_most: self.buffers.most + spare + 2 * TCP_BUFFER_BYTES_MAX,
        }
    }

    /// Takes stock of a connection after the network or time changed it, in one look: what its buffers hold, what its application
    /// may do now and could not before, and what is to be done with it, which is left to whoever calls.
    #[inline]
    fn take_stock(&mut self, slot: u32) -> NextStep {
        let Some((socket, generation)) = self.sockets.get_with_generation(slot) else { return NextStep::Wait };
        self.buffers.count(socket);
        let now = socket.connection.readiness();
        let urgent = socket.connection.take_urgent_event();
        let next = if socket.queued {
            NextStep::Wait
        } else if socket.connection.wants_transmit() {
            NextStep::Transmit
        } else {
            self.wheel.rest(slot, socket)
        };
        if now != socket.announced_readiness || urgent {
            let before = std::mem::replace(&mut socket.announced_readiness, now);
            let more =
                now.readable && !before.readable || now.writable && !before.writable || now.closed && !before.closed;
            // RFC 9293 MUST-47, SHLD-20.
            let error = now.error && !before.error && socket.report_errors;
            if (more || urgent || error) && socket.owner == Owner::Application && !socket.announced {
                socket.announced = true;
                self.announce(PackedEvent::connection(TcpId { slot, generation }));
            }
        }
        next
    }

    /// A connection has nothing more to send for now. What it sent has made a list longer.
    #[inline]
    fn rest(&mut self, slot: u32) -> NextStep {
        let Some(socket) = self.sockets.get_mut(slot) else { return NextStep::Wait };
        if self.buffers.held > self.buffers.most / 4 * 3 {
            socket.connection.release_empty_buffers();
        }
        self.buffers.recount(socket);
        self.wheel.rest(slot, socket)
    }

    /// Lets a connection that has something to send wait for its turn, if it is known to which device. False: that is to be found
    /// out.
    #[inline]
    fn queue(pending: &mut [VecDeque<u32>], slot: u32, socket: &mut Socket<S>, routes_version: u32) -> bool {
        let Egress::Device { device, .. } = socket.egress else { return false };
        let known = socket.egress_version == routes_version;
        if known {
            socket.queued = true;
            pending[usize::from(device.0)].push_back(slot);
        }
        known
    }

    /// A connection is over: it goes, unless somebody has its name.
    fn end(&mut self, slot: u32) {
        match self.sockets.get(slot).map(|socket| socket.owner) {
            Some(Owner::Application | Owner::Waiting(_)) => {
                self.detach(slot);
                self.wheel.clear(slot);
            }
            Some(Owner::Opening(_) | Owner::Nobody) => self.remove(slot),
            None => {}
        }
    }

    /// Lets go of the flow of a connection that is over.
    fn detach(&mut self, slot: u32) {
        let Some(socket) = self.sockets.get_mut(slot) else { return };
        if socket.detached {
            return;
        }
        socket.detached = true;
        let (flow, class) = (socket.flow, socket.class);
        let wait = socket.connection.time_wait();
        let holds_port = std::mem::take(&mut socket.holds_port);
        let keeps_port = match wait {
            Some(wait) => {
                if let Some(oldest) = self.waits.surplus(None) {
                    self.remove_wait(oldest);
                }
                let keeps_port = holds_port && !wait.lets_follow();
                let place = self.waits.insert(flow, wait, class, keeps_port);
                self.latest = None;
                self.flows.replace(&flow, FlowTarget::Connection(slot), FlowTarget::TimeWait(place));
                keeps_port
            }
            None => {
                self.unbind(&flow, FlowTarget::Connection(slot));
                false
            }
        };
        if holds_port && !keeps_port {
            self.ports.release(flow.of_any_port(), flow.local_port);
        }
    }

    fn remove_wait(&mut self, place: u32) {
        if let Some(wait) = self.waits.remove(place) {
            self.unbind(&wait.flow, FlowTarget::TimeWait(place));
            if wait.holds_port {
                self.ports.release(wait.flow.of_any_port(), wait.flow.local_port);
            }
        }
    }

    /// Forgets a connection.
    fn remove(&mut self, slot: u32) {
        self.detach(slot);
        self.wheel.clear(slot);
        if let Some(socket) = self.sockets.get(slot) {
            self.buffers.held -= socket.held;
            if let Owner::Opening(listener) = socket.owner
                && let Some(listener) = self.listeners.get_mut(listener)
            {
                listener.opening -= 1;
            }
        }
        self.sockets.discard(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{TCP_PORT_PAGES_MAX, TCP_TIME_WAITS_MAX};
    use crate::tcp::Heap;

    #[test]
    fn the_formula_of_memory_covers_tables_that_are_as_full_as_may_be() {
        let flows = TCP_CONNECTIONS_MAX + TCP_TIME_WAITS_MAX;
        // Eight bytes for each place of a table that is at most half full.
        let flow = (2 * flows).next_power_of_two() * 8 / flows;
        let wait = size_of::<time_waits::TimeWaitEntry>() + flow;
        assert!((wait..wait + wait / 2).contains(&TIME_WAIT_BYTES), "{wait} {TIME_WAIT_BYTES}");
        let connection = size_of::<Socket<Heap>>() + flow + size_of::<wheel::Node>();
        let counted = connection_bytes::<Heap>();
        assert!((connection..connection + 100).contains(&counted), "{connection} {counted}");
        assert!((16 * flows..17 * flows).contains(&TCP_PORT_PAGES_MAX), "eight pages for twice as many ends");
        let sockets = TcpSockets::<Heap>::new(&Seed::simulated(1), 1 << 30);
        assert_eq!(sockets.held().buffer_bytes_most, 4 << 30);
    }

    #[test]
    fn every_part_of_a_flow_changes_its_hash() {
        let hash = Seed::simulated(1).keyed(Purpose::FlowTable);
        for v6 in [false, true] {
            let flow = |local: u8, remote: u8, local_port, remote_port| {
                let address = |last: u8| -> IpAddr {
                    if v6 {
                        Ipv6Addr::from([0x20, 1, 0, 0, 0, 0, 0, last, 0, 0, 0, 0, 0, 0, 0, 1]).into()
                    } else {
                        [10, 0, 0, last].into()
                    }
                };
                Flow::new(address(local), address(remote), local_port, remote_port)
            };
            let flows = [
                flow(1, 2, 3, 4),
                flow(9, 2, 3, 4),
                flow(1, 9, 3, 4),
                flow(1, 2, 9, 4),
                flow(1, 2, 3, 9),
                flow(2, 1, 4, 3),
            ];
            let hashes: std::collections::BTreeSet<u64> =
                flows.iter().map(|flow| std::hash::BuildHasher::hash_one(&hash, flow)).collect();
            assert_eq!(hashes.len(), flows.len());
        }
    }
}
