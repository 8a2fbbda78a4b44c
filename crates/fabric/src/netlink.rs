//! A netlink socket of the family NETLINK_ROUTE, with requests that read and configure interfaces, addresses and routes. The switches of
//! virtual networks use it for the TAP devices of their ports; the laboratory uses it for its paths, and adds its own requests.
//!
//! The socket stays in the network namespace in which it was opened. Every function waits until the kernel acknowledges its request,
//! so `Ok` means that the kernel has completed the work. Errors contain only the kernel's errno, so callers add a description of
//! the operation that failed.

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, recvfrom, send, socket_with};
use siga_model::mac::Mac;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Size in bytes of the receive buffer. The kernel splits its answers into datagrams of at most 32 KB.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// Maximum number of datagrams that are read at once. A process in the namespace can send any number.
const DATAGRAMS_AT_ONCE_MAX: usize = 64;
/// Maximum time of a request. The kernel answers at once.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// A change of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Whether the interface is up and has a carrier.
    Carrier(bool),
    Deleted,
    /// Messages were lost, so the interface must be read again.
    Unknown,
}

/// A route netlink socket in one network namespace.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn open() -> io::Result<Self> {
        let socket = socket_with(rustix::net::AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIME_MAX))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Opens a socket that also receives the changes of all interfaces. It does not block.
    pub(crate) fn watch() -> io::Result<Self> {
        /// The multicast group RTNLGRP_LINK.
        const LINKS: u32 = 1;
        let netlink = Self::open()?;
        rustix::net::bind(&netlink.socket, &SocketAddrNetlink::new(0, LINKS))?;
        Ok(netlink)
    }

    /// Returns the latest change of an interface among the messages that have arrived. Returns `None` if no message is about it.
    pub(crate) fn last_change(&self, index: u32) -> Option<Change> {
        let (mut last, mut buffer) = (None, vec![0; DATAGRAM_BYTES_MAX]);
        for _ in 0..DATAGRAMS_AT_ONCE_MAX {
            let length = match self.receive_from_kernel(&mut buffer, RecvFlags::DONTWAIT) {
                Ok(Some(length)) => length,
                Ok(None) => continue,
                Err(Errno::NOBUFS) => {
                    last = Some(Change::Unknown);
                    continue;
                }
                Err(_) => break,
            };
            let mut rest = buffer.get(..length).unwrap_or_default();
            while let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest) {
                let length = usize::try_from(message.header.length).unwrap_or(usize::MAX).max(4);
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                if let NetlinkPayload::InnerMessage(message) = &message.payload {
                    last = change_of(message, index).or(last);
                }
            }
        }
        last
    }

    /// Returns whether an interface is up and has a carrier.
    pub(crate) fn has_carrier(&mut self, index: u32) -> io::Result<bool> {
        self.link(index).map(|link| has_carrier(&link))
    }

    /// Returns the MTU of an interface.
    pub(crate) fn mtu(&mut self, index: u32) -> io::Result<u32> {
        let link = self.link(index)?;
        let mut attributes = link.attributes.iter();
        let mtu = attributes.find_map(|each| if let LinkAttribute::Mtu(mtu) = each { Some(*mtu) } else { None });
        mtu.ok_or_else(|| malformed("no MTU"))
    }

    /// Returns the attributes of an interface.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn link(&mut self, index: u32) -> io::Result<LinkMessage> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        match self.ask(RouteNetlinkMessage::GetLink(request), 0)? {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
            Some(_) | None => Err(malformed("no link")),
        }
    }

    /// Returns the attributes of the interface with this name.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn link_named(&mut self, name: &str) -> io::Result<LinkMessage> {
        let mut request = LinkMessage::default();
        request.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        match self.ask(RouteNetlinkMessage::GetLink(request), 0)? {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
            Some(_) | None => Err(malformed("no link")),
        }
    }

    /// Moves an interface into a network namespace and gives it a name there.
    pub(crate) fn move_to(&mut self, index: u32, namespace: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        let namespace = LinkAttribute::NetNsFd(namespace.as_raw_fd());
        link.attributes = vec![namespace, LinkAttribute::IfName(name.to_owned())];
        self.set_link(link)
    }

    /// Changes the interface whose index is in the message header.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn set_link(&mut self, link: LinkMessage) -> io::Result<()> {
        self.ask(RouteNetlinkMessage::SetLink(link), 0).map(drop)
    }

    /// Removes an interface.
    pub(crate) fn remove_link(&mut self, index: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        self.ask(RouteNetlinkMessage::DelLink(link), 0).map(drop)
    }

    /// Returns the addresses of an interface.
    pub(crate) fn addresses(&mut self, index: u32) -> io::Result<Vec<IpAddr>> {
        let mut found = Vec::new();
        for message in self.list(RouteNetlinkMessage::GetAddress(AddressMessage::default()))? {
            if let RouteNetlinkMessage::NewAddress(message) = message
                && message.header.index == index
            {
                let address =
                    |each: &AddressAttribute| if let AddressAttribute::Address(own) = each { Some(*own) } else { None };
                found.extend(message.attributes.iter().find_map(address));
            }
        }
        Ok(found)
    }

    /// Sets the Ethernet address and the MTU of an interface, and brings it up.
    pub(crate) fn bring_up(&mut self, index: u32, mac: Mac, mtu: u16) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = vec![LinkAttribute::Address(mac.0.to_vec()), LinkAttribute::Mtu(mtu.into())];
        self.set_link(link)?;
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        self.set_link(link)
    }

    /// Adds an address to an interface. The address can be used immediately: siga assigns unique addresses, so duplicate address
    /// detection is not needed. `flags` says whether the request fails (NLM_F_EXCL) or succeeds (NLM_F_REPLACE) if the interface already
    /// has the address.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix_bits: u8, flags: u16) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix_bits;
        message.header.index = index;
        message.attributes = vec![
            AddressAttribute::Local(address),
            AddressAttribute::Address(address),
            AddressAttribute::Flags(AddressFlags::Nodad),
        ];
        self.ask(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | flags).map(drop)
    }

    /// Adds a route to the network `network` with prefix length `prefix_bits`, through `gateway`. Replaces no route.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn add_route(&mut self, network: IpAddr, prefix_bits: u8, gateway: IpAddr) -> io::Result<()> {
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
        self.ask(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a request and waits for its acknowledgement. Returns the message that arrived before the acknowledgement, if any.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn ask(&mut self, request: RouteNetlinkMessage, flags: u16) -> io::Result<Option<RouteNetlinkMessage>> {
        Ok(self.answers(request, NLM_F_ACK | flags)?.pop())
    }

    /// Sends a request for a list, and returns all its entries.
    fn list(&mut self, request: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.answers(request, NLM_F_DUMP)
    }

    fn answers(&mut self, request: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(&self.socket, &bytes, SendFlags::empty())?;
        let (mut answers, mut buffer) = (Vec::new(), vec![0; DATAGRAM_BYTES_MAX]);
        let until = Instant::now() + ANSWER_TIME_MAX;
        while !self.receive(&mut buffer, &mut answers)? {
            if Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(answers)
    }

    /// Receives one datagram and returns its length. Returns `None` if another process has sent it, which root in the namespace can do.
    fn receive_from_kernel(&self, buffer: &mut [u8], flags: RecvFlags) -> rustix::io::Result<Option<usize>> {
        let (_, length, sender) = recvfrom(&self.socket, buffer, flags | RecvFlags::TRUNC)?;
        let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
        Ok(sender.is_some_and(|sender| sender.pid() == 0).then_some(length))
    }

    /// Receives one datagram. Returns true if it acknowledged the latest request, or ended its list.
    fn receive(&self, buffer: &mut [u8], answers: &mut Vec<RouteNetlinkMessage>) -> io::Result<bool> {
        let Some(length) = self.receive_from_kernel(buffer, RecvFlags::empty())? else { return Ok(false) };
        let mut rest = buffer.get(..length).ok_or_else(|| malformed("datagram too long"))?;
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(malformed)?;
            let length = usize::try_from(message.header.length).map_err(malformed)?;
            // Messages start at multiples of four bytes. The padding after the last message may be missing.
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            if message.header.sequence_number != self.sequence {
                continue;
            }
            match message.payload {
                NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Overrun(_) | NetlinkPayload::Noop | _ => {
                    return Err(malformed("unexpected message type"));
                }
            }
        }
        Ok(false)
    }
}

