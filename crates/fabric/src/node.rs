//! A stack over its devices: the event loop of a guest, and of an application that embeds one.
//!
//! A *pass* takes frames in, does what is due, and lets the stack send; between passes it waits by the ring's policy. What
//! the control program orders is done between passes too. Nothing here decides what a protocol decides.
//!
//! The stack knows each partner as a device of its own, a *port* with one link; a network that joins many has another port
//! for what goes to all of them.

mod applications;
#[cfg(test)]
mod features;
mod groups;
#[cfg(test)]
mod held;
#[cfg(test)]
mod in_place;
mod links;
#[cfg(test)]
pub(crate) mod lockstep;
mod orders;
mod serve;
mod setup;
mod straight;

use crate::application::memory::Memory;
use crate::device::{self, Inside};
use crate::events::Events;
use crate::hold;
use crate::limits::{HELD_ANSWER_BYTES_MAX, HOT_TIME, RECEIVE_AT_ONCE_MAX};
use crate::port::{Partner, Receiver, Sender};
use crate::protocol::channel::Channel;
use crate::protocol::message::{GuestConfig, GuestDevice, Loss, RingPairEnd};
use applications::Applications;
use links::Half;
use orders::{Capture, OpenPing};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};
use siga_model::error::Result;
use siga_model::waiting::Waiting;
use siga_ring::Frame;
use siga_ring::clock::Ticks;
use siga_ring::wait::{Sources, Waiter};
use siga_stack::Stack;
use siga_stack::ip::forward::Forward;
use siga_stack::limits::HEADER_BYTES_MAX;
use siga_stack::link::frame::{DeviceId, Payload, Received, Retained};
use siga_stack::sockets::TcpId;
use siga_stack::stack::{Handled, Transmit};
use siga_stack::time::Instant;
use std::convert::Infallible;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use straight::InRing;
pub(crate) use straight::Written;

/// What a descriptor of a node is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Control,
    /// Where a later control program knocks.
    Listener,
    /// Who has knocked there.
    Suitor(usize),
    /// The ear of a port.
    WakeFd(usize),
    /// The ear of an application.
    Application(usize),
    /// Something is due.
    Alarm,
    /// Another thread of this process wants the one that waits.
    Wake,
}

/// A guest's stack, its devices, and its channel to the control program.
#[derive(Debug)]
pub struct Node {
    stack: Stack<Memory>,
    config: GuestConfig,
    confinement: String,
    ports: Ports,
    /// The port that stands for all partners of a device; for a point-to-point device, its only port.
    main_ports: Vec<usize>,
    control: Option<(u64, Channel)>,
    listener: Option<OwnedFd>,
    suitors: Vec<Option<(u64, Channel)>>,
    wakes: Wakes,
    waiter: Waiter,
    /// What the stack has to send waits for what an application says to the news it has.
    owes_answers: bool,
    /// They wait longer than one look, because the application had not been told of all that was there.
    puts_answers_off: bool,
    clock: Clock,
    /// Own halves of pairs that wait for the partner's.
    halves: Vec<Half>,
    /// The pairs that are linked, each with its port.
    held: Vec<(usize, RingPairEnd)>,
    applications: Applications,
    pings: Vec<OpenPing>,
    capture: Option<Capture>,
    /// The next look for pairs without traffic.
    next_idle_look: Ticks,
    scratch: Vec<u8>,
    /// Until then a buffer is waited for of which something is kept.
    keeps_until: Option<Ticks>,
    runs: bool,
    stops: bool,
}

/// The ports, by the stack's numbers of devices.
#[derive(Debug, Default)]
struct Ports {
    senders: Vec<Sender>,
    receivers: Vec<Receiver>,
    /// The receivers that are polled.
    hot: Vec<usize>,
    hold_times: hold::Times,
    /// See [`crate::limits::KEEP_TIME_MAX`].
    keep_time: Ticks,
    /// In this pass a packet came that was larger than [`HELD_ANSWER_BYTES_MAX`].
    took_large: bool,
}

/// When what the stack has to answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    AtOnce,
    WithTheApplications,
}

