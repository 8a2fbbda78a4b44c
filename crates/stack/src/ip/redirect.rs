//! Redirects (RFC 792, RFC 1812 5.2.7.2, RFC 4861 8.2). If the next hop of a packet is on the link of the packet's sender, a router
//! asks the sender to use that next hop directly. It also forwards the packet. Redirects are sent only if the owner of the stack
//! enabled them, and they count towards the rate limit of errors. Received redirects are ignored.
//!
//! A host accepts an IPv6 redirect only from a link-local address. If the better next hop is another router, the redirect must
//! contain that router's link-local address (RFC 4861 8.1). If the router does not know such an address, it sends no redirect.

use super::Ip;
use crate::drops::DropReason;
use crate::ip::route::HopId;
use crate::limits::{ICMPV4_ERROR_BYTES_MAX, ICMPV6_ERROR_BYTES_MAX};
use crate::link::frame::{DeviceId, Packet, Payload};
use crate::link::neighbour::NeighbourKey;
use crate::time::Instant;
use crate::wire::address::is_link_local;
use crate::wire::icmp::{HEADER_BYTES, IcmpHeader, Quoted, v4};
use crate::wire::nd::Redirect;
use smoltcp::wire::{IPV4_HEADER_LEN, IPV6_HEADER_LEN};
use std::net::{IpAddr, Ipv4Addr};

impl Ip {
    /// Sends a redirect to the sender of a packet if the next hop is on the sender's link. The caller calls this function for a
    /// packet that will leave over the device on which it arrived.
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
            (IpAddr::V6(next), IpAddr::V6(to)) => {
                let key = NeighbourKey { device, address: next.into() };
                let next_mac = self.neighbours.resolve(now, key);
                Redirect { next, next_mac, to, packet }.message(ICMPV6_ERROR_BYTES_MAX - IPV6_HEADER_LEN)
            }
            (IpAddr::V4(next), _) => redirect_v4(next, packet),
            (IpAddr::V6(_), IpAddr::V4(_)) => return Ok(()),
        };
        self.send_icmp(now, own, quoted.from, message, Some(device))
    }

    /// Returns the source address of the redirect. Returns `None` if the sender cannot reach the next hop itself, or would not
    /// accept the redirect.
    fn redirecting_address(&self, device: DeviceId, quoted: &Quoted<'_>, next: IpAddr) -> Option<IpAddr> {
        let mut own = self.devices[usize::from(device.0)].config.addresses.iter();
        if next.is_ipv4() {
            // RFC 1812 5.2.7.2: the sender and the next hop must be in the same network.
            return own.find(|own| own.covers(quoted.from) && own.covers(next)).map(|own| own.address());
        }
        let believable = next == quoted.to || is_link_local(next);
        let neighbour = own.clone().any(|own| own.covers(quoted.from));
        own.find(|own| believable && neighbour && own.address().is_ipv6() && is_link_local(own.address()))
            .map(|own| own.address())
    }
}

/// Builds a redirect for one host. Routers send no redirects for networks (RFC 1812 5.2.7.2).
fn redirect_v4(next: Ipv4Addr, packet: &[u8]) -> Vec<u8> {
    const FOR_ONE_HOST: u8 = 1;
    let header = IcmpHeader { kind: v4::REDIRECT, code: FOR_ONE_HOST, rest: next.to_bits() };
    header.message(&packet[..packet.len().min(ICMPV4_ERROR_BYTES_MAX - IPV4_HEADER_LEN - HEADER_BYTES)])
}
