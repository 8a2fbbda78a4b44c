//! System calls that no safe library covers: between fork and exec, new user namespaces, and the peer of a socket.
//!
//! All `unsafe` code of the crate is in this file, behind a safe interface. The callers decide when to use it.
#![allow(unsafe_code, reason = "the one module of this crate that makes raw system calls")]

use rustix::process::setsid;
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities, set_capabilities, unshare_unsafe};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
#[cfg(test)]
use std::time::Duration;

/// The largest signal number on any supported architecture.
const SIGNAL_MAX: libc::c_int = 64;

/// Gives the process that `command` starts a clean state: a session of its own, default actions for all signals, none of them blocked,
/// and no descriptors but 0, 1 and 2. An unreadable program file is unreadable for root too.
pub(crate) fn start_afresh(command: &mut Command) {
    let prepare = || {
        setsid()?;
        reset_signals()?;
        // The kernel checks during exec whether the caller may read the program file. Root gets the capabilities back by exec.
        let mut own = capabilities(None)?;
        own.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        set_capabilities(None, own)?;
        // The descriptors are marked, not closed: the standard library reports a failed exec over one of them.
        // SAFETY: close_range touches no memory.
        let status = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec `prepare` makes system calls only; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) };
}

fn reset_signals() -> io::Result<()> {
    /// The size of the kernel's signal set.
    const SET_BYTES: usize = 8;
    // For the kernel this is the default action without flags and with an empty mask. glibc's function refuses the signals that it
    // reserves for itself, which may be ignored at the start too, so the system call is made directly.
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

/// A pointer for results that are not wanted.
const NOTHING: *mut u8 = std::ptr::null_mut();

/// Moves the calling process into a user namespace of its own, with all capabilities and no mapped id.
///
/// # Errors
/// EINVAL in a process with several threads; EPERM or ENOSPC where unprivileged user namespaces are switched off.
pub(crate) fn unshare_user() -> io::Result<()> {
    // SAFETY: CLONE_FILES is not asked for, so every thread keeps its view of the descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    Ok(())
}

/// A descriptor of the process at the other end of a connection: the process that connected, or that listened.
///
/// # Errors
/// The kernel is older than 6.5 and has no such option (ENOPROTOOPT), or the process is gone.
pub(crate) fn peer_pidfd(socket: impl AsFd) -> io::Result<OwnedFd> {
    /// From <asm-generic/socket.h>.
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

/// The outcome of a system call that a child of this process made under filters.
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

/// Makes several calls with one number in one child. Returns how many succeeded, or how the child ended. SIGALRM ends a child that
/// blocks for longer than `time`.
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

/// Asks for the process id through the 32-bit interface of this architecture.
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
