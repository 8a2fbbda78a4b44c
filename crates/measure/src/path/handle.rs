//! The handle for a built path in the coordinator, the process that carries out a run. It starts the path's namespace holder,
//! sends requests to the holder, and ends it.
//!
//! Dropping a [`Path`] ends the holder, and with the holder all namespaces of the path. Every wait for the holder has a time
//! limit.

use super::feature::Feature;
use super::holder::{self, Request};
use super::{Built, Counters};
use crate::channel::ChildProcess;
use siga_model::error::Result;
use siga_plan::spec::PathSpec;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum time for building a path or trying a feature, including the time in which the kernel loads modules. An emulated machine
/// needs 20 seconds or more for the modules of IPsec, because the kernel tests their ciphers.
const BUILD_TIME_MAX: Duration = Duration::from_secs(120);
/// Maximum time for any other request to the holder.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Starts `program namespace-holder`, which tries a feature of the kernel in a namespace of its own.
///
/// # Errors
/// Returns an error of kind `Environment` if the program cannot be started or make a namespace, or if the kernel refuses the
/// feature.
pub(crate) fn try_feature(program: &std::path::Path, feature: Feature) -> Result<()> {
    let mut holder = ChildProcess::start(holder::command(program), feature.module())?;
    holder.ask(&Request::Try { feature, parent: std::process::id() }, BUILD_TIME_MAX)
}

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
    /// The kernel kills the holder when the calling *thread* ends (PR_SET_PDEATHSIG). So this thread must live longer than the
    /// path. The holder has its own process group, so that it receives no signal when the user presses Ctrl-C.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if [`PathSpec::check`] refuses `spec`. Returns an error of kind `Environment` if the
    /// program cannot be started, or if the host cannot build the path.
    pub fn build(program: &std::path::Path, spec: &PathSpec) -> Result<Self> {
        spec.check()?;
        let mut holder = ChildProcess::start(holder::command(program), format!("path {}", spec.kind))?;
        let request = Request::Build { spec: Box::new(spec.clone()), parent: std::process::id() };
        let built = holder.ask(&request, BUILD_TIME_MAX)?;
        Ok(Self { built, holder })
    }

    /// Returns the counters of every interface. The keys are the labels in [`Built::interfaces`]. The entry `router/conntrack`
    /// counts packets that connection tracking dropped because its table was full.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if the holder has ended or does not answer.
    pub fn counters(&mut self) -> Result<BTreeMap<String, Counters>> {
        self.holder.ask(&Request::Counters, ANSWER_TIME_MAX)
    }

    /// Checks that all connections of the path `smc-loopback` use SMC-D, and that there is at least one.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if a connection does not use SMC-D, or if the holder has ended or does not answer.
    pub(crate) fn check_smc(&mut self) -> Result<()> {
        self.holder.ask(&Request::Smc, ANSWER_TIME_MAX)
    }

    /// Returns the process id of the holder.
    pub fn holder(&self) -> u32 {
        self.holder.pid()
    }

    /// Removes the path and waits until the holder has ended. Dropping the value has the same effect.
    pub fn close(self) {}
}
