//! The source filter of a device: the source addresses that the station at the other end of the link may use.
//!
//! The owner of the stack sets the filter with `Stack::set_sources`. A packet with another source is dropped and counted before
//! it has any effect. This applies to packets for this stack and to packets that would be forwarded. A device without a filter
//! accepts every valid source.
//!
//! A source must also differ from the stack's own addresses. Each change of the routes, the stack's addresses or the source filters
//! increases a count, the version of the routes. Therefore the filter stores the last source that passed, together with this
//! version. While the version is the same, the next packet from the same source needs only one comparison.

use super::device::DeviceError;
use crate::limits::SOURCE_PREFIXES_MAX;
use crate::wire::address::Prefix;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The admitted source addresses, as a sorted list of address ranges.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sources {
    v4: Vec<Run>,
    v6: Vec<Run>,
}

/// The first and the last address of a range.
type Run = (u128, u128);

pub(crate) const RUN_BYTES: usize = size_of::<Run>();

impl Sources {
    /// Creates a filter. For each address, the longest prefix of both lists that covers the address decides. The filter admits
    /// the address if this prefix is in `admitted` and not in `refused`. An address that no prefix covers is refused.
    ///
    /// # Errors
    /// Returns [`DeviceError::Full`] if there are more than [`SOURCE_PREFIXES_MAX`] prefixes in total.
    pub fn new(admitted: &[Prefix], refused: &[Prefix]) -> Result<Self, DeviceError> {
        if admitted.len() + refused.len() > SOURCE_PREFIXES_MAX {
            return Err(DeviceError::Full);
        }
        let lists = [(admitted, true), (refused, false)];
        let all = lists.into_iter().flat_map(|(list, is_in)| list.iter().map(move |prefix| (*prefix, is_in)));
        let rules = |v4: bool| {
            let same_version = all.clone().filter(|(prefix, _)| prefix.address().is_ipv4() == v4);
            same_version.map(|(prefix, is_in)| Rule::new(prefix, is_in)).collect()
        };
        Ok(Self { v4: runs(rules(true)), v6: runs(rules(false)) })
    }

    /// Returns whether packets from an address are accepted.
    pub fn admits(&self, from: IpAddr) -> bool {
        let (runs, from) = match from {
            IpAddr::V4(from) => (&self.v4, u128::from(from.to_bits())),
            IpAddr::V6(from) => (&self.v6, from.to_bits()),
        };
        let at = runs.partition_point(|(_, last)| *last < from);
        runs.get(at).is_some_and(|(first, _)| *first <= from)
    }

    pub(crate) fn runs(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}

#[derive(Debug, Clone, Copy)]
struct Rule {
    first: u128,
    last: u128,
    is_in: bool,
}

impl Rule {
    fn new(prefix: Prefix, is_in: bool) -> Self {
        let (bits, address) = match prefix.address() {
            IpAddr::V4(address) => (32, u128::from(address.to_bits())),
            IpAddr::V6(address) => (128, address.to_bits()),
        };
        let behind = u128::MAX.checked_shr(128 - bits + u32::from(prefix.length())).unwrap_or(0);
        Self { first: address & !behind, last: address | behind, is_in }
    }
}

/// Returns the addresses that the rules admit. Each rule is a prefix, so two rules either are disjoint, or one contains the other.
fn runs(mut rules: Vec<Rule>) -> Vec<Run> {
    // Sort each rule before the rules that it contains. Of two rules with the same prefix, the refusing one comes last, so it
    // decides.
    rules.sort_by_key(|rule| (rule.first, std::cmp::Reverse(rule.last), !rule.is_in));
    let mut runs: Vec<Run> = Vec::new();
    let mut take = |first: u128, last: u128, rule: &Rule| {
        if !rule.is_in || first > last {
            return;
        }
        match runs.last_mut() {
            Some(run) if run.1.checked_add(1) == Some(first) => run.1 = last,
            Some(_) | None => runs.push((first, last)),
        }
    };
    // `around` has the rules that contain the current address, the innermost one last. `at` is the first address that is not decided yet.
    let (mut around, mut at) = (Vec::<Rule>::new(), 0);
    for rule in rules {
        while let Some(ended) = around.pop_if(|outer| outer.last < rule.first) {
            take(at, ended.last, &ended);
            at = at.max(ended.last + 1);
        }
        if let Some((outer, before)) = around.last().zip(rule.first.checked_sub(1)) {
            take(at, before, outer);
        }
        at = rule.first;
        around.push(rule);
    }
    while let Some(ended) = around.pop() {
        take(at, ended.last, &ended);
        let Some(behind) = ended.last.checked_add(1) else { break };
        at = at.max(behind);
    }
    runs
}

/// The source filter of a device, and the last sources that passed it.
#[derive(Debug)]
pub(crate) struct SourceFilter {
    pub(crate) sources: Option<Sources>,
    /// The last source that passed, and the version of the routes at that time (in the upper half). The initial value is address 0,
    /// which never passes.
    known_v4: u64,
    known_v6: (u32, Ipv6Addr),
}

impl Default for SourceFilter {
    fn default() -> Self {
        Self { sources: None, known_v4: 0, known_v6: (0, Ipv6Addr::UNSPECIFIED) }
    }
}

/// Returns the version of the routes and the address as one number, so that the check of a packet is one comparison.
#[inline]
fn known_v4(routes_version: u32, from: Ipv4Addr) -> u64 {
    u64::from(routes_version) << 32 | u64::from(from.to_bits())
}

impl SourceFilter {
    /// Returns whether the station at the other end of the link may use an address as source, and may announce it as its own.
    pub(crate) fn admits(&self, from: IpAddr) -> bool {
        self.sources.as_ref().is_none_or(|sources| sources.admits(from))
    }

