//! The limits of rings, arenas and doorbells.

/// Maximum size of a buffer, and therefore of a frame, in bytes: 64 KB, like the 16 pages of a buffer in QDIO (the I/O
/// architecture of z/VM's network devices).
pub const BUFFER_BYTES_MAX: usize = 65_536;
/// Minimum size of a buffer, in bytes. A buffer smaller than a cache line would save no memory.
pub const BUFFER_BYTES_MIN: usize = 64;
/// Maximum number of buffers in a ring: the number of buffers in a QDIO queue.
pub const BUFFER_COUNT_MAX: usize = 128;
/// Minimum number of buffers in a ring. A ring with one buffer models a device that can have only one block in flight.
pub const BUFFER_COUNT_MIN: usize = 1;
/// Maximum size of an arena, in bytes.
pub const ARENA_BYTES_MAX: usize = 1 << 30;
/// Size of a doorbell's pipe, in bytes: one page, the smallest size that Linux supports. The size also limits the number of
/// queued notifications.
pub const DOORBELL_PIPE_BYTES: usize = 4_096;
/// Minimum number of buffers that a producer fills before it fills the first one again, if the ring is as long as that.
pub const ROUND_LEAST: usize = 6;
