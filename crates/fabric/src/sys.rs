//! The system calls that no safe library covers: what a program does between fork and exec, and leaving a user namespace.
//!
//! All `unsafe` code of the fabric lies in this file, behind a safe interface. It takes no decision: policy belongs to the
//! callers.
#![allow(unsafe_code, reason = "the one module of this crate that makes raw system calls")]

use rustix::process::setsid;
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities, set_capabilities, unshare_unsafe};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
#[cfg(test)]
use std::time::Duration;

/// The largest number of a signal on any architecture that this runs on.
const SIGNAL_MAX: libc::c_int = 64;

/// Has the process that `command` starts begin as if nobody had started it: a session of its own, every signal at its
/// default and none blocked, no descriptor but 0, 1 and 2. A file that is unreadable is so for root too.
pub(crate) fn start_afresh(command: &mut Command) {
    let prepare = || {
        setsid()?;
        reset_signals()?;
        // Root gets them back by executing; meanwhile the kernel asks whether the caller may read what it executes.
        let mut own = capabilities(None)?;
        own.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        set_capabilities(None, own)?;
        // Marked instead of closed: the standard library tells a failed exec by a descriptor of its own.
        // SAFETY: close_range touches no memory.
        let status = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec `prepare` makes system calls only; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) };
}

fn reset_signals() -> io::Result<()> {
    /// The size of a set of signals to the kernel.
    const SET_BYTES: usize = 8;
    // To the kernel, as an action: the default, without flags, with an empty mask. Its own call is made since glibc's leaves
    // out the signals that it keeps for itself, which may come in ignored too.
    let default = [0_u64; 4];
    let none = [0_u8; SET_BYTES];
    for signal in 1..=SIGNAL_MAX {
        // SAFETY: an action is no longer than `default`, which the kernel only reads; what cannot be set (SIGKILL) is
        // refused, and is at its default anyway.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), NOTHING, SET_BYTES) };
    }
    // SAFETY: the kernel reads the set, and has nowhere to write the former one.
    let status =
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, none.as_ptr(), NOTHING, SET_BYTES) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where nothing is to be written.
const NOTHING: *mut u8 = std::ptr::null_mut();

/// Moves the calling process into a user namespace of its own, in which it has every capability and no mapped id.
///
/// # Errors
/// EINVAL in a process with several threads; EPERM or ENOSPC where unprivileged user namespaces are switched off.
pub(crate) fn unshare_user() -> io::Result<()> {
    // SAFETY: CLONE_FILES is not asked for, so every thread keeps its view of the descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    Ok(())
}

/// A descriptor of the process at the other end of a connection, which the kernel noted when that process connected or listened.
///
/// # Errors
/// The kernel is older than 6.5 and has no such option (ENOPROTOOPT), or the process is gone.
pub(crate) fn peer_pidfd(socket: impl AsFd) -> io::Result<OwnedFd> {
    /// Of <asm-generic/socket.h>.
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut descriptor: libc::c_int = -1;
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(io::Error::other)?;
    // SAFETY: the kernel writes one number, of the length that is passed, and that length.
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut descriptor).cast(),
            &raw mut length,
        )
    };
    if status != 0 || descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made the descriptor for this call; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// What became of a call that a child of this process made under filters.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Refused(i32),
    Killed(i32),
}

/// Makes one call in a child of this process that has nothing but `filters` in force.
#[cfg(test)]
pub(crate) fn attempt(filters: &[seccompiler::BpfProgram], call: i64, arguments: &[u64]) -> Outcome {
    let [a, b, c, d, e, f] = std::array::from_fn(|at| arguments.get(at).copied().unwrap_or(0));
    // SAFETY: what a call does to memory, it does to the child's copy, which does nothing afterwards but end.
    in_child(filters, None, || match unsafe { libc::syscall(call, a, b, c, d, e, f) } {
        -1 => io::Error::last_os_error().raw_os_error().unwrap_or(i32::MAX),
        _ => 0,
    })
}

/// Makes calls with one number, one after the other, in one child: how many of them were done, or how the child ended. One
/// that waits for longer than `time` is ended by SIGALRM.
#[cfg(test)]
pub(crate) fn attempt_all(
    time: Duration,
    filters: &[seccompiler::BpfProgram],
    call: i64,
    arguments: &[[u64; 6]],
) -> Result<usize, Outcome> {
    // SAFETY: as in `attempt`.
    let make = |[a, b, c, d, e, f]: [u64; 6]| unsafe { libc::syscall(call, a, b, c, d, e, f) } != -1;
    // An exit status has eight bits.
    let work = || i32::try_from(arguments.iter().filter(|each| make(**each)).count().min(255)).unwrap_or(255);
    match in_child(filters, Some(time), work) {
        Outcome::Done => Ok(0),
        Outcome::Refused(done) => Ok(done.unsigned_abs() as usize),
        ended @ Outcome::Killed(_) => Err(ended),
    }
}

/// Asks for the process id by the 32-bit interface of this architecture.
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) fn attempt_32_bit(filters: &[seccompiler::BpfProgram]) -> Outcome {
    in_child(filters, None, || {
        let number: u64;
        // SAFETY: the call takes no argument and changes no register but rax.
        unsafe { std::arch::asm!("int 0x80", inlateout("rax") 20_u64 => number) };
        i32::from(number == 0)
    })
}

/// Runs `work`, which returns an error's number or 0, in a child of this process. It must not allocate or take a lock.
#[cfg(test)]
fn in_child(filters: &[seccompiler::BpfProgram], time: Option<Duration>, work: impl FnOnce() -> i32) -> Outcome {
    // SAFETY: the child makes system calls only until it ends by one.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", io::Error::last_os_error());
    if child == 0 {
        if let Some(time) = time {
            let it_value = libc::timeval { tv_sec: 0, tv_usec: i64::from(time.subsec_micros()) };
            let timer = libc::itimerval { it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 }, it_value };
            // SAFETY: the kernel reads the timer, and has nowhere to write the former one.
            unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
        }
        let ready = filters.iter().all(|filter| seccompiler::apply_filter_all_threads(filter).is_ok());
        let error = if ready { work() } else { libc::ENOTRECOVERABLE };
        // SAFETY: it ends the child without running anything of the test program's.
        unsafe { libc::_exit(error) };
    }
    let mut status = 0;
    // SAFETY: the pointer is to a writable number.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child, "{}", io::Error::last_os_error());
    match (libc::WIFSIGNALED(status), libc::WEXITSTATUS(status)) {
        (true, _) => Outcome::Killed(libc::WTERMSIG(status)),
        (false, 0) => Outcome::Done,
        (false, error) => Outcome::Refused(error),
    }
}
