//! How a control program replaces the process of a guest: the test speaks for the old process, the new one and the partner, and lets one
//! of them fail at each step.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test says what it wants by failing"
)]

#[path = "control/play/guest.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod guest;

use guest::{Client, Guest, PATIENCE, Puppets, Started, member, name};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use siga_fabric::control::Control;
use siga_fabric::protocol::channel::Channel;
use siga_fabric::protocol::message::{GuestEvent, Order, PROTOCOL};
use siga_fabric::protocol::report::KnownAddress;
use siga_fabric::protocol::request::{Answer, Moment, Request, TimedRequest};
use siga_model::mac::Mac;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Guest `b` has no partner but `a`. A switch would be replaced in the same way.
const TOPOLOGY: &str = r#"
[network.lan]
type = "hipersockets"
frame = "16K"
[guest.a]
device = [{ network = "lan", addresses = ["10.0.0.1/24"], buffer_count = 8 }]
[guest.b]
device = [{ network = "lan", addresses = ["10.0.0.2/24"], buffer_count = 8 }]
"#;

/// A process that the test speaks for.
struct Actor {
    guest: Guest,
    pid: Pid,
    /// The orders that it has obeyed.
    obeyed: Vec<&'static str>,
    /// It reads no order from this one on.
    stops_at: Option<&'static str>,
}

impl Actor {
    fn new(channel: std::os::fd::OwnedFd, pid: Pid) -> Self {
        let guest = Guest::new(Channel::new(channel).unwrap());
        Self { guest, pid, obeyed: Vec::new(), stops_at: None }
    }

    fn say_hello(&mut self) {
        self.guest.send(&GuestEvent::Hello { protocol: PROTOCOL, version: "play".to_owned() }, Vec::new());
    }

    /// Obeys the orders that have come. Returns true if it stops at one of them.
    fn obey(&mut self) -> bool {
        for (order, descriptors) in self.guest.orders() {
            let kind = kind(&order);
            if self.stops_at == Some(kind) {
                return true;
            }
            self.obeyed.push(kind);
            self.guest.obey(order, descriptors);
        }
        false
    }

    fn is_alive(&self) -> bool {
        test_kill_process(self.pid).is_ok()
    }
}

fn kind(order: &Order) -> &'static str {
    match order {
        Order::Configure(_) => "configure",
        Order::Prepare => "prepare",
        Order::MakePair(_) => "make",
        Order::PeerMemory { .. } => "memory",
        Order::Quiesce { .. } => "quiesce",
        Order::Unpair { .. } => "unpair",
        Order::Retire => "retire",
        Order::Resume => "resume",
        Order::Learn { .. } => "learn",
        Order::Run => "run",
        _ => "other",
    }
}

/// A control program, its two guests, and a client.
struct Play {
    base: tempfile::TempDir,
    control: Control,
    started: Started,
    actors: BTreeMap<&'static str, Actor>,
    client: Client,
}

fn connect(base: &tempfile::TempDir) -> Client {
    let address = SocketAddrUnix::new(base.path().join("run/play/control")).unwrap();
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    Client(Channel::new(socket).unwrap())
}

impl Play {
    fn new() -> Self {
        let (base, started) = (tempfile::tempdir().unwrap(), Started::default());
        let launcher = Box::new(Puppets(Rc::clone(&started)));
        let control = Control::begin(&base.path().join("run"), name("play"), TOPOLOGY.to_owned(), launcher).unwrap();
        let client = connect(&base);
        let new = std::mem::take(&mut started.borrow_mut().new);
        let actors = ["a", "b"].into_iter().zip(new).map(|(name, (channel, pid))| (name, Actor::new(channel, pid)));
        let mut play = Self { base, control, started, actors: actors.collect(), client };
        play.actors.values_mut().for_each(Actor::say_hello);
        play.until("the guests run", |play| play.actors.values().all(|actor| actor.guest.runs));
        play.couple();
        play
    }

    fn couple(&mut self) {
        let couple = GuestEvent::Couple { device: name("dev0"), member: member("b") };
        self.actor("a").guest.send(&couple, Vec::new());
        self.until("the pair", |play| play.actors["a"].guest.pair_with("b").is_some());
        self.until("the ends", |play| play.log().matches(": linked").count() == 2);
        self.actors.values_mut().for_each(|actor| actor.obeyed.clear());
    }

