//! Measures the cost of forwarding a frame: destinations are random over all prefixes, every neighbour is resolved, and nothing
//! is cached per destination. Prints nanoseconds per frame, as the minimum and the median of several rounds. Asserts nothing.
//!
//! `cargo bench -p siga-stack --bench forward`
#![expect(clippy::print_stdout, reason = "a program that prints figures")]
#![expect(clippy::disallowed_methods, reason = "it measures")]

use siga_stack::ip::route::Routes;
use siga_stack::limits::HEADER_BYTES_MAX;
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Received};
use siga_stack::seed::Seed;
use siga_stack::stack::{Handled, Stack, StackConfig};
use siga_stack::time::Instant;
use siga_stack::wire::address::Prefix;
use siga_stack::wire::ethernet::MacAddress;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet,
    Ipv6Packet,
};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const PREFIXES: u32 = 100_000;
const FRAMES: usize = 1 << 16;
const RING_FRAMES: usize = 128;
const ROUNDS: usize = 40;
const NEIGHBOURS: u32 = 64;
/// The number of devices in addition to the two through which frames enter and leave.
const OTHER_DEVICES: u32 = 998;
const ROUTER: [MacAddress; 2] = [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])];

fn main() {
    for (name, v6) in [("IPv4", false), ("IPv6", true)] {
        let mut random = Random(1);
        let prefixes: Vec<Prefix> = (0..PREFIXES).map(|_| prefix(&mut random, v6)).collect();
        let hosts: Vec<IpAddr> =
            (0..FRAMES).map(|_| host_in(prefixes[random.below(PREFIXES) as usize], &mut random)).collect();
        let mut stack = router(&prefixes, v6, 0);
        report(&format!("{name} lookup alone"), || lookup(stack.routes(), &hosts));
        for bytes in [64, 1500] {
            report(&format!("{name} {bytes}-byte frames"), || forward(&mut stack, bytes, &hosts));
        }
    }
    for (name, v6) in [("IPv4", false), ("IPv6", true)] {
        let host = [neighbour(0, v6); FRAMES];
        for (devices, others) in [("two devices", 0), ("1,000 devices", OTHER_DEVICES)] {
            let mut stack = router(&[], v6, others);
            report(&format!("{name} 64-byte frames to one neighbour, {devices}"), || forward(&mut stack, 64, &host));
        }
    }
}

/// Prints the minimum and the median of several rounds. `round` returns nanoseconds per item.
fn report(what: &str, mut round: impl FnMut() -> f64) {
    let mut ns: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    ns.sort_by(f64::total_cmp);
    println!("{what}: {:.1} ns, median of {ROUNDS} rounds {:.1} ns", ns[0], ns[ROUNDS / 2]);
}

fn time(items: usize, work: impl FnOnce()) -> f64 {
    let start = std::time::Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e9 / items as f64
}

/// Measures a lookup. Each lookup begins only when the one before has ended; otherwise the processor would overlap several
/// lookups.
fn lookup(routes: &Routes, hosts: &[IpAddr]) -> f64 {
    time(hosts.len(), || {
        let mut last = 0;
        for n in 0..hosts.len() {
            let found = routes.lookup(hosts[n ^ last]);
            last = usize::from(found.is_none());
        }
        black_box(last);
    })
}

/// Measures forwarding of a few frames at a time, as in a ring. Each frame's header is copied to where a driver would read it;
/// the payload is not copied. Setting the destinations is not measured.
fn forward(stack: &mut Stack, bytes: usize, hosts: &[IpAddr]) -> f64 {
    let mut out = [0; HEADER_BYTES_MAX];
    let mut ring: Vec<Vec<u8>> = Vec::new();
    let mut ns = 0.0;
    for hosts in hosts.chunks(RING_FRAMES) {
        ring.clear();
        ring.extend(hosts.iter().map(|host| frame(*host, bytes)));
        ns += time(1, || {
            for frame in &ring {
                let (header, payload) = frame.split_at(frame.len().min(HEADER_BYTES_MAX));
                match stack.handle_frame(Instant::default(), DeviceId(0), Received::unmarked(header, payload)) {
                    Handled::Forward(mut forward) => {
                        while let Some(piece) = forward.next_piece() {
                            out[..piece.header.len()].copy_from_slice(piece.header);
                            black_box((&out, piece.range.clone()));
                        }
                    }
                    Handled::Done | Handled::Dropped(_) => panic!("not forwarded"),
                }
            }
        });
    }
    ns / hosts.len() as f64
}

