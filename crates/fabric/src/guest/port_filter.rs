//! The port filter of a guest: it drops packets that would open what the guest's rules (`allow`) do not allow, before the stack sees them.
//!
//! Without rules there is no filter. With rules, these packets need a rule: TCP segments that open a connection (SYN without ACK), UDP
//! datagrams that do not answer a datagram of the guest, and ICMP requests. All others pass: segments of connections, answers, ICMP
//! errors, neighbour discovery, group membership, and packets that a router forwards. If the filter cannot see the transport header of a
//! packet, it drops the packet, because a later fragment could complete the header.
//!
//! The filter judges first fragments only. So the stack has to take the protocol and the headers of a datagram from its first fragment,
//! and to drop a datagram whose fragments overlap.

use siga_model::allow::{Allow, Protocol};
use siga_model::name::Name;
use siga_stack::time::Instant;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of UDP flows for which the filter admits answers.
const FLOWS_MAX: usize = 4_096;
/// Number of flows that the filter forgets at once if there are too many. Then the search for the oldest ones is rare.
const FLOWS_FORGOTTEN: usize = FLOWS_MAX / 8;
/// How long after the guest's last datagram of a flow answers pass, in nanoseconds (RFC 4787 REQ-5: at least two minutes).
const FLOW_NS: u64 = 120_000_000_000;
/// Maximum number of extension headers of an IPv6 packet.
const EXTENSIONS_MAX: usize = 8;
/// Bytes of a TCP header up to its flags.
const TCP_FLAGS_AT: usize = 13;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// Length of an Ethernet header.
const ETHERNET_BYTES: usize = 14;

/// The addresses and the transport header of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Packet<'a> {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    /// The transport header, as far as it was copied. `None` in a later fragment.
    transport: Option<&'a [u8]>,
}

/// A UDP flow: the guest's port, and the address and port of the other side.
type Flow = (u16, IpAddr, u16);

/// The rules of a guest, and the UDP flows that the guest has begun.
#[derive(Debug)]
pub(crate) struct PortFilter {
    allow: Allow,
    /// The addresses of a router, which forwards all other packets. `None` if the guest forwards nothing.
    own: Option<HashSet<IpAddr>>,
    /// The time of the guest's last datagram of each flow, in nanoseconds of the stack's clock.
    flows: HashMap<Flow, u64>,
}

impl PortFilter {
    pub(crate) fn new(allow: Allow, own: Option<HashSet<IpAddr>>) -> Self {
        Self { allow, own, flows: HashMap::new() }
    }

    /// Replaces the rules. Connections and flows that exist go on.
    pub(super) fn set(&mut self, allow: Allow) {
        self.allow = allow;
    }

    /// Returns true if the stack may receive a packet that arrives over `network`. `header` is the beginning of the frame, and
    /// `broadcasts` are the broadcast addresses of the network.
    pub(crate) fn admits(
        &self,
        now: Instant,
        network: &Name,
        ethernet: bool,
        header: &[u8],
        broadcasts: &[Ipv4Addr],
    ) -> bool {
        // Frames of other protocols, such as ARP, pass.
        let Some(packet) = ip(header, ethernet) else { return true };
        let Some(packet) = parse(packet) else { return false };
        let is_to_many = match packet.to {
            IpAddr::V4(to) => to.is_multicast() || to.is_broadcast() || broadcasts.contains(&to),
            IpAddr::V6(to) => to.is_multicast(),
        };
        if !is_to_many && self.own.as_ref().is_some_and(|own| !own.contains(&packet.to)) {
            return true;
        }
        let allowed =
            |protocol, port| self.allow.rules().iter().any(|rule| rule.allows(protocol, port, packet.from, network));
        match (packet.protocol, packet.transport) {
            (_, None) => true,
            (TCP, Some(header)) => match (port(header, 2), header.get(TCP_FLAGS_AT)) {
                (Some(port), Some(flags)) => flags & (SYN | ACK) != SYN || allowed(Protocol::Tcp, port),
                _ => false,
            },
            (UDP, Some(header)) => match (port(header, 0), port(header, 2)) {
                (Some(theirs), Some(own)) => {
                    let is_answer =
                        self.flows.get(&(own, packet.from, theirs)).is_some_and(|sent| is_recent(*sent, now));
                    is_answer || allowed(Protocol::Udp, own)
                }
                _ => false,
            },
            (ICMP | ICMPV6, Some(header)) => match header.first() {
                Some(kind) => !is_request(packet.protocol, *kind) || allowed(Protocol::Icmp, 0),
                None => false,
            },
            (_, Some(_)) => true,
        }
    }

