//! Connections whose buffers lie in an application's memory: the application itself writes and reads the bytes there. The stack
//! reports the state of such a connection as one value.

use super::calls::{application_socket, send_error};
use crate::sockets::socket::{Owner, is_over};
use crate::sockets::{TcpError, TcpId};
use crate::stack::Stack;
use crate::tcp::{Failure, Storage};
use crate::time::Instant;

/// The state of a connection, for an application in another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// True if the connection is open.
    pub open: bool,
    /// True if no bytes follow those already received, because the peer has closed its direction or the connection has ended
    /// without a failure.
    pub ended: bool,
    /// True if the connection has ended in both directions.
    pub closed: bool,
    /// Why the connection has failed, if it has failed.
    pub failure: Option<Failure>,
    /// Number of bytes that the application can read.
    pub received: usize,
    /// Number of bytes for which the send buffer has room.
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

    /// Appends bytes that `write` itself puts into the send buffer's memory. The owner of that memory limits the number of bytes.
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

    /// Removes bytes that the application has read in the receive buffer's memory. Removes no more bytes than the buffer
    /// contains.
    pub fn tcp_take(&mut self, now: Instant, id: TcpId, bytes: usize) -> Result<(), TcpError> {
        let socket = self.socket_mut(id)?;
        socket.connection.take(now, bytes);
        socket.announced_readiness.readable = socket.connection.is_readable();
        self.used(now, id.slot);
        Ok(())
    }

    /// Limits the window that the connection offers from now on, for use when the memory that connections share is short. A
    /// window that was already offered to the peer stays valid.
    pub fn tcp_limit_window(&mut self, id: TcpId, bytes: u32) -> Result<(), TcpError> {
        self.socket_mut(id)?.connection.limit_window(bytes);
        Ok(())
    }

    /// Returns the memory of a receive buffer.
    pub fn tcp_incoming(&self, id: TcpId) -> Result<&S, TcpError> {
        Ok(self.socket(id)?.connection.incoming())
    }

    /// Returns the memory of a send buffer.
    pub fn tcp_outgoing(&self, id: TcpId) -> Result<&S, TcpError> {
        Ok(self.socket(id)?.connection.outgoing())
    }

    /// Returns the state of a connection.
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

    /// Resets all connections whose send buffer satisfies `meant`. Connections that the application has closed but that still
    /// send are included.
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
