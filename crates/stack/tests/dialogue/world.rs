//! A stack with two Ethernet devices and a station that is known on each, and the frames they speak in.

use siga_stack::Stack;
use siga_stack::drops::DropReason;
use siga_stack::limits::HEADER_BYTES_MAX;
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Marks, Received};
use siga_stack::seed::Seed;
use siga_stack::stack::{Handled, StackConfig};
use siga_stack::time::{Duration, Instant};
use siga_stack::wire::address::Prefix;
use siga_stack::wire::ethernet::MacAddress;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet,
    Ipv6Packet,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The stack's own addresses on its two links, and the stations that a [`World`] begins with.
pub(crate) const ROUTER: [&str; 2] = ["10.1.0.1", "10.2.0.1"];
pub(crate) const ROUTER6: [&str; 2] = ["2001:db8:1::1", "2001:db8:2::1"];
pub(crate) const HOST: [&str; 2] = ["10.1.0.9", "10.2.0.9"];
pub(crate) const HOST6: [&str; 2] = ["2001:db8:1::9", "2001:db8:2::9"];
pub(crate) const ROUTER_MAC: [MacAddress; 2] = [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])];
pub(crate) const HOST_MAC: [MacAddress; 2] = [MacAddress([2, 0, 0, 0, 1, 1]), MacAddress([2, 0, 0, 0, 1, 2])];

/// What became of a frame, with the frames that were passed on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Dropped(DropReason),
    Forwarded(Vec<(DeviceId, Vec<u8>, Marks)>),
}

impl Outcome {
    /// The one frame that was passed on.
    pub(crate) fn one(self) -> Vec<u8> {
        match self {
            Self::Forwarded(mut frames) if frames.len() == 1 => frames.remove(0).1,
            other @ (Self::Done | Self::Dropped(_) | Self::Forwarded(_)) => panic!("not one frame: {other:?}"),
        }
    }

    pub(crate) fn dropped(reason: impl Into<DropReason>) -> Self {
        Self::Dropped(reason.into())
    }
}

pub(crate) struct World {
    pub(crate) stack: Stack,
    pub(crate) now: Instant,
}

impl World {
    /// A router between two links of 1,500 bytes. A link of less than 1,280 bytes has no IPv6.
    pub(crate) fn router() -> Self {
        Self::with([1500, 1500], [Agreed::default(); 2], true)
    }

    /// The same that forwards nothing.
    pub(crate) fn host() -> Self {
        Self::with([1500, 1500], [Agreed::default(); 2], false)
    }

    pub(crate) fn with(mtu: [u16; 2], agreed: [Agreed; 2], forwarding: bool) -> Self {
        Self::strange(mtu, agreed, forwarding).introduced(mtu)
    }

