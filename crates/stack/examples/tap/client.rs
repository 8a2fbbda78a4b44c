//! The client: each connection sends generated content and checks the echoed bytes.

use crate::content;
use crate::options::Options;
use crate::services::CHUNK_BYTES;
use siga_stack::Stack;
use siga_stack::sockets::{TcpError, TcpId, TcpOptions};
use siga_stack::time::Instant;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The distance between the contents of two connections. Contents differ, so that bytes of one connection are not accepted as
/// those of another.
const APART_BYTES: u64 = 1 << 40;

struct Exchange {
    /// The position at which the connection's content begins.
    base: u64,
    sent: u64,
    received: u64,
    shut: bool,
}

/// The client with all its connections.
pub(crate) struct Client {
    to: SocketAddr,
    bytes: u64,
    connections: u32,
    at_once: u32,
    one_way: bool,
    begun: u32,
    done: u32,
    open: HashMap<TcpId, Exchange>,
    failures: BTreeMap<String, u32>,
    first: Instant,
    last: Instant,
    chunk: Vec<u8>,
    expected: Vec<u8>,
}

impl Client {
    /// Makes the client for the options; `None` if they do not ask for a client.
    pub(crate) fn new(now: Instant, options: &Options) -> Option<Self> {
        Some(Self {
            to: options.connect?,
            bytes: options.send,
            connections: options.connections,
            at_once: options.at_once.max(1),
            one_way: options.one_way,
            begun: 0,
            done: 0,
            open: HashMap::new(),
            failures: BTreeMap::new(),
            first: now,
            last: now,
            chunk: vec![0; CHUNK_BYTES],
            expected: vec![0; CHUNK_BYTES],
        })
    }

    /// Opens connections up to the limits of the options.
    pub(crate) fn begin(&mut self, now: Instant, stack: &mut Stack, options: &TcpOptions) {
        while self.begun < self.connections && self.open.len() < self.at_once as usize {
            let any =
                if self.to.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
            let base = u64::from(self.begun) * APART_BYTES;
            self.begun += 1;
            match stack.tcp_connect(now, SocketAddr::new(any, 0), self.to, options) {
                Ok(id) => _ = self.open.insert(id, Exchange { base, sent: 0, received: 0, shut: false }),
                Err(error) => self.fail(&format!("connecting: {error:?}")),
            }
        }
    }

    /// Continues a connection. Returns false if the connection is not the client's.
    pub(crate) fn step(&mut self, now: Instant, stack: &mut Stack, id: TcpId) -> bool {
        let Some(mut exchange) = self.open.remove(&id) else { return false };
        match self.exchange(now, stack, id, &mut exchange) {
            Ok(true) => {
                self.done += 1;
                self.last = now;
            }
            Ok(false) => _ = self.open.insert(id, exchange),
            Err(why) => {
                // A failed connection leaves only its id, which this call releases. It also ends a connection with a wrong echo.
                let _gone = stack.tcp_abort(now, id);
                self.fail(&why);
            }
        }
        true
    }

    /// Sends and receives as far as possible. Returns true if the exchange is complete and closed.
    fn exchange(&mut self, now: Instant, stack: &mut Stack, id: TcpId, it: &mut Exchange) -> Result<bool, String> {
        let failed = |doing: &'static str| move |error: TcpError| format!("{doing}: {error:?}");
        // Before the connection is open, nothing can be sent. On a failed connection, a send only returns an error.
        let readiness = stack.tcp_readiness(id).map_err(failed("asking"))?;
        while it.sent < self.bytes && readiness.writable {
            let left = usize::try_from(self.bytes - it.sent).unwrap_or(usize::MAX);
            let part = &mut self.chunk[..left.min(64 << 10)];
            content::fill(it.base + it.sent, part);
            let count = stack.tcp_send(now, id, part).map_err(failed("sending"))?;
            it.sent += count as u64;
            if count < part.len() {
                break;
            }
        }
        if self.one_way && it.sent == self.bytes && !it.shut {
            it.shut = true;
            stack.tcp_shutdown(now, id).map_err(failed("shutting down"))?;
        }
        while let Some(count) = stack.tcp_receive(now, id, &mut self.chunk).map_err(failed("receiving"))? {
            if count == 0 && self.one_way && it.shut {
                return stack.tcp_close(now, id).map(|()| true).map_err(failed("closing"));
            }
            let got = &self.chunk[..count];
            let expected = &mut self.expected[..count];
            content::fill(it.base + it.received, expected);
            it.received += count as u64;
            if count == 0 || self.one_way || it.received > self.bytes || got != expected {
                return Err(format!("wrong content or an early end, at byte {}", it.received));
            }
        }
        if !self.one_way && it.received == self.bytes && it.sent == self.bytes {
            return stack.tcp_close(now, id).map(|()| true).map_err(failed("closing"));
        }
        Ok(false)
    }

    fn fail(&mut self, why: &str) {
        *self.failures.entry(why.to_owned()).or_default() += 1;
    }

    /// Whether every connection has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.begun == self.connections && self.open.is_empty()
    }

    /// Whether every connection succeeded.
    pub(crate) fn is_sound(&self) -> bool {
        self.done == self.connections
    }

    /// Describes the outcome of the connections.
    pub(crate) fn report(&self) -> String {
        use std::fmt::Write;
        let seconds = std::time::Duration::from(self.last.since(self.first)).as_secs_f64().max(1e-9);
        let bytes = u64::from(self.done) * self.bytes;
        let mut text = format!(
            "client: {} of {} connections done in {seconds:.3} s ({:.0} a second, {:.0} Mbit/s each way)\n",
            self.done,
            self.connections,
            f64::from(self.done) / seconds,
            bytes as f64 * 8.0 / 1e6 / seconds,
        );
        for (why, count) in &self.failures {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "failed: {count} {why}");
        }
        text
    }
}
