//! Direct connections: the control program permits them, gives two applications memory that they share, and gives each connection a
//! slot of it (`docs/direct.md`). [`DirectCouples`] does no I/O: guest events go in, and orders for guests come out.
//!
//! Each end of a connection asks through its guest. The guest vouches for the addresses and sequence numbers of the connection, so an
//! application can name only its own connections. When both ends have asked, the connection gets a slot in both memory files of the two
//! applications. The slot is free again when both ends have left it.

use super::clients::Waits;
use super::pairs::{Outgoing, may_couple};
use super::{Control, doorbells};
use crate::limits::{
    DIRECT_BYTES_MAX, DIRECT_COUPLES_OF_APPLICATION_MAX, DIRECT_IDLE_TIME, DIRECT_WANTED_MAX, ORDERS_OF_ONE_MAX,
    OUTBOX_MESSAGES_MAX,
};
use crate::protocol::direct::{DirectOrder, DirectRequest, DirectSlot, Flow};
use crate::protocol::message::{MemberId, Order};
use crate::protocol::ticket::ApplicationId;
use siga_model::error::IoContext;
use siga_model::name::Name;
use siga_model::topology::Topology;
use siga_ring::NotifyFd;
use siga_ring::direct::Shape;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Instant, SystemTime};

/// The application that asks for a slot, and the number that its guest has given to the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asker {
    application: ApplicationId,
    request: u64,
}

/// What both ends of a connection know about it, in sorted order. The connections within a guest also have its name, because each guest
/// has its own loopback addresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    ends: [(SocketAddr, u32); 2],
    within: Option<Name>,
}

/// An application of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Party {
    guest: Name,
    application: ApplicationId,
}

#[derive(Debug)]
struct Couple {
    parties: [Party; 2],
    /// True for each party that has sent its memory file.
    has_memory: [bool; 2],
    slots: Vec<Option<SlotUse>>,
    /// When the last connection left its slot, if no slot is in use.
    idle_since: Option<Instant>,
}

#[derive(Debug)]
struct SlotUse {
    generation: u64,
    has_left: [bool; 2],
}

/// The memory that applications of a network share, and the connections whose other end has not asked yet.
#[derive(Debug)]
pub(super) struct DirectCouples {
    wanted: HashMap<Key, (Party, u64)>,
    /// How many of these connections each guest has.
    waiting: HashMap<Name, usize>,
    couples: BTreeMap<u64, Couple>,
    /// The last number of a couple or generation. It begins with the time, so that no earlier control program has used it.
    last: u64,
}

impl Default for DirectCouples {
    fn default() -> Self {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let last = u64::try_from(since_1970.as_nanos()).unwrap_or(0);
        Self { wanted: HashMap::new(), waiting: HashMap::new(), couples: BTreeMap::new(), last }
    }
}

/// A new couple, and the slot for a connection.
#[derive(Debug)]
struct Match {
    /// The parties if the couple is new: each needs its descriptors.
    new: Option<[Party; 2]>,
    couple: u64,
    orders: [Outgoing; 2],
}

/// Returns the key of a connection if the topology permits a direct one. The address of the other end belongs to the guest itself, or to
/// another guest on a network with `direct = true`. In the second case, neither guest may be a router or have a port filter, because both
/// handle packets only.
fn permit(topology: &Topology, guest: &Name, flow: &Flow) -> Option<Key> {
    let own = topology.guests.get(guest)?;
    let (local, remote) = (flow.local.ip().to_canonical(), flow.remote.ip().to_canonical());
    let is_own = |ip: std::net::IpAddr| {
        ip.is_loopback() || own.devices.iter().any(|device| device.addresses.iter().any(|net| net.addr() == ip))
    };
    let mut ends = [(flow.local, flow.iss), (flow.remote, flow.irs)];
    ends.sort_unstable();
    if is_own(local) && is_own(remote) {
        return Some(Key { ends, within: Some(guest.clone()) });
    }
    let is_direct =
        |device: &siga_model::topology::Device| topology.networks.get(&device.network).is_some_and(|one| one.direct);
    let device = own.devices.iter().find(|device| device.addresses.iter().any(|net| net.addr() == local))?;
    let may_share = |guest: &siga_model::topology::Guest| !guest.forwarding && guest.allow.is_none();
    if !may_share(own) || !is_direct(device) {
        return None;
    }
    let has_remote =
        |(_, other): &(&Name, &siga_model::topology::Device)| other.addresses.iter().any(|net| net.addr() == remote);
    let (partner, other) = topology.partners(guest, device).find(has_remote)?;
    let member = |guest: &Name, device: &siga_model::topology::Device| MemberId {
        guest: guest.clone(),
        device: device.name.clone(),
    };
    may_couple(topology, &member(guest, device), &member(partner, other)).ok()?;
    may_share(topology.guests.get(partner)?).then_some(Key { ends, within: None })
}

