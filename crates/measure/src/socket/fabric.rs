//! The sockets of a guest of siga's own network. A guest is a process that runs a stack. Either this process is the guest and
//! the stack runs on the driver's thread, or this process uses the stack of a guest in another process.
//!
//! Every operation runs on the driver's thread. This module adds no thread or queue between the driver and the stack. A wait
//! polls, yields the CPU and then sleeps, as the waiting policy in the network's topology says. While a driver is idle between
//! phases, no other thread of this process runs the stack. So the driver calls `tend` regularly.

use super::{Endpoint, Ready, Sockets, Token, Waker};
use serde::{Deserialize, Serialize};
use siga_fabric::protocol::secret;
use siga_fabric::sockets::{
    self, Attachment, CongestionControl, Poller, SocketId, SocketOptions, TcpListener, TcpStream, UdpSocket,
};
use siga_model::name::Name;
use siga_plan::path::guest::Attach;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The guest whose stack a process uses, and the options of the sockets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FabricOptions {
    /// Directory of the network's files.
    pub base: PathBuf,
    /// Name of the network.
    pub network: Name,
    /// Name of the guest.
    pub guest: Name,
    /// The secret that authorises this process to attach.
    pub secret: secret::Secret,
    /// Name of the congestion control of TCP sockets.
    pub congestion: String,
    /// Where the stack runs: in this process or in the guest's own process.
    pub attach: Attach,
}

impl FabricOptions {
    /// Attaches this process to the network, as the guest itself or as an application that uses the guest's stack. Returns an error
    /// of kind `Environment` if the network has ended, if another process already is this guest, or if the guest does not run.
    pub(crate) fn attach(&self) -> siga_model::error::Result<Attachment> {
        let Self { base, network, guest, secret, .. } = self;
        Ok(match self.attach {
            Attach::Embedded | Attach::Mixed | Attach::Netns => Attachment::embedded_at(base, network, guest, secret)?,
            Attach::Iucv => Attachment::iucv_at(base, network, guest, secret)?,
        })
    }
}

/// Time between two calls of `tend` while the driver of a guest is idle between phases.
const TEND_GUEST_EVERY: Duration = Duration::from_millis(1);
/// The same for an application, whose stack runs in another process. There can be a thousand applications, which would use all CPUs with a
/// shorter time. The time is shorter than the time in which an application must agree to the end of a direct connection, 20 ms.
const TEND_APPLICATION_EVERY: Duration = Duration::from_millis(10);

/// The sockets of a guest; implements [`Sockets`].
#[derive(Debug)]
pub(crate) struct Fabric {
    attachment: Attachment,
    tend_every: Duration,
    poller: Poller,
    options: SocketOptions,
    tokens: HashMap<SocketId, Token>,
    news: Vec<SocketId>,
}

impl Waker for sockets::Waker {
    fn wake(&self) {
        Self::wake(self);
    }
}

/// A connection, or a datagram socket with a fixed peer.
#[derive(Debug)]
pub(crate) enum Socket {
    /// A TCP connection.
    Stream(TcpStream),
    /// A UDP socket with its peer.
    Datagrams(UdpSocket, SocketAddr),
}

/// A listening socket, or a datagram socket without a fixed peer.
#[derive(Debug)]
pub(crate) enum Listener {
    /// A TCP listener.
    Stream(TcpListener),
    /// A UDP socket that receives from any peer.
    Datagrams(UdpSocket),
}

impl Fabric {
    /// Makes the value that creates sockets for a process that has attached with these options. Returns an error if the stack does not
    /// have their congestion control, or if no descriptor is free.
    pub(crate) fn new(attachment: Attachment, from: &FabricOptions) -> io::Result<Self> {
        let poller = Poller::new(&attachment);
        let tend_every = match from.attach {
            Attach::Embedded | Attach::Mixed | Attach::Netns => TEND_GUEST_EVERY,
            Attach::Iucv => TEND_APPLICATION_EVERY,
        };
        let congestion = CongestionControl::by_name(&from.congestion).ok_or(io::ErrorKind::Unsupported)?;
        let options = SocketOptions { no_delay: true, congestion: Some(congestion), ..SocketOptions::default() };
        Ok(Self { attachment, tend_every, poller, options, tokens: HashMap::new(), news: Vec::new() })
    }
}

fn of_kernel() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a guest does not support sockets of the families AF_SMC and AF_UNIX")
}

fn not_of_this_kind() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "this type of socket does not support the operation")
}

impl Sockets for Fabric {
    type Socket = Socket;
    type Listener = Listener;

