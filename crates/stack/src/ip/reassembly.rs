//! Reassembly (RFC 791, RFC 8200 4.5), with limits for datagrams, bytes, fragments and time. If fragments of a datagram overlap,
//! the datagram is dropped, and so are its fragments that arrive later (RFC 5722). An exact repetition of a fragment is ignored.
//!
//! Each source and each device has a quota, and the table has a maximum size. If a limit is reached, a new fragment evicts the
//! oldest datagram of the source with the largest share. If the table itself is full, the device with the largest share is selected
//! first, and then the source with the largest share on this device. A source with a smaller share than all others therefore loses
//! nothing, however many fragments the others send.

mod shares;

use crate::drops::FragmentDrop;
use crate::limits::{
    HEADER_BYTES_MAX, REASSEMBLY_BYTES_MAX, REASSEMBLY_DATAGRAMS_MAX, REASSEMBLY_DEVICE_BYTES_MAX,
    REASSEMBLY_DEVICE_DATAGRAMS_MAX, REASSEMBLY_PIECES_MAX, REASSEMBLY_SOURCE_BYTES_MAX,
    REASSEMBLY_SOURCE_DATAGRAMS_MAX, REASSEMBLY_TIMEOUT,
};
use crate::link::frame::DeviceId;
use crate::time::Instant;
use crate::wire::ipv6::FRAGMENT_BYTES;
use shares::{Measure, Share, Shares};
use smoltcp::wire::IPV6_HEADER_LEN;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The fields that all fragments of a datagram have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DatagramKey {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) ident: u32,
    /// The transport protocol, which is part of the key for IPv4 only. It is 0 for IPv6.
    pub(crate) protocol: u8,
    pub(crate) device: DeviceId,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    /// The headers in front of the fragmented part, including an IPv6 fragment header. Only the headers of the first fragment are
    /// stored.
    pub(crate) head: &'a [u8],
    pub(crate) offset: usize,
    pub(crate) bytes: &'a [u8],
    pub(crate) more: bool,
}

impl Piece<'_> {
    fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }

    fn held_bytes(&self) -> usize {
        self.bytes.len() + if self.offset == 0 { self.head.len() } else { 0 }
    }

    /// Returns whether the length is invalid because it is not a multiple of 8. Only the last fragment may have such a length.
    pub(crate) fn is_uneven(&self) -> bool {
        self.more && !self.bytes.len().is_multiple_of(8)
    }

    /// Returns whether the datagram would exceed the maximum length of a datagram if it contained this fragment.
    pub(crate) fn is_too_long(&self, v6: bool) -> bool {
        // The length field of IPv6 does not count the fixed header, and the datagram has no fragment header. The length field of IPv4
        // counts the complete packet.
        let uncounted = if v6 { IPV6_HEADER_LEN + FRAGMENT_BYTES } else { 0 };
        self.head.len().saturating_sub(uncounted) + self.offset + self.bytes.len() > usize::from(u16::MAX)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    /// The headers of the first fragment.
    pub(crate) head: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// A datagram that timed out because fragments are missing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) device: DeviceId,
    /// The first fragment, if it arrived. Only then may an error about the datagram be sent (RFC 1122 3.3.2, RFC 8200 4.5).
    pub(crate) first: Option<Vec<u8>>,
}

#[derive(Debug)]
enum DatagramState {
    Waiting(Waiting),
    /// The datagram was dropped, and its fragments that arrive later are dropped too.
    Dropped,
}

#[derive(Debug, Default)]
struct Waiting {
    head: Option<Vec<u8>>,
    pieces: BTreeMap<usize, Vec<u8>>,
    /// Number of bytes in all pieces.
    payload: usize,
    /// Offset of the datagram's end, if the last fragment has arrived.
    end: Option<usize>,
}

#[derive(Debug)]
struct DatagramEntry {
    until: Instant,
    /// The number of the datagram. Datagrams are numbered in the order in which their first received fragments arrived.
    age: u64,
    state: DatagramState,
}

