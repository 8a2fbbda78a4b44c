//! UDP sockets in multicast groups: sockets join and leave groups, for any source only. Every member receives its own copy of each
//! datagram to the group.
//!
//! A datagram to a group is delivered to each socket for which all of this is true:
//! - The socket joined the group on the device on which the datagram arrived.
//! - The socket is bound to the destination port, and to the wildcard address or the group's address.
//! - The socket is not connected, or is connected to the datagram's sender.
//!
//! If a socket bound to the wildcard address is connected, it is bound to one local address from then on, as in Linux. So it
//! receives no more datagrams to groups.

use crate::ip::mtu_discovery::MtuDiscovery;
use crate::limits::{UDP_GROUPS_MAX, UDP_SHARERS_MAX};
use crate::link::frame::DeviceId;
use crate::udp::{Datagram, Socket, UdpError, UdpId, UdpSockets, without_scope};
use std::net::IpAddr;
use std::num::NonZeroU8;

/// A multicast group on the link of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Membership {
    pub(crate) device: DeviceId,
    pub(crate) group: IpAddr,
}

/// Memory of a group membership in bytes: its entries in the socket's list and in the table of members.
pub(crate) const MEMBERSHIP_BYTES: usize =
    2 * (size_of::<Membership>() + size_of::<((Membership, u16), Vec<u32>)>() + size_of::<u32>());

/// The options with which a socket sends datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendOptions {
    pub(crate) hop_limit: NonZeroU8,
    pub(crate) group_hop_limit: u8,
    pub(crate) group_device: Option<DeviceId>,
    pub(crate) group_loop: bool,
    pub(crate) mtu_discovery: MtuDiscovery,
    /// Type of service or traffic class.
    pub(crate) service: u8,
}

impl Default for SendOptions {
    fn default() -> Self {
        let hop_limit = const { NonZeroU8::new(64).expect("not 0") };
        let mtu_discovery = MtuDiscovery::Dont;
        Self { hop_limit, group_hop_limit: 1, group_device: None, group_loop: true, mtu_discovery, service: 0 }
    }
}

impl SendOptions {
    pub(crate) fn hop_limit(&self, to: IpAddr) -> u8 {
        if to.is_multicast() { self.group_hop_limit } else { self.hop_limit.get() }
    }

    /// If `to` is a multicast group, returns the device that the application chose for sent multicast datagrams.
    pub(crate) fn device(&self, to: IpAddr) -> Option<DeviceId> {
        self.group_device.filter(|_| to.is_multicast())
    }
}

/// How many copies of one multicast datagram were queued at sockets (`taken`) and dropped (`refused`).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Copies {
    pub(crate) taken: usize,
    /// Copies that were dropped because a socket's queue was full.
    pub(crate) refused: usize,
}

impl UdpSockets {
    /// Returns the options with which this socket sends datagrams.
    pub(crate) fn options(&mut self, id: UdpId) -> Result<&mut SendOptions, UdpError> {
        self.socket(id).map(|socket| &mut socket.options)
    }

    pub(crate) fn join(&mut self, id: UdpId, membership: Membership) -> Result<(), UdpError> {
        let socket = self.socket(id)?;
        let port = socket.key.local.port();
        if socket.memberships.contains(&membership) {
            return Err(UdpError::Joined);
        }
        if socket.memberships.len() >= UDP_GROUPS_MAX {
            return Err(UdpError::TooManyGroups);
        }
        let members = self.members.entry((membership, port)).or_default();
        if members.len() >= UDP_SHARERS_MAX {
            return Err(UdpError::TooManyGroups);
        }
        members.push(id.slot);
        self.socket(id)?.memberships.push(membership);
        Ok(())
    }

    pub(crate) fn leave(&mut self, id: UdpId, membership: Membership) -> Result<(), UdpError> {
        let socket = self.socket(id)?;
        let port = socket.key.local.port();
        let at = socket.memberships.iter().position(|joined| *joined == membership).ok_or(UdpError::NotJoined)?;
        socket.memberships.swap_remove(at);
        self.remove_member(membership, port, id.slot);
        Ok(())
    }

    pub(super) fn remove_member(&mut self, membership: Membership, port: u16, slot: u32) {
        let key = (membership, port);
        if let Some(members) = self.members.get_mut(&key) {
            members.retain(|member| *member != slot);
            if members.is_empty() {
                self.members.remove(&key);
            }
        }
    }

    /// Adds a copy of a multicast datagram to the queue of each member of the group.
    pub(crate) fn deliver_to_group(&mut self, device: DeviceId, port: u16, datagram: &Datagram) -> Copies {
        let membership = Membership { device, group: datagram.to };
        let mut copies = Copies::default();
        let members = self.members.get(&(membership, port)).cloned().unwrap_or_default();
        for slot in members {
            if self.sockets.get(slot).is_none_or(|socket| !socket.accepts(datagram)) {
                continue;
            }
            match self.push(slot, datagram.clone()) {
                Ok(()) => copies.taken += 1,
                Err(_) => copies.refused += 1,
            }
        }
        copies
    }
}

impl Socket {
    /// Returns true if this socket, a member of the datagram's group, receives the datagram: see the conditions at the top of this
    /// file.
    fn accepts(&self, datagram: &Datagram) -> bool {
        let (local, remote) = (self.key.local.ip(), self.key.remote);
        (local.is_unspecified() || local == datagram.to)
            && remote.is_none_or(|remote| remote == without_scope(datagram.from))
    }
}
