//! Links of a node: wanted when there is something to send, put together from two halves, lost, and made anew.

use super::groups::tells_of_groups;
use super::{Node, Source, setup};
use crate::limits::REFUSED_TIME;
use crate::port::{Partner, Sender};
use crate::protocol::message::{Buffers, GuestDevice, GuestEvent, Loss, MemberId, RingPairEnd};
use crate::protocol::ticket::RingPairId;
use siga_model::name::Name;
use siga_model::prefix::broadcast;
use siga_ring::clock::Ticks;
use siga_ring::{Link, NotifyFd, OwnMemory, PeerMemory, Shape, WakeFd};
use siga_stack::link::frame::DeviceId;
use siga_stack::stack::Transmit;
use siga_stack::time::Instant;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// An own half of a pair that waits for the partner's.
#[derive(Debug)]
pub(super) struct Half {
    pair: RingPairEnd,
    port: usize,
    own: OwnMemory,
    notify_fd: NotifyFd,
    wake_fd: WakeFd,
    inbound: Shape,
}

impl Node {
    pub(super) fn has_links(&self) -> bool {
        self.ports.senders.iter().any(Sender::is_linked)
    }

    /// There is something for a partner to whom there is no link: the control program is asked for one.
    pub(super) fn want_link(&mut self, now: Ticks, at: Instant, port: usize, id: DeviceId) {
        let sender = &mut self.ports.senders[port];
        if sender.refused_until.is_some_and(|until| now < until) {
            sender.drop_backlog();
            self.drop_all(at, id);
            return;
        }
        if sender.asked || self.control.is_none() {
            return;
        }
        if !sender.has_backlog() {
            // Only what is more than a message to the link itself is worth a pair.
            let Some(packet) = self.next_packet(at, port, id) else { return };
            let bytes = std::mem::take(&mut self.scratch);
            let fill = &mut |into: &mut [u8]| into.copy_from_slice(&bytes[..packet.len]);
            let kept = self.ports.senders[port].offer(packet.len, packet.marks, fill);
            debug_assert!(kept.is_ok(), "there is no ring to break a contract of");
            self.scratch = bytes;
        }
        let sender = &mut self.ports.senders[port];
        if let Partner::Member(member) = sender.partner.clone() {
            sender.asked = true;
            let device = self.config.devices[sender.device].name.clone();
            self.tell(&GuestEvent::Couple { device, member }, Vec::new());
        }
    }

    /// The next packet for a port, in the scratch area; what tells of groups is swallowed: no querier is behind a link that is not.
    fn next_packet(&mut self, at: Instant, port: usize, id: DeviceId) -> Option<Transmit> {
        self.scratch.resize(self.ports.senders[port].packet_bytes_max(), 0);
        loop {
            let packet = self.stack.poll_transmit(at, id, &mut self.scratch)?;
            if !tells_of_groups(&self.scratch[..packet.len]) {
                return Some(packet);
            }
        }
    }

    fn drop_all(&mut self, at: Instant, id: DeviceId) {
        let port = usize::from(id.0);
        while self.next_packet(at, port, id).is_some() {
            self.ports.senders[port].count_no_partner();
        }
    }

    /// What is for several goes to each partner; what is for one that nobody is goes nowhere.
    pub(super) fn send_to_all(&mut self, at: Instant, port: usize, id: DeviceId) {
        self.scratch.resize(self.ports.senders[port].packet_bytes_max(), 0);
        while let Some(packet) = self.stack.poll_transmit(at, id, &mut self.scratch) {
            let bytes = std::mem::take(&mut self.scratch);
            let (packet_bytes, marks) = (&bytes[..packet.len], packet.marks);
            let place = self.ports.senders[port].device;
            if !is_to_many(packet_bytes, &self.config.devices[place]) {
                self.ports.senders[port].count_no_partner();
                self.scratch = bytes;
                continue;
            }
            // As above: it is not worth links of its own.
            let worth_links = !tells_of_groups(packet_bytes);
            let mut lost = Vec::new();
            for (at, sender) in self.ports.senders.iter_mut().enumerate() {
                let is_there = matches!(sender.partner, Partner::Member(_)) && (worth_links || sender.is_linked());
                if sender.device == place && is_there {
                    let fill = &mut |into: &mut [u8]| into.copy_from_slice(packet_bytes);
                    if let Err(violation) = sender.offer(packet.len, marks, fill) {
                        lost.push((at, Loss::Violation(violation.to_string())));
                    }
                }
            }
            self.scratch = bytes;
            lost.into_iter().for_each(|(port, loss)| self.lose(port, loss));
        }
    }

