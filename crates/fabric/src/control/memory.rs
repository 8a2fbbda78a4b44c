//! The memory of guests: files for their halves of links, which guests cannot make themselves.

use crate::application;
use crate::error::{Error, IoContext, Result};
use crate::message::Buffers;
use siga_ring::{Shape, memory_file};
use std::os::fd::OwnedFd;

/// Memory for a guest's outgoing ring of a pair.
pub(super) fn of_ring(outbound: Buffers) -> Result<OwnedFd> {
    let bytes = ring_bytes(outbound).ok_or_else(|| Error::usage("no ring has such buffers"))?;
    memory_file(bytes).context("cannot make memory for a ring")
}

/// Memory for a guest's ring to an application, and for its arena.
pub(super) fn of_application(arena_bytes: u64) -> Result<[OwnedFd; 2]> {
    let shape = application::shape().ok_or_else(|| Error::usage("no ring has such buffers"))?;
    let arena_bytes = usize::try_from(arena_bytes).map_err(|_| Error::usage("no arena is so large"))?;
    let make = |bytes| memory_file(bytes).context("cannot make memory for an application");
    Ok([make(shape.memory_bytes())?, make(arena_bytes)?])
}

fn ring_bytes(buffers: Buffers) -> Option<usize> {
    let bytes = usize::try_from(buffers.bytes).ok()?;
    Some(Shape::new(bytes, usize::from(buffers.count))?.memory_bytes())
}
