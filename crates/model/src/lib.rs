//! Data that the virtual network and the laboratory share.
//!
//! | module | contents |
//! | --- | --- |
//! | [`name`] | names of topologies, guests, networks and devices |
//! | [`mac`] | Ethernet addresses |
//! | [`prefix`] | addresses with a prefix length, as people write them |
//! | [`topology`] | the guests and networks of a topology file, read from TOML and checked |
//! | [`link`] | modelled links: how frames are delayed, lost and changed on their way |
//! | [`features`] | driver features: how guests move frames, each with a switch |
//! | [`waiting`] | how a process waits for traffic |
//! | [`notice`] | notices of old spellings in files |
//! | [`error`] | the one error type: what was wrong, where, and what to do |
//! | [`text`] | makes untrusted text safe for the place that shows it |
//! | [`limits`] | the limits of all of these, as named constants |
//!
//! Invariants:
//! - This crate uses no other crate of the workspace.
//! - This crate opens no file or socket and starts no process. The caller passes in the text of a file.
//! - A parsed value is valid: a `Topology` has no contradiction, and a `Name` has only characters that a file name can have.

#![forbid(unsafe_code)]

pub mod allow;
pub mod error;
pub mod features;
pub mod limits;
pub mod link;
pub mod mac;
pub mod name;
pub mod notice;
pub mod prefix;
pub mod text;
pub mod topology;
pub mod waiting;
