//! The kernel's sockets (TCP, AF_SMC, UDP and AF_UNIX streams) for workload drivers, with epoll or without it.
//!
//! *Epoll* mode serves any number of sockets from one thread, with edge-triggered readiness. *Direct* mode serves a single
//! socket with only `send` and `recv`, like a server with one process per connection. In both modes, a wait either blocks in
//! the kernel (`Waiting::Block`) or spins (`Waiting::Poll`).
//!
//! A blocking TCP socket in direct mode calls `recv` without a time limit. With a limit, the kernel would program the CPU's
//! timer for each sleep, which measurably slows a round trip. Instead, the waker ends the call with a signal. A signal that
//! arrives just before the call is lost, so callers of the waker repeat the call until the thread reacts. Operations that need
//! a time limit use `limits::WAIT_TIME_MAX`.

use super::{Endpoint, Ready, Sockets, Token, Waker, smc};
use crate::socket::sockmap::Sockmap;
use crate::{limits, sys};
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use siga_model::waiting::Waiting;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Options for creating and serving sockets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KernelOptions {
    /// The waiting policy: block or poll.
    pub wait: Waiting,
    /// True for direct mode: a single socket, without epoll.
    pub direct: bool,
    /// Congestion control of every TCP socket. `None` keeps the host's default.
    pub congestion: Option<String>,
    /// The largest segment of every TCP socket, in bytes. `None` leaves it to the path's MTU.
    pub segment_bytes: Option<u32>,
    /// True if io_uring serves the sockets, instead of epoll or single calls.
    pub io_uring: bool,
}

/// Creates and serves kernel sockets; implements [`Sockets`].
#[derive(Debug)]
pub struct Kernel {
    options: KernelOptions,
    epoll: OwnedFd,
    wake: Arc<KernelWaker>,
    sockmap: Option<Sockmap>,
    direct: Direct,
}

/// The token of the socket that is served in direct mode: the only connection, or the listener while there is no connection.
#[derive(Debug, Default)]
struct Direct {
    listener: Option<Token>,
    socket: Option<Token>,
}

const WAKE: u64 = u64::MAX;
const EVENTS_AT_ONCE: usize = 512;

/// The waker: it ends a `poll` with an eventfd, and a blocking operation with a signal.
#[derive(Debug)]
pub(super) struct KernelWaker {
    event: OwnedFd,
    /// Id of the thread whose operations block. It is 0 if operations do not block, or before the first `poll`.
    thread: AtomicI32,
}

impl KernelWaker {
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, thread: AtomicI32::new(0) })
    }

    /// The eventfd, which is readable while a wake-up is pending.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Consumes all pending wake-ups. The eventfd is non-blocking, so the read returns immediately if there is none.
    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }
}

impl Waker for KernelWaker {
    fn wake(&self) {
        // A write to an eventfd fails only if 2^64 - 1 wake-ups are unread.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        match self.thread.load(Ordering::Relaxed) {
            0 => {}
            thread => sys::interrupt(thread),
        }
    }
}

thread_local! {
    /// The id of this thread, cached because gettid is a system call.
    static OWN_THREAD: i32 = rustix::thread::gettid().as_raw_nonzero().get();
}

impl Kernel {
    /// Makes the value that creates and serves kernel sockets. If there is a `sockmap`, every TCP connection is entered into
    /// this map.
    ///
    /// # Errors
    /// Returns an error if no descriptor is free.
    pub fn new(options: KernelOptions, sockmap: Option<Sockmap>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = Arc::new(KernelWaker::new()?);
        epoll::add(&epoll, wake.event(), epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        sys::allow_interrupts()?;
        Ok(Self { options, epoll, wake, sockmap, direct: Direct::default() })
    }

    fn blocking(&self) -> bool {
        self.options.direct && self.options.wait == Waiting::Block
    }

    fn flags(&self) -> SocketFlags {
        if self.blocking() { SocketFlags::CLOEXEC } else { SocketFlags::CLOEXEC | SocketFlags::NONBLOCK }
    }

    fn socket(&self, endpoint: &Endpoint) -> io::Result<OwnedFd> {
        let socket = open(endpoint, &self.options, self.flags())?;
        if self.blocking() {
            sockopt::set_socket_timeout(&socket, Timeout::Send, Some(limits::WAIT_TIME_MAX))?;
            // UDP needs a time limit, because otherwise `recv` would wait for a lost datagram forever.
            if matches!(endpoint, Endpoint::Udp(_)) {
                sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(limits::WAIT_TIME_MAX))?;
            }
        }
        Ok(socket)
    }