    /// Notes a packet that the guest sends over `network`, so that answers to a datagram pass. If a rule allows them anyway, the packet is
    /// not noted. So senders to an allowed port cannot make the filter forget other flows.
    pub(crate) fn sent(&mut self, now: Instant, network: &Name, ethernet: bool, frame: &[u8]) {
        let Some(Packet { to, protocol: UDP, transport: Some(header), .. }) = ip(frame, ethernet).and_then(parse)
        else {
            return;
        };
        let (Some(own), Some(theirs)) = (port(header, 0), port(header, 2)) else { return };
        if self.allow.rules().iter().any(|rule| rule.allows(Protocol::Udp, own, to, network)) {
            return;
        }
        if self.flows.len() >= FLOWS_MAX && !self.flows.contains_key(&(own, to, theirs)) {
            self.flows.retain(|_, sent| is_recent(*sent, now));
            if self.flows.len() >= FLOWS_MAX {
                self.forget_oldest();
            }
        }
        self.flows.insert((own, to, theirs), now.as_ns());
    }

    fn forget_oldest(&mut self) {
        let mut times: Vec<u64> = self.flows.values().copied().collect();
        let limit = *times.select_nth_unstable(FLOWS_FORGOTTEN - 1).1;
        let older = times.iter().filter(|sent| **sent < limit).count();
        let mut as_old = FLOWS_FORGOTTEN - older;
        self.flows.retain(|_, sent| {
            let is_next = *sent == limit && as_old > 0;
            as_old -= usize::from(is_next);
            *sent >= limit && !is_next
        });
    }
}

/// Returns true if the filter admits an answer to a datagram that the guest sent at this time.
fn is_recent(sent_ns: u64, now: Instant) -> bool {
    now.as_ns().saturating_sub(sent_ns) < FLOW_NS
}

/// Returns true for ICMP requests: echo, timestamp, information and address mask; in IPv6 echo and node information.
fn is_request(protocol: u8, kind: u8) -> bool {
    if protocol == ICMP { matches!(kind, 8 | 13 | 15 | 17) } else { matches!(kind, 128 | 139) }
}

/// Returns the IP packet of a frame; `None` if the frame has another protocol.
fn ip(frame: &[u8], ethernet: bool) -> Option<&[u8]> {
    if !ethernet {
        return Some(frame);
    }
    matches!(frame.get(12..ETHERNET_BYTES), Some([0x08, 0x00] | [0x86, 0xdd])).then(|| &frame[ETHERNET_BYTES..])
}

fn port(header: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(header.get(at..at + 2)?.try_into().ok()?))
}

/// Returns the parts of a packet; `None` if they are not complete, or if a later fragment could change the transport header.
fn parse(packet: &[u8]) -> Option<Packet<'_>> {
    match packet.first()? >> 4 {
        4 => parse_v4(packet),
        6 => parse_v6(packet),
        _ => None,
    }
}

fn parse_v4(packet: &[u8]) -> Option<Packet<'_>> {
    let address = |at: usize| Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?)));
    let (from, to, protocol) = (address(12)?, address(16)?, *packet.get(9)?);
    let header_bytes = usize::from(packet[0] & 0x0f) * 4;
    let fragment = usize::from(port(packet, 6)? & 0x1fff) * 8;
    if header_bytes < 20 {
        return None;
    }
    let packet = without_padding(packet, usize::from(port(packet, 2)?));
    transport(protocol, fragment, packet.get(header_bytes..)).map(|transport| Packet { from, to, protocol, transport })
}

fn parse_v6(packet: &[u8]) -> Option<Packet<'_>> {
    let address = |at: usize| Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?)));
    let (from, to) = (address(8)?, address(24)?);
    let packet = without_padding(packet, 40 + usize::from(port(packet, 4)?));
    let (mut protocol, mut at, mut fragment) = (*packet.get(6)?, 40, 0);
    for _ in 0..EXTENSIONS_MAX {
        match protocol {
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => {
                let bytes = (usize::from(*packet.get(at + 1)?) + 1) * 8;
                (protocol, at) = (*packet.get(at)?, at + bytes);
            }
            44 => {
                fragment = usize::from(port(packet, at + 2)? >> 3) * 8;
                (protocol, at) = (*packet.get(at)?, at + 8);
                if fragment > 0 {
                    break;
                }
            }
            _ => {
                let transport = transport(protocol, fragment, packet.get(at..))?;
                return Some(Packet { from, to, protocol, transport });
            }
        }
    }
    // A later fragment, or too many headers.
    (fragment > 0).then_some(())?;
    transport(protocol, fragment, packet.get(at..)).map(|transport| Packet { from, to, protocol, transport })
}

