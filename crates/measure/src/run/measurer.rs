//! The measurer: a process of siga that measures whole trials on its host, for a run on several hosts.
//!
//! The coordinator sends the plan, and then orders one trial after the other (`super::hosts`). Nothing on this host is opened because the
//! plan names it, except what a trial needs: the coordinator sends the levels, too. When the coordinator closes the channel or dies, the
//! measurer ends the trial as after Ctrl-C: it runs the teardowns, and ends everything that it started.

use super::profiler;
use crate::agent::launch::AgentOptions;
use crate::agent::protocol::VERSION;
use crate::build::Builds;
use crate::channel::{Lines, write_outcome};
use crate::cpu::chains::Names;
use crate::cpu::profile::Profiler;
use crate::interrupt::{catch_interrupts, interrupt};
use crate::needs::skip_lacking;
use crate::topology::Networks;
use crate::trial::prepare::Preparation;
use crate::trial::{Bench, Measures};
use crate::{host, place};
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, IoContext, Result};
use siga_plan::level::Level;
use siga_plan::matrix::{Cell, Matrix};
use siga_plan::plan::Plan;
use siga_results::environment::Environment;
use siga_results::record::{PathRecord, Skipped, TrialRecord};
use siga_results::store::Run;

/// An order to a measurer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Read the environment of the host.
    Environment,
    /// Check what the host has for a plan.
    Begin {
        /// The plan of the run.
        plan: Box<Plan>,
        /// The levels that the plan names.
        levels: Vec<Level>,
    },
    /// Measure a trial.
    Trial {
        /// The cell.
        cell: Box<Cell>,
        /// The round.
        round: u32,
        /// Whether every byte is checked before.
        check: bool,
    },
}

/// An answer of a measurer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The environment of the host.
    Environment(Box<Environment>),
    /// The host is ready for the plan.
    Begun {
        /// Messages for the user.
        notes: Vec<String>,
        /// Cells whose command lacks a program or a file on this host, with the reason.
        lacking: Vec<(Cell, String)>,
    },
    /// A trial, or the reason why it has no result.
    Trial {
        /// The records of the trial.
        outcome: std::result::Result<Box<(TrialRecord, PathRecord)>, Error>,
        /// Messages for the user.
        notes: Vec<String>,
    },
}

/// Runs a measurer on standard input and output until the input ends.
///
/// # Errors
/// Returns an error if the coordinator cannot be answered.
pub fn serve(options: &AgentOptions) -> Result<()> {
    let mut output = std::io::stdout();
    if let Err(error) = enter(options) {
        return write_outcome::<crate::agent::protocol::Answer>(&mut output, Err(error));
    }
    let hello = crate::agent::protocol::Answer::Hello { version: VERSION, addresses: place::addresses() };
    write_outcome(&mut output, Ok(hello))?;
    interrupt_at_end_of_input()?;
    let (mut input, mut measurer) = (Lines::new(std::io::stdin()), None);
    // An interrupt is the end of the input.
    while let Ok(Some(line)) = input.next(None) {
        let order = serde_json::from_str(&line).map_err(|error| {
            Error::usage(format!("the siga process that carries out the run sent an invalid order: {error}"))
        });
        if write_outcome(&mut output, order.and_then(|order| obey(&mut measurer, order))).is_err() {
            break;
        }
    }
    if let Some(mut measurer) = measurer {
        measurer.preparation.end();
    }
    Ok(())
}

fn enter(options: &AgentOptions) -> Result<()> {
    catch_interrupts()?;
    if options.unlink {
        std::fs::remove_file(std::env::current_exe().context("cannot find the program file of this siga process")?)
            .context("cannot remove the copy of siga that this process runs")?;
    }
    place::enter(options.net.as_deref(), options.user.as_deref())
}

/// Starts a thread that ends all waits of this process when its standard input is closed.
fn interrupt_at_end_of_input() -> Result<()> {
    let watch = || {
        let stdin = std::io::stdin();
        let mut input = [PollFd::new(&stdin, PollFlags::RDHUP)];
        while !matches!(poll(&mut input, None), Ok(count) if count > 0) {}
        interrupt();
    };
    std::thread::Builder::new()
        .name("lease".into())
        .spawn(watch)
        .context("cannot start a thread that watches the connection to the other host")?;
    Ok(())
}

fn obey(measurer: &mut Option<Measurer>, order: Order) -> Result<Answer> {
    match order {
        Order::Environment => Ok(Answer::Environment(Box::new(host::environment()))),
        Order::Begin { plan, levels } => {
            let mut notes = Notes::default();
            let (begun, lacking) = Measurer::begin(*plan, &levels, &mut notes)?;
            *measurer = Some(begun);
            Ok(Answer::Begun { notes: notes.0, lacking })
        }
        Order::Trial { cell, round, check } => {
            let measurer =
                measurer.as_mut().ok_or_else(|| Error::usage("the siga process on this host has received no plan"))?;
            let mut notes = Vec::new();
            let outcome = measurer.trial(&cell, round, check, &mut |note| notes.push(note.to_owned()));
            Ok(Answer::Trial { outcome: outcome.map(Box::new), notes })
        }
    }
}

/// The state of a measurer between trials.
#[derive(Debug)]
struct Measurer {
    plan: Plan,
    matrix: Matrix,
    profiler: Option<Profiler>,
    names: Option<Names>,
    preparation: Preparation,
}

impl Measurer {
    /// Returns the measurer of a plan, and the cells that this host cannot measure.
    fn begin(plan: Plan, levels: &[Level], notes: &mut Notes) -> Result<(Self, Vec<(Cell, String)>)> {
        let mut matrix = plan.matrix_with(levels)?;
        Builds::refuse(&matrix)?;
        Networks::refuse(&matrix)?;
        let known = matrix.skipped.len();
        skip_lacking(&plan, &mut matrix);
        let lacking = matrix.skipped.split_off(known);
        let profiler = profiler(&plan, notes)?;
        if !super::is_commands_only(&plan) {
            // A command inherits the limit, so its runs keep that of the user.
            place::raise_descriptor_limit();
        }
        let names = profiler.as_ref().map(|_| Names::open()).transpose()?;
        Ok((Self { plan, matrix, profiler, names, preparation: Preparation::default() }, lacking))
    }

    fn trial(
        &mut self,
        cell: &Cell,
        round: u32,
        check: bool,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(TrialRecord, PathRecord)> {
        if !self.matrix.cells.contains(cell) {
            return Err(Error::usage(format!("the plan has no cell {cell} for this host")));
        }
        let mut bench = Bench {
            plan: &self.plan,
            matrix: &self.matrix,
            // A plan that reaches further hosts is refused before.
            ssh: crate::config::SSH,
            builds: &Builds::default(),
            networks: &Networks::default(),
            profiler: self.profiler.take(),
            names: self.names.take(),
            series: None,
            preparation: std::mem::take(&mut self.preparation),
        };
        let outcome = bench.trial(cell, round, check, progress);
        let Bench { profiler, names, preparation, .. } = bench;
        (self.profiler, self.names, self.preparation) = (profiler, names, preparation);
        outcome
    }
}

/// Keeps the messages for the user.
#[derive(Debug, Default)]
struct Notes(Vec<String>);

impl super::Watch for Notes {
    fn begins(&mut self, _: &Cell, _: &super::Progress) {}
    fn measured(&mut self, _: &TrialRecord, _: &super::Progress) {}
    fn skipped(&mut self, _: &Skipped) {}
    fn round(&mut self, _: &Run, _: &super::Progress) {}
    fn note(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
    fn host(&mut self, _: &str) {}
}
