//! Generated content: each byte is a function of its position in the stream alone, so that a receiver can check a stream without
//! storing it.

/// Writes the content that starts at position `at`.
pub(crate) fn fill(at: u64, into: &mut [u8]) {
    let skip = usize::try_from(at % 8).unwrap_or(0);
    let (first, rest) = into.split_at_mut(into.len().min((8 - skip) % 8));
    first.copy_from_slice(&word(at / 8).to_le_bytes()[skip..skip + first.len()]);
    let mut words = rest.chunks_exact_mut(8);
    let mut index = at.div_ceil(8);
    for into in &mut words {
        into.copy_from_slice(&word(index).to_le_bytes());
        index += 1;
    }
    let last = words.into_remainder();
    last.copy_from_slice(&word(index).to_le_bytes()[..last.len()]);
}

/// Returns eight bytes that depend on every bit of the index.
fn word(index: u64) -> u64 {
    let mixed = (index ^ 0x5349_4741).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}
