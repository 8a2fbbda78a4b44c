//! The control program: defines networks, authorises guests, hands out rings, watches.
//!
//! It is one thread with one event loop, and waits for nobody. No frame passes through it: once a pair is linked, its guests
//! need it no more. What it must not forget is in the state file; a successor reads it and finds the guests again.

mod applications;
mod cgroup;
mod clients;
mod guests;
mod log;
mod memory;
mod messages;
pub mod pairs;
mod state;

use crate::application::ApplicationId;
use crate::channel::Channel;
use crate::error::{Error, IoContext, Result};
use crate::events::Events;
use crate::isolate;
use crate::launch::{self, Program};
use crate::limits::{CLIENTS_MAX, OUT_OF_DESCRIPTORS_WAIT};
use crate::message::{Order, PairId};
use crate::name::Name;
use crate::request::{Answer, GuestMemory, Request};
use crate::rundir::RunDir;
use crate::topology::Topology;
use cgroup::Cgroup;
use clients::Client;
use guests::Guest;
use log::Log;
use messages::Messages;
use pairs::{Outgoing, Pairs, With};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use state::State;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

/// The arguments of a control program's process; the directory of all networks follows.
pub const CONTROL_ARGUMENTS: [&str; 2] = ["net", "control"];

/// The topology of a network whose control program left a state.
///
/// # Errors
/// The state is damaged or of another version.
pub fn topology_text(run: &RunDir) -> Result<Option<String>> {
    Ok(State::read(run)?.map(|(state, _)| state.topology))
}

/// Whose event it is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Listener,
    /// A guest has said something, or can be told more.
    Channel(Name),
    /// A guest's process has ended.
    Process(Name),
    /// A guest has written to its descriptor 2.
    Messages(Name),
    Client(u64),
}

/// What becomes of the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// Guests are started for the first time; whoever asked waits.
    Rising {
        until: Instant,
    },
    Up,
    /// All guests are to end, the stubborn ones at this time.
    Falling {
        until: Instant,
        why: Option<Error>,
    },
    /// All have ended.
    Down(Option<Error>),
}

/// A control program.
#[derive(Debug)]
struct Control {
    run: RunDir,
    /// Held as long as this process lives.
    _lock: OwnedFd,
    state: State,
    topology: Topology,
    program: Program,
    events: Events<Source>,
    listener: OwnedFd,
    /// Given up for a moment when descriptors run out.
    spare: Option<OwnedFd>,
    guests: BTreeMap<Name, Guest>,
    clients: BTreeMap<u64, Client>,
    pairs: Pairs,
    /// The doorbells of a pair, made for the first of its two orders and taken by the second.
    doorbells: BTreeMap<PairId, (OwnedFd, OwnedFd)>,
    last_application: u64,
    /// The applications that use stacks, and whose.
    applications: BTreeMap<ApplicationId, Name>,
    requests: u64,
    stage: Stage,
    /// Whose connection the network ends with.
    lease: Option<u64>,
    log: Log,
    /// What guests write to their descriptors 2, by guest.
    messages: BTreeMap<Name, Messages>,
    /// The control group of the guests, where one can be made.
    cgroup: Option<Cgroup>,
    /// What limits the memory of each guest that runs.
    memory_limits: BTreeMap<Name, GuestMemory>,
    /// Processes of each guest that had reached the limit of its control group when its process was put there.
    kills: BTreeMap<Name, u64>,
}

/// Runs a control program until its network is taken down. Its first word comes from the process that started it, over
/// descriptor 0: what network.
///
/// # Errors
/// It cannot begin, and whoever started it is not there to be told.
pub fn run(base: &Path) -> Result<()> {
    let mut starter = Channel::new(launch::channel()?)?;
    let word = first_word(&mut starter);
    let lease = word.as_ref().is_ok_and(|(_, _, lease)| *lease);
    let outcome = match word.and_then(|(name, topology, _)| Control::begin(base, name, topology)) {
        Ok(mut control) => {
            control.add_starter(starter, lease)?;
            control.serve()
        }
        Err(error) => starter.send(&Answer::Failed(error.clone()), Vec::new()).map_err(|_| error),
    };
    if lease {
        // Whoever made it may be gone; what else lies in it keeps it.
        let _ = std::fs::remove_dir(base);
    }
    outcome
}

