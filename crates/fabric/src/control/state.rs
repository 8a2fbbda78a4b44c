//! What a control program leaves to its successor: the topology, who was granted what, the secrets, what was stopped.

use super::cgroup::Cgroup;
use super::issuer::Issuer;
use crate::protocol::message::PROTOCOL;
use crate::protocol::secret::Secret;
use crate::protocol::ticket::TicketKey;
use crate::random;
use crate::rundir::RunDir;
use serde::{Deserialize, Serialize};
use siga_model::error::Error;
use siga_model::error::{IoContext, Result};
use siga_model::name::Name;
use siga_model::topology::{Access, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// The state file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct State {
    protocol: u32,
    /// The network's name.
    pub(crate) name: Name,
    /// The topology's text.
    pub(crate) topology: String,
    /// Who may couple to the restricted networks, as it stands.
    granted: BTreeMap<Name, BTreeSet<Name>>,
    /// The secrets of each guest.
    pub(crate) secrets: BTreeMap<Name, Secrets>,
    /// Guests that are not to be started.
    pub(crate) stopped: BTreeSet<Name>,
    /// With which tickets are issued and checked.
    ticket_key: TicketKey,
    /// A number for each process of a guest, drawn anew for the next one when a process has ended.
    incarnations: BTreeMap<Name, u64>,
    /// The control group of the guests, to be removed with the network.
    pub(crate) cgroup: Option<Cgroup>,
}

/// The secrets of a guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Secrets {
    /// With which a control program proves to the guest what it is.
    pub(crate) control: Secret,
    /// With which an external guest proves to the control program which it is.
    pub(crate) attach: Secret,
    /// With which applications prove to the control program that they may use the guest's stack.
    pub(crate) application: Secret,
}

impl State {
    /// That of a network that begins.
    pub(crate) fn new(name: Name, text: String, topology: &Topology) -> Result<Self> {
        let draw = || Secret::draw().context("cannot draw a secret");
        let mut secrets = BTreeMap::new();
        for guest in topology.guests.keys() {
            secrets.insert(guest.clone(), Secrets { control: draw()?, attach: draw()?, application: draw()? });
        }
        let (granted, stopped, incarnations) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let cgroup = Cgroup::place(&name);
        let ticket_key = TicketKey::draw().context("cannot draw a secret")?;
        Ok(Self {
            protocol: PROTOCOL,
            name,
            topology: text,
            granted,
            secrets,
            stopped,
            ticket_key,
            incarnations,
            cgroup,
        })
    }

    /// Has tickets of earlier processes of a guest void: its next process is another incarnation.
    ///
    /// # Errors
    /// The host has no random numbers.
    pub(crate) fn renew_incarnation(&mut self, guest: &Name) -> Result<()> {
        let number = random::draw().context("cannot draw an incarnation")?;
        self.incarnations.insert(guest.clone(), u64::from_ne_bytes(number));
        Ok(())
    }

    /// Issues and checks tickets by this state.
    pub(crate) fn issuer(&self) -> Issuer<'_> {
        Issuer { key: &self.ticket_key, incarnations: &self.incarnations }
    }

    /// What a predecessor left, if there was one, with its topology as it stands.
    ///
    /// # Errors
    /// It is of another version, or damaged.
    pub(crate) fn read(run: &RunDir) -> Result<Option<(Self, Topology)>> {
        // An empty state is that of a host that lost power: none of its guests has outlived that.
        let Some(bytes) = run.read_state()?.filter(|bytes| !bytes.is_empty()) else { return Ok(None) };
        let damaged = |error: &dyn std::fmt::Display| {
            let message = format!("the state of {} cannot be used: {error}", run.path().display());
            Error::environment(message).hint(format!("end its guests, then remove {}", run.path().display()))
        };
        let protocol: Version = serde_json::from_slice(&bytes).map_err(|error| damaged(&error))?;
        if protocol.protocol != PROTOCOL {
            return Err(damaged(&format!(
                "it is of another version of siga ({}, this is {PROTOCOL})",
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
        if topology.guests.keys().any(|guest| !state.secrets.contains_key(guest)) {
            return Err(damaged(&"a guest has no secrets"));
        }
        Ok(Some((state, topology)))
    }

    /// Writes it, with the topology as it stands. What has to outlive no process of the network need not be `durable`.
    ///
    /// # Errors
    /// The disk is full.
    pub(crate) fn write(&mut self, run: &RunDir, topology: &Topology, durable: bool) -> Result<()> {
        let restricted = topology.networks.iter().filter_map(|(name, network)| match &network.access {
            Access::Open => None,
            Access::Restricted(granted) => Some((name.clone(), granted.clone())),
        });
        self.granted = restricted.collect();
        run.write_state(&serde_json::to_vec(self).context("cannot write the state")?, durable)
    }
}

#[derive(Deserialize)]
struct Version {
    protocol: u32,
}
