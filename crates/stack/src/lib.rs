//! TCP/IP without I/O: frames and time in, frames and deadlines out.
//!
//! One [`Stack`] is an end host and a router. Nothing here reads a clock, opens a socket, starts a thread or draws a random
//! number: time is an argument, secrets come from the seed that a stack is made with. After anything that changes a stack its
//! owner drains `poll_transmit`, then sleeps until `poll_timeout`. Header formats come from `smoltcp::wire`, everything
//! above them is here. Every bound has its name in [`limits`].
#![forbid(unsafe_code)]

mod addresses;
mod capture;
mod checksum;
mod copy;
pub mod cut;
pub mod device;
pub mod drops;
pub mod echo;
pub mod forward;
mod fragment;
pub mod frame;
mod group;
pub mod icmp;
mod igmp;
mod ipv4;
mod ipv6;
pub mod limits;
pub mod memory;
mod mld;
mod neighbour;
mod output;
mod path_mtu;
pub mod pcapng;
mod redirect;
mod resolve;
pub mod route;
pub mod seed;
mod sent;
pub mod sockets;
pub mod source;
pub mod stack;
pub mod tcp;
pub mod time;
pub mod udp;

pub use copy::copy;
pub use stack::Stack;
