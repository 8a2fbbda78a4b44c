//! Real stacks in the world: what a person would try first on a network of two hosts and a router, and each fault alone.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

mod support;

use std::net::{IpAddr, SocketAddr};

use siga_sim::fault::{Burst, Fate, Faults, Medium, Wire};
use siga_sim::host::{Host, Request};
use siga_sim::net;
use siga_sim::rng::Ppm;
use siga_sim::trace::{LaneId, LinkId, NodeId, Side};
use siga_sim::world::{Change, End, World};
use siga_stack::link::frame::DeviceId;
use siga_stack::time::{Duration, Instant};
use support::{Any, echo, echo_v4, udp, v4};

const MS: Duration = Duration::from_millis(1);
const PROBER: NodeId = NodeId(0);

fn ethernet(mtu: usize) -> Wire {
    Wire { mtu, delay: MS, ..Wire::ethernet() }
}

fn ms(ms: u64) -> Instant {
    Instant::default() + Duration::from_millis(ms)
}

/// A row of nodes over these wires; `make` makes each from its host.
fn row(wires: &[Wire], mut make: impl FnMut(u8, Host) -> Any) -> World<Any> {
    let mut world = World::new(11);
    let last = u8::try_from(wires.len()).unwrap();
    for place in 0..=last {
        let host = Host::new(net::stack(u64::from(place), place, wires).unwrap());
        world.add(make(place, host)).unwrap();
    }
    for (left, wire) in (0..last).zip(wires) {
        let end = |node: u8, device: u16| End { node: NodeId(node.into()), device: DeviceId(device) };
        world.link(end(left, u16::from(left > 0)), end(left + 1, 0), *wire).unwrap();
    }
    world
}

/// A prober on a link of two ends, then routers and a host over Ethernet, once all have said which groups they are in.
fn probed(mtus: &[usize]) -> World<Any> {
    let mut wires = vec![Wire { medium: Medium::Ip, ..ethernet(4_000) }];
    wires.extend(mtus.iter().map(|&mtu| ethernet(mtu)));
    let mut world =
        row(&wires, |place, host| if place == 0 { Any::Other(Box::default()) } else { Any::Host(Box::new(host)) });
    world.run_until(world.now() + MS * 2_000).unwrap();
    world.drive(PROBER, |node, _| support::prober(node).inbox.clear());
    world
}

/// What comes back within a second of virtual time.
fn probe(world: &mut World<Any>, packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    world.drive(PROBER, |node, _| support::prober(node).outbox.extend(packets));
    world.run_until(world.now() + MS * 1_000).unwrap();
    world.drive(PROBER, |node, _| std::mem::take(&mut support::prober(node).inbox))
}

/// The ends of a prober's packets to the host behind this many networks, in both versions.
fn ends(networks: u8) -> [[IpAddr; 2]; 2] {
    let last = networks - 1;
    [[net::v4(0, 1).into(), net::v4(last, 2).into()], [net::v6(0, 1).into(), net::v6(last, 2).into()]]
}

/// Sender, hop limit, and what is inside.
fn parts(packet: &[u8]) -> (IpAddr, u8, &[u8]) {
    if packet[0] >> 4 == 4 {
        (<[u8; 4]>::try_from(&packet[12..16]).unwrap().into(), packet[8], &packet[20..])
    } else {
        (<[u8; 16]>::try_from(&packet[8..24]).unwrap().into(), packet[7], &packet[40..])
    }
}

#[test]
fn ping_goes_through_the_router_and_back() {
    let mut world = probed(&[1_500]);
    for ([from, to], reply) in ends(2).into_iter().zip([0, 129]) {
        let replies = probe(&mut world, vec![echo([from, to], 64, b"are you there?")]);
        assert_eq!(replies.len(), 1, "{replies:?}");
        let (sender, hops, message) = parts(&replies[0]);
        assert_eq!((sender, hops, message[0], message[1]), (to, 63, reply, 0));
        assert_eq!(message[4..], [&[0, 5, 0, 6], &b"are you there?"[..]].concat());
    }
}

