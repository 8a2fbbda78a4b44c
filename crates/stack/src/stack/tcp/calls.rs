//! The TCP calls of applications: first the calls for connections, then those for listeners.

use crate::drops::IpDrop;
use crate::limits::{TCP_BACKLOG_MAX, TCP_DEFERRED_RETRY_TIME, TCP_LISTENERS_MAX, TCP_SOCKET_BYTES_FREE};
use crate::link::frame::DeviceId;
use crate::link::neighbour::NeighbourKey;
use crate::slab::Slab;
use crate::sockets::listener::Listener;
use crate::sockets::settings::PacketClass;
use crate::sockets::socket::{Egress, Owner, Socket, header_bytes, is_over};
use crate::sockets::wheel::Reached;
use crate::sockets::{Flow, FlowTarget, ListenerId, TcpError, TcpEvent, TcpId, TcpOptions, TcpSetting, TcpSockets};
use crate::stack::Stack;
use crate::tcp::{
    Connection, ConnectionReadiness, Failure, Initial, Ports, SegmentError, SendError, StateName, Storage, WriteFlags,
};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;
use std::net::SocketAddr;

/// Returns the connection with this id, if it belongs to an application.
#[inline]
pub(super) fn application_socket<S: Storage>(
    sockets: &mut Slab<Socket<S>>,
    id: TcpId,
) -> Result<&mut Socket<S>, TcpError> {
    let socket = sockets.named_mut(id.slot, id.generation);
    socket.filter(|socket| socket.owner == Owner::Application).ok_or(TcpError::Closed)
}

pub(super) fn send_error(error: SendError, failure: Option<Failure>) -> TcpError {
    match (error, failure) {
        (_, Some(failure)) => TcpError::Failed(failure),
        (SendError::ShutDown, None) => TcpError::ShutDown,
        (SendError::Closed, None) => TcpError::NotOpen,
    }
}

