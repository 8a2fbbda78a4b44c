//! What an input of a fuzzer means to a link: a program of acts of a hostile peer and of the sound end, in one process.
//!
//! The peer writes its counts, notify thresholds, heads of frames and bytes, notifies or does not listen, and changes the flags of what it
//! holds. Whatever it does, the sound end panics nowhere and waits nowhere, hands out exactly what lies at the place where a
//! frame has to lie, finds a violation exactly where one is, reports it for ever after, and writes what it was given to send. Both
//! roles are compared with a model of a few lines. `fuzz/fuzz_targets/ring.rs` calls this with inputs led by coverage, the tests
//! with those kept from there. Behind its end an input is zeros.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use siga_ring::arena::{OwnArena, PeerArena};
use siga_ring::doorbell::{self, Notified, NotifyFd, WakeFd};
use siga_ring::{Link, OwnMemory, PeerMemory, ReserveError, Shape, Violation};
use std::collections::VecDeque;
use std::os::fd::AsFd;

/// Where the words of an end lie, and where its buffers begin (ARCHITECTURE.md, "The memory of a ring").
const CONSUMED: usize = 0;
const FRAMES_NOTIFY_THRESHOLD: usize = 128;
const PRODUCED: usize = 256;
const ROOM_NOTIFY_THRESHOLD: usize = 384;
const BUFFERS: usize = 4_096;
const WORDS: [usize; 4] = [CONSUMED, FRAMES_NOTIFY_THRESHOLD, PRODUCED, ROOM_NOTIFY_THRESHOLD];
/// The mark on the length of a buffer's last frame.
const LAST: u64 = 1 << 63;
/// The mark on the same length that says that the first buffer follows.
const ROUND_ENDS: u64 = 1 << 62;
const HEAD_BYTES: usize = 16;
/// Acts of one input.
const ACTS_MAX: usize = 300;
/// What a doorbell's pipe holds.
const NOTIFICATIONS_MAX: usize = 512;

/// What is left of an input.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn u8(&mut self) -> u8 {
        let (byte, rest) = self.0.split_first().map_or((0, &[][..]), |(byte, rest)| (*byte, rest));
        self.0 = rest;
        byte
    }

    fn flag(&mut self) -> bool {
        self.u8().is_multiple_of(2)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(u16::from_be_bytes([self.u8(), self.u8()])) % end.max(1)
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(std::array::from_fn(|_| self.u8()))
    }
}

/// Where a frame of a ring lies.
#[derive(Debug, Clone, Copy)]
struct Place {
    shape: Shape,
    buffer: usize,
    fill: usize,
}

impl Place {
    fn new(shape: Shape) -> Self {
        Self { shape, buffer: 0, fill: 0 }
    }

    /// Of its bytes; the head lies before them.
    fn bytes(self) -> usize {
        let stride = 64 + self.shape.buffer_bytes().next_multiple_of(64);
        BUFFERS + self.buffer * stride + 64 + self.fill
    }

    fn head(self) -> usize {
        self.bytes() - HEAD_BYTES
    }

    /// Goes on behind the buffer whose last frame has this head.
    fn next_buffer(&mut self, head: u64) {
        let next = if head & ROUND_ENDS == 0 { self.buffer + 1 } else { 0 };
        (self.buffer, self.fill) = (next % self.shape.buffer_count(), 0);
    }

    /// Behind a frame; false if nothing has room there.
    fn behind(&mut self, len: usize) -> bool {
        self.fill = (self.fill + len).next_multiple_of(HEAD_BYTES) + HEAD_BYTES;
        self.fill <= self.shape.buffer_bytes()
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
    /// Where a sound peer would put its next frame.
    next: Place,
}

impl Evil {
    fn own(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        self.memory.read(at, &mut word).expect("a word of the memory");
        u64::from_ne_bytes(word)
    }

    fn theirs(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        self.theirs.copy_to(at, &mut word).expect("a word of the memory");
        u64::from_ne_bytes(word)
    }

    fn write(&mut self, at: usize, value: u64) {
        self.memory.write(at, &value.to_ne_bytes()).expect("a word of the memory");
    }

    /// A value near what would be right, or any.
    fn value(&self, input: &mut Input<'_>) -> u64 {
        let near = u64::from(input.u8() % 16);
        match input.u8() % 6 {
            0 => self.theirs(CONSUMED).wrapping_add(near),
            1 => self.theirs(PRODUCED).wrapping_sub(near),
            2 => self.own(PRODUCED).wrapping_add(near).wrapping_sub(2),
            3 => near | LAST | if near % 2 == 1 { ROUND_ENDS } else { 0 },
            4 => u64::MAX - near,
            _ => input.u64(),
        }
    }

