//! The interface between workload drivers and networks: connect, accept, send, receive, poll.
//!
//! Drivers are generic over [`Sockets`] and make no system call. [`kernel`] implements the trait with the kernel's sockets,
//! the module `fabric` with the sockets of a guest of siga's own network. The contract is that of non-blocking sockets with
//! edge-triggered readiness. An operation that cannot proceed returns `WouldBlock`, and `poll` reports the socket's token again
//! once the operation can proceed. If `receive` returns fewer bytes than the buffer holds, it has read everything except a
//! possible end of the stream.
//!
//! An implementation may instead block inside the operations. Then `operations_wait` returns true, and `poll` reports the
//! socket as ready at once.

pub(crate) mod fabric;
pub mod kernel;
pub(crate) mod sockmap;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The implementation that an end of a path uses for its sockets, with its options.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketsOf {
    /// The kernel's sockets.
    Kernel(kernel::KernelOptions),
    /// The sockets of a guest of siga's own network.
    Guest(fabric::FabricOptions),
}

/// The number by which `poll` identifies a socket. The driver chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub usize);

/// A socket that can proceed. If its connection has failed or closed, the next operation on the socket returns the error or the
/// end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The token of the socket.
    pub token: Token,
    /// The peer may have ended its stream. If so, the driver receives until `WouldBlock` or the end of the stream, because
    /// `poll` may not report the socket again.
    pub ended: bool,
}

/// The address at which a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Endpoint {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A UDP address.
    Udp(SocketAddr),
    /// An abstract name of the AF_UNIX family. It belongs to the network namespace and leaves no file behind.
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

/// Ends the wait of another thread.
pub trait Waker: fmt::Debug + Send + Sync {
    /// Makes the current `poll` return, or the next one if no `poll` waits. If operations wait, this call instead ends the
    /// operation that waits now. An operation that is about to begin misses the call, so repeat it until it has had its effect.
    fn wake(&self);
}

/// A network as workload drivers use it.
pub trait Sockets {
    /// A connection, or a datagram socket with a fixed peer. A driver that ends need not close its sockets; it may drop them.
    type Socket;
    /// A listening socket, or a datagram socket without a fixed peer. Dropping it closes it.
    type Listener;

    /// Starts to listen. Returns the listener and its endpoint; for port 0 the endpoint has the port that the network chose.
    ///
    /// # Errors
    /// Returns an error if the address is in use or does not belong to this host.
    fn listen(&mut self, at: &Endpoint, token: Token) -> io::Result<(Self::Listener, Endpoint)>;

    /// Accepts the next connection from the accept queue.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the queue is empty, or an error of the network.
    fn accept(&mut self, listener: &Self::Listener, token: Token) -> io::Result<Self::Socket>;

    /// Starts to connect. `poll` reports the socket once the attempt has succeeded or failed.
    ///
    /// # Errors
    /// Returns an error if no port or descriptor is free, or if the connection is refused at once.
    fn connect(&mut self, to: &Endpoint, token: Token) -> io::Result<Self::Socket>;

    /// Returns whether the attempt of `connect` has succeeded; false while the result is unknown.
    ///
    /// # Errors
    /// Returns the reason if the connection failed.
    fn connected(&mut self, socket: &Self::Socket) -> io::Result<bool>;

    /// Sends a part of `bytes` or all of it. Returns the number of bytes sent.
    ///
    /// # Errors
    /// Returns `WouldBlock`, or an error if the connection has ended.
    fn send(&mut self, socket: &Self::Socket, bytes: &[u8]) -> io::Result<usize>;

    /// Receives bytes into `buffer`. Returns their number, or 0 if the peer has ended its stream.
    ///
    /// # Errors
    /// Returns `WouldBlock`, or an error if the connection has ended.
    fn receive(&mut self, socket: &Self::Socket, buffer: &mut [u8]) -> io::Result<usize>;

    /// Closes a connection. Sent data is still delivered; then the peer receives the end of the stream.
    fn close(&mut self, socket: Self::Socket);

    /// Receives one datagram. Returns its length and its sender.
    ///
    /// # Errors
    /// Returns `WouldBlock`, or an error of the network.
    fn receive_from(&mut self, listener: &Self::Listener, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)>;

    /// Sends one datagram to the address `to`. Returns the number of bytes sent.
    ///
    /// # Errors
    /// Returns `WouldBlock`, or an error of the network.
    fn send_to(&mut self, listener: &Self::Listener, bytes: &[u8], to: SocketAddr) -> io::Result<usize>;

    /// Waits until a socket can proceed, the time is over or a waker ends the wait. Appends the sockets that can proceed to
    /// `ready`. If operations wait, `poll` sleeps for the full time unless a waker ends the wait.
    ///
    /// # Errors
    /// Returns an error of the network. An interruption by a signal is not an error.
    fn poll(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()>;

    /// Returns true if operations block until they complete. They then return `WouldBlock` only after an interruption or a
    /// timeout. Such an implementation has a single connection, and `poll` blocks only if its caller passes a timeout.
    fn operations_wait(&self) -> bool;

    /// Lets the network's stack run while a driver is idle. Returns the time until the next call is due, or `None` if the
    /// network needs no further call.
    fn tend(&mut self) -> Option<Duration>;

    /// Returns a handle with which another thread can end a `poll`.
    fn waker(&self) -> std::sync::Arc<dyn Waker>;
}
