//! The Internet checksum (RFC 1071), and how to update it when one word of the data changes (RFC 1624). A sum is folded to 16 bits
//! only when the checksum is read. Of all parts that are added to a sum, only the last may have an odd length.

use crate::copy;
use fearless_simd::{Level, Simd, dispatch};
use std::net::IpAddr;

/// Smallest length in bytes for which the processor's widest SIMD registers are used. Detecting these registers takes a few
/// nanoseconds, and for shorter data this is more than they save.
const WIDE_BYTES_MIN: usize = 512;

/// A running sum of 16-bit words in the machine's byte order. The byte order does not change the checksum (RFC 1071 section 2
/// (B)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sum {
    words: u64,
}

impl Sum {
    /// Adds bytes. The number of bytes that were added before must be even.
    #[inline]
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        let (eights, rest) = bytes.as_chunks();
        self.words += if bytes.len() < WIDE_BYTES_MIN { sum(eights) } else { sum_wide(eights) };
        let (twos, odd) = rest.as_chunks::<2>();
        for two in twos {
            self.words += u64::from(u16::from_ne_bytes(*two));
        }
        if let [last] = odd {
            self.words += u64::from(u16::from_ne_bytes([*last, 0]));
        }
        self
    }

    /// Copies bytes and adds them to the sum. This takes no longer than copying alone.
    #[inline]
    fn copied(mut self, from: &[u8], into: &mut [u8]) -> Self {
        assert_eq!(from.len(), into.len(), "a copy of another length");
        let (eights, rest) = from.as_chunks();
        let (into, into_rest) = into.as_chunks_mut();
        self.words += if from.len() < WIDE_BYTES_MIN { copy_sum(eights, into) } else { copy_sum_wide(eights, into) };
        into_rest.copy_from_slice(rest);
        self.bytes(rest)
    }

    #[inline]
    pub(crate) fn word(mut self, word: u16) -> Self {
        self.words += u64::from(word.to_be());
        self
    }

    #[inline]
    pub(crate) fn long(mut self, words: u32) -> Self {
        self.words += u64::from(words.to_be());
        self
    }

    /// Adds another sum.
    #[inline]
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.words += other.words;
        self
    }

    /// Adds the pseudo-header of TCP, UDP and ICMPv6 (RFC 9293 3.1, RFC 8200 8.1). `bytes` is the length field of the
    /// pseudo-header.
    pub(crate) fn pseudo_header(self, from: IpAddr, to: IpAddr, protocol: u8, bytes: usize) -> Self {
        let length = u32::try_from(bytes).unwrap_or(u32::MAX);
        let sum = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => self.bytes(&from.octets()).bytes(&to.octets()),
            (IpAddr::V6(from), IpAddr::V6(to)) => self.bytes(&from.octets()).bytes(&to.octets()),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => self,
        };
        sum.bytes(&length.to_be_bytes()).word(u16::from(protocol))
    }

    /// Returns the value of the checksum field.
    #[inline]
    pub(crate) fn checksum(self) -> u16 {
        !self.folded()
    }

    /// Returns true if the sum shows that the checksum is correct. The summed bytes must include the checksum field.
    #[inline]
    pub(crate) fn is_intact(self) -> bool {
        self.folded() == 0xffff
    }

    #[inline]
    fn folded(self) -> u16 {
        let mut sum = self.words;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::from_be(u16::try_from(sum).unwrap_or(u16::MAX))
    }
}

/// Two sums over words of eight bytes: `all` adds the complete words, and `upper` adds their upper halves. SIMD computes both in
/// three instructions per step. `all` wraps, so it loses carries. But `all` minus `upper` shifted by 32 bits is the sum of the
/// lower halves, which fits into 64 bits.
#[derive(Default)]
struct Lanes {
    all: u64,
    upper: u64,
}

impl Lanes {
    #[inline(always)]
    fn add(&mut self, eight: [u8; 8]) {
        let word = u64::from_ne_bytes(eight);
        self.all = self.all.wrapping_add(word);
        self.upper += word >> 32;
    }

    #[inline(always)]
    fn words(self) -> u64 {
        self.all.wrapping_sub(self.upper << 32) + self.upper
    }
}

#[inline(always)]
fn sum(eights: &[[u8; 8]]) -> u64 {
    let mut lanes = Lanes::default();
    for eight in eights {
        lanes.add(*eight);
    }
    lanes.words()
}

#[inline(always)]
fn copy_sum(from: &[[u8; 8]], into: &mut [[u8; 8]]) -> u64 {
    let mut lanes = Lanes::default();
    for (eight, into) in from.iter().zip(into) {
        *into = *eight;
        lanes.add(*eight);
    }
    lanes.words()
}

#[inline(never)]
fn sum_wide(eights: &[[u8; 8]]) -> u64 {
    dispatch!(Level::new(), simd => simd.vectorize(#[inline(always)] || sum(eights)))
}

#[inline(never)]
fn copy_sum_wide(from: &[[u8; 8]], into: &mut [[u8; 8]]) -> u64 {
    dispatch!(Level::new(), simd => simd.vectorize(#[inline(always)] || copy_sum(from, into)))
}

/// Copies bytes. If `sum` is not `None`, adds the bytes to the sum.
#[inline]
pub(crate) fn copy_and_add(sum: Option<Sum>, from: &[u8], into: &mut [u8]) -> Option<Sum> {
    let Some(sum) = sum else {
        copy(from, into);
        return None;
    };
    Some(sum.copied(from, into))
}

/// Returns the new checksum field after one word of the data has changed from `before` to `after` (RFC 1624, equation 3).
#[inline]
pub(crate) fn updated(checksum: u16, before: u16, after: u16) -> u16 {
    Sum::default().word(!checksum).word(!before).word(after).checksum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_that_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().bytes(&bytes).checksum(), !0xddf2);
    }

    #[test]
    fn a_checksum_equals_the_sum_of_its_words() {
        let full = vec![0xff; 70_000];
        let mixed: Vec<u8> = (0..70_000_u64).map(|i| u8::try_from(i * i % 253).unwrap()).collect();
        for bytes in [full, mixed] {
            for end in (0..80).chain([1460, 8953, 65_535, 70_000]) {
                for start in [0, 1, 2, 7].map(|start: usize| start.min(end)) {
                    let part = &bytes[start..end];
                    let words = part
                        .chunks(2)
                        .map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |low| u64::from(*low)));
                    let sum = words.sum::<u64>();
                    // No sum but that of nothing is a multiple of all ones and none of them.
                    let folded = if sum == 0 { 0 } else { (sum - 1) % 0xffff + 1 };
                    assert_eq!(u64::from(Sum::default().bytes(part).folded()), folded, "{start} to {end}");
                    let mut copy = vec![0; part.len()];
                    let copied = copy_and_add(Some(Sum::default()), part, &mut copy);
                    assert_eq!(copied, Some(Sum::default().bytes(part)), "{start} to {end}");
                    assert!(copy == part, "{start} to {end}");
                }
            }
        }
    }

    #[test]
    fn an_updated_checksum_is_that_of_the_changed_words() {
        for (before, after) in [(0x4001, 0x3f01), (0, 0xffff), (0xffff, 0), (0x0100, 0x0000)] {
            let sum = |word| Sum::default().bytes(&[0x45, 0, 0, 84, 0x12, 0x34]).word(word);
            let changed = updated(sum(before).checksum(), before, after);
            assert!(sum(after).word(changed).is_intact(), "{before:#x} to {after:#x}");
        }
    }
}
