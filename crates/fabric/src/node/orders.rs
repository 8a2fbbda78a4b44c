//! What a node hears from control programs, and what it tells them.

use super::{Node, Source, setup};
use crate::limits::{CAPTURE_BYTES_MAX, INVENTORY_PART_MAX, SUITORS_MAX};
use crate::port::{self, Counters};
use crate::protocol::channel::{Channel, Ended};
use crate::protocol::message::{GuestEvent, Order, PROTOCOL, RingPairEnd};
use crate::protocol::report::{DeviceReport, ReportPart, StackReport};
use rustix::io::Errno;
use rustix::net::{self, SocketFlags};
use siga_ring::clock::Ticks;
use siga_stack::ip::echo::Ping;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// An echo request that waits for its answer.
#[derive(Debug)]
pub(super) struct OpenPing {
    request: u64,
    ping: Ping,
    sent: Ticks,
    pub(super) until: Ticks,
}

/// Frames on their way to a reader.
#[derive(Debug)]
pub(super) struct Capture {
    into: OwnedFd,
    waiting: Vec<u8>,
}

/// Messages that are taken before traffic has its turn.
const ORDERS_AT_ONCE_MAX: usize = 64;

impl Node {
    /// Tells the control program something. Without one, nobody hears it.
    pub(super) fn tell(&mut self, news: &GuestEvent, descriptors: Vec<OwnedFd>) {
        let Some((key, channel)) = &mut self.control else { return };
        let sent = channel.send(news, descriptors);
        self.wakes.events.set_behind(*key, &*channel, channel.is_behind());
        if sent.is_err() {
            self.control_ended();
        }
    }

    /// The control program is gone: traffic goes on, and a successor is asked for what is open.
    fn control_ended(&mut self) {
        if let Some((key, channel)) = self.control.take() {
            self.wakes.events.remove(key, &channel);
        }
        self.ports.senders.iter_mut().for_each(|sender| sender.asked = false);
        // Without a place where a successor could knock, there will be none.
        self.stops |= self.listener.is_none();
    }

    pub(super) fn handle_events(&mut self, now: Ticks) {
        for source in std::mem::take(&mut self.wakes.ready) {
            match source {
                Source::Control => self.hear_control(now),
                Source::Listener => self.let_suitors_in(),
                Source::Suitor(at) => self.hear_suitor(at),
                Source::WakeFd(port) => self.link_woken(now, port),
                Source::Application(place) => self.application_heard(now, place),
                Source::Alarm => self.wakes.clear_alarm(),
                Source::Wake => self.wakes.clear_wake(),
            }
        }
    }

    fn hear_control(&mut self, now: Ticks) {
        for _ in 0..ORDERS_AT_ONCE_MAX {
            let Some((key, channel)) = &mut self.control else { return };
            if channel.is_behind() && channel.flush().is_ok() {
                self.wakes.events.set_behind(*key, &*channel, channel.is_behind());
            }
            match channel.receive::<Order>() {
                Ok(None) => return,
                Ok(Some((order, descriptors))) => self.obey(now, order, descriptors),
                Err(Ended::Closed | Ended::Malformed(_)) => self.control_ended(),
            }
        }
    }

    fn obey(&mut self, now: Ticks, order: Order, mut descriptors: Vec<OwnedFd>) {
        match order {
            // Both are first orders; a control program that has been heard sends neither.
            Order::Configure(_) | Order::Adopt { .. } => {}
            Order::Stderr => {
                if let Some(messages) = descriptors.pop() {
                    // Where it fails, messages go on going nowhere.
                    let _ = rustix::stdio::dup2_stderr(messages);
                }
            }
            Order::Member { device, member } => {
                if let Err(error) = self.add_member(&device, &member) {
                    self.tell(&GuestEvent::Failed(error), Vec::new());
                }
            }
            Order::Run => {
                self.runs = true;
                self.tell(&GuestEvent::Ready { confinement: self.confinement.clone() }, Vec::new());
            }
            Order::MemberGone { device, member } => self.remove_member(&device, &member),
            Order::MakePair(pair) => self.begin_pair(pair, descriptors),
            Order::PeerMemory { pair } => self.complete_pair(pair, descriptors.pop()),
            Order::Quiesce { pair } => self.quiesce(pair),
            Order::Unpair { pair, why: _ } => self.end_pair(now, pair),
            Order::Refused { device, member, why: _ } => self.refused(&device, &member),
            Order::Application { application, arena_bytes } => {
                self.begin_application(application, arena_bytes, descriptors);
            }
            Order::ApplicationMemory { application } => self.complete_application(now, application, descriptors),
            Order::Report { request } => self.report(request),
            Order::Ping { request, to, bytes, timeout_ms } => {
                let span = self.clock.span(Duration::from_millis(timeout_ms.into()));
                let [_, _, _, _, high, low, more, least] = request.to_be_bytes();
                let ping = Ping { to, ident: u16::from_be_bytes([high, low]), seq: u16::from_be_bytes([more, least]) };
                let at = self.clock.instant(now);
                let sent = self.stack.ping(at, ping, bytes).is_ok();
                let until = if sent { Ticks(now.0 + span.0) } else { now };
                self.pings.push(OpenPing { request, ping, sent: now, until });
            }
            Order::Capture { snap_bytes } => {
                if let Some(into) = descriptors.pop() {
                    let snap = usize::try_from(snap_bytes).unwrap_or(usize::MAX);
                    self.stack.start_capture(snap, CAPTURE_BYTES_MAX);
                    let _ = rustix::io::ioctl_fionbio(&into, true);
                    self.capture = Some(Capture { into, waiting: Vec::new() });
                }
            }
            Order::CaptureStop => self.stop_capture(),
            Order::Stop => self.stops = true,
        }
    }

