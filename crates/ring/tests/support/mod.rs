//! Two processes with a link between them: a program starts itself again, and hands out memory and doorbells as a control
//! program does.
//!
//! The child finds a socket where its standard input would be. Each test that includes this uses a part of it.
#![allow(dead_code, reason = "each test and bench that includes this uses what it needs")]
#![allow(clippy::unwrap_used, reason = "a test says what it wants by failing")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use siga_ring::wait::Sources;
use siga_ring::{Link, NotifyFd, OwnMemory, PeerMemory, Shape, Violation, WakeFd, doorbell};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Set in the environment of a child: what it is to do.
pub(crate) const ROLE: &str = "SIGA_RING_ROLE";

/// A process at the other end; it ends with this value.
pub(crate) struct Other {
    pub(crate) child: Child,
    pub(crate) socket: OwnedFd,
}

impl Drop for Other {
    fn drop(&mut self) {
        // A child that has ended by itself cannot be ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Other {
    /// Starts this program again with a role.
    pub(crate) fn start(role: &str, arguments: &[&str]) -> Self {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(arguments).env(ROLE, role).stdin(Stdio::from(theirs)).stdout(Stdio::null());
        Self { child: command.spawn().unwrap(), socket: ours }
    }

    /// Gives the other process its end of a link, and keeps the own. Both directions have the same shape.
    pub(crate) fn link(&self, shape: Shape) -> Link {
        let ((notify_fd, their_wake_fd), (their_notify_fd, wake_fd)) =
            (doorbell::pair().unwrap(), doorbell::pair().unwrap());
        let (own, fd) = OwnMemory::create(shape).unwrap();
        let their_fds = [fd, their_notify_fd.into(), their_wake_fd.into()];
        send_fds(self.socket.as_fd(), &their_fds.each_ref().map(AsFd::as_fd));
        let [theirs] = receive_fds(self.socket.as_fd());
        Link::new(own, PeerMemory::map(theirs, shape).unwrap(), notify_fd, wake_fd)
    }
}

/// The end of the link in the process that was started.
pub(crate) fn link(shape: Shape) -> Link {
    let stdin = std::io::stdin();
    let [fd, notify_fd, wake_fd] = receive_fds(stdin.as_fd());
    let peer = PeerMemory::map(fd, shape).unwrap();
    let (own, fd) = OwnMemory::create(shape).unwrap();
    send_fds(stdin.as_fd(), &[fd.as_fd()]);
    Link::new(own, peer, NotifyFd::from_fd(notify_fd).unwrap(), WakeFd::from_fd(wake_fd).unwrap())
}

pub(crate) fn send_fds(socket: BorrowedFd<'_>, fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    assert!(message.push(SendAncillaryMessage::ScmRights(fds)));
    sendmsg(socket, &[IoSlice::new(&[1])], &mut message, SendFlags::empty()).unwrap();
}

pub(crate) fn receive_fds<const COUNT: usize>(socket: BorrowedFd<'_>) -> [OwnedFd; COUNT] {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut message, RecvFlags::CMSG_CLOEXEC).unwrap();
    let mut fds = Vec::new();
    for part in message.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            fds.extend(received);
        }
    }
    fds.try_into().unwrap()
}

/// A link alone, as what a waiter waits for: its incoming frames.
pub(crate) struct Alone<'a>(pub(crate) &'a mut Link);

/// Why a link alone cannot be waited for any longer.
#[derive(Debug)]
pub(crate) enum LinkError {
    /// The peer violated the ring's protocol.
    Violation(Violation),
    /// Nobody holds the other end of the doorbell.
    PeerGone,
}

impl Sources for Alone<'_> {
    type Error = LinkError;

    fn is_ready(&mut self) -> Result<bool, LinkError> {
        self.0.consumer.is_ready().map_err(LinkError::Violation)
    }

    fn declare_asleep(&mut self) -> Result<bool, LinkError> {
        self.0.consumer.declare_asleep().map_err(LinkError::Violation)
    }

    fn sleep(&mut self, time: Option<Duration>) -> Result<(), LinkError> {
        let time = time.map(|time| Timespec::try_from(time).unwrap());
        poll(&mut [PollFd::new(&self.0.wake_fd, PollFlags::IN)], time.as_ref()).unwrap();
        if self.0.wake_fd.drain().unwrap().hung_up { Err(LinkError::PeerGone) } else { Ok(()) }
    }

    fn awake(&mut self) {
        self.0.consumer.awake();
    }

    fn moved(&self) -> u64 {
        0
    }
}
