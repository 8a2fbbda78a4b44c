//! UDP sockets (RFC 768, RFC 1122 4.1, RFC 8200 8.1): binds and connects sockets, and has for each socket a bounded queue of
//! datagrams and a bounded queue of errors.
//!
//! Several sockets can match a received datagram's destination port. The stack chooses the first of these that exists:
//! 1. a socket that is connected to the datagram's sender,
//! 2. a socket that is bound to the destination address,
//! 3. a socket that is bound to the wildcard address.
//!
//! One port can have a socket bound to a specific address and another socket bound to the wildcard address. Two sockets can be
//! bound to the same address and port only if both are bound as shared.
//!
//! The multicast groups of sockets are in `members.rs`. The code that sends datagrams is in `stack/udp.rs`.

use crate::drops::UdpDrop;
pub use crate::ip::mtu_discovery::MtuDiscovery;
use crate::limits::{
    UDP_DATAGRAM_OVERHEAD_BYTES, UDP_ERRORS_MAX, UDP_QUEUE_BYTES_MAX, UDP_SEND_TIMES_MAX, UDP_SHARERS_MAX,
    UDP_SOCKETS_MAX,
};
use crate::link::frame::DeviceId;
use crate::seed::{Keyed, Random};
use crate::slab::{self, Slab};
use crate::time::Instant;
use crate::wire::icmp::NetworkError;
use members::{Membership, SendOptions};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

pub(crate) mod members;

/// The ports from which the stack chooses if an application binds to port 0 (RFC 6335 6).
pub const EPHEMERAL_PORTS: RangeInclusive<u16> = 49_152..=65_535;

/// The id of a UDP socket. The id is unique within its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdpId {
    slot: u32,
    generation: u32,
}

/// A received datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// The address and port of the sender.
    pub from: SocketAddr,
    /// The destination address: one of this stack's addresses, or a multicast group.
    pub to: IpAddr,
    /// The payload.
    pub bytes: Vec<u8>,
    /// When the datagram, or the last of its fragments, arrived.
    pub at: Instant,
    /// The device on which the datagram arrived. `None` if this stack sent it to itself.
    pub on: Option<DeviceId>,
    /// TTL (IPv4) or hop limit (IPv6).
    pub hop_limit: u8,
    /// Type of service (IPv4) or traffic class (IPv6).
    pub service: u8,
}

/// Options of one sent datagram, in place of those of its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatagramOptions {
    /// The source address.
    pub from: Option<IpAddr>,
    /// The device over which a datagram to a multicast group or to a link-local address is sent.
    pub device: Option<DeviceId>,
    /// TTL or hop limit.
    pub hop_limit: Option<u8>,
    /// Type of service or traffic class.
    pub service: Option<u8>,
}

/// Why a call on a UDP socket failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UdpError {
    /// The socket is closed.
    Closed,
    /// Another socket uses the address and port, or all ephemeral ports of the address are in use.
    InUse,
    /// The local address is not an address of this stack.
    NotOurs,
    /// The stack has [`UDP_SOCKETS_MAX`] sockets already, or [`UDP_SHARERS_MAX`] sockets share the address and port.
    Full,
    /// The remote port is 0, the remote address has another IP version than the socket, or it cannot be a destination.
    Address,
    /// The socket is not connected, and the caller gave no destination.
    NotConnected,
    /// The payload does not fit into one datagram.
    TooLong,
    /// The datagram is longer than the MTU of its path, and the socket does not fragment it. Contains this MTU.
    TooLarge(u16),
    /// The address is not a multicast group, or its IP version differs from the socket's.
    NotGroup,
    /// The stack has no such device, or the device has no address of the group's IP version.
    NoDevice,
    /// One of the limits on multicast groups is reached: those of the socket, the device and the stack, and the limit on sockets
    /// with the same group and port.
    TooManyGroups,
    /// The socket has already joined the group on that device.
    Joined,
    /// The socket has not joined the group on that device.
    NotJoined,
    /// The datagram was dropped, for example because no route leads to its destination. Contains the drop reason under which it
    /// was counted.
    Dropped(crate::drops::DropReason),
    /// The network reported an error about an earlier datagram to this remote address (RFC 1122 4.1.3.3). Only a connected socket
    /// returns such errors, and returns each of them once.
    Network(SocketAddr, NetworkError),
}

/// The addresses and ports of a socket, without flow label and scope id. `Key` is the key of the tables in [`UdpSockets`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    local: SocketAddr,
    remote: Option<SocketAddr>,
}

