//! The kernel's sockets: TCP, UDP and AF_UNIX streams, served by epoll or one at a time.
//!
//! *Epoll* mode serves any number of sockets from one thread, with edge-triggered readiness. *Direct* mode serves a single
//! socket with `send` and `recv` alone, as a server with one process per connection does. Both modes either block in the kernel
//! (`Waiting::Block`) or spin (`Waiting::Poll`).
//!
//! A blocking TCP socket in direct mode calls `recv` without a time limit. With a limit, the kernel would set the CPU's timer
//! at each sleep, which measurably slows a round trip. The waker ends the call with a signal. A signal that arrives just before
//! the call is lost, so the waker's caller repeats it until it has an effect. Where an operation needs a time limit, it is
//! `limits::WAIT_TIME_MAX`.

use super::{Endpoint, Ready, Sockets, Token, Waker};
use crate::socket::sockmap::Sockmap;
use crate::{limits, sys};
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
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

/// How the sockets are created and served.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KernelOptions {
    /// The waiting policy: block or poll.
    pub wait: Waiting,
    /// True for direct mode: one socket at a time, without epoll.
    pub direct: bool,
    /// Congestion control of every TCP socket. `None` keeps the host's default.
    pub congestion: Option<String>,
}

/// A factory of kernel sockets; implements [`Sockets`].
#[derive(Debug)]
pub struct Kernel {
    options: KernelOptions,
    epoll: OwnedFd,
    wake: Arc<KernelWaker>,
    sockmap: Option<Sockmap>,
    direct: Direct,
}

/// The socket that a factory in direct mode serves: its one connection, or its listener before a connection exists.
#[derive(Debug, Default)]
struct Direct {
    listener: Option<Token>,
    socket: Option<Token>,
}

const WAKE: u64 = u64::MAX;
const EVENTS_AT_ONCE: usize = 512;

/// Ends a `poll` with an eventfd, and a blocking operation with a signal.
#[derive(Debug)]
struct KernelWaker {
    event: OwnedFd,
    /// Id of the thread whose operations block. It is 0 if operations do not block, or before the first `poll`.
    thread: AtomicI32,
}

impl KernelWaker {
    /// Consumes the wake-ups. The eventfd is non-blocking, so this returns at once if there was no wake-up.
    fn clear(&self) {
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }
}

impl Waker for KernelWaker {
    fn wake(&self) {
        // Writing to an eventfd fails only if 2^64 - 1 wake-ups are unread.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        match self.thread.load(Ordering::Relaxed) {
            0 => {}
            thread => sys::interrupt(thread),
        }
    }
}

thread_local! {
    /// The id of this thread. It is cached because reading it needs a system call.
    static OWN_THREAD: i32 = rustix::thread::gettid().as_raw_nonzero().get();
}

impl Kernel {
    /// Makes a factory of kernel sockets. With a `sockmap`, the factory enters every connection into the map.
    ///
    /// # Errors
    /// Returns an error if no descriptor is free.
    pub fn new(options: KernelOptions, sockmap: Option<Sockmap>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &event, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        sys::allow_interrupts()?;
        let wake = Arc::new(KernelWaker { event, thread: AtomicI32::new(0) });
        Ok(Self { options, epoll, wake, sockmap, direct: Direct::default() })
    }

    fn blocking(&self) -> bool {
        self.options.direct && self.options.wait == Waiting::Block
    }

    fn flags(&self) -> SocketFlags {
        if self.blocking() { SocketFlags::CLOEXEC } else { SocketFlags::CLOEXEC | SocketFlags::NONBLOCK }
    }

    fn socket(&self, endpoint: &Endpoint) -> io::Result<OwnedFd> {
        let (family, kind) = match endpoint {
            Endpoint::Tcp(address) => (family(address), SocketType::STREAM),
            Endpoint::Udp(address) => (family(address), SocketType::DGRAM),
            Endpoint::Unix(_) => (AddressFamily::UNIX, SocketType::STREAM),
        };
        let socket = net::socket_with(family, kind, self.flags(), None)?;
        if let (Endpoint::Tcp(_), Some(congestion)) = (endpoint, &self.options.congestion) {
            sockopt::set_tcp_congestion(&socket, congestion)?;
        }
        // Accepted sockets inherit all these options from their listener.
        if matches!(endpoint, Endpoint::Tcp(_)) {
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        if self.blocking() {
            sockopt::set_socket_timeout(&socket, Timeout::Send, Some(limits::WAIT_TIME_MAX))?;
            // Without a time limit, `recv` would wait for ever for a lost datagram.
            if matches!(endpoint, Endpoint::Udp(_)) {
                sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(limits::WAIT_TIME_MAX))?;
            }
        }
        Ok(socket)
    }

    /// Waits until a waker ends the wait or the time is over.
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

    /// Enters an established TCP connection into the sockmap, if there is a sockmap. With `both`, waits until the peer has
    /// entered its end too. Until then data goes through TCP, and redirected data sent later would overtake it.
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
                    "the peer has not entered its end into the sockmap",
                ));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

fn family(address: &SocketAddr) -> AddressFamily {
    if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET }
}

fn abstract_name(name: &str) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

/// Waits for `event`, for at most `time`.
fn await_one(event: PollFd<'_>, time: Duration) -> io::Result<()> {
    match poll(&mut [event], Some(&timespec(time))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn timespec(time: Duration) -> Timespec {
    // A `time` that does not fit does not occur in practice. One second is a safe substitute, because every caller repeats its
    // wait.
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
}

/// Converts `error`. Each errno that means "not yet" becomes `WouldBlock`; a blocking connect that timed out returns
/// EINPROGRESS.
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
            Endpoint::Tcp(address) => {
                sockopt::set_socket_reuseaddr(&socket, true)?;
                net::bind(&socket, address)?;
                net::listen(&socket, limits::BACKLOG)?;
                Endpoint::Tcp(SocketAddr::try_from(net::getsockname(&socket)?)?)
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
            // Waiting for a second connection would block the existing connection.
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
            Endpoint::Tcp(address) | Endpoint::Udp(address) => net::connect(&socket, address),
            // A connect to an AF_UNIX socket is abandoned when a signal interrupts it, so it is repeated.
            Endpoint::Unix(name) => rustix::io::retry_on_intr(|| net::connect(&socket, &abstract_name(name)?)),
        };
        match outcome {
            // A TCP connection attempt continues in the background when a signal interrupts the call.
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
