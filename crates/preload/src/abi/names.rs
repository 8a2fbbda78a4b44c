//! Functions for names of hosts (getaddrinfo(3), gethostbyname(3), getnameinfo(3)), and for the end of the process.
//!
//! A name is resolved by the network, never by the host's resolver, because the sockets of the host's resolver are the host's.

use super::{next, values};
use crate::{attach, log, world};
use libc::{addrinfo, c_char, c_int, c_void, hostent, size_t, sockaddr, socklen_t};
use std::ffi::{CStr, CString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

unsafe extern "C" {
    fn __h_errno_location() -> *mut c_int;
}

/// Values of `h_errno` (netdb.h).
const HOST_NOT_FOUND: c_int = 1;
const TRY_AGAIN: c_int = 2;

/// The name of the loopback addresses.
const LOCALHOST: &str = "localhost";

/// Returns the text of a numeric address, without its zone.
fn number(text: &str) -> Option<IpAddr> {
    text.split('%').next()?.parse().ok()
}

/// Returns the addresses of a name: `None` if the network cannot be asked now.
fn addresses_of(name: &str) -> Option<Vec<IpAddr>> {
    if name.eq_ignore_ascii_case(LOCALHOST) {
        return Some(vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]);
    }
    attach::resolve(name).ok()
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getaddrinfo(
    name: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    result: *mut *mut addrinfo,
) -> c_int {
    let text = if name.is_null() { None } else { unsafe { CStr::from_ptr(name) }.to_str().ok() };
    let flags = unsafe { hints.as_ref() }.map_or(0, |hints| hints.ai_flags);
    let is_left = |text: &str| number(text).is_some() || text.is_empty() || flags & libc::AI_NUMERICHOST != 0;
    let Some(text) = text.filter(|text| !is_left(text)) else {
        return unsafe { next::getaddrinfo(name, service, hints, result) };
    };
    let Some(addresses) = addresses_of(text) else { return libc::EAI_AGAIN };
    let family = unsafe { hints.as_ref() }.map_or(libc::AF_UNSPEC, |hints| hints.ai_family);
    let wanted = |address: &&IpAddr| match family {
        libc::AF_INET => address.is_ipv4(),
        libc::AF_INET6 => address.is_ipv6() || flags & libc::AI_V4MAPPED != 0,
        _ => true,
    };
    // libc makes the list from the numbers, so that libc's freeaddrinfo can free it.
    let mut first: *mut addrinfo = std::ptr::null_mut();
    let mut last: *mut *mut addrinfo = &raw mut first;
    let mut failure = libc::EAI_NONAME;
    for address in addresses.iter().filter(wanted) {
        let Ok(number) = CString::new(address.to_string()) else { continue };
        let status = unsafe { next::getaddrinfo(number.as_ptr(), service, hints, last) };
        if status != 0 {
            failure = status;
            continue;
        }
        while let Some(entry) = unsafe { (*last).as_mut() } {
            last = &raw mut entry.ai_next;
        }
    }
    if first.is_null() {
        return failure;
    }
    unsafe { *result = first };
    0
}

/// Writes a host into a buffer of the caller. Returns false if the buffer is too small.
unsafe fn put_host(
    into: *mut hostent,
    buffer: *mut c_char,
    room: size_t,
    name: &str,
    family: c_int,
    addresses: &[IpAddr],
) -> bool {
    let wanted: Vec<&IpAddr> =
        addresses.iter().filter(|address| address.is_ipv4() == (family == libc::AF_INET)).collect();
    let address_bytes = if family == libc::AF_INET { 4 } else { 16 };
    // One empty list of aliases, the list of addresses, the addresses, and the name.
    let pointers = (1 + wanted.len() + 1) * size_of::<*mut c_char>();
    let padding = buffer.align_offset(align_of::<*mut c_char>());
    if padding + pointers + wanted.len() * address_bytes + name.len() + 1 > room {
        return false;
    }
    unsafe {
        let lists = buffer.add(padding).cast::<*mut c_char>();
        let mut bytes = lists.cast::<u8>().add(pointers);
        lists.write(std::ptr::null_mut());
        for (at, address) in wanted.iter().enumerate() {
            lists.add(1 + at).write(bytes.cast());
            match address {
                IpAddr::V4(address) => bytes.copy_from_nonoverlapping(address.octets().as_ptr(), address_bytes),
                IpAddr::V6(address) => bytes.copy_from_nonoverlapping(address.octets().as_ptr(), address_bytes),
            }
            bytes = bytes.add(address_bytes);
        }
        lists.add(1 + wanted.len()).write(std::ptr::null_mut());
        bytes.copy_from_nonoverlapping(name.as_ptr(), name.len());
        bytes.add(name.len()).write(0);
        into.write(hostent {
            h_name: bytes.cast(),
            h_aliases: lists,
            h_addrtype: family,
            h_length: c_int::try_from(address_bytes).unwrap_or(0),
            h_addr_list: lists.add(1),
        });
    }
    true
}

/// Where a function of the family of gethostbyname(3) puts its result.
struct HostPlace {
    host: *mut hostent,
    buffer: *mut c_char,
    room: size_t,
    result: *mut *mut hostent,
    failure: *mut c_int,
}

impl HostPlace {
    /// Stores a host, or the reason why the name has no host. Returns an error number.
    unsafe fn put(&self, found: Result<(&str, Vec<IpAddr>), c_int>, family: c_int) -> c_int {
        unsafe { *self.result = std::ptr::null_mut() };
        let is_wanted = |address: &IpAddr| address.is_ipv4() == (family == libc::AF_INET);
        let (name, addresses) = match found {
            Ok((name, addresses)) if addresses.iter().any(is_wanted) => (name, addresses),
            Ok(_) => {
                unsafe { *self.failure = HOST_NOT_FOUND };
                return 0;
            }
            Err(failure) => {
                unsafe { *self.failure = failure };
                return 0;
            }
        };
        if !unsafe { put_host(self.host, self.buffer, self.room, name, family, &addresses) } {
            return libc::ERANGE;
        }
        unsafe { *self.result = self.host };
        0
    }
}

/// Returns the name and the addresses of a host that is named or numbered by `name`.
unsafe fn host_named<'a>(name: *const c_char) -> Result<(&'a str, Vec<IpAddr>), c_int> {
    let text = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| HOST_NOT_FOUND)?;
    let addresses = match number(text) {
        Some(address) => vec![address],
        None => addresses_of(text).ok_or(TRY_AGAIN)?,
    };
    Ok((text, addresses))
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn gethostbyname2_r(
    name: *const c_char,
    family: c_int,
    host: *mut hostent,
    buffer: *mut c_char,
    room: size_t,
    result: *mut *mut hostent,
    failure: *mut c_int,
) -> c_int {
    unsafe { HostPlace { host, buffer, room, result, failure }.put(host_named(name), family) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn gethostbyname_r(
    name: *const c_char,
    host: *mut hostent,
    buffer: *mut c_char,
    room: size_t,
    result: *mut *mut hostent,
    failure: *mut c_int,
) -> c_int {
    unsafe { gethostbyname2_r(name, libc::AF_INET, host, buffer, room, result, failure) }
}

/// The result of the functions without a place for it. The next call overwrites it, as in libc.
struct StaticHost(std::cell::UnsafeCell<(std::mem::MaybeUninit<hostent>, [c_char; 4_096])>);

// SAFETY: as in libc, the program must not call these functions in two threads at the same time.
unsafe impl Sync for StaticHost {}

static HOST: StaticHost = StaticHost(std::cell::UnsafeCell::new((std::mem::MaybeUninit::uninit(), [0; 4_096])));

unsafe fn static_host(put: impl FnOnce(&HostPlace) -> c_int) -> *mut hostent {
    let mut result = std::ptr::null_mut();
    let place = HOST.0.get();
    let place = unsafe {
        HostPlace {
            host: (&raw mut (*place).0).cast(),
            buffer: (&raw mut (*place).1).cast(),
            room: 4_096,
            result: &raw mut result,
            failure: __h_errno_location(),
        }
    };
    put(&place);
    result
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent {
    unsafe { static_host(|place| place.put(host_named(name), family)) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn gethostbyname(name: *const c_char) -> *mut hostent {
    unsafe { gethostbyname2(name, libc::AF_INET) }
}

/// Returns the name of an address. Only loopback addresses have one.
unsafe fn host_numbered(
    address: *const c_void,
    len: socklen_t,
    family: c_int,
) -> Result<(&'static str, Vec<IpAddr>), c_int> {
    let address: IpAddr = match (family, len) {
        (libc::AF_INET, 4) => Ipv4Addr::from(unsafe { address.cast::<[u8; 4]>().read_unaligned() }).into(),
        (libc::AF_INET6, 16) => Ipv6Addr::from(unsafe { address.cast::<[u8; 16]>().read_unaligned() }).into(),
        _ => return Err(HOST_NOT_FOUND),
    };
    if address.is_loopback() { Ok((LOCALHOST, vec![address])) } else { Err(HOST_NOT_FOUND) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn gethostbyaddr_r(
    address: *const c_void,
    len: socklen_t,
    family: c_int,
    host: *mut hostent,
    buffer: *mut c_char,
    room: size_t,
    result: *mut *mut hostent,
    failure: *mut c_int,
) -> c_int {
    unsafe { HostPlace { host, buffer, room, result, failure }.put(host_numbered(address, len, family), family) }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn gethostbyaddr(address: *const c_void, len: socklen_t, family: c_int) -> *mut hostent {
    unsafe { static_host(|place| place.put(host_numbered(address, len, family), family)) }
}

/// Converts an address to text. Only loopback addresses have names; libc writes the others as numbers.
#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getnameinfo(
    address: *const sockaddr,
    len: socklen_t,
    host: *mut c_char,
    host_room: socklen_t,
    service: *mut c_char,
    service_room: socklen_t,
    flags: c_int,
) -> c_int {
    let left = |flags| unsafe { next::getnameinfo(address, len, host, host_room, service, service_room, flags) };
    if host.is_null() || host_room == 0 || flags & libc::NI_NUMERICHOST != 0 {
        return left(flags);
    }
    let Ok(Some(known)) = (unsafe { values::address(address, len) }) else { return left(flags) };
    if !known.ip().is_loopback() {
        if flags & libc::NI_NAMEREQD != 0 {
            log::line(format_args!("getnameinfo: the virtual network has no name for the address {}", known.ip()));
            return libc::EAI_NONAME;
        }
        return left(flags | libc::NI_NUMERICHOST);
    }
    if host_room as usize <= LOCALHOST.len() {
        return libc::EAI_OVERFLOW;
    }
    if !service.is_null() && service_room > 0 {
        let flags = (flags | libc::NI_NUMERICHOST) & !libc::NI_NAMEREQD;
        let none = std::ptr::null_mut();
        let status = unsafe { next::getnameinfo(address, len, none, 0, service, service_room, flags) };
        if status != 0 {
            return status;
        }
    }
    unsafe {
        host.cast::<u8>().copy_from_nonoverlapping(LOCALHOST.as_ptr(), LOCALHOST.len());
        host.add(LOCALHOST.len()).write(0);
    }
    0
}

/// Ends the process without the functions of `atexit`. Bytes that the program has sent are still delivered.
#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn _exit(status: c_int) -> ! {
    world::finish();
    unsafe { next::_exit(status) }
}
