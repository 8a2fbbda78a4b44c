//! Options and readiness of sockets: the same for every kind of attachment.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// What a socket can do without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// There is something to receive or accept, or an end or a failure to report.
    pub readable: bool,
    /// Bytes can be sent, or there is a failure to report.
    pub writable: bool,
    /// The connection has failed, or is over in both directions.
    pub closed: bool,
}

/// The congestion controls of a guest's stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CongestionControl {
    /// CUBIC (RFC 9438).
    Cubic,
    /// NewReno (RFC 5681, RFC 6582).
    Reno,
}

/// Options of a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SocketOptions {
    /// Nagle's algorithm is off.
    pub no_delay: bool,
    /// Largest send buffer in bytes; `None`: it grows as needed.
    pub send_buffer: Option<usize>,
    /// Receive buffer in bytes; `None`: it grows as needed.
    pub receive_buffer: Option<usize>,
    /// Congestion control.
    pub congestion: CongestionControl,
    /// `None`: after a close, undelivered bytes are sent in the background. Otherwise a reset ends the connection after this time.
    pub linger: Option<Duration>,
    /// Keepalive probes, after the connection was idle for this long.
    pub keepalive: Option<Duration>,
    /// TTL or hop limit of packets.
    pub hop_limit: u8,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            no_delay: false,
            send_buffer: None,
            receive_buffer: None,
            congestion: CongestionControl::Cubic,
            linger: None,
            keepalive: None,
            hop_limit: 64,
        }
    }
}

/// A change of the groups that a datagram socket is in, or of how it sends to groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupChange {
    /// Join a group on a network.
    Join(IpAddr, Interface),
    /// Leave it.
    Leave(IpAddr, Interface),
    /// The hop limit of datagrams to groups.
    HopLimit(u8),
    /// Whether members on the own stack receive them too.
    Loop(bool),
}

/// One of a guest's networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interface {
    /// The network that the group is routed to.
    OfRoute,
    /// The network on which the guest has this address.
    Address(Ipv4Addr),
    /// The network of the device with this number, counted from 1.
    Number(u32),
}

impl Interface {
    /// As the standard library names it for IPv4.
    pub fn of_address(address: Ipv4Addr) -> Self {
        if address.is_unspecified() { Self::OfRoute } else { Self::Address(address) }
    }

    /// As the standard library names it for IPv6.
    pub fn of_number(number: u32) -> Self {
        if number == 0 { Self::OfRoute } else { Self::Number(number) }
    }
}
