//! A deterministic simulation of networks, for tests of stacks. It has nodes, links with faults, virtual time, and one seed for
//! all randomness.
//!
//! A [`world::World`] contains nodes (types that implement [`node::Node`]) and links between the nodes' devices. Everything that
//! happens is a [`trace::Event`], and one hash covers all events. The same seed gives the same hash on every machine. The
//! [`fault::Faults`] of a link say how often it loses, reorders, duplicates, damages and delays frames. A schedule changes these
//! faults while virtual time passes. The module [`check`] has the checks that every run must pass. [`scenario`] builds a complete
//! world from a seed and runs it.
//!
//! [`tcp`] has programs that use TCP on real stacks, and checks how their connections end.
//!
//! Nothing in this crate reads a clock or opens a file, and every random number follows from the seed.
#![forbid(unsafe_code)]

pub mod bottleneck;
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
pub mod sharing;
pub mod tcp;
pub mod throughput;
pub mod toy;
pub mod trace;
mod wire;
pub mod world;
