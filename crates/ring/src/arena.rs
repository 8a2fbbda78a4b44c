//! Arenas: shared memory that one process writes and another process copies from. They contain the payload of sockets that an
//! application uses over shared memory.
//!
//! An arena has no structure of its own. Records over a link say where bytes lie in the arena and when the peer may read them. An
//! arena is sealed like the memory of a link, and both sides know its size before they map it.

use crate::clock::Ticks;
use crate::counters::CopyMeter;
use crate::limits::ARENA_BYTES_MAX;
use crate::map::{Region, View};
use crate::memory;
use crate::violation::MapError;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::{fmt, io};

/// A range that is not inside the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfArena {
    at: usize,
    len: usize,
    arena: usize,
}

impl OutOfArena {
    fn check(at: usize, len: usize, arena: usize) -> Result<(), Self> {
        let inside = at.checked_add(len).is_some_and(|end| end <= arena);
        if inside { Ok(()) } else { Err(Self { at, len, arena }) }
    }
}

impl fmt::Display for OutOfArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at offset {} do not lie in an arena of {} bytes", self.len, self.at, self.arena)
    }
}

impl std::error::Error for OutOfArena {}

/// Returns an error if the size of an arena is 0 or more than [`ARENA_BYTES_MAX`].
fn check_size(bytes: usize) -> Result<(), Errno> {
    if (1..=ARENA_BYTES_MAX).contains(&bytes) { Ok(()) } else { Err(Errno::INVAL) }
}

/// An arena that this process owns. No other process can write to it, so slices of it are sound.
#[derive(Debug)]
pub struct OwnArena {
    region: Region,
}

impl OwnArena {
    /// Makes a sealed arena of `bytes` zero bytes. Returns the arena and a descriptor for the process that reads it.
    ///
    /// # Errors
    /// Returns an error if the size is 0 or over [`ARENA_BYTES_MAX`], or if the host has no memory, mappings or descriptors left.
    pub fn create(bytes: usize) -> io::Result<(Self, OwnedFd)> {
        check_size(bytes)?;
        let (region, fd) = Region::create(bytes)?;
        Ok((Self { region }, fd))
    }

    /// Makes an arena in a memory file from [`memory_file`](crate::memory_file), for a process that is not allowed to make files.
    ///
    /// # Errors
    /// Returns an error if the size is 0 or over [`ARENA_BYTES_MAX`], or if the file has another size or was sealed by another
    /// owner. Also returns an error if the host has no mappings left.
    pub fn in_file(file: OwnedFd, bytes: usize) -> Result<(Self, OwnedFd), MapError> {
        check_size(bytes)?;
        let (region, fd) = memory::own(file, bytes)?;
        Ok((Self { region }, fd))
    }

    /// Returns the size of the arena in bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Always returns false, because an arena has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `len` bytes, beginning at offset `at`, for reading.
    ///
    /// # Errors
    /// Returns an error if the range is not inside the arena.
    pub fn bytes(&self, at: usize, len: usize) -> Result<&[u8], OutOfArena> {
        OutOfArena::check(at, len, self.len())?;
        Ok(self.region.bytes(at, len))
    }

    /// Returns `len` bytes, beginning at offset `at`, for writing. The caller can copy a frame or bytes of a peer's arena
    /// directly into this slice.
    ///
    /// # Errors
    /// Returns an error if the range is not inside the arena.
    pub fn bytes_mut(&mut self, at: usize, len: usize) -> Result<&mut [u8], OutOfArena> {
        OutOfArena::check(at, len, self.len())?;
        Ok(self.region.bytes_mut(at, len))
    }

