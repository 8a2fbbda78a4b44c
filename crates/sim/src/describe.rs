//! Describes a frame in a few words for a trace: addresses, protocol, and the most important fields.
//!
//! A frame may be cut off or damaged at any place. Parts that cannot be read are left out. Nothing is validated, because only
//! traces contain these descriptions.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::fault::Medium;

/// Describes a frame. Returns `None` if the frame is of an unknown kind.
pub fn frame(medium: Medium, bytes: &[u8]) -> Option<String> {
    match medium {
        Medium::Ip => packet(bytes),
        Medium::Ethernet => match (word(bytes, 12)?, bytes.get(14..)?) {
            (0x0800 | 0x86dd, rest) => packet(rest),
            (0x0806, rest) => arp(rest),
            (_, _) => None,
        },
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}

fn ipv4(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    bytes.get(at..)?.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets))
}

fn ipv6(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    bytes.get(at..)?.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets))
}

fn arp(bytes: &[u8]) -> Option<String> {
    let (sender, target) = (ipv4(bytes, 14)?, ipv4(bytes, 24)?);
    Some(match word(bytes, 6)? {
        1 => format!("ARP {sender} asks for {target}"),
        2 => format!("ARP {sender} answers {target}"),
        other => format!("ARP operation {other}"),
    })
}

fn packet(bytes: &[u8]) -> Option<String> {
    match bytes.first()? >> 4 {
        4 => {
            let ends = format!("{} > {}", ipv4(bytes, 12)?, ipv4(bytes, 16)?);
            let header_bytes = usize::from(bytes.first()? & 0xf) * 4;
            let (fragment, hops) = (word(bytes, 6)?, bytes.get(8)?);
            let offset = usize::from(fragment & 0x1fff) * 8;
            let part = if fragment & 0x3fff == 0 {
                String::new()
            } else {
                let more = if fragment & 0x2000 == 0 { "" } else { "+" };
                format!(" fragment {}@{offset}{more}", word(bytes, 4)?)
            };
            let inside = if offset == 0 { bytes.get(header_bytes..)? } else { &[] };
            Some(format!("{ends} hops {hops}{part}{}", transport(*bytes.get(9)?, inside)))
        }
        6 => {
            let ends = format!("{} > {}", ipv6(bytes, 8)?, ipv6(bytes, 24)?);
            let (next, hops) = (*bytes.get(6)?, bytes.get(7)?);
            let (next, inside, part) = match (next, bytes.get(40..)?) {
                (44, rest) => {
                    let place = word(rest, 2)?;
                    let more = if place & 1 == 0 { "" } else { "+" };
                    let inside = if place >> 3 == 0 { rest.get(8..)? } else { &[] };
                    (*rest.first()?, inside, format!(" fragment {:x}@{}{more}", word(rest, 6)?, place & 0xfff8))
                }
                (next, rest) => (next, rest, String::new()),
            };
            Some(format!("{ends} hops {hops}{part}{}", transport(next, inside)))
        }
        _ => None,
    }
}

fn transport(protocol: u8, bytes: &[u8]) -> String {
    let ports = || Some((word(bytes, 0)?, word(bytes, 2)?));
    match (protocol, ports()) {
        (_, None) => format!(" protocol {protocol}"),
        (1, Some((kind, _))) => format!(" {}", icmp(kind)),
        (58, Some((kind, _))) => format!(" {}", icmpv6(kind)),
        (6, Some((from, to))) => format!(" TCP {from} > {to}{}", flags(bytes).unwrap_or_default()),
        (17, Some((from, to))) => format!(" UDP {from} > {to}"),
        (_, Some(_)) => format!(" protocol {protocol}"),
    }
}

fn flags(tcp: &[u8]) -> Option<String> {
    let numbers = |at: usize| tcp.get(at..)?.first_chunk().map(|number| u32::from_be_bytes(*number));
    let bits = tcp.get(13)?;
    let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
    let set: Vec<&str> = (0..8).filter(|bit| bits & (1 << bit) != 0).map(|bit: usize| names[bit]).collect();
    Some(format!(" {} seq {} ack {}", set.join(" "), numbers(4)?, numbers(8)?))
}

/// Returns the name of an ICMP message. The upper byte of `kind` is the message type, and the lower byte is the code.
fn icmp(kind: u16) -> String {
    let [kind, code] = kind.to_be_bytes();
    match kind {
        0 => "ICMP echo reply".to_owned(),
        3 if code == 4 => "ICMP fragmentation needed".to_owned(),
        3 => format!("ICMP unreachable {code}"),
        5 => "ICMP redirect".to_owned(),
        8 => "ICMP echo request".to_owned(),
        11 => format!("ICMP time exceeded {code}"),
        _ => format!("ICMP {kind}/{code}"),
    }
}

