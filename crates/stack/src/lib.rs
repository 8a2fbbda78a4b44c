//! TCP/IP without I/O: frames and time in, frames and deadlines out.
//!
//! One [`Stack`] is an end host and a router. Nothing here reads a clock, opens a socket, starts a thread or draws a random
//! number: time is an argument, secrets come from the seed that a stack is made with. After anything that changes a stack its
//! owner drains `poll_transmit`, then sleeps until `poll_timeout`. Header formats come from `smoltcp::wire`, everything
//! above them is here. Every bound has its name in [`limits`].
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
