//! The stack receives frames from its owner, returns frames to send, and returns the time of its next timer. It joins the IP
//! layer with UDP, TCP and group membership.

mod configure;
mod deliver;
pub mod memory;
pub mod tcp;
mod udp;

use crate::drops::{DropReason, FragmentDrop};
use crate::ip::forward::Forward;
use crate::ip::reassembly::Expired;
use crate::ip::segmentation::Pieces;
use crate::ip::{Ip, Policy};
use crate::limits::TCP_BUFFERS_BYTES_DEFAULT;
use crate::link::device::Device;
use crate::link::frame::{DeviceId, Marks, Packet, Payload, Received};
use crate::multicast::group::Groups;
use crate::seed::{Purpose, Seed};
use crate::sockets::{FastOpenSettings, TcpSockets};
use crate::tcp::{Heap, Storage};
use crate::time::Instant;
use crate::udp::UdpSockets;
use crate::wire::icmp::IcmpError;

/// The configuration of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackConfig {
    /// The source of everything that peers must not be able to guess. Two stacks with the same seed and the same input behave
    /// identically.
    pub seed: Seed,
    /// Whether the stack forwards packets for other hosts.
    pub forwarding: bool,
    /// Whether a router sends an ICMP redirect to a sender whose next hop is on the sender's own link.
    pub redirects: bool,
    /// Whether forwarding requires that the route back to a packet's source leads over the device on which the packet arrived
    /// (RFC 1812 5.3.8). A router with several paths to one network must not require this.
    pub source_validation: bool,
    /// Whether the loopback addresses (127.0.0.0/8 and ::1) are addresses of this stack. Packets with such an address never leave the
    /// stack, and are never accepted from a device.
    pub loopback: bool,
    /// Maximum size of the buffers of all TCP connections together, in bytes. If the buffers reach this limit, none of them
    /// grows. Each connection may still use [`crate::limits::TCP_SOCKET_BYTES_FREE`] in each direction.
    pub tcp_buffers_bytes_max: usize,
    /// How TCP sockets may use Fast Open.
    pub fast_open: FastOpenSettings,
}

impl Default for StackConfig {
    /// Returns the configuration of an end host. Its seed is a constant that attackers know, so the owner must replace it with
    /// random bytes from the operating system.
    fn default() -> Self {
        Self {
            seed: Seed::simulated(0),
            forwarding: false,
            redirects: false,
            source_validation: false,
            loopback: false,
            tcp_buffers_bytes_max: TCP_BUFFERS_BYTES_DEFAULT,
            fast_open: FastOpenSettings::default(),
        }
    }
}

/// The result of handling a frame.
#[derive(Debug)]
pub enum Handled<'a, P: ?Sized> {
    /// The stack has processed the frame, and the caller has nothing to do.
    Done,
    /// The stack dropped the frame and counted it.
    Dropped(DropReason),
    /// The caller must send the frame on the device that this value names.
    Forward(Forward<'a, P>),
}

/// A frame that the stack has built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Length of the frame, in bytes.
    pub len: usize,
    /// Facts that the receiver must know about the frame in addition to its bytes.
    pub marks: Marks,
}

/// A TCP/IP stack without I/O, which serves as end host and as router. The buffers of its TCP connections are in storage of type `S`.
///
/// # Methods
/// - *Configuration*: [`Stack::new`], [`Stack::add_device`], [`Stack::add_route`], [`Stack::set_sources`], [`Stack::set_mtu`].
/// - `handle_*` methods receive input: [`Stack::handle_frame`] a frame, [`Stack::handle_timeout`] the current time.
/// - `tcp_*` and `udp_*` methods and [`Stack::ping`] are the calls of applications.
/// - `poll_*` methods return output: [`Stack::poll_transmit`] frames, [`Stack::poll_timeout`] the next deadline,
///   [`Stack::tcp_poll_event`] and [`Stack::udp_poll_event`] events of sockets, [`Stack::poll_pong`] echo replies.
/// - *Getters* change nothing: [`Stack::routes`], [`Stack::drops`], [`Stack::counters`], [`Stack::groups`], [`Stack::memory`].
///
/// # Order of calls
/// Time is an argument and must never run backwards. After each call with a `now` argument, the owner does the following steps:
/// 1. If the call returned [`Handled::Forward`], send the frame before any other call.
/// 2. Call [`Stack::poll_transmit`] for each device until it returns `None`.
/// 3. Handle the events of sockets.
/// 4. Sleep until [`Stack::poll_timeout`] or until the next frame arrives. Then call [`Stack::handle_timeout`] or
///    [`Stack::handle_frame`].
///
/// If the owner misuses a method, the method returns a typed error. Bytes from the network never cause such an error: bad packets
/// are dropped and counted.
///
/// # Example
/// Two hosts on one link. The first host pings the second one.
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
    /// Creates a stack without devices.
    pub fn new(config: StackConfig) -> Self {
        Self::with_storage(config)
    }
}

impl<S: Storage> Stack<S> {
    /// Creates a stack without devices. Its TCP buffers are in storage of type `S` instead of the heap.
    pub fn with_storage(config: StackConfig) -> Self {
        let StackConfig { seed, forwarding, redirects, source_validation, loopback, tcp_buffers_bytes_max, fast_open } =
            config;
        Self {
            ip: Ip::new(&seed, Policy { forwarding, redirects, source_validation, loopback }),
            udp: UdpSockets::new(seed.keyed(Purpose::UdpTable), seed.random(Purpose::UdpPorts)),
            groups: Groups::new(seed.random(Purpose::GroupTimers)),
            tcp: TcpSockets::new(&seed, tcp_buffers_bytes_max, fast_open),
        }
    }

