//! Network namespaces that join ports while the network runs. The client that makes such a namespace reserves a port, makes a TAP device
//! with the port's settings in the namespace, and passes its descriptor. The namespace is the port's *tenant* from then on, until it ends
//! or a client releases the port.
//!
//! A reservation ends with the connection of its client. So a client that is killed at any point leaves either nothing, or a port with a
//! tenant that can be released by its name.

use super::Control;
use crate::limits::{HOSTS_PART_MAX, TENANT_BYTES_MAX};
use crate::protocol::message::Order;
use crate::protocol::request::Answer;
use crate::sys;
use siga_model::error::{Error, Result};
use siga_model::name::Name;
use siga_model::topology::{KernelPort, Where};
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// The names of a switched network and one of its ports.
type PortKey = (Name, Name);

impl Control {
    /// Reserves a port for a namespace, and sends the client the port's settings and the names of all hosts.
    pub(super) fn reserve_port(
        &mut self,
        client: u64,
        lan: Option<&Name>,
        port: Option<&Name>,
        tenant: String,
    ) -> Result<()> {
        if self.is_stopping() {
            return Err(Error::environment("the network is going down, so no namespace can join it"));
        }
        if tenant.is_empty() || tenant.len() > TENANT_BYTES_MAX {
            return Err(Error::usage(format!(
                "the name of a namespace that joins a port must have 1 to {TENANT_BYTES_MAX} bytes"
            )));
        }
        if let Some((_, port)) = self.port_of_tenant(&tenant) {
            return Err(Error::usage(format!("{tenant} already has port {port}")));
        }
        let key = self.choose_port(lan, port)?;
        self.may_join(&key)?;
        let port = self.granted_ports(&key.0).into_iter().find(|known| known.name == key.1);
        let port = port.ok_or_else(|| {
            Error::usage(format!("network {} does not grant access to port {}", key.0, key.1))
                .hint(format!("to grant access: siga net grant {} {} {}", self.state.name, key.0, key.1))
        })?;
        let agreed = self.agreed(&key.0, &port);
        let answer = Answer::Port {
            lan: key.0.clone(),
            port: Box::new(port),
            checksums: agreed.checksum_unfilled,
            segments: agreed.large_segments,
        };
        self.ports.reserved.insert(key, (client, tenant));
        self.answer(client, &answer);
        for part in self.hosts().chunks(HOSTS_PART_MAX) {
            self.answer(client, &Answer::Hosts(part.to_vec()));
        }
        Ok(())
    }

    /// Returns the port with a name, or a free port of a network.
    fn choose_port(&self, lan: Option<&Name>, port: Option<&Name>) -> Result<PortKey> {
        let networks = self.topology.networks.iter().filter(|(name, _)| lan.is_none_or(|lan| lan == *name));
        let all: Vec<(&Name, &KernelPort)> = networks
            .filter_map(|(name, network)| Some((name, network.switch.as_ref()?)))
            .flat_map(|(name, switch)| switch.ports.iter().map(move |port| (name, port)))
            .collect();
        let joinable: Vec<_> = all.iter().filter(|(_, port)| port.place == Where::Joins).collect();
        let key_of = |(lan, port): &(&Name, &KernelPort)| ((*lan).clone(), port.name.clone());
        if let Some(name) = port {
            if let Some(found) = joinable.iter().find(|(_, port)| port.name == *name) {
                return Ok(key_of(found));
            }
            if let Some((_, port)) = all.iter().find(|(_, port)| port.name == *name) {
                return Err(Error::usage(format!(
                    "port {name} belongs to {}, so no other namespace can join the port",
                    port.place
                ))
                .hint("remove `netns` and `pid` of the port in the topology"));
            }
            let names: Vec<&str> = joinable.iter().map(|(_, port)| port.name.as_str()).collect();
            let known =
                if names.is_empty() { "no port without `netns` and `pid`".to_owned() } else { names.join(", ") };
            return Err(Error::usage(format!("the topology has no port {name} that a namespace can join"))
                .hint(format!("ports: {known}")));
        }
        let is_free = |found: &&&(&Name, &KernelPort)| {
            let key = key_of(found);
            let access = &self.topology.networks[&key.0].access;
            access.admits(&key.1) && self.may_join(&key).is_ok()
        };
        match (joinable.iter().find(is_free), lan) {
            (Some(found), _) => Ok(key_of(found)),
            (None, Some(lan)) if !self.topology.networks.contains_key(lan) => {
                Err(Error::usage(format!("the topology has no network {lan}")))
            }
            (None, _) => Err(Error::environment(format!(
                "no port of the switch is free: all {} ports that a namespace can join are in use",
                joinable.len()
            ))
            .hint("give a port of the topology a larger `count`")),
        }
    }

    /// Checks that a port has no tenant and is not reserved, and that its network exists.
    fn may_join(&self, key: &PortKey) -> Result<()> {
        let (lan, port) = key;
        if !self.exists(lan) {
            return Err(Error::environment(format!(
                "network {lan} does not exist now, because the guest that owns it does not run"
            )));
        }
        let tenant = self.state.port(key).tenant;
        let user = tenant.or_else(|| self.ports.reserved.get(key).map(|(_, tenant)| tenant.clone()));
        match user {
            Some(user) => Err(Error::environment(format!("port {port} is in use by {user}"))),
            None => Ok(()),
        }
    }

