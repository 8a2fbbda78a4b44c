//! Socket redirection: what is sent on a TCP socket goes straight into the receive queue of its peer on the same host.
//!
//! Established sockets are put into a map under their ports; a program judges every send and hands it to the socket that
//! has the same ports the other way round. While the peer is not in the map, data goes by TCP as ever.
//!
//! Contract of the callers, because the kernel does not keep it: *both* ends are in the map before a byte is sent
//! ([`Sockmap::contains`] tells), since redirected bytes overtake those that go by TCP; and one map serves one pair of
//! addresses, since addresses are not part of the key.

use super::asm::{
    Helper, Line, R0, R1, R2, R3, R4, R10, Width, add, call, copy, exit, from_network_32, load, load_map, set, store,
};
use super::{Capability, load_program, refused};
use crate::error::{Error, IoContext, Result};
use crate::sys::bpf::{Map, MapKind, ProgramKind};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const NEEDED: [Capability; 2] = [Capability::Bpf, Capability::NetAdmin];

/// Key: `u32` local port, `u32` remote port. Value: 8 bytes, so that the kernel can answer with a socket's cookie.
const KEY_BYTES: u32 = 8;
const VALUE_BYTES: u32 = 8;

// `struct sk_msg_md`.
const REMOTE_PORT: i16 = 60;
const LOCAL_PORT: i16 = 64;
/// `BPF_F_INGRESS`: into the receive queue of the target, not out by it.
const INGRESS: i32 = 1;
const PASS: i32 = 1;

/// A map of redirected sockets with its program; both end with the last descriptor of the map.
#[derive(Debug)]
pub struct Sockmap {
    map: Map,
}

/// Whether this host can redirect sockets; leaves nothing behind.
///
/// # Errors
/// Environment: what is missing.
pub fn available() -> Result<()> {
    Sockmap::create(1).map(drop)
}

impl Sockmap {
    /// Creates a map for `capacity` sockets.
    ///
    /// # Errors
    /// Environment: what this host or process lacks.
    pub fn create(capacity: u32) -> Result<Self> {
        let map =
            Map::create(MapKind::SockHash, "siga_sockmap", KEY_BYTES, VALUE_BYTES, capacity).map_err(|errno| {
                let error = refused("cannot create a BPF map of sockets", errno, &NEEDED);
                if errno == Errno::INVAL {
                    error.hint("the kernel must be built with CONFIG_NET_SOCK_MSG")
                } else {
                    error
                }
            })?;
        let program = load_program(ProgramKind::SocketMessage, "siga_redirect", &redirect(&map), &NEEDED)?;
        map.attach_message_verdict(program.as_fd())
            .map_err(|errno| refused("cannot attach a BPF program to a map of sockets", errno, &NEEDED))?;
        Ok(Self { map })
    }

    /// Takes over a descriptor of a map that another process created.
    ///
    /// # Errors
    /// Usage: it is no such map.
    pub fn from_fd(fd: OwnedFd) -> Result<Self> {
        let number = fd.as_raw_fd();
        let map = Map::adopt(fd, MapKind::SockHash)
            .map_err(|errno| Error::usage(format!("descriptor {number} is no map of sockets: {errno}")))?;
        let sizes = (u32::try_from(map.key_bytes()), u32::try_from(map.value_bytes()));
        if sizes != (Ok(KEY_BYTES), Ok(VALUE_BYTES)) {
            return Err(Error::usage(format!("descriptor {number} is a map of sockets with another key")));
        }
        Ok(Self { map })
    }

    /// The map's descriptor, to hand to another process (it is closed on exec unless that is cleared).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.map.fd()
    }

    /// Puts an established TCP socket into the map; it leaves it by itself when it is closed.
    ///
    /// # Errors
    /// Environment: the map is full, or the kernel refuses the socket, as when it is not established (any more).
    pub fn insert(&self, socket: BorrowedFd<'_>, local_port: u16, remote_port: u16) -> Result<()> {
        let number = u64::try_from(socket.as_raw_fd()).context("a descriptor is negative")?;
        self.map.put(&key(local_port, remote_port), &number.to_ne_bytes()).map_err(|errno| {
            let error = refused(format_args!("cannot redirect the socket {local_port}-{remote_port}"), errno, &NEEDED);
            match errno {
                Errno::TOOBIG => error.hint("the map is full: create it with a larger capacity"),
                Errno::OPNOTSUPP => error.hint("only TCP sockets in state ESTABLISHED can be redirected"),
                _ => error,
            }
        })
    }

    /// Whether the socket with these ports, as seen from its own side, is in the map.
    ///
    /// # Errors
    /// Environment: the kernel does not say.
    pub fn contains(&self, local_port: u16, remote_port: u16) -> Result<bool> {
        let found = self.map.get(&key(local_port, remote_port)).context("cannot look into the map of sockets")?;
        Ok(found.is_some())
    }
}

fn key(local_port: u16, remote_port: u16) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&u32::from(local_port).to_ne_bytes());
    key[4..].copy_from_slice(&u32::from(remote_port).to_ne_bytes());
    key
}

/// Hands the message to the socket under the mirrored key. Without one the verdict stands alone and TCP sends the message.
fn redirect(map: &Map) -> Vec<Line> {
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
