//! The memory of a link's two ends: one's own, and the peer's, checked before it is mapped.
//!
//! An own memory lives once: nobody can map it writable again, so an owner that was restarted makes another (an *incarnation*),
//! and its peers map that and drop the old.

use crate::layout::Shape;
use crate::map::{Region, SEALS, View};
use crate::violation::{MapError, Violation};
use rustix::fs::{fcntl_get_seals, fstat, fstatfs};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// File system of memory files: one whose pages cannot fail to be there, as huge pages can.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// What this end writes: the buffers of its outgoing ring and its own indices.
#[derive(Debug)]
pub struct OwnMemory {
    pub(crate) region: Region,
    pub(crate) shape: Shape,
}

impl OwnMemory {
    /// Memory for an outgoing ring, mapped and sealed, with the descriptor for whoever is to read it.
    ///
    /// # Errors
    /// The host has no memory, mappings or descriptors left.
    pub fn create(outbound: Shape) -> io::Result<(Self, OwnedFd)> {
        let (region, fd) = Region::create(outbound.memory_bytes())?;
        Ok((Self { region, shape: outbound }, fd))
    }
}

/// What the peer writes, mapped read-only.
#[derive(Debug)]
pub struct PeerMemory {
    pub(crate) view: View,
    pub(crate) shape: Shape,
}

impl PeerMemory {
    /// Maps the memory of a peer whose outgoing ring has the shape `inbound`. The descriptor is closed.
    ///
    /// # Errors
    /// It is no memory file with seals and size as they have to be, or the host has nothing left to map it with.
    pub fn map(fd: OwnedFd, inbound: Shape) -> Result<Self, MapError> {
        let view = map(fd, inbound.memory_bytes())?;
        Ok(Self { view, shape: inbound })
    }
}

/// Maps a memory file of exactly `bytes` bytes that cannot be taken away.
pub(crate) fn map(fd: OwnedFd, bytes: usize) -> Result<View, MapError> {
    check(fd.as_fd(), bytes)?;
    let view = View::map(fd.as_fd(), bytes)?;
    drop(fd);
    Ok(view)
}

fn check(fd: BorrowedFd<'_>, bytes: usize) -> Result<(), MapError> {
    let file_system = fstatfs(fd)?.f_type.cast_unsigned();
    let seals = match fcntl_get_seals(fd) {
        Err(Errno::INVAL) => return Err(Violation::NotMemory { file_system }.into()),
        other => other?,
    };
    if file_system != TMPFS_MAGIC {
        return Err(Violation::NotMemory { file_system }.into());
    }
    if !seals.contains(SEALS) {
        return Err(Violation::Seals { found: seals.bits(), needed: SEALS.bits() }.into());
    }
    // The seals hold from here on: the size stays what it is found to be.
    let found = fstat(fd)?.st_size.cast_unsigned();
    let needed = u64::try_from(bytes).map_err(|_| Errno::FBIG)?;
    if found != needed {
        return Err(Violation::Size { found, needed }.into());
    }
    Ok(())
}
