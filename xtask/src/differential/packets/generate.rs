//! Draws sequences from seeds: each has one or two subjects, such as fragments or martian addresses.

use std::net::IpAddr;

use siga_sim::rng::{Ppm, Rng};

use super::place::{DEVICES, Place};
use super::sequence::{Act, Body, Call, CallKind, Cut, Damage, Extension, Packet, Sequence};

/// The port of the first socket of a sequence, and that of its peer.
const PORT: u16 = 7_000;
const PEER_PORT: u16 = 4_000;

struct Draw {
    rng: Rng,
    sequence: Sequence,
    /// The identification of the next fragmented datagram.
    ident: u16,
}

/// Returns the sequence of a seed.
pub(crate) fn sequence(seed: u64) -> Sequence {
    let mut rng = Rng::new(seed, 2);
    let router = rng.chance(Ppm::percent(50));
    let v6 = rng.chance(Ppm::percent(45));
    let mut draw = Draw { rng, sequence: Sequence { router, v6, steps: Vec::new() }, ident: 100 };
    for _ in 0..draw.between(1, 3) {
        draw.subject();
    }
    if draw.percent(8) {
        draw.sequence.steps.push(Act::Expire);
    }
    for act in &mut draw.sequence.steps {
        if let Act::Packet(packet) = act {
            fit(packet);
        }
    }
    draw.sequence
}

/// Shortens a packet that no station could send over the link on which it arrives.
fn fit(packet: &mut Packet) {
    let room = DEVICES[usize::from(packet.device)].mtu - 100;
    if let Some(cut) = &mut packet.cut {
        cut.len = cut.len.min(room);
    }
    let is_fragment = packet.cut.is_some();
    if let Body::Udp { len, .. } | Body::Echo { len, .. } | Body::Icmp { len, .. } | Body::Protocol { len, .. } =
        &mut packet.body
        && !is_fragment
    {
        *len = (*len).min(room);
    }
}

fn literal(address: &str) -> Place {
    address.parse::<IpAddr>().map_or(Place::Lost, Place::Literal)
}

