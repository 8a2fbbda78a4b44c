//! The trait behind sockets: a stack in this process implements it, and so does the client of a guest's stack.
//!
//! No operation waits for the network: it returns `WouldBlock`. `poll_event` returns sockets whose readiness has changed.

use crate::protocol::report::ReportPart;
use siga_iucv::options::{GroupChange, Readiness, SocketOptions};
use siga_iucv::record::Number;
use siga_stack::sockets::{ListenerId, TcpId};
use siga_stack::udp::UdpId;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A socket of an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SocketId(pub(super) Named);

/// A socket's name in its provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Named {
    /// A stack in this process.
    Connection(TcpId),
    Listener(ListenerId),
    Datagrams(UdpId),
    /// An application and its guest.
    Number(Number),
}

/// A stack for sockets.
pub(crate) trait Provider: Send + std::fmt::Debug {
    fn listen(&mut self, local: SocketAddr, backlog: usize, options: &SocketOptions) -> io::Result<SocketId>;
    fn accept(&mut self, listener: SocketId) -> io::Result<(SocketId, SocketAddr)>;
    fn connect(&mut self, local: SocketAddr, remote: SocketAddr, options: &SocketOptions) -> io::Result<SocketId>;
    /// The outcome of `connect`: false while undecided.
    fn connected(&mut self, socket: SocketId) -> io::Result<bool>;
    fn send(&mut self, socket: SocketId, bytes: &[u8]) -> io::Result<usize>;
    fn receive(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<usize>;
    fn shutdown(&mut self, socket: SocketId, how: Shutdown) -> io::Result<()>;
    fn set(&mut self, socket: SocketId, options: &SocketOptions) -> io::Result<()>;
    fn bind(&mut self, local: SocketAddr) -> io::Result<SocketId>;
    fn send_to(&mut self, socket: SocketId, bytes: &[u8], to: SocketAddr) -> io::Result<usize>;
    /// Copies the next datagram as far as it fits; returns how many bytes, and the sender.
    fn receive_from(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
    /// Changes the groups of a datagram socket, or how it sends to groups.
    fn change_group(&mut self, socket: SocketId, change: GroupChange) -> io::Result<()>;
    /// Local and remote end; a listener and a datagram socket have no remote one.
    fn addresses(&mut self, socket: SocketId) -> io::Result<(SocketAddr, Option<SocketAddr>)>;
    /// Gives a socket up. Bytes that a connection was given to send are still delivered.
    fn close(&mut self, socket: SocketId);
    /// Ends a connection by a reset.
    fn abort(&mut self, socket: SocketId);
    fn readiness(&mut self, socket: SocketId) -> io::Result<Readiness>;
    /// Sends and receives what it can, and handles timers. True if there was anything.
    fn work(&mut self) -> bool;
    /// Like `work`, but delays ACKs until the application has processed its pending events.
    fn work_before_answers(&mut self) -> bool {
        self.work()
    }
    /// The next socket that can do what it could not do before.
    fn poll_event(&mut self) -> Option<SocketId>;
    /// All counters that this process may know.
    fn report(&mut self) -> io::Result<Vec<ReportPart>>;
    /// An eventfd that ends a wait when it is written to.
    fn wake(&mut self) -> io::Result<Arc<OwnedFd>>;
    /// Waits until there may be work, by the waiting policy.
    fn wait(&mut self, time: Option<Duration>);
    /// Makes the descriptor readable when there may be work. False if there is work already.
    fn fall_asleep(&mut self) -> io::Result<bool>;
    /// Readable, after `fall_asleep`, when there may be work.
    fn descriptor(&self) -> BorrowedFd<'_>;
    /// Why the attachment has ended, if it has.
    fn ended(&self) -> Option<io::Error>;
}
