//! Lays out the cells of commands, and refuses commands that cannot be measured.

use super::Plan;
use crate::command::{Command, CommandName, Filling};
use crate::level::Level;
use crate::matrix::Cell;
use crate::route::Route;
use crate::work::Work;
use crate::workload::Workload;
use siga_model::error::{Error, Result};

impl Plan {
    /// Returns the command that a cell measures; `None` if the cell measures a path.
    pub fn command_of(&self, cell: &Cell) -> Option<&Command> {
        match cell.workload {
            Work::Network(_) => None,
            Work::Command(name) => self.workload.get(name.as_str()),
        }
    }

    /// Returns the values of the texts in braces for a cell, without those that a run decides.
    pub fn filling(cell: &Cell) -> Filling<'_> {
        Filling { clients: cell.clients, level: &cell.level, scratch: None, siga: None }
    }

    /// Returns true if a cell of the plan may execute a command that the plan names.
    pub fn has_commands(&self) -> bool {
        !self.workload.is_empty()
    }

    /// Refuses a command that cannot be started, has the name of a workload over a path, or that no workload of the plan names.
    pub(super) fn check_commands(&self) -> Result<()> {
        for (name, command) in &self.workload {
            let place = || format!("workload.{name}");
            name.parse::<CommandName>().map_err(|error| error.at("workload"))?;
            if name.parse::<Workload>().is_ok() {
                return Err(Error::usage(format!(
                    "the command {name} has the same name as a network workload of siga"
                ))
                .hint("give the command another name"));
            }
            command.check().map_err(|error| error.at(place()))?;
            let is_named = |wanted: &String| wanted == name;
            let included = self.include.iter().filter_map(|include| include.workload.as_ref());
            let of_tables = self.table.iter().flat_map(|table| &table.workloads);
            if !self.workloads.iter().chain(included).chain(of_tables).any(is_named) {
                return Err(Error::usage(format!("the plan contains the command {name}, but does not measure it"))
                    .hint(format!("add the command to the plan's workloads: workloads = [\"{name}\"]")));
            }
        }
        Ok(())
    }

    /// Returns the cell of a command. A command that does not depend on the number of clients has one cell for all numbers. Returns the
    /// workload instead if `text` is one over a path.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if `text` is neither a workload nor the name of a command of this plan.
    pub(super) fn command_cell(
        &self,
        text: &str,
        clients: u32,
        level: &Level,
    ) -> Result<std::result::Result<Cell, Workload>> {
        let Some(command) = self.workload.get(text) else { return text.parse().map(Err) };
        let clients = if command.scales() { clients } else { 1 };
        self.check_pairs(clients, 0)?;
        let name: CommandName = text.parse()?;
        let (path, workload) = (Route::Host.to_string(), Work::Command(name));
        Ok(Ok(Cell { path, workload, mtu: None, clients, level: level.name.clone() }))
    }

    /// Returns the reason why a command cannot be measured at a level, if there is one.
    pub(super) fn impossible_command(&self, cell: &Cell, level: &Level) -> Option<String> {
        let others: Vec<&str> =
            level.settings().into_iter().filter(|name| !Level::OF_COMMANDS.contains(name)).collect();
        let (command, name) = (&cell.workload, &level.name);
        if level.build.is_some() && self.command_of(cell).is_some_and(|command| !command.names_siga()) {
            return Some(format!(
                "level {name} uses another build of siga, but {command} does not contain {{siga}}, which stands for siga's program"
            ));
        }
        (!others.is_empty()).then(|| {
            format!(
                "level {name} sets {}, which applies only to network paths, but {command} is a command",
                others.join(", ")
            )
        })
    }
}
