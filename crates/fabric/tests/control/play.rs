//! A control program in this process, its honest guests, and hostile guests that act by an input.
//!
//! The topology has two hostile guests, one external and one that the control program starts, and three honest ones: `witness` and
//! `partner`, external and joined by a pair, and `victim`, which the control program starts, with an application. A client waits for the
//! outcome of a ping that `victim` sends. No message of the hostile guests may change any of this: [`World::play`] panics if it does.

use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, pidfd_send_signal};
use siga_fabric::control::Control;
use siga_fabric::isolate::launch::{Launcher, Process};
use siga_fabric::protocol::channel::{Channel, Ended};
use siga_fabric::protocol::message::{Buffers, GuestEvent, Loss, MemberId, Order, PROTOCOL, RingPairEnd};
use siga_fabric::protocol::report::{ApplicationReport, DeviceReport, LinkReport, ReportPart, StackReport};
use siga_fabric::protocol::request::{Answer, GuestState, GuestStatus, Moment, Request, TimedRequest};
use siga_fabric::protocol::secret::Secret;
use siga_fabric::protocol::ticket::ApplicationId;
use siga_fabric::protocol::ticket::RingPairId;
use siga_fabric::protocol::ticket::Ticket;
use siga_model::error::Error;
use siga_model::name::Name;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

const NETWORK: &str = "play";

const TOPOLOGY: &str = r#"
[network.lan]
type = "hipersockets"
frame = "16K"
[guest.hostile]
external = true
device = [{ network = "lan", addresses = ["10.0.0.1/24"], buffer_count = 8 }]
[guest.inner]
device = [{ network = "lan", addresses = ["10.0.0.2/24"], buffer_count = 8 }]
[guest.witness]
external = true
device = [{ network = "lan", addresses = ["10.0.0.3/24"], buffer_count = 8 }]
[guest.partner]
external = true
device = [{ network = "lan", addresses = ["10.0.0.4/24"], buffer_count = 8 }]
[guest.victim]
device = [{ network = "lan", addresses = ["10.0.0.5/24"], buffer_count = 8 }]
"#;

const GUESTS: [&str; 5] = ["hostile", "inner", "witness", "partner", "victim"];

/// How long anything that is to happen may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What `victim` reports of its stack.
const MARK: u64 = 4_711;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn member(guest: &str) -> MemberId {
    MemberId { guest: name(guest), device: name("dev0") }
}

fn memory_file() -> OwnedFd {
    rustix::fs::memfd_create("play", MemfdFlags::CLOEXEC).expect("memory")
}

/// Guests that were started.
#[derive(Debug, Default)]
struct Starts {
    /// The channels of those that the test has not met yet, with the numbers of their processes.
    new: Vec<(OwnedFd, Pid)>,
    /// All processes, which do nothing.
    processes: Vec<OwnedFd>,
}

