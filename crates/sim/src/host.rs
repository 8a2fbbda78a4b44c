//! Real stacks as nodes of a world: a router, or a host with programs. The programs use TCP (see [`crate::tcp`]), or they are
//! clients and servers that exchange requests and answers over UDP.
//!
//! A UDP client sends requests of many sizes. It repeats each request until the answer arrives, and checks every byte of the
//! answers. UDP permits that a datagram arrives twice, late or never. It is a violation if the bytes of a datagram differ from
//! those sent, or if an answer belongs to no request.

use std::net::SocketAddr;

use siga_stack::Stack;
use siga_stack::limits::HEADER_BYTES_MAX;
use siga_stack::link::device::DeviceError;
use siga_stack::link::frame::{DeviceId, Marks, Received};
use siga_stack::sockets::TcpError;
use siga_stack::stack::{Handled, Transmit};
use siga_stack::tcp::LinuxInfo;
use siga_stack::time::{Duration, Instant};
use siga_stack::udp::{Datagram, UdpError, UdpId};

use crate::check::{Content, Stream};
use crate::node::{LinkState, Node, Outgoing};
use crate::tcp::{self, Listen};

/// Maximum number of requests of a client that are unanswered at the same time.
const OUTSTANDING_MAX: usize = 4;
/// Time after which a client repeats an unanswered request.
const RETRY: Duration = Duration::from_secs(1);
/// Length in bytes of a message's header: the number of the request, and the length of its answer.
const HEAD_BYTES: usize = 4 + 4;
/// Maximum length in bytes of a message's body: the largest IPv4 datagram without all headers.
pub const BODY_BYTES_MAX: usize = 65_535 - 20 - 8 - HEAD_BYTES;

/// Kinds of memory that a stack must not use at the end of a run. Path MTUs are not in this list, because an expired path MTU is
/// removed only with the next packet to its destination.
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

/// A stack, and the programs that use it.
#[derive(Debug)]
pub struct Host {
    stack: Stack,
    programs: Vec<Program>,
    /// The TCP programs.
    pub tcp: tcp::Programs,
    /// The carrier state of each device that the stack last learnt.
    carriers: Vec<bool>,
    wrong: Option<String>,
}

/// A UDP program.
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

/// The sizes of one request and of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Length of the request in bytes, without the header.
    pub question_bytes: usize,
    /// Length of the answer in bytes, without the header.
    pub answer_bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    request: Request,
    answered: bool,
    /// The time at which the request is sent for the first time or repeated.
    due: Instant,
}

impl Host {
    /// Creates a node without programs. It is a router, or a host that sends only what its stack sends by itself, such as echo
    /// replies.
    pub fn new(stack: Stack) -> Self {
        let tcp = tcp::Programs::default();
        Self { stack, programs: Vec::new(), tcp, carriers: Vec::new(), wrong: None }
    }

    /// Adds a program that accepts TCP connections.
    ///
    /// # Errors
    /// Returns the error of the stack.
    pub fn listen(&mut self, listen: Listen) -> Result<(), TcpError> {
        self.tcp.listen(&mut self.stack, listen)
    }

    /// Describes the state of each open TCP connection in one line.
    pub fn describe(&self) -> Vec<String> {
        self.tcp.describe(&self.stack)
    }

    /// Returns true if all planned TCP connections have ended, both for the programs and for the stack.
    pub fn is_hung_up(&self) -> bool {
        self.tcp.is_done() && self.stack.memory().held("TCP connections") == 0
    }

    /// Adds a UDP server that answers requests.
    ///
    /// # Errors
    /// Returns an error if the address is in use or does not belong to the stack.
    pub fn answer(&mut self, local: SocketAddr) -> Result<(), UdpError> {
        let socket = self.stack.udp_bind(local)?;
        self.programs.push(Program::Answering(socket));
        Ok(())
    }

    /// Adds a UDP client that sends these requests to `peer`. The client starts when the node next processes a frame, a deadline
    /// or a change of a link.
    ///
    /// # Errors
    /// Returns an error if the address is in use or does not belong to the stack.
    pub fn ask(&mut self, local: SocketAddr, peer: SocketAddr, requests: &[Request]) -> Result<(), UdpError> {
        let socket = self.stack.udp_bind(local)?;
        self.stack.udp_connect(socket, peer)?;
        let pending = |&request| Pending { request, answered: false, due: Instant::default() };
        let requests = requests.iter().map(pending).collect();
        self.programs.push(Program::Asking(Asking { socket, requests, first_open: 0 }));
        Ok(())
    }

