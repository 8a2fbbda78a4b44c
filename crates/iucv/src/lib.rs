//! The protocol with which an application uses the TCP/IP stack of a guest, which is another process (IUCV: Inter-User
//! Communication Vehicle).
//!
//! The application and its guest share a link (a pair of rings in shared memory). They also share an arena (shared memory without
//! a ring) for each direction:
//! - The link carries [`record`]s: *commands* to the guest and *events* to the application.
//! - The arenas contain payload. Bytes to send stay in the application's arena until the receiving host has acknowledged them.
//!   Received bytes stay in the guest's arena until the application has copied them out. A record contains only the positions of
//!   the bytes in an arena ([`extent::Extent`]).
//!
//! Neither side trusts the other: each side checks a complete record before it acts on any part of the record. [`client`] is the
//! application's side. The guest's side is in `siga-fabric`.
//!
//! Invariant: this crate uses neither the stack nor the fabric. So a library that contains this crate can be loaded into
//! unmodified programs.

#![forbid(unsafe_code)]

pub mod broker;
pub mod client;
pub mod extent;
pub mod limits;
pub mod options;
mod packets;
pub mod passing;
pub mod record;

use siga_ring::Shape;
use siga_ring::limits::BUFFER_BYTES_MAX;

/// Size of a block, in bytes. Both sides divide their arenas into blocks. A block contains bytes of one socket only.
pub const BLOCK_BYTES: usize = 8_192;

/// Number of free buffers that guarantees room for any record. The record needs one buffer. The second one is needed because the
/// buffer that is being filled may have too little room for the record.
pub const ROOM: usize = 2;

/// Returns the shape of both rings between an application and its guest.
pub fn shape() -> Option<Shape> {
    Shape::new(BUFFER_BYTES_MAX, limits::APPLICATION_BUFFERS)
}