    /// Returns the names and addresses of all guests and ports.
    fn hosts(&self) -> Vec<(Name, IpAddr)> {
        let guests = self.topology.guests.iter().flat_map(|(name, guest)| {
            let addresses = guest.devices.iter().flat_map(|device| &device.addresses);
            addresses.map(move |own| (name.clone(), own.addr()))
        });
        let switches = self.topology.networks.values().filter_map(|network| network.switch.as_ref());
        let ports = switches.flat_map(|switch| &switch.ports);
        let ports = ports.flat_map(|port| port.addresses.iter().map(|own| (port.name.clone(), own.addr())));
        guests.chain(ports).collect()
    }

    /// Gives the reserved port of a client its device.
    pub(super) fn join_port(&mut self, client: u64, mut descriptors: Vec<OwnedFd>) -> Result<()> {
        let reserved = self.ports.reserved.iter().find(|(_, (own, _))| *own == client);
        let Some((key, (_, tenant))) = reserved.map(|(key, reserved)| (key.clone(), reserved.clone())) else {
            return Err(Error::usage("the request to join a port comes from a connection that has reserved no port"));
        };
        let device = descriptors.pop().filter(|_| descriptors.is_empty());
        let device = device.ok_or_else(|| {
            Error::usage("the request to join a port must contain exactly one descriptor of a TAP device")
        })?;
        sys::tap_name(&device).map_err(|error| {
            Error::usage(format!("the descriptor in the request is not a TAP device for a port: {error}"))
        })?;
        let port = self.granted_ports(&key.0).into_iter().find(|port| port.name == key.1);
        let port =
            port.ok_or_else(|| Error::usage(format!("port {} has lost its access to network {}", key.1, key.0)))?;
        self.ports.reserved.remove(&key);
        self.log.of_guest(&key.0, &format!("network {}: port {}: {tenant} has joined", key.0, key.1));
        self.state.set_port(&key, |port| port.tenant = Some(tenant));
        self.state.write(&self.run, &self.topology, false)?;
        self.ports.devices.insert(key.clone(), device);
        self.send_port(&key.0, &port)
    }

    fn port_of_tenant(&self, tenant: &str) -> Option<PortKey> {
        let reserved = self.ports.reserved.iter().find(|(_, (_, own))| own == tenant);
        let of_state = || {
            self.state.ports.iter().find_map(|(lan, ports)| {
                let (port, _) = ports.iter().find(|(_, port)| port.tenant.as_deref() == Some(tenant))?;
                Some((lan.clone(), port.clone()))
            })
        };
        reserved.map(|(key, _)| key.clone()).or_else(of_state)
    }

    /// Removes a namespace from its port. The kernel removes the TAP device when the switch has closed its descriptor too.
    pub(super) fn release_port(&mut self, tenant: &str) -> Result<()> {
        let Some(key) = self.port_of_tenant(tenant) else { return Ok(()) };
        if self.ports.reserved.remove(&key).is_none() {
            self.log.of_guest(&key.0, &format!("network {}: port {}: {tenant} has left", key.0, key.1));
            self.ports.devices.remove(&key);
            self.send_order(&key.0, &Order::PortGone { port: key.1.clone() }, Vec::new());
            self.state.set_port(&key, |port| port.tenant = None);
            self.state.write(&self.run, &self.topology, false)?;
        }
        Ok(())
    }

    /// Sends a client the name of each namespace that has joined a port.
    pub(super) fn tenants(&mut self, client: u64) {
        let tenants = self.state.ports.iter().flat_map(|(lan, ports)| {
            let tenants = ports.iter().filter_map(|(port, state)| Some((port.clone(), state.tenant.clone()?)));
            tenants.map(|(port, tenant)| Answer::Tenant { lan: lan.clone(), port, tenant })
        });
        let answers: Vec<Answer> = tenants.collect();
        answers.iter().for_each(|answer| self.answer(client, answer));
    }

    /// Ends the reservations of a client.
    pub(super) fn end_reservations(&mut self, client: u64) {
        self.ports.reserved.retain(|_, (own, _)| *own != client);
    }

    /// Records that the namespace of a port has ended.
    pub(super) fn forget_tenant(&mut self, key: &PortKey) {
        if self.state.set_port(key, |port| port.tenant = None)
            && let Err(error) = self.state.write(&self.run, &self.topology, false)
        {
            self.log.of_guest(&key.0, &format!("network {}: {error}", key.0));
        }
    }

    /// Records that the tenants of ports without a device have ended. Their devices have ended with the processes that held them: the
    /// switch and an earlier control program.
    pub(super) fn forget_absent_tenants(&mut self, network: &Name) {
        let Some(ports) = self.state.ports.get(network) else { return };
        let tenants = ports.iter().filter(|(_, port)| port.tenant.is_some());
        let mut keys: Vec<PortKey> = tenants.map(|(port, _)| (network.clone(), port.clone())).collect();
        keys.retain(|key| !self.ports.devices.contains_key(key));
        keys.iter().for_each(|key| self.forget_tenant(key));
    }
}
