//! Explains a verdict on CPU time: names the functions that account for the difference, from the sampled call chains of both
//! sides.
//!
//! The CPU time of a function includes the functions that it calls. Functions are chosen one after another. Each sample counts for
//! the first chosen function in whose chain it is, so the CPU times of the chosen functions can be added.
//!
//! - A function can be chosen if its remaining CPU time differs between the sides: the p of the signed-rank test (for two runs: the
//!   rank-sum test) over the rounds, adjusted for all functions with a noteworthy CPU time, is below 0.05, and the 95% interval of
//!   the difference excludes 0.
//! - Of these, a function is preferred if its difference is large, and large in relation to its CPU time on both sides. So a
//!   function that only one side runs is named, and not its callers, which both sides run.
//!
//! A sample in a process of client, router or server stands for the run time of these processes, divided by their number of
//! samples; any other sample for one sampling period. So the CPU times agree with those of the accounting methods.

mod forest;

use super::comparison::{Comparison, Row, Subject, Verdict};
use super::decide::LEVEL;
use super::metric::{Metric, Mode, Part};
use super::rounds::Rounds;
use crate::record::{Owner, TrialRecord};
use crate::stats::adjust::benjamini_hochberg;
use crate::stats::{Location, rank_sum, signed_rank};
use crate::store::Run;
pub use forest::Quality;
use forest::{Forest, Function, Names, Place, Sums};
use siga_plan::matrix::Cell;
use std::collections::BTreeMap;

/// Maximum number of functions that an explanation names.
const CAUSES_MAX: usize = 12;
/// Minimum CPU time of a function that is tested, as a fraction of the mean CPU time of both sides.
const NOTEWORTHY: f64 = 0.01;
/// Minimum difference of a function that is named, as a fraction of the whole difference.
const SHARE_LEAST: f64 = 0.01;
/// A function with at least this fraction of the best score is preferred if its CPU time is less: it is further in.
const NEARLY_BEST: f64 = 0.9;
/// A function whose difference is more than this fraction of all CPU time, of the side that takes more, is not named if it only
/// passes work on (see `OWN_LEAST`).
const TOO_WIDE: f64 = 0.3;
/// Minimum fraction of a wide function's difference that is in the function itself. With less, its callees say more.
const OWN_LEAST: f64 = 0.25;
/// Weight of the CPU time in a function itself against that in the functions that it calls, in the choice among similar functions.
const OWN_BONUS: f64 = 0.01;

/// The explanation of one verdict on CPU time.
#[derive(Debug, Clone, PartialEq)]
pub struct Why {
    /// The cell of the base side.
    pub base: Cell,
    /// The cell of the new side.
    pub new: Cell,
    /// The CPU time that the verdict is about.
    pub metric: Metric,
    /// Number of trials of the base side and of the new side.
    pub trials: (usize, usize),
    /// The sampled CPU time of both sides.
    pub whole: Cost,
    /// The functions that account for the difference, the largest difference first. Each sample counts for one function only.
    pub causes: Vec<Cause>,
    /// All samples that count for none of the functions.
    pub rest: Cost,
    /// How complete the call chains of the base side and of the new side are.
    pub quality: (Quality, Quality),
    /// All call chains of both sides, from which a flame graph can be drawn.
    pub stacks: Vec<Stack>,
}

/// The CPU time of some samples, in milliseconds per unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Mean CPU time of the base side and of the new side.
    pub values: (f64, f64),
    /// The difference between the sides with its 95% interval: the Hodges-Lehmann estimate.
    pub difference: Location,
}

impl Cost {
    /// Returns true if the 95% interval excludes 0.
    pub fn is_clear(&self) -> bool {
        self.difference.low.is_some_and(|low| low > 0.0) || self.difference.high.is_some_and(|high| high < 0.0)
    }
}