/// Passes as few words as possible to the hasher, because each received datagram needs up to three lookups.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let low = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0);
        for end in [Some(self.local), self.remote] {
            match end {
                Some(SocketAddr::V4(end)) => {
                    state.write_u64(u64::from(end.ip().to_bits()) << 16 | u64::from(end.port()));
                }
                Some(SocketAddr::V6(end)) => {
                    let bits = end.ip().to_bits();
                    state.write_u64(low(bits >> 64));
                    state.write_u64(low(bits));
                    state.write_u64(end.port().into());
                }
                None => state.write_u64(u64::MAX),
            }
        }
    }
}

#[derive(Debug)]
struct Socket {
    key: Key,
    queue: VecDeque<Datagram>,
    queue_bytes: usize,
    errors: VecDeque<(SocketAddr, NetworkError)>,
    /// True if the socket is in [`UdpSockets::ready`].
    listed: bool,
    memberships: Vec<Membership>,
    options: SendOptions,
    /// `None` unless the application wants to know when its datagrams are sent.
    send_times: Option<Box<SendTimes>>,
}

/// When the datagrams of a socket were sent.
#[derive(Debug, Default)]
struct SendTimes {
    /// The number of the next datagram.
    next: u32,
    /// Numbers and times that the application has not taken.
    times: VecDeque<(u32, Instant)>,
}

/// Memory of a socket in bytes: the socket itself and its entries in all tables, without queued datagrams and group memberships.
pub(crate) const SOCKET_BYTES: usize = slab::bytes_each::<Socket>()
    + 2 * size_of::<(Key, u32)>()
    + 2 * size_of::<(Key, Vec<u32>)>()
    + UDP_ERRORS_MAX * size_of::<(SocketAddr, NetworkError)>()
    + size_of::<SendTimes>()
    + 2 * UDP_SEND_TIMES_MAX * size_of::<(u32, Instant)>();

#[derive(Debug)]
pub(crate) struct UdpSockets {
    sockets: Slab<Socket>,
    by_key: HashMap<Key, u32, Keyed>,
    /// For each shared address and port, its sockets in the order in which they were bound. A unicast datagram goes to the first.
    sharers: BTreeMap<Key, Vec<u32>>,
    /// For each multicast group and port, the sockets that receive the group's datagrams.
    members: BTreeMap<(Membership, u16), Vec<u32>>,
    /// Sockets that have become readable. Each socket is in this queue at most once.
    pub(crate) ready: VecDeque<UdpId>,
    ports: Random,
}

