//! Mapped memory behind a safe interface. Only this module and `sys.rs` of this crate have unsafe code.
//!
//! A [`Region`] is memory that only this process can write, and only through this value, so slices of it are sound. A [`View`] is
//! memory that a peer can write at any time. No Rust reference points into a `View`. Words are read by relaxed atomic loads,
//! because Rust does not allow stronger ones on a read-only mapping. Bytes are copied by assembly code, whose loads the compiler
//! does not see. This module checks that offsets are inside the mapping. The callers are responsible for the choice of the right
//! offset.
#![allow(unsafe_code, reason = "the one module of this crate that touches shared memory and the time-stamp counter")]

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seals that the owner of a memory file adds. After that, the size of the file can no longer change, no process can map the file
/// writable again, and no seal can be added.
pub(crate) const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// Seals that the process that makes a memory file adds before the owner receives the file. After that, the size of the file can
/// no longer change.
pub(crate) const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Makes a memory file of `len` zero bytes with a fixed size, for the one process that will own it.
pub(crate) fn file(len: usize) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not support the flag NOEXEC_SEAL.
    let fd = match memfd_create("siga-ring", flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create("siga-ring", flags)?,
        other => other?,
    };
    ftruncate(&fd, u64::try_from(len).map_err(|_| Errno::FBIG)?)?;
    fcntl_add_seals(&fd, SIZE_SEALS)?;
    Ok(fd)
}

/// Size of a word, in bytes.
const WORD_BYTES: usize = 8;

/// A memory mapping of this process. The regions and views that are made from it share it.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
    #[cfg(test)]
    heap: bool,
}

// SAFETY: the pages belong to no thread, and all access to them goes through `Region` and `View`.
unsafe impl Send for Mapping {}
// SAFETY: as above. In addition, a shared reference to a mapping only gives access to its address.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, len: usize, protection: ProtFlags) -> Result<Self, Errno> {
        // SAFETY: the kernel chooses a free address, so the new mapping replaces no existing one.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let mapping = Self {
            base,
            len,
            #[cfg(test)]
            heap: false,
        };
        // Without this advice, a forked child process would be a second writer. SAFETY: the pages belong to this mapping, and the
        // advice has no effect in this process.
        unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxDontFork) }?;
        Ok(mapping)
    }

    /// Returns the address of `len` bytes, beginning at offset `at`.
    #[inline]
    fn at(&self, at: usize, len: usize) -> *mut u8 {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at {at} of {}", self.len);
        // SAFETY: `at` lies inside the mapping, or is its end.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// Returns the address of the word at offset `at`.
    #[inline]
    fn word(&self, at: usize) -> *mut u64 {
        assert!(at.is_multiple_of(WORD_BYTES), "no word lies at {at}");
        self.at(at, WORD_BYTES).cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[cfg(test)]
        if self.heap {
            plain::free(self.base, self.len);
            return;
        }
        // SAFETY: this value owns the mapping. Every user of the mapping had a reference to this value, so no user is left. The
        // call fails only if the kernel would have to split a mapping, and this is a complete one.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A part of a mapping that only the owner of this value can write.
#[derive(Debug)]
pub(crate) struct Region {
    mapping: Arc<Mapping>,
    start: usize,
    len: usize,
}

impl Region {
    /// Makes a memory file of zero bytes, maps it and seals it. Returns the region and a descriptor for the peer.
    pub(crate) fn create(len: usize) -> Result<(Self, OwnedFd), Errno> {
        Self::of(file(len)?, len)
    }

    /// Maps a memory file of `len` bytes that [`file`] made, and seals it. The process that made the file does not map it, and
    /// the seals prevent every other process from writing to it later.
    pub(crate) fn of(fd: OwnedFd, len: usize) -> Result<(Self, OwnedFd), Errno> {
        let mapping = Mapping::new(fd.as_fd(), len, ProtFlags::READ | ProtFlags::WRITE)?;
        fcntl_add_seals(&fd, SEALS)?;
        Ok((Self { mapping: Arc::new(mapping), start: 0, len }, fd))
    }

    /// Splits the region at offset `at`. The offsets of both parts begin at 0.
    pub(crate) fn split(self, at: usize) -> (Self, Self) {
        assert!(at <= self.len, "a region of {} bytes split at {at}", self.len);
        let head = Self { mapping: Arc::clone(&self.mapping), start: self.start, len: at };
        let rest = Self { mapping: self.mapping, start: self.start + at, len: self.len - at };
        (head, rest)
    }

    /// Returns the address of `len` bytes, beginning at offset `at`.
    #[inline]
    fn place(&self, at: usize, len: usize) -> *mut u8 {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at {at} of a region of {}", self.len);
        // SAFETY: the region lies inside the mapping, and the bytes lie inside the region.
        unsafe { self.mapping.base.as_ptr().add(self.start + at) }
    }

    /// Returns `len` bytes, beginning at offset `at`, for writing.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        let base = self.place(at, len);
        // SAFETY: the bytes are mapped and initialised (the kernel fills them with zeroes). In this process, they can be written
        // only through this value. They can be read through this value, and through views that are not read while a slice exists
        // (`Region::view`). This value is borrowed while the slice lives, and the seals prevent every other process from writing
        // the bytes.
        unsafe { std::slice::from_raw_parts_mut(base, len) }
    }

    /// Copies `bytes` to offset `at`.
    #[inline]
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        self.bytes_mut(at, bytes.len()).copy_from_slice(bytes);
    }

    /// Returns `len` bytes, beginning at offset `at`, for reading.
    pub(crate) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        let base = self.place(at, len);
        // SAFETY: as in `bytes_mut`. In addition, code of this process that writes these bytes borrows this value exclusively.
        unsafe { std::slice::from_raw_parts(base, len) }
    }

    /// Returns a view of the whole mapping that the region is a part of, as a peer sees it. The caller must not read the view while a
    /// slice of the region exists.
    pub(crate) fn view(&self) -> View {
        View { mapping: Arc::clone(&self.mapping) }
    }

    /// Stores a word that the peer may read at any time. The store is relaxed. The function is inlined, because most callers use
    /// a constant offset, for which the compiler can remove checks.
    #[inline]
    pub(crate) fn store(&mut self, at: usize, value: u64) {
        let word = self.place(at, WORD_BYTES);
        assert!(word.addr().is_multiple_of(WORD_BYTES), "no word lies at {at}");
        // SAFETY: the word is mapped and aligned. In this process it is borrowed exclusively, and other processes only read it.
        let word = unsafe { AtomicU64::from_ptr(word.cast()) };
        word.store(value, Ordering::Relaxed);
    }

    /// Returns the size of the region in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Memory that a peer can write at any time, mapped read-only.
