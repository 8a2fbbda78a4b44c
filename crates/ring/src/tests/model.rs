//! Loom's model of what the two roles stand on, and what has to hold in every order in which their steps can be seen.
//!
//! Words are Loom's atomics, so that a missing fence shows as a stale value; the doorbell is a count with a condition variable,
//! so that a lost wake-up shows as a deadlock. Frames have their content in the tag, which lies among the words: payload
//! is ordered by the same fences. Built by `cargo xtask loom` alone.

use crate::doorbell::Notified;
use crate::layout::{CONSUMED, FRAMES_NOTIFY_THRESHOLD, PRODUCED, ROOM_NOTIFY_THRESHOLD, Shape, TAG};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Words by their place in the memory.
type Words = Arc<BTreeMap<usize, AtomicU64>>;

/// What an end has of its own memory: its words, and bytes that nobody looks at.
#[derive(Debug)]
pub(crate) struct Region {
    words: Words,
    start: usize,
    bytes: Vec<u8>,
}

impl Region {
    pub(crate) fn split(self, at: usize) -> (Self, Self) {
        let rest = Self { words: Arc::clone(&self.words), start: self.start + at, bytes: self.bytes.clone() };
        (self, rest)
    }

    pub(crate) fn bytes_mut(&mut self, _at: usize, len: usize) -> &mut [u8] {
        &mut self.bytes[..len]
    }

    /// Writes bytes that are modelled as words.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        for (place, byte) in (at..).zip(bytes) {
            self.store(place, u64::from(*byte));
        }
    }

    pub(crate) fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let byte = |place| self.words[&(self.start + place)].load(Ordering::Relaxed);
        (at..at + len).map(|place| u8::try_from(byte(place)).unwrap_or(u8::MAX)).collect()
    }

    pub(crate) fn view(&self) -> View {
        View(Arc::clone(&self.words))
    }

    pub(crate) fn store(&mut self, at: usize, value: u64) {
        self.words[&(self.start + at)].store(value, Ordering::Relaxed);
    }
}

/// What a peer sees of it.
#[derive(Debug, Clone)]
pub(crate) struct View(Words);

impl View {
    pub(crate) fn load(&self, at: usize) -> u64 {
        self.0[&at].load(Ordering::Relaxed)
    }

    /// Copies bytes that are modelled as words. Other bytes have no content.
    pub(crate) fn copy_to(&self, at: usize, into: &mut [u8]) {
        for (place, byte) in (at..).zip(into) {
            let value = self.0.get(&place).map_or(0, |word| word.load(Ordering::Relaxed));
            *byte = u8::try_from(value).unwrap_or(u8::MAX);
        }
    }

    pub(crate) fn offset_of(&self, _part: &[u8]) -> Option<usize> {
        None
    }
}

/// Memory of a ring whose buffers hold one frame each.
fn memory(shape: Shape) -> (Region, View) {
    let heads = (0..shape.buffer_count()).map(|buffer| shape.head_at(buffer, 0)).flat_map(|at| [at, at + TAG]);
    let places = [CONSUMED, FRAMES_NOTIFY_THRESHOLD, PRODUCED, ROOM_NOTIFY_THRESHOLD].into_iter().chain(heads);
    let words: Words = Arc::new(places.map(|at| (at, AtomicU64::new(0))).collect());
    (Region { words: Arc::clone(&words), start: 0, bytes: vec![0; shape.buffer_bytes()] }, View(words))
}

/// Rings that were not heard yet.
type Rings = Arc<(Mutex<usize>, Condvar)>;

/// The end of a doorbell that rings.
#[derive(Debug)]
pub(crate) struct NotifyFd(Rings);

impl NotifyFd {
    pub(crate) fn notify(&self) -> Notified {
        *self.0.0.lock().expect("nobody panics with the lock") += 1;
        self.0.1.notify_one();
        Notified::Sent
    }
}

/// The end that listens.
#[derive(Debug)]
struct WakeFd(Rings);

impl WakeFd {
    /// Sleeps until there is a ring, and takes all there are.
    fn sleep(&self) {
        let mut rings = self.0.0.lock().expect("nobody panics with the lock");
        while *rings == 0 {
            rings = self.0.1.wait(rings).expect("nobody panics with the lock");
        }
        *rings = 0;
    }
}

fn doorbell() -> (NotifyFd, WakeFd) {
    let rings: Rings = Arc::new((Mutex::new(0), Condvar::new()));
    (NotifyFd(Arc::clone(&rings)), WakeFd(rings))
}

