//! ICMP and ICMPv6 (RFC 792, RFC 1122 3.2.2, RFC 1812 4.3, RFC 4443): echo, errors sent under a rate limit, and errors received as
//! values for sockets. Redirects are not obeyed, and sent by `redirect.rs`. An error counts only if it quotes what was really sent:
//! a TCP segment in flight, or a datagram or an echo request of the last seconds (`sent.rs`).

use crate::drops::{DropReason, IcmpDrop, IpDrop};
use crate::ip::path_mtu::believable;
use crate::ip::sent::Print;
use crate::limits::{ICMP_ERRORS_BURST, ICMP_ERRORS_PER_SECOND, ICMPV4_ERROR_BYTES_MAX, ICMPV6_ERROR_BYTES_MAX};
use crate::link::frame::DeviceId;
use crate::multicast::mld;
use crate::seed::Random;
use crate::stack::{Input, Stack};
use crate::tcp::{Belief, Storage};
use crate::time::{Duration, Instant};
use crate::wire::checksum::Sum;
use crate::wire::ipv4::Ipv4Build;
use crate::wire::ipv6::{self, Ipv6Build};
use crate::wire::tcp::SeqNumber;
use smoltcp::wire::{Icmpv4Message, Icmpv6Message, IpProtocol};
use std::net::{IpAddr, SocketAddr};

/// What the network said of a packet that a socket sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkError {
    /// No router knows the way.
    NoRoute,
    /// The last router does not reach the host.
    HostUnreachable,
    /// The host does not speak the protocol, or not what is in the packet.
    ProtocolUnreachable,
    /// Nobody listens there.
    PortUnreachable,
    /// Larger than a link on the way takes.
    TooBig {
        /// What it takes; 0 if the router did not say.
        mtu: u16,
    },
    /// Too many routers on the way, or a fragment lost.
    TimeExceeded,
    /// Somebody did not understand a header.
    Parameter,
    /// Somebody on the way forbids it.
    Prohibited,
}

/// What is wrong with a packet, to be told to who sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IcmpError {
    NoRoute,
    HostUnreachable,
    /// The protocol's number stands there.
    Protocol {
        at: usize,
    },
    PortUnreachable,
    TooBig {
        mtu: u16,
    },
    HopLimit,
    Reassembly,
    /// A bad octet; the code is ICMPv6's.
    Parameter {
        code: u8,
        at: usize,
    },
    /// The same, told even of packets to a group (RFC 4443 2.4 (e.3)).
    ParameterOfGroup {
        at: usize,
    },
}

impl IcmpError {
    /// Type, code and the word behind the checksum.
    fn v4(self) -> (u8, u8, u32) {
        let pointer = |at: usize| u32::from(u8::try_from(at).unwrap_or(u8::MAX)) << 24;
        match self {
            Self::NoRoute => (3, 0, 0),
            Self::HostUnreachable => (3, 1, 0),
            Self::Protocol { .. } => (3, 2, 0),
            Self::PortUnreachable => (3, 3, 0),
            Self::TooBig { mtu } => (3, 4, mtu.into()),
            Self::HopLimit => (11, 0, 0),
            Self::Reassembly => (11, 1, 0),
            Self::Parameter { at, .. } | Self::ParameterOfGroup { at } => (12, 0, pointer(at)),
        }
    }

    fn v6(self) -> (u8, u8, u32) {
        let pointer = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        match self {
            Self::NoRoute => (1, 0, 0),
            Self::HostUnreachable => (1, 3, 0),
            Self::Protocol { at } => (4, 1, pointer(at)),
            Self::PortUnreachable => (1, 4, 0),
            Self::TooBig { mtu } => (2, 0, mtu.into()),
            Self::HopLimit => (3, 0, 0),
            Self::Reassembly => (3, 1, 0),
            Self::Parameter { code, at } => (4, code, pointer(at)),
            Self::ParameterOfGroup { at } => (4, 2, pointer(at)),
        }
    }

    /// True if RFC 4443 2.4 (e.3) wants it told even of packets to groups.
    fn concerns_groups(self) -> bool {
        match self {
            Self::TooBig { .. } | Self::ParameterOfGroup { .. } => true,
            Self::NoRoute
            | Self::HostUnreachable
            | Self::Protocol { .. }
            | Self::PortUnreachable
            | Self::HopLimit
            | Self::Reassembly
            | Self::Parameter { .. } => false,
        }
    }
}

