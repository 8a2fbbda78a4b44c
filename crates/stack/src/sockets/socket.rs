//! A connection with what the stack knows of it: its owner, its egress, its place in queues and in the wheel.

use super::NextStep;
use super::flow::Flow;
use super::settings::PacketClass;
use super::wheel::Wheel;
use crate::link::frame::DeviceId;
use crate::tcp::{Connection, Readiness, StateName, Storage};
use crate::time::{Duration, Instant};
use std::net::IpAddr;

/// What a connection belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// An application, which has its [`TcpId`](super::TcpId).
    Application,
    /// A listener; the connection is being opened.
    Opening(u32),
    /// A listener; the connection is open and waits to be accepted.
    Waiting(u32),
    /// Nothing: the application has closed it, and it ends by itself.
    Nobody,
}

/// Where a connection's packets leave the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Egress {
    Device {
        device: DeviceId,
        next: IpAddr,
    },
    /// To this stack itself.
    Local,
    /// There is no route: packets are dropped.
    Unreachable,
}

/// Proof that a frame of this connection passed all checks of the slow path: by which device it came, and in which version of
/// the routes and source filters. The fast path skips those checks while the proof is current. One number, so that one
/// comparison checks both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Provenance(u64);

impl Provenance {
    /// No frame has passed: versions of the routes begin with 1.
    pub(crate) const NONE: Self = Self(0);

    #[inline]
    pub(crate) fn new(routes_version: u32, device: DeviceId) -> Self {
        Self(u64::from(routes_version) << 16 | u64::from(device.0))
    }
}

/// A connection and what the stack knows of it.
///
/// What every segment needs lies together in front: of ten thousand connections none is in the cache, so each further line of
/// 64 bytes costs (decision 011).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Socket<S: Storage> {
    pub(crate) flow: Flow,
    pub(crate) owner: Owner,
    /// The version of the routes in which `egress` was found.
    pub(crate) egress_version: u32,
    /// What lets frames of this connection take the fast path.
    pub(crate) provenance: Provenance,
    pub(crate) egress: Egress,
    /// The egress has changed since a segment was last sent.
    pub(crate) egress_changed: bool,
    /// It is in a queue of connections with something to send.
    pub(crate) queued: bool,
    /// It is in the queue of events.
    pub(crate) announced: bool,
    /// The readiness that the application knows.
    pub(crate) announced_readiness: Readiness,
    pub(crate) class: PacketClass,
    /// Its deadline when it last came to rest, and when the wheel looks at it: at `due` or earlier.
    pub(crate) due: Instant,
    pub(crate) wakes: Instant,
    pub(crate) linger_until: Instant,
    /// Bytes of buffers that are charged to it.
    pub(crate) held: usize,
    pub(crate) connection: Connection<S>,
    pub(crate) linger: Option<Duration>,
    /// The device of a link-local address.
    pub(crate) on: Option<DeviceId>,
    /// The connection is over, and its flow no longer leads here.
    pub(crate) detached: bool,
    /// The stack chose its local port, and has to free it.
    pub(crate) holds_port: bool,
    /// Errors are announced to the application: [`TcpOptions::report_errors`](super::TcpOptions::report_errors).
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
            linger: options.linger,
            linger_until: Instant::NEVER,
            queued: false,
            due: Instant::NEVER,
            wakes: Instant::NEVER,
            announced: false,
            detached: false,
            holds_port: false,
            report_errors: options.report_errors,
            announced_readiness: Readiness {
                readable: false,
                writable: false,
                closed: false,
                urgent: false,
                error: false,
            },
            held: 0,
        }
    }

    /// The egress was looked up again, and may be another device.
    #[cold]
    pub(crate) fn follow_egress(&mut self, now: Instant, mtu: u16) {
        self.egress_changed = false;
        self.connection.set_device_mss(now, mtu - header_bytes(self.flow.remote_ip()));
    }
}

impl Wheel {
    /// Sets the deadline of a connection that has nothing to send, unless it is over. A deadline that moved back stays where it
    /// is in the wheel: the connection is looked at once too early, and is then set again. Telling the wheel of each move
    /// was slower (decision 011).
    #[inline]
    pub(crate) fn rest<S: Storage>(&mut self, slot: u32, socket: &mut Socket<S>) -> NextStep {
        if is_over(&socket.connection) {
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

/// Bytes of the IP and TCP headers without options.
pub(crate) fn header_bytes(remote: IpAddr) -> u16 {
    if remote.is_ipv4() { 40 } else { 60 }
}

pub(crate) fn is_over<S: Storage>(connection: &Connection<S>) -> bool {
    matches!(connection.state_name(), StateName::Closed | StateName::TimeWait)
}
