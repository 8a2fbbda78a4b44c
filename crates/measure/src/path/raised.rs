//! A virtual network of siga for one path. One part of this file runs in the namespace holder, and starts and ends the network.
//! The other part is the handle of the coordinator, the process that carries out a run.
//!
//! Each network has its own directory for its files. When the holder's connection to the control program of the network is
//! closed, the control program ends all guests and removes the directory. So no process or file remains if the holder is
//! killed.

use super::holder::{self, Request};
use super::namespace::{Node, NodeKind, gain_privilege};
use super::{Namespace, Role};
use crate::channel::{ChildProcess, Lines, write_outcome};
use crate::cpu::guest::GuestCounters;
use crate::place;
use crate::topology::{OwnEnd, OwnNetwork};
use serde::{Deserialize, Serialize};
use siga_fabric::client::{Client, Leased};
use siga_fabric::join::ReservedPort;
use siga_fabric::protocol::report::ReportPart;
use siga_fabric::protocol::request::{Answer, GuestStatus, MemberStatus, Request as Ask};
use siga_fabric::protocol::secret::Secret;
use siga_fabric::rundir::{self, RunDir};
use siga_model::error::{Error, Result};
use siga_model::link::Link;
use siga_model::name::Name;
use siga_model::topology::PortLink;
use siga_plan::path::guest::{Attach, NAMES, NEIGHBOURS};
use siga_plan::plan::Plan;
use siga_plan::spec::GuestSpec;
use siga_results::monitor::Role as MonitoredRole;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum time for starting a network. It is longer than the time limits of the control program, so that the control program's
/// own error arrives first.
const RAISE_TIME_MAX: Duration = Duration::from_secs(40);
/// Maximum time until a guest's report arrives.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// Name of the network in its directory.
const NAME: &str = "path";

/// A started network: its location, its secrets and its processes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Raised {
    /// Directory that contains the files of the network.
    pub base: PathBuf,
    /// Name of the network in the directory `base`.
    pub network: Name,
    /// The secret with which the client attaches to its guest. `None` if the client is in a network namespace.
    pub client: Option<Secret>,
    /// The secret with which the server attaches to its guest. `None` if the server is in a network namespace.
    pub server: Option<Secret>,
    /// The secrets with which the two guests on the cards of client and server attach, if there are such guests.
    #[serde(default)]
    pub neighbours: Option<[Secret; 2]>,
    /// The namespaces of client and server, if they are in namespaces.
    pub namespaces: Vec<Namespace>,
    /// Process ids of the client's guest, the router and the server's guest. `None` if a guest does not exist or has no process
    /// of its own.
    pub guests: [Option<u32>; 3],
    /// Process id of the control program.
    pub control: u32,
    /// Process ids of the switches. On a path over the user's own network, of those between client and server.
    pub switches: Vec<u32>,
    /// On a path over the user's own network: the routers between client and server, with their process ids.
    #[serde(default)]
    pub routers: Vec<(Name, u32)>,
    /// On such a path: the names of the switches between client and server, in the order of `switches`.
    #[serde(default)]
    pub switch_names: Vec<Name>,
    /// Process ids of guests and switches of the user's own network that are not between client and server.
    #[serde(default)]
    pub beside: Vec<u32>,
    /// The modelled links that the network reports, by the label of the port's station (`port tcpip3.lan`).
    pub links: BTreeMap<String, String>,
}

impl Raised {
    /// Restricts the network's processes to the CPUs of the plan.
    pub(crate) fn keep_on(&self, plan: &Plan) -> Result<()> {
        let (of_routers, of_others) = plan.network_cpus()?;
        let [client, router, server] = self.guests;
        let routers = router.into_iter().chain(self.routers.iter().map(|(_, pid)| *pid));
        let others = self.switches.iter().chain(&self.beside).copied();
        let others = others.chain([client, server].into_iter().flatten()).chain([self.control]);
        routers
            .map(|pid| (pid, &of_routers))
            .chain(others.map(|pid| (pid, &of_others)))
            .try_for_each(|(pid, cpus)| place::keep_on(pid, cpus))
    }