/// Time for the stack, from the ring's clock.
#[derive(Debug)]
struct Clock {
    start: Ticks,
    rate: siga_ring::clock::Rate,
    /// The moment at which a test has it stand.
    #[cfg(test)]
    stands: Option<Ticks>,
}

impl Clock {
    fn new(start: Ticks, rate: siga_ring::clock::Rate) -> Self {
        Self {
            start,
            rate,
            #[cfg(test)]
            stands: None,
        }
    }

    /// This moment.
    fn now(&self) -> Ticks {
        #[cfg(test)]
        if let Some(moment) = self.stands {
            return moment;
        }
        Ticks::now()
    }

    fn instant(&self, now: Ticks) -> Instant {
        Instant::from_ns(self.rate.ns(now.since(self.start)))
    }

    fn ticks(&self, at: Instant) -> Ticks {
        Ticks(self.start.0 + self.rate.ticks(at.as_ns()).0)
    }

    fn span(&self, time: Duration) -> Ticks {
        self.rate.ticks(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// What the kernel tells a node.
#[derive(Debug)]
struct Wakes {
    events: Events<Source>,
    /// What has come and is to be looked at.
    ready: Vec<Source>,
    /// When it is time to look again.
    next_look: Ticks,
    interval: Ticks,
    /// Wakes whoever sleeps on the descriptor of all events; made when it is first wanted.
    alarm: Option<OwnedFd>,
    /// Ends waiting; made when it is first wanted.
    wake: Option<Arc<OwnedFd>>,
}

impl Wakes {
    fn new(interval: Ticks) -> Result<Self> {
        let events = Events::new()?;
        Ok(Self { events, ready: Vec::new(), next_look: Ticks(0), interval, alarm: None, wake: None })
    }

    fn set_alarm(&mut self, time: Option<Duration>) -> std::io::Result<()> {
        if self.alarm.is_none() {
            let alarm = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
            self.events.add(&alarm, Source::Alarm).map_err(std::io::Error::other)?;
            self.alarm = Some(alarm);
        }
        let Some(alarm) = &self.alarm else { return Ok(()) };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A value of zero would disarm it.
        let time = time.map(|time| Timespec::try_from(time.max(Duration::from_nanos(1))).unwrap_or(zero));
        let setting = Itimerspec { it_interval: zero, it_value: time.unwrap_or(zero) };
        timerfd_settime(alarm, TimerfdTimerFlags::empty(), &setting)?;
        Ok(())
    }

    /// The event that ends waiting.
    fn wake(&mut self) -> std::io::Result<Arc<OwnedFd>> {
        if let Some(wake) = &self.wake {
            return Ok(Arc::clone(wake));
        }
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        self.events.add(&*wake, Source::Wake).map_err(std::io::Error::other)?;
        self.wake = Some(Arc::clone(&wake));
        Ok(wake)
    }

    fn clear_alarm(&self) {
        if let Some(alarm) = &self.alarm {
            // It does not block: what has been taken already is not there.
            let _ = rustix::io::read(alarm, &mut [0u8; 8]);
        }
    }

    fn clear_wake(&self) {
        if let Some(wake) = &self.wake {
            // As above.
            let _ = rustix::io::read(wake, &mut [0u8; 8]);
        }
    }

    /// Waits for `time`; none is without end. What this tells is handled before the next look, which would tell it again.
    fn wait(&mut self, time: Option<Duration>) {
        self.events.wait(time, &mut self.ready);
        self.next_look = Ticks(Ticks::now().0 + self.interval.0);
    }
}

/// The part of a frame that the stack has not for itself.
struct Rest<'a> {
    frame: &'a Frame<'a>,
    at: usize,
    len: usize,
    /// It may stay in the ring until it is read.
    keeps: bool,
}

impl Payload for Rest<'_> {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_to(&self, at: usize, into: &mut [u8]) {
        self.frame.copy_to(self.at + at, into);
    }

    fn retain(&self, at: usize, len: usize) -> Option<(usize, Arc<dyn Retained>)> {
        self.keeps
            .then(|| -> (usize, Arc<dyn Retained>) { (0, Arc::new(InRing(self.frame.retain(self.at + at, len)))) })
    }
}