/// Memory overhead of a datagram, in bytes: its entry, its places in the orders of deadline and age, and the shares of its source
/// and device. The headers and the maximum number of fragments are included.
pub(crate) const ENTRY_BYTES: usize = 2 * size_of::<(DatagramKey, DatagramEntry)>()
    + 2 * size_of::<((Instant, u64), DatagramKey)>()
    + 2 * size_of::<((DeviceId, IpAddr, u64), DatagramKey)>()
    + shares::bytes_each::<DeviceId, IpAddr>()
    + shares::bytes_each::<(), DeviceId>()
    + HEADER_BYTES_MAX
    + REASSEMBLY_PIECES_MAX * 2 * size_of::<(usize, Vec<u8>)>();

#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    entries: BTreeMap<DatagramKey, DatagramEntry>,
    deadlines: BTreeMap<(Instant, u64), DatagramKey>,
    /// The datagrams of each source, ordered by age. The oldest datagram is first.
    ages: BTreeMap<(DeviceId, IpAddr, u64), DatagramKey>,
    sources: Shares<DeviceId, IpAddr>,
    devices: Shares<(), DeviceId>,
    /// Number of bytes in all fragments that wait for the rest of their datagrams.
    pub(crate) bytes: usize,
    next_age: u64,
    /// Number of evicted datagrams that the caller has not added to its drop counter yet.
    pub(crate) evicted: u64,
}

impl Reassembly {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a fragment. Returns the datagram if this fragment completes it.
    pub(crate) fn add(
        &mut self,
        now: Instant,
        key: DatagramKey,
        piece: &Piece<'_>,
    ) -> Result<Option<Datagram>, FragmentDrop> {
        if piece.bytes.is_empty() || piece.is_uneven() || piece.is_too_long(key.from.is_ipv6()) {
            return Err(FragmentDrop::Malformed);
        }
        match self.entries.get(&key).map(|entry| &entry.state) {
            Some(DatagramState::Dropped) => return Err(FragmentDrop::Late),
            Some(DatagramState::Waiting(waiting)) => match waiting.judge(piece) {
                Ok(()) => {}
                Err(FragmentDrop::Duplicate) => return Err(FragmentDrop::Duplicate),
                Err(reason) => {
                    self.drop_datagram(key);
                    return Err(reason);
                }
            },
            None => {
                self.make_room(&key, Measure::Datagrams, 1);
                self.begin(now, key);
            }
        }
        self.make_room(&key, Measure::Bytes, piece.held_bytes());
        // `make_room` may have evicted the datagram of this fragment.
        let Some(DatagramEntry { state: DatagramState::Waiting(waiting), .. }) = self.entries.get_mut(&key) else {
            return Err(FragmentDrop::Full);
        };
        let is_whole = waiting.insert(piece);
        self.change_shares(&key, 0, piece.held_bytes().cast_signed());
        Ok(if is_whole { self.take(key).map(Waiting::join) } else { None })
    }

