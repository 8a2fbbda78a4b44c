//! The control program starts and watches the guests of one network, and makes the ring pairs between them.
//!
//! The control program has one thread with one event loop, and never blocks on another process. No frame passes through it: once
//! two guests have mapped the rings of their pair, they exchange frames directly. If the control program ends, the guests keep
//! running. The state file contains everything that a later control program needs to find and adopt them.

mod accounts;
mod applications;
mod attached;
mod cgroup;
mod clients;
mod direct;
mod guest_events;
mod guests;
mod handover;
mod issuer;
mod log;
mod memory;
mod owners;
mod pairs;
mod peer;
mod ports;
mod replace;
mod requests;
mod state;
mod status;
mod stderr;
mod switches;
mod tenants;
mod token_bucket;

use crate::files;
use crate::isolate;
use crate::isolate::launch::{self, Launcher, Program};
use crate::limits::{CLIENTS_MAX, CONNECTIONS_AT_ONCE_MAX, OUT_OF_DESCRIPTORS_WAIT};
use crate::protocol::channel::Channel;
use crate::protocol::message::{Order, RingPairEnd};
use crate::protocol::request::{Answer, GuestMemory, Request, TimedRequest};
use crate::protocol::ticket::{ApplicationId, RingPairId};
use crate::rundir::{self, RunDir};
use crate::tcp_settings;
use attached::Attached;
use cgroup::Cgroup;
use clients::Client;
use direct::DirectCouples;
use guests::Guest;
use handover::Former;
pub(crate) use handover::TAKE_OVER_TIME_MAX;
use log::Log;
use pairs::{Outgoing, RingPairs};
pub(crate) use peer::has_hung_up;
use ports::Ports;
use replace::Replacements;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use siga_model::topology::Topology;
use siga_ring::ready_set::ReadySet;
use state::State;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use stderr::GuestStderr;

/// The first command-line arguments of a control program's process. The path of the base directory follows them.
pub const CONTROL_ARGUMENTS: [&str; 2] = ["net", "control"];

/// Returns the topology, as text, from the state file of a network, or `None` if there is no state file.
///
/// # Errors
/// Returns an error if the state file is damaged or has another version.
pub(crate) fn topology_left_in(run: &RunDir) -> Result<Option<String>> {
    Ok(State::read(run)?.map(|(state, _)| state.topology))
}

/// Returns the version of the protocol of the control program that wrote the state file of a network, or `None` if there is no state
/// file.
///
/// # Errors
/// Returns an error if the state file is damaged.
pub(crate) fn protocol_in(run: &RunDir) -> Result<Option<u32>> {
    State::protocol_in(run)
}

/// Returns the topology of a network with the access that is granted now, or `None` if there is no state file.
///
/// # Errors
/// Returns the same errors as [`topology_left_in`].
pub(crate) fn topology_in(run: &RunDir) -> Result<Option<Topology>> {
    Ok(State::read(run)?.map(|(_, topology)| topology))
}

/// The source of an event in the event loop of the control program.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Listener,
    /// The channel of a guest is readable, or is writable again so that queued orders can be sent.
    Channel(Name),
    /// The process of a guest has ended.
    Process(Name),
    /// The standard error of a guest is readable.
    Stderr(Name),
    Client(u64),
    /// The channel of a process that is to replace that of a guest.
    SuccessorChannel,
    /// A process that is to replace that of a guest has ended.
    SuccessorProcess,
    /// A process that was replaced has ended: the number of its registration.
    Replaced(u64),
    /// The process by which a port's namespace was found has ended: the names of the network and the port.
    Holder(Name, Name),
    /// An interface in the namespace of an uplink has changed: the names of the network and the uplink.
    Uplink(Name, Name),
}

/// The life-cycle stage of the network.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// The control program starts or adopts the guests. The process that started the control program waits for the result.
    Starting {
        until: Instant,
        /// True for a new network: if one guest does not start, the whole network is taken down. False if an earlier control
        /// program had started the network: it then stays up even if a guest does not start.
        is_new: bool,
    },
    Up,
    /// All guests were ordered to end. At the time `until`, the control program kills the guests that still run.
    Stopping {
        until: Instant,
        why: Option<Error>,
    },
    /// All guests have ended. The value contains the error because of which the network was taken down, if there was one.
    Down(Option<Error>),
}

