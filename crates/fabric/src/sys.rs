//! System calls for which no library has a safe interface. They are needed between fork and exec, to enter a new user namespace,
//! and to identify the process at the other end of a socket.
//!
//! All `unsafe` code of the crate is in this file, behind a safe interface.
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

/// Makes `command` start its process in a clean state. The process gets its own session, the default action for each signal, no
/// blocked signals, and no descriptors except 0, 1 and 2. If the program file has no read permission, the kernel makes the process
/// not dumpable, even if root starts it. So other processes cannot access it.
pub(crate) fn start_afresh(command: &mut Command) {
    let prepare = || {
        setsid()?;
        reset_signals()?;
        // During exec the kernel checks whether the caller may read the program file. With these capabilities root could read every
        // file, so remove them. Exec gives the capabilities back to root.
        let mut own = capabilities(None)?;
        own.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        set_capabilities(None, own)?;
        // The descriptors are only marked close-on-exec here, because the standard library still needs one of them to report a
        // failed exec. SAFETY: close_range reads and writes no memory of this process.
        let status = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec, `prepare` only makes system calls. It does not allocate and does not take a lock.
    unsafe { command.pre_exec(prepare) };
}

fn reset_signals() -> io::Result<()> {
    /// Size of the kernel's signal set in bytes.
    const SET_BYTES: usize = 8;
    // For the kernel, an action of all zeros is the default action without flags and with an empty mask. glibc's function is not
    // used, because it refuses the signals that glibc reserves. They may have been ignored when this process started, so they are
    // reset too.
    let default = [0_u64; 4];
    let none = [0_u8; SET_BYTES];
    for signal in 1..=SIGNAL_MAX {
        // SAFETY: an action has at most the size of `default`, which the kernel only reads. The kernel refuses to set some signals
        // (SIGKILL), which always have the default action.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), NOTHING, SET_BYTES) };
    }
    // SAFETY: the kernel only reads the set. The pointer for the former set is null, so the kernel writes nothing.
    let status =
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, none.as_ptr(), NOTHING, SET_BYTES) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A null pointer, for results that are not needed.
const NOTHING: *mut u8 = std::ptr::null_mut();

/// Moves the calling process into a new user namespace, with all capabilities and without mapped user or group ids.
///
/// # Errors
/// Returns EINVAL if the process has several threads, and EPERM or ENOSPC if unprivileged user namespaces are disabled.
pub(crate) fn unshare_user() -> io::Result<()> {
    // SAFETY: the flags do not include CLONE_FILES, so every thread keeps the same descriptor table.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    Ok(())
}

/// Returns a pidfd of the process at the other end of a connection: the process that connected or that listened.
///
/// # Errors
/// Returns ENOPROTOOPT if the kernel does not have this socket option, as before version 6.5. Returns another error if the process
/// has ended.
pub(crate) fn peer_pidfd(socket: impl AsFd) -> io::Result<OwnedFd> {
    /// The option's number in <asm-generic/socket.h>.
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut descriptor: libc::c_int = -1;
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(io::Error::other)?;
    // SAFETY: both pointers are valid for writes during the call. The kernel writes a descriptor of at most `length` bytes, and its
    // length.
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
    // SAFETY: the kernel made the descriptor for this call, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The outcome of a system call that a child of this process made under seccomp filters.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Refused(i32),
    Killed(i32),
}

/// Makes one system call in a child of this process, on which only `filters` are installed. Returns the outcome.
#[cfg(test)]
pub(crate) fn attempt(filters: &[seccompiler::BpfProgram], call: i64, arguments: &[u64]) -> Outcome {
    let [a, b, c, d, e, f] = std::array::from_fn(|at| arguments.get(at).copied().unwrap_or(0));
    // SAFETY: the call can change only the child's copy of memory, and the child only exits afterwards.
    in_child(filters, None, || match unsafe { libc::syscall(call, a, b, c, d, e, f) } {
        -1 => io::Error::last_os_error().raw_os_error().unwrap_or(i32::MAX),
        _ => 0,
    })
}

/// Makes the same system call several times in one child, with different arguments. Returns how many calls succeeded, or how the
/// child ended. SIGALRM ends a child that blocks for longer than `time`.
#[cfg(test)]
pub(crate) fn attempt_all(
    time: Duration,
    filters: &[seccompiler::BpfProgram],
    call: i64,
    arguments: &[[u64; 6]],
) -> Result<usize, Outcome> {
    // SAFETY: the calls can change only the child's copy of memory, and the child only exits afterwards.
    let make = |[a, b, c, d, e, f]: [u64; 6]| unsafe { libc::syscall(call, a, b, c, d, e, f) } != -1;
    // An exit status has eight bits, so the largest reported number is 255.
    let work = || i32::try_from(arguments.iter().filter(|each| make(**each)).count().min(255)).unwrap_or(255);
    match in_child(filters, Some(time), work) {
        Outcome::Done => Ok(0),
        Outcome::Refused(done) => Ok(done.unsigned_abs() as usize),
        ended @ Outcome::Killed(_) => Err(ended),
    }
}

/// Makes the system call `getpid` by the 32-bit interface of this architecture, in a child of this process.
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) fn attempt_32_bit(filters: &[seccompiler::BpfProgram]) -> Outcome {
    in_child(filters, None, || {
        let number: u64;
        // SAFETY: the call takes no argument and changes no register but rax.
        unsafe { std::arch::asm!("int 0x80", inlateout("rax") 20_u64 => number) };
        i32::from(number == 0)
    })
}

/// Runs `work` in a child of this process. `work` returns an error number or 0. It must not allocate and must not take a lock.
#[cfg(test)]
fn in_child(filters: &[seccompiler::BpfProgram], time: Option<Duration>, work: impl FnOnce() -> i32) -> Outcome {
    // SAFETY: the child only makes system calls until it exits.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", io::Error::last_os_error());
    if child == 0 {
        if let Some(time) = time {
            let it_value = libc::timeval { tv_sec: 0, tv_usec: i64::from(time.subsec_micros()) };
            let timer = libc::itimerval { it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 }, it_value };
            // SAFETY: the kernel only reads the timer. The pointer for the former timer is null, so the kernel writes nothing.
            unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
        }
        let ready = filters.iter().all(|filter| seccompiler::apply_filter_all_threads(filter).is_ok());
        let error = if ready { work() } else { libc::ENOTRECOVERABLE };
        // SAFETY: `_exit` ends the child without running any other code of the test program.
        unsafe { libc::_exit(error) };
    }
    let mut status = 0;
    // SAFETY: the pointer is valid for a write of one `int`.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child, "{}", io::Error::last_os_error());
    match (libc::WIFSIGNALED(status), libc::WEXITSTATUS(status)) {
        (true, _) => Outcome::Killed(libc::WTERMSIG(status)),
        (false, 0) => Outcome::Done,
        (false, error) => Outcome::Refused(error),
    }
}
