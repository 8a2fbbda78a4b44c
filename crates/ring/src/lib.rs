//! Shared-memory links between two processes that do not trust each other. Frames are opaque.
//!
//! Each end owns one sealed memory file: its outgoing buffers and its own indices. The other end maps it read-only. A
//! [`Link`] puts the two together with a doorbell each way and gives a [`Producer`] and a [`Consumer`]. What the peer wrote is
//! read once, compared at full width, and never used to size anything; a peer against the contract is a typed
//! [`Violation`], never a panic. Nothing here looks inside a frame, waits, or decides what a full ring means: that is for the
//! owner, with [`wait`] as the policy of waiting. Every bound has its name in [`limits`].

pub mod arena;
pub mod clock;
mod consumer;
pub mod counters;
pub mod doorbell;
mod layout;
pub mod limits;
mod link;
mod map;
mod memory;
mod producer;
mod sync;
#[cfg(test)]
mod tests;
mod violation;
pub mod wait;

pub use consumer::{Consumer, Frame};
pub use doorbell::{Bell, Ear};
pub use layout::Shape;
pub use link::Link;
pub use memory::{OwnMemory, PeerMemory};
pub use producer::{Producer, ReserveError};
pub use violation::{MapError, Violation};
