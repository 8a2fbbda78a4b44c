//! All limits of the stack.

use crate::time::Duration;

/// First bytes of a frame, which the stack needs in private memory: the link header and the longest IP and TCP headers.
pub const HEADER_BYTES_MAX: usize = 14 + 60 + 60;
/// Largest frame on any device, link header included: a segment of 64 KB and its headers.
pub const FRAME_BYTES_MAX: usize = 14 + 65_535;
/// Routes of a stack: several times the Internet's, yet few enough for 32-bit indices in the lookup structure.
pub const ROUTES_MAX: usize = 1 << 22;
/// Devices of a stack: a router with a link to each of some hundred guests.
pub const DEVICES_MAX: usize = 1024;
/// Addresses of one device. The list is searched for the source address of a packet.
pub const DEVICE_ADDRESSES_MAX: usize = 16;
/// Prefixes in the source filter of a device: the routes of a large router, and their exceptions.
pub const SOURCE_PREFIXES_MAX: usize = 4_096;
/// Smallest MTU of a device with IPv4 addresses: a datagram that every host accepts (RFC 791), so that headers fit.
pub const MTU_IPV4_MIN: u16 = 576;
/// Smallest MTU of a device with IPv6 addresses (RFC 8200 5).
pub const MTU_IPV6_MIN: u16 = 1280;
/// Frames that wait in a device's queue.
pub const DEVICE_QUEUE_FRAMES_MAX: usize = 1024;
/// Their bytes: 63 of the largest frames.
pub const DEVICE_QUEUE_BYTES_MAX: usize = 4 << 20;
/// Neighbours of a stack over all devices.
pub const NEIGHBOURS_MAX: usize = 8192;
/// Entries examined to choose one to evict when the table of neighbours is full.
pub const NEIGHBOURS_EVICT_SCAN_MAX: usize = 64;
/// Packets that wait for a neighbour's address: at least one (RFC 1122 2.3.2.2), enough for a connection's start.
pub const NEIGHBOUR_QUEUE_FRAMES_MAX: usize = 16;
/// Bytes of packets that wait for neighbours' addresses, over all of them.
pub const NEIGHBOUR_QUEUE_BYTES_MAX: usize = 4 << 20;
/// Requests to a neighbour before it counts as silent (RFC 4861 10).
pub const NEIGHBOUR_REQUESTS_MAX: u8 = 3;
/// Time between two requests (RFC 4861 10, RFC 1122 2.3.2.1).
pub const NEIGHBOUR_RETRY: Duration = Duration::from_secs(1);
/// How long an answer is valid without confirmation (RFC 4861 10).
pub const NEIGHBOUR_REACHABLE: Duration = Duration::from_secs(30);
/// Time from the first use of an old answer to the request that confirms it (RFC 4861 10).
pub const NEIGHBOUR_DELAY: Duration = Duration::from_secs(5);
/// How long an unused neighbour is kept.
pub const NEIGHBOUR_STALE: Duration = Duration::from_secs(600);
/// Most ICMP errors in a burst (RFC 4443 2.4 (f), RFC 1812 4.3.2.8).
pub const ICMP_ERRORS_BURST: u32 = 50;
/// Most ICMP errors per second in the long run.
pub const ICMP_ERRORS_PER_SECOND: u32 = 1000;
/// Counters of IPv4 identifications. Few destinations share a counter.
pub const IPV4_IDENT_COUNTERS: usize = 2048;
/// Largest ICMP error: a size that every host accepts (RFC 1812 4.3.2.3).
pub const ICMPV4_ERROR_BYTES_MAX: usize = 576;
/// Largest ICMPv6 error: the smallest MTU (RFC 4443 2.4 (c)).
pub const ICMPV6_ERROR_BYTES_MAX: usize = 1280;
/// Extension headers of a packet; a packet with more is dropped (RFC 8504 5.3).
pub const EXTENSION_HEADERS_MAX: usize = 8;
/// Datagrams in reassembly.
pub const REASSEMBLY_DATAGRAMS_MAX: usize = 256;
/// Their bytes.
pub const REASSEMBLY_BYTES_MAX: usize = 4 << 20;
/// Datagrams in reassembly from one device: half, so that no device can fill the whole table.
pub const REASSEMBLY_DEVICE_DATAGRAMS_MAX: usize = REASSEMBLY_DATAGRAMS_MAX / 2;
/// Their bytes.
pub const REASSEMBLY_DEVICE_BYTES_MAX: usize = REASSEMBLY_BYTES_MAX / 2;
/// Datagrams in reassembly from one source on one device: half of the device's quota.
pub const REASSEMBLY_SOURCE_DATAGRAMS_MAX: usize = REASSEMBLY_DEVICE_DATAGRAMS_MAX / 2;
/// Their bytes: sixteen of the largest datagrams.
pub const REASSEMBLY_SOURCE_BYTES_MAX: usize = REASSEMBLY_DEVICE_BYTES_MAX / 2;
/// Fragments of one datagram: 64 KB over links of 576 bytes.
pub const REASSEMBLY_PIECES_MAX: usize = 128;
/// Time for reassembly: between the 60 s of RFC 8200 and the 15 s of RFC 791, to hold less memory.
pub const REASSEMBLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Path MTUs that routers reported.
pub const PATH_MTUS_MAX: usize = 1024;
/// How long a path MTU from a router is valid (RFC 8201 4).
pub const PATH_MTU_AGE: Duration = Duration::from_secs(600);
/// Longest time from a datagram to an ICMP error about it: a router looks for a silent neighbour for three seconds.
pub const SENT_AGE: Duration = Duration::from_secs(10);
/// Groups of flows in the record of sent datagrams. A flow belongs to one group.
pub const SENT_BUCKETS: usize = 256;
/// Datagrams recorded for one group of flows.
pub const SENT_EACH: usize = 16;
/// UDP sockets of a stack.
pub const UDP_SOCKETS_MAX: usize = 65_536;
/// Bytes that wait in one UDP socket, each datagram counted with [`UDP_DATAGRAM_OVERHEAD_BYTES`].
pub const UDP_QUEUE_BYTES_MAX: usize = 256 << 10;
/// Memory of a datagram besides its bytes, so that empty datagrams are bounded too.
pub const UDP_DATAGRAM_OVERHEAD_BYTES: usize = 128;
/// Errors that wait in one UDP socket.
pub const UDP_ERRORS_MAX: usize = 16;
/// Groups that sockets of a stack joined, counted for each device. A group that was left counts until the leave is
/// announced. A join to a full table removes such a group unannounced; routers then learn of the leave by a timeout.
pub const GROUPS_MAX: usize = 4096;
/// Groups joined on one device, for each IP version: the answer to a general query fits into a few reports.
pub const GROUPS_DEVICE_MAX: usize = 256;
/// Sources in a query about one group. With more, the answer covers all sources. They fit into any report.
pub const GROUP_QUERY_SOURCES_MAX: usize = 64;
/// Time between two answers about the same group: no querier asks more often (RFC 3376 8.8: 1 s, counted in tenths).
pub const GROUP_ANSWER_GAP: Duration = Duration::from_millis(100);
/// Longest time until a change is announced again, where reports are lists (RFC 3376 8.11, RFC 3810 9.11).
pub const GROUP_CHANGE_REPEAT: Duration = Duration::from_secs(1);
/// The same where each group has its own report (RFC 2236 8.10, RFC 2710 7.10).
pub const GROUP_REPORT_REPEAT: Duration = Duration::from_secs(10);
/// How often a change is announced if no querier sets it (RFC 3376 8.1). A querier can set up to 7.
pub const GROUP_ROBUSTNESS: u8 = 2;
/// Interval of queries if no querier sets it (RFC 3376 8.2).
pub const GROUP_QUERY_INTERVAL: Duration = Duration::from_secs(125);
/// Groups that one socket joined, counted for each device.
pub const UDP_GROUPS_MAX: usize = 64;
/// Sockets that share an address and port, or a group and port on one device; each of the latter gets a copy.
pub const UDP_SHARERS_MAX: usize = 64;
/// Packets that a stack delivers to itself in one call.
pub const LOOPBACK_PACKETS_MAX: usize = 64;
/// Smallest segment payload that a connection accepts from a peer's MSS or a path's MTU, as in Linux. With less,
/// headers and bookkeeping would cost more than the payload.
pub const TCP_SEGMENT_BYTES_MIN: u16 = 48;
/// Largest flight in full segments: 5.9 MB at an MSS of 1,448. It bounds the cost of an acknowledgement. A peer with a
/// tiny MSS gets a small flight instead of a long list.
pub const TCP_SENT_MAX: u16 = 4_096;
/// Entries of the list of sent segments, which SACK blocks split. A full list is not split: a block then counts for
/// whole entries only.
pub const TCP_SENT_ENTRIES_MAX: usize = 2 * TCP_SENT_MAX as usize;
/// Runs of bytes received ahead of a gap. One more is dropped: the peer retransmits it; an attacker gains no memory.
pub const TCP_GAPS_MAX: usize = 256;
/// Largest buffer of a connection, so that a window scale of 14 covers it (RFC 7323).
pub const TCP_BUFFER_BYTES_MAX: usize = 1 << 29;
/// Minimum time between two challenge ACKs of a connection (RFC 5961 section 7), as in Linux. The limit is per
/// connection, because a shared one would reveal other connections to an attacker.
pub const TCP_CHALLENGE_MS_MIN: u64 = 500;
/// Payload of a SYN that is kept until the connection opens: one Ethernet segment. The peer retransmits the rest.
pub const TCP_SYN_TEXT_BYTES_MAX: u16 = 1_460;
/// Retransmissions of an unanswered SYN before the open fails: one more than in Linux, so that they last three minutes
/// (RFC 9293 MUST-23).
pub const TCP_SYN_RETRIES: u8 = 7;
/// Retransmissions of a listener's SYN-ACK, as in Linux.
pub const TCP_SYN_ACK_RETRIES: u8 = 5;
/// Retransmissions of any later segment, as in Linux: R2 of RFC 9293 section 3.8.3, over 100 s in all (SHLD-11).
pub const TCP_RETRIES: u8 = 15;
/// Retransmissions that indicate a problem on the path: R1 of RFC 9293 section 3.8.3 (SHLD-10), as in Linux.
pub const TCP_RETRIES_SUSPECT: u8 = 3;
/// Timeouts of a full segment that indicate a black hole, as in Linux (`tcp_retries1`). Two more lower the size again.
pub const TCP_BLACK_HOLE_TIMEOUTS: u8 = 3;
/// Lost probes of one segment size after which it counts as too large (RFC 8899 section 5.1.2).
pub const TCP_PATH_PROBES_MAX: u8 = 3;
/// Retransmissions and probes after which a connection without an application is aborted, as in Linux. Otherwise a peer
/// that keeps its window closed could hold it for ever.
pub const TCP_ORPHAN_RETRIES: u8 = 8;
/// Largest initial window, in segments (RFC 6928).
pub const TCP_INITIAL_WINDOW_MAX: u8 = 10;
/// Shortest TIME-WAIT. On networks inside one host, old segments and retransmitted FINs arrive long before it ends.
pub const TCP_TIME_WAIT_MIN: Duration = Duration::from_secs(1);
/// Longest TIME-WAIT: twice the MSL of RFC 9293 section 3.4.2.
pub const TCP_TIME_WAIT_MAX: Duration = Duration::from_secs(240);
/// Shortest user timeout: the unit of Linux. A shorter one could end a connection before any answer can arrive.
pub const TCP_USER_TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// How long an acknowledgement may answer a SYN cookie: the cookie's lifetime. Until then, each of them costs a hash.
pub const TCP_COOKIE_TIME: Duration = Duration::from_secs(128);
/// Connections of a stack, in all states except TIME-WAIT.
pub const TCP_CONNECTIONS_MAX: usize = 1 << 18;
/// Listening sockets of a stack: one for every port.
pub const TCP_LISTENERS_MAX: usize = 65_536;
/// Largest backlog of a listener.
pub const TCP_BACKLOG_MAX: usize = 65_536;
/// Connections in TIME-WAIT: all ports towards four remote ends. One more evicts the oldest.
pub const TCP_TIME_WAITS_MAX: usize = 1 << 17;
/// Number of remote ends above which unused ones are forgotten.
pub const TCP_ENDS_MAX: usize = 4_096;
/// Pages of local ports of one remote end.
pub const TCP_END_PORT_PAGES: usize = 8;
/// Pages of local ports of all remote ends: twice the ends in use, because unused ends are removed late.
pub const TCP_PORT_PAGES_MAX: usize =
    TCP_END_PORT_PAGES * (2 * (TCP_CONNECTIONS_MAX + TCP_TIME_WAITS_MAX) + TCP_ENDS_MAX);
/// Segments that a connection may send before it is the next connection's turn.
pub const TCP_BURST_FRAMES: u8 = 16;
/// Spare buffers that wait for reuse by another connection.
pub const TCP_SPARES_MAX: usize = 64;
/// Largest buffer that becomes a spare.
pub const TCP_SPARE_BYTES_MAX: usize = 64 << 10;
/// Bytes that each direction of a connection may hold even when buffer memory is short, so that all make progress.
pub const TCP_SOCKET_BYTES_FREE: usize = 4_096;
/// Default limit of the buffers of all connections together.
pub const TCP_BUFFERS_BYTES_DEFAULT: usize = 1 << 30;
/// Echo requests that wait for a reply.
pub const PINGS_MAX: usize = 64;