    /// Returns true if all requests of all UDP clients have been answered.
    pub fn is_done(&self) -> bool {
        self.programs.iter().all(|program| match program {
            Program::Answering(_) => true,
            Program::Asking(asking) => asking.first_open == asking.requests.len(),
        })
    }

    /// Returns the stack.
    pub const fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Returns the statistics of the TCP connection that follows a script, if it exists.
    pub fn linux_info(&self, now: Instant, script: usize) -> Option<LinuxInfo> {
        self.stack.tcp_linux_info(now, self.tcp.connection(script)?).ok()
    }

    /// Runs each program until it has to wait.
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
        // The stack refuses an MTU that is too small for one of the IP versions of its addresses. If so, the link silently drops
        // packets that are too large for it.
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
        // Each incomplete datagram and each neighbour entry has a deadline. So a deadline of the stack means that something is
        // left.
        let due = self.stack.poll_timeout().map(|due| format!("something due at {due:?}"));
        let memory = self.stack.memory();
        let held = LEAVE_NOTHING.into_iter().filter(|name| memory.held(name) > 0);
        due.into_iter().chain(held.map(|name| format!("{}: {name}", memory.held(name)))).collect()
    }
}

impl Asking {
    /// Returns the unanswered requests that may be in flight.
    fn open(&self) -> impl Iterator<Item = &Pending> {
        self.requests[self.first_open..].iter().take(OUTSTANDING_MAX).filter(|pending| !pending.answered)
    }

    fn work(&mut self, stack: &mut Stack, now: Instant) -> Result<(), String> {
        while let Some(datagram) = receive(stack, self.socket)? {
            let (number, answer_bytes, body) = head(&datagram.bytes)?;
            let pending = usize::try_from(number).ok().and_then(|number| self.requests.get_mut(number));
            let pending = pending
                .ok_or_else(|| format!("an answer to request {number} arrived, but this request was never sent"))?;
            if answer_bytes != body.len() || body.len() != pending.request.answer_bytes {
                return Err(format!("the answer to request {number} has the wrong length of {} bytes", body.len()));
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

/// Returns the next datagram, if any. Ignores ICMP errors about sent datagrams, because the client repeats its requests.
fn receive(stack: &mut Stack, socket: UdpId) -> Result<Option<Datagram>, String> {
    loop {
        match stack.udp_receive(socket) {
            Ok(datagram) => return Ok(datagram),
            Err(UdpError::Network(..)) => {}
            Err(error) => return Err(format!("receiving: {error:?}")),
        }
    }
}

/// Sends a datagram. It is no error if the stack drops the datagram, for example because a queue is full.
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

/// Splits a message into the number of the request, the length of the answer, and the body.
fn head(bytes: &[u8]) -> Result<(u32, usize, &[u8]), String> {
    let cut = || format!("a datagram of {} bytes arrived that no program has sent", bytes.len());
    let (number, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
    let (answer_bytes, body) = rest.split_first_chunk().ok_or_else(cut)?;
    let answer_bytes = usize::try_from(u32::from_be_bytes(*answer_bytes)).map_err(|_| cut())?;
    if answer_bytes > BODY_BYTES_MAX {
        return Err(format!("a datagram requests an answer of {answer_bytes} bytes, which is more than allowed"));
    }
    Ok((u32::from_be_bytes(*number), answer_bytes, body))
}

fn check_body(number: u32, kind: u64, body: &[u8]) -> Result<(), String> {
    let mut stream = Stream::new(content(number, kind));
    stream.sent(u64::try_from(body.len()).unwrap_or(u64::MAX));
    stream.received(body).map_err(|error| format!("request {number}: {error}"))
}

/// A node that is a host or a node of the type `N`. Worlds that need both have nodes of this type.
#[derive(Debug)]
pub enum HostOr<N> {
    /// A stack with its programs.
    Host(Box<Host>),
    /// A node of the type `N`.
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
