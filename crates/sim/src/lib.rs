//! A deterministic simulation of networks for testing stacks: nodes, links with faults, virtual time, one seed.
//!
//! A [`world::World`] has nodes (anything that is a [`node::Node`]) and links between their devices. Whatever happens is a
//! [`trace::Event`], and all events enter one hash. The same seed gives the same hash on any machine. The [`fault::Faults`] of a
//! link say how often it loses, reorders, duplicates, damages and delays frames. A schedule changes these faults as virtual time
//! passes. The checkers in [`check`] judge whether a run was correct. [`scenario`] builds and runs a complete world from a seed.
//!
//! [`tcp`] has programs that use TCP on real stacks, and the rules for how their connections may end.
//!
//! Nothing here reads a clock or opens a file, and every random number comes from the seed.
#![forbid(unsafe_code)]

pub mod capture;
pub mod check;
pub mod describe;
pub mod fault;
pub mod flood;
pub mod fuzz;
pub mod host;
pub mod lane;
pub mod limits;
pub mod net;
pub mod node;
pub mod rng;
pub mod scenario;
pub mod tcp;
pub mod throughput;
pub mod toy;
pub mod trace;
mod wire;
pub mod world;
