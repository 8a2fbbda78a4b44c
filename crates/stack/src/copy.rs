//! Copies bytes between an application and the stack, at full speed for every alignment.

/// Size of a page, in bytes. To detect a load that depends on an earlier store, the processor first compares only the offsets of
/// their addresses within a page.
const PAGE: usize = 4_096;

/// Distances from source to target, modulo the page size, at which `rep movsb` is slow: 3 GB/s instead of 50 GB/s on AMD's Zen 3
/// and Zen 4. At these distances, the processor wrongly assumes that the next load depends on the last store, and waits for the
/// store.
const SLOW_APART: std::ops::Range<usize> = 1..32;

/// Number of bytes that are copied at a time when `rep movsb` is slow. The C library uses `rep movsb` only for longer copies.
const PART_BYTES: usize = 2_048;

/// Copies all of `from` to `into`. The copy is fast at every distance between the two slices.
///
/// # Panics
/// Panics if the slices differ in length.
#[inline]
pub fn copy(from: &[u8], into: &mut [u8]) {
    if from.len() <= PART_BYTES {
        return into.copy_from_slice(from);
    }
    copy_long(from, into);
}

#[inline(never)]
fn copy_long(from: &[u8], into: &mut [u8]) {
    let apart = into.as_ptr().addr().wrapping_sub(from.as_ptr().addr()) % PAGE;
    if !SLOW_APART.contains(&apart) {
        return into.copy_from_slice(from);
    }
    assert_eq!(from.len(), into.len(), "a copy of another length");
    for (from, into) in from.chunks(PART_BYTES).zip(into.chunks_mut(PART_BYTES)) {
        into.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_at_every_distance() {
        let from: Vec<u8> = (0..=250).cycle().take(40_000).collect();
        let mut memory = vec![0; 60_000];
        for apart in (0..40).chain([64, 4_095]) {
            for len in [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 33_333] {
                let start = from.as_ptr().addr().wrapping_sub(memory.as_ptr().addr()).wrapping_add(apart) % PAGE;
                memory.fill(0xee);
                copy(&from[..len], &mut memory[start..start + len]);
                assert_eq!(&memory[start..start + len], &from[..len], "{len} bytes {apart} apart");
                let around = memory[..start].iter().chain(&memory[start + len..]);
                assert!(around.into_iter().all(|byte| *byte == 0xee), "{len} bytes {apart} apart");
            }
        }
    }

    #[test]
    #[should_panic(expected = "a copy of another length")]
    fn a_copy_between_different_lengths_panics() {
        let from = vec![0; 10_000];
        let mut memory = vec![0; 20_000];
        let start = from.as_ptr().addr().wrapping_sub(memory.as_ptr().addr()).wrapping_add(8) % PAGE;
        copy(&from, &mut memory[start..start + 9_999]);
    }
}
