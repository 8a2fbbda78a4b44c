//! The world with small nodes: the calls that each node receives, their order, and the violations that are found.

use std::cell::RefCell;
use std::rc::Rc;

use siga_stack::stack::Transmit;
use siga_stack::time::Duration;

use super::*;
use crate::fault::Fate;
use crate::rng::Ppm;

const MS: Duration = Duration::from_millis(1);

/// A node for every purpose of these tests.
#[derive(Debug, Default)]
struct Little {
    /// Returns received frames.
    echo: bool,
    /// Forwards received frames to this device.
    forward_to: Option<DeviceId>,
    /// Frames to send, by their device.
    outbox: Vec<(DeviceId, Vec<u8>, Marks)>,
    inbox: Vec<(Instant, DeviceId, Vec<u8>)>,
    deadline: Option<Instant>,
    /// What the deadline becomes when it is woken.
    next_deadline: Option<Instant>,
    woken: Vec<Instant>,
    told: Vec<(Instant, DeviceId, LinkState)>,
    /// Small frames to send.
    burst: u32,
    /// Times that it wants to be woken once more at once.
    restless: u32,
    /// Or always after this time.
    again_after: Option<Duration>,
    left: Vec<String>,
    wrong: Option<String>,
}

impl Node for Little {
    fn handle_frame(&mut self, now: Instant, at: DeviceId, frame: &[u8], marks: Marks, out: &mut Vec<Outgoing>) {
        self.inbox.push((now, at, frame.to_vec()));
        if self.echo {
            self.outbox.push((at, frame.to_vec(), marks));
        }
        if let Some(device) = self.forward_to {
            out.push(Outgoing { device, bytes: frame.to_vec(), marks });
        }
    }

    fn poll_transmit(&mut self, _: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit> {
        if self.burst > 0 {
            self.burst -= 1;
            return Some(Transmit { len: 60, marks: Marks::default() });
        }
        let at = self.outbox.iter().position(|frame| frame.0 == device)?;
        let (_, bytes, marks) = self.outbox.remove(at);
        into[..bytes.len()].copy_from_slice(&bytes);
        Some(Transmit { len: bytes.len(), marks })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.woken.push(now);
        let again = self.again_after.map(|time| now + time);
        self.deadline = if self.restless > 0 { Some(now) } else { again.or(self.next_deadline) };
        self.restless = self.restless.saturating_sub(1);
    }

    fn link_changed(&mut self, now: Instant, device: DeviceId, state: LinkState) {
        self.told.push((now, device, state));
    }

    fn check(&self) -> Result<(), String> {
        self.wrong.clone().map_or(Ok(()), Err)
    }

    fn left_over(&self) -> Vec<String> {
        self.left.clone()
    }
}

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);
const LINK: LinkId = LinkId(0);
const A_TO_B: LaneId = LaneId { link: LINK, from: Side::A };
const B_TO_A: LaneId = LaneId { link: LINK, from: Side::B };

fn end(node: NodeId, device: u16) -> End {
    End { node, device: DeviceId(device) }
}

fn ms(ms: u64) -> Instant {
    Instant::default() + Duration::from_millis(ms)
}

/// Two nodes and a link of 10 ms between their devices 0.
fn pair(a: Little, b: Little) -> World<Little> {
    let mut world = World::new(1);
    assert_eq!((world.add(a), world.add(b)), (Ok(A), Ok(B)));
    let wire = Wire { delay: MS * 10, ..Wire::ethernet() };
    assert_eq!(world.link(end(A, 0), end(B, 0), wire), Ok(LINK));
    world
}

fn send(world: &mut World<Little>, node: NodeId, bytes: &[u8]) {
    world.drive(node, |node, _| node.outbox.push((DeviceId(0), bytes.to_vec(), Marks::default())));
}

fn faults(world: &mut World<Little>, at: Instant, faults: Faults) {
    world.schedule(at, LINK, Change::Faults { from: Side::A, faults }).unwrap();
}

