//! The trials of a run by cell and round. A round has one trial of each cell.

use crate::disturbance::Disturbance;
use crate::record::{Slot, TrialRecord};
use crate::store::Run;
use siga_plan::matrix::Cell;
use std::collections::{BTreeMap, HashMap};

/// The trials of each cell of a run.
#[derive(Debug)]
pub(crate) struct Rounds<'a> {
    pub(crate) disturbance: Disturbance,
    cells: HashMap<&'a Cell, Trials<'a>>,
    none: Trials<'a>,
}

/// The trials of one cell.
#[derive(Debug, Default)]
pub(crate) struct Trials<'a> {
    /// Sound trials (those without a flaw) by session and round.
    pub(crate) sound: BTreeMap<Slot, &'a TrialRecord>,
    /// Trials with a flaw.
    pub(crate) flawed: Vec<&'a TrialRecord>,
    /// Number of trials that are left out, because the host disturbed their block.
    pub(crate) disturbed: usize,
}

impl<'a> Rounds<'a> {
    pub(crate) fn new(run: &'a Run) -> Self {
        let mut cells: HashMap<&Cell, Trials<'_>> = HashMap::new();
        let disturbance = Disturbance::of(&run.trials);
        for trial in &run.trials {
            let trials = cells.entry(&trial.cell).or_default();
            if disturbance.leaves_out(trial) {
                trials.disturbed += 1;
            } else if trial.flags.is_empty() {
                trials.sound.entry(trial.slot()).or_insert(trial);
            } else {
                trials.flawed.push(trial);
            }
        }
        Self { disturbance, cells, none: Trials::default() }
    }

    pub(crate) fn of(&self, cell: &Cell) -> &Trials<'a> {
        self.cells.get(cell).unwrap_or(&self.none)
    }

    pub(crate) fn cells(&self) -> impl Iterator<Item = &'a Cell> {
        self.cells.keys().copied()
    }
}

impl<'a> Trials<'a> {
    /// Returns the number of trials from undisturbed blocks, sound and flawed.
    pub(crate) fn count(&self) -> usize {
        self.sound.len() + self.flawed.len()
    }

    /// Returns the number of all trials.
    pub(crate) fn measured(&self) -> usize {
        self.count() + self.disturbed
    }

    /// Returns one pair of sound trials for each round in which both cells have one.
    pub(crate) fn beside(&self, other: &Self) -> Vec<(&'a TrialRecord, &'a TrialRecord)> {
        self.sound.iter().filter_map(|(slot, own)| Some((*own, *other.sound.get(slot)?))).collect()
    }
}
