//! Sockets over a guest's stack, for applications: blocking, or non-blocking with a [`Poller`].
//!
//! An [`Attachment`] is the application's part in a network; sockets are made by it and keep it alive. It may be used by
//! several threads. Where the stack is in this process (`embedded`), it moves while threads are in operations or waits.

mod embedded;
mod provider;

use crate::client::Client;
use crate::error::{Error, IoContext, Result};
use crate::isolate;
use crate::limits::{SLICE, START_TIME_MAX};
use crate::message::{Order, ReportPart, Token};
use crate::name::Name;
use crate::node::Node;
use crate::{rundir, sys};
use embedded::Embedded;
use provider::Provider;
pub use provider::{Readiness, SocketId, SocketOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net;
use siga_stack::tcp::Heap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An application's part in a network.
#[derive(Debug, Clone)]
pub struct Attachment {
    provider: Arc<Mutex<Box<dyn Provider>>>,
    /// A copy of what the provider has, so that it can be waited for without holding the provider.
    descriptor: Arc<OwnedFd>,
}

impl Attachment {
    /// Becomes an external guest of a network that is up: the stack runs in this process.
    ///
    /// # Errors
    /// There is no such network, the token is not the guest's, or the guest is attached already.
    pub fn embedded(network: &Name, guest: &Name, token: &Token) -> Result<Self> {
        Self::embedded_at(&rundir::base(), network, guest, token)
    }

    /// The same for a network whose files lie below `base`.
    ///
    /// # Errors
    /// As [`Attachment::embedded`].
    pub fn embedded_at(base: &Path, network: &Name, guest: &Name, token: &Token) -> Result<Self> {
        isolate::hide()?;
        // As guests do; the host need not have it.
        let _ = sys::set_slice(u64::try_from(SLICE.as_nanos()).unwrap_or(u64::MAX));
        let mut channel = Client::connect_at(base, network)?.attach(guest, token)?;
        let time = Timespec::try_from(START_TIME_MAX).context("the time to start")?;
        poll(&mut [PollFd::new(&channel, PollFlags::IN)], Some(&time))
            .context("cannot wait for the control program")?;
        let (config, listener) = match channel.receive::<Order>() {
            Ok(Some((Order::Configure(config), mut descriptors))) if descriptors.len() == 1 => {
                (*config, descriptors.remove(0))
            }
            _ => return Err(Error::environment("the control program did not say what guest this is")),
        };
        net::listen(&listener, 4).context("cannot listen for a later control program")?;
        let mut node = Node::<Heap>::new(config, channel, Some(listener))?;
        node.set_confinement("an application's process".to_owned());
        // Before, packets for partners would find nobody.
        let end = Instant::now() + START_TIME_MAX;
        while !node.runs() {
            if !node.pass() {
                node.wait(Some(Duration::from_millis(100)));
            }
            if node.stops() || Instant::now() > end {
                return Err(Error::environment("the control program does not say who the partners are"));
            }
        }
        Self::new(Box::new(Embedded::new(node)))
    }

    /// What the guest's stack has counted: its devices, their links, the stack.
    ///
    /// # Errors
    /// The attachment has ended.
    pub fn report(&self) -> io::Result<Vec<ReportPart>> {
        self.provider().report()
    }

    /// Moves whatever can be moved, without waiting: for a process whose sockets rest while others use them from afar.
    pub fn tend(&self) {
        self.provider().work();
    }

    fn new(provider: Box<dyn Provider>) -> Result<Self> {
        let descriptor = provider.descriptor().try_clone_to_owned().context("out of descriptors")?;
        Ok(Self { provider: Arc::new(Mutex::new(provider)), descriptor: Arc::new(descriptor) })
    }

    fn provider(&self) -> MutexGuard<'_, Box<dyn Provider>> {
        self.provider.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Repeats an operation until it does not ask to wait, or the time is over.
    fn until<T>(&self, wait: Waiting, mut operation: impl FnMut(&mut dyn Provider) -> io::Result<T>) -> io::Result<T> {
        let mut provider = self.provider();
        match operation(&mut **provider) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && wait.blocking => {}
            outcome => return outcome,
        }
        let end = wait.limit.map(|limit| Instant::now() + limit);
        loop {
            provider.work();
            match operation(&mut **provider) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            if provider.ended() {
                return Err(gone_down());
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(ErrorKind::TimedOut.into());
            }
            if Arc::strong_count(&self.provider) > 2 {
                // Other sockets may be in the hands of other threads, which are not to be held up.
                self.sleep(provider, left)?;
                provider = self.provider();
            } else {
                provider.wait(left);
            }
        }
    }

    fn sleep(&self, mut provider: MutexGuard<'_, Box<dyn Provider>>, time: Option<Duration>) -> io::Result<()> {
        let asleep = provider.fall_asleep()?;
        drop(provider);
        if !asleep {
            return Ok(());
        }
        let limit = time.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// How an operation waits.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    blocking: bool,
    limit: Option<Duration>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { blocking: true, limit: None }
    }
}

