//! What to measure: plans, levels, workloads, paths and places, as data.
//!
//! This crate reads and checks this data. It opens no socket, creates no namespace and loads no BPF program. It finds every error
//! in a plan before a run starts, so a typing error costs no measuring time.
//!
//! Invariants:
//! - Of the workspace, this crate uses `siga-model` only.
//! - This crate executes nothing. A plan can name commands as workloads. The caller executes them only if the user named that plan.
//! - The command that reaches another host is not part of a plan.
//! - A level is one file and includes no other.
//! - A [`matrix::Matrix`] has no duplicate cells, and siga can build each of them. `skipped` has the others, with the reason.
//! - Names are canonical: equal cells have equal text, which records and reports use as the key.
//!
//! The program ships every file in `plans/` and `levels/`; a new file needs no other change.

#![forbid(unsafe_code)]

pub mod accounting;
pub mod build;
pub mod command;
pub mod cpus;
pub mod file;
pub mod kernel_setting;
pub mod label;
pub mod level;
pub mod limits;
pub mod matrix;
pub mod offered;
pub mod path;
pub mod place;
pub mod plan;
pub mod plant;
pub mod qdisc;
pub mod route;
pub mod run_id;
mod serde_by_text;
mod shipped;
pub mod spec;
pub mod work;
pub mod workload;
