//! Pairs from the words of guests alone: who may couple, what limits say, what comes back.

use super::*;
use crate::topology::Access;

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
    pairs: Pairs,
    down: BTreeSet<Name>,
}

impl World {
    fn new() -> Self {
        Self { topology: Topology::parse(LAN).unwrap(), pairs: Pairs::default(), down: BTreeSet::new() }
    }

    fn want(&mut self, one: &str, other: &str) -> Result<Vec<Outgoing>, String> {
        let down = self.down.clone();
        let runs = |guest: &Name| !down.contains(guest);
        self.pairs.want(&self.topology, &member(one), &member(other), runs).map_err(|error| error.to_string())
    }
}

fn told(orders: &[Outgoing]) -> Vec<&str> {
    orders.iter().map(|out| out.to.as_str()).collect()
}

#[test]
fn each_member_says_how_many_buffers_frames_to_it_have() {
    let mut world = World::new();
    let orders = world.want("a.dev0", "b.dev0").unwrap();
    assert_eq!(told(&orders), ["a", "b"]);
    let buffers = |order: &Order| {
        let Order::Pair { inbound, outbound, .. } = order else { panic!("{order:?}") };
        (inbound.count, outbound.count, inbound.bytes)
    };
    assert_eq!(buffers(&orders[0].order), (32, 8, 16 << 10));
    assert_eq!(buffers(&orders[1].order), (8, 32, 16 << 10));
    assert_eq!(orders[0].with, orders[1].with);
    // Both may ask at once: it stays one pair, charged to the first.
    assert!(world.want("b.dev0", "a.dev0").unwrap().is_empty());
    assert_eq!((world.pairs.len(), world.pairs.charged(&name("a"))), (1, 40 * (16 << 10)));
    assert_eq!(world.pairs.charged(&name("b")), 0);
    assert_eq!(told(&[world.pairs.memory(PairId(1), &name("b")).unwrap()]), ["a"]);
    assert!(world.pairs.memory(PairId(1), &name("c")).is_none(), "a pair of others");
}

#[test]
fn who_may_not_couple_is_refused_and_told_why() {
    let mut world = World::new();
    for (one, other, why) in [
        ("a.dev0", "d.dev0", "is on network lan, d.dev0 on other"),
        ("a.dev0", "x.dev0", "there is no device x.dev0"),
        ("a.dev0", "b.dev7", "there is no device b.dev7"),
        ("a.dev0", "a.dev0", "of one guest"),
    ] {
        assert!(world.want(one, other).unwrap_err().contains(why), "{one} {other}");
    }
    let lan = world.topology.networks.get_mut(&name("lan")).unwrap();
    lan.access = Access::Restricted([name("a"), name("c")].into());
    assert!(world.want("a.dev0", "b.dev0").unwrap_err().contains("does not grant access to guest b"));
    assert!(world.want("b.dev0", "a.dev0").unwrap_err().contains("does not grant access to guest b"));
    assert!(world.pairs.is_empty());
}

#[test]
fn limits_are_those_of_who_asks_and_of_who_is_asked() {
    let mut world = World::new();
    world.want("a.dev0", "b.dev0").unwrap();
    assert!(world.want("a.dev0", "c.dev0").unwrap_err().contains("ring_bytes_max"), "40 and 64 buffers of 16 KB");
    world.want("c.dev0", "a.dev0").unwrap();
    assert!(world.want("b.dev0", "c.dev0").unwrap_err().contains("guest c has 1 pairs"));
    world.pairs.lost(PairId(2), &name("c"), "gone", false);
    world.want("b.dev0", "c.dev0").unwrap();
}

