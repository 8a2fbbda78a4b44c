//! The link layer: devices and their frames, neighbours on a link, and the filter of the sources from which a link may send.

pub(crate) mod capture;
pub mod device;
pub mod frame;
pub(crate) mod neighbour;
pub mod source;
