//! Addresses for the namespace of a port that asks for them. The stack makes the answers (`siga_stack::assign`). This file limits their
//! rate, counts them, and knows when the next router advertisement is due.

use super::drops::DropReason;
use super::flood::Flood;
use super::frame::Header;
use super::port::Port;
use super::{Decision, Switch, Target};
use crate::convert;
use crate::limits::{ADVERTISE_INTERVAL_NS, REQUESTS_PER_SECOND};
use siga_model::mac::Mac;
use siga_model::topology::{KernelPort, PortVlan};
use siga_stack::assign::{
    Advertised, Assignment, Lease, NoAnswer, Question, REQUEST_BYTES_MAX, Router, is_dhcp_answer,
};
use siga_stack::link::frame::{Marks, Payload};
use siga_stack::time::Instant;
use siga_stack::wire::ethernet::MacAddress;
use std::net::IpAddr;

/// What a port answers to its namespace.
#[derive(Debug)]
pub(crate) struct Assigning {
    assignment: Assignment,
    limit: Flood,
    /// The time of the next unsolicited router advertisement.
    next: Option<Instant>,
    /// The number of requests, and how many of them were answered.
    pub(crate) requests: u64,
    pub(crate) answers: u64,
}

impl Assigning {
    /// Returns what a port answers, or `None` if siga configures the namespace's interface. `server` is the Ethernet address from which
    /// answers come.
    pub(crate) fn of(port: &KernelPort, server: Mac, now: Instant) -> Option<Self> {
        let assigned = &port.assigned;
        if !assigned.dhcp && !assigned.advertisements {
            return None;
        }
        let mac = |mac: Mac| MacAddress(mac.0);
        let own_v4 = port.addresses.iter().find_map(|own| match own.addr() {
            IpAddr::V4(address) => Some((address, own.prefix_len())),
            IpAddr::V6(_) => None,
        });
        let routes = port.routes.iter().filter_map(|(to, via)| match via {
            IpAddr::V4(via) => Some((convert::prefix(to.trunc()), *via)),
            IpAddr::V6(_) => None,
        });
        let lease = own_v4.filter(|_| assigned.dhcp).map(|(address, length)| Lease {
            address,
            length,
            routes: routes.collect(),
            host_name: port.name.to_string(),
        });
        let prefixes = port.addresses.iter().filter(|own| own.addr().is_ipv6()).map(|own| convert::prefix(*own));
        let routers = assigned.routers.iter().map(|router| Router {
            mac: mac(router.mac),
            routes: router.routes.iter().map(|to| convert::prefix((*to).into())).collect(),
        });
        let advertised =
            assigned.advertisements.then(|| Advertised { prefixes: prefixes.collect(), routers: routers.collect() });
        Some(Self {
            next: advertised.as_ref().map(|_| now),
            assignment: Assignment {
                station: mac(port.settings.mac),
                server: mac(server),
                mtu: port.mtu,
                lease,
                advertised,
            },
            limit: Flood::new(REQUESTS_PER_SECOND),
            requests: 0,
            answers: 0,
        })
    }

    fn answer(
        &mut self,
        at: Instant,
        question: Question,
        frame: &[u8],
        marks: Marks,
    ) -> Result<Vec<Vec<u8>>, DropReason> {
        self.requests += 1;
        if !self.limit.take(at, 1) {
            return Err(DropReason::RequestLimit);
        }
        match self.assignment.answer(question, frame, marks.checksum_unfilled) {
            Ok(answers) => {
                self.answers += 1;
                Ok(answers)
            }
            Err(NoAnswer::NotNeeded) => Ok(Vec::new()),
            Err(NoAnswer::Malformed) => Err(DropReason::Malformed),
            Err(NoAnswer::Foreign) => Err(DropReason::ForeignClient),
        }
    }
}

impl Switch {
    /// Returns what a frame without a tag asks for, if its port answers. Such a frame is not sent on.
    #[inline]
    pub(crate) fn question(&self, from: usize, header: &Header, decision: &Decision) -> Option<Question> {
        let port = self.ports.get(from)?.as_ref()?;
        let assigning = port.assigning.as_ref()?;
        let is_untagged = untagged(&port.settings.vlan) == Some(decision.vlan);
        assigning.assignment.asks(header.bytes(), header.frame_bytes()).filter(|_| is_untagged)
    }

    /// Returns true if a frame must not reach a port, because it is the DHCP answer of another server than the switch.
    #[inline]
    pub(crate) fn is_of_other_server(port: &Port, header: &Header, decision: &Decision) -> bool {
        let has_lease = port.assigning.as_ref().is_some_and(|assigning| assigning.assignment.lease.is_some());
        has_lease && !decision.is_own && is_dhcp_answer(header.bytes())
    }

