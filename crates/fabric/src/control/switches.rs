//! The settings of a switch that clients change while the network runs, and the status of its ports. The state file has each change, so
//! that it also holds for a switch that was killed and for a later control program.

use super::Control;
use crate::protocol::message::Order;
use crate::protocol::request::{Answer, DeviceStatus, KernelStatus, MemberStatus, SwitchStatus};
use siga_model::error::{Error, Result};
use siga_model::name::Name;
use siga_model::topology::{KernelPort, Mirror, PortChange, PortSettings, SwitchPort};

/// How many members one answer describes. A member with the longest texts, the most VLANs and the most addresses has less than 5 KB.
const MEMBERS_PART_MAX: usize = 16;

impl Control {
    /// Changes the settings of a port.
    pub(super) fn change_port(&mut self, network: &Name, port: &str, change: &PortChange) -> Result<()> {
        let port = self.topology.port(network, port)?;
        let settings = self.topology.changed(network, &port, change)?;
        if port.settings() == Some(&settings) {
            return Ok(());
        }
        let (label, grantee) = (port.label(), port.grantee().clone());
        let is_device = matches!(port, SwitchPort::Device(..));
        let others = self.topology.others_of_card(network, &label);
        self.topology.set_port(network, &label, &settings);
        let changed = self.state.settings.entry(network.clone()).or_default();
        changed.insert(label.clone(), settings.clone());
        for (other, before) in others {
            let shared = PortSettings { link: settings.link.clone(), ..before };
            self.topology.set_port(network, &other, &shared);
            changed.insert(other, shared);
        }
        self.write_state()?;
        self.log.line(&format!("network {network}: port {label}: {}", text_of(&settings)));
        if !is_device {
            self.send_order(network, &Order::PortSettings { port: grantee, settings }, Vec::new());
            return Ok(());
        }
        for (device, member) in self.members_of(network) {
            if member.id.to_string() == label {
                self.send_order(network, &Order::Member { device, member }, Vec::new());
            }
        }
        Ok(())
    }

    /// Begins or ends the copying of frames to a port.
    pub(super) fn set_mirror(&mut self, network: &Name, mirror: Option<Mirror>) -> Result<()> {
        let label = |name: &str| self.topology.port(network, name).map(|port| port.label());
        let mirror = match mirror {
            None => None,
            Some(Mirror { from, to }) => {
                let mirror = Mirror { from: from.as_deref().map(label).transpose()?, to: label(&to)? };
                if mirror.from.as_ref() == Some(&mirror.to) {
                    return Err(Error::usage(format!("port {} cannot be the mirror of its own frames", mirror.to)));
                }
                if matches!(
                    self.topology.port(network, &mirror.to)?,
                    SwitchPort::Kernel(KernelPort { uplink: Some(_), .. })
                ) {
                    return Err(Error::usage(format!(
                        "port {} is an uplink, which cannot be a mirror (a port that gets copies of frames)",
                        mirror.to
                    )));
                }
                Some(mirror)
            }
        };
        let has_switch = self.topology.networks.get(network).is_some_and(|network| network.switch.is_some());
        if !has_switch {
            return Err(Error::usage(format!("the topology has no network {network} with a switch")));
        }
        match &mirror {
            Some(mirror) => {
                let from = mirror.from.as_deref().unwrap_or("all ports");
                self.log.line(&format!("network {network}: port {} gets copies of the frames of {from}", mirror.to));
                self.state.mirrors.insert(network.clone(), mirror.clone());
            }
            None => {
                if self.state.mirrors.remove(network).is_some() {
                    self.log.line(&format!("network {network}: no port gets copies of frames any more"));
                }
            }
        }
        self.write_state()?;
        self.send_order(network, &Order::Mirror(mirror), Vec::new());
        Ok(())
    }

    /// Sends a switch the settings that clients have changed. An earlier control program may have been killed before it sent them.
    pub(super) fn send_changes(&mut self, network: &Name) {
        let changed = self.state.settings.get(network).cloned().unwrap_or_default();
        for (label, settings) in changed {
            if let Ok(SwitchPort::Kernel(port)) = self.topology.port(network, &label) {
                let port = port.name.clone();
                self.send_order(network, &Order::PortSettings { port, settings }, Vec::new());
            }
        }
        for (device, member) in self.members_of(network) {
            let label = member.id.to_string();
            if self.state.settings.get(network).is_some_and(|changed| changed.contains_key(&label)) {
                self.send_order(network, &Order::Member { device, member }, Vec::new());
            }
        }
        self.send_mirror(network);
    }

