//! The ports of switches by their names, and the changes of their settings while a network runs.

use super::check::{bounded, within};
use super::switched::works_at_layer_2;
use super::{Device, KernelPort, NetworkKind, PortSettings, PortVlan, Protection, Topology};
use crate::error::{Error, Result};
use crate::limits;
use crate::link::{Link, LinkChange};
use crate::name::Name;
use serde::{Deserialize, Serialize};

/// A change of a port's settings. `None` leaves a setting unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortChange {
    /// The VLANs of the port.
    pub vlan: Option<PortVlan>,
    /// The source addresses that the switch checks.
    pub protection: Option<Protection>,
    /// Whether the port exchanges no frames with other isolated ports.
    pub isolated: Option<bool>,
    /// Whether the port also gets copies of all unicast frames of its VLANs.
    pub promiscuous: Option<bool>,
    /// A change of the modelled link for frames that the station sends.
    pub link_from_station: Option<LinkChange>,
    /// A change of the modelled link for frames that the station receives.
    pub link_to_station: Option<LinkChange>,
}

/// The modelled link between a port and its station. A direction without a link passes frames at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortLink {
    /// The link for frames that the station sends.
    pub from_station: Option<Link>,
    /// The link for frames that the station receives.
    pub to_station: Option<Link>,
}

impl std::fmt::Display for PortLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.from_station, &self.to_station) {
            (None, None) => f.write_str("no modelled link"),
            (Some(from), Some(to)) if from == to => write!(f, "link {from}"),
            (from, to) => {
                let text = |link: &Option<Link>| link.as_ref().map_or_else(|| "none".to_owned(), Link::to_string);
                write!(f, "link from the station: {}, to the station: {}", text(from), text(to))
            }
        }
    }
}

/// Copies of frames for one port of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mirror {
    /// The port whose frames are copied, in both directions. `None`: the frames of all ports.
    #[serde(deserialize_with = "crate::text::bounded_option")]
    pub from: Option<String>,
    /// The port that gets the copies.
    #[serde(deserialize_with = "crate::text::bounded")]
    pub to: String,
}

/// A port of a switch.
#[derive(Debug, Clone, Copy)]
pub enum SwitchPort<'a> {
    /// The port of a guest's device.
    Device(&'a Name, &'a Device),
    /// The port of a namespace, or an uplink.
    Kernel(&'a KernelPort),
}

impl SwitchPort<'_> {
    /// Returns the label of the port: `guest.device`, or the name of a port that leads to the kernel.
    pub fn label(&self) -> String {
        match self {
            Self::Device(guest, device) => format!("{guest}.{}", device.name),
            Self::Kernel(port) => port.name.to_string(),
        }
    }

    /// Returns the name to which the network grants access: the guest or the port.
    pub fn grantee(&self) -> &Name {
        match self {
            Self::Device(guest, _) => guest,
            Self::Kernel(port) => &port.name,
        }
    }

    /// Returns the settings of the port.
    pub fn settings(&self) -> Option<&PortSettings> {
        match self {
            Self::Device(_, device) => device.port.as_ref(),
            Self::Kernel(port) => Some(&port.settings),
        }
    }
}

impl Topology {
    /// Returns the devices of guests on a network, and the ports of its switch that lead to the kernel.
    pub fn ports<'a>(&'a self, network: &'a Name) -> impl Iterator<Item = SwitchPort<'a>> {
        let guests = self.on(network).filter(|(guest, _, _)| !self.guests[*guest].is_switch);
        let devices = guests.map(|(guest, _, device)| SwitchPort::Device(guest, device));
        let switch = self.networks.get(network).and_then(|network| network.switch.as_ref());
        devices.chain(switch.into_iter().flat_map(|switch| &switch.ports).map(SwitchPort::Kernel))
    }

