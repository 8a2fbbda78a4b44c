//! The player of the stack: virtual time, one stack for each sequence.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use siga_stack::Stack;
use siga_stack::drops::{DropReason, IpDrop};
use siga_stack::limits::{FRAME_BYTES_MAX, HEADER_BYTES_MAX};
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Received};
use siga_stack::seed::Seed;
use siga_stack::stack::{Handled, StackConfig};
use siga_stack::time::{Duration, Instant};
use siga_stack::udp::{UdpError, UdpId};
use siga_stack::wire::address::Prefix;
use siga_stack::wire::icmp::NetworkError;

use super::build::{self, Ends, pattern};
use super::place::{DEVICES, LENGTH_V6, LINK_LOCAL, ROUTES};
use super::record::{Idents, Outcome, Reaction, Sent};
use super::sequence::{Act, Call, CallKind, SOCKETS, Sequence};

/// The virtual time between two steps. In this time, the limit on ICMP errors recovers.
const STEP: Duration = Duration::from_millis(100);

struct Host {
    stack: Stack,
    now: Instant,
    ends: Ends,
    sockets: [Option<UdpId>; SOCKETS],
    /// The packets that left since the last step.
    sent: Vec<(u8, Vec<u8>)>,
    /// The latest packet that a socket sent.
    latest: Option<Vec<u8>>,
    buffer: Vec<u8>,
}

/// Plays a sequence with a stack.
pub(crate) fn play(sequence: &Sequence, number: u32) -> Vec<Reaction> {
    let mut host = Host {
        stack: stack(sequence.router),
        now: Instant::from_ns(100_000_000_000),
        ends: Ends { v6: sequence.v6, number },
        sockets: [None; SOCKETS],
        sent: Vec::new(),
        latest: None,
        buffer: vec![0; FRAME_BYTES_MAX],
    };
    let mut idents = Idents::default();
    let mut reactions = Vec::new();
    for act in &sequence.steps {
        host.pass(STEP);
        host.sent.clear();
        let outcome = match act {
            Act::Call(call) => Some(host.call(*call)),
            Act::Packet(packet) => {
                idents.arrived.push(packet.ident.into());
                if let Some(bytes) = build::packet(packet, host.ends, host.latest.as_deref()) {
                    host.give(packet.device, &bytes);
                }
                None
            }
            Act::Expire => {
                host.pass(Duration::from_secs(61));
                None
            }
        };
        host.collect();
        if let Act::Call(Call { kind: CallKind::Send(..), .. }) = act
            && let Some((_, packet)) = host.sent.first()
        {
            host.latest = Some(packet.clone());
        }
        let mut sent: Vec<Sent> =
            host.sent.iter().filter_map(|(device, packet)| Sent::parse(*device, packet)).collect();
        sent.iter_mut().for_each(|sent| idents.number(sent));
        reactions.push(Reaction { outcome, sent });
    }
    reactions
}

/// Returns a stack with the devices and routes of the kernel.
fn stack(router: bool) -> Stack {
    let config =
        StackConfig { seed: Seed::simulated(1), forwarding: router, redirects: router, ..StackConfig::default() };
    let mut stack = Stack::new(config);
    for device in &DEVICES {
        let mut addresses = vec![Prefix::new(device.v4.0.into(), device.v4.1)];
        if let Some(v6) = device.v6 {
            addresses.extend([Prefix::new(v6.into(), LENGTH_V6), Prefix::new(LINK_LOCAL.into(), LENGTH_V6)]);
        }
        let addresses = addresses.into_iter().flatten().collect();
        let config = DeviceConfig { medium: Medium::Ip, mtu: device.mtu, addresses, agreed: Agreed::default() };
        let added = stack.add_device(config);
        debug_assert!(added.is_ok(), "{added:?}");
    }
    for (network, length, device, gateway) in ROUTES {
        if let Some(prefix) = Prefix::new(network, length) {
            let added = stack.add_route(prefix, device_id(device), Some(gateway));
            debug_assert!(added.is_ok(), "{added:?}");
        }
    }
    stack
}

fn device_id(device: usize) -> DeviceId {
    DeviceId(u16::try_from(device).unwrap_or(0))
}

