//! The ring pairs of a network, from the request for a pair until the pair ends. A ring pair is two rings in shared memory between
//! two guests, one for each direction. This module does no I/O: guest events go in, and orders for guests come out.
//!
//! A pair connects two *members*: a member is a device of a guest. A pair is made when one of its two members asks for it, and its
//! memory is charged to the guest of that member. If a guest ends, its pairs are made again when it starts again. After a protocol
//! violation, the two members get no new pair until one of their guests has ended and started again.

use super::issuer::Issuer;
use crate::protocol::message::{Buffers, MemberId, Order, RingPairEnd};
use crate::protocol::ticket::RingPairId;
use siga_model::error::Error;
use siga_model::name::Name;
use siga_model::topology::{Device, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// An order and the guest that receives it. The caller sends `MakePair` with three descriptors: notify, wake, and the memory file of
/// the outgoing ring.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The guest that receives the order.
    pub(super) to: Name,
    /// The order for this guest.
    pub(super) order: Order,
}

/// Two members in sorted order, so that both orders of the same two members are one key of a map.
type Couple = (MemberId, MemberId);

fn couple(one: &MemberId, other: &MemberId) -> Couple {
    if one < other { (one.clone(), other.clone()) } else { (other.clone(), one.clone()) }
}

#[derive(Debug)]
struct End {
    member: MemberId,
    inbound: Buffers,
    /// True if this end's guest has sent the memory file of its outgoing ring.
    has_passed_memory: bool,
    /// True if this end's guest has mapped both rings.
    is_linked: bool,
    /// True if this end's guest has stopped sending.
    is_quiet: bool,
    /// True if an earlier control program made the pair and this end's guest has not reported the pair yet.
    is_missing: bool,
}

impl End {
    fn new(member: MemberId, inbound: Buffers) -> Self {
        Self { member, inbound, has_passed_memory: false, is_linked: false, is_quiet: false, is_missing: false }
    }

    /// Creates the end of a pair that an earlier control program made.
    fn adopted(member: MemberId, inbound: Buffers) -> Self {
        Self { has_passed_memory: true, is_linked: true, is_missing: true, ..Self::new(member, inbound) }
    }
}

#[derive(Debug)]
struct RingPair {
    /// The two ends. The first end's guest asked for the pair, and the pair's memory is charged to it.
    ends: [End; 2],
    /// True if both guests were ordered to stop sending.
    is_quiescing: bool,
}

impl RingPair {
    fn bytes(&self) -> u64 {
        self.ends.iter().map(|end| end.inbound.total_bytes()).sum()
    }

    /// Returns the orders that make the pair.
    fn orders_to_make(&self, id: RingPairId) -> [Outgoing; 2] {
        [0, 1].map(|at| {
            let (end, peer) = (&self.ends[at], &self.ends[1 - at]);
            let order = Order::MakePair(RingPairEnd {
                pair: id,
                asked: at == 0,
                device: end.member.device.clone(),
                member: peer.member.clone(),
                inbound: end.inbound,
                outbound: peer.inbound,
            });
            Outgoing { to: end.member.guest.clone(), order }
        })
    }

    fn end_of(&self, guest: &Name) -> Option<usize> {
        self.ends.iter().position(|end| end.member.guest == *guest)
    }

    /// Returns true if one end belongs to this guest, unless so far only the partner has reported the pair. Such a pair does not
    /// count against the guest's limits, because the guest may not have it any more.
    fn is_had_by(&self, guest: &Name) -> bool {
        self.ends.iter().any(|end| end.member.guest == *guest && !end.is_missing)
    }

    fn end_mut(&mut self, member: &MemberId) -> Option<&mut End> {
        self.ends.iter_mut().find(|end| end.member == *member)
    }
}

/// A pair that is to replace another one with the same members.
#[derive(Debug)]
pub(super) struct Renewal {
    pub(super) old: RingPairId,
    pub(super) new: RingPairId,
    /// The guest whose process stays.
    pub(super) partner: Name,
    pair: RingPair,
}