/// A function that accounts for a part of a difference.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// Name of the function.
    pub function: String,
    /// The functions through which it was called most, the nearest caller first.
    pub callers: Vec<String>,
    /// The component with the largest part of the difference.
    pub part: Part,
    /// The CPU time of the function and of all functions that it called, without those of larger causes.
    pub cost: Cost,
    /// Fraction of the whole difference.
    pub share: f64,
}

/// A call chain with its CPU time on both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct Stack {
    /// The component to which the CPU time is charged.
    pub part: Part,
    /// The functions, the outermost first.
    pub functions: Vec<String>,
    /// Mean CPU time in the innermost function, of the base side and of the new side, in milliseconds per unit.
    pub values: (f64, f64),
}

/// Returns the explanations of a comparison's verdicts on CPU time, and for each verdict that cannot be explained the cell with the
/// reason. Explained is the CPU time of the whole system; if it has no verdict, that of each component that has one. `base` and
/// `new` are the runs of the two sides, which may be the same run.
pub fn explain(comparison: &Comparison, base: &Run, new: &Run) -> (Vec<Why>, Vec<(Cell, String)>) {
    let rounds = (Rounds::new(base), Rounds::new(new));
    let (mut all, mut unexplained) = (Vec::new(), Vec::new());
    for row in explained(comparison) {
        let (own, other) = (rounds.0.of(&row.base), rounds.1.of(&row.new));
        let trials: (Vec<&TrialRecord>, Vec<&TrialRecord>) = match comparison.subject {
            Subject::Runs => (own.sound.values().copied().collect(), other.sound.values().copied().collect()),
            Subject::Levels | Subject::Paths | Subject::Mtus => own.beside(other).into_iter().unzip(),
        };
        let paired = comparison.subject != Subject::Runs;
        match Sides::of(&trials, row.metric, paired).and_then(|sides| sides.explain(row)) {
            Ok(why) => all.push(why),
            Err(reason) => unexplained.push((row.new.clone(), format!("{}: {reason}", row.metric.name()))),
        }
    }
    (all, unexplained)
}

/// Returns the rows to explain.
fn explained(comparison: &Comparison) -> Vec<&Row> {
    let decided = |row: &&Row| {
        matches!(row.verdict, Verdict::Better | Verdict::Worse) && matches!(row.metric, Metric::Cpu(_, Mode::All))
    };
    let decided: Vec<&Row> = comparison.rows.iter().filter(decided).collect();
    let has_total = |row: &Row| {
        decided.iter().any(|other| other.metric == Metric::TOTAL && other.base == row.base && other.new == row.new)
    };
    decided.iter().copied().filter(|row| row.metric == Metric::TOTAL || !has_total(row)).collect()
}

/// The call chains of the trials of both sides.
struct Sides {
    names: Names,
    base: Vec<Forest>,
    new: Vec<Forest>,
    /// Whether trials of equal index are of the same round.
    paired: bool,
}

/// The sums of each trial of both sides.
struct Both {
    base: Vec<Sums>,
    new: Vec<Sums>,
}

impl Both {
    /// Returns the CPU time of a function in each trial of both sides.
    fn of(&self, function: Function) -> (Vec<f64>, Vec<f64>) {
        let of = |side: &[Sums]| side.iter().map(|sums| sums.inclusive[function]).collect();
        (of(&self.base), of(&self.new))
    }

    /// Returns the mean CPU time in the function itself, of both sides.
    fn own(&self, function: Function) -> (f64, f64) {
        let of = |side: &[Sums]| mean(&side.iter().map(|sums| sums.own[function]).collect::<Vec<_>>());
        (of(&self.base), of(&self.new))
    }
}

