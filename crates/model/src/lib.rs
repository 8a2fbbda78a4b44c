//! Data that the virtual network and the laboratory share.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`name`] | names of topologies, guests, networks and devices |
//! | [`prefix`] | addresses with a prefix length, as people write them |
//! | [`topology`] | what a network consists of; read from TOML and checked whole |
//! | [`features`] | what a network's driver does, each feature to be switched alone |
//! | [`waiting`] | how a process waits for traffic |
//! | [`notice`] | notices of old spellings in files |
//! | [`error`] | the one error type: what was wrong, where, and what to do |
//! | [`text`] | text from elsewhere, made safe for where it is shown |
//! | [`limits`] | the bounds of all of these, by name |
//!
//! Invariants:
//! - This crate is below every other crate of the workspace and uses none of them.
//! - It opens no file, socket or process. A caller passes in the text.
//! - A value that was read is valid: `Topology::parse` returns no contradiction, `Name` no character that a file name cannot have.

#![forbid(unsafe_code)]

pub mod error;
pub mod features;
pub mod limits;
pub mod name;
pub mod notice;
pub mod prefix;
pub mod text;
pub mod topology;
pub mod waiting;
