//! Fast Open (RFC 7413) in the stack: which SYN may open a connection at once, and which active open may send data in its SYN.
//!
//! To connect with data, as `MSG_FASTOPEN` of Linux does, the application calls [`Stack::tcp_connect`] with
//! [`TcpOptions::fast_open`](crate::sockets::TcpOptions::fast_open), and then [`Stack::tcp_send`].

use super::input::Arrived;
use crate::limits::TCP_BACKLOG_MAX;
use crate::link::frame::Payload;
use crate::sockets::fast_open::{CookieCheck, reset_until};
use crate::sockets::socket::Egress;
use crate::sockets::{FastOpenKeys, FastOpenSettings, Flow, ListenerId, TcpError};
use crate::stack::Stack;
use crate::tcp::{Config, Failure, FastOpenEvent, FastOpenSyn, Storage};
use crate::time::Instant;
use crate::wire::tcp::FastOpenOption;

/// What a listener does with a SYN. The SYN-ACK carries the cookie, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SynVerdict {
    /// Open the connection at once.
    Open(Option<FastOpenOption>),
    /// Wait for the acknowledgement of the SYN-ACK.
    Handshake(Option<FastOpenOption>),
}

impl<S: Storage> Stack<S> {
    /// Changes how later connections may use Fast Open.
    pub fn tcp_set_fast_open(&mut self, settings: FastOpenSettings) {
        self.tcp.fast_open.settings = settings;
    }

    /// Sets the Fast Open keys of all listeners that have no keys of their own. From then on, the stack no longer replaces its
    /// key itself.
    pub fn tcp_set_fast_open_keys(&mut self, keys: FastOpenKeys) {
        self.tcp.fast_open.set_keys(keys);
    }

    /// Sets the Fast Open keys of a listener (`TCP_FASTOPEN_KEY` of Linux).
    pub fn tcp_set_listener_keys(&mut self, id: ListenerId, keys: FastOpenKeys) -> Result<(), TcpError> {
        let listener = self.tcp.listeners.named_mut(id.slot, id.generation).ok_or(TcpError::Closed)?;
        listener.fast_open.keys = Some(Box::new(keys.into()));
        Ok(())
    }

    /// Sets how many connections of a listener may be pending (`TCP_FASTOPEN` of Linux). See
    /// [`TcpOptions::fast_open_pending_max`](crate::sockets::TcpOptions::fast_open_pending_max).
    pub fn tcp_set_listener_fast_open(&mut self, id: ListenerId, pending_max: usize) -> Result<(), TcpError> {
        let listener = self.tcp.listeners.named_mut(id.slot, id.generation).ok_or(TcpError::Closed)?;
        if pending_max > TCP_BACKLOG_MAX {
            return Err(TcpError::Range);
        }
        listener.fast_open.most = pending_max;
        Ok(())
    }

    /// Decides whether a SYN opens a connection at once (RFC 7413 section 4.2.2). Like Linux, a listener whose limit is reached
    /// gives no cookies either.
    pub(super) fn judge_syn<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        index: u32,
        arrived: &Arrived<'_, P>,
    ) -> SynVerdict {
        let (option, flow) = (arrived.header.options.fast_open, &arrived.flow);
        let tcp = &mut self.tcp;
        let Some(listener) = tcp.listeners.get_mut(index).filter(|_| option.is_some() || !arrived.payload.is_empty())
        else {
            return SynVerdict::Handshake(None);
        };
        let settings = tcp.fast_open.settings;
        if !settings.server || tcp.buffers.are_scarce() || !listener.fast_open.has_room(now) {
            return SynVerdict::Handshake(None);
        }
        if settings.server_without_cookie {
            return SynVerdict::Open(None);
        }
        let Some(option) = option else { return SynVerdict::Handshake(None) };
        let keys = listener.fast_open.keys.as_deref().copied().unwrap_or_else(|| tcp.fast_open.keys(now));
        if option.is_request() {
            return SynVerdict::Handshake(keys.cookie(flow));
        }
        match keys.check(flow, option.cookie()) {
            CookieCheck::Primary => SynVerdict::Open(None),
            CookieCheck::Backup => SynVerdict::Open(keys.cookie(flow)),
            CookieCheck::Invalid => SynVerdict::Handshake(keys.cookie(flow)),
        }
    }

    /// Counts a new connection against the limit of its listener, and lets the application accept it.
    pub(super) fn begin_pending(&mut self, now: Instant, index: u32, slot: u32) {
        let generation = self.tcp.listeners.generation(index);
        let Some(listener) = self.tcp.listeners.get_mut(index) else { return };
        listener.fast_open.pending += 1;
        self.tcp.fast_open.pending.insert(slot, ListenerId { slot: index, generation });
        self.opened(now, slot);
    }

    /// Returns how the SYN to a server uses Fast Open, or `None` while a black hole switches Fast Open off.
    pub(super) fn fast_open_syn(&self, now: Instant, flow: &Flow, config: &Config) -> Option<FastOpenSyn> {
        let state = &self.tcp.fast_open;
        let known = state.cookies.get(flow);
        let syn = if state.settings.client_without_cookie {
            let mss = known.map_or(config.mss_default, |known| known.mss);
            FastOpenSyn { option: None, mss: Some(mss), deferred: true }
        } else if let Some(known) = known {
            FastOpenSyn { option: Some(known.cookie), mss: Some(known.mss), deferred: true }
        } else {
            FastOpenSyn { option: Some(FastOpenOption::REQUEST), mss: None, deferred: false }
        };
        (!state.is_off(now)).then_some(syn)
    }

    /// Stores the cookie in a SYN-ACK that has opened a connection. The caller has checked that the SYN asked for one.
    pub(super) fn learn_cookie<P: Payload + ?Sized>(&mut self, slot: u32, arrived: &Arrived<'_, P>) {
        let Some(socket) = self.tcp.sockets.get(slot).filter(|socket| socket.connection.is_open()) else { return };
        let options = &arrived.header.options;
        // RFC 9293 MUST-15: the default MSS of the IP version.
        let mss = options.mss.unwrap_or(if socket.flow.is_ipv4() { 536 } else { 1_220 });
        self.tcp.fast_open.cookies.learn(&socket.flow, options.fast_open, mss);
    }

    /// Records what a change of a connection means for Fast Open: its handshake may be complete, it may have ended, or it may have
    /// detected a black hole.
    pub(super) fn settle_fast_open(&mut self, now: Instant, slot: u32) {
        let tcp = &mut self.tcp;
        let Some(socket) = tcp.sockets.get_mut(slot) else { return };
        match socket.connection.take_fast_open_event() {
            Some(FastOpenEvent::BlackHole) => tcp.fast_open.note_black_hole(now),
            // A connection of the stack to itself says nothing about a path.
            Some(FastOpenEvent::Works) if socket.egress != Egress::Local => tcp.fast_open.note_success(now),
            Some(FastOpenEvent::Works) | None => {}
        }
        if tcp.fast_open.pending.is_empty() || socket.connection.opens_fast() {
            return;
        }
        let was_reset = socket.connection.failure() == Some(Failure::Reset);
        if let Some(queue) = tcp.leave_pending(slot)
            && was_reset
        {
            // RFC 7413 section 5.1: an attacker that uses the cookies of others makes these answer by resets.
            queue.resets.push_back(reset_until(now));
        }
    }
}
