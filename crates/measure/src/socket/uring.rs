//! The kernel's TCP sockets for workload drivers, served with io_uring(7): requests stay in force for all further connections and
//! bytes (multishot), and one system call gives all requests of a turn to the kernel and waits for completions.
//!
//! The trait [`Sockets`] describes readiness, and io_uring reports completions. So `send` takes the bytes over, and the next `poll`
//! sends them; until they are sent, `send` returns `WouldBlock`. Received bytes wait in the ring's buffers until `receive` copies
//! them out. Sockets are in blocking mode, because io_uring fails requests on non-blocking sockets instead of waiting.

use super::kernel::{KernelOptions, KernelWaker, open};
use super::{Endpoint, Ready, Sockets, Token, Waker};
use crate::limits;
use crate::sys::uring::{Completion, Outcome, Request, Ring};
use rustix::net::{self, SocketFlags, sockopt};
use siga_model::waiting::Waiting;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of bytes that one `send` takes over.
const SEND_BYTES_MAX: usize = 65_536;

/// Creates and serves TCP sockets with io_uring; implements [`Sockets`].
#[derive(Debug)]
pub struct Uring {
    options: KernelOptions,
    wake: Arc<KernelWaker>,
    /// Made by the first `poll`, because only the thread that makes the ring may use it.
    ring: Option<Ring>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Slots with requests for the next `poll`.
    due: Vec<usize>,
    accepted: VecDeque<OwnedFd>,
    /// Sockets on which the driver can proceed, found while the driver was idle.
    found: Vec<Ready>,
}

/// A socket of [`Uring`].
#[derive(Debug)]
pub struct Socket(usize);

#[derive(Debug, Default)]
struct Slot {
    token: Option<Token>,
    descriptor: Option<OwnedFd>,
    stage: Stage,
    is_due: bool,
    /// True while the kernel receives for this slot.
    is_receiving: bool,
    is_connecting: bool,
    is_sending: bool,
    /// `send` has returned `WouldBlock`, so the driver waits for the end of the send request.
    is_refused: bool,
    /// Bytes for the next `poll` to send.
    staged: Vec<u8>,
    /// Buffers with received bytes, and the number of bytes of the first that `receive` has copied.
    arrived: VecDeque<u16>,
    offset: usize,
    /// The peer has ended its stream.
    has_ended: bool,
    error: Option<io::Error>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The slot is free.
    #[default]
    Free,
    /// A listener, before and after its accept request.
    Listener,
    /// The connect request is to be queued.
    ToConnect(SocketAddr),
    Connecting,
    Connected,
    /// The driver has closed the socket; its close request is to be queued.
    ToClose,
    Closing,
}

/// Time between two looks at requests while the driver is idle.
const TEND_PAUSE: Duration = Duration::from_millis(1);

/// Slot of the event counter that wakes the driver.
const WAKE: usize = usize::MAX >> 4;

impl Uring {
    /// Makes the value that creates and serves sockets.
    ///
    /// # Errors
    /// Returns an error if no descriptor is free.
    pub fn new(options: KernelOptions) -> io::Result<Self> {
        Ok(Self {
            options,
            wake: Arc::new(KernelWaker::new()?),
            ring: None,
            slots: Vec::new(),
            free: Vec::new(),
            due: Vec::new(),
            accepted: VecDeque::new(),
            found: Vec::new(),
        })
    }

    fn add(&mut self, descriptor: OwnedFd, token: Token, stage: Stage) -> Socket {
        let slot = Slot { token: Some(token), descriptor: Some(descriptor), stage, ..Slot::default() };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.plan(at);
        Socket(at)
    }

    /// Makes the next `poll` look at the slot.
    fn plan(&mut self, at: usize) {
        if let Some(slot) = self.slots.get_mut(at)
            && !mem::replace(&mut slot.is_due, true)
        {
            self.due.push(at);
        }
    }

