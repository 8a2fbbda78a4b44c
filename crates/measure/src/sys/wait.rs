//! Waits for child processes, and reads what the kernel counted for them.

use std::io::{Error, ErrorKind, Result};
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How a child process ended, and what it and the descendants for which it waited used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reaped {
    /// How the process ended.
    pub(crate) status: ExitStatus,
    /// CPU time in user mode, in nanoseconds.
    pub(crate) user_ns: u64,
    /// CPU time in the kernel, in nanoseconds.
    pub(crate) system_ns: u64,
    /// The other counters, with the names of getrusage(2).
    pub(crate) usage: libc::rusage,
}

/// The state of the children of the calling process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Children {
    /// There are none.
    None,
    /// This child has ended, and the calling process has not waited for it yet.
    Ended(u32),
    /// All of them run.
    Running,
}

/// Returns the state of the children of the calling process, and waits for none of them.
///
/// # Errors
/// Returns the kernel's error.
pub(crate) fn children() -> Result<Children> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the pointer is valid for writing one siginfo_t. WNOWAIT leaves the child as it is.
    let outcome = unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) };
    if outcome != 0 {
        let error = Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ECHILD) { Ok(Children::None) } else { Err(error) };
    }
    // SAFETY: all-zero bytes are a valid siginfo_t, and waitid has filled it if a child has ended.
    let info = unsafe { info.assume_init() };
    // SAFETY: waitid fills the fields of SIGCHLD; without an ended child, they are zero.
    let pid = unsafe { info.si_pid() };
    Ok(u32::try_from(pid).ok().filter(|&pid| pid > 0).map_or(Children::Running, Children::Ended))
}

/// Waits until the child `pid` has ended, and removes it from the process table.
///
/// # Errors
/// Returns an error if the process is no child of the calling process.
pub(crate) fn reap(pid: u32) -> Result<Reaped> {
    let pid = i32::try_from(pid).map_err(|_| Error::from(ErrorKind::InvalidInput))?;
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    loop {
        // SAFETY: both pointers are valid for writing one value of their types.
        let outcome = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
        if outcome == pid {
            break;
        }
        let error = Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: all-zero bytes are a valid rusage, and wait4 has filled it.
    let usage = unsafe { usage.assume_init() };
    let ns = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_usec).unwrap_or(0) * 1_000
    };
    Ok(Reaped {
        status: ExitStatus::from_raw(status),
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        usage,
    })
}