impl Renewal {
    /// Returns the orders that make the new pair.
    pub(super) fn orders(&self) -> [Outgoing; 2] {
        self.pair.orders_to_make(self.new)
    }
}

/// All ring pairs of a network's guests.
#[derive(Debug, Default)]
pub(super) struct RingPairs {
    pairs: BTreeMap<RingPairId, RingPair>,
    of_couple: BTreeMap<Couple, RingPairId>,
    /// Requested pairs that will be made once both guests run. In each value, the member that asked comes first.
    wanted: BTreeMap<Couple, (MemberId, MemberId)>,
    /// Each entry is two members that get no ring pair because one of them violated the ring's protocol.
    blocked: BTreeSet<Couple>,
    last: u64,
}

impl RingPairs {
    /// Returns the member at the other end of a guest's pair.
    pub(super) fn partner(&self, pair: RingPairId, guest: &Name) -> Option<&MemberId> {
        let pair = self.pairs.get(&pair)?;
        Some(&pair.ends[1 - pair.end_of(guest)?].member)
    }

    /// Handles a member's request for a pair with another member. Makes the pair now if both guests run. Otherwise the pair is made
    /// once both guests run.
    ///
    /// # Errors
    /// Returns an error if the topology does not allow a pair between the members, or if a limit of one of the guests is reached.
    pub(super) fn want(
        &mut self,
        topology: &Topology,
        issuer: Issuer<'_>,
        asker: &MemberId,
        other: &MemberId,
        runs: impl Fn(&Name) -> bool,
    ) -> Result<Vec<Outgoing>, Error> {
        let key = couple(asker, other);
        if self.of_couple.contains_key(&key) {
            return Ok(Vec::new());
        }
        let (own, partner) = may_couple(topology, asker, other)?;
        if self.blocked.contains(&key) {
            let message =
                format!("{asker} and {other} get no ring pair, because one of them violated the ring's protocol");
            return Err(Error::usage(message).hint("restart one of the two guests (`siga net stop`, `siga net start`)"));
        }
        let kind = topology.networks[&own.network].kind;
        let buffers = |device: &Device| Buffers { bytes: kind.buffer_bytes(), count: device.buffer_count };
        let ends = [(asker, own), (other, partner)].map(|(member, device)| End::new(member.clone(), buffers(device)));
        let pair = RingPair { ends, is_quiescing: false };
        self.is_within_limits(topology, &pair)?;
        if !runs(&asker.guest) || !runs(&other.guest) {
            self.wanted.insert(key, (asker.clone(), other.clone()));
            return Ok(Vec::new());
        }
        self.last += 1;
        let id = issuer.pair(self.last, [0, 1].map(|at| (&pair.ends[at].member, pair.ends[at].inbound)));
        let orders = pair.orders_to_make(id);
        self.wanted.remove(&key);
        self.of_couple.insert(key, id);
        self.pairs.insert(id, pair);
        Ok(orders.into())
    }

    fn is_within_limits(&self, topology: &Topology, pair: &RingPair) -> Result<(), Error> {
        let [asker, other] = [0, 1].map(|at| &pair.ends[at].member);
        for guest in [&asker.guest, &other.guest] {
            let most = topology.guests[guest].pairs_max;
            let count = self.pairs.values().filter(|pair| pair.is_had_by(guest)).count();
            if count as u64 >= u64::from(most) {
                return Err(Error::environment(format!(
                    "guest {guest} has {count} ring pairs, which is its maximum (pairs_max)"
                )));
            }
        }
        let most = topology.guests[&asker.guest].ring_bytes_max;
        let held = self.charged(&asker.guest);
        if held.saturating_add(pair.bytes()) > most {
            let message = format!(
                "guest {} uses {held} bytes for rings; with {} more bytes, it would exceed its maximum of {most} bytes \
                    (ring_bytes_max)",
                asker.guest,
                pair.bytes()
            );
            return Err(Error::environment(message));
        }
        Ok(())
    }

