//! The options with which a TCP socket is created, the settings that can change later, and the errors of socket calls.

use crate::drops::DropReason;
use crate::limits::TCP_BACKLOG_MAX;
use crate::tcp::{Config, ConfigError, CongestionControl, Failure, Keepalive, MtuDiscovery, Timing};
use crate::time::Duration;

/// Why a call on a TCP socket failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpError {
    /// The stack has no socket with this id, or the socket was closed.
    Closed,
    /// The address and port are in use, by another socket or by a connection in TIME-WAIT.
    InUse,
    /// The local address is not an address of this stack.
    NotOurs,
    /// The number of connections ([`crate::limits::TCP_CONNECTIONS_MAX`]) or of listeners ([`crate::limits::TCP_LISTENERS_MAX`])
    /// has reached its limit.
    Full,
    /// The remote address cannot belong to a single host, or its IP version differs from the local address's, or the remote port
    /// is 0.
    Address,
    /// The stack has no route to the remote address, or no address of its own to send from. Contains the drop reason that was
    /// counted.
    Dropped(DropReason),
    /// All local ports are in use for connections to this remote address and port.
    PortsExhausted,
    /// The application has already shut down the direction from this stack to the peer.
    ShutDown,
    /// The connection is not established yet, or has ended.
    NotOpen,
    /// The connection has failed. Contains the reason.
    Failed(Failure),
    /// The value of a setting is out of range.
    Setting(ConfigError),
    /// The active open wants Fast Open, which is off ([`FastOpenSettings::client`](super::FastOpenSettings::client)).
    FastOpenOff,
    /// The backlog is 0 or above [`crate::limits::TCP_BACKLOG_MAX`], or the limit of pending connections is
    /// above it, the hop limit is 0, or the `service` has bits set that belong to ECN.
    Range,
}

/// The options with which a socket is created.
#[derive(Debug, Clone, Copy)]
pub struct TcpOptions {
    /// Settings of the connection. The stack computes the segment sizes in them from the device's MTU.
    pub config: Config,
    /// TTL (IPv4) or hop limit (IPv6) of sent packets. The default, 64, means the hop limit of the prefix of the peer, if it has one
    /// ([`RouteSettings::hop_limit`](super::RouteSettings::hop_limit)).
    pub hop_limit: u8,
    /// Differentiated services of sent packets. Only the upper six bits of this type-of-service or traffic-class octet may be set.
    pub service: u8,
    /// How long the stack tries to deliver the remaining bytes after the application has closed the connection. After this time
    /// the connection is reset. With `None` the time is not limited.
    pub linger: Option<Duration>,
    /// Whether an error of a connection causes an event of [`Stack::tcp_poll_event`](crate::Stack::tcp_poll_event). See
    /// [`ConnectionReadiness::error`](crate::tcp::ConnectionReadiness::error).
    pub report_errors: bool,
    /// Whether an active open uses Fast Open (`TCP_FASTOPEN_CONNECT` of Linux). If the stack has a cookie of the server, the
    /// connection is writable at once, and the SYN waits for the first write and carries its data. Otherwise the SYN is sent at
    /// once and requests a cookie.
    pub fast_open: bool,
    /// How many connections of a listener may be open although their handshake is not complete (`TCP_FASTOPEN` of Linux). With 0,
    /// the default, the listener uses no Fast Open. The requests of such a connection may arrive twice, so the application must be
    /// able to carry them out twice (RFC 7413 section 6.1).
    pub fast_open_pending_max: usize,
    /// For how long a listener defers a connection on which no bytes have arrived (`TCP_DEFER_ACCEPT` of Linux). `None`: a
    /// connection can be accepted as soon as it is open.
    pub defer_accept: Option<Duration>,
}

impl Default for TcpOptions {
    fn default() -> Self {
        let PacketClass { hop_limit, service } = PacketClass::default();
        Self {
            config: Config::LINUX,
            hop_limit,
            service,
            linger: None,
            report_errors: true,
            fast_open: false,
            fast_open_pending_max: 0,
            defer_accept: None,
        }
    }
}

impl TcpOptions {
    pub(crate) fn class(&self) -> PacketClass {
        PacketClass { hop_limit: self.hop_limit, service: self.service }
    }

    pub(crate) fn check(&self) -> Result<(), TcpError> {
        self.class().check()?;
        if self.fast_open_pending_max > TCP_BACKLOG_MAX {
            return Err(TcpError::Range);
        }
        self.config.check().map_err(TcpError::Setting)
    }
}

/// The IP header fields from which routers decide how to treat a packet.
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

/// A setting that an application can change while a connection exists.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TcpSetting {
    /// `true` switches Nagle's algorithm off.
    NoDelay(bool),
    /// `true` holds back a last segment that is not full (`TCP_CORK` in Linux).
    Cork(bool),
    /// See [`Config::unsent_bytes_max`].
    UnsentMax(u32),
    /// See [`Config::timing`].
    Timing(Timing),
    /// See [`Config::mtu_discovery`].
    MtuDiscovery(MtuDiscovery),
    /// Keep-alive probes of an idle connection. With `None`, no probes are sent.
    Keepalive(Option<Keepalive>),
    /// How long data may stay unacknowledged before the connection fails. With `None`, this time is not limited.
    UserTimeout(Option<Duration>),
    /// Maximum size of the send buffer, in bytes.
    SendBuffer(usize),
    /// Size of the receive buffer, in bytes. After this call the stack no longer enlarges the buffer automatically.
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
