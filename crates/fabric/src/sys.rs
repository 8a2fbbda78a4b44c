//! System calls for which no library has a safe interface. They are needed between fork and exec, to enter a new user namespace,
//! and to identify the process at the other end of a socket.
//!
//! All `unsafe` code of the crate is in this file, behind a safe interface.
#![allow(unsafe_code, reason = "the one module of this crate that makes raw system calls")]

use rustix::process::setsid;
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities, set_capabilities, unshare_unsafe};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
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
    unshare(UnshareFlags::NEWUSER)
}

/// Makes an open descriptor of /dev/net/tun a TAP device whose frames have a virtio header. The kernel replaces `%d` in the name by a
/// free number. Returns the name.
///
/// # Errors
/// Returns EBUSY if the namespace has an interface of this name, EPERM without the privilege, and EINVAL if the name is too long.
pub(crate) fn make_tap(device: BorrowedFd<'_>, name: &str, checksums: bool, segments: bool) -> io::Result<String> {
    const IFF_TUN_EXCL: libc::c_int = 0x8000;
    const TUNSETVNETHDRSZ: u64 = 0x4004_54d8;
    const TUNSETOFFLOAD: u64 = 0x4004_54d0;
    const TUNSETIFF: u64 = 0x4004_54ca;
    const TUN_F_CSUM: u64 = 1;
    const TUN_F_TSO4: u64 = 2;
    const TUN_F_TSO6: u64 = 4;
    /// The kernel's `struct ifreq`: a name, flags, and the rest of a union.
    #[repr(C)]
    struct Request {
        name: [u8; libc::IFNAMSIZ],
        flags: i16,
        rest: [u8; 22],
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | IFF_TUN_EXCL;
    let flags = i16::from_ne_bytes(u16::try_from(flags).map_err(io::Error::other)?.to_ne_bytes());
    let mut request = Request { name: [0; libc::IFNAMSIZ], flags, rest: [0; 22] };
    let room = request.name.get_mut(..name.len()).filter(|room| room.len() < libc::IFNAMSIZ);
    room.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(name.as_bytes());
    let done = |status: libc::c_int| if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    let device = device.as_raw_fd();
    let header_bytes: libc::c_int = 10;
    // SAFETY: the kernel reads and writes a request of this layout, which lives during the call.
    done(unsafe { libc::ioctl(device, TUNSETIFF as _, &raw mut request) })?;
    // SAFETY: the kernel reads one `int`, which lives during the call.
    done(unsafe { libc::ioctl(device, TUNSETVNETHDRSZ as _, &raw const header_bytes) })?;
    let segments = if checksums && segments { TUN_F_TSO4 | TUN_F_TSO6 } else { 0 };
    let offload = if checksums { TUN_F_CSUM | segments } else { 0 };
    // SAFETY: the argument is a number.
    done(unsafe { libc::ioctl(device, TUNSETOFFLOAD as _, offload) })?;
    let name = request.name.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8(name.to_vec()).map_err(io::Error::other)
}

/// Returns the name of the TAP device of a descriptor, if its frames have a virtio header as those of [`make_tap`].
///
/// # Errors
/// Returns EBADFD if the device is gone, ENOTTY for other descriptors, and EINVAL for a device of another kind.
pub(crate) fn tap_name(device: impl AsFd) -> io::Result<String> {
    const TUNGETIFF: u64 = 0x8004_54d2;
    const TUNGETVNETHDRSZ: u64 = 0x8004_54d7;
    const KIND: libc::c_int = libc::IFF_TAP | libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let device = device.as_fd().as_raw_fd();
    // The kernel's `struct ifreq`: a name, flags, and the rest of a union.
    let mut request = [0_u8; 40];
    let mut header_bytes: libc::c_int = 0;
    let done = |status: libc::c_int| if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // SAFETY: the kernel writes a request of this size, which lives during the call.
    done(unsafe { libc::ioctl(device, TUNGETIFF as _, request.as_mut_ptr()) })?;
    // SAFETY: the kernel writes one `int`, which lives during the call.
    done(unsafe { libc::ioctl(device, TUNGETVNETHDRSZ as _, &raw mut header_bytes) })?;
    let (name, rest) = request.split_at(libc::IFNAMSIZ);
    let flags = rest.first_chunk().map_or(0, |flags| u16::from_ne_bytes(*flags));
    if libc::c_int::from(flags) & KIND != libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR || header_bytes != 10 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8(name.to_vec()).map_err(io::Error::other)
}

/// Moves the calling process, which has one thread, into new namespaces of the given kinds.
///
/// # Errors
/// Returns EPERM without the privilege, EINVAL if a new user namespace is asked for and the process has several threads, and ENOSPC if
/// there are too many namespaces.
pub(crate) fn unshare(kinds: UnshareFlags) -> io::Result<()> {
    // SAFETY: without CLONE_FILES, every thread keeps the same descriptor table.
    unsafe { unshare_unsafe(kinds.difference(UnshareFlags::FILES)) }?;
    Ok(())
}

/// Opens a packet socket that receives and sends all frames of an interface, with a virtio header, and none that this host sends.
///
/// # Errors
/// Returns EPERM without CAP_NET_RAW.
pub(crate) fn open_uplink(index: u32) -> io::Result<OwnedFd> {
    const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
    let protocol = u16::try_from(libc::ETH_P_ALL).map_err(io::Error::other)?.to_be();
    let interface = libc::c_int::try_from(index).map_err(io::Error::other)?;
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the arguments are numbers. With the protocol 0, the socket receives nothing before it is bound.
    let socket = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made the descriptor for this call, so nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let on: libc::c_int = 1;
    set_packet_option(&socket, libc::PACKET_VNET_HDR, &on)?;
    set_packet_option(&socket, PACKET_IGNORE_OUTGOING, &on)?;
    refuse_vlans(&socket)?;
    let all = libc::packet_mreq {
        mr_ifindex: interface,
        mr_type: u16::try_from(libc::PACKET_MR_PROMISC).map_err(io::Error::other)?,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_packet_option(&socket, libc::PACKET_ADD_MEMBERSHIP, &all)?;
    let address = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).map_err(io::Error::other)?,
        sll_protocol: protocol,
        sll_ifindex: interface,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of_val(&address)).map_err(io::Error::other)?;
    // SAFETY: the kernel reads an address of this length, which lives during the call.
    let status = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if status == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

/// Makes a packet socket drop frames that arrive with the tag of a VLAN. The kernel removes the first tag before a packet socket gets the
/// frame, so a reader would take the frame for one without a tag.
fn refuse_vlans(socket: &OwnedFd) -> io::Result<()> {
    /// From this address on, a filter reads data about the frame (<linux/filter.h>).
    const ABOUT: u32 = (-0x1000_i32).cast_unsigned();
    const TAG: u32 = ABOUT + 44;
    const HAS_TAG: u32 = ABOUT + 48;
    const LOAD: u16 = 0x20;
    const AND: u16 = 0x54;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code: u16, k: u32, jt: u8| libc::sock_filter { code, jt, jf: 0, k };
    // A tag with the id 0 has only a priority.
    let mut steps = [
        step(LOAD, HAS_TAG, 0),
        step(JUMP_IF_EQUAL, 0, 3),
        step(LOAD, TAG, 0),
        step(AND, 0x0fff, 0),
        step(JUMP_IF_EQUAL, 0, 0),
        step(RETURN, u32::MAX, 0),
        step(RETURN, 0, 0),
    ];
    // With another id, the jump goes to the last step.
    steps[4].jf = 1;
    let len = u16::try_from(steps.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: steps.as_mut_ptr() };
    set_option(socket, (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER), &program)
}

fn set_packet_option<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    set_option(socket, (libc::SOL_PACKET, option), value)
}

fn set_option<T>(socket: &OwnedFd, (level, option): (libc::c_int, libc::c_int), value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of_val(value)).map_err(io::Error::other)?;
    let value: *const T = value;
    // SAFETY: the kernel reads a value of this length, which lives during the call. A filter's value points to steps that live too.
    let status = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.cast(), length) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