    /// Returns the size in bytes of all rings that a guest asked for.
    pub(super) fn charged(&self, guest: &Name) -> u64 {
        let asked = |pair: &&RingPair| pair.ends[0].member.guest == *guest && !pair.ends[0].is_missing;
        self.pairs.values().filter(asked).map(RingPair::bytes).sum()
    }

    /// Handles the memory file that a guest sent for its end of a pair. Returns the order that passes the file to the partner, or
    /// `None` if the guest has already sent a memory file.
    pub(super) fn memory(&mut self, pair: RingPairId, from: &Name) -> Option<Outgoing> {
        let ends = &mut self.pairs.get_mut(&pair)?.ends;
        let at = ends.iter().position(|end| end.member.guest == *from)?;
        if std::mem::replace(&mut ends[at].has_passed_memory, true) {
            return None;
        }
        let to = ends[1 - at].member.guest.clone();
        Some(Outgoing { to, order: Order::PeerMemory { pair, continues: false } })
    }

    /// Handles the event that a guest has mapped both rings of a pair. Returns the guest's partner, or `None` if the guest has
    /// already reported this.
    pub(super) fn linked(&mut self, pair: RingPairId, from: &Name) -> Option<&MemberId> {
        let ends = &mut self.pairs.get_mut(&pair)?.ends;
        let at = ends.iter().position(|end| end.member.guest == *from)?;
        let again = std::mem::replace(&mut ends[at].is_linked, true);
        (!again).then_some(&ends[1 - at].member)
    }

    /// Handles the event that a guest saw no traffic on a pair. Returns orders to both guests to stop sending, or no orders if both
    /// were already ordered to stop. The pair ends once both have stopped.
    pub(super) fn idle(&mut self, pair: RingPairId, from: &Name) -> Vec<Outgoing> {
        let Some(idle) = self.pairs.get_mut(&pair).filter(|idle| idle.end_of(from).is_some()) else {
            return Vec::new();
        };
        if std::mem::replace(&mut idle.is_quiescing, true) {
            return Vec::new();
        }
        let quiesce = |end: &End| Outgoing { to: end.member.guest.clone(), order: Order::Quiesce { pair } };
        idle.ends.iter().map(quiesce).collect()
    }

    /// Handles the event that a guest has stopped sending over a pair. Ends the pair if the partner has stopped too.
    pub(super) fn quiet(&mut self, pair: RingPairId, from: &Name) -> Vec<Outgoing> {
        let Some(quiet) = self.pairs.get_mut(&pair) else { return Vec::new() };
        let Some(at) = quiet.end_of(from) else { return Vec::new() };
        quiet.ends[at].is_quiet = true;
        if quiet.ends.iter().all(|end| end.is_quiet) { self.end(pair, "idle", |_| true) } else { Vec::new() }
    }

    /// Handles the event that a guest has dropped its end of a pair. Returns the order for the partner to drop the other end. If
    /// `violation` is true, the two members get no new pair.
    pub(super) fn lost(&mut self, pair: RingPairId, from: &Name, why: &str, violation: bool) -> Vec<Outgoing> {
        let Some(lost) = self.pairs.get(&pair).filter(|lost| lost.end_of(from).is_some()) else { return Vec::new() };
        if violation {
            self.blocked.insert(couple(&lost.ends[0].member, &lost.ends[1].member));
        }
        self.end(pair, why, |guest| guest != from)
    }

    /// Handles the end of a guest. Returns orders for its partners to drop their ends of the pairs. The guest's pairs are made
    /// again when it starts again.
    pub(super) fn gone(&mut self, guest: &Name) -> Vec<Outgoing> {
        self.gone_except(guest, &[])
    }

    /// Handles the end of a guest's process like [`RingPairs::gone`], but keeps the pairs of the process that has replaced it.
    pub(super) fn gone_except(&mut self, guest: &Name, kept: &[RingPairId]) -> Vec<Outgoing> {
        let mut orders = Vec::new();
        for pair in self.of(guest).into_iter().filter(|pair| !kept.contains(pair)) {
            let ends = &self.pairs[&pair].ends;
            let (asker, other) = (ends[0].member.clone(), ends[1].member.clone());
            orders.extend(self.end(pair, &format!("guest {guest} has ended"), |to| to != guest));
            self.wanted.insert(couple(&asker, &other), (asker, other));
        }
        self.blocked.retain(|(one, other)| one.guest != *guest && other.guest != *guest);
        orders
    }

