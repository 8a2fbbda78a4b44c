//! The inputs kept from fuzzing a link with a hostile peer, played again.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it wants by failing")]

mod play;

use std::path::PathBuf;

/// Bytes of all kept inputs.
const KEPT_BYTES_MAX: usize = 200_000;

/// The inputs of a pack: each behind its length in two bytes.
fn kept(name: &str) -> Vec<Vec<u8>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../fuzz/corpus/{name}.bin"));
    let pack = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(pack.len() <= KEPT_BYTES_MAX, "{} bytes", pack.len());
    let mut rest = pack.as_slice();
    let mut inputs = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk() {
        let (input, behind) = behind.split_at(u16::from_be_bytes(*length).into());
        inputs.push(input.to_vec());
        rest = behind;
    }
    inputs
}

#[test]
fn stored_acts_of_a_hostile_peer_break_no_promise_of_the_ring() {
    let inputs = kept("ring");
    assert!(inputs.len() > 50, "{}", inputs.len());
    // What reaches every place, and what broke a promise once.
    for (at, input) in inputs.into_iter().chain(kept("ring-found")).enumerate() {
        // Shown if it fails.
        eprintln!("input {at}: {input:02x?}");
        play::ring(&input);
    }
}

#[test]
fn any_bytes_are_acts_of_a_hostile_peer() {
    let mut bits = 9_293_u64;
    for length in 0..400 {
        let next = |bits: &mut u64| {
            *bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bits.to_be_bytes()[0]
        };
        let input: Vec<u8> = (0..length).map(|_| next(&mut bits)).collect();
        eprintln!("{input:02x?}");
        play::ring(&input);
    }
}