    /// Returns the time at which the next datagram times out.
    #[inline]
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.deadlines.first_key_value().map(|((at, _), _)| *at)
    }

    /// Removes one datagram that timed out and returns it. Datagrams that were dropped before are removed too, but not returned.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Expired> {
        while let Some(((at, _), key)) = self.deadlines.first_key_value()
            && *at <= now
        {
            let key = *key;
            if let Some(waiting) = self.take(key) {
                let first = waiting.pieces.get(&0).and_then(|bytes| Some([&waiting.head?[..], bytes].concat()));
                return Some(Expired { device: key.device, first });
            }
        }
        None
    }

    fn begin(&mut self, now: Instant, key: DatagramKey) {
        let (until, age) = (now + REASSEMBLY_TIMEOUT, self.next_age);
        self.next_age += 1;
        self.entries.insert(key, DatagramEntry { until, age, state: DatagramState::Waiting(Waiting::default()) });
        self.deadlines.insert((until, age), key);
        self.ages.insert((key.device, key.from, age), key);
        self.change_shares(&key, 1, 0);
    }

    /// Evicts datagrams until `more` fits into the quotas and the table, or until the datagram `key` itself is evicted. Each
    /// round of the loop evicts one datagram, and each datagram needs at least one fragment. So, on average, a fragment causes at
    /// most one round.
    fn make_room(&mut self, key: &DatagramKey, by: Measure, more: usize) {
        while let Some(oldest) = self.in_the_way(key, by, more) {
            self.take(oldest);
            self.evicted += 1;
            if oldest == *key {
                return;
            }
        }
    }

    /// Returns the datagram to evict next, or `None` if `more` datagrams or bytes fit into the table and the quotas.
    fn in_the_way(&self, key: &DatagramKey, by: Measure, more: usize) -> Option<DatagramKey> {
        let DatagramKey { device, from, .. } = *key;
        let is_full = |share: Share, quota: Share| share.weight(by) + more > quota.weight(by);
        let table = Share { datagrams: self.entries.len(), bytes: self.bytes, oldest: 0 };
        if is_full(self.sources.get(device, from), SOURCE_QUOTA) {
            return self.oldest(device, from);
        }
        let device = if is_full(self.devices.get((), device), DEVICE_QUOTA) {
            device
        } else if is_full(table, TABLE_QUOTA) {
            self.devices.heaviest((), by)?
        } else {
            return None;
        };
        self.oldest(device, self.sources.heaviest(device, by)?)
    }

    /// Returns the oldest datagram of a source.
    fn oldest(&self, device: DeviceId, from: IpAddr) -> Option<DatagramKey> {
        self.ages.range((device, from, 0)..=(device, from, u64::MAX)).next().map(|(_, key)| *key)
    }

    /// Updates the shares after datagrams and bytes were added or removed.
    fn change_shares(&mut self, key: &DatagramKey, datagrams: isize, bytes: isize) {
        let changed = |share: Share, oldest: u64| Share {
            datagrams: share.datagrams.saturating_add_signed(datagrams),
            bytes: share.bytes.saturating_add_signed(bytes),
            oldest,
        };
        let oldest = self.oldest(key.device, key.from).and_then(|oldest| self.entries.get(&oldest));
        let of_source = changed(self.sources.get(key.device, key.from), oldest.map_or(0, |entry| entry.age));
        self.sources.set(key.device, key.from, of_source);
        self.devices.set((), key.device, changed(self.devices.get((), key.device), 0));
        self.bytes = self.bytes.saturating_add_signed(bytes);
    }

    /// Drops the bytes of a datagram. Its entry stays in the table, so that fragments that arrive later are recognised and
    /// dropped.
    fn drop_datagram(&mut self, key: DatagramKey) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let freed = entry.bytes();
        entry.state = DatagramState::Dropped;
        self.change_shares(&key, 0, -freed.cast_signed());
    }

    /// Removes a datagram. Returns `None` if the datagram was dropped before.
    fn take(&mut self, key: DatagramKey) -> Option<Waiting> {
        let entry = self.entries.remove(&key)?;
        self.deadlines.remove(&(entry.until, entry.age));
        self.ages.remove(&(key.device, key.from, entry.age));
        self.change_shares(&key, -1, -entry.bytes().cast_signed());
        match entry.state {
            DatagramState::Waiting(waiting) => Some(waiting),
            DatagramState::Dropped => None,
        }
    }
}

const TABLE_QUOTA: Share = Share { datagrams: REASSEMBLY_DATAGRAMS_MAX, bytes: REASSEMBLY_BYTES_MAX, oldest: 0 };
const SOURCE_QUOTA: Share =
    Share { datagrams: REASSEMBLY_SOURCE_DATAGRAMS_MAX, bytes: REASSEMBLY_SOURCE_BYTES_MAX, oldest: 0 };
const DEVICE_QUOTA: Share =
    Share { datagrams: REASSEMBLY_DEVICE_DATAGRAMS_MAX, bytes: REASSEMBLY_DEVICE_BYTES_MAX, oldest: 0 };

impl DatagramEntry {
    fn bytes(&self) -> usize {
        match &self.state {
            DatagramState::Waiting(waiting) => waiting.head.as_ref().map_or(0, Vec::len) + waiting.payload,
            DatagramState::Dropped => 0,
        }
    }
}

