//! Guests without processes: they take turns on one thread, over rings of this process.

mod application_copies;
mod backpressure;
mod features;
mod groups;
mod hot;
pub(crate) mod lockstep;
mod wires;
mod zero_copy;
