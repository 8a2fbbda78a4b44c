//! Connections whose buffers are in an application's memory. The application itself writes and reads the bytes in these buffers.
//! The stack reports the state of such a connection as one value, [`Progress`].

use super::calls::{application_socket, send_error};
use crate::sockets::socket::{Owner, is_over};
use crate::sockets::{TcpError, TcpId};
use crate::stack::Stack;
use crate::tcp::{Failure, Storage, WriteFlags};
use crate::time::Instant;

/// The state of a connection, for an application that runs in another process than the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// True if the connection is open.
    pub open: bool,
    /// True if the peer will send no more bytes than those already received, because it has closed its direction, or because the
    /// connection has ended without a failure.
    pub ended: bool,
    /// True if the connection has ended in both directions.
    pub closed: bool,
    /// Why the connection has failed; `None` if it has not failed.
    pub failure: Option<Failure>,
    /// Number of received bytes that the application can read.
    pub received: usize,
    /// Number of bytes that still fit into the send buffer.
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

    /// Returns whether the buffers of all connections have reached their limit ([`StackConfig::tcp_buffers_bytes_max`]). The owner then
    /// must not move further buffers into the stack's memory.
    ///
    /// [`StackConfig::tcp_buffers_bytes_max`]: crate::stack::StackConfig::tcp_buffers_bytes_max
    pub fn tcp_buffers_are_full(&self) -> bool {
        self.tcp.buffers.are_scarce()
    }

    /// Resets a connection that its application keeps. The application finds that the connection has ended.
    pub fn tcp_reset(&mut self, now: Instant, id: TcpId) -> Result<(), TcpError> {
        self.socket_mut(id)?.connection.abort();
        self.used(now, id.slot);
        Ok(())
    }

    /// Appends `bytes` bytes to the send buffer. The function `write` writes them into the buffer's memory. The owner of that
    /// memory limits the number of bytes. The flags are those of [`Stack::tcp_send_flagged`].
    pub fn tcp_send_with(
        &mut self,
        now: Instant,
        id: TcpId,
        bytes: usize,
        flags: WriteFlags,
        write: impl FnOnce(&mut S),
    ) -> Result<(), TcpError> {
        let socket = self.socket_mut(id)?;
        let failure = socket.connection.failure();
        socket.connection.send_with(now, bytes, flags, write).map_err(|error| send_error(error, failure))?;
        self.used(now, id.slot);
        Ok(())
    }

    /// Removes the first `bytes` bytes of the receive buffer, or all if the buffer has fewer. The application has already read
    /// them in the buffer's memory.
    pub fn tcp_take(&mut self, now: Instant, id: TcpId, bytes: usize) -> Result<(), TcpError> {
        let socket = self.socket_mut(id)?;
        socket.connection.take(now, bytes);
        socket.announced_readiness.readable = socket.connection.is_readable();
        self.used(now, id.slot);
        Ok(())
    }

    /// Limits the receive window that the connection offers to its peer from now on. A caller uses this when memory that several
    /// connections share is short. A window that the peer already received stays valid.
    pub fn tcp_limit_window(&mut self, id: TcpId, bytes: u32) -> Result<(), TcpError> {
        self.socket_mut(id)?.connection.limit_window(bytes);
        Ok(())
    }

    /// Returns the memory of a connection's receive buffer.
    pub fn tcp_incoming(&self, id: TcpId) -> Result<&S, TcpError> {
        Ok(self.socket(id)?.connection.incoming())
    }

    /// Returns the memory of a connection's send buffer.
    pub fn tcp_outgoing(&self, id: TcpId) -> Result<&S, TcpError> {
        Ok(self.socket(id)?.connection.outgoing())
    }

    /// Returns the state of a connection.
    pub fn tcp_progress(&self, id: TcpId) -> Result<Progress, TcpError> {
        let connection = &self.socket(id)?.connection;
        let readiness = connection.readiness();
        let failure = connection.failure();
        Ok(Progress {
            open: connection.is_open() || connection.awaits_first_write(),
            ended: connection.peer_finished() || failure.is_none() && is_over(connection),
            closed: readiness.closed,
            failure,
            received: connection.received(),
            send_room: connection.send_room(),
        })
    }

    /// Separates connections from memory that ends: those for whose send buffer `meant` returns true. A connection that its application
    /// has closed goes on, and the bytes that it still has to send move to the stack's memory. It is reset if the buffers of all
    /// connections have reached their limit. A connection that its application has not closed is reset.
    pub fn tcp_separate_those(&mut self, now: Instant, meant: impl Fn(&S) -> bool) {
        let slots: Vec<u32> = self.tcp.sockets.indices().collect();
        for slot in slots {
            let Some(socket) = self.tcp.sockets.get_mut(slot) else { continue };
            if !meant(socket.connection.outgoing()) || !matches!(socket.owner, Owner::Application | Owner::Nobody) {
                continue;
            }
            let has_room = !socket.connection.has_bytes_to_send() || !self.tcp.buffers.are_scarce();
            if socket.owner == Owner::Nobody && has_room {
                socket.connection.set_buffers(S::default(), S::default());
                self.tcp.buffers.count(socket);
            } else {
                socket.connection.abort();
                self.forsake(now, slot);
            }
        }
    }
}
