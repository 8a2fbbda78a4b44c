//! Real stacks as nodes: a router, or a host with programs. These are those of [`crate::tcp`], and some that ask over UDP.
//!
//! An asking program sends requests of many sizes, repeats each until it is answered, and checks every byte of the answers. A
//! datagram may come twice, late or never, as UDP allows. A datagram with other bytes than were sent is a violation, and so is
//! an answer without a request.

use std::net::SocketAddr;

use siga_stack::Stack;
use siga_stack::limits::HEADER_BYTES_MAX;
use siga_stack::link::device::DeviceError;
use siga_stack::link::frame::{DeviceId, Marks, Received};
use siga_stack::sockets::TcpError;
use siga_stack::stack::{Handled, Transmit};
use siga_stack::time::{Duration, Instant};
use siga_stack::udp::{Datagram, UdpError, UdpId};

use crate::check::{Content, Stream};
use crate::node::{LinkState, Node, Outgoing};
use crate::tcp::{self, Listen};

/// Requests in flight at a time.
const OUTSTANDING_MAX: usize = 4;
/// An unanswered request is repeated after this time.
const RETRY: Duration = Duration::from_secs(1);
/// The number of a request and the length of its answer.
const HEAD_BYTES: usize = 4 + 4;
/// The room of the largest datagram over IPv4 behind all headers.
pub const BODY_BYTES_MAX: usize = 65_535 - 20 - 8 - HEAD_BYTES;

/// Kinds of memory of which a stack at rest holds nothing. Path MTUs stay until the next packet to their destination.
const LEAVE_NOTHING: [&str; 9] = [
    "bytes of frames in device queues",
    "neighbours",
    "bytes that wait for neighbours",
    "datagrams in reassembly",
    "TCP connections",
    "bytes in TCP buffers",
    "TCP connections in TIME-WAIT",
    "TCP ports taken",
    "events of TCP sockets",
];

/// A stack and what uses it.
#[derive(Debug)]
pub struct Host {
    stack: Stack,
    programs: Vec<Program>,
    /// Its programs over TCP.
    pub tcp: tcp::Programs,
    /// For each device that received the state of its link.
    carriers: Vec<bool>,
    wrong: Option<String>,
}

/// What uses a stack.
#[derive(Debug)]
enum Program {
    Answering(UdpId),
    Asking(Asking),
}

#[derive(Debug)]
struct Asking {
    socket: UdpId,
    requests: Vec<Pending>,
    first_open: usize,
}

/// One request to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Bytes of the question beyond its head.
    pub question_bytes: usize,
    /// Bytes of the answer beyond its head.
    pub answer_bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    request: Request,
    answered: bool,
    /// When it is sent, for the first time or again.
    due: Instant,
}

impl Host {
    /// A stack without programs: a router, or a host that answers what stacks answer by themselves.
    pub fn new(stack: Stack) -> Self {
        let tcp = tcp::Programs::default();
        Self { stack, programs: Vec::new(), tcp, carriers: Vec::new(), wrong: None }
    }

    /// Adds a program that accepts TCP connections.
    ///
    /// # Errors
    /// The stack's error.
    pub fn listen(&mut self, listen: Listen) -> Result<(), TcpError> {
        self.tcp.listen(&mut self.stack, listen)
    }

    /// What its TCP connections wait for.
    pub fn describe(&self) -> Vec<String> {
        self.tcp.describe(&self.stack)
    }

    /// Whether every TCP connection that was to be is over, for the programs and for the stack.
    pub fn is_hung_up(&self) -> bool {
        self.tcp.is_done() && self.stack.memory().held("TCP connections") == 0
    }

    /// Adds a program that answers requests.
    ///
    /// # Errors
    /// The address is taken, or is not the stack's.
    pub fn answer(&mut self, local: SocketAddr) -> Result<(), UdpError> {
        let socket = self.stack.udp_bind(local)?;
        self.programs.push(Program::Answering(socket));
        Ok(())
    }

    /// Adds a program that sends these requests to `peer`. It begins when the host is next woken or sent a frame.
    ///
    /// # Errors
    /// The address is taken, or is not the stack's.
    pub fn ask(&mut self, local: SocketAddr, peer: SocketAddr, requests: &[Request]) -> Result<(), UdpError> {
        let socket = self.stack.udp_bind(local)?;
        self.stack.udp_connect(socket, peer)?;
        let pending = |&request| Pending { request, answered: false, due: Instant::default() };
        let requests = requests.iter().map(pending).collect();
        self.programs.push(Program::Asking(Asking { socket, requests, first_open: 0 }));
        Ok(())
    }

