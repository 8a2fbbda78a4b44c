//! Sockets with which an application uses a guest's stack. They are blocking, or non-blocking with a [`Poller`].
//!
//! An [`Attachment`] is an application's connection to a virtual network. Sockets are made from an attachment and keep it alive.
//! Several threads can use one attachment. If the stack is in the application's process (`embedded`), the stack runs only while one
//! of these threads calls an operation or waits.

mod attachment;
pub(crate) mod embedded;
mod poller;
mod provider;
mod remote;
#[cfg(test)]
mod tests;
mod zero_copy;

pub use attachment::Attachment;
use attachment::Patience;
pub use poller::{Poller, Waker};
use provider::Provider;
pub use provider::SocketId;
pub use siga_iucv::options::{
    CongestionControl, FastOpenKeys, MtuDiscovery, Readiness, SendFlags, SendStage, SendTime, SocketOptions, Timing,
};
use siga_iucv::options::{DatagramChange, Interface};
pub use siga_stack::tcp::{BbrInfo, LinuxInfo};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
pub use zero_copy::ZeroCopyCompletion;
use zero_copy::ZeroCopySends;

/// A socket that was made from an attachment. The socket is closed when this value is dropped.
#[derive(Debug)]
struct Handle {
    attachment: Attachment,
    id: SocketId,
    patience: Mutex<Patience>,
    zero_copy_sends: Mutex<ZeroCopySends>,
}

