//! Fuzz target `blocks`: plays the input as blocks and messages of a partner's device, with `siga_fabric::fuzz::blocks`.
#![no_main]

use siga_fabric::fuzz as play;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| play::blocks(bytes));
