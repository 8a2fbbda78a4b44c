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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create, open};
    use rustix::pipe::{PipeFlags, pipe_with};

    fn shape() -> Shape {
        Shape::new(1_000, 3).unwrap()
    }

    fn refused(fd: OwnedFd) -> Violation {
        match PeerMemory::map(fd, shape()).unwrap_err() {
            MapError::Violation(violation) => violation,
            MapError::Host(error) => panic!("{error}"),
        }
    }

    /// A memory file of the right size with these seals.
    fn memory_file(flags: MemfdFlags, bytes: usize, seals: SealFlags) -> Result<OwnedFd, Errno> {
        let fd = memfd_create("siga-ring-test", flags | MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, bytes.try_into().unwrap())?;
        fcntl_add_seals(&fd, seals)?;
        Ok(fd)
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memory files")]
    fn memory_that_its_owner_could_take_away_or_change_in_size_is_refused() {
        let bytes = shape().memory_bytes();
        let map = |seals| PeerMemory::map(memory_file(MemfdFlags::empty(), bytes, seals).unwrap(), shape());
        assert!(map(SEALS).is_ok());
        for missing in SEALS {
            let seals = SEALS.difference(missing);
            let violation = Violation::Seals { found: seals.bits(), needed: SEALS.bits() };
            assert!(matches!(map(seals), Err(MapError::Violation(found)) if found == violation), "{missing:?}");
        }
        // Memory that nobody can write any more is of no use, and does no harm.
        assert!(map(SEALS | SealFlags::WRITE).is_ok());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memory files")]
    fn memory_of_another_size_is_refused() {
        let needed = shape().memory_bytes();
        for found in [0, 1, needed - 1, needed + 1, needed + 4_096] {
            let fd = memory_file(MemfdFlags::empty(), found, SEALS).unwrap();
            let (found, needed) = (found.try_into().unwrap(), needed.try_into().unwrap());
            assert_eq!(refused(fd), Violation::Size { found, needed });
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memory files")]
    fn what_is_no_memory_file_is_refused() {
        let name = std::env::current_exe().unwrap();
        let (pipe, _other_end) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        for fd in [open(&name, OFlags::RDONLY, Mode::empty()).unwrap(), pipe] {
            assert!(matches!(refused(fd), Violation::NotMemory { .. }));
        }
        let file = open("/dev/shm", OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(refused(file), Violation::Seals { found: SealFlags::SEAL.bits(), needed: SEALS.bits() });
        // Huge pages can run out, and reading one that is not there ends a process.
        match memory_file(MemfdFlags::HUGETLB, 0, SEALS) {
            Ok(fd) => assert!(matches!(refused(fd), Violation::NotMemory { .. })),
            Err(error) => eprintln!("skipped, because the kernel makes no memory of huge pages: {error}"),
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memory files")]
    fn a_descriptor_that_is_for_reading_alone_can_be_mapped() {
        let (mut own, fd) = OwnMemory::create(shape()).unwrap();
        let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
        let peer = PeerMemory::map(open(name, OFlags::RDONLY, Mode::empty()).unwrap(), shape()).unwrap();
        own.region.store(0, 9);
        assert_eq!(peer.view.load(0), 9);
    }
}