    /// Processes a frame that arrived on a device.
    #[inline]
    pub fn handle_frame<'a, P: Payload + ?Sized>(
        &'a mut self,
        now: Instant,
        device: DeviceId,
        received: Received<'a, P>,
    ) -> Handled<'a, P> {
        if self.ip.policy.forwarding
            && let Some(to) = self.ip.forward_fast(device, &received)
        {
            let Received { header: frame, payload, marks } = received;
            let payload_bytes = payload.len();
            let packet =
                Packet { frame, payload, payload_bytes, link_bytes: 0, marks, device, link: device, to_group: false };
            let pieces = Pieces { packet, scratch: &mut self.ip.scratch };
            return Handled::Forward(Forward { device: to, pieces, capture: None });
        }
        let known = if self.tcp.sockets.len() > 0 { self.receive_fast(now, device, &received) } else { None };
        match known {
            Some(Ok(())) => Handled::Done,
            Some(Err(reason)) => {
                self.ip.drops.count(reason);
                Handled::Dropped(reason)
            }
            None => self.handle_group_frame(now, device, device, received),
        }
    }

    /// Processes a frame that was sent to several stations. It arrived over one of the links that `device` combines. `link` is
    /// the device of this one link, and the source filter of `link` applies.
    // This function is also the slow path of all other frames. It is never inlined, so that it does not use registers of the fast
    // path.
    #[inline(never)]
    pub fn handle_group_frame<'a, P: Payload + ?Sized>(
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
        if let Some(part) = captured {
            self.ip.capture_received(now, device, &part, result.err());
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

    /// Returns whether [`Stack::poll_transmit`] may have a frame for a device.
    #[inline]
    pub fn wants_transmit(&self, device: DeviceId) -> bool {
        !self.ip.devices.get(usize::from(device.0)).is_none_or(Device::is_idle) || self.tcp.is_pending(device)
    }

    /// Returns for each device, from device number `from` on, the same as [`Stack::wants_transmit`]. Owners with several devices
    /// call this method, because it needs fewer instructions for each device.
    #[inline]
    pub fn wishes_to_transmit(&self, from: usize) -> impl Iterator<Item = bool> {
        let (devices, pending) = (self.ip.devices.get(from..), self.tcp.pending.get(from..));
        let devices = devices.unwrap_or_default().iter().zip(pending.unwrap_or_default());
        devices.map(|(device, pending)| !device.is_idle() || !pending.is_empty())
    }

    /// Returns an upper bound of the length of a device's next frame in bytes, or 0 if no frame is to be sent. The frame is not
    /// built.
    #[inline]
    pub fn next_frame_bytes_max(&self, now: Instant, device: DeviceId) -> usize {
        if !self.wants_transmit(device) {
            return 0;
        }
        self.bytes_max_of_next(now, device)
    }

    #[inline(never)]
    fn bytes_max_of_next(&self, now: Instant, device: DeviceId) -> usize {
        let waiting = self.ip.devices.get(usize::from(device.0)).and_then(Device::next_bytes).unwrap_or(0);
        // Either a queued frame or a TCP segment is sent next.
        waiting.max(self.next_segment_max(now, device))
    }

    /// Builds the next frame that a device sends, in `into`. Returns `None` if no frame was built.
    ///
    /// `into` needs room for the device's MTU and link header, or for [`Stack::next_frame_bytes_max`]. If both ends of
    /// the link agreed to large segments, these become as large as `into` allows. A frame that does not fit stays in the queue.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit> {
        if !self.wants_transmit(device) {
            return None;
        }
        self.next_frame(now, device, into)
    }

    #[inline(never)]
    fn next_frame(&mut self, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit> {
        // Return the value without reading its fields: a read here would stall until the stores that wrote the fields have
        // completed.
        let idle = self.ip.devices.get(usize::from(device.0)).is_none_or(Device::is_idle);
        if !idle && let frame @ Some(_) = self.pop_frame(now, device, into) {
            return frame;
        }
        match self.poll_tcp(now, device, None, into) {
            // If the link address of a connection's neighbour is unknown, `poll_tcp` has put a neighbour solicitation into the
            // queue.
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

    /// Returns the time at which the owner must call [`Stack::handle_timeout`] if no other call happens before. This time may be
    /// in the past. `None` means that no timer runs.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.ip.loopback.is_empty() {
            return Some(Instant::default());
        }
        let below = Instant::first(self.ip.neighbours.timeout(), self.ip.reassembly.timeout());
        Instant::first(below, Instant::first(self.groups.due, self.tcp.timeout()))
    }

    /// Runs all timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.ip.handle_neighbour_timeout(now);
        self.groups.handle_timeout(now, &mut self.ip);
        while let Some(Expired { device, first }) = self.ip.reassembly.expire(now) {
            self.ip.drops.count(FragmentDrop::Timeout);
            if let Some(first) = first {
                self.ip.send_error(now, device, &first, false, IcmpError::Reassembly);
            }
        }
        self.handle_tcp_timeout(now);
        self.deliver_loopback(now);
    }
}
