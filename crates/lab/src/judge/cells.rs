//! From the trials of two cells to their rows, and from all rows of a table to their verdicts.
//!
//! Only sound trials count. A figure that is not above zero has no ratio: the metric is left out, and told if it is one
//! that every trial should have. CPU time of components is compared only where one method has charged it on both sides.

use super::figures::Figures;
use super::{Comparison, Form, Metric, Row, Subject, Verdict, noise, settings};
use crate::account::Method;
use crate::environment::differences;
use crate::error::Result;
use crate::plan::Cell;
use crate::record::TrialRecord;
use crate::stats::adjust::benjamini_hochberg;
use crate::stats::decide::Judgement;
use crate::stats::lower_median;
use crate::store::Run;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The figures of a cell's trials by metric: round and value, in the order of the rounds.
pub(super) type Values = BTreeMap<Metric, Vec<(u32, f64)>>;

/// A noise floor above this part of the ratio is worth a word.
const NOISY: f64 = 0.2;

/// A run, its trials by cell, and what the comparison calls it.
struct Side<'a> {
    run: &'a Run,
    name: &'a str,
    trials: HashMap<&'a Cell, Vec<&'a TrialRecord>>,
    figures: Figures<'a>,
}

impl<'a> Side<'a> {
    fn new((run, name): (&'a Run, &'a str)) -> Self {
        let mut trials: HashMap<&Cell, Vec<&TrialRecord>> = HashMap::new();
        for trial in &run.trials {
            trials.entry(&trial.cell).or_default().push(trial);
        }
        Self { run, name, trials, figures: Figures::new(run, run.plan.accounting) }
    }

    fn all(&self, cell: &Cell) -> &[&'a TrialRecord] {
        self.trials.get(cell).map(Vec::as_slice).unwrap_or_default()
    }

    /// What the sound trials of a cell gave, and the methods that charged their CPU time.
    fn figures(&self, cell: &Cell) -> Result<(Values, Vec<Method>)> {
        let (mut values, mut methods) = (Values::new(), Vec::new());
        for trial in self.all(cell).iter().filter(|trial| trial.flags.is_empty()) {
            let (method, figures) = self.figures.of(trial)?;
            if !methods.contains(&method) {
                methods.push(method);
            }
            for (metric, value) in figures {
                values.entry(metric).or_default().push((trial.round, value));
            }
        }
        values.values_mut().for_each(|values| values.sort_by_key(|(round, _)| *round));
        Ok((values, methods))
    }

    /// The same path at a level of another name that sets the same: what differs between the two is noise.
    fn identical(&self, cell: &Cell) -> Result<Option<Values>> {
        let levels = &self.run.levels;
        let Some(own) = levels.iter().find(|level| level.name == cell.level) else { return Ok(None) };
        let twins = levels.iter().filter(|level| level.name != own.name && level.sets_the_same(own));
        let twins = twins.map(|level| Cell { level: level.name.clone(), ..cell.clone() });
        let Some(twin) = twins.into_iter().find(|twin| !self.all(twin).is_empty()) else { return Ok(None) };
        Ok(Some(self.figures(&twin)?.0))
    }

    /// Why a cell has no sound trial.
    fn unsound(&self, cell: &Cell) -> String {
        let flag = self.all(cell).first().and_then(|trial| trial.flags.first());
        format!("no sound trial in {}: {}", self.name, flag.map_or("nothing measured", String::as_str))
    }
}

/// A row whose verdict takes the whole table.
struct Draft {
    row: Row,
    judgement: Judgement,
    /// Why its cells are not comparable.
    obstacle: Option<String>,
}

/// Judges every metric of every pair of cells.
pub(super) fn compare(
    subject: Subject,
    base: (&Run, &str),
    new: (&Run, &str),
    pairs: &[(Cell, Cell)],
    skipped: Vec<(Cell, String)>,
) -> Result<Comparison> {
    let (base, new) = (Side::new(base), Side::new(new));
    let environment = match subject {
        Subject::Runs => differences(&base.run.environment, &new.run.environment),
        Subject::Levels | Subject::Paths => Vec::new(),
    };
    let hosts: Vec<String> = environment.iter().filter(|one| one.matters).map(ToString::to_string).collect();
    let mut table = Table { subject, drafts: Vec::new(), skipped };
    for (own, other) in pairs {
        let obstacle = match hosts.as_slice() {
            [] => settings::obstacle((base.run, own), (new.run, other), subject),
            _ => Some(hosts.join("; ")),
        };
        table.add((&base, own), (&new, other), obstacle.as_deref())?;
    }
    let smoke = base.run.plan.smoke || new.run.plan.smoke;
    let rows = verdicts(table.drafts, smoke);
    Ok(Comparison {
        base: base.name.to_owned(),
        new: new.name.to_owned(),
        subject,
        form: if subject == Subject::Runs { Form::TwoSample } else { Form::Paired },
        environment,
        cautions: cautions(&base, &new, smoke, &rows),
        rows,
        skipped: table.skipped,
    })
}

struct Table {
    subject: Subject,
    drafts: Vec<Draft>,
    skipped: Vec<(Cell, String)>,
}

