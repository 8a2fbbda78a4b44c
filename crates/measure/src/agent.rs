//! The agent: a process of siga at one end of a measured path. It is the client or the server of a trial.
//!
//! The agent enters its namespaces and announces itself to the coordinator, the process that carries out the run. Then it
//! carries out the coordinator's orders until its standard input ends. The workload driver (the code that generates the load)
//! runs in a separate thread, so that the control channel adds no work to the measured loop. With one process per pair, the
//! agent only passes orders on to its worker processes and combines their answers (`workers`).

pub mod launch;
pub(crate) mod protocol;
pub(crate) mod ssh;
mod workers;

use crate::channel::{Lines, write_outcome};
use crate::clock::now_ns;
use crate::cpu::{Spent, delay, guest::GuestCounters, host::HostCpu, outside::Outside, process};
use crate::limits;
use crate::load::client::{Client, ClientConfig, Phase, PhaseReport};
use crate::load::server::{Server, ServerConfig};
use crate::load::{Shared, UNKNOWN};
use crate::path::{carrier, route};
use crate::place;
use crate::socket::fabric::{Fabric, FabricOptions};
use crate::socket::kernel::{Kernel, KernelOptions};
use crate::socket::sockmap::Sockmap;
use crate::socket::uring::Uring;
use crate::socket::{Sockets, SocketsOf, Waker};
use launch::AgentOptions;
use protocol::{Answer, Order, Report, Tick, VERSION};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::thread::set_current_timer_slack;
use siga_fabric::sockets::Attachment;
use siga_model::error::{Error, IoContext, Result};
use siga_results::histogram;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use workers::Workers;

/// Runs an agent on standard input and output until the input ends.
///
/// # Errors
/// Returns an error if the place cannot be entered, or if the coordinator has ended.
pub fn run(options: &AgentOptions) -> Result<()> {
    let mut output = std::io::stdout();
    let mut agent = match Agent::new(options) {
        Ok(agent) => agent,
        Err(error) => return write_outcome::<Answer>(&mut output, Err(error)),
    };
    let hello = Answer::Hello { version: VERSION, addresses: place::addresses() };
    write_outcome(&mut output, Ok(hello))?;
    if options.unlink {
        leave_with_input()?;
    }
    let mut input = Lines::new(std::io::stdin());
    while let Some(line) = input.next(None)? {
        let order = serde_json::from_str(&line).map_err(|error| {
            Error::usage(format!("the siga process that carries out the run sent an invalid order: {error}"))
        });
        write_outcome(&mut output, order.and_then(|order| agent.obey(order)))?;
    }
    Ok(())
}

/// Starts a thread that ends this process when its standard input is closed, even while a phase runs. This is necessary because
/// over ssh, no signal arrives when the coordinator dies.
fn leave_with_input() -> Result<()> {
    let watch = || {
        let stdin = std::io::stdin();
        let mut input = [PollFd::new(&stdin, PollFlags::RDHUP)];
        while !matches!(poll(&mut input, None), Ok(count) if count > 0) {}
        #[expect(clippy::exit, reason = "the coordinator has gone, so nobody can receive an error")]
        std::process::exit(0);
    };
    std::thread::Builder::new().name("lease".into()).spawn(watch).context("the agent cannot start a thread")?;
    Ok(())
}

/// The agent's current task.
#[derive(Debug)]
enum Work {
    None,
    Client(Box<ClientThread>),
    Server(ServerThread),
    Workers(Workers),
}

#[derive(Debug)]
struct Agent {
    options: AgentOptions,
    sockmap: Option<OwnedFd>,
    /// The attachment to a siga network, if this process is a guest of the network or an application that uses a guest's stack.
    guest: Option<Attachment>,
    work: Work,
    /// The processes of this host that do not belong to the run. `None` until the coordinator asks for the host's counters.
    outside: Option<Outside>,
}

impl Agent {
    fn new(options: &AgentOptions) -> Result<Self> {
        if options.unlink {
            std::fs::remove_file(std::env::current_exe().context("cannot find the program file of this siga process")?)
                .context("cannot remove the copy of siga that this process runs")?;
        }
        place::enter(options.net.as_deref(), options.user.as_deref())?;
        place::die_with_parent()?;
        place::raise_descriptor_limit();
        // In an open loop, the client must start transactions within 1 µs of the planned time. With the default timer slack, a
        // sleep may end 50 µs late.
        set_current_timer_slack(NonZeroU64::new(1)).context("cannot reduce the timer slack of this process")?;
        let sockmap = options.sockmap.map(place::inherited_descriptor).transpose()?;
        Ok(Self { options: options.clone(), sockmap, guest: None, work: Work::None, outside: None })
    }

