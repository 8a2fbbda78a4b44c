//! The limits of the fabric: every bound, timeout and size has a name here.

use std::time::Duration;

/// Length in bytes of the largest received packet whose ACK may wait, so that it can be sent together with the application's answer
/// (decision 015). The ACK of a longer packet is sent immediately, because the sender may be waiting for it.
pub const HELD_ANSWER_BYTES_MAX: usize = 16 << 10;

/// How many counters one map of counters in a report may have. Further counters are discarded.
pub const COUNTERS_MAX: usize = 256;
/// Length limit of a counter's name in a report, in bytes.
pub const COUNTER_NAME_BYTES_MAX: usize = 64;
/// Default memory limit of a guest's process in bytes, without the memory of its rings and applications, which is added. The
/// stack's own limits add up to more than this, but only hundreds of thousands of sockets could use that much.
pub const MEMORY_BYTES_BASE: u64 = 1 << 30;
/// Address space in bytes that a process may have in addition to its memory limit. The program's code and call stack need it. So
/// does a new ring pair that is mapped while the pair that it replaces is still mapped.
pub const ADDRESS_SPACE_BYTES_EXTRA: u64 = 256 << 20;
/// How many descriptors a guest may have in addition to those of its ring pairs and applications. They include two memory files for each
/// couple of applications with direct connections.
pub const DESCRIPTORS_BASE: u64 = 128 + 2 * 128;
/// How many descriptors a guest may have for each ring pair or application: a notify and a wake descriptor, the socket over which
/// descriptors are passed, and memory files that are being passed to the partner.
pub const DESCRIPTORS_EACH: u64 = 7;
/// How often the removal of a control group is attempted. An attempt fails while the last process of the control group is still
/// ending.
pub const CGROUP_REMOVALS_MAX: u32 = 50;
/// The wait between two attempts to remove a control group.
pub const CGROUP_REMOVAL_WAIT: Duration = Duration::from_millis(10);

/// Length limit of one message between processes, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 128 << 10;
/// How many descriptors one message can pass.
pub const MESSAGE_DESCRIPTORS_MAX: usize = 5;
/// How many messages may wait in the outbox for one receiver. If the outbox is full, the sender treats the receiver as dead.
pub const OUTBOX_MESSAGES_MAX: usize = 8_192;
/// How many orders that one guest caused may wait for another guest. While this many wait, the control program refuses the first
/// guest's requests for a ring pair with the other guest.
pub const ORDERS_OF_ONE_MAX: usize = 16;
/// How many ring pairs a guest may request per second, after a burst of `pairs_max` requests.
pub const PAIRS_PER_SECOND: u64 = 100;
/// How many events of one guest the control program handles before it handles events of other guests.
pub const GUEST_EVENTS_AT_ONCE_MAX: usize = 64;
/// How many ring pairs one part of an inventory may list. The same limit applies to the applications in the part. (An inventory is
/// the list of pairs and applications that a running guest sends to a restarted control program.)
pub const INVENTORY_PART_MAX: usize = 64;
/// How many processes one part of the answer to a request for a sample may list.
pub const PROCESSES_PART_MAX: usize = 256;
/// How many connections of clients a control program may have at a time.
pub const CLIENTS_MAX: usize = 1_024;
/// How many connections a control program accepts in one turn of its event loop. In one turn, the control program serves more
/// clients than it accepts. So it serves a new client before [`CLIENTS_MAX`] later connections can displace this client.
pub const CONNECTIONS_AT_ONCE_MAX: usize = 16;
/// How long a control program without free descriptors waits before it accepts connections again.
pub const OUT_OF_DESCRIPTORS_WAIT: Duration = Duration::from_millis(10);
/// Time limit for the start of a guest, from the start of its process until it reports that it runs.
pub const START_TIME_MAX: Duration = Duration::from_secs(10);
/// While the process of a guest is replaced: time limit for the partners to stop sending, and then for the process to pass on its frames.
/// A guest that takes longer is not waited for.
pub const REPLACE_STEP_TIME_MAX: Duration = Duration::from_millis(100);
/// Maximum time that a request may wait until the control program starts to process it. A request that has waited longer is
/// refused.
pub const TAKE_UP_TIME_MAX: Duration = Duration::from_secs(5);
/// Time limit for a guest to send a report. A guest that was ordered to end and still runs after this time is killed.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// A guest that ran for at least this long before it failed is restarted immediately. A guest that failed sooner is restarted after
/// a wait.
pub const RESTART_SETTLED: Duration = Duration::from_secs(1);
/// The wait before the first delayed restart of a guest. Each further wait is twice as long.
pub const RESTART_WAIT: Duration = Duration::from_millis(100);
/// The longest wait before a restart of a guest.
pub const RESTART_WAIT_MAX: Duration = Duration::from_secs(5);
/// Size limit of the state file in bytes. The file contains the topology, three secrets for each guest, and the guests with access
/// to each restricted network, among others.
pub const STATE_BYTES_MAX: u64 = 64 << 20;
/// How many symbolic links are followed in the path of the directory that contains all networks. The kernel has the same limit for
/// a path.
pub const LINKS_MAX: usize = 40;
/// How many running processes (external guests and applications) may be attached to a network.
pub const ATTACHED_PROCESSES_MAX: usize = 16_384;
/// Size limit of the log file in bytes. A rotation keeps one former log file of the same size.
pub const LOG_BYTES_MAX: u64 = 8 << 20;
/// Length limit of a line of the log, in bytes. A longer text is cut.
pub const LOG_LINE_BYTES_MAX: usize = 2 << 10;
/// How many bytes of one log file all guests together may use, in addition to the [`LOG_GUEST_BYTES_MIN`] reserved for each guest.
pub const LOG_GUESTS_BYTES_MAX: u64 = 3 << 20;
/// How many bytes of one log file are reserved for each guest.
pub const LOG_GUEST_BYTES_MIN: u64 = 3 << 10;
/// Minimum age of a log file at which lines of guests can cause its rotation.
pub const LOG_KEPT_MIN: Duration = Duration::from_secs(3_600);
/// How many lines of the log a guest may cause in a burst, beyond its rate per second.
pub const LOG_GUEST_BURST_LINES: u64 = 512;
/// How many lines of the log a guest may cause per second after a burst.
pub const LOG_GUEST_LINES_PER_SECOND: u64 = 8;
/// How many bytes of the log a guest may cause in a burst, beyond its rate per second.
pub const LOG_GUEST_BURST_BYTES: u64 = 64 << 10;
/// How many bytes of the log a guest may cause per second after a burst.
pub const LOG_GUEST_BYTES_PER_SECOND: u64 = 2 << 10;
/// The time from the first omitted line of a guest until the log says how many lines were omitted.
pub const LOG_LEFT_OUT_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum time between two reads of a guest's standard error. Each read returns at most one page.
pub const STDERR_INTERVAL: Duration = Duration::from_millis(10);

