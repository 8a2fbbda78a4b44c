//! The limits of the protocol between applications and guests.

use std::time::Duration;

/// Maximum number of sockets that one application makes.
pub const APPLICATION_SOCKETS_MAX: usize = 16_384;
/// Number of buffers in each ring between an application and its guest. A buffer has room for many records, or for one datagram.
pub const APPLICATION_BUFFERS: usize = 64;
/// Maximum number of extents in one record, and in one send buffer.
pub const EXTENTS_MAX: usize = 4_096;
/// Maximum number of pieces of received bytes with their arrival times in one record.
pub const ARRIVALS_MAX: usize = 1_024;
/// Maximum number of pieces of received bytes whose arrival times an application holds for one connection. Beyond it, further bytes have
/// the time of the last piece.
pub const ARRIVALS_HELD_MAX: usize = 16_384;
/// Maximum number of times of sent bytes or datagrams in one record.
pub const SEND_TIMES_MAX: usize = 1_024;
/// Maximum number of times of sent bytes or datagrams that an application holds for one socket. Further times are discarded.
pub const SEND_TIMES_HELD_MAX: usize = 4_096;
/// Maximum number of bytes that an application may have in flight over one connection.
pub const SEND_BYTES_MAX: u64 = 32 << 20;
/// If the other connections of an application have more bytes than this in flight or unread, a connection gets smaller buffers.
/// So the used part of the arenas stays in the CPU caches.
pub const CROWDED_FROM_BYTES: usize = 512 << 10;
/// Maximum number of bytes that a connection may have in flight if the other connections have more than [`CROWDED_FROM_BYTES`].
pub const CROWDED_SEND_BYTES_MAX: usize = 128 << 10;
/// Smallest send buffer of a connection, as in Linux.
pub const SEND_BUFFER_BYTES_MIN: usize = 4_608;
/// Maximum number of events that an application processes in one call of `Client::work`.
pub const EVENTS_AT_ONCE_MAX: usize = 256;
/// Maximum number of bytes that one send passes to a connection.
pub const SEND_AT_ONCE_MAX: usize = 256 << 10;
/// Number of bytes that an application reads before it reports them to the guest. With a receive buffer of less than four times
/// this size, it reports after a quarter of the buffer. The number is not larger than a segment over shared memory. A receiver
/// does not open its window for less than a segment (RFC 9293, 3.8.6.2.2), so earlier reports would have no effect.
pub const CONSUMED_UNREPORTED_MAX: usize = 32 << 10;
/// How long an application may read more bytes of a connection before it reports them, while it does not wait. So a program that reads a few
/// bytes at a time does not fill the ring with reports.
pub const READ_REPORT_INTERVAL: Duration = Duration::from_micros(20);
/// Maximum number of connections of one listener that the guest has announced and the application has not yet accepted.
pub const INCOMING_MAX: u32 = 64;
/// Maximum number of connections of a pooled listener that an application expects in advance. A program that accepts them late gets
/// fewer.
pub const EXPECTED_MAX: u32 = 16;
/// Maximum number of sockets that one record names as shared. A record without numbers shares all sockets.
pub const SHARED_NUMBERS_MAX: usize = 4_096;
/// Maximum number of bytes in an application's queue of received datagrams. Further datagrams are dropped.
pub const DATAGRAM_QUEUE_BYTES_MAX: usize = 1 << 20;
/// Number of calls that move bytes of a connection, after which the application asks for a slot, so that TCP need not carry the bytes. A
/// connection with one request and one answer makes fewer.
pub const DIRECT_AFTER_CALLS: u32 = 8;
/// Number of bytes of a connection after which the application asks for a slot, whatever the number of calls.
pub const DIRECT_AFTER_BYTES: u64 = 64 << 10;
/// How often an application lets other threads run, and looks again where its peer stops to read memory. The peer says so at once.
pub const STOP_YIELDS_MAX: u32 = 100;
/// How many notifications of another application may wake this one although no word of the other one has changed. After that, the
/// connections with the other application return to TCP.
pub const WAKE_CREDIT_MAX: u32 = 1_024;
/// How many further such notifications each change of the other application's words permits. A sound application sends at most two
/// notifications for each change that its peer finds, and a few more when a connection begins and ends.
pub const CHANGE_CREDIT: u32 = 8;
/// How long an application that ends a stream waits for this. Then the connection is reset.
pub const STOP_TIME_MAX: Duration = Duration::from_millis(20);
/// Maximum number of bytes of one connection that a guest keeps, because an application has received them by memory and not read.
pub const REST_BYTES_MAX: usize = siga_ring::direct::Shape::STANDARD.slot_bytes();
/// Maximum number of these bytes in one record.
pub const REST_RECORD_BYTES_MAX: usize = 32 << 10;
/// Interval at which an application that never sleeps checks that its guest is alive.
pub const WAKE_FD_INTERVAL: Duration = Duration::from_millis(1);
/// How long a client that may not wait for its descriptors (`RLIMIT_NOFILE`) sleeps before it looks at them again.
pub const LIMITED_WAIT_MAX: Duration = Duration::from_micros(200);
/// Maximum time that a guest may take to answer a command.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