#[test]
fn a_frame_and_its_echo_take_a_round_trip() {
    let mut world = pair(Little::default(), Little { echo: true, ..Little::default() });
    send(&mut world, A, b"hello");
    world.run_until(ms(19)).unwrap();
    assert_eq!((world.node(A).inbox.len(), world.now()), (0, ms(19)));
    assert_eq!(
        world.check_at_rest().unwrap_err().what,
        Wrong::LeftOver("link 0 b>a: 1 frames are still on their way".into())
    );
    world.run_until(ms(20)).unwrap();
    assert_eq!(world.node(B).inbox, [(ms(10), DeviceId(0), b"hello".to_vec())]);
    assert_eq!(world.node(A).inbox, [(ms(20), DeviceId(0), b"hello".to_vec())]);
    world.check_at_rest().unwrap();
}

#[test]
fn frames_of_one_time_arrive_in_the_order_they_were_sent() {
    let mut world = pair(Little::default(), Little::default());
    for byte in 0..100 {
        send(&mut world, A, &[byte]);
    }
    world.run_until(ms(10)).unwrap();
    let bytes: Vec<u8> = world.node(B).inbox.iter().map(|frame| frame.2[0]).collect();
    assert_eq!(bytes, (0..100).collect::<Vec<u8>>());
}

#[test]
fn the_schedule_switches_faults_on_and_off_in_one_direction() {
    let mut world = pair(Little::default(), Little { echo: true, ..Little::default() });
    faults(&mut world, ms(100), Faults { loss: Ppm::ALWAYS, ..Faults::NONE });
    faults(&mut world, ms(200), Faults::NONE);
    for at in [50, 99, 100, 150, 199, 200, 250] {
        // The owner acts after what the schedule has for that time.
        world.run_until(ms(at)).unwrap();
        send(&mut world, A, &[1]);
        send(&mut world, B, &[2]);
    }
    world.run_until(ms(400)).unwrap();
    assert_eq!(world.lane(A_TO_B).counts().of(Fate::Lost), 3);
    let got = |byte| world.node(A).inbox.iter().filter(|frame| frame.2 == [byte]).count();
    assert_eq!((got(1), got(2)), (4, 7));
    world.check_at_rest().unwrap();
}

#[test]
fn nodes_are_told_of_carrier_and_mtu_once_per_change() {
    let mut world = pair(Little::default(), Little::default());
    let changes = [Change::Carrier(false), Change::Carrier(false), Change::Carrier(true), Change::Mtu(1_280)];
    for (at, change) in (1..).zip(changes) {
        world.schedule(ms(at), LINK, change).unwrap();
    }
    world.run_until(ms(10)).unwrap();
    let told = |at, carrier, mtu| (ms(at), DeviceId(0), LinkState { carrier, mtu });
    let all = [told(0, true, 1_500), told(1, false, 1_500), told(3, true, 1_500), told(4, true, 1_280)];
    assert_eq!(world.node(A).told, all);
    assert_eq!(world.node(B).told, all);
    send(&mut world, A, &[0; 1_295]);
    send(&mut world, A, &[0; 1_294]);
    world.run_until(ms(30)).unwrap();
    assert_eq!((world.lane(A_TO_B).counts().of(Fate::TooLong), world.node(B).inbox.len()), (1, 1));
}

#[test]
fn a_carrier_lost_on_the_way_loses_the_frame() {
    let mut world = pair(Little::default(), Little::default());
    send(&mut world, A, &[1]);
    world.schedule(ms(5), LINK, Change::Carrier(false)).unwrap();
    world.schedule(ms(6), LINK, Change::Carrier(true)).unwrap();
    world.run_until(ms(7)).unwrap();
    send(&mut world, A, &[2]);
    world.run_until(ms(30)).unwrap();
    assert_eq!(world.node(B).inbox, [(ms(17), DeviceId(0), vec![2])]);
    world.check_at_rest().unwrap();
}

#[test]
fn a_node_is_woken_at_its_deadline_and_only_then() {
    let mut world = pair(Little::default(), Little::default());
    world.drive(A, |node, _| node.deadline = Some(ms(50)));
    world.drive(A, |node, _| node.deadline = Some(ms(30)));
    world.run_until(ms(20)).unwrap();
    world.drive(A, |node, _| node.deadline = Some(ms(40)));
    world.drive(A, |node, _| node.next_deadline = Some(ms(70)));
    world.run_until(ms(60)).unwrap();
    assert_eq!(world.node(A).woken, [ms(40)]);
    world.drive(A, |node, _| node.deadline = None);
    world.run_until(ms(100)).unwrap();
    assert_eq!(world.node(A).woken, [ms(40)]);
}

