//! Shares of the reassembly table: the datagrams and bytes of each device and each source, and the largest of these shares. The
//! time of every operation grows with the logarithm of the number of shares. The limits of the reassembly table bound this
//! number.

use crate::link::frame::DeviceId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// The unit in which shares are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    Datagrams,
    Bytes,
}

impl Measure {
    const ALL: [Self; 2] = [Self::Datagrams, Self::Bytes];
}

/// The part of the reassembly table that a device or a source uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Share {
    pub(super) datagrams: usize,
    pub(super) bytes: usize,
    /// The number of the oldest datagram. Of two shares with equal weight, the one with the older datagram ranks first.
    pub(super) oldest: u64,
}

impl Share {
    pub(super) fn weight(&self, by: Measure) -> usize {
        match by {
            Measure::Datagrams => self.datagrams,
            Measure::Bytes => self.bytes,
        }
    }
}

/// A device or a source that has a share.
pub(super) trait Holder: Copy + Ord {
    const LEAST: Self;
}

impl Holder for DeviceId {
    const LEAST: Self = Self(0);
}

impl Holder for IpAddr {
    const LEAST: Self = Self::V4(Ipv4Addr::UNSPECIFIED);
}

type Rank<G, K> = (G, Reverse<usize>, u64, K);

/// The shares of holders `K`. Within each group `G`, they are ranked by weight.
#[derive(Debug)]
pub(super) struct Shares<G, K> {
    of: BTreeMap<(G, K), Share>,
    ranks: [BTreeSet<Rank<G, K>>; 2],
}

/// Returns the maximum memory of one share, in bytes: the share and its place in both rankings. The nodes of the trees can be
/// half empty, so the size is doubled.
pub(super) const fn bytes_each<G, K>() -> usize {
    2 * (size_of::<((G, K), Share)>() + 2 * size_of::<Rank<G, K>>())
}

impl<G, K> Default for Shares<G, K> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), ranks: [BTreeSet::new(), BTreeSet::new()] }
    }
}

impl<G: Copy + Ord, K: Holder> Shares<G, K> {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty() && self.ranks.iter().all(BTreeSet::is_empty)
    }

    pub(super) fn get(&self, group: G, holder: K) -> Share {
        self.of.get(&(group, holder)).copied().unwrap_or_default()
    }

    /// Sets the share of a holder. A share without datagrams is removed.
    pub(super) fn set(&mut self, group: G, holder: K, share: Share) {
        let before = if share.datagrams == 0 {
            self.of.remove(&(group, holder))
        } else {
            self.of.insert((group, holder), share)
        };
        for (by, ranks) in Measure::ALL.into_iter().zip(&mut self.ranks) {
            let rank = |share: &Share| (group, Reverse(share.weight(by)), share.oldest, holder);
            let (old, new) = (before.as_ref().map(rank), (share.datagrams > 0).then(|| rank(&share)));
            if old == new {
                continue;
            }
            old.map(|old| ranks.remove(&old));
            new.map(|new| ranks.insert(new));
        }
    }

    /// Returns the holder with the largest share of a group, or `None` if the group has no share.
    pub(super) fn heaviest(&self, group: G, by: Measure) -> Option<K> {
        let [by_datagrams, by_bytes] = &self.ranks;
        let ranks = match by {
            Measure::Datagrams => by_datagrams,
            Measure::Bytes => by_bytes,
        };
        let (of, _, _, holder) = ranks.range((group, Reverse(usize::MAX), 0, K::LEAST)..).next()?;
        (*of == group).then_some(*holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(datagrams: usize, bytes: usize, oldest: u64) -> Share {
        Share { datagrams, bytes, oldest }
    }

    #[test]
    fn the_source_with_the_largest_share_of_reassembly_is_found_by_each_measure() {
        let host = |n: u8| IpAddr::from([10, 0, 0, n]);
        let (one, other) = (DeviceId(1), DeviceId(2));
        let mut shares = Shares::default();
        assert_eq!(shares.heaviest(one, Measure::Bytes), None);
        shares.set(one, host(1), share(2, 900, 5));
        shares.set(one, host(2), share(7, 80, 6));
        shares.set(other, host(3), share(90, 9_000, 1));
        let heaviest = |shares: &Shares<_, _>, device| Measure::ALL.map(|by| shares.heaviest(device, by).unwrap());
        assert_eq!(heaviest(&shares, one), [host(2), host(1)]);
        assert_eq!(heaviest(&shares, other), [host(3); 2], "groups are apart");
        shares.set(one, host(1), share(7, 80, 7));
        assert_eq!(heaviest(&shares, one), [host(2); 2], "the older of two alike");
        shares.set(one, host(2), share(7, 80, 8));
        assert_eq!(heaviest(&shares, one), [host(1); 2]);
        assert_eq!(shares.get(one, host(2)), share(7, 80, 8));
        for (device, n) in [(one, 1), (one, 2), (other, 3)] {
            shares.set(device, host(n), Share::default());
        }
        assert!(shares.is_empty());
    }
}
