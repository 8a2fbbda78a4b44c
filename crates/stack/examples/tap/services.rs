//! The services: echo (RFC 862) and discard (RFC 863) over TCP and UDP, HTTP over TCP.

use crate::http::Http;
use siga_stack::Stack;
use siga_stack::sockets::{ListenerId, TcpError, TcpId, TcpOptions};
use siga_stack::time::Instant;
use siga_stack::udp::{UdpError, UdpId};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const ECHO: u16 = 7;
const DISCARD: u16 = 9;
const HTTP: u16 = 80;
const BACKLOG: usize = 4_096;
/// The greatest number of bytes that one call moves.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// Counters of all connections.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) accepted: u64,
    pub(crate) failed: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) datagrams: u64,
}

enum Served {
    /// Received bytes that are not yet sent back.
    Echo(Vec<u8>),
    Discard,
    Http(Http),
}

/// All services with their connections.
pub(crate) struct Services {
    listeners: HashMap<ListenerId, u16>,
    datagrams: Vec<(UdpId, u16)>,
    connections: HashMap<TcpId, Served>,
    totals: Totals,
    chunk: Vec<u8>,
    begun: Instant,
}

/// The state of a connection after a step.
pub(crate) enum Step {
    /// The connection is open and waits for an event.
    Open,
    /// The connection was closed.
    Closed,
}

impl Services {
    /// Opens the listeners and UDP sockets of all services.
    pub(crate) fn open(now: Instant, stack: &mut Stack, options: &TcpOptions) -> Result<Self, String> {
        let (mut listeners, mut datagrams) = (HashMap::new(), Vec::new());
        for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            for port in [ECHO, DISCARD, HTTP] {
                let at = SocketAddr::new(any, port);
                let refused = |error: &dyn std::fmt::Debug| format!("cannot listen at {at}: {error:?}");
                let listener = stack.tcp_listen(at, BACKLOG, options).map_err(|error| refused(&error))?;
                listeners.insert(listener, port);
                if port != HTTP {
                    datagrams.push((stack.udp_bind(at).map_err(|error| refused(&error))?, port));
                }
            }
        }
        let (connections, totals, chunk) = (HashMap::new(), Totals::default(), vec![0; CHUNK_BYTES]);
        Ok(Self { listeners, datagrams, connections, totals, chunk, begun: now })
    }

    /// Accepts the connections that wait at a listener.
    pub(crate) fn accept(&mut self, now: Instant, stack: &mut Stack, listener: ListenerId) {
        let Some(port) = self.listeners.get(&listener).copied() else { return };
        while let Ok(Some((id, _))) = stack.tcp_accept(listener) {
            self.totals.accepted += 1;
            let served = match port {
                ECHO => Served::Echo(Vec::new()),
                DISCARD => Served::Discard,
                _ => Served::Http(Http::default()),
            };
            self.connections.insert(id, served);
            self.serve(now, stack, id);
        }
    }

    /// Continues a connection that has an event.
    pub(crate) fn serve(&mut self, now: Instant, stack: &mut Stack, id: TcpId) {
        let open = self.connections.len();
        let Some(served) = self.connections.get_mut(&id) else { return };
        let (totals, chunk) = (&mut self.totals, &mut self.chunk[..]);
        let result = match served {
            Served::Echo(left) => echo(now, stack, id, left, totals, chunk),
            Served::Discard => discard(now, stack, id, totals, chunk),
            Served::Http(http) => {
                let begun = self.begun;
                let status = |stack: &Stack, totals: &Totals| status(now, begun, stack, totals, open);
                http.step(now, stack, id, totals, chunk, &status)
            }
        };
        match result {
            Ok(Step::Open) => {}
            Ok(Step::Closed) => _ = self.connections.remove(&id),
            Err(_) => {
                self.totals.failed += 1;
                // The id of a failed connection still has to be released.
                let _gone = stack.tcp_close(now, id);
                self.connections.remove(&id);
            }
        }
    }

    /// Echoes or discards the datagrams that have arrived.
    pub(crate) fn answer_datagrams(&mut self, now: Instant, stack: &mut Stack) {
        for &(socket, port) in &self.datagrams {
            loop {
                match stack.udp_receive(socket) {
                    Ok(Some(datagram)) => {
                        self.totals.datagrams += 1;
                        if port == ECHO {
                            // The stack counts a datagram that cannot be sent as dropped.
                            let _dropped = stack.udp_send(now, socket, Some(datagram.from), &datagram.bytes);
                        }
                    }
                    Err(UdpError::Network(..)) => {}
                    Ok(None) | Err(_) => break,
                }
            }
        }
    }

    /// Describes the outcome of the connections, and the stack's counters and memory.
    pub(crate) fn report(&self, now: Instant, stack: &Stack) -> String {
        status(now, self.begun, stack, &self.totals, self.connections.len())
    }
}

fn echo(
    now: Instant,
    stack: &mut Stack,
    id: TcpId,
    left: &mut Vec<u8>,
    totals: &mut Totals,
    chunk: &mut [u8],
) -> Result<Step, TcpError> {
    loop {
        if !left.is_empty() {
            let sent = stack.tcp_send(now, id, left)?;
            totals.bytes_sent += sent as u64;
            left.drain(..sent);
            if !left.is_empty() {
                return Ok(Step::Open);
            }
        }
        match stack.tcp_receive(now, id, chunk)? {
            None => return Ok(Step::Open),
            Some(0) => return stack.tcp_close(now, id).map(|()| Step::Closed),
            Some(count) => {
                totals.bytes_received += count as u64;
                let sent = stack.tcp_send(now, id, &chunk[..count])?;
                totals.bytes_sent += sent as u64;
                left.extend_from_slice(&chunk[sent..count]);
            }
        }
    }
}

fn discard(
    now: Instant,
    stack: &mut Stack,
    id: TcpId,
    totals: &mut Totals,
    chunk: &mut [u8],
) -> Result<Step, TcpError> {
    loop {
        match stack.tcp_receive(now, id, chunk)? {
            None => return Ok(Step::Open),
            Some(0) => return stack.tcp_close(now, id).map(|()| Step::Closed),
            Some(count) => totals.bytes_received += count as u64,
        }
    }
}

/// Returns the text of the page `/status` and of the summary at the end.
fn status(now: Instant, begun: Instant, stack: &Stack, totals: &Totals, open: usize) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    let Totals { accepted, failed, bytes_received, bytes_sent, datagrams } = *totals;
    let seconds = std::time::Duration::from(now.since(begun)).as_secs_f64();
    let rate = |bytes: u64| bytes as f64 * 8.0 / 1e6 / seconds.max(1e-9);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "up {seconds:.3} s");
    let _ = writeln!(
        text,
        "services: {accepted} connections accepted, {open} open, {failed} failed; {datagrams} datagrams"
    );
    let _ = writeln!(
        text,
        "received {bytes_received} bytes ({:.0} Mbit/s), sent {bytes_sent} bytes ({:.0} Mbit/s)",
        rate(bytes_received),
        rate(bytes_sent)
    );
    for index in 0.. {
        let Some(counters) = stack.counters(siga_stack::link::frame::DeviceId(index)) else { break };
        let _ = writeln!(
            text,
            "device {index}: received {} frames, {} bytes; sent {} frames, {} bytes",
            counters.frames_received, counters.bytes_received, counters.frames_sent, counters.bytes_sent
        );
    }
    for (reason, count) in stack.drops().iter().filter(|(_, count)| *count > 0) {
        let _ = writeln!(text, "dropped: {count} {reason}");
    }
    let _ = writeln!(text, "{}", stack.memory());
    text
}