    /// Queues the requests of all slots that are due. A slot that waits for a free buffer stays due.
    fn request(&mut self, ring: &mut Ring) {
        for at in mem::take(&mut self.due) {
            let slot = &mut self.slots[at];
            slot.is_due = false;
            let Some(descriptor) = &slot.descriptor else { continue };
            let descriptor = descriptor.as_fd();
            match slot.stage {
                Stage::Listener if !slot.is_receiving => {
                    ring.accept(descriptor, at);
                    slot.is_receiving = true;
                }
                Stage::ToConnect(to) => {
                    ring.connect(descriptor, at, &to);
                    slot.stage = Stage::Connecting;
                    slot.is_connecting = true;
                }
                Stage::Connected => {
                    if !slot.staged.is_empty() && !slot.is_sending {
                        ring.send(descriptor, at, &slot.staged, false);
                        slot.staged.clear();
                        slot.is_sending = true;
                    }
                    if !slot.is_receiving && !slot.has_ended && slot.error.is_none() {
                        if ring.has_free_buffer() {
                            ring.receive(descriptor, at);
                            slot.is_receiving = true;
                        } else {
                            slot.is_due = true;
                            self.due.push(at);
                        }
                    }
                }
                // A send that is in progress has to end first. Its completion makes the slot due again.
                Stage::ToClose if !slot.is_sending => {
                    if !slot.staged.is_empty() {
                        ring.send(descriptor, at, &slot.staged, true);
                        slot.staged.clear();
                        slot.is_sending = true;
                    }
                    if slot.is_receiving || slot.is_connecting {
                        // The request refers to the socket, so that the kernel would not end the connection at its close.
                        ring.shutdown(descriptor, at);
                    }
                    ring.close(descriptor, at);
                    slot.stage = Stage::Closing;
                }
                Stage::Free | Stage::Listener | Stage::Connecting | Stage::ToClose | Stage::Closing => {}
            }
        }
    }

    /// Takes all completions in, and appends the sockets on which the driver can proceed to `ready`. Returns true if the waker has
    /// woken the driver.
    fn collect(&mut self, ring: &mut Ring, ready: &mut Vec<Ready>) -> bool {
        let mut is_woken = false;
        while let Some(completion) = ring.completion() {
            if completion.slot == WAKE {
                self.wake.clear();
                is_woken = true;
                if !completion.more {
                    ring.watch(self.wake.event(), WAKE);
                }
                continue;
            }
            self.complete(ring, completion, ready);
        }
        is_woken
    }

    fn complete(&mut self, ring: &mut Ring, completion: Completion, ready: &mut Vec<Ready>) {
        let Completion { slot: at, request, outcome, more } = completion;
        let Some(slot) = self.slots.get_mut(at) else { return };
        match (request, outcome) {
            (Request::Accept, outcome) => {
                slot.is_receiving = more;
                match outcome {
                    Outcome::Accepted(socket) => self.accepted.push_back(socket),
                    Outcome::Failed(error) => slot.error = Some(error),
                    Outcome::Done | Outcome::Received(_) => {}
                }
            }
            (Request::Connect, outcome) => {
                slot.is_connecting = false;
                match outcome {
                    Outcome::Failed(error) => slot.error = Some(error),
                    _ if slot.stage == Stage::Connecting => slot.stage = Stage::Connected,
                    Outcome::Done | Outcome::Accepted(_) | Outcome::Received(_) => {}
                }
            }
            (Request::Receive, outcome) => {
                slot.is_receiving = more;
                match outcome {
                    Outcome::Received(buffer) if matches!(slot.stage, Stage::Connected) => {
                        slot.arrived.push_back(buffer);
                    }
                    Outcome::Received(buffer) => ring.recycle(buffer),
                    // No buffer was free.
                    Outcome::Failed(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                    Outcome::Failed(error) => slot.error = Some(error),
                    Outcome::Done | Outcome::Accepted(_) => slot.has_ended = true,
                }
            }
            (Request::Send, outcome) => {
                slot.is_sending = false;
                if let Outcome::Failed(error) = outcome {
                    slot.error = Some(error);
                } else if slot.stage == Stage::Connected && !mem::take(&mut slot.is_refused) {
                    return;
                }
            }
            (Request::Close, outcome) => {
                // The kernel has closed the descriptor, so it must not be closed again.
                let descriptor = slot.descriptor.take();
                if !matches!(outcome, Outcome::Failed(_)) {
                    descriptor.map(std::os::fd::IntoRawFd::into_raw_fd);
                }
            }
            (Request::Shutdown | Request::Watch, _) => {}
        }
        let slot = &mut self.slots[at];
        if slot.stage == Stage::Closing {
            if slot.descriptor.is_none() && !slot.is_receiving && !slot.is_connecting && !slot.is_sending {
                *slot = Slot::default();
                self.free.push(at);
            }
            return;
        }
        if let Some(token) = slot.token {
            ready.push(Ready { token, ended: slot.has_ended || slot.error.is_some() });
        }
        self.plan(at);
    }

    fn slot(&mut self, socket: &Socket) -> &mut Slot {
        &mut self.slots[socket.0]
    }
}

impl Sockets for Uring {
    type Socket = Socket;
    type Listener = Socket;

    fn listen(&mut self, at: &Endpoint, token: Token) -> io::Result<(Socket, Endpoint)> {
        let Endpoint::Tcp(address) = at else { return Err(io::ErrorKind::Unsupported.into()) };
        let socket = open(at, &self.options, SocketFlags::CLOEXEC)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        net::bind(&socket, address)?;
        net::listen(&socket, limits::BACKLOG)?;
        let bound = SocketAddr::try_from(net::getsockname(&socket)?)?;
        Ok((self.add(socket, token, Stage::Listener), Endpoint::Tcp(bound)))
    }

