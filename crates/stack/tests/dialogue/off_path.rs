//! An attacker beside a TCP stream and large datagrams of two others: it sends whatever it likes by its own link, between any two
//! of their packets, and sees nothing of theirs. The two do not notice.

use crate::net::{any, content};
use crate::world::*;
use siga_stack::Stack;
use siga_stack::drops::{FragmentDrop, IpDrop};
use siga_stack::limits::{FRAME_BYTES_MAX, HEADER_BYTES_MAX};
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Marks, Received};
use siga_stack::link::source::Sources;
use siga_stack::seed::Seed;
use siga_stack::sockets::{TcpId, TcpOptions};
use siga_stack::stack::{Handled, StackConfig};
use siga_stack::time::{Duration, Instant};
use siga_stack::udp::UdpId;
use siga_stack::wire::address::Prefix;
use siga_stack::wire::tcp::{Flags, Header, SeqNumber};
use std::net::SocketAddr;

/// The stacks by their places; the attacker has none.
const CLIENT: usize = 0;
const SERVER: usize = 1;
const ROUTER_PLACE: usize = 2;
const STREAM_BYTES: usize = 3 << 20;
const DATAGRAM_BYTES: usize = 60_000;
const DATAGRAMS: usize = 30;
const MTU: u16 = 1_500;

/// Where a frame goes: a device of a stack, or the attacker.
#[derive(Clone, Copy)]
enum End {
    Stack(usize, DeviceId),
    Attacker,
}

/// Client and server, and what lies between them and the attacker.
struct Site {
    stacks: Vec<Stack>,
    /// The other end of each stack's devices.
    links: Vec<Vec<End>>,
    /// Where the attacker's packets arrive.
    doors: Vec<(usize, DeviceId)>,
    now: Instant,
    attacker: Attacker,
    buffer: Vec<u8>,
    v6: bool,
    /// Length of the longest packet that client and server sent each other.
    longest: usize,
}

/// What the attacker knows and has received.
struct Attacker {
    /// Attack packets after each packet of the others.
    each: u32,
    random: u64,
    /// Identifications that it saw in what was sent to itself.
    harvested: Vec<u32>,
    sent: u64,
    /// The next segment of each side, which it could not know: its forgeries fit exactly.
    segments: [Option<(Header, usize)>; 2],
    /// The second fragment of what it has begun to send.
    rest: Option<Vec<u8>>,
}

/// Own addresses of client, server, router towards each, and attacker.
fn name(v6: bool, place: usize) -> String {
    let host = [[1, 9], [2, 9], [1, 1], [3, 66]][place];
    if v6 { format!("fd00:{}::{}", host[0], host[1]) } else { format!("10.0.{}.{}", host[0], host[1]) }
}

const ATTACKER: usize = 3;

fn host(v6: bool, place: usize) -> Prefix {
    prefix(&name(v6, place), if v6 { 128 } else { 32 })
}

fn network(v6: bool, number: u8) -> Prefix {
    if v6 { prefix(&format!("fd00:{number}::"), 64) } else { prefix(&format!("10.0.{number}.0"), 24) }
}

impl Site {
    /// Client, server and attacker each have a link to a router.
    fn routed(v6: bool, filtered: bool) -> Self {
        let mut site = Self::new(v6, 3);
        for partner in [CLIENT, SERVER, ATTACKER] {
            let device = site.add(ROUTER_PLACE, ROUTER_PLACE, &[host(v6, partner)], filtered);
            site.stacks[ROUTER_PLACE].add_route(host(v6, partner), device, None).unwrap();
        }
        for (place, own) in [(CLIENT, 1), (SERVER, 2)] {
            let others: Vec<_> = (1..4).filter(|n| *n != own).map(|n| network(v6, n)).collect();
            let admitted = [&others[..], &[host(v6, ROUTER_PLACE)]].concat();
            let device = site.add(place, place, &admitted, filtered);
            site.stacks[place]
                .add_route(everything(v6), device, Some(name(v6, ROUTER_PLACE).parse().unwrap()))
                .unwrap();
        }
        let at = |place, device| End::Stack(place, DeviceId(device));
        site.links = vec![
            vec![at(ROUTER_PLACE, 0)],
            vec![at(ROUTER_PLACE, 1)],
            vec![at(CLIENT, 0), at(SERVER, 0), End::Attacker],
        ];
        site.doors = vec![(ROUTER_PLACE, DeviceId(2))];
        site.begin()
    }

