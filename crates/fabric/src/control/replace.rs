//! Replaces the process of a guest by a new process of the control program's build, while traffic flows.
//!
//! The new process is prepared beside the present one: it gets its configuration and its end of a new ring pair with each partner. Then
//! the partners stop sending, the present process passes on all frames that it has, and the partners change to the new pairs. A partner
//! that does not answer in time is not waited for, so that no guest can keep another one from being replaced: only its own frames can be
//! lost. If the new process fails before the change, the present one goes on.
//!
//! One process is replaced at a time. The present process must have nothing that the new one would lack: no application, no connection.

use super::clients::Waits;
use super::guests::{GUEST_ARGUMENTS, Guest, Phase, Running, SWITCH_ARGUMENTS};
use super::pairs::Renewal;
use super::{Control, Source, bind};
use crate::limits::{
    ANSWER_TIME_MAX, GUEST_EVENTS_AT_ONCE_MAX, REPLACE_STEP_TIME_MAX, REPORT_ADDRESSES_MAX, START_TIME_MAX,
    SWITCH_MACS_MAX,
};
use crate::protocol::channel::Channel;
use crate::protocol::message::{GuestEvent, Order, PROTOCOL};
use crate::protocol::report::KnownAddress;
use crate::protocol::request::Answer;
use crate::protocol::ticket::RingPairId;
use rustix::process::{Signal, pidfd_send_signal};
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use siga_ring::ready_set::ReadySet;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The replacements of processes: the present one, and the guests whose turn comes later.
#[derive(Debug, Default)]
pub(super) struct Replacements {
    now: Option<Box<Replacement>>,
    pub(super) queue: VecDeque<Name>,
    /// The client that asked for the replacements.
    client: Option<u64>,
    /// The replaced processes that have not ended yet, by their registrations.
    replaced: BTreeMap<u64, Running>,
}

/// The replacement of one guest's process.
#[derive(Debug)]
struct Replacement {
    guest: Name,
    step: Step,
    /// The time at which the step ends, whether or not all have answered.
    until: Instant,
    /// The channel to the new process, and the process. `None` before it starts.
    successor: Option<Successor>,
    /// The incarnation number of the present process, once the new one has another.
    incarnation: Option<Option<u64>>,
    renewals: Vec<Renewing>,
    /// The number of addresses that the present process of a switch has reported.
    learned: usize,
    /// The time at which the partners were ordered to stop sending.
    quiet_since: Instant,
}

#[derive(Debug)]
struct Successor {
    channel: (u64, Channel),
    process: (u64, Running),
}

/// A ring pair of the guest, and the one that replaces it.
#[derive(Debug)]
struct Renewing {
    renewal: Renewal,
    /// The memory files of the new process and of the partner.
    memory: [Option<OwnedFd>; 2],
    /// True if the partner has stopped sending over the old pair.
    is_quiet: bool,
}

/// The steps of a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// The present process says whether it can be replaced.
    Asking,
    /// The new process starts, and gets its configuration.
    Starting,
    /// The new process and the partners make their ends of the new pairs.
    Pairing,
    /// The partners stop sending.
    Quieting,
    /// The present process passes on its frames.
    Retiring,
}

impl Replacements {
    /// Returns the time at which the present step ends.
    pub(super) fn due(&self) -> Option<Instant> {
        self.now.as_ref().map(|now| now.until)
    }

    /// Returns the guest whose new pairs are being made: it gets no others meanwhile.
    pub(super) fn busy_with(&self) -> Option<&Name> {
        self.now.as_ref().filter(|now| now.step >= Step::Pairing).map(|now| &now.guest)
    }

    /// Returns the guest whose process is being replaced.
    pub(super) fn guest(&self) -> Option<&Name> {
        self.now.as_ref().map(|now| &now.guest)
    }

    /// Forgets a replaced process, because it has ended.
    pub(super) fn ended(&mut self, events: &mut ReadySet<Source>, registration: u64) {
        let Some(mut process) = self.replaced.remove(&registration) else { return };
        events.remove(registration, process.pidfd());
        if let Running::Own(process) = &mut process {
            // The kernel forgets an ended child only when its parent has waited for it.
            let _ = process.try_wait();
        }
    }
}

