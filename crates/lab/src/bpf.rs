//! tmp
pub mod sockmap;
