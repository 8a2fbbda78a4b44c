//! Receives and sends messages of IGMP and MLD. `group.rs` decides what the messages mean and when they are due.
//!
//! A received message is accepted only with hop limit 1, and an MLD message only from a link-local address. A query is accepted
//! only with a router alert, except for queries of IGMPv1 (RFC 3376 9.1, RFC 3810 5.1). The stack sends MLD messages from a
//! link-local address, or from the unspecified address while the device has no link-local address (RFC 3590). Messages from the
//! unspecified address are for switches that snoop MLD: routers ignore them.

use super::group::{Announcement, Groups};
use crate::drops::{DropReason, GroupDrop, IpDrop};
use crate::ip::Ip;
use crate::ip::input::LocalPacket;
use crate::link::frame::DeviceId;
use crate::time::Instant;
use crate::wire::address::{ALL_NODES, ALL_SYSTEMS};
use crate::wire::ipv4::{self, Ipv4Build};
use crate::wire::ipv6::{self, Ipv6Build};
use crate::wire::membership::{Query, Version};
use crate::wire::protocol::{HOP_BY_HOP, IGMP};
use crate::wire::{igmp, mld};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Groups {
    pub(crate) fn input_igmp(&mut self, now: Instant, input: &LocalPacket<'_>) -> Result<(), DropReason> {
        igmp::verify(input.transport())?;
        if input.hop_limit != 1 {
            return Err(GroupDrop::HopLimit.into());
        }
        match igmp::Message::parse(input.transport())? {
            igmp::Message::Query(query) => {
                let alert = query.version == Version::Igmp1 || ipv4::has_router_alert(&input.packet[..input.at]);
                self.input_query(now, input, &query, alert)
            }
            igmp::Message::Report(group) => self.input_report(now, input, group.into()),
        }
    }

    /// Processes an MLD query or an MLDv1 report. The caller has checked the checksum.
    pub(crate) fn input_mld(&mut self, now: Instant, input: &LocalPacket<'_>) -> Result<(), DropReason> {
        mld::verify(input.transport())?;
        if input.hop_limit != 1 {
            return Err(GroupDrop::HopLimit.into());
        }
        if !matches!(input.from, IpAddr::V6(from) if from.is_unicast_link_local()) {
            return Err(GroupDrop::Source.into());
        }
        match mld::Message::parse(input.transport())? {
            mld::Message::Query(query) => self.input_query(now, input, &query, ipv6::has_router_alert(&input.packet)),
            mld::Message::Report(group) => self.input_report(now, input, group.into()),
        }
    }

    fn input_query(
        &mut self,
        now: Instant,
        input: &LocalPacket<'_>,
        query: &Query,
        alert: bool,
    ) -> Result<(), DropReason> {
        if !alert {
            return Err(GroupDrop::RouterAlert.into());
        }
        if !is_destination_of(input.to, query) {
            return Err(GroupDrop::Address.into());
        }
        self.handle_query(now, input.arrival.device, query);
        Ok(())
    }

    fn input_report(&mut self, now: Instant, input: &LocalPacket<'_>, group: IpAddr) -> Result<(), DropReason> {
        if group != input.to || !group.is_multicast() {
            return Err(GroupDrop::Address.into());
        }
        let joined = self.handle_report(now, input.arrival.device, group);
        if joined { Ok(()) } else { Err(GroupDrop::NotJoined.into()) }
    }

    /// Sends the messages that are due. A message that cannot be sent is counted as a drop.
    pub(crate) fn handle_timeout(&mut self, now: Instant, ip: &mut Ip) {
        while let Some((device, announcements)) = self.due(now) {
            for announcement in announcements {
                let sent = send(now, ip, device, &announcement);
                sent.into_iter().filter_map(Result::err).for_each(|reason| ip.drops.count(reason));
            }
        }
    }
}

fn send(now: Instant, ip: &mut Ip, device: DeviceId, announcement: &Announcement) -> Vec<Result<(), DropReason>> {
    let config = &ip.devices[usize::from(device.0)].config;
    let mtu = usize::from(config.mtu);
    let link_local = config.addresses.iter().find_map(|own| match own.address() {
        IpAddr::V6(own) => own.is_unicast_link_local().then_some(own),
        IpAddr::V4(_) => None,
    });
    let from = link_local.unwrap_or(Ipv6Addr::UNSPECIFIED);
    let (v4, v6) = match announcement {
        Announcement::RecordsV4(records) => (igmp::reports(records, mtu - igmp::IP_BYTES), Vec::new()),
        Announcement::RecordsV6(records) => (Vec::new(), mld::reports(records, mtu - mld::IP_BYTES)),
        Announcement::Report(version, IpAddr::V4(group)) => (vec![igmp::report_of(*version, *group)], Vec::new()),
        Announcement::Report(_, IpAddr::V6(group)) => (Vec::new(), vec![mld::report_of(*group)]),
        Announcement::Leave(IpAddr::V4(group)) => (vec![igmp::leave_of(*group)], Vec::new()),
        Announcement::Leave(IpAddr::V6(group)) => (Vec::new(), vec![mld::leave_of(*group)]),
    };
    let v4 = v4.into_iter().map(|(to, message)| send_igmp(now, ip, device, to, &message));
    let mut results: Vec<_> = v4.collect();
    results.extend(v6.into_iter().map(|(to, message)| {
        let build = Ipv6Build { from, to, protocol: HOP_BY_HOP, hop_limit: 1 };
        let packet = build.packet(&mld::payload(from, to, message)).ok_or(IpDrop::Length)?;
        ip.send_packet(now, packet, Some(device))
    }));
    results
}

fn send_igmp(now: Instant, ip: &mut Ip, device: DeviceId, to: Ipv4Addr, message: &[u8]) -> Result<(), DropReason> {
    let from = ip.devices[usize::from(device.0)].address_for(to.into());
    let Some(IpAddr::V4(from)) = from else { return Err(IpDrop::NoRoute.into()) };
    let ident = ip.next_ident(to);
    // RFC 3376 4: hop limit 1, and the precedence “internetwork control”.
    let build = Ipv4Build { from, to, protocol: IGMP, ttl: 1, service: 0xc0, ident };
    ip.send_packet(now, build.packet_with_router_alert(message).ok_or(IpDrop::Length)?, Some(device))
}

/// True if a query may have this destination address. A query about one group may go to any own address (RFC 3376 4.1.12). A
/// query about all groups goes to the group of all hosts or to a unicast address (RFC 3376 9.1).
fn is_destination_of(to: IpAddr, query: &Query) -> bool {
    let all = if to.is_ipv4() { IpAddr::V4(ALL_SYSTEMS) } else { IpAddr::V6(ALL_NODES) };
    query.group.is_some() || !to.is_multicast() || to == all
}
