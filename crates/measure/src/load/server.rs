//! The server of every workload: receives each complete request, checks it and answers.
//!
//! The server serves any number of connections from one listener until `Shared::quit` is set. It trusts no client. If a request
//! is too short, too long or has wrong content, the server counts an error. This affects only the connection of the request.
//! When `Shared::pause` is set, the server quiesces between two operations. The pause also stops a stream that the server
//! sends, in the middle of the exchange.

mod both_ways;
mod datagrams;

use super::client::Position;
use super::content::{Direction, Message};
use super::{PUBLISH_EVERY, Quiesced, Shared, buffer, spend_cpu};
use crate::clock::now_ns;
use crate::limits;
use crate::socket::{Endpoint, Ready, Sockets, Token};
use datagrams::Outgoing;
use serde::{Deserialize, Serialize};
use siga_plan::workload::Close;
use siga_plan::workload::{Shape, Workload};
use siga_results::record::LoadCounts;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The configuration of a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerConfig {
    /// The workload to serve.
    pub workload: Workload,
    /// The endpoint at which the server listens.
    pub endpoint: Endpoint,
    /// In CRR, the side that closes a connection first.
    pub close: Close,
    /// Maximum size of one write, and size of the receive buffer, in bytes.
    pub write_bytes: u64,
    /// CPU time in nanoseconds that the server uses in user mode before each response, or before each datagram of a stream: a known
    /// cost for calibration.
    pub extra_cpu_ns: u64,
    /// Time in nanoseconds by which the server delays each response: a known delay for calibration.
    pub delay_ns: u64,
    /// Random number that datagrams of this trial's streams contain.
    pub trial: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExchangeState {
    Receiving,
    /// The response waits for the end of the artificial delay `delay_ns`.
    Delayed,
    Sending,
    /// In CRR, if the client closes first: the server waits for the end of the client's stream.
    Closing,
    /// Requests and responses flow at the same time.
    BothWays,
}

#[derive(Debug)]
struct Connection<S> {
    socket: S,
    /// What this connection does: the workload, or a stream beside it.
    workload: Workload,
    is_beside: bool,
    state: ExchangeState,
    identity: [u8; 8],
    message: u64,
    offset: u64,
    /// The response that is sent while requests arrive.
    outgoing: Position,
    queued: bool,
    /// True if the client may have closed its direction of the connection; see `Ready::ended`.
    ended: bool,
}

impl<S> Connection<S> {
    /// Makes a connection of a server of `workload`: of the workload itself, or of a stream beside it.
    fn new(socket: S, workload: Workload, is_beside: bool) -> Self {
        let workload = if is_beside { Workload::stream_beside() } else { workload.alone() };
        let is_both = workload.shape == Shape::Strb;
        Self {
            socket,
            workload,
            is_beside,
            state: if is_both { ExchangeState::BothWays } else { ExchangeState::Receiving },
            identity: [0; 8],
            message: 0,
            offset: 0,
            outgoing: Position::default(),
            // The caller adds the connection to the queue.
            queued: true,
            ended: false,
        }
    }
}

/// The listener of the workload has token 0, and that of the streams beside it has token 1.
const LISTENERS: usize = 2;
/// Maximum number of operations that one connection performs before the other connections get their turn.
const TURN: usize = 16;
/// The same for a stream beside RR.
const TURN_BESIDE: usize = 1;
/// Maximum number of connections that the server accepts before the existing connections get their turn.
const ACCEPTS_AT_ONCE: usize = 64;

/// The server driver.
#[derive(Debug)]
pub struct Server<S: Sockets> {
    sockets: S,
    listener: S::Listener,
    /// The listener of the streams beside the workload, and its endpoint.
    beside: Option<(S::Listener, Endpoint)>,
    config: ServerConfig,
    /// The connections. `poll` reports the connection at index i with token i + `LISTENERS`.
    connections: Vec<Option<Connection<S::Socket>>>,
    free: Vec<usize>,
    queue: VecDeque<usize>,
    delayed: BinaryHeap<Reverse<(u64, usize)>>,
    datagrams_due: BinaryHeap<Reverse<(u64, SocketAddr, u64)>>,
    /// The streams of datagrams that the server sends.
    outgoing: Outgoing,
    accepting: bool,
    accepting_beside: bool,
    outbox: Vec<u8>,
    inbox: Vec<u8>,
    stride: u64,
    /// True if the server must stop its streams, from the end of a phase to the end of the quiescent point.
    ending: bool,
    account: Quiesced,
}

impl<S: Sockets> Server<S> {
    /// Starts to listen at the configured endpoint. Returns the server and its endpoint. If the configured port is 0, the
    /// returned endpoint has the port that the network chose.
    ///
    /// # Errors
    /// Returns an error if the address is in use or does not belong to this host.
    pub fn listen(mut sockets: S, config: ServerConfig) -> io::Result<(Self, Endpoint)> {
        let (listener, endpoint) = sockets.listen(&config.endpoint, Token(0))?;
        let (write, workload) = (config.write_bytes, config.workload);
        let stream = if workload.beside > 0 { Workload::stream_beside() } else { workload };
        let beside = match workload.beside {
            0 => None,
            _ => Some(sockets.listen(&config.endpoint.of_listener(1), Token(1))?),
        };
        let server = Self {
            sockets,
            listener,
            beside,
            connections: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            delayed: BinaryHeap::new(),
            datagrams_due: BinaryHeap::new(),
            outgoing: Outgoing::default(),
            accepting: false,
            accepting_beside: false,
            outbox: buffer(0xA5, write, workload.response.max(stream.response), workload.udp),
            inbox: buffer(0, write, workload.request.max(stream.request) + u64::from(workload.udp), workload.udp),
            stride: limits::STAMP_STRIDE_BYTES,
            ending: false,
            account: Quiesced::default(),
            config,
        };
        Ok((server, endpoint))
    }

    /// Serves until `Shared::quit` is set. After each quiescent point, reads from `stride` the distance between stamps (the
    /// checked pieces of the payload) for the next phase.
    ///
    /// # Errors
    /// Returns an error if `poll` fails, or if the network refuses a datagram of a stream.
    pub fn serve(&mut self, shared: &Shared, stride: &AtomicU64) -> io::Result<LoadCounts> {
        let mut ready: Vec<Ready> = Vec::new();
        while !shared.quit.load(Ordering::Relaxed) {
            if shared.pause.load(Ordering::Acquire) {
                shared.rest(&self.account, || self.sockets.tend());
                self.go_on();
                (self.account.first_ns, self.account.last_ns) = (0, 0);
            }
            self.stride = stride.load(Ordering::Relaxed);
            self.ending = shared.ending.load(Ordering::Relaxed);
            let timeout = self.timeout();
            self.sockets.poll(&mut ready, timeout)?;
            for event in ready.drain(..) {
                match event.token {
                    Token(0) => self.accepting = true,
                    Token(1) => self.accepting_beside = true,
                    Token(token) => {
                        let slot = token - LISTENERS;
                        if let Some(Some(connection)) = self.connections.get_mut(slot) {
                            connection.ended |= event.ended;
                        }
                        self.enqueue(slot);
                    }
                }
            }
            self.release_delayed();
            if self.config.workload.is_datagram_stream() {
                self.serve_streams()?;
            } else if self.accepting {
                if self.config.workload.udp { self.answer_datagrams() } else { self.accept(false) }
            }
            if self.accepting_beside {
                self.accept(true);
            }
            for turn in 1..=self.queue.len() {
                let Some(slot) = self.queue.pop_front() else { break };
                self.advance(slot);
                if turn % PUBLISH_EVERY == 0 {
                    shared.publish(&self.account.counts);
                    self.ending = shared.ending.load(Ordering::Relaxed);
                }
            }
            shared.publish(&self.account.counts);
        }
        Ok(self.account.counts)
    }

    /// Returns true if no connection has an operation to perform before the quiescent point, because all connections have
    /// stopped while they send a stream.
    fn idle(&self) -> bool {
        let has_stopped = |connection: &Connection<S::Socket>| {
            let is_sending = matches!(connection.state, ExchangeState::Sending | ExchangeState::BothWays);
            is_sending && connection.workload.is_stream()
        };
        self.ending && self.config.workload.is_stream() && self.connections.iter().flatten().all(has_stopped)
    }

    /// Resumes the streams that stopped for a quiescent point. Their connections are enqueued here, because `poll` does not
    /// report sockets a second time as writable.
    fn go_on(&mut self) {
        self.outgoing.end();
        if self.config.workload.is_stream() || self.beside.is_some() {
            (0..self.connections.len()).for_each(|slot| self.enqueue(slot));
        }
    }

    /// Returns a handle with which another thread can wake the server from `poll`.
    pub fn waker(&self) -> std::sync::Arc<dyn crate::socket::Waker> {
        self.sockets.waker()
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.queue.is_empty() || self.accepting || self.accepting_beside {
            return Some(Duration::ZERO);
        }
        if let Some(time) = self.until_datagram() {
            return Some(time);
        }
        if self.sockets.operations_wait() && self.idle() {
            return Some(limits::WAIT_TIME_MAX);
        }
        let connection = self.delayed.peek().map(|Reverse((due, _))| *due);
        let datagram = self.datagrams_due.peek().map(|Reverse((due, ..))| *due);
        let due = connection.into_iter().chain(datagram).min()?;
        Some(Duration::from_nanos(due.saturating_sub(now_ns())))
    }

    fn enqueue(&mut self, slot: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(slot)
            && !std::mem::replace(&mut connection.queued, true)
        {
            self.queue.push_back(slot);
        }
    }

    /// Returns the endpoint at which the streams beside the workload connect.
    pub fn beside(&self) -> Option<&Endpoint> {
        self.beside.as_ref().map(|(_, endpoint)| endpoint)
    }

    /// Accepts connections of the workload, or of the streams beside it.
    fn accept(&mut self, is_beside: bool) {
        let listener = match &self.beside {
            Some((listener, _)) if is_beside => listener,
            Some(_) | None => &self.listener,
        };
        for _ in 0..ACCEPTS_AT_ONCE {
            let slot = self.free.last().copied().unwrap_or(self.connections.len());
            match self.sockets.accept(listener, Token(slot + LISTENERS)) {
                Ok(socket) => {
                    self.account.counts.connections += 1;
                    let connection = Connection::new(socket, self.config.workload, is_beside);
                    if self.free.pop().is_some() {
                        self.connections[slot] = Some(connection);
                    } else {
                        self.connections.push(Some(connection));
                    }
                    self.queue.push_back(slot);
                }
                Err(error) => {
                    // An error other than `WouldBlock` concerns only the connection that was being accepted. The accept queue
                    // may contain more connections, so the server will call accept again.
                    let has_more = error.kind() != io::ErrorKind::WouldBlock;
                    *(if is_beside { &mut self.accepting_beside } else { &mut self.accepting }) = has_more;
                    self.account.counts.connect_failures += u64::from(has_more);
                    return;
                }
            }
        }
    }

    fn advance(&mut self, slot: usize) {
        for turn in 0..=TURN {
            let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
            connection.queued = false;
            if turn == if connection.is_beside { TURN_BESIDE } else { TURN } {
                return self.enqueue(slot);
            }
            let outcome = match connection.state {
                ExchangeState::Receiving => self.receive(slot),
                ExchangeState::Delayed => return,
                ExchangeState::Sending => self.send(slot),
                ExchangeState::Closing => self.drain(slot),
                ExchangeState::BothWays => self.both_ways(slot),
            };
            match outcome {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    let cut_short = error.kind() == io::ErrorKind::UnexpectedEof;
                    *(if cut_short {
                        &mut self.account.counts.short_reads
                    } else {
                        &mut self.account.counts.resets
                    }) += 1;
                    return self.hang_up(slot);
                }
            }
        }
    }

    fn receive(&mut self, slot: usize) -> io::Result<bool> {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return Ok(false) };
        let workload = connection.workload;
        let left = usize::try_from(workload.request - connection.offset).unwrap_or(usize::MAX);
        let room = left.min(self.inbox.len());
        let received = self.sockets.receive(&connection.socket, &mut self.inbox[..room])?;
        if received == 0 {
            if connection.offset > 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.hang_up(slot);
            return Ok(false);
        }
        if connection.message == 0 {
            learn(&mut connection.identity, connection.offset, &self.inbox[..received]);
        }
        let message = Message {
            connection: u64::from_le_bytes(connection.identity),
            number: connection.message,
            direction: Direction::Request,
        };
        let right = message.check(&self.inbox[..received], connection.offset, self.stride);
        self.account.counts.wrong_content += u64::from(!right);
        connection.offset += received as u64;
        if workload.shape == Shape::Strp {
            // In STRP the client sends a stream to the server. So only the server knows when the first and the last byte have
            // arrived.
            let now = now_ns();
            self.account.last_ns = now;
            if self.account.first_ns == 0 {
                self.account.first_ns = now;
            }
        }
        self.account.counts.received += received as u64;
        if connection.offset < workload.request {
            // A read that returned fewer bytes than requested has emptied the socket, so the connection waits: `poll` reports
            // the socket again when more data arrives. But `poll` does not report the end of the stream a second time, so if it
            // was reported, read again.
            return Ok(received == room || connection.ended);
        }
        connection.offset = 0;
        connection.state = ExchangeState::Sending;
        if self.config.extra_cpu_ns > 0 {
            spend_cpu(self.config.extra_cpu_ns);
        }
        if self.config.delay_ns > 0 {
            connection.state = ExchangeState::Delayed;
            self.delayed.push(Reverse((now_ns() + self.config.delay_ns, slot)));
        }
        Ok(true)
    }

    fn send(&mut self, slot: usize) -> io::Result<bool> {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return Ok(false) };
        let workload = connection.workload;
        if self.ending && workload.is_stream() {
            return Ok(false);
        }
        let left = usize::try_from(workload.response - connection.offset).unwrap_or(usize::MAX);
        let chunk = left.min(self.outbox.len());
        let message = Message {
            connection: u64::from_le_bytes(connection.identity),
            number: connection.message,
            direction: Direction::Response,
        };
        message.write(&mut self.outbox[..chunk], connection.offset, self.stride);
        let sent = self.sockets.send(&connection.socket, &self.outbox[..chunk])? as u64;
        connection.offset += sent;
        self.account.counts.sent += sent;
        if connection.offset < workload.response {
            return Ok(true);
        }
        connection.offset = 0;
        connection.message += 1;
        connection.state = ExchangeState::Receiving;
        self.account.counts.transactions += u64::from(!connection.is_beside);
        match (workload.shape, self.config.close) {
            (Shape::Crr, Close::Server) => self.hang_up(slot),
            (Shape::Crr, Close::Client) => connection.state = ExchangeState::Closing,
            (Shape::Rr | Shape::Strg | Shape::Strp | Shape::Strb, _) => {}
        }
        // Return false, because the next request cannot have arrived yet. `poll` reports the connection when the request arrives.
        Ok(false)
    }

    fn drain(&mut self, slot: usize) -> io::Result<bool> {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return Ok(false) };
        if self.sockets.receive(&connection.socket, &mut self.inbox[..1])? != 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer sent more bytes than the request has"));
        }
        self.hang_up(slot);
        Ok(false)
    }

    fn hang_up(&mut self, slot: usize) {
        if let Some(connection) = self.connections.get_mut(slot).and_then(Option::take) {
            self.sockets.close(connection.socket);
            self.free.push(slot);
        }
    }

    /// Sends the responses whose artificial delay is over.
    fn release_delayed(&mut self) {
        if self.config.delay_ns == 0 {
            return;
        }
        let now = now_ns();
        while let Some(&Reverse((due, slot))) = self.delayed.peek()
            && due <= now
        {
            self.delayed.pop();
            if let Some(Some(connection)) = self.connections.get_mut(slot) {
                connection.state = ExchangeState::Sending;
                self.enqueue(slot);
            }
        }
        while let Some(&Reverse((due, from, number))) = self.datagrams_due.peek()
            && due <= now
        {
            self.datagrams_due.pop();
            self.answer(from, number);
        }
    }

    fn answer_datagrams(&mut self) {
        for _ in 0..ACCEPTS_AT_ONCE {
            let Ok((received, from)) = self.sockets.receive_from(&self.listener, &mut self.inbox) else {
                self.accepting = false;
                return;
            };
            if received as u64 != self.config.workload.request {
                self.account.counts.short_reads += 1;
                continue;
            }
            let mut identity = [0; 8];
            learn(&mut identity, 0, &self.inbox[..received]);
            let number = u64::from_le_bytes(identity);
            let message = Message { connection: number, number: 0, direction: Direction::Request };
            self.account.counts.wrong_content += u64::from(!message.check(&self.inbox[..received], 0, self.stride));
            self.account.counts.received += received as u64;
            if self.config.extra_cpu_ns > 0 {
                spend_cpu(self.config.extra_cpu_ns);
            }
            if self.config.delay_ns > 0 {
                self.datagrams_due.push(Reverse((now_ns() + self.config.delay_ns, from, number)));
            } else {
                self.answer(from, number);
            }
        }
    }

    fn answer(&mut self, to: SocketAddr, number: u64) {
        let message = Message { connection: number, number: 0, direction: Direction::Response };
        message.write(&mut self.outbox, 0, self.stride);
        // If the network refuses a datagram, the response is lost, and the client counts the loss.
        if let Ok(sent) = self.sockets.send_to(&self.listener, &self.outbox, to) {
            self.account.counts.sent += sent as u64;
            self.account.counts.transactions += 1;
        }
    }
}

/// Copies into `identity` the part of the connection's identity that `bytes` contains. `bytes` is a received part of the first
/// request, from byte `offset` of the request on.
fn learn(identity: &mut [u8; 8], offset: u64, bytes: &[u8]) {
    if let Some(rest) = usize::try_from(offset).ok().and_then(|at| identity.get_mut(at..)) {
        let count = rest.len().min(bytes.len());
        rest[..count].copy_from_slice(&bytes[..count]);
    }
}
