//! Connections whose buffers lie with their application: bytes are placed and taken where they are, and what the application may
//! do is told as a whole.

use super::calls::{application_socket, send_error};
use crate::sockets::socket::Owner;
use crate::sockets::socket::is_over;
use crate::sockets::{TcpError, TcpId};
use crate::stack::Stack;
use crate::tcp::{Failure, Storage};
use crate::time::Instant;

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// It is open.
    pub open: bool,
    /// The peer has ended its direction, or the connection is over without a failure: after the bytes that are there, none come.
    pub ended: bool,
    /// It is over in both directions.
    pub closed: bool,
    /// Why it has failed.
    pub failure: Option<Failure>,
    /// Bytes to receive.
    pub received: usize,
    /// Bytes that would be sent now beyond those that were.
    pub send_room: usize,
}

impl<S: Storage> Stack<S> {
    /// Has the buffers of a connection in other memory; what is in them moves there.
    pub fn tcp_set_buffers(&mut self, id: TcpId, outgoing: S, incoming: S) -> Result<(), TcpError> {
        let socket = application_socket(&mut self.tcp.sockets, id)?;
        socket.connection.set_buffers(outgoing, incoming);
        self.tcp.buffers.count(socket);
        Ok(())
    }

    /// Takes bytes to send that lie where they stay; `place` tells the send buffer's memory where. How many there may be is for
    /// whoever owns that memory.
    pub fn tcp_send_with(
        &mut self,
        now: Instant,
        id: TcpId,
        bytes: usize,
        place: impl FnOnce(&mut S),
    ) -> Result<(), TcpError> {
        let socket = self.socket_mut(id)?;
        let failure = socket.connection.failure();
        socket.connection.send_with(now, bytes, place).map_err(|error| send_error(error, failure))?;
        self.used(now, id.slot);
        Ok(())
    }

    /// Takes received bytes that were read where they lie; no more than there are.
    pub fn tcp_take(&mut self, now: Instant, id: TcpId, bytes: usize) -> Result<(), TcpError> {
        let socket = self.socket_mut(id)?;
        socket.connection.take(now, bytes);
        socket.announced_readiness.readable = socket.connection.is_readable();
        self.used(now, id.slot);
        Ok(())
    }

    /// Has no more than so many bytes offered to the peer from now on: memory that several connections share is short. What was
    /// offered before stays.
    pub fn tcp_limit_window(&mut self, id: TcpId, bytes: u32) -> Result<(), TcpError> {
        self.socket_mut(id)?.connection.limit_window(bytes);
        Ok(())
    }

    /// The memory of a receive buffer.
    pub fn tcp_incoming(&self, id: TcpId) -> Result<&S, TcpError> {
        Ok(self.socket(id)?.connection.incoming())
    }

    /// The memory of a send buffer.
    pub fn tcp_outgoing(&self, id: TcpId) -> Result<&S, TcpError> {
        Ok(self.socket(id)?.connection.outgoing())
    }

    /// How far a connection is.
    pub fn tcp_progress(&self, id: TcpId) -> Result<Progress, TcpError> {
        let connection = &self.socket(id)?.connection;
        let readiness = connection.readiness();
        let failure = connection.failure();
        Ok(Progress {
            open: connection.is_open(),
            ended: connection.peer_finished() || failure.is_none() && is_over(connection),
            closed: readiness.closed,
            failure,
            received: connection.received(),
            send_room: connection.send_room(),
        })
    }

    /// Ends connections by resets, those that were closed and still send included: all whose send buffer's memory is meant.
    pub fn tcp_abort_those(&mut self, now: Instant, meant: impl Fn(&S) -> bool) {
        let slots: Vec<u32> = self.tcp.sockets.indices().collect();
        for slot in slots {
            let Some(socket) = self.tcp.sockets.get_mut(slot) else { continue };
            if meant(socket.connection.outgoing()) && matches!(socket.owner, Owner::Application | Owner::Nobody) {
                socket.connection.abort();
                self.forsake(now, slot);
            }
        }
    }
}
