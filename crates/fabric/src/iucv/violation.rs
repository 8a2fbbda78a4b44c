//! The ways in which an application can violate the protocol with its guest.

use siga_iucv::record::Number;
use siga_ring::{ReserveError, Violation};
use std::fmt;

/// A protocol violation by an application, with the number of the socket that the application named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApplicationViolation {
    /// A violation of the ring's protocol.
    Link(Violation),
    /// A record of this many bytes that is not a valid command.
    NoCommand(usize),
    /// A number for a new socket that is outside the application's range, or already used.
    Number(Number),
    /// A command for connections to a socket that is not a connection, or that was closed before.
    NoConnection(Number),
    /// A datagram to be sent from a socket that is not a datagram socket.
    NoDatagrams(Number),
    /// A command about multicast groups to a socket that is not a datagram socket.
    NoGroups(Number),
    /// A command to close a socket that does not exist, or that was closed before.
    NothingToGiveUp(Number),
    /// The application says that it accepted zero connections, or more than were announced.
    Accepted(Number),
    /// The application says that it consumed zero bytes, or more than were announced.
    Consumed(Number),
    /// Extents to send that are outside the application's arena, or an empty list.
    Extents(Number),
    /// More extents than one send buffer, or all send buffers of the application, may have.
    ExtentCount(Number),
    /// More bytes in flight than one connection may have.
    InFlight(Number),
}

impl fmt::Display for ApplicationViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, socket) = match self {
            Self::Link(violation) => return violation.fmt(f),
            Self::NoCommand(bytes) => return write!(f, "{bytes} bytes that are no command"),
            Self::Number(socket) => ("a number that cannot be given", socket),
            Self::NoConnection(socket) => ("no connection", socket),
            Self::NoDatagrams(socket) => ("a datagram", socket),
            Self::NoGroups(socket) => ("a group", socket),
            Self::NothingToGiveUp(socket) => ("nothing to give up", socket),
            Self::Accepted(socket) => ("more accepted than announced", socket),
            Self::Consumed(socket) => ("more consumed than announced", socket),
            Self::Extents(socket) => ("extents that are not in the arena", socket),
            Self::ExtentCount(socket) => ("more extents than there may be", socket),
            Self::InFlight(socket) => ("more bytes in flight than there may be", socket),
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
