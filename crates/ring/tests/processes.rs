//! A link between two processes: what arrives, who sleeps, and who dies.
#![expect(clippy::unwrap_used, reason = "a test says what it wants by failing")]

mod support;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::sched_getaffinity;
use siga_ring::clock::Ticks;
use siga_ring::doorbell::Notification;
use siga_ring::wait::policy::Mode;
use siga_ring::wait::{Sources, Waiter};
use siga_ring::{Link, Shape};
use std::convert::Infallible;
use std::time::{Duration, Instant};
use support::{Alone, LinkError, Other, ROLE};

fn shape() -> Shape {
    Shape::new(4_096, 16).unwrap()
}

/// The test that is the other process when it is run with a role.
const OTHER: [&str; 3] = ["the_other_process", "--exact", "--nocapture"];

fn start(mode: &str) -> (Other, Link) {
    let other = Other::start(mode, &OTHER);
    let link = other.link(shape());
    (other, link)
}

fn mode(name: &str) -> Mode {
    match name {
        "blocking" => Mode::Block,
        "polling" => Mode::Poll,
        _ => Mode::Adaptive,
    }
}

/// Bytes that tell frames and places apart.
fn content(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| number.wrapping_mul(31).wrapping_add(at as u64).to_le_bytes()[0]).collect()
}

fn receive(link: &mut Link, waiter: &mut Waiter) -> Result<(Vec<u8>, u64), LinkError> {
    loop {
        if let Some(frame) = link.consumer.next_frame().map_err(LinkError::Violation)? {
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(0, &mut bytes);
            return Ok((bytes, frame.tag()));
        }
        waiter.wait(&mut Alone(link), None)?;
    }
}

fn send(link: &mut Link, bytes: &[u8], tag: u64) {
    while link.producer.reserve(bytes.len()).unwrap().is_none() {
        if link.producer.want_room(4).unwrap() {
            assert_eq!(poll(&mut [PollFd::new(&link.wake_fd, PollFlags::IN)], None), Ok(1));
            assert!(!link.wake_fd.drain().unwrap().hung_up);
        }
    }
    link.producer.reserve(bytes.len()).unwrap().unwrap().copy_from_slice(bytes);
    link.producer.commit(bytes.len(), tag);
}

/// A link whose owner asks who rang.
struct Heard {
    link: Link,
    last: Option<Notification>,
}

impl Sources for Heard {
    type Error = Infallible;

    fn is_ready(&mut self) -> Result<bool, Infallible> {
        Ok(self.link.consumer.is_ready().unwrap())
    }

    fn declare_asleep(&mut self) -> Result<bool, Infallible> {
        Ok(self.link.consumer.declare_asleep().unwrap())
    }

    fn sleep(&mut self, time: Option<Duration>) -> Result<(), Infallible> {
        let time = time.map(|time| Timespec::try_from(time).unwrap());
        poll(&mut [PollFd::new(&self.link.wake_fd, PollFlags::IN)], time.as_ref()).unwrap();
        self.last = self.link.wake_fd.drain().unwrap().last;
        Ok(())
    }

    fn awake(&mut self) {
        self.link.consumer.awake();
    }

    fn moved(&self) -> u64 {
        0
    }
}

impl Heard {
    /// The tag of the next frame; none when the peer is gone.
    fn receive(&mut self, waiter: &mut Waiter) -> Option<u64> {
        loop {
            if let Some(frame) = self.link.consumer.next_frame().unwrap() {
                return Some(frame.tag());
            }
            if self.link.wake_fd.has_hung_up().unwrap() {
                return None;
            }
            let Ok(_woken) = waiter.wait(self, None);
            waiter.notified_by(self.last.take());
        }
    }
}

#[test]
fn sleeping_partners_move_to_one_cpu_and_leave_it_at_the_end() {
    let allowed = sched_getaffinity(None).unwrap();
    let other = Other::start("gathering", &OTHER);
    let mut heard = Heard { link: other.link(shape()), last: None };
    let mut waiter = Waiter::new(Mode::Block).with_colocation(true);
    let begun = Instant::now();
    // Others may want the CPUs.
    while waiter.counters().colocated_ticks == Ticks(0) {
        assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", waiter.counters());
        send(&mut heard.link, &[], 1);
        heard.link.producer.publish();
        assert_eq!(heard.receive(&mut waiter), Some(2));
    }
    let place = sched_getaffinity(None).unwrap();
    assert!(place.count() == 1 && (0..1_024).all(|cpu| allowed.is_set(cpu) || !place.is_set(cpu)));
    drop(waiter);
    assert_eq!(sched_getaffinity(None), Ok(allowed));
}

/// Sends everything back until the peer is gone.
#[test]
fn the_other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut link = support::link(shape());
    if role == "gathering" {
        let mut heard = Heard { link, last: None };
        let mut waiter = Waiter::new(Mode::Block).with_colocation(true);
        while let Some(tag) = heard.receive(&mut waiter) {
            send(&mut heard.link, &[], tag + 1);
            heard.link.producer.publish();
        }
        return;
    }
    let mut waiter = Waiter::new(mode(&role));
    loop {
        match receive(&mut link, &mut waiter) {
            Ok((bytes, tag)) => send(&mut link, &bytes, tag + 1),
            Err(LinkError::PeerGone) => return,
            Err(LinkError::Violation(violation)) => panic!("{violation}"),
        }
    }
}

#[test]
fn frames_go_to_another_process_and_back_however_either_waits() {
    for theirs in ["blocking", "polling", "adaptive"] {
        for ours in [Mode::Block, Mode::Adaptive] {
            let (_other, mut link) = start(theirs);
            let mut waiter = Waiter::new(ours);
            for number in 0..300_u64 {
                let sent = content(number, usize::try_from(number * 13 % 4_097).unwrap());
                send(&mut link, &sent, number);
                assert_eq!(receive(&mut link, &mut waiter).unwrap(), (sent, number + 1));
            }
        }
    }
}

#[test]
fn streams_of_frames_are_sent_back_whole_and_in_order() {
    let (_other, mut link) = start("adaptive");
    let mut waiter = Waiter::new(Mode::Adaptive);
    for first in (0..20_000_u64).step_by(8) {
        (first..first + 8).for_each(|number| send(&mut link, &content(number, 1_500), number));
        for number in first..first + 8 {
            assert_eq!(receive(&mut link, &mut waiter).unwrap(), (content(number, 1_500), number + 1));
        }
    }
    let counters = link.producer.counters();
    assert_eq!((counters.frames, counters.bytes, counters.violations), (20_000, 30_000_000, 0));
}

#[test]
fn the_death_of_a_process_ends_the_wait_of_its_peer_and_leaves_the_memory_readable() {
    for mode in [Mode::Block, Mode::Adaptive, Mode::Poll] {
        death(mode);
    }
}

fn death(mode: Mode) {
    let (mut other, mut link) = start("blocking");
    let mut waiter = Waiter::new(mode);
    send(&mut link, b"sent back before it dies", 1);
    while !link.consumer.is_ready().unwrap() {
        std::thread::yield_now();
    }
    other.child.kill().unwrap();
    other.child.wait().unwrap();
    assert!(link.wake_fd.has_hung_up().unwrap());
    assert_eq!(receive(&mut link, &mut waiter).unwrap(), (b"sent back before it dies".to_vec(), 2));
    assert!(matches!(receive(&mut link, &mut waiter), Err(LinkError::PeerGone)));
    link.producer.set_notify_always(true);
    send(&mut link, &[1], 1);
    assert!(link.producer.peer_gone());
}
