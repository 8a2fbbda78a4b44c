//! The laboratory: measures any network path between two places and says what it cost.
pub mod error;
pub mod level;
pub mod path;
pub mod published;
pub mod reduce;
pub mod report;
pub mod sys;

pub use error::{Error, Result};
