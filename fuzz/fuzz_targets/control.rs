//! Fuzz target `control`: plays the input as described in `crates/fabric/tests/control`.
#![no_main]

#[path = "../../crates/fabric/tests/control/play/mod.rs"]
mod play;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| play::control(bytes));
