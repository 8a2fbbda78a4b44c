//! Limits that the virtual network and the laboratory share: those of topologies and of texts in messages.

/// Longest name of a topology, guest, network or device, in bytes.
pub const NAME_BYTES_MAX: usize = 32;
/// Largest topology file, in bytes.
pub const TOPOLOGY_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of guests of one topology.
pub const GUESTS_MAX: usize = 1_024;
/// Maximum number of networks of one topology.
pub const NETWORKS_MAX: usize = 1_024;
/// Maximum number of devices of one guest.
pub const DEVICES_MAX: usize = 16;
/// Maximum number of partners that a guest has on one network. The guest's stack has a device for each.
pub const MEMBERS_MAX: usize = 512;
/// Maximum number of addresses of one device.
pub const ADDRESSES_MAX: usize = 8;
/// Maximum number of routes of one guest.
pub const ROUTES_MAX: usize = 1_024;
/// Maximum number of TCP settings of a guest, and of each of its routes.
pub const TCP_SETTINGS_MAX: usize = 64;
/// Maximum number of prefixes in the list of source addresses that a guest may use. A list of this length fits into one message.
pub const SOURCES_MAX: usize = 2_048;

/// Smallest number of buffers of an inbound ring. A smaller value in a topology is raised to it, as z/VM does.
pub const BUFFER_COUNT_MIN: u16 = 8;
/// Largest number of buffers of an inbound ring. A larger value in a topology is lowered to it.
pub const BUFFER_COUNT_MAX: u16 = 128;
/// Default number of buffers of an inbound ring.
pub const BUFFER_COUNT_DEFAULT: u16 = 32;
/// Default of the most packets that wait in a guest or switch for one partner.
pub const NETDEV_BACKLOG_DEFAULT: u32 = 256;
/// Largest number of packets that can wait in a guest or switch for one partner.
pub const NETDEV_BACKLOG_MAX: u32 = 16_384;
/// Difference between the frame size of a HiperSockets network and its MTU.
pub const HIPERSOCKETS_OVERHEAD_BYTES: u32 = 8 << 10;
/// Smallest buffer of a virtual CTC: an MTU of 576, a block header and a segment header.
pub const VCTC_BUFFER_BYTES_MIN: u32 = 576 + VCTC_OVERHEAD_BYTES;
/// Default buffer size of a virtual CTC.
pub const VCTC_BUFFER_BYTES_DEFAULT: u32 = 32_768;
/// Largest buffer of a virtual CTC.
pub const VCTC_BUFFER_BYTES_MAX: u32 = 65_535;
/// Difference between the buffer size of a virtual CTC and its MTU: a block header and a segment header.
pub const VCTC_OVERHEAD_BYTES: u32 = 8;
/// Size of the buffer of a path of type netiucv: the longest message without its last field. This is the default and the largest size.
pub const NETIUCV_BUFFER_BYTES: u32 = 32_768;
/// Smallest buffer of a path of type netiucv: an MTU of 576 and the field before a packet.
pub const NETIUCV_BUFFER_BYTES_MIN: u32 = 576 + NETIUCV_FIELD_BYTES;
/// Length of the fields before the packets of a message of type netiucv, and of the last field.
pub const NETIUCV_FIELD_BYTES: u32 = 2;
/// Default MTU on a network of type netiucv.
pub const NETIUCV_MTU_DEFAULT: u32 = 9_216;
/// Default message limit of a path of type netiucv: the number of buffers of a ring.
pub const NETIUCV_MESSAGES: u16 = 50;
/// Size of the packing buffer of a network of type claw: the longest block. This is the default and the largest size.
pub const CLAW_BUFFER_BYTES: u32 = 32_768;
/// Size of a frame of CLAW, which is the smallest packing buffer and the default MTU.
pub const CLAW_FRAME_BYTES: u32 = 4_096;
/// Bytes of the packing buffer that packets of CLAW cannot use.
pub const CLAW_UNUSED_BYTES: u32 = 8;
/// Length of the header before each packet of CLAW.
pub const CLAW_HEADER_BYTES: u32 = 4;
/// Length of the longest name of a system on a network of type claw.
pub const CLAW_NAME_BYTES: usize = 8;
/// Default number of buffers of an inbound ring on a network of type claw.
pub const CLAW_BUFFER_COUNT: u16 = 25;
/// Size of a buffer of a LAN channel station (LCS).
pub const LCS_BUFFER_BYTES: u32 = 20_480;
/// Number of buffers of a queue of a LAN channel station.
pub const LCS_BUFFER_COUNT: u16 = 32;
/// MTU of a network of type lcs: that of Ethernet.
pub const LCS_MTU_MAX: u32 = 1_500;
/// Size of a buffer on a switched network that is not of the type HiperSockets: that of a QDIO buffer.
pub const QDIO_BUFFER_BYTES: u32 = 65_536;
/// Largest MTU of a Guest LAN of type QDIO.
pub const GUESTLAN_QDIO_MTU_MAX: u32 = 32_768;
/// Largest MTU of a virtual switch: that of an OSA-Express adapter at layer 2.
pub const VSWITCH_MTU_MAX: u32 = 9_000;
/// Default MTU of a virtual switch and of a Guest LAN of type QDIO.
pub const QDIO_MTU_DEFAULT: u32 = 8_992;
/// Default MTU of an OSA-Express adapter at layer 3, and its largest one. The headers of LLC and SNAP take 8 bytes of a frame.
pub const OSA_MTU_LAYER_3_DEFAULT: u32 = 1_492;
/// Largest MTU of an OSA-Express adapter at layer 3.
pub const OSA_MTU_LAYER_3_MAX: u32 = 8_992;
/// Default MTU of an OSA-Express adapter at layer 2.
pub const OSA_MTU_LAYER_2_DEFAULT: u32 = 1_500;
/// Default number of buffers of the inbound queue of an OSA-Express adapter.
pub const OSA_BUFFER_COUNT_DEFAULT: u16 = 64;
/// Maximum number of ports of one switch. The switch's stack has a device for each port.
pub const SWITCH_PORTS_MAX: usize = 1_000;
/// Maximum number of uplinks of a virtual switch, as in z/VM.
pub const UPLINKS_MAX: usize = 3;
/// Largest value of `maxconn`, as in z/VM.
pub const MAXCONN_MAX: u32 = 1_024;
/// Maximum number of VLANs of one trunk port.
pub const TRUNK_VLANS_MAX: usize = 256;
/// Largest VLAN id that a port can have. The ids 0 and 4095 are reserved (IEEE 802.1Q).
pub const VLAN_MAX: u16 = 4_094;
/// Maximum number of prefixes of `sources` of one port.
pub const PORT_SOURCES_MAX: usize = 256;
/// Longest name of a network interface in Linux, in bytes.
pub const INTERFACE_NAME_BYTES_MAX: usize = 15;
/// Default limit of the broadcast, multicast and unknown unicast frames that a port may send per second.
pub const FLOOD_PER_SECOND_DEFAULT: u32 = 10_000;
/// Smallest MTU of a device without an IPv6 address.
pub const MTU_IPV4_MIN: u32 = 576;
/// Smallest MTU of a device with an IPv6 address (RFC 8200, section 5).
pub const MTU_IPV6_MIN: u32 = 1_280;