    /// Returns the frames that answer a question. Counts it, and the reason if there is no answer.
    #[cold]
    pub(crate) fn answers<P: Payload + ?Sized>(
        &mut self,
        (at, from): (Instant, usize),
        question: Question,
        (header, payload, marks): (&Header, &P, Marks),
    ) -> Vec<Vec<u8>> {
        let Some(Some(port)) = self.ports.get_mut(from) else { return Vec::new() };
        let Some(assigning) = &mut port.assigning else { return Vec::new() };
        if marks.segment_bytes > 0 || header.frame_bytes() > REQUEST_BYTES_MAX {
            port.counters.drops.count(DropReason::Malformed);
            return Vec::new();
        }
        let mut frame = header.bytes().to_vec();
        let head = frame.len();
        frame.resize(header.frame_bytes(), 0);
        payload.copy_to(0, &mut frame[head..]);
        match assigning.answer(at, question, &frame, marks) {
            Ok(answers) => answers,
            Err(reason) => {
                port.counters.drops.count(reason);
                Vec::new()
            }
        }
    }

    /// Returns the router advertisements that are due, each with the decision to send it.
    pub(crate) fn advertisements(&mut self, now: Instant) -> Vec<(Header, Vec<u8>, Decision)> {
        let mut due = Vec::new();
        self.advertise_at = None;
        for (at, port) in self.ports.iter_mut().enumerate() {
            let Some(port) = port else { continue };
            let Some((assigning, vlan)) = port.assigning.as_mut().zip(untagged(&port.settings.vlan)) else { continue };
            let Some(next) = assigning.next else { continue };
            if next <= now {
                assigning.next = Some(Instant::from_ns(now.as_ns() + ADVERTISE_INTERVAL_NS));
                due.extend(assigning.assignment.advertisements(None).into_iter().map(|frame| split(&frame, at, vlan)));
            }
            self.advertise_at = [self.advertise_at, assigning.next].into_iter().flatten().min();
        }
        due
    }
}

/// Returns the header of a frame to send through a port, and the rest.
pub(crate) fn split(frame: &[u8], to: usize, vlan: u16) -> (Header, Vec<u8>, Decision) {
    let mut head = 0;
    let header = Header::new(frame.len(), |into| {
        into.copy_from_slice(&frame[..into.len()]);
        head = into.len();
    });
    let decision =
        Decision { target: Target::One(to), vlan, priority: 0, large_header_bytes: 0, card: None, is_own: true };
    (header, frame[head..].to_vec(), decision)
}