fn icmpv6(kind: u16) -> String {
    let [kind, code] = kind.to_be_bytes();
    match kind {
        1 => format!("ICMPv6 unreachable {code}"),
        2 => "ICMPv6 packet too big".to_owned(),
        3 => format!("ICMPv6 time exceeded {code}"),
        128 => "ICMPv6 echo request".to_owned(),
        129 => "ICMPv6 echo reply".to_owned(),
        133 => "ICMPv6 router solicitation".to_owned(),
        134 => "ICMPv6 router advertisement".to_owned(),
        135 => "ICMPv6 neighbour solicitation".to_owned(),
        136 => "ICMPv6 neighbour advertisement".to_owned(),
        _ => format!("ICMPv6 {kind}/{code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// An IPv4 packet between 10.0.0.1 and 10.0.0.2.
    fn v4(protocol: u8, fragment: u16, inside: &[u8]) -> Vec<u8> {
        let [high, low] = fragment.to_be_bytes();
        let header = [0x45, 0, 0, 0, 0, 7, high, low, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        [&header, inside].concat()
    }

    fn v6(next: u8, inside: &[u8]) -> Vec<u8> {
        let address = |last| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        [&[0x60, 0, 0, 0, 0, 0, next, 9], &address(1)[..], &address(2), inside].concat()
    }

    #[test]
    fn a_frame_is_told_by_its_ends_and_its_protocol() {
        let tcp = [0, 80, 1, 0, 0, 0, 0, 5, 0, 0, 0, 6, 0x50, 0x12, 0, 0];
        for (bytes, words) in [
            (v4(17, 0, &[0, 53, 0, 7]), "10.0.0.1 > 10.0.0.2 hops 64 UDP 53 > 7"),
            (v4(17, 0x2000, &[0, 53, 0, 7]), "10.0.0.1 > 10.0.0.2 hops 64 fragment 7@0+ UDP 53 > 7"),
            (v4(17, 185, &[0, 53, 0, 7]), "10.0.0.1 > 10.0.0.2 hops 64 fragment 7@1480 protocol 17"),
            (v4(1, 0x4000, &[8, 0, 0, 0]), "10.0.0.1 > 10.0.0.2 hops 64 ICMP echo request"),
            (v4(1, 0, &[3, 4, 0, 0]), "10.0.0.1 > 10.0.0.2 hops 64 ICMP fragmentation needed"),
            (v4(6, 0, &tcp), "10.0.0.1 > 10.0.0.2 hops 64 TCP 80 > 256 SYN ACK seq 5 ack 6"),
            (v6(58, &[2, 0, 0, 0]), "2001:db8::1 > 2001:db8::2 hops 9 ICMPv6 packet too big"),
            (v6(44, &[17, 0, 0, 9, 0, 0, 0, 3]), "2001:db8::1 > 2001:db8::2 hops 9 fragment 3@8+ protocol 17"),
        ] {
            assert_eq!(frame(Medium::Ip, &bytes).as_deref(), Some(words));
            let kind = if bytes[0] == 0x45 { [8, 0] } else { [0x86, 0xdd] };
            let ethernet = [&[0; 12][..], &kind, &bytes].concat();
            assert_eq!(frame(Medium::Ethernet, &ethernet).as_deref(), Some(words));
        }
        let arp =
            [[0; 12].as_slice(), &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[9; 6], &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, 2]];
        assert_eq!(frame(Medium::Ethernet, &arp.concat()).as_deref(), Some("ARP 10.0.0.1 asks for 10.0.0.2"));
    }

    #[test]
    fn what_is_cut_or_unknown_has_no_words_and_does_no_harm() {
        assert_eq!(frame(Medium::Ethernet, &[0; 60]), None);
        assert_eq!(frame(Medium::Ip, &[]), None);
        let mut rng = Rng::new(1, 1);
        for whole in [v4(6, 0, &[0xff; 20]), v4(17, 0x2001, &[1; 8]), v6(44, &[6; 30]), v6(58, &[135; 4])] {
            for _ in 0..2_000 {
                let mut bytes = whole[..rng.index(whole.len() + 1)].to_vec();
                for _ in 0..rng.below(4) {
                    if let Some(at) = Some(rng.index(bytes.len())).filter(|&at| at < bytes.len()) {
                        bytes[at] = rng.bits().to_le_bytes()[0];
                    }
                }
                let _ = frame(Medium::Ip, &bytes);
                let _ = frame(Medium::Ethernet, &bytes);
            }
        }
    }
}