    /// A host with another seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self::configured(StackConfig { seed: Seed::simulated(seed), ..StackConfig::default() })
    }

    /// A stack that is otherwise configured.
    pub(crate) fn configured(config: StackConfig) -> Self {
        Self::made(config, [1500, 1500], [Agreed::default(); 2]).introduced([1500, 1500])
    }

    fn introduced(mut self, mtu: [u16; 2]) -> Self {
        for device in 0..2 {
            self.introduce(device, HOST[device], HOST_MAC[device]);
            if mtu[device] >= 1280 {
                self.introduce6(device, HOST6[device], HOST_MAC[device]);
            }
        }
        self
    }

    /// No neighbour is known yet.
    pub(crate) fn strange(mtu: [u16; 2], agreed: [Agreed; 2], forwarding: bool) -> Self {
        Self::made(StackConfig { seed: Seed::simulated(1), forwarding, ..StackConfig::default() }, mtu, agreed)
    }

    fn made(config: StackConfig, mtu: [u16; 2], agreed: [Agreed; 2]) -> Self {
        let mut stack = Stack::new(config);
        for n in 0..2 {
            let mut addresses = vec![prefix(ROUTER[n], 24), prefix(ROUTER6[n], 64)];
            addresses.truncate(if mtu[n] < 1280 { 1 } else { 2 });
            let medium = Medium::Ethernet(ROUTER_MAC[n]);
            stack.add_device(DeviceConfig { medium, mtu: mtu[n], addresses, agreed: agreed[n] }).unwrap();
        }
        Self::after_group_reports(stack)
    }

    /// Every device reports the groups of its addresses; tests begin after these reports.
    pub(crate) fn after_group_reports(stack: Stack) -> Self {
        let mut world = Self { stack, now: Instant::default() };
        while let Some(due) = world.stack.poll_timeout() {
            world.now = due;
            world.pass(Duration::ZERO);
            (0..2).for_each(|device| drop(world.sent(device)));
        }
        world.now = Instant::from_ns(10_000_000_000);
        world
    }

    fn introduce(&mut self, device: usize, ip: &str, mac: MacAddress) {
        let request = arp(ArpOperation::Request, mac, ip, MacAddress([0; 6]), ROUTER[device]);
        let frame = ethernet(mac, MacAddress::BROADCAST, EthernetProtocol::Arp, &request);
        assert_eq!(self.give(device, &frame), Outcome::Done);
        assert_eq!(self.sent(device).len(), 1);
    }

    fn introduce6(&mut self, device: usize, ip: &str, mac: MacAddress) {
        let packet = neighbour_message(135, 0, ip, ROUTER6[device], ROUTER6[device], &[&[1, 1], &mac.0[..]].concat());
        assert_eq!(
            self.give(device, &ethernet(mac, ROUTER_MAC[device], EthernetProtocol::Ipv6, &packet)),
            Outcome::Done
        );
        assert_eq!(self.sent(device).len(), 1);
    }

    /// Gives a frame to a device.
    pub(crate) fn give(&mut self, device: usize, frame: &[u8]) -> Outcome {
        self.give_marked(device, frame, Marks::default())
    }

    pub(crate) fn give_marked(&mut self, device: usize, frame: &[u8], marks: Marks) -> Outcome {
        let (header, payload) = frame.split_at(frame.len().min(HEADER_BYTES_MAX));
        let received = Received { header, payload, marks };
        let device = DeviceId(u16::try_from(device).unwrap());
        match self.stack.handle_frame(self.now, device, received) {
            Handled::Done => Outcome::Done,
            Handled::Dropped(reason) => Outcome::Dropped(reason),
            Handled::Forward(mut forward) => {
                let (device, mut frames) = (forward.device, Vec::new());
                while let Some(piece) = forward.next_piece() {
                    frames.push((device, [piece.header, &frame[piece.range.clone()]].concat(), piece.marks));
                }
                Outcome::Forwarded(frames)
            }
        }
    }

    /// Gives an IP packet from the known station of a link.
    pub(crate) fn give_packet(&mut self, device: usize, packet: &[u8]) -> Outcome {
        let protocol = if packet[0] >> 4 == 4 { EthernetProtocol::Ipv4 } else { EthernetProtocol::Ipv6 };
        self.give(device, &ethernet(HOST_MAC[device], ROUTER_MAC[device], protocol, packet))
    }

    /// Everything that a device has to send.
    pub(crate) fn sent(&mut self, device: usize) -> Vec<Vec<u8>> {
        let device = DeviceId(u16::try_from(device).unwrap());
        let mut into = vec![0; 70_000];
        let frame = || self.stack.poll_transmit(self.now, device, &mut into).map(|frame| into[..frame.len].to_vec());
        std::iter::from_fn(frame).collect()
    }

    /// The IP packet of the one frame that a device has to send.
    pub(crate) fn sent_packet(&mut self, device: usize) -> Vec<u8> {
        let frames = self.sent(device);
        assert_eq!(frames.len(), 1, "{frames:?}");
        frames[0][14..].to_vec()
    }

    pub(crate) fn assert_silent(&mut self) {
        assert_eq!((self.sent(0), self.sent(1)), (vec![], vec![]));
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.stack.handle_timeout(self.now);
    }

    /// How many packets were dropped for this reason.
    pub(crate) fn dropped(&self, reason: impl Into<DropReason>) -> u64 {
        self.stack.drops().get(reason)
    }
}