    /// Waits until a waker ends the wait or `time` has passed.
    fn rest(&self, time: Duration) -> io::Result<()> {
        await_one(PollFd::new(&self.wake.event, PollFlags::IN), time)?;
        self.wake.clear();
        Ok(())
    }

    fn watch(&mut self, socket: &OwnedFd, token: Token) -> io::Result<()> {
        if self.options.direct {
            return Ok(());
        }
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(token.0 as u64), flags)?;
        Ok(())
    }

    /// Enters an established TCP connection into the sockmap, if there is one. If `both` is true, waits until the peer has
    /// entered its end too. Before that, data would go through TCP, and redirected data that is sent later could overtake it.
    fn enter(&self, socket: &OwnedFd, both: bool) -> io::Result<()> {
        let Some(sockmap) = &self.sockmap else { return Ok(()) };
        let local = SocketAddr::try_from(net::getsockname(socket)?)?.port();
        let remote = net::getpeername(socket)?.ok_or(Errno::NOTCONN)?;
        let remote = SocketAddr::try_from(remote)?.port();
        let other = |error: siga_model::error::Error| io::Error::other(error.to_string());
        sockmap.insert(socket.as_fd(), local, remote).map_err(other)?;
        let begun = Instant::now();
        while both && !sockmap.contains(remote, local).map_err(other)? {
            if begun.elapsed() > limits::STALL_TIME_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the peer has not added its socket to the sockmap",
                ));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Opens a socket and sets its options. Accepted sockets inherit them from their listener.
pub(super) fn open(endpoint: &Endpoint, options: &KernelOptions, flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = match endpoint {
        Endpoint::Tcp(address) => net::socket_with(family(address), SocketType::STREAM, flags, None),
        Endpoint::Smc(address) => smc::socket(address, flags),
        Endpoint::Udp(address) => net::socket_with(family(address), SocketType::DGRAM, flags, None),
        Endpoint::Unix(_) => net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None),
    }?;
    if let (Endpoint::Tcp(_), Some(congestion)) = (endpoint, &options.congestion) {
        sockopt::set_tcp_congestion(&socket, congestion)?;
    }
    if let (Endpoint::Tcp(_), Some(bytes)) = (endpoint, options.segment_bytes) {
        sys::set_segment_bytes(&socket, bytes)?;
    }
    if matches!(endpoint, Endpoint::Tcp(_) | Endpoint::Smc(_)) {
        sockopt::set_tcp_nodelay(&socket, true)?;
    }
    Ok(socket)
}

fn family(address: &SocketAddr) -> AddressFamily {
    if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET }
}

fn abstract_name(name: &str) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