    /// All three are on one network: each pair has a link of its own.
    fn joined(v6: bool, filtered: bool) -> Self {
        let mut site = Self::new(v6, 2);
        for (place, other) in [(CLIENT, SERVER), (SERVER, CLIENT)] {
            for partner in [other, ATTACKER] {
                let device = site.add(place, place, &[host(v6, partner)], filtered);
                site.stacks[place].add_route(host(v6, partner), device, None).unwrap();
            }
        }
        let at = |place| End::Stack(place, DeviceId(0));
        site.links = vec![vec![at(SERVER), End::Attacker], vec![at(CLIENT), End::Attacker]];
        site.doors = vec![(CLIENT, DeviceId(1)), (SERVER, DeviceId(1))];
        site.begin()
    }

    fn new(v6: bool, count: usize) -> Self {
        let stack = |place| {
            let config =
                StackConfig { seed: Seed::simulated(7), forwarding: place == ROUTER_PLACE, ..StackConfig::default() };
            Stack::new(config)
        };
        let attacker =
            Attacker { each: 0, random: 1, harvested: Vec::new(), sent: 0, segments: [None, None], rest: None };
        let (now, buffer) = (Instant::from_ns(1_000_000_000), vec![0; FRAME_BYTES_MAX]);
        let (stacks, links, doors) = ((0..count).map(stack).collect(), Vec::new(), Vec::new());
        Self { stacks, links, doors, now, attacker, buffer, v6, longest: 0 }
    }

    /// A device of a stack with the address of a place, and with a filter that admits these.
    fn add(&mut self, stack: usize, own: usize, admitted: &[Prefix], filtered: bool) -> DeviceId {
        let addresses = vec![host(self.v6, own)];
        let config = DeviceConfig { medium: Medium::Ip, mtu: MTU, addresses, agreed: Agreed::default() };
        let device = self.stacks[stack].add_device(config).unwrap();
        let sources = filtered.then(|| Sources::new(admitted, &[]).unwrap());
        self.stacks[stack].set_sources(device, sources).unwrap();
        device
    }

    /// Lets the stacks send their reports about groups.
    fn begin(mut self) -> Self {
        self.pass(Duration::from_secs(60));
        self
    }

    /// Lets all frames cross, and the attacker's between them; true if there were any.
    fn cross(&mut self) -> bool {
        let mut into = std::mem::take(&mut self.buffer);
        let mut any = false;
        loop {
            let mut moved = false;
            for place in 0..self.stacks.len() {
                for device in (0..self.links[place].len()).map(|device| DeviceId(u16::try_from(device).unwrap())) {
                    while let Some(frame) = self.stacks[place].poll_transmit(self.now, device, &mut into) {
                        moved = true;
                        let is_theirs = self.note(place, &into[..frame.len]);
                        self.carry(self.links[place][usize::from(device.0)], &into[..frame.len]);
                        // Answers to the attacker are no reason to go on, or there would be no end.
                        if is_theirs {
                            self.attack();
                        }
                    }
                }
            }
            if !moved {
                self.buffer = into;
                return any;
            }
            any = true;
        }
    }

    /// Takes a frame to the end of its way.
    fn carry(&mut self, to: End, frame: &[u8]) {
        let End::Stack(place, device) = to else {
            self.attacker.receive(frame);
            return;
        };
        let (header, payload) = frame.split_at(frame.len().min(HEADER_BYTES_MAX));
        let received = Received { header, payload, marks: Marks::default() };
        let mut passed = Vec::new();
        if let Handled::Forward(mut forward) = self.stacks[place].handle_frame(self.now, device, received) {
            let out = forward.device;
            while let Some(piece) = forward.next_piece() {
                passed.push((out, [piece.header, &frame[piece.range.clone()]].concat()));
            }
        }
        for (out, bytes) in passed {
            self.carry(self.links[place][usize::from(out.0)], &bytes);
        }
    }

