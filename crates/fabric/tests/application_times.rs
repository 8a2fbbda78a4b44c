//! Times, small writes, records, path MTUs and the state of BBR, as applications use them: with an embedded stack, and over IUCV.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

#[path = "common/network.rs"]
mod network;

use network::{Network, PATIENCE};
use siga_fabric::sockets::{
    Attachment, CongestionControl, MtuDiscovery, Poller, SendFlags, SendStage, SendTime, SocketOptions, TcpListener,
    TcpStream, Timing, UdpSocket,
};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

const ALL_TIMES: Timing = Timing { received: true, sent: true, acknowledged: true };
const SERVER: &str = "10.0.0.2:7";
const MTU: usize = 8_992;
/// Difference that two clocks of this host may have, because their rates are measured.
const CLOCK_ERROR: Duration = Duration::from_millis(20);

/// Lets an embedded stack run while no other thread is in an operation.
struct Runner {
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Runner {
    fn of(attachment: &Attachment) -> Self {
        let (attachment, stops) = (attachment.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stops);
        let thread = std::thread::spawn(move || {
            let poller = Poller::new(&attachment);
            while !stopped.load(Ordering::Relaxed) {
                poller.wait(&mut Vec::new(), Some(Duration::from_millis(1))).unwrap();
            }
        });
        Self { stops, thread: Some(thread) }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A network whose guest `a` is in this process or serves applications, and whose guest `b` serves applications.
struct Net {
    a: Attachment,
    b: Attachment,
    _runner: Option<Runner>,
    _network: Network,
}

/// How applications use a stack.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Embedded,
    Iucv,
}

const BOTH: [Way; 2] = [Way::Embedded, Way::Iucv];

impl Way {
    fn up(self, name: &str) -> Net {
        let external = if self == Self::Embedded { "external = true\n" } else { "" };
        let topology = format!(
            "[network.lan]\ntype = \"hipersockets\"\n\
             [guest.a]\n{external}device = [{{ network = \"lan\", mtu = {MTU}, addresses = [\"10.0.0.1/24\"] }}]\n\
             [guest.b]\ndevice = [{{ network = \"lan\", mtu = {MTU}, addresses = [\"10.0.0.2/24\"] }}]\n"
        );
        let network = Network::up(&format!("{name}-{self:?}").to_lowercase(), &topology);
        let a = if self == Self::Embedded { network.attach("a") } else { network.application("a") };
        let b = network.application("b");
        let _runner = (self == Self::Embedded).then(|| Runner::of(&a));
        Net { a, b, _runner, _network: network }
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn connect(client: &Attachment, listener: &TcpListener, options: &SocketOptions) -> (TcpStream, TcpStream) {
    let stream = TcpStream::begin(client, address(SERVER), options).unwrap();
    let until = Instant::now() + PATIENCE;
    while !stream.is_connected().unwrap() {
        assert!(Instant::now() < until, "the connection does not open");
        Poller::new(client).wait(&mut Vec::new(), Some(Duration::from_millis(5))).unwrap();
    }
    let (served, _) = listener.accept().unwrap();
    for end in [&stream, &served] {
        end.set_timeout(Some(PATIENCE));
    }
    (stream, served)
}

/// Takes `count` times.
fn send_times(
    attachment: &Attachment,
    count: usize,
    mut take: impl FnMut() -> std::io::Result<Option<SendTime>>,
) -> Vec<SendTime> {
    let (mut times, poller, until) = (Vec::new(), Poller::new(attachment), Instant::now() + PATIENCE);
    while times.len() < count {
        match take().unwrap() {
            Some(time) => times.push(time),
            None => {
                assert!(Instant::now() < until, "only {} times of {count}", times.len());
                // The thread of an embedded stack may take the event.
                poller.wait(&mut Vec::new(), Some(Duration::from_millis(5))).unwrap();
            }
        }
    }
    times
}

fn assert_between(at: SystemTime, from: SystemTime, to: SystemTime) {
    assert!(at >= from - CLOCK_ERROR && at <= to + CLOCK_ERROR, "{at:?} is not between {from:?} and {to:?}");
}

#[test]
fn a_connection_reports_when_bytes_were_sent_acknowledged_and_received() {
    for way in BOTH {
        let net = way.up("times");
        let (a, b) = (&net.a, &net.b);
        let listener = TcpListener::bind_with(
            b,
            address(SERVER),
            &SocketOptions { timing: ALL_TIMES, ..SocketOptions::default() },
        )
        .unwrap();
        let options = SocketOptions { timing: ALL_TIMES, ..SocketOptions::default() };
        let (mut stream, mut served) = connect(a, &listener, &options);
        assert_eq!(stream.options().unwrap().timing, ALL_TIMES);
        let begun = SystemTime::now();
        stream.write_all(&[1; 1_500]).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let mut into = [0; 1_500];
        let mut count = 0;
        while count < 1_500 {
            let (more, at) = served.receive_timed(&mut into[count..]).unwrap();
            assert_between(at.unwrap(), begun, SystemTime::now());
            count += more;
        }
        let times = send_times(a, 2, || stream.take_send_time());
        let stages: Vec<_> = times.iter().map(|time| (time.id, time.stage)).collect();
        assert_eq!(stages, [(1_499, SendStage::Sent), (1_499, SendStage::Acknowledged)], "{way:?}");
        times.iter().for_each(|time| assert_between(time.at, begun, SystemTime::now()));
        assert!(times[0].at <= times[1].at + CLOCK_ERROR, "{times:?}");
        // The listener's options apply to the other end, too.
        served.write_all(b"answer").unwrap();
        stream.read_exact(&mut [0; 6]).unwrap();
        assert_eq!(send_times(b, 2, || served.take_send_time())[1].id, 5);
        // Without the option, nothing is reported.
        stream.set_options(&SocketOptions::default()).unwrap();
        served.set_options(&SocketOptions::default()).unwrap();
        // The answer comes after the change, so the guest has made it before the bytes arrive.
        assert_eq!(served.options().unwrap().timing, SocketOptions::default().timing);
        stream.write_all(&[1; 100]).unwrap();
        assert_eq!(served.receive_timed(&mut [0; 100]).unwrap().1, None);
        served.write_all(b"answer").unwrap();
        stream.read_exact(&mut [0; 6]).unwrap();
        assert_eq!(stream.take_send_time().unwrap(), None, "{way:?}");
    }
}

#[test]
fn many_small_reads_and_writes_have_their_own_times() {
    let net = Way::Iucv.up("many-times");
    let (a, b) = (&net.a, &net.b);
    let listener = TcpListener::bind(b, address(SERVER)).unwrap();
    let options = SocketOptions { timing: ALL_TIMES, no_delay: true, ..SocketOptions::default() };
    let (mut stream, mut served) = connect(a, &listener, &options);
    served.set_options(&options).unwrap();
    // The guest answers after it has applied the options.
    assert_eq!(served.options().unwrap().timing, ALL_TIMES);
    // The stack holds the times of this number of writes, even if they are all sent before the application takes a time.
    const WRITES: u32 = 500;
    let sent = std::thread::scope(|scope| {
        let taker = scope.spawn(|| send_times(a, 2 * WRITES as usize, || stream.take_send_time()));
        for _ in 0..WRITES {
            (&stream).write_all(&[7]).unwrap();
        }
        let mut last = SystemTime::UNIX_EPOCH;
        for _ in 0..WRITES {
            let (count, at) = served.receive_timed(&mut [0]).unwrap();
            assert!(count == 1 && at.unwrap() + CLOCK_ERROR >= last);
            last = at.unwrap();
        }
        taker.join().unwrap()
    });
    for stage in [SendStage::Sent, SendStage::Acknowledged] {
        let ids: Vec<_> = sent.iter().filter(|time| time.stage == stage).map(|time| time.id).collect();
        assert_eq!(ids, (0..WRITES).collect::<Vec<_>>());
    }
    served.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

#[test]
fn a_datagram_socket_reports_when_datagrams_were_sent_and_received() {
    for way in BOTH {
        let net = way.up("udp-times");
        let (a, b) = (&net.a, &net.b);
        let (here, there) =
            (UdpSocket::bind(a, address("0.0.0.0:0")).unwrap(), UdpSocket::bind(b, address(SERVER)).unwrap());
        there.set_timeout(Some(PATIENCE));
        let mut into = [0; 10];
        here.send_to(b"before", address(SERVER)).unwrap();
        assert_eq!(there.recv_from_timed(&mut into).unwrap().2, None);
        here.set_timing(Timing { sent: true, ..Timing::default() }).unwrap();
        there.set_timing(Timing { received: true, ..Timing::default() }).unwrap();
        let begun = SystemTime::now();
        for _ in 0..3 {
            here.send_to(b"x", address(SERVER)).unwrap();
            let (count, _, at) = there.recv_from_timed(&mut into).unwrap();
            assert_eq!(count, 1);
            assert_between(at.unwrap(), begun, SystemTime::now());
        }
        let times = send_times(a, 3, || here.take_send_time());
        assert_eq!(
            times.iter().map(|time| (time.id, time.stage)).collect::<Vec<_>>(),
            [0, 1, 2].map(|id| (id, SendStage::Sent))
        );
        times.iter().for_each(|time| assert_between(time.at, begun, SystemTime::now()));
        here.set_timing(Timing::default()).unwrap();
        here.send_to(b"x", address(SERVER)).unwrap();
        there.recv_from(&mut into).unwrap();
        assert_eq!(here.take_send_time().unwrap(), None, "{way:?}");
    }
}

// Nagle's algorithm holds back the second of two small writes until the first is acknowledged, when the application has read it.
#[test]
fn small_writes_do_not_wait_for_delayed_acknowledgements() {
    const PAIRS: u32 = 50;
    for way in BOTH {
        let net = way.up("small-writes");
        let listener = TcpListener::bind(&net.b, address(SERVER)).unwrap();
        for from_client in [true, false] {
            let (client, served) = connect(&net.a, &listener, &SocketOptions::default());
            let (mut from, mut to) = if from_client { (client, served) } else { (served, client) };
            let begun = Instant::now();
            for _ in 0..PAIRS {
                from.write_all(&[1; 50]).unwrap();
                from.write_all(&[2; 50]).unwrap();
                to.read_exact(&mut [0; 100]).unwrap();
            }
            let each = begun.elapsed() / PAIRS;
            assert!(each < Duration::from_millis(20), "{way:?}: {each:?}");
        }
    }
}

#[test]
fn the_end_of_a_record_is_the_end_of_a_segment() {
    for way in BOTH {
        let net = way.up("records");
        let (a, b) = (&net.a, &net.b);
        let listener = TcpListener::bind(b, address(SERVER)).unwrap();
        // The cork holds all writes back, so that they could share a segment.
        for (end_of_record, segments) in [(false, 1), (true, 10)] {
            let corked = SocketOptions { cork: true, ..SocketOptions::default() };
            let (stream, mut served) = connect(a, &listener, &corked);
            let flags = SendFlags { more: false, end_of_record };
            for _ in 0..10 {
                assert_eq!(stream.send(&[1; 50], flags).unwrap(), 50);
            }
            stream.set_options(&SocketOptions::default()).unwrap();
            served.read_exact(&mut [0; 500]).unwrap();
            assert_eq!(stream.info().unwrap().data_segs_out, segments, "{way:?}");
        }
    }
}

#[test]
fn the_option_for_mtu_discovery_decides_whether_a_long_datagram_is_sent() {
    for way in BOTH {
        let net = way.up("mtu");
        let (a, b) = (&net.a, &net.b);
        let (here, there) =
            (UdpSocket::bind(a, address("0.0.0.0:0")).unwrap(), UdpSocket::bind(b, address(SERVER)).unwrap());
        there.set_timeout(Some(PATIENCE));
        let mut into = vec![0; 20_000];
        for (discovery, is_sent) in [
            (MtuDiscovery::Dont, true),
            (MtuDiscovery::Want, true),
            (MtuDiscovery::Do, false),
            (MtuDiscovery::Probe, false),
            (MtuDiscovery::Interface, false),
        ] {
            here.set_mtu_discovery(discovery).unwrap();
            let long = here.send_to(&vec![1; MTU], address(SERVER));
            if is_sent {
                assert_eq!(there.recv_from(&mut into).unwrap().0, MTU, "{way:?} {discovery:?}");
                continue;
            }
            // The guest reports the error after the call if it is another process.
            let error = long.map_err(|error| error.kind());
            let late = || {
                here.set_mtu_discovery(discovery).unwrap();
                here.send_to(b"late", address(SERVER)).unwrap_err().kind()
            };
            let kind = error.err().unwrap_or_else(late);
            assert_eq!(kind, ErrorKind::InvalidInput, "{way:?} {discovery:?}");
            here.send_to(b"short", address(SERVER)).unwrap();
            assert_eq!(there.recv_from(&mut into).unwrap().0, 5, "{way:?} {discovery:?}");
        }
        let listener = TcpListener::bind(b, address(SERVER)).unwrap();
        let chosen = SocketOptions { mtu_discovery: Some(MtuDiscovery::Dont), ..SocketOptions::default() };
        let (mut stream, mut served) = connect(a, &listener, &chosen);
        stream.write_all(&vec![1; 50_000]).unwrap();
        served.read_exact(&mut vec![0; 50_000]).unwrap();
        assert_eq!(stream.options().unwrap().mtu_discovery, Some(MtuDiscovery::Dont));
        assert_eq!(served.options().unwrap().mtu_discovery, Some(MtuDiscovery::Want));
    }
}

#[test]
fn an_application_reads_the_state_of_bbr() {
    for way in BOTH {
        let net = way.up("bbr");
        let (a, b) = (&net.a, &net.b);
        let listener = TcpListener::bind(b, address(SERVER)).unwrap();
        let bbr = SocketOptions { congestion: Some(CongestionControl::Bbr), ..SocketOptions::default() };
        let (mut stream, mut served) = connect(a, &listener, &bbr);
        // A busy host can delay an acknowledgement until the data is sent again, which then gives no round-trip time.
        let mut exchange = || {
            stream.write_all(&[1; 10_000]).unwrap();
            served.read_exact(&mut [0; 10_000]).unwrap();
            served.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
            stream.bbr_info().unwrap().unwrap()
        };
        let info = (0..20).map(|_| exchange()).find(|info| info.min_rtt < 10_000_000).expect("a round-trip time");
        assert!(info.bandwidth > 0 && info.pacing_gain > 0 && info.cwnd_gain > 0, "{info:?}");
        assert_eq!(served.bbr_info().unwrap(), None, "{way:?}");
    }
}