    /// Makes the own half of a pair.
    pub(super) fn begin_pair(&mut self, held: RingPairEnd, descriptors: Vec<OwnedFd>) {
        let pair = held.pair;
        match self.try_begin(held, descriptors) {
            Ok(memory) => self.tell(&GuestEvent::Memory { pair }, vec![memory]),
            Err(why) => self.tell(&GuestEvent::Lost { pair, why: Loss::Failed(why) }, Vec::new()),
        }
    }

    fn try_begin(&mut self, pair: RingPairEnd, descriptors: Vec<OwnedFd>) -> Result<OwnedFd, String> {
        let port = self.port_of(&pair.device, &pair.member).ok_or("it knows no such partner")?;
        let shape = |buffers: Buffers| {
            let bytes = usize::try_from(buffers.bytes).unwrap_or(usize::MAX);
            Shape::new(bytes, usize::from(buffers.count)).ok_or("no ring has such buffers")
        };
        let [notify_fd, wake_fd, memory]: [OwnedFd; 3] =
            descriptors.try_into().map_err(|_| "the doorbells or the memory are missing")?;
        let (notify_fd, wake_fd) = NotifyFd::from_fd(notify_fd)
            .and_then(|notify_fd| Ok((notify_fd, WakeFd::from_fd(wake_fd)?)))
            .map_err(|error| format!("the doorbells cannot be used: {error}"))?;
        let (own, memory) =
            OwnMemory::in_file(memory, shape(pair.outbound)?).map_err(|error| format!("no memory: {error}"))?;
        let half = Half { port, own, notify_fd, wake_fd, inbound: shape(pair.inbound)?, pair };
        self.halves.retain(|other| other.port != port);
        self.halves.push(half);
        Ok(memory)
    }

    /// The partner's half has come: the link is there.
    pub(super) fn complete_pair(&mut self, pair: RingPairId, memory: Option<OwnedFd>) {
        let Some(at) = self.halves.iter().position(|half| half.pair.pair == pair) else { return };
        let half = self.halves.swap_remove(at);
        let port = half.port;
        match memory.ok_or("the memory is missing".to_owned()).and_then(|memory| self.try_complete(half, memory)) {
            Ok(()) => {
                self.tell(&GuestEvent::Linked { pair }, Vec::new());
                self.stack.carrier_up(self.now(), setup::number(port));
            }
            Err(why) => {
                self.wait_to_ask(port);
                self.tell(&GuestEvent::Lost { pair, why: Loss::Failed(why) }, Vec::new());
            }
        }
    }

    fn try_complete(&mut self, half: Half, memory: OwnedFd) -> Result<(), String> {
        let peer = PeerMemory::map(memory, half.inbound).map_err(|error| error.to_string())?;
        self.end_link(half.port);
        let link = Link::new(half.own, peer, half.notify_fd, half.wake_fd);
        let key = self.wakes.events.add(&link.wake_fd, Source::WakeFd(half.port)).map_err(|error| error.to_string())?;
        self.ports.senders[half.port].link(half.pair.pair, link.producer);
        self.ports.receivers[half.port].link(link.consumer, (key, link.wake_fd), self.clock.now());
        self.ports.heat(half.port);
        self.held.push((half.port, half.pair));
        Ok(())
    }

    /// Detaches a port from its partner, and says why.
    pub(super) fn lose(&mut self, port: usize, why: Loss) {
        let pair = self.ports.senders[port].pair;
        self.end_link(port);
        if let Some(pair) = pair {
            self.tell(&GuestEvent::Lost { pair, why }, Vec::new());
        }
    }

