//! Every bound of the simulated world, in one place. Exceeding one is counted, or ends the run as a violation.

/// Nodes of a world; a device names its node by 16 bits.
pub const NODES_MAX: usize = 1_024;
/// Links of a world.
pub const LINKS_MAX: usize = 4_096;
/// Devices of one node.
pub const DEVICES_MAX: usize = 64;
/// Frames in flight in one direction of a link; one more is dropped and counted. More than 100 ms of the smallest frames
/// at 100 Mbit/s.
pub const FRAMES_IN_FLIGHT_MAX: usize = 65_536;
/// Their bytes: half a second at 1 Gbit/s.
pub const BYTES_IN_FLIGHT_MAX: usize = 64 << 20;
/// Frames waiting for their turn at a link with a rate, whatever the link's own setting says.
pub const FRAMES_QUEUED_MAX: usize = 16_384;
/// Events waiting for their time, of all links, nodes and schedules together.
pub const EVENTS_PENDING_MAX: usize = 1 << 20;
/// Frames that one node may send while time stands still. A node that sends more never stops.
pub const FRAMES_PER_INSTANT_MAX: u32 = 100_000;
/// Times that one node may be woken while time stands still. More means that its handler does not move the deadline.
pub const WAKES_PER_INSTANT_MAX: u32 = 1_000;
/// Times that one node may be woken in a second of virtual time: hundreds of connections that each do something every
/// millisecond. More means that its deadline hardly moves.
pub const WAKES_PER_SECOND_MAX: u32 = 200_000;
/// Bits that corruption flips in one frame.
pub const FLIPPED_BITS_MAX: u8 = 64;
/// Bytes of one link's capture; what comes after is left out and counted.
pub const CAPTURE_BYTES_MAX: usize = 64 << 20;