    fn obey(&mut self, order: Order) -> Result<Answer> {
        match order {
            Order::Serve { config, sockets, processes, pairs, cpus } => {
                place::stay_on(&cpus)?;
                self.serve(config, sockets, processes, pairs)
            }
            Order::Connect { config, sockets, processes, cpus } => {
                place::stay_on(&cpus)?;
                self.connect(config, sockets, processes)
            }
            Order::Spent => self.spent(),
            Order::Host { own, at } => Ok(Answer::Host(Box::new(HostCpu::read_with(&mut self.outside, &own, at)?))),
            Order::Carrier { interfaces } => Ok(Answer::Carrier { losses: carrier::losses(&interfaces)? }),
            Order::Routes { to } => Ok(Answer::Routes { routes: route::routes(&to)?, sysctls: route::sysctls() }),
            order @ (Order::Run { .. } | Order::Finish { .. } | Order::Quiesce { .. } | Order::Resume { .. }) => {
                match &mut self.work {
                    Work::None => Err(Error::usage("the agent has not received a task yet")),
                    Work::Client(client) => client.obey(&order),
                    Work::Server(server) => server.obey(&order),
                    Work::Workers(workers) => workers.obey(&order),
                }
            }
        }
    }

    fn kernel(&self, options: KernelOptions) -> Result<Kernel> {
        let sockmap = match &self.sockmap {
            Some(fd) => Some(Sockmap::from_fd(
                fd.try_clone().context("cannot duplicate the descriptor of the sockmap (a BPF map of sockets)")?,
            )?),
            None => None,
        };
        Kernel::new(options, sockmap).context("cannot create the sockets of the workload")
    }

    /// Makes this process a guest of a siga network, or an application that uses a guest's stack. Returns the sockets of this
    /// stack.
    fn fabric(&mut self, options: &FabricOptions) -> Result<Fabric> {
        let attachment = options.attach()?;
        self.guest = Some(attachment.clone());
        Fabric::new(attachment, options).context("cannot create the sockets of the workload")
    }

    fn serve(&mut self, config: ServerConfig, sockets: SocketsOf, processes: u32, pairs: u32) -> Result<Answer> {
        place::need_descriptors(pairs, processes)?;
        if processes > 1 {
            let mut workers = Workers::start(&self.options, processes)?;
            let answer = workers.serve(&config, &sockets, pairs)?;
            self.work = Work::Workers(workers);
            return Ok(answer);
        }
        let (server, endpoints) = match sockets {
            SocketsOf::Kernel(options) if options.io_uring => {
                ServerThread::start(Uring::new(options).context("cannot create the sockets of the workload")?, config)?
            }
            SocketsOf::Kernel(options) => ServerThread::start(self.kernel(options)?, config)?,
            SocketsOf::Guest(options) => ServerThread::start(self.fabric(&options)?, config)?,
        };
        self.work = Work::Server(server);
        Ok(Answer::Serving { endpoints })
    }

    fn connect(&mut self, config: ClientConfig, sockets: SocketsOf, processes: u32) -> Result<Answer> {
        place::need_descriptors(config.pairs, processes)?;
        if processes > 1 {
            let mut workers = Workers::start(&self.options, processes)?;
            let answer = workers.connect(&config, &sockets)?;
            self.work = Work::Workers(workers);
            return Ok(answer);
        }
        let client = match sockets {
            SocketsOf::Kernel(options) if options.io_uring => {
                ClientThread::start(Uring::new(options).context("cannot create the sockets of the workload")?, config)?
            }
            SocketsOf::Kernel(options) => ClientThread::start(self.kernel(options)?, config)?,
            SocketsOf::Guest(options) => ClientThread::start(self.fabric(&options)?, config)?,
        };
        self.work = Work::Client(Box::new(client));
        Ok(Answer::Connected)
    }

