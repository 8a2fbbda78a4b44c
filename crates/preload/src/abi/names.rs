//! Functions for names of hosts, and for the end of the process.

use super::next;
use crate::{attach, world};
use libc::{addrinfo, c_char, c_int};
use std::ffi::{CStr, CString};
use std::net::IpAddr;

/// Returns the addresses of a host. A name is resolved by the network, never by the host's resolver; numbers need no resolver.
#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getaddrinfo(
    name: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    result: *mut *mut addrinfo,
) -> c_int {
    let text = if name.is_null() { None } else { unsafe { CStr::from_ptr(name) }.to_str().ok() };
    let is_number = |text: &str| text.split('%').next().is_some_and(|text| text.parse::<IpAddr>().is_ok());
    let Some(text) = text.filter(|text| !is_number(text) && *text != "localhost") else {
        return unsafe { next::getaddrinfo(name, service, hints, result) };
    };
    let Ok(addresses) = attach::resolve(text) else { return libc::EAI_AGAIN };
    let family = unsafe { hints.as_ref() }.map_or(libc::AF_UNSPEC, |hints| hints.ai_family);
    let wanted = |address: &&IpAddr| match family {
        libc::AF_INET => address.is_ipv4(),
        libc::AF_INET6 => address.is_ipv6(),
        _ => true,
    };
    // libc makes the list from the numbers, so that libc's freeaddrinfo can free it.
    let mut first: *mut addrinfo = std::ptr::null_mut();
    let mut last: *mut *mut addrinfo = &raw mut first;
    for address in addresses.iter().filter(wanted) {
        let Ok(number) = CString::new(address.to_string()) else { continue };
        if unsafe { next::getaddrinfo(number.as_ptr(), service, hints, last) } != 0 {
            continue;
        }
        while let Some(entry) = unsafe { (*last).as_mut() } {
            last = &raw mut entry.ai_next;
        }
    }
    if first.is_null() {
        return libc::EAI_NONAME;
    }
    unsafe { *result = first };
    0
}

/// Ends the process without the functions of `atexit`. Bytes that the program has sent are still delivered.
#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn _exit(status: c_int) -> ! {
    world::finish();
    unsafe { next::_exit(status) };
    unreachable!("the process has ended")
}