impl Starts {
    /// Ends all processes: a control program that is dropped leaves them.
    fn end(&mut self) {
        self.new.clear();
        for process in self.processes.drain(..) {
            // It may have ended.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

type Started = Rc<RefCell<Starts>>;

/// Starts processes that do nothing; the test speaks for them.
#[derive(Debug)]
struct Puppets(Started);

impl Launcher for Puppets {
    fn start(&self, _: &[&str], channel: OwnedFd, _: OwnedFd) -> siga_model::error::Result<Process> {
        let mut command = Command::new("sleep");
        let child = command.arg("600").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = Process::watch(child.expect("the program `sleep`"))?;
        let mut starts = self.0.borrow_mut();
        starts.processes.push(process.pidfd().try_clone_to_owned().expect("a descriptor"));
        starts.new.push((channel, process.pid()));
        Ok(process)
    }
}

/// A guest that the test speaks for.
#[derive(Debug)]
struct Guest {
    channel: Channel,
    /// Its own socket, where a successor finds it, if it is external.
    listener: Option<OwnedFd>,
    runs: bool,
    pairs: BTreeMap<RingPairId, RingPairEnd>,
    applications: Vec<ApplicationId>,
    pings: Vec<u64>,
    /// The control program ended its channel.
    has_ended: bool,
}

impl Guest {
    fn new(channel: Channel) -> Self {
        let (pairs, applications, pings) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { channel, listener: None, runs: false, pairs, applications, pings, has_ended: false }
    }

    fn say(&mut self, news: &GuestEvent, descriptors: Vec<OwnedFd>) {
        // A message that is too long to be sent, or a channel that has ended, is no concern of the author's.
        let _ = self.channel.send(news, descriptors);
    }

    /// The orders that have come.
    fn orders(&mut self) -> Vec<(Order, Vec<OwnedFd>)> {
        let mut orders = Vec::new();
        loop {
            match self.channel.receive::<Order>() {
                Ok(Some(order)) => orders.push(order),
                Ok(None) => return orders,
                Err(Ended::Closed) => {
                    self.has_ended = true;
                    return orders;
                }
                Err(Ended::Malformed(what)) => {
                    panic!("the control program sent something that is not an order: {what}")
                }
            }
        }
    }

    /// Listens for a successor of the control program, if the guest is external. A guest that the control program starts must not be
    /// found in this process: it is ended by a signal.
    fn listen(&mut self, own: &Name, listener: Option<OwnedFd>) {
        let listener = listener.expect("a listener");
        if !["inner", "victim"].contains(&own.as_str()) {
            rustix::net::listen(&listener, 4).expect("a listener");
            self.listener = Some(listener);
        }
    }

    /// Obeys as an honest guest does.
    fn obey(&mut self, order: Order, mut descriptors: Vec<OwnedFd>) {
        match order {
            Order::Configure(config) => self.listen(&config.name, descriptors.pop()),
            Order::Run => {
                self.runs = true;
                self.say(&GuestEvent::Ready { confinement: "honest".to_owned() }, Vec::new());
            }
            Order::MakePair(held) => {
                assert_eq!(descriptors.len(), 3);
                self.say(&GuestEvent::Memory { pair: held.pair }, vec![memory_file()]);
                self.pairs.insert(held.pair, held);
            }
            Order::PeerMemory { pair } => self.say(&GuestEvent::Linked { pair }, Vec::new()),
            Order::Quiesce { pair } => self.say(&GuestEvent::Quiet { pair }, Vec::new()),
            Order::Unpair { pair, .. } => _ = self.pairs.remove(&pair),
            Order::Application { application, .. } => {
                self.applications.push(application);
                self.say(&GuestEvent::ApplicationMemory { application }, vec![memory_file(), memory_file()]);
            }
            Order::Report { request } => {
                let stack = StackReport { connections: MARK, ..StackReport::default() };
                self.say(&GuestEvent::Report { request, part: ReportPart::Stack(stack) }, Vec::new());
            }
            Order::Ping { request, .. } => self.pings.push(request),
            Order::Refused { .. }
            | Order::Stderr
            | Order::Member { .. }
            | Order::MemberGone { .. }
            | Order::ApplicationMemory { .. } => {}
            Order::Capture { .. } | Order::CaptureStop | Order::Adopt { .. } | Order::Stop => {
                panic!("an honest guest was ordered to {order:?}")
            }
        }
    }

    fn pair_with(&self, partner: &str) -> Option<&RingPairEnd> {
        self.pairs.values().find(|held| held.member == member(partner))
    }
}

/// A connection of the command line or of an application.
#[derive(Debug)]
struct Client(Channel);

impl Client {
    fn ask(&mut self, request: Request, descriptors: Vec<OwnedFd>) {
        let until = Moment::now().after(PATIENCE);
        self.0.send(&TimedRequest { request, until }, descriptors).expect("a connection");
    }

    /// The next answer that has come.
    fn answer(&mut self) -> Option<Answer> {
        match self.0.receive::<Answer>() {
            Ok(Some((Answer::TakenUp, _))) => self.answer(),
            Ok(answer) => answer.map(|(answer, _)| answer),
            Err(ended) => panic!("a client's connection ended: {ended:?}"),
        }
    }
}

/// The numbers that an input is.
struct Draw<'a>(&'a [u8]);

impl Draw<'_> {
    fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// A number below `bound`, which is at most 256; zeroes once the input is used up.
    fn below(&mut self, bound: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % bound
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// Plays an input in a network of its own, with a succession in the end.
#[allow(dead_code, reason = "a fuzzer begins here")]
pub(crate) fn control(input: &[u8]) {
    let mut world = World::new();
    world.play(input);
    world.succeed(input);
}

/// A network with a control program in this process.
#[derive(Debug)]
pub(crate) struct World {
    base: tempfile::TempDir,
    control: Option<Control>,
    started: Started,
    /// Honest guests by their names; `victim` is the one that the control program started.
    honest: BTreeMap<&'static str, Guest>,
    hostile: Option<Guest>,
    inner: Option<Guest>,
    victim: Pid,
    admin: Client,
    application: Client,
    pinger: Client,
    /// Tickets that the hostile guests have seen or guessed.
    pairs: Vec<RingPairId>,
    secrets: BTreeMap<&'static str, Secret>,
}

impl World {
    /// A network that is up.
    pub(crate) fn new() -> Self {
        let base = tempfile::tempdir().expect("a directory");
        let started = Started::default();
        let control = begin(&base, &started);
        let path = base.path().join("run").join(NETWORK).join("control");
        let connect = || Client(connect(&path));
        let (admin, application, pinger) = (connect(), connect(), connect());
        let mut world = Self {
            base,
            control: Some(control),
            started,
            honest: BTreeMap::new(),
            hostile: None,
            inner: None,
            victim: Pid::INIT,
            admin,
            application,
            pinger,
            pairs: Vec::new(),
            secrets: BTreeMap::new(),
        };
        world.meet_started();
        for guest in ["hostile", "witness", "partner"] {
            let Some(Answer::Secret(secret)) =
                world.asks(Request::Secret { guest: name(guest), application: false }).into_iter().next()
            else {
                panic!("no secret")
            };
            world.secrets.insert(guest, secret);
        }
        for guest in ["witness", "partner"] {
            let attached = world.attach(guest);
            world.honest.insert(guest, attached);
        }
        world.until("the honest guests run", |world| world.honest.values().all(|guest| guest.runs));
        world.join_witnesses();
        world.begin_application();
        world.pinger.ask(ping("victim"), Vec::new());
        world.until("the ping", |world| !world.honest["victim"].pings.is_empty());
        world
    }

    fn control(&mut self) -> &mut Control {
        self.control.as_mut().expect("a control program")
    }

    /// Lets the control program take up all that has come, and the honest guests obey.
    fn turn(&mut self) {
        for _ in 0..3 {
            assert!(self.control().turn(Some(Duration::ZERO)), "the network is down");
            for guest in self.honest.values_mut() {
                for (order, descriptors) in guest.orders() {
                    guest.obey(order, descriptors);
                }
            }
        }
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < end, "it does not come: {what}");
            self.turn();
        }
    }

    /// All answers to a request of the administrator's but the last.
    fn asks(&mut self, request: Request) -> Vec<Answer> {
        self.admin.ask(request, Vec::new());
        self.answers()
    }

    fn answers(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "the administrator has no answer");
            self.turn();
            while let Some(answer) = self.admin.answer() {
                match answer {
                    Answer::Done => return answers,
                    Answer::Failed(error) => panic!("the administrator's request failed: {error}"),
                    other => answers.push(other),
                }
            }
        }
    }

    /// Takes over the guests that the control program has started.
    fn meet_started(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.started.borrow().new.len() < 2 {
            assert!(Instant::now() < end, "the guests are not started");
            self.turn();
        }
        let mut started = std::mem::take(&mut self.started.borrow_mut().new).into_iter();
        let mut next =
            || started.next().map(|(channel, pid)| (Guest::new(Channel::new(channel).expect("a channel")), pid));
        // The control program starts them by their names.
        let ((mut inner, _), (mut victim, pid)) = next().zip(next()).expect("two guests");
        for guest in [&mut inner, &mut victim] {
            guest.say(&GuestEvent::Hello { protocol: PROTOCOL, version: "play".to_owned() }, Vec::new());
        }
        self.victim = pid;
        self.inner = Some(inner);
        self.honest.insert("victim", victim);
        self.until("the victim runs", |world| world.honest["victim"].runs);
        self.obey_as("inner");
    }

    /// Has a hostile guest behave so far that it runs.
    fn obey_as(&mut self, guest: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "a hostile guest does not come up");
            self.turn();
            let Some(hostile) = self.slot(guest) else { return };
            for (order, descriptors) in hostile.orders() {
                hostile.obey(order, descriptors);
            }
            if hostile.runs || hostile.has_ended {
                break;
            }
        }
        self.turn();
    }

    fn slot(&mut self, guest: &str) -> Option<&mut Guest> {
        if guest == "inner" { self.inner.as_mut() } else { self.hostile.as_mut() }
    }

    /// An external guest, as far as its attachment. It waits until its former process is known to be gone.
    fn attach(&mut self, guest: &'static str) -> Guest {
        let path = self.base.path().join("run").join(NETWORK).join("control");
        let end = Instant::now() + PATIENCE;
        loop {
            let mut client = Client(connect(&path));
            let (secret, version) = (self.secrets[guest].clone(), "play".to_owned());
            client.ask(Request::Attach { protocol: PROTOCOL, version, guest: name(guest), secret }, Vec::new());
            let answer = loop {
                assert!(Instant::now() < end, "{guest} is not attached");
                self.turn();
                if let Some(answer) = client.answer() {
                    break answer;
                }
            };
            if matches!(answer, Answer::Welcome) {
                return Guest::new(client.0);
            }
        }
    }

    fn join_witnesses(&mut self) {
        let couple = GuestEvent::Couple { device: name("dev0"), member: member("partner") };
        self.honest.get_mut("witness").expect("a witness").say(&couple, Vec::new());
        let joined = |world: &Self, one, other| world.honest[one].pair_with(other).is_some();
        self.until("the pair", |world| joined(world, "witness", "partner") && joined(world, "partner", "witness"));
        self.turn();
    }

    fn begin_application(&mut self) {
        let Some(Answer::Secret(secret)) =
            self.asks(Request::Secret { guest: name("victim"), application: true }).into_iter().next()
        else {
            panic!("no secret")
        };
        let version = "play".to_owned();
        self.application
            .ask(Request::Application { protocol: PROTOCOL, version, guest: name("victim"), secret }, Vec::new());
        self.until("the application", |world| !world.honest["victim"].applications.is_empty());
        self.application.ask(Request::ApplicationMemory, vec![memory_file(), memory_file()]);
        self.turn();
        let mut answers = Vec::new();
        answers.extend(std::iter::from_fn(|| self.application.answer()));
        assert!(matches!(answers[..], [Answer::Application { .. }, Answer::ApplicationMemory]), "{answers:?}");
    }

    /// Has the hostile guests do what the input says, and checks that nothing of the others has changed.
    ///
    /// # Panics
    /// Something has.
    pub(crate) fn play(&mut self, input: &[u8]) {
        let mut draw = Draw(input);
        let before = (self.standing_pair(), self.honest["victim"].applications.clone());
        while !draw.is_over() {
            let guest = draw.one_of(&["hostile", "inner"]);
            self.bring_up(guest, &mut draw);
            for _ in 0..=draw.below(12) {
                self.act(guest, &mut draw);
            }
            self.turn();
            self.look_at_orders(guest);
        }
        assert_eq!(before, (self.standing_pair(), self.honest["victim"].applications.clone()), "honest guests' own");
        for (name, guest) in &self.honest {
            assert!(!guest.has_ended, "{name} was ended");
        }
        self.check_report(&mut draw);
        self.check_status();
        assert!(self.pinger.answer().is_none(), "the ping is another guest's to answer");
        assert!(self.application.answer().is_none(), "the application was told something");
        self.pairs.truncate(64);
    }

    /// Takes over an instance of the control program's kind: the former one dies, and a successor finds the external guests again.
    pub(crate) fn succeed(&mut self, input: &[u8]) {
        let mut draw = Draw(input);
        self.control = None;
        self.started.borrow_mut().end();
        self.inner = None;
        self.honest.remove("victim");
        self.control = Some(begin(&self.base, &self.started));
        let path = self.base.path().join("run").join(NETWORK).join("control");
        (self.admin, self.application, self.pinger) =
            (Client(connect(&path)), Client(connect(&path)), Client(connect(&path)));
        for guest in self.honest.values_mut() {
            guest.channel = adopted(guest);
        }
        if let Some(hostile) = self.hostile.as_mut().filter(|hostile| hostile.listener.is_some()) {
            hostile.channel = adopted(hostile);
            for _ in 0..draw.below(8) {
                self.act("hostile", &mut draw);
            }
        }
        for guest in self.honest.values_mut() {
            let (pairs, confinement) = (guest.pairs.values().cloned().collect(), "honest".to_owned());
            guest.say(&GuestEvent::Inventory { confinement, pairs, applications: Vec::new(), last: true }, Vec::new());
        }
        self.meet_started();
        self.begin_application();
        self.pinger.ask(ping("victim"), Vec::new());
        self.until("the ping", |world| !world.honest["victim"].pings.is_empty());
        assert!(self.standing_pair().is_some(), "the pair of the honest guests outlives the control program");
        self.check_status();
    }

    fn standing_pair(&self) -> Option<RingPairEnd> {
        self.honest["witness"].pair_with("partner").cloned()
    }

    /// Brings a hostile guest up if it is not there, mostly so far that it runs.
    fn bring_up(&mut self, guest: &'static str, draw: &mut Draw<'_>) {
        if self.slot(guest).is_some_and(|guest| !guest.has_ended) {
            return;
        }
        if guest == "hostile" {
            self.hostile = Some(self.attach("hostile"));
        } else {
            // It is started again later and later; the administrator need not wait.
            let channel = self.start_inner();
            self.inner = Some(Guest::new(channel));
            if draw.below(4) > 0
                && let Some(inner) = &mut self.inner
            {
                inner.say(&GuestEvent::Hello { protocol: PROTOCOL, version: String::new() }, Vec::new());
            }
        }
        if draw.below(4) > 0 {
            self.turn();
            let Some(hostile) = self.slot(guest) else { return };
            for (order, descriptors) in hostile.orders() {
                hostile.obey(order, descriptors);
            }
        }
    }

    fn start_inner(&mut self) -> Channel {
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "the hostile guest is not started again");
            if let Some((channel, _)) = self.started.borrow_mut().new.pop() {
                return Channel::new(channel).expect("a channel");
            }
            self.admin.ask(Request::StartGuest(name("inner")), Vec::new());
            self.turn();
            // Its start is not waited for: another connection asks next.
            let path = self.base.path().join("run").join(NETWORK).join("control");
            self.admin = Client(connect(&path));
        }
    }

    /// A message, or something else that a guest can do.
    fn act(&mut self, guest: &str, draw: &mut Draw<'_>) {
        let news = match draw.below(32) {
            28 => return self.junk(guest, draw),
            29 => return self.turn(),
            30 => {
                // It dies.
                if guest == "hostile" {
                    self.hostile = None;
                    self.turn();
                }
                return;
            }
            31 => {
                // It obeys for once.
                if let Some(hostile) = self.slot(guest) {
                    for (order, descriptors) in hostile.orders() {
                        hostile.obey(order, descriptors);
                    }
                }
                return;
            }
            kind => self.news(kind, draw),
        };
        let honest_count = match &news {
            GuestEvent::Memory { .. } => 1,
            GuestEvent::ApplicationMemory { .. } => 2,
            _ => 0,
        };
        let count = if draw.below(16) == 0 { draw.below(5) } else { honest_count };
        let descriptors = (0..count).map(|_| memory_file()).collect();
        if let Some(hostile) = self.slot(guest) {
            hostile.say(&news, descriptors);
        }
    }

    /// A packet that is no message.
    fn junk(&mut self, guest: &str, draw: &mut Draw<'_>) {
        let junk = draw.one_of(&["what is no news", "", "{}", "[[[[[[[[[["]);
        if let Some(hostile) = self.slot(guest) {
            let _ = hostile.channel.send(&junk, Vec::new());
        }
    }

    fn news(&self, kind: usize, draw: &mut Draw<'_>) -> GuestEvent {
        match kind {
            0 => GuestEvent::Hello { protocol: draw.one_of(&[PROTOCOL, 0, u32::MAX]), version: text(draw) },
            1 | 2 => GuestEvent::Ready { confinement: text(draw) },
            3 => GuestEvent::Failed(Error::usage(text(draw)).hint(text(draw))),
            4 | 5 => {
                let pairs = (0..draw.below(80)).map(|_| self.held(draw)).collect();
                let applications = (0..draw.below(4)).map(|_| self.application_ticket(draw)).collect();
                GuestEvent::Inventory { confinement: text(draw), pairs, applications, last: draw.below(2) == 0 }
            }
            6..=10 => GuestEvent::Couple { device: self.device(draw), member: self.member(draw) },
            11..=13 => GuestEvent::Memory { pair: self.pair(draw) },
            14 => GuestEvent::ApplicationMemory { application: self.application_ticket(draw) },
            15 => GuestEvent::ApplicationEnded { application: self.application_ticket(draw), why: loss(draw) },
            16 | 17 => GuestEvent::Linked { pair: self.pair(draw) },
            18 | 19 => GuestEvent::Idle { pair: self.pair(draw) },
            20 | 21 => GuestEvent::Quiet { pair: self.pair(draw) },
            22 | 23 => GuestEvent::Lost { pair: self.pair(draw), why: loss(draw) },
            24 | 25 => GuestEvent::Report { request: number(draw), part: self.part(draw) },
            26 => GuestEvent::Pong { request: number(draw), time_ns: draw.one_of(&[None, Some(0), Some(u64::MAX)]) },
            _ => GuestEvent::CaptureEnded { missed: number(draw) },
        }
    }

    /// A ticket of its own, of others, or invented.
    fn pair(&self, draw: &mut Draw<'_>) -> RingPairId {
        let own = [&self.hostile, &self.inner].into_iter().flatten().flat_map(|guest| guest.pairs.keys().copied());
        let others = self.honest.values().flat_map(|guest| guest.pairs.keys().copied());
        let mut all: Vec<RingPairId> = own.chain(others).chain(self.pairs.iter().copied()).collect();
        all.extend([0, 1, 2, u64::MAX].map(|number| RingPairId(Ticket::claimed(number, [0; 2]))));
        draw.one_of(&all[..all.len().min(200)])
    }

    fn application_ticket(&self, draw: &mut Draw<'_>) -> ApplicationId {
        let mut all = self.honest.get("victim").map_or_else(Vec::new, |victim| victim.applications.clone());
        all.extend([0, 1, 2, u64::MAX].map(|number| ApplicationId(Ticket::claimed(number, [0; 2]))));
        draw.one_of(&all)
    }

    fn held(&self, draw: &mut Draw<'_>) -> RingPairEnd {
        let buffers = |draw: &mut Draw<'_>| {
            let (bytes, count) = (draw.one_of(&[16 << 10, 0, u32::MAX]), draw.one_of(&[8, 0, u16::MAX]));
            Buffers { bytes, count }
        };
        let standing = self.standing_pair().filter(|_| draw.below(2) == 0);
        standing.unwrap_or_else(|| RingPairEnd {
            pair: self.pair(draw),
            asked: draw.below(2) == 0,
            device: self.device(draw),
            member: self.member(draw),
            inbound: buffers(draw),
            outbound: buffers(draw),
        })
    }

    fn device(&self, draw: &mut Draw<'_>) -> Name {
        name(&draw.one_of(&["dev0".to_owned(), "dev0".to_owned(), "dev1".to_owned(), "x".repeat(32)]))
    }

    fn member(&self, draw: &mut Draw<'_>) -> MemberId {
        let guest = draw.one_of(&GUESTS);
        MemberId { guest: name(guest), device: self.device(draw) }
    }

    fn part(&self, draw: &mut Draw<'_>) -> ReportPart {
        let mut counters: BTreeMap<String, u64> = (0..draw.below(40)).map(|at| (at.to_string(), u64::MAX)).collect();
        counters.insert(text(draw), 1);
        match draw.below(4) {
            0 => {
                let device = self.a_device(draw);
                ReportPart::Device(DeviceReport { device, counters })
            }
            1 => ReportPart::Link(LinkReport {
                device: self.device(draw),
                member: self.member(draw),
                pair: None,
                counters,
            }),
            2 => ReportPart::Application(ApplicationReport {
                application: Some(number(draw)),
                sockets: u64::MAX,
                free_bytes: 0,
                counters: counters.clone(),
                times_ns: counters,
            }),
            _ => ReportPart::Stack(StackReport { drops: counters, ..StackReport::default() }),
        }
    }

    /// A device, with more addresses than any has.
    fn a_device(&self, draw: &mut Draw<'_>) -> siga_fabric::protocol::message::GuestDevice {
        let addresses: Vec<_> = (0..draw.below(256)).map(|_| "10.0.0.9/24".parse().expect("an address")).collect();
        siga_fabric::protocol::message::GuestDevice {
            name: self.device(draw),
            network: name("lan"),
            kind: siga_model::topology::NetworkKind::Hipersockets { frame: 16 << 10 },
            addresses,
            mtu: 8 << 10,
            buffer_count: 8,
            full: siga_model::topology::Full::Drop,
            features: siga_model::features::DriverFeatures::default(),
            idle_seconds: 60,
        }
    }

    /// A hostile guest is given nothing but what is about itself.
    fn look_at_orders(&mut self, guest: &'static str) {
        let Some(hostile) = self.slot(guest) else { return };
        let mut seen = Vec::new();
        for (order, descriptors) in hostile.orders() {
            let expected = match &order {
                Order::Configure(config) => {
                    assert_eq!(config.name.as_str(), guest);
                    hostile.listen(&config.name, descriptors.into_iter().next());
                    continue;
                }
                Order::MakePair(held) => {
                    seen.push(held.pair);
                    hostile.pairs.insert(held.pair, held.clone());
                    3
                }
                Order::PeerMemory { pair } => {
                    assert!(hostile.pairs.contains_key(pair), "memory of others' pair: {order:?}");
                    1
                }
                Order::Application { .. } | Order::ApplicationMemory { .. } => {
                    panic!("a hostile guest was given others' application: {order:?}")
                }
                Order::Unpair { pair, .. } => {
                    hostile.pairs.remove(pair);
                    0
                }
                Order::Stderr => 1,
                _ => 0,
            };
            assert_eq!(descriptors.len(), expected, "{order:?}");
        }
        self.pairs.splice(0..0, seen);
    }

    /// A report of `victim` is what `victim` says, while the hostile guests say that it is theirs to give.
    fn check_report(&mut self, draw: &mut Draw<'_>) {
        self.admin.ask(Request::Report(name("victim")), Vec::new());
        // The control program has asked; the hostile guests answer first.
        assert!(self.control().turn(Some(Duration::ZERO)));
        for guest in ["hostile", "inner"] {
            let part = self.part(draw);
            if let Some(hostile) = self.slot(guest).filter(|hostile| hostile.runs) {
                for request in 0..8 {
                    hostile.say(&GuestEvent::Report { request, part: part.clone() }, Vec::new());
                    hostile.say(&GuestEvent::Pong { request, time_ns: Some(1) }, Vec::new());
                }
            }
        }
        assert!(self.control().turn(Some(Duration::ZERO)));
        let answers = self.answers();
        let [Answer::Report { guest, part: ReportPart::Stack(stack) }] = &answers[..] else { panic!("{answers:?}") };
        assert!(guest.as_str() == "victim" && stack.connections == MARK && stack.drops.is_empty(), "{answers:?}");
    }

    fn check_status(&mut self) {
        let answers = self.asks(Request::Status { detail: false });
        let status = |wanted: &str| {
            let of = |answer: &Answer| match answer {
                Answer::Guest(guest) if guest.name.as_str() == wanted => Some(guest.clone()),
                _ => None,
            };
            answers.iter().find_map(of).expect("a guest's status")
        };
        for guest in ["witness", "partner", "victim"] {
            let GuestStatus { state, restarts, pairs, .. } = status(guest);
            assert_eq!((state, restarts), (GuestState::Running, 0), "{guest}");
            assert!(guest == "victim" || pairs > 0, "{guest} has no pair");
        }
        assert_eq!(status("victim").pid, Some(self.victim.as_raw_nonzero().get().unsigned_abs()));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log =
                std::fs::read_to_string(self.base.path().join("run").join(NETWORK).join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("the log ends with:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        }
        // All guests leave, and the network is taken down, so that nothing of it is left.
        self.honest.clear();
        (self.hostile, self.inner) = (None, None);
        let Some(mut control) = self.control.take() else { return };
        let until = Moment::now().after(PATIENCE);
        let _ = self.admin.0.send(&TimedRequest { request: Request::Down, until }, Vec::new());
        let end = Instant::now() + PATIENCE;
        while control.turn(Some(Duration::from_millis(10))) && Instant::now() < end {}
        self.started.borrow_mut().end();
    }
}

fn begin(base: &tempfile::TempDir, started: &Started) -> Control {
    let end = Instant::now() + PATIENCE;
    loop {
        let launcher = Box::new(Puppets(Rc::clone(started)));
        match Control::begin(&base.path().join("run"), name(NETWORK), TOPOLOGY.to_owned(), launcher) {
            Ok(control) => return control,
            // A process that another thread is starting has the lock of the former one until it executes its program.
            Err(error) => assert!(Instant::now() < end, "a control program: {error}"),
        }
    }
}

fn connect(path: &PathBuf) -> Channel {
    let address = SocketAddrUnix::new(path).expect("a short path");
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    rustix::net::connect(&socket, &address).expect("a control program");
    Channel::new(socket).expect("a channel")
}

/// The channel to the control program that has found a guest.
fn adopted(guest: &Guest) -> Channel {
    let listener = guest.listener.as_ref().expect("a listener");
    let socket = rustix::net::accept_with(listener, SocketFlags::CLOEXEC).expect("a successor");
    let mut channel = Channel::new(socket).expect("a channel");
    let (order, _) = channel.receive::<Order>().expect("a channel").expect("an order");
    assert!(matches!(order, Order::Adopt { .. }), "{order:?}");
    channel
}

fn ping(guest: &str) -> Request {
    let to = [10, 0, 0, 99].into();
    Request::Ping { guest: name(guest), to, bytes: 56, timeout_ms: 3_600_000 }
}

/// Mostly short, at times as long as a message can be.
fn text(draw: &mut Draw<'_>) -> String {
    // An input that is used up draws zeroes.
    match draw.below(256) {
        253 if draw.below(4) == 3 => "x".repeat(130_000),
        254 => "\u{1f980}\n\u{1b}[2J".repeat(2_000),
        255 => "y".repeat(1_025),
        _ => String::new(),
    }
}

fn number(draw: &mut Draw<'_>) -> u64 {
    draw.one_of(&[0, 1, 2, 3, 4, 5, 6, 7, u64::MAX])
}

fn loss(draw: &mut Draw<'_>) -> Loss {
    let text = text(draw);
    draw.one_of(&[Loss::PeerGone, Loss::Violation(text.clone()), Loss::Failed(text)])
}
