//! How an application in another process uses a guest's stack (IUCV: Inter-User Communication Vehicle).
//!
//! The application and its guest share a link and an arena each way:
//! - Over the link, [`record`]s cross: *commands* to the guest, *events* to the application.
//! - The arenas hold payload. Bytes to send stay in the application's arena until the receiver has acknowledged them. Received
//!   bytes stay in the guest's arena until the application has copied them out. A record only names their place, an
//!   [`extent::Extent`].
//!
//! Neither side trusts the other: each checks a whole record before it acts on any of it. [`client`] is the application's side;
//! the guest's side is in `siga-fabric`.
//!
//! Invariants: this crate uses no stack and no control program, so that a library for unmodified programs can load it.

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

/// With this many free buffers there is room for any record, beside the records that share the buffer being filled.
pub const ROOM: usize = 2;

/// The shape of both rings.
pub fn shape() -> Option<Shape> {
    Shape::new(BUFFER_BYTES_MAX, limits::APPLICATION_BUFFERS)
}