/// TCP connections and listeners: the `tcp_*` methods.
///
/// 1. [`tcp_connect`](Self::tcp_connect) opens a connection. [`tcp_listen`](Self::tcp_listen) creates a listener, and
///    [`tcp_accept`](Self::tcp_accept) returns the connections that peers have opened to it.
/// 2. [`tcp_poll_event`](Self::tcp_poll_event) returns each socket with which the application can do more than before. What it can
///    do with a connection is in [`tcp_readiness`](Self::tcp_readiness).
/// 3. [`tcp_send`](Self::tcp_send) and [`tcp_receive`](Self::tcp_receive) exchange bytes. Afterwards the owner of the stack calls
///    `poll_transmit` for each device until the method returns no more frames. Only
///    [`tcp_send_zero_copy`](Self::tcp_send_zero_copy) builds a frame immediately.
/// 4. [`tcp_shutdown`](Self::tcp_shutdown) closes one direction. [`tcp_close`](Self::tcp_close) or [`tcp_abort`](Self::tcp_abort)
///    must be the last call, because it makes the id invalid.
///
/// If an application's buffers are in shared memory, step 3 is replaced by [`tcp_set_buffers`](Self::tcp_set_buffers),
/// [`tcp_send_with`](Self::tcp_send_with), [`tcp_take`](Self::tcp_take) and [`tcp_progress`](Self::tcp_progress).
///
/// ```
/// use siga_stack::Stack;
/// use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
/// use siga_stack::sockets::TcpOptions;
/// use siga_stack::stack::StackConfig;
/// use siga_stack::time::Instant;
/// use siga_stack::wire::address::Prefix;
///
/// # fn main() -> Result<(), siga_stack::sockets::TcpError> {
/// // One stack that talks to itself; frames to another host would go through its device.
/// let mut stack: Stack = Stack::new(StackConfig::default());
/// let addresses = vec![Prefix::new("10.0.0.1".parse().unwrap(), 24).unwrap()];
/// stack.add_device(DeviceConfig { medium: Medium::Ip, mtu: 1_500, addresses, agreed: Agreed::default() }).unwrap();
/// let (now, options) = (Instant::from_ns(1_000_000_000), TcpOptions::default());
/// let listener = stack.tcp_listen("10.0.0.1:80".parse().unwrap(), 16, &options)?;
/// let client = stack.tcp_connect(now, "10.0.0.1:0".parse().unwrap(), "10.0.0.1:80".parse().unwrap(), &options)?;
/// let (server, _peer) = stack.tcp_accept(listener)?.expect("a connection");
/// assert_eq!(stack.tcp_send(now, client, b"hello")?, 5);
/// let mut into = [0; 16];
/// assert_eq!(stack.tcp_receive(now, server, &mut into)?, Some(5));
/// stack.tcp_close(now, client)?;
/// # Ok(())
/// # }
/// ```
impl<S: Storage> Stack<S> {
    /// Opens a connection. `local` is one of this stack's addresses or the wildcard address. If its port is 0, the stack chooses
    /// the port. The connection is established when it becomes writable.
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        mut local: SocketAddr,
        remote: SocketAddr,
        options: &TcpOptions,
    ) -> Result<TcpId, TcpError> {
        options.check()?;
        if options.fast_open && !self.tcp.fast_open.settings.client {
            return Err(TcpError::FastOpenOff);
        }
        let (to, bound) = (remote.ip(), local.ip());
        let on = self.ip.link_for(bound, to);
        let egress = self.egress_to(to, on);
        // True if the route leads to one host, so that `to` is no broadcast address. A point-to-point link has only such routes.
        let to_one = on.is_none() && egress != Egress::Unreachable;
        // RFC 9293 MUST-46: a connection to a broadcast or multicast address is refused.
        if remote.port() == 0
            || remote.is_ipv4() != local.is_ipv4()
            || to.is_unspecified()
            || to.is_multicast()
            || (!to_one && self.ip.is_broadcast(to))
        {
            return Err(TcpError::Address);
        }
        if self.tcp.is_full() {
            return Err(TcpError::Full);
        }
        // RFC 9293 MUST-43, MUST-44: the application can choose the local address. If it does not, the route decides the address.
        if bound.is_unspecified() {
            let from = match egress {
                Egress::Device { device, next } => self.ip.devices[usize::from(device.0)].address_for(next),
                Egress::Local => Some(to),
                Egress::Unreachable => None,
            };
            local.set_ip(from.ok_or(TcpError::Dropped(IpDrop::NoRoute.into()))?);
        } else if !self.ip.is_own(bound) {
            return Err(TcpError::NotOurs);
        } else if !self.ip.may_send(bound, to) {
            return Err(TcpError::Address);
        }
        let (flow, after) = self.claim(now, local, remote)?;
        let mut initial = Initial::new(self.tcp.numbers, &flow.identity(), now);
        if let Some(after) = after
            && !initial.seq.after(after)
        {
            initial.seq = after + 1;
        }
        let config = self.config_towards(options.config, to, egress);
        let ports = Ports { local: flow.local_port, remote: flow.remote_port };
        let fast_open = if options.fast_open { self.fast_open_syn(now, &flow, &config) } else { None };
        let config = self.tcp.configs.share(&config);
        let connection = match fast_open {
            Some(syn) => Connection::connect_fast(now, config, ports, initial, syn),
            None => Connection::connect(now, config, ports, initial),
        };
        let connection = connection.map_err(TcpError::Setting)?;
        let mut socket = Socket::new(connection, flow, Owner::Application, options, on);
        socket.class = self.class_towards(socket.class, flow.remote_ip());
        (socket.egress, socket.egress_version, socket.holds_port) = (egress, self.ip.routes_version, true);
        self.learn_path(now, &mut socket);
        let slot = self.tcp.insert(socket);
        self.tcp.ports.take(flow.of_any_port(), flow.local_port);
        self.touched(slot);
        self.deliver_loopback(now);
        Ok(TcpId { slot, generation: self.tcp.sockets.generation(slot) })
    }

    /// Returns the flow of a new connection, with a free local port if the application chose none. If the flow was in TIME-WAIT,
    /// also returns the last sequence number of the old connection.
    fn claim(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(Flow, Option<SeqNumber>), TcpError> {
        let flow = |port| Flow::new(local.ip(), remote.ip(), port, remote.port());
        if local.port() != 0 {
            let flow = flow(local.port());
            let after = self.free(now, &flow).map_err(|()| TcpError::InUse)?;
            return Ok((flow, after));
        }
        let end = flow(0);
        self.tcp.ports.forget_unused();
        // A port that is free in the bitmaps can still be in use, but only by a listener or by a connection that a peer opened.
        for _ in 0..=self.tcp.listeners.len() + 1 {
            let port = self.tcp.ports.propose(end).ok_or(TcpError::PortsExhausted)?;
            let flow = flow(port);
            if self.listener_of(flow.local()).is_none()
                && let Ok(after) = self.free(now, &flow)
            {
                return Ok((flow, after));
            }
            self.tcp.ports.skip(end, port);
        }
        Err(TcpError::PortsExhausted)
    }

    /// Makes sure that no connection has this flow. Removes a TIME-WAIT entry of the flow, and returns the last sequence number of
    /// the old connection (RFC 6191). Returns an error if a connection has the flow, or if TIME-WAIT does not permit a new
    /// connection yet.
    fn free(&mut self, now: Instant, flow: &Flow) -> Result<Option<SeqNumber>, ()> {
        match self.tcp.look_up(flow) {
            None => Ok(None),
            Some(FlowTarget::Connection(_)) => Err(()),
            Some(FlowTarget::TimeWait(place)) => {
                let wait = self.tcp.waits.slab.get(place).filter(|wait| wait.state.is_followed_at(now)).ok_or(())?;
                let after = wait.state.snd_nxt;
                self.tcp.remove_wait(place);
                Ok(Some(after))
            }
        }
    }

    pub(super) fn socket(&self, id: TcpId) -> Result<&Socket<S>, TcpError> {
        let socket = self.tcp.sockets.named(id.slot, id.generation);
        socket.filter(|socket| socket.owner == Owner::Application).ok_or(TcpError::Closed)
    }

    #[inline]
    pub(super) fn socket_mut(&mut self, id: TcpId) -> Result<&mut Socket<S>, TcpError> {
        application_socket(&mut self.tcp.sockets, id)
    }

    /// Copies bytes to the send buffer and returns how many fitted. If the result is less than the length of `bytes`, or 0, the
    /// buffer is full. An event reports when the connection is writable again.
    pub fn tcp_send(&mut self, now: Instant, id: TcpId, bytes: &[u8]) -> Result<usize, TcpError> {
        self.write_tcp(now, id, bytes, |connection, bytes| connection.send(now, bytes))
    }

    /// Like [`Stack::tcp_send`], with flags. See [`Connection::send_flagged`].
    pub fn tcp_send_flagged(
        &mut self,
        now: Instant,
        id: TcpId,
        bytes: &[u8],
        flags: WriteFlags,
    ) -> Result<usize, TcpError> {
        self.write_tcp(now, id, bytes, |connection, fitting| {
            let ends_record = flags.ends_record && fitting.len() == bytes.len();
            connection.send_flagged(now, fitting, WriteFlags { ends_record, ..flags })
        })
    }

    /// Like [`Stack::tcp_send`], but all data up to and including these bytes is urgent. See [`Connection::send_urgent`].
    pub fn tcp_send_urgent(&mut self, now: Instant, id: TcpId, bytes: &[u8]) -> Result<usize, TcpError> {
        self.write_tcp(now, id, bytes, |connection, bytes| connection.send_urgent(now, bytes))
    }

    #[inline]
    fn write_tcp(
        &mut self,
        now: Instant,
        id: TcpId,
        bytes: &[u8],
        write: impl FnOnce(&mut Connection<S>, &[u8]) -> Result<usize, SendError>,
    ) -> Result<usize, TcpError> {
        let tcp = &mut self.tcp;
        tcp.prefetch_unless_latest(id.slot);
        let socket = application_socket(&mut tcp.sockets, id)?;
        let free = if tcp.buffers.are_scarce() {
            socket.connection.send_room_within(TCP_SOCKET_BYTES_FREE)
        } else {
            socket.connection.borrow_send_buffer(&mut tcp.buffers.spare);
            usize::MAX
        };
        let fitting = &bytes[..bytes.len().min(free)];
        let taken = match write(&mut socket.connection, fitting) {
            Ok(taken) => taken,
            Err(error) => {
                let error = send_error(error, socket.connection.failure());
                // Return the spare buffer that the connection got for this call.
                tcp.buffers.count(socket);
                return Err(error);
            }
        };
        // If not all bytes fit into the send buffer, if it is full now, or if too many bytes are unsent, an event must report when the
        // connection is writable again.
        let free = !socket.connection.may_be_full() || socket.connection.is_writable();
        socket.announced_readiness.writable &= taken == bytes.len() && free;
        if taken == 0 {
            tcp.buffers.count(socket);
        }
        if !TcpSockets::settle(&mut tcp.buffers, &mut tcp.pending, id.slot, socket, self.ip.routes_version) {
            self.enqueue_anywhere(now, id.slot);
        }
        Ok(taken)
    }

    /// Moves received bytes to `into` and returns their number. Returns `None` if no received bytes are available yet, and
    /// `Some(0)` if the peer has closed its direction.
    pub fn tcp_receive(&mut self, now: Instant, id: TcpId, into: &mut [u8]) -> Result<Option<usize>, TcpError> {
        let tcp = &mut self.tcp;
        let socket = application_socket(&mut tcp.sockets, id)?;
        if socket.connection.awaits_bytes() {
            socket.announced_readiness.readable = false;
            return Ok(None);
        }
        let count = socket.connection.receive(now, into);
        socket.announced_readiness.readable = socket.connection.is_readable();
        if count > 0 {
            socket.connection.give_back_receive_buffer(&mut tcp.buffers.spare);
            if !TcpSockets::settle(&mut tcp.buffers, &mut tcp.pending, id.slot, socket, self.ip.routes_version) {
                self.enqueue_anywhere(now, id.slot);
            }
            return Ok(Some(count));
        }
        if into.is_empty() && socket.connection.received() > 0 {
            return Ok(None);
        }
        match socket.connection.failure() {
            _ if socket.connection.finished() => Ok(Some(0)),
            Some(failure) => Err(TcpError::Failed(failure)),
            None if is_over(&socket.connection) => Ok(Some(0)),
            None => Ok(None),
        }
    }

    /// Returns the number of bytes from the next byte to read up to the end of urgent data. See [`Connection::urgent_ahead`]. If
    /// the end of urgent data moves, this causes an event.
    pub fn tcp_urgent_ahead(&self, id: TcpId) -> Result<u32, TcpError> {
        Ok(self.socket(id)?.connection.urgent_ahead())
    }

    /// Closes the direction to the peer, after all bytes in the send buffer are sent. The other direction stays open.
    pub fn tcp_shutdown(&mut self, now: Instant, id: TcpId) -> Result<(), TcpError> {
        self.socket_mut(id)?.connection.shutdown(now);
        self.touched(id.slot);
        self.deliver_loopback(now);
        Ok(())
    }

    /// Closes a connection and makes its id invalid. The stack still sends the bytes in the send buffer, for at most
    /// [`TcpOptions::linger`].
    pub fn tcp_close(&mut self, now: Instant, id: TcpId) -> Result<(), TcpError> {
        let socket = self.socket_mut(id)?;
        if socket.linger.as_ref().is_some_and(|linger| linger.is_zero()) {
            return self.tcp_abort(now, id);
        }
        socket.linger_until = socket.linger.as_ref().map_or(Instant::NEVER, |linger| now + **linger);
        socket.connection.close(now);
        self.forsake(now, id.slot);
        Ok(())
    }

    /// Resets a connection and makes its id invalid. Bytes in the send buffer are discarded.
    pub fn tcp_abort(&mut self, now: Instant, id: TcpId) -> Result<(), TcpError> {
        self.socket_mut(id)?.connection.abort();
        self.forsake(now, id.slot);
        Ok(())
    }

    /// Removes the owner of a connection. The connection completes its close and is then removed.
    pub(super) fn forsake(&mut self, now: Instant, slot: u32) {
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return };
        socket.owner = Owner::Nobody;
        self.settle_fast_open(now, slot);
        if self.tcp.sockets.get(slot).is_some_and(|socket| socket.detached) {
            self.tcp.remove(slot);
        } else {
            self.touched(slot);
            self.deliver_loopback(now);
        }
    }

    /// Returns whether the connection is readable, writable or closed, or has an error.
    pub fn tcp_readiness(&self, id: TcpId) -> Result<ConnectionReadiness, TcpError> {
        Ok(self.socket(id)?.connection.readiness())
    }

    /// Returns true if [`Stack::tcp_poll_event`] may return an event.
    #[inline]
    pub fn tcp_has_events(&self) -> bool {
        !self.tcp.events.is_empty()
    }

    /// Returns the next socket with which the application can do more than before. [`Stack::tcp_readiness`] returns what it can do
    /// with a connection.
    #[inline]
    pub fn tcp_poll_event(&mut self) -> Option<TcpEvent> {
        self.tcp.poll_event()
    }

    /// Returns the name of a connection's state, as in RFC 9293.
    pub fn tcp_state(&self, id: TcpId) -> Result<StateName, TcpError> {
        Ok(self.socket(id)?.connection.state_name())
    }

    /// Returns the latest ICMP error that did not end the connection (RFC 9293 MUST-47, SHLD-25). Returns each error only once.
    pub fn tcp_take_soft_error(&mut self, id: TcpId) -> Result<Option<SegmentError>, TcpError> {
        let socket = self.socket_mut(id)?;
        let error = socket.connection.take_soft_error();
        // Update the announced readiness, so that the next error causes an event again.
        socket.announced_readiness.error = socket.connection.readiness().error;
        Ok(error)
    }

    /// Returns true if enough retransmissions were not acknowledged to indicate a problem on the path (RFC 9293 SHLD-9).
    pub fn tcp_delivery_problem(&self, id: TcpId) -> Result<bool, TcpError> {
        Ok(self.socket(id)?.connection.delivery_problem())
    }

    /// Returns the local and the remote address and port of a connection.
    pub fn tcp_addresses(&self, id: TcpId) -> Result<(SocketAddr, SocketAddr), TcpError> {
        self.socket(id).map(|socket| (socket.flow.local(), socket.flow.remote()))
    }

    /// Changes a setting of a connection.
    pub fn tcp_set(&mut self, now: Instant, id: TcpId, setting: TcpSetting) -> Result<(), TcpError> {
        let socket = self.socket_mut(id)?;
        let connection = &mut socket.connection;
        match setting {
            TcpSetting::NoDelay(on) => connection.set_no_delay(now, on),
            TcpSetting::Cork(on) => connection.set_cork(now, on),
            TcpSetting::UnsentMax(bytes) => connection.set_unsent_max(bytes),
            TcpSetting::Timing(timing) => connection.set_timing(timing),
            TcpSetting::MtuDiscovery(discovery) => connection.set_mtu_discovery(discovery),
            TcpSetting::Keepalive(keepalive) => connection.set_keepalive(now, keepalive).map_err(TcpError::Setting)?,
            TcpSetting::UserTimeout(time) => connection.set_user_timeout(time).map_err(TcpError::Setting)?,
            TcpSetting::SendBuffer(bytes) => connection.set_send_buffer(bytes).map_err(TcpError::Setting)?,
            TcpSetting::ReceiveBuffer(bytes) => connection.set_receive_buffer(bytes).map_err(TcpError::Setting)?,
            TcpSetting::Congestion(congestion) => connection.set_congestion(congestion),
            // RFC 9293 MUST-49: the application can set the TTL.
            TcpSetting::HopLimit(hop_limit) => {
                let class = PacketClass { hop_limit, service: 0 };
                class.check()?;
                let remote = socket.flow.remote_ip();
                let PacketClass { hop_limit, .. } = self.class_towards(class, remote);
                self.socket_mut(id)?.class.hop_limit = hop_limit;
            }
            // RFC 9293 MUST-48, SHLD-21: the application can set the differentiated services, even if the connection is open.
            TcpSetting::Service(service) => {
                PacketClass { hop_limit: 64, service }.check()?;
                socket.class.service = service;
            }
            TcpSetting::Linger(time) => socket.linger = time.map(Box::new),
            TcpSetting::ReportErrors(on) => socket.report_errors = on,
        }
        if let Some(socket) = self.tcp.sockets.get_mut(id.slot) {
            self.tcp.configs.adopt(&mut socket.connection);
        }
        self.touched(id.slot);
        self.deliver_loopback(now);
        Ok(())
    }

    /// The owner of the stack calls this when a device has a carrier again. The device's connections then retransmit
    /// unacknowledged segments immediately.
    pub fn carrier_up(&mut self, now: Instant, device: DeviceId) {
        self.each_over(now, device, |socket, _| socket.connection.carrier_up(now));
    }

    /// Adapts the segment sizes of a device's connections to the new MTU of the device. A known path MTU of a connection still
    /// limits its segments.
    pub(crate) fn mtu_changed(&mut self, now: Instant, device: DeviceId) {
        let mtu = self.ip.devices[usize::from(device.0)].config.mtu;
        self.each_over(now, device, |socket, path| {
            let headers = header_bytes(socket.flow.remote_ip());
            socket.connection.set_device_mss(now, mtu - headers);
            if let Some(path) = path.filter(|path| *path < mtu && socket.follows_path_mtu()) {
                socket.connection.set_path_mss(now, path - headers);
            }
        });
    }

    /// Calls `act` for each connection whose egress is the device `over`, with the connection's path MTU if it is known.
    fn each_over(&mut self, now: Instant, over: DeviceId, mut act: impl FnMut(&mut Socket<S>, Option<u16>)) {
        let slots: Vec<u32> = self.tcp.sockets.indices().collect();
        for slot in slots {
            if let Some(socket) = self.tcp.sockets.get_mut(slot)
                && matches!(socket.egress, Egress::Device { device, .. } if device == over)
            {
                act(socket, self.ip.path_mtus.get(now, socket.flow.remote_ip()));
                self.tcp.configs.adopt(&mut socket.connection);
                self.touched(slot);
            }
        }
    }

    /// Runs the timers of all connections whose deadline has passed.
    pub(crate) fn handle_tcp_timeout(&mut self, now: Instant) {
        while let Some(Reached { who: slot, is_due }) = self.tcp.wheel.due(now) {
            let Some(socket) = self.tcp.sockets.get_mut(slot) else { continue };
            // The connection has sent nothing for the time of a timer, so it may stay idle for long.
            socket.connection.release_unused();
            self.tcp.buffers.recount(socket);
            if !is_due {
                continue;
            }
            if socket.linger_until <= now {
                if let Owner::Opening(listener) = socket.owner {
                    if self.tcp.listeners.get(listener).is_some_and(Listener::is_full) {
                        socket.linger_until = now + TCP_DEFERRED_RETRY_TIME;
                    }
                    self.opened(now, slot);
                } else {
                    socket.linger_until = Instant::NEVER;
                    socket.connection.abort();
                }
            } else {
                socket.connection.handle_timeout(now);
                if let Egress::Device { device, next } = socket.egress
                    && socket.connection.delivery_problem()
                {
                    self.ip.neighbours.doubt(NeighbourKey { device, address: next });
                }
            }
            self.settle_fast_open(now, slot);
            self.touched(slot);
        }
        while let Some(place) = self.tcp.waits.surplus(Some(now)) {
            self.tcp.remove_wait(place);
        }
    }
}

