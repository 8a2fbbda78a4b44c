//! A stack with an open TCP connection, and an attacker who can send it anything.

use crate::world::*;
use siga_stack::sockets::{ListenerId, TcpId, TcpOptions};
use siga_stack::tcp::StateName;
use siga_stack::time::Duration;
use siga_stack::wire::ethernet::MacAddress;
use siga_stack::wire::tcp::{Flags, Header, HeaderOptions, SeqNumber};
use smoltcp::wire::{ArpOperation, EthernetProtocol};

/// Where the peer's numbers begin.
pub(crate) const PEER_ISN: u32 = 5_000;

/// The stack under attack.
pub(crate) struct Victim {
    pub(crate) world: World,
    pub(crate) listener: ListenerId,
    pub(crate) id: TcpId,
    /// What the peer would send next, if it had nothing to say.
    pub(crate) next: Header,
}

/// The options of a peer that knows all but timestamps.
pub(crate) fn usual() -> HeaderOptions {
    HeaderOptions { mss: Some(1_000), window_scale: Some(7), sack_permitted: true, ..HeaderOptions::default() }
}

pub(crate) fn flags(letters: &str) -> Flags {
    let has = |letter| letters.contains(letter);
    Flags { syn: has('S'), fin: has('F'), rst: has('R'), psh: has('P'), ece: has('E'), cwr: has('C'), ae: has('A') }
}

/// A SYN to port 80.
pub(crate) fn syn(port: u16, options: HeaderOptions) -> Header {
    let seq = SeqNumber(PEER_ISN);
    Header {
        source_port: port,
        destination_port: 80,
        seq,
        flags: flags("S"),
        window: 60_000,
        options,
        ..Header::default()
    }
}

/// A segment as a packet between two addresses of the same version.
pub(crate) fn packet(from: &str, to: &str, header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; header.header_bytes()];
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    raw(from, to, bytes)
}

/// Bytes of a segment as a packet, the checksum made right.
pub(crate) fn raw(from: &str, to: &str, mut segment: Vec<u8>) -> Vec<u8> {
    segment[16..18].fill(0);
    let sum = checksum(from, to, 6, &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    if from.contains(':') { v6(from, to, 6, 64, &segment) } else { V4::new(from, to, 6).packet(&segment) }
}

/// The TCP segments that the stack sends by its first device.
pub(crate) fn answers(world: &mut World) -> Vec<(Header, Vec<u8>)> {
    let segments = world.sent(0).into_iter().filter_map(|frame| {
        let at = 14 + if frame[12..14] == [8, 0] { 20 } else { 40 };
        let tcp = if at == 34 { frame[23] == 6 } else { frame[20] == 6 };
        let (header, len) = tcp.then(|| Header::parse(&frame[at..]).unwrap())?;
        Some((header, frame[at + len..].to_vec()))
    });
    segments.collect()
}

/// The peer's station is still there: it asks for the stack's address. Time passes.
pub(crate) fn pass(world: &mut World, time: Duration) {
    world.pass(time);
    let request = arp(ArpOperation::Request, HOST_MAC[0], HOST[0], MacAddress([0; 6]), ROUTER[0]);
    let frame = ethernet(HOST_MAC[0], MacAddress::BROADCAST, EthernetProtocol::Arp, &request);
    assert_eq!(world.give(0, &frame), Outcome::Done);
}

impl Victim {
    pub(crate) fn new() -> Self {
        Self::with(TcpOptions::default(), usual())
    }

    /// With options of the stack's side, and of the peer's SYN.
    pub(crate) fn with(options: TcpOptions, theirs: HeaderOptions) -> Self {
        let mut world = World::host();
        let listener = world.stack.tcp_listen("0.0.0.0:80".parse().unwrap(), 8, &options).unwrap();
        let (id, next) = Self::open(&mut world, listener, 1_000, theirs);
        Self { world, listener, id, next }
    }

    /// Opens a connection from a port of the peer's.
    pub(crate) fn open(world: &mut World, listener: ListenerId, port: u16, theirs: HeaderOptions) -> (TcpId, Header) {
        let first = syn(port, theirs);
        assert_eq!(world.give_packet(0, &packet(HOST[0], ROUTER[0], &first, &[])), Outcome::Done);
        let answer = answers(world).remove(0).0;
        assert!(answer.flags.syn && answer.ack == Some(first.seq + 1));
        let timestamps = answer.options.timestamps.map(|theirs| siga_stack::wire::tcp::Timestamps {
            value: first.options.timestamps.unwrap().value,
            echo: theirs.value,
        });
        let options = HeaderOptions { timestamps, ..HeaderOptions::default() };
        let next = Header {
            seq: first.seq + 1,
            ack: Some(answer.seq + 1),
            flags: flags(""),
            window: 60_000,
            options,
            ..first
        };
        assert_eq!(world.give_packet(0, &packet(HOST[0], ROUTER[0], &next, &[])), Outcome::Done);
        let (id, _) = world.stack.tcp_accept(listener).unwrap().unwrap();
        (id, next)
    }

    /// Gives a segment from the peer's address.
    pub(crate) fn give(&mut self, header: &Header, payload: &[u8]) -> Outcome {
        self.world.give_packet(0, &packet(HOST[0], ROUTER[0], header, payload))
    }

    pub(crate) fn answers(&mut self) -> Vec<(Header, Vec<u8>)> {
        answers(&mut self.world)
    }

    pub(crate) fn state(&self) -> StateName {
        self.world.stack.tcp_state(self.id).unwrap()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        self.world.stack.tcp_send(self.world.now, self.id, bytes).unwrap()
    }

    /// The connection still carries bytes both ways, and holds no more memory than it may.
    pub(crate) fn lives(mut self) {
        self.answers();
        assert_eq!(self.state(), StateName::Established);
        let (before, hello) = (self.received(), b"hello".as_slice());
        assert_eq!(self.give(&self.next.clone(), hello), Outcome::Done);
        assert_eq!(self.received() - before, hello.len());
        self.write(hello);
        pass(&mut self.world, Duration::from_secs(2));
        assert!(!self.answers().is_empty(), "nothing comes any more");
        self.bounded();
    }

    pub(crate) fn received(&mut self) -> usize {
        let mut into = vec![0; 1 << 20];
        let (now, mut all) = (self.world.now, 0);
        while let Ok(Some(count @ 1..)) = self.world.stack.tcp_receive(now, self.id, &mut into) {
            all += count;
        }
        self.next.seq += u32::try_from(all).unwrap();
        all
    }

    pub(crate) fn bounded(&self) {
        self.world.stack.check();
        let memory = self.world.stack.memory();
        assert!(memory.0.iter().all(|part| part.held <= part.most), "{memory}");
    }

    /// Bytes of TCP buffers, the lists of segments and gaps included.
    pub(crate) fn buffers(&self) -> usize {
        self.world.stack.memory().held("bytes in TCP buffers")
    }
}
