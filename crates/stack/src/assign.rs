//! Addresses for a station that asks: answers to DHCP requests (RFC 2131) and to router solicitations (RFC 4861, RFC 4862) on one
//! Ethernet link.
//!
//! An [`Assignment`] has the addresses of one station. [`Assignment::asks`] recognises the frames to which it answers, and
//! [`Assignment::answer`] returns the answers. Both are functions of the frame alone: an assignment has no leases and no other state
//! that requests could fill. Only the station with the Ethernet address of the assignment gets an answer. It always gets the same
//! addresses, whatever client identifier it sends.
//!
//! The caller limits the rate of answers. From time to time it sends [`Assignment::advertisements`], because a route to a router ends
//! [`ROUTER_LIFETIME_S`] seconds after the latest one.

use crate::wire::address::{ALL_NODES, Prefix};
use crate::wire::arp::ArpPacket;
use crate::wire::checksum::Sum;
use crate::wire::dhcp::{self, ClientMessage, DhcpReply, DhcpRequest, ServerMessage, option};
use crate::wire::ethernet::{IPV4, IPV6, LINK_BYTES, MacAddress};
use crate::wire::icmp::v6;
use crate::wire::ipv4::{Ipv4Build, Ipv4Header};
use crate::wire::ipv6::{Ipv6Build, Ipv6Header};
use crate::wire::nd::{self, NeighbourMessage, RouterAdvertisement};
use crate::wire::protocol::{ICMPV6, UDP};
use crate::wire::{icmp, u16_at, udp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address with which a DHCP server names itself. It is link-local, and no station may choose an address from this range itself
/// (RFC 3927 2.1).
pub const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 67);
/// The duration of a lease, in seconds. The client renews it after half of this time.
pub const LEASE_S: u32 = 3_600;
/// How long a router is used after its latest advertisement, in seconds.
pub const ROUTER_LIFETIME_S: u16 = 1_800;
/// How long an advertised prefix is valid and preferred, in seconds: the defaults of RFC 4861 6.2.1.
const PREFIX_VALID_S: u32 = 2_592_000;
const PREFIX_PREFERRED_S: u32 = 604_800;
/// The longest frame that can be a request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 1_514;
/// The hop limit of packets on the link. Receivers of neighbour discovery messages check it (RFC 4861 6.1).
const LINK_HOP_LIMIT: u8 = 255;
/// The hop limit that stations use for their packets.
const HOP_LIMIT: u8 = 64;
const ARP: u16 = 0x0806;

/// The addresses and routes of a station, for which it asks.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// The Ethernet address of the station.
    pub station: MacAddress,
    /// The Ethernet address from which the answers come.
    pub server: MacAddress,
    /// The size of the largest IP packet.
    pub mtu: u16,
    /// What the station gets by DHCP. `None`: DHCP requests are not answered.
    pub lease: Option<Lease>,
    /// What the station gets by router advertisements. `None`: router solicitations are not answered.
    pub advertised: Option<Advertised>,
}

/// What a station gets by DHCP.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The address of the station.
    pub address: Ipv4Addr,
    /// The length of the address's prefix.
    pub length: u8,
    /// The routes: destinations and next hops.
    pub routes: Vec<(Prefix, Ipv4Addr)>,
    /// The name of the station.
    pub host_name: String,
}

/// What a station gets by router advertisements.
#[derive(Debug, Clone)]
pub struct Advertised {
    /// The prefixes of the link.
    pub prefixes: Vec<Prefix>,
    /// The routers, in whose names advertisements are sent.
    pub routers: Vec<Router>,
}

/// A router on the link.
#[derive(Debug, Clone)]
pub struct Router {
    /// The router's Ethernet address, from which its link-local address is derived.
    pub mac: MacAddress,
    /// The prefixes to which it has routes. The prefix of length 0 makes it a default router.
    pub routes: Vec<Prefix>,
}

