//! The events that guests send to their control program.
//!
//! Any guest may be hostile: it may send events at the wrong time, name pairs or requests of other guests, send messages of maximum
//! length, or send endlessly. Therefore the control program checks each event:
//!
//! - It accepts an event only in the phases of the guest's process in which a guest may send that event.
//! - It accepts a ticket (the id of a pair or application) only if a control program of this network issued it to this guest.
//! - It accepts an answer only from the guest that received the order for it.
//!
//! If an event breaks the protocol, the control program ends the guest that sent it, and no other guest.

use super::Control;
use super::guests::{Guest, Phase};
use crate::limits::{GUEST_EVENTS_AT_ONCE_MAX, INVENTORY_PART_MAX, ORDERS_OF_ONE_MAX, OUTBOX_MESSAGES_MAX};
use crate::protocol::channel::Ended;
use crate::protocol::direct::DirectRequest;
use crate::protocol::message::{GuestEvent, Loss, MemberId, Order, PROTOCOL, RingPairEnd};
use crate::protocol::ticket::RingPairId;
use siga_model::error::{Error, Result};
use siga_model::name::Name;
use std::os::fd::OwnedFd;
use std::time::Instant;

impl GuestEvent {
    /// Returns the number of descriptors that the event must carry, and the phases in which a guest may send the event.
    fn rule(&self) -> (usize, &'static [Phase]) {
        const CONFIGURED: &[Phase] = &[Phase::Configured, Phase::Succeeds, Phase::Runs];
        match self {
            Self::Hello { .. } => (0, &[Phase::Begun]),
            Self::Ready { .. } => (0, &[Phase::Configured, Phase::Succeeds]),
            Self::Inventory { .. } => (0, &[Phase::Adopted]),
            Self::Port { .. } => (1, &[Phase::Adopted]),
            Self::Failed(_) => (0, &[Phase::Begun, Phase::Configured, Phase::Succeeds, Phase::Adopted, Phase::Runs]),
            Self::Memory { .. } | Self::Direct { event: DirectRequest::Memory { .. }, .. } => (1, CONFIGURED),
            Self::ApplicationMemory { .. } => (2, CONFIGURED),
            Self::Couple { .. }
            | Self::Prepared { .. }
            | Self::Learned { .. }
            | Self::Retired
            | Self::Direct { .. }
            | Self::ApplicationEnded { .. }
            | Self::Linked { .. }
            | Self::Idle { .. }
            | Self::Quiet { .. }
            | Self::Lost { .. }
            | Self::Report { .. }
            | Self::PortLost { .. }
            | Self::Account { .. }
            | Self::Pong { .. }
            | Self::CaptureEnded { .. } => (0, CONFIGURED),
        }
    }
}

impl Control {
    pub(super) fn receive_from_guest(&mut self, name: &Name) {
        for _ in 0..GUEST_EVENTS_AT_ONCE_MAX {
            let Some((key, channel)) = self.guests.get_mut(name).and_then(|guest| guest.channel.as_mut()) else {
                return;
            };
            if channel.is_behind() && channel.flush().is_ok() {
                self.events.set_behind(*key, &*channel, channel.is_behind());
            }
            match channel.receive::<GuestEvent>() {
                Ok(None) => return,
                Ok(Some((event, descriptors))) => self.handle_event(name, event, descriptors),
                Err(Ended::Malformed(what)) => self.refuse(name, &format!("the guest sent an invalid message: {what}")),
                Err(Ended::Closed) => self.channel_ended(name),
            }
        }
    }

    /// Ends a guest that broke the protocol. `what` says how, for the log.
    fn refuse(&mut self, name: &Name, what: &str) {
        self.log.of_guest(name, &format!("guest {name}: violation of the protocol: {what}"));
        self.channel_ended(name);
    }

    fn handle_event(&mut self, name: &Name, event: GuestEvent, descriptors: Vec<OwnedFd>) {
        let Some(phase) = self.guests.get(name).and_then(|guest| guest.phase) else { return };
        let (descriptor_count, phases) = event.rule();
        if !phases.contains(&phase) {
            self.refuse(name, "the guest sent a message that is not allowed at this point");
        } else if descriptor_count != descriptors.len() {
            self.refuse(name, "the guest sent a message with the wrong number of descriptors");
        } else {
            self.handle_in_turn(name, event, descriptors);
        }
    }