impl Sides {
    /// Reads the call chains. Returns the reason if there are none.
    fn of(trials: &(Vec<&TrialRecord>, Vec<&TrialRecord>), metric: Metric, paired: bool) -> Result<Self, String> {
        let Metric::Cpu(part, _) = metric else { return Err("this figure is not a CPU time".into()) };
        let mut names = Names::default();
        let mut read = |trials: &[&TrialRecord]| -> Vec<Option<Forest>> {
            trials.iter().map(|trial| Forest::of(trial, part, &mut names)).collect()
        };
        let (mut base, mut new) = (read(&trials.0), read(&trials.1));
        if paired {
            (base, new) = base.into_iter().zip(new).filter(|(base, new)| base.is_some() && new.is_some()).unzip();
        }
        let (base, new): (Vec<_>, Vec<_>) = (base.into_iter().flatten().collect(), new.into_iter().flatten().collect());
        if base.is_empty() || new.is_empty() {
            return Err("no call chains to compare, because the profiler did not run on both compared sides".into());
        }
        Ok(Self { names, base, new, paired })
    }

    fn sums(&self, taken: &[bool]) -> Both {
        let of = |side: &[Forest]| side.iter().map(|forest| forest.sums(taken)).collect();
        Both { base: of(&self.base), new: of(&self.new) }
    }

    /// Returns the difference of two samples with its 95% interval, and its p.
    fn differ(&self, base: &[f64], new: &[f64]) -> Option<(Location, f64)> {
        if self.paired {
            let differences: Vec<f64> = base.iter().zip(new).map(|(base, new)| new - base).collect();
            return Some((signed_rank::location(&differences, 0.95)?, signed_rank::p(&differences)?));
        }
        Some((rank_sum::location(base, new, 0.95)?, rank_sum::p(base, new)?))
    }

    fn cost(&self, base: &[f64], new: &[f64]) -> Option<Cost> {
        let (difference, _) = self.differ(base, new)?;
        Some(Cost { values: (mean(base), mean(new)), difference })
    }

    fn explain(&self, row: &Row) -> Result<Why, String> {
        let few = || "the profiler sampled too few call chains".to_owned();
        let totals = |side: &[Forest]| side.iter().map(Forest::total).collect::<Vec<_>>();
        let (base, new) = (totals(&self.base), totals(&self.new));
        let whole = self.cost(&base, &new).ok_or_else(few)?;
        let mut taken = vec![false; self.names.count()];
        let mut causes: Vec<Cause> = Vec::new();
        while causes.len() < CAUSES_MAX {
            let sums = self.sums(&taken);
            let open = self.different(&sums, (mean(&base) + mean(&new), whole.difference.value));
            // Of one component, no function is too wide: its widest function says what the component does.
            let all = if row.metric == Metric::TOTAL { mean(&base).max(mean(&new)) } else { f64::INFINITY };
            let Some(function) = best(&open, &sums, all) else { break };
            let (base, new) = sums.of(function);
            let cost = self.cost(&base, &new).ok_or_else(few)?;
            let share = cost.difference.value / whole.difference.value;
            let (callers, part) = self.place(function, &taken);
            causes.push(Cause { function: self.names.of(function).to_owned(), callers, part, cost, share });
            taken[function] = true;
        }
        causes.sort_by(|left, right| right.cost.difference.value.abs().total_cmp(&left.cost.difference.value.abs()));
        let rest =
            |side: &[Forest]| -> Vec<f64> { side.iter().map(|forest| forest.sums(&taken).own.iter().sum()).collect() };
        let rest = self.cost(&rest(&self.base), &rest(&self.new)).ok_or_else(few)?;
        let quality = |side: &[Forest]| side.iter().fold(Quality::default(), |sum, forest| sum.plus(forest.quality));
        Ok(Why {
            base: row.base.clone(),
            new: row.new.clone(),
            metric: row.metric,
            trials: (self.base.len(), self.new.len()),
            whole,
            causes,
            rest,
            quality: (quality(&self.base), quality(&self.new)),
            stacks: self.stacks(),
        })
    }

