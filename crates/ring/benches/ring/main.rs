//! Measures the cost of a frame between two processes: one way in a stream, and a round trip. For comparison, the same run
//! measures the kernel's pipes and UNIX sockets between the same processes. It also measures the cost of copying the bytes in and
//! out within one process. Asserts nothing.
//!
//! `cargo bench -p siga-ring [-- FILTER]`
//!
//! The times are wall-clock times, so other load on the host affects them. Each end has the frame in its own memory, and copies
//! it from and to there. A polling end yields the CPU between polls, on the ring and on descriptors alike. A blocking end sleeps
//! in the kernel.

mod carrier;
#[path = "../../tests/support/mod.rs"]
mod support;

use carrier::{Carrier, Kind};
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, measurement::WallTime};
use siga_ring::arena::{OwnArena, PeerArena};
use siga_ring::{Link, OwnMemory, PeerMemory, Shape, doorbell};
use std::hint::black_box;
use std::time::{Duration, Instant};
use support::ROLE;

/// Frame sizes in bytes: small, Ethernet's MTU, and the largest HiperSockets MTU.
const FRAMES: [usize; 3] = [64, 1_500, 57_344];
/// The number of buffers of the ring, and of the memory through which benchmarks without a ring copy.
const BUFFERS: usize = 64;

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        let (kind, bytes) = role.split_once(' ').expect("a kind and a size");
        let mut carrier = Carrier::inherited(Kind::named(kind), bytes.parse().expect("a size"));
        return carrier.serve();
    }
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    for bytes in FRAMES {
        one_way(&mut criterion, bytes);
        round_trip(&mut criterion, bytes);
    }
    criterion.final_summary();
}

fn one_way(criterion: &mut Criterion, bytes: usize) {
    let mut group = criterion.benchmark_group("one way");
    group.throughput(Throughput::Bytes(bytes as u64));
    copies(&mut group, bytes);
    both_ends(&mut group, bytes);
    for kind in Kind::ALL {
        with(&mut group, kind, bytes, |carrier, frames| {
            for left in (0..frames).rev() {
                carrier.send(left == 0);
            }
            carrier.receive();
        });
    }
}

fn round_trip(criterion: &mut Criterion, bytes: usize) {
    let mut group = criterion.benchmark_group("round trip");
    for kind in Kind::ALL.into_iter().filter(|kind| !kind.is_packed()) {
        with(&mut group, kind, bytes, |carrier, frames| {
            for _ in 0..frames {
                carrier.send(true);
                carrier.receive();
            }
        });
    }
}

/// Adds a benchmark over a carrier. The carrier is started only if the filter selects the benchmark.
fn with(group: &mut BenchmarkGroup<'_, WallTime>, kind: Kind, bytes: usize, work: fn(&mut Carrier, u64)) {
    let mut carrier = None;
    group.bench_function(BenchmarkId::new(kind.name(), bytes), |bencher| {
        let carrier = carrier.get_or_insert_with(|| Carrier::start(kind, bytes));
        bencher.iter_custom(|frames| {
            let begun = Instant::now();
            work(carrier, frames);
            begun.elapsed()
        });
    });
}

/// Measures both ends of a ring in one thread, frame by frame: the cost of the ring's own work and the copies, without another
/// process.
fn both_ends(group: &mut BenchmarkGroup<'_, WallTime>, bytes: usize) {
    let shape = Shape::new(bytes, BUFFERS).expect("a shape in bounds");
    let end = || {
        let (own, fd) = OwnMemory::create(shape).expect("memory");
        (own, PeerMemory::map(fd, shape).expect("memory"))
    };
    let ((own, seen_own), (other, seen_other)) = (end(), end());
    let ((notify_fd, other_wake_fd), (other_notify_fd, wake_fd)) =
        (doorbell::pair().expect("a pipe"), doorbell::pair().expect("a pipe"));
    let mut one = Link::new(own, seen_other, notify_fd, wake_fd);
    let mut other = Link::new(other, seen_own, other_notify_fd, other_wake_fd);
    let (from, mut to) = (vec![1; bytes], vec![0; bytes]);
    group.bench_function(BenchmarkId::new("both-ends", bytes), |bencher| {
        bencher.iter(|| {
            let place = one.producer.reserve(bytes).expect("a sound peer").expect("room");
            place.copy_from_slice(black_box(&from));
            one.producer.commit(bytes, 0);
            let frame = other.consumer.next_frame().expect("a sound peer").expect("a frame");
            frame.copy_to(0, &mut to);
            black_box(&to);
        });
    });
}

/// Measures copying in and out in one thread: with memcpy, and with the ring's way of reading memory that a peer writes. Every
/// carrier has this cost, which depends on the number of bytes.
fn copies(group: &mut BenchmarkGroup<'_, WallTime>, bytes: usize) {
    let (from, mut to) = (vec![1; bytes], vec![0; bytes]);
    let stride = bytes.next_multiple_of(64);
    let (mut between, fd) = OwnArena::create(stride * BUFFERS).expect("memory");
    let peer = PeerArena::map(fd, stride * BUFFERS).expect("memory");
    let mut places = (0..BUFFERS).map(|buffer| buffer * stride).cycle();
    group.bench_function(BenchmarkId::new("memcpy-twice", bytes), |bencher| {
        bencher.iter(|| {
            let at = places.next().expect("places without end");
            between.write(at, black_box(&from)).expect("a place inside");
            between.read(at, &mut to).expect("a place inside");
            black_box(&to);
        });
    });
    group.bench_function(BenchmarkId::new("arena", bytes), |bencher| {
        bencher.iter(|| {
            let at = places.next().expect("places without end");
            between.write(at, black_box(&from)).expect("a place inside");
            peer.copy_to(at, &mut to).expect("a place inside");
            black_box(&to);
        });
    });
}