/// A token bucket for errors sent (RFC 4443 2.4 (f)). An error costs one to three tokens, by chance: were each to cost the same,
/// whoever is told of his own errors could count those that others were told of (CVE-2020-25705).
#[derive(Debug)]
pub(crate) struct RateLimit {
    tokens: u32,
    /// Up to when tokens were handed in.
    since: Instant,
    random: Random,
}

impl RateLimit {
    const EVERY: Duration = Duration::from_nanos(1_000_000_000 / ICMP_ERRORS_PER_SECOND as u64);

    pub(crate) fn new(random: Random) -> Self {
        Self { tokens: ICMP_ERRORS_BURST, since: Instant::default(), random }
    }

    fn take(&mut self, now: Instant) -> bool {
        let handed_in = now.since(self.since).as_nanos() / Self::EVERY.as_nanos();
        if handed_in >= u64::from(ICMP_ERRORS_BURST - self.tokens) {
            (self.tokens, self.since) = (ICMP_ERRORS_BURST, now);
        } else {
            let count = u32::try_from(handed_in).unwrap_or(0);
            self.tokens += count;
            self.since += Self::EVERY * count;
        }
        let left = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1 + self.random.below(3));
        left
    }
}

impl<S: Storage> Stack<S> {
    /// Tells who sent a packet what is wrong with it, where that is allowed; counts where not. `packet` is its beginning.
    pub(crate) fn send_error(
        &mut self,
        now: Instant,
        device: DeviceId,
        packet: &[u8],
        to_group: bool,
        error: IcmpError,
    ) {
        if let Err(reason) = self.try_send_error(now, device, packet, to_group, error) {
            self.drops.count(reason);
        }
    }

    fn try_send_error(
        &mut self,
        now: Instant,
        device: DeviceId,
        packet: &[u8],
        to_group: bool,
        error: IcmpError,
    ) -> Result<(), DropReason> {
        let quoted = Quoted::parse(packet).ok_or(IcmpDrop::Forbidden)?;
        self.permit_error(now, &quoted, to_group, error.concerns_groups())?;
        let to = quoted.from;
        let on = self.link_of(device, to);
        let from = self.address_towards(to, on).ok_or(IpDrop::NoRoute)?;
        let (kind, code, word) = if to.is_ipv4() { error.v4() } else { error.v6() };
        let room = if to.is_ipv4() { ICMPV4_ERROR_BYTES_MAX - 28 } else { ICMPV6_ERROR_BYTES_MAX - 48 };
        let mut message = vec![kind, code, 0, 0];
        message.extend_from_slice(&word.to_be_bytes());
        message.extend_from_slice(&packet[..packet.len().min(room)]);
        self.send_icmp(now, from, to, message, on)
    }

    /// Whether an error about a packet may be sent, by its kind and by how many were (RFC 1122 3.2.2, RFC 4443 2.4 (e), (f)). One that
    /// concerns groups is told of packets to those too, over IPv6.
    pub(crate) fn permit_error(
        &mut self,
        now: Instant,
        quoted: &Quoted<'_>,
        to_group: bool,
        concerns_groups: bool,
    ) -> Result<(), IcmpDrop> {
        let v6 = quoted.from.is_ipv6();
        let to_group = to_group || quoted.to.is_multicast() || self.is_broadcast(quoted.to);
        let nobody = quoted.from.is_unspecified() || quoted.from.is_multicast() || self.is_broadcast(quoted.from);
        let later_fragment = quoted.is_later_fragment && !v6;
        if nobody || (to_group && !(v6 && concerns_groups)) || quoted.is_error || later_fragment {
            return Err(IcmpDrop::Forbidden);
        }
        if !self.errors_sent.take(now) {
            return Err(IcmpDrop::RateLimit);
        }
        Ok(())
    }

