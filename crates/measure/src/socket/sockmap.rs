//! Socket redirection between two TCP sockets on the same host. A BPF program puts the bytes that one socket sends directly
//! into the receive queue of the other.
//!
//! A BPF map (the sockmap) contains established sockets. The key of a socket consists of its local and its remote port. For
//! every send, the BPF program looks up the socket with these ports exchanged, and redirects the data to it. If the peer is not
//! in the map, data goes through TCP as usual. TCP still opens and closes connections. A FIN never overtakes redirected data,
//! and half-closed connections work.
//!
//! Callers must ensure three things that the kernel does not ensure:
//! - *Both* ends of a connection are in the map before the first byte is sent, because redirected bytes overtake bytes that
//!   were sent through TCP. [`Sockmap::contains`] checks whether an end is in the map.
//! - All connections in a map are between the same two addresses, because the key does not contain the addresses.
//! - Senders limit the amount of data that the receiver has not yet read. The size of the receive buffer does not limit it. So
//!   a sender that does not wait for the receiver fills the memory that the host reserves for TCP. Also, MSG_WAITALL has no
//!   effect on receivers.

use crate::bpf::asm::{
    Helper, Line, R0, R1, R2, R3, R4, R10, Width, add, call, copy, exit, from_network_32, load, load_map, set, store,
};
use crate::bpf::{Capability, load_program, refused};
use crate::sys::bpf::{Map, MapKind, ProgramKind};
use rustix::io::Errno;
use siga_model::error::{Error, IoContext, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const NEEDED: [Capability; 2] = [Capability::Bpf, Capability::NetAdmin];

/// Size in bytes of a key: the local port and the remote port, each a `u32`. A value has 8 bytes, so that the kernel can return
/// a socket's cookie.
const KEY_BYTES: u32 = 8;
const VALUE_BYTES: u32 = 8;

// Offsets in bytes of the ports in `struct sk_msg_md`, the context of the program.
const REMOTE_PORT: i16 = 60;
const LOCAL_PORT: i16 = 64;
/// `BPF_F_INGRESS`: redirect the data into the receive queue of the target socket. Without this flag, the target socket would
/// send the data.
const INGRESS: i32 = 1;
const PASS: i32 = 1;

/// A map of redirected sockets with its program. The kernel removes both when the last descriptor of the map is closed.
#[derive(Debug)]
pub struct Sockmap {
    map: Map,
}

/// Checks that this host can redirect sockets. Leaves nothing behind. Returns an error of kind `Environment` that names what this
/// host or process lacks.
pub(crate) fn available() -> Result<()> {
    Sockmap::create(1).map(drop)
}

impl Sockmap {
    /// Creates a map for `capacity` sockets and attaches the program. Returns an error of kind `Environment` that names what this
    /// host or process lacks.
    pub(crate) fn create(capacity: u32) -> Result<Self> {
        let map =
            Map::create(MapKind::SockHash, "siga_sockmap", KEY_BYTES, VALUE_BYTES, capacity).map_err(|errno| {
                let error = refused("cannot create a BPF map of sockets", errno, &NEEDED);
                if errno == Errno::INVAL {
                    error.hint("use a kernel that was built with CONFIG_NET_SOCK_MSG")
                } else {
                    error
                }
            })?;
        let program = load_program(ProgramKind::SocketMessage, "siga_redirect", &redirect(&map), &NEEDED)?;
        map.attach_message_verdict(program.as_fd())
            .map_err(|errno| refused("cannot attach a BPF program to a map of sockets", errno, &NEEDED))?;
        Ok(Self { map })
    }

    /// Takes ownership of the descriptor of a map that another process created. Returns an error of kind `Usage` if the descriptor
    /// is not a map of sockets with this key and value size.
    pub(crate) fn from_fd(fd: OwnedFd) -> Result<Self> {
        let number = fd.as_raw_fd();
        let map = Map::adopt(fd, MapKind::SockHash)
            .map_err(|errno| Error::usage(format!("descriptor {number} is not a map of sockets: {errno}")))?;
        let sizes = (u32::try_from(map.key_bytes()), u32::try_from(map.value_bytes()));
        if sizes != (Ok(KEY_BYTES), Ok(VALUE_BYTES)) {
            return Err(Error::usage(format!(
                "descriptor {number} is a map of sockets whose keys have another size than siga's keys"
            )));
        }
        Ok(Self { map })
    }

    /// Returns the map's descriptor, which another process can inherit if FD_CLOEXEC is cleared.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.map.fd()
    }

    /// Enters an established TCP socket into the map. When the socket is closed, the kernel removes it from the map. Returns an
    /// error of kind `Environment` if the map is full or the kernel refuses the socket, for example because it is not in state
    /// ESTABLISHED.
    pub(crate) fn insert(&self, socket: BorrowedFd<'_>, local_port: u16, remote_port: u16) -> Result<()> {
        let number = u64::try_from(socket.as_raw_fd())
            .context("cannot add a socket with a negative descriptor number to the BPF map of sockets")?;
        self.map.put(&key(local_port, remote_port), &number.to_ne_bytes()).map_err(|errno| {
            let error = refused(
                format_args!(
                    "cannot add the socket with ports {local_port} and {remote_port} to the BPF map of sockets"
                ),
                errno,
                &NEEDED,
            );
            match errno {
                Errno::TOOBIG => error.hint("the map is full: create it with a larger capacity"),
                Errno::OPNOTSUPP => error.hint("only TCP sockets in state ESTABLISHED can be redirected"),
                _ => error,
            }
        })
    }

    /// Returns whether the map contains a socket with this local and this remote port. Returns an error of kind `Environment` if
    /// the kernel refuses the lookup.
    pub(crate) fn contains(&self, local_port: u16, remote_port: u16) -> Result<bool> {
        let found = self.map.get(&key(local_port, remote_port)).context("cannot read the BPF map of sockets")?;
        Ok(found.is_some())
    }
}

