//! Fuzz target `frames`: plays the input with `siga_sim::fuzz::frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| siga_sim::fuzz::frames(bytes));
