//! Functions that make, name and configure sockets.

use super::{next, opening, returned, values};
use crate::errors::{Error, Result};
use crate::numbers::{Meaning, meaning};
use crate::options::Handled;
use crate::socket::{Family, Kind, Socket, is_loopback};
use crate::wait::{Direction, Patience, until, until_ready};
use crate::{attach, log, world};
use libc::{c_int, c_void, sockaddr, socklen_t};
use std::net::Shutdown;

fn is_ours(number: c_int) -> bool {
    meaning(number) == Meaning::Socket
}

/// Makes a socket. Sockets of TCP and UDP become siga's; sockets of other families are the kernel's.
#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let family = match domain {
        libc::AF_INET => Family::V4,
        libc::AF_INET6 => Family::V6,
        _ => return opening::fresh(unsafe { next::socket(domain, kind, protocol) }),
    };
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let of_kind = match (kind & !flags, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Kind::Stream,
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Kind::Datagram,
        // Another kind of socket would use the host's network.
        _ => {
            log::line(format_args!(
                "socket({domain}, {kind}, {protocol}): the guest's stack supports only TCP and UDP"
            ));
            return returned::<c_int, c_int>(Err(Error(libc::EPROTONOSUPPORT)));
        }
    };
    let number = unsafe { next::socket(domain, kind, protocol) };
    if number < 0 {
        return number;
    }
    let socket = Socket::new(family, of_kind, kind & libc::SOCK_NONBLOCK != 0);
    returned(added(number, socket))
}

/// Adds a socket, and closes its placeholder if that fails.
fn added(number: c_int, socket: Socket) -> Result<c_int> {
    let outcome = world::lock().add(number, socket);
    if outcome.is_err() {
        unsafe { next::close(number) };
    }
    outcome.map(|_| number)
}