#[derive(Debug, Clone)]
pub(crate) struct View {
    mapping: Arc<Mapping>,
}

impl View {
    /// Maps a memory file whose seals and size the caller has checked. Such a file cannot be truncated.
    pub(crate) fn map(fd: BorrowedFd<'_>, len: usize) -> Result<Self, Errno> {
        Ok(Self { mapping: Arc::new(Mapping::new(fd, len, ProtFlags::READ)?) })
    }

    /// Loads a word by a relaxed load.
    #[inline]
    pub(crate) fn load(&self, at: usize) -> u64 {
        let word = self.mapping.word(at);
        // SAFETY: the word is mapped and aligned, and all code of this process that writes it does so atomically.
        let word = unsafe { AtomicU64::from_ptr(word) };
        word.load(Ordering::Relaxed)
    }

    /// Copies bytes, beginning at offset `at`, to `into`. Each byte is read once, in no guaranteed order. The peer can change the
    /// bytes during the copy.
    #[inline]
    pub(crate) fn copy_to(&self, at: usize, into: &mut [u8]) {
        let from = self.mapping.at(at, into.len()).cast_const();
        // SAFETY: `from` has at least as many mapped bytes as `into`. The memory of `into` belongs to this process and is
        // borrowed exclusively.
        unsafe { copy(from, into) };
    }

    /// Returns the offset of `part` in this memory, or `None` if `part` is not in this memory.
    pub(crate) fn offset_of(&self, part: &[u8]) -> Option<usize> {
        let at = part.as_ptr().addr().checked_sub(self.mapping.base.as_ptr().addr())?;
        (at.checked_add(part.len())? <= self.mapping.len).then_some(at)
    }