/// What the stack has for a port.
struct Own<'a> {
    stack: &'a mut Stack<Memory>,
    at: Instant,
    id: DeviceId,
    /// What others have waits.
    only: Option<TcpId>,
}

impl device::Source for Own<'_> {
    fn bytes_max(&mut self) -> usize {
        if self.only.is_some_and(|connection| !self.stack.tcp_is_first(connection, self.id)) {
            return 0;
        }
        self.stack.next_frame_bytes_max(self.at, self.id)
    }

    fn build(&mut self, into: &mut [u8]) -> Option<Transmit> {
        match self.only {
            Some(connection) => self.stack.poll_transmit_of(self.at, self.id, connection, into),
            None => self.stack.poll_transmit(self.at, self.id, into),
        }
    }
}

impl Node {
    /// A descriptor that is readable when there may be something to do, once [`Node::fall_asleep`] has been called.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.wakes.events.descriptor()
    }

    /// The stack.
    pub(crate) fn stack(&mut self) -> &mut Stack<Memory> {
        &mut self.stack
    }

    /// The stack's time.
    pub fn now(&self) -> Instant {
        self.clock.instant(self.clock.now())
    }

    /// The guest knows all partners that there are.
    pub fn runs(&self) -> bool {
        self.runs
    }

    /// The guest has been told to end.
    pub fn stops(&self) -> bool {
        self.stops
    }

    /// An event that ends a wait when it is written to.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn wake(&mut self) -> std::io::Result<Arc<OwnedFd>> {
        self.wakes.wake()
    }

    /// Takes in what has come, does what is due, and sends. True if there was anything.
    pub fn pass(&mut self) -> bool {
        self.answer();
        self.pass_and(Answers::AtOnce)
    }

    /// The same for an application that asks again when it has done what the news is for. Where it sleeps, what the stack has
    /// to answer goes with what the application says, and is no wake-up of its own for everybody on the way. What it had to answer
    /// before goes first, unless there is news that the application is `untold`; twice in a row that is no reason.
    pub fn pass_before_answers(&mut self, untold: bool) -> bool {
        if self.config.waiting != Waiting::Block {
            return self.pass();
        }
        self.puts_answers_off = untold && self.owes_answers && !self.puts_answers_off;
        if !self.puts_answers_off {
            self.answer();
        }
        self.pass_and(Answers::WithTheApplications)
    }

    fn pass_and(&mut self, answers: Answers) -> bool {
        let now = self.clock.now();
        self.ports.took_large = false;
        if now >= self.wakes.next_look {
            self.wakes.wait(Some(Duration::ZERO));
        }
        self.handle_events(now);
        let at = self.clock.instant(now);
        let mut busy = self.receive(now, at);
        if self.stack.poll_timeout().is_some_and(|due| due <= at) {
            self.stack.handle_timeout(at);
            busy = true;
        }
        busy |= self.serve(now, at);
        // Whoever sends much at a time may wait for its acknowledgement.
        let wait = answers == Answers::WithTheApplications && (self.stack.tcp_has_events() || self.puts_answers_off);
        self.owes_answers = wait && !self.ports.took_large;
        if !self.owes_answers {
            busy |= self.transmit(now, at);
        }
        busy |= self.keeps_until.take_if(|until| now >= *until).is_some();
        self.background(now);
        if busy {
            self.waiter.had_traffic();
        }
        busy
    }

    /// Waits until there is something to do, at most for `time`.
    pub fn wait(&mut self, time: Option<Duration>) {
        self.answer();
        let deadline = self.deadline(time);
        let mut waits =
            Waits { ports: &mut self.ports, applications: &mut self.applications, wakes: &mut self.wakes, looks: 0 };
        let Ok(_woken) = self.waiter.wait(&mut waits, deadline);
    }

    /// Has the descriptor woken by everybody, and when something is due. False if there is something to do.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn fall_asleep(&mut self) -> std::io::Result<bool> {
        self.answer();
        let mut waits =
            Waits { ports: &mut self.ports, applications: &mut self.applications, wakes: &mut self.wakes, looks: 0 };
        let Ok(asleep) = waits.declare_asleep();
        let due = self.deadline(None);
        let time = due.map(|due| Duration::from_nanos(self.clock.rate.ns(due.since(self.clock.now()))));
        self.wakes.set_alarm(time)?;
        // Somebody else waits, so the next pass has to ask what for.
        self.wakes.next_look = Ticks(0);
        Ok(asleep)
    }

    /// Lets the stack send what an application has just given it.
    pub fn send_now(&mut self) {
        let now = self.clock.now();
        let at = self.clock.instant(now);
        self.owes_answers = false;
        self.transmit(now, at);
    }

    /// The same for one connection: what waits for what the application says to others goes on waiting.
    pub(crate) fn send_now_of(&mut self, connection: TcpId) {
        if !(self.owes_answers && self.transmit_of(connection)) {
            self.send_now();
        }
    }

    /// Lets a connection send what it has; false if it has none, or more than goes.
    fn transmit_of(&mut self, connection: TcpId) -> bool {
        let at = self.now();
        let Some(id) = self.stack.tcp_put_first(connection) else { return false };
        let port = usize::from(id.0);
        let sender = &mut self.ports.senders[port];
        if !sender.is_linked() {
            return false;
        }
        let mut own = Own { stack: &mut self.stack, at, id, only: Some(connection) };
        if let Err(violation) = sender.transmit(&mut own) {
            self.lose(port, Loss::Violation(violation.to_string()));
        }
        self.stack.tcp_put_first(connection).is_none()
    }

    /// Sends what was to go with what an application says.
    fn answer(&mut self) {
        if self.owes_answers {
            self.send_now();
        }
    }

    fn deadline(&self, time: Option<Duration>) -> Option<Ticks> {
        let own = time.map(|time| Ticks(self.clock.now().0 + self.clock.span(time).0));
        let stack = self.stack.poll_timeout().map(|at| self.clock.ticks(at));
        let pings = self.pings.iter().map(|ping| ping.until).min();
        let idle = self.has_links().then_some(self.next_idle_look);
        let held = |port: &usize| self.ports.receivers[*port].hold.waits_for().map(|(_, until)| until);
        let held = self.ports.hot.iter().filter_map(held).min();
        [own, stack, pings, idle, held, self.keeps_until].into_iter().flatten().min()
    }

    /// Takes frames from the rings that are polled.
    fn receive(&mut self, now: Ticks, at: Instant) -> bool {
        let mut busy = false;
        let mut place = 0;
        while let Some(port) = self.ports.hot.get(place).copied() {
            if self.ports.is_held(port, now) {
                place += 1;
                continue;
            }
            match self.take(now, at, port) {
                Ok(0) if self.ports.falls_asleep(port, now, self.clock.span(HOT_TIME)) => {
                    self.ports.receivers[port].is_hot = false;
                    self.ports.hot.swap_remove(place);
                    continue;
                }
                Ok(0) => {}
                Ok(_) => {
                    self.ports.receivers[port].last_traffic = now;
                    busy = true;
                }
                Err((broken, loss)) => {
                    self.lose(broken, loss);
                    busy = true;
                    continue;
                }
            }
            place += 1;
        }
        busy
    }

    /// Takes frames of one port in, held or not; true if there may be more.
    fn receive_from(&mut self, now: Ticks, port: usize) -> bool {
        self.ports.receivers[port].hold.end();
        match self.take(now, self.clock.instant(now), port) {
            Ok(count) => count > 0,
            Err((broken, loss)) => {
                self.lose(broken, loss);
                false
            }
        }
    }

    fn take(&mut self, now: Ticks, at: Instant, port: usize) -> std::result::Result<usize, (usize, Loss)> {
        let place = self.ports.senders[port].device;
        let network = (self.main_ports[place], &self.config.devices[place]);
        take(&mut self.stack, &mut self.ports, (now, at), port, network)
    }

    /// Lets the stack send, and whatever waited.
    fn transmit(&mut self, now: Ticks, at: Instant) -> bool {
        let mut busy = false;
        for port in 0..self.ports.senders.len() {
            let id = setup::number(port);
            let sender = &mut self.ports.senders[port];
            let wants = self.stack.wants_transmit(id);
            if sender.is_linked() {
                if !(wants || sender.is_dirty || sender.has_room()) {
                    continue;
                }
                match sender.transmit(&mut Own { stack: &mut self.stack, at, id, only: None }) {
                    Ok(any) => busy |= any,
                    Err(violation) => self.lose(port, Loss::Violation(violation.to_string())),
                }
            } else if wants || sender.has_backlog() {
                match sender.partner {
                    Partner::Group => {
                        self.send_to_all(at, port, id);
                        busy = true;
                    }
                    Partner::Member(_) => self.want_link(now, at, port, id),
                }
            }
        }
        busy
    }
}

