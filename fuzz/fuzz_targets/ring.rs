//! Fuzz target `ring`: plays the input as described in `crates/ring/tests/play`.
#![no_main]

#[path = "../../crates/ring/tests/play/mod.rs"]
mod play;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| play::ring(bytes));
