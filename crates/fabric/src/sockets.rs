//! Sockets over a guest's stack, for applications: blocking, or non-blocking with a [`Poller`].
//!
//! An [`Attachment`] is the application's part in a network; sockets are made by it and keep it alive. It may be used by
//! several threads. Where the stack is in this process (`embedded`), it moves while threads are in operations or waits.

pub(crate) mod embedded;
mod provider;
mod remote;
#[cfg(test)]
mod tests;

use crate::client::Client;
use crate::guest::Node;
use crate::isolate;
use crate::limits::{SLICE, START_TIME_MAX};
use crate::protocol::message::Order;
use crate::protocol::report::ReportPart;
use crate::protocol::secret::Secret;
use crate::rundir;
use embedded::Embedded;
use provider::Provider;
pub use provider::SocketId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net;
pub use siga_iucv::options::{CongestionControl, Readiness, SocketOptions};
use siga_iucv::options::{GroupChange, Interface};
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// An application's part in a network.
#[derive(Debug, Clone)]
pub struct Attachment(Arc<Shared>);

/// What threads share. A thread that is alone waits by the provider's policy, holding the provider. Once another wants it, it is
/// let go: of those that wait then, one sleeps on the descriptor and moves the provider when it wakes, the others sleep until
/// somebody has moved it.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    moved: Condvar,
    /// A copy of what the provider has, so that it can be waited for without holding the provider.
    descriptor: OwnedFd,
    call: Arc<Call>,
    /// Threads that want the provider while another has it.
    wanted: AtomicUsize,
    /// Whoever has the provider waits.
    waits: AtomicBool,
}

/// Ends a wait.
#[derive(Debug)]
struct Call {
    /// What the provider waits for too.
    event: Arc<OwnedFd>,
    /// It is meant for the poller, which returns.
    for_poller: AtomicBool,
}

impl Call {
    fn ring(&self) {
        // A write fails only where so many calls are unread that one more makes no difference.
        let _ = rustix::io::write(&*self.event, &1_u64.to_ne_bytes());
    }
}

#[derive(Debug)]
struct State {
    provider: Box<dyn Provider>,
    /// A thread sleeps on the descriptor.
    watched: bool,
    /// How many sleep until something has moved.
    followers: usize,
}

/// The provider, held.
struct Held<'a>(MutexGuard<'a, State>);

impl Deref for Held<'_> {
    type Target = dyn Provider;

    fn deref(&self) -> &Self::Target {
        &*self.0.provider
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.0.provider
    }
}

impl Attachment {
    /// Becomes an external guest of a network that is up: the stack runs in this process.
    ///
    /// # Errors
    /// There is no such network, the secret is not the guest's, or the guest is attached already.
    pub fn embedded(network: &Name, guest: &Name, secret: &Secret) -> Result<Self> {
        Self::embedded_at(&rundir::base()?, network, guest, secret)
    }

    /// The same for a network whose files lie below `base`.
    ///
    /// # Errors
    /// As [`Attachment::embedded`].
    pub fn embedded_at(base: &Path, network: &Name, guest: &Name, secret: &Secret) -> Result<Self> {
        isolate::hide()?;
        // As guests do; the host need not have it.
        let _ = siga_ring::sys::set_slice(u64::try_from(SLICE.as_nanos()).unwrap_or(u64::MAX));
        let mut channel = Client::connect_at(base, network)?.attach(guest, secret)?;
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
        let mut node = Node::new(config, channel, Some(listener))?;
        node.set_confinement("an application's process".to_owned());
        // Before, packets for partners would find nobody.
        let end = Instant::now() + START_TIME_MAX;
        while !node.runs() {
            if !node.iterate() {
                node.wait(Some(Duration::from_millis(100)));
            }
            if node.stops() || Instant::now() > end {
                return Err(Error::environment("the control program does not say who the partners are"));
            }
        }
        Self::new(Box::new(Embedded::new(node)))
    }

    /// What was counted: where the stack is in this process, its devices, their links, and the stack; else what is between this
    /// process and the guest.
    ///
    /// # Errors
    /// The attachment has ended.
    pub fn report(&self) -> io::Result<Vec<ReportPart>> {
        self.provider().report()
    }

