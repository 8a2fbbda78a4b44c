//! The event loop of a guest: the poll iteration, which receives and sends frames, and the wait between iterations.
//!
//! Small functions of other files that each iteration calls have the attribute `#[inline]`. A release build has several codegen
//! units, and without the attribute the compiler does not inline functions of another unit. `cargo xtask instructions` shows the
//! difference: 2% of the instructions for a forwarded frame. rustc puts a method into the unit of the file that defines its type.
//! For the methods of `Node` this file is `guest.rs`, so the functions of `event_loop.rs` that these methods call have `#[inline]`
//! too.

use super::peer_link::{Links, Partner, Receiver, Sender};
use super::port_filter::PortFilter;
use super::wakes::Wakes;
use super::zero_copy::InRing;
use super::{Node, block_capture, emulated, groups, links, relay, setup};
use crate::device::{self, Inside};
use crate::iucv::applications::Applications;
use crate::iucv::memory::Memory;
use crate::limits::{HELD_ANSWER_BYTES_MAX, RECEIVE_AT_ONCE_MAX};
use crate::protocol::message::{GuestDevice, Loss};
use crate::switch::Switch;
use siga_ring::clock::Ticks;
use siga_ring::wait::Sources;
use siga_ring::{Consumer, Frame};
use siga_stack::Stack;
use siga_stack::ip::forward::Forward;
use siga_stack::limits::HEADER_BYTES_MAX;
use siga_stack::link::frame::{DeviceId, Payload, Received, Retained};
use siga_stack::sockets::TcpId;
use siga_stack::stack::{Handled, Transmit};
use siga_stack::time::Instant;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// The time at which the output of the stack is sent after an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    AtOnce,
    WithTheApplications,
}

/// The part of a received packet that follows the header bytes, which were copied for the stack.
struct Rest<'a> {
    frame: &'a Frame<'a>,
    at: usize,
    len: usize,
    /// True if the bytes may stay in the ring buffer until the application reads them (zero-copy receive).
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

/// A source of the stack's output for one link.
struct Own<'a> {
    stack: &'a mut Stack<Memory>,
    at: Instant,
    id: DeviceId,
    /// If set, only the output of this connection is sent. Otherwise that of all connections is sent.
    only: Option<TcpId>,
    filter: Option<SentBy<'a>>,
}

/// The port filter of the guest, and the device over which a frame leaves it.
struct SentBy<'a> {
    filter: &'a mut PortFilter,
    device: &'a GuestDevice,
}

impl device::Source for Own<'_> {
    #[inline]
    fn bytes_max(&mut self) -> usize {
        if self.only.is_some_and(|connection| !self.stack.tcp_is_first(connection, self.id)) {
            return 0;
        }
        self.stack.next_frame_bytes_max(self.at, self.id)
    }

    #[inline]
    fn build(&mut self, into: &mut [u8]) -> Option<Transmit> {
        match self.only {
            Some(connection) => self.stack.poll_transmit_of(self.at, self.id, connection, into),
            None => {
                let transmit = self.stack.poll_transmit(self.at, self.id, into);
                if let (Some(transmit), Some(SentBy { filter, device })) = (&transmit, &mut self.filter) {
                    let frame = into.get(..transmit.len).unwrap_or(into);
                    filter.sent(self.at, &device.network, device.mac.is_some(), frame);
                }
                transmit
            }
        }
    }
}

impl Node {
    /// Runs one poll iteration: receives frames, handles timers and applications, and sends. Returns true if there was anything to
    /// do.
    pub fn iterate(&mut self) -> bool {
        self.answer();
        self.iterate_and(Answers::AtOnce)
    }

    /// Runs one poll iteration like [`Node::iterate`], but may delay the stack's output. Under the waiting policy `block`, the
    /// output is sent after the application has processed its pending events. So ACKs are sent together with the application's
    /// answers, and cause no wake-up of their own on each hop (decision 015). Output that an earlier iteration delayed is sent
    /// first. If the application still has pending events, that output is delayed by at most one more iteration.
    pub fn iterate_before_answers(&mut self, has_pending_events: bool) -> bool {
        if !self.waiter.sleeps() {
            return self.iterate();
        }
        self.puts_answers_off = has_pending_events && self.owes_answers && !self.puts_answers_off;
        if !self.puts_answers_off {
            self.answer();
        }
        self.iterate_and(Answers::WithTheApplications)
    }

