//! The carriers of the benchmarks. A carrier is a ring, a pipe or a UNIX socket that transfers frames of one size between two
//! processes. Each end blocks or polls.

use crate::BUFFERS;
use crate::support::{self, Alone, LinkError, Other};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, read, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use siga_ring::wait::policy::Mode;
use siga_ring::wait::{Sources, Waiter};
use siga_ring::{Link, Shape};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The size of a pipe: the largest that Linux allows a user without privilege.
const PIPE_BYTES: usize = 1 << 20;

/// The kind of carrier, and how both ends wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ring { mode: Mode, packed: bool },
    Pipe { polling: bool },
    Socket { polling: bool },
}

impl Kind {
    pub(crate) const ALL: [Self; 10] = [
        Self::Ring { mode: Mode::Poll, packed: false },
        Self::Ring { mode: Mode::Poll, packed: true },
        Self::Ring { mode: Mode::Adaptive, packed: false },
        Self::Ring { mode: Mode::Adaptive, packed: true },
        Self::Ring { mode: Mode::Block, packed: false },
        Self::Ring { mode: Mode::Block, packed: true },
        Self::Pipe { polling: true },
        Self::Pipe { polling: false },
        Self::Socket { polling: true },
        Self::Socket { polling: false },
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ring { mode: Mode::Poll, packed: false } => "ring-polling",
            Self::Ring { mode: Mode::Poll, packed: true } => "ring-packed-polling",
            Self::Ring { mode: Mode::Adaptive, packed: false } => "ring-adaptive",
            Self::Ring { mode: Mode::Adaptive, packed: true } => "ring-packed-adaptive",
            Self::Ring { mode: Mode::Block, packed: false } => "ring-blocking",
            Self::Ring { mode: Mode::Block, packed: true } => "ring-packed-blocking",
            Self::Pipe { polling: true } => "pipe-polling",
            Self::Pipe { polling: false } => "pipe-blocking",
            Self::Socket { polling: true } => "unix-polling",
            Self::Socket { polling: false } => "unix-blocking",
        }
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|kind| kind.name() == name).expect("a kind that there is")
    }

    pub(crate) fn is_packed(self) -> bool {
        matches!(self, Self::Ring { packed: true, .. })
    }
}

/// One end of a carrier.
pub(crate) struct Carrier {
    wire: Wire,
    /// The frame to send, and the last received frame (`into`). A first byte of 1 asks for an answer.
    out: Vec<u8>,
    into: Vec<u8>,
    /// The process at the other end, if this end started it. Dropping the value ends the process.
    _other: Option<Other>,
}

enum Wire {
    Ring { link: Box<Link>, waiter: Box<Waiter> },
    Kernel { from: OwnedFd, to: OwnedFd },
}

fn shape(kind: Kind, bytes: usize) -> Shape {
    // Packed frames share buffers of 16 KB or more.
    let buffer_bytes = if kind.is_packed() { bytes.max(16_384) } else { bytes };
    Shape::new(buffer_bytes, BUFFERS).expect("a shape in bounds")
}

impl Carrier {
    /// Starts the other process and passes it the descriptors of its end.
    pub(crate) fn start(kind: Kind, bytes: usize) -> Self {
        let other = Other::start(&format!("{} {bytes}", kind.name()), &[]);
        let wire = match kind {
            Kind::Ring { mode, packed } => Wire::ring(other.link(shape(kind, bytes)), mode, packed),
            Kind::Pipe { polling } => {
                let pipe = || pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
                let ((their_from, to), (from, their_to)) = (pipe(), pipe());
                for end in [&to, &from] {
                    fcntl_setpipe_size(end, PIPE_BYTES).expect("a large pipe");
                }
                support::send_fds(other.socket.as_fd(), &[their_from.as_fd(), their_to.as_fd()]);
                Wire::kernel(from, to, polling)
            }
            Kind::Socket { polling } => {
                let (ours, theirs) =
                    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("sockets");
                support::send_fds(other.socket.as_fd(), &[theirs.as_fd(), theirs.as_fd()]);
                Wire::kernel(ours.try_clone().expect("a second descriptor"), ours, polling)
            }
        };
        Self { wire, out: vec![0; bytes], into: vec![0; bytes], _other: Some(other) }
    }

