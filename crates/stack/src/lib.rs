//! TCP/IP without I/O: frames and time go in, frames and deadlines come out.
//!
//! [`Stack`] is the type of both end hosts and routers. The crate reads no clock, opens no socket, starts no thread and draws no
//! random number. Time is an argument, and each stack derives its secrets from a seed that its owner supplies. Every limit is a
//! constant in [`limits`].
//!
//! The folders are layers. From the lowest to the highest, they are [`wire`], [`link`], [`ip`], `multicast`, [`udp`], [`tcp`],
//! [`sockets`] and [`stack`], which has the methods of [`Stack`]. A lower layer never uses a higher one. [`assign`], which uses only
//! [`wire`], answers stations that ask for their addresses.
#![forbid(unsafe_code)]

pub mod assign;
mod copy;
pub mod drops;
pub mod ip;
pub mod limits;
pub mod link;
mod multicast;
pub mod pcapng;
mod prefetch;
pub mod seed;
mod slab;
pub mod sockets;
pub mod stack;
pub mod tcp;
pub mod time;
pub mod udp;
pub mod wire;

pub use copy::copy;
pub use stack::Stack;