    /// Moves whatever can be moved, without waiting: for a process whose sockets rest while others use them from afar.
    pub fn tend(&self) {
        self.work(&mut self.provider());
    }

    /// Uses the stack of a guest of a network that is up, with the secret of that guest's applications. The guest serves
    /// several, which wait as it does, and each moves by itself: what a process does not receive in time fills its arena, and no
    /// other's.
    ///
    /// # Errors
    /// There is no such network, the secret is not that of the guest's applications, the guest does not run, is external, or has
    /// as many applications as it may.
    pub fn iucv(network: &Name, guest: &Name, secret: &Secret) -> Result<Self> {
        Self::iucv_at(&rundir::base()?, network, guest, secret)
    }

    /// The same for a network whose files lie below `base`.
    ///
    /// # Errors
    /// As [`Attachment::iucv`].
    pub fn iucv_at(base: &Path, network: &Name, guest: &Name, secret: &Secret) -> Result<Self> {
        isolate::hide()?;
        // As guests do; the host need not have it.
        let _ = siga_ring::sys::set_slice(u64::try_from(SLICE.as_nanos()).unwrap_or(u64::MAX));
        let end = Client::connect_at(base, network)?.use_stack(guest, secret)?;
        Self::new(Box::new(siga_iucv::client::Client::new(end).context("out of descriptors")?))
    }

    fn new(mut provider: Box<dyn Provider>) -> Result<Self> {
        let descriptor = provider.descriptor().try_clone_to_owned().context("out of descriptors")?;
        let event = provider.wake().context("out of descriptors")?;
        let call = Arc::new(Call { event, for_poller: AtomicBool::new(false) });
        let state = Mutex::new(State { provider, watched: false, followers: 0 });
        let (wanted, waits) = (AtomicUsize::new(0), AtomicBool::new(false));
        Ok(Self(Arc::new(Shared { state, moved: Condvar::new(), descriptor, call, wanted, waits })))
    }

    fn provider(&self) -> Held<'_> {
        let Shared { state, call, wanted, waits, .. } = &*self.0;
        match state.try_lock() {
            Ok(state) => return Held(state),
            Err(TryLockError::Poisoned(state)) => return Held(state.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        // Whoever is about to wait sees the wish, or the wish sees the wait (see `wait`).
        wanted.fetch_add(1, Ordering::SeqCst);
        if waits.load(Ordering::SeqCst) {
            call.ring();
        }
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.fetch_sub(1, Ordering::SeqCst);
        Held(state)
    }

    fn is_wanted(&self) -> bool {
        self.0.wanted.load(Ordering::SeqCst) > 0
    }

    /// Has the provider move.
    fn work(&self, held: &mut Held<'_>) -> bool {
        let moved = held.work();
        self.tell_of_moves(held);
        moved
    }

    /// Whoever waits for the provider to move looks again.
    fn tell_of_moves(&self, held: &Held<'_>) {
        if held.0.watched {
            // What would have woken that thread may have been taken.
            self.0.call.ring();
        }
        if held.0.followers > 0 {
            self.0.moved.notify_all();
        }
    }

    /// Repeats an operation until it does not ask to wait, or the time is over.
    fn until<T>(
        &self,
        patience: Patience,
        mut operation: impl FnMut(&mut dyn Provider) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut provider = self.provider();
        match operation(&mut *provider) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && patience.blocking => {}
            outcome => return outcome,
        }
        let end = patience.limit.map(|limit| Instant::now() + limit);
        loop {
            self.work(&mut provider);
            match operation(&mut *provider) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            if let Some(why) = provider.ended() {
                return Err(why);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(ErrorKind::TimedOut.into());
            }
            provider = self.wait(provider, left)?;
        }
    }

