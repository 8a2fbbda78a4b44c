//! The limits of rings, arenas and doorbells.

/// Largest buffer, and therefore the largest frame, in bytes: 64 KB, like the 16 pages of a QDIO buffer.
pub const BUFFER_BYTES_MAX: usize = 65_536;
/// Smallest buffer, in bytes. A buffer below the size of a cache line would save nothing.
pub const BUFFER_BYTES_MIN: usize = 64;
/// Most buffers of a ring: as many as a QDIO queue has.
pub const BUFFER_COUNT_MAX: usize = 128;
/// Fewest buffers of a ring. A ring with one buffer models a device with a single block in flight.
pub const BUFFER_COUNT_MIN: usize = 1;
/// Largest arena, in bytes.
pub const ARENA_BYTES_MAX: usize = 1 << 30;
/// Size of a doorbell's pipe, in bytes: one page, the smallest that Linux has. It also limits the notifications that can be queued.
pub const DOORBELL_PIPE_BYTES: usize = 4_096;
