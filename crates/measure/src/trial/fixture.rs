//! The fixture of a trial: the path, the two agents at its ends, and the orders (requests) that the coordinator sends to the
//! agents.

use super::ends::{Ends, build, choice, everywhere, existing, network, no_path, raise, raise_own};
use super::neighbours::{Neighbours, Progress};
use super::reach::{self, End, Existing};
use super::reading::{Reading, RunTimes, run_times};
use super::series::Pids;
use crate::agent::launch::{LaunchedAgent, Programs, launch};
use crate::agent::protocol::{Answer, Order, Report, Tick};
use crate::channel::ChildProcess;
use crate::cpu::Spent;
use crate::cpu::charge::Owners;
use crate::cpu::cost_injector::CostInjector;
use crate::cpu::delay;
use crate::cpu::guest::GuestCounters;
use crate::cpu::host::{At, HostCpu};
use crate::cpu::outside::Outside;
use crate::limits;
use crate::load::Quiesced;
use crate::load::client::ClientConfig;
use crate::load::datagrams::random_trial;
use crate::load::server::ServerConfig;
use crate::path::{Built, Net, Path as BuiltPath, Role};
use crate::socket::Endpoint;
use crate::socket::sockmap::Sockmap;
use crate::topology::Networks;
use rustix::fd::AsRawFd;
use rustix::io::{FdFlags, fcntl_setfd};
use siga_model::error::{Error, IoContext, Result};
use siga_plan::matrix::{Cell, Matrix};
use siga_plan::path::PathKind;
use siga_plan::place::Place;
use siga_plan::plan::Plan;
use siga_plan::plant::Plant;
use siga_plan::route::Route;
use siga_plan::workload::Shape;
use siga_results::monitor::Role as MonitoredRole;
use siga_results::record::PathRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// The path and the processes that a trial runs on. Rust drops fields in the order of their declaration, so the agents end
/// before the path is removed.
#[derive(Debug)]
pub(super) struct Fixture {
    client: ChildProcess,
    server: ChildProcess,
    /// The traffic of two more guests on the cards of client and server.
    neighbours: Option<Neighbours>,
    injector: Option<CostInjector>,
    plant: Plant,
    _sockmap: Option<Sockmap>,
    way: Way,
    inodes: Inodes,
    /// Whether the client, and whether the server, runs on another host over ssh.
    remote: (bool, bool),
    /// Whether client and server run on the same host. `None` until the counters of both hosts have been read.
    same_host: Option<bool>,
    /// The processes of this host that do not belong to the run.
    outside: Option<Outside>,
    /// The server's counts at its last quiescent point.
    pub(super) quiesced: Quiesced,
    /// True if the network may lose data without retransmission, as with UDP.
    pub(super) lossy: bool,
    /// The shape of the workload, which says by whose clock a phase is timed.
    pub(super) shape: Shape,
    congestion: Option<String>,
    /// Maximum time in which client and server answer an order.
    pub(super) answer_time_max: Duration,
}

/// The network between client and server.
#[derive(Debug)]
pub(super) enum Way {
    /// A network that existed before the trial, between two places.
    /// `None` until both agents have been asked for it.
    Existing(Option<Existing>),
    /// A path over the kernel's network: network namespaces that were built for this trial.
    Kernel(Box<BuiltPath>),
    /// A virtual network of siga, whose guests were started for this trial.
    Guests(Box<Net>),
}

impl Way {
    fn built(&self) -> Option<&BuiltPath> {
        match self {
            Self::Kernel(path) => Some(path),
            Self::Existing(_) | Self::Guests(_) => None,
        }
    }
}

/// What the interfaces of a path have lost so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Losses {
    /// Number of dropped frames.
    pub(super) drops: u64,
    /// How often an interface lost its carrier.
    pub(super) carrier: u64,
}

/// Inode number of the network namespace of each component. 0 if the number is unknown because the component runs on another
/// host.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Inodes {
    pub(super) client: u64,
    pub(super) server: u64,
    pub(super) router: Option<u64>,
}

