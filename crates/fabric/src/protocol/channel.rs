//! Channels: a channel carries messages and descriptors between two processes over a SOCK_SEQPACKET socket. Each packet is one
//! message, which is a JSON value.
//!
//! Send and receive calls never block. A message that does not fit into the socket's buffer waits in an *outbox*, a queue of
//! limited length in this process. When the outbox is full, the sender treats the receiver as dead. If a received packet is not a
//! valid message, the peer is at fault, so the channel ends. If a message is too long to be sent, the local process is at fault. So
//! the message is discarded, and the channel stays usable.

use crate::limits::{MESSAGE_BYTES_MAX, MESSAGE_DESCRIPTORS_MAX, OUTBOX_MESSAGES_MAX};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use std::collections::VecDeque;
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// One end of a channel.
pub struct Channel {
    socket: OwnedFd,
    outbox: VecDeque<Queued>,
    /// The receive buffer. It is empty until the first receive, which allocates it.
    inbox: Vec<u8>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("socket", &self.socket).field("waiting", &self.outbox.len()).finish()
    }
}

/// A message that waits in the outbox.
#[derive(Debug)]
struct Queued {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    /// The guest whose request led to this message; `None` if no guest caused the message.
    cause: Option<Name>,
}

/// The reason why [`Channel::send`] or [`Channel::flush`] failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsent {
    /// The message is too long. It was not put into the outbox, and the channel can still be used.
    TooLong {
        /// The length of the message in bytes.
        bytes: usize,
    },
    /// The outbox is full, because the other end does not receive its messages. The message was discarded.
    Behind,
    /// The other end is closed. The text is that of the system call's error.
    Closed(String),
}

impl From<Unsent> for Error {
    fn from(unsent: Unsent) -> Self {
        match unsent {
            Unsent::TooLong { bytes } => Self::usage(format!(
                "a message between processes of siga is too long: it has {bytes} bytes, but the limit is {MESSAGE_BYTES_MAX}"
            )),
            Unsent::Behind => Self::environment("the receiver does not read the messages that siga has already sent"),
            Unsent::Closed(why) => {
                Self::environment(format!("cannot send a message to another process of siga: {why}"))
            }
        }
    }
}

/// The reason why a channel has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The other end is closed.
    Closed,
    /// The other end sent a packet that is not a valid message. The text says what is wrong with the packet.
    Malformed(String),
}

/// A received message and the descriptors that were passed with it.
pub type Received<M> = (M, Vec<OwnedFd>);

