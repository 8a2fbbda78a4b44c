//! Streams and connections between two guests.

use super::network::{PATIENCE, sink, source};
use siga_fabric::sockets::{Attachment, TcpListener, TcpStream};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// Sends bytes from one guest to another, which checks them. Calls `each` with the number of bytes that were sent. Returns the
/// time that this took.
pub(crate) fn exchange(
    (from, to): (&Attachment, &Attachment),
    at: &str,
    bytes: u64,
    each: impl FnMut(u64),
) -> Duration {
    let listener = TcpListener::bind(to, at.parse().unwrap()).unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| sink(&listener));
        source(from, at, bytes, each);
        assert_eq!(served.join().unwrap().0, bytes);
    });
    begun.elapsed()
}

/// Makes connections one after another. Each has a request of 64 bytes and a response of 8,192.
pub(crate) fn connections((client, server): (&Attachment, &Attachment), at: &str, count: u32) {
    let listener = TcpListener::bind(server, at.parse().unwrap()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            listener.set_timeout(Some(PATIENCE));
            for number in 0..count {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_timeout(Some(PATIENCE));
                let mut request = [0; 64];
                stream.read_exact(&mut request).unwrap();
                assert_eq!(request[..4], number.to_le_bytes());
                stream.write_all(&[request[0]; 8_192]).unwrap();
            }
        });
        for number in 0..count {
            let mut stream = TcpStream::connect(client, at.parse().unwrap()).unwrap();
            stream.set_timeout(Some(PATIENCE));
            let mut request = [0; 64];
            request[..4].copy_from_slice(&number.to_le_bytes());
            stream.write_all(&request).unwrap();
            let mut response = Vec::new();
            stream.read_to_end(&mut response).unwrap();
            assert!(response == [request[0]; 8_192], "connection {number}");
        }
    });
}
