//! A peer that writes anything at any time: nothing panics, nothing is read that is not there, a violation is reported and stays
//! reported, and the sound end goes on with others.
//!
//! The hostile memory is an arena of the right size: to its owner an area of bytes, to its peer the memory of a link. Each world
//! follows from one number, which is shown if it fails; where a thread writes meanwhile, only what it writes follows.
#![expect(clippy::unwrap_used, reason = "a test says what it wants by failing")]

use siga_ring::arena::{OwnArena, PeerArena};
use siga_ring::doorbell::{self, Notified, NotifyFd, WakeFd};
use siga_ring::{Link, OwnMemory, PeerMemory, ReserveError, Retained, Shape, Violation};
use std::sync::Arc;

/// Where the words of an end lie, and where its buffers begin (ARCHITECTURE.md, "The memory of a ring").
const CONSUMED: usize = 0;
const FRAMES_NOTIFY_THRESHOLD: usize = 128;
const PRODUCED: usize = 256;
const ROOM_NOTIFY_THRESHOLD: usize = 384;
const BUFFERS: usize = 4_096;

/// Numbers by which a world is drawn (splitmix64).
struct Draw(u64);

impl Draw {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64).try_into().unwrap()
    }
}

/// What a hostile end has.
struct Evil {
    memory: OwnArena,
    shape: Shape,
    notify_fd: NotifyFd,
    wake_fd: WakeFd,
    /// The sound end's memory.
    theirs: PeerArena,
}

impl Evil {
    fn word(&mut self, at: usize, value: u64) {
        self.memory.write(at, &value.to_ne_bytes()).unwrap();
    }

    /// A word of the sound end.
    fn theirs(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        self.theirs.copy_to(at, &mut word).unwrap();
        u64::from_ne_bytes(word)
    }

    /// A count as a sound peer would have it.
    fn count(&mut self, draw: &mut Draw) {
        if draw.below(2) == 0 {
            let produced = self.theirs(PRODUCED);
            self.word(CONSUMED, produced);
        } else {
            let most = self.theirs(CONSUMED) + self.shape.buffer_count() as u64;
            self.word(PRODUCED, most);
        }
    }

    /// A value that is nearly right, or not at all.
    fn value(&self, draw: &mut Draw) -> u64 {
        match draw.below(8) {
            0 | 1 => self.theirs(CONSUMED) + draw.bits() % 12,
            2 | 3 => self.theirs(PRODUCED).saturating_sub(draw.bits() % 12),
            4 => (draw.bits() % 70_000) | ((draw.bits() & 1) << 63),
            5 => 1 << draw.below(64),
            6 => u64::MAX - draw.bits() % 4,
            _ => draw.bits(),
        }
    }

    /// One act: a count as it should be, or a word, the head of a frame, bytes anywhere, rings and none that are heard.
    fn act(&mut self, draw: &mut Draw) {
        match draw.below(100) {
            0 => {
                let value = self.value(draw);
                self.word([CONSUMED, FRAMES_NOTIFY_THRESHOLD, PRODUCED, ROOM_NOTIFY_THRESHOLD][draw.below(4)], value);
            }
            1..=20 => {
                let value = self.value(draw);
                self.word([FRAMES_NOTIFY_THRESHOLD, ROOM_NOTIFY_THRESHOLD][draw.below(2)], value);
            }
            21..=60 => self.count(draw),
            61..=90 => {
                let stride = 64 + self.shape.buffer_bytes().next_multiple_of(64);
                let head = BUFFERS + draw.below(self.shape.buffer_count()) * stride + 48 + 16 * draw.below(4);
                let length = draw.below(self.shape.buffer_bytes()) as u64 | ((draw.bits() & 1) << 63);
                let word = if draw.below(40) == 0 { self.value(draw) } else { length };
                self.word(head, word);
            }
            91 => {
                let len = draw.below(64);
                let at = draw.below(self.memory.len() - len);
                let bytes: Vec<u8> = (0..len).map(|_| draw.bits().to_le_bytes()[0]).collect();
                self.memory.write(at, &bytes).unwrap();
            }
            _ => {
                // Storms, full pipes, and a peer that never listens.
                let rings = if draw.below(100) == 0 { 5_000 } else { draw.below(3) };
                (0..rings).for_each(|_| assert_ne!(self.notify_fd.notify(), Notified::Gone));
                if draw.below(2) == 0 {
                    self.wake_fd.drain().unwrap();
                }
            }
        }
    }
}

