//! Nodes that take turns on one thread: what they do does not depend on when, so that their instructions can be counted
//! (`cargo xtask instructions`). There the clock stands but for so much a turn, and what the harness does for itself is not counted.

use crate::device::{self, Inside, Sent, Whole};
use crate::guest::Node;
use crate::protocol::channel::Channel;
use crate::protocol::message::{Buffers, GuestConfig, GuestDevice, GuestEvent, Member, RingPairEnd};
use crate::protocol::secret::Secret;
use crate::protocol::ticket::RingPairId;
use crate::protocol::ticket::Ticket;
use siga_model::limits::BUFFER_COUNT_DEFAULT;
use siga_model::topology::{NetworkKind, Topology};
use siga_model::waiting::Waiting;
use siga_ring::clock::Ticks;
use siga_ring::wait::Waiter;
use siga_ring::wait::policy::Mode;
use siga_ring::{Link, NotifyFd, OwnMemory, PeerMemory, Shape, WakeFd, doorbell, memory_file};
use siga_stack::link::frame::Marks;
use siga_stack::seed::Seed;
use siga_stack::sockets::{TcpId, TcpOptions};
use siga_stack::stack::Transmit;
use siga_stack::time::Instant;
use std::hint::black_box;
use std::os::fd::OwnedFd;
use std::time::Duration;

const FIGURE_1: &str = r#"
[network.link]
type = "vctc"
buffer = 65535
[network.lan]
type = "hipersockets"
[guest.client]
device = [{ network = "link", addresses = ["10.0.1.1/24"], mtu = 57344 }]
route = [{ to = "default", via = "10.0.1.2" }]
[guest.router]
forwarding = true
device = [
    { network = "link", addresses = ["10.0.1.2/24"], mtu = 57344 },
    { network = "lan", addresses = ["10.0.2.1/24"] },
]
[guest.server]
device = [{ network = "lan", addresses = ["10.0.2.2/24"] }]
route = [{ to = "default", via = "10.0.2.1" }]
"#;

pub(crate) fn figure_1() -> Topology {
    Topology::parse(FIGURE_1).unwrap()
}

pub(super) fn figure_1_over_hipersockets() -> Topology {
    let mut topology = figure_1();
    topology.networks.values_mut().for_each(|network| network.kind = LAN);
    topology
}

pub(super) const LAN: NetworkKind = NetworkKind::Hipersockets { frame: 65_536 };
const BUFFERS: Buffers = Buffers { bytes: 65_536, count: 16 };

/// Time by which the clock advances for each turn. An exchange over the network of Figure 1 of z/VM's reports takes two turns.
const TURN_NS: u64 = 5_000;

/// Work that is counted: Callgrind collects inside of functions of this name, and nowhere else.
#[inline(never)]
fn counted<Result>(work: impl FnOnce() -> Result) -> Result {
    black_box(work())
}

/// A node with the other end of its channel.
pub(crate) struct Guest {
    pub(super) node: Node,
    topology: Topology,
    pub(super) control: Channel,
    /// Buffers of each of its rings.
    buffers: u16,
    /// Turns so far, where they alone make the time.
    turns: Option<u64>,
}

impl Guest {
    pub(crate) fn new(topology: &Topology, name: &str) -> Self {
        Self::that_waits(topology, name, Waiting::Poll)
    }

    pub(super) fn that_waits(topology: &Topology, name: &str, waiting: Waiting) -> Self {
        let guest = &topology.guests[&name.parse().unwrap()];
        let (channel, other) = Channel::pair().unwrap();
        let config = GuestConfig {
            name: name.parse().unwrap(),
            forwarding: guest.forwarding,
            waiting,
            devices: guest.devices.iter().map(|device| GuestDevice::of(topology, device)).collect(),
            routes: guest.routes.clone(),
            tcp: guest.tcp.clone(),
            tcp_to: guest.tcp_to.clone(),
            allow: guest.allow.clone(),
            secret: Secret::claimed(""),
            switch: None,
            replaces: false,
        };
        let mut node = Node::seeded(config, channel, None, Seed::simulated(1)).unwrap();
        // The kernel's readiness is never polled: the times of such polls follow the clock.
        node.wakes.next_look = Ticks(u64::MAX);
        let topology = topology.clone();
        Self { node, topology, control: Channel::new(other).unwrap(), buffers: BUFFERS.count, turns: None }
    }