    fn accept(&mut self, listener: &Socket, token: Token) -> io::Result<Socket> {
        match self.accepted.pop_front() {
            Some(descriptor) => Ok(self.add(descriptor, token, Stage::Connected)),
            None => Err(self.slot(listener).error.take().unwrap_or_else(|| io::ErrorKind::WouldBlock.into())),
        }
    }

    fn connect(&mut self, to: &Endpoint, token: Token) -> io::Result<Socket> {
        let Endpoint::Tcp(address) = to else { return Err(io::ErrorKind::Unsupported.into()) };
        let socket = open(to, &self.options, SocketFlags::CLOEXEC)?;
        Ok(self.add(socket, token, Stage::ToConnect(*address)))
    }

    fn connected(&mut self, socket: &Socket) -> io::Result<bool> {
        let slot = self.slot(socket);
        match slot.error.take() {
            Some(error) => Err(error),
            None => Ok(slot.stage == Stage::Connected),
        }
    }

    fn send(&mut self, socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
        let slot = self.slot(socket);
        if let Some(error) = slot.error.take() {
            return Err(error);
        }
        if slot.is_sending || !slot.staged.is_empty() || slot.stage != Stage::Connected {
            slot.is_refused = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = bytes.len().min(SEND_BYTES_MAX);
        slot.staged.extend_from_slice(&bytes[..count]);
        self.plan(socket.0);
        Ok(count)
    }

    fn receive(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
        let slot = &mut self.slots[socket.0];
        let Some(ring) = &mut self.ring else { return Err(io::ErrorKind::WouldBlock.into()) };
        let mut count = 0;
        while let Some(&first) = slot.arrived.front()
            && count < buffer.len()
        {
            let bytes = &ring.bytes(first)[slot.offset..];
            let taken = bytes.len().min(buffer.len() - count);
            buffer[count..count + taken].copy_from_slice(&bytes[..taken]);
            count += taken;
            if taken < bytes.len() {
                slot.offset += taken;
            } else {
                slot.offset = 0;
                slot.arrived.pop_front();
                ring.recycle(first);
            }
        }
        if count > 0 || slot.has_ended && buffer.is_empty() {
            return Ok(count);
        }
        match slot.error.take() {
            Some(error) => Err(error),
            None if slot.has_ended => Ok(0),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn close(&mut self, socket: Socket) {
        let slot = &mut self.slots[socket.0];
        slot.stage = Stage::ToClose;
        slot.token = None;
        if let Some(ring) = &mut self.ring {
            slot.arrived.drain(..).for_each(|buffer| ring.recycle(buffer));
        }
        self.plan(socket.0);
    }

    fn receive_from(&mut self, _: &Socket, _: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn send_to(&mut self, _: &Socket, _: &[u8], _: SocketAddr) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn poll(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        ready.append(&mut self.found);
        let mut ring = match self.ring.take() {
            Some(ring) => ring,
            None => {
                let mut ring =
                    Ring::new().map_err(|error| io::Error::new(error.kind(), format!("io_uring: {error}")))?;
                ring.watch(self.wake.event(), WAKE);
                ring
            }
        };
        let outcome = self.turn(&mut ring, ready, timeout);
        self.ring = Some(ring);
        outcome
    }

    fn operations_wait(&self) -> bool {
        false
    }

    /// Sends the bytes that were taken over, because the peer waits for them at a quiescent point.
    fn tend(&mut self) -> Option<Duration> {
        let mut ring = self.ring.take()?;
        let mut found = mem::take(&mut self.found);
        // An error is that of the ring, and the next `poll` returns it.
        let _ = self.turn(&mut ring, &mut found, Some(Duration::ZERO));
        (self.ring, self.found) = (Some(ring), found);
        let is_busy = |slot: &Slot| slot.is_sending || !slot.staged.is_empty();
        self.slots.iter().any(is_busy).then_some(TEND_PAUSE)
    }

    fn waker(&self) -> Arc<dyn Waker> {
        Arc::<KernelWaker>::clone(&self.wake)
    }
}

impl Uring {
    /// Gives the requests to the kernel and takes completions in. Sends complete at once as a rule, so the first system call does
    /// not wait. If the driver can proceed nowhere, a second call waits.
    fn turn(&mut self, ring: &mut Ring, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        self.request(ring);
        ring.enter(None)?;
        let is_woken = self.collect(ring, ready);
        let may_wait = self.options.wait == Waiting::Block && timeout != Some(Duration::ZERO);
        if ready.is_empty() && !is_woken && may_wait {
            self.request(ring);
            ring.enter(Some(timeout))?;
            self.collect(ring, ready);
        }
        Ok(())
    }
}