impl Replacement {
    fn renewing(&mut self, pair: RingPairId) -> Option<&mut Renewing> {
        self.renewals.iter_mut().find(|renewing| renewing.renewal.new == pair)
    }
}

impl Control {
    /// Begins to replace the processes of all guests.
    pub(super) fn replace_all(&mut self, key: u64) -> Result<()> {
        if self.replacements.now.is_some() || !self.replacements.queue.is_empty() {
            return Err(Error::environment("another command is upgrading the network").hint("try again later"));
        }
        if self.is_stopping() {
            return Err(Error::environment("the network is going down"));
        }
        self.wait_for(key, Waits::Replacements);
        self.replacements.client = Some(key);
        self.replacements.queue = self.guests.keys().cloned().collect();
        self.replace_next();
        Ok(())
    }

    /// Begins the next replacement. If no guest is left, answers the client.
    fn replace_next(&mut self) {
        while self.replacements.now.is_none() {
            let Some(name) = self.replacements.queue.pop_front() else {
                if let Some(client) = self.replacements.client.take() {
                    self.finish(client, Ok(()));
                }
                return;
            };
            let Some(guest) = self.guests.get(&name).filter(|guest| guest.process.is_some()) else { continue };
            if let Err(why) = may_be_replaced(self.topology.guests[&name].external, guest) {
                self.keep(&name, why);
                continue;
            }
            let now = Instant::now();
            self.replacements.now = Some(Box::new(Replacement {
                guest: name.clone(),
                step: Step::Asking,
                until: now + ANSWER_TIME_MAX,
                successor: None,
                incarnation: None,
                renewals: Vec::new(),
                learned: 0,
                quiet_since: now,
            }));
            self.send_order(&name, &Order::Prepare, Vec::new());
        }
    }

    /// Reports to the client that the process of a guest is not replaced.
    fn keep(&mut self, guest: &Name, why: String) {
        self.log.of_guest(guest, &format!("guest {guest}: the process is not replaced: {why}"));
        if let Some(client) = self.replacements.client {
            self.answer(client, &Answer::Kept { guest: guest.clone(), why });
        }
    }

    /// Handles the answer of the present process to `Prepare`.
    pub(super) fn guest_prepared(&mut self, name: &Name, why_not: Option<String>) {
        let Some(now) = &self.replacements.now else { return };
        if now.guest != *name || now.step != Step::Asking {
            return;
        }
        let started = match why_not {
            Some(why) => Err(Error::environment(why)),
            None => self.start_successor(name),
        };
        if let Err(error) = started {
            self.abandon(error.message());
        }
    }

    fn start_successor(&mut self, name: &Name) -> Result<()> {
        let (channel, other) = Channel::pair()?;
        let network = self.run.path().file_name().unwrap_or_default().to_string_lossy();
        let shown = format!("{network}/{name}");
        let [net, guest] = if self.topology.guests[name].is_switch { SWITCH_ARGUMENTS } else { GUEST_ARGUMENTS };
        let null = rustix::fs::open(
            "/dev/null",
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        );
        let null = null.context("/dev/null")?;
        let process = Running::Own(self.launcher.start(&[net, guest, &shown], other, null)?);
        let process = (self.watch(process.pidfd(), Source::SuccessorProcess)?, process);
        let channel = (self.watch(&channel, Source::SuccessorChannel)?, channel);
        if let Some(now) = &mut self.replacements.now {
            (now.step, now.until) = (Step::Starting, Instant::now() + START_TIME_MAX);
            now.successor = Some(Successor { channel, process });
        }
        Ok(())
    }

    /// Handles the events of the new process.
    pub(super) fn receive_from_successor(&mut self) {
        for _ in 0..GUEST_EVENTS_AT_ONCE_MAX {
            let Some(now) = &mut self.replacements.now else { return };
            let Some(Successor { channel: (key, channel), .. }) = &mut now.successor else { return };
            if channel.is_behind() && channel.flush().is_ok() {
                self.events.set_behind(*key, &*channel, channel.is_behind());
            }
            match channel.receive::<GuestEvent>() {
                Ok(None) => return,
                Ok(Some((event, descriptors))) => {
                    if let Err(error) = self.handle_successor(event, descriptors) {
                        self.abandon(error.message());
                    }
                }
                Err(_) => self.abandon("the new process has closed its channel"),
            }
        }
    }

