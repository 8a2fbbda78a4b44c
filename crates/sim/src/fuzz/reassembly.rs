//! Fuzz target: compares the stack's reassembly of fragments with a reference, a simple and slow implementation of the same rules.
//! A host must deliver exactly the datagrams that the reference reassembles.

#![expect(clippy::unwrap_used, reason = "a fuzzer says what it wants by panicking")]

use std::collections::BTreeMap;
use std::net::IpAddr;

use siga_stack::Stack;
use siga_stack::drops::{DropReason, FragmentDrop};
use siga_stack::limits::{
    FRAME_BYTES_MAX, HEADER_BYTES_MAX, REASSEMBLY_BYTES_MAX, REASSEMBLY_DATAGRAMS_MAX, REASSEMBLY_DEVICE_BYTES_MAX,
    REASSEMBLY_DEVICE_DATAGRAMS_MAX, REASSEMBLY_PIECES_MAX, REASSEMBLY_SOURCE_BYTES_MAX,
    REASSEMBLY_SOURCE_DATAGRAMS_MAX, REASSEMBLY_TIMEOUT,
};
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Marks, Received};
use siga_stack::stack::{Handled, StackConfig};
use siga_stack::time::{Duration, Instant};
use siga_stack::udp::UdpId;
use siga_stack::wire::address::Prefix;

use super::input::Input;
use crate::wire::{self, Ip};

const STEPS_MAX: usize = 1_000;
const PORT: u16 = 6;

/// Runs an input. Panics if the results of the stack and of the reference differ.
pub fn reassembly(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new();
    input.each_step(STEPS_MAX, |input| {
        world.step(input);
        world.check();
    });
    world.now += REASSEMBLY_TIMEOUT;
    world.expire();
    world.check();
    assert_eq!(world.reference.waiting.len(), 0);
    let left = world.stack.memory();
    assert_eq!((left.held("datagrams in reassembly"), left.held("bytes in reassembly")), (0, 0), "{left}");
}

/// The sender of a datagram, together with the device that receives the datagram's fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    device: u16,
    v6: bool,
    host: u16,
}

/// The values that all fragments of one datagram have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    source: Source,
    ident: u8,
    protocol: u8,
}

/// Number of devices that receive fragments. The quotas of two devices together fill the stack's reassembly table. So more than
/// two devices are needed to exceed the table.
const DEVICES: u16 = 4;

/// A fragment to send.
#[derive(Debug, Clone)]
struct Fragment {
    /// Length in bytes of the headers before the fragmented part, including an IPv6 fragment header.
    head: usize,
    offset: usize,
    bytes: Vec<u8>,
    more: bool,
}

impl Fragment {
    fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }
}

/// A datagram of which not all fragments have arrived yet.
#[derive(Debug, Default)]
struct Waiting {
    until: Instant,
    /// The position of the datagram in the order in which the first fragments of datagrams arrived.
    number: u64,
    /// The fragments in the order of arrival. When two fragments overlap, the list becomes empty and `dropped` is set.
    fragments: Vec<Fragment>,
    dropped: bool,
}

/// The reference: the rules of reassembly, written as simply as possible. Its only state is the received fragments.
#[derive(Debug, Default)]
struct Reference {
    waiting: BTreeMap<Key, Waiting>,
    begun: u64,
    evicted: u64,
}

/// How much of the reassembly table some datagrams use: the number of datagrams, then the number of bytes.
type Weight = [usize; 2];

const TABLE: Weight = [REASSEMBLY_DATAGRAMS_MAX, REASSEMBLY_BYTES_MAX];
const DEVICE: Weight = [REASSEMBLY_DEVICE_DATAGRAMS_MAX, REASSEMBLY_DEVICE_BYTES_MAX];
const SOURCE: Weight = [REASSEMBLY_SOURCE_DATAGRAMS_MAX, REASSEMBLY_SOURCE_BYTES_MAX];

/// Returns how many bytes of the reassembly table a fragment uses.
fn held(fragment: &Fragment) -> usize {
    fragment.bytes.len() + if fragment.offset == 0 { fragment.head } else { 0 }
}

impl Reference {
    fn bytes(&self) -> usize {
        self.weight(|_| true)[1]
    }

    fn weight(&self, of: impl Fn(&Key) -> bool) -> Weight {
        let waiting: Vec<_> = self.waiting.iter().filter(|(key, _)| of(key)).map(|(_, waiting)| waiting).collect();
        [waiting.len(), waiting.iter().flat_map(|waiting| &waiting.fragments).map(held).sum()]
    }

