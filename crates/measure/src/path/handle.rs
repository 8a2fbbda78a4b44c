//! The coordinator's side of a built path: starts its namespace holder, sends requests to the holder, and ends it.
//!
//! A [`Path`] is a lease: dropping it ends the holder, and with the holder every namespace. Every wait has a time limit.

use super::holder::{self, Request};
use super::{Built, Counters};
use crate::channel::ChildProcess;
use siga_model::error::Result;
use siga_plan::spec::PathSpec;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum time for building a path, including the time for loading kernel modules.
const BUILD_TIME_MAX: Duration = Duration::from_secs(20);
/// Maximum time for any other request.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// A built path. Dropping this value removes the path.
#[derive(Debug)]
pub struct Path {
    /// Description of the built path.
    pub built: Built,
    holder: ChildProcess,
}

impl Path {
    /// Starts `program namespace-holder`, which builds the path `spec`.
    ///
    /// The holder dies with the calling *thread* (PR_SET_PDEATHSIG). So this thread must outlive the path. The holder is in
    /// a process group of its own, so that an interrupt typed at the terminal does not reach it.
    ///
    /// # Errors
    /// Returns a usage error if [`PathSpec::check`] refuses `spec`. Returns an environment error if the program cannot be
    /// started, or if the host cannot build the path.
    pub fn build(program: &std::path::Path, spec: &PathSpec) -> Result<Self> {
        spec.check()?;
        let mut holder = ChildProcess::start(holder::command(program), format!("path {}", spec.kind))?;
        let request = Request::Build { spec: Box::new(spec.clone()), parent: std::process::id() };
        let built = holder.ask(&request, BUILD_TIME_MAX)?;
        Ok(Self { built, holder })
    }

    /// Returns the counters of every interface, by the labels of [`Built::interfaces`]. The entry `router/conntrack` counts
    /// packets that connection tracking dropped because its table was full.
    ///
    /// # Errors
    /// Returns an environment error if the holder has ended or does not answer.
    pub fn counters(&mut self) -> Result<BTreeMap<String, Counters>> {
        self.holder.ask(&Request::Counters, ANSWER_TIME_MAX)
    }

    /// Process id of the holder.
    pub fn holder(&self) -> u32 {
        self.holder.pid()
    }

    /// Ends the path and waits until the holder has ended. Dropping the value has the same effect.
    pub fn close(self) {}
}
