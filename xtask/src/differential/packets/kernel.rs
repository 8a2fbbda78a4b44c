//! The player of the kernel: sockets of this process, and one TUN device for each device of the host, in the network namespace of
//! this process.
//!
//! The kernel handles a packet within the write to the device, and sends within the call on a socket. So the player reads the devices
//! right after each step, and plays one sequence after the other without waiting. Only where fragments have to expire, it waits, once
//! for all sequences.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::build::{self, Ends, pattern};
use super::place::{DEVICES, LENGTH_V6, LINK_LOCAL, Place, ROUTES};
use super::record::{Idents, Outcome, Reaction, Sent};
use super::sequence::{Act, Call, CallKind, SOCKETS, Sequence};

/// Settings that make the kernel comparable. `docs/linux-differences.md` gives the reasons.
const SETTINGS: [(&str, &str); 19] = [
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    // No link-local address except the configured one.
    ("ipv6/conf/default/addr_gen_mode", "1"),
    ("ipv6/auto_flowlabels", "0"),
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv4/icmp_msgs_per_sec", "100000000"),
    ("ipv4/icmp_msgs_burst", "100000000"),
    ("ipv6/icmp/ratelimit", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/default/accept_source_route", "0"),
    ("ipv4/conf/all/log_martians", "0"),
    ("ipv4/conf/default/log_martians", "0"),
    ("ipv4/ipfrag_time", "1"),
    ("ipv6/ip6frag_time", "1"),
    ("ipv4/ipfrag_high_thresh", "1000000000"),
    ("ipv6/ip6frag_high_thresh", "1000000000"),
    ("ipv4/ping_group_range", "1 0"),
];
/// The time in which incomplete datagrams expire in the kernel.
const EXPIRY: Duration = Duration::from_millis(1_300);

/// The kernel's side: TUN devices whose far ends are this player.
pub(crate) struct Kernel {
    devices: Vec<SyncDevice>,
    /// The number of sequences so far, from which the next sequence gets its addresses.
    played: u32,
    router: Option<bool>,
    buffer: Vec<u8>,
}

/// A sequence whose fragments have to expire.
struct Waiting {
    place: usize,
    idents: Idents,
}

impl Kernel {
    /// Configures the network namespace of this process, and makes the devices.
    pub(crate) fn open() -> io::Result<Self> {
        SETTINGS.iter().try_for_each(|(name, value)| set(name, value))?;
        let mut devices = Vec::new();
        for device in &DEVICES {
            let builder = DeviceBuilder::new().name(device.name).layer(Layer::L3).mtu(device.mtu).enable(true);
            let mut builder = builder.ipv4(device.v4.0, device.v4.1, None);
            if let Some(v6) = device.v6 {
                builder = builder.ipv6(v6, LENGTH_V6).ipv6(LINK_LOCAL, LENGTH_V6);
            }
            let made = builder.with(|builder| _ = builder.tx_queue_len(100_000)).build_sync()?;
            made.set_nonblocking(true)?;
            devices.push(made);
        }
        for (network, length, device, gateway) in ROUTES {
            let (network, gateway) = (format!("{network}/{length}"), gateway.to_string());
            let mut command = Command::new("ip");
            let route = ["route", "add", &network, "via", &gateway, "dev", DEVICES[device].name];
            let status = command.args(route).status()?;
            if !status.success() {
                return Err(io::Error::other(format!("ip {}: {status}", route.join(" "))));
            }
        }
        Ok(Self { devices, played: 0, router: None, buffer: vec![0; 65_536] })
    }

    /// Plays sequences. Returns for each its number and what the kernel did in each step.
    pub(crate) fn play(&mut self, sequences: &[Sequence]) -> io::Result<Vec<(u32, Vec<Reaction>)>> {
        let mut played: Vec<(u32, Vec<Reaction>)> = Vec::new();
        played.resize_with(sequences.len(), Default::default);
        for router in [false, true] {
            let chosen = || (0..sequences.len()).filter(|place| sequences[*place].router == router);
            if chosen().next().is_none() {
                continue;
            }
            self.forward(router)?;
            let mut waiting = Vec::new();
            for place in chosen() {
                let number = self.played;
                self.played = self.played.wrapping_add(1);
                let (reactions, idents) = self.begin(&sequences[place], number)?;
                played[place] = (number, reactions);
                if sequences[place].steps.last() == Some(&Act::Expire) {
                    waiting.push(Waiting { place, idents });
                }
            }
            self.expire(sequences, &mut played, waiting)?;
        }
        Ok(played)
    }

    /// Makes the kernel a router or a host.
    fn forward(&mut self, router: bool) -> io::Result<()> {
        if self.router != Some(router) {
            let value = if router { "1" } else { "0" };
            set("ipv4/ip_forward", value)?;
            set("ipv6/conf/all/forwarding", value)?;
            self.router = Some(router);
        }
        self.read().map(drop)
    }

    /// Plays the steps of a sequence up to the expiry.
    fn begin(&mut self, sequence: &Sequence, number: u32) -> io::Result<(Vec<Reaction>, Idents)> {
        let ends = Ends { v6: sequence.v6, number };
        let mut sockets: [Option<OwnedFd>; SOCKETS] = Default::default();
        let (mut idents, mut latest, mut reactions) = (Idents::default(), None::<Vec<u8>>, Vec::new());
        for act in &sequence.steps {
            let outcome = match act {
                Act::Call(call) => Some(self::call(&mut sockets, *call, ends)),
                Act::Packet(packet) => {
                    idents.arrived.push(packet.ident.into());
                    if let Some(bytes) = build::packet(packet, ends, latest.as_deref()) {
                        self.write(packet.device, &bytes)?;
                    }
                    None
                }
                Act::Expire => break,
            };
            let packets = self.read()?;
            if let Act::Call(Call { kind: CallKind::Send(..), .. }) = act
                && let Some((_, packet)) = packets.first()
            {
                latest = Some(packet.clone());
            }
            let mut sent: Vec<Sent> =
                packets.iter().filter_map(|(device, packet)| Sent::parse(*device, packet)).collect();
            sent.iter_mut().for_each(|sent| idents.number(sent));
            reactions.push(Reaction { outcome, sent });
        }
        Ok((reactions, idents))
    }

    /// Waits until fragments have expired, and adds what the kernel sent because of this to the records.
    fn expire(
        &mut self,
        sequences: &[Sequence],
        played: &mut [(u32, Vec<Reaction>)],
        mut waiting: Vec<Waiting>,
    ) -> io::Result<()> {
        if waiting.is_empty() {
            return Ok(());
        }
        let mut by_peer: HashMap<IpAddr, usize> = HashMap::new();
        for (at, Waiting { place, .. }) in waiting.iter().enumerate() {
            let ends = Ends { v6: sequences[*place].v6, number: played[*place].0 };
            by_peer.extend(Place::peers().map(|peer| (ends.address(peer), at)));
            played[*place].1.push(Reaction::default());
        }
        std::thread::sleep(EXPIRY);
        for (device, packet) in self.read()? {
            let Some(mut sent) = Sent::parse(device, &packet) else { continue };
            let Some(Waiting { place, idents }) = by_peer.get(&sent.to).and_then(|at| waiting.get_mut(*at)) else {
                continue;
            };
            idents.number(&mut sent);
            if let Some(last) = played[*place].1.last_mut() {
                last.sent.push(sent);
            }
        }
        Ok(())
    }

    /// Returns all packets that wait in the devices.
    fn read(&mut self) -> io::Result<Vec<(u8, Vec<u8>)>> {
        let mut packets = Vec::new();
        for (number, device) in (0..).zip(&self.devices) {
            loop {
                match rustix::io::read(device, &mut self.buffer[..]) {
                    Ok(count) => packets.push((number, self.buffer[..count].to_vec())),
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(packets)
    }

    fn write(&self, device: u8, packet: &[u8]) -> io::Result<()> {
        let device = &self.devices[usize::from(device) % self.devices.len()];
        crate::differential::kernel::write(device, packet)
    }
}

fn set(name: &str, value: &str) -> io::Result<()> {
    let path = format!("/proc/sys/net/{name}");
    fs::write(&path, value).map_err(|error| io::Error::other(format!("{path}: {error}")))
}

fn call(sockets: &mut [Option<OwnedFd>; SOCKETS], call: Call, ends: Ends) -> Outcome {
    let socket = &mut sockets[usize::from(call.socket) % SOCKETS];
    let any: IpAddr = if ends.v6 { [0_u16; 8].into() } else { [0_u8; 4].into() };
    let done = |result: rustix::io::Result<()>| result.map_or_else(Outcome::Failed, |()| Outcome::Done);
    let Some(open) = socket else {
        let CallKind::Bind(local, port) = call.kind else { return Outcome::NoSocket };
        let local = local.map_or(any, |local| ends.address(local));
        return match bound(SocketAddr::new(local, port)) {
            Ok(open) => {
                *socket = Some(open);
                Outcome::Done
            }
            Err(error) => Outcome::Failed(error),
        };
    };
    match call.kind {
        CallKind::Bind(..) => Outcome::NoSocket,
        CallKind::Connect(remote, port) => done(net::connect(open, &SocketAddr::new(ends.address(remote), port))),
        CallKind::Send(len, to) => {
            let bytes = pattern(8, len.into());
            let sent = match to {
                None => net::send(open, &bytes, SendFlags::empty()),
                Some((remote, port)) => {
                    net::sendto(open, &bytes, SendFlags::empty(), &SocketAddr::new(ends.address(remote), port))
                }
            };
            done(sent.map(drop))
        }
        CallKind::Receive => {
            let mut buffer = vec![0; 65_536];
            match net::recvfrom(open, &mut buffer[..], RecvFlags::empty()) {
                Ok((count, _, Some(from))) => match SocketAddr::try_from(from) {
                    Ok(from) => Outcome::Received(SocketAddr::new(from.ip(), from.port()), buffer[..count].to_vec()),
                    Err(error) => Outcome::Failed(error),
                },
                Ok((_, _, None)) | Err(Errno::AGAIN) => Outcome::Empty,
                Err(error) => Outcome::Failed(error),
            }
        }
        CallKind::Close => {
            *socket = None;
            Outcome::Done
        }
    }
}

fn bound(local: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::DGRAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    if local.is_ipv4() {
        sockopt::set_socket_broadcast(&socket, true)?;
    } else {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    net::bind(&socket, &local)?;
    Ok(socket)
}