    /// Returns the ids of the network's processes, except those that embed a guest.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let guests = self.guests.into_iter().flatten();
        let routers = self.routers.iter().map(|(_, pid)| *pid);
        let others = self.switches.iter().chain(&self.beside).copied();
        guests.chain(routers).chain(others).chain([self.control]).collect()
    }
}

/// A running network. Dropping this value ends the network, unless it was up before.
#[derive(Debug)]
pub struct Net {
    /// Description of the network.
    pub raised: Raised,
    /// The names of the client's guest, the router and the server's guest.
    names: [String; 3],
    /// The sysctls of the level, as the guests have them: by guest and name. A guest that refuses one does not start.
    pub(crate) sysctls: BTreeMap<String, String>,
    /// True for the user's own network.
    is_own: bool,
    source: Source,
}

/// Returns the sysctls of the guests of a path, by guest and name.
fn settings(spec: &GuestSpec) -> BTreeMap<String, String> {
    let guests = NAMES.iter().filter(|name| spec.path.routed || **name != NAMES[1]);
    let of_guest = |guest| spec.sysctl.iter().map(move |(name, value)| (format!("{guest} {name}"), value.clone()));
    guests.flat_map(of_guest).collect()
}

/// The process that answers requests for the counters of a network's guests.
#[derive(Debug)]
enum Source {
    /// The namespace holder that has started the network.
    Holder(ChildProcess),
    /// The control program of a network that was up before.
    Up(Client),
}

impl Net {
    /// Starts `program namespace-holder`, which starts the network `spec`.
    ///
    /// The kernel kills the holder when the calling *thread* ends (PR_SET_PDEATHSIG). So this thread must live longer than the
    /// network.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if the program cannot be started, or if a guest does not start.
    pub fn raise(program: &Path, spec: &GuestSpec) -> Result<Self> {
        let mut holder = ChildProcess::start(holder::command(program), format!("path {}", spec.path))?;
        let request = Request::Raise { spec: spec.clone(), parent: std::process::id() };
        let raised = holder.ask(&request, RAISE_TIME_MAX)?;
        let names = NAMES.map(str::to_owned);
        Ok(Self { raised, names, sysctls: settings(spec), is_own: false, source: Source::Holder(holder) })
    }

    /// Starts the user's own network as [`Net::raise`] does, or connects to the network `up`, which is up already.
    pub(crate) fn own(program: &Path, own: &OwnNetwork, up: Option<&Name>) -> Result<Self> {
        let router = match own.routers.as_slice() {
            [only] => only.to_string(),
            _ => "routers".to_owned(),
        };
        let names = [own.ends[0].guest.to_string(), router, own.ends[1].guest.to_string()];
        let Some(name) = up else {
            let mut holder = ChildProcess::start(holder::command(program), "own network")?;
            let request = Request::RaiseOwn { network: Box::new(own.clone()), parent: std::process::id() };
            let raised = holder.ask(&request, RAISE_TIME_MAX)?;
            let sysctls = BTreeMap::new();
            return Ok(Self { raised, names, sysctls, is_own: true, source: Source::Holder(holder) });
        };
        let mut client = Client::connect(name)?;
        let control = client.control_pid().unwrap_or(0);
        let raised = describe_own(&mut client, own, (rundir::base()?, name.clone()), control)?;
        Ok(Self { raised, names, sysctls: BTreeMap::new(), is_own: true, source: Source::Up(client) })
    }

    /// Returns the names of the client's guest, the router and the server's guest.
    pub(crate) fn names(&self) -> &[String; 3] {
        &self.names
    }

