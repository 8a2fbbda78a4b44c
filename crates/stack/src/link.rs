//! The link layer: devices and their frames, neighbours on a link, and which sources a link may send from.

pub(crate) mod capture;
pub mod device;
pub mod frame;
pub(crate) mod neighbour;
pub mod source;
