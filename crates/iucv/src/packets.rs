//! Packets with descriptors over a socket between two processes.

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{
    self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Largest packet, in bytes.
pub(crate) const PACKET_BYTES_MAX: usize = 4_096;
/// Largest number of descriptors in a packet.
const DESCRIPTORS_MAX: usize = 4;

/// The least number of the descriptors that siga has in an unmodified program.
pub const DESCRIPTOR_NUMBER_MIN: i32 = 500;

/// Moves a descriptor to a large number. Shells and servers choose small numbers themselves (`exec 5<FILE`), and those must be free.
/// If the process may not have such large numbers, the descriptor stays.
pub fn out_of_the_way(descriptor: OwnedFd) -> OwnedFd {
    fcntl_dupfd_cloexec(&descriptor, DESCRIPTOR_NUMBER_MIN).unwrap_or(descriptor)
}

/// Sends a packet with descriptors.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            outcome => return Ok(outcome.map(|_| ())?),
        }
    }
}

/// Receives a packet with its descriptors, or `None` if the other end is closed.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match net::recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            outcome => break outcome?,
        }
    };
    let rights = control
        .drain()
        .filter_map(|message| if let RecvAncillaryMessage::ScmRights(rights) = message { Some(rights) } else { None });
    let descriptors: Vec<OwnedFd> = rights.flatten().collect();
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    bytes.truncate(received.bytes);
    Ok((!bytes.is_empty()).then_some((bytes, descriptors)))
}
