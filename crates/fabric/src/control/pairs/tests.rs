//! Ring pairs, driven by guest events alone.

use super::*;
use crate::protocol::ticket::{Ticket, TicketKey};
use siga_model::topology::Access;

const LAN: &str = r#"
[network.lan]
type = "hipersockets"
frame = "16K"
access = "restricted"
grant = ["a", "b", "c"]
[network.other]
type = "hipersockets"
[guest.a]
ring_bytes_max = 1_000_000
device = [{network = "lan", addresses = ["10.0.0.1/24"]}, {network = "other"}]
[guest.b]
device = [{network = "lan", addresses = ["10.0.0.2/24"], buffer_count = 8}]
[guest.c]
pairs_max = 1
device = [{network = "lan", addresses = ["10.0.0.3/24"]}]
[guest.d]
device = [{network = "other"}]
"#;

fn member(text: &str) -> MemberId {
    let (guest, device) = text.split_once('.').unwrap();
    MemberId { guest: guest.parse().unwrap(), device: device.parse().unwrap() }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

struct World {
    topology: Topology,
    pairs: RingPairs,
    down: BTreeSet<Name>,
    key: TicketKey,
    incarnations: BTreeMap<Name, u64>,
}

impl World {
    fn new() -> Self {
        let incarnations = ["a", "b", "c", "d"].iter().zip(10..).map(|(guest, number)| (name(guest), number));
        Self {
            topology: Topology::parse(LAN).unwrap(),
            pairs: RingPairs::default(),
            down: BTreeSet::new(),
            key: TicketKey::draw().unwrap(),
            incarnations: incarnations.collect(),
        }
    }

    /// The pair with this number.
    fn pair(&self, number: u64) -> RingPairId {
        *self.pairs.pairs.keys().find(|pair| pair.0.number() == number).unwrap()
    }

    /// A later control program, which has the state file only.
    fn succeed(self) -> Self {
        Self { pairs: RingPairs::default(), ..self }
    }

    fn adopt(&mut self, guest: &str, held: &RingPairEnd) -> bool {
        let issuer = Issuer { key: &self.key, incarnations: &self.incarnations };
        self.pairs.adopt(&self.topology, issuer, &name(guest), held)
    }

    fn want(&mut self, one: &str, other: &str) -> Result<Vec<Outgoing>, String> {
        let down = self.down.clone();
        let runs = |guest: &Name| !down.contains(guest);
        let issuer = Issuer { key: &self.key, incarnations: &self.incarnations };
        self.pairs.want(&self.topology, issuer, &member(one), &member(other), runs).map_err(|error| error.to_string())
    }
}

/// The end in an order to make a pair.
fn held(order: &Outgoing) -> RingPairEnd {
    let Order::MakePair(held) = &order.order else { panic!("{order:?}") };
    held.clone()
}

fn receivers(orders: &[Outgoing]) -> Vec<&str> {
    orders.iter().map(|out| out.to.as_str()).collect()
}

#[test]
fn each_member_decides_the_buffers_of_its_inbound_ring() {
    let mut world = World::new();
    let orders = world.want("a.dev0", "b.dev0").unwrap();
    assert_eq!(receivers(&orders), ["a", "b"]);
    let buffers = |order: &Outgoing| {
        let RingPairEnd { inbound, outbound, .. } = held(order);
        (inbound.count, outbound.count, inbound.bytes)
    };
    assert_eq!(buffers(&orders[0]), (32, 8, 16 << 10));
    assert_eq!(buffers(&orders[1]), (8, 32, 16 << 10));
    assert_eq!(held(&orders[0]).pair, held(&orders[1]).pair);
    // Both may ask at once: it stays one pair, charged to the first.
    assert!(world.want("b.dev0", "a.dev0").unwrap().is_empty());
    assert_eq!((world.pairs.pairs.len(), world.pairs.charged(&name("a"))), (1, 40 * (16 << 10)));
    assert_eq!(world.pairs.charged(&name("b")), 0);
}

#[test]
fn events_about_a_pair_count_once_and_only_from_its_guests() {
    let mut world = World::new();
    world.want("a.dev0", "b.dev0").unwrap();
    let pair = world.pair(1);
    let forged = RingPairId(Ticket::claimed(1, [0; 2]));
    assert!(world.pairs.memory(forged, &name("b")).is_none(), "its number is not enough");
    assert!(world.pairs.memory(pair, &name("c")).is_none(), "a pair of others");
    assert_eq!(receivers(&[world.pairs.memory(pair, &name("b")).unwrap()]), ["a"]);
    assert!(world.pairs.memory(pair, &name("b")).is_none(), "the memory is passed on once");
    assert_eq!(receivers(&[world.pairs.memory(pair, &name("a")).unwrap()]), ["b"]);
    assert_eq!(world.pairs.linked(pair, &name("a")), Some(&member("b.dev0")));
    assert_eq!(world.pairs.linked(pair, &name("a")), None);
    assert_eq!(world.pairs.linked(pair, &name("c")), None);
    assert_eq!(receivers(&world.pairs.idle(pair, &name("a"))), ["a", "b"]);
    assert!(world.pairs.idle(pair, &name("b")).is_empty(), "both have been asked");
    assert!(world.pairs.lost(forged, &name("a"), "x", true).is_empty());
    assert_eq!(world.pairs.pairs.len(), 1);
}

#[test]
fn members_that_may_not_couple_are_refused_with_a_reason() {
    let mut world = World::new();
    for (one, other, why) in [
        ("a.dev0", "d.dev0", "is on network lan, but d.dev0 is on network other"),
        ("a.dev0", "x.dev0", "the topology has no device x.dev0"),
        ("a.dev0", "b.dev7", "the topology has no device b.dev7"),
        ("a.dev0", "a.dev0", "belong to the same guest"),
    ] {
        assert!(world.want(one, other).unwrap_err().contains(why), "{one} {other}");
    }
    let lan = world.topology.networks.get_mut(&name("lan")).unwrap();
    lan.access = Access::Restricted([name("a"), name("c")].into());
    assert!(world.want("a.dev0", "b.dev0").unwrap_err().contains("does not grant access to guest b"));
    assert!(world.want("b.dev0", "a.dev0").unwrap_err().contains("does not grant access to guest b"));
    assert!(world.pairs.pairs.is_empty());
}

#[test]
fn a_pair_counts_against_the_limits_of_both_guests() {
    let mut world = World::new();
    world.want("a.dev0", "b.dev0").unwrap();
    assert!(world.want("a.dev0", "c.dev0").unwrap_err().contains("ring_bytes_max"), "40 and 64 buffers of 16 KB");
    world.want("c.dev0", "a.dev0").unwrap();
    assert!(world.want("b.dev0", "c.dev0").unwrap_err().contains("guest c has 1 ring pairs"));
    let pair = world.pair(2);
    world.pairs.lost(pair, &name("c"), "gone", false);
    world.want("b.dev0", "c.dev0").unwrap();
}

#[test]
fn a_guest_that_starts_again_gets_its_pairs_again() {
    let mut world = World::new();
    world.want("a.dev0", "b.dev0").unwrap();
    world.down.insert(name("b"));
    assert_eq!(receivers(&world.pairs.gone(&name("b"))), ["a"]);
    assert!(world.want("a.dev0", "b.dev0").unwrap().is_empty(), "b is not there yet");
    assert!(world.pairs.pairs.is_empty());
    world.down.clear();
    let wanted = world.pairs.wanted_with(&name("b"));
    assert_eq!(wanted, [(member("a.dev0"), member("b.dev0"))]);
    let orders = world.want("a.dev0", "b.dev0").unwrap();
    assert_eq!(held(&orders[0]).pair.0.number(), 2, "a number is of one pair for ever");
    assert!(world.pairs.wanted_with(&name("b")).is_empty());
}

#[test]
fn members_get_no_pair_after_a_violation_until_one_starts_again() {
    let mut world = World::new();
    world.want("a.dev0", "b.dev0").unwrap();
    let pair = world.pair(1);
    assert!(world.pairs.lost(pair, &name("c"), "x", true).is_empty(), "not its pair");
    assert_eq!(receivers(&world.pairs.lost(pair, &name("a"), "bad index", true)), ["b"]);
    assert!(world.want("b.dev0", "a.dev0").unwrap_err().contains("get no ring pair, because one of them violated"));
    world.want("b.dev0", "c.dev0").unwrap();
    world.pairs.gone(&name("b"));
    assert_eq!(world.want("b.dev0", "a.dev0").unwrap().len(), 2);
}

#[test]
fn an_idle_pair_ends_when_both_guests_send_nothing_more() {
    let mut world = World::new();
    world.want("a.dev0", "b.dev0").unwrap();
    let pair = world.pair(1);
    assert!(world.pairs.idle(pair, &name("c")).is_empty());
    assert_eq!(receivers(&world.pairs.idle(pair, &name("b"))), ["a", "b"]);
    assert!(world.pairs.quiet(pair, &name("b")).is_empty());
    let orders = world.pairs.quiet(pair, &name("a"));
    assert!(matches!(orders[0].order, Order::Unpair { .. }) && receivers(&orders) == ["a", "b"]);
    assert!(world.pairs.pairs.is_empty() && world.pairs.wanted_with(&name("a")).is_empty());
    assert!(world.pairs.quiet(pair, &name("a")).is_empty());
}

#[test]
fn a_guest_without_access_loses_its_pairs_and_requests() {
    let mut world = World::new();
    world.want("a.dev0", "b.dev0").unwrap();
    world.down.insert(name("c"));
    world.want("b.dev0", "c.dev0").unwrap();
    world.topology.networks.get_mut(&name("lan")).unwrap().access = Access::Restricted([name("a"), name("c")].into());
    assert_eq!(receivers(&world.pairs.revoke(&world.topology, &name("b"))), ["a", "b"]);
    assert!(world.pairs.pairs.is_empty() && world.pairs.wanted_with(&name("c")).is_empty());
}

#[test]
fn reported_pairs_are_adopted_and_half_reported_ones_end() {
    let mut world = World::new();
    let [a_of_b, b_of_a] = world
        .want("a.dev0", "b.dev0")
        .unwrap()
        .try_into()
        .map(|orders: [_; 2]| orders.map(|order| held(&order)))
        .unwrap();
    let [b_of_c, _] = world
        .want("b.dev0", "c.dev0")
        .unwrap()
        .try_into()
        .map(|orders: [_; 2]| orders.map(|order| held(&order)))
        .unwrap();
    let mut world = world.succeed();
    assert!(world.adopt("a", &a_of_b) && world.adopt("b", &b_of_c) && world.adopt("b", &b_of_a));
    assert_eq!(world.pairs.charged(&name("a")), 40 * (16 << 10), "the charge stays with the guest that asked");
    assert_eq!(world.pairs.charged(&name("b")), 40 * (16 << 10));
    assert!(world.pairs.end_half_known(|guest| *guest == name("c")).is_empty(), "c may still report");
    assert_eq!(receivers(&world.pairs.end_half_known(|_| false)), ["b", "c"]);
    assert_eq!(world.pairs.pairs.len(), 1);
    assert!(world.want("a.dev0", "b.dev0").unwrap().is_empty(), "they are joined");
    let orders = world.want("b.dev0", "c.dev0").unwrap();
    assert_eq!(held(&orders[0]).pair.0.number(), 3);
}

#[test]
fn a_pair_that_was_not_made_for_these_guests_is_not_adopted() {
    let mut world = World::new();
    let orders = world.want("a.dev0", "b.dev0").unwrap();
    let (good, of_b) = (held(&orders[0]), held(&orders[1]));
    let buffers = Buffers { bytes: 16 << 10, count: 128 };
    let number = |number| RingPairId(Ticket::claimed(number, [7; 2]));
    let mut world = world.succeed();
    let lies = [
        ("another guest's pair", "c", good.clone()),
        ("another partner", "a", RingPairEnd { member: member("c.dev0"), ..good.clone() }),
        ("another device", "a", RingPairEnd { device: name("dev1"), ..good.clone() }),
        ("the partner asked for it", "a", RingPairEnd { asked: false, ..good.clone() }),
        ("other buffers", "a", RingPairEnd { inbound: buffers, ..good.clone() }),
        ("a pair with itself", "a", RingPairEnd { member: member("a.dev0"), ..good.clone() }),
        ("an invented number", "a", RingPairEnd { pair: number(2), ..good.clone() }),
        ("the last number", "a", RingPairEnd { pair: number(u64::MAX), ..good.clone() }),
    ];
    for (what, guest, lie) in lies {
        assert!(!world.adopt(guest, &lie), "{what}");
    }
    assert!(world.pairs.pairs.is_empty() && world.pairs.of_couple.is_empty());
    assert_eq!(
        held(&world.want("b.dev0", "c.dev0").unwrap()[0]).pair.0.number(),
        1,
        "a refused report does not change the next number"
    );
    assert!(world.adopt("a", &good) && world.adopt("a", &good), "a true report is taken, also twice");
    assert_eq!(world.pairs.pairs.len(), 2);
    // One of the two has started anew since.
    for guest in ["a", "b"] {
        let mut world = World {
            pairs: RingPairs::default(),
            key: world.key.clone(),
            incarnations: world.incarnations.clone(),
            ..World::new()
        };
        world.incarnations.insert(name(guest), 99);
        assert!(!world.adopt("a", &good) && !world.adopt("b", &of_b), "an earlier incarnation of {guest}");
    }
    // The two have another pair by now.
    let mut world = World { pairs: RingPairs::default(), ..world };
    let orders = world.want("b.dev0", "a.dev0").unwrap();
    assert_ne!(held(&orders[0]).pair, good.pair);
    assert!(!world.adopt("a", &good));
    // Access was revoked.
    let mut world = World { pairs: RingPairs::default(), ..world };
    world.topology.networks.get_mut(&name("lan")).unwrap().access = Access::Restricted([name("a")].into());
    assert!(!world.adopt("a", &good));
}

#[test]
fn adopted_pairs_respect_the_limits() {
    let mut world = World::new();
    world.topology.guests.get_mut(&name("b")).unwrap().pairs_max = 2;
    let [one, two] = ["a.dev0", "c.dev0"].map(|partner| held(&world.want("b.dev0", partner).unwrap()[0]));
    let mut world = world.succeed();
    world.topology.guests.get_mut(&name("b")).unwrap().pairs_max = 1;
    assert!(world.adopt("b", &one) && !world.adopt("b", &two));
}

#[test]
fn a_pair_that_only_the_partner_reports_does_not_count_against_a_guest() {
    let mut world = World::new();
    // c may have one pair: with a first, which ends, then with b.
    let ended = held(&world.want("c.dev0", "a.dev0").unwrap()[1]);
    let pair = world.pair(1);
    world.pairs.lost(pair, &name("a"), "it says so", false);
    let live = held(&world.want("c.dev0", "b.dev0").unwrap()[0]);
    let mut world = world.succeed();
    assert!(world.adopt("a", &ended), "its ticket is good");
    assert_eq!(world.pairs.charged(&name("c")), 0);
    assert!(world.adopt("c", &live), "the ended pair takes no place of it");
    assert_eq!(receivers(&world.pairs.end_half_known(|guest| *guest == name("b"))), ["c", "a"]);
}
