//! What to measure: plans, levels, workloads, paths and places, as data.
//!
//! This crate reads and checks this data. It opens no socket, creates no namespace and loads no BPF program. It finds every error
//! in a plan before a run starts, so a typing error costs no measuring time.
//!
//! | module | contents |
//! | --- | --- |
//! | [`plan`] | plans: the axes of the matrix, their checks, and the layout of the cells |
//! | [`matrix`] | the cells of a checked plan, in order |
//! | [`route`] | what connects client and server: a path that siga builds, or two existing places |
//! | [`path`] | the paths that siga builds, over the kernel's networks and over its own |
//! | [`place`] | where the client or the server of a path runs |
//! | [`workload`] | what client and server send to each other |
//! | [`level`] | levels: named sets of settings that differ between two measurements of one path |
//! | [`plant`] | known costs that siga adds to check its accounting |
//! | [`spec`] | what siga has to build for a cell |
//! | [`accounting`] | the methods of CPU accounting |
//! | [`kernel_setting`], [`cpus`], [`mod@file`], [`limits`] | checks of sysctls, lists of CPUs, reading of named files, limits |
//!
//! Invariants:
//! - Of the workspace, this crate uses `siga-model` only.
//! - A plan contains no command to execute. The caller supplies the command that reaches another host.
//! - A level is one file and includes no other.
//! - A [`matrix::Matrix`] has no duplicate cells, and siga can build each of them. `skipped` has the others, with the reason.
//! - Names are canonical: equal cells have equal text, which records and reports use as the key.
//!
//! To add a *workload*, add an entry to [`workload::PRESETS`]. To add a shape, add a variant to [`workload::Shape`]; the compiler
//! then reports every place that needs a case for it.
//!
//! To add a *kind of path*, add a variant to [`path::PathKind`] (the kernel's) or a value of [`path::guest::GuestPath`] (siga's own),
//! with its name and MTU range. Say in [`spec`] which settings it does not support, and build it in `path` of `siga-measure`.
//!
//! To add a *setting of a level*, add a field to [`level::Level`] that defaults to "unchanged", its name in `Level::settings` and its
//! check. Set it and read it back in `path` of `siga-measure`. A driver feature of siga's own networks is a field of
//! `siga_model::features::DriverFeatures` and a name in [`level::Guests::FEATURES`]. Then `cargo xtask schema` updates the schema.
//!
//! The program ships every file in `plans/` and `levels/`; a new file needs no other change.

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
