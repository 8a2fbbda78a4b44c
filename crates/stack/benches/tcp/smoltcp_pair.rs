//! smoltcp in its fastest configuration: no congestion control and no timestamps (its defaults). Frames are written and read in
//! the link's own buffers. `poll_ingress_single` and `poll_egress` are called only when they may have work.
//!
//! `max_burst_size` is not set, because it truncates the window field without regard to window scaling. The link limits bursts
//! instead.

use crate::link::{Link, Slot};
use crate::pair::{Pair, Setting, Side};
use siga_stack::link::frame::Marks;
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use std::collections::VecDeque;
use std::num::NonZeroUsize;

const PORT: u16 = 80;
const PORTS: std::ops::RangeInclusive<u16> = 1024..=65_535;
const ADDRESSES: [IpAddress; 2] = [IpAddress::v4(10, 0, 0, 1), IpAddress::v4(10, 0, 0, 2)];

struct Host {
    interface: Interface,
    sockets: SocketSet<'static>,
    /// The link on which the host sends.
    out: Link,
}

pub(crate) struct SmoltcpPair {
    now: Instant,
    hosts: [Host; 2],
    capabilities: DeviceCapabilities,
    /// Sockets of the client that have no connection.
    unused: Vec<SocketHandle>,
    /// Listening sockets of the server, in the order in which they accept connections.
    listening: VecDeque<SocketHandle>,
    port: u16,
}

impl SmoltcpPair {
    fn socket(&mut self, side: Side, handle: SocketHandle) -> &mut Socket<'static> {
        self.hosts[side as usize].sockets.get_mut(handle)
    }

    /// Returns a host with the device that joins it to the other host.
    fn at(&mut self, side: Side) -> (Ends<'_>, &mut Interface, &mut SocketSet<'static>, Instant) {
        self.now += Duration::from_micros(1);
        let [client, server] = &mut self.hosts;
        let (own, other) = match side {
            Side::Client => (client, server),
            Side::Server => (server, client),
        };
        let device = Ends { capabilities: &self.capabilities, input: &mut other.out, output: &mut own.out };
        (device, &mut own.interface, &mut own.sockets, self.now)
    }
}

fn capabilities(setting: Setting) -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    let link_bytes = if setting.ethernet { 14 } else { 0 };
    capabilities.medium = if setting.ethernet { Medium::Ethernet } else { Medium::Ip };
    capabilities.max_transmission_unit = usize::from(setting.mtu) + link_bytes;
    if !setting.checksums {
        capabilities.checksum = ChecksumCapabilities::ignored();
    }
    if setting.large_segments {
        capabilities.segmentation.tcpv4 = NonZeroUsize::new(usize::from(u16::MAX) + link_bytes);
    }
    capabilities
}

fn host(n: usize, setting: Setting, capabilities: &DeviceCapabilities) -> Host {
    let address = match n {
        0 => HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, 1])),
        _ => HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, 2])),
    };
    let config = Config::new(if setting.ethernet { address } else { HardwareAddress::Ip });
    let (mut input, mut out) = (Link::new(1, 0), Link::new(setting.burst_frames, setting.frame_bytes_max()));
    let mut device = Ends { capabilities, input: &mut input, output: &mut out };
    let mut interface = Interface::new(config, &mut device, Instant::ZERO);
    interface.update_ip_addrs(|own| own.push(IpCidr::new(ADDRESSES[n], 24)).expect("room for one"));
    Host { interface, sockets: SocketSet::new(Vec::new()), out }
}

fn socket(buffer_bytes: usize) -> Socket<'static> {
    let buffer = || SocketBuffer::new(vec![0; buffer_bytes]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.set_nagle_enabled(false);
    socket
}

impl Pair for SmoltcpPair {
    type Socket = SocketHandle;