impl Table {
    /// Adds the rows of one pair of cells.
    fn add(
        &mut self,
        (base, own): (&Side<'_>, &Cell),
        (new, other): (&Side<'_>, &Cell),
        obstacle: Option<&str>,
    ) -> Result<()> {
        let ((values, methods), (others, other_methods)) = (base.figures(own)?, new.figures(other)?);
        for (side, cell, values) in [(base, own, &values), (new, other, &others)] {
            if values.is_empty() {
                self.skipped.push((cell.clone(), side.unsound(cell)));
                return Ok(());
            }
        }
        // By subtraction, the ends of a path with a router are those of the path without it.
        let derived =
            self.subject == Subject::Paths && methods.iter().chain(&other_methods).any(|m| *m == Method::Subtract);
        let one_method = methods.len() == 1 && methods == other_methods;
        if !one_method {
            self.skipped.push((other.clone(), "CPU time of components, charged by different methods".into()));
        }
        let twin = base.identical(own)?;
        for &metric in Metric::ALL.iter().filter(|metric| !metric.is_of_component() || (one_method && !derived)) {
            let (own_values, new_values) = match self.subject {
                Subject::Runs => (alone(&values, metric), alone(&others, metric)),
                Subject::Levels | Subject::Paths => noise::side_by_side(&values, &others, metric),
            };
            if let Some(value) = own_values.iter().chain(&new_values).find(|value| **value <= 0.0) {
                if !metric.is_of_component() {
                    self.skipped.push((other.clone(), format!("{}: a trial has {value}", metric.name())));
                }
                continue;
            }
            let Some(judgement) = self.judge(&own_values, &new_values) else { continue };
            let mut row = row((own, &own_values), (other, &new_values), metric, &judgement);
            row.noise_floor = noise::floor(&values, twin.as_ref(), metric);
            self.drafts.push(Draft { row, judgement, obstacle: obstacle.map(str::to_owned) });
        }
        Ok(())
    }

    fn judge(&self, base: &[f64], new: &[f64]) -> Option<Judgement> {
        let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
        match self.subject {
            Subject::Runs => Judgement::two_samples(&logs(base), &logs(new)),
            Subject::Levels | Subject::Paths => Judgement::paired(&noise::log_ratios(base, new)),
        }
    }
}

fn alone(values: &Values, metric: Metric) -> Vec<f64> {
    values.get(&metric).into_iter().flatten().map(|(_, value)| *value).collect()
}

fn row(base: (&Cell, &[f64]), new: (&Cell, &[f64]), metric: Metric, judgement: &Judgement) -> Row {
    let median = |values: &[f64]| lower_median(values).map_or(f64::NAN, |at| values[at]);
    Row {
        base: base.0.clone(),
        new: new.0.clone(),
        metric,
        trials: (base.1.len(), new.1.len()),
        values: (median(base.1), median(new.1)),
        ratio: judgement.ratio,
        low: judgement.low,
        high: judgement.high,
        p: judgement.p,
        p_adjusted: None,
        noise_floor: None,
        verdict: Verdict::Inconclusive { trials: None },
    }
}

/// The rows with p adjusted over all of them that can be compared, and what each says.
fn verdicts(drafts: Vec<Draft>, smoke: bool) -> Vec<Row> {
    let p: Vec<f64> = drafts.iter().filter(|draft| draft.obstacle.is_none()).map(|draft| draft.row.p).collect();
    let tests = p.len();
    let mut adjusted = benjamini_hochberg(&p).into_iter();
    let judged = |Draft { mut row, judgement, obstacle }: Draft| {
        row.verdict = match obstacle {
            Some(reason) => Verdict::NotComparable { reason },
            None => {
                row.p_adjusted = adjusted.next();
                let p = row.p_adjusted.filter(|_| !smoke);
                p.map_or(Verdict::Inconclusive { trials: None }, |p| {
                    judgement.verdict(p, tests, row.metric.more_is_better())
                })
            }
        };
        row
    };
    drafts.into_iter().map(judged).collect()
}

/// What holds for the table as a whole.
fn cautions(base: &Side<'_>, new: &Side<'_>, smoke: bool, rows: &[Row]) -> Vec<String> {
    let mut cautions = Vec::new();
    if smoke {
        cautions.push("a smoke run shows that everything works; its figures carry no verdict".to_owned());
    }
    for side in [base, new] {
        let place = side.run.directory.display();
        if !side.run.ended {
            let trials = side.run.trials.len();
            cautions.push(format!("{place} has not ended; this is of the {trials} trials that are there"));
        }
        cautions.extend(side.run.damage.iter().map(|damage| format!("{place} is damaged: {damage}")));
    }
    let floors = rows.iter().filter(|row| row.metric == Metric::Rate).filter_map(|row| row.noise_floor);
    let worst = floors.fold(0.0, f64::max);
    if worst > NOISY {
        cautions.push(format!(
            "rates of two identical levels would differ by up to {:.0}% here: something else uses the CPUs, or the \
             scheduler moves the ends about (`siga doctor` looks; --client-cpus and --server-cpus hold them)",
            100.0 * worst
        ));
    }
    // Within one run both sides say the same.
    let mut told = HashSet::new();
    cautions.retain(|caution| told.insert(caution.clone()));
    cautions
}