#[test]
fn a_guest_that_comes_back_gets_its_pairs_again() {
    let mut world = World::new();
    world.want("a.dev0", "b.dev0").unwrap();
    world.down.insert(name("b"));
    assert_eq!(told(&world.pairs.gone(&name("b"))), ["a"]);
    assert!(world.want("a.dev0", "b.dev0").unwrap().is_empty(), "b is not there yet");
    assert!(world.pairs.is_empty());
    world.down.clear();
    let wanted = world.pairs.wanted_with(&name("b"));
    assert_eq!(wanted, [(member("a.dev0"), member("b.dev0"))]);
    let orders = world.want("a.dev0", "b.dev0").unwrap();
    assert!(matches!(orders[0].order, Order::Pair { pair: PairId(2), .. }), "a number is of one pair for ever");
    assert!(world.pairs.wanted_with(&name("b")).is_empty());
}

#[test]
fn a_violation_keeps_two_members_apart_until_one_starts_anew() {
    let mut world = World::new();
    world.want("a.dev0", "b.dev0").unwrap();
    assert!(world.pairs.lost(PairId(1), &name("c"), "x", true).is_empty(), "not its pair");
    assert_eq!(told(&world.pairs.lost(PairId(1), &name("a"), "bad index", true)), ["b"]);
    assert!(world.want("b.dev0", "a.dev0").unwrap_err().contains("kept apart after a violation"));
    world.want("b.dev0", "c.dev0").unwrap();
    world.pairs.gone(&name("b"));
    assert_eq!(world.want("b.dev0", "a.dev0").unwrap().len(), 2);
}

#[test]
fn an_idle_pair_goes_when_both_are_quiet() {
    let mut world = World::new();
    world.want("a.dev0", "b.dev0").unwrap();
    assert!(world.pairs.idle(PairId(1), &name("c")).is_empty());
    assert_eq!(told(&world.pairs.idle(PairId(1), &name("b"))), ["a", "b"]);
    assert!(world.pairs.quiet(PairId(1), &name("b")).is_empty());
    let orders = world.pairs.quiet(PairId(1), &name("a"));
    assert!(matches!(orders[0].order, Order::Unpair { .. }) && told(&orders) == ["a", "b"]);
    assert!(world.pairs.is_empty() && world.pairs.wanted_with(&name("a")).is_empty());
    assert!(world.pairs.quiet(PairId(1), &name("a")).is_empty());
}

#[test]
fn a_revoked_guest_loses_its_pairs_and_wishes() {
    let mut world = World::new();
    world.want("a.dev0", "b.dev0").unwrap();
    world.down.insert(name("c"));
    world.want("b.dev0", "c.dev0").unwrap();
    world.topology.networks.get_mut(&name("lan")).unwrap().access = Access::Restricted([name("a"), name("c")].into());
    assert_eq!(told(&world.pairs.revoke(&world.topology, &name("b"))), ["a", "b"]);
    assert!(world.pairs.is_empty() && world.pairs.wanted_with(&name("c")).is_empty());
}

#[test]
fn pairs_of_before_are_adopted_and_half_known_ones_end() {
    let mut world = World::new();
    let buffers = |count| Buffers { bytes: 16 << 10, count };
    let held = |pair, member: MemberId, inbound, outbound| HeldPair {
        pair: PairId(pair),
        device: name("dev0"),
        member,
        inbound: buffers(inbound),
        outbound: buffers(outbound),
    };
    world.pairs.adopt(&name("a"), &held(7, member("b.dev0"), 16, 8));
    world.pairs.adopt(&name("a"), &held(9, member("c.dev0"), 16, 16));
    world.pairs.adopt(&name("b"), &held(7, member("a.dev0"), 8, 16));
    assert!(world.pairs.end_half_known(|guest| *guest == name("c")).is_empty(), "c has not been heard");
    assert_eq!(told(&world.pairs.end_half_known(|_| false)), ["a", "c"]);
    assert_eq!(world.pairs.len(), 1);
    assert!(world.want("a.dev0", "b.dev0").unwrap().is_empty(), "they are joined");
    let orders = world.want("b.dev0", "c.dev0").unwrap();
    assert!(matches!(orders[0].order, Order::Pair { pair: PairId(10), .. }));
}
