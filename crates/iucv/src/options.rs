//! Options and readiness of sockets. These types are used both if the stack is in the application's process and if the stack is
//! used over `iucv`.

use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU8;
use std::time::{Duration, SystemTime};

/// The operations that a socket can perform without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// True if bytes can be received or a connection can be accepted. Also true if the next receive reports the end of the stream
    /// or a failure.
    pub readable: bool,
    /// True if bytes can be sent, or if the next send reports a failure.
    pub writable: bool,
    /// True if the connection has failed or is closed in both directions.
    pub closed: bool,
}

/// The directions of a connection that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Endings {
    /// True if no bytes follow those that were received.
    pub received: bool,
    /// True if the application can send no more bytes.
    pub sent: bool,
    /// The error with which the connection failed, if it failed.
    pub failure: Option<ErrorKind>,
}

/// The congestion control algorithms of a guest's stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CongestionControl {
    /// CUBIC (RFC 9438).
    Cubic,
    /// NewReno (RFC 5681, RFC 6582).
    Reno,
    /// BBR, version 3 (draft-ietf-ccwg-bbr).
    Bbr,
}

impl CongestionControl {
    /// All algorithms. A record of a socket's options contains an index into this array.
    pub const ALL: [Self; 3] = [Self::Cubic, Self::Reno, Self::Bbr];

    /// Returns the name of the algorithm, as Linux spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Reno => "reno",
            Self::Bbr => "bbr",
        }
    }

    /// Returns the algorithm with this name, if there is one.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|control| control.name() == name)
    }
}

/// What a socket does to find the MTU of its paths (`IP_MTU_DISCOVER` and `IPV6_MTU_DISCOVER` of Linux). A segment of TCP is never
/// fragmented by the stack, so for a connection [`Want`](Self::Want) and [`Do`](Self::Do) are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MtuDiscovery {
    /// Packets may be fragmented everywhere (`IP_PMTUDISC_DONT`). This is the default of UDP.
    Dont,
    /// The stack fragments datagrams for the known MTU of the path, and routers must not fragment (`IP_PMTUDISC_WANT`). This is the
    /// default of TCP.
    Want,
    /// Nothing is fragmented. The known MTU of the path limits the length (`IP_PMTUDISC_DO`).
    Do,
    /// Nothing is fragmented. Only the MTU of the device limits the length (`IP_PMTUDISC_PROBE`).
    Probe,
    /// Routers may fragment. Only the MTU of the device limits the length (`IP_PMTUDISC_INTERFACE`).
    Interface,
}

impl MtuDiscovery {
    /// All values. A record contains an index into this array.
    pub const ALL: [Self; 5] = [Self::Dont, Self::Want, Self::Do, Self::Probe, Self::Interface];
}

/// The times that a socket reports (`SO_TIMESTAMPING` of Linux, by software). By default, it reports none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timing {
    /// Whether the times are known at which received bytes or datagrams arrived (`SOF_TIMESTAMPING_RX_SOFTWARE`).
    pub received: bool,
    /// Whether it is reported when the last byte of each write, or each datagram, was first sent (`SOF_TIMESTAMPING_TX_SOFTWARE`).
    pub sent: bool,
    /// Whether it is reported when the peer had acknowledged all bytes of a write (`SOF_TIMESTAMPING_TX_ACK`). UDP has no
    /// acknowledgements.
    pub acknowledged: bool,
}

/// What has happened to a write or a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendStage {
    /// It was handed to the device for the first time; of a write, the last byte.
    Sent,
    /// The peer has acknowledged all bytes of the write.
    Acknowledged,
}

/// When something happened to a write or a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendTime {
    /// Of a connection, the number of the write's last byte; of UDP, the number of the datagram. Numbers begin with 0 when the
    /// application asks for these times (`SOF_TIMESTAMPING_OPT_ID` of Linux), and wrap.
    pub id: u32,
    /// What happened.
    pub stage: SendStage,
    /// When it happened.
    pub at: SystemTime,
}

/// Keys from which a listener computes and checks its Fast Open cookies. A client with a cookie of the backup key gets a new one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FastOpenKeys {
    /// The key of new cookies.
    pub primary: [u8; 16],
    /// A key whose cookies are still valid.
    pub backup: Option<[u8; 16]>,
}

