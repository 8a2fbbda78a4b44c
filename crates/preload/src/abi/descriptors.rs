//! Functions for descriptors of any kind: closing, duplicating, and their flags.

use super::{interfaces, next, opening, returned};
use crate::errors::{Error, Result};
use crate::numbers::{self, Meaning, meaning};
use crate::socket::{Kind, State};
use crate::{log, sys, world};
use libc::{c_int, c_long, c_uint, c_ulong, c_void};
use std::ops::RangeInclusive;

/// Makes a number foreign. A child of vfork shares this process's memory, but must not change the sockets of its parent.
fn forget(number: c_int) {
    if sys::is_own_memory() {
        world::lock().forget(number);
    }
}

/// Makes the number of a set without siga sockets foreign.
fn forget_plain(number: c_int) {
    if sys::is_own_memory() {
        numbers::set(number, Meaning::Foreign);
    }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn close(number: c_int) -> c_int {
    if meaning(number) == Meaning::Foreign {
        return unsafe { next::close(number) };
    }
    unsafe { close_here(number) }
}

/// Closes a descriptor that is not foreign.
#[inline(never)]
unsafe fn close_here(number: c_int) -> c_int {
    match meaning(number) {
        Meaning::Foreign => {}
        Meaning::Socket | Meaning::EpollSet => forget(number),
        Meaning::PlainSet => forget_plain(number),
        // A program that closes all descriptors does not close those of this library.
        Meaning::Reserved => return returned::<c_int, c_int>(Err(Error(libc::EBADF))),
    }
    unsafe { next::close(number) }
}

/// A call by its number. Some programs, such as those with libuv, close descriptors in this way. The calls of this library itself come
/// here too. A call has at most six arguments, and libc passes all of them on in any case.
#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn syscall(
    call: c_long,
    first: c_long,
    second: c_long,
    third: c_long,
    fourth: c_long,
    fifth: c_long,
    sixth: c_long,
) -> c_long {
    let number = c_int::try_from(first);
    match (call, number) {
        (libc::SYS_close, Ok(number)) if meaning(number) != Meaning::Foreign => unsafe { close(number) }.into(),
        (libc::SYS_io_uring_setup, _) => {
            log::line(format_args!("io_uring_setup fails, because a guest does not have io_uring"));
            unsafe { next::syscall(call, first, second, third, fourth, fifth, sixth) }
        }
        _ => unsafe { next::syscall(call, first, second, third, fourth, fifth, sixth) },
    }
}

