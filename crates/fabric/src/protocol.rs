//! The messages that the processes of a virtual network send to each other. Also the channels that carry the messages, and the
//! secrets and tickets (unforgeable ids) that the messages contain.

pub mod channel;
pub mod direct;
pub mod message;
pub mod report;
pub mod request;
pub mod secret;
pub mod ticket;