    fn handle_successor(&mut self, event: GuestEvent, mut descriptors: Vec<OwnedFd>) -> Result<()> {
        let Some(now) = &mut self.replacements.now else { return Ok(()) };
        let (name, step) = (now.guest.clone(), now.step);
        match event {
            GuestEvent::Hello { protocol: PROTOCOL, .. } if step == Step::Starting => self.configure_successor(&name),
            GuestEvent::Prepared { .. } if step == Step::Starting => self.begin_pairing(&name),
            GuestEvent::Memory { pair } => {
                if let Some(renewing) = now.renewing(pair) {
                    renewing.memory[0] = descriptors.pop();
                }
                self.advance();
                Ok(())
            }
            GuestEvent::Lost { pair, why } => {
                Err(Error::environment(format!("the new process cannot make ring pair {}: {why}", pair.0)))
            }
            GuestEvent::Failed(error) => Err(error),
            GuestEvent::Hello { .. }
            | GuestEvent::Ready { .. }
            | GuestEvent::Inventory { .. }
            | GuestEvent::Port { .. }
            | GuestEvent::Couple { .. }
            | GuestEvent::ApplicationMemory { .. }
            | GuestEvent::Direct { .. }
            | GuestEvent::ApplicationEnded { .. }
            | GuestEvent::Linked { .. }
            | GuestEvent::Idle { .. }
            | GuestEvent::Quiet { .. }
            | GuestEvent::PortLost { .. }
            | GuestEvent::Account { .. }
            | GuestEvent::Report { .. }
            | GuestEvent::Pong { .. }
            | GuestEvent::CaptureEnded { .. }
            | GuestEvent::Prepared { .. }
            | GuestEvent::Learned { .. }
            | GuestEvent::Retired => Err(Error::environment("the new process sent an unexpected message")),
        }
    }

    fn send_to_successor(&mut self, order: &Order, descriptors: Vec<OwnedFd>) -> Result<()> {
        let now = self.replacements.now.as_mut();
        let Some(Successor { channel: (key, channel), .. }) = now.and_then(|now| now.successor.as_mut()) else {
            return Ok(());
        };
        let sent = channel.send(order, descriptors);
        self.events.set_behind(*key, &*channel, channel.is_behind());
        Ok(sent?)
    }

    fn configure_successor(&mut self, name: &Name) -> Result<()> {
        let config = self.config_of(name, true);
        let socket = bind(&self.run.successor())?;
        self.send_to_successor(&Order::Configure(Box::new(config)), vec![socket])?;
        for (device, member) in self.members_of(name) {
            self.send_to_successor(&Order::Member { device, member }, Vec::new())?;
        }
        self.send_to_successor(&Order::Prepare, Vec::new())
    }

    /// Lets the new process and the partners make the new pairs.
    fn begin_pairing(&mut self, name: &Name) -> Result<()> {
        let pid = self.replacements.now.as_ref().and_then(|now| Some(now.successor.as_ref()?.process.1.pid()));
        if let Some(pid) = pid {
            self.limit(name, pid)?;
        }
        let before = self.state.incarnation(name);
        self.state.renew_incarnation(name)?;
        let renewals = self.pairs.renewals(self.state.issuer(), name);
        let orders: Vec<_> = renewals.iter().map(Renewal::orders).collect();
        if let Some(now) = &mut self.replacements.now {
            now.incarnation = Some(before);
            (now.step, now.until) = (Step::Pairing, Instant::now() + ANSWER_TIME_MAX);
            let begin = |renewal| Renewing { renewal, memory: [None, None], is_quiet: false };
            now.renewals = renewals.into_iter().map(begin).collect();
        }
        for out in orders.into_iter().flatten() {
            let Order::MakePair(held) = &out.order else { continue };
            let descriptors = self.parts_of(held)?;
            if out.to == *name {
                self.send_to_successor(&out.order, descriptors)?;
            } else {
                self.send_order(&out.to, &out.order, descriptors);
            }
        }
        self.advance();
        Ok(())
    }