/// A control program. Its owner calls [`Control::turn`] in a loop. Dropping this value leaves the network as if the control program
/// had been killed: the guests keep running.
#[derive(Debug)]
pub struct Control {
    run: Rc<RunDir>,
    state: State,
    topology: Topology,
    launcher: Box<dyn Launcher>,
    events: ReadySet<Source>,
    listener: OwnedFd,
    /// A reserve descriptor. When descriptors run out, the control program closes it briefly, so that it can accept one connection
    /// and close that connection.
    spare: Option<OwnedFd>,
    guests: BTreeMap<Name, Guest>,
    clients: BTreeMap<u64, Client>,
    pairs: RingPairs,
    direct: DirectCouples,
    /// Doorbell descriptors that wait to be sent to the second guest of a new pair. The order to the first guest creates the
    /// doorbells of both ends. The order to the second guest takes its descriptors from here.
    doorbells: BTreeMap<RingPairId, (OwnedFd, OwnedFd)>,
    last_application: u64,
    requests: u64,
    ports: Ports,
    stage: Stage,
    attached: Attached,
    /// The processes of the applications that this control program has admitted.
    application_pids: BTreeMap<ApplicationId, u32>,
    /// The client with the lease, if there is one: the network is taken down when the connection of this client closes.
    lease: Option<u64>,
    /// The control program to which this one hands the network over: the key of its connection.
    heir: Option<u64>,
    replacements: Replacements,
    log: Log,
    /// For each guest, the pipe from which its standard error is read.
    stderr: BTreeMap<Name, GuestStderr>,
    /// The control group of the guests. `None` if the host does not allow this process to create one.
    cgroup: Option<Cgroup>,
    /// The memory limit of each guest. It was set when the guest's process was started or adopted.
    memory_limits: BTreeMap<Name, GuestMemory>,
    /// For each guest, the out-of-memory kill count of its control group at the time when the guest's current process joined the
    /// group. A higher count later means that this process was killed.
    kills: BTreeMap<Name, u64>,
}

/// Asks the control program of a network below a base directory to hand the network over. Returns the connection to it.
pub(crate) type AskFormer = fn(&Path, &Name) -> Result<Channel>;

/// Runs a control program until its network is taken down. Descriptor 0 is a channel to the process that started the control
/// program; that process sends the first request. If that says that another control program has the network, `ask_former` asks for it.
///
/// # Errors
/// Returns an error if the control program cannot begin and cannot report this failure to the process that started it.
pub(crate) fn run(base: &Path, ask_former: AskFormer) -> Result<()> {
    let mut starter = Channel::new(launch::channel()?)?;
    let request = first_request(&mut starter);
    if request.is_ok() {
        // Acknowledge the request now, because the guests may take longer to start than the client waits for an acknowledgement.
        // The send fails only if the client is gone.
        let _ = starter.send(&Answer::TakenUp, Vec::new());
    }
    let lease = request.as_ref().is_ok_and(|start| start.lease);
    let begun = request.and_then(|start| {
        let program = Rc::new(Program::load()?);
        let former = start.takes_over.then(|| ask_former(base, &start.name).map(Former)).transpose()?;
        let mut control = Control::begin(base, start.name, start.topology, Box::new(Rc::clone(&program)))?;
        control.log.become_stderr()?;
        Ok((control, former, program))
    });
    let outcome = match begun {
        Ok((mut control, former, program)) => {
            control.add_starter(starter, lease)?;
            handover::serve(base, control, former, &program)
        }
        Err(error) => Ok(starter.send(&Answer::Failed(error), Vec::new())?),
    };
    if lease {
        // The process that created the base directory may have ended, so remove the directory here. A directory that contains other
        // files stays.
        let _ = rundir::remove_base(base);
    }
    outcome
}

/// The first request to a control program.
struct Start {
    name: Name,
    topology: String,
    lease: bool,
    takes_over: bool,
}

