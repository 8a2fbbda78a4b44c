//! Known attacks by ICMP (RFC 5927) and by side channels of counters: what the stack believes, and what it lets be seen.

use crate::attack::*;
use crate::world::*;
use siga_stack::drops::{IcmpDrop, IpDrop, TcpDrop};
use siga_stack::limits::{ICMP_ERRORS_BURST, PATH_MTUS_MAX};
use siga_stack::link::frame::DeviceId;
use siga_stack::sockets::TcpOptions;
use siga_stack::tcp::StateName;
use siga_stack::time::Duration;
use siga_stack::wire::tcp::Header;
use std::collections::BTreeSet;

/// An error about a segment of the victim's, from its peer or a router.
fn error(kind: u8, code: u8, rest: [u8; 4], quoted: &[u8]) -> Vec<u8> {
    V4::new("10.1.0.77", ROUTER[0], 1).packet(&icmp(kind, code, &[&rest, quoted].concat()))
}

/// The beginning of what the victim sends, as an attacker guesses it.
fn quote(victim: &Victim, distance: u32) -> Vec<u8> {
    let next = &victim.next;
    let seq = next.ack.unwrap() + distance;
    let (source_port, destination_port) = (next.destination_port, next.source_port);
    let header = Header { source_port, destination_port, seq, ack: Some(next.seq), ..Header::default() };
    let mut segment = vec![0; header.header_bytes() + 1_000];
    header.emit(&mut segment);
    V4 { dont_fragment: true, ..V4::new(ROUTER[0], HOST[0], 6) }.packet(&segment)[..28].to_vec()
}

/// CVE-2004-0790: hard errors end no connection that is open, whatever they quote.
#[test]
fn a_blind_reset_by_icmp_ends_no_open_connection() {
    let mut victim = Victim::new();
    victim.write(&[1; 3_000]);
    victim.answers();
    for (kind, code) in [(3, 0), (3, 1), (3, 2), (3, 3), (3, 10), (3, 13), (11, 0), (11, 1), (12, 0)] {
        let quoted = quote(&victim, 0);
        assert_eq!(victim.world.give_packet(0, &error(kind, code, [0; 4], &quoted)), Outcome::Done, "{kind} {code}");
        let quoted = quote(&victim, 1_000_000);
        let ignored = Outcome::dropped(TcpDrop::IcmpNotOutstanding);
        assert_eq!(victim.world.give_packet(0, &error(kind, code, [0; 4], &quoted)), ignored, "{kind} {code}");
        assert_eq!(victim.state(), StateName::Established);
    }
    victim.lives();
}

/// CVE-2004-0791: source quench slows nobody down (RFC 6633).
#[test]
fn source_quench_is_ignored() {
    let mut victim = Victim::new();
    victim.write(&[1; 3_000]);
    victim.answers();
    let window = |victim: &Victim| victim.world.stack.tcp_info(victim.id).unwrap().unwrap().congestion_window;
    let before = window(&victim);
    let quoted = quote(&victim, 0);
    for _ in 0..100 {
        let quench = error(4, 0, [0; 4], &quoted);
        assert_eq!(victim.world.give_packet(0, &quench), Outcome::dropped(IcmpDrop::Ignored));
    }
    assert_eq!(window(&victim), before);
    victim.lives();
}

/// CVE-2004-1060: an attacker who guesses a sequence number lowers the path MTU to 68 bytes, and then further.
#[test]
fn icmp_lowers_no_path_mtu_below_the_minimum_and_blind_errors_lower_none() {
    let mut victim = Victim::new();
    victim.write(&[1; 3_000]);
    victim.answers();
    let segment = |victim: &Victim| victim.world.stack.tcp_info(victim.id).unwrap().unwrap().segment_bytes;
    for distance in [3_001, 1_000_000, u32::MAX] {
        let blind = error(3, 4, [0, 0, 0, 68], &quote(&victim, distance));
        assert_eq!(victim.world.give_packet(0, &blind), Outcome::dropped(TcpDrop::IcmpNotOutstanding));
    }
    assert_eq!((segment(&victim), victim.world.stack.memory().held("path MTUs")), (1_000, 0));
    for mtu in [900_u16, 68, 0, 1, 1_500] {
        let [a, b] = mtu.to_be_bytes();
        victim.world.give_packet(0, &error(3, 4, [0, 0, a, b], &quote(&victim, 0)));
        assert!(segment(&victim) >= 536, "{mtu}: {}", segment(&victim));
        victim.answers();
    }
    victim.lives();
}