/// What a frame asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// An ARP request for the Ethernet address of the DHCP server.
    Server,
    /// A message of a DHCP client.
    Dhcp,
    /// A router solicitation.
    Routers,
    /// A neighbour solicitation for the link-local address of the router with this Ethernet address. Routers that have no such address
    /// cannot answer it themselves.
    Router(MacAddress),
}

/// Why a request gets no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// The request is malformed.
    Malformed,
    /// The request is that of another station, or came from a relay agent.
    Foreign,
    /// The request needs no answer, for example because it is for another server.
    NotNeeded,
}

impl Assignment {
    /// Returns what a frame asks for, or `None` if it is to be sent on like others. `head` has the first bytes of the frame, without a
    /// VLAN tag. The frame has `frame_bytes` bytes.
    #[inline]
    pub fn asks(&self, head: &[u8], frame_bytes: usize) -> Option<Question> {
        let ethertype = u16_at(head, 12..14)?;
        let packet = head.get(LINK_BYTES..)?;
        let available = frame_bytes.checked_sub(LINK_BYTES)?;
        match ethertype {
            ARP if self.lease.is_some() => {
                let request = ArpPacket::parse(packet)?;
                (request.is_request && request.target == SERVER_ADDRESS).then_some(Question::Server)
            }
            IPV4 => {
                let lease = self.lease.as_ref()?;
                // Byte 9 is the protocol. Most frames end here.
                if packet.get(9) != Some(&UDP) {
                    return None;
                }
                let header = Ipv4Header::parse(packet, available).ok()?;
                let port = u16_at(packet.get(header.header_bytes..)?, 2..4)?;
                let is_for_server = [Ipv4Addr::BROADCAST, SERVER_ADDRESS, lease.broadcast()].contains(&header.to);
                (is_for_server && port == dhcp::SERVER_PORT && !header.is_fragment()).then_some(Question::Dhcp)
            }
            IPV6 => {
                let advertised = self.advertised.as_ref()?;
                if packet.get(6) != Some(&ICMPV6) {
                    return None;
                }
                match *packet.get(IPV6_HEADER_BYTES)? {
                    v6::ROUTER_SOLICITATION => Some(Question::Routers),
                    v6::NEIGHBOUR_SOLICITATION => {
                        let target = packet.get(IPV6_HEADER_BYTES + 8..)?.first_chunk::<16>()?;
                        let target = Ipv6Addr::from(*target);
                        let router = advertised.routers.iter().find(|router| link_local(router.mac) == target)?;
                        Some(Question::Router(router.mac))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Returns the frames that answer a request. `is_unfilled` says that the frame crossed memory only, so its checksum may be left out.
    ///
    /// # Errors
    /// Returns the reason if there is no answer.
    pub fn answer(&self, question: Question, frame: &[u8], is_unfilled: bool) -> Result<Vec<Vec<u8>>, NoAnswer> {
        let packet = frame.get(LINK_BYTES..).ok_or(NoAnswer::Malformed)?;
        match question {
            Question::Server => self.answer_arp(packet),
            Question::Dhcp => self.answer_dhcp(packet, is_unfilled),
            Question::Routers => {
                let (from, message) = icmp_message(packet, is_unfilled)?;
                if !nd::is_router_solicitation(message, from) {
                    return Err(NoAnswer::Malformed);
                }
                Ok(self.advertisements(Some(from).filter(|from| !from.is_unspecified())))
            }
            Question::Router(mac) => self.answer_solicitation(mac, packet, is_unfilled),
        }
    }

    /// Returns router advertisements for the station with this address, or for all stations at the port: one of the switch with the
    /// prefixes, and one of each router with its routes.
    pub fn advertisements(&self, to: Option<Ipv6Addr>) -> Vec<Vec<u8>> {
        let Some(advertised) = &self.advertised else { return Vec::new() };
        let to = to.unwrap_or(ALL_NODES);
        let of = |mac, prefixes: &[Prefix], routes: &[Prefix]| {
            let is_default = |route: &&Prefix| route.length() == 0;
            let further: Vec<Prefix> = routes.iter().filter(|route| !is_default(route)).copied().collect();
            let lifetime_s = if routes.iter().any(|route| is_default(&route)) { ROUTER_LIFETIME_S } else { 0 };
            let message = RouterAdvertisement {
                hop_limit: HOP_LIMIT,
                lifetime_s,
                mac,
                mtu: self.mtu,
                prefixes,
                valid_s: PREFIX_VALID_S,
                preferred_s: PREFIX_PREFERRED_S,
                routes: &further,
                route_lifetime_s: ROUTER_LIFETIME_S.into(),
            };
            self.icmp_frame(mac, to, message.message())
        };
        let own = of(self.server, &advertised.prefixes, &[]);
        let routers = advertised.routers.iter().filter_map(|router| of(router.mac, &[], &router.routes));
        own.into_iter().chain(routers).collect()
    }

    fn answer_arp(&self, packet: &[u8]) -> Result<Vec<Vec<u8>>, NoAnswer> {
        let request = ArpPacket::parse(packet).ok_or(NoAnswer::Malformed)?;
        if request.sender_mac != self.station {
            return Err(NoAnswer::Foreign);
        }
        let reply = ArpPacket {
            is_request: false,
            sender_mac: self.server,
            sender: SERVER_ADDRESS,
            target_mac: request.sender_mac,
            target: request.sender,
        };
        Ok(vec![framed(reply.packet(), self.station, self.server, ARP)])
    }

    fn answer_dhcp(&self, packet: &[u8], is_unfilled: bool) -> Result<Vec<Vec<u8>>, NoAnswer> {
        let lease = self.lease.as_ref().ok_or(NoAnswer::NotNeeded)?;
        let request = parse_dhcp(packet, is_unfilled).ok_or(NoAnswer::Malformed)?;
        if request.is_relayed || request.mac != self.station {
            return Err(NoAnswer::Foreign);
        }
        let reply = lease.reply(&request, self.mtu)?;
        let (to, mac) = match (reply.kind, request.client) {
            (ServerMessage::Offer | ServerMessage::Ack, client) if !client.is_unspecified() => (client, self.station),
            (ServerMessage::Offer | ServerMessage::Ack, _) if !request.broadcast => (reply.yours, self.station),
            (ServerMessage::Offer | ServerMessage::Ack | ServerMessage::Nak, _) => {
                (Ipv4Addr::BROADCAST, MacAddress::BROADCAST)
            }
        };
        let message = reply.message().ok_or(NoAnswer::Malformed)?;
        let from = SocketAddr::from((SERVER_ADDRESS, dhcp::SERVER_PORT));
        let datagram = udp::datagram(from, (to, dhcp::CLIENT_PORT).into(), &message).ok_or(NoAnswer::Malformed)?;
        let build = Ipv4Build { from: SERVER_ADDRESS, to, protocol: UDP, ttl: HOP_LIMIT, service: 0, ident: 0 };
        let packet = build.packet(&datagram).ok_or(NoAnswer::Malformed)?;
        Ok(vec![framed(packet, mac, self.server, IPV4)])
    }

    fn answer_solicitation(&self, mac: MacAddress, packet: &[u8], is_unfilled: bool) -> Result<Vec<Vec<u8>>, NoAnswer> {
        let (from, message) = icmp_message(packet, is_unfilled)?;
        let Some(NeighbourMessage::Solicitation { target, .. }) = NeighbourMessage::parse(message) else {
            return Err(NoAnswer::Malformed);
        };
        // A station that probes the address of a router would get an answer that ends its own address.
        if from.is_unspecified() {
            return Err(NoAnswer::NotNeeded);
        }
        let flags = nd::Flags { router: true, solicited: true, overrides: true };
        let message = NeighbourMessage::Advertisement { target, target_mac: Some(mac), flags }.message();
        Ok(self.icmp_frame(mac, from, message).into_iter().collect())
    }

    /// Returns a frame with an ICMPv6 message from the link-local address that is derived from `mac`.
    fn icmp_frame(&self, mac: MacAddress, to: Ipv6Addr, mut message: Vec<u8>) -> Option<Vec<u8>> {
        let from = link_local(mac);
        let sum = Sum::default().pseudo_header(from.into(), to.into(), ICMPV6, message.len()).bytes(&message);
        message[icmp::field::CHECKSUM].copy_from_slice(&sum.checksum().to_be_bytes());
        let build = Ipv6Build { from, to, protocol: ICMPV6, hop_limit: LINK_HOP_LIMIT, service: 0 };
        let to = MacAddress::of_group(IpAddr::V6(to)).unwrap_or(self.station);
        Some(framed(build.packet(&message)?, to, mac, IPV6))
    }
}

impl Lease {
    fn broadcast(&self) -> Ipv4Addr {
        (self.address.to_bits() | !self.mask()).into()
    }

    fn mask(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0)
    }

    /// Returns the reply to a message (RFC 2131 4.3).
    fn reply<'a>(&self, request: &'a DhcpRequest, mtu: u16) -> Result<DhcpReply<'a>, NoAnswer> {
        let (kind, has_lease) = match request.kind {
            ClientMessage::Discover => (ServerMessage::Offer, true),
            ClientMessage::Inform if request.client.is_unspecified() => return Err(NoAnswer::Malformed),
            ClientMessage::Inform => (ServerMessage::Ack, false),
            ClientMessage::Decline | ClientMessage::Release => return Err(NoAnswer::NotNeeded),
            ClientMessage::Request => {
                if request.server.is_some_and(|server| server != SERVER_ADDRESS) {
                    return Err(NoAnswer::NotNeeded);
                }
                let claimed = Some(request.client).filter(|client| !client.is_unspecified());
                match request.requested.or(claimed).ok_or(NoAnswer::Malformed)? {
                    claimed if claimed == self.address => (ServerMessage::Ack, true),
                    _ => (ServerMessage::Nak, false),
                }
            }
        };
        let yours = if has_lease { self.address } else { Ipv4Addr::UNSPECIFIED };
        let options = if kind == ServerMessage::Nak { Vec::new() } else { self.options(request, has_lease, mtu) };
        Ok(DhcpReply { kind, request, yours, server: SERVER_ADDRESS, options })
    }

    fn options(&self, request: &DhcpRequest, has_lease: bool, mtu: u16) -> Vec<(u8, Vec<u8>)> {
        let mut options = Vec::new();
        if has_lease {
            options.push((option::LEASE_TIME, LEASE_S.to_be_bytes().to_vec()));
            options.push((option::RENEWAL_TIME, (LEASE_S / 2).to_be_bytes().to_vec()));
            options.push((option::REBINDING_TIME, (LEASE_S / 8 * 7).to_be_bytes().to_vec()));
        }
        options.push((option::SUBNET_MASK, self.mask().to_be_bytes().to_vec()));
        let default = self.routes.iter().find(|(to, _)| to.length() == 0);
        let router = default.map(|(_, via)| via.octets().to_vec()).unwrap_or_default();
        for (number, data) in [
            (option::CLASSLESS_ROUTES, self.classless_routes()),
            (option::ROUTER, router),
            (option::BROADCAST_ADDRESS, self.broadcast().octets().to_vec()),
            (option::INTERFACE_MTU, mtu.to_be_bytes().to_vec()),
            (option::HOST_NAME, self.host_name.clone().into_bytes()),
        ] {
            if request.wants(number) {
                options.push((number, data));
            }
        }
        options
    }

    /// Returns the routes as RFC 3442 writes them, with one to the server. Empty if they are too long for an option.
    fn classless_routes(&self) -> Vec<u8> {
        let server = Prefix::new(SERVER_ADDRESS.into(), 32).map(|server| (server, Ipv4Addr::UNSPECIFIED));
        let mut bytes = Vec::new();
        for (to, via) in self.routes.iter().copied().chain(server) {
            let IpAddr::V4(address) = to.address() else { continue };
            bytes.push(to.length());
            bytes.extend_from_slice(&address.octets()[..usize::from(to.length()).div_ceil(8)]);
            bytes.extend_from_slice(&via.octets());
        }
        if bytes.len() > OPTION_BYTES_MAX { Vec::new() } else { bytes }
    }
}

const IPV6_HEADER_BYTES: usize = 40;
/// The longest content of a DHCP option.
const OPTION_BYTES_MAX: usize = 255;

/// Returns true if a frame is an answer of a DHCP server, or its first fragment. `head` has the first bytes of the frame, without a VLAN tag.
#[inline]
pub fn is_dhcp_answer(head: &[u8]) -> bool {
    let is_udp = u16_at(head, 12..14) == Some(IPV4) && head.get(LINK_BYTES + 9) == Some(&UDP);
    let ports = || {
        let is_first = u16_at(head, LINK_BYTES + 6..LINK_BYTES + 8)? & 0x1fff == 0;
        let header_bytes = usize::from(head.get(LINK_BYTES)? & 0xf) * 4;
        let udp = head.get(LINK_BYTES + header_bytes..)?;
        Some(is_first && u16_at(udp, 0..2) == Some(dhcp::SERVER_PORT) && u16_at(udp, 2..4) == Some(dhcp::CLIENT_PORT))
    };
    is_udp && ports() == Some(true)
}

/// Returns the link-local address that a station derives from its Ethernet address (RFC 4291, appendix A).
fn link_local(mac: MacAddress) -> Ipv6Addr {
    let MacAddress([a, b, c, d, e, f]) = mac;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Writes the link header into the free bytes before a packet.
fn framed(mut frame: Vec<u8>, to: MacAddress, from: MacAddress, ethertype: u16) -> Vec<u8> {
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&from.0);
    frame[12..LINK_BYTES].copy_from_slice(&ethertype.to_be_bytes());
    frame
}

fn parse_dhcp(packet: &[u8], is_unfilled: bool) -> Option<DhcpRequest> {
    let header = Ipv4Header::parse(packet, packet.len()).ok()?;
    let segment = packet.get(header.header_bytes..header.total_bytes)?;
    let udp = udp::UdpHeader::parse(segment)?;
    let segment = segment.get(..usize::from(udp.length))?;
    let sum = Sum::default().pseudo_header(header.from.into(), header.to.into(), UDP, segment.len()).bytes(segment);
    if udp.checksum != 0 && !is_unfilled && !sum.is_intact() {
        return None;
    }
    DhcpRequest::parse(segment.get(udp::HEADER_BYTES..)?)
}

/// Returns the source and the message of a packet with a neighbour discovery message.
fn icmp_message(packet: &[u8], is_unfilled: bool) -> Result<(Ipv6Addr, &[u8]), NoAnswer> {
    let header = Ipv6Header::parse(packet, packet.len()).map_err(|_| NoAnswer::Malformed)?;
    let message = packet.get(IPV6_HEADER_BYTES..header.total_bytes).ok_or(NoAnswer::Malformed)?;
    let sum = Sum::default().pseudo_header(header.from.into(), header.to.into(), ICMPV6, message.len()).bytes(message);
    let is_intact = header.hop_limit == LINK_HOP_LIMIT && (is_unfilled || sum.is_intact());
    if is_intact { Ok((header.from, message)) } else { Err(NoAnswer::Malformed) }
}

#[cfg(test)]
mod tests;
