//! What an application can do against its contract with its guest.

use super::record::Number;
use siga_ring::{ReserveError, Violation};
use std::fmt;

/// What an application did, with the socket that it named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breach {
    /// The contract of the link itself.
    Link(Violation),
    /// So many bytes that are no command.
    NoCommand(usize),
    /// A number that is not its own to give, or given already.
    Number(Number),
    /// A command to what is no connection, or was given up.
    NoConnection(Number),
    /// A datagram from what sends none.
    NoDatagrams(Number),
    /// Groups of what is in none.
    NoGroups(Number),
    /// Nothing to give up, or given up already.
    NothingToGiveUp(Number),
    /// More connections accepted than it was told of, or none.
    Accepted(Number),
    /// More bytes consumed than it was told of, or none.
    Consumed(Number),
    /// Places that are not in its arena, or none.
    Places(Number),
    /// More places than there may be.
    PlaceCount(Number),
    /// More bytes under way than there may be.
    UnderWay(Number),
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, socket) = match self {
            Self::Link(violation) => return violation.fmt(f),
            Self::NoCommand(bytes) => return write!(f, "{bytes} bytes that are no command"),
            Self::Number(socket) => ("a number that cannot be given", socket),
            Self::NoConnection(socket) => ("no connection", socket),
            Self::NoDatagrams(socket) => ("a datagram", socket),
            Self::NoGroups(socket) => ("a group", socket),
            Self::NothingToGiveUp(socket) => ("nothing to give up", socket),
            Self::Accepted(socket) => ("more accepted than told of", socket),
            Self::Consumed(socket) => ("more consumed than told of", socket),
            Self::Places(socket) => ("places that are not in the arena", socket),
            Self::PlaceCount(socket) => ("more places than there may be", socket),
            Self::UnderWay(socket) => ("more bytes under way than there may be", socket),
        };
        write!(f, "{what}, socket {socket}")
    }
}

impl From<Violation> for Breach {
    fn from(violation: Violation) -> Self {
        Self::Link(violation)
    }
}

impl From<ReserveError> for Breach {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::Violation(violation) => Self::Link(violation),
            ReserveError::TooLong { bytes, most } => unreachable!("an event of {bytes} bytes, where {most} fit"),
        }
    }
}
