//! The link layer: devices, frames, neighbours, and the source addresses that packets from a link may have.

pub mod capture;
pub mod device;
pub mod frame;
pub(crate) mod neighbour;
pub mod source;
pub mod virtio;