    /// Receives the descriptors of this end in the process that was started.
    pub(crate) fn inherited(kind: Kind, bytes: usize) -> Self {
        let wire = match kind {
            Kind::Ring { mode, packed } => Wire::ring(support::link(shape(kind, bytes)), mode, packed),
            Kind::Pipe { polling } | Kind::Socket { polling } => {
                let [from, to] = support::receive_fds(std::io::stdin().as_fd());
                Wire::kernel(from, to, polling)
            }
        };
        Self { wire, out: vec![0; bytes], into: vec![0; bytes], _other: None }
    }

    /// Receives frames until the other end is gone, and answers each frame that asks for an answer.
    pub(crate) fn serve(&mut self) {
        while self.receive() {
            if self.into[0] == 1 {
                self.send(true);
            }
        }
    }

    /// Sends a frame. If the frame asks for an answer, it and all earlier frames become visible to the receiver.
    pub(crate) fn send(&mut self, answer: bool) {
        self.out[0] = answer.into();
        match &mut self.wire {
            Wire::Ring { link, waiter } => {
                while link.producer.reserve(self.out.len()).expect("a sound peer").is_none() {
                    waiter.wait(&mut Room(link), None).expect("a peer that lives");
                }
                let place = link.producer.reserve(self.out.len()).expect("a sound peer");
                place.expect("room was found").copy_from_slice(&self.out);
                link.producer.commit(self.out.len(), 0);
                if answer {
                    link.producer.publish();
                }
            }
            Wire::Kernel { to, .. } => all(self.out.len(), |done| write(&*to, &self.out[done..])),
        }
    }

    /// Receives a frame. Returns false if the other end is gone.
    pub(crate) fn receive(&mut self) -> bool {
        match &mut self.wire {
            Wire::Ring { link, waiter } => loop {
                if let Some(frame) = link.consumer.next_frame().expect("a sound peer") {
                    frame.copy_to(0, &mut self.into);
                    return true;
                }
                match waiter.wait(&mut Alone(link), None) {
                    Ok(_) => {}
                    Err(LinkError::PeerGone) => return false,
                    Err(LinkError::Violation(violation)) => panic!("{violation}"),
                }
            },
            Wire::Kernel { from, .. } => {
                let mut gone = false;
                let len = self.into.len();
                all(len, |done| {
                    let got = read(&*from, &mut self.into[done..])?;
                    gone = got == 0;
                    Ok(if gone { len - done } else { got })
                });
                !gone
            }
        }
    }
}

impl Wire {
    fn ring(mut link: Link, mode: Mode, packed: bool) -> Self {
        link.producer.set_packing(packed);
        link.consumer.set_give_back_batch(BUFFERS / 8);
        Self::Ring { link: Box::new(link), waiter: Box::new(Waiter::new(mode)) }
    }

    fn kernel(from: OwnedFd, to: OwnedFd, polling: bool) -> Self {
        if polling {
            for fd in [&from, &to] {
                let flags = fcntl_getfl(fd).expect("flags");
                fcntl_setfl(fd, flags | OFlags::NONBLOCK).expect("flags");
            }
        }
        Self::Kernel { from, to }
    }
}

/// Repeats `call` until all `len` bytes are done. Yields the CPU if a non-blocking call would block.
fn all(len: usize, mut call: impl FnMut(usize) -> Result<usize, Errno>) {
    let mut done = 0;
    while done < len {
        match call(done) {
            Ok(bytes) => done += bytes,
            Err(Errno::AGAIN) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A producer that waits for room. If it sleeps, it asks to be woken when half the ring is free.
struct Room<'a>(&'a mut Link);

impl Sources for Room<'_> {
    type Error = LinkError;

    fn is_ready(&mut self) -> Result<bool, LinkError> {
        self.0.producer.room().map(|room| room > 0).map_err(LinkError::Violation)
    }

    fn declare_asleep(&mut self) -> Result<bool, LinkError> {
        self.0.producer.want_room(BUFFERS / 2).map_err(LinkError::Violation)
    }

    fn sleep(&mut self, time: Option<Duration>) -> Result<(), LinkError> {
        Alone(self.0).sleep(time)
    }

    fn awake(&mut self) {}

    fn moved(&self) -> u64 {
        0
    }
}
