//! The laboratory: measures any network path between two places and says what it cost.
pub mod bpf;
pub mod error;
pub mod level;
pub mod path;
pub mod sys;

pub use error::{Error, Result};
