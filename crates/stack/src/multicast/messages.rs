//! Receives and sends IGMP and MLD messages. `group.rs` decides what a received message changes, and when messages are due.
//!
//! A received message is accepted only with hop limit 1. A query is accepted only with a router alert, except IGMPv1 queries
//! (RFC 3376 9.1, RFC 3810 5.1). An MLD message is accepted only from a link-local address.
//!
//! MLD messages are sent from the device's link-local address. While the device has no such address, they are sent from the
//! unspecified address (RFC 3590). Routers ignore messages from the unspecified address, but switches that snoop MLD read them.

use super::group::{Announcement, Groups};
use crate::drops::{DropReason, GroupDrop, IpDrop};
use crate::ip::Ip;
use crate::ip::input::LocalPacket;
use crate::link::frame::DeviceId;
use crate::time::Instant;
use crate::wire::address::{ALL_NODES, ALL_SYSTEMS, is_link_local};
use crate::wire::ipv4::{self, Ipv4Build};
use crate::wire::ipv6::{self, Ipv6Build};
use crate::wire::membership::{Message, Outgoing, Query, Version};
use crate::wire::protocol::{HOP_BY_HOP, IGMP};
use crate::wire::{igmp, mld};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Groups {
    pub(crate) fn input_igmp(&mut self, now: Instant, input: &LocalPacket<'_>) -> Result<(), DropReason> {
        igmp::verify(input.transport())?;
        if input.hop_limit != 1 {
            return Err(GroupDrop::HopLimit.into());
        }
        let alert = ipv4::has_router_alert(&input.packet[..input.at]);
        self.input(now, input, &igmp::parse(input.transport())?, alert)
    }

    /// Processes an MLD query or an MLDv1 report. The caller has verified the checksum.
    pub(crate) fn input_mld(&mut self, now: Instant, input: &LocalPacket<'_>) -> Result<(), DropReason> {
        mld::verify(input.transport())?;
        if input.hop_limit != 1 {
            return Err(GroupDrop::HopLimit.into());
        }
        if !matches!(input.from, IpAddr::V6(from) if from.is_unicast_link_local()) {
            return Err(GroupDrop::Source.into());
        }
        let alert = ipv6::has_router_alert(&input.packet);
        self.input(now, input, &mld::parse(input.transport())?, alert)
    }

    fn input(
        &mut self,
        now: Instant,
        input: &LocalPacket<'_>,
        message: &Message,
        alert: bool,
    ) -> Result<(), DropReason> {
        let device = input.arrival.device;
        match message {
            Message::Query(query) if query.version != Version::Igmp1 && !alert => Err(GroupDrop::RouterAlert.into()),
            Message::Query(query) if !is_destination_of(input.to, query) => Err(GroupDrop::Address.into()),
            Message::Query(query) => {
                self.handle_query(now, device, query);
                Ok(())
            }
            Message::Report(group) if *group != input.to || !group.is_multicast() => Err(GroupDrop::Address.into()),
            Message::Report(group) => {
                let joined = self.handle_report(now, device, *group);
                if joined { Ok(()) } else { Err(GroupDrop::NotJoined.into()) }
            }
        }
    }

    /// Sends the messages that are due. A message that cannot be sent is counted as a drop.
    pub(crate) fn handle_timeout(&mut self, now: Instant, ip: &mut Ip) {
        while let Some((device, announcements)) = self.due(now) {
            let mtu = usize::from(ip.devices[usize::from(device.0)].config.mtu);
            for Outgoing { to, message } in announcements.iter().flat_map(|announcement| messages(announcement, mtu)) {
                let sent = match to {
                    IpAddr::V4(to) => send_igmp(now, ip, device, to, message),
                    IpAddr::V6(to) => send_mld(now, ip, device, to, message),
                };
                if let Err(reason) = sent {
                    ip.drops.count(reason);
                }
            }
        }
    }
}

fn messages(announcement: &Announcement, mtu: usize) -> Vec<Outgoing> {
    match announcement {
        Announcement::Records(records) if records.iter().all(|record| record.group.is_ipv4()) => {
            igmp::reports(records, mtu - igmp::IP_BYTES)
        }
        Announcement::Records(records) => mld::reports(records, mtu - mld::IP_BYTES),
        Announcement::Report(version, IpAddr::V4(group)) => vec![igmp::report_of(*version, *group)],
        Announcement::Report(_, IpAddr::V6(group)) => vec![mld::report_of(*group)],
        Announcement::Leave(IpAddr::V4(group)) => vec![igmp::leave_of(*group)],
        Announcement::Leave(IpAddr::V6(group)) => vec![mld::leave_of(*group)],
    }
}

fn send_mld(now: Instant, ip: &mut Ip, device: DeviceId, to: Ipv6Addr, message: Vec<u8>) -> Result<(), DropReason> {
    let own = ip.devices[usize::from(device.0)].config.addresses.iter();
    let link_local = own.map(|own| own.address()).find(|own| own.is_ipv6() && is_link_local(*own));
    let from = if let Some(IpAddr::V6(own)) = link_local { own } else { Ipv6Addr::UNSPECIFIED };
    let build = Ipv6Build { from, to, protocol: HOP_BY_HOP, hop_limit: 1, service: 0 };
    ip.send_packet(now, build.packet(&mld::payload(from, to, message)).ok_or(IpDrop::Length)?, Some(device))
}

fn send_igmp(now: Instant, ip: &mut Ip, device: DeviceId, to: Ipv4Addr, message: Vec<u8>) -> Result<(), DropReason> {
    let from = ip.devices[usize::from(device.0)].address_for(to.into());
    let Some(IpAddr::V4(from)) = from else { return Err(IpDrop::NoRoute.into()) };
    let ident = ip.identifications.next_v4(to);
    // RFC 3376 4: hop limit 1, and the precedence “internetwork control” in the type-of-service octet (0xc0).
    let build = Ipv4Build { from, to, protocol: IGMP, ttl: 1, service: 0xc0, ident };
    let packet = build.packet_with(&ipv4::ROUTER_ALERT, &igmp::with_checksum(message)).ok_or(IpDrop::Length)?;
    ip.send_packet(now, packet, Some(device))
}

/// Returns true if a query may be sent to this destination address. A query about one group may be sent to any address of this stack
/// (RFC 3376 4.1.12). A query about all groups may be sent to the group of all hosts or to a unicast address (RFC 3376 9.1).
fn is_destination_of(to: IpAddr, query: &Query) -> bool {
    let all = if to.is_ipv4() { IpAddr::V4(ALL_SYSTEMS) } else { IpAddr::V6(ALL_NODES) };
    query.group.is_some() || !to.is_multicast() || to == all
}