    /// Returns true if a pair is to replace another one.
    pub(super) fn is_renewed(&self, pair: RingPairId) -> bool {
        let now = self.replacements.now.as_ref();
        now.is_some_and(|now| now.renewals.iter().any(|renewing| renewing.renewal.new == pair))
    }

    /// Keeps the memory file of a partner for a new pair.
    pub(super) fn renewed_memory(&mut self, from: &Name, pair: RingPairId, memory: Option<OwnedFd>) {
        let now = self.replacements.now.as_mut();
        if let Some(renewing) = now.and_then(|now| now.renewing(pair))
            && renewing.renewal.partner == *from
        {
            renewing.memory[1] = memory;
        }
        self.advance();
    }

    /// Handles the event that a partner could not make its end of a new pair. The guests ask for another one later.
    pub(super) fn renewal_lost(&mut self, pair: RingPairId) {
        self.drop_renewals(|renewing| renewing.renewal.new == pair);
        self.advance();
    }

    fn drop_renewals(&mut self, are_dropped: impl Fn(&Renewing) -> bool) {
        let Some(now) = &mut self.replacements.now else { return };
        let dropped: Vec<Renewing> = now.renewals.extract_if(.., |renewing| are_dropped(renewing)).collect();
        for Renewing { renewal, .. } in dropped {
            self.doorbells.remove(&renewal.new);
            let unpair = Order::Unpair { pair: renewal.new, why: "the ring pair was not completed".to_owned() };
            let _ = self.send_to_successor(&unpair, Vec::new());
            self.send_order(&renewal.partner, &unpair, Vec::new());
        }
    }

    /// Records that a partner has stopped sending over its old pair. Returns false if the pair is not about to be replaced.
    pub(super) fn is_quieted(&mut self, from: &Name, pair: RingPairId) -> bool {
        let Some(now) = self.replacements.now.as_mut().filter(|now| now.step == Step::Quieting) else { return false };
        let is = |renewing: &&mut Renewing| renewing.renewal.old == pair && renewing.renewal.partner == *from;
        let Some(renewing) = now.renewals.iter_mut().find(is) else { return false };
        renewing.is_quiet = true;
        self.advance();
        true
    }

    /// Passes addresses that the present process of a switch has learned to the new one.
    pub(super) fn guest_learned(&mut self, name: &Name, addresses: Vec<KnownAddress>) {
        let Some(now) = self.replacements.now.as_mut().filter(|now| now.guest == *name) else { return };
        now.learned += addresses.len();
        if now.step == Step::Retiring && now.learned <= SWITCH_MACS_MAX && addresses.len() <= REPORT_ADDRESSES_MAX {
            // If it cannot be sent, the new process has ended, which is found out soon.
            let _ = self.send_to_successor(&Order::Learn { addresses }, Vec::new());
        }
    }

    /// Handles the answer of the present process to `Retire`.
    pub(super) fn guest_retired(&mut self, name: &Name) {
        let is_awaited = |now: &Replacement| now.guest == *name && now.step == Step::Retiring;
        if self.replacements.now.as_deref().is_some_and(is_awaited) {
            self.change(name, true);
        }
    }

    /// Handles the end of a guest's process: of the one that is being replaced, or of a partner.
    pub(super) fn guest_ended_in_replacement(&mut self, name: &Name) {
        let Some(now) = &self.replacements.now else { return };
        if now.guest == *name {
            self.abandon("the process has ended by itself; its next process has the new build");
            return;
        }
        self.drop_renewals(|renewing| renewing.renewal.partner == *name);
        self.advance();
    }

    /// Goes on with the next step if all have answered.
    fn advance(&mut self) {
        let Some(now) = &self.replacements.now else { return };
        let (name, renewals) = (now.guest.clone(), &now.renewals);
        match now.step {
            Step::Pairing if renewals.iter().all(|renewing| renewing.memory.iter().all(Option::is_some)) => {
                self.begin_quiet();
            }
            Step::Quieting if renewals.iter().all(|renewing| renewing.is_quiet) => self.begin_retiring(&name),
            Step::Asking | Step::Starting | Step::Pairing | Step::Quieting | Step::Retiring => {}
        }
    }