    /// Lets time pass, with everything that is due in it.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.cross();
        while let Some(due) = self.stacks.iter().filter_map(Stack::poll_timeout).min().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.stacks.iter_mut().for_each(|stack| stack.handle_timeout(self.now));
            self.cross();
        }
        self.now = end;
    }

    /// Notes what client and server say to each other; false if the frame is nothing of that.
    fn note(&mut self, place: usize, frame: &[u8]) -> bool {
        let at = if self.v6 { 40 } else { 20 };
        let (protocol, to) = if self.v6 { (frame[6], &frame[24..40]) } else { (frame[9], &frame[16..20]) };
        let other = name(self.v6, 1_usize.wrapping_sub(place).min(ATTACKER)).parse().unwrap();
        let is_to_other = match other {
            std::net::IpAddr::V4(other) => other.octets() == *to,
            std::net::IpAddr::V6(other) => other.octets() == *to,
        };
        if place > SERVER || !is_to_other {
            return false;
        }
        self.longest = self.longest.max(frame.len());
        if protocol == 6
            && let Ok((header, bytes)) = Header::parse(&frame[at..])
        {
            self.attacker.segments[place] = Some((header, frame.len() - at - bytes));
        }
        true
    }

    /// The attacker sends what it likes.
    fn attack(&mut self) {
        for _ in 0..self.attacker.each {
            let packet = self.attacker.packet(self.v6);
            self.attacker.sent += 1;
            let door = self.doors[self.attacker.below(self.doors.len())];
            self.carry(End::Stack(door.0, door.1), &packet);
        }
    }

    /// An open connection from client to server, and both ends' sockets for datagrams.
    fn open(&mut self) -> (TcpId, TcpId, [UdpId; 2]) {
        let (v6, now) = (self.v6, self.now);
        let at = |place: usize, port| SocketAddr::new(name(v6, place).parse().unwrap(), port);
        let listener = self.stacks[SERVER].tcp_listen(at(SERVER, 80), 16, &TcpOptions::default()).unwrap();
        let client = self.stacks[CLIENT].tcp_connect(now, any(v6), at(SERVER, 80), &TcpOptions::default()).unwrap();
        self.cross();
        let (server, _) = self.stacks[SERVER].tcp_accept(listener).unwrap().unwrap();
        let sockets = [(CLIENT, SERVER), (SERVER, CLIENT)].map(|(own, other)| {
            let socket = self.stacks[own].udp_bind(at(own, 6)).unwrap();
            self.stacks[own].udp_connect(socket, at(other, 6)).unwrap();
            socket
        });
        (client, server, sockets)
    }

    /// Streams from client to server, as far as that goes within a minute; what arrived.
    fn stream(&mut self, client: TcpId, server: TcpId, bytes: &[u8]) -> Vec<u8> {
        let (mut sent, mut arrived, end) = (0, Vec::new(), self.now + Duration::from_secs(60));
        let mut into = vec![0; 100_000];
        while arrived.len() < bytes.len() && self.now < end {
            let Ok(taken) = self.stacks[CLIENT].tcp_send(self.now, client, &bytes[sent..]) else { break };
            sent += taken;
            let moved = self.cross();
            while let Ok(Some(count @ 1..)) = self.stacks[SERVER].tcp_receive(self.now, server, &mut into) {
                arrived.extend_from_slice(&into[..count]);
            }
            if !moved && !self.cross() {
                self.pass(Duration::from_millis(1));
            }
        }
        arrived
    }

    /// How many large datagrams arrive, sent in turns by client and server.
    fn datagrams(&mut self, sockets: [UdpId; 2]) -> usize {
        let (bytes, mut arrived) = (content(DATAGRAM_BYTES), 0);
        for turn in 0..DATAGRAMS {
            let (from, to) = (turn % 2, 1 - turn % 2);
            self.stacks[from].udp_send(self.now, sockets[from], None, &bytes).unwrap();
            self.cross();
            while let Some(datagram) = self.stacks[to].udp_receive(sockets[to]).unwrap() {
                assert!(datagram.bytes == bytes, "another's bytes arrived");
                arrived += 1;
            }
            self.pass(Duration::from_millis(1));
        }
        arrived
    }
}

fn everything(v6: bool) -> Prefix {
    if v6 { prefix("::", 0) } else { prefix("0.0.0.0", 0) }
}

