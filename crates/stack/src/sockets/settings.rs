//! Options of TCP sockets, settings that can change later, and the errors of socket calls.

use crate::drops::DropReason;
use crate::tcp::{Config, ConfigError, CongestionControl, Failure, Keepalive};
use crate::time::Duration;

/// Why a socket call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpError {
    /// The stack has no socket with this id, or the socket was closed.
    Closed,
    /// The address and port are in use.
    InUse,
    /// The stack has no such address.
    NotOurs,
    /// The number of connections ([`crate::limits::TCP_CONNECTIONS_MAX`]) or of listeners ([`crate::limits::TCP_LISTENERS_MAX`])
    /// has reached its limit.
    Full,
    /// The remote address cannot belong to one host, has another IP version than the local address, or the remote port is 0.
    Address,
    /// The stack has no route to the remote address, or no own address to send from. Contains the drop reason that was counted.
    Dropped(DropReason),
    /// All local ports are in use for connections to this remote address and port.
    PortsExhausted,
    /// The application has shut down this direction.
    ShutDown,
    /// The connection is not established yet, or has ended.
    NotOpen,
    /// The connection has failed.
    Failed(Failure),
    /// The value of a setting is out of range.
    Setting(ConfigError),
    /// The backlog is 0 or above [`crate::limits::TCP_BACKLOG_MAX`], the hop limit is 0, or the service has ECN bits set.
    Range,
}

/// The options with which a socket starts.
#[derive(Debug, Clone, Copy)]
pub struct TcpOptions {
    /// Settings of the connection. The stack sets the segment sizes from the device's MTU.
    pub config: Config,
    /// TTL or hop limit of sent packets.
    pub hop_limit: u8,
    /// Differentiated services of sent packets: the upper six bits of the type-of-service or traffic-class octet.
    pub service: u8,
    /// How long a close may take to deliver the remaining bytes. After this time the connection is reset. With `None`, the
    /// remaining bytes are sent in the background, without this limit.
    pub linger: Option<Duration>,
    /// True if errors cause events from [`Stack::tcp_poll_event`](crate::Stack::tcp_poll_event), too:
    /// [`Readiness::error`](crate::tcp::Readiness::error).
    pub report_errors: bool,
}

impl Default for TcpOptions {
    fn default() -> Self {
        let PacketClass { hop_limit, service } = PacketClass::default();
        Self { config: Config::LINUX, hop_limit, service, linger: None, report_errors: true }
    }
}

impl TcpOptions {
    pub(crate) fn class(&self) -> PacketClass {
        PacketClass { hop_limit: self.hop_limit, service: self.service }
    }

    pub(crate) fn check(&self) -> Result<(), TcpError> {
        self.class().check()?;
        self.config.check().map_err(TcpError::Setting)
    }
}

/// The header fields that say how routers treat a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketClass {
    pub(crate) hop_limit: u8,
    pub(crate) service: u8,
}

impl PacketClass {
    pub(crate) fn check(self) -> Result<(), TcpError> {
        if self.hop_limit == 0 || self.service & 3 != 0 { Err(TcpError::Range) } else { Ok(()) }
    }
}

impl Default for PacketClass {
    fn default() -> Self {
        Self { hop_limit: 64, service: 0 }
    }
}

/// A setting that can change while a connection exists.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TcpSetting {
    /// True switches Nagle's algorithm off.
    NoDelay(bool),
    /// Keep-alive probes of an idle connection; `None` sends no probes.
    Keepalive(Option<Keepalive>),
    /// How long data may stay unacknowledged before the connection fails; `None` for no such limit.
    UserTimeout(Option<Duration>),
    /// Maximum size of the send buffer, in bytes.
    SendBuffer(usize),
    /// Size of the receive buffer, in bytes. The buffer no longer grows.
    ReceiveBuffer(usize),
    /// The congestion control algorithm.
    Congestion(CongestionControl),
    /// See [`TcpOptions::hop_limit`].
    HopLimit(u8),
    /// See [`TcpOptions::service`].
    Service(u8),
    /// See [`TcpOptions::linger`].
    Linger(Option<Duration>),
    /// See [`TcpOptions::report_errors`].
    ReportErrors(bool),
}
