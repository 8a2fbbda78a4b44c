//! TCP in the stack: the `tcp_*` calls of applications, and segments on their way in and out. Nearly all received segments take
//! the fast path. Sent segments are built in the frame that the device's owner hands in.

mod application_buffers;
mod calls;
mod check;
mod fast_path;
mod input;
mod output;
mod zero_copy;

pub use application_buffers::Progress;
pub(crate) use input::SegmentPlace;
pub use zero_copy::ZeroCopySend;
