//! Guests of a control program: started, adopted, heard, told, started again, ended.

use super::{Control, Source, Stage, bind};
use crate::channel::{Channel, Ended};
use crate::error::{Error, IoContext, Result};
use crate::launch::Process;
use crate::limits::{RESTART_SETTLED, RESTART_WAIT, RESTART_WAIT_MAX};
use crate::message::{GuestConfig, GuestDevice, Loss, Member, MemberId, News, Order, PROTOCOL};
use crate::name::Name;
use crate::request::{Answer, GuestState, GuestStatus};
use crate::topology::Restart;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The arguments of a guest's process.
pub(super) const GUEST_ARGUMENTS: [&str; 2] = ["net", "guest"];

/// A guest's process.
#[derive(Debug)]
pub(super) enum Running {
    /// This control program started it.
    Own(Process),
    /// A predecessor did, or somebody else.
    Adopted {
        /// Its number.
        pid: Pid,
        /// Readable once it has ended.
        pidfd: OwnedFd,
    },
}

impl Running {
    fn pid(&self) -> Pid {
        match self {
            Self::Own(process) => process.pid(),
            Self::Adopted { pid, .. } => *pid,
        }
    }

    fn pidfd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(process) => process.pidfd(),
            Self::Adopted { pidfd, .. } => pidfd.as_fd(),
        }
    }
}

/// What is known of a guest.
#[derive(Debug, Default)]
pub(super) struct Guest {
    pub(super) channel: Option<(u64, Channel)>,
    pub(super) process: Option<(u64, Running)>,
    /// Its process is there, and it has not said that it runs.
    starting: bool,
    ready: Option<Instant>,
    confinement: String,
    restarts: u32,
    /// Ends in a row, each soon after the start.
    failures: u32,
    ended: Option<String>,
    /// When it is to be started again.
    pub(super) due: Option<Instant>,
}

impl Guest {
    pub(super) fn is_starting(&self) -> bool {
        self.starting
    }
}

impl Control {
    /// Ends a guest that does not end by itself. The process of an external guest is not ours to kill: it is let go of.
    pub(super) fn kill(&mut self, name: &Name) {
        if self.topology.guests[name].external {
            self.channel_ended(name);
        } else if let Some((_, process)) = self.guests.get(name).and_then(|guest| guest.process.as_ref()) {
            // It has ended, or it will.
            let _ = pidfd_send_signal(process.pidfd(), Signal::KILL);
        }
    }

    /// Finds guests that run already, and starts those that are to run.
    pub(super) fn begin_guests(&mut self) {
        let names: Vec<Name> = self.guests.keys().cloned().collect();
        for name in names {
            if self.adopt(&name) || self.topology.guests[&name].external || self.state.stopped.contains(&name) {
                continue;
            }
            self.start_guest(&name);
        }
    }

    pub(super) fn start_guest(&mut self, name: &Name) {
        if let Err(error) = self.try_start(name) {
            self.log.line(&format!("guest {name}: {error}"));
            self.guest_failed(name, error);
        }
    }

    fn try_start(&mut self, name: &Name) -> Result<()> {
        let (channel, other) = Channel::pair()?;
        let process = self.program.start(GUEST_ARGUMENTS, other)?;
        self.log.line(&format!("guest {name}: started, process {}", process.pid()));
        let process = Running::Own(process);
        let process = (self.events.add(process.pidfd(), Source::Process(name.clone()))?, process);
        let channel = (self.events.add(&channel, Source::Channel(name.clone()))?, channel);
        if let Some(guest) = self.guests.get_mut(name) {
            guest.due = None;
            guest.starting = true;
            (guest.process, guest.channel) = (Some(process), Some(channel));
        }
        Ok(())
    }

