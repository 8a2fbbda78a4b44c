//! Path MTUs that routers reported (RFC 1191, RFC 8201). They are stored by destination, in a table of limited size. The entries
//! expire.

use crate::limits::{MTU_IPV4_MIN, MTU_IPV6_MIN, PATH_MTU_AGE, PATH_MTUS_MAX};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Maximum memory of an entry, in bytes: its place in the table and in the order of expiry.
pub(crate) const ENTRY_BYTES: usize = 2 * size_of::<(IpAddr, (u16, Instant))>() + 2 * size_of::<(Instant, IpAddr)>();

/// Returns the MTU to use after a router reported `mtu`. The result is never below the smallest MTU (RFC 8201 4). If an older
/// router reports 0, the result is the smallest MTU.
pub(crate) fn believable(mtu: u16, to: IpAddr) -> u16 {
    mtu.max(if to.is_ipv4() { MTU_IPV4_MIN } else { MTU_IPV6_MIN })
}

#[derive(Debug, Default)]
pub(crate) struct PathMtus {
    paths: BTreeMap<IpAddr, (u16, Instant)>,
    ages: BTreeSet<(Instant, IpAddr)>,
}

impl PathMtus {
    /// Records the MTU of a path. An MTU above the known one is ignored until the known one expires. If the table is full, the
    /// entry that expires first is evicted.
    pub(crate) fn learn(&mut self, now: Instant, to: IpAddr, mtu: u16) {
        if self.get(now, to).is_some_and(|known| known <= mtu) {
            return;
        }
        if let Some((_, until)) = self.paths.remove(&to) {
            self.ages.remove(&(until, to));
        } else if self.paths.len() >= PATH_MTUS_MAX
            && let Some((_, oldest)) = self.ages.pop_first()
        {
            self.paths.remove(&oldest);
        }
        let until = now + PATH_MTU_AGE;
        self.paths.insert(to, (mtu, until));
        self.ages.insert((until, to));
    }

    pub(crate) fn len(&self) -> usize {
        self.paths.len()
    }

    pub(crate) fn get(&self, now: Instant, to: IpAddr) -> Option<u16> {
        self.paths.get(&to).filter(|(_, until)| now < *until).map(|(mtu, _)| *mtu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_memory_bound_covers_trees_whose_nodes_are_half_full() {
        let entry = size_of::<(IpAddr, (u16, Instant))>() + size_of::<(Instant, IpAddr)>();
        assert!((2 * entry..3 * entry).contains(&ENTRY_BYTES), "{entry} {ENTRY_BYTES}");
    }

    #[test]
    fn a_learnt_path_mtu_expires_and_a_full_table_evicts_the_oldest() {
        let (mut paths, now) = (PathMtus::default(), Instant::default());
        let host = |n: u32| IpAddr::V4(Ipv4Addr::from_bits(n));
        paths.learn(now, host(1), 1400);
        paths.learn(now, host(1), 1500);
        assert_eq!(paths.get(now, host(1)), Some(1400));
        paths.learn(now, host(1), 1300);
        assert_eq!((paths.get(now, host(1)), paths.get(now, host(2))), (Some(1300), None));
        assert_eq!(paths.get(now + PATH_MTU_AGE, host(1)), None);
        paths.learn(now + PATH_MTU_AGE, host(1), 1500);
        assert_eq!(paths.get(now + PATH_MTU_AGE, host(1)), Some(1500));
        for n in 2..5000 {
            paths.learn(now + PATH_MTU_AGE * 2, host(n), 1400);
        }
        assert_eq!((paths.paths.len(), paths.ages.len()), (PATH_MTUS_MAX, PATH_MTUS_MAX));
        assert_eq!(paths.get(now + PATH_MTU_AGE * 2, host(1)), None);
    }
}
