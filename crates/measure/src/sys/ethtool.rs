//! Offload switches of a network interface, by the SIOCETHTOOL ioctl.
//!
//! The interface is looked up in the network namespace of the socket that carries the ioctl. Reading needs no privilege;
//! setting needs CAP_NET_ADMIN in that namespace. A switch that the driver keeps fixed answers EOPNOTSUPP.
//! It does not look whether a change had an effect: read it back.

use rustix::ioctl::{Opcode, Updater};
use std::fmt;
use std::io;
use std::os::fd::AsFd;

/// A switch of an interface (`ethtool -k`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// TCP segmentation by the device or its driver.
    Tso,
    /// Generic segmentation before the driver.
    Gso,
    /// Generic receive offload.
    Gro,
    /// Checksums left to the device when sending.
    TxChecksum,
    /// Checksums verified by the device when receiving.
    RxChecksum,
}

impl Offload {
    /// All switches, in the order of read-back texts.
    pub const ALL: [Self; 5] = [Self::Tso, Self::Gso, Self::Gro, Self::TxChecksum, Self::RxChecksum];

    /// Its name in read-back texts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tso => "tso",
            Self::Gso => "gso",
            Self::Gro => "gro",
            Self::TxChecksum => "tx-checksum",
            Self::RxChecksum => "rx-checksum",
        }
    }

    /// Commands that get and set it (`linux/ethtool.h`).
    fn commands(self) -> (u32, u32) {
        match self {
            Self::Tso => (0x1e, 0x1f),
            Self::Gso => (0x23, 0x24),
            Self::Gro => (0x2b, 0x2c),
            Self::TxChecksum => (0x16, 0x17),
            Self::RxChecksum => (0x14, 0x15),
        }
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Whether `which` is on at `interface` in the namespace of `socket` (any socket).
///
/// # Errors
/// The interface is unknown there (ENODEV), its name too long (EINVAL), or the driver lacks the command (EOPNOTSUPP).
pub fn offload(socket: impl AsFd, interface: &str, which: Offload) -> io::Result<bool> {
    let (get, _) = which.commands();
    command(socket, interface, Value { command: get, data: 0 }).map(|data| data != 0)
}

/// Switches `which` at `interface` in the namespace of `socket` (any socket).
///
/// # Errors
/// As [`offload`]; EOPNOTSUPP also if the switch is fixed, EPERM without CAP_NET_ADMIN.
pub fn set_offload(socket: impl AsFd, interface: &str, which: Offload, on: bool) -> io::Result<()> {
    let (_, set) = which.commands();
    command(socket, interface, Value { command: set, data: u32::from(on) }).map(|_| ())
}

/// SIOCETHTOOL (`linux/sockios.h`); the code predates direction and size bits.
const SIOCETHTOOL: Opcode = 0x8946;

/// Longest interface name with its terminating zero (IFNAMSIZ).
const NAME_BYTES: usize = 16;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ifreq` as SIOCETHTOOL reads it: a name and a pointer, in the size of the kernel's structure.
#[repr(C)]
struct Request {
    name: [u8; NAME_BYTES],
    value: *mut Value,
    rest: [u8; size_of::<libc::ifreq>() - NAME_BYTES - size_of::<*mut Value>()],
}

fn command(socket: impl AsFd, interface: &str, mut value: Value) -> io::Result<u32> {
    if interface.len() >= NAME_BYTES || interface.contains('\0') {
        return Err(io::Error::from(rustix::io::Errno::INVAL));
    }
    let mut request = Request { name: [0; NAME_BYTES], value: &raw mut value, rest: [0; _] };
    request.name[..interface.len()].copy_from_slice(interface.as_bytes());
    // SAFETY: the opcode's argument is a `struct ifreq`, which `Request` mirrors in layout and size.
    let call = unsafe { Updater::<SIOCETHTOOL, Request>::new(&mut request) };
    // SAFETY: the kernel reads `request`, then reads and writes one `struct ethtool_value` behind its pointer; `value`
    // outlives the call and the commands used here transfer no other structure.
    unsafe { rustix::ioctl::ioctl(socket, call) }?;
    Ok(value.data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, socket};

    #[test]
    fn reads_every_switch_of_lo() {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        for which in Offload::ALL {
            offload(&socket, "lo", which).unwrap_or_else(|error| panic!("{which} of lo: {error}"));
        }
        assert!(offload(&socket, "lo", Offload::RxChecksum).unwrap(), "lo never verifies checksums itself");
    }

    #[test]
    fn refuses_unknown_and_overlong_names() {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        let unknown = offload(&socket, "siga-none", Offload::Gro).unwrap_err();
        assert_eq!(unknown.raw_os_error(), Some(libc::ENODEV));
        let overlong = offload(&socket, "siga-an-overlong-name", Offload::Gro).unwrap_err();
        assert_eq!(overlong.raw_os_error(), Some(libc::EINVAL));
    }
}
