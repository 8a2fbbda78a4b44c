//! Every bound of the protocol between applications and guests, by name.

use std::time::Duration;

/// Sockets of one application.
pub const APPLICATION_SOCKETS_MAX: usize = 16_384;
/// Buffers of each ring between an application and its guest. A buffer has room for many records, or a datagram.
pub const APPLICATION_BUFFERS: usize = 64;
/// Extents in one record, and in one send buffer.
pub const EXTENTS_MAX: usize = 4_096;
/// Bytes that an application may have under way over one connection.
pub const SEND_BYTES_MAX: u64 = 32 << 20;
/// If the other connections of an application have more bytes than this under way, or unread, each connection gets smaller buffers, so
/// that the used part of the arenas stays in the CPU caches.
pub const CROWDED_FROM_BYTES: usize = 512 << 10;
/// Bytes that a connection may have under way then.
pub const CROWDED_SEND_BYTES_MAX: usize = 128 << 10;
/// Events that an application takes before it handles them.
pub const EVENTS_AT_ONCE_MAX: usize = 256;
/// Bytes that an application gives to one connection at a time.
pub const SEND_AT_ONCE_MAX: usize = 256 << 10;
/// Bytes that an application reads before it reports them to the guest, unless its receive buffer is less than four times as large. This
/// is at most one segment over shared memory: a receiver does not open its window for less (RFC 9293, 3.8.6.2.2).
pub const CONSUMED_UNREPORTED_MAX: usize = 32 << 10;
/// Connections of one listener that are announced to its application before it accepts them.
pub const INCOMING_MAX: u32 = 64;
/// Bytes of received datagrams that wait in an application. Further datagrams are dropped.
pub const DATAGRAM_QUEUE_BYTES_MAX: usize = 1 << 20;
/// How often an application that never sleeps checks that its guest lives.
pub const WAKE_FD_INTERVAL: Duration = Duration::from_millis(1);
/// How long a guest may take to answer a command.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
