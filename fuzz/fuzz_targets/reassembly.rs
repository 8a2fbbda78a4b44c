//! See `siga_sim::fuzz::reassembly`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| siga_sim::fuzz::reassembly(bytes));
