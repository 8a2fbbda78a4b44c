//! Groups on networks of guests: who hears what, for how long, and what is refused; over both ways to attach.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

#[path = "common/network.rs"]
mod network;

use network::{Network, PATIENCE, wait_until};
use siga_fabric::protocol::report::ReportPart;
use siga_fabric::sockets::{Attachment, Poller, UdpSocket};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

const PORT: u16 = 5_000;
const ANY4: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
/// For each IP version: a group, another, the unspecified address, and what guests' addresses begin with.
const VERSIONS: [[&str; 4]; 2] =
    [["239.1.2.3", "239.1.2.4", "0.0.0.0", "10.0.0."], ["ff15::1:3", "ff15::1:4", "::", "fd00::"]];

/// How a test's process takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Embedded,
    Iucv,
}

const WAYS: [Way; 2] = [Way::Embedded, Way::Iucv];

impl Way {
    fn attach(self, network: &Network, guest: &str) -> Attachment {
        match self {
            Self::Embedded => network.attach(guest),
            Self::Iucv => network.application(guest),
        }
    }

    /// Guests `a`, `b` and so on, with addresses that end in 1, 2 and so on.
    fn up(self, name: &str, settings: &str, guests: usize) -> Network {
        let mut topology = format!("[network.lan]\ntype = \"hipersockets\"\n{settings}\n");
        for (guest, number) in ('a'..).zip(1..=guests) {
            let external = if self == Self::Embedded { "external = true\n" } else { "" };
            topology += &format!(
                "[guest.{guest}]\n{external}device = [{{ network = \"lan\", addresses = [\"10.0.0.{number}/24\", \
                 \"fd00::{number}/64\"] }}]\n"
            );
        }
        Network::up(&format!("{name}-{self:?}").to_lowercase(), &topology)
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(text: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip(text), port)
}

fn bind(attachment: &Attachment, local: &str, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind(attachment, at(local, port)).unwrap();
    socket.set_timeout(Some(PATIENCE));
    socket
}

/// On the network that groups are routed to.
fn join(socket: &UdpSocket, group: &str) -> io::Result<()> {
    match ip(group) {
        IpAddr::V4(group) => socket.join_multicast_v4(&group, &ANY4),
        IpAddr::V6(group) => socket.join_multicast_v6(&group, 0),
    }
}

fn leave(socket: &UdpSocket, group: &str) -> io::Result<()> {
    match ip(group) {
        IpAddr::V4(group) => socket.leave_multicast_v4(&group, &ANY4),
        IpAddr::V6(group) => socket.leave_multicast_v6(&group, 0),
    }
}

fn received(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 2_000];
    let (count, from) = socket.recv_from(&mut buffer).unwrap();
    (buffer[..count].to_vec(), from)
}

/// Has stacks in this process move while a test does something else.
fn moving(attachments: &[&Attachment], test: impl FnOnce()) {
    /// Ends the waits also where a test fails.
    struct Ends<'a>(&'a [Poller], &'a std::sync::atomic::AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.1.store(true, std::sync::atomic::Ordering::SeqCst);
            self.0.iter().for_each(|poller| poller.waker().wake());
        }
    }
    let pollers: Vec<Poller> = attachments.iter().map(|attachment| Poller::new(attachment)).collect();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for poller in &pollers {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::SeqCst) {
                    poller.wait(&mut Vec::new(), Some(Duration::from_millis(100))).unwrap();
                }
            });
        }
        let _ends = Ends(&pollers, &over);
        test();
    });
}

