//! The messages between the processes of one network.

pub mod channel;
pub mod message;
pub mod report;
pub mod request;
pub mod secret;
pub mod ticket;
