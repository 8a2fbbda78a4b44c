//! Runs a complete scenario from a seed: a world, a schedule of faults, and checks that must succeed in spite of the faults.
//!
//! The seed determines everything. For some seconds of virtual time, faults begin and end. Then all links work again, and every
//! request and stream must complete before a time limit. At the end, no stack may have anything queued or buffered.

mod calls;
mod draw;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use siga_stack::link::frame::DeviceId;
use siga_stack::time::{Duration, Instant};

use crate::check::{Content, Violation, Wrong};
use crate::fault::{Burst, Fate, Faults, Medium, Wire};
use crate::host::{Host, Request};
use crate::net;
use crate::node::Node;
use crate::rng::{Ppm, Rng};
use crate::toy::Toy;
use crate::trace::{LaneId, LinkId, Side, Watcher};
use crate::world::{BuildError, Change, End, World};

/// Number of the random generator from which the scenario is drawn. It differs from the numbers of the links' generators, which
/// are small.
const PLAN: u64 = 1 << 32;
/// Maximum time from the end of the last fault to the arrival of the last byte or answer. Each program retries within a second. If
/// a neighbour did not answer, a stack asks for it again when a packet for the neighbour is sent.
const PROGRESS_WITHIN: Duration = Duration::from_secs(120);
/// Maximum time from the last byte or answer to the end of all activity. Stacks remove neighbour entries after ten minutes.
const REST_WITHIN: Duration = Duration::from_secs(1_200);
/// Maximum number of requests of one UDP client.
const REQUESTS_MAX: u64 = 60;
const ASKING_PORT: u16 = 2_000;
const ANSWERING_PORT: u16 = 7;
/// Maximum number of bytes that one end of the toy protocol (see [`crate::toy`]) sends.
const STREAM_BYTES_MAX: u64 = 300_000;

/// Losses in bursts of 20 frames on average. On average, 200 frames without losses precede a burst.
const BURST: Burst = Burst { begin: Ppm::new(5_000), end: Ppm::new(50_000), loss: Ppm::percent(90) };

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The name of the kind of scenario.
    pub name: &'static str,
    /// `Ok` if the run was correct, or the first violation.
    pub verdict: Result<(), Violation>,
    /// The hash of all events.
    pub hash: u64,
    /// The number of events.
    pub events: u64,
    /// For each fate, the number of frames that had it.
    pub fates: Vec<(Fate, u64)>,
    /// How much virtual time the run took.
    pub virtual_time: Duration,
    /// A pcapng file for each link, if captures were requested.
    pub captures: Vec<Vec<u8>>,
}

/// What [`run`] records of a run, in addition to the outcome.
#[derive(Default)]
pub struct Show {
    /// A function that is called with every event.
    pub watcher: Option<Watcher>,
    /// True if all links are captured.
    pub capture: bool,
}

impl fmt::Debug for Show {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Show").field("capture", &self.capture).finish_non_exhaustive()
    }
}

/// Runs the scenario of a seed.
///
/// # Errors
/// Returns an error if the world could not be built. Such an error is a bug in this crate and does not depend on the seed.
pub fn run(seed: u64, show: Show) -> Result<Outcome, BuildError> {
    let mut rng = Rng::new(seed, PLAN);
    // One scenario in eight uses the toy protocol, which tests the world itself.
    match rng.below(8) {
        0 => streams(new_world(seed, show), seed, &mut rng),
        1 | 2 => questions(new_world(seed, show), seed, &mut rng),
        _ => calls::calls(new_world(seed, show), seed, &mut rng),
    }
}

/// What must happen in a run after the last fault.
struct Goal<'a, N> {
    /// The name of the kind of scenario.
    name: &'static str,
    /// The goal in words.
    what: &'static str,
    /// Maximum time from the end of the last fault to the goal.
    within: Duration,
    /// Returns true if the goal is reached.
    done: &'a dyn Fn(&World<N>) -> bool,
    /// Checks the results of the run after the goal is reached.
    judge: &'a dyn Fn(&World<N>) -> Result<(), String>,
    /// Describes what is still missing, if the goal is not reached in time.
    waiting: &'a dyn Fn(&World<N>) -> Vec<String>,
}

impl<'a, N> Goal<'a, N> {
    /// Creates a goal whose results need no further check.
    fn new(name: &'static str, what: &'static str, done: &'a dyn Fn(&World<N>) -> bool) -> Self {
        Self { name, what, within: PROGRESS_WITHIN, done, judge: &|_| Ok(()), waiting: &|_| Vec::new() }
    }
}

