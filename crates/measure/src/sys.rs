//! The system calls that no safe library covers: BPF, perf events, ethtool ioctls.
//!
//! All `unsafe` code of the laboratory lies in this module and its files; each offers a safe interface. It decides
//! nothing: policy belongs to the callers.
#![allow(unsafe_code, reason = "the one module of this crate that makes raw system calls")]

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

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

/// CPU time of another process with all its threads, in nanoseconds.
///
/// # Errors
/// There is no such process.
pub fn process_cpu_ns(pid: u32) -> std::io::Result<u64> {
    // The number of a process's scheduler clock (clock_getcpuclockid(3)).
    const CPUCLOCK_SCHED: libc::clockid_t = 2;
    let pid = i32::try_from(pid).map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
    let clock = (!pid << 3) | CPUCLOCK_SCHED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a writable timespec; a clock that there is not is an error.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0))
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

/// Lets `interrupt` end system calls that wait, in any thread of this process.
///
/// # Errors
/// The kernel refused to set the signal's action.
pub fn allow_interrupts() -> std::io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zero bytes are a valid sigaction: no flags (SA_RESTART would go on waiting), an empty mask.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = nothing as *const () as libc::sighandler_t;
    // SAFETY: the action is valid, and its handler does nothing and so is safe at any point of any thread.
    let status = unsafe { libc::sigaction(libc::SIGUSR1, action, std::ptr::null_mut()) };
    if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Ends the system call in which a thread of this process waits, after `allow_interrupts`; does nothing if the thread
/// has ended.
pub fn interrupt(thread: i32) {
    let process = std::process::id();
    // SAFETY: tgkill touches no memory, and the process id confines it to this process.
    let _ = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
}

/// Ends the process that `command` starts when the starting thread ends, for any reason (PR_SET_PDEATHSIG).
pub fn end_with_parent(command: &mut Command) {
    let parent = i32::try_from(std::process::id()).ok();
    let tie = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before the kernel got the request.
        let same = getppid().map(|pid| pid.as_raw_nonzero().get()) == parent;
        if same { Ok(()) } else { Err(std::io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec `tie` makes two system calls; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(tie) };
}

pub mod bpf;
pub mod ethtool;
pub mod namespace;
pub mod perf;
