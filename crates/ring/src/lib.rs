//! Shared-memory links between two processes that do not trust each other. A link has a ring of buffers in each direction.
//!
//! Each end of a ring pair owns one sealed memory file with its outgoing buffers and its own indices. The other end maps the file
//! read-only. A [`Link`] is one end. It has both memory files, a doorbell (a pipe for notifications) in each direction, a
//! [`Producer`] and a [`Consumer`]. [`wait`] decides when an end polls and when it sleeps. [`arena`] is shared memory without a
//! ring, for payload. [`direct`] is the memory with which two applications exchange the bytes of connections.
//!
//! Invariants:
//! - The ring never looks inside a frame. The owner of a link decides what happens to a frame when the ring is full.
//! - Every word of the peer is read once, and all of its 64 bits are checked. A size that the peer wrote never determines how
//!   much memory is allocated.
//! - A peer that violates the ring's protocol causes a typed [`Violation`], never a panic.
//! - Only `map.rs` touches shared memory. There is no `&[u8]` into memory that a peer can write.
//! - Every limit is a named constant in [`limits`].
#![cfg_attr(all(loom, not(test)), expect(dead_code, reason = "only tests make links of the model"))]

#[cfg(not(loom))]
pub mod arena;
pub mod clock;
#[cfg(not(loom))]
mod colocate;
mod consumer;
pub mod counters;
pub mod direct;
pub mod doorbell;
mod layout;
pub mod limits;
#[cfg(not(loom))]
mod link;
#[cfg(not(loom))]
mod map;
#[cfg(not(loom))]
mod memory;
#[cfg(loom)]
#[path = "tests/model.rs"]
mod model;
mod notifier;
mod producer;
#[cfg(not(loom))]
pub mod ready_set;
mod retained;
mod sync;
#[cfg(not(loom))]
pub mod sys;
#[cfg(all(test, not(loom)))]
mod tests;
mod violation;
#[cfg(not(loom))]
pub mod wait;

pub use consumer::{Consumer, Frame};
pub use doorbell::{NotifyFd, WakeFd};
pub use layout::Shape;
#[cfg(not(loom))]
pub use link::Link;
#[cfg(not(loom))]
pub use memory::{OwnMemory, PeerMemory, memory_file};
pub use producer::{Producer, ReserveError};
pub use retained::{Retained, Retainer};
pub use violation::{MapError, Violation};
