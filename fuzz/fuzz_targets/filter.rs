//! Fuzz target `filter`: plays the input as packets at a guest with a port filter, with `siga_fabric::fuzz::filter`.
#![no_main]

use siga_fabric::fuzz as play;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| play::filter(bytes));