/// CVE-2016-10142: "packet too big" below 1,280 must not make fragments of IPv6 packets.
#[test]
fn atomic_fragments_are_never_made() {
    let mut world = World::host();
    let socket = world.stack.udp_bind("[::]:7".parse().unwrap()).unwrap();
    let remote = format!("[{}]:9", HOST6[0]).parse().unwrap();
    world.stack.udp_send(world.now, socket, Some(remote), &[1; 1_300]).unwrap();
    let sent = world.sent_packet(0);
    let rest = [&500_u32.to_be_bytes()[..], &sent[..100]].concat();
    let message = icmp6(HOST6[0], ROUTER6[0], 2, 0, &rest);
    assert_eq!(world.give_packet(0, &v6(HOST6[0], ROUTER6[0], 58, 64, &message)), Outcome::Done);
    world.stack.udp_send(world.now, socket, Some(remote), &[1; 1_000]).unwrap();
    assert_eq!(world.sent_packet(0)[6], 17, "no fragment header");
}

/// Errors about what was never sent fill no table.
#[test]
fn errors_about_unsent_packets_teach_no_path_mtu() {
    let mut world = World::host();
    for n in 0..2_000_u16 {
        let [a, b] = n.to_be_bytes();
        let to = format!("192.0.{a}.{b}");
        let quoted = V4::new(ROUTER[0], &to, 17).packet(&udp(ROUTER[0], &to, (9, 9), b"x"));
        let packet = error(3, 4, [0, 0, 3, 0], &quoted);
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IcmpDrop::Quote));
    }
    assert_eq!(world.stack.memory().held("path MTUs"), 0);
    // A socket that may have sent them changes nothing.
    world.stack.udp_bind("0.0.0.0:9".parse().unwrap()).unwrap();
    let to = "192.0.2.1";
    for dont_fragment in [false, true] {
        let datagram = udp(ROUTER[0], to, (9, 9), &[0; 1_400]);
        let quoted = V4 { dont_fragment, ..V4::new(ROUTER[0], to, 17) }.packet(&datagram);
        let packet = error(3, 4, [0, 0, 3, 0], &quoted[..48]);
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IcmpDrop::Quote));
    }
    assert_eq!(world.stack.memory().held("path MTUs"), 0);
    // Paths of datagrams that were sent are learnt, up to a bound.
    let gateway = Some(HOST6[0].parse().unwrap());
    world.stack.add_route(prefix("2001:db8:99::", 64), DeviceId(0), gateway).unwrap();
    let socket = world.stack.udp_bind("[::]:9".parse().unwrap()).unwrap();
    for n in 0..2_000_u16 {
        world.now += Duration::from_millis(5);
        let to = format!("[2001:db8:99::{n:x}]:9").parse().unwrap();
        world.stack.udp_send(world.now, socket, Some(to), &[1; 1_400]).unwrap();
        let sent = world.sent_packet(0);
        let rest = [&1_300_u32.to_be_bytes()[..], &sent[..100]].concat();
        let message = v6(HOST6[0], ROUTER6[0], 58, 64, &icmp6(HOST6[0], ROUTER6[0], 2, 0, &rest));
        assert_eq!(world.give_packet(0, &message), Outcome::Done);
    }
    assert_eq!(world.stack.memory().held("path MTUs"), PATH_MTUS_MAX);
}

/// The stack ignores messages that would change its routes or reveal facts about the host: redirects, router
/// advertisements, timestamps, masks.
#[test]
fn icmp_redirects_and_queries_about_the_host_are_ignored() {
    let mut victim = Victim::new();
    let quoted = quote(&victim, 0);
    for kind in [5, 9, 10, 13, 15, 17, 30, 37] {
        let outcome = victim.world.give_packet(0, &error(kind, 1, [10, 1, 0, 66], &quoted));
        assert_eq!(outcome, Outcome::dropped(IcmpDrop::Ignored), "{kind}");
    }
    for kind in [134, 137, 138, 139] {
        let message = icmp6(HOST6[0], ROUTER6[0], kind, 0, &[0; 60]);
        let outcome = victim.world.give_packet(0, &v6(HOST6[0], ROUTER6[0], 58, 255, &message));
        assert!(matches!(outcome, Outcome::Dropped(_)), "{kind}");
    }
    victim.world.assert_silent();
    victim.lives();
}

