//! Measures any network path between two places.
//!
//! A *run* measures each cell of a plan in trials. A trial builds the path (`path`), starts an *agent* in the place of each
//! end (`agent`, `place`), lets the *workload drivers* talk over the one socket trait (`load`, `socket`), and reads CPU
//! counters at quiescent points (`cpu`). What it measures goes to the run directory, which `siga-results` owns.

#![deny(unsafe_code)]

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
