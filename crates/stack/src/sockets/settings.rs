//! Options of TCP sockets, settings that may change later, and the errors of socket calls.

use crate::drops::DropReason;
use crate::tcp::{Config, ConfigError, CongestionControl, Failure, Keepalive};
use crate::time::Duration;

/// Why a socket call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpError {
    /// There is no such socket, or it was closed.
    Closed,
    /// The address and port are taken.
    InUse,
    /// The stack has no such address.
    NotOurs,
    /// There are [`crate::limits::TCP_CONNECTIONS_MAX`] connections or [`crate::limits::TCP_LISTENERS_MAX`] listeners.
    Full,
    /// The remote address cannot be a host's, or is of another IP version than the local one, or the port is 0.
    Address,
    /// There is no route, or no own address to send from. This is the reason that was counted.
    Dropped(DropReason),
    /// Every local port is in use towards that address and port.
    PortsExhausted,
    /// This direction was shut down.
    ShutDown,
    /// The connection is not open, or is over.
    NotOpen,
    /// The connection has failed.
    Failed(Failure),
    /// A setting is out of range.
    Setting(ConfigError),
    /// The backlog is 0 or above [`crate::limits::TCP_BACKLOG_MAX`], the hop limit is 0, or the service has ECN bits.
    Range,
}

/// The options that a socket starts with.
#[derive(Debug, Clone, Copy)]
pub struct TcpOptions {
    /// Settings of the connection. The stack fills in segment sizes from the device.
    pub config: Config,
    /// TTL or hop limit of packets.
    pub hop_limit: u8,
    /// Differentiated services of packets: the upper six bits of type of service or traffic class.
    pub service: u8,
    /// `None`: after closing, bytes that are not delivered yet are sent in the background. Else the connection is reset after
    /// this time.
    pub linger: Option<Duration>,
    /// [`Stack::tcp_poll_event`](crate::Stack::tcp_poll_event) reports errors too: [`Readiness::error`](crate::tcp::Readiness::error).
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

/// How routers are to treat packets.
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

/// A setting that may change while a connection exists.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TcpSetting {
    /// Switches Nagle's algorithm off.
    NoDelay(bool),
    /// Probes of an idle connection.
    Keepalive(Option<Keepalive>),
    /// How long data may stay unacknowledged.
    UserTimeout(Option<Duration>),
    /// Largest send buffer, in bytes.
    SendBuffer(usize),
    /// Receive buffer, in bytes; it no longer grows.
    ReceiveBuffer(usize),
    /// Congestion control.
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
