//! TCP between real stacks in the world, one situation at a time.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use siga_sim::fault::{Fate, Faults, Medium, Wire};
use siga_sim::host::Host;
use siga_sim::net;
use siga_sim::rng::Ppm;
use siga_sim::tcp::{Conduct, Dial, End, Last, Leeway, Listen, Programs, Script, judge};
use siga_sim::trace::{LaneId, LinkId, NodeId, Side};
use siga_sim::world::{self, Change, World};
use siga_stack::link::frame::DeviceId;
use siga_stack::sockets::TcpOptions;
use siga_stack::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const OUT: LaneId = LaneId { link: LinkId(0), from: Side::A };
const BACK: LaneId = LaneId { link: LinkId(0), from: Side::B };

fn ms(ms: u64) -> Instant {
    Instant::default() + Duration::from_millis(ms)
}

fn wire(mtu: usize) -> Wire {
    Wire { mtu, delay: MS * 5, ..Wire::ethernet() }
}

fn conduct(bytes: u64, end: End) -> Conduct {
    let (write_pause, read_pause) = (Duration::ZERO, Duration::ZERO);
    Conduct { bytes, write_bytes_max: 10_000, write_pause, read_bytes_max: 10_000, read_pause, turns: None, end }
}

fn script(bytes: [u64; 2]) -> Script {
    let sides = [conduct(bytes[0], End::Shutdown), conduct(bytes[1], End::AfterPeer)];
    Script { sides, leeway: Leeway::default() }
}

/// How connections are made in a test.
#[derive(Clone, Copy)]
struct Way {
    v6: bool,
    backlog: usize,
    crossed: bool,
}

const PLAIN: Way = Way { v6: false, backlog: 100, crossed: false };

/// A row of hosts and routers over these wires; the first host opens a connection to the last for each script.
fn row(wires: &[Wire], scripts: &[Script], way: Way) -> World<Host> {
    let mut world = World::new(5);
    let last = u8::try_from(wires.len()).unwrap();
    let ends: [IpAddr; 2] = if way.v6 {
        [net::v6(0, 1).into(), net::v6(last - 1, 2).into()]
    } else {
        [net::v4(0, 1).into(), net::v4(last - 1, 2).into()]
    };
    for place in 0..=last {
        let mut host = Host::new(net::stack(place.into(), place, wires).unwrap());
        host.tcp = Programs::new(Rc::from(scripts));
        let options = TcpOptions::default();
        let dial = |[own, peer]: [SocketAddr; 2], side| Dial {
            local: own,
            remote: peer,
            options,
            scripts: (0..scripts.len()).collect::<VecDeque<_>>(),
            at_once: 1_000,
            begin: ms(1),
            pause: Duration::ZERO,
            side,
        };
        let own_port = if way.crossed { 90 } else { 0 };
        if place == 0 {
            host.tcp.dial(dial([SocketAddr::new(ends[0], own_port), SocketAddr::new(ends[1], 80)], Side::A));
        } else if place == last && way.crossed {
            host.tcp.dial(dial([SocketAddr::new(ends[1], 80), SocketAddr::new(ends[0], own_port)], Side::B));
        } else if place == last {
            let (local, accept_pause) = (SocketAddr::new(ends[1], 80), Duration::ZERO);
            host.listen(Listen { local, backlog: way.backlog, options, accept_pause, closed: None }).unwrap();
        }
        world.add(host).unwrap();
    }
    for (left, wire) in (0..last).zip(wires) {
        let end = |node: u8, device: u16| world::End { node: NodeId(node.into()), device: DeviceId(device) };
        world.link(end(left, u16::from(left > 0)), end(left + 1, 0), *wire).unwrap();
    }
    world
}

/// All connections are over by then, as they have to be, and in the end nothing is left.
fn finish(world: &mut World<Host>, scripts: &[Script], by: Instant) {
    let done = |world: &World<Host>| world.node_ids().all(|node| world.node(node).is_hung_up());
    world.run_until_done(by, "all connections are over", done).unwrap();
    let reports: Vec<_> = world.node_ids().flat_map(|node| world.node(node).tcp.reports.clone()).collect();
    judge(scripts, &reports).unwrap();
    world.run_until(world.now() + MS * 1_200_000).unwrap();
    world.check_at_rest().unwrap();
}