    fn handle_in_turn(&mut self, name: &Name, event: GuestEvent, mut descriptors: Vec<OwnedFd>) {
        match event {
            GuestEvent::Hello { protocol, version } => self.hello(name, protocol, &version),
            GuestEvent::Ready { confinement } => self.guest_ready(name, confinement),
            GuestEvent::Failed(error) => self.guest_failed(name, error),
            GuestEvent::Inventory { confinement, pairs, applications, last } => {
                if pairs.len() > INVENTORY_PART_MAX || !self.adopt_applications(name, &applications) {
                    self.refuse(name, "the guest reported ring pairs or applications that it cannot have");
                    return;
                }
                self.adopt_pairs(name, &pairs);
                if last {
                    if self.topology.guests[name].is_switch {
                        self.resume_ports(name);
                    }
                    // An earlier control program may have been killed before it sent the rules.
                    if let Some(allow) = self.state.allow.get(name).cloned() {
                        self.send_order(name, &Order::Allow(allow), Vec::new());
                    }
                    self.guest_ready(name, confinement);
                    self.end_half_known();
                }
            }
            GuestEvent::Port { port } => self.adopt_port(name, &port, descriptors),
            GuestEvent::Couple { device, member } => self.couple(name, device, member),
            GuestEvent::Memory { pair } if self.is_renewed(pair) => {
                self.renewed_memory(name, pair, descriptors.pop());
            }
            GuestEvent::Prepared { why_not } => self.guest_prepared(name, why_not),
            GuestEvent::Learned { addresses } => self.guest_learned(name, addresses),
            GuestEvent::Retired => self.guest_retired(name),
            GuestEvent::Memory { pair } => {
                if let (Some(out), Some(memory)) = (self.pairs.memory(pair, name), descriptors.pop()) {
                    self.send_order_because(Some(name), &out.to, &out.order, vec![memory]);
                }
            }
            GuestEvent::ApplicationMemory { application } => self.guest_memory(name, application, descriptors),
            GuestEvent::Direct { application, event } => self.direct(name, application, event, descriptors),
            GuestEvent::ApplicationEnded { application, why } => self.application_ended(name, application, &why),
            GuestEvent::Linked { pair } => {
                if let Some(partner) = self.pairs.linked(pair, name) {
                    let line = format!("pair {}: guest {name} with {partner}: linked", pair.0);
                    self.log.of_guest(name, &line);
                }
            }
            GuestEvent::Idle { pair } => {
                let orders = self.pairs.idle(pair, name);
                self.send_all(Some(name), orders);
            }
            GuestEvent::Quiet { pair } if self.is_quieted(name, pair) => {}
            GuestEvent::Quiet { pair } => {
                let orders = self.pairs.quiet(pair, name);
                self.send_all(Some(name), orders);
            }
            GuestEvent::Lost { pair, why } => self.lost(name, pair, &why),
            GuestEvent::Account { records } => {
                if !self.account(name, &records) {
                    self.refuse(name, "the guest sent invalid accounting records");
                }
            }
            GuestEvent::PortLost { port, why } => self.switch_lost_port(name, &port, &why),
            GuestEvent::Report { request, part } => self.report(request, name, part),
            GuestEvent::Pong { request, time_ns } => self.pong(request, name, time_ns),
            GuestEvent::CaptureEnded { missed } => self.capture_ended(name, missed),
        }
    }

    fn hello(&mut self, name: &Name, protocol: u32, version: &str) {
        let configured = if protocol == PROTOCOL {
            self.configure(name)
        } else {
            let message = format!(
                "the guest's program has another version of siga ({version}, protocol {protocol} instead of {PROTOCOL})"
            );
            Err(Error::environment(message))
        };
        if let Err(error) = configured {
            self.guest_failed(name, error);
        }
    }

    fn lost(&mut self, name: &Name, pair: RingPairId, why: &Loss) {
        if self.is_renewed(pair) {
            self.renewal_lost(pair);
            return;
        }
        let Some(partner) = self.pairs.partner(pair, name) else { return };
        let text = format!("guest {name} detached: {why}");
        let line = format!("pair {}: guest {name} with {partner}: {text}", pair.0);
        self.log.of_guest(name, &line);
        let orders = self.pairs.lost(pair, name, &text, matches!(why, Loss::Violation(_)));
        self.send_all(Some(name), orders);
    }

    /// Takes over the ring pairs that an adopted guest reports. Orders the guest to drop those that are not valid.
    fn adopt_pairs(&mut self, name: &Name, pairs: &[RingPairEnd]) {
        for held in pairs {
            if !self.pairs.adopt(&self.topology, self.state.issuer(), name, held) {
                let order = Order::Unpair {
                    pair: held.pair,
                    why: "the control program does not know this ring pair".to_owned(),
                };
                self.send_order(name, &order, Vec::new());
            }
        }
    }

    pub(super) fn couple(&mut self, asker: &Name, device: Name, member: MemberId) {
        let own = MemberId { guest: asker.clone(), device: device.clone() };
        let may = self.may_couple_now(asker, &member.guest);
        let (guests, issuer, replaced) = (&self.guests, self.state.issuer(), self.replacements.busy_with());
        // A guest whose process is being replaced gets its pairs when the new process runs.
        let runs = |guest: &Name| guests.get(guest).is_some_and(Guest::runs) && replaced != Some(guest);
        match may.and_then(|()| self.pairs.want(&self.topology, issuer, &own, &member, runs)) {
            Ok(orders) => self.send_all(Some(asker), orders),
            Err(why) => {
                self.log.of_guest(asker, &format!("guest {asker}: {own} cannot connect to {member}: {why}"));
                self.send_order(asker, &Order::Refused { device, member, why }, Vec::new());
            }
        }
    }

    /// Checks whether `asker` may now request a ring pair with `partner`. Without these checks, a guest that requests pairs again
    /// and again could use up its partner's CPU time and memory.
    ///
    /// # Errors
    /// Returns an error if `asker` requests pairs too often, or if `partner` has too many unread orders.
    fn may_couple_now(&mut self, asker: &Name, partner: &Name) -> Result<()> {
        if let Some((_, channel)) = self.guests.get(partner).and_then(|guest| guest.channel.as_ref())
            && (channel.waiting() >= OUTBOX_MESSAGES_MAX / 2 || channel.waiting_because(asker) >= ORDERS_OF_ONE_MAX)
        {
            return Err(Error::environment(format!("guest {partner} has not processed its earlier orders yet")));
        }
        let bucket = self.guests.get_mut(asker).and_then(|guest| guest.pairs.as_mut());
        if bucket.is_some_and(|bucket| !bucket.take(1, Instant::now())) {
            return Err(Error::environment(format!("guest {asker} requests ring pairs too often")));
        }
        Ok(())
    }
}
