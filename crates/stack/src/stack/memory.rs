//! The memory of a stack: how much it uses now, and how much it uses at most, according to [`crate::limits`].
//!
//! Routes, devices, the groups that the stack itself needs, and a capture are not counted, because a peer cannot make them grow.
//! The memory of tables and queues is computed from the number of their entries. In addition, their unused capacity takes at most
//! the same amount.

use super::Stack;
use crate::ip::{path_mtu, reassembly, sent};
use crate::limits::{
    DEVICE_QUEUE_BYTES_MAX, FRAME_BYTES_MAX, GROUPS_MAX, LOOPBACK_PACKETS_MAX, NEIGHBOUR_QUEUE_BYTES_MAX,
    NEIGHBOURS_MAX, PATH_MTUS_MAX, REASSEMBLY_BYTES_MAX, REASSEMBLY_DATAGRAMS_MAX, SENT_BUCKETS, SENT_EACH,
    SOURCE_PREFIXES_MAX, TCP_BUFFER_BYTES_MAX, TCP_CONNECTIONS_MAX, TCP_FAST_OPEN_PEERS_MAX, TCP_LISTENERS_MAX,
    TCP_PORT_PAGES_MAX, TCP_SOCKET_BYTES_FREE, TCP_SPARE_BYTES_MAX, TCP_SPARES_MAX, TCP_TIME_WAITS_MAX, UDP_GROUPS_MAX,
    UDP_QUEUE_BYTES_MAX, UDP_SOCKETS_MAX,
};
use crate::link::{neighbour, source};
use crate::multicast::group;
use crate::sockets::{self, PackedEvent, fast_open, ports};
use crate::tcp::{HISTORY_BYTES, Storage};
use crate::udp::UdpId;
use crate::udp::members::MEMBERSHIP_BYTES;
use std::fmt;

/// Maximum length of the event queue. When the queue is longer than twice the number of sockets, stale events are removed.
const TCP_EVENTS_MAX: usize = 2 * (TCP_CONNECTIONS_MAX + TCP_LISTENERS_MAX) + 1;

/// The memory of all entries of one kind, for example of all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPart {
    /// Name of the kind of entries.
    pub name: &'static str,
    /// Number of entries now.
    pub held: usize,
    /// Maximum number of entries.
    pub most: usize,
    /// Maximum size of an entry in bytes.
    pub bytes_each: usize,
}

/// How many bytes of memory a stack uses now and at most, for each kind of entries. `Display` prints a table with totals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory(pub Vec<MemoryPart>);

impl Memory {
    /// Returns the memory that is used now, in bytes.
    pub fn bytes_held(&self) -> usize {
        self.0.iter().map(|part| part.held.saturating_mul(part.bytes_each)).fold(0, usize::saturating_add)
    }

    /// Returns the maximum of the memory that can be used, in bytes.
    pub fn bytes_most(&self) -> usize {
        self.0.iter().map(|part| part.most.saturating_mul(part.bytes_each)).fold(0, usize::saturating_add)
    }

