//! Writes a history of runs for Apache Otava, a program that finds changes in a series of measurements. Otava needs a CSV file
//! and a configuration file.
//!
//! The CSV has one row for each run and one column for each cell and metric. A value is the lower median over the cell's sound
//! trials (those without a flaw). Otava rejects empty fields and documents no other mark for a missing value. A column in which a
//! run has no value is therefore not in the configuration. It is in the CSV, because other programs can read it.

use super::nothing;
use crate::output::{OTAVA_CONFIG, Output, cannot};
use siga_model::error::{Error, Result};
use siga_model::text::field;
use siga_plan::accounting::AccountingMethod;
use siga_plan::matrix::Cell;
use siga_results::environment::EMULATED;
use siga_results::judge::Figures;
use siga_results::judge::Metric;
use siga_results::stats::lower_median;
use siga_results::store::Run;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

/// Names of the columns before the figures: the time, then the columns that Otava calls attributes.
const HEAD: [&str; 4] = ["time", "run", "siga", "kernel"];

/// A history of runs; each run is one row.
#[derive(Default)]
pub(super) struct History {
    columns: Vec<(Cell, Metric)>,
    index: HashMap<(Cell, Metric), usize>,
    rows: Vec<Row>,
    smoke: usize,
    notes: Vec<String>,
}

/// The row of one run.
struct Row {
    /// The time at which the first trial of the run was measured.
    begun: SystemTime,
    /// The values of the columns in `HEAD`.
    fields: [String; 4],
    /// The figures of the run, indexed like `History::columns`. If the run has no value for a column, the element is `None` or
    /// the vector ends before it.
    values: Vec<Option<f64>>,
}

impl Row {
    fn value(&self, column: usize) -> Option<f64> {
        self.values.get(column).copied().flatten()
    }
}

impl History {
    /// Adds a run that has at least one trial. Leaves out a run on an emulated machine, because Otava would find changes in figures
    /// that mean nothing.
    pub(super) fn add(&mut self, run: &Run, name: &str, method: Option<AccountingMethod>) -> Result<()> {
        if run.environment.is_emulated() {
            self.notes.push(format!(
                "note: siga does not export run {}, because its machine is an {EMULATED}",
                run.directory.display()
            ));
            return Ok(());
        }
        let mut begun: Option<SystemTime> = None;
        let mut samples: HashMap<usize, Vec<f64>> = HashMap::new();
        let figures = Figures::new(run, method);
        for trial in &run.trials {
            let at = humantime::parse_rfc3339(&trial.at).map_err(|error| {
                Error::environment(format!("{}: {}: time `{}`: {error}", run.directory.display(), trial.cell, trial.at))
                    .hint("the run directory was changed after siga wrote it; do not use this run")
            })?;
            begun = Some(begun.map_or(at, |earliest| earliest.min(at)));
            if !trial.flags.is_empty() {
                continue;
            }
            for (metric, value) in figures.of(trial)?.1 {
                let value = value * metric.scale(trial.cell.workload);
                samples.entry(self.column(&trial.cell, metric)).or_default().push(value);
            }
        }
        let Some(begun) = begun.filter(|_| !samples.is_empty()) else {
            self.notes.push(format!(
                "note: siga does not export run {}, because all its trials have flaws",
                run.directory.display()
            ));
            return Ok(());
        };
        self.smoke += usize::from(run.plan.smoke);
        let mut values = vec![None; self.columns.len()];
        for (column, samples) in samples {
            values[column] = lower_median(&samples).map(|at| samples[at]);
        }
        let environment = &run.environment;
        let fields = [
            humantime::format_rfc3339_seconds(begun).to_string(),
            name.to_owned(),
            field(&environment.program.version),
            field(environment.kernel.release.as_deref().unwrap_or_default()),
        ];
        let at = self.rows.partition_point(|row| (row.begun, &row.fields) <= (begun, &fields));
        self.rows.insert(at, Row { begun, fields, values });
        Ok(())
    }

    fn column(&mut self, cell: &Cell, metric: Metric) -> usize {
        let next = self.columns.len();
        let column = *self.index.entry((cell.clone(), metric)).or_insert(next);
        if column == next {
            self.columns.push((cell.clone(), metric));
        }
        column
    }