/// A sound end and a hostile one.
fn world(draw: &mut Draw) -> (Link, Evil) {
    let shape = Shape::new(64 + draw.below(600), 1 + draw.below(9)).unwrap();
    let (own, theirs) = OwnMemory::create(shape).unwrap();
    let (memory, fd) = OwnArena::create(shape.memory_bytes()).unwrap();
    let ((notify_fd, their_wake_fd), (their_notify_fd, wake_fd)) =
        (doorbell::pair().unwrap(), doorbell::pair().unwrap());
    let mut link = Link::new(own, PeerMemory::map(fd, shape).unwrap(), notify_fd, wake_fd);
    link.producer.set_packing(draw.below(2) == 0);
    link.consumer.set_give_back_batch(1 + draw.below(4));
    let theirs = PeerArena::map(theirs, shape.memory_bytes()).unwrap();
    (link, Evil { memory, shape, notify_fd: their_notify_fd, wake_fd: their_wake_fd, theirs })
}

/// What the sound end has found out.
#[derive(Default)]
struct Found {
    by_consumer: Option<Violation>,
    by_producer: Option<Violation>,
    frames: u64,
    /// What is kept of frames that came, with its length; of those that went, which are all fives.
    received: Vec<(Arc<Retained>, usize)>,
    sent: Vec<(Arc<Retained>, usize)>,
}

impl Found {
    /// Every later call reports the violation that was reported first.
    fn note(place: &mut Option<Violation>, violation: Violation) {
        assert!(!violation.to_string().is_empty());
        assert_eq!(*place.get_or_insert(violation), violation);
    }
}

/// One act of the sound end.
fn sound(link: &mut Link, draw: &mut Draw, found: &mut Found) {
    let most = link.consumer.shape().buffer_bytes();
    let consumer = match draw.below(8) {
        0..=2 => link.consumer.next_frame().map(|frame| {
            let Some(frame) = frame else { return };
            assert!(frame.len() <= most);
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(0, &mut bytes);
            found.frames += 1;
            if draw.below(4) == 0 {
                found.received.push((frame.retain(0, frame.len()), frame.len()));
            }
        }),
        3 => link.consumer.declare_asleep().map(drop),
        4 => {
            link.consumer.give_back();
            link.consumer.awake();
            assert!(link.wake_fd.drain().unwrap().notifications <= 512);
            Ok(())
        }
        5 => {
            if link.consumer.count_unreturned() > draw.below(9) {
                link.consumer.move_out();
                assert_eq!(link.consumer.count_unreturned(), 0);
            }
            // Whatever the peer has written there, `len` bytes are readable.
            let mut read = |(kept, len): (Arc<Retained>, usize)| kept.copy_to(0, &mut vec![0; len]);
            found.received.drain(..draw.below(found.received.len() + 1)).for_each(&mut read);
            Ok(())
        }
        _ => Ok(()),
    };
    consumer.unwrap_or_else(|violation| Found::note(&mut found.by_consumer, violation));
    let bytes = draw.below(most + 1);
    let producer = match draw.below(8) {
        0..=2 => {
            let retainer = link.producer.retainer();
            match link.producer.reserve(bytes) {
                Ok(Some(place)) => {
                    place.fill(5);
                    let len = draw.below(bytes + 1);
                    if draw.below(4) == 0 {
                        found.sent.push((retainer.retain(&place[..len]).unwrap(), len));
                    }
                    link.producer.commit(len, draw.bits());
                    Ok(())
                }
                Ok(None) => Ok(()),
                Err(ReserveError::Violation(violation)) => Err(violation),
                Err(error @ ReserveError::TooLong { .. }) => panic!("{error}"),
            }
        }
        3 => link.producer.want_room(draw.below(12)).map(drop),
        4 => link.producer.room().map(|room| assert!(room <= link.producer.shape().buffer_count())),
        6 => {
            let whole = |(kept, len): (Arc<Retained>, usize)| {
                let mut bytes = vec![0; len];
                kept.copy_to(0, &mut bytes);
                assert!(bytes.iter().all(|byte| *byte == 5), "nobody else writes what is this end's own");
            };
            found.sent.drain(..draw.below(found.sent.len() + 1)).for_each(whole);
            Ok(())
        }
        5 => link.producer.in_flight().map(|count| assert!(count <= link.producer.shape().buffer_count())),
        _ => {
            link.producer.publish();
            Ok(())
        }
    };
    producer.unwrap_or_else(|violation| Found::note(&mut found.by_producer, violation));
}