    /// Returns how many entries of a kind exist now, or 0 if no kind has this name.
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
    /// Returns how many bytes of memory the stack uses now, and how many it uses at most.
    pub fn memory(&self) -> Memory {
        let part = |name, held, most, bytes_each| MemoryPart { name, held, most, bytes_each };
        let queued = self.ip.devices.iter().map(|device| device.queue_bytes).sum();
        let filters = self.ip.devices.iter().filter_map(|device| device.filter.sources.as_ref());
        let runs = filters.map(source::Sources::runs).sum();
        // More than the limit can be in use: each connection keeps a minimum, the last buffer may have doubled, and the lists of
        // sent segments and gaps are charged, too.
        let buffers_most =
            self.tcp.buffers.most + 2 * TCP_SOCKET_BYTES_FREE * TCP_CONNECTIONS_MAX + 2 * TCP_BUFFER_BYTES_MAX;
        let (ip, udp, tcp) = (&self.ip, &self.udp, &self.tcp);
        let (devices, loopback) = (ip.devices.len(), ip.loopback.iter().map(Vec::len).sum());
        let fast_opens = tcp.sockets.values().filter(|socket| socket.connection.uses_fast_open()).count();
        let histories = tcp.sockets.values().filter(|socket| socket.connection.has_history()).count();
        let spares = tcp.buffers.spare.iter().map(Storage::capacity).sum();
        Memory(vec![
            part("bytes of frames in device queues", queued, devices * DEVICE_QUEUE_BYTES_MAX, 1),
            part("bytes of packets to the stack itself", loopback, LOOPBACK_PACKETS_MAX * FRAME_BYTES_MAX, 1),
            part("ranges of source addresses", runs, devices * (2 * SOURCE_PREFIXES_MAX + 1), source::RUN_BYTES),
            part("neighbours", ip.neighbours.len(), NEIGHBOURS_MAX, neighbour::ENTRY_BYTES),
            part("bytes that wait for neighbours", ip.neighbours.waiting_bytes, NEIGHBOUR_QUEUE_BYTES_MAX, 1),
            part("path MTUs", ip.path_mtus.len(), PATH_MTUS_MAX, path_mtu::ENTRY_BYTES),
            part("datagrams sent lately", ip.sent.held, SENT_BUCKETS * SENT_EACH, sent::ENTRY_BYTES),
            part("datagrams in reassembly", ip.reassembly.len(), REASSEMBLY_DATAGRAMS_MAX, reassembly::ENTRY_BYTES),
            part("bytes in reassembly", ip.reassembly.bytes, REASSEMBLY_BYTES_MAX, 1),
            part("groups", self.groups.count, GROUPS_MAX, group::ENTRY_BYTES),
            part("UDP sockets", udp.len(), UDP_SOCKETS_MAX, crate::udp::SOCKET_BYTES),
            part("bytes in UDP sockets", udp.queue_bytes(), UDP_SOCKETS_MAX * UDP_QUEUE_BYTES_MAX, 1),
            part("events of UDP sockets", udp.ready.len(), 2 * UDP_SOCKETS_MAX + 1, size_of::<UdpId>()),
            part("groups of UDP sockets", udp.memberships(), UDP_SOCKETS_MAX * UDP_GROUPS_MAX, MEMBERSHIP_BYTES),
            part("TCP connections", tcp.sockets.len(), TCP_CONNECTIONS_MAX, sockets::connection_bytes::<S>()),
            part("TCP connections with Fast Open", fast_opens, TCP_CONNECTIONS_MAX, fast_open::CONNECTION_BYTES),
            part("TCP connections with rare events", histories, TCP_CONNECTIONS_MAX, HISTORY_BYTES),
            part("Fast Open cookies", tcp.fast_open.cookies.len(), TCP_FAST_OPEN_PEERS_MAX, fast_open::COOKIE_BYTES),
            part("TCP listeners", tcp.listeners.len(), TCP_LISTENERS_MAX, sockets::LISTENER_BYTES),
            part("events of TCP sockets", tcp.events.len(), TCP_EVENTS_MAX, size_of::<PackedEvent>()),
            part("bytes in spare TCP buffers", spares, TCP_SPARES_MAX * TCP_SPARE_BYTES_MAX, 1),
            part("bytes in TCP buffers", tcp.buffers.held, buffers_most, 1),
            part("TCP connections in TIME-WAIT", tcp.waits.slab.len(), TCP_TIME_WAITS_MAX, sockets::TIME_WAIT_BYTES),
            part("pages of TCP ports", tcp.ports.pages(), TCP_PORT_PAGES_MAX, ports::PAGE_BYTES),
            // Ports are bits in the pages of the line above, so they need no memory of their own.
            part("TCP ports taken", tcp.ports.taken(), TCP_CONNECTIONS_MAX + TCP_TIME_WAITS_MAX, 0),
        ])
    }
}