    /// Sends as a sound peer does, a frame alone in its buffer or with others to follow, or nearly so: longer than there is room
    /// for, or with others to follow where none fits.
    fn send(&mut self, input: &mut Input<'_>) {
        let room = self.shape.buffer_bytes() - self.next.fill;
        let len = input.below(room + 1);
        let at = self.next;
        let bytes: Vec<u8> = std::iter::repeat_n(input.u8(), len).collect();
        self.memory.write(at.bytes(), &bytes).expect("bytes of a buffer");
        self.write(at.head() + 8, u64::from(input.u8()));
        let said = if input.u8() % 8 == 7 { (room + input.below(12)).saturating_sub(4) } else { len } as u64;
        let others = input.flag();
        let fits = others && self.next.behind(len);
        if fits {
            self.write(at.head(), said);
        } else {
            let unended = others && input.u8() % 8 == 7;
            self.write(at.head(), if unended { said } else { said | LAST });
            self.next.next_buffer(said);
            let produced = self.own(PRODUCED);
            self.write(PRODUCED, produced.wrapping_add(1));
        }
    }

    /// Non-blocking or not, appending or not: flags of the open files that it holds.
    fn change_flags(&self, input: &mut Input<'_>) {
        let fd = if input.flag() { self.notify_fd.as_fd() } else { self.wake_fd.as_fd() };
        let flags = fcntl_getfl(fd).expect("flags of a pipe");
        let other = [OFlags::APPEND, OFlags::DIRECT][usize::from(input.u8() % 2)];
        // Some a pipe cannot have. Its own end stays non-blocking: the peer alone would wait.
        let _ = fcntl_setfl(fd, flags ^ other);
    }

    fn act(&mut self, input: &mut Input<'_>) {
        match input.u8() % 8 {
            0 => {
                let value = self.value(input);
                self.write(WORDS[usize::from(input.u8() % 4)], value);
            }
            1 => {
                let all = self.theirs(PRODUCED);
                self.write(CONSUMED, all);
            }
            2 => {
                let place =
                    Place { buffer: input.below(self.shape.buffer_count()), fill: 16 * input.below(4), ..self.next };
                let value = self.value(input);
                if place.fill <= self.shape.buffer_bytes() {
                    self.write(place.head(), value);
                }
            }
            3 => {
                let at = input.below(self.memory.len() - 8);
                let value = input.u64();
                self.write(at, value);
            }
            4 => {
                let rings = if input.u8() == 0 { 5_000 } else { input.below(3) };
                (0..rings).for_each(|_| assert_ne!(self.notify_fd.notify(), Notified::Gone));
            }
            5 => assert!(self.wake_fd.drain().expect("a pipe").notifications <= NOTIFICATIONS_MAX),
            6 => self.change_flags(input),
            _ => self.send(input),
        }
    }
}

/// Returns the length of a frame without its marks. Without the mark of the last frame, the other mark has no meaning.
fn length(head: u64) -> u64 {
    if head & LAST == 0 { head } else { head & !(LAST | ROUND_ENDS) }
}

/// What the consumer has to do, said once more.
#[derive(Debug)]
struct Takes {
    next: Place,
    produced: u64,
    taken: u64,
    given_back: u64,
    batch: u64,
    /// The head of the latest frame, if it is the last one of its buffer.
    finished: Option<u64>,
    broken: Option<Violation>,
    frames: u64,
}

/// A frame as the model sees it: its length, its tag, where its bytes lie.
type Seen = (usize, u64, usize);

impl Takes {
    fn new(shape: Shape, batch: u64) -> Self {
        let next = Place::new(shape);
        Self { next, produced: 0, taken: 0, given_back: 0, batch, finished: None, broken: None, frames: 0 }
    }

    fn finish_frame(&mut self) {
        if let Some(head) = self.finished.take() {
            self.taken += 1;
            self.next.next_buffer(head);
            if self.taken - self.given_back >= self.batch {
                self.given_back = self.taken;
            }
        }
    }

    fn refresh(&mut self, evil: &Evil) {
        let (least, most) = (self.produced, self.given_back + self.next.shape.buffer_count() as u64);
        let found = evil.own(PRODUCED);
        match (least..=most).contains(&found) {
            true => self.produced = found,
            false => self.broken = Some(Violation::Produced { found, least, most }),
        }
    }

