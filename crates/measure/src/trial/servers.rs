//! The servers of a trial of a command. Each has its own child process of siga, so that its processes are charged apart.

use super::command::{Paths, conditions, filling, placed, runner};
use super::seconds_to_ns;
use crate::channel::ChildProcess;
use crate::command::{Order, ServerOrder, Task, Used};
use crate::limits;
use siga_model::error::Result;
use siga_plan::cpus::cpu_list;
use siga_plan::level::Level;
use siga_plan::matrix::{Cell, Matrix};
use siga_plan::plan::Plan;
use siga_results::record::{CommandRecord, NamedProcesses};
use std::time::Duration;

/// Time that a server may need to end.
const END_TIME_MAX: Duration = Duration::from_secs(20);

/// The servers of a trial. Dropping this value ends them.
#[derive(Debug, Default)]
pub(super) struct Servers {
    running: Vec<ChildProcess>,
}

impl Servers {
    /// Starts the servers of a cell, each when the one before it is ready.
    pub(super) fn start(plan: &Plan, matrix: &Matrix, cell: &Cell, paths: Paths<'_>) -> Result<Self> {
        let mut all = Self::default();
        let Some(command) = plan.command_of(cell) else { return Ok(all) };
        let level = matrix.levels.iter().find(|level| level.name == cell.level).cloned().unwrap_or_else(Level::plain);
        let filling = filling(cell, paths);
        for server in &command.server {
            let (_, of_plan) = plan.cpus()?;
            let mut conditions = conditions(plan, &level)?;
            let cpus = server.cpus.as_deref().or(level.command.cpus.as_deref());
            conditions.cpus = cpus.and_then(cpu_list).unwrap_or(of_plan);
            let order = Order {
                words: server.command.iter().map(|word| filling.fill(word)).collect(),
                environment: server.variables(&level.environment, &filling),
                directory: server.directory.as_ref().map(|text| filling.fill(text)),
                place: placed(server.place.as_deref())?,
                conditions,
                ..Order::default()
            };
            let mut ready = server.ready.clone();
            ready.file = ready.file.map(|file| filling.fill(&file));
            let wanted = ServerOrder { order, ready, ready_ns: seconds_to_ns(server.ready_seconds) };
            let mut runner = ChildProcess::start(runner(), format!("server of {}", cell.workload))?;
            let longest = Duration::from_secs_f64(server.ready_seconds) + limits::ANSWER_TIME_MAX;
            runner.ask::<()>(&Task::Serve(Box::new(wanted)), longest)?;
            all.running.push(runner);
        }
        Ok(all)
    }

    /// Returns the CPU time and counters of all servers so far. Returns `None` if the command has no servers.
    pub(super) fn used(&mut self) -> Result<Option<Used>> {
        let mut sum: Option<Used> = None;
        for runner in &mut self.running {
            let used: Used = runner.ask(&Task::Used, limits::ANSWER_TIME_MAX)?;
            let all = sum.get_or_insert_default();
            all.cpu = all.cpu.plus(used.cpu);
            all.record.add(&used.record);
        }
        Ok(sum)
    }

    /// Ends all servers, the last one first.
    pub(super) fn end(mut self) -> Result<()> {
        while let Some(mut runner) = self.running.pop() {
            runner.ask::<()>(&Task::EndServer, END_TIME_MAX)?;
        }
        Ok(())
    }
}

/// Returns the CPU time and counters of the servers between two readings.
pub(super) fn since(after: &Used, before: &Used) -> Used {
    let mut record = CommandRecord::default();
    for (name, used) in &after.record.processes {
        let begun = before.record.processes.get(name).copied().unwrap_or_default();
        let cpu = used.cpu.since(begun.cpu);
        if cpu.run_ns > 0 {
            record.add_processes(name.clone(), NamedProcesses { count: used.count, cpu });
        }
    }
    Used { cpu: after.cpu.since(before.cpu), record }
}