    /// Copies `bytes` into the arena at offset `at`.
    ///
    /// # Errors
    /// Returns an error if the range is not inside the arena.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), OutOfArena> {
        self.bytes_mut(at, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Copies bytes of the arena, beginning at offset `at`, to `into`.
    ///
    /// # Errors
    /// Returns an error if the range is not inside the arena.
    pub fn read(&self, at: usize, into: &mut [u8]) -> Result<(), OutOfArena> {
        into.copy_from_slice(self.bytes(at, into.len())?);
        Ok(())
    }
}

/// An arena of a peer, mapped read-only. Its bytes can change at any time.
#[derive(Debug)]
pub struct PeerArena {
    view: View,
    meter: CopyMeter,
}

impl PeerArena {
    /// Maps a peer's arena of exactly `bytes` bytes, and closes the descriptor.
    ///
    /// # Errors
    /// Returns an error if the descriptor is not a memory file with the required seals and size, or if the host has no mappings
    /// left.
    pub fn map(fd: OwnedFd, bytes: usize) -> Result<Self, MapError> {
        check_size(bytes)?;
        Ok(Self { view: memory::map(fd, bytes)?, meter: CopyMeter::default() })
    }

    /// Returns the size of the arena in bytes.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Always returns false, because an arena has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes of the arena, beginning at offset `at`, to `into`, and reads each byte once. If `into` is a slice from
    /// [`OwnArena::bytes_mut`], one copy moves the bytes from arena to arena.
    ///
    /// # Errors
    /// Returns an error if the range is not inside the arena.
    pub fn copy_to(&self, at: usize, into: &mut [u8]) -> Result<(), OutOfArena> {
        OutOfArena::check(at, into.len(), self.len())?;
        self.meter.measure(into.len(), || self.view.copy_to(at, into));
        Ok(())
    }

    /// Returns the number of bytes that were copied out so far.
    pub fn copied_bytes(&self) -> u64 {
        self.meter.bytes()
    }

    /// Returns the time that all copies out of the arena took. Every large copy is timed. For small copies, the time is estimated
    /// from samples.
    pub fn copy_ticks(&self) -> Ticks {
        self.meter.ticks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::violation::Violation;

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memory files")]
    fn what_the_owner_writes_its_peer_copies_out_and_into_an_arena_of_its_own() {
        let (mut owner, fd) = OwnArena::create(10_000).unwrap();
        let peer = PeerArena::map(fd, 10_000).unwrap();
        let (mut second, _fd) = OwnArena::create(300).unwrap();
        assert_eq!((owner.len(), peer.len()), (10_000, 10_000));
        assert!(!owner.is_empty() && !peer.is_empty());
        let bytes: Vec<u8> = (0..=255).collect();
        owner.write(9_744, &bytes).unwrap();
        peer.copy_to(9_744, second.bytes_mut(44, 256).unwrap()).unwrap();
        assert_eq!(second.bytes(44, 256).unwrap(), bytes);
        let mut read = [1; 2];
        second.read(43, &mut read).unwrap();
        assert_eq!(read, [0, 0]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memory files")]
    fn a_place_outside_is_an_error_and_nothing_is_copied() {
        let (mut owner, fd) = OwnArena::create(100).unwrap();
        let peer = PeerArena::map(fd, 100).unwrap();
        for (at, len) in [(100, 1), (0, 101), (usize::MAX, 2), (99, usize::MAX)] {
            assert_eq!(owner.bytes(at, len).unwrap_err(), OutOfArena { at, len, arena: 100 });
            assert!(owner.bytes_mut(at, len).is_err());
        }
        let mut into = [7; 101];
        assert!(peer.copy_to(0, &mut into).is_err());
        assert!(owner.read(0, &mut into).is_err());
        assert!(owner.write(0, &into).is_err());
        assert_eq!(into, [7; 101]);
        assert_eq!(peer.copy_to(100, &mut []), Ok(()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memory files")]
    fn sizes_are_bounded_and_agreed() {
        assert!(OwnArena::create(0).is_err());
        assert!(OwnArena::create(ARENA_BYTES_MAX + 1).is_err());
        let (_owner, fd) = OwnArena::create(100).unwrap();
        let error = PeerArena::map(fd, 101).unwrap_err();
        assert!(matches!(error, MapError::Violation(Violation::Size { found: 100, needed: 101 })), "{error}");
        let (_owner, fd) = OwnArena::create(100).unwrap();
        assert!(matches!(PeerArena::map(fd, 0).unwrap_err(), MapError::Host(_)));
    }
}
