//! One trial of a command. A child process of siga runs the command (`crate::command`), so that nothing of the coordinator changes what
//! the command sees.

use super::{Bench, hosts_record, seconds_to_ns};
use crate::channel::ChildProcess;
use crate::command::{Order, Runs};
use crate::cpu::host::{At, HostCpu};
use crate::limits;
use crate::probe;
use siga_model::error::{Error, Result};
use siga_plan::matrix::Cell;
use siga_results::record::{CpuRecord, HostRecord, LoadCounts, PathRecord, ProcessCpu, TrialRecord};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Returns the command that starts the process that runs a plan's command.
pub(crate) fn runner() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("command-runner");
    command
}

impl Bench<'_> {
    /// Measures one trial of the command `cell`: as many runs as fit into the plan's time, but at least one.
    pub(super) fn command_trial(&self, cell: &Cell, round: u32) -> Result<(TrialRecord, PathRecord)> {
        let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let probe = probe::probe();
        let mut runner = ChildProcess::start(runner(), cell.workload.to_string())?;
        if self.plan.warm_up_seconds > 0.0 {
            self.runs(&mut runner, cell, self.plan.warm_up_seconds)?;
        }
        let mut outside = None;
        let before = [HostCpu::read_with(&mut outside, &[], At::Begin)?];
        let runs = self.runs(&mut runner, cell, self.plan.seconds)?;
        let after = [HostCpu::read_with(&mut outside, &[], At::End)?];
        let host = HostRecord { probe, ..super::host_record(&before, &after) };
        let cpu = CpuRecord { client: runs.cpu, ..hosts_record(&before, &after) };
        // What the command used is not at the same time work of others: a process that it leaves behind may change its parent.
        let rest_ns = cpu.busy_ns.saturating_sub(cpu.client.run_ns);
        let host = HostRecord { others_ns: host.others_ns.map(|ns| ns.min(rest_ns)), ..host };
        let units = runs.count as f64;
        let record = TrialRecord {
            cell: cell.clone(),
            round,
            session: 0,
            at,
            io: "command".to_owned(),
            elapsed_ns: runs.elapsed_ns,
            client: LoadCounts { transactions: runs.count, ..LoadCounts::default() },
            server: LoadCounts::default(),
            latency: runs.durations,
            corrected: None,
            slices: runs.slices,
            pair_units: (units, units),
            fairness: None,
            jitter_ns: None,
            beside: None,
            cpu: CpuRecord { server: ProcessCpu::default(), ..cpu },
            command: Some(runs.record),
            observer: None,
            offered: Vec::new(),
            host: Some(host),
            protocol: BTreeMap::new(),
            devices: BTreeMap::new(),
            drops: 0,
            flags: runs.flags,
        };
        // A command has no path, so no setting of a path is read back.
        Ok((record, PathRecord::without_settings(cell)))
    }

    /// Runs the command for this time.
    fn runs(&self, runner: &mut ChildProcess, cell: &Cell, seconds: f64) -> Result<Runs> {
        let unknown = || Error::usage(format!("the plan has no command {}", cell.workload));
        let command = self.plan.command_of(cell).ok_or_else(unknown)?;
        let level = self.matrix.levels.iter().find(|level| level.name == cell.level);
        let of_level = level.map(|level| level.environment.clone()).unwrap_or_default();
        let (cpus, _) = self.plan.cpus()?;
        let order = Order {
            words: command.words(cell.clients),
            environment: command.variables(&of_level, cell.clients),
            directory: command.directory.clone(),
            input: command.input.clone(),
            exit_status: command.exit_status,
            limit_ns: seconds_to_ns(command.time_limit_seconds),
            cpus,
            duration_ns: seconds_to_ns(seconds),
        };
        let longest = Duration::from_secs_f64(seconds + command.time_limit_seconds) + limits::ANSWER_TIME_MAX;
        runner.ask(&order, longest)
    }
}
