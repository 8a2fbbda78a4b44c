//! The requests of clients: the control program carries out each request and answers it.

use super::Control;
use super::clients::{Client, Waits, check_protocol};
use crate::limits::{ANSWER_TIME_MAX, START_TIME_MAX};
use crate::protocol::message::{Member, MemberId, Order};
use crate::protocol::request::{Answer, GuestState, Request};
use crate::protocol::secret::Secret;
use siga_model::allow::Allow;
use siga_model::error::{Error, Result};
use siga_model::name::Name;
use siga_model::topology::{Access, Device};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

impl Control {
    pub(super) fn request(&mut self, key: u64, request: Request, mut descriptors: Vec<OwnedFd>) {
        if let Err(error) = self.may_ask(key, &request).and_then(|()| self.may_change(&request)) {
            self.finish(key, Err(error));
            return;
        }
        let outcome = match request {
            Request::Start { .. } => Err(Error::usage("this control program already has a network")),
            Request::HandOver => self.hand_over(key).map(|()| None),
            Request::HandedOver => Err(Error::usage("this connection has not asked to take the network over")),
            Request::Replace => self.replace_all(key).map(|()| None),
            Request::Status { detail } => {
                self.status(key, detail);
                Ok(None)
            }
            Request::Report(guest) => self.running(&guest).map(|()| {
                self.ask_for_reports(key, &BTreeSet::from([guest]));
                None
            }),
            Request::Sample { quiet } => {
                self.sample(key, &quiet);
                Ok(None)
            }
            Request::Down => {
                self.wait_for(key, Waits::Down);
                self.begin_stop(None);
                Ok(None)
            }
            Request::StartGuest(name) => self.ask_to_start(key, &name).map(|()| None),
            Request::StopGuest(name) => self.ask_to_stop(key, &name).map(|()| None),
            Request::Grant { network, guest } => self.set_access(&network, &guest, true).map(Some),
            Request::Revoke { network, guest } => self.set_access(&network, &guest, false).map(Some),
            Request::Allow { guest, allow } => self.set_allow(&guest, allow).map(Some),
            Request::Secret { guest, application } => self.secret(key, &guest, application).map(Some),
            Request::Application { protocol, version, guest, secret, process } => {
                self.ask_for_application(key, (protocol, &version), &guest, &secret, process).map(|()| None)
            }
            Request::ApplicationMemory => {
                Err(Error::usage("a program must ask to use a guest's stack before it sends memory files"))
            }
            Request::Attach { protocol, version, guest, secret } => {
                self.ask_to_attach(key, (protocol, &version), &guest, &secret);
                Ok(None)
            }
            Request::Ping { guest, to, bytes, timeout_ms } => {
                self.ping(key, &guest, to, bytes, timeout_ms).map(|()| None)
            }
            Request::Capture { guest, snap_bytes, blocks } => {
                self.capture(key, guest, (snap_bytes, blocks), descriptors.pop()).map(|()| None)
            }
            Request::ReservePort { lan, port, tenant } => {
                self.reserve_port(key, lan.as_ref(), port.as_ref(), tenant).map(Some)
            }
            Request::JoinPort => self.join_port(key, descriptors).map(Some),
            Request::ReleasePort { tenant } => self.release_port(&tenant).map(Some),
            Request::Tenants => {
                self.tenants(key);
                Ok(Some(()))
            }
            Request::ChangePort { network, port, change } => self.change_port(&network, &port, &change).map(Some),
            Request::Mirror { network, mirror } => self.set_mirror(&network, mirror).map(Some),
            Request::Addresses { network, forget } => self.addresses(key, &network, forget).map(|()| None),
        };
        match outcome {
            Ok(None) => {}
            Ok(Some(())) => self.finish(key, Ok(())),
            Err(error) => self.finish(key, Err(error)),
        }
    }

