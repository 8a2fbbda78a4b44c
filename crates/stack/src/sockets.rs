//! The tables of TCP sockets. With them, the stack finds the connection or listener that a segment belongs to. They also say which
//! connection may send next, and when each connection's timers run.
//!
//! A segment's connection is found by one lookup. All further work changes only this connection and its entries: in the send queue
//! of its device, in the timing wheel and in the event queue. The protocol is in [`crate::tcp`]. The calls and the code for
//! segments that use these tables are in [`crate::stack`].

mod default_settings;
pub(crate) mod event;
pub(crate) mod fast_open;
pub(crate) mod flow;
pub(crate) mod flows;
pub(crate) mod listener;
pub(crate) mod ports;
mod recent;
mod route_settings;
pub(crate) mod settings;
mod shared_configs;
pub(crate) mod socket;
pub(crate) mod time_waits;
pub(crate) mod wheel;

use crate::limits::TCP_CONNECTIONS_MAX;
use crate::link::frame::DeviceId;
use crate::seed::{Keyed, Purpose, Secret, Seed};
use crate::slab::{self, Slab};
use crate::tcp::{Config, Keepalive, Storage};
use crate::time::Instant;
pub use default_settings::TcpDefaults;
pub(crate) use event::PackedEvent;
pub use fast_open::{FastOpenKeys, FastOpenSettings};
use fast_open::{FastOpenQueue, FastOpenState};
pub(crate) use flow::Flow;
use flows::Flows;
use listener::Listener;
use ports::LocalPorts;
use recent::RecentConnections;
pub(crate) use route_settings::PrefixSettings;
pub use route_settings::{RouteSettings, RouteSettingsError};
pub use settings::{TcpError, TcpOptions, TcpSetting};
use shared_configs::SharedConfigs;
use socket::{Egress, Owner, Socket};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use time_waits::TimeWaits;
use wheel::Wheel;

/// The id of a TCP connection. The id is unique within its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TcpId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// The id of a listening TCP socket. The id is unique within its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// What a flow belongs to: the index of a connection or of a TIME-WAIT entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlowTarget {
    Connection(u32),
    TimeWait(u32),
}

/// An event: a socket's application can do something with the socket that was not possible before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpEvent {
    /// The connection has become readable, writable or closed, or has new urgent data or an error to report.
    Connection(TcpId),
    /// The listener has a connection to accept.
    Listener(ListenerId),
}

pub(crate) const TIME_WAIT_BYTES: usize = slab::bytes_each::<time_waits::TimeWaitEntry>() + flows::BYTES_EACH;
/// Memory of a listener in bytes, without the connections that wait to be accepted. These are counted as connections.
pub(crate) const LISTENER_BYTES: usize = slab::bytes_each::<Listener>() + 2 * size_of::<(SocketAddr, u32)>();

/// Returns the memory of a connection without its buffers, in bytes.
pub(crate) const fn connection_bytes<S: Storage>() -> usize {
    // The last term is for the connection's entries in the queue of a device and in the queue of a listener.
    slab::bytes_each::<Socket<S>>() + flows::BYTES_EACH + size_of::<wheel::Node>() + 2 * size_of::<u32>()
}

/// What the caller has to do next with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Nothing: the connection waits for a segment, for a call, for its deadline, or in a send queue.
    Wait,
    Transmit,
    End,
}

#[derive(Debug)]
pub(crate) struct TcpSockets<S: Storage> {
    pub(crate) sockets: Slab<Socket<S>>,
    pub(crate) flows: Flows,
    pub(crate) listeners: Slab<Listener>,
    pub(crate) by_address: HashMap<SocketAddr, u32, Keyed>,
    pub(crate) waits: TimeWaits,
    pub(crate) ports: LocalPorts,
    pub(crate) wheel: Wheel,
    /// For each device, the queue of connections that have something to send over it.
    pub(crate) pending: Vec<VecDeque<u32>>,
    /// The queue of connections that have something to send and whose peer is this stack itself, or that have no route.
    pub(crate) own_pending: VecDeque<u32>,
    /// How many frames in succession the first connection of a send queue has sent. The limit is `TCP_BURST_FRAMES`.
    pub(crate) burst: u8,
    pub(crate) events: VecDeque<PackedEvent>,
    /// Secret from which initial sequence numbers are computed.
    pub(crate) numbers: Secret,
    /// Secret from which SYN cookies are computed.
    pub(crate) cookies: Secret,
    pub(crate) recent: RecentConnections,
    pub(crate) buffers: Buffers<S>,
    pub(crate) fast_open: FastOpenState,
    /// The defaults of this stack's connections and of keepalive probes, and the settings of the connections to single prefixes.
    pub(crate) defaults: Config,
    pub(crate) keepalive: Keepalive,
    pub(crate) configs: SharedConfigs,
    pub(crate) route_settings: PrefixSettings,
}

