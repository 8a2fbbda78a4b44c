//! Violations of the ring's protocol by a peer, with the offending numbers, and other reasons why a peer's memory cannot be
//! mapped.

use std::{fmt, io};

/// A violation of the ring's protocol by the peer. The caller has to detach the peer. The ring has not used any of the wrong
/// values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the line of each violation covers its fields")]
pub enum Violation {
    /// The descriptor is not a memory file: its file system has another magic number (fstatfs(2)), or it does not support seals.
    NotMemory { file_system: u64 },
    /// The memory lacks seals (`F_SEAL_*`), so the peer could truncate the file while it is read.
    Seals { found: u32, needed: u32 },
    /// The size of the memory, in bytes, does not match the shape of the ring.
    Size { found: u64, needed: u64 },
    /// The producer's index, which counts filled buffers, decreased, or exceeds the number of buffers that can be filled.
    Produced { found: u64, least: u64, most: u64 },
    /// The consumer's index, which counts the buffers given back, decreased, or exceeds the number of filled buffers.
    Consumed { found: u64, least: u64, most: u64 },
    /// A frame is longer than the rest of its buffer.
    Length { found: u64, most: u64 },
    /// No frame of a buffer is marked as the last one. The next frame would begin at offset `at`, but the buffer has no room for
    /// a frame's head there.
    Unended { at: u64, most: u64 },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotMemory { file_system } => {
                write!(f, "the descriptor is not a sealed memory file (file system {file_system:#x})")
            }
            Self::Seals { found, needed } => {
                write!(f, "the memory file has seals {found:#x}, but {needed:#x} are needed")
            }
            Self::Size { found, needed } => write!(f, "the memory file has {found} bytes, but {needed} are needed"),
            Self::Produced { found, least, most } => {
                write!(f, "the peer reports {found} filled buffers, but {least} to {most} are possible")
            }
            Self::Consumed { found, least, most } => {
                write!(f, "the peer reports {found} consumed buffers, but {least} to {most} are possible")
            }
            Self::Length { found, most } => {
                write!(f, "a frame has {found} bytes, but its buffer has only {most} bytes left")
            }
            Self::Unended { at, most } => write!(f, "a frame begins at byte {at} of a buffer of {most} bytes"),
        }
    }
}

impl std::error::Error for Violation {}

/// The reason why the memory of a peer was not mapped.
#[derive(Debug)]
pub enum MapError {
    /// The peer violated the ring's protocol.
    Violation(Violation),
    /// The host has no memory, mappings or descriptors left. The peer is not at fault.
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
