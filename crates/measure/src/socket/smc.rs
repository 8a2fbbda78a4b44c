//! Sockets of the family AF_SMC (Shared Memory Communications), and the check that their bytes do not go through TCP.
//!
//! A connection begins as a TCP connection, over which both ends agree on a device. With SMC-D, bytes then go through memory that
//! the device shares between both ends. Without a suitable device, the kernel carries the bytes over TCP and reports no error. So siga
//! asks the kernel for the mode of each connection, through a netlink socket of the family NETLINK_SOCK_DIAG (`linux/smc_diag.h`).

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use siga_model::error::{Error, Result};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

/// The number of the family AF_SMC.
const FAMILY: u8 = 43;
/// The protocol SMCPROTO_SMC6, for IPv6 addresses. The protocol for IPv4 addresses is 0.
const IPV6: Protocol = Protocol::from_raw(NonZeroU32::MIN);
/// Maximum time until the server's end of the probe's connection can be accepted.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// Size in bytes of the receive buffer. The kernel splits its answers into datagrams of at most 32 KB.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;
const SEQUENCE: u32 = 1;

/// Makes a socket for addresses of the same version as `address`.
pub(crate) fn socket(address: &SocketAddr, flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    let family = AddressFamily::from_raw(FAMILY.into());
    net::socket_with(family, SocketType::STREAM, flags, address.is_ipv6().then_some(IPV6))
}

/// Makes a connection over `lo` in the calling thread's namespace, and checks that it uses SMC-D. Its ends must be the only
/// connected sockets of the family AF_SMC in the namespace.
pub(crate) fn probe(ipv6: bool) -> Result<()> {
    let localhost: IpAddr = if ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    let _ends = pair(SocketAddr::new(localhost, 0)).map_err(|errno| {
        let error = Error::environment(format!("cannot create a connection of the family AF_SMC: {errno}"));
        match errno {
            Errno::AFNOSUPPORT => error.hint("the kernel has no AF_SMC; try `modprobe smc`"),
            _ => error,
        }
    })?;
    check()
}

fn pair(at: SocketAddr) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let listener = socket(&at, SocketFlags::CLOEXEC)?;
    sockopt::set_socket_timeout(&listener, Timeout::Recv, Some(HANDSHAKE_TIME_MAX))?;
    net::bind(&listener, &at)?;
    net::listen(&listener, 1)?;
    let client = socket(&at, SocketFlags::CLOEXEC)?;
    net::connect(&client, &SocketAddr::try_from(net::getsockname(&listener)?)?)?;
    Ok((client, net::accept_with(&listener, SocketFlags::CLOEXEC)?))
}

/// Checks that all connections in the calling thread's namespace use SMC-D, and that there is at least one.
pub(crate) fn check() -> Result<()> {
    Modes::read().map_err(|error| no_answer(&error))?.judge()
}

fn no_answer(error: &io::Error) -> Error {
    let refused = Error::environment(format!("cannot find out which connections use SMC: {error}"));
    match error.raw_os_error() {
        Some(libc::ENOENT) => {
            refused.hint("the kernel cannot report the state of SMC sockets; try `modprobe smc_diag`")
        }
        _ => refused,
    }
}

/// The number of connected sockets in each mode. Both ends of a connection count.
#[derive(Debug, Default, PartialEq, Eq)]
struct Modes {
    /// Over an RDMA network device.
    smc_r: u64,
    tcp: u64,
    /// Through memory that a device shares.
    smc_d: u64,
}

impl Modes {
    fn read() -> io::Result<Self> {
        let protocol = Some(netlink::SOCK_DIAG);
        let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        net::send(&socket, &request(), SendFlags::empty())?;
        let mut modes = Self::default();
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        loop {
            let (_, length) = net::recv(&socket, buffer.as_mut_slice(), RecvFlags::TRUNC)?;
            if modes.add(buffer.get(..length).ok_or_else(|| malformed("datagram too long"))?)? {
                return Ok(modes);
            }
        }
    }

