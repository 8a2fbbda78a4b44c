//! Every bound of the fabric, by name.

use std::time::Duration;

/// The largest packet whose answer may wait for what an application says to it.
pub const HELD_ANSWER_BYTES_MAX: usize = 16 << 10;

/// Counters of one kind in a part of a report.
pub const COUNTERS_MAX: usize = 256;
/// Bytes of a counter's name in a report.
pub const COUNTER_NAME_BYTES_MAX: usize = 64;
/// Default memory of a guest's process beside its rings and its applications. The stack's own bounds add up to more, but only with
/// hundreds of thousands of sockets.
pub const MEMORY_BYTES_BASE: u64 = 1 << 30;
/// Address space of a process beside the memory that it uses: the program, its stack, and a pair that is made again.
pub const ADDRESS_SPACE_BYTES_EXTRA: u64 = 256 << 20;
/// Descriptors of a guest beside those of its pairs and applications.
pub const DESCRIPTORS_BASE: u64 = 128;
/// Descriptors of a guest for each pair or application: two doorbells, and memory files in flight.
pub const DESCRIPTORS_EACH: u64 = 6;
/// Attempts to remove a control group, whose last process may still be ending.
pub const CGROUP_REMOVALS_MAX: u32 = 50;
/// The wait between two such attempts.
pub const CGROUP_REMOVAL_WAIT: Duration = Duration::from_millis(10);

/// Bytes of one message between processes.
pub const MESSAGE_BYTES_MAX: usize = 128 << 10;
/// Descriptors with one message.
pub const MESSAGE_DESCRIPTORS_MAX: usize = 4;
/// Messages that wait for a receiver. A receiver that falls further behind counts as dead.
pub const OUTBOX_MESSAGES_MAX: usize = 8_192;
/// Orders that wait for a guest because of one other guest. While there are this many, the other guest gets no new pair with it.
pub const ORDERS_OF_ONE_MAX: usize = 16;
/// Pairs that one guest may ask for in a second, after a burst of `pairs_max`.
pub const PAIRS_PER_SECOND: u64 = 100;
/// Events of one guest that are handled before other guests have their turn.
pub const GUEST_EVENTS_AT_ONCE_MAX: usize = 64;
/// Pairs, and applications, in one part of an inventory.
pub const INVENTORY_PART_MAX: usize = 64;
/// Connections to a control program at a time.
pub const CLIENTS_MAX: usize = 1_024;
/// Connections that a control program accepts in a turn. It serves more clients in a turn than it accepts, so that a new client is
/// served before [`CLIENTS_MAX`] others push it out.
pub const CONNECTIONS_AT_ONCE_MAX: usize = 16;
/// How long a control program without a free descriptor waits before it tries again.
pub const OUT_OF_DESCRIPTORS_WAIT: Duration = Duration::from_millis(10);
/// How long a guest may take from its start until it runs.
pub const START_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a control program may take to take up a request. Afterwards the request is void.
pub const TAKE_UP_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a guest may take to report, and to end before it is killed.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// A guest that ran this long is started again at once. One that ended sooner waits.
pub const RESTART_SETTLED: Duration = Duration::from_secs(1);
/// The first such wait. Each further one is twice as long.
pub const RESTART_WAIT: Duration = Duration::from_millis(100);
/// The longest such wait.
pub const RESTART_WAIT_MAX: Duration = Duration::from_secs(5);
/// Bytes of the state file: a topology, three secrets a guest, and for each restricted network its guests.
pub const STATE_BYTES_MAX: u64 = 64 << 20;
/// Links in the path of the directory of all networks: as many as the kernel follows.
pub const LINKS_MAX: usize = 40;
/// Living processes that are attached to a network.
pub const ATTACHED_PROCESSES_MAX: usize = 16_384;
/// Bytes of the log. A rotation keeps one former log of the same size.
pub const LOG_BYTES_MAX: u64 = 8 << 20;
/// Bytes of one line of the log. A longer text is cut.
pub const LOG_LINE_BYTES_MAX: usize = 2 << 10;
/// Bytes of one log file for the lines of all guests together, beyond the [`LOG_GUEST_BYTES_MIN`] of each.
pub const LOG_GUESTS_BYTES_MAX: u64 = 3 << 20;
/// Bytes of one log file that are reserved for each guest.
pub const LOG_GUEST_BYTES_MIN: u64 = 3 << 10;
/// Lines of guests cannot rotate a log file that is younger.
pub const LOG_KEPT_MIN: Duration = Duration::from_secs(3_600);
/// Lines that a guest may cause at once.
pub const LOG_GUEST_BURST_LINES: u64 = 512;
/// Lines that a guest may cause in a second, after that burst.
pub const LOG_GUEST_LINES_PER_SECOND: u64 = 8;
/// Bytes of lines that a guest may cause at once.
pub const LOG_GUEST_BURST_BYTES: u64 = 64 << 10;
/// Bytes of lines that a guest may cause in a second, after that burst.
pub const LOG_GUEST_BYTES_PER_SECOND: u64 = 2 << 10;
/// The time from a guest's first line that was left out to the line with the count.
pub const LOG_LEFT_OUT_INTERVAL: Duration = Duration::from_secs(5);
/// The least time between two reads of a guest's standard error. Each read takes a page.
pub const STDERR_INTERVAL: Duration = Duration::from_millis(10);

