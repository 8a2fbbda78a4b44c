//! Setups and teardowns around the trials of commands. A child process of siga carries them out (`crate::command`), so that they also
//! run if siga is killed.

use super::command::{Paths, filling, order, runner};
use crate::channel::ChildProcess;
use crate::command::{Order, Scope, Task};
use crate::limits;
use siga_model::error::{Error, Result};
use siga_plan::command::Command;
use siga_plan::command::hooks::{Hooks, Scope as Kind};
use siga_plan::matrix::{Cell, Matrix};
use siga_plan::plan::Plan;
use std::collections::BTreeMap;
use std::time::Duration;

/// The open scopes of a run, and the process that carries out their setups and teardowns.
#[derive(Debug, Default)]
pub(crate) struct Preparation {
    process: Option<ChildProcess>,
    scratch: Option<String>,
    /// The open scopes, with the longest time of each teardown.
    open: BTreeMap<String, Duration>,
    /// The round of each command whose scope is open.
    rounds: BTreeMap<String, u32>,
}

impl Preparation {
    /// Returns the path of the scratch directory, if the run has one.
    pub(super) fn scratch(&self) -> Option<&str> {
        self.scratch.as_deref()
    }

    /// Opens all scopes of a trial that are not open yet. `build` is the program of the level's build, if it has one.
    pub(super) fn begin(
        &mut self,
        plan: &Plan,
        matrix: &Matrix,
        cell: &Cell,
        round: u32,
        build: Option<&str>,
    ) -> Result<()> {
        let Some(command) = plan.command_of(cell) else { return Ok(()) };
        let (setup, teardown, has_scratch) = (&command.setup, &command.teardown, command.has_scratch());
        if setup.is_empty() && teardown.is_empty() && !has_scratch {
            return Ok(());
        }
        if self.process.is_none() {
            self.process = Some(ChildProcess::start(runner(), "setup and teardown")?);
        }
        if has_scratch && self.scratch.is_none() {
            self.scratch = Some(self.ask(&Task::Scratch, limits::ANSWER_TIME_MAX)?);
        }
        let name = cell.workload.to_string();
        if self.rounds.get(&name).is_some_and(|&open| open != round) {
            self.close(&key(cell, Kind::Round))?;
            self.rounds.remove(&name);
        }
        for kind in Kind::ALL {
            self.enter((plan, matrix), cell, (kind, command), build)?;
        }
        self.rounds.insert(name, round);
        Ok(())
    }

    /// Closes the scope of a trial.
    pub(super) fn end_trial(&mut self, cell: &Cell) -> Result<()> {
        self.close(&key(cell, Kind::Trial))
    }

    /// Closes all scopes, also if the user has interrupted siga.
    pub(crate) fn end(&mut self) {
        let longest: Duration = self.open.values().sum();
        if let Some(mut process) = self.process.take() {
            process.end_within(longest + limits::ANSWER_TIME_MAX);
        }
    }

    fn enter(
        &mut self,
        (plan, matrix): (&Plan, &Matrix),
        cell: &Cell,
        (kind, command): (Kind, &Command),
        build: Option<&str>,
    ) -> Result<()> {
        let key = key(cell, kind);
        let paths = Paths { scratch: self.scratch(), build };
        let files = match kind {
            Kind::Run | Kind::Trial => filled(command, cell, paths),
            Kind::Level | Kind::Round => BTreeMap::new(),
        };
        let of = |hooks: &Hooks| -> Result<Option<Order>> {
            let Some(words) = hooks.of(kind) else { return Ok(None) };
            let filling = filling(cell, paths);
            let words = words.iter().map(|word| filling.fill(word)).collect();
            let order = order(plan, matrix, cell, paths)?;
            Ok(Some(Order { words, ..order.for_hook() }))
        };
        let (setup, teardown) = (of(&command.setup)?, of(&command.teardown)?);
        let longest =
            |order: &Option<Order>| order.as_ref().map_or(Duration::ZERO, |one| Duration::from_nanos(one.limit_ns));
        let (before, after) = (longest(&setup), longest(&teardown));
        if self.open.contains_key(&key) || (setup.is_none() && teardown.is_none() && files.is_empty()) {
            return Ok(());
        }
        let scope = Scope { key: key.clone(), files, setup, teardown };
        let opened = self.ask::<()>(&Task::Open(Box::new(scope)), before + limits::ANSWER_TIME_MAX);
        opened.map_err(|error| error.at(format!("setup of the {}", kind.name())))?;
        self.open.insert(key, after);
        Ok(())
    }

    fn close(&mut self, key: &str) -> Result<()> {
        let Some(longest) = self.open.remove(key) else { return Ok(()) };
        let closed = self.ask::<()>(&Task::Close(key.to_owned()), longest + limits::ANSWER_TIME_MAX);
        closed.map_err(|error| error.at("teardown"))
    }

    fn ask<T: serde::de::DeserializeOwned>(&mut self, task: &Task, longest: Duration) -> Result<T> {
        let process = self
            .process
            .as_mut()
            .ok_or_else(|| Error::environment("the process for setups and teardowns has not been started"))?;
        process.ask(task, longest)
    }
}

/// Returns the identifier of a scope of a trial.
fn key(cell: &Cell, kind: Kind) -> String {
    let workload = &cell.workload;
    match kind {
        Kind::Run => format!("{workload} run"),
        Kind::Level => format!("{workload} level {}", cell.level),
        Kind::Round => format!("{workload} round"),
        Kind::Trial => format!("{workload} trial"),
    }
}

/// Returns the files of a command. `{scratch}` in a text stands for the path of the scratch directory.
fn filled(command: &Command, cell: &Cell, paths: Paths<'_>) -> BTreeMap<String, String> {
    let filling = filling(cell, paths);
    command.files.iter().map(|(name, text)| (name.clone(), filling.fill(text))).collect()
}