    /// Fills the checksum in and sends.
    pub(crate) fn send_icmp(
        &mut self,
        now: Instant,
        from: IpAddr,
        to: IpAddr,
        mut message: Vec<u8>,
        on: Option<DeviceId>,
    ) -> Result<(), DropReason> {
        let sum = Sum::default().bytes(&message);
        let sum = if to.is_ipv6() { sum.pseudo_header(from, to, 58, message.len()) } else { sum };
        message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
        // RFC 1812 4.3.2.5: errors have precedence 6. Neighbour messages have hop limit 255 (RFC 4861 7.1).
        let service = if matches!(message[0], 3 | 5 | 11 | 12) { 0xc0 } else { 0 };
        let hop_limit = if matches!(message[0], 135..=137) { 255 } else { 64 };
        let packet = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let ident = self.ident(to.into());
                Ipv4Build { from, to, protocol: IpProtocol::Icmp, ttl: 64, service, ident }.packet(&message)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                Ipv6Build { from, to, protocol: IpProtocol::Icmpv6, hop_limit }.packet(&message)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
        };
        self.send_packet(now, packet.ok_or(IpDrop::Length)?, on)
    }

    pub(crate) fn input_icmp(&mut self, now: Instant, input: &Input<'_>) -> Result<(), DropReason> {
        let message = input.transport();
        if message.len() < 8 {
            return Err(IcmpDrop::Length.into());
        }
        let sum = match input.to {
            IpAddr::V4(_) => Sum::default(),
            IpAddr::V6(_) => Sum::default().pseudo_header(input.from, input.to, 58, message.len()),
        };
        if !sum.bytes(message).is_intact() {
            return Err(IcmpDrop::Checksum.into());
        }
        match input.to {
            IpAddr::V4(_) => self.input_icmpv4(now, input, message),
            IpAddr::V6(_) => self.input_icmpv6(now, input, message),
        }
    }

    fn input_icmpv4(&mut self, now: Instant, input: &Input<'_>, message: &[u8]) -> Result<(), DropReason> {
        let mtu = u16::from_be_bytes([message[6], message[7]]);
        let error = match (Icmpv4Message::from(message[0]), message[1]) {
            (Icmpv4Message::EchoRequest, _) => return self.answer_echo(now, input, message, 0),
            (Icmpv4Message::EchoReply, _) => return self.input_echo_reply(input, message),
            (Icmpv4Message::DstUnreachable, 2) => NetworkError::ProtocolUnreachable,
            (Icmpv4Message::DstUnreachable, 3) => NetworkError::PortUnreachable,
            (Icmpv4Message::DstUnreachable, 4) => NetworkError::TooBig { mtu },
            (Icmpv4Message::DstUnreachable, 0 | 5 | 6 | 8 | 11) => NetworkError::NoRoute,
            (Icmpv4Message::DstUnreachable, 1 | 7 | 12) => NetworkError::HostUnreachable,
            (Icmpv4Message::DstUnreachable, 9 | 10 | 13..=15) => NetworkError::Prohibited,
            (Icmpv4Message::TimeExceeded, _) => NetworkError::TimeExceeded,
            (Icmpv4Message::ParamProblem, _) => NetworkError::Parameter,
            // RFC 9293 MUST-55: a source quench too.
            _ => return Err(IcmpDrop::Ignored.into()),
        };
        self.report(now, &message[8..], error)
    }

    fn input_icmpv6(&mut self, now: Instant, input: &Input<'_>, message: &[u8]) -> Result<(), DropReason> {
        let mtu = u32::from_be_bytes([message[4], message[5], message[6], message[7]]);
        let error = match (Icmpv6Message::from(message[0]), message[1]) {
            (Icmpv6Message::EchoRequest, _) => return self.answer_echo(now, input, message, 129),
            (Icmpv6Message::EchoReply, _) => return self.input_echo_reply(input, message),
            (Icmpv6Message::NeighborSolicit | Icmpv6Message::NeighborAdvert, code) => {
                return self.input_neighbour(now, input, message, code);
            }
            _ if matches!(message[0], mld::QUERY | mld::REPORT_1) => return self.input_mld(now, input, message),
            (Icmpv6Message::DstUnreachable, 0) => NetworkError::NoRoute,
            (Icmpv6Message::DstUnreachable, 2 | 3) => NetworkError::HostUnreachable,
            (Icmpv6Message::DstUnreachable, 4) => NetworkError::PortUnreachable,
            (Icmpv6Message::DstUnreachable, _) => NetworkError::Prohibited,
            (Icmpv6Message::PktTooBig, _) => NetworkError::TooBig { mtu: u16::try_from(mtu).unwrap_or(u16::MAX) },
            (Icmpv6Message::TimeExceeded, _) => NetworkError::TimeExceeded,
            (Icmpv6Message::ParamProblem, _) => NetworkError::Parameter,
            _ => return Err(IcmpDrop::Ignored.into()),
        };
        self.report(now, &message[8..], error)
    }

    fn answer_echo(&mut self, now: Instant, input: &Input<'_>, message: &[u8], kind: u8) -> Result<(), DropReason> {
        if input.to_group && input.to.is_ipv4() {
            return Err(IcmpDrop::EchoToMany.into());
        }
        let on = self.link_of(input.device, input.from);
        let from = if input.to_group { self.address_towards(input.from, on) } else { Some(input.to) };
        let mut reply = message.to_vec();
        reply[..4].copy_from_slice(&[kind, 0, 0, 0]);
        self.send_icmp(now, from.ok_or(IpDrop::NoRoute)?, input.from, reply, on)
    }

    /// Takes an error about a quoted packet to the socket that sent it. The packet has to be one that was really sent.
    fn report(&mut self, now: Instant, packet: &[u8], error: NetworkError) -> Result<(), DropReason> {
        let quoted = Quoted::parse(packet).filter(|quoted| self.is_own(quoted.from)).ok_or(IcmpDrop::Quote)?;
        let mtu = match error {
            // RFC 1191 3: only of packets that routers may not cut. RFC 8201 4: nothing below the least is believed.
            NetworkError::TooBig { .. } if quoted.may_be_cut => return Err(IcmpDrop::Quote.into()),
            NetworkError::TooBig { mtu } => Some(believable(mtu, quoted.to)),
            NetworkError::NoRoute
            | NetworkError::HostUnreachable
            | NetworkError::ProtocolUnreachable
            | NetworkError::PortUnreachable
            | NetworkError::TimeExceeded
            | NetworkError::Parameter
            | NetworkError::Prohibited => None,
        };
        if mtu.is_some_and(|mtu| quoted.total_bytes <= usize::from(mtu)) {
            return Err(IcmpDrop::Quote.into());
        }
        let learn = match quoted.protocol {
            6 => self.report_segment(now, &quoted, error)?,
            17 | 1 | 58 => self.report_datagram(now, packet, &quoted, error, mtu)?,
            _ => return Err(IcmpDrop::Quote.into()),
        };
        if let Some(mtu) = mtu.filter(|_| learn) {
            self.paths.learn(now, quoted.to, mtu);
        }
        Ok(())
    }

    /// True if a path's MTU is to be believed at once.
    fn report_segment(&mut self, now: Instant, quoted: &Quoted<'_>, error: NetworkError) -> Result<bool, DropReason> {
        let ports = quoted.ports().ok_or(IcmpDrop::Quote)?;
        let seq = quoted.transport.get(4..8).and_then(|bytes| bytes.first_chunk::<4>());
        let seq = seq.map(|bytes| SeqNumber(u32::from_be_bytes(*bytes))).ok_or(IcmpDrop::Quote)?;
        Ok(self.report_tcp(now, ports, seq, error)? == Belief::AtOnce)
    }

    /// The same about a datagram or an echo request, which has to be on record as larger than a claimed MTU.
    fn report_datagram(
        &mut self,
        now: Instant,
        packet: &[u8],
        quoted: &Quoted<'_>,
        error: NetworkError,
        mtu: Option<u16>,
    ) -> Result<bool, DropReason> {
        let print = Print::new(packet, (quoted.from, quoted.to), quoted.protocol, quoted.transport);
        let print = print.filter(|_| !quoted.is_later_fragment).ok_or(IcmpDrop::Quote)?;
        let sent_bytes = self.sent.find(now, &print).ok_or(IcmpDrop::Quote)?;
        if mtu.is_some_and(|mtu| sent_bytes <= mtu) {
            return Err(IcmpDrop::Quote.into());
        }
        if quoted.protocol == 17 {
            let (local, remote) = quoted.ports().ok_or(IcmpDrop::Quote)?;
            // The socket may be closed by now; the path is what it is.
            let reported = self.udp.report(local, remote, error);
            return if reported || mtu.is_some() { Ok(true) } else { Err(IcmpDrop::Quote.into()) };
        }
        // Nobody waits for errors about echo requests: an answer that does not come says the same.
        if mtu.is_some() { Ok(true) } else { Err(IcmpDrop::Ignored.into()) }
    }
}