/// Closes a range of descriptors, except those of this library.
#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let marks_only = flags & libc::CLOSE_RANGE_CLOEXEC.cast_signed() != 0;
    let mut from = first;
    for number in numbers::ours(first, last) {
        let at = number.cast_unsigned();
        match meaning(number) {
            Meaning::Reserved => {
                if from < at {
                    let status = unsafe { next::close_range(from, at - 1, flags) };
                    if status != 0 {
                        return status;
                    }
                }
                from = at + 1;
            }
            Meaning::Socket | Meaning::EpollSet if !marks_only => forget(number),
            Meaning::PlainSet if !marks_only => forget_plain(number),
            Meaning::Socket | Meaning::EpollSet | Meaning::PlainSet | Meaning::Foreign => {}
        }
    }
    if from > last { 0 } else { unsafe { next::close_range(from, last, flags) } }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn closefrom(first: c_int) {
    unsafe { close_range(c_uint::try_from(first).unwrap_or(0), c_uint::MAX, 0) };
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dup(number: c_int) -> c_int {
    let made = unsafe { next::dup(number) };
    unsafe { duplicated(number, made) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if from == to {
        return unsafe { next::dup2(from, to) };
    }
    unsafe { duplicated_to(from, to, || next::dup2(from, to)) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    unsafe { duplicated_to(from, to, || next::dup3(from, to, flags)) }
}

/// Duplicates a descriptor to a number, which may be in use.
unsafe fn duplicated_to(from: c_int, to: c_int, duplicate: impl FnOnce() -> c_int) -> c_int {
    if meaning(to) == Meaning::Reserved {
        return returned::<c_int, c_int>(Err(Error(libc::EBADF)));
    }
    unsafe { duplicated(from, duplicate()) }
}

/// Records that `made` is a duplicate of `number`.
unsafe fn duplicated(number: c_int, made: c_int) -> c_int {
    if made < 0 || !sys::is_own_memory() {
        return made;
    }
    opening::fresh(made);
    match meaning(number) {
        Meaning::Socket => {}
        Meaning::EpollSet => {
            world::lock().duplicate_set(number, made);
            return made;
        }
        Meaning::PlainSet => {
            numbers::set(made, Meaning::PlainSet);
            return made;
        }
        Meaning::Foreign | Meaning::Reserved => return made,
    }
    let outcome = world::lock().duplicate(number, made);
    if outcome.is_err() {
        unsafe { next::close(made) };
    }
    returned(outcome.map(|()| made))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fcntl(number: c_int, command: c_int, argument: c_long) -> c_int {
    let status = unsafe { next::fcntl(number, command, argument) };
    unsafe { controlled(number, command, argument, status) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fcntl64(number: c_int, command: c_int, argument: c_long) -> c_int {
    let status = unsafe { next::fcntl64(number, command, argument) };
    unsafe { controlled(number, command, argument, status) }
}

/// Records what a successful `fcntl` changed.
unsafe fn controlled(number: c_int, command: c_int, argument: c_long, status: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => unsafe { duplicated(number, status) },
        libc::F_SETFL if status >= 0 && meaning(number) == Meaning::Socket => {
            set_nonblocking(number, argument & c_long::from(libc::O_NONBLOCK) != 0);
            status
        }
        _ => status,
    }
}

fn set_nonblocking(number: c_int, nonblocking: bool) {
    if let Ok(socket) = world::lock().socket(number) {
        socket.nonblocking = nonblocking;
    }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn ioctl(number: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // Sockets of every kind accept the requests for network interfaces.
    if INTERFACE_REQUESTS.contains(&request)
        && sys::socket_inode(number).is_some()
        && let Some(status) = unsafe { interfaces::control(request, argument) }
    {
        return status;
    }
    if meaning(number) != Meaning::Socket {
        return unsafe { next::ioctl(number, request, argument) };
    }
    match request {
        libc::FIONBIO => {
            let status = unsafe { next::ioctl(number, request, argument) };
            if status == 0 {
                set_nonblocking(number, unsafe { *argument.cast::<c_int>() } != 0);
            }
            status
        }
        libc::FIONREAD => unsafe { put_count(unread(number), argument) },
        libc::TIOCOUTQ => unsafe { put_count(undelivered(number), argument) },
        SIOCOUTQNSD => unsafe { put_count(unsent(number), argument) },
        _ => {
            log::line(format_args!(
                "ioctl {request:#x} is not supported; the library calls it on the kernel's placeholder socket"
            ));
            unsafe { next::ioctl(number, request, argument) }
        }
    }
}

/// The requests for network interfaces.
const INTERFACE_REQUESTS: RangeInclusive<c_ulong> = libc::SIOCGIFNAME..=libc::SIOCGIFINDEX;
/// The request for the number of bytes that were not sent yet (`<linux/sockios.h>`).
const SIOCOUTQNSD: c_ulong = 0x894b;

unsafe fn put_count(count: Result<usize>, into: *mut c_void) -> c_int {
    returned(count.map(|count| {
        unsafe { *into.cast::<c_int>() = c_int::try_from(count).unwrap_or(c_int::MAX) };
        0
    }))
}

/// Returns the number of sent bytes that the peer has not acknowledged.
fn undelivered(number: c_int) -> Result<usize> {
    let mut held = world::lock();
    let place = held.place(number)?;
    let (socket, client) = held.socket_and_client(place)?;
    match socket.state {
        State::Connection { number, .. } => Ok(client.undelivered(number)?),
        State::Listening { .. } => Err(Error::INVALID),
        State::New | State::Bound { .. } | State::Datagrams { .. } | State::Lost(_) => Ok(0),
    }
}

/// Returns the number of bytes that wait to be sent for the first time.
fn unsent(number: c_int) -> Result<usize> {
    /// Place of `tcpi_notsent_bytes` in `struct tcp_info`.
    const NOT_SENT_AT: usize = 144;
    let mut held = world::lock();
    let place = held.place(number)?;
    let State::Connection { number, .. } = held.socket_at(place)?.state else { return Ok(0) };
    Ok(usize::try_from(held.tcp_info_number(number, NOT_SENT_AT)?).unwrap_or(0))
}

/// Returns the number of bytes that a stream socket can receive now, or the length of the next datagram.
fn unread(number: c_int) -> Result<usize> {
    let mut held = world::lock();
    held.work();
    let place = held.place(number)?;
    let (socket, client) = held.socket_and_client(place)?;
    match (&socket.state, socket.kind) {
        (State::Connection { number, .. }, Kind::Stream) => {
            let number = *number;
            let ended = client.endings(number)?.received;
            let unread = client.unread(number)?;
            // The stack counts the end of the stream as one byte, and Linux does not.
            let mut byte = [0];
            let only_end = ended && unread == 1 && client.peek(number, &mut byte).unwrap_or(0) == 0;
            Ok(if only_end { 0 } else { unread })
        }
        (State::Datagrams { .. }, _) => match held.receive_datagram(place, &mut [], true) {
            Ok(next) => Ok(next.bytes),
            Err(Error::WOULD_BLOCK) => Ok(0),
            Err(error) => Err(error),
        },
        (State::Listening { .. }, _) => Err(Error::INVALID),
        _ => Ok(0),
    }
}