fn first_word(starter: &mut Channel) -> Result<(Name, String, bool)> {
    let mut ready = [rustix::event::PollFd::new(starter, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut ready, None).context("cannot wait for the first word")?;
    match starter.receive::<Request>() {
        Ok(Some((Request::Start { name, topology, lease }, _))) => Ok((name, topology, lease)),
        _ => Err(Error::usage("a control program is started by `siga net up`")),
    }
}

impl Control {
    fn begin(base: &Path, name: Name, text: String) -> Result<Self> {
        let program = Program::load()?;
        isolate::raise_descriptor_limit();
        let run = RunDir::of(base, &name);
        run.create()?;
        let lock = lock(&run, &name)?;
        let mut log = Log::open(&run)?;
        log.become_stderr()?;
        let (state, topology) = match State::read(&run)? {
            Some((state, _)) if state.topology != text => {
                let message = format!("network {name} has guests of another topology");
                return Err(Error::environment(message).hint(format!("siga net down {name}")));
            }
            Some(known) => known,
            None => {
                let topology = Topology::parse(&text)?;
                (State::new(name, text, &topology)?, topology)
            }
        };
        let listener = listen(&run.control())?;
        let mut events = Events::new()?;
        events.add(&listener, Source::Listener)?;
        let guests = topology.guests.keys().map(|name| (name.clone(), Guest::default())).collect();
        let mut control = Self {
            run,
            _lock: lock,
            state,
            topology,
            program,
            events,
            listener,
            spare: spare(),
            guests,
            clients: BTreeMap::new(),
            pairs: Pairs::default(),
            doorbells: BTreeMap::new(),
            last_application: 0,
            applications: BTreeMap::new(),
            requests: 0,
            stage: Stage::Rising { until: Instant::now() + crate::limits::START_TIME_MAX },
            lease: None,
            log,
            messages: BTreeMap::new(),
            cgroup: None,
            memory_limits: BTreeMap::new(),
            kills: BTreeMap::new(),
        };
        control.write_state()?;
        // The state has its place from before it is there.
        control.cgroup = control.state.cgroup.clone().filter(|cgroup| cgroup.make().is_ok());
        control.begin_guests();
        Ok(control)
    }

    fn write_state(&mut self) -> Result<()> {
        self.state.write(&self.run, &self.topology)
    }

    fn serve(&mut self) -> Result<()> {
        loop {
            let now = Instant::now();
            self.due(now);
            if let Stage::Down(why) = &self.stage {
                let why = why.clone();
                if let Some(cgroup) = &self.cgroup {
                    cgroup.remove();
                }
                let removed = self.run.remove();
                self.answer_last(&why.map_or(removed, Err));
                return Ok(());
            }
            let timeout = self.deadline().map(|at| at.saturating_duration_since(now));
            let mut ready = Vec::new();
            self.events.wait(timeout, &mut ready);
            for source in ready {
                match source {
                    Source::Listener => self.accept(),
                    Source::Channel(guest) => self.hear_guest(&guest),
                    Source::Process(guest) => self.process_ended(&guest),
                    Source::Messages(guest) => self.hear_messages(&guest),
                    Source::Client(client) => self.hear_client(client),
                }
            }
        }
    }

    /// When something is due that no descriptor tells.
    fn deadline(&self) -> Option<Instant> {
        let stage = match &self.stage {
            Stage::Rising { until } | Stage::Falling { until, .. } => Some(*until),
            Stage::Up | Stage::Down(_) => None,
        };
        let guests = self.guests.values().filter_map(|guest| guest.due);
        let clients = self.clients.values().filter_map(Client::due);
        let messages = self.messages.values().filter_map(Messages::due);
        stage.into_iter().chain(guests).chain(clients).chain(messages).chain(self.log.due()).min()
    }

    fn due(&mut self, now: Instant) {
        self.guests_due(now);
        self.clients_due(now);
        self.messages_due(now);
        self.log.settle(now);
        let settled = |guest: &Guest| guest.process.is_none() && guest.channel.is_none();
        match &self.stage {
            Stage::Rising { until } if now >= *until => {
                let slow = self.slow_starter().map_or_else(String::new, Name::to_string);
                self.fall(Some(Error::environment(format!("guest {slow} does not start"))));
            }
            Stage::Rising { .. } if self.slow_starter().is_none() => {
                self.stage = Stage::Up;
                self.end_half_known();
                self.answer_starter();
            }
            Stage::Falling { why, .. } if self.guests.values().all(settled) => self.stage = Stage::Down(why.clone()),
            Stage::Falling { until, why } if now >= *until => {
                self.stage = Stage::Falling { until: now + crate::limits::ANSWER_TIME_MAX, why: why.clone() };
                let names: Vec<Name> = self.guests.keys().cloned().collect();
                names.iter().for_each(|name| self.kill(name));
            }
            Stage::Rising { .. } | Stage::Up | Stage::Falling { .. } | Stage::Down(_) => {}
        }
    }

    /// A guest that has been started and does not run yet. Nobody waits for those that start themselves.
    fn slow_starter(&self) -> Option<&Name> {
        let starts = |(name, guest): &(&Name, &Guest)| guest.is_starting() && !self.topology.guests[*name].external;
        self.guests.iter().find(starts).map(|(name, _)| name)
    }

    /// Begins to end all guests, because it was asked for or because of an error.
    fn fall(&mut self, why: Option<Error>) {
        if matches!(self.stage, Stage::Rising { .. } | Stage::Up) {
            self.log.line(&match &why {
                None => "network: going down".to_owned(),
                Some(error) => format!("network: going down: {error}"),
            });
            self.stage = Stage::Falling { until: Instant::now() + crate::limits::ANSWER_TIME_MAX, why };
            self.stop_all();
        }
    }

    fn is_falling(&self) -> bool {
        matches!(self.stage, Stage::Falling { .. } | Stage::Down(_))
    }

    /// Sends orders to guests. A guest that cannot be told anything is killed, which ends its pairs in order.
    fn send_all(&mut self, orders: Vec<Outgoing>) {
        let mut failed = Vec::new();
        for Outgoing { to, order, with } in orders {
            let descriptors = match with {
                With::Nothing => Ok(Vec::new()),
                With::Doorbells(pair) if failed.contains(&pair) => Err(Error::environment("the other half failed")),
                With::Doorbells(pair) => self.parts_of(pair, &order),
            };
            match (descriptors, order) {
                (Ok(descriptors), order) => self.tell(&to, &order, descriptors),
                (Err(why), Order::Pair { pair, device, member, .. }) => {
                    self.log.of_guest(&to, &format!("pair {}: guest {to}: {why}", pair.0));
                    failed.push(pair);
                    self.doorbells.remove(&pair);
                    // The partner gives up what it has of the pair; this one asks again after some time.
                    let orders = self.pairs.lost(pair, &to, "the other half cannot be made", false);
                    self.send_all(orders);
                    self.tell(&to, &Order::Refused { device, member, why }, Vec::new());
                }
                (Err(_), _) => {}
            }
        }
    }

    /// What a member of a pair needs for its half: a bell, an ear, and memory for what it sends.
    fn parts_of(&mut self, pair: PairId, order: &Order) -> Result<Vec<OwnedFd>> {
        let Order::Pair { outbound, .. } = order else { return Ok(Vec::new()) };
        let memory = memory::of_ring(*outbound)?;
        let (bell, ear) = self.doorbells_of(pair)?;
        Ok(vec![bell, ear, memory])
    }

    /// A bell and an ear for one member of a pair; the second time, those of the other.
    fn doorbells_of(&mut self, pair: PairId) -> Result<(OwnedFd, OwnedFd)> {
        if let Some(rest) = self.doorbells.remove(&pair) {
            return Ok(rest);
        }
        let [(bell_one, ear_one), (bell_other, ear_other)] = doorbells()?;
        self.doorbells.insert(pair, (bell_other, ear_other));
        Ok((bell_one, ear_one))
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let lost = match net::accept_with(&self.listener, flags) {
                Ok(_) if self.clients.len() >= CLIENTS_MAX => Error::environment("there are too many"),
                Ok(connection) => match self.add_client(connection) {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::MFILE | Errno::NFILE) if self.spare.take().is_some() => {
                    // Whoever waits is let go of, or this loop would be woken for him without end. There may be nobody: the
                    // kernel looks for a descriptor first.
                    let waiting = net::accept_with(&self.listener, flags);
                    let is_let_go = waiting.is_ok();
                    drop(waiting);
                    self.spare = spare();
                    if !is_let_go {
                        return;
                    }
                    Error::environment("out of descriptors")
                }
                Err(Errno::MFILE | Errno::NFILE) => {
                    std::thread::sleep(OUT_OF_DESCRIPTORS_WAIT);
                    self.spare = spare();
                    return;
                }
                Err(_) => return,
            };
            self.log.of_clients(&format!("a connection was lost: {lost}"));
        }
    }
}

