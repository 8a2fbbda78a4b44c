//! Prefetching: the CPU loads several cache lines from memory at the same time, before the stack needs them.
//!
//! With ten thousand connections, the state of a connection is usually not in the CPU cache. The state has about 16 cache lines.
//! Without prefetching, the CPU waits for most of these lines one after the other (decision 011).

use prefetch_index::prefetch_index;

const LINE_BYTES: usize = 64;

/// Begins to load all cache lines of a value. This has no effect except on time.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    // `prefetch_index` adds an index to the address of a slice, and does not require that the index is inside the slice.
    let anchor: &[u8] = &[];
    for address in addresses(std::ptr::from_ref(value).addr(), size_of::<T>()) {
        prefetch_index(anchor, address.wrapping_sub(anchor.as_ptr().addr()));
    }
}

/// Returns an address in each cache line of a value that has `bytes` bytes from address `begin` on.
#[inline]
fn addresses(begin: usize, bytes: usize) -> impl Iterator<Item = usize> {
    // The value may begin in the middle of a line, and then ends in one line more.
    let last = bytes.saturating_sub(1);
    (0..bytes).step_by(LINE_BYTES).chain(std::iter::once(last)).map(move |at| begin + at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_cache_line_of_a_value_is_loaded_and_no_other() {
        for begin in 640..704 {
            for bytes in 1..300 {
                let loaded: BTreeSet<usize> = addresses(begin, bytes).map(|address| address / LINE_BYTES).collect();
                let wanted: BTreeSet<usize> = (begin..begin + bytes).map(|address| address / LINE_BYTES).collect();
                assert_eq!(loaded, wanted, "{bytes} bytes from {begin}");
            }
        }
    }
}
