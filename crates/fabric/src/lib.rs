//! A virtual network for the guests of one host.
//!
//! A *guest* is a process that runs one stack over its *devices*; the *control program* defines networks, authorises guests
//! and hands out rings. Nothing here takes a protocol decision: that is the stack's, and nothing here touches shared memory:
//! that is the ring's.

pub mod client;
pub mod control;
mod convert;
mod counters;
mod device;
pub mod files;
mod groups;
pub mod guest;
pub mod isolate;
mod iucv;
pub mod limits;
pub mod protocol;
mod random;
pub mod rundir;
pub mod sockets;
mod stack_sockets;
mod sys;
