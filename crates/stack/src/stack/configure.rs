//! Configures a stack (devices, routes, source filters), captures frames, returns counters, and sends echo requests.

use super::Stack;
use crate::drops::{DropReason, Drops};
use crate::ip::echo::Ping;
use crate::ip::route::{RouteError, Routes, Target};
use crate::link::capture::{Capture, CaptureSettings};
use crate::link::device::{DeviceConfig, DeviceCounters, DeviceError, check_mtu};
use crate::link::frame::DeviceId;
use crate::link::source::Sources;
use crate::sockets::{RouteSettings, RouteSettingsError, TcpDefaults};
use crate::tcp::{SettingError, Storage};
use crate::time::Instant;
use crate::wire::address::{ALL_ROUTERS, ALL_SITE_ROUTERS, Prefix, solicited_node};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};

impl<S: Storage> Stack<S> {
    /// Adds a device. Also adds the routes to the device's own addresses and to the networks of these addresses.
    pub fn add_device(&mut self, config: DeviceConfig) -> Result<DeviceId, DeviceError> {
        let groups = own_groups(&config, self.ip.policy.forwarding);
        let id = self.ip.add_device(config)?;
        self.groups.add_device(&groups);
        self.tcp.pending.push(VecDeque::new());
        Ok(id)
    }

    /// Changes the MTU of a device: the length of the largest IP packet that it can send. TCP connections over the device adapt
    /// their segment sizes.
    pub fn set_mtu(&mut self, now: Instant, device: DeviceId, mtu: u16) -> Result<(), DeviceError> {
        let changed = self.ip.devices.get_mut(usize::from(device.0)).ok_or(DeviceError::NoDevice)?;
        check_mtu(&changed.config.addresses, mtu)?;
        changed.config.mtu = mtu;
        self.mtu_changed(now, device);
        Ok(())
    }

    /// Adds the route of a prefix, or replaces it if the prefix has one. With a gateway, packets are sent to the gateway. Without
    /// one, they are sent directly to hosts on the device's link.
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

    /// Returns all routes, including those to the stack's own addresses and to the networks of its devices.
    pub fn routes(&self) -> &Routes {
        &self.ip.routes
    }

    /// Sets the source addresses from which a device accepts packets. `None` means all source addresses.
    ///
    /// # Errors
    /// Returns [`DeviceError::NoDevice`] if the stack has no such device.
    pub fn set_sources(&mut self, device: DeviceId, sources: Option<Sources>) -> Result<(), DeviceError> {
        let changed = self.ip.devices.get_mut(usize::from(device.0)).ok_or(DeviceError::NoDevice)?;
        changed.filter.sources = sources;
        // The new version number makes frames from sources that passed the old filter take the slow path, which checks them again.
        self.ip.routes_changed();
        Ok(())
    }

    /// Returns whether a socket can have this local address: an address of the stack, or the wildcard address.
    pub fn has_address(&self, address: IpAddr) -> bool {
        address.is_unspecified() || self.ip.is_own(address)
    }

    /// Returns the default settings of this stack's sockets. [`TcpOptions::default`](crate::sockets::TcpOptions) has the defaults of
    /// every stack instead.
    pub fn tcp_defaults(&self) -> TcpDefaults {
        let tcp = &self.tcp;
        TcpDefaults { config: tcp.defaults, keepalive: tcp.keepalive, fast_open: tcp.fast_open.settings }
    }

    /// Changes a default setting of TCP by its name in Linux, such as `tcp_sack`. Existing connections and listeners keep their
    /// settings. See [`TcpDefaults::set_named`].
    pub fn set_tcp_default(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let mut defaults = self.tcp_defaults();
        defaults.set_named(name, value)?;
        (self.tcp.defaults, self.tcp.keepalive) = (defaults.config, defaults.keepalive);
        self.tcp.fast_open.settings = defaults.fast_open;
        Ok(())
    }

    /// Sets the settings of the connections that open to hosts of a prefix, or removes them if `settings` is empty. If several
    /// prefixes cover a host, the longest applies. A route to the prefix is not required.
    pub fn set_route_settings(&mut self, prefix: Prefix, settings: RouteSettings) -> Result<(), RouteSettingsError> {
        self.tcp.route_settings.set(prefix, settings)
    }

    /// Returns how many packets were dropped since the stack was created, for each drop reason.
    pub fn drops(&self) -> &Drops {
        &self.ip.drops
    }

    /// Returns the number of TCP connections, not counting those in TIME-WAIT.
    pub fn connections(&self) -> u64 {
        self.tcp.sockets.len() as u64
    }

    /// Returns how many frames and bytes a device has received and sent since it was added.
    pub fn counters(&self, device: DeviceId) -> Option<DeviceCounters> {
        self.ip.devices.get(usize::from(device.0)).map(|device| device.counters)
    }

    /// Names a device. Captures show the name.
    ///
    /// # Errors
    /// Returns [`DeviceError::NoDevice`] if the stack has no such device.
    pub fn name_device(&mut self, device: DeviceId, name: &str) -> Result<(), DeviceError> {
        let named = self.ip.devices.get_mut(usize::from(device.0)).ok_or(DeviceError::NoDevice)?;
        name.clone_into(&mut named.name);
        if let Some(capture) = &mut self.ip.capture {
            capture.rename_device(device, name);
        }
        Ok(())
    }

    /// Starts to capture the frames of all devices.
    ///
    /// A frame that does not fit into the buffer is left out and counted. A capture does not contain the marks of frames. So a
    /// checksum that a later device fills in looks wrong, and a large segment looks too long.
    pub fn start_capture(&mut self, settings: CaptureSettings) {
        let mut capture = Capture::new(settings);
        self.ip.devices.iter().for_each(|device| capture.add_device(device));
        self.ip.capture = Some(capture);
    }

    /// Returns the bytes that were captured since the last call. The results of all calls, concatenated, are a pcapng file.
    pub fn take_capture(&mut self) -> Vec<u8> {
        self.ip.capture.as_mut().map_or_else(Vec::new, |capture| capture.file.take())
    }

    /// Ends the capture, and discards the bytes that [`Stack::take_capture`] has not returned. Returns how many frames were left
    /// out.
    pub fn stop_capture(&mut self) -> u64 {
        self.ip.capture.take().map_or(0, |capture| capture.file.left_out())
    }

    /// Sends an echo request with `bytes` bytes of data. The stack stores the newest [`crate::limits::PINGS_MAX`] requests that
    /// have no reply yet.
    ///
    /// # Errors
    /// Returns the drop reason if the request has no route, or if the packet is too long.
    pub fn ping(&mut self, now: Instant, ping: Ping, bytes: u16) -> Result<(), DropReason> {
        let sent = self.ip.ping(now, ping, bytes);
        self.deliver_loopback(now);
        sent
    }

    /// Returns the next echo request that a reply has arrived for.
    #[inline]
    pub fn poll_pong(&mut self) -> Option<Ping> {
        self.ip.pings.answered.pop_front()
    }
}

/// Returns the multicast groups that a node with these addresses joins (RFC 4291 2.8), without the group of all nodes.
fn own_groups(config: &DeviceConfig, forwarding: bool) -> Vec<Ipv6Addr> {
    let mut groups = Vec::new();
    for own in &config.addresses {
        if let IpAddr::V6(own) = own.address() {
            groups.extend(forwarding.then_some([ALL_ROUTERS, ALL_SITE_ROUTERS]).into_iter().flatten());
            groups.push(solicited_node(own));
        }
    }
    groups
}
