//! The messages that the processes of a network send each other, and the channels, secrets and tickets that the messages rely on.

pub mod channel;
pub mod message;
pub mod report;
pub mod request;
pub mod secret;
pub mod ticket;
