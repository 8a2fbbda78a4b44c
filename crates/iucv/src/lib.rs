//! How an application in another process uses a guest's stack (IUCV: Inter-User Communication Vehicle).
//!
//! The application and its guest share a link, and an arena for each direction:
//! - The link carries [`record`]s: *commands* to the guest and *events* to the application.
//! - The arenas hold payload. Bytes to send stay in the application's arena until the receiver has acknowledged them. Received
//!   bytes stay in the guest's arena until the application has copied them out. A record only names the [`extent::Extent`]s in which
//!   the bytes lie.
//!
//! Neither side trusts the other: each side checks a whole record before it acts on any part of it. [`client`] is the application's
//! side. The guest's side is in `siga-fabric`.
//!
//! Invariant: this crate uses neither the stack nor the fabric, so that a library with it can be loaded into unmodified programs.

#![forbid(unsafe_code)]

pub mod client;
pub mod extent;
pub mod limits;
pub mod options;
pub mod record;

use siga_ring::Shape;
use siga_ring::limits::BUFFER_BYTES_MAX;

/// Both sides divide their arenas into blocks of this many bytes. A block has bytes of one socket only.
pub const BLOCK_BYTES: usize = 8_192;

/// Number of free buffers that guarantees room for any record: one for the record, and one because the buffer that is being filled may
/// have no room for it.
pub const ROOM: usize = 2;

/// Returns the shape of both rings between an application and its guest.
pub fn shape() -> Option<Shape> {
    Shape::new(BUFFER_BYTES_MAX, limits::APPLICATION_BUFFERS)
}
