//! The options and statistics that applications set and read on connections of a guest's stack.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

#[path = "common/network.rs"]
mod network;

use network::{Network, PATIENCE, wait_until};
use rustix::net::sockopt;
use siga_fabric::sockets::{
    Attachment, CongestionControl, MtuDiscovery, SendFlags, SocketOptions, TcpListener, TcpStream, ZeroCopyCompletion,
};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

const FIGURE_1: &str = include_str!("../../../topologies/figure-1.toml");

const SERVER: &str = "10.0.2.2:7";
const OPEN: u8 = 1;
/// A held segment is sent after one retransmission timeout, of at least 200 ms. An attempt that takes longer than this is repeated.
const HOLD_TIME_MAX: Duration = Duration::from_millis(100);

/// The two ends of a connection with these options of the client.
fn connect(client: &Attachment, listener: &TcpListener, options: &SocketOptions) -> (TcpStream, TcpStream) {
    let stream = TcpStream::begin(client, SERVER.parse().unwrap(), options).unwrap();
    let (served, _) = listener.accept().unwrap();
    served.set_timeout(Some(PATIENCE));
    // The answer to this command arrives after the event that the connection is open.
    wait_until("the connection is open", || stream.info().unwrap().state == OPEN && stream.is_connected().unwrap());
    (stream, served)
}

/// Runs an attempt again until one takes less time than a segment is held back.
fn within_hold_time(mut attempt: impl FnMut() -> Duration) {
    let found = (0..100).any(|_| attempt() < HOLD_TIME_MAX);
    assert!(found, "this host interrupts each attempt");
}

