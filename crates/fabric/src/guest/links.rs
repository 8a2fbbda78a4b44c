//! The ring pairs of a guest's links. A guest requests a ring pair from the control program when it has packets to send to a
//! partner. The pair is complete when both guests have made their halves. After a pair was lost, a new one can be requested.

use super::groups::is_group_message;
use super::wakes::ReadyKey;
use super::{Node, setup};
use crate::guest::peer_link::{Partner, Sender};
use crate::limits::REFUSED_TIME;
use crate::protocol::message::{Buffers, GuestEvent, Loss, MemberId, RingPairEnd};
use crate::protocol::ticket::RingPairId;
use siga_model::name::Name;
use siga_ring::clock::Ticks;
use siga_ring::{Link, NotifyFd, OwnMemory, PeerMemory, Shape, WakeFd};
use siga_stack::link::frame::DeviceId;
use siga_stack::stack::Transmit;
use siga_stack::time::Instant;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// This guest's half of a ring pair whose other half has not arrived from the partner yet.
#[derive(Debug)]
pub(super) struct HalfPair {
    pair: RingPairEnd,
    pub(super) link: usize,
    own: OwnMemory,
    notify_fd: NotifyFd,
    wake_fd: WakeFd,
    inbound: Shape,
}

impl Node {
    pub(super) fn has_links(&self) -> bool {
        self.links.senders.iter().any(Sender::is_linked)
    }

    /// Requests the ring pair of a link from the control program, because packets for its partner wait.
    pub(super) fn want_link(&mut self, now: Ticks, at: Instant, link: usize, id: DeviceId) {
        let sender = &mut self.links.senders[link];
        if sender.refused_until.is_some_and(|until| now < until) {
            sender.drop_backlog();
            self.drop_all(at, id);
            return;
        }
        if sender.asked || self.control.is_none() {
            return;
        }
        if !sender.has_backlog() {
            // If only IGMP and MLD messages wait, no ring pair is requested.
            let Some(packet) = self.next_packet(at, link, id) else { return };
            let bytes = std::mem::take(&mut self.scratch);
            let fill = &mut |into: &mut [u8]| into.copy_from_slice(&bytes[..packet.len]);
            let kept = self.links.senders[link].forward(packet.len, packet.marks, fill);
            debug_assert!(kept.is_ok(), "there is no ring to break a contract of");
            self.scratch = bytes;
        }
        let sender = &mut self.links.senders[link];
        if let Partner::Member(member) = sender.partner.clone() {
            sender.asked = true;
            let device = self.config.devices[sender.device].name.clone();
            self.send_event(&GuestEvent::Couple { device, member }, Vec::new());
        }
    }

    /// Writes the stack's next packet for a link to `scratch` and returns its length and marks. Discards IGMP and MLD messages,
    /// because without a ring pair no multicast querier can receive them.
    fn next_packet(&mut self, at: Instant, link: usize, id: DeviceId) -> Option<Transmit> {
        self.scratch.resize(self.links.senders[link].packet_bytes_max(), 0);
        loop {
            let packet = self.stack.poll_transmit(at, id, &mut self.scratch)?;
            if !is_group_message(&self.scratch[..packet.len]) {
                return Some(packet);
            }
        }
    }

    fn drop_all(&mut self, at: Instant, id: DeviceId) {
        let link = usize::from(id.0);
        while self.next_packet(at, link, id).is_some() {
            self.links.senders[link].count_no_partner();
        }
    }

    /// Sends the packets of a main link: copies each multicast or broadcast packet to the link of each partner. Drops each packet
    /// for a single address, because the stack sends such a packet over a main link only if no partner has the address.
    pub(super) fn send_to_all(&mut self, at: Instant, link: usize, id: DeviceId) {
        self.scratch.resize(self.links.senders[link].packet_bytes_max(), 0);
        while let Some(packet) = self.stack.poll_transmit(at, id, &mut self.scratch) {
            let bytes = std::mem::take(&mut self.scratch);
            let (packet_bytes, marks) = (&bytes[..packet.len], packet.marks);
            let place = self.links.senders[link].device;
            if !is_to_many(packet_bytes, &self.links.receivers[link].broadcasts) {
                self.links.senders[link].count_no_partner();
                self.scratch = bytes;
                continue;
            }
            // An IGMP or MLD message alone must not cause a ring pair to be made. So such a message is copied only to links that
            // have a ring pair.
            let worth_links = !is_group_message(packet_bytes);
            let mut lost = Vec::new();
            for (at, sender) in self.links.senders.iter_mut().enumerate() {
                let is_there = matches!(sender.partner, Partner::Member(_)) && (worth_links || sender.is_linked());
                if sender.device == place && is_there {
                    let fill = &mut |into: &mut [u8]| into.copy_from_slice(packet_bytes);
                    if let Err(violation) = sender.forward(packet.len, marks, fill) {
                        lost.push((at, Loss::Violation(violation.to_string())));
                    }
                }
            }
            self.scratch = bytes;
            lost.into_iter().for_each(|(link, loss)| self.lose(link, loss));
        }
    }