impl DirectCouples {
    /// Handles a request for a slot. Returns the slot if the other end has asked before.
    fn want(&mut self, key: Key, party: Party, request: u64) -> Option<Match> {
        let Some((other, of_other)) = self.wanted.remove(&key) else {
            let count = self.waiting.entry(party.guest.clone()).or_default();
            if *count < DIRECT_WANTED_MAX {
                *count += 1;
                self.wanted.insert(key, (party, request));
            }
            return None;
        };
        self.count_down(&other.guest);
        if other == party {
            // Both ends belong to one application, which needs no shared memory.
            return None;
        }
        let parties = [other, party];
        let (couple, is_new) = self.couple_of(&parties)?;
        self.last += 1;
        let generation = self.last;
        let known = self.couples.get_mut(&couple)?;
        let slot = known.slots.iter().position(Option::is_none)?;
        known.slots[slot] = Some(SlotUse { generation, has_left: [false, false] });
        known.idle_since = None;
        let slot = DirectSlot { couple, slot: u16::try_from(slot).ok()?, generation };
        let order = |party: &Party, request| Outgoing {
            to: party.guest.clone(),
            order: Order::Direct { application: party.application, order: DirectOrder::Slot { request, slot } },
        };
        let orders = [order(&parties[0], of_other), order(&parties[1], request)];
        Some(Match { new: is_new.then_some(parties), couple, orders })
    }

    fn count_down(&mut self, guest: &Name) {
        if let Some(count) = self.waiting.get_mut(guest) {
            *count = count.saturating_sub(1);
        }
    }

    /// Forgets the connections that wait and for which `is_meant` returns true.
    fn forget_wanted(&mut self, is_meant: impl Fn(&Key, &Party, u64) -> bool) {
        let mut gone = Vec::new();
        self.wanted.retain(|key, (party, request)| {
            let is_gone = is_meant(key, party, *request);
            gone.extend(is_gone.then(|| party.guest.clone()));
            !is_gone
        });
        gone.iter().for_each(|guest| self.count_down(guest));
    }

    /// Returns a couple of these applications with a free slot, and whether it is new. Returns `None` if there is no memory for it.
    fn couple_of(&mut self, parties: &[Party; 2]) -> Option<(u64, bool)> {
        let has = |couple: &Couple, party: &Party| couple.parties.contains(party);
        let is_free = |couple: &Couple| couple.slots.iter().any(Option::is_none);
        let known = self.couples.iter().find(|(_, one)| parties.iter().all(|party| has(one, party)) && is_free(one));
        if let Some((couple, _)) = known {
            return Some((*couple, false));
        }
        for party in parties {
            let of_application = self.couples.values().filter(|one| has(one, party)).count();
            if of_application >= DIRECT_COUPLES_OF_APPLICATION_MAX || self.charged(&party.guest) >= DIRECT_BYTES_MAX {
                return None;
            }
        }
        self.last += 1;
        let slots = (0..Shape::STANDARD.slots()).map(|_| None).collect();
        self.couples.insert(
            self.last,
            Couple { parties: parties.clone(), has_memory: [false, false], slots, idle_since: None },
        );
        Some((self.last, true))
    }