    /// Detaches a port; its memory is given back.
    pub(super) fn end_link(&mut self, port: usize) {
        self.ports.senders[port].unlink();
        self.ports.hot.retain(|hot| *hot != port);
        self.held.retain(|(held, _)| *held != port);
        if let Some((key, wake_fd)) = self.ports.receivers[port].unlink() {
            self.wakes.events.remove(key, &wake_fd);
        }
    }

    /// The control program ends a pair: what has come is still taken in.
    pub(super) fn end_pair(&mut self, now: Ticks, pair: RingPairId) {
        if let Some(at) = self.halves.iter().position(|half| half.pair.pair == pair) {
            let half = self.halves.swap_remove(at);
            self.ports.senders[half.port].asked = false;
        }
        let Some(port) = self.ports.senders.iter().position(|sender| sender.pair == Some(pair)) else { return };
        self.ports.heat(port);
        while self.receive_from(now, port) {}
        self.end_link(port);
    }

    /// Somebody has rung, or hung up.
    pub(super) fn link_woken(&mut self, now: Ticks, port: usize) {
        let Some((_, wake_fd)) = &self.ports.receivers[port].wake_fd else { return };
        let heard = wake_fd.drain();
        self.waiter.notified_by(heard.as_ref().ok().and_then(|heard| heard.last));
        self.ports.heat(port);
        self.ports.senders[port].is_dirty = true;
        // What the partner says that it has taken is otherwise looked at when buffers run out.
        if let Err(violation) = self.ports.senders[port].check_partner() {
            self.lose(port, Loss::Violation(violation.to_string()));
            return;
        }
        if heard.is_ok_and(|heard| !heard.hung_up) {
            return;
        }
        // What the partner sent before it died is whole.
        while self.receive_from(now, port) {}
        if self.ports.senders[port].is_linked() {
            self.lose(port, Loss::PeerGone);
        }
    }

    /// Tells the control program of pairs without traffic.
    pub(super) fn look_for_idle(&mut self, now: Ticks) {
        if now < self.next_idle_look {
            return;
        }
        let Some(least) = self.config.devices.iter().map(|device| device.idle_seconds).min() else { return };
        self.next_idle_look = Ticks(now.0 + self.clock.span(Duration::from_secs(least.into()) / 2).0);
        let mut idle = Vec::new();
        for (sender, receiver) in self.ports.senders.iter_mut().zip(&mut self.ports.receivers) {
            let after = Duration::from_secs(self.config.devices[sender.device].idle_seconds.into());
            let traffic = sender.frames_sent() + receiver.frames_received();
            if traffic != receiver.traffic_seen {
                (receiver.traffic_seen, receiver.last_look, receiver.told_idle) = (traffic, now, false);
            } else if now.since(receiver.last_look) >= self.clock.span(after) && !receiver.told_idle {
                receiver.told_idle = true;
                idle.extend(sender.pair);
            }
        }
        idle.into_iter().for_each(|pair| self.tell(&GuestEvent::Idle { pair }, Vec::new()));
    }

    pub(super) fn quiesce(&mut self, pair: RingPairId) {
        if let Some(sender) = self.ports.senders.iter_mut().find(|sender| sender.pair == Some(pair)) {
            sender.quiet = true;
        }
        self.tell(&GuestEvent::Quiet { pair }, Vec::new());
    }

    pub(super) fn refused(&mut self, device: &Name, member: &MemberId) {
        if let Some(port) = self.port_of(device, member) {
            self.wait_to_ask(port);
        }
    }

    /// A pair could not be had: for some time none is asked for, and what is for the partner is dropped.
    fn wait_to_ask(&mut self, port: usize) {
        let until = Ticks(self.clock.now().0 + self.clock.span(REFUSED_TIME).0);
        let sender = &mut self.ports.senders[port];
        (sender.asked, sender.refused_until) = (false, Some(until));
    }
}

/// True for a packet to more than one station of a device's network.
pub(super) fn is_to_many(packet: &[u8], device: &GuestDevice) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => packet.get(16..20).and_then(|to| to.first_chunk::<4>()).is_some_and(|to| {
            let to = Ipv4Addr::from(*to);
            to.is_multicast() || to.is_broadcast() || device.addresses.iter().any(|own| broadcast(*own) == Some(to))
        }),
        Some(6) => packet.get(24) == Some(&0xff),
        _ => false,
    }
}
