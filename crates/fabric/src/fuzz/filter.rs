//! Plays packets that arrive at a guest with a port filter. Whatever the packets are, the guest's stack opens nothing that no rule allows.

use crate::guest::port_filter::PortFilter;
use siga_model::allow::{Allow, Rule};
use siga_model::name::Name;
use siga_stack::Stack;
use siga_stack::limits::HEADER_BYTES_MAX;
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Marks, Received};
use siga_stack::sockets::{ListenerId, TcpOptions};
use siga_stack::stack::StackConfig;
use siga_stack::time::{Duration, Instant};
use siga_stack::udp::UdpId;
use siga_stack::wire::address::Prefix;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const STEPS_MAX: usize = 200;
const DEVICE: DeviceId = DeviceId(0);
/// The rules of the guest. They permit no ping.
const RULES: [&str; 2] = ["tcp 443", "udp 5000"];
/// Ports with a listener or a socket: one that a rule allows, and one that no rule allows.
const PORTS: [(u16, u16); 2] = [(443, 80), (5_000, 53)];
/// How long answers to a datagram pass, which is also how far a step of time can go.
const FLOW: Duration = Duration::from_secs(120);
/// Fragments of a datagram may arrive within this time.
const REASSEMBLY: Duration = Duration::from_secs(60);
const TCP: u8 = 6;
const UDP: u8 = 17;
const SYN: u8 = 2;

/// A guest with a filter, and what it has sent.
struct Guest {
    filter: PortFilter,
    stack: Stack,
    network: Name,
    now: Instant,
    closed_tcp: ListenerId,
    /// The closed UDP port over IPv4 and over IPv6. The guest sends only from the first.
    closed_udp: [UdpId; 2],
    /// When the guest last sent a datagram from the closed UDP port to this address and port.
    flows: HashMap<SocketAddr, Instant>,
}

/// The bytes of an input. A missing byte is zero.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }
}

/// Plays an input as steps: packets that arrive, datagrams that the guest sends, and time that passes.
///
/// # Panics
/// Panics if the stack opens a connection, answers a ping or delivers a datagram that no rule allows.
pub fn filter(bytes: &[u8]) {
    let Some(mut guest) = Guest::new() else { return };
    let mut input = Input(bytes);
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            return;
        }
        match input.byte() {
            0..16 => guest.sends(input.byte()),
            step @ 16..24 => {
                guest.now += FLOW / 4 * u32::from(step - 15);
                guest.stack.handle_timeout(guest.now);
            }
            24..32 => {
                let bytes = usize::from(input.byte());
                guest.receives(&input.take(bytes));
            }
            step => {
                let packet = packet(step, &mut input);
                guest.receives(&packet);
            }
        }
        guest.check();
    }
}

fn address(v6: bool, host: u8) -> IpAddr {
    if v6 { Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()).into() } else { Ipv4Addr::new(10, 0, 0, host).into() }
}

impl Guest {
    fn new() -> Option<Self> {
        let rules = RULES.iter().map(|rule| rule.parse::<Rule>().ok()).collect::<Option<Vec<Rule>>>()?;
        let mut stack = Stack::new(StackConfig::default());
        let addresses = [(false, 24), (true, 64)].map(|(v6, length)| Prefix::new(address(v6, 1), length));
        let addresses = addresses.into_iter().collect::<Option<Vec<_>>>()?;
        let agreed = Agreed { checksum_unfilled: true, large_segments: true };
        stack.add_device(DeviceConfig { medium: Medium::Ip, mtu: 1_500, addresses, agreed }).ok()?;
        let any = |port: u16| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        let any_v6 = |port: u16| SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
        let [(open_tcp, closed_tcp), (open_udp, closed_udp)] = PORTS;
        let options = TcpOptions::default();
        stack.tcp_listen(any(open_tcp), 16, &options).ok()?;
        stack.tcp_listen(any_v6(closed_tcp), 16, &options).ok()?;
        let closed_tcp = stack.tcp_listen(any(closed_tcp), 16, &options).ok()?;
        stack.udp_bind(any(open_udp)).ok()?;
        let closed_udp = [stack.udp_bind(any(closed_udp)).ok()?, stack.udp_bind(any_v6(closed_udp)).ok()?];
        Some(Self {
            filter: PortFilter::new(Allow::new(rules).ok()?, None),
            stack,
            network: "lan".parse().ok()?,
            now: Instant::from_ns(1_000_000_000_000),
            closed_tcp,
            closed_udp,
            flows: HashMap::new(),
        })
    }

    /// Sends a datagram from the closed UDP port to one of a few addresses and ports.
    fn sends(&mut self, which: u8) {
        let to = SocketAddr::new(address(false, 2 + which % 4), 6_000 + u16::from(which / 64));
        // The socket stays open, so only a full queue prevents the datagram.
        let _ = self.stack.udp_send(self.now, self.closed_udp[0], Some(to), b"x");
        self.transmit();
    }

