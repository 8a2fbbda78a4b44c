//! A listening socket. It counts the connections that are opening, and has the queue of connections that wait to be accepted. The
//! backlog is the limit for each of these two numbers separately. The stack answers further SYNs with SYN cookies, which need no
//! memory.

use super::TcpOptions;
use super::fast_open::FastOpenQueue;
use crate::time::Instant;
use std::collections::VecDeque;
use std::net::SocketAddr;

#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) local: SocketAddr,
    pub(crate) options: TcpOptions,
    pub(crate) backlog: usize,
    pub(crate) opening: usize,
    /// Established connections that wait to be accepted, in the order in which they were established. If such a connection ends,
    /// it stays in the queue. The application still accepts it, and then learns that it has ended.
    pub(crate) waiting: VecDeque<u32>,
    /// Until this time, an acknowledgement may carry a SYN cookie, so the stack checks it. `None` if no cookie was sent.
    pub(crate) cookies_until: Option<Instant>,
    pub(crate) announced: bool,
    pub(crate) fast_open: FastOpenQueue,
}

impl Listener {
    pub(crate) fn new(local: SocketAddr, options: TcpOptions, backlog: usize) -> Self {
        let (waiting, cookies_until) = (VecDeque::new(), None);
        let fast_open = FastOpenQueue::new(options.fast_open_pending_max);
        Self { local, options, backlog, opening: 0, waiting, cookies_until, announced: false, fast_open }
    }

    /// Returns true if the queue of connections that wait to be accepted is full.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= self.backlog
    }
}
