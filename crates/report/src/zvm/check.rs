//! Checks whether the findings of z/VM's report on levels 420 and 430 hold in a run.
//!
//! A finding says that each of its cases (ratios or values) lies within bounds. A case supports the finding, contradicts it, or
//! decides nothing. In the texts of reports, a case "speaks for" or "speaks against" its finding:
//! - A case supports the finding (speaks for it) if the case's 95% interval lies within the finding's bounds. The interval is not
//!   adjusted for the number of cases, because a finding holds only if every case supports it.
//! - A case contradicts the finding (speaks against it) if the interval lies outside the bounds and the p value is below 0.05. A
//!   single such case decides that the finding does not hold. Therefore the p value is adjusted for the number of cases of the
//!   finding (Benjamini and Hochberg).

use super::findings::{Case, Finding, LEVELS, Term, findings};
use super::pairs::{Location, Pair, of_levels, of_table};
use super::published::{PublishedTable, connectivity_of, metric};
use siga_model::error::Result;
use siga_plan::matrix::Cell;
use siga_plan::path::guest::GuestPath;
use siga_plan::plan::finding as plan;
use siga_results::judge::{self, Figures, Judgement, LEVEL};
use siga_results::record::Slot;
use siga_results::stats::adjust::benjamini_hochberg;
use siga_results::store::Run;
use siga_results::summary::Reduced;
use std::collections::{BTreeMap, HashSet};

/// Beginning of the reason why a case decides nothing, if its cells were measured but cannot be compared.
pub(crate) const NOT_COMPARABLE: &str = "not comparable: ";

/// A finding that was checked in a run, with the verdict.
#[derive(Debug, Clone)]
pub(crate) struct CheckedFinding {
    /// The finding that was checked.
    pub(crate) finding: Finding,
    /// Whether the finding holds in the run.
    pub(crate) verdict: FindingVerdict,
    /// All cases of the finding.
    pub(crate) cases: Vec<CheckedCase>,
    /// Number of connectivities that the finding is about: all of the report's if it covers several of them, otherwise 1.
    pub(crate) connectivities: usize,
}

/// Whether a finding holds in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FindingVerdict {
    /// Every case supports the finding.
    Holds,
    /// At least one case contradicts the finding.
    DoesNotHold,
    /// No case contradicts the finding, but at least one case decides nothing, or the finding has no case.
    CannotTell,
}

impl FindingVerdict {
    /// Returns the verdict's name: `holds`, `does not hold` or `cannot tell`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::DoesNotHold => "does not hold",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// A case of a finding with its published and measured figures.
#[derive(Debug, Clone)]
pub(crate) struct CheckedCase {
    /// The name of the case, for people.
    pub(crate) name: String,
    /// The figure in the published tables; `None` if the tables do not have it.
    pub(crate) published: Option<f64>,
    /// The figure that the run measured; `None` if the run did not measure it.
    pub(crate) measured: Option<Location>,
    /// Whether the case supports the finding, contradicts it, or decides nothing.
    pub(crate) speaks: Stance,
    /// The pairs of cells from which the case was measured, as indices in [`Repeat::pairs`](super::repeat::Repeat). If the case
    /// is a quotient, the pair of its numerator comes first.
    pub(crate) pairs: Vec<usize>,
    /// The connectivity that the case is about, as the report names it; `None` if the report does not have it.
    pub(crate) connectivity: Option<String>,
}

/// Whether a case supports its finding, contradicts it, or decides nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stance {
    /// The case supports the finding.
    For,
    /// The case contradicts the finding.
    Against,
    /// The case decides nothing.
    Neither {
        /// The reason, in words.
        reason: String,
    },
}

impl Stance {
    /// Returns the name of the stance: `for`, `against` or `open`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::For => "for",
            Self::Against => "against",
            Self::Neither { .. } => "open",
        }
    }
}

impl CheckedFinding {
    /// Returns the number of cases whose stance has the name `speaks` (see [`Stance::name`]).
    pub(crate) fn count(&self, speaks: &str) -> usize {
        self.cases.iter().filter(|case| case.speaks.name() == speaks).count()
    }

