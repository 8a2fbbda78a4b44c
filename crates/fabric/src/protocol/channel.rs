//! Channels: messages with descriptors between two processes, each a JSON value in one packet of a SOCK_SEQPACKET socket.
//!
//! Neither side ever blocks. Messages that the socket does not take yet wait in an outbox with a bound; a receiver that falls further
//! behind counts as dead. A packet that is not a message is the sender's fault and ends the channel. A message of our own that is too
//! long is our fault: it is not sent, and the channel stays usable.

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
    /// The buffer for a received message. It is allocated for the first message.
    inbox: Vec<u8>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("socket", &self.socket).field("waiting", &self.outbox.len()).finish()
    }
}

/// A message that waits for the other end.
#[derive(Debug)]
struct Queued {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    /// The guest that caused the message.
    cause: Option<Name>,
}

/// Why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsent {
    /// The message is too long. The channel is unchanged.
    TooLong {
        /// Its bytes.
        bytes: usize,
    },
    /// The other end takes no messages.
    Behind,
    /// The other end is closed.
    Closed(String),
}

impl From<Unsent> for Error {
    fn from(unsent: Unsent) -> Self {
        match unsent {
            Unsent::TooLong { bytes } => {
                Self::usage(format!("a message of {bytes} bytes is too long: the limit is {MESSAGE_BYTES_MAX}"))
            }
            Unsent::Behind => Self::environment("the other end takes no messages"),
            Unsent::Closed(why) => Self::environment(format!("cannot send a message: {why}")),
        }
    }
}

/// Why a channel has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The other end is closed.
    Closed,
    /// The other end sent something that is not a message.
    Malformed(String),
}

/// A message and the descriptors with it.
pub type Received<M> = (M, Vec<OwnedFd>);

impl Channel {
    /// Makes a channel. Returns one end, and the socket of the other.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn pair() -> Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (own, other) = net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .context("cannot make a pair of sockets")?;
        Ok((Self::new(own)?, other))
    }

    /// Makes an end from its socket.
    ///
    /// # Errors
    /// The descriptor is not a socket.
    pub fn new(socket: OwnedFd) -> Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true).context("cannot use a channel")?;
        Ok(Self { socket, outbox: VecDeque::new(), inbox: Vec::new() })
    }

    /// Sends a message after those that wait.
    ///
    /// # Errors
    /// The other end is closed or too far behind, or the message is too long.
    pub fn send(&mut self, message: &impl Serialize, descriptors: Vec<OwnedFd>) -> Result<(), Unsent> {
        self.send_because(None, message, descriptors)
    }

    /// The same for a message that another guest caused.
    ///
    /// # Errors
    /// As [`Channel::send`].
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

    /// How many messages wait for the other end.
    pub fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// How many of them this guest caused.
    pub fn waiting_because(&self, cause: &Name) -> usize {
        self.outbox.iter().filter(|waiting| waiting.cause.as_ref() == Some(cause)).count()
    }

    /// Sends waiting messages, until the socket takes no more.
    ///
    /// # Errors
    /// The other end is closed.
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
                // The receiver's queue is full, or too many descriptors are in flight for this host.
                Err(Errno::AGAIN | Errno::TOOMANYREFS) => break,
                Err(error) => return Err(Unsent::Closed(error.to_string())),
            }
        }
        Ok(())
    }

    /// True while messages wait for the other end.
    pub fn is_behind(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Receives the next message; none if none has arrived.
    ///
    /// # Errors
    /// The other end is closed, or sent something that is not a message.
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
