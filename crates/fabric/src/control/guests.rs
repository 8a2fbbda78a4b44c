//! The guests of a control program: this module starts, adopts, configures, restarts and ends guests, and sends orders to them. To
//! *adopt* a guest is to take over a process that already runs.
//!
//! `guest_events.rs` handles the events that guests send.

use super::peer::Peer;
use super::token_bucket::TokenBucket;
use super::{Control, Source, Stage, bind};
use crate::isolate::launch::Process;
use crate::limits::{PAIRS_PER_SECOND, RESTART_SETTLED, RESTART_WAIT, RESTART_WAIT_MAX, START_TIME_MAX};
use crate::protocol::channel::{Channel, Unsent};
use crate::protocol::message::{GuestConfig, GuestDevice, Member, Order, PROTOCOL, SwitchConfig};
use crate::protocol::request::{GuestState, GuestStatus, Moment};
use crate::protocol::ticket::ApplicationId;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, geteuid, pidfd_send_signal};
use siga_model::error::{Error, IoContext, Result};
use siga_model::limits::PAIRS_DEFAULT;
use siga_model::name::Name;
use siga_model::topology::Restart;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The command-line arguments of a guest's process.
pub(super) const GUEST_ARGUMENTS: [&str; 2] = ["net", "guest"];
/// The command-line arguments of a switch's process.
pub(super) const SWITCH_ARGUMENTS: [&str; 2] = ["net", "switch"];

/// The process of a guest.
#[derive(Debug)]
pub(super) enum Running {
    /// A process that this control program started.
    Own(Process),
    /// A process that this control program did not start. Either an earlier control program started it, or a user did (an external
    /// guest).
    Adopted(Peer),
}

impl Running {
    pub(super) fn pid(&self) -> Pid {
        match self {
            Self::Own(process) => process.pid(),
            Self::Adopted(peer) => peer.pid,
        }
    }

    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(process) => process.pidfd(),
            Self::Adopted(peer) => peer.pidfd.as_fd(),
        }
    }
}

/// The phase of a guest's process. The phase decides which events the guest may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The process was started. It may send `Hello`.
    Begun,
    /// The process has received its configuration. It may send `Ready`.
    Configured,
    /// The process has replaced one that ran, and does its work. It may send `Ready`.
    Succeeds,
    /// The process already ran when this control program started. It may send the parts of its `Inventory` (its list of pairs and
    /// applications) until the last part.
    Adopted,
    /// The guest runs.
    Runs,
}

/// The state of a guest.
#[derive(Debug, Default)]
pub(super) struct Guest {
    pub(super) channel: Option<(u64, Channel)>,
    pub(super) process: Option<(u64, Running)>,
    /// The phase of the guest's process; `None` if it has no process.
    pub(super) phase: Option<Phase>,
    /// The time at which the guest's process was started or adopted.
    begun: Option<Instant>,
    /// The applications that use the guest's stack.
    pub(super) applications: BTreeSet<ApplicationId>,
    /// Limits how often the guest may ask for ring pairs.
    pub(super) pairs: Option<TokenBucket>,
    confinement: String,
    /// How many times in a row the guest ended soon after its start.
    failures: u32,
    ended: Option<String>,
    /// The time at which the control program will start the guest again; `None` if it will not.
    start_at: Option<Instant>,
}

impl Guest {
    pub(super) fn is_starting(&self) -> bool {
        self.phase.is_some_and(|phase| phase != Phase::Runs)
    }

    pub(super) fn runs(&self) -> bool {
        self.phase == Some(Phase::Runs)
    }

    /// Returns the time from which the guest's start counts as failed; `None` if the guest is not starting.
    fn late_at(&self) -> Option<Instant> {
        self.begun.filter(|_| self.is_starting()).map(|begun| begun + START_TIME_MAX)
    }

    /// Returns the time of the guest's next start or the deadline of its current start, whichever is earlier.
    pub(super) fn due(&self) -> Option<Instant> {
        self.start_at.into_iter().chain(self.late_at()).min()
    }

    /// Returns true if the guest will be started again.
    pub(super) fn will_start(&self) -> bool {
        self.start_at.is_some()
    }

    /// Cancels the planned start of the guest.
    pub(super) fn stays_ended(&mut self) {
        self.start_at = None;
    }
}