/// Takes frames of one port into the stack, and passes on those for others. How many there were, or which port is to go.
fn take(
    stack: &mut Stack<Memory>,
    ports: &mut Ports,
    (now, at): (Ticks, Instant),
    port: usize,
    (main, device): (usize, &GuestDevice),
) -> std::result::Result<usize, (usize, Loss)> {
    let times = ports.hold_times;
    let Receiver { ring: Some(ring), inbound, malformed, hold, .. } = &mut ports.receivers[port] else { return Ok(0) };
    let half = ring.shape().buffer_count() / 2;
    // Who could have read what is kept has had its turn.
    if ring.count_unreturned() >= if inbound.is_waited_for() { 1 } else { half } {
        ring.move_out();
    }
    let mut count = 0;
    let broken = |port: usize| move |violation: siga_ring::Violation| (port, Loss::Violation(violation.to_string()));
    while count < RECEIVE_AT_ONCE_MAX && hold.waits_for().is_none() && ring.count_unreturned() < half {
        let Some(frame) = ring.next_frame().map_err(broken(port))? else { break };
        count += 1;
        let mut done = 0;
        loop {
            let part = match inbound.next(&frame, &mut done) {
                Inside::Packet(part) => part,
                Inside::End => break,
                Inside::Hello => {
                    ports.senders[port].heard();
                    break;
                }
                Inside::Malformed => {
                    *malformed += 1;
                    break;
                }
            };
            let mut header = [0; HEADER_BYTES_MAX];
            ports.took_large |= part.len > HELD_ANSWER_BYTES_MAX;
            let head = part.len.min(HEADER_BYTES_MAX);
            frame.copy_to(part.at, &mut header[..head]);
            let header = &header[..head];
            let keeps = device.driver.zero_copy;
            let rest = Rest { frame: &frame, at: part.at + head, len: part.len - head, keeps };
            let for_all = links::is_to_many(header, device) || groups::tells_of_groups(header);
            let (from, received) = (setup::number(port), Received { header, payload: &rest, marks: part.marks });
            let handled = if for_all {
                stack.handle_group_frame(at, setup::number(main), from, received)
            } else {
                stack.handle_frame(at, from, received)
            };
            if let Handled::Forward(forward) = handled {
                let to = usize::from(forward.device.0);
                pass_on(&mut ports.senders[to], forward, header, &rest).map_err(broken(to))?;
                hold.passed_on(now, times, to);
                if ports.senders[to].holds() {
                    hold.begin(now, times);
                }
            }
        }
    }
    if hold.waits_for().is_some() {
        // Nobody asks for the next frame, which is when a buffer is given back else.
        ring.give_back();
    }
    Ok(count)
}

