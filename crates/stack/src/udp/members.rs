//! UDP sockets and groups: joining and leaving (any source only), copies of a group's datagrams to all members, and how datagrams
//! to groups are sent.
//!
//! A datagram to a group goes to every socket that joined the group on the device it came by, is bound to the port and either the
//! unspecified address or the group's, and is not connected to somebody else. A connected socket that was bound to the
//! unspecified address has one of its own, and no longer hears groups, as with Linux.

use crate::drops::{DropReason, UdpDrop};
use crate::ip::route::Target;
use crate::limits::{UDP_GROUPS_MAX, UDP_SHARERS_MAX};
use crate::link::frame::DeviceId;
use crate::multicast::group::{NODE_SCOPE, scope};
use crate::stack::Stack;
use crate::tcp::Storage;
use crate::time::Instant;
use crate::udp::{Datagram, Socket, UdpError, UdpId, UdpSockets, without_scope};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;

/// True for groups of a scope that nothing has (RFC 4291 2.7).
pub(crate) fn is_reserved(to: IpAddr) -> bool {
    matches!(to, IpAddr::V6(to) if to.is_multicast() && scope(to) < NODE_SCOPE)
}

/// A group on a device's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Membership {
    pub(crate) device: DeviceId,
    pub(crate) group: IpAddr,
}

/// What a membership takes: with its socket, and among the members.
pub(crate) const MEMBERSHIP_BYTES: usize =
    2 * (size_of::<Membership>() + size_of::<((Membership, u16), Vec<u32>)>() + size_of::<u32>());

/// How a socket's datagrams are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendOptions {
    hop_limit: NonZeroU8,
    group_hop_limit: u8,
    group_device: Option<DeviceId>,
    group_loop: bool,
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

    /// The device that was chosen for packets to `to`, if one was.
    pub(crate) fn device(&self, to: IpAddr) -> Option<DeviceId> {
        self.group_device.filter(|_| to.is_multicast())
    }
}

impl<S: Storage> Stack<S> {
    /// The same as [`Stack::udp_bind`] for several sockets at one address and port, which all have to be bound so. Each gets the
    /// datagrams of the groups it joins; what is sent to one station goes to the socket that was bound first.
    pub fn udp_bind_shared(&mut self, local: SocketAddr) -> Result<UdpId, UdpError> {
        self.bind_udp(local, true)
    }

    pub(crate) fn bind_udp(&mut self, local: SocketAddr, share: bool) -> Result<UdpId, UdpError> {
        let ip = local.ip();
        if !ip.is_unspecified() && !ip.is_multicast() && !self.is_own(ip) {
            return Err(UdpError::NotOurs);
        }
        self.udp.bind(&mut self.udp_ports, local, share)
    }

    /// Lets a socket have what is sent to a group on a device's link until it leaves or is closed. That is from any source
    /// (EXCLUDE{}): there are no source filters. The link is told as soon as [`Stack::handle_timeout`] is called, which is due.
    pub fn udp_join(&mut self, now: Instant, id: UdpId, group: IpAddr, device: DeviceId) -> Result<(), UdpError> {
        let (local, _) = self.udp.addresses(id)?;
        if !group.is_multicast() || is_reserved(group) || group.is_ipv4() != local.is_ipv4() {
            return Err(UdpError::NotGroup);
        }
        let addresses = self.devices.get(usize::from(device.0)).map(|device| &device.config.addresses);
        if !addresses.is_some_and(|own| own.iter().any(|own| own.address().is_ipv4() == group.is_ipv4())) {
            return Err(UdpError::NoDevice);
        }
        let membership = Membership { device, group };
        self.udp.join(id, membership)?;
        self.groups.join(now, device, group).inspect_err(|_| self.udp.leave(id, membership).unwrap_or_default())
    }

    /// Takes a socket out of a group on a device's link.
    pub fn udp_leave(&mut self, now: Instant, id: UdpId, group: IpAddr, device: DeviceId) -> Result<(), UdpError> {
        self.udp.leave(id, Membership { device, group })?;
        self.groups.leave(now, device, group);
        Ok(())
    }

    /// Chooses the device that datagrams to groups leave by. Without, it is that of the address the socket is bound to, or
    /// else of the route to the group.
    pub fn udp_set_group_device(&mut self, id: UdpId, device: Option<DeviceId>) -> Result<(), UdpError> {
        if device.is_some_and(|device| usize::from(device.0) >= self.devices.len()) {
            return Err(UdpError::NoDevice);
        }
        self.udp.socket(id)?.options.group_device = device;
        Ok(())
    }