    /// A guest whose clock counts turns.
    pub(super) fn by_turns(topology: &Topology, name: &str, buffers: u16) -> Self {
        let mut guest = Self { buffers, turns: Some(0), ..Self::new(topology, name) };
        guest.set_clock();
        guest
    }

    fn set_clock(&mut self) {
        let clock = &mut self.node.clock;
        clock.stands = self.turns.map(|turns| clock.ticks(Instant::from_ns(turns * TURN_NS)));
    }

    /// The node, for an application that sleeps: rings are heard.
    pub(crate) fn sleeper(mut self) -> (Node, Channel) {
        self.node.waiter = Waiter::new(Mode::Block);
        self.node.wakes.next_look = Ticks(0);
        (self.node, self.control)
    }

    /// Makes this guest's half of a pair; its memory is returned.
    fn begin(&mut self, pair: u64, network: &str, partner: &Member, notify_fd: OwnedFd, wake_fd: OwnedFd) -> OwnedFd {
        let place = self.node.config.devices.iter().position(|device| device.network.as_str() == network).unwrap();
        let GuestDevice { name: device, kind, .. } = self.node.config.devices[place].clone();
        self.node.add_member(&device, partner).unwrap();
        let buffers = Buffers { bytes: kind.buffer_bytes(), count: self.buffers };
        let (member, pair) = (partner.id.clone(), RingPairId(Ticket::claimed(pair, [0; 2])));
        let shape = Shape::new(buffers.bytes as usize, buffers.count.into()).unwrap();
        let memory = memory_file(shape.memory_bytes()).unwrap();
        let held = RingPairEnd { pair, asked: true, device, member, inbound: buffers, outbound: buffers };
        self.node.begin_pair(held, vec![notify_fd, wake_fd, memory]);
        match self.control.receive::<GuestEvent>().unwrap().unwrap() {
            (GuestEvent::Memory { pair: own }, mut memory) if own == pair => memory.pop().unwrap(),
            (other, _) => panic!("{other:?}"),
        }
    }

    fn complete(&mut self, pair: u64, memory: OwnedFd) {
        self.node.complete_pair((RingPairId(Ticket::claimed(pair, [0; 2])), false), Some(memory));
        let event = self.control.receive::<GuestEvent>().unwrap().unwrap().0;
        assert!(matches!(event, GuestEvent::Linked { .. }), "{event:?}");
    }

    /// A link to a partner who knows nothing but frames: the partner's end.
    pub(super) fn raw_link(&mut self, pair: u64, network: &str, partner: &Member) -> Link {
        let [notify_fd, wake_fd, other_notify_fd, other_wake_fd] = doorbells();
        let shape = Shape::new(BUFFERS.bytes as usize, self.buffers.into()).unwrap();
        let (own, own_memory) = OwnMemory::create(shape).unwrap();
        let memory = self.begin(pair, network, partner, notify_fd, wake_fd);
        self.complete(pair, own_memory);
        let peer = PeerMemory::map(memory, shape).unwrap();
        Link::new(own, peer, NotifyFd::from_fd(other_notify_fd).unwrap(), WakeFd::from_fd(other_wake_fd).unwrap())
    }

    /// A pass that looks at every ring, however long ago it had something.
    pub(super) fn turn(&mut self) {
        for link in 0..self.node.links.senders.len() {
            self.node.links.heat(link);
        }
        self.turns = self.turns.map(|turns| turns + 1);
        self.set_clock();
        counted(|| self.node.iterate());
    }

    /// How others know its device on a network.
    pub(super) fn member(&self, network: &str) -> Member {
        let name = &self.node.config.name;
        let mut devices = self.topology.guests[name].devices.iter();
        Member::of(&self.topology, name, devices.find(|device| device.network.as_str() == network).unwrap())
    }
}

/// A doorbell each way: bell and ear of the one, bell and ear of the other.
pub(super) fn doorbells() -> [OwnedFd; 4] {
    let ((notify_fd, other_wake_fd), (other_notify_fd, wake_fd)) =
        (doorbell::pair().unwrap(), doorbell::pair().unwrap());
    [notify_fd.into(), wake_fd.into(), other_notify_fd.into(), other_wake_fd.into()]
}

