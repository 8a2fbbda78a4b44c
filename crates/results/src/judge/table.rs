//! Computes the rows of a comparison's table from the trials of each pair of cells, then the verdicts from all rows of the table.
//!
//! - Only sound trials (those without a flaw) are compared. If clearly more trials of one side than of the other have flaws, the
//!   cells are not comparable.
//! - Rounds that the host disturbed are left out on both sides. If too few rounds remain, the cells are not comparable.
//! - Figures of an emulated machine are not comparable with any others, because they say nothing about a real machine.
//! - If a value of a metric is zero or negative, no ratio can be computed, so the metric is left out. For a main metric (rate,
//!   latency, CPU time of system or router), a message gives the reason.
//! - Figures that depend on the accounting method are compared only if both sides used the same method.

use super::comparison::{Comparison, Form, Row, Subject, Verdict};
use super::decide::Judgement;
use super::figures::Figures;
use super::mean::Means;
use super::metric::{Metric, Mode, Part};
use super::stages::Adjusted;
use super::values::{Values, log_ratios, side_by_side};
use super::vary::Vary;
use super::{noise, settings, stages};
use crate::disturbance::Disturbance;
use crate::environment::{Difference, EMULATED, EMULATED_FIGURES, differences};
use crate::stats::adjust::trials_least;
use crate::stats::signed_rank;
use crate::store::Run;
use crate::summary;
use siga_model::error::Result;
use siga_plan::accounting::AccountingMethod;
use siga_plan::command::Command;
use siga_plan::level::Level;
use siga_plan::matrix::Cell;
use siga_plan::route::Route;
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

/// Maximum noise floor of rates for which no caution is shown, as a fraction of the ratio.
const NOISY: f64 = 0.2;
/// Maximum difference between the two sides' fractions of flawed trials. Above it, the remaining trials are not a fair sample.
const LOST_MORE_MAX: f64 = 0.1;

/// One side of a comparison: a run, and the name of the side (the run, a level or a path).
struct Side<'a> {
    run: &'a Run,
    name: &'a str,
    figures: Figures<'a>,
}

/// The figures of a cell's sound trials.
struct Sample {
    values: Values,
    /// The accounting methods with which the CPU times of these trials were computed.
    methods: Vec<AccountingMethod>,
    /// Number of trials that were left out because of flaws.
    flawed: usize,
    count: usize,
}

impl<'a> Side<'a> {
    fn new((run, name): (&'a Run, &'a str)) -> Self {
        Self { run, name, figures: Figures::new(run, run.plan.accounting) }
    }

    fn sample(&self, cell: &Cell) -> Result<Sample> {
        let trials = self.figures.rounds().of(cell);
        let (mut values, mut methods) = (Values::new(), Vec::new());
        for (slot, trial) in &trials.sound {
            let (method, figures) = self.figures.of(trial)?;
            if !methods.contains(&method) {
                methods.push(method);
            }
            for (metric, value) in figures {
                values.entry(metric).or_default().insert(*slot, value);
            }
        }
        Ok(Sample { values, methods, flawed: trials.flawed.len(), count: trials.count() })
    }

    fn level(&self, cell: &Cell) -> Option<&'a Level> {
        self.run.levels.iter().find(|level| level.name == cell.level)
    }

    /// Returns the figures of the cell's twin: the same cell at another level with the same settings. Twin and cell differ by
    /// noise alone. `other`, the cell that is compared, is never the twin.
    fn twin(&self, cell: &Cell, other: &Cell) -> Result<Option<Values>> {
        let Some(own) = self.level(cell) else { return Ok(None) };
        let twins = self.run.levels.iter().filter(|level| level.name != own.name && level.sets_the_same(own));
        let mut twins = twins.map(|level| Cell { level: level.name.clone(), ..cell.clone() });
        let measured = |twin: &Cell| twin != other && !self.figures.rounds().of(twin).sound.is_empty();
        twins.find(measured).map(|twin| Ok(self.sample(&twin)?.values)).transpose()
    }

    /// Returns the reason why disturbed rounds allow no verdict on a cell.
    fn no_verdict(&self, cell: &Cell) -> Option<String> {
        self.figures.rounds().disturbance.no_verdict_of(cell)
    }

    /// Returns the first flaw of a cell's trials, or a note that there are no trials.
    fn flaw(&self, cell: &Cell) -> &str {
        let flawed = &self.figures.rounds().of(cell).flawed;
        flawed.first().and_then(|trial| trial.flags.first()).map_or("no trial", String::as_str)
    }
}