    /// Whether everything asked has been answered.
    pub fn is_done(&self) -> bool {
        self.programs.iter().all(|program| match program {
            Program::Answering(_) => true,
            Program::Asking(asking) => asking.first_open == asking.requests.len(),
        })
    }

    /// The stack.
    pub const fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Lets the programs do what they can.
    fn work(&mut self, now: Instant) {
        for program in &mut self.programs {
            let result = match program {
                Program::Answering(socket) => answer(&mut self.stack, now, *socket),
                Program::Asking(asking) => asking.work(&mut self.stack, now),
            };
            if let Err(wrong) = result {
                self.wrong.get_or_insert(wrong);
            }
        }
        if let Err(wrong) = self.tcp.work(&mut self.stack, now) {
            self.wrong.get_or_insert(wrong);
        }
    }
}

impl Node for Host {
    fn handle_frame(
        &mut self,
        now: Instant,
        device: DeviceId,
        frame: &[u8],
        marks: Marks,
        forwarded: &mut Vec<Outgoing>,
    ) {
        let (header, payload) = frame.split_at(frame.len().min(HEADER_BYTES_MAX));
        match self.stack.handle_frame(now, device, Received { header, payload, marks }) {
            Handled::Done | Handled::Dropped(_) => {}
            Handled::Forward(mut forward) => {
                let device = forward.device;
                while let Some(piece) = forward.next_piece() {
                    let bytes = [piece.header, &frame[piece.range.clone()]].concat();
                    forwarded.push(Outgoing { device, bytes, marks: piece.marks });
                }
            }
        }
        self.work(now);
    }

    fn poll_transmit(&mut self, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit> {
        self.stack.poll_transmit(now, device, into)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = self.programs.iter().filter_map(|program| match program {
            Program::Answering(_) => None,
            Program::Asking(asking) => asking.open().map(|pending| pending.due).min(),
        });
        self.stack.poll_timeout().into_iter().chain(self.tcp.due()).chain(due).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.stack.handle_timeout(now);
        self.work(now);
    }

    fn link_changed(&mut self, now: Instant, device: DeviceId, state: LinkState) {
        // The stack refuses an MTU that is too small for an IP version. The link is then a black hole for that version.
        if let Ok(mtu) = u16::try_from(state.mtu) {
            let _: Result<(), DeviceError> = self.stack.set_mtu(now, device, mtu);
        }
        let at = usize::from(device.0);
        if self.carriers.len() <= at {
            self.carriers.resize(at + 1, state.carrier);
        }
        if state.carrier && !std::mem::replace(&mut self.carriers[at], state.carrier) {
            self.stack.carrier_up(now, device);
        }
        self.carriers[at] = state.carrier;
        self.work(now);
    }

    fn check(&self) -> Result<(), String> {
        self.wrong.clone().map_or(Ok(()), Err)
    }

    fn left_over(&self) -> Vec<String> {
        // Fragments that wait for others and neighbours that are known or being asked for each have a deadline.
        let due = self.stack.poll_timeout().map(|due| format!("something due at {due:?}"));
        let memory = self.stack.memory();
        let held = LEAVE_NOTHING.into_iter().filter(|name| memory.held(name) > 0);
        due.into_iter().chain(held.map(|name| format!("{}: {name}", memory.held(name)))).collect()
    }
}

impl Asking {
    /// The requests that may be on their way.
    fn open(&self) -> impl Iterator<Item = &Pending> {
        self.requests[self.first_open..].iter().take(OUTSTANDING_MAX).filter(|pending| !pending.answered)
    }