impl fmt::Debug for FastOpenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FastOpenKeys(..)")
    }
}

/// Options of a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SocketOptions {
    /// True if Nagle's algorithm is off.
    pub no_delay: bool,
    /// Maximum size of the send buffer, in bytes. `None`: the buffer grows as needed. As in Linux, a size below the minimum is raised
    /// to it, and twice the size is reported ([`ConnectionInfo`]).
    pub send_buffer: Option<usize>,
    /// Size of the receive buffer, in bytes. `None`: the buffer grows as needed. As in Linux, a size below the minimum is raised to it,
    /// and twice the size is reported ([`ConnectionInfo`]).
    pub receive_buffer: Option<usize>,
    /// Whether a last segment that is not full is held back, until it is full or this option is switched off (`TCP_CORK` of
    /// Linux).
    pub cork: bool,
    /// While this number of written bytes is unsent, the connection accepts no more bytes (`TCP_NOTSENT_LOWAT` of Linux). `None`: the
    /// guest's setting `tcp_notsent_lowat`.
    pub unsent_max: Option<u32>,
    /// Largest payload of a segment, in bytes, that the connection offers and uses (`TCP_MAXSEG` of Linux). `None`: as large as the
    /// path allows. This option has an effect only if it is set before the connection opens.
    pub segment_bytes_max: Option<u16>,
    /// The congestion control algorithm. `None`: the guest's setting `tcp_congestion_control`.
    pub congestion: Option<CongestionControl>,
    /// Maximum time for which the stack still delivers sent bytes after a close. If bytes are then still undelivered, the
    /// connection ends with a reset. `None`: the bytes are sent in the background.
    pub linger: Option<Duration>,
    /// Idle time after which keepalive probes are sent. `None`: no probes are sent.
    pub keepalive: Option<Duration>,
    /// Time between two keepalive probes (`TCP_KEEPINTVL` of Linux). `None`: the guest's setting `tcp_keepalive_intvl`.
    pub probe_interval: Option<Duration>,
    /// Number of unanswered keepalive probes that ends the connection (`TCP_KEEPCNT` of Linux). `None`: the guest's setting
    /// `tcp_keepalive_probes`.
    pub probes_max: Option<u8>,
    /// How long sent bytes may stay unacknowledged before the connection fails (`TCP_USER_TIMEOUT` of Linux). `None`: as long as the
    /// guest's settings allow.
    pub user_timeout: Option<Duration>,
    /// Type of service (IPv4) or traffic class (IPv6) of sent packets (`IP_TOS`, `IPV6_TCLASS` of Linux).
    pub service: u8,
    /// TTL (IPv4) or hop limit (IPv6) of sent packets.
    pub hop_limit: u8,
    /// Whether a new connection uses TCP Fast Open (`TCP_FASTOPEN_CONNECT` of Linux). If the guest has a cookie of the server, the
    /// connection counts as open at once. It then begins with the first write, and its first packet carries data.
    pub fast_open: bool,
    /// How many connections of a listener may be open although their handshake is not complete (`TCP_FASTOPEN` of Linux). With 0,
    /// the listener uses no Fast Open. Data of such a connection may arrive twice, in two connections.
    pub fast_open_pending_max: usize,
    /// The listener's own keys (`TCP_FASTOPEN_KEY` of Linux). `None`: the guest's keys, which it replaces every day.
    pub fast_open_keys: Option<FastOpenKeys>,
    /// For how long a listener defers a connection on which no bytes have arrived (`TCP_DEFER_ACCEPT` of Linux). `None`: a connection
    /// can be accepted as soon as it is open.
    pub defer_accept: Option<Duration>,
    /// What is done to find the MTU of the path (`IP_MTU_DISCOVER` of Linux). `None`: [`MtuDiscovery::Want`].
    pub mtu_discovery: Option<MtuDiscovery>,
    /// The times that the connection reports (`SO_TIMESTAMPING` of Linux).
    pub timing: Timing,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            no_delay: false,
            send_buffer: None,
            receive_buffer: None,
            cork: false,
            unsent_max: None,
            segment_bytes_max: None,
            congestion: None,
            linger: None,
            keepalive: None,
            probe_interval: None,
            probes_max: None,
            user_timeout: None,
            service: 0,
            hop_limit: 64,
            fast_open: false,
            fast_open_pending_max: 0,
            fast_open_keys: None,
            defer_accept: None,
            mtu_discovery: None,
            timing: Timing::default(),
        }
    }
}

