//! The memory of a link: the memory file that this end writes, and the memory file of the peer, which is checked before it is
//! mapped.
//!
//! No process can map a sealed memory file writable a second time. If the owner's process restarts, the new process (a new
//! *incarnation*) therefore uses a new file. Its peers map the new file and close the old one.

use crate::layout::Shape;
use crate::map::{self, Region, SEALS, SIZE_SEALS, View};
use crate::violation::{MapError, Violation};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Magic number of the file system of ordinary memory files. A memory file on huge pages has another magic number and is refused,
/// because a read of a missing huge page would kill the process.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The memory that this end writes: the buffers of its outgoing ring, and its own indices.
#[derive(Debug)]
pub struct OwnMemory {
    pub(crate) region: Region,
    pub(crate) shape: Shape,
}

impl OwnMemory {
    /// Makes memory for an outgoing ring, maps it and seals it. Returns the memory and a descriptor for the process that reads
    /// it.
    ///
    /// # Errors
    /// Returns an error if the host has no memory, mappings or descriptors left.
    pub fn create(outbound: Shape) -> io::Result<(Self, OwnedFd)> {
        let (region, fd) = Region::create(outbound.memory_bytes())?;
        Ok((Self { region, shape: outbound }, fd))
    }

    /// Like [`OwnMemory::create`], but uses a memory file from [`memory_file`]. This is for a process that is not allowed to make
    /// files.
    ///
    /// # Errors
    /// Returns an error if the file has the wrong size or was sealed by another owner, or if the host has no mappings left.
    pub fn in_file(file: OwnedFd, outbound: Shape) -> Result<(Self, OwnedFd), MapError> {
        let (region, fd) = own(file, outbound.memory_bytes())?;
        Ok((Self { region, shape: outbound }, fd))
    }
}

/// Makes a memory file of zero bytes for the one process that will own it. The size of the file is fixed. Its owner later adds
/// the seals that prevent other processes from writing to it.
///
/// # Errors
/// Returns an error if the host has no memory or descriptors left, or if the process's limit on file sizes is lower than `bytes`.
pub fn memory_file(bytes: usize) -> io::Result<OwnedFd> {
    Ok(map::file(bytes)?)
}

/// Maps and seals a memory file that was made for this process.
pub(crate) fn own(file: OwnedFd, bytes: usize) -> Result<(Region, OwnedFd), MapError> {
    check(file.as_fd(), bytes, SIZE_SEALS)?;
    Ok(Region::of(file, bytes)?)
}

/// The memory that the peer writes, mapped read-only.
#[derive(Debug)]
pub struct PeerMemory {
    pub(crate) view: View,
    pub(crate) shape: Shape,
}

impl PeerMemory {
    /// Maps the memory of a peer whose outgoing ring has the shape `inbound`, and closes the descriptor.
    ///
    /// # Errors
    /// Returns an error if the descriptor is not a memory file with the required seals and size, or if the host has no mappings
    /// left.
    pub fn map(fd: OwnedFd, inbound: Shape) -> Result<Self, MapError> {
        let view = map(fd, inbound.memory_bytes())?;
        Ok(Self { view, shape: inbound })
    }
}

/// Maps a memory file of exactly `bytes` bytes that the peer cannot truncate.
pub(crate) fn map(fd: OwnedFd, bytes: usize) -> Result<View, MapError> {
    check(fd.as_fd(), bytes, SEALS)?;
    let view = View::map(fd.as_fd(), bytes)?;
    drop(fd);
    Ok(view)
}

fn check(fd: BorrowedFd<'_>, bytes: usize, needed_seals: SealFlags) -> Result<(), MapError> {
    let file_system = fstatfs(fd)?.f_type.cast_unsigned();
    let seals = match fcntl_get_seals(fd) {
        Err(Errno::INVAL) => return Err(Violation::NotMemory { file_system }.into()),
        other => other?,
    };
    if file_system != TMPFS_MAGIC {
        return Err(Violation::NotMemory { file_system }.into());
    }
    if !seals.contains(needed_seals) {
        return Err(Violation::Seals { found: seals.bits(), needed: needed_seals.bits() }.into());
    }
    // The seals were checked first, so the size cannot change after this call.
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
    use rustix::fs::{MemfdFlags, Mode, OFlags, fcntl_add_seals, ftruncate, memfd_create, open};
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
    fn made(flags: MemfdFlags, bytes: usize, seals: SealFlags) -> Result<OwnedFd, Errno> {
        let fd = memfd_create("siga-ring-test", flags | MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, bytes.try_into().unwrap())?;
        fcntl_add_seals(&fd, seals)?;
        Ok(fd)
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memory files")]
    fn memory_that_its_owner_could_take_away_or_change_in_size_is_refused() {
        let bytes = shape().memory_bytes();
        let map = |seals| PeerMemory::map(made(MemfdFlags::empty(), bytes, seals).unwrap(), shape());
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
    fn memory_that_another_process_made_is_owned_once_and_keeps_its_size() {
        let bytes = shape().memory_bytes();
        let file = memory_file(bytes).unwrap();
        let other = rustix::io::fcntl_dupfd_cloexec(&file, 0).unwrap();
        assert_eq!(ftruncate(&file, 0).unwrap_err(), Errno::PERM);
        assert_eq!(ftruncate(&file, 2 * bytes as u64).unwrap_err(), Errno::PERM);
        let (_own, fd) = OwnMemory::in_file(file, shape()).unwrap();
        assert!(matches!(OwnMemory::in_file(other, shape()), Err(MapError::Host(_))), "a second writer");
        PeerMemory::map(fd, shape()).unwrap();
        let wrong = memory_file(bytes + 4_096).unwrap();
        assert!(matches!(OwnMemory::in_file(wrong, shape()), Err(MapError::Violation(Violation::Size { .. }))));
        let unsealed = made(MemfdFlags::empty(), bytes, SealFlags::empty()).unwrap();
        assert!(matches!(OwnMemory::in_file(unsealed, shape()), Err(MapError::Violation(Violation::Seals { .. }))));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memory files")]
    fn memory_of_another_size_is_refused() {
        let needed = shape().memory_bytes();
        for found in [0, 1, needed - 1, needed + 1, needed + 4_096] {
            let fd = made(MemfdFlags::empty(), found, SEALS).unwrap();
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
        match made(MemfdFlags::HUGETLB, 0, SEALS) {
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
