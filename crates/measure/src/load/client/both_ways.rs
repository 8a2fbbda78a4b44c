//! The client of the workload STRB: sends requests and receives responses at the same time, on the same connection.

use super::Client;
use crate::clock::now_ns;
use crate::load::content::{Direction, Message};
use crate::load::proceeds;
use crate::socket::Sockets;
use std::io;

impl<S: Sockets> Client<S> {
    /// Sends a part of a request and receives a part of a response. Returns false if neither can proceed.
    pub(super) fn both_ways(&mut self, index: usize) -> io::Result<bool> {
        let has_sent = proceeds(self.send_part(index))?;
        let has_received = proceeds(self.receive_part(index))?;
        Ok(has_sent || has_received)
    }

    fn send_part(&mut self, index: usize) -> io::Result<bool> {
        if self.over(now_ns()) {
            return Ok(false);
        }
        let pair = &mut self.pairs[index];
        let Some(socket) = &pair.socket else { return Ok(false) };
        let left = usize::try_from(pair.workload.request - pair.offset).unwrap_or(usize::MAX);
        let chunk = left.min(self.outbox.len());
        let message = Message { connection: pair.connection, number: pair.message, direction: Direction::Request };
        message.write(&mut self.outbox[..chunk], pair.offset, self.run.phase.stride);
        let sent = self.sockets.send(socket, &self.outbox[..chunk])? as u64;
        pair.offset += sent;
        if pair.offset == pair.workload.request {
            (pair.message, pair.offset) = (pair.message + 1, 0);
        }
        pair.bytes += sent;
        self.counts.sent += sent;
        self.run.slice(now_ns(), sent as f64 / 1e6);
        Ok(true)
    }

    fn receive_part(&mut self, index: usize) -> io::Result<bool> {
        let pair = &mut self.pairs[index];
        let Some(socket) = &pair.socket else { return Ok(false) };
        let at = pair.incoming;
        let left = usize::try_from(pair.workload.response - at.offset).unwrap_or(usize::MAX);
        let room = left.min(self.inbox.len());
        let received = self.sockets.receive(socket, &mut self.inbox[..room])?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let message = Message { connection: pair.connection, number: at.message, direction: Direction::Response };
        let is_right = message.check(&self.inbox[..received], at.offset, self.run.phase.stride);
        let bytes = received as u64;
        pair.incoming.advance(bytes, pair.workload.response);
        let is_whole = pair.incoming.offset == 0;
        pair.bytes += bytes;
        pair.transactions += u64::from(is_whole);
        self.counts.transactions += u64::from(is_whole);
        self.counts.wrong_content += u64::from(!is_right);
        self.counts.received += bytes;
        let now = now_ns();
        self.run.last_ns = now;
        self.run.slice(now, bytes as f64 / 1e6);
        Ok(true)
    }
}