/// How long back-pressure lasts: the time without taking frames from a link whose packets are for a partner without empty buffers.
pub const BACKPRESSURE_TIME_MAX: Duration = Duration::from_millis(4);
/// A link that carried packets for two partners gets no back-pressure for this long.
pub const MIXED_TIME: Duration = Duration::from_millis(100);
/// Forwarded packets for one partner that wait for buffers or a link. Further ones are dropped.
pub const BACKLOG_FRAMES_MAX: usize = 256;
/// Bytes of these packets.
pub const BACKLOG_BYTES_MAX: usize = 4 << 20;
/// Buffers of packets that have waited, kept for later packets.
pub const SPARE_FRAMES_MAX: usize = 64;
/// The smallest payload without copies. A received payload stays in its ring buffer until it is read, and a sent one until it is
/// acknowledged, unless the buffer is needed before.
pub const ZERO_COPY_BYTES_MIN: usize = 8 << 10;
/// How long a retained buffer may delay its ring, counted from the time when it was sent. Then its payload is copied out.
pub const RETAIN_TIME_MAX: Duration = Duration::from_millis(1);
/// Packets that a stack gives to one link before others have their turn.
pub const TRANSMIT_AT_ONCE_MAX: usize = 64;
/// Frames taken from one link before others have their turn.
pub const RECEIVE_AT_ONCE_MAX: usize = 32;
/// Packets that are dropped at a time for a full partner, by the rule of its connectivity type.
pub const DROPS_AT_ONCE_MAX: usize = 128;
/// A ring without a frame for this long is no longer polled.
pub const HOT_TIME: Duration = Duration::from_millis(1);
/// How often a process that never sleeps asks the kernel for events.
pub const EVENTS_INTERVAL: Duration = Duration::from_micros(50);
/// How long a guest does not ask again for a pair that was refused.
pub const REFUSED_TIME: Duration = Duration::from_secs(5);
/// Reconnecting control programs of a guest at a time.
pub const RECONNECTING_MAX: usize = 4;
/// Bytes of a capture that wait for their reader.
pub const CAPTURE_BYTES_MAX: usize = 4 << 20;
/// The time slice that processes of a network ask for. With a shorter slice, a process that wakes gets the CPU sooner.
pub const SLICE: Duration = Duration::from_micros(100);

/// Bytes that a connection may have unread while those of other connections exceed [`siga_iucv::limits::CROWDED_FROM_BYTES`].
pub const CROWDED_RECEIVE_BYTES_MAX: u32 = 256 << 10;
/// One in this many blocks of an arena is reserved for bytes that are received in order.
pub const RESERVE_DIVISOR: usize = 8;
/// Answers to commands that wait for room. While there are this many, the guest takes no command.
pub const REPLIES_MAX: usize = 1_024;
/// Commands of one application that are handled before others have their turn.
pub const COMMANDS_AT_ONCE_MAX: usize = 256;
