//! The sides that a reader compares: cells of all runs of the page with the same workload and number of client-server pairs. Names
//! sides by what they differ in, and finds the verdicts on them.

use super::ShownRun;
use crate::words::{number, pairs};
use serde_json::Value;
use siga_plan::level::Level;
use siga_plan::matrix::Cell;
use siga_plan::route::Route;
use siga_plan::work::Work;
use siga_results::judge::{Comparison, Metric, Row};
use siga_results::summary::Summary;
use std::collections::{BTreeMap, BTreeSet};

/// One side: the summary of a cell, with the run that measured it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) shown: &'a ShownRun<'a>,
    pub(super) summary: &'a Summary,
}

/// The names of sides that are shown together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Names {
    /// The name of each side: its path, MTU, level and run, as far as the sides differ in them.
    pub(super) own: Vec<String>,
    /// What all sides have in common, for the title above them; empty if there is nothing to say.
    pub(super) common: String,
}

/// The verdicts on a side against its base.
#[derive(Debug)]
pub(super) struct Judged<'a> {
    pub(super) comparison: &'a Comparison,
    /// The rows of the main figures, in the order of [`FIGURES`]; `None` if there is no ratio.
    pub(super) rows: [Option<&'a Row>; 3],
}

/// The main figures in the order in which a reader asks for them, with their short names.
pub(super) const FIGURES: [(Metric, &str); 3] =
    [(Metric::Rate, "rate"), (Metric::TOTAL, "CPU time"), (Metric::P99, "p99 latency")];

/// Returns all cells of all runs, in the order of the plans.
pub(super) fn all<'a>(shown: &'a [ShownRun<'a>]) -> Vec<Side<'a>> {
    shown
        .iter()
        .flat_map(|shown| shown.judged.agreed.cells.iter().map(move |summary| Side { shown, summary }))
        .collect()
}

impl<'a> Side<'a> {
    pub(super) fn cell(&self) -> &'a Cell {
        &self.summary.cell
    }

    /// Returns whether both sides have the same workload and number of client-server pairs.
    pub(super) fn is_beside(&self, workload: Work, clients: u32) -> bool {
        self.cell().workload == workload && self.cell().clients == clients
    }

    /// Returns the path of the side in words: "client and server in two namespaces, joined by a veth pair".
    pub(super) fn about(&self) -> String {
        match self.cell().path.parse() {
            Ok(Route::Built(kind)) => kind.about().to_owned(),
            // The name of the side says already that it is siga's.
            Ok(Route::Guests(path)) => path.about().trim_start_matches("siga's network: ").to_owned(),
            Ok(Route::Own(_) | Route::Places(..) | Route::Host) | Err(_) => String::new(),
        }
    }

    /// Returns the settings of the side's level; `None` if the run does not have them.
    pub(super) fn level(&self) -> Option<&'a Level> {
        self.shown.run.levels.iter().find(|level| level.name == self.cell().level)
    }

    /// Returns the verdicts on this side in these comparisons. If it is compared with several bases, `first` is preferred, then the
    /// first comparison. Figures of an emulated machine have no ratio.
    pub(super) fn judged(&self, comparisons: impl Iterator<Item = &'a Comparison>, first: &Cell) -> Option<Judged<'a>> {
        let own = comparisons.filter(|comparison| !comparison.emulated && self.is_new_in(comparison));
        let all = own.filter_map(|comparison| {
            let of = |metric| comparison.rows.iter().find(|row| row.new == *self.cell() && row.metric == metric);
            let rows = FIGURES.map(|(metric, _)| of(metric).filter(|row| is_drawn(row)));
            rows.iter().any(Option::is_some).then_some(Judged { comparison, rows })
        });
        all.min_by_key(|judged| judged.base() != Some(first))
    }

    /// Returns whether the new side of a comparison is this side's run.
    fn is_new_in(&self, comparison: &Comparison) -> bool {
        let own = &self.shown.run.directory;
        match &comparison.run {
            Some(directory) => directory == own,
            None => comparison.new == own.display().to_string(),
        }
    }
}

impl Judged<'_> {
    /// Returns the cell with which the side is compared.
    pub(super) fn base(&self) -> Option<&Cell> {
        self.rows.iter().flatten().next().map(|row| &row.base)
    }
}

/// The network whose stack carries the traffic of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    /// Linux's network stack.
    Kernel,
    /// siga's own network.
    Siga,
}

impl Network {
    /// Returns the name of the network beside a path.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Siga => "siga",
        }
    }
}