    /// True if the guest runs and was told of this control program.
    fn adopt(&mut self, name: &Name) -> bool {
        let connect = || -> Option<(Channel, Running)> {
            let address = SocketAddrUnix::new(self.run.guest(name)).ok()?;
            let flags = SocketFlags::CLOEXEC;
            let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
            net::connect(&socket, &address).ok()?;
            let pid = net::sockopt::socket_peercred(&socket).ok()?.pid;
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
            Some((Channel::new(socket).ok()?, Running::Adopted { pid, pidfd }))
        };
        let Some((mut channel, process)) = connect() else { return false };
        let token = self.state.secrets[name].control.clone();
        let adopted = channel.send(&Order::Adopt { protocol: PROTOCOL, token }, Vec::new()).is_ok();
        let source = Source::Process(name.clone());
        let process = self.events.add(process.pidfd(), source).map(|key| (key, process));
        let channel = self.events.add(&channel, Source::Channel(name.clone())).map(|key| (key, channel));
        let (Ok(process), Ok(channel), true) = (process, channel, adopted) else { return false };
        if let Some(guest) = self.guests.get_mut(name) {
            guest.starting = true;
            (guest.process, guest.channel) = (Some(process), Some(channel));
        }
        true
    }

    /// A process has proved to be an external guest: its connection becomes the guest's channel.
    pub(super) fn attach(&mut self, name: &Name, key: u64, channel: Channel) -> Result<()> {
        self.events.set_source(key, Source::Channel(name.clone()));
        let pid = net::sockopt::socket_peercred(&channel).context("who attaches cannot be seen")?.pid;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("who attaches cannot be watched")?;
        let process = Running::Adopted { pid, pidfd };
        let process_key = self.events.add(process.pidfd(), Source::Process(name.clone()))?;
        self.log.line(&format!("guest {name}: attached, process {pid}"));
        if let Some(guest) = self.guests.get_mut(name) {
            guest.starting = true;
            (guest.process, guest.channel) = (Some((process_key, process)), Some((key, channel)));
        }
        self.configure(name)
    }

    /// Tells a process what guest it is and who its partners are.
    fn configure(&mut self, name: &Name) -> Result<()> {
        let guest = &self.topology.guests[name];
        let config = GuestConfig {
            name: name.clone(),
            forwarding: guest.forwarding,
            waiting: guest.waiting,
            devices: guest.devices.iter().map(|device| GuestDevice::of(&self.topology, device)).collect(),
            routes: guest.routes.clone(),
            token: self.state.secrets[name].control.clone(),
        };
        let socket = bind(&self.run.guest(name))?;
        self.tell(name, &Order::Configure(Box::new(config)), vec![socket]);
        for (device, member) in self.members_of(name) {
            self.tell(name, &Order::Member { device, member }, Vec::new());
        }
        self.tell(name, &Order::Run, Vec::new());
        Ok(())
    }

    /// The partners of a guest, each with the own device that reaches it.
    pub(super) fn members_of(&self, name: &Name) -> Vec<(Name, Member)> {
        let mut members = Vec::new();
        for own in &self.topology.guests[name].devices {
            let access = &self.topology.networks[&own.network].access;
            if !access.admits(name) {
                continue;
            }
            for (guest, _, device) in self.topology.on(&own.network) {
                if guest != name && access.admits(guest) {
                    members.push((own.name.clone(), Member::of(&self.topology, guest, device)));
                }
            }
        }
        members
    }

    /// Sends an order to a guest, if it has a channel. One that takes none is killed.
    pub(super) fn tell(&mut self, name: &Name, order: &Order, descriptors: Vec<OwnedFd>) {
        let Some((key, channel)) = self.guests.get_mut(name).and_then(|guest| guest.channel.as_mut()) else { return };
        let sent = channel.send(order, descriptors);
        self.events.set_behind(*key, &*channel, channel.is_behind());
        if let Err(error) = sent {
            self.log.line(&format!("guest {name}: {error}"));
            self.channel_ended(name);
        }
    }

    pub(super) fn hear_guest(&mut self, name: &Name) {
        // A guest that talks without end must not keep the others from being heard.
        for _ in 0..64 {
            let Some((key, channel)) = self.guests.get_mut(name).and_then(|guest| guest.channel.as_mut()) else {
                return;
            };
            if channel.is_behind() && channel.flush().is_ok() {
                self.events.set_behind(*key, &*channel, channel.is_behind());
            }
            match channel.receive::<News>() {
                Ok(None) => return,
                Ok(Some((news, descriptors))) => self.news(name, news, descriptors),
                Err(ended) => {
                    if let Ended::Malformed(what) = ended {
                        self.log.line(&format!("guest {name}: it says what is no message: {what}"));
                    }
                    self.channel_ended(name);
                    return;
                }
            }
        }
    }

