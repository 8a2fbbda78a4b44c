//! TCP in the stack: the `tcp_*` calls of applications, and the code that receives and sends segments. Nearly all received
//! segments take the fast path. A sent segment is built directly in a frame buffer that the caller provides.

mod application_buffers;
mod calls;
mod check;
mod fast_open;
mod fast_path;
mod input;
mod output;
mod queries;
mod zero_copy;

pub use application_buffers::Progress;
pub(crate) use input::SegmentPlace;
pub use zero_copy::ZeroCopySend;
