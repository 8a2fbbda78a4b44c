//! The IP layer: routes, forwarding, reassembly, segmentation, ICMP, path MTUs and redirects.
//!
//! `Ip` owns all state of IPv4 and IPv6. It checks received frames (`input.rs`), forwards packets (`forward.rs`) and sends
//! packets (`output.rs`). `Ip` has no access to sockets, so its caller receives the errors that ICMP reports.

pub(crate) mod addresses;
pub mod cut;
pub mod echo;
pub(crate) mod fast_forward;
pub mod forward;
pub(crate) mod icmp;
pub(crate) mod identification;
pub(crate) mod input;
pub(crate) mod mtu_discovery;
pub(crate) mod output;
pub(crate) mod path_mtu;
pub(crate) mod reassembly;
pub(crate) mod redirect;
pub(crate) mod resolve;
pub mod route;
pub mod segmentation;
pub(crate) mod sent;

use crate::drops::Drops;
use crate::limits::DEVICES_MAX;
use crate::link::capture::Capture;
use crate::link::device::{Device, DeviceConfig, DeviceError};
use crate::link::frame::DeviceId;
use crate::link::neighbour::Neighbours;
use crate::seed::{Purpose, Seed};
use crate::wire::address::{Prefix, is_link_local};
use addresses::Addresses;
use echo::Pings;
use fast_forward::Destinations;
use icmp::RateLimit;
use identification::Identifications;
use path_mtu::PathMtus;
use reassembly::Reassembly;
use route::{RouteError, Routes, Target};
use segmentation::Scratch;
use sent::SentPackets;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of routes that one address of the stack gets: to the address, to its network, and to the first and last address
/// of that network.
const OWN_ROUTES_MAX: usize = 4;

/// The tasks of a router that are enabled for this stack, and whether it has loopback addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) forwarding: bool,
    pub(crate) redirects: bool,
    pub(crate) source_validation: bool,
    pub(crate) loopback: bool,
}

/// The state of IPv4 and IPv6, and the devices through which they send and receive.
#[derive(Debug)]
pub(crate) struct Ip {
    pub(crate) devices: Vec<Device>,
    pub(crate) routes: Routes,
    /// Counts the changes of routes, addresses and devices. A connection compares this count to notice that its route may have changed.
    pub(crate) routes_version: u32,
    pub(crate) neighbours: Neighbours,
    pub(crate) path_mtus: PathMtus,
    pub(crate) reassembly: Reassembly,
    pub(crate) drops: Drops,
    /// Packets that this stack sent to itself. The stack delivers them before the current call ends.
    pub(crate) loopback: VecDeque<Vec<u8>>,
    pub(crate) capture: Option<Capture>,
    pub(crate) own_v4: Addresses<Ipv4Addr>,
    pub(crate) own_v6: Addresses<Ipv6Addr>,
    pub(crate) sent: SentPackets,
    pub(crate) pings: Pings,
    pub(crate) policy: Policy,
    /// Addresses that no received packet may have as its source: the stack's own addresses and the broadcast addresses of its
    /// networks. A route added later can replace a broadcast address, so [`Ip::is_no_source`] also looks at the routes.
    no_sources: Addresses<Ipv4Addr>,
    pub(crate) identifications: Identifications,
    errors_sent: RateLimit,
    pub(crate) scratch: Scratch,
    pub(crate) destinations: Destinations,
}

impl Ip {
    pub(crate) fn new(seed: &Seed, policy: Policy) -> Self {
        // Peers cannot choose the addresses in these tables, so it is safe that all these tables use the same key.
        let keyed = seed.keyed(Purpose::AddressTables);
        Self {
            devices: Vec::new(),
            routes: Routes::default(),
            routes_version: 1,
            neighbours: Neighbours::new(seed.keyed(Purpose::NeighbourTable)),
            path_mtus: PathMtus::default(),
            reassembly: Reassembly::default(),
            drops: Drops::default(),
            loopback: VecDeque::new(),
            capture: None,
            own_v4: Addresses::new(keyed),
            own_v6: Addresses::new(keyed),
            sent: SentPackets::new(seed),
            pings: Pings::default(),
            policy,
            no_sources: Addresses::new(keyed),
            identifications: Identifications::new(seed),
            errors_sent: RateLimit::new(seed.random(Purpose::ErrorLimit)),
            scratch: Scratch::new(),
            destinations: Destinations::default(),
        }
    }

    /// Adds a device, and the routes to its addresses and their networks.
    pub(crate) fn add_device(&mut self, config: DeviceConfig) -> Result<DeviceId, DeviceError> {
        let id = u16::try_from(self.devices.len()).ok().filter(|id| usize::from(*id) < DEVICES_MAX);
        let id = DeviceId(id.ok_or(DeviceError::Full)?);
        let device = Device::new(config)?;
        // Check the number of routes before any change. Otherwise routes to a device that was not added would remain.
        if !self.routes.has_room(OWN_ROUTES_MAX * device.config.addresses.len()) {
            return Err(DeviceError::Full);
        }
        for own in &device.config.addresses {
            match own.address() {
                IpAddr::V4(address) => {
                    self.own_v4.insert(address);
                    self.no_sources.insert(address);
                }
                IpAddr::V6(address) => self.own_v6.insert(address),
            }
            // Several devices may have the same IPv6 link-local address. So such an address gets no route. It is only in the
            // device's own list of addresses.
            if own.address().is_ipv6() && is_link_local(own.address()) {
                continue;
            }
            self.add_own_routes(id, *own).map_err(|_| DeviceError::Full)?;
        }
        if let Some(capture) = &mut self.capture {
            capture.add_device(&device);
        }
        self.devices.push(device);
        self.routes_changed();
        Ok(id)
    }

