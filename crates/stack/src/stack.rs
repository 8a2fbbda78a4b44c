//! The stack: takes frames, hands out frames, and says when it wants to be called again.
//!
//! This file dispatches and polls. `ip` checks, forwards and reassembles packets; `udp`, `sockets` and `multicast` take what is for this
//! host. `configure.rs` has devices, routes and counters, `deliver.rs` the way of a packet to its socket, `udp.rs` the calls of UDP.

mod configure;
mod deliver;
pub mod memory;
pub mod tcp;
mod udp;

use crate::drops::{DropReason, FragmentDrop};
use crate::ip::forward::Forward;
use crate::ip::segmentation::Pieces;
use crate::ip::{Ip, Policy};
use crate::limits::TCP_BUFFERS_BYTES_DEFAULT;
use crate::link::device::Device;
use crate::link::frame::{DeviceId, Marks, Packet, Payload, Received};
use crate::multicast::group::Groups;
use crate::seed::{Purpose, Seed};
use crate::sockets::TcpSockets;
use crate::tcp::{Heap, Storage};
use crate::time::Instant;
use crate::udp::UdpSockets;
use crate::wire::icmp::IcmpError;

/// The properties of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackConfig {
    /// The source of everything that peers must not guess. Two stacks with the same seed and input do the same.
    pub seed: Seed,
    /// Packets for other hosts are forwarded.
    pub forwarding: bool,
    /// A router sends ICMP redirects to senders whose next hop is on their own link.
    pub redirects: bool,
    /// Packets are forwarded only if the route back to their source leads over the device on which they arrived (RFC 1812 5.3.8).
    /// Not for a router that has several ways to one network.
    pub source_validation: bool,
    /// Bytes that the buffers of all TCP connections hold together. Beyond it no buffer grows, but each keeps
    /// [`crate::limits::TCP_SOCKET_BYTES_FREE`].
    pub tcp_buffers_bytes_max: usize,
}

impl Default for StackConfig {
    /// An end host. Its seed is public: the owner replaces it with one that the operating system drew.
    fn default() -> Self {
        Self {
            seed: Seed::simulated(0),
            forwarding: false,
            redirects: false,
            source_validation: false,
            tcp_buffers_bytes_max: TCP_BUFFERS_BYTES_DEFAULT,
        }
    }
}

/// What became of a frame.
#[derive(Debug)]
pub enum Handled<'a, P: ?Sized> {
    /// The stack needs nothing more of it.
    Done,
    /// It was dropped and counted.
    Dropped(DropReason),
    /// The caller forwards it.
    Forward(Forward<'a, P>),
}

/// A frame that the stack has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Bytes of the frame.
    pub len: usize,
    /// What the receiver has to know besides the bytes.
    pub marks: Marks,
}