/// Time limit of back-pressure on a link (decision 012). During back-pressure a router receives no frames from the link, because
/// the partner to which it would forward them has no empty buffer.
pub const BACKPRESSURE_TIME_MAX: Duration = Duration::from_millis(4);
/// After a router has received packets for two different partners from a link, it applies no back-pressure to this link for this
/// long. Back-pressure because of one partner would delay the packets for the other.
pub const MIXED_TIME: Duration = Duration::from_millis(100);
/// How many bytes of forwarded packets for one partner may wait, for each packet of the topology's `netdev_max_backlog`. Further packets
/// are dropped.
pub const BACKLOG_FRAME_BYTES: usize = 16 << 10;
/// How many blocks of private memory are kept for reuse. Forwarded packets that cannot be sent yet wait in such blocks. After they
/// were sent, the blocks are free.
pub const SPARE_FRAMES_MAX: usize = 64;
/// Length in bytes of the smallest payload that is sent or received by zero-copy. A received payload stays in its ring buffer until
/// it is read, and a sent one until it is acknowledged. If the ring needs the buffer earlier, the payload is copied out.
pub const ZERO_COPY_BYTES_MIN: usize = 8 << 10;
/// How long a retained buffer may keep its ring from sending, counted from the time when the buffer was sent. Then its payload is
/// copied out, so that the ring can reuse the buffer.
pub const RETAIN_TIME_MAX: Duration = Duration::from_millis(1);
/// Number of bytes after which a ring between co-located guests is filled from its first buffer again. What one guest has written is
/// then still in the second-level cache of the CPU when the next guest reads it (decision 035).
pub const COLOCATED_ROUND_BYTES: usize = 320 << 10;
/// How many packets of the stack one link sends before the other links may send theirs.
pub const TRANSMIT_AT_ONCE_MAX: usize = 64;
/// How many frames are received from one link before frames of other links are received.
pub const RECEIVE_AT_ONCE_MAX: usize = 32;
/// How many packets one transmit call drops at most because the partner has no empty buffer. It applies to networks with the rule
/// `drop` for full rings.
pub const DROPS_AT_ONCE_MAX: usize = 128;
/// A guest no longer polls a ring from which it has received no frame for this long.
pub const HOT_TIME: Duration = Duration::from_millis(1);
/// The same time if the guest never sleeps: notifications would make a modelled link of up to 1.5 ms late by more than 5%.
pub const HOT_TIME_POLLING: Duration = Duration::from_millis(3);
/// The number of rings that a guest polls again after a sleep. A guest with traffic on more rings waits for notifications on the others,
/// because each sleep requests a notification from each polled ring.
pub const HOT_AFTER_SLEEP_MAX: usize = 16;
/// The interval at which a process that is too busy to sleep asks the kernel which descriptors are ready.
pub const EVENTS_INTERVAL: Duration = Duration::from_micros(50);
/// After a ring pair was refused, the guest waits for this long before it requests the pair again.
pub const REFUSED_TIME: Duration = Duration::from_secs(5);
/// How many reconnecting control programs may be connected to a guest at a time.
pub const RECONNECTING_MAX: usize = 4;
/// How many bytes of a capture may wait until its reader reads them. Further frames are not captured.
pub const CAPTURE_BYTES_MAX: usize = 4 << 20;
/// The time slice that the processes of a network request from the scheduler. With a shorter slice, a process that wakes gets the
/// CPU sooner.
pub const SLICE: Duration = Duration::from_micros(100);