    /// Returns all call chains.
    fn stacks(&self) -> Vec<Stack> {
        let mut values: BTreeMap<Place, (f64, f64)> = BTreeMap::new();
        for forest in &self.base {
            forest.chains(|place, ms| values.entry(place).or_default().0 += ms / self.base.len() as f64);
        }
        for forest in &self.new {
            forest.chains(|place, ms| values.entry(place).or_default().1 += ms / self.new.len() as f64);
        }
        let stack = |((functions, owner), values): (Place, (f64, f64))| {
            let functions = functions.into_iter().rev().map(|function| self.names.of(function).to_owned()).collect();
            Stack { part: forest::part_of(owner), functions, values }
        };
        values.into_iter().map(stack).collect()
    }

    /// Returns the functions whose CPU times differ between the sides. `all` is the sum of the CPU times of both sides, and
    /// `whole` the difference of all functions together.
    fn different(&self, sums: &Both, (all, whole): (f64, f64)) -> Vec<Function> {
        let tested = |function: Function| {
            let (base, new) = sums.of(function);
            let noteworthy = mean(&base) + mean(&new) >= NOTEWORTHY * all;
            let (difference, p) = if noteworthy { self.differ(&base, &new)? } else { return None };
            let is_named = Cost { values: (0.0, 0.0), difference }.is_clear()
                && difference.value.abs() >= SHARE_LEAST * whole.abs();
            Some(((function, is_named), p))
        };
        let (functions, p): (Vec<(Function, bool)>, Vec<f64>) = (0..self.names.count()).filter_map(tested).unzip();
        let differs =
            functions.into_iter().zip(benjamini_hochberg(&p)).filter(|((_, is_named), p)| *is_named && *p < LEVEL);
        differs.map(|((function, _), _)| function).collect()
    }

    /// Returns the callers at the place with the largest part of a function's difference, and the component to which that part is
    /// charged.
    fn place(&self, function: Function, taken: &[bool]) -> (Vec<String>, Part) {
        let mut places: BTreeMap<Place, f64> = BTreeMap::new();
        for (side, weight) in [(&self.base, -1.0 / self.base.len() as f64), (&self.new, 1.0 / self.new.len() as f64)] {
            for forest in side {
                forest.places(function, taken, |place, ms| *places.entry(place).or_default() += weight * ms);
            }
        }
        let widest = places.into_iter().max_by(|left, right| left.1.abs().total_cmp(&right.1.abs()));
        let (callers, owner) = widest.map(|(place, _)| place).unwrap_or((Vec::new(), Owner::Other));
        (callers.into_iter().map(|caller| self.names.of(caller).to_owned()).collect(), forest::part_of(owner))
    }
}

/// Returns the function of `open` that explains the largest part of the difference that is left. `all` is the CPU time of all
/// functions together, on the side that takes more.
fn best(open: &[Function], sums: &Both, all: f64) -> Option<Function> {
    struct Candidate {
        function: Function,
        /// CPU time of both sides, with a small bonus for CPU time in the function itself: of a function and its only caller, the
        /// function is preferred.
        width: f64,
        score: f64,
        is_wide: bool,
    }
    let candidate = |&function: &Function| {
        let (base, new) = sums.of(function);
        let (base, new) = (mean(&base), mean(&new));
        let (own_base, own_new) = sums.own(function);
        let difference = (new - base).abs();
        let is_wide = difference > TOO_WIDE * all && (own_new - own_base).abs() < OWN_LEAST * difference;
        let both = base + new;
        let width = both - OWN_BONUS * (own_base + own_new);
        (both > 0.0).then(|| Candidate { function, width, score: difference * difference / both, is_wide })
    };
    let mut candidates: Vec<Candidate> = open.iter().filter_map(candidate).collect();
    if candidates.iter().any(|candidate| !candidate.is_wide) {
        candidates.retain(|candidate| !candidate.is_wide);
    }
    let most = candidates.iter().map(|candidate| candidate.score).fold(0.0, f64::max);
    let near = candidates.iter().filter(|candidate| candidate.score > 0.0 && candidate.score >= NEARLY_BEST * most);
    near.min_by(|left, right| left.width.total_cmp(&right.width)).map(|candidate| candidate.function)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests;
