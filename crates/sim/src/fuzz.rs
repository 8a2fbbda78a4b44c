//! Interprets fuzzer input: each function turns bytes into a hostile dialogue with a stack.
//!
//! Each function runs its input in a new world, and panics if the stack breaks a promise. Every input is valid. The targets in
//! `fuzz/` call these functions with inputs guided by coverage, and the tests call them with saved inputs. An input is a program:
//! an operation, its arguments, the next operation, and so on. Lengths, checksums and sequence numbers are filled in correctly
//! unless the input sets them, so most packets pass the first checks of a header.

mod dialogue;
mod frames;
mod input;
mod peer;
mod reassembly;

pub use dialogue::dialogue;
pub use frames::frames;
pub use reassembly::reassembly;

/// The name and the function of a target.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 3] = [("frames", frames), ("dialogue", dialogue), ("reassembly", reassembly)];

/// Returns one byte of the stream that all nodes of these worlds send. The byte depends only on its offset, so every receiver can
/// check it.
fn content(place: u32) -> u8 {
    let [a, b, c, d] = place.wrapping_mul(0x9e37_79b1).to_be_bytes();
    a ^ b ^ c ^ d
}

/// Returns `len` bytes of the stream from an offset on.
fn contents(place: u32, len: usize) -> Vec<u8> {
    (0..len).scan(place, |at, _| Some(content(std::mem::replace(at, at.wrapping_add(1))))).collect()
}

/// Returns the inputs of a pack in their order. In a pack, each input follows its length, which has two bytes.
pub fn unpack(mut pack: &[u8]) -> Vec<&[u8]> {
    let mut inputs = Vec::new();
    while let Some((length, rest)) = pack.split_first_chunk() {
        let (input, rest) = rest.split_at(rest.len().min(u16::from_be_bytes(*length).into()));
        inputs.push(input);
        pack = rest;
    }
    inputs
}

/// Combines inputs into one pack. Inputs whose length does not fit into two bytes are left out.
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
