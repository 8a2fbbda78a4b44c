//! Writes the long form: one CSV record for each run, trial and metric. If a trial has no value for a metric, there is no record.

use super::nothing;
use crate::disturbance::{Facts, facts};
use crate::output::{Output, cannot};
use siga_model::error::Result;
use siga_model::text::field;
use siga_plan::accounting::AccountingMethod;
use siga_results::disturbance::Disturbance;
use siga_results::judge::Figures;
use siga_results::judge::Metric;
use siga_results::record::TrialRecord;
use siga_results::store::Run;

/// Names of the columns. A later version of siga may add columns at the end, but does not change the existing ones.
const HEAD: [&str; 30] = [
    "run",
    "plan",
    "smoke",
    "at",
    "boot",
    "kernel",
    "cpu_model",
    "siga",
    "path",
    "workload",
    "mtu",
    "clients",
    "level",
    "io",
    "round",
    "sound",
    "flags",
    "metric",
    "unit",
    "value",
    "method",
    "emulated",
    "steal",
    "others",
    "run_queue",
    "other_runs",
    "probe_factor",
    "fairness",
    "causes",
    "left_out",
];

/// Writes the records of runs to an output, one run after another.
pub(super) struct Writer<'a, 'b> {
    method: Option<AccountingMethod>,
    name: String,
    csv: csv::Writer<&'a mut Output<'b>>,
    records: usize,
}

impl<'a, 'b> Writer<'a, 'b> {
    pub(super) fn new(method: Option<AccountingMethod>, output: &'a mut Output<'b>) -> Self {
        let name = output.name().to_owned();
        Self { method, name, csv: csv::Writer::from_writer(output), records: 0 }
    }

    pub(super) fn add(&mut self, run: &Run, name: &str) -> Result<()> {
        let figures = Figures::new(run, self.method);
        let host = Host::new(run, name);
        let emulated = run.environment.is_emulated().to_string();
        let disturbance = Disturbance::of(&run.trials);
        for trial in &run.trials {
            let (method, values) = figures.of(trial)?;
            let before = host.before(trial);
            let beside = beside(trial, &disturbance);
            for (metric, value) in values {
                if self.records == 0 {
                    self.csv.write_record(HEAD).map_err(|error| cannot(&self.name, error))?;
                }
                self.csv
                    .write_record(
                        before.iter().chain(&after(trial, metric, value, method)).chain([&emulated]).chain(&beside),
                    )
                    .map_err(|error| cannot(&self.name, error))?;
                self.records += 1;
            }
        }
        Ok(())
    }

    pub(super) fn end(mut self) -> Result<()> {
        if self.records == 0 {
            return Err(nothing());
        }
        self.csv.flush().map_err(|error| cannot(&self.name, error))
    }
}

/// The values that are the same in all records of a run: those of the first eight columns without `at`, in the order of the
/// columns.
struct Host([String; 7]);

impl Host {
    fn new(run: &Run, name: &str) -> Self {
        let environment = &run.environment;
        let known = |known: &Option<String>| field(known.as_deref().unwrap_or_default());
        Self([
            name.to_owned(),
            field(&run.plan.name),
            run.plan.smoke.to_string(),
            known(&environment.host.boot_id),
            known(&environment.kernel.release),
            known(&environment.cpu.model),
            field(&environment.program.version),
        ])
    }

    /// Returns the values of the columns from `run` to `flags`.
    fn before(&self, trial: &TrialRecord) -> Vec<String> {
        let [run, plan, smoke, boot, kernel, cpu_model, siga] = self.0.clone();
        let cell = &trial.cell;
        vec![
            run,
            plan,
            smoke,
            field(&trial.at),
            boot,
            kernel,
            cpu_model,
            siga,
            field(&cell.path),
            cell.workload.to_string(),
            cell.mtu.map(|mtu| mtu.to_string()).unwrap_or_default(),
            cell.clients.to_string(),
            field(&cell.level),
            field(&trial.io),
            trial.round.to_string(),
            trial.flags.is_empty().to_string(),
            field(&trial.flags.join("; ")),
        ]
    }
}

/// Returns the values of the columns from `steal` to `left_out`. They are empty in records of earlier versions.
fn beside(trial: &TrialRecord, disturbance: &Disturbance) -> [String; 8] {
    let text = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let facts = facts(trial, disturbance);
    let of = |value: fn(&Facts) -> Option<f64>| text(facts.as_ref().and_then(value));
    [
        of(|facts| Some(facts.steal)),
        of(|facts| facts.others),
        of(|facts| facts.run_queue),
        of(|facts| Some(f64::from(facts.other_runs))),
        of(|facts| facts.probe_factor),
        text(trial.fairness),
        facts.as_ref().map(|facts| facts.causes.join(" ")).unwrap_or_default(),
        facts.as_ref().map(|facts| facts.left_out.to_string()).unwrap_or_default(),
    ]
}

/// Returns the values of the columns from `metric` to `method`.
fn after(trial: &TrialRecord, metric: Metric, value: f64, method: AccountingMethod) -> [String; 4] {
    let is_cpu = metric.part().is_some() || metric == Metric::Itr;
    let method = if is_cpu { method.to_string() } else { String::new() };
    let workload = trial.cell.workload;
    [metric.name().to_owned(), metric.unit(workload).to_owned(), (value * metric.scale(workload)).to_string(), method]
}
