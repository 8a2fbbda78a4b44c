//! A listening socket: how many connections open for it, and which are open and wait to be accepted. Either number is bounded
//! by the backlog; a SYN beyond it is answered by a cookie, and needs no memory.

use super::TcpOptions;
use crate::time::Instant;
use std::collections::VecDeque;
use std::net::SocketAddr;

#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) local: SocketAddr,
    pub(crate) options: TcpOptions,
    pub(crate) backlog: usize,
    /// Connections that open.
    pub(crate) opening: usize,
    /// Connections that were opened, in their order; one that has ended since is accepted too, and tells of it then.
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

    /// No more connections can wait.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= self.backlog
    }
}
