//! ICMP and ICMPv6 (RFC 792, RFC 1122 3.2.2, RFC 1812 4.3, RFC 4443): echo, sent errors with a rate limit, and received errors.
//!
//! A received error is accepted only if it quotes a packet that this stack sent. The quoted packet must be a TCP segment in flight,
//! or a datagram or echo request that was sent within the last seconds (`sent.rs`). Received redirects are ignored.

use super::Ip;
use super::input::LocalPacket;
use super::path_mtu::believable;
use super::sent::Print;
use crate::drops::{DropReason, IcmpDrop, IpDrop};
use crate::limits::{ICMP_ERRORS_BURST, ICMP_ERRORS_PER_SECOND, ICMPV4_ERROR_BYTES_MAX, ICMPV6_ERROR_BYTES_MAX};
use crate::link::frame::DeviceId;
use crate::seed::Random;
use crate::time::{Duration, Instant};
use crate::wire::address::is_martian_destination;
use crate::wire::checksum::Sum;
use crate::wire::icmp::{HEADER_BYTES, IcmpError, IcmpHeader, NetworkError, Quoted, field, v4, v6};
use crate::wire::ipv4::Ipv4Build;
use crate::wire::ipv6::Ipv6Build;
use crate::wire::protocol::{ICMP, ICMPV6, TCP, UDP};
use crate::wire::tcp::{self, SeqNumber};
use crate::wire::u32_at;
use smoltcp::wire::{IPV4_HEADER_LEN, IPV6_HEADER_LEN};
use std::net::{IpAddr, SocketAddr};

/// The task that results from a received ICMP message for the layers above.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Mld,
    /// The message reports an error about a packet of a socket.
    Error(ErrorReport),
}

/// A reported error about a packet that a socket may have sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ErrorReport {
    pub(crate) error: NetworkError,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// The MTU of the path, if the error reports one.
    pub(crate) mtu: Option<u16>,
    /// The sequence number of the TCP segment that the error quotes. The TCP layer must still check that the segment is in
    /// flight. `None` means that the error quotes a UDP datagram that this stack has sent.
    pub(crate) seq: Option<SeqNumber>,
}

/// A token bucket that limits the number of sent errors (RFC 4443 2.4 (f)).
///
/// Each error takes a random number of tokens, one to three. If the number were constant, a station could count the errors it
/// receives and derive how many errors others received (CVE-2020-25705).
#[derive(Debug)]
pub(crate) struct RateLimit {
    tokens: u32,
    /// The time until which tokens have been added to the bucket.
    since: Instant,
    random: Random,
}

impl RateLimit {
    const EVERY: Duration = Duration::from_nanos(1_000_000_000 / ICMP_ERRORS_PER_SECOND as u64);

    pub(crate) fn new(random: Random) -> Self {
        Self { tokens: ICMP_ERRORS_BURST, since: Instant::default(), random }
    }

    fn take(&mut self, now: Instant) -> bool {
        let added = now.since(self.since).as_nanos() / Self::EVERY.as_nanos();
        if added >= u64::from(ICMP_ERRORS_BURST - self.tokens) {
            (self.tokens, self.since) = (ICMP_ERRORS_BURST, now);
        } else {
            let count = u32::try_from(added).unwrap_or(0);
            self.tokens += count;
            self.since += Self::EVERY * count;
        }
        let left = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1 + self.random.below(3));
        left
    }
}

