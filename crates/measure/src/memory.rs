//! The memory limit of a run: a control group that contains this process and all processes that it starts.

use crate::command::{Group, Limits};
use crate::ended_first::EndedFirst;
use siga_model::error::Result;
use siga_plan::plan::Plan;

/// The limit of a run. Dropping this value ends the limit.
#[derive(Debug)]
pub struct MemoryLimit {
    group: Group,
    bytes: u64,
}

impl MemoryLimit {
    /// Sets the limit of a plan for this process and all that it starts from now on. Returns `None` if the plan has no limit.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if the host has no control groups, or does not permit to make one.
    pub fn set(plan: &Plan) -> Result<Option<Self>> {
        let Some(bytes) = plan.memory_limit_bytes()? else { return Ok(None) };
        let limits = Limits { memory_bytes: Some(bytes), ..Limits::default() };
        let group = Group::enter(&limits, ".").map_err(|error| error.at("--memory-limit"))?;
        EndedFirst::set_limited(true);
        Ok(Some(Self { group, bytes }))
    }

    /// Returns in words how much memory the run used, and how many processes the kernel has ended for it.
    pub fn words(&self) -> String {
        const MIB: f64 = (1 << 20) as f64;
        let mib = |bytes: u64| format!("{:.0} MiB", bytes as f64 / MIB);
        let used = self.group.memory_bytes_max().map_or_else(|| "unknown".to_owned(), mib);
        let ended = match self.group.ended_for_memory() {
            0 => String::new(),
            1 => "; the kernel ended 1 process because there was no memory left".to_owned(),
            count => format!("; the kernel ended {count} processes because there was no memory left"),
        };
        format!("memory of the run: at most {used} of {}{ended}", mib(self.bytes))
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        EndedFirst::set_limited(false);
    }
}