fn first_request(starter: &mut Channel) -> Result<Start> {
    let mut ready = [rustix::event::PollFd::new(starter, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut ready, None).context("the control program cannot wait for its first request")?;
    match starter.receive::<TimedRequest>() {
        Ok(Some((TimedRequest { request: Request::Start { name, topology, lease, takes_over }, .. }, _))) => {
            Ok(Start { name, topology, lease, takes_over })
        }
        _ => Err(Error::usage("this is an internal command; use `siga net up` to start a control program")),
    }
}

impl Control {
    /// Creates the control program of a network. The control program adopts the guests that an earlier control program left
    /// running, and starts the other guests with `launcher`.
    ///
    /// # Errors
    /// Returns an error if the network already has a control program, if its guests have another topology, or if its files cannot be
    /// created.
    pub fn begin(base: &Path, name: Name, text: String, launcher: Box<dyn Launcher>) -> Result<Self> {
        isolate::raise_descriptor_limit();
        let run = Rc::new(RunDir::create(base, &name)?);
        let log = Log::open(&run)?;
        let left = State::read(&run)?;
        let is_new = left.is_none();
        let (state, topology) = match left {
            Some((state, _)) if state.topology != text => {
                let message = format!("network {name} is already up with a different topology");
                return Err(Error::environment(message).hint(format!("stop the network first: siga net down {name}")));
            }
            Some(known) => known,
            None => {
                let topology = Topology::parse(&text)?;
                tcp_settings::check(&topology)?;
                (State::new(name, text, &topology)?, topology)
            }
        };
        let listener = listen(&run.control())?;
        let mut events = ReadySet::new().context("the control program cannot wait for events")?;
        events.add(&listener, Source::Listener).context("the control program cannot wait for an event")?;
        let guests = topology.guests.keys().map(|name| (name.clone(), Guest::default())).collect();
        let mut control = Self {
            run,
            state,
            topology,
            launcher,
            events,
            listener,
            spare: spare(),
            guests,
            clients: BTreeMap::new(),
            pairs: RingPairs::default(),
            direct: DirectCouples::default(),
            doorbells: BTreeMap::new(),
            last_application: 0,
            requests: 0,
            ports: Ports::default(),
            stage: Stage::Starting { until: Instant::now() + crate::limits::START_TIME_MAX, is_new },
            attached: Attached::default(),
            application_pids: BTreeMap::new(),
            lease: None,
            heir: None,
            replacements: Replacements::default(),
            log,
            stderr: BTreeMap::new(),
            cgroup: None,
            memory_limits: BTreeMap::new(),
            kills: BTreeMap::new(),
        };
        // Write the control group's path into the state file before creating the group. Otherwise, if this process is killed in
        // between, no later control program could find the group and remove it.
        control.write_state()?;
        control.cgroup = control.state.cgroup.clone().filter(|cgroup| cgroup.make().is_ok());
        control.begin_guests()?;
        Ok(control)
    }

    /// Registers a descriptor with the event loop and returns the key of the registration.
    fn watch(&mut self, descriptor: impl AsFd, source: Source) -> Result<u64> {
        self.events.add(descriptor, source).context("the control program cannot wait for an event")
    }

    fn write_state(&mut self) -> Result<()> {
        self.state.write(&self.run, &self.topology, true)
    }

    /// Performs the timed actions that are due. Then waits for events, for `time` at most, and handles them. Returns false once the
    /// network is down and its files are removed, or when the network is to be handed over.
    pub fn turn(&mut self, time: Option<Duration>) -> bool {
        if self.heir.is_some() {
            return false;
        }
        let now = Instant::now();
        self.due(now);
        if let Stage::Down(why) = &self.stage {
            let why = why.clone();
            if let Some(cgroup) = &self.cgroup {
                cgroup.remove();
            }
            let removed = self.run.remove();
            self.answer_last(&why.map_or(removed, Err));
            return false;
        }
        let due = self.deadline().map(|at| at.saturating_duration_since(now));
        let mut ready = Vec::new();
        self.events.wait(due.into_iter().chain(time).min(), &mut ready);
        for source in ready {
            match source {
                Source::Listener => self.accept(),
                Source::Channel(guest) => self.receive_from_guest(&guest),
                Source::Process(guest) => self.process_ended(&guest),
                Source::Stderr(guest) => self.receive_stderr(&guest),
                Source::Client(client) => self.receive_from_client(client),
                Source::SuccessorChannel => self.receive_from_successor(),
                Source::SuccessorProcess => self.abandon("the new process has ended"),
                Source::Replaced(registration) => self.replacements.ended(&mut self.events, registration),
                Source::Holder(network, port) => self.holder_ended(&network, &port),
                Source::Uplink(network, port) => self.uplink_changed(&network, &port),
            }
        }
        true
    }

    /// Returns the time of the next timed action. The event loop must not sleep longer, because no descriptor becomes ready for
    /// such an action.
    fn deadline(&self) -> Option<Instant> {
        let stage = match &self.stage {
            Stage::Starting { until, .. } | Stage::Stopping { until, .. } => Some(*until),
            Stage::Up | Stage::Down(_) => None,
        };
        let guests = self.guests.values().filter_map(Guest::due);
        let clients = self.clients.values().filter_map(Client::due);
        let stderr = self.stderr.values().filter_map(GuestStderr::due);
        stage
            .into_iter()
            .chain(guests)
            .chain(clients)
            .chain(stderr)
            .chain(self.log.due())
            .chain(self.ports.due())
            .chain(self.direct.due())
            .chain(self.replacements.due())
            .min()
    }

    fn due(&mut self, now: Instant) {
        self.guests_due(now);
        self.clients_due(now);
        self.ports_due(now);
        self.direct_due(now);
        self.replacement_due(now);
        self.stderr_due(now);
        self.log.write_due_counts(now);
        let has_ended = |guest: &Guest| guest.process.is_none() && guest.channel.is_none();
        match &self.stage {
            Stage::Starting { until, is_new: true } if now >= *until => {
                let slow = self.slow_starter().map_or_else(String::new, Name::to_string);
                self.begin_stop(Some(Error::environment(format!("guest {slow} did not start before the timeout"))));
            }
            Stage::Starting { until, .. } if self.slow_starter().is_none() || now >= *until => {
                self.stage = Stage::Up;
                self.end_half_known();
                self.answer_starter();
            }
            Stage::Stopping { why, .. } if self.guests.values().all(has_ended) => self.stage = Stage::Down(why.clone()),
            Stage::Stopping { until, why } if now >= *until => {
                self.stage = Stage::Stopping { until: now + crate::limits::ANSWER_TIME_MAX, why: why.clone() };
                let names: Vec<Name> = self.guests.keys().cloned().collect();
                names.iter().for_each(|name| self.kill(name));
            }
            Stage::Starting { .. } | Stage::Up | Stage::Stopping { .. } | Stage::Down(_) => {}
        }
    }

    /// Returns one guest that is still starting. External guests are ignored, because the network does not wait for them.
    fn slow_starter(&self) -> Option<&Name> {
        let starts = |(name, guest): &(&Name, &Guest)| guest.is_starting() && !self.topology.guests[*name].external;
        self.guests.iter().find(starts).map(|(name, _)| name)
    }

    /// Begins to take the network down: orders all guests to end. `why` is the error that causes this, or `None` if a client
    /// requested it.
    fn begin_stop(&mut self, why: Option<Error>) {
        if matches!(self.stage, Stage::Starting { .. } | Stage::Up) {
            self.log.line(&match &why {
                None => "network: going down".to_owned(),
                Some(error) => format!("network: going down: {error}"),
            });
            self.stage = Stage::Stopping { until: Instant::now() + crate::limits::ANSWER_TIME_MAX, why };
            self.replacements.queue.clear();
            self.abandon("the network goes down");
            self.stop_all();
        }
    }

    fn is_stopping(&self) -> bool {
        matches!(self.stage, Stage::Stopping { .. } | Stage::Down(_))
    }

    /// Sends orders to guests. `cause` is the guest whose event led to these orders; it is `None` if no guest did.
    fn send_all(&mut self, cause: Option<&Name>, orders: Vec<Outgoing>) {
        let mut failed = Vec::new();
        for Outgoing { to, order } in orders {
            let Order::MakePair(held) = &order else {
                self.send_order_because(cause, &to, &order, Vec::new());
                continue;
            };
            let pair = held.pair;
            let other_end_failed = failed.contains(&pair);
            let parts = if other_end_failed {
                Err(Error::environment("siga could not create the other guest's end of the ring pair"))
            } else {
                self.parts_of(held)
            };
            match parts {
                Ok(descriptors) => self.send_order_because(cause, &to, &order, descriptors),
                Err(why) => {
                    self.log.of_guest(&to, &format!("pair {}: guest {to}: {why}", pair.0));
                    failed.push(pair);
                    self.doorbells.remove(&pair);
                    // The partner drops its end of the pair. The guest `to` receives the order `Refused`, and requests the pair
                    // again later.
                    let orders = self.pairs.lost(
                        pair,
                        &to,
                        "siga could not create the other guest's end of the ring pair",
                        false,
                    );
                    self.send_all(cause, orders);
                    let (device, member) = (held.device.clone(), held.member.clone());
                    self.send_order(&to, &Order::Refused { device, member, why }, Vec::new());
                }
            }
        }
    }

    /// Returns the descriptors for one end of a pair: its notify descriptor, its wake descriptor, and a memory file for its
    /// outgoing ring.
    fn parts_of(&mut self, held: &RingPairEnd) -> Result<Vec<OwnedFd>> {
        let memory = memory::of_ring(held.outbound)?;
        let (notify, wake) = self.doorbells_of(held.pair)?;
        Ok(vec![notify, wake, memory])
    }

    /// Returns the notify and the wake descriptor of one end of a pair. The first call for a pair creates the doorbells of both
    /// ends. The second call returns the descriptors of the other end.
    fn doorbells_of(&mut self, pair: RingPairId) -> Result<(OwnedFd, OwnedFd)> {
        if let Some(rest) = self.doorbells.remove(&pair) {
            return Ok(rest);
        }
        let [(notify_one, wake_one), (notify_other, wake_other)] = doorbells()?;
        self.doorbells.insert(pair, (notify_other, wake_other));
        Ok((notify_one, wake_one))
    }

    /// Accepts at most [`CONNECTIONS_AT_ONCE_MAX`] waiting connections; the rest wait for the next call of [`Control::turn`].
    /// Without this limit, a process that connects again and again could keep the control program from serving other processes.
    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..CONNECTIONS_AT_ONCE_MAX {
            let lost = match net::accept_with(&self.listener, flags) {
                Ok(_) if self.clients.len() >= CLIENTS_MAX && !self.drop_idle_client() => {
                    Error::environment("the control program has too many connections, so it closes this one")
                }
                Ok(connection) => match self.add_client(connection) {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::MFILE | Errno::NFILE) if self.spare.take().is_some() => {
                    // No descriptor is free. A connection that stays in the backlog would wake the event loop again and again, so
                    // accept and close it with the reserve descriptor. Possibly no connection waits: accept(2) looks for a free
                    // descriptor first, and fails without one.
                    let waiting = net::accept_with(&self.listener, flags);
                    let is_closed = waiting.is_ok();
                    drop(waiting);
                    self.spare = spare();
                    if !is_closed {
                        return;
                    }
                    Error::environment("the control program has no free file descriptor")
                }
                Err(Errno::MFILE | Errno::NFILE) => {
                    std::thread::sleep(OUT_OF_DESCRIPTORS_WAIT);
                    self.spare = spare();
                    return;
                }
                Err(_) => return,
            };
            self.log.of_clients(&format!("the control program closed a connection of a client: {lost}"));
        }
    }
}