/// Returns the network of a path; `None` if the path does not say it.
pub(super) fn network(path: &str) -> Option<Network> {
    match path.parse() {
        Ok(Route::Built(_)) => Some(Network::Kernel),
        Ok(Route::Guests(_) | Route::Own(_)) => Some(Network::Siga),
        Ok(Route::Places(..) | Route::Host) | Err(_) => None,
    }
}

/// Returns the settings of a level that differ from those of another, in a few words: "packing, zero copy; waiting: adaptive". A
/// feature that is on at the level and off at the other has its name alone.
pub(super) fn changes(base: &Level, new: &Level) -> String {
    let flat = |level: &Level| {
        let mut all = BTreeMap::new();
        flatten(&serde_json::to_value(level).unwrap_or_default(), "", &mut all);
        all.retain(|name, _| name != "name" && name != "about");
        all
    };
    let (base, new) = (flat(base), flat(new));
    let names: BTreeSet<&String> = base.keys().chain(new.keys()).collect();
    let (mut on, mut off, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        let words = name.replace('_', " ");
        match (base.get(name), new.get(name)) {
            (one, other) if one == other => {}
            (_, Some(Value::Bool(true))) => on.push(words),
            (_, Some(Value::Bool(false))) => off.push(format!("without {words}")),
            (_, Some(Value::String(text))) if text.contains('\n') => others.push(words),
            (_, Some(Value::String(text))) => others.push(format!("{words}: {text}")),
            (_, Some(value)) => others.push(format!("{words}: {value}")),
            (_, None) => others.push(format!("{words}: not set")),
        }
    }
    let features = [on, off].concat().join(", ");
    std::iter::once(features).chain(others).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Adds the leaves of a tree to `all`, each with the last part of its name.
fn flatten(tree: &Value, name: &str, all: &mut BTreeMap<String, Value>) {
    match tree {
        Value::Object(members) => members.iter().for_each(|(name, value)| flatten(value, name, all)),
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            all.insert(name.to_owned(), tree.clone());
        }
    }
}

/// Returns whether a row has a ratio that a chart can show.
pub(super) fn is_drawn(row: &Row) -> bool {
    row.ratio.is_finite() && row.ratio > 0.0
}

/// Names the sides. A name has the path, MTU, level and run of its side, as far as the sides differ in them. If they differ in
/// nothing, the name is the path.
pub(super) fn names(sides: &[Side<'_>]) -> Names {
    let Some(first) = sides.first() else { return Names { own: Vec::new(), common: String::new() } };
    let differ = |is_same: &dyn Fn(&Side<'_>, &Side<'_>) -> bool| sides.iter().any(|side| !is_same(side, first));
    let paths = differ(&|one, other| one.cell().path == other.cell().path);
    let levels = differ(&|one, other| one.cell().level == other.cell().level);
    let runs = differ(&|one, other| one.shown.name == other.shown.name);
    // Paths of different types usually have different MTUs. The MTU is part of the name only if it distinguishes two sides.
    let mtus = sides.iter().any(|one| {
        let is_twin = |other: &&Side<'_>| {
            let (own, twin) = (one.cell(), other.cell());
            own.path == twin.path && own.level == twin.level && one.shown.name == other.shown.name
        };
        sides.iter().filter(is_twin).any(|twin| twin.cell().mtu != one.cell().mtu)
    });
    let mtu = |side: &Side<'_>| side.cell().mtu.map(|mtu| format!("MTU {}", number(mtu.into())));
    let name = |side: &Side<'_>| {
        let mut words = Vec::new();
        words.extend(paths.then(|| side.cell().path.clone()));
        words.extend(mtu(side).filter(|_| mtus));
        words.extend(levels.then(|| side.cell().level.clone()));
        words.extend(runs.then(|| side.shown.name.clone()));
        match words.as_slice() {
            [] => side.cell().path.clone(),
            [level] if levels => format!("level {level}"),
            words => words.join(", "),
        }
    };
    let own: Vec<String> = sides.iter().map(name).collect();
    let mut common = Vec::new();
    common.extend((!paths && (levels || runs || mtus)).then(|| first.cell().path.clone()));
    common.extend((!levels && first.cell().level != "plain").then(|| format!("level {}", first.cell().level)));
    Names { own, common: common.join(", ") }
}

/// Returns the workload and the number of client-server pairs in words: "crr-64-8k, 10 pairs".
pub(super) fn load(cell: &Cell) -> String {
    format!("{}, {}", cell.workload, pairs(cell.clients))
}
