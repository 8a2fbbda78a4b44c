//! The user's own networks as paths: reads their topologies before a run, and finds the routers and switches between client and server.

use serde::{Deserialize, Serialize};
use siga_fabric::client::topology_of;
use siga_model::allow::Protocol;
use siga_model::error::{Error, Result};
use siga_model::limits::TOPOLOGY_BYTES_MAX;
use siga_model::name::Name;
use siga_model::topology::{Topology, Trip};
use siga_plan::file;
use siga_plan::matrix::Matrix;
use siga_plan::path::own::{OwnPath, Source};
use siga_plan::plan::Plan;
use siga_plan::route::Route;
use siga_plan::work::Work;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

/// The own networks of a run's paths.
#[derive(Debug, Default)]
pub struct Networks(BTreeMap<OwnPath, OwnNetwork>);

/// A network of the user, with what lies between client and server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnNetwork {
    /// The topology as text. `None` if the network is up already.
    pub topology: Option<String>,
    /// The client and the server.
    pub ends: [OwnEnd; 2],
    /// The address of the server.
    pub server_address: IpAddr,
    /// The routers between them, in the order of the path.
    pub routers: Vec<Name>,
    /// The switches between them: each has the name of its network.
    pub switches: Vec<Name>,
}

/// The guest of the client or the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnEnd {
    /// Name of the guest.
    pub guest: Name,
    /// True if the workload driver embeds the stack of this guest. False if it is an application of the guest.
    pub external: bool,
}

impl Networks {
    /// Reads the topologies of all paths over own networks, and checks that client and server reach each other.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if a file cannot be read, if a topology has an error, or if the guests cannot reach each other.
    /// Returns an error of kind `Environment` if a network is not up.
    pub fn open(matrix: &Matrix, plan: &Plan) -> Result<Self> {
        let mut networks = Self::default();
        let mut trips: BTreeMap<OwnPath, (Topology, Trip)> = BTreeMap::new();
        for cell in &matrix.cells {
            let Ok(Route::Own(path)) = cell.path.parse() else { continue };
            let at = |error: Error| error.at(format!("path {path}"));
            if networks.get(&path).is_err() {
                let (network, topology, trip) = OwnNetwork::read(&path, plan.ipv6).map_err(at)?;
                networks.0.insert(path.clone(), network.check_processes(plan).map_err(at)?);
                trips.insert(path.clone(), (topology, trip));
            }
            if let (Some((topology, trip)), Work::Network(workload)) = (trips.get(&path), &cell.workload) {
                let protocol = if workload.udp { Protocol::Udp } else { Protocol::Tcp };
                let port = Some(plan.reach.port).filter(|port| *port > 0);
                topology.may_open(trip, &path.server, protocol, port).map_err(at)?;
            }
        }
        networks.check_router_cpus(matrix, plan)?;
        Ok(networks)
    }

    /// Refuses CPUs of routers if no path has a router. Whether a path over an own network has one is known only from its topology.
    fn check_router_cpus(&self, matrix: &Matrix, plan: &Plan) -> Result<()> {
        let mut routes = matrix.cells.iter().filter_map(|cell| cell.path.parse::<Route>().ok());
        let has_router = |route: Route| match route {
            Route::Guests(path) => path.routed,
            Route::Own(path) => self.get(&path).is_ok_and(|network| !network.routers.is_empty()),
            Route::Built(_) | Route::Places(..) | Route::Host => false,
        };
        if plan.router_cpus.is_none() || routes.any(has_router) {
            return Ok(());
        }
        Err(Error::usage(
            "--router-cpus has no effect, because no path of the plan has a router of siga's own networks",
        )
        .hint("name two guests with a router in between, or remove --router-cpus"))
    }

    /// Refuses paths over own networks, for runs on several hosts.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` that names the first such path.
    pub fn refuse(matrix: &Matrix) -> Result<()> {
        let own = |path: &str| matches!(path.parse(), Ok(Route::Own(_)));
        let Some(cell) = matrix.cells.iter().find(|cell| own(&cell.path)) else { return Ok(()) };
        Err(Error::usage(format!("siga can measure {} only on this host", cell.path)).hint("remove --on"))
    }

    pub(crate) fn get(&self, path: &OwnPath) -> Result<&OwnNetwork> {
        self.0.get(path).ok_or_else(|| Error::usage(format!("the topology of path {path} has not been read")))
    }
}

impl OwnNetwork {
    /// Returns how client and server use their stacks, in words.
    pub(crate) fn attach_name(&self) -> &'static str {
        match self.ends.each_ref().map(|end| end.external) {
            [true, true] => "embedded",
            [false, false] => "iucv",
            [true, false] | [false, true] => "embedded and iucv",
        }
    }

    /// Refuses one process per pair if a guest is the process of the workload driver.
    fn check_processes(self, plan: &Plan) -> Result<Self> {
        match self.ends.iter().find(|end| plan.processes && end.external) {
            Some(end) => Err(Error::usage(format!(
                "one process per pair is not possible, because guest {} is external, and a guest is one process",
                end.guest
            ))
            .hint("remove --processes, or remove `external = true` from the guest")),
            None => Ok(self),
        }
    }

    /// Reads the topology of a path, and finds what lies between client and server.
    fn read(path: &OwnPath, ipv6: bool) -> Result<(Self, Topology, Trip)> {
        let (text, topology) = match &path.source {
            Source::File(name) => {
                let text = file::read_named(Path::new(name), TOPOLOGY_BYTES_MAX).map_err(|error| {
                    Error::usage(format!("cannot read the topology: {error}")).hint("name a topology file")
                })?;
                let topology = Topology::parse(&text)?;
                (Some(text), topology)
            }
            Source::Up(name) => (None, topology_of(name)?),
        };
        let trip = topology.trip(&path.client, &path.server, ipv6)?;
        let is_switched = |name: &&Name| topology.networks.get(*name).is_some_and(|network| network.kind.is_switched());
        let end = |guest: &Name| OwnEnd {
            guest: guest.clone(),
            external: topology.guests.get(guest).is_some_and(|guest| guest.external),
        };
        let network = Self {
            ends: [end(&path.client), end(&path.server)],
            server_address: trip.to,
            switches: trip.networks.iter().filter(is_switched).cloned().collect(),
            routers: trip.routers.clone(),
            topology: text,
        };
        Ok((network, topology, trip))
    }
}
