//! The orders that a guest receives from control programs, and the events that it sends to them.

use super::Node;
use super::wakes::ReadyKey;
use crate::limits::{CAPTURE_BYTES_MAX, INVENTORY_PART_MAX, RECONNECTING_MAX};
use crate::protocol::channel::{Channel, Ended};
use crate::protocol::message::{GuestEvent, Order, PROTOCOL, RingPairEnd};
use crate::protocol::report::ReportPart;
use crate::switch::capture as switch;
use rustix::io::Errno;
use rustix::net::{self, SocketFlags};
use siga_ring::clock::Ticks;
use siga_stack::ip::echo::Ping;
use siga_stack::link::capture::CaptureSettings;
use siga_stack::pcapng::LinkType;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

/// An ICMP echo request that was sent and has not been answered yet.
#[derive(Debug)]
pub(super) struct OpenPing {
    request: u64,
    ping: Ping,
    sent: Ticks,
    pub(super) until: Ticks,
}

/// A running capture of the guest's frames.
#[derive(Debug)]
pub(super) struct Capture {
    into: OwnedFd,
    waiting: Vec<u8>,
}

/// How many orders a guest handles before it handles frames again.
const ORDERS_AT_ONCE_MAX: usize = 64;

impl Node {
    /// Sends an event to the control program, if one is connected.
    pub(super) fn send_event(&mut self, event: &GuestEvent, descriptors: Vec<OwnedFd>) {
        let Some((key, channel)) = &mut self.control else { return };
        let sent = channel.send(event, descriptors);
        self.wakes.events.set_behind(*key, &*channel, channel.is_behind());
        if sent.is_err() {
            self.control_ended();
        }
    }

    /// Handles the end of the control program. Traffic over existing ring pairs continues. The guest sends its unanswered requests
    /// for ring pairs again to the next control program.
    fn control_ended(&mut self) {
        if let Some((key, channel)) = self.control.take() {
            self.wakes.events.remove(key, &channel);
        }
        self.links.senders.iter_mut().for_each(|sender| sender.asked = false);
        // Without a socket on which it listens for reconnecting control programs, the guest can never have a control program again.
        // So it stops.
        // A process that was to replace another one has no use without it, either.
        self.stops |= self.listener.is_none() || (self.config.replaces && !self.runs);
    }

    #[inline]
    pub(super) fn handle_events(&mut self, now: Ticks) {
        if self.wakes.ready.is_empty() {
            return;
        }
        for source in std::mem::take(&mut self.wakes.ready) {
            match source {
                ReadyKey::Control => self.receive_orders(now),
                ReadyKey::Listener => self.accept_reconnecting(),
                ReadyKey::Reconnecting(at) => self.receive_from_reconnecting(at),
                ReadyKey::Link(link) => self.link_woken(now, link),
                ReadyKey::Port(port) => self.tap_woken(port),
                ReadyKey::Application(place) => self.application_woken(now, place),
                ReadyKey::Alarm => self.wakes.clear_alarm(),
                ReadyKey::Wake => self.wakes.clear_wake(),
            }
        }
    }

