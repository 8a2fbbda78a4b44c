//! Guests and clients that the test speaks for, and processes that only stand for guests.

use rustix::fs::MemfdFlags;
use rustix::process::{Pid, Signal, pidfd_send_signal};
use siga_fabric::isolate::launch::{Launcher, Process};
use siga_fabric::protocol::channel::{Channel, Ended};
use siga_fabric::protocol::message::{GuestEvent, MemberId, Order, RingPairEnd};
use siga_fabric::protocol::report::{ReportPart, StackReport, Totals};
use siga_fabric::protocol::request::{Answer, Moment, Request, TimedRequest};
use siga_fabric::protocol::ticket::ApplicationId;
use siga_fabric::protocol::ticket::RingPairId;
use siga_model::name::Name;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

/// Guests that were started.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    /// The channels of those that the test has not met yet, with the numbers of their processes.
    pub(crate) new: Vec<(OwnedFd, Pid)>,
    /// All processes, which do nothing.
    processes: Vec<OwnedFd>,
}

impl Starts {
    /// Ends all processes: a control program that is dropped leaves them.
    pub(crate) fn end(&mut self) {
        self.new.clear();
        for process in self.processes.drain(..) {
            // It may have ended.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

pub(crate) type Started = Rc<RefCell<Starts>>;

/// Starts processes that do nothing; the test speaks for them.
#[derive(Debug)]
pub(crate) struct Puppets(pub(crate) Started);

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
pub(crate) struct Guest {
    pub(crate) channel: Channel,
    /// Its own socket, where a successor finds it, if it is external.
    pub(crate) listener: Option<OwnedFd>,
    pub(crate) runs: bool,
    pub(crate) pairs: BTreeMap<RingPairId, RingPairEnd>,
    pub(crate) applications: Vec<ApplicationId>,
    pub(crate) pings: Vec<u64>,
    /// The control program ended its channel.
    pub(crate) has_ended: bool,
}

impl Guest {
    pub(crate) fn new(channel: Channel) -> Self {
        let (pairs, applications, pings) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { channel, listener: None, runs: false, pairs, applications, pings, has_ended: false }
    }

    pub(crate) fn send(&mut self, event: &GuestEvent, descriptors: Vec<OwnedFd>) {
        // A message that is too long to be sent, or a channel that has ended, is no concern of the author's.
        let _ = self.channel.send(event, descriptors);
    }

    /// The orders that have come.
    pub(crate) fn orders(&mut self) -> Vec<(Order, Vec<OwnedFd>)> {
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
    pub(crate) fn listen(&mut self, own: &Name, listener: Option<OwnedFd>) {
        let listener = listener.expect("a listener");
        if !["inner", "victim"].contains(&own.as_str()) {
            rustix::net::listen(&listener, 4).expect("a listener");
            self.listener = Some(listener);
        }
    }

    /// Obeys as an honest guest does.
    pub(crate) fn obey(&mut self, order: Order, mut descriptors: Vec<OwnedFd>) {
        match order {
            Order::Configure(config) => self.listen(&config.name, descriptors.pop()),
            Order::Run => {
                self.runs = true;
                self.send(&GuestEvent::Ready { confinement: "honest".to_owned() }, Vec::new());
            }
            Order::MakePair(held) => {
                assert_eq!(descriptors.len(), 3);
                self.send(&GuestEvent::Memory { pair: held.pair }, vec![memory_file()]);
                self.pairs.insert(held.pair, held);
            }
            Order::PeerMemory { pair, .. } => self.send(&GuestEvent::Linked { pair }, Vec::new()),
            Order::Quiesce { pair } => self.send(&GuestEvent::Quiet { pair }, Vec::new()),
            Order::Unpair { pair, .. } => _ = self.pairs.remove(&pair),
            Order::Application { application, .. } => {
                self.applications.push(application);
                self.send(&GuestEvent::ApplicationMemory { application }, vec![memory_file(), memory_file()]);
            }
            Order::Report { request } => {
                let stack = StackReport { connections: MARK, ..StackReport::default() };
                self.send(&GuestEvent::Report { request, part: ReportPart::Stack(stack) }, Vec::new());
            }
            Order::Totals { request } => {
                let part = ReportPart::Totals(Totals { connections: MARK, ..Totals::default() });
                self.send(&GuestEvent::Report { request, part }, Vec::new());
            }
            Order::Prepare => self.send(&GuestEvent::Prepared { why_not: None }, Vec::new()),
            Order::Retire => self.send(&GuestEvent::Retired, Vec::new()),
            Order::Ping { request, .. } => self.pings.push(request),
            Order::Refused { .. }
            | Order::Resume
            | Order::Stderr
            | Order::Member { .. }
            | Order::MemberGone { .. }
            | Order::Allow(_)
            | Order::ApplicationMemory { .. }
            | Order::Direct { .. } => {}
            Order::Capture { .. }
            | Order::CaptureStop
            | Order::Adopt { .. }
            | Order::Stop
            | Order::Port { .. }
            | Order::Carrier { .. }
            | Order::PortGone { .. }
            | Order::PortSettings { .. }
            | Order::Mirror(_)
            | Order::Learn { .. }
            | Order::Addresses { .. } => {
                panic!("an honest guest was ordered to {order:?}")
            }
        }
    }

    pub(crate) fn pair_with(&self, partner: &str) -> Option<&RingPairEnd> {
        self.pairs.values().find(|held| held.member == member(partner))
    }
}

/// A connection of the command line or of an application.
#[derive(Debug)]
pub(crate) struct Client(pub(crate) Channel);

impl Client {
    pub(crate) fn ask(&mut self, request: Request, descriptors: Vec<OwnedFd>) {
        let until = Moment::now().after(PATIENCE);
        self.0.send(&TimedRequest { request, until }, descriptors).expect("a connection");
    }

    /// The next answer that has come.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        match self.0.receive::<Answer>() {
            Ok(Some((Answer::TakenUp, _))) => self.answer(),
            Ok(answer) => answer.map(|(answer, _)| answer),
            Err(ended) => panic!("a client's connection ended: {ended:?}"),
        }
    }
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

pub(crate) fn member(guest: &str) -> MemberId {
    MemberId { guest: name(guest), device: name("dev0") }
}

pub(crate) fn memory_file() -> OwnedFd {
    rustix::fs::memfd_create("play", MemfdFlags::CLOEXEC).expect("memory")
}

/// How long anything that is to happen may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What `victim` reports of its stack.
pub(crate) const MARK: u64 = 4_711;
