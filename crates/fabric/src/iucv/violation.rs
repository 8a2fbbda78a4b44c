//! The ways in which an application can violate the IUCV protocol with its guest.

use siga_iucv::record::Number;
use siga_ring::{ReserveError, Violation};
use std::fmt;

/// A protocol violation by an application. Most variants contain the number of the socket that the application's command names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApplicationViolation {
    /// The application violated the protocol of the ring.
    Link(Violation),
    /// The application sent a record of this many bytes that is not a valid command.
    NoCommand(usize),
    /// The number for a new socket is outside the range of numbers that an application may choose, or is already used.
    Number(Number),
    /// The command is for connections, but the socket is not a connection or was closed before.
    NoConnection(Number),
    /// The command sends a datagram, but the socket is not a datagram socket.
    NoDatagrams(Number),
    /// The command is about multicast groups, but the socket is not a datagram socket.
    NoGroups(Number),
    /// The command needs a pooled listener, and names another socket.
    NoPool(Number),
    /// The command closes a socket that does not exist or was closed before.
    NothingToGiveUp(Number),
    /// The application says that it accepted zero connections, or more connections than were announced.
    Accepted(Number),
    /// The application says that it consumed zero bytes, or more bytes than were announced.
    Consumed(Number),
    /// The command sends extents that are outside the application's arena, or an empty list of extents.
    Extents(Number),
    /// With the command, one send buffer, or all send buffers of the application together, would have more extents than allowed.
    ExtentCount(Number),
    /// With the command, the connection would have more bytes in flight than allowed.
    InFlight(Number),
    /// The application did not pass its memory for this couple, or passed it twice.
    Couple(u64),
    /// The application passed on more received bytes than a slot has, or read more of them than the guest keeps.
    Rest(Number),
}

impl fmt::Display for ApplicationViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, socket) = match self {
            Self::Link(violation) => return violation.fmt(f),
            Self::NoCommand(bytes) => {
                return write!(f, "the application sent {bytes} bytes that are not a valid command");
            }
            Self::Couple(couple) => {
                return write!(f, "the application passed no memory for couple {couple}, or passed it twice");
            }
            Self::Rest(socket) => ("the application passed on or read bytes that it cannot have", socket),
            Self::Number(socket) => ("the application used a socket number that is not allowed", socket),
            Self::NoConnection(socket) => ("the application used a socket that has no connection", socket),
            Self::NoDatagrams(socket) => ("the application used a socket that cannot send a datagram", socket),
            Self::NoGroups(socket) => ("the application used a socket that cannot join a group", socket),
            Self::NoPool(socket) => ("the application used a socket that is not a shared listener", socket),
            Self::NothingToGiveUp(socket) => ("the application closed a socket that does not exist", socket),
            Self::Accepted(socket) => ("the application reported more connections accepted than announced", socket),
            Self::Consumed(socket) => ("the application reported more bytes consumed than announced", socket),
            Self::Extents(socket) => ("the application sent extents outside the arena", socket),
            Self::ExtentCount(socket) => ("the application sent more extents than allowed", socket),
            Self::InFlight(socket) => ("the application has more bytes in flight than allowed", socket),
        };
        write!(f, "{what}, socket {socket}")
    }
}

impl From<Violation> for ApplicationViolation {
    fn from(violation: Violation) -> Self {
        Self::Link(violation)
    }
}

impl From<ReserveError> for ApplicationViolation {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::Violation(violation) => Self::Link(violation),
            ReserveError::TooLong { bytes, most } => unreachable!("an event of {bytes} bytes, where {most} fit"),
        }
    }
}