    fn iterate_and(&mut self, answers: Answers) -> bool {
        let now = self.clock.now();
        self.links.took_large = false;
        if now >= self.wakes.next_look {
            self.wakes.wait(Some(Duration::ZERO));
        }
        self.handle_events(now);
        let at = self.clock.instant(now);
        let mut busy = self.receive(now, at);
        if self.switch.is_some() {
            busy |= self.receive_from_taps(now, at);
            busy |= self.advertise(at);
            busy |= self.receive_from_links(at);
        }
        if !self.links.wired.is_empty() {
            self.links.mark_arrivals(at);
        }
        if self.stack.poll_timeout().is_some_and(|due| due <= at) {
            self.stack.handle_timeout(at);
            busy = true;
        }
        busy |= self.serve_applications(now, at);
        // The sender of a large packet may be waiting for the ACK, so the ACK of a large packet is not delayed.
        let wait = answers == Answers::WithTheApplications && (self.stack.tcp_has_events() || self.puts_answers_off);
        self.owes_answers = wait && !self.links.took_large;
        if !self.owes_answers {
            busy |= self.transmit(now, at);
        }
        busy |= self.retained_until.take_if(|until| now >= *until).is_some();
        self.background(now);
        if busy {
            self.waiter.had_traffic(now);
        }
        busy
    }

    /// Waits until another poll iteration may have something to do, for at most `time`.
    pub fn wait(&mut self, time: Option<Duration>) {
        self.answer_before_wait();
        let deadline = self.deadline(time);
        let mut waits = Waits {
            links: &mut self.links,
            applications: &mut self.applications,
            wakes: &mut self.wakes,
            switch: self.switch.as_deref(),
            looks: 0,
        };
        let Ok(_woken) = self.waiter.wait(&mut waits, deadline);
        self.links.set_colocated(self.waiter.is_colocated());
    }

    /// Prepares a wait for [`Node::descriptor`]: after this call, the descriptor becomes readable when a partner sends a
    /// notification or a timer expires. Returns false if there is already something to do, so that the caller should not wait.
    ///
    /// # Errors
    /// Returns an error if this process has run out of descriptors.
    pub fn fall_asleep(&mut self) -> std::io::Result<bool> {
        self.answer_before_wait();
        let mut waits = Waits {
            links: &mut self.links,
            applications: &mut self.applications,
            wakes: &mut self.wakes,
            switch: self.switch.as_deref(),
            looks: 0,
        };
        let Ok(asleep) = waits.declare_asleep();
        let due = self.deadline(None);
        let time = due.map(|due| Duration::from_nanos(self.clock.rate.ns(due.since(self.clock.now()))));
        self.wakes.set_alarm(time)?;
        // The caller waits for the descriptor in its own event loop. So the next iteration has to ask the kernel which of the
        // guest's descriptors are ready.
        self.wakes.next_look = Ticks(0);
        Ok(asleep)
    }

    /// Sends the stack's output. The application calls this method after it has written data to a socket.
    pub fn send_now(&mut self) {
        let now = self.clock.now();
        let at = self.clock.instant(now);
        self.owes_answers = false;
        self.transmit(now, at);
    }

    /// Sends the output of one connection. If all of it could be sent, delayed output of other connections is still delayed.
    /// Otherwise the output of all connections is sent.
    pub(crate) fn send_now_of(&mut self, connection: TcpId) {
        if !(self.owes_answers && self.transmit_of(connection)) {
            self.send_now();
        }
    }

    /// Sends the output of one connection. Returns false if the connection has no output, or has more output than could be sent.
    fn transmit_of(&mut self, connection: TcpId) -> bool {
        let at = self.now();
        let Some(id) = self.stack.tcp_put_first(connection) else { return false };
        let link = usize::from(id.0);
        let sender = &mut self.links.senders[link];
        if !sender.is_linked() {
            return false;
        }
        let mut own = Own { stack: &mut self.stack, at, id, only: Some(connection), filter: None };
        if let Err(violation) = sender.transmit_at(at, &mut own) {
            self.lose(link, Loss::Violation(violation.to_string()));
        }
        self.stack.tcp_put_first(connection).is_none()
    }