    /// Returns the size of the view in bytes.
    pub(crate) fn len(&self) -> usize {
        self.mapping.len
    }
}

/// Distances from source to target, modulo the page size, for which `rep movsb` is slow: 3 GB/s instead of 50 GB/s on AMD's Zen 3
/// and Zen 4. The processor first compares only the low bits of addresses. At these distances, it wrongly assumes that the next
/// load depends on the last store, and waits for that store. A packet that a router forwards from HiperSockets to a virtual CTC
/// has such a distance.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const SLOW_APART: std::ops::Range<usize> = 1..32;

/// Number of bytes that the loop copies in one iteration. The loop replaces `rep movsb` at these distances.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const BLOCK: usize = 64;

/// Copies `into.len()` bytes that may change while they are read.
///
/// # Safety
/// The `into.len()` bytes that begin at `from` must be readable, and none of them may be in `into`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy(from: *const u8, into: &mut [u8]) {
    let apart = into.as_ptr().addr().wrapping_sub(from.addr()) % crate::layout::PAGE_BYTES;
    let blocks = if SLOW_APART.contains(&apart) { into.len() / BLOCK } else { 0 };
    // SAFETY: the caller promises that the bytes are readable. The compiler sees neither the loads nor their values, so it makes
    // no assumptions about bytes that the peer changes. The calling convention guarantees that the direction flag is clear.
    unsafe {
        std::arch::asm!(
            "test rax, rax",
            "jz 3f",
            "2:",
            "movups {a}, [rsi]",
            "movups {b}, [rsi + 16]",
            "movups {c}, [rsi + 32]",
            "movups {d}, [rsi + 48]",
            "movups [rdi], {a}",
            "movups [rdi + 16], {b}",
            "movups [rdi + 32], {c}",
            "movups [rdi + 48], {d}",
            "add rsi, 64",
            "add rdi, 64",
            "dec rax",
            "jnz 2b",
            "3:",
            "rep movsb",
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            inout("rax") blocks => _,
            inout("rcx") into.len() - blocks * BLOCK => _,
            inout("rsi") from => _,
            inout("rdi") into.as_mut_ptr() => _,
            options(nostack)
        );
    }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
unsafe fn copy(from: *const u8, into: &mut [u8]) {
    // SAFETY: the caller gives the same guarantee as this call requires.
    unsafe { copy_by_atomics(from, into) };
}

/// Like `copy`, but uses relaxed loads of words and bytes. It is for architectures without `rep movsb`.
///
/// # Safety
/// The same as for `copy`.
#[cfg(any(not(target_arch = "x86_64"), miri, test))]
unsafe fn copy_by_atomics(from: *const u8, into: &mut [u8]) {
    use std::sync::atomic::AtomicU8;

    let byte = |at: usize| {
        // SAFETY: the caller has `into.len()` readable bytes there.
        let place = unsafe { from.add(at) };
        // SAFETY: the byte is readable. Only another process writes it, or this process by an atomic store.
        unsafe { AtomicU8::from_ptr(place.cast_mut()) }.load(Ordering::Relaxed)
    };
    let word = |at: usize| {
        // SAFETY: the caller has `into.len()` readable bytes there.
        let place = unsafe { from.add(at) };
        // SAFETY: the word is readable, and the code below aligns it. Only another process writes it, or this process by an
        // atomic store.
        unsafe { AtomicU64::from_ptr(place.cast_mut().cast()) }.load(Ordering::Relaxed)
    };
    let head = from.align_offset(WORD_BYTES).min(into.len());
    let (first, rest) = into.split_at_mut(head);
    first.iter_mut().enumerate().for_each(|(at, to)| *to = byte(at));
    let (words, last) = rest.as_chunks_mut::<WORD_BYTES>();
    let words_end = head + words.len() * WORD_BYTES;
    words.iter_mut().enumerate().for_each(|(at, to)| *to = word(head + at * WORD_BYTES).to_ne_bytes());
    last.iter_mut().enumerate().for_each(|(at, to)| *to = byte(words_end + at));
}