    /// Returns how many bytes the memory files of a guest's applications have.
    fn charged(&self, guest: &Name) -> u64 {
        let parties = self.couples.values().flat_map(|couple| &couple.parties);
        let count = parties.filter(|party| party.guest == *guest).count();
        count as u64 * Shape::STANDARD.memory_bytes() as u64
    }

    /// Handles the event that a connection needs no slot any more.
    fn unwant(&mut self, guest: &Name, Asker { application, request }: Asker) {
        let party = Party { guest: guest.clone(), application };
        self.forget_wanted(|_, one, number| *one == party && number == request);
    }

    /// Handles the memory file of an application. Returns the order that passes the file to the other application, or `None` if it has sent
    /// one before.
    fn memory(&mut self, guest: &Name, application: ApplicationId, couple: u64) -> Option<Outgoing> {
        let known = self.couples.get_mut(&couple)?;
        let at = known.parties.iter().position(|party| party.guest == *guest && party.application == application)?;
        if std::mem::replace(&mut known.has_memory[at], true) {
            return None;
        }
        let Party { guest, application } = known.parties[1 - at].clone();
        Some(Outgoing { to: guest, order: Order::Direct { application, order: DirectOrder::Memory { couple } } })
    }

    /// Handles the event that one end of a connection no longer uses its slot.
    fn left(&mut self, guest: &Name, application: ApplicationId, slot: DirectSlot, now: Instant) {
        let Some(known) = self.couples.get_mut(&slot.couple) else { return };
        let is_this = |party: &Party| party.guest == *guest && party.application == application;
        let Some(at) = known.parties.iter().position(is_this) else { return };
        let Some(used) = known.slots.get_mut(usize::from(slot.slot)) else { return };
        if let Some(of) = used.as_mut().filter(|of| of.generation == slot.generation) {
            of.has_left[at] = true;
            if of.has_left == [true, true] {
                *used = None;
                let is_idle = known.slots.iter().all(Option::is_none);
                known.idle_since = is_idle.then_some(now);
            }
        }
    }

    /// Returns when the next idle couple ends.
    pub(super) fn due(&self) -> Option<Instant> {
        self.couples.values().filter_map(|couple| couple.idle_since).min().map(|since| since + DIRECT_IDLE_TIME)
    }

    /// Ends the couples without connections whose time is over, so that the host gets their memory back.
    fn end_idle(&mut self, now: Instant) -> Vec<Outgoing> {
        if self.due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.end(|couple| couple.idle_since.is_some_and(|since| since + DIRECT_IDLE_TIME <= now), |_| true, false)
    }

    /// Ends the couples of an application, because it has ended. Returns the orders for the other applications.
    pub(super) fn application_ended(&mut self, guest: &Name, application: ApplicationId) -> Vec<Outgoing> {
        self.forget_wanted(|_, party, _| party.guest == *guest && party.application == application);
        let is_this = |party: &Party| party.guest == *guest && party.application == application;
        self.end(|couple| couple.parties.iter().any(is_this), |party| !is_this(party), false)
    }

    /// Ends the couples of a guest whose applications may no longer share memory with those of other guests. Their connections are reset.
    pub(super) fn revoke(&mut self, guest: &Name) -> Vec<Outgoing> {
        self.forget_wanted(|key, party, _| party.guest == *guest && key.within.is_none());
        let is_revoked = |couple: &Couple| {
            let [one, other] = &couple.parties;
            one.guest != other.guest && (one.guest == *guest || other.guest == *guest)
        };
        self.end(is_revoked, |_| true, true)
    }

    fn end(
        &mut self,
        is_meant: impl Fn(&Couple) -> bool,
        is_informed: impl Fn(&Party) -> bool,
        reset: bool,
    ) -> Vec<Outgoing> {
        let mut orders = Vec::new();
        self.couples.retain(|id, couple| {
            let ends = is_meant(couple);
            if ends {
                let informed = couple.parties.iter().filter(|party| is_informed(party));
                orders.extend(informed.map(|Party { guest, application }| Outgoing {
                    to: guest.clone(),
                    order: Order::Direct { application: *application, order: DirectOrder::Gone { couple: *id, reset } },
                }));
            }
            !ends
        });
        orders
    }
}

