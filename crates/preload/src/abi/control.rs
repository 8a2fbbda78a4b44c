//! Control messages (cmsg(3)) of datagrams: the options of a sent datagram, and reports about a received one (RFC 3542).

use crate::datagrams::{Report, network};
use crate::errors::{Error, Result};
use libc::{c_int, cmsghdr, in_addr, in_pktinfo, in6_addr, in6_pktinfo, msghdr};
use siga_iucv::options::DatagramOptions;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A control message of the program.
struct Message {
    level: c_int,
    kind: c_int,
    bytes: Vec<u8>,
}

impl Message {
    fn number(&self) -> Result<c_int> {
        Ok(c_int::from_ne_bytes(*self.bytes.first_chunk().ok_or(Error::INVALID)?))
    }

    /// Reads a number from `least` to 255. The kernel stands for its default with -1.
    fn octet(&self, least: c_int) -> Result<Option<u8>> {
        match self.number()? {
            -1 if least == 0 => Ok(None),
            number if number < least => Err(Error::INVALID),
            number => u8::try_from(number).map(Some).map_err(|_| Error::INVALID),
        }
    }
}

/// Returns the control messages of a message. Stops at the first one whose length is not valid.
unsafe fn messages(message: &msghdr) -> Vec<Message> {
    let mut found = Vec::new();
    if message.msg_control.is_null() || message.msg_controllen < size_of::<cmsghdr>() {
        return found;
    }
    let mut at = unsafe { libc::CMSG_FIRSTHDR(message) };
    let end = message.msg_control.addr() + message.msg_controllen;
    while let Some(header) = unsafe { at.as_ref() } {
        let from = unsafe { libc::CMSG_DATA(at) };
        let len = header.cmsg_len.checked_sub(from.addr() - at.addr());
        let Some(len) = len.filter(|len| *len <= end.saturating_sub(from.addr())) else { break };
        let bytes = unsafe { super::values::bytes(from, len) }.to_vec();
        found.push(Message { level: header.cmsg_level, kind: header.cmsg_type, bytes });
        at = unsafe { libc::CMSG_NXTHDR(message, at) };
    }
    found
}

/// Returns the descriptors that a message passes to another process, or has brought from one (`SCM_RIGHTS`).
pub(super) unsafe fn descriptors(message: &msghdr) -> Vec<c_int> {
    if message.msg_controllen == 0 {
        return Vec::new();
    }
    let passes = |control: &Message| (control.level, control.kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    let numbers = |control: Message| {
        control.bytes.as_chunks::<4>().0.iter().map(|bytes| c_int::from_ne_bytes(*bytes)).collect::<Vec<_>>()
    };
    unsafe { messages(message) }.into_iter().filter(passes).flat_map(numbers).collect()
}

/// Reads the options of a sent datagram. Messages of other levels have no effect, as in Linux.
pub(super) unsafe fn options(message: &msghdr) -> Result<DatagramOptions> {
    let mut options = DatagramOptions::default();
    for control in unsafe { messages(message) } {
        match (control.level, control.kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let [index, source, _] = control.bytes.as_chunks::<4>().0 else { return Err(Error::INVALID) };
                options.network = network(u32::from_ne_bytes(*index))?;
                options.from = chosen(Ipv4Addr::from(*source).into());
            }
            (libc::IPPROTO_IP, libc::IP_TTL) => options.hop_limit = control.octet(1)?,
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                options.service = match *control.bytes {
                    [service] => Some(service),
                    _ => control.octet(0)?,
                };
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let (source, rest) = control.bytes.split_first_chunk::<16>().ok_or(Error::INVALID)?;
                options.network = network(u32::from_ne_bytes(*rest.first_chunk().ok_or(Error::INVALID)?))?;
                options.from = chosen(Ipv6Addr::from(*source).to_canonical());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => options.hop_limit = control.octet(0)?,
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => options.service = control.octet(0)?,
            (libc::IPPROTO_IP | libc::IPPROTO_IPV6, _) => return Err(Error::INVALID),
            _ => {}
        }
    }
    Ok(options)
}

/// Returns the address, unless it is the unspecified one, with which a program chooses none.
fn chosen(address: IpAddr) -> Option<IpAddr> {
    (!address.is_unspecified()).then_some(address)
}

fn bytes_of<T>(value: &T) -> Vec<u8> {
    unsafe { super::values::bytes(std::ptr::from_ref(value).cast(), size_of::<T>()) }.to_vec()
}

/// Returns the level, the kind and the bytes of a control message.
fn message_of(report: Report) -> (c_int, c_int, Vec<u8>) {
    let octet = |octet: u8| c_int::from(octet).to_ne_bytes().to_vec();
    match report {
        Report::AddressV4(to, number) => {
            let address = in_addr { s_addr: u32::from(to).to_be() };
            let ipi_ifindex = c_int::try_from(number).unwrap_or(0);
            let info = in_pktinfo { ipi_ifindex, ipi_spec_dst: address, ipi_addr: address };
            (libc::IPPROTO_IP, libc::IP_PKTINFO, bytes_of(&info))
        }
        Report::Ttl(ttl) => (libc::IPPROTO_IP, libc::IP_TTL, octet(ttl)),
        Report::Tos(tos) => (libc::IPPROTO_IP, libc::IP_TOS, vec![tos]),
        Report::AddressV6(to, number) => {
            let info = in6_pktinfo { ipi6_addr: in6_addr { s6_addr: to.octets() }, ipi6_ifindex: number };
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, bytes_of(&info))
        }
        Report::HopLimit(hops) => (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, octet(hops)),
        Report::TrafficClass(class) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, octet(class)),
    }
}

/// Writes control messages as far as they fit, and their length. Returns `MSG_CTRUNC` if one was cut or left out.
pub(super) unsafe fn put(message: &mut msghdr, reports: &[Report]) -> c_int {
    let room = if message.msg_control.is_null() { 0 } else { message.msg_controllen };
    let (mut used, mut flags) = (0, 0);
    for report in reports {
        let (cmsg_level, cmsg_type, bytes) = message_of(*report);
        let left = room - used;
        // As in Linux, a message whose header does not fit is left out, and one whose bytes do not fit is cut.
        if left < size_of::<cmsghdr>() {
            flags = libc::MSG_CTRUNC;
            break;
        }
        let whole = size_of::<cmsghdr>() + bytes.len();
        let cmsg_len = whole.min(left);
        if cmsg_len < whole {
            flags = libc::MSG_CTRUNC;
        }
        unsafe {
            let at = message.msg_control.byte_add(used);
            at.cast::<cmsghdr>().write_unaligned(cmsghdr { cmsg_len, cmsg_level, cmsg_type });
            let data = at.byte_add(size_of::<cmsghdr>()).cast::<u8>();
            data.copy_from_nonoverlapping(bytes.as_ptr(), cmsg_len - size_of::<cmsghdr>());
        }
        used += whole.next_multiple_of(align_of::<cmsghdr>()).min(left);
    }
    message.msg_controllen = used;
    flags
}