impl Control {
    /// Kills a guest's process. The process of an external guest belongs to its user, so the control program only closes the
    /// channel to it.
    pub(super) fn kill(&mut self, name: &Name) {
        if self.topology.guests[name].external {
            self.channel_ended(name);
        } else if let Some((_, process)) = self.guests.get(name).and_then(|guest| guest.process.as_ref()) {
            // An error means that the process has already ended.
            let _ = pidfd_send_signal(process.pidfd(), Signal::KILL);
        }
    }

    /// Adopts the guests that already run, and starts the others.
    pub(super) fn begin_guests(&mut self) -> Result<()> {
        let mut names: Vec<Name> = self.guests.keys().cloned().collect();
        names.retain(|name| !self.adopt(name));
        // A guest that does not accept a connection cannot be adopted, but its process may still be alive. Kill that process here,
        // because no later step does.
        names.iter().for_each(|name| self.cgroup.iter().for_each(|cgroup| cgroup.end(name)));
        names.iter().try_for_each(|name| self.state.renew_incarnation(name))?;
        self.write_state()?;
        for name in names {
            if !self.topology.guests[&name].external && !self.state.stopped.contains(&name) && self.may_begin(&name) {
                self.start_guest(&name);
            }
        }
        Ok(())
    }

    /// Returns false for the switch of a network whose owner is a guest that does not run. It starts with its owner.
    fn may_begin(&self, name: &Name) -> bool {
        !self.topology.guests[name].is_switch || self.exists(name)
    }

    pub(super) fn start_guest(&mut self, name: &Name) {
        if let Err(error) = self.try_start(name) {
            self.log.of_guest(name, &format!("guest {name}: {error}"));
            self.guest_failed(name, error);
            // Normally the end of a guest's process schedules a restart. This guest has no process, so schedule the restart here.
            let start_at = (!self.is_stopping()).then(|| Instant::now() + RESTART_WAIT_MAX);
            if let Some(guest) = self.guests.get_mut(name) {
                guest.start_at = start_at;
            }
        }
    }

    fn try_start(&mut self, name: &Name) -> Result<()> {
        let (channel, other) = Channel::pair()?;
        let stderr = self.open_stderr(name)?;
        // The last argument shows in `ps` which guest of which network the process is. The process itself ignores it.
        let network = self.run.path().file_name().unwrap_or_default().to_string_lossy();
        let shown = format!("{network}/{name}");
        let [net, guest] = if self.topology.guests[name].is_switch { SWITCH_ARGUMENTS } else { GUEST_ARGUMENTS };
        let process = self.launcher.start(&[net, guest, &shown], other, stderr)?;
        if let Err(error) = self.limit(name, process.pid()) {
            process.signal(Signal::KILL)?;
            return Err(error);
        }
        self.log.of_guest(name, &format!("guest {name}: started, process {}", process.pid()));
        self.begin_process(name, Phase::Begun, Running::Own(process), channel)
    }

    /// Records the new process of a guest and the channel to it, and watches both.
    pub(super) fn begin_process(
        &mut self,
        name: &Name,
        phase: Phase,
        process: Running,
        channel: Channel,
    ) -> Result<()> {
        let process = (self.watch(process.pidfd(), Source::Process(name.clone()))?, process);
        let channel = (self.watch(&channel, Source::Channel(name.clone()))?, channel);
        let (pairs_max, now) = (self.topology.guests[name].pairs_max, Instant::now());
        if let Some(guest) = self.guests.get_mut(name) {
            (guest.process, guest.channel) = (Some(process), Some(channel));
            (guest.phase, guest.begun, guest.start_at) = (Some(phase), Some(now), None);
            // The bucket has at least one token for each pair, because a guest may request all its pairs right after its start.
            guest.pairs = Some(TokenBucket::new(pairs_max.max(PAIRS_DEFAULT).into(), PAIRS_PER_SECOND, now));
        }
        Ok(())
    }

