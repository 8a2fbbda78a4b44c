//! A listening socket: counts the connections that are opening, and queues the connections to accept. The backlog limits each of
//! the two numbers. The stack answers a SYN beyond the backlog with a SYN cookie, which needs no memory.

use super::TcpOptions;
use crate::time::Instant;
use std::collections::VecDeque;
use std::net::SocketAddr;

#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) local: SocketAddr,
    pub(crate) options: TcpOptions,
    pub(crate) backlog: usize,
    pub(crate) opening: usize,
    /// Established connections to accept, in the order in which they were established. A connection that has ended since then is
    /// still accepted, and then reports that it has ended.
    pub(crate) waiting: VecDeque<u32>,
    /// Until this time, the stack checks whether an acknowledgement carries a SYN cookie.
    pub(crate) cookies_until: Option<Instant>,
    pub(crate) announced: bool,
}

impl Listener {
    pub(crate) fn new(local: SocketAddr, options: TcpOptions, backlog: usize) -> Self {
        let (waiting, cookies_until) = (VecDeque::new(), None);
        Self { local, options, backlog, opening: 0, waiting, cookies_until, announced: false }
    }

    /// True if the queue of connections to accept is full.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= self.backlog
    }
}
