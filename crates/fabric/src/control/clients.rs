//! Clients: processes that connect to the control program. They are the command line, applications, and processes that attach as
//! external guests.
//!
//! A client makes one request at a time (`requests.rs`). If a request cannot be answered immediately, `Waits` says what its client
//! waits for.

use super::peer::has_hung_up;
use super::{Control, Source};
use crate::limits::ANSWER_TIME_MAX;
use crate::protocol::channel::{Channel, Ended, Unsent};
use crate::protocol::message::{Order, PROTOCOL};
use crate::protocol::request::{Answer, GuestState, Moment, Request, TimedRequest};
use crate::protocol::ticket::ApplicationId;
use rustix::net::sockopt;
use siga_model::error::{Error, Result};
use siga_model::name::Name;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The connection of a client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) channel: Channel,
    pub(super) waits: Waits,
    /// True if the client has made at least one request.
    has_asked: bool,
}

/// What a client waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// The client waits for nothing and may make a request.
    Nothing,
    /// The client has asked to become an application (a process that uses a guest's stack). It waits for the guest's memory files.
    Application {
        application: ApplicationId,
        guest: Name,
        /// True if the client has sent its own memory files.
        has_passed_memory: bool,
        /// True if the control program has sent the guest's memory files to the client.
        has_guest_memory: bool,
    },
    /// The client waits until the processes of all guests are replaced.
    Replacements,
    /// The client waits until all guests have started.
    Start,
    /// The client waits until the network is down.
    Down,
    /// The client waits for the reports of the guests in `from`. For each guest, the map contains how many more parts of its report
    /// are accepted.
    Reports { request: u64, from: BTreeMap<Name, usize>, until: Instant },
    /// The client waits for the outcome of a ping that the guest `from` sends.
    Pong { request: u64, from: Name, ping: (IpAddr, u16, u32), until: Instant },
    /// The client waits for the end of a capture of this guest's frames. The capture also ends when the client closes its
    /// connection.
    Capture(Name),
    /// The client waits until a guest is in the given state: it runs, or it has ended.
    Guest { name: Name, state: GuestState, until: Instant },
}

impl Client {
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.waits {
            Waits::Nothing
            | Waits::Application { .. }
            | Waits::Replacements
            | Waits::Start
            | Waits::Down
            | Waits::Capture(_) => None,
            Waits::Reports { until, .. } | Waits::Pong { until, .. } | Waits::Guest { until, .. } => Some(*until),
        }
    }
}

impl Control {
    pub(super) fn add_client(&mut self, connection: OwnedFd) -> Result<()> {
        let own = rustix::process::geteuid();
        if sockopt::socket_peercred(&connection).ok().is_none_or(|peer| peer.uid != own && !peer.uid.is_root()) {
            return Err(Error::usage(
                "the control program refused the request, because it comes from a process of another user",
            ));
        }
        self.insert_client(Channel::new(connection)?, Waits::Nothing, false).map(drop)
    }

    /// Adds the process that started this control program as a client, which waits until all guests have started. With `lease`, the
    /// network is taken down when this client's connection closes.
    pub(super) fn add_starter(&mut self, channel: Channel, lease: bool) -> Result<()> {
        let key = self.insert_client(channel, Waits::Start, true)?;
        self.lease = lease.then_some(key);
        Ok(())
    }