    /// Returns the port of a switch with this label. The name of a guest also stands for its only device on the network.
    ///
    /// # Errors
    /// Returns an error if the network has no switch, or if no port or several ports have this name.
    pub fn port<'a>(&'a self, network: &'a Name, name: &str) -> Result<SwitchPort<'a>> {
        let known = self.networks.get(network);
        let known = known.ok_or_else(|| Error::usage(format!("the topology has no network {network}")))?;
        if known.switch.is_none() {
            return Err(Error::usage(format!("network {network} has no switch, so it has no ports"))
                .hint("networks of type guestlan, vswitch, qdio and lcs have a switch"));
        }
        let is_device_of =
            |port: &SwitchPort<'_>| matches!(port, SwitchPort::Device(guest, _) if guest.as_str() == name);
        let found: Vec<_> = self.ports(network).filter(|port| is_device_of(port) || port.label() == name).collect();
        match found[..] {
            [port] => Ok(port),
            [] => {
                let message = format!("network {network} has no port {name}");
                let labels: Vec<String> = self.ports(network).take(NAMED_MAX).map(|port| port.label()).collect();
                Err(Error::usage(message).hint(format!("ports: {}", labels.join(", "))))
            }
            [..] => {
                let labels: Vec<String> = found.iter().map(SwitchPort::label).collect();
                let message = format!("guest {name} has several devices on network {network}");
                Err(Error::usage(message)
                    .hint(format!("to choose one of these devices, write one of the names {}", labels.join(", "))))
            }
        }
    }

    /// Returns the settings that a port has after a change.
    ///
    /// # Errors
    /// Returns an error if the port cannot have these settings.
    pub fn changed(&self, network: &Name, port: &SwitchPort<'_>, change: &PortChange) -> Result<PortSettings> {
        let at = |error: Error| error.at(format!("network {network}, port {}", port.label()));
        let kind = self.networks[network].kind;
        let before = port.settings().ok_or_else(|| Error::usage("the port has no settings"))?;
        may_change(kind, port, change).map_err(at)?;
        let PortChange { vlan, protection, isolated, promiscuous, link_from_station, link_to_station } = change;
        let link = |change: &Option<LinkChange>, before: &Option<Link>| match change {
            Some(change) => change.apply(before.as_ref()).map_err(at),
            None => Ok(before.clone()),
        };
        Ok(PortSettings {
            mac: before.mac,
            vlan: vlan.as_ref().unwrap_or(&before.vlan).clone(),
            protection: protection.unwrap_or(before.protection),
            isolated: isolated.unwrap_or(before.isolated),
            promiscuous: promiscuous.unwrap_or(before.promiscuous),
            link: PortLink {
                from_station: link(link_from_station, &before.link.from_station)?,
                to_station: link(link_to_station, &before.link.to_station)?,
            },
            card: before.card.clone(),
        })
    }

    /// Returns the labels and settings of the other ports that share the card of a port.
    pub fn others_of_card(&self, network: &Name, label: &str) -> Vec<(String, PortSettings)> {
        let ports = || {
            let settings = |port: SwitchPort<'_>| Some((port.label(), port.settings()?.clone()));
            self.ports(network).filter_map(settings)
        };
        let name_of = |settings: &PortSettings| settings.card.as_ref().and_then(|card| card.name.clone());
        let card = ports().find(|(other, _)| other == label).and_then(|(_, settings)| name_of(&settings));
        ports().filter(|(other, settings)| other != label && card.is_some() && name_of(settings) == card).collect()
    }

    /// Replaces the settings of the port with this label. Does nothing if there is no such port.
    pub fn set_port(&mut self, network: &Name, label: &str, settings: &PortSettings) {
        for (name, guest) in &mut self.guests {
            for device in guest.devices.iter_mut().filter(|device| device.network == *network) {
                if device.port.is_some() && format!("{name}.{}", device.name) == label {
                    device.port = Some(settings.clone());
                }
            }
        }
        let switch = self.networks.get_mut(network).and_then(|network| network.switch.as_mut());
        for port in switch.into_iter().flat_map(|switch| &mut switch.ports) {
            if port.name.as_str() == label {
                port.settings = settings.clone();
            }
        }
    }
}

/// How many ports an error message names.
const NAMED_MAX: usize = 20;