/// An end host and a router, without I/O. The buffers of its TCP connections lie in storage of kind `S`.
///
/// # Methods
/// - *Configuration*: [`Stack::new`], [`Stack::add_device`], [`Stack::add_route`], [`Stack::set_sources`], [`Stack::set_mtu`].
/// - `handle_*` take what happened: [`Stack::handle_frame`] a frame, [`Stack::handle_timeout`] the time.
/// - `tcp_*`, `udp_*` and [`Stack::ping`] are the calls of applications.
/// - `poll_*` hand out what the stack has: [`Stack::poll_transmit`] frames, [`Stack::poll_timeout`] the next deadline,
///   [`Stack::tcp_poll_event`] and [`Stack::udp_poll_event`] events of sockets, [`Stack::poll_pong`] echo replies.
/// - *Getters* change nothing: [`Stack::routes`], [`Stack::drops`], [`Stack::counters`], [`Stack::groups`], [`Stack::memory`].
///
/// # Order of calls
/// Time is an argument and never runs backwards. After any call that takes `now`, the owner
/// 1. forwards the frame if [`Handled::Forward`] was returned, before the next call,
/// 2. calls [`Stack::poll_transmit`] for each device until it returns `None`,
/// 3. handles the events of sockets,
/// 4. sleeps until [`Stack::poll_timeout`] or the next frame, and then calls [`Stack::handle_timeout`] or
///    [`Stack::handle_frame`].
///
/// Misuse returns a typed error. Bytes from the network never cause one: they are dropped and counted.
///
/// # Example
/// Two hosts on one link; the first pings the second.
/// ```
/// use siga_stack::Stack;
/// use siga_stack::ip::echo::Ping;
/// use siga_stack::limits::{FRAME_BYTES_MAX, HEADER_BYTES_MAX};
/// use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
/// use siga_stack::link::frame::{DeviceId, Received};
/// use siga_stack::stack::StackConfig;
/// use siga_stack::time::Instant;
/// use siga_stack::wire::address::Prefix;
///
/// fn host(address: [u8; 4]) -> Stack {
///     let mut stack = Stack::new(StackConfig::default());
///     let addresses = Prefix::new(address.into(), 24).into_iter().collect();
///     let config = DeviceConfig { medium: Medium::Ip, mtu: 1500, addresses, agreed: Agreed::default() };
///     stack.add_device(config).expect("a valid device");
///     stack
/// }
///
/// /// Carries all frames from one host to the other.
/// fn carry(now: Instant, from: &mut Stack, to: &mut Stack) {
///     let mut frame = vec![0; FRAME_BYTES_MAX];
///     while let Some(sent) = from.poll_transmit(now, DeviceId(0), &mut frame) {
///         let (header, payload) = frame[..sent.len].split_at(sent.len.min(HEADER_BYTES_MAX));
///         to.handle_frame(now, DeviceId(0), Received { header, payload, marks: sent.marks });
///     }
/// }
///
/// let now = Instant::from_ns(0);
/// let (mut one, mut other) = (host([10, 0, 0, 1]), host([10, 0, 0, 2]));
/// let ping = Ping { to: [10, 0, 0, 2].into(), ident: 7, seq: 1 };
/// one.ping(now, ping, 56).expect("a route");
/// carry(now, &mut one, &mut other);
/// carry(now, &mut other, &mut one);
/// assert_eq!(one.poll_pong(), Some(ping));
/// ```
#[derive(Debug)]
pub struct Stack<S: Storage = Heap> {
    pub(crate) ip: Ip,
    pub(crate) udp: UdpSockets,
    pub(crate) groups: Groups,
    pub(crate) tcp: TcpSockets<S>,
}

impl Stack {
    /// A stack without devices.
    pub fn new(config: StackConfig) -> Self {
        Self::with_storage(config)
    }
}

impl<S: Storage> Stack<S> {
    /// A stack without devices, with buffers in storage of another kind than the heap.
    pub fn with_storage(config: StackConfig) -> Self {
        let StackConfig { seed, forwarding, redirects, source_validation, tcp_buffers_bytes_max } = config;
        Self {
            ip: Ip::new(&seed, Policy { forwarding, redirects, source_validation }),
            udp: UdpSockets::new(seed.keyed(Purpose::UdpTable), seed.random(Purpose::UdpPorts)),
            groups: Groups::new(seed.random(Purpose::GroupTimers)),
            tcp: TcpSockets::new(&seed, tcp_buffers_bytes_max),
        }
    }

