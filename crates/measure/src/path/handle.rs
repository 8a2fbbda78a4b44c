//! The coordinator's side of a built path: starts its namespace holder, sends it requests, and ends it.
//!
//! A [`Path`] is a lease: dropping it ends the holder and with it every namespace. Every wait has a limit.

use super::holder::Request;
use super::{Built, Counters};
use crate::channel::ChildProcess;
use siga_model::error::Result;
use siga_plan::spec::PathSpec;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

/// Time that building may take, including the loading of kernel modules.
const BUILD_TIME_MAX: Duration = Duration::from_secs(20);
/// Time that any other request may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// A built path; it exists as long as this value.
#[derive(Debug)]
pub struct Path {
    /// What was built.
    pub built: Built,
    holder: ChildProcess,
}

impl Path {
    /// Starts `program namespace-holder` and has it build `spec`.
    ///
    /// The holder dies with the calling *thread* (PR_SET_PDEATHSIG), which therefore must outlive the path. It has a
    /// process group of its own: an interrupt typed at the terminal does not reach it.
    ///
    /// # Errors
    /// Usage: [`PathSpec::check`]. Environment: the program cannot be started or the host cannot build the path.
    pub fn build(program: &std::path::Path, spec: &PathSpec) -> Result<Self> {
        spec.check()?;
        let mut command = Command::new(program);
        command.arg("namespace-holder");
        let mut holder = ChildProcess::start(command, format!("path {}", spec.kind))?;
        let request = Request::Build { spec: Box::new(spec.clone()), parent: std::process::id() };
        let built = holder.ask(&request, BUILD_TIME_MAX)?;
        Ok(Self { built, holder })
    }

    /// The counters of every interface, by the names of [`Built::interfaces`]. Packets that connection tracking
    /// dropped for want of room are listed as `router/conntrack`.
    ///
    /// # Errors
    /// Environment: the holder is gone or does not answer.
    pub fn counters(&mut self) -> Result<BTreeMap<String, Counters>> {
        self.holder.ask(&Request::Counters, ANSWER_TIME_MAX)
    }

    /// Process id of the holder.
    pub fn holder(&self) -> u32 {
        self.holder.pid()
    }

    /// Ends the path and returns when its holder has ended; the same as dropping it.
    pub fn close(self) {}
}
