//! System calls that must not go through libc's names, because this library has these names itself, and calls for which no library
//! has a safe interface.
#![allow(unsafe_code, reason = "the module of this crate that makes raw system calls")]

use crate::errors::{Error, Result};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// Size of the kernel's set of signals, in bytes.
const SET_BYTES: usize = 8;
/// The largest signal number.
const SIGNAL_MAX: i32 = 64;
/// The kernel's flag of an action after which system calls continue.
const SA_RESTART: u64 = 0x1000_0000;

/// A set of signals, as the kernel has it: bit N - 1 stands for signal N.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signals(u64);

impl Signals {
    /// Creates a set from its bits.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// The signals that a faulty instruction raises. They cannot be blocked.
pub(crate) const FAULTS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// Returns the kernel's set of all signals except those of faulty instructions.
pub(crate) fn all_signals() -> u64 {
    FAULTS.iter().fold(u64::MAX, |set, fault| set & !(1 << (fault - 1)))
}

/// Blocks exactly the signals in `set`.
pub(crate) fn restore_signals(set: Signals) {
    let none = ptr::null_mut::<u64>();
    // SAFETY: the kernel reads a set of `SET_BYTES` bytes, and writes none.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const set.0, none, SET_BYTES) };
}

/// Sends a signal to this thread, with the information that came with it before.
pub(crate) fn send_to_this_thread(signal: i32, info: *const libc::c_void) {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    // SAFETY: the kernel reads the information, which it has passed to the handler of the same signal.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process(), thread, signal, info) };
}

/// Returns whether every signal handler of this process lets system calls continue (`SA_RESTART`).
pub(crate) fn handlers_restart() -> bool {
    (1..=SIGNAL_MAX).all(|signal| {
        // The kernel's action: handler, flags, restorer, mask.
        let mut action = [0_u64; 4];
        // SAFETY: the kernel writes an action of 32 bytes. It reads none, because the pointer is null.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, ptr::null::<u64>(), action.as_mut_ptr(), SET_BYTES);
        }
        let [handler, flags, ..] = action;
        let has_handler = handler != libc::SIG_DFL as u64 && handler != libc::SIG_IGN as u64;
        !has_handler || flags & SA_RESTART != 0
    })
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

fn checked(status: i64) -> Result<usize> {
    usize::try_from(status).map_err(|_| Error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)))
}

/// Waits for descriptors (poll(2)). While it waits, exactly the signals in `blocked` are blocked; `None` leaves them as they are.
pub(crate) fn poll(entries: &mut [libc::pollfd], time: Option<Duration>, blocked: Option<Signals>) -> Result<usize> {
    let limit = time.map(timespec);
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    let blocked = blocked.as_ref().map_or(ptr::null(), |set| &raw const set.0);
    // SAFETY: the kernel reads and writes `entries`, and reads the limit, if there is one, and the set.
    let status =
        unsafe { libc::syscall(libc::SYS_ppoll, entries.as_mut_ptr(), entries.len(), limit, blocked, SET_BYTES) };
    checked(status)
}

/// Waits until a descriptor is readable (pselect(2)), as [`poll`] does, but also if the process may have no descriptors (`RLIMIT_NOFILE`).
pub(crate) fn select(number: RawFd, time: Option<Duration>, blocked: Option<Signals>) -> Result<usize> {
    let place = usize::try_from(number).map_err(|_| Error::INVALID)?;
    let mut set = vec![0_u64; place / 64 + 1];
    set[place / 64] |= 1 << (place % 64);
    let limit = time.map(timespec);
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    let blocked = blocked.as_ref().map_or(ptr::null(), |set| &raw const set.0);
    let signals = [blocked.cast::<libc::c_void>(), ptr::without_provenance(SET_BYTES)];
    let none = ptr::null::<u64>();
    // SAFETY: the kernel reads and writes the bits of `set` up to that of the descriptor, and reads the limit, if there is one, and the set
    // of signals with its length, which is a pair of words.
    let status = unsafe {
        libc::syscall(libc::SYS_pselect6, number + 1, set.as_mut_ptr(), none, none, limit, &raw const signals)
    };
    checked(status)
}

