//! What a peer did against the contract, with the numbers, and what else keeps its memory from being mapped.

use std::{fmt, io};

/// A broken contract; the peer is to be detached. Nothing of what it wrote was acted upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// The descriptor is no memory file: its file system is another, or it has no seals.
    NotMemory {
        /// Magic number of the file system, from fstatfs(2).
        file_system: u64,
    },
    /// The memory lacks seals, so that it could be taken away while it is read.
    Seals {
        /// `F_SEAL_*` found.
        found: u32,
        /// `F_SEAL_*` that it has to have.
        needed: u32,
    },
    /// The memory has another size than follows from its shape.
    Size {
        /// Bytes found.
        found: u64,
        /// Bytes that it has to have.
        needed: u64,
    },
    /// The count of filled buffers went back, or beyond the buffers there are.
    Produced {
        /// What the peer says.
        found: u64,
        /// The least that it can be.
        least: u64,
        /// The most that it can be.
        most: u64,
    },
    /// The count of taken buffers went back, or beyond what was filled.
    Consumed {
        /// What the peer says.
        found: u64,
        /// The least that it can be.
        least: u64,
        /// The most that it can be.
        most: u64,
    },
    /// A frame is longer than the rest of its buffer.
    Length {
        /// What the peer says.
        found: u64,
        /// Bytes left in the buffer.
        most: u64,
    },
    /// A buffer has no last frame: another is to follow where there is no room for one.
    Unended {
        /// Where that frame would begin.
        at: u64,
        /// Bytes of the buffer.
        most: u64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotMemory { file_system } => write!(f, "no sealed memory file (file system {file_system:#x})"),
            Self::Seals { found, needed } => write!(f, "seals {found:#x} where {needed:#x} are needed"),
            Self::Size { found, needed } => write!(f, "{found} bytes of memory where {needed} are needed"),
            Self::Produced { found, least, most } => {
                write!(f, "{found} buffers filled where {least} to {most} are possible")
            }
            Self::Consumed { found, least, most } => {
                write!(f, "{found} buffers taken where {least} to {most} are possible")
            }
            Self::Length { found, most } => write!(f, "a frame of {found} bytes where {most} are left"),
            Self::Unended { at, most } => write!(f, "a frame to begin at {at} in a buffer of {most} bytes"),
        }
    }
}

impl std::error::Error for Violation {}

/// Why a peer's memory was not mapped, and whose fault that is.
#[derive(Debug)]
pub enum MapError {
    /// The peer's.
    Violation(Violation),
    /// Nobody's: the host has no memory, mappings or descriptors left.
    Host(io::Error),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation(violation) => violation.fmt(f),
            Self::Host(error) => write!(f, "cannot map memory: {error}"),
        }
    }
}

impl std::error::Error for MapError {}

impl From<Violation> for MapError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl From<rustix::io::Errno> for MapError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Host(error.into())
    }
}