    /// Returns the requested pairs of this guest that are not made yet. The caller makes them now, because the guest runs. In each
    /// pair, the member that asked comes first.
    pub(super) fn wanted_with(&self, guest: &Name) -> Vec<(MemberId, MemberId)> {
        let with = |(asker, other): &&(MemberId, MemberId)| asker.guest == *guest || other.guest == *guest;
        self.wanted.values().filter(with).cloned().collect()
    }

    /// Ends the pairs of a guest on networks to which the guest has lost access. Also removes the requests for such pairs.
    pub(super) fn revoke(&mut self, topology: &Topology, guest: &Name) -> Vec<Outgoing> {
        self.wanted.retain(|_, (asker, other)| may_couple(topology, asker, other).is_ok());
        let mut orders = Vec::new();
        for pair in self.of(guest) {
            let [one, other] = &self.pairs[&pair].ends;
            if may_couple(topology, &one.member, &other.member).is_err() {
                orders.extend(self.end(pair, &format!("access of guest {guest} was revoked"), |_| true));
            }
        }
        orders
    }

    /// Takes over a pair that an earlier control program made and that a guest now reports. The pair is complete when the guest at
    /// the other end reports it too; `end_half_known` ends pairs that only one guest reports. Returns false if the ticket does not
    /// match or the pair is not allowed.
    pub(super) fn adopt(&mut self, topology: &Topology, issuer: Issuer<'_>, guest: &Name, held: &RingPairEnd) -> bool {
        let own = MemberId { guest: guest.clone(), device: held.device.clone() };
        let mut ends = [End::adopted(own.clone(), held.inbound), End::adopted(held.member.clone(), held.outbound)];
        if !held.asked {
            ends.reverse();
        }
        let is_ours = issuer.issued_pair(held.pair, [0, 1].map(|at| (&ends[at].member, ends[at].inbound)));
        if !is_ours || may_couple(topology, &own, &held.member).is_err() {
            return false;
        }
        let key = couple(&own, &held.member);
        match self.of_couple.get(&key) {
            None => {
                let pair = RingPair { ends, is_quiescing: false };
                if self.is_within_limits(topology, &pair).is_err() {
                    return false;
                }
                self.last = self.last.max(held.pair.0.number());
                self.pairs.insert(held.pair, pair);
                self.of_couple.insert(key, held.pair);
            }
            Some(known) if *known != held.pair => return false,
            Some(_) => {}
        }
        if let Some(end) = self.pairs.get_mut(&held.pair).and_then(|pair| pair.end_mut(&own)) {
            end.is_missing = false;
        }
        true
    }

    /// Ends each pair that only one of its guests has reported, if the other guest can no longer report it.
    pub(super) fn end_half_known(&mut self, may_still_report: impl Fn(&Name) -> bool) -> Vec<Outgoing> {
        let missing = |end: &End| end.is_missing && !may_still_report(&end.member.guest);
        let half = |(id, pair): (&RingPairId, &RingPair)| pair.ends.iter().any(missing).then_some(*id);
        let half: Vec<RingPairId> = self.pairs.iter().filter_map(half).collect();
        half.into_iter().flat_map(|pair| self.end(pair, "the partner does not have this ring pair", |_| true)).collect()
    }

    /// Prepares a new pair for each complete pair of a guest, because another process replaces the guest's present one.
    pub(super) fn renewals(&mut self, issuer: Issuer<'_>, guest: &Name) -> Vec<Renewal> {
        let mut renewals = Vec::new();
        for old in self.of(guest) {
            let known = &self.pairs[&old];
            let Some(partner) = self.partner(old, guest).map(|partner| partner.guest.clone()) else { continue };
            if known.is_quiescing || known.ends.iter().any(|end| !end.is_linked || end.is_missing) {
                continue;
            }
            let ends = known
                .ends
                .each_ref()
                .map(|end| End { has_passed_memory: true, ..End::new(end.member.clone(), end.inbound) });
            self.last += 1;
            let new = issuer.pair(self.last, [0, 1].map(|at| (&ends[at].member, ends[at].inbound)));
            renewals.push(Renewal { old, new, partner, pair: RingPair { ends, is_quiescing: false } });
        }
        renewals
    }

