//! All limits of the simulated world. If a limit is exceeded, a frame is dropped and counted, building the world fails, or the run
//! ends with a violation.

/// Maximum number of nodes in a world. Node ids have 16 bits.
pub const NODES_MAX: usize = 1_024;
/// Maximum number of links in a world.
pub const LINKS_MAX: usize = 4_096;
/// Maximum number of devices of one node.
pub const DEVICES_MAX: usize = 64;
/// Maximum number of frames in flight in one direction of a link. The link drops and counts further frames. At 100 Mbit/s, this
/// number is more than 100 ms of frames of the smallest size.
pub const FRAMES_IN_FLIGHT_MAX: usize = 65_536;
/// Maximum number of bytes in flight in one direction of a link. At 1 Gbit/s, this number is half a second.
pub const BYTES_IN_FLIGHT_MAX: usize = 64 << 20;
/// Maximum number of frames in the send queue of a link with a limited rate. If a link's own setting is higher, this limit is
/// used.
pub const FRAMES_QUEUED_MAX: usize = 16_384;
/// Maximum number of events that are scheduled at the same time, for all links, nodes and schedules together.
pub const EVENTS_PENDING_MAX: usize = 1 << 20;
/// Maximum number of frames that one node may send without virtual time passing. A node that sends more probably never stops.
pub const FRAMES_PER_INSTANT_MAX: u32 = 100_000;
/// Maximum number of times that the world wakes one node without virtual time passing. A node that exceeds this number does not
/// set a later deadline when it is woken.
pub const WAKES_PER_INSTANT_MAX: u32 = 1_000;
/// Maximum number of times that the world wakes one node in a second of virtual time. Hundreds of connections that each act every
/// millisecond stay below this number. A node that exceeds it moves its deadline by too little each time.
pub const WAKES_PER_SECOND_MAX: u32 = 200_000;
/// Maximum number of bits that corruption flips in one frame.
pub const FLIPPED_BITS_MAX: u8 = 64;
/// Maximum number of bytes in the capture of one link. Frames that do not fit are left out and counted.
pub const CAPTURE_BYTES_MAX: usize = 64 << 20;
