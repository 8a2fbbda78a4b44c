//! What to measure: plans, levels, workloads, paths and places, as data.
//!
//! This crate reads and checks them and runs nothing: no socket, no namespace, no BPF program. Everything a plan can get wrong is
//! an error of this crate, so that a typing error costs no measuring time.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`plan`] | what to measure, and how: the axes of the matrix; checks, and the lay-out of the cells |
//! | [`matrix`] | what a plan becomes: its cells in order |
//! | [`route`] | what a cell is measured over: a path that siga builds, or two existing places |
//! | [`path`] | the paths that siga builds, of the kernel's networks and of its own |
//! | [`place`] | where an end of a path is |
//! | [`workload`] | what client and server send to each other |
//! | [`level`] | a named set of what differs between two measurements of one path |
//! | [`plant`] | known costs, to see whether accounting finds them |
//! | [`spec`] | what is to be built for a cell |
//! | [`accounting`] | the methods of CPU accounting, by name |
//! | [`kernel_setting`], [`cpus`], [`mod@file`], [`limits`] | checks of sysctls, lists of CPUs, reading of named files, bounds |
//!
//! Invariants:
//! - This crate uses `siga-model` alone.
//! - A plan names nothing to execute: the command that reaches another host is the caller's.
//! - A level is one file and includes no other.
//! - A [`matrix::Matrix`] has each cell once, and every cell can be built; what cannot be has its reason in `skipped`.
//! - Names are canonical: equal cells have equal text, which records and reports use as the key.
//!
//! To add a *workload*: a preset is one entry of [`workload::PRESETS`]; a new shape is a variant of [`workload::Shape`], and the
//! compiler then names every place that has to know it, the workload driver last.
//!
//! To add a *kind of path*: a variant of [`path::PathKind`] (the kernel's) or [`path::guest::GuestPath`] (siga's own) with its name and
//! MTU range, what it lacks in [`spec`], and how it is built in the laboratory's `path`.
//!
//! To add a *feature of a level*: a field of [`level::Level`] that defaults to "unchanged", its name in `Level::settings`, its check,
//! and where it is set and read back in the laboratory's `path`. A feature of siga's own networks is a field of
//! `siga_model::features::DriverFeatures` and a name in [`level::Guests::FEATURES`]. `cargo xtask schema` then writes the schema anew.
//!
//! A new file in `plans/` or `levels/` is shipped without any further change.

#![forbid(unsafe_code)]

pub mod accounting;
pub mod cpus;
pub mod file;
pub mod kernel_setting;
pub mod level;
pub mod limits;
pub mod matrix;
pub mod path;
pub mod place;
pub mod plan;
pub mod plant;
pub mod route;
mod shipped;
pub mod spec;
pub mod workload;
