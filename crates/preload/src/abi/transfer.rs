//! Functions that send and receive.

use super::{control, next, returned, values};
use crate::errors::{Error, Result};
use crate::numbers::{Meaning, meaning};
use crate::socket::{Kind, Received, Sending};
use crate::wait::{Direction, until};
use crate::{inheritance, log, world};
use libc::{
    c_int, c_long, c_uint, c_void, iovec, mmsghdr, msghdr, off64_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
};
use std::net::SocketAddr;

fn is_ours(number: c_int) -> bool {
    meaning(number) == Meaning::Socket
}

/// Largest number of bytes that one call transfers, as in Linux.
const BYTES_MAX: usize = 0x7fff_f000;
/// The number of bytes that `sendfile` reads at a time.
const FILE_PART_BYTES: usize = 64 << 10;

/// Receives into one place.
fn receive(number: c_int, into: &mut [u8], flags: c_int) -> Result<Received> {
    let peeks = flags & libc::MSG_PEEK != 0;
    let now = flags & libc::MSG_DONTWAIT != 0;
    if flags & libc::MSG_OOB != 0 {
        return Err(Error::INVALID);
    }
    let waits_for_all = flags & libc::MSG_WAITALL != 0;
    let (mut done, mut wanted) = (0, 0);
    loop {
        let outcome = until(number, Direction::Receive, now, |world, place| {
            let socket = world.socket_at(place)?;
            if socket.kind == Kind::Stream && !peeks {
                wanted = if waits_for_all { usize::MAX } else { socket.readable_bytes_min };
            }
            world.receive(place, &mut into[done..], peeks)
        });
        match outcome {
            Ok(received) if received.bytes > 0 && done + received.bytes < wanted.min(into.len()) => {
                done += received.bytes;
            }
            Ok(received) => return Ok(Received { bytes: done + received.bytes, ..received }),
            Err(_) if done > 0 => return Ok(Received::of_stream(done)),
            Err(error) => return Err(error),
        }
    }
}

/// Sends the bytes of one place. A stream socket that waits sends all of them.
fn transmit(number: c_int, from: &[u8], how: Sending, flags: c_int) -> Result<usize> {
    let now = flags & libc::MSG_DONTWAIT != 0;
    let how = Sending { more: flags & libc::MSG_MORE != 0, ..how };
    let from = &from[..from.len().min(BYTES_MAX)];
    let mut done = 0;
    loop {
        let outcome = until(number, Direction::Send, now, |world, place| world.send(place, &from[done..], how));
        match outcome {
            Ok(sent) if sent > 0 && done + sent < from.len() && !does_not_wait(number, now) => done += sent,
            Ok(sent) => return Ok(done + sent),
            Err(_) if done > 0 => return Ok(done),
            Err(error) => {
                if error == Error(libc::EPIPE) && flags & libc::MSG_NOSIGNAL == 0 {
                    unsafe { libc::raise(libc::SIGPIPE) };
                }
                return Err(error);
            }
        }
    }
}

fn is_stream(number: c_int) -> Result<bool> {
    Ok(world::lock().socket(number)?.kind == Kind::Stream)
}

fn does_not_wait(number: c_int, now: bool) -> bool {
    now || world::lock().socket(number).map_or(true, |socket| socket.nonblocking)
}

