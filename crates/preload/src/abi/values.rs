//! Conversions between values of C and values of Rust.

use crate::errors::{Error, Result};
use crate::sys::Signals;
use libc::{iovec, sigset_t, sockaddr, sockaddr_in, sockaddr_in6, socklen_t, timespec, timeval};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::time::Duration;

/// The families of socket addresses, in the type that an address has.
const FAMILY_V4: libc::sa_family_t = 2;
const FAMILY_V6: libc::sa_family_t = 10;

/// Reads a socket address. Returns `None` for an address without a family (`AF_UNSPEC`).
pub(super) unsafe fn address(address: *const sockaddr, len: socklen_t) -> Result<Option<SocketAddr>> {
    if address.is_null() {
        return Err(Error(libc::EFAULT));
    }
    let len = len as usize;
    if len < size_of::<libc::sa_family_t>() {
        return Err(Error::INVALID);
    }
    match i32::from(unsafe { (&raw const (*address).sa_family).read_unaligned() }) {
        libc::AF_UNSPEC => Ok(None),
        libc::AF_INET if len >= size_of::<sockaddr_in>() => {
            let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into()))
        }
        libc::AF_INET6 if len >= size_of::<sockaddr_in6>() => {
            let v6 = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Ok(Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), v6.sin6_flowinfo, v6.sin6_scope_id).into()))
        }
        libc::AF_INET | libc::AF_INET6 => Err(Error::INVALID),
        _ => Err(Error(libc::EAFNOSUPPORT)),
    }
}

/// Writes a socket address as far as it fits, and its whole length.
pub(super) unsafe fn put_address(address: SocketAddr, into: *mut sockaddr, len: *mut socklen_t) -> Result<()> {
    if into.is_null() {
        return Ok(());
    }
    if len.is_null() {
        return Err(Error(libc::EFAULT));
    }
    let room = unsafe { *len } as usize;
    let put = |from: *const u8, bytes: usize| unsafe {
        std::ptr::copy_nonoverlapping(from, into.cast(), bytes.min(room));
        *len = socklen_t::try_from(bytes).unwrap_or(0);
    };
    match address {
        SocketAddr::V4(v4) => {
            let value = sockaddr_in {
                sin_family: FAMILY_V4,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            put((&raw const value).cast(), size_of::<sockaddr_in>());
        }
        SocketAddr::V6(v6) => {
            let value = sockaddr_in6 {
                sin6_family: FAMILY_V6,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            put((&raw const value).cast(), size_of::<sockaddr_in6>());
        }
    }
    Ok(())
}

/// Returns the bytes at a pointer of the program.
pub(super) unsafe fn bytes<'a>(from: *const u8, len: usize) -> &'a [u8] {
    if from.is_null() || len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(from, len) } }
}

/// Returns the bytes at a pointer of the program, for writing.
pub(super) unsafe fn bytes_mut<'a>(into: *mut u8, len: usize) -> &'a mut [u8] {
    if into.is_null() || len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(into, len) } }
}

/// Largest number of parts of a message (`IOV_MAX`).
const PARTS_MAX: usize = 1_024;

/// Returns the parts of a message.
pub(super) unsafe fn parts<'a>(parts: *const iovec, count: usize) -> Result<&'a [iovec]> {
    match count {
        0 => Ok(&[]),
        1..=PARTS_MAX if parts.is_null() => Err(Error(libc::EFAULT)),
        1..=PARTS_MAX => Ok(unsafe { std::slice::from_raw_parts(parts, count) }),
        _ => Err(Error::INVALID),
    }
}

/// Converts a time limit in milliseconds; negative means none.
pub(super) fn milliseconds(ms: i32) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// Reads a time limit; a null pointer means none.
pub(super) unsafe fn time(time: *const timespec) -> Result<Option<Duration>> {
    let Some(time) = (unsafe { time.as_ref() }) else { return Ok(None) };
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Error::INVALID)?;
    let ns = u32::try_from(time.tv_nsec).ok().filter(|ns| *ns < 1_000_000_000).ok_or(Error::INVALID)?;
    Ok(Some(Duration::new(seconds, ns)))
}

/// Reads a time limit in microseconds; a null pointer means none.
pub(super) unsafe fn time_us(time: *const timeval) -> Result<Option<Duration>> {
    let Some(time) = (unsafe { time.as_ref() }) else { return Ok(None) };
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Error::INVALID)?;
    let us = u64::try_from(time.tv_usec).map_err(|_| Error::INVALID)?;
    Ok(Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(us))))
}

/// Reads a set of signals; a null pointer means none.
pub(super) unsafe fn signals(set: *const sigset_t) -> Option<Signals> {
    // The kernel's set is the first 64 bits of libc's.
    (!set.is_null()).then(|| Signals::from_bits(unsafe { set.cast::<u64>().read_unaligned() }))
}