    /// Lets the filter judge a packet, and the stack receive it if the filter admits it.
    fn receives(&mut self, packet: &[u8]) {
        let (header, payload) = packet.split_at(packet.len().min(HEADER_BYTES_MAX));
        if self.filter.admits(self.now, &self.network, false, header, &[Ipv4Addr::new(10, 0, 0, 255)]) {
            let marks = Marks { checksum_unfilled: true, segment_bytes: 0 };
            let _ = self.stack.handle_frame(self.now, DEVICE, Received { header, payload, marks });
        }
        self.transmit();
    }

    /// Takes what the stack sends. The filter sees it, too.
    fn transmit(&mut self) {
        let mut into = vec![0; 65_536];
        while let Some(sent) = self.stack.poll_transmit(self.now, DEVICE, &mut into) {
            let frame = &into[..sent.len];
            self.filter.sent(self.now, &self.network, false, frame);
            self.note_flow(frame);
            let (protocol, transport) =
                if frame[0] >> 4 == 4 { (frame[9], &frame[20..]) } else { (frame[6], &frame[40..]) };
            let port = |at: usize| transport.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
            let opens = protocol == TCP && transport.get(13).is_some_and(|flags| flags & SYN != 0);
            assert!(
                !(opens && port(0) == Some(PORTS[0].1)),
                "the stack opens a connection to a closed port: {frame:02x?}"
            );
            let is_pong = matches!((protocol, transport.first()), (1, Some(0)) | (58, Some(129)));
            assert!(!is_pong, "the stack answers a ping: {frame:02x?}");
        }
    }

    /// Notes the destination of a datagram from the closed UDP port.
    fn note_flow(&mut self, frame: &[u8]) {
        if let [first, .., _] = frame
            && first >> 4 == 4
            && frame[9] == UDP
            && frame[20..22] == PORTS[1].1.to_be_bytes()
        {
            let to = Ipv4Addr::new(frame[16], frame[17], frame[18], frame[19]);
            self.flows.insert(SocketAddr::new(to.into(), u16::from_be_bytes([frame[22], frame[23]])), self.now);
        }
    }

    fn check(&mut self) {
        assert!(
            !matches!(self.stack.tcp_accept(self.closed_tcp), Ok(Some(_))),
            "a connection to a closed port was opened"
        );
        for id in self.closed_udp {
            while let Ok(Some(datagram)) = self.stack.udp_receive(id) {
                let sent = self.flows.get(&datagram.from).copied();
                let is_answer = sent.is_some_and(|sent| self.now.since(sent) < FLOW + REASSEMBLY);
                assert!(is_answer, "a datagram from {} was delivered", datagram.from);
            }
        }
    }
}

/// Builds a packet from a few bytes of the input: most are nearly correct.
fn packet(step: u8, input: &mut Input<'_>) -> Vec<u8> {
    let v6 = step & 1 != 0;
    let kind = input.byte();
    let protocol = [TCP, UDP, if v6 { 58 } else { 1 }, TCP][usize::from(kind & 3)];
    let mut transport = match protocol {
        TCP => {
            let mut header = [6_000_u16.to_be_bytes(), ports(kind)].concat();
            header.resize(20, 0);
            (header[12], header[13]) = (0x50, input.byte());
            header[4..8].copy_from_slice(&u32::from(input.byte()).to_be_bytes());
            (header[14], header[15]) = (0xff, 0xff);
            header
        }
        UDP => {
            let from = 6_000 + u16::from(input.byte() & 3);
            [from.to_be_bytes(), ports(kind), 12_u16.to_be_bytes(), [0; 2]].concat()
        }
        _ => vec![input.byte(), 0, 0, 0, 0, 1, 0, 1],
    };
    let more = usize::from(input.byte() & 31);
    transport.extend(input.take(more));
    if protocol == UDP {
        let length = u16::try_from(transport.len()).unwrap_or(u16::MAX);
        transport[4..6].copy_from_slice(&length.to_be_bytes());
    }
    // A fragment has a part of the transport header and its data.
    let fragment = if kind & 0x10 != 0 { Some((input.byte(), input.byte())) } else { None };
    let host = 2 + (kind >> 6);
    if protocol != TCP && protocol != UDP {
        fill_icmp(&mut transport, v6, host);
    }
    if v6 {
        packet_v6(protocol, &transport, host, fragment, kind, input)
    } else {
        packet_v4(protocol, &transport, host, fragment)
    }
}

/// Fills in the checksum of an ICMP message, which no mark replaces. That of ICMPv6 covers the addresses.
fn fill_icmp(message: &mut [u8], v6: bool, host: u8) {
    let mut covered = Vec::new();
    if v6 {
        for host in [host, 1] {
            let IpAddr::V6(address) = address(true, host) else { continue };
            covered.extend(address.octets());
        }
        covered.extend(u32::try_from(message.len()).unwrap_or(0).to_be_bytes());
        covered.extend([0, 0, 0, 58]);
    }
    covered.extend(&*message);
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let sum: u32 = covered.chunks(2).map(word).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = u16::try_from(0xffff - sum).unwrap_or(0);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
}