/// Sends the parts of a message: a stream's one after the other, those of a datagram as one.
unsafe fn transmit_parts(number: c_int, parts: &[iovec], how: Sending, flags: c_int) -> Result<usize> {
    if let [part] = parts {
        return transmit(number, unsafe { values::bytes(part.iov_base.cast(), part.iov_len) }, how, flags);
    }
    if !is_stream(number)? {
        let mut datagram = Vec::new();
        for part in parts {
            datagram.extend_from_slice(unsafe { values::bytes(part.iov_base.cast(), part.iov_len) });
        }
        return transmit(number, &datagram, how, flags);
    }
    let mut done = 0;
    let last = parts.iter().rposition(|part| part.iov_len > 0).unwrap_or(0);
    for (at, part) in parts.iter().enumerate().filter(|(_, part)| part.iov_len > 0) {
        // A segment waits for the next part, so that the parts of a message share segments.
        let more = if at < last { libc::MSG_MORE } else { 0 };
        match transmit(number, unsafe { values::bytes(part.iov_base.cast(), part.iov_len) }, how, flags | more) {
            Ok(sent) => {
                done += sent;
                if sent < part.iov_len {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Receives into the parts of a message.
unsafe fn receive_parts(number: c_int, parts: &[iovec], flags: c_int) -> Result<Received> {
    if let [part] = parts {
        return receive(number, unsafe { values::bytes_mut(part.iov_base.cast(), part.iov_len) }, flags);
    }
    let room = parts.iter().map(|part| part.iov_len).fold(0_usize, usize::saturating_add).min(BYTES_MAX);
    let mut bytes = vec![0; room.min(1 << 20)];
    let received = receive(number, &mut bytes, flags)?;
    let mut rest = &bytes[..received.bytes.min(bytes.len())];
    for part in parts {
        let (now, behind) = rest.split_at(rest.len().min(part.iov_len));
        unsafe { values::bytes_mut(part.iov_base.cast(), now.len()) }.copy_from_slice(now);
        rest = behind;
    }
    Ok(received)
}

/// Returns what a receive reports: with `MSG_TRUNC` the length of a datagram, otherwise the bytes that were copied.
fn reported(received: Received, room: usize, flags: c_int) -> usize {
    if flags & libc::MSG_TRUNC != 0 { received.bytes } else { received.bytes.min(room) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn read(number: c_int, into: *mut c_void, len: size_t) -> ssize_t {
    if !is_ours(number) {
        return unsafe { next::read(number, into, len) };
    }
    unsafe { receive_here(number, into, len, 0, std::ptr::null_mut(), std::ptr::null_mut()) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __read_chk(number: c_int, into: *mut c_void, len: size_t, room: size_t) -> ssize_t {
    assert!(len <= room, "the program reads more bytes than its buffer takes");
    unsafe { read(number, into, len) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn readv(number: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if !is_ours(number) {
        return unsafe { next::readv(number, parts, count) };
    }
    unsafe { read_parts(number, parts, count) }
}

#[inline(never)]
unsafe fn read_parts(number: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    let parts = unsafe { values::parts(parts, usize::try_from(count).unwrap_or(usize::MAX)) };
    returned(parts.and_then(|parts| {
        let room = parts.iter().map(|part| part.iov_len).fold(0, usize::saturating_add);
        Ok(reported(unsafe { receive_parts(number, parts, 0) }?, room, 0))
    }))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn recv(number: c_int, into: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    if !is_ours(number) {
        return unsafe { next::recv(number, into, len, flags) };
    }
    unsafe { receive_here(number, into, len, flags, std::ptr::null_mut(), std::ptr::null_mut()) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __recv_chk(
    number: c_int,
    into: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    assert!(len <= room, "the program receives more bytes than its buffer takes");
    unsafe { recv(number, into, len, flags) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn recvfrom(
    number: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    if !is_ours(number) {
        return unsafe { next::recvfrom(number, into, len, flags, from, from_len) };
    }
    unsafe { receive_here(number, into, len, flags, from, from_len) }
}

#[inline(never)]
unsafe fn receive_here(
    number: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    let len = len.min(BYTES_MAX);
    let received = receive(number, unsafe { values::bytes_mut(into.cast(), len) }, flags);
    returned(received.and_then(|received| {
        match received.from {
            Some(address) => unsafe { values::put_address(address, from, from_len) }?,
            None if !from_len.is_null() => unsafe { *from_len = 0 },
            None => {}
        }
        Ok(reported(received, len, flags))
    }))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __recvfrom_chk(
    number: c_int,
    into: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    assert!(len <= room, "the program receives more bytes than its buffer takes");
    unsafe { recvfrom(number, into, len, flags, from, from_len) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn recvmsg(number: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if !is_ours(number) {
        let received = unsafe { next::recvmsg(number, message, flags) };
        if received >= 0
            && let Some(message) = unsafe { message.as_ref() }
        {
            for number in unsafe { control::descriptors(message) } {
                super::opening::fresh(number);
                inheritance::take_received(number);
            }
        }
        return received;
    }
    returned(unsafe { receive_message(number, message, flags) })
}

unsafe fn receive_message(number: c_int, message: *mut msghdr, flags: c_int) -> Result<usize> {
    let message = unsafe { message.as_mut() }.ok_or(Error(libc::EFAULT))?;
    let parts = unsafe { values::parts(message.msg_iov, message.msg_iovlen) }?;
    let room = parts.iter().map(|part| part.iov_len).fold(0, usize::saturating_add);
    let received = unsafe { receive_parts(number, parts, flags) }?;
    match received.from {
        Some(address) => {
            unsafe { values::put_address(address, message.msg_name.cast(), &raw mut message.msg_namelen) }?;
        }
        None => message.msg_namelen = 0,
    }
    let reports = received.delivery.map_or_else(Vec::new, |delivery| world::lock().reports(number, delivery));
    let control_flags = unsafe { control::put(message, &reports) };
    let is_cut = received.bytes > room && received.from.is_some();
    message.msg_flags = control_flags | if is_cut { libc::MSG_TRUNC } else { 0 };
    Ok(reported(received, room, flags))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn recvmmsg(
    number: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    time: *mut timespec,
) -> c_int {
    if !is_ours(number) {
        return unsafe { next::recvmmsg(number, messages, count, flags, time) };
    }
    let mut done: c_int = 0;
    let mut flags = flags;
    for at in 0..count as usize {
        let message = unsafe { &mut *messages.add(at) };
        match unsafe { receive_message(number, &raw mut message.msg_hdr, flags & !libc::MSG_WAITFORONE) } {
            Ok(bytes) => message.msg_len = c_uint::try_from(bytes).unwrap_or(c_uint::MAX),
            Err(_) if done > 0 => break,
            Err(error) => return returned::<c_int, c_int>(Err(error)),
        }
        done += 1;
        if flags & libc::MSG_WAITFORONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
    }
    done
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn write(number: c_int, from: *const c_void, len: size_t) -> ssize_t {
    if !is_ours(number) {
        return unsafe { next::write(number, from, len) };
    }
    unsafe { send_here(number, from, len, 0) }
}

/// Sends over a siga socket. A function of its own, so that a call on a foreign descriptor saves no registers.
#[inline(never)]
unsafe fn send_here(number: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    returned(transmit(number, unsafe { values::bytes(from.cast(), len) }, Sending::default(), flags))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn writev(number: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if !is_ours(number) {
        return unsafe { next::writev(number, parts, count) };
    }
    unsafe { write_parts(number, parts, count) }
}

#[inline(never)]
unsafe fn write_parts(number: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    let parts = unsafe { values::parts(parts, usize::try_from(count).unwrap_or(usize::MAX)) };
    returned(parts.and_then(|parts| unsafe { transmit_parts(number, parts, Sending::default(), 0) }))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn send(number: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    if !is_ours(number) {
        return unsafe { next::send(number, from, len, flags) };
    }
    unsafe { send_here(number, from, len, flags) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sendto(
    number: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    if !is_ours(number) {
        return unsafe { next::sendto(number, from, len, flags, to, to_len) };
    }
    returned(
        unsafe { destination(to, to_len) }
            .map(|to| Sending { to, ..Sending::default() })
            .and_then(|how| transmit(number, unsafe { values::bytes(from.cast(), len) }, how, flags)),
    )
}

unsafe fn destination(to: *const sockaddr, len: socklen_t) -> Result<Option<SocketAddr>> {
    if to.is_null() { Ok(None) } else { unsafe { values::address(to, len) } }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sendmsg(number: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if is_ours(number) {
        return returned(unsafe { transmit_message(number, message, flags) });
    }
    if let Some(message) = unsafe { message.as_ref() } {
        for passed in unsafe { control::descriptors(message) }.into_iter().filter(|number| is_ours(*number)) {
            if let Err(error) = inheritance::pass_on(passed) {
                log::line(format_args!(
                    "sendmsg: socket {passed} belongs to the guest and cannot be passed to another \
                    process by SCM_RIGHTS"
                ));
                return returned::<c_long, ssize_t>(Err(error));
            }
        }
    }
    unsafe { next::sendmsg(number, message, flags) }
}

unsafe fn transmit_message(number: c_int, message: *const msghdr, flags: c_int) -> Result<usize> {
    let message = unsafe { message.as_ref() }.ok_or(Error(libc::EFAULT))?;
    let parts = unsafe { values::parts(message.msg_iov, message.msg_iovlen) }?;
    let to = unsafe { destination(message.msg_name.cast(), message.msg_namelen) }?;
    let with = unsafe { control::options(message) }?;
    unsafe { transmit_parts(number, parts, Sending { to, with, more: false }, flags) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sendmmsg(number: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    if !is_ours(number) {
        return unsafe { next::sendmmsg(number, messages, count, flags) };
    }
    let mut done: c_int = 0;
    for at in 0..count as usize {
        let message = unsafe { &mut *messages.add(at) };
        match unsafe { transmit_message(number, &raw const message.msg_hdr, flags) } {
            Ok(bytes) => message.msg_len = c_uint::try_from(bytes).unwrap_or(c_uint::MAX),
            Err(_) if done > 0 => break,
            Err(error) => return returned::<c_int, c_int>(Err(error)),
        }
        done += 1;
    }
    done
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut off64_t, len: size_t) -> ssize_t {
    if !is_ours(to) {
        return unsafe { next::sendfile(to, from, at, len) };
    }
    returned(unsafe { send_file(to, from, at, len) })
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sendfile64(to: c_int, from: c_int, at: *mut off64_t, len: size_t) -> ssize_t {
    unsafe { sendfile(to, from, at, len) }
}

/// Sends the bytes of a file. The position of the file advances by the bytes that were sent.
unsafe fn send_file(to: c_int, from: c_int, at: *mut off64_t, len: size_t) -> Result<usize> {
    let mut position = match unsafe { at.as_ref() } {
        Some(at) => *at,
        None => unsafe { libc::lseek64(from, 0, libc::SEEK_CUR) },
    };
    if position < 0 {
        return Err(Error::INVALID);
    }
    let mut part = vec![0_u8; FILE_PART_BYTES.min(len)];
    let mut done = 0;
    while done < len {
        let want = part.len().min(len - done);
        let count = unsafe { libc::pread64(from, part.as_mut_ptr().cast(), want, position) };
        let Ok(count) = usize::try_from(count) else {
            let error = Error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
            if done > 0 { break } else { return Err(error) }
        };
        if count == 0 {
            break;
        }
        match transmit(to, &part[..count], Sending::default(), if done + count < len { libc::MSG_MORE } else { 0 }) {
            Ok(sent) => {
                (done, position) = (done + sent, position + off64_t::try_from(sent).unwrap_or(0));
                if sent < count {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    match unsafe { at.as_mut() } {
        Some(at) => *at = position,
        None => _ = unsafe { libc::lseek64(from, position, libc::SEEK_SET) },
    }
    Ok(done)
}

/// The kernel's splice cannot use a siga socket. Programs then copy the bytes themselves.
#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut off64_t,
    to: c_int,
    to_at: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    if is_ours(from) || is_ours(to) {
        return returned::<c_long, ssize_t>(Err(Error::INVALID));
    }
    unsafe { next::splice(from, from_at, to, to_at, len, flags) }
}