    /// Returns the connectivities on which the finding holds: every case about them supports it.
    pub(crate) fn holds_on(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.cases.iter().filter_map(|case| case.connectivity.as_deref()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let is_other = |case: &CheckedCase, name: &str| case.connectivity.as_deref() != Some(name);
        names.retain(|name| self.cases.iter().all(|case| is_other(case, name) || case.speaks == Stance::For));
        names
    }

    /// Returns true if the run has measured at least one case, even if its cells are not comparable.
    pub(crate) fn is_measured(&self) -> bool {
        let is_refused = |case: &CheckedCase| match &case.speaks {
            Stance::Neither { reason } => reason.starts_with(NOT_COMPARABLE),
            Stance::For | Stance::Against => false,
        };
        self.cases.iter().any(|case| case.measured.is_some() || is_refused(case))
    }
}

/// Checks every finding. Returns an empty list if no cell was measured at both 420 and 430.
pub(super) fn judge(
    run: &Run,
    reduced: &Reduced,
    published: &[PublishedTable],
    pairs: &[Pair],
) -> Result<Vec<CheckedFinding>> {
    if !pairs.iter().any(Pair::is_of_tables) {
        return Ok(Vec::new());
    }
    let places = Places { published, pairs };
    let halves = halves(reduced, pairs);
    let one = |finding: Finding| {
        let drafts = if finding.tables.is_empty() {
            let own = pairs.iter().enumerate().filter(|(_, pair)| pair.is_of_tables());
            let measured = own.flat_map(|(at, _)| places.everywhere(&finding, at));
            measured.chain(halves.iter().map(half)).collect()
        } else {
            finding.cases().iter().map(|case| places.draft(case)).collect()
        };
        let cases = speak(&finding, drafts, run.plan.smoke);
        let connectivities = connectivities(&cases, published);
        CheckedFinding { verdict: verdict(&cases), finding, cases, connectivities }
    };
    Ok(findings()?.into_iter().map(one).collect())
}

/// Returns the number of connectivities that a finding with these cases is about.
fn connectivities(cases: &[CheckedCase], published: &[PublishedTable]) -> usize {
    let own: HashSet<&str> = cases.iter().filter_map(|case| case.connectivity.as_deref()).collect();
    if own.len() < 2 {
        return 1;
    }
    // The tables of the report on file transfers have no numbers, but names.
    let of_report = published.iter().filter(|table| table.id.parse::<u32>().is_ok());
    of_report.map(PublishedTable::connectivity).collect::<HashSet<_>>().len()
}

/// Checks the findings of the run's plan. Each is about the ratio of two levels, in every cell that was planned at both. A cell that
/// was not measured at both decides nothing.
pub(super) fn judge_plan(
    run: &Run,
    reduced: &Reduced,
    published: &[PublishedTable],
    figures: &Figures<'_>,
) -> Result<Vec<CheckedFinding>> {
    let planned = run.plan.matrix_with(&run.levels).map(|matrix| matrix.cells).unwrap_or_default();
    let one = |stated: &plan::Finding| {
        let row = match stated.figure {
            plan::FindingFigure::Rate => "rate",
            plan::FindingFigure::Cpu => "cpu",
        };
        let pairs = of_levels(run, reduced, figures, published, [stated.base.as_str(), stated.level.as_str()])?;
        let draft = |pair: &Pair| Draft {
            name: place(&pair.cell, None),
            published: None,
            logs: values(pair, row, None).map(|values| values.values().map(|value| value.ln()).collect()),
            pairs: Vec::new(),
            connectivity: None,
        };
        let measured = pairs.iter().filter(|pair| stated.is_about(&pair.cell)).map(draft);
        let alone = unmeasured(&planned, stated, &pairs);
        let missing = alone.iter().map(|cell| Draft { connectivity: None, ..half(cell) });
        Ok(checked(Finding::of_plan(stated, row), measured.chain(missing).collect(), run.plan.smoke))
    };
    run.plan.finding.iter().map(one).collect()
}

/// Returns the cells that a finding of the plan is about, and that were planned at both of its levels but not measured at both.
/// Each returned cell has the finding's level.
fn unmeasured(planned: &[Cell], stated: &plan::Finding, pairs: &[Pair]) -> Vec<Cell> {
    let both = judge::pairs_of_levels(planned, &stated.base, &stated.level);
    let cells = both.into_iter().map(|(_, cell)| cell).filter(|cell| stated.is_about(cell));
    cells.filter(|cell| !pairs.iter().any(|pair| pair.cell == *cell)).collect()
}

/// Returns the cells with a router that were planned for 420 or 430, but not measured at both levels. The level of each returned
/// cell is set to 430.
fn halves(reduced: &Reduced, pairs: &[Pair]) -> Vec<Cell> {
    let routed = |cell: &Cell| cell.path.parse::<GuestPath>().is_ok_and(|path| path.routed);
    let measured = reduced.cells.iter().map(|summary| &summary.cell);
    let cells = measured.chain(reduced.skipped.iter().map(|skipped| &skipped.cell));
    let of_levels = cells.filter(|cell| LEVELS.contains(&cell.level.as_str()) && routed(cell));
    let mut alone: Vec<Cell> = of_levels.map(|cell| Cell { level: LEVELS[1].to_owned(), ..cell.clone() }).collect();
    alone.retain(|cell| !pairs.iter().any(|pair| pair.is_of_tables() && pair.cell == *cell));
    let mut told = HashSet::new();
    alone.retain(|cell| told.insert(cell.clone()));
    alone
}

fn half(cell: &Cell) -> Draft {
    let logs = Err("this run did not measure both levels".to_owned());
    let connectivity = connectivity_of(cell).map(str::to_owned);
    Draft { name: place(cell, None), published: None, logs, pairs: Vec::new(), connectivity }
}

fn verdict(cases: &[CheckedCase]) -> FindingVerdict {
    if cases.iter().any(|case| case.speaks == Stance::Against) {
        FindingVerdict::DoesNotHold
    } else if !cases.is_empty() && cases.iter().all(|case| case.speaks == Stance::For) {
        FindingVerdict::Holds
    } else {
        FindingVerdict::CannotTell
    }
}

/// A case before its stance is decided. The members are those of [`CheckedCase`].
pub(crate) struct Draft {
    pub(crate) name: String,
    pub(crate) published: Option<f64>,
    /// The logarithms of the case's measured figures, one for each round, or the reason why there are none.
    pub(crate) logs: std::result::Result<Vec<f64>, String>,
    pub(crate) pairs: Vec<usize>,
    pub(crate) connectivity: Option<String>,
}

/// Checks a finding that is about one connectivity, or about none.
pub(crate) fn checked(finding: Finding, drafts: Vec<Draft>, smoke: bool) -> CheckedFinding {
    let cases = speak(&finding, drafts, smoke);
    CheckedFinding { verdict: verdict(&cases), finding, cases, connectivities: 1 }
}

/// The sources of a case's figures: the published tables, and the pairs of cells that were measured at both levels.
struct Places<'a> {
    published: &'a [PublishedTable],
    pairs: &'a [Pair],
}