#[test]
fn group_datagrams_reach_the_joined_sockets_until_they_leave() {
    for way in WAYS {
        let network = way.up("heard", "", 3);
        let [a, b, c] = ["a", "b", "c"].map(|guest| way.attach(&network, guest));
        moving(&[&a, &b, &c], || {
            for [group, other, any, hosts] in VERSIONS {
                let host = |number: u8| format!("{hosts}{number}");
                let sender = bind(&a, &host(1), 0);
                let from = sender.local_addr().unwrap();
                let (member, stranger) = (bind(&b, any, PORT), bind(&c, any, PORT));
                // It lies nearer to the group, and its stack is in it.
                let bound = bind(&b, group, PORT);
                // What goes to one station comes behind what went to the group before.
                let send_all = |to: &str| {
                    sender.send_to(b"all", at(to, PORT)).unwrap();
                    for number in [2, 3] {
                        sender.send_to(b"one", at(&host(number), PORT)).unwrap();
                    }
                };
                join(&member, group).unwrap();
                for to in [group, other, group] {
                    send_all(to);
                    if to == group {
                        assert_eq!(received(&member), (b"all".to_vec(), from), "{way:?} {group}");
                    }
                    assert_eq!(received(&member), (b"one".to_vec(), from), "{way:?} {group}");
                    assert_eq!(received(&stranger), (b"one".to_vec(), from), "{way:?} {group}: it has not joined");
                }
                assert!(!bound.readiness().unwrap().readable, "{way:?} {group}: another of its stack has joined");
                join(&bound, group).unwrap();
                send_all(group);
                assert_eq!((received(&member).0, received(&bound).0), (b"all".to_vec(), b"all".to_vec()));
                assert_eq!(received(&member).0, b"one");
                leave(&member, group).unwrap();
                send_all(group);
                assert_eq!(received(&member).0, b"one", "{way:?} {group}: it has left");
                assert_eq!(received(&bound).0, b"all", "{way:?} {group}: the other has not");
            }
        });
    }
}

#[test]
fn the_hop_limit_and_the_loopback_option_limit_where_group_datagrams_go() {
    for way in WAYS {
        let network = way.up("far", "", 2);
        let [a, b] = ["a", "b"].map(|guest| way.attach(&network, guest));
        moving(&[&a, &b], || {
            for [group, _, any, hosts] in VERSIONS {
                // By its route, since it is bound to no address.
                let sender = bind(&a, any, 0);
                let (near, far) = (bind(&a, any, PORT), bind(&b, any, PORT));
                for socket in [&near, &far] {
                    join(socket, group).unwrap();
                }
                for (hops, own, who) in [(1, true, [true, true]), (1, false, [false, true]), (0, true, [true, false])] {
                    sender.set_multicast_ttl(hops).unwrap();
                    sender.set_multicast_loop(own).unwrap();
                    sender.send_to(b"all", at(group, PORT)).unwrap();
                    for (socket, number, hears) in [(&near, 1, who[0]), (&far, 2, who[1])] {
                        sender.send_to(b"one", at(&format!("{hosts}{number}"), PORT)).unwrap();
                        if hears {
                            assert_eq!(received(socket).0, b"all", "{way:?} {group} {hops} {own}");
                        }
                        assert_eq!(received(socket).0, b"one", "{way:?} {group} {hops} {own}");
                    }
                }
            }
        });
    }
}

#[test]
fn a_group_member_receives_from_later_partners_and_renewed_links() {
    for way in WAYS {
        let settings = "access = \"restricted\"\ngrant = [\"a\", \"b\", \"c\"]\nidle_seconds = 1";
        let network = way.up("later", settings, 3);
        network.set_access("lan", "c", false);
        let member = way.attach(&network, "b");
        let sockets = VERSIONS.map(|[group, _, any, _]| {
            let socket = bind(&member, any, PORT);
            join(&socket, group).unwrap();
            socket
        });
        let a = way.attach(&network, "a");
        // Whose port there is from here on.
        network.set_access("lan", "c", true);
        let c = way.attach(&network, "c");
        let pairs = || network.pairs();
        moving(&[&a, &member, &c], || {
            for turn in 0..2 {
                for (attachment, number) in [(&a, 1), (&c, 3)] {
                    for ([group, _, _, hosts], socket) in VERSIONS.iter().zip(&sockets) {
                        let sender = bind(attachment, &format!("{hosts}{number}"), 0);
                        sender.send_to(b"all", at(group, PORT)).unwrap();
                        let from = sender.local_addr().unwrap();
                        assert_eq!(received(socket), (b"all".to_vec(), from), "{way:?} {group} turn {turn}");
                    }
                }
                wait_until("pairs are not given back", || pairs() == 0);
            }
        });
    }
}

/// Bytes that a guest's stack holds for groups.
fn held(way: Way, network: &Network, attachment: &Attachment) -> u64 {
    match way {
        Way::Iucv => network.stack("b")["memory"]["groups"].as_u64().unwrap(),
        Way::Embedded => {
            let stack = attachment.report().unwrap().into_iter().find_map(|part| match part {
                ReportPart::Stack(stack) => Some(stack),
                ReportPart::Device(_)
                | ReportPart::Link(_)
                | ReportPart::Application(_)
                | ReportPart::Totals(_)
                | ReportPart::Addresses { .. } => None,
            });
            stack.unwrap().memory["groups"]
        }
    }
}

