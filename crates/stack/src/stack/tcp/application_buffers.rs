//! Connections whose buffers lie in an application's memory: the application writes and reads bytes there itself, and the stack
//! reports progress as a whole.

use super::calls::{application_socket, send_error};
use crate::sockets::socket::Owner;
use crate::sockets::socket::is_over;
use crate::sockets::{TcpError, TcpId};
use crate::stack::Stack;
use crate::tcp::{Failure, Storage};
use crate::time::Instant;

/// The state of a connection, for an application in another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The connection is open.
    pub open: bool,
    /// No bytes follow those that are there: the peer has closed its direction, or the connection is over without a failure.
    pub ended: bool,
    /// The connection is over in both directions.
    pub closed: bool,
    /// Why the connection has failed, if it did.
    pub failure: Option<Failure>,
    /// Bytes to receive.
    pub received: usize,
    /// Bytes for which the send buffer has room.
    pub send_room: usize,
}

impl<S: Storage> Stack<S> {
    /// Moves the buffers of a connection, with their contents, to other memory.
    pub fn tcp_set_buffers(&mut self, id: TcpId, outgoing: S, incoming: S) -> Result<(), TcpError> {
        let socket = application_socket(&mut self.tcp.sockets, id)?;
        socket.connection.set_buffers(outgoing, incoming);
        self.tcp.buffers.count(socket);
        Ok(())
    }

    /// Appends bytes that `write` puts into the send buffer's memory itself. The owner of that memory bounds their number.
    pub fn tcp_send_with(
        &mut self,
        now: Instant,
        id: TcpId,
        bytes: usize,
        write: impl FnOnce(&mut S),
    ) -> Result<(), TcpError> {
        let socket = self.socket_mut(id)?;
        let failure = socket.connection.failure();
        socket.connection.send_with(now, bytes, write).map_err(|error| send_error(error, failure))?;
        self.used(now, id.slot);
        Ok(())
    }

    /// Removes received bytes that the application has read in the buffer's memory; no more than there are.
    pub fn tcp_take(&mut self, now: Instant, id: TcpId, bytes: usize) -> Result<(), TcpError> {
        let socket = self.socket_mut(id)?;
        socket.connection.take(now, bytes);
        socket.announced_readiness.readable = socket.connection.is_readable();
        self.used(now, id.slot);
        Ok(())
    }

    /// Bounds the window offered to the peer from now on, because memory that connections share is short. A window already offered
    /// stays.
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

    /// The state of a connection.
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

    /// Resets all connections whose send buffer satisfies `meant`, including those that were closed and still send.
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