    /// Returns messages for the user about the runs and about columns with missing values.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let (smoke, runs) = (self.smoke, self.rows.len());
        let smoke_text =
            format!("note: {smoke} of {runs} runs are smoke runs, whose trials are too short for reliable figures");
        let (holes, columns) = (self.order().filter(|&column| !self.is_whole(column)).count(), self.columns.len());
        let holes_text = format!(
            "note: Otava's configuration omits {holes} of {columns} columns, because they have no value in at least one run"
        );
        let told = [(smoke > 0).then_some(smoke_text), (holes > 0).then_some(holes_text)];
        self.notes.iter().cloned().chain(told.into_iter().flatten())
    }

    /// Returns the indices of the columns, sorted by cell and metric. `columns` itself is in the order in which the first values
    /// were found. This order is random, because cells are measured in random order.
    fn order(&self) -> impl Iterator<Item = usize> {
        let mut order: Vec<usize> = (0..self.columns.len()).collect();
        order.sort_by_cached_key(|&column| {
            let (cell, metric) = &self.columns[column];
            let Cell { path, workload, mtu, clients, level } = cell.clone();
            (path, workload.to_string(), mtu, clients, level, *metric)
        });
        order.into_iter()
    }

    fn is_whole(&self, column: usize) -> bool {
        self.rows.iter().all(|row| row.value(column).is_some())
    }

    /// Writes the CSV file.
    pub(super) fn csv(&self, output: &mut Output<'_>) -> Result<()> {
        if self.rows.is_empty() {
            return Err(nothing());
        }
        let name = output.name().to_owned();
        let failed = |error: csv::Error| cannot(&name, error);
        let mut writer = csv::Writer::from_writer(output);
        let order: Vec<usize> = self.order().collect();
        let columns = order.iter().map(|&column| column_name(&self.columns[column].0, self.columns[column].1));
        writer.write_record(HEAD.map(str::to_owned).into_iter().chain(columns)).map_err(failed)?;
        for row in &self.rows {
            let value = |&column: &usize| row.value(column).map(|value| value.to_string()).unwrap_or_default();
            let values = order.iter().map(value);
            writer.write_record(row.fields.iter().cloned().chain(values)).map_err(failed)?;
        }
        writer.flush().map_err(|error| cannot(&name, error))
    }

    /// Writes the configuration file, which names `csv` as the file with the data.
    pub(super) fn config(&self, csv: &Path, output: &mut Output<'_>) -> Result<()> {
        if self.rows.is_empty() {
            return Err(nothing());
        }
        let whole: Vec<_> = self.order().filter(|&column| self.is_whole(column)).collect();
        if whole.is_empty() {
            return Err(Error::incomplete(
                "the runs have no figure in common, but Otava needs figures that each run has",
            )
            .hint("export only runs of the same plan"));
        }
        let [time, attributes @ ..] = HEAD;
        let mut text = format!(
            "{OTAVA_CONFIG}    file: {}\n    time_column: {time}\n    attributes: [{}]\n    metrics:\n",
            quoted(&csv.to_string_lossy()),
            attributes.join(", ")
        );
        for column in whole {
            let (cell, metric) = &self.columns[column];
            let name = quoted(&column_name(cell, *metric));
            let direction = if metric.more_is_better() { 1 } else { -1 };
            let _ = writeln!(text, "      {name}: {{column: {name}, direction: {direction}, scale: 1}}");
        }
        output.put(&text)
    }
}

/// Returns the name of a column, such as `veth.rr-200-1000.1500.1.plain.rate`. Different cells have different names, whatever
/// characters the names of paths and levels contain.
fn column_name(cell: &Cell, metric: Metric) -> String {
    let mtu = cell.mtu.map_or_else(|| "none".to_owned(), |mtu| mtu.to_string());
    let workload = cell.workload.to_string();
    let parts = [escaped(&cell.path), escaped(&workload), mtu, cell.clients.to_string(), escaped(&cell.level)];
    format!("{}.{}", parts.join("."), metric.name())
}

/// Escapes a part of a column's name: each byte that is not an ASCII letter, a digit or `-` becomes `_` and two hexadecimal
/// digits.
fn escaped(part: &str) -> String {
    part.bytes().fold(String::new(), |mut name, byte| {
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "_{byte:02x}");
        }
        name
    })
}