#[test]
fn a_membership_ends_with_its_socket() {
    for way in WAYS {
        let network = way.up("ends", "", 2);
        let b = way.attach(&network, "b");
        moving(&[&b], || {
            let held = || held(way, &network, &b);
            assert_eq!(held(), 0);
            for [group, other, any, _] in VERSIONS {
                let sockets = [bind(&b, any, PORT), bind(&b, any, PORT + 1)];
                for (socket, group) in [(0, group), (1, group), (1, other)] {
                    join(&sockets[socket], group).unwrap();
                }
                let (two, [first, second]) = (held(), sockets);
                assert!(two > 0);
                drop(second);
                wait_until("its own group is not left", || held() == two / 2);
                std::thread::sleep(Duration::from_millis(1_500));
                assert_eq!(held(), two / 2, "the other socket is in a group yet");
                drop(first);
                wait_until("the last group is not left", || held() == 0);
            }
        });
    }
}

#[test]
fn impossible_group_calls_return_the_right_kind_of_error() {
    for way in WAYS {
        let network = way.up("wrong", "", 1);
        let a = way.attach(&network, "a");
        let (four, six) = (bind(&a, "0.0.0.0", PORT), bind(&a, "::", PORT));
        let kind = |outcome: io::Result<()>| outcome.err().map(|error| error.kind());
        for [not_four, not_six] in [["10.0.0.2", "fd00::2"], ["255.255.255.255", "ff00::1"], ["ff15::1", "239.1.1.1"]] {
            for (socket, not) in [(&four, not_four), (&six, not_six)] {
                assert_eq!(kind(join(socket, not)), Some(ErrorKind::InvalidInput), "{way:?}: {not} is no group");
            }
        }
        assert_eq!(kind(leave(&four, "10.0.0.2")), Some(ErrorKind::InvalidInput), "{way:?}: it is no group");
        let (group4, group6): (Ipv4Addr, Ipv6Addr) = ("239.1.2.3".parse().unwrap(), "ff15::1:3".parse().unwrap());
        let nowhere = Ipv4Addr::new(10, 0, 0, 9);
        assert_eq!(kind(four.join_multicast_v4(&group4, &nowhere)), Some(ErrorKind::NotFound), "{way:?}");
        for number in [2, u32::MAX] {
            assert_eq!(kind(six.join_multicast_v6(&group6, number)), Some(ErrorKind::NotFound), "{way:?}");
        }
        assert_eq!(kind(leave(&four, "239.1.2.3")), Some(ErrorKind::AddrNotAvailable), "{way:?}");
        four.join_multicast_v4(&group4, &Ipv4Addr::new(10, 0, 0, 1)).unwrap();
        six.join_multicast_v6(&group6, 1).unwrap();
        // By another name it is the same network.
        assert_eq!(kind(join(&four, "239.1.2.3")), Some(ErrorKind::AddrInUse), "{way:?}");
        assert_eq!(kind(join(&six, "ff15::1:3")), Some(ErrorKind::AddrInUse), "{way:?}");
        leave(&four, "239.1.2.3").unwrap();
        leave(&six, "ff15::1:3").unwrap();
        assert_eq!(kind(leave(&four, "239.1.2.3")), Some(ErrorKind::AddrNotAvailable), "{way:?}");
        // 64 groups a socket, 256 a network.
        let sockets: Vec<UdpSocket> = (1..=4).map(|number| bind(&a, "0.0.0.0", PORT + number)).collect();
        for (number, socket) in sockets.iter().enumerate() {
            for group in 0..64 {
                join(socket, &format!("239.0.{number}.{group}")).unwrap();
            }
            assert_eq!(kind(join(socket, "239.0.0.64")), Some(ErrorKind::QuotaExceeded), "{way:?}");
        }
        assert_eq!(kind(join(&four, "239.0.9.9")), Some(ErrorKind::QuotaExceeded), "{way:?}");
        join(&four, "239.0.0.0").unwrap();
        join(&six, "ff15::1").unwrap();
        drop(sockets);
        join(&four, "239.0.9.9").unwrap();
    }
}