    /// Sends the stack's output if it was delayed until the application has processed its events.
    fn answer(&mut self) {
        if self.owes_answers {
            self.send_now();
        }
    }

    /// Sends delayed output like [`Node::answer`], and reports if the guest has thereby stopped sending.
    fn answer_before_wait(&mut self) {
        self.answer();
        if self.stopping.is_some() {
            self.report_stopped(self.clock.now());
        }
    }

    fn deadline(&self, time: Option<Duration>) -> Option<Ticks> {
        let own = time.map(|time| Ticks(self.clock.now().0 + self.clock.span(time).0));
        let stack = self.stack.poll_timeout().map(|at| self.clock.ticks(at));
        let applications = self.applications.due().map(|at| self.clock.ticks(at));
        let pings = self.pings.iter().map(|ping| ping.until).min();
        let idle = self.has_links().then_some(self.next_idle_look);
        let held = |link: &usize| self.links.receivers[*link].backpressure.waits_for().map(|(_, until)| until);
        let held = self.links.hot.iter().filter_map(held).min();
        let taps = self.switch.as_ref().and_then(|switch| relay::held_until(switch));
        let advertise = self.switch.as_ref().and_then(|switch| switch.advertise_at).map(|at| self.clock.ticks(at));
        let links = self.switch.as_deref().and_then(emulated::next_due).map(|at| self.clock.ticks(at));
        let arrivals = self.links.next_arrival().map(|at| self.clock.ticks(at));
        [own, stack, applications, pings, idle, held, taps, advertise, links, arrivals, self.retained_until]
            .into_iter()
            .flatten()
            .min()
    }

