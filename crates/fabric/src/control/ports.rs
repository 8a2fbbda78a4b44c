//! The ports of network namespaces. The control program makes their TAP devices, because a switch can open nothing, and passes each
//! switch a descriptor. It keeps a descriptor itself: the device stays when the switch is killed and started again.

use super::{Control, Source, Stage};
use crate::limits::PORT_RETRY_INTERVAL;
use crate::netlink::Change;
use crate::protocol::message::Order;
use crate::tap_device::Uplink;
use crate::{convert, sys, tap_device};
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use siga_model::topology::{KernelPort, Network, Where};
use siga_stack::link::device::Agreed;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// The TAP devices of a network's ports.
#[derive(Debug, Default)]
pub(super) struct Ports {
    /// The devices, by the names of the switched network and the port.
    pub(super) devices: BTreeMap<(Name, Name), OwnedFd>,
    /// The uplinks' interfaces, each with the registration of its netlink socket.
    uplinks: BTreeMap<(Name, Name), (u64, Uplink)>,
    /// The processes by which namespaces were found, with their registrations. A device would keep the namespace of an ended
    /// container alive.
    holders: BTreeMap<(Name, Name), (u64, OwnedFd)>,
    /// The ports whose process has ended. They get no device again, because another process can have the number now.
    ended: BTreeSet<(Name, Name)>,
    /// The ports that clients have reserved for namespaces: each with its client, and the name of the namespace.
    pub(super) reserved: BTreeMap<(Name, Name), (u64, String)>,
    /// The ports without a device, and the time at which the control program tries again to make it.
    missing: BTreeSet<(Name, Name)>,
    retry_at: Option<Instant>,
}

impl Ports {
    /// Returns the time of the next attempt to make a device.
    pub(super) fn due(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Returns whether the interface of an uplink has a carrier. `None` if the port is not an uplink, or has no interface.
    pub(super) fn carrier(&self, key: &(Name, Name)) -> Option<bool> {
        self.uplinks.get(key).map(|(_, uplink)| uplink.has_carrier)
    }
}

impl Control {
    /// Returns the ports of a switched network to which the network grants access.
    pub(super) fn granted_ports(&self, network: &Name) -> Vec<KernelPort> {
        let Some(Network { switch: Some(switch), access, .. }) = self.topology.networks.get(network) else {
            return Vec::new();
        };
        switch.ports.iter().filter(|port| access.admits(&port.name)).cloned().collect()
    }

    pub(super) fn is_port(&self, network: &Name, port: &Name) -> bool {
        let switch = self.topology.networks.get(network).and_then(|network| network.switch.as_ref());
        switch.is_some_and(|switch| switch.ports.iter().any(|own| own.name == *port))
    }

    /// Passes all ports to a switch that starts. In a new network, a port whose device cannot be made ends the start. Later, the
    /// other ports work without it, and the control program tries again to make the device.
    pub(super) fn send_ports(&mut self, network: &Name) -> Result<()> {
        for port in self.granted_ports(network) {
            if self.ports.ended.contains(&(network.clone(), port.name.clone())) {
                continue;
            }
            if let Err(error) = self.send_port(network, &port) {
                let error = error.at(format!("network {network}, port {}", port.name));
                if matches!(self.stage, Stage::Starting { is_new: true, .. }) {
                    return Err(error);
                }
                self.log.of_guest(network, &error.to_string());
                self.miss(network, &port.name);
            }
        }
        self.forget_absent_tenants(network);
        Ok(())
    }

    /// Takes over a port that an adopted switch reports.
    pub(super) fn adopt_port(&mut self, network: &Name, port: &Name, mut descriptors: Vec<OwnedFd>) {
        let known = self.granted_ports(network).into_iter().find(|known| known.name == *port);
        match (known, descriptors.pop()) {
            // The control program opens the interface of an uplink again, because it must also watch it.
            (Some(KernelPort { uplink: Some(_), .. }), _) => {}
            (Some(_), Some(device)) if sys::tap_name(&device).is_ok() => {
                self.ports.devices.insert((network.clone(), port.clone()), device);
            }
            (Some(_) | None, _) => self.send_order(network, &Order::PortGone { port: port.clone() }, Vec::new()),
        }
    }