impl Places<'_> {
    /// Returns the cases that the pair of cells with index `at` adds to `finding`. This finding is about every cell that was
    /// measured at both levels.
    fn everywhere(&self, finding: &Finding, at: usize) -> Vec<Draft> {
        let pair = &self.pairs[at];
        let unit = pair.cell.workload.unit();
        let row = metric(&finding.row, unit);
        // If neither cell has figures of this row, the pair adds no case: for example, the row is about a router and the path has
        // none.
        if !pair.rows.iter().any(|rows| rows.contains_key(&row)) {
            return Vec::new();
        }
        let one = |level: &Option<usize>| Draft {
            name: place(&pair.cell, *level),
            published: pair.printed(self.published, &row).map(|printed| printed[level.unwrap_or(LEVELS.len())]),
            logs: values(pair, &finding.row, *level).map(|values| values.values().map(|value| value.ln()).collect()),
            pairs: vec![at],
            connectivity: connectivity_of(&pair.cell).map(str::to_owned),
        };
        finding.levels().iter().map(one).collect()
    }

    fn draft(&self, case: &Case) -> Draft {
        let terms = || [Some(&case.top), case.bottom.as_ref()].into_iter().flatten();
        let mut pairs: Vec<usize> = terms().filter_map(|term| self.at(term)).collect();
        pairs.dedup();
        let table = self.published.iter().find(|table| table.id == case.top.table);
        let connectivity = table.map(|table| table.connectivity().to_owned());
        Draft {
            name: case.name(),
            published: case.published(self.published),
            logs: self.logs(case),
            pairs,
            connectivity,
        }
    }

    fn logs(&self, case: &Case) -> std::result::Result<Vec<f64>, String> {
        let measured = |term: &Term| {
            let at = self.at(term).ok_or_else(|| format!("this run did not measure table {}", term.table))?;
            values(&self.pairs[at], &term.row, term.level)
        };
        let top = measured(&case.top)?;
        let Some(bottom) = &case.bottom else { return Ok(top.values().map(|value| value.ln()).collect()) };
        let bottom = measured(bottom)?;
        let quotient = |(slot, top): (&Slot, &f64)| Some((top / bottom.get(slot)?).ln());
        let logs: Vec<f64> = top.iter().filter_map(quotient).collect();
        if logs.is_empty() { Err("no round contains all cells of this case".to_owned()) } else { Ok(logs) }
    }

    /// Returns the index of the pair of cells for the published table and the number of clients of `term`.
    fn at(&self, term: &Term) -> Option<usize> {
        of_table(self.pairs, self.published, &term.table, term.clients)
    }
}