    /// Receives frames from the rings that are polled. Returns true if frames had arrived.
    fn receive(&mut self, now: Ticks, at: Instant) -> bool {
        let mut busy = false;
        let mut place = 0;
        while let Some(link) = self.links.hot.get(place).copied() {
            if self.links.is_held(link, now) {
                place += 1;
                continue;
            }
            match self.take(now, at, link) {
                Ok(0) if self.links.falls_asleep(link, now, self.links.hot_time) => {
                    self.links.receivers[link].is_hot = false;
                    self.links.hot.swap_remove(place);
                    continue;
                }
                Ok(0) => {}
                Ok(_) => {
                    self.links.receivers[link].last_traffic = now;
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

    /// Ends back-pressure on one link, then receives frames of this link. Returns true if the link may have more frames.
    pub(super) fn receive_from(&mut self, now: Ticks, link: usize) -> bool {
        self.links.receivers[link].backpressure.end();
        match self.take(now, self.clock.instant(now), link) {
            Ok(count) => count > 0,
            Err((broken, loss)) => {
                self.lose(broken, loss);
                false
            }
        }
    }

    #[inline]
    fn take(&mut self, now: Ticks, at: Instant, link: usize) -> Result<usize, (usize, Loss)> {
        if self.links.receivers[link].ring.as_ref().is_none_or(Consumer::is_idle) {
            return Ok(0);
        }
        self.take_frames(now, at, link)
    }

    #[inline(never)]
    fn take_frames(&mut self, now: Ticks, at: Instant, link: usize) -> Result<usize, (usize, Loss)> {
        if let Some(switch) = &mut self.switch {
            let mut broken = Vec::new();
            let taken = relay::take(switch, &mut self.links, (now, at), link, &mut broken);
            self.lose_broken(broken);
            return taken;
        }
        let place = self.links.senders[link].device;
        let network = (self.main_links[place], &self.config.devices[place]);
        take(&mut self.stack, &mut self.links, (now, at), link, network)
    }

    /// Sends queued packets and the stack's output over all links. Returns true if anything was sent.
    pub(super) fn transmit(&mut self, now: Ticks, at: Instant) -> bool {
        let mut busy = false;
        if self.switch.is_some() {
            // The stack of a switch has no output, so only active senders can have something to send.
            let mut place = 0;
            while let Some(link) = self.links.senders.active(place) {
                busy |= self.transmit_over(now, at, link, false);
                place += 1;
            }
            self.links.senders.settle();
            return busy;
        }
        let mut from = 0;
        while let Some((link, wants)) = self.next_with_work(from) {
            busy |= self.transmit_over(now, at, link, wants);
            from = link + 1;
        }
        busy
    }

    /// Returns the first link, from `from` on, over which there may be something to send, and whether the stack has output for it.
    #[inline]
    fn next_with_work(&self, from: usize) -> Option<(usize, bool)> {
        let senders = self.links.senders.get(from..)?.iter();
        let mut links = senders.zip(self.stack.wishes_to_transmit(from)).zip(from..);
        let next = links.find(|((sender, wants), _)| *wants || sender.may_have_work());
        next.map(|((_, wants), link)| (link, wants))
    }

    /// Sends queued packets over one link, and the stack's output if `wants`. Returns true if anything was sent.
    #[inline]
    fn transmit_over(&mut self, now: Ticks, at: Instant, link: usize, wants: bool) -> bool {
        let id = setup::number(link);
        let sender = self.links.senders.listed(link);
        if sender.is_linked() {
            if !(wants || sender.is_dirty || sender.has_room()) {
                return false;
            }
            let devices = &self.config.devices;
            let filter = self.links.filter.as_deref_mut();
            let filter = filter.map(|filter| SentBy { filter, device: &devices[sender.device] });
            match sender.transmit_at(at, &mut Own { stack: &mut self.stack, at, id, only: None, filter }) {
                Ok(any) => return any,
                Err(violation) => self.lose(link, Loss::Violation(violation.to_string())),
            }
        } else if wants || sender.has_backlog() {
            match sender.partner {
                Partner::Group => {
                    self.send_to_all(at, link, id);
                    return true;
                }
                Partner::Member(_) => self.want_link(now, at, link, id),
            }
        }
        false
    }
}

/// Receives frames of one link, and forwards packets that are not for this guest. Returns the number of frames. The error contains
/// the index of the link to detach and the reason.
#[inline]
fn take(
    stack: &mut Stack<Memory>,
    links: &mut Links,
    (now, at): (Ticks, Instant),
    link: usize,
    (main, device): (usize, &GuestDevice),
) -> Result<usize, (usize, Loss)> {
    let times = links.backpressure_times;
    let Receiver { ring: Some(ring), inbound, malformed, not_allowed, backpressure, broadcasts, .. } =
        &mut links.receivers[link]
    else {
        return Ok(0);
    };
    let half = ring.round() / 2;
    // The application had time to read the retained bytes and has not read them. The bytes must not block the ring any longer, so
    // they are copied out of the ring (decision 013). On a virtual CTC a single retained buffer is too many, because the sender
    // waits until all buffers are returned.
    if ring.count_unreturned() >= if inbound.is_waited_for() { 1 } else { half } {
        ring.move_out();
    }
    let mut count = 0;
    let broken = |link: usize| move |violation: siga_ring::Violation| (link, Loss::Violation(violation.to_string()));
    while count < RECEIVE_AT_ONCE_MAX && backpressure.waits_for().is_none() && ring.count_unreturned() < half {
        let Some(frame) = ring.next_frame().map_err(broken(link))? else { break };
        count += 1;
        if let Some(capture) = &mut links.captured_blocks
            && let Some(format) = inbound.format()
        {
            block_capture::add_received(capture, (at, link), &links.senders[link], format, &frame);
        }
        let mut done = 0;
        loop {
            let part = match inbound.next(&frame, &mut done) {
                Inside::Packet(part) => part,
                Inside::End => break,
                Inside::Message(part) => {
                    links.senders[link].receive(&frame, part);
                    continue;
                }
                Inside::Malformed => {
                    *malformed += 1;
                    break;
                }
            };
            let mut header = [0; HEADER_BYTES_MAX];
            links.took_large |= part.len > HELD_ANSWER_BYTES_MAX;
            let head = part.len.min(HEADER_BYTES_MAX);
            frame.copy_to(part.at, &mut header[..head]);
            let header = &header[..head];
            if let Some(filter) = &links.filter
                && !filter.admits(at, &device.network, device.mac.is_some(), header, broadcasts)
            {
                *not_allowed += 1;
                continue;
            }
            let keeps = device.features.zero_copy;
            let rest = Rest { frame: &frame, at: part.at + head, len: part.len - head, keeps };
            let for_all = links::is_to_many(header, broadcasts) || groups::is_group_message(header);
            let (from, received) = (setup::number(link), Received { header, payload: &rest, marks: part.marks });
            let handled = if for_all {
                stack.handle_group_frame(at, setup::number(main), from, received)
            } else {
                stack.handle_frame(at, from, received)
            };
            if let Handled::Forward(forward) = handled {
                let to = usize::from(forward.device.0);
                pass_packet(links.senders.listed(to), forward, header, &rest).map_err(broken(to))?;
                backpressure.forwarded(now, times, to);
                if links.senders.listed(to).has_backpressure() {
                    backpressure.begin(now, times);
                }
            }
        }
    }
    if backpressure.waits_for().is_some() {
        // Normally, the next call of `next_frame` returns the consumed buffers to the sender. During back-pressure there is no such
        // call, so return them here.
        ring.give_back();
    }
    Ok(count)
}

/// Forwards a packet from ring to ring, either complete or cut into several packets.
#[inline]
fn pass_packet(
    sender: &mut Sender,
    mut forward: Forward<'_, Rest<'_>>,
    header: &[u8],
    rest: &Rest<'_>,
) -> Result<(), siga_ring::Violation> {
    while let Some(piece) = forward.next_piece() {
        let own = piece.range.start.min(header.len())..piece.range.end.min(header.len());
        let behind = piece.range.start.max(header.len())..piece.range.end.max(header.len());
        let len = piece.header.len() + piece.range.len();
        let fill = |into: &mut [u8]| {
            let (first, into) = into.split_at_mut(piece.header.len());
            first.copy_from_slice(piece.header);
            let (first, into) = into.split_at_mut(own.len());
            first.copy_from_slice(&header[own.clone()]);
            if !into.is_empty() {
                rest.copy_to(behind.start - header.len(), into);
            }
        };
        if matches!(sender.partner, Partner::Group) {
            sender.count_no_partner();
        } else {
            sender.forward(len, piece.marks, fill)?;
        }
    }
    Ok(())
}

/// The rings, applications and descriptors of a guest, on which it waits between poll iterations.
struct Waits<'a> {
    links: &'a mut Links,
    applications: &'a mut Applications,
    wakes: &'a mut Wakes,
    switch: Option<&'a Switch>,
    looks: u32,
}

/// How many times the rings in memory are polled for each poll of the descriptors. A system call takes about as long as this many
/// polls of the rings.
const LOOKS_A_SYSTEM_CALL: u32 = 64;

impl Sources for Waits<'_> {
    type Error = Infallible;

    fn is_ready(&mut self) -> Result<bool, Infallible> {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_A_SYSTEM_CALL) {
            self.wakes.wait(Some(Duration::ZERO));
        }
        let taps = self.switch.as_ref().is_some_and(|switch| relay::has_work(switch, self.links));
        let Links { receivers, senders, hot, .. } = &mut *self.links;
        // An error is a violation of the ring's protocol. Ignore it here, because the next use of the ring returns it again.
        let mut readable = |link: &usize| {
            let Receiver { ring, backpressure, waits_for_card, .. } = &mut receivers[*link];
            match backpressure.waits_for() {
                _ if *waits_for_card => false,
                Some((to, _)) => !senders[to].has_backpressure(),
                None => ring.as_mut().is_some_and(|ring| ring.is_ready().unwrap_or(true)),
            }
        };
        Ok(!self.wakes.ready.is_empty()
            || taps
            || hot.iter().any(&mut readable)
            || senders.any_has_room()
            || self.applications.are_ready())
    }

    fn declare_asleep(&mut self) -> Result<bool, Infallible> {
        if self.switch.as_ref().is_some_and(|switch| relay::has_work(switch, self.links)) {
            return Ok(false);
        }
        let rests = self.links.fall_asleep()
            && self.applications.fall_asleep()
            && self.links.senders.request_room()
            && self.wakes.ready.is_empty();
        if !rests {
            self.links.awake();
        }
        Ok(rests)
    }

    fn sleep(&mut self, time: Option<Duration>) -> Result<(), Infallible> {
        self.wakes.wait(time);
        Ok(())
    }

    fn awake(&mut self) {
        self.links.awake();
    }

    fn moved(&self) -> u64 {
        let received = self.links.receivers.iter().map(Receiver::moved_bytes);
        let of_switch = self.switch.map_or(0, |switch| switch.relayed_bytes);
        received.chain(self.links.senders.iter().map(Sender::moved_bytes)).fold(of_switch, u64::wrapping_add)
    }
}
