//! Writes trials as lines of Go benchmarks, which benchstat reads: a benchmark for each cell, a line for each sound trial.

use super::nothing;
use crate::output::Output;
use siga_model::error::Result;
use siga_plan::accounting::AccountingMethod;
use siga_plan::matrix::Cell;
use siga_results::judge::{Figures, Metric};
use siga_results::store::Run;
use std::fmt::Write;

/// Writes the sound trials of runs.
pub(super) fn write(runs: &[Run], method: Option<AccountingMethod>, output: &mut Output<'_>) -> Result<()> {
    let mut text = String::new();
    for run in runs {
        let figures = Figures::new(run, method);
        for cell in run.cells() {
            for (_, trial) in figures.sound(&cell) {
                let (_, values) = figures.of(trial)?;
                let units = trial.units();
                let _ = write!(text, "Benchmark{} {:.0} {} ns/op", name(&cell), units.max(1.0), 1e9 / trial.rate());
                for (metric, value) in values.iter().filter(|(metric, _)| *metric != Metric::Rate) {
                    let value = value * metric.scale(cell.workload);
                    let _ = write!(text, " {value} {}-{}", metric.name(), metric.unit(cell.workload).replace(' ', "_"));
                }
                text.push('\n');
            }
        }
    }
    if text.is_empty() {
        return Err(nothing());
    }
    output.put(&text)
}

/// Returns the name of a cell's benchmark, such as `Gzip/path=host/level=plain`. It has no blanks.
fn name(cell: &Cell) -> String {
    let word =
        |text: &str| text.replace(|letter: char| letter.is_whitespace() || letter == '/' || letter.is_control(), "_");
    let workload = word(&cell.workload.to_string());
    let mtu = cell.mtu.map(|mtu| format!("/mtu={mtu}")).unwrap_or_default();
    let (path, level) = (word(&cell.path), word(&cell.level));
    let mut first = workload.chars();
    let workload =
        first.next().map(|letter| letter.to_ascii_uppercase().to_string() + first.as_str()).unwrap_or_default();
    format!("{workload}/path={path}{mtu}/clients={}/level={level}", cell.clients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_one_line_of_a_benchmark() {
        let mut trial = siga_results::testing::trial("veth", 0, 740, None);
        trial.cell.level = "a b".into();
        let run = siga_results::testing::run("run", vec![trial]);
        let mut bytes = Vec::new();
        let mut output = Output::new("test", &mut bytes);
        write(&[run], None, &mut output).unwrap();
        output.finish().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let begin = "BenchmarkRr-200-1000/path=veth/mtu=1500/clients=1/level=a_b 1000 1000000 ns/op ";
        assert!(
            text.starts_with(begin) && text.contains(" cpu_total-us/trans ") && text.lines().count() == 1,
            "{text}"
        );
        // A benchmark line has a name, a number, and pairs of a value and a unit.
        assert_eq!(text.split_whitespace().count() % 2, 0, "{text}");
    }
}
