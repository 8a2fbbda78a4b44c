//! Streams of datagrams over the loopback interface: what is lost, doubled, overtaken, late or foreign.

use super::ends::{ClientEnd, Faults, Faulty, ServerEnd, phase};
use siga_measure::limits;
use siga_measure::load::datagrams::{HEADER_BYTES, Header};
use siga_plan::workload::{Close, Workload};
use siga_results::record::LoadCounts;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use siga_measure::socket::Endpoint;

const BYTES: usize = 100;

fn workload(text: &str) -> Workload {
    text.parse().unwrap()
}

fn loopback() -> Endpoint {
    Endpoint::Udp((Ipv4Addr::LOCALHOST, 0).into())
}

/// Returns a datagram of the stream that `request` asks for.
fn datagram(request: &Header, number: u64) -> Vec<u8> {
    let header = Header { number, ..*request };
    let mut bytes = header.bytes().to_vec();
    bytes.resize(BYTES, 0);
    header.content().write(&mut bytes[HEADER_BYTES..], 0, limits::STAMP_STRIDE_BYTES);
    bytes
}

/// Runs two phases of a client whose server sends what `script` returns for the request of each phase. Returns the counts of the
/// second phase. `expected` is the number of datagrams that the server claims to have sent in both phases.
fn received(script: fn(&Header) -> Vec<Vec<u8>>, expected: u64) -> LoadCounts {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = Endpoint::Udp(socket.local_addr().unwrap());
    thread::spawn(move || {
        let (mut buffer, mut served) = ([0; 2_000], 0);
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let request = Header::read(&buffer[..length]).unwrap();
            if std::mem::replace(&mut served, request.phase) < request.phase {
                script(&request).iter().for_each(|bytes| drop(socket.send_to(bytes, from)));
            }
        }
    });
    let text = format!("udp-strg:{BYTES}");
    let client = ClientEnd::start(Faulty::new(Faults::default(), 1), workload(&text), Close::Server, 1, &to);
    let phase = || {
        client.run(Duration::from_millis(60), limits::STAMP_STRIDE_BYTES, None);
        client.finish(expected * BYTES as u64).unwrap().counts
    };
    phase();
    phase()
}

#[test]
fn each_datagram_counts_once_and_only_in_its_own_phase() {
    let counts = received(
        |request| {
            let of = |number| datagram(request, number);
            let (late, foreign) = (Header { phase: request.phase - 1, ..*request }, Header { trial: 8, ..*request });
            let (other, mut changed) = (Header { pair: 1, ..*request }, of(6));
            changed[BYTES - 1 - 60] ^= 1;
            let (short, long) = (of(7)[..BYTES - 1].to_vec(), [of(8), vec![0]].concat());
            let ignored = vec![datagram(&late, 9), datagram(&foreign, 9), datagram(&other, 9), changed, short, long];
            let own = [0, 1, 3, 2, 3, 5].map(of).to_vec();
            [ignored, vec![b"hostile".to_vec(), Vec::new()], own].concat()
        },
        20,
    );
    assert_eq!((counts.transactions, counts.received), (5, 500), "0, 1, 2, 3 and 5: {counts:?}");
    assert_eq!((counts.duplicated, counts.reordered), (1, 1), "{counts:?}");
    assert_eq!((counts.late, counts.foreign, counts.short_reads), (1, 4, 2), "{counts:?}");
    assert_eq!(counts.wrong_content, 1, "{counts:?}");
}

#[test]
fn a_phase_with_losses_ends() {
    let script = |request: &Header| (0..5).map(|number| datagram(request, number)).collect();
    // The server claims ten datagrams in both phases, and five have arrived in each.
    let counts = received(script, 10);
    assert_eq!((counts.transactions, counts.duplicated), (5, 0), "{counts:?}");
}

#[test]
fn a_stream_keeps_its_pace_and_stops_between_phases() {
    let server =
        ServerEnd::start(Faulty::new(Faults::default(), 1), workload("udp-strg:1000@2MB/s"), Close::Server, loopback());
    let sockets = Faulty::new(Faults::default(), 2);
    let client = ClientEnd::start(sockets, workload("udp-strg:1000@2MB/s"), Close::Server, 3, &server.endpoint);
    for stride in [limits::STAMP_BYTES, limits::STAMP_STRIDE_BYTES] {
        let (report, quiesced) = phase(&client, &server, stride);
        let counts = report.counts;
        assert_eq!((counts.errors(), quiesced.errors()), (0, 0), "{counts:?} {quiesced:?}");
        let rate = quiesced.sent as f64 * 1e3 / (report.end_ns - report.start_ns) as f64;
        assert!(rate < 6.6 && quiesced.transactions > 30, "three streams of 2 MB/s: {rate} {quiesced:?}");
        assert_eq!(counts.transactions, quiesced.transactions, "a paced stream loses nothing on this path");
        assert_eq!(counts.late, 0, "{counts:?}");
        assert!(report.jitter.1 == 3 && report.jitter.0 >= 0.0);
    }
    server.quit();
}

#[test]
fn strangers_get_no_stream_and_end_none() {
    let server =
        ServerEnd::start(Faulty::new(Faults::default(), 1), workload("udp-strg:1000"), Close::Server, loopback());
    let Endpoint::Udp(address) = server.endpoint.clone() else { panic!("UDP was asked for") };
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let request = Header { trial: 6, pair: 0, phase: u32::MAX, number: 0, sent_ns: 0 };
    let hostile = |to: SocketAddr| {
        let own = Header { trial: 7, pair: u32::MAX, ..request };
        for bytes in [&b""[..], b"short", &request.bytes(), &own.bytes(), &[7; 33], &[0; 60_000]] {
            stranger.send_to(bytes, to).unwrap();
        }
    };
    hostile(address);
    let counts = server.until("all datagrams", |counts| counts.foreign >= 6);
    assert_eq!((counts.foreign, counts.sent), (6, 0), "{counts:?}");
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.recv(&mut [0; 2_000]).is_err(), "a stranger gets no answer");

    let sockets = Faulty::new(Faults::default(), 1);
    let client = ClientEnd::start(sockets, workload("udp-strg:1000"), Close::Server, 2, &server.endpoint);
    let (report, quiesced) = phase(&client, &server, limits::STAMP_STRIDE_BYTES);
    assert!(report.counts.transactions > 10, "{:?}", report.counts);
    assert!(quiesced.transactions >= report.counts.transactions, "{quiesced:?}");
    server.quit();
}
