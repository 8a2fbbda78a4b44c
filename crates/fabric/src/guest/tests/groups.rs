//! Which of its groups a guest announces to its partners: to each linked partner, whatever that partner asks.

use super::lockstep::Guest;
use crate::protocol::message::GuestEvent;
use siga_iucv::options::{DatagramChange, Interface};
use siga_model::topology::Topology;
use siga_ring::Link;
use siga_stack::udp::UdpId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

const LAN: &str = r#"
[network.lan]
type = "hipersockets"
[guest.host]
device = [{ network = "lan", addresses = ["10.0.0.1/24", "fd00::1/64"] }]
[guest.querier]
device = [{ network = "lan", addresses = ["10.0.0.2/24", "fd00::2/64", "fe80::2/64"] }]
[guest.silent]
device = [{ network = "lan", addresses = ["10.0.0.3/24", "fd00::3/64"] }]
"#;

/// Kinds of records: in answer to a query, and of what was left and joined (RFC 3376 4.2.12).
const IS_JOINED: u8 = 2;
const LEFT: u8 = 3;
const JOINED: u8 = 4;

/// A host, a partner that is linked to it, and a partner that is not.
struct Fixture {
    host: Guest,
    querier: Link,
}

impl Fixture {
    fn new() -> Self {
        let topology = Topology::parse(LAN).unwrap();
        let [mut host, querier, silent] = ["host", "querier", "silent"].map(|name| Guest::new(&topology, name));
        let querier = host.raw_link(1, "lan", &querier.member("lan"));
        let silent = silent.member("lan");
        host.node.add_member(&silent.id.device, &silent).unwrap();
        Self { host, querier }
    }

    fn bind(&mut self, group: IpAddr) -> UdpId {
        let any = if group.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        self.host.node.stack().udp_bind(SocketAddr::new(any, 7)).unwrap()
    }

    fn change(&mut self, id: UdpId, change: DatagramChange) {
        self.host.node.change_datagrams(id, change).unwrap();
    }

    /// Sends a packet from the querier to the host.
    fn send(&mut self, packet: &[u8]) {
        let place = self.querier.producer.reserve(packet.len()).unwrap().unwrap();
        place.copy_from_slice(packet);
        self.querier.producer.commit(packet.len(), 0);
        self.querier.producer.publish();
    }

    /// Waits for a report with a record of this kind for the group; a record of a kind in `not` fails the test.
    fn expect_record(&mut self, kind: u8, group: IpAddr, not: &[u8]) {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            self.host.turn();
            while let Some(frame) = self.querier.consumer.next_frame().unwrap() {
                let mut packet = vec![0; frame.len()];
                frame.copy_to(0, &mut packet);
                let has = |kind: u8| {
                    let record = [&[kind, 0, 0, 0], &octets(group)[..]].concat();
                    packet.windows(record.len()).any(|part| part == record)
                };
                assert!(!not.iter().any(|kind| has(*kind)), "{packet:?}");
                if has(kind) {
                    return;
                }
            }
            assert!(Instant::now() < until, "no report names {group}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let sum: u32 = bytes.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (!u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap()).to_be_bytes()
}

/// A query about all groups, to be answered within 100 ms, from the querier to that address.
fn query(to: IpAddr) -> Vec<u8> {
    match to {
        IpAddr::V4(to) => {
            let mut message = [0x11, 1, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0];
            let sum = checksum(&message);
            message[2..4].copy_from_slice(&sum);
            let mut header = [&[0x46, 0, 0, 36, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 2], &to.octets()[..]].concat();
            header.extend([0x94, 4, 0, 0]);
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum);
            [&header[..], &message].concat()
        }
        IpAddr::V6(to) => {
            let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
            let mut message = [&[130, 0, 0, 0, 0, 100, 0, 0][..], &[0; 16], &[2, 125, 0, 0]].concat();
            let length = u8::try_from(message.len()).unwrap();
            let addresses = [from.octets(), to.octets()].concat();
            let sum = checksum(&[&addresses[..], &[0, 0, 0, length, 0, 0, 0, 58], &message].concat());
            message[2..4].copy_from_slice(&sum);
            let header = [&[0x60, 0, 0, 0, 0, 8 + length, 0, 1][..], &addresses].concat();
            [&header[..], &[58, 0, 5, 2, 0, 0, 1, 0], &message].concat()
        }
    }
}

#[test]
fn linked_partners_exchange_group_messages_and_no_link_is_made_for_them() {
    for (group, everybody, own) in [("239.1.2.3", "224.0.0.1", "10.0.0.1"), ("ff15::1:3", "ff02::1", "fd00::1")] {
        let [group, everybody, own]: [IpAddr; 3] = [group, everybody, own].map(|text| text.parse().unwrap());
        let mut fixture = Fixture::new();
        let id = fixture.bind(group);
        fixture.change(id, DatagramChange::Join(group, Interface::OfRoute));
        fixture.expect_record(JOINED, group, &[LEFT, IS_JOINED]);
        // A query may come to the host alone (RFC 3376 4.1.12).
        for to in [everybody, own] {
            fixture.send(&query(to));
            fixture.expect_record(IS_JOINED, group, &[LEFT]);
        }
        fixture.change(id, DatagramChange::Leave(group, Interface::Number(1)));
        fixture.expect_record(LEFT, group, &[JOINED, IS_JOINED]);
        while let Some((event, _)) = fixture.host.control.receive::<GuestEvent>().unwrap() {
            assert!(!matches!(event, GuestEvent::Couple { .. }), "{event:?}");
        }
    }
}
