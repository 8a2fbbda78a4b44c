//! Every bound of the ring, in one place.

/// Largest buffer, and so the largest frame: 64 KB, as QDIO's 16 elements of a page.
pub const BUFFER_BYTES_MAX: usize = 65_536;
/// Smallest buffer: less than a cache line saves nothing.
pub const BUFFER_BYTES_MIN: usize = 64;
/// Most buffers of a ring, as a QDIO queue has.
pub const BUFFER_COUNT_MAX: usize = 128;
/// Fewest buffers of any ring: one lets a point-to-point protocol model a single block in flight.
pub const BUFFER_COUNT_MIN: usize = 1;
/// Largest arena of sockets over shared memory.
pub const ARENA_BYTES_MAX: usize = 1 << 30;
/// Bytes of a doorbell's pipe: one page, which is what a ring needs at most and what a storm of rings can hold.
pub const DOORBELL_PIPE_BYTES: usize = 4_096;