/// Methods for listeners.
impl<S: Storage> Stack<S> {
    /// Creates a listener at a port of one of this stack's addresses or of the wildcard address. `backlog` limits the number of
    /// opening connections, and separately the number of connections that wait to be accepted. Accepted connections have the
    /// options `options`.
    pub fn tcp_listen(
        &mut self,
        local: SocketAddr,
        backlog: usize,
        options: &TcpOptions,
    ) -> Result<ListenerId, TcpError> {
        options.check()?;
        if !(1..=TCP_BACKLOG_MAX).contains(&backlog) {
            return Err(TcpError::Range);
        }
        if local.port() == 0 {
            return Err(TcpError::Address);
        }
        if !local.ip().is_unspecified() && !self.ip.is_own(local.ip()) {
            return Err(TcpError::NotOurs);
        }
        let local = SocketAddr::new(local.ip(), local.port());
        // RFC 9293 MUST-41, MUST-42: connections with this local address and port do not prevent listening, only another listener
        // does.
        if self.tcp.by_address.contains_key(&local) {
            return Err(TcpError::InUse);
        }
        if self.tcp.listeners.len() >= TCP_LISTENERS_MAX {
            return Err(TcpError::Full);
        }
        let mut listener = Listener::new(local, *options, backlog);
        if self.tcp.fast_open.settings.all_listeners && options.fast_open_pending_max == 0 {
            listener.fast_open.most = backlog;
        }
        let (slot, generation) = self.tcp.listeners.insert(listener);
        self.tcp.by_address.insert(local, slot);
        Ok(ListenerId { slot, generation })
    }