    fn actor(&mut self, name: &str) -> &mut Actor {
        self.actors.get_mut(name).unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.base.path().join("run/play/log")).unwrap()
    }

    /// Lets the control program and all actors do what they have to.
    fn turn(&mut self) {
        assert!(self.control.turn(Some(Duration::from_millis(1))), "the network is down");
        for actor in self.actors.values_mut() {
            actor.obey();
        }
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < end, "it does not come: {what}: {}", self.log());
            self.turn();
        }
    }

    /// Asks for the replacements, and waits for the first new process.
    fn begin(&mut self) -> Actor {
        self.client.ask(Request::Replace, Vec::new());
        self.next_start()
    }

    fn next_start(&mut self) -> Actor {
        self.until("a start", |play| !play.started.borrow().new.is_empty());
        let (channel, pid) = self.started.borrow_mut().new.pop().unwrap();
        Actor::new(channel, pid)
    }

    /// The next answer to the client.
    fn answer(&mut self) -> Answer {
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "no answer: {}", self.log());
            self.turn();
            if let Some(answer) = self.client.answer() {
                return answer;
            }
        }
    }

    fn kept(&mut self, guest: &str) -> String {
        match self.answer() {
            Answer::Kept { guest: kept, why } if kept.as_str() == guest => why,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Play {
    fn drop(&mut self) {
        self.actors.clear();
        let until = Moment::now().after(PATIENCE);
        // The client may still wait for replacements.
        self.client = connect(&self.base);
        let _ = self.client.0.send(&TimedRequest { request: Request::Down, until }, Vec::new());
        self.started.borrow_mut().end();
        let end = Instant::now() + PATIENCE;
        while self.control.turn(Some(Duration::from_millis(10))) && Instant::now() < end {}
        self.started.borrow_mut().end();
    }
}

#[test]
fn a_new_process_gets_new_pairs_before_the_old_one_ends_and_the_partner_changes_last() {
    let mut play = Play::new();
    let old = play.actor("a").pid;
    let pair = play.actors["a"].guest.pair_with("b").unwrap().pair;
    let mut new = play.begin();
    new.say_hello();
    let end = Instant::now() + PATIENCE;
    while !new.guest.runs {
        assert!(Instant::now() < end, "{}", play.log());
        play.turn();
        new.obey();
        if play.actors["a"].obeyed.contains(&"retire") && !new.obeyed.contains(&"learn") {
            let learned = KnownAddress { vlan: 1, mac: Mac([2, 0, 0, 0, 0, 9]), port: None, age_ms: Some(1) };
            // Too late: the answer to `Retire` has been sent.
            play.actor("a").guest.send(&GuestEvent::Learned { addresses: vec![learned] }, Vec::new());
        }
    }
    let pids = [old, new.pid].map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    assert!(matches!(play.answer(), Answer::Replaced { guest, pids: said, .. } if guest == name("a") && said == pids));
    assert_eq!(play.actors["a"].obeyed, ["prepare", "retire"]);
    assert_eq!(play.actors["b"].obeyed[..4], ["make", "quiesce", "unpair", "memory"]);
    let of_new: Vec<_> = new.obeyed.iter().copied().filter(|kind| *kind != "other").collect();
    assert_eq!(of_new, ["configure", "prepare", "make", "memory", "run"]);
    assert_ne!(new.guest.pair_with("b").unwrap().pair, pair);
    assert_eq!(new.guest.pair_with("b").unwrap().pair, play.actors["b"].guest.pair_with("a").unwrap().pair);
    play.actors.insert("a", new);
    play.until("the end of the old process", |_| test_kill_process(old).is_err());
    // The other guest is next. It keeps its pairs.
    let mut new = play.next_start();
    new.say_hello();
    while !new.guest.runs {
        assert!(Instant::now() < end, "{}", play.log());
        play.turn();
        new.obey();
    }
    assert!(matches!(play.answer(), Answer::Replaced { guest, .. } if guest == name("b")));
    assert!(matches!(play.answer(), Answer::Done));
    play.actors.insert("b", new);
}

/// Kills the new process of `a` when it gets the order `at`, or, if `by_other`, when `a` or `b` gets it.
fn fail_at(at: &'static str, by: Option<&'static str>) -> Play {
    let mut play = Play::new();
    if let Some(by) = by {
        play.actor(by).stops_at = Some(at);
    }
    let mut new = play.begin();
    new.stops_at = by.is_none().then_some(at);
    if at != "hello" {
        new.say_hello();
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "{}", play.log());
            assert!(play.control.turn(Some(Duration::from_millis(1))));
            let stops = play.actors.iter_mut().fold(false, |stops, (_, actor)| stops | actor.obey());
            if new.obey() | stops {
                break;
            }
        }
    }
    kill_process(new.pid, Signal::KILL).unwrap();
    play.actors.values_mut().for_each(|actor| actor.stops_at = None);
    assert_eq!(play.kept("a"), "the new process has ended", "{at}");
    assert!(play.actors["a"].is_alive() && !play.actors["a"].guest.has_ended, "{at}");
    play
}

