//! Options and readiness of sockets. They are the same for an embedded stack and for a stack that is used over `iucv`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// What a socket can do without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// True if there are bytes to receive or a connection to accept, or if the end of the stream or a failure is to be reported.
    pub readable: bool,
    /// True if bytes can be sent, or if a failure is to be reported.
    pub writable: bool,
    /// True if the connection has failed or is closed in both directions.
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
    /// True if Nagle's algorithm is off.
    pub no_delay: bool,
    /// Largest send buffer, in bytes. `None`: the buffer grows as needed.
    pub send_buffer: Option<usize>,
    /// Receive buffer, in bytes. `None`: the buffer grows as needed.
    pub receive_buffer: Option<usize>,
    /// Congestion control.
    pub congestion: CongestionControl,
    /// Time after a close at which a reset ends a connection with undelivered bytes. `None`: the bytes are sent in the background.
    pub linger: Option<Duration>,
    /// Idle time after which keepalive probes are sent. `None`: no probes.
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

/// A change of the multicast groups that a datagram socket is in, or of how it sends to groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupChange {
    /// Join a group on a network.
    Join(IpAddr, Interface),
    /// Leave a group on a network.
    Leave(IpAddr, Interface),
    /// Set the hop limit of datagrams to groups.
    HopLimit(u8),
    /// Set whether members on the guest's own stack also receive the datagrams.
    Loop(bool),
}

/// One of a guest's networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interface {
    /// The network to which the route of the group leads.
    OfRoute,
    /// The network on which the guest has this address.
    Address(Ipv4Addr),
    /// The network of the device with this number, counted from 1.
    Number(u32),
}

impl Interface {
    /// Converts the address by which the standard library names an interface for IPv4.
    pub fn of_address(address: Ipv4Addr) -> Self {
        if address.is_unspecified() { Self::OfRoute } else { Self::Address(address) }
    }

    /// Converts the index by which the standard library names an interface for IPv6.
    pub fn of_number(number: u32) -> Self {
        if number == 0 { Self::OfRoute } else { Self::Number(number) }
    }
}