    /// Returns the network's processes with their names and roles, except those that embed a guest.
    pub(crate) fn monitored(&self) -> Vec<(String, MonitoredRole, u32)> {
        let Raised { guests, routers, switches, switch_names, .. } = &self.raised;
        let roles = [MonitoredRole::Guest, MonitoredRole::Router, MonitoredRole::Guest];
        let named = guests.iter().zip(self.names.iter().zip(roles));
        let of_guests = named.filter_map(|(pid, (name, role))| Some((name.clone(), role, (*pid)?)));
        let of_routers = routers.iter().map(|(name, pid)| (name.to_string(), MonitoredRole::Router, *pid));
        let of_switches = switches.iter().enumerate().map(|(at, pid)| {
            let name = switch_names.get(at).map_or_else(|| "switch".to_owned(), ToString::to_string);
            (name, MonitoredRole::Switch, *pid)
        });
        let control = ("control program".to_owned(), MonitoredRole::Control, self.raised.control);
        of_guests.chain(of_routers).chain(of_switches).chain([control]).collect()
    }

    /// Returns the counters of a guest. `guest` is the guest's index in [`NAMES`].
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if the holder or the network has ended or does not answer.
    pub fn report(&mut self, guest: usize) -> Result<Vec<ReportPart>> {
        match &mut self.source {
            Source::Holder(holder) => holder.ask(&Request::Guest { guest }, ANSWER_TIME_MAX),
            Source::Up(_) => Err(Error::usage("no such guest")),
        }
    }

    /// Returns the counters of the client's guest, of all routers, or of the server's guest. `None` if they have no process of their own.
    pub(crate) fn counters(&mut self, at: usize) -> Result<Option<GuestCounters>> {
        if at == 1 && self.is_own {
            let routers: Vec<Name> = self.raised.routers.iter().map(|(name, _)| name.clone()).collect();
            let mut all: Option<GuestCounters> = None;
            for router in &routers {
                let prefix = if routers.len() > 1 { format!("{router}/") } else { String::new() };
                let counters = GuestCounters::of(&self.report_of(router)?);
                all.get_or_insert_default().add(&counters, &prefix);
            }
            return Ok(all);
        }
        if self.raised.guests[at].is_none() {
            return Ok(None);
        }
        let parts = if self.is_own { self.report_of(&self.names[at].parse()?)? } else { self.report(at)? };
        Ok(Some(GuestCounters::of(&parts)))
    }

    fn report_of(&mut self, guest: &Name) -> Result<Vec<ReportPart>> {
        match &mut self.source {
            Source::Holder(holder) => holder.ask(&Request::Report { guest: guest.clone() }, ANSWER_TIME_MAX),
            Source::Up(client) => report_of(client, guest),
        }
    }
}

/// Runs in the holder: starts a network and serves the coordinator until standard input ends.
pub(super) fn hold(
    start: impl FnOnce() -> Result<(Network, Raised)>,
    output: &mut std::io::Stdout,
    requests: &mut Lines<std::io::Stdin>,
) -> Result<()> {
    let mut network = match start() {
        Ok((network, raised)) => {
            write_outcome(output, Ok(raised))?;
            network
        }
        Err(error) => return write_outcome::<()>(output, Err(error)),
    };
    // If the holder has entered a user namespace, the change of its credentials has cleared the parent-death signal.
    holder::watch_parent()?;
    while let Some(request) = holder::next(requests)? {
        match request {
            Request::Guest { guest } => write_outcome(output, network.report(guest))?,
            Request::Report { guest } => write_outcome(output, report_of(&mut network.leased.client, &guest))?,
            Request::Build { .. }
            | Request::Raise { .. }
            | Request::RaiseOwn { .. }
            | Request::Try { .. }
            | Request::Counters
            | Request::Smc => {
                write_outcome::<()>(
                    output,
                    Err(Error::usage("a namespace holder that has started guests cannot carry out this order")),
                )?;
            }
        }
    }
    network.leased.down()
}

pub(super) struct Network {
    leased: Leased,
    /// The namespaces of client and server, if they are in namespaces.
    nodes: Vec<Node>,
}