    fn receive_orders(&mut self, now: Ticks) {
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
            // These orders are valid only as the first order of a control program. The guest has already received its first order,
            // so it ignores them here.
            Order::Configure(_) | Order::Adopt { .. } => {}
            Order::Stderr => {
                if let Some(messages) = descriptors.pop() {
                    // If the call fails, messages that this process writes to stderr are lost, as they were before.
                    let _ = rustix::stdio::dup2_stderr(messages);
                }
            }
            Order::Member { device, member } => {
                if let Err(error) = self.add_member(&device, &member) {
                    self.send_event(&GuestEvent::Failed(error), Vec::new());
                }
            }
            Order::Allow(allow) => self.change_allow(now, allow),
            Order::Run => {
                self.runs = true;
                self.learn_handed_over(now);
                self.send_event(&GuestEvent::Ready { confinement: self.confinement.clone() }, Vec::new());
            }
            Order::MemberGone { device, member } => self.remove_member(&device, &member),
            Order::Port { port } => {
                if let Err(error) = self.add_kernel_port(now, *port, descriptors) {
                    self.send_event(&GuestEvent::Failed(error), Vec::new());
                }
            }
            Order::Carrier { port, is_there } => self.set_carrier(now, &port, is_there),
            Order::PortSettings { port, settings } => self.set_port_settings(now, &port, settings),
            Order::Mirror(mirror) => {
                if let Some(switch) = &mut self.switch {
                    switch.set_mirror(mirror);
                }
            }
            Order::Addresses { request, forget } => self.report_addresses(now, request, forget),
            Order::PortGone { port } => self.remove_kernel_port(now, &port),
            Order::MakePair(pair) => self.begin_pair(pair, descriptors),
            Order::PeerMemory { pair, continues } => self.complete_pair((pair, continues), descriptors.pop()),
            Order::Quiesce { pair } => self.quiesce(pair),
            Order::Unpair { pair, why: _ } => self.end_pair(now, pair),
            Order::Refused { device, member, why: _ } => self.refused(&device, &member),
            Order::Application { application, arena_bytes } => {
                self.begin_application(application, arena_bytes, descriptors);
            }
            Order::ApplicationMemory { application } => self.complete_application(now, application, descriptors),
            Order::Direct { application, order } => self.obey_direct(now, application, order, descriptors),
            Order::Report { request } => self.report(request),
            Order::Totals { request } => self.report_totals(request),
            Order::Ping { request, to, bytes, timeout_ms } => {
                let span = self.clock.span(Duration::from_millis(timeout_ms.into()));
                let [_, _, _, _, high, low, more, least] = request.to_be_bytes();
                let ping = Ping { to, ident: u16::from_be_bytes([high, low]), seq: u16::from_be_bytes([more, least]) };
                let at = self.clock.instant(now);
                let sent = self.stack.ping(at, ping, bytes).is_ok();
                let until = if sent { Ticks(now.0 + span.0) } else { now };
                self.pings.push(OpenPing { request, ping, sent: now, until });
            }
            Order::Capture { snap_bytes, blocks } => self.start_capture((snap_bytes, blocks), descriptors.pop()),
            Order::CaptureStop => self.stop_capture(),
            Order::Prepare => self.prepare(),
            Order::Retire => self.retire(),
            Order::Resume => self.resume(),
            Order::Learn { addresses } => self.learn(addresses),
            Order::Stop => {
                self.account(None);
                self.stops = true;
            }
        }
    }

    fn start_capture(&mut self, (snap_bytes, blocks): (u32, bool), into: Option<OwnedFd>) {
        let Some(into) = into else { return };
        let snap_bytes = usize::try_from(snap_bytes).unwrap_or(usize::MAX);
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let since_1970_ns = u64::try_from(since_1970.as_nanos()).unwrap_or(0);
        let epoch_ns = since_1970_ns.saturating_sub(self.now().as_ns());
        let bytes_max = CAPTURE_BYTES_MAX;
        if blocks {
            self.links.capture_blocks(Some(switch::Capture::new(LinkType::User0, (snap_bytes, bytes_max), epoch_ns)));
        } else if !self.start_switch_capture(snap_bytes, bytes_max, epoch_ns) {
            self.stack.start_capture(CaptureSettings { snap_bytes, bytes_max, epoch_ns });
        }
        let _ = rustix::io::ioctl_fionbio(&into, true);
        self.capture = Some(Capture { into, waiting: Vec::new() });
    }

    fn accept_reconnecting(&mut self) {
        let Some(listener) = &self.listener else { return };
        while let Ok(socket) = net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            let free = self.reconnecting.iter().position(Option::is_none);
            let at = free.unwrap_or(self.reconnecting.len());
            if at >= RECONNECTING_MAX {
                continue;
            }
            let Ok(channel) = Channel::new(socket) else { continue };
            let Ok(key) = self.wakes.events.add(&channel, ReadyKey::Reconnecting(at)) else { continue };
            match free {
                Some(at) => self.reconnecting[at] = Some((key, channel)),
                None => self.reconnecting.push(Some((key, channel))),
            }
        }
    }

    /// Receives the first order of a reconnecting control program, which must contain the guest's secret to prove the sender's
    /// identity.
    fn receive_from_reconnecting(&mut self, at: usize) {
        let Some((key, mut channel)) = self.reconnecting.get_mut(at).and_then(Option::take) else { return };
        match channel.receive::<Order>() {
            Ok(None) => self.reconnecting[at] = Some((key, channel)),
            Ok(Some((Order::Adopt { protocol: PROTOCOL, secret }, _))) if self.config.secret.is(&secret) => {
                self.control_ended();
                self.wakes.events.remove(key, &channel);
                let Ok(key) = self.wakes.events.add(&channel, ReadyKey::Control) else { return };
                self.control = Some((key, channel));
                self.send_inventory();
            }
            Ok(Some(_)) | Err(_) => self.wakes.events.remove(key, &channel),
        }
    }

    /// Sends the list of the guest's ring pairs and applications to a control program that has just adopted the guest. A long list
    /// is sent in several parts.
    fn send_inventory(&mut self) {
        self.send_port_inventory();
        let mut pairs: Vec<RingPairEnd> = self.held.iter().map(|(_, pair)| pair.clone()).collect();
        let mut applications = self.applications.ids();
        loop {
            let rest = |count: usize| count.saturating_sub(INVENTORY_PART_MAX);
            let (pairs_left, applications_left) = (rest(pairs.len()), rest(applications.len()));
            let last = pairs_left == 0 && applications_left == 0;
            let event = GuestEvent::Inventory {
                confinement: self.confinement.clone(),
                pairs: pairs.split_off(pairs_left),
                applications: applications.split_off(applications_left),
                last,
            };
            self.send_event(&event, Vec::new());
            if last {
                return;
            }
        }
    }

    /// Performs work that is not part of the traffic: idle ring pairs, pings and captures.
    #[inline]
    pub(super) fn background(&mut self, now: Ticks) {
        self.look_for_idle(now);
        while let Some(pong) = self.stack.poll_pong() {
            if let Some(at) = self.pings.iter().position(|open| open.ping == pong) {
                let open = self.pings.swap_remove(at);
                let time_ns = Some(self.clock.rate.ns(self.clock.now().since(open.sent)));
                self.send_event(&GuestEvent::Pong { request: open.request, time_ns }, Vec::new());
            }
        }
        while let Some(at) = self.pings.iter().position(|open| open.until <= now) {
            let open = self.pings.swap_remove(at);
            self.send_event(&GuestEvent::Pong { request: open.request, time_ns: None }, Vec::new());
        }
        if self.links.captured_blocks.is_some() {
            let at = self.clock.instant(now);
            self.links.take_captured(at);
        }
        self.write_capture();
        if self.stopping.is_some() {
            self.report_stopped(now);
        }
    }

    fn write_capture(&mut self) {
        let Some(capture) = &mut self.capture else { return };
        if capture.waiting.is_empty() {
            let of_switch = self.switch.as_mut().and_then(|switch| switch.capture.as_mut());
            capture.waiting = match self.links.captured_blocks.as_mut().or(of_switch) {
                Some(capture) => capture.file.take(),
                None => self.stack.take_capture(),
            };
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
            let of_blocks = self.links.captured_blocks.take();
            self.links.capture_blocks(None);
            let of_switch = of_blocks.or_else(|| self.switch.as_mut().and_then(|switch| switch.capture.take()));
            let missed = of_switch.map_or_else(|| self.stack.stop_capture(), |capture| capture.file.left_out());
            self.send_event(&GuestEvent::CaptureEnded { missed }, Vec::new());
        }
    }

    fn report_totals(&mut self, request: u64) {
        let part = ReportPart::Totals(self.totals());
        self.send_event(&GuestEvent::Report { request, part }, Vec::new());
    }

    fn report(&mut self, request: u64) {
        for part in self.report_parts() {
            self.send_event(&GuestEvent::Report { request, part }, Vec::new());
        }
    }
}