/// Returns true if the kernel shall carry out a call with this address, because it is an address of the host itself.
fn leaves_to_kernel(number: c_int, address: std::net::SocketAddr) -> bool {
    if attach::has_own_loopback() || !is_loopback(&address) {
        return false;
    }
    world::lock().forget(number);
    true
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn bind(number: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    if !is_ours(number) {
        return unsafe { next::bind(number, address, len) };
    }
    let local = unsafe { values::address(address, len) };
    if let Ok(Some(local)) = local
        && leaves_to_kernel(number, local)
    {
        return unsafe { next::bind(number, address, len) };
    }
    let outcome = local.and_then(|local| {
        let mut held = world::lock();
        let place = held.place(number)?;
        held.bind(place, local.ok_or(Error(libc::EAFNOSUPPORT))?)
    });
    returned(outcome.map(|()| 0))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn listen(number: c_int, backlog: c_int) -> c_int {
    if !is_ours(number) {
        return unsafe { next::listen(number, backlog) };
    }
    let mut held = world::lock();
    let outcome = held.place(number).and_then(|place| held.listen(place, usize::try_from(backlog).unwrap_or(0)));
    returned(outcome.map(|()| 0))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn accept(number: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    unsafe { accept4(number, address, len, 0) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn accept4(
    number: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    if !is_ours(number) {
        return opening::fresh(unsafe { next::accept4(number, address, len, flags) });
    }
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return returned::<c_int, c_int>(Err(Error::INVALID));
    }
    // The placeholder comes first: without a free number, the connection stays in the queue.
    let accepted = unsafe { next::socket(libc::AF_UNIX, libc::SOCK_STREAM | flags, 0) };
    if accepted < 0 {
        return accepted;
    }
    let outcome = until(number, Direction::Receive, false, |world, place| {
        let (mut socket, remote) = world.accept(place)?;
        socket.nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        let numbers = socket.stack_numbers();
        let place = world.add(accepted, socket)?;
        numbers.into_iter().for_each(|number| world.bind_number(number, place));
        Ok(remote)
    });
    let outcome = outcome.and_then(|remote| unsafe { values::put_address(remote, address, len) });
    if outcome.is_err() {
        // A socket that was added is closed with its placeholder.
        unsafe { super::descriptors::close(accepted) };
    }
    returned(outcome.map(|()| accepted))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn connect(number: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    if !is_ours(number) {
        return unsafe { next::connect(number, address, len) };
    }
    let remote = match unsafe { values::address(address, len) } {
        Ok(remote) => remote,
        Err(error) => return returned::<c_int, c_int>(Err(error)),
    };
    if let Some(remote) = remote
        && leaves_to_kernel(number, remote)
    {
        return unsafe { next::connect(number, address, len) };
    }
    returned(connected(number, remote).map(|()| 0))
}

fn connected(number: c_int, remote: Option<std::net::SocketAddr>) -> Result<()> {
    let mut held = world::lock();
    let place = held.place(number)?;
    let patience = held.patience(place, Direction::Send, false)?;
    match held.connect(place, remote) {
        Err(Error(libc::EINPROGRESS)) if patience != Patience::None => {}
        // A second call on a connection that opens waits too, or learns that the connection is open.
        Err(Error(libc::EALREADY)) => match held.finish_connect(place) {
            Err(Error::WOULD_BLOCK) if patience == Patience::None => return Err(Error(libc::EALREADY)),
            Err(Error::WOULD_BLOCK) => {}
            outcome => return outcome,
        },
        outcome => return outcome,
    }
    match until_ready(&mut held, number, patience, |world| world.finish_connect(place)) {
        // The time limit of the socket has passed. The connection goes on opening.
        Err(Error::WOULD_BLOCK) => Err(Error(libc::EINPROGRESS)),
        outcome => outcome,
    }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getsockname(number: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    if !is_ours(number) {
        return unsafe { next::getsockname(number, address, len) };
    }
    let local = {
        let mut held = world::lock();
        held.place(number).and_then(|place| held.local_address(place))
    };
    returned(local.and_then(|local| unsafe { values::put_address(local, address, len) }).map(|()| 0))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getpeername(number: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    if !is_ours(number) {
        return unsafe { next::getpeername(number, address, len) };
    }
    let remote = {
        let mut held = world::lock();
        held.place(number).and_then(|place| held.peer_address(place))
    };
    returned(remote.and_then(|remote| unsafe { values::put_address(remote, address, len) }).map(|()| 0))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn shutdown(number: c_int, how: c_int) -> c_int {
    if !is_ours(number) {
        return unsafe { next::shutdown(number, how) };
    }
    let how = match how {
        libc::SHUT_RD => Ok(Shutdown::Read),
        libc::SHUT_WR => Ok(Shutdown::Write),
        libc::SHUT_RDWR => Ok(Shutdown::Both),
        _ => Err(Error::INVALID),
    };
    let outcome = how.and_then(|how| {
        let mut held = world::lock();
        let place = held.place(number)?;
        held.shutdown(place, how)
    });
    returned(outcome.map(|()| 0))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getsockopt(
    number: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if !is_ours(number) {
        return unsafe { next::getsockopt(number, level, name, value, len) };
    }
    let outcome = {
        let mut held = world::lock();
        held.work();
        held.place(number).and_then(|place| held.option(place, level, name))
    };
    match outcome {
        Ok(Handled::ByKernel) => unsafe { next::getsockopt(number, level, name, value, len) },
        Ok(Handled::Value(bytes)) => {
            if value.is_null() || len.is_null() {
                return returned::<c_int, c_int>(Err(Error(libc::EFAULT)));
            }
            let room = unsafe { *len } as usize;
            let part = bytes.len().min(room);
            unsafe {
                values::bytes_mut(value.cast(), part).copy_from_slice(&bytes[..part]);
                *len = socklen_t::try_from(part).unwrap_or(0);
            }
            0
        }
        Err(error) => returned::<c_int, c_int>(Err(error)),
    }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn setsockopt(
    number: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    if is_ours(number) {
        let bytes = unsafe { values::bytes(value.cast(), len as usize) };
        let mut held = world::lock();
        match held.place(number).and_then(|place| held.set_option(place, level, name, bytes)) {
            Ok(Handled::ByKernel) => {}
            Ok(Handled::Value(_)) => return 0,
            Err(error) => return returned::<c_int, c_int>(Err(error)),
        }
    }
    // The kernel's socket has the option too, in case the socket is left to the kernel later.
    let status = unsafe { next::setsockopt(number, level, name, value, len) };
    if is_ours(number) { 0 } else { status }
}
