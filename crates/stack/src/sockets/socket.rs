//! A TCP connection, together with the data that the stack stores about it: its owner, the device over which it sends, and the
//! state of its entries in queues and in the timing wheel.

use super::NextStep;
use super::flow::Flow;
use super::settings::PacketClass;
use super::wheel::Wheel;
use crate::link::frame::DeviceId;
use crate::tcp::{Connection, ConnectionReadiness, Storage};
use crate::time::{Duration, Instant};
use std::net::IpAddr;

/// The owner of a connection. The connection belongs to an application or to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// An application, which refers to the connection by its [`TcpId`](super::TcpId).
    Application,
    /// The listener with this index. The connection is not established yet.
    Opening(u32),
    /// The listener with this index. The connection is established and waits to be accepted.
    Waiting(u32),
    /// No owner: the application has closed the connection, and the protocol still has to complete the close.
    Nobody,
}

/// Where a connection's packets leave the stack. The result of a route lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Egress {
    Device {
        device: DeviceId,
        next: IpAddr,
    },
    /// The packets go to this stack itself.
    Local,
    /// No route exists, so the packets are dropped.
    Unreachable,
}

/// Proof that a frame of this connection has passed all checks of the slow path. The proof consists of the arrival device, and of
/// the version number of the routes and source filters at that time. While both are still the same, the fast path skips these
/// checks. Both values are in one number, so that the fast path needs only one comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Provenance(u64);

impl Provenance {
    /// The value before any frame has passed the checks. It never equals a current value, because version numbers begin with 1.
    pub(crate) const NONE: Self = Self(0);

    #[inline]
    pub(crate) fn new(routes_version: u32, device: DeviceId) -> Self {
        Self(u64::from(routes_version) << 16 | u64::from(device.0))
    }
}

/// A connection and the data that the stack stores about it.
///
/// The fields that every segment needs come first and are adjacent. With ten thousand connections, no connection stays in the CPU
/// cache, so each further cache line of 64 bytes takes time (decision 011).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Socket<S: Storage> {
    pub(crate) flow: Flow,
    pub(crate) owner: Owner,
    /// The version number of the routes with which `egress` was looked up.
    pub(crate) egress_version: u32,
    /// The proof with which frames of this connection may take the fast path. It may be outdated.
    pub(crate) provenance: Provenance,
    pub(crate) egress: Egress,
    /// True if the egress has changed since the connection last sent a segment.
    pub(crate) egress_changed: bool,
    /// True if the connection is in a send queue.
    pub(crate) queued: bool,
    /// True if the connection has ended and no longer owns its flow.
    pub(crate) detached: bool,
    /// True if the connection is in the event queue.
    pub(crate) announced: bool,
    /// The readiness that the application last learnt, from an event or from the result of a call.
    pub(crate) announced_readiness: ConnectionReadiness,
    pub(crate) class: PacketClass,
    /// When the connection is reset although bytes are undelivered, because its application has closed it; or when it can be
    /// accepted although nothing has arrived, because its listener defers it.
    pub(crate) linger_until: Instant,
    /// Bytes of buffer memory that are charged to the connection.
    pub(crate) held: usize,
    pub(crate) connection: Connection<S>,
    pub(crate) linger: Option<Box<Duration>>,
    /// The device to send over if the remote address is link-local.
    pub(crate) on: Option<DeviceId>,
    /// True if the stack chose the connection's local port, so that the stack has to release the port.
    pub(crate) holds_port: bool,
    /// Whether errors cause events for the application: [`TcpOptions::report_errors`](super::TcpOptions::report_errors).
    pub(crate) report_errors: bool,
}

impl<S: Storage> Socket<S> {
    pub(crate) fn new(
        connection: Connection<S>,
        flow: Flow,
        owner: Owner,
        options: &super::TcpOptions,
        on: Option<DeviceId>,
    ) -> Self {
        Self {
            connection,
            flow,
            owner,
            egress: Egress::Unreachable,
            egress_version: 0,
            egress_changed: false,
            provenance: Provenance::NONE,
            on,
            class: options.class(),
            linger: options.linger.map(Box::new),
            linger_until: Instant::NEVER,
            queued: false,
            announced: false,
            detached: false,
            holds_port: false,
            report_errors: options.report_errors,
            announced_readiness: ConnectionReadiness::default(),
            held: 0,
        }
    }

    /// Returns whether the MTU that routers reported limits the connection's segments.
    pub(crate) fn follows_path_mtu(&self) -> bool {
        self.connection.config().mtu_discovery.limits_segments(self.flow.is_ipv4())
    }

    /// Adapts the segment size to the MTU of the egress after a route lookup, because the egress may now be another device.
    #[cold]
    pub(crate) fn follow_egress(&mut self, now: Instant, mtu: u16) {
        self.egress_changed = false;
        self.connection.set_device_mss(now, mtu - header_bytes(self.flow.remote_ip()));
    }
}

impl Wheel {
    /// Sets the deadline of a connection that has nothing to send. Returns [`NextStep::End`] if the connection has ended.
    #[inline]
    pub(crate) fn rest<S: Storage>(&mut self, slot: u32, socket: &mut Socket<S>) -> NextStep {
        let deadline = match socket.connection.fast_deadline() {
            Some(deadline) => deadline,
            None if is_over(&socket.connection) => return NextStep::End,
            None => socket.connection.deadline(),
        };
        self.set(slot, socket.linger_until.min(deadline));
        NextStep::Wait
    }
}

/// Returns the total length of the IP and TCP headers without options, in bytes.
pub(crate) fn header_bytes(remote: IpAddr) -> u16 {
    if remote.is_ipv4() { 40 } else { 60 }
}

#[inline]
pub(crate) fn is_over<S: Storage>(connection: &Connection<S>) -> bool {
    connection.is_over()
}
