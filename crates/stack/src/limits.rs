//! All limits of the stack.

use crate::time::Duration;

/// Number of bytes at the start of a frame that the stack needs in private memory: the link header and the longest IP and TCP
/// headers.
pub const HEADER_BYTES_MAX: usize = 14 + 60 + 60;
/// Maximum size of a frame on any device, in bytes: a large segment of 64 KB, its headers included, and the link header.
pub const FRAME_BYTES_MAX: usize = 14 + 65_535;
/// Maximum number of routes of a stack: several times the number of routes in the Internet, but small enough for 32-bit indices
/// in the lookup structure.
pub const ROUTES_MAX: usize = 1 << 22;
/// Maximum number of devices of a stack: enough for a router with a link to each of some hundred guests.
pub const DEVICES_MAX: usize = 1024;
/// Maximum number of addresses of one device. A search for the source address of a packet visits all of them.
pub const DEVICE_ADDRESSES_MAX: usize = 16;
/// Maximum number of prefixes in the source filter of a device: enough for the routes of a large router and their exceptions.
pub const SOURCE_PREFIXES_MAX: usize = 4_096;
/// Smallest MTU of a device with IPv4 addresses, in bytes. Every host accepts datagrams of this size (RFC 791), and all headers fit.
pub const MTU_IPV4_MIN: u16 = 576;
/// Smallest MTU of a device with IPv6 addresses, in bytes (RFC 8200 5).
pub const MTU_IPV6_MIN: u16 = 1280;
/// Maximum number of frames in a device's transmit queue.
pub const DEVICE_QUEUE_FRAMES_MAX: usize = 1024;
/// Maximum number of bytes in a device's transmit queue: 63 frames of the maximum size.
pub const DEVICE_QUEUE_BYTES_MAX: usize = 4 << 20;
/// Maximum number of neighbours of a stack, on all devices together.
pub const NEIGHBOURS_MAX: usize = 8192;
/// Maximum number of entries that are examined to find one to evict when the neighbour table is full.
pub const NEIGHBOURS_EVICT_SCAN_MAX: usize = 64;
/// Maximum number of packets that wait for a neighbour's link address. RFC 1122 2.3.2.2 requires at least one. This number is
/// enough for the start of a connection.
pub const NEIGHBOUR_QUEUE_FRAMES_MAX: usize = 16;
/// Maximum number of bytes in packets that wait for link addresses, for all neighbours together.
pub const NEIGHBOUR_QUEUE_BYTES_MAX: usize = 4 << 20;
/// Number of requests to a neighbour after which it counts as silent (RFC 4861 10).
pub const NEIGHBOUR_REQUESTS_MAX: u8 = 3;
/// Time between two requests to the same neighbour (RFC 4861 10, RFC 1122 2.3.2.1).
pub const NEIGHBOUR_RETRY: Duration = Duration::from_secs(1);
/// Time for which a neighbour's answer is valid without confirmation (RFC 4861 10).
pub const NEIGHBOUR_REACHABLE: Duration = Duration::from_secs(30);
/// Time from the first use of an outdated answer to the request that confirms it (RFC 4861 10).
pub const NEIGHBOUR_DELAY: Duration = Duration::from_secs(5);
/// Time after which an unused neighbour is removed.
pub const NEIGHBOUR_STALE: Duration = Duration::from_secs(600);
/// Maximum number of ICMP errors in a burst (RFC 4443 2.4 (f), RFC 1812 4.3.2.8).
pub const ICMP_ERRORS_BURST: u32 = 50;
/// Maximum number of ICMP errors per second in the long run.
pub const ICMP_ERRORS_PER_SECOND: u32 = 1000;
/// Number of counters for IPv4 identifications. The number is large, so that few destinations share a counter.
pub const IPV4_IDENT_COUNTERS: usize = 2048;
/// Maximum size of an ICMP error over IPv4, in bytes: every host accepts a datagram of this size (RFC 1812 4.3.2.3).
pub const ICMPV4_ERROR_BYTES_MAX: usize = 576;
/// Maximum size of an ICMPv6 error, in bytes: the smallest MTU of IPv6 (RFC 4443 2.4 (c)).
pub const ICMPV6_ERROR_BYTES_MAX: usize = 1280;
/// Maximum number of extension headers in a packet. A packet with more is dropped (RFC 8504 5.3).
pub const EXTENSION_HEADERS_MAX: usize = 8;
/// Maximum number of datagrams in reassembly.
pub const REASSEMBLY_DATAGRAMS_MAX: usize = 256;
/// Maximum number of bytes in reassembly.
pub const REASSEMBLY_BYTES_MAX: usize = 4 << 20;
/// Maximum number of datagrams in reassembly from one device: half of all, so that no device can fill the table alone.
pub const REASSEMBLY_DEVICE_DATAGRAMS_MAX: usize = REASSEMBLY_DATAGRAMS_MAX / 2;
/// Maximum number of bytes in reassembly from one device.
pub const REASSEMBLY_DEVICE_BYTES_MAX: usize = REASSEMBLY_BYTES_MAX / 2;
/// Maximum number of datagrams in reassembly from one source on one device: half of the device's quota.
pub const REASSEMBLY_SOURCE_DATAGRAMS_MAX: usize = REASSEMBLY_DEVICE_DATAGRAMS_MAX / 2;
/// Maximum number of bytes in reassembly from one source on one device: sixteen datagrams of the maximum size.
pub const REASSEMBLY_SOURCE_BYTES_MAX: usize = REASSEMBLY_DEVICE_BYTES_MAX / 2;
/// Maximum number of fragments of one datagram: enough for 64 KB over links with an MTU of 576 bytes.
pub const REASSEMBLY_PIECES_MAX: usize = 128;
/// Time after which an incomplete datagram is dropped. It lies between the 15 s of RFC 791 and the 60 s of RFC 8200: a shorter
/// time keeps less memory in use.
pub const REASSEMBLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of path MTUs that the stack keeps.
pub const PATH_MTUS_MAX: usize = 1024;
/// Time for which a path MTU that a router reported is valid (RFC 8201 4).
pub const PATH_MTU_AGE: Duration = Duration::from_secs(600);
/// Time for which a sent datagram stays on record, so that ICMP errors about it can be checked. An error may arrive late, because
/// a router looks for a silent neighbour for three seconds.
pub const SENT_AGE: Duration = Duration::from_secs(10);
/// Number of groups of flows in the record of sent datagrams. Each flow belongs to one group.
pub const SENT_BUCKETS: usize = 256;
/// Maximum number of recorded datagrams in one group of flows.
pub const SENT_EACH: usize = 16;
/// Maximum number of UDP sockets of a stack.
pub const UDP_SOCKETS_MAX: usize = 65_536;
/// Maximum number of bytes in the receive queue of a UDP socket. Each datagram counts with [`UDP_DATAGRAM_OVERHEAD_BYTES`] in
/// addition to its bytes.
pub const UDP_QUEUE_BYTES_MAX: usize = 256 << 10;
/// Memory overhead of a queued datagram, in bytes. Because of it, the number of empty datagrams is limited too.
pub const UDP_DATAGRAM_OVERHEAD_BYTES: usize = 128;
/// Maximum number of errors in the queue of a UDP socket.
pub const UDP_ERRORS_MAX: usize = 16;
/// Maximum number of multicast groups that the sockets of a stack have joined. A group counts once for each device. A group that
/// all sockets have left still counts until its leave is announced. If the table is full, a join removes such a group without an
/// announcement. Routers then notice the leave by a timeout.
pub const GROUPS_MAX: usize = 4096;
/// Maximum number of groups that are joined on one device, for each IP version. With this limit, a few reports suffice to answer
/// a general query.
pub const GROUPS_DEVICE_MAX: usize = 256;
/// Maximum number of sources that the stack keeps from a query about one group. If the query lists more, the answer covers all
/// sources. This many sources fit into one report over any MTU.
pub const GROUP_QUERY_SOURCES_MAX: usize = 64;
/// Minimum time between two answers about the same group. No querier asks more often: RFC 3376 8.8 counts the interval in tenths
/// of a second, and its default is 1 s.
pub const GROUP_ANSWER_GAP: Duration = Duration::from_millis(100);
/// Longest time until a membership change is announced again, in protocol versions whose reports list many groups (RFC 3376 8.11,
/// RFC 3810 9.11).
pub const GROUP_CHANGE_REPEAT: Duration = Duration::from_secs(1);
/// Longest time until a membership change is announced again, in protocol versions with one report for each group (RFC 2236 8.10,
/// RFC 2710 7.10).
pub const GROUP_REPORT_REPEAT: Duration = Duration::from_secs(10);
/// Number of times that a membership change is announced, if no querier sets this number (RFC 3376 8.1). A querier can set it to
/// at most 7.
pub const GROUP_ROBUSTNESS: u8 = 2;
/// Interval between queries if no querier sets it (RFC 3376 8.2).
pub const GROUP_QUERY_INTERVAL: Duration = Duration::from_secs(125);
/// Maximum number of groups that one socket has joined. A group counts once for each device.
pub const UDP_GROUPS_MAX: usize = 64;
/// Maximum number of sockets that share an address and port, or a group and port on one device. Each socket that shares a group
/// receives its own copy of a datagram.
pub const UDP_SHARERS_MAX: usize = 64;
/// Maximum number of packets that a stack delivers to itself in one call.
pub const LOOPBACK_PACKETS_MAX: usize = 64;
/// Minimum payload of a full segment, in bytes, as in Linux. If a peer's MSS or a path's MTU asks for less, this value is used,
/// because headers and bookkeeping would need more CPU time than the payload.
pub const TCP_SEGMENT_BYTES_MIN: u16 = 48;
/// Maximum number of full segments in flight: 5.9 MB at an MSS of 1,448. The limit bounds the CPU time that an acknowledgement
/// takes. A peer with a tiny MSS therefore gets few bytes in flight instead of a long list of segments.
pub const TCP_SENT_MAX: u16 = 4_096;
/// Maximum number of entries in the list of sent segments. SACK blocks split entries, but not if the list is full: a block then
/// covers complete entries only.
pub const TCP_SENT_ENTRIES_MAX: usize = 2 * TCP_SENT_MAX as usize;
/// Maximum number of separate runs of bytes received beyond a gap. A segment that would begin one more run is dropped. The peer
/// retransmits the segment, and an attacker can occupy no more memory.
pub const TCP_GAPS_MAX: usize = 256;
/// Maximum size of a connection's buffer, in bytes. A window scale of 14 is enough to announce it (RFC 7323).
pub const TCP_BUFFER_BYTES_MAX: usize = 1 << 29;
/// Minimum time between two challenge ACKs of a connection, in milliseconds (RFC 5961 section 7), as in Linux. Each connection
/// has its own limit, because a shared one would reveal other connections to an attacker.
pub const TCP_CHALLENGE_MS_MIN: u64 = 500;
/// Maximum payload of a SYN, in bytes, that is kept until the connection opens: that of one Ethernet segment. The peer
/// retransmits the rest.
pub const TCP_SYN_TEXT_BYTES_MAX: u16 = 1_460;
/// Number of retransmissions of an unanswered SYN before the open fails. It is one more than in Linux, so that the attempts last
/// three minutes (RFC 9293 MUST-23).
pub const TCP_SYN_RETRIES: u8 = 7;
/// Number of retransmissions of a listener's SYN-ACK, as in Linux.
pub const TCP_SYN_ACK_RETRIES: u8 = 5;
/// Number of retransmissions of a segment of an open connection, as in Linux: R2 of RFC 9293 section 3.8.3. They last more than
/// 100 s in total (SHLD-11).
pub const TCP_RETRIES: u8 = 15;
/// Number of retransmissions that indicate a problem on the path, as in Linux: R1 of RFC 9293 section 3.8.3 (SHLD-10).
pub const TCP_RETRIES_SUSPECT: u8 = 3;
/// Number of timeouts of a full segment that indicate a black hole, as in Linux (`tcp_retries1`). The segment size is then
/// lowered, and lowered again after two more timeouts.
pub const TCP_BLACK_HOLE_TIMEOUTS: u8 = 3;
/// Number of lost probes of one segment size after which the size counts as too large (RFC 8899 section 5.1.2).
pub const TCP_PATH_PROBES_MAX: u8 = 3;
/// Number of retransmissions and probes after which a connection that no application uses any more is aborted, as in Linux.
/// Without this limit, a peer that keeps its window closed could keep the connection alive for ever.
pub const TCP_ORPHAN_RETRIES: u8 = 8;
/// Maximum initial window, in segments (RFC 6928).
pub const TCP_INITIAL_WINDOW_MAX: u8 = 10;
/// Shortest TIME-WAIT. On networks within one host, it is long enough: old segments and retransmitted FINs arrive much earlier.
pub const TCP_TIME_WAIT_MIN: Duration = Duration::from_secs(1);
/// Longest TIME-WAIT: twice the MSL of RFC 9293 section 3.4.2.
pub const TCP_TIME_WAIT_MAX: Duration = Duration::from_secs(240);
/// Shortest user timeout: one millisecond, the unit of the option in Linux. A shorter timeout could end a connection before any
/// answer can arrive.
pub const TCP_USER_TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Time after the latest SYN cookie during which an acknowledgement may answer one: the lifetime of a cookie. During this time,
/// each acknowledgement without a connection needs the computation of a hash.
pub const TCP_COOKIE_TIME: Duration = Duration::from_secs(128);
/// Maximum number of connections of a stack, in all states except TIME-WAIT.
pub const TCP_CONNECTIONS_MAX: usize = 1 << 18;
/// Maximum number of listening sockets of a stack: one for every port.
pub const TCP_LISTENERS_MAX: usize = 65_536;
/// Maximum backlog of a listener, in connections.
pub const TCP_BACKLOG_MAX: usize = 65_536;
/// Maximum number of connections in TIME-WAIT: all local ports to four remote ends. One more connection evicts the oldest.
pub const TCP_TIME_WAITS_MAX: usize = 1 << 17;
/// Number of remote ends in the port table at which the table is searched for ends without used ports, to remove them.
pub const TCP_ENDS_MAX: usize = 4_096;
/// Number of pages that cover all local ports to one remote end. A page is a bitmap of 4,096 ports.
pub const TCP_END_PORT_PAGES: usize = 8;
/// Maximum number of pages of local ports, for all remote ends. The factor of two is needed because unused ends are removed late.
pub const TCP_PORT_PAGES_MAX: usize =
    TCP_END_PORT_PAGES * (2 * (TCP_CONNECTIONS_MAX + TCP_TIME_WAITS_MAX) + TCP_ENDS_MAX);
/// Maximum number of segments that a connection sends before the next connection has its turn.
pub const TCP_BURST_FRAMES: u8 = 16;
/// Maximum number of unused buffers that the stack keeps for other connections.
pub const TCP_SPARES_MAX: usize = 64;
/// Maximum size, in bytes, of an unused buffer that the stack keeps.
pub const TCP_SPARE_BYTES_MAX: usize = 64 << 10;
/// Number of bytes that each direction of a connection may buffer even if buffer memory is short, so that every connection makes
/// progress.
pub const TCP_SOCKET_BYTES_FREE: usize = 4_096;
/// Default limit of the buffers of all connections together, in bytes.
pub const TCP_BUFFERS_BYTES_DEFAULT: usize = 1 << 30;
/// Maximum number of echo requests that wait for a reply.
pub const PINGS_MAX: usize = 64;