/// Size of Linux's `struct tcp_info`, in bytes.
pub const TCP_INFO_BYTES: usize = 248;

/// Size of Linux's `struct tcp_bbr_info`, in bytes.
pub const BBR_INFO_BYTES: usize = 20;

/// Statistics of a connection, and the options that it uses now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConnectionInfo {
    /// The statistics as Linux's `struct tcp_info`, in the byte order of this host.
    pub tcp_info: [u8; TCP_INFO_BYTES],
    /// The state of BBR as Linux's `struct tcp_bbr_info`, in the byte order of this host. `None` with another congestion control.
    pub bbr_info: Option<[u8; BBR_INFO_BYTES]>,
    /// The options. The sizes of buffers are those that `getsockopt` of Linux reports. An option with a value that the application did not choose has the value that the guest chose. Options of
    /// listeners have their default values.
    pub options: SocketOptions,
}

/// What the bytes of one send mean for the bytes that follow them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendFlags {
    /// True if more bytes follow soon: a last segment that is not full waits for them (`MSG_MORE` of Linux).
    pub more: bool,
    /// True if a record ends with the last of these bytes (`MSG_EOR` of Linux): no segment has bytes of two records. This has an effect
    /// only if the send takes all bytes, as in Linux.
    pub end_of_record: bool,
}

/// A change of the multicast groups that a datagram socket has joined, or of an option of the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramChange {
    /// Join a group on one of the guest's networks.
    Join(IpAddr, Interface),
    /// Leave a group on one of the guest's networks.
    Leave(IpAddr, Interface),
    /// Set the hop limit of datagrams to groups.
    HopLimit(u8),
    /// Set whether the members of a group on the guest's own stack also receive the datagrams that this socket sends to the
    /// group.
    Loop(bool),
    /// Set what the socket does to find the MTU of its paths.
    MtuDiscovery(MtuDiscovery),
    /// Set the times that the socket reports.
    Timing(Timing),
    /// Set the TTL or hop limit of datagrams that go to no group.
    UnicastHopLimit(NonZeroU8),
    /// Set the type of service (IPv4) or traffic class (IPv6) of sent datagrams.
    Service(u8),
    /// Set the network over which datagrams to groups are sent.
    GroupNetwork(Interface),
}

/// How a datagram arrived (RFC 3542 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// The destination address: one of the guest's addresses, or a multicast group.
    pub to: IpAddr,
    /// The guest's network on which it arrived, counted from 1. `None` if the guest itself sent it.
    pub network: Option<u32>,
    /// TTL (IPv4) or hop limit (IPv6).
    pub hop_limit: u8,
    /// Type of service (IPv4) or traffic class (IPv6).
    pub service: u8,
}

/// Options of one sent datagram, in place of those of its socket (RFC 3542 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatagramOptions {
    /// The source address, one of the guest's.
    pub from: Option<IpAddr>,
    /// The guest's network, counted from 1, over which a datagram to a multicast group or to a link-local address is sent.
    pub network: Option<u32>,
    /// TTL (IPv4) or hop limit (IPv6).
    pub hop_limit: Option<u8>,
    /// Type of service (IPv4) or traffic class (IPv6).
    pub service: Option<u8>,
}

/// One of a guest's networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interface {
    /// The network to which the guest's route for the group leads.
    OfRoute,
    /// The network on which the guest has this address.
    Address(Ipv4Addr),
    /// The network of the device with this number, counted from 1.
    Number(u32),
}

impl Interface {
    /// Creates the value from the IPv4 address with which the standard library selects an interface (as in
    /// `UdpSocket::join_multicast_v4`).
    pub fn of_address(address: Ipv4Addr) -> Self {
        if address.is_unspecified() { Self::OfRoute } else { Self::Address(address) }
    }

    /// Creates the value from the index with which the standard library selects an interface (as in
    /// `UdpSocket::join_multicast_v6`).
    pub fn of_number(number: u32) -> Self {
        if number == 0 { Self::OfRoute } else { Self::Number(number) }
    }
}
