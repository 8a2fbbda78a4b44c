//! Addresses that stream sockets of applications have, but at which they neither listen nor connect yet.

use super::Host;
use super::applications::Applications;
use crate::stack_sockets::EPHEMERAL_PORTS;
use siga_iucv::record::Number;
use siga_stack::sockets::ListenerId;
use std::collections::{BTreeMap, HashSet};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

/// The address of a stream socket that neither listens nor connects yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reservation {
    pub(super) place: usize,
    pub(super) socket: Number,
    pub(super) local: SocketAddr,
    /// True if other shared reservations may have the same address.
    pub(super) shared: bool,
}

/// Returns whether two sockets with these addresses would receive the same connections.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.is_ipv4() == other.is_ipv4() && (is_any || one.ip() == other.ip())
}

/// All reservations, by port.
#[derive(Debug)]
pub(super) struct Reservations {
    of_port: BTreeMap<u16, Vec<Reservation>>,
    /// The port that was chosen last. The next one is different, so that a program does not meet a peer of an earlier one.
    last_port: u16,
}

impl Reservations {
    pub(super) fn new() -> Self {
        Self { of_port: BTreeMap::new(), last_port: *EPHEMERAL_PORTS.start() }
    }

    /// Removes the reservations for which `is_ended` returns true.
    pub(super) fn remove(&mut self, is_ended: impl Fn(&Reservation) -> bool) {
        self.of_port.retain(|_, reservations| {
            reservations.retain(|one| !is_ended(one));
            !reservations.is_empty()
        });
    }

    fn at(&self, port: u16) -> &[Reservation] {
        self.of_port.get(&port).map_or(&[], Vec::as_slice)
    }

    /// Returns an error if an application other than that at `place` has reserved an address that overlaps with `local`.
    pub(super) fn check(&self, place: usize, local: SocketAddr) -> io::Result<()> {
        let is_taken = self.at(local.port()).iter().any(|one| one.place != place && overlap(one.local, local));
        if is_taken { Err(ErrorKind::AddrInUse.into()) } else { Ok(()) }
    }
}

impl Applications {
    /// Reserves an address, and returns it. If the port of `wanted` is 0, chooses one that no listener and no reservation has.
    pub(super) fn reserve(&mut self, host: &mut Host<'_>, wanted: Reservation) -> io::Result<SocketAddr> {
        let Reservation { local, shared, .. } = wanted;
        if !host.stack.has_address(local.ip()) {
            return Err(ErrorKind::AddrNotAvailable.into());
        }
        let address = |id: &ListenerId| host.stack.tcp_listener_address(*id).ok();
        let listeners = self.of_listener.keys().filter_map(address);
        let reserved = &self.reserved;
        let is_reserved = |local: SocketAddr| {
            reserved.at(local.port()).iter().any(|one| overlap(one.local, local) && !(shared && one.shared))
        };
        let local = if local.port() == 0 {
            let listening: HashSet<u16> = listeners.map(|listener| listener.port()).collect();
            let with = |port| SocketAddr::new(local.ip(), port);
            let (first, last) = (*EPHEMERAL_PORTS.start(), *EPHEMERAL_PORTS.end());
            let mut ports = (reserved.last_port + 1..=last).chain(first..=reserved.last_port);
            let port = ports.find(|port| !listening.contains(port) && !is_reserved(with(*port)));
            let port = port.ok_or(ErrorKind::AddrInUse)?;
            self.reserved.last_port = port;
            with(port)
        } else if is_reserved(local) || listeners.into_iter().any(|listener| overlap(listener, local)) {
            return Err(ErrorKind::AddrInUse.into());
        } else {
            local
        };
        self.reserved.of_port.entry(local.port()).or_default().push(Reservation { local, ..wanted });
        Ok(local)
    }
}