fn may_change(kind: NetworkKind, port: &SwitchPort<'_>, change: &PortChange) -> Result<()> {
    if matches!(port, SwitchPort::Kernel(KernelPort { uplink: Some(_), .. })) {
        return Err(Error::usage("the settings of an uplink cannot be changed while the network runs")
            .hint("change the topology, and start the network again"));
    }
    if !works_at_layer_2(kind) && (change.vlan.is_some() || change.protection.is_some()) {
        return Err(Error::usage(format!(
            "a network of type {kind} has no VLANs, and its protection cannot be changed"
        )));
    }
    let in_range = |vlan: u16| within(format_args!("VLAN {vlan}"), vlan, 1..=limits::VLAN_MAX);
    match &change.vlan {
        None => Ok(()),
        Some(PortVlan::Access(vlan)) => in_range(*vlan),
        Some(PortVlan::Trunk { .. }) if matches!(port, SwitchPort::Device(..)) => {
            Err(Error::usage("the port of a guest's device cannot be a trunk port, because the guest sends no tags")
                .hint("make the port an access port"))
        }
        Some(PortVlan::Trunk { allowed, native }) => {
            bounded("VLANs", allowed.len(), limits::TRUNK_VLANS_MAX)?;
            if allowed.is_empty() {
                return Err(Error::usage("a trunk port needs at least one VLAN"));
            }
            allowed.iter().chain(native).try_for_each(|vlan| in_range(*vlan))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPOLOGY: &str = "[network.lan]\ntype = \"vswitch\"\n[network.flat]\ntype = \"guestlan\"\nlayer = \"ip\"\n\
        [network.ring]\ntype = \"hipersockets\"\n\
        [[network.lan.port]]\nname = \"red\"\n[[network.lan.uplink]]\ninterface = \"eth1\"\n\
        [guest.one]\ndevice = [{ network = \"lan\" }, { network = \"flat\" }, { network = \"ring\" }]\n\
        [guest.two]\ndevice = [{ network = \"lan\" }, { network = \"lan\" }]\n";

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn a_port_is_found_by_its_label_or_by_a_guest_with_one_device() {
        let topology = Topology::parse(TOPOLOGY).unwrap();
        let found = |network: &str, port: &str| {
            let network = name(network);
            topology.port(&network, port).map(|port| port.label()).map_err(|error| error.to_string())
        };
        for (port, label) in [("red", "red"), ("eth1", "eth1"), ("one", "one.dev0"), ("two.dev1", "two.dev1")] {
            assert_eq!(found("lan", port).as_deref(), Ok(label));
        }
        for (network, port, part) in [
            ("lan", "none", "no port none"),
            ("lan", "two", "several devices"),
            ("lan", "lan", "no port lan"),
            ("ring", "one", "no switch"),
            ("other", "one", "no network other"),
        ] {
            assert!(found(network, port).unwrap_err().contains(part), "{network} {port}");
        }
    }

    #[test]
    fn a_change_that_the_port_cannot_have_is_refused_and_another_changes_only_its_setting() {
        let mut topology = Topology::parse(TOPOLOGY).unwrap();
        let trunk = |allowed: &[u16], native| {
            let allowed = allowed.iter().copied().collect();
            PortChange { vlan: Some(PortVlan::Trunk { allowed, native }), ..PortChange::default() }
        };
        let access = |vlan| PortChange { vlan: Some(PortVlan::Access(vlan)), ..PortChange::default() };
        let isolated = PortChange { isolated: Some(true), ..PortChange::default() };
        let changed = |topology: &Topology, network: &str, port: &str, change: &PortChange| {
            let network = name(network);
            topology
                .changed(&network, &topology.port(&network, port).unwrap(), change)
                .map_err(|error| error.to_string())
        };
        for (network, port, change, part) in [
            ("lan", "red", access(0), "VLAN 0"),
            ("lan", "red", access(4_095), "VLAN 4095"),
            ("lan", "red", trunk(&[], None), "at least one VLAN"),
            ("lan", "red", trunk(&[1], Some(4_095)), "VLAN 4095"),
            ("lan", "red", trunk(&(1..=257).collect::<Vec<_>>(), None), "257 VLANs"),
            ("lan", "one", trunk(&[1], None), "sends no tags"),
            ("flat", "one", access(7), "no VLANs"),
            ("lan", "eth1", isolated.clone(), "uplink"),
        ] {
            let refused = changed(&topology, network, port, &change).unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
        let before = topology.port(&name("lan"), "red").unwrap().settings().unwrap().clone();
        let after = changed(&topology, "lan", "red", &trunk(&[7, 9], Some(3))).unwrap();
        topology.set_port(&name("lan"), "red", &after);
        let port = topology.port(&name("lan"), "red").unwrap().settings().unwrap().clone();
        assert_eq!(port.vlan, PortVlan::Trunk { allowed: [7, 9].into(), native: Some(3) });
        assert_eq!(PortSettings { vlan: before.vlan.clone(), ..port }, before);
        let after = changed(&topology, "flat", "one", &isolated).unwrap();
        topology.set_port(&name("flat"), "one.dev1", &after);
        assert!(topology.guests[&name("one")].devices[1].port.as_ref().unwrap().isolated);
    }
}