/// A socket of an attachment; it is closed when it is dropped.
#[derive(Debug)]
struct Handle {
    attachment: Attachment,
    id: SocketId,
    waiting: Mutex<Waiting>,
}

impl Handle {
    fn new(attachment: &Attachment, id: SocketId) -> Self {
        Self { attachment: attachment.clone(), id, waiting: Mutex::default() }
    }

    fn waiting(&self) -> Waiting {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_waiting(&self, change: impl FnOnce(&mut Waiting)) {
        change(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn until<T>(&self, operation: impl FnMut(&mut dyn Provider) -> io::Result<T>) -> io::Result<T> {
        self.attachment.until(self.waiting(), operation)
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
                self.0.set_waiting(|waiting| waiting.blocking = !nonblocking);
            }

            /// How long operations wait before they answer `TimedOut`; at first without end.
            pub fn set_timeout(&self, limit: Option<Duration>) {
                self.0.set_waiting(|waiting| waiting.limit = limit);
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
}

/// Tells which sockets of an attachment can do what they could not before. One thread polls.
///
/// It can be used inside another event loop: its descriptor is readable when [`Poller::wait`] has something to do, once
/// `wait` has been called and told of nothing.
#[derive(Debug)]
pub struct Poller {
    attachment: Attachment,
}

impl Poller {
    /// A poller of all sockets of an attachment.
    pub fn new(attachment: &Attachment) -> Self {
        Self { attachment: attachment.clone() }
    }

    /// Appends the sockets with news without waiting, and without asking anybody to wake this process.
    ///
    /// # Errors
    /// The network has gone down.
    pub fn look(&self, news: &mut Vec<SocketId>) -> io::Result<()> {
        let mut provider = self.attachment.provider();
        provider.work();
        while let Some(socket) = provider.poll_news() {
            news.push(socket);
        }
        if provider.ended() { Err(gone_down()) } else { Ok(()) }
    }

    /// A handle that ends a wait from another thread.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn waker(&self) -> io::Result<Waker> {
        Ok(Waker { event: self.attachment.provider().wake()? })
    }

    /// Appends the sockets with news, at least one unless the time is over or somebody ends the wait. None waits without end.
    ///
    /// # Errors
    /// The network has gone down.
    pub fn wait(&self, news: &mut Vec<SocketId>, time: Option<Duration>) -> io::Result<()> {
        let end = time.map(|time| Instant::now() + time);
        let mut provider = self.attachment.provider();
        loop {
            let before = news.len();
            let busy = provider.work();
            while let Some(socket) = provider.poll_news() {
                news.push(socket);
            }
            if provider.take_woken() || news.len() > before {
                return Ok(());
            }
            if provider.ended() {
                return Err(gone_down());
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                // Whoever polls the descriptor next is woken by it.
                if busy || !provider.fall_asleep()? {
                    continue;
                }
                return Ok(());
            }
            provider.wait(left);
        }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.attachment.descriptor.as_fd()
    }
}

/// Ends the wait of a [`Poller`], or the next one.
#[derive(Debug, Clone)]
pub struct Waker {
    event: Arc<OwnedFd>,
}

impl Waker {
    /// Ends it.
    pub fn wake(&self) {
        // A write fails only where so many wake-ups are unread that one more makes no difference.
        let _ = rustix::io::write(&*self.event, &1u64.to_ne_bytes());
    }
}

fn gone_down() -> io::Error {
    io::Error::new(ErrorKind::NotConnected, "the network has gone down")
}

/// Any address and port, of the IP version of another.
fn any(like: &SocketAddr) -> SocketAddr {
    let text = if like.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    text.parse().unwrap_or(*like)
}