    /// Replaces a pair by the new one. Returns the order for the partner to drop the old one.
    pub(super) fn renew(&mut self, renewal: Renewal) -> Vec<Outgoing> {
        let Renewal { old, new, partner, pair } = renewal;
        let orders = self.end(old, "the partner's process is replaced", |guest| *guest == partner);
        self.of_couple.insert(couple(&pair.ends[0].member, &pair.ends[1].member), new);
        self.pairs.insert(new, pair);
        orders
    }

    /// Ends a pair whose guests may have stopped sending. They ask for it again.
    pub(super) fn end_to_renew(&mut self, pair: RingPairId) -> Vec<Outgoing> {
        self.end(pair, "the partner's process was not replaced", |_| true)
    }

    /// Returns the number of a guest's pairs.
    pub(super) fn count_of(&self, guest: &Name) -> u32 {
        u32::try_from(self.of(guest).len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of pairs on a network.
    pub(super) fn count_on(&self, topology: &Topology, network: &Name) -> u32 {
        let on = |pair: &&RingPair| {
            let member = &pair.ends[0].member;
            let guest = topology.guests.get(&member.guest);
            guest.is_some_and(|guest| {
                guest.devices.iter().any(|device| device.name == member.device && device.network == *network)
            })
        };
        u32::try_from(self.pairs.values().filter(on).count()).unwrap_or(u32::MAX)
    }

    fn of(&self, guest: &Name) -> Vec<RingPairId> {
        let with = |(id, pair): (&RingPairId, &RingPair)| pair.end_of(guest).map(|_| *id);
        self.pairs.iter().filter_map(with).collect()
    }

    fn end(&mut self, pair: RingPairId, why: &str, is_informed: impl Fn(&Name) -> bool) -> Vec<Outgoing> {
        let Some(ended) = self.pairs.remove(&pair) else { return Vec::new() };
        self.of_couple.remove(&couple(&ended.ends[0].member, &ended.ends[1].member));
        let unpair =
            |end: &End| Outgoing { to: end.member.guest.clone(), order: Order::Unpair { pair, why: why.to_owned() } };
        ended.ends.iter().filter(|end| is_informed(&end.member.guest)).map(unpair).collect()
    }
}

/// Returns the devices of two members. Returns an error if the topology does not allow a ring pair between them.
pub(super) fn may_couple<'a>(
    topology: &'a Topology,
    one: &MemberId,
    other: &MemberId,
) -> Result<(&'a Device, &'a Device), Error> {
    let device = |member: &MemberId| {
        let guest = topology.guests.get(&member.guest);
        let device = guest.and_then(|guest| guest.devices.iter().find(|device| device.name == member.device));
        device.ok_or_else(|| Error::usage(format!("the topology has no device {member}")))
    };
    let (own, partner) = (device(one)?, device(other)?);
    if own.network != partner.network {
        return Err(Error::usage(format!(
            "{one} is on network {}, but {other} is on network {}",
            own.network, partner.network
        )));
    }
    if one.guest == other.guest {
        return Err(Error::usage(format!("{one} and {other} belong to the same guest")));
    }
    if !topology.partners(&one.guest, own).any(|(guest, _)| *guest == other.guest) {
        return Err(Error::usage(format!(
            "{one} and {other} cannot have a ring pair, because they exchange frames through a switch"
        )));
    }
    for member in [one, other] {
        if !topology.admits(&own.network, &member.guest) {
            return Err(Error::usage(format!(
                "network {} does not grant access to guest {}",
                own.network, member.guest
            )));
        }
    }
    Ok((own, partner))
}

#[cfg(test)]
mod tests;
