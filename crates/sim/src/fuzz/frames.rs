//! Fuzz target: sends frames to a stack that is host and router, and that already has connections, listeners, sockets and known
//! neighbours. An application on the stack reads and answers. The input controls the peers.

#![expect(clippy::unwrap_used, reason = "a fuzzer says what it wants by panicking")]

mod calls;
mod packets;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use siga_stack::Stack;
use siga_stack::limits::{FRAME_BYTES_MAX, HEADER_BYTES_MAX, TCP_SENT_MAX, TCP_SOCKET_BYTES_FREE};
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Marks, Received};
use siga_stack::seed::Seed;
use siga_stack::sockets::{ListenerId, TcpId, TcpOptions, TcpSetting};
use siga_stack::stack::{Handled, StackConfig};
use siga_stack::tcp::{Config, CongestionControl, Keepalive};
use siga_stack::time::{Duration, Instant};
use siga_stack::udp::UdpId;
use siga_stack::wire::address::Prefix;
use siga_stack::wire::ethernet::MacAddress;

use super::contents;
use super::input::Input;
use super::peer::{Peer, SYN, Segment};
use crate::wire::{self, Ip};

/// Maximum number of operations that are run from one input.
const STEPS_MAX: usize = 300;
/// Maximum number of frames that the stack may send after one operation. It is twice what a connection may have in flight, plus an
/// answer to each received frame.
const FRAMES_PER_STEP_MAX: usize = 2 * TCP_SENT_MAX as usize + 512;
/// Maximum number of deadlines after the end of the input, until the stack has no deadline left.
const WAKES_MAX: usize = 20_000;
const PEERS_MAX: usize = 24;
const APPS_MAX: usize = 24;
const HISTORY_MAX: usize = 12;
const MTU: [u16; 3] = [1_500, 1_500, 57_344];
/// Maximum size in bytes of a connection's buffer in each direction.
const BUFFER_BYTES_MAX: usize = 256 << 10;

/// Runs an input. Panics if the stack breaks a promise.
pub fn frames(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new(&mut input);
    input.each_step(STEPS_MAX, |input| {
        world.step(input);
        world.check();
    });
    world.end();
}

/// The application's end of a connection.
struct App {
    id: TcpId,
    written: u32,
    read: u32,
    peer: Option<usize>,
}

struct World {
    stack: Stack,
    now: Instant,
    options: TcpOptions,
    buffers_max: usize,
    backlog: usize,
    agreed: [Agreed; 3],
    peers: Vec<Peer>,
    apps: Vec<App>,
    listeners: Vec<ListenerId>,
    sockets: Vec<UdpId>,
    /// The most recent packets in both directions, with their device and their marks.
    history: VecDeque<(usize, Vec<u8>, Marks)>,
    /// True if the stack received a TCP packet with bytes that are not from the stream. Applications may then read any bytes.
    tainted: bool,
    frames: usize,
    room: Vec<u8>,
}

fn own(device: usize, v6: bool) -> IpAddr {
    address(device, v6, 1)
}

fn address(device: usize, v6: bool, host: u16) -> IpAddr {
    let network = u8::try_from(device + 1).unwrap();
    if v6 {
        Ipv6Addr::new(0x2001, 0xdb8, network.into(), 0, 0, 0, 0, host).into()
    } else {
        Ipv4Addr::new(10, network, 0, u8::try_from(host & 0xff).unwrap()).into()
    }
}

fn mac(device: usize, host: u8) -> [u8; 6] {
    [2, 0, 0, 0, u8::try_from(device).unwrap(), host]
}

fn id(device: usize) -> DeviceId {
    DeviceId(u16::try_from(device).unwrap())
}

fn any(v6: bool, port: u16) -> SocketAddr {
    SocketAddr::new(if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }, port)
}

/// Returns one of four multicast groups. With `which` 0, it is the group of all hosts.
fn group(v6: bool, which: u8) -> IpAddr {
    let which = which % 4 + 1;
    if v6 {
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, which.into()).into()
    } else {
        Ipv4Addr::new(224, 0, 0, which).into()
    }
}