    /// Returns whether this source was the last one that passed, and the routes have not changed since then.
    #[inline]
    pub(crate) fn has_passed_v4(&self, routes_version: u32, from: Ipv4Addr) -> bool {
        self.known_v4 == known_v4(routes_version, from)
    }

    #[inline]
    pub(crate) fn has_passed_v6(&self, routes_version: u32, from: Ipv6Addr) -> bool {
        self.known_v6 == (routes_version, from)
    }

    #[inline]
    pub(crate) fn note_v4(&mut self, routes_version: u32, from: Ipv4Addr) {
        self.known_v4 = known_v4(routes_version, from);
    }

    pub(crate) fn note_v6(&mut self, routes_version: u32, from: Ipv6Addr) {
        self.known_v6 = (routes_version, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(text: &str) -> Prefix {
        let (address, length) = text.split_once('/').unwrap();
        Prefix::new(address.parse().unwrap(), length.parse().unwrap()).unwrap()
    }

    fn sources(admitted: &[&str], refused: &[&str]) -> Sources {
        let list = |texts: &[&str]| texts.iter().map(|text| prefix(text)).collect::<Vec<_>>();
        Sources::new(&list(admitted), &list(refused)).unwrap()
    }

    #[test]
    fn the_longest_prefix_of_a_source_filter_decides_and_other_addresses_are_refused() {
        let all = sources(
            &["0.0.0.0/0", "10.1.0.7/32", "2001:db8::/32", "255.255.255.255/32"],
            &["10.1.0.0/24", "10.1.0.128/25", "2001:db8:5::/48", "2001:db8::9/128"],
        );
        for (from, admitted) in [
            ("0.0.0.0", true),
            ("10.0.255.255", true),
            ("10.1.0.0", false),
            ("10.1.0.6", false),
            ("10.1.0.7", true),
            ("10.1.0.8", false),
            ("10.1.0.255", false),
            ("10.1.1.0", true),
            ("255.255.255.255", true),
            ("2001:db7:ffff::", false),
            ("2001:db8::8", true),
            ("2001:db8::9", false),
            ("2001:db8:4:ffff::", true),
            ("2001:db8:5::1", false),
            ("2001:db8:6::", true),
            ("2001:db9::", false),
            ("ffff::", false),
        ] {
            assert_eq!(all.admits(from.parse().unwrap()), admitted, "{from}");
        }
        assert!(!Sources::default().admits([10, 0, 0, 1].into()));
        assert!(!sources(&["10.0.0.0/8"], &["10.0.0.0/8"]).admits([10, 0, 0, 1].into()), "in both lists");
        assert!(sources(&["::/0"], &[]).admits(IpAddr::V6(Ipv6Addr::from_bits(u128::MAX))));
    }

    #[test]
    fn a_source_filter_with_too_many_prefixes_is_refused() {
        let many = vec![prefix("10.0.0.1/32"); SOURCE_PREFIXES_MAX + 1];
        assert_eq!(Sources::new(&many, &[]), Err(DeviceError::Full));
        assert_eq!(Sources::new(&many[1..], &many[..1]), Err(DeviceError::Full));
        assert!(Sources::new(&many[1..], &[]).is_ok());
    }

    proptest! {
        #[test]
        fn a_source_filter_agrees_with_a_search_through_all_prefixes(
            list in proptest::collection::vec((0..64_u8, 0..=6_u8, any::<bool>()), 0..12),
        ) {
            let rule = |(bits, length, _): &(u8, u8, bool)| Prefix::new([*bits << 2, 0, 0, 0].into(), *length).unwrap();
            let of = |is_in: bool| list.iter().filter(|it| it.2 == is_in).map(rule).collect::<Vec<_>>();
            let all = Sources::new(&of(true), &of(false)).unwrap();
            for first in 0..64_u8 {
                let from = IpAddr::from([first << 2 | 1, 2, 3, 4]);
                let longest = list.iter().filter(|it| rule(it).covers(from)).max_by_key(|it| (it.1, !it.2));
                prop_assert_eq!(all.admits(from), longest.is_some_and(|it| it.2), "{}", from);
            }
        }
    }
}
