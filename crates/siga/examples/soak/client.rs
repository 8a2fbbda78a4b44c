//! The client: sends every kind of traffic through the router and checks every byte.
//!
//! An open connection to the server has to survive the disturbances of other processes, so its failure is a finding. A connection
//! that fails to open is only counted, because the router may be down at that time. The parent process knows when this is
//! possible, and reports other failures as findings.

use super::Outcome;
use super::exchange::{Content, Head, PIECE_BYTES_MAX, PORT};
use super::report::Report;
use siga_fabric::sockets::{Attachment, SocketOptions, TcpStream, UdpSocket};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The address of the server, which is behind the router.
pub(super) const SERVER: &str = "10.0.2.2";
const SERVER_IPV6: &str = "fd00:2::2";
/// The address of another server on the same network, which is killed from time to time.
pub(super) const OTHER: &str = "10.0.2.3";
/// Time limit of an operation.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time limit of an operation with the other server, which may have died: a client that only waits for a response receives no
/// error.
const DEAD_AFTER: Duration = Duration::from_secs(5);
/// Time limit for the echo of a datagram; later echoes count as lost.
const ECHO_TIME: Duration = Duration::from_millis(300);
/// The number of exchanges on a connection, after which the client closes it and opens another.
const EXCHANGES: u32 = 5_000;
/// Size of the first stream. Each next stream is twice as long, up to 64 MB; then the sizes start again.
const STREAM_BYTES_MIN: u64 = 1 << 20;

fn at(host: &str) -> Outcome<SocketAddr> {
    let text = if host.contains(':') { format!("[{host}]:{PORT}") } else { format!("{host}:{PORT}") };
    text.parse().map_err(|error| format!("{text}: {error}"))
}

fn connect(attachment: &Attachment, to: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let options = SocketOptions { no_delay: true, ..SocketOptions::default() };
    let stream = TcpStream::begin(attachment, to, &options)?;
    stream.set_timeout(Some(patience));
    // Checks that the connection is open: before, even an empty send fails.
    let _nothing = (&stream).write(&[])?;
    Ok(stream)
}

/// Carries out one exchange. `progress` receives the number of bytes that each write sent.
fn exchange(stream: &mut TcpStream, content: &Content, head: Head, mut progress: impl FnMut(u64)) -> io::Result<()> {
    let piece = content.at(0, head.request);
    let mut sent = piece.len() as u64;
    stream.write_all(&[&head.bytes(), piece].concat())?;
    progress(sent);
    while sent < head.request {
        let piece = content.at(sent, head.request - sent);
        stream.write_all(piece)?;
        sent += piece.len() as u64;
        progress(piece.len() as u64);
    }
    let mut buffer = [0; PIECE_BYTES_MAX];
    let mut received = 0;
    while received < head.response {
        let room = usize::try_from(head.response - received).unwrap_or(buffer.len()).min(buffer.len());
        let count = stream.read(&mut buffer[..room])?;
        if count == 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server ended it early"));
        }
        if buffer[..count] != *content.at(received, count as u64) {
            return Err(io::Error::new(ErrorKind::InvalidData, format!("wrong bytes near {received}")));
        }
        received += count as u64;
    }
    if head.last && stream.read(&mut buffer)? != 0 {
        return Err(io::Error::new(ErrorKind::InvalidData, "bytes after the last"));
    }
    Ok(())
}

/// Sends every kind of traffic, each on its own thread, until the network goes down.
pub(super) fn traffic(attachment: &Attachment, report: &Report) -> Outcome<()> {
    let (server, server_ipv6, other) = (at(SERVER)?, at(SERVER_IPV6)?, at(OTHER)?);
    report.say("ready");
    std::thread::scope(|scope| {
        scope.spawn(|| streams(attachment, report, server));
        scope.spawn(|| exchanges(attachment, report, server_ipv6));
        scope.spawn(|| connections(attachment, report, server));
        scope.spawn(|| datagrams(attachment, report, server));
        scope.spawn(|| others(attachment, report, other));
    });
    Ok(())
}

