//! The reasons for which a switch drops a frame.

use crate::counters::Counters;

/// A reason for which a switch drops a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// The frame ends inside its headers, or its headers contradict each other.
    Malformed,
    /// The sender uses an Ethernet address that is not its own, or that belongs to a protected port.
    SpoofedMac,
    /// The sender uses an IP address that it has not been given.
    SpoofedIp,
    /// The sender acts as a router, but does not forward packets.
    RouterMessage,
    /// The headers that the switch would have to check are too long.
    Unclear,
    /// The network does not carry this protocol.
    Protocol,
    /// The port does not belong to the VLAN of the frame.
    Vlan,
    /// The frame has two tags.
    DoubleTag,
    /// The sender and the receiver are isolated from each other.
    Isolated,
    /// The receiver is at the port on which the frame arrived.
    SamePort,
    /// The port sends too many broadcast, multicast or unknown unicast frames.
    FloodLimit,
    /// The frame exceeds the MTU of the receiver's port.
    TooLong,
    /// Many frames wait at the receiver's port, and the frame was sent to several ports.
    Crowded,
    /// The frame asks for the addresses of another station.
    ForeignClient,
    /// The station asks for its addresses too often.
    RequestLimit,
    /// Another station answers DHCP requests to a port whose requests the switch answers.
    OtherServer,
    /// The port did not agree to the marks of the frame, or the marks do not fit the frame.
    Marks,
    /// The kernel did not take the frame.
    Refused,
    /// The kernel could not pass the frame to the switch.
    Unreadable,
    /// The frame arrived at an uplink that is not used, because an uplink of a lower rank has a carrier.
    Standby,
    /// The port does not exist any more.
    NoPort,
}

impl DropReason {
    pub(crate) const ALL: [Self; 21] = [
        Self::Malformed,
        Self::SpoofedMac,
        Self::SpoofedIp,
        Self::RouterMessage,
        Self::Unclear,
        Self::Protocol,
        Self::Vlan,
        Self::DoubleTag,
        Self::Isolated,
        Self::SamePort,
        Self::FloodLimit,
        Self::TooLong,
        Self::Crowded,
        Self::ForeignClient,
        Self::RequestLimit,
        Self::OtherServer,
        Self::Marks,
        Self::Refused,
        Self::Unreadable,
        Self::Standby,
        Self::NoPort,
    ];

    /// Returns the name of the reason's counter.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Malformed => "drop_malformed",
            Self::SpoofedMac => "drop_spoofed_mac",
            Self::SpoofedIp => "drop_spoofed_ip",
            Self::RouterMessage => "drop_router_message",
            Self::Unclear => "drop_unclear_headers",
            Self::Protocol => "drop_protocol",
            Self::Vlan => "drop_vlan",
            Self::DoubleTag => "drop_double_tag",
            Self::Isolated => "drop_isolated",
            Self::SamePort => "drop_same_port",
            Self::FloodLimit => "drop_flood_limit",
            Self::TooLong => "drop_too_long",
            Self::Crowded => "drop_copy_queue_full",
            Self::ForeignClient => "drop_foreign_client",
            Self::RequestLimit => "drop_request_limit",
            Self::OtherServer => "drop_other_dhcp_server",
            Self::Marks => "drop_bad_marks",
            Self::Refused => "drop_refused_by_kernel",
            Self::Unreadable => "drop_unreadable",
            Self::Standby => "drop_standby_uplink",
            Self::NoPort => "drop_no_port",
        }
    }
}

/// How many frames were dropped for each reason.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Drops([u64; DropReason::ALL.len()]);

impl Drops {
    pub(crate) fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    #[cfg(test)]
    pub(crate) fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Returns the number of dropped frames.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn add_to(&self, counters: &mut Counters) {
        for reason in DropReason::ALL {
            *counters.entry(reason.name().to_owned()).or_default() += self.0[reason as usize];
        }
    }
}
