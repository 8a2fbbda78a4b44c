//! Measures TCP between two hosts in one thread, with siga's stack and with smoltcp in the same run. The benchmarks are streams,
//! requests, connections, and requests over one of many connections. Both stacks have the same buffers, windows, bursts and
//! checksums, and end TIME-WAIT at once. For each row of requests and connections, the benchmark prints how many frames an operation
//! sends. Asserts nothing.
//!
//! The two stacks use buffers and checksums differently:
//!
//! - siga's stack may retain bytes in the frames that carried them, as in siga's networks. For large writes, it copies each byte
//!   twice; smoltcp copies each byte four times.
//! - smoltcp supports large segments only without checksums. In rows of large segments with checksums, smoltcp runs at an MTU of
//!   57,344 instead.
//!
//! `cargo bench -p siga-stack --bench tcp [-- FILTER]`
//!
//! The benchmark reports the CPU time of the thread, so that other load on the host does not distort it. The rows `four copies`
//! show the cost of copying the bytes alone. The four copies lead from the application to the send buffer, to the frame, to the
//! receive buffer and to the application.

mod copies;
mod cpu_time;
mod link;
mod pair;
mod siga_pair;
mod smoltcp_pair;

use copies::Copies;
use cpu_time::CpuTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use pair::{Application, Ends, Pair, Setting, Side, open};
use siga_pair::SigaPair;
use smoltcp_pair::SmoltcpPair;
use std::time::Duration;

/// The number of bytes that an application reads or writes at a time. With the larger size, all buffers together fit into the
/// second-level cache, as between hosts. With the smaller size, they fit into the first-level cache.
const WRITES: [(&str, usize); 2] = [("128 KB", 128 << 10), ("8 KB", 8 << 10)];
const STREAM_BYTES: usize = 8 << 20;
const REQUEST_BYTES: usize = 200;
const ANSWER_BYTES: usize = 1000;
/// The number of requests at once. The link has room for twice as many frames.
const BURST: usize = 32;

const SETTING: Setting = Setting {
    mtu: 1500,
    large_segments: false,
    checksums: true,
    ethernet: false,
    buffer_bytes: 256 << 10,
    burst_frames: 64,
    connections: 1,
};

criterion_group! {
    name = tcp;
    config = Criterion::default()
        .with_measurement(CpuTime)
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = streams, requests, connections, many, bursts
}
criterion_main!(tcp);

/// A benchmark group. Each benchmark is set up only when it runs, because the filter excludes most of them.
type Group<'a> = BenchmarkGroup<'a, CpuTime>;

/// Measures streams in one direction, at several MTUs.
fn streams(criterion: &mut Criterion<CpuTime>) {
    for (write, write_bytes) in WRITES {
        for (checksums, how) in [(true, "checksums"), (false, "no checksums")] {
            for mtu in [1500, 8992, 57_344] {
                let setting = Setting { mtu, checksums, ..SETTING };
                let mut group = criterion.benchmark_group(format!("stream of {write}, MTU {mtu}, {how}"));
                stream::<SigaPair>(&mut group, "siga", setting, write_bytes);
                stream::<SmoltcpPair>(&mut group, "smoltcp", setting, write_bytes);
                copy(&mut group, setting, write_bytes);
            }
            let setting = Setting { large_segments: true, checksums, ..SETTING };
            let mut group = criterion.benchmark_group(format!("stream of {write}, large segments, {how}"));
            stream::<SigaPair>(&mut group, "siga", setting, write_bytes);
            // smoltcp makes large segments only if it does not have to fill in their checksums.
            let large = if checksums { Setting { mtu: 57_344, ..SETTING } } else { setting };
            stream::<SmoltcpPair>(&mut group, "smoltcp", large, write_bytes);
        }
    }
    let mut group = criterion.benchmark_group("stream of 128 KB, MTU 1500, checksums, Ethernet");
    let setting = Setting { ethernet: true, ..SETTING };
    stream::<SigaPair>(&mut group, "siga", setting, WRITES[0].1);
    stream::<SmoltcpPair>(&mut group, "smoltcp", setting, WRITES[0].1);
}

fn stream<P: Pair>(group: &mut Group<'_>, name: &str, setting: Setting, write_bytes: usize) {
    let mut made = None;
    group.throughput(Throughput::BytesDecimal(STREAM_BYTES as u64));
    group.bench_function(name, |bencher| {
        let (pair, ends, application) = made.get_or_insert_with(|| {
            let mut pair = P::new(setting);
            let ends = open(&mut pair);
            (pair, ends, Application::new(write_bytes))
        });
        bencher.iter(|| application.transfer(pair, Side::Client, ends, STREAM_BYTES));
    });
}