    fn let_suitors_in(&mut self) {
        let Some(listener) = &self.listener else { return };
        while let Ok(socket) = net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            let free = self.suitors.iter().position(Option::is_none);
            let at = free.unwrap_or(self.suitors.len());
            if at >= SUITORS_MAX {
                continue;
            }
            let Ok(channel) = Channel::new(socket) else { continue };
            let Ok(key) = self.wakes.events.add(&channel, Source::Suitor(at)) else { continue };
            match free {
                Some(at) => self.suitors[at] = Some((key, channel)),
                None => self.suitors.push(Some((key, channel))),
            }
        }
    }

    /// Only who knows the secret becomes the control program.
    fn hear_suitor(&mut self, at: usize) {
        let Some((key, mut channel)) = self.suitors.get_mut(at).and_then(Option::take) else { return };
        match channel.receive::<Order>() {
            Ok(None) => self.suitors[at] = Some((key, channel)),
            Ok(Some((Order::Adopt { protocol: PROTOCOL, secret }, _))) if self.config.secret.is(&secret) => {
                self.control_ended();
                self.wakes.events.remove(key, &channel);
                let Ok(key) = self.wakes.events.add(&channel, Source::Control) else { return };
                self.control = Some((key, channel));
                self.tell_inventory();
            }
            Ok(Some(_)) | Err(_) => self.wakes.events.remove(key, &channel),
        }
    }

    /// Tells a control program that has just adopted this guest what the guest has, in as many parts as it takes.
    fn tell_inventory(&mut self) {
        let mut pairs: Vec<RingPairEnd> = self.held.iter().map(|(_, pair)| pair.clone()).collect();
        let mut applications = self.applications.ids();
        loop {
            let rest = |count: usize| count.saturating_sub(INVENTORY_PART_MAX);
            let (pairs_left, applications_left) = (rest(pairs.len()), rest(applications.len()));
            let last = pairs_left == 0 && applications_left == 0;
            let news = GuestEvent::Inventory {
                confinement: self.confinement.clone(),
                pairs: pairs.split_off(pairs_left),
                applications: applications.split_off(applications_left),
                last,
            };
            self.tell(&news, Vec::new());
            if last {
                return;
            }
        }
    }

    /// Pings and captures.
    pub(super) fn background(&mut self, now: Ticks) {
        self.look_for_idle(now);
        while let Some(pong) = self.stack.poll_pong() {
            if let Some(at) = self.pings.iter().position(|open| open.ping == pong) {
                let open = self.pings.swap_remove(at);
                let time_ns = Some(self.clock.rate.ns(self.clock.now().since(open.sent)));
                self.tell(&GuestEvent::Pong { request: open.request, time_ns }, Vec::new());
            }
        }
        while let Some(at) = self.pings.iter().position(|open| open.until <= now) {
            let open = self.pings.swap_remove(at);
            self.tell(&GuestEvent::Pong { request: open.request, time_ns: None }, Vec::new());
        }
        self.write_capture();
    }

    fn write_capture(&mut self) {
        let Some(capture) = &mut self.capture else { return };
        if capture.waiting.is_empty() {
            capture.waiting = self.stack.take_capture();
        }
        while !capture.waiting.is_empty() {
            match rustix::io::write(&capture.into, &capture.waiting) {
                Ok(written) => _ = capture.waiting.drain(..written),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.stop_capture();
                    return;
                }
            }
        }
    }

    fn stop_capture(&mut self) {
        if self.capture.take().is_some() {
            let missed = self.stack.stop_capture();
            self.tell(&GuestEvent::CaptureEnded { missed }, Vec::new());
        }
    }

    fn report(&mut self, request: u64) {
        for part in self.report_parts() {
            self.tell(&GuestEvent::Report { request, part }, Vec::new());
        }
    }

    /// What has been counted: each device with its links, then the stack.
    pub fn report_parts(&self) -> Vec<ReportPart> {
        let mut parts = Vec::new();
        for place in 0..self.config.devices.len() {
            let device = self.config.devices[place].clone();
            let mut all = Counters::new();
            let mut links = Vec::new();
            for (at, (sender, receiver)) in self.ports.senders.iter().zip(&self.ports.receivers).enumerate() {
                if sender.device != place {
                    continue;
                }
                port::add(&mut all, &sender.counters());
                port::add(&mut all, &receiver.counters());
                if let Some(sent) = self.stack.counters(setup::number(at)) {
                    port::add(
                        &mut all,
                        &port::named([("packets_sent", sent.frames_sent), ("packets_received", sent.frames_received)]),
                    );
                }
                links.extend(port::report(&device.name, sender, receiver));
            }
            parts.push(ReportPart::Device(DeviceReport { device, counters: all }));
            parts.extend(links.into_iter().map(ReportPart::Link));
        }
        parts.extend(self.applications.reports(&self.clock.rate).map(ReportPart::Application));
        parts.push(ReportPart::Stack(self.stack_report()));
        parts
    }

    fn stack_report(&self) -> StackReport {
        let drops = self.stack.drops().iter().filter(|(_, count)| *count > 0);
        let memory = self.stack.memory();
        let copying = self.ports.receivers.iter().map(port::Receiver::copy_ticks).sum::<u64>();
        let copying = Ticks(copying + self.applications.copy_ticks());
        let mut times_ns = port::wait_times(&self.waiter.counters(), &self.clock.rate);
        times_ns.insert("copying".to_owned(), self.clock.rate.ns(copying));
        StackReport {
            drops: drops.map(|(reason, count)| (reason.to_string(), count)).collect(),
            memory: memory.0.iter().map(|part| (part.name.to_owned(), (part.held * part.bytes_each) as u64)).collect(),
            times_ns,
            connections: memory.held("TCP connections") as u64,
        }
    }
}
