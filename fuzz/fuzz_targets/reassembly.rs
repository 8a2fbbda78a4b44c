//! Fuzz target `reassembly`: plays the input with `siga_sim::fuzz::reassembly`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| siga_sim::fuzz::reassembly(bytes));
