//! The interface between workload drivers and networks: connect, accept, send, receive, poll.
//!
//! Drivers are generic over [`Sockets`] and make no system call. [`kernel`] implements it with the kernel's sockets,
//! [`fabric`] with those of a guest of siga's own network. The contract is that of non-blocking sockets with
//! edge-triggered readiness: an operation that cannot go on returns `WouldBlock`, and `poll` reports the socket's
//! token again once it can. A short `receive` has taken everything but the end of the stream. An implementation may
//! wait inside the operations instead; then `operations_wait` is true, and `poll` reports its socket as ready at
//! once.

pub mod fabric;
pub mod kernel;
pub mod sockmap;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Whose sockets an end of a path uses, and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketsOf {
    /// The kernel's.
    Kernel(kernel::KernelOptions),
    /// A guest's, which the process becomes.
    Guest(fabric::FabricOptions),
}

/// A driver's name for a socket in `poll`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub usize);

/// A socket that can go on; its next operation returns the hang-up or error, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// Which socket.
    pub token: Token,
    /// The peer has ended its stream: after the remaining bytes comes the end, and nothing is reported again.
    pub ended: bool,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Endpoint {
    /// TCP.
    Tcp(SocketAddr),
    /// UDP.
    Udp(SocketAddr),
    /// An abstract name of the AF_UNIX family, which lives in the network namespace and leaves no file.
    Unix(String),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp {address}"),
            Self::Udp(address) => write!(f, "udp {address}"),
            Self::Unix(name) => write!(f, "unix @{name}"),
        }
    }
}

/// Ends the waiting of another thread.
pub trait Waker: Send + Sync {
    /// Makes a `poll` that waits, or the next one, return; or else an operation that waits. An operation that is
    /// about to begin misses it. So if operations wait, repeat the call until it has had its effect.
    fn wake(&self);
}

/// A network as drivers see it.
pub trait Sockets {
    /// A connection, or a datagram socket with a fixed peer. A driver that ends as a whole may just drop it.
    type Socket;
    /// A listening socket, or a datagram socket without a fixed peer. Closes when dropped.
    type Listener;

    /// Listens and returns where (a port of 0 asks for any free one).
    ///
    /// # Errors
    /// The address is in use or not of this host.
    fn listen(&mut self, at: &Endpoint, token: Token) -> io::Result<(Self::Listener, Endpoint)>;

    /// Takes the next connection from the accept queue.
    ///
    /// # Errors
    /// `WouldBlock`, or what the network reports.
    fn accept(&mut self, listener: &Self::Listener, token: Token) -> io::Result<Self::Socket>;

    /// Begins a connection; ready for writing once decided.
    ///
    /// # Errors
    /// Out of ports or descriptors, or refused at once.
    fn connect(&mut self, to: &Endpoint, token: Token) -> io::Result<Self::Socket>;

    /// The outcome of `connect`: false while it is not known.
    ///
    /// # Errors
    /// Why the connection failed.
    fn connected(&mut self, socket: &Self::Socket) -> io::Result<bool>;

    /// Sends some of the bytes and says how many.
    ///
    /// # Errors
    /// `WouldBlock`, or the connection's end.
    fn send(&mut self, socket: &Self::Socket, bytes: &[u8]) -> io::Result<usize>;

    /// Receives up to a buffer of bytes; 0 is the peer's end of stream.
    ///
    /// # Errors
    /// `WouldBlock`, or the connection's end.
    fn receive(&mut self, socket: &Self::Socket, buffer: &mut [u8]) -> io::Result<usize>;

    /// Ends a connection: what was sent is still delivered, then the peer sees the end of the stream.
    fn close(&mut self, socket: Self::Socket);

    /// Receives one datagram and its sender.
    ///
    /// # Errors
    /// `WouldBlock`, or what the network reports.
    fn receive_from(&mut self, listener: &Self::Listener, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)>;

    /// Sends one datagram.
    ///
    /// # Errors
    /// `WouldBlock`, or what the network reports.
    fn send_to(&mut self, listener: &Self::Listener, bytes: &[u8], to: SocketAddr) -> io::Result<usize>;

    /// Appends the sockets that can go on to `ready`. Waits until there is one, the time is over or a waker wakes it.
    /// If operations wait, it rests for the whole time unless a waker wakes it.
    ///
    /// # Errors
    /// What the network reports; never a mere interruption.
    fn poll(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()>;

    /// True if operations wait for their outcome, or until they are interrupted, before they return `WouldBlock`.
    /// Then there is one connection, and `poll` waits only if it has a timeout.
    fn operations_wait(&self) -> bool;

    /// Keeps the network moving while a driver rests, and returns when to do so again; `None` if it moves by itself.
    fn tend(&mut self) -> Option<Duration>;

    /// A handle that interrupts `poll` from another thread.
    fn waker(&self) -> std::sync::Arc<dyn Waker>;
}