/// Returns the name of a case that is about a cell. `level` is `None` if the case is a ratio of both levels, otherwise the index
/// of the case's level in [`LEVELS`].
fn place(cell: &Cell, level: Option<usize>) -> String {
    let mtu = cell.mtu.map(|mtu| format!(" mtu {mtu}")).unwrap_or_default();
    let level = level.map(|level| format!(" {}", LEVELS[level])).unwrap_or_default();
    format!("{} {}{mtu} x{}{level}", cell.path, cell.workload, cell.clients)
}

/// Returns the figures of a row, one for each round. If `level` is `None`, a figure is the ratio of both levels; otherwise it is
/// the value at the level with this index. If there are no figures, returns the reason as an error.
fn values(pair: &Pair, row: &str, level: Option<usize>) -> std::result::Result<BTreeMap<Slot, f64>, String> {
    if let Some(obstacle) = &pair.obstacle {
        return Err(format!("{NOT_COMPARABLE}{obstacle}"));
    }
    let name = metric(row, pair.cell.workload.unit());
    if pair.rows.iter().any(|rows| !rows.contains_key(&name)) {
        let any = pair.rows.iter().any(|rows| !rows.is_empty());
        return Err(if any {
            format!("on path {}, siga cannot measure {row} separately", pair.cell.path)
        } else {
            "no trial without flaws".into()
        });
    }
    let values = match level {
        None => pair.ratios(&name),
        Some(level) => pair.rows[level].get(&name).filter(|values| values.values().all(|value| *value > 0.0)).cloned(),
    };
    values.ok_or_else(|| format!("{row} is zero in a trial, or no round has both levels"))
}

/// Returns the p value of the hypothesis that a case's true figure equals the bound that its estimate `value` violates. Returns 1
/// if the estimate lies within the bounds. The p is that of a comparison with the bound in place of 1.
fn p(finding: &Finding, logs: &[f64], value: f64) -> f64 {
    let broken = finding.above.filter(|above| value <= *above).or(finding.below.filter(|below| value >= *below));
    let p = broken.and_then(|bound| {
        let shifted: Vec<f64> = logs.iter().map(|log| log - bound.ln()).collect();
        Some(Judgement::paired(&shifted)?.p)
    });
    p.unwrap_or(1.0)
}

/// Decides the stance of each case of a finding. The p values are adjusted for the number of measured cases of the finding.
fn speak(finding: &Finding, drafts: Vec<Draft>, smoke: bool) -> Vec<CheckedCase> {
    let located: Vec<(Draft, Option<Location>)> = drafts
        .into_iter()
        .map(|draft| {
            let location = draft.logs.as_deref().ok().and_then(Location::of);
            (draft, location)
        })
        .collect();
    let tests: Vec<f64> = located
        .iter()
        .filter_map(|(draft, location)| Some(p(finding, draft.logs.as_deref().ok()?, location.as_ref()?.value)))
        .collect();
    let mut adjusted = benjamini_hochberg(&tests).into_iter();
    let one = |(draft, measured): (Draft, Option<Location>)| {
        let speaks = match (&draft.logs, measured) {
            (Err(reason), _) => Stance::Neither { reason: reason.clone() },
            (Ok(_), None) => Stance::Neither { reason: "its values are not finite numbers".into() },
            (Ok(_), Some(location)) => {
                let p = adjusted.next().unwrap_or(1.0);
                if smoke {
                    open("a smoke run carries no verdict")
                } else {
                    direction(finding, location, p, tests.len())
                }
            }
        };
        let Draft { name, published, pairs, connectivity, .. } = draft;
        CheckedCase { name, published, measured, speaks, pairs, connectivity }
    };
    located.into_iter().map(one).collect()
}

fn open(reason: impl Into<String>) -> Stance {
    Stance::Neither { reason: reason.into() }
}

fn direction(finding: &Finding, location: Location, p_adjusted: f64, tests: usize) -> Stance {
    let trials = location.trials;
    let Some((low, high)) = location.interval else {
        return open(format!("too few trials for an interval: {trials}"));
    };
    let within = finding.allows(low) && finding.allows(high);
    let outside = finding.above.is_some_and(|above| high <= above) || finding.below.is_some_and(|below| low >= below);
    match (within, outside) {
        (true, _) => Stance::For,
        (false, false) => open("the interval crosses a bound"),
        (false, true) if p_adjusted < LEVEL => Stance::Against,
        (false, true) => open(format!(
            "the interval lies outside the bounds, but {trials} trials are too few for \
            significance among {tests} cases"
        )),
    }
}
