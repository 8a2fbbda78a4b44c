//! The recorded results of a run and their evaluation: records, reduction, statistics, verdicts. A run measures each cell of its
//! plan in several trials. A cell is a combination of path, workload, MTU, number of client-server pairs and level (a named set
//! of settings).
//!
//! Invariants:
//! - All modules except [`store`] and [`directory`] are pure: the same records give the same figures and verdicts.
//! - This crate neither measures nor reads the host. The environment is an argument.
//! - Records of earlier versions of siga can be read: a new field has a default, and a renamed field keeps its old name as an
//!   alias.
//! - A statistic is `None` if there are too few samples or if a sample is not finite. No statistic panics.

#![forbid(unsafe_code)]

pub mod directory;
pub mod disturbance;
pub mod environment;
pub mod histogram;
pub mod import;
pub mod judge;
pub mod limits;
pub mod monitor;
pub mod record;
pub mod reduce;
pub mod stats;
pub mod stop;
pub mod store;
pub mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
