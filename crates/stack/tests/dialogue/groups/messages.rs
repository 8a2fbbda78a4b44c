//! Messages of IGMP and MLD as a querier and other stations send them, and as they read those of a stack.

use crate::world::*;
use siga_stack::Stack;
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::DeviceId;
use siga_stack::seed::Seed;
use siga_stack::stack::StackConfig;
use siga_stack::time::Duration;
use siga_stack::udp::UdpId;
use siga_stack::wire::ethernet::MacAddress;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const ON: DeviceId = DeviceId(0);
pub(crate) const MS: Duration = Duration::from_millis(1);
/// Our address, and the querier's, on the link of the tests.
pub(crate) const OWN6: &str = "fe80::1";
pub(crate) const QUERIER6: &str = "fe80::9";

/// One of the two protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Igmp,
    Mld,
}

pub(crate) const BOTH: [Kind; 2] = [Kind::Igmp, Kind::Mld];

/// A message that a stack sent, taken apart and checked as a router checks it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) from: String,
    pub(crate) to: String,
    /// The number of its type, and the groups it names: one, or those of its records.
    pub(crate) kind: u8,
    pub(crate) records: Vec<(u8, IpAddr, Vec<IpAddr>)>,
}

impl Kind {
    pub(crate) fn any(self) -> &'static str {
        match self {
            Self::Igmp => "0.0.0.0:7",
            Self::Mld => "[::]:7",
        }
    }

    /// A group with a number.
    pub(crate) fn group(self, n: u16) -> IpAddr {
        let [high, low] = n.to_be_bytes();
        match self {
            Self::Igmp => Ipv4Addr::new(239, 1, high, low).into(),
            Self::Mld => Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, n).into(),
        }
    }

    pub(crate) fn all_nodes(self) -> &'static str {
        match self {
            Self::Igmp => "224.0.0.1",
            Self::Mld => "ff02::1",
        }
    }

    pub(crate) fn reports(self) -> &'static str {
        match self {
            Self::Igmp => "224.0.0.22",
            Self::Mld => "ff02::16",
        }
    }

    pub(crate) fn routers(self) -> &'static str {
        match self {
            Self::Igmp => "224.0.0.2",
            Self::Mld => "ff02::2",
        }
    }

    pub(crate) fn own(self) -> &'static str {
        match self {
            Self::Igmp => ROUTER[0],
            Self::Mld => OWN6,
        }
    }

    /// A message from the querier, with hop limit 1 and a router alert.
    pub(crate) fn packet(self, to: &str, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Igmp => igmp_from(HOST[0], to, message),
            Self::Mld => mld_from(QUERIER6, to, message),
        }
    }

    /// A query of the newest version: what it asks about, the code of its time, its robustness, the code of its interval.
    pub(crate) fn query(
        self,
        group: Option<IpAddr>,
        code: u16,
        robustness: u8,
        interval: u8,
        sources: &[IpAddr],
    ) -> Vec<u8> {
        let to = group.map_or(self.all_nodes().into(), |group| group.to_string());
        let count = u16::try_from(sources.len()).unwrap().to_be_bytes();
        let group = group.unwrap_or(self.unspecified());
        let mut message = match self {
            Self::Igmp => vec![0x11, u8::try_from(code).unwrap(), 0, 0],
            Self::Mld => [&[130, 0, 0, 0], &code.to_be_bytes()[..], &[0, 0]].concat(),
        };
        message.extend(octets(group));
        message.extend([robustness, interval]);
        message.extend(count);
        message.extend(sources.iter().flat_map(|source| octets(*source)));
        self.packet(&to, &message)
    }

    /// A query of IGMPv2 or MLDv1.
    pub(crate) fn older_query(self, group: Option<IpAddr>, code: u16) -> Vec<u8> {
        let to = group.map_or(self.all_nodes().into(), |group| group.to_string());
        self.packet(&to, &self.older(0x11, 130, code, group.unwrap_or(self.unspecified())))
    }

    /// Another station's report of IGMPv2 or MLDv1.
    pub(crate) fn older_report(self, group: IpAddr) -> Vec<u8> {
        self.packet(&group.to_string(), &self.older(0x16, 131, 0, group))
    }

    pub(crate) fn older(self, igmp: u8, mld: u8, code: u16, group: IpAddr) -> Vec<u8> {
        let mut message = match self {
            Self::Igmp => vec![igmp, u8::try_from(code).unwrap(), 0, 0],
            Self::Mld => [&[mld, 0, 0, 0], &code.to_be_bytes()[..], &[0, 0]].concat(),
        };
        message.extend(octets(group));
        message
    }

    fn unspecified(self) -> IpAddr {
        match self {
            Self::Igmp => Ipv4Addr::UNSPECIFIED.into(),
            Self::Mld => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// A code for about this time: of 0.1 s and 1 ms, exact below 12.8 s.
    pub(crate) fn code(self, time: Duration) -> u16 {
        let unit = if self == Self::Igmp { 100 } else { 1 };
        u16::try_from(time.as_millis() / unit).unwrap()
    }

    /// The numbers of the types: the newest report, the one before, and the message of who left.
    pub(crate) fn types(self) -> [u8; 3] {
        match self {
            Self::Igmp => [0x22, 0x16, 0x17],
            Self::Mld => [143, 131, 132],
        }
    }
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A host, or a router, with an address of the link beside the usual ones.
pub(crate) fn world(forwarding: bool) -> World {
    World::after_group_reports(stack(1, forwarding, &[ROUTER[0], ROUTER6[0], OWN6]))
}

pub(crate) fn stack(seed: u64, forwarding: bool, addresses: &[&str]) -> Stack {
    let mut stack = Stack::new(StackConfig { seed: Seed::simulated(seed), forwarding, ..StackConfig::default() });
    for mac in ROUTER_MAC {
        let length = |address: &str| if address.contains(':') { 64 } else { 24 };
        let addresses = addresses.iter().map(|address| prefix(address, length(address))).collect();
        let medium = Medium::Ethernet(mac);
        stack.add_device(DeviceConfig { medium, mtu: 1500, addresses, agreed: Agreed::default() }).unwrap();
    }
    stack
}

impl World {
    pub(crate) fn socket(&mut self, kind: Kind) -> UdpId {
        self.stack.udp_bind(kind.any().parse().unwrap()).unwrap()
    }

    pub(crate) fn join(&mut self, id: UdpId, group: IpAddr) {
        assert_eq!(self.stack.udp_join(self.now, id, group, ON), Ok(()), "{group}");
    }

    pub(crate) fn leave(&mut self, id: UdpId, group: IpAddr) {
        assert_eq!(self.stack.udp_leave(self.now, id, group, ON), Ok(()), "{group}");
    }

    /// A socket in these groups, with all said about it.
    pub(crate) fn member(&mut self, kind: Kind, groups: impl IntoIterator<Item = u16>) -> UdpId {
        let socket = self.socket(kind);
        groups.into_iter().for_each(|n| self.join(socket, kind.group(n)));
        self.messages_within(Duration::from_secs(30));
        socket
    }

    pub(crate) fn messages(&mut self) -> Vec<Message> {
        self.sent(0).iter().map(|frame| message(frame)).collect()
    }

    /// Messages sent within some time, each with the time from its beginning.
    pub(crate) fn messages_within(&mut self, time: Duration) -> Vec<(Duration, Message)> {
        let (begin, mut messages) = (self.now, Vec::new());
        self.pass(Duration::ZERO);
        loop {
            messages.extend(self.messages().into_iter().map(|message| (self.now.since(begin), message)));
            match self.stack.poll_timeout() {
                Some(due) if due <= begin + time => {
                    assert!(due > self.now, "what is due is done");
                    self.now = due;
                    self.pass(Duration::ZERO);
                }
                Some(_) | None => break,
            }
        }
        self.now = begin + time;
        self.pass(Duration::ZERO);
        messages
    }
}

/// Takes a frame apart; what is wrong with it fails the test.
pub(crate) fn message(frame: &[u8]) -> Message {
    let packet = &frame[14..];
    let (from, to) = addresses(packet);
    let mac = match to.parse().unwrap() {
        IpAddr::V4(to) => [&[1, 0, 0x5e, to.octets()[1] & 0x7f], &to.octets()[2..]].concat(),
        IpAddr::V6(to) => [&[0x33, 0x33], &to.octets()[12..]].concat(),
    };
    assert_eq!(macs(frame), (ROUTER_MAC[0], MacAddress(mac.try_into().unwrap())));
    assert!(frame.len() <= 14 + 1500);
    let (message, address_bytes) = if packet[0] >> 4 == 4 {
        assert_eq!(packet[..2], [0x46, 0xc0], "24 bytes of header, precedence of network control");
        assert_eq!((packet[8], &packet[20..24]), (1, &[0x94, 4, 0, 0][..]), "hop limit 1, router alert");
        assert_eq!(plain_checksum(&packet[24..]), 0);
        (&packet[24..], 4)
    } else {
        assert_eq!((packet[7], &packet[40..48]), (1, &[58, 0, 5, 2, 0, 0, 1, 0][..]), "hop limit 1, router alert");
        assert_eq!(checksum(&from, &to, 58, &packet[48..]), 0);
        (&packet[48..], 16)
    };
    let address = |at: usize| match address_bytes {
        4 => IpAddr::from(<[u8; 4]>::try_from(&message[at..at + 4]).unwrap()),
        _ => IpAddr::from(<[u8; 16]>::try_from(&message[at..at + 16]).unwrap()),
    };
    let word = |at: usize| usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
    let kind = message[0];
    let mut records = Vec::new();
    if !matches!(kind, 0x22 | 143) {
        let at = if address_bytes == 4 { 4 } else { 8 };
        assert_eq!(message.len(), at + address_bytes);
        records.push((0, address(at), vec![]));
        return Message { from, to, kind, records };
    }
    let mut at = 8;
    for _ in 0..word(6) {
        assert_eq!(message[at + 1], 0, "no auxiliary data");
        let sources: Vec<IpAddr> = (1..=word(at + 2)).map(|n| address(at + 4 + n * address_bytes)).collect();
        records.push((message[at], address(at + 4), sources));
        at += 4 + address_bytes * (1 + word(at + 2));
    }
    assert_eq!(at, message.len());
    Message { from, to, kind, records }
}

pub(crate) fn plain(records: &[(u8, IpAddr)]) -> Vec<(u8, IpAddr, Vec<IpAddr>)> {
    records.iter().map(|(kind, group)| (*kind, *group, vec![])).collect()
}

pub(crate) fn at(any: &str, port: u16) -> std::net::SocketAddr {
    let any: std::net::SocketAddr = any.parse().unwrap();
    std::net::SocketAddr::new(any.ip(), port)
}
