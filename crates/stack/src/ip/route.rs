//! The routing table for IPv4 and IPv6. It finds the longest prefix that covers a destination. `table.rs` has the lookup structure.
//!
//! Many prefixes share a few targets, so each prefix refers to its target by a number. The table caches nothing for single
//! destinations.

mod table;

use crate::limits::ROUTES_MAX;
use crate::link::frame::DeviceId;
use crate::link::neighbour::Resolved;
use crate::wire::address::Prefix;
use std::collections::BTreeMap;
use std::net::IpAddr;
use table::{Table, number};

/// The target of a route: where packets for its prefix go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Packets are for this stack itself. The address belongs to this device.
    Local(DeviceId),
    /// Packets are for all stations on the network of this device.
    Broadcast(DeviceId),
    /// Packets are dropped. This is the target of the first address of each network to which a device of this stack is connected.
    /// That address is an obsolete form of the broadcast address (RFC 1812 4.2.2.11).
    Nobody,
    /// Packets leave over a device. Their next hop is the gateway, or the destination itself if there is no gateway.
    Via {
        /// The device over which packets leave.
        device: DeviceId,
        /// The next router, which is a neighbour on the link of the device.
        gateway: Option<IpAddr>,
    },
}

/// The reason for which a route cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteError {
    /// The table has [`ROUTES_MAX`] routes already.
    Full,
    /// The gateway and the prefix have different IP versions.
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
    /// Maximum number of routes.
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

    /// Adds a route, or replaces the route of the same prefix. A replacement is possible even if the table is full.
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

    /// Returns whether the table has room for `count` more routes.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.max - self.len() >= count
    }

    fn contains(&self, prefix: Prefix) -> bool {
        match prefix.address() {
            IpAddr::V4(address) => self.v4.contains(address.to_bits(), prefix.length()),
            IpAddr::V6(address) => self.v6.contains(address.to_bits(), prefix.length()),
        }
    }

    /// Removes a route. Returns false if there was none.
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

    /// Returns the target for a destination, or `None` if no prefix covers the destination.
    #[inline]
    pub fn lookup(&self, destination: IpAddr) -> Option<Target> {
        self.find(destination).1.copied()
    }

    /// Like [`Routes::lookup`], but returns a reference to the target, and its number. Callers read only a part of the target. If
    /// the target were copied, this read would stall until the stores of the copy have completed.
    #[inline]
    pub(crate) fn find(&self, destination: IpAddr) -> (HopId, Option<&Target>) {
        let hop = match destination {
            IpAddr::V4(address) => self.v4.find(address.to_bits()),
            IpAddr::V6(address) => self.v6.find(address.to_bits()),
        };
        (HopId(hop), self.hops.slots[hop as usize].target.as_ref())
    }

    pub(crate) fn gateway(&self, hop: HopId) -> Option<IpAddr> {
        if let Some(Target::Via { gateway, .. }) = self.hops.slots[hop.0 as usize].target { gateway } else { None }
    }

    /// Returns the link address to which the gateway of a target was last resolved.
    #[inline]
    pub(crate) fn resolved(&self, hop: HopId) -> &Resolved {
        &self.hops.slots[hop.0 as usize].resolved
    }

    /// Records the link address of a target's gateway.
    pub(crate) fn set_resolved(&mut self, hop: HopId, resolved: Resolved) {
        self.hops.slots[hop.0 as usize].resolved = resolved;
    }

    /// Returns the number of routes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Returns whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The number of a route's target. It is valid until routes change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HopId(u32);

/// All targets of routes. The number of a target is its index. Many prefixes share one target.
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
    /// The link address of the gateway. While it is valid, packets need no lookup in the neighbour table.
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