/// Passes a packet on, whole or cut, from ring to ring.
fn pass_on(
    sender: &mut Sender,
    mut forward: Forward<'_, Rest<'_>>,
    header: &[u8],
    rest: &Rest<'_>,
) -> std::result::Result<(), siga_ring::Violation> {
    while let Some(piece) = forward.next_piece() {
        let own = piece.range.start.min(header.len())..piece.range.end.min(header.len());
        let behind = piece.range.start.max(header.len())..piece.range.end.max(header.len());
        let len = piece.header.len() + piece.range.len();
        let mut fill = |into: &mut [u8]| {
            let (first, into) = into.split_at_mut(piece.header.len());
            first.copy_from_slice(piece.header);
            let (first, into) = into.split_at_mut(own.len());
            first.copy_from_slice(&header[own.clone()]);
            rest.copy_to(behind.start - header.len(), into);
        };
        if matches!(sender.partner, Partner::Group) {
            sender.count_no_partner();
        } else {
            sender.offer(len, piece.marks, &mut fill)?;
        }
    }
    Ok(())
}

impl Ports {
    /// Nothing is to be taken from a port yet.
    fn is_held(&mut self, port: usize, now: Ticks) -> bool {
        let Some((to, until)) = self.receivers[port].hold.waits_for() else { return false };
        let holds = self.senders[to].holds();
        if holds && now < until {
            return true;
        }
        if holds {
            self.senders[to].held_too_long();
        }
        self.receivers[port].hold.end();
        false
    }

