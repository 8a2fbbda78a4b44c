//! Which devices are joined by a ring pair, and from the wish for one to its end. Pure: in go the words of guests, out go
//! orders for guests.
//!
//! A pair is made when the first of its members wants it, charged to that one, and made again when a member that ended
//! comes back. After a violation the two members are kept apart until one of them has been started anew.

use crate::error::Error;
use crate::message::{Buffers, HeldPair, MemberId, Order, PairId};
use crate::name::Name;
use crate::topology::{Device, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// An order and whom it is for.
#[derive(Debug)]
pub struct Outgoing {
    /// The guest.
    pub to: Name,
    /// The order.
    pub order: Order,
    /// What goes with it.
    pub with: With,
}

/// The descriptors that go with an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum With {
    /// None.
    Nothing,
    /// A bell towards the other member and an ear for its bell, of a pair of pipes that is made for the two orders.
    Doorbells(PairId),
}

/// Two members in a fixed order.
type Couple = (MemberId, MemberId);

fn couple(one: &MemberId, other: &MemberId) -> Couple {
    if one < other { (one.clone(), other.clone()) } else { (other.clone(), one.clone()) }
}

#[derive(Debug)]
struct End {
    member: MemberId,
    inbound: Buffers,
    quiet: bool,
}

#[derive(Debug)]
struct Pair {
    /// The first asked for it and is charged.
    ends: [End; 2],
    /// It was made by an earlier control program, and not both ends have told of it: the silent one is quiet.
    adopted: bool,
}

impl Pair {
    fn bytes(&self) -> u64 {
        self.ends.iter().map(|end| end.inbound.total_bytes()).sum()
    }

    fn end_of(&self, guest: &Name) -> Option<usize> {
        self.ends.iter().position(|end| end.member.guest == *guest)
    }
}

/// All pairs of a network's guests.
#[derive(Debug, Default)]
pub struct Pairs {
    pairs: BTreeMap<PairId, Pair>,
    of_couple: BTreeMap<Couple, PairId>,
    /// To be made when both guests are there; who asked comes first.
    wanted: BTreeMap<Couple, (MemberId, MemberId)>,
    apart: BTreeSet<Couple>,
    last: u64,
}

impl Pairs {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The partner of a guest in a pair.
    pub fn partner(&self, pair: PairId, guest: &Name) -> Option<&MemberId> {
        let pair = self.pairs.get(&pair)?;
        Some(&pair.ends[1 - pair.end_of(guest)?].member)
    }

    /// A member wants a pair with another. It comes into being at once if the other guest runs, else when it does.
    ///
    /// # Errors
    /// They may not couple, or the limits of who asks are reached.
    pub fn want(
        &mut self,
        topology: &Topology,
        asker: &MemberId,
        other: &MemberId,
        runs: impl Fn(&Name) -> bool,
    ) -> Result<Vec<Outgoing>, Error> {
        let key = couple(asker, other);
        if self.of_couple.contains_key(&key) {
            return Ok(Vec::new());
        }
        let (own, partner) = may_couple(topology, asker, other)?;
        if self.apart.contains(&key) {
            let message = format!("{asker} and {other} are kept apart after a violation");
            return Err(Error::usage(message).hint("starting one of the guests anew ends that"));
        }
        let kind = topology.networks[&own.network].kind;
        let buffers = |device: &Device| Buffers { bytes: kind.buffer_bytes(), count: device.buffer_count };
        let ends = [(asker, own), (other, partner)].map(|(member, device)| End {
            member: member.clone(),
            inbound: buffers(device),
            quiet: false,
        });
        let pair = Pair { ends, adopted: false };
        self.is_within_limits(topology, asker, &pair)?;
        if !runs(&asker.guest) || !runs(&other.guest) {
            self.wanted.insert(key, (asker.clone(), other.clone()));
            return Ok(Vec::new());
        }
        self.last += 1;
        let id = PairId(self.last);
        let orders = [0, 1].map(|at| {
            let (end, peer) = (&pair.ends[at], &pair.ends[1 - at]);
            let order = Order::Pair {
                pair: id,
                device: end.member.device.clone(),
                member: peer.member.clone(),
                inbound: end.inbound,
                outbound: peer.inbound,
            };
            Outgoing { to: end.member.guest.clone(), order, with: With::Doorbells(id) }
        });
        self.wanted.remove(&key);
        self.of_couple.insert(key, id);
        self.pairs.insert(id, pair);
        Ok(orders.into())
    }