    fn spent(&mut self) -> Result<Answer> {
        let mut process = process::own();
        let mut pids = vec![std::process::id()];
        let mut waited_ns = delay::own();
        let mut of_workers = None;
        if let Work::Workers(workers) = &mut self.work {
            let spent = workers.spent()?;
            process = process.plus(spent.process);
            pids.extend(spent.pids);
            of_workers = spent.guest;
            waited_ns = waited_ns.zip(spent.waited_ns).map(|(own, workers)| own + workers);
        }
        let report =
            self.guest.as_ref().map(Attachment::report).transpose().context("cannot read the guest's report")?;
        let guest = report.map(|parts| GuestCounters::of(&parts)).or(of_workers);
        // The kernel's counters of the network namespace do not include the traffic of a guest. So for a guest, use the
        // counters of its stack.
        let protocol = guest.as_ref().map_or_else(place::protocol_counters, |guest| guest.stack_drops.clone());
        Ok(Answer::Spent(Box::new(Spent { process, pids, waited_ns, protocol, guest })))
    }
}

/// The thread that runs a client's workload driver, and the shared state and channels for communicating with the thread.
#[derive(Debug)]
struct ClientThread {
    shared: Arc<Shared>,
    waker: Arc<dyn Waker>,
    phases: Sender<Phase>,
    reports: Receiver<std::io::Result<PhaseReport>>,
    finished: Option<std::io::Result<PhaseReport>>,
    stream: bool,
}

impl ClientThread {
    fn start<S>(sockets: S, config: ClientConfig) -> Result<Self>
    where
        S: Sockets + Send + 'static,
        S::Socket: Send,
        S::Listener: Send,
    {
        let shared = Arc::new(Shared::default());
        let waker = sockets.waker();
        let (phases, orders) = channel::<Phase>();
        let (answers, reports) = channel();
        let stream = config.workload.is_stream() || config.workload.beside > 0;
        let first = config.endpoints.first().map(ToString::to_string).unwrap_or_default();
        let mut client = Client::new(sockets, config);
        let thread = Arc::clone(&shared);
        let (connects, connected) = channel();
        std::thread::Builder::new()
            .name("client".into())
            .spawn(move || {
                // A ring of io_uring belongs to the thread that uses it first, so this thread connects too.
                let is_connected = client.connect(&thread);
                let failed = is_connected.is_err();
                if connects.send(is_connected).is_err() || failed {
                    return;
                }
                while let Some(phase) = next_phase(&orders, &mut client) {
                    if answers.send(client.phase(phase, &thread)).is_err() {
                        return;
                    }
                }
            })
            .context("cannot start the thread of the workload driver")?;
        let connected = connected
            .recv()
            .map_err(|_| Error::incomplete("the thread of the workload driver has ended unexpectedly"))?;
        connected.context(format!("the client cannot connect to {first}"))?;
        Ok(Self { shared, waker, phases, reports, finished: None, stream })
    }

    fn obey(&mut self, order: &Order) -> Result<Answer> {
        match order {
            Order::Run { phase, interval_ns } => self.run(*phase, *interval_ns),
            Order::Finish { received } => self.finish(received.first().copied().unwrap_or(UNKNOWN)),
            Order::Serve { .. }
            | Order::Connect { .. }
            | Order::Quiesce { .. }
            | Order::Resume { .. }
            | Order::Spent
            | Order::Host { .. }
            | Order::Carrier { .. }
            | Order::Routes { .. } => Err(Error::usage("an agent for a client cannot carry out this order")),
        }
    }

    /// Starts a phase and waits until the client starts no more exchanges. Meanwhile reports the counts after each interval.
    fn run(&mut self, phase: Phase, interval_ns: Option<u64>) -> Result<Answer> {
        let shared = &self.shared;
        shared.expected.store(UNKNOWN, Ordering::Relaxed);
        shared.stopped.store(false, Ordering::Relaxed);
        shared.ending.store(false, Ordering::Relaxed);
        self.finished = None;
        let dead = || Error::incomplete("the thread of the workload driver has ended unexpectedly");
        let before = tick(shared);
        self.phases.send(phase).map_err(|_| dead())?;
        let begin_ns = phase.start_ns.max(now_ns());
        let end_ns = begin_ns.saturating_add(phase.duration_ns);
        let interval_ns = interval_ns.unwrap_or(u64::MAX).max(1);
        let mut due_ns = begin_ns.saturating_add(interval_ns);
        while self.finished.is_none() {
            let until_ns = due_ns.min(end_ns);
            match self.reports.recv_timeout(Duration::from_nanos(until_ns.saturating_sub(now_ns()))) {
                Ok(report) => self.finished = Some(report),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(dead()),
            }
            if self.finished.is_none() && due_ns <= end_ns {
                let at_ns = now_ns().saturating_sub(begin_ns);
                let now = Tick { at_ns, ..since(tick(shared), before) };
                write_outcome(&mut std::io::stdout(), Ok(Answer::Tick(now)))?;
            }
            if until_ns == end_ns {
                break;
            }
            due_ns = due_ns.saturating_add(interval_ns);
        }
        shared.ending.store(true, Ordering::Relaxed);
        let (mut progress, mut pause) = (Progress::new(), Pause::new());
        while self.finished.is_none() && !shared.stopped.load(Ordering::Acquire) {
            self.waker.wake();
            match self.reports.recv_timeout(pause.next()) {
                Ok(report) => self.finished = Some(report),
                Err(RecvTimeoutError::Timeout) => progress.check(shared)?,
                Err(RecvTimeoutError::Disconnected) => return Err(dead()),
            }
        }
        Ok(Answer::Stopped { sent: vec![shared.sent.load(Ordering::Relaxed)] })
    }

