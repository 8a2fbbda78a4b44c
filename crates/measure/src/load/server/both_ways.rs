//! The server of the workload STRB: receives requests and sends responses at the same time, on the same connection.

use super::{Server, learn};
use crate::clock::now_ns;
use crate::load::content::{Direction, Message};
use crate::load::proceeds;
use crate::socket::Sockets;
use std::io;

impl<S: Sockets> Server<S> {
    /// Receives a part of a request and sends a part of a response. Returns false if neither can proceed.
    pub(super) fn both_ways(&mut self, slot: usize) -> io::Result<bool> {
        let has_received = proceeds(self.receive_part(slot))?;
        let has_sent = proceeds(self.send_part(slot))?;
        Ok(has_received || has_sent)
    }

    fn receive_part(&mut self, slot: usize) -> io::Result<bool> {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return Ok(false) };
        let request = connection.workload.request;
        let left = usize::try_from(request - connection.offset).unwrap_or(usize::MAX);
        let room = left.min(self.inbox.len());
        let received = self.sockets.receive(&connection.socket, &mut self.inbox[..room])?;
        if received == 0 {
            self.hang_up(slot);
            return Ok(false);
        }
        if connection.message == 0 {
            learn(&mut connection.identity, connection.offset, &self.inbox[..received]);
        }
        let identity = u64::from_le_bytes(connection.identity);
        let message = Message { connection: identity, number: connection.message, direction: Direction::Request };
        let is_right = message.check(&self.inbox[..received], connection.offset, self.stride);
        connection.offset += received as u64;
        if connection.offset == request {
            (connection.message, connection.offset) = (connection.message + 1, 0);
        }
        self.account.counts.wrong_content += u64::from(!is_right);
        self.account.counts.received += received as u64;
        let now = now_ns();
        self.account.last_ns = now;
        if self.account.first_ns == 0 {
            self.account.first_ns = now;
        }
        Ok(true)
    }

    /// Sends a part of a response, once the connection's identity is known.
    fn send_part(&mut self, slot: usize) -> io::Result<bool> {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return Ok(false) };
        let has_identity = connection.message > 0 || connection.offset >= connection.identity.len() as u64;
        if self.ending || !has_identity {
            return Ok(false);
        }
        let (response, at) = (connection.workload.response, connection.outgoing);
        let left = usize::try_from(response - at.offset).unwrap_or(usize::MAX);
        let chunk = left.min(self.outbox.len());
        let identity = u64::from_le_bytes(connection.identity);
        let message = Message { connection: identity, number: at.message, direction: Direction::Response };
        message.write(&mut self.outbox[..chunk], at.offset, self.stride);
        let sent = self.sockets.send(&connection.socket, &self.outbox[..chunk])? as u64;
        connection.outgoing.advance(sent, response);
        self.account.counts.sent += sent;
        self.account.counts.transactions += u64::from(connection.outgoing.offset == 0);
        Ok(true)
    }
}
