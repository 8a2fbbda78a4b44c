//! Bounds that the network and the laboratory share: of topologies, and of texts in messages.

/// Bytes of the name of a topology, guest, network or device.
pub const NAME_BYTES_MAX: usize = 32;
/// Bytes of a topology's file.
pub const TOPOLOGY_BYTES_MAX: u64 = 1 << 20;
/// Guests of one topology.
pub const GUESTS_MAX: usize = 1_024;
/// Networks of one topology.
pub const NETWORKS_MAX: usize = 1_024;
/// Devices of one guest.
pub const DEVICES_MAX: usize = 16;
/// Partners on one network. A guest's stack has a device for each.
pub const MEMBERS_MAX: usize = 512;
/// Addresses of one device.
pub const ADDRESSES_MAX: usize = 8;
/// Routes of one guest.
pub const ROUTES_MAX: usize = 1_024;
/// Prefixes of a guest's sources: they fit into one message.
pub const SOURCES_MAX: usize = 2_048;

/// Least number of buffers of an inbound ring; a topology's value is clamped (devices.md, `buffer_count`).
pub const BUFFER_COUNT_MIN: u16 = 8;
/// Largest number of buffers of an inbound ring.
pub const BUFFER_COUNT_MAX: u16 = 128;
/// Buffers of an inbound ring by default.
pub const BUFFER_COUNT_DEFAULT: u16 = 32;
/// A HiperSockets frame's size minus its MTU (devices.md, HiperSockets).
pub const HIPERSOCKETS_OVERHEAD_BYTES: u32 = 8 << 10;
/// Least buffer of a virtual CTC: an MTU of 576 and the headers of block and segment.
pub const VCTC_BUFFER_BYTES_MIN: u32 = 576 + VCTC_OVERHEAD_BYTES;
/// Buffer of a virtual CTC by default.
pub const VCTC_BUFFER_BYTES_DEFAULT: u32 = 32_768;
/// Largest buffer of a virtual CTC.
pub const VCTC_BUFFER_BYTES_MAX: u32 = 65_535;
/// A virtual CTC's buffer size minus its MTU: the headers of a block and of a segment.
pub const VCTC_OVERHEAD_BYTES: u32 = 8;
/// Least MTU of a device without IPv6 address.
pub const MTU_IPV4_MIN: u32 = 576;
/// Least MTU of a device with an IPv6 address (RFC 8200, section 5).
pub const MTU_IPV6_MIN: u32 = 1_280;

/// Ring pairs of one guest by default.
pub const PAIRS_DEFAULT: u32 = 512;
/// Bytes of a guest's ring memory by default.
pub const RING_BYTES_DEFAULT: u64 = 2 << 30;
/// Least memory that a topology may allow to a guest's process.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// Seconds without traffic after which a ring pair is given back, by default.
pub const IDLE_SECONDS_DEFAULT: u32 = 60;
/// Applications that use a guest's stack at a time, by default.
pub const APPLICATIONS_DEFAULT: u32 = 16;
/// Most applications that a topology may set.
pub const APPLICATIONS_MAX: u32 = 1_024;
/// Bytes of each of the two arenas of an application by default. The kernel provides memory when it is touched.
pub const ARENA_BYTES_DEFAULT: u64 = 64 << 20;
/// Smallest arena that a topology may set.
pub const ARENA_BYTES_MIN: u64 = 1 << 20;
/// Largest arena that a topology may set.
pub const ARENA_BYTES_MAX: u64 = 1 << 30;

/// Bytes of one text in a message: a reason, a version, a description. A longer one is cut when the message is read.
pub const TEXT_BYTES_MAX: usize = 1_024;