    /// Has a port's ring polled.
    fn heat(&mut self, port: usize) {
        let receiver = &mut self.receivers[port];
        if let Some(ring) = receiver.ring.as_mut().filter(|_| !receiver.is_hot) {
            ring.awake();
            receiver.is_hot = true;
            self.hot.push(port);
        }
    }

    /// True if a ring had no frame for so long that it is better asked to ring, and it was.
    fn falls_asleep(&mut self, port: usize, now: Ticks, after: Ticks) -> bool {
        let receiver = &mut self.receivers[port];
        let cold = now.since(receiver.last_traffic) >= after;
        // A violation is told by the next use.
        cold && receiver.ring.as_mut().is_none_or(|ring| ring.declare_asleep().unwrap_or(false))
    }
}

/// What a node waits for.
struct Waits<'a> {
    ports: &'a mut Ports,
    applications: &'a mut Applications,
    wakes: &'a mut Wakes,
    looks: u32,
}

/// A look at the kernel's side of things is as dear as so many at memory.
const LOOKS_A_SYSTEM_CALL: u32 = 64;

impl Sources for Waits<'_> {
    type Error = Infallible;

    fn is_ready(&mut self) -> std::result::Result<bool, Infallible> {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_A_SYSTEM_CALL) {
            self.wakes.wait(Some(Duration::ZERO));
        }
        let Ports { receivers, senders, hot, .. } = &mut *self.ports;
        // A violation is told by the next use.
        let mut readable = |port: &usize| {
            let Receiver { ring, hold, .. } = &mut receivers[*port];
            match hold.waits_for() {
                Some((to, _)) => !senders[to].holds(),
                None => ring.as_mut().is_some_and(|ring| ring.is_ready().unwrap_or(true)),
            }
        };
        Ok(!self.wakes.ready.is_empty()
            || hot.iter().any(&mut readable)
            || senders.iter_mut().any(Sender::has_room)
            || self.applications.are_ready())
    }

    fn declare_asleep(&mut self) -> std::result::Result<bool, Infallible> {
        let Ports { receivers, senders, hot, .. } = &mut *self.ports;
        // Who is held rings for nothing; the partner that is waited for does, when it has room.
        let mut held = Vec::new();
        while let Some(port) = hot.pop() {
            let Receiver { ring, hold, is_hot, .. } = &mut receivers[port];
            let waits = hold.waits_for().is_some_and(|(to, _)| senders[to].holds());
            if waits {
                held.push(port);
            } else if ring.as_mut().is_some_and(|ring| !ring.declare_asleep().unwrap_or(false)) {
                hot.push(port);
                hot.append(&mut held);
                return Ok(false);
            } else {
                *is_hot = false;
            }
        }
        hot.append(&mut held);
        Ok(self.applications.fall_asleep()
            && self.ports.senders.iter_mut().all(Sender::want_room)
            && self.wakes.ready.is_empty())
    }

    fn sleep(&mut self, time: Option<Duration>) -> std::result::Result<(), Infallible> {
        self.wakes.wait(time);
        Ok(())
    }

    fn awake(&mut self) {}
}