    fn insert_client(&mut self, channel: Channel, waits: Waits, has_asked: bool) -> Result<u64> {
        let key = self.watch(&channel, Source::Client(self.events.next_registration()))?;
        self.clients.insert(key, Client { channel, waits, has_asked });
        Ok(key)
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
                let error = Error::usage(format!("the control program received an invalid request: {what}"));
                self.fail(key, error.hint("use the same version of siga for the command and for the network"));
                self.drop_client(key);
            }
            Err(Ended::Closed) => self.drop_client(key),
        }
    }

    /// Carries out a request, unless its client has closed the connection or the request's deadline has passed.
    fn take_up(&mut self, key: u64, TimedRequest { request, until }: TimedRequest, descriptors: Vec<OwnedFd>) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        match &mut client.waits {
            // This is the last request of an application. Once application and guest have each other's memory files, the
            // application no longer needs this connection.
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
                self.fail(
                    key,
                    Error::environment("the request arrived after the sender's timeout, so it had no effect"),
                );
            }
            Waits::Nothing => {
                client.has_asked = true;
                // A process that attaches gets its answer at once, and is woken only once.
                if !matches!(request, Request::Application { .. }) {
                    self.answer(key, &Answer::TakenUp);
                }
                self.request(key, request, descriptors);
            }
            Waits::Application { .. }
            | Waits::Replacements
            | Waits::Start
            | Waits::Down
            | Waits::Reports { .. }
            | Waits::Pong { .. }
            | Waits::Capture(_)
            | Waits::Guest { .. } => {
                self.fail(
                    key,
                    Error::usage("this connection already has an unfinished request; send one request at a time"),
                );
            }
        }
    }

    /// Makes room for another client: closes the connection of a client that waits for nothing. The client is chosen in this order:
    /// 1. the oldest client that has made no request,
    /// 2. the oldest client of an attached process, because such a process may make only few kinds of requests,
    /// 3. the oldest other client.
    ///
    /// Returns false if no connection can be closed.
    pub(super) fn drop_idle_client(&mut self) -> bool {
        // The connection of the client with the lease must stay open, because its end takes the network down.
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
        self.end_reservations(key);
        if client.waits == Waits::Replacements {
            self.replacements.queue.clear();
        }
        if self.lease == Some(key) {
            self.begin_stop(None);
        }
        if let Waits::Capture(guest) = client.waits {
            self.send_order(&guest, &Order::CaptureStop, Vec::new());
        }
    }

    pub(super) fn answer(&mut self, key: u64, answer: &Answer) {
        self.answer_with(key, answer, Vec::new());
    }

    pub(super) fn answer_with(&mut self, key: u64, answer: &Answer, descriptors: Vec<OwnedFd>) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        let sent = client.channel.send(answer, descriptors);
        self.events.set_behind(key, &client.channel, client.channel.is_behind());
        match sent {
            Ok(()) => {}
            // The control program itself made an answer that is too long. The client is not at fault, so its connection stays open.
            Err(unsent @ Unsent::TooLong { .. }) => {
                self.log.of_clients(&format!("the control program could not send an answer: {}", Error::from(unsent)));
            }
            Err(Unsent::Behind | Unsent::Closed(_)) => self.drop_client(key),
        }
    }

    /// Sends the last answer to a request: `Done` or `Failed`.
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

    pub(super) fn wait_for(&mut self, key: u64, waits: Waits) {
        if let Some(client) = self.clients.get_mut(&key) {
            client.waits = waits;
        }
    }

    /// Answers the clients that wait for reports or captures of a guest, because the guest has ended and sends nothing more.
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
            self.finish_if_reported(key);
        }
        self.capture_ended(guest, 0);
    }

    /// Returns the key of the client that asked to become this application.
    pub(super) fn client_of(&self, application: ApplicationId) -> Option<u64> {
        let is =
            |client: &Client| matches!(client.waits, Waits::Application { application: own, .. } if own == application);
        self.clients.iter().find_map(|(key, client)| is(client).then_some(*key))
    }

    /// Returns the key of the client that is to become the application `of` and waits for the memory files of the guest `from`.
    /// Returns each client only once, because a client receives the memory files only once.
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

    pub(super) fn answer_starter(&mut self) {
        self.answer_waiting(&Waits::Start, &Ok(()));
    }

    /// Answers the clients that wait until the network is up or down, because the network is now down.
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
                    let error = Error::environment(format!(
                        "guest {from} did not answer the control program before the timeout"
                    ));
                    self.finish(key, Err(error));
                }
                Waits::Nothing
                | Waits::Application { .. }
                | Waits::Replacements
                | Waits::Start
                | Waits::Down
                | Waits::Capture(_)
                | Waits::Reports { .. }
                | Waits::Pong { .. } => {}
            }
        }
    }

    /// Checks whether the guest for which a client waits is in the `wanted` state, and then answers the client. `late` is true if
    /// the wait has passed its deadline.
    fn guest_due(&mut self, key: u64, name: &Name, wanted: GuestState, late: bool) {
        let Some(status) = self.status_of(name) else { return };
        let gone = matches!(status.state, GuestState::Ended | GuestState::Waiting);
        match wanted {
            GuestState::Running if status.state == GuestState::Running => self.finish(key, Ok(())),
            GuestState::Running if gone || late => {
                let how = status.ended.unwrap_or_else(|| "the guest takes too long to start".to_owned());
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

/// Checks that a process uses the same protocol version as this control program.
///
/// # Errors
/// Returns an error if the versions differ.
pub(super) fn check_protocol(protocol: u32, version: &str) -> Result<()> {
    if protocol == PROTOCOL {
        return Ok(());
    }
    let message = format!(
        "this process uses protocol {protocol} (siga version {version}), but the network uses protocol {PROTOCOL}"
    );
    Err(Error::environment(message).hint("use the same version of siga for the process and for the network"))
}
