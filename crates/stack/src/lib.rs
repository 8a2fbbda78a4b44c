//! TCP/IP without I/O: frames and time in, frames and deadlines out.
//!
//! One [`Stack`] is an end host and a router. The crate reads no clock, opens no socket, starts no thread and draws no random number:
//! time is an argument, and secrets come from the seed of a stack. Every bound has its name in [`limits`].
//!
//! Folders are layers, the lowest first: [`wire`], [`link`], [`ip`], then `multicast`, [`udp`], [`tcp`] and [`sockets`], and above
//! them [`stack`], which has the methods of [`Stack`]. A lower layer never uses an upper one.
#![forbid(unsafe_code)]

mod copy;
pub mod drops;
pub mod ip;
pub mod limits;
pub mod link;
mod multicast;
pub mod pcapng;
pub mod seed;
pub mod sockets;
pub mod stack;
pub mod tcp;
pub mod time;
pub mod udp;
pub mod wire;

pub use copy::copy;
pub use stack::Stack;
