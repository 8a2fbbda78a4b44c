//! A listening socket: how many connections are opening for it, and which wait to be accepted. The backlog bounds either number.
//! A SYN beyond it is answered by a cookie, which needs no memory.

use super::TcpOptions;
use crate::time::Instant;
use std::collections::VecDeque;
use std::net::SocketAddr;

#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) local: SocketAddr,
    pub(crate) options: TcpOptions,
    pub(crate) backlog: usize,
    /// Number of connections that are opening.
    pub(crate) opening: usize,
    /// Open connections in the order of opening. One that has ended since is still accepted, and then reports its end.
    pub(crate) waiting: VecDeque<u32>,
    /// Until when an acknowledgement may be the answer to a cookie.
    pub(crate) cookies_until: Option<Instant>,
    pub(crate) announced: bool,
}

impl Listener {
    pub(crate) fn new(local: SocketAddr, options: TcpOptions, backlog: usize) -> Self {
        let (waiting, cookies_until) = (VecDeque::new(), None);
        Self { local, options, backlog, opening: 0, waiting, cookies_until, announced: false }
    }

    /// No further connection can wait.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= self.backlog
    }
}