/// Default number of ring pairs that one guest may have.
pub const PAIRS_DEFAULT: u32 = 512;
/// Default limit of the ring memory of one guest, in bytes.
pub const RING_BYTES_DEFAULT: u64 = 2 << 30;
/// Smallest memory limit that a topology may set for the process of a guest.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// Default number of seconds without traffic after which a ring pair is closed.
pub const IDLE_SECONDS_DEFAULT: u32 = 60;
/// Default number of applications that may use a guest's stack at a time.
pub const APPLICATIONS_DEFAULT: u32 = 128;
/// Largest number of applications that a topology may allow.
pub const APPLICATIONS_MAX: u32 = 1_024;
/// Default size of each of the two arenas of an application, in bytes. The kernel allocates a page when it is first used.
pub const ARENA_BYTES_DEFAULT: u64 = 64 << 20;
/// Smallest arena that a topology may set.
pub const ARENA_BYTES_MIN: u64 = 256 << 10;
/// Largest arena that a topology may set.
pub const ARENA_BYTES_MAX: u64 = 1 << 30;

/// Maximum number of rules of `allow` of a guest.
pub const ALLOW_RULES_MAX: usize = 64;

/// Longest text in a message, in bytes: a reason, a version, a description. The receiver cuts a longer text.
pub const TEXT_BYTES_MAX: usize = 1_024;
