//! Whoever asks a control program for something: the command line, and applications that attach.

use super::peer::has_hung_up;
use super::{Control, Source};
use crate::limits::ANSWER_TIME_MAX;
use crate::protocol::channel::{Channel, Ended, Unsent};
use crate::protocol::message::{GuestDevice, Order, PROTOCOL};
use crate::protocol::report::ReportPart;
use crate::protocol::request::{Answer, GuestState, Moment, NetworkStatus, Request, TimedRequest};
use crate::protocol::secret::Secret;
use crate::protocol::ticket::ApplicationId;
use rustix::net::sockopt;
use siga_model::error::{Error, Result};
use siga_model::name::Name;
use siga_model::topology::{Access, Device};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) channel: Channel,
    waits: Waits,
    /// It has made a request.
    has_asked: bool,
}

/// What a client waits for.
#[derive(Debug, PartialEq, Eq)]
enum Waits {
    /// Nothing: it may ask.
    Nothing,
    /// The half of a guest whose application it is.
    Application {
        application: ApplicationId,
        guest: Name,
        /// It has made its own half.
        has_passed_memory: bool,
        /// It has been given the guest's half.
        has_guest_memory: bool,
    },
    /// That all guests run.
    Start,
    /// That all is down.
    Down,
    /// Reports of these guests, and how many parts each may still send.
    Reports { request: u64, from: BTreeMap<Name, usize>, until: Instant },
    /// The outcome of a ping that this guest sends.
    Pong { request: u64, from: Name, until: Instant },
    /// The end of a capture, which ends with the connection.
    Capture(Name),
    /// That a guest runs or has ended.
    Guest { name: Name, state: GuestState, until: Instant },
}

impl Client {
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.waits {
            Waits::Nothing | Waits::Application { .. } | Waits::Start | Waits::Down | Waits::Capture(_) => None,
            Waits::Reports { until, .. } | Waits::Pong { until, .. } | Waits::Guest { until, .. } => Some(*until),
        }
    }
}

impl Control {
    pub(super) fn add_client(&mut self, connection: OwnedFd) -> Result<()> {
        let own = rustix::process::geteuid();
        if sockopt::socket_peercred(&connection).ok().is_none_or(|peer| peer.uid != own && !peer.uid.is_root()) {
            return Err(Error::usage("it is another user's"));
        }
        let channel = Channel::new(connection)?;
        let key = self.events.add(&channel, Source::Client(self.events.next_key()))?;
        self.clients.insert(key, Client { channel, waits: Waits::Nothing, has_asked: false });
        Ok(())
    }

    /// Whoever started this process waits until all guests run; with a lease, the network ends with the connection.
    pub(super) fn add_starter(&mut self, channel: Channel, lease: bool) -> Result<()> {
        let key = self.events.add(&channel, Source::Client(self.events.next_key()))?;
        self.lease = lease.then_some(key);
        self.clients.insert(key, Client { channel, waits: Waits::Start, has_asked: true });
        Ok(())
    }