#[test]
fn a_deadline_that_does_not_move_is_a_violation() {
    let stuck = Little { next_deadline: Some(ms(1)), ..Little::default() };
    let mut world = pair(stuck, Little::default());
    world.drive(A, |node, _| node.deadline = Some(ms(1)));
    let violation = world.run_until(ms(10)).unwrap_err();
    assert_eq!(violation, Violation { at: ms(1), what: Wrong::Spinning(A) });
    assert_eq!(world.run_until(ms(20)).unwrap_err(), violation);
    assert_eq!(world.now(), ms(1));
}

#[test]
fn a_deadline_that_moves_by_next_to_nothing_is_a_violation() {
    for (again_after, restless) in [(Duration::from_micros(1), true), (MS, false)] {
        let mut world = pair(Little { again_after: Some(again_after), ..Little::default() }, Little::default());
        world.drive(A, |node, _| node.deadline = Some(ms(1)));
        let violation = world.run_until(ms(2_500)).err().map(|violation| violation.what);
        assert_eq!(violation, restless.then_some(Wrong::Restless(A)));
    }
}

#[test]
fn a_node_that_never_falls_silent_is_a_violation() {
    let mut world = pair(Little::default(), Little::default());
    world.drive(A, |node, _| node.burst = u32::MAX);
    assert_eq!(world.violation().unwrap().what, Wrong::NeverSilent(A));
    assert_eq!(world.lane(A_TO_B).in_flight(), crate::limits::FRAMES_IN_FLIGHT_MAX - 1);
}

#[test]
fn what_a_node_may_do_at_once_it_may_do_again_later() {
    let mut world = pair(Little::default(), Little::default());
    world.schedule(ms(0), LINK, Change::Carrier(false)).unwrap();
    for at in [1, 2] {
        world.run_until(ms(at)).unwrap();
        world.drive(A, |node, _| node.burst = FRAMES_PER_INSTANT_MAX);
        world.drive(B, |node, _| (node.deadline, node.restless) = (Some(ms(at)), WAKES_PER_INSTANT_MAX - 1));
    }
    world.run_until(ms(3)).unwrap();
    assert_eq!(world.node(B).woken.len(), 2 * WAKES_PER_INSTANT_MAX as usize);
}

#[test]
fn links_have_luck_of_their_own() {
    let mut world = pair(Little::default(), Little::default());
    world.link(end(A, 1), end(B, 1), Wire { delay: MS * 10, ..Wire::ethernet() }).unwrap();
    let faults = Faults { loss: Ppm::percent(50), ..Faults::NONE };
    for (link, from) in [(LINK, Side::A), (LINK, Side::B), (LinkId(1), Side::A)] {
        world.schedule(ms(0), link, Change::Faults { from, faults }).unwrap();
    }
    world.run_until(ms(0)).unwrap();
    for byte in 0..100 {
        send(&mut world, A, &[byte]);
        send(&mut world, B, &[byte]);
        world.drive(A, |node, _| node.outbox.push((DeviceId(1), vec![byte], Marks::default())));
    }
    world.run_until(ms(100)).unwrap();
    let got = |node, device| {
        let inbox = world.node(node).inbox.iter();
        inbox.filter(|frame| frame.1 == DeviceId(device)).map(|frame| frame.2[0]).collect::<Vec<u8>>()
    };
    assert!(got(A, 0) != got(B, 0) && got(B, 0) != got(B, 1) && got(A, 0) != got(B, 1));
}

#[test]
fn frames_that_do_not_add_up_are_a_violation() {
    let mut world = pair(Little::default(), Little::default());
    let lane = &mut world.links[0].lanes[0];
    let passage = lane.send(ms(0), vec![0], Marks::default());
    lane.arrive(&passage.arrivals[0]).unwrap();
    world.check_at_rest().unwrap();
    world.links[0].lanes[0].arrive(&passage.arrivals[0]).unwrap();
    assert_eq!(world.check_at_rest().unwrap_err().what, Wrong::Unaccounted(A_TO_B));
}