impl Network {
    /// Starts a network with this topology in a directory of its own. Returns it with the directory and the name of the network.
    fn up(topology: &str) -> Result<(Leased, PathBuf, Name)> {
        let drawn = Secret::draw()
            .map_err(|error| Error::environment(format!("cannot get random numbers from the kernel: {error}")))?;
        // The directory's name is short, because the path of a UNIX socket has a length limit.
        let base = std::env::temp_dir().join(format!("siga-{}", &drawn.text()[..12]));
        let name: Name = NAME.parse()?;
        let leased = Leased::up_at(&base, &name, topology).inspect_err(|_| {
            // Return the first error, even if the files cannot be removed.
            let _ = RunDir::open(&base, &name).map(|run| run.map(|run| run.remove_dead()));
            let _ = rundir::remove_base(&base);
        })?;
        Ok((leased, base, name))
    }

    /// Starts the user's own network.
    pub(super) fn start_own(own: &OwnNetwork) -> Result<(Self, Raised)> {
        let topology = own.topology.as_ref().ok_or_else(|| Error::usage("the network has no topology to start"))?;
        let (mut leased, base, name) = Self::up(topology)?;
        let control = u32::try_from(leased.control().as_raw_nonzero().get()).unwrap_or(0);
        let raised = describe_own(&mut leased.client, own, (base, name), control)?;
        Ok((Self { leased, nodes: Vec::new() }, raised))
    }

    pub(super) fn start(spec: &GuestSpec) -> Result<(Self, Raised)> {
        let (leased, base, name) = Self::up(&spec.topology())?;
        let mut network = Self { leased, nodes: Vec::new() };
        let attach = spec.path.attach;
        let [client_inside, server_inside] = attach.in_namespaces();
        let mut secret = |inside: bool, guest| (!inside).then(|| network.secret(guest, attach)).transpose();
        let (client, server) = (secret(client_inside, NAMES[0])?, secret(server_inside, NAMES[2])?);
        let neighbours = match spec.guests.neighbour {
            Some(_) => Some([network.secret(NEIGHBOURS[0], attach)?, network.secret(NEIGHBOURS[1], attach)?]),
            None => None,
        };
        let status = network.ask(Ask::Status { detail: false })?;
        let (guests, switches) = pids(&status);
        let raised = Raised {
            client,
            server,
            neighbours,
            namespaces: network.join_namespaces(attach)?,
            guests,
            control: u32::try_from(network.leased.control().as_raw_nonzero().get()).unwrap_or(0),
            switches,
            routers: Vec::new(),
            switch_names: Vec::new(),
            beside: Vec::new(),
            links: links(&status),
            base,
            network: name,
        };
        Ok((network, raised))
    }

    /// Makes a namespace for each end that is to be in one, at the port with the name of its guest.
    fn join_namespaces(&mut self, attach: Attach) -> Result<Vec<Namespace>> {
        let ends = [(NodeKind::Client, Role::Client, NAMES[0]), (NodeKind::Server, Role::Server, NAMES[2])];
        let inside = ends.into_iter().zip(attach.in_namespaces()).filter(|(_, inside)| *inside).map(|(end, _)| end);
        let inside: Vec<_> = inside.collect();
        if inside.is_empty() {
            return Ok(Vec::new());
        }
        let user = gain_privilege()?.then(|| format!("/proc/{}/ns/user", std::process::id()));
        // A device is made in another namespace than that of its port.
        let other = Node::create(NodeKind::Shared)?;
        let mut namespaces = Vec::new();
        for (kind, role, port) in inside {
            other.enter()?;
            let reserved = ReservedPort::reserve(&mut self.leased.client, None, Some(port.parse()?), kind.name())?;
            let made = reserved.make_device()?;
            let node = Node::create(kind)?;
            made.join_here()?;
            namespaces.push(Namespace { role, net: node.proc_path(), user: user.clone(), inode: node.inode });
            self.nodes.push(node);
        }
        Ok(namespaces)
    }

    fn ask(&mut self, request: Ask) -> Result<Vec<Answer>> {
        self.leased.client.request(request)
    }

    fn secret(&mut self, guest: &str, attach: Attach) -> Result<Secret> {
        secret_of(&mut self.leased.client, guest.parse()?, attach == Attach::Iucv)
    }

    fn report(&mut self, guest: usize) -> Result<Vec<ReportPart>> {
        let name = NAMES.get(guest).ok_or_else(|| Error::usage("no such guest"))?;
        report_of(&mut self.leased.client, &name.parse()?)
    }
}