pub(crate) fn couple(pair: u64, network: &str, one: &mut Guest, other: &mut Guest) {
    let [notify_fd, wake_fd, other_notify_fd, other_wake_fd] = doorbells();
    let memory = one.begin(pair, network, &other.member(network), notify_fd, wake_fd);
    let other_memory = other.begin(pair, network, &one.member(network), other_notify_fd, other_wake_fd);
    one.complete(pair, other_memory);
    other.complete(pair, memory);
}

/// The network of Figure 1 of z/VM's reports, with a connection from client to server.
pub(super) struct Figure1 {
    pub(super) guests: [Guest; 3],
    pub(super) client: TcpId,
    pub(super) server: TcpId,
}

impl Figure1 {
    pub(super) fn of(topology: &Topology) -> Self {
        Self::of_guests(|name| Guest::new(topology, name))
    }

    /// Guests whose clocks count turns, with rings of `buffers` buffers.
    pub(super) fn by_turns(topology: &Topology, buffers: u16) -> Self {
        Self::of_guests(|name| Guest::by_turns(topology, name, buffers))
    }

    fn of_guests(guest: impl Fn(&str) -> Guest) -> Self {
        let mut guests = ["client", "router", "server"].map(guest);
        let [client, router, server] = &mut guests;
        couple(1, "link", client, router);
        couple(2, "lan", router, server);
        let to = "10.0.2.2:7".parse().unwrap();
        let listener = server.node.stack().tcp_listen(to, 1, &TcpOptions::default()).unwrap();
        let (now, any) = (client.node.now(), "0.0.0.0:0".parse().unwrap());
        let id = client.node.stack().tcp_connect(now, any, to, &TcpOptions::default()).unwrap();
        for _ in 0..10_000 {
            guests.iter_mut().for_each(Guest::turn);
            if let Some((server, _)) = guests[2].node.stack().tcp_accept(listener).unwrap() {
                return Self { guests, client: id, server };
            }
        }
        panic!("nobody has come");
    }

    /// A request and its response, each passed on by the router in the turn after it was sent.
    pub(super) fn exchange(&mut self, request: &[u8], response: &[u8]) {
        self.carry([0, 1, 2], (self.client, self.server), request);
        self.carry([2, 1, 0], (self.server, self.client), response);
    }

    pub(super) fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.guests.iter_mut().for_each(Guest::turn);
        }
    }

    /// Up to `most` bytes that the server receives while the others take turns too.
    pub(super) fn receive(&mut self, most: usize) -> Vec<u8> {
        let (mut received, mut into) = (Vec::new(), vec![0; most]);
        for _ in 0..200 {
            let node = &mut self.guests[2].node;
            let now = node.now();
            let count = node.stack().tcp_receive(now, self.server, &mut into).unwrap().unwrap_or(0);
            received.extend_from_slice(&into[..count]);
            self.turns(1);
        }
        received
    }

    fn carry(&mut self, way: [usize; 3], (from, to): (TcpId, TcpId), bytes: &[u8]) {
        let [first, .., last] = way;
        let now = self.guests[first].node.now();
        let stack = self.guests[first].node.stack();
        let sent = counted(|| stack.tcp_send(now, from, bytes)).unwrap();
        assert_eq!(sent, bytes.len());
        let (mut received, mut into) = (0, [0; 2_048]);
        for _ in 0..1_000 {
            way.into_iter().for_each(|place| self.guests[place].turn());
            let node = &mut self.guests[last].node;
            let now = node.now();
            while let Some(count) = counted(|| node.stack().tcp_receive(now, to, &mut into)).unwrap() {
                assert!(bytes[received..].starts_with(&into[..count]));
                received += count;
            }
            for guest in &mut self.guests {
                counted(|| while guest.node.stack().tcp_poll_event().is_some() {});
            }
            if received == bytes.len() {
                return;
            }
        }
        panic!("{received} of {} bytes have come", bytes.len());
    }
}

/// A router between two ends that know nothing but frames.
struct Router {
    router: Guest,
    ends: [Link; 2],
    outbound: device::Outbound,
    inbound: device::Inbound,
}

