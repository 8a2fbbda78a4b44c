//! Devices, routes, source filters, captures and counters of a stack, and its echo requests.

use super::Stack;
use crate::drops::{DropReason, Drops};
use crate::ip::echo::Ping;
use crate::ip::route::{RouteError, Routes};
use crate::link::capture::Capture;
use crate::link::device::{DeviceConfig, DeviceCounters, DeviceError};
use crate::link::frame::DeviceId;
use crate::link::source::Sources;
use crate::tcp::Storage;
use crate::time::Instant;
use crate::wire::address::{ALL_ROUTERS, Prefix, solicited_node};
use std::net::{IpAddr, Ipv6Addr};

impl<S: Storage> Stack<S> {
    /// Adds a device, and routes to its addresses and their networks.
    pub fn add_device(&mut self, config: DeviceConfig) -> Result<DeviceId, DeviceError> {
        let groups = own_groups(&config, self.ip.policy.forwarding);
        let id = self.ip.add_device(config)?;
        self.groups.add_device(&groups);
        self.tcp.add_device();
        Ok(id)
    }

    /// Changes the largest IP packet that a device takes. TCP connections over the device follow.
    pub fn set_mtu(&mut self, now: Instant, device: DeviceId, mtu: u16) -> Result<(), DeviceError> {
        let changed = self.ip.devices.get_mut(usize::from(device.0)).ok_or(DeviceError::NoDevice)?;
        changed.set_mtu(mtu)?;
        self.mtu_changed(now, device);
        Ok(())
    }

    /// Adds or replaces the route of a prefix: through a device, to a gateway or to a network on the device's link.
    pub fn add_route(&mut self, prefix: Prefix, device: DeviceId, gateway: Option<IpAddr>) -> Result<(), RouteError> {
        self.ip.add_route(prefix, device, gateway)
    }

    /// Removes a route; false if there was none.
    pub fn remove_route(&mut self, prefix: Prefix) -> bool {
        self.ip.remove_route(prefix)
    }

    /// All routes, those of own addresses and networks included.
    pub fn routes(&self) -> &Routes {
        &self.ip.routes
    }

    /// Sets the sources from which a device accepts packets; `None`: every source.
    ///
    /// # Errors
    /// [`DeviceError::NoDevice`].
    pub fn set_sources(&mut self, device: DeviceId, sources: Option<Sources>) -> Result<(), DeviceError> {
        let changed = self.ip.devices.get_mut(usize::from(device.0)).ok_or(DeviceError::NoDevice)?;
        changed.filter.sources = sources;
        // Sources that passed before are checked again.
        self.ip.routes_changed();
        Ok(())
    }

    /// Packets dropped so far.
    pub fn drops(&self) -> &Drops {
        &self.ip.drops
    }

    /// Frames and bytes of a device so far.
    pub fn counters(&self, device: DeviceId) -> Option<DeviceCounters> {
        self.ip.devices.get(usize::from(device.0)).map(|device| device.counters)
    }

    /// Captures all frames from now on: the first `snap_bytes` of each.
    ///
    /// Up to `bytes_max` wait for [`Stack::take_capture`]; frames that find no room are left out. A capture has no marks, so an
    /// unfilled checksum looks wrong and a large segment looks too large.
    pub fn start_capture(&mut self, snap_bytes: usize, bytes_max: usize) {
        let mut capture = Capture::new(snap_bytes, bytes_max);
        for (id, device) in self.ip.devices.iter().enumerate() {
            capture.add_device(id, device);
        }
        self.ip.capture = Some(capture);
    }

    /// What was captured since the last call; all parts, in order, are a pcapng file.
    pub fn take_capture(&mut self) -> Vec<u8> {
        self.ip.capture.as_mut().map_or_else(Vec::new, Capture::take)
    }

    /// Ends the capture, discards what was not taken, and returns how many frames were left out.
    pub fn stop_capture(&mut self) -> u64 {
        self.ip.capture.take().map_or(0, |capture| capture.left_out())
    }

    /// Sends an echo request with `bytes` bytes of data. The newest [`crate::limits::PINGS_MAX`] requests without a reply are
    /// remembered.
    ///
    /// # Errors
    /// There is no route, or the packet is too long.
    pub fn ping(&mut self, now: Instant, ping: Ping, bytes: u16) -> Result<(), DropReason> {
        let sent = self.ip.ping(now, ping, bytes);
        self.deliver_loopback(now);
        sent
    }

    /// The next echo request that was answered.
    pub fn poll_pong(&mut self) -> Option<Ping> {
        self.ip.pings.poll_answered()
    }
}

/// The groups that a node with these addresses joins (RFC 4291 2.8), except that of all nodes.
fn own_groups(config: &DeviceConfig, forwarding: bool) -> Vec<Ipv6Addr> {
    let mut groups = Vec::new();
    for own in &config.addresses {
        if let IpAddr::V6(own) = own.address() {
            groups.extend(forwarding.then_some(ALL_ROUTERS));
            groups.push(solicited_node(own));
        }
    }
    groups
}
