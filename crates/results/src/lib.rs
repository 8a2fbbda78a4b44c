//! The recorded results of a run and their evaluation: records, reduction, statistics, verdicts.
//!
//! | module | contents |
//! | --- | --- |
//! | [`record`] | raw counters of a trial, settings of a path as it was built, and the reason why a cell was skipped |
//! | [`environment`] | the host on which a run was measured, and the comparison of two hosts |
//! | [`store`], [`directory`] | the run directory: it is append-only, and reading it is safe even if an attacker wrote it |
//! | [`histogram`] | latencies as HDR histograms |
//! | [`reduce`] | the formulas from raw counters to the figures of a table |
//! | [`summary`] | one summary for each cell of a run; the router overhead; siga's networks compared with the kernel's paths |
//! | [`stats`] | estimates, intervals and tests: pure functions over numbers |
//! | [`judge`] | comparison of two sides: one verdict for each cell and metric |
//! | [`stop`] | the rule that decides when a run has measured enough |
//! | [`limits`] | bounds of records and run directories |
//!
//! Invariants:
//! - All modules except [`store`] and [`directory`] are pure: the same records give the same figures and verdicts.
//! - This crate neither measures nor reads the host. The environment is an argument.
//! - Records of earlier versions can be read: a new field has a default, and a renamed field keeps its old name as an alias.
//! - A statistic is `None` if it has too few samples or an infinite sample. No statistic panics.

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