fn secret_of(client: &mut Client, guest: Name, application: bool) -> Result<Secret> {
    let none = Error::environment(format!("the control program has no secret for {guest}"));
    let answers = client.request(Ask::Secret { guest, application })?;
    let secret =
        answers.into_iter().find_map(|answer| if let Answer::Secret(secret) = answer { Some(secret) } else { None });
    secret.ok_or(none)
}

fn report_of(client: &mut Client, guest: &Name) -> Result<Vec<ReportPart>> {
    let answers = client.request(Ask::Report(guest.clone()))?;
    let part = |answer| if let Answer::Report { part, .. } = answer { Some(part) } else { None };
    Ok(answers.into_iter().filter_map(part).collect())
}

/// Returns the secrets and the processes of the user's own network, which is up.
fn describe_own(
    client: &mut Client,
    own: &OwnNetwork,
    (base, network): (PathBuf, Name),
    control: u32,
) -> Result<Raised> {
    let status = client.request(Ask::Status { detail: false })?;
    let mut pids: BTreeMap<Name, u32> = BTreeMap::new();
    for answer in &status {
        if let Answer::Guest(GuestStatus { name, pid: Some(pid), .. }) = answer {
            pids.insert(name.clone(), *pid);
        }
    }
    let mut running = |name: &Name| {
        pids.remove(name).ok_or_else(|| {
            Error::environment(format!("guest {name} does not run"))
                .hint(format!("start it with `siga net start NETWORK {name}`"))
        })
    };
    let routers = own.routers.iter().map(|name| Ok((name.clone(), running(name)?))).collect::<Result<Vec<_>>>()?;
    let switches = own.switches.iter().map(&mut running).collect::<Result<Vec<_>>>()?;
    let mut end = |end: &OwnEnd| -> Result<(Option<u32>, Secret)> {
        let pid = if end.external { None } else { Some(running(&end.guest)?) };
        Ok((pid, secret_of(client, end.guest.clone(), !end.external)?))
    };
    let [of_client, of_server] = &own.ends;
    let ((client_pid, client_secret), (server_pid, server_secret)) = (end(of_client)?, end(of_server)?);
    Ok(Raised {
        base,
        network,
        client: Some(client_secret),
        server: Some(server_secret),
        neighbours: None,
        namespaces: Vec::new(),
        guests: [client_pid, None, server_pid],
        control,
        switches,
        routers,
        switch_names: own.switches.clone(),
        beside: pids.into_values().collect(),
        links: links(&status),
    })
}

/// Returns the process ids of the guests on the path, and those of the switches.
fn pids<'a>(status: &'a [Answer]) -> ([Option<u32>; 3], Vec<u32>) {
    let state = |answer: &'a Answer| if let Answer::Guest(state) = answer { Some(state) } else { None };
    let states: Vec<&GuestStatus> = status.iter().filter_map(state).collect();
    let pid = |name: &str| states.iter().find(|state| state.name.as_str() == name).and_then(|state| state.pid);
    let switches = states.iter().filter(|state| !NAMES.contains(&state.name.as_str()));
    (NAMES.map(pid), switches.filter_map(|state| state.pid).collect())
}

/// Returns the modelled links of a network's ports by the label of each port's station.
fn links<'a>(status: &'a [Answer]) -> BTreeMap<String, String> {
    let of = |answer: &'a Answer| if let Answer::Members { members, .. } = answer { Some(members) } else { None };
    let members = status.iter().filter_map(of).flatten();
    let text = |member: &MemberStatus| {
        let PortLink { from_station, to_station } = &member.port.as_ref()?.link;
        let text = |name: &str, link: &Option<Link>| link.as_ref().map(|link| format!("{name}={link}"));
        let texts: Vec<_> = text("link-from", from_station).into_iter().chain(text("link-to", to_station)).collect();
        (!texts.is_empty()).then(|| texts.join(" "))
    };
    members.filter_map(|member| Some((format!("port {}", member.label), text(member)?))).collect()
}
