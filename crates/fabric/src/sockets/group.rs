//! What a datagram socket may want of groups, in one word for both attachments.

use std::net::{IpAddr, Ipv4Addr};

/// A change of the groups that a datagram socket is in, or of how it sends to groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupChange {
    /// What is sent to the group on that network is wanted.
    Join(IpAddr, Interface),
    /// It is wanted no more.
    Leave(IpAddr, Interface),
    /// How far datagrams to groups go.
    HopLimit(u8),
    /// Whether members of the own stack hear them too.
    Loop(bool),
}

/// One of a guest's networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interface {
    /// That which datagrams to the group leave by.
    OfRoute,
    /// That on which the guest has this address.
    Address(Ipv4Addr),
    /// That of the device with this number, counted from 1.
    Number(u32),
}

impl Interface {
    /// As the standard library names it for IPv4.
    pub(super) fn of_address(address: Ipv4Addr) -> Self {
        if address.is_unspecified() { Self::OfRoute } else { Self::Address(address) }
    }

    /// As the standard library names it for IPv6.
    pub(super) fn of_number(number: u32) -> Self {
        if number == 0 { Self::OfRoute } else { Self::Number(number) }
    }
}