    fn is_within_limits(&self, topology: &Topology, asker: &MemberId, pair: &Pair) -> Result<(), Error> {
        for guest in [&asker.guest, &pair.ends[1].member.guest] {
            let most = topology.guests[guest].pairs_max;
            let count = self.pairs.values().filter(|pair| pair.end_of(guest).is_some()).count();
            if count as u64 >= u64::from(most) {
                return Err(Error::environment(format!(
                    "guest {guest} has {count} pairs, as many as it may (pairs_max)"
                )));
            }
        }
        let most = topology.guests[&asker.guest].ring_bytes_max;
        let held = self.charged(&asker.guest);
        if held + pair.bytes() > most {
            let message = format!(
                "guest {} has asked for {held} bytes of rings; with {} more it would pass {most} (ring_bytes_max)",
                asker.guest,
                pair.bytes()
            );
            return Err(Error::environment(message));
        }
        Ok(())
    }

    /// Bytes of the rings that a guest asked for.
    pub fn charged(&self, guest: &Name) -> u64 {
        self.pairs.values().filter(|pair| pair.ends[0].member.guest == *guest).map(Pair::bytes).sum()
    }

    /// A guest has made its half of a pair: who is to map it.
    pub fn memory(&self, pair: PairId, from: &Name) -> Option<Outgoing> {
        let to = self.partner(pair, from)?.guest.clone();
        Some(Outgoing { to, order: Order::PeerMemory { pair }, with: With::Nothing })
    }

    /// A guest finds a pair idle: both are to be quiet before it goes.
    pub fn idle(&mut self, pair: PairId, from: &Name) -> Vec<Outgoing> {
        let Some(idle) = self.pairs.get(&pair).filter(|idle| idle.end_of(from).is_some()) else { return Vec::new() };
        let quiesce =
            |end: &End| Outgoing { to: end.member.guest.clone(), order: Order::Quiesce { pair }, with: With::Nothing };
        idle.ends.iter().map(quiesce).collect()
    }

    /// A guest sends nothing more over a pair.
    pub fn quiet(&mut self, pair: PairId, from: &Name) -> Vec<Outgoing> {
        let Some(quiet) = self.pairs.get_mut(&pair) else { return Vec::new() };
        let Some(at) = quiet.end_of(from) else { return Vec::new() };
        quiet.ends[at].quiet = true;
        if quiet.ends.iter().all(|end| end.quiet) { self.end(pair, "idle", |_| true) } else { Vec::new() }
    }

    /// A pair has ended at one side, which has detached; the other is told. With `violation`, the two are kept apart.
    pub fn lost(&mut self, pair: PairId, from: &Name, why: &str, violation: bool) -> Vec<Outgoing> {
        let Some(lost) = self.pairs.get(&pair).filter(|lost| lost.end_of(from).is_some()) else { return Vec::new() };
        if violation {
            self.apart.insert(couple(&lost.ends[0].member, &lost.ends[1].member));
        }
        self.end(pair, why, |guest| guest != from)
    }

    /// A guest is gone: its partners detach. What it had is wanted again when it comes back.
    pub fn gone(&mut self, guest: &Name) -> Vec<Outgoing> {
        let mut orders = Vec::new();
        for pair in self.of(guest) {
            let ends = &self.pairs[&pair].ends;
            let (asker, other) = (ends[0].member.clone(), ends[1].member.clone());
            orders.extend(self.end(pair, &format!("guest {guest} has ended"), |to| to != guest));
            self.wanted.insert(couple(&asker, &other), (asker, other));
        }
        self.apart.retain(|(one, other)| one.guest != *guest && other.guest != *guest);
        orders
    }

    /// What is to be made because a guest runs: who asked, and for whom.
    pub fn wanted_with(&self, guest: &Name) -> Vec<(MemberId, MemberId)> {
        let with = |(asker, other): &&(MemberId, MemberId)| asker.guest == *guest || other.guest == *guest;
        self.wanted.values().filter(with).cloned().collect()
    }

