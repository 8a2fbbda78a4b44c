//! Reads and sets offload switches of a network interface (as `ethtool -k` and `-K` do), with the SIOCETHTOOL ioctl.
//!
//! The kernel looks up the interface in the network namespace of the socket that is passed to the ioctl. Reading a switch needs
//! no privilege. Setting a switch needs CAP_NET_ADMIN in that namespace, and fails with EOPNOTSUPP if the driver does not allow
//! a change. This module does not check whether a change took effect, so the caller must read the switch back.

use rustix::ioctl::{Opcode, Updater};
use std::fmt;
use std::io;
use std::os::fd::AsFd;

/// An offload switch of an interface (`ethtool -k`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offload {
    /// TCP segmentation offload: the device or its driver splits large segments.
    Tso,
    /// Generic segmentation offload: the kernel splits large segments just before it calls the driver.
    Gso,
    /// Generic receive offload: the kernel merges received segments into large ones.
    Gro,
    /// Transmit checksum offload: the device computes the checksums of packets that it sends.
    TxChecksum,
    /// Receive checksum offload: the device verifies the checksums of packets that it receives.
    RxChecksum,
}

impl Offload {
    /// All switches, in the order in which siga prints the settings that it has read back.
    pub(crate) const ALL: [Self; 5] = [Self::Tso, Self::Gso, Self::Gro, Self::TxChecksum, Self::RxChecksum];

    /// Returns the name that siga prints for the switch.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tso => "tso",
            Self::Gso => "gso",
            Self::Gro => "gro",
            Self::TxChecksum => "tx-checksum",
            Self::RxChecksum => "rx-checksum",
        }
    }

    /// Returns the ethtool commands that get and set the switch (`linux/ethtool.h`).
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

/// Returns whether the switch `which` is on at `interface`, in the network namespace of `socket` (any socket). Returns
/// ENODEV if the interface does not exist there, EINVAL if its name is too long, and EOPNOTSUPP if the driver lacks the
/// command.
pub(crate) fn offload(socket: impl AsFd, interface: &str, which: Offload) -> io::Result<bool> {
    let (get, _) = which.commands();
    command(socket, interface, Value { command: get, data: 0 }).map(|data| data != 0)
}

/// Sets the switch `which` at `interface`, in the network namespace of `socket` (any socket). Returns the errors of
/// [`offload`], EOPNOTSUPP also if the switch is fixed, and EPERM without CAP_NET_ADMIN.
pub(crate) fn set_offload(socket: impl AsFd, interface: &str, which: Offload, on: bool) -> io::Result<()> {
    let (_, set) = which.commands();
    command(socket, interface, Value { command: set, data: u32::from(on) }).map(|_| ())
}

/// The ioctl number SIOCETHTOOL (`linux/sockios.h`). Newer ioctl numbers contain the direction and size of the argument; this
/// one does not.
const SIOCETHTOOL: Opcode = 0x8946;

/// Maximum length in bytes of an interface name, including its terminating zero (IFNAMSIZ).
const NAME_BYTES: usize = 16;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// The form of `struct ifreq` for SIOCETHTOOL: a name and a pointer, padded to the size of the kernel's structure.
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
    // SAFETY: the argument of this ioctl is a `struct ifreq`, and `Request` has the same layout and size.
    let call = unsafe { Updater::<SIOCETHTOOL, Request>::new(&mut request) };
    // SAFETY: the kernel reads `request`, then reads and writes one `struct ethtool_value` through the pointer in it. `value`
    // outlives the call, and the commands in this file transfer no other structure.
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
