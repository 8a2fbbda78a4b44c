//! The kernel's side: clients and servers on its own sockets.

use crate::content;
use crate::place::Place;
use crate::tap::SOON;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, sendto, socket_with};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

const CHUNK_BYTES: usize = 256 << 10;
const THREAD_BYTES: usize = 64 << 10;

/// An open connection from a thread in the namespace; nothing on it takes for ever.
pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&to, SOON).unwrap_or_else(|error| panic!("{to}: {error}"));
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_write_timeout(Some(SOON)).unwrap();
    stream
}

/// Sends content to an echo service and checks what comes back, while sending.
pub(crate) fn exchange(to: SocketAddr, bytes: u64) {
    let mut stream = connect(to);
    let mut reader = stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || assert_eq!(check(&mut reader), bytes));
        send(&mut stream, bytes);
        stream.shutdown(Shutdown::Write).unwrap();
    });
}

fn send(stream: &mut TcpStream, bytes: u64) {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut sent = 0;
    while sent < bytes {
        let count = usize::try_from(bytes - sent).unwrap().min(chunk.len());
        content::fill(sent, &mut chunk[..count]);
        stream.write_all(&chunk[..count]).unwrap();
        sent += count as u64;
    }
}

/// Reads to the end and checks every byte; says how many there were.
pub(crate) fn check(stream: &mut TcpStream) -> u64 {
    let (mut got, mut expected) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut received = 0;
    loop {
        let count = stream.read(&mut got).unwrap();
        content::fill(received, &mut expected[..count]);
        assert!(got[..count] == expected[..count], "wrong content behind byte {received}");
        received += count as u64;
        if count == 0 {
            return received;
        }
    }
}

/// A question, its echo, and the end, begun by this side.
pub(crate) fn ask(to: SocketAddr, question: &[u8]) {
    let mut stream = connect(to);
    stream.write_all(question).unwrap();
    let mut answer = vec![0; question.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, question);
}

/// Sends small writes to a discard service, each when the one before is acknowledged; returns the mean time of one.
pub(crate) fn send_small(to: SocketAddr, count: u32) -> Duration {
    let mut stream = connect(to);
    // The table lists bytes that are not acknowledged, behind the addresses.
    let table = if to.is_ipv4() { "/proc/thread-self/net/tcp" } else { "/proc/thread-self/net/tcp6" };
    let port = format!(":{:04X} ", to.port());
    let is_acknowledged = || {
        let text = std::fs::read_to_string(table).unwrap();
        let line = text.lines().find(|line| line.contains(&port)).unwrap_or_else(|| panic!("{port} is not in\n{text}"));
        line.contains(" 00000000:")
    };
    let begun = Instant::now();
    for _ in 0..count {
        stream.write_all(&[7; 50]).unwrap();
        while !is_acknowledged() {
            assert!(begun.elapsed() < SOON, "{to} does not acknowledge");
        }
    }
    begun.elapsed() / count
}

/// Like [`ask`], with TCP Fast Open: the first packet carries the question if the kernel has a cookie.
pub(crate) fn ask_fast(to: SocketAddr, question: &[u8]) {
    const MSG_FASTOPEN: SendFlags = SendFlags::from_bits_retain(0x2000_0000);
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    assert_eq!(sendto(&socket, question, MSG_FASTOPEN, &to), Ok(question.len()));
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut answer = vec![0; question.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, question);
}

/// Serves every connection at an address in a thread of its own, until the test program ends.
pub(crate) fn serve(place: &Place, at: SocketAddr, act: impl Fn(TcpStream) + Send + Clone + 'static) {
    let listener = place.inside(|| listen(at));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let act = act.clone();
            thread::Builder::new().stack_size(THREAD_BYTES).spawn(move || act(stream)).unwrap();
        }
    });
}

/// With room for all connections of a test: where the kernel's queue is full it answers by cookies, and resets a
/// connection whose first bytes overtake the acknowledgement that it had no room for.
fn listen(at: SocketAddr) -> TcpListener {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &at).unwrap();
    rustix::net::listen(&socket, 4_096).unwrap();
    socket.into()
}

/// An echo service.
pub(crate) fn serve_echo(place: &Place, at: SocketAddr) {
    serve(place, at, |mut stream| {
        stream.set_nodelay(true).unwrap();
        let mut chunk = [0; 16 << 10];
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => return,
                Ok(count) => {
                    if stream.write_all(&chunk[..count]).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
}

/// A service that reads to the end, checks the bytes, and sends their number to the test.
pub(crate) fn serve_check(place: &Place, at: SocketAddr) -> Receiver<u64> {
    let (sender, receiver) = channel();
    // Sending fails if the test has dropped the receiver because it does not need the number.
    serve(place, at, move |mut stream| _ = sender.send(check(&mut stream)));
    receiver
}

/// Sends content to a service of that kind.
pub(crate) fn send_only(to: SocketAddr, bytes: u64) {
    let mut stream = connect(to);
    send(&mut stream, bytes);
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
}