    pub(super) fn send_mirror(&mut self, network: &Name) {
        let mirror = self.state.mirrors.get(network).cloned();
        self.send_order(network, &Order::Mirror(mirror), Vec::new());
    }

    /// Asks a switch for the Ethernet addresses that it knows.
    pub(super) fn addresses(&mut self, key: u64, network: &Name, forget: bool) -> Result<()> {
        if !self.topology.guests.get(network).is_some_and(|guest| guest.is_switch) {
            return Err(Error::usage(format!("the topology has no network {network} with a switch")));
        }
        self.running(network)?;
        self.ask_for_parts(key, [(network.clone(), ADDRESS_PARTS_MAX)].into(), |request| Order::Addresses {
            request,
            forget,
        });
        Ok(())
    }

    /// Sends a client the status of all members of a network.
    pub(super) fn member_status(&mut self, key: u64, network: &Name) {
        let members: Vec<MemberStatus> =
            self.topology.ports(network).map(|port| self.status_of_port(network, port)).collect();
        for part in members.chunks(MEMBERS_PART_MAX) {
            self.answer(key, &Answer::Members { network: network.clone(), members: part.to_vec() });
        }
    }

    fn status_of_port(&self, network: &Name, port: SwitchPort<'_>) -> MemberStatus {
        let grantee = port.grantee().clone();
        let (addresses, mtu, kernel) = match port {
            SwitchPort::Device(_, device) => (device.addresses.clone(), device.mtu, None),
            SwitchPort::Kernel(port) => (port.addresses.clone(), port.mtu, Some(self.kernel_status(network, port))),
        };
        MemberStatus {
            label: port.label(),
            granted: self.topology.admits(network, &grantee),
            grantee,
            addresses,
            mtu,
            port: port.settings().cloned(),
            kernel,
            account: self.account_of(network, &port.label()),
            device: self.device_status(port),
        }
    }

    fn device_status(&self, port: SwitchPort<'_>) -> Option<DeviceStatus> {
        let SwitchPort::Device(guest, device) = port else { return None };
        Some(DeviceStatus {
            buffer_count: device.buffer_count,
            is_router: self.topology.guests.get(guest).is_some_and(|guest| guest.forwarding),
            checksums_by_card: self.topology.features.omit_checksums,
        })
    }

    fn kernel_status(&self, network: &Name, port: &KernelPort) -> KernelStatus {
        let key = (network.clone(), port.name.clone());
        let carrier = self.ports.carrier(&key);
        KernelStatus {
            place: port.place.to_string(),
            interface: port.interface.clone(),
            uplink: port.uplink,
            is_there: carrier.is_some() || self.ports.devices.contains_key(&key),
            has_carrier: carrier.unwrap_or(false),
            offload: port.offload,
            dhcp: port.assigned.dhcp,
            router_advertisements: port.assigned.advertisements,
            tenant: self.state.port(&key).tenant,
        }
    }

    /// Returns the status of a network's switch.
    pub(super) fn switch_status(&self, name: &Name) -> Option<SwitchStatus> {
        let network = &self.topology.networks[name];
        let switch = network.switch.as_ref()?;
        let has_carrier = |port: &&KernelPort| self.ports.carrier(&(name.clone(), port.name.clone())) == Some(true);
        let uplinks = switch.ports.iter().filter(|port| port.uplink.is_some() && network.access.admits(&port.name));
        Some(SwitchStatus {
            kind: network.kind,
            maxconn: switch.maxconn,
            flood_per_second: switch.flood_per_second,
            accounting: switch.accounting,
            mirror: self.state.mirrors.get(name).cloned(),
            uplink: uplinks.filter(has_carrier).min_by_key(|port| port.uplink).map(|port| port.name.clone()),
        })
    }
}

/// How many parts the addresses of one switch can have: see `REPORT_ADDRESSES_MAX`.
const ADDRESS_PARTS_MAX: usize = 1_024;

fn text_of(settings: &PortSettings) -> String {
    let PortSettings { mac: _, vlan, protection, isolated, promiscuous, link, card: _ } = settings;
    let on = |is_on: bool| if is_on { "on" } else { "off" };
    let (isolated, promiscuous) = (on(*isolated), on(*promiscuous));
    format!("{vlan}, protection {protection}, isolation {isolated}, promiscuous mode {promiscuous}, {link}")
}
