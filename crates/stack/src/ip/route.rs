//! The routing table: the longest prefix that covers a destination, for IPv4 and IPv6 alike. `table.rs` has the lookup structure.
//!
//! Many prefixes share few targets, so a prefix refers to its target by number. Nothing is cached per destination.

mod table;

use crate::limits::ROUTES_MAX;
use crate::link::frame::DeviceId;
use crate::link::neighbour::Resolved;
use crate::wire::address::Prefix;
use std::collections::BTreeMap;
use std::net::IpAddr;
use table::{Table, number};

/// Where packets for a prefix go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// To this stack itself, which has the address on that device.
    Local(DeviceId),
    /// To all stations on the network of that device.
    Broadcast(DeviceId),
    /// Nowhere: the first address of an own network, an obsolete broadcast address (RFC 1812 4.2.2.11).
    Nobody,
    /// Out through a device, to the gateway or, if there is none, to the destination itself.
    Via {
        /// The device.
        device: DeviceId,
        /// The next router, a neighbour on that device's network.
        gateway: Option<IpAddr>,
    },
}

/// Why a route cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteError {
    /// There are [`ROUTES_MAX`] already.
    Full,
    /// The gateway is of the other IP version than the prefix.
    GatewayFamily,
    /// The stack has no such device.
    NoDevice,
}

/// The routing table of a stack.
#[derive(Debug)]
pub struct Routes {
    v4: Table<u32>,
    v6: Table<u128>,
    hops: Hops,
    /// The greatest number of routes.
    max: usize,
}

impl Default for Routes {
    fn default() -> Self {
        Self::bounded(ROUTES_MAX)
    }
}

impl Routes {
    pub(crate) fn bounded(max: usize) -> Self {
        Self { v4: Table::new(), v6: Table::new(), hops: Hops::new(), max }
    }

    /// Adds a route, or replaces the route of the same prefix; a replacement always has room.
    pub fn insert(&mut self, prefix: Prefix, target: Target) -> Result<(), RouteError> {
        if let Target::Via { gateway: Some(gateway), .. } = target
            && gateway.is_ipv4() != prefix.address().is_ipv4()
        {
            return Err(RouteError::GatewayFamily);
        }
        if !self.has_room(1) && !self.contains(prefix) {
            return Err(RouteError::Full);
        }
        let hop = self.hops.take(target);
        let before = match prefix.address() {
            IpAddr::V4(address) => self.v4.insert(address.to_bits(), prefix.length(), hop),
            IpAddr::V6(address) => self.v6.insert(address.to_bits(), prefix.length(), hop),
        };
        if let Some(before) = before {
            self.hops.release(before);
        }
        Ok(())
    }

    /// Whether `count` more routes fit.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.max - self.len() >= count
    }

    fn contains(&self, prefix: Prefix) -> bool {
        match prefix.address() {
            IpAddr::V4(address) => self.v4.contains(address.to_bits(), prefix.length()),
            IpAddr::V6(address) => self.v6.contains(address.to_bits(), prefix.length()),
        }
    }

    /// Removes a route; false if there was none.
    pub fn remove(&mut self, prefix: Prefix) -> bool {
        let hop = match prefix.address() {
            IpAddr::V4(address) => self.v4.remove(address.to_bits(), prefix.length()),
            IpAddr::V6(address) => self.v6.remove(address.to_bits(), prefix.length()),
        };
        if let Some(hop) = hop {
            self.hops.release(hop);
        }
        hop.is_some()
    }

    /// Where a packet to this address goes; `None` if no prefix covers it.
    #[inline]
    pub fn lookup(&self, destination: IpAddr) -> Option<Target> {
        self.find(destination).1.copied()
    }

    /// The same by reference. A copy, of which the caller reads only a part, would stall until its stores have completed.
    #[inline]
    pub(crate) fn find(&self, destination: IpAddr) -> (HopId, Option<&Target>) {
        let hop = match destination {
            IpAddr::V4(address) => self.v4.find(address.to_bits()),
            IpAddr::V6(address) => self.v6.find(address.to_bits()),
        };
        (HopId(hop), self.hops.slots[hop as usize].target.as_ref())
    }

    /// The gateway of a hop, if it has one.
    pub(crate) fn gateway(&self, hop: HopId) -> Option<IpAddr> {
        match self.hops.slots[hop.0 as usize].target {
            Some(Target::Via { gateway, .. }) => gateway,
            Some(Target::Local(_) | Target::Broadcast(_) | Target::Nobody) | None => None,
        }
    }

    /// The link address to which the gateway of a hop was last resolved.
    #[inline]
    pub(crate) fn resolved(&self, hop: HopId) -> &Resolved {
        &self.hops.slots[hop.0 as usize].resolved
    }

    /// Records the link address of a hop's gateway.
    pub(crate) fn set_resolved(&mut self, hop: HopId, resolved: Resolved) {
        self.hops.slots[hop.0 as usize].resolved = resolved;
    }

    /// The number of routes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The number of a target; valid until routes change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HopId(u32);

/// Targets by number: many prefixes share few of them.
#[derive(Debug)]
struct Hops {
    slots: Vec<Hop>,
    numbers: BTreeMap<Target, u32>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Hop {
    target: Option<Target>,
    routes: usize,
    /// The gateway's link address, so that packets need no lookup in the neighbour table.
    resolved: Resolved,
}

impl Hop {
    const UNUSED: Self = Self { target: None, routes: 0, resolved: Resolved::NOTHING };
}

impl Hops {
    fn new() -> Self {
        Self { slots: vec![Hop::UNUSED], numbers: BTreeMap::new(), free: Vec::new() }
    }

    fn take(&mut self, target: Target) -> u32 {
        let slots = &mut self.slots;
        let free = &mut self.free;
        let number = *self.numbers.entry(target).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                slots.push(Hop::UNUSED);
                number(slots.len() - 1)
            })
        });
        let slot = &mut self.slots[number as usize];
        if slot.routes == 0 {
            (slot.target, slot.resolved) = (Some(target), Resolved::NOTHING);
        }
        slot.routes += 1;
        number
    }

    fn release(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        slot.routes -= 1;
        if slot.routes == 0
            && let Some(target) = slot.target.take()
        {
            self.numbers.remove(&target);
            self.free.push(number);
        }
    }
}

#[cfg(test)]
mod tests;
