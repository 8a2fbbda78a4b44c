//! The state file. From it, a later control program learns what it needs to take over the network of an earlier one. The file
//! contains the topology, granted access, changed settings of ports, secrets, the data that tickets are checked with, the stopped
//! guests, the restarts and the start time of each guest, and the path of the control group.

use super::cgroup::Cgroup;
use super::issuer::Issuer;
use crate::protocol::message::PROTOCOL;
use crate::protocol::report::Traffic;
use crate::protocol::request::Moment;
use crate::protocol::secret::Secret;
use crate::protocol::ticket::TicketKey;
use crate::random;
use crate::rundir::RunDir;
use serde::{Deserialize, Serialize};
use siga_model::allow::Allow;
use siga_model::error::Error;
use siga_model::error::{IoContext, Result};
use siga_model::name::Name;
use siga_model::topology::{Access, Mirror, PortSettings, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// The contents of the state file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct State {
    protocol: u32,
    /// The network's name.
    pub(crate) name: Name,
    /// The topology as text.
    pub(crate) topology: String,
    /// For each restricted network, the guests that have access to it now.
    granted: BTreeMap<Name, BTreeSet<Name>>,
    /// The secrets of each guest.
    pub(crate) secrets: BTreeMap<Name, Secrets>,
    /// Guests that a client stopped. The control program does not restart them.
    pub(crate) stopped: BTreeSet<Name>,
    /// The key with which the control program issues and checks tickets.
    ticket_key: TicketKey,
    /// For each guest, a random number that identifies the guest's current process. The number is replaced when that process ends.
    incarnations: BTreeMap<Name, u64>,
    /// How often the control programs of this network restarted each guest after a failure.
    #[serde(default)]
    pub(crate) restarts: BTreeMap<Name, u32>,
    /// The time at which each running guest became ready.
    #[serde(default)]
    pub(crate) ready: BTreeMap<Name, Moment>,
    /// What a later control program needs to know about ports of namespaces, by the names of the switched network and the port.
    #[serde(default)]
    pub(crate) ports: BTreeMap<Name, BTreeMap<Name, PortState>>,
    /// The ports whose settings a client has changed, by the names of the switched network and the labels of the ports.
    #[serde(default)]
    pub(crate) settings: BTreeMap<Name, BTreeMap<String, PortSettings>>,
    /// The guests whose rules for connections a client has changed, with the rules.
    #[serde(default)]
    pub(crate) allow: BTreeMap<Name, Option<Allow>>,
    /// The switches that copy frames to a port.
    #[serde(default)]
    pub(crate) mirrors: BTreeMap<Name, Mirror>,
    /// What the stations of Guest LANs with accounting have exchanged, by the names of the LANs and the labels of the ports.
    #[serde(default)]
    pub(crate) accounts: BTreeMap<Name, BTreeMap<String, Traffic>>,
    /// The control group of the guests. It is removed when the network is taken down.
    pub(crate) cgroup: Option<Cgroup>,
}

/// What a later control program needs to know about a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortState {
    /// The start time of the process by which the topology finds the namespace. A later process can have the same number.
    #[serde(default)]
    pub(crate) holder_started: Option<u64>,
    /// Names the namespace that has joined the port, so that it can be found again.
    #[serde(default)]
    pub(crate) tenant: Option<String>,
}

/// The secrets of a guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Secrets {
    /// Proves to the guest that a process is its control program.
    pub(crate) control: Secret,
    /// Proves to the control program that a process is this external guest.
    pub(crate) attach: Secret,
    /// Proves to the control program that a process may become an application of the guest.
    pub(crate) application: Secret,
}

impl State {
    /// Creates the state of a new network.
    pub(crate) fn new(name: Name, text: String, topology: &Topology) -> Result<Self> {
        let draw = || Secret::draw().context("cannot generate a random secret of the network");
        let mut secrets = BTreeMap::new();
        for guest in topology.guests.keys() {
            secrets.insert(guest.clone(), Secrets { control: draw()?, attach: draw()?, application: draw()? });
        }
        let (granted, stopped, incarnations) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let cgroup = Cgroup::place(&name);
        let ticket_key = TicketKey::draw().context("cannot generate a random secret of the network")?;
        Ok(Self {
            protocol: PROTOCOL,
            name,
            topology: text,
            granted,
            secrets,
            stopped,
            ticket_key,
            incarnations,
            restarts: BTreeMap::new(),
            ready: BTreeMap::new(),
            ports: BTreeMap::new(),
            settings: BTreeMap::new(),
            allow: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            accounts: BTreeMap::new(),
            cgroup,
        })
    }