    /// Takes a frame that arrived on a device.
    #[inline]
    pub fn handle_frame<'a, P: Payload + ?Sized>(
        &'a mut self,
        now: Instant,
        device: DeviceId,
        received: Received<'a, P>,
    ) -> Handled<'a, P> {
        let known = if self.tcp.has_connections() { self.receive_fast(now, device, &received) } else { None };
        match known {
            Some(Ok(())) => Handled::Done,
            Some(Err(reason)) => {
                self.ip.drops.count(reason);
                Handled::Dropped(reason)
            }
            None => self.handle_any_frame(now, device, device, received),
        }
    }

    /// Takes a frame to a group of stations that arrived over one of several links that `device` stands for. `link` is the device
    /// of that link alone; its source filter applies.
    pub fn handle_group_frame<'a, P: Payload + ?Sized>(
        &'a mut self,
        now: Instant,
        device: DeviceId,
        link: DeviceId,
        received: Received<'a, P>,
    ) -> Handled<'a, P> {
        self.handle_any_frame(now, device, link, received)
    }

    /// Takes a frame that is not eligible for the fast path: a function of its own, so that the fast path keeps its registers.
    #[inline(never)]
    fn handle_any_frame<'a, P: Payload + ?Sized>(
        &'a mut self,
        now: Instant,
        device: DeviceId,
        link: DeviceId,
        received: Received<'a, P>,
    ) -> Handled<'a, P> {
        let captured = self.ip.capture.as_ref().map(|capture| capture.part(received));
        let Received { header: frame, payload, marks } = received;
        let payload_bytes = payload.len();
        let mut packet = Packet { frame, payload, payload_bytes, link_bytes: 0, marks, device, link, to_group: false };
        let result = self.receive(now, &mut packet);
        if let (Some(capture), Some(part)) = (&mut self.ip.capture, captured) {
            capture.received(now, device, &part, result.err());
        }
        if !matches!(result, Ok(Some(_))) {
            self.deliver_loopback(now);
        }
        match result {
            Ok(None) => Handled::Done,
            Ok(Some(device)) => {
                let capture = self.ip.capture.as_mut().map(|capture| (now, capture));
                let pieces = Pieces { packet, scratch: &mut self.ip.scratch };
                Handled::Forward(Forward { device, pieces, capture })
            }
            Err(reason) => {
                self.ip.drops.count(reason);
                Handled::Dropped(reason)
            }
        }
    }

    /// Whether [`Stack::poll_transmit`] may have a frame for a device.
    #[inline]
    pub fn wants_transmit(&self, device: DeviceId) -> bool {
        !self.ip.devices.get(usize::from(device.0)).is_none_or(Device::is_idle) || self.tcp.is_pending(device)
    }

    /// An upper bound of the length of a device's next frame, without building it; 0 if there is none.
    pub fn next_frame_bytes_max(&self, now: Instant, device: DeviceId) -> usize {
        let waiting = self.ip.devices.get(usize::from(device.0)).and_then(Device::next_bytes).unwrap_or(0);
        // Either frame may be the next.
        waiting.max(self.next_segment_max(now, device))
    }

    /// Builds the next frame that a device sends.
    ///
    /// `into` needs room for the device's MTU and link header, or for [`Stack::next_frame_bytes_max`]. Where large segments are
    /// agreed, they become as large as the room. A frame that does not fit stays.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit> {
        if !self.wants_transmit(device) {
            return None;
        }
        self.next_frame(now, device, into)
    }

    #[inline(never)]
    fn next_frame(&mut self, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit> {
        // The frame is returned as it is: a look at it here would wait for the stores that made it.
        let idle = self.ip.devices.get(usize::from(device.0)).is_none_or(Device::is_idle);
        if !idle && let frame @ Some(_) = self.pop_frame(now, device, into) {
            return frame;
        }
        match self.poll_tcp(now, device, None, into) {
            // A connection whose neighbour is not known leaves a solicitation in the queue.
            None => self.pop_frame(now, device, into),
            frame @ Some(_) => frame,
        }
    }

    #[inline(never)]
    fn pop_frame(&mut self, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit> {
        let (outgoing, skip) = self.ip.devices.get_mut(usize::from(device.0))?.pop(into.len())?;
        let bytes = &outgoing.bytes[skip..];
        into[..bytes.len()].copy_from_slice(bytes);
        self.ip.capture_sent(now, device, &into[..bytes.len()]);
        Some(Transmit { len: bytes.len(), marks: outgoing.marks })
    }

    /// When [`Stack::handle_timeout`] is to be called if nothing else happens. The moment may have passed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.ip.loopback.is_empty() {
            return Some(Instant::default());
        }
        let below = Instant::first(self.ip.neighbours.timeout(), self.ip.reassembly.timeout());
        Instant::first(below, Instant::first(self.groups.timeout(), self.tcp.timeout()))
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.ip.handle_neighbour_timeout(now);
        self.groups.handle_timeout(now, &mut self.ip);
        while let Some((device, expired)) = self.ip.reassembly.expire(now) {
            self.ip.drops.count(FragmentDrop::Timeout);
            if let Some(first) = expired.first {
                self.ip.send_error(now, device, &first, false, IcmpError::Reassembly);
            }
        }
        self.handle_tcp_timeout(now);
        self.deliver_loopback(now);
    }
}
