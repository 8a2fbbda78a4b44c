//! Secrets derived from a stack's seed. Each purpose has its own key or its own stream of random numbers.
//!
//! The seed is the key of a ChaCha20 generator, and each purpose has its own stream. The outputs for one purpose therefore reveal
//! nothing about the seed or about another purpose. Each derived value that a peer sees is a keyed hash (SipHash-2-4) or the
//! output of a generator. No two purposes share a key. Two stacks with the same seed behave identically.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use siphasher::sip::{SipHasher13, SipHasher24};
use std::fmt;
use std::hash::BuildHasher;

/// 256 secret bits. The owner of a stack draws them from the operating system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub [u8; 32]);

/// Implements `Debug` for types that contain secrets, so that it prints only the name of the type.
macro_rules! debug_without_secrets {
    ($($secret:ident)*) => {$(
        impl fmt::Debug for $secret {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($secret), "(..)"))
            }
        }
    )*};
}

debug_without_secrets!(Seed Random Secret Keyed);

/// The purpose of a key or a random stream. Add new purposes at the end, so that simulations with old seeds give the same results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Purpose {
    NeighbourTable,
    /// The hash tables of the stack's own addresses.
    AddressTables,
    /// The hash table of UDP sockets.
    UdpTable,
    /// The hash table of TCP connections.
    FlowTable,
    /// The hash table of TCP listeners.
    ListenerTable,
    /// The hash table from remote addresses to their local ports.
    PortTable,
    /// Initial sequence numbers and timestamp offsets of TCP.
    InitialNumbers,
    SynCookies,
    /// TCP: the local port at which the search for a free port begins, for each remote address and port.
    TcpPorts,
    /// Local ports of UDP sockets.
    UdpPorts,
    /// Identifications of IPv4 packets.
    Ipv4Idents,
    /// Identifications of IPv6 fragments.
    FragmentIdents,
    /// The random number of tokens that each sent ICMP error takes from the rate limit's token bucket.
    ErrorLimit,
    /// The random delay of multicast group reports.
    GroupTimers,
    /// The digests of sent datagrams. An ICMP error is checked against them.
    SentDigests,
    /// IPv6 flow labels.
    FlowLabels,
    /// The keys of Fast Open cookies.
    FastOpenKeys,
}

impl Seed {
    /// Creates a seed from a number, only for simulations and tests: a peer that guesses the number knows all secrets.
    pub const fn simulated(number: u64) -> Self {
        let mut bytes = [0; 32];
        bytes.split_at_mut(8).0.copy_from_slice(&number.to_le_bytes());
        Self(bytes)
    }

    pub(crate) fn random(&self, purpose: Purpose) -> Random {
        let mut generator = ChaCha20Rng::from_seed(self.0);
        // The returned generator has a derived key, so that its memory does not contain the seed.
        generator.set_stream(purpose as u64);
        let mut subkey = [0; 32];
        generator.fill_bytes(&mut subkey);
        Random { generator: ChaCha20Rng::from_seed(subkey) }
    }

    pub(crate) fn keyed(&self, purpose: Purpose) -> Keyed {
        Keyed { keys: self.keys(purpose) }
    }

    /// Returns the key of the keyed hash for a purpose.
    pub(crate) fn secret(&self, purpose: Purpose) -> Secret {
        Secret(self.keys(purpose))
    }

    fn keys(&self, purpose: Purpose) -> [u64; 2] {
        let mut random = self.random(purpose);
        [random.next(), random.next()]
    }
}

#[derive(Clone)]
pub(crate) struct Random {
    generator: ChaCha20Rng,
}

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.generator.next_u64()
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        self.generator.next_u32()
    }

    /// Returns a random number that is less than `bound`. `bound` must not be 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        u32::try_from((u64::from(self.next_u32()) * u64::from(bound)) >> 32).unwrap_or(0)
    }
}

/// The key of a keyed hash whose outputs are sent to peers.
#[derive(Clone, Copy)]
pub struct Secret(pub [u64; 2]);

impl Secret {
    /// Returns the SipHash-2-4 of `bytes`.
    pub(crate) fn hash(self, bytes: &[u8]) -> u64 {
        let Self([left, right]) = self;
        SipHasher24::new_with_keys(left, right).hash(bytes)
    }
}

/// Creates hashers with a secret key, so that an attacker cannot choose addresses and ports that share a bucket. The hashes never
/// leave the stack, so SipHash-1-3 is enough, as in the hash tables of the standard library.
#[derive(Clone, Copy)]
pub(crate) struct Keyed {
    keys: [u64; 2],
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    #[inline]
    fn build_hasher(&self) -> SipHasher13 {
        let [left, right] = self.keys;
        SipHasher13::new_with_keys(left, right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const ALL: [Purpose; 17] = [
        Purpose::NeighbourTable,
        Purpose::AddressTables,
        Purpose::UdpTable,
        Purpose::FlowTable,
        Purpose::ListenerTable,
        Purpose::PortTable,
        Purpose::InitialNumbers,
        Purpose::SynCookies,
        Purpose::TcpPorts,
        Purpose::UdpPorts,
        Purpose::Ipv4Idents,
        Purpose::FragmentIdents,
        Purpose::ErrorLimit,
        Purpose::GroupTimers,
        Purpose::SentDigests,
        Purpose::FlowLabels,
        Purpose::FastOpenKeys,
    ];

    #[test]
    fn two_purposes_of_a_seed_never_give_equal_random_streams() {
        let mut words = BTreeSet::new();
        for purpose in ALL {
            let mut random = Seed::simulated(1).random(purpose);
            words.extend((0..1_000).map(|_| random.next()));
        }
        assert_eq!(words.len(), ALL.len() * 1_000, "no word comes twice");
    }

    #[test]
    fn every_bit_of_a_seed_changes_every_random_stream() {
        let draw = |seed: Seed| {
            let mut random = seed.random(Purpose::UdpPorts);
            [random.next(), random.next()]
        };
        let seeds = (0..256).map(|bit| {
            let mut bytes = [0; 32];
            bytes[bit / 8] = 1 << (bit % 8);
            Seed(bytes)
        });
        let drawn: BTreeSet<_> = seeds.chain([Seed::simulated(0)]).map(draw).collect();
        assert_eq!(drawn.len(), 257);
        assert_eq!(draw(Seed::simulated(7)), draw(Seed::simulated(7)));
        let mut random = Seed::simulated(3).random(Purpose::UdpPorts);
        assert!((0..1000).all(|_| random.below(10) < 10));
    }

    #[test]
    fn debug_output_of_a_seed_reveals_no_secret() {
        let seed = Seed([0x5a; 32]);
        let shown = format!(
            "{seed:?} {:?} {:?} {:?}",
            seed.random(Purpose::UdpPorts),
            seed.keyed(Purpose::UdpTable),
            seed.secret(Purpose::SynCookies)
        );
        assert_eq!(shown, "Seed(..) Random(..) Keyed(..) Secret(..)");
    }

    // RFC 9293 MUST-9.
    #[test]
    fn the_keyed_hash_is_siphash() {
        // The vector of the paper's appendix A: key 00..0f, message 00..0e.
        let secret = Secret([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(secret.hash(&message), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn different_keys_hash_the_same_addresses_differently() {
        let [a, b] = [Purpose::UdpTable, Purpose::FlowTable].map(|purpose| Seed::simulated(1).keyed(purpose));
        let same = (0_u32..1000).filter(|n| a.hash_one(n) % 64 == b.hash_one(n) % 64).count();
        assert!(same < 100, "{same} of 1,000 fall into the same of 64 buckets");
    }
}