#[test]
fn two_nodes_that_echo_each_other_without_delay_are_a_violation() {
    let echo = || Little { echo: true, ..Little::default() };
    let mut world = pair(echo(), echo());
    world.schedule(ms(0), LINK, Change::Wire(Wire::ethernet())).unwrap();
    world.run_until(ms(0)).unwrap();
    send(&mut world, A, &[1]);
    assert!(matches!(world.run_until(ms(1)).unwrap_err().what, Wrong::NeverSilent(_)));
}

#[test]
fn what_a_node_passes_on_leaves_by_the_device_it_names() {
    let mut world = pair(Little::default(), Little { forward_to: Some(DeviceId(1)), ..Little::default() });
    let c = world.add(Little::default()).unwrap();
    world.link(end(B, 1), end(c, 5), Wire::ethernet()).unwrap();
    send(&mut world, A, b"on");
    world.run_until(ms(10)).unwrap();
    assert_eq!(world.node(c).inbox, [(ms(10), DeviceId(5), b"on".to_vec())]);
    world.drive(B, |node, _| node.forward_to = Some(DeviceId(2)));
    send(&mut world, A, b"on");
    assert_eq!(world.run_until(ms(20)).unwrap_err().what, Wrong::NoSuchDevice(B, DeviceId(2)));
}

#[test]
fn marks_cross_only_links_that_agreed_to_them() {
    let marks = Marks { checksum_unfilled: true, ..Marks::default() };
    let mut world = pair(Little::default(), Little { echo: true, ..Little::default() });
    world.schedule(ms(0), LINK, Change::Wire(Wire { marks_agreed: true, ..Wire::ethernet() })).unwrap();
    world.schedule(ms(1), LINK, Change::Wire(Wire::ethernet())).unwrap();
    world.run_until(ms(0)).unwrap();
    world.drive(A, |node, _| node.outbox.push((DeviceId(0), vec![0], marks)));
    world.run_until(ms(1)).unwrap();
    assert_eq!(world.node(A).inbox.len(), 1);
    world.drive(A, |node, _| node.outbox.push((DeviceId(0), vec![0], marks)));
    assert_eq!(world.violation().unwrap().what, Wrong::MarksNotAgreed(A_TO_B));
}

#[test]
fn progress_has_a_bound() {
    let mut world = pair(Little::default(), Little { echo: true, ..Little::default() });
    send(&mut world, A, &[1]);
    let echoed = |world: &World<Little>| !world.node(A).inbox.is_empty();
    assert_eq!(world.run_until_done(ms(100), "an echo", echoed), Ok(ms(20)));
    world.drive(A, |node, _| node.inbox.clear());
    faults(&mut world, ms(20), Faults { black_hole_over: Some(0), ..Faults::NONE });
    world.run_until(ms(20)).unwrap();
    send(&mut world, A, &[1]);
    let violation = world.run_until_done(ms(50), "an echo", echoed).unwrap_err();
    assert_eq!(violation.what, Wrong::NoProgress { within: MS * 30, what: "an echo".into() });
    assert_eq!((violation.at, world.now()), (ms(50), ms(50)));
}

#[test]
fn what_a_node_finds_wrong_or_holds_on_to_is_a_violation() {
    let mut world = pair(Little::default(), Little::default());
    world.drive(B, |node, _| node.left.push("half a packet".into()));
    assert_eq!(world.check_at_rest().unwrap_err().what, Wrong::LeftOver("node 1: half a packet".into()));
    world.drive(B, |node, _| node.wrong = Some("a bad byte".into()));
    assert_eq!(world.run_until(ms(1)).unwrap_err().what, Wrong::Node(B, "a bad byte".into()));
}

#[test]
fn events_that_wait_have_a_bound() {
    let mut world = pair(Little::default(), Little::default());
    for _ in 0..EVENTS_PENDING_MAX {
        world.schedule(ms(5), LINK, Change::Carrier(true)).unwrap();
    }
    assert_eq!(world.violation(), None);
    world.schedule(ms(5), LINK, Change::Carrier(true)).unwrap();
    assert_eq!(world.violation().unwrap().what, Wrong::TooManyPending);
}