    pub(super) fn receive_from_client(&mut self, key: u64) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        if client.channel.flush().is_ok() {
            self.events.set_behind(key, &client.channel, client.channel.is_behind());
        }
        match client.channel.receive::<TimedRequest>() {
            Ok(None) => {}
            Ok(Some((request, descriptors))) => self.take_up(key, request, descriptors),
            Err(Ended::Malformed(what)) => {
                let error = Error::usage(format!("what was asked is no request: {what}"));
                self.fail(key, error.hint("use one version of siga for both"));
                self.drop_client(key);
            }
            Err(Ended::Closed) => self.drop_client(key),
        }
    }

    /// Does what a client asks, unless the client has withdrawn it: by closing its connection, or because its time is over.
    fn take_up(&mut self, key: u64, TimedRequest { request, until }: TimedRequest, descriptors: Vec<OwnedFd>) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        match &mut client.waits {
            // An application that has the guest's half already needs this connection no more once it has sent its own.
            Waits::Application { application, guest, has_passed_memory: has_passed_memory @ false, .. }
                if matches!(request, Request::ApplicationMemory) && descriptors.len() == 2 =>
            {
                *has_passed_memory = true;
                let (application, guest) = (*application, guest.clone());
                self.application_memory(application, &guest, descriptors);
                self.answer(key, &Answer::TakenUp);
            }
            Waits::Nothing if has_hung_up(&client.channel).unwrap_or(true) => self.drop_client(key),
            Waits::Nothing if Moment::now() >= until => {
                self.fail(key, Error::environment("the request came too late: nothing was done"));
            }
            Waits::Nothing => {
                client.has_asked = true;
                self.answer(key, &Answer::TakenUp);
                self.request(key, request, descriptors);
            }
            Waits::Application { .. }
            | Waits::Start
            | Waits::Down
            | Waits::Reports { .. }
            | Waits::Pong { .. }
            | Waits::Capture(_)
            | Waits::Guest { .. } => self.fail(key, Error::usage("one request at a time")),
        }
    }

    /// Makes room for another client. Of those that wait for nothing, the one that has been connected for longest goes: first one that
    /// has never asked, then one of a process that is attached, as it may ask for little else, then any.
    pub(super) fn drop_idle_client(&mut self) -> bool {
        // The network would end with the connection of its lease.
        let may_go = |key: u64, client: &Client| client.waits == Waits::Nothing && self.lease != Some(key);
        let idle = || self.clients.iter().filter(|(key, client)| may_go(**key, client));
        let silent = idle().find(|(_, client)| !client.has_asked);
        let attached = || idle().find(|(_, client)| self.attached.is_of_one(&client.channel));
        let Some(key) = silent.or_else(attached).or_else(|| idle().next()).map(|(key, _)| *key) else { return false };
        self.drop_client(key);
        true
    }

    fn drop_client(&mut self, key: u64) {
        let Some(client) = self.clients.remove(&key) else { return };
        self.events.remove(key, &client.channel);
        if self.lease == Some(key) {
            self.begin_stop(None);
        }
        if let Waits::Capture(guest) = client.waits {
            self.send_order(&guest, &Order::CaptureStop, Vec::new());
        }
    }

    fn answer(&mut self, key: u64, answer: &Answer) {
        self.answer_with(key, answer, Vec::new());
    }

    pub(super) fn answer_with(&mut self, key: u64, answer: &Answer, descriptors: Vec<OwnedFd>) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        let sent = client.channel.send(answer, descriptors);
        self.events.set_behind(key, &client.channel, client.channel.is_behind());
        match sent {
            Ok(()) => {}
            // The fault is not the client's.
            Err(unsent @ Unsent::TooLong { .. }) => {
                self.log.of_clients(&format!("an answer was left out: {}", Error::from(unsent)));
            }
            Err(Unsent::Behind | Unsent::Closed(_)) => self.drop_client(key),
        }
    }

    /// Says the last of an answer.
    pub(super) fn finish(&mut self, key: u64, outcome: Result<()>) {
        if let Some(client) = self.clients.get_mut(&key) {
            client.waits = Waits::Nothing;
        }
        match outcome {
            Ok(()) => self.answer(key, &Answer::Done),
            Err(error) => self.fail(key, error),
        }
    }

    fn fail(&mut self, key: u64, error: Error) {
        self.answer(key, &Answer::Failed(error));
    }

    fn wait_for(&mut self, key: u64, waits: Waits) {
        if let Some(client) = self.clients.get_mut(&key) {
            client.waits = waits;
        }
    }

    fn request(&mut self, key: u64, request: Request, mut descriptors: Vec<OwnedFd>) {
        if let Err(error) = self.may_ask(key, &request) {
            self.finish(key, Err(error));
            return;
        }
        let outcome = match request {
            Request::Start { .. } => Err(Error::usage("this control program has begun")),
            Request::Status { detail } => {
                self.status(key, detail);
                return;
            }
            Request::Report(guest) => match self.running(&guest) {
                Ok(()) => {
                    self.ask_for_reports(key, &BTreeSet::from([guest]));
                    return;
                }
                Err(error) => Err(error),
            },
            Request::Down => {
                self.wait_for(key, Waits::Down);
                self.begin_stop(None);
                return;
            }
            Request::StartGuest(name) => self.ask_to_start(key, &name).map(|()| None),
            Request::StopGuest(name) => self.ask_to_stop(key, &name).map(|()| None),
            Request::Grant { network, guest } => self.set_access(&network, &guest, true).map(Some),
            Request::Revoke { network, guest } => self.set_access(&network, &guest, false).map(Some),
            Request::Secret { guest, application } => self.secret(key, &guest, application).map(Some),
            Request::Application { protocol, version, guest, secret } => {
                self.ask_for_application(key, (protocol, &version), &guest, &secret).map(|()| None)
            }
            Request::ApplicationMemory => Err(Error::usage("this process is no application")),
            Request::Attach { protocol, version, guest, secret } => {
                self.ask_to_attach(key, (protocol, &version), &guest, &secret);
                return;
            }
            Request::Ping { guest, to, bytes, timeout_ms } => {
                self.ping(key, &guest, to, bytes, timeout_ms).map(|()| None)
            }
            Request::Capture { guest, snap_bytes } => {
                self.capture(key, guest, snap_bytes, descriptors.pop()).map(|()| None)
            }
        };
        match outcome {
            Ok(None) => {}
            Ok(Some(())) => self.finish(key, Ok(())),
            Err(error) => self.finish(key, Err(error)),
        }
    }

    fn known(&self, guest: &Name) -> Result<()> {
        if self.guests.contains_key(guest) {
            return Ok(());
        }
        let names: Vec<&str> = self.guests.keys().map(Name::as_str).collect();
        Err(Error::usage(format!("there is no guest {guest}")).hint(format!("guests: {}", names.join(", "))))
    }

    pub(super) fn running(&self, guest: &Name) -> Result<()> {
        self.known(guest)?;
        match self.status_of(guest).map(|status| status.state) {
            Some(GuestState::Running) => Ok(()),
            _ => Err(Error::environment(format!("guest {guest} does not run"))),
        }
    }

    fn ask_to_start(&mut self, key: u64, name: &Name) -> Result<()> {
        self.known(name)?;
        if self.topology.guests[name].external {
            return Err(Error::usage(format!("guest {name} is external: it attaches by itself")));
        }
        if self.guests[name].process.is_some() {
            return Err(Error::usage(format!("guest {name} runs")));
        }
        self.state.stopped.remove(name);
        self.write_state()?;
        self.start_guest(name);
        let until = Instant::now() + crate::limits::START_TIME_MAX;
        self.wait_for(key, Waits::Guest { name: name.clone(), state: GuestState::Running, until });
        Ok(())
    }

    fn ask_to_stop(&mut self, key: u64, name: &Name) -> Result<()> {
        self.known(name)?;
        self.state.stopped.insert(name.clone());
        self.write_state()?;
        if let Some(guest) = self.guests.get_mut(name) {
            guest.stays_ended();
        }
        self.send_order(name, &Order::Stop, Vec::new());
        let until = Instant::now() + ANSWER_TIME_MAX;
        self.wait_for(key, Waits::Guest { name: name.clone(), state: GuestState::Ended, until });
        Ok(())
    }

    fn set_access(&mut self, network: &Name, guest: &Name, granted: bool) -> Result<()> {
        self.known(guest)?;
        let before = self.members_of(guest);
        let known = self.topology.networks.get_mut(network);
        let known = known.ok_or_else(|| Error::usage(format!("there is no network {network}")))?;
        let Access::Restricted(access) = &mut known.access else {
            return Err(Error::usage(format!("network {network} is open to all")));
        };
        let changed = if granted { access.insert(guest.clone()) } else { access.remove(guest) };
        if !changed {
            let word = if granted { "has" } else { "does not have" };
            return Err(Error::usage(format!("guest {guest} {word} access to network {network}")));
        }
        self.write_state()?;
        self.log.line(&format!("network {network}: {} guest {guest}", if granted { "grants" } else { "revokes" }));
        let orders = self.pairs.revoke(&self.topology, guest);
        self.send_all(None, orders);
        self.tell_of_members(guest, &before);
        Ok(())
    }

    /// Tells a guest and its partners what has changed between them.
    fn tell_of_members(&mut self, guest: &Name, before: &[(Name, crate::protocol::message::Member)]) {
        let after = self.members_of(guest);
        for (device, member) in before.iter().filter(|known| !after.contains(known)) {
            self.send_order(
                guest,
                &Order::MemberGone { device: device.clone(), member: member.id.clone() },
                Vec::new(),
            );
            let own = crate::protocol::message::MemberId { guest: guest.clone(), device: device.clone() };
            let order = Order::MemberGone { device: member.id.device.clone(), member: own };
            self.send_order(&member.id.guest, &order, Vec::new());
        }
        // A router's partners take packets from where it leads, which its access to one network changes on the others.
        let forwards = self.topology.guests[guest].forwarding;
        for (device, member) in &after {
            let is_new = !before.contains(&(device.clone(), member.clone()));
            if is_new {
                self.send_order(guest, &Order::Member { device: device.clone(), member: member.clone() }, Vec::new());
            }
            if !is_new && !forwards {
                continue;
            }
            let partner = member.id.guest.clone();
            for (device, own) in self.members_of(&partner) {
                if own.id.guest == *guest {
                    self.send_order(&partner, &Order::Member { device, member: own }, Vec::new());
                }
            }
        }
    }

    fn secret(&mut self, key: u64, guest: &Name, application: bool) -> Result<()> {
        self.known(guest)?;
        let secrets = &self.state.secrets[guest];
        let secret = if application { &secrets.application } else { &secrets.attach }.clone();
        self.answer(key, &Answer::Secret(secret));
        Ok(())
    }

    fn ask_to_attach(&mut self, key: u64, (protocol, version): (u32, &str), guest: &Name, secret: &Secret) {
        if let Err(error) = self.may_attach(protocol, version, guest, secret) {
            self.log.of_clients(&format!("a process that would be guest {guest} was refused: {error}"));
            self.finish(key, Err(error));
            return;
        }
        self.answer(key, &Answer::Welcome);
        let Some(client) = self.clients.remove(&key) else { return };
        if let Err(error) = self.attach(guest, key, client.channel) {
            self.log.of_guest(guest, &format!("guest {guest}: {error}"));
        }
    }

    fn may_attach(&self, protocol: u32, version: &str, guest: &Name, secret: &Secret) -> Result<()> {
        speaks(protocol, version)?;
        let refused = || Error::usage(format!("the secret is not that of guest {guest}"));
        let secrets = self.state.secrets.get(guest).ok_or_else(refused)?;
        if !secrets.attach.is(secret) {
            return Err(refused());
        }
        if !self.topology.guests[guest].external {
            return Err(Error::usage(format!("guest {guest} is not external: the control program starts it")));
        }
        if self.is_stopping() {
            return Err(Error::environment("the network is going down"));
        }
        if self.guests[guest].process.is_some() {
            return Err(Error::environment(format!("guest {guest} is attached")));
        }
        Ok(())
    }

    fn ping(&mut self, key: u64, guest: &Name, to: IpAddr, bytes: u16, timeout_ms: u32) -> Result<()> {
        self.running(guest)?;
        self.requests += 1;
        let request = self.requests;
        self.send_order(guest, &Order::Ping { request, to, bytes, timeout_ms }, Vec::new());
        let until = Instant::now() + Duration::from_millis(timeout_ms.into()) + ANSWER_TIME_MAX;
        self.wait_for(key, Waits::Pong { request, from: guest.clone(), until });
        Ok(())
    }

    fn capture(&mut self, key: u64, guest: Name, snap_bytes: u32, into: Option<OwnedFd>) -> Result<()> {
        self.running(&guest)?;
        let into = into.ok_or_else(|| Error::usage("a capture needs a descriptor to go to"))?;
        let others = |client: &Client| matches!(&client.waits, Waits::Capture(other) if *other == guest);
        if self.clients.values().any(others) {
            return Err(Error::environment(format!("guest {guest} is being captured")));
        }
        self.send_order(&guest, &Order::Capture { snap_bytes }, vec![into]);
        self.wait_for(key, Waits::Capture(guest));
        Ok(())
    }

    pub(super) fn capture_ended(&mut self, guest: &Name, missed: u64) {
        let waiting = |(key, client): (&u64, &Client)| (client.waits == Waits::Capture(guest.clone())).then_some(*key);
        if let Some(key) = self.clients.iter().find_map(waiting) {
            self.answer(key, &Answer::CaptureEnded { missed });
            self.finish(key, Ok(()));
        }
    }

    fn status(&mut self, key: u64, detail: bool) {
        let networks: Vec<Answer> = self.topology.networks.keys().map(|name| self.network_status(name)).collect();
        networks.iter().for_each(|answer| self.answer(key, answer));
        let names: Vec<Name> = self.guests.keys().cloned().collect();
        let mut running = BTreeSet::new();
        for name in names {
            let Some(status) = self.status_of(&name) else { continue };
            if status.state == GuestState::Running {
                running.insert(name);
            }
            self.answer(key, &Answer::Guest(status));
        }
        if !detail || running.is_empty() {
            self.finish(key, Ok(()));
            return;
        }
        self.ask_for_reports(key, &running);
    }

    fn ask_for_reports(&mut self, key: u64, guests: &BTreeSet<Name>) {
        self.requests += 1;
        let request = self.requests;
        let from = guests.iter().map(|name| (name.clone(), self.report_parts_max(name))).collect();
        self.wait_for(key, Waits::Reports { request, from, until: Instant::now() + ANSWER_TIME_MAX });
        for name in guests {
            self.send_order(name, &Order::Report { request }, Vec::new());
        }
    }

    /// The most parts that a guest's report has: its devices, a link for each partner, its applications, its stack.
    fn report_parts_max(&self, name: &Name) -> usize {
        let guest = &self.topology.guests[name];
        let members = |device: &Device| self.topology.on(&device.network).count();
        let applications = usize::try_from(guest.applications_max).unwrap_or(usize::MAX);
        guest.devices.iter().map(|device| 1 + members(device)).sum::<usize>().saturating_add(applications + 1)
    }

    fn network_status(&self, name: &Name) -> Answer {
        let network = &self.topology.networks[name];
        let granted = match &network.access {
            Access::Open => None,
            Access::Restricted(granted) => Some(granted.iter().cloned().collect()),
        };
        let members: Vec<String> =
            self.topology.on(name).map(|(guest, _, device)| format!("{guest}.{}", device.name)).collect();
        let pairs = self.pairs.count_on(&self.topology, name);
        Answer::Network(NetworkStatus { name: name.clone(), kind: network.kind.to_string(), granted, members, pairs })
    }

    /// A part of a guest's report has come. It counts if this guest was asked for it.
    pub(super) fn report(&mut self, request: u64, guest: &Name, mut part: ReportPart) {
        let asks = |client: &mut Client| {
            let Waits::Reports { request: asked, from, .. } = &mut client.waits else { return None };
            if *asked == request { from.remove(guest) } else { None }
        };
        let Some((key, left)) = self.clients.iter_mut().find_map(|(key, client)| Some((*key, asks(client)?))) else {
            return;
        };
        let is_last = matches!(part, ReportPart::Stack(_));
        if left == 0 || !self.is_of_guest(guest, &mut part) {
            self.log.of_guest(guest, &format!("guest {guest}: its report is not one"));
            self.answer(key, &Answer::Silent { guest: guest.clone() });
        } else {
            self.answer(key, &Answer::Report { guest: guest.clone(), part });
            if !is_last && let Some(Client { waits: Waits::Reports { from, .. }, .. }) = self.clients.get_mut(&key) {
                from.insert(guest.clone(), left - 1);
                return;
            }
        }
        self.has_reported(key);
    }

    /// True if a part of a report is about what the guest has. Settings are those that the guest was given, whatever it says.
    fn is_of_guest(&self, guest: &Name, part: &mut ReportPart) -> bool {
        let device_of = |name: &Name| self.topology.guests[guest].devices.iter().find(|device| device.name == *name);
        match part {
            ReportPart::Device(report) => device_of(&report.device.name)
                .map(|device| report.device = GuestDevice::of(&self.topology, device))
                .is_some(),
            ReportPart::Link(report) => device_of(&report.device).is_some(),
            ReportPart::Application(_) | ReportPart::Stack(_) => true,
        }
    }

    /// A client has its answer once no report is missing.
    fn has_reported(&mut self, key: u64) {
        if let Some(Client { waits: Waits::Reports { from, .. }, .. }) = self.clients.get(&key)
            && from.is_empty()
        {
            self.finish(key, Ok(()));
        }
    }

    /// Nothing more is heard from a guest: nobody waits for it.
    pub(super) fn guest_silent(&mut self, guest: &Name) {
        let mut keys = Vec::new();
        for (key, client) in &mut self.clients {
            if let Waits::Reports { from, .. } = &mut client.waits
                && from.remove(guest).is_some()
            {
                keys.push(*key);
            }
        }
        for key in keys {
            self.answer(key, &Answer::Silent { guest: guest.clone() });
            self.has_reported(key);
        }
        self.capture_ended(guest, 0);
    }

    /// The connection of a process that is to become this application.
    pub(super) fn client_of(&self, application: ApplicationId) -> Option<u64> {
        let is =
            |client: &Client| matches!(client.waits, Waits::Application { application: own, .. } if own == application);
        self.clients.iter().find_map(|(key, client)| is(client).then_some(*key))
    }

    /// The connection that waits for this guest's half for this application: it is given one, once.
    pub(super) fn awaits_guest_memory(&mut self, from: &Name, of: ApplicationId) -> Option<u64> {
        self.clients.iter_mut().find_map(|(key, client)| {
            let Waits::Application { application, guest, has_guest_memory, .. } = &mut client.waits else {
                return None;
            };
            let is_new = *application == of && guest == from && !std::mem::replace(has_guest_memory, true);
            is_new.then_some(*key)
        })
    }

    pub(super) fn wait_as_application(&mut self, key: u64, application: ApplicationId, guest: Name) {
        let waits = Waits::Application { application, guest, has_passed_memory: false, has_guest_memory: false };
        self.wait_for(key, waits);
    }

    /// The outcome of a ping has come. It counts if this guest was to send the ping.
    pub(super) fn pong(&mut self, request: u64, guest: &Name, time_ns: Option<u64>) {
        let asks = |client: &Client| matches!(&client.waits, Waits::Pong { request: asked, from, .. } if *asked == request && from == guest);
        if let Some(key) = self.clients.iter().find_map(|(key, client)| asks(client).then_some(*key)) {
            self.answer(key, &Answer::Pong { time_ns });
            self.finish(key, Ok(()));
        }
    }

    pub(super) fn answer_starter(&mut self) {
        self.answer_waiting(&Waits::Start, &Ok(()));
    }

    /// The last that is said.
    pub(super) fn answer_last(&mut self, outcome: &Result<()>) {
        self.answer_waiting(&Waits::Start, outcome);
        self.answer_waiting(&Waits::Down, outcome);
    }

    fn answer_waiting(&mut self, waits: &Waits, outcome: &Result<()>) {
        let keys: Vec<u64> =
            self.clients.iter().filter(|(_, client)| client.waits == *waits).map(|(key, _)| *key).collect();
        for key in keys {
            self.finish(key, outcome.clone());
        }
    }

    pub(super) fn clients_due(&mut self, now: Instant) {
        let keys: Vec<u64> = self.clients.keys().copied().collect();
        for key in keys {
            let Some(client) = self.clients.get(&key) else { continue };
            let late = client.due().is_some_and(|until| until <= now);
            match &client.waits {
                Waits::Guest { name, state, .. } => {
                    let (name, state) = (name.clone(), *state);
                    self.guest_due(key, &name, state, late);
                }
                Waits::Reports { from, .. } if late => {
                    let silent: Vec<Name> = from.keys().cloned().collect();
                    silent.into_iter().for_each(|guest| self.answer(key, &Answer::Silent { guest }));
                    self.finish(key, Ok(()));
                }
                Waits::Pong { from, .. } if late => {
                    let error = Error::environment(format!("guest {from} does not answer"));
                    self.finish(key, Err(error));
                }
                Waits::Nothing
                | Waits::Application { .. }
                | Waits::Start
                | Waits::Down
                | Waits::Capture(_)
                | Waits::Reports { .. }
                | Waits::Pong { .. } => {}
            }
        }
    }

    /// Somebody waits for a guest to run or to end.
    fn guest_due(&mut self, key: u64, name: &Name, wanted: GuestState, late: bool) {
        let Some(status) = self.status_of(name) else { return };
        let gone = matches!(status.state, GuestState::Ended | GuestState::Waiting);
        match wanted {
            GuestState::Running if status.state == GuestState::Running => self.finish(key, Ok(())),
            GuestState::Running if gone || late => {
                let how = status.ended.unwrap_or_else(|| "it takes too long".to_owned());
                self.finish(key, Err(Error::environment(format!("guest {name} did not start: {how}"))));
            }
            GuestState::Ended if gone => self.finish(key, Ok(())),
            GuestState::Ended if late => {
                self.kill(name);
                let until = Instant::now() + ANSWER_TIME_MAX;
                self.wait_for(key, Waits::Guest { name: name.clone(), state: wanted, until });
            }
            GuestState::Running | GuestState::Ended | GuestState::Waiting | GuestState::Starting => {}
        }
    }
}

/// Whether a process speaks as this control program does.
pub(super) fn speaks(protocol: u32, version: &str) -> Result<()> {
    if protocol == PROTOCOL {
        return Ok(());
    }
    let message = format!("this process speaks protocol {protocol} (version {version}), the network {PROTOCOL}");
    Err(Error::environment(message).hint("use one version of siga for both"))
}