impl Draw {
    fn percent(&mut self, percent: u32) -> bool {
        self.rng.chance(Ppm::percent(percent))
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.rng.index(from.len())].clone()
    }

    fn between(&mut self, low: u16, high: u16) -> u16 {
        u16::try_from(self.rng.between(low.into(), high.into())).unwrap_or(0)
    }

    fn step(&mut self, act: Act) {
        self.sequence.steps.push(act);
    }

    fn call(&mut self, kind: CallKind) {
        self.step(Act::Call(Call { socket: 0, kind }));
    }

    fn subject(&mut self) {
        match self.between(0, if self.sequence.router { 5 } else { 3 }) {
            0 => self.sockets(),
            1 => self.fragments(),
            2 | 3 => {
                for _ in 0..self.between(1, 4) {
                    let packet = self.packet();
                    self.step(Act::Packet(packet));
                }
            }
            _ => {
                for _ in 0..self.between(1, 3) {
                    let packet = self.transit();
                    self.step(Act::Packet(packet));
                }
            }
        }
    }

    fn device(&mut self) -> u8 {
        if self.sequence.v6 { self.pick(&[0, 0, 1]) } else { self.pick(&[0, 0, 1, 2]) }
    }

    /// Most payloads are short, and some exceed the MTU of a device.
    fn len(&mut self) -> u16 {
        match self.between(0, 5) {
            0 => self.pick(&[0, 1, 2, 3, 7, 8]),
            1 => self.pick(&[476, 520, 548, 549, 556, 1_180, 1_232, 1_233, 1_400]),
            _ => self.between(0, 80),
        }
    }

    fn body(&mut self) -> Body {
        let len = self.len();
        match self.between(0, 9) {
            0..=3 => Body::Udp { from: self.pick(&[PEER_PORT, 0]), to: self.pick(&[PORT, 9, 9, 0]), len },
            4..=6 => Body::Echo { ident: self.between(0, 9), seq: self.between(0, 9), len },
            7 => self.message(len),
            8 => Body::Protocol { number: self.pick(&[132, 253, 255, 33, 59]), len: len.max(8) },
            _ => Body::Udp { from: PEER_PORT, to: PORT, len },
        }
    }

    /// An ICMP message about nothing.
    fn message(&mut self, len: u16) -> Body {
        let (kind, code) = if self.sequence.v6 {
            (self.pick(&[1, 2, 3, 4, 5, 100, 128, 129, 139, 150, 200, 255]), self.pick(&[0, 0, 0, 1, 4]))
        } else {
            (self.pick(&[0, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15, 17, 30, 42, 255]), self.pick(&[0, 0, 0, 1, 3]))
        };
        Body::Icmp { kind, code, rest: self.pick(&[0, 0, 1_280, 0x0001_0002]), len }
    }

    /// A packet to the host under test, with something unusual.
    fn packet(&mut self) -> Packet {
        let device = self.device();
        let body = self.body();
        let mut packet = Packet::new(device, Place::Peer(device), Place::Own(device), body);
        packet.ident = self.between(1, 60_000);
        packet.dont_fragment = self.percent(30);
        packet.hop_limit = self.pick(&[64, 64, 255, 1, 0]);
        packet.service = self.pick(&[0, 0, 0, 0x10, 0xc0, 3, 0xff]);
        match self.between(0, 9) {
            0 | 1 => packet.from = self.odd_source(device),
            2 | 3 => packet.to = self.odd_destination(device),
            4 | 5 => self.headers(&mut packet),
            6 | 7 => self.damage(&mut packet),
            _ => {}
        }
        packet
    }

    fn odd_source(&mut self, device: u8) -> Place {
        if self.sequence.v6 {
            let literals = ["::", "::1", "ff02::1", "ff05::2", "::ffff:10.0.0.1", "fe80::1", "ff0e::1"].map(literal);
            let places = [Place::PeerLink, Place::Own(device), Place::Own(1), Place::Far, Place::Lost, Place::Aside];
            self.pick(&[&literals[..], &places].concat())
        } else {
            let literals = [
                "0.0.0.0",
                "0.0.0.1",
                "127.0.0.1",
                "224.0.0.1",
                "239.1.2.3",
                "240.0.0.1",
                "255.255.255.255",
                "169.254.1.1",
            ];
            let places = [
                Place::Own(device),
                Place::Own(1),
                Place::Broadcast(device),
                Place::Broadcast(1),
                Place::Network(device),
                Place::Far,
                Place::Lost,
                Place::Aside,
                Place::Other(device),
            ];
            self.pick(&[&literals.map(literal)[..], &places].concat())
        }
    }

    fn odd_destination(&mut self, device: u8) -> Place {
        if self.sequence.v6 {
            let literals = [
                "::",
                "::1",
                "ff01::1",
                "ff02::1",
                "ff02::2",
                "ff02::1:ff00:1",
                "ff05::2",
                "ff00::1",
                "ff0e::7",
                "fe80::1",
            ];
            let places = [Place::PeerLink, Place::Own(0), Place::Own(1), Place::Lost];
            self.pick(&[&literals.map(literal)[..], &places].concat())
        } else {
            let literals = [
                "0.0.0.0",
                "127.0.0.1",
                "127.255.255.255",
                "224.0.0.1",
                "224.0.0.2",
                "239.1.2.3",
                "240.0.0.1",
                "255.255.255.255",
            ];
            let places = [
                Place::Own(0),
                Place::Own(1),
                Place::Broadcast(device),
                Place::Broadcast(1),
                Place::Network(device),
                Place::Network(1),
                Place::Lost,
                literal("169.254.9.9"),
            ];
            self.pick(&[&literals.map(literal)[..], &places].concat())
        }
    }

    /// Adds options or extension headers.
    fn headers(&mut self, packet: &mut Packet) {
        if !self.sequence.v6 {
            let options: [&[u8]; 16] = [
                &[1, 1, 1, 1],
                &[0, 0, 0, 0],
                &[0x94, 4, 0, 0],
                &[0x94, 4, 0, 1],
                &[7, 7, 4, 0, 0, 0, 0, 0],
                &[68, 8, 5, 0, 0, 0, 0, 0],
                &[0x83, 7, 4, 10, 128, 0, 9, 0],
                &[0x89, 7, 4, 10, 128, 0, 9, 0],
                &[0x83, 7, 8, 10, 128, 0, 9, 0],
                &[0x88, 4, 0, 1],
                &[0x86, 6, 0, 0, 0, 1, 0, 0],
                &[30, 4, 0, 0],
                &[0x9e, 4, 1, 2],
                &[30, 0, 0, 0],
                &[30, 9, 0, 0],
                &[1, 1, 1, 30],
            ];
            packet.options = self.pick(&options).to_vec();
            return;
        }
        for _ in 0..self.between(1, 2) {
            let kind = self.pick(&[0, 60, 60, 43, 43, 44, 51, 135, 253]);
            let bytes: &[u8] = match kind {
                43 => self.pick(&[
                    &[0, 0, 0, 0, 0, 0],
                    &[0, 1, 0, 0, 0, 0],
                    &[4, 0, 0, 0, 0, 0],
                    &[4, 1, 0, 0, 0, 0],
                    &[77, 0, 0, 0, 0, 0],
                    &[77, 2, 0, 0, 0, 0],
                    &[2, 1, 0, 0, 0, 0],
                ]),
                0 | 60 => self.pick(&[
                    &[1, 4, 0, 0, 0, 0],
                    &[0, 0, 0, 0, 0, 0],
                    &[5, 2, 0, 0, 1, 0],
                    &[0x1e, 4, 0, 0, 0, 0],
                    &[0x5e, 4, 0, 0, 0, 0],
                    &[0x9e, 4, 0, 0, 0, 0],
                    &[0xde, 4, 0, 0, 0, 0],
                    &[1, 1, 0, 0xde, 1, 0],
                    &[0x1e, 9, 0, 0, 0, 0],
                    &[1, 4, 0, 7, 0, 0],
                    &[0xc9, 4, 0, 0, 0, 0],
                    &[5, 1, 0, 1, 1, 0],
                    &[0x3e, 2, 0, 0, 1, 0],
                ]),
                _ => &[0, 0, 0, 0, 0, 0],
            };
            packet.extensions.push(Extension { kind, bytes: bytes.to_vec() });
        }
    }

    fn damage(&mut self, packet: &mut Packet) {
        let by = self.pick(&[-30, -9, -8, -4, -1, 1, 2, 8, 100]);
        let all = [
            Damage::Checksum,
            Damage::NoChecksum,
            Damage::HeaderChecksum,
            Damage::Length(by),
            Damage::UdpLength(by),
            Damage::HeaderLength(self.pick(&[0, 4, 6, 15])),
            Damage::Version(self.pick(&[0, 4, 5, 6, 15])),
            Damage::ReservedFlag,
        ];
        packet.damage = Some(self.pick(&all));
    }

    /// A packet that the host under test forwards, or should not forward.
    fn transit(&mut self) -> Packet {
        let device = self.device();
        let mut packet = self.packet();
        (packet.device, packet.from) = (device, Place::Peer(device));
        let near =
            self.pick(&[Place::Peer(0), Place::Peer(1), Place::Other(device), Place::Far, Place::Far, Place::Aside]);
        packet.to = if self.sequence.v6 { near } else { self.pick(&[near, near, Place::Peer(2)]) };
        packet.hop_limit = self.pick(&[64, 64, 64, 255, 2, 1, 0]);
        match self.between(0, 9) {
            0 => packet.from = self.odd_source(device),
            1 => packet.to = self.odd_destination(device),
            2 => packet.to = Place::Lost,
            3 if !self.sequence.v6 => {
                packet.cut = Some(Cut {
                    offset: self.pick(&[0, 8, 552]),
                    len: self.pick(&[8, 552, 1_200]),
                    more: self.percent(60),
                });
            }
            _ => {}
        }
        packet
    }

    /// Calls on a socket, datagrams to it, and ICMP errors about its datagrams.
    fn sockets(&mut self) {
        let device = self.device();
        let peer = self.pick(&[Place::Peer(device), Place::Peer(device), Place::Far]);
        let local = self.pick(&[None, Some(Place::Own(device))]);
        self.call(CallKind::Bind(local, PORT));
        let connected = self.percent(60);
        if connected {
            self.call(CallKind::Connect(peer, PEER_PORT));
        }
        for _ in 0..self.between(1, 4) {
            match self.between(0, 5) {
                0 | 1 => {
                    let len = self.len();
                    let to = (!connected || self.percent(10)).then_some((peer, PEER_PORT));
                    self.call(CallKind::Send(len, to));
                    if self.percent(60) {
                        self.error(device, peer);
                        self.call(CallKind::Receive);
                    }
                }
                2 => {
                    let to = self.pick(&[Place::Own(0), Place::Other(device), Place::Far, Place::Aside, Place::Lost]);
                    self.call(CallKind::Send(5, Some((to, PEER_PORT))));
                }
                _ => {
                    let mut packet = self.packet();
                    packet.body = Body::Udp { from: self.pick(&[PEER_PORT, 4_001]), to: PORT, len: self.len() };
                    self.step(Act::Packet(packet));
                    self.call(CallKind::Receive);
                }
            }
        }
        self.call(CallKind::Receive);
        self.call(CallKind::Close);
    }

    /// An ICMP error about the latest datagram.
    fn error(&mut self, device: u8, peer: Place) {
        let (kind, code) = if self.sequence.v6 {
            self.pick(&[(1, 0), (1, 1), (1, 3), (1, 4), (1, 5), (1, 6), (2, 0), (2, 0), (3, 0), (3, 1), (4, 0), (4, 1)])
        } else {
            let unreachable = (3, self.between(0, 16).try_into().unwrap_or(0));
            self.pick(&[unreachable, unreachable, (3, 4), (3, 4), (11, 0), (11, 1), (12, 0), (4, 0), (3, 3)])
        };
        let mtu = self.pick(&[0, 68, 552, 600, 1_000, 1_280, 1_400, 1_500]);
        let too_big = if self.sequence.v6 { kind == 2 } else { (kind, code) == (3, 4) };
        let from = self.pick(&[peer, peer, Place::Other(device)]);
        let quote = self.pick(&[28, 36, 48, 60, 500]);
        let body = Body::Error { kind, code, rest: if too_big { mtu } else { 0 }, quote };
        self.step(Act::Packet(Packet::new(device, from, Place::Own(device), body)));
    }

    /// The fragments of a datagram, in some order.
    fn fragments(&mut self) {
        let device = self.device();
        let body = match self.between(0, 3) {
            0 => Body::Udp { from: PEER_PORT, to: 9, len: self.between(60, 400) },
            1 => Body::Protocol { number: 253, len: 200 },
            _ => Body::Echo { ident: 1, seq: 1, len: self.between(60, 400) },
        };
        let (Body::Udp { len, .. } | Body::Echo { len, .. } | Body::Protocol { len, .. }) = body else { return };
        let total = if let Body::Protocol { .. } = body { len } else { len + 8 };
        self.ident += 1;
        let mut template = Packet::new(device, Place::Peer(device), Place::Own(device), body);
        template.ident = self.ident;
        if self.percent(10) {
            self.headers(&mut template);
        }
        let size = self.pick(&[8, 16, 40, 64, 128]);
        let mut cuts: Vec<Cut> = (0..total.div_ceil(size))
            .map(|at| Cut { offset: at * size, len: size.min(total - at * size), more: (at + 1) * size < total })
            .take(12)
            .collect();
        self.disturb(&mut cuts, total);
        for cut in cuts {
            let packet = Packet { cut: Some(cut), ..template.clone() };
            self.step(Act::Packet(packet));
        }
    }

    fn disturb(&mut self, cuts: &mut Vec<Cut>, total: u16) {
        let at = self.rng.index(cuts.len());
        match self.between(0, 11) {
            0 => cuts.reverse(),
            1 => {
                let other = self.rng.index(cuts.len());
                cuts.swap(at, other);
            }
            2 => drop(cuts.remove(at)),
            3 => cuts.insert(at, cuts[at]),
            4 => cuts.push(cuts[at]),
            5 => cuts[at].len += 8,
            6 => cuts[at].offset = cuts[at].offset.saturating_sub(8),
            7 => cuts.insert(at, Cut { offset: 65_528, len: self.pick(&[1, 8, 16, 100]), more: self.percent(50) }),
            8 => cuts[at].more ^= true,
            9 => cuts[at].len += self.pick(&[1, 3, 4]),
            10 => *cuts = vec![Cut { offset: 0, len: total, more: false }],
            _ => cuts[at].len = self.pick(&[0, 8]),
        }
    }
}