/// Opens a connection. Repeats failed attempts and counts them.
fn patient(attachment: &Attachment, report: &Report, to: SocketAddr) -> TcpStream {
    loop {
        match connect(attachment, to, PATIENCE) {
            Ok(stream) => return stream,
            Err(_) => {
                report.add("connects_failed", 1);
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Sends streams of several sizes, one after the other.
fn streams(attachment: &Attachment, report: &Report, to: SocketAddr) {
    let content = Content::new();
    for round in 0_u32.. {
        let mut stream = patient(attachment, report, to);
        let head = Head { request: STREAM_BYTES_MIN << (round % 7), response: 8, last: true };
        match exchange(&mut stream, &content, head, |bytes| report.add("stream_bytes", bytes)) {
            Ok(()) => report.add("streams", 1),
            Err(error) => report.finding(&format!("a stream of {} bytes to the server failed: {error}", head.request)),
        }
    }
}

/// Carries out exchanges on long-lived connections.
fn exchanges(attachment: &Attachment, report: &Report, to: SocketAddr) {
    let content = Content::new();
    loop {
        let mut stream = patient(attachment, report, to);
        for left in (0..EXCHANGES).rev() {
            let begun = Instant::now();
            match exchange(&mut stream, &content, Head { request: 200, response: 1_000, last: left == 0 }, |_| {}) {
                Ok(()) => report.add("exchanges", 1),
                Err(error) => {
                    report.finding(&format!("an exchange with the server failed: {error}"));
                    break;
                }
            }
            report.most("exchange_us_max", u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
    }
}

/// Carries out exchanges, each on its own connection.
fn connections(attachment: &Attachment, report: &Report, to: SocketAddr) {
    let content = Content::new();
    loop {
        let mut stream = patient(attachment, report, to);
        match exchange(&mut stream, &content, Head { request: 64, response: 8_192, last: true }, |_| {}) {
            Ok(()) => report.add("connections", 1),
            Err(error) => report.finding(&format!("a connection to the server failed: {error}")),
        }
    }
}

/// Sends datagrams that the server echoes. Lost datagrams are counted.
fn datagrams(attachment: &Attachment, report: &Report, to: SocketAddr) {
    let content = Content::new();
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let mut buffer = [0; 2_048];
    for number in 0_u64.. {
        let Ok(socket) = UdpSocket::bind(attachment, any) else {
            report.finding("no socket for datagrams");
            return;
        };
        socket.set_timeout(Some(ECHO_TIME));
        let bytes = content.at(number, 1_200);
        let echoed = socket.send_to(bytes, to).and_then(|_| socket.recv_from(&mut buffer));
        match echoed {
            Ok((count, from)) if from == to && buffer[..count] == *bytes => report.add("datagrams", 1),
            Ok((count, from)) => report.finding(&format!("{count} bytes from {from} are not what was sent to {to}")),
            Err(_) => {
                report.add("datagrams_lost", 1);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Carries out exchanges with the server that is killed. Failures are counted; wrong bytes are a finding.
fn others(attachment: &Attachment, report: &Report, to: SocketAddr) {
    let content = Content::new();
    loop {
        let head = Head { request: 20_000, response: 20_000, last: true };
        let outcome =
            connect(attachment, to, DEAD_AFTER).and_then(|mut stream| exchange(&mut stream, &content, head, |_| {}));
        match outcome {
            Ok(()) => report.add("others", 1),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                report.finding(&format!("the other server sent something else: {error}"));
            }
            Err(_) => {
                report.add("others_failed", 1);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Sends one stream.
pub(super) fn copy(attachment: &Attachment, report: &Report, bytes: u64) -> Outcome<()> {
    let mut stream = connect(attachment, at(SERVER)?, PATIENCE).map_err(|error| format!("connecting: {error}"))?;
    let begun = Instant::now();
    let head = Head { request: bytes, response: 8, last: true };
    exchange(&mut stream, &Content::new(), head, |bytes| report.add("stream_bytes", bytes))
        .map_err(|error| format!("the stream failed: {error}"))?;
    let seconds = begun.elapsed().as_secs_f64();
    let rate = bytes as f64 / seconds / 1e6;
    report.say(&format!("result {bytes} bytes, every one as it was sent, in {seconds:.1} s: {rate:.0} MB/s"));
    Ok(())
}

/// Carries out `count` transactions from several threads, each transaction on its own connection.
pub(super) fn crr(attachment: &Attachment, report: &Report, count: u64, clients: u32) -> Outcome<()> {
    let to = at(SERVER)?;
    let (left, failed) = (AtomicU64::new(count), AtomicU64::new(0));
    let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let content = Content::new();
                let head = Head { request: 64, response: 8_192, last: true };
                while take() {
                    let stream = connect(attachment, to, PATIENCE);
                    match stream.and_then(|mut stream| exchange(&mut stream, &content, head, |_| {})) {
                        Ok(()) => report.add("connections", 1),
                        Err(error) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            report.finding(&format!("a transaction failed: {error}"));
                        }
                    }
                }
            });
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    let (failed, rate) = (failed.into_inner(), count as f64 / seconds);
    report.say(&format!("result {count} transactions, {failed} of them failed, in {seconds:.1} s: {rate:.0} a second"));
    Ok(())
}
