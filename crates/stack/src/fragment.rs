//! Reassembly (RFC 791, RFC 8200 4.5). Bounded in datagrams, bytes, pieces and time; a datagram with overlapping fragments is
//! dropped whole, with those of its fragments that come later (RFC 5722). An exact repetition is passed over.

use crate::drops::FragmentDrop;
use crate::frame::DeviceId;
use crate::limits::{
    HEADER_BYTES_MAX, REASSEMBLY_BYTES_MAX, REASSEMBLY_DATAGRAMS_MAX, REASSEMBLY_PIECES_MAX, REASSEMBLY_TIMEOUT,
};
use crate::time::Instant;
use smoltcp::wire::IPV6_HEADER_LEN;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What a datagram's fragments have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DatagramKey {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) ident: u32,
    /// IPv4 tells datagrams apart by protocol too; 0 for IPv6.
    pub(crate) protocol: u8,
    pub(crate) device: DeviceId,
}

/// One fragment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    /// The headers in front of the fragmented part, kept of the first fragment.
    pub(crate) head: &'a [u8],
    pub(crate) offset: usize,
    pub(crate) bytes: &'a [u8],
    pub(crate) more: bool,
}

impl Piece<'_> {
    /// Its length is not a multiple of 8, as that of every fragment but the last is.
    pub(crate) fn is_uneven(&self) -> bool {
        self.more && !self.bytes.len().is_multiple_of(8)
    }

    /// Its datagram would be longer than any may be.
    pub(crate) fn is_too_long(&self, v6: bool) -> bool {
        // IPv6 tells the length of what follows its fixed header, IPv4 that of everything.
        let untold = if v6 { IPV6_HEADER_LEN } else { 0 };
        self.head.len().saturating_sub(untold) + self.offset + self.bytes.len() > usize::from(u16::MAX)
    }
}

/// A datagram put together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    /// The headers of the first fragment.
    pub(crate) head: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// A datagram given up because the rest did not come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    /// The first fragment, if it was there: who sent it may be told (RFC 1122 3.3.2, RFC 8200 4.5).
    pub(crate) first: Option<Vec<u8>>,
}

#[derive(Debug)]
enum State {
    Waiting(Waiting),
    /// Dropped; fragments that are still on the way are dropped too.
    Dropped,
}

#[derive(Debug, Default)]
struct Waiting {
    head: Option<Vec<u8>>,
    pieces: BTreeMap<usize, Vec<u8>>,
    /// Where the last fragment ends.
    end: Option<usize>,
}

#[derive(Debug)]
struct Entry {
    until: Instant,
    state: State,
}

/// What a datagram takes beside its bytes: its entry, its deadline, its headers and as many pieces as it may have.
pub(crate) const ENTRY_BYTES: usize = 2 * size_of::<(DatagramKey, Entry)>()
    + 2 * size_of::<(Instant, DatagramKey)>()
    + HEADER_BYTES_MAX
    + REASSEMBLY_PIECES_MAX * 2 * size_of::<(usize, Vec<u8>)>();

/// All datagrams being put together.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    entries: BTreeMap<DatagramKey, Entry>,
    deadlines: BTreeSet<(Instant, DatagramKey)>,
    bytes: usize,
}

impl Reassembly {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of pieces that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a fragment; `Ok(Some)` if it completes its datagram.
    pub(crate) fn add(
        &mut self,
        now: Instant,
        key: DatagramKey,
        piece: &Piece<'_>,
    ) -> Result<Option<Datagram>, FragmentDrop> {
        let end = piece.offset + piece.bytes.len();
        if piece.bytes.is_empty() || piece.is_uneven() || piece.is_too_long(key.from.is_ipv6()) {
            return Err(FragmentDrop::Malformed);
        }
        if self.bytes + piece.bytes.len() + piece.head.len() > REASSEMBLY_BYTES_MAX {
            return Err(FragmentDrop::Full);
        }
        if !self.entries.contains_key(&key) {
            if self.entries.len() >= REASSEMBLY_DATAGRAMS_MAX {
                return Err(FragmentDrop::Full);
            }
            let until = now + REASSEMBLY_TIMEOUT;
            self.entries.insert(key, Entry { until, state: State::Waiting(Waiting::default()) });
            self.deadlines.insert((until, key));
        }
        let Some(entry) = self.entries.get_mut(&key) else { return Err(FragmentDrop::Full) };
        let State::Waiting(waiting) = &mut entry.state else { return Err(FragmentDrop::Late) };
        let before = waiting.bytes();
        let result = waiting.add(piece, end);
        self.bytes += waiting.bytes();
        self.bytes -= before;
        match result {
            Ok(false) => Ok(None),
            Ok(true) => Ok(self.take(key).map(Waiting::join)),
            Err(FragmentDrop::Duplicate) => Err(FragmentDrop::Duplicate),
            Err(reason) => {
                self.bytes -= waiting.bytes();
                entry.state = State::Dropped;
                Err(reason)
            }
        }
    }

    /// When the next datagram is given up.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Gives up one datagram whose time has come.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<(DeviceId, Expired)> {
        while let Some((at, key)) = self.deadlines.first().copied()
            && at <= now
        {
            if let Some(waiting) = self.take(key) {
                let first = waiting.pieces.get(&0).and_then(|bytes| Some([&waiting.head?[..], bytes].concat()));
                return Some((key.device, Expired { first }));
            }
        }
        None
    }

    fn take(&mut self, key: DatagramKey) -> Option<Waiting> {
        let entry = self.entries.remove(&key)?;
        self.deadlines.remove(&(entry.until, key));
        match entry.state {
            State::Waiting(waiting) => {
                self.bytes -= waiting.bytes();
                Some(waiting)
            }
            State::Dropped => None,
        }
    }
}

