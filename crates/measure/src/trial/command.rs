//! One trial of a command. A child process of siga runs the command (`crate::command`), so that nothing of the coordinator changes what
//! the command sees.

use super::servers::{self, Servers};
use super::{Bench, hosts_record, seconds_to_ns};
use crate::channel::ChildProcess;
use crate::command::{Limits, Order, Runs, Task, Wanted};
use crate::cpu::activity::Activity;
use crate::cpu::host::{At, HostCpu};
use crate::limits;
use crate::probe;
use siga_model::error::{Error, Result};
use siga_plan::command::Filling;
use siga_plan::command::figure::Figure;
use siga_plan::cpus::cpu_list;
use siga_plan::level::{CommandLevel, Level};
use siga_plan::matrix::{Cell, Matrix};
use siga_plan::place::Place;
use siga_plan::plan::Plan;
use siga_results::record::{CommandRecord, CpuRecord, HostRecord, LoadCounts, PathRecord, TrialRecord};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

/// Returns the command that starts the process that runs a plan's command.
pub(crate) fn runner() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("command-runner");
    command
}

impl Bench<'_> {
    /// Measures one trial of the command `cell`: as many runs as fit into the plan's time, but at least one.
    pub(super) fn command_trial(&mut self, cell: &Cell, round: u32) -> Result<(TrialRecord, PathRecord)> {
        self.builds.program(&cell.level)?;
        self.preparation.begin(self.plan, self.matrix, cell, round, self.builds.named(&cell.level))?;
        let measured = self.measure_command(cell, round);
        let torn_down = self.preparation.end_trial(cell);
        let (mut record, path) = measured?;
        record.flags.extend(torn_down.err().map(|error| error.message().to_owned()));
        Ok((record, path))
    }

    fn measure_command(&self, cell: &Cell, round: u32) -> Result<(TrialRecord, PathRecord)> {
        let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let probe = probe::probe();
        let mut servers = Servers::start(self.plan, self.matrix, cell, self.paths(cell))?;
        let mut runner = ChildProcess::start(runner(), cell.workload.to_string())?;
        if self.plan.warm_up_seconds > 0.0 {
            self.runs(&mut runner, cell, self.plan.warm_up_seconds)?;
        }
        let mut outside = None;
        let served_before = servers.used()?;
        let before = [HostCpu::read_with(&mut outside, &[], At::Begin)?];
        // Inside of the interval whose length the shares refer to, so that none of them exceeds 100%.
        let active_before = Activity::read();
        let runs = self.runs(&mut runner, cell, self.plan.seconds)?;
        let active = Activity::read().since(&active_before);
        let after = [HostCpu::read_with(&mut outside, &[], At::End)?];
        let served = servers.used()?.map(|used| servers::since(&used, &served_before.unwrap_or_default()));
        servers.end()?;
        let host = HostRecord { probe, ..super::host_record(&before, &after) };
        let server = served.as_ref().map(|used| used.cpu).unwrap_or_default();
        let cpu = CpuRecord { client: runs.cpu, server, ..hosts_record(&before, &after) };
        // What the command used is not at the same time work of others: a process that it leaves behind may change its parent.
        let rest_ns = cpu.busy_ns.saturating_sub(cpu.client.run_ns.saturating_add(cpu.server.run_ns));
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
            neighbours_rate: None,
            cpu,
            command: Some(CommandRecord {
                server: served.map(|used| used.record.processes),
                host: Some(active),
                ..runs.record
            }),
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

    fn paths<'a>(&'a self, cell: &Cell) -> Paths<'a> {
        Paths { scratch: self.preparation.scratch(), build: self.builds.named(&cell.level) }
    }

    /// Runs the command for this time.
    fn runs(&self, runner: &mut ChildProcess, cell: &Cell, seconds: f64) -> Result<Runs> {
        let order = order(self.plan, self.matrix, cell, self.paths(cell))?;
        let longest = Duration::from_nanos(order.limit_ns) + Duration::from_secs_f64(seconds) + limits::ANSWER_TIME_MAX;
        runner.ask(&Task::Run(Box::new(Order { duration_ns: seconds_to_ns(seconds), ..order })), longest)
    }
}