/// Reads the time-stamp counter.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux allows programs to use it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Replacements that use heap memory instead of a memory file, so that Miri can check tests within one process.
#[cfg(test)]
mod plain {
    use super::{Mapping, Region, View};
    use crate::layout::PAGE_BYTES;
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
    use std::ptr::NonNull;
    use std::sync::Arc;

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, PAGE_BYTES).expect("a size in bounds")
    }

    pub(super) fn free(base: NonNull<u8>, len: usize) {
        // SAFETY: `pair` allocated it with this layout, and the mapping that is dropped was the last way to it.
        unsafe { dealloc(base.as_ptr(), layout(len)) };
    }

    /// What an owner has and what its peer sees of it.
    pub(crate) fn pair(len: usize) -> (Region, View) {
        assert!(len > 0, "an empty memory");
        // SAFETY: the layout has a size.
        let base = unsafe { alloc_zeroed(layout(len)) };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout(len)));
        let mapping = Arc::new(Mapping { base, len, heap: true });
        (Region { mapping: Arc::clone(&mapping), start: 0, len }, View { mapping })
    }
}

#[cfg(test)]
pub(crate) use plain::pair;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::PAGE_BYTES;
    use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open};
    use rustix::io::{pwrite, write};
    use rustix::mm::{MprotectFlags, mprotect};
    use std::os::fd::AsRawFd;

    const BYTES: usize = 8_192;

    /// What mapping the file for writing gives, and what making a mapping for reading writable gives.
    fn map_to_write(fd: BorrowedFd<'_>) -> (Result<Mapping, Errno>, Result<(), Errno>) {
        let reading = Mapping::new(fd, BYTES, ProtFlags::READ).unwrap();
        // SAFETY: the pages are this test's own, and stay readable whatever comes of it.
        let made_writable =
            unsafe { mprotect(reading.base.as_ptr().cast(), BYTES, MprotectFlags::READ | MprotectFlags::WRITE) };
        (Mapping::new(fd, BYTES, ProtFlags::READ | ProtFlags::WRITE), made_writable)
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memory files")]
    fn a_peer_can_neither_write_nor_resize_nor_empty_what_it_was_given() {
        let (mut region, fd) = Region::create(BYTES).unwrap();
        region.bytes_mut(0, BYTES).fill(7);
        let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let again = open(&name, OFlags::RDWR, Mode::empty()).unwrap();
        for fd in [fd.as_fd(), again.as_fd()] {
            assert_eq!(write(fd, &[1]), Err(Errno::PERM));
            assert_eq!(pwrite(fd, &[1], 0), Err(Errno::PERM));
            assert_eq!(ftruncate(fd, 0), Err(Errno::PERM));
            assert_eq!(ftruncate(fd, 2 * 8_192), Err(Errno::PERM));
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            assert_eq!(fallocate(fd, hole, 0, 4_096), Err(Errno::PERM));
            assert_eq!(fallocate(fd, FallocateFlags::empty(), 0, 8_193), Err(Errno::PERM));
            assert_eq!(fcntl_add_seals(fd, SealFlags::WRITE), Err(Errno::PERM));
            let (writing, made_writable) = map_to_write(fd);
            assert_eq!(writing.unwrap_err(), Errno::PERM);
            assert_eq!(made_writable, Err(Errno::ACCESS));
        }
        assert_eq!(open(&name, OFlags::RDWR | OFlags::TRUNC, Mode::empty()).unwrap_err(), Errno::PERM);
        let reading = Mapping::new(fd.as_fd(), BYTES, ProtFlags::READ).unwrap();
        // SAFETY: the pages are this test's own; emptied they would read as zeroes.
        let emptied = unsafe { madvise(reading.base.as_ptr().cast(), BYTES, Advice::LinuxRemove) };
        assert_eq!(emptied, Err(Errno::ACCESS));
        let debugger = open("/proc/self/mem", OFlags::RDWR, Mode::empty()).unwrap();
        let place = u64::try_from(reading.base.as_ptr().addr()).unwrap();
        assert_eq!(pwrite(&debugger, &[1], place), Err(Errno::IO));
        assert!(region.bytes(0, BYTES).iter().all(|byte| *byte == 7));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memory files")]
    fn not_even_the_owner_can_map_its_memory_writable_again_or_empty_it() {
        let (region, fd) = Region::create(BYTES).unwrap();
        let (writing, made_writable) = map_to_write(fd.as_fd());
        assert_eq!((writing.unwrap_err(), made_writable), (Errno::PERM, Err(Errno::ACCESS)));
        // SAFETY: the pages are this test's own; emptied they would read as zeroes.
        let emptied = unsafe { madvise(region.mapping.base.as_ptr().cast(), BYTES, Advice::LinuxRemove) };
        assert_eq!(emptied, Err(Errno::PERM));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memory files")]
    fn a_child_that_is_forked_has_no_part_in_the_memory() {
        let (region, _fd) = Region::create(BYTES).unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let base = format!("{:x}-", region.mapping.base.as_ptr().addr());
        let of_mapping = maps.split("VmFlags:").find(|entry| entry.contains(&base)).unwrap();
        let flags = maps[maps.find(of_mapping).unwrap() + of_mapping.len()..].lines().next().unwrap();
        assert!(flags.contains(" dc "), "{flags}");
    }

    type Copy = unsafe fn(*const u8, &mut [u8]);

    #[test]
    fn both_ways_of_copying_copy_every_byte_from_and_to_any_place() {
        let (mut region, view) = pair(4_096);
        let bytes = region.bytes_mut(0, 4_096);
        bytes.iter_mut().zip(0_u8..=250).for_each(|(byte, value)| *byte = value);
        let bytes: Vec<u8> = (0_u8..=250).chain([0; 100]).collect();
        let ways: [Copy; 2] = [copy, copy_by_atomics];
        for way in ways {
            for at in [0, 1, 7, 8, 9, 240] {
                for len in [0, 1, 7, 8, 9, 16, 63, 64, 65, 100] {
                    let mut into = [0xff; 102];
                    // SAFETY: 340 bytes are readable there, and `into` is not among them.
                    unsafe { way(view.mapping.at(at, len), &mut into[1..=len]) };
                    assert_eq!(into[1..=len], bytes[at..at + len]);
                    assert!(into[0] == 0xff && into[1 + len..].iter().all(|byte| *byte == 0xff));
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri copies the other way, which knows no pages")]
    fn a_copy_is_right_however_far_the_two_ends_lie_apart_within_a_page() {
        let (mut region, view) = pair(8_192);
        region.bytes_mut(0, 8_192).iter_mut().zip((0_u8..=250).cycle()).for_each(|(byte, value)| *byte = value);
        let bytes = region.bytes(0, 8_192).to_vec();
        let mut memory = vec![0xff; 3 * PAGE_BYTES];
        for apart in (0..40).chain([64, 4_095]) {
            for (at, len) in [(0, 4_096), (3, 1), (5, 63), (70, 64), (70, 129), (1, 8_000)] {
                memory.fill(0xff);
                let from = view.mapping.at(at, len).cast_const();
                let start = from.addr().wrapping_sub(memory.as_ptr().addr()).wrapping_add(apart) % PAGE_BYTES;
                // SAFETY: `len` bytes are readable there, and `memory` is not among them.
                unsafe { copy(from, &mut memory[start..start + len]) };
                assert_eq!(memory[start..start + len], bytes[at..at + len], "{len} bytes from {at}, {apart} apart");
                let around = memory[..start].iter().chain(&memory[start + len..]);
                assert!(around.into_iter().all(|byte| *byte == 0xff), "{len} bytes from {at}, {apart} apart");
            }
        }
    }

    #[test]
    fn parts_of_a_region_are_apart_and_its_bounds_hold() {
        let (region, view) = pair(4_096);
        let (mut head, mut rest) = region.split(256);
        head.store(248, 1);
        rest.store(0, 2);
        assert_eq!((view.load(248), view.load(256)), (1, 2));
        for (at, len) in [(250, 8), (256, 1), (usize::MAX, 1), (0, 257)] {
            let outside = std::panic::AssertUnwindSafe(|| head.bytes(at, len).len());
            assert!(std::panic::catch_unwind(outside).is_err(), "{at} {len}");
        }
        assert!(std::panic::catch_unwind(|| view.load(4_096)).is_err());
        assert!(std::panic::catch_unwind(|| view.load(4)).is_err());
        assert!(std::panic::catch_unwind(|| view.copy_to(4_090, &mut [0; 8])).is_err());
    }
}
