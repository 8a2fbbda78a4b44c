//! What an application can do against its contract with its guest.

use siga_iucv::record::Number;
use siga_ring::{ReserveError, Violation};
use std::fmt;

/// A protocol violation by an application, with the socket that it named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApplicationViolation {
    /// A violation of the link's own contract.
    Link(Violation),
    /// A record of this many bytes that is no command.
    NoCommand(usize),
    /// A number outside the application's range, or in use.
    Number(Number),
    /// A command to a socket that is no connection, or was given up.
    NoConnection(Number),
    /// A datagram from a socket that sends none.
    NoDatagrams(Number),
    /// A group command to a socket that is in no groups.
    NoGroups(Number),
    /// A socket given up that does not exist, or was given up before.
    NothingToGiveUp(Number),
    /// More connections accepted than were announced, or none.
    Accepted(Number),
    /// More bytes consumed than were announced, or none.
    Consumed(Number),
    /// Extents outside the application's arena, or none.
    Extents(Number),
    /// More extents than one send buffer may have.
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