    fn listen(&mut self, at: &Endpoint, token: Token) -> io::Result<(Listener, Endpoint)> {
        let (id, listener, bound) = match at {
            Endpoint::Tcp(address) => {
                let socket = TcpListener::bind_with(&self.attachment, *address, &self.options)?;
                socket.set_nonblocking(true);
                let bound = Endpoint::Tcp(socket.local_addr()?);
                (socket.id(), Listener::Stream(socket), bound)
            }
            Endpoint::Udp(address) => {
                let socket = UdpSocket::bind(&self.attachment, *address)?;
                socket.set_nonblocking(true);
                let bound = Endpoint::Udp(socket.local_addr()?);
                (socket.id(), Listener::Datagrams(socket), bound)
            }
            Endpoint::Smc(_) | Endpoint::Unix(_) => return Err(of_kernel()),
        };
        self.tokens.insert(id, token);
        Ok((listener, bound))
    }

    fn accept(&mut self, listener: &Listener, token: Token) -> io::Result<Socket> {
        let Listener::Stream(listener) = listener else { return Err(not_of_this_kind()) };
        let (stream, _) = listener.accept()?;
        stream.set_nonblocking(true);
        self.tokens.insert(stream.id(), token);
        Ok(Socket::Stream(stream))
    }

    fn connect(&mut self, to: &Endpoint, token: Token) -> io::Result<Socket> {
        let (id, socket) = match to {
            Endpoint::Tcp(address) => {
                let stream = TcpStream::begin(&self.attachment, *address, &self.options)?;
                stream.set_nonblocking(true);
                (stream.id(), Socket::Stream(stream))
            }
            Endpoint::Udp(address) => {
                let any: IpAddr =
                    if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
                let socket = UdpSocket::bind(&self.attachment, SocketAddr::new(any, 0))?;
                socket.set_nonblocking(true);
                (socket.id(), Socket::Datagrams(socket, *address))
            }
            Endpoint::Smc(_) | Endpoint::Unix(_) => return Err(of_kernel()),
        };
        self.tokens.insert(id, token);
        if let Socket::Datagrams(..) = socket {
            // A new datagram socket is ready immediately, but the stack reports no event for it. So report it here.
            self.news.push(id);
        }
        Ok(socket)
    }

    fn connected(&mut self, socket: &Socket) -> io::Result<bool> {
        match socket {
            Socket::Stream(stream) => stream.is_connected(),
            Socket::Datagrams(..) => Ok(true),
        }
    }

    fn send(&mut self, socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
        match socket {
            Socket::Stream(stream) => (&*stream).write(bytes),
            Socket::Datagrams(socket, to) => socket.send_to(bytes, *to),
        }
    }

    fn receive(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
        match socket {
            Socket::Stream(stream) => (&*stream).read(buffer),
            Socket::Datagrams(socket, peer) => match socket.recv_from(buffer)? {
                (count, from) if from == *peer => Ok(count),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            },
        }
    }

    fn close(&mut self, socket: Socket) {
        let id = match &socket {
            Socket::Stream(stream) => stream.id(),
            Socket::Datagrams(socket, _) => socket.id(),
        };
        self.tokens.remove(&id);
    }

    fn receive_from(&mut self, listener: &Listener, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match listener {
            Listener::Datagrams(socket) => socket.recv_from(buffer),
            Listener::Stream(_) => Err(not_of_this_kind()),
        }
    }

    fn send_to(&mut self, listener: &Listener, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        match listener {
            Listener::Datagrams(socket) => socket.send_to(bytes, to),
            Listener::Stream(_) => Err(not_of_this_kind()),
        }
    }

    fn poll(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        let at_once = !self.news.is_empty() || timeout.is_some_and(|time| time.is_zero());
        if at_once {
            self.poller.look(&mut self.news)?;
        } else {
            self.poller.wait(&mut self.news, timeout)?;
        }
        for id in self.news.drain(..) {
            if let Some(token) = self.tokens.get(&id) {
                // The stack has no separate event for the end of a stream, so any event can mean the end. With `ended` set, a
                // driver receives again after it has received fewer bytes than fit into its buffer.
                ready.push(Ready { token: *token, ended: true });
            }
        }
        Ok(())
    }

    fn operations_wait(&self) -> bool {
        false
    }

    fn waker(&self) -> Arc<dyn Waker> {
        Arc::new(self.poller.waker())
    }

    fn tend(&mut self) -> Option<Duration> {
        self.attachment.tend();
        Some(self.tend_every)
    }
}
