//! The owners of Guest LANs. A network of SYSTEM is persistent. A network of a guest is transient: it exists while its owner runs.
//! When the owner ends while other guests are coupled, the network is orphaned: it exists until the last of them ends, or until the
//! owner runs again.

use super::Control;
use crate::protocol::message::Order;
use siga_model::name::Name;

/// Whether a network with a switch exists, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existence {
    Persistent,
    Transient,
    Orphaned,
    Ended,
}

impl Control {
    fn owner_of(&self, network: &Name) -> Option<&Name> {
        self.topology.networks.get(network)?.switch.as_ref()?.owner.as_ref()
    }

    /// Returns true if a guest has a process or will have one soon.
    fn is_logged_on(&self, guest: &Name) -> bool {
        self.guests.get(guest).is_some_and(|guest| guest.process.is_some() || guest.will_start())
    }

    fn existence(&self, network: &Name) -> Existence {
        let Some(owner) = self.owner_of(network) else { return Existence::Persistent };
        if self.is_logged_on(owner) {
            return Existence::Transient;
        }
        let mut coupled = self.topology.on(network).filter(|(guest, _, _)| !self.topology.guests[*guest].is_switch);
        let has_switch = self.guests.get(network).is_some_and(|switch| switch.process.is_some());
        if has_switch && coupled.any(|(guest, _, _)| self.is_logged_on(guest)) {
            return Existence::Orphaned;
        }
        Existence::Ended
    }

    /// Returns the owner of a network with a switch and the state of the network, for the status.
    pub(super) fn ownership(&self, network: &Name) -> Option<String> {
        self.topology.networks.get(network)?.switch.as_ref()?;
        let owner = self.owner_of(network).map_or("SYSTEM", Name::as_str);
        let state = match self.existence(network) {
            Existence::Persistent => "persistent",
            Existence::Transient => "transient",
            Existence::Orphaned => "orphaned",
            Existence::Ended => "ended",
        };
        Some(format!("{owner} {state}"))
    }

    /// Returns false if a network does not exist now, because its owner does not run.
    pub(super) fn exists(&self, network: &Name) -> bool {
        self.existence(network) != Existence::Ended
    }

    /// Starts the switches of networks whose owner has started, and ends those of networks that do not exist any more.
    pub(super) fn follow_owners(&mut self) {
        let owned: Vec<Name> =
            self.topology.networks.keys().filter(|network| self.owner_of(network).is_some()).cloned().collect();
        for network in owned {
            if self.is_stopping() || self.state.stopped.contains(&network) {
                continue;
            }
            let Some(switch) = self.guests.get(&network) else { continue };
            let (has_process, starts) = (switch.process.is_some(), switch.will_start());
            match self.existence(&network) {
                Existence::Transient if !has_process && !starts => self.start_guest(&network),
                Existence::Ended if has_process => {
                    self.log.line(&format!(
                        "network {network} ends, because its owner and all its other guests have ended"
                    ));
                    self.send_order(&network, &Order::Stop, Vec::new());
                }
                Existence::Persistent | Existence::Transient | Existence::Orphaned | Existence::Ended => {}
            }
        }
    }
}