/// A hub on three networks, the second a virtual CTC, with a guest on each and another on the third. Some
/// groups are routed over the third network, all else over the second: both lead to guests that become known later.
fn hub() -> Network {
    let device = |network: u8, host: u8| {
        format!(
            "{{ network = \"lan{network}\", addresses = [\"10.{network}.0.{host}/24\", \"fd00:{network}::{host}/64\"] }}"
        )
    };
    let mut topology: String = ["hipersockets", "vctc", "hipersockets"]
        .iter()
        .zip(1..)
        .map(|(kind, number)| format!("[network.lan{number}]\ntype = \"{kind}\"\n"))
        .collect();
    topology += &format!("[guest.hub]\ndevice = [{}, {}, {}]\n", device(1, 1), device(2, 1), device(3, 1));
    let routes =
        [("default", "10.2.0.2"), ("default", "fd00:2::2"), ("239.3.0.0/16", "10.3.0.2"), ("ff18::/16", "fd00:3::2")]
            .map(|(to, via)| format!("{{ to = \"{to}\", via = \"{via}\" }}"));
    topology += &format!("route = [{}]\n", routes.join(", "));
    for (guest, network, host) in GUESTS {
        topology += &format!("[guest.{guest}]\ndevice = [{}]\n", device(network, host));
    }
    Network::up("hub", &topology)
}

/// The hub's partners: name, network, host.
const GUESTS: [(&str, u8, u8); 4] = [("one", 1, 2), ("two", 2, 2), ("three", 3, 2), ("also", 3, 3)];

#[test]
fn a_group_is_joined_on_the_named_network_or_on_that_of_its_route() {
    let network = hub();
    let (hub, others) = (network.application("hub"), GUESTS.map(|(guest, ..)| network.application(guest)));
    let cases = [
        (1, "239.1.1.1", "10.1.0.1"),
        (2, "239.1.1.2", "0.0.0.0"),
        (3, "239.1.1.3", "10.3.0.1"),
        (3, "239.3.1.1", "0.0.0.0"),
        (1, "ff15::1", "1"),
        (2, "ff15::2", "0"),
        (3, "ff15::3", "3"),
        (3, "ff18::1", "0"),
    ];
    for (on, group, interface) in cases {
        let version = usize::from(ip(group).is_ipv6());
        let any = VERSIONS[version][2];
        let member = bind(&hub, any, PORT);
        match ip(group) {
            IpAddr::V4(group) => member.join_multicast_v4(&group, &interface.parse().unwrap()).unwrap(),
            IpAddr::V6(group) => member.join_multicast_v6(&group, interface.parse().unwrap()).unwrap(),
        }
        for (guest, (_, from, _)) in others.iter().zip(GUESTS) {
            let (sender, hub) = (bind(guest, any, 0), [format!("10.{from}.0.1"), format!("fd00:{from}::1")]);
            sender.send_to(b"all", at(group, PORT)).unwrap();
            sender.send_to(b"one", at(&hub[version], PORT)).unwrap();
            if from == on {
                assert_eq!(received(&member).0, b"all", "{group} from network {from}");
            }
            assert_eq!(received(&member).0, b"one", "{group} from network {from}");
        }
    }
}

#[test]
fn group_datagrams_reach_all_members_of_the_network_of_their_route() {
    let network = hub();
    let (hub, others) = (network.application("hub"), GUESTS.map(|(guest, ..)| network.application(guest)));
    for (group, on) in [("239.1.1.9", 2), ("239.3.1.9", 3), ("ff15::9", 2), ("ff18::9", 3)] {
        let version = usize::from(ip(group).is_ipv6());
        let any = VERSIONS[version][2];
        let members = [0, 1, 2, 3].map(|guest: usize| bind(&others[guest], any, PORT));
        members.iter().for_each(|member| join(member, group).unwrap());
        let sender = bind(&hub, any, 0);
        sender.send_to(b"all", at(group, PORT)).unwrap();
        for (member, (guest, network, host)) in members.iter().zip(GUESTS) {
            let to = [format!("10.{network}.0.{host}"), format!("fd00:{network}::{host}")];
            sender.send_to(b"one", at(&to[version], PORT)).unwrap();
            if network == on {
                assert_eq!(received(member).0, b"all", "{group} at {guest}");
            }
            assert_eq!(received(member).0, b"one", "{group} at {guest}");
        }
    }
}