    fn add_own_routes(&mut self, device: DeviceId, own: Prefix) -> Result<(), RouteError> {
        self.routes.insert(own, Target::Via { device, gateway: None })?;
        let host = if let IpAddr::V4(address) = own.address() {
            let host_bits = u32::MAX.checked_shr(own.length().into()).unwrap_or(0);
            let first = Ipv4Addr::from_bits(address.to_bits() & !host_bits);
            let last = Ipv4Addr::from_bits(address.to_bits() | host_bits);
            // RFC 3021: a network of one or two addresses has no broadcast address.
            let broadcasts = if own.length() < 31 { 2 } else { 0 };
            for (address, target) in
                [(first, Target::Nobody), (last, Target::Broadcast(device))].into_iter().take(broadcasts)
            {
                self.no_sources.insert(address);
                if let Some(prefix) = Prefix::new(address.into(), 32) {
                    self.routes.insert(prefix, target)?;
                }
            }
            Prefix::new(own.address(), 32)
        } else {
            Prefix::new(own.address(), 128)
        };
        host.map_or(Ok(()), |host| self.routes.insert(host, Target::Local(device)))
    }

    /// Marks everything that was derived from routes, addresses and source filters as outdated.
    pub(crate) fn routes_changed(&mut self) {
        self.routes_version = self.routes_version.wrapping_add(1);
    }

    /// Returns whether an address is an address of this stack. The sets of addresses that received packets are compared with have no
    /// loopback addresses, so no packet of a device reaches a loopback address.
    #[inline]
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.own_v4.contains(address) || self.policy.loopback && address.is_loopback(),
            IpAddr::V6(address) => self.own_v6.contains(address) || self.policy.loopback && address.is_loopback(),
        }
    }

    /// Returns whether a packet with this source and destination may leave the stack, or reach the stack itself. A packet with a
    /// loopback address reaches only the stack itself.
    pub(crate) fn may_send(&self, from: IpAddr, to: IpAddr) -> bool {
        !from.is_loopback() || self.is_own(to)
    }

    /// Returns whether the address is a broadcast address. The first address of a network, the obsolete form (RFC 1812 4.2.2.11),
    /// counts too.
    pub(crate) fn is_broadcast(&self, address: IpAddr) -> bool {
        address == IpAddr::V4(Ipv4Addr::BROADCAST)
            || matches!(self.routes.lookup(address), Some(Target::Broadcast(_) | Target::Nobody))
    }

    /// Returns whether the address is an own address or a broadcast address. No received packet may have such a source (RFC 1122
    /// 3.2.1.3, RFC 1812 5.3.7).
    #[inline]
    pub(crate) fn is_no_source(&self, from: Ipv4Addr) -> bool {
        self.no_sources.contains(from) && self.is_own_or_broadcast(from)
    }

    #[inline(never)]
    fn is_own_or_broadcast(&self, address: Ipv4Addr) -> bool {
        self.own_v4.contains(address) || self.is_broadcast(address.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::device::{Agreed, Medium};

    fn device(address: [u8; 4]) -> DeviceConfig {
        let addresses = vec![Prefix::new(address.into(), 24).unwrap()];
        DeviceConfig { medium: Medium::Ip, mtu: 1500, addresses, agreed: Agreed::default() }
    }

    #[test]
    fn a_device_whose_routes_do_not_fit_into_the_table_is_not_added() {
        let policy = Policy { forwarding: false, redirects: false, source_validation: false, loopback: false };
        let mut ip = Ip::new(&Seed::simulated(0), policy);
        ip.routes = Routes::bounded(2 * OWN_ROUTES_MAX);
        let id = ip.add_device(device([10, 1, 0, 1])).unwrap();
        let (prefix, gateway) = (Prefix::new([0; 4].into(), 0).unwrap(), [10, 1, 0, 9].into());
        let via = |gateway| Target::Via { device: id, gateway };
        assert_eq!(ip.routes.insert(prefix, via(Some(gateway))), Ok(()));
        let second = IpAddr::from([10, 2, 0, 1]);
        assert_eq!(ip.add_device(device([10, 2, 0, 1])), Err(DeviceError::Full));
        assert_eq!((ip.devices.len(), ip.is_own(second)), (1, false));
        assert_eq!(ip.routes.lookup(second), Some(via(Some(gateway))));
        assert!(ip.routes.remove(prefix));
        assert_eq!(ip.add_device(device([10, 2, 0, 1])), Ok(DeviceId(1)));
        assert_eq!(ip.routes.lookup(second), Some(Target::Local(DeviceId(1))));
        assert_eq!(ip.routes.insert(prefix, via(None)), Err(RouteError::Full));
    }
}
