//! A server's stack with many connections to remote hosts that exist only as packets, so that nearly all memory of the process
//! belongs to the stack.

use siga_stack::Stack;
use siga_stack::limits::HEADER_BYTES_MAX;
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Marks, Received};
use siga_stack::sockets::{ListenerId, TcpEvent, TcpId, TcpOptions};
use siga_stack::stack::StackConfig;
use siga_stack::stack::memory::Memory;
use siga_stack::time::{Duration, Instant};
use siga_stack::wire::address::Prefix;
use siga_stack::wire::tcp::{Block, Flags, Header, HeaderOptions, SackBlocks, SeqNumber, Timestamps};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const DEVICE: DeviceId = DeviceId(0);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
const PORT: u16 = 80;
const IP_BYTES: usize = 20;
const REQUEST: [u8; 200] = [0x5a; 200];
/// Number of connections of one remote host.
const HOST_CONNECTIONS: u32 = 50_000;
/// A response that needs more round trips than this counts as failed.
const ROUNDS_MAX: u32 = 50;
/// Initial sequence number of each remote host.
const FIRST: SeqNumber = SeqNumber(1_000);

/// What each connection did before it became idle.
#[derive(Clone, Copy)]
pub(crate) enum Past {
    /// Only the handshake.
    Opened,
    /// One request of 200 bytes, and a response of 1,000 bytes.
    Answered,
    /// One request, and a response of 20,000 bytes. The first segment is lost and sent again. The request arrives in two segments,
    /// the later one first.
    Repaired,
}

impl Past {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Opened => "opened only",
            Self::Answered => "a request and its response",
            Self::Repaired => "a response with a loss, and reordering",
        }
    }
}

/// The server's stack, and what each remote host knows.
pub(crate) struct Crowd {
    now: Instant,
    stack: Stack,
    listener: ListenerId,
    sockets: Vec<TcpId>,
    frame: Vec<u8>,
}

