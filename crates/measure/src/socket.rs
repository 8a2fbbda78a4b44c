//! The interface between the workload drivers (the code that generates the load) and the networks: connect, accept, send,
//! receive, poll.
//!
//! Drivers are generic over the trait [`Sockets`] and make no system calls on sockets themselves. The module [`kernel`] implements
//! the trait with the kernel's sockets, and the module `uring` serves the same sockets with io_uring. The module `fabric` implements it with the sockets of a guest (a process with a stack) of
//! siga's own network. The contract is that of non-blocking sockets with edge-triggered readiness. An operation that cannot proceed
//! returns `WouldBlock`, and `poll` reports the socket's token when the operation can proceed. If `receive` returns fewer bytes
//! than fit into the buffer, no more data is left in the socket. But the end of the stream may be left in the socket, as
//! [`Ready::ended`] reports.
//!
//! An implementation may instead block inside the operations. Then `operations_wait` returns true, and `poll` reports the
//! socket immediately, even if it is not ready.

pub(crate) mod fabric;
pub mod kernel;
pub(crate) mod smc;
pub(crate) mod sockmap;
pub mod uring;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The implementation of sockets that the client or server of a path uses, with its options.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketsOf {
    /// The kernel's sockets.
    Kernel(kernel::KernelOptions),
    /// The sockets of a guest of siga's own network.
    Guest(fabric::FabricOptions),
}

/// The number with which `poll` identifies a socket. The driver chooses the number when it creates the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub usize);

/// A socket on which an operation can proceed. If its connection has failed or was closed, the next operation returns the error
/// or the end of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The token of the socket.
    pub token: Token,
    /// True if the peer may have ended its stream. In this case, the driver must receive until `WouldBlock` or the end of the
    /// stream, because `poll` may not report the socket again.
    pub ended: bool,
}

/// The address at which a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Endpoint {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A TCP address at which sockets of the AF_SMC family connect.
    Smc(SocketAddr),
    /// A UDP address.
    Udp(SocketAddr),
    /// An abstract name of an AF_UNIX socket. It is valid in the network namespace, and there is no file for it.
    Unix(String),
}

impl Endpoint {
    /// Returns the endpoint of the listener with this number, derived from that of the first: `number` is added to the port unless
    /// the port is 0, or appended to the name of a UNIX socket.
    #[must_use]
    pub fn of_listener(&self, number: usize) -> Self {
        let shift = |mut address: SocketAddr| {
            if address.port() != 0 {
                address.set_port(address.port().saturating_add(u16::try_from(number).unwrap_or(u16::MAX)));
            }
            address
        };
        match self {
            Self::Tcp(address) => Self::Tcp(shift(*address)),
            Self::Smc(address) => Self::Smc(shift(*address)),
            Self::Udp(address) => Self::Udp(shift(*address)),
            Self::Unix(name) => Self::Unix(format!("{name}-{number}")),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp {address}"),
            Self::Smc(address) => write!(f, "smc {address}"),
            Self::Udp(address) => write!(f, "udp {address}"),
            Self::Unix(name) => write!(f, "unix @{name}"),
        }
    }
}

/// Ends the wait of another thread.
pub trait Waker: fmt::Debug + Send + Sync {
    /// Makes the current call of `poll` return, or the next call if none is waiting. If the operations of this implementation
    /// block, `wake` also interrupts the operation that is blocked now. It has no effect on an operation that begins a moment
    /// later, so callers must repeat `wake` until the thread has reacted.
    fn wake(&self);
}

/// The sockets of a network, as workload drivers use them.
pub trait Sockets {
    /// A connection, or a datagram socket with a fixed peer. A driver that ends may drop its sockets without `close`.
    type Socket;
    /// A listening socket, or a datagram socket without a fixed peer. Dropping it closes it.
    type Listener;

    /// Starts to listen. Returns the listener and its endpoint. If `at` has port 0, the returned endpoint has the port that the
    /// network chose.
    ///
    /// # Errors
    /// Returns an error if the address is in use or does not belong to this host.
    fn listen(&mut self, at: &Endpoint, token: Token) -> io::Result<(Self::Listener, Endpoint)>;

    /// Accepts the next connection from the accept queue.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the queue is empty, or an error of the network.
    fn accept(&mut self, listener: &Self::Listener, token: Token) -> io::Result<Self::Socket>;

    /// Starts to connect. `poll` reports the socket when the attempt has succeeded or failed.
    ///
    /// # Errors
    /// Returns an error if no port or descriptor is free, or if the connection is refused immediately.
    fn connect(&mut self, to: &Endpoint, token: Token) -> io::Result<Self::Socket>;

    /// Returns true if the connection is established, false if the result of `connect` is not known yet.
    ///
    /// # Errors
    /// Returns the error with which the connection attempt failed.
    fn connected(&mut self, socket: &Self::Socket) -> io::Result<bool>;

    /// Sends all of `bytes` or a first part. Returns the number of bytes that were sent.
    ///
    /// # Errors
    /// Returns `WouldBlock`, or an error if the connection has ended.
    fn send(&mut self, socket: &Self::Socket, bytes: &[u8]) -> io::Result<usize>;

    /// Receives bytes into `buffer`. Returns the number of bytes, or 0 if the peer has ended its stream.
    ///
    /// # Errors
    /// Returns `WouldBlock`, or an error if the connection has ended.
    fn receive(&mut self, socket: &Self::Socket, buffer: &mut [u8]) -> io::Result<usize>;

    /// Closes a connection. The network still delivers all data that was sent before; then the peer receives the end of the
    /// stream.
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

    /// Waits until an operation on a socket can proceed, `timeout` has passed, or a waker ends the wait. Appends the sockets on
    /// which operations can proceed to `ready`. If operations block (`operations_wait`), `poll` instead sleeps for the full
    /// `timeout` unless a waker ends the sleep.
    ///
    /// # Errors
    /// Returns an error of the network. An interruption by a signal is not an error.
    fn poll(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()>;

    /// Returns true if operations block until they complete. In this case, they return `WouldBlock` only after a signal or a
    /// time limit. Such an implementation supports only a single connection, and its `poll` blocks only if the caller passes a
    /// timeout.
    fn operations_wait(&self) -> bool;

    /// Runs the network's stack while a driver is idle. Returns the time until the next call is due, or `None` if the network
    /// needs no such calls.
    fn tend(&mut self) -> Option<Duration>;

    /// Returns a handle with which another thread can end a `poll`.
    fn waker(&self) -> std::sync::Arc<dyn Waker>;
}