/// Returns the packet without the bytes behind its end, which the stack ignores. `bytes` is the length that its header states.
fn without_padding(packet: &[u8], bytes: usize) -> &[u8] {
    packet.get(..bytes).unwrap_or(packet)
}

/// Returns the transport header, or `Some(None)` for a later fragment, which the stack can only use with the first one. Returns `None`
/// for a fragment that could change the flags of a TCP header (RFC 1858).
#[expect(clippy::option_option, reason = "a later fragment has no header, and a packet without one is dropped")]
fn transport(protocol: u8, fragment: usize, bytes: Option<&[u8]>) -> Option<Option<&[u8]>> {
    match fragment {
        0 => bytes.map(Some),
        // The ports and the flags are in the first fragment.
        at if protocol == TCP && at <= TCP_FLAGS_AT => None,
        _ => Some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_ns(FLOW_NS);

    fn filter(rules: &[&str], own: Option<&str>) -> PortFilter {
        let allow = Allow::new(rules.iter().map(|rule| rule.parse().unwrap()).collect()).unwrap();
        PortFilter::new(allow, own.map(|own| [own.parse().unwrap()].into()))
    }

    fn v4(protocol: u8, fragment: u16, transport: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet[2..4].copy_from_slice(&u16::try_from(20 + transport.len()).unwrap().to_be_bytes());
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet.extend(transport);
        packet
    }

    fn v6(extensions: &[u8], first: u8, transport: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, first, 64];
        packet.extend("fd00::1".parse::<Ipv6Addr>().unwrap().octets());
        packet.extend("fd00::2".parse::<Ipv6Addr>().unwrap().octets());
        packet.extend(extensions);
        packet.extend(transport);
        let length = u16::try_from(packet.len() - 40).unwrap();
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        packet
    }

    fn ports(from: u16, to: u16) -> Vec<u8> {
        [from.to_be_bytes(), to.to_be_bytes()].concat()
    }

    fn tcp(to: u16, flags: u8) -> Vec<u8> {
        let mut header = ports(40_000, to);
        header.resize(20, 0);
        header[TCP_FLAGS_AT] = flags;
        header
    }

    fn udp(from: u16, to: u16) -> Vec<u8> {
        [ports(from, to), vec![0; 4]].concat()
    }

    fn admits(filter: &PortFilter, packet: &[u8]) -> bool {
        filter.admits(NOW, &"lan".parse().unwrap(), false, packet, &[])
    }

    #[test]
    fn only_packets_that_open_something_need_a_rule() {
        let none = filter(&[], None);
        assert!(!admits(&none, &v4(TCP, 0, &tcp(443, SYN))) && !admits(&none, &v4(UDP, 0, &udp(9, 53))));
        assert!(!admits(&none, &v4(ICMP, 0, &[8, 0, 0, 0])) && !admits(&none, &v6(&[], ICMPV6, &[128, 0, 0, 0])));
        for (protocol, transport) in
            [(TCP, tcp(443, ACK)), (TCP, tcp(443, SYN | ACK)), (TCP, tcp(443, 4)), (2, vec![0x16])]
        {
            assert!(admits(&none, &v4(protocol, 0, &transport)), "{protocol} {transport:?}");
        }
        // Errors, echo replies and neighbour discovery.
        assert!([0, 3, 11].iter().all(|kind| admits(&none, &v4(ICMP, 0, &[*kind, 0, 0, 0]))));
        assert!([1, 2, 129, 133, 135, 136, 143].iter().all(|kind| admits(&none, &v6(&[], ICMPV6, &[*kind, 0, 0, 0]))));
        let some = filter(&["tcp 443 from lan", "udp 53", "icmp"], None);
        assert!(admits(&some, &v4(TCP, 0, &tcp(443, SYN))) && admits(&some, &v6(&[], UDP, &udp(9, 53))));
        assert!(!admits(&some, &v4(TCP, 0, &tcp(444, SYN))) && admits(&some, &v4(ICMP, 0, &[8, 0, 0, 0])));
    }

    #[test]
    fn answers_to_datagrams_pass_for_a_time_and_the_table_of_flows_is_bounded() {
        let later = Instant::from_ns(2 * FLOW_NS);
        let mut filter = filter(&[], None);
        let mut sent = v4(UDP, 0, &udp(5_000, 53));
        sent[16..20].copy_from_slice(&[10, 0, 0, 1]);
        let lan: Name = "lan".parse().unwrap();
        filter.sent(NOW, &lan, false, &sent);
        let at = |filter: &PortFilter, now: Instant, packet: &[u8]| filter.admits(now, &lan, false, packet, &[]);
        let answer = v4(UDP, 0, &udp(53, 5_000));
        assert!(at(&filter, NOW, &answer) && !at(&filter, later, &answer));
        assert!(!at(&filter, NOW, &v4(UDP, 0, &udp(54, 5_000))) && !at(&filter, NOW, &v4(UDP, 0, &udp(53, 5_001))));
        for port in 0..u16::try_from(2 * FLOWS_MAX).unwrap() {
            filter.sent(Instant::from_ns(FLOW_NS + 1), &lan, false, &v4(UDP, 0, &udp(port, 7)));
            assert!(filter.flows.len() <= FLOWS_MAX);
        }
        assert!(
            filter.flows.len() > FLOWS_MAX - FLOWS_FORGOTTEN && !at(&filter, NOW, &answer),
            "the oldest is forgotten"
        );
    }

    #[test]
    fn senders_to_an_allowed_port_do_not_displace_the_flows_of_the_guest() {
        let (mut filter, lan) = (filter(&["udp 7"], None), "lan".parse().unwrap());
        filter.sent(NOW, &lan, false, &v4(UDP, 0, &udp(5_000, 53)));
        for port in 0..=u16::MAX {
            filter.sent(Instant::from_ns(FLOW_NS + 1), &lan, false, &v4(UDP, 0, &udp(7, port)));
        }
        assert_eq!(filter.flows.len(), 1);
    }

    #[test]
    fn a_packet_whose_transport_header_is_not_there_is_dropped() {
        let all = filter(&["tcp", "udp", "icmp"], None);
        for packet in [
            vec![],
            vec![0x45],
            v4(TCP, 0, &tcp(1, ACK)[..13]),
            v4(UDP, 0, &[0, 1, 0]),
            v4(ICMP, 0, &[]),
            v4(TCP, 1, &[0; 20]),
            v6(&[], 0, &[]),
            v6(&[], TCP, &[0; 3]),
            v6(&[6, 0, 0, 8, 0, 0, 0, 0], 44, &[0; 20]),
            v6(&[60, 0, 0, 0, 0, 0, 0, 0].repeat(9), 60, &tcp(1, SYN)),
            vec![0x75; 60],
        ] {
            assert!(!admits(&all, &packet), "{packet:?}");
        }
        // Bytes behind the end of a packet are not its flags: 8 bytes of a TCP header and 12 bytes of padding.
        let (mut short4, mut short6) = (v4(TCP, 0x2000, &tcp(1, ACK)), v6(&[6, 0, 0, 1, 0, 0, 0, 0], 44, &tcp(1, ACK)));
        (short4[3], short6[5]) = (28, 16);
        assert!(!admits(&all, &short4) && !admits(&all, &short6));
        // Later fragments are of no use without the first one.
        assert!(admits(&all, &v4(TCP, 2, &[0; 20])) && admits(&all, &v4(UDP, 1, &[0; 20])));
        assert!(admits(&all, &v6(&[6, 0, 0, 0x10, 0, 0, 0, 0], 44, &[0; 20])));
        let extended = v6(&[6, 0, 0, 0, 0, 0, 0, 0], 60, &tcp(443, SYN));
        assert!(admits(&all, &extended) && !admits(&filter(&["tcp 80"], None), &extended));
    }

    #[test]
    fn a_router_forwards_what_is_not_for_itself_and_arp_passes() {
        let router = filter(&[], Some("10.0.0.9"));
        assert!(admits(&router, &v4(TCP, 0, &tcp(443, SYN))));
        assert!(!admits(&filter(&[], Some("10.0.0.2")), &v4(TCP, 0, &tcp(443, SYN))));
        let lan: Name = "lan".parse().unwrap();
        let broadcast = [Ipv4Addr::new(10, 0, 0, 2)];
        assert!(
            !router.admits(NOW, &lan, false, &v4(UDP, 0, &udp(9, 5_353)), &broadcast),
            "a broadcast is for the router, too"
        );
        let frame = |kind: [u8; 2], packet: &[u8]| [&[0; 12][..], &kind, packet].concat();
        assert!(router.admits(NOW, &lan, true, &frame([8, 6], &[0; 28]), &[]));
        let own = filter(&[], None);
        assert!(!own.admits(NOW, &lan, true, &frame([8, 0], &v4(TCP, 0, &tcp(443, SYN))), &[]));
    }
}