/// The reason why CPU times that depend on the accounting method cannot be compared.
struct Unlike {
    /// Whether the router's CPU time can be compared nevertheless.
    router: bool,
    reason: &'static str,
}

impl Unlike {
    fn holds_for(&self, metric: Metric) -> bool {
        metric.depends_on_method() && !(self.router && metric == Metric::Cpu(Part::Router, Mode::All))
    }
}

/// A row without its verdict. The verdict is computed last, because it depends on all rows of the comparison.
struct Draft {
    row: Row,
    judgement: Judgement,
    /// The reason why the cells of the row are not comparable.
    obstacle: Option<String>,
}

/// Compares every metric of every pair of cells. The parts of the environment in `vary` differ on purpose.
pub(super) fn compare(
    (subject, vary): (Subject, &[Vary]),
    base: (&Run, &str),
    new: (&Run, &str),
    pairs: &[(Cell, Cell)],
    skipped: Vec<(Cell, String)>,
) -> Result<Comparison> {
    let (base, new) = (Side::new(base), Side::new(new));
    let (varied, environment): (Vec<_>, Vec<_>) = environment(subject, &base, &new)
        .into_iter()
        .partition(|difference| vary.iter().any(|vary| vary.covers(difference)));
    let hosts: Vec<String> = environment.iter().filter(|one| one.matters).map(ToString::to_string).collect();
    let emulated = [base.run, new.run].into_iter().any(|run| run.environment.is_emulated());
    let disturbed = disturbed(subject, &base, &new);
    let mut table = Table { subject, drafts: Vec::new(), means: Means::default(), skipped };
    for (own, other) in pairs {
        let obstacle = match hosts.as_slice() {
            _ if emulated => Some(EMULATED.to_owned()),
            differences => base.no_verdict(own).or_else(|| new.no_verdict(other)).or_else(|| match differences {
                [] => settings::obstacle((base.run, own), (new.run, other), subject),
                _ => Some(hosts.join("; ")),
            }),
        };
        table.add((&base, own), (&new, other), obstacle)?;
    }
    let smoke = base.run.plan.smoke || new.run.plan.smoke;
    let mut rows = verdicts(table.drafts, smoke);
    if emulated {
        rows.iter_mut().for_each(|row| (row.low, row.high, row.noise_floor) = (None, None, None));
    }
    let mut cautions = cautions(subject, &base, &new, (smoke, emulated), &rows);
    let missing = vary.iter().filter(|vary| !varied.iter().any(|difference| vary.covers(difference)));
    cautions.extend(missing.map(|vary| format!("{} is the same in both runs", vary.name())));
    Ok(Comparison {
        base: base.name.to_owned(),
        new: new.name.to_owned(),
        run: (subject != Subject::Runs).then(|| base.run.directory.clone()),
        subject,
        form: if subject == Subject::Runs { Form::TwoSample } else { Form::Paired },
        varied,
        environment,
        emulated,
        disturbed,
        cautions,
        means: if emulated { Vec::new() } else { table.means.of(subject, &rows) },
        rows,
        skipped: table.skipped,
    })
}

/// If two runs are compared, returns the differences between their environments and between their levels of the same name.
fn environment(subject: Subject, base: &Side<'_>, new: &Side<'_>) -> Vec<Difference> {
    if subject != Subject::Runs {
        return Vec::new();
    }
    let mut all = differences(&base.run.environment, &new.run.environment);
    let at = all.iter().take_while(|difference| difference.matters).count();
    let own = settings::differences(base.run, new.run);
    all.splice(at..at, own);
    all
}

/// Returns the runs of both sides that have disturbed rounds.
fn disturbed(subject: Subject, base: &Side<'_>, new: &Side<'_>) -> Vec<(PathBuf, Disturbance)> {
    // Unless two runs are compared, both sides are in the same run.
    let sides = if subject == Subject::Runs { vec![base, new] } else { vec![base] };
    let of = |side: &Side<'_>| (side.run.directory.clone(), side.figures.rounds().disturbance.clone());
    sides.into_iter().map(of).filter(|(_, disturbance)| disturbance.disturbed() > 0).collect()
}

/// Returns the figures of a command that at least one side has, in the order of the plan; those per unit of work come last.
fn figures_of(command: Option<&Command>, base: &Values, new: &Values) -> Vec<Metric> {
    let all: BTreeSet<Metric> = base.keys().chain(new.keys()).copied().collect();
    let mut all: Vec<Metric> = all.into_iter().filter(|metric| matches!(metric, Metric::Figure(_))).collect();
    let figures = command.map(|command| command.figures.as_slice()).unwrap_or_default();
    all.sort_by_key(|metric| {
        let place = figures.iter().position(|figure| figure.name.as_str() == metric.name());
        place.unwrap_or(figures.len())
    });
    all
}