/// Waits for events of a set (epoll_pwait(2)). While it waits, exactly the signals in `blocked` are blocked; `None` leaves them as
/// they are.
pub(crate) fn epoll_wait(
    set: RawFd,
    events: &mut [libc::epoll_event],
    time: Option<Duration>,
    blocked: Option<Signals>,
) -> Result<usize> {
    let blocked = blocked.as_ref().map_or(ptr::null(), |set| &raw const set.0);
    let ms = time.map_or(-1, |time| i32::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(i32::MAX));
    // SAFETY: the kernel writes at most `events.len()` events, and reads the set of signals.
    let status = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait,
            set,
            events.as_mut_ptr(),
            i32::try_from(events.len()).unwrap_or(i32::MAX),
            ms,
            blocked,
            SET_BYTES,
        )
    };
    checked(status)
}

/// Changes the interest of a set of the kernel (epoll_ctl(2)).
pub(crate) fn epoll_control(set: RawFd, operation: i32, number: RawFd, mut event: libc::epoll_event) -> Result<()> {
    // SAFETY: the kernel reads the event.
    checked(unsafe { libc::syscall(libc::SYS_epoll_ctl, set, operation, number, &raw mut event) }).map(|_| ())
}

/// Takes over an inherited descriptor. Returns `None` if there is no such descriptor.
pub(crate) fn adopt(number: RawFd) -> Option<OwnedFd> {
    if number < 0 {
        return None;
    }
    // SAFETY: the borrow is used for one call, which fails if no such descriptor exists.
    rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) }).ok()?;
    // SAFETY: `siga exec` has passed this descriptor on for this library only.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Returns random bytes that no other program knows.
pub(crate) fn random_key() -> [u8; 16] {
    let mut key = [0_u8; 16];
    // SAFETY: the kernel writes at most `key.len()` bytes. It writes all of them, because there are at most 256.
    unsafe { libc::syscall(libc::SYS_getrandom, key.as_mut_ptr(), key.len(), 0) };
    key
}

/// Returns the inode of a socket's descriptor, or `None` if the number is no socket.
pub(crate) fn socket_inode(number: RawFd) -> Option<u64> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the function writes a status, if it succeeds.
    if unsafe { libc::fstat(number, status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the function has succeeded.
    let status = unsafe { status.assume_init() };
    (status.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(status.st_ino)
}

fn flags(number: RawFd, command: i32) -> i64 {
    // SAFETY: these commands have no third argument.
    unsafe { libc::syscall(libc::SYS_fcntl, number, command, 0) }
}

/// Returns whether a descriptor is closed when the process executes another program.
pub(crate) fn closes_on_exec(number: RawFd) -> bool {
    flags(number, libc::F_GETFD) & i64::from(libc::FD_CLOEXEC) != 0
}

/// Returns whether the calls on a descriptor do not wait (`O_NONBLOCK`).
pub(crate) fn is_nonblocking(number: RawFd) -> bool {
    flags(number, libc::F_GETFL) & i64::from(libc::O_NONBLOCK) != 0
}

/// Runs a function in this process when the process exits.
pub(crate) fn at_exit(last: extern "C" fn()) {
    // SAFETY: the function stays valid, because the library is never unloaded.
    unsafe { libc::atexit(last) };
}

/// Runs functions at each fork: before it, after it in the parent, and after it in the child.
pub(crate) fn at_fork(
    before: unsafe extern "C" fn(),
    in_parent: unsafe extern "C" fn(),
    in_child: unsafe extern "C" fn(),
) {
    // SAFETY: the functions stay valid, because the library is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// Returns false in a child of vfork, which uses the memory of its parent.
pub(crate) fn is_own_memory() -> bool {
    // libc's pthread_atfork handlers renew the id in a child of fork, but not in one of vfork.
    let own = PROCESS.load(Ordering::Relaxed);
    own == 0 || own == process()
}

/// Returns whether this process has used the guest, or is a child of fork of a process that has. Returns false in a child of vfork.
pub(crate) fn has_used_guest() -> bool {
    let own = PROCESS.load(Ordering::Relaxed);
    own != 0 && own == process()
}

/// Records that this process has the memory for itself.
pub(crate) fn own_memory() {
    PROCESS.store(process(), Ordering::Relaxed);
}

static PROCESS: AtomicI32 = AtomicI32::new(0);

fn process() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}
