//! Fuzz target `addresses`: plays the input as requests for addresses at a port of a switch, with `siga_fabric::fuzz::addresses`.
#![no_main]

use siga_fabric::fuzz as play;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| play::addresses(bytes));