/// Runs a UDP client and a UDP server on each of two hosts with routers between them. One client uses IPv4, and the other IPv6.
fn questions(mut world: World<Host>, seed: u64, rng: &mut Rng) -> Result<Outcome, BuildError> {
    let wires: Vec<Wire> = (0..rng.between(2, 4)).map(|_| draw_wire(rng)).collect();
    let last = u8::try_from(wires.len()).map_err(|_| BuildError::TooManyLinks)?;
    let v4 = [net::v4(0, 1), net::v4(last - 1, 2)].map(IpAddr::from);
    let v6 = [net::v6(last - 1, 2), net::v6(0, 1)].map(IpAddr::from);
    for place in 0..=last {
        let mut host = Host::new(net::stack(seed ^ u64::from(place), place, &wires)?);
        for ([asker, answerer], [asking, answering]) in [([0, last], v4), ([last, 0], v6)] {
            let (asking, answering) =
                (SocketAddr::new(asking, ASKING_PORT), SocketAddr::new(answering, ANSWERING_PORT));
            if place == answerer {
                host.answer(answering).map_err(|_| BuildError::Stack)?;
            }
            if place == asker {
                host.ask(asking, answering, &draw_requests(rng)).map_err(|_| BuildError::Stack)?;
            }
        }
        world.add(host)?;
    }
    let links = world.link_row(&wires)?;
    let done = |world: &World<Host>| world.node_ids().all(|node| world.node(node).is_done());
    let well_at = plan(&mut world, rng, &links)?;
    Ok(play(world, well_at, &Goal::new("requests over UDP", "every request is answered", &done)))
}

fn new_world<N: Node>(seed: u64, show: Show) -> World<N> {
    let mut world = World::new(seed);
    if let Some(watcher) = show.watcher {
        world.watch(watcher);
    }
    if show.capture {
        world.capture_links();
    }
    world
}

/// Runs two ends of the toy protocol over one link.
fn streams(mut world: World<Toy>, seed: u64, rng: &mut Rng) -> Result<Outcome, BuildError> {
    let contents = [0, 1].map(|side| (Content::new(seed ^ side), rng.below(STREAM_BYTES_MAX)));
    let a = world.add(Toy::new(contents[0], contents[1]))?;
    let b = world.add(Toy::new(contents[1], contents[0]))?;
    let end = |node| End { node, device: DeviceId(0) };
    let links = [world.link(end(a), end(b), Wire { medium: Medium::Ip, ..draw_wire(rng) })?];
    let done = |world: &World<Toy>| world.node(a).is_done() && world.node(b).is_done();
    let well_at = plan(&mut world, rng, &links)?;
    Ok(play(world, well_at, &Goal::new("streams of the toy protocol", "both streams arrive whole", &done)))
}

/// Runs a world until its faults have ended, then until its goal is reached, and then until all activity has ended.
fn play<N: Node>(mut world: World<N>, well_at: Instant, goal: &Goal<'_, N>) -> Outcome {
    let mut verdict = world
        .run_until(well_at)
        .and_then(|()| world.run_until_done(well_at + goal.within, goal.what, goal.done))
        .and_then(|at| {
            let judged = (goal.judge)(&world);
            judged.map_err(|what| Violation { at, what: Wrong::Unlawful(what) })?;
            world.run_until(at + REST_WITHIN)
        })
        .and_then(|()| world.check_at_rest());
    if let Err(Violation { what: Wrong::NoProgress { what, .. }, .. }) = &mut verdict {
        *what = [vec![std::mem::take(what)], (goal.waiting)(&world)].concat().join("\n  ");
    }
    let links = world.lane_ids().filter(|lane| lane.from == Side::A).map(|lane| lane.link);
    let captures = links.filter_map(|link| world.capture(link)).map(|capture| capture.bytes().to_vec());
    let count = |fate| world.lane_ids().map(|lane| world.lane(lane).counts().of(fate)).sum();
    Outcome {
        name: goal.name,
        verdict,
        fates: Fate::ALL.into_iter().map(|fate| (fate, count(fate))).collect(),
        hash: world.hash(),
        events: world.events(),
        virtual_time: world.now().since(Instant::default()),
        captures: captures.collect(),
    }
}

fn draw_requests(rng: &mut Rng) -> Vec<Request> {
    let body = |rng: &mut Rng| {
        let most = [100, 1_400, 4_000, 20_000][rng.index(4)];
        rng.index(most)
    };
    (0..rng.between(1, REQUESTS_MAX)).map(|_| Request { question_bytes: body(rng), answer_bytes: body(rng) }).collect()
}

/// Draws the properties of a link. They are such that a stream can be sent over the link in reasonable time.
fn draw_wire(rng: &mut Rng) -> Wire {
    let rates = [None, Some(10_000_000), Some(100_000_000), Some(1_000_000_000)];
    Wire {
        medium: Medium::Ethernet,
        mtu: [1_280, 1_400, 1_500, 8_992, 57_344][rng.index(5)],
        delay: Duration::from_micros(rng.below(40_000)),
        rate_bits_per_s: rates[rng.index(rates.len())],
        queue_frames_max: 1_000,
        marks_agreed: false,
    }
}

