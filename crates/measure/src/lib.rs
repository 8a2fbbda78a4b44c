//! Measures any network path between two places (this host, a namespace, a container, another host).
//!
//! A *run* measures each cell of a plan (a combination of path, workload, MTU, pairs and level) in several trials. A trial
//! builds the path (`path`) and starts an *agent* in the place of each end of the path (`agent`, `place`). The *workload
//! drivers* in the agents exchange data through one socket trait (`load`, `socket`). The trial reads CPU counters (`cpu`) at
//! quiescent points, at which no data is in flight. The run writes its results to a run directory, which the crate
//! `siga-results` defines.

#![deny(unsafe_code)]

pub mod agent;
pub(crate) mod bpf;
pub mod build;
pub(crate) mod channel;
pub(crate) mod clock;
pub mod command;
pub mod commands;
pub mod config;
pub mod cpu;
pub mod doctor;
pub(crate) mod ended_first;
pub mod host;
pub mod interrupt;
pub mod limits;
pub mod load;
pub mod memory;
pub mod monitor;
pub mod needs;
pub mod path;
pub mod place;
pub(crate) mod probe;
pub mod run;
pub mod socket;
pub mod sys;
pub mod topology;
pub(crate) mod trial;