    fn begin_quiet(&mut self) {
        let Some(now) = &mut self.replacements.now else { return };
        now.quiet_since = Instant::now();
        (now.step, now.until) = (Step::Quieting, now.quiet_since + REPLACE_STEP_TIME_MAX);
        let old: Vec<_> = now.renewals.iter().map(|at| (at.renewal.partner.clone(), at.renewal.old)).collect();
        for (partner, pair) in old {
            self.send_order(&partner, &Order::Quiesce { pair }, Vec::new());
        }
        self.advance();
    }

    fn begin_retiring(&mut self, name: &Name) {
        if let Some(now) = &mut self.replacements.now {
            (now.step, now.until) = (Step::Retiring, Instant::now() + REPLACE_STEP_TIME_MAX);
        }
        self.send_order(name, &Order::Retire, Vec::new());
    }

    /// Ends a step whose time is over.
    pub(super) fn replacement_due(&mut self, at: Instant) {
        let Some(now) = self.replacements.now.as_ref().filter(|now| now.until <= at) else { return };
        let name = now.guest.clone();
        match now.step {
            Step::Asking => self.abandon("the process does not answer"),
            Step::Starting => self.abandon("the new process did not start before the timeout"),
            Step::Pairing if now.renewals.iter().any(|renewing| renewing.memory[0].is_none()) => {
                self.abandon("the new process did not make its ring pairs before the timeout");
            }
            Step::Pairing => {
                self.drop_renewals(|renewing| renewing.memory[1].is_none());
                self.advance();
            }
            Step::Quieting => self.begin_retiring(&name),
            // The process does not pass its frames on, for example because a partner does not take them.
            Step::Retiring => self.change(&name, false),
        }
    }

    /// Makes the new process the guest's process. `passed_on` is true if the present process has passed on all of its frames.
    fn change(&mut self, name: &Name, passed_on: bool) {
        let Some(Replacement { successor: Some(successor), renewals, quiet_since, .. }) =
            self.replacements.now.take().map(|now| *now)
        else {
            return;
        };
        let mut memory = Vec::new();
        let mut late = Vec::new();
        for Renewing { renewal, memory: [own, of_partner], is_quiet } in renewals {
            let pair = (renewal.new, passed_on && is_quiet);
            memory.push((renewal.partner.clone(), pair, own, of_partner));
            late.extend((!is_quiet).then(|| renewal.partner.to_string()));
            let orders = self.pairs.renew(renewal);
            self.send_all(None, orders);
        }
        let new: Vec<RingPairId> = memory.iter().map(|(_, (pair, _), _, _)| *pair).collect();
        let orders = self.pairs.gone_except(name, &new);
        self.send_all(None, orders);
        let old = self.put_in_place(name, successor);
        for (partner, (pair, continues), own, of_partner) in memory {
            let order = Order::PeerMemory { pair, continues };
            self.send_order(&partner, &order, own.into_iter().collect());
            self.send_order(name, &order, of_partner.into_iter().collect());
        }
        if let Err(error) = self.run_guest(name) {
            self.log.of_guest(name, &format!("guest {name}: {error}"));
        }
        self.ping_again(name);
        let gap_us = u64::try_from(quiet_since.elapsed().as_micros()).unwrap_or(u64::MAX);
        if !passed_on || !late.is_empty() {
            late.extend((!passed_on).then(|| name.to_string()));
            self.log.of_guest(name, &format!("guest {name}: too late to pass on all frames: {}", late.join(", ")));
        }
        self.finish_change(name, old, gap_us);
    }

