//! The netlink requests that only the laboratory's paths need: they create interfaces, and read routes and qdiscs. All others are those of
//! [`siga_fabric::netlink`].

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
pub(super) use siga_fabric::netlink::Netlink;
use siga_fabric::netlink::{family, malformed};
use std::io;
use std::net::IpAddr;

/// Flags of a request that creates an object: the request fails if the object already exists.
const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;

/// The requests for paths.
pub(super) trait Requests {
    /// Creates an interface.
    fn create_link(&mut self, link: LinkMessage) -> io::Result<()>;

    /// Attaches a queueing discipline to an interface. `options` are the bytes of the discipline's own structure, if it needs one.
    fn add_qdisc(&mut self, interface: i32, kind: &str, options: Option<Vec<u8>>) -> io::Result<()>;

    /// Reads the route that a packet to `destination` takes.
    fn route(&mut self, destination: IpAddr) -> io::Result<RouteMessage>;

    /// Reads the attributes of an interface's root qdisc.
    fn qdisc(&mut self, interface: i32) -> io::Result<Vec<TcAttribute>>;
}

impl Requests for Netlink {
    fn create_link(&mut self, link: LinkMessage) -> io::Result<()> {
        self.ask(RouteNetlinkMessage::NewLink(link), NEW).map(drop)
    }

    fn add_qdisc(&mut self, interface: i32, kind: &str, options: Option<Vec<u8>>) -> io::Result<()> {
        /// Number of the attribute with the options of a queueing discipline.
        const TCA_OPTIONS: u16 = 2;
        let mut message = root_qdisc(interface);
        message.attributes.push(TcAttribute::Kind(kind.to_owned()));
        message.attributes.extend(options.map(|bytes| TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, bytes))));
        self.ask(RouteNetlinkMessage::NewQueueDiscipline(message), NEW).map(drop)
    }

    fn route(&mut self, destination: IpAddr) -> io::Result<RouteMessage> {
        let mut request = RouteMessage::default();
        request.header.address_family = family(destination);
        request.header.destination_prefix_length = if destination.is_ipv4() { 32 } else { 128 };
        request.attributes = vec![RouteAttribute::Destination(RouteAddress::from(destination))];
        match self.ask(RouteNetlinkMessage::GetRoute(request), 0)? {
            Some(RouteNetlinkMessage::NewRoute(route)) => Ok(route),
            Some(_) | None => Err(malformed("no route")),
        }
    }

    fn qdisc(&mut self, interface: i32) -> io::Result<Vec<TcAttribute>> {
        // Without NLM_F_ECHO, kernels before 6.7 send the answer only to processes that monitor qdiscs.
        match self.ask(RouteNetlinkMessage::GetQueueDiscipline(root_qdisc(interface)), NLM_F_ECHO)? {
            Some(RouteNetlinkMessage::NewQueueDiscipline(qdisc)) => Ok(qdisc.attributes),
            Some(_) | None => Err(malformed("no qdisc")),
        }
    }
}

fn root_qdisc(interface: i32) -> TcMessage {
    let mut message = TcMessage::with_index(interface);
    message.header.parent = TcHandle::ROOT;
    message
}