    /// Waits until the client has received `received` bytes in total, ends the phase, and returns its report.
    fn finish(&mut self, received: u64) -> Result<Answer> {
        self.shared.expected.store(received, Ordering::Release);
        self.waker.wake();
        let (mut progress, mut pause) = (Progress::new(), Pause::new());
        let report = loop {
            if let Some(report) = self.finished.take() {
                break report;
            }
            match self.reports.recv_timeout(pause.next()) {
                Ok(report) => break report,
                Err(RecvTimeoutError::Timeout) => {
                    self.waker.wake();
                    if self.stream {
                        progress.check(&self.shared)?;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::incomplete("the thread of the workload driver has ended unexpectedly"));
                }
            }
        };
        let report =
            report.map_err(|error| Error::incomplete(format!("the client stopped because of an error: {error}")))?;
        self.shared.give_up.store(false, Ordering::Relaxed);
        Ok(Answer::Report(Box::new(encode(&report)?)))
    }
}

/// Returns the counts of a driver since it began.
fn tick(shared: &Shared) -> Tick {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Tick {
        at_ns: 0,
        transactions: of(&shared.transactions),
        sent: of(&shared.sent),
        received: of(&shared.received),
        lost: of(&shared.lost),
    }
}

/// Returns the counts since `earlier`.
fn since(now: Tick, earlier: Tick) -> Tick {
    Tick {
        at_ns: now.at_ns,
        transactions: now.transactions.saturating_sub(earlier.transactions),
        sent: now.sent.saturating_sub(earlier.sent),
        received: now.received.saturating_sub(earlier.received),
        lost: now.lost.saturating_sub(earlier.lost),
    }
}