struct Table {
    subject: Subject,
    drafts: Vec<Draft>,
    means: Means,
    skipped: Vec<(Cell, String)>,
}

impl Table {
    /// Adds the rows of one pair of cells to the table.
    fn add(
        &mut self,
        (base, own): (&Side<'_>, &Cell),
        (new, other): (&Side<'_>, &Cell),
        obstacle: Option<String>,
    ) -> Result<()> {
        let (sample, others) = (base.sample(own)?, new.sample(other)?);
        for (side, cell, sample) in [(base, own, &sample), (new, other, &others)] {
            if sample.values.is_empty() {
                self.skipped
                    .push((cell.clone(), format!("no trial without flaws in {}: {}", side.name, side.flaw(cell))));
                return Ok(());
            }
        }
        let obstacle = obstacle.or_else(|| lost((base, own, &sample), (new, other, &others)));
        let unlike = self.unlike([base.level(own), new.level(other)], &sample.methods, &others.methods);
        if let Some(unlike) = &unlike {
            self.skipped.push((other.clone(), format!("CPU time of components: {}", unlike.reason)));
        }
        let twin = base.twin(own, other)?;
        let unfair = [(base, own), (new, other)].into_iter().find_map(|(side, cell)| {
            let sound = side.figures.rounds().of(cell).sound.values();
            summary::unfair(sound.copied()).map(|reason| format!("{}: {reason}", side.name))
        });
        for metric in Metric::judged().chain(figures_of(new.run.plan.command_of(other), &sample.values, &others.values))
        {
            if unlike.as_ref().is_some_and(|unlike| unlike.holds_for(metric)) {
                continue;
            }
            let Some((own_values, new_values)) = self.values(&sample.values, &others.values, metric, other) else {
                continue;
            };
            let Some(judgement) = self.judge(&own_values, &new_values) else { continue };
            let mut row = Row {
                base: own.clone(),
                new: other.clone(),
                metric,
                trials: (own_values.len(), new_values.len()),
                values: (location(&own_values), location(&own_values) * judgement.ratio),
                ratio: judgement.ratio,
                low: judgement.low,
                high: judgement.high,
                p: judgement.p,
                p_adjusted: None,
                noise_floor: None,
                verdict: Verdict::Inconclusive { trials: None },
            };
            let floors = (noise::of_rounds(&own_values), noise::of_rounds(&new_values));
            row.noise_floor = match (&twin, self.subject, floors) {
                (Some(twin), ..) => noise::of_twin(&sample.values, twin, metric),
                // The samples of two runs are unpaired, so the noise of both contributes to the floor.
                (None, Subject::Runs, (Some(own), Some(other))) => Some(own.hypot(other) / std::f64::consts::SQRT_2),
                (None, _, (own, _)) => own,
            };
            let unfair = if metric == Metric::Rate { unfair.clone() } else { None };
            let obstacle = obstacle.clone().or(unfair);
            if obstacle.is_none() {
                self.means.add(metric, &sample.values, &others.values);
            }
            self.drafts.push(Draft { row, judgement, obstacle });
        }
        Ok(())
    }

    /// Returns which figures cannot be compared because of their accounting methods; `None` if all can be compared.
    fn unlike(
        &self,
        levels: [Option<&Level>; 2],
        methods: &[AccountingMethod],
        others: &[AccountingMethod],
    ) -> Option<Unlike> {
        if methods.len() != 1 || methods != others {
            return Some(Unlike {
                router: false,
                reason: "the two sides divide the CPU time between components by different methods",
            });
        }
        if methods != [AccountingMethod::Subtract] {
            return None;
        }
        // On the path without the router, a level's packet filter or planted cost acts on another node than on the path with the
        // router. So the difference of the two paths is not the router's CPU time alone.
        let acts_elsewhere =
            levels.into_iter().flatten().any(|level| level.nftables.is_some() || level.plant.is_some());
        if self.subject == Subject::Paths || acts_elsewhere {
            let reason = "the CPU time is a difference to the path without a router, and this path also differs between the sides";
            return Some(Unlike { router: false, reason });
        }
        Some(Unlike {
            router: true,
            reason: "only the router's CPU time can be compared, because the times of client and server come from the \
                path without a router",
        })
    }

    /// Returns the values of both sides that are compared. Adds a message if a main metric cannot be compared.
    fn values(&mut self, base: &Values, new: &Values, metric: Metric, cell: &Cell) -> Option<(Vec<f64>, Vec<f64>)> {
        let all =
            |values: &Values| values.get(&metric).into_iter().flatten().map(|(_, value)| *value).collect::<Vec<_>>();
        let (own, other) = match self.subject {
            Subject::Runs => (all(base), all(new)),
            Subject::Levels | Subject::Paths | Subject::Mtus => side_by_side(base, new, metric),
        };
        let is_main = matches!(
            metric,
            Metric::Rate
                | Metric::P50
                | Metric::P99
                | Metric::Cpu(Part::Total | Part::Router, Mode::All)
                | Metric::Figure(_)
        );
        let mut skip = |reason: String| {
            if is_main {
                self.skipped.push((cell.clone(), format!("{}: {reason}", metric.name())));
            }
        };
        if own.is_empty() || other.is_empty() {
            if base.contains_key(&metric) || new.contains_key(&metric) {
                let unit = if let Metric::Figure(key) = metric { format!(" in {}", key.unit) } else { String::new() };
                skip(format!("no round contains this figure{unit} for both sides"));
            }
            return None;
        }
        let nothing = own.iter().chain(&other).filter(|value| **value <= 0.0).count();
        let is_there = own.iter().chain(&other).any(|value| *value != 0.0);
        if nothing > 0 {
            if is_there {
                skip(format!(
                    "the figure is zero in {nothing} of {} trials, so there is no ratio",
                    own.len() + other.len()
                ));
            }
            return None;
        }
        Some((own, other))
    }

    fn judge(&self, base: &[f64], new: &[f64]) -> Option<Judgement> {
        let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
        match self.subject {
            Subject::Runs => Judgement::two_samples(&logs(base), &logs(new)),
            Subject::Levels | Subject::Paths | Subject::Mtus => Judgement::paired(&log_ratios(base, new)),
        }
    }
}

/// If clearly more trials of one cell than of the other have flaws, returns this as the reason why the cells are not comparable:
/// the remaining trials are not a fair sample.
fn lost(base: (&Side<'_>, &Cell, &Sample), new: (&Side<'_>, &Cell, &Sample)) -> Option<String> {
    let share = |sample: &Sample| sample.flawed as f64 / sample.count.max(1) as f64;
    let more = share(new.2) - share(base.2);
    let (side, cell, sample) = if more > 0.0 { new } else { base };
    let clearly = more.abs() > LOST_MORE_MAX && sample.flawed > 1;
    let (flawed, count) = (sample.flawed, sample.count);
    clearly.then(|| format!("{flawed} of {count} trials of {} had a flaw: {}", side.name, side.flaw(cell)))
}

/// Returns the estimate of a figure over the compared trials of one side (Hodges-Lehmann, of logarithms).
fn location(values: &[f64]) -> f64 {
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    signed_rank::location(&logs, 0.95).map_or(f64::NAN, |location| location.value.exp())
}

/// Returns the rows with their verdicts. Each comparable row is one test; `stages` adjusts the p of all tests.
fn verdicts(drafts: Vec<Draft>, smoke: bool) -> Vec<Row> {
    let comparable = drafts.iter().filter(|draft| draft.obstacle.is_none());
    let tests: Vec<(Metric, f64)> = comparable.map(|draft| (draft.row.metric, draft.row.p)).collect();
    let mut adjusted = stages::adjusted(&tests).into_iter();
    let judged = |Draft { mut row, judgement, obstacle }: Draft| {
        let adjusted = if obstacle.is_none() { adjusted.next() } else { None };
        row.p_adjusted = adjusted.map(|adjusted| adjusted.p);
        row.verdict = match (obstacle, adjusted.filter(|_| !smoke)) {
            (Some(reason), _) => Verdict::NotComparable { reason },
            (None, None) => Verdict::Inconclusive { trials: None },
            (None, Some(Adjusted { p, tests })) => judgement.verdict(p, tests, row.metric.more_is_better()),
        };
        row
    };
    drafts.into_iter().map(judged).collect()
}

/// Returns the cautions about the comparison as a whole.
fn cautions(
    subject: Subject,
    base: &Side<'_>,
    new: &Side<'_>,
    (smoke, emulated): (bool, bool),
    rows: &[Row],
) -> Vec<String> {
    let mut cautions = Vec::new();
    if emulated {
        cautions.push(format!("{EMULATED}: {EMULATED_FIGURES}"));
    }
    if smoke {
        cautions.push("a smoke run only checks that everything works; its figures get no verdict".to_owned());
    }
    for side in [base, new] {
        let place = side.run.directory.display();
        if !side.run.ended {
            let trials = side.run.trials.len();
            cautions.push(format!("{place} is not complete; the figures are from its {trials} trials so far"));
        }
        cautions.extend(side.run.damage.iter().map(|damage| format!("{place} is damaged: {damage}")));
        cautions.extend(side.figures.rounds().disturbance.words().map(|words| format!("{place}: {words}")));
    }
    cautions.extend(flaws(rows, base, new));
    cautions.extend(unrecorded(subject, rows));
    cautions.extend(copies(subject, base.run, new.run));
    cautions.extend(few(subject, rows).filter(|_| !smoke && !emulated));
    cautions.extend(noisy(rows));
    // If both sides are in one run, both give the same cautions about the run, so duplicates are removed.
    let mut seen = HashSet::new();
    cautions.retain(|caution| seen.insert(caution.clone()));
    cautions
}

/// Returns a caution for each cell from which trials were left out.
fn flaws(rows: &[Row], base: &Side<'_>, new: &Side<'_>) -> Vec<String> {
    let rates = rows.iter().filter(|row| row.metric == Metric::Rate);
    let cells = rates.flat_map(|row| [(base, &row.base), (new, &row.new)]);
    let cautions = cells.filter_map(|(side, cell)| {
        let trials = side.figures.rounds().of(cell);
        let (flawed, count) = (trials.flawed.len(), trials.count());
        (flawed > 0)
            .then(|| format!("{cell}: {flawed} of {count} trials had a flaw and are left out: {}", side.flaw(cell)))
    });
    cautions.collect()
}

/// Returns a caution if two runs are compared whose paths join existing places (hosts, namespaces or containers). siga did not
/// build these places, so their settings are not recorded.
fn unrecorded(subject: Subject, rows: &[Row]) -> Option<String> {
    let is_place = |cell: &Cell| cell.path.parse().is_ok_and(|route| matches!(route, Route::Places(..)));
    let any = subject == Subject::Runs && rows.iter().any(|row| is_place(&row.new));
    any.then(|| {
        "siga does not record the settings of existing hosts, namespaces or containers, so a difference can also come from a \
        changed setting there"
            .into()
    })
}

/// Returns a caution if both runs contain the same trials: trials of the same cell with the same time. Imported trials have no time.
fn copies(subject: Subject, base: &Run, new: &Run) -> Option<String> {
    fn dated(run: &Run) -> impl Iterator<Item = (&Cell, &str)> {
        run.trials.iter().filter(|trial| !trial.at.is_empty()).map(|trial| (&trial.cell, trial.at.as_str()))
    }
    let own: HashSet<(&Cell, &str)> = dated(base).collect();
    let shared = dated(new).filter(|trial| own.contains(trial)).count();
    (subject == Subject::Runs && shared > 0)
        .then(|| format!("both runs contain the same {shared} trials, so one run is a copy of the other"))
}

/// Returns a caution if a main figure is undecided and there are too few pairs of trials for a difference in a single main figure.
/// A difference in several figures can be found with fewer trials.
fn few(subject: Subject, rows: &[Row]) -> Option<String> {
    let main: Vec<&Row> = rows.iter().filter(|row| row.metric.is_main() && row.p_adjusted.is_some()).collect();
    let open = main.iter().filter(|row| matches!(row.verdict, Verdict::Inconclusive { .. }));
    let (open, trials) = (open.clone().count(), open.map(|row| row.trials.0).max()?);
    let least = trials_least(main.len());
    (subject != Subject::Runs && trials < least).then(|| {
        let (all, figures) = (main.len(), if main.len() == 1 { "figure" } else { "figures" });
        format!(
            "with {trials} trials, siga cannot give a verdict on {open} of {all} main {figures}; at least {least} trials are \
                needed"
        )
    })
}

fn noisy(rows: &[Row]) -> Option<String> {
    let floors = rows.iter().filter(|row| row.metric == Metric::Rate).filter_map(|row| row.noise_floor);
    let worst = floors.fold(0.0, f64::max);
    (worst > NOISY).then(|| {
        format!(
            "on this host, the rates of two identical levels can differ by up to {:.0}%, because other programs use the CPUs, \
                or because the scheduler moves client and server between CPUs; `siga doctor` finds such programs, and \
                --client-cpus and --server-cpus fix the CPUs",
            100.0 * worst
        )
    })
}
