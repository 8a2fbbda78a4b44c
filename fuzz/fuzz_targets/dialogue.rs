//! Fuzz target `dialogue`: plays the input with `siga_sim::fuzz::dialogue`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| siga_sim::fuzz::dialogue(bytes));