#[cfg(test)]
#[path = "model_direct.rs"]
mod direct;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::CONSUMER_WORDS_BYTES;
    use crate::{Consumer, Producer};

    /// Switches of threads where they need not be: more of them find nothing else, and take hours.
    const PREEMPTIONS_MAX: usize = 3;
    /// Where each end has both roles: there are more orders.
    const PREEMPTIONS_OF_BOTH_MAX: usize = 2;

    /// A producer and a consumer of `buffers` buffers, each with what it hears the other by.
    fn ring(buffers: usize) -> ((Producer, WakeFd), (Consumer, WakeFd)) {
        let shape = Shape::new(64, buffers).unwrap();
        let ((own_a, seen_a), (own_b, seen_b)) = (memory(shape), memory(shape));
        let ((bell_a, ear_b), (bell_b, ear_a)) = (doorbell(), doorbell());
        let (_, rest) = own_a.split(CONSUMER_WORDS_BYTES);
        let (words, _) = own_b.split(CONSUMER_WORDS_BYTES);
        let producer = Producer::new(rest, seen_b, Arc::new(bell_a), shape);
        let consumer = Consumer::new(words, seen_a, Arc::new(bell_b), shape);
        ((producer, ear_a), (consumer, ear_b))
    }

    fn send(producer: &mut Producer, wake_fd: &WakeFd, tag: u64) {
        while producer.reserve(1).unwrap().is_none() {
            if producer.want_room(1).unwrap() {
                wake_fd.sleep();
            }
        }
        producer.commit(1, tag);
    }

    fn receive(consumer: &mut Consumer, wake_fd: &WakeFd) -> u64 {
        loop {
            if let Some(frame) = consumer.next_frame().unwrap() {
                return frame.tag();
            }
            if consumer.declare_asleep().unwrap() {
                wake_fd.sleep();
                consumer.awake();
            }
        }
    }

    fn explore(preemptions_max: usize, model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions_max);
        builder.check(model);
    }

    /// `frames` frames through `buffers` buffers; both sides sleep whenever they can.
    fn all_arrive(buffers: usize, frames: u64, prepare: fn(&mut Producer, &mut Consumer)) {
        explore(PREEMPTIONS_MAX, move || {
            let ((mut producer, ear_a), (mut consumer, ear_b)) = ring(buffers);
            prepare(&mut producer, &mut consumer);
            let sender = loom::thread::spawn(move || {
                (1..=frames).for_each(|tag| send(&mut producer, &ear_a, tag));
                producer.publish();
                producer
            });
            for tag in 1..=frames {
                assert_eq!(receive(&mut consumer, &ear_b), tag);
            }
            let doorbells = sender.join().unwrap().counters().doorbells;
            assert!(doorbells.sent <= frames);
        });
    }

    #[test]
    fn no_wake_up_is_lost_and_no_frame_read_before_it_is_written() {
        all_arrive(2, 3, |_, _| {});
    }

    #[test]
    fn no_wake_up_for_room_is_lost_and_no_frame_written_over_before_it_is_read() {
        all_arrive(1, 3, |_, _| {});
    }

    #[test]
    fn no_frame_is_lost_if_buffers_are_given_back_in_batches() {
        all_arrive(2, 4, |_, consumer| consumer.set_give_back_batch(2));
    }

    #[test]
    fn a_consumer_that_wakes_by_itself_loses_nothing() {
        explore(PREEMPTIONS_MAX, || {
            let ((mut producer, ear_a), (mut consumer, ear_b)) = ring(2);
            let sender = loom::thread::spawn(move || {
                (1..=2).for_each(|tag| send(&mut producer, &ear_a, tag));
            });
            // Asleep and awake again without a ring, as by a timer.
            if consumer.declare_asleep().unwrap() {
                consumer.awake();
            }
            assert_eq!(receive(&mut consumer, &ear_b), 1);
            assert_eq!(receive(&mut consumer, &ear_b), 2);
            sender.join().unwrap();
        });
    }

    /// Both roles of an end in one thread, which hears for both by one ear: sends what is to go out, and sends back what comes in.
    fn exchange(
        (mut producer, mut consumer, wake_fd): (Producer, Consumer, WakeFd),
        mut out: Vec<u64>,
        mut expected: u64,
        echo: bool,
    ) {
        while expected > 0 || !out.is_empty() {
            let mut waits = true;
            if !out.is_empty() && producer.reserve(1).unwrap().is_some() {
                producer.commit(1, out.remove(0));
                waits = false;
            }
            if expected > 0
                && let Some(frame) = consumer.next_frame().unwrap()
            {
                expected -= 1;
                waits = false;
                out.extend(echo.then_some(frame.tag()));
            }
            if waits
                && (expected == 0 || consumer.declare_asleep().unwrap())
                && (out.is_empty() || producer.want_room(1).unwrap())
            {
                wake_fd.sleep();
            }
            consumer.awake();
        }
    }

    #[test]
    fn an_end_that_waits_for_frames_and_room_by_one_doorbell_loses_neither() {
        explore(PREEMPTIONS_OF_BOTH_MAX, || {
            let shape = Shape::new(64, 1).unwrap();
            let ((own_a, seen_a), (own_b, seen_b)) = (memory(shape), memory(shape));
            let ((bell_a, ear_b), (bell_b, ear_a)) = (doorbell(), doorbell());
            let end = |own: Region, peer: View, notify_fd: NotifyFd, wake_fd: WakeFd| {
                let ((words, rest), notify_fd) = (own.split(CONSUMER_WORDS_BYTES), Arc::new(notify_fd));
                let producer = Producer::new(rest, peer.clone(), Arc::clone(&notify_fd), shape);
                (producer, Consumer::new(words, peer, notify_fd, shape), wake_fd)
            };
            let (a, b) = (end(own_a, seen_b, bell_a, ear_a), end(own_b, seen_a, bell_b, ear_b));
            let other = loom::thread::spawn(move || exchange(b, Vec::new(), 2, true));
            exchange(a, vec![1, 2], 2, false);
            other.join().unwrap();
        });
    }
}
