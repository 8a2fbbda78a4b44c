//! Routes: longest prefix, bounds, and agreement with a search through all prefixes.

use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn via(device: u16) -> Target {
    Target::Via { device: DeviceId(device), gateway: None }
}

fn v4(bits: u32, length: u8) -> Prefix {
    Prefix::new(IpAddr::V4(Ipv4Addr::from_bits(bits)), length).unwrap()
}

fn v6(bits: u128, length: u8) -> Prefix {
    Prefix::new(IpAddr::V6(Ipv6Addr::from_bits(bits)), length).unwrap()
}

fn bits(prefix: Prefix) -> u128 {
    match prefix.address() {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The right answer, by a search through every prefix.
fn scan(routes: &[(Prefix, Target)], to: IpAddr) -> Option<Target> {
    let host = bits(Prefix::new(to, 0).unwrap());
    let covers = |p: &Prefix| {
        p.address().is_ipv4() == to.is_ipv4() && (bits(*p) ^ host).leading_zeros() >= u32::from(p.length())
    };
    routes.iter().filter(|(p, _)| covers(p)).max_by_key(|(p, _)| p.length()).map(|(_, target)| *target)
}

#[test]
fn the_longest_prefix_wins_a_route_lookup_and_its_removal_uncovers_the_next() {
    let mut routes = Routes::default();
    let host = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));
    for (length, device) in [(0, 0), (8, 1), (24, 2), (32, 3)] {
        routes.insert(Prefix::new(host, length).unwrap(), via(device)).unwrap();
        assert_eq!(routes.lookup(host), Some(via(device)));
    }
    for (length, device) in [(32, 2), (24, 1), (8, 0)] {
        assert!(routes.remove(Prefix::new(host, length).unwrap()));
        assert_eq!(routes.lookup(host), Some(via(device)));
    }
    assert!(!routes.is_empty());
    assert!(routes.remove(Prefix::new(host, 0).unwrap()));
    assert!(!routes.remove(Prefix::new(host, 0).unwrap()));
    assert_eq!(routes.lookup(host), None);
    assert!(routes.is_empty());
}

#[test]
fn a_gateway_of_the_other_ip_version_is_refused() {
    let gateway = Some(IpAddr::V6(Ipv6Addr::LOCALHOST));
    let refused = Routes::default().insert(v4(0, 0), Target::Via { device: DeviceId(0), gateway });
    assert_eq!(refused, Err(RouteError::GatewayFamily));
}

#[test]
fn a_full_route_table_refuses_a_new_prefix_and_stays_unchanged() {
    let mut routes = Routes::bounded(3);
    let known = [v4(10 << 24, 8), v4(10 << 24, 16), v6(1 << 64, 64)];
    for prefix in known {
        routes.insert(prefix, via(1)).unwrap();
    }
    for new in [v4(10 << 24, 9), v4(11 << 24, 8), v6(1 << 64, 65), v6(2 << 64, 64), v6(0, 8)] {
        assert_eq!(routes.insert(new, via(2)), Err(RouteError::Full), "{new:?}");
        assert_eq!((routes.len(), routes.remove(new)), (3, false), "{new:?}");
        assert_eq!(routes.lookup(new.address()), known.iter().any(|k| k.covers(new.address())).then(|| via(1)));
    }
    assert_eq!((routes.hops.slots.len(), routes.hops.free.len()), (2, 0), "no hop of what was refused is kept");
    assert!(routes.remove(known[1]));
    assert_eq!(routes.insert(v4(11 << 24, 8), via(2)), Ok(()), "there is room again");
    assert_eq!(Routes::default().max, ROUTES_MAX);
}

#[test]
fn a_route_in_a_full_table_can_be_changed() {
    let mut routes = Routes::bounded(2);
    let known = [v4(10 << 24, 8), v6(1 << 64, 64)];
    for device in 1..4 {
        for prefix in known {
            assert_eq!(routes.insert(prefix, via(device)), Ok(()), "{prefix:?}");
            assert_eq!(routes.lookup(prefix.address()), Some(via(device)));
        }
        assert_eq!(routes.len(), 2);
    }
    // A prefix is known by the bits that count.
    assert_eq!(routes.insert(v4((10 << 24) + 77, 8), via(7)), Ok(()));
    assert_eq!((routes.lookup(known[0].address()), routes.len()), (Some(via(7)), 2));
}