/// Creates two doorbells (pipes that wake a process) between two processes, one in each direction. Returns the notify and wake
/// descriptors of the first process, then those of the second process.
fn doorbells() -> Result<[(OwnedFd, OwnedFd); 2]> {
    let pair = || siga_ring::doorbell::pair().context("cannot create a pipe that wakes a guest");
    let ((notify_one, wake_other), (notify_other, wake_one)) = (pair()?, pair()?);
    Ok([(notify_one.into(), wake_one.into()), (notify_other.into(), wake_other.into())])
}

/// Opens a descriptor whose only use is to reserve an entry in the descriptor table.
fn spare() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Creates a listening socket at a path. The caller makes sure that no living process uses the path.
fn listen(path: &Path) -> Result<OwnedFd> {
    let socket = bind(path)?;
    net::listen(&socket, 128).context(format!("the control program cannot listen at {}", path.display()))?;
    Ok(socket)
}

/// Binds a socket to a path without listening on it yet. Replaces a socket that an earlier process left at this path.
fn bind(path: &Path) -> Result<OwnedFd> {
    let at = || {
        // The path begins with `/proc/self/fd`, which does not help the user. So the message shows the real name of the directory
        // instead.
        let directory = path.parent().and_then(|directory| std::fs::read_link(directory).ok()).unwrap_or_default();
        format!(
            "the control program cannot listen at {}",
            directory.join(path.file_name().unwrap_or_default()).display()
        )
    };
    let address = SocketAddrUnix::new(path).context(at())?;
    match files::type_of(rustix::fs::CWD, path).context(at())? {
        None => {}
        Some(FileType::Socket) => rustix::fs::unlink(path).context(at())?,
        Some(_) => {
            return Err(Error::environment(format!("{}: a file that is not a socket already has this name", at())));
        }
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).context(at())?;
    // Only this user may connect: bind(2) gives the socket file the mode of the socket.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).context(at())?;
    net::bind(&socket, &address).context(at())?;
    Ok(socket)
}
