//! What a peer did against the contract, with the numbers, and what else keeps its memory from being mapped.

use std::{fmt, io};

/// A broken contract; the peer is to be detached. Nothing of what it wrote was acted upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the line of each violation covers its fields")]
pub enum Violation {
    /// The descriptor is no memory file: its file system has another magic number (fstatfs(2)), or it has no seals.
    NotMemory { file_system: u64 },
    /// The memory lacks seals (`F_SEAL_*`), so that it could be taken away while it is read.
    Seals { found: u32, needed: u32 },
    /// The memory has another size in bytes than follows from its shape.
    Size { found: u64, needed: u64 },
    /// The count of filled buffers went back, or beyond the buffers there are.
    Produced { found: u64, least: u64, most: u64 },
    /// The count of taken buffers went back, or beyond what was filled.
    Consumed { found: u64, least: u64, most: u64 },
    /// A frame is longer than the bytes that are left in its buffer.
    Length { found: u64, most: u64 },
    /// A buffer has no last frame: another is to begin at `at`, where the bytes of the buffer leave no room for one.
    Unended { at: u64, most: u64 },
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
