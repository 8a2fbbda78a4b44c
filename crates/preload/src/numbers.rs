//! What each descriptor number stands for. Reading this takes no lock, so a call on a foreign descriptor costs little more than
//! without this library, and a signal handler may make such a call at any time.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};

/// What a descriptor number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A descriptor that this library leaves to libc.
    Foreign,
    /// A siga socket.
    Socket,
    /// An epoll descriptor whose set has siga sockets, or contains a set or is contained in one.
    EpollSet,
    /// Another epoll descriptor.
    PlainSet,
    /// A descriptor that this library needs itself. The program cannot close it.
    Reserved,
}

/// Number of descriptor numbers that can be siga's. The kernel's default for the largest number is the same (`fs.nr_open`).
pub(crate) const NUMBERS_MAX: usize = 1 << 20;

static MEANINGS: [AtomicU8; NUMBERS_MAX] = [const { AtomicU8::new(0) }; NUMBERS_MAX];

/// Returns what a number stands for.
#[inline]
pub(crate) fn meaning(number: RawFd) -> Meaning {
    match usize::try_from(number).ok().and_then(|at| MEANINGS.get(at)).map(|meaning| meaning.load(Ordering::Acquire)) {
        Some(1) => Meaning::Socket,
        Some(2) => Meaning::EpollSet,
        Some(3) => Meaning::Reserved,
        Some(4) => Meaning::PlainSet,
        Some(_) | None => Meaning::Foreign,
    }
}

/// Sets what a number stands for. Returns false if the number is too large.
pub(crate) fn set(number: RawFd, meaning: Meaning) -> bool {
    let code = match meaning {
        Meaning::Foreign => 0,
        Meaning::Socket => 1,
        Meaning::EpollSet => 2,
        Meaning::Reserved => 3,
        Meaning::PlainSet => 4,
    };
    let entry = usize::try_from(number).ok().and_then(|at| MEANINGS.get(at));
    entry.inspect(|entry| entry.store(code, Ordering::Release)).is_some()
}

/// Returns the numbers from `first` to `last` that do not stand for foreign descriptors.
pub(crate) fn ours(first: u32, last: u32) -> impl Iterator<Item = RawFd> {
    let end = (last as usize).saturating_add(1).min(NUMBERS_MAX);
    let range = (first as usize).min(end)..end;
    range.filter_map(|at| RawFd::try_from(at).ok()).filter(|number| meaning(*number) != Meaning::Foreign)
}