/// Waits for the next phase, and meanwhile runs the stack of the client's network. Returns `None` if no phase can follow,
/// because the sender was dropped.
fn next_phase<S: Sockets>(orders: &Receiver<Phase>, client: &mut Client<S>) -> Option<Phase> {
    while let Some(time) = client.tend() {
        match orders.recv_timeout(time) {
            Ok(phase) => return Some(phase),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    orders.recv().ok()
}

/// The time to sleep between two checks of a wait. It starts at 50 µs and doubles up to 5 ms, because many waiting processes
/// would use much CPU time with short sleeps.
struct Pause(Duration);

impl Pause {
    fn new() -> Self {
        Self(Duration::from_micros(50))
    }

    fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(Duration::from_millis(5));
        pause
    }
}

/// Watches the byte counts of a driver, and ends a phase in which they no longer change.
struct Progress {
    last: (u64, u64),
    since: Instant,
}

impl Progress {
    fn new() -> Self {
        Self { last: (0, 0), since: Instant::now() }
    }

    /// Returns the time since a call of this function last saw a change of the byte counts.
    fn stalled(&mut self, shared: &Shared) -> Duration {
        let moved = (shared.sent.load(Ordering::Relaxed), shared.received.load(Ordering::Relaxed));
        if moved != self.last {
            (self.last, self.since) = (moved, Instant::now());
        }
        self.since.elapsed()
    }

    /// After half of `STALL_TIME_MAX` without progress, orders the driver to give up; the caller must wake the driver so that
    /// it notices. After the full `STALL_TIME_MAX`, returns an error.
    fn check(&mut self, shared: &Shared) -> Result<()> {
        let stalled = self.stalled(shared);
        if stalled > limits::STALL_TIME_MAX {
            return Err(Error::incomplete("the other end of the measured path has stopped answering"));
        }
        if stalled > limits::STALL_TIME_MAX / 2 {
            shared.give_up.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn encode(report: &PhaseReport) -> Result<Report> {
    Ok(Report {
        start_ns: report.start_ns,
        end_ns: report.end_ns,
        counts: report.counts,
        latency: histogram::encode(&report.latency)?,
        corrected: report.corrected.as_ref().map(histogram::encode).transpose()?,
        slices: report.slices.to_vec(),
        pair_least: report.pair_units.0,
        pair_most: report.pair_units.1,
        pair_sums: report.pair_sums,
        beside: report.beside,
        jitter: report.jitter,
    })
}

/// The thread that runs a server's workload driver, and the state shared with that thread.
#[derive(Debug)]
struct ServerThread {
    shared: Arc<Shared>,
    stride: Arc<AtomicU64>,
    waker: Arc<dyn Waker>,
    failure: Arc<Mutex<Option<String>>>,
}

impl ServerThread {
    fn start<S>(sockets: S, config: ServerConfig) -> Result<(Self, Vec<crate::socket::Endpoint>)>
    where
        S: Sockets + Send + 'static,
        S::Socket: Send,
        S::Listener: Send,
    {
        let place = config.endpoint.clone();
        let (mut server, endpoint) = Server::listen(sockets, config).map_err(|error| {
            Error::environment(format!("cannot listen on {place}: {error}"))
                .hint("choose another port with --port, or omit --port to use any free port")
        })?;
        let endpoints = [endpoint].into_iter().chain(server.beside().cloned()).collect();
        let shared = Arc::new(Shared::default());
        let stride = Arc::new(AtomicU64::new(limits::STAMP_STRIDE_BYTES));
        let failure = Arc::new(Mutex::new(None));
        let waker = server.waker();
        let thread = (Arc::clone(&shared), Arc::clone(&stride), Arc::clone(&failure));
        std::thread::Builder::new()
            .name("server".into())
            .spawn(move || {
                let (shared, stride, failure) = thread;
                if let Err(error) = server.serve(&shared, &stride) {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                }
            })
            .context("cannot start the thread of the workload driver")?;
        Ok((Self { shared, stride, waker, failure }, endpoints))
    }

    fn obey(&mut self, order: &Order) -> Result<Answer> {
        match order {
            Order::Quiesce { received } => self.quiesce(received.first().copied().unwrap_or(0)),
            Order::Resume { stride } => {
                self.stride.store(*stride, Ordering::Relaxed);
                self.until("does not continue after a pause", || {
                    self.shared.go_on(limits::WAIT_TIME_MAX).then_some(Answer::Resumed)
                })
            }
            Order::Serve { .. }
            | Order::Connect { .. }
            | Order::Run { .. }
            | Order::Finish { .. }
            | Order::Spent
            | Order::Host { .. }
            | Order::Carrier { .. }
            | Order::Routes { .. } => Err(Error::usage("an agent for a server cannot carry out this order")),
        }
    }

    /// Waits until the server has received `received` bytes in total, or until no byte has moved for a quarter of
    /// `STALL_TIME_MAX`. Then stops the driver between two operations.
    fn quiesce(&mut self, received: u64) -> Result<Answer> {
        self.shared.ending.store(true, Ordering::Relaxed);
        let (mut progress, mut pause) = (Progress::new(), Pause::new());
        while self.shared.received.load(Ordering::Relaxed) < received
            && progress.stalled(&self.shared) < limits::STALL_TIME_MAX / 4
        {
            self.check()?;
            std::thread::sleep(pause.next());
        }
        self.until("does not stop sending", || {
            let account = self.shared.quiesce(&*self.waker, limits::WAIT_TIME_MAX)?;
            Some(Answer::Quiesced { accounts: vec![account] })
        })
    }

    /// Repeats `attempt` until it returns an answer. Returns an error if the driver has failed, or if no attempt succeeds
    /// within `STALL_TIME_MAX`.
    fn until(&self, failure: &str, mut attempt: impl FnMut() -> Option<Answer>) -> Result<Answer> {
        let begun = Instant::now();
        loop {
            if let Some(answer) = attempt() {
                return Ok(answer);
            }
            self.check()?;
            if begun.elapsed() > limits::STALL_TIME_MAX {
                return Err(Error::incomplete(format!("the server {failure}")));
            }
        }
    }

    fn check(&self) -> Result<()> {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(error) => Err(Error::incomplete(format!("the server stopped because of an error: {error}"))),
            None => Ok(()),
        }
    }
}