/// Smurf, CVE-1999-0513: an echo request to everybody, in the name of a victim.
#[test]
fn smurf_broadcast_echo_requests_are_not_answered() {
    let mut world = World::router();
    for to in ["10.1.0.255", "255.255.255.255", "224.0.0.1"] {
        let request = V4::new(HOST[0], to, 1).packet(&icmp(8, 0, &[0; 60]));
        assert_eq!(world.give_packet(0, &request), Outcome::dropped(IcmpDrop::EchoToMany), "{to}");
    }
    let directed = V4::new(HOST[0], "10.2.0.255", 1).packet(&icmp(8, 0, &[0; 60]));
    assert_eq!(world.give_packet(0, &directed), Outcome::dropped(IpDrop::Broadcast), "another network's broadcast");
    // In the name of everybody.
    let socket = world.stack.udp_bind("0.0.0.0:6".parse().unwrap()).unwrap();
    for from in ["10.1.0.255", "10.1.0.0", "10.2.0.255", "255.255.255.255"] {
        let request = V4::new(from, ROUTER[0], 1).packet(&icmp(8, 0, &[0; 60]));
        let datagram = V4::new(from, ROUTER[0], 17).packet(&udp(from, ROUTER[0], (5, 6), b"x"));
        for packet in [request, datagram] {
            assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::SourceMartian), "{from}");
        }
    }
    assert_eq!(world.stack.udp_receive(socket), Ok(None));
    world.assert_silent();
}

/// SAD DNS, CVE-2020-25705: if anybody can count the steps of a rate limit, an attacker learns a spoofed packet's fate.
#[test]
fn sad_dns_the_icmp_limit_does_not_reveal_the_fate_of_spoofed_packets() {
    let spent = |seed: u64, spoofed: u16| {
        let mut world = World::seeded(seed);
        for port in 0..spoofed {
            world.give_packet(0, &udp_to(ROUTER[0], (5, 20_000 + port), b"x"));
        }
        world.sent(0);
        for port in 0..200 {
            world.give_packet(0, &udp_to(ROUTER[0], (6, 30_000 + port), b"x"));
        }
        let left = world.sent(0).len();
        assert!(left <= ICMP_ERRORS_BURST as usize);
        left
    };
    // Were the steps all alike, what is left would say exactly how many of 20 guesses met a closed port.
    let left: BTreeSet<usize> = (0..40).map(|seed| spent(seed, 20)).collect();
    let one_less: BTreeSet<usize> = (0..40).map(|seed| spent(seed, 19)).collect();
    assert!(left.len() >= 5, "{left:?}");
    assert!(left.intersection(&one_less).count() >= 4, "{left:?} and {one_less:?}");
}

/// Idle scan: identifications counted for all destinations alike tell one how much is sent to others.
#[test]
fn ip_identifications_reveal_nothing_about_other_destinations() {
    let steps = |others: usize| {
        let mut world = World::host();
        let socket = world.stack.udp_bind("0.0.0.0:7".parse().unwrap()).unwrap();
        let send = |world: &mut World, to: &str| {
            let to = format!("{to}:9").parse().unwrap();
            world.stack.udp_send(world.now, socket, Some(to), b"x").unwrap();
            let frame = world.sent(0).into_iter().chain(world.sent(1)).find(|frame| frame[12..14] == [8, 0]);
            frame.map_or(0, |frame| u16::from_be_bytes([frame[18], frame[19]]))
        };
        let mut idents = Vec::new();
        for _ in 0..20 {
            idents.push(send(&mut world, HOST[0]));
            for _ in 0..others {
                send(&mut world, HOST[1]);
            }
        }
        idents.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect::<Vec<u16>>()
    };
    assert_eq!(steps(0), steps(7), "the same steps whatever is sent elsewhere");
    assert!(steps(0).iter().all(|step| (1..100).contains(step)), "and no identification comes again soon");
}

/// RFC 6528: a connection's initial number is a clock plus an offset of its own. Numbers of other connections do not
/// reveal that offset.
#[test]
fn initial_numbers_for_one_peer_reveal_nothing_about_another() {
    let isn = |seed: u64, from: &str, port: u16| {
        let mut world = World::seeded(seed);
        world.stack.tcp_listen("0.0.0.0:80".parse().unwrap(), 8, &TcpOptions::default()).unwrap();
        world.give_packet(0, &packet(from, ROUTER[0], &syn(port, usual()), &[]));
        answers(&mut world).remove(0).0.seq.0
    };
    let mut gaps = BTreeSet::new();
    for seed in 0..50 {
        gaps.insert(isn(seed, HOST[0], 1_001).wrapping_sub(isn(seed, HOST[0], 1_000)));
    }
    assert_eq!(gaps.len(), 50, "with another secret every distance is another");
    assert_eq!(isn(3, HOST[0], 1_000), isn(3, HOST[0], 1_000));
    let mut world = World::seeded(3);
    world.stack.tcp_listen("0.0.0.0:80".parse().unwrap(), 8, &TcpOptions::default()).unwrap();
    pass(&mut world, Duration::from_secs(1));
    world.give_packet(0, &packet(HOST[0], ROUTER[0], &syn(1_000, usual()), &[]));
    let later = answers(&mut world).remove(0).0.seq.0;
    assert_eq!(later.wrapping_sub(isn(3, HOST[0], 1_000)), 250_000, "4 us a number");
}
