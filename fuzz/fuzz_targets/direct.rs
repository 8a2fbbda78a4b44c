//! Fuzz target `direct`: plays the input as described in `crates/ring/tests/direct_play`.
#![no_main]

#[path = "../../crates/ring/tests/direct_play/mod.rs"]
mod direct_play;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| direct_play::direct(bytes));
