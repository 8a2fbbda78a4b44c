//! Redirects (RFC 792, RFC 1812 5.2.7.2, RFC 4861 8.2): who sends a packet by way of this router although the next hop is on its own
//! link is told so, and the packet goes on. Only where the stack's owner wants it, and under the limit of errors; what others
//! send of the kind is ignored.
//!
//! Hosts believe a redirect of IPv6 only from a link-local address, and of one to another router only its link-local address
//! (RFC 4861 8.1): without them there is none.

use crate::drops::DropReason;
use crate::ip::icmp::Quoted;
use crate::ip::route::HopId;
use crate::limits::{ICMPV4_ERROR_BYTES_MAX, ICMPV6_ERROR_BYTES_MAX};
use crate::link::frame::{DeviceId, Packet, Payload};
use crate::link::neighbour::NeighbourKey;
use crate::stack::Stack;
use crate::tcp::Storage;
use crate::time::Instant;
use crate::wire::address::is_link_local;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl<S: Storage> Stack<S> {
    /// Tells the sender of a packet, which is about to leave by the device that it came by, of its next hop, if they share the link.
    #[inline(never)]
    pub(crate) fn redirect<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
        total_bytes: usize,
        hop: HopId,
    ) {
        let beginning = packet.copy(0, total_bytes.min(ICMPV6_ERROR_BYTES_MAX));
        if let Err(reason) = self.try_redirect(now, packet.device, &beginning, hop) {
            self.drops.count(reason);
        }
    }

    fn try_redirect(&mut self, now: Instant, device: DeviceId, packet: &[u8], hop: HopId) -> Result<(), DropReason> {
        let Some(quoted) = Quoted::parse(packet) else { return Ok(()) };
        let next = self.routes.gateway(hop).unwrap_or(quoted.to);
        let Some(own) = self.redirecting_address(device, &quoted, next) else { return Ok(()) };
        self.permit_error(now, &quoted, false, false)?;
        let message = match (next, quoted.to) {
            (IpAddr::V6(next), IpAddr::V6(to)) => self.redirect_v6(now, device, next, to, packet),
            (IpAddr::V4(next), _) => redirect_v4(next, packet),
            (IpAddr::V6(_), IpAddr::V4(_)) => return Ok(()),
        };
        self.send_icmp(now, own, quoted.from, message, Some(device))
    }

    /// The address of the device to redirect from; none if the sender would not have reached the next hop by itself, or would not
    /// believe it.
    fn redirecting_address(&self, device: DeviceId, quoted: &Quoted<'_>, next: IpAddr) -> Option<IpAddr> {
        let mut own = self.devices[usize::from(device.0)].config.addresses.iter();
        if next.is_ipv4() {
            // RFC 1812 5.2.7.2: source and next hop are in one network.
            return own.find(|own| own.covers(quoted.from) && own.covers(next)).map(|own| own.address());
        }
        let believable = next == quoted.to || is_link_local(next);
        let neighbour = own.clone().any(|own| own.covers(quoted.from));
        own.find(|own| believable && neighbour && own.address().is_ipv6() && is_link_local(own.address()))
            .map(|own| own.address())
    }

    /// RFC 4861 4.5, with the next hop's link-layer address if it is known.
    fn redirect_v6(&mut self, now: Instant, device: DeviceId, next: Ipv6Addr, to: Ipv6Addr, packet: &[u8]) -> Vec<u8> {
        const TARGET_LINK_ADDRESS: u8 = 2;
        const REDIRECTED_HEADER: u8 = 4;
        const UNIT_BYTES: usize = 8;
        let mut message = vec![137, 0, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(&next.octets());
        message.extend_from_slice(&to.octets());
        if let Some(mac) = self.neighbours.resolve(now, NeighbourKey { device, address: next.into() }) {
            message.extend_from_slice(&[TARGET_LINK_ADDRESS, 1]);
            message.extend_from_slice(&mac.0);
        }
        let room = ICMPV6_ERROR_BYTES_MAX - 40 - message.len() - UNIT_BYTES;
        let units = packet.len().min(room) / UNIT_BYTES;
        message.extend_from_slice(&[REDIRECTED_HEADER, u8::try_from(1 + units).unwrap_or(u8::MAX), 0, 0, 0, 0, 0, 0]);
        message.extend_from_slice(&packet[..units * UNIT_BYTES]);
        message
    }
}

/// For the host: RFC 1812 5.2.7.2 has none for networks.
fn redirect_v4(next: Ipv4Addr, packet: &[u8]) -> Vec<u8> {
    const FOR_THE_HOST: u8 = 1;
    let mut message = vec![5, FOR_THE_HOST, 0, 0];
    message.extend_from_slice(&next.octets());
    message.extend_from_slice(&packet[..packet.len().min(ICMPV4_ERROR_BYTES_MAX - 28)]);
    message
}
