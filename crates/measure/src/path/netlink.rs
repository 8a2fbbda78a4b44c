//! A netlink socket of the family NETLINK_ROUTE, with functions that create, change and read interfaces, addresses, routes
//! and qdiscs of one network namespace.
//!
//! The socket stays in the namespace in which it was opened. Every function waits until the kernel acknowledges its request, so
//! `Ok` means that the kernel has completed the work. Errors contain only the kernel's errno, so callers add a description of the
//! operation that failed.

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// Size in bytes of the receive buffer. It is sufficient, because the kernel splits its answers into datagrams of at most 32
/// KB.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// Flags of a request that creates an object: the request fails if the object already exists.
const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;

/// A route netlink socket in one network namespace.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens a socket in the current network namespace of the calling thread. The protocol `None` is 0, which is NETLINK_ROUTE.
    pub(super) fn open() -> io::Result<Self> {
        let socket = socket_with(rustix::net::AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; DATAGRAM_BYTES_MAX] })
    }

    /// Creates an interface.
    pub(super) fn create_link(&mut self, link: LinkMessage) -> io::Result<()> {
        self.ask(RouteNetlinkMessage::NewLink(link), NEW).map(drop)
    }

    /// Changes the interface whose index is in the message header.
    pub(super) fn set_link(&mut self, link: LinkMessage) -> io::Result<()> {
        self.ask(RouteNetlinkMessage::SetLink(link), 0).map(drop)
    }

    /// Reads the attributes of one interface.
    pub(super) fn link(&mut self, index: u32) -> io::Result<LinkMessage> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        match self.ask(RouteNetlinkMessage::GetLink(request), 0)? {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
            Some(_) | None => Err(malformed("no link")),
        }
    }

    /// Reads the attributes of the interface with this name.
    pub(super) fn link_named(&mut self, name: &str) -> io::Result<LinkMessage> {
        let mut request = LinkMessage::default();
        request.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        match self.ask(RouteNetlinkMessage::GetLink(request), 0)? {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
            Some(_) | None => Err(malformed("no link")),
        }
    }

    /// Attaches a queueing discipline to an interface. `options` are the bytes of the discipline's own structure, if it needs one.
    pub(super) fn add_qdisc(&mut self, interface: i32, kind: &str, options: Option<Vec<u8>>) -> io::Result<()> {
        /// Number of the attribute with the options of a queueing discipline.
        const TCA_OPTIONS: u16 = 2;
        let mut message = root_qdisc(interface);
        message.attributes.push(TcAttribute::Kind(kind.to_owned()));
        message.attributes.extend(options.map(|bytes| TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, bytes))));
        self.ask(RouteNetlinkMessage::NewQueueDiscipline(message), NEW).map(drop)
    }

    /// Adds an address to an interface. The address can be used immediately, because siga has disabled duplicate address
    /// detection.
    pub(super) fn add_address(&mut self, index: u32, address: IpAddr, prefix_bits: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix_bits;
        message.header.index = index;
        message.attributes = vec![
            AddressAttribute::Local(address),
            AddressAttribute::Address(address),
            AddressAttribute::Flags(AddressFlags::Nodad),
        ];
        self.ask(RouteNetlinkMessage::NewAddress(message), NEW).map(drop)
    }

    /// Adds a route to the network `network` with prefix length `prefix_bits`, through `gateway`.
    pub(super) fn add_route(&mut self, network: IpAddr, prefix_bits: u8, gateway: IpAddr) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(network),
            destination_prefix_length: prefix_bits,
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Static,
            scope: RouteScope::Universe,
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        message.attributes = vec![
            RouteAttribute::Destination(RouteAddress::from(network)),
            RouteAttribute::Gateway(RouteAddress::from(gateway)),
        ];
        self.ask(RouteNetlinkMessage::NewRoute(message), NEW).map(drop)
    }

    /// Reads the route that a packet to `destination` takes.
    pub(super) fn route(&mut self, destination: IpAddr) -> io::Result<RouteMessage> {
        let mut request = RouteMessage::default();
        request.header.address_family = family(destination);
        request.header.destination_prefix_length = if destination.is_ipv4() { 32 } else { 128 };
        request.attributes = vec![RouteAttribute::Destination(RouteAddress::from(destination))];
        match self.ask(RouteNetlinkMessage::GetRoute(request), 0)? {
            Some(RouteNetlinkMessage::NewRoute(route)) => Ok(route),
            Some(_) | None => Err(malformed("no route")),
        }
    }

    /// Reads the attributes of an interface's root qdisc. Without NLM_F_ECHO, kernels before 6.7 send the answer only to
    /// processes that monitor qdiscs.
    pub(super) fn qdisc(&mut self, interface: i32) -> io::Result<Vec<TcAttribute>> {
        match self.ask(RouteNetlinkMessage::GetQueueDiscipline(root_qdisc(interface)), NLM_F_ECHO)? {
            Some(RouteNetlinkMessage::NewQueueDiscipline(qdisc)) => Ok(qdisc.attributes),
            Some(_) | None => Err(malformed("no qdisc")),
        }
    }

    /// Sends a request and waits for its acknowledgement. Returns the message that arrived before the acknowledgement, if
    /// any.
    fn ask(&mut self, request: RouteNetlinkMessage, flags: u16) -> io::Result<Option<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(&self.socket, &bytes, SendFlags::empty())?;

        let mut answer = None;
        while !self.receive(&mut answer)? {}
        Ok(answer)
    }

    /// Receives one datagram. If it contains a message other than the acknowledgement, stores the message in `answer`. Returns
    /// true if the datagram acknowledged the latest request.
    fn receive(&mut self, answer: &mut Option<RouteNetlinkMessage>) -> io::Result<bool> {
        let (_, length) = recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::TRUNC)?;
        let mut rest = self.buffer.get(..length).ok_or_else(|| malformed("datagram too long"))?;
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(malformed)?;
            let length = usize::try_from(message.header.length).map_err(malformed)?;
            // Messages start at multiples of four bytes. The padding after the last message may be missing.
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            if message.header.sequence_number != self.sequence {
                continue;
            }
            match message.payload {
                NetlinkPayload::InnerMessage(inner) => *answer = Some(inner),
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                NetlinkPayload::Error(_) => return Ok(true),
                NetlinkPayload::Done(_) | NetlinkPayload::Overrun(_) | NetlinkPayload::Noop | _ => {
                    return Err(malformed("unexpected message type"));
                }
            }
        }
        Ok(false)
    }
}

fn root_qdisc(interface: i32) -> TcMessage {
    let mut message = TcMessage::with_index(interface);
    message.header.parent = TcHandle::ROOT;
    message
}

fn malformed(what: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("malformed netlink answer: {what}"))
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// lo is the first interface of every namespace.
    const LO: u32 = 1;

    #[test]
    fn reads_lo() {
        let link = Netlink::open().unwrap().link(LO).unwrap();
        assert!(link.attributes.contains(&LinkAttribute::IfName("lo".into())));
    }

    #[test]
    fn a_refusal_is_the_kernels_errno_and_leaves_the_socket_usable() {
        let mut netlink = Netlink::open().unwrap();
        let refused = netlink.link(u32::MAX >> 1).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENODEV));
        assert_eq!(netlink.link(LO).unwrap().header.index, LO);
    }
}
