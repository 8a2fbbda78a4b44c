//! Functions for network interfaces: the program sees the guest's devices and the loopback interface, not the host's devices.

use super::returned;
use crate::attach;
use crate::errors::{Error, Result};
use libc::{c_char, c_int, c_uint, c_void, ifaddrs, sockaddr_in, sockaddr_in6};
use siga_iucv::broker::Interface;
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The name of the loopback interface. Its number is 1, and those of the guest's devices follow.
const LOOPBACK: &str = "lo";
const LOOPBACK_MTU: u16 = 65_535;

/// Returns all interfaces, in the order of their numbers.
fn all() -> Result<Vec<Interface>> {
    let addresses = vec![(Ipv4Addr::LOCALHOST.into(), 8), (Ipv6Addr::LOCALHOST.into(), 128)];
    let loopback = Interface { name: LOOPBACK.to_owned(), mtu: LOOPBACK_MTU, addresses };
    Ok([vec![loopback], attach::interfaces()?].concat())
}

/// A socket address of either IP version.
#[repr(C)]
union AnyAddress {
    v4: sockaddr_in,
    v6: sockaddr_in6,
}

fn any_address(address: IpAddr) -> AnyAddress {
    match address {
        IpAddr::V4(address) => {
            let sin_addr = libc::in_addr { s_addr: u32::from(address).to_be() };
            AnyAddress { v4: sockaddr_in { sin_family: 2, sin_port: 0, sin_addr, sin_zero: [0; 8] } }
        }
        IpAddr::V6(address) => {
            let sin6_addr = libc::in6_addr { s6_addr: address.octets() };
            let (sin6_port, sin6_flowinfo, sin6_scope_id) = (0, 0, 0);
            AnyAddress { v6: sockaddr_in6 { sin6_family: 10, sin6_port, sin6_flowinfo, sin6_addr, sin6_scope_id } }
        }
    }
}

fn mask(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(_) => Ipv4Addr::from_bits(!u32::MAX.checked_shr(prefix).unwrap_or(0)).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(!u128::MAX.checked_shr(prefix).unwrap_or(0)).into(),
    }
}

/// One entry of the list of getifaddrs(3), with everything that it points to.
#[repr(C)]
struct Entry {
    list: ifaddrs,
    address: AnyAddress,
    mask: AnyAddress,
    broadcast: AnyAddress,
    name: [c_char; 16],
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getifaddrs(result: *mut *mut ifaddrs) -> c_int {
    let made = all().and_then(|interfaces| {
        let count: usize = interfaces.iter().map(|interface| interface.addresses.len()).sum();
        // libc's freeifaddrs frees the list as one piece of memory.
        let entries = unsafe { libc::calloc(count.max(1), size_of::<Entry>()) }.cast::<Entry>();
        if entries.is_null() {
            return Err(Error(libc::ENOMEM));
        }
        let mut at = 0;
        for interface in &interfaces {
            for (address, prefix) in &interface.addresses {
                unsafe { put_entry(entries.add(at), interface, *address, *prefix) };
                if at > 0 {
                    unsafe { (*entries.add(at - 1)).list.ifa_next = &raw mut (*entries.add(at)).list };
                }
                at += 1;
            }
        }
        unsafe { *result = entries.cast() };
        Ok(0)
    });
    returned(made)
}

unsafe fn put_entry(into: *mut Entry, interface: &Interface, address: IpAddr, prefix: u8) {
    let is_loopback = interface.name == LOOPBACK;
    let kind = if is_loopback { libc::IFF_LOOPBACK } else { libc::IFF_BROADCAST | libc::IFF_MULTICAST };
    let flags = libc::IFF_UP | libc::IFF_RUNNING | kind;
    let mask = mask(address, prefix);
    unsafe {
        let entry = &mut *into;
        for (place, byte) in entry.name[..15].iter_mut().zip(interface.name.bytes()) {
            *place = byte.cast_signed();
        }
        (entry.address, entry.mask) = (any_address(address), any_address(mask));
        entry.list.ifa_name = entry.name.as_mut_ptr();
        entry.list.ifa_flags = flags.cast_unsigned();
        entry.list.ifa_addr = (&raw mut entry.address).cast();
        entry.list.ifa_netmask = (&raw mut entry.mask).cast();
        if let (IpAddr::V4(address), IpAddr::V4(mask), false) = (address, mask, is_loopback) {
            entry.broadcast = any_address(Ipv4Addr::from_bits(address.to_bits() | !mask.to_bits()).into());
            entry.list.ifa_ifu = (&raw mut entry.broadcast).cast();
        }
    }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn if_nametoindex(name: *const c_char) -> c_uint {
    let wanted = unsafe { CStr::from_ptr(name) }.to_bytes();
    let found = all().ok().and_then(|all| all.iter().position(|interface| interface.name.as_bytes() == wanted));
    match found.and_then(|place| c_uint::try_from(place + 1).ok()) {
        Some(number) => number,
        None => {
            unsafe { *libc::__errno_location() = libc::ENODEV };
            0
        }
    }
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn if_indextoname(number: c_uint, into: *mut c_char) -> *mut c_char {
    let place = (number as usize).wrapping_sub(1);
    let Some(interface) = all().ok().and_then(|all| all.into_iter().nth(place)) else {
        unsafe { *libc::__errno_location() = libc::ENXIO };
        return std::ptr::null_mut();
    };
    let name = &interface.name.as_bytes()[..interface.name.len().min(15)];
    unsafe {
        into.cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), name.len());
        into.add(name.len()).write(0);
    }
    into
}

/// The entry of a name in the list of if_nameindex(3).
#[repr(C)]
struct NameIndex {
    number: c_uint,
    name: *mut c_char,
}

#[cfg_attr(siga_preload_library, unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn if_nameindex() -> *mut c_void {
    let interfaces = all().unwrap_or_default();
    let list = unsafe { libc::calloc(interfaces.len() + 1, size_of::<NameIndex>()) }.cast::<NameIndex>();
    if list.is_null() {
        return std::ptr::null_mut();
    }
    for (place, interface) in interfaces.iter().enumerate() {
        // libc's if_freenameindex frees each name, and then the list.
        let name = std::ffi::CString::new(interface.name.as_bytes()).unwrap_or_default();
        let number = c_uint::try_from(place + 1).unwrap_or(0);
        unsafe { list.add(place).write(NameIndex { number, name: libc::strdup(name.as_ptr()) }) };
    }
    list.cast()
}
