//! The link layer: devices, frames, neighbours, and the sources that a link may send from.

pub(crate) mod capture;
pub mod device;
pub mod frame;
pub(crate) mod neighbour;
pub mod source;