    /// Sets the hop limit of datagrams to one station or to all of a link; 64 without.
    pub fn udp_set_hop_limit(&mut self, id: UdpId, hop_limit: NonZeroU8) -> Result<(), UdpError> {
        self.udp.socket(id)?.options.hop_limit = hop_limit;
        Ok(())
    }

    /// Sets the hop limit of datagrams to groups: 1 without, 0 for members on this stack only.
    pub fn udp_set_group_hop_limit(&mut self, id: UdpId, hop_limit: u8) -> Result<(), UdpError> {
        self.udp.socket(id)?.options.group_hop_limit = hop_limit;
        Ok(())
    }

    /// Says whether members on this stack get the datagrams that the socket sends to their group; they do without.
    pub fn udp_set_group_loop(&mut self, id: UdpId, on: bool) -> Result<(), UdpError> {
        self.udp.socket(id)?.options.group_loop = on;
        Ok(())
    }

    /// True if somebody on this stack is in the group on that device.
    pub fn is_joined(&self, device: DeviceId, group: IpAddr) -> bool {
        self.groups.is_joined(device, group)
    }

    /// The groups that are joined on a device, the stack's own included and those that every station is in left out: what its
    /// owner lets through where the link filters frames.
    pub fn groups(&self, device: DeviceId) -> impl Iterator<Item = IpAddr> {
        self.groups.on(device)
    }

    /// The device that a datagram to a group leaves by, where neither option nor address says so: that of its route.
    pub(crate) fn group_route(&self, to: IpAddr) -> Option<DeviceId> {
        match self.routes.lookup(to) {
            Some(Target::Via { device, .. }) if to.is_multicast() => Some(device),
            Some(Target::Via { .. } | Target::Broadcast(_) | Target::Local(_) | Target::Nobody) | None => None,
        }
    }

    /// Gives a datagram to a group to the members here, if it is to be; false if that is all that becomes of it.
    pub(crate) fn loop_to_group(
        &mut self,
        on: Option<DeviceId>,
        options: SendOptions,
        port: u16,
        sent: &Datagram,
    ) -> bool {
        let stays = options.group_hop_limit == 0 || matches!(sent.to, IpAddr::V6(to) if scope(to) <= NODE_SCOPE);
        if let Some(device) = on.filter(|_| options.group_loop)
            && let Err(reason) = self.deliver_to_group(device, port, sent)
            && reason != UdpDrop::NoSocket.into()
        {
            self.drops.count(reason);
        }
        !stays
    }

    /// Gives a datagram to the members of its group; an error if none took it.
    pub(crate) fn deliver_to_group(
        &mut self,
        device: DeviceId,
        port: u16,
        datagram: &Datagram,
    ) -> Result<(), DropReason> {
        let (taken, full) = self.udp.deliver_to_group(device, port, datagram);
        match (taken, full) {
            (0, 0) => Err(UdpDrop::NoSocket.into()),
            (0, _) => Err(UdpDrop::QueueFull.into()),
            (_, full) => {
                (0..full).for_each(|_| self.drops.count(UdpDrop::QueueFull));
                Ok(())
            }
        }
    }
}

impl UdpSockets {
    /// How datagrams of this socket are sent.
    pub(crate) fn options(&mut self, id: UdpId) -> Result<SendOptions, UdpError> {
        self.socket(id).map(|socket| socket.options)
    }

    fn join(&mut self, id: UdpId, membership: Membership) -> Result<(), UdpError> {
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

    fn leave(&mut self, id: UdpId, membership: Membership) -> Result<(), UdpError> {
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

    /// How many sockets took a copy, and how many had no room.
    fn deliver_to_group(&mut self, device: DeviceId, port: u16, datagram: &Datagram) -> (usize, usize) {
        let membership = Membership { device, group: datagram.to };
        let (mut taken, mut full) = (0, 0);
        let members = self.members.get(&(membership, port)).cloned().unwrap_or_default();
        for slot in members {
            let socket = self.slots.get(slot as usize).and_then(|slot| slot.socket.as_ref());
            if socket.is_none_or(|socket| !socket.hears(datagram)) {
                continue;
            }
            match self.push(slot, datagram.clone()) {
                Ok(()) => taken += 1,
                Err(_) => full += 1,
            }
        }
        (taken, full)
    }
}

impl Socket {
    /// True if a datagram to a group that the socket is in is for it.
    fn hears(&self, datagram: &Datagram) -> bool {
        let (local, remote) = (self.key.local.ip(), self.key.remote);
        (local.is_unspecified() || local == datagram.to)
            && remote.is_none_or(|remote| remote == without_scope(datagram.from))
    }
}
