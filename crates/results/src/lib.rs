//! What a run left behind, and what it means: records, reduction, statistics, verdicts.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`record`] | raw counters of a trial, of a path as it was built, and why a cell was skipped |
//! | [`environment`] | the host that a run was measured on, and what differs between two hosts |
//! | [`store`], [`directory`] | the run directory: append-only, and safe to open if an attacker wrote it |
//! | [`histogram`] | latencies as HDR histograms |
//! | [`reduce`] | the formulas from raw counters to the figures of a table |
//! | [`summary`] | one summary for each cell of a run; the router overhead; siga beside the kernel |
//! | [`stats`] | estimates, intervals and tests: pure functions over numbers |
//! | [`judge`] | two sides compared: one verdict for each cell and metric |
//! | [`stop`] | the rule for when a run has measured enough |
//! | [`limits`] | bounds of records and run directories |
//!
//! Invariants:
//! - Everything but [`store`] and [`directory`] is pure: the same records give the same figures and verdicts.
//! - Nothing here measures or reads the host. The environment is an argument.
//! - Records of earlier versions are read: fields are added with a default and renamed with an alias.
//! - A statistic of too few or of infinite values is `None`, never a panic.

#![forbid(unsafe_code)]

pub mod directory;
pub mod environment;
pub mod histogram;
pub mod judge;
pub mod limits;
pub mod record;
pub mod reduce;
pub mod stats;
pub mod stop;
pub mod store;
pub mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