impl Waiting {
    /// Checks a fragment against the fragments that were received before.
    fn judge(&self, piece: &Piece<'_>) -> Result<(), FragmentDrop> {
        let (start, end) = (piece.offset, piece.end());
        if self.pieces.get(&start).is_some_and(|known| known == piece.bytes) && (piece.more || self.end == Some(end)) {
            return Err(FragmentDrop::Duplicate);
        }
        let before = self.pieces.range(..end).next_back().map_or(0, |(at, bytes)| at + bytes.len());
        if before > start || self.end.is_some_and(|last| if piece.more { end > last } else { true }) {
            return Err(FragmentDrop::Overlap);
        }
        if !piece.more && self.pieces.range(end..).next().is_some() {
            return Err(FragmentDrop::Overlap);
        }
        if self.pieces.len() >= REASSEMBLY_PIECES_MAX {
            return Err(FragmentDrop::Full);
        }
        Ok(())
    }

    /// Adds a fragment that was checked. Returns true if the datagram is complete.
    fn insert(&mut self, piece: &Piece<'_>) -> bool {
        if !piece.more {
            self.end = Some(piece.end());
        }
        if piece.offset == 0 {
            self.head = Some(piece.head.to_vec());
        }
        self.pieces.insert(piece.offset, piece.bytes.to_vec());
        self.payload += piece.bytes.len();
        self.end == Some(self.payload)
    }