/// Makes a router with two links, and `others` further devices without traffic; each device has its own addresses.
fn router(prefixes: &[Prefix], v6: bool, others: u32) -> Stack {
    let mut stack = Stack::new(StackConfig { seed: Seed::simulated(1), forwarding: true, ..StackConfig::default() });
    let address = |text: String, length| Prefix::new(text.parse().expect("an address"), length).expect("a prefix");
    for (n, mac) in (1..).zip(ROUTER) {
        let addresses = vec![address(format!("10.{n}.0.1"), 16), address(format!("fd00:{n}::1"), 64)];
        let config = DeviceConfig { medium: Medium::Ethernet(mac), mtu: 1500, addresses, agreed: Agreed::default() };
        stack.add_device(config).expect("a device");
    }
    for n in 0..others {
        let v4 = address(format!("172.{}.{}.1", 16 + n / 256, n % 256), 24);
        let addresses = vec![v4, address(format!("fd01:{n:x}::1"), 64)];
        let config = DeviceConfig { medium: Medium::Ip, mtu: 1500, addresses, agreed: Agreed::default() };
        stack.add_device(config).expect("a device");
    }
    for (n, prefix) in (0..).zip(prefixes) {
        stack.add_route(*prefix, DeviceId(1), Some(neighbour(n % NEIGHBOURS, v6))).expect("room for all");
    }
    for n in 0..NEIGHBOURS {
        introduce(&mut stack, n);
    }
    stack
}

fn neighbour(n: u32, v6: bool) -> IpAddr {
    if v6 {
        IpAddr::V6(Ipv6Addr::from_bits((0xfd00_0002_u128 << 96) + 9 + u128::from(n)))
    } else {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a02_0009 + n))
    }
}

/// Delivers the neighbour's ARP request and neighbour solicitation for the router, from which the router learns the neighbour's
/// link-layer address.
fn introduce(stack: &mut Stack, n: u32) {
    let mac = EthernetAddress([2, 0, 0, 1, 0, u8::try_from(n).expect("few neighbours")]);
    let (IpAddr::V4(v4), IpAddr::V6(v6)) = (neighbour(n, false), neighbour(n, true)) else { return };
    let arp = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: mac,
        source_protocol_addr: v4,
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: Ipv4Addr::new(10, 2, 0, 1),
    };
    let mut bytes = ethernet(mac, EthernetAddress::BROADCAST, EthernetProtocol::Arp, arp.buffer_len());
    arp.emit(&mut ArpPacket::new_unchecked(&mut bytes[14..]));
    stack.handle_frame(Instant::default(), DeviceId(1), Received::unmarked(&bytes, &[][..]));

    let target = Ipv6Addr::from_bits((0xfd00_0002_u128 << 96) + 1);
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&target.octets());
    message.extend_from_slice(&[1, 1]);
    message.extend_from_slice(&mac.0);
    let mut bytes = ethernet(mac, EthernetAddress(ROUTER[1].0), EthernetProtocol::Ipv6, 40 + message.len());
    let mut ip = ipv6(&mut bytes[14..], v6, target, IpProtocol::Icmpv6, 255);
    ip.payload_mut().copy_from_slice(&message);
    let sum = sum(&[&bytes[22..54], &[0, 0, 0, 32, 0, 0, 0, 58], &message]);
    bytes[56..58].copy_from_slice(&sum.to_be_bytes());
    stack.handle_frame(Instant::default(), DeviceId(1), Received::unmarked(&bytes, &[][..]));
    let mut reply = [0; 1514];
    while stack.poll_transmit(Instant::default(), DeviceId(1), &mut reply).is_some() {}
}

fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.concat().chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum::<u32>();
    let folded = (words & 0xffff) + (words >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).expect("folded twice")
}

fn ethernet(from: EthernetAddress, to: EthernetAddress, protocol: EthernetProtocol, payload: usize) -> Vec<u8> {
    let mut bytes = vec![0; 14 + payload];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes);
    frame.set_src_addr(from);
    frame.set_dst_addr(to);
    frame.set_ethertype(protocol);
    bytes
}

fn ipv6(bytes: &mut [u8], from: Ipv6Addr, to: Ipv6Addr, protocol: IpProtocol, hops: u8) -> Ipv6Packet<&mut [u8]> {
    let length = u16::try_from(bytes.len() - 40).expect("a packet");
    let mut packet = Ipv6Packet::new_unchecked(bytes);
    packet.set_version(6);
    packet.set_payload_len(length);
    packet.set_next_header(protocol);
    packet.set_hop_limit(hops);
    packet.set_src_addr(from);
    packet.set_dst_addr(to);
    packet
}

/// Returns a UDP frame from a host of the first network. A size of 64 bytes includes the Ethernet header. A larger size is that
/// of the IP packet alone, like an MTU.
fn frame(to: IpAddr, bytes: usize) -> Vec<u8> {
    let packet = if bytes == 64 { 64 - 14 } else { bytes };
    let from = EthernetAddress([2, 0, 0, 2, 0, 1]);
    let own = EthernetAddress(ROUTER[0].0);
    match to {
        IpAddr::V4(to) => {
            let mut bytes = ethernet(from, own, EthernetProtocol::Ipv4, packet);
            let mut ip = Ipv4Packet::new_unchecked(&mut bytes[14..]);
            ip.set_version(4);
            ip.set_header_len(20);
            ip.set_total_len(u16::try_from(packet).expect("a packet"));
            ip.set_hop_limit(64);
            ip.set_next_header(IpProtocol::Udp);
            ip.set_src_addr(Ipv4Addr::new(10, 1, 0, 7));
            ip.set_dst_addr(to);
            ip.fill_checksum();
            bytes
        }
        IpAddr::V6(to) => {
            let mut bytes = ethernet(from, own, EthernetProtocol::Ipv6, packet);
            let source = Ipv6Addr::from_bits((0xfd00_0001_u128 << 96) + 7);
            ipv6(&mut bytes[14..], source, to, IpProtocol::Udp, 64);
            bytes
        }
    }
}

/// Draws a prefix with a length as in the Internet's routing tables: most IPv4 prefixes have 24 bits, most IPv6 prefixes 48 or
/// 32.
fn prefix(random: &mut Random, v6: bool) -> Prefix {
    let share = random.below(100);
    let (address, length) = if v6 {
        let length = [48, 32, 40, 44, 36, 29][[50, 70, 80, 90, 95, 100].partition_point(|end| *end <= share)];
        let low = u128::from(random.next()) << 64;
        (IpAddr::V6(Ipv6Addr::from_bits((low >> 3) | 1 << 125)), length)
    } else {
        let length = [24, 22, 23, 20, 21, 19, 16][[60, 72, 82, 88, 92, 96, 100].partition_point(|end| *end <= share)];
        let high = 11 + random.below(89);
        (IpAddr::V4(Ipv4Addr::from_bits(high << 24 | random.below(1 << 24))), length)
    };
    Prefix::new(address, length).expect("a length of that version")
}

fn host_in(prefix: Prefix, random: &mut Random) -> IpAddr {
    match prefix.address() {
        IpAddr::V4(address) => {
            let host = u32::MAX >> prefix.length();
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & !host | random.below(u32::MAX) & host))
        }
        IpAddr::V6(address) => {
            let host = u128::MAX >> prefix.length();
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !host | u128::from(random.next()) & host))
        }
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(((self.next() >> 32) * u64::from(bound)) >> 32).expect("below a u32")
    }
}