#[test]
fn a_world_that_cannot_be_built_says_why() {
    let mut world = pair(Little::default(), Little::default());
    let wire = Wire::ethernet();
    assert_eq!(world.link(end(A, 1), end(B, 0), wire), Err(BuildError::DeviceTaken));
    assert_eq!(world.link(end(A, 1), end(A, 1), wire), Err(BuildError::DeviceTaken));
    assert_eq!(world.link(end(A, 1), end(NodeId(2), 0), wire), Err(BuildError::NoSuchNode));
    assert_eq!(world.link(end(A, 1), end(B, 64), wire), Err(BuildError::TooManyDevices));
    // A failed call changes nothing.
    assert_eq!(world.link(end(A, 1), end(B, 1), wire), Ok(LinkId(1)));
    assert_eq!(world.schedule(ms(0), LinkId(2), Change::Mtu(0)), Err(BuildError::NoSuchLink));
    world.run_until(ms(1)).unwrap();
    assert_eq!(world.schedule(ms(0), LINK, Change::Mtu(0)), Err(BuildError::Past));
    for _ in 2..NODES_MAX {
        world.add(Little::default()).unwrap();
    }
    assert_eq!(world.add(Little::default()), Err(BuildError::TooManyNodes));
}

/// Frames over a faulty link: the trace as lines, and its hash.
fn traced(seed: u64) -> (Vec<String>, u64) {
    let mut world = World::new(seed);
    let lines = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&lines);
    world.watch(Box::new(move |event| seen.borrow_mut().push(event.to_string())));
    let a = world.add(Little::default()).unwrap();
    let b = world.add(Little { echo: true, ..Little::default() }).unwrap();
    let link = world.link(end(a, 0), end(b, 0), Wire { delay: MS, ..Wire::ethernet() }).unwrap();
    let faults = Faults { loss: Ppm::percent(30), corrupt: Ppm::percent(30), jitter: MS, ..Faults::NONE };
    world.schedule(ms(0), link, Change::Faults { from: Side::B, faults }).unwrap();
    world.run_until(ms(0)).unwrap();
    for byte in 0..50 {
        send(&mut world, a, &[byte; 50]);
    }
    world.run_until(ms(10)).unwrap();
    let lines = lines.borrow().clone();
    assert_eq!(world.events(), lines.len() as u64);
    (lines, world.hash())
}

#[test]
fn the_same_seed_is_the_same_trace_and_another_seed_is_another() {
    let (lines, hash) = traced(5);
    assert_eq!(traced(5), (lines.clone(), hash));
    // The value is the same on every machine until a change of what a seed means.
    assert_eq!(hash, 0xbdeab42129d227ad);
    let (others, other) = traced(6);
    assert!(others != lines && other != hash);
    assert!(lines.iter().any(|line| line.ends_with("link 0 b>a lost")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.ends_with("link 0 b>a corrupted")), "{lines:#?}");
}

#[test]
fn a_capture_holds_what_was_sent_and_what_arrived() {
    let mut world = World::new(1);
    world.capture_links();
    world.add(Little::default()).unwrap();
    world.add(Little { echo: true, ..Little::default() }).unwrap();
    world.link(end(A, 0), end(B, 0), Wire { delay: MS * 10, ..Wire::ethernet() }).unwrap();
    faults(&mut world, ms(100), Faults { loss: Ppm::ALWAYS, ..Faults::NONE });
    send(&mut world, A, b"round trip");
    world.run_until(ms(100)).unwrap();
    send(&mut world, A, b"not to be");
    world.run_until(ms(200)).unwrap();
    let bytes = world.capture(LINK).unwrap().bytes();
    let count = |what: &[u8]| bytes.windows(what.len()).filter(|window| *window == what).count();
    assert_eq!((count(b"round trip"), count(b"not to be"), count(b"lost")), (4, 1, 1));
    assert_eq!(world.lane(B_TO_A).counts().arrived, 1);
}
