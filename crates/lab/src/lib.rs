//! The laboratory: measures any network path between two places and says what it cost.
//!
//! A *plan* is a matrix of cells (path, workload, MTU, pairs, level). A *run* measures each cell in trials: it builds the
//! path, puts an *agent* at each end, lets the *drivers* talk over the one socket trait, and reads CPU counters at
//! quiescent points. Trials go into an append-only *store*; *reduction* turns them into rates, latencies and CPU per unit,
//! charged to client, router and server; a *report* says it.

pub mod agent;
pub mod bpf;
pub mod channel;
pub mod clock;
pub mod commands;
pub mod config;
pub mod cpu;
pub mod doctor;
pub mod host;
pub mod interrupt;
pub mod limits;
pub mod load;
pub mod path;
pub mod place;
pub mod run;
pub mod socket;
pub mod sys;
pub mod trial;
