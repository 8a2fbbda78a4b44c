//! The trait [`Provider`]: the operations that sockets need from a stack. It is implemented for a stack in this process, and for
//! the client of a stack in a guest's process.
//!
//! No operation waits for the network. An operation that would have to wait returns `WouldBlock`. `poll_event` returns sockets whose
//! readiness has changed.

use crate::protocol::report::ReportPart;
use siga_iucv::options::{ConnectionInfo, DatagramChange, Readiness, SendFlags, SendTime, SocketOptions};
use siga_iucv::record::Number;
use siga_stack::sockets::{ListenerId, TcpId};
use siga_stack::udp::UdpId;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The id of a socket. Ids are unique within an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SocketId(pub(super) Named);

/// The id that a socket has in its [`Provider`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Named {
    /// The id that a stack in this process gave a connection.
    Connection(TcpId),
    Listener(ListenerId),
    Datagrams(UdpId),
    /// The number of a socket if the stack is in another process. The application and its guest use this number in their messages.
    Number(Number),
}

/// A stack that provides sockets.
pub(crate) trait Provider: Send + std::fmt::Debug {
    fn listen(&mut self, local: SocketAddr, backlog: usize, options: &SocketOptions) -> io::Result<SocketId>;
    fn accept(&mut self, listener: SocketId) -> io::Result<(SocketId, SocketAddr)>;
    fn connect(&mut self, local: SocketAddr, remote: SocketAddr, options: &SocketOptions) -> io::Result<SocketId>;
    /// Returns whether a connection that `connect` opened is established. If the connection has failed, returns the reason as an
    /// error.
    fn connected(&mut self, socket: SocketId) -> io::Result<bool>;
    fn send(&mut self, socket: SocketId, bytes: &[u8], flags: SendFlags) -> io::Result<usize>;
    fn receive(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<usize>;
    /// Receives bytes like `receive`, and also returns when the last of them arrived, if the application asked for times.
    fn receive_timed(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<(usize, Option<SystemTime>)>;
    /// Returns the oldest time of a write or a datagram that the application has not taken.
    fn take_send_time(&mut self, socket: SocketId) -> io::Result<Option<SendTime>>;
    fn shutdown(&mut self, socket: SocketId, how: Shutdown) -> io::Result<()>;
    fn set(&mut self, socket: SocketId, options: &SocketOptions) -> io::Result<()>;
    /// Returns the statistics of a connection, and the options that it uses now.
    fn info(&mut self, socket: SocketId) -> io::Result<Box<ConnectionInfo>>;
    /// Returns the number of bytes that `receive` can return now, or 1 if only the end of the stream can be received.
    fn unread(&mut self, socket: SocketId) -> io::Result<usize>;
    fn bind(&mut self, local: SocketAddr) -> io::Result<SocketId>;
    fn send_to(&mut self, socket: SocketId, bytes: &[u8], to: SocketAddr) -> io::Result<usize>;
    /// Copies the next datagram to `into` as far as it fits. Returns the number of copied bytes and the sender's address.
    fn receive_from(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
    /// Receives a datagram like `receive_from`, and also returns when it arrived, if the application asked for times.
    fn receive_from_timed(
        &mut self,
        socket: SocketId,
        into: &mut [u8],
    ) -> io::Result<(usize, SocketAddr, Option<SystemTime>)>;
    /// Changes the multicast groups or an option of a datagram socket.
    fn change_datagrams(&mut self, socket: SocketId, change: DatagramChange) -> io::Result<()>;
    /// Returns the local and the remote address of a socket. Listeners and datagram sockets have no remote address.
    fn addresses(&mut self, socket: SocketId) -> io::Result<(SocketAddr, Option<SocketAddr>)>;
    /// Closes a socket. Bytes that were written to a connection are still delivered.
    fn close(&mut self, socket: SocketId);
    /// Aborts a connection with a reset (RST).
    fn abort(&mut self, socket: SocketId);
    fn readiness(&mut self, socket: SocketId) -> io::Result<Readiness>;
    /// Sends and receives as much as possible, and handles timers. Returns true if there was anything to do.
    fn work(&mut self) -> bool;
    /// Does the same as `work`, but may delay ACKs until the application has processed its pending events.
    fn work_before_answers(&mut self) -> bool {
        self.work()
    }
    /// Returns the next socket whose readiness has changed, for example because the socket has become readable. Returns `None` if
    /// there is none.
    fn poll_event(&mut self) -> Option<SocketId>;
    /// Returns all counters that this process may read.
    fn report(&mut self) -> io::Result<Vec<ReportPart>>;
    /// Returns an eventfd. A write to it ends a wait.
    fn wake(&mut self) -> io::Result<Arc<OwnedFd>>;
    /// Waits until `work` may have something to do, for at most `time`, according to the waiting policy.
    fn wait(&mut self, time: Option<Duration>);
    /// Prepares a wait for the descriptor, so that it becomes readable when `work` may have something to do. Returns false if there
    /// is already something to do.
    fn fall_asleep(&mut self) -> io::Result<bool>;
    /// Returns a descriptor. After `fall_asleep`, it becomes readable when `work` may have something to do.
    fn descriptor(&self) -> BorrowedFd<'_>;
    /// Returns the reason why the attachment has ended, or `None` if it has not.
    fn ended(&self) -> Option<io::Error>;
}