#[test]
fn traceroute_names_every_router_and_then_the_host() {
    let mut world = probed(&[1_500, 1_500]);
    for (ends, (exceeded, unreachable)) in ends(3).into_iter().zip([([11, 0], [3, 3]), ([3, 0], [1, 4])]) {
        let mut seen = Vec::new();
        for hops in 1..=4 {
            let replies = probe(&mut world, vec![udp(ends, 33_434, hops, b"trace")]);
            assert_eq!(replies.len(), 1, "{hops} hops: {replies:?}");
            let (sender, _, message) = parts(&replies[0]);
            seen.push((sender, [message[0], message[1]]));
            // The quoted packet shows which probe it was.
            assert!(message[8..].windows(2).any(|port| port == 33_434_u16.to_be_bytes()));
        }
        let router = |network| if ends[0].is_ipv4() { net::v4(network, 2).into() } else { net::v6(network, 2).into() };
        let host = (ends[1], unreachable);
        assert_eq!(seen, [(router(0), exceeded), (router(1), exceeded), host, host]);
    }
}

#[test]
fn a_host_that_is_not_there_is_reported_and_forgotten() {
    let mut world = probed(&[1_500]);
    let absent = [[net::v4(0, 1).into(), net::v4(1, 9).into()], [net::v6(0, 1).into(), net::v6(1, 9).into()]];
    for (ends, unreachable) in absent.into_iter().zip([[3, 1], [1, 3]]) {
        assert_eq!(probe(&mut world, vec![echo(ends, 64, b"anybody?")]).len(), 0);
        world.run_until(world.now() + MS * 10_000).unwrap();
        let replies = probe(&mut world, Vec::new());
        assert_eq!(replies.len(), 1, "{replies:?}");
        assert_eq!(parts(&replies[0]).2[..2], unreachable);
    }
    world.run_until(world.now() + MS * 1_200_000).unwrap();
    world.check_at_rest().unwrap();
}

#[test]
fn a_packet_too_big_for_a_link_on_the_way_brings_back_its_mtu() {
    let mut world = probed(&[1_300]);
    for (ends, (kind, at)) in ends(2).into_iter().zip([([3, 4], 6), ([2, 0], 6)]) {
        let replies = probe(&mut world, vec![echo(ends, 64, &[7; 1_400])]);
        assert_eq!(replies.len(), 1, "{replies:?}");
        let (sender, _, message) = parts(&replies[0]);
        let router = if ends[0].is_ipv4() { IpAddr::from(net::v4(0, 2)) } else { net::v6(0, 2).into() };
        assert_eq!((sender, [message[0], message[1]]), (router, kind));
        assert_eq!(u16::from_be_bytes([message[at], message[at + 1]]), 1_300);
        // One that fits is answered.
        assert_eq!(probe(&mut world, vec![echo(ends, 64, &[7; 1_200])]).len(), 1);
    }
}

#[test]
fn a_packet_that_may_be_cut_is_cut_and_put_together() {
    let mut world = probed(&[1_280]);
    let ends = [net::v4(0, 1), net::v4(1, 2)];
    let replies = probe(&mut world, vec![v4(ends, 1, 64, 0, &echo_v4(&[7; 3_000]))]);
    let lane = LaneId { link: LinkId(1), from: Side::A };
    assert!(world.lane(lane).counts().arrived >= 3, "the router cuts it");
    let answered: usize = replies.iter().map(|reply| parts(reply).2.len()).sum();
    assert_eq!((replies.len(), answered), (3, 8 + 3_000), "the host cuts its answer");
}

#[test]
fn fragments_in_any_order_make_one_datagram() {
    let mut world = probed(&[1_500]);
    let ends = [net::v4(0, 1), net::v4(1, 2)];
    let message = echo_v4(&(0..=255).cycle().take(1_000).collect::<Vec<u8>>());
    let pieces: Vec<Vec<u8>> = (0..)
        .zip(message.chunks(256))
        .map(|(at, bytes)| v4(ends, 1, 64, (at * 32) | if bytes.len() == 256 { 0x2000 } else { 0 }, bytes))
        .collect();
    let turned = |by: usize| [&pieces[by..], &pieces[..by]].concat();
    let reversed = |by| turned(by).into_iter().rev().collect::<Vec<_>>();
    for order in [reversed(0), turned(1), reversed(2)] {
        let replies = probe(&mut world, order);
        assert_eq!(replies.len(), 1);
        assert_eq!(parts(&replies[0]).2[4..], message[4..]);
    }
    // All but one make none, and what was kept of them is given up in the end.
    let replies = probe(&mut world, pieces[1..].to_vec());
    assert_eq!(replies.len(), 0);
    world.run_until(world.now() + MS * 1_200_000).unwrap();
    world.check_at_rest().unwrap();
}