    /// Counts the sockets in one datagram of the answer. Returns true if it is the last datagram.
    fn add(&mut self, datagram: &[u8]) -> io::Result<bool> {
        if datagram.is_empty() {
            return Err(malformed("empty datagram"));
        }
        let mut rest = datagram;
        while !rest.is_empty() {
            let message = NetlinkBuffer::new_checked(rest).map_err(malformed)?;
            if message.sequence_number() != SEQUENCE {
                return Err(malformed("the kernel answered another request"));
            }
            match message.message_type() {
                SOCK_DIAG_BY_FAMILY => self.count(message.payload())?,
                // Both begin with an errno, negative or 0.
                kind @ (NLMSG_DONE | NLMSG_ERROR) => {
                    let errno = message.payload().first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
                    return match errno {
                        Some(0) if kind == NLMSG_DONE => Ok(true),
                        Some(errno @ -4095..0) => Err(io::Error::from_raw_os_error(-errno)),
                        _ => Err(malformed("no errno")),
                    };
                }
                other => return Err(malformed(format!("unknown message type {other}"))),
            }
            let length = usize::try_from(message.length()).map_err(malformed)?;
            // Messages start at multiples of four bytes. The padding after the last message may be missing.
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(false)
    }

    /// Counts the socket that a `smc_diag_msg` describes, if it is connected.
    fn count(&mut self, message: &[u8]) -> io::Result<()> {
        /// Size in bytes of a `smc_diag_msg`. Attributes follow it.
        const MESSAGE_BYTES: usize = 64;
        /// The state SMC_ACTIVE of a connected socket.
        const ACTIVE: u8 = 1;
        let [FAMILY, state, mode, ..] = *message.get(..MESSAGE_BYTES).ok_or_else(|| malformed("short message"))? else {
            return Err(malformed("the kernel described a socket of another family"));
        };
        if state != ACTIVE {
            return Ok(());
        }
        match mode {
            0 => self.smc_r += 1,
            1 => self.tcp += 1,
            2 => self.smc_d += 1,
            other => return Err(malformed(format!("mode {other}"))),
        }
        Ok(())
    }

    fn judge(&self) -> Result<()> {
        let all = self.smc_r + self.tcp + self.smc_d;
        match *self {
            Self { smc_r: 0, tcp: 0, smc_d: 0 } => {
                Err(Error::environment("the kernel lists no connection of the family AF_SMC"))
            }
            Self { smc_r: 0, tcp: 0, .. } => Ok(()),
            Self { tcp: 0, .. } => Err(Error::environment(
                "a connection uses SMC over an RDMA network device (SMC-R) instead of the SMC loopback device (SMC-D)",
            )),
            Self { smc_r: 0, smc_d: 0, .. } => Err(Error::environment("SMC fell back to TCP")
                .hint("the kernel has no SMC loopback device (CONFIG_SMC_LO, Linux 6.10; CONFIG_DIBS_LO, Linux 6.18)")),
            Self { tcp, .. } => Err(Error::environment(format!("SMC fell back to TCP on {tcp} of {all} sockets"))
                .hint("an SMC device has a limited number of buffers; use fewer pairs (--clients)")),
        }
    }
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;

/// Returns the request for all sockets of the family AF_SMC in the namespace: a netlink header and a `smc_diag_req` without
/// extensions.
fn request() -> Vec<u8> {
    const HEADER_BYTES: usize = 16;
    const REQUEST_BYTES: usize = 52;
    let mut bytes = vec![0; HEADER_BYTES + REQUEST_BYTES];
    let mut message = NetlinkBuffer::new(&mut bytes);
    message.set_length(68);
    message.set_message_type(SOCK_DIAG_BY_FAMILY);
    message.set_flags(NLM_F_REQUEST | NLM_F_DUMP);
    message.set_sequence_number(SEQUENCE);
    message.payload_mut()[0] = FAMILY;
    bytes
}

fn malformed(what: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("the kernel sent a malformed netlink answer: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONNECTED: u8 = 1;
    const LISTENING: u8 = 10;

    fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        bytes.extend(payload);
        let length = u32::try_from(bytes.len()).unwrap();
        let mut message = NetlinkBuffer::new(&mut bytes);
        message.set_length(length);
        message.set_message_type(kind);
        message.set_sequence_number(SEQUENCE);
        bytes
    }

    /// Returns the message about a socket, with an attribute as the kernel adds them.
    fn about(state: u8, mode: u8) -> Vec<u8> {
        let mut payload = [FAMILY, state, mode].to_vec();
        payload.resize(64, 0);
        payload.extend([5, 0, 3, 0, 0, 0, 0, 0]);
        message(SOCK_DIAG_BY_FAMILY, &payload)
    }

    fn done() -> Vec<u8> {
        message(NLMSG_DONE, &0_i32.to_ne_bytes())
    }

    fn modes(messages: &[Vec<u8>]) -> io::Result<(Modes, bool)> {
        let mut modes = Modes::default();
        let last = modes.add(&messages.concat())?;
        Ok((modes, last))
    }

    #[test]
    fn connected_sockets_are_counted_by_their_mode() {
        let sockets = [(CONNECTED, 2), (LISTENING, 0), (CONNECTED, 1), (CONNECTED, 0), (CONNECTED, 2)];
        let mut messages = sockets.map(|(state, mode)| about(state, mode)).to_vec();
        let expected = || Modes { smc_r: 1, tcp: 1, smc_d: 2 };
        assert_eq!(modes(&messages).unwrap(), (expected(), false));
        messages.push(done());
        assert_eq!(modes(&messages).unwrap(), (expected(), true));
    }

    #[test]
    fn only_smc_d_on_every_socket_is_accepted() {
        let judged = |smc_r, tcp, smc_d| Modes { smc_r, tcp, smc_d }.judge();
        assert!(judged(0, 0, 2).is_ok());
        for (modes, words) in [
            ((0, 0, 0), "lists no connection"),
            ((0, 2, 0), "CONFIG_SMC_LO"),
            ((0, 2, 4), "on 2 of 6 sockets"),
            ((2, 0, 2), "SMC-R"),
            ((2, 2, 0), "on 2 of 4 sockets"),
        ] {
            let error = judged(modes.0, modes.1, modes.2).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn an_errno_of_the_kernel_is_the_error() {
        for kind in [NLMSG_ERROR, NLMSG_DONE] {
            let error = modes(&[message(kind, &(-libc::ENOENT).to_ne_bytes())]).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
            assert!(no_answer(&error).to_string().contains("`modprobe smc_diag`"), "{error}");
        }
    }

    #[test]
    fn malformed_answers_are_errors() {
        let changed = |at: usize, value: u8| {
            let mut bytes = about(CONNECTED, 2);
            bytes[at] = value;
            bytes
        };
        for (bytes, words) in [
            (vec![], "empty"),
            (about(CONNECTED, 3), "mode 3"),
            (changed(16, 2), "another family"),
            (changed(8, 9), "another request"),
            (changed(4, 99), "message type 99"),
            (message(SOCK_DIAG_BY_FAMILY, &[FAMILY; 63]), "short message"),
            (message(NLMSG_ERROR, &0_i32.to_ne_bytes()), "no errno"),
            (message(NLMSG_ERROR, &i32::MIN.to_ne_bytes()), "no errno"),
            (message(NLMSG_DONE, &[0; 3]), "no errno"),
        ] {
            let error = modes(&[bytes]).unwrap_err().to_string();
            assert!(error.contains("malformed") && error.contains(words), "{words}: {error}");
        }
        let whole = about(CONNECTED, 2);
        for length in 1..whole.len() {
            assert!(modes(&[whole[..length].to_vec()]).is_err(), "{length} bytes");
        }
        for length in [0, 15, 17, 200] {
            assert!(modes(&[changed(0, length)]).is_err(), "length {length}");
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0_usize..90) {
            let _ = modes(std::slice::from_ref(&bytes));
            // Behind a valid start, random bytes reach the later checks.
            let _ = modes(&[about(CONNECTED, 2), about(CONNECTED, 2)[..cut.min(88)].to_vec(), bytes]);
        }
    }
}