/// Returns a text as a YAML string in double quotes, in which all characters other than printable ASCII are escaped.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            ' '..='~' => quoted.push(letter),
            _ => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(letter));
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use siga_results::record::TrialRecord;

    /// Returns a trial with this rate.
    fn trial(path: &str, round: u32, rate: u64, at: &str) -> TrialRecord {
        let mut trial = siga_results::testing::trial(path, round, 700, None);
        trial.client.transactions = rate;
        trial.at = at.into();
        trial
    }

    fn run(trials: Vec<TrialRecord>) -> Run {
        siga_results::testing::run("run", trials)
    }

    fn written(write: impl FnOnce(&mut Output<'_>) -> Result<()>) -> String {
        let mut bytes = Vec::new();
        let mut output = Output::new("memory", &mut bytes);
        write(&mut output).unwrap();
        output.finish().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_row_has_medians_of_sound_trials_and_rows_are_in_order_of_time() {
        let mut history = History::default();
        let mut flagged = trial("veth", 3, 1, "2026-01-02T00:00:00.5Z");
        flagged.flags.push("reset".into());
        let times = ["2026-01-02T00:00:02.000Z", "2026-01-02T00:00:03.000Z", "2026-01-02T00:00:01.900Z"];
        let trials = [500, 100, 300].iter().zip(times).zip(0..);
        let trials = trials.map(|((&rate, at), round)| trial("veth", round, rate, at)).chain([flagged]).collect();
        history.add(&run(trials), "later", None).unwrap();
        history.add(&run(vec![trial("loopback", 0, 7, "2026-01-01T00:00:00Z")]), "earlier", None).unwrap();
        let csv = written(|output| history.csv(output));
        let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(lines.len(), 3, "{csv}");
        assert!(lines[0][4].starts_with("loopback.") && lines[0].last().unwrap().starts_with("veth."), "{csv}");
        let column = |name: &str| lines[0].iter().position(|other| *other == name).unwrap();
        let (veth, loopback) =
            (column("veth.rr-200-1000.1500.1.plain.rate"), column("loopback.rr-200-1000.1500.1.plain.rate"));
        assert_eq!(lines[1][..2], ["2026-01-01T00:00:00Z", "earlier"]);
        assert_eq!(lines[2][..2], ["2026-01-02T00:00:00Z", "later"]);
        assert_eq!([lines[1][veth], lines[1][loopback]], ["", "7"]);
        assert_eq!([lines[2][veth], lines[2][loopback]], ["300", ""]);
    }

    #[test]
    fn the_configuration_has_only_columns_that_every_run_has() {
        let mut history = History::default();
        for day in 1..=3 {
            let at = format!("2026-01-0{day}T00:00:00Z");
            let mut trials = vec![trial("veth", 0, 5, &at)];
            trials.extend((day != 2).then(|| trial("loopback", 0, 5, &at)));
            history.add(&run(trials), &format!("run-{day}"), None).unwrap();
        }
        let config = written(|output| history.config(Path::new("a \"b\"\n.csv"), output));
        assert!(config.contains("file: \"a \\\"b\\\"\\U0000000a.csv\"\n"), "{config}");
        let rate = "\"veth.rr-200-1000.1500.1.plain.rate\"";
        assert!(config.contains(&format!("{rate}: {{column: {rate}, direction: 1, scale: 1}}")), "{config}");
        assert!(config.contains("plain.cpu_total\", direction: -1,"), "{config}");
        assert!(!config.contains("loopback"), "{config}");
        assert_eq!(history.notes().count(), 1);
    }

    #[test]
    fn without_anything_in_common_there_is_no_configuration() {
        let mut history = History::default();
        let mut output = Output::new("memory", Vec::new());
        assert_eq!(history.config(Path::new("x"), &mut output).unwrap_err().exit_status(), 4);
        assert_eq!(history.csv(&mut output).unwrap_err().exit_status(), 4);
        for path in ["veth", "loopback"] {
            history.add(&run(vec![trial(path, 0, 5, "2026-01-01T00:00:00Z")]), path, None).unwrap();
        }
        assert_eq!(history.config(Path::new("x"), &mut output).unwrap_err().exit_status(), 4);
        let error = history.add(&run(vec![trial("veth", 0, 5, "yesterday")]), "bad", None).unwrap_err();
        assert!(error.message().contains("`yesterday`") && error.way_out().is_some(), "{error}");
    }

    #[test]
    fn names_of_different_cells_differ() {
        let cell = |path: &str, level: &str| Cell {
            path: path.into(),
            workload: "rr:7/8".parse().unwrap(),
            mtu: None,
            clients: 10,
            level: level.into(),
        };
        let name = |path: &str, level: &str| column_name(&cell(path, level), Metric::P99);
        assert_eq!(name("unix", "plain"), "unix.rr_3a7_2f8.none.10.plain.p99");
        let different =
            [name("a.b", "c"), name("a", "b.c"), name("a_2eb", "c"), name("a b", "c"), name("a", "b,\n\"c")];
        for (at, one) in different.iter().enumerate() {
            assert!(!different[at + 1..].contains(one), "{different:?}");
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            assert!(one.bytes().all(plain), "{one}");
        }
    }
}