    /// Drops older datagrams until there is room for `more`, or until the datagram `key` itself is dropped. `measure` is the unit
    /// of `more`: 0 counts datagrams, and 1 counts bytes.
    fn make_room(&mut self, key: &Key, measure: usize, more: usize) {
        let own = key.source;
        loop {
            let is_full = |weight: Weight, most: Weight| weight[measure] + more > most[measure];
            let victim = if is_full(self.weight(|other| other.source == own), SOURCE) {
                own
            } else if is_full(self.weight(|other| other.source.device == own.device), DEVICE) {
                self.heaviest_source(own.device, measure)
            } else if is_full(self.weight(|_| true), TABLE) {
                let weight = |device: u16| self.weight(|other| other.source.device == device)[measure];
                let heaviest = (0..DEVICES).rev().max_by_key(|device| weight(*device)).unwrap();
                self.heaviest_source(heaviest, measure)
            } else {
                return;
            };
            let oldest = self.oldest(victim).0;
            self.waiting.remove(&oldest);
            self.evicted += 1;
            if oldest == *key {
                return;
            }
        }
    }

    /// Returns the source that uses the largest part of a device's quota. If several sources use equally much, returns the one
    /// that has the oldest datagram.
    fn heaviest_source(&self, device: u16, measure: usize) -> Source {
        let sources = self.waiting.keys().map(|key| key.source).filter(|source| source.device == device);
        let rank =
            |of: &Source| (self.weight(|other| other.source == *of)[measure], std::cmp::Reverse(self.oldest(*of).1));
        sources.max_by_key(rank).unwrap()
    }

    fn oldest(&self, of: Source) -> (Key, u64) {
        let own = self.waiting.iter().filter(|(key, _)| key.source == of);
        own.map(|(key, waiting)| (*key, waiting.number)).min_by_key(|(_, number)| *number).unwrap()
    }

    /// Adds a fragment. Returns the datagram if the fragment completes it, or the reason if the fragment is dropped.
    fn add(&mut self, now: Instant, key: Key, fragment: Fragment) -> Result<Option<Vec<u8>>, FragmentDrop> {
        let uneven = fragment.more && !fragment.bytes.len().is_multiple_of(8);
        // RFC 8200 4.5: the length field in an IPv6 header does not count the header itself.
        let claimed_end = fragment.end() + if key.source.v6 { 0 } else { fragment.head };
        if fragment.bytes.is_empty() || uneven || claimed_end > 65_535 {
            return Err(FragmentDrop::Malformed);
        }
        if let Some(waiting) = self.waiting.get_mut(&key) {
            if waiting.dropped {
                return Err(FragmentDrop::Late);
            }
            match waiting.judge(&fragment) {
                Ok(()) => {}
                Err(FragmentDrop::Duplicate) => return Err(FragmentDrop::Duplicate),
                Err(reason) => {
                    (waiting.dropped, waiting.fragments) = (true, Vec::new());
                    return Err(reason);
                }
            }
        } else {
            self.make_room(&key, 0, 1);
            self.begun += 1;
            let (until, number) = (now + REASSEMBLY_TIMEOUT, self.begun);
            self.waiting.insert(key, Waiting { until, number, ..Waiting::default() });
        }
        self.make_room(&key, 1, held(&fragment));
        let Some(waiting) = self.waiting.get_mut(&key) else { return Err(FragmentDrop::Full) };
        waiting.fragments.push(fragment);
        let whole = waiting.whole();
        if whole.is_some() {
            self.waiting.remove(&key);
        }
        Ok(whole)
    }
}

impl Waiting {
    /// Checks whether a fragment fits the fragments that arrived before.
    fn judge(&self, fragment: &Fragment) -> Result<(), FragmentDrop> {
        let same = |known: &Fragment| {
            (known.offset, &known.bytes, known.more) == (fragment.offset, &fragment.bytes, fragment.more)
        };
        let end = self.fragments.iter().find(|known| !known.more).map(Fragment::end);
        // A copy of the last fragment is a duplicate even if its more-fragments flag is set.
        let again = |known: &Fragment| fragment.more && !known.more && known.bytes == fragment.bytes;
        let again = |known: &Fragment| same(known) || (known.offset == fragment.offset && again(known));
        if self.fragments.iter().any(again) {
            return Err(FragmentDrop::Duplicate);
        }
        let overlaps = |known: &Fragment| fragment.offset < known.end() && known.offset < fragment.end();
        let behind_end = end.is_some_and(|end| !fragment.more || fragment.end() > end);
        let before_known = !fragment.more && self.fragments.iter().any(|known| known.offset >= fragment.end());
        if self.fragments.iter().any(overlaps) || behind_end || before_known {
            return Err(FragmentDrop::Overlap);
        }
        if self.fragments.len() >= REASSEMBLY_PIECES_MAX {
            return Err(FragmentDrop::Full);
        }
        Ok(())
    }