impl Fixture {
    /// Builds the path of a cell with the programs `from`, connects all pairs, and waits until both client and server are quiescent (send nothing). Returns
    /// an error of kind `Environment` if the path cannot be built, if a place refuses access, or if the client cannot reach the
    /// server.
    pub(super) fn set(
        plan: &Plan,
        matrix: &Matrix,
        (from, networks): (Programs<'_>, &Networks),
        cell: &Cell,
    ) -> Result<Self> {
        let route: Route = cell.path.parse()?;
        let level = matrix.levels.iter().find(|level| level.name == cell.level);
        let level = level.ok_or_else(|| Error::usage(format!("unknown level `{}`", cell.level)))?;
        let (way, ends) = match &route {
            Route::Built(kind) => build(*kind, from.siga, plan, cell, level)?,
            Route::Guests(path) => raise(*path, from.siga, plan, cell, level)?,
            Route::Own(path) => raise_own(path, networks.get(path)?, from.siga, plan, cell, level)?,
            Route::Places(client, server) => (Way::Existing(None), existing(client, server, plan, cell)?),
            Route::Host => return Err(no_path(cell)),
        };
        let sockmap = match route {
            Route::Built(PathKind::Sockmap) => Some(Sockmap::create(2 * cell.connections().max(1_024))?),
            Route::Built(_) | Route::Guests(_) | Route::Own(_) | Route::Places(..) | Route::Host => None,
        };
        let inherited = sockmap.as_ref().map(inheritable).transpose()?;
        let LaunchedAgent { process: server, addresses: server_addresses } =
            launch(&ends.server, "server", inherited, from)?;
        let LaunchedAgent { process: client, addresses: client_addresses } =
            launch(&ends.client, "client", inherited, from)?;
        let plant = level.plant.unwrap_or(plan.plant);
        let injector = injector(plant.router_us, way.built())?;
        let congestion = ends.congestion.clone();
        let lossy = network(cell)?.udp;
        let mut fixture = Self {
            client,
            server,
            injector,
            plant,
            _sockmap: sockmap,
            way,
            inodes: ends.inodes,
            remote: (matches!(ends.client, Place::Ssh(_)), matches!(ends.server, Place::Ssh(_))),
            same_host: None,
            outside: None,
            quiesced: Quiesced::default(),
            lossy,
            shape: network(cell)?.shape,
            congestion,
            neighbours: None,
            answer_time_max: limits::answer_time_max(if plan.processes { cell.connections() } else { 1 }),
        };
        if let Way::Existing(found) = &mut fixture.way {
            let mut client = End { agent: &mut fixture.client, place: &ends.client, addresses: &client_addresses };
            let mut server = End { agent: &mut fixture.server, place: &ends.server, addresses: &server_addresses };
            *found = Some(reach::find(&mut client, &mut server, choice(plan, &ends), cell.mtu)?);
        }
        fixture.connect(plan, matrix, cell, plant, &ends)?;
        let beside = ends.neighbours.as_ref().map(|ends| Neighbours::start(ends, from, matrix.write_bytes));
        fixture.neighbours = beside.transpose()?;
        Ok(fixture)
    }

    fn connect(&mut self, plan: &Plan, matrix: &Matrix, cell: &Cell, plant: Plant, ends: &Ends) -> Result<()> {
        let workload = network(cell)?;
        let processes = if plan.processes { cell.connections() } else { 1 };
        let listen = ends.endpoint.clone().unwrap_or_else(|| everywhere(plan, workload));
        let trial = random_trial().context("cannot get random numbers for the trial from the kernel")?;
        let config = ServerConfig {
            workload,
            endpoint: listen,
            close: plan.close,
            write_bytes: matrix.write_bytes,
            extra_cpu_ns: to_ns(plant.server_us),
            delay_ns: to_ns(plant.delay_us),
            trial,
        };
        let (client_cpus, server_cpus) = plan.cpus()?;
        let (sockets, pairs) = (ends.sockets.1.clone(), cell.connections());
        let order = Order::Serve { config, sockets, processes, pairs, cpus: server_cpus };
        let time = self.answer_time_max;
        let answer = self.server.ask(&order, time)?;
        let Answer::Serving { endpoints } = answer else { return Err(self.server.unexpected(&answer)) };
        let endpoints = match &self.way {
            Way::Existing(Some(existing)) => reach::reachable(endpoints, existing.server_address),
            Way::Existing(None) | Way::Kernel(_) | Way::Guests(_) => endpoints,
        };
        let config = ClientConfig {
            workload,
            pairs: cell.connections(),
            first_pair: 0,
            endpoints,
            close: plan.close,
            write_bytes: matrix.write_bytes,
            extra_cpu_ns: to_ns(plant.client_us),
            trial,
        };
        let order = Order::Connect { config, sockets: ends.sockets.0.clone(), processes, cpus: client_cpus };
        let answer = self.client.ask(&order, limits::CONNECT_TIME_MAX + time)?;
        let Answer::Connected = answer else { return Err(self.client.unexpected(&answer)) };
        let standing = if workload.udp || workload.shape == Shape::Crr { 0 } else { cell.connections() };
        self.await_connections(u64::from(standing), processes)?;
        // Connections of CRR come and go later. For them, the check of one connection when the path was built has to suffice.
        match (&mut self.way, &ends.endpoint) {
            (Way::Kernel(path), Some(Endpoint::Smc(_))) if standing > 0 => path.check_smc(),
            _ => Ok(()),
        }
    }

    /// Waits until the server has accepted all `standing` connections of the client. Afterwards the server is quiescent.
    fn await_connections(&mut self, standing: u64, processes: u32) -> Result<()> {
        let begun = Instant::now();
        loop {
            self.quiesce(vec![0; usize::try_from(processes).unwrap_or(1)])?;
            if self.quiesced.counts.connections >= standing {
                return Ok(());
            }
            if begun.elapsed() > limits::STALL_TIME_MAX + limits::WORKER_TIME_MAX * processes {
                let taken = self.quiesced.counts.connections;
                return Err(Error::incomplete(format!(
                    "the server has accepted only {taken} of {standing} connections"
                )));
            }
            self.server_does(&Order::Resume { stride: limits::STAMP_STRIDE_BYTES })?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns what the neighbours have done so far. `None` if the cards have none.
    pub(super) fn neighbours_progress(&mut self) -> Result<Option<Progress>> {
        self.neighbours.as_mut().map(Neighbours::progress).transpose()
    }

    /// Returns a flaw if the traffic of the neighbours has ended during the trial.
    pub(super) fn neighbours_flaws(&mut self) -> Result<Vec<String>> {
        Ok(self.neighbours.as_mut().map_or(Ok(None), Neighbours::flaw)?.into_iter().collect())
    }

    /// Sends `order` to the server and waits for the answer `Resumed`.
    pub(super) fn server_does(&mut self, order: &Order) -> Result<()> {
        let answer = self.server.ask(order, self.answer_time_max)?;
        let Answer::Resumed = answer else { return Err(self.server.unexpected(&answer)) };
        Ok(())
    }

    /// Sends `order`, which starts a phase, to the client. Waits until the client starts no more exchanges, for at most `time`.
    /// Returns the number of bytes that each client process has sent so far.
    /// Meanwhile calls `each` with the client's counts after each interval that the order requests.
    pub(super) fn client_stops(
        &mut self,
        order: &Order,
        time: Duration,
        each: &mut dyn FnMut(Tick) -> Result<()>,
    ) -> Result<Vec<u64>> {
        let mut answer = self.client.ask(order, time)?;
        while let Answer::Tick(tick) = answer {
            each(tick)?;
            answer = self.client.receive(time)?;
        }
        let Answer::Stopped { sent } = answer else { return Err(self.client.unexpected(&answer)) };
        Ok(sent)
    }

    /// Quiesces the server when each server process has received as many bytes as `received` says. Returns the number of bytes
    /// that each server process has sent so far.
    pub(super) fn quiesce(&mut self, received: Vec<u64>) -> Result<Vec<u64>> {
        let answer = self.server.ask(&Order::Quiesce { received }, self.answer_time_max)?;
        let Answer::Quiesced { accounts } = answer else { return Err(self.server.unexpected(&answer)) };
        self.quiesced = accounts.iter().fold(Quiesced::default(), |sum, account| sum.plus(*account));
        Ok(accounts.iter().map(|account| account.counts.sent).collect())
    }

    /// Ends the client's phase and returns the client's report.
    pub(super) fn client_reports(&mut self, order: &Order) -> Result<Report> {
        let answer = self.client.ask(order, self.answer_time_max)?;
        let Answer::Report(report) = answer else { return Err(self.client.unexpected(&answer)) };
        Ok(*report)
    }

    /// Reads the counters of every component of the path.
    ///
    /// Guests use CPU time to answer a request for their counters. So the reading before a phase (`first` is true) reads the
    /// run times after these requests, and the reading after a phase reads them before. Therefore the growth of the run times
    /// does not include the requests.
    pub(super) fn read(&mut self, first: bool) -> Result<Reading> {
        let time = self.answer_time_max;
        let read = |worker: &mut ChildProcess| -> Result<Spent> {
            let answer = worker.ask(&Order::Spent, time)?;
            let Answer::Spent(spent) = answer else { return Err(worker.unexpected(&answer)) };
            Ok(*spent)
        };
        let Way::Guests(net) = &mut self.way else {
            let server = read(&mut self.server)?;
            let client = read(&mut self.client)?;
            let (between, names) = (BTreeMap::new(), Default::default());
            return Ok(Reading { client, server, guests: None, between, names, guests_waited: [0; 3] });
        };
        // After a phase, read the run times before the requests to the guests. The requests use CPU time of the guests and of
        // the control program, which must not count as CPU time of the path.
        let early = if first { None } else { Some(run_times(net)?) };
        let mut counters: [Option<GuestCounters>; 3] = [None, None, None];
        for (guest, counters) in counters.iter_mut().enumerate() {
            *counters = net.counters(guest)?;
        }
        let server = read(&mut self.server)?;
        let client = read(&mut self.client)?;
        let RunTimes { guests, control, between } = early.map_or_else(|| run_times(net), Ok)?;
        let mut counted = guests.into_iter().zip(counters).map(|(times, counters)| times.zip(counters));
        let guests = std::array::from_fn(|_| counted.next().flatten());
        let mut guests_waited = net.raised.guests.map(|pid| pid.and_then(delay::of).unwrap_or(0));
        guests_waited[1] += net.raised.routers.iter().filter_map(|(_, pid)| delay::of(*pid)).sum::<u64>();
        let names = net.names().clone();
        Ok(Reading { client, server, guests: Some((guests, control)), between, names, guests_waited })
    }

    /// Reads the CPU counters of each host of the path. The coordinator itself reads the counters of its own host, so that
    /// neither client nor server is charged with the CPU time for the reading. At the end of an interval in which processes outside
    /// the run are watched, `ends` names the processes of both ends.
    pub(super) fn hosts(&mut self, at: At, ends: Option<&Reading>) -> Result<Vec<HostCpu>> {
        let pids = self.pids(ends);
        let remote = |worker: &mut ChildProcess, own: Vec<u32>| -> Result<HostCpu> {
            let answer = worker.ask(&Order::Host { own, at }, limits::ANSWER_TIME_MAX)?;
            let Answer::Host(host) = answer else { return Err(worker.unexpected(&answer)) };
            Ok(*host)
        };
        // Process ids of one host mean nothing on the other.
        let own = if self.same_host == Some(false) { Vec::new() } else { pids };
        let client = match self.remote.0 {
            true => remote(&mut self.client, own.clone())?,
            false => HostCpu::read_with(&mut self.outside, &own, at)?,
        };
        let server = match self.remote {
            (_, true) => remote(&mut self.server, own)?,
            (true, false) => HostCpu::read_with(&mut self.outside, &own, at)?,
            (false, false) => return Ok(vec![client]),
        };
        let same = client.boot_id == server.boot_id;
        self.same_host = Some(same);
        Ok(if same { vec![client] } else { vec![client, server] })
    }

    /// Returns the ids of the path's processes. Those of a virtual network need not be descendants of this process.
    fn pids(&self, ends: Option<&Reading>) -> Vec<u32> {
        let of_ends = ends.into_iter().flat_map(|ends| ends.client.pids.iter().chain(&ends.server.pids)).copied();
        let of_net = match &self.way {
            Way::Guests(net) => net.raised.pids(),
            Way::Existing(_) | Way::Kernel(_) => Vec::new(),
        };
        let of_neighbours = self.neighbours.iter().flat_map(Neighbours::pids);
        of_ends.chain(of_net).chain(of_neighbours).collect()
    }

    /// Returns the processes of the client's guest, of the routers, and of the server's guest.
    fn guest_pids(&self) -> (Option<u32>, Vec<u32>, Option<u32>) {
        let Way::Guests(net) = &self.way else { return (None, Vec::new(), None) };
        let [client, router, server] = net.raised.guests;
        (client, router.into_iter().chain(net.raised.routers.iter().map(|(_, pid)| *pid)).collect(), server)
    }

    /// Returns the processes of each component that runs on this host.
    pub(super) fn component_pids(&self, ends: &Reading) -> Pids {
        let (client, routers, server) = self.guest_pids();
        let of = |spent: &Spent, guest: Option<u32>| spent.pids.iter().copied().chain(guest).collect();
        Pids {
            client: (!self.remote.0).then(|| of(&ends.client, client)),
            router: (!routers.is_empty()).then_some(routers),
            server: (!self.remote.1).then(|| of(&ends.server, server)),
        }
    }

    /// Returns the processes of this host that the monitor samples during a trial: client, server, and those of siga's network, each
    /// with its name. The result is empty if there are too many.
    pub(super) fn monitored(&self, ends: &Reading) -> Vec<(String, MonitoredRole, u32)> {
        let ends = [("client", self.remote.0, &ends.client), ("server", self.remote.1, &ends.server)];
        let of_ends = ends.into_iter().filter(|(_, remote, _)| !remote).flat_map(|(name, _, spent)| {
            let name = move |at: usize| if at == 0 { name.to_owned() } else { format!("{name} {}", at + 1) };
            spent.pids.iter().enumerate().map(move |(at, pid)| (name(at), MonitoredRole::Application, *pid))
        });
        let of_net = match &self.way {
            Way::Guests(net) => net.monitored(),
            Way::Existing(_) | Way::Kernel(_) => Vec::new(),
        };
        let all: Vec<_> = of_ends.chain(of_net).collect();
        if all.len() > limits::SERIES_PROCESSES_MAX { Vec::new() } else { all }
    }

    /// Returns what the interfaces of a path over the kernel's network have lost so far. siga reads the drops only on paths that it
    /// built. Between existing places, it reads only the interfaces through which client and server send.
    pub(super) fn losses(&mut self) -> Result<Losses> {
        match &mut self.way {
            Way::Kernel(path) => {
                let counters = path.counters()?;
                Ok(Losses {
                    drops: counters.values().map(|counters| counters.rx_dropped + counters.tx_dropped).sum(),
                    carrier: counters.values().map(|counters| counters.carrier_losses).sum(),
                })
            }
            Way::Existing(Some(existing)) => {
                let (client, server) = (existing.names("client/"), existing.names("server/"));
                let carrier = carrier_losses(&mut self.client, client)? + carrier_losses(&mut self.server, server)?;
                Ok(Losses { drops: 0, carrier })
            }
            Way::Existing(None) | Way::Guests(_) => Ok(Losses::default()),
        }
    }

    /// Returns how many packets the CPU-cost injector has processed so far, and the CPU time in nanoseconds that it has added
    /// to them. `None` if the trial has no injector.
    pub(super) fn planted(&self) -> Result<Option<(u64, u64)>> {
        let spent = self.injector.as_ref().map(CostInjector::injected).transpose()?;
        Ok(spent.map(|spent| (spent.packets, spent.ns)))
    }

    /// Plants the cost by which the profiler costs more than it says, until the returned injector is dropped. `None` if the plan and
    /// the level plant no such cost.
    pub(super) fn plant_in_profiler(&self) -> Result<Option<CostInjector>> {
        injector(self.plant.profiler_us, self.way.built())
    }

    /// Returns whether every component of the path is a guest or a client of a guest: a process with an exact run time.
    pub(super) fn is_of_guests(&self) -> bool {
        matches!(self.way, Way::Guests(_))
    }

    /// Returns the processes and namespaces of each component, to which the profiler's samples are charged.
    pub(super) fn owners(&self, ends: &Reading) -> Owners {
        let (client, router_pids, server) = self.guest_pids();
        let set =
            |spent: &Spent, guest: Option<u32>| spent.pids.iter().copied().chain(guest).collect::<BTreeSet<u32>>();
        Owners {
            client_pids: set(&ends.client, client),
            router_pids: router_pids.into_iter().collect(),
            server_pids: set(&ends.server, server),
            client_inode: self.inodes.client,
            server_inode: self.inodes.server,
            router_inode: self.inodes.router,
        }
    }

    /// Returns the record of how the path was built. The settings of the guests' devices come from `read`.
    pub(super) fn path_record(&self, cell: &Cell, read: &Reading) -> PathRecord {
        let (mut interfaces, sysctls, filters, notes, server_address) = match &self.way {
            Way::Kernel(path) => {
                let Built { interfaces, sysctls, filters, notes, server_address, .. } = path.built.clone();
                (interfaces, sysctls, filters, notes, server_address)
            }
            Way::Existing(Some(Existing { server_address, interfaces, sysctls })) => {
                (interfaces.clone(), sysctls.clone(), BTreeMap::new(), Vec::new(), Some(*server_address))
            }
            Way::Guests(net) => (net.raised.links.clone(), net.sysctls.clone(), BTreeMap::new(), Vec::new(), None),
            Way::Existing(None) => Default::default(),
        };
        for (name, counters) in read.names.iter().zip(read.guests()) {
            let devices = counters.into_iter().flat_map(|counters| &counters.devices);
            interfaces.extend(devices.map(|(device, text)| (format!("{name}/{device}"), text.clone())));
        }
        let congestion = self.congestion.clone();
        PathRecord { cell: cell.clone(), congestion, server_address, interfaces, sysctls, filters, notes, build: None }
    }
}

/// Asks an agent how often interfaces of its place have lost their carrier.
fn carrier_losses(agent: &mut ChildProcess, interfaces: Vec<String>) -> Result<u64> {
    let answer = agent.ask(&Order::Carrier { interfaces }, limits::ANSWER_TIME_MAX)?;
    let Answer::Carrier { losses } = answer else { return Err(agent.unexpected(&answer)) };
    Ok(losses)
}

/// Clears FD_CLOEXEC on the sockmap's descriptor, so that the agents inherit it. Returns the descriptor's number.
fn inheritable(sockmap: &Sockmap) -> Result<i32> {
    fcntl_setfd(sockmap.fd(), FdFlags::empty()).context("cannot pass the sockmap to the agents")?;
    Ok(sockmap.fd().as_raw_fd())
}

/// If `per_packet_us` is more than 0 and the path has a router, attaches a CPU-cost injector to the ingress of the router's interfaces. The injector
/// is an eBPF program that spends this CPU time per packet.
fn injector(per_packet_us: f64, path: Option<&BuiltPath>) -> Result<Option<CostInjector>> {
    let per_packet_ns = u32::try_from(to_ns(per_packet_us)).unwrap_or(u32::MAX);
    let router = path.and_then(|path| path.built.namespaces.iter().find(|namespace| namespace.role == Role::Router));
    match router {
        Some(router) if per_packet_ns > 0 => {
            CostInjector::attach(Path::new(&router.net), &["siga-rc", "siga-rs"], per_packet_ns).map(Some)
        }
        Some(_) | None => Ok(None),
    }
}

fn to_ns(us: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by the plan's check")]
    {
        (us * 1e3) as u64
    }
}