#[derive(Debug)]
pub(crate) struct Buffers<S> {
    /// `held`: bytes of buffer memory that all connections use now. `most`: the maximum for it.
    pub(crate) held: usize,
    pub(crate) most: usize,
    /// Empty buffers for the next connections that need one. They are reused because their memory is still in the CPU cache.
    pub(crate) spare: Vec<S>,
}

impl<S: Storage> Buffers<S> {
    pub(crate) fn are_scarce(&self) -> bool {
        self.held >= self.most
    }

    /// Moves a connection's empty buffers to the spare buffers, and updates the memory count of its other buffers.
    #[inline]
    pub(crate) fn count(&mut self, socket: &mut Socket<S>) {
        socket.connection.give_back_empty_buffers(&mut self.spare);
        self.recount(socket);
    }

    /// Updates the memory count of a connection's buffers.
    #[inline]
    pub(crate) fn recount(&mut self, socket: &mut Socket<S>) {
        let held = socket.connection.buffer_bytes();
        if held != socket.held {
            self.held = self.held - socket.held + held;
            socket.held = held;
        }
    }
}

impl<S: Storage> TcpSockets<S> {
    pub(crate) fn new(seed: &Seed, buffers_max: usize, fast_open: FastOpenSettings) -> Self {
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
            recent: RecentConnections::new(),
            buffers: Buffers { held: 0, most: buffers_max, spare: Vec::new() },
            fast_open: FastOpenState::new(fast_open, seed.random(Purpose::FastOpenKeys)),
            defaults: Config::LINUX,
            keepalive: Keepalive::default(),
            configs: SharedConfigs::default(),
            route_settings: PrefixSettings::default(),
        }
    }

    /// Returns true if a connection is queued to send over the device. The connection may turn out to have nothing to send.
    #[inline]
    pub(crate) fn is_pending(&self, device: DeviceId) -> bool {
        self.pending.get(usize::from(device.0)).is_some_and(|pending| !pending.is_empty())
    }

    /// Returns true if a connection to this stack itself, or a connection without a route, is queued to send. The connection may
    /// turn out to have nothing to send.
    #[inline]
    pub(crate) fn sends_to_itself(&self) -> bool {
        !self.own_pending.is_empty()
    }

    #[inline]
    pub(crate) fn timeout(&self) -> Option<Instant> {
        if !self.own_pending.is_empty() {
            return Some(Instant::default());
        }
        Instant::first(self.wheel.next(), self.waits.timeout())
    }

    #[inline]
    pub(crate) fn announce(&mut self, event: PackedEvent) {
        if self.events.len() > 2 * (self.sockets.len() + self.listeners.len()) {
            self.forget_stale_events();
        }
        self.events.push_back(event);
    }

    /// Removes events of sockets that no longer exist, so that the length of the event queue stays proportional to the number of
    /// sockets.
    #[cold]
    pub(crate) fn forget_stale_events(&mut self) {
        let Self { events, sockets, listeners, .. } = self;
        events.retain(|event| match event.ready() {
            TcpEvent::Connection(id) => sockets.named(id.slot, id.generation).is_some(),
            TcpEvent::Listener(id) => listeners.named(id.slot, id.generation).is_some(),
        });
    }

    /// Returns the next event. Skips events of sockets that were closed after the event.
    #[inline]
    pub(crate) fn poll_event(&mut self) -> Option<TcpEvent> {
        if self.events.is_empty() { None } else { self.next_event() }
    }

    #[inline(never)]
    fn next_event(&mut self) -> Option<TcpEvent> {
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

    /// Returns the connection or TIME-WAIT entry to which a flow belongs.
    #[inline]
    pub(crate) fn find(&mut self, flow: &Flow) -> Option<FlowTarget> {
        let has_flow = |slot| self.sockets.get(slot).is_some_and(|socket| socket.flow == *flow && !socket.detached);
        if has_flow(self.recent.latest) {
            return Some(FlowTarget::Connection(self.recent.latest));
        }
        if let Some(slot) = self.recent.guess(flow)
            && has_flow(slot)
        {
            self.prefetch(slot);
            self.recent.latest = slot;
            return Some(FlowTarget::Connection(slot));
        }
        let place = self.look_up(flow)?;
        if let FlowTarget::Connection(slot) = place {
            self.recent.note(flow, slot);
        }
        Some(place)
    }

    /// Like [`TcpSockets::find`], but always searches the table, without a look at the recent connections first.
    #[inline]
    pub(crate) fn look_up(&self, flow: &Flow) -> Option<FlowTarget> {
        self.flows.find(flow, |place| match place {
            FlowTarget::Connection(slot) => {
                self.prefetch(slot);
                self.sockets.get(slot).is_some_and(|socket| socket.flow == *flow)
            }
            FlowTarget::TimeWait(place) => self.waits.slab.get(place).is_some_and(|wait| wait.flow == *flow),
        })
    }

    /// Begins to load everything that belongs to a connection into the CPU cache. This function is not inlined, because an exchange over
    /// one connection does not call it.
    #[inline(never)]
    pub(crate) fn prefetch(&self, slot: u32) {
        self.sockets.prefetch(slot);
        self.wheel.prefetch(slot);
    }

    /// Like [`TcpSockets::prefetch`], unless this connection sent or received the latest segment, and is then in the cache.
    #[inline]
    pub(crate) fn prefetch_unless_latest(&self, slot: u32) {
        if self.recent.latest != slot {
            self.prefetch(slot);
        }
    }

    pub(crate) fn bind(&mut self, flow: &Flow, place: FlowTarget) {
        self.flows.insert(flow, place);
    }

    pub(crate) fn unbind(&mut self, flow: &Flow, place: FlowTarget) {
        self.flows.remove(flow, place);
    }

    /// Returns true if the table has no room for another connection.
    pub(crate) fn is_full(&self) -> bool {
        self.sockets.len() >= TCP_CONNECTIONS_MAX
    }

    pub(crate) fn insert(&mut self, socket: Socket<S>) -> u32 {
        let flow = socket.flow;
        let (slot, _) = self.sockets.insert(socket);
        self.bind(&flow, FlowTarget::Connection(slot));
        slot
    }

    /// Does what is necessary after a change of a connection: updates its memory count and its deadline, and adds an event for its
    /// application. Returns what the caller has to do next. One function does all this, so that the connection is looked up only
    /// once.
    #[inline]
    pub(crate) fn take_stock(&mut self, slot: u32) -> NextStep {
        let Some((socket, generation)) = self.sockets.get_with_generation(slot) else { return NextStep::Wait };
        self.buffers.count(socket);
        let now = socket.connection.readiness();
        let news = socket.connection.take_event();
        let next = if socket.queued {
            NextStep::Wait
        } else if socket.connection.wants_transmit() {
            NextStep::Transmit
        } else {
            self.wheel.rest(slot, socket)
        };
        if now != socket.announced_readiness || news {
            let before = std::mem::replace(&mut socket.announced_readiness, now);
            let more =
                now.readable && !before.readable || now.writable && !before.writable || now.closed && !before.closed;
            // RFC 9293 MUST-47, SHLD-20: an error causes an event only if the application chose `report_errors`.
            let error = now.error && !before.error && socket.report_errors;
            if (more || news || error) && socket.owner == Owner::Application && !socket.announced {
                socket.announced = true;
                self.announce(PackedEvent::connection(TcpId { slot, generation }));
            }
        }
        next
    }

    /// Sets the deadline of a connection that has nothing to send now. Also updates the memory count, because the connection's
    /// list of sent segments may have grown. Returns what the caller has to do next.
    #[inline]
    pub(crate) fn rest(&mut self, slot: u32) -> NextStep {
        let Some(socket) = self.sockets.get_mut(slot) else { return NextStep::Wait };
        let (next, announces) = Self::rest_of(&mut self.buffers, &mut self.wheel, slot, socket);
        if announces {
            self.announce_progress(slot);
        }
        next
    }

    /// Like [`TcpSockets::rest`], for a connection that the caller has looked up. Also returns whether the caller has to call
    /// [`TcpSockets::announce_progress`].
    #[inline]
    pub(crate) fn rest_of(
        buffers: &mut Buffers<S>,
        wheel: &mut Wheel,
        slot: u32,
        socket: &mut Socket<S>,
    ) -> (NextStep, bool) {
        if buffers.held > buffers.most / 4 * 3 {
            socket.connection.release_empty_buffers();
        }
        buffers.recount(socket);
        let next = wheel.rest(slot, socket);
        (next, !socket.announced_readiness.writable || socket.connection.has_event())
    }

    /// Adds an event if a connection has become writable because bytes were sent, which a limit of unsent bytes makes possible, or if
    /// the time is reported at which bytes were sent.
    #[cold]
    pub(crate) fn announce_progress(&mut self, slot: u32) {
        let Some((socket, generation)) = self.sockets.get_with_generation(slot) else { return };
        let writable = !socket.announced_readiness.writable && socket.connection.is_writable();
        if socket.connection.take_event() || writable {
            socket.announced_readiness.writable |= writable;
            if socket.owner == Owner::Application && !std::mem::replace(&mut socket.announced, true) {
                self.announce(PackedEvent::connection(TcpId { slot, generation }));
            }
        }
    }

    /// Updates a connection after its application has written or read. If the connection has something to send, adds it to the send
    /// queue of its device. Returns false if the caller has to look up the connection's egress and enqueue it.
    #[inline]
    pub(crate) fn settle(
        buffers: &mut Buffers<S>,
        pending: &mut [VecDeque<u32>],
        slot: u32,
        socket: &mut Socket<S>,
        routes_version: u32,
    ) -> bool {
        buffers.recount(socket);
        socket.queued || !socket.connection.wants_transmit() || Self::queue(pending, slot, socket, routes_version)
    }

    /// Adds a connection to the send queue of its device. Returns false if the caller has to look up the connection's egress
    /// first.
    #[inline]
    pub(crate) fn queue(pending: &mut [VecDeque<u32>], slot: u32, socket: &mut Socket<S>, routes_version: u32) -> bool {
        let Egress::Device { device, .. } = socket.egress else { return false };
        let known = socket.egress_version == routes_version;
        if known {
            socket.queued = true;
            pending[usize::from(device.0)].push_back(slot);
        }
        known
    }

    /// Processes the end of a connection. Removes the connection unless an application or a listener still refers to it by its
    /// index.
    pub(crate) fn end(&mut self, slot: u32) {
        match self.sockets.get(slot).map(|socket| socket.owner) {
            Some(Owner::Application | Owner::Waiting(_)) => {
                self.detach(slot);
                self.wheel.clear(slot);
            }
            Some(Owner::Opening(_) | Owner::Nobody) => self.remove(slot),
            None => {}
        }
    }

    /// Releases the flow of a connection that has ended. If the connection is in TIME-WAIT, the flow then belongs to a TIME-WAIT
    /// entry.
    pub(crate) fn detach(&mut self, slot: u32) {
        self.leave_pending(slot);
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

    /// Removes a connection from those that count against the Fast Open limit of a listener. Returns the listener's queue if the
    /// connection was one of them.
    pub(crate) fn leave_pending(&mut self, slot: u32) -> Option<&mut FastOpenQueue> {
        let id = self.fast_open.pending.remove(&slot)?;
        let queue = &mut self.listeners.named_mut(id.slot, id.generation)?.fast_open;
        queue.pending -= 1;
        Some(queue)
    }

    pub(crate) fn remove_wait(&mut self, place: u32) {
        if let Some(wait) = self.waits.remove(place) {
            self.unbind(&wait.flow, FlowTarget::TimeWait(place));
            if wait.holds_port {
                self.ports.release(wait.flow.of_any_port(), wait.flow.local_port);
            }
        }
    }

    pub(crate) fn remove(&mut self, slot: u32) {
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
    use crate::Stack;
    use crate::limits::{TCP_PORT_PAGES_MAX, TCP_TIME_WAITS_MAX};
    use crate::stack::StackConfig;
    use crate::tcp::Heap;

    #[test]
    fn the_memory_bound_covers_full_socket_tables() {
        let flows = TCP_CONNECTIONS_MAX + TCP_TIME_WAITS_MAX;
        // Eight bytes for each place of a table that is at most half full.
        let flow = (2 * flows).next_power_of_two() * 8 / flows;
        let wait = size_of::<time_waits::TimeWaitEntry>() + flow;
        assert!((wait..wait + wait / 2).contains(&TIME_WAIT_BYTES), "{wait} {TIME_WAIT_BYTES}");
        let connection = size_of::<Socket<Heap>>() + flow + size_of::<wheel::Node>();
        let counted = connection_bytes::<Heap>();
        assert!((connection..connection + 100).contains(&counted), "{connection} {counted}");
        assert!((16 * flows..17 * flows).contains(&TCP_PORT_PAGES_MAX), "eight pages for twice as many ends");
        let memory = Stack::new(StackConfig { tcp_buffers_bytes_max: 1 << 30, ..StackConfig::default() }).memory();
        let buffers = memory.0.iter().find(|part| part.name == "bytes in TCP buffers").unwrap();
        assert_eq!(buffers.most, 10 << 30);
    }
}