/// Returns the VLAN of a port's frames without a tag.
fn untagged(vlan: &PortVlan) -> Option<u16> {
    match vlan {
        PortVlan::Access(own) => Some(*own),
        PortVlan::Trunk { native, .. } => *native,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::message::SwitchConfig;
    use crate::switch::guard::Guard;
    use crate::switch::port::{Attachment, PortCounters};
    use siga_model::topology::Topology;
    use siga_stack::link::device::Agreed;
    use siga_stack::link::source::Sources;

    const TOPOLOGY: &str = "[network.lan]\ntype = \"vswitch\"\ndhcp = true\nrouter_advertisements = true\n\
        [[network.lan.port]]\nname = \"pod\"\naddresses = [\"10.0.3.11/24\", \"fd00:3::/64\"]\n\
        route = [{ to = \"default\", via = \"fd00:3::1\" }, { to = \"10.9.8.7/16\", via = \"10.0.3.1\" }]\n\
        [guest.one]\ndevice = [{ network = \"lan\", addresses = [\"10.0.3.1/24\", \"fd00:3::1/64\"] }]\n";
    const SECOND_NS: u64 = 1_000_000_000;

    fn kernel_port() -> KernelPort {
        let topology = Topology::parse(TOPOLOGY).unwrap();
        topology.networks[&"lan".parse().unwrap()].switch.as_ref().unwrap().ports[0].clone()
    }

    /// A switch with one port, whose number is 0.
    fn switch(vlan: PortVlan) -> Switch {
        let config =
            SwitchConfig { any_protocol: true, only_v4: false, flood_per_second: 1_000_000, accounting: false };
        let mut switch = Switch::new(config);
        let port = kernel_port();
        let assigning = Assigning::of(&port, Mac([2, 0, 0, 0, 0, 9]), Instant::from_ns(SECOND_NS)).map(Box::new);
        let mac = port.settings.mac;
        let sources = || Sources::new(&[], &[]).unwrap();
        switch.advertise_at = Some(Instant::from_ns(SECOND_NS));
        switch.add_port(Port {
            label: port.name.to_string(),
            kernel_port: Some(port.name),
            uplink: None,
            has_carrier: false,
            settings: siga_model::topology::PortSettings { vlan, ..port.settings },
            guard: Guard { mac, sources: sources(), own: sources(), is_router: false },
            mtu: usize::from(port.mtu),
            agreed: Agreed::default(),
            attachment: Attachment::Ring(0),
            flood: Flood::new(1_000_000),
            assigning,
            link: None,
            card: None,
            output: None,
            counters: PortCounters::default(),
        });
        switch
    }

    /// A router solicitation whose checksum is left out.
    fn solicitation() -> Vec<u8> {
        let mac = kernel_port().settings.mac;
        let link = [&[0x33, 0x33, 0, 0, 0, 2][..], &mac.0, &[0x86, 0xdd]].concat();
        let to = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
        let ip = [&[0x60, 0, 0, 0, 0, 8, 58, 255][..], &mac.link_local().octets(), &to].concat();
        [link, ip, vec![133, 0, 0, 0, 0, 0, 0, 0]].concat()
    }

    fn ask(switch: &mut Switch, at: Instant, vlan: u16, frame: &[u8]) -> Option<usize> {
        let mut head = 0;
        let header = Header::new(frame.len(), |into| {
            into.copy_from_slice(&frame[..into.len()]);
            head = into.len();
        });
        let decision =
            Decision { target: Target::All, vlan, priority: 0, large_header_bytes: 0, card: None, is_own: false };
        let question = switch.question(0, &header, &decision)?;
        let marks = Marks { checksum_unfilled: true, segment_bytes: 0 };
        Some(switch.answers((at, 0), question, (&header, &frame[head..], marks)).len())
    }

    #[test]
    fn a_port_gives_what_the_topology_has_and_limits_how_often() {
        let mut switch = switch(PortVlan::Access(1));
        let at = |seconds: u64| Instant::from_ns((5 + seconds) * SECOND_NS);
        for seconds in 0..3 {
            let answers: Vec<_> =
                (0..500).map(|_| ask(&mut switch, at(seconds), 1, &solicitation()).unwrap()).collect();
            let answered = answers.iter().filter(|frames| **frames == 2).count();
            assert_eq!((answered, answers.iter().sum::<usize>()), (20, 40));
        }
        let counters = switch.port_counters(0);
        assert_eq!((counters["port_address_requests"], counters["port_address_answers"]), (1_500, 60));
        assert_eq!(counters["drop_request_limit"], 1_440);
        let assignment = &switch.ports[0].as_ref().unwrap().assigning.as_ref().unwrap().assignment;
        let lease = assignment.lease.as_ref().unwrap();
        assert_eq!((lease.address.to_string().as_str(), lease.length), ("10.0.3.11", 24));
        assert_eq!(lease.routes.len(), 1, "the IPv6 route is advertised");
        assert_eq!(lease.routes[0].0.address().to_string(), "10.9.0.0");
    }

    #[test]
    fn a_malformed_or_very_long_request_is_dropped_and_counted() {
        let mut switch = switch(PortVlan::Access(1));
        let mut long = solicitation();
        long.resize(2_000, 0);
        let mut other_code = solicitation();
        other_code[55] = 1;
        for frame in [long, other_code] {
            assert_eq!(ask(&mut switch, Instant::from_ns(5 * SECOND_NS), 1, &frame), Some(0));
        }
        assert_eq!(switch.port_counters(0)["drop_malformed"], 2);
    }

    #[test]
    fn only_frames_without_a_tag_ask() {
        let at = Instant::from_ns(5 * SECOND_NS);
        let trunk = |native| PortVlan::Trunk { allowed: [7, 8].into(), native };
        for (vlan, of_frame, answers) in [
            (PortVlan::Access(3), 3, Some(2)),
            (trunk(Some(5)), 5, Some(2)),
            (trunk(Some(5)), 7, None),
            (trunk(None), 7, None),
        ] {
            assert_eq!(ask(&mut switch(vlan.clone()), at, of_frame, &solicitation()), answers, "{vlan}");
        }
    }

    #[test]
    fn advertisements_are_repeated_before_a_router_expires() {
        let mut switch = switch(PortVlan::Access(3));
        let at = |seconds: u64| Instant::from_ns((1 + seconds) * SECOND_NS);
        let first = switch.advertisements(at(0));
        assert_eq!(first.len(), 2);
        assert!(first.iter().all(|(_, _, decision)| decision.vlan == 3 && decision.target == Target::One(0)));
        assert_eq!((switch.advertisements(at(599)).len(), switch.advertise_at), (0, Some(at(600))));
        assert_eq!((switch.advertisements(at(600)).len(), switch.advertise_at), (2, Some(at(1_200))));
        assert!(ADVERTISE_INTERVAL_NS < u64::from(siga_stack::assign::ROUTER_LIFETIME_S) * SECOND_NS / 2);
        switch.remove_port(0);
        assert_eq!((switch.advertisements(at(1_200)).len(), switch.advertise_at), (0, None));
    }
}