impl Control {
    /// Handles a guest's event of direct connections of an application.
    pub(super) fn direct(
        &mut self,
        guest: &Name,
        application: ApplicationId,
        event: DirectRequest,
        memory: Vec<OwnedFd>,
    ) {
        match event {
            DirectRequest::Wanted { request, flow } => self.want_direct(guest, Asker { application, request }, flow),
            DirectRequest::Unwanted { request } => self.direct.unwant(guest, Asker { application, request }),
            DirectRequest::Memory { couple } => {
                if let Some(order) = self.direct.memory(guest, application, couple) {
                    self.send_direct(guest, [(order, memory)]);
                }
            }
            DirectRequest::Left { slot } => self.direct.left(guest, application, slot, Instant::now()),
        }
    }

    /// Ends idle couples.
    pub(super) fn direct_due(&mut self, now: Instant) {
        for Outgoing { to, order } in self.direct.end_idle(now) {
            self.send_order(&to, &order, Vec::new());
        }
    }

    /// Handles a guest's request for a slot.
    fn want_direct(&mut self, guest: &Name, Asker { application, request }: Asker, flow: Flow) {
        let is_captured =
            self.clients.values().any(|client| matches!(&client.waits, Waits::Capture(of) if of == guest));
        if is_captured || !self.guests.get(guest).is_some_and(|known| known.applications.contains(&application)) {
            return;
        }
        let Some(key) = permit(&self.topology, guest, &flow) else { return };
        if let Some((Party { guest: other, .. }, _)) = self.direct.wanted.get(&key)
            && !self.takes_orders_of(other, guest)
        {
            return;
        }
        let party = Party { guest: guest.clone(), application };
        let Some(found) = self.direct.want(key, party, request) else { return };
        if let Some(parties) = found.new
            && let Err(error) = self.make_couple(guest, found.couple, &parties)
        {
            self.log.of_guest(guest, &format!("guest {guest}: no memory for direct connections: {error}"));
            self.direct.couples.remove(&found.couple);
            return;
        }
        self.send_direct(guest, found.orders.into_iter().map(|order| (order, Vec::new())));
    }

    /// Returns whether a guest has read most of its orders, so that another guest may cause further ones.
    fn takes_orders_of(&self, guest: &Name, because: &Name) -> bool {
        let channel = self.guests.get(guest).and_then(|known| known.channel.as_ref());
        channel.is_some_and(|(_, channel)| {
            channel.waiting() < OUTBOX_MESSAGES_MAX / 2 && channel.waiting_because(because) < ORDERS_OF_ONE_MAX
        })
    }

    /// Makes the doorbells between two applications, and sends each its descriptors.
    fn make_couple(&mut self, asker: &Name, couple: u64, parties: &[Party; 2]) -> siga_model::error::Result<()> {
        let mut orders = Vec::new();
        for (party, (notify, wake)) in parties.iter().zip(doorbells()?) {
            let reader =
                NotifyFd::open_reader(&notify).context("cannot open the read end of a pipe that wakes a process")?;
            let order = Order::Direct { application: party.application, order: DirectOrder::Couple { couple } };
            orders.push((Outgoing { to: party.guest.clone(), order }, vec![notify, reader, wake]));
        }
        let [one, other] = parties;
        let line = format!(
            "direct {couple}: application {} of guest {} with application {} of guest {}: made",
            one.application.0, one.guest, other.application.0, other.guest
        );
        self.log.of_guest(asker, &line);
        self.send_direct(asker, orders);
        Ok(())
    }

    /// Sends orders about direct connections, which a guest has caused.
    fn send_direct(&mut self, because: &Name, orders: impl IntoIterator<Item = (Outgoing, Vec<OwnedFd>)>) {
        for (Outgoing { to, order }, descriptors) in orders {
            self.send_order_because(Some(because), &to, &order, descriptors);
        }
    }
}

#[cfg(test)]
mod tests;
