//! The control program: defines networks, authorises guests, hands out rings, watches.
//!
//! It is one thread with one event loop, and waits for nobody. No frame passes through it: once a pair is linked, its guests
//! need it no more. What it must not forget is in the state file; a successor reads it and finds the guests again.

pub mod pairs;