impl Channel {
    /// Creates a channel. Returns its local end, and the socket of its other end, which the caller passes to another process.
    ///
    /// # Errors
    /// Returns an error if the process has no free descriptors.
    pub fn pair() -> Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (own, other) = net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .context("cannot create a pair of sockets between two processes of siga")?;
        Ok((Self::new(own)?, other))
    }

    /// Creates a channel end from a connected socket, and makes the socket non-blocking.
    ///
    /// # Errors
    /// Returns an error if the descriptor is not a socket.
    pub fn new(socket: OwnedFd) -> Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true).context("cannot make the socket of a channel non-blocking")?;
        Ok(Self { socket, outbox: VecDeque::new(), inbox: Vec::new() })
    }

    /// Appends a message to the outbox, then sends as much of the outbox as the socket accepts.
    ///
    /// # Errors
    /// Returns an error if the other end is closed, the outbox is full, or the message is too long.
    pub fn send(&mut self, message: &impl Serialize, descriptors: Vec<OwnedFd>) -> Result<(), Unsent> {
        self.send_because(None, message, descriptors)
    }

    /// Sends a message like [`Channel::send`], and records the guest `cause`, whose request led to the message.
    ///
    /// # Errors
    /// Returns the same errors as [`Channel::send`].
    pub fn send_because(
        &mut self,
        cause: Option<&Name>,
        message: &impl Serialize,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Unsent> {
        let bytes = serde_json::to_vec(message).map_err(|error| Unsent::Closed(error.to_string()))?;
        if bytes.len() > MESSAGE_BYTES_MAX || descriptors.len() > MESSAGE_DESCRIPTORS_MAX {
            return Err(Unsent::TooLong { bytes: bytes.len() });
        }
        if self.outbox.len() >= OUTBOX_MESSAGES_MAX {
            return Err(Unsent::Behind);
        }
        self.outbox.push_back(Queued { bytes, descriptors, cause: cause.cloned() });
        self.flush()
    }

    /// Returns the number of messages in the outbox.
    pub fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// Returns the number of messages in the outbox that were sent because of a request of the guest `cause`.
    pub fn waiting_because(&self, cause: &Name) -> usize {
        self.outbox.iter().filter(|waiting| waiting.cause.as_ref() == Some(cause)).count()
    }

    /// Sends messages from the outbox until the outbox is empty or the socket accepts no more.
    ///
    /// # Errors
    /// Returns an error if the other end is closed.
    pub fn flush(&mut self) -> Result<(), Unsent> {
        while let Some(Queued { bytes, descriptors, .. }) = self.outbox.front() {
            let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
                return Err(Unsent::TooLong { bytes: bytes.len() });
            }
            match net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => _ = self.outbox.pop_front(),
                Err(Errno::INTR) => {}
                // The receive buffer of the peer's socket is full, or this user has too many descriptors in messages that are not
                // received yet.
                Err(Errno::AGAIN | Errno::TOOMANYREFS) => break,
                Err(error) => return Err(Unsent::Closed(error.to_string())),
            }
        }
        Ok(())
    }

    /// Returns true if messages wait in the outbox.
    pub fn is_behind(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Receives the next message with its descriptors. Returns `None` if no message has arrived.
    ///
    /// # Errors
    /// Returns an error if the other end is closed or sent a packet that is not a valid message.
    pub fn receive<M: DeserializeOwned>(&mut self) -> std::result::Result<Option<Received<M>>, Ended> {
        if self.inbox.is_empty() {
            self.inbox = vec![0; MESSAGE_BYTES_MAX];
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let parts = &mut [IoSliceMut::new(&mut self.inbox)];
            match net::recvmsg(&self.socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(_) => return Err(Ended::Closed),
                Ok(received) => break received,
            }
        };
        let rights = control.drain().filter_map(|message| {
            if let RecvAncillaryMessage::ScmRights(rights) = message { Some(rights) } else { None }
        });
        let descriptors: Vec<OwnedFd> = rights.flatten().collect();
        if received.bytes == 0 {
            return Err(Ended::Closed);
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(Ended::Malformed("a message or its descriptors were cut off".to_owned()));
        }
        match serde_json::from_slice(&self.inbox[..received.bytes]) {
            Ok(message) => Ok(Some((message, descriptors))),
            Err(error) => Err(Ended::Malformed(error.to_string())),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn ends() -> (Channel, Channel) {
        let (one, other) = Channel::pair().unwrap();
        (one, Channel::new(other).unwrap())
    }

    #[test]
    fn descriptors_arrive_with_their_message() {
        let (mut one, mut other) = ends();
        let (reader, writer) = std::io::pipe().unwrap();
        one.send(&("pipe", 7), vec![writer.into()]).unwrap();
        one.send(&("none", 8), vec![]).unwrap();
        let ((word, number), mut descriptors) = other.receive::<(String, u32)>().unwrap().unwrap();
        assert_eq!((word.as_str(), number, descriptors.len()), ("pipe", 7, 1));
        std::fs::File::from(descriptors.remove(0)).write_all(b"x").unwrap();
        let mut byte = [0];
        (&reader).read_exact(&mut byte).unwrap();
        assert_eq!(other.receive::<(String, u32)>().unwrap().unwrap().1.len(), 0);
        assert!(other.receive::<(String, u32)>().unwrap().is_none());
        drop(one);
        // A child that another test forks holds a copy of the end until it executes its program.
        let ended = loop {
            match other.receive::<()>() {
                Ok(None) => std::thread::yield_now(),
                outcome => break outcome,
            }
        };
        assert_eq!(ended.unwrap_err(), Ended::Closed);
    }

    #[test]
    fn messages_for_a_slow_receiver_wait_up_to_a_bound() {
        let (mut one, mut other) = ends();
        let mut sent = 0;
        while one.send(&sent, vec![]).is_ok() {
            sent += 1;
        }
        assert!(sent >= OUTBOX_MESSAGES_MAX && one.is_behind());
        for expected in 0..sent {
            assert_eq!(other.receive::<usize>().unwrap().unwrap().0, expected);
            one.flush().unwrap();
        }
        assert!(!one.is_behind() && other.receive::<usize>().unwrap().is_none());
    }

    #[test]
    fn a_message_that_is_too_long_does_not_change_the_channel() {
        let (mut one, mut other) = ends();
        let long = "x".repeat(MESSAGE_BYTES_MAX);
        assert_eq!(one.send(&long, vec![]), Err(Unsent::TooLong { bytes: MESSAGE_BYTES_MAX + 2 }));
        one.send(&7, vec![]).unwrap();
        assert_eq!(other.receive::<u32>().unwrap().unwrap().0, 7);
    }

    #[test]
    fn waiting_messages_are_counted_by_the_guest_that_caused_them() {
        let (mut one, _other) = ends();
        let (a, b): (Name, Name) = ("a".parse().unwrap(), "b".parse().unwrap());
        while one.waiting() == 0 {
            one.send(&0, vec![]).unwrap();
        }
        for cause in [Some(&a), Some(&b), None, Some(&a)] {
            one.send_because(cause, &1, vec![]).unwrap();
        }
        assert_eq!((one.waiting(), one.waiting_because(&a), one.waiting_because(&b)), (5, 2, 1));
    }

    #[test]
    fn a_malformed_packet_differs_from_a_closed_end() {
        let (one, mut other) = ends();
        net::send(&one, b"{\"no", SendFlags::empty()).unwrap();
        assert!(matches!(other.receive::<u32>(), Err(Ended::Malformed(_))));
        net::send(&one, &vec![b'1'; MESSAGE_BYTES_MAX + 1], SendFlags::empty()).unwrap();
        assert!(matches!(other.receive::<u32>(), Err(Ended::Malformed(_))));
        // More descriptors than fit: the channel closes the received ones.
        let pipe = std::io::pipe().unwrap();
        let many = vec![pipe.0.as_fd(); MESSAGE_DESCRIPTORS_MAX + 8];
        let mut space = [MaybeUninit::uninit(); 256];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        net::sendmsg(&one, &[IoSlice::new(b"1")], &mut control, SendFlags::empty()).unwrap();
        assert!(matches!(other.receive::<u32>(), Err(Ended::Malformed(_))));
    }
}