impl Handle {
    fn new(attachment: &Attachment, id: SocketId) -> Self {
        Self { attachment: attachment.clone(), id, patience: Mutex::default(), zero_copy_sends: Mutex::default() }
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

/// The methods that the three kinds of sockets have in common.
macro_rules! common {
    ($kind:ident) => {
        impl $kind {
            /// Returns the id with which a [`Poller`] reports this socket.
            pub fn id(&self) -> SocketId {
                self.0.id
            }

            /// Sets whether operations return `WouldBlock` instead of waiting. By default they wait.
            pub fn set_nonblocking(&self, nonblocking: bool) {
                self.0.set_patience(|patience| patience.blocking = !nonblocking);
            }

            /// Sets how long operations wait before they return `TimedOut`. With `None`, the default, they wait without a limit.
            pub fn set_timeout(&self, limit: Option<Duration>) {
                self.0.set_patience(|patience| patience.limit = limit);
            }

            /// Returns the local address of this socket.
            ///
            /// # Errors
            /// Returns an error if the attachment has ended.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.0.attachment.provider().addresses(self.0.id).map(|(local, _)| local)
            }

            /// Returns which operations are possible now without waiting.
            ///
            /// # Errors
            /// Returns an error if the attachment has ended.
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
    /// Opens a connection and waits until it is established.
    ///
    /// # Errors
    /// Returns an error if the peer refuses the connection or cannot be reached.
    pub fn connect(attachment: &Attachment, remote: SocketAddr) -> io::Result<Self> {
        let stream = Self::begin(attachment, remote, &SocketOptions::default())?;
        stream.0.until(|provider| match provider.connected(stream.0.id) {
            Ok(false) => Err(ErrorKind::WouldBlock.into()),
            outcome => outcome.map(|_| ()),
        })?;
        Ok(stream)
    }

    /// Opens a connection with TCP Fast Open and writes `bytes` (`MSG_FASTOPEN` of Linux). Returns the connection and the number of
    /// bytes that were written. If the guest has a cookie of the server, the first packet carries as many bytes as fit into it.
    /// Otherwise the connection is opened as usual, and the bytes follow.
    ///
    /// The server may receive the bytes of the first packet twice, in two connections. They must therefore be a request that may
    /// be carried out twice (RFC 7413 section 6.1).
    ///
    /// # Errors
    /// Returns an error if the peer refuses the connection or cannot be reached, or if Fast Open is off.
    pub fn connect_with_data(
        attachment: &Attachment,
        remote: SocketAddr,
        options: &SocketOptions,
        bytes: &[u8],
    ) -> io::Result<(Self, usize)> {
        let stream = Self::begin(attachment, remote, &SocketOptions { fast_open: true, ..*options })?;
        let written = (&stream).write(bytes)?;
        Ok((stream, written))
    }

    /// Begins to open a connection, and returns without waiting. When the connection is established, the socket becomes writable.
    ///
    /// # Errors
    /// Returns an error if there is no route to the peer, if no port is free, or if an option is invalid.
    pub fn begin(attachment: &Attachment, remote: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let id = attachment.provider().connect(any(&remote), remote, options)?;
        Ok(Self(Handle::new(attachment, id)))
    }

    /// Returns whether a connection that `begin` opened is established.
    ///
    /// # Errors
    /// Returns the reason for the failure if the connection has failed.
    pub fn is_connected(&self) -> io::Result<bool> {
        self.0.attachment.provider().connected(self.0.id)
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// Returns an error if the attachment has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let (_, remote) = self.0.attachment.provider().addresses(self.0.id)?;
        remote.ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Shuts down one direction of the connection or both. Bytes that were written before are still delivered.
    ///
    /// # Errors
    /// Returns an error if the connection has failed.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.attachment.provider().shutdown(self.0.id, how)
    }

    /// Changes the options of the connection.
    ///
    /// # Errors
    /// Returns an error if an option is invalid.
    pub fn set_options(&self, options: &SocketOptions) -> io::Result<()> {
        self.0.attachment.provider().set(self.0.id, options)
    }

    /// Sends bytes as `write` does, and also says what they mean for the bytes that follow them.
    ///
    /// # Errors
    /// Returns the same errors as `write`.
    pub fn send(&self, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
        self.0.until(|provider| provider.send(self.0.id, bytes, flags))
    }

    /// Sends bytes as [`TcpStream::send`] does, and reports the send by [`TcpStream::take_zero_copy_completion`] when the
    /// application may change the bytes (`MSG_ZEROCOPY` of Linux).
    ///
    /// # Errors
    /// Returns the same errors as `write`. Such a call is not reported.
    pub fn send_zero_copy(&self, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
        let sent = self.send(bytes, flags)?;
        self.0.zero_copy_sends.lock().unwrap_or_else(PoisonError::into_inner).add();
        Ok(sent)
    }

    /// Returns the zero-copy sends that have completed since the last call, or `None` if there are none.
    pub fn take_zero_copy_completion(&self) -> Option<ZeroCopyCompletion> {
        self.0.zero_copy_sends.lock().unwrap_or_else(PoisonError::into_inner).take_completion()
    }

    /// Receives bytes as `read` does, and also returns when the last of them arrived. The time is `None` unless the option
    /// [`Timing::received`] is on.
    ///
    /// # Errors
    /// Returns the same errors as `read`.
    pub fn receive_timed(&self, into: &mut [u8]) -> io::Result<(usize, Option<SystemTime>)> {
        self.0.until(|provider| provider.receive_timed(self.0.id, into))
    }

    /// Returns the oldest time of a write that the application has not taken, if the options [`Timing::sent`] or
    /// [`Timing::acknowledged`] are on. New times are an event for a [`Poller`]. Times are lost if the application takes none for long.
    ///
    /// # Errors
    /// Returns an error if the attachment has ended.
    pub fn take_send_time(&self) -> io::Result<Option<SendTime>> {
        self.0.attachment.provider().take_send_time(self.0.id)
    }

    /// Returns the state of BBR in the fields and units of Linux's `TCP_CC_INFO`. `None` with another congestion control, for which
    /// Linux has no such fields, and before the connection is open.
    ///
    /// # Errors
    /// Returns an error if the attachment has ended.
    pub fn bbr_info(&self) -> io::Result<Option<BbrInfo>> {
        let info = self.0.attachment.provider().info(self.0.id)?.bbr_info;
        Ok(info.map(|bytes| BbrInfo::from_bytes(&bytes)))
    }

    /// Returns the options that the connection uses now, such as the sizes of its buffers.
    ///
    /// # Errors
    /// Returns an error if the attachment has ended.
    pub fn options(&self) -> io::Result<SocketOptions> {
        Ok(self.0.attachment.provider().info(self.0.id)?.options)
    }

    /// Returns the statistics of the connection in the fields and units of Linux's `TCP_INFO`.
    ///
    /// # Errors
    /// Returns an error if the attachment has ended.
    pub fn info(&self) -> io::Result<LinuxInfo> {
        Ok(LinuxInfo::from_bytes(&self.0.attachment.provider().info(self.0.id)?.tcp_info))
    }

    /// Returns how many received bytes can be read now (`TCP_INQ` of Linux). As in Linux, returns 1 if only the end of the stream
    /// can be read.
    ///
    /// # Errors
    /// Returns an error if the attachment has ended.
    pub fn unread(&self) -> io::Result<usize> {
        self.0.attachment.provider().unread(self.0.id)
    }

    /// Aborts the connection with a reset (RST).
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
        self.send(bytes, SendFlags::default())
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
    /// How many connections may wait to be accepted.
    const BACKLOG: usize = 4_096;

    /// Listens at an address of the guest, or at all addresses of one IP version (wildcard address). Port 0 asks for any free port.
    ///
    /// # Errors
    /// Returns an error if the address does not belong to the guest or is in use.
    pub fn bind(attachment: &Attachment, local: SocketAddr) -> io::Result<Self> {
        Self::bind_with(attachment, local, &SocketOptions::default())
    }

    /// Listens as [`TcpListener::bind`] does, with options that accepted connections inherit.
    ///
    /// # Errors
    /// Returns the same errors as [`TcpListener::bind`], and an error if an option is invalid.
    pub fn bind_with(attachment: &Attachment, local: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let id = attachment.provider().listen(local, Self::BACKLOG, options)?;
        Ok(Self(Handle::new(attachment, id)))
    }

    /// Accepts the next connection. Returns the connection and its peer's address.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the socket is non-blocking and no connection waits. Returns another error if the attachment has ended.
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
    /// Opens a socket at an address of the guest, or at all addresses of one IP version (wildcard address). Port 0 asks for any free
    /// port.
    ///
    /// # Errors
    /// Returns an error if the address does not belong to the guest or is in use.
    pub fn bind(attachment: &Attachment, local: SocketAddr) -> io::Result<Self> {
        let id = attachment.provider().bind(local)?;
        Ok(Self(Handle::new(attachment, id)))
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// Returns an error if the datagram is too long, if there is no route to `to`, or if a queue is full. If the socket does not
    /// fragment datagrams, the error about one that exceeds the MTU of its path may come from a later call.
    pub fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.0.until(|provider| provider.send_to(self.0.id, bytes, to))
    }

    /// Receives a datagram and copies it to `into` as far as it fits. Returns the number of copied bytes and the sender's address.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the socket is non-blocking and no datagram has arrived. Returns another error if the attachment has ended.
    pub fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.until(|provider| provider.receive_from(self.0.id, into))
    }

    /// Receives a datagram as [`UdpSocket::recv_from`] does, and also returns when it arrived. The time is `None` unless
    /// [`UdpSocket::set_timing`] has switched it on.
    ///
    /// # Errors
    /// Returns the same errors as [`UdpSocket::recv_from`].
    pub fn recv_from_timed(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr, Option<SystemTime>)> {
        self.0.until(|provider| provider.receive_from_timed(self.0.id, into))
    }

    /// Sets which times the socket reports (`SO_TIMESTAMPING` of Linux).
    ///
    /// # Errors
    /// Returns an error if the attachment has ended.
    pub fn set_timing(&self, timing: Timing) -> io::Result<()> {
        self.change(DatagramChange::Timing(timing))
    }

    /// Returns the oldest time of a sent datagram that the application has not taken. New times are an event for a [`Poller`]. Times are
    /// lost if the application takes none for long.
    ///
    /// # Errors
    /// Returns an error if the attachment has ended.
    pub fn take_send_time(&self) -> io::Result<Option<SendTime>> {
        self.0.attachment.provider().take_send_time(self.0.id)
    }

    /// Sets what the socket does to find the MTU of its paths (`IP_MTU_DISCOVER` and `IPV6_MTU_DISCOVER` of Linux). The default is
    /// [`MtuDiscovery::Dont`].
    ///
    /// # Errors
    /// Returns an error if the attachment has ended.
    pub fn set_mtu_discovery(&self, discovery: MtuDiscovery) -> io::Result<()> {
        self.change(DatagramChange::MtuDiscovery(discovery))
    }

    /// Joins a multicast group on the network where the guest has the address `interface`. The membership ends when the socket
    /// leaves the group or is dropped. The unspecified address (0.0.0.0) selects a network by the topology's routes: the route to
    /// the group, or else the default route. Without either, it selects the guest's first network with IPv4.
    ///
    /// A socket receives datagrams only to groups that it has joined itself, and only on the networks where it has joined them.
    /// Linux does the same with `IP_MULTICAST_ALL` off.
    ///
    /// # Errors
    /// `InvalidInput`: `group` is not a multicast address, or the socket has another IP version. `NotFound`: there is no such
    /// network, or it has no addresses of this IP version. `AddrInUse`: the socket is already in the group on this network.
    /// `QuotaExceeded`: the socket, the network or the guest is already in the maximum number of groups. The same error is returned
    /// if the maximum number of sockets with this port are already in the group.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.change(DatagramChange::Join((*group).into(), Interface::of_address(*interface)))
    }

    /// Joins an IPv6 multicast group on the network of the guest's device number `interface`. Devices are counted from 1 in the
    /// order of the topology. 0 selects the network to which the guest's routes send packets for the group.
    ///
    /// # Errors
    /// Returns the same errors as [`UdpSocket::join_multicast_v4`].
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.change(DatagramChange::Join((*group).into(), Interface::of_number(interface)))
    }