impl Router {
    fn new() -> Self {
        let topology = figure_1_over_hipersockets();
        let [client, server] = ["client", "server"].map(|name| Guest::new(&topology, name));
        let mut router = Guest::by_turns(&topology, "router", BUFFER_COUNT_DEFAULT);
        let ends = [(1, "link", client.member("link")), (2, "lan", server.member("lan"))];
        let ends = ends.map(|(pair, network, member)| router.raw_link(pair, network, &member));
        let (outbound, inbound) = device::halves(LAN);
        Self { router, ends, outbound, inbound }
    }

    /// Has a packet passed on; what came out.
    fn forward(&mut self, packet: &[u8], into: &mut Vec<u8>) {
        let [from, to] = &mut self.ends;
        let whole = Transmit { len: packet.len(), marks: Marks::default() };
        let fill = |place: &mut [u8]| place.copy_from_slice(packet);
        let sent = self.outbound.send(&mut from.producer, &mut Whole { packet: whole, fill }).unwrap();
        assert_eq!(sent, Sent::Packet);
        self.outbound.flush(&mut from.producer).unwrap();
        self.router.turn();
        let frame = to.consumer.next_frame().unwrap().unwrap();
        let Inside::Packet(part) = self.inbound.next(&frame, &mut 0) else { panic!("no packet") };
        into.resize(part.len, 0);
        frame.copy_to(part.at, into);
    }
}

/// Returns a UDP datagram from the client in Figure 1 of z/VM's reports, in an IPv4 packet of `bytes` bytes.
pub(super) fn packet(bytes: usize, to: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0; bytes];
    let word = |value: usize| u16::try_from(value).unwrap().to_be_bytes();
    packet[..2].copy_from_slice(&[0x45, 0]);
    packet[2..4].copy_from_slice(&word(bytes));
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..16].copy_from_slice(&[10, 0, 1, 1]);
    packet[16..20].copy_from_slice(&to);
    let sum: u32 = packet[..20].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap()).to_be_bytes());
    packet[20..26].copy_from_slice(&[0, 7, 0, 7, word(bytes - 20)[0], word(bytes - 20)[1]]);
    packet
}

fn forward(bytes: usize, rounds: usize) {
    let (mut router, packet, mut out) = (Router::new(), packet(bytes, [10, 0, 2, 2]), Vec::new());
    for _ in 0..rounds {
        router.forward(&packet, &mut out);
        assert_eq!((out.len(), out[8], &out[20..]), (bytes, 63, &packet[20..]));
    }
}

fn exchange(request: usize, response: usize, rounds: usize) {
    let (mut figure, request, response) =
        (Figure1::by_turns(&figure_1(), BUFFER_COUNT_DEFAULT), vec![1; request], vec![2; response]);
    for _ in 0..rounds {
        figure.exchange(&request, &response);
    }
}

#[test]
fn a_router_forwards_frames_in_lockstep() {
    forward(64, 100);
    forward(1_500, 100);
}

#[test]
fn a_request_and_its_response_cross_the_router_of_figure_1_in_lockstep() {
    exchange(200, 1_000, 100);
    exchange(200, 32_768, 100);
}

#[test]
fn virtual_time_advances_only_by_turns_in_lockstep() {
    let mut figure = Figure1::by_turns(&figure_1(), BUFFER_COUNT_DEFAULT);
    figure.exchange(&[1; 200], &[2; 1_000]);
    let times = |figure: &Figure1| figure.guests.each_ref().map(|guest| guest.node.now());
    let before = times(&figure);
    std::thread::sleep(Duration::from_millis(1));
    assert_eq!(times(&figure), before, "nothing comes due by itself");
    figure.turns(2);
    let passed = times(&figure).map(|time| time.since(before[0]).as_nanos());
    assert!(passed.iter().all(|passed| passed.abs_diff(2 * TURN_NS) < 10), "{passed:?}");
}

/// One case for a number of rounds, as `cargo xtask instructions` asks for: `CASE ROUNDS`.
#[test]
#[ignore = "counts instructions; `cargo xtask nightly --only instructions` runs it"]
fn lockstep() {
    let asked = std::env::var("SIGA_LOCKSTEP").unwrap();
    let (case, rounds) = asked.split_once(' ').unwrap();
    let rounds = rounds.parse().unwrap();
    match case {
        "forward-64" => forward(64, rounds),
        "forward-1500" => forward(1_500, rounds),
        "rr-200-1000" => exchange(200, 1_000, rounds),
        _ => panic!("no such case: {case}"),
    }
}