/// Paths that a run decides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paths<'a> {
    /// The scratch directory, if the run has one.
    pub(super) scratch: Option<&'a str>,
    /// The program of the level's build, if the level has one.
    pub(super) build: Option<&'a str>,
}

/// Returns the values of the texts in braces for a cell of a run.
pub(super) fn filling<'a>(cell: &'a Cell, paths: Paths<'a>) -> Filling<'a> {
    /// Path of the running program. siga reads it once, because the kernel reports another path after the file is replaced.
    static SIGA: LazyLock<Option<String>> =
        LazyLock::new(|| std::env::current_exe().ok()?.into_os_string().into_string().ok());
    Filling { scratch: paths.scratch, siga: paths.build.or(SIGA.as_deref()), ..Plan::filling(cell) }
}

/// Returns the order to run the command of a cell once.
pub(super) fn order(plan: &Plan, matrix: &Matrix, cell: &Cell, paths: Paths<'_>) -> Result<Order> {
    let unknown = || Error::usage(format!("the plan has no command {}", cell.workload));
    let command = plan.command_of(cell).ok_or_else(unknown)?;
    let level = matrix.levels.iter().find(|level| level.name == cell.level);
    let level = level.cloned().unwrap_or_else(Level::plain);
    let filling = filling(cell, paths);
    let fill = |text: &String| filling.fill(text);
    let figures =
        command.figures.iter().map(|figure| Figure { file: figure.file.as_ref().map(fill), ..figure.clone() });
    Ok(Order {
        words: command.words(&level.command, &filling),
        environment: command.variables(&level.environment, &filling),
        directory: command.directory.as_ref().map(fill),
        input: command.input.as_ref().map(fill),
        exit_status: command.exit_status,
        output: command.output.clone(),
        figures: figures.collect(),
        unit: command.unit.clone(),
        stop_ns: command.stop_after_seconds.map(seconds_to_ns),
        limit_ns: seconds_to_ns(command.time_limit_seconds),
        place: placed(command.place.as_deref())?,
        conditions: conditions(plan, &level)?,
        duration_ns: 0,
    })
}

/// Returns the conditions of a level.
pub(super) fn conditions(plan: &Plan, level: &Level) -> Result<Wanted> {
    let own = &level.command;
    let (of_plan, _) = plan.cpus()?;
    Ok(Wanted {
        cpus: own.cpus.as_deref().and_then(cpu_list).unwrap_or(of_plan),
        nice: own.nice,
        limits: Limits {
            memory_bytes: CommandLevel::bytes(own.memory_max.as_ref()),
            cpus: own.cpus_max,
            read_bytes: CommandLevel::bytes(own.read_max.as_ref()),
            write_bytes: CommandLevel::bytes(own.write_max.as_ref()),
        },
        page_cache: own.page_cache,
        huge_pages: own.huge_pages,
        sysctls: level.sysctl.clone(),
    })
}

/// Returns the namespace files of the place of a command or a server; `None` if it is that of siga.
pub(super) fn placed(place: Option<&str>) -> Result<Option<(PathBuf, PathBuf)>> {
    let pair = |net: String, user: String| Some((PathBuf::from(net), PathBuf::from(user)));
    Ok(match place.map(str::parse).transpose()? {
        Some(Place::Netns(name)) => pair(format!("/run/netns/{name}"), String::new()),
        Some(Place::Pid(pid)) => pair(format!("/proc/{pid}/ns/net"), format!("/proc/{pid}/ns/user")),
        None | Some(Place::Local | Place::Ssh(_) | Place::Built(..)) => None,
    })
}
