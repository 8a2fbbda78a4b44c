//! A virtual network for the guests of one host.
//!
//! A *guest* is a process that runs one TCP/IP stack. Each of its *devices* is a connection to one network. The *control program*
//! defines networks, authorises guests, and gives each two guests that exchange packets a pair of rings in shared memory. The crate
//! `siga_stack` makes all protocol decisions, and the crate `siga_ring` makes all accesses to shared memory.

mod backpressure;
pub mod broker;
pub mod client;
mod clock;
pub mod cni;
pub mod control;
mod convert;
mod counters;
pub mod decode;
mod device;
mod emulator;
pub mod files;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod groups;
pub mod guest;
pub mod isolate;
mod iucv;
pub mod join;
pub mod limits;
pub mod netlink;
pub mod protocol;
mod random;
pub mod rundir;
pub mod sockets;
mod stack_sockets;
mod switch;
mod sys;
mod tap_device;
pub mod tcp_settings;
pub mod upgrade;