    /// Adopts a guest that an earlier control program left running. Returns true if the guest runs and the order `Adopt` was sent
    /// to it.
    fn adopt(&mut self, name: &Name) -> bool {
        let connect = || -> Option<(Channel, Running)> {
            let address = SocketAddrUnix::new(self.run.guest(name)).ok()?;
            // The socket is non-blocking, so that a guest that does not accept the connection cannot block this process.
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
            net::connect(&socket, &address).ok()?;
            // Send the secret only to a process of this user.
            net::sockopt::socket_peercred(&socket).ok().filter(|peer| peer.uid == geteuid())?;
            let process = Running::Adopted(Peer::of(&socket).ok()?);
            Some((Channel::new(socket).ok()?, process))
        };
        let Some((mut channel, process)) = connect() else { return false };
        let secret = self.state.secrets[name].control.clone();
        let mut adopted = channel.send(&Order::Adopt { protocol: PROTOCOL, secret }, Vec::new()).is_ok();
        if adopted && !self.topology.guests[name].external {
            // The earlier control program already limited this process. This control program sets the limits again, because it also
            // records them for the status. The pipe for standard error closed with the earlier control program, so the guest gets a
            // new one.
            adopted = self.limit(name, process.pid()).is_ok();
            let stderr = self.open_stderr(name);
            adopted &= stderr.is_ok_and(|stderr| channel.send(&Order::Stderr, vec![stderr]).is_ok());
        }
        adopted && self.begin_process(name, Phase::Adopted, process, channel).is_ok()
    }

    /// Attaches an external guest whose process has proved its identity by a secret. The process's connection becomes the guest's
    /// channel.
    pub(super) fn attach(&mut self, name: &Name, key: u64, channel: Channel) -> Result<()> {
        self.events.remove(key, &channel);
        let process =
            Running::Adopted(Peer::of(&channel).context("cannot watch the process that attaches as a guest")?);
        self.log.of_guest(name, &format!("guest {name}: attached, process {}", process.pid()));
        self.begin_process(name, Phase::Begun, process, channel)?;
        self.configure(name)
    }

    /// Sends a guest its configuration and the list of its partners (the guests with which it shares a network).
    pub(super) fn configure(&mut self, name: &Name) -> Result<()> {
        let config = self.config_of(name, false);
        let socket = bind(&self.run.guest(name))?;
        self.send_order(name, &Order::Configure(Box::new(config)), vec![socket]);
        for (device, member) in self.members_of(name) {
            self.send_order(name, &Order::Member { device, member }, Vec::new());
        }
        self.run_guest(name)
    }

    /// Sends a guest that has its configuration the orders that let it run.
    pub(super) fn run_guest(&mut self, name: &Name) -> Result<()> {
        if self.topology.guests[name].is_switch {
            self.send_ports(name)?;
            if self.state.mirrors.contains_key(name) {
                self.send_mirror(name);
            }
        }
        self.send_order(name, &Order::Run, Vec::new());
        if let Some(guest) = self.guests.get_mut(name) {
            guest.phase = Some(Phase::Configured);
        }
        Ok(())
    }

    /// Returns the configuration of a guest. `replaces` is true for a process that is to replace the present one.
    pub(super) fn config_of(&self, name: &Name, replaces: bool) -> GuestConfig {
        let guest = &self.topology.guests[name];
        GuestConfig {
            name: name.clone(),
            forwarding: guest.forwarding,
            waiting: guest.waiting,
            devices: guest.devices.iter().map(|device| GuestDevice::of(&self.topology, device)).collect(),
            routes: guest.routes.clone(),
            tcp: guest.tcp.clone(),
            tcp_to: guest.tcp_to.clone(),
            allow: guest.allow.clone(),
            secret: self.state.secrets[name].control.clone(),
            switch: SwitchConfig::of(&self.topology, name).filter(|_| guest.is_switch),
            replaces,
        }
    }

    /// Returns the partners of a guest. Each partner is listed with the device through which the guest reaches it.
    pub(super) fn members_of(&self, name: &Name) -> Vec<(Name, Member)> {
        let mut members = Vec::new();
        for own in &self.topology.guests[name].devices {
            if !self.topology.admits(&own.network, name) {
                continue;
            }
            for (guest, device) in self.topology.partners(name, own) {
                if self.topology.admits(&own.network, guest) {
                    members.push((own.name.clone(), Member::of(&self.topology, guest, device)));
                }
            }
        }
        members
    }

    /// Sends an order to a guest if the control program has a channel to it. Ends the guest if the channel's outbox is full or the
    /// channel's other end is closed.
    pub(super) fn send_order(&mut self, name: &Name, order: &Order, descriptors: Vec<OwnedFd>) {
        self.send_order_because(None, name, order, descriptors);
    }