    /// Makes this guest's half of a ring pair.
    pub(super) fn begin_pair(&mut self, held: RingPairEnd, descriptors: Vec<OwnedFd>) {
        let pair = held.pair;
        match self.try_begin(held, descriptors) {
            Ok(memory) => self.send_event(&GuestEvent::Memory { pair }, vec![memory]),
            Err(why) => self.send_event(&GuestEvent::Lost { pair, why: Loss::Failed(why) }, Vec::new()),
        }
    }

    fn try_begin(&mut self, pair: RingPairEnd, descriptors: Vec<OwnedFd>) -> Result<OwnedFd, String> {
        let link = self.link_of(&pair.device, &pair.member).ok_or("the guest has no device with this partner")?;
        let shape = |buffers: Buffers| {
            let bytes = usize::try_from(buffers.bytes).unwrap_or(usize::MAX);
            Shape::new(bytes, usize::from(buffers.count))
                .ok_or("the guest cannot make a ring with this number or size of buffers")
        };
        let [notify_fd, wake_fd, memory]: [OwnedFd; 3] = descriptors
            .try_into()
            .map_err(|_| "the order to make a ring pair lacks descriptors of its notification pipes or memory")?;
        let (notify_fd, wake_fd) = NotifyFd::from_fd(notify_fd)
            .and_then(|notify_fd| Ok((notify_fd, WakeFd::from_fd(wake_fd)?)))
            .map_err(|error| format!("the guest cannot use the notification pipes of a ring pair: {error}"))?;
        let (own, memory) = OwnMemory::in_file(memory, shape(pair.outbound)?)
            .map_err(|error| format!("the guest cannot map its own memory of a ring pair: {error}"))?;
        let half = HalfPair { link, own, notify_fd, wake_fd, inbound: shape(pair.inbound)?, pair };
        self.halves.retain(|other| other.link != link);
        self.halves.push(half);
        Ok(memory)
    }

    /// Completes a ring pair, because the partner's half has arrived, and attaches the pair to its link. Unless the pair `continues` another
    /// one, frames may have been lost, so the stack sends again what was not acknowledged.
    pub(super) fn complete_pair(&mut self, (pair, continues): (RingPairId, bool), memory: Option<OwnedFd>) {
        let Some(at) = self.halves.iter().position(|half| half.pair.pair == pair) else { return };
        let half = self.halves.swap_remove(at);
        let link = half.link;
        match memory
            .ok_or("the order to complete a ring pair contains no memory file".to_owned())
            .and_then(|memory| self.try_complete(half, memory))
        {
            Ok(()) => {
                self.send_event(&GuestEvent::Linked { pair }, Vec::new());
                if !continues {
                    self.stack.carrier_up(self.now(), setup::number(link));
                }
            }
            Err(why) => {
                self.wait_to_ask(link);
                self.send_event(&GuestEvent::Lost { pair, why: Loss::Failed(why) }, Vec::new());
            }
        }
    }

    fn try_complete(&mut self, half: HalfPair, memory: OwnedFd) -> Result<(), String> {
        let peer = PeerMemory::map(memory, half.inbound).map_err(|error| error.to_string())?;
        self.end_link(half.link);
        let link = Link::new(half.own, peer, half.notify_fd, half.wake_fd);
        let key = self.wakes.events.add(&link.wake_fd, ReadyKey::Link(half.link)).map_err(|error| error.to_string())?;
        self.links.senders[half.link].attach(half.pair.pair, link.producer);
        self.links.adapt(half.link);
        self.links.receivers[half.link].attach(link.consumer, (key, link.wake_fd), self.clock.now());
        self.links.heat(half.link);
        self.held.push((half.link, half.pair));
        Ok(())
    }

    /// Detaches a link from its partner, and reports the reason to the control program.
    pub(super) fn lose(&mut self, link: usize, why: Loss) {
        let pair = self.links.senders[link].pair;
        self.end_link(link);
        if let Some(pair) = pair {
            self.send_event(&GuestEvent::Lost { pair, why }, Vec::new());
        }
    }

