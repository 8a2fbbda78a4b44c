//! The messages between the processes of one network.
//!
//! A `channel` carries messages with descriptors over a socket. `message` has the orders to guests and their events, `request` the
//! requests of clients and the answers, `report` the counters of a guest. A `ticket` proves that a control program issued a number. A
//! `secret` proves what a process is.

pub mod channel;
pub mod message;
pub mod report;
pub mod request;
pub mod secret;
pub mod ticket;
