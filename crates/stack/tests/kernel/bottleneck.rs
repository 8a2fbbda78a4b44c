//! The stack's BBR beside the kernel's congestion controls, over a bottleneck that this program emulates: 10 Mbit/s, a round trip of
//! 40 ms, and a queue of one bandwidth-delay product.
//!
//! Both streams go from one namespace to another. The kernel paces its BBR by itself, or with the queueing discipline fq in the
//! virtual machine, whose kernel has it.

use crate::peer;
use crate::place::{Place, possible};
use crate::tap::Tap;
use rustix::net::sockopt::set_tcp_congestion;
use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

const BITS_PER_S: u64 = 10_000_000;
const DELAY: Duration = Duration::from_millis(20);
const QUEUE: Duration = Duration::from_millis(40);
/// How long the streams find their rates, and how long they are measured.
const WARM_UP: Duration = Duration::from_secs(4);
const COUNTED: Duration = Duration::from_secs(10);
/// Interval at which the emulated link passes packets on. A full packet takes 1.2 ms.
const TICK: Duration = Duration::from_micros(500);
const FAR: &str = "10.9.2.2";
const KERNEL_PORT: u16 = 9_001;
const STACK_PORT: u16 = 9_002;

/// One direction of the link: the packets on their way, and when the packet that was sent last has left.
struct Direction {
    limited: bool,
    free_at: Instant,
    flying: VecDeque<(Instant, Vec<u8>)>,
}

impl Direction {
    fn new(limited: bool) -> Self {
        Self { limited, free_at: Instant::now(), flying: VecDeque::new() }
    }

    /// Takes the packets that one end has sent, and delivers those that have crossed the link to the other end.
    fn pass(&mut self, from: &SyncDevice, to: &SyncDevice) {
        let now = Instant::now();
        let mut packet = [0; 2_048];
        while let Ok(len) = from.recv(&mut packet) {
            if self.limited && self.free_at > now + QUEUE {
                continue;
            }
            let taken = if self.limited { len as u64 * 8 * 1_000_000_000 / BITS_PER_S } else { 0 };
            self.free_at = self.free_at.max(now) + Duration::from_nanos(taken);
            self.flying.push_back((self.free_at + DELAY, packet[..len].to_vec()));
        }
        while let Some((_, packet)) = self.flying.pop_front_if(|(at, _)| *at <= now) {
            to.send(&packet).unwrap();
        }
    }
}

/// Opens a TUN device in a namespace.
fn open(place: &Place, name: &str, address: [u8; 4]) -> SyncDevice {
    place.inside(|| {
        let builder = DeviceBuilder::new().name(name).layer(Layer::L3).mtu(1_500).enable(true);
        let device = builder.ipv4(std::net::Ipv4Addr::from(address), 24, None).build_sync().unwrap();
        device.set_nonblocking(true).unwrap();
        device
    })
}

/// Two namespaces with the link between them. The far one counts the bytes that arrive at each port.
struct Net {
    near: Place,
    far: Place,
    stop: Arc<AtomicBool>,
    link: Option<thread::JoinHandle<()>>,
}

impl Net {
    fn new() -> Self {
        let (near, far) = (Place::router(), Place::new());
        let ends = [open(&near, "near", [10, 9, 1, 1]), open(&far, "far", [10, 9, 2, 2])];
        near.ip("route add 10.9.2.0/24 dev near");
        far.ip("route add 10.0.0.0/8 dev far");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let link = thread::spawn(move || {
            let (mut there, mut back) = (Direction::new(true), Direction::new(false));
            while !stopped.load(Ordering::Relaxed) {
                there.pass(&ends[0], &ends[1]);
                back.pass(&ends[1], &ends[0]);
                thread::sleep(TICK);
            }
        });
        Self { near, far, stop, link: Some(link) }
    }

    fn count(&self, port: u16) -> Arc<AtomicU64> {
        let arrived = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&arrived);
        peer::serve(&self.far, SocketAddr::new(FAR.parse().unwrap(), port), move |mut stream| {
            let mut bytes = vec![0; 64 << 10];
            while let Ok(count @ 1..) = stream.read(&mut bytes) {
                counter.fetch_add(count as u64, Ordering::Relaxed);
            }
        });
        arrived
    }

    /// Sends from the kernel until the link stops.
    fn send_with(&self, congestion: &str) -> thread::JoinHandle<()> {
        let mut stream: TcpStream =
            self.near.inside(|| peer::connect(SocketAddr::new(FAR.parse().unwrap(), KERNEL_PORT)));
        set_tcp_congestion(&stream, congestion).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let stop = Arc::clone(&self.stop);
        thread::spawn(move || {
            let bytes = [0; 16 << 10];
            while !stop.load(Ordering::Relaxed) {
                match stream.write(&bytes) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => panic!("the kernel's stream: {error}"),
                }
            }
        })
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(link) = self.link.take() {
            // A panic of the link was reported already.
            let _ended = link.join();
        }
    }
}

/// Lets the stack's BBR and one stream of the kernel share the link. `qdisc` is the queueing discipline of the kernel's device, if it
/// is not the default.
fn share(congestion: &str, qdisc: Option<&str>) {
    if !possible(&[]) {
        return;
    }
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    if !available.split_whitespace().any(|name| name == congestion) {
        println!("skipped, because the kernel has no {congestion}");
        return;
    }
    let net = Net::new();
    if let Some(qdisc) = qdisc {
        net.near.run(&format!("tc qdisc replace dev near root {qdisc}"));
        let shown = net.near.run("tc qdisc show dev near");
        assert!(shown.starts_with(&format!("qdisc {qdisc} ")), "{shown}");
    }
    let arrived = [KERNEL_PORT, STACK_PORT].map(|port| net.count(port));
    let kernel = net.send_with(congestion);
    let arguments =
        format!("--route 10.9.0.0/16=10.7.0.1 --connect {FAR}:{STACK_PORT} --send 10G --one-way --congestion bbr");
    let tap = Tap::start(&net.near, &arguments);
    thread::sleep(WARM_UP);
    let read = || arrived.each_ref().map(|count| count.load(Ordering::Relaxed));
    let (before, begun) = (read(), Instant::now());
    thread::sleep(COUNTED);
    let (after, time) = (read(), begun.elapsed());
    net.stop.store(true, Ordering::Relaxed);
    kernel.join().unwrap();
    drop(tap);
    let rate = |index: usize| (after[index] - before[index]) * 8 / u64::try_from(time.as_millis()).unwrap();
    let (kernel, stack) = (rate(0), rate(1));
    let with = qdisc.map_or(String::new(), |qdisc| format!(" with {qdisc}"));
    println!("kernel's {congestion}{with}: {kernel} kbit/s, stack's bbr: {stack} kbit/s");
    assert!(kernel > 500 && stack > 500, "{kernel} {stack} kbit/s");
    assert!(kernel + stack > 5_000, "{kernel} {stack} kbit/s");
}

#[test]
fn a_stream_with_bbr_shares_a_bottleneck_with_the_kernels_bbr() {
    share("bbr", None);
}

#[test]
fn a_stream_with_bbr_shares_a_bottleneck_with_the_kernels_cubic() {
    share("cubic", None);
}

crate::vm::needs_vm! {
    a_stream_with_bbr_shares_a_bottleneck_with_the_kernels_bbr_and_fq: "tcp_bbr, sch_fq, tun",
}

fn a_stream_with_bbr_shares_a_bottleneck_with_the_kernels_bbr_and_fq() {
    share("bbr", Some("fq"));
}