    /// Manages the ports of a switch that was adopted: watches the processes of their namespaces and the interfaces of uplinks, and makes
    /// the devices that the switch does not have.
    pub(super) fn resume_ports(&mut self, network: &Name) {
        for port in self.granted_ports(network) {
            let key = (network.clone(), port.name.clone());
            let has_device = self.ports.devices.contains_key(&key);
            let resumed =
                if has_device { self.watch_holder(&key, &port.place) } else { self.send_port(network, &port) };
            let Err(error) = resumed else { continue };
            self.log.of_guest(network, &format!("network {network}, port {}: {error}", port.name));
            if has_device {
                self.ports.devices.remove(&key);
                self.send_order(network, &Order::PortGone { port: port.name.clone() }, Vec::new());
            }
            if !self.ports.ended.contains(&key) {
                self.miss(network, &port.name);
            }
        }
        self.send_changes(network);
        self.forget_absent_tenants(network);
    }

    pub(super) fn send_port(&mut self, network: &Name, port: &KernelPort) -> Result<()> {
        let key = (network.clone(), port.name.clone());
        if port.uplink.is_some() {
            return self.send_uplink(&key, port);
        }
        if !self.ports.devices.contains_key(&key) {
            if port.place == Where::Joins {
                return Ok(());
            }
            let agreed = self.agreed(network, port);
            self.watch_holder(&key, &port.place)?;
            let holder = self.ports.holders.get(&key).map(|(_, holder)| holder.as_fd());
            let device = tap_device::make(port, holder, agreed)?;
            self.log.of_guest(network, &format!("network {network}: port {} in {}", port.name, port.place));
            self.ports.devices.insert(key.clone(), device);
        }
        self.ports.missing.remove(&key);
        let device =
            self.ports.devices[&key].try_clone().context("cannot duplicate the descriptor of a port's TAP device")?;
        self.send_order(network, &Order::Port { port: Box::new(port.clone()) }, vec![device]);
        Ok(())
    }

    /// Returns the kinds of frames that a namespace's kernel may exchange with the switch in addition to ordinary ones.
    pub(super) fn agreed(&self, network: &Name, port: &KernelPort) -> Agreed {
        let kind = self.topology.networks[network].kind;
        if port.offload { convert::agreed(self.topology.features, kind) } else { Agreed::default() }
    }

    /// Watches the process by which a namespace is found, until it ends. Another process that has its number later does not count, also
    /// not after a restart of the control program.
    fn watch_holder(&mut self, key: &(Name, Name), place: &Where) -> Result<()> {
        let Where::Pid(pid) = place else { return Ok(()) };
        let has_ended = || Error::environment(format!("{place}: this process has ended"));
        if self.ports.ended.contains(key) {
            return Err(has_ended());
        }
        if self.ports.holders.contains_key(key) {
            return Ok(());
        }
        let before = self.state.port(key).holder_started;
        let opened = tap_device::open_holder(*pid);
        // The start time is read after the process was opened. If the process has ended in between, its descriptor says so.
        let started = tap_device::start_time(*pid);
        if before.is_some() && (before != started || opened.is_err()) {
            self.ports.ended.insert(key.clone());
            return Err(has_ended());
        }
        let holder = opened?;
        let registration = self.watch(&holder, Source::Holder(key.0.clone(), key.1.clone()))?;
        if self.state.set_port(key, |port| port.holder_started = started) {
            self.state.write(&self.run, &self.topology, false)?;
        }
        self.ports.holders.insert(key.clone(), (registration, holder));
        Ok(())
    }

    /// Removes a port, because the process by which its namespace was found has ended.
    pub(super) fn holder_ended(&mut self, network: &Name, port: &Name) {
        self.send_order(network, &Order::PortGone { port: port.clone() }, Vec::new());
        let key = (network.clone(), port.clone());
        if let Some((registration, holder)) = self.ports.holders.remove(&key) {
            self.events.remove(registration, &holder);
        }
        self.ports.ended.insert(key.clone());
        self.port_lost(network, port, "the process whose network namespace contains the port has ended");
        self.ports.missing.remove(&key);
    }