    /// Sends an order like [`Control::send_order`]. `cause` is the guest whose event led to the order; `None` if no guest did.
    pub(super) fn send_order_because(
        &mut self,
        cause: Option<&Name>,
        name: &Name,
        order: &Order,
        descriptors: Vec<OwnedFd>,
    ) {
        let Some((key, channel)) = self.guests.get_mut(name).and_then(|guest| guest.channel.as_mut()) else { return };
        let sent = channel.send_because(cause, order, descriptors);
        self.events.set_behind(*key, &*channel, channel.is_behind());
        match sent {
            Ok(()) => {}
            // The control program itself made an order that is too long. The guest is not at fault, so it keeps running.
            Err(unsent @ Unsent::TooLong { .. }) => {
                self.log.of_guest(
                    name,
                    &format!("the control program could not send an order to guest {name}: {}", Error::from(unsent)),
                );
            }
            Err(unsent @ (Unsent::Behind | Unsent::Closed(_))) => {
                self.log.of_guest(name, &format!("guest {name}: {}", Error::from(unsent)));
                self.channel_ended(name);
            }
        }
    }

    /// Closes the channel to a guest. Also ends the guest's process, because the control program cannot control a guest without a
    /// channel.
    pub(super) fn channel_ended(&mut self, name: &Name) {
        let Some(guest) = self.guests.get_mut(name) else { return };
        if let Some((key, channel)) = guest.channel.take() {
            self.events.remove(key, &channel);
        }
        if self.topology.guests[name].external {
            if let Some((key, process)) = guest.process.take() {
                self.events.remove(key, process.pidfd());
            }
            self.ended(name, "it detached", true);
        } else {
            self.kill(name);
        }
    }

    pub(super) fn process_ended(&mut self, name: &Name) {
        let Some((key, mut process)) = self.guests.get_mut(name).and_then(|guest| guest.process.take()) else { return };
        self.events.remove(key, process.pidfd());
        let (how, clean) = match &mut process {
            Running::Own(process) => match process.try_wait() {
                Ok(Some(status)) => (status.to_string(), status.success()),
                _ => ("it ended".to_owned(), false),
            },
            Running::Adopted(_) => ("it ended".to_owned(), false),
        };
        let how = if self.reached_its_limit(name) { format!("{how}: the guest reached its memory limit") } else { how };
        // Handle the events and the output that the guest sent before it ended, before its channel is closed.
        self.receive_from_guest(name);
        self.close_stderr(name);
        if let Some((key, channel)) = self.guests.get_mut(name).and_then(|guest| guest.channel.take()) {
            self.events.remove(key, &channel);
        }
        self.ended(name, &how, clean);
    }

    /// Handles the end of a guest: orders its partners to drop their pairs with it, and schedules a restart if the guest's
    /// `restart` setting asks for one.
    fn ended(&mut self, name: &Name, how: &str, clean: bool) {
        self.log.of_guest(name, &format!("guest {name}: ended: {how}"));
        self.guest_ended_in_replacement(name);
        let orders = self.pairs.gone(name);
        self.send_all(Some(name), orders);
        self.applications_gone(name);
        self.guest_silent(name);
        let (starting, stopping) = (matches!(self.stage, Stage::Starting { is_new: true, .. }), self.is_stopping());
        let external = self.topology.guests[name].external;
        let again = !external && !clean && !stopping && self.topology.guests[name].restart == Restart::OnFailure;
        let again = again && !self.state.stopped.contains(name) && self.may_begin(name);
        let ready = self.state.ready.remove(name);
        let has_run = ready.is_some_and(|ready| u128::from(ready.elapsed_ms()) >= RESTART_SETTLED.as_millis());
        if again {
            *self.state.restarts.entry(name.clone()).or_default() += 1;
        }
        if !stopping && let Err(error) = self.begin_incarnation(name) {
            self.log.of_guest(name, &format!("guest {name}: {error}"));
        }
        let Some(guest) = self.guests.get_mut(name) else { return };
        let was_starting = guest.is_starting();
        (guest.phase, guest.pairs) = (None, None);
        guest.ended = Some(how.to_owned());
        if starting && was_starting && !external {
            self.begin_stop(Some(Error::environment(format!("guest {name} did not start: {how}"))));
        } else if again {
            guest.failures = if has_run { 0 } else { guest.failures + 1 };
            let wait = match guest.failures {
                0 => Duration::ZERO,
                count => RESTART_WAIT.saturating_mul(1 << (count - 1).min(10)).min(RESTART_WAIT_MAX),
            };
            guest.start_at = Some(Instant::now() + wait);
        }
        self.follow_owners();
    }

    /// Invalidates the tickets of a guest's former process, for later control programs too. The state file is written without
    /// waiting for the disk. Otherwise a guest that ends again and again would slow down the control program.
    fn begin_incarnation(&mut self, name: &Name) -> Result<()> {
        self.state.renew_incarnation(name)?;
        self.state.write(&self.run, &self.topology, false)
    }