#[test]
fn a_carrier_that_is_back_is_used_at_once_in_every_state() {
    let scripts = [script([200_000, 200_000])];
    let is_over = |world: &World<Host>| world.node_ids().all(|node| world.node(node).is_hung_up());
    let mut under_way = 0;
    // From opening on, every moment until all is over.
    for down in (0..200).step_by(3) {
        let mut world = row(&[wire(1_500)], &scripts, PLAIN);
        world.schedule(ms(down), LinkId(0), Change::Carrier(false)).unwrap();
        world.schedule(ms(60_000), LinkId(0), Change::Carrier(true)).unwrap();
        world.run_until(Instant::from_ns(ms(60_000).as_ns() - 1)).unwrap();
        if is_over(&world) {
            break;
        }
        under_way += 1;
        let sent = |world: &World<Host>| [OUT, BACK].map(|lane| world.lane(lane).counts().sent).iter().sum::<u64>();
        let before = sent(&world);
        world.run_until(ms(60_000)).unwrap();
        assert!(sent(&world) > before, "down at {down}: nothing is sent at once");
        // A timeout that doubled for a minute would be as long again.
        finish(&mut world, &scripts, ms(62_000));
    }
    assert!(under_way > 15, "{under_way}");
}

#[test]
fn an_mtu_that_falls_near_or_far_stops_no_stream() {
    for v6 in [false, true] {
        for link in 0..3 {
            let scripts = [script([500_000, 500_000])];
            let mut world = row(&[wire(8_992); 3], &scripts, Way { v6, ..PLAIN });
            world.schedule(ms(150), LinkId(link), Change::Mtu(1_280)).unwrap();
            finish(&mut world, &scripts, ms(2_000));
            let lane = |link, from| *world.lane(LaneId { link: LinkId(link), from }).counts();
            let lost: u64 = (0..3)
                .flat_map(|link| [lane(link, Side::A), lane(link, Side::B)])
                .map(|counts| counts.of(Fate::TooLong))
                .sum();
            assert_eq!(lost, 0, "everybody knows what the links take");
        }
    }
}

#[test]
fn a_black_hole_that_stays_slows_a_stream_and_does_not_stop_it() {
    for (v6, over) in [(false, 700), (false, 1_100), (true, 1_299), (true, 1_400)] {
        let scripts = [script([300_000, 0])];
        let mut world = row(&[wire(1_500), wire(1_500)], &scripts, Way { v6, ..PLAIN });
        let faults = Faults { black_hole_over: Some(over), ..Faults::NONE };
        world.schedule(ms(30), LinkId(1), Change::Faults { from: Side::A, faults }).unwrap();
        finish(&mut world, &scripts, ms(30_000));
        let lane = LaneId { link: LinkId(1), from: Side::A };
        assert!(world.lane(lane).counts().of(Fate::BlackHoled) > 0);
    }
}

#[test]
fn large_segments_go_whole_where_they_may_and_are_cut_where_they_may_not() {
    let memory = Wire { medium: Medium::Ip, marks_agreed: true, ..wire(1_500) };
    let scripts = [script([1_000_000, 0])];
    let mut world = row(&[memory, wire(1_500)], &scripts, PLAIN);
    // Were anything wrong with a frame without a checksum, nobody could find out.
    let faults = Faults { corrupt: Ppm::percent(20), corrupt_only_sets: true, ..Faults::NONE };
    world.schedule(ms(0), LinkId(0), Change::Faults { from: Side::A, faults }).unwrap();
    finish(&mut world, &scripts, ms(5_000));
    let counts = |link| *world.lane(LaneId { link: LinkId(link), from: Side::A }).counts();
    assert!(counts(1).sent > 690, "{} frames of a size", counts(1).sent);
    assert!(counts(0).sent * 3 < counts(1).sent, "{} large frames", counts(0).sent);
    assert_eq!(counts(0).of(Fate::Corrupted), 0);
}

#[test]
fn both_sides_may_open_at_once() {
    for v6 in [false, true] {
        let scripts = [script([100_000, 100_000])];
        let mut world = row(&[wire(1_500)], &scripts, Way { v6, crossed: true, ..PLAIN });
        finish(&mut world, &scripts, ms(1_000));
        let reports: Vec<_> = world.node_ids().flat_map(|node| world.node(node).tcp.reports.clone()).collect();
        assert!(reports.iter().all(|report| report.last == Last::Closed && report.read == 100_000));
    }
}

#[test]
fn hundreds_of_connections_at_once_get_through_a_backlog_of_four() {
    let scripts = [script([1_000, 2_000]); 300];
    let mut world = row(&[wire(1_500)], &scripts, Way { backlog: 4, ..PLAIN });
    finish(&mut world, &scripts, ms(10_000));
}
