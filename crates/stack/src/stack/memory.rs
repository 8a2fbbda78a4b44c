//! The memory of a stack: what it uses, and the most that the limits in [`crate::limits`] allow.
//!
//! Routes, devices, the stack's own groups and a capture are left out, because a peer cannot make them grow. The memory of tables
//! and queues is computed from their entries. Their unused capacity takes less than the same amount again.

use super::Stack;
use crate::limits::{
    DEVICE_QUEUE_BYTES_MAX, FRAME_BYTES_MAX, GROUPS_MAX, LOOPBACK_PACKETS_MAX, NEIGHBOUR_QUEUE_BYTES_MAX,
    NEIGHBOURS_MAX, PATH_MTUS_MAX, REASSEMBLY_BYTES_MAX, REASSEMBLY_DATAGRAMS_MAX, SENT_BUCKETS, SENT_EACH,
    SOURCE_PREFIXES_MAX, TCP_CONNECTIONS_MAX, TCP_LISTENERS_MAX, TCP_PORT_PAGES_MAX, TCP_SPARE_BYTES_MAX,
    TCP_SPARES_MAX, TCP_TIME_WAITS_MAX, UDP_GROUPS_MAX, UDP_QUEUE_BYTES_MAX, UDP_SOCKETS_MAX,
};
use crate::sockets::PackedEvent;
use crate::tcp::Storage;
use crate::udp::UdpId;
use crate::udp::members::MEMBERSHIP_BYTES;
use std::fmt;

/// The memory of one kind of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPart {
    /// Name of the kind.
    pub name: &'static str,
    /// Number of entries now.
    pub held: usize,
    /// Maximum number of entries.
    pub most: usize,
    /// Maximum size of an entry in bytes.
    pub bytes_each: usize,
}

/// The memory that a stack uses and may use. Displayed as a table with a sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory(pub Vec<MemoryPart>);

impl Memory {
    /// Returns the memory used now, in bytes.
    pub fn bytes_held(&self) -> usize {
        self.0.iter().map(|part| part.held.saturating_mul(part.bytes_each)).fold(0, usize::saturating_add)
    }

    /// Returns the maximum memory, in bytes.
    pub fn bytes_most(&self) -> usize {
        self.0.iter().map(|part| part.most.saturating_mul(part.bytes_each)).fold(0, usize::saturating_add)
    }

    /// Returns the number of entries of a kind, or 0 if no kind has this name.
    pub fn held(&self, name: &str) -> usize {
        self.0.iter().find(|part| part.name == name).map_or(0, |part| part.held)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<34}{:>12}{:>12}{:>10}{:>16}", "what", "held", "at most", "bytes", "bytes at most")?;
        for MemoryPart { name, held, most, bytes_each } in &self.0 {
            let product = most.saturating_mul(*bytes_each);
            writeln!(f, "{name:<34}{held:>12}{most:>12}{bytes_each:>10}{product:>16}")?;
        }
        write!(f, "{:<34}{:>12}{:>38}", "bytes in all", self.bytes_held(), self.bytes_most())
    }
}

impl<S: Storage> Stack<S> {
    /// Returns the memory that the stack uses and may use.
    pub fn memory(&self) -> Memory {
        let part = |name, held, most, bytes_each| MemoryPart { name, held, most, bytes_each };
        let queued = self.ip.devices.iter().map(|device| device.queue_bytes()).sum();
        let filters = self.ip.devices.iter().filter_map(|device| device.filter.sources.as_ref());
        let runs = filters.map(crate::link::source::Sources::runs).sum();
        let mut parts = vec![
            part("bytes of frames in device queues", queued, self.ip.devices.len() * DEVICE_QUEUE_BYTES_MAX, 1),
            part(
                "bytes of packets to the stack itself",
                self.ip.loopback.iter().map(Vec::len).sum(),
                LOOPBACK_PACKETS_MAX * FRAME_BYTES_MAX,
                1,
            ),
            part(
                "runs of sources",
                runs,
                self.ip.devices.len() * (2 * SOURCE_PREFIXES_MAX + 1),
                crate::link::source::RUN_BYTES,
            ),
            part("neighbours", self.ip.neighbours.len(), NEIGHBOURS_MAX, crate::link::neighbour::ENTRY_BYTES),
            part("bytes that wait for neighbours", self.ip.neighbours.waiting_bytes(), NEIGHBOUR_QUEUE_BYTES_MAX, 1),
            part("path MTUs", self.ip.path_mtus.len(), PATH_MTUS_MAX, crate::ip::path_mtu::ENTRY_BYTES),
            part("datagrams sent lately", self.ip.sent.len(), SENT_BUCKETS * SENT_EACH, crate::ip::sent::ENTRY_BYTES),
            part(
                "datagrams in reassembly",
                self.ip.reassembly.len(),
                REASSEMBLY_DATAGRAMS_MAX,
                crate::ip::reassembly::ENTRY_BYTES,
            ),
            part("bytes in reassembly", self.ip.reassembly.bytes(), REASSEMBLY_BYTES_MAX, 1),
            part("groups", self.groups.len(), GROUPS_MAX, crate::multicast::group::ENTRY_BYTES),
            part("UDP sockets", self.udp.len(), UDP_SOCKETS_MAX, crate::udp::SOCKET_BYTES),
            part("bytes in UDP sockets", self.udp.queue_bytes(), UDP_SOCKETS_MAX * UDP_QUEUE_BYTES_MAX, 1),
            part("events of UDP sockets", self.udp.events(), 2 * UDP_SOCKETS_MAX + 1, size_of::<UdpId>()),
            part("groups of UDP sockets", self.udp.memberships(), UDP_SOCKETS_MAX * UDP_GROUPS_MAX, MEMBERSHIP_BYTES),
        ];
        let tcp = self.tcp.held();
        parts.extend([
            part("TCP connections", tcp.connections, TCP_CONNECTIONS_MAX, crate::sockets::connection_bytes::<S>()),
            part("TCP listeners", tcp.listeners, TCP_LISTENERS_MAX, crate::sockets::LISTENER_BYTES),
            part(
                "events of TCP sockets",
                tcp.events,
                2 * (TCP_CONNECTIONS_MAX + TCP_LISTENERS_MAX) + 1,
                size_of::<PackedEvent>(),
            ),
            part("bytes in spare TCP buffers", tcp.spare_bytes, TCP_SPARES_MAX * TCP_SPARE_BYTES_MAX, 1),
            part("bytes in TCP buffers", tcp.buffer_bytes, tcp.buffer_bytes_most, 1),
            part("TCP connections in TIME-WAIT", tcp.waits, TCP_TIME_WAITS_MAX, crate::sockets::TIME_WAIT_BYTES),
            part("pages of TCP ports", tcp.port_pages, TCP_PORT_PAGES_MAX, crate::sockets::PORT_PAGE_BYTES),
            // Ports are bits in the port pages, so a port needs no memory of its own.
            part("TCP ports taken", tcp.ports_taken, TCP_CONNECTIONS_MAX + TCP_TIME_WAITS_MAX, 0),
        ]);
        Memory(parts)
    }
}
