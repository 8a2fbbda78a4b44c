//! A set of addresses in which the addresses of packets are looked up. A small set is a list. A larger set also has a hash table,
//! so that the CPU time of a lookup does not grow with the number of addresses. Addresses are never removed.

use crate::seed::Keyed;
use std::collections::HashSet;
use std::hash::Hash;

/// Maximum number of addresses in a set without a hash table. The search of such a short list is faster than the hash of an
/// address.
const FEW: usize = 8;

/// A set of addresses of one IP version.
#[derive(Debug)]
pub(crate) struct Addresses<A> {
    list: Vec<A>,
    /// All addresses of the set if there are more than [`FEW`]. Otherwise the table is empty.
    table: HashSet<A, Keyed>,
}

impl<A: Copy + Eq + Hash> Addresses<A> {
    pub(crate) fn new(keyed: Keyed) -> Self {
        Self { list: Vec::new(), table: HashSet::with_hasher(keyed) }
    }

    /// Adds an address if it is not in the set yet.
    pub(crate) fn insert(&mut self, address: A) {
        if self.contains(address) {
            return;
        }
        self.list.push(address);
        if self.list.len() > FEW {
            let known = self.table.len();
            self.table.extend(&self.list[known..]);
        }
    }

    #[inline]
    pub(crate) fn contains(&self, address: A) -> bool {
        if self.list.len() <= FEW { self.list.contains(&address) } else { self.table.contains(&address) }
    }

    /// Returns the address that was added first.
    #[inline]
    pub(crate) fn first(&self) -> Option<A> {
        self.list.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn set<A: Copy + Eq + Hash>() -> Addresses<A> {
        Addresses::new(Seed::simulated(1).keyed(Purpose::AddressTables))
    }

    #[test]
    fn an_address_set_of_any_size_has_exactly_the_inserted_addresses() {
        let (mut v4, mut v6) = (set(), set());
        assert_eq!(v4.first(), None);
        for count in 0..3_000_u32 {
            let own = |n: u32| (Ipv4Addr::from_bits(n << 8), Ipv6Addr::from_bits(u128::from(n) << 64));
            for _ in 0..2 {
                v4.insert(own(count).0);
                v6.insert(own(count).1);
            }
            let few = count < 40;
            for n in (0..=count + 1).filter(|n| few || n % 97 == 0 || *n + 2 > count) {
                assert_eq!((v4.contains(own(n).0), v6.contains(own(n).1)), (n <= count, n <= count), "{n} of {count}");
            }
            assert_eq!((v4.first(), v6.first()), (Some(own(0).0), Some(own(0).1)));
        }
        assert_eq!((v4.list.len(), v4.table.len()), (3_000, 3_000), "each once");
    }

    #[test]
    fn a_small_set_of_addresses_has_no_hash_table() {
        let mut few = set();
        for n in 0..FEW {
            few.insert(n);
        }
        assert!(few.table.is_empty());
        few.insert(FEW);
        assert_eq!(few.table.len(), FEW + 1);
    }
}
