//! The network around the host under test: its devices, addresses and routes, and the places that a sequence names.
//!
//! The host has three devices. Device 0 has an MTU of 1,500 bytes, device 1 of 1,280, and device 2 of 576, without IPv6. Each
//! sequence has other hosts as peers, so that no sequence finds a path MTU, a fragment or a limit of another one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A device of the host under test.
pub(crate) struct Device {
    pub(crate) name: &'static str,
    pub(crate) mtu: u16,
    pub(crate) v4: (Ipv4Addr, u8),
    pub(crate) v6: Option<Ipv6Addr>,
}

pub(crate) const DEVICES: [Device; 3] = [
    Device { name: "differ0", mtu: 1_500, v4: (Ipv4Addr::new(10, 128, 0, 1), 9), v6: Some(network_v6(1, 0, 0, 1)) },
    Device { name: "differ1", mtu: 1_280, v4: (Ipv4Addr::new(172, 16, 0, 1), 12), v6: Some(network_v6(2, 0, 0, 1)) },
    Device { name: "differ2", mtu: 576, v4: (Ipv4Addr::new(100, 64, 0, 1), 10), v6: None },
];
/// The length of the prefixes of the devices' IPv6 networks.
pub(crate) const LENGTH_V6: u8 = 64;
/// The link-local address of each device.
pub(crate) const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// A route over a gateway: the network, its prefix length, the device, and the gateway.
pub(crate) const ROUTES: [(IpAddr, u8, usize, IpAddr); 4] = [
    (IpAddr::V4(Ipv4Addr::new(20, 0, 0, 0)), 8, 1, IpAddr::V4(Ipv4Addr::new(172, 16, 0, 2))),
    (IpAddr::V4(Ipv4Addr::new(30, 0, 0, 0)), 8, 0, IpAddr::V4(Ipv4Addr::new(10, 128, 0, 2))),
    (IpAddr::V6(network_v6(20, 0, 0, 0)), 64, 1, IpAddr::V6(network_v6(2, 0, 0, 2))),
    (IpAddr::V6(network_v6(30, 0, 0, 0)), 64, 0, IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2))),
];

/// The number of peers on each network.
const PEERS: u32 = 1 << 19;

/// A host or network that a sequence names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The address of the host under test on this device.
    Own(u8),
    /// A host on the link of this device.
    Peer(u8),
    /// Another host on the link of this device.
    Other(u8),
    /// A host behind a gateway on the link of device 1.
    Far,
    /// A host behind a gateway on the link of device 0.
    Aside,
    /// A host to which no route leads.
    Lost,
    /// The broadcast address of the network of this device (IPv4).
    Broadcast(u8),
    /// The first address of the network of this device, the obsolete broadcast address (IPv4).
    Network(u8),
    /// The link-local address of a peer (IPv6).
    PeerLink,
    Literal(IpAddr),
}

const fn network_v6(net: u16, group: u16, high: u16, low: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, group, high, low)
}

impl Place {
    /// The address of this place in the sequence with this number.
    pub(crate) fn address(self, v6: bool, number: u32) -> IpAddr {
        let host = number % (PEERS - 3) + 3;
        if let Self::Literal(address) = self {
            return address;
        }
        if v6 { self.v6(host).into() } else { self.v4(host).into() }
    }

    fn v4(self, host: u32) -> Ipv4Addr {
        let device = |device: u8| &DEVICES[usize::from(device) % DEVICES.len()];
        let mask = |length: u8| u32::MAX << (32 - u32::from(length));
        let network = |number: u8| device(number).v4.0.to_bits() & mask(device(number).v4.1);
        Ipv4Addr::from_bits(match self {
            Self::Own(number) => device(number).v4.0.to_bits(),
            Self::Peer(number) => network(number) + host,
            Self::Other(number) => network(number) + PEERS + host,
            Self::Far => Ipv4Addr::new(20, 0, 0, 0).to_bits() + host,
            Self::Aside => Ipv4Addr::new(30, 0, 0, 0).to_bits() + host,
            Self::Lost => Ipv4Addr::new(40, 0, 0, 0).to_bits() + host,
            Self::Broadcast(number) => network(number) | !mask(device(number).v4.1),
            Self::Network(number) => network(number),
            Self::PeerLink | Self::Literal(_) => Ipv4Addr::new(169, 254, 1, 1).to_bits(),
        })
    }

    fn v6(self, host: u32) -> Ipv6Addr {
        let [high, low] = [host >> 16, host & 0xffff].map(|half| u16::try_from(half).unwrap_or(0));
        let net = |device: u8| u16::from(device % 2) + 1;
        match self {
            Self::Own(device) => network_v6(net(device), 0, 0, 1),
            Self::Peer(device) => network_v6(net(device), 1, high, low),
            Self::Other(device) => network_v6(net(device), 2, high, low),
            Self::Far => network_v6(20, 1, high, low),
            Self::Aside => network_v6(30, 1, high, low),
            Self::Lost => network_v6(40, 1, high, low),
            Self::Network(device) | Self::Broadcast(device) => network_v6(net(device), 0, 0, 0),
            Self::PeerLink | Self::Literal(_) => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 1, high, low),
        }
    }

    /// All places that may receive a packet of the host under test.
    pub(crate) fn peers() -> impl Iterator<Item = Self> {
        let on_links = (0..3).flat_map(|device| [Self::Peer(device), Self::Other(device)]);
        on_links.chain([Self::Far, Self::Aside, Self::Lost, Self::PeerLink])
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(device) => write!(f, "own{device}"),
            Self::Peer(device) => write!(f, "peer{device}"),
            Self::Other(device) => write!(f, "other{device}"),
            Self::Far => write!(f, "far"),
            Self::Aside => write!(f, "aside"),
            Self::Lost => write!(f, "lost"),
            Self::Broadcast(device) => write!(f, "broadcast{device}"),
            Self::Network(device) => write!(f, "network{device}"),
            Self::PeerLink => write!(f, "peerlink"),
            Self::Literal(address) => write!(f, "{address}"),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let fixed = match word {
            "far" => Some(Self::Far),
            "aside" => Some(Self::Aside),
            "lost" => Some(Self::Lost),
            "peerlink" => Some(Self::PeerLink),
            _ => None,
        };
        let numbered = [
            ("own", Self::Own as fn(u8) -> Self),
            ("peer", Self::Peer),
            ("other", Self::Other),
            ("broadcast", Self::Broadcast),
            ("network", Self::Network),
        ];
        let of_device = numbered.into_iter().find_map(|(name, place)| {
            let device = word.strip_prefix(name)?.parse().ok().filter(|device| usize::from(*device) < DEVICES.len())?;
            Some(place(device))
        });
        let literal = || word.parse().map(Self::Literal).map_err(|_| format!("`{word}` is no place"));
        fixed.or(of_device).map_or_else(literal, Ok)
    }
}