    /// Returns an error for a request that changes what a process that is being prepared has already received.
    fn may_change(&self, request: &Request) -> Result<()> {
        let Some(replaced) = self.replacements.guest() else { return Ok(()) };
        let is_changed = match request {
            Request::StartGuest(guest)
            | Request::StopGuest(guest)
            | Request::Capture { guest, .. }
            | Request::Application { guest, .. } => guest == replaced,
            Request::Grant { .. }
            | Request::Revoke { .. }
            | Request::Allow { .. }
            | Request::ChangePort { .. }
            | Request::Mirror { .. }
            | Request::HandOver => true,
            Request::Start { .. }
            | Request::HandedOver
            | Request::Replace
            | Request::Status { .. }
            | Request::Report(_)
            | Request::Sample { .. }
            | Request::Down
            | Request::Secret { .. }
            | Request::ApplicationMemory
            | Request::Attach { .. }
            | Request::Ping { .. }
            | Request::ReservePort { .. }
            | Request::JoinPort
            | Request::ReleasePort { .. }
            | Request::Tenants
            | Request::Addresses { .. } => false,
        };
        if is_changed {
            let message = format!("the process of guest {replaced} is being replaced");
            return Err(Error::environment(message).hint("try again"));
        }
        Ok(())
    }

    fn known(&self, guest: &Name) -> Result<()> {
        if self.guests.contains_key(guest) {
            return Ok(());
        }
        let names: Vec<&str> = self.guests.keys().map(Name::as_str).collect();
        Err(Error::usage(format!("the topology defines no guest {guest}"))
            .hint(format!("guests: {}", names.join(", "))))
    }

    pub(super) fn running(&self, guest: &Name) -> Result<()> {
        self.known(guest)?;
        match self.status_of(guest).map(|status| status.state) {
            Some(GuestState::Running) => Ok(()),
            _ => Err(Error::environment(format!("guest {guest} is not running"))),
        }
    }