    /// Waits until there may be something to do.
    fn wait<'a>(&'a self, mut held: Held<'a>, time: Option<Duration>) -> io::Result<Held<'a>> {
        if held.0.watched {
            return Ok(self.follow(held, time));
        }
        // Whoever follows wants the provider when its time is over, and does not say so.
        if self.is_wanted() || held.0.followers > 0 {
            return self.sleep(held, time);
        }
        self.0.waits.store(true, Ordering::SeqCst);
        if !self.is_wanted() {
            held.wait(time);
        }
        self.0.waits.store(false, Ordering::SeqCst);
        Ok(held)
    }

    /// Sleeps without holding the provider.
    fn sleep<'a>(&'a self, mut held: Held<'a>, time: Option<Duration>) -> io::Result<Held<'a>> {
        if !held.fall_asleep()? {
            drop(held);
            std::thread::yield_now();
            return Ok(self.provider());
        }
        held.0.watched = true;
        drop(held);
        let limit = time.and_then(|time| Timespec::try_from(time).ok());
        let woken = poll(&mut [PollFd::new(&self.0.descriptor, PollFlags::IN)], limit.as_ref());
        let mut held = self.provider();
        held.0.watched = false;
        // One of those that follow may have to watch from here on.
        if held.0.followers > 0 {
            self.0.moved.notify_all();
        }
        match woken {
            Ok(_) | Err(Errno::INTR) => Ok(held),
            Err(error) => Err(error.into()),
        }
    }

    /// Sleeps until another thread has moved the provider.
    fn follow<'a>(&'a self, mut held: Held<'a>, time: Option<Duration>) -> Held<'a> {
        held.0.followers += 1;
        let state = match time {
            None => self.0.moved.wait(held.0).unwrap_or_else(PoisonError::into_inner),
            Some(time) => self.0.moved.wait_timeout(held.0, time).unwrap_or_else(PoisonError::into_inner).0,
        };
        let mut held = Held(state);
        held.0.followers -= 1;
        held
    }
}

/// How an operation waits.
#[derive(Debug, Clone, Copy)]
struct Patience {
    blocking: bool,
    limit: Option<Duration>,
}

impl Default for Patience {
    fn default() -> Self {
        Self { blocking: true, limit: None }
    }
}

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
    /// it has no such addresses. `AddrInUse`: the socket is in the group there. `QuotaExceeded`: it, the network or the guest is in
    /// as many groups as can be, or so many sockets are in the group with that port.
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

/// Tells which sockets of an attachment can do what they could not before. One thread polls.
///
/// Who polls is to look again when it has seen to the news: where the process sleeps, what the stack has to answer (that it has got
/// a request, say) goes with what is sent to that, and with the next look at the latest, or the one after where it has accepted
/// something in between.
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
        self.work(&mut provider, news);
        provider.ended().map_or(Ok(()), Err)
    }

    fn work(&self, provider: &mut Held<'_>, news: &mut Vec<SocketId>) -> bool {
        let moved = provider.work_before_answers();
        self.attachment.tell_of_moves(provider);
        while let Some(socket) = provider.poll_event() {
            news.push(socket);
        }
        moved
    }

    /// A handle that ends a wait from another thread.
    pub fn waker(&self) -> Waker {
        Waker { call: Arc::clone(&self.attachment.0.call) }
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
            let busy = self.work(&mut provider, news);
            if self.attachment.0.call.for_poller.swap(false, Ordering::Acquire) || news.len() > before {
                return Ok(());
            }
            if let Some(why) = provider.ended() {
                return Err(why);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                // Whoever polls the descriptor next is woken by it.
                if busy || !provider.fall_asleep()? {
                    continue;
                }
                return Ok(());
            }
            provider = self.attachment.wait(provider, left)?;
        }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.attachment.0.descriptor.as_fd()
    }
}

/// Ends the wait of a [`Poller`], or the next one.
#[derive(Debug, Clone)]
pub struct Waker {
    call: Arc<Call>,
}

impl Waker {
    /// Ends it.
    pub fn wake(&self) {
        // The event's write and read order this before the look.
        self.call.for_poller.store(true, Ordering::Release);
        self.call.ring();
    }
}

/// Any address and port, of the IP version of another.
fn any(like: &SocketAddr) -> SocketAddr {
    let text = if like.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    text.parse().unwrap_or(*like)
}