/// Waits until poll(2) reports `event`, for at most `time`.
fn await_one(event: PollFd<'_>, time: Duration) -> io::Result<()> {
    match poll(&mut [event], Some(&timespec(time))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn timespec(time: Duration) -> Timespec {
    // In practice, `time` always fits into a `Timespec`. One second is a safe substitute, because every caller repeats its
    // wait.
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
}

/// Converts an errno. If it means that the operation cannot proceed yet, returns `WouldBlock`. One of these is EINPROGRESS,
/// which a blocking connect returns after its time limit.
fn retry_or(error: Errno) -> io::Error {
    match error {
        Errno::AGAIN | Errno::INTR | Errno::INPROGRESS => io::ErrorKind::WouldBlock.into(),
        other => other.into(),
    }
}

impl Sockets for Kernel {
    type Socket = OwnedFd;
    type Listener = OwnedFd;

    fn listen(&mut self, at: &Endpoint, token: Token) -> io::Result<(OwnedFd, Endpoint)> {
        let socket = self.socket(at)?;
        let bound = match at {
            Endpoint::Tcp(address) | Endpoint::Smc(address) => {
                sockopt::set_socket_reuseaddr(&socket, true)?;
                net::bind(&socket, address)?;
                net::listen(&socket, limits::BACKLOG)?;
                let bound = SocketAddr::try_from(net::getsockname(&socket)?)?;
                if matches!(at, Endpoint::Smc(_)) { Endpoint::Smc(bound) } else { Endpoint::Tcp(bound) }
            }
            Endpoint::Udp(address) => {
                net::bind(&socket, address)?;
                Endpoint::Udp(SocketAddr::try_from(net::getsockname(&socket)?)?)
            }
            Endpoint::Unix(name) => {
                net::bind(&socket, &abstract_name(name)?)?;
                net::listen(&socket, limits::BACKLOG)?;
                at.clone()
            }
        };
        self.watch(&socket, token)?;
        self.direct.listener = Some(token);
        Ok((socket, bound))
    }

    fn accept(&mut self, listener: &OwnedFd, token: Token) -> io::Result<OwnedFd> {
        if self.options.direct && self.direct.socket.is_some() {
            // Do not call accept: it would block until a second connection arrives, and the existing connection would not be
            // served.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let socket = net::accept_with(listener, self.flags()).map_err(retry_or)?;
        self.enter(&socket, false)?;
        self.watch(&socket, token)?;
        self.direct.socket = Some(token);
        Ok(socket)
    }

    fn connect(&mut self, to: &Endpoint, token: Token) -> io::Result<OwnedFd> {
        let socket = self.socket(to)?;
        let outcome = match to {
            Endpoint::Tcp(address) | Endpoint::Smc(address) | Endpoint::Udp(address) => net::connect(&socket, address),
            // If a signal interrupts a connect to an AF_UNIX socket, the kernel abandons the attempt, so repeat it.
            Endpoint::Unix(name) => rustix::io::retry_on_intr(|| net::connect(&socket, &abstract_name(name)?)),
        };
        match outcome {
            // If a signal interrupts the connect of a TCP socket, the kernel continues the attempt in the background.
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.watch(&socket, token)?;
        self.direct.socket = Some(token);
        Ok(socket)
    }

    fn connected(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        match net::getpeername(socket) {
            Ok(Some(_)) => {}
            Ok(None) | Err(Errno::NOTCONN) => {
                sockopt::socket_error(socket)??;
                if self.blocking() {
                    await_one(PollFd::new(socket, PollFlags::OUT), limits::WAIT_TIME_MAX)?;
                }
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        self.enter(socket, true)?;
        Ok(true)
    }

    fn close(&mut self, socket: OwnedFd) {
        self.direct.socket = None;
        drop(socket);
    }

    fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
        net::send(socket, bytes, SendFlags::NOSIGNAL).map_err(retry_or)
    }

    fn receive(&mut self, socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
        let (count, _) = net::recv(socket, buffer, RecvFlags::empty()).map_err(retry_or)?;
        Ok(count)
    }

    fn receive_from(&mut self, listener: &OwnedFd, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (count, _, from) = net::recvfrom(listener, buffer, RecvFlags::empty()).map_err(retry_or)?;
        Ok((count, SocketAddr::try_from(from.ok_or(Errno::DESTADDRREQ)?)?))
    }

    fn send_to(&mut self, listener: &OwnedFd, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        net::sendto(listener, bytes, SendFlags::NOSIGNAL, &to).map_err(retry_or)
    }

    fn poll(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        if self.options.direct {
            if self.blocking() {
                self.wake.thread.store(OWN_THREAD.with(|thread| *thread), Ordering::Relaxed);
            }
            if let Some(time) = timeout.filter(|time| self.blocking() && !time.is_zero()) {
                self.rest(time)?;
            }
            if let Some(token) = self.direct.socket.or(self.direct.listener) {
                ready.push(Ready { token, ended: true });
            }
            return Ok(());
        }
        let timeout = match self.options.wait {
            Waiting::Poll => Some(Duration::ZERO),
            Waiting::Block | Waiting::Adaptive => timeout,
        };
        let timeout = timeout.map(timespec);
        let mut space = [const { MaybeUninit::uninit() }; EVENTS_AT_ONCE];
        let events = match epoll::wait(&self.epoll, &mut space[..], timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in events.iter() {
            let (data, flags) = (event.data.u64(), event.flags);
            if data == WAKE {
                self.wake.clear();
                continue;
            }
            let end = epoll::EventFlags::HUP | epoll::EventFlags::ERR | epoll::EventFlags::RDHUP;
            let token = Token(usize::try_from(data).unwrap_or(usize::MAX));
            ready.push(Ready { token, ended: flags.intersects(end) });
        }
        Ok(())
    }

    fn operations_wait(&self) -> bool {
        self.blocking()
    }

    fn tend(&mut self) -> Option<Duration> {
        None
    }

    fn waker(&self) -> Arc<dyn Waker> {
        Arc::<KernelWaker>::clone(&self.wake)
    }
}