    fn ask_to_start(&mut self, key: u64, name: &Name) -> Result<()> {
        self.known(name)?;
        if self.topology.guests[name].external {
            return Err(Error::usage(format!(
                "guest {name} is external, so siga cannot start it; start the process of the guest yourself"
            )));
        }
        if self.guests[name].process.is_some() {
            return Err(Error::usage(format!("guest {name} is already running")));
        }
        self.state.stopped.remove(name);
        self.write_state()?;
        self.start_guest(name);
        let until = Instant::now() + START_TIME_MAX;
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

    /// Replaces the rules that say what others may open to a guest. If there are rules, direct connections with other guests are reset.
    fn set_allow(&mut self, name: &Name, allow: Option<Allow>) -> Result<()> {
        self.known(name)?;
        let Some(guest) = self.topology.guests.get_mut(name).filter(|guest| !guest.is_switch) else {
            return Err(Error::usage(format!("{name} is a switch, so it has no rules for connections")));
        };
        if let Some(allow) = &allow {
            allow.check(guest.devices.iter().map(|device| &device.network))?;
        }
        guest.allow.clone_from(&allow);
        self.state.allow.insert(name.clone(), allow.clone());
        self.write_state()?;
        let rules = allow.as_ref().map(|allow| allow.rules().iter().map(ToString::to_string).collect::<Vec<_>>());
        let words = rules.map_or_else(|| "everything".to_owned(), |rules| format!("[{}]", rules.join(", ")));
        self.log.of_guest(name, &format!("guest {name}: allows {words}"));
        if allow.is_some() {
            let orders = self.direct.revoke(name);
            self.send_all(None, orders);
        }
        self.send_order(name, &Order::Allow(allow), Vec::new());
        Ok(())
    }

    fn set_access(&mut self, network: &Name, guest: &Name, granted: bool) -> Result<()> {
        let is_port = self.is_port(network, guest);
        if !is_port {
            self.known(guest)?;
        }
        let before = if is_port { Vec::new() } else { self.members_of(guest) };
        let known = self.topology.networks.get_mut(network);
        let known = known.ok_or_else(|| Error::usage(format!("the topology has no network {network}")))?;
        let Access::Restricted(access) = &mut known.access else {
            return Err(Error::usage(format!("network {network} is not restricted, so every guest may use it")));
        };
        let changed = if granted { access.insert(guest.clone()) } else { access.remove(guest) };
        if !changed {
            let word = if granted { "already has" } else { "has no" };
            return Err(Error::usage(format!("guest {guest} {word} access to network {network}")));
        }
        self.write_state()?;
        self.log.line(&format!("network {network}: {} guest {guest}", if granted { "grants" } else { "revokes" }));
        if is_port {
            return self.set_port_access(network, guest, granted);
        }
        let orders = self.pairs.revoke(&self.topology, guest);
        self.send_all(None, orders);
        if !granted {
            let orders = self.direct.revoke(guest);
            self.send_all(None, orders);
        }
        self.send_member_changes(guest, &before);
        Ok(())
    }

    /// Informs a guest and its partners of a change of access, by the orders `Member` and `MemberGone`. `before` lists the guest's
    /// partners before the change.
    fn send_member_changes(&mut self, guest: &Name, before: &[(Name, Member)]) {
        let after = self.members_of(guest);
        for (device, member) in before.iter().filter(|known| !after.contains(known)) {
            self.send_order(
                guest,
                &Order::MemberGone { device: device.clone(), member: member.id.clone() },
                Vec::new(),
            );
            let own = MemberId { guest: guest.clone(), device: device.clone() };
            let order = Order::MemberGone { device: member.id.device.clone(), member: own };
            self.send_order(&member.id.guest, &order, Vec::new());
        }
        // If a router gains or loses access to one network, its partners on its other networks must accept more or fewer source
        // addresses from it. So the router is announced to them again.
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
            self.log.of_clients(&format!("a process could not attach as guest {guest}: {error}"));
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
        check_protocol(protocol, version)?;
        let refused = || Error::usage(format!("the given secret is not the secret of guest {guest}"));
        let secrets = self.state.secrets.get(guest).ok_or_else(refused)?;
        if !secrets.attach.is(secret) {
            return Err(refused());
        }
        if !self.topology.guests[guest].external {
            return Err(Error::usage(format!(
                "guest {guest} is not external, so only the control program starts its process"
            )));
        }
        if self.is_stopping() {
            return Err(Error::environment("the network is going down, so no process can attach as a guest"));
        }
        if self.guests[guest].process.is_some() {
            return Err(Error::environment(format!("another process is already attached as guest {guest}")));
        }
        Ok(())
    }

    fn ping(&mut self, key: u64, guest: &Name, to: IpAddr, bytes: u16, timeout_ms: u32) -> Result<()> {
        self.running(guest)?;
        self.requests += 1;
        let request = self.requests;
        let ping = (to, bytes, timeout_ms);
        self.send_order(guest, &Order::Ping { request, to, bytes, timeout_ms }, Vec::new());
        let until = Instant::now() + Duration::from_millis(timeout_ms.into()) + ANSWER_TIME_MAX;
        self.wait_for(key, Waits::Pong { request, from: guest.clone(), ping, until });
        Ok(())
    }

    /// Lets the new process of a guest send the pings that the replaced one has not reported.
    pub(super) fn ping_again(&mut self, guest: &Name) {
        let open = |client: &Client| {
            let Waits::Pong { request, from, ping, .. } = &client.waits else { return None };
            (from == guest).then_some((*request, *ping))
        };
        for (request, (to, bytes, timeout_ms)) in self.clients.values().filter_map(open).collect::<Vec<_>>() {
            self.send_order(guest, &Order::Ping { request, to, bytes, timeout_ms }, Vec::new());
        }
    }

    fn capture(
        &mut self,
        key: u64,
        guest: Name,
        (snap_bytes, blocks): (u32, bool),
        into: Option<OwnedFd>,
    ) -> Result<()> {
        self.running(&guest)?;
        let has_blocks = |device: &Device| self.topology.networks[&device.network].kind.has_blocks();
        if blocks && !self.topology.guests[&guest].devices.iter().any(has_blocks) {
            return Err(Error::usage(format!("no device of guest {guest} has blocks"))
                .hint("only devices on networks of type vctc, ctc, netiucv, claw and lcs have blocks"));
        }
        let into = into.ok_or_else(|| Error::usage("the capture request contains no descriptor for the output"))?;
        let others = |client: &Client| matches!(&client.waits, Waits::Capture(other) if *other == guest);
        if self.clients.values().any(others) {
            return Err(Error::environment(format!("a capture of guest {guest} is already running")));
        }
        self.send_order(&guest, &Order::Capture { snap_bytes, blocks }, vec![into]);
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

    /// Passes the outcome of a ping to the client that requested the ping. Ignores the outcome if a guest reports a ping that it
    /// was not ordered to send.
    pub(super) fn pong(&mut self, request: u64, guest: &Name, time_ns: Option<u64>) {
        let asks = |client: &Client| matches!(&client.waits, Waits::Pong { request: asked, from, .. } if *asked == request && from == guest);
        if let Some(key) = self.clients.iter().find_map(|(key, client)| asks(client).then_some(*key)) {
            self.answer(key, &Answer::Pong { time_ns });
            self.finish(key, Ok(()));
        }
    }
}