    /// Leaves an IPv4 group that was joined with the same `interface`.
    ///
    /// # Errors
    /// `AddrNotAvailable`: the socket is not in the group on this network. Other errors are those of
    /// [`UdpSocket::join_multicast_v4`].
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.change(DatagramChange::Leave((*group).into(), Interface::of_address(*interface)))
    }

    /// Leaves an IPv6 group that was joined with the same `interface`.
    ///
    /// # Errors
    /// Returns the same errors as [`UdpSocket::leave_multicast_v4`].
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.change(DatagramChange::Leave((*group).into(), Interface::of_number(interface)))
    }

    /// Sets the hop limit of datagrams to multicast groups. The default is 1. With 0, datagrams reach only sockets of the same
    /// stack.
    ///
    /// # Errors
    /// Returns an error if the attachment has ended.
    pub fn set_multicast_ttl(&self, hops: u8) -> io::Result<()> {
        self.change(DatagramChange::HopLimit(hops))
    }

    /// Sets whether sockets of the same stack receive the multicast datagrams that this socket sends. By default they do.
    ///
    /// # Errors
    /// Returns an error if the attachment has ended.
    pub fn set_multicast_loop(&self, on: bool) -> io::Result<()> {
        self.change(DatagramChange::Loop(on))
    }

    fn change(&self, change: DatagramChange) -> io::Result<()> {
        self.0.attachment.provider().change_datagrams(self.0.id, change)
    }
}

/// Returns the wildcard address with port 0, of the same IP version as `like`.
fn any(like: &SocketAddr) -> SocketAddr {
    if like.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() }
}