/// What an error is about, by the beginning of a packet.
pub(crate) struct Quoted<'a> {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    protocol: u8,
    /// The transport header, as far as it is there.
    transport: &'a [u8],
    is_error: bool,
    is_later_fragment: bool,
    /// Bytes of the whole packet, by its header.
    total_bytes: usize,
    /// Routers may have cut it.
    may_be_cut: bool,
}

impl<'a> Quoted<'a> {
    pub(crate) fn parse(packet: &'a [u8]) -> Option<Self> {
        let mut quoted = match packet.first()? >> 4 {
            4 => {
                let header: &[u8; 20] = packet.first_chunk()?;
                let transport = packet.get(usize::from(header[0] & 15).max(5) * 4..)?;
                let offset = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
                let from = IpAddr::from(*packet[12..].first_chunk::<4>()?);
                let to = IpAddr::from(*packet[16..].first_chunk::<4>()?);
                let is_later_fragment = offset > 0;
                Self {
                    from,
                    to,
                    protocol: header[9],
                    transport,
                    is_error: false,
                    is_later_fragment,
                    total_bytes: u16::from_be_bytes([header[2], header[3]]).into(),
                    may_be_cut: header[6] & 0x40 == 0,
                }
            }
            6 => {
                let header: &[u8; 40] = packet.first_chunk()?;
                let from = IpAddr::from(*packet[8..].first_chunk::<16>()?);
                let to = IpAddr::from(*packet[24..].first_chunk::<16>()?);
                let walk = ipv6::walk(packet, header[6]);
                let (protocol, at) = walk.map_or((header[6], packet.len()), |walk| (walk.protocol, walk.at));
                let fragment = walk.ok().and_then(|walk| walk.fragment);
                let at = at + fragment.map_or(0, |_| ipv6::FRAGMENT_BYTES);
                let transport = packet.get(at..)?;
                let is_later_fragment = fragment.is_some_and(|fragment| fragment.offset > 0);
                let total_bytes = header.len() + usize::from(u16::from_be_bytes([header[4], header[5]]));
                let may_be_cut = false;
                Self { from, to, protocol, transport, is_error: false, is_later_fragment, total_bytes, may_be_cut }
            }
            _ => return None,
        };
        quoted.is_error = match (quoted.protocol, quoted.transport.first()) {
            // Its type is in the first one.
            (58, Some(_)) if quoted.is_later_fragment => true,
            (1, Some(kind)) => !matches!(kind, 0 | 8 | 13..=18),
            (58, Some(kind)) => *kind < 128 || *kind == 137,
            (1 | 58, None) => true,
            _ => false,
        };
        Some(quoted)
    }