#[test]
fn a_route_table_takes_and_removes_a_hundred_thousand_prefixes() {
    let mut routes = Routes::default();
    let prefix = |i: u32| v4(i.wrapping_mul(0x9e37_79b1), 16 + u8::try_from(i % 13).unwrap());
    for i in 0..100_000 {
        routes.insert(prefix(i), via(u16::try_from(i % 7).unwrap())).unwrap();
    }
    let mut prefixes: Vec<Prefix> = (0..100_000).map(prefix).collect();
    let used = routes.v4.narrow.items.len();
    prefixes.sort_unstable_by_key(|p| (bits(*p), p.length()));
    for p in prefixes {
        routes.remove(p);
    }
    assert!(routes.is_empty());
    assert_eq!(routes.lookup(prefix(5).address()), None);
    assert!(routes.v4.narrow.items.len() <= used * 2, "blocks given back are used again");
    assert_eq!(routes.v4.lengths, [0; 129], "nothing is looked for in vain");
}

#[test]
fn routes_that_are_added_and_removed_reuse_memory() {
    let mut routes = Routes::default();
    let sizes = |routes: &Routes| {
        let table = &routes.v4;
        [table.nodes.items.len(), table.narrow.items.len(), table.wide.items.len()]
    };
    let mut after = Vec::new();
    for _ in 0..40 {
        for i in 0..1_000_u32 {
            routes.insert(v4(i.wrapping_mul(0x9e37_79b1), 24), via(1)).unwrap();
        }
        for i in 0..1_000_u32 {
            assert!(routes.remove(v4(i.wrapping_mul(0x9e37_79b1), 24)));
        }
        after.push(sizes(&routes));
    }
    assert_eq!(after[20], after[39]);
}

/// Addresses that share long beginnings, so that prefixes nest and leaves split.
fn crowded() -> impl Strategy<Value = (u128, u8)> {
    (any::<u16>(), any::<u16>(), 0..=128_u8).prop_map(|(high, low, length)| {
        ((u128::from(high & 0x3f) << 122) | (u128::from(low) << 100) | u128::from(low >> 4), length)
    })
}

proptest! {
    #[test]
    fn route_lookups_agree_with_a_search_through_all_prefixes(
        steps in proptest::collection::vec((crowded(), any::<bool>(), any::<bool>(), 0..5_u16), 1..300),
        hosts in proptest::collection::vec(crowded(), 20),
    ) {
        let (mut routes, mut model) = (Routes::default(), Vec::<(Prefix, Target)>::new());
        for ((address, length), short, keep, device) in steps {
            let high = u32::try_from(address >> 96).unwrap();
            let address = if short { v4(high, 0).address() } else { v6(address, 0).address() };
            let mut length = if short { length / 4 } else { length };
            let known = model.iter().map(|(p, _)| *p).find(|p| p.address() == address);
            if let (Some(known), false) = (known, keep) {
                length = known.length();
            }
            let p = Prefix::new(address, length).unwrap();
            let same = |q: &Prefix| q.length() == p.length() && scan(&[(*q, via(0))], address).is_some();
            let before = model.len();
            model.retain(|(q, _)| !same(q));
            if keep {
                model.push((p, via(device)));
                routes.insert(p, via(device)).unwrap();
            } else {
                prop_assert_eq!(routes.remove(p), before > model.len());
            }
            prop_assert_eq!(routes.len(), model.len());
            prop_assert_eq!(routes.lookup(address), scan(&model, address));
        }
        for (host, _) in hosts {
            let high = v4(u32::try_from(host >> 96).unwrap(), 0).address();
            for to in [high, v6(host, 0).address(), v6(host ^ 1, 0).address(), v6(host | 0xffff_ffff, 0).address()] {
                prop_assert_eq!(routes.lookup(to), scan(&model, to));
            }
        }
    }
}