/// Two hosts that ask each other over both versions, a router between them.
fn asking(wires: &[Wire], requests: &[Request]) -> World<Any> {
    let [v4, v6] = ends(2);
    row(wires, |place, mut host| {
        let address = |ip: IpAddr, port| SocketAddr::new(ip, port);
        match place {
            0 => {
                host.ask(address(v4[0], 2_000), address(v4[1], 7), requests).unwrap();
                host.answer(address(v6[0], 7)).unwrap();
            }
            2 => {
                host.answer(address(v4[1], 7)).unwrap();
                host.ask(address(v6[1], 2_000), address(v6[0], 7), requests).unwrap();
            }
            _ => {}
        }
        Any::Host(Box::new(host))
    })
}

fn answered(world: &World<Any>) -> bool {
    world.node_ids().all(|node| support::host(world.node(node)).is_done())
}

/// All is answered by then, and in the end nothing is left.
fn finish(world: &mut World<Any>, by: Instant) {
    world.run_until_done(by, "every request is answered", answered).unwrap();
    world.run_until(world.now() + MS * 1_200_000).unwrap();
    world.check_at_rest().unwrap();
}

fn count(world: &World<Any>, fate: Fate) -> u64 {
    world.lane_ids().map(|lane| world.lane(lane).counts().of(fate)).sum()
}

const SMALL: [Request; 20] = [Request { question_bytes: 200, answer_bytes: 1_000 }; 20];
const LARGE: [Request; 20] = [Request { question_bytes: 9_000, answer_bytes: 14_000 }; 20];

#[test]
fn two_hosts_and_a_router_answer_each_other() {
    let mut world = asking(&[ethernet(1_500), ethernet(1_500)], &SMALL);
    // Twenty round trips of 4 ms, four at a time, after the neighbours' addresses were asked for: no question is lost.
    finish(&mut world, ms(100));
    assert!(Fate::ALL.into_iter().all(|fate| count(&world, fate) == 0));
}

#[test]
fn hosts_learn_what_the_path_takes() {
    let requests = [Request { question_bytes: 1_400, answer_bytes: 1_400 }; 20];
    let mut world = asking(&[ethernet(1_500), ethernet(1_300)], &requests);
    // The first four questions over IPv6 may be too big, and so may their answers; from then on hosts cut by themselves.
    finish(&mut world, ms(3_000));
}

#[test]
fn each_fault_alone_delays_answers_and_spoils_none() {
    let share = Ppm::percent(20);
    let burst = Burst { begin: Ppm::percent(2), end: Ppm::percent(20), loss: Ppm::ALWAYS };
    for (fate, faults) in [
        (Fate::Lost, Faults { loss: share, ..Faults::NONE }),
        (Fate::BurstLost, Faults { burst: Some(burst), ..Faults::NONE }),
        (Fate::Truncated, Faults { truncate: share, ..Faults::NONE }),
        (Fate::Duplicated, Faults { duplicate: share, duplicate_by: MS * 20, ..Faults::NONE }),
        (Fate::HeldBack, Faults { reorder: share, reorder_by: MS * 20, ..Faults::NONE }),
        (Fate::Corrupted, Faults { corrupt: Ppm::percent(5), corrupt_only_sets: true, ..Faults::NONE }),
    ] {
        let mut world = asking(&[ethernet(1_500), ethernet(1_500)], &SMALL);
        for lane in world.lane_ids() {
            world.schedule(ms(0), lane.link, Change::Faults { from: lane.from, faults }).unwrap();
        }
        finish(&mut world, ms(600_000));
        assert!(count(&world, fate) >= 4, "{fate}");
    }
}

#[test]
fn large_datagrams_survive_reordering_and_duplication_of_their_fragments() {
    let mut world = asking(&[ethernet(1_500), ethernet(1_300)], &LARGE);
    let faults = Faults {
        reorder: Ppm::percent(50),
        reorder_by: MS * 5,
        duplicate: Ppm::percent(20),
        duplicate_by: MS * 5,
        ..Faults::NONE
    };
    for lane in world.lane_ids() {
        world.schedule(ms(0), lane.link, Change::Faults { from: lane.from, faults }).unwrap();
    }
    finish(&mut world, ms(60_000));
    assert!(count(&world, Fate::HeldBack) > 200 && count(&world, Fate::Duplicated) > 100);
}

#[test]
fn a_lost_carrier_holds_answers_up_until_it_is_back() {
    let mut world = asking(&[ethernet(1_500), ethernet(1_500)], &SMALL);
    world.schedule(ms(5), LinkId(1), Change::Carrier(false)).unwrap();
    world.schedule(ms(10_000), LinkId(1), Change::Carrier(true)).unwrap();
    world.run_until(ms(10_000)).unwrap();
    assert!(!answered(&world));
    finish(&mut world, ms(15_000));
}
