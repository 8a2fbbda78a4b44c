//! Values for the identification field of packets that may be fragmented.
//!
//! Each IPv4 destination has a counter with a secret start value. A few destinations may share one counter. If all destinations
//! shared one counter, each of them could see how many packets are sent to the others (RFC 7739).

use crate::limits::IPV4_IDENT_COUNTERS;
use crate::seed::{Purpose, Random, Secret, Seed};
use std::net::Ipv4Addr;

#[derive(Debug)]
pub(crate) struct Identifications {
    /// The secret from which the start value of each IPv4 destination is derived.
    starts: Secret,
    /// Counters of IPv4 destinations. The hash of an address selects the counter.
    counters: Box<[u16]>,
    /// Generates the identification that all fragments of one IPv6 packet have.
    pub(crate) ipv6: Random,
}

impl Identifications {
    pub(crate) fn new(seed: &Seed) -> Self {
        let counters = vec![0; IPV4_IDENT_COUNTERS].into_boxed_slice();
        Self { starts: seed.secret(Purpose::Ipv4Idents), counters, ipv6: seed.random(Purpose::FragmentIdents) }
    }

    pub(crate) fn next_v4(&mut self, to: Ipv4Addr) -> u16 {
        let hash = self.starts.hash(&to.octets());
        let at = usize::try_from(hash >> 16).unwrap_or(0) % IPV4_IDENT_COUNTERS;
        let Some(counter) = self.counters.get_mut(at) else { return 0 };
        *counter = counter.wrapping_add(1);
        u16::try_from(hash & 0xffff).unwrap_or(0).wrapping_add(*counter)
    }
}