    /// A guest that cannot be talked to is of no use: its process ends, and with that its pairs.
    fn channel_ended(&mut self, name: &Name) {
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
            Running::Adopted { .. } => ("it ended".to_owned(), false),
        };
        // Its last words come before its end.
        self.hear_guest(name);
        if let Some((key, channel)) = self.guests.get_mut(name).and_then(|guest| guest.channel.take()) {
            self.events.remove(key, &channel);
        }
        self.ended(name, &how, clean);
    }

    /// A guest has ended: its partners are told, and it is started again if that is its way.
    fn ended(&mut self, name: &Name, how: &str, clean: bool) {
        self.log.line(&format!("guest {name}: ended: {how}"));
        let orders = self.pairs.gone(name);
        self.send_all(orders);
        self.applications_gone(name);
        self.guest_silent(name);
        let (rising, falling) = (matches!(self.stage, Stage::Rising { .. }), self.is_falling());
        let external = self.topology.guests[name].external;
        let again = !external && !clean && !falling && self.topology.guests[name].restart == Restart::OnFailure;
        let again = again && !self.state.stopped.contains(name);
        let Some(guest) = self.guests.get_mut(name) else { return };
        let settled = guest.ready.is_some_and(|at| at.elapsed() >= RESTART_SETTLED);
        let was_starting = std::mem::take(&mut guest.starting);
        (guest.ready, guest.ended) = (None, Some(how.to_owned()));
        if rising && was_starting {
            self.fall(Some(Error::environment(format!("guest {name} did not start: {how}"))));
        } else if again {
            guest.failures = if settled { 0 } else { guest.failures + 1 };
            let wait = match guest.failures {
                0 => Duration::ZERO,
                count => RESTART_WAIT.saturating_mul(1 << (count - 1).min(10)).min(RESTART_WAIT_MAX),
            };
            guest.due = Some(Instant::now() + wait);
            guest.restarts += 1;
        }
    }

    pub(super) fn guests_due(&mut self, now: Instant) {
        let due = |guest: &Guest| guest.due.is_some_and(|at| at <= now);
        let names: Vec<Name> =
            self.guests.iter().filter(|(_, guest)| due(guest)).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.start_guest(&name);
        }
    }

    fn guest_failed(&mut self, name: &Name, error: Error) {
        let falling = self.is_falling();
        self.kill(name);
        let Some(guest) = self.guests.get_mut(name) else { return };
        guest.ended = Some(error.to_string());
        if matches!(self.stage, Stage::Rising { .. }) {
            self.fall(Some(error.at(format!("guest {name}"))));
        } else if guest.process.is_none() {
            guest.due = (!falling).then(|| Instant::now() + RESTART_WAIT_MAX);
        }
    }

    fn news(&mut self, name: &Name, news: News, mut descriptors: Vec<OwnedFd>) {
        match news {
            News::Hello { protocol: PROTOCOL, .. } => {
                if let Err(error) = self.configure(name) {
                    self.guest_failed(name, error);
                }
            }
            News::Hello { protocol, version } => {
                let message =
                    format!("its program is of another version ({version}, protocol {protocol}, not {PROTOCOL})");
                self.guest_failed(name, Error::environment(message));
            }
            News::Ready { confinement } => self.guest_ready(name, confinement),
            News::Failed(error) => self.guest_failed(name, error),
            News::Inventory { confinement, pairs, applications } => {
                self.adopt_applications(name, &applications);
                pairs.iter().for_each(|held| self.pairs.adopt(name, held));
                self.guest_ready(name, confinement);
                self.end_half_known();
            }
            News::Couple { device, member } => self.couple(name, device, member),
            News::Memory { pair } => {
                if let (Some(order), Some(memory)) = (self.pairs.memory(pair, name), descriptors.pop()) {
                    self.tell(&order.to, &order.order, vec![memory]);
                }
            }
            News::ApplicationMemory { application } => self.guest_memory(name, application, descriptors),
            News::ApplicationEnded { application, why } => self.application_ended(name, application, &why),
            News::Linked { pair } => self.log_pair(name, pair, "linked"),
            News::Idle { pair } => {
                let orders = self.pairs.idle(pair, name);
                self.send_all(orders);
            }
            News::Quiet { pair } => {
                let orders = self.pairs.quiet(pair, name);
                self.send_all(orders);
            }
            News::Lost { pair, why } => {
                let text = format!("guest {name} detached: {why}");
                self.log_pair(name, pair, &text);
                let orders = self.pairs.lost(pair, name, &text, matches!(why, Loss::Violation(_)));
                self.send_all(orders);
            }
            News::Report { request, part } => self.report(request, name, part),
            News::Pong { request, time_ns } => self.answer_request(request, &Answer::Pong { time_ns }),
            News::CaptureEnded { missed } => self.capture_ended(name, missed),
        }
    }

    fn log_pair(&mut self, name: &Name, pair: crate::message::PairId, what: &str) {
        if let Some(partner) = self.pairs.partner(pair, name) {
            self.log.line(&format!("pair {}: guest {name} with {partner}: {what}", pair.0));
        }
    }

    fn guest_ready(&mut self, name: &Name, confinement: String) {
        self.log.line(&format!("guest {name}: runs, {confinement}"));
        if let Some(guest) = self.guests.get_mut(name) {
            guest.starting = false;
            guest.ready = Some(Instant::now());
            guest.confinement = confinement;
            guest.ended = None;
        }
        for (asker, other) in self.pairs.wanted_with(name) {
            self.couple(&asker.guest, asker.device, other);
        }
    }

    fn couple(&mut self, asker: &Name, device: Name, member: MemberId) {
        let own = MemberId { guest: asker.clone(), device: device.clone() };
        let runs = |guest: &Name| self.guests.get(guest).is_some_and(|guest| guest.ready.is_some());
        match self.pairs.want(&self.topology, &own, &member, runs) {
            Ok(orders) => self.send_all(orders),
            Err(why) => {
                self.log.line(&format!("guest {asker}: {own} does not couple to {member}: {why}"));
                self.tell(asker, &Order::Refused { device, member, why }, Vec::new());
            }
        }
    }

    /// Ends the pairs that only one of two guests told of when they were adopted.
    pub(super) fn end_half_known(&mut self) {
        let may_still_tell = |name: &Name| self.guests.get(name).is_some_and(Guest::is_starting);
        let orders = self.pairs.end_half_known(may_still_tell);
        self.send_all(orders);
    }

    pub(super) fn stop_all(&mut self) {
        let names: Vec<Name> = self.guests.keys().cloned().collect();
        for name in names {
            self.tell(&name, &Order::Stop, Vec::new());
            if let Some(guest) = self.guests.get_mut(&name) {
                guest.due = None;
            }
        }
    }

    pub(super) fn status_of(&self, name: &Name) -> Option<GuestStatus> {
        let guest = self.guests.get(name)?;
        let external = self.topology.guests[name].external;
        let state = match (&guest.process, guest.ready) {
            (_, Some(_)) => GuestState::Running,
            (Some(_), None) => GuestState::Starting,
            (None, None) if external => GuestState::Waiting,
            (None, None) => GuestState::Ended,
        };
        let pid = guest.process.as_ref().map(|(_, process)| process.pid().as_raw_nonzero().get().unsigned_abs());
        let up_ms = guest.ready.map(|at| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX));
        Some(GuestStatus {
            name: name.clone(),
            state,
            pid,
            restarts: guest.restarts,
            up_ms,
            confinement: guest.confinement.clone(),
            pairs: self.pairs.count_of(name),
            ring_bytes: self.pairs.charged(name),
            ended: guest.ended.clone(),
        })
    }
}
