//! Configures a stack (devices, routes, source filters), captures frames, returns counters, and sends echo requests.

use super::Stack;
use crate::drops::{DropReason, Drops};
use crate::ip::echo::Ping;
use crate::ip::route::{RouteError, Routes, Target};
use crate::link::capture::Capture;
use crate::link::device::{DeviceConfig, DeviceCounters, DeviceError, check_mtu};
use crate::link::frame::DeviceId;
use crate::link::source::Sources;
use crate::tcp::Storage;
use crate::time::Instant;
use crate::wire::address::{ALL_ROUTERS, Prefix, solicited_node};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};

impl<S: Storage> Stack<S> {
    /// Adds a device, and routes to the device's addresses and networks.
    pub fn add_device(&mut self, config: DeviceConfig) -> Result<DeviceId, DeviceError> {
        let groups = own_groups(&config, self.ip.policy.forwarding);
        let id = self.ip.add_device(config)?;
        self.groups.add_device(&groups);
        self.tcp.pending.push(VecDeque::new());
        Ok(id)
    }

    /// Changes the MTU of a device: the largest IP packet that it can send. TCP connections over the device adapt their segments.
    pub fn set_mtu(&mut self, now: Instant, device: DeviceId, mtu: u16) -> Result<(), DeviceError> {
        let changed = self.ip.devices.get_mut(usize::from(device.0)).ok_or(DeviceError::NoDevice)?;
        check_mtu(&changed.config.addresses, mtu)?;
        changed.config.mtu = mtu;
        self.mtu_changed(now, device);
        Ok(())
    }

    /// Adds or replaces the route of a prefix. The route leads through a device, to a gateway or to a network on the device's
    /// link.
    pub fn add_route(&mut self, prefix: Prefix, device: DeviceId, gateway: Option<IpAddr>) -> Result<(), RouteError> {
        if usize::from(device.0) >= self.ip.devices.len() {
            return Err(RouteError::NoDevice);
        }
        self.ip.routes_changed();
        self.ip.routes.insert(prefix, Target::Via { device, gateway })
    }

    /// Removes the route of a prefix. Returns false if the prefix has no route.
    pub fn remove_route(&mut self, prefix: Prefix) -> bool {
        self.ip.routes_changed();
        self.ip.routes.remove(prefix)
    }

    /// Returns all routes, including those of own addresses and networks.
    pub fn routes(&self) -> &Routes {
        &self.ip.routes
    }

    /// Sets the sources from which a device accepts packets. `None` accepts every source.
    ///
    /// # Errors
    /// Returns [`DeviceError::NoDevice`] if the stack has no such device.
    pub fn set_sources(&mut self, device: DeviceId, sources: Option<Sources>) -> Result<(), DeviceError> {
        let changed = self.ip.devices.get_mut(usize::from(device.0)).ok_or(DeviceError::NoDevice)?;
        changed.filter.sources = sources;
        // Sources that passed the old filter are checked again.
        self.ip.routes_changed();
        Ok(())
    }

    /// Returns the numbers of packets dropped since the stack was created.
    pub fn drops(&self) -> &Drops {
        &self.ip.drops
    }

    /// Returns the numbers of frames and bytes of a device since it was added.
    pub fn counters(&self, device: DeviceId) -> Option<DeviceCounters> {
        self.ip.devices.get(usize::from(device.0)).map(|device| device.counters)
    }

    /// Starts to capture all frames: the first `snap_bytes` bytes of each frame.
    ///
    /// At most `bytes_max` bytes are buffered until [`Stack::take_capture`]. A frame that does not fit is left out and counted. A
    /// capture does not contain the marks of frames. So an unfilled checksum looks wrong, and a large segment looks too long.
    pub fn start_capture(&mut self, snap_bytes: usize, bytes_max: usize) {
        let mut capture = Capture::new(snap_bytes, bytes_max);
        for (id, device) in self.ip.devices.iter().enumerate() {
            capture.add_device(id, device);
        }
        self.ip.capture = Some(capture);
    }

    /// Returns the bytes captured since the last call. All returned parts, in order, form a pcapng file.
    pub fn take_capture(&mut self) -> Vec<u8> {
        self.ip.capture.as_mut().map_or_else(Vec::new, |capture| capture.file.take())
    }

    /// Ends the capture and discards the bytes that were not taken. Returns how many frames were left out.
    pub fn stop_capture(&mut self) -> u64 {
        self.ip.capture.take().map_or(0, |capture| capture.file.left_out())
    }

    /// Sends an echo request with `bytes` bytes of data. The stack remembers the newest [`crate::limits::PINGS_MAX`] requests
    /// without a reply.
    ///
    /// # Errors
    /// Returns the drop reason if the request has no route or the packet is too long.
    pub fn ping(&mut self, now: Instant, ping: Ping, bytes: u16) -> Result<(), DropReason> {
        let sent = self.ip.ping(now, ping, bytes);
        self.deliver_loopback(now);
        sent
    }

    /// Returns the next echo request that was answered.
    pub fn poll_pong(&mut self) -> Option<Ping> {
        self.ip.pings.answered.pop_front()
    }
}

/// Returns the multicast groups that a node with these addresses joins (RFC 4291 2.8), without the group of all nodes.
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
