//! The coordinator's side of a built path: starts its keeper, asks it, and lets it go.
//!
//! A [`Path`] is a lease: dropping it ends the keeper and with it every namespace. All waiting is bounded.

use super::keeper::Request;
use super::{Built, Counters, PathSpec};
use crate::control::Worker;
use siga_model::error::Result;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

/// How long building may take, loading of kernel modules included.
const BUILD_TIME_MAX: Duration = Duration::from_secs(20);
/// How long any other request may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// A built path; it exists as long as this value.
#[derive(Debug)]
pub struct Path {
    /// What was built.
    pub built: Built,
    keeper: Worker,
}

impl Path {
    /// Starts `program keep` and has it build `spec`.
    ///
    /// The keeper dies with the calling *thread* (PR_SET_PDEATHSIG), which therefore must outlive the path. It has a
    /// process group of its own: an interrupt typed at the terminal does not reach it.
    ///
    /// # Errors
    /// Usage: [`PathSpec::check`]. Environment: the program cannot be started or the host cannot build the path.
    pub fn build(program: &std::path::Path, spec: &PathSpec) -> Result<Self> {
        spec.check()?;
        let mut command = Command::new(program);
        command.arg("keep");
        let mut keeper = Worker::start(command, format!("path {}", spec.kind))?;
        let request = Request::Build { spec: Box::new(spec.clone()), parent: std::process::id() };
        let built = keeper.ask(&request, BUILD_TIME_MAX)?;
        Ok(Self { built, keeper })
    }

    /// The counters of every interface, by the names of [`Built::interfaces`]; where connection tracking had no room for
    /// more and dropped packets, those as `router/conntrack`.
    ///
    /// # Errors
    /// Environment: the keeper is gone or does not answer.
    pub fn counters(&mut self) -> Result<BTreeMap<String, Counters>> {
        self.keeper.ask(&Request::Counters, ANSWER_TIME_MAX)
    }

    /// Process id of the keeper.
    pub fn keeper(&self) -> u32 {
        self.keeper.pid()
    }

    /// Ends the path and returns when its keeper is gone; the same as dropping it.
    pub fn close(self) {}
}