    fn ready(&mut self, evil: &Evil) -> Result<bool, Violation> {
        self.broken.map_or(Ok(()), Err)?;
        self.finish_frame();
        if self.taken == self.produced {
            self.refresh(evil);
        }
        self.broken.map_or(Ok(self.taken < self.produced), Err)
    }

    fn frame(&mut self, evil: &Evil) -> Result<Option<Seen>, Violation> {
        if !self.ready(evil)? {
            self.given_back = self.taken;
            return Ok(None);
        }
        let (place, room) = (self.next, (self.next.shape.buffer_bytes() - self.next.fill) as u64);
        let (head, tag) = (evil.own(place.head()), evil.own(place.head() + 8));
        let length = length(head);
        if length > room {
            self.broken = Some(Violation::Length { found: length, most: room });
        }
        self.broken.map_or(Ok(()), Err)?;
        let len = usize::try_from(length).expect("no more than a buffer");
        if head & LAST != 0 {
            self.finished = Some(head);
        } else if !self.next.behind(len) {
            let most = self.next.shape.buffer_bytes() as u64;
            self.broken = Some(Violation::Unended { at: self.next.fill as u64, most });
        }
        self.broken.map_or(Ok(()), Err)?;
        self.frames += 1;
        Ok(Some((len, tag, place.bytes())))
    }

    fn asleep(&mut self, evil: &Evil) -> Result<bool, Violation> {
        if self.ready(evil)? {
            return Ok(false);
        }
        self.given_back = self.taken;
        self.refresh(evil);
        self.broken.map_or(Ok(self.taken == self.produced), Err)
    }
}

/// What the producer has to have written, and what it believes of its peer.
#[derive(Debug)]
struct Gives {
    /// Where an attentive reader looks next.
    next: Place,
    seen: u64,
    /// Committed and not yet seen: bytes and tag.
    waiting: VecDeque<(Vec<u8>, u64)>,
    broken: Option<Violation>,
}

impl Gives {
    /// Everything that was published is what was committed, in order.
    fn look(&mut self, evil: &Evil) {
        let published = evil.theirs(PRODUCED);
        assert!(published >= self.seen, "the count of filled buffers went back");
        while self.seen < published {
            let (head, tag) = (evil.theirs(self.next.head()), evil.theirs(self.next.head() + 8));
            let (bytes, expected) = self.waiting.pop_front().expect("a frame that nobody committed");
            assert_eq!((length(head), tag), (bytes.len() as u64, expected));
            let mut found = vec![0; bytes.len()];
            evil.theirs.copy_to(self.next.bytes(), &mut found).expect("bytes of a buffer");
            assert!(found == bytes, "other bytes than were committed");
            if head & LAST == 0 {
                assert!(self.next.behind(bytes.len()), "no frame fits there");
            } else {
                self.next.next_buffer(head);
                self.seen += 1;
            }
        }
    }

