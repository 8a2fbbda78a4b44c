//! Fuzz target `switch`: plays the input as hostile stations at a switch, with `siga_fabric::fuzz::switch`.
#![no_main]

use siga_fabric::fuzz as play;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| play::switch(bytes));