impl Attacker {
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next()).unwrap() % end
    }

    /// Keeps the identifications of what is sent to it.
    fn receive(&mut self, frame: &[u8]) {
        let ident = if frame[0] >> 4 == 4 {
            Some(u16::from_be_bytes([frame[4], frame[5]]).into())
        } else {
            (frame[6] == 44).then(|| u32::from_be_bytes(frame[44..48].try_into().unwrap()))
        };
        self.harvested.extend(ident);
        let least = self.harvested.len().saturating_sub(16);
        self.harvested.drain(..least);
    }

    /// An identification that the others may use next.
    fn ident(&mut self) -> u32 {
        let at = self.below(self.harvested.len().max(1));
        let known = self.harvested.get(at).copied().unwrap_or(0);
        known.wrapping_add(u32::try_from(self.below(40)).unwrap())
    }

    fn packet(&mut self, v6: bool) -> Vec<u8> {
        if let Some(rest) = self.rest.take() {
            return rest;
        }
        let victim = self.below(2);
        let (from, to) = (name(v6, 1 - victim), name(v6, victim));
        let (own, router) = (name(v6, ATTACKER), name(v6, ROUTER_PLACE));
        match self.below(12) {
            0 | 1 => self.segment(&from, &to, 1 - victim),
            2 => self.fragment(&from, &to),
            3 | 4 => self.fragment(&own, &to),
            5 => self.error(&own, &to, false),
            6 => self.error(&router, &to, true),
            7 => self.error(&from, &to, true),
            8 => self.guess(&own, &to),
            9 => self.guess(&from, &to),
            10 => ip(&own, &to, 17, &udp(&own, &to, (6, 6), &[9; 1_400])),
            // The answer comes in fragments: their identifications are the attacker's to know.
            _ => self.large_echo(&own, &to),
        }
    }

    /// A segment that fits the connection exactly: a reset, an end, a SYN or other bytes.
    fn segment(&mut self, from: &str, to: &str, side: usize) -> Vec<u8> {
        let Some((last, sent)) = self.segments[side] else { return self.guess(from, to) };
        let letters = [("R", 0), ("F", 0), ("S", 0), ("", 100)][self.below(4)];
        let flags = Flags { rst: letters.0 == "R", fin: letters.0 == "F", syn: letters.0 == "S", ..Flags::default() };
        let seq = last.seq + u32::try_from(sent).unwrap();
        crate::attack::packet(from, to, &Header { seq, flags, ..last }, &vec![0xee; letters.1])
    }

    /// A SYN, a reset or bytes with ports and numbers that are guessed.
    fn guess(&mut self, from: &str, to: &str) -> Vec<u8> {
        let flags =
            [Flags { syn: true, ..Flags::default() }, Flags { rst: true, ..Flags::default() }, Flags::default()]
                [self.below(3)];
        let port = u16::try_from(self.below(60_000)).unwrap() + 1;
        let header = Header {
            source_port: port,
            destination_port: 80,
            seq: SeqNumber(u32::try_from(self.next() & 0xffff_ffff).unwrap()),
            ack: (!flags.syn).then_some(SeqNumber(1)),
            flags,
            window: 1_000,
            ..Header::default()
        };
        crate::attack::packet(from, to, &header, &[])
    }

    /// Crumbs, beginnings, middles and ends of datagrams.
    fn fragment(&mut self, from: &str, to: &str) -> Vec<u8> {
        let (ident, offset) = (self.ident(), 8 * self.below(8_000));
        let (offset, more, len) =
            [(0, true, 8), (0, true, 1_440), (offset, true, 1_440), (offset, false, 999)][self.below(4)];
        let offset = u16::try_from(offset.min(60_000)).unwrap();
        fragment_of(from, to, (ident, 17), (offset, more), &vec![0xee; len])
    }

    /// An ICMP error about a packet of the victim's to the other. That a packet is too big is said in others' names.
    fn error(&mut self, from: &str, to: &str, in_anothers_name: bool) -> Vec<u8> {
        let v6 = to.contains(':');
        let victim = usize::from(to == name(v6, SERVER));
        let quoted = match self.segments[victim] {
            Some((last, _)) if in_anothers_name => crate::attack::packet(to, &name(v6, 1 - victim), &last, &[]),
            Some(_) | None => self.guess(to, &name(v6, 1 - victim)),
        };
        let rest = [&[0, 0, 2, 88][..], &quoted[..if v6 { 60 } else { 28 }]].concat();
        let code = u8::try_from(self.below(6)).unwrap();
        if v6 {
            let kind = [1, 2, 3, 4, 137][self.below(5)];
            let kind = if kind == 2 && !in_anothers_name { 1 } else { kind };
            let rest = if kind == 2 { [&[0, 0, 5, 0][..], &rest[4..]].concat() } else { rest };
            return ip(from, to, 58, &icmp6(from, to, kind, if kind == 2 { 0 } else { code }, &rest));
        }
        let kind = [3, 4, 5, 11, 12][self.below(5)];
        let code = if kind == 3 && in_anothers_name { 4 } else { code };
        let code = if kind == 3 && code == 4 && !in_anothers_name { 3 } else { code };
        ip(from, to, 1, &icmp(kind, code, &rest))
    }

    /// An echo request in two fragments.
    fn large_echo(&mut self, from: &str, to: &str) -> Vec<u8> {
        let rest = [&[0, 1, 0, 2][..], &[9; 1_600]].concat();
        let (ident, at) = (self.ident(), 1_400);
        let message = if from.contains(':') { icmp6(from, to, 128, 0, &rest) } else { icmp(8, 0, &rest) };
        let protocol = if from.contains(':') { 58 } else { 1 };
        self.rest = Some(fragment_of(from, to, (ident, protocol), (at, false), &message[at.into()..]));
        fragment_of(from, to, (ident, protocol), (0, true), &message[..at.into()])
    }
}