/// Draws the faults of one direction of a link. Each kind of fault is used with a probability of one third, but a black hole with
/// a probability of 10%.
fn draw_faults(rng: &mut Rng) -> Faults {
    let third = Ppm::new(333_333);
    let some = |rng: &mut Rng, most: u32| {
        if rng.chance(third) { Ppm::new(u32::try_from(rng.below(u64::from(most))).unwrap_or(0)) } else { Ppm::NEVER }
    };
    let millis = |rng: &mut Rng, most: u64| Duration::from_micros(rng.between(1, most * 1_000));
    Faults {
        loss: some(rng, 300_000),
        burst: rng.chance(third).then_some(BURST),
        corrupt: some(rng, 200_000),
        corrupt_bits_max: 1,
        corrupt_only_sets: true,
        truncate: some(rng, 100_000),
        duplicate: some(rng, 300_000),
        duplicate_by: millis(rng, 50),
        reorder: some(rng, 300_000),
        reorder_by: millis(rng, 50),
        jitter: if rng.chance(third) { millis(rng, 20) } else { Duration::ZERO },
        mark_over: None,
        black_hole_over: rng.chance(Ppm::percent(10)).then(|| rng.index(1_500)),
    }
}

/// Schedules the beginnings and ends of faults on these links. Returns the time at which the last fault ends.
fn plan<N: Node>(world: &mut World<N>, rng: &mut Rng, links: &[LinkId]) -> Result<Instant, BuildError> {
    let well_at = Instant::default() + Duration::from_millis(rng.between(100, 10_000));
    // The times are drawn so that the first milliseconds have as many faults as the last seconds, because streams over a fast link
    // end soon.
    let sometime = |rng: &mut Rng| Instant::from_ns(rng.below(well_at.as_ns()) >> rng.below(20));
    for &link in links {
        let wire = *world.lane(LaneId { link, from: Side::A }).wire();
        for _ in 0..rng.below(6) {
            let from = if rng.chance(Ppm::percent(50)) { Side::A } else { Side::B };
            let change = match rng.below(8) {
                0 => Change::Carrier(false),
                1 => Change::Carrier(true),
                2 => Change::Mtu(wire.mtu.min([576, 1_280, 1_400][rng.index(3)])),
                3 => Change::Wire(Wire { queue_frames_max: rng.index(20), rate_bits_per_s: Some(1_000_000), ..wire }),
                _ => Change::Faults { from, faults: draw_faults(rng) },
            };
            world.schedule(sometime(rng), link, change)?;
        }
        for from in [Side::A, Side::B] {
            world.schedule(well_at, link, Change::Faults { from, faults: Faults::NONE })?;
        }
        world.schedule(well_at, link, Change::Carrier(true))?;
        world.schedule(well_at, link, Change::Wire(wire))?;
    }
    Ok(well_at)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// Enough seeds to have every kind of world and every fault among them.
    const SEEDS: u64 = 200;

    /// Seeds that a search found, and whose runs failed until the stack was corrected.
    ///
    /// - 1795664406113: data for a small window waited with the backoff of the retransmission timeout.
    const FOUND: [u64; 1] = [1_795_664_406_113];

    #[test]
    fn the_seeds_that_once_failed_pass() {
        for seed in FOUND {
            assert_eq!(run(seed, Show::default()).unwrap().verdict, Ok(()), "cargo xtask sim --seed {seed}");
        }
    }

    #[test]
    fn the_fixed_seeds_pass_and_mean_the_same_again() {
        let (mut hashes, mut fates, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 0..SEEDS {
            let outcome = run(seed, Show::default()).unwrap();
            assert_eq!(outcome.verdict, Ok(()), "cargo xtask sim --seed {seed}");
            if seed % 8 == 0 {
                assert_eq!(run(seed, Show::default()).unwrap(), outcome, "seed {seed}");
            }
            hashes.push(outcome.hash);
            fates.push(outcome.fates);
            names.push(outcome.name);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 2 + draw::Kind::ALL.len(), "{names:?}");
        for fate in Fate::ALL {
            // No node sends as much as a link holds, and only bottlenecks mark frames.
            let never = matches!(fate, Fate::TooManyInFlight | Fate::Marked);
            let count: u64 = fates.iter().flatten().filter(|(befell, _)| *befell == fate).map(|(_, count)| count).sum();
            assert_eq!(count == 0, never, "{fate}: {count}");
        }
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(u64::try_from(hashes.len()), Ok(SEEDS));
    }

    #[test]
    fn looking_changes_nothing() {
        let seen = Rc::new(Cell::new(0));
        let count = Rc::clone(&seen);
        let watcher: Watcher = Box::new(move |_| count.set(count.get() + 1));
        let shown = run(3, Show { watcher: Some(watcher), capture: true }).unwrap();
        assert_eq!((seen.get(), shown.captures.len()), (shown.events, 4));
        assert_eq!(Outcome { captures: Vec::new(), ..shown }, run(3, Show::default()).unwrap());
    }
}
