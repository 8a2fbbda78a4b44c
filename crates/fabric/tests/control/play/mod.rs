//! A control program in this process, its honest guests, and hostile guests that act by an input.
//!
//! The topology has two hostile guests, one external and one that the control program starts, and three honest ones: `witness` and
//! `partner`, external and joined by a pair, and `victim`, which the control program starts, with an application. A client waits for the
//! outcome of a ping that `victim` sends. No message of the hostile guests may change any of this: [`World::play`] panics if it does.

mod guest;
mod input;

use guest::{Client, Guest, MARK, PATIENCE, Puppets, Started, member, memory_file, name};
use input::Draw;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Pid;
use siga_fabric::control::Control;
use siga_fabric::protocol::channel::Channel;
use siga_fabric::protocol::message::{GuestEvent, Order, PROTOCOL, RingPairEnd};
use siga_fabric::protocol::report::ReportPart;
use siga_fabric::protocol::request::{Answer, GuestState, GuestStatus, Moment, Request, TimedRequest};
use siga_fabric::protocol::secret::Secret;
use siga_fabric::protocol::ticket::RingPairId;
use std::collections::BTreeMap;
use std::path::PathBuf;
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

pub(crate) const GUESTS: [&str; 5] = ["hostile", "inner", "witness", "partner", "victim"];

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
    pub(crate) fn turn(&mut self) {
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
            guest.send(&GuestEvent::Hello { protocol: PROTOCOL, version: "play".to_owned() }, Vec::new());
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

    pub(crate) fn slot(&mut self, guest: &str) -> Option<&mut Guest> {
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
        self.honest.get_mut("witness").expect("a witness").send(&couple, Vec::new());
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
        self.application.ask(
            Request::Application { protocol: PROTOCOL, version, guest: name("victim"), secret, process: None },
            Vec::new(),
        );
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
            guest.send(&GuestEvent::Inventory { confinement, pairs, applications: Vec::new(), last: true }, Vec::new());
        }
        self.meet_started();
        self.begin_application();
        self.pinger.ask(ping("victim"), Vec::new());
        self.until("the ping", |world| !world.honest["victim"].pings.is_empty());
        assert!(self.standing_pair().is_some(), "the pair of the honest guests outlives the control program");
        self.check_status();
    }

    pub(crate) fn standing_pair(&self) -> Option<RingPairEnd> {
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
                inner.send(&GuestEvent::Hello { protocol: PROTOCOL, version: String::new() }, Vec::new());
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
                Order::PeerMemory { pair, .. } => {
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
                    hostile.send(&GuestEvent::Report { request, part: part.clone() }, Vec::new());
                    hostile.send(&GuestEvent::Pong { request, time_ns: Some(1) }, Vec::new());
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