    /// Returns the complete datagram if all fragments have arrived.
    fn whole(&self) -> Option<Vec<u8>> {
        let mut whole = Vec::new();
        let end = self.fragments.iter().find(|known| !known.more)?.end();
        while whole.len() < end {
            let next = self.fragments.iter().find(|known| known.offset == whole.len())?;
            whole.extend_from_slice(&next.bytes);
        }
        Some(whole)
    }
}

struct World {
    stack: Stack,
    sockets: Vec<UdpId>,
    now: Instant,
    reference: Reference,
    /// The UDP payloads that the sockets must receive.
    delivered: Vec<Vec<u8>>,
    /// For each key, a datagram of 65,000 bytes. Fragments are cut from it.
    long: BTreeMap<Key, Vec<u8>>,
    room: Vec<u8>,
    timeouts: u64,
}

fn address(v6: bool, host: u16) -> IpAddr {
    let text = if v6 { format!("2001:db8::{host:x}") } else { format!("10.0.0.{host}") };
    text.parse().unwrap()
}

impl World {
    fn new() -> Self {
        let mut stack = Stack::new(StackConfig::default());
        let addresses = [(false, 24), (true, 64)].map(|(v6, length)| Prefix::new(address(v6, 1), length).unwrap());
        for _ in 0..DEVICES {
            let (addresses, agreed) = (addresses.to_vec(), Agreed::default());
            stack.add_device(DeviceConfig { medium: Medium::Ip, mtu: u16::MAX, addresses, agreed }).unwrap();
        }
        let mut now = Instant::from_ns(1_000_000_000);
        // Before the test begins, the stack sends its reports of multicast groups.
        while let Some(at) = stack.poll_timeout() {
            now = at;
            stack.handle_timeout(now);
        }
        let sockets =
            ["0.0.0.0", "::"].map(|any| stack.udp_bind((any.parse::<IpAddr>().unwrap(), PORT).into()).unwrap());
        Self {
            stack,
            sockets: sockets.to_vec(),
            now,
            reference: Reference::default(),
            delivered: Vec::new(),
            long: BTreeMap::new(),
            room: vec![0; FRAME_BYTES_MAX],
            timeouts: 0,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() {
            0..0xd0 => self.send_one(input),
            0xd0..0xe8 => self.send_all(input),
            0xe8..0xf0 => self.flood(input),
            wait => {
                self.now += Duration::from_secs(u64::from(wait & 15));
                self.expire();
            }
        }
    }

    fn key(input: &mut Input<'_>) -> Key {
        let bits = input.u8();
        let v6 = bits & 1 != 0;
        let protocol = if v6 || bits & 0x70 != 0x70 { wire::UDP } else { 99 };
        let source = Source { device: u16::from(bits >> 7), v6, host: 9 + u16::from(bits >> 1 & 1) };
        Key { source, ident: bits >> 2 & 3, protocol }
    }

    /// Sends one fragment of a datagram, with any offset and any length. The fragment contains the bytes of the datagram, or
    /// different bytes.
    fn send_one(&mut self, input: &mut Input<'_>) {
        let key = Self::key(input);
        let shape = input.u8();
        let units = match shape & 3 {
            0 => usize::from(input.u8() % 16),
            1 => usize::from(input.u8()),
            _ => usize::from(input.u16() & 0x1fff),
        };
        let len = match shape >> 2 & 3 {
            0 => 8 * usize::from(input.u8() % 16),
            1 => usize::from(input.u8()),
            2 => 8 * usize::from(input.u8()),
            _ => input.size(),
        };
        let datagram = self.long.entry(key).or_insert_with(|| datagram(key, 65_000));
        let offset = units * 8;
        let mut bytes = datagram.get(offset..datagram.len().min(offset + len)).unwrap_or_default().to_vec();
        bytes.resize(len.min(65_000), 0);
        if shape & 0x10 != 0 {
            bytes.iter_mut().take(1).for_each(|byte| *byte ^= 1);
        }
        let options = 4 * usize::from(shape >> 6);
        self.send(key, Fragment { head: options, offset, bytes, more: shape & 0x20 == 0 });
    }

    /// Sends all fragments of a datagram in some order. One fragment may be left out, and one may overlap the next.
    fn send_all(&mut self, input: &mut Input<'_>) {
        let key = Self::key(input);
        let len = input.size().clamp(8, 65_000);
        let size = 8 * (1 + usize::from(input.u8()));
        let whole = datagram(key, len);
        let count = whole.len().div_ceil(size);
        let (step, skip, grow) = (usize::from(input.u8()) | 1, input.size(), input.size());
        for turn in 0..count.min(200) {
            let at = if count.is_power_of_two() { turn * step % count } else { (turn + step) % count };
            if at == skip {
                continue;
            }
            let end = whole.len().min((at + 1) * size + if at == grow { 8 } else { 0 });
            let bytes = whole[at * size..end].to_vec();
            self.send(key, Fragment { head: 0, offset: at * size, bytes, more: end < whole.len() });
        }
    }

    /// Sends the first fragment of each of many datagrams.
    fn flood(&mut self, input: &mut Input<'_>) {
        let (way, count, len) = (input.u8(), input.u8(), 8 * usize::from(input.u16() % 8_000));
        let (v6, device) = (way & 1 != 0, u16::from(way >> 1) % DEVICES);
        for ident in 0..count {
            let source = Source { device, v6, host: 20 + u16::from(input.u8() % 4) };
            let key = Key { source, ident, protocol: wire::UDP };
            let bytes = vec![ident; len.max(8)];
            self.send(key, Fragment { head: 0, offset: 0, bytes, more: true });
        }
    }

    /// Sends a fragment to the stack and to the reference. Here `fragment.head` counts only the IP options.
    fn send(&mut self, key: Key, fragment: Fragment) {
        let Key { source: Source { device, v6, host }, ident, protocol } = key;
        let (from, to) = (address(v6, host), address(v6, 1));
        let units = u16::try_from(fragment.offset / 8).unwrap();
        let more = u16::from(fragment.more);
        let options = fragment.head;
        let mut packet = if v6 {
            let [a, b] = (units << 3 | more).to_be_bytes();
            let header = [protocol, 0, a, b, 0, 0, 0, ident];
            Ip::new(from, to, 44).packet(&[&header, &fragment.bytes[..]].concat())
        } else {
            let ip = Ip { ident: ident.into(), flags: units | more << 13, ..Ip::new(from, to, protocol) };
            ip.packet(&fragment.bytes)
        };
        if packet.len() > 65_500 {
            return;
        }
        let options = if v6 { 0 } else { options };
        if options > 0 {
            packet[0] += u8::try_from(options / 4).unwrap();
            packet.splice(20..20, vec![1; options]);
            wire::mend_ip(&mut packet);
        }
        let head = if v6 { 48 } else { 20 + options };
        let expected = self.expect(key, Fragment { head, ..fragment });
        let (header, payload) = packet.split_at(packet.len().min(HEADER_BYTES_MAX));
        let received = Received { header, payload, marks: Marks::default() };
        let outcome = match self.stack.handle_frame(self.now, DeviceId(device), received) {
            Handled::Done => None,
            Handled::Dropped(reason) => Some(reason),
            Handled::Forward(_) => panic!("a host forwards nothing"),
        };
        match expected {
            Ok(_) => assert!(!matches!(outcome, Some(DropReason::Fragment(_))), "{outcome:?} for a good fragment"),
            Err(reason) => assert_eq!(outcome, Some(reason.into()), "{key:?}"),
        }
        self.collect();
    }

    /// Passes a fragment to the reference, and returns the expected result. If the fragment completes a datagram, the datagram's
    /// payload is added to the expected payloads.
    fn expect(&mut self, key: Key, fragment: Fragment) -> Result<(), FragmentDrop> {
        let v6 = key.source.v6;
        let whole = if fragment.offset == 0 && !fragment.more {
            if !v6 {
                // An IPv4 packet with offset 0 and without the more-fragments flag is not a fragment.
                self.deliver(key, &fragment.bytes);
                return Ok(());
            }
            // RFC 6946: a fragment that contains a complete datagram is processed independently of all other fragments.
            Some(fragment.bytes)
        } else {
            if v6 && fragment.more && !fragment.bytes.len().is_multiple_of(8) {
                return Err(FragmentDrop::Malformed);
            }
            self.reference.add(self.now, key, fragment)?
        };
        if let Some(whole) = whole {
            self.deliver(key, &whole);
        }
        Ok(())
    }

    /// Processes a complete datagram. If its UDP header is valid, adds its payload to the payloads that a socket must receive.
    fn deliver(&mut self, key: Key, whole: &[u8]) {
        let Key { source: Source { v6, host, .. }, protocol, .. } = key;
        let [_, _, a, b, c, d, e, f] = *whole.first_chunk::<8>().unwrap_or(&[0; 8]);
        let len = usize::from(u16::from_be_bytes([c, d]));
        if protocol != wire::UDP || whole.len() < 8 || len < 8 || len > whole.len() {
            return;
        }
        let packet = Ip::new(address(v6, host), address(v6, 1), wire::UDP).packet(&whole[..len]);
        let sum = wire::transport_sum(&packet, wire::UDP, if v6 { 40 } else { 20 });
        let sound = if [e, f] == [0, 0] { !v6 } else { sum == Some(0) };
        if sound && u16::from_be_bytes([a, b]) == PORT {
            self.delivered.push(whole[8..len].to_vec());
        }
    }

    /// Checks that the sockets have received exactly the expected payloads.
    fn collect(&mut self) {
        while self.stack.poll_transmit(self.now, DeviceId(0), &mut self.room).is_some() {}
        let mut got = Vec::new();
        for socket in &self.sockets {
            while let Some(datagram) = self.stack.udp_receive(*socket).unwrap() {
                got.push(datagram.bytes);
            }
        }
        assert!(got == self.delivered, "{} datagrams, {} are right", got.len(), self.delivered.len());
        self.delivered.clear();
    }

    fn expire(&mut self) {
        let before = self.reference.waiting.len();
        let dropped = self.reference.waiting.values().filter(|waiting| waiting.dropped && waiting.until <= self.now);
        let dropped = dropped.count();
        self.reference.waiting.retain(|_, waiting| waiting.until > self.now);
        self.timeouts += u64::try_from(before - self.reference.waiting.len() - dropped).unwrap();
        self.stack.handle_timeout(self.now);
        self.collect();
    }

    fn check(&self) {
        let memory = self.stack.memory();
        assert!(memory.0.iter().all(|part| part.held <= part.most), "{memory}");
        let held = (memory.held("datagrams in reassembly"), memory.held("bytes in reassembly"));
        assert_eq!(held, (self.reference.waiting.len(), self.reference.bytes()), "datagrams and bytes that wait");
        assert_eq!(self.stack.drops().get(FragmentDrop::Timeout), self.timeouts, "datagrams given up");
        let evicted = self.stack.drops().get(FragmentDrop::Evicted);
        assert_eq!(evicted, self.reference.evicted, "datagrams given up for others");
        let first = self.reference.waiting.values().map(|waiting| waiting.until).min();
        assert_eq!(self.stack.poll_timeout(), first, "the next deadline");
    }
}

/// Returns the UDP datagram for a key, with the destination port of the sockets and a correct checksum.
fn datagram(key: Key, len: usize) -> Vec<u8> {
    let Key { source: Source { v6, host, .. }, ident, .. } = key;
    // Repeating a block is fast. The block's length is a prime number, so that nearby offsets have different bytes.
    let block = super::contents(u32::from(ident) << 16, 1_021);
    let mut payload = block.repeat(len / block.len() + 1);
    payload.truncate(len - 8);
    let ip = Ip::new(address(v6, host), address(v6, 1), wire::UDP);
    let mut packet = ip.packet(&wire::udp((5, PORT), &payload));
    wire::mend(&mut packet);
    packet.split_off(if v6 { 40 } else { 20 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Floods on all devices, and datagrams between them: every quota is reached, and the stack drops the same datagrams as the
    /// reference.
    #[test]
    fn floods_give_way_as_the_reference_says() {
        let (mut full, mut heavy, mut evicted) = (0, 0, 0);
        for seed in 0..4 {
            let mut rng = Rng::new(seed, 0);
            let mut world = World::new();
            let large = seed % 2 == 1;
            for step in 0..40 {
                let [way, count, high, low] = [7, 120, if large { 20 } else { 0 }, 7].map(|most| byte(&mut rng, most));
                let flood = [&[0xe8, way, count, high, low][..], &vec![step; count.into()]].concat();
                let all = [&[0xd0][..], &[0; 10].map(|_| byte(&mut rng, 255))].concat();
                let one = [&[0][..], &[0; 8].map(|_| byte(&mut rng, 255))].concat();
                for bytes in [flood, all, one] {
                    world.step(&mut Input::new(&bytes));
                    world.check();
                }
                let [datagrams, bytes] = world.reference.weight(|_| true);
                full += u32::from(datagrams == TABLE[0]);
                heavy += u32::from(bytes > TABLE[1] - 70_000);
            }
            evicted += world.reference.evicted;
        }
        assert!(full > 5 && heavy > 5 && evicted > 1_000, "{full} {heavy} {evicted}");
    }

    fn byte(rng: &mut Rng, most: u8) -> u8 {
        u8::try_from(rng.below(u64::from(most) + 1)).unwrap()
    }
}