    fn work(&mut self, stack: &mut Stack, now: Instant) -> Result<(), String> {
        while let Some(datagram) = receive(stack, self.socket)? {
            let (number, answer_bytes, body) = head(&datagram.bytes)?;
            let pending = usize::try_from(number).ok().and_then(|number| self.requests.get_mut(number));
            let pending = pending.ok_or_else(|| format!("an answer to request {number}, which was never asked"))?;
            if answer_bytes != body.len() || body.len() != pending.request.answer_bytes {
                return Err(format!("an answer of {} bytes to request {number}", body.len()));
            }
            check_body(number, ANSWER, body)?;
            pending.answered = true;
        }
        while self.requests.get(self.first_open).is_some_and(|pending| pending.answered) {
            self.first_open += 1;
        }
        for (number, pending) in self.requests.iter_mut().enumerate().skip(self.first_open).take(OUTSTANDING_MAX) {
            if !pending.answered && pending.due <= now {
                pending.due = now + RETRY;
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                let Request { question_bytes, answer_bytes } = pending.request;
                send(stack, now, self.socket, None, &message(number, QUESTION, question_bytes, answer_bytes))?;
            }
        }
        Ok(())
    }
}

fn answer(stack: &mut Stack, now: Instant, socket: UdpId) -> Result<(), String> {
    while let Some(datagram) = receive(stack, socket)? {
        let (number, answer_bytes, body) = head(&datagram.bytes)?;
        check_body(number, QUESTION, body)?;
        send(stack, now, socket, Some(datagram.from), &message(number, ANSWER, answer_bytes, answer_bytes))?;
    }
    Ok(())
}

/// The next datagram. An ICMP error about a sent datagram is ignored: the request is repeated.
fn receive(stack: &mut Stack, socket: UdpId) -> Result<Option<Datagram>, String> {
    loop {
        match stack.udp_receive(socket) {
            Ok(datagram) => return Ok(datagram),
            Err(UdpError::Network(..)) => {}
            Err(error) => return Err(format!("receiving: {error:?}")),
        }
    }
}

/// Sends a datagram, or drops it where a queue is full.
fn send(stack: &mut Stack, now: Instant, socket: UdpId, to: Option<SocketAddr>, bytes: &[u8]) -> Result<(), String> {
    match stack.udp_send(now, socket, to, bytes) {
        Ok(()) | Err(UdpError::Dropped(_)) => Ok(()),
        Err(error) => Err(format!("sending: {error:?}")),
    }
}

const QUESTION: u64 = 0;
const ANSWER: u64 = 1;

fn content(number: u32, kind: u64) -> Content {
    Content::new(u64::from(number) * 2 + kind)
}

fn message(number: u32, kind: u64, body_bytes: usize, answer_bytes: usize) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.extend(u32::try_from(answer_bytes).unwrap_or(u32::MAX).to_be_bytes());
    bytes.resize(HEAD_BYTES + body_bytes, 0);
    content(number, kind).fill(0, &mut bytes[HEAD_BYTES..]);
    bytes
}

/// Number, length of the answer, and body.
fn head(bytes: &[u8]) -> Result<(u32, usize, &[u8]), String> {
    let cut = || format!("a datagram of {} bytes that nobody sent", bytes.len());
    let (number, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
    let (answer_bytes, body) = rest.split_first_chunk().ok_or_else(cut)?;
    let answer_bytes = usize::try_from(u32::from_be_bytes(*answer_bytes)).map_err(|_| cut())?;
    if answer_bytes > BODY_BYTES_MAX {
        return Err(format!("a datagram about an answer of {answer_bytes} bytes"));
    }
    Ok((u32::from_be_bytes(*number), answer_bytes, body))
}

fn check_body(number: u32, kind: u64, body: &[u8]) -> Result<(), String> {
    let mut stream = Stream::new(content(number, kind));
    stream.sent(u64::try_from(body.len()).unwrap_or(u64::MAX));
    stream.received(body).map_err(|error| format!("request {number}: {error}"))
}

/// A host, or a node of another kind, for worlds that have both.
#[derive(Debug)]
pub enum HostOr<N> {
    /// A stack and what uses it, or a router.
    Host(Box<Host>),
    /// The other.
    Other(Box<N>),
}

impl<N: Node> HostOr<N> {
    fn node(&self) -> &dyn Node {
        match self {
            Self::Host(host) => &**host,
            Self::Other(other) => &**other,
        }
    }

    fn node_mut(&mut self) -> &mut dyn Node {
        match self {
            Self::Host(host) => &mut **host,
            Self::Other(other) => &mut **other,
        }
    }
}

impl<N: Node> Node for HostOr<N> {
    fn handle_frame(&mut self, now: Instant, device: DeviceId, frame: &[u8], marks: Marks, out: &mut Vec<Outgoing>) {
        self.node_mut().handle_frame(now, device, frame, marks, out);
    }

    fn poll_transmit(&mut self, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit> {
        self.node_mut().poll_transmit(now, device, into)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.node().poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node_mut().handle_timeout(now);
    }

    fn link_changed(&mut self, now: Instant, device: DeviceId, state: LinkState) {
        self.node_mut().link_changed(now, device, state);
    }

    fn check(&self) -> Result<(), String> {
        self.node().check()
    }

    fn left_over(&self) -> Vec<String> {
        self.node().left_over()
    }
}
