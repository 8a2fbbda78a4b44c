//! All limits of the stack.

use crate::time::Duration;

/// Number of bytes at the start of a frame that the stack needs in private memory, which no other process can write: the link
/// header and the longest IP and TCP headers.
pub const HEADER_BYTES_MAX: usize = 14 + 60 + 60;
/// Maximum size of a frame on any device, in bytes: the link header, and an IP packet of the maximum size (a large segment).
pub const FRAME_BYTES_MAX: usize = 14 + 65_535;
/// Maximum number of routes of a stack: several times the number of routes in the Internet, but small enough for 32-bit indices
/// in the lookup structure.
pub const ROUTES_MAX: usize = 1 << 22;
/// Maximum number of devices of a stack. A device connects the stack to a network. The limit is enough for a router with a
/// separate link to each of several hundred guests.
pub const DEVICES_MAX: usize = 1024;
/// Maximum number of addresses of one device. The limit is low, because a search for the source address of a packet visits all
/// addresses.
pub const DEVICE_ADDRESSES_MAX: usize = 16;
/// Maximum number of prefixes in the source filter of a device, which lists the source addresses that the other end of the link
/// may use. The limit is enough for the routes of a large router and their exceptions.
pub const SOURCE_PREFIXES_MAX: usize = 4_096;
/// Smallest MTU of a device with IPv4 addresses, in bytes. Every host accepts datagrams of this size (RFC 791), and such a
/// datagram has room for all headers.
pub const MTU_IPV4_MIN: u16 = 576;
/// Smallest MTU of a device with IPv6 addresses, in bytes (RFC 8200 5).
pub const MTU_IPV6_MIN: u16 = 1280;
/// Maximum number of frames in a device's transmit queue.
pub const DEVICE_QUEUE_FRAMES_MAX: usize = 1024;
/// Maximum number of bytes in a device's transmit queue: 63 frames of the maximum size.
pub const DEVICE_QUEUE_BYTES_MAX: usize = 4 << 20;
/// Maximum number of neighbours of a stack, on all devices together.
pub const NEIGHBOURS_MAX: usize = 8192;
/// Maximum number of entries of a full neighbour table that are examined to find an entry to evict.
pub const NEIGHBOURS_EVICT_SCAN_MAX: usize = 64;
/// Maximum number of packets that wait for the link address of one neighbour. RFC 1122 2.3.2.2 requires at least one. This number
/// is enough for the start of a connection.
pub const NEIGHBOUR_QUEUE_FRAMES_MAX: usize = 16;
/// Maximum total size, in bytes, of the packets that wait for link addresses, for all neighbours together.
pub const NEIGHBOUR_QUEUE_BYTES_MAX: usize = 4 << 20;
/// Number of requests for a neighbour's link address. If none of them is answered, the packets to the neighbour are dropped
/// (RFC 4861 10).
pub const NEIGHBOUR_REQUESTS_MAX: u8 = 3;
/// Time between two requests to the same neighbour (RFC 4861 10, RFC 1122 2.3.2.1).
pub const NEIGHBOUR_RETRY: Duration = Duration::from_secs(1);
/// Time for which the link address in a neighbour's answer is used without another confirmation (RFC 4861 10).
pub const NEIGHBOUR_REACHABLE: Duration = Duration::from_secs(30);
/// Time from the first use of a link address that is older than [`NEIGHBOUR_REACHABLE`] to the request that confirms it (RFC 4861
/// 10).
pub const NEIGHBOUR_DELAY: Duration = Duration::from_secs(5);
/// Time after which an unused neighbour is removed.
pub const NEIGHBOUR_STALE: Duration = Duration::from_secs(600);
/// Maximum number of ICMP errors that a stack sends in a burst (RFC 4443 2.4 (f), RFC 1812 4.3.2.8).
pub const ICMP_ERRORS_BURST: u32 = 50;
/// Maximum number of ICMP errors that a stack sends per second, on average.
pub const ICMP_ERRORS_PER_SECOND: u32 = 1000;
/// Number of counters for IPv4 identifications. The number is large, so that few destinations share a counter.
pub const IPV4_IDENT_COUNTERS: usize = 2048;
/// Maximum size of an ICMP error over IPv4, in bytes: every host accepts a datagram of this size (RFC 1812 4.3.2.3).
pub const ICMPV4_ERROR_BYTES_MAX: usize = 576;
/// Maximum size of an ICMPv6 error, in bytes: the smallest MTU of IPv6 (RFC 4443 2.4 (c)).
pub const ICMPV6_ERROR_BYTES_MAX: usize = 1280;
/// Maximum number of extension headers in a packet. A packet with more is dropped (RFC 8504 5.3).
pub const EXTENSION_HEADERS_MAX: usize = 8;
/// Maximum number of datagrams whose fragments are being reassembled.
pub const REASSEMBLY_DATAGRAMS_MAX: usize = 256;
/// Maximum number of bytes in all fragments that wait for reassembly.
pub const REASSEMBLY_BYTES_MAX: usize = 4 << 20;
/// Maximum number of datagrams in reassembly from one device: half of [`REASSEMBLY_DATAGRAMS_MAX`], so that no device can fill
/// the table alone.
pub const REASSEMBLY_DEVICE_DATAGRAMS_MAX: usize = REASSEMBLY_DATAGRAMS_MAX / 2;
/// Maximum number of bytes in reassembly from one device: half of [`REASSEMBLY_BYTES_MAX`].
pub const REASSEMBLY_DEVICE_BYTES_MAX: usize = REASSEMBLY_BYTES_MAX / 2;
/// Maximum number of datagrams in reassembly from one source on one device: half of the device's quota.
pub const REASSEMBLY_SOURCE_DATAGRAMS_MAX: usize = REASSEMBLY_DEVICE_DATAGRAMS_MAX / 2;
/// Maximum number of bytes in reassembly from one source on one device: sixteen datagrams of the maximum size.
pub const REASSEMBLY_SOURCE_BYTES_MAX: usize = REASSEMBLY_DEVICE_BYTES_MAX / 2;
/// Maximum number of fragments of one datagram: enough for 64 KB over links with an MTU of 576 bytes.
pub const REASSEMBLY_PIECES_MAX: usize = 128;
/// Time after which an incomplete datagram is dropped. It is between the 15 s of RFC 791 and the 60 s of RFC 8200. With a longer
/// time, incomplete datagrams would occupy more memory.
pub const REASSEMBLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of destinations whose path MTU the stack stores.
pub const PATH_MTUS_MAX: usize = 1024;
/// Time for which a path MTU that a router reported is valid (RFC 8201 4).
pub const PATH_MTU_AGE: Duration = Duration::from_secs(600);
/// Time for which a sent datagram stays on record, so that ICMP errors about it can be checked. An error may arrive late: if a
/// neighbour does not answer, a router waits for three seconds before it reports an error.
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
/// Memory overhead of a queued datagram, in bytes. Because this overhead counts, [`UDP_QUEUE_BYTES_MAX`] also limits the number
/// of empty datagrams.
pub const UDP_DATAGRAM_OVERHEAD_BYTES: usize = 128;
/// Maximum number of times of sent datagrams that a UDP socket holds until its application takes them. Further times are discarded.
pub const UDP_SEND_TIMES_MAX: usize = 1_024;
/// Maximum number of reported ICMP errors in the error queue of a UDP socket.
pub const UDP_ERRORS_MAX: usize = 16;
/// Maximum number of multicast groups that the sockets of a stack have joined. A group counts once for each device. A group that
/// all sockets have left still counts until the stack has announced the leave. If the table is full, a join removes such a group
/// before the leave is announced. Routers then notice the leave by a timeout.
pub const GROUPS_MAX: usize = 4096;
/// Maximum number of groups that are joined on one device, for each IP version. With this limit, a few reports are enough to
/// answer a general query, which asks for all groups.
pub const GROUPS_DEVICE_MAX: usize = 256;
/// Maximum number of source addresses that the stack stores from a query about one group. If the query lists more sources, the
/// answer covers all sources. A report with 64 sources fits into a packet at any MTU.
pub const GROUP_QUERY_SOURCES_MAX: usize = 64;
/// Minimum time between two answers about the same group. No querier asks more often, because the unit of its interval between
/// queries about a group is 0.1 s (RFC 3376 8.8). The default interval is 1 s.
pub const GROUP_ANSWER_GAP: Duration = Duration::from_millis(100);
/// Longest time until a membership change is announced again in IGMPv3 and MLDv2, whose reports list many groups (RFC 3376 8.11,
/// RFC 3810 9.11).
pub const GROUP_CHANGE_REPEAT: Duration = Duration::from_secs(1);
/// Longest time until a membership change is announced again in earlier protocol versions, which send one report for each group
/// (RFC 2236 8.10, RFC 2710 7.10).
pub const GROUP_REPORT_REPEAT: Duration = Duration::from_secs(10);
/// Number of times that a membership change is announced, if no querier sets this number (RFC 3376 8.1). A querier can set it to
/// at most 7.
pub const GROUP_ROBUSTNESS: u8 = 2;
/// Interval between general queries, if no querier announces another interval (RFC 3376 8.2).
pub const GROUP_QUERY_INTERVAL: Duration = Duration::from_secs(125);
/// Maximum number of groups that one socket has joined. A group counts once for each device.
pub const UDP_GROUPS_MAX: usize = 64;
/// Maximum number of sockets that share an address and port, or a group and port on one device. Each socket that shares a group
/// receives its own copy of a datagram.
pub const UDP_SHARERS_MAX: usize = 64;
/// Maximum number of packets that a stack delivers to itself in one call.
pub const LOOPBACK_PACKETS_MAX: usize = 64;
/// Minimum payload of a full segment, in bytes, as in Linux. This value is used even if the peer's MSS or the path's MTU is
/// smaller. In smaller segments, headers and bookkeeping would need more CPU time than the payload.
pub const TCP_SEGMENT_BYTES_MIN: u16 = 48;
/// Smallest limit that an application can set for the payload of segments, as in Linux (`TCP_MAXSEG`).
pub const TCP_MAXSEG_MIN: u16 = 88;
/// Maximum number of full segments of a connection that are in flight: 5.9 MB at an MSS of 1,448. The limit bounds the CPU time
/// that an acknowledgement takes. With a tiny MSS, a connection therefore has few bytes in flight instead of a long list of
/// segments.
pub const TCP_SENT_MAX: u16 = 4_096;
/// Maximum number of entries in the list of sent segments. A SACK block that covers only a part of an entry splits the entry. If
/// the list is full, no entry is split, so the block has an effect only on entries that it covers completely.
pub const TCP_SENT_ENTRIES_MAX: usize = 2 * TCP_SENT_MAX as usize;
/// A connection with BBR has one record for each time at which it sent outstanding segments. Records of other segments are removed when
/// there are more records than twice the entries in the list of sent segments, plus this number.
pub const TCP_DEPARTURES_SPARE: usize = 64;
/// Maximum number of separate byte ranges that a connection has received out of order. A segment that would begin one more range
/// is dropped. The peer retransmits the segment later. So an attacker can occupy only a limited amount of memory.
pub const TCP_GAPS_MAX: usize = 256;
/// Maximum number of ends of records with unsent bytes that a connection remembers. Beyond it, a segment may have bytes of several
/// records.
pub const TCP_RECORD_ENDS_MAX: usize = 1_024;
/// Maximum number of unacknowledged writes of a connection whose times are reported. Beyond it, writes are not timed.
pub const TCP_TIMED_WRITES_MAX: usize = 1_024;
/// Maximum number of times of writes that a connection holds until its application takes them. Further times are discarded.
pub const TCP_SEND_TIMES_MAX: usize = 1_024;
/// Maximum number of pieces of received data whose arrival times a connection holds. Beyond it, pieces share the time of the last one.
pub const TCP_ARRIVALS_MAX: usize = 4_096;
/// Maximum size of a connection's buffer, in bytes. A window scale of 14 is enough to announce a buffer of this size (RFC 7323).
pub const TCP_BUFFER_BYTES_MAX: usize = 1 << 29;
/// Minimum time between two challenge ACKs of a connection, in milliseconds (RFC 5961 section 7), as in Linux. Each connection
/// has its own limit, because a shared one would reveal other connections to an attacker.
pub const TCP_CHALLENGE_MS_MIN: u64 = 500;
/// Maximum payload of a SYN, in bytes, that is stored until the connection opens: as many bytes as a segment in an Ethernet frame
/// has. The peer retransmits the rest.
pub const TCP_SYN_TEXT_BYTES_MAX: u16 = 1_460;
/// Default number of retransmissions of an unanswered SYN before the attempt to open a connection fails. It is one more than in Linux, so
/// that the attempts last three minutes (RFC 9293 MUST-23).
pub const TCP_SYN_RETRIES: u8 = 7;
/// Default number of retransmissions of a listener's SYN-ACK, as in Linux.
pub const TCP_SYN_ACK_RETRIES: u8 = 5;
/// Default number of retransmissions of a segment of an open connection, as in Linux: R2 of RFC 9293 section 3.8.3. They last more than
/// 100 s in total (SHLD-11).
pub const TCP_RETRIES: u8 = 15;
/// Number of retransmissions of one segment that indicate a problem on the path, as in Linux: R1 of RFC 9293 section 3.8.3
/// (SHLD-10).
pub const TCP_RETRIES_SUSPECT: u8 = 3;
/// Number of timeouts of a full segment that indicate a black hole, a router that drops large packets without an ICMP error. The
/// number is that of Linux (`tcp_retries1`). The segment size is then lowered, and lowered again after two more timeouts.
pub const TCP_BLACK_HOLE_TIMEOUTS: u8 = 3;
/// Number of lost probes of one segment size after which the size counts as too large (RFC 8899 section 5.1.2).
pub const TCP_PATH_PROBES_MAX: u8 = 3;
/// Number of retransmissions and probes after which a connection that no application uses any more is aborted, as in Linux.
/// Without this limit, a peer that keeps its window closed could keep the connection alive for ever.
pub const TCP_ORPHAN_RETRIES: u8 = 8;
/// Maximum number of prefixes that have their own settings of TCP. The limit is low, because each opening connection searches all of
/// them.
pub const TCP_ROUTE_SETTINGS_MAX: usize = 64;
/// Maximum initial congestion window that can be set, in segments. The default is 10 (RFC 6928).
pub const TCP_INITIAL_WINDOW_MAX: u8 = u8::MAX;
/// Smallest send buffer that an application gets if it requests a size, as in Linux, which reports twice this size.
pub const TCP_SEND_BUFFER_BYTES_MIN: usize = 2_304;
/// Smallest receive buffer that an application gets if it requests a size, as in Linux, which reports twice this size.
pub const TCP_RECEIVE_BUFFER_BYTES_MIN: usize = 1_152;
/// Default of the initial size of a send buffer. While unsent bytes are limited, a send buffer accepts at least this number of bytes at a
/// time.
pub const TCP_SEND_BUFFER_BYTES_FIRST: usize = 64 << 10;
/// Shortest duration of TIME-WAIT. It is long enough on networks within one host, because old segments and retransmitted FINs
/// arrive much earlier there.
pub const TCP_TIME_WAIT_MIN: Duration = Duration::from_secs(1);
/// Longest duration of TIME-WAIT: twice the MSL of RFC 9293 section 3.4.2.
pub const TCP_TIME_WAIT_MAX: Duration = Duration::from_secs(240);
/// Shortest user timeout: one millisecond, the unit of the option in Linux. A shorter timeout could end a connection before any
/// answer can arrive.
pub const TCP_USER_TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Least value of the minimum of the retransmission timeout: one millisecond, about a tick of the timing wheel.
pub const TCP_RTO_MIN_LEAST: Duration = Duration::from_millis(1);
/// Lifetime of a SYN cookie. For this time after the latest cookie, an acknowledgement that belongs to no connection may answer a
/// cookie. To check such an acknowledgement, the stack computes a hash.
pub const TCP_COOKIE_TIME: Duration = Duration::from_secs(128);
/// When the time of a deferred connection ([`TcpOptions::defer_accept`](crate::sockets::TcpOptions::defer_accept)) is over and the queue
/// of its listener is full, the stack tries again after this time.
pub(crate) const TCP_DEFERRED_RETRY_TIME: Duration = Duration::from_secs(1);
/// Maximum number of pairs of a local and a remote address for which the stack stores a Fast Open cookie. One more pair evicts the
/// pair whose cookie is the oldest.
pub const TCP_FAST_OPEN_PEERS_MAX: usize = 1_024;
/// Interval at which the stack replaces its Fast Open key. Cookies of the previous key stay valid for one more interval.
pub const TCP_FAST_OPEN_KEY_TIME: Duration = Duration::from_secs(24 * 3_600);
/// Time for which a Fast Open connection that the peer reset before the handshake was complete counts as pending, as in Linux (RFC
/// 7413 section 5.1).
pub const TCP_FAST_OPEN_RESET_TIME: Duration = Duration::from_secs(60);
/// Number of successive timeouts of a connection that opened with Fast Open that indicate a black hole, as in Linux.
pub const TCP_FAST_OPEN_BLACK_HOLE_TIMEOUTS: u8 = 3;
/// Default time for which active opens use no Fast Open after the first black hole.
pub const TCP_FAST_OPEN_BLACK_HOLE_TIME: Duration = Duration::from_secs(3_600);
/// Number of times that this time doubles, if more black holes are detected, as in Linux.
pub const TCP_FAST_OPEN_BLACK_HOLE_DOUBLINGS: u32 = 6;
/// Maximum number of connections of a stack, in all states except TIME-WAIT.
pub const TCP_CONNECTIONS_MAX: usize = 1 << 20;
/// Maximum number of listening sockets of a stack: one for every port.
pub const TCP_LISTENERS_MAX: usize = 65_536;
/// Maximum backlog of a listener, in connections.
pub const TCP_BACKLOG_MAX: usize = 65_536;
/// Maximum number of connections in TIME-WAIT: enough for connections from all 32,768 local ports to four remote ends (remote
/// address and port). One more connection evicts the oldest one.
pub const TCP_TIME_WAITS_MAX: usize = 1 << 17;
/// When the port table has more remote ends (remote address and port) than this number, the stack removes the ends for which no
/// local port is in use.
pub const TCP_ENDS_MAX: usize = 4_096;
/// Number of pages for all local ports of the connections to one remote end. A page is a bitmap of 4,096 ports.
pub const TCP_END_PORT_PAGES: usize = 8;
/// Maximum number of pages of local ports, for all remote ends together. The factor of two is needed because unused ends are
/// removed late.
pub const TCP_PORT_PAGES_MAX: usize =
    TCP_END_PORT_PAGES * (2 * (TCP_CONNECTIONS_MAX + TCP_TIME_WAITS_MAX) + TCP_ENDS_MAX);
/// Maximum number of segments that a connection sends before the next connection has its turn.
pub const TCP_BURST_FRAMES: u8 = 16;
/// Maximum number of buffers that no connection uses, and that the stack keeps for reuse by any connection.
pub const TCP_SPARES_MAX: usize = 64;
/// Maximum size, in bytes, of an unused buffer that the stack keeps for reuse.
pub const TCP_SPARE_BYTES_MAX: usize = 64 << 10;
/// Number of bytes that each direction of a connection may buffer even if buffer memory is short, so that every connection makes
/// progress.
pub const TCP_SOCKET_BYTES_FREE: usize = 4_096;
/// Default of the limit on the total size of all connections' buffers, in bytes.
pub const TCP_BUFFERS_BYTES_DEFAULT: usize = 1 << 30;
/// Maximum number of echo requests that wait for a reply.
pub const PINGS_MAX: usize = 64;