/// A doorbell each way between two processes: bell and ear of the one, then of the other.
fn doorbells() -> Result<[(OwnedFd, OwnedFd); 2]> {
    let pair = || siga_ring::doorbell::pair().context("cannot make a doorbell");
    let ((bell_one, ear_other), (bell_other, ear_one)) = (pair()?, pair()?);
    Ok([(bell_one.into(), ear_one.into()), (bell_other.into(), ear_other.into())])
}

/// A descriptor of no use.
fn spare() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Says that a control program of this network lives.
fn lock(run: &RunDir, name: &Name) -> Result<OwnedFd> {
    let path = run.path().join("lock");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let file =
        rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).context(format!("cannot open {}", path.display()))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => {
            let message = format!("network {name} is up: its control socket {} is in use", run.control().display());
            Err(Error::environment(message).hint(format!("siga net status {name}, or siga net down {name}")))
        }
        Err(error) => Err(error).context(format!("cannot lock {}", path.display())),
    }
}

/// Listens at a path that nobody who lives uses.
fn listen(path: &Path) -> Result<OwnedFd> {
    let socket = bind(path)?;
    net::listen(&socket, 128).context(format!("cannot listen at {}", path.display()))?;
    Ok(socket)
}

/// A socket with a place, on which nobody listens yet.
fn bind(path: &Path) -> Result<OwnedFd> {
    let at = || format!("cannot listen at {}", path.display());
    let address = SocketAddrUnix::new(path).context(at())?;
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error).context(at()),
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).context(at())?;
    net::bind(&socket, &address).context(at())?;
    rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR).context(at())?;
    Ok(socket)
}
