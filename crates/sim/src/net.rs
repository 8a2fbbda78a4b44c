//! A row of real stacks, connected by networks: stack *n* and stack *n* + 1 are the two hosts in network *n*. Each network has
//! both IP versions.
//!
//! Network *n* is 10.0.*n*.0/24 and 2001:db8:0:*n*::/64. Host number 1 is at its left end, and host number 2 is at its right end.
//! The first device of each stack is in the network to the left. The leftmost stack is different: its only device is in the
//! network to the right. Each stack has static routes to all networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use siga_stack::Stack;
use siga_stack::link::device::{Agreed, DeviceConfig};
use siga_stack::link::frame::DeviceId;
use siga_stack::seed::Seed;
use siga_stack::stack::StackConfig;
use siga_stack::wire::address::Prefix;
use siga_stack::wire::ethernet::MacAddress;

use crate::fault::{Medium, Wire};
use crate::world::BuildError;

/// Returns the IPv4 address of a host in a network. Host 1 is at the left end, and host 2 is at the right end.
pub const fn v4(network: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, network, host)
}

/// Returns the IPv6 address of a host in a network. Host 1 is at the left end, and host 2 is at the right end.
pub fn v6(network: u8, host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, network.into(), 0, 0, 0, host.into())
}

fn prefixes(network: u8, host: u8) -> Option<[Prefix; 2]> {
    Some([Prefix::new(v4(network, host).into(), 24)?, Prefix::new(v6(network, host).into(), 64)?])
}

/// Builds the stack with index `place` in a row of stacks. `wires` has one entry for each network. All stacks except the first and
/// the last are routers.
///
/// # Errors
/// Returns an error if the stack refuses an MTU, or if there are more than 255 networks.
pub fn stack(seed: u64, place: u8, wires: &[Wire]) -> Result<Stack, BuildError> {
    let last = u8::try_from(wires.len()).map_err(|_| BuildError::TooManyLinks)?;
    let seed = Seed::simulated(seed);
    let mut stack = Stack::new(StackConfig { seed, forwarding: place > 0 && place < last, ..StackConfig::default() });
    let left = place.checked_sub(1);
    for (network, host) in left.map(|left| (left, 2)).into_iter().chain((place < last).then_some((place, 1))) {
        let wire = wires.get(usize::from(network)).ok_or(BuildError::Stack)?;
        let device = add_device(&mut stack, wire, network, host).ok_or(BuildError::Stack)?;
        // Networks with lower numbers are reached through the left device, and networks with higher numbers through the right
        // device.
        let behind = if host == 2 { 0..network } else { network + 1..last };
        for far in behind {
            for (prefix, gateway) in prefixes(far, 0).ok_or(BuildError::Stack)?.into_iter().zip(gateways(network, host))
            {
                stack.add_route(prefix, device, Some(gateway)).map_err(|_| BuildError::Stack)?;
            }
        }
    }
    Ok(stack)
}

/// Returns the IPv4 and IPv6 addresses of the other host in a network.
fn gateways(network: u8, host: u8) -> [IpAddr; 2] {
    [v4(network, 3 - host).into(), v6(network, 3 - host).into()]
}

fn add_device(stack: &mut Stack, wire: &Wire, network: u8, host: u8) -> Option<DeviceId> {
    let medium = match wire.medium {
        Medium::Ethernet => siga_stack::link::device::Medium::Ethernet(MacAddress([2, 0, 0, 0, network, host])),
        Medium::Ip => siga_stack::link::device::Medium::Ip,
    };
    let config = DeviceConfig {
        medium,
        mtu: u16::try_from(wire.mtu).ok()?,
        addresses: prefixes(network, host)?.to_vec(),
        agreed: Agreed { checksum_unfilled: wire.marks_agreed, large_segments: wire.marks_agreed },
    };
    stack.add_device(config).ok()
}