    /// Detaches a link and frees its memory.
    pub(super) fn end_link(&mut self, link: usize) {
        self.account_link(link);
        self.links.senders[link].detach();
        self.links.hot.retain(|hot| *hot != link);
        self.links.cooled.retain(|cooled| *cooled != link);
        self.held.retain(|(held, _)| *held != link);
        if let Some((key, wake_fd)) = self.links.receivers[link].detach() {
            self.wakes.events.remove(key, &wake_fd);
        }
    }

    /// Ends a ring pair, because the control program ordered it. Frames that have already arrived are still received.
    pub(super) fn end_pair(&mut self, now: Ticks, pair: RingPairId) {
        if let Some(at) = self.halves.iter().position(|half| half.pair.pair == pair) {
            let half = self.halves.swap_remove(at);
            self.links.senders[half.link].asked = false;
        }
        let Some(link) = self.links.senders.iter().position(|sender| sender.pair == Some(pair)) else { return };
        self.links.heat(link);
        while self.receive_from(now, link) {}
        self.end_link(link);
    }

    /// Handles a link whose wake descriptor is readable, because the partner has sent a notification or has closed its end.
    pub(super) fn link_woken(&mut self, now: Ticks, link: usize) {
        let Some((_, wake_fd)) = &self.links.receivers[link].wake_fd else { return };
        let drained = wake_fd.drain();
        self.waiter.notified_by(drained.as_ref().ok().and_then(|drained| drained.last));
        self.links.heat(link);
        self.links.senders[link].is_dirty = true;
        // Without this check, the guest would read the partner's index only when it runs out of buffers. It would then detect a
        // violation of the ring's protocol late.
        if let Err(violation) = self.links.senders[link].check_partner() {
            self.lose(link, Loss::Violation(violation.to_string()));
            return;
        }
        if drained.is_ok_and(|drained| !drained.hung_up) {
            return;
        }
        // The partner may have ended. Frames that it published before are complete, so they are still received.
        while self.receive_from(now, link) {}
        if self.links.senders[link].is_linked() {
            self.lose(link, Loss::PeerGone);
        }
    }

    /// Reports idle ring pairs to the control program.
    pub(super) fn look_for_idle(&mut self, now: Ticks) {
        if now < self.next_idle_look {
            return;
        }
        let Some(least) = self.config.devices.iter().map(|device| device.idle_seconds).min() else { return };
        self.next_idle_look = Ticks(now.0 + self.clock.span(Duration::from_secs(least.into()) / 2).0);
        let mut idle = Vec::new();
        for (sender, receiver) in self.links.senders.iter().zip(&mut self.links.receivers) {
            let after = Duration::from_secs(self.config.devices[sender.device].idle_seconds.into());
            let traffic = sender.frames_sent() + receiver.frames_received();
            if traffic != receiver.traffic_seen {
                (receiver.traffic_seen, receiver.last_look, receiver.idle_reported) = (traffic, now, false);
            } else if now.since(receiver.last_look) >= self.clock.span(after) && !receiver.idle_reported {
                receiver.idle_reported = true;
                idle.extend(sender.pair);
            }
        }
        idle.into_iter().for_each(|pair| self.send_event(&GuestEvent::Idle { pair }, Vec::new()));
    }

    pub(super) fn refused(&mut self, device: &Name, member: &MemberId) {
        if let Some(link) = self.link_of(device, member) {
            self.wait_to_ask(link);
        }
    }

    /// Records that the ring pair of a link was refused. For [`REFUSED_TIME`] the pair is not requested again, and packets for the
    /// partner are dropped.
    fn wait_to_ask(&mut self, link: usize) {
        let until = Ticks(self.clock.now().0 + self.clock.span(REFUSED_TIME).0);
        let sender = &mut self.links.senders[link];
        (sender.asked, sender.refused_until) = (false, Some(until));
    }
}

/// Returns whether the destination of a packet is a multicast address, or one of the broadcast addresses of the device's networks.
/// Such a packet may be for several guests.
#[inline]
pub(super) fn is_to_many(packet: &[u8], broadcasts: &[Ipv4Addr]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => packet.get(16..20).and_then(|to| to.first_chunk::<4>()).is_some_and(|to| {
            let to = Ipv4Addr::from(*to);
            to.is_multicast() || to.is_broadcast() || broadcasts.contains(&to)
        }),
        Some(6) => packet.get(24) == Some(&0xff),
        _ => false,
    }
}
