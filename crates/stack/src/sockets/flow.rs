//! The flow of a connection: the addresses and ports of both ends. The stack finds the connection of a segment by its flow.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The addresses and ports of both ends of a connection.
///
/// An IPv4 address is stored as an IPv4-mapped IPv6 address, which is unambiguous because no packet on a link may contain one. All
/// addresses are numbers of 128 bits, so code that compares or copies them needs no branch for the IP version.
///
/// The alignment is that of the ports. With the alignment of the addresses, every connection would use 32 bytes more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(crate) struct Flow {
    pub(crate) local: u128,
    pub(crate) remote: u128,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
}

/// Passes as few words as possible to the hasher, because the stack looks up a flow for every segment.
impl Hash for Flow {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0);
        if self.is_ipv4() {
            state.write_u64(half(self.local) << 32 | half(self.remote) & u64::from(u32::MAX));
        } else {
            for bits in [self.local >> 64, self.local, self.remote >> 64, self.remote] {
                state.write_u64(half(bits));
            }
        }
        state.write_u64(self.ports().into());
    }
}

impl Flow {
    #[inline]
    pub(crate) fn new(local: IpAddr, remote: IpAddr, local_port: u16, remote_port: u16) -> Self {
        Self { local: bits_of(local), remote: bits_of(remote), local_port, remote_port }
    }

    /// Returns the local and the remote address if they are IPv4 addresses.
    #[inline]
    pub(crate) fn ipv4(&self) -> Option<(u32, u32)> {
        let low = |bits: u128| u32::try_from(bits & u128::from(u32::MAX)).unwrap_or(0);
        self.is_ipv4().then(|| (low(self.local), low(self.remote)))
    }

    #[inline]
    pub(crate) fn is_ipv4(&self) -> bool {
        self.remote >> 32 == 0xffff
    }

    #[inline]
    pub(crate) fn remote_ip(&self) -> IpAddr {
        address_of(self.remote)
    }

    pub(crate) fn local(&self) -> SocketAddr {
        SocketAddr::new(address_of(self.local), self.local_port)
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.remote_ip(), self.remote_port)
    }

    /// Returns both ports as one number: the local port in the upper half, and the remote port in the lower half.
    #[inline]
    pub(crate) fn ports(&self) -> u32 {
        u32::from(self.local_port) << 16 | u32::from(self.remote_port)
    }

    /// Returns the flow with local port 0. This value stands for all flows with the same local address and the same remote end.
    pub(crate) fn of_any_port(&self) -> Self {
        Self { local_port: 0, ..*self }
    }

    /// Returns the flow as bytes, which the caller hashes with a secret.
    pub(crate) fn identity(&self) -> [u8; 36] {
        let mut bytes = [0; 36];
        bytes[..16].copy_from_slice(&self.local.to_be_bytes());
        bytes[16..32].copy_from_slice(&self.remote.to_be_bytes());
        bytes[32..34].copy_from_slice(&self.local_port.to_be_bytes());
        bytes[34..].copy_from_slice(&self.remote_port.to_be_bytes());
        bytes
    }
}

#[inline]
fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => 0xffff_0000_0000 | u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[inline]
fn address_of(bits: u128) -> IpAddr {
    match u32::try_from(bits & u128::from(u32::MAX)) {
        Ok(low) if bits >> 32 == 0xffff => IpAddr::V4(Ipv4Addr::from_bits(low)),
        _ => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};

    #[test]
    fn every_part_of_a_flow_changes_its_hash() {
        let hash = Seed::simulated(1).keyed(Purpose::FlowTable);
        for v6 in [false, true] {
            let flow = |local: u8, remote: u8, local_port, remote_port| {
                let address = |last: u8| -> IpAddr {
                    if v6 {
                        Ipv6Addr::from([0x20, 1, 0, 0, 0, 0, 0, last, 0, 0, 0, 0, 0, 0, 0, 1]).into()
                    } else {
                        [10, 0, 0, last].into()
                    }
                };
                Flow::new(address(local), address(remote), local_port, remote_port)
            };
            let flows = [
                flow(1, 2, 3, 4),
                flow(9, 2, 3, 4),
                flow(1, 9, 3, 4),
                flow(1, 2, 9, 4),
                flow(1, 2, 3, 9),
                flow(2, 1, 4, 3),
            ];
            let hashes: std::collections::BTreeSet<u64> =
                flows.iter().map(|flow| std::hash::BuildHasher::hash_one(&hash, flow)).collect();
            assert_eq!(hashes.len(), flows.len());
        }
    }
}
