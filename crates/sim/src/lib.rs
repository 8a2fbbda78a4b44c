//! A deterministic world for stacks: nodes, links with faults, virtual time, one seed.
//!
//! A [`world::World`] holds nodes (anything that is a [`node::Node`]) and links between their devices. All that happens is
//! an [`trace::Event`], and all events go into one hash: the same seed gives the same hash, on any machine. Links lose,
//! reorder, duplicate, damage and delay frames as their [`fault::Faults`] say, which a schedule switches over virtual time.
//! Checkers in [`check`] say whether what came out was right; [`scenario`] makes a whole world from a seed.
//!
//! [`tcp`] has programs for hosts of real stacks, and the rules of what may come of their connections.
//!
//! Nothing here reads a clock, opens a file or draws a random number that does not come from the seed.
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
