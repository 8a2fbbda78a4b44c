//! Safe functions for system calls that no library offers as safe functions: BPF, perf events, io_uring, ethtool ioctls, wait4, and a few calls
//! on processes.
//!
//! All `unsafe` code of this crate is in this module and its submodules. They only make the calls safe; their callers decide
//! what to use them for.
#![allow(unsafe_code, reason = "the one module of this crate that makes raw system calls")]

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Returns the user time and the system time of the calling process in nanoseconds. The kernel estimates from timer ticks which
/// part of the CPU time is user time. Returns zeros if the call fails.
pub fn process_times_ns() -> (u64, u64) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for writing one rusage. RUSAGE_SELF is always a valid argument.
    let status = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    if status != 0 {
        return (0, 0);
    }
    // SAFETY: all-zero bytes are a valid rusage, and getrusage has filled the structure.
    let usage = unsafe { usage.assume_init() };
    let ns = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_usec).unwrap_or(0) * 1_000
    };
    (ns(usage.ru_utime), ns(usage.ru_stime))
}

/// Returns the CPU time of another process with all its threads, in nanoseconds.
///
/// # Errors
/// Returns an error if the process does not exist.
pub fn process_cpu_ns(pid: u32) -> std::io::Result<u64> {
    // The type of clock that counts a process's CPU time in the scheduler. clock_getcpuclockid(3) encodes the clock id in the
    // same way.
    const CPUCLOCK_SCHED: libc::clockid_t = 2;
    let pid = i32::try_from(pid).map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
    let clock = (!pid << 3) | CPUCLOCK_SCHED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for writing one timespec. If the clock does not exist, the call fails and writes nothing.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Limits the segments of a TCP socket to `bytes`, with TCP_MAXSEG. Accepted sockets inherit the limit from their listener.
///
/// # Errors
/// Returns an error if the kernel does not accept such a size.
pub fn set_segment_bytes(socket: impl AsFd, bytes: u32) -> std::io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
    let length = libc::socklen_t::try_from(size_of_val(&bytes)).unwrap_or(0);
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the pointer is valid for reading one int, and `length` is its size.
    let status =
        unsafe { libc::setsockopt(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG, (&raw const bytes).cast(), length) };
    if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Duplicates the descriptor `number` of this process. The new descriptor has FD_CLOEXEC set.
///
/// # Errors
/// Returns an error if the descriptor is not open.
pub fn duplicate_descriptor(number: i32) -> std::io::Result<OwnedFd> {
    // SAFETY: if `number` is not open, fcntl fails with EBADF. fcntl accesses no memory.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: fcntl has just created the descriptor `copy`, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Installs a signal handler, so that [`interrupt`] can end blocking system calls in any thread of this process.
///
/// # Errors
/// Returns the kernel's error if it refuses to install the handler.
pub fn allow_interrupts() -> std::io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zero bytes are a valid sigaction with an empty mask and no flags. SA_RESTART must stay off: it would resume
    // the interrupted call.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = nothing as *const () as libc::sighandler_t;
    // SAFETY: the action is valid. Its handler does nothing, so it may run at any point of any thread.
    let status = unsafe { libc::sigaction(libc::SIGUSR1, action, std::ptr::null_mut()) };
    if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Ends the blocking system call of a thread of this process, with a signal. Requires an earlier call of [`allow_interrupts`].
/// Does nothing if the thread has ended.
pub fn interrupt(thread: i32) {
    let process = std::process::id();
    // SAFETY: tgkill accesses no memory, and the process id limits it to threads of this process.
    let _ = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
}

/// Changes `command` so that the kernel kills the process that it starts when the thread that starts it ends for any reason
/// (PR_SET_PDEATHSIG).
pub fn end_with_parent(command: &mut Command) {
    let parent = i32::try_from(std::process::id()).ok();
    let tie = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the parent ended before this request, the kernel would never send the signal. So check that the parent is still
        // the same.
        let same = getppid().map(|pid| pid.as_raw_nonzero().get()) == parent;
        if same { Ok(()) } else { Err(std::io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: `tie` runs between fork and exec. It only makes two system calls, and neither allocates memory nor takes a lock.
    unsafe { command.pre_exec(tie) };
}

pub(crate) mod bpf;
pub(crate) mod ethtool;
pub(crate) mod namespace;
pub(crate) mod perf;
pub(crate) mod uring;
pub(crate) mod wait;