    fn new(setting: Setting) -> Self {
        let capabilities = capabilities(setting);
        let hosts = [0, 1].map(|n| host(n, setting, &capabilities));
        let mut pair = Self {
            now: Instant::from_millis(1000),
            hosts,
            capabilities,
            unused: Vec::new(),
            listening: VecDeque::new(),
            port: *PORTS.start(),
        };
        for _ in 0..setting.connections {
            let handle = pair.hosts[0].sockets.add(socket(setting.buffer_bytes));
            pair.unused.insert(0, handle);
            let handle = pair.hosts[1].sockets.add(socket(setting.buffer_bytes));
            pair.hosts[1].sockets.get_mut::<Socket<'_>>(handle).listen(PORT).expect("a closed socket");
            pair.listening.push_back(handle);
        }
        pair
    }

    fn connect(&mut self) -> SocketHandle {
        let handle = self.unused.pop().expect("a socket for each connection");
        self.port = if self.port == *PORTS.end() { *PORTS.start() } else { self.port + 1 };
        let Host { interface, sockets, .. } = &mut self.hosts[0];
        let socket = sockets.get_mut::<Socket<'_>>(handle);
        socket.connect(interface.context(), (ADDRESSES[1], PORT), self.port).expect("a closed socket");
        handle
    }

    fn accept(&mut self) -> Option<SocketHandle> {
        let next = *self.listening.front()?;
        let open = self.socket(Side::Server, next).state() == State::Established;
        if open { self.listening.pop_front() } else { None }
    }

    fn send(&mut self, side: Side, socket: SocketHandle, bytes: &[u8]) -> usize {
        self.socket(side, socket).send_slice(bytes).expect("an open connection")
    }

    fn receive(&mut self, side: Side, socket: SocketHandle, into: &mut [u8]) -> usize {
        // smoltcp returns an error at the end of the stream; `is_finished` checks for the end.
        self.socket(side, socket).recv_slice(into).unwrap_or(0)
    }

    fn is_finished(&mut self, side: Side, socket: SocketHandle) -> bool {
        !self.socket(side, socket).may_recv()
    }

    fn close(&mut self, side: Side, socket: SocketHandle) {
        self.socket(side, socket).close();
    }

    /// Lets a socket in TIME-WAIT listen again at once: the benchmark aborts it together with its timer.
    fn release(&mut self, client: SocketHandle, server: SocketHandle) {
        assert_eq!(self.socket(Side::Client, client).state(), State::Closed);
        assert_eq!(self.socket(Side::Server, server).state(), State::TimeWait);
        self.unused.push(client);
        self.socket(Side::Server, server).listen(PORT).expect("a connection that is over");
        self.listening.push_back(server);
    }

    fn frames(&self) -> u64 {
        self.hosts.iter().map(|host| host.out.sent()).sum()
    }

    fn emit(&mut self, side: Side) {
        let (mut device, interface, sockets, now) = self.at(side);
        while interface.poll_egress(now, &mut device, sockets) == PollResult::SocketStateChanged {}
    }

    fn take(&mut self, side: Side) {
        let (mut device, interface, sockets, now) = self.at(side);
        while interface.poll_ingress_single(now, &mut device, sockets) != PollIngressSingleResult::None {}
    }
}

/// A host's device: both directions of the link.
struct Ends<'a> {
    capabilities: &'a DeviceCapabilities,
    input: &'a mut Link,
    output: &'a mut Link,
}

impl Device for Ends<'_> {
    type RxToken<'a>
        = Input<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Output<'a>
    where
        Self: 'a;

    fn receive(&mut self, _now: Instant) -> Option<(Input<'_>, Output<'_>)> {
        let slot = self.input.pop()?;
        Some((Input(slot), Output(self.output)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Output<'_>> {
        self.output.has_room().then_some(Output(self.output))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities.clone()
    }
}

struct Input<'a>(&'a Slot);

impl RxToken for Input<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0.bytes())
    }
}

struct Output<'a>(&'a mut Link);

impl TxToken for Output<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let result = write(&mut self.0.next()[..len]);
        self.0.push(len, Marks::default());
        result
    }
}