fn change_of(message: &RouteNetlinkMessage, index: u32) -> Option<Change> {
    let (RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link)) = message else { return None };
    let is_there = matches!(message, RouteNetlinkMessage::NewLink(_));
    let change = if is_there { Change::Carrier(has_carrier(link)) } else { Change::Deleted };
    (link.header.index == index).then_some(change)
}

fn has_carrier(link: &LinkMessage) -> bool {
    link.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp)
}

/// Returns the error for an answer of the kernel without the expected content.
pub fn malformed(what: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("the kernel sent a malformed netlink answer: {what}"))
}

/// Returns the address family of an address.
pub fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{getsockname, sendto};

    /// Sends `message` from a socket of another process's kind to `to`. Returns false without the privilege.
    fn forge(to: &Netlink, message: RouteNetlinkMessage, sequence: u32) -> bool {
        let mut header = NetlinkHeader::default();
        header.sequence_number = sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        let address = SocketAddrNetlink::try_from(getsockname(&to.socket).unwrap()).unwrap();
        sendto(&Netlink::open().unwrap().socket, &bytes, SendFlags::empty(), &address).is_ok()
    }

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

    #[test]
    fn only_messages_of_the_kernel_count() {
        let mut watch = Netlink::watch().unwrap();
        let mut link = LinkMessage::default();
        link.header.index = 7_777;
        if !forge(&watch, RouteNetlinkMessage::DelLink(link.clone()), 0) {
            return;
        }
        assert_eq!(watch.last_change(7_777), None, "a process has sent it");
        // A forged answer that is already there when the kernel is asked.
        link.header.index = 1;
        assert!(forge(&watch, RouteNetlinkMessage::NewLink(link), 1));
        let real = Netlink::open().unwrap().has_carrier(1).unwrap();
        assert_eq!(watch.has_carrier(1).unwrap(), real);
    }

    #[test]
    fn changes_of_other_interfaces_are_ignored() {
        let mut link = LinkMessage::default();
        link.header.index = 3;
        let deleted = RouteNetlinkMessage::DelLink(link.clone());
        assert_eq!((change_of(&deleted, 3), change_of(&deleted, 4)), (Some(Change::Deleted), None));
        assert_eq!(change_of(&RouteNetlinkMessage::NewLink(link), 3), Some(Change::Carrier(false)));
    }
}
