//! Sockets over a guest's stack, for applications: blocking, or non-blocking with a [`Poller`].
//!
//! An [`Attachment`] is the application's part in a network. Sockets are made from it and keep it alive, and several threads can
//! use it. If the stack is in this process (`embedded`), it runs during operations and waits of these threads.

mod attachment;
pub(crate) mod embedded;
mod poller;
mod provider;
mod remote;
#[cfg(test)]
mod tests;

pub use attachment::Attachment;
use attachment::Patience;
pub use poller::{Poller, Waker};
use provider::Provider;
pub use provider::SocketId;
pub use siga_iucv::options::{CongestionControl, Readiness, SocketOptions};
use siga_iucv::options::{GroupChange, Interface};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A socket of an attachment; it is closed when it is dropped.
#[derive(Debug)]
struct Handle {
    attachment: Attachment,
    id: SocketId,
    patience: Mutex<Patience>,
}

impl Handle {
    fn new(attachment: &Attachment, id: SocketId) -> Self {
        Self { attachment: attachment.clone(), id, patience: Mutex::default() }
    }

    fn patience(&self) -> Patience {
        *self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_patience(&self, change: impl FnOnce(&mut Patience)) {
        change(&mut self.patience.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn until<T>(&self, operation: impl FnMut(&mut dyn Provider) -> io::Result<T>) -> io::Result<T> {
        self.attachment.until(self.patience(), operation)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.attachment.provider().close(self.id);
    }
}

/// What the three kinds of sockets have in common.
macro_rules! common {
    ($kind:ident) => {
        impl $kind {
            /// What pollers call it.
            pub fn id(&self) -> SocketId {
                self.0.id
            }

            /// Whether operations answer `WouldBlock` instead of waiting. At first they wait.
            pub fn set_nonblocking(&self, nonblocking: bool) {
                self.0.set_patience(|patience| patience.blocking = !nonblocking);
            }

            /// How long operations wait before they answer `TimedOut`; at first without end.
            pub fn set_timeout(&self, limit: Option<Duration>) {
                self.0.set_patience(|patience| patience.limit = limit);
            }

            /// The own end.
            ///
            /// # Errors
            /// The attachment has ended.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.0.attachment.provider().addresses(self.0.id).map(|(local, _)| local)
            }

            /// What can be done without waiting.
            ///
            /// # Errors
            /// The attachment has ended.
            pub fn readiness(&self) -> io::Result<Readiness> {
                self.0.attachment.provider().readiness(self.0.id)
            }
        }
    };
}

/// A TCP connection.
#[derive(Debug)]
pub struct TcpStream(Handle);
common!(TcpStream);

impl TcpStream {
    /// Opens a connection and waits until it is open.
    ///
    /// # Errors
    /// Nobody listens there, or nobody is there.
    pub fn connect(attachment: &Attachment, remote: SocketAddr) -> io::Result<Self> {
        let stream = Self::begin(attachment, remote, &SocketOptions::default())?;
        stream.0.until(|provider| match provider.connected(stream.0.id) {
            Ok(false) => Err(ErrorKind::WouldBlock.into()),
            outcome => outcome.map(|_| ()),
        })?;
        Ok(stream)
    }

    /// Begins a connection, non-blocking: it is open once it is writable.
    ///
    /// # Errors
    /// There is no way there, no port is free, or an option cannot be.
    pub fn begin(attachment: &Attachment, remote: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let id = attachment.provider().connect(any(&remote), remote, options)?;
        Ok(Self(Handle::new(attachment, id)))
    }

    /// The outcome of `begin`: false while undecided.
    ///
    /// # Errors
    /// Why the connection failed.
    pub fn is_connected(&self) -> io::Result<bool> {
        self.0.attachment.provider().connected(self.0.id)
    }

    /// The other end.
    ///
    /// # Errors
    /// The attachment has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let (_, remote) = self.0.attachment.provider().addresses(self.0.id)?;
        remote.ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Ends one direction or both: what was written is delivered before.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.attachment.provider().shutdown(self.0.id, how)
    }

    /// Changes how the connection is.
    ///
    /// # Errors
    /// An option cannot be.
    pub fn set_options(&self, options: &SocketOptions) -> io::Result<()> {
        self.0.attachment.provider().set(self.0.id, options)
    }

    /// Ends the connection by a reset.
    pub fn abort(self) {
        self.0.attachment.provider().abort(self.0.id);
    }
}

impl Read for &TcpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.until(|provider| provider.receive(self.0.id, into))
    }
}