impl Host {
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.stack.poll_timeout().filter(|due| *due < end) {
            self.now = self.now.max(due);
            self.stack.handle_timeout(self.now);
            self.collect();
        }
        self.now = end;
    }

    /// Records what the stack has to send.
    fn collect(&mut self) {
        for device in 0..DEVICES.len() {
            while let Some(sent) = self.stack.poll_transmit(self.now, device_id(device), &mut self.buffer) {
                self.sent.push((u8::try_from(device).unwrap_or(0), self.buffer[..sent.len].to_vec()));
            }
        }
    }

    fn give(&mut self, device: u8, packet: &[u8]) {
        let (header, payload) = packet.split_at(packet.len().min(HEADER_BYTES_MAX));
        let received = Received::unmarked(header, payload);
        let mut forwarded = Vec::new();
        if let Handled::Forward(mut forward) = self.stack.handle_frame(self.now, DeviceId(device.into()), received) {
            let out = u8::try_from(forward.device.0).unwrap_or(0);
            while let Some(piece) = forward.next_piece() {
                let bytes = [piece.header, &packet[piece.range.clone()]].concat();
                forwarded.push((out, bytes));
            }
        }
        // A redirect about the packet is in the queue of a device, and leaves before the packet.
        self.collect();
        self.sent.append(&mut forwarded);
    }

    fn call(&mut self, call: Call) -> Outcome {
        let place = usize::from(call.socket) % SOCKETS;
        let any: IpAddr = if self.ends.v6 { [0_u16; 8].into() } else { [0_u8; 4].into() };
        let Some(id) = self.sockets[place] else {
            let CallKind::Bind(local, port) = call.kind else { return Outcome::NoSocket };
            let local = local.map_or(any, |local| self.ends.address(local));
            return match self.stack.udp_bind(SocketAddr::new(local, port)) {
                Ok(id) => {
                    self.sockets[place] = Some(id);
                    Outcome::Done
                }
                Err(error) => Outcome::Failed(errno(error)),
            };
        };
        let done = |result: Result<(), UdpError>| {
            result.map_or_else(|error| Outcome::Failed(errno(error)), |()| Outcome::Done)
        };
        match call.kind {
            CallKind::Bind(..) => Outcome::NoSocket,
            CallKind::Connect(remote, port) => {
                done(self.stack.udp_connect(id, SocketAddr::new(self.ends.address(remote), port)))
            }
            CallKind::Send(len, to) => {
                let to = to.map(|(remote, port)| SocketAddr::new(self.ends.address(remote), port));
                done(self.stack.udp_send(self.now, id, to, &pattern(8, len.into())))
            }
            CallKind::Receive => match self.stack.udp_receive(id) {
                Ok(Some(datagram)) => Outcome::Received(datagram.from, datagram.bytes),
                Ok(None) => Outcome::Empty,
                Err(error) => Outcome::Failed(errno(error)),
            },
            CallKind::Close => {
                self.sockets[place] = None;
                done(self.stack.udp_close(id))
            }
        }
    }
}

/// The error number that a program on Linux receives for this error.
fn errno(error: UdpError) -> Errno {
    match error {
        UdpError::Network(remote, error) => match error {
            NetworkError::PortUnreachable => Errno::CONNREFUSED,
            NetworkError::ProtocolUnreachable => Errno::NOPROTOOPT,
            NetworkError::TooBig { .. } => Errno::MSGSIZE,
            NetworkError::NoRoute => Errno::NETUNREACH,
            NetworkError::HostUnreachable | NetworkError::TimeExceeded => Errno::HOSTUNREACH,
            NetworkError::Parameter => Errno::PROTO,
            NetworkError::Prohibited if remote.is_ipv4() => Errno::HOSTUNREACH,
            NetworkError::Prohibited => Errno::ACCESS,
        },
        UdpError::InUse => Errno::ADDRINUSE,
        UdpError::NotOurs => Errno::ADDRNOTAVAIL,
        UdpError::Full => Errno::NOBUFS,
        UdpError::NotConnected => Errno::DESTADDRREQ,
        UdpError::TooLong | UdpError::TooLarge(_) => Errno::MSGSIZE,
        UdpError::Dropped(DropReason::Ip(IpDrop::NoRoute)) => Errno::NETUNREACH,
        UdpError::Dropped(_) => Errno::ACCESS,
        UdpError::Closed
        | UdpError::Address
        | UdpError::NotGroup
        | UdpError::NoDevice
        | UdpError::TooManyGroups
        | UdpError::Joined
        | UdpError::NotJoined => Errno::INVAL,
    }
}