    fn join(self) -> Datagram {
        Datagram { head: self.head.unwrap_or_default(), payload: self.pieces.into_values().flatten().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;
    use proptest::prelude::*;
    use std::net::Ipv6Addr;

    const HEAD: &[u8] = b"head";
    const NOW: Instant = Instant::from_ns(0);

    fn key(ident: u32) -> DatagramKey {
        let host = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
        DatagramKey { from: host, to: host, ident, protocol: 17, device: DeviceId(0) }
    }

    fn piece(offset: usize, bytes: &[u8], more: bool) -> Piece<'_> {
        Piece { head: HEAD, offset, bytes, more }
    }

    fn assert_nothing_left(reassembly: &mut Reassembly) {
        while reassembly.expire(NOW + REASSEMBLY_TIMEOUT).is_some() {}
        let Reassembly { entries, deadlines, ages, sources, devices, bytes, .. } = reassembly;
        assert!(entries.is_empty() && deadlines.is_empty() && ages.is_empty());
        assert!(sources.is_empty() && devices.is_empty());
        assert_eq!(*bytes, 0);
    }

    #[test]
    fn the_memory_bound_covers_trees_whose_nodes_are_half_full() {
        let places = size_of::<((Instant, u64), DatagramKey)>() + size_of::<((DeviceId, IpAddr, u64), DatagramKey)>();
        let shares = shares::bytes_each::<DeviceId, IpAddr>() + shares::bytes_each::<(), DeviceId>();
        let entry = size_of::<(DatagramKey, DatagramEntry)>() + places + shares / 2;
        let all = HEADER_BYTES_MAX + 2 * (entry + REASSEMBLY_PIECES_MAX * size_of::<(usize, Vec<u8>)>());
        assert!((all..all + entry).contains(&ENTRY_BYTES), "{all} {ENTRY_BYTES}");
    }

    #[test]
    fn an_overlap_drops_the_datagram_and_its_later_fragments() {
        for (offset, more) in [(0, true), (8, true), (12, true), (4, true), (8, false), (0, false)] {
            let mut r = Reassembly::default();
            assert_eq!(r.add(NOW, key(1), &piece(8, &[1; 8], true)), Ok(None));
            assert_eq!(r.add(NOW, key(1), &piece(offset, &[2; 16], more)), Err(FragmentDrop::Overlap), "{offset}");
            assert_eq!(r.add(NOW, key(1), &piece(0, &[3; 8], true)), Err(FragmentDrop::Late));
            assert_eq!(r.add(NOW, key(2), &piece(0, &[3; 8], true)), Ok(None), "another datagram");
            assert_nothing_left(&mut r);
        }
    }

    #[test]
    fn a_second_last_fragment_or_bytes_behind_the_last_count_as_overlap() {
        for (offset, bytes, more) in [(8, 16, false), (24, 8, true), (24, 8, false), (0, 4, false)] {
            let mut r = Reassembly::default();
            assert_eq!(r.add(NOW, key(1), &piece(16, &[1; 8], false)), Ok(None));
            let second = vec![2; bytes];
            assert_eq!(r.add(NOW, key(1), &piece(offset, &second, more)), Err(FragmentDrop::Overlap), "{offset}");
        }
        let mut r = Reassembly::default();
        assert_eq!(r.add(NOW, key(1), &piece(16, &[1; 8], true)), Ok(None));
        assert_eq!(r.add(NOW, key(1), &piece(0, &[1; 8], false)), Err(FragmentDrop::Overlap));
    }

    #[test]
    fn a_repeated_fragment_is_ignored() {
        let mut r = Reassembly::default();
        assert_eq!(r.add(NOW, key(1), &piece(0, &[1; 8], true)), Ok(None));
        assert_eq!(r.add(NOW, key(1), &piece(0, &[1; 8], true)), Err(FragmentDrop::Duplicate));
        assert_eq!(r.add(NOW, key(1), &piece(0, &[2; 8], true)), Err(FragmentDrop::Overlap), "other bytes");
        assert_eq!(r.add(NOW, key(2), &piece(8, &[2; 3], false)), Ok(None));
        assert_eq!(r.add(NOW, key(2), &piece(8, &[2; 3], false)), Err(FragmentDrop::Duplicate));
        let whole = r.add(NOW, key(2), &piece(0, &[1; 8], true)).unwrap().unwrap();
        assert_eq!((whole.head, whole.payload), (HEAD.to_vec(), vec![1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2]));
        assert_nothing_left(&mut r);
    }

    #[test]
    fn a_malformed_fragment_is_refused() {
        let mut r = Reassembly::default();
        for (offset, bytes, more) in [(0, 0, true), (8, 0, false), (0, 7, true), (65_528, 8, false)] {
            let bytes = vec![0; bytes];
            assert_eq!(r.add(NOW, key(1), &piece(offset, &bytes, more)), Err(FragmentDrop::Malformed));
        }
        assert!(r.entries.is_empty());
    }

    #[test]
    fn the_longest_datagram_of_each_ip_version_is_reassembled() {
        let v6 = |ident| DatagramKey { from: Ipv6Addr::LOCALHOST.into(), to: Ipv6Addr::LOCALHOST.into(), ..key(ident) };
        for (key, head, most) in [(key(1), 20, 65_535 - 20), (v6(1), 48, 65_535), (v6(2), 56, 65_535 - 8)] {
            let head = vec![0; head];
            let mut r = Reassembly::default();
            let first = Piece { head: &head, ..piece(0, &[1; 65_504], true) };
            assert_eq!(r.add(NOW, key, &first), Ok(None));
            let rest = vec![2; most + 1 - 65_504];
            let more = Piece { head: &head, ..piece(65_504, &rest, false) };
            assert_eq!(r.add(NOW, key, &more), Err(FragmentDrop::Malformed), "{most}");
            let last = Piece { head: &head, ..piece(65_504, &rest[1..], false) };
            assert_eq!(r.add(NOW, key, &last).unwrap().map(|whole| whole.payload.len()), Some(most));
            assert_nothing_left(&mut r);
        }
    }

    #[test]
    fn a_source_that_floods_fragments_stays_inside_its_quota_and_loses_its_oldest() {
        let mut r = Reassembly::default();
        for ident in 0..1000 {
            assert_eq!(r.add(NOW, key(ident), &piece(8, &[0; 8], true)), Ok(None));
        }
        assert_eq!(r.len(), REASSEMBLY_SOURCE_DATAGRAMS_MAX);
        assert_eq!(std::mem::take(&mut r.evicted), 1000 - REASSEMBLY_SOURCE_DATAGRAMS_MAX as u64);
        assert!(r.entries.keys().all(|key| 1000 - key.ident <= 64), "the youngest are left");
        assert_nothing_left(&mut r);
        let taken = (0..1000).filter(|i| r.add(NOW, key(1), &piece(16 * i, &[0; 8], true)).is_ok()).count();
        assert_eq!(taken, REASSEMBLY_PIECES_MAX);
        assert_nothing_left(&mut r);
        let large = vec![0; 60_000];
        for ident in 0..1000 {
            assert_eq!(r.add(NOW, key(ident), &piece(8, &large, true)), Ok(None));
            assert_eq!(r.bytes, 60_000 * r.len());
        }
        assert_eq!(r.len(), REASSEMBLY_SOURCE_BYTES_MAX / 60_000);
        assert_nothing_left(&mut r);
    }

    /// A datagram that is the oldest of a source beyond its quota is evicted for its own next fragment.
    #[test]
    fn a_fragment_whose_own_datagram_is_evicted_is_dropped() {
        let mut r = Reassembly::default();
        let (beginning, most) = (vec![0; 8_000], vec![0; 57_000]);
        r.add(NOW, key(0), &piece(0, &beginning, true)).unwrap();
        let others = u32::try_from((REASSEMBLY_SOURCE_BYTES_MAX - 10_000) / 57_000).unwrap();
        for ident in 1..=others {
            r.add(NOW, key(ident), &piece(8, &most, true)).unwrap();
        }
        assert_eq!(r.add(NOW, key(0), &piece(8_000, &most[..56_000], true)), Err(FragmentDrop::Full));
        assert_eq!((r.len(), std::mem::take(&mut r.evicted)), (usize::try_from(others).unwrap(), 1));
        assert_nothing_left(&mut r);
    }

    #[test]
    fn a_datagram_that_times_out_returns_its_first_fragment() {
        let mut r = Reassembly::default();
        r.add(NOW, key(1), &piece(0, &[5; 8], true)).unwrap();
        r.add(NOW + Duration::from_secs(1), key(2), &piece(8, &[5; 8], true)).unwrap();
        assert_eq!(r.timeout(), Some(NOW + REASSEMBLY_TIMEOUT));
        assert_eq!(r.expire(NOW + REASSEMBLY_TIMEOUT - Duration::from_nanos(1)), None);
        assert_eq!(
            r.expire(NOW + REASSEMBLY_TIMEOUT),
            Some(Expired { device: DeviceId(0), first: Some([HEAD, &[5; 8]].concat()) })
        );
        assert_eq!(r.expire(NOW + REASSEMBLY_TIMEOUT), None);
        assert_eq!(r.expire(NOW + REASSEMBLY_TIMEOUT * 2), Some(Expired { device: DeviceId(0), first: None }));
        assert_nothing_left(&mut r);
    }

    proptest! {
        #[test]
        fn fragments_in_any_order_are_reassembled(
            cuts in proptest::collection::btree_set(1..200_usize, 0..20),
            last in 1..16_usize,
            shuffle in any::<u64>(),
        ) {
            let ends: Vec<usize> = cuts.iter().map(|cut| cut * 8).chain([1600 + last]).collect();
            let bytes: Vec<u8> = (0..1600 + last).map(|i| u8::try_from(i % 251).unwrap()).collect();
            let mut parts: Vec<(usize, usize)> = ends.iter().scan(0, |at, end| Some((std::mem::replace(at, *end), *end))).collect();
            parts.sort_by_key(|(at, _)| (*at as u64 + 1).wrapping_mul(shuffle | 1));
            let mut r = Reassembly::default();
            for (n, (at, end)) in parts.iter().enumerate() {
                let whole = r.add(NOW, key(1), &piece(*at, &bytes[*at..*end], *end < bytes.len())).unwrap();
                prop_assert_eq!(whole.is_some(), n + 1 == parts.len());
                if let Some(whole) = whole {
                    prop_assert_eq!(&whole.payload, &bytes);
                }
            }
            assert_nothing_left(&mut r);
        }
    }
}