    /// A count of the peer's was read, which may be `claimed`: it is possible or found out.
    fn judge<T>(&mut self, outcome: Result<T, Violation>) -> Option<T> {
        match outcome {
            Ok(value) => {
                assert_eq!(self.broken, None, "a violation was forgotten");
                Some(value)
            }
            Err(violation) => {
                assert!(
                    matches!(violation, Violation::Consumed { found, least, most } if !(least..=most).contains(&found))
                );
                assert_eq!(*self.broken.get_or_insert(violation), violation);
                None
            }
        }
    }
}

/// Plays an input.
pub(crate) fn ring(bytes: &[u8]) {
    let mut input = Input(bytes);
    let inbound = shape(&mut input);
    let outbound = shape(&mut input);
    let (own, theirs) = OwnMemory::create(outbound).expect("memory");
    let (memory, fd) = OwnArena::create(inbound.memory_bytes()).expect("memory");
    let ((notify_fd, their_wake_fd), (their_notify_fd, wake_fd)) =
        (doorbell::pair().expect("a pipe"), doorbell::pair().expect("a pipe"));
    let mut link = Link::new(own, PeerMemory::map(fd, inbound).expect("sealed memory"), notify_fd, wake_fd);
    let theirs = PeerArena::map(theirs, outbound.memory_bytes()).expect("sealed memory");
    let next = Place::new(inbound);
    let mut evil = Evil { memory, shape: inbound, notify_fd: their_notify_fd, wake_fd: their_wake_fd, theirs, next };
    let batch = 1 + usize::from(input.u8() % 4);
    link.consumer.set_give_back_batch(batch);
    link.producer.set_packing(input.flag());
    if outbound.buffer_bytes() % 2 == 1 {
        link.producer.set_round_bytes_most(2 * outbound.buffer_bytes());
    }
    link.producer.set_notify_always(input.flag());
    let mut takes = Takes::new(inbound, batch as u64);
    let mut gives = Gives { next: Place::new(outbound), seen: 0, waiting: VecDeque::new(), broken: None };
    for _ in 0..ACTS_MAX {
        if input.0.is_empty() {
            break;
        }
        match input.u8() % 4 {
            0 | 1 => evil.act(&mut input),
            2 => take(&mut link, &mut evil, &mut takes, &mut input),
            _ => give(&mut link, &evil, &mut gives, &mut input),
        }
        gives.look(&evil);
        assert_eq!(evil.theirs(CONSUMED), takes.given_back, "what was taken is given back, and nothing else");
    }
    let (sent, taken) = (link.producer.counters(), link.consumer.counters());
    assert_eq!((sent.violations, taken.violations), (gives.broken.is_some().into(), takes.broken.is_some().into()));
    assert_eq!(taken.frames, takes.frames);
    assert!(!link.producer.peer_gone() && !link.consumer.peer_gone());
}

fn shape(input: &mut Input<'_>) -> Shape {
    Shape::new(64 + usize::from(input.u8()) * 3, 1 + usize::from(input.u8() % 9)).expect("within the bounds")
}

/// One act of the consumer, and what the model says to it.
fn take(link: &mut Link, evil: &mut Evil, takes: &mut Takes, input: &mut Input<'_>) {
    match input.u8() % 5 {
        0 | 1 => {
            let expected = takes.frame(evil);
            match (link.consumer.next_frame(), expected) {
                (Ok(Some(frame)), Ok(Some((len, tag, at)))) => {
                    assert_eq!((frame.len(), frame.tag(), frame.is_empty()), (len, tag, len == 0));
                    let from = input.below(len + 1);
                    let mut bytes = vec![0; len - from];
                    frame.copy_to(from, &mut bytes);
                    assert!(bytes == evil.memory.bytes(at + from, len - from).expect("bytes of a buffer"));
                }
                (Ok(None), Ok(None)) => {}
                (Err(violation), Err(expected)) => assert_eq!(violation, expected),
                (found, expected) => panic!("{found:?} where there is {expected:?}"),
            }
        }
        2 => assert_eq!(link.consumer.is_ready(), takes.ready(evil)),
        3 => assert_eq!(link.consumer.declare_asleep(), takes.asleep(evil)),
        _ => {
            link.consumer.give_back();
            takes.finish_frame();
            takes.given_back = takes.taken;
            link.consumer.awake();
            assert!(link.wake_fd.drain().expect("a pipe").notifications <= NOTIFICATIONS_MAX);
        }
    }
}

/// One act of the producer, and what of it can be seen.
fn give(link: &mut Link, evil: &Evil, gives: &mut Gives, input: &mut Input<'_>) {
    let (most, count) = (link.producer.shape().buffer_bytes(), link.producer.shape().buffer_count());
    match input.u8() % 6 {
        0 | 1 => {
            let bytes = input.below(most + 2);
            match link.producer.reserve(bytes) {
                Err(ReserveError::TooLong { .. }) => assert!(bytes > most),
                Err(ReserveError::Violation(violation)) => _ = gives.judge::<()>(Err(violation)),
                Ok(None) => assert!(evil.theirs(PRODUCED) >= evil.own(CONSUMED), "there is room, and none is told of"),
                Ok(Some(place)) => {
                    // What the reservation published is there, and a peer that says it has taken that already has this written
                    // over it.
                    gives.look(evil);
                    let len = input.below(bytes + 1);
                    let tag = u64::from(input.u8());
                    place.fill(input.u8());
                    let frame = place[..len].to_vec();
                    gives.waiting.push_back((frame, tag));
                    link.producer.commit(len, tag);
                }
            }
        }
        2 => {
            link.producer.publish();
        }
        3 => {
            let outcome = link.producer.want_room(input.below(count + 2));
            gives.judge(outcome);
        }
        4 => {
            let outcome = link.producer.room();
            let room = gives.judge(outcome);
            assert!(room.is_none_or(|room| room <= count));
        }
        _ => {
            let outcome = link.producer.in_flight();
            let in_flight = gives.judge(outcome);
            let possible = evil.theirs(PRODUCED).wrapping_sub(evil.own(CONSUMED));
            assert!(in_flight.is_none_or(|buffers| buffers <= count && buffers as u64 == possible));
        }
    }
}