fn ports(kind: u8) -> [u8; 2] {
    let (open, closed) = PORTS[usize::from(kind & 1)];
    (if kind & 0x20 != 0 { open } else { closed }).to_be_bytes()
}

/// Returns the part of a datagram that a fragment has: its offset in units of eight bytes, its bytes, and whether more follow.
fn part(transport: &[u8], (at, length): (u8, u8)) -> (u16, &[u8], bool) {
    let at = usize::from(at & 7);
    let begin = (8 * at).min(transport.len());
    let end = (begin + usize::from(length & 0x1f) + 1).min(transport.len());
    let rest = &transport[begin..end];
    let whole = if length & 0x80 != 0 { rest.len() / 8 * 8 } else { rest.len() };
    (u16::try_from(at).unwrap_or(0), &rest[..whole], length & 0x40 != 0)
}

fn packet_v4(protocol: u8, transport: &[u8], host: u8, fragment: Option<(u8, u8)>) -> Vec<u8> {
    let (at, bytes, more) = fragment.map_or((0, transport, false), |fragment| part(transport, fragment));
    let mut packet = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, protocol, 0, 0, 10, 0, 0, host, 10, 0, 0, 1];
    let length = u16::try_from(20 + bytes.len()).unwrap_or(u16::MAX);
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[6..8].copy_from_slice(&(at | if more { 0x2000 } else { 0 }).to_be_bytes());
    super::fill_checksum(&mut packet);
    packet.extend(bytes);
    packet
}

fn packet_v6(
    protocol: u8,
    transport: &[u8],
    host: u8,
    fragment: Option<(u8, u8)>,
    kind: u8,
    input: &mut Input<'_>,
) -> Vec<u8> {
    let mut extensions = Vec::new();
    let mut first = protocol;
    if let Some(fragment) = fragment {
        let (at, bytes, more) = part(transport, fragment);
        // A later fragment may name another protocol than the first one.
        let named = if input.byte() & 1 == 0 { protocol } else { 59 };
        extensions = vec![named, 0];
        extensions.extend(((at << 3) | u16::from(more)).to_be_bytes());
        extensions.extend([0, 0, 0, 7]);
        extensions.extend(bytes);
        first = 44;
    } else {
        extensions.extend(transport);
    }
    if kind & 0x08 != 0 {
        // An option header with padding (PadN of four bytes) before all others.
        extensions = [vec![first, 0, 1, 4, 0, 0, 0, 0], extensions].concat();
        first = 60;
    }
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, first, 64];
    for host in [host, 1] {
        let IpAddr::V6(address) = address(true, host) else { continue };
        packet.extend(address.octets());
    }
    let length = u16::try_from(extensions.len()).unwrap_or(u16::MAX);
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    packet.extend(extensions);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn no_packets_open_what_the_rules_of_a_guest_do_not_allow(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            filter(&bytes);
        }
    }

    #[test]
    fn the_stack_behind_the_filter_opens_what_a_rule_allows_and_gets_answers() {
        let mut guest = Guest::new().unwrap();
        // A SYN to port 443 gets a SYN-ACK.
        guest.receives(&packet_v4(TCP, &segment(443), 2, None));
        assert_eq!(guest.stack.connections(), 1);
        guest.receives(&packet_v4(TCP, &segment(80), 2, None));
        assert_eq!(guest.stack.connections(), 1, "the filter dropped it");
        for (v6, kind, pong) in [(false, 8, 0), (true, 128, 129)] {
            let mut ping = vec![kind, 0, 0, 0, 0, 1, 0, 1];
            fill_icmp(&mut ping, v6, 2);
            let packet =
                if v6 { packet_v6(58, &ping, 2, None, 0, &mut Input(&[])) } else { packet_v4(1, &ping, 2, None) };
            guest.receives(&packet);
            // Past the filter, the stack answers it.
            let received = Received { header: &packet[..], payload: &[][..], marks: Marks::default() };
            let _ = guest.stack.handle_frame(guest.now, DEVICE, received);
            let mut into = vec![0; 2_000];
            let sent = guest.stack.poll_transmit(guest.now, DEVICE, &mut into).unwrap();
            assert_eq!(into[if v6 { 40 } else { 20 }], pong, "{:02x?}", &into[..sent.len]);
        }
        let answer = [6_000_u16.to_be_bytes(), 53_u16.to_be_bytes(), 9_u16.to_be_bytes(), [0; 2]].concat();
        let answer = packet_v4(UDP, &[answer, vec![1]].concat(), 2, None);
        let receives = |guest: &mut Guest| {
            guest.receives(&answer);
            guest.stack.udp_receive(guest.closed_udp[0]).unwrap().is_some()
        };
        assert!(!receives(&mut guest));
        guest.sends(0);
        assert!(receives(&mut guest));
    }

    fn segment(port: u16) -> Vec<u8> {
        let mut header = [6_000_u16.to_be_bytes(), port.to_be_bytes()].concat();
        header.resize(20, 0);
        (header[12], header[13], header[14]) = (0x50, SYN, 0xff);
        header
    }
}