    pub(super) fn guests_due(&mut self, now: Instant) {
        let is_new = matches!(self.stage, Stage::Starting { is_new: true, .. });
        let due = |guest: &Guest| guest.due().is_some_and(|at| at <= now);
        let names: Vec<Name> =
            self.guests.iter().filter(|(_, guest)| due(guest)).map(|(name, _)| name.clone()).collect();
        for name in names {
            if !self.guests[&name].is_starting() {
                // The owner of a network may have ended since its switch got a time to start again.
                if self.may_begin(&name) {
                    self.start_guest(&name);
                } else if let Some(guest) = self.guests.get_mut(&name) {
                    guest.stays_ended();
                }
            } else if !is_new {
                // In a new network this time limit is not checked here, because `Stage::Starting` has the same limit for all guests
                // together.
                self.log.of_guest(&name, &format!("guest {name} did not start before the timeout"));
                if let Some(guest) = self.guests.get_mut(&name) {
                    guest.begun = None;
                }
                self.kill(&name);
            }
        }
    }

    /// Handles a guest's failure: kills its process. When the process has ended, [`Control::process_ended`] decides whether the
    /// guest is restarted.
    pub(super) fn guest_failed(&mut self, name: &Name, error: Error) {
        self.kill(name);
        let Some(guest) = self.guests.get_mut(name) else { return };
        guest.ended = Some(error.to_string());
        let external = self.topology.guests[name].external;
        if matches!(self.stage, Stage::Starting { is_new: true, .. }) && !external {
            self.begin_stop(Some(error.at(format!("guest {name}"))));
        }
    }

    pub(super) fn guest_ready(&mut self, name: &Name, confinement: String) {
        self.log.of_guest(name, &format!("guest {name}: runs, {confinement}"));
        if let Some(guest) = self.guests.get_mut(name) {
            let was_ready = guest.phase == Some(Phase::Adopted) && self.state.ready.contains_key(name);
            if !was_ready {
                self.state.ready.insert(name.clone(), Moment::now());
                if let Err(error) = self.state.write(&self.run, &self.topology, false) {
                    self.log.of_guest(name, &format!("guest {name}: {error}"));
                }
            }
            guest.phase = Some(Phase::Runs);
            guest.confinement = confinement;
            guest.ended = None;
        }
        for (asker, other) in self.pairs.wanted_with(name) {
            self.couple(&asker.guest, asker.device, other);
        }
        self.follow_owners();
    }

    /// Ends each pair of an earlier control program that only one of its guests has reported, if the other can no longer report it.
    pub(super) fn end_half_known(&mut self) {
        let may_still_report = |name: &Name| self.guests.get(name).is_some_and(Guest::is_starting);
        let orders = self.pairs.end_half_known(may_still_report);
        self.send_all(None, orders);
    }

    pub(super) fn stop_all(&mut self) {
        let names: Vec<Name> = self.guests.keys().cloned().collect();
        for name in names {
            self.send_order(&name, &Order::Stop, Vec::new());
            if let Some(guest) = self.guests.get_mut(&name) {
                guest.stays_ended();
            }
        }
    }

    pub(super) fn status_of(&self, name: &Name) -> Option<GuestStatus> {
        let guest = self.guests.get(name)?;
        let external = self.topology.guests[name].external;
        let state = match (&guest.process, guest.runs() || guest.phase == Some(Phase::Succeeds)) {
            (_, true) => GuestState::Running,
            (Some(_), false) => GuestState::Starting,
            (None, false) if external => GuestState::Waiting,
            (None, false) => GuestState::Ended,
        };
        let pid = guest.process.as_ref().map(|(_, process)| process.pid().as_raw_nonzero().get().unsigned_abs());
        let up_ms = self.state.ready.get(name).filter(|_| guest.runs()).map(|ready| ready.elapsed_ms());
        Some(GuestStatus {
            name: name.clone(),
            state,
            pid,
            restarts: self.state.restarts.get(name).copied().unwrap_or(0),
            up_ms,
            confinement: guest.confinement.clone(),
            pairs: self.pairs.count_of(name),
            ring_bytes: self.pairs.charged(name),
            ended: guest.ended.clone(),
            memory: pid.and_then(|_| self.memory_limits.get(name).cloned()),
            allow: self.topology.guests[name].allow.clone(),
        })
    }
}