    /// Draws a new incarnation number for a guest (the number that identifies its current process). This invalidates the tickets of
    /// the guest's earlier processes.
    ///
    /// # Errors
    /// Returns an error if the host provides no random numbers.
    pub(crate) fn renew_incarnation(&mut self, guest: &Name) -> Result<()> {
        let number = random::draw().context("cannot generate a random number that identifies a start of a guest")?;
        self.incarnations.insert(guest.clone(), u64::from_ne_bytes(number));
        Ok(())
    }

    /// Returns the incarnation number of a guest.
    pub(crate) fn incarnation(&self, guest: &Name) -> Option<u64> {
        self.incarnations.get(guest).copied()
    }

    /// Makes an earlier incarnation number of a guest valid again.
    pub(crate) fn restore_incarnation(&mut self, guest: &Name, number: Option<u64>) {
        self.incarnations.extend(number.map(|number| (guest.clone(), number)));
    }

    /// Changes what is known about a port. Returns true if the state is different from before.
    pub(crate) fn set_port(&mut self, (network, port): &(Name, Name), change: impl FnOnce(&mut PortState)) -> bool {
        let ports = self.ports.entry(network.clone()).or_default();
        let before = ports.remove(port).unwrap_or_default();
        let mut after = before.clone();
        change(&mut after);
        let differs = after != before;
        if after != PortState::default() {
            ports.insert(port.clone(), after);
        }
        differs
    }

    /// Returns what is known about a port.
    pub(crate) fn port(&self, (network, port): &(Name, Name)) -> PortState {
        self.ports.get(network).and_then(|ports| ports.get(port)).cloned().unwrap_or_default()
    }

    /// Returns an issuer that uses the key and the incarnations of this state.
    pub(crate) fn issuer(&self) -> Issuer<'_> {
        Issuer { key: &self.ticket_key, incarnations: &self.incarnations }
    }

    /// Reads the state that an earlier control program left. Returns it with the topology, in which the access lists and the changed
    /// settings of ports are those of the state. Returns `None` if there is no state.
    ///
    /// # Errors
    /// Returns an error if the state has another version or is damaged.
    pub(crate) fn read(run: &RunDir) -> Result<Option<(Self, Topology)>> {
        // The file is empty if the host lost power before the data reached the disk. In that case no guest still runs, so the state
        // is not needed.
        let Some(bytes) = run.read_state()?.filter(|bytes| !bytes.is_empty()) else { return Ok(None) };
        let damaged = |error: &dyn std::fmt::Display| {
            let message = format!("siga cannot use the state of the network in {}: {error}", run.path().display());
            Error::environment(message)
                .hint(format!("end the guests of the network, then remove {}", run.path().display()))
        };
        let protocol: Version = serde_json::from_slice(&bytes).map_err(|error| damaged(&error))?;
        if protocol.protocol != PROTOCOL {
            return Err(damaged(&format!(
                "a different version of siga wrote the state (protocol {}; this version has protocol {PROTOCOL})",
                protocol.protocol
            )));
        }
        let state: Self = serde_json::from_slice(&bytes).map_err(|error| damaged(&error))?;
        let mut topology = Topology::parse(&state.topology).map_err(|error| damaged(&error))?;
        for (name, granted) in &state.granted {
            if let Some(network) = topology.networks.get_mut(name) {
                network.access = Access::Restricted(granted.clone());
            }
        }
        for (name, allow) in &state.allow {
            if let Some(guest) = topology.guests.get_mut(name) {
                guest.allow.clone_from(allow);
            }
        }
        for (network, ports) in &state.settings {
            for (label, settings) in ports {
                topology.set_port(network, label, settings);
            }
        }
        if topology.guests.keys().any(|guest| !state.secrets.contains_key(guest)) {
            return Err(damaged(&"a guest has no secrets"));
        }
        Ok(Some((state, topology)))
    }

    /// Returns the version of the protocol that wrote the state, or `None` if there is no state.
    ///
    /// # Errors
    /// Returns an error if the state is damaged.
    pub(crate) fn protocol_in(run: &RunDir) -> Result<Option<u32>> {
        let Some(bytes) = run.read_state()?.filter(|bytes| !bytes.is_empty()) else { return Ok(None) };
        let version: Version = serde_json::from_slice(&bytes)
            .context(format!("siga cannot use the state of the network in {}", run.path().display()))?;
        Ok(Some(version.protocol))
    }

    /// Writes the state file. The access that is granted now is read from `topology`. A `durable` write survives a loss of power.
    ///
    /// # Errors
    /// Returns an error if the disk is full.
    pub(crate) fn write(&mut self, run: &RunDir, topology: &Topology, durable: bool) -> Result<()> {
        let restricted = topology.networks.iter().filter_map(|(name, network)| match &network.access {
            Access::Open => None,
            Access::Restricted(granted) => Some((name.clone(), granted.clone())),
        });
        self.granted = restricted.collect();
        run.write_state(&serde_json::to_vec(self).context("cannot encode the state of the network")?, durable)
    }
}

#[derive(Deserialize)]
struct Version {
    protocol: u32,
}