    fn ports(&self) -> Option<(SocketAddr, SocketAddr)> {
        let ports: &[u8; 4] = self.transport.first_chunk().filter(|_| !self.is_later_fragment)?;
        let local = SocketAddr::new(self.from, u16::from_be_bytes([ports[0], ports[1]]));
        Some((local, SocketAddr::new(self.to, u16::from_be_bytes([ports[2], ports[3]]))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};

    fn limit() -> RateLimit {
        RateLimit::new(Seed::simulated(1).random(Purpose::ErrorLimit))
    }

    #[test]
    fn errors_are_limited_to_a_burst_and_then_a_rate() {
        let mut limit = limit();
        let mut taken = |ms: u64| (0..1000).filter(|_| limit.take(Instant::from_ns(ms * 1_000_000))).count();
        assert!((17..=50).contains(&taken(5)));
        assert_eq!(taken(5), 0);
        assert_eq!(taken(6), 1);
        assert!((4..=10).contains(&taken(16)));
        assert!((17..=50).contains(&taken(10_000)));
    }

    #[test]
    fn what_nobody_takes_adds_up_to_one_burst_and_no_more() {
        let mut limit = limit();
        let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
        assert!((1..20).all(|n| limit.take(at(n * 60))));
        let burst = (0..1000).filter(|_| limit.take(at(20 * 60))).count();
        assert!((17..=50).contains(&burst), "{burst}");
    }
}