impl Write for &TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.until(|provider| provider.send(self.0.id, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Write for TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A listening TCP socket.
#[derive(Debug)]
pub struct TcpListener(Handle);
common!(TcpListener);

impl TcpListener {
    /// Connections that may wait to be accepted, where nothing is asked for.
    const BACKLOG: usize = 4_096;

    /// Listens at an address of the guest, or all of one IP version; port 0 asks for any.
    ///
    /// # Errors
    /// The address is not the guest's, or in use.
    pub fn bind(attachment: &Attachment, local: SocketAddr) -> io::Result<Self> {
        Self::bind_with(attachment, local, &SocketOptions::default())
    }

    /// The same; accepted connections begin with these options.
    ///
    /// # Errors
    /// As [`TcpListener::bind`], or an option cannot be.
    pub fn bind_with(attachment: &Attachment, local: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let id = attachment.provider().listen(local, Self::BACKLOG, options)?;
        Ok(Self(Handle::new(attachment, id)))
    }

    /// The next connection, and who opened it.
    ///
    /// # Errors
    /// `WouldBlock`, or the attachment has ended.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (id, from) = self.0.until(|provider| provider.accept(self.0.id))?;
        Ok((TcpStream(Handle::new(&self.0.attachment, id)), from))
    }
}

/// A UDP socket.
#[derive(Debug)]
pub struct UdpSocket(Handle);
common!(UdpSocket);

impl UdpSocket {
    /// Opens a socket at an address of the guest, or all of one IP version; port 0 asks for any.
    ///
    /// # Errors
    /// The address is not the guest's, or in use.
    pub fn bind(attachment: &Attachment, local: SocketAddr) -> io::Result<Self> {
        let id = attachment.provider().bind(local)?;
        Ok(Self(Handle::new(attachment, id)))
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// It is too long, there is no way, or queues are full.
    pub fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.0.until(|provider| provider.send_to(self.0.id, bytes, to))
    }

    /// Receives a datagram: what fits of it, and who sent it.
    ///
    /// # Errors
    /// `WouldBlock`, or the attachment has ended.
    pub fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.until(|provider| provider.receive_from(self.0.id, into))
    }

    /// Joins a group on the network where the guest has the address `interface`, until it is left or the socket is dropped. The
    /// unspecified address is the network that the group is routed to: that of the topology's route to it, else of the default
    /// route, else the guest's first with IPv4.
    ///
    /// A socket hears the groups that itself has joined, on the networks where it has, whatever others have joined (as on Linux
    /// with `IP_MULTICAST_ALL` off).
    ///
    /// # Errors
    /// `InvalidInput`: the address is no group's, or the socket is not of its IP version. `NotFound`: there is no such network, or
    /// it has no such addresses. `AddrInUse`: the socket is in the group there. `QuotaExceeded`: the socket, the network or the guest
    /// is in as many groups as it may be, or the group has as many sockets with that port as it may have.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.change_group(GroupChange::Join((*group).into(), Interface::of_address(*interface)))
    }

    /// The same for IPv6, on the network of the guest's device `interface`, counted from 1 as the topology has them; 0 is
    /// the network that the group is routed to.
    ///
    /// # Errors
    /// As [`UdpSocket::join_multicast_v4`].
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.change_group(GroupChange::Join((*group).into(), Interface::of_number(interface)))
    }

    /// Leaves a group that was joined on that network.
    ///
    /// # Errors
    /// `AddrNotAvailable`: the socket is not in the group there. Others as [`UdpSocket::join_multicast_v4`].
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.change_group(GroupChange::Leave((*group).into(), Interface::of_address(*interface)))
    }

    /// The same for IPv6.
    ///
    /// # Errors
    /// As [`UdpSocket::leave_multicast_v4`].
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.change_group(GroupChange::Leave((*group).into(), Interface::of_number(interface)))
    }

    /// How many hops datagrams to groups go: 1 at first, 0 to sockets of the own stack alone.
    ///
    /// # Errors
    /// The attachment has ended.
    pub fn set_multicast_ttl(&self, hops: u8) -> io::Result<()> {
        self.change_group(GroupChange::HopLimit(hops))
    }

    /// Whether sockets of the own stack hear what this one sends to their groups; they do at first.
    ///
    /// # Errors
    /// The attachment has ended.
    pub fn set_multicast_loop(&self, on: bool) -> io::Result<()> {
        self.change_group(GroupChange::Loop(on))
    }

    fn change_group(&self, change: GroupChange) -> io::Result<()> {
        self.0.attachment.provider().change_group(self.0.id, change)
    }
}

/// Any address and port, of the IP version of another.
fn any(like: &SocketAddr) -> SocketAddr {
    if like.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() }
}
