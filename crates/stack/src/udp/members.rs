//! UDP sockets in multicast groups: sockets join and leave groups (for any source only), and every member receives a copy of a
//! group's datagrams.
//!
//! A datagram to a group goes to every socket that joined the group on the arrival device and is bound to the destination port.
//! The socket must be bound to the wildcard address or to the group's address, and must not be connected to another sender. As in
//! Linux, connecting a socket that was bound to the wildcard address binds the socket to one address. After that, the socket no
//! longer receives datagrams to groups.

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

/// Memory of a membership in bytes: in the socket's own list, and in the table of members.
pub(crate) const MEMBERSHIP_BYTES: usize =
    2 * (size_of::<Membership>() + size_of::<((Membership, u16), Vec<u32>)>() + size_of::<u32>());

/// The options with which a socket sends datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendOptions {
    pub(crate) hop_limit: NonZeroU8,
    pub(crate) group_hop_limit: u8,
    pub(crate) group_device: Option<DeviceId>,
    pub(crate) group_loop: bool,
}

impl Default for SendOptions {
    fn default() -> Self {
        let hop_limit = const { NonZeroU8::new(64).expect("not 0") };
        Self { hop_limit, group_hop_limit: 1, group_device: None, group_loop: true }
    }
}

impl SendOptions {
    pub(crate) fn hop_limit(&self, to: IpAddr) -> u8 {
        if to.is_multicast() { self.group_hop_limit } else { self.hop_limit.get() }
    }

    /// Returns the device that the application chose for multicast, if `to` is a multicast group.
    pub(crate) fn device(&self, to: IpAddr) -> Option<DeviceId> {
        self.group_device.filter(|_| to.is_multicast())
    }
}

/// The numbers of copies of one multicast datagram: queued and dropped.
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

    /// Queues a copy of a multicast datagram for every member of the group.
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
    /// True if this socket receives a datagram to a multicast group that it joined.
    fn accepts(&self, datagram: &Datagram) -> bool {
        let (local, remote) = (self.key.local.ip(), self.key.remote);
        (local.is_unspecified() || local == datagram.to)
            && remote.is_none_or(|remote| remote == without_scope(datagram.from))
    }
}