#[test]
fn an_application_reads_statistics_and_options_of_its_connection() {
    let network = Network::up("info", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let options = SocketOptions {
        no_delay: true,
        segment_bytes_max: Some(1_000),
        unsent_max: Some(50_000),
        send_buffer: Some(100_000),
        congestion: Some(CongestionControl::Reno),
        keepalive: Some(Duration::from_secs(60)),
        probe_interval: Some(Duration::from_secs(7)),
        user_timeout: Some(Duration::from_secs(30)),
        service: 8,
        ..SocketOptions::default()
    };
    let (mut stream, mut served) = connect(&client, &listener, &options);
    let used = stream.options().unwrap();
    let expected = SocketOptions {
        send_buffer: Some(200_000),
        mtu_discovery: Some(MtuDiscovery::Want),
        probes_max: Some(9),
        ..options
    };
    assert_eq!(SocketOptions { receive_buffer: None, ..used }, expected);
    assert_eq!(used.receive_buffer, Some(131_072));
    // What the application did not choose has the value that the guest chose.
    let of_server = served.options().unwrap();
    assert_eq!((of_server.congestion, of_server.no_delay), (Some(CongestionControl::Cubic), false));
    assert_eq!(stream.take_zero_copy_completion(), None);
    for _ in 0..2 {
        assert_eq!(stream.send_zero_copy(&[1; 1_500], SendFlags::default()).unwrap(), 1_500);
    }
    let copied = ZeroCopyCompletion { first: 0, last: 1, copied: true };
    assert_eq!(stream.take_zero_copy_completion(), Some(copied));
    served.read_exact(&mut [0; 3_000]).unwrap();
    served.write_all(b"answer").unwrap();
    wait_until("the answer and all acknowledgements", || {
        stream.unread().unwrap() == 6 && stream.info().unwrap().bytes_acked == 3_001
    });
    let info = stream.info().unwrap();
    // The option with timestamps takes 12 bytes of each segment of 1,000 bytes.
    assert_eq!((info.snd_mss, info.data_segs_out, info.bytes_sent, info.bytes_received), (988, 4, 3_000, 6));
    assert!(info.rtt > 0 && info.snd_cwnd >= 10 && info.lost == 0, "{info:?}");
    stream.read_exact(&mut [0; 6]).unwrap();
    assert_eq!(stream.unread().unwrap(), 0);
    drop(served);
    // As in Linux, the end of the stream counts as one.
    wait_until("the end of the stream", || stream.unread().unwrap() == 1);
    stream.set_options(&SocketOptions { unsent_max: Some(7), cork: true, hop_limit: 9, ..options }).unwrap();
    let used = stream.options().unwrap();
    assert_eq!((used.unsent_max, used.cork, used.hop_limit), (Some(7), true, 9));
}

#[test]
fn a_segment_that_is_not_full_waits_for_further_bytes_with_more_and_with_cork() {
    let network = Network::up("more", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let open = SocketOptions { no_delay: true, ..SocketOptions::default() };
    // With `flags`, ten writes at intervals.
    let write_all = |stream: &TcpStream, flags: SendFlags| {
        for _ in 0..10 {
            assert_eq!(stream.send(&[1; 50], flags).unwrap(), 50);
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let more = SendFlags { more: true, ..SendFlags::default() };
    within_hold_time(|| {
        let (stream, mut served) = connect(&client, &listener, &open);
        let begun = Instant::now();
        write_all(&stream, more);
        let (held, held_for) = (stream.info().unwrap(), begun.elapsed());
        stream.send(&[1; 50], SendFlags::default()).unwrap();
        served.read_exact(&mut [0; 550]).unwrap();
        if held_for < HOLD_TIME_MAX {
            assert_eq!((held.data_segs_out, held.notsent_bytes), (0, 500));
            assert_eq!(stream.info().unwrap().data_segs_out, 1);
        }
        held_for
    });
    within_hold_time(|| {
        // The option is set before the connection opens.
        let (stream, mut served) = connect(&client, &listener, &SocketOptions { cork: true, ..open });
        let begun = Instant::now();
        write_all(&stream, SendFlags::default());
        let (held, held_for) = (stream.info().unwrap(), begun.elapsed());
        stream.set_options(&open).unwrap();
        served.read_exact(&mut [0; 500]).unwrap();
        if held_for < HOLD_TIME_MAX {
            assert_eq!((held.data_segs_out, held.notsent_bytes), (0, 500));
            assert_eq!(stream.info().unwrap().data_segs_out, 1);
        }
        held_for
    });
}

#[test]
fn an_application_limits_the_unsent_bytes_of_its_connection() {
    /// Bytes that a connection accepts in one write, whatever the limit, so that a low limit does not cause small writes.
    const WRITE_BYTES_MAX: u32 = 64 << 10;
    const UNSENT_MAX: u32 = 10_000;
    let network = Network::up("unsent", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    // The server does not read, so all bytes beyond its receive buffer stay unsent.
    let unsent = |unsent_max| {
        let options = SocketOptions { unsent_max, ..SocketOptions::default() };
        let (mut stream, _served) = connect(&client, &listener, &options);
        stream.set_timeout(Some(Duration::from_millis(300)));
        while stream.write(&[1; 50_000]).map_err(|error| assert_eq!(error.kind(), ErrorKind::TimedOut)).is_ok() {}
        stream.info().unwrap().notsent_bytes
    };
    assert!(unsent(Some(UNSENT_MAX)) <= UNSENT_MAX + WRITE_BYTES_MAX);
    assert!(unsent(None) > UNSENT_MAX + WRITE_BYTES_MAX);
}

#[test]
fn a_guest_uses_the_tcp_settings_of_its_topology() {
    let of_guest = "tcp = { tcp_sack = false, tcp_congestion_control = \"reno\", tcp_fastopen = 0, tcp_rmem = [4096, 99999, 100000] }";
    let topology = FIGURE_1.replace("[guest.tcpip1]\n", &format!("[guest.tcpip1]\n{of_guest}\n")).replacen(
        "via = \"10.0.1.2\"\n",
        "via = \"10.0.1.2\"\ntcp = { initcwnd = 20, advmss = 1000, rto_min = 50, quickack = true, hoplimit = 9 }\n",
        1,
    );
    let network = Network::up("settings", &topology);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let (stream, _served) = connect(&client, &listener, &SocketOptions::default());
    let (used, info) = (stream.options().unwrap(), stream.info().unwrap());
    assert_eq!((used.congestion, used.receive_buffer), (Some(CongestionControl::Reno), Some(99_999)));
    // `TCPI_OPT_SACK` is 2.
    assert_eq!((info.options & 2, info.snd_cwnd, info.advmss), (0, 20, 988));
    assert_eq!((used.hop_limit, info.ato), (9, 0));
    assert!((50_000..200_000).contains(&info.rto), "{}", info.rto);
    // What the application chooses has precedence.
    let cubic = SocketOptions { congestion: Some(CongestionControl::Cubic), ..SocketOptions::default() };
    let (chosen, _served) = connect(&client, &listener, &cubic);
    assert_eq!(chosen.options().unwrap().congestion, Some(CongestionControl::Cubic));
    let fast = TcpStream::connect_with_data(&client, SERVER.parse().unwrap(), &SocketOptions::default(), b"x");
    assert_eq!(fast.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn buffers_have_the_sizes_that_the_kernel_reports_for_the_same_requests() {
    let network = Network::up("buffers", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let (stream, _served) = connect(&client, &listener, &SocketOptions::default());
    let kernel = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for bytes in [0, 1, 1_151, 1_152, 1_153, 2_303, 2_304, 2_305, 65_536, 100_001] {
        sockopt::set_socket_send_buffer_size(&kernel, bytes).unwrap();
        sockopt::set_socket_recv_buffer_size(&kernel, bytes).unwrap();
        let expected = (sockopt::socket_send_buffer_size(&kernel), sockopt::socket_recv_buffer_size(&kernel));
        let options =
            SocketOptions { send_buffer: Some(bytes), receive_buffer: Some(bytes), ..SocketOptions::default() };
        stream.set_options(&options).unwrap();
        let (changed, (opened, _served)) = (stream.options().unwrap(), connect(&client, &listener, &options));
        for used in [changed, opened.options().unwrap()] {
            assert_eq!(
                (used.send_buffer.unwrap(), used.receive_buffer.unwrap()),
                (expected.0.unwrap(), expected.1.unwrap())
            );
        }
    }
}
