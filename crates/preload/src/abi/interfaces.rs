//! Functions for network interfaces: the program sees the guest's devices and the loopback interface, not the host's devices.

use super::returned;
use crate::attach;
use crate::errors::{Error, Result};
use libc::{c_char, c_int, c_uint, c_ulong, c_void, ifaddrs, ifconf, ifreq, sockaddr_in, sockaddr_in6};
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

fn flags(interface: &Interface) -> c_int {
    let is_loopback = interface.name == LOOPBACK;
    let kind = if is_loopback { libc::IFF_LOOPBACK } else { libc::IFF_BROADCAST | libc::IFF_MULTICAST };
    libc::IFF_UP | libc::IFF_RUNNING | kind
}

/// Returns the broadcast address of a network, if it has one.
fn broadcast(interface: &Interface, address: IpAddr, prefix: u8) -> Option<IpAddr> {
    match (address, mask(address, prefix)) {
        (IpAddr::V4(address), IpAddr::V4(mask)) if interface.name != LOOPBACK => {
            Some(Ipv4Addr::from_bits(address.to_bits() | !mask.to_bits()).into())
        }
        _ => None,
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
    let mask = mask(address, prefix);
    unsafe {
        let entry = &mut *into;
        for (place, byte) in entry.name[..15].iter_mut().zip(interface.name.bytes()) {
            *place = byte.cast_signed();
        }
        (entry.address, entry.mask) = (any_address(address), any_address(mask));
        entry.list.ifa_name = entry.name.as_mut_ptr();
        entry.list.ifa_flags = flags(interface).cast_unsigned();
        entry.list.ifa_addr = (&raw mut entry.address).cast();
        entry.list.ifa_netmask = (&raw mut entry.mask).cast();
        if let Some(address) = broadcast(interface, address, prefix) {
            entry.broadcast = any_address(address);
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

/// The name of an interface in `struct ifreq`, in bytes, and the size of the structure.
const NAME_BYTES: usize = libc::IFNAMSIZ;
const REQUEST_BYTES: usize = size_of::<ifreq>();

/// What a request of `ioctl` returns of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Property {
    Address,
    Mask,
    Broadcast,
    Flags,
    Mtu,
    Number,
    HardwareAddress,
}

/// Carries out a request for network interfaces (netdevice(7)). Returns `None` if it is another request.
pub(super) unsafe fn control(request: c_ulong, argument: *mut c_void) -> Option<c_int> {
    let property = match request {
        libc::SIOCGIFCONF => return Some(returned(unsafe { list(argument.cast()) }.map(|()| 0))),
        libc::SIOCGIFNAME => return Some(returned(unsafe { name(argument) }.map(|()| 0))),
        libc::SIOCGIFADDR => Property::Address,
        libc::SIOCGIFNETMASK => Property::Mask,
        libc::SIOCGIFBRDADDR => Property::Broadcast,
        libc::SIOCGIFFLAGS => Property::Flags,
        libc::SIOCGIFMTU => Property::Mtu,
        libc::SIOCGIFINDEX => Property::Number,
        libc::SIOCGIFHWADDR => Property::HardwareAddress,
        _ => return None,
    };
    Some(returned(unsafe { describe(property, argument) }.map(|()| 0)))
}

/// Writes the value of a request behind the name of the interface.
unsafe fn put_value<T>(argument: *mut c_void, value: &T) {
    let bytes = size_of::<T>().min(REQUEST_BYTES - NAME_BYTES);
    unsafe { argument.byte_add(NAME_BYTES).cast::<u8>().copy_from(std::ptr::from_ref(value).cast(), bytes) };
}

/// Writes the name of an interface as far as it fits, and zeros behind it.
unsafe fn put_name(into: *mut c_void, interface: &Interface) {
    let mut name = [0_u8; NAME_BYTES];
    name[..NAME_BYTES - 1].iter_mut().zip(interface.name.bytes()).for_each(|(place, byte)| *place = byte);
    unsafe { into.cast::<u8>().copy_from(name.as_ptr(), NAME_BYTES) };
}

unsafe fn describe(property: Property, argument: *mut c_void) -> Result<()> {
    if argument.is_null() {
        return Err(Error(libc::EFAULT));
    }
    let name = unsafe { super::values::bytes(argument.cast(), NAME_BYTES) };
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let interfaces = all()?;
    let is_meant = |interface: &Interface| interface.name.bytes().take(NAME_BYTES - 1).eq(name.iter().copied());
    let place = interfaces.iter().position(is_meant).ok_or(Error(libc::ENODEV))?;
    let interface = &interfaces[place];
    let own = interface.addresses.iter().find(|(address, _)| address.is_ipv4());
    let own = own.copied().ok_or(Error(libc::EADDRNOTAVAIL));
    unsafe {
        match property {
            Property::Address => put_value(argument, &any_address(own?.0)),
            Property::Mask => own.map(|(address, prefix)| put_value(argument, &any_address(mask(address, prefix))))?,
            Property::Broadcast => {
                let (address, prefix) = own?;
                let none = Ipv4Addr::UNSPECIFIED.into();
                put_value(argument, &any_address(broadcast(interface, address, prefix).unwrap_or(none)));
            }
            Property::Flags => put_value(argument, &libc::c_short::try_from(flags(interface)).unwrap_or(0)),
            Property::Mtu => put_value(argument, &c_int::from(interface.mtu)),
            Property::Number => put_value(argument, &c_int::try_from(place + 1).unwrap_or(0)),
            Property::HardwareAddress => {
                let kind = if interface.name == LOOPBACK { libc::ARPHRD_LOOPBACK } else { libc::ARPHRD_NONE };
                put_value(argument, &libc::sockaddr { sa_family: kind, sa_data: [0; 14] });
            }
        }
    }
    Ok(())
}

unsafe fn name(argument: *mut c_void) -> Result<()> {
    if argument.is_null() {
        return Err(Error(libc::EFAULT));
    }
    let number = unsafe { argument.byte_add(NAME_BYTES).cast::<c_int>().read_unaligned() };
    let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    let interfaces = all()?;
    let interface = place.and_then(|place| interfaces.get(place)).ok_or(Error(libc::ENODEV))?;
    unsafe { put_name(argument, interface) };
    Ok(())
}

/// Lists the IPv4 addresses of all interfaces, as far as they fit. Without a place for the list, returns its length.
unsafe fn list(argument: *mut ifconf) -> Result<()> {
    let wanted = unsafe { argument.as_mut() }.ok_or(Error(libc::EFAULT))?;
    let interfaces = all()?;
    let entries = interfaces.iter().flat_map(|interface| {
        let addresses = interface.addresses.iter().map(|(address, _)| *address).filter(IpAddr::is_ipv4);
        addresses.map(move |address| (interface, address))
    });
    let into = unsafe { wanted.ifc_ifcu.ifcu_buf }.cast::<c_void>();
    let room = usize::try_from(wanted.ifc_len).map_err(|_| Error::INVALID)? / REQUEST_BYTES;
    let mut count = 0;
    for (interface, address) in entries.take(if into.is_null() { usize::MAX } else { room }) {
        if !into.is_null() {
            unsafe {
                let request = into.byte_add(count * REQUEST_BYTES);
                request.cast::<u8>().write_bytes(0, REQUEST_BYTES);
                put_name(request, interface);
                put_value(request, &any_address(address));
            }
        }
        count += 1;
    }
    wanted.ifc_len = c_int::try_from(count * REQUEST_BYTES).unwrap_or(c_int::MAX);
    Ok(())
}
