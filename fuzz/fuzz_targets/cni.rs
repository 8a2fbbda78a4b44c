//! Fuzz target `cni`: plays the input as a configuration for the plug-in of containers, with `siga_fabric::fuzz::cni`.
#![no_main]

use siga_fabric::fuzz as play;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| play::cni(bytes));
