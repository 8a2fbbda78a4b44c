//! From the trials of two cells to their rows, and from all rows of a table to their verdicts.
//!
//! Only sound trials count. A metric that a trial does not have, or that is not above zero, has no ratio: it is left out,
//! and told if it is one that every trial should have.

use super::{Comparison, Form, Metric, Row, Subject, Verdict, settings, value};
use crate::account::Method;
use crate::environment::differences;
use crate::error::Result;
use crate::histogram;
use crate::level;
use crate::plan::Cell;
use crate::record::TrialRecord;
use crate::stats::{adjust, decide, lower_median};
use crate::store::Run;
use crate::summary;
use std::collections::{BTreeMap, HashMap};

/// A run, its trials by cell, and what the comparison calls it.
pub(super) struct Side<'a> {
    run: &'a Run,
    name: &'a str,
    trials: HashMap<&'a Cell, Vec<&'a TrialRecord>>,
}

impl<'a> Side<'a> {
    pub(super) fn new(run: &'a Run, name: &'a str) -> Self {
        let mut trials: HashMap<&Cell, Vec<&TrialRecord>> = HashMap::new();
        for trial in &run.trials {
            trials.entry(&trial.cell).or_default().push(trial);
        }
        Self { run, name, trials }
    }

    /// The sound trials of a cell, in the order of their rounds.
    fn sound(&self, cell: &Cell) -> Vec<&'a TrialRecord> {
        let all = self.trials.get(cell).map(Vec::as_slice).unwrap_or_default();
        let mut sound: Vec<_> = all.iter().copied().filter(|trial| trial.flags.is_empty()).collect();
        sound.sort_by_key(|trial| trial.round);
        sound
    }

    /// Why a cell has no sound trial.
    fn unsound(&self, cell: &Cell) -> String {
        let first = self.trials.get(cell).and_then(|trials| trials.first()?.flags.first());
        let flag = first.map(|flag| format!(": {flag}")).unwrap_or_default();
        format!("no sound trial of {cell} in {}{flag}", self.name)
    }
}

/// What the sound trials of a cell gave: by metric, the round and the figure.
struct Figures {
    methods: Vec<Method>,
    values: BTreeMap<Metric, Vec<(u32, f64)>>,
}

impl Figures {
    fn of(side: &Side<'_>, trials: &[&TrialRecord]) -> Result<Self> {
        let mut figures = Self { methods: Vec::new(), values: BTreeMap::new() };
        for trial in trials {
            let histogram = histogram::decode(&trial.latency)
                .map_err(|error| error.at(format!("{}: {}", side.run.directory.display(), trial.cell)))?;
            let latency = histogram::percentiles(&histogram);
            let cpu = summary::cpu_of(side.run, trial, side.run.plan.accounting);
            if !figures.methods.contains(&cpu.method) {
                figures.methods.push(cpu.method);
            }
            for &metric in Metric::ALL {
                if let Some(value) = value(side.run, trial, &cpu, &latency, metric) {
                    figures.values.entry(metric).or_default().push((trial.round, value));
                }
            }
        }
        Ok(figures)
    }

    fn of_metric(&self, metric: Metric) -> &[(u32, f64)] {
        self.values.get(&metric).map(Vec::as_slice).unwrap_or_default()
    }
}

/// A row without its verdict, which takes the whole table.
struct Draft {
    row: Row,
    judgement: decide::Judgement,
    /// Why its cells are not comparable.
    obstacle: Option<String>,
}

/// Judges every metric of every pair of cells.
pub(super) fn compare(
    subject: Subject,
    base: (&Run, &str),
    new: (&Run, &str),
    pairs: &[(Cell, Cell)],
    mut skipped: Vec<(Cell, String)>,
) -> Result<Comparison> {
    let (base, new) = (Side::new(base.0, base.1), Side::new(new.0, new.1));
    let form = if subject == Subject::Runs { Form::TwoSample } else { Form::Paired };
    let environment = match subject {
        Subject::Runs => differences(&base.run.environment, &new.run.environment),
        Subject::Levels | Subject::Paths => Vec::new(),
    };
    let hosts: Vec<String> = environment.iter().filter(|one| one.matters).map(ToString::to_string).collect();
    let hosts = (!hosts.is_empty()).then(|| hosts.join("; "));
    let mut drafts = Vec::new();
    for (own, other) in pairs {
        let obstacle = hosts.clone().or_else(|| settings::obstacle((base.run, own), (new.run, other), subject));
        draft(&base, &new, (own, other), form, obstacle, &mut drafts, &mut skipped)?;
    }
    let cautions = cautions(subject, &base, &new);
    let smoke = base.run.plan.smoke || new.run.plan.smoke;
    Ok(Comparison {
        base: base.name.to_owned(),
        new: new.name.to_owned(),
        subject,
        form,
        environment,
        rows: verdicts(drafts, smoke),
        skipped,
        cautions,
    })
}

/// Adds the rows of one pair of cells.
fn draft(
    base: &Side<'_>,
    new: &Side<'_>,
    (own, other): (&Cell, &Cell),
    form: Form,
    obstacle: Option<String>,
    drafts: &mut Vec<Draft>,
    skipped: &mut Vec<(Cell, String)>,
) -> Result<()> {
    let (own_trials, other_trials) = (base.sound(own), new.sound(other));
    for (side, cell, trials) in [(base, own, &own_trials), (new, other, &other_trials)] {
        if trials.is_empty() {
            skipped.push((cell.clone(), side.unsound(cell)));
            return Ok(());
        }
    }
    let (figures, others) = (Figures::of(base, &own_trials)?, Figures::of(new, &other_trials)?);
    let same_method = figures.methods == others.methods && figures.methods.len() == 1;
    if !same_method {
        skipped.push((other.clone(), "CPU of components: charged by different methods".to_owned()));
    }
    let identical = identical(base, own, &figures)?;
    for &metric in Metric::ALL {
        let (values, new_values) = match form {
            Form::Paired => side_by_side(figures.of_metric(metric), others.of_metric(metric)),
            Form::TwoSample => (alone(figures.of_metric(metric)), alone(others.of_metric(metric))),
        };
        let nothing = values.is_empty() || new_values.is_empty();
        if nothing || (metric.is_of_component() && !same_method) {
            continue;
        }
        if let Some(value) = values.iter().chain(&new_values).find(|value| **value <= 0.0) {
            if !metric.is_of_component() {
                skipped.push((other.clone(), format!("{}: a trial has {value}, which has no ratio", metric.name())));
            }
            continue;
        }
        let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
        let (own_logs, new_logs) = (logs(&values), logs(&new_values));
        let judgement = match form {
            Form::Paired => {
                let differences: Vec<f64> = own_logs.iter().zip(&new_logs).map(|(own, new)| new - own).collect();
                decide::paired(&differences)
            }
            Form::TwoSample => decide::two_sample(&own_logs, &new_logs),
        };
        let Some(judgement) = judgement else { continue };
        let noise_floor = noise_floor(&figures, identical.as_ref(), metric, values.len().min(new_values.len()));
        let median = |values: &[f64]| lower_median(values).map_or(f64::NAN, |at| values[at]);
        let row = Row {
            base: own.clone(),
            new: other.clone(),
            metric,
            trials: (values.len(), new_values.len()),
            values: (median(&values), median(&new_values)),
            ratio: judgement.ratio,
            low: judgement.low,
            high: judgement.high,
            p: judgement.p,
            p_adjusted: None,
            noise_floor,
            verdict: Verdict::Inconclusive { trials: None },
        };
        drafts.push(Draft { row, judgement, obstacle: obstacle.clone() });
    }
    Ok(())
}
