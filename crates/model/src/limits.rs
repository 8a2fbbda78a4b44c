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
/// Partners on one network, which a guest's stack knows as a device each.
pub const MEMBERS_MAX: usize = 512;
/// Addresses of one device.
pub const ADDRESSES_MAX: usize = 8;
/// Routes of one guest.
pub const ROUTES_MAX: usize = 1_024;
/// Prefixes of sources that a partner is known by: they fit into one message.
pub const SOURCES_MAX: usize = 2_048;

/// Buffers of an inbound ring: what is asked for is clamped to these (devices.md, `buffer_count`).
pub const BUFFER_COUNT_MIN: u16 = 8;
/// See [`BUFFER_COUNT_MIN`].
pub const BUFFER_COUNT_MAX: u16 = 128;
/// Buffers where nothing is asked for.
pub const BUFFER_COUNT_DEFAULT: u16 = 32;
/// What a HiperSockets frame has beyond the MTU (devices.md, HiperSockets).
pub const HIPERSOCKETS_OVERHEAD_BYTES: u32 = 8 << 10;
/// Least buffer of a virtual CTC: an MTU of 576 and the headers of block and segment.
pub const VCTC_BUFFER_BYTES_MIN: u32 = 576 + VCTC_OVERHEAD_BYTES;
/// Buffer of a virtual CTC where nothing is asked for.
pub const VCTC_BUFFER_BYTES_DEFAULT: u32 = 32_768;
/// Largest buffer of a virtual CTC.
pub const VCTC_BUFFER_BYTES_MAX: u32 = 65_535;
/// What a virtual CTC's buffer has beyond the MTU: a block's header and a segment's.
pub const VCTC_OVERHEAD_BYTES: u32 = 8;
/// Least MTU of a device with IPv4 addresses alone.
pub const MTU_IPV4_MIN: u32 = 576;
/// Least MTU of a device with an IPv6 address (RFC 8200, section 5).
pub const MTU_IPV6_MIN: u32 = 1_280;

/// Ring pairs of one guest, where the topology sets nothing.
pub const PAIRS_DEFAULT: u32 = 512;
/// Bytes of a guest's ring memory, where the topology sets nothing.
pub const RING_BYTES_DEFAULT: u64 = 2 << 30;
/// Least memory that a topology may allow to a guest's process.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// After so many seconds without traffic a pair is given back, where the topology says nothing.
pub const IDLE_SECONDS_DEFAULT: u32 = 60;
/// Applications that use a guest's stack at a time, where the topology sets nothing.
pub const APPLICATIONS_DEFAULT: u32 = 16;
/// Most that a topology may set.
pub const APPLICATIONS_MAX: u32 = 1_024;
/// Bytes of each of the two arenas of an application, where the topology sets nothing. Memory is taken when it is touched.
pub const ARENA_BYTES_DEFAULT: u64 = 64 << 20;
/// Least that a topology may set.
pub const ARENA_BYTES_MIN: u64 = 1 << 20;
/// Most that a topology may set.
pub const ARENA_BYTES_MAX: u64 = 1 << 30;

/// Bytes of one text in a message: a reason, a version, a description. A longer one is cut when the message is read.
pub const TEXT_BYTES_MAX: usize = 1_024;
