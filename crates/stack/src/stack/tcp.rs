//! TCP in the stack: the `tcp_*` calls of applications, and the code that sends and receives segments.
//!
//! | file | what it does |
//! | --- | --- |
//! | `calls.rs`, `application_buffers.rs` | the calls of applications: the `tcp_*` methods of [`Stack`](crate::Stack) |
//! | `input.rs`, `fast_path.rs` | receive segments, nearly all of them on the fast path |
//! | `output.rs`, `zero_copy.rs` | build segments in frame buffers that the caller provides |

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
