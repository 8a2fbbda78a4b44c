//! Fuzz targets: each target interprets bytes as a hostile dialogue with a stack.
//!
//! A target runs its input in a new world (one stack with simulated peers), and panics if the stack breaks a promise. Every
//! sequence of bytes is a valid input. The programs in `fuzz/` call the targets with inputs that are guided by coverage, and the
//! tests call them with saved inputs.
//!
//! An input is a program: an operation, its arguments, the next operation, and so on. Lengths, checksums and sequence numbers are
//! filled in correctly unless the input changes them. So most packets pass the first checks of a header and reach deeper code.

mod dialogue;
mod frames;
mod input;
mod model;
mod peer;
mod reassembly;

pub use dialogue::dialogue;
pub use frames::frames;
pub use reassembly::reassembly;

/// The name of a fuzz target and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets.
pub const TARGETS: [Target; 3] = [("frames", frames), ("dialogue", dialogue), ("reassembly", reassembly)];

/// Returns one byte of the stream that all nodes in the worlds of the fuzz targets send. The byte depends only on its offset
/// `place`, so every receiver can check it.
fn content(place: u32) -> u8 {
    let [a, b, c, d] = place.wrapping_mul(0x9e37_79b1).to_be_bytes();
    a ^ b ^ c ^ d
}

/// Returns `len` bytes of this stream, from the offset `place` on.
fn contents(place: u32, len: usize) -> Vec<u8> {
    (0..len).scan(place, |at, _| Some(content(std::mem::replace(at, at.wrapping_add(1))))).collect()
}

/// Splits a pack into its inputs. A pack contains, for each input, its length in two bytes and then the input.
pub fn unpack(mut pack: &[u8]) -> Vec<&[u8]> {
    let mut inputs = Vec::new();
    while let Some((length, rest)) = pack.split_first_chunk() {
        let (input, rest) = rest.split_at(rest.len().min(u16::from_be_bytes(*length).into()));
        inputs.push(input);
        pack = rest;
    }
    inputs
}

/// Combines inputs into one pack. Leaves out inputs whose length does not fit into two bytes.
pub fn pack(inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut pack = Vec::new();
    for input in inputs {
        if let Ok(length) = u16::try_from(input.len()) {
            pack.extend(length.to_be_bytes());
            pack.extend(input);
        }
    }
    pack
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_and_a_pack_cut_short_is_read_as_far_as_it_goes() {
        let inputs = vec![vec![1; 300], vec![], vec![2, 3]];
        let packed = pack(&inputs);
        assert_eq!(unpack(&packed), inputs);
        assert_eq!(unpack(&packed[..packed.len() - 1])[2], [2]);
        assert_eq!(pack(&[vec![0; 70_000]]), []);
    }
}