/// A fragment with an identification and a protocol, at a place and with more to come or none.
fn fragment_of(from: &str, to: &str, of: (u32, u8), (offset, more): (u16, bool), bytes: &[u8]) -> Vec<u8> {
    let (ident, protocol) = of;
    if from.contains(':') {
        let word = (offset | u16::from(more)).to_be_bytes();
        return v6(from, to, 44, 64, &[&[protocol, 0][..], &word, &ident.to_be_bytes(), bytes].concat());
    }
    let mut packet = V4 { offset, more, ..V4::new(from, to, protocol) }.packet(bytes);
    packet[4..6].copy_from_slice(&ident.to_be_bytes()[2..]);
    packet[10..12].fill(0);
    let sum = plain_checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn ip(from: &str, to: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    if from.contains(':') { v6(from, to, protocol, 64, payload) } else { V4::new(from, to, protocol).packet(payload) }
}

/// What client and server have of their stream and datagrams.
#[derive(Debug, PartialEq, Eq)]
struct Had {
    streamed: bool,
    datagrams: usize,
    repeated: u64,
    segment_bytes: Option<u32>,
    longest: usize,
}

fn had(mut site: Site) -> (Had, Site) {
    let (client, server, sockets) = site.open();
    let bytes = content(STREAM_BYTES);
    site.attacker.each = 3;
    let streamed = site.stream(client, server, &bytes) == bytes;
    let segment_bytes = site.stacks[CLIENT].tcp_info(client).ok().flatten().map(|info| info.segment_bytes);
    let info = |stack: &Stack, id| stack.tcp_info(id).ok().flatten().map_or(u64::MAX, |info| info.repeated_segments);
    site.longest = 0;
    let datagrams = site.datagrams(sockets);
    let repeated = info(&site.stacks[CLIENT], client).max(info(&site.stacks[SERVER], server));
    site.stacks.iter().for_each(Stack::check);
    let longest = site.longest;
    (Had { streamed, datagrams, repeated, segment_bytes, longest }, site)
}

fn whole(v6: bool) -> Had {
    let segment_bytes = Some(u32::from(MTU) - if v6 { 72 } else { 52 });
    let longest = if v6 { 1_496 } else { 1_500 };
    Had { streamed: true, datagrams: DATAGRAMS, repeated: 0, segment_bytes, longest }
}

/// The attacks do harm where nobody knows who may send what.
#[test]
fn an_off_path_attacker_harms_a_stream_without_a_source_filter() {
    for v6 in [false, true] {
        for site in [Site::routed(v6, false), Site::joined(v6, false)] {
            let (had, _) = had(site);
            assert!(!had.streamed, "{had:?}");
        }
    }
}

#[test]
fn an_off_path_attacker_costs_a_stream_and_datagrams_nothing_with_a_source_filter() {
    for v6 in [false, true] {
        for site in [Site::routed(v6, true), Site::joined(v6, true)] {
            let (had, site) = had(site);
            assert_eq!(had, whole(v6));
            let Attacker { sent, harvested, .. } = &site.attacker;
            assert!(*sent > 5_000 && harvested.len() > 5, "{sent} sent, {} harvested", harvested.len());
            let dropped = |reason: siga_stack::drops::DropReason| -> u64 {
                site.stacks.iter().map(|stack| stack.drops().get(reason)).sum()
            };
            assert!(dropped(IpDrop::SourceRefused.into()) > site.attacker.sent / 4);
            assert!(dropped(FragmentDrop::Evicted.into()) > 100, "the attacker's own fragments are taken");
        }
    }
}