impl Ip {
    /// Sends an error about a packet to the packet's source. If an error must not be sent, only the drop is counted. `packet` has
    /// the first bytes of the packet.
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
        // RFC 1122 3.3.4.3, RFC 4443 2.2: an error about a packet to this host comes from the address of the packet.
        let own = Some(quoted.to).filter(|to| self.is_own(*to));
        let from = own.or_else(|| self.address_towards(to, on)).ok_or(IpDrop::NoRoute)?;
        let (header, bytes_max) = if to.is_ipv4() {
            (error.v4(), ICMPV4_ERROR_BYTES_MAX - IPV4_HEADER_LEN)
        } else {
            (error.v6(), ICMPV6_ERROR_BYTES_MAX - IPV6_HEADER_LEN)
        };
        let quote = &packet[..packet.len().min(bytes_max - HEADER_BYTES)];
        self.send_icmp(now, from, to, header.message(quote), on)
    }

    /// Checks whether an error about a packet may be sent: the kind of packet and the rate limit can forbid it (RFC 1122 3.2.2,
    /// RFC 4443 2.4 (e), (f)). Over IPv6, an error that concerns groups may be sent even if the packet was sent to a group.
    pub(crate) fn permit_error(
        &mut self,
        now: Instant,
        quoted: &Quoted<'_>,
        to_group: bool,
        concerns_groups: bool,
    ) -> Result<(), IcmpDrop> {
        let v6 = quoted.from.is_ipv6();
        let to_group = to_group || quoted.to.is_multicast() || self.is_broadcast(quoted.to);
        let from_no_host = quoted.from.is_unspecified() || quoted.from.is_multicast() || self.is_broadcast(quoted.from);
        let later_fragment = quoted.is_later_fragment && !v6;
        let to_no_host = matches!(quoted.to, IpAddr::V4(to) if is_martian_destination(to)) && !self.is_own(quoted.from);
        if from_no_host || to_no_host || (to_group && !(v6 && concerns_groups)) || quoted.is_error || later_fragment {
            return Err(IcmpDrop::Forbidden);
        }
        if !self.errors_sent.take(now) {
            return Err(IcmpDrop::RateLimit);
        }
        Ok(())
    }

    /// Fills in the checksum and sends an ICMP message.
    pub(crate) fn send_icmp(
        &mut self,
        now: Instant,
        from: IpAddr,
        to: IpAddr,
        message: Vec<u8>,
        on: Option<DeviceId>,
    ) -> Result<(), DropReason> {
        let is_error = matches!(message[0], v4::UNREACHABLE | v4::REDIRECT | v4::TIME_EXCEEDED | v4::PARAMETER_PROBLEM);
        // RFC 1812 4.3.2.5: errors have precedence 6.
        let service = if is_error && to.is_ipv4() { 0xc0 } else { 0 };
        self.send_icmp_with(now, service, (from, to), message, on)
    }

    /// Like [`Ip::send_icmp`], with this type of service.
    fn send_icmp_with(
        &mut self,
        now: Instant,
        service: u8,
        (from, to): (IpAddr, IpAddr),
        mut message: Vec<u8>,
        on: Option<DeviceId>,
    ) -> Result<(), DropReason> {
        let sum = Sum::default().bytes(&message);
        let sum = if to.is_ipv6() { sum.pseudo_header(from, to, ICMPV6, message.len()) } else { sum };
        message[field::CHECKSUM].copy_from_slice(&sum.checksum().to_be_bytes());
        let packet = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let ident = self.identifications.next_v4(to);
                Ipv4Build { from, to, protocol: ICMP, ttl: 64, service, ident }.packet(&message)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                // RFC 4861 7.1: messages between neighbours have hop limit 255.
                let between_neighbours = matches!(message[0], v6::NEIGHBOUR_SOLICITATION..=v6::REDIRECT);
                let hop_limit = if between_neighbours { 255 } else { 64 };
                Ipv6Build { from, to, protocol: ICMPV6, hop_limit, service }.packet(&message)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
        };
        self.send_packet(now, packet.ok_or(IpDrop::Length)?, on)
    }

    pub(crate) fn input_icmp(&mut self, now: Instant, input: &LocalPacket<'_>) -> Result<Answer, DropReason> {
        let message = input.transport();
        let header = IcmpHeader::parse(message).ok_or(IcmpDrop::Length)?;
        let sum = match input.to {
            IpAddr::V4(_) => Sum::default(),
            IpAddr::V6(_) => Sum::default().pseudo_header(input.from, input.to, ICMPV6, message.len()),
        };
        if !sum.bytes(message).is_intact() {
            return Err(IcmpDrop::Checksum.into());
        }
        let error = match input.to {
            IpAddr::V4(_) => match header.kind {
                v4::ECHO_REQUEST => return self.answer_echo(now, input, header, v4::ECHO_REPLY),
                v4::ECHO_REPLY => return self.input_echo_reply(input, header),
                _ => NetworkError::from_v4(header),
            },
            IpAddr::V6(_) => match header.kind {
                v6::ECHO_REQUEST => return self.answer_echo(now, input, header, v6::ECHO_REPLY),
                v6::ECHO_REPLY => return self.input_echo_reply(input, header),
                v6::NEIGHBOUR_SOLICITATION | v6::NEIGHBOUR_ADVERTISEMENT => {
                    return self.input_neighbour(now, input).map(|()| Answer::Done);
                }
                v6::MLD_QUERY | v6::MLD_REPORT_1 => return Ok(Answer::Mld),
                _ => NetworkError::from_v6(header),
            },
        };
        self.judge_error(now, input.from, &message[HEADER_BYTES..], error.ok_or(IcmpDrop::Ignored)?)
    }

    fn answer_echo(
        &mut self,
        now: Instant,
        input: &LocalPacket<'_>,
        header: IcmpHeader,
        kind: u8,
    ) -> Result<Answer, DropReason> {
        let to_group = input.arrival.to_group;
        if to_group && input.to.is_ipv4() {
            return Err(IcmpDrop::EchoToMany.into());
        }
        let on = self.link_of(input.arrival.device, input.from);
        let from = if to_group { self.address_towards(input.from, on) } else { Some(input.to) };
        let reply = IcmpHeader { kind, code: 0, rest: header.rest }.message(&input.transport()[HEADER_BYTES..]);
        // RFC 1349 5.1: the reply has the type of service of the request.
        let service = match input.packet[..] {
            [version, service, ..] if version >> 4 == 4 => service,
            [high, low, ..] => high << 4 | low >> 4,
            _ => 0,
        };
        self.send_icmp_with(now, service, (from.ok_or(IpDrop::NoRoute)?, input.from), reply, on)?;
        Ok(Answer::Done)
    }

    /// Checks a received error: the packet that it quotes must be one that this stack sent. Returns the task of the layers above.
    fn judge_error(
        &mut self,
        now: Instant,
        reporter: IpAddr,
        packet: &[u8],
        error: NetworkError,
    ) -> Result<Answer, DropReason> {
        let quoted = Quoted::parse(packet).filter(|quoted| self.is_own(quoted.from)).ok_or(IcmpDrop::Quote)?;
        // Only the stack itself reports errors about packets to itself.
        if (quoted.from.is_loopback() || quoted.to.is_loopback()) && !self.is_own(reporter) {
            return Err(IcmpDrop::Quote.into());
        }
        // RFC 8201 4: a reported MTU below the minimum is raised to the minimum.
        let mtu = if let NetworkError::TooBig { mtu } = error { Some(believable(mtu, quoted.to)) } else { None };
        // RFC 1191 3: a router reports an MTU only if the packet is larger than the MTU and must not be fragmented. Drop other
        // reports.
        if mtu.is_some_and(|mtu| quoted.may_be_cut || quoted.total_bytes <= usize::from(mtu)) {
            return Err(IcmpDrop::Quote.into());
        }
        let report = |seq| {
            let (local, remote) = quoted.ends().ok_or(IcmpDrop::Quote)?;
            Ok(Answer::Error(ErrorReport { error, local, remote, mtu, seq }))
        };
        match quoted.protocol {
            TCP => {
                let seq = SeqNumber(u32_at(quoted.transport, tcp::SEQ).ok_or(IcmpDrop::Quote)?);
                report(Some(seq))
            }
            UDP => {
                self.check_sent(now, packet, mtu)?;
                report(None)
            }
            ICMP | ICMPV6 => {
                self.check_sent(now, packet, mtu)?;
                // Errors about echo requests are not reported to the caller, which notices the missing reply. Only a path MTU is recorded.
                self.path_mtus.learn(now, quoted.to, mtu.ok_or(IcmpDrop::Ignored)?);
                Ok(Answer::Done)
            }
            _ => Err(IcmpDrop::Quote.into()),
        }
    }

    /// Checks that the record of sent packets contains the quoted datagram or echo request. If the error reports an MTU, the
    /// recorded packet must be larger.
    fn check_sent(&self, now: Instant, packet: &[u8], mtu: Option<u16>) -> Result<(), IcmpDrop> {
        let sent_bytes = Print::new(packet).and_then(|print| self.sent.find(now, &print)).ok_or(IcmpDrop::Quote)?;
        if mtu.is_some_and(|mtu| sent_bytes <= mtu) { Err(IcmpDrop::Quote) } else { Ok(()) }
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
    fn icmp_errors_are_limited_to_a_burst_and_then_to_a_rate() {
        let mut limit = limit();
        let mut taken = |ms: u64| (0..1000).filter(|_| limit.take(Instant::from_ns(ms * 1_000_000))).count();
        assert!((17..=50).contains(&taken(5)));
        assert_eq!(taken(5), 0);
        assert_eq!(taken(6), 1);
        assert!((4..=10).contains(&taken(16)));
        assert!((17..=50).contains(&taken(10_000)));
    }

    #[test]
    fn unused_tokens_of_the_icmp_limit_add_up_to_one_burst_at_most() {
        let mut limit = limit();
        let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
        assert!((1..20).all(|n| limit.take(at(n * 60))));
        let burst = (0..1000).filter(|_| limit.take(at(20 * 60))).count();
        assert!((17..=50).contains(&burst), "{burst}");
    }
}