#[test]
fn the_old_process_goes_on_whenever_the_new_one_is_killed() {
    for (at, by) in [("hello", None), ("configure", None), ("prepare", None), ("make", None)] {
        let mut play = fail_at(at, by);
        play.turn();
        assert!(play.actors["a"].guest.pair_with("b").is_some(), "{at}: nothing has changed");
        assert!(!play.actors["b"].obeyed.contains(&"quiesce"), "{at}");
    }
    for (at, by) in [("quiesce", "b"), ("retire", "a")] {
        let mut play = fail_at(at, Some(by));
        // The partner may have stopped, so the pair is made again.
        let has_none = |play: &Play| ["a", "b"].iter().all(|name| play.actors[name].guest.pairs.is_empty());
        play.until("the end of the pairs", has_none);
        let resumed = play.actors["a"].obeyed.contains(&"resume");
        assert_eq!(resumed, at == "retire");
        let couple = GuestEvent::Couple { device: name("dev0"), member: member("b") };
        play.actor("a").guest.send(&couple, Vec::new());
        play.until("a new pair", |play| play.actors["b"].guest.pair_with("a").is_some());
    }
}

#[test]
fn a_new_process_that_says_something_wrong_is_ended_and_the_old_one_goes_on() {
    let wrong: [(&str, GuestEvent, &str); 4] = [
        ("hello", GuestEvent::Hello { protocol: PROTOCOL + 1, version: String::new() }, "an unexpected message"),
        ("hello", GuestEvent::Ready { confinement: String::new() }, "an unexpected message"),
        ("hello", GuestEvent::Failed(siga_model::error::Error::usage("no memory")), "no memory"),
        ("prepare", GuestEvent::Retired, "an unexpected message"),
    ];
    for (at, event, text) in wrong {
        let mut play = Play::new();
        let mut new = play.begin();
        if at == "prepare" {
            new.stops_at = Some("prepare");
            new.say_hello();
            while !new.obey() {
                play.turn();
            }
        }
        new.guest.send(&event, Vec::new());
        let why = play.kept("a");
        assert!(why.contains(text), "{why}");
        play.until("the end of the new process", |_| test_kill_process(new.pid).is_err());
        assert!(play.actors["a"].is_alive());
    }
}

#[test]
fn neither_a_partner_nor_the_old_process_can_delay_the_change_by_silence() {
    for silent in ["a", "b"] {
        let mut play = Play::new();
        play.actor(silent).stops_at = Some(if silent == "a" { "retire" } else { "quiesce" });
        let mut new = play.begin();
        new.say_hello();
        let start = Instant::now();
        while !new.guest.runs {
            assert!(start.elapsed() < PATIENCE, "{}", play.log());
            play.turn();
            new.obey();
        }
        let Answer::Replaced { guest, gap_us, .. } = play.answer() else { panic!("{}", play.log()) };
        assert_eq!(guest, name("a"));
        assert!((100_000..2_000_000).contains(&gap_us), "{silent}: {gap_us} us");
        play.actors.insert("a", new);
    }
}

#[test]
fn a_guest_that_cannot_be_replaced_says_why_and_no_other_guest_can_answer_for_it() {
    let mut play = Play::new();
    play.actor("a").stops_at = Some("prepare");
    play.client.ask(Request::Replace, Vec::new());
    for _ in 0..20 {
        // The answers of a guest that was not asked have no effect.
        play.actor("b").guest.send(&GuestEvent::Prepared { why_not: Some("not asked".to_owned()) }, Vec::new());
        play.actor("b").guest.send(&GuestEvent::Retired, Vec::new());
        play.turn();
    }
    let why_not = Some("x".repeat(100_000));
    play.actor("a").guest.send(&GuestEvent::Prepared { why_not }, Vec::new());
    let why = play.kept("a");
    assert!(why.starts_with("xxx") && why.len() < 5_000, "{} bytes", why.len());
    // The next one is asked itself.
    let new = play.next_start();
    kill_process(new.pid, Signal::KILL).unwrap();
    assert_eq!(play.kept("b"), "the new process has ended");
    assert!(matches!(play.answer(), Answer::Done));
}