/// The number of elements of a buffer of an OSA-Express adapter.
pub const QDIO_ELEMENTS: usize = 16;
/// The number of bytes that one element of a buffer covers: a page.
pub const QDIO_ELEMENT_BYTES: usize = 4_096;
/// The number of buffers in each output queue of an OSA-Express adapter.
pub const QDIO_QUEUE_BUFFERS: usize = 128;

/// How many Ethernet addresses a switch knows at most. Frames to an address that it does not know go to all ports.
pub const SWITCH_MACS_MAX: usize = 16_384;
/// How many learned Ethernet addresses one port of a switch may have, so that no port can fill the table alone.
pub const SWITCH_MACS_OF_PORT_MAX: usize = SWITCH_MACS_MAX / 4;
/// The time without frames after which a switch forgets a learned Ethernet address, in nanoseconds (IEEE 802.1Q 8.8.3: 300 s).
pub const SWITCH_AGE_NS: u64 = 300_000_000_000;

/// How many Ethernet addresses one part of a switch's report has. All parts of one report fit into the outbox of a channel: also if each of
/// the 1,000 ports has 256 VLANs.
pub const REPORT_ADDRESSES_MAX: usize = 512;

/// Smallest payload of the segments into which a large segment is cut, as in Linux. With a smaller one, a station could make the
/// switch or another kernel send a thousand frames for one.
pub const SEGMENT_BYTES_MIN: u16 = 48;
/// How many IPv6 extension headers a switch skips to find the protocol of a packet.
pub const EXTENSIONS_MAX: usize = 8;
/// The smallest number of flooded frames that a silent port may send at any rate: enough for address resolution and neighbour discovery
/// of a station that starts.
pub const FLOOD_BURST_MIN: u64 = 64;

/// How many accounting records one message has. 256 records with the longest names fit into a message.
pub const ACCOUNTS_PART_MAX: usize = 256;
/// How many requests for addresses a switch answers at one port per second. A client sends a few when it starts.
pub const REQUESTS_PER_SECOND: u32 = 20;
/// The time between two router advertisements to a port, in nanoseconds: a third of the time for which a router is used.
pub const ADVERTISE_INTERVAL_NS: u64 = 600_000_000_000;

/// The longest configuration of the container network interface, in bytes.
pub const CNI_INPUT_BYTES_MAX: u64 = 1 << 20;
/// The longest name of a namespace that joins a port, in bytes.
pub const TENANT_BYTES_MAX: usize = 400;
/// The most addresses in one answer about hosts.
pub const HOSTS_PART_MAX: usize = 256;
/// The time between two attempts to make the TAP device of a port whose namespace does not exist.
pub const PORT_RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// How many unread bytes a connection of an application may have while the application's other connections have more than
/// [`siga_iucv::limits::CROWDED_FROM_BYTES`] unread bytes.
pub const CROWDED_RECEIVE_BYTES_MAX: u32 = 256 << 10;
/// One in this many blocks of an arena is reserved for segments that arrive in order. (An arena is shared memory for the bytes of
/// an application's sockets.) Segments that arrive out of order cannot use the reserved blocks.
pub const RESERVE_DIVISOR: usize = 8;
/// How many answers to one application's commands may wait for room in the ring. While this many wait, the guest handles no further
/// commands of the application.
pub const REPLIES_MAX: usize = 1_024;
/// Maximum number of times that applications of a guest have shared sockets which no other application has inherited yet.
pub const BEQUESTS_MAX: usize = 1_024;
/// Maximum number of these times of one application.
pub const BEQUESTS_OF_APPLICATION_MAX: usize = 256;
/// Maximum time between the moment at which a process shares its sockets and the moment at which another process inherits them.
pub const BEQUEST_TIME_MAX: Duration = Duration::from_secs(5);
/// How long an application may have a connection of a pooled listener without accepting it, while another application expects one.
pub const HANDED_TIME_MAX: Duration = Duration::from_millis(5);
/// How many connections of one guest may wait for a slot until their other end asks for one. Further ones stay with TCP.
pub const DIRECT_WANTED_MAX: usize = 16_384;
/// How many couples one application may have. A couple has 64 connections to one other application.
pub const DIRECT_COUPLES_OF_APPLICATION_MAX: usize = 64;
/// How many bytes the memory files for direct connections of one guest's applications may have. The kernel allocates pages on first use.
pub const DIRECT_BYTES_MAX: u64 = 2 << 30;
/// How long a couple stays without connections. Then its memory goes back to the host.
pub const DIRECT_IDLE_TIME: Duration = Duration::from_secs(1);
/// How many bytes the guest keeps that its applications have received by memory and not read before other processes took the connections
/// over. Further connections of this kind are reset.
pub const DIRECT_RESTS_BYTES_MAX: usize = 64 << 20;
/// How many commands of one application the guest handles before it handles commands of other applications.
pub const COMMANDS_AT_ONCE_MAX: usize = 256;
