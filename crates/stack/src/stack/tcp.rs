//! TCP in the stack: the `tcp_*` calls of applications, and segments on their way in and out.
//!
//! | file | what it does |
//! | --- | --- |
//! | `calls.rs`, `application_buffers.rs` | what an application may ask for: the `tcp_*` methods of [`Stack`](crate::Stack) |
//! | `input.rs`, `fast_path.rs` | receive segments; nearly all take the fast path |
//! | `output.rs`, `zero_copy.rs` | build segments in the frame that the device's owner hands in |

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