fn options(bits: u16) -> TcpOptions {
    let set = |bit: u16| bits >> bit & 1 != 0;
    let keepalive = Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(5), probes: 3 };
    let config = Config {
        receive_buffer_bytes: if set(3) { 4_096 } else { 128 << 10 },
        receive_buffer_bytes_max: if set(3) { 16_384 } else { BUFFER_BYTES_MAX },
        send_buffer_bytes_max: if set(4) { 4_096 } else { BUFFER_BYTES_MAX },
        congestion: if set(5) { CongestionControl::Reno } else { CongestionControl::Cubic },
        no_delay: set(6),
        keepalive: set(7).then_some(keepalive),
        user_timeout: set(8).then_some(Duration::from_secs(30)),
        ecn: set(9),
        timestamps: !set(10),
        sack: !set(11),
        window_scaling: !set(12),
        ..Config::LINUX
    };
    let linger = set(13).then_some(Duration::from_secs(3));
    TcpOptions { config, linger, ..TcpOptions::default() }
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let bits = input.u16();
        let set = |bit: u16| bits >> bit & 1 != 0;
        let buffers_max = if set(1) { 64 << 10 } else { 16 << 20 };
        let config = StackConfig {
            seed: Seed::simulated(1),
            forwarding: set(0),
            tcp_buffers_bytes_max: buffers_max,
            ..StackConfig::default()
        };
        let all = Agreed { checksum_unfilled: true, large_segments: true };
        let mut world = Self {
            stack: Stack::new(config),
            now: Instant::from_ns(1_000_000_000),
            options: options(bits),
            buffers_max,
            backlog: if set(2) { 1 } else { 4 },
            agreed: [Agreed::default(), if set(14) { all } else { Agreed::default() }, all],
            peers: Vec::new(),
            apps: Vec::new(),
            listeners: Vec::new(),
            sockets: Vec::new(),
            history: VecDeque::new(),
            tainted: false,
            frames: 0,
            room: vec![0; FRAME_BYTES_MAX],
        };
        world.join();
        world.listen();
        for (device, v6) in [(0, false), (1, true), (2, false)] {
            let peer = Peer::new(device, address(device, v6, 9), own(device, v6), (1_000, 80), u32::MAX - 3_000);
            world.peers.push(peer);
            let at = world.peers.len() - 1;
            world.answer(at, 0x70, MTU[device] - 60);
            world.answer(at, 0, 0);
            world.serve();
        }
        world
    }

    /// Adds the devices to the stack, and lets the stack learn a neighbour on each Ethernet device.
    fn join(&mut self) {
        for (device, mtu) in MTU.into_iter().enumerate() {
            let medium = if device < 2 { Medium::Ethernet(MacAddress(mac(device, 1))) } else { Medium::Ip };
            let prefixes = [(false, 24), (true, 64)].map(|(v6, length)| Prefix::new(own(device, v6), length).unwrap());
            let config = DeviceConfig { medium, mtu, addresses: prefixes.to_vec(), agreed: self.agreed[device] };
            self.stack.add_device(config).unwrap();
        }
        for device in 0..2 {
            let to = own(device, false);
            let request = [
                &[0, 1, 8, 0, 6, 4, 0, 1][..],
                &mac(device, 9),
                &wire::octets(address(device, false, 9)),
                &[0; 6],
                &wire::octets(to),
            ]
            .concat();
            self.give(device, &[&mac(device, 1)[..], &mac(device, 9), &[8, 6], &request].concat(), Marks::default());
            let solicitation = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &wire::octets(own(device, true)), &[1, 1]].concat();
            let solicitation = [&solicitation[..], &mac(device, 9)].concat();
            let ip = Ip { hops: 255, ..Ip::new(address(device, true, 9), own(device, true), 58) };
            let mut packet = ip.packet(&solicitation);
            wire::mend(&mut packet);
            self.inject(device, &packet, Marks::default());
        }
        self.drain();
    }

    fn listen(&mut self) {
        for v6 in [false, true] {
            self.listeners.extend(self.stack.tcp_listen(any(v6, 80), self.backlog, &self.options));
            self.sockets.extend(self.stack.udp_bind(any(v6, 6)));
        }
    }

    fn now_ms(&self) -> u32 {
        u32::try_from((self.now.as_ns() / 1_000_000) & 0xffff_ffff).unwrap()
    }

    /// Passes a frame to the stack, as if a device had received it.
    fn give(&mut self, device: usize, frame: &[u8], marks: Marks) {
        let before: u64 = self.stack.drops().iter().map(|(_, count)| count).sum();
        let (header, payload) = frame.split_at(frame.len().min(HEADER_BYTES_MAX));
        let mut dropped = false;
        match self.stack.handle_frame(self.now, id(device), Received { header, payload, marks }) {
            Handled::Done => {}
            Handled::Dropped(_) => dropped = true,
            Handled::Forward(mut forward) => {
                let out = usize::from(forward.device.0);
                let mut pieces = 0;
                while let Some(piece) = forward.next_piece() {
                    pieces += 1;
                    let len = piece.header.len() + piece.range.len();
                    let whole = piece.marks.segment_bytes > 0;
                    assert!(whole || len <= usize::from(MTU[out]) + 14, "{len} bytes forwarded over {out}");
                    assert!(piece.range.end <= frame.len() && pieces <= 4_000, "{pieces} pieces");
                }
            }
        }
        let after: u64 = self.stack.drops().iter().map(|(_, count)| count).sum();
        assert!(!dropped || after > before, "a drop that is not counted");
    }

    /// Passes a packet to the stack, as if a device had received it. On an Ethernet device, the frame has a link header.
    fn inject(&mut self, device: usize, packet: &[u8], marks: Marks) {
        self.note(device, packet, marks);
        if device == 2 {
            return self.give(device, packet, marks);
        }
        let kind: [u8; 2] = if packet.first().is_some_and(|first| first >> 4 == 6) { [0x86, 0xdd] } else { [8, 0] };
        let frame = [&mac(device, 1)[..], &mac(device, 9), &kind, packet].concat();
        self.give(device, &frame, marks);
    }

    fn note(&mut self, device: usize, packet: &[u8], marks: Marks) {
        if self.history.len() >= HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back((device, packet.to_vec(), marks));
    }

    /// Polls the stack until it has no more frames to send.
    fn drain(&mut self) {
        loop {
            let before = self.frames;
            for device in 0..3 {
                let mut room = std::mem::take(&mut self.room);
                while let Some(sent) = self.stack.poll_transmit(self.now, id(device), &mut room) {
                    self.frames += 1;
                    assert!(self.frames <= FRAMES_PER_STEP_MAX, "one step makes endless frames");
                    self.receive_frame(device, &room[..sent.len], sent.marks);
                }
                self.room = room;
            }
            if self.frames == before {
                return;
            }
        }
    }

    /// Checks a frame that the stack sent. If it contains a TCP segment, passes the segment to its peer.
    fn receive_frame(&mut self, device: usize, frame: &[u8], marks: Marks) {
        let agreed = self.agreed[device];
        assert!(agreed.checksum_unfilled || !marks.checksum_unfilled, "a mark that the link did not agree to");
        assert!(agreed.large_segments || marks.segment_bytes == 0, "a segment that the link did not agree to");
        let packet = if device < 2 {
            assert_eq!(frame[6..12], mac(device, 1), "source of a frame");
            if frame[12..14] == [8, 6] {
                return;
            }
            &frame[14..]
        } else {
            frame
        };
        assert!(marks.segment_bytes > 0 || packet.len() <= usize::from(MTU[device]), "larger than the MTU");
        wire::check(packet, marks.checksum_unfilled);
        self.note(device, packet, marks);
        let Some((wire::TCP, at)) = wire::transport(packet) else { return };
        let Some(segment) = Segment::parse(&packet[at..]) else { panic!("a segment too short") };
        let (from, to) = if packet[0] >> 4 == 4 {
            let octets: [[u8; 4]; 2] = [packet[12..16].try_into().unwrap(), packet[16..20].try_into().unwrap()];
            (IpAddr::from(octets[0]), IpAddr::from(octets[1]))
        } else {
            let octets: [[u8; 16]; 2] = [packet[8..24].try_into().unwrap(), packet[24..40].try_into().unwrap()];
            (IpAddr::from(octets[0]), IpAddr::from(octets[1]))
        };
        let ports = (segment.ports.1, segment.ports.0);
        let same = |peer: &Peer| peer.ports == ports && (peer.there, peer.here) == (to, from);
        match self.peers.iter().position(same) {
            Some(known) => self.peers[known].receive(&segment),
            None if segment.flags & SYN != 0 && self.peers.len() < PEERS_MAX => {
                let mut peer = Peer::new(device, to, from, ports, 0x7fff_f000);
                peer.receive(&segment);
                self.peers.push(peer);
            }
            None => {}
        }
    }

    /// Makes a peer send: a SYN, or an acknowledgement of everything if the peer's connection is established.
    fn answer(&mut self, at: usize, bits: u8, mss: u16) {
        let now_ms = self.now_ms();
        let Some(peer) = self.peers.get_mut(at) else { return };
        let segment = if peer.is_known() { peer.bare(now_ms) } else { peer.syn(bits, mss, now_ms) };
        let (device, packet) = (peer.device, peer.packet(&segment, 0));
        self.inject(device, &packet, Marks::default());
        self.drain();
    }

    /// Makes the application accept connections, read, and answer.
    fn serve(&mut self) {
        for listener in self.listeners.clone() {
            while self.apps.len() < APPS_MAX
                && let Ok(Some((id, _))) = self.stack.tcp_accept(listener)
            {
                self.adopt(id);
            }
        }
        for at in 0..self.apps.len() {
            let read = self.read(at, 4_096);
            if read > 0 {
                self.write(at, 2 * read);
            }
        }
    }

    fn adopt(&mut self, id: TcpId) {
        let Ok((local, remote)) = self.stack.tcp_addresses(id) else { return };
        let peer = self.peers.iter().position(|peer| {
            (peer.here, peer.there) == (local.ip(), remote.ip()) && peer.ports == (remote.port(), local.port())
        });
        self.apps.push(App { id, written: 0, read: 0, peer });
    }

    fn read(&mut self, at: usize, most: usize) -> usize {
        let Some(app) = self.apps.get_mut(at) else { return 0 };
        let mut into = vec![0; most];
        let Ok(Some(count)) = self.stack.tcp_receive(self.now, app.id, &mut into) else { return 0 };
        let expected = match app.peer.and_then(|peer| self.peers.get(peer)) {
            Some(peer) => peer.expected(app.read, count),
            None => None,
        };
        let right = self.tainted || expected.is_none_or(|expected| into[..count] == expected);
        assert!(right, "the application reads other bytes than were sent, from {} on", app.read);
        app.read = app.read.wrapping_add(u32::try_from(count).unwrap());
        count
    }

    fn write(&mut self, at: usize, len: usize) {
        let Some(app) = self.apps.get_mut(at) else { return };
        let bytes = contents(app.written, len);
        let taken = self.stack.tcp_send(self.now, app.id, &bytes).unwrap_or(0);
        app.written = app.written.wrapping_add(u32::try_from(taken).unwrap());
    }

    /// Runs one operation of the input.
    fn step(&mut self, input: &mut Input<'_>) {
        self.frames = 0;
        let operation = input.u8();
        match operation % 24 {
            0..6 => self.send_segment(input),
            6 => {
                let at = input.index(self.peers.len());
                let (bits, mss) = (input.u8(), input.pick(&[1_460, 536, 1, 0, 48, 8_960, 65_535]));
                self.answer(at, bits, mss);
            }
            7 => self.send_data(input),
            8 => self.serve(),
            9 => {
                let (at, len) = (input.index(self.apps.len()), input.size());
                self.write(at, len);
            }
            10 => {
                let (at, most) = (input.index(self.apps.len()), input.size());
                self.read(at, most);
            }
            11 => self.call(input),
            12 => self.connect(input),
            13 => self.wait_for_deadline(),
            14 => self.wait(Duration::from_millis(u64::from(input.u16()))),
            15 => self.begin(input),
            16 => self.flood_syns(input),
            17 => self.flood_gaps(input),
            18 => self.send_icmp_error(input),
            19 => self.send_packet(input),
            20 => self.send_bytes(input),
            21 => self.send_again(input),
            22 => self.send_fragments(input),
            _ => self.own(input),
        }
        // After some operations the stack is not polled, so that its frames stay queued.
        if operation < 0xe0 || self.peers.iter().any(|peer| !peer.is_known()) {
            self.drain();
        }
        for _ in 0..1_000 {
            if self.stack.tcp_poll_event().is_none() {
                return;
            }
        }
        panic!("the events of TCP never end");
    }

    fn marks(&self, device: usize, bits: u8, segment_bytes: u16) -> Marks {
        let agreed = self.agreed[device];
        Marks {
            checksum_unfilled: agreed.checksum_unfilled && bits & 1 != 0,
            segment_bytes: if agreed.large_segments && bits & 2 != 0 { segment_bytes } else { 0 },
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.stack.handle_timeout(self.now);
    }

    /// Advances the clock to the stack's deadline. Panics if the stack does not move its deadline when the time has come.
    fn wait_for_deadline(&mut self) {
        for calls in 0.. {
            let Some(at) = self.stack.poll_timeout() else { return };
            if calls > 0 && at > self.now {
                return;
            }
            assert!(calls < 100, "a deadline that does not move");
            self.now = self.now.max(at);
            self.stack.handle_timeout(self.now);
            self.drain();
        }
    }

    /// Checks the invariants that must hold after every operation.
    fn check(&self) {
        self.stack.check();
        let memory = self.stack.memory();
        for part in &memory.0 {
            assert!(part.held <= part.most, "{part:?}");
        }
        let connections = memory.held("TCP connections");
        let most = self.buffers_max + 2 * TCP_SOCKET_BYTES_FREE * connections + 2 * BUFFER_BYTES_MAX;
        let held = memory.held("bytes in TCP buffers");
        assert!(held <= most, "{held} bytes in the buffers of {connections} connections, at most {most}");
    }

    /// Closes all connections and sockets, and checks that the stack then has no connections, sockets, fragments or queued frames.
    fn end(&mut self) {
        self.frames = 0;
        self.drain();
        for app in std::mem::take(&mut self.apps) {
            assert_eq!(self.stack.tcp_close(self.now, app.id), Ok(()));
        }
        for listener in std::mem::take(&mut self.listeners) {
            assert_eq!(self.stack.tcp_unlisten(self.now, listener), Ok(()));
        }
        for socket in std::mem::take(&mut self.sockets) {
            assert_eq!(self.stack.udp_close(socket), Ok(()));
        }
        self.drain();
        for wakes in 0.. {
            assert!(wakes < WAKES_MAX, "the stack never rests");
            let Some(at) = self.stack.poll_timeout() else { break };
            assert!(wakes == 0 || at > self.now, "a deadline that does not move");
            self.now = self.now.max(at);
            self.stack.handle_timeout(self.now);
            self.frames = 0;
            self.drain();
            self.stack.check();
        }
        let memory = self.stack.memory();
        for name in [
            "bytes of frames in device queues",
            "bytes that wait for neighbours",
            "datagrams in reassembly",
            "bytes in reassembly",
            "UDP sockets",
            "TCP connections",
            "bytes in TCP buffers",
            "TCP connections in TIME-WAIT",
        ] {
            assert_eq!(memory.held(name), 0, "{name} are left: {memory}");
        }
    }
}
