//! The system calls that no safe library covers: BPF, perf events, ethtool ioctls.
//!
//! All `unsafe` code of the laboratory lies in this module and its files, each of which offers a safe interface.
//! It takes no decision: policy belongs to the callers.
#![allow(unsafe_code, reason = "the one module of this crate that makes raw system calls")]

use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

/// User and system time of the calling process in nanoseconds, split by the kernel's ticks.
pub fn process_times_ns() -> (u64, u64) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a writable rusage; RUSAGE_SELF is always valid.
    let status = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    if status != 0 {
        return (0, 0);
    }
    // SAFETY: all-zero bytes are a valid rusage, and getrusage has filled it.
    let usage = unsafe { usage.assume_init() };
    let ns = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_usec).unwrap_or(0) * 1_000
    };
    (ns(usage.ru_utime), ns(usage.ru_stime))
}

/// A second descriptor for the file that `number` names in this process.
///
/// # Errors
/// No such descriptor is open.
pub fn duplicate_descriptor(number: i32) -> std::io::Result<OwnedFd> {
    // SAFETY: fcntl on a number that may not be open fails with EBADF and touches no memory.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: fcntl has just made `copy`, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}
pub mod ethtool;
pub mod namespace;
