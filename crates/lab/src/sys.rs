//! The system calls that no safe library covers: BPF, perf events, ethtool ioctls.
//!
//! All `unsafe` code of the laboratory lies in this module and its files, each of which offers a safe interface.
//! It takes no decision: policy belongs to the callers.
#![allow(unsafe_code, reason = "the one module of this crate that makes raw system calls")]

pub mod ethtool;
pub mod namespace;