    fn send_uplink(&mut self, key: &(Name, Name), port: &KernelPort) -> Result<()> {
        let (network, name) = key.clone();
        if !self.ports.uplinks.contains_key(key) {
            self.watch_holder(key, &port.place)?;
            let holder = self.ports.holders.get(key).map(|(_, holder)| holder.as_fd());
            let uplink = tap_device::open_uplink(port, holder)?;
            self.log.of_guest(&network, &format!("network {network}: uplink {name} of {}", port.place));
            let source = Source::Uplink(network.clone(), name.clone());
            let registration = self.watch(uplink.changes.descriptor(), source)?;
            self.ports.uplinks.insert(key.clone(), (registration, uplink));
        }
        self.ports.missing.remove(key);
        let uplink = &self.ports.uplinks[key].1;
        let (socket, is_there) = (
            uplink.socket.try_clone().context("cannot duplicate the descriptor of an uplink's socket")?,
            uplink.has_carrier,
        );
        let port = KernelPort { mtu: port.mtu.min(uplink.mtu), ..port.clone() };
        self.send_order(&network, &Order::Port { port: Box::new(port) }, vec![socket]);
        self.send_order(&network, &Order::Carrier { port: name, is_there }, Vec::new());
        Ok(())
    }

    /// Handles a change of the interfaces in an uplink's namespace.
    pub(super) fn uplink_changed(&mut self, network: &Name, port: &Name) {
        let Some((_, uplink)) = self.ports.uplinks.get_mut(&(network.clone(), port.clone())) else { return };
        let change = match uplink.changes.last_change(uplink.index) {
            None => return,
            Some(Change::Unknown) => uplink.requests.has_carrier(uplink.index).map_or(Change::Deleted, Change::Carrier),
            Some(known) => known,
        };
        let Change::Carrier(is_there) = change else {
            self.send_order(network, &Order::PortGone { port: port.clone() }, Vec::new());
            self.port_lost(network, port, "the network interface of the port was deleted");
            return;
        };
        if std::mem::replace(&mut uplink.has_carrier, is_there) != is_there {
            let word = if is_there { "has" } else { "lost" };
            self.log.of_guest(network, &format!("network {network}: uplink {port} {word} its carrier"));
            self.send_order(network, &Order::Carrier { port: port.clone(), is_there }, Vec::new());
        }
    }

    fn miss(&mut self, network: &Name, port: &Name) {
        self.ports.missing.insert((network.clone(), port.clone()));
        self.ports.retry_at.get_or_insert_with(|| Instant::now() + PORT_RETRY_INTERVAL);
    }

    /// Handles the event that the device of a port is gone, for example because its namespace was removed.
    pub(super) fn port_lost(&mut self, network: &Name, port: &Name, why: &str) {
        let key = (network.clone(), port.clone());
        let uplink = self.ports.uplinks.remove(&key);
        if let Some((registration, uplink)) = &uplink {
            self.events.remove(*registration, uplink.changes.descriptor());
        }
        if self.ports.devices.remove(&key).is_none() && uplink.is_none() {
            return;
        }
        self.log.of_guest(network, &format!("network {network}: port {port} was removed, because {why}"));
        if self.state.port(&key).tenant.is_some() {
            self.forget_tenant(&key);
        } else {
            self.miss(network, port);
        }
    }

    /// Handles the event of a switch that a port's device is gone. The event can be about an earlier device of the port.
    pub(super) fn switch_lost_port(&mut self, network: &Name, port: &Name, why: &str) {
        let device = self.ports.devices.get(&(network.clone(), port.clone()));
        if device.is_none_or(|device| sys::tap_name(device).is_err()) {
            self.port_lost(network, port, why);
        }
    }

    /// Tries again to make the devices of ports without one.
    pub(super) fn ports_due(&mut self, now: Instant) {
        if self.ports.retry_at.is_none_or(|at| now < at) {
            return;
        }
        self.ports.retry_at = None;
        for (network, name) in std::mem::take(&mut self.ports.missing) {
            let port = self.granted_ports(&network).into_iter().find(|port| port.name == name);
            let Some(port) = port.filter(|_| self.guests.contains_key(&network) && !self.is_stopping()) else {
                continue;
            };
            if self.send_port(&network, &port).is_err() {
                self.miss(&network, &name);
            }
        }
    }

    /// Gives a port access to its restricted network, or withdraws it. The TAP device stays in its namespace.
    pub(super) fn set_port_access(&mut self, network: &Name, name: &Name, granted: bool) -> Result<()> {
        if !granted {
            self.send_order(network, &Order::PortGone { port: name.clone() }, Vec::new());
            return Ok(());
        }
        match self.granted_ports(network).into_iter().find(|port| port.name == *name) {
            Some(port) => self.send_port(network, &port),
            None => Ok(()),
        }
    }
}
