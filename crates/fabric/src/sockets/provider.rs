//! What stands behind sockets: a stack in this process, or one in a guest's.
//!
//! Every operation answers at once; `WouldBlock` is an answer. What has changed since the last look is news; what a socket
//! can do now, `readiness` says.

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

/// As who stands behind sockets names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Named {
    /// A stack in this process.
    Connection(TcpId),
    Listener(ListenerId),
    Datagrams(UdpId),
    /// An application and its guest.
    Number(Number),
}

/// What stands behind sockets.
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
    /// The sender, and how many bytes its datagram had: more than `into` takes are cut off.
    fn receive_from(&mut self, socket: SocketId, into: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
    /// Has a datagram socket be in other groups, or send to them in another way.
    fn change_group(&mut self, socket: SocketId, change: GroupChange) -> io::Result<()>;
    /// Local and remote end; a listener and a datagram socket have no remote one.
    fn addresses(&mut self, socket: SocketId) -> io::Result<(SocketAddr, Option<SocketAddr>)>;
    /// Gives a socket up, whatever it is: what a connection was given to send is still delivered.
    fn close(&mut self, socket: SocketId);
    /// Ends a connection by a reset.
    fn abort(&mut self, socket: SocketId);
    fn readiness(&mut self, socket: SocketId) -> io::Result<Readiness>;
    /// Moves whatever can be moved. True if anything was.
    fn work(&mut self) -> bool;
    /// The same for who asks again when it has done what the news is for.
    fn work_before_answers(&mut self) -> bool {
        self.work()
    }
    /// The next socket that can do what it could not before.
    fn poll_event(&mut self) -> Option<SocketId>;
    /// What was counted, as far as this process may know.
    fn report(&mut self) -> io::Result<Vec<ReportPart>>;
    /// An event that ends a wait when it is written to.
    fn wake(&mut self) -> io::Result<Arc<OwnedFd>>;
    /// Waits until there may be work, by the policy of this process.
    fn wait(&mut self, time: Option<Duration>);
    /// Has the descriptor woken by everybody, and when something is due. False if there is work already.
    fn fall_asleep(&mut self) -> io::Result<bool>;
    /// Readable, after `fall_asleep`, when there may be work.
    fn descriptor(&self) -> BorrowedFd<'_>;
    /// Why the attachment is of no use any more.
    fn ended(&self) -> Option<io::Error>;
}