fn copy(group: &mut Group<'_>, setting: Setting, write_bytes: usize) {
    let mut copies = Copies::new(usize::from(setting.mtu) - 40, setting, write_bytes);
    group.bench_function("four copies", |bencher| bencher.iter(|| copies.transfer(STREAM_BYTES)));
}

/// Measures a request and its response over an open connection.
fn requests(criterion: &mut Criterion<CpuTime>) {
    for (checksums, ethernet, how) in
        [(true, false, "checksums"), (false, false, "no checksums"), (true, true, "checksums, Ethernet")]
    {
        let setting = Setting { checksums, ethernet, ..SETTING };
        let mut group = criterion.benchmark_group(format!("RR 200/1000, {how}"));
        any_request::<SigaPair>(&mut group, "siga", setting);
        any_request::<SmoltcpPair>(&mut group, "smoltcp", setting);
    }
}

/// Measures a request and its response over one of many connections, which is chosen at random.
fn many(criterion: &mut Criterion<CpuTime>) {
    for connections in [10, 1000, 10_000] {
        let setting = Setting { buffer_bytes: 16 << 10, connections, ..SETTING };
        let mut group = criterion.benchmark_group(format!("RR 200/1000, {connections} connections, checksums"));
        any_request::<SigaPair>(&mut group, "siga", setting);
        // smoltcp searches all its sockets for each segment, so 10,000 connections would only show the same result, ten times
        // slower.
        if connections <= 1000 {
            any_request::<SmoltcpPair>(&mut group, "smoltcp", setting);
        }
    }
}

/// Measures requests over many connections at once, which are next to each other in a random order of all connections.
fn bursts(criterion: &mut Criterion<CpuTime>) {
    for connections in [BURST, 10_000] {
        let setting = Setting { buffer_bytes: 16 << 10, connections, ..SETTING };
        let mut group = criterion.benchmark_group(format!("RR 200/1000, {BURST} at once, {connections} connections"));
        group.throughput(Throughput::Elements(BURST as u64));
        let mut made = None;
        let mut at = 0;
        group.bench_function("siga", |bencher| {
            let (pair, ends, application) = made.get_or_insert_with(|| {
                let mut pair = SigaPair::new(setting);
                let mut ends: Vec<Ends<_>> = (0..setting.connections).map(|_| open(&mut pair)).collect();
                let mut random = 1_u64;
                for last in (1..ends.len()).rev() {
                    random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    ends.swap(last, usize::try_from(random >> 33).unwrap_or(0) % (last + 1));
                }
                (pair, ends, Application::new(WRITES[0].1))
            });
            bencher.iter(|| {
                at = if at + 2 * BURST > ends.len() { 0 } else { at + BURST };
                application.requests(pair, &ends[at..at + BURST], REQUEST_BYTES, ANSWER_BYTES);
            });
        });
    }
}

fn any_request<P: Pair>(group: &mut Group<'_>, name: &str, setting: Setting) {
    let mut made = None;
    let mut random = 1_u64;
    let mut requests = 0_u64;
    group.bench_function(name, |bencher| {
        let (pair, ends, application) = made.get_or_insert_with(|| {
            let mut pair = P::new(setting);
            let ends: Vec<Ends<P::Socket>> = (0..setting.connections).map(|_| open(&mut pair)).collect();
            (pair, ends, Application::new(WRITES[0].1))
        });
        bencher.iter(|| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let place = usize::try_from(random >> 33).unwrap_or(0) % ends.len();
            application.request(pair, &ends[place], REQUEST_BYTES, ANSWER_BYTES);
            requests += 1;
        });
    });
    if let Some((pair, ..)) = &made {
        print_frames(pair.frames(), requests);
    }
}

/// Prints how many frames one measured operation sends. Both stacks should do the same work.
fn print_frames(frames: u64, operations: u64) {
    eprintln!("frames: {:.2}", frames as f64 / operations as f64);
}

/// Measures a request and its response, each on its own connection.
fn connections(criterion: &mut Criterion<CpuTime>) {
    for (checksums, how) in [(true, "checksums"), (false, "no checksums")] {
        let setting = Setting { checksums, buffer_bytes: 64 << 10, ..SETTING };
        let mut group = criterion.benchmark_group(format!("CRR 64/8k, {how}"));
        connection::<SigaPair>(&mut group, "siga", setting);
        connection::<SmoltcpPair>(&mut group, "smoltcp", setting);
    }
}

fn connection<P: Pair>(group: &mut Group<'_>, name: &str, setting: Setting) {
    let mut made = None;
    let mut requests = 0_u64;
    group.bench_function(name, |bencher| {
        let (pair, application) = made.get_or_insert_with(|| (P::new(setting), Application::new(WRITES[0].1)));
        bencher.iter(|| {
            application.connect_request(pair, 64, 8192);
            requests += 1;
        });
    });
    if let Some((pair, _)) = &made {
        print_frames(pair.frames(), requests);
    }
}
