//! The server of a stream of datagrams: sends a stream for each pair that has asked for one, until the phase ends.

use super::Server;
use crate::clock::now_ns;
use crate::limits;
use crate::load::datagrams::{HEADER_BYTES, Header};
use crate::load::spend_cpu;
use crate::socket::Sockets;
use siga_plan::limits::PAIRS_MAX;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Maximum number of datagrams that the server sends of one stream before the other streams get their turn.
const BURST: usize = 16;
/// Maximum number of bursts before the server looks for requests and for the end of the phase.
const BURSTS: usize = 16;

/// The streams of a server.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    streams: Vec<Stream>,
    /// The streams by the time at which their next datagram is due.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// The pairs that have a stream.
    pairs: BTreeSet<u32>,
    /// The phase of the streams.
    phase: u32,
    /// The newest phase that has ended. A request for it came late.
    ended: u32,
    /// True if the network had no room for the last datagram.
    is_blocked: bool,
}

#[derive(Debug)]
struct Stream {
    to: SocketAddr,
    /// The header of the next datagram.
    header: Header,
}

impl Outgoing {
    /// Ends all streams at the end of a phase.
    pub(super) fn end(&mut self) {
        *self = Self { phase: self.phase, ended: self.phase, ..Self::default() };
    }

    /// Adds the stream that a client asks for, unless it exists or its phase is over.
    fn add(&mut self, to: SocketAddr, header: Header, now: u64) {
        if header.phase <= self.ended || header.phase < self.phase {
            return;
        }
        if header.phase > self.phase {
            *self = Self { phase: header.phase, ended: self.ended, ..Self::default() };
        }
        if self.pairs.insert(header.pair) {
            self.due.push(Reverse((now, self.streams.len())));
            self.streams.push(Stream { to, header: Header { number: 0, ..header } });
        }
    }
}

impl<S: Sockets> Server<S> {
    /// Takes requests for streams, and sends the datagrams that are due.
    pub(super) fn serve_streams(&mut self) -> io::Result<()> {
        // If operations block, a receive would stop the only stream.
        let may_receive = self.outgoing.streams.is_empty() || !self.sockets.operations_wait();
        if self.accepting && may_receive {
            self.take_requests();
        }
        if self.ending { Ok(()) } else { self.send_due() }
    }

    /// Returns how long the server may wait until the next datagram is due. `None` if there is no stream.
    pub(super) fn until_datagram(&self) -> Option<Duration> {
        let &Reverse((due, _)) = self.outgoing.due.peek().filter(|_| !self.ending)?;
        if self.outgoing.is_blocked {
            return Some(limits::SEND_AGAIN_AFTER);
        }
        Some(Duration::from_nanos(due.saturating_sub(now_ns())))
    }

    fn take_requests(&mut self) {
        for _ in 0..super::ACCEPTS_AT_ONCE {
            let Ok((received, from)) = self.sockets.receive_from(&self.listener, &mut self.inbox) else {
                self.accepting = false;
                return;
            };
            let header = Header::read(&self.inbox[..received]).filter(|header| {
                received == HEADER_BYTES && header.trial == self.config.trial && header.pair < PAIRS_MAX
            });
            match header {
                Some(header) => self.outgoing.add(from, header, now_ns()),
                None => self.account.counts.foreign += 1,
            }
        }
    }

    /// Sends the datagrams that are due. Of a stream without a pace, a burst is always due.
    fn send_due(&mut self) -> io::Result<()> {
        let period_ns = self.period_ns();
        self.outgoing.is_blocked = false;
        for _ in 0..BURSTS {
            let now = now_ns();
            let Some(&Reverse((due, at))) = self.outgoing.due.peek().filter(|Reverse((due, _))| *due <= now) else {
                return Ok(());
            };
            let next = self.send_burst(at, (due, now), period_ns)?;
            self.outgoing.due.pop();
            self.outgoing.due.push(Reverse((next, at)));
            if self.outgoing.is_blocked {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the time from one datagram of a stream to the next; `None` without a pace.
    fn period_ns(&self) -> Option<u64> {
        let workload = self.config.workload;
        workload.pace.map(|pace| (workload.response.saturating_mul(1_000_000_000) / pace.max(1)).max(1))
    }

    /// Sends datagrams of stream `at` that are due at `now`, up to a burst. Returns when the next one is due.
    fn send_burst(&mut self, at: usize, (mut due, now): (u64, u64), period_ns: Option<u64>) -> io::Result<u64> {
        for _ in 0..BURST {
            if due > now {
                break;
            }
            if !self.send_datagram(at)? {
                self.outgoing.is_blocked = true;
                break;
            }
            due += period_ns.unwrap_or(0);
        }
        let earliest = now.saturating_sub(u64::from(limits::CATCH_UP_TIME_MAX.subsec_nanos()));
        Ok(if period_ns.is_some() { due.max(earliest) } else { now })
    }

    /// Sends the next datagram of stream `at`. Returns false if the network has no room for it.
    fn send_datagram(&mut self, at: usize) -> io::Result<bool> {
        if self.config.extra_cpu_ns > 0 {
            spend_cpu(self.config.extra_cpu_ns);
        }
        let Stream { to, header } = &mut self.outgoing.streams[at];
        header.sent_ns = now_ns();
        self.outbox[..HEADER_BYTES].copy_from_slice(&header.bytes());
        header.content().write(&mut self.outbox[HEADER_BYTES..], 0, self.stride);
        match self.sockets.send_to(&self.listener, &self.outbox, *to) {
            Ok(sent) => {
                header.number += 1;
                self.account.counts.sent += sent as u64;
                self.account.counts.transactions += 1;
                Ok(true)
            }
            Err(error) if has_no_room(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Returns true if a later attempt to send may succeed.
fn has_no_room(error: &io::Error) -> bool {
    let no_buffers = rustix::io::Errno::NOBUFS.raw_os_error();
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(no_buffers)
}