pub(crate) fn prefix(address: &str, length: u8) -> Prefix {
    Prefix::new(address.parse().unwrap(), length).unwrap()
}

pub(crate) fn ethernet(from: MacAddress, to: MacAddress, protocol: EthernetProtocol, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 14 + payload.len()];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes);
    frame.set_src_addr(EthernetAddress(from.0));
    frame.set_dst_addr(EthernetAddress(to.0));
    frame.set_ethertype(protocol);
    frame.payload_mut().copy_from_slice(payload);
    bytes
}

pub(crate) fn macs(frame: &[u8]) -> (MacAddress, MacAddress) {
    let frame = EthernetFrame::new_checked(frame).unwrap();
    (MacAddress(frame.src_addr().0), MacAddress(frame.dst_addr().0))
}

pub(crate) fn arp(operation: ArpOperation, mac: MacAddress, from: &str, to_mac: MacAddress, to: &str) -> Vec<u8> {
    let repr = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(mac.0),
        source_protocol_addr: from.parse().unwrap(),
        target_hardware_addr: EthernetAddress(to_mac.0),
        target_protocol_addr: to.parse().unwrap(),
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut ArpPacket::new_unchecked(&mut bytes));
    bytes
}

/// An IPv4 packet with everything that tests turn; the rest as most packets have it.
#[derive(Clone, Copy)]
pub(crate) struct V4<'a> {
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    pub(crate) protocol: u8,
    pub(crate) ttl: u8,
    pub(crate) dont_fragment: bool,
    pub(crate) more: bool,
    pub(crate) offset: u16,
    pub(crate) options: &'a [u8],
}

impl<'a> V4<'a> {
    pub(crate) fn new(from: &'a str, to: &'a str, protocol: u8) -> Self {
        Self { from, to, protocol, ttl: 64, dont_fragment: false, more: false, offset: 0, options: &[] }
    }

    pub(crate) fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let header = 20 + self.options.len();
        let mut bytes = vec![0; header + payload.len()];
        bytes[20..header].copy_from_slice(self.options);
        let mut ip = Ipv4Packet::new_unchecked(&mut bytes);
        ip.set_version(4);
        ip.set_header_len(u8::try_from(header).unwrap());
        ip.set_total_len(u16::try_from(header + payload.len()).unwrap());
        ip.set_ident(0x1234);
        ip.set_dont_frag(self.dont_fragment);
        ip.set_more_frags(self.more);
        ip.set_frag_offset(self.offset);
        ip.set_hop_limit(self.ttl);
        ip.set_next_header(IpProtocol::from(self.protocol));
        ip.set_src_addr(self.from.parse().unwrap());
        ip.set_dst_addr(self.to.parse().unwrap());
        ip.fill_checksum();
        bytes[header..].copy_from_slice(payload);
        bytes
    }
}

pub(crate) fn v6(from: &str, to: &str, protocol: u8, hops: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40 + payload.len()];
    let mut ip = Ipv6Packet::new_unchecked(&mut bytes);
    ip.set_version(6);
    ip.set_payload_len(u16::try_from(payload.len()).unwrap());
    ip.set_next_header(IpProtocol::from(protocol));
    ip.set_hop_limit(hops);
    ip.set_src_addr(from.parse().unwrap());
    ip.set_dst_addr(to.parse().unwrap());
    ip.payload_mut().copy_from_slice(payload);
    bytes
}