fn key(local_port: u16, remote_port: u16) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&u32::from(local_port).to_ne_bytes());
    key[4..].copy_from_slice(&u32::from(remote_port).to_ne_bytes());
    key
}

/// Returns the program that redirects each message to the socket whose key has the two ports exchanged. If the map has no such
/// socket, TCP sends the message as usual.
fn redirect(map: &Map) -> Vec<Line<'_>> {
    vec![
        load(Width::Word, R2, R1, REMOTE_PORT),
        from_network_32(R2),
        store(Width::Word, R10, -8, R2),
        load(Width::Word, R2, R1, LOCAL_PORT),
        store(Width::Word, R10, -4, R2),
        load_map(R2, map.fd()),
        copy(R3, R10),
        add(R3, -8),
        set(R4, INGRESS),
        call(Helper::MessageRedirectHash),
        set(R0, PASS),
        exit(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::tests::testbed::{Namespace, pair};
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::time::Duration;

    /// Two joined namespaces, a listener in the second, and a map.
    struct Bed {
        first: Namespace,
        listener: TcpListener,
        map: Sockmap,
        _second: Namespace,
    }

    fn bed() -> Option<Bed> {
        let (first, second) = pair()?;
        let map = Sockmap::create(64)
            .inspect_err(|error| eprintln!("skipped, because there is no socket redirection: {error}"))
            .ok()?;
        let listener = second.run(|| TcpListener::bind("10.1.0.2:0").unwrap());
        Some(Bed { first, listener, map, _second: second })
    }

    impl Bed {
        fn connect(&self) -> (TcpStream, TcpStream) {
            let address = self.listener.local_addr().unwrap();
            let client = self.first.run(|| TcpStream::connect(address).unwrap());
            let (server, _) = self.listener.accept().unwrap();
            (client, server)
        }

        fn redirected(&self) -> (TcpStream, TcpStream) {
            let (client, server) = self.connect();
            for stream in [&client, &server] {
                let (local, remote) = ports(stream);
                self.map.insert(stream.as_fd(), local, remote).unwrap();
            }
            (client, server)
        }
    }

    fn ports(stream: &TcpStream) -> (u16, u16) {
        (stream.local_addr().unwrap().port(), stream.peer_addr().unwrap().port())
    }

    /// Bytes that depend on their offset in a stream.
    fn pattern(length: usize) -> Vec<u8> {
        (0_u32..).flat_map(u32::to_le_bytes).take(length).collect()
    }

    #[test]
    fn redirected_requests_and_replies_bypass_the_interfaces() {
        let Some(bed) = bed() else { return };
        let (mut client, mut server) = bed.redirected();
        let before = bed.first.interface_bytes("end");
        for round in 0..1_000_usize {
            let (request, reply) = (pattern(1 + round % 300), pattern(1_000 + round));
            client.write_all(&request).unwrap();
            let mut received = vec![0; request.len()];
            server.read_exact(&mut received).unwrap();
            assert_eq!(received, request);
            server.write_all(&reply).unwrap();
            let mut received = vec![0; reply.len()];
            client.read_exact(&mut received).unwrap();
            assert_eq!(received, reply);
        }
        // Of more than a megabyte; the namespaces' own announcements may be counted too.
        assert!(bed.first.interface_bytes("end") - before < 10_000);
    }

    #[test]
    fn a_stream_arrives_whole_and_in_order_past_the_interfaces_while_both_ends_work() {
        let Some(bed) = bed() else { return };
        let (mut client, mut server) = bed.redirected();
        let before = bed.first.interface_bytes("end");
        let sent = pattern(32 << 20);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for piece in sent.chunks(100_003) {
                    client.write_all(piece).unwrap();
                }
                client.shutdown(Shutdown::Write).unwrap();
            });
            let mut received = Vec::new();
            server.read_to_end(&mut received).unwrap();
            assert!(received == sent, "{} of {} bytes, or out of order", received.len(), sent.len());
        });
        // TCP sends only the connection's FIN and its acknowledgement.
        assert!(bed.first.interface_bytes("end") - before < 10_000);
    }

    #[test]
    fn without_redirection_the_interfaces_carry_the_bytes() {
        let Some(bed) = bed() else { return };
        let (mut client, mut server) = bed.connect();
        let (local, remote) = ports(&client);
        bed.map.insert(client.as_fd(), local, remote).unwrap();
        let before = bed.first.interface_bytes("end");
        client.write_all(&pattern(10_000)).unwrap();
        let mut received = vec![0; 10_000];
        server.read_exact(&mut received).unwrap();
        assert_eq!(received, pattern(10_000));
        assert!(bed.first.interface_bytes("end") - before > 10_000);
    }

    #[test]
    fn two_thousand_connections_deliver_everything_and_leave_nothing_in_the_map() {
        let Some(bed) = bed() else { return };
        let (request, reply) = (pattern(200), pattern(8_192));
        let mut used = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let (mut server, peer) = bed.listener.accept().unwrap();
                    let local = server.local_addr().unwrap().port();
                    bed.map.insert(server.as_fd(), local, peer.port()).unwrap();
                    let mut received = vec![0; request.len()];
                    server.read_exact(&mut received).unwrap();
                    assert_eq!(received, request);
                    // Closed at once, with the reply in flight.
                    server.write_all(&reply).unwrap();
                }
            });
            let address = bed.listener.local_addr().unwrap();
            for _ in 0..2_000 {
                let mut client = bed.first.run(|| TcpStream::connect(address).unwrap());
                let (local, remote) = ports(&client);
                used.extend([(local, remote), (remote, local)]);
                bed.map.insert(client.as_fd(), local, remote).unwrap();
                while !bed.map.contains(remote, local).unwrap() {
                    std::thread::yield_now();
                }
                client.write_all(&request).unwrap();
                let mut received = Vec::new();
                client.read_to_end(&mut received).unwrap();
                assert_eq!(received, reply);
            }
        });
        // Another test may start a process that holds copies of the descriptors for a moment.
        for _ in 0..1_000 {
            used.retain(|(local, remote)| bed.map.contains(*local, *remote).unwrap());
            if used.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{used:?} are still in the map");
    }

    #[test]
    fn data_in_flight_survives_a_close_and_a_half_closed_connection_still_answers() {
        let Some(bed) = bed() else { return };
        let (mut client, mut server) = bed.redirected();
        client.write_all(b"last words").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut received = String::new();
        server.read_to_string(&mut received).unwrap();
        assert_eq!(received, "last words");
        server.write_all(&pattern(1 << 20)).unwrap();
        drop(server);
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        assert!(received == pattern(1 << 20));
    }

    #[test]
    fn any_descriptor_of_a_map_works_and_others_are_refused() {
        let Some(bed) = bed() else { return };
        let other = Sockmap::from_fd(bed.map.fd().try_clone_to_owned().unwrap()).unwrap();
        let (mut client, mut server) = bed.connect();
        let ((local, remote), before) = (ports(&client), bed.first.interface_bytes("end"));
        other.insert(client.as_fd(), local, remote).unwrap();
        bed.map.insert(server.as_fd(), remote, local).unwrap();
        assert!(other.contains(remote, local).unwrap());
        client.write_all(&pattern(100_000)).unwrap();
        server.read_exact(&mut [0; 100_000]).unwrap();
        assert!(bed.first.interface_bytes("end") - before < 10_000);
        assert!(Sockmap::from_fd(bed.listener.into()).is_err());
        let counts = Map::create(MapKind::PerCpuArray, "other", 4, 8, 1).unwrap();
        assert!(Sockmap::from_fd(counts.fd().try_clone_to_owned().unwrap()).is_err());
    }

    #[test]
    fn a_full_map_and_a_socket_that_is_not_established_are_refused_with_the_way_out() {
        let Some(bed) = bed() else { return };
        let small = Sockmap::create(1).unwrap();
        let (client, server) = bed.connect();
        small.insert(client.as_fd(), 1, 2).unwrap();
        let full = small.insert(server.as_fd(), 2, 1).unwrap_err().to_string();
        assert!(full.contains("larger capacity"), "{full}");
        drop(client);
        drop(small);
        let (local, remote) = ports(&server);
        // The end of the stream shows that the FIN has arrived.
        assert_eq!((&server).read(&mut [0]).unwrap(), 0);
        let closed = bed.map.insert(server.as_fd(), local, remote).unwrap_err().to_string();
        assert!(closed.contains("ESTABLISHED"), "{closed}");
    }
}