    /// Puts the channel and the process of a successor in the place of the present ones. Returns the replaced process.
    fn put_in_place(&mut self, name: &Name, successor: Successor) -> Option<Running> {
        let Successor { channel: (channel_key, channel), process: (process_key, process) } = successor;
        self.events.remove(channel_key, &channel);
        self.events.remove(process_key, process.pidfd());
        let guest = self.guests.get_mut(name)?;
        let (old_channel, old_process) = (guest.channel.take(), guest.process.take());
        if let Some((key, channel)) = old_channel {
            self.events.remove(key, &channel);
        }
        let old = old_process.map(|(key, process)| {
            self.events.remove(key, process.pidfd());
            process
        });
        if let Err(error) =
            self.begin_process(name, Phase::Succeeds, process, channel).and_then(|()| self.run.succeed(name))
        {
            self.log.of_guest(name, &format!("guest {name}: {error}"));
        }
        match self.open_stderr(name) {
            Ok(stderr) => self.send_order(name, &Order::Stderr, vec![stderr]),
            Err(error) => self.log.of_guest(name, &format!("guest {name}: {error}")),
        }
        old
    }

    /// Ends the replaced process, and reports the replacement to the client.
    fn finish_change(&mut self, name: &Name, old: Option<Running>, gap_us: u64) {
        if let Err(error) = self.state.write(&self.run, &self.topology, false) {
            self.log.of_guest(name, &format!("guest {name}: {error}"));
        }
        let pid = |process: &Running| process.pid().as_raw_nonzero().get().unsigned_abs();
        let new = self.guests.get(name).and_then(|guest| guest.process.as_ref()).map_or(0, |(_, process)| pid(process));
        let pids = [old.as_ref().map_or(0, pid), new];
        if let Some(old) = old {
            self.end_replaced(old);
        }
        let line = format!("guest {name}: process {} has replaced process {}, gap {gap_us} us", pids[1], pids[0]);
        self.log.of_guest(name, &line);
        if let Some(client) = self.replacements.client {
            self.answer(client, &Answer::Replaced { guest: name.clone(), pids, gap_us });
        }
        self.replace_next();
    }

    /// Kills a process that is not needed any more, and waits for its end without blocking.
    fn end_replaced(&mut self, process: Running) {
        // An error means that the process has already ended.
        let _ = pidfd_send_signal(process.pidfd(), Signal::KILL);
        let registration = self.events.next_registration();
        if self.watch(process.pidfd(), Source::Replaced(registration)).is_ok() {
            self.replacements.replaced.insert(registration, process);
        }
    }

    /// Gives the present replacement up. The present process goes on.
    pub(super) fn abandon(&mut self, why: &str) {
        let Some(now) = self.replacements.now.take() else { return };
        let Replacement { guest: name, step, successor, incarnation, renewals, .. } = *now;
        if let Some(Successor { channel: (channel_key, channel), process: (process_key, process) }) = successor {
            self.events.remove(channel_key, &channel);
            self.events.remove(process_key, process.pidfd());
            self.end_replaced(process);
        }
        if let Some(number) = incarnation {
            self.state.restore_incarnation(&name, number);
        }
        if step == Step::Retiring {
            self.send_order(&name, &Order::Resume, Vec::new());
        }
        for Renewing { renewal: Renewal { old, new, partner, .. }, .. } in renewals {
            self.doorbells.remove(&new);
            let unpair = Order::Unpair { pair: new, why: "the partner's process was not replaced".to_owned() };
            self.send_order(&partner, &unpair, Vec::new());
            if step >= Step::Quieting {
                let orders = self.pairs.end_to_renew(old);
                self.send_all(None, orders);
            }
        }
        self.keep(&name, why.to_owned());
        if self.guests.get(&name).is_some_and(Guest::runs) {
            for (asker, other) in self.pairs.wanted_with(&name) {
                self.couple(&asker.guest, asker.device, other);
            }
        }
        self.replace_next();
    }
}

/// Returns the reason why the process of a guest cannot be replaced.
fn may_be_replaced(is_external: bool, guest: &Guest) -> Result<(), String> {
    if is_external {
        return Err("the guest is external: the process of its user has the stack".to_owned());
    }
    if !guest.runs() {
        return Err("the guest is starting".to_owned());
    }
    match guest.applications.len() {
        0 => Ok(()),
        count => Err(format!("applications use the stack of the guest: {count}")),
    }
}