/// The checksum of a transport header and its payload; 0 if the one inside is right.
pub(crate) fn checksum(from: &str, to: &str, protocol: u8, bytes: &[u8]) -> u16 {
    let mut all = match (from.parse().unwrap(), to.parse().unwrap()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
        (IpAddr::V6(from), IpAddr::V6(to)) => [from.octets(), to.octets()].concat(),
        _ => panic!("two versions"),
    };
    all.extend_from_slice(&[0, protocol]);
    all.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
    plain_checksum(&[&all, bytes].concat())
}

pub(crate) fn plain_checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// A UDP header and payload between two addresses.
pub(crate) fn udp(from: &str, to: &str, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut bytes = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    bytes.extend_from_slice(&u16::try_from(8 + payload.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(payload);
    let sum = checksum(from, to, 17, &bytes);
    bytes[6..8].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// A UDP packet from the station of one link to an address.
pub(crate) fn udp_to(to: &str, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    if to.contains(':') {
        return v6(HOST6[0], to, 17, 64, &udp(HOST6[0], to, ports, payload));
    }
    V4::new(HOST[0], to, 17).packet(&udp(HOST[0], to, ports, payload))
}

pub(crate) fn icmp(kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = [&[kind, code, 0, 0], rest].concat();
    let sum = plain_checksum(&bytes);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

pub(crate) fn icmp6(from: &str, to: &str, kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = [&[kind, code, 0, 0], rest].concat();
    let sum = checksum(from, to, 58, &bytes);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// An IGMP message with its checksum.
pub(crate) fn igmp_sum(message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    let sum = plain_checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// The same as a packet with hop limit 1 and a router alert.
pub(crate) fn igmp_from(from: &str, to: &str, message: &[u8]) -> Vec<u8> {
    V4 { ttl: 1, options: &[0x94, 4, 0, 0], ..V4::new(from, to, 2) }.packet(&igmp_sum(message))
}

/// An MLD message with its checksum.
pub(crate) fn mld_sum(from: &str, to: &str, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    let sum = checksum(from, to, 58, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// The same as a packet with hop limit 1 and a router alert.
pub(crate) fn mld_from(from: &str, to: &str, message: &[u8]) -> Vec<u8> {
    v6(from, to, 0, 1, &[&[58, 0, 5, 2, 0, 0, 1, 0], &mld_sum(from, to, message)[..]].concat())
}

pub(crate) fn neighbour_message(kind: u8, flags: u8, from: &str, to: &str, target: &str, options: &[u8]) -> Vec<u8> {
    let target: Ipv6Addr = target.parse().unwrap();
    let rest = [&[flags, 0, 0, 0], &target.octets()[..], options].concat();
    v6(from, to, 58, 255, &icmp6(from, to, kind, 0, &rest))
}

/// Source and destination of a packet, its checksum verified if it is IPv4.
pub(crate) fn addresses(packet: &[u8]) -> (String, String) {
    if packet[0] >> 4 == 4 {
        let ip = Ipv4Packet::new_checked(packet).unwrap();
        assert!(ip.verify_checksum());
        (Ipv4Addr::to_string(&ip.src_addr()), Ipv4Addr::to_string(&ip.dst_addr()))
    } else {
        let ip = Ipv6Packet::new_checked(packet).unwrap();
        (Ipv6Addr::to_string(&ip.src_addr()), Ipv6Addr::to_string(&ip.dst_addr()))
    }
}

/// Type, code and what follows the checksum of an ICMP packet, checksums verified.
pub(crate) fn icmp_of(packet: &[u8]) -> (u8, u8, Vec<u8>) {
    let (from, to) = addresses(packet);
    let message = if packet[0] >> 4 == 4 { &packet[20..] } else { &packet[40..] };
    let sum = if packet[0] >> 4 == 4 { plain_checksum(message) } else { checksum(&from, &to, 58, message) };
    assert_eq!(sum, 0, "checksum");
    (message[0], message[1], message[4..].to_vec())
}