/// One end of a connection at a remote host.
#[derive(Clone, Copy)]
struct Remote {
    address: Ipv4Addr,
    port: u16,
    seq: SeqNumber,
    ack: SeqNumber,
    /// The TSval that the server sent last.
    echo: u32,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        let mut stack = Stack::new(StackConfig::default());
        let addresses = vec![Prefix::new(SERVER.into(), 8).expect("a prefix")];
        let agreed = Agreed { checksum_unfilled: true, large_segments: false };
        stack.add_device(DeviceConfig { medium: Medium::Ip, mtu: 1_500, addresses, agreed }).expect("a device");
        let at = SocketAddr::new(SERVER.into(), PORT);
        let listener = stack.tcp_listen(at, 16, &TcpOptions::default()).expect("a free port");
        Self { now: Instant::from_ns(1 << 40), stack, listener, sockets: Vec::new(), frame: vec![0; 2_000] }
    }

    /// Opens `count` more connections, each of which then becomes idle.
    pub(crate) fn open(&mut self, count: u32, past: Past) {
        let first = u32::try_from(self.sockets.len()).expect("fewer than the limit");
        self.sockets.reserve_exact(count as usize);
        for number in first..first + count {
            let remote = self.connect(number);
            match past {
                Past::Opened => {}
                Past::Answered => self.answer(remote),
                Past::Repaired => self.repair(remote),
            }
            while self.stack.tcp_poll_event().is_some() {}
            self.now += Duration::from_micros(1);
        }
    }

    /// Lets time pass until no timer runs.
    pub(crate) fn rest(&mut self) {
        while let Some(due) = self.stack.poll_timeout() {
            self.now = self.now.max(due);
            self.stack.handle_timeout(self.now);
            while self.poll().is_some() {}
        }
        while self.stack.tcp_poll_event().is_some() {}
    }

    /// Sends a request over every `step`th connection, whose application answers it. Returns the number of answers.
    pub(crate) fn ask_again(&mut self, step: usize) -> usize {
        let mut answers = 0;
        for number in (0..self.sockets.len()).step_by(step) {
            let (local, remote) = self.stack.tcp_addresses(self.sockets[number]).expect("an open connection");
            assert_eq!(local, SocketAddr::new(SERVER.into(), PORT));
            // An old sequence number elicits an acknowledgement that has the current numbers.
            let (IpAddr::V4(address), port) = (remote.ip(), remote.port()) else { panic!("an IPv4 address") };
            let mut end = Remote { address, port, seq: FIRST, ack: SeqNumber(0), echo: 0 };
            self.give(&end, Flags::default(), SackBlocks::default(), &[0]);
            let header = self.poll().map(|(header, _)| header).expect("an acknowledgement");
            (end.seq, end.ack) = (header.ack.expect("an acknowledgement"), header.seq);
            end.echo = header.options.timestamps.map_or(0, |stamps| stamps.value);
            self.answer(end);
            answers += 1;
        }
        answers
    }

    pub(crate) fn memory(&self) -> Memory {
        self.stack.memory()
    }

    /// Opens a connection from a remote host.
    fn connect(&mut self, number: u32) -> Remote {
        let [.., high, low] = (number / HOST_CONNECTIONS + 1).to_be_bytes();
        let port = u16::try_from(number % HOST_CONNECTIONS + 1_024).expect("a port");
        let mut remote =
            Remote { address: Ipv4Addr::new(10, 0, high, low), port, seq: FIRST, ack: SeqNumber(0), echo: 0 };
        self.give(&remote, Flags { syn: true, ..Flags::default() }, SackBlocks::default(), &[]);
        let (answer, _) = self.poll().expect("a SYN-ACK");
        (remote.seq, remote.ack) = (FIRST + 1, answer.seq + 1);
        remote.echo = answer.options.timestamps.map_or(0, |stamps| stamps.value);
        self.give(&remote, Flags::default(), SackBlocks::default(), &[]);
        let (socket, _) = self.stack.tcp_accept(self.listener).expect("a listener").expect("an open connection");
        self.sockets.push(socket);
        remote
    }

    /// Exchanges a request and a response.
    fn answer(&mut self, mut remote: Remote) {
        self.give(&remote, Flags { psh: true, ..Flags::default() }, SackBlocks::default(), &REQUEST);
        remote.seq += 200;
        self.serve(1_000);
        while let Some((header, bytes)) = self.poll() {
            remote.ack = header.seq + bytes;
        }
        self.give(&remote, Flags::default(), SackBlocks::default(), &[]);
    }

    /// Exchanges a request that arrives out of order, and a response whose first segment is lost.
    fn repair(&mut self, mut remote: Remote) {
        let later = Remote { seq: remote.seq + 100, ..remote };
        self.give(&later, Flags { psh: true, ..Flags::default() }, SackBlocks::default(), &REQUEST[100..]);
        self.give(&remote, Flags::default(), SackBlocks::default(), &REQUEST[..100]);
        remote.seq += 200;
        self.serve(20_000);
        let (first, end) = (remote.ack, remote.ack + 20_000);
        let (mut reported, mut lost) = (first, false);
        for _ in 0..ROUNDS_MAX {
            while let Some((header, bytes)) = self.poll() {
                if header.seq == first && bytes > 0 && !std::mem::replace(&mut lost, true) {
                    continue;
                }
                if header.seq == remote.ack {
                    remote.ack = (header.seq + bytes).later(reported);
                } else {
                    reported = header.seq + bytes;
                }
            }
            self.now += Duration::from_millis(1);
            let mut blocks = SackBlocks::default();
            if reported.after(remote.ack) {
                blocks.push(Block { start: remote.ack + 1_448, end: reported });
            }
            self.give(&remote, Flags::default(), blocks, &[]);
            if remote.ack == end {
                return;
            }
        }
        panic!("the response did not arrive");
    }

    /// Lets the application of the latest event read a request and write a response.
    fn serve(&mut self, bytes: usize) {
        let mut into = [0; REQUEST.len()];
        while let Some(event) = self.stack.tcp_poll_event() {
            if let TcpEvent::Connection(socket) = event
                && self.stack.tcp_receive(self.now, socket, &mut into) == Ok(Some(REQUEST.len()))
            {
                assert_eq!(self.stack.tcp_send(self.now, socket, &vec![1; bytes]), Ok(bytes));
            }
        }
    }

    /// Gives the server a segment from a remote host.
    fn give(&mut self, remote: &Remote, mut flags: Flags, sack: SackBlocks, payload: &[u8]) {
        let ms = u32::try_from(self.now.as_ns() / 1_000_000).expect("less than a month");
        let syn = flags.syn;
        let options = HeaderOptions {
            mss: syn.then_some(1_460),
            window_scale: syn.then_some(7),
            sack_permitted: syn,
            timestamps: Some(Timestamps { value: ms, echo: remote.echo }),
            sack,
            ..HeaderOptions::default()
        };
        flags.psh &= !payload.is_empty();
        let header = Header {
            source_port: remote.port,
            destination_port: PORT,
            seq: remote.seq,
            ack: (!syn).then_some(remote.ack),
            flags,
            window: 64_000,
            options,
            ..Header::default()
        };
        let mut bytes = [0; 400];
        let segment_bytes = header.header_bytes() + payload.len();
        let total = IP_BYTES + segment_bytes;
        bytes[..IP_BYTES].copy_from_slice(&ip_header(remote.address, total));
        header.emit(&mut bytes[IP_BYTES..]);
        bytes[IP_BYTES + header.header_bytes()..total].copy_from_slice(payload);
        let (header, payload) = bytes[..total].split_at(total.min(HEADER_BYTES_MAX));
        let marks = Marks { checksum_unfilled: true, segment_bytes: 0 };
        self.stack.handle_frame(self.now, DEVICE, Received { header, payload, marks });
    }

    /// Returns the header and the number of payload bytes of the next segment that the server sends.
    fn poll(&mut self) -> Option<(Header, u32)> {
        let sent = self.stack.poll_transmit(self.now, DEVICE, &mut self.frame)?;
        let segment = &self.frame[IP_BYTES..sent.len];
        let (header, header_bytes) = Header::parse(segment).expect("a segment");
        Some((header, u32::try_from(segment.len() - header_bytes).expect("a short segment")))
    }
}

fn ip_header(from: Ipv4Addr, total: usize) -> [u8; IP_BYTES] {
    let mut header = [0; IP_BYTES];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&u16::try_from(total).expect("a short packet").to_be_bytes());
    (header[8], header[9]) = (64, 6);
    header[12..16].copy_from_slice(&from.octets());
    header[16..].copy_from_slice(&SERVER.octets());
    let words = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).expect("a folded sum");
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// Returns the memory of this process that is in RAM, in bytes.
pub(crate) fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/smaps_rollup").expect("Linux has this file");
    let line = status.lines().find(|line| line.starts_with("Rss:")).expect("the file has this line");
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok());
    kilobytes.expect("a number") * 1_024
}
