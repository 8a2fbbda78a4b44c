//! What the processes of one network say to each other, and how it reaches them.
//!
//! `channel` carries messages with descriptors over a socket. `message` has those between the control program and its guests,
//! `request` those between the control program and its clients, `report` what a guest has counted. `ticket` and `secret` prove
//! where a number comes from and which process speaks.

pub mod channel;
pub mod message;
pub mod report;
pub mod request;
pub mod secret;
pub mod ticket;
