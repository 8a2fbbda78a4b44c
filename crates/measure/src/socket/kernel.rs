//! The kernel's sockets: TCP, UDP and AF_UNIX streams, over epoll or one at a time.
//!
//! *Epoll* serves any number of sockets from one thread, edge-triggered. *Direct* serves a single socket with `send`
//! and `recv` alone, as a process per connection does. Either waits in the kernel (`Waiting::Block`) or spins
//! (`Waiting::Poll`). A blocking direct socket waits in `recv` without a time limit: a limit would set the CPU's
//! timer at each sleep, which shows in a round trip. Its waker ends the call by a signal; a signal just before the
//! call is lost, so the waker repeats it until it has an effect. Where a limit is needed it is
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

/// How the sockets are made and served.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KernelOptions {
    /// Block or poll.
    pub wait: Waiting,
    /// One socket at a time without epoll.
    pub direct: bool,
    /// Congestion control of every TCP socket; `None` keeps the host's.
    pub congestion: Option<String>,
}

/// The kernel's sockets behind [`Sockets`].
#[derive(Debug)]
pub struct Kernel {
    options: KernelOptions,
    epoll: OwnedFd,
    wake: Arc<KernelWaker>,
    sockmap: Option<Sockmap>,
    direct: Direct,
}

/// The socket of a direct factory: its one connection, or its listener while there is none.
#[derive(Debug, Default)]
struct Direct {
    listener: Option<Token>,
    socket: Option<Token>,
}

const WAKE: u64 = u64::MAX;
const EVENTS_AT_ONCE: usize = 512;

/// Wakes a poll by an eventfd, and an operation that waits by a signal.
#[derive(Debug)]
struct KernelWaker {
    event: OwnedFd,
    /// The thread that waits in operations; 0 while none does.
    thread: AtomicI32,
}

impl KernelWaker {
    /// Consumes the wake-ups. The descriptor does not block: without a wake-up there is nothing to consume.
    fn clear(&self) {
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }
}

impl Waker for KernelWaker {
    fn wake(&self) {
        // An eventfd write fails only at 2^64 - 1 unread wake-ups.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        match self.thread.load(Ordering::Relaxed) {
            0 => {}
            thread => sys::interrupt(thread),
        }
    }
}

thread_local! {
    /// Read once: the answer costs a system call.
    static OWN_THREAD: i32 = rustix::thread::gettid().as_raw_nonzero().get();
}

impl Kernel {
    /// Makes a factory of sockets; with a `sockmap`, every connection is entered into it.
    ///
    /// # Errors
    /// Out of descriptors.
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
        // Accepted sockets inherit all of this from their listener.
        if matches!(endpoint, Endpoint::Tcp(_)) {
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        if self.blocking() {
            sockopt::set_socket_timeout(&socket, Timeout::Send, Some(limits::WAIT_TIME_MAX))?;
            // A lost datagram must be noticed.
            if matches!(endpoint, Endpoint::Udp(_)) {
                sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(limits::WAIT_TIME_MAX))?;
            }
        }
        Ok(socket)
    }

    /// Waits until a waker wakes it or the time is over.
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

    /// Enters an established TCP connection into the sockmap, if there is one. With `both`, it waits until the other
    /// end is in the map too: bytes sent before use TCP, and bytes sent after would overtake them.
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

/// Waits for one event, for `time` at most.
fn await_one(event: PollFd<'_>, time: Duration) -> io::Result<()> {
    match poll(&mut [event], Some(&timespec(time))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn timespec(time: Duration) -> Timespec {
    // A longer time than fits is longer than any wait.
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
}

/// `WouldBlock` for "not yet", for every errno that means it; a blocking connect that timed out returns EINPROGRESS.
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
            // Waiting for another connection would block the existing one.
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
            // This call has to be repeated after an interruption.
            Endpoint::Unix(name) => rustix::io::retry_on_intr(|| net::connect(&socket, &abstract_name(name)?)),
        };
        match outcome {
            // A connection attempt continues after an interruption.
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