    /// Changes the options of a listener. The connections that peers open from now on have these options.
    pub fn tcp_set_listener(&mut self, id: ListenerId, options: &TcpOptions) -> Result<(), TcpError> {
        options.check()?;
        let listener = self.tcp.listeners.named_mut(id.slot, id.generation).ok_or(TcpError::Closed)?;
        let all_listeners = self.tcp.fast_open.settings.all_listeners && options.fast_open_pending_max == 0;
        listener.fast_open.most = if all_listeners { listener.backlog } else { options.fast_open_pending_max };
        listener.options = *options;
        Ok(())
    }

    fn listener(&self, id: ListenerId) -> Result<&Listener, TcpError> {
        self.tcp.listeners.named(id.slot, id.generation).ok_or(TcpError::Closed)
    }

    /// Returns the next connection that a peer has opened, with the peer's address and port. Returns `None` if no connection waits
    /// to be accepted.
    pub fn tcp_accept(&mut self, id: ListenerId) -> Result<Option<(TcpId, SocketAddr)>, TcpError> {
        self.listener(id)?;
        let slot = self.tcp.listeners.get_mut(id.slot).and_then(|listener| listener.waiting.pop_front());
        let Some(slot) = slot else { return Ok(None) };
        let generation = self.tcp.sockets.generation(slot);
        let socket = self.tcp.sockets.get_mut(slot).ok_or(TcpError::Closed)?;
        socket.owner = Owner::Application;
        socket.announced_readiness = socket.connection.readiness();
        Ok(Some((TcpId { slot, generation }, socket.flow.remote())))
    }

    /// Returns the number of connections that wait to be accepted.
    pub fn tcp_acceptable(&self, id: ListenerId) -> Result<usize, TcpError> {
        self.listener(id).map(|listener| listener.waiting.len())
    }

    /// Returns the local address and port of a listener.
    pub fn tcp_listener_address(&self, id: ListenerId) -> Result<SocketAddr, TcpError> {
        self.listener(id).map(|listener| listener.local)
    }

    /// Closes a listener. The connections that wait to be accepted, and those that are opening, are reset.
    pub fn tcp_unlisten(&mut self, now: Instant, id: ListenerId) -> Result<(), TcpError> {
        let local = self.listener(id)?.local;
        self.tcp.by_address.remove(&local);
        let orphans: Vec<u32> = self.tcp.sockets.indices().collect();
        for slot in orphans {
            if let Some(socket) = self.tcp.sockets.get_mut(slot)
                && matches!(socket.owner, Owner::Opening(listener) | Owner::Waiting(listener) if listener == id.slot)
            {
                socket.owner = Owner::Nobody;
                socket.connection.abort();
                self.forsake(now, slot);
            }
        }
        self.tcp.listeners.remove(id.slot);
        Ok(())
    }
}