    /// A member may no longer be on its network: its pairs end on both sides, and nothing is wanted any more.
    pub fn revoke(&mut self, topology: &Topology, guest: &Name) -> Vec<Outgoing> {
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

    /// A pair that a guest had before this control program ran. The second member to tell of it completes it; a pair that
    /// the other tells nothing of is found by `half_known`.
    pub fn adopt(&mut self, guest: &Name, held: &HeldPair) {
        self.last = self.last.max(held.pair.0);
        let own = MemberId { guest: guest.clone(), device: held.device.clone() };
        let key = couple(&own, &held.member);
        let end = |member: MemberId, inbound, quiet| End { member, inbound, quiet };
        match self.pairs.get_mut(&held.pair) {
            Some(known) => {
                if let Some(at) = known.ends.iter().position(|end| end.member == own) {
                    (known.ends[at].quiet, known.adopted) = (false, false);
                }
            }
            None => {
                let ends = [end(own, held.inbound, false), end(held.member.clone(), held.outbound, true)];
                self.pairs.insert(held.pair, Pair { ends, adopted: true });
                self.of_couple.insert(key, held.pair);
            }
        }
    }

    /// Ends the pairs of which one of two members told when it was adopted and the other did not, and will not.
    pub fn end_half_known(&mut self, may_still_tell: impl Fn(&Name) -> bool) -> Vec<Outgoing> {
        let silent = |end: &End| end.quiet && !may_still_tell(&end.member.guest);
        let half = |(id, pair): (&PairId, &Pair)| (pair.adopted && pair.ends.iter().any(silent)).then_some(*id);
        let half: Vec<PairId> = self.pairs.iter().filter_map(half).collect();
        half.into_iter().flat_map(|pair| self.end(pair, "the partner does not know it", |_| true)).collect()
    }

    /// How many a guest has.
    pub fn count_of(&self, guest: &Name) -> u32 {
        u32::try_from(self.of(guest).len()).unwrap_or(u32::MAX)
    }

    /// How many there are on a network.
    pub fn count_on(&self, topology: &Topology, network: &Name) -> u32 {
        let on = |pair: &&Pair| {
            let member = &pair.ends[0].member;
            let guest = topology.guests.get(&member.guest);
            guest.is_some_and(|guest| {
                guest.devices.iter().any(|device| device.name == member.device && device.network == *network)
            })
        };
        u32::try_from(self.pairs.values().filter(on).count()).unwrap_or(u32::MAX)
    }

    fn of(&self, guest: &Name) -> Vec<PairId> {
        let with = |(id, pair): (&PairId, &Pair)| pair.end_of(guest).map(|_| *id);
        self.pairs.iter().filter_map(with).collect()
    }

    fn end(&mut self, pair: PairId, why: &str, told: impl Fn(&Name) -> bool) -> Vec<Outgoing> {
        let Some(ended) = self.pairs.remove(&pair) else { return Vec::new() };
        self.of_couple.remove(&couple(&ended.ends[0].member, &ended.ends[1].member));
        let tell = |end: &End| Outgoing {
            to: end.member.guest.clone(),
            order: Order::Unpair { pair, why: why.to_owned() },
            with: With::Nothing,
        };
        ended.ends.iter().filter(|end| told(&end.member.guest)).map(tell).collect()
    }
}

/// The devices of two members, if they may couple.
fn may_couple<'a>(topology: &'a Topology, one: &MemberId, other: &MemberId) -> Result<(&'a Device, &'a Device), Error> {
    let device = |member: &MemberId| {
        let guest = topology.guests.get(&member.guest);
        let device = guest.and_then(|guest| guest.devices.iter().find(|device| device.name == member.device));
        device.ok_or_else(|| Error::usage(format!("there is no device {member}")))
    };
    let (own, partner) = (device(one)?, device(other)?);
    if own.network != partner.network {
        return Err(Error::usage(format!("{one} is on network {}, {other} on {}", own.network, partner.network)));
    }
    if one.guest == other.guest {
        return Err(Error::usage(format!("{one} and {other} are of one guest")));
    }
    for member in [one, other] {
        if !topology.networks[&own.network].access.admits(&member.guest) {
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