impl UdpSockets {
    pub(crate) fn new(keyed: Keyed, ports: Random) -> Self {
        Self {
            sockets: Slab::default(),
            by_key: HashMap::with_hasher(keyed),
            sharers: BTreeMap::new(),
            members: BTreeMap::new(),
            ready: VecDeque::new(),
            ports,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Returns the memory in bytes that is charged for the queued datagrams of all sockets.
    pub(crate) fn queue_bytes(&self) -> usize {
        self.sockets.values().map(|socket| socket.queue_bytes).sum()
    }

    pub(crate) fn memberships(&self) -> usize {
        self.sockets.values().map(|socket| socket.memberships.len()).sum()
    }

    /// Opens a socket. `local` may contain a wildcard address or a multicast group. If its port is 0, the stack chooses the port.
    pub(crate) fn bind(&mut self, mut local: SocketAddr, share: bool) -> Result<UdpId, UdpError> {
        if local.port() == 0 {
            local.set_port(self.free_port(local.ip())?);
        }
        let key = Key { local: without_scope(local), remote: None };
        let sharers = self.sharers.get(&key).filter(|_| share);
        if self.by_key.contains_key(&key) && sharers.is_none() {
            return Err(UdpError::InUse);
        }
        if sharers.is_some_and(|sharers| sharers.len() >= UDP_SHARERS_MAX) {
            return Err(UdpError::Full);
        }
        if self.sockets.len() >= UDP_SOCKETS_MAX {
            return Err(UdpError::Full);
        }
        let (slot, generation) = self.sockets.insert(Socket::new(key));
        self.by_key.entry(key).or_insert(slot);
        if share {
            self.sharers.entry(key).or_default().push(slot);
        }
        Ok(UdpId { slot, generation })
    }

    /// Connects a socket to a remote address and port. `from` becomes the socket's local address.
    pub(crate) fn connect(&mut self, id: UdpId, from: IpAddr, remote: SocketAddr) -> Result<(), UdpError> {
        let before = self.socket(id)?.key;
        let local = SocketAddr::new(from, before.local.port());
        let key = Key { local, remote: Some(without_scope(remote)) };
        if key != before && self.by_key.contains_key(&key) {
            return Err(UdpError::InUse);
        }
        self.release(before, id.slot);
        self.by_key.insert(key, id.slot);
        self.socket(id)?.key = key;
        Ok(())
    }

    /// Closes a socket. Returns the group memberships that end with the socket.
    pub(crate) fn close(&mut self, id: UdpId) -> Result<Vec<Membership>, UdpError> {
        let key = self.socket(id)?.key;
        let memberships = self.sockets.remove(id.slot).map_or_else(Vec::new, |socket| socket.memberships);
        self.release(key, id.slot);
        for membership in &memberships {
            self.remove_member(*membership, key.local.port(), id.slot);
        }
        Ok(memberships)
    }

    /// Removes a socket from the table entry of its address and port. Other sockets that share this address and port stay.
    fn release(&mut self, key: Key, slot: u32) {
        let next = self.sharers.get_mut(&key).and_then(|sharers| {
            sharers.retain(|sharer| *sharer != slot);
            sharers.first().copied()
        });
        if let Some(first) = next {
            self.by_key.insert(key, first);
        } else {
            self.by_key.remove(&key);
            self.sharers.remove(&key);
        }
    }

    /// Returns the socket's local address and port, and the remote ones if the socket is connected.
    pub(crate) fn addresses(&mut self, id: UdpId) -> Result<(SocketAddr, Option<SocketAddr>), UdpError> {
        self.socket(id).map(|socket| (socket.key.local, socket.key.remote))
    }

    /// Returns the next error of a socket as `Err`. If the socket has no error, returns the next datagram, if any.
    pub(crate) fn receive(&mut self, id: UdpId) -> Result<Option<Datagram>, UdpError> {
        let socket = self.socket(id)?;
        if let Some((remote, error)) = socket.errors.pop_front() {
            return Err(UdpError::Network(remote, error));
        }
        let datagram = socket.queue.pop_front();
        socket.queue_bytes -= datagram.as_ref().map_or(0, cost);
        Ok(datagram)
    }

    /// Returns whether a socket has a queued datagram or error.
    pub(crate) fn is_readable(&mut self, id: UdpId) -> Result<bool, UdpError> {
        self.socket(id).map(|socket| !socket.queue.is_empty() || !socket.errors.is_empty())
    }

    /// Switches the reports of sending times on or off. The numbers of datagrams begin again when they are switched on.
    pub(crate) fn set_send_times(&mut self, id: UdpId, on: bool) -> Result<(), UdpError> {
        let times = &mut self.socket(id)?.send_times;
        if on != times.is_some() {
            *times = on.then(Box::default);
        }
        Ok(())
    }

    /// Records that a datagram of this socket was sent.
    pub(crate) fn note_sent(&mut self, id: UdpId, now: Instant) {
        let Ok(socket) = self.socket(id) else { return };
        let Some(sent) = &mut socket.send_times else { return };
        let number = sent.next;
        sent.next = number.wrapping_add(1);
        if sent.times.len() < UDP_SEND_TIMES_MAX {
            sent.times.push_back((number, now));
            self.list(id.slot);
        }
    }

    pub(crate) fn take_send_time(&mut self, id: UdpId) -> Result<Option<(u32, Instant)>, UdpError> {
        Ok(self.socket(id)?.send_times.as_mut().and_then(|sent| sent.times.pop_front()))
    }

    /// Adds a datagram to the queue of the socket that matches best, by the order at the top of this file.
    pub(crate) fn deliver(&mut self, port: u16, datagram: Datagram) -> Result<(), UdpDrop> {
        let local = SocketAddr::new(datagram.to, port);
        let slot = self.find(local, datagram.from).ok_or(UdpDrop::NoSocket)?;
        self.push(slot, datagram)
    }

    pub(crate) fn push(&mut self, slot: u32, datagram: Datagram) -> Result<(), UdpDrop> {
        let socket = self.sockets.get_mut(slot).ok_or(UdpDrop::NoSocket)?;
        if socket.queue_bytes + cost(&datagram) > UDP_QUEUE_BYTES_MAX {
            return Err(UdpDrop::QueueFull);
        }
        socket.queue_bytes += cost(&datagram);
        socket.queue.push_back(datagram);
        self.list(slot);
        Ok(())
    }

    /// Adds an event that the socket has become readable, unless the socket has such an event already.
    fn list(&mut self, slot: u32) {
        let Some((socket, generation)) = self.sockets.get_with_generation(slot) else { return };
        if !std::mem::replace(&mut socket.listed, true) {
            if self.ready.len() > 2 * self.len() {
                self.forget_stale_events();
            }
            self.ready.push_back(UdpId { slot, generation });
        }
    }

    /// Removes events of closed sockets, so that the queue of events stays bounded.
    #[cold]
    fn forget_stale_events(&mut self) {
        let Self { ready, sockets, .. } = self;
        ready.retain(|id| sockets.named(id.slot, id.generation).is_some());
    }

    /// Returns the next socket that has become readable.
    pub(crate) fn poll_ready(&mut self) -> Option<UdpId> {
        loop {
            let id = self.ready.pop_front()?;
            // Skip events of closed sockets.
            if let Ok(socket) = self.socket(id) {
                socket.listed = false;
                return Some(id);
            }
        }
    }

    /// Reports an error about a sent datagram to the socket that probably sent the datagram. Returns false if no socket matches.
    pub(crate) fn report(&mut self, local: SocketAddr, remote: SocketAddr, error: NetworkError) -> bool {
        let Some(slot) = self.find(local, remote) else { return false };
        let Some(socket) = self.sockets.get_mut(slot) else { return false };
        // RFC 1122 4.1.3.3: only a connected socket stores the error. An unconnected socket sends to many hosts, so an error about
        // one host must not make its next call fail.
        if socket.key.remote.is_some() && socket.errors.len() < UDP_ERRORS_MAX {
            socket.errors.push_back((remote, error));
            self.list(slot);
        }
        true
    }

    fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        let any = SocketAddr::new(unspecified(local.ip()), local.port());
        let keys = [(local, Some(without_scope(remote))), (local, None), (any, None)];
        keys.into_iter().find_map(|(local, remote)| self.by_key.get(&Key { local, remote }).copied())
    }

    fn socket(&mut self, id: UdpId) -> Result<&mut Socket, UdpError> {
        self.sockets.named_mut(id.slot, id.generation).ok_or(UdpError::Closed)
    }

    /// Returns a free port. An attacker cannot guess it, because the search starts at a random port (RFC 6056 3.3.1).
    fn free_port(&mut self, ip: IpAddr) -> Result<u16, UdpError> {
        let count = EPHEMERAL_PORTS.end() - EPHEMERAL_PORTS.start() + 1;
        let first = u16::try_from(self.ports.below(count.into())).unwrap_or(0);
        (0..count)
            .map(|n| if n < count - first { first + n } else { n - (count - first) })
            .map(|n| EPHEMERAL_PORTS.start() + n)
            .find(|port| !self.by_key.contains_key(&Key { local: SocketAddr::new(ip, *port), remote: None }))
            .ok_or(UdpError::InUse)
    }
}

impl Socket {
    fn new(key: Key) -> Self {
        Self {
            key,
            queue: VecDeque::new(),
            queue_bytes: 0,
            errors: VecDeque::new(),
            listed: false,
            memberships: Vec::new(),
            options: SendOptions::default(),
            send_times: None,
        }
    }
}

fn cost(datagram: &Datagram) -> usize {
    datagram.bytes.len() + UDP_DATAGRAM_OVERHEAD_BYTES
}

/// Returns the wildcard address with the IP version of `address`.
pub(crate) fn unspecified(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Removes flow label and scope id from an address, because the stack does not use them to distinguish sockets.
fn without_scope(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};
    use std::hash::BuildHasher;

    fn sockets() -> UdpSockets {
        let seed = Seed::simulated(1);
        UdpSockets::new(seed.keyed(Purpose::UdpTable), seed.random(Purpose::UdpPorts))
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn datagram(from: &str, to: &str, bytes: usize) -> Datagram {
        let (from, to, at) = (address(from), to.parse().unwrap(), Instant::default());
        Datagram { from, to, bytes: vec![7; bytes], at, on: None, hop_limit: 64, service: 0 }
    }

    #[test]
    fn a_datagram_goes_to_the_udp_socket_that_matches_best() {
        let mut u = sockets();
        let any = u.bind(address("0.0.0.0:53"), false).unwrap();
        let bound = u.bind(address("10.0.0.1:53"), false).unwrap();
        let connected = u.bind(address("10.0.0.2:53"), false).unwrap();
        u.connect(connected, "10.0.0.1".parse().unwrap(), address("10.9.9.9:99")).unwrap();
        assert_eq!(u.bind(address("10.0.0.1:53"), false), Err(UdpError::InUse));
        for (from, to, socket) in [
            ("10.9.9.9:99", "10.0.0.1", connected),
            ("10.9.9.9:98", "10.0.0.1", bound),
            ("10.9.9.9:99", "10.0.0.2", any),
        ] {
            assert_eq!(u.deliver(53, datagram(from, to, 3)), Ok(()));
            assert_eq!(u.receive(socket), Ok(Some(datagram(from, to, 3))), "{from} {to}");
        }
        assert_eq!(u.deliver(54, datagram("10.9.9.9:99", "10.0.0.1", 3)), Err(UdpDrop::NoSocket));
        for socket in [any, bound, connected] {
            u.close(socket).unwrap();
            assert_eq!(u.close(socket), Err(UdpError::Closed));
        }
        assert!(u.by_key.is_empty());
        let reused = u.bind(address("10.0.0.1:53"), false).unwrap();
        assert_ne!(reused, connected);
        assert_eq!(u.receive(connected), Err(UdpError::Closed));
    }

    #[test]
    fn a_udp_socket_with_several_datagrams_gives_one_event() {
        let mut sockets = sockets();
        let id = sockets.bind(address("10.0.0.1:7"), false).unwrap();
        let datagram = || datagram("10.0.0.2:9", "10.0.0.1", 1);
        assert_eq!(sockets.poll_ready(), None);
        sockets.deliver(7, datagram()).unwrap();
        sockets.deliver(7, datagram()).unwrap();
        assert_eq!((sockets.poll_ready(), sockets.poll_ready()), (Some(id), None));
        sockets.deliver(7, datagram()).unwrap();
        sockets.close(id).unwrap();
        assert_eq!(sockets.poll_ready(), None, "it was closed");
    }

    #[test]
    fn queues_of_udp_sockets_are_bounded_even_for_empty_datagrams() {
        for bytes in [0, 1000, 60_000] {
            let mut u = sockets();
            let socket = u.bind(address("[::]:7"), false).unwrap();
            let sent = (0..10_000).filter(|_| u.deliver(7, datagram("[::2]:1", "::1", bytes)).is_ok()).count();
            assert_eq!(sent, UDP_QUEUE_BYTES_MAX / (bytes + UDP_DATAGRAM_OVERHEAD_BYTES));
            for _ in 0..sent {
                assert!(u.receive(socket).unwrap().is_some());
            }
            assert_eq!(u.receive(socket), Ok(None));
            assert_eq!(u.deliver(7, datagram("[::2]:1", "::1", bytes)), Ok(()));
        }
    }

    #[test]
    fn every_ephemeral_port_can_be_bound_once() {
        let mut u = sockets();
        let mut ports = std::collections::BTreeSet::new();
        for _ in EPHEMERAL_PORTS {
            let id = u.bind(address("10.0.0.1:0"), false).unwrap();
            assert!(ports.insert(u.addresses(id).unwrap().0.port()));
        }
        assert_eq!(u.bind(address("10.0.0.1:0"), false), Err(UdpError::InUse));
        assert!(ports.iter().all(|port| EPHEMERAL_PORTS.contains(port)));
    }

    #[test]
    fn an_icmp_error_is_returned_once_by_a_connected_udp_socket() {
        let mut u = sockets();
        let (local, remote) = (address("10.0.0.1:53"), address("10.9.9.9:99"));
        let socket = u.bind(local, false).unwrap();
        assert!(u.report(local, remote, NetworkError::PortUnreachable));
        assert_eq!(u.receive(socket), Ok(None));
        u.connect(socket, local.ip(), remote).unwrap();
        assert!(u.report(local, remote, NetworkError::PortUnreachable));
        assert_eq!(u.receive(socket), Err(UdpError::Network(remote, NetworkError::PortUnreachable)));
        assert_eq!(u.receive(socket), Ok(None));
        assert!(!u.report(local, address("10.9.9.9:98"), NetworkError::PortUnreachable));
        for _ in 0..100 {
            u.report(local, remote, NetworkError::NoRoute);
        }
        assert_eq!((0..100).filter(|_| u.receive(socket).is_err()).count(), UDP_ERRORS_MAX);
    }

    #[test]
    fn every_part_of_a_key_changes_its_hash() {
        let table = Seed::simulated(1).keyed(Purpose::UdpTable);
        let ends = ["10.0.0.1:7", "10.0.0.2:7", "10.0.0.1:8", "[::1]:7", "[1::1]:7", "[::2]:7", "[::1]:8"].map(address);
        let remotes = ends.map(Some).into_iter().chain([None]);
        let keys = remotes.flat_map(|remote| ends.map(|local| Key { local, remote }));
        let hashes: std::collections::BTreeSet<u64> = keys.map(|key| table.hash_one(key)).collect();
        assert_eq!(hashes.len(), 7 * 8);
    }
}
