//! Passes descriptors between an application and its guest, for direct connections.
//!
//! A socket pair connects the two processes. A packet in it has a kind, the number of a couple, and descriptors. A record over the link
//! says that there is a packet, so neither side waits for the socket. Each side takes one packet for each record, so a side that sends
//! further ones fills only the socket.

use crate::packets::{receive, send};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a packet has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parcel {
    /// From the guest: a new couple. Descriptors: the notify descriptor, a read end of its pipe, which protects the process from SIGPIPE,
    /// and the wake descriptor.
    Couple,
    /// From the application: its memory for a couple. Descriptor: the memory file.
    Memory,
    /// From the guest: the memory of the other application. Descriptor: the memory file.
    PeerMemory,
}

impl Parcel {
    fn code(self) -> u8 {
        match self {
            Self::Couple => 0,
            Self::Memory => 1,
            Self::PeerMemory => 2,
        }
    }
}

/// One end of the socket pair.
#[derive(Debug)]
pub struct Passing(OwnedFd);

impl Passing {
    /// Makes the two ends.
    ///
    /// # Errors
    /// Returns an error if the host has no descriptors left.
    pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
    }

    /// Creates the value from a descriptor that another process has sent, and makes the descriptor non-blocking.
    ///
    /// # Errors
    /// Returns an error if the descriptor's flags cannot be set.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        Ok(Self(fd))
    }

    /// Passes descriptors to the other side, without waiting.
    ///
    /// # Errors
    /// Returns an error if the other side takes no packets, or has ended.
    pub fn pass(&self, parcel: Parcel, couple: u64, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut bytes = vec![parcel.code()];
        bytes.extend(couple.to_le_bytes());
        send(&self.0, &bytes, descriptors)
    }

    /// Takes the next packet, without waiting. Returns its descriptors.
    ///
    /// # Errors
    /// Returns `InvalidData` if the next packet is another one than this, or if it has another number of descriptors. Returns `WouldBlock`
    /// if there is none.
    pub fn take<const COUNT: usize>(&self, parcel: Parcel, couple: u64) -> io::Result<[OwnedFd; COUNT]> {
        let (bytes, descriptors) = receive(&self.0)?.ok_or(ErrorKind::UnexpectedEof)?;
        let is_this =
            bytes.split_first().is_some_and(|(kind, number)| *kind == parcel.code() && number == couple.to_le_bytes());
        let descriptors = descriptors.try_into().ok().filter(|_| is_this);
        descriptors.ok_or_else(|| ErrorKind::InvalidData.into())
    }
}

impl AsFd for Passing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_expected_packet_is_taken() {
        let (one, other) = Passing::pair().unwrap();
        let (one, other) = (Passing::from_fd(one).unwrap(), Passing::from_fd(other).unwrap());
        let none = other.take::<1>(Parcel::Memory, 7).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::WouldBlock);
        one.pass(Parcel::Memory, 7, &[one.as_fd()]).unwrap();
        other.take::<1>(Parcel::Memory, 7).unwrap();
        for (parcel, couple, count) in [(Parcel::PeerMemory, 7, 1), (Parcel::Memory, 8, 1), (Parcel::Memory, 7, 2)] {
            one.pass(parcel, couple, &vec![one.as_fd(); count]).unwrap();
            assert_eq!(other.take::<1>(Parcel::Memory, 7).unwrap_err().kind(), ErrorKind::InvalidData);
        }
        let sent = std::iter::repeat_with(|| one.pass(Parcel::Couple, 1, &[])).take_while(Result::is_ok).count();
        assert!(sent > 0, "a side that takes no packets makes the other one fail, not wait");
        drop(one);
        while other.take::<0>(Parcel::Couple, 1).is_ok() {}
        assert_eq!(other.take::<0>(Parcel::Couple, 1).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