fn check(link: &Link, found: &Found) {
    let (sent, taken) = (link.producer.counters(), link.consumer.counters());
    assert_eq!(sent.violations, found.by_producer.is_some().into());
    assert_eq!(taken.violations, found.by_consumer.is_some().into());
    assert_eq!(taken.frames, found.frames);
    assert!(!link.producer.peer_gone() && !link.consumer.peer_gone());
}

#[test]
fn a_peer_that_writes_anything_costs_a_violation_and_nothing_else() {
    let (mut violations, mut frames) = (0, 0);
    for seed in 0..2_000 {
        // Shown if it fails.
        eprintln!("seed {seed}");
        let mut draw = Draw(seed);
        let (mut link, mut evil) = world(&mut draw);
        let mut found = Found::default();
        for _ in 0..200 {
            evil.act(&mut draw);
            sound(&mut link, &mut draw, &mut found);
        }
        check(&link, &found);
        violations += u64::from(found.by_consumer.is_some()) + u64::from(found.by_producer.is_some());
        frames += found.frames;
    }
    // Both ways out of every world were taken often.
    assert!(violations > 1_000 && frames > 20_000, "{violations} violations, {frames} frames");
}

#[test]
fn a_peer_that_writes_while_it_is_read_costs_a_violation_and_nothing_else() {
    let (mut violations, mut frames) = (0, 0);
    // How far a world gets depends on the host's scheduler, so there are as many as it takes.
    for seed in 0..20_000 {
        // Shown if it fails.
        eprintln!("seed {seed}");
        let mut draw = Draw(seed);
        let (mut link, mut evil) = world(&mut draw);
        let mut found = Found::default();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut draw = Draw(!seed);
                (0..2_000).for_each(|_| evil.act(&mut draw));
            });
            while !writing.is_finished() {
                sound(&mut link, &mut draw, &mut found);
            }
        });
        check(&link, &found);
        violations += u64::from(found.by_consumer.is_some()) + u64::from(found.by_producer.is_some());
        frames += found.frames;
        if violations > 100 && frames > 400 {
            return;
        }
    }
    panic!("{violations} violations, {frames} frames");
}

#[test]
fn a_peer_that_takes_no_frames_stops_no_other_link() {
    let mut draw = Draw(1);
    let (mut link, _evil) = world(&mut draw);
    let (mut other, _sound) = world(&mut draw);
    while link.producer.reserve(64).unwrap().is_some() {
        link.producer.commit(64, 0);
    }
    assert!(link.producer.want_room(1).unwrap());
    assert!(link.producer.reserve(64).unwrap().is_none());
    assert!(other.producer.reserve(64).unwrap().is_some());
}
