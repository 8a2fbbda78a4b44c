//! Messages with descriptors between two processes: one JSON value a packet of a SOCK_SEQPACKET socket.
//!
//! Neither side ever waits for the other: what cannot be sent at once is kept up to a bound, and a receiver that falls
//! further behind is given up. A packet that is no message is the sender's fault and ends the channel.

use crate::error::{Error, IoContext, Result};
use crate::limits::{MESSAGE_BYTES_MAX, MESSAGE_DESCRIPTORS_MAX, OUTBOX_MESSAGES_MAX};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// One end.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    outbox: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
}

/// Why nothing more comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The other end is closed.
    Closed,
    /// What came is no message.
    Malformed(String),
}

/// A message and the descriptors with it.
pub type Received<M> = (M, Vec<OwnedFd>);

impl Channel {
    /// Two ends.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn pair() -> Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (own, other) = net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .context("cannot make a pair of sockets")?;
        Ok((Self::new(own)?, other))
    }

    /// An end that exists.
    ///
    /// # Errors
    /// It is no socket.
    pub fn new(socket: OwnedFd) -> Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true).context("cannot use a channel")?;
        Ok(Self { socket, outbox: VecDeque::new() })
    }

    /// Sends a message after those that wait.
    ///
    /// # Errors
    /// The other end is closed or too far behind, or the message is too long.
    pub fn send(&mut self, message: &impl Serialize, descriptors: Vec<OwnedFd>) -> Result<()> {
        let bytes = serde_json::to_vec(message).context("cannot write a message")?;
        if bytes.len() > MESSAGE_BYTES_MAX || descriptors.len() > MESSAGE_DESCRIPTORS_MAX {
            return Err(Error::usage(format!("a message of {} bytes is too long", bytes.len())));
        }
        if self.outbox.len() >= OUTBOX_MESSAGES_MAX {
            return Err(Error::environment("the other end takes no messages"));
        }
        self.outbox.push_back((bytes, descriptors));
        self.flush()
    }

    /// Sends what waits, as far as the other end takes it.
    ///
    /// # Errors
    /// The other end is closed.
    pub fn flush(&mut self) -> Result<()> {
        while let Some((bytes, descriptors)) = self.outbox.front() {
            let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
                return Err(Error::usage("too many descriptors with one message"));
            }
            match net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => _ = self.outbox.pop_front(),
                Err(Errno::INTR) => {}
                // The receiver's queue is full, or as many descriptors are on their way as the host lets be.
                Err(Errno::AGAIN | Errno::TOOMANYREFS) => break,
                Err(error) => return Err(error).context("cannot send a message"),
            }
        }
        Ok(())
    }

    /// True while messages wait for the other end.
    pub fn is_behind(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The next message, or none yet.
    ///
    /// # Errors
    /// The other end is closed or sent what is no message.
    pub fn receive<M: DeserializeOwned>(&mut self) -> std::result::Result<Option<Received<M>>, Ended> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let parts = &mut [IoSliceMut::new(&mut bytes)];
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
        match serde_json::from_slice(&bytes[..received.bytes]) {
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
    fn descriptors_come_with_their_message() {
        let (mut one, mut other) = ends();
        let (reader, writer) = std::io::pipe().unwrap();
        one.send(&("bell", 7), vec![writer.into()]).unwrap();
        one.send(&("plain", 8), vec![]).unwrap();
        let ((word, number), mut descriptors) = other.receive::<(String, u32)>().unwrap().unwrap();
        assert_eq!((word.as_str(), number, descriptors.len()), ("bell", 7, 1));
        std::fs::File::from(descriptors.remove(0)).write_all(b"x").unwrap();
        let mut byte = [0];
        (&reader).read_exact(&mut byte).unwrap();
        assert_eq!(other.receive::<(String, u32)>().unwrap().unwrap().1.len(), 0);
        assert!(other.receive::<(String, u32)>().unwrap().is_none());
        drop(one);
        assert_eq!(other.receive::<()>().unwrap_err(), Ended::Closed);
    }

    #[test]
    fn a_receiver_that_falls_behind_is_waited_for_up_to_a_bound() {
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
    fn what_is_no_message_is_told_from_an_end() {
        let (one, mut other) = ends();
        net::send(&one, b"{\"no", SendFlags::empty()).unwrap();
        assert!(matches!(other.receive::<u32>(), Err(Ended::Malformed(_))));
        net::send(&one, &vec![b'1'; MESSAGE_BYTES_MAX + 1], SendFlags::empty()).unwrap();
        assert!(matches!(other.receive::<u32>(), Err(Ended::Malformed(_))));
        // More descriptors than there is room for: those that came are closed, none leaks.
        let pipe = std::io::pipe().unwrap();
        let many = vec![pipe.0.as_fd(); MESSAGE_DESCRIPTORS_MAX + 8];
        let mut space = [MaybeUninit::uninit(); 256];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        net::sendmsg(&one, &[IoSlice::new(b"1")], &mut control, SendFlags::empty()).unwrap();
        assert!(matches!(other.receive::<u32>(), Err(Ended::Malformed(_))));
    }
}