impl Waiting {
    fn bytes(&self) -> usize {
        self.head.as_ref().map_or(0, Vec::len) + self.pieces.values().map(Vec::len).sum::<usize>()
    }

    /// True if all is there.
    fn add(&mut self, piece: &Piece<'_>, end: usize) -> Result<bool, FragmentDrop> {
        let start = piece.offset;
        if self.pieces.get(&start).is_some_and(|known| known == piece.bytes) && (piece.more || self.end == Some(end)) {
            return Err(FragmentDrop::Duplicate);
        }
        let before = self.pieces.range(..end).next_back().map_or(0, |(at, bytes)| at + bytes.len());
        if before > start || self.end.is_some_and(|last| if piece.more { end > last } else { true }) {
            return Err(FragmentDrop::Overlap);
        }
        if !piece.more {
            if self.pieces.range(end..).next().is_some() {
                return Err(FragmentDrop::Overlap);
            }
            self.end = Some(end);
        }
        if self.pieces.len() >= REASSEMBLY_PIECES_MAX {
            return Err(FragmentDrop::Full);
        }
        if start == 0 {
            self.head = Some(piece.head.to_vec());
        }
        self.pieces.insert(start, piece.bytes.to_vec());
        let payload: usize = self.pieces.values().map(Vec::len).sum();
        Ok(self.end == Some(payload))
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
        assert!(reassembly.entries.is_empty() && reassembly.deadlines.is_empty());
        assert_eq!(reassembly.bytes, 0);
    }

    #[test]
    fn the_formula_of_memory_covers_trees_whose_nodes_are_half_full() {
        let entry = size_of::<(DatagramKey, Entry)>() + size_of::<(Instant, DatagramKey)>();
        let all = HEADER_BYTES_MAX + 2 * (entry + REASSEMBLY_PIECES_MAX * size_of::<(usize, Vec<u8>)>());
        assert!((all..all + entry).contains(&ENTRY_BYTES), "{all} {ENTRY_BYTES}");
    }

    #[test]
    fn an_overlap_drops_the_datagram_and_what_follows_of_it() {
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
    fn a_second_end_or_bytes_behind_the_end_are_overlaps() {
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
    fn a_repeated_fragment_does_no_harm() {
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
    fn a_fragment_that_none_can_be_is_refused() {
        let mut r = Reassembly::default();
        for (offset, bytes, more) in [(0, 0, true), (8, 0, false), (0, 7, true), (65_528, 8, false)] {
            let bytes = vec![0; bytes];
            assert_eq!(r.add(NOW, key(1), &piece(offset, &bytes, more)), Err(FragmentDrop::Malformed));
        }
        assert!(r.entries.is_empty());
    }

    #[test]
    fn the_longest_datagram_of_each_ip_version_is_put_together() {
        let v6 = |ident| DatagramKey { from: Ipv6Addr::LOCALHOST.into(), to: Ipv6Addr::LOCALHOST.into(), ..key(ident) };
        for (key, head, most) in [(key(1), 20, 65_535 - 20), (v6(1), 40, 65_535), (v6(2), 48, 65_535 - 8)] {
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
    fn floods_stay_inside_the_bounds() {
        let mut r = Reassembly::default();
        let taken = (0..1000).filter(|i| r.add(NOW, key(*i), &piece(8, &[0; 8], true)).is_ok()).count();
        assert_eq!(taken, REASSEMBLY_DATAGRAMS_MAX);
        assert_nothing_left(&mut r);
        let taken = (0..1000).filter(|i| r.add(NOW, key(1), &piece(16 * i, &[0; 8], true)).is_ok()).count();
        assert_eq!(taken, REASSEMBLY_PIECES_MAX);
        assert_nothing_left(&mut r);
        let large = vec![0; 60_000];
        let taken = (0..1000).filter(|i| r.add(NOW, key(*i), &piece(8, &large, true)).is_ok()).count();
        assert_eq!(taken, REASSEMBLY_BYTES_MAX / 60_000);
        assert!(r.bytes <= REASSEMBLY_BYTES_MAX);
        assert_nothing_left(&mut r);
    }

    #[test]
    fn what_does_not_come_in_time_is_given_up_with_its_first_fragment() {
        let mut r = Reassembly::default();
        r.add(NOW, key(1), &piece(0, &[5; 8], true)).unwrap();
        r.add(NOW + Duration::from_secs(1), key(2), &piece(8, &[5; 8], true)).unwrap();
        assert_eq!(r.timeout(), Some(NOW + REASSEMBLY_TIMEOUT));
        assert_eq!(r.expire(NOW + REASSEMBLY_TIMEOUT - Duration::from_nanos(1)), None);
        assert_eq!(
            r.expire(NOW + REASSEMBLY_TIMEOUT),
            Some((DeviceId(0), Expired { first: Some([HEAD, &[5; 8]].concat()) }))
        );
        assert_eq!(r.expire(NOW + REASSEMBLY_TIMEOUT), None);
        assert_eq!(r.expire(NOW + REASSEMBLY_TIMEOUT * 2), Some((DeviceId(0), Expired { first: None })));
        assert_nothing_left(&mut r);
    }

    proptest! {
        #[test]
        fn fragments_in_any_order_make_the_datagram(
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
